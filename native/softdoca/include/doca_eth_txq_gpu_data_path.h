/* SPDX-License-Identifier: Apache-2.0 */
/* The data path of send queues on a GPU. */
#ifndef DOCA_ETH_TXQ_GPU_DATA_PATH_H
#define DOCA_ETH_TXQ_GPU_DATA_PATH_H

#include "doca_compat.h"
#include "doca_error.h"
#include "doca_eth_txq.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_gpu_eth_txq;

/* Gets the queue's structure, an argument for kernels until the queue stops. Errors: BAD_STATE unless it
 * is started. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_get_gpu_handle(const struct doca_eth_txq *eth_txq,
					 struct doca_gpu_eth_txq **gpu_txq);

/* Lets kernels poll for completions, as they always can in softdoca. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_gpu_set_completion_on_gpu(struct doca_eth_txq *eth_txq);

/* Selects the CPU proxy. In softdoca a thread of the library always reads what kernels submit. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_gpu_set_uar_on_cpu(struct doca_eth_txq *eth_txq);

/* Gives up the CPU for a moment: the library's own thread serves the queue. Errors: NOT_SUPPORTED
 * without a CPU proxy. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_gpu_cpu_proxy_progress(struct doca_eth_txq *eth_txq);

#ifdef __cplusplus
}
#endif

#endif
