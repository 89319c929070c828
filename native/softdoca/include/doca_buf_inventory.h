/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inventories of buffers. All buffers are allocated with the inventory, so taking one costs
 * nanoseconds. Threads may share an inventory, and only one may use a buffer. Every function
 * returns INVALID_VALUE for an invalid inventory, map, buffer or output pointer.
 */
#ifndef DOCA_BUF_INVENTORY_H
#define DOCA_BUF_INVENTORY_H

#include <stddef.h>
#include <stdint.h>

#include "doca_buf.h"
#include "doca_compat.h"
#include "doca_error.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_buf_inventory;
struct doca_mmap;

/* Takes a buffer over [addr, addr + len) of the map, with data. Errors: BAD_STATE if inventory or
 * map is not started; INVALID_VALUE if the buffer exceeds the map or the data exceeds the buffer;
 * NO_MEMORY if all buffers are in use. */
DOCA_STABLE
doca_error_t doca_buf_inventory_buf_get_by_args(struct doca_buf_inventory *inventory,
		struct doca_mmap *mmap, void *addr, size_t len, void *data, size_t data_len,
		struct doca_buf **buf);

/* Creates an inventory. Errors: INVALID_VALUE for 0 elements; NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_buf_inventory_create(size_t num_elements, struct doca_buf_inventory **inventory);

/* Frees the inventory. Errors: IN_USE if a buffer was not returned; the inventory then stays. */
DOCA_STABLE
doca_error_t doca_buf_inventory_destroy(struct doca_buf_inventory *inventory);

/* Starts the inventory: buffers can then be taken. */
DOCA_STABLE
doca_error_t doca_buf_inventory_start(struct doca_buf_inventory *inventory);

/* Stops the inventory: no more buffers can be taken. Buffers in use stay valid. */
DOCA_STABLE
doca_error_t doca_buf_inventory_stop(struct doca_buf_inventory *inventory);

/* Takes a buffer over the same range of the same map with the same data; for a list, a list of
 * such buffers. Errors: BAD_STATE if inventory or map is not started; NOT_PERMITTED if not the
 * first of its list; NO_MEMORY if too few are free. */
DOCA_STABLE
doca_error_t doca_buf_inventory_buf_dup(struct doca_buf_inventory *inventory,
		const struct doca_buf *src_buf, struct doca_buf **dst_buf);

/* Gets the number of buffers. */
DOCA_STABLE
doca_error_t doca_buf_inventory_get_num_elements(const struct doca_buf_inventory *inventory,
		uint32_t *num_of_elements);

/* Gets the number of buffers that can be taken. */
DOCA_STABLE
doca_error_t doca_buf_inventory_get_num_free_elements(const struct doca_buf_inventory *inventory,
		uint32_t *num_of_free_elements);

/* Sets the data that the program associates with the inventory. Errors: BAD_STATE if the inventory
 * is started. */
DOCA_STABLE
doca_error_t doca_buf_inventory_set_user_data(struct doca_buf_inventory *inventory,
		union doca_data user_data);

/* Gets the data that was set; initially 0. */
DOCA_STABLE
doca_error_t doca_buf_inventory_get_user_data(const struct doca_buf_inventory *inventory,
		union doca_data *user_data);

/* Adds buffers. Errors: INVALID_VALUE for 0 buffers; NO_MEMORY, with nothing changed. */
DOCA_EXPERIMENTAL
doca_error_t doca_buf_inventory_expand(struct doca_buf_inventory *inventory, uint32_t num_elements);

/* Moves a buffer to [addr, addr + len) of its map, with data, which is cheaper than taking a new
 * one. Errors: NOT_PERMITTED if it is in a list, has several references, or a submitted task uses
 * it; INVALID_VALUE and BAD_STATE as for doca_buf_inventory_buf_get_by_args(). */
DOCA_EXPERIMENTAL
doca_error_t doca_buf_inventory_buf_reuse_by_args(struct doca_buf *buf, void *addr, size_t len,
		void *data, size_t data_len);

static inline doca_error_t doca_buf_inventory_buf_reuse_by_addr(struct doca_buf *buf, void *addr,
								size_t len)
{
	return doca_buf_inventory_buf_reuse_by_args(buf, addr, len, addr, 0);
}

static inline doca_error_t doca_buf_inventory_buf_reuse_by_data(struct doca_buf *buf, void *data,
								size_t data_len)
{
	return doca_buf_inventory_buf_reuse_by_args(buf, data, data_len, data, data_len);
}

/* Takes a buffer over [addr, addr + len) without data. */
static inline doca_error_t doca_buf_inventory_buf_get_by_addr(struct doca_buf_inventory *inventory,
							      struct doca_mmap *mmap, void *addr,
							      size_t len, struct doca_buf **buf)
{
	return doca_buf_inventory_buf_get_by_args(inventory, mmap, addr, len, addr, 0, buf);
}

/* Takes a buffer over [data, data + data_len), filled with data. */
static inline doca_error_t doca_buf_inventory_buf_get_by_data(struct doca_buf_inventory *inventory,
							      struct doca_mmap *mmap, void *data,
							      size_t data_len, struct doca_buf **buf)
{
	return doca_buf_inventory_buf_get_by_args(inventory, mmap, data, data_len, data, data_len,
						  buf);
}

#ifdef __cplusplus
}
#endif

#endif
