/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts, work queues, jobs and events, as of DOCA 1.3 to 2.2.
 *
 *   add device -> start -> add work queue -> submit job, retrieve event ... -> remove work queue
 *   -> stop -> remove device
 *
 * Only one thread at a time may use a work queue and its contexts. Every function returns
 * INVALID_VALUE for an invalid context, work queue or output pointer.
 */
#ifndef DOCA_WORKQ_CTX_H
#define DOCA_WORKQ_CTX_H

#include <stdint.h>

#include "doca_dev.h"
#include "doca_error.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_ctx;
struct doca_workq;

#define DOCA_ACTION_SDK_RANGE 16

/* The first job type of each library. */
enum doca_action_type {
	DOCA_ACTION_NONE = 0,
	DOCA_ACTION_DMA_FIRST = 1 << DOCA_ACTION_SDK_RANGE,
};

enum doca_job_flags {
	DOCA_JOB_FLAGS_NONE = 0,
};

/* First member of each job. */
struct doca_job {
	int type;
	int flags;
	struct doca_ctx *ctx;
	union doca_data user_data; /* returned in the event */
};

struct doca_event {
	int type; /* of the job */
	union doca_data user_data;
	union doca_data result; /* u64 is the job's doca_error_t */
};

enum doca_workq_retrieve_flags {
	DOCA_WORKQ_RETRIEVE_FLAGS_NONE,
};

/* Creates a work queue for `depth` jobs. Errors: INVALID_VALUE for 0; NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_workq_create(uint32_t depth, struct doca_workq **workq);

/* Errors: IN_USE if it was not removed from a context. */
DOCA_STABLE
doca_error_t doca_workq_destroy(struct doca_workq *workq);

/* Starts a job, which is copied. A copy overwrites the destination's data. Errors: INVALID_VALUE
 * for an unknown type or flags, or invalid buffers; BAD_STATE if its context is stopped, or has a
 * failed job and others in flight; NO_MEMORY if `depth` jobs are in flight; NOT_FOUND if the work
 * queue was not added to the context. */
#if SOFTDOCA_NAMED
doca_error_t doca_workq_submit(struct doca_workq *workq, struct doca_job const *job)
	SOFTDOCA_1_3(workq_submit);
#else
DOCA_STABLE
doca_error_t doca_workq_submit(struct doca_workq *workq, struct doca_job const *job);
#endif

/* Gets the event of a complete job, in the order of submission. Errors: AGAIN without one;
 * IO_FAILED for the event of a failed job, whose error is in its result. */
DOCA_STABLE
doca_error_t doca_workq_progress_retrieve(struct doca_workq *workq, struct doca_event *ev,
		int flags);

/* Waiting with epoll: enable, get the handle, then arm, wait, clear and retrieve in a loop. All
 * return BAD_STATE unless enabled, which is possible before the work queue is added. */
DOCA_STABLE
doca_error_t doca_workq_set_event_driven_enable(struct doca_workq *workq, uint8_t enable);

DOCA_STABLE
doca_error_t doca_workq_get_event_driven_enable(struct doca_workq *workq, uint8_t *enabled);

DOCA_STABLE
doca_error_t doca_workq_get_event_handle(struct doca_workq *workq, doca_event_handle_t *handle);

DOCA_STABLE
doca_error_t doca_workq_event_handle_arm(struct doca_workq *workq);

DOCA_STABLE
doca_error_t doca_workq_event_handle_clear(struct doca_workq *workq, doca_event_handle_t handle);

DOCA_STABLE
doca_error_t doca_workq_get_depth(const struct doca_workq *workq, uint32_t *depth);

/* Errors: BAD_STATE if it is added to a context. */
DOCA_STABLE
doca_error_t doca_workq_set_depth(struct doca_workq *workq, uint32_t depth);

/* Adds a device to a stopped context. Errors: BAD_STATE; IN_USE if it was added; NOT_SUPPORTED if
 * it cannot execute the context's jobs, or the context has another one. */
DOCA_STABLE
doca_error_t doca_ctx_dev_add(struct doca_ctx *ctx, struct doca_dev *dev);

/* Errors: BAD_STATE if the context is started; NOT_FOUND. */
DOCA_STABLE
doca_error_t doca_ctx_dev_rm(struct doca_ctx *ctx, struct doca_dev *dev);

/* Errors: INVALID_VALUE without a device; BAD_STATE if started. */
DOCA_STABLE
doca_error_t doca_ctx_start(struct doca_ctx *ctx);

/* Errors: NOT_PERMITTED if a work queue was not removed. */
DOCA_STABLE
doca_error_t doca_ctx_stop(struct doca_ctx *ctx);

/* Errors: BAD_STATE if the context is not started; IN_USE if it was added; NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_ctx_workq_add(struct doca_ctx *ctx, struct doca_workq *workq);

/* Errors: BAD_STATE if the context is not started; NOT_PERMITTED if an event was not retrieved;
 * NOT_FOUND. */
DOCA_STABLE
doca_error_t doca_ctx_workq_rm(struct doca_ctx *ctx, struct doca_workq *workq);

/* Gets 1. */
DOCA_STABLE
doca_error_t doca_ctx_get_event_driven_supported(struct doca_ctx *ctx, uint8_t *event_supported);

#ifdef __cplusplus
}
#endif

#endif
