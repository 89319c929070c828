// SPDX-License-Identifier: Apache-2.0
/*
 * Memory maps. A started map is registered with the engine of each of its devices, in place.
 * Sources: "DOCA Mmap" is the published reference of that library; "guess" marks an assumption that
 * no published source confirms.
 */
#include "memory.h"

#include <errno.h>
#include <stdlib.h>

#include "base/frame_keys.h"
#include "copy.h"

#define LOCAL_WRITE DOCA_ACCESS_FLAG_LOCAL_READ_WRITE
#define WRITES                                                                      \
	(LOCAL_WRITE | DOCA_ACCESS_FLAG_RDMA_WRITE | DOCA_ACCESS_FLAG_RDMA_ATOMIC | \
	 DOCA_ACCESS_FLAG_PCI_READ_WRITE)
#define ALL_FLAGS 0x7fu

void mmap_lock(struct doca_mmap *m)
{
	if (m->thread_safe)
		pthread_mutex_lock(&m->lock);
}

void mmap_unlock(struct doca_mmap *m)
{
	if (m->thread_safe)
		pthread_mutex_unlock(&m->lock);
}

uint32_t mmap_access(uint32_t permissions)
{
	return DG_ACCESS_READ | (permissions & WRITES ? DG_ACCESS_WRITE : 0);
}

struct doca_mmap *mmap_new(void)
{
	struct doca_mmap *m = softdoca_object_new(OBJECT_MMAP, sizeof *m);
	if (!m)
		return NULL;
	m->permissions = LOCAL_WRITE;
	m->dmabuf_fd = m->gpu.fd = -1;
	m->max_attached = MMAP_DEVS_MAX;
	pthread_mutex_init(&m->lock, NULL);
	pthread_mutex_init(&m->key_lock, NULL);
	return m;
}

doca_error_t doca_mmap_create(struct doca_mmap **mmap)
{
	CHECK_OUT(mmap);
	struct doca_mmap *m = mmap_new();
	if (!m)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a memory map");
	*mmap = m;
	return DOCA_SUCCESS;
}

struct attachment *softdoca_mmap_attachment(const struct doca_mmap *m, const struct doca_dev *dev)
{
	if (!mmap_started(m))
		return NULL;
	for (uint32_t i = 0; i < m->n_attached; i++)
		if (m->attached[i].dev == dev)
			return (struct attachment *)&m->attached[i];
	return NULL;
}

/* Registers the map's host memory with a device's engine. The program may unmap or protect its own
 * memory at any time, so it is copied by system calls, which fail instead of raising a signal.
 * Memory allocated by dgkit and the window of a udmabuf stay mapped and are copied directly. */
static int register_host(const struct doca_mmap *m, dg_device *engine, dg_region **out)
{
	const char *share = getenv("SOFTDOCA_SHARE_PROCESS");
	dg_memory mem = {.addr = m->base, .size = m->len, .fd = -1};
	if (share && !strcmp(share, "1") && !m->window)
		mem.flags |= DG_MEMORY_SHARE_PROCESS;
	if (!m->window && !dg_memory_is_own(m->base, m->len))
		mem.flags |= DG_MEMORY_MAY_FAULT;
	return dg_region_register(engine, &mem, mmap_access(m->permissions), out);
}

/* Pins the map's host memory for the GPU of a device, because a task copies between it and GPU
 * memory. Pinned memory stays accessible to the GPU when the program unmaps it. */
static int register_pinned(const struct doca_mmap *m, dg_device *gpu, dg_region **out)
{
	dg_memory mem = {.addr = m->base, .size = m->len, .fd = -1};
	return dg_region_register(gpu, &mem, mmap_access(m->permissions), out);
}

static dg_region *make_for_gpu(struct doca_mmap *m, struct attachment *a)
{
	dg_region *r = NULL;
	dg_device *gpu = softdoca_dev_gpu(a->dev, NULL);
	if (!gpu)
		return NULL;
	int rc = m->from_export ? dg_region_import(gpu, a->desc[0].bytes, a->desc[0].len,
						   MMAP_CLOSE_NS, &r)
				: register_pinned(m, gpu, &r);
	if (rc < 0)
		softdoca_failed(__func__, rc);
	return r;
}

dg_region *softdoca_mmap_for_gpu(struct doca_mmap *m, struct attachment *a)
{
	/* acquire: the fields of the region are visible with the pointer */
	dg_region *r = __atomic_load_n(&a->gpu, __ATOMIC_ACQUIRE);
	if (r)
		return r;
	pthread_mutex_lock(&m->lock);
	r = a->gpu;
	if (!r) {
		r = make_for_gpu(m, a);
		__atomic_store_n(&a->gpu, r, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&m->lock);
	return r;
}

static doca_error_t attach_gpu(struct doca_mmap *m, struct attachment *a)
{
	dg_region_info info = {0};
	dg_device *gpu = softdoca_dev_gpu(a->dev, m->gpu.uuid);
	if (!gpu)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "no GPU can access %p", (void *)m->addr);
	int rc = dg_region_register(gpu, &m->gpu, mmap_access(m->permissions), &a->gpu);
	if (!rc)
		rc = dg_region_info_get(a->gpu, &info);
	if (rc < 0)
		return softdoca_failed(__func__, rc);
	if (info.method == DG_METHOD_EXPORT_ONLY)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "%p is on another GPU than the memory before it: in a process a "
			      "device of softdoca uses one GPU",
			      (void *)m->addr);
	return DOCA_SUCCESS;
}

static doca_error_t attach_device(struct doca_mmap *m, struct attachment *a)
{
	if (m->backing == BACKING_GPU)
		return attach_gpu(m, a);
	int rc = register_host(m, a->dev->engine, &a->host);
	return rc < 0 ? softdoca_failed(__func__, rc) : DOCA_SUCCESS;
}

static int close_region(dg_region **r)
{
	int rc = *r ? dg_region_close(*r, MMAP_CLOSE_NS) : 0;
	if (!rc)
		*r = NULL;
	return rc;
}

doca_error_t mmap_detach(struct doca_mmap *m, const char *func)
{
	int rc = 0;
	frame_key_end(m);
	mmap_key_drop(m);
	for (uint32_t i = 0; i < m->n_attached && !rc; i++) {
		struct attachment *a = &m->attached[i];
		rc = close_region(&a->gpu);
		if (!rc)
			rc = close_region(&a->host);
		if (rc)
			break;
		for (uint32_t kind = 0; kind < EXPORT_KINDS; kind++) {
			free(a->desc[kind].bytes);
			a->desc[kind] = (struct export_bytes){0};
		}
	}
	if (!rc)
		return DOCA_SUCCESS;
	softdoca_failed(func, rc);
	return DOCA_ERROR_NOT_PERMITTED; /* DOCA Mmap: deregistration failed */
}

/* ---- configuration ---- */

/* `started` is the error for a started map. */
static doca_error_t may_change(const struct doca_mmap *m, doca_error_t started, const char *func)
{
	if (m->from_export) /* DOCA Mmap, create_from_export: cannot be changed */
		return REFUSE_FOR(func, DOCA_ERROR_NOT_PERMITTED,
				  "the map was created from an export");
	if (m->state == MMAP_STARTED)
		return REFUSE_FOR(func, started, "the map is started");
	return DOCA_SUCCESS;
}

static doca_error_t add_dev(struct doca_mmap *m, struct doca_dev *dev)
{
	/* DOCA Mmap, doca_mmap_add_dev */
	TRY(may_change(m, DOCA_ERROR_NOT_PERMITTED, "doca_mmap_add_dev"));
	for (uint32_t i = 0; i < m->n_attached; i++)
		if (m->attached[i].dev == dev)
			return REFUSE(DOCA_ERROR_ALREADY_EXIST, "the map already has %s",
				      dev->info.f.pci);
	if (m->n_attached == m->max_attached)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "the map has %u devices, its maximum",
			      m->n_attached);
	m->attached[m->n_attached++] = (struct attachment){.dev = dev};
	atomic_fetch_add(&dev->users, 1);
	return DOCA_SUCCESS;
}

doca_error_t doca_mmap_add_dev(struct doca_mmap *mmap, struct doca_dev *dev)
{
	CHECK_MMAP(mmap);
	CHECK_DEV(dev);
	mmap_lock(mmap);
	doca_error_t e = add_dev(mmap, dev);
	mmap_unlock(mmap);
	return e;
}

static doca_error_t rm_dev(struct doca_mmap *m, const struct doca_dev *dev)
{
	/* DOCA Mmap, doca_mmap_rm_dev */
	TRY(may_change(m, DOCA_ERROR_NOT_PERMITTED, "doca_mmap_rm_dev"));
	for (uint32_t i = 0; i < m->n_attached; i++)
		if (m->attached[i].dev == dev) {
			atomic_fetch_sub(&m->attached[i].dev->users, 1);
			m->attached[i] = m->attached[--m->n_attached];
			return DOCA_SUCCESS;
		}
	return REFUSE(DOCA_ERROR_NOT_FOUND, "the map does not have %s", dev->info.f.pci);
}

doca_error_t doca_mmap_rm_dev(struct doca_mmap *mmap, struct doca_dev *dev)
{
	CHECK_MMAP(mmap);
	CHECK_DEV(dev);
	mmap_lock(mmap);
	doca_error_t e = rm_dev(mmap, dev);
	mmap_unlock(mmap);
	return e;
}

doca_error_t mmap_may_take_range(const struct doca_mmap *m, const char *func)
{
	/* DOCA Mmap, doca_mmap_set_memrange and doca_mmap_set_dmabuf_memrange */
	doca_error_t e = may_change(m, DOCA_ERROR_BAD_STATE, func);
	if (!e && m->backing != BACKING_NONE)
		e = REFUSE_FOR(func, DOCA_ERROR_NOT_PERMITTED,
			       "the range is already set: %zu bytes at %p", m->len,
			       (void *)m->addr);
	return e;
}

/* DOCA Mmap forbids a second call. Programs make one with the same range, also after that of a dma-buf,
 * which is accepted. */
static doca_error_t set_memrange(struct doca_mmap *m, void *addr, size_t len)
{
	if (m->state != MMAP_STARTED && m->backing != BACKING_NONE && m->addr == addr && m->len == len)
		return DOCA_SUCCESS;
	TRY(mmap_may_take_range(m, "doca_mmap_set_memrange"));
	m->addr = m->base = addr;
	m->len = len;
	m->backing = BACKING_HOST;
	return DOCA_SUCCESS;
}

doca_error_t doca_mmap_set_memrange(struct doca_mmap *mmap, void *addr, size_t len)
{
	CHECK_MMAP(mmap);
	if (!addr || !len || (uintptr_t)addr + len < len)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%zu bytes at %p are not a valid range of memory", len, addr);
	mmap_lock(mmap);
	doca_error_t e = set_memrange(mmap, addr, len);
	mmap_unlock(mmap);
	return e;
}

doca_error_t doca_mmap_set_permissions(struct doca_mmap *mmap, uint32_t access_mask)
{
	CHECK_MMAP(mmap);
	/* DOCA Mmap, doca_mmap_set_permissions, which does not define the valid combinations. */
	if (access_mask & ~ALL_FLAGS)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "permissions %#x are invalid: the known ones are %#x", access_mask,
			      ALL_FLAGS);
	mmap_lock(mmap);
	doca_error_t e = may_change(mmap, DOCA_ERROR_BAD_STATE, __func__);
	if (!e)
		mmap->permissions = access_mask;
	mmap_unlock(mmap);
	return e;
}

doca_error_t doca_mmap_set_free_cb(struct doca_mmap *mmap, doca_mmap_memrange_free_cb_t *free_cb,
				   void *opaque)
{
	CHECK_MMAP(mmap);
	mmap_lock(mmap);
	doca_error_t e = may_change(mmap, DOCA_ERROR_BAD_STATE, __func__);
	if (!e) {
		mmap->free_cb = free_cb; /* NULL removes it: guess */
		mmap->free_opaque = opaque;
	}
	mmap_unlock(mmap);
	return e;
}

doca_error_t doca_mmap_set_user_data(struct doca_mmap *mmap, union doca_data user_data)
{
	CHECK_MMAP(mmap);
	mmap_lock(mmap);
	doca_error_t e = may_change(mmap, DOCA_ERROR_BAD_STATE, __func__);
	if (!e)
		mmap->user_data = user_data;
	mmap_unlock(mmap);
	return e;
}

static doca_error_t set_max(struct doca_mmap *m, uint32_t n)
{
	/* DOCA Mmap, doca_mmap_set_max_num_devices: not after the first start */
	TRY(may_change(m, DOCA_ERROR_NOT_PERMITTED, "doca_mmap_set_max_num_devices"));
	if (m->state != MMAP_NEW)
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "the map was started before");
	if (n > MMAP_DEVS_MAX || n < m->n_attached)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%u devices: it has %u, at most %u can be",
			      n, m->n_attached, MMAP_DEVS_MAX);
	m->max_attached = n;
	return DOCA_SUCCESS;
}

doca_error_t doca_mmap_set_max_num_devices(struct doca_mmap *mmap, uint32_t max_num_devices)
{
	CHECK_MMAP(mmap);
	if (!max_num_devices) /* DOCA Mmap: invalid input */
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "a map of no devices");
	mmap_lock(mmap);
	doca_error_t e = set_max(mmap, max_num_devices);
	mmap_unlock(mmap);
	return e;
}

doca_error_t doca_mmap_enable_thread_safety(struct doca_mmap *mmap)
{
	CHECK_MMAP(mmap);
	doca_error_t e = may_change(mmap, DOCA_ERROR_NOT_PERMITTED, __func__); /* DOCA Mmap */
	if (!e)
		mmap->thread_safe = true;
	return e;
}

/* ---- start, stop, destroy ---- */

/* Checks the range as a device would when it pins the pages. GPU memory is looked up each time,
 * because the program may have freed and reallocated it. */
static doca_error_t check_range(struct doca_mmap *m)
{
	/* DOCA Mmap: the range is mandatory; the error is a guess */
	if (m->backing == BACKING_NONE)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the map has no memory range");
	/* GPU memory in doca_mmap_set_memrange(), as with nvidia-peermem */
	int rc = m->window ? -ENODEV : dmabuf_find_gpu(m);
	if (!rc) {
		if (m->dmabuf_fd < 0)
			softdoca_log(DOCA_LOG_LEVEL_INFO, "doca_mmap_start",
				     "as with nvidia-peermem: %zu bytes at %p are GPU memory by "
				     "their address alone, and move by CUDA",
				     m->len, (void *)m->addr);
		return DOCA_SUCCESS;
	}
	if (m->backing == BACKING_GPU)
		return REFUSE(DOCA_ERROR_DRIVER, "%zu bytes at %p are no longer GPU memory", m->len,
			      (void *)m->addr);
	if (rc == -ERANGE) /* only the start of the range is GPU memory */
		return REFUSE(DOCA_ERROR_DRIVER, "%s", dg_last_error());
	bool write = mmap_access(m->permissions) & DG_ACCESS_WRITE;
	enum range_found found = range_look(m->base, m->len, write);
	if (found == RANGE_OK)
		return DOCA_SUCCESS;
	return REFUSE(DOCA_ERROR_DRIVER, "%zu bytes at %p %s", m->len, (void *)m->base, /* guess */
		      found == RANGE_MISSING ? "are not all mapped"
					     : "are not accessible as the permissions require");
}

static doca_error_t start(struct doca_mmap *m)
{
	/* DOCA Mmap, doca_mmap_start. BAD_STATE for a second start: guess */
	doca_error_t e = may_change(m, DOCA_ERROR_BAD_STATE, "doca_mmap_start");
	if (!e)
		e = check_range(m);
	for (uint32_t i = 0; i < m->n_attached && !e; i++)
		e = attach_device(m, &m->attached[i]);
	if (e) {
		if (m->state != MMAP_STARTED)
			mmap_detach(m, "doca_mmap_start");
		return e;
	}
	/* PCI_READ_WRITE also lets this process's devices write: programs that copy into such a map
	 * are known to run on hardware. */
	m->writable = m->permissions & (LOCAL_WRITE | DOCA_ACCESS_FLAG_PCI_READ_WRITE);
	/* release: see mmap_started() */
	__atomic_store_n(&m->state, MMAP_STARTED, __ATOMIC_RELEASE);
	return DOCA_SUCCESS;
}

doca_error_t doca_mmap_start(struct doca_mmap *mmap)
{
	CHECK_MMAP(mmap);
	mmap_lock(mmap);
	doca_error_t e = start(mmap);
	mmap_unlock(mmap);
	return e;
}

static doca_error_t no_bufs(const struct doca_mmap *m, const char *func)
{
	uint32_t bufs = atomic_load(&m->bufs);
	if (!bufs)
		return DOCA_SUCCESS;
	return REFUSE_FOR(func, DOCA_ERROR_NOT_PERMITTED,
			  "%u buffers point into the map: return them first", bufs);
}

static doca_error_t stop(struct doca_mmap *m)
{
	/* DOCA Mmap, doca_mmap_stop. Its list of errors says that an exported map is refused, its
	 * text says that stopping ends the exports. This implementation follows the text, also for
	 * maps from an export: NVIDIA's samples stop them before they destroy them. */
	if (m->state != MMAP_STARTED)
		return DOCA_SUCCESS; /* guess: like doca_ctx_stop() of an idle context */
	TRY(no_bufs(m, "doca_mmap_stop"));
	TRY(mmap_detach(m, "doca_mmap_stop"));
	__atomic_store_n(&m->state, MMAP_STOPPED, __ATOMIC_RELEASE);
	m->exported = m->writable = false;
	return DOCA_SUCCESS;
}

doca_error_t doca_mmap_stop(struct doca_mmap *mmap)
{
	CHECK_MMAP(mmap);
	mmap_lock(mmap);
	doca_error_t e = stop(mmap);
	mmap_unlock(mmap);
	return e;
}

doca_error_t doca_mmap_destroy(struct doca_mmap *mmap)
{
	CHECK_MMAP(mmap);
	/* DOCA Mmap, doca_mmap_destroy: stops it; NOT_PERMITTED while buffers point into it */
	doca_error_t e = no_bufs(mmap, __func__);
	if (!e)
		e = mmap_detach(mmap, __func__);
	if (e)
		return e;
	struct doca_mmap was = *mmap;
	for (uint32_t i = 0; i < was.n_attached; i++)
		atomic_fetch_sub(&was.attached[i].dev->users, 1);
	dmabuf_drop(mmap);
	pthread_mutex_destroy(&mmap->lock);
	pthread_mutex_destroy(&mmap->key_lock);
	softdoca_object_free(mmap);
	/* DOCA Mmap, doca_mmap_set_free_cb: if it was started */
	if (was.free_cb && was.state != MMAP_NEW)
		was.free_cb(was.addr, was.len, was.free_opaque);
	return DOCA_SUCCESS;
}
