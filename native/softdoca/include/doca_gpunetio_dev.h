/* SPDX-License-Identifier: Apache-2.0 */
/* Own part of these headers: buffers and contexts as device code sees them. The library fills them in.
 */
#ifndef DOCA_GPUNETIO_DEV_H
#define DOCA_GPUNETIO_DEV_H

#include <doca_gpunetio_verbs_dev.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An element of an array. key: its map's key in big-endian, which bounds what the NIC accesses. */
struct doca_gpu_buf {
	uint64_t addr, size;
	__be32 key;
	uint32_t reserved;
};

struct doca_gpu_buf_arr {
	uint64_t count;
	struct doca_gpu_buf *bufs; /* behind this structure */
};

/* A DMA context: a queue pair connected to itself. */
struct doca_gpu_dma {
	struct doca_gpu_dev_verbs_qp qp;
};

#ifdef __cplusplus
}
#endif
#endif
