/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory maps, as of DOCA 1.3 to 2.2: several ranges of memory, or memory that another process
 * exported, which devices may access.
 *
 *   1.3, 1.5   create -> start -> add devices -> populate with ranges -> take buffers, export
 *   2.0 to 2.2 create, add devices, set one range -> start -> take buffers, export
 *
 * Only one thread at a time may use a map. Every function returns INVALID_VALUE for an invalid map,
 * device or output pointer, and NOT_PERMITTED for a change of a map that was exported or created
 * from an export.
 */
#ifndef DOCA_WORKQ_MMAP_H
#define DOCA_WORKQ_MMAP_H

#include <stddef.h>
#include <stdint.h>

#include "doca_dev.h"
#include "doca_error.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_mmap;

typedef void(doca_mmap_memrange_free_cb_t)(void *addr, size_t len, void *opaque);

/* Attributes of a map in DOCA 1.3, for doca_mmap_property_set(): each a uint32_t. */
enum doca_mmap_property {
	DOCA_MMAP_MAX_NUM_CHUNKS,
	DOCA_MMAP_MAX_NUM_DEVICES,
};

/* Creates an empty map. The name has no effect; user_data may be NULL. Errors: NO_MEMORY. */
#if SOFTDOCA_NAMED
doca_error_t doca_mmap_create(const char *name, struct doca_mmap **mmap)
	SOFTDOCA_1_3(mmap_create);
#else
DOCA_STABLE
doca_error_t doca_mmap_create(const union doca_data *user_data, struct doca_mmap **mmap);
#endif

/* Creates a started map of the memory of an export, at the exporter's addresses. Errors:
 * INVALID_VALUE for a truncated, altered or foreign descriptor; NOT_SUPPORTED if the device cannot
 * import; DRIVER if the exporter is gone; NO_MEMORY. */
#if SOFTDOCA_NAMED
doca_error_t doca_mmap_create_from_export(const char *name, const uint8_t *export_desc,
					  size_t export_desc_len, struct doca_dev *dev,
					  struct doca_mmap **mmap)
	SOFTDOCA_1_3(mmap_create_from_export);
#else
DOCA_STABLE
doca_error_t doca_mmap_create_from_export(const union doca_data *user_data, const void *export_desc,
		size_t export_desc_len, struct doca_dev *dev, struct doca_mmap **mmap);
#endif

/* Frees the map and ends its export, then calls the free callback of each range. Errors:
 * NOT_PERMITTED if buffers point into it. */
DOCA_STABLE
doca_error_t doca_mmap_destroy(struct doca_mmap *mmap);

/* Starts the map. Errors: DRIVER for memory that is not mapped; NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_mmap_start(struct doca_mmap *mmap);

/* Stops the map. Errors: NOT_PERMITTED if buffers point into it. */
DOCA_STABLE
doca_error_t doca_mmap_stop(struct doca_mmap *mmap);

/* Adds a device. Errors: IN_USE if the map has it; NO_MEMORY at the limit of devices. */
DOCA_STABLE
doca_error_t doca_mmap_dev_add(struct doca_mmap *mmap, struct doca_dev *dev);

/* Removes a device. Errors: INVALID_VALUE if the map does not have it; NOT_PERMITTED if buffers
 * point into the map. */
DOCA_STABLE
doca_error_t doca_mmap_dev_rm(struct doca_mmap *mmap, struct doca_dev *dev);

/* Adds a range to a started map. free_cb, which may be NULL, is called when the map is destroyed.
 * Errors: INVALID_VALUE unless pg_sz is a power of two of at least 4096; NOT_PERMITTED if the map
 * is not started or has a range that overlaps; NO_MEMORY at the limit of ranges; DRIVER for memory
 * that is not mapped. */
DOCA_STABLE
doca_error_t doca_mmap_populate(struct doca_mmap *mmap, void *addr, size_t len, size_t pg_sz,
		doca_mmap_memrange_free_cb_t *free_cb, void *opaque);

/* Sets the range of a map that is not started (2.0 to 2.2). Errors: NOT_PERMITTED if another one
 * was set; BAD_STATE if the map is started. */
DOCA_STABLE
doca_error_t doca_mmap_set_memrange(struct doca_mmap *mmap, void *addr, size_t len);

/* Sets the callback that frees the range (2.0 to 2.2). */
DOCA_STABLE
doca_error_t doca_mmap_set_free_cb(struct doca_mmap *mmap, doca_mmap_memrange_free_cb_t *free_cb,
		void *opaque);

/* Sets the permissions, a sum of doca_access_flags (2.0 to 2.2). Otherwise ranges of
 * doca_mmap_populate() can be exported for reading and writing, others not. Errors: BAD_STATE if
 * the map is started. */
DOCA_STABLE
doca_error_t doca_mmap_set_permissions(struct doca_mmap *mmap, uint32_t access_mask);

/* Gets a descriptor of a map of one range, to be freed by free(): a text of JSON with the members
 * addr and len, and its terminating 0. Errors: INVALID_VALUE if the map does not have the device;
 * NOT_PERMITTED if the map is not started or was exported before; NOT_SUPPORTED if the device
 * cannot export, or for another number of ranges; DRIVER; NO_MEMORY. */
#if SOFTDOCA_NAMED
DOCA_STABLE
doca_error_t doca_mmap_export(struct doca_mmap *mmap, const struct doca_dev *dev,
		uint8_t **export_desc, size_t *export_desc_len);
#else
DOCA_STABLE
doca_error_t doca_mmap_export(struct doca_mmap *mmap, const struct doca_dev *dev,
		void **export_desc, size_t *export_desc_len);
#endif

/* The same, with a descriptor that belongs to the map (2.0 to 2.2). */
DOCA_STABLE
doca_error_t doca_mmap_export_dpu(struct doca_mmap *mmap, const struct doca_dev *dev,
		const void **export_desc, size_t *export_desc_len);

/* Sets an attribute of a map that was never started. Errors: INVALID_VALUE for an unknown
 * attribute or another size; NOT_PERMITTED. */
DOCA_STABLE
doca_error_t doca_mmap_property_set(struct doca_mmap *mmap, enum doca_mmap_property property,
		const uint8_t *value, uint32_t size);

DOCA_STABLE
doca_error_t doca_mmap_set_max_num_chunks(struct doca_mmap *mmap, uint32_t max_num_chunks);

DOCA_STABLE
doca_error_t doca_mmap_set_max_num_devices(struct doca_mmap *mmap, uint32_t max_num_devices);

DOCA_STABLE
doca_error_t doca_mmap_get_max_num_chunks(struct doca_mmap *mmap, uint32_t *max_num_chunks);

DOCA_STABLE
doca_error_t doca_mmap_get_max_num_devices(struct doca_mmap *mmap, uint32_t *max_num_devices);

DOCA_STABLE
doca_error_t doca_mmap_get_user_data(struct doca_mmap *mmap, union doca_data *user_data);

/* Gets the number of buffers that point into the map. */
DOCA_STABLE
doca_error_t doca_mmap_get_num_bufs(struct doca_mmap *mmap, uint32_t *num_bufs);

DOCA_STABLE
doca_error_t doca_mmap_get_exported(struct doca_mmap *mmap, uint8_t *exported);

DOCA_STABLE
doca_error_t doca_mmap_get_from_export(struct doca_mmap *mmap, uint8_t *from_export);

/* Gets the first range. Errors: BAD_STATE without one. */
DOCA_STABLE
doca_error_t doca_mmap_get_memrange(struct doca_mmap *mmap, void **addr, size_t *len);

#ifdef __cplusplus
}
#endif

#endif
