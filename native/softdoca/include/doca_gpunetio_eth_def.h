/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of GPUNetIO Ethernet, for C, C++ and CUDA. Where no public source names a value, it is
 * softdoca's own. */
#ifndef DOCA_GPUNETIO_ETH_DEF_H
#define DOCA_GPUNETIO_ETH_DEF_H

#include <doca_gpunetio_verbs_def.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DOCA_GPUNETIO_ETH_WARP_SIZE	 32
#define DOCA_GPUNETIO_ETH_WARP_FULL_MASK 0xffffffffu

/* Who calls a function together: one thread, the 32 lanes of a warp, or all threads of a block. */
enum doca_gpu_dev_eth_exec_scope {
	DOCA_GPUNETIO_ETH_EXEC_SCOPE_THREAD = 0,
	DOCA_GPUNETIO_ETH_EXEC_SCOPE_WARP = 1,
	DOCA_GPUNETIO_ETH_EXEC_SCOPE_BLOCK = 2,
};

/* Who uses a queue at the same time: one thread, the threads of a block, or all threads. */
enum doca_gpu_dev_eth_resource_sharing_mode {
	DOCA_GPUNETIO_ETH_RESOURCE_SHARING_MODE_EXCLUSIVE = 0,
	DOCA_GPUNETIO_ETH_RESOURCE_SHARING_MODE_CTA = 1,
	DOCA_GPUNETIO_ETH_RESOURCE_SHARING_MODE_GPU = 2,
};

/* Without effect in softdoca: the fence before a doorbell is always one of the system. */
enum doca_gpu_dev_eth_sync_scope {
	DOCA_GPUNETIO_ETH_SYNC_SCOPE_SYS = 0,
	DOCA_GPUNETIO_ETH_SYNC_SCOPE_GPU = 1,
	DOCA_GPUNETIO_ETH_SYNC_SCOPE_CTA = 2,
	DOCA_GPUNETIO_ETH_SYNC_SCOPE_THREAD = 3,
};

/* Without effect in softdoca: the GPU stores a producer index, which a thread of the CPU reads. */
enum doca_gpu_dev_eth_nic_handler {
	DOCA_GPUNETIO_ETH_NIC_HANDLER_AUTO = 0,
	DOCA_GPUNETIO_ETH_NIC_HANDLER_CPU_PROXY = 1,
	DOCA_GPUNETIO_ETH_NIC_HANDLER_GPU_SM_DB = 2,
};

/* Without effect in softdoca: packets are in memory before the index that announces them. */
enum doca_gpu_dev_eth_mcst_mode {
	DOCA_GPUNETIO_ETH_MCST_DISABLED = 0,
	DOCA_GPUNETIO_ETH_MCST_ENABLED = 1,
	DOCA_GPUNETIO_ETH_MCST_AUTO = 2,
};

/* What doca_gpu_dev_eth_rxq_recv() stores of each packet. */
enum doca_gpu_dev_eth_rx_attr {
	DOCA_GPUNETIO_ETH_RX_ATTR_NONE = 0,
	DOCA_GPUNETIO_ETH_RX_ATTR_BYTES = 1 << 0,
	DOCA_GPUNETIO_ETH_RX_ATTR_TIMESTAMP = 1 << 1,
	DOCA_GPUNETIO_ETH_RX_ATTR_ALL = 3,
};

/* LAST: the caller waits for the last one of the completions, those before it are then there, too. */
enum doca_gpu_dev_eth_cq_poll_mode { DOCA_GPUNETIO_ETH_CQ_POLL_LAST = 1 };

/* Whether a function waits (B) or returns at once (NB). */
enum doca_gpu_dev_eth_wait_flags {
	DOCA_GPUNETIO_ETH_WAIT_FLAG_NB = 0,
	DOCA_GPUNETIO_ETH_WAIT_FLAG_B = 1,
};

/* NOTIFY: the entry gets a completion. */
enum doca_gpu_eth_send_flags {
	DOCA_GPUNETIO_ETH_SEND_FLAG_NONE = 0,
	DOCA_GPUNETIO_ETH_SEND_FLAG_NOTIFY = 1 << 0,
};

/* The same up to DOCA 3.1. */
#define DOCA_GPU_SEND_FLAG_NONE	     DOCA_GPUNETIO_ETH_SEND_FLAG_NONE
#define DOCA_GPU_SEND_FLAG_NOTIFY    DOCA_GPUNETIO_ETH_SEND_FLAG_NOTIFY
#define DOCA_GPU_ETH_TXQ_WAIT_FLAG_NB DOCA_GPUNETIO_ETH_WAIT_FLAG_NB
#define DOCA_GPU_ETH_TXQ_WAIT_FLAG_B DOCA_GPUNETIO_ETH_WAIT_FLAG_B

/* Index of an entry since the queue's start. */
typedef uint64_t doca_gpu_dev_eth_ticket_t;

/* A received packet. timestamp_ns: when softdoca read it, of CLOCK_REALTIME. */
struct doca_gpu_dev_eth_rxq_attr {
	uint32_t bytes;
	uint64_t timestamp_ns;
};

#ifdef __cplusplus
}
#endif
#endif
