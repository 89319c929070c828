/* SPDX-License-Identifier: Apache-2.0 */
/* The data path of send queues on the CPU, which softdoca does not have: queues return NOT_SUPPORTED. */
#ifndef DOCA_ETH_TXQ_CPU_DATA_PATH_H
#define DOCA_ETH_TXQ_CPU_DATA_PATH_H

#include "doca_buf.h"
#include "doca_compat.h"
#include "doca_error.h"
#include "doca_eth_txq.h"
#include "doca_pe.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*doca_eth_txq_task_batch_send_completion_cb_t)(
	struct doca_task_batch *task_batch, uint16_t tasks_num, union doca_data ctx_user_data,
	union doca_data task_batch_user_data, union doca_data *task_user_data_array,
	struct doca_buf **pkt_array, doca_error_t *status_array);

/* Return NOT_SUPPORTED: the data path is on a GPU. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_task_batch_send_set_conf(
	struct doca_eth_txq *eth_txq, enum doca_task_batch_max_tasks_number max_tasks_number,
	uint16_t num_task_batches,
	doca_eth_txq_task_batch_send_completion_cb_t success_task_batch_completion_cb,
	doca_eth_txq_task_batch_send_completion_cb_t error_task_batch_completion_cb);

DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_task_batch_send_allocate(struct doca_eth_txq *eth_txq, uint16_t tasks_num,
						   union doca_data task_batch_user_data,
						   struct doca_buf ***pkt_array,
						   union doca_data **task_user_data_array,
						   struct doca_task_batch **task_batch);

#ifdef __cplusplus
}
#endif

#endif
