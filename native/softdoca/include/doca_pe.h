/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress engines, and the tasks that they complete.
 *
 * One thread at a time is in an engine, with its contexts and their tasks: the calls of another one that
 * comes in between give IN_USE, or 0, or do nothing. An engine may go from thread to thread. Every
 * function that gives an error gives INVALID_VALUE for what is no engine, no task, or no place for its
 * answer.
 */
#ifndef DOCA_PE_H
#define DOCA_PE_H

/* calloc and pthread_mutex_t: programs use them and include nothing for it but DOCA's headers. */
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

/* From now on progress moves the context on. NOT_PERMITTED: it has an engine already. BAD_STATE: it is
 * started. */
DOCA_STABLE
doca_error_t doca_pe_connect_ctx(struct doca_pe *pe, struct doca_ctx *ctx);

/* An engine without contexts. NO_MEMORY, OPERATING_SYSTEM. */
DOCA_STABLE
doca_error_t doca_pe_create(struct doca_pe **pe);

/* IN_USE: contexts are connected; or the engine runs, and this is its callback. */
DOCA_STABLE
doca_error_t doca_pe_destroy(struct doca_pe *pe);

/* Ends at most one task, or delivers one event, and calls its callback: 1 if it did, 0 if there is nothing.
 * Contexts get their turn one after the other. All callbacks come from here, but for changes of state
 * within start and stop. Small copies are done here, too. 0 as well in a callback, and for a thread that
 * comes in while another is inside. */
DOCA_STABLE
uint8_t doca_pe_progress(struct doca_pe *pe);

/* Gives the task back to its context. In its callback or at any other time, but not in flight: then nothing
 * happens. */
DOCA_STABLE
void doca_task_free(struct doca_task *task);

/* How it ended. IN_PROGRESS: it has not. */
DOCA_STABLE
doca_error_t doca_task_get_status(const struct doca_task *task);

/* Begins the task, which is DOCA's until its callback is called. BAD_STATE: it is in flight already, or its
 * context does not run. INVALID_VALUE: no task, or its buffers are none, or not the first of their lists.
 * IN_USE: another thread is in the engine. What is wrong beyond that shows when the task ends. */
DOCA_STABLE
doca_error_t doca_task_submit(struct doca_task *task);

/* A file descriptor for epoll and poll, the same for the life of the engine, which closes it. */
DOCA_STABLE
doca_error_t doca_pe_get_notification_handle(const struct doca_pe *pe,
					     doca_notification_handle_t *handle);

/* The handle becomes readable when there is something for progress, at once if there is already. Then:
 * doca_pe_clear_notification, progress until it gives 0, and again. Tasks may be submitted meanwhile. */
DOCA_STABLE
doca_error_t doca_pe_request_notification(struct doca_pe *pe);

/* The handle is not readable any more, until the next request. The second argument is of no use on Linux.
 */
DOCA_STABLE
doca_error_t doca_pe_clear_notification(struct doca_pe *pe, doca_notification_handle_t handle);

/* The sum over its contexts. */
DOCA_STABLE
doca_error_t doca_pe_get_num_inflight_tasks(const struct doca_pe *pe, size_t *num_inflight_tasks);

/* PROGRESS_ALL: a call of progress goes through all contexts, with at most one task or event of each. */
DOCA_EXPERIMENTAL
doca_error_t doca_pe_set_event_mode(struct doca_pe *pe, enum doca_pe_event_mode event_mode);

/* As doca_task_submit, which has DOCA_TASK_SUBMIT_FLAG_FLUSH. Without that flag the task, and those after it,
 * wait for a submit that has it, or for doca_ctx_flush_tasks. OPTIMIZE_REPORTS changes nothing in softdoca.
 * INVALID_VALUE: other flags. */
DOCA_EXPERIMENTAL
doca_error_t doca_task_submit_ex(struct doca_task *task, uint32_t flags);

/* As doca_task_submit, and INVALID_VALUE for what could only end as a failure: no data, more than the limit,
 * no room, no permission. */
DOCA_STABLE
doca_error_t doca_task_try_submit(struct doca_task *task);

/* 0 for what is no task. */
DOCA_STABLE
union doca_data doca_task_get_user_data(const struct doca_task *task);

/* Given to the callback. */
DOCA_STABLE
void doca_task_set_user_data(struct doca_task *task, union doca_data user_data);

/* NULL for what is no task. */
DOCA_STABLE
struct doca_ctx *doca_task_get_ctx(const struct doca_task *task);

#ifdef __cplusplus
}
#endif

#endif
