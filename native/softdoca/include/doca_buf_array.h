/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays of buffers for the GPU. softdoca has no data path on the GPU: parameters are checked and
 * stored, and functions that need the GPU return NOT_SUPPORTED.
 */
#ifndef DOCA_BUF_ARRAY_H
#define DOCA_BUF_ARRAY_H

#include <stddef.h>
#include <stdint.h>

#include "doca_compat.h"
#include "doca_error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_buf_arr;
struct doca_gpu;
struct doca_gpu_buf_arr;
struct doca_mmap;

/* Creates an array. Errors: INVALID_VALUE for 0 elements; NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_buf_arr_create(size_t num_elem, struct doca_buf_arr **buf_arr);

/* Returns NOT_SUPPORTED. */
DOCA_EXPERIMENTAL
doca_error_t doca_buf_arr_set_target_gpu(struct doca_buf_arr *buf_arr,
		struct doca_gpu *gpu_handler);

/* Sets the memory of the elements. Errors: INVALID_VALUE if they exceed the map. */
DOCA_EXPERIMENTAL
doca_error_t doca_buf_arr_set_params(struct doca_buf_arr *buf_arr, struct doca_mmap *mmap,
		size_t elem_size, uint64_t start_offset);

/* Returns NOT_SUPPORTED: no data path on a GPU. Without parameters: BAD_STATE. */
DOCA_EXPERIMENTAL
doca_error_t doca_buf_arr_start(struct doca_buf_arr *buf_arr);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_arr_stop(struct doca_buf_arr *buf_arr);

DOCA_EXPERIMENTAL
doca_error_t doca_buf_arr_destroy(struct doca_buf_arr *buf_arr);

/* Returns BAD_STATE, as the array cannot be started. */
DOCA_EXPERIMENTAL
doca_error_t doca_buf_arr_get_gpu_handle(const struct doca_buf_arr *buf_arr,
		struct doca_gpu_buf_arr **gpu_buf_arr);

#ifdef __cplusplus
}
#endif

#endif
