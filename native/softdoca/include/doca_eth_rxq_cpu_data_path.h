/* SPDX-License-Identifier: Apache-2.0 */
/* The data path of receive queues on the CPU, which softdoca does not have: queues return NOT_SUPPORTED. */
#ifndef DOCA_ETH_RXQ_CPU_DATA_PATH_H
#define DOCA_ETH_RXQ_CPU_DATA_PATH_H

#include "doca_buf.h"
#include "doca_compat.h"
#include "doca_error.h"
#include "doca_eth_rxq.h"
#include "doca_pe.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_eth_rxq_event_batch_managed_recv;

typedef void (*doca_eth_rxq_event_batch_managed_recv_handler_cb_t)(
	struct doca_eth_rxq_event_batch_managed_recv *event_batch_managed_recv,
	uint16_t events_number, union doca_data event_batch_user_data, doca_error_t status,
	struct doca_buf **pkt_array);

/* Return NOT_SUPPORTED: the data path is on a GPU. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_event_batch_managed_recv_register(
	struct doca_eth_rxq *eth_rxq, enum doca_event_batch_events_number events_number_max,
	enum doca_event_batch_events_number events_number_min, union doca_data event_batch_user_data,
	doca_eth_rxq_event_batch_managed_recv_handler_cb_t success_event_batch_handler,
	doca_eth_rxq_event_batch_managed_recv_handler_cb_t error_event_batch_handler);

/* Returns NULL: there is no such event. */
DOCA_EXPERIMENTAL
struct doca_ctx *doca_eth_rxq_event_batch_managed_recv_get_ctx(
	const struct doca_eth_rxq_event_batch_managed_recv *event_batch_managed_recv);

/* Does nothing: there is no such array. */
DOCA_EXPERIMENTAL
void doca_eth_rxq_event_batch_managed_recv_pkt_array_free(struct doca_buf **pkt_array);

#ifdef __cplusplus
}
#endif

#endif
