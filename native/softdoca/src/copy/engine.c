// SPDX-License-Identifier: Apache-2.0
/*
 * The engine of a DMA context: see engine.h.
 *
 * Sources: DOCA's published references and samples, as cited; "guess" marks an assumption that no
 * published source confirms.
 */
#include "engine.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "clock.h"
#include "progress/pe.h"
#include "provider.h"

/* Entries of a pipe. A task needs at most two entries for each of 2 * LIST_MAX pieces and for each
 * 256 KiB. */
enum { RING_MIN = 512, RING_MAX = 65536 };
enum { POLLS_PER_PAUSE = 16, POLLS_PER_YIELD = 256 /* some microseconds */ };

/* ---- lists ---- */

static inline void list_append(struct task_list *l, struct doca_dma_task_memcpy *t)
{
	t->next = NULL;
	if (l->first)
		l->last->next = t;
	else
		l->first = t;
	l->last = t;
}

static inline void append_all(struct task_list *l, struct task_list *more)
{
	if (!more->first)
		return;
	if (l->first)
		l->last->next = more->first;
	else
		l->first = more->first;
	l->last = more->last;
	more->first = NULL;
}

static void take_out(struct task_list *l, struct doca_dma_task_memcpy *t)
{
	struct doca_dma_task_memcpy *before = l->first;
	if (before == t) {
		l->first = t->next;
		return;
	}
	while (before->next != t)
		before = before->next;
	before->next = t->next;
	if (l->last == t)
		l->last = before;
}

static inline struct doca_dma_task_memcpy *list_pop(struct task_list *l)
{
	struct doca_dma_task_memcpy *t = l->first;
	l->first = t->next;
	return t;
}

/* ---- buffers of submitted tasks ---- */

/*
 * A buffer that a submitted task uses cannot be returned. A source may be in tasks of several
 * engines and threads at once; that is rare, and an atomic addition costs as much as the copy. So
 * the first engine that uses a buffer becomes its owner until the buffer is returned. The owner
 * counts in in_tasks, which only the thread inside it changes; other engines count in in_others.
 */
static __attribute__((noinline)) bool owns(struct doca_buf *b, struct doca_pe *pe)
{
	struct doca_pe *none = NULL;
	/* relaxed: no ordering is needed; inventory_take() has set the owner to NULL before */
	return atomic_compare_exchange_strong_explicit(&b->owner, &none, pe, memory_order_relaxed,
						       memory_order_relaxed);
}

static inline void buf_count(const struct doca_buf *buf, struct doca_pe *pe, uint32_t by)
{
	struct doca_buf *b = (struct doca_buf *)buf;
	struct doca_pe *owner = atomic_load_explicit(&b->owner, memory_order_relaxed);
	if (__builtin_expect(owner == pe, 1) || (!owner && owns(b, pe))) {
		uint32_t n = atomic_load_explicit(&b->in_tasks, memory_order_relaxed);
		/* release, here and below: see buf_in_tasks() */
		atomic_store_explicit(&b->in_tasks, n + by, memory_order_release);
	} else {
		atomic_fetch_add_explicit(&b->in_others, by, memory_order_release);
	}
}

static inline void bufs_count(const struct doca_dma_task_memcpy *t, uint32_t by)
{
	struct doca_pe *pe = t->task.ctx->pe;
	buf_count(t->src, pe, by);
	buf_count(t->dst, pe, by);
}

/* ---- channels ---- */

static bool channel_open(struct channel *l, dg_device *dev, struct doca_pe *pe, uint32_t entries)
{
	int rc = dg_pipe_open(&l->pipe, entries);
	if (rc) {
		softdoca_failed(__func__, rc);
		return false;
	}
	rc = dev->ops->attach(dev, dev->provider, &l->pipe);
	if (rc) {
		softdoca_failed(__func__, rc);
		dg_pipe_close(&l->pipe);
		return false;
	}
	l->dev = dev;
	l->tasks = l->used = 0;
	/* If this fails, the failure is logged, and a sleeping program would not be woken. */
	pe_watch(pe, l->pipe.wait_fd);
	return true;
}

static uint32_t entries_for(uint32_t tasks)
{
	uint32_t n = tasks < RING_MIN ? RING_MIN : tasks;
	return n > RING_MAX ? RING_MAX : n;
}

/* Returns the channel of a task; the GPU's channel is opened for the first task that needs it.
 * Returns NULL on failure. */
static struct channel *channel_of(struct engine *e, const struct doca_dma_task_memcpy *t)
{
	const struct doca_ctx *ctx = t->task.ctx;
	if (t->path == PATH_CPU || t->path == PATH_INLINE)
		return &e->cpu;
	dg_device *gpu = ctx->dev->gpu; /* a map of the task opened it */
	if (e->gpu.dev || (gpu && channel_open(&e->gpu, gpu, ctx->pe, entries_for(e->n))))
		return &e->gpu;
	return NULL;
}

static inline bool needs_pipe(const struct doca_dma_task_memcpy *t)
{
	return t->path == PATH_CPU || t->path == PATH_GPU;
}

static inline bool fits(const struct channel *l, const struct doca_dma_task_memcpy *t)
{
	return l->used + t->pieces <= l->pipe.mask + 1;
}

/* Posts waiting tasks to the pipes, in order, until one does not fit. */
static void push(struct engine *e)
{
	for (struct doca_dma_task_memcpy *t; (t = e->ready.first) && t->path != PATH_FAILED;) {
		struct channel *l = channel_of(e, t);
		if (l && !fits(l, t))
			break;
		e->for_pipe -= needs_pipe(t);
		if (!l || !pieces_post(t, l)) {
			t->path = PATH_FAILED;
			t->outcome = DOCA_ERROR_IO_FAILED;
			break;
		}
		list_pop(&e->ready);
		list_append(&l->posted, t);
		t->order = e->posts++;
		t->posted = true;
		e->in_channels++;
	}
}

static doca_error_t outcome_of(uint32_t status)
{
	if (status == DG_OK)
		return DOCA_SUCCESS;
	return status == DG_FLUSHED ? FLUSHED : DOCA_ERROR_IO_FAILED;
}

/* Returns a task whose completion is in the pipe, or NULL. */
static struct doca_dma_task_memcpy *reap(struct engine *e, struct channel *l)
{
	struct dg_cqe *cqe = cq_peek(&l->pipe);
	if (!cqe)
		return NULL;
	struct doca_dma_task_memcpy *t = e->all[cqe->slot_status >> 8];
	t->outcome = outcome_of(cqe->slot_status & CQE_STATUS);
	t->posted = false;
	take_out(&l->posted, t);
	l->pipe.cq_head++;
	l->used -= t->pieces;
	l->tasks--;
	e->in_channels--;
	return t;
}

/* Returns whether the first list begins with the task that was posted first; either may be empty. */
static bool is_older(const struct task_list *list, const struct task_list *other)
{
	const struct doca_dma_task_memcpy *a = list->first, *b = other->first;
	return !b || (a && (int32_t)(a->order - b->order) < 0);
}

/* Returns the channel with the oldest task; one of them has one. */
static struct channel *oldest(struct engine *e)
{
	return is_older(&e->cpu.posted, &e->gpu.posted) ? &e->cpu : &e->gpu;
}

static void poll_channel(struct channel *l)
{
	if (l->tasks && l->dev->ops->poll)
		l->dev->ops->poll(l->dev, &l->pipe);
}

/* ---- the context's operations ---- */

static void free_tasks(struct engine *e)
{
	for (uint32_t i = 0; i < e->n; i++)
		softdoca_object_free(e->all[i]);
	free(e->all);
	e->all = NULL;
	e->free = NULL;
	e->n = 0;
}

static bool make_tasks(struct engine *e, uint32_t n)
{
	if (!softdoca_object_room(sizeof(struct doca_dma_task_memcpy), n))
		return false;
	e->all = calloc(n, sizeof *e->all);
	if (!e->all)
		return false;
	for (; e->n < n; e->n++) {
		struct doca_dma_task_memcpy *t = softdoca_object_new(OBJECT_FREE, sizeof *t);
		if (!t)
			return false;
		t->index = e->n;
		t->next = e->free;
		e->free = e->all[e->n] = t;
	}
	return true;
}

static doca_error_t dma_start(struct doca_ctx *ctx)
{
	struct doca_dma *dma = dma_of(ctx);
	struct engine *e = &dma->e;
	const struct dg_device *dev = ctx->dev->engine;
	if (!dma->num_tasks) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "no tasks are configured");
	e->failed = false;
	e->inline_max = dev->ops->inline_copies ? dev->caps.inline_max : 0;
	if (!make_tasks(e, dma->num_tasks)) {
		free_tasks(e);
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %u tasks", dma->num_tasks);
	}
	if (!channel_open(&e->cpu, ctx->dev->engine, ctx->pe, entries_for(e->n))) {
		free_tasks(e);
		return DOCA_ERROR_INITIALIZATION; /* CTX reference */
	}
	return DOCA_SUCCESS;
}

/* Closes the pipe. Tasks that it completed are added to `ended`. */
static void channel_close(struct engine *e, struct channel *l, struct doca_pe *pe,
			  struct task_list *ended)
{
	if (!l->dev)
		return;
	pe_unwatch(pe, l->pipe.wait_fd);
	/* A forked child does not have the engine's thread. */
	if (!pe_forked(pe))
		l->dev->ops->detach(l->dev, &l->pipe);
	for (struct doca_dma_task_memcpy *t; (t = reap(e, l));) {
		t->path = PATH_FAILED;
		list_append(ended, t);
	}
	l->posted.first = NULL;
	dg_pipe_close(&l->pipe);
	l->dev = NULL;
}

/* NVIDIA's samples pe_task_error and pe_async_stop rely on this: progress completes tasks in flight
 * as failures. Tasks that the pipes still finish keep their results, unless a task before them has
 * failed: a context completes in the order of submission, and ends with the first failure. */
static void dma_stop(struct doca_ctx *ctx)
{
	struct engine *e = &dma_of(ctx)->e;
	struct task_list ended = {0}, cpu = {0}, gpu = {0};
	channel_close(e, &e->cpu, ctx->pe, &cpu);
	channel_close(e, &e->gpu, ctx->pe, &gpu);
	while (cpu.first || gpu.first)
		list_append(&ended, list_pop(is_older(&cpu, &gpu) ? &cpu : &gpu));
	/* The provider fault may have lost a completion. */
	for (uint32_t i = 0; i < e->n && e->in_channels; i++) {
		struct doca_dma_task_memcpy *t = e->all[i];
		if (!t->posted)
			continue;
		t->posted = false;
		t->path = PATH_FAILED;
		t->outcome = FLUSHED;
		list_append(&ended, t);
		e->in_channels--;
	}
	for (struct doca_dma_task_memcpy *t = e->failed ? ended.first : NULL; t; t = t->next)
		t->outcome = FLUSHED;
	append_all(&e->ready, &e->held);
	e->for_pipe = 0;
	for (struct doca_dma_task_memcpy *t = e->ready.first; t; t = t->next) {
		t->outcome = t->path == PATH_FAILED ? t->outcome : FLUSHED;
		t->path = PATH_FAILED;
	}
	append_all(&ended, &e->ready);
	e->ready = ended;
}

static void dma_ended(struct doca_ctx *ctx)
{
	pieces_end(&dma_of(ctx)->e);
	free_tasks(&dma_of(ctx)->e);
}

static __attribute__((cold, noinline)) doca_error_t refuse_bufs(const struct doca_buf *src,
								const struct doca_buf *dst)
{
	bool s = object_is(src, OBJECT_BUF), d = object_is(dst, OBJECT_BUF);
	softdoca_log(DOCA_LOG_LEVEL_WARNING, "doca_task_submit", "the %s is not %s",
		     s && (!d || src->first == src) ? "destination" : "source",
		     s && d ? "the first buffer of its list" : "a buffer");
	return DOCA_ERROR_INVALID_VALUE; /* PE reference, doca_task_try_submit */
}

static doca_error_t dma_submit(struct doca_task *task, uint32_t flags)
{
	struct doca_dma_task_memcpy *t = memcpy_of(task);
	struct doca_dma *dma = dma_of(task->ctx);
	struct engine *e = &dma->e;
	const struct doca_buf *src = t->src, *dst = t->dst;
	if (!object_is(src, OBJECT_BUF) || !object_is(dst, OBJECT_BUF) || src->first != src ||
	    dst->first != dst)
		return refuse_bufs(src, dst);
	if (__builtin_expect(!pieces_plan(t, dma), 0)) {
		if (flags & SUBMIT_CHECKED)
			return DOCA_ERROR_INVALID_VALUE; /* PE reference */
		t->path = PATH_FAILED;
		t->outcome = DOCA_ERROR_IO_FAILED;
	}
	bufs_count(t, 1);
	e->for_pipe += needs_pipe(t);
	if (__builtin_expect(!(flags & DOCA_TASK_SUBMIT_FLAG_FLUSH), 0)) {
		list_append(&e->held, t);
		return DOCA_SUCCESS;
	}
	append_all(&e->ready, &e->held);
	list_append(&e->ready, t);
	if (__builtin_expect(e->in_channels || e->for_pipe, 0))
		push(e);
	return DOCA_SUCCESS;
}

static void dma_flush(struct doca_ctx *ctx)
{
	struct engine *e = &dma_of(ctx)->e;
	append_all(&e->ready, &e->held);
	if (e->in_channels || e->for_pipe)
		push(e);
}

/* Completes a task. Must not use the engine after the callback, which may have stopped the context.
 */
static inline void deliver(struct doca_ctx *ctx, struct doca_dma_task_memcpy *t)
{
	struct doca_dma *dma = dma_of(ctx);
	doca_error_t outcome = t->outcome;
	bufs_count(t, UINT32_MAX);
	if (__builtin_expect(outcome == DOCA_SUCCESS, 1)) {
		pieces_arrived(t);
		if (task_landed(&t->task, outcome))
			dma->done_cb(t, t->task.user_data, ctx->user_data);
		return;
	}
	/* As on a BlueField, a failure stops the context. That the state changes before the task
	 * completes is a guess. The task stays in flight meanwhile, so that the state callback
	 * cannot free it. */
	dma->e.failed = true;
	softdoca_ctx_fail(ctx);
	if (task_landed(&t->task, outcome))
		dma->error_cb(t, t->task.user_data, ctx->user_data);
}

/* A busy progress loop slows the copying thread down if both share a core, or if there are more
 * threads than CPUs. */
static inline bool poll_again(struct engine *e)
{
	if (++e->polls % POLLS_PER_PAUSE == 0)
		cpu_relax();
	if (e->polls % POLLS_PER_YIELD == 0)
		sched_yield();
	return false;
}

static bool dma_progress(struct doca_ctx *ctx)
{
	struct engine *e = &dma_of(ctx)->e;
	struct doca_dma_task_memcpy *t;
	if (__builtin_expect(e->in_channels, 0)) {
		if (pe_forked(ctx->pe))
			return false;
		poll_channel(&e->cpu);
		poll_channel(&e->gpu);
		t = reap(e, oldest(e));
		if (e->ready.first)
			push(e);
		if (!t)
			return poll_again(e);
		e->polls = 0;
	} else {
		if (!e->ready.first)
			return false;
		t = list_pop(&e->ready);
		if (t->path == PATH_INLINE)
			t->outcome = outcome_of((uint32_t)pieces_copy(t));
	}
	deliver(ctx, t);
	return true;
}

/* Returns true if there already is a completion. */
static bool channel_arm(struct channel *l, struct doca_pe *pe)
{
	if (!l->tasks)
		return false;
	int rc = l->dev->ops->arm ? l->dev->ops->arm(l->dev, &l->pipe) : dg_pipe_arm(&l->pipe);
	if (rc <= 0)
		return true;
	pe_wakes(pe, l->pipe.wait_fd, true);
	return false;
}

static bool dma_arm(struct doca_ctx *ctx)
{
	struct engine *e = &dma_of(ctx)->e;
	if (!e->in_channels)
		return e->ready.first;
	return channel_arm(oldest(e), ctx->pe);
}

static void channel_disarm(struct channel *l, struct doca_pe *pe)
{
	if (l->dev)
		pe_wakes(pe, l->pipe.wait_fd, false);
}

static void dma_disarm(struct doca_ctx *ctx)
{
	struct engine *e = &dma_of(ctx)->e;
	channel_disarm(&e->cpu, ctx->pe);
	channel_disarm(&e->gpu, ctx->pe);
}

static void dma_free_task(struct doca_task *task)
{
	struct doca_dma_task_memcpy *t = memcpy_of(task);
	struct engine *e = &dma_of(task->ctx)->e;
	object_become(task, OBJECT_FREE);
	object_become(t, OBJECT_FREE);
	t->next = e->free;
	e->free = t;
}

struct doca_dma_task_memcpy *softdoca_memcpy_new(struct doca_dma *dma, union doca_data user_data)
{
	struct doca_dma_task_memcpy *t = dma->e.free;
	if (!t)
		return NULL;
	dma->e.free = t->next;
	softdoca_task_init(&t->task, &dma->ctx, user_data);
	object_become(t, OBJECT_MEMCPY);
	return t;
}

/* Its channels' fds are watched, not one of the context. */
const struct ctx_ops softdoca_dma_ops = {
	.start = dma_start,
	.stop = dma_stop,
	.ended = dma_ended,
	.submit = dma_submit,
	.progress = dma_progress,
	.arm = dma_arm,
	.disarm = dma_disarm,
	.free_task = dma_free_task,
	.flush = dma_flush,
	.on_gpu = &dma_gpu_ops,
};
