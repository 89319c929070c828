/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sync events. The value is stored in the event itself, at an address given by the program or, if a
 * location is remote, in a page of shared memory, which dgkit exports and the other side maps.
 *
 *   sync_event.c   the event, its locations and its value; operations
 *   sync_export.c  descriptors, and handles made from them
 *   sync_task.c    the context and its tasks
 */
#ifndef SOFTDOCA_SYNC_EVENT_H
#define SOFTDOCA_SYNC_EVENT_H

#include "doca_sync_event.h"
#include "memory/memory.h"
#include "progress/progress.h"

struct doca_sync_event_remote_net;
enum remote_event_op { REMOTE_EVENT_GET, REMOTE_EVENT_SET, REMOTE_EVENT_ADD };
/* sync_export.c: SET stores *value, ADD adds it; GET and ADD store in *value what the event had. Errors:
 * CONNECTION_RESET; BAD_STATE in a forked child. */
SOFTDOCA_INTERNAL doca_error_t softdoca_remote_event(struct doca_sync_event_remote_net *event,
						     enum remote_event_op op, uint64_t *value);

enum sync_location { SYNC_CPU = 1, SYNC_REMOTE_PCI = 2, SYNC_REMOTE_NET = 4 };
#define SYNC_REMOTE ((uint32_t)(SYNC_REMOTE_PCI | SYNC_REMOTE_NET))

enum sync_op {
	SYNC_GET,
	SYNC_SET,
	SYNC_ADD,
	SYNC_WAIT_EQ,
	SYNC_WAIT_NEQ,
	SYNC_WAIT_GT,
	SYNC_OPS,
};

struct sync_task {
	struct object o; /* OBJECT_FREE while not allocated */
	_Alignas(64) struct doca_task task;
	enum sync_op op;
	uint64_t value, mask;
	uint64_t *out; /* of get and add */
	doca_error_t status;
	bool waits; /* in the list of waiting tasks; if in flight and not waiting: complete */
	struct sync_task *next;
};

struct sync_list {
	struct sync_task *first, *last;
};

union sync_callback {
	doca_sync_event_task_get_completion_cb_t get;
	doca_sync_event_task_notify_set_completion_cb_t notify_set;
	doca_sync_event_task_notify_add_completion_cb_t notify_add;
	doca_sync_event_task_wait_eq_completion_cb_t wait_eq;
	doca_sync_event_task_wait_neq_completion_cb_t wait_neq;
	doca_sync_event_task_wait_gt_completion_cb_t wait_gt;
};

/* Configuration of one kind of task, and its free tasks. */
struct sync_conf {
	union sync_callback done_cb, error_cb;
	uint32_t n; /* 0: not configured */
	struct task_pool pool;
};

enum sync_mode { SYNC_NEW, SYNC_ALONE, SYNC_CONTEXT };

/* Devices that are kept from being closed, in the order in which they were added. */
struct sync_devs {
	struct doca_dev **at;
	uint32_t n;
};

struct doca_sync_event {
	struct object o;
	enum sync_mode mode; /* CONTEXT once doca_sync_event_as_ctx was called */
	uint32_t publishers, subscribers; /* enum sync_location */
	uint64_t own; /* the value, if it is in the event itself */
	uint64_t *value; /* NULL until the event is started or exported */
	uint64_t *at; /* address set by the program, or NULL */
	struct doca_buf *buf; /* buffer that contains `at`, or NULL */
	void *page; /* shared memory that holds the value, or NULL */
	int memfd;
	struct sync_devs devs[2]; /* of the CPU locations, publishers first */
	struct doca_dev *dev; /* device that exports or imported the event */
	dg_region *region; /* the exported page */
	dg_region *import; /* set for an event created from an export */
	struct export_bytes desc[EXPORT_KINDS];

	_Alignas(64) struct doca_ctx ctx;
	struct sync_conf conf[SYNC_OPS];
	struct sync_list waiting, done;
	uint64_t checked_ns; /* time of the last check whether the other side is gone */
};

struct doca_sync_event_remote_net {
	struct object o;
	struct doca_sync_event *event;
};

#define CHECK_EVENT(e) CHECK_OBJECT(e, OBJECT_SYNC_EVENT, "a sync event")

/* ---- sync_event.c ---- */

struct doca_sync_event *sync_event_new(enum object_kind kind);
/* Chooses where the value is stored; later calls do nothing. Errors: NOT_SUPPORTED, NO_MEMORY. */
doca_error_t sync_choose_place(struct doca_sync_event *e);
/* Checks that the event can be started: it is configured and not started. */
doca_error_t sync_startable(const struct doca_sync_event *e);
/* Stores dev in *slot and keeps it from being closed; releases the device that was in *slot, if
 * any. */
void sync_use_dev(struct doca_dev **slot, struct doca_dev *dev);
/* Executes an operation that does not wait. Errors: CONNECTION_RESET; BAD_STATE in a forked
 * child. */
doca_error_t sync_execute(struct doca_sync_event *e, enum sync_op op, uint64_t value, uint64_t *out);
/* Returns whether a wait is satisfied. */
bool sync_met(struct doca_sync_event *e, enum sync_op op, uint64_t value, uint64_t mask);
/* Returns whether the other side is gone, so that no wait will be satisfied. */
bool sync_abandoned(const struct doca_sync_event *e);
/* The same, but checks at most once per millisecond and returns false in between. */
bool sync_abandoned_now(struct doca_sync_event *e);

/* ---- sync_export.c ---- */

/* Closes exports and imports. Errors: NOT_PERMITTED. */
doca_error_t sync_unexport(struct doca_sync_event *e);

/* ---- sync_task.c ---- */

extern const struct ctx_ops sync_ops;

#endif
