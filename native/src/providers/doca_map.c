// SPDX-License-Identifier: Apache-2.0
/* Makes memory accessible to DOCA: host and GPU memory of this process, and exports of other
 * processes. */
#include "cuda_pointer.h"
#include "doca.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "share/descriptor.h"
#include "error.h"

/* A blob starts with the address of the memory in the exporter; DOCA's export follows. */
#define BLOB_HEAD sizeof(uint64_t)

/* Memory range of a map. It cannot be changed later, so a different access mode needs another
 * map. */
struct range {
	void *addr;
	uint64_t size;
	uint32_t permissions;
	int fd; /* dma-buf, or -1 if the map is by address */
	uint64_t offset;
};

static const char *set_up(struct doca *d, struct doca_mmap *map, const struct range *r,
			  doca_error_t *e)
{
	*e = dg_doca.doca_mmap_add_dev(map, d->dev);
	if (*e)
		return "doca_mmap_add_dev";
	*e = dg_doca.doca_mmap_set_permissions(map, r->permissions);
	if (*e)
		return "doca_mmap_set_permissions";
	if (r->fd < 0) {
		*e = dg_doca.doca_mmap_set_memrange(map, r->addr, r->size);
		if (*e)
			return "doca_mmap_set_memrange";
	} else {
		*e = dg_doca.doca_mmap_set_dmabuf_memrange(map, r->fd, r->addr, r->offset, r->size);
		if (*e)
			return "doca_mmap_set_dmabuf_memrange";
	}
	*e = dg_doca.doca_mmap_start(map);
	return *e ? "doca_mmap_start" : NULL;
}

/* Creates and starts a map. Called with the device's lock held. */
static int start(struct doca *d, const struct range *r, struct doca_mmap **out)
{
	struct doca_mmap *map = NULL;
	const char *what = "doca_mmap_create";
	doca_error_t e = dg_doca.doca_mmap_create(&map);
	if (!e)
		what = set_up(d, map, r, &e);
	if (!e) {
		*out = map;
		return 0;
	}
	/* The memory is the caller's: DOCA cannot pin the range or does not accept it. */
	int rc = dg_doca_fail(0, what, e);
	if (map)
		dg_doca.doca_mmap_destroy(map);
	return rc;
}

int dg_doca_map_new(struct doca *d, void *addr, uint64_t size, uint32_t permissions,
		    struct doca_mmap **out)
{
	const struct range r = {.addr = addr, .size = size, .permissions = permissions, .fd = -1};
	pthread_mutex_lock(&d->lock);
	int rc = start(d, &r, out);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

void dg_doca_map_free(struct doca_mmap *map)
{
	if (!map)
		return;
	dg_doca.doca_mmap_stop(map);
	dg_doca.doca_mmap_destroy(map);
}

static uint32_t doca_permissions(const struct doca *d, uint32_t access, bool may_export)
{
	bool write = access & DG_ACCESS_WRITE;
	uint32_t p = write ? DOCA_ACCESS_FLAG_LOCAL_READ_WRITE : DOCA_ACCESS_FLAG_LOCAL_READ_ONLY;
	if (may_export && d->can_export)
		p |= write ? DOCA_ACCESS_FLAG_PCI_READ_WRITE : DOCA_ACCESS_FLAG_PCI_READ_ONLY;
	return p;
}

/* Maps GPU memory by its address, which DOCA's driver resolves through nvidia-peermem. rc: the
 * error from mapping it as a dma-buf. */
static int by_address(struct doca *d, struct range *r, struct doca_mmap **out, int rc)
{
	char first[200], second[300];
	int reason = dg_dmabuf_reason(rc);
	snprintf(first, sizeof first, "%s", dg_last_error());
	r->fd = -1;
	r->offset = 0;
	if (!start(d, r, out))
		return 0;
	snprintf(second, sizeof second, "%s", dg_last_error());
	return dg_fail(reason,
		       "DOCA cannot access this GPU memory: as a dma-buf: %s; by its address, "
		       "with nvidia-peermem: %s",
		       first, second);
}

static int map_gpu(struct doca *d, struct doca_mapped *t, const dg_memory *m, uint32_t perms,
		   struct doca_mmap **out)
{
	struct range r = {.addr = m->addr, .size = m->size, .permissions = perms, .fd = -1};
	int rc = 0;
	if (t->by_address)
		return start(d, &r, out);
	if (!dg_doca.doca_mmap_set_dmabuf_memrange)
		rc = dg_fail(EOPNOTSUPP, "the installed DOCA has no doca_mmap_set_dmabuf_memrange");
	else if (t->fd < 0)
		rc = dg_cuda_dmabuf(m, &t->fd, &t->offset);
	r.fd = t->fd;
	r.offset = t->offset;
	if (!rc)
		rc = start(d, &r, out);
	if (!rc)
		return 0;
	rc = by_address(d, &r, out, rc);
	t->by_address = !rc;
	return rc;
}

/* Creates another map of the memory of t. Called with the device's lock held. */
static int map_own(struct doca *d, struct doca_mapped *t, const dg_memory *m, uint32_t perms,
		   struct doca_mmap **out)
{
	const struct range r = {.addr = m->addr, .size = m->size, .permissions = perms, .fd = -1};
	return m->kind == DG_KIND_HOST ? start(d, &r, out) : map_gpu(d, t, m, perms, out);
}

/* Returns the errno for those errors of an import that concern the exporter or the descriptor, and
 * 0 for others. */
static int import_errno(doca_error_t e)
{
	switch (e) {
	case DOCA_ERROR_INVALID_VALUE:
	case DOCA_ERROR_UNSUPPORTED_VERSION:
		return EBADMSG;
	case DOCA_ERROR_TIME_OUT:
		return ETIMEDOUT;
	case DOCA_ERROR_NOT_FOUND:
	case DOCA_ERROR_NOT_CONNECTED:
	case DOCA_ERROR_CONNECTION_RESET:
	case DOCA_ERROR_CONNECTION_ABORTED:
	case DOCA_ERROR_SHUTDOWN:
		return ENOTCONN;
	default:
		return 0;
	}
}

/* Checks that the map's range is the one in the blob, if DOCA reports a range. */
static int check_range(const struct doca_mmap *map, uint64_t addr, uint64_t size)
{
	void *start = NULL;
	size_t len = 0;
	if (!dg_doca.doca_mmap_get_memrange || dg_doca.doca_mmap_get_memrange(map, &start, &len))
		return 0;
	if ((uintptr_t)start == addr && len >= size)
		return 0;
	return dg_fail(EBADMSG,
		       "the descriptor was altered: it describes %" PRIu64 " bytes at %#" PRIx64
		       ", and DOCA's export has %zu at %p",
		       size, addr, len, start);
}

static int map_export(struct doca *d, struct doca_mapped *t, const struct dg_descriptor *from,
		      const dg_memory *m, struct dg_region_entry *entry)
{
	uint64_t addr;
	if (from->blob_length <= BLOB_HEAD)
		return dg_fail(EBADMSG, "the descriptor has no DOCA export");
	if (!d->can_import)
		return dg_fail(EOPNOTSUPP, "this device cannot import the exports of others "
					   "(doca_mmap_cap_is_create_from_export_pci_supported)");
	memcpy(&addr, from->blob, sizeof addr);
	doca_error_t e = dg_doca.doca_mmap_create_from_export(
		NULL, from->blob + BLOB_HEAD, from->blob_length - BLOB_HEAD, d->dev, &t->mmap);
	int rc = e ? dg_doca_fail(import_errno(e), "doca_mmap_create_from_export", e)
		   : check_range(t->mmap, addr, m->size);
	if (rc && !e)
		dg_doca_map_free(t->mmap);
	entry->base = (char *)(uintptr_t)addr;
	return rc;
}

int dg_doca_map(struct dg_device *dev, void *state, struct dg_region *r, const dg_memory *m,
		struct dg_region_entry *entry)
{
	struct doca *d = state;
	int rc;
	if (!m->addr && !r->descriptor)
		return dg_fail(EOPNOTSUPP,
			       "the region is GPU memory that its owner did not register with the "
			       "provider %s: register it there with Device('%s')",
			       dev->blob_provider, dev->blob_provider);
	struct doca_mapped *t = calloc(1, sizeof *t);
	if (!t)
		return dg_fail(ENOMEM, "out of memory for a mapping");
	t->fd = -1;
	/* Host memory of this process is reported as mapped. */
	entry->method = m->addr && m->kind == DG_KIND_HOST ? DG_METHOD_MAP : DG_METHOD_DOCA;
	pthread_mutex_lock(&d->lock);
	if (m->addr) {
		entry->base = m->addr;
		rc = map_own(d, t, m, doca_permissions(d, entry->access, !entry->remote), &t->mmap);
	} else {
		rc = map_export(d, t, r->descriptor, m, entry);
	}
	pthread_mutex_unlock(&d->lock);
	if (!rc) {
		r->provider_state = t;
		return 0;
	}
	if (t->fd >= 0)
		close(t->fd);
	free(t);
	return rc;
}

void dg_doca_unmap(struct dg_device *dev, void *state, struct dg_region *r)
{
	struct doca *d = state;
	struct doca_mapped *t = r->provider_state;
	(void)dev;
	if (r->entry) /* otherwise it was never in the region table, and no queue used it */
		dg_doca_release_region(d, r->index);
	pthread_mutex_lock(&d->lock);
	dg_doca_map_free(t->readonly);
	dg_doca_map_free(t->mmap);
	pthread_mutex_unlock(&d->lock);
	if (t->fd >= 0)
		close(t->fd);
	free(t);
}

/* Returns in *out the map to export: that of the region, or a read-only one. */
static int exportable(struct doca *d, struct dg_region *r, uint32_t access, struct doca_mmap **out)
{
	struct doca_mapped *t = r->provider_state;
	int rc = 0;
	if (!(r->access & DG_ACCESS_WRITE) || (access & DG_ACCESS_WRITE)) {
		*out = t->mmap;
		return 0;
	}
	if (!t->readonly)
		rc = map_own(d, t, &r->memory, doca_permissions(d, DG_ACCESS_READ, true),
			     &t->readonly);
	*out = t->readonly;
	return rc;
}

int dg_doca_export(struct dg_device *dev, void *state, struct dg_region *r, uint32_t access,
		   struct dg_descriptor *out)
{
	struct doca *d = state;
	struct doca_mmap *map = NULL;
	const void *bytes = NULL;
	size_t size = 0;
	uint64_t addr = (uintptr_t)r->memory.addr;
	/* A function of the DPU may not support exports: a descriptor without a blob works on this
	 * machine only. */
	if (!d->can_export)
		return 0;
	pthread_mutex_lock(&d->lock);
	int rc = exportable(d, r, access, &map);
	doca_error_t e = rc ? 0 : dg_doca.doca_mmap_export_pci(map, d->dev, &bytes, &size);
	pthread_mutex_unlock(&d->lock);
	if (rc || e)
		return rc ? rc : dg_doca_fail(DG_REASON_BLUEFIELD_MODE, "doca_mmap_export_pci", e);
	if (size > sizeof out->blob - BLOB_HEAD)
		return dg_fail(DG_REASON_DOCA_EXPORT_SIZE,
			       "DOCA's export has %zu bytes, but a descriptor has room for %zu",
			       size, sizeof out->blob - BLOB_HEAD);
	snprintf((char *)out->provider, sizeof out->provider, "%s", dev->blob_provider);
	memcpy(out->blob, &addr, BLOB_HEAD);
	memcpy(out->blob + BLOB_HEAD, bytes, size);
	out->blob_length = (uint16_t)(BLOB_HEAD + size);
	return 0;
}
