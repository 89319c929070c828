/* SPDX-License-Identifier: Apache-2.0 */
/* The data path of send queues on a GPU. */
#ifndef DOCA_ETH_TXQ_GPU_DATA_PATH_H
#define DOCA_ETH_TXQ_GPU_DATA_PATH_H

#include "doca_compat.h"
#include "doca_error.h"
#include "doca_eth_txq.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* Events of a queue whose context also has a progress engine, delivered by doca_pe_progress(). They do
 * not wake a program that waits for the engine's notification handle. */
struct doca_eth_txq_gpu_event_error_send_packet;
struct doca_eth_txq_gpu_event_notify_send_packet;

typedef void (*doca_eth_txq_gpu_event_error_send_packet_cb_t)(
	struct doca_eth_txq_gpu_event_error_send_packet *event_error, union doca_data event_user_data);
typedef void (*doca_eth_txq_gpu_event_notify_send_packet_cb_t)(
	struct doca_eth_txq_gpu_event_notify_send_packet *event_notify,
	union doca_data event_user_data);

/* Register a callback for the entry that fails the queue, and for each frame that was sent with
 * DOCA_GPUNETIO_ETH_SEND_FLAG_NOTIFY; of the latter, the last as many as the queue has entries wait for
 * their turn. The event is valid within the callback. Errors: BAD_STATE if the queue is started. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_gpu_event_error_send_packet_register(
	struct doca_eth_txq *eth_txq,
	doca_eth_txq_gpu_event_error_send_packet_cb_t event_error_send_packet_cb,
	union doca_data event_user_data);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_gpu_event_notify_send_packet_register(
	struct doca_eth_txq *eth_txq,
	doca_eth_txq_gpu_event_notify_send_packet_cb_t event_notify_send_packet_cb,
	union doca_data event_user_data);

/* Get the low bits of the entry's index, and when the frame was sent, by CLOCK_REALTIME. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_gpu_event_error_send_packet_get_position(
	const struct doca_eth_txq_gpu_event_error_send_packet *event_error, uint16_t *packet_index);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_gpu_event_notify_send_packet_get_position(
	const struct doca_eth_txq_gpu_event_notify_send_packet *event_notify, uint16_t *packet_index);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_gpu_event_notify_send_packet_get_timestamp(
	const struct doca_eth_txq_gpu_event_notify_send_packet *event_notify,
	uint64_t *packet_timestamp);

#ifdef __cplusplus
}
#endif

#endif
