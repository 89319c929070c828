// SPDX-License-Identifier: Apache-2.0
/*
 * Measures how many writes of 64 bytes a second the software NIC executes, with a thread in place of
 * the GPU:
 *
 *	bench_nic [SECONDS]
 *
 * One thread writes entries to each of n send rings in turn, as fast as there is room, and rings the
 * doorbell for each batch. Printed beside each row is the bare loop: a thread that only loads the
 * entries, copies 64 bytes for each and stores a CQE, without keys, checks and states; what an entry
 * costs the NIC's code itself, in CPU time, where posting and serving alternate in one thread; and
 * the median time from the doorbell to the CQE of a single write. Not a test: it prints.
 */
#include <pthread.h>
#include <sched.h>

#include "nic.h"
#include "nic_programs.h"

enum { BYTES = 1 << 16, DEPTH = 4096, QPS_MOST = 8, BATCH = 32, ROUNDS = 20000 };

struct bench {
	dg_nic *nic;
	struct program from[QPS_MOST], to[QPS_MOST];
	uint32_t n, key;
	atomic_uint stop;
	uint64_t limit_ns;
	uint64_t taken[QPS_MOST];
};

static _Alignas(4096) uint8_t memory[2 * BYTES];

/* Number of entries that are complete, by the last CQE that is there. */
static uint64_t completed(struct program *p)
{
	struct cqe c;
	while (peek_cqe(p->cqes, DEPTH, p->seen + BATCH - 1, &c))
		p->seen += BATCH;
	return p->seen;
}

static void post_batch(struct program *p, uint32_t key)
{
	if (p->next + BATCH - completed(p) > DEPTH)
		return;
	for (int i = 0; i < BATCH; i++)
		put_copy(p, WQE_WRITE, memory + BYTES, key, memory, key, 64);
	ring(p);
}

static void bare_entry(struct program *p, uint64_t at)
{
	const uint64_t *w = (const uint64_t *)((uint8_t *)p->c.send_ring + (at & (DEPTH - 1)) * 64);
	uint8_t *cqe = p->cqes + (at & (DEPTH - 1)) * 64;
	uint64_t entry[8], last[8] = {0};
	load_words(entry, w, 8);
	memcpy(memory + BYTES, (const void *)(uintptr_t)be64toh(entry[5]), 64);
	((uint8_t *)last)[63] = !!(at & DEPTH);
	store_words(cqe, last, 7);
	atomic_store_explicit((_Atomic uint64_t *)(cqe + 56), last[7], memory_order_release);
}

static void *bare(void *arg)
{
	struct bench *b = arg;
	while (!atomic_load_explicit(&b->stop, memory_order_relaxed))
		for (uint32_t i = 0; i < b->n; i++) {
			const uint64_t end = atomic_load_explicit(
				(_Atomic uint64_t *)&b->from[i].doorbell, memory_order_acquire);
			for (uint32_t n = 0; b->taken[i] != end && n < 64; n++)
				bare_entry(&b->from[i], b->taken[i]++);
		}
	return NULL;
}

/* Returns millions of writes a second. */
static double rate(struct bench *b)
{
	uint64_t sum = 0;
	const uint64_t begin = now_ns();
	while (now_ns() - begin < b->limit_ns)
		for (uint32_t i = 0; i < b->n; i++)
			post_batch(&b->from[i], b->key);
	for (uint32_t i = 0; i < b->n; i++) {
		while (completed(&b->from[i]) != b->from[i].next)
			sched_yield();
		sum += b->from[i].next;
	}
	return (double)sum * 1e3 / (double)(now_ns() - begin);
}

static void open_all(struct bench *b, bool connect)
{
	for (uint32_t i = 0; i < b->n; i++) {
		program_open(&b->from[i], b->nic, DG_NIC_PROXY, DEPTH, DEPTH);
		program_open(&b->to[i], b->nic, DG_NIC_PROXY, DEPTH, DEPTH);
		const dg_nic_address from = address_of(&b->from[i]), to = address_of(&b->to[i]);
		b->taken[i] = 0;
		if (!connect)
			continue;
		program_connect(&b->from[i], &to);
		program_connect(&b->to[i], &from);
	}
}

static void close_all(struct bench *b)
{
	for (uint32_t i = 0; i < b->n; i++) {
		program_close(&b->from[i]);
		program_close(&b->to[i]);
	}
}

static double bare_rate(struct bench *b)
{
	pthread_t taker;
	open_all(b, false);
	atomic_store(&b->stop, 0);
	CHECK_EQ(pthread_create(&taker, NULL, bare, b), 0);
	const double found = rate(b);
	atomic_store(&b->stop, 1);
	pthread_join(taker, NULL);
	close_all(b);
	return found;
}

static uint64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Returns CPU nanoseconds an entry. The NIC's thread waits for the lock meanwhile. */
static double cost(struct bench *b)
{
	uint64_t spent = 0, served = 0;
	dg_poller_lock(&b->nic->poller);
	for (int round = 0; round < 50; round++)
		for (uint32_t i = 0; i < b->n; i++) {
			for (int n = 0; n < DEPTH / BATCH; n++)
				post_batch(&b->from[i], b->key);
			const uint64_t begin = cpu_ns();
			while (dg_nic_serve(b->from[i].qp))
				;
			spent += cpu_ns() - begin;
			served += DEPTH;
		}
	dg_poller_unlock(&b->nic->poller);
	return (double)spent / (double)served;
}

static int compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static double latency(struct bench *b)
{
	static uint64_t samples[ROUNDS];
	struct program *p = &b->from[0];
	struct cqe c;
	while (completed(p) != p->next)
		sched_yield();
	for (int i = 0; i < ROUNDS; i++) {
		const uint64_t begin = now_ns();
		put_copy(p, WQE_WRITE, memory + BYTES, b->key, memory, b->key, 8);
		ring(p);
		while (!peek_cqe(p->cqes, DEPTH, p->seen, &c))
			;
		p->seen++;
		samples[i] = now_ns() - begin;
	}
	qsort(samples, ROUNDS, sizeof samples[0], compare);
	return (double)samples[ROUNDS / 2];
}

int main(int argc, char **argv)
{
	static const uint32_t counts[] = {1, 8};
	static struct bench b;
	dg_device *dev = device_spinning(0);
	b.limit_ns = (uint64_t)((argc > 1 ? atof(argv[1]) : 1.) * 1e9);
	CHECK_EQ(dg_nic_open(dev, 200000, &b.nic), 0);
	dg_region *r = registered(dev, memory, sizeof memory, RW);
	CHECK_EQ(dg_nic_key_open(b.nic, r, (uintptr_t)memory, 7, ALL_ACCESS, &b.key), 0);
	for (int i = 0; i < 2; i++) {
		b.n = counts[i];
		const double loop = bare_rate(&b);
		open_all(&b, true);
		const double moved = rate(&b), ns = cost(&b), median = latency(&b);
		close_all(&b);
		printf("%u queue pairs: %.2f M/s written; bare loop %.2f M/s; %.1f ns of CPU an "
		       "entry; a write of 8 B in %.0f ns\n",
		       b.n, moved, loop, ns, median);
		fflush(stdout);
	}
	CHECK_EQ(dg_nic_close(b.nic), 0);
	return dg_device_close(dev, SECOND) != 0;
}
