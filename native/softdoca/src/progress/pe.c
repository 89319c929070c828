// SPDX-License-Identifier: Apache-2.0
/*
 * Progress engines: a ring of contexts, and a handle to wait on.
 *
 * The handle is an epoll fd. It watches the contexts' fds, which wake only while the program waits
 * (pe_wakes), and an eventfd for immediate events: a small copy is executed by progress itself, so
 * no other fd becomes readable for it. After a change while the program waits (submit, stop), the
 * context is checked again (pe_arm_ctx).
 *
 * Sources: "PE reference" is DOCA's published one; "guess" marks an assumption that no published
 * source confirms.
 */
#include "pe.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define CHECK_PE(pe) CHECK_OBJECT(pe, OBJECT_PE, "a progress engine")

_Thread_local char pe_self;

enum pe_entry softdoca_pe_enter(struct doca_pe *pe)
{
	return pe_enter(pe);
}

void softdoca_pe_leave(struct doca_pe *pe, enum pe_entry how)
{
	pe_leave(pe, how);
}

/* ---- creation and destruction ---- */

doca_error_t doca_pe_create(struct doca_pe **pe)
{
	CHECK_OUT(pe);
	struct doca_pe *p = softdoca_object_new(OBJECT_PE, sizeof *p);
	if (!p)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a progress engine");
	struct epoll_event e = {.events = EPOLLIN};
	p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	p->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->epoll_fd < 0 || p->event_fd < 0 ||
	    epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, p->event_fd, &e)) {
		doca_error_t error =
			REFUSE(DOCA_ERROR_OPERATING_SYSTEM, /* guess */
			       "cannot create a notification handle: %s", strerror(errno));
		if (p->epoll_fd >= 0)
			close(p->epoll_fd);
		if (p->event_fd >= 0)
			close(p->event_fd);
		softdoca_object_free(p);
		return error;
	}
	p->fork_generation = atomic_load(&dg_fork_generation);
	*pe = p;
	return DOCA_SUCCESS;
}

doca_error_t doca_pe_destroy(struct doca_pe *pe)
{
	CHECK_PE(pe);
	enum pe_entry how = pe_enter(pe);
	if (how != PE_ENTERED) /* guess */
		return REFUSE(DOCA_ERROR_IN_USE, "the engine is in use by %s",
			      how == PE_BUSY ? "another thread" : "this callback");
	if (pe->n) { /* PE reference */
		doca_error_t error = REFUSE(DOCA_ERROR_IN_USE,
					    "%u contexts are connected: destroy them first", pe->n);
		pe_leave(pe, how);
		return error;
	}
	close(pe->epoll_fd);
	close(pe->event_fd);
	pe_leave(pe, how);
	softdoca_object_free(pe);
	return DOCA_SUCCESS;
}

/* ---- contexts ---- */

void pe_add(struct doca_pe *pe, struct doca_ctx *ctx)
{
	struct doca_ctx *at = pe->first;
	if (at) {
		ctx->next = at->next;
		at->next = ctx;
	} else {
		pe->first = ctx->next = ctx;
	}
	pe->n++;
	ctx->pe = pe;
}

void pe_remove(struct doca_pe *pe, struct doca_ctx *ctx)
{
	struct doca_ctx *before = ctx;
	while (before->next != ctx)
		before = before->next;
	before->next = ctx->next;
	if (pe->first == ctx)
		pe->first = before == ctx ? NULL : ctx->next;
	pe->n--;
	ctx->pe = NULL;
}

doca_error_t doca_pe_connect_ctx(struct doca_pe *pe, struct doca_ctx *ctx)
{
	CHECK_PE(pe);
	if (!object_is(ctx, OBJECT_CTX))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a context", (void *)ctx);
	enum pe_entry how = pe_enter(pe);
	if (how == PE_BUSY) /* guess */
		return REFUSE(DOCA_ERROR_IN_USE, "another thread is in the engine");
	doca_error_t error = DOCA_SUCCESS;
	if (ctx->state != DOCA_CTX_STATE_IDLE) /* PE reference, as below */
		error = REFUSE(DOCA_ERROR_BAD_STATE, "the context is started");
	else if (ctx->pe)
		error = REFUSE(DOCA_ERROR_NOT_PERMITTED, "the context already has an engine");
	else
		pe_add(pe, ctx);
	pe_leave(pe, how);
	return error;
}

doca_error_t doca_pe_get_num_inflight_tasks(const struct doca_pe *pe, size_t *num_inflight_tasks)
{
	CHECK_PE(pe);
	CHECK_OUT(num_inflight_tasks);
	const struct doca_ctx *ctx = pe->first;
	size_t total = 0;
	for (uint32_t i = 0; i < pe->n; i++, ctx = ctx->next)
		total += ctx->in_flight;
	*num_inflight_tasks = total;
	return DOCA_SUCCESS;
}

doca_error_t doca_pe_set_event_mode(struct doca_pe *pe, enum doca_pe_event_mode event_mode)
{
	CHECK_PE(pe);
	if ((unsigned)event_mode > DOCA_PE_EVENT_MODE_PROGRESS_ALL)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "event mode %d is unknown",
			      (int)event_mode);
	pe->mode = event_mode;
	return DOCA_SUCCESS;
}

/* ---- progress ---- */

/* PE reference: a callback must not call doca_pe_progress. The result 0 is a guess, and so is the
 * result for a second thread. */
static __attribute__((cold, noinline)) uint8_t turned_away(const struct doca_pe *pe)
{
	const char *func = "doca_pe_progress";
	if (!object_is(pe, OBJECT_PE))
		softdoca_log(DOCA_LOG_LEVEL_WARNING, func, "%p is not a progress engine",
			     (const void *)pe);
	else
		softdoca_log(DOCA_LOG_LEVEL_WARNING, func,
			     "a callback, or another thread, is in the engine");
	return 0;
}

static inline bool progress_ctx(struct doca_ctx *ctx)
{
	ctx->busy = true;
	bool did = ctx->ops->progress(ctx);
	if (__builtin_expect(ctx->state == DOCA_CTX_STATE_STOPPING, 0)) {
		softdoca_ctx_settle(ctx);
		did |= ctx->state == DOCA_CTX_STATE_IDLE;
	}
	ctx->busy = false;
	ctx_release(ctx);
	return did;
}

uint8_t doca_pe_progress(struct doca_pe *pe)
{
	if (!object_is(pe, OBJECT_PE))
		return turned_away(pe);
	enum pe_entry how = pe_enter(pe);
	if (__builtin_expect(how != PE_ENTERED, 0))
		return turned_away(pe);
	uint8_t did = 0;
	/* Callbacks may connect and destroy contexts, including this one. */
	for (uint32_t left = pe->n; left && pe->first; left--) {
		struct doca_ctx *ctx = pe->first;
		pe->first = ctx->next;
		if (ctx->state == DOCA_CTX_STATE_IDLE || !progress_ctx(ctx))
			continue;
		did = 1;
		if (pe->mode == DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE)
			break;
	}
	pe_leave(pe, how);
	return did;
}

/* ---- the notification handle ---- */

bool pe_watch(struct doca_pe *pe, int fd)
{
	struct epoll_event e = {0};
	if (!pe_forked(pe) && !epoll_ctl(pe->epoll_fd, EPOLL_CTL_ADD, fd, &e))
		return true;
	return REFUSE(false, "cannot use the notification handle: %s", strerror(errno));
}

void pe_unwatch(struct doca_pe *pe, int fd)
{
	if (!pe_forked(pe))
		epoll_ctl(pe->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

void pe_wakes(struct doca_pe *pe, int fd, bool on)
{
	struct epoll_event e = {.events = on ? EPOLLIN : 0};
	if (!pe_forked(pe))
		epoll_ctl(pe->epoll_fd, EPOLL_CTL_MOD, fd, &e);
}

/* The handle stays readable until it is cleared and need not be signalled again, so a program that
 * is awake submits without a system call. */
static void say(struct doca_pe *pe)
{
	pe->armed = false;
	eventfd_write(pe->event_fd, 1);
}

void softdoca_pe_kick(struct doca_pe *pe)
{
	if (pe && pe->armed && !pe_forked(pe))
		say(pe);
}

void pe_arm_ctx(struct doca_pe *pe, struct doca_ctx *ctx)
{
	if (pe_forked(pe))
		return;
	if ((ctx->ops->arm && ctx->ops->arm(ctx)) || ctx_at_end(ctx))
		say(pe);
	if (ctx->fd >= 0)
		pe_wakes(pe, ctx->fd, true);
}

GETTER(doca_pe_get_notification_handle, CHECK_PE, const struct doca_pe, doca_notification_handle_t,
       handle->epoll_fd)

doca_error_t doca_pe_request_notification(struct doca_pe *pe)
{
	CHECK_PE(pe);
	enum pe_entry how = pe_enter(pe);
	if (how == PE_BUSY) /* guess */
		return REFUSE(DOCA_ERROR_IN_USE, "another thread is in the engine");
	if (pe_forked(pe)) {
		pe_leave(pe, how);
		return REFUSE(DOCA_ERROR_BAD_STATE, FORKED); /* guess */
	}
	struct doca_ctx *ctx = pe->first;
	pe->armed = true;
	for (uint32_t i = 0; i < pe->n; i++, ctx = ctx->next)
		if (ctx->state != DOCA_CTX_STATE_IDLE)
			pe_arm_ctx(pe, ctx);
	pe_leave(pe, how);
	return DOCA_SUCCESS;
}

/* The handle matters on Windows only: DOCA's event sample and others pass 0. */
doca_error_t doca_pe_clear_notification(struct doca_pe *pe, doca_notification_handle_t handle)
{
	(void)handle;
	CHECK_PE(pe);
	enum pe_entry how = pe_enter(pe);
	if (how == PE_BUSY) /* guess */
		return REFUSE(DOCA_ERROR_IN_USE, "another thread is in the engine");
	if (pe_forked(pe)) {
		pe_leave(pe, how);
		return REFUSE(DOCA_ERROR_BAD_STATE, FORKED); /* guess */
	}
	struct doca_ctx *ctx = pe->first;
	eventfd_t n;
	pe->armed = false;
	eventfd_read(pe->event_fd, &n);
	for (uint32_t i = 0; i < pe->n; i++, ctx = ctx->next) {
		if (ctx->state == DOCA_CTX_STATE_IDLE)
			continue;
		if (ctx->fd >= 0)
			pe_wakes(pe, ctx->fd, false);
		if (ctx->ops->timed)
			softdoca_ctx_wake_after(ctx, 0);
		if (ctx->ops->disarm)
			ctx->ops->disarm(ctx);
	}
	pe_leave(pe, how);
	return DOCA_SUCCESS;
}
