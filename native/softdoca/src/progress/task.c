// SPDX-License-Identifier: Apache-2.0
/* Tasks of all kinds. Sources: "PE reference" is DOCA's published reference; "guess" marks an
 * assumption that no published source confirms. */
#include "pe.h"

void softdoca_task_init(struct doca_task *task, struct doca_ctx *ctx, union doca_data user_data)
{
	task->ctx = ctx;
	task->user_data = user_data;
	task->status = DOCA_SUCCESS;
	task->in_flight = false;
	task->watch = NULL;
	ctx->tasks++;
	object_become(task, OBJECT_TASK);
}

/* ---- of a context ---- */

bool softdoca_tasks_make(struct task_pool *pool, uint32_t n, size_t size, size_t offset)
{
	if (!softdoca_object_room(size, n))
		return false;
	for (uint32_t i = 0; i < n; i++) {
		char *at = softdoca_object_new(OBJECT_FREE, size);
		if (!at)
			return false;
		softdoca_task_return(pool, (struct doca_task *)(void *)(at + offset));
	}
	return true;
}

void softdoca_tasks_free(struct task_pool *pool, size_t offset)
{
	for (struct doca_task *task; (task = softdoca_task_take(pool));)
		softdoca_object_free((char *)task - offset);
}

struct doca_task *softdoca_task_take(struct task_pool *pool)
{
	struct doca_task *task = pool->free;
	if (task)
		pool->free = task->next_free;
	return task;
}

void softdoca_task_return(struct task_pool *pool, struct doca_task *task)
{
	object_become(task, OBJECT_FREE);
	task->next_free = pool->free;
	pool->free = task;
}

/* guess: which error, and their order */
doca_error_t softdoca_tasks_check(const struct doca_ctx *ctx, bool callbacks, uint32_t n, uint32_t max,
				  const char *func)
{
	if (ctx->state != DOCA_CTX_STATE_IDLE)
		return REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, "the context is started");
	if (!callbacks)
		return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE, "a callback is NULL");
	if (!n || n > max)
		return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE, "%u tasks: the number must be 1 to %u", n, max);
	return DOCA_SUCCESS;
}

/* ---- in flight ---- */

bool softdoca_task_landed(struct doca_task *task, doca_error_t status)
{
	return task_landed(task, status);
}

static __attribute__((cold, noinline)) doca_error_t refuse(const struct doca_task *task,
							   enum pe_entry how, const char *func)
{
	const char *why = "the task is in flight already";
	doca_error_t error = DOCA_ERROR_BAD_STATE; /* guess */
	if (!object_is(task, OBJECT_TASK)) {
		why = "not a task";
		error = DOCA_ERROR_INVALID_VALUE;
	} else if (how == PE_BUSY) {
		why = "another thread is in its progress engine";
		error = DOCA_ERROR_IN_USE; /* guess */
	} else if (pe_forked(task->ctx->pe)) {
		why = FORKED;
	} else if (task->ctx->state != DOCA_CTX_STATE_RUNNING) {
		why = "its context does not run"; /* guess */
	}
	return REFUSE_FOR(func, error, "%p: %s", (const void *)task, why);
}

static inline doca_error_t submit(struct doca_task *task, uint32_t flags, const char *func)
{
	if (!object_is(task, OBJECT_TASK))
		return refuse(task, PE_NESTED, func); /* not a task: PE_NESTED has no effect */
	struct doca_ctx *ctx = task->ctx;
	struct doca_pe *pe = ctx->pe;
	enum pe_entry how = pe_enter(pe);
	if (__builtin_expect(how == PE_BUSY, 0))
		return refuse(task, how, func);
	doca_error_t error;
	if (__builtin_expect(
		    task->in_flight || ctx->state != DOCA_CTX_STATE_RUNNING || pe_forked(pe), 0)) {
		error = refuse(task, how, func);
		goto leave;
	}
	error = ctx->ops->submit(task, flags);
	if (__builtin_expect(error != DOCA_SUCCESS, 0))
		goto leave;
	task->in_flight = true;
	ctx->in_flight++;
	if (__builtin_expect(pe->armed, 0))
		pe_arm_ctx(pe, ctx);
leave:
	pe_leave(pe, how);
	return error;
}

doca_error_t doca_task_submit(struct doca_task *task)
{
	return submit(task, DOCA_TASK_SUBMIT_FLAG_FLUSH, __func__);
}

/* PE reference: INVALID_VALUE for an invalid field, before the task is started. */
doca_error_t doca_task_try_submit(struct doca_task *task)
{
	return submit(task, DOCA_TASK_SUBMIT_FLAG_FLUSH | SUBMIT_CHECKED, __func__);
}

doca_error_t doca_task_submit_ex(struct doca_task *task, uint32_t flags)
{
	const uint32_t known = DOCA_TASK_SUBMIT_FLAG_FLUSH | DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS;
	if (flags & ~known) /* guess */
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "flags %#x are invalid: the known ones are %#x", flags, known);
	return submit(task, flags, __func__);
}

void doca_ctx_flush_tasks(struct doca_ctx *ctx)
{
	if (!object_is(ctx, OBJECT_CTX)) {
		softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__, "%p is not a context", (void *)ctx);
		return;
	}
	struct doca_pe *pe = ctx->pe;
	enum pe_entry how = pe_enter(pe);
	if (how == PE_BUSY) {
		softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__,
			     "another thread is in its progress engine");
		return;
	}
	if (ctx->state == DOCA_CTX_STATE_RUNNING && ctx->ops->flush && !pe_forked(pe)) {
		ctx->ops->flush(ctx);
		if (pe->armed)
			pe_arm_ctx(pe, ctx);
	}
	pe_leave(pe, how);
}

void doca_task_free(struct doca_task *task)
{
	if (!object_is(task, OBJECT_TASK)) {
		softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__, "%p is not a task", (void *)task);
		return;
	}
	struct doca_ctx *ctx = task->ctx;
	struct doca_pe *pe = ctx->pe;
	struct task_watch *watch = NULL;
	enum pe_entry how = pe_enter(pe);
	if (how != PE_BUSY && task->in_flight && ctx->ops->cancel && ctx->ops->cancel(task)) {
		task->in_flight = false;
		ctx->in_flight--;
		watch = task->watch;
	}
	if (how == PE_BUSY || task->in_flight) {
		softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__, "%p is %s: it is not freed",
			     (void *)task,
			     how == PE_BUSY ? "in another thread's engine" : "in flight");
	} else {
		ctx->tasks--;
		ctx->ops->free_task(task);
		/* The next progress makes it idle. */
		if (!ctx->tasks && ctx->state == DOCA_CTX_STATE_STOPPING)
			softdoca_pe_kick(pe);
	}
	if (watch)
		watch->landed(watch, FLUSHED);
	pe_leave(pe, how);
}

/* ---- attributes ---- */

doca_error_t doca_task_get_status(const struct doca_task *task)
{
	if (!object_is(task, OBJECT_TASK))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a task", (const void *)task);
	return task->in_flight ? DOCA_ERROR_IN_PROGRESS : task->status; /* guess */
}

union doca_data doca_task_get_user_data(const struct doca_task *task)
{
	if (object_is(task, OBJECT_TASK))
		return task->user_data;
	return REFUSE((union doca_data){.u64 = 0}, "%p is not a task", (const void *)task);
}

void doca_task_set_user_data(struct doca_task *task, union doca_data user_data)
{
	if (object_is(task, OBJECT_TASK))
		task->user_data = user_data;
	else
		softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__, "%p is not a task", (void *)task);
}

struct doca_ctx *doca_task_get_ctx(const struct doca_task *task)
{
	if (object_is(task, OBJECT_TASK))
		return task->ctx;
	return REFUSE(NULL, "%p is not a task", (const void *)task);
}

/* ---- batches ---- */

static struct doca_task *task_of(struct doca_task_batch *batch, const char *func)
{
	if (object_is(batch, OBJECT_TASK_BATCH))
		return &batch->task;
	softdoca_log(DOCA_LOG_LEVEL_WARNING, func, "%p is not a batch of tasks", (void *)batch);
	return NULL;
}

doca_error_t doca_task_batch_submit(struct doca_task_batch *task_batch)
{
	struct doca_task *task = task_of(task_batch, __func__);
	return task ? submit(task, DOCA_TASK_SUBMIT_FLAG_FLUSH, __func__) : DOCA_ERROR_INVALID_VALUE;
}

void doca_task_batch_free(struct doca_task_batch *task_batch)
{
	struct doca_task *task = task_of(task_batch, __func__);
	if (task)
		doca_task_free(task);
}

struct doca_ctx *doca_task_batch_get_ctx(const struct doca_task_batch *task_batch)
{
	struct doca_task *task = task_of((struct doca_task_batch *)task_batch, __func__);
	return task ? task->ctx : NULL;
}
