/* SPDX-License-Identifier: Apache-2.0 */
/* Inventories of buffers, as of DOCA 1.3 to 2.2. Every function returns INVALID_VALUE for an
 * invalid inventory, map, buffer or output pointer. */
#ifndef DOCA_WORKQ_BUF_INVENTORY_H
#define DOCA_WORKQ_BUF_INVENTORY_H

#include <stddef.h>
#include <stdint.h>

#include "doca_buf.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_buf_inventory;
struct doca_mmap;

/* Creates an inventory. The name has no effect; extensions is a sum of doca_buf_extension. Errors:
 * INVALID_VALUE for 0 elements or unknown extensions; NO_MEMORY. */
#if SOFTDOCA_NAMED
doca_error_t doca_buf_inventory_create(const char *name, size_t num_elements, uint32_t extensions,
				       struct doca_buf_inventory **buf_inventory)
	SOFTDOCA_1_3(buf_inventory_create);
#else
DOCA_STABLE
doca_error_t doca_buf_inventory_create(const union doca_data *user_data, size_t num_elements,
		uint32_t extensions, struct doca_buf_inventory **buf_inventory);
#endif

/* Frees the inventory. Errors: IN_USE if a buffer was not returned. */
doca_error_t doca_buf_inventory_destroy(struct doca_buf_inventory *inventory);

doca_error_t doca_buf_inventory_start(struct doca_buf_inventory *inventory);

doca_error_t doca_buf_inventory_stop(struct doca_buf_inventory *inventory);

/* Takes a buffer over [addr, addr + len), which must be in one range of the map: without data, or
 * full of data, or with the given data. Errors: BAD_STATE if inventory or map is not started;
 * INVALID_VALUE if no range of the map has it; NO_MEMORY if all buffers are in use. */
DOCA_STABLE
doca_error_t doca_buf_inventory_buf_by_addr(struct doca_buf_inventory *inventory,
		struct doca_mmap *mmap, void *addr, size_t len, struct doca_buf **buf);

DOCA_STABLE
doca_error_t doca_buf_inventory_buf_by_data(struct doca_buf_inventory *inventory,
		struct doca_mmap *mmap, void *data, size_t data_len, struct doca_buf **buf);

DOCA_STABLE
doca_error_t doca_buf_inventory_buf_by_args(struct doca_buf_inventory *inventory,
		struct doca_mmap *mmap, void *addr, size_t len, void *data, size_t data_len,
		struct doca_buf **buf);

/* Takes a buffer over the same range of the same map with the same data. */
doca_error_t doca_buf_inventory_buf_dup(struct doca_buf_inventory *inventory,
					const struct doca_buf *src_buf, struct doca_buf **dst_buf);

doca_error_t doca_buf_inventory_get_num_elements(const struct doca_buf_inventory *inventory,
						 uint32_t *num_of_elements);

doca_error_t doca_buf_inventory_get_num_free_elements(const struct doca_buf_inventory *inventory,
						      uint32_t *num_of_free_elements);

doca_error_t doca_buf_inventory_get_user_data(const struct doca_buf_inventory *inventory,
					      union doca_data *user_data);

#ifdef __cplusplus
}
#endif

#endif
