// SPDX-License-Identifier: Apache-2.0
/* The operations of an RDMA context. "guess" marks an assumption that no published source confirms. */
#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "nic_wqe.h"
#include "rdma.h"

/* Interval at which a waiting program checks for completions: the NIC wakes nobody. */
#define WAKE_NS 100000
/* After this many polls without a completion, the states of the queue pairs are checked. */
#define IDLE_POLLS 64u

/* ---- start and end ---- */

static uint32_t task_count(const struct doca_rdma *r)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < RDMA_TYPES; i++)
		n += r->conf[i].n;
	return n;
}

static bool make_tasks(struct doca_rdma *r)
{
	bool made = softdoca_object_room(sizeof(struct rdma_task), task_count(r));
	for (uint32_t i = 0; i < RDMA_TYPES && made; i++)
		made = TASKS_MAKE(&r->conf[i].pool, r->conf[i].n, struct rdma_task);
	return made;
}

void rdma_end_connections(struct doca_rdma *r)
{
	while (r->connections)
		rdma_connection_free(r->connections);
	rdma_stop_listening(r);
	if (r->sockets >= 0)
		close(r->sockets);
	r->sockets = -1;
	r->net->close(r);
}

static void rdma_ended(struct doca_ctx *ctx)
{
	struct doca_rdma *r = rdma_of(ctx);
	rdma_end_connections(r);
	for (uint32_t i = 0; i < RDMA_TYPES; i++)
		TASKS_FREE(&r->conf[i].pool, struct rdma_task);
}

doca_error_t rdma_open(struct doca_rdma *r, const struct rdma_net *net)
{
	r->idle = 0;
	r->pid = getpid();
	r->net = net;
	return net->open(r);
}

static doca_error_t begin_start(struct doca_rdma *r)
{
	TRY(rdma_open(r, dev_is_adapter(r->ctx.dev) ? &rdma_verbs : &rdma_nic));
	if (!make_tasks(r))
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %u tasks", task_count(r));
	return r->net->open_cq(r, task_count(r));
}

static doca_error_t rdma_start(struct doca_ctx *ctx)
{
	struct doca_rdma *r = rdma_of(ctx);
	r->receives = r->flushed = (struct rdma_list){0};
	r->n_receives = 0;
	doca_error_t error = begin_start(r);
	if (error)
		rdma_ended(ctx);
	return error;
}

void rdma_stop(struct doca_ctx *ctx)
{
	struct doca_rdma *r = rdma_of(ctx);
	for (struct doca_rdma_connection *c = r->connections; c; c = c->next)
		if (c->state == CONNECTION_CONNECTED)
			rdma_connection_break(c);
	for (struct rdma_task *t; (t = rdma_take(&r->receives));)
		rdma_append(&r->flushed, t);
	rdma_stop_listening(r);
}

/* The context counts the tasks in flight. A stop in a callback ends after it: NVIDIA's samples take another
 * result than IN_PROGRESS for an error. */
bool rdma_quiet(struct doca_ctx *ctx)
{
	return !rdma_of(ctx)->calling;
}

/* ---- submitting ---- */

static void add_users(const struct doca_buf *b, uint32_t by)
{
	/* Release: see buf_in_tasks(). */
	if (b)
		atomic_fetch_add_explicit(&((struct doca_buf *)(uintptr_t)b)->in_others, by,
					  memory_order_release);
}

static void hold_all(const struct rdma_task *t, uint32_t by)
{
	add_users(t->src, by);
	add_users(t->dst, by);
	add_users(t->result, by);
}

/* The connection that has the fewest receives, if it may have another. */
static struct doca_rdma_connection *neediest(struct doca_rdma *r)
{
	const uint32_t part = r->n_receives / r->max_connections;
	struct doca_rdma_connection *least = NULL;
	for (struct doca_rdma_connection *c = r->connections; c; c = c->next)
		if (c->state == CONNECTION_CONNECTED &&
		    (!least || ring_used(&c->receive) < ring_used(&least->receive)))
			least = c;
	const uint32_t used = least ? ring_used(&least->receive) : 0;
	return used && (used >= part || used == least->receive.n) ? NULL : least;
}

void rdma_spread_receives(struct doca_rdma *r)
{
	for (struct doca_rdma_connection *c; r->receives.first && (c = neediest(r));) {
		struct rdma_task *t = rdma_take(&r->receives);
		if (rdma_post(c, t))
			rdma_append(&r->flushed, t);
	}
}

static doca_error_t submit_receive(struct doca_rdma *r, struct rdma_task *t)
{
	uint32_t key;
	/* Creates the key now, so that a failure is returned to the program. */
	TRY(t->bytes ? softdoca_mmap_key(t->dst->mmap, &key) : DOCA_SUCCESS);
	hold_all(t, 1);
	r->n_receives++;
	rdma_append(&r->receives, t);
	rdma_spread_receives(r);
	return DOCA_SUCCESS;
}

static doca_error_t submit_send(struct rdma_task *t)
{
	struct doca_rdma_connection *c = t->connection;
	if (!c->rdma->net->has_room(c, t))
		return REFUSE(DOCA_ERROR_AGAIN, "connection %u has %u tasks in flight: its send queue is full",
			      c->id, ring_used(&c->send));
	doca_error_t error = rdma_post(c, t);
	if (!error)
		hold_all(t, 1);
	return error;
}

static doca_error_t rdma_submit(struct doca_task *task, uint32_t flags)
{
	struct rdma_task *t = rdma_task_of(task);
	struct doca_rdma *r = rdma_of(task->ctx);
	const struct doca_rdma_connection *c = t->connection;
	(void)flags;
	if (!is_receive(t) &&
	    (!object_is(c, OBJECT_RDMA_CONNECTION) || c->state != CONNECTION_CONNECTED)) /* guess */
		return REFUSE(DOCA_ERROR_NOT_CONNECTED, "the task's connection is not connected");
	TRY(rdma_check(t, r, "doca_task_submit"));
	return is_receive(t) ? submit_receive(r, t) : submit_send(t);
}

/* ---- completing ---- */

static void call_back(const struct doca_rdma *r, struct rdma_task *t, bool good)
{
	const struct rdma_conf *conf = &r->conf[t->type];
	rdma_callback *cb = good ? conf->done : conf->failed;
	const union doca_data mine = t->task.user_data, ours = r->ctx.user_data;
	switch (t->type) {
#define CALL(TYPE, name)                                                                        \
	case TYPE:                                                                              \
		((doca_rdma_task_##name##_completion_cb_t)cb)((struct doca_rdma_task_##name *)t, \
							      mine, ours);                      \
		break;
		RDMA_EACH(CALL)
	case RDMA_TYPES:
		break;
	}
}

static void deliver_task(struct doca_rdma *r, struct rdma_task *t, doca_error_t status)
{
	hold_all(t, -1u);
	if (is_receive(t))
		r->n_receives--;
	if (!status)
		rdma_arrived(t);
	softdoca_task_landed(&t->task, status);
	call_back(r, t, !status);
}

static void store_received(struct rdma_task *t, const struct rdma_cqe *e,
			   struct doca_rdma_connection *c)
{
	t->connection = c;
	t->bytes = e->bytes;
	t->immediate = e->opcode == CQE_SEND ? 0 : e->immediate;
	t->opcode = e->opcode == CQE_WRITE_IMM  ? DOCA_RDMA_OPCODE_RECV_WRITE_WITH_IMM
		    : e->opcode == CQE_SEND_IMM ? DOCA_RDMA_OPCODE_RECV_SEND_WITH_IMM
						: DOCA_RDMA_OPCODE_RECV_SEND;
}

static void complete_entry(struct doca_rdma *r, const struct rdma_cqe *e)
{
	struct doca_rdma_connection *c = r->connections;
	while (c->qpn != e->qpn)
		c = c->next;
	const bool request = e->opcode == CQE_REQUEST || e->opcode == CQE_REQUEST_ERROR;
	const bool failed = e->opcode == CQE_REQUEST_ERROR || e->opcode == CQE_RECEIVE_ERROR;
	struct rdma_ring *ring = request ? &c->send : &c->receive;
	struct rdma_task *t = ring->tasks[ring->begin++ & (ring->n - 1)];
	ring->first_block += t->blocks;
	if (failed && c->state == CONNECTION_CONNECTED)
		rdma_connection_break(c);
	if (!request && !failed)
		store_received(t, e, c);
	if (r->receives.first)
		rdma_spread_receives(r);
	const bool good = !failed && (!is_event(t) || !rdma_execute_event(t));
	deliver_task(r, t, good ? DOCA_SUCCESS : DOCA_ERROR_IO_FAILED);
}

/* Ends one connection that could not be made. Returns whether a callback was called. */
static bool end_failed(struct doca_rdma *r)
{
	struct doca_rdma_connection *c = r->connections;
	while (c && c->state != CONNECTION_FAILED)
		c = c->next;
	if (!c)
		return false;
	if (r->failure_cb)
		r->failure_cb(c, c->user_data, r->ctx.user_data);
	rdma_connection_free(c);
	return r->failure_cb;
}

/* Ends one broken connection whose tasks are delivered. Returns whether a callback was called. */
static bool end_connection(struct doca_rdma *r)
{
	struct doca_rdma_connection *c = r->connections;
	while (c && (c->state != CONNECTION_BROKEN || ring_used(&c->send) || ring_used(&c->receive)))
		c = c->next;
	if (!c)
		return false;
	c->state = CONNECTION_OVER;
	if (c->ended) {
		rdma_connection_free(c);
		return false;
	}
	/* A context that stops ends its connections itself: guess. */
	if (!r->disconnect_cb || r->ctx.state != DOCA_CTX_STATE_RUNNING)
		return false;
	r->disconnect_cb(c, c->user_data, r->ctx.user_data);
	return true;
}

static void look_at_all(struct doca_rdma *r)
{
	for (struct doca_rdma_connection *c = r->connections; c; c = c->next)
		rdma_connection_look(c);
}

bool rdma_serve_connections(struct doca_rdma *r)
{
	if (++r->idle % IDLE_POLLS == 0)
		look_at_all(r);
	return end_connection(r) || rdma_handle_event(r) || end_failed(r);
}

static bool deliver_one(struct doca_rdma *r)
{
	struct rdma_task *t = rdma_take(&r->flushed);
	struct rdma_cqe e;
	if (t) {
		deliver_task(r, t, FLUSHED);
		return true;
	}
	if (r->net->poll(r, &e)) {
		r->idle = 0;
		complete_entry(r, &e);
		return true;
	}
	return rdma_serve_connections(r);
}

static bool rdma_progress(struct doca_ctx *ctx)
{
	struct doca_rdma *r = rdma_of(ctx);
	r->calling = true;
	const bool any = deliver_one(r);
	r->calling = false;
	return any;
}

/* ---- waiting ---- */

bool rdma_arm(struct doca_ctx *ctx)
{
	struct doca_rdma *r = rdma_of(ctx);
	bool broken = false;
	look_at_all(r);
	for (const struct doca_rdma_connection *c = r->connections; c; c = c->next)
		broken |= c->state == CONNECTION_BROKEN || c->state == CONNECTION_FAILED;
	softdoca_ctx_wake_after(ctx, WAKE_NS);
	return r->flushed.first || broken || (!r->ctx.gpu && r->net->ready(r));
}

static void rdma_free_task(struct doca_task *task)
{
	struct rdma_task *t = rdma_task_of(task);
	object_become(t, OBJECT_RDMA_FREED);
	softdoca_task_return(&rdma_of(task->ctx)->conf[t->type].pool, task);
}

#define CPU_OPS .start = rdma_start, .stop = rdma_stop, .quiet = rdma_quiet, .ended = rdma_ended, \
		.submit = rdma_submit, .progress = rdma_progress, .arm = rdma_arm,             \
		.free_task = rdma_free_task, .timed = true
const struct ctx_ops rdma_ops = {CPU_OPS, .on_gpu = &rdma_gpu_ops};
/* A kernel writes the software NIC's entries: the data path of an adapter is not on a GPU. */
const struct ctx_ops rdma_adapter_ops = {CPU_OPS};
