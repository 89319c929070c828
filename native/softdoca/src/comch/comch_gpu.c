// SPDX-License-Identifier: Apache-2.0
/*
 * Consumers and producers whose data path is on a GPU. A kernel writes requests (receives, sends) to a
 * ring and reads answers from another; a thread of this process serves all of them, in passes that hold
 * fast_lock. Both rings are memory that the kernel can write, so a request is copied once and then
 * checked, and all counts and sizes are this side's own.
 *
 *	kernel                              thread
 *	request, then its turn ---------->  copy, check; a receive is counted for the producers
 *	answer  <-------------------------  when the message was sent, or has arrived
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fast.h"

#define PASS     64u /* requests of a queue in one pass */
#define YIELDS   1000u /* passes without work before the thread sleeps between them */
#define SLEEP_NS 50000

/* Guarded by fast_lock. `generation` changes when the thread has to end. */
static struct fast_gpu *served;
static uint32_t generation;
static pthread_t thread;

/* ---- requests and answers ---- */

#define WORDS (offsetof(struct doca_priv_comch_gpu_entry, turn) / 8)

static void load_entry(struct doca_priv_comch_gpu_entry *to,
		       const struct doca_priv_comch_gpu_entry *from)
{
	for (size_t i = 0; i < WORDS; i++) {
		uint64_t word = __atomic_load_n((const uint64_t *)from + i, __ATOMIC_RELAXED);
		memcpy((uint64_t *)to + i, &word, sizeof word);
	}
}

static void answer_oldest(struct fast_gpu *g, doca_error_t status)
{
	struct doca_priv_comch_gpu_entry *e = &g->held[g->answered % g->entries];
	struct doca_priv_comch_gpu_entry *to = &g->answers[g->answered % g->entries];
	e->status = status;
	for (size_t i = 0; i < WORDS; i++)
		__atomic_store_n((uint64_t *)to + i, ((const uint64_t *)e)[i], __ATOMIC_RELAXED);
	g->answered++;
	/* release: a kernel that sees the turn sees the answer and the message */
	__atomic_store_n(&to->turn, (uint32_t)g->answered, __ATOMIC_RELEASE);
}

/* Copies the kernel's next request to its place in `held`. Returns NULL if there is none, or no place for
 * its answer. */
static struct doca_priv_comch_gpu_entry *take_request(struct fast_gpu *g)
{
	const uint64_t index = g->requested;
	const struct doca_priv_comch_gpu_entry *from = &g->requests[index % g->entries];
	if (index - g->answered >= g->entries ||
	    __atomic_load_n(&from->turn, __ATOMIC_ACQUIRE) != (uint32_t)(index + 1))
		return NULL;
	struct doca_priv_comch_gpu_entry *e = &g->held[index % g->entries];
	load_entry(e, from);
	e->status = DOCA_SUCCESS;
	g->requested++;
	return e;
}

/* ---- the memory of a request ---- */

/* A buffer at the memory, or at host memory in its place, for a GPU's. */
struct place {
	struct doca_buf buf;
	struct doca_mmap window;
	char *bounce;
};

static doca_error_t use_bounce(struct place *p, size_t size, bool receive)
{
	char *at = p->buf.head;
	p->bounce = malloc(size ? size : 1);
	if (!p->bounce)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a message of %zu bytes", size);
	p->window.addr = p->window.base = p->bounce;
	p->buf.mmap = &p->window;
	p->buf.head = p->buf.data = p->bounce;
	return receive || !size ? DOCA_SUCCESS : softdoca_gpu_copy(at, p->bounce, size, false);
}

/* Finds the memory, and holds its map on success. map: the only one allowed, for a receive; otherwise
 * NULL. */
static doca_error_t place_open(struct place *p, const struct doca_priv_comch_gpu_entry *e,
			       const struct doca_mmap *map)
{
	struct doca_mmap *m = softdoca_mmap_hold(be32toh(e->key));
	char *at = (char *)(uintptr_t)e->addr;
	*p = (struct place){.bounce = NULL};
	if (!m)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "no map has the key %#x", be32toh(e->key));
	doca_error_t error = DOCA_SUCCESS;
	if ((map && m != map) || (uintptr_t)at - (uintptr_t)m->addr > m->len ||
	    e->size > m->len - ((uintptr_t)at - (uintptr_t)m->addr))
		error = REFUSE(DOCA_ERROR_INVALID_VALUE,
			       "%u bytes at %p exceed the map of %zu bytes at %p, or it is not the "
			       "consumer's",
			       e->size, (void *)at, m->len, (void *)m->addr);
	p->buf = (struct doca_buf){.head = at, .data = at, .len = e->size, .mmap = m};
	p->buf.data_len = map ? 0 : e->size;
	if (!error && m->backing == BACKING_GPU)
		error = use_bounce(p, e->size, map);
	if (!error)
		return DOCA_SUCCESS;
	free(p->bounce);
	softdoca_mmap_let_go();
	return error;
}

/* received: the bytes that go to a GPU's memory at `at`. */
static doca_error_t place_close(struct place *p, uint64_t at, size_t received)
{
	doca_error_t error = DOCA_SUCCESS;
	if (p->bounce && received)
		error = softdoca_gpu_copy((void *)(uintptr_t)at, p->bounce, received, true);
	free(p->bounce);
	softdoca_mmap_let_go();
	return error;
}

/* ---- a consumer's receives ---- */

/* Ends the consumer, because the other side has ended or has sent a malformed message. */
static void end_consumer(struct fast_gpu *g)
{
	atomic_store_explicit(&g->ended, true, memory_order_relaxed);
	__atomic_store_n(g->status, DOCA_ERROR_NOT_CONNECTED, __ATOMIC_RELEASE);
	fast_ctx_wake(g->p);
}

static bool readable(int fd)
{
	struct pollfd f = {.fd = fd, .events = POLLIN};
	return poll(&f, 1, 0) == 1;
}

/* Receives into the oldest request. Returns whether it was answered. */
static bool receive_oldest(struct fast_gpu *g)
{
	const struct doca_comch_consumer *c = (const struct doca_comch_consumer *)g->p;
	struct doca_priv_comch_gpu_entry *e = &g->held[g->answered % g->entries];
	struct fast_task t = {.memfd = -1};
	struct place place;
	if (e->status || !readable(g->p->channel)) {
		if (e->status)
			answer_oldest(g, (doca_error_t)e->status);
		return e->status;
	}
	t.status = place_open(&place, e, c->mmap); /* it may have been stopped since */
	bool open = !t.status;
	if (open)
		t.buf = &place.buf;
	/* A message whose place is invalid is received and dropped, so that the next request does
	 * not get it. */
	int rc = fast_message_receive(&t, g->p->channel, c->imm_max);
	uint32_t size = open ? (uint32_t)place.buf.data_len : 0;
	doca_error_t error = open ? place_close(&place, e->addr, rc ? 0 : size)
				  : DOCA_ERROR_INVALID_VALUE;
	if (rc) {
		if (rc != -EAGAIN)
			end_consumer(g);
		return false;
	}
	e->size = size;
	e->peer = t.peer;
	e->imm_len = t.imm_len;
	memcpy(e->imm, t.imm, sizeof e->imm);
	answer_oldest(g, error ? error : t.status);
	return true;
}

static bool serve_consumer(struct fast_gpu *g)
{
	const struct doca_comch_consumer *c = (const struct doca_comch_consumer *)g->p;
	struct doca_priv_comch_gpu_entry *e;
	struct place place;
	uint32_t n = 0;
	if (atomic_load_explicit(&g->ended, memory_order_relaxed))
		return false;
	while (n < PASS && (e = take_request(g))) {
		e->status = place_open(&place, e, c->mmap);
		if (!e->status) {
			place_close(&place, 0, 0);
			receives_add(g->p->receives);
		}
		n++;
	}
	while (n < 2 * PASS && g->answered < g->requested && receive_oldest(g))
		n++;
	return n;
}

/* ---- a producer's sends ---- */

/* Sends the oldest request. Returns whether it was answered. */
static bool send_oldest(struct fast_gpu *g)
{
	const struct doca_priv_comch_gpu_entry *e = &g->held[g->answered % g->entries];
	struct fast_task t = {.peer = e->peer, .imm_len = e->imm_len, .memfd = -1};
	struct place place;
	doca_error_t error = DOCA_ERROR_INVALID_VALUE;
	if (e->imm_len <= IMM_MAX && e->size <= FAST_MAX) {
		memcpy(t.imm, e->imm, sizeof t.imm);
		error = producer_take_receive(g->p, &t);
	}
	if (error == DOCA_ERROR_AGAIN)
		return false;
	if (error) {
		answer_oldest(g, error);
		return true;
	}
	/* With a receive taken, -EAGAIN gives it back, and the next pass starts again. */
	error = place_open(&place, e, NULL);
	if (!error) {
		t.buf = &place.buf;
		error = producer_send_receive_taken(g->p, &t);
		fast_close(&t.memfd);
		place_close(&place, 0, 0);
	} else {
		producer_return_receive(g->p, &t);
	}
	if (error != DOCA_ERROR_AGAIN)
		answer_oldest(g, error);
	return error != DOCA_ERROR_AGAIN;
}

/* The requests that were taken and not answered yet are g->held[answered] to [requested - 1]. They are sent
 * in order, the oldest of them when its consumer has a receive. Returns whether there was work. */
static bool serve_producer(struct fast_gpu *g)
{
	uint32_t taken = 0, sent = 0;
	while (taken < PASS && take_request(g))
		taken++;
	while (taken + sent < 2 * PASS && g->answered < g->requested && send_oldest(g))
		sent++;
	return taken + sent;
}

/* ---- the thread ---- */

static void wait_idle(uint32_t *passes)
{
	if (++*passes < YIELDS)
		sched_yield();
	else
		nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}

static void *serving_thread(void *arg)
{
	uint32_t mine = (uint32_t)(uintptr_t)arg, passes = 0;
	for (;;) {
		bool worked = false;
		fast_lock();
		if (generation != mine) {
			fast_unlock();
			return NULL;
		}
		for (struct fast_gpu *g = served; g; g = g->next)
			worked |= g->p->is_consumer ? serve_consumer(g) : serve_producer(g);
		fast_unlock();
		if (worked)
			passes = 0;
		wait_idle(&passes);
	}
}

/* Signals are for the program's threads. Call with the lock held. */
static int start_thread(void)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int code = pthread_create(&thread, NULL, serving_thread, (void *)(uintptr_t)++generation);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code;
}

static doca_error_t begin_serving(struct fast_gpu *g)
{
	fast_lock();
	int code = served ? 0 : start_thread();
	if (!code) {
		g->next = served;
		served = g;
		g->served = true;
	}
	fast_unlock();
	return code ? REFUSE(DOCA_ERROR_OPERATING_SYSTEM, "cannot start a thread: %s",
			     strerror(code))
		    : DOCA_SUCCESS;
}

void fast_gpu_stop(struct fast_gpu *g, doca_error_t status)
{
	struct fast_gpu **at = &served;
	fast_lock();
	bool was = g->served;
	while (was && *at != g)
		at = &(*at)->next;
	if (was)
		*at = g->next;
	g->served = false;
	bool last = was && !served;
	pthread_t ended = thread;
	if (last)
		generation++;
	if (was)
		__atomic_store_n(g->status, status, __ATOMIC_RELEASE);
	fast_unlock();
	if (last)
		pthread_join(ended, NULL);
}

void fast_gpu_in_child(void)
{
	for (struct fast_gpu *g = served; g; g = g->next)
		g->served = false;
	served = NULL;
	generation++;
}

/* ---- contexts ---- */

void fast_gpu_free(struct fast_gpu *g)
{
	if (g->structure)
		softdoca_gpu_drop(g->structure);
	if (g->rings)
		softdoca_gpu_drop(g->rings);
	free(g->held);
	*g = (struct fast_gpu){NULL};
}

static doca_error_t allocate_rings(struct fast_gpu *g, struct doca_gpu *gpu)
{
	size_t ring = g->entries * sizeof(struct doca_priv_comch_gpu_entry), bytes = 2 * ring + 64;
	g->held = calloc(g->entries, sizeof *g->held);
	if (!g->held)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %u requests", g->entries);
	TRY(softdoca_gpu_alloc_own(gpu, bytes, 64, DOCA_GPU_MEM_TYPE_CPU_GPU, &g->rings));
	memset(g->rings->addr, 0, bytes);
	g->requests = (struct doca_priv_comch_gpu_entry *)g->rings->addr;
	g->answers = g->requests + g->entries;
	g->status = (uint32_t *)(g->rings->addr + 2 * ring);
	return softdoca_gpu_alloc_own(gpu, sizeof(struct doca_priv_comch_gpu_queue), 64,
				      DOCA_GPU_MEM_TYPE_GPU, &g->structure);
}

/* Memory of the previous start is freed only here, because a kernel may have used it until now. */
doca_error_t fast_gpu_start(struct fast_ctx *p)
{
	struct fast_gpu *g = &p->gpu;
	fast_gpu_free(g);
	g->p = p;
	g->entries = power_of_two(p->n_tasks);
	TRY(allocate_rings(g, p->ctx.gpu));
	const struct doca_priv_comch_gpu_queue s = {.requests = g->requests,
						    .answers = g->answers,
						    .status = g->status,
						    .entries = g->entries};
	doca_error_t error = softdoca_gpu_fill(g->structure, &s, sizeof s);
	return error ? error : begin_serving(g);
}

doca_error_t fast_gpu_handle(const struct fast_ctx *p, void **handle)
{
	CHECK_OUT(handle);
	if (!p->gpu.served) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE,
			      "the context is not started with its data path on a GPU");
	*handle = p->gpu.structure->addr;
	return DOCA_SUCCESS;
}

/* Kernels post receives and sends. */
doca_error_t fast_gpu_submit(struct doca_task *task, uint32_t flags)
{
	(void)task;
	(void)flags;
	return REFUSE(DOCA_ERROR_BAD_STATE, "kernels post this context's operations"); /* guess */
}
