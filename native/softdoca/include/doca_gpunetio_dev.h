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

struct doca_gpu_dev_rdma;

/* The receives of an RDMA context: those of this queue pair, which all its connections use. */
struct doca_gpu_dev_rdma_r {
	struct doca_gpu_dev_rdma *rdma;
	struct doca_gpu_dev_verbs_qp *qp;
};

/* counted: operations that doca_gpu_dev_rdma_wait_all() has counted. */
struct doca_priv_gpu_dev_rdma_connection {
	struct doca_gpu_dev_verbs_qp *qp;
	uint64_t counted;
};

/* An RDMA context: its connections by their numbers, behind this structure. */
struct doca_gpu_dev_rdma {
	struct doca_gpu_dev_rdma_r receives;
	struct doca_priv_gpu_dev_rdma_connection *connections;
	uint64_t count;
};

/* A request of a kernel, or the answer to it. turn: the number of the entry, from 1 on, once it is
 * written. key: in big-endian. peer: a consumer to send to, or the producer received from. */
struct doca_priv_comch_gpu_entry {
	uint64_t addr, user;
	uint32_t key, size, peer, status, imm_len, reserved;
	uint8_t imm[32];
	uint32_t turn, reserved2;
};

/* Rings of `entries`, in host memory: kernels write requests, the library writes answers. The library
 * reads neither this structure nor a size or mask in memory that a kernel can write. status: why there
 * are no more answers, otherwise 0. */
struct doca_priv_comch_gpu_queue {
	struct doca_priv_comch_gpu_entry *requests, *answers;
	uint32_t *status;
	uint32_t entries, reserved;
	uint64_t requested, answered;
};

struct doca_comch_gpu_consumer {
	struct doca_priv_comch_gpu_queue q;
};

struct doca_comch_gpu_producer {
	struct doca_priv_comch_gpu_queue q;
};

DOCA_GPUNETIO_SIZE_IS(struct doca_priv_comch_gpu_entry, 80);

#ifdef __cplusplus
}
#endif
#endif
