/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data path of receive queues on the CPU.
 *
 * REGULAR: a task receives one frame into its buffer, a single one, from the buffer's data on. What is there
 * is overwritten, and the data's length becomes that of the frame. A frame that is too long for the buffer
 * is dropped.
 *
 * MANAGED_MEMPOOL: frames are received into the memory of doca_eth_rxq_set_pkt_buf(), and events bring them
 * as buffers, one by one or in batches. A place is used again when the program has returned its buffer, in
 * any order. A queue whose buffers were not all returned cannot be destroyed.
 *
 * Getters of metadata, hash and time return BAD_STATE unless the queue was asked for them. Metadata and the
 * flow tag are the action of the rule (doca_flow_pipe_cfg_set_actions) in the byte order of the CPU. The time is that of
 * CLOCK_REALTIME in nanoseconds. When the interface is gone, tasks end with IO_FAILED, and the callback for
 * errors of events is called once.
 */
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

/* ---- settings ---- */

/* Ask for numbers of a frame: the metadata of its rule (at most 1 number) and its flow tag, a hash of its
 * addresses and ports, and its time. Errors: INVALID_VALUE for other numbers. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_set_metadata_num(struct doca_eth_rxq *eth_rxq, uint8_t metadata_num);
DOCA_EXPERIMENTAL
DOCA_OF_eth_rxq_set_flow_tag
doca_error_t doca_eth_rxq_set_flow_tag(struct doca_eth_rxq *eth_rxq, uint8_t enable_flow_tag);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_set_rx_hash(struct doca_eth_rxq *eth_rxq, uint8_t enable_rx_hash);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_set_timestamp(struct doca_eth_rxq *eth_rxq, uint8_t enable_timestamp);

/* Set the room before and behind each frame of a MANAGED_MEMPOOL queue. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_set_packet_headroom(struct doca_eth_rxq *eth_rxq, uint16_t headroom_size);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_set_packet_tailroom(struct doca_eth_rxq *eth_rxq, uint16_t tailroom_size);

/* ---- REGULAR ---- */

struct doca_eth_rxq_task_recv;

typedef void (*doca_eth_rxq_task_recv_completion_cb_t)(struct doca_eth_rxq_task_recv *task_recv,
						       union doca_data task_user_data,
						       union doca_data ctx_user_data);

/* Sets the number of tasks, at most 65,536, and their callbacks. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_task_recv_set_conf(
	struct doca_eth_rxq *eth_rxq, doca_eth_rxq_task_recv_completion_cb_t success_completion_cb,
	doca_eth_rxq_task_recv_completion_cb_t error_completion_cb, uint32_t num_task_recv);

/* Allocates a task. Errors: BAD_STATE unless the context runs; NO_MEMORY if all are allocated. Submitting it
 * returns INVALID_VALUE for a list of buffers, for memory that is not the host's, and for a map that is only
 * for reading. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_task_recv_allocate_init(struct doca_eth_rxq *eth_rxq, struct doca_buf *pkt,
						  union doca_data user_data,
						  struct doca_eth_rxq_task_recv **task_recv);
/* Returns the task as a doca_task; NULL for an invalid one. */
DOCA_EXPERIMENTAL
struct doca_task *doca_eth_rxq_task_recv_as_doca_task(struct doca_eth_rxq_task_recv *task_recv);
/* Set and get the buffer. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_task_recv_set_pkt(struct doca_eth_rxq_task_recv *task_recv,
					    struct doca_buf *pkt);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_task_recv_get_pkt(const struct doca_eth_rxq_task_recv *task_recv,
					    struct doca_buf **pkt);
/* Get the numbers of the received frame; the array lasts as long as the task. */
DOCA_EXPERIMENTAL
doca_error_t
doca_eth_rxq_task_recv_get_metadata_array(const struct doca_eth_rxq_task_recv *task_recv,
					  const uint32_t **metadata_array);
DOCA_EXPERIMENTAL
DOCA_OF_eth_rxq_get_flow_tag
doca_error_t doca_eth_rxq_task_recv_get_flow_tag(const struct doca_eth_rxq_task_recv *task_recv,
						 uint32_t *flow_tag);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_task_recv_get_rx_hash(const struct doca_eth_rxq_task_recv *task_recv,
						uint32_t *rx_hash);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_task_recv_get_timestamp(const struct doca_eth_rxq_task_recv *task_recv,
						  uint64_t *timestamp);

/* ---- MANAGED_MEMPOOL: single events ---- */

struct doca_eth_rxq_event_managed_recv;

typedef void (*doca_eth_rxq_event_managed_recv_handler_cb_t)(
	struct doca_eth_rxq_event_managed_recv *event_managed_recv, struct doca_buf *pkt,
	union doca_data event_user_data);

/* Registers callbacks for each frame; pkt is NULL in the one for errors. The event is valid within the
 * callback. Errors: ALREADY_EXIST if callbacks are registered. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_event_managed_recv_register(
	struct doca_eth_rxq *eth_rxq, union doca_data event_user_data,
	doca_eth_rxq_event_managed_recv_handler_cb_t success_event_cb,
	doca_eth_rxq_event_managed_recv_handler_cb_t error_event_cb);

/* Returns the event's status: SUCCESS, or IO_FAILED. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_event_managed_recv_get_status(
	const struct doca_eth_rxq_event_managed_recv *event_managed_recv);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_event_managed_recv_get_metadata_array(
	const struct doca_eth_rxq_event_managed_recv *event_managed_recv,
	const uint32_t **metadata_array);
DOCA_EXPERIMENTAL
DOCA_OF_eth_rxq_get_flow_tag
doca_error_t doca_eth_rxq_event_managed_recv_get_flow_tag(
	const struct doca_eth_rxq_event_managed_recv *event_managed_recv, uint32_t *flow_tag);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_event_managed_recv_get_rx_hash(
	const struct doca_eth_rxq_event_managed_recv *event_managed_recv, uint32_t *rx_hash);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_event_managed_recv_get_timestamp(
	const struct doca_eth_rxq_event_managed_recv *event_managed_recv, uint64_t *timestamp);

/* ---- MANAGED_MEMPOOL: batches of events ---- */

struct doca_eth_rxq_event_batch_managed_recv;

typedef void (*doca_eth_rxq_event_batch_managed_recv_handler_cb_t)(
	struct doca_eth_rxq_event_batch_managed_recv *event_batch_managed_recv,
	uint16_t events_number, union doca_data event_batch_user_data, doca_error_t status,
	struct doca_buf **pkt_array);

/* Registers callbacks for batches of frames: as many as there are, at most events_number_max; while there are
 * fewer than events_number_min, none. pkt_array is NULL in the callback for errors. Errors: ALREADY_EXIST if
 * callbacks are registered; INVALID_VALUE if the minimum exceeds the maximum, or the queue's packets. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_event_batch_managed_recv_register(
	struct doca_eth_rxq *eth_rxq, enum doca_event_batch_events_number events_number_max,
	enum doca_event_batch_events_number events_number_min, union doca_data event_batch_user_data,
	doca_eth_rxq_event_batch_managed_recv_handler_cb_t success_event_batch_handler,
	doca_eth_rxq_event_batch_managed_recv_handler_cb_t error_event_batch_handler);

/* Returns the queue's context; NULL for an invalid batch. */
DOCA_EXPERIMENTAL
struct doca_ctx *doca_eth_rxq_event_batch_managed_recv_get_ctx(
	const struct doca_eth_rxq_event_batch_managed_recv *event_batch_managed_recv);

/* Get the numbers of all frames of the batch; an array lasts as long as that of the buffers. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_event_batch_managed_recv_get_metadata_array(
	const struct doca_eth_rxq_event_batch_managed_recv *event_batch_managed_recv,
	const uint32_t **metadata_array);
DOCA_EXPERIMENTAL
DOCA_OF_eth_rxq_get_flow_tag
doca_error_t doca_eth_rxq_event_batch_managed_recv_get_flow_tag_array(
	const struct doca_eth_rxq_event_batch_managed_recv *event_batch_managed_recv,
	const uint32_t **flow_tag_array);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_event_batch_managed_recv_get_rx_hash_array(
	const struct doca_eth_rxq_event_batch_managed_recv *event_batch_managed_recv,
	const uint32_t **rx_hash_array);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_rxq_event_batch_managed_recv_get_timestamp_array(
	const struct doca_eth_rxq_event_batch_managed_recv *event_batch_managed_recv,
	const uint64_t **timestamp_array);

/* Returns one number of a frame's metadata: metadata_num is that of doca_eth_rxq_set_metadata_num(). */
DOCA_EXPERIMENTAL
uint32_t doca_eth_rxq_event_batch_managed_recv_metadata_array_get_metadata(
	const uint32_t *metadata_array, uint8_t metadata_num, uint16_t packet_index,
	uint8_t metadata_index);

/* Frees the array of a batch, and returns its buffers that the program has not returned. */
DOCA_EXPERIMENTAL
void doca_eth_rxq_event_batch_managed_recv_pkt_array_free(struct doca_buf **pkt_array);

#ifdef __cplusplus
}
#endif

#endif
