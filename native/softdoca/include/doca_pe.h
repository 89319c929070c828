/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress engines, and the tasks that they complete.
 *
 * Only one thread at a time can be inside an engine, its contexts and their tasks: concurrent calls
 * from other threads return IN_USE or 0, or do nothing. Threads may take turns. Every function with
 * a result returns INVALID_VALUE for an invalid engine, task or output pointer.
 */
#ifndef DOCA_PE_H
#define DOCA_PE_H

/* pthread.h, stdlib.h: programs use calloc and pthread_mutex_t and include only DOCA's headers. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "doca_compat.h"
#include "doca_error.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_ctx;
struct doca_pe;
struct doca_task;

enum doca_pe_event_mode {
	DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE = 0,
	DOCA_PE_EVENT_MODE_PROGRESS_ALL = 1,
};

enum doca_task_submit_flag {
	DOCA_TASK_SUBMIT_FLAG_NONE = 0,
	DOCA_TASK_SUBMIT_FLAG_FLUSH = 1,
	DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS = 2,
};

/* Connects a context, which the engine then progresses. Errors: NOT_PERMITTED if it has an engine;
 * BAD_STATE if it is started. */
DOCA_STABLE
doca_error_t doca_pe_connect_ctx(struct doca_pe *pe, struct doca_ctx *ctx);

/* Creates an engine without contexts. Errors: NO_MEMORY; OPERATING_SYSTEM. */
DOCA_STABLE
doca_error_t doca_pe_create(struct doca_pe **pe);

/* Destroys the engine. Errors: IN_USE if contexts are connected, or if called from one of its
 * callbacks. */
DOCA_STABLE
doca_error_t doca_pe_destroy(struct doca_pe *pe);

/* Completes at most one task or delivers one event, and calls its callback. Returns 1 if it did,
 * otherwise 0. Contexts are served in turn. All callbacks are called here, except for changes of
 * state within start and stop. Small copies are executed here, too. Returns 0 within a callback,
 * and to a thread that calls it while another is inside. */
DOCA_STABLE
uint8_t doca_pe_progress(struct doca_pe *pe);

/* Returns the task to its context, in its callback or at any other time. A memcpy or a Comch
 * message in flight is not freed; a task of a consumer, a producer or a sync event is cancelled:
 * its callback is not called. */
DOCA_STABLE
void doca_task_free(struct doca_task *task);

/* Returns the result of the task; IN_PROGRESS while it is in flight. */
DOCA_STABLE
doca_error_t doca_task_get_status(const struct doca_task *task);

/* Starts the task, which belongs to the library until its callback is called. Errors: BAD_STATE if
 * it is in flight or its context is not running; INVALID_VALUE for an invalid task, or buffers
 * that are invalid or not the first of their lists; IN_USE if another thread is in the engine.
 * Other errors are reported when the task completes. */
DOCA_STABLE
doca_error_t doca_task_submit(struct doca_task *task);

/* Gets a file descriptor for epoll and poll, the same for the life of the engine, which closes
 * it. */
DOCA_STABLE
doca_error_t doca_pe_get_notification_handle(const struct doca_pe *pe,
					     doca_notification_handle_t *handle);

/* Requests a notification: the handle becomes readable as soon as doca_pe_progress has something to
 * do. Then call doca_pe_clear_notification, call doca_pe_progress until it returns 0, and repeat.
 * Tasks may be submitted in between. */
DOCA_STABLE
doca_error_t doca_pe_request_notification(struct doca_pe *pe);

/* Makes the handle unreadable until the next request. The second argument is ignored on Linux. */
DOCA_STABLE
doca_error_t doca_pe_clear_notification(struct doca_pe *pe, doca_notification_handle_t handle);

/* Gets the number of tasks in flight in all contexts. */
DOCA_STABLE
doca_error_t doca_pe_get_num_inflight_tasks(const struct doca_pe *pe, size_t *num_inflight_tasks);

/* Sets the mode. In PROGRESS_ALL mode, each call of doca_pe_progress serves all contexts, with at
 * most one task or event per context. */
DOCA_EXPERIMENTAL
doca_error_t doca_pe_set_event_mode(struct doca_pe *pe, enum doca_pe_event_mode event_mode);

/* Submits like doca_task_submit, which uses DOCA_TASK_SUBMIT_FLAG_FLUSH. Without that flag, the
 * task and those submitted after it wait until a task is submitted with the flag or
 * doca_ctx_flush_tasks is called. OPTIMIZE_REPORTS has no effect in softdoca. Errors: INVALID_VALUE
 * for other flags. */
DOCA_EXPERIMENTAL
doca_error_t doca_task_submit_ex(struct doca_task *task, uint32_t flags);

/* Submits like doca_task_submit. Errors: also INVALID_VALUE for a task that would fail (no data,
 * more than the limit, no space, no permission). */
DOCA_STABLE
doca_error_t doca_task_try_submit(struct doca_task *task);

/* Returns the data that is passed to the callback; 0 for an invalid task. */
DOCA_STABLE
union doca_data doca_task_get_user_data(const struct doca_task *task);

/* Sets the data that is passed to the callback. */
DOCA_STABLE
void doca_task_set_user_data(struct doca_task *task, union doca_data user_data);

/* Returns the context; NULL for an invalid task. */
DOCA_STABLE
struct doca_ctx *doca_task_get_ctx(const struct doca_task *task);

/* Sizes of batches of events and tasks, which Ethernet queues of the CPU have. */
enum doca_event_batch_events_number {
	DOCA_EVENT_BATCH_EVENTS_NUMBER_1 = 0,
	DOCA_EVENT_BATCH_EVENTS_NUMBER_2 = 1,
	DOCA_EVENT_BATCH_EVENTS_NUMBER_4 = 2,
	DOCA_EVENT_BATCH_EVENTS_NUMBER_8 = 3,
	DOCA_EVENT_BATCH_EVENTS_NUMBER_16 = 4,
	DOCA_EVENT_BATCH_EVENTS_NUMBER_32 = 5,
	DOCA_EVENT_BATCH_EVENTS_NUMBER_64 = 6,
	DOCA_EVENT_BATCH_EVENTS_NUMBER_128 = 7,
};
enum doca_task_batch_max_tasks_number {
	DOCA_TASK_BATCH_MAX_TASKS_NUMBER_16 = 0,
	DOCA_TASK_BATCH_MAX_TASKS_NUMBER_32 = 1,
	DOCA_TASK_BATCH_MAX_TASKS_NUMBER_64 = 2,
	DOCA_TASK_BATCH_MAX_TASKS_NUMBER_128 = 3,
};
struct doca_task_batch;

/* Submit and free all tasks of a batch, like doca_task_submit and doca_task_free. */
DOCA_EXPERIMENTAL
doca_error_t doca_task_batch_submit(struct doca_task_batch *task_batch);
DOCA_EXPERIMENTAL
void doca_task_batch_free(struct doca_task_batch *task_batch);

/* Returns the context; NULL for an invalid batch. */
DOCA_EXPERIMENTAL
struct doca_ctx *doca_task_batch_get_ctx(const struct doca_task_batch *task_batch);

#ifdef __cplusplus
}
#endif

#endif
