/* SPDX-License-Identifier: Apache-2.0 */
/* GPUNetIO for device code: semaphores. Whoever sees a status also sees what was written before it was
 * set. Functions return INVALID_VALUE for an item that there is not. */
#ifndef DOCA_GPUNETIO_DEV_SEM_CUH
#define DOCA_GPUNETIO_DEV_SEM_CUH

#ifndef __CUDACC_RTC__
#include <cuda.h>

#include <doca_gpunetio.h>
#endif

#include <doca_error.h>
#include <doca_gpunetio_dev_verbs_words.cuh>
#include <doca_gpunetio_sem_dev.h>

DOCA_GPUNETIO_DEVICE uint32_t doca_priv_gpu_dev_semaphore_read(const uint32_t *at)
{
	uint32_t value;
	asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
	return value;
}

DOCA_GPUNETIO_DEVICE doca_error_t
doca_gpu_dev_semaphore_get_status(struct doca_gpu_semaphore_gpu *semaphore, uint32_t item,
				  enum doca_gpu_semaphore_status *status)
{
	if (item >= semaphore->items)
		return DOCA_ERROR_INVALID_VALUE;
	*status = (enum doca_gpu_semaphore_status)doca_priv_gpu_dev_semaphore_read(
		&semaphore->ring[item].status);
	return DOCA_SUCCESS;
}

DOCA_GPUNETIO_DEVICE doca_error_t
doca_gpu_dev_semaphore_set_status(struct doca_gpu_semaphore_gpu *semaphore, uint32_t item,
				  enum doca_gpu_semaphore_status status)
{
	if (item >= semaphore->items)
		return DOCA_ERROR_INVALID_VALUE;
	__threadfence_system(); /* what was written before */
	doca_priv_gpu_dev_verbs_write(&semaphore->ring[item].status, (uint32_t)status);
	return DOCA_SUCCESS;
}

/* Sets packets of a receive queue and a status, and gets the packets of an item if it has this status;
 * otherwise returns NOT_FOUND. */
DOCA_GPUNETIO_DEVICE doca_error_t
doca_gpu_dev_semaphore_set_packet_info(struct doca_gpu_semaphore_gpu *semaphore, uint32_t item,
				       enum doca_gpu_semaphore_status status, uint32_t num_packets,
				       uint64_t doca_gpu_buf_idx_start)
{
	if (item >= semaphore->items)
		return DOCA_ERROR_INVALID_VALUE;
	semaphore->ring[item].packets = num_packets;
	semaphore->ring[item].first = doca_gpu_buf_idx_start;
	return doca_gpu_dev_semaphore_set_status(semaphore, item, status);
}

DOCA_GPUNETIO_DEVICE doca_error_t
doca_gpu_dev_semaphore_get_packet_info_status(struct doca_gpu_semaphore_gpu *semaphore, uint32_t item,
					      enum doca_gpu_semaphore_status status,
					      uint32_t *num_packets,
					      uint64_t *doca_gpu_buf_idx_start)
{
	if (item >= semaphore->items)
		return DOCA_ERROR_INVALID_VALUE;
	if (doca_priv_gpu_dev_semaphore_read(&semaphore->ring[item].status) != (uint32_t)status)
		return DOCA_ERROR_NOT_FOUND;
	*num_packets = semaphore->ring[item].packets;
	*doca_gpu_buf_idx_start = semaphore->ring[item].first;
	return DOCA_SUCCESS;
}

/* Gets the address of an item's memory of the program. */
DOCA_GPUNETIO_DEVICE doca_error_t
doca_gpu_dev_semaphore_get_custom_info_addr(struct doca_gpu_semaphore_gpu *semaphore, uint32_t item,
					    void **custom_info)
{
	if (item >= semaphore->items || !semaphore->infos)
		return DOCA_ERROR_INVALID_VALUE;
	*custom_info = semaphore->infos + (size_t)item * semaphore->info_size;
	return DOCA_SUCCESS;
}

#endif
