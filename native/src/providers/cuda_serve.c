// SPDX-License-Identifier: Apache-2.0
/*
 * The copy service: a kernel of one block that copies small operations of a proxy's queues, which
 * the owner of the device asks for (dg_device_config.serves). It copies from GPU to GPU memory
 * without the way through the host, and takes 32 copies at a time.
 *
 * Operations enter a ring in pinned memory. The kernel (cuda_serve.cu) copies those between `done`
 * and `head`, in rounds, and stores `done` after each; one with a fence begins a round. A round's
 * bytes are visible in the system before `done` is (fence, then release); the poller's load of
 * `done` is an acquire.
 *
 * The kernel must never make anybody wait. It ends by itself: after IDLE_NS without work, after
 * LIFE_NS, and when the service closes. So what waits for all kernels (cuCtxSynchronize, cuMemFree)
 * waits for that long at most. It is launched again with the next operation. On a GPU that is
 * full, the launch waits, and nobody waits for it: operations are only given to a kernel that has
 * stored `started`, the copy engine takes all others. When a kernel has stored `ended`, `done` says
 * which operations it copied; the others are submitted again, to the copy engine. It is launched
 * again only after all queues have noticed (`outstanding` is 0).
 *
 * IDLE_NS is longer than a batch of the copy engine, which copies while there is no kernel: otherwise
 * the kernel that was launched meanwhile has always ended before the next operations come. Where many
 * threads poll host memory, as those that wait for places in NCCL's rings, each access of the kernel to
 * the ring is slow: a post takes 300 us instead of 20. The copy engine is slower still, also then.
 *
 * What it costs the owner: one multiprocessor's places for 1,024 threads, while it runs. A kernel
 * faults where a copy engine refuses, and then the context is lost. So the service takes only
 * memory that is mapped for writing and stays mapped without its exporter: not CUDA IPC.
 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cpu_copy.h"
#include "cuda_provider.h"
#include "cuda_serve_ptx.h"
#include "region.h"

enum {
	SLOTS = 1024, /* as in cuda_serve.cu */
	THREADS = 1024,
	LARGEST = 16384, /* bytes of an operation */
	WORD = 8, /* copies are of whole words, so that none is torn */
	IDLE_NS = 500000, /* longer than the copy engine takes for 128 copies of 8 KiB */
	LIFE_NS = 20000000,
};
/* Flags in an entry's size. VALUE: `value` is written to `to`; THEN: to `word`, behind the bytes. */
#define FENCE (UINT64_C(1) << 63)
#define VALUE (UINT64_C(1) << 62)
#define THEN  (UINT64_C(1) << 61)
#define STOP  UINT64_MAX

/* The kernel's view of it is in cuda_serve.cu. head: written by the host; done, started, ended: by
 * the kernel. */
struct serve_ring {
	_Alignas(64) _Atomic uint64_t head;
	_Alignas(64) _Atomic uint64_t done;
	_Atomic uint64_t started, ended;
	_Alignas(64) struct serve_entry {
		uint64_t to, from, size, value, word, unused[3];
	} entries[SLOTS];
};

static bool load_function(struct cuda *c)
{
	pthread_mutex_lock(&c->lock);
	if (!c->serve && cuda.cuModuleLoadData && cuda.cuModuleGetFunction && cuda.cuModuleUnload &&
	    cuda.cuLaunchKernel && c->host_pointers && !c->serve_module &&
	    !cuda.cuModuleLoadData(&c->serve_module, dg_serve_ptx) &&
	    cuda.cuModuleGetFunction(&c->serve, c->serve_module, "dg_serve"))
		c->serve = NULL;
	pthread_mutex_unlock(&c->lock);
	return c->serve;
}

static uint64_t ended(const struct cuda_service *s)
{
	return atomic_load_explicit(&s->ring->ended, memory_order_acquire);
}

static bool is_alive(const struct cuda_service *s)
{
	return atomic_load_explicit(&s->ring->started, memory_order_acquire) == s->epoch &&
	       ended(s) != s->epoch;
}

/* Launches the kernel unless one is there or will be. */
static void launch(struct cuda_service *s)
{
	uint64_t idle_ns = IDLE_NS, life_ns = LIFE_NS;
	void *ring = s->ring, *params[] = {&ring, &s->epoch, &idle_ns, &life_ns};
	if (!s->function || s->outstanding || ended(s) != s->epoch)
		return;
	s->head = atomic_load_explicit(&s->ring->done, memory_order_acquire);
	atomic_store_explicit(&s->ring->head, s->head, memory_order_release);
	s->epoch++;
	if (!cuda.cuLaunchKernel(s->function, 1, 1, 1, THREADS, 1, 1, 0, s->stream, params, NULL))
		return;
	s->epoch--;
	s->function = NULL; /* not tried again */
}

struct cuda_service *cuda_service_open(struct cuda *c)
{
	struct cuda_service *s = load_function(c) ? calloc(1, sizeof *s) : NULL;
	void *ring;
	if (!s)
		return NULL;
	if (cuda.cuMemHostAlloc(&ring, sizeof *s->ring, CU_MEMHOST_PORTABLE | CU_MEMHOST_DEVICEMAP))
		goto free_service;
	s->ring = memset(ring, 0, sizeof *s->ring);
	s->function = c->serve;
	pthread_mutex_init(&s->lock, NULL);
	if (cuda.cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING))
		goto free_ring;
	launch(s); /* the first launch takes longer */
	return s;
free_ring:
	pthread_mutex_destroy(&s->lock);
	cuda.cuMemFreeHost(ring);
free_service:
	free(s);
	return NULL;
}

/* Lets the kernel end without waiting for it; cuda_services_free() waits and frees. */
void cuda_service_retire(struct cuda *c, struct cuda_service *s)
{
	if (!s)
		return;
	atomic_store_explicit(&s->ring->head, STOP, memory_order_release);
	s->next = c->retired;
	c->retired = s;
}

void cuda_services_free(struct cuda *c)
{
	while (c->retired) {
		struct cuda_service *s = c->retired;
		c->retired = s->next;
		cuda.cuStreamSynchronize(s->stream);
		cuda.cuStreamDestroy(s->stream);
		cuda.cuMemFreeHost(s->ring);
		pthread_mutex_destroy(&s->lock);
		free(s);
	}
	if (c->serve_module)
		cuda.cuModuleUnload(c->serve_module);
}

/* Whether a kernel may access the region: see the top of this file. */
static bool is_safe(uint32_t region, bool gpu, bool write)
{
	const struct cuda_mapping *m = region_entry_at(region)->region->provider_state;
	return !gpu || !m || (m->kind != MAPPED_IPC && (!write || m->writable));
}

static bool can_serve(const struct dg_op *op)
{
	const bool writes = op->opcode == DG_WRITE;
	const uint64_t bits = (uint64_t)((uintptr_t)op->dst | (uintptr_t)op->src) | op->size;
	return op->rows == 1 && (op->flags & OP_GPU) &&
	       op->size <= LARGEST && bits % WORD == 0 && !dg_op_allowed(op) &&
	       is_safe(op->remote, op->flags & OP_GPU_REMOTE, writes) &&
	       is_safe(op->local, op->flags & OP_GPU_LOCAL, !writes);
}

/* Returns the number of new operations, or 0 if the kernel cannot copy all of them. */
static uint32_t servable(const struct cuda_queue *q)
{
	uint32_t i = q->p->sq_head;
	for (; sq_has(q->p, i); i++)
		if (!can_serve(sq_entry(q->p, i)))
			return 0;
	return i - q->p->sq_head;
}

/* Whether op writes a word that may be read now: no earlier operation writes it. */
static bool is_value(const struct cuda_queue *q, const struct dg_op *op)
{
	return op->size == WORD && to_gpu(op) && !from_gpu(op) && !q->to_host;
}

static void fill_entry(const struct cuda_queue *q, struct serve_entry *e, const struct dg_op *op)
{
	*e = (struct serve_entry){.to = (uintptr_t)op->dst,
				  .from = (uintptr_t)op->src,
				  .size = op->size | (op->flags & DG_FENCE ? FENCE : 0)};
	if (!is_value(q, op))
		return;
	memcpy(&e->value, op->src, WORD);
	e->size |= VALUE;
}

/* Joins the second of two operations to the first one's entry, if it is a word behind a fence, and
 * nothing else is in progress that the fence waits for. */
static bool join(const struct cuda_queue *q, struct serve_entry *e, const struct dg_op *op)
{
	if (!is_value(q, op) || !(op->flags & DG_FENCE) || q->n_served || e->size & VALUE)
		return false;
	memcpy(&e->value, op->src, WORD);
	e->word = (uintptr_t)op->dst;
	e->size |= THEN;
	return true;
}

static void post(struct cuda_queue *q, struct cuda_service *s, uint32_t n)
{
	const uint64_t first = s->head;
	for (uint32_t i = 0; i < n; i++) {
		struct dg_op *op = sq_entry(q->p, q->p->sq_head++);
		op->status = DG_OK;
		if (i != 1 || n != 2 || !join(q, &s->ring->entries[first % SLOTS], op))
			fill_entry(q, &s->ring->entries[s->head++ % SLOTS], op);
		q->to_host |= !to_gpu(op);
	}
	atomic_store_explicit(&s->ring->head, s->head, memory_order_release);
	q->last_poll_ns = now_ns();
	q->served[(q->first_served + q->n_served++) % SERVED] =
		(struct served){.upto = q->p->sq_head, .end = s->head};
	s->outstanding++;
	q->submitted = q->p->sq_head;
	q->timed.running = false;
}

static bool offer_to_kernel(struct cuda_queue *q, struct cuda_service *s)
{
	if (atomic_load_explicit(&q->p->cq_armed, memory_order_relaxed))
		return q->n_served; /* the caller may sleep, and the kernel cannot wake it */
	if (!is_alive(s)) {
		launch(s);
		return q->n_served;
	}
	const uint32_t n = servable(q);
	if (!n || (q->submitted != q->done && !q->n_served))
		return q->n_served; /* one after the other: the stream does not wait for the kernel */
	const uint64_t done = atomic_load_explicit(&s->ring->done, memory_order_relaxed);
	if (s->head + n - done > SLOTS)
		return n <= SLOTS && q->n_served;
	if (q->n_served == SERVED)
		return true;
	post(q, s, n);
	return true;
}

bool cuda_serve(struct cuda_queue *q)
{
	struct cuda_service *s = q->shared ? q->shared->service : NULL;
	if (!s || !sq_peek(q->p))
		return false;
	pthread_mutex_lock(&s->lock);
	const bool keep = offer_to_kernel(q, s);
	pthread_mutex_unlock(&s->lock);
	return keep;
}

/* Forgets the posts whose operations the kernel has copied, and sets the queue's flag. */
static void take_done(struct cuda_queue *q, struct cuda_service *s)
{
	const uint64_t done = atomic_load_explicit(&s->ring->done, memory_order_acquire);
	for (; q->n_served && q->served[q->first_served].end <= done; q->n_served--) {
		atomic_store(q->flag, q->served[q->first_served].upto);
		q->first_served = (q->first_served + 1) % SERVED;
		s->outstanding--;
	}
}

static void forget(struct cuda_queue *q, struct cuda_service *s)
{
	s->outstanding -= q->n_served;
	q->n_served = 0;
}

void cuda_service_poll(struct cuda_queue *q)
{
	struct cuda_service *s = q->shared->service;
	pthread_mutex_lock(&s->lock);
	take_done(q, s);
	if (q->n_served && ended(s) == s->epoch) {
		take_done(q, s); /* `done` is final now */
		forget(q, s);
		q->p->sq_head = q->submitted = atomic_load(q->flag);
	}
	pthread_mutex_unlock(&s->lock);
}

void cuda_unserve(struct cuda_queue *q)
{
	if (!q->n_served)
		return;
	pthread_mutex_lock(&q->shared->service->lock);
	forget(q, q->shared->service);
	pthread_mutex_unlock(&q->shared->service->lock);
}
