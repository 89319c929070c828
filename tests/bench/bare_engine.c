// SPDX-License-Identifier: Apache-2.0
/*
 * What dgkit's worker path is held against: a ring of 64-byte records between a caller and an engine
 * thread, without checks, regions, errors or sleeping. A record goes to the engine and comes back,
 * with a stamp that is taken once each 16 records. And a hand-off between two threads by two eventfds.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "bare_engine.h"

enum { DEPTH = 1024, MASK = DEPTH - 1, GROUP = 16 };

struct record {
	char *dst;
	const char *src;
	uint64_t size, user;
	uint64_t submit_ns, complete_ns;
	uint32_t status, flags;
	atomic_uint seq; /* 2 * turn: the caller's; 2 * turn + 1: the engine's */
};
_Static_assert(sizeof(struct record) == 64, "a record is one cache line");

struct bare_engine {
	_Alignas(64) struct record ring[DEPTH];
	_Alignas(64) uint32_t tail; /* the caller's */
	_Alignas(64) atomic_uint stop;
	pthread_t thread;
};

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void copy(const struct record *r)
{
	if (r->size == 64)
		memcpy(r->dst, r->src, 64);
	else
		memcpy(r->dst, r->src, r->size);
}

static void *run(void *arg)
{
	struct bare_engine *e = arg;
	for (uint32_t head = 0, n; !atomic_load_explicit(&e->stop, memory_order_relaxed); head += n) {
		for (n = 0; n < GROUP; n++) {
			struct record *r = &e->ring[(head + n) & MASK];
			uint32_t turn = (head + n) / DEPTH;
			if (atomic_load_explicit(&r->seq, memory_order_acquire) != 2 * turn + 1)
				break;
			copy(r);
		}
		uint64_t stamp = n ? now_ns() : 0;
		for (uint32_t i = 0; i < n; i++) {
			struct record *r = &e->ring[(head + i) & MASK];
			r->complete_ns = stamp;
			r->status = 0;
			atomic_store_explicit(&r->seq, 2 * ((head + i) / DEPTH) + 2,
					      memory_order_release);
		}
	}
	return NULL;
}

bare_engine *bare_open(void)
{
	bare_engine *e = aligned_alloc(64, sizeof *e);
	if (!e)
		return NULL;
	memset(e, 0, sizeof *e);
	if (pthread_create(&e->thread, NULL, run, e)) {
		free(e);
		return NULL;
	}
	return e;
}

void bare_close(bare_engine *e)
{
	atomic_store(&e->stop, 1);
	pthread_join(e->thread, NULL);
	free(e);
}

void bare_run(bare_engine *e, const bare_request *requests, bare_result *results, uint32_t n)
{
	uint64_t submit_ns = now_ns();
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = e->tail + i;
		struct record *r = &e->ring[at & MASK];
		r->dst = requests[i].dst;
		r->src = requests[i].src;
		r->size = requests[i].size;
		r->user = requests[i].user;
		r->submit_ns = submit_ns;
		atomic_store_explicit(&r->seq, 2 * (at / DEPTH) + 1, memory_order_release);
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = e->tail + i;
		struct record *r = &e->ring[at & MASK];
		while (atomic_load_explicit(&r->seq, memory_order_acquire) != 2 * (at / DEPTH) + 2)
			;
		results[i] = (bare_result){.user = r->user,
					   .size = r->size,
					   .submit_ns = r->submit_ns,
					   .complete_ns = r->complete_ns,
					   .status = r->status};
	}
	e->tail += n;
}

struct pair {
	int there, back;
	uint32_t count;
};

static void *answer(void *arg)
{
	struct pair *p = arg;
	eventfd_t n;
	for (uint32_t i = 0; i < p->count; i++)
		if (eventfd_read(p->there, &n) || eventfd_write(p->back, 1))
			break;
	return NULL;
}

int bare_eventfd(uint32_t count, uint64_t *samples_ns)
{
	struct pair p = {eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC), count};
	pthread_t thread;
	eventfd_t n;
	int rc = p.there < 0 || p.back < 0 || pthread_create(&thread, NULL, answer, &p) ? -1 : 0;
	for (uint32_t i = 0; !rc && i < count; i++) {
		uint64_t before = now_ns();
		rc = eventfd_write(p.there, 1) || eventfd_read(p.back, &n);
		samples_ns[i] = now_ns() - before;
	}
	if (!rc)
		pthread_join(thread, NULL);
	close(p.there);
	close(p.back);
	return rc;
}
