/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of sync events: an event as a context, which counts the calls of its callbacks. */
#ifndef SOFTDOCA_SYNC_CHECK_H
#define SOFTDOCA_SYNC_CHECK_H

#include <doca_ctx.h>
#include <doca_pe.h>
#include <doca_sync_event.h>
#include <poll.h>

#include "memory_check.h"

#define ALL ((uint64_t)-1)
#define SYNC_TASKS 4u

struct events {
	struct doca_sync_event *event;
	struct doca_ctx *ctx;
	struct doca_pe *pe;
	uint32_t done, failed;
	uint64_t last; /* user data of the last task */
	doca_error_t last_error;
};

UNUSED static void note(struct doca_task *task, union doca_data data, union doca_data ctx_data)
{
	struct events *e = ctx_data.ptr;
	doca_error_t status = doca_task_get_status(task);

	*(status == DOCA_SUCCESS ? &e->done : &e->failed) += 1;
	e->last = data.u64;
	e->last_error = status;
	doca_task_free(task);
}

#define NOTES(name)                                                                           \
	UNUSED static void name##_cb(struct doca_sync_event_task_##name *task,                \
				     union doca_data data, union doca_data ctx_data)          \
	{                                                                                     \
		note(doca_sync_event_task_##name##_as_doca_task(task), data, ctx_data);       \
	}                                                                                     \
	UNUSED static void with_##name(struct doca_sync_event *event)                         \
	{                                                                                     \
		OK(doca_sync_event_task_##name##_set_conf(event, name##_cb, name##_cb,        \
							  SYNC_TASKS));                       \
	}
NOTES(get)
NOTES(notify_set)
NOTES(notify_add)
NOTES(wait_eq)
NOTES(wait_neq)
NOTES(wait_gt)

/* Both locations are this process's CPU. Not started. */
UNUSED static struct doca_sync_event *an_event(struct doca_dev *dev)
{
	struct doca_sync_event *event;

	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_cpu(event, dev));
	OK(doca_sync_event_add_subscriber_location_cpu(event, dev));
	return event;
}

/* Starts the event as a context with every kind of task. */
UNUSED static void as_context(struct events *e, struct doca_sync_event *event)
{
	union doca_data self = {.ptr = e};

	e->event = event;
	e->ctx = doca_sync_event_as_ctx(event);
	CHECK(e->ctx);
	OK(doca_pe_create(&e->pe));
	OK(doca_pe_connect_ctx(e->pe, e->ctx));
	OK(doca_ctx_set_user_data(e->ctx, self));
	with_get(event);
	with_notify_set(event);
	with_notify_add(event);
	with_wait_eq(event);
	with_wait_neq(event);
	with_wait_gt(event);
	OK(doca_ctx_start(e->ctx));
}

UNUSED static void end_context(struct events *e)
{
	enum doca_ctx_states state;
	doca_error_t error = doca_ctx_stop(e->ctx);

	CHECK(error == DOCA_SUCCESS || error == DOCA_ERROR_IN_PROGRESS);
	do {
		doca_pe_progress(e->pe);
		OK(doca_ctx_get_state(e->ctx, &state));
	} while (state != DOCA_CTX_STATE_IDLE);
	OK(doca_sync_event_destroy(e->event));
	OK(doca_pe_destroy(e->pe));
}

UNUSED static void submit_wait_gt(struct events *e, uint64_t value, uint64_t user)
{
	struct doca_sync_event_task_wait_gt *task;
	union doca_data data = {.u64 = user};

	OK(doca_sync_event_task_wait_gt_alloc_init(e->event, value, ALL, data, &task));
	OK(doca_task_submit(doca_sync_event_task_wait_gt_as_doca_task(task)));
}

/* Sleeps until the handle is readable, then progresses until nothing is left. */
UNUSED static void sleep_once(struct events *e)
{
	doca_notification_handle_t handle;
	struct pollfd p = {.events = POLLIN};

	OK(doca_pe_get_notification_handle(e->pe, &handle));
	OK(doca_pe_request_notification(e->pe));
	p.fd = handle;
	CHECK_EQ(poll(&p, 1, -1), 1);
	OK(doca_pe_clear_notification(e->pe, handle));
	while (doca_pe_progress(e->pe))
		;
}

#endif
