/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory maps: memory of this process, or memory exported by another process, that devices may
 * access.
 *
 *   create, set range, permissions, devices -> start -> take buffers, export -> stop or destroy
 *
 * A map has one range. Only one thread at a time may use a map, unless
 * doca_mmap_enable_thread_safety() was called. Any number of threads, each with its own inventory,
 * may take buffers over a started map. Every function returns INVALID_VALUE for an invalid map,
 * device or output pointer. A map created from an export is started and cannot be changed:
 * NOT_PERMITTED.
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

/* Adds a device, which may access the memory once the map is started. It cannot be closed while it
 * is in a map. Errors: NOT_PERMITTED if the map is started; ALREADY_EXIST; NO_MEMORY at the map's
 * limit of devices. */
DOCA_STABLE
doca_error_t doca_mmap_add_dev(struct doca_mmap *mmap, struct doca_dev *dev);

/* Creates an empty map that its devices and this process may read and write. Errors: NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_mmap_create(struct doca_mmap **mmap);

/* Creates a started map of memory that another process, or this one, exported. Its addresses are
 * the exporter's. Size and access are those in the exporter's table, not those in the descriptor.
 * Bytes after the descriptor are ignored. user_data may be NULL. Errors: INVALID_VALUE for a
 * truncated, altered or foreign descriptor; NOT_SUPPORTED if the device cannot import, or the
 * memory is on a GPU or another machine and cannot be reached; DRIVER if the exporter is gone, has
 * ended this export, or does not answer; NO_MEMORY; NOT_PERMITTED. */
DOCA_STABLE
doca_error_t doca_mmap_create_from_export(const union doca_data *user_data, const void *export_desc,
		size_t export_desc_len, struct doca_dev *dev, struct doca_mmap **mmap);

/* Stops the map, ends its exports and frees it, then calls the free callback. Errors:
 * NOT_PERMITTED if buffers point into it or a transfer is in flight; the map then stays. */
DOCA_STABLE
doca_error_t doca_mmap_destroy(struct doca_mmap *mmap);

/* Gets a descriptor of at most 512 bytes that gives a process on the DPU the access that the PCI
 * permissions allow. The descriptor belongs to the map and is valid until the map is stopped;
 * repeated calls return the same descriptor. Errors: NOT_PERMITTED if the map is not started or has
 * no PCI permission; NOT_FOUND if the map does not have the device; NOT_SUPPORTED if the device
 * cannot export, or this GPU memory cannot be shared; INVALID_VALUE with PCI_RELAXED_ORDERING;
 * DRIVER; NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_mmap_export_pci(struct doca_mmap *mmap, const struct doca_dev *dev,
		const void **export_desc, size_t *export_desc_len);

/* Sets the range [addr, addr + len) of this process or of a GPU, which must stay valid until the
 * map is stopped. Errors: INVALID_VALUE for an invalid range; NOT_PERMITTED if another range was set
 * before; BAD_STATE if the map is started. */
DOCA_STABLE
doca_error_t doca_mmap_set_memrange(struct doca_mmap *mmap, void *addr, size_t len);

/* Sets the permissions, a sum of doca_access_flag. Errors: INVALID_VALUE for an unknown flag;
 * BAD_STATE if the map is started. */
DOCA_STABLE
doca_error_t doca_mmap_set_permissions(struct doca_mmap *mmap, uint32_t access_mask);

/* Gives the map's devices access to the memory. Errors: INVALID_VALUE without a range; BAD_STATE
 * if started; DRIVER if the memory is not all mapped or not accessible as the permissions require;
 * NO_MEMORY; NOT_SUPPORTED if a device cannot access this kind of memory. */
DOCA_STABLE
doca_error_t doca_mmap_start(struct doca_mmap *mmap);

/* Ends the exports; the map can then be changed and started again. Also returns SUCCESS if the map
 * is not started. A map from an export stays as it is until it is destroyed. Errors: NOT_PERMITTED if buffers point into it or a transfer is in flight; the
 * map then stays started. */
DOCA_STABLE
doca_error_t doca_mmap_stop(struct doca_mmap *mmap);

/* Removes a device. Errors: NOT_FOUND if the map does not have it; NOT_PERMITTED if the map is
 * started. */
DOCA_STABLE
doca_error_t doca_mmap_rm_dev(struct doca_mmap *mmap, struct doca_dev *dev);

/* Gets the range. Errors: BAD_STATE if none was set. */
DOCA_STABLE
doca_error_t doca_mmap_get_memrange(const struct doca_mmap *mmap, void **addr, size_t *len);

/* Sets the range to len bytes of a dma-buf, starting at dmabuf_offset; their addresses start at
 * addr. Allowed once. The fd may be closed afterwards. A udmabuf is mapped; for GPU memory, addr
 * must be the device address, by which CUDA finds the memory. Errors: INVALID_VALUE if the fd is
 * not a dma-buf or the bytes exceed it; NOT_SUPPORTED if it cannot be mapped and addr is not GPU
 * memory; NOT_PERMITTED if a range was set before; BAD_STATE if the map is started. */
DOCA_STABLE
doca_error_t doca_mmap_set_dmabuf_memrange(struct doca_mmap *mmap, int dmabuf_fd, void *addr,
		size_t dmabuf_offset, size_t len);

/* Sets a function that doca_mmap_destroy() calls if the map was ever started; NULL removes it.
 * Errors: BAD_STATE if the map is started. */
DOCA_STABLE
doca_error_t doca_mmap_set_free_cb(struct doca_mmap *mmap, doca_mmap_memrange_free_cb_t *free_cb,
		void *opaque);

/* Sets the data that the program associates with the map. Errors: BAD_STATE if the map is
 * started. */
DOCA_STABLE
doca_error_t doca_mmap_set_user_data(struct doca_mmap *mmap, union doca_data user_data);

/* Gets the data that was set; initially 0. */
DOCA_STABLE
doca_error_t doca_mmap_get_user_data(const struct doca_mmap *mmap, union doca_data *user_data);

/* Gets the number of buffers in use that point into the map. */
DOCA_STABLE
doca_error_t doca_mmap_get_num_bufs(const struct doca_mmap *mmap, uint32_t *num_bufs);

/* Gets 1 from the first export until the map is stopped, otherwise 0. */
DOCA_STABLE
doca_error_t doca_mmap_get_exported(const struct doca_mmap *mmap, uint8_t *exported);

/* Gets 1 for a map created by doca_mmap_create_from_export(), otherwise 0. */
DOCA_STABLE
doca_error_t doca_mmap_get_from_export(const struct doca_mmap *mmap, uint8_t *from_export);

DOCA_STABLE
doca_error_t doca_mmap_get_max_num_devices(const struct doca_mmap *mmap, uint32_t *max_num_devices);

/* Sets the largest number of devices: 1 to 8, and not below the current number. Errors:
 * NOT_PERMITTED after the first start. */
DOCA_STABLE
doca_error_t doca_mmap_set_max_num_devices(struct doca_mmap *mmap, uint32_t max_num_devices);

/* Exports like doca_mmap_export_pci(), but for RDMA peers and with the RDMA permissions. A map from an export for
 * PCI, too: the peers then have the rights of that export. */
DOCA_STABLE
doca_error_t doca_mmap_export_rdma(struct doca_mmap *mmap, const struct doca_dev *dev,
		const void **export_desc, size_t *export_desc_len);

/* Gets 1 if doca_mmap_export_pci() works with this device, otherwise 0. */
DOCA_STABLE
doca_error_t doca_mmap_cap_is_export_pci_supported(const struct doca_devinfo *devinfo,
		uint8_t *mmap_export);

/* Gets 1 if doca_mmap_create_from_export() accepts PCI exports with this device, otherwise 0. */
DOCA_STABLE
doca_error_t doca_mmap_cap_is_create_from_export_pci_supported(const struct doca_devinfo *devinfo,
		uint8_t *from_export);

/* Allows any thread to call any function of the map except destroy. Errors: NOT_PERMITTED if it
 * is started. */
DOCA_EXPERIMENTAL
doca_error_t doca_mmap_enable_thread_safety(struct doca_mmap *mmap);

/* Gets the key of a started map's memory for frames of an Ethernet send queue, which device code passes
 * in big-endian. It lasts until the map is stopped or the memory is freed. Errors: BAD_STATE;
 * NOT_FOUND if the map does not have the device; NOT_SUPPORTED unless it is memory of
 * doca_gpu_mem_alloc(). */
DOCA_EXPERIMENTAL
doca_error_t doca_mmap_get_mkey(struct doca_mmap *mmap, struct doca_dev *dev, uint32_t *mkey);

#ifdef __cplusplus
}
#endif

#endif
