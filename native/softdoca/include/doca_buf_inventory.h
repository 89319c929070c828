/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inventories, from which buffers are taken. All its buffers are made when it is, so that taking
 * one costs nanoseconds. An inventory, with the buffers from it, belongs to one thread at a time.
 * Every function gives INVALID_VALUE for what is no inventory, no map, no buffer, or no place for
 * its answer.
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

/* A buffer over [addr, addr + len) of the map, with data. BAD_STATE: inventory or map is not
 * started. INVALID_VALUE: the buffer leaves the map, or the data the buffer. NO_MEMORY: all are in
 * use. */
DOCA_STABLE
doca_error_t doca_buf_inventory_buf_get_by_args(struct doca_buf_inventory *inventory,
		struct doca_mmap *mmap, void *addr, size_t len, void *data, size_t data_len,
		struct doca_buf **buf);

/* INVALID_VALUE: no elements. NO_MEMORY: so many cannot be. */
DOCA_STABLE
doca_error_t doca_buf_inventory_create(size_t num_elements, struct doca_buf_inventory **inventory);

/* IN_USE, and the inventory stays: a buffer was not given back. */
DOCA_STABLE
doca_error_t doca_buf_inventory_destroy(struct doca_buf_inventory *inventory);

/* From now on buffers can be taken. */
DOCA_STABLE
doca_error_t doca_buf_inventory_start(struct doca_buf_inventory *inventory);

/* No more buffers; those that were taken stay what they are. */
DOCA_STABLE
doca_error_t doca_buf_inventory_stop(struct doca_buf_inventory *inventory);

/* The same place in the same map, and the same data; of a list, a list of such. BAD_STATE:
 * inventory or map is not started. NOT_PERMITTED: not the first of its list. NO_MEMORY: too few
 * are free. */
DOCA_STABLE
doca_error_t doca_buf_inventory_buf_dup(struct doca_buf_inventory *inventory,
		const struct doca_buf *src_buf, struct doca_buf **dst_buf);

DOCA_STABLE
doca_error_t doca_buf_inventory_get_num_elements(const struct doca_buf_inventory *inventory,
		uint32_t *num_of_elements);

DOCA_STABLE
doca_error_t doca_buf_inventory_get_num_free_elements(const struct doca_buf_inventory *inventory,
		uint32_t *num_of_free_elements);

/* Sets the program's own data of an inventory, 0 at first. BAD_STATE: the inventory is started. */
DOCA_STABLE
doca_error_t doca_buf_inventory_set_user_data(struct doca_buf_inventory *inventory,
		union doca_data user_data);

DOCA_STABLE
doca_error_t doca_buf_inventory_get_user_data(const struct doca_buf_inventory *inventory,
		union doca_data *user_data);

/* So many buffers more. INVALID_VALUE: none. NO_MEMORY, and nothing changed. */
DOCA_EXPERIMENTAL
doca_error_t doca_buf_inventory_expand(struct doca_buf_inventory *inventory, uint32_t num_elements);

/* The same buffer from now on over [addr, addr + len) of its map, with data: cheaper than a new one.
 * NOT_PERMITTED: it is in a list, has several users, or a task that was submitted uses it.
 * INVALID_VALUE, BAD_STATE: as doca_buf_inventory_buf_get_by_args(). */
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

/* A buffer over [addr, addr + len), empty: its data begins at addr and has no bytes. */
static inline doca_error_t doca_buf_inventory_buf_get_by_addr(struct doca_buf_inventory *inventory,
							      struct doca_mmap *mmap, void *addr,
							      size_t len, struct doca_buf **buf)
{
	return doca_buf_inventory_buf_get_by_args(inventory, mmap, addr, len, addr, 0, buf);
}

/* A buffer over [data, data + data_len), full. */
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
