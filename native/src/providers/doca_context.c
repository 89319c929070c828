// SPDX-License-Identifier: Apache-2.0
/* A queue's DMA context: made, waited for, lent to whoever unmaps a region, and ended. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "clock.h"
#include "doca.h"
#include "error.h"

enum {
	TASKS_MAX = 1024,
	LANES_MAX = 1024,
	LOOKS = 64, /* of the bare loop, between two looks at the clock */
};
#define STATE_NS 5000000000ull /* how long a context may take to start, or to stop */

static void enter(struct lane *l)
{
	for (;;) {
		publish_seq(&l->busy, 1);
		if (__builtin_expect(!atomic_load_explicit(&l->wanted, memory_order_seq_cst), 1))
			return;
		atomic_store_explicit(&l->busy, 0, memory_order_release);
		while (atomic_load_explicit(&l->wanted, memory_order_acquire))
			cpu_relax();
	}
}

static void leave(struct lane *l)
{
	/* Release: who wants the lane sees all that was done in it. */
	atomic_store_explicit(&l->busy, 0, memory_order_release);
}

static void forget_in(struct lane *l, uint32_t region)
{
	atomic_store_explicit(&l->wanted, 1, memory_order_seq_cst);
	dg_sleeper_barrier();
	while (atomic_load_explicit(&l->busy, memory_order_seq_cst))
		cpu_relax();
	/* None of them is under way: the region's gate is quiet. Under the device's lock, as a buffer's end
	 * counts in its map, where other queues take and give back theirs. */
	pthread_mutex_lock(&l->d->lock);
	for (uint32_t i = 0; i < l->n_tasks; i++)
		for (int side = 0; side < 2; side++)
			if (l->tasks[i].region[side] == region) {
				dg_doca.doca_buf_dec_refcount(l->tasks[i].buf[side], NULL);
				l->tasks[i].region[side] = NO_REGION;
			}
	pthread_mutex_unlock(&l->d->lock);
	atomic_store_explicit(&l->wanted, 0, memory_order_release);
}

void dg_doca_forget(struct doca *d, uint32_t region)
{
	pthread_mutex_lock(&d->lanes_lock);
	for (struct lane *l = d->lanes; l; l = l->next)
		forget_in(l, region);
	pthread_mutex_unlock(&d->lanes_lock);
}

static enum doca_ctx_states state_of(struct lane *l)
{
	enum doca_ctx_states state = DOCA_CTX_STATE_IDLE;
	dg_doca.doca_ctx_get_state(l->ctx, &state);
	return state;
}

int dg_doca_start(struct lane *l)
{
	uint64_t deadline = now_ns() + STATE_NS;
	doca_error_t e = dg_doca.doca_ctx_start(l->ctx);
	if (e && e != DOCA_ERROR_IN_PROGRESS)
		return dg_doca_fail(0, "doca_ctx_start", e);
	while (state_of(l) != DOCA_CTX_STATE_RUNNING) {
		dg_doca.doca_pe_progress(l->pe);
		if (now_ns() > deadline)
			return dg_fail(ETIMEDOUT, "a DMA context does not start");
	}
	return 0;
}

static bool stop(struct lane *l)
{
	uint64_t deadline = now_ns() + STATE_NS;
	dg_doca.doca_ctx_stop(l->ctx);
	do {
		while (dg_doca.doca_pe_progress(l->pe))
			;
		dg_doca_tasks_free(l); /* until the last is freed it does not stop */
		if (state_of(l) == DOCA_CTX_STATE_IDLE)
			return true;
	} while (now_ns() < deadline);
	return false;
}

int dg_doca_tasks_new(struct lane *l)
{
	for (uint32_t i = 0; i < l->n_free; i++) {
		struct task *t = l->free[i];
		union doca_data data = {.ptr = t};
		if (t->memcpy)
			continue;
		doca_error_t e = dg_doca.doca_dma_task_memcpy_alloc_init(
			l->dma, l->scratch[0], l->scratch[1], data, &t->memcpy);
		if (e)
			return dg_doca_fail(0, "doca_dma_task_memcpy_alloc_init", e);
		t->task = dg_doca.doca_dma_task_memcpy_as_task(t->memcpy);
		t->op = UINT8_MAX; /* so that it is bound before it is used */
	}
	return 0;
}

void dg_doca_tasks_free(struct lane *l)
{
	for (uint32_t i = 0; i < l->n_free; i++) {
		if (l->free[i]->memcpy)
			dg_doca.doca_task_free(l->free[i]->task);
		l->free[i]->memcpy = NULL;
	}
}

static int alloc(struct lane *l, uint32_t n)
{
	l->tasks = aligned_alloc(64, sizeof *l->tasks * n);
	l->free = calloc(n, sizeof *l->free);
	l->flights = calloc(n + 1, sizeof *l->flights);
	l->free_flights = calloc(n + 1, sizeof *l->free_flights);
	if (!l->tasks || !l->free || !l->flights || !l->free_flights)
		return dg_fail(ENOMEM, "no memory for a queue of %u tasks", n);
	memset(l->tasks, 0, sizeof *l->tasks * n);
	for (uint32_t i = 0; i < n; i++) {
		l->free[i] = &l->tasks[n - 1 - i];
		l->tasks[i].region[0] = l->tasks[i].region[1] = NO_REGION;
	}
	for (uint32_t i = 0; i <= n; i++)
		l->free_flights[i] = (uint16_t)(n - i);
	l->n_tasks = l->n_free = n;
	l->n_free_flights = n + 1;
	return 0;
}

/* The context, up to where it runs. */
static int make_context(struct lane *l)
{
	struct doca *d = l->d;
	union doca_data data = {.ptr = l};
	uint32_t n = l->p->mask + 1 < TASKS_MAX ? l->p->mask + 1 : TASKS_MAX, most = 0;
	const char *what = "doca_pe_create";
	doca_error_t e = dg_doca.doca_pe_create(&l->pe);
	if (!e)
		what = "doca_dma_create", e = dg_doca.doca_dma_create(d->dev, &l->dma);
	if (e)
		return dg_doca_fail(0, what, e);
	l->ctx = dg_doca.doca_dma_as_ctx(l->dma);
	if (dg_doca.doca_dma_cap_get_max_num_tasks &&
	    !dg_doca.doca_dma_cap_get_max_num_tasks(l->dma, &most) && most && most < n)
		n = most;
	int rc = alloc(l, n);
	if (rc)
		return rc;
	what = "doca_dma_task_memcpy_set_conf";
	e = dg_doca.doca_dma_task_memcpy_set_conf(l->dma, dg_doca_ended, dg_doca_failed, n);
	if (!e)
		what = "doca_ctx_set_user_data", e = dg_doca.doca_ctx_set_user_data(l->ctx, data);
	if (!e)
		what = "doca_pe_connect_ctx", e = dg_doca.doca_pe_connect_ctx(l->pe, l->ctx);
	return e ? dg_doca_fail(0, what, e) : dg_doca_start(l);
}

static int make_tasks(struct lane *l)
{
	const char *what = "doca_buf_inventory_create";
	doca_error_t e = dg_doca.doca_buf_inventory_create(2 * l->n_tasks + 2, &l->inventory);
	if (!e)
		what = "doca_buf_inventory_start",
		e = dg_doca.doca_buf_inventory_start(l->inventory);
	for (int i = 0; i < 2 && !e; i++) {
		what = "doca_buf_inventory_buf_get_by_args";
		e = dg_doca.doca_buf_inventory_buf_get_by_args(l->inventory, l->d->scratch_map,
							       l->d->scratch, 64, l->d->scratch, 0,
							       &l->scratch[i]);
	}
	return e ? dg_doca_fail(0, what, e) : dg_doca_tasks_new(l);
}

static int make_fds(struct lane *l)
{
	struct epoll_event event = {.events = EPOLLIN};
	doca_notification_handle_t handle;
	doca_error_t e = dg_doca.doca_pe_get_notification_handle(l->pe, &handle);
	if (e)
		return dg_doca_fail(0, "doca_pe_get_notification_handle", e);
	l->handle = handle;
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll_fd < 0 || epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, handle, &event) ||
	    epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, l->p->event_fd, &event))
		return dg_fail_errno("a queue's fd to wait on");
	return 0;
}

/* What is there of it; its context is idle. */
static void lane_free(struct lane *l)
{
	for (uint32_t i = 0; i < l->n_tasks; i++)
		for (int side = 0; side < 2; side++)
			if (l->tasks[i].region[side] != NO_REGION)
				dg_doca.doca_buf_dec_refcount(l->tasks[i].buf[side], NULL);
	for (int i = 0; i < 2; i++)
		if (l->scratch[i])
			dg_doca.doca_buf_dec_refcount(l->scratch[i], NULL);
	if (l->inventory)
		dg_doca.doca_buf_inventory_destroy(l->inventory);
	if (l->dma)
		dg_doca.doca_dma_destroy(l->dma);
	if (l->pe)
		dg_doca.doca_pe_destroy(l->pe);
	if (l->epoll_fd >= 0)
		close(l->epoll_fd);
	free(l->tasks);
	free(l->free);
	free(l->flights);
	free(l->free_flights);
	free(l);
}

static int lane_new(struct doca *d, struct dg_pipe *p, struct lane **out)
{
	struct lane *l = aligned_alloc(64, (sizeof *l + 63) / 64 * 64);
	if (!l)
		return dg_fail(ENOMEM, "no memory for a queue");
	memset(l, 0, sizeof *l);
	l->d = d;
	l->p = p;
	l->epoll_fd = -1;
	l->gates.pass = gate_leave;
	pthread_mutex_lock(&d->lock);
	int rc = make_context(l);
	if (!rc)
		rc = make_tasks(l);
	if (!rc)
		rc = make_fds(l);
	if (!rc)
		*out = l;
	else if (!l->ctx || stop(l))
		lane_free(l);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

int dg_doca_attach(struct dg_device *dev, void *state, struct dg_pipe *p)
{
	struct doca *d = state;
	struct lane *l = NULL;
	if (!d->moves)
		return dg_fail(EOPNOTSUPP,
			       "%s moves no bytes (doca_dma_cap_task_memcpy_is_supported): it can "
			       "lend memory only",
			       dev->caps.engine);
	pthread_mutex_lock(&d->lanes_lock);
	int rc = d->n_lanes < LANES_MAX ? lane_new(d, p, &l)
					: dg_fail(EMFILE, "a %s device has at most %u queues",
						  dev->blob, LANES_MAX);
	if (!rc) {
		l->next = d->lanes;
		d->lanes = l;
		d->n_lanes++;
		p->provider = l;
		p->wait_fd = l->epoll_fd;
	}
	pthread_mutex_unlock(&d->lanes_lock);
	return rc;
}

static void unlist(struct lane *l)
{
	struct doca *d = l->d;
	pthread_mutex_lock(&d->lanes_lock);
	struct lane **at = &d->lanes;
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	d->n_lanes--;
	pthread_mutex_unlock(&d->lanes_lock);
}

void dg_doca_detach(struct dg_device *dev, struct dg_pipe *p)
{
	struct lane *l = p->provider;
	struct doca *d = l->d;
	(void)dev;
	enter(l);
	l->closing = true;
	dg_doca_flush(l, DG_FLUSHED);
	bool stopped = stop(l);
	dg_doca_publish(l);
	p->wait_fd = p->event_fd;
	p->provider = NULL;
	leave(l);
	/* Not from inside: who unmaps a region waits, with the list's lock, for whoever is. */
	unlist(l);
	/* What does not stop still writes, perhaps: it keeps its buffers, and its regions their gates. */
	if (!stopped)
		return;
	pthread_mutex_lock(&d->lock);
	lane_free(l);
	pthread_mutex_unlock(&d->lock);
}

void dg_doca_doorbell(struct dg_device *dev, struct dg_pipe *p)
{
	struct lane *l = p->provider;
	(void)dev;
	enter(l);
	dg_doca_submit(l);
	leave(l);
	/* The queue was armed before this was posted: its caller sleeps as it is. */
	if (atomic_load_explicit(&p->cq_armed, memory_order_relaxed) && (cq_peek(p) || l->broken))
		dg_pipe_wake(p);
}

void dg_doca_poll(struct dg_device *dev, struct dg_pipe *p)
{
	struct lane *l = p->provider;
	(void)dev;
	if (!l)
		return; /* detached */
	enter(l);
	dg_doca_progress(l);
	leave(l);
}

int dg_doca_direct(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op)
{
	struct lane *l = p->provider;
	(void)dev;
	enter(l);
	int status = dg_doca_run(l, op);
	leave(l);
	return status;
}

/* Has DOCA make the handle readable at the next completion. Whether it does. */
static bool request(struct lane *l)
{
	if (l->requested)
		dg_doca.doca_pe_clear_notification(l->pe, l->handle);
	l->requested = !dg_doca.doca_pe_request_notification(l->pe);
	return l->requested;
}

int dg_doca_arm(struct dg_device *dev, struct dg_pipe *p)
{
	struct lane *l = p->provider;
	dg_doca_poll(dev, p);
	if (!dg_pipe_arm(p))
		return 0;
	enter(l);
	bool asked = !l->broken && request(l);
	dg_doca_progress(l);
	leave(l);
	if (asked && !l->broken && !cq_peek(p))
		return 1;
	atomic_store_explicit(&p->cq_armed, 0, memory_order_relaxed);
	return 0;
}

/* n tasks of the bare loop have not ended. DOCA may still copy: they count as under way and hold their
 * regions until they end, and then complete nothing. Their flight is the one on top. */
static void strand(struct lane *l, const struct dg_op *op, uint32_t n)
{
	l->flights[l->free_flights[--l->n_free_flights]] =
		(struct flight){.left = n, .slot = NO_SLOT};
	l->in_flight += n;
	l->bytes += n * op->size;
	gate_enter(hot_at(op->local)->gate, n);
	gate_enter(hot_at(op->remote)->gate, n);
}

static int bare_loop(struct lane *l, const struct dg_op *op, uint32_t count, uint32_t window,
		     uint64_t *samples_ns)
{
	struct task *t;
	uint32_t posted = 0, ended = 0, seen = 0, empty = 0;
	uint64_t before = now_ns();
	l->counted = &seen;
	while (ended < count && !l->broken) {
		for (; posted < count && posted - ended < window; posted++) {
			t = l->free[--l->n_free];
			struct doca_buf *dst = t->buf[op->opcode == DG_WRITE];
			if (dg_doca.doca_buf_set_data(dst, op->dst, 0) ||
			    dg_doca.doca_task_submit(t->task)) {
				l->free[l->n_free++] = t;
				l->broken = true;
				break;
			}
		}
		dg_doca.doca_pe_progress(l->pe);
		if (seen == ended && ++empty % LOOKS)
			continue;
		uint64_t now = now_ns();
		/* Where the CPUs are all busy, what is waited for may need this very one. */
		if (seen == ended && now - before > YIELD_AFTER_NS)
			sched_yield();
		l->broken |= seen == ended && now - before > STATE_NS;
		for (; ended != seen; before = now)
			samples_ns[ended++] = now - before;
	}
	while (seen != posted && now_ns() - before < STATE_NS)
		dg_doca.doca_pe_progress(l->pe);
	l->counted = NULL;
	if (seen != posted)
		strand(l, op, posted - seen);
	return l->broken ? dg_fail(EIO, "a task of the bare loop failed, or does not end")
			 : (int)count;
}

/* DOCA's own calls in a loop: a task submitted, progress until it is complete. */
int dg_doca_bare(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op, uint32_t count,
		 uint32_t window, uint64_t *samples_ns)
{
	struct lane *l = p->provider;
	int rc = 0;
	(void)dev;
	if (op->rows != 1 || op->size > l->d->max_size || window > l->n_free)
		return dg_fail(
			EOPNOTSUPP,
			"the floor is a copy in one run, of %llu bytes at most, with at most "
			"%u in flight",
			(unsigned long long)l->d->max_size, l->n_free);
	enter(l);
	if (l->broken || l->dead)
		rc = dg_fail(EIO, "the queue's DMA context is stopped");
	/* The tasks that the loop takes: those on top, bound to the regions, their sources as they stay. */
	for (uint32_t i = 0; i < window && !rc; i++) {
		struct task *t = l->free[l->n_free - 1 - i];
		t->size = (uint32_t)op->size;
		t->flight = l->free_flights[l->n_free_flights - 1]; /* see strand() */
		rc = dg_doca_bind(l, t, op);
		if (!rc && dg_doca.doca_buf_set_data(t->buf[op->opcode != DG_WRITE],
						     (char *)(uintptr_t)op->src, op->size))
			rc = -EIO;
	}
	rc = rc ? dg_fail(EIO, "no buffers for the floor")
		: bare_loop(l, op, count, window, samples_ns);
	leave(l);
	return rc;
}
