/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs of the software NIC that kernels post to, for contexts with their data path on a GPU
 * (copy/gpu_queue.c). */
#ifndef SOFTDOCA_GPU_QUEUE_H
#define SOFTDOCA_GPU_QUEUE_H

#include "gpu/gpu.h"
#include "nic/soft_nic.h"

struct gpu_queue {
	struct nic_pd *pd;
	dg_nic_cq *cq, *receive_cq; /* NULL: no receives */
	dg_nic_qp *qp;
	struct gpu_memory *rings; /* in host memory, which the GPU reaches */
	struct gpu_memory *structure; /* struct doca_gpu_dev_verbs_qp, in GPU memory; NULL: not open */
};

/* Opens a queue pair that is not connected, with `entries` and `receives`, powers of two (receives: or 0), in
 * the protection domain of the device: its entries name the keys of softdoca_mmap_key(). shared: NULL, or a
 * queue pair whose receives it shares, and that is closed later. rights: enum dg_nic_access, of the peer. */
SOFTDOCA_INTERNAL doca_error_t softdoca_gpu_queue_open(struct gpu_queue *q, struct doca_gpu *gpu,
						       struct doca_dev *dev, uint32_t entries,
						       uint32_t receives, const struct gpu_queue *shared,
						       uint32_t rights);
/* Opens a queue of `entries` that is connected to itself: its entries may access what the map's
 * permissions grant this process. */
doca_error_t gpu_queue_open(struct gpu_queue *q, struct doca_gpu *gpu, struct doca_dev *dev,
			    uint32_t entries);
/* Closes the queue; logs the error of an entry that failed. Once it returns, the NIC accesses none of
 * its memory. */
SOFTDOCA_INTERNAL void softdoca_gpu_queue_close(struct gpu_queue *q);

#endif
