/* SPDX-License-Identifier: Apache-2.0 */
/* A semaphore as device code sees it, in softdoca's own format. */
#ifndef DOCA_GPUNETIO_SEM_DEV_H
#define DOCA_GPUNETIO_SEM_DEV_H

#include <doca_gpunetio_verbs_def.h>

#ifdef __cplusplus
extern "C" {
#endif

enum doca_gpu_semaphore_status {
	DOCA_GPU_SEMAPHORE_STATUS_FREE = 0,
	DOCA_GPU_SEMAPHORE_STATUS_READY = 1,
	DOCA_GPU_SEMAPHORE_STATUS_DONE = 2,
	DOCA_GPU_SEMAPHORE_STATUS_HOLD = 3,
	DOCA_GPU_SEMAPHORE_STATUS_ERROR = 4,
	DOCA_GPU_SEMAPHORE_STATUS_EXIT = 5,
};

/* packets, first: of doca_gpu_dev_semaphore_set_packet_info(). status: stored last, with release. */
struct doca_gpu_dev_semaphore_item {
	uint32_t status, packets;
	uint64_t first;
};

struct doca_gpu_semaphore_gpu {
	uint32_t items, info_size;
	struct doca_gpu_dev_semaphore_item *ring;
	uint8_t *infos; /* info_size bytes of the program for each item; NULL: none */
};

DOCA_GPUNETIO_SIZE_IS(struct doca_gpu_dev_semaphore_item, 16);

#ifdef __cplusplus
}
#endif
#endif
