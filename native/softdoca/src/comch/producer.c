// SPDX-License-Identifier: Apache-2.0
/*
 * Producers. Sources: "producer reference" is the published header's documentation; "guess" marks
 * an assumption that no published source confirms. A submit returns AGAIN until the consumer has a
 * receive. Public programs show this: they repeat the submit, without progress in between.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

#include "fast.h"

#define PRODUCER(p) CHECK_OBJECT(p, OBJECT_COMCH_PRODUCER, "a Comch producer")

/* ---- sending ---- */

static bool hung_up(int channel)
{
	struct pollfd f = {.fd = channel};
	return poll(&f, 1, 0) == 1 && f.revents & (POLLHUP | POLLERR);
}

/* Errors other than AGAIN: guess. */
doca_error_t producer_take_receive(const struct fast_ctx *p, const struct fast_task *t)
{
	const struct remote *r = remote_find(p->link, t->peer);
	if (p->link->fd < 0)
		return REFUSE(DOCA_ERROR_NOT_CONNECTED, "the connection has ended");
	if (!r)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the other side has no consumer %u",
			      t->peer);
	if (t->imm_len > r->imm_max)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%u bytes of immediate data: consumer %u takes %u", t->imm_len, r->id,
			      r->imm_max);
	if (hung_up(r->fd))
		return REFUSE(DOCA_ERROR_NOT_CONNECTED, "consumer %u has ended", r->id);
	/* Not logged, because programs retry at once. */
	return receives_take(r->receives) ? DOCA_SUCCESS : DOCA_ERROR_AGAIN;
}

/* Maps a negative errno to the status of a task. Which error maps to which is a guess. */
static doca_error_t status_of(int rc)
{
	if (!rc)
		return DOCA_SUCCESS;
	return rc == -EPIPE || rc == -ECONNRESET ? DOCA_ERROR_CONNECTION_RESET
						 : DOCA_ERROR_IO_FAILED;
}

/* Sends a message for which a receive was taken. Call with the lock held. */
static int send_now(const struct fast_ctx *p, const struct fast_task *t)
{
	/* In a forked child the link has ended, but its consumers are still listed. */
	struct remote *r = p->link->fd < 0 ? NULL : remote_find(p->link, t->peer);
	int rc = r ? fast_message_send(p, t, r->fd) : -EPIPE;
	/* The message was not sent because of an error on this side, so return the receive. */
	if (r && rc && rc != -EAGAIN && rc != -EPIPE && rc != -ECONNRESET)
		receives_add(r->receives);
	return rc;
}

void producer_return_receive(const struct fast_ctx *p, const struct fast_task *t)
{
	struct remote *r = p->link->fd < 0 ? NULL : remote_find(p->link, t->peer);
	if (r)
		receives_add(r->receives);
}

doca_error_t producer_send_receive_taken(const struct fast_ctx *p, struct fast_task *t)
{
	int rc = fast_message_prepare(t);
	if (rc)
		producer_return_receive(p, t);
	else
		rc = send_now(p, t);
	if (rc != -EAGAIN)
		return status_of(rc);
	producer_return_receive(p, t);
	return DOCA_ERROR_AGAIN;
}

static bool others_wait(const struct fast_ctx *p, uint32_t consumer)
{
	const struct fast_task *t = p->pending.first;
	while (t && t->peer != consumer)
		t = t->next;
	return t;
}

/* Watches a full channel for space. Call with the lock held. */
static void watch(const struct fast_ctx *p, uint32_t consumer, int op)
{
	const struct remote *r = remote_find(p->link, consumer);
	struct epoll_event event = {.events = EPOLLOUT};
	if (r)
		epoll_ctl(p->epoll_fd, op, r->fd, &event);
}

static void post(struct fast_ctx *p, struct fast_task *t)
{
	int rc = fast_message_prepare(t);
	fast_lock();
	bool wait = !rc && others_wait(p, t->peer);
	if (!rc && !wait) {
		rc = send_now(p, t);
		wait = rc == -EAGAIN;
		if (wait)
			watch(p, t->peer, EPOLL_CTL_ADD);
	} else if (rc) {
		const struct remote *r = remote_find(p->link, t->peer);
		if (r)
			receives_add(r->receives);
	}
	fast_unlock();
	if (!wait) {
		fast_ctx_done(p, t, status_of(rc));
		return;
	}
	t->place = IN_PENDING;
	fast_add(&p->pending, t);
}

static doca_error_t submit(struct doca_task *task, uint32_t flags)
{
	struct fast_task *t = fast_task_of(task);
	struct fast_ctx *p = fast_ctx_of(task->ctx);
	(void)flags;
	TRY(fast_message_check(p, t->buf, NULL, "doca_task_submit"));
	fast_lock();
	doca_error_t error = producer_take_receive(p, t);
	fast_unlock();
	if (error != DOCA_SUCCESS)
		return error;
	error = fast_ctx_hold(t);
	if (error == DOCA_SUCCESS)
		post(p, t);
	return error;
}

/* Checks the buffers again, because the program may have changed them while the task waited. */
static int send_later(const struct fast_ctx *p, const struct fast_task *t)
{
	return fast_message_check(p, t->buf, NULL, __func__) == DOCA_SUCCESS ? send_now(p, t) : -EFAULT;
}

/* Sends waiting tasks, in order for each consumer; a consumer whose channel is full does not delay
 * the others. */
static void flush(struct doca_comch_producer *producer)
{
	struct fast_ctx *p = &producer->p;
	struct fast_list waiting = p->pending;
	p->pending = (struct fast_list){0};
	producer->pass++;
	fast_lock();
	for (struct fast_task *t; (t = fast_take(&waiting));) {
		struct remote *r = remote_find(p->link, t->peer);
		int rc = r && r->full_in == producer->pass ? -EAGAIN : send_later(p, t);
		if (rc != -EAGAIN) {
			fast_ctx_done(p, t, status_of(rc));
			continue;
		}
		r->full_in = producer->pass;
		fast_add(&p->pending, t);
	}
	for (struct remote *r = p->link->remotes; r; r = r->next)
		if (!others_wait(p, r->id))
			watch(p, r->id, EPOLL_CTL_DEL);
	fast_unlock();
}

/* ---- the context ---- */

static doca_error_t start(struct doca_ctx *ctx)
{
	doca_error_t error = fast_ctx_start(fast_ctx_of(ctx));
	if (error != DOCA_SUCCESS)
		fast_ctx_ended(ctx);
	return error;
}

static void stop(struct doca_ctx *ctx)
{
	struct fast_ctx *p = fast_ctx_of(ctx);
	for (struct fast_task *t; (t = fast_take(&p->pending));)
		fast_ctx_done(p, t, FLUSHED);
}

static bool cancel_send(struct doca_task *task)
{
	struct fast_task *t = fast_task_of(task);
	struct fast_ctx *p = fast_ctx_of(task->ctx);
	bool waited = t->place == IN_PENDING;
	fast_ctx_unlink(p, t);
	fast_ctx_release(t);
	if (waited && !others_wait(p, t->peer)) {
		fast_lock();
		watch(p, t->peer, EPOLL_CTL_DEL);
		fast_unlock();
	}
	return true;
}

static bool progress(struct doca_ctx *ctx)
{
	struct doca_comch_producer *producer = (struct doca_comch_producer *)fast_ctx_of(ctx);
	struct fast_ctx *p = &producer->p;
	fast_ctx_woken(p);
	if (p->pending.first)
		flush(producer);
	if (fast_ctx_deliver(p))
		return true;
	/* acquire: see link_end() */
	if (ctx->state != DOCA_CTX_STATE_RUNNING ||
	    !atomic_load_explicit(&p->link->over, memory_order_acquire))
		return false;
	softdoca_ctx_fail(ctx);
	return true;
}

/* ---- with the data path on a GPU ---- */

static doca_error_t gpu_start(struct doca_ctx *ctx)
{
	doca_error_t error = start(ctx);
	if (error == DOCA_SUCCESS) {
		error = fast_gpu_start(fast_ctx_of(ctx));
		if (error != DOCA_SUCCESS)
			fast_ctx_ended(ctx);
	}
	return error;
}

static void gpu_stop(struct doca_ctx *ctx)
{
	fast_gpu_stop(&fast_ctx_of(ctx)->gpu, DOCA_ERROR_NOT_CONNECTED);
	stop(ctx);
}

static const struct ctx_ops gpu_ops = {
	.start = gpu_start,
	.stop = gpu_stop,
	.submit = fast_gpu_submit,
	.progress = progress,
	FAST_OPS,
	.needs_pe = true,
};

static const struct ctx_ops ops = {
	.start = start,
	.stop = stop,
	.submit = submit,
	.progress = progress,
	FAST_OPS,
	.cancel = cancel_send,
	.on_gpu = &gpu_ops,
};

static void call_back(struct fast_ctx *p, struct fast_task *t)
{
	const struct doca_comch_producer *producer = (struct doca_comch_producer *)p;
	doca_comch_producer_task_send_completion_cb_t callback =
		t->status == DOCA_SUCCESS ? producer->done_cb : producer->error_cb;
	callback((struct doca_comch_producer_task_send *)t, t->task.user_data, p->ctx.user_data);
}

/* ---- public functions ---- */

/* Producer reference, doca_comch_producer_create: INVALID_VALUE, BAD_STATE, NO_MEMORY. */
doca_error_t doca_comch_producer_create(struct doca_comch_connection *comch_connection,
					struct doca_comch_producer **producer)
{
	CHECK_OBJECT(comch_connection, OBJECT_COMCH_CONNECTION, "a connection");
	CHECK_OUT(producer);
	struct doca_comch_producer *p = softdoca_object_new(OBJECT_COMCH_PRODUCER, sizeof *p);
	if (!p)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a producer");
	p->p.call = call_back;
	doca_error_t error = fast_ctx_init(&p->p, comch_connection, OBJECT_COMCH_PRODUCER_SEND, &ops);
	if (error == DOCA_SUCCESS)
		*producer = p;
	else
		softdoca_object_free(p);
	return error;
}

FAST_FUNCTIONS(producer, PRODUCER, OBJECT_COMCH_PRODUCER, "a Comch producer", send)

static bool imm_is_valid(const uint8_t *imm_data, uint32_t len, const char *func)
{
	if (len <= IMM_MAX && (imm_data || !len))
		return true;
	return REFUSE_FOR(func, false, "%u bytes of immediate data at %p: the limit is %u", len,
			  (const void *)imm_data, IMM_MAX);
}

static void set_imm(struct fast_task *t, const uint8_t *imm_data, uint32_t len)
{
	t->imm_len = len;
	if (len)
		memcpy(t->imm, imm_data, len);
}

/* Producer reference: INVALID_VALUE, NO_MEMORY. */
doca_error_t doca_comch_producer_task_send_alloc_init(struct doca_comch_producer *producer,
						      const struct doca_buf *buf, uint8_t *imm_data,
						      uint32_t imm_data_len, uint32_t consumer_id,
						      struct doca_comch_producer_task_send **task)
{
	struct fast_task *t;
	PRODUCER(producer);
	CHECK_OUT(task);
	if (!imm_is_valid(imm_data, imm_data_len, __func__))
		return DOCA_ERROR_INVALID_VALUE;
	TRY(fast_ctx_alloc(&producer->p, (struct doca_buf *)buf, &t));
	t->peer = consumer_id;
	set_imm(t, imm_data, imm_data_len);
	*task = (struct doca_comch_producer_task_send *)t;
	return DOCA_SUCCESS;
}

#define SETTABLE(task) fast_task_settable(task, OBJECT_COMCH_PRODUCER_SEND, __func__)

FAST_TASK_FUNCTIONS(doca_comch_producer_task_send, OBJECT_COMCH_PRODUCER_SEND, const struct doca_buf,
		    consumer_id)

void doca_comch_producer_task_send_set_consumer_id(struct doca_comch_producer_task_send *task,
						   const uint32_t consumer_id)
{
	struct fast_task *t = SETTABLE(task);
	if (t)
		t->peer = consumer_id;
}

void doca_comch_producer_task_send_set_imm_data(struct doca_comch_producer_task_send *task,
						uint8_t *imm_data, uint32_t imm_data_len)
{
	struct fast_task *t = SETTABLE(task);
	if (t && imm_is_valid(imm_data, imm_data_len, __func__))
		set_imm(t, imm_data, imm_data_len);
}
