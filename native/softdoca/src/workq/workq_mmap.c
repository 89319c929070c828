// SPDX-License-Identifier: Apache-2.0
/* Memory maps of several ranges, each of which is a current map, and buffers in them. */
#include <stdlib.h>

#include "workq.h"

enum { PROPERTY_CHUNKS, PROPERTY_DEVICES }; /* enum doca_mmap_property */
#define MIN_PAGE     4096 /* Mmap 1.5, doca_mmap_populate */
#define EXTENSION_ALL 1u

/* ---- ranges ---- */

static void close_chunk(struct chunk *c)
{
	if (c->map)
		doca_mmap_destroy(c->map);
	c->map = NULL;
}

static doca_error_t open_chunk(const struct wq_mmap *m, struct chunk *c)
{
	/* guess: in 1.3 and 1.5, which have no permissions, the DPU reads and writes exports */
	uint32_t permissions = DOCA_ACCESS_FLAG_LOCAL_READ_WRITE;
	if (m->permissions_set)
		permissions = m->permissions;
	else if (c->exportable)
		permissions |= DOCA_ACCESS_FLAG_PCI_READ_WRITE;
	TRY(doca_mmap_create(&c->map));
	doca_error_t e = doca_mmap_set_memrange(c->map, c->addr, c->len);
	if (!e)
		e = doca_mmap_set_permissions(c->map, permissions);
	for (uint32_t i = 0; i < m->n_devs && !e; i++)
		e = doca_mmap_add_dev(c->map, m->devs[i]);
	if (!e)
		e = doca_mmap_start(c->map);
	if (e)
		close_chunk(c);
	return e;
}

static uint32_t bufs_of(const struct wq_mmap *m)
{
	uint32_t n, all = 0;
	for (const struct chunk *c = m->chunks; c; c = c->next)
		if (c->map && doca_mmap_get_num_bufs(c->map, &n) == DOCA_SUCCESS)
			all += n;
	return all;
}

/* Closes all ranges. Errors: NOT_PERMITTED if buffers point into one. */
static doca_error_t close_all(struct wq_mmap *m, const char *func)
{
	uint32_t n = bufs_of(m);
	if (n)
		return REFUSE_FOR(func, DOCA_ERROR_NOT_PERMITTED,
				  "%u buffers point into the map: return them first", n);
	for (struct chunk *c = m->chunks; c; c = c->next)
		close_chunk(c);
	return DOCA_SUCCESS;
}

static doca_error_t open_all(struct wq_mmap *m)
{
	for (struct chunk *c = m->chunks; c; c = c->next) {
		doca_error_t e = c->map ? DOCA_SUCCESS : open_chunk(m, c);
		if (e) {
			for (c = m->chunks; c; c = c->next)
				close_chunk(c);
			return e;
		}
	}
	return DOCA_SUCCESS;
}

doca_error_t wq_mmap_add(struct wq_mmap *m, void *addr, size_t len, bool exportable)
{
	struct chunk *c = calloc(1, sizeof *c);
	if (!c)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a range");
	*c = (struct chunk){.addr = addr, .len = len, .exportable = exportable};
	if (m->last)
		m->last->next = c;
	else
		m->chunks = c;
	m->last = c;
	m->n_chunks++;
	return DOCA_SUCCESS;
}

/* Removes the last range, which is closed. */
static void drop_last(struct wq_mmap *m)
{
	struct chunk *before = NULL;
	for (struct chunk *c = m->chunks; c != m->last; c = c->next)
		before = c;
	free(m->last);
	m->last = before;
	*(before ? &before->next : &m->chunks) = NULL;
	m->n_chunks--;
}

/* ---- maps ---- */

struct wq_mmap *wq_mmap_new(void)
{
	struct wq_mmap *m = softdoca_object_new(OBJECT_WORKQ_MMAP, sizeof *m);
	if (m) {
		m->max_chunks = 1; /* guess: programs with two ranges set it */
		m->max_devs = MMAP_DEVS_MAX;
	}
	return m;
}

DOCA_STABLE doca_error_t wq_mmap_create(const union doca_data *user_data, struct wq_mmap **mmap)
{
	CHECK_OUT(mmap);
	struct wq_mmap *m = wq_mmap_new();
	if (!m)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a memory map");
	if (user_data)
		m->user_data = *user_data;
	*mmap = m;
	return DOCA_SUCCESS;
}
EXPORT(mmap_create);

DOCA_STABLE doca_error_t softdoca_1_3_mmap_create(const char *name, struct wq_mmap **mmap)
{
	(void)name;
	return wq_mmap_create(NULL, mmap);
}

DOCA_STABLE doca_error_t wq_mmap_destroy(struct wq_mmap *mmap)
{
	CHECK_WQ_MMAP(mmap);
	TRY(close_all(mmap, __func__));
	struct chunk *chunks = mmap->chunks;
	for (uint32_t i = 0; i < mmap->n_devs; i++)
		atomic_fetch_sub(&mmap->devs[i]->users, 1);
	free(mmap->export_desc);
	softdoca_object_free(mmap);
	for (struct chunk *c = chunks, *next; c; c = next) {
		next = c->next;
		if (c->free_cb)
			c->free_cb(c->addr, c->len, c->opaque);
		free(c);
	}
	return DOCA_SUCCESS;
}
EXPORT(mmap_destroy);

/* Mmap 1.5: an exported map, or one from an export, cannot be changed. */
static doca_error_t may_change(const struct wq_mmap *m, const char *func)
{
	if (!m->exported && !m->from_export)
		return DOCA_SUCCESS;
	return REFUSE_FOR(func, DOCA_ERROR_NOT_PERMITTED, "the map was %s",
			  m->exported ? "exported" : "created from an export");
}

DOCA_STABLE doca_error_t wq_mmap_start(struct wq_mmap *mmap)
{
	CHECK_WQ_MMAP(mmap);
	doca_error_t e = may_change(mmap, __func__);
	if (!e)
		e = open_all(mmap);
	if (!e)
		mmap->started = mmap->ever_started = true;
	return e;
}
EXPORT(mmap_start);

DOCA_STABLE doca_error_t wq_mmap_stop(struct wq_mmap *mmap)
{
	CHECK_WQ_MMAP(mmap);
	doca_error_t e = close_all(mmap, __func__);
	if (!e)
		mmap->started = mmap->exported = false;
	return e;
}
EXPORT(mmap_stop);

/* Registers a started map's ranges again: the current API adds devices only to a map that is not
 * started. */
static doca_error_t reopen(struct wq_mmap *m, const char *func)
{
	if (!m->started || !m->chunks)
		return DOCA_SUCCESS;
	doca_error_t e = close_all(m, func);
	return e || !m->n_devs ? e : open_all(m);
}

DOCA_STABLE doca_error_t doca_mmap_dev_add(struct wq_mmap *mmap, struct doca_dev *dev)
{
	CHECK_WQ_MMAP(mmap);
	CHECK_DEV(dev);
	TRY(may_change(mmap, __func__));
	for (uint32_t i = 0; i < mmap->n_devs; i++)
		if (mmap->devs[i] == dev) /* Mmap 1.5 */
			return REFUSE(DOCA_ERROR_IN_USE, "the map has %s", dev->info.f.pci);
	if (mmap->n_devs == mmap->max_devs) /* Mmap 1.5 */
		return REFUSE(DOCA_ERROR_NO_MEMORY, "the map has %u devices, its maximum",
			      mmap->n_devs);
	mmap->devs[mmap->n_devs++] = dev;
	doca_error_t e = reopen(mmap, __func__);
	if (e)
		mmap->n_devs--;
	else
		atomic_fetch_add(&dev->users, 1);
	return e;
}

DOCA_STABLE doca_error_t doca_mmap_dev_rm(struct wq_mmap *mmap, struct doca_dev *dev)
{
	CHECK_WQ_MMAP(mmap);
	CHECK_DEV(dev);
	TRY(may_change(mmap, __func__));
	uint32_t i = 0;
	while (i < mmap->n_devs && mmap->devs[i] != dev)
		i++;
	if (i == mmap->n_devs) /* Mmap 1.5 */
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the map does not have %s",
			      dev->info.f.pci);
	mmap->devs[i] = mmap->devs[--mmap->n_devs];
	doca_error_t e = reopen(mmap, __func__);
	if (e) {
		mmap->devs[mmap->n_devs++] = mmap->devs[i];
		mmap->devs[i] = dev;
	} else {
		atomic_fetch_sub(&dev->users, 1);
	}
	return e;
}

static bool overlaps_chunk(const struct wq_mmap *m, const char *addr, size_t len)
{
	for (const struct chunk *c = m->chunks; c; c = c->next)
		if (addr < c->addr + c->len && c->addr < addr + len)
			return true;
	return false;
}

static bool is_range(const void *addr, size_t len)
{
	return addr && len && (uintptr_t)addr + len >= len;
}
#define NO_RANGE "%zu bytes at %p are not a valid range of memory"

DOCA_STABLE doca_error_t doca_mmap_populate(struct wq_mmap *mmap, void *addr, size_t len,
					    size_t pg_sz, doca_mmap_memrange_free_cb_t *free_cb,
					    void *opaque)
{
	CHECK_WQ_MMAP(mmap);
	if (!is_range(addr, len))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, NO_RANGE, len, addr);
	if (pg_sz < MIN_PAGE || pg_sz & (pg_sz - 1)) /* Mmap 1.5 */
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "pages of %zu bytes: a power of two from %d is needed", pg_sz,
			      MIN_PAGE);
	TRY(may_change(mmap, __func__));
	if (!mmap->started || overlaps_chunk(mmap, addr, len)) /* Mmap 1.5 */
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "the map %s",
			      mmap->started ? "has a range that overlaps" : "is not started");
	if (mmap->n_chunks >= mmap->max_chunks) /* Mmap 1.5 */
		return REFUSE(DOCA_ERROR_NO_MEMORY, "the map has %u ranges, its maximum",
			      mmap->n_chunks);
	TRY(wq_mmap_add(mmap, addr, len, true));
	doca_error_t e = open_chunk(mmap, mmap->last);
	if (e) {
		drop_last(mmap);
		return e;
	}
	mmap->last->free_cb = free_cb;
	mmap->last->opaque = opaque;
	return DOCA_SUCCESS;
}

static doca_error_t before_start(const struct wq_mmap *m, const char *func)
{
	doca_error_t e = may_change(m, func);
	if (!e && m->started)
		e = REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, "the map is started");
	return e;
}

DOCA_STABLE doca_error_t wq_mmap_set_memrange(struct wq_mmap *mmap, void *addr, size_t len)
{
	CHECK_WQ_MMAP(mmap);
	if (!is_range(addr, len))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, NO_RANGE, len, addr);
	TRY(before_start(mmap, __func__));
	if (!mmap->chunks)
		return wq_mmap_add(mmap, addr, len, false);
	if (mmap->chunks->addr == addr && mmap->chunks->len == len)
		return DOCA_SUCCESS;
	return REFUSE(DOCA_ERROR_NOT_PERMITTED, "the range is already set: %zu bytes at %p",
		      mmap->chunks->len, (void *)mmap->chunks->addr);
}
EXPORT(mmap_set_memrange);

DOCA_STABLE doca_error_t wq_mmap_set_free_cb(struct wq_mmap *mmap,
					     doca_mmap_memrange_free_cb_t *free_cb, void *opaque)
{
	CHECK_WQ_MMAP(mmap);
	TRY(before_start(mmap, __func__));
	if (!mmap->chunks) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "set the range of memory first");
	mmap->chunks->free_cb = free_cb;
	mmap->chunks->opaque = opaque;
	return DOCA_SUCCESS;
}
EXPORT(mmap_set_free_cb);

DOCA_STABLE doca_error_t wq_mmap_set_permissions(struct wq_mmap *mmap, uint32_t access_mask)
{
	const uint32_t known = (DOCA_ACCESS_FLAG_PCI_READ_WRITE << 1) - 1;
	CHECK_WQ_MMAP(mmap);
	if (access_mask & ~known)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "permissions %#x are invalid: the known ones are %#x", access_mask,
			      known);
	doca_error_t e = before_start(mmap, __func__);
	if (!e) {
		mmap->permissions = access_mask;
		mmap->permissions_set = true;
	}
	return e;
}
EXPORT(mmap_set_permissions);

/* ---- attributes ---- */

static doca_error_t set_max(struct wq_mmap *m, uint32_t *max, uint32_t least, uint32_t most,
			    uint32_t n, const char *func)
{
	TRY(may_change(m, func));
	if (m->ever_started) /* Mmap 1.5 */
		return REFUSE_FOR(func, DOCA_ERROR_NOT_PERMITTED, "the map was started before");
	if (!n || n < least || n > most)
		return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE, "%u: it must be %u to %u", n,
				  least ? least : 1, most);
	*max = n;
	return DOCA_SUCCESS;
}

DOCA_STABLE doca_error_t doca_mmap_set_max_num_chunks(struct wq_mmap *mmap, uint32_t max_num_chunks)
{
	CHECK_WQ_MMAP(mmap);
	return set_max(mmap, &mmap->max_chunks, mmap->n_chunks, UINT32_MAX, max_num_chunks,
		       __func__);
}

DOCA_STABLE doca_error_t wq_mmap_set_max_num_devices(struct wq_mmap *mmap, uint32_t max_num_devices)
{
	CHECK_WQ_MMAP(mmap);
	return set_max(mmap, &mmap->max_devs, mmap->n_devs, MMAP_DEVS_MAX, max_num_devices,
		       __func__);
}
EXPORT(mmap_set_max_num_devices);

DOCA_STABLE doca_error_t doca_mmap_property_set(struct wq_mmap *mmap, int property,
						const uint8_t *value, uint32_t size)
{
	CHECK_WQ_MMAP(mmap);
	if (!value || size != sizeof(uint32_t) || property < PROPERTY_CHUNKS ||
	    property > PROPERTY_DEVICES)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "attribute %d of %u bytes at %p: 0 or 1 of 4 bytes are known",
			      property, size, (const void *)value);
	uint32_t n = *(const uint32_t *)value;
	return property == PROPERTY_CHUNKS ? doca_mmap_set_max_num_chunks(mmap, n)
					   : wq_mmap_set_max_num_devices(mmap, n);
}

DOCA_STABLE GETTER(doca_mmap_get_max_num_chunks, CHECK_WQ_MMAP, struct wq_mmap, uint32_t,
		   handle->max_chunks)
DOCA_STABLE GETTER(wq_mmap_get_max_num_devices, CHECK_WQ_MMAP, struct wq_mmap, uint32_t,
		   handle->max_devs)
EXPORT(mmap_get_max_num_devices);

DOCA_STABLE GETTER(wq_mmap_get_user_data, CHECK_WQ_MMAP, struct wq_mmap, union doca_data,
		   handle->user_data)
EXPORT(mmap_get_user_data);

DOCA_STABLE GETTER(wq_mmap_get_num_bufs, CHECK_WQ_MMAP, struct wq_mmap, uint32_t, bufs_of(handle))
EXPORT(mmap_get_num_bufs);

DOCA_STABLE GETTER(wq_mmap_get_exported, CHECK_WQ_MMAP, struct wq_mmap, uint8_t, handle->exported)
EXPORT(mmap_get_exported);

DOCA_STABLE GETTER(wq_mmap_get_from_export, CHECK_WQ_MMAP, struct wq_mmap, uint8_t,
		   handle->from_export)
EXPORT(mmap_get_from_export);

DOCA_STABLE doca_error_t wq_mmap_get_memrange(struct wq_mmap *mmap, void **addr, size_t *len)
{
	CHECK_WQ_MMAP(mmap);
	CHECK_OUT(addr);
	CHECK_OUT(len);
	if (!mmap->chunks) /* as in the current API */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the map has no memory range yet");
	*addr = mmap->chunks->addr;
	*len = mmap->chunks->len;
	return DOCA_SUCCESS;
}
EXPORT(mmap_get_memrange);

/* ---- buffers ---- */

DOCA_STABLE doca_error_t wq_buf_inventory_create(const union doca_data *user_data,
						 size_t num_elements, uint32_t extensions,
						 struct doca_buf_inventory **buf_inventory)
{
	if (extensions & ~EXTENSION_ALL)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "extensions %#x: the known one is %#x",
			      extensions, EXTENSION_ALL);
	doca_error_t e = doca_buf_inventory_create(num_elements, buf_inventory);
	return e || !user_data ? e : doca_buf_inventory_set_user_data(*buf_inventory, *user_data);
}
EXPORT(buf_inventory_create);

DOCA_STABLE doca_error_t softdoca_1_3_buf_inventory_create(const char *name, size_t num_elements,
							   uint32_t extensions,
							   struct doca_buf_inventory **inventory)
{
	(void)name;
	return wq_buf_inventory_create(NULL, num_elements, extensions, inventory);
}

DOCA_STABLE doca_error_t doca_buf_inventory_buf_by_args(struct doca_buf_inventory *inventory,
							struct wq_mmap *mmap, void *addr,
							size_t len, void *data, size_t data_len,
							struct doca_buf **buf)
{
	CHECK_WQ_MMAP(mmap);
	if (!mmap->started) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the map is not started");
	for (struct chunk *c = mmap->chunks; c; c = c->next)
		if (c->map && range_within(addr, len, c->addr, c->len))
			return doca_buf_inventory_buf_get_by_args(inventory, c->map, addr, len,
								  data, data_len, buf);
	return REFUSE(DOCA_ERROR_INVALID_VALUE, "%zu bytes at %p are in no range of the map", len,
		      addr);
}

DOCA_STABLE doca_error_t doca_buf_inventory_buf_by_addr(struct doca_buf_inventory *inventory,
							struct wq_mmap *mmap, void *addr,
							size_t len, struct doca_buf **buf)
{
	return doca_buf_inventory_buf_by_args(inventory, mmap, addr, len, addr, 0, buf);
}

DOCA_STABLE doca_error_t doca_buf_inventory_buf_by_data(struct doca_buf_inventory *inventory,
							struct wq_mmap *mmap, void *data,
							size_t data_len, struct doca_buf **buf)
{
	return doca_buf_inventory_buf_by_args(inventory, mmap, data, data_len, data, data_len, buf);
}
