// SPDX-License-Identifier: Apache-2.0
#include "statistics.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "dgkit.h"
#include "error.h"

/* Latencies are counted in buckets, 8 for each power of two: 12 % apart. */
enum { STEPS = 8, STEPS_BITS = 3, BUCKETS = (64 - STEPS_BITS + 1) * STEPS };
#define UPDATE_NS 200000000u

static const char *const names[STATISTICS_KINDS] = {"puts", "signals", "gets"};

struct latency {
	uint64_t count, bytes, gpu, total_ns;
	uint32_t buckets[BUCKETS];
};

struct peer_statistics {
	uint64_t failed;
	struct latency kinds[STATISTICS_KINDS];
};

/* Batches and what they have in total: requests or words, time in calls, and time until done. */
struct batches {
	uint64_t count, items, call_ns, busy_ns;
};

struct statistics {
	uint32_t rank, ranks;
	uint64_t opened_ns, written_ns, passes;
	struct batches submissions, signal_writes;
	char path[PATH_MAX], next[PATH_MAX];
	struct peer_statistics peers[];
};

static uint32_t bucket_of(uint64_t ns)
{
	if (ns < STEPS)
		return (uint32_t)ns;
	const uint32_t shift = 63 - (uint32_t)__builtin_clzll(ns) - STEPS_BITS;
	return (shift + 1) * STEPS + (uint32_t)(ns >> shift) % STEPS;
}

/* The middle of a bucket. */
static uint64_t bucket_ns(uint32_t i)
{
	if (i < STEPS)
		return i;
	const uint32_t shift = i / STEPS - 1;
	return ((uint64_t)(STEPS + i % STEPS) << shift) + ((UINT64_C(1) << shift) >> 1);
}

static uint64_t latency_percentile(const struct latency *l, uint64_t percent)
{
	uint64_t left = (l->count * percent + 99) / 100;
	uint32_t i = 0;
	while (i < BUCKETS - 1 && l->buckets[i] < left)
		left -= l->buckets[i++];
	return bucket_ns(i);
}

static void write_kind(FILE *f, const char *name, const struct latency *l)
{
	fprintf(f, "\"%s\": {\"count\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"gpu\": %" PRIu64, name,
		l->count, l->bytes, l->gpu);
	if (l->count)
		fprintf(f,
			", \"mean_ns\": %" PRIu64 ", \"p50_ns\": %" PRIu64 ", \"p99_ns\": %" PRIu64,
			l->total_ns / l->count, latency_percentile(l, 50),
			latency_percentile(l, 99));
	fprintf(f, "}, ");
}

static void write_batches(FILE *f, const char *name, const struct batches *b)
{
	fprintf(f,
		" \"%s\": {\"count\": %" PRIu64 ", \"items\": %" PRIu64 ", \"call_ns\": %" PRIu64
		", \"busy_ns\": %" PRIu64 "},\n",
		name, b->count, b->items, b->call_ns, b->busy_ns);
}

static void write_text(FILE *f, const struct statistics *s, bool closed)
{
	fprintf(f, "{\"rank\": %" PRIu32 ", \"ranks\": %" PRIu32 ", \"pid\": %d, \"closed\": %s,\n"
		   " \"open_ns\": %" PRIu64 ", \"passes\": %" PRIu64 ",\n",
		s->rank, s->ranks, (int)getpid(), closed ? "true" : "false",
		dg_now_ns() - s->opened_ns, s->passes);
	write_batches(f, "submissions", &s->submissions);
	write_batches(f, "signal_writes", &s->signal_writes);
	fprintf(f, " \"peers\": [");
	for (uint32_t i = 0; i < s->ranks; i++) {
		const struct peer_statistics *p = &s->peers[i];
		fprintf(f, "%s\n  {", i ? "," : "");
		for (uint32_t k = 0; k < STATISTICS_KINDS; k++)
			write_kind(f, names[k], &p->kinds[k]);
		fprintf(f, "\"failed\": %" PRIu64 "}", p->failed);
	}
	fprintf(f, "\n]}\n");
}

/* Replaces the file, so that a reader finds a whole one. */
static int write_file(struct statistics *s, bool closed)
{
	FILE *f = fopen(s->next, "we");
	if (!f)
		return dg_fail_errno("cannot write %s (DGKIT_NCCL_STATISTICS)", s->next);
	write_text(f, s, closed);
	if (fclose(f) || rename(s->next, s->path)) {
		const int rc = dg_fail_errno("cannot write %s (DGKIT_NCCL_STATISTICS)", s->path);
		unlink(s->next);
		return rc;
	}
	return 0;
}

static int make_paths(struct statistics *s, const char *folder)
{
	uint32_t salt = 0;
	if (getrandom(&salt, sizeof salt, 0) != sizeof salt)
		return dg_fail_errno("cannot get random bytes");
	const int n = snprintf(s->path, sizeof s->path, "%s/rank-%" PRIu32 "-%d-%08" PRIx32 ".json",
			       folder, s->rank, (int)getpid(), salt);
	const int m = snprintf(s->next, sizeof s->next, "%s/.rank-%" PRIu32 "-%d-%08" PRIx32, folder,
			       s->rank, (int)getpid(), salt);
	if (n < 0 || m < 0 || (size_t)n >= sizeof s->path || (size_t)m >= sizeof s->next)
		return dg_fail(ENAMETOOLONG, "DGKIT_NCCL_STATISTICS has more than %d characters",
			       PATH_MAX - 64);
	return 0;
}

int statistics_open(uint32_t rank, uint32_t ranks, struct statistics **out)
{
	const char *folder = getenv("DGKIT_NCCL_STATISTICS");
	*out = NULL;
	if (!folder || !*folder)
		return 0;
	struct statistics *s = calloc(1, sizeof *s + ranks * sizeof s->peers[0]);
	if (!s)
		return dg_fail(ENOMEM, "out of memory for statistics");
	s->rank = rank;
	s->ranks = ranks;
	s->opened_ns = dg_now_ns();
	int rc = make_paths(s, folder);
	if (!rc)
		rc = write_file(s, false);
	if (rc)
		free(s);
	else
		*out = s;
	return rc;
}

void statistics_count(struct statistics *s, uint32_t peer, uint32_t kind, uint64_t size, bool gpu,
		      uint64_t ns)
{
	struct latency *l = &s->peers[peer].kinds[kind];
	l->count++;
	l->bytes += size;
	l->gpu += gpu;
	l->total_ns += ns;
	l->buckets[bucket_of(ns)]++;
}

void statistics_count_failure(struct statistics *s, uint32_t peer)
{
	s->peers[peer].failed++;
}

void statistics_submitted(struct statistics *s, uint32_t n, uint64_t call_ns)
{
	s->submissions.count++;
	s->submissions.items += n;
	s->submissions.call_ns += call_ns;
}

void statistics_busy(struct statistics *s, uint64_t ns)
{
	s->submissions.busy_ns += ns;
}

void statistics_signals_written(struct statistics *s, uint32_t n, uint64_t call_ns, uint64_t ns)
{
	s->signal_writes.count++;
	s->signal_writes.items += n;
	s->signal_writes.call_ns += call_ns;
	s->signal_writes.busy_ns += ns;
}

void statistics_pass(struct statistics *s)
{
	s->passes++;
}

void statistics_update(struct statistics *s, uint64_t now_ns)
{
	if (now_ns - s->written_ns < UPDATE_NS)
		return;
	s->written_ns = now_ns;
	write_file(s, false);
}

void statistics_close(struct statistics *s)
{
	if (s)
		write_file(s, true);
	free(s);
}
