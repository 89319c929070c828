/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ethernet receive queues. With the data path on a GPU (doca_ctx_set_datapath_on_gpu() before
 * doca_ctx_start(), no progress engine) a queue has the type CYCLIC, and kernels receive by
 * doca_gpunetio_dev_eth_rxq.cuh. On the CPU it has a progress engine and another type: see
 * doca_eth_rxq_cpu_data_path.h. Rules of doca_flow.h select the frames, which come from the network
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

enum doca_eth_rxq_data_path_type {
	DOCA_ETH_RXQ_DATA_PATH_TYPE_CPU = 0,
	DOCA_ETH_RXQ_DATA_PATH_TYPE_GPU = 1,
};

/* Get the limits of doca_eth_rxq_create(). */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_cap_get_max_burst_size(const struct doca_devinfo *devinfo,
						 uint32_t *max_burst_size);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_cap_get_max_packet_size(const struct doca_devinfo *devinfo,
						  uint32_t *max_packet_size);
/* Returns SUCCESS for CYCLIC on a GPU, and for the other types on the CPU; otherwise NOT_SUPPORTED. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_cap_is_type_supported(const struct doca_devinfo *devinfo,
						enum doca_eth_rxq_type type,
						enum doca_eth_rxq_data_path_type data_path_type);

/* Creates a queue of at least max_burst_size packets, at most 65,536, of at most max_packet_size bytes
 * each, at most 65,536. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_create(struct doca_dev *dev, uint32_t max_burst_size,
				 uint32_t max_packet_size, struct doca_eth_rxq **eth_rxq);

/* Errors: BAD_STATE if the queue is not idle. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_destroy(struct doca_eth_rxq *eth_rxq);

/* Gets the context; see doca_eth_txq_as_doca_ctx(). Its start also fails with BAD_STATE without memory
 * for packets, or without what receives them; and with NOT_SUPPORTED if the data path does not have the
 * queue's type, or for memory of another kind than that of doca_gpu_mem_alloc() on a GPU, and of the host
 * on the CPU. */
DOCA_EXPERIMENTAL
struct doca_ctx *doca_eth_rxq_as_doca_ctx(struct doca_eth_rxq *eth_rxq);

/* The default is CYCLIC. Errors: INVALID_VALUE. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_set_type(struct doca_eth_rxq *eth_rxq, enum doca_eth_rxq_type type);

/* Gets the size of memory that a queue needs for its packets, whatever their rate and the time that the
 * program needs for one. log_max_lro_pkt_sz has no effect: frames are not joined. A CYCLIC queue has no
 * head_size and no tail_size; a REGULAR one has no memory of its own. Errors: NOT_SUPPORTED. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_estimate_packet_buf_size(enum doca_eth_rxq_type type, uint32_t rate,
						   uint32_t packet_max_process_time,
						   uint32_t max_packet_size, uint32_t max_burst_size,
						   uint8_t log_max_lro_pkt_sz, uint16_t head_size,
						   uint16_t tail_size, uint32_t *buf_size);

#if DOCA_FORM_eth_rxq_estimate_packet_buf_size
static inline doca_error_t softdoca_eth_rxq_estimate_packet_buf_size(
	enum doca_eth_rxq_type type, uint32_t rate, uint32_t packet_max_process_time,
	uint32_t max_packet_size, uint32_t max_burst_size, uint8_t log_max_lro_pkt_sz,
	uint32_t *buf_size)
{
	return doca_eth_rxq_estimate_packet_buf_size(type, rate, packet_max_process_time,
						     max_packet_size, max_burst_size,
						     log_max_lro_pkt_sz, 0, 0, buf_size);
}
#define doca_eth_rxq_estimate_packet_buf_size softdoca_eth_rxq_estimate_packet_buf_size
#endif

/* Sets the memory for packets: `size` bytes of a started map, at an offset. Errors: BAD_STATE; TOO_BIG
 * if the map is smaller. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_set_pkt_buf(struct doca_eth_rxq *eth_rxq, struct doca_mmap *mmap,
				      uint32_t mmap_offset, uint32_t mmap_len);

/* Gives the queue the number by which rules select it. Errors: BAD_STATE unless it is started;
 * ALREADY_EXIST if another queue of the device has the number. */
DOCA_EXPERIMENTAL
DOCA_OF_eth_rxq_apply_queue_id
doca_error_t doca_eth_rxq_apply_queue_id(struct doca_eth_rxq *eth_rxq, uint16_t queue_id);

/* Gets the queue's number, by default the first that no queue of the device has. Errors: BAD_STATE unless
 * it is started; FULL if all numbers are taken. */
DOCA_EXPERIMENTAL
DOCA_OF_eth_rxq_get_flow_queue_id
doca_error_t doca_eth_rxq_get_flow_queue_id(struct doca_eth_rxq *eth_rxq, uint16_t *flow_queue_id);

#ifdef __cplusplus
}
#endif

/* Programs call its functions with this header alone. */
#include "doca_eth_rxq_gpu_data_path.h"

#endif
