// SPDX-License-Identifier: Apache-2.0
/*
 * The states of a context:
 *
 *            start                          stop, with nothing left
 *   IDLE ------------> RUNNING ----------------------------------------> IDLE
 *     |                  ^   \                                            ^
 *     | start, not yet   |    \  stop, or a fatal error                   |
 *     +---> STARTING ----+     +----------> STOPPING --------------------+
 *               \                             ^    every task is complete and freed
 *                +----------------------------+
 *
 * Sources: "PE reference" and "CTX reference" are DOCA's published ones; "guess" marks an
 * assumption that no published source confirms.
 */
#include <errno.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "pe.h"

#define CHECK_CTX(ctx) CHECK_OBJECT(ctx, OBJECT_CTX, "a context")

static const char *state_name(enum doca_ctx_states s)
{
	static const char *const names[] = {"idle", "starting", "running", "stopping"};
	return names[s];
}

/* ---- creation and destruction ---- */

doca_error_t softdoca_ctx_init(struct doca_ctx *ctx, struct doca_dev *dev,
			       const struct ctx_ops *ops)
{
	ctx->ops = ops;
	ctx->dev = dev;
	ctx->state = DOCA_CTX_STATE_IDLE;
	ctx->fd = -1;
	/* relaxed: a statistic without ordering */
	if (dev)
		atomic_fetch_add_explicit(&dev->users, 1, memory_order_relaxed);
	object_become(ctx, OBJECT_CTX);
	return DOCA_SUCCESS;
}

void ctx_release(struct doca_ctx *ctx)
{
	if (ctx->release && !ctx->busy)
		ctx->release(ctx->object);
}

doca_error_t softdoca_ctx_destroy(struct doca_ctx *ctx, doca_error_t started,
				  void (*release)(void *object), void *object)
{
	enum pe_entry how = pe_enter(ctx->pe);
	if (how == PE_BUSY) /* guess */
		return REFUSE(DOCA_ERROR_IN_USE, "another thread is in its progress engine");
	struct doca_pe *pe = ctx->pe;
	if (ctx->state != DOCA_CTX_STATE_IDLE) {
		pe_leave(pe, how);
		return REFUSE(started, "the context is %s: stop it first", state_name(ctx->state));
	}
	if (pe)
		pe_remove(pe, ctx);
	object_become(ctx, OBJECT_FREE);
	object_become(object, OBJECT_FREE);
	if (ctx->dev)
		atomic_fetch_sub_explicit(&ctx->dev->users, 1, memory_order_relaxed);
	/* Programs destroy a context in its own callback, once it is IDLE. The caller of that
	 * callback still uses the context. */
	ctx->release = release;
	ctx->object = object;
	ctx_release(ctx);
	pe_leave(pe, how);
	return DOCA_SUCCESS;
}

void softdoca_ctx_move(struct doca_ctx *ctx, enum doca_ctx_states next)
{
	enum doca_ctx_states prev = ctx->state;
	bool was_busy = ctx->busy;
	ctx->state = next;
	if (!ctx->state_cb)
		return;
	ctx->busy = true;
	ctx->state_cb(ctx->user_data, ctx, prev, next);
	ctx->busy = was_busy;
}

/* PE reference, doca_task_free: a context is stopped once all tasks are freed. */
static bool nothing_left(const struct doca_ctx *ctx)
{
	return !ctx->in_flight && !ctx->tasks &&
	       (!ctx->ops->quiet || ctx->ops->quiet((struct doca_ctx *)ctx));
}

bool softdoca_ctx_no_event(struct doca_ctx *ctx)
{
	(void)ctx;
	return false;
}

/* ---- the fd that wakes a program ---- */

static doca_error_t open_timer(struct doca_ctx *ctx)
{
	if (!ctx->ops->timed || !ctx->pe)
		return DOCA_SUCCESS;
	ctx->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	return ctx->fd >= 0 ? DOCA_SUCCESS
			    : REFUSE(DOCA_ERROR_OPERATING_SYSTEM, "cannot create a timer: %s",
				     strerror(errno));
}

void softdoca_ctx_wake_after(const struct doca_ctx *ctx, long ns)
{
	const struct itimerspec t = {.it_value.tv_nsec = ns};
	if (ctx->fd >= 0)
		timerfd_settime(ctx->fd, 0, &t, NULL);
}

static void drop_fd(struct doca_ctx *ctx)
{
	if (ctx->fd >= 0 && ctx->ops->timed)
		close(ctx->fd);
	ctx->fd = -1;
}

/* ---- starting and stopping ---- */

static void finish_stop(struct doca_ctx *ctx)
{
	if (ctx->fd >= 0)
		pe_unwatch(ctx->pe, ctx->fd);
	drop_fd(ctx);
	ctx->ops->ended(ctx);
	softdoca_ctx_move(ctx, DOCA_CTX_STATE_IDLE);
}

bool ctx_at_end(const struct doca_ctx *ctx)
{
	return ctx->state == DOCA_CTX_STATE_STOPPING && nothing_left(ctx);
}

void softdoca_ctx_settle(struct doca_ctx *ctx)
{
	if (ctx_at_end(ctx))
		finish_stop(ctx);
}

static void begin_stop(struct doca_ctx *ctx)
{
	if (ctx->stopping_asked)
		return;
	ctx->stopping_asked = true;
	if (ctx->ops->stop)
		ctx->ops->stop(ctx);
	if (ctx->pe && ctx->pe->armed)
		pe_arm_ctx(ctx->pe, ctx);
}

void softdoca_ctx_fail(struct doca_ctx *ctx)
{
	if (ctx->state != DOCA_CTX_STATE_RUNNING && ctx->state != DOCA_CTX_STATE_STARTING)
		return;
	begin_stop(ctx);
	softdoca_ctx_move(ctx, DOCA_CTX_STATE_STOPPING);
}

static doca_error_t start(struct doca_ctx *ctx)
{
	if (ctx->state != DOCA_CTX_STATE_IDLE) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is already %s",
			      state_name(ctx->state));
	if (!ctx->pe && (!ctx->gpu || ctx->ops->needs_pe)) /* CTX reference 3.0 */
		return REFUSE(DOCA_ERROR_NOT_CONNECTED, "the context has no progress engine");
	if (ctx->pe && pe_forked(ctx->pe)) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, FORKED);
	if (ctx->gpu && !object_is(ctx->gpu, OBJECT_GPU)) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the GPU of its data path was destroyed");
	ctx->stopping_asked = false;
	TRY(open_timer(ctx));
	doca_error_t error = ctx->ops->start(ctx);
	if (error && error != DOCA_ERROR_IN_PROGRESS) {
		drop_fd(ctx);
		return error;
	}
	if (ctx->fd >= 0 && !pe_watch(ctx->pe, ctx->fd))
		drop_fd(ctx);
	if (ctx->pe && ctx->pe->armed)
		pe_arm_ctx(ctx->pe, ctx);
	softdoca_ctx_move(ctx, error ? DOCA_CTX_STATE_STARTING : DOCA_CTX_STATE_RUNNING);
	return error;
}

doca_error_t doca_ctx_start(struct doca_ctx *ctx)
{
	CHECK_CTX(ctx);
	enum pe_entry how = pe_enter(ctx->pe);
	if (how == PE_BUSY) /* guess */
		return REFUSE(DOCA_ERROR_IN_USE, "another thread is in its progress engine");
	struct doca_pe *pe = ctx->pe; /* a callback may destroy ctx */
	doca_error_t error = start(ctx);
	ctx_release(ctx);
	pe_leave(pe, how);
	return error;
}

/* Programs rely on SUCCESS for an idle context. CTX reference: IN_PROGRESS while tasks are left.
 */
static doca_error_t stop(struct doca_ctx *ctx)
{
	if (ctx->state == DOCA_CTX_STATE_IDLE)
		return DOCA_SUCCESS;
	begin_stop(ctx);
	if (nothing_left(ctx)) {
		finish_stop(ctx);
		return DOCA_SUCCESS;
	}
	if (ctx->state != DOCA_CTX_STATE_STOPPING)
		softdoca_ctx_move(ctx, DOCA_CTX_STATE_STOPPING);
	return ctx->state == DOCA_CTX_STATE_IDLE ? DOCA_SUCCESS : DOCA_ERROR_IN_PROGRESS;
}

doca_error_t doca_ctx_stop(struct doca_ctx *ctx)
{
	CHECK_CTX(ctx);
	enum pe_entry how = pe_enter(ctx->pe);
	if (how == PE_BUSY) /* guess */
		return REFUSE(DOCA_ERROR_IN_USE, "another thread is in its progress engine");
	struct doca_pe *pe = ctx->pe; /* a callback may destroy ctx */
	doca_error_t error = stop(ctx);
	ctx_release(ctx);
	pe_leave(pe, how);
	return error;
}

/* ---- settings and queries ---- */

GETTER(doca_ctx_get_state, CHECK_CTX, const struct doca_ctx, enum doca_ctx_states, handle->state)

doca_error_t doca_ctx_set_state_changed_cb(struct doca_ctx *ctx,
					   doca_ctx_state_changed_callback_t cb)
{
	CHECK_CTX(ctx);
	if (ctx->state != DOCA_CTX_STATE_IDLE) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is %s", state_name(ctx->state));
	ctx->state_cb = cb; /* NULL removes it: guess */
	return DOCA_SUCCESS;
}

SETTER(doca_ctx_set_user_data, CHECK_CTX, struct doca_ctx, union doca_data, user_data)

GETTER(doca_ctx_get_user_data, CHECK_CTX, const struct doca_ctx, union doca_data, handle->user_data)
GETTER(doca_ctx_get_num_inflight_tasks, CHECK_CTX, const struct doca_ctx, size_t, handle->in_flight)

doca_error_t doca_ctx_set_datapath_on_gpu(struct doca_ctx *ctx, struct doca_gpu *gpu_dev)
{
	CHECK_CTX(ctx);
	CHECK_GPU(gpu_dev);
	if (ctx->state != DOCA_CTX_STATE_IDLE) /* CTX reference */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is %s", state_name(ctx->state));
	if (!ctx->gpu && !ctx->ops->on_gpu)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "contexts of this library have no data path on a GPU");
	if (!ctx->gpu)
		ctx->ops = ctx->ops->on_gpu;
	ctx->gpu = gpu_dev;
	return DOCA_SUCCESS;
}
