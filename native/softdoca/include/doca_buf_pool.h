/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools of buffers: the memory of a map in elements of one size, each with its buffer. Threads
 * may share a pool, and only one at a time may use a buffer. Every function returns INVALID_VALUE for an
 * invalid pool, map or output pointer, and doca_buf_dec_refcount() returns a buffer to its pool.
 */
#ifndef DOCA_BUF_POOL_H
#define DOCA_BUF_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "doca_buf.h"
#include "doca_compat.h"
#include "doca_error.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_buf_pool;
struct doca_mmap;

/* Creates a pool. Errors: INVALID_VALUE for 0 elements or elements of 0 bytes; NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_buf_pool_create(size_t num_elements, size_t element_size,
		const struct doca_mmap *mmap, struct doca_buf_pool **buf_pool);

/* Stops and frees the pool. Errors: IN_USE if a buffer was not returned. */
DOCA_STABLE
doca_error_t doca_buf_pool_destroy(struct doca_buf_pool *buf_pool);

/* Starts the pool: buffers can then be taken. Errors: BAD_STATE if the map is not started;
 * INITIALIZATION if its memory is too small. */
DOCA_STABLE
doca_error_t doca_buf_pool_start(struct doca_buf_pool *buf_pool);

/* Stops the pool. Errors: IN_USE if a buffer was not returned. */
DOCA_STABLE
doca_error_t doca_buf_pool_stop(struct doca_buf_pool *buf_pool);

/* Takes a buffer without data. Errors: BAD_STATE if the pool or its map is not started; EMPTY if
 * all buffers are in use. */
DOCA_STABLE
doca_error_t doca_buf_pool_buf_alloc(struct doca_buf_pool *buf_pool, struct doca_buf **buf);

/* Sets the data that the program associates with the pool. Errors: BAD_STATE if it is started. */
DOCA_STABLE
doca_error_t doca_buf_pool_set_user_data(struct doca_buf_pool *buf_pool, union doca_data user_data);

/* Sets the alignment of the elements' addresses; initially 1. Errors: INVALID_VALUE unless a power
 * of two; BAD_STATE if the pool is started. */
DOCA_STABLE
doca_error_t doca_buf_pool_set_element_alignment(struct doca_buf_pool *buf_pool,
		size_t element_alignment);

DOCA_STABLE
doca_error_t doca_buf_pool_get_num_elements(const struct doca_buf_pool *buf_pool,
		uint32_t *num_of_elements);

/* Gets the number of buffers that can be taken. */
DOCA_STABLE
doca_error_t doca_buf_pool_get_num_free_elements(const struct doca_buf_pool *buf_pool,
		uint32_t *num_of_free_elements);

/* Gets the data that was set; initially 0. */
DOCA_STABLE
doca_error_t doca_buf_pool_get_user_data(const struct doca_buf_pool *buf_pool,
		union doca_data *user_data);

DOCA_STABLE
doca_error_t doca_buf_pool_get_element_alignment(const struct doca_buf_pool *buf_pool,
		size_t *element_alignment);

#ifdef __cplusplus
}
#endif

#endif
