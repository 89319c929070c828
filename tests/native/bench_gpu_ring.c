// SPDX-License-Identifier: Apache-2.0
/*
 * Measures how many records a second the proxy of GPU queues moves, with a thread in place of the
 * GPU:
 *
 *	bench_gpu_ring [SECONDS]
 *
 * One thread posts puts of 64 bytes to each of n rings in turn, as fast as there are free places.
 * Printed beside each row is the bare loop: a thread that only takes the records and frees their
 * places, without a proxy; and what a record costs the proxy's code itself, in CPU time, where
 * posting and serving alternate in one thread. Not a test: it prints.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "clock.h"
#include "gpu_ring.h"

enum { SIZE = 1 << 16, DEPTH = 4096, RINGS_MOST = 8, BATCH = 32 };

struct ring {
	dg_ring *handle;
	struct dg_gpu_queue *q;
	struct dg_gpu_ring *out;
	struct dg_gpu_record *records;
	uint64_t posted, taken;
};

struct bench {
	struct ring rings[RINGS_MOST];
	uint32_t n;
	atomic_uint stop;
	uint64_t limit_ns;
	dg_u64 words[DG_RECORD_WORDS];
};

static _Alignas(4096) char local_bytes[SIZE], target_bytes[SIZE];

static uint64_t done_of(struct ring *r)
{
	return ring_load(&r->out->done, memory_order_acquire);
}

/* Posts BATCH records, as a warp does, if their places are free. */
static void post_batch(struct ring *r, const dg_u64 *words)
{
	if (r->posted + BATCH - done_of(r) > DEPTH)
		return;
	for (int i = 0; i < BATCH; i++, r->posted++) {
		struct dg_gpu_record *to = &r->records[r->posted & (DEPTH - 1)];
		const dg_u64 epoch = dg_record_epoch(r->posted, r->q->shift);
		for (int w = 0; w < DG_RECORD_WORDS; w++)
			ring_store(&to->word[w], words[w] | epoch, memory_order_release);
	}
}

/* The bare loop. */
static void *take_all(void *arg)
{
	struct bench *b = arg;
	dg_u64 words[DG_RECORD_WORDS];
	while (!atomic_load_explicit(&b->stop, memory_order_relaxed))
		for (uint32_t i = 0; i < b->n; i++) {
			struct ring *r = &b->rings[i];
			uint32_t n = 0;
			while (n < 64 && ring_take(&r->records[r->taken & (DEPTH - 1)], r->taken,
						   r->q->shift, words)) {
				r->taken++;
				n++;
			}
			if (n)
				ring_store(&r->out->done, r->taken, memory_order_release);
		}
	return NULL;
}

/* Returns millions of records a second. */
static double rate(struct bench *b)
{
	uint64_t sum = 0;
	const uint64_t begin = now_ns();
	while (now_ns() - begin < b->limit_ns)
		for (uint32_t i = 0; i < b->n; i++)
			post_batch(&b->rings[i], b->words);
	for (uint32_t i = 0; i < b->n; i++) {
		while (done_of(&b->rings[i]) != b->rings[i].posted)
			cpu_relax();
		sum += b->rings[i].posted;
	}
	return (double)sum * 1e3 / (double)(now_ns() - begin);
}

static void bare_ring(struct ring *r)
{
	const size_t size = DG_RING_SIZE((size_t)DEPTH);
	char *at = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
	r->q = calloc(1, sizeof *r->q);
	CHECK(at && r->q);
	r->q->shift = 12;
	r->out = (struct dg_gpu_ring *)at;
	r->records = (struct dg_gpu_record *)(at + DG_RING_RECORDS((size_t)DEPTH));
	ring_reset(r->out, (struct dg_gpu_completion *)(at + DG_RING_COMPLETIONS), r->records,
		   DEPTH, r->q->shift, 0);
}

static double bare_rate(struct bench *like)
{
	struct bench b = {.n = like->n, .limit_ns = like->limit_ns};
	pthread_t taker;
	memcpy(b.words, like->words, sizeof b.words);
	for (uint32_t i = 0; i < b.n; i++)
		bare_ring(&b.rings[i]);
	CHECK_EQ(pthread_create(&taker, NULL, take_all, &b), 0);
	const double found = rate(&b);
	atomic_store(&b.stop, 1);
	pthread_join(taker, NULL);
	for (uint32_t i = 0; i < b.n; i++) {
		free(b.rings[i].out);
		free(b.rings[i].q);
	}
	return found;
}

static uint64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Returns CPU nanoseconds a record. The proxy's thread waits for the lock meanwhile. */
static double cost(struct bench *b, dg_proxy *proxy)
{
	uint64_t spent = 0, begin, served = 0;
	dg_poller_lock(&proxy->poller);
	for (int round = 0; round < 50; round++)
		for (uint32_t i = 0; i < b->n; i++) {
			struct ring *r = &b->rings[i];
			for (int n = 0; n < DEPTH / BATCH; n++)
				post_batch(r, b->words);
			begin = cpu_ns();
			while (dg_ring_serve(r->handle))
				;
			spent += cpu_ns() - begin;
			served += DEPTH;
		}
	dg_poller_unlock(&proxy->poller);
	return (double)spent / (double)served;
}

static double proxy_rate(struct bench *b, dg_device *dev, double *ns)
{
	dg_proxy *proxy;
	double found;
	CHECK_EQ(dg_proxy_open(dev, 200000, &proxy), 0);
	for (uint32_t i = 0; i < b->n; i++) {
		struct ring *r = &b->rings[i];
		const dg_ring_config cfg = {.depth = DEPTH, .limit = 1000000000};
		dg_ring_info info;
		*r = (struct ring){0};
		CHECK_EQ(dg_ring_open(proxy, &cfg, &r->handle), 0);
		dg_ring_info_get(r->handle, &info);
		r->q = (struct dg_gpu_queue *)(uintptr_t)info.handle;
		r->out = (struct dg_gpu_ring *)(uintptr_t)r->q->ring;
		r->records = (struct dg_gpu_record *)(uintptr_t)r->q->records;
	}
	found = rate(b);
	*ns = cost(b, proxy);
	for (uint32_t i = 0; i < b->n; i++) {
		dg_ring_stats stats;
		CHECK_EQ(dg_ring_stats_get(b->rings[i].handle, &stats), 0);
		CHECK_EQ(stats.completed, b->rings[i].posted);
		CHECK_EQ(stats.failed, 0);
		dg_ring_free(b->rings[i].handle);
	}
	CHECK_EQ(dg_proxy_close(proxy), 0);
	return found;
}

int main(int argc, char **argv)
{
	static const uint32_t counts[] = {1, 4, 8};
	uint8_t descriptor[DG_DESCRIPTOR_MAX];
	dg_region *local, *target, *remote;
	dg_region_info from, to;
	dg_device *dev;
	struct bench b = {.limit_ns = (uint64_t)((argc > 1 ? atof(argv[1]) : 1.) * 1e9)};
	CHECK_EQ(dg_device_open("soft", NULL, &dev), 0);
	const dg_memory source = {.addr = local_bytes, .size = SIZE, .fd = -1};
	const dg_memory sink = {.addr = target_bytes, .size = SIZE, .fd = -1};
	CHECK_EQ(dg_region_register(dev, &source, 3, &local), 0);
	CHECK_EQ(dg_region_register(dev, &sink, 3, &target), 0);
	const int length = dg_region_export(target, 3, descriptor, sizeof descriptor);
	CHECK_EQ(dg_region_import(dev, descriptor, (size_t)length, 1000000000, &remote), 0);
	dg_region_info_get(local, &from);
	dg_region_info_get(remote, &to);
	const struct dg_gpu_request put = {
		.op = DG_OP_PUT, .local = from.id, .remote = to.id, .size = 64};
	dg_record_pack(&put, b.words);
	for (int i = 0; i < 3; i++) {
		b.n = counts[i];
		double ns;
		const double bare = bare_rate(&b), moved = proxy_rate(&b, dev, &ns);
		printf("%u rings: %.2f M/s moved; bare loop %.2f M/s; %.1f ns of CPU a record\n", b.n,
		       moved, bare, ns);
		fflush(stdout);
	}
	return dg_device_close(dev, 1000000000) != 0;
}
