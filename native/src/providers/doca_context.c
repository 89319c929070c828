// SPDX-License-Identifier: Apache-2.0
/* A queue's DMA context: creating, starting and stopping it, and excluding the queue's user while a
 * region is unmapped. */
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
	POLLS = 64, /* iterations of bare_loop() between two readings of the clock */
};
#define STATE_NS 5000000000ull /* how long a context may take to start, or to stop */

static void release_in_queue(struct listed_queue *listed, uint32_t region)
{
	struct doca_queue *q = (struct doca_queue *)listed;
	/* None of these buffers is in flight, as the region's gate is quiet. The device's lock is
	 * needed because releasing a buffer changes a counter of its map, which other queues
	 * change, too. */
	pthread_mutex_lock(&q->d->lock);
	for (uint32_t i = 0; i < q->n_tasks; i++)
		for (int side = 0; side < 2; side++)
			if (q->tasks[i].region[side] == region) {
				dg_doca.doca_buf_dec_refcount(q->tasks[i].buf[side], NULL);
				q->tasks[i].region[side] = NO_REGION;
			}
	pthread_mutex_unlock(&q->d->lock);
}

void dg_doca_release_region(struct doca *d, uint32_t region)
{
	queue_list_release(&d->queues, release_in_queue, region);
}

static enum doca_ctx_states state_of(struct doca_queue *q)
{
	enum doca_ctx_states state = DOCA_CTX_STATE_IDLE;
	dg_doca.doca_ctx_get_state(q->ctx, &state);
	return state;
}

int dg_doca_start(struct doca_queue *q)
{
	uint64_t deadline = now_ns() + STATE_NS;
	doca_error_t e = dg_doca.doca_ctx_start(q->ctx);
	if (e && e != DOCA_ERROR_IN_PROGRESS)
		return dg_doca_fail(0, "doca_ctx_start", e);
	while (state_of(q) != DOCA_CTX_STATE_RUNNING) {
		dg_doca.doca_pe_progress(q->pe);
		if (now_ns() > deadline)
			return dg_fail(ETIMEDOUT, "a DMA context did not start within %u s",
				       (unsigned)(STATE_NS / 1000000000u));
	}
	return 0;
}

static bool stop(struct doca_queue *q)
{
	uint64_t deadline = now_ns() + STATE_NS;
	dg_doca.doca_ctx_stop(q->ctx);
	do {
		while (dg_doca.doca_pe_progress(q->pe))
			;
		dg_doca_tasks_free(q); /* the context does not stop before its last task is freed */
		if (state_of(q) == DOCA_CTX_STATE_IDLE)
			return true;
	} while (now_ns() < deadline);
	return false;
}

int dg_doca_tasks_new(struct doca_queue *q)
{
	for (uint32_t i = 0; i < q->n_free; i++) {
		struct task *t = q->free[i];
		union doca_data data = {.ptr = t};
		if (t->memcpy)
			continue;
		doca_error_t e = dg_doca.doca_dma_task_memcpy_alloc_init(
			q->dma, q->scratch[0], q->scratch[1], data, &t->memcpy);
		if (e)
			return dg_doca_fail(0, "doca_dma_task_memcpy_alloc_init", e);
		t->task = dg_doca.doca_dma_task_memcpy_as_task(t->memcpy);
		t->op = UINT8_MAX; /* invalid, so that the task is bound before its first use */
	}
	return 0;
}

void dg_doca_tasks_free(struct doca_queue *q)
{
	for (uint32_t i = 0; i < q->n_free; i++) {
		if (q->free[i]->memcpy)
			dg_doca.doca_task_free(q->free[i]->task);
		q->free[i]->memcpy = NULL;
	}
}

static int allocate_tasks(struct doca_queue *q, uint32_t n)
{
	q->tasks = aligned_alloc(64, sizeof *q->tasks * n);
	q->free = calloc(n, sizeof *q->free);
	q->groups = calloc(n + 1, sizeof *q->groups);
	q->free_groups = calloc(n + 1, sizeof *q->free_groups);
	if (!q->tasks || !q->free || !q->groups || !q->free_groups)
		return dg_fail(ENOMEM, "out of memory for a queue of %u tasks", n);
	memset(q->tasks, 0, sizeof *q->tasks * n);
	for (uint32_t i = 0; i < n; i++) {
		q->free[i] = &q->tasks[n - 1 - i];
		q->tasks[i].region[0] = q->tasks[i].region[1] = NO_REGION;
	}
	for (uint32_t i = 0; i <= n; i++)
		q->free_groups[i] = (uint16_t)(n - i);
	q->n_tasks = q->n_free = n;
	q->n_free_groups = n + 1;
	return 0;
}

/* Creates the progress engine and the context, and starts the context. */
static int make_context(struct doca_queue *q)
{
	struct doca *d = q->d;
	union doca_data data = {.ptr = q};
	uint32_t n = q->p->mask + 1 < TASKS_MAX ? q->p->mask + 1 : TASKS_MAX, most = 0;
	const char *what = "doca_pe_create";
	doca_error_t e = dg_doca.doca_pe_create(&q->pe);
	if (!e)
		what = "doca_dma_create", e = dg_doca.doca_dma_create(d->dev, &q->dma);
	if (e)
		return dg_doca_fail(0, what, e);
	q->ctx = dg_doca.doca_dma_as_ctx(q->dma);
	if (dg_doca.doca_dma_cap_get_max_num_tasks &&
	    !dg_doca.doca_dma_cap_get_max_num_tasks(q->dma, &most) && most && most < n)
		n = most;
	TRY(allocate_tasks(q, n));
	what = "doca_dma_task_memcpy_set_conf";
	e = dg_doca.doca_dma_task_memcpy_set_conf(q->dma, dg_doca_task_completed,
						  dg_doca_task_failed, n);
	if (!e)
		what = "doca_ctx_set_user_data", e = dg_doca.doca_ctx_set_user_data(q->ctx, data);
	if (!e)
		what = "doca_pe_connect_ctx", e = dg_doca.doca_pe_connect_ctx(q->pe, q->ctx);
	return e ? dg_doca_fail(0, what, e) : dg_doca_start(q);
}

static int make_tasks(struct doca_queue *q)
{
	const char *what = "doca_buf_inventory_create";
	doca_error_t e = dg_doca.doca_buf_inventory_create(2 * q->n_tasks + 2, &q->inventory);
	if (!e)
		what = "doca_buf_inventory_start",
		e = dg_doca.doca_buf_inventory_start(q->inventory);
	for (int i = 0; i < 2 && !e; i++) {
		what = "doca_buf_inventory_buf_get_by_args";
		e = dg_doca.doca_buf_inventory_buf_get_by_args(q->inventory, q->d->scratch_map,
							       q->d->scratch, 64, q->d->scratch, 0,
							       &q->scratch[i]);
	}
	return e ? dg_doca_fail(0, what, e) : dg_doca_tasks_new(q);
}

static int make_fds(struct doca_queue *q)
{
	struct epoll_event event = {.events = EPOLLIN};
	doca_notification_handle_t handle;
	doca_error_t e = dg_doca.doca_pe_get_notification_handle(q->pe, &handle);
	if (e)
		return dg_doca_fail(0, "doca_pe_get_notification_handle", e);
	q->handle = handle;
	q->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (q->epoll_fd < 0 || epoll_ctl(q->epoll_fd, EPOLL_CTL_ADD, handle, &event) ||
	    epoll_ctl(q->epoll_fd, EPOLL_CTL_ADD, q->p->event_fd, &event))
		return dg_fail_errno("cannot create the fd that a queue waits on");
	return 0;
}

/* Frees a queue whose context is idle; the queue may be incompletely initialized. */
static void queue_free(struct doca_queue *q)
{
	for (uint32_t i = 0; i < q->n_tasks; i++)
		for (int side = 0; side < 2; side++)
			if (q->tasks[i].region[side] != NO_REGION)
				dg_doca.doca_buf_dec_refcount(q->tasks[i].buf[side], NULL);
	for (int i = 0; i < 2; i++)
		if (q->scratch[i])
			dg_doca.doca_buf_dec_refcount(q->scratch[i], NULL);
	if (q->inventory)
		dg_doca.doca_buf_inventory_destroy(q->inventory);
	if (q->dma)
		dg_doca.doca_dma_destroy(q->dma);
	if (q->pe)
		dg_doca.doca_pe_destroy(q->pe);
	if (q->epoll_fd >= 0)
		close(q->epoll_fd);
	free(q->tasks);
	free(q->free);
	free(q->groups);
	free(q->free_groups);
	free(q);
}

static int queue_new(struct doca *d, struct dg_pipe *p, struct doca_queue **out)
{
	struct doca_queue *q = aligned_alloc(64, (sizeof *q + 63) / 64 * 64);
	if (!q)
		return dg_fail(ENOMEM, "out of memory for a queue");
	memset(q, 0, sizeof *q);
	q->d = d;
	q->p = p;
	q->epoll_fd = -1;
	q->ended.gates.pass = gate_leave;
	pthread_mutex_lock(&d->lock);
	int rc = make_context(q);
	if (!rc)
		rc = make_tasks(q);
	if (!rc)
		rc = make_fds(q);
	if (!rc)
		*out = q;
	else if (!q->ctx || stop(q))
		queue_free(q);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

int dg_doca_attach(struct dg_device *dev, void *state, struct dg_pipe *p)
{
	struct doca *d = state;
	struct doca_queue *q = NULL;
	if (!d->can_dma)
		return dg_fail(EOPNOTSUPP,
			       "%s cannot do DMA (doca_dma_cap_task_memcpy_is_supported): it can "
			       "only export memory",
			       dev->caps.engine);
	pthread_mutex_lock(&d->queues.lock);
	int rc = d->queues.n < DOCA_MAX_QUEUES ? queue_new(d, p, &q)
					       : dg_fail(EMFILE,
							 "this %s device has %u queues open, which "
							 "is the maximum: close one",
							 dev->blob_provider, DOCA_MAX_QUEUES);
	if (!rc) {
		queue_list_add(&d->queues, &q->listed);
		p->provider = q;
		p->wait_fd = q->epoll_fd;
	}
	pthread_mutex_unlock(&d->queues.lock);
	return rc;
}

void dg_doca_detach(struct dg_device *dev, struct dg_pipe *p)
{
	struct doca_queue *q = p->provider;
	struct doca *d = q->d;
	(void)dev;
	guard_enter(&q->listed.guard);
	q->closing = true;
	dg_doca_flush(q, DG_FLUSHED);
	bool stopped = stop(q);
	ended_publish(&q->ended, q->p);
	p->wait_fd = p->event_fd;
	p->provider = NULL;
	guard_leave(&q->listed.guard);
	queue_list_remove(&d->queues, &q->listed);
	/* A context that does not stop may still write: its buffers are not freed, and the gates of
	 * its regions stay entered. */
	if (!stopped)
		return;
	pthread_mutex_lock(&d->lock);
	queue_free(q);
	pthread_mutex_unlock(&d->lock);
}

/* Has DOCA make the handle readable at the next completion. Returns false if it refuses. */
static bool request_notification(struct doca_queue *q)
{
	if (q->requested)
		dg_doca.doca_pe_clear_notification(q->pe, q->handle);
	q->requested = !dg_doca.doca_pe_request_notification(q->pe);
	return q->requested;
}

static bool is_broken(const struct doca_queue *q)
{
	return q->broken;
}

LISTED_QUEUE_OPS(doca)

/* Abandons n tasks of the bare loop that have not ended, so DOCA may still copy. They count as in
 * flight and hold their regions until they end, without completing an operation. Their group is the
 * one on top of the stack. */
static void abandon_tasks(struct doca_queue *q, const struct dg_op *op, uint32_t n)
{
	q->groups[q->free_groups[--q->n_free_groups]] =
		(struct task_group){.left = n, .slot = NO_SLOT};
	q->in_flight += n;
	q->bytes += n * op->size;
	gate_enter(region_entry_at(op->local)->gate, n);
	gate_enter(region_entry_at(op->remote)->gate, n);
}

static int bare_loop(struct doca_queue *q, const struct dg_op *op, uint32_t count, uint32_t window,
		     uint64_t *samples_ns)
{
	struct task *t;
	uint32_t posted = 0, ended = 0, seen = 0, empty = 0;
	uint64_t before = now_ns();
	q->completed_count = &seen;
	while (ended < count && !q->broken) {
		for (; posted < count && posted - ended < window; posted++) {
			t = q->free[--q->n_free];
			struct doca_buf *dst = t->buf[op->opcode == DG_WRITE];
			if (dg_doca.doca_buf_set_data(dst, op->dst, 0) ||
			    dg_doca.doca_task_submit(t->task)) {
				q->free[q->n_free++] = t;
				q->broken = true;
				break;
			}
		}
		dg_doca.doca_pe_progress(q->pe);
		if (seen == ended && ++empty % POLLS)
			continue;
		uint64_t now = now_ns();
		/* On an oversubscribed machine, the thread that completes the task may need this
		 * CPU. */
		if (seen == ended && now - before > YIELD_AFTER_NS)
			sched_yield();
		q->broken |= seen == ended && now - before > STATE_NS;
		for (; ended != seen; before = now)
			samples_ns[ended++] = now - before;
	}
	while (seen != posted && now_ns() - before < STATE_NS)
		dg_doca.doca_pe_progress(q->pe);
	q->completed_count = NULL;
	if (seen != posted)
		abandon_tasks(q, op, posted - seen);
	return q->broken
		       ? dg_fail(EIO,
				 "a DMA task of the measurement failed, or did not end within %u s",
				 (unsigned)(STATE_NS / 1000000000u))
		       : (int)count;
}

/* Times DOCA's own calls: submit a task, then progress until it is complete. */
int dg_doca_bare(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op, uint32_t count,
		 uint32_t window, uint64_t *samples_ns)
{
	struct doca_queue *q = p->provider;
	int rc = 0;
	(void)dev;
	if (op->rows != 1 || op->size > q->d->max_size || window > q->n_free)
		return dg_fail(EOPNOTSUPP,
			       "the bare copy loop of DOCA takes an operation of one row and at "
			       "most %llu bytes, with at most %u in flight",
			       (unsigned long long)q->d->max_size, q->n_free);
	guard_enter(&q->listed.guard);
	if (q->broken || q->dead)
		rc = dg_fail(
			EIO,
			"the queue's DMA context is stopped after an error: open another queue");
	/* Prepare the tasks that the loop will take, those on top of the stack: bind the buffers to
	 * the regions, and set the source, which stays the same. */
	for (uint32_t i = 0; i < window && !rc; i++) {
		struct task *t = q->free[q->n_free - 1 - i];
		t->size = (uint32_t)op->size;
		t->task_group = q->free_groups[q->n_free_groups - 1]; /* see abandon_tasks() */
		rc = dg_doca_bind(q, t, op);
		if (!rc && dg_doca.doca_buf_set_data(t->buf[op->opcode != DG_WRITE],
						     (char *)(uintptr_t)op->src, op->size))
			rc = -EIO;
	}
	rc = rc ? dg_fail(EIO, "cannot set up the DMA tasks of the measurement")
		: bare_loop(q, op, count, window, samples_ns);
	guard_leave(&q->listed.guard);
	return rc;
}
