/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of an array (doca_buf_arr_get_gpu_handle()) for device code. */
#ifndef DOCA_GPUNETIO_DEV_BUF_CUH
#define DOCA_GPUNETIO_DEV_BUF_CUH

#ifndef __CUDACC_RTC__
#include <stdio.h>
#endif

#include <doca_gpunetio_dev.h>
#include <doca_error.h>
#include <doca_gpunetio_dev_verbs_words.cuh>

/* Errors: INVALID_VALUE if the array has fewer elements. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_buf_get_buf(const struct doca_gpu_buf_arr *buf_arr,
							   uint64_t buf_idx,
							   struct doca_gpu_buf **buf)
{
	if (buf_idx >= buf_arr->count)
		return DOCA_ERROR_INVALID_VALUE;
	*buf = buf_arr->bufs + buf_idx;
	return DOCA_SUCCESS;
}

DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_buf_get_addr(const struct doca_gpu_buf *buf,
							    uintptr_t *addr)
{
	*addr = (uintptr_t)buf->addr;
	return DOCA_SUCCESS;
}

/* Returns the key as entries have it. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_buf_get_mkey(const struct doca_gpu_buf *buf,
							    uint32_t *mkey)
{
	*mkey = buf->key;
	return DOCA_SUCCESS;
}

/* Finds `size` bytes of a buffer for an entry. Errors: INVALID_VALUE if they exceed the buffer. */
DOCA_GPUNETIO_DEVICE doca_error_t
doca_priv_gpu_dev_buf_part(const struct doca_gpu_buf *buf, uint64_t offset, uint64_t size,
			   struct doca_gpu_dev_verbs_addr *part)
{
	if (offset > buf->size || size > buf->size - offset)
		return DOCA_ERROR_INVALID_VALUE;
	part->addr = buf->addr + offset;
	part->key = buf->key;
	return DOCA_SUCCESS;
}

#endif
