/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory maps: memory that devices may reach, of this process or exported by another.
 *
 *   create, set range, permissions, devices -> start -> take buffers, export -> stop or destroy
 *
 * One range a map. A map belongs to one thread at a time, unless doca_mmap_enable_thread_safety();
 * taking buffers over a started map is safe in any number of threads, each with an inventory of
 * its own. Every function gives INVALID_VALUE for what is no map, no device, or no place for its
 * answer. A map that was made of an export is started and stays as it is: what would change it
 * gives NOT_PERMITTED.
 */
#ifndef DOCA_MMAP_H
#define DOCA_MMAP_H

#include <stddef.h>
#include <stdint.h>

#include "doca_compat.h"
#include "doca_error.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_dev;
struct doca_devinfo;
struct doca_mmap;

typedef void(doca_mmap_memrange_free_cb_t)(void *addr, size_t len, void *opaque);

/* The device may reach the memory once the map is started; it cannot be closed as long as it is in
 * a map. NOT_PERMITTED: the map is started. ALREADY_EXIST. NO_MEMORY: as many as the map may
 * have. */
DOCA_STABLE
doca_error_t doca_mmap_add_dev(struct doca_mmap *mmap, struct doca_dev *dev);

/* An empty map, which its devices and this process may read and write. NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_mmap_create(struct doca_mmap **mmap);

/* A started map of what another process, or this one, exported: its addresses are the exporter's.
 * Size and access are what the exporter says now, not what the bytes say. Bytes behind the
 * descriptor are not looked at. user_data may be NULL. INVALID_VALUE: no descriptor, a truncated
 * or an altered one. NOT_SUPPORTED: the device cannot import, or the memory is a GPU's or another
 * machine's and cannot be reached. DRIVER: the exporter is gone, has ended this export, or does
 * not answer. NO_MEMORY, NOT_PERMITTED. */
DOCA_STABLE
doca_error_t doca_mmap_create_from_export(const union doca_data *user_data, const void *export_desc,
		size_t export_desc_len, struct doca_dev *dev, struct doca_mmap **mmap);

/* Stops the map, ends its exports, and frees it; then calls the free callback. NOT_PERMITTED, and
 * the map stays: buffers point into it, or a transfer is still in flight. */
DOCA_STABLE
doca_error_t doca_mmap_destroy(struct doca_mmap *mmap);

/* A descriptor of at most 512 bytes, by which a DPU's process reaches the memory as the PCI
 * permissions say. It is the map's own, and valid until the map is stopped; each call gives the
 * same. NOT_PERMITTED: the map is not started, or has no PCI permission. NOT_FOUND: the map does
 * not have the device. NOT_SUPPORTED: the device cannot export, or nobody else can use this GPU
 * memory. INVALID_VALUE: PCI_RELAXED_ORDERING is set. DRIVER, NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_mmap_export_pci(struct doca_mmap *mmap, const struct doca_dev *dev,
		const void **export_desc, size_t *export_desc_len);

/* [addr, addr + len) of this process, which stays valid until the map is stopped; or of a GPU.
 * Once only. INVALID_VALUE: no range. NOT_PERMITTED: it was set before. BAD_STATE: the map is
 * started. */
DOCA_STABLE
doca_error_t doca_mmap_set_memrange(struct doca_mmap *mmap, void *addr, size_t len);

/* A sum of doca_access_flag. INVALID_VALUE: an unknown flag. BAD_STATE: the map is started. */
DOCA_STABLE
doca_error_t doca_mmap_set_permissions(struct doca_mmap *mmap, uint32_t access_mask);

/* Makes the memory reachable by the map's devices. INVALID_VALUE: it has no range. BAD_STATE: it
 * is started. DRIVER: the memory is not all there, or may not be accessed as the permissions say.
 * NO_MEMORY, NOT_SUPPORTED: a device cannot reach memory of this kind. */
DOCA_STABLE
doca_error_t doca_mmap_start(struct doca_mmap *mmap);

/* Ends the exports; then the map can be changed and started again. SUCCESS, too, if it is not
 * started. NOT_PERMITTED, and the map goes on: buffers point into it, or a transfer is in
 * flight. */
DOCA_STABLE
doca_error_t doca_mmap_stop(struct doca_mmap *mmap);

/* NOT_FOUND: the map does not have it. NOT_PERMITTED: the map is started. */
DOCA_STABLE
doca_error_t doca_mmap_rm_dev(struct doca_mmap *mmap, struct doca_dev *dev);

/* BAD_STATE: no range was set. */
DOCA_STABLE
doca_error_t doca_mmap_get_memrange(const struct doca_mmap *mmap, void **addr, size_t *len);

/* The memory behind a dma-buf: `len` bytes from dmabuf_offset on, to be called addr, addr + 1, ...
 * Once only. The fd may be closed afterwards. A udmabuf is mapped; of GPU memory `addr` is its
 * address there, by which CUDA finds it. INVALID_VALUE: no dma-buf, or bytes that leave it.
 * NOT_SUPPORTED: it cannot be mapped, and addr is no GPU's. NOT_PERMITTED: a range was set before.
 * BAD_STATE: the map is started. */
DOCA_STABLE
doca_error_t doca_mmap_set_dmabuf_memrange(struct doca_mmap *mmap, int dmabuf_fd, void *addr,
		size_t dmabuf_offset, size_t len);

/* Called by doca_mmap_destroy() of a map that was started at least once. NULL: no more. BAD_STATE:
 * the map is started. */
DOCA_STABLE
doca_error_t doca_mmap_set_free_cb(struct doca_mmap *mmap, doca_mmap_memrange_free_cb_t *free_cb,
		void *opaque);

/* BAD_STATE: the map is started. */
DOCA_STABLE
doca_error_t doca_mmap_set_user_data(struct doca_mmap *mmap, union doca_data user_data);

/* 0 if none was set. */
DOCA_STABLE
doca_error_t doca_mmap_get_user_data(const struct doca_mmap *mmap, union doca_data *user_data);

/* Buffers that point into the map: taken, and not given back. */
DOCA_STABLE
doca_error_t doca_mmap_get_num_bufs(const struct doca_mmap *mmap, uint32_t *num_bufs);

/* 1 from the first export until the map is stopped. */
DOCA_STABLE
doca_error_t doca_mmap_get_exported(const struct doca_mmap *mmap, uint8_t *exported);

/* 1 for a map of doca_mmap_create_from_export(). */
DOCA_STABLE
doca_error_t doca_mmap_get_from_export(const struct doca_mmap *mmap, uint8_t *from_export);

DOCA_STABLE
doca_error_t doca_mmap_get_max_num_devices(const struct doca_mmap *mmap, uint32_t *max_num_devices);

/* 1 to 8, and no fewer than the map has. NOT_PERMITTED: after the first start. */
DOCA_STABLE
doca_error_t doca_mmap_set_max_num_devices(struct doca_mmap *mmap, uint32_t max_num_devices);

/* As doca_mmap_export_pci(), for peers of RDMA and by the RDMA permissions. */
DOCA_STABLE
doca_error_t doca_mmap_export_rdma(struct doca_mmap *mmap, const struct doca_dev *dev,
		const void **export_desc, size_t *export_desc_len);

/* 1: doca_mmap_export_pci() works with this device. */
DOCA_STABLE
doca_error_t doca_mmap_cap_is_export_pci_supported(const struct doca_devinfo *devinfo,
		uint8_t *mmap_export);

/* 1: doca_mmap_create_from_export() takes exports for PCI with this device. */
DOCA_STABLE
doca_error_t doca_mmap_cap_is_create_from_export_pci_supported(const struct doca_devinfo *devinfo,
		uint8_t *from_export);

/* From now on any thread may call any function of the map, but for destroy. BAD_STATE: it is
 * started. */
DOCA_EXPERIMENTAL
doca_error_t doca_mmap_enable_thread_safety(struct doca_mmap *mmap);

#ifdef __cplusplus
}
#endif

#endif
