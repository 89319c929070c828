/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ethernet receive queues. In softdoca their data path is on a GPU: doca_ctx_set_datapath_on_gpu()
 * before doca_ctx_start(), without a progress engine; kernels then receive by
 * doca_gpunetio_dev_eth_rxq.cuh. Rules of doca_flow.h select the frames, which come from the network
 * interface that SOFTDOCA_NET names (README.md). A frame for a full queue, or one that is longer than
 * the queue's packets, is dropped and counted. Functions return INVALID_VALUE for an invalid handle or
 * output pointer; setters return BAD_STATE for a started queue.
 */
#ifndef DOCA_ETH_RXQ_H
#define DOCA_ETH_RXQ_H

#include <stdint.h>

#include "doca_compat.h"
#include "doca_ctx.h"
#include "doca_dev.h"
#include "doca_error.h"
#include "doca_mmap.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_eth_rxq;

enum doca_eth_rxq_type {
	DOCA_ETH_RXQ_TYPE_REGULAR = 0,
	DOCA_ETH_RXQ_TYPE_CYCLIC = 1,
	DOCA_ETH_RXQ_TYPE_MANAGED_MEMPOOL = 2,
};

/* Creates a queue of at least max_burst_size packets, at most 65,536, of at most max_packet_size bytes
 * each, at most 65,536. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_create(struct doca_dev *dev, uint32_t max_burst_size,
				 uint32_t max_packet_size, struct doca_eth_rxq **eth_rxq);

/* Errors: BAD_STATE if the queue is not idle. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_destroy(struct doca_eth_rxq *eth_rxq);

/* Gets the context; see doca_eth_txq_as_doca_ctx(). Its start also fails with BAD_STATE without memory
 * for packets, and with NOT_SUPPORTED if that is not memory of doca_gpu_mem_alloc(). */
DOCA_EXPERIMENTAL
struct doca_ctx *doca_eth_rxq_as_doca_ctx(struct doca_eth_rxq *eth_rxq);

/* Errors: NOT_SUPPORTED for other types than CYCLIC, which is the default. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_set_type(struct doca_eth_rxq *eth_rxq, enum doca_eth_rxq_type type);

/* Gets the size of memory that a queue needs for its packets. rate, packet_max_process_time,
 * max_lro_pkt_sz, head_size and tail_size must be 0. Errors: NOT_SUPPORTED. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_estimate_packet_buf_size(enum doca_eth_rxq_type type, uint32_t rate,
						   uint32_t packet_max_process_time,
						   uint32_t max_packet_size, uint32_t max_burst_size,
						   uint8_t log_max_lro_pkt_sz, uint16_t head_size,
						   uint16_t tail_size, uint32_t *buf_size);

/* Sets the memory for packets: `size` bytes of a started map, at an offset. Errors: BAD_STATE; TOO_BIG
 * if the map is smaller. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_set_pkt_buf(struct doca_eth_rxq *eth_rxq, struct doca_mmap *mmap,
				      uint32_t mmap_offset, uint32_t mmap_len);

/* Gives the queue the number by which rules select it. Errors: BAD_STATE unless it is started;
 * ALREADY_EXIST if another queue of the device has the number. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_apply_queue_id(struct doca_eth_rxq *eth_rxq, uint16_t queue_id);

#ifdef __cplusplus
}
#endif

#endif
