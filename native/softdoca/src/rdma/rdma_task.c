// SPDX-License-Identifier: Apache-2.0
/* Tasks: allocation and fields. NVIDIA's published reference of DOCA RDMA 3.0 lists the errors, but for a context
 * that does not run (a guess). */
#include "rdma.h"

#define CHECK_RDMA(r) CHECK_OBJECT(r, OBJECT_RDMA, "an RDMA context")

/* ---- configuration ---- */

static doca_error_t configure_tasks(struct doca_rdma *r, enum rdma_type type, rdma_callback *done,
				    rdma_callback *failed, uint32_t n, const char *func)
{
	TRY(softdoca_tasks_check(&r->ctx, done && failed, n, RDMA_TASKS_MAX, func));
	r->conf[type] = (struct rdma_conf){.done = done, .failed = failed, .n = n};
	return DOCA_SUCCESS;
}

#define CONF(TYPE, name)                                                                           \
	doca_error_t doca_rdma_task_##name##_set_conf(                                             \
		struct doca_rdma *rdma,                                                            \
		doca_rdma_task_##name##_completion_cb_t successful_task_completion_cb,             \
		doca_rdma_task_##name##_completion_cb_t error_task_completion_cb,                  \
		uint32_t num_tasks)                                                                \
	{                                                                                          \
		CHECK_RDMA(rdma);                                                                  \
		return configure_tasks(rdma, TYPE, (rdma_callback *)successful_task_completion_cb, \
				       (rdma_callback *)error_task_completion_cb, num_tasks,       \
				       __func__);                                                  \
	}
RDMA_EACH(CONF)

/* ---- allocation ---- */

static const char *check_handles(const struct doca_rdma *r, const struct rdma_task *as)
{
	const struct doca_rdma_connection *c = as->connection;
	const struct doca_buf *bufs[] = {as->src, as->dst, as->result};
	if (!is_receive(as) && (!object_is(c, OBJECT_RDMA_CONNECTION) || c->rdma != r))
		return "the connection is not one of the context";
	for (unsigned i = 0; i < 3; i++)
		if (bufs[i] && !object_is(bufs[i], OBJECT_BUF))
			return "a buffer is not a buffer";
	return NULL;
}

static doca_error_t take_free_task(struct doca_rdma *r, const struct rdma_task *as,
				   struct rdma_task **out)
{
	struct rdma_conf *conf = &r->conf[as->type];
	if (r->ctx.state != DOCA_CTX_STATE_RUNNING)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is not running");
	if (r->ctx.gpu)
		return REFUSE(DOCA_ERROR_BAD_STATE, "kernels post this context's operations");
	struct doca_task *task = softdoca_task_take(&conf->pool);
	if (!task)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "all %u tasks of this type are allocated", conf->n);
	struct rdma_task *t = rdma_task_of(task);
	t->type = as->type;
	t->immediate = as->immediate;
	t->connection = as->connection;
	t->src = as->src;
	t->dst = as->dst;
	t->result = as->result;
	t->event = as->event;
	t->operand = as->operand;
	t->compare = as->compare;
	t->bytes = 0;
	t->blocks = 0;
	t->opcode = DOCA_RDMA_OPCODE_RECV_SEND;
	softdoca_task_init(task, &r->ctx, as->task.user_data);
	object_become(t, OBJECT_RDMA_RECEIVE + t->type);
	*out = t;
	return DOCA_SUCCESS;
}

/* Allocates a task with the type and the fields of `as`. */
static doca_error_t allocate(struct doca_rdma *r, const struct rdma_task *as, void *out)
{
	CHECK_RDMA(r);
	CHECK_OUT(out);
	const char *wrong = check_handles(r, as);
	if (wrong)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%s", wrong);
	RETURN_INSIDE(r->ctx.pe, take_free_task(r, as, out));
}

/* Of the function's rdma, user_data and task. */
#define ALLOCATE(TYPE, ...) \
	allocate(rdma, &(struct rdma_task){.type = TYPE, .task.user_data = user_data, __VA_ARGS__}, task)

doca_error_t doca_rdma_task_receive_allocate_init(struct doca_rdma *rdma, struct doca_buf *dst_buf,
						  union doca_data user_data,
						  struct doca_rdma_task_receive **task)
{
	return ALLOCATE(RDMA_RECEIVE, .dst = dst_buf);
}

doca_error_t doca_rdma_task_send_allocate_init(struct doca_rdma *rdma,
					       struct doca_rdma_connection *rdma_connection,
					       const struct doca_buf *src_buf,
					       union doca_data user_data,
					       struct doca_rdma_task_send **task)
{
	return ALLOCATE(RDMA_SEND, .connection = rdma_connection, .src = src_buf);
}

doca_error_t doca_rdma_task_send_imm_allocate_init(struct doca_rdma *rdma,
						   struct doca_rdma_connection *rdma_connection,
						   const struct doca_buf *src_buf,
						   doca_be32_t immediate_data,
						   union doca_data user_data,
						   struct doca_rdma_task_send_imm **task)
{
	return ALLOCATE(RDMA_SEND_IMM, .connection = rdma_connection, .src = src_buf,
			.immediate = immediate_data);
}

doca_error_t doca_rdma_task_read_allocate_init(struct doca_rdma *rdma,
					       struct doca_rdma_connection *rdma_connection,
					       const struct doca_buf *src_buf,
					       struct doca_buf *dst_buf, union doca_data user_data,
					       struct doca_rdma_task_read **task)
{
	return ALLOCATE(RDMA_READ, .connection = rdma_connection, .src = src_buf, .dst = dst_buf);
}

doca_error_t doca_rdma_task_write_allocate_init(struct doca_rdma *rdma,
						struct doca_rdma_connection *rdma_connection,
						const struct doca_buf *src_buf,
						struct doca_buf *dst_buf, union doca_data user_data,
						struct doca_rdma_task_write **task)
{
	return ALLOCATE(RDMA_WRITE, .connection = rdma_connection, .src = src_buf, .dst = dst_buf);
}

doca_error_t doca_rdma_task_write_imm_allocate_init(struct doca_rdma *rdma,
						    struct doca_rdma_connection *rdma_connection,
						    const struct doca_buf *src_buf,
						    struct doca_buf *dst_buf,
						    doca_be32_t immediate_data,
						    union doca_data user_data,
						    struct doca_rdma_task_write_imm **task)
{
	return ALLOCATE(RDMA_WRITE_IMM, .connection = rdma_connection, .src = src_buf, .dst = dst_buf,
			.immediate = immediate_data);
}

doca_error_t doca_rdma_task_atomic_cmp_swp_allocate_init(
	struct doca_rdma *rdma, struct doca_rdma_connection *rdma_connection, struct doca_buf *dst_buf,
	struct doca_buf *result_buf, uint64_t cmp_data, uint64_t swap_data,
	union doca_data user_data, struct doca_rdma_task_atomic_cmp_swp **task)
{
	return ALLOCATE(RDMA_CMP_SWP, .connection = rdma_connection, .dst = dst_buf,
			.result = result_buf, .compare = cmp_data, .operand = swap_data);
}

doca_error_t doca_rdma_task_atomic_fetch_add_allocate_init(
	struct doca_rdma *rdma, struct doca_rdma_connection *rdma_connection, struct doca_buf *dst_buf,
	struct doca_buf *result_buf, uint64_t add_data, union doca_data user_data,
	struct doca_rdma_task_atomic_fetch_add **task)
{
	return ALLOCATE(RDMA_FETCH_ADD, .connection = rdma_connection, .dst = dst_buf,
			.result = result_buf, .operand = add_data);
}

doca_error_t doca_rdma_task_remote_net_sync_event_get_allocate_init(
	struct doca_rdma *rdma, struct doca_rdma_connection *rdma_connection,
	struct doca_sync_event_remote_net *event, struct doca_buf *dst_buf, union doca_data user_data,
	struct doca_rdma_task_remote_net_sync_event_get **task)
{
	return ALLOCATE(RDMA_EVENT_GET, .connection = rdma_connection, .event = event, .dst = dst_buf);
}

doca_error_t doca_rdma_task_remote_net_sync_event_notify_set_allocate_init(
	struct doca_rdma *rdma, struct doca_rdma_connection *rdma_connection,
	struct doca_sync_event_remote_net *event, const struct doca_buf *src_buf, union doca_data user_data,
	struct doca_rdma_task_remote_net_sync_event_notify_set **task)
{
	return ALLOCATE(RDMA_EVENT_SET, .connection = rdma_connection, .event = event, .src = src_buf);
}

doca_error_t doca_rdma_task_remote_net_sync_event_notify_add_allocate_init(
	struct doca_rdma *rdma, struct doca_rdma_connection *rdma_connection,
	struct doca_sync_event_remote_net *event, struct doca_buf *result_buf, uint64_t add_data,
	union doca_data user_data, struct doca_rdma_task_remote_net_sync_event_notify_add **task)
{
	return ALLOCATE(RDMA_EVENT_ADD, .connection = rdma_connection, .event = event,
			.result = result_buf, .operand = add_data);
}

/* ---- fields ---- */

/* Returns the task of a handle of this type; NULL, which is logged, for an invalid one. */
static struct rdma_task *of(const void *task, enum rdma_type type, const char *func)
{
	if (object_is(task, OBJECT_RDMA_RECEIVE + type))
		return (struct rdma_task *)(uintptr_t)task;
	return REFUSE_FOR(func, NULL, "%p is not a task of this type", task);
}

/* The same, for getting a field. NVIDIA's samples get the buffer of a task that they have just freed. */
static const struct rdma_task *gettable(const void *task, enum rdma_type type, const char *func)
{
	const struct rdma_task *t = task;
	if (object_is(task, OBJECT_RDMA_FREED) && t->type == type)
		return t;
	return of(task, type, func);
}

/* The same, for setting a field, which cannot be done while the task is in flight. */
static struct rdma_task *settable(const void *task, enum rdma_type type, const char *func)
{
	struct rdma_task *t = of(task, type, func);
	if (!t || !t->task.in_flight)
		return t;
	return REFUSE_FOR(func, NULL, "%p is in flight: nothing is set", task);
}

#define AS_TASK(TYPE, name)                                                                       \
	struct doca_task *doca_rdma_task_##name##_as_task(struct doca_rdma_task_##name *task)     \
	{                                                                                         \
		struct rdma_task *t = of(task, TYPE, __func__);                                   \
		return t ? &t->task : NULL;                                                       \
	}
RDMA_EACH(AS_TASK)

#define FIELD(TYPE, name, field, ctype, member)                                                   \
	void doca_rdma_task_##name##_set_##field(struct doca_rdma_task_##name *task, ctype field) \
	{                                                                                         \
		struct rdma_task *t = settable(task, TYPE, __func__);                             \
		if (t)                                                                            \
			t->member = field;                                                        \
	}                                                                                         \
	ctype doca_rdma_task_##name##_get_##field(const struct doca_rdma_task_##name *task)       \
	{                                                                                         \
		const struct rdma_task *t = gettable(task, TYPE, __func__);                       \
		return t ? t->member : 0;                                                         \
	}
#define SOURCE(TYPE, name)      FIELD(TYPE, name, src_buf, const struct doca_buf *, src)
#define DESTINATION(TYPE, name) FIELD(TYPE, name, dst_buf, struct doca_buf *, dst)
#define RESULT(TYPE, name)      FIELD(TYPE, name, result_buf, struct doca_buf *, result)
#define IMMEDIATE(TYPE, name)   FIELD(TYPE, name, immediate_data, doca_be32_t, immediate)

DESTINATION(RDMA_RECEIVE, receive)
SOURCE(RDMA_SEND, send)
SOURCE(RDMA_SEND_IMM, send_imm)
IMMEDIATE(RDMA_SEND_IMM, send_imm)
SOURCE(RDMA_READ, read)
DESTINATION(RDMA_READ, read)
SOURCE(RDMA_WRITE, write)
DESTINATION(RDMA_WRITE, write)
SOURCE(RDMA_WRITE_IMM, write_imm)
DESTINATION(RDMA_WRITE_IMM, write_imm)
IMMEDIATE(RDMA_WRITE_IMM, write_imm)
DESTINATION(RDMA_CMP_SWP, atomic_cmp_swp)
RESULT(RDMA_CMP_SWP, atomic_cmp_swp)
FIELD(RDMA_CMP_SWP, atomic_cmp_swp, cmp_data, uint64_t, compare)
FIELD(RDMA_CMP_SWP, atomic_cmp_swp, swap_data, uint64_t, operand)
DESTINATION(RDMA_FETCH_ADD, atomic_fetch_add)
RESULT(RDMA_FETCH_ADD, atomic_fetch_add)
FIELD(RDMA_FETCH_ADD, atomic_fetch_add, add_data, uint64_t, operand)

DESTINATION(RDMA_EVENT_GET, remote_net_sync_event_get)
SOURCE(RDMA_EVENT_SET, remote_net_sync_event_notify_set)
RESULT(RDMA_EVENT_ADD, remote_net_sync_event_notify_add)
FIELD(RDMA_EVENT_ADD, remote_net_sync_event_notify_add, add_data, uint64_t, operand)

/* ---- what a receive got ---- */

enum doca_rdma_opcode
doca_rdma_task_receive_get_result_opcode(const struct doca_rdma_task_receive *task)
{
	const struct rdma_task *t = of(task, RDMA_RECEIVE, __func__);
	return t ? t->opcode : DOCA_RDMA_OPCODE_RECV_SEND;
}

uint32_t doca_rdma_task_receive_get_result_len(const struct doca_rdma_task_receive *task)
{
	const struct rdma_task *t = of(task, RDMA_RECEIVE, __func__);
	return t ? (uint32_t)t->bytes : 0;
}

doca_be32_t
doca_rdma_task_receive_get_result_immediate_data(const struct doca_rdma_task_receive *task)
{
	const struct rdma_task *t = of(task, RDMA_RECEIVE, __func__);
	return t ? t->immediate : 0;
}

const struct doca_rdma_connection *
doca_rdma_task_receive_get_result_rdma_connection(const struct doca_rdma_task_receive *task)
{
	const struct rdma_task *t = of(task, RDMA_RECEIVE, __func__);
	return t ? t->connection : NULL;
}
