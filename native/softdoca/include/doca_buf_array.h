/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays of buffers for kernels: elements of one size, one after the other in a map. A kernel finds
 * them by doca_gpunetio_dev_buf.cuh. The map may be destroyed before the array; what a kernel posts
 * with its buffers then fails.
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

/* Sets the GPU whose kernels use the array. Errors: BAD_STATE if it is started. */
DOCA_EXPERIMENTAL
doca_error_t doca_buf_arr_set_target_gpu(struct doca_buf_arr *buf_arr,
		struct doca_gpu *gpu_handler);

/* Sets the memory of the elements. Errors: INVALID_VALUE if they exceed the map; BAD_STATE if the
 * array is started. */
DOCA_EXPERIMENTAL
doca_error_t doca_buf_arr_set_params(struct doca_buf_arr *buf_arr, struct doca_mmap *mmap,
		size_t elem_size, uint64_t start_offset);

/* Writes the array to the GPU's memory. Errors: BAD_STATE without parameters or GPU, if the map is not
 * started or has no device, or if the array is started; NOT_SUPPORTED for a map from an export;
 * DRIVER if the NIC cannot access the memory; NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_buf_arr_start(struct doca_buf_arr *buf_arr);

/* Ends the use of the handle. No kernel may use it any more. */
DOCA_EXPERIMENTAL
doca_error_t doca_buf_arr_stop(struct doca_buf_arr *buf_arr);

/* Stops the array and frees it. */
DOCA_EXPERIMENTAL
doca_error_t doca_buf_arr_destroy(struct doca_buf_arr *buf_arr);

/* Returns the array for kernels, valid until the array is stopped. Errors: BAD_STATE unless started. */
DOCA_EXPERIMENTAL
doca_error_t doca_buf_arr_get_gpu_handle(const struct doca_buf_arr *buf_arr,
		struct doca_gpu_buf_arr **gpu_buf_arr);

#ifdef __cplusplus
}
#endif

#endif
