// SPDX-License-Identifier: Apache-2.0
/*
 * Sync events as contexts. Tasks that do not wait are executed when they are submitted; progress
 * completes them, and completes waiting tasks whose condition is met. Nothing reports an update by
 * another process, so a sleeping program is woken every millisecond while tasks wait. Sources: "SE
 * reference" is the published header's documentation; "guess" marks an assumption that no published
 * source confirms.
 */
#include "sync_event.h"

#include <string.h>

#include "progress/pe.h"

#define WAKE_NS 1000000

OWNER(event_of, struct doca_sync_event, struct doca_ctx, ctx)
OWNER(of_task, struct sync_task, struct doca_task, task)

/* ---- lists ---- */

static void list_append(struct sync_list *l, struct sync_task *t)
{
	t->next = NULL;
	*(l->first ? &l->last->next : &l->first) = t;
	l->last = t;
}

static void take_out(struct sync_list *l, struct sync_task *t)
{
	struct sync_task *before = NULL;
	for (struct sync_task *at = l->first; at != t; at = at->next)
		before = at;
	*(before ? &before->next : &l->first) = t->next;
	if (l->last == t)
		l->last = before;
}

static void complete_task(struct doca_sync_event *e, struct sync_task *t, doca_error_t status)
{
	t->status = status;
	t->waits = false;
	list_append(&e->done, t);
}

/* ---- the context ---- */

static void ended(struct doca_ctx *ctx)
{
	for (int op = 0; op < SYNC_OPS; op++)
		TASKS_FREE(&event_of(ctx)->conf[op].pool, struct sync_task);
}

static doca_error_t start(struct doca_ctx *ctx)
{
	struct doca_sync_event *e = event_of(ctx);
	uint64_t n = 0;
	doca_error_t error = sync_startable(e);
	for (int op = 0; op < SYNC_OPS; op++)
		n += e->conf[op].n;
	if (error == DOCA_SUCCESS && !n) /* guess */
		error = REFUSE(DOCA_ERROR_BAD_STATE, "no tasks are configured");
	if (error == DOCA_SUCCESS)
		error = sync_choose_place(e);
	for (int op = 0; op < SYNC_OPS && error == DOCA_SUCCESS; op++)
		if (e->conf[op].n && !TASKS_MAKE(&e->conf[op].pool, e->conf[op].n, struct sync_task))
			error = REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %u tasks",
				       e->conf[op].n);
	if (error != DOCA_SUCCESS)
		ended(ctx);
	return error;
}

static void stop(struct doca_ctx *ctx)
{
	struct doca_sync_event *e = event_of(ctx);
	while (e->waiting.first) {
		struct sync_task *t = e->waiting.first;
		take_out(&e->waiting, t);
		complete_task(e, t, FLUSHED);
	}
}

static doca_error_t submit(struct doca_task *task, uint32_t flags)
{
	struct sync_task *t = of_task(task);
	struct doca_sync_event *e = event_of(task->ctx);
	(void)flags;
	if (t->op < SYNC_WAIT_EQ) {
		uint64_t unused;
		complete_task(e, t, sync_execute(e, t->op, t->value, t->out ? t->out : &unused));
		return DOCA_SUCCESS;
	}
	t->waits = true;
	list_append(&e->waiting, t);
	return DOCA_SUCCESS;
}

static bool cancel_task(struct doca_task *task)
{
	struct sync_task *t = of_task(task);
	struct doca_sync_event *e = event_of(task->ctx);
	take_out(t->waits ? &e->waiting : &e->done, t);
	return true;
}

/* Ends the waits that are satisfied, or all of them if they can no longer be satisfied. Returns
 * whether there are completed tasks to deliver. */
static bool look(struct doca_sync_event *e)
{
	struct sync_task *next;
	bool abandoned = e->waiting.first && sync_abandoned_now(e);
	for (struct sync_task *t = e->waiting.first; t; t = next) {
		next = t->next;
		bool met = sync_met(e, t->op, t->value, t->mask);
		if (!met && !abandoned)
			continue;
		take_out(&e->waiting, t);
		complete_task(e, t, met ? DOCA_SUCCESS : DOCA_ERROR_CONNECTION_RESET);
	}
	return e->done.first;
}

static void call_back(union sync_callback cb, struct sync_task *t, union doca_data ctx_data)
{
	union doca_data data = t->task.user_data;
	switch (t->op) {
	case SYNC_GET:
		cb.get((struct doca_sync_event_task_get *)t, data, ctx_data);
		break;
	case SYNC_SET:
		cb.notify_set((struct doca_sync_event_task_notify_set *)t, data, ctx_data);
		break;
	case SYNC_ADD:
		cb.notify_add((struct doca_sync_event_task_notify_add *)t, data, ctx_data);
		break;
	case SYNC_WAIT_EQ:
		cb.wait_eq((struct doca_sync_event_task_wait_eq *)t, data, ctx_data);
		break;
	case SYNC_WAIT_NEQ:
		cb.wait_neq((struct doca_sync_event_task_wait_neq *)t, data, ctx_data);
		break;
	case SYNC_WAIT_GT:
	case SYNC_OPS:
		cb.wait_gt((struct doca_sync_event_task_wait_gt *)t, data, ctx_data);
		break;
	}
}

static bool progress(struct doca_ctx *ctx)
{
	struct doca_sync_event *e = event_of(ctx);
	if (!e->done.first && !look(e))
		return false;
	struct sync_task *t = e->done.first;
	const struct sync_conf *conf = &e->conf[t->op];
	take_out(&e->done, t);
	if (softdoca_task_landed(&t->task, t->status))
		call_back(t->status == DOCA_SUCCESS ? conf->done_cb : conf->error_cb, t,
			  ctx->user_data);
	return true;
}

static bool arm(struct doca_ctx *ctx)
{
	struct doca_sync_event *e = event_of(ctx);
	if (e->done.first || look(e))
		return true;
	if (e->waiting.first)
		softdoca_ctx_wake_after(ctx, WAKE_NS);
	return false;
}

static void free_task(struct doca_task *task)
{
	struct sync_task *t = of_task(task);
	object_become(t, OBJECT_FREE);
	softdoca_task_return(&event_of(task->ctx)->conf[t->op].pool, task);
}

const struct ctx_ops sync_ops = {
	.start = start,
	.stop = stop,
	.ended = ended,
	.submit = submit,
	.progress = progress,
	.arm = arm,
	.free_task = free_task,
	.cancel = cancel_task,
	.timed = true,
};

/* ---- tasks ---- */

/* SE reference, doca_sync_event_task_*_set_conf: INVALID_VALUE, NOT_PERMITTED. */
static doca_error_t set_conf(struct doca_sync_event *e, enum sync_op op, union sync_callback done_cb,
			     union sync_callback error_cb, uint32_t n, const char *func)
{
	CHECK_EVENT(e);
	if (!n || n > TASKS_MAX)
		return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE,
				  "%u tasks: the number must be 1 to %u", n, TASKS_MAX);
	if (e->ctx.state != DOCA_CTX_STATE_IDLE)
		return REFUSE_FOR(func, DOCA_ERROR_NOT_PERMITTED, "the context is started");
	e->conf[op] = (struct sync_conf){.done_cb = done_cb, .error_cb = error_cb, .n = n};
	return DOCA_SUCCESS;
}

/* SE reference: 0, 1, 2, 4 or 8 consecutive bytes 0xff. */
static bool mask_is_valid(uint64_t mask)
{
	uint64_t low = mask ? mask >> (__builtin_ctzll(mask) & ~7) : 0;
	return !low || low == 0xff || low == 0xffff || low == 0xffffffff || low == UINT64_MAX;
}

/* The fields of a new task. */
struct fields {
	enum sync_op op;
	uint64_t value, mask;
	uint64_t *out;
};

/* SE reference, doca_sync_event_task_*_alloc_init: NO_MEMORY. */
static doca_error_t new_task(struct doca_sync_event *e, struct fields fields, union doca_data user_data,
			     void *out, const char *func)
{
	struct sync_conf *conf = &e->conf[fields.op];
	if (e->ctx.state != DOCA_CTX_STATE_RUNNING) /* guess */
		return REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, "the context is not running");
	struct doca_task *task = softdoca_task_take(&conf->pool);
	if (!task)
		return REFUSE_FOR(func, DOCA_ERROR_NO_MEMORY, "all %u tasks are allocated", conf->n);
	softdoca_task_init(task, &e->ctx, user_data);
	struct sync_task *t = of_task(task);
	t->op = fields.op;
	t->value = fields.value;
	t->mask = fields.mask;
	t->out = fields.out;
	object_become(t, OBJECT_SYNC_TASK);
	memcpy(out, &t, sizeof t);
	return DOCA_SUCCESS;
}

static doca_error_t allocate_task(struct doca_sync_event *e, struct fields fields,
				  union doca_data user_data, void *task, const char *func)
{
	CHECK_EVENT(e);
	CHECK_OUT(task);
	if (fields.op >= SYNC_WAIT_EQ && !mask_is_valid(fields.mask))
		return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE,
				  "the mask %#llx is not 0, 1, 2, 4 or 8 consecutive bytes 0xff",
				  (unsigned long long)fields.mask);
	RETURN_INSIDE(e->ctx.pe, new_task(e, fields, user_data, task, func));
}

/* Returns the task of a handle of this kind; NULL, logged, if it is invalid. */
static struct sync_task *check(const void *task, enum sync_op op, const char *func)
{
	struct sync_task *t = (struct sync_task *)(uintptr_t)task;
	if (object_is(t, OBJECT_SYNC_TASK) && t->op == op)
		return t;
	return REFUSE_FOR(func, NULL, "%p is not such a task", task);
}

/* The same, but also refuses a task in flight, whose fields cannot be set. */
static struct sync_task *settable(void *task, enum sync_op op, const char *func)
{
	struct sync_task *t = check(task, op, func);
	if (t && t->task.in_flight)
		t = REFUSE_FOR(func, NULL, "%p is in flight: nothing is set", task);
	return t;
}

/* The functions of each kind of task: doca_sync_event_task_NAME_... */
#define TASK(name, OP)                                                                      \
	doca_error_t doca_sync_event_task_##name##_set_conf(                                \
		struct doca_sync_event *event,                                              \
		doca_sync_event_task_##name##_completion_cb_t completion_cb,                \
		doca_sync_event_task_##name##_completion_cb_t error_cb, uint32_t num_tasks) \
	{                                                                                   \
		CHECK_OUT(completion_cb);                                                   \
		CHECK_OUT(error_cb);                                                        \
		return set_conf(event, OP, (union sync_callback){.name = completion_cb},    \
				(union sync_callback){.name = error_cb}, num_tasks,         \
				__func__);                                                  \
	}                                                                                   \
	struct doca_task *doca_sync_event_task_##name##_as_doca_task(                       \
		struct doca_sync_event_task_##name *task)                                   \
	{                                                                                   \
		struct sync_task *t = check(task, OP, __func__);                            \
		return t ? &t->task : NULL;                                                 \
	}

#define FIELD(name, OP, type, public, field)                              \
	void doca_sync_event_task_##name##_set_##public(                  \
		struct doca_sync_event_task_##name *task, type public)    \
	{                                                                 \
		struct sync_task *t = settable(task, OP, __func__);       \
		if (t)                                                    \
			t->field = public;                                \
	}                                                                 \
	type doca_sync_event_task_##name##_get_##public(                  \
		const struct doca_sync_event_task_##name *task)           \
	{                                                                 \
		const struct sync_task *t = check(task, OP, __func__);    \
		return t ? t->field : 0;                                  \
	}

#define WAIT(name, OP)                                                                           \
	TASK(name, OP)                                                                           \
	FIELD(name, OP, uint64_t, wait_val, value)                                               \
	FIELD(name, OP, uint64_t, mask, mask)                                                    \
	doca_error_t doca_sync_event_task_##name##_alloc_init(                                   \
		struct doca_sync_event *event, uint64_t wait_val, uint64_t mask,                 \
		union doca_data user_data, struct doca_sync_event_task_##name **task)            \
	{                                                                                        \
		return allocate_task(event,                                                      \
				     (struct fields){.op = OP, .value = wait_val, .mask = mask}, \
				     user_data, task, __func__);                                 \
	}

TASK(get, SYNC_GET)
FIELD(get, SYNC_GET, uint64_t *, ret_val_ptr, out)
TASK(notify_set, SYNC_SET)
FIELD(notify_set, SYNC_SET, uint64_t, set_val, value)
TASK(notify_add, SYNC_ADD)
FIELD(notify_add, SYNC_ADD, uint64_t, inc_val, value)
FIELD(notify_add, SYNC_ADD, uint64_t *, fetched_val_ptr, out)
WAIT(wait_eq, SYNC_WAIT_EQ)
WAIT(wait_neq, SYNC_WAIT_NEQ)
WAIT(wait_gt, SYNC_WAIT_GT)

doca_error_t doca_sync_event_task_get_alloc_init(struct doca_sync_event *event,
						 uint64_t *ret_val_ptr, union doca_data user_data,
						 struct doca_sync_event_task_get **task)
{
	return allocate_task(event, (struct fields){.op = SYNC_GET, .out = ret_val_ptr}, user_data,
			     task, __func__);
}

doca_error_t doca_sync_event_task_notify_set_alloc_init(struct doca_sync_event *event,
							uint64_t set_val, union doca_data user_data,
							struct doca_sync_event_task_notify_set **task)
{
	return allocate_task(event, (struct fields){.op = SYNC_SET, .value = set_val}, user_data,
			     task, __func__);
}

doca_error_t doca_sync_event_task_notify_add_alloc_init(struct doca_sync_event *event,
							uint64_t inc_val, uint64_t *fetched_val_ptr,
							union doca_data user_data,
							struct doca_sync_event_task_notify_add **task)
{
	return allocate_task(
		event, (struct fields){.op = SYNC_ADD, .value = inc_val, .out = fetched_val_ptr},
		user_data, task, __func__);
}
