// SPDX-License-Identifier: Apache-2.0
/* Common code of consumers and producers. "guess" marks an assumption that no published source
 * confirms. */
#include "fast.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void no_fds(struct fast_ctx *p)
{
	p->epoll_fd = p->wake_fd = p->channel = p->counter = p->offered = -1;
}

doca_error_t fast_ctx_init(struct fast_ctx *p, struct doca_comch_connection *c,
			   enum object_kind task_kind, const struct ctx_ops *ops)
{
	p->task_kind = task_kind;
	no_fds(p);
	TRY(link_join(c, p));
	doca_error_t error = softdoca_ctx_init(&p->ctx, p->link->dev, ops);
	if (error != DOCA_SUCCESS)
		link_remove(p);
	return error;
}

static void free_ctx(void *object)
{
	fast_gpu_free(&((struct fast_ctx *)object)->gpu);
	link_remove(object);
	softdoca_object_free(object);
}

doca_error_t fast_ctx_destroy(struct fast_ctx *p)
{
	return softdoca_ctx_destroy(&p->ctx, DOCA_ERROR_BAD_STATE, free_ctx, p); /* guess */
}

doca_error_t fast_ctx_set_tasks(struct fast_ctx *p, bool callbacks, uint32_t n)
{
	TRY(softdoca_tasks_check(&p->ctx, callbacks, n, FAST_TASKS_MAX, __func__));
	p->n_tasks = n;
	return DOCA_SUCCESS;
}

/* ---- start and end ---- */

doca_error_t fast_ctx_start(struct fast_ctx *p)
{
	struct epoll_event event = {.events = EPOLLIN};
	if (!p->n_tasks) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "no tasks are configured");
	if (atomic_load_explicit(&p->link->over, memory_order_acquire)) /* guess */
		return REFUSE(DOCA_ERROR_NOT_CONNECTED, "the connection has ended");
	p->pending = p->done = (struct fast_list){0};
	atomic_store_explicit(&p->woken, false, memory_order_relaxed); /* before others see wake_fd */
	if (!TASKS_MAKE(&p->pool, p->n_tasks, struct fast_task))
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %u tasks", p->n_tasks);
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), code = errno;
	fast_lock();
	p->ctx.fd = p->epoll_fd = epoll_fd;
	p->wake_fd = wake_fd;
	fast_unlock();
	if (epoll_fd < 0 || wake_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &event))
		return REFUSE(DOCA_ERROR_OPERATING_SYSTEM, "cannot create file descriptors: %s",
			      strerror(code));
	return DOCA_SUCCESS;
}

void fast_ctx_ended(struct doca_ctx *ctx)
{
	struct fast_ctx *p = fast_ctx_of(ctx);
	fast_lock(); /* other threads write to wake_fd */
	fast_close(&p->epoll_fd);
	fast_close(&p->wake_fd);
	fast_close(&p->channel);
	fast_close(&p->offered);
	fast_close(&p->counter);
	softdoca_page_free(p->receives);
	p->receives = NULL;
	fast_unlock();
	TASKS_FREE(&p->pool, struct fast_task);
}

/* ---- waking ---- */

bool fast_ctx_arm(struct doca_ctx *ctx)
{
	struct fast_ctx *p = fast_ctx_of(ctx);
	/* Progress still has to announce a consumer that is STARTING. */
	return p->done.first || ctx->state == DOCA_CTX_STATE_STARTING;
}

void fast_ctx_wake(struct fast_ctx *p)
{
	/* relaxed: changed only under the lock; fast_ctx_woken() reads it without the lock to save
	 * time */
	if (p->wake_fd >= 0 && !atomic_exchange_explicit(&p->woken, true, memory_order_relaxed))
		eventfd_write(p->wake_fd, 1);
}

void fast_ctx_woken(struct fast_ctx *p)
{
	eventfd_t n;
	/* relaxed: if it is missed, the fd stays readable and the next call sees it */
	if (!atomic_load_explicit(&p->woken, memory_order_relaxed))
		return;
	fast_lock(); /* flag and fd change together */
	atomic_store_explicit(&p->woken, false, memory_order_relaxed);
	eventfd_read(p->wake_fd, &n);
	fast_unlock();
}

/* ---- tasks ---- */

static doca_error_t allocate_task(struct fast_ctx *p, struct doca_buf *buf, struct fast_task **out)
{
	enum doca_ctx_states state = p->ctx.state;
	if (state != DOCA_CTX_STATE_RUNNING && state != DOCA_CTX_STATE_STARTING) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is not running");
	struct doca_task *task = softdoca_task_take(&p->pool);
	if (!task)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "all %u tasks are allocated", p->n_tasks);
	struct fast_task *t = fast_task_of(task);
	object_become(t, p->task_kind);
	softdoca_task_init(task, &p->ctx, (union doca_data){0});
	t->memfd = -1;
	t->buf = buf;
	t->peer = t->imm_len = 0;
	t->place = NOWHERE;
	*out = t;
	return DOCA_SUCCESS;
}

doca_error_t fast_ctx_alloc(struct fast_ctx *p, struct doca_buf *buf, struct fast_task **out)
{
	if (buf && !object_is(buf, OBJECT_BUF))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a buffer", (void *)buf);
	RETURN_INSIDE(p->ctx.pe, allocate_task(p, buf, out));
}

void fast_ctx_free_task(struct doca_task *task)
{
	object_become(fast_task_of(task), OBJECT_FREE);
	softdoca_task_return(&fast_ctx_of(task->ctx)->pool, task);
}

doca_error_t fast_ctx_hold(struct fast_task *t)
{
	doca_error_t error = t->buf ? doca_buf_inc_refcount(t->buf, NULL) : DOCA_SUCCESS;
	if (error == DOCA_SUCCESS)
		t->held = t->buf;
	return error;
}

void fast_ctx_release(struct fast_task *t)
{
	fast_close(&t->memfd);
	if (t->held)
		doca_buf_dec_refcount(t->held, NULL);
	t->held = NULL;
}

void fast_ctx_done(struct fast_ctx *p, struct fast_task *t, doca_error_t status)
{
	t->status = status;
	t->place = IN_DONE;
	fast_add(&p->done, t);
	softdoca_pe_kick(p->ctx.pe);
}

bool fast_ctx_deliver(struct fast_ctx *p)
{
	struct fast_task *t = fast_take(&p->done);
	if (!t)
		return false;
	t->place = NOWHERE;
	fast_ctx_release(t);
	if (softdoca_task_landed(&t->task, t->status))
		p->call(p, t);
	return true;
}

static void list_remove(struct fast_list *l, struct fast_task *t)
{
	struct fast_task *before = NULL;
	for (struct fast_task *at = l->first; at != t; at = at->next)
		before = at;
	*(before ? &before->next : &l->first) = t->next;
	if (l->last == t)
		l->last = before;
}

void fast_ctx_unlink(struct fast_ctx *p, struct fast_task *t)
{
	if (t->place != NOWHERE)
		list_remove(t->place == IN_DONE ? &p->done : &p->pending, t);
	t->place = NOWHERE;
}

struct fast_task *fast_task_check(void *task, enum object_kind kind, const char *func)
{
	if (object_is(task, kind))
		return task;
	return REFUSE_FOR(func, NULL, "%p is not such a task", task);
}

struct fast_task *fast_task_settable(void *task, enum object_kind kind, const char *func)
{
	struct fast_task *t = fast_task_check(task, kind, func);
	if (t && t->task.in_flight)
		t = REFUSE_FOR(func, NULL, "%p is in flight: nothing is set", task);
	return t;
}
