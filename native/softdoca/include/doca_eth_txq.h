/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ethernet send queues. With the data path on a GPU (doca_ctx_set_datapath_on_gpu() before
 * doca_ctx_start(), no progress engine) kernels send by doca_gpunetio_dev_eth_txq.cuh; on the CPU the
 * program sends by tasks of a progress engine: see doca_eth_txq_cpu_data_path.h. A
 * frame goes out at the network interface that SOFTDOCA_NET names (README.md). Functions return
 * INVALID_VALUE for an invalid handle or output pointer; setters return BAD_STATE for a started queue.
 */
#ifndef DOCA_ETH_TXQ_H
#define DOCA_ETH_TXQ_H

#include <stdint.h>

#include "doca_compat.h"
#include "doca_ctx.h"
#include "doca_dev.h"
#include "doca_error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_eth_txq;

enum doca_eth_wait_on_time_type {
	DOCA_ETH_WAIT_ON_TIME_TYPE_NONE = 0,
	DOCA_ETH_WAIT_ON_TIME_TYPE_NATIVE = 1,
	DOCA_ETH_WAIT_ON_TIME_TYPE_DPDK DOCA_OF_ETH_WAIT_ON_TIME_TYPE_DPDK = 2, /* never */
};

enum doca_eth_txq_type { DOCA_ETH_TXQ_TYPE_REGULAR = 0 };

enum doca_eth_txq_data_path_type {
	DOCA_ETH_TXQ_DATA_PATH_TYPE_CPU = 0,
	DOCA_ETH_TXQ_DATA_PATH_TYPE_GPU = 1,
};

/* Gets the limit of doca_eth_txq_create(). Errors: NOT_SUPPORTED for lists of more than 1 buffer, and for
 * headers of large frames (doca_eth_txq_cpu_data_path.h) of more than 256 bytes. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_cap_get_max_burst_size(const struct doca_devinfo *devinfo,
						 uint32_t max_send_buf_list_len,
						 uint16_t max_lso_header_size,
						 uint32_t *max_burst_size);
/* Gets 256. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_cap_get_max_lso_header_size(const struct doca_devinfo *devinfo,
						      uint16_t *max_lso_header_size);
/* Returns SUCCESS for REGULAR, on the CPU and on a GPU. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_cap_is_type_supported(const struct doca_devinfo *devinfo,
						enum doca_eth_txq_type type,
						enum doca_eth_txq_data_path_type data_path_type);

/* Creates a queue of at least max_burst_size entries, at most 32,768. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_create(struct doca_dev *dev, uint32_t max_burst_size,
				 struct doca_eth_txq **eth_txq);

/* Errors: BAD_STATE if the queue is not idle. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_destroy(struct doca_eth_txq *eth_txq);

DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_set_type(struct doca_eth_txq *eth_txq, enum doca_eth_txq_type type);

/* Gets the context, whose start fails with NOT_SUPPORTED unless SOFTDOCA_NET is set; on the CPU with
 * BAD_STATE without tasks; NOT_PERMITTED without CAP_NET_ADMIN or CAP_NET_RAW, NOT_FOUND without the
 * interface, IN_USE while another process has it; BAD_CONFIG; NO_MEMORY. */
DOCA_EXPERIMENTAL
struct doca_ctx *doca_eth_txq_as_doca_ctx(struct doca_eth_txq *eth_txq);

/* Let the queue write the checksum of IPv4 headers, or of UDP and TCP, into each frame. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_set_l3_chksum_offload(struct doca_eth_txq *eth_txq,
						uint8_t enable_l3_chksum_offload);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_set_l4_chksum_offload(struct doca_eth_txq *eth_txq,
						uint8_t enable_l4_chksum_offload);

/* Gives the queue a number, which no rule of softdoca needs. Errors: BAD_STATE unless it is
 * started. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_apply_queue_id(struct doca_eth_txq *eth_txq, uint16_t queue_id);

/* Gets the type of doca_eth_txq_set_wait_on_time_offload(): NATIVE. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_cap_get_wait_on_time_offload_supported(
	const struct doca_devinfo *devinfo, enum doca_eth_wait_on_time_type *wait_on_time_mode);

/* Permits entries with a time. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_set_wait_on_time_offload(struct doca_eth_txq *eth_txq);

/* Converts nanoseconds of CLOCK_REALTIME to the time of an entry. Errors: NOT_SUPPORTED unless the queue
 * permits times. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_calculate_timestamp(struct doca_eth_txq *eth_txq, uint64_t timestamp_ns,
					      uint64_t *wait_on_time_value);

struct doca_gpu_eth_txq;

/* Gets the queue's structure, an argument for kernels until the queue stops. Errors: BAD_STATE unless it
 * is started. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_get_gpu_handle(const struct doca_eth_txq *eth_txq,
					 struct doca_gpu_eth_txq **gpu_txq);

#ifdef __cplusplus
}
#endif

#endif
