// SPDX-License-Identifier: Apache-2.0
/*
 * Sync events: configuration, value, operations. Sources: "SE reference" is the published header's
 * documentation, "SE guide" the published guide; "guess" marks an assumption that no published
 * source confirms.
 */
#include "sync_event.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "provider.h"
#include "region.h"
#include "share/server.h"

#define CHECK_NS    1000000u /* how often a wait checks whether the other side is gone */
#define SPINS       1024u /* before a wait reads the clock */
#define LONG_SPINS  (64 * SPINS) /* before it gives up the CPU after each check */

/* ---- creation and destruction ---- */

struct doca_sync_event *sync_event_new(enum object_kind kind)
{
	struct doca_sync_event *e = softdoca_object_new(kind, sizeof *e);
	if (!e)
		return NULL;
	e->memfd = -1;
	if (softdoca_ctx_init(&e->ctx, NULL, &sync_ops) == DOCA_SUCCESS)
		return e;
	softdoca_object_free(e);
	return NULL;
}

doca_error_t doca_sync_event_create(struct doca_sync_event **event)
{
	CHECK_OUT(event);
	struct doca_sync_event *e = sync_event_new(OBJECT_SYNC_EVENT);
	if (!e)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a sync event");
	*event = e;
	return DOCA_SUCCESS;
}

void sync_use_dev(struct doca_dev **slot, struct doca_dev *dev)
{
	/* relaxed: a statistic without ordering */
	if (dev)
		atomic_fetch_add_explicit(&dev->users, 1, memory_order_relaxed);
	if (*slot)
		atomic_fetch_sub_explicit(&(*slot)->users, 1, memory_order_relaxed);
	*slot = dev;
}

static void free_event(void *object)
{
	struct doca_sync_event *e = object;
	softdoca_page_free(e->page);
	if (e->memfd >= 0)
		close(e->memfd);
	if (e->buf)
		doca_buf_dec_refcount(e->buf, NULL);
	for (int i = 0; i < 2; i++) {
		for (uint32_t k = 0; k < e->devs[i].n; k++)
			sync_use_dev(&e->devs[i].at[k], NULL);
		free(e->devs[i].at);
	}
	sync_use_dev(&e->dev, NULL);
	softdoca_object_free(e);
}

/* SE reference: INVALID_VALUE. The other errors: guess. */
doca_error_t doca_sync_event_destroy(struct doca_sync_event *event)
{
	CHECK_EVENT(event);
	if (event->ctx.state != DOCA_CTX_STATE_IDLE)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is started");
	doca_error_t error = sync_unexport(event);
	if (error == DOCA_SUCCESS)
		error = softdoca_ctx_destroy(&event->ctx, DOCA_ERROR_BAD_STATE, free_event, event);
	return error;
}

/* ---- configuration ---- */

static doca_error_t check_configurable(const struct doca_sync_event *e, const char *func)
{
	if (e->import) /* SE reference, doca_sync_event_create_from_export */
		return REFUSE_FOR(func, DOCA_ERROR_NOT_PERMITTED, "the event is from an export");
	if (e->mode == SYNC_ALONE || e->ctx.state != DOCA_CTX_STATE_IDLE || e->value)
		return REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, "the event is started or exported");
	return DOCA_SUCCESS;
}

static doca_error_t add_location(struct doca_sync_event *e, bool publisher, uint32_t location,
				 const char *func)
{
	doca_error_t error = check_configurable(e, func);
	if (error == DOCA_SUCCESS)
		*(publisher ? &e->publishers : &e->subscribers) |= location;
	return error;
}

static doca_error_t add_cpu(struct doca_sync_event *e, struct doca_dev *dev, bool publisher,
			    const char *func)
{
	struct sync_devs *devs = &e->devs[!publisher];
	TRY(add_location(e, publisher, SYNC_CPU, func));
	for (uint32_t i = 0; i < devs->n; i++)
		if (devs->at[i] == dev)
			return DOCA_SUCCESS;
	struct doca_dev **more = realloc(devs->at, (devs->n + 1) * sizeof *more);
	if (!more)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a location");
	more[devs->n] = NULL;
	devs->at = more;
	sync_use_dev(&more[devs->n++], dev);
	return DOCA_SUCCESS;
}

doca_error_t doca_sync_event_add_publisher_location_cpu(struct doca_sync_event *event,
							struct doca_dev *dev)
{
	CHECK_EVENT(event);
	CHECK_DEV(dev);
	return add_cpu(event, dev, true, __func__);
}

doca_error_t doca_sync_event_add_subscriber_location_cpu(struct doca_sync_event *event,
							 struct doca_dev *dev)
{
	CHECK_EVENT(event);
	CHECK_DEV(dev);
	return add_cpu(event, dev, false, __func__);
}

doca_error_t doca_sync_event_add_publisher_location_remote_pci(struct doca_sync_event *event)
{
	CHECK_EVENT(event);
	return add_location(event, true, SYNC_REMOTE_PCI, __func__);
}

doca_error_t doca_sync_event_add_subscriber_location_remote_pci(struct doca_sync_event *event)
{
	CHECK_EVENT(event);
	return add_location(event, false, SYNC_REMOTE_PCI, __func__);
}

doca_error_t doca_sync_event_add_publisher_location_remote_net(struct doca_sync_event *event)
{
	CHECK_EVENT(event);
	return add_location(event, true, SYNC_REMOTE_NET, __func__);
}

/* Refuses a location that needs a DPA, or a data path on a GPU. */
static doca_error_t no_engine(const struct doca_sync_event *e, const void *engine, const char *func)
{
	CHECK_EVENT(e);
	CHECK_OUT(engine);
	return REFUSE_FOR(func, DOCA_ERROR_NOT_SUPPORTED, "no DPA, and no data path on a GPU");
}

#define NO_ENGINE(function, type)                                          \
	doca_error_t function(struct doca_sync_event *event, type *engine) \
	{                                                                  \
		return no_engine(event, engine, __func__);                 \
	}

NO_ENGINE(doca_sync_event_add_publisher_location_dpa, struct doca_dpa)
NO_ENGINE(doca_sync_event_add_publisher_location_gpu, struct doca_gpu)
NO_ENGINE(doca_sync_event_add_subscriber_location_dpa, struct doca_dpa)
NO_ENGINE(doca_sync_event_add_subscriber_location_gpu, struct doca_gpu)

doca_error_t doca_sync_event_get_dpa_handle(struct doca_sync_event *event, struct doca_dpa *dpa,
					    doca_dpa_dev_sync_event_t *dpa_dev_se_handle)
{
	CHECK_OUT(dpa_dev_se_handle);
	return no_engine(event, dpa, __func__);
}

doca_error_t doca_sync_event_get_gpu_handle(struct doca_sync_event *event, struct doca_gpu *gpu,
					    doca_gpu_dev_sync_event_t **gpu_dev_se)
{
	CHECK_OUT(gpu_dev_se);
	return no_engine(event, gpu, __func__);
}

static doca_error_t set_at(struct doca_sync_event *e, void *at, const char *func)
{
	TRY(check_configurable(e, func));
	if (!at || (uintptr_t)at % sizeof(uint64_t))
		return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE, "%p is not aligned to 8 bytes",
				  at);
	if (e->buf)
		doca_buf_dec_refcount(e->buf, NULL);
	e->buf = NULL;
	e->at = at;
	return DOCA_SUCCESS;
}

/* SE reference: INVALID_VALUE, BAD_STATE. */
doca_error_t doca_sync_event_set_addr(struct doca_sync_event *event, uint64_t *addr)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char resident;
	CHECK_EVENT(event);
	if (addr && mincore((char *)addr - (uintptr_t)addr % page, page, &resident))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not mapped", (void *)addr);
	return set_at(event, addr, __func__);
}

/* SE reference: INVALID_VALUE, BAD_STATE, NOT_PERMITTED for permissions or length. NOT_SUPPORTED:
 * guess. */
doca_error_t doca_sync_event_set_doca_buf(struct doca_sync_event *event, struct doca_buf *buf)
{
	CHECK_EVENT(event);
	CHECK_BUF(buf);
	const struct doca_mmap *m = buf->mmap;
	if (buf->first != buf || buf->next)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the buffer is in a list");
	if (buf->data_len != sizeof(uint64_t) || !m->writable)
		return REFUSE(DOCA_ERROR_NOT_PERMITTED,
			      "the buffer's data has %zu bytes, not 8, or its map is read-only",
			      buf->data_len);
	if (m->backing != BACKING_HOST || !m->base || m->from_export)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "the buffer is not host memory of this process");
	doca_error_t error = set_at(event, m->base + (buf->data - m->addr), __func__);
	if (error == DOCA_SUCCESS)
		error = doca_buf_inc_refcount(buf, NULL);
	if (error == DOCA_SUCCESS)
		event->buf = buf;
	return error;
}

/* ---- the value ---- */

static doca_error_t make_page(struct doca_sync_event *e)
{
	e->page = softdoca_page_new("softdoca-sync-event", &e->memfd);
	return e->page ? DOCA_SUCCESS
		       : REFUSE(DOCA_ERROR_NO_MEMORY, "no shared memory for a sync event: %s",
				strerror(errno));
}

doca_error_t sync_choose_place(struct doca_sync_event *e)
{
	bool remote = (e->publishers | e->subscribers) & SYNC_REMOTE;
	doca_error_t error = DOCA_SUCCESS;
	if (e->value)
		return DOCA_SUCCESS;
	if (remote && e->at) /* SE reference: an unsupported address space */
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "memory of the program cannot be shared with a remote location");
	if (remote)
		error = make_page(e);
	if (error == DOCA_SUCCESS)
		e->value = remote ? e->page : e->at ? e->at : &e->own;
	return error;
}

static bool forked(const struct doca_sync_event *e)
{
	return e->import && e->import->dev->fork_generation !=
				    atomic_load_explicit(&dg_fork_generation, memory_order_relaxed);
}

/* Enters the gate of the value's region, so that the exporter does not unmap the value. Returns
 * false if the exporter is this process and has ended the export, because the memory may then be
 * gone. Memory of another process stays mapped here. */
static bool enter(const struct doca_sync_event *e)
{
	if (!e->import)
		return true;
	struct dg_gate *gate = e->import->entry->gate;
	gate_enter(gate, 1);
	if (!gate_revoked(gate) || e->import->exporter)
		return true;
	gate_leave(gate, 1);
	return false;
}

static void leave(const struct doca_sync_event *e)
{
	if (e->import)
		gate_leave(e->import->entry->gate, 1);
}

bool sync_abandoned(const struct doca_sync_event *e)
{
	/* relaxed: the result does not lead to reads of other memory */
	if (e->import)
		return atomic_load_explicit(&e->import->entry->lost, memory_order_relaxed) ||
		       gate_revoked(e->import->entry->gate);
	return e->region && !(e->publishers & SYNC_CPU) && dg_share_abandoned(e->region);
}

bool sync_abandoned_now(struct doca_sync_event *e)
{
	uint64_t now = now_ns();
	if (now - e->checked_ns < CHECK_NS)
		return false;
	e->checked_ns = now;
	return sync_abandoned(e);
}

doca_error_t sync_execute(struct doca_sync_event *e, enum sync_op op, uint64_t value, uint64_t *out)
{
	if (forked(e))
		return REFUSE(DOCA_ERROR_BAD_STATE, "the event is this process's parent's");
	if ((e->import && sync_abandoned(e)) || !enter(e))
		return REFUSE(DOCA_ERROR_CONNECTION_RESET, "the other side has ended the event");
	/* Release and acquire: whoever reads an update also sees what was written before it. */
	if (op == SYNC_GET)
		*out = __atomic_load_n(e->value, __ATOMIC_ACQUIRE);
	else if (op == SYNC_SET)
		__atomic_store_n(e->value, value, __ATOMIC_RELEASE);
	else
		*out = __atomic_fetch_add(e->value, value, __ATOMIC_ACQ_REL);
	leave(e);
	return DOCA_SUCCESS;
}

bool sync_met(struct doca_sync_event *e, enum sync_op op, uint64_t value, uint64_t mask)
{
	if (forked(e) || !enter(e))
		return false;
	/* acquire: see sync_execute() */
	uint64_t now = __atomic_load_n(e->value, __ATOMIC_ACQUIRE) & mask;
	leave(e);
	return op == SYNC_WAIT_EQ ? now == value : op == SYNC_WAIT_NEQ ? now != value : now > value;
}

/* ---- start and stop ---- */

doca_error_t sync_startable(const struct doca_sync_event *e)
{
	if (e->mode == SYNC_ALONE)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the event is started");
	if (!e->import && (!e->publishers || !e->subscribers)) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the event has no location for %s",
			      e->publishers ? "subscribers" : "publishers");
	return DOCA_SUCCESS;
}

/* SE reference: INVALID_VALUE. The other errors: guess. */
doca_error_t doca_sync_event_start(struct doca_sync_event *event)
{
	CHECK_EVENT(event);
	TRY(sync_startable(event));
	if (event->mode == SYNC_CONTEXT) /* SE reference, doca_sync_event_as_ctx */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the event is a context: start that");
	doca_error_t error = sync_choose_place(event);
	if (error == DOCA_SUCCESS)
		__atomic_store_n(&event->mode, SYNC_ALONE, __ATOMIC_RELAXED);
	return error;
}

doca_error_t doca_sync_event_stop(struct doca_sync_event *event)
{
	CHECK_EVENT(event);
	if (event->mode == SYNC_ALONE) /* waits in other threads see it */
		__atomic_store_n(&event->mode, SYNC_NEW, __ATOMIC_RELAXED);
	return DOCA_SUCCESS;
}

struct doca_ctx *doca_sync_event_as_ctx(struct doca_sync_event *event)
{
	if (!object_is(event, OBJECT_SYNC_EVENT))
		return REFUSE((struct doca_ctx *)NULL, "%p is not a sync event", (void *)event);
	if (event->mode == SYNC_ALONE) /* SE reference, doca_sync_event_start */
		return REFUSE((struct doca_ctx *)NULL, "the event is started alone");
	event->mode = SYNC_CONTEXT;
	return &event->ctx;
}

/* ---- operations ---- */

/* Operations are also allowed on a running context: guess. */
static doca_error_t operable(const struct doca_sync_event *e, const char *func)
{
	const enum sync_mode mode = __atomic_load_n(&e->mode, __ATOMIC_RELAXED);
	if (mode == SYNC_ALONE ||
	    (mode == SYNC_CONTEXT && e->ctx.state == DOCA_CTX_STATE_RUNNING))
		return DOCA_SUCCESS;
	return REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, "the event is not started"); /* guess */
}

static doca_error_t run_operation(struct doca_sync_event *e, enum sync_op op, uint64_t value,
				  uint64_t *out, const char *func)
{
	CHECK_EVENT(e);
	CHECK_OUT(out);
	doca_error_t error = operable(e, func);
	return error == DOCA_SUCCESS ? sync_execute(e, op, value, out) : error;
}

doca_error_t doca_sync_event_get(struct doca_sync_event *event, uint64_t *value)
{
	return run_operation(event, SYNC_GET, 0, value, __func__);
}

doca_error_t doca_sync_event_update_add(struct doca_sync_event *event, uint64_t value,
					uint64_t *fetched)
{
	return run_operation(event, SYNC_ADD, value, fetched, __func__);
}

doca_error_t doca_sync_event_update_set(struct doca_sync_event *event, uint64_t value)
{
	uint64_t unused;
	return run_operation(event, SYNC_SET, value, &unused, __func__);
}

static doca_error_t wait_for_value(struct doca_sync_event *e, enum sync_op op, uint64_t value,
				   uint64_t mask, bool yield, const char *func)
{
	uint64_t checked = now_ns();
	CHECK_EVENT(e);
	doca_error_t error = operable(e, func);
	if (error == DOCA_SUCCESS && forked(e))
		error = REFUSE(DOCA_ERROR_BAD_STATE, "the event is this process's parent's");
	for (uint32_t polls = 1; error == DOCA_SUCCESS && !sync_met(e, op, value, mask); polls++) {
		if (polls % SPINS == 0 && now_ns() - checked > CHECK_NS) {
			checked = now_ns();
			if (__atomic_load_n(&e->mode, __ATOMIC_RELAXED) == SYNC_NEW)
				return REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, /* guess */
						  "the event was stopped meanwhile");
			/* The last update may have arrived after the check above. */
			if (sync_abandoned(e) && !sync_met(e, op, value, mask))
				error = REFUSE(DOCA_ERROR_CONNECTION_RESET,
					       "the other side is gone: the event has no "
					       "updater left");
		}
		if (yield || polls > LONG_SPINS)
			sched_yield();
		else
			cpu_relax();
	}
	return error;
}

#define WAIT(name, OP)                                                                             \
	doca_error_t doca_sync_event_##name(struct doca_sync_event *event, uint64_t value,         \
					    uint64_t mask)                                         \
	{                                                                                          \
		return wait_for_value(event, OP, value, mask, false, __func__);                    \
	}                                                                                          \
	doca_error_t doca_sync_event_##name##_yield(struct doca_sync_event *event, uint64_t value, \
						    uint64_t mask)                                 \
	{                                                                                          \
		return wait_for_value(event, OP, value, mask, true, __func__);                     \
	}

WAIT(wait_gt, SYNC_WAIT_GT)
WAIT(wait_eq, SYNC_WAIT_EQ)
WAIT(wait_neq, SYNC_WAIT_NEQ)
