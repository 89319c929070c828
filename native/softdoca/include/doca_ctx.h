/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: what is common to all that does work, and the states it goes through.
 *
 *   IDLE -> RUNNING            doca_ctx_start (Comch clients are STARTING for a while)
 *   RUNNING -> IDLE            doca_ctx_stop with every task freed
 *   RUNNING -> STOPPING        doca_ctx_stop with tasks left, or a task that failed
 *   STOPPING -> IDLE           by progress, once every task is complete and freed
 *
 * A context belongs to the thread that is in its progress engine: IN_USE for another one that comes in
 * between. Every function gives INVALID_VALUE for what is no context, or no place for its answer.
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

/* Where the context stands. */
DOCA_STABLE
doca_error_t doca_ctx_get_state(const struct doca_ctx *ctx, enum doca_ctx_states *state);

/* The callback is told of each change of state, with the context's user data, after it happened: within
 * start, stop or progress. It may stop or start the context; it may not destroy it. NULL: none.
 * BAD_STATE: the context is started. */
DOCA_STABLE
doca_error_t doca_ctx_set_state_changed_cb(struct doca_ctx *ctx,
					   doca_ctx_state_changed_callback_t cb);

/* Given to each of the context's callbacks. Any time. */
DOCA_STABLE
doca_error_t doca_ctx_set_user_data(struct doca_ctx *ctx, union doca_data user_data);

/* From now on tasks can be allocated and submitted. IN_PROGRESS: it is STARTING, and progress makes it
 * RUNNING (Comch clients; never DMA). BAD_STATE: it is started already, or nothing is configured.
 * NOT_CONNECTED: it has no progress engine. NO_MEMORY. INITIALIZATION: why is logged. */
DOCA_STABLE
doca_error_t doca_ctx_start(struct doca_ctx *ctx);

/* SUCCESS: it is IDLE, and was told so, or it was IDLE before. IN_PROGRESS: it is STOPPING; progress ends
 * the tasks in flight as failures, and once every task is freed it is IDLE. Calling it again does no harm,
 * and calling it from a callback is usual. */
DOCA_STABLE
doca_error_t doca_ctx_stop(struct doca_ctx *ctx);

/* What was set. */
DOCA_STABLE
doca_error_t doca_ctx_get_user_data(const struct doca_ctx *ctx, union doca_data *user_data);

/* Tasks that were submitted, and whose callback was not called yet. */
DOCA_STABLE
doca_error_t doca_ctx_get_num_inflight_tasks(const struct doca_ctx *ctx,
					     size_t *num_inflight_tasks);

/* What was submitted with doca_task_submit_ex and without DOCA_TASK_SUBMIT_FLAG_FLUSH begins now. */
DOCA_EXPERIMENTAL
void doca_ctx_flush_tasks(struct doca_ctx *ctx);

/* NOT_SUPPORTED in softdoca. */
DOCA_EXPERIMENTAL
doca_error_t doca_ctx_set_datapath_on_gpu(struct doca_ctx *ctx, struct doca_gpu *gpu_dev);

#ifdef __cplusplus
}
#endif

#endif
