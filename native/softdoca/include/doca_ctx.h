/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: the common part of all objects that execute tasks, and their states.
 *
 *   IDLE -> RUNNING            doca_ctx_start (Comch clients are STARTING first)
 *   RUNNING -> IDLE            doca_ctx_stop with every task freed
 *   RUNNING -> STOPPING        doca_ctx_stop with tasks left, or a failed task
 *   STOPPING -> IDLE           by progress, once every task is complete and freed
 *
 * While a thread is inside the progress engine, its contexts belong to that thread; concurrent
 * calls from other threads return IN_USE. Every function returns INVALID_VALUE for an invalid
 * context or output pointer.
 */
#ifndef DOCA_CTX_H
#define DOCA_CTX_H

#include <stddef.h>
#include <stdint.h>

#include "doca_compat.h"
#include "doca_error.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_ctx;
struct doca_gpu;

enum doca_ctx_states {
	DOCA_CTX_STATE_IDLE = 0,
	DOCA_CTX_STATE_STARTING = 1,
	DOCA_CTX_STATE_RUNNING = 2,
	DOCA_CTX_STATE_STOPPING = 3,
};

typedef void (*doca_ctx_state_changed_callback_t)(const union doca_data user_data,
						  struct doca_ctx *ctx,
						  enum doca_ctx_states prev_state,
						  enum doca_ctx_states next_state);

/* Gets the state. */
DOCA_STABLE
doca_error_t doca_ctx_get_state(const struct doca_ctx *ctx, enum doca_ctx_states *state);

/* Sets the callback for changes of state; NULL removes it. It is called with the context's user
 * data after each change, within start, stop or progress. It may stop, start or (in IDLE) destroy
 * the context. Errors: BAD_STATE if the context is started. */
DOCA_STABLE
doca_error_t doca_ctx_set_state_changed_cb(struct doca_ctx *ctx,
					   doca_ctx_state_changed_callback_t cb);

/* Sets the data that is passed to each callback of the context. Allowed at any time. */
DOCA_STABLE
doca_error_t doca_ctx_set_user_data(struct doca_ctx *ctx, union doca_data user_data);

/* Starts the context; tasks can then be allocated and submitted. Errors: IN_PROGRESS if it is
 * STARTING, and progress makes it RUNNING (Comch clients, never DMA); BAD_STATE if it is started
 * or not configured; NOT_CONNECTED without a progress engine; NO_MEMORY; INITIALIZATION, with the
 * reason in the log. */
DOCA_STABLE
doca_error_t doca_ctx_start(struct doca_ctx *ctx);

/* Stops the context. Returns SUCCESS if it is IDLE. Returns IN_PROGRESS if it is STOPPING:
 * progress completes the tasks in flight as failures, and the context is IDLE once every task is
 * freed. Idempotent; callbacks may call it. */
DOCA_STABLE
doca_error_t doca_ctx_stop(struct doca_ctx *ctx);

/* Gets the data that was set; initially 0. */
DOCA_STABLE
doca_error_t doca_ctx_get_user_data(const struct doca_ctx *ctx, union doca_data *user_data);

/* Gets the number of submitted tasks whose callback was not called yet. */
DOCA_STABLE
doca_error_t doca_ctx_get_num_inflight_tasks(const struct doca_ctx *ctx,
					     size_t *num_inflight_tasks);

/* Starts the tasks that were submitted without DOCA_TASK_SUBMIT_FLAG_FLUSH. */
DOCA_EXPERIMENTAL
void doca_ctx_flush_tasks(struct doca_ctx *ctx);

/* Kernels of this GPU will post the operations of the context, which then has no tasks and needs no
 * progress engine. Errors: BAD_STATE unless idle; NOT_SUPPORTED for contexts without a device header
 * doca_gpunetio_dev_*.cuh. */
DOCA_EXPERIMENTAL
doca_error_t doca_ctx_set_datapath_on_gpu(struct doca_ctx *ctx, struct doca_gpu *gpu_dev);

#ifdef __cplusplus
}
#endif

#endif
