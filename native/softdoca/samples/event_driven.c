// SPDX-License-Identifier: Apache-2.0
/*
 * Event-driven: many copies in flight, and a thread that sleeps in epoll until one of them is
 * complete.
 *
 *	event_driven [--count COPIES] [--size BYTES]
 *
 * The callback of a complete copy checks every byte and submits the task again with other bytes,
 * until COPIES copies were made.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dma.h>
#include <doca_log.h>
#include <doca_mmap.h>
#include <doca_pe.h>
#include <doca_types.h>

#include "sample.h"
#include "copier.h"

DOCA_LOG_REGISTER(EVENT_DRIVEN);

#define IN_FLIGHT 32

struct lane { /* a task with its source and destination */
	struct event_driven *all;
	struct doca_task *task;
	struct doca_buf *src, *dst;
	unsigned char *from, *to;
	unsigned char value; /* current value of each byte */
};

struct event_driven {
	struct doca_dev *dev;
	struct doca_pe *pe;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	struct doca_mmap *map;
	struct doca_buf_inventory *inventory;
	struct lane lanes[IN_FLIGHT];
	unsigned char *memory;
	size_t size;
	size_t to_submit, in_flight, complete, waits;
	doca_error_t result; /* the first error */
	int epoll;
};

static void submit(struct lane *lane)
{
	struct event_driven *e = lane->all;
	doca_error_t result;

	if (!e->to_submit || e->result != DOCA_SUCCESS)
		return;
	lane->value = (unsigned char)(e->to_submit * 37);
	memset(lane->from, lane->value, e->size);
	doca_buf_reset_data_len(lane->dst);
	result = doca_task_submit(lane->task);
	if (result != DOCA_SUCCESS) {
		e->result = failed("doca_task_submit", result);
		return;
	}
	e->to_submit--;
	e->in_flight++;
}

static bool holds(const struct lane *lane, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (lane->to[i] != lane->value)
			return false;
	return true;
}

/* Called from doca_pe_progress(). The task can be submitted again. */
static void copied(struct doca_dma_task_memcpy *task, union doca_data task_data,
		   union doca_data ctx_data)
{
	struct lane *lane = task_data.ptr;
	struct event_driven *e = ctx_data.ptr;
	doca_error_t result = doca_task_get_status(doca_dma_task_memcpy_as_task(task));

	e->in_flight--;
	if (result != DOCA_SUCCESS) {
		e->result = failed("A copy", result);
	} else if (!holds(lane, e->size)) {
		DOCA_LOG_ERR("The destination differs from the source");
		e->result = DOCA_ERROR_UNEXPECTED;
	} else {
		e->complete++;
		submit(lane);
	}
}

static doca_error_t can_copy(const struct doca_devinfo *info)
{
	return doca_dma_cap_task_memcpy_is_supported(info);
}

static doca_error_t open_context(struct event_driven *e, const struct options *o)
{
	union doca_data data = {.ptr = e};
	size_t all = 2 * IN_FLIGHT * e->size;
	uint64_t max_size;

	TRY(open_device(o->pci, can_copy, &e->dev));
	TRY_DOCA(doca_dma_cap_task_memcpy_get_max_buf_size(doca_dev_as_devinfo(e->dev), &max_size));
	if (e->size > max_size) {
		DOCA_LOG_ERR("--size is %zu; this device copies at most %lu bytes at a time",
			     e->size, (unsigned long)max_size);
		return DOCA_ERROR_TOO_BIG;
	}
	e->memory = calloc(1, all);
	if (!e->memory)
		return failed("calloc", DOCA_ERROR_NO_MEMORY);
	TRY(map_memory(e->dev, e->memory, all, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE, &e->map));
	TRY_DOCA(doca_buf_inventory_create(2 * IN_FLIGHT, &e->inventory));
	TRY_DOCA(doca_buf_inventory_start(e->inventory));
	TRY_DOCA(doca_pe_create(&e->pe));
	TRY_DOCA(doca_dma_create(e->dev, &e->dma));
	e->ctx = doca_dma_as_ctx(e->dma);
	TRY_DOCA(doca_ctx_set_user_data(e->ctx, data));
	TRY_DOCA(doca_dma_task_memcpy_set_conf(e->dma, copied, copied, IN_FLIGHT));
	TRY_DOCA(doca_pe_connect_ctx(e->pe, e->ctx));
	TRY_DOCA(doca_ctx_start(e->ctx));
	return DOCA_SUCCESS;
}

static doca_error_t open_lane(struct event_driven *e, size_t i)
{
	struct lane *lane = &e->lanes[i];
	union doca_data data = {.ptr = lane};
	struct doca_dma_task_memcpy *task;

	lane->all = e;
	lane->from = e->memory + 2 * i * e->size;
	lane->to = lane->from + e->size;
	TRY_DOCA(doca_buf_inventory_buf_get_by_data(e->inventory, e->map, lane->from, e->size,
						    &lane->src));
	TRY_DOCA(doca_buf_inventory_buf_get_by_addr(e->inventory, e->map, lane->to, e->size,
						    &lane->dst));
	TRY_DOCA(doca_dma_task_memcpy_alloc_init(e->dma, lane->src, lane->dst, data, &task));
	lane->task = doca_dma_task_memcpy_as_task(task);
	return DOCA_SUCCESS;
}

/* Adds the engine's handle, an fd, to the program's epoll. */
static doca_error_t open_epoll(struct event_driven *e, doca_notification_handle_t *handle)
{
	struct epoll_event event = {.events = EPOLLIN};

	TRY_DOCA(doca_pe_get_notification_handle(e->pe, handle));
	e->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (e->epoll < 0 || epoll_ctl(e->epoll, EPOLL_CTL_ADD, *handle, &event))
		return failed_system("epoll", "");
	return DOCA_SUCCESS;
}

/* Requests a notification, sleeps, clears the notification, then progresses until there is no
 * event left. A completion between the last progress and the request wakes the program at once. */
static doca_error_t run(struct event_driven *e)
{
	doca_notification_handle_t handle;
	struct epoll_event event;

	TRY(open_epoll(e, &handle));
	for (size_t i = 0; i < IN_FLIGHT; i++)
		submit(&e->lanes[i]);
	while (e->in_flight) {
		TRY_DOCA(doca_pe_request_notification(e->pe));
		e->waits++;
		if (!wait_readable(e->epoll))
			return failed("The copies", DOCA_ERROR_SHUTDOWN);
		if (epoll_wait(e->epoll, &event, 1, 0) < 0)
			return failed_system("epoll_wait", "");
		TRY_DOCA(doca_pe_clear_notification(e->pe, handle));
		while (doca_pe_progress(e->pe))
			;
	}
	return e->result;
}

static doca_error_t event_driven(struct event_driven *e, const struct options *o)
{
	if (!o->size) {
		DOCA_LOG_ERR("--size is 0; a copy has 1 byte or more");
		return DOCA_ERROR_INVALID_VALUE;
	}
	e->size = (size_t)o->size;
	e->to_submit = (size_t)o->count;
	TRY(open_context(e, o));
	for (size_t i = 0; i < IN_FLIGHT; i++)
		TRY(open_lane(e, i));
	TRY(run(e));
	printf("%zu copies of %zu bytes, %d in flight; waits in epoll: %zu\n", e->complete, e->size,
	       IN_FLIGHT, e->waits);
	fflush(stdout);
	return DOCA_SUCCESS;
}

static void stop(struct event_driven *e)
{
	enum doca_ctx_states state;

	e->to_submit = 0; /* completed tasks are not submitted again */
	if (!e->ctx)
		return;
	doca_ctx_stop(e->ctx);
	while (e->in_flight)
		doca_pe_progress(e->pe);
	for (size_t i = 0; i < IN_FLIGHT; i++)
		if (e->lanes[i].task)
			doca_task_free(e->lanes[i].task);
	while (doca_ctx_get_state(e->ctx, &state) == DOCA_SUCCESS &&
	       state == DOCA_CTX_STATE_STOPPING)
		doca_pe_progress(e->pe);
}

static void give_back(struct event_driven *e)
{
	stop(e);
	for (size_t i = 0; i < IN_FLIGHT; i++) {
		if (e->lanes[i].src)
			doca_buf_dec_refcount(e->lanes[i].src, NULL);
		if (e->lanes[i].dst)
			doca_buf_dec_refcount(e->lanes[i].dst, NULL);
	}
	if (e->epoll >= 0)
		close(e->epoll);
	if (e->dma)
		doca_dma_destroy(e->dma);
	if (e->pe)
		doca_pe_destroy(e->pe);
	if (e->inventory)
		doca_buf_inventory_destroy(e->inventory);
	if (e->map)
		doca_mmap_destroy(e->map);
	if (e->dev)
		doca_dev_close(e->dev);
	free(e->memory);
}

int main(int argc, char **argv)
{
	struct options o = {.count = 1000, .size = 4096};
	struct event_driven e = {.epoll = -1};
	doca_error_t result = sample_begin(argc, argv, "event_driven", WANT_COUNT | WANT_SIZE, &o);

	if (result == DOCA_SUCCESS)
		result = event_driven(&e, &o);
	give_back(&e);
	return sample_end(result);
}
