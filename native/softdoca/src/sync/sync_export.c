// SPDX-License-Identifier: Apache-2.0
/*
 * Sync events of two processes: a descriptor is a header of softdoca, then dgkit's descriptor of
 * the page that holds the value. Descriptors are created and parsed in this file only. The bytes
 * are a capability: the exporter's table decides about access. Sources: "SE reference" is the
 * published header's documentation; "guess" marks an assumption that no published source confirms.
 */
#include "sync_event.h"

#include <stdlib.h>
#include <string.h>

#include "region.h"

#define SYNC_MAGIC   0x434e5953434f4453ull /* "SDOCSYNC" */
#define SYNC_VERSION 1
#define IMPORT_NS    ((uint64_t)5000000000)
#define DESC_MAX     1024u

/* Little-endian, no padding. */
struct sync_header {
	uint64_t magic;
	uint16_t version, length; /* length: total */
	uint32_t kind; /* enum export_kind */
};
_Static_assert(sizeof(struct sync_header) == 16, "no padding");

/* ---- capabilities ---- */

static doca_error_t check_capability(const struct doca_devinfo *devinfo, uint32_t caps,
				     const char *func)
{
	if (!object_is(devinfo, OBJECT_DEVINFO))
		return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE, "%p is not a devinfo",
				  (const void *)devinfo);
	if (devinfo->f.caps & caps)
		return DOCA_SUCCESS;
	/* DEBUG, because a query deserves no warning. */
	softdoca_log(DOCA_LOG_LEVEL_DEBUG, func, "%s does not support it", devinfo->f.pci);
	return DOCA_ERROR_NOT_SUPPORTED;
}

#define CAP(name, caps)                                                             \
	doca_error_t doca_sync_event_cap_##name(const struct doca_devinfo *devinfo) \
	{                                                                           \
		return check_capability(devinfo, caps, __func__);                   \
	}

CAP(is_export_to_remote_pci_supported, CAP_EXPORT_PCI)
CAP(is_create_from_export_supported, CAP_FROM_EXPORT_PCI)
CAP(is_export_to_remote_net_supported, CAP_EXPORT_PCI)
CAP(remote_net_is_create_from_export_supported, CAP_FROM_EXPORT_PCI)
CAP(is_export_to_dpa_supported, 0)
CAP(is_export_to_gpu_supported, 0)
CAP(remote_net_is_export_to_dpa_supported, 0)
CAP(remote_net_is_export_to_gpu_supported, 0)
CAP(task_get_is_supported, UINT32_MAX)
CAP(task_notify_set_is_supported, UINT32_MAX)
CAP(task_notify_add_is_supported, UINT32_MAX)
CAP(task_wait_eq_is_supported, UINT32_MAX)
CAP(task_wait_neq_is_supported, UINT32_MAX)
CAP(task_wait_gt_is_supported, UINT32_MAX)

/* ---- export ---- */

/* Registers the page with the device's engine, once. */
static doca_error_t register_page(struct doca_sync_event *e, struct doca_dev *dev, const char *func)
{
	const dg_memory page = {.addr = e->page, .size = sizeof(uint64_t), .fd = e->memfd};
	if (e->region && e->dev == dev)
		return DOCA_SUCCESS;
	if (e->region)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "the event is exported by device %s already",
			      e->dev->info.f.pci);
	int rc = dg_region_register(dev->engine, &page, DG_ACCESS_READ | DG_ACCESS_WRITE,
				    &e->region);
	if (rc)
		return export_failed(rc, func);
	sync_use_dev(&e->dev, dev);
	return DOCA_SUCCESS;
}

static doca_error_t make_descriptor(struct doca_sync_event *e, enum export_kind kind,
				    const char *func)
{
	uint8_t bytes[DESC_MAX];
	struct sync_header h = {.magic = SYNC_MAGIC, .version = SYNC_VERSION, .kind = kind};
	int len = dg_region_export(e->region, DG_ACCESS_READ | DG_ACCESS_WRITE, bytes + sizeof h,
				   sizeof bytes - sizeof h);
	if (len < 0)
		return export_failed(len, func);
	h.length = (uint16_t)(sizeof h + (size_t)len);
	memcpy(bytes, &h, sizeof h);
	uint8_t *kept = malloc(h.length);
	if (!kept)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for an export descriptor");
	memcpy(kept, bytes, h.length);
	e->desc[kind] = (struct export_bytes){kept, h.length};
	return DOCA_SUCCESS;
}

static doca_error_t check_exportable(const struct doca_sync_event *e, const struct doca_dev *dev,
				     enum export_kind kind, const char *func)
{
	uint32_t wanted = kind == EXPORT_PCI ? SYNC_REMOTE_PCI : SYNC_REMOTE_NET;
	const char *why = NULL;
	if (e->import)
		why = "the event is from an export";
	else if (!((e->publishers | e->subscribers) & wanted))
		why = "the event has no such remote location";
	else if (!(dev->info.f.caps & CAP_EXPORT_PCI))
		why = "the device cannot export";
	if (!why)
		return e->mode == SYNC_ALONE ? DOCA_SUCCESS : sync_startable(e);
	return REFUSE_FOR(func, DOCA_ERROR_NOT_SUPPORTED, "%s", why); /* SE reference */
}

static doca_error_t export_event(struct doca_sync_event *e, struct doca_dev *dev,
				 enum export_kind kind, const uint8_t **data, size_t *sz,
				 const char *func)
{
	doca_error_t error = check_exportable(e, dev, kind, func);
	if (error == DOCA_SUCCESS)
		error = sync_choose_place(e);
	if (error == DOCA_SUCCESS)
		error = register_page(e, dev, func);
	if (error == DOCA_SUCCESS && !e->desc[kind].bytes)
		error = make_descriptor(e, kind, func);
	if (error != DOCA_SUCCESS)
		return error;
	*data = e->desc[kind].bytes;
	*sz = e->desc[kind].len;
	return DOCA_SUCCESS;
}

/* SE reference: INVALID_VALUE, NOT_SUPPORTED, NO_MEMORY. */
doca_error_t doca_sync_event_export_to_remote_pci(struct doca_sync_event *event,
						  struct doca_dev *dev, const uint8_t **data,
						  size_t *sz)
{
	CHECK_EVENT(event);
	CHECK_DEV(dev);
	CHECK_OUT(data);
	CHECK_OUT(sz);
	return export_event(event, dev, EXPORT_PCI, data, sz, __func__);
}

doca_error_t doca_sync_event_export_to_remote_net(struct doca_sync_event *event,
						  const uint8_t **data, size_t *sz)
{
	CHECK_EVENT(event);
	CHECK_OUT(data);
	CHECK_OUT(sz);
	const struct sync_devs *from = &event->devs[!event->devs[0].n];
	struct doca_dev *dev = from->n ? from->at[0] : NULL;
	if (!dev) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the event has no CPU location, whose device "
						    "would export it");
	return export_event(event, dev, EXPORT_RDMA, data, sz, __func__);
}

doca_error_t sync_unexport(struct doca_sync_event *e)
{
	dg_region **regions[] = {&e->import, &e->region};
	for (size_t i = 0; i < sizeof regions / sizeof regions[0]; i++) {
		int rc = *regions[i] ? dg_region_close(*regions[i], MMAP_CLOSE_NS) : 0;
		if (rc) {
			softdoca_failed(__func__, rc);
			return DOCA_ERROR_NOT_PERMITTED; /* guess, as for a memory map */
		}
		*regions[i] = NULL;
	}
	for (uint32_t kind = 0; kind < EXPORT_KINDS; kind++) {
		free(e->desc[kind].bytes);
		e->desc[kind] = (struct export_bytes){0};
	}
	return DOCA_SUCCESS;
}

/* ---- import ---- */

static doca_error_t check_descriptor(const uint8_t *data, size_t sz, enum export_kind kind)
{
	struct sync_header h;
	if (sz < sizeof h)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%zu bytes are too few for a sync event",
			      sz);
	memcpy(&h, data, sizeof h);
	if (h.magic != SYNC_MAGIC || h.version != SYNC_VERSION || h.kind != kind ||
	    h.length <= sizeof h || h.length > DESC_MAX || h.length > sz)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%zu bytes that are not a sync event's descriptor of this kind", sz);
	return DOCA_SUCCESS;
}

static doca_error_t import_event(struct doca_sync_event *e, struct doca_dev *dev,
				 const uint8_t *data)
{
	struct sync_header h;
	dg_region_info info = {0};
	memcpy(&h, data, sizeof h);
	int rc = dg_region_import(dev->engine, data + sizeof h, h.length - sizeof h, IMPORT_NS,
				  &e->import);
	if (!rc)
		rc = dg_region_info_get(e->import, &info);
	if (rc)
		return export_failed(rc, "doca_sync_event_create_from_export");
	uint64_t *value = (void *)e->import->entry->base;
	if (info.size != sizeof *value || info.access != (DG_ACCESS_READ | DG_ACCESS_WRITE) ||
	    info.method != DG_METHOD_MAP || (uintptr_t)value % sizeof *value)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "the descriptor is of other memory than a sync event's");
	e->value = value;
	return DOCA_SUCCESS;
}

static doca_error_t create(struct doca_dev *dev, const uint8_t *data, size_t sz,
			   enum export_kind kind, struct doca_sync_event **out)
{
	CHECK_DEV(dev);
	CHECK_OUT(data);
	CHECK_OUT(out);
	if (!(dev->info.f.caps & CAP_FROM_EXPORT_PCI)) /* SE reference */
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "%s cannot use an export",
			      dev->info.f.pci);
	TRY(check_descriptor(data, sz, kind));
	struct doca_sync_event *e = sync_event_new(OBJECT_SYNC_EVENT);
	if (!e)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a sync event");
	sync_use_dev(&e->dev, dev);
	doca_error_t error = import_event(e, dev, data);
	if (error == DOCA_SUCCESS)
		*out = e;
	else
		doca_sync_event_destroy(e);
	return error;
}

/* SE reference: INVALID_VALUE, NOT_SUPPORTED, NO_MEMORY. */
doca_error_t doca_sync_event_create_from_export(struct doca_dev *dev, const uint8_t *data, size_t sz,
						struct doca_sync_event **event)
{
	return create(dev, data, sz, EXPORT_PCI, event);
}

/* ---- handles for peers in the network ---- */

#define CHECK_REMOTE(e) CHECK_OBJECT(e, OBJECT_SYNC_EVENT_REMOTE_NET, "a remote sync event")

doca_error_t doca_sync_event_remote_net_create_from_export(
	struct doca_dev *dev, const uint8_t *data, size_t sz,
	struct doca_sync_event_remote_net **event)
{
	CHECK_OUT(event);
	struct doca_sync_event_remote_net *r =
		softdoca_object_new(OBJECT_SYNC_EVENT_REMOTE_NET, sizeof *r);
	if (!r)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a remote sync event");
	doca_error_t error = create(dev, data, sz, EXPORT_RDMA, &r->event);
	if (error == DOCA_SUCCESS)
		*event = r;
	else
		softdoca_object_free(r);
	return error;
}

doca_error_t doca_sync_event_remote_net_destroy(struct doca_sync_event_remote_net *event)
{
	CHECK_REMOTE(event);
	doca_error_t error = doca_sync_event_destroy(event->event);
	if (error == DOCA_SUCCESS)
		softdoca_object_free(event);
	return error;
}

doca_error_t softdoca_remote_event(struct doca_sync_event_remote_net *event, enum remote_event_op op,
				   uint64_t *value)
{
	static const enum sync_op ops[] = {SYNC_GET, SYNC_SET, SYNC_ADD};
	return sync_execute(event->event, ops[op], *value, value);
}

doca_error_t doca_sync_event_remote_net_get_dpa_handle(
	struct doca_sync_event_remote_net *event, struct doca_dpa *dpa,
	doca_dpa_dev_sync_event_remote_net_t *dpa_remote_event)
{
	CHECK_REMOTE(event);
	CHECK_OUT(dpa);
	CHECK_OUT(dpa_remote_event);
	return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "there is no DPA");
}

doca_error_t doca_sync_event_remote_net_get_gpu_handle(
	struct doca_sync_event_remote_net *event, struct doca_gpu *gpu,
	doca_gpu_dev_sync_event_remote_net_t *gpu_remote_event)
{
	CHECK_REMOTE(event);
	CHECK_OUT(gpu);
	CHECK_OUT(gpu_remote_event);
	return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "no data path on a GPU");
}
