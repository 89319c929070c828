// SPDX-License-Identifier: Apache-2.0
/*
 * Consumers. Sources: "consumer reference" is the published header's documentation; "guess" marks
 * an assumption that no published source confirms.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fast.h"

#define CONSUMER(c) CHECK_OBJECT(c, OBJECT_COMCH_CONSUMER, "a Comch consumer")

static struct doca_comch_consumer *consumer_of(const struct doca_ctx *ctx)
{
	return (struct doca_comch_consumer *)fast_ctx_of(ctx);
}

/* ---- the context ---- */

/* Watches the channel: for messages while a receive waits, otherwise for its end only. */
static void watch(struct fast_ctx *p, int op)
{
	struct epoll_event event = {.events = p->pending.first ? EPOLLIN : 0};
	epoll_ctl(p->epoll_fd, op, p->channel, &event);
}

static doca_error_t open_channel(struct fast_ctx *p)
{
	int fds[2], code = 0;
	int counter;
	p->receives = softdoca_page_new("softdoca-receives", &counter);
	if (!p->receives || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds)) {
		code = errno;
		fds[0] = fds[1] = -1;
	}
	fast_lock(); /* if another thread forks, the child closes these fds */
	p->channel = fds[0];
	p->offered = fds[1];
	p->counter = counter;
	fast_unlock();
	if (code)
		return REFUSE(DOCA_ERROR_OPERATING_SYSTEM, "cannot create a channel: %s",
			      strerror(code));
	watch(p, EPOLL_CTL_ADD);
	return DOCA_SUCCESS;
}

static doca_error_t start(struct doca_ctx *ctx)
{
	struct fast_ctx *p = fast_ctx_of(ctx);
	doca_error_t error = fast_ctx_start(p);
	if (error == DOCA_SUCCESS)
		error = open_channel(p);
	if (error != DOCA_SUCCESS) {
		fast_ctx_ended(ctx);
		return error;
	}
	return DOCA_ERROR_IN_PROGRESS;
}

/* Flushes the receives; the end of the channel reports it to the other side. */
static void stop(struct doca_ctx *ctx)
{
	struct fast_ctx *p = fast_ctx_of(ctx);
	for (struct fast_task *t; (t = fast_take(&p->pending));)
		fast_ctx_done(p, t, FLUSHED);
	fast_lock();
	fast_close(&p->channel);
	fast_close(&p->offered);
	fast_unlock();
}

static doca_error_t submit(struct doca_task *task, uint32_t flags)
{
	struct fast_task *t = fast_task_of(task);
	struct fast_ctx *p = fast_ctx_of(task->ctx);
	(void)flags;
	doca_error_t error =
		fast_message_check(p, t->buf, consumer_of(task->ctx)->mmap, "doca_task_submit");
	if (error == DOCA_SUCCESS)
		error = fast_ctx_hold(t);
	if (error != DOCA_SUCCESS)
		return error;
	bool first = !p->pending.first;
	t->peer = t->imm_len = 0;
	t->place = IN_PENDING;
	fast_add(&p->pending, t);
	if (first)
		watch(p, EPOLL_CTL_MOD);
	receives_add(p->receives);
	return DOCA_SUCCESS;
}

/* A producer that has already counted on this receive gets the next one instead. */
static bool cancel(struct doca_task *task)
{
	struct fast_task *t = fast_task_of(task);
	struct fast_ctx *p = fast_ctx_of(task->ctx);
	if (t->place == IN_PENDING)
		receives_take(p->receives);
	fast_ctx_unlink(p, t);
	fast_ctx_release(t);
	return true;
}

static bool announce_consumer(struct doca_comch_consumer *c)
{
	int rc = link_announce(&c->p, c->imm_max);
	if (rc == -EAGAIN) /* the socket is full */
		return false;
	if (rc)
		softdoca_ctx_fail(&c->p.ctx);
	else
		softdoca_ctx_move(&c->p.ctx, DOCA_CTX_STATE_RUNNING);
	return true;
}

/* Returns whether the other side has closed the channel and all its messages were received. */
static bool at_end(const struct fast_ctx *p)
{
	char byte;
	return !recv(p->channel, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
}

/* Like fast_message_receive(), but checks the buffers first: the program may have changed them
 * while the task waited. */
static int take_message(const struct doca_comch_consumer *c, struct fast_task *t)
{
	if (fast_message_check(&c->p, t->buf, c->mmap, __func__) == DOCA_SUCCESS)
		return fast_message_receive(t, c->p.channel, c->imm_max);
	t->status = DOCA_ERROR_IO_FAILED;
	return 0;
}

/* Receives into the first task. Returns whether there was a message or the end of the channel. */
static bool receive(struct doca_comch_consumer *c)
{
	struct fast_ctx *p = &c->p;
	struct fast_task *t = p->pending.first;
	int rc = t ? take_message(c, t) : at_end(p) ? -EPIPE : -EAGAIN;
	if (rc == -EAGAIN)
		return false;
	if (rc) {
		softdoca_ctx_fail(&p->ctx);
		return true;
	}
	fast_take(&p->pending);
	if (!p->pending.first)
		watch(p, EPOLL_CTL_MOD);
	fast_ctx_done(p, t, t->status);
	return fast_ctx_deliver(p);
}

static bool progress(struct doca_ctx *ctx)
{
	struct doca_comch_consumer *c = consumer_of(ctx);
	struct fast_ctx *p = &c->p;
	fast_ctx_woken(p);
	if (fast_ctx_deliver(p))
		return true;
	if (ctx->state == DOCA_CTX_STATE_STOPPING || p->channel < 0)
		return false;
	if (ctx->state == DOCA_CTX_STATE_STARTING)
		return announce_consumer(c);
	if (receive(c))
		return true;
	/* acquire: see link_end() */
	if (!atomic_load_explicit(&p->link->over, memory_order_acquire))
		return false;
	softdoca_ctx_fail(ctx);
	return true;
}

/* ---- with the data path on a GPU ---- */

static doca_error_t gpu_start(struct doca_ctx *ctx)
{
	doca_error_t error = start(ctx);
	if (error != DOCA_ERROR_IN_PROGRESS)
		return error;
	error = fast_gpu_start(fast_ctx_of(ctx));
	if (error == DOCA_SUCCESS)
		return DOCA_ERROR_IN_PROGRESS;
	fast_ctx_ended(ctx);
	return error;
}

static void gpu_stop(struct doca_ctx *ctx)
{
	fast_gpu_stop(&fast_ctx_of(ctx)->gpu, DOCA_ERROR_NOT_CONNECTED);
	stop(ctx);
}

/* The thread of comch_gpu.c receives: see `receive` there. */
static bool gpu_progress(struct doca_ctx *ctx)
{
	struct fast_ctx *p = fast_ctx_of(ctx);
	fast_ctx_woken(p);
	if (ctx->state == DOCA_CTX_STATE_STARTING)
		return announce_consumer(consumer_of(ctx));
	if (ctx->state != DOCA_CTX_STATE_RUNNING ||
	    (!atomic_load_explicit(&p->link->over, memory_order_acquire) &&
	     !atomic_load_explicit(&p->gpu.ended, memory_order_relaxed) && !at_end(p)))
		return false;
	softdoca_ctx_fail(ctx);
	return true;
}

static const struct ctx_ops gpu_ops = {
	.start = gpu_start,
	.stop = gpu_stop,
	.submit = fast_gpu_submit,
	.progress = gpu_progress,
	FAST_OPS,
	.needs_pe = true,
};

static const struct ctx_ops ops = {
	.start = start,
	.stop = stop,
	.submit = submit,
	.progress = progress,
	FAST_OPS,
	.cancel = cancel,
	.on_gpu = &gpu_ops,
};

static void call_back(struct fast_ctx *p, struct fast_task *t)
{
	const struct doca_comch_consumer *c = (struct doca_comch_consumer *)p;
	doca_comch_consumer_task_post_recv_completion_cb_t callback =
		t->status == DOCA_SUCCESS ? c->done_cb : c->error_cb;
	callback((struct doca_comch_consumer_task_post_recv *)t, t->task.user_data,
		 p->ctx.user_data);
}

/* ---- public functions ---- */

/* Consumer reference, doca_comch_consumer_create: INVALID_VALUE, BAD_STATE, NO_MEMORY.
 * NOT_PERMITTED for a read-only map: guess. */
doca_error_t doca_comch_consumer_create(struct doca_comch_connection *comch_connection,
					struct doca_mmap *buf_mmap,
					struct doca_comch_consumer **consumer)
{
	CHECK_OBJECT(comch_connection, OBJECT_COMCH_CONNECTION, "a connection");
	CHECK_OBJECT(buf_mmap, OBJECT_MMAP, "a memory map");
	CHECK_OUT(consumer);
	if (buf_mmap->state != MMAP_STARTED)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the map is not started");
	if (!buf_mmap->writable)
		return REFUSE(DOCA_ERROR_NOT_PERMITTED,
			      "the map's permissions %#x do not permit writing",
			      buf_mmap->permissions);
	struct doca_comch_consumer *c = softdoca_object_new(OBJECT_COMCH_CONSUMER, sizeof *c);
	if (!c)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a consumer");
	c->p.is_consumer = true;
	c->p.call = call_back;
	c->mmap = buf_mmap;
	c->imm_max = IMM_MAX; /* guess */
	doca_error_t error = fast_ctx_init(&c->p, comch_connection, OBJECT_COMCH_POST_RECV, &ops);
	if (error == DOCA_SUCCESS)
		*consumer = c;
	else
		softdoca_object_free(c);
	return error;
}

FAST_FUNCTIONS(consumer, CONSUMER, OBJECT_COMCH_CONSUMER, "a Comch consumer", post_recv)

doca_error_t doca_comch_consumer_set_imm_data_len(struct doca_comch_consumer *consumer,
						  uint32_t imm_data_len)
{
	CONSUMER(consumer);
	if (imm_data_len > IMM_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%u bytes of immediate data: the limit is %u", imm_data_len, IMM_MAX);
	if (consumer->p.ctx.state != DOCA_CTX_STATE_IDLE)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is started");
	consumer->imm_max = imm_data_len;
	return DOCA_SUCCESS;
}

GETTER(doca_comch_consumer_get_imm_data_len, CONSUMER, const struct doca_comch_consumer, uint32_t,
       handle->imm_max)
LIMIT(doca_comch_consumer_cap_get_max_imm_data_len, IMM_MAX)

/* Consumer reference: INVALID_VALUE, NO_MEMORY. */
doca_error_t doca_comch_consumer_task_post_recv_alloc_init(
	struct doca_comch_consumer *consumer, struct doca_buf *buf,
	struct doca_comch_consumer_task_post_recv **task)
{
	struct fast_task *t;
	CONSUMER(consumer);
	CHECK_OUT(task);
	doca_error_t error = fast_ctx_alloc(&consumer->p, buf, &t);
	if (error == DOCA_SUCCESS)
		*task = (struct doca_comch_consumer_task_post_recv *)t;
	return error;
}

FAST_TASK_FUNCTIONS(doca_comch_consumer_task_post_recv, OBJECT_COMCH_POST_RECV, struct doca_buf, producer_id)
