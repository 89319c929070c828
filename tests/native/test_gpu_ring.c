// SPDX-License-Identifier: Apache-2.0
/*
 * The ring of a GPU queue and its proxy, with threads of this process in place of the GPU's.
 *
 * Litmus tests. Each states a forbidden outcome; the argument for Arm is the rule with that number
 * in gpu_initiated/dgkit_device.cuh. A run on x86 or under emulation proves nothing for Arm;
 * ThreadSanitizer checks that each order named there is provided by C11 atomics.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "check.h"
#include "gpu_ring_words.h"
#include "region.h"

enum { SIZE = 4096, DEPTH = 64 };

/* A poster: the GPU's side of a ring, for one thread. */
struct poster {
	dg_ring *ring;
	dg_ring_info info;
	struct dg_gpu_queue *q;
	struct dg_gpu_ring *out;
	struct dg_gpu_completion *completions;
	struct dg_gpu_record *records;
	uint64_t next;
};

struct world {
	dg_device *dev;
	dg_proxy *proxy;
	char local_bytes[SIZE], target_bytes[3 * SIZE];
	dg_region *local, *target, *remote;
	uint32_t local_id, remote_id;
};

static uint64_t seed = 88172645463325252u;

static uint64_t draw(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* The remote region is the middle of target_bytes. */
static void world_open(struct world *w)
{
	uint8_t descriptor[DG_DESCRIPTOR_MAX];
	dg_region_info info;
	memset(w, 0, sizeof *w);
	CHECK_EQ(dg_device_open("soft", NULL, &w->dev), 0);
	const dg_memory from = {.addr = w->local_bytes, .size = SIZE, .fd = -1};
	const dg_memory to = {.addr = w->target_bytes + SIZE, .size = SIZE, .fd = -1};
	CHECK_EQ(dg_region_register(w->dev, &from, 3, &w->local), 0);
	CHECK_EQ(dg_region_register(w->dev, &to, 3, &w->target), 0);
	const int length = dg_region_export(w->target, 3, descriptor, sizeof descriptor);
	CHECK_EQ(dg_region_import(w->dev, descriptor, (size_t)length, PATIENCE, &w->remote), 0);
	dg_region_info_get(w->local, &info);
	w->local_id = info.id;
	dg_region_info_get(w->remote, &info);
	w->remote_id = info.id;
	CHECK_EQ(dg_proxy_open(w->dev, 200000, &w->proxy), 0);
}

static void world_close(struct world *w)
{
	CHECK_EQ(dg_proxy_close(w->proxy), 0);
	CHECK_EQ(dg_device_close(w->dev, 10 * SECOND), 0);
}

/* handle: address of the ring's dg_gpu_queue. */
static void poster_of(struct poster *p, uintptr_t handle, uint64_t first)
{
	p->q = (struct dg_gpu_queue *)handle;
	p->out = (struct dg_gpu_ring *)(uintptr_t)p->q->ring;
	p->completions = (struct dg_gpu_completion *)(uintptr_t)p->q->completions;
	p->records = (struct dg_gpu_record *)(uintptr_t)p->q->records;
	p->next = first;
}

static void poster_open(struct poster *p, struct world *w, uint64_t first)
{
	const dg_ring_config cfg = {.depth = DEPTH, .first = first, .limit = SECOND};
	CHECK_EQ(dg_ring_open(w->proxy, &cfg, &p->ring), 0);
	dg_ring_info_get(p->ring, &p->info);
	poster_of(p, p->info.handle, first);
}

/* Stores the words of a record in random order, each with release. */
static uint64_t post_words(struct poster *p, const dg_u64 *words, uint64_t order)
{
	const uint64_t ticket = p->next++ & DG_SEQUENCE_MASK;
	const uint64_t count = (ticket - p->q->first) & DG_SEQUENCE_MASK;
	while (count - ring_load(&p->out->done, memory_order_acquire) >= DEPTH)
		sched_yield();
	for (uint64_t i = 0; i < DG_RECORD_WORDS; i++) {
		const uint64_t at = (i * (2 * (order & 3) + 1) + order) & 7;
		ring_store(&p->records[ticket & p->q->mask].word[at],
			   DG_LOW(words[at], 56) | dg_record_epoch(ticket, p->q->shift),
			   memory_order_release);
	}
	return ticket;
}

static uint64_t post(struct poster *p, const struct dg_gpu_request *r)
{
	dg_u64 words[DG_RECORD_WORDS];
	dg_record_pack(r, words);
	return post_words(p, words, p->next);
}

/* Returns the status of a ticket, or -1 if the ring was closed first. */
static int wait_for(struct poster *p, uint64_t ticket)
{
	for (;;) {
		const uint64_t closed = ring_load(&p->out->closed, memory_order_acquire);
		const uint64_t state =
			ring_load(&p->completions[ticket & p->q->mask].state, memory_order_acquire);
		if (dg_completion_ahead(state, ticket) == 0)
			return (int)(state & 255);
		CHECK(dg_completion_ahead(state, ticket) < 0);
		if (closed == DG_RING_RETIRED)
			return -1;
		sched_yield();
	}
}

static struct dg_gpu_request copy_request(const struct world *w, dg_u8 op, uint64_t offset,
					  uint64_t size)
{
	return (struct dg_gpu_request){
		.op = op,
		.local = w->local_id,
		.remote = w->remote_id,
		.local_offset = offset,
		.remote_offset = offset,
		.size = size,
	};
}

TEST(a_record_is_unpacked_as_it_was_packed)
{
	for (int n = 0; n < 20000; n++) {
		const struct dg_gpu_request r = {
			.op = (dg_u8)draw(),
			.flags = (dg_u8)draw(),
			.length = (dg_u8)draw(),
			.local = (dg_u32)draw(),
			.remote = (dg_u32)draw(),
			.signal_region = (dg_u32)draw(),
			.immediate = (dg_u32)draw(),
			.local_offset = draw() & DG_SEQUENCE_MASK,
			.remote_offset = draw() & DG_SEQUENCE_MASK,
			.size = draw() & DG_SEQUENCE_MASK,
			.signal_offset = draw() & DG_SEQUENCE_MASK,
			.addend = draw(),
		};
		struct dg_gpu_request back = {0};
		dg_u64 words[DG_RECORD_WORDS];
		dg_record_pack(&r, words);
		for (int i = 0; i < DG_RECORD_WORDS; i++) {
			CHECK_EQ(words[i] >> 56, 0);
			words[i] |= draw() << 56;
		}
		dg_record_unpack(words, &back);
		CHECK(r.op == back.op && r.flags == back.flags && r.length == back.length);
		CHECK(r.local == back.local && r.remote == back.remote);
		CHECK(r.signal_region == back.signal_region && r.immediate == back.immediate);
		CHECK(r.local_offset == back.local_offset && r.size == back.size);
		CHECK(r.remote_offset == back.remote_offset && r.addend == back.addend);
		CHECK(r.signal_offset == back.signal_offset);
	}
}

TEST(inline_bytes_are_unpacked_and_leave_the_other_fields)
{
	for (dg_u32 length = 0; length <= DG_INLINE_MAX; length++) {
		const struct dg_gpu_request r = {.op = DG_OP_PUT_INLINE,
						 .length = (dg_u8)length,
						 .signal_region = 0x89abcdef,
						 .remote_offset = DG_SEQUENCE_MASK - 5};
		struct dg_gpu_request back;
		dg_u8 bytes[DG_INLINE_MAX], seen[DG_INLINE_MAX];
		dg_u64 words[DG_RECORD_WORDS];
		for (int i = 0; i < DG_INLINE_MAX; i++)
			bytes[i] = (dg_u8)draw();
		dg_record_pack(&r, words);
		dg_inline_pack(words, bytes, length);
		for (int i = 0; i < DG_RECORD_WORDS; i++)
			CHECK_EQ(words[i] >> 56, 0);
		dg_inline_unpack(words, seen, length);
		CHECK_EQ(memcmp(bytes, seen, length), 0);
		dg_record_unpack(words, &back);
		CHECK(back.signal_region == r.signal_region && back.length == length);
		CHECK(back.remote_offset == r.remote_offset);
	}
}

TEST(completions_are_ordered_across_the_wrap)
{
	const uint64_t at[] = {0, 1, 63, 1u << 31, (1ull << 56) - 2, (1ull << 56) - 1};
	for (size_t i = 0; i < sizeof at / sizeof at[0]; i++)
		for (int64_t by = -1000; by <= 1000; by += 250) {
			const uint64_t other = (at[i] + (uint64_t)by) & DG_SEQUENCE_MASK;
			const uint64_t state = dg_completion_state(other, DG_IO_FAILED);
			CHECK_EQ(dg_completion_ahead(state, at[i]), by);
			CHECK_EQ(state & 255, DG_IO_FAILED);
		}
}

TEST(a_record_of_which_a_word_is_missing_is_not_taken)
{
	struct dg_gpu_record record;
	dg_u64 words[DG_RECORD_WORDS];
	for (uint64_t lap = 0; lap < 600; lap += 51)
		for (int missing = 0; missing <= DG_RECORD_WORDS; missing++) {
			const uint64_t sequence = lap * DEPTH + 5;
			for (int i = 0; i < DG_RECORD_WORDS; i++)
				record.word[i] = dg_record_epoch(sequence, 6);
			if (missing < DG_RECORD_WORDS)
				record.word[missing] = dg_record_epoch(sequence - DEPTH, 6);
			CHECK_EQ(ring_take(&record, sequence, 6, words),
				 missing == DG_RECORD_WORDS);
		}
}

struct run {
	struct world *w;
	struct poster p;
	uint64_t offset;
	int rounds;
};

/* Litmus 1, 2, 3 and 4. Forbidden: the target has other bytes than the poster stored before it
 * posted (1, 2); an operation runs that was not posted, or runs twice (3); the poster does not see
 * the bytes of the target, or of its get, after their completion (4). The payload is plain
 * memory. */
static void *put_and_get(void *arg)
{
	struct run *r = arg;
	char *own = r->w->local_bytes + r->offset, *there = r->w->target_bytes + SIZE + r->offset;
	const struct dg_gpu_request put = copy_request(r->w, DG_OP_PUT, r->offset, 64);
	const struct dg_gpu_request get = copy_request(r->w, DG_OP_GET, r->offset, 64);
	for (int n = 0; n < r->rounds; n++) {
		memset(own, n, 64);
		CHECK_EQ(wait_for(&r->p, post(&r->p, &put)), DG_OK);
		for (int i = 0; i < 64; i++)
			CHECK_EQ(there[i], (char)n);
		memset(there, n + 1, 64);
		CHECK_EQ(wait_for(&r->p, post(&r->p, &get)), DG_OK);
		for (int i = 0; i < 64; i++)
			CHECK_EQ(own[i], (char)(n + 1));
	}
	return NULL;
}

TEST(bytes_and_completions_are_seen_in_order)
{
	const uint64_t firsts[] = {0, (1ull << 56) - 100, 255 * DEPTH};
	struct run runs[3];
	pthread_t threads[3];
	FIXTURE(world, w, world_open);
	for (int i = 0; i < 3; i++) {
		runs[i] = (struct run){.w = &w, .offset = 64 * (uint64_t)i, .rounds = 2000};
		poster_open(&runs[i].p, &w, firsts[i]);
		CHECK_EQ(pthread_create(&threads[i], NULL, put_and_get, &runs[i]), 0);
	}
	for (int i = 0; i < 3; i++) {
		dg_ring_stats stats;
		pthread_join(threads[i], NULL);
		CHECK_EQ(dg_ring_stats_get(runs[i].p.ring, &stats), 0);
		CHECK_EQ(stats.completed, 4000);
		CHECK_EQ(stats.failed, 0);
		dg_ring_free(runs[i].p.ring);
	}
}

#ifndef __SANITIZE_THREAD__ /* it does not know store barriers, which order the copies on Arm */
/* Puts with a signal, each into one of SLOTS slots behind the signal's word; and how many of them
 * the reader has checked. */
enum { SLOTS = 16, SLOT = 64, SIGNALS = 20000 };
struct signals {
	struct world *w;
	struct poster p;
	atomic_int checked;
};

static void *put_with_signals(void *arg)
{
	struct signals *s = arg;
	for (int n = 0; n < SIGNALS; n++) {
		const uint64_t slot = SLOT * (uint64_t)(n % SLOTS + 1);
		struct dg_gpu_request put = copy_request(s->w, DG_OP_PUT, slot, SLOT);
		put.flags = DG_SIGNAL;
		put.signal_region = s->w->remote_id;
		put.addend = 1;
		/* Acquire: the reader has read the slot. */
		while (atomic_load_explicit(&s->checked, memory_order_acquire) <= n - SLOTS)
			sched_yield();
		memset(s->w->local_bytes + slot, n, SLOT);
		post(&s->p, &put);
	}
	return NULL;
}

/* Litmus 7. Forbidden: the word counts a put of which the reader does not see all bytes. */
TEST(a_signal_is_seen_after_its_bytes)
{
	struct world w;
	struct signals s = {.w = &w};
	pthread_t poster;
	world_open(&w);
	poster_open(&s.p, &w, 0);
	const char *target = w.target_bytes + SIZE;
	CHECK_EQ(pthread_create(&poster, NULL, put_with_signals, &s), 0);
	for (int n = 0; n < SIGNALS; n++) {
		const dg_u64 *word = (const dg_u64 *)(const void *)target;
		while (ring_load(word, memory_order_acquire) <= (dg_u64)n)
			sched_yield();
		for (int i = 0; i < SLOT; i++)
			CHECK_EQ(target[SLOT * (n % SLOTS + 1) + i], (char)n);
		atomic_store_explicit(&s.checked, n + 1, memory_order_release);
	}
	pthread_join(poster, NULL);
	dg_ring_free(s.p.ring);
	world_close(&w);
}
#endif

/* Litmus 5. Forbidden: a place shows a later state while first_error, stored before, is not seen. */
TEST(the_first_error_is_seen_before_what_overtakes_it)
{
	FIXTURE(world, w, world_open);
	for (int n = 0; n < 50; n++) {
		struct poster p;
		struct dg_gpu_request wrong = copy_request(&w, DG_OP_PUT, SIZE, 8);
		const struct dg_gpu_request right = copy_request(&w, DG_OP_PUT, 0, 8);
		uint64_t last = 0;
		poster_open(&p, &w, 0);
		const uint64_t first = post(&p, &wrong);
		for (int i = 0; i < DEPTH; i++)
			last = post(&p, &right);
		CHECK_EQ(wait_for(&p, last), DG_OK);
		CHECK_EQ(last & p.q->mask, first & p.q->mask);
		CHECK_EQ(ring_load(&p.out->first_error, memory_order_relaxed),
			 dg_completion_state(first, DG_OUT_OF_BOUNDS));
		dg_ring_free(p.ring);
	}
}

static void *put_until_closed(void *arg)
{
	struct run *r = arg;
	char *there = r->w->target_bytes + SIZE + r->offset;
	char *own = r->w->local_bytes + r->offset;
	const struct dg_gpu_request put = copy_request(r->w, DG_OP_PUT, r->offset, 64);
	for (int n = 0;; n++) {
		memset(own, n, 64);
		const int status = wait_for(&r->p, post(&r->p, &put));
		if (status != DG_OK) {
			CHECK(status == -1 || status == DG_FLUSHED);
			return NULL;
		}
		CHECK_EQ(there[63], (char)n);
	}
}

/* Litmus 6. Forbidden: a wait continues after the close; or it ends as closed although its
 * completion was stored before (then `there` would not have been checked in the round it belongs
 * to). */
TEST(closing_ends_every_wait)
{
	FIXTURE(world, w, world_open);
	for (int n = 0; n < 30; n++) {
		struct run r = {.w = &w, .offset = 128};
		pthread_t thread;
		poster_open(&r.p, &w, 0);
		CHECK_EQ(pthread_create(&thread, NULL, put_until_closed, &r), 0);
		usleep((useconds_t)(draw() % 2000));
		CHECK_EQ(dg_ring_close(r.p.ring), 0);
		pthread_join(thread, NULL);
		dg_ring_free(r.p.ring);
	}
}

/* Random records, some of them nearly valid: none moves a byte outside the regions, and another
 * ring is served throughout. */
TEST(random_records_move_nothing_outside_and_stop_no_other)
{
	struct world w;
	struct poster fuzzed, peer;
	struct run r = {.w = &w, .offset = 0, .rounds = 500};
	pthread_t thread;
	world_open(&w);
	poster_open(&fuzzed, &w, 0);
	poster_open(&peer, &w, 0);
	poster_open(&r.p, &w, 0);
	CHECK_EQ(dg_ring_connect(fuzzed.ring, peer.ring), 0);
	CHECK_EQ(pthread_create(&thread, NULL, put_and_get, &r), 0);
	const uint32_t ids[] = {w.local_id, w.remote_id, 0, 12345, UINT32_MAX};
	for (int n = 0; n < 20000; n++) {
		struct dg_gpu_request q = {
			.op = (dg_u8)(draw() % 10),
			.flags = (dg_u8)(draw() & draw() & ~(uint64_t)(DG_HOLD | DG_COUNTER)),
			.length = (dg_u8)(draw() % 48),
			.local = ids[draw() % 5],
			.remote = ids[draw() % 5],
			.signal_region = ids[draw() % 5],
			.local_offset = 1024 + draw() % (SIZE - 1024 + 64),
			.remote_offset = draw() % 8 ? 1024 + draw() % SIZE : draw() & DG_SEQUENCE_MASK,
			.size = draw() % 4 ? draw() % 64 : draw() & DG_SEQUENCE_MASK,
			.signal_offset = 1024 + draw() % SIZE,
			.addend = draw(),
		};
		/* A receive, a send and an immediate value would wait for the peer forever. */
		if (q.op == DG_OP_RECV || q.op == DG_OP_SEND)
			q.op = 99;
		q.flags &= (dg_u8)~DG_IMMEDIATE;
		const uint64_t ticket = post(&fuzzed, &q);
		const int status = wait_for(&fuzzed, ticket);
		CHECK(status >= DG_OK && status <= DG_QUEUE_FULL);
	}
	pthread_join(thread, NULL);
	for (int i = 0; i < SIZE; i++)
		CHECK(!w.target_bytes[i] && !w.target_bytes[2 * SIZE + i]);
	dg_ring_free(fuzzed.ring);
	dg_ring_free(peer.ring);
	dg_ring_free(r.p.ring);
	world_close(&w);
}

/* A ring that several threads close and query concurrently. */
struct contested {
	struct poster poster, other;
	pthread_barrier_t start;
};

static void *close_contested(void *arg)
{
	struct contested *c = arg;
	pthread_barrier_wait(&c->start);
	CHECK_EQ(dg_ring_close(c->poster.ring), 0);
	/* After each of the calls, not only after the first one. */
	CHECK_EQ(ring_load(&c->poster.out->closed, memory_order_acquire), DG_RING_RETIRED);
	return NULL;
}

static void *ask_contested(void *arg)
{
	struct contested *c = arg;
	dg_ring_stamp stamps[DEPTH];
	dg_ring_stats stats;
	int rc;
	pthread_barrier_wait(&c->start);
	rc = dg_ring_connect(c->poster.ring, c->other.ring);
	CHECK(rc == 0 || rc == -ESTALE);
	do {
		rc = dg_ring_stats_get(c->poster.ring, &stats);
		CHECK(rc == 0 || rc == -ESTALE);
		rc = dg_ring_trace(c->poster.ring, stamps, DEPTH);
		CHECK(rc >= 0 || rc == -ESTALE);
	} while (rc >= 0);
	return NULL;
}

TEST(threads_close_and_ask_one_ring)
{
	enum { ROUNDS = 300, CLOSERS = 3, THREADS = CLOSERS + 1 };
	FIXTURE(world, w, world_open);
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t threads[THREADS];
		struct contested c;
		poster_open(&c.poster, &w, 0);
		poster_open(&c.other, &w, 0);
		pthread_barrier_init(&c.start, NULL, THREADS);
		for (int i = 0; i < THREADS; i++)
			CHECK_EQ(pthread_create(&threads[i], NULL,
						i < CLOSERS ? close_contested : ask_contested, &c),
				 0);
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		pthread_barrier_destroy(&c.start);
		dg_ring_free(c.poster.ring);
		dg_ring_free(c.other.ring);
	}
}

TEST(a_closed_ring_outlives_its_proxy)
{
	struct world w;
	struct poster p;
	dg_ring_stats stats;
	world_open(&w);
	poster_open(&p, &w, 0);
	CHECK_EQ(dg_ring_close(p.ring), 0);
	world_close(&w);
	CHECK_EQ(dg_ring_stats_get(p.ring, &stats), -ESTALE);
	CHECK_EQ(dg_ring_close(p.ring), 0);
	dg_ring_free(p.ring);
}

TEST(a_wrong_configuration_is_refused)
{
	const dg_ring_config wrong[] = {{.depth = 32}, {.depth = 100}, {.depth = 32768},
					{.depth = 64, .first = 1ull << 56}};
	dg_ring *ring;
	FIXTURE(world, w, world_open);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(dg_ring_open(w.proxy, &wrong[i], &ring), -EINVAL);
		CHECK(ring == NULL);
	}
	CHECK_SAYS(dg_last_error(), "a ticket has 56 bits");
	CHECK_EQ(dg_ring_open(w.proxy, &(dg_ring_config){.depth = 64}, &ring), 0);
	CHECK_EQ(dg_proxy_close(w.proxy), -EBUSY);
	dg_ring_free(ring);
}

/* Small and large copies in both directions, some with a flag, some invalid: each ends with its own
 * status, and the bytes are as if the operations had been executed one after the other. */
TEST(copies_of_all_kinds_are_made_in_posting_order)
{
	static struct world w;
	static char local[SIZE], remote[SIZE];
	enum { KINDS = 300 };
	uint64_t tickets[KINDS];
	int statuses[KINDS];
	struct poster p;
	world_open(&w);
	poster_open(&p, &w, DG_SEQUENCE_MASK - 7);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < SIZE; i++) {
			w.local_bytes[i] = local[i] = (char)draw();
			w.target_bytes[SIZE + i] = remote[i] = (char)draw();
		}
		for (int i = 0; i < KINDS; i++) {
			const bool put = draw() & 1;
			struct dg_gpu_request r = copy_request(&w, put ? DG_OP_PUT : DG_OP_GET, 0,
							       draw() % 8 ? draw() % 80 : draw() % SIZE);
			r.local_offset = draw() % SIZE;
			r.remote_offset = draw() % SIZE;
			r.flags = draw() % 16 ? 0 : DG_FENCE;
			r.local += draw() % 64 ? 0 : 1000;
			const bool known = r.local == w.local_id;
			const bool fits = r.size && r.local_offset + r.size <= SIZE &&
					  r.remote_offset + r.size <= SIZE;
			statuses[i] = !known ? -1 : fits ? DG_OK : DG_OUT_OF_BOUNDS;
			if (statuses[i] == DG_OK && put)
				memcpy(remote + r.remote_offset, local + r.local_offset, r.size);
			else if (statuses[i] == DG_OK)
				memcpy(local + r.local_offset, remote + r.remote_offset, r.size);
			tickets[i] = post(&p, &r);
			if (i >= DEPTH / 2) {
				const int at = i - DEPTH / 2, status = wait_for(&p, tickets[at]);
				CHECK(statuses[at] < 0 ? status != DG_OK : status == statuses[at]);
			}
		}
		for (int i = KINDS - DEPTH / 2; i < KINDS; i++) {
			const int status = wait_for(&p, tickets[i]);
			CHECK(statuses[i] < 0 ? status != DG_OK : status == statuses[i]);
		}
		CHECK_EQ(memcmp(local, w.local_bytes, SIZE), 0);
		CHECK_EQ(memcmp(remote, w.target_bytes + SIZE, SIZE), 0);
	}
	dg_ring_stats stats;
	CHECK_EQ(dg_ring_stats_get(p.ring, &stats), 0);
	CHECK_EQ(stats.completed, 20 * KINDS);
	dg_ring_free(p.ring);
	world_close(&w);
}

/* A ring as if its kernels were another process's: they use w->local by its import, and w->remote. */
struct foreign {
	struct world w;
	struct poster p;
	dg_memory memory;
	dg_region *exported, *ring, *own_import;
};

static dg_region *import_of(struct world *w, dg_region *region)
{
	uint8_t descriptor[DG_DESCRIPTOR_MAX];
	dg_region *out;
	const int length = dg_region_export(region, 3, descriptor, sizeof descriptor);
	CHECK(length > 0);
	CHECK_EQ(dg_region_import(w->dev, descriptor, (size_t)length, PATIENCE, &out), 0);
	return out;
}

static uint32_t name_of(dg_region *region)
{
	dg_region_info info;
	CHECK_EQ(dg_region_info_get(region, &info), 0);
	return info.id;
}

static void foreign_open(struct foreign *f)
{
	dg_ring_config cfg = {.depth = DEPTH, .limit = SECOND};
	world_open(&f->w);
	f->memory = (dg_memory){.size = dg_ring_memory_size(&cfg), .fd = -1};
	f->memory.addr = aligned_alloc(SIZE, f->memory.size);
	CHECK_EQ(dg_ring_lay_out(f->memory.addr, &cfg), 0);
	CHECK_EQ(dg_region_register(f->w.dev, &f->memory, 3, &f->exported), 0);
	f->ring = import_of(&f->w, f->exported);
	f->own_import = import_of(&f->w, f->w.local);
	cfg.memory = name_of(f->ring);
	cfg.own = f->w.local_id;
	cfg.own_import = name_of(f->own_import);
	cfg.n_peers = 1;
	cfg.peers[0] = f->w.remote_id;
	CHECK_EQ(dg_ring_open(f->w.proxy, &cfg, &f->p.ring), 0);
	poster_of(&f->p, (uintptr_t)f->memory.addr, 0);
}

static void foreign_close(struct foreign *f)
{
	dg_ring_free(f->p.ring);
	world_close(&f->w);
	free(f->memory.addr);
}

/* Puts `size` bytes from the kernel's region into that of the ring's process; returns the status. */
static int put_from(struct foreign *f, uint64_t size)
{
	const struct dg_gpu_request r = {
		.op = DG_OP_PUT, .local = f->w.remote_id, .remote = f->w.local_id, .size = size};
	return wait_for(&f->p, post(&f->p, &r));
}

/* Returns another region with the name of a closed one, as after 67 million closes: registered
 * memory, or an import if `of` is given. */
static dg_region *namesake(struct world *w, uint32_t name, const dg_memory *memory, dg_region *of)
{
	dg_region *region;
	dg_region_table_set_generation(REGION_INDEX(name), (name >> 20) + (1u << 12) - 1);
	for (;;) {
		if (of)
			region = import_of(w, of);
		else
			CHECK_EQ(dg_region_register(w->dev, memory, 3, &region), 0);
		if (name_of(region) == name)
			return region;
		CHECK(REGION_INDEX(name_of(region)) != REGION_INDEX(name));
		CHECK_EQ(dg_region_close(region, PATIENCE), 0);
	}
}

TEST(a_ring_does_not_write_into_a_region_with_the_name_of_its_closed_one)
{
	static char stranger[SIZE];
	const dg_memory memory = {.addr = stranger, .size = SIZE, .fd = -1};
	FIXTURE(foreign, f, foreign_open);
	memset(f.w.target_bytes, 1, sizeof f.w.target_bytes);
	CHECK_EQ(put_from(&f, 8), DG_OK);
	CHECK_EQ(put_from(&f, SIZE), DG_OK);
	CHECK_EQ(memcmp(f.w.local_bytes, f.w.target_bytes, SIZE), 0);
	CHECK_EQ(dg_region_close(f.own_import, PATIENCE), 0);
	CHECK_EQ(dg_region_close(f.w.local, PATIENCE), 0);
	CHECK_EQ(put_from(&f, 8), DG_REMOTE_ACCESS_ERROR);
	namesake(&f.w, f.w.local_id, &memory, NULL);
	CHECK_EQ(put_from(&f, 8), DG_REMOTE_ACCESS_ERROR);
	CHECK_EQ(put_from(&f, SIZE), DG_REMOTE_ACCESS_ERROR);
	for (int i = 0; i < SIZE; i++)
		CHECK_EQ(stranger[i], 0);
}

TEST(a_ring_does_not_read_a_region_with_the_name_of_its_closed_one)
{
	FIXTURE(foreign, f, foreign_open);
	CHECK_EQ(put_from(&f, 8), DG_OK);
	CHECK_EQ(dg_region_close(f.w.remote, PATIENCE), 0);
	namesake(&f.w, f.w.remote_id, NULL, f.w.target);
	CHECK_EQ(put_from(&f, 8), DG_LOCAL_ERROR);
	CHECK_EQ(put_from(&f, SIZE), DG_LOCAL_ERROR);
}

TEST(a_receive_does_not_fill_a_region_with_the_name_of_its_closed_one)
{
	static char stranger[SIZE];
	const dg_memory memory = {.addr = stranger, .size = SIZE, .fd = -1};
	struct poster from, to;
	dg_region *source;
	FIXTURE(world, w, world_open);
	const dg_memory bytes = {.addr = w.target_bytes, .size = SIZE, .fd = -1};
	memset(w.target_bytes, 1, SIZE);
	CHECK_EQ(dg_region_register(w.dev, &bytes, 3, &source), 0);
	poster_open(&from, &w, 0);
	poster_open(&to, &w, 0);
	CHECK_EQ(dg_ring_connect(from.ring, to.ring), 0);
	const struct dg_gpu_request receive = {.op = DG_OP_RECV, .local = w.local_id, .size = 8};
	const struct dg_gpu_request send = {.op = DG_OP_SEND, .local = name_of(source), .size = 8};
	const uint64_t received = post(&to, &receive);
	dg_ring_stats stats;
	do
		CHECK_EQ(dg_ring_stats_get(to.ring, &stats), 0);
	while (!stats.taken);
	CHECK_EQ(dg_region_close(w.local, PATIENCE), 0);
	namesake(&w, w.local_id, &memory, NULL);
	CHECK_EQ(wait_for(&from, post(&from, &send)), DG_LOCAL_ERROR);
	CHECK_EQ(wait_for(&to, received), DG_LOCAL_ERROR);
	CHECK_EQ(stranger[0], 0);
	dg_ring_free(from.ring);
	dg_ring_free(to.ring);
}

TEST(a_prepared_operation_does_not_use_a_region_with_the_name_of_its_closed_one)
{
	static char stranger[SIZE];
	const dg_memory memory = {.addr = stranger, .size = SIZE, .fd = -1};
	dg_queue *q;
	dg_prep *prepared;
	FIXTURE(world, w, world_open);
	CHECK_EQ(dg_queue_open(w.dev, DEPTH, DG_PATH_AUTO, 0, PATIENCE, &q), 0);
	const dg_wr wr = {.local = w.local_id, .remote = w.remote_id, .size = 8, .op = DG_WRITE};
	CHECK_EQ(dg_prep_open(q, &wr, 1, &prepared), 0);
	CHECK_EQ(dg_region_close(w.local, PATIENCE), 0);
	namesake(&w, w.local_id, &memory, NULL);
	CHECK_EQ(dg_prep_run(prepared), -ESTALE);
	CHECK_EQ(dg_prep_close(prepared), 0);
	CHECK_EQ(dg_queue_close(q), 0);
	dg_queue_free(q);
}

TEST_MAIN(run_tests)
