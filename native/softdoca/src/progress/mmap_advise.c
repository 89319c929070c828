// SPDX-License-Identifier: Apache-2.0
/* Contexts that invalidate caches. Memory is coherent here, so that progress completes a task in
 * turn. Sources: "Advise" is the published reference; "guess" marks an assumption that no published
 * source confirms. */
#include "memory/memory.h"
#include "progress.h"

#include "doca_mmap_advise.h"

#define CHECK_ADVISE(a) CHECK_OBJECT(a, OBJECT_ADVISE, "an mmap advise")

struct doca_mmap_advise_task_invalidate_cache {
	struct object o;
	struct doca_buf *buf;
	struct doca_mmap_advise_task_invalidate_cache *next; /* submitted */
	_Alignas(64) struct doca_task task;
};
typedef struct doca_mmap_advise_task_invalidate_cache advise_task;

struct doca_mmap_advise {
	struct object o;
	doca_mmap_advise_task_invalidate_cache_completion_cb_t done_cb;
	uint32_t n; /* tasks; 0: not configured */
	struct task_pool pool;
	advise_task *first, *last; /* submitted */
	_Alignas(64) struct doca_ctx ctx;
};

OWNER(advise_of, struct doca_mmap_advise, struct doca_ctx, ctx)
OWNER(of_task, advise_task, struct doca_task, task)

/* ---- the context ---- */

static void ended(struct doca_ctx *ctx)
{
	TASKS_FREE(&advise_of(ctx)->pool, advise_task);
}

static doca_error_t start(struct doca_ctx *ctx)
{
	struct doca_mmap_advise *a = advise_of(ctx);
	if (!a->n) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "no tasks are configured");
	if (TASKS_MAKE(&a->pool, a->n, advise_task))
		return DOCA_SUCCESS;
	ended(ctx);
	return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %u tasks", a->n);
}

static doca_error_t submit(struct doca_task *task, uint32_t flags)
{
	struct doca_mmap_advise *a = advise_of(task->ctx);
	advise_task *t = of_task(task);
	(void)flags;
	CHECK_BUF(t->buf);
	t->next = NULL;
	*(a->first ? &a->last->next : &a->first) = t;
	a->last = t;
	return DOCA_SUCCESS;
}

static bool progress(struct doca_ctx *ctx)
{
	struct doca_mmap_advise *a = advise_of(ctx);
	advise_task *t = a->first;
	if (!t)
		return false;
	a->first = t->next;
	/* What a device wrote before the task is read after it. */
	atomic_thread_fence(memory_order_seq_cst);
	if (softdoca_task_landed(&t->task, DOCA_SUCCESS))
		a->done_cb(t, t->task.user_data, ctx->user_data);
	return true;
}

static bool arm(struct doca_ctx *ctx)
{
	return advise_of(ctx)->first;
}

static void free_task(struct doca_task *task)
{
	object_become(of_task(task), OBJECT_FREE);
	softdoca_task_return(&advise_of(task->ctx)->pool, task);
}

static const struct ctx_ops ops = {
	.start = start,
	.ended = ended,
	.submit = submit,
	.progress = progress,
	.arm = arm,
	.free_task = free_task,
};

doca_error_t doca_mmap_advise_create(struct doca_dev *dev, struct doca_mmap_advise **mmap_advise)
{
	CHECK_DEV(dev);
	CHECK_OUT(mmap_advise);
	struct doca_mmap_advise *a = softdoca_object_new(OBJECT_ADVISE, sizeof *a);
	if (!a)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for an mmap advise");
	doca_error_t e = softdoca_ctx_init(&a->ctx, dev, &ops);
	if (e)
		softdoca_object_free(a);
	else
		*mmap_advise = a;
	return e;
}

doca_error_t doca_mmap_advise_destroy(struct doca_mmap_advise *mmap_advise)
{
	CHECK_ADVISE(mmap_advise);
	/* BAD_STATE: guess */
	return softdoca_ctx_destroy(&mmap_advise->ctx, DOCA_ERROR_BAD_STATE, softdoca_object_free,
				    mmap_advise);
}

AS_MEMBER(doca_mmap_advise_as_ctx, struct doca_mmap_advise, struct doca_ctx, OBJECT_ADVISE,
	  "an mmap advise", ctx)

doca_error_t doca_mmap_advise_cap_task_cache_invalidate_is_supported(
	const struct doca_devinfo *devinfo)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a devinfo");
	return DOCA_SUCCESS;
}

doca_error_t doca_mmap_advise_task_cache_invalidate_get_max_buf_size(
	const struct doca_devinfo *devinfo, uint64_t *buf_size)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a devinfo");
	return SET_OUT(buf_size, UINT64_MAX);
}

/* ---- tasks ---- */

doca_error_t doca_mmap_advise_task_invalidate_cache_set_conf(
	struct doca_mmap_advise *mmap_advise,
	doca_mmap_advise_task_invalidate_cache_completion_cb_t completion_cb,
	doca_mmap_advise_task_invalidate_cache_completion_cb_t error_cb, uint32_t num_tasks)
{
	CHECK_ADVISE(mmap_advise);
	if (mmap_advise->ctx.state != DOCA_CTX_STATE_IDLE) /* Advise */
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "the context is started");
	if (!completion_cb || !error_cb || !num_tasks || num_tasks > TASKS_MAX) /* Advise; guess */
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "a callback is NULL, or %u tasks: the number must be 1 to %u",
			      num_tasks, TASKS_MAX);
	mmap_advise->done_cb = completion_cb;
	mmap_advise->n = num_tasks;
	return DOCA_SUCCESS;
}

static doca_error_t allocate_task(struct doca_mmap_advise *a, struct doca_buf *buf,
				  union doca_data data, advise_task **task)
{
	if (a->ctx.state != DOCA_CTX_STATE_RUNNING) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is not running");
	struct doca_task *taken = softdoca_task_take(&a->pool);
	if (!taken) /* Advise */
		return REFUSE(DOCA_ERROR_NO_MEMORY, "all %u tasks are allocated", a->n);
	advise_task *t = of_task(taken);
	object_become(t, OBJECT_ADVISE_TASK);
	softdoca_task_init(taken, &a->ctx, data);
	t->buf = buf;
	*task = t;
	return DOCA_SUCCESS;
}

doca_error_t doca_mmap_advise_task_invalidate_cache_alloc_init(
	struct doca_mmap_advise *mmap_advise, struct doca_buf *buf, union doca_data user_data,
	struct doca_mmap_advise_task_invalidate_cache **task)
{
	CHECK_ADVISE(mmap_advise);
	CHECK_OUT(task);
	RETURN_INSIDE(mmap_advise->ctx.pe, allocate_task(mmap_advise, buf, user_data, task));
}

static bool is_task(const advise_task *task, const char *func)
{
	return object_is(task, OBJECT_ADVISE_TASK) ||
	       REFUSE_FOR(func, false, "%p is not an invalidate cache task", (const void *)task);
}

struct doca_task *doca_mmap_advise_task_invalidate_cache_as_doca_task(
	struct doca_mmap_advise_task_invalidate_cache *task)
{
	return is_task(task, __func__) ? &task->task : NULL;
}

void doca_mmap_advise_task_invalidate_cache_set_buf(
	struct doca_mmap_advise_task_invalidate_cache *task, struct doca_buf *buf)
{
	if (is_task(task, __func__))
		task->buf = buf;
}

struct doca_buf *doca_mmap_advise_task_invalidate_cache_get_buf(
	const struct doca_mmap_advise_task_invalidate_cache *task)
{
	return is_task(task, __func__) ? task->buf : NULL;
}
