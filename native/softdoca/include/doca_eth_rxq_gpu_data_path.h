/* SPDX-License-Identifier: Apache-2.0 */
/* The data path of receive queues on a GPU. */
#ifndef DOCA_ETH_RXQ_GPU_DATA_PATH_H
#define DOCA_ETH_RXQ_GPU_DATA_PATH_H

#include "doca_compat.h"
#include "doca_error.h"
#include "doca_eth_rxq.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_gpu_eth_rxq;

/* Gets the queue's structure, an argument for kernels until the queue stops. Errors: BAD_STATE unless it
 * is started. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_get_gpu_handle(const struct doca_eth_rxq *eth_rxq,
					 struct doca_gpu_eth_rxq **gpu_rxq);

/* Selects the memory consistency that GPUs before compute capability 9.0 need and softdoca does not. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_gpu_enable_mcst_qp(struct doca_eth_rxq *eth_rxq);

#ifdef __cplusplus
}
#endif

#endif
