/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data path of send queues on the CPU: tasks of a frame each, and batches of such tasks, which are
 * submitted and complete as one. Frames are sent in the order of their submission. A frame is a single
 * buffer of 14 to 65,536 bytes of data; submitting another one returns INVALID_VALUE. A task ends with
 * IO_FAILED if the interface did not take its frame, is gone, or the context was stopped before.
 *
 * A large frame (LSO) has headers and a payload, which is sent in parts, each in a frame of its own behind the
 * headers. From part to part differ the lengths of IPv4, IPv6 and UDP, the identification of IPv4, and sequence
 * number and flags of TCP; checksums are those of the queue's offloads. Without a header of IP the parts have the
 * same headers.
 */
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

struct doca_eth_txq_task_send;
struct doca_eth_txq_task_lso_send;

typedef void (*doca_eth_txq_task_send_completion_cb_t)(struct doca_eth_txq_task_send *task_send,
						       union doca_data task_user_data,
						       union doca_data ctx_user_data);
typedef void (*doca_eth_txq_task_lso_send_completion_cb_t)(
	struct doca_eth_txq_task_lso_send *task_lso_send, union doca_data task_user_data,
	union doca_data ctx_user_data);
typedef void (*doca_eth_txq_task_batch_send_completion_cb_t)(
	struct doca_task_batch *task_batch, uint16_t tasks_num, union doca_data ctx_user_data,
	union doca_data task_batch_user_data, union doca_data *task_user_data_array,
	struct doca_buf **pkt_array, doca_error_t *status_array);
typedef void (*doca_eth_txq_task_batch_lso_send_completion_cb_t)(
	struct doca_task_batch *task_batch, uint16_t tasks_num, union doca_data ctx_user_data,
	union doca_data task_batch_user_data, union doca_data *task_user_data_array,
	struct doca_buf **pkt_payload_array, struct doca_gather_list **headers_array,
	doca_error_t *status_array);

/* Sets the number of tasks, at most 32,768 with those of all batches, and their callbacks. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_task_send_set_conf(
	struct doca_eth_txq *eth_txq, doca_eth_txq_task_send_completion_cb_t success_completion_cb,
	doca_eth_txq_task_send_completion_cb_t error_completion_cb, uint32_t num_tasks);

/* Allocates a task. Errors: BAD_STATE unless the context runs; NO_MEMORY if all are allocated. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_task_send_allocate_init(struct doca_eth_txq *eth_txq, struct doca_buf *pkt,
						  union doca_data user_data,
						  struct doca_eth_txq_task_send **task_send);
/* Returns the task as a doca_task; NULL for an invalid one. */
DOCA_EXPERIMENTAL
struct doca_task *doca_eth_txq_task_send_as_doca_task(struct doca_eth_txq_task_send *task_send);
/* Set and get the frame. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_task_send_set_pkt(struct doca_eth_txq_task_send *task_send,
					    struct doca_buf *pkt);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_task_send_get_pkt(const struct doca_eth_txq_task_send *task_send,
					    struct doca_buf **pkt);

/* Sets the number of batches, of their tasks at most, and the callbacks: error_task_batch_completion_cb is
 * called if a task of the batch failed. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_task_batch_send_set_conf(
	struct doca_eth_txq *eth_txq, enum doca_task_batch_max_tasks_number max_tasks_number,
	uint16_t num_task_batches,
	doca_eth_txq_task_batch_send_completion_cb_t success_task_batch_completion_cb,
	doca_eth_txq_task_batch_send_completion_cb_t error_task_batch_completion_cb);

/* Allocates a batch of tasks_num tasks, with the arrays for their frames and their data, which the program
 * fills in before it submits the batch. Errors: as doca_eth_txq_task_send_allocate_init(). */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_task_batch_send_allocate(struct doca_eth_txq *eth_txq, uint16_t tasks_num,
						   union doca_data task_batch_user_data,
						   struct doca_buf ***pkt_array,
						   union doca_data **task_user_data_array,
						   struct doca_task_batch **task_batch);

/* ---- large frames ---- */

/* Sets the largest part of a payload, 1,500 bytes by default. Errors: BAD_STATE if the queue is started. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_set_mss(struct doca_eth_txq *eth_txq, uint16_t mss);
/* Sets the largest size of the headers, 14 to 256 bytes (the default). Errors: BAD_STATE if the queue is started. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_set_max_lso_header_size(struct doca_eth_txq *eth_txq,
						  uint16_t max_lso_header_size);
/* As those of the other tasks. Submitting a task returns INVALID_VALUE for headers or a payload that the queue
 * does not take, and AGAIN while it has no places for its frames, 32,768 in all. The headers are read then. */
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_task_lso_send_set_conf(
	struct doca_eth_txq *eth_txq, doca_eth_txq_task_lso_send_completion_cb_t success_completion_cb,
	doca_eth_txq_task_lso_send_completion_cb_t error_completion_cb, uint32_t num_tasks);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_task_lso_send_allocate_init(struct doca_eth_txq *eth_txq,
						      struct doca_buf *pkt_payload,
						      struct doca_gather_list *headers,
						      union doca_data user_data,
						      struct doca_eth_txq_task_lso_send **task_lso_send);
DOCA_EXPERIMENTAL
struct doca_task *
doca_eth_txq_task_lso_send_as_doca_task(struct doca_eth_txq_task_lso_send *task_lso_send);
DOCA_EXPERIMENTAL
doca_error_t
doca_eth_txq_task_lso_send_get_pkt_payload(const struct doca_eth_txq_task_lso_send *task_lso_send,
					   struct doca_buf **pkt_payload);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_task_batch_lso_send_set_conf(
	struct doca_eth_txq *eth_txq, enum doca_task_batch_max_tasks_number max_tasks_number,
	uint16_t num_task_batches,
	doca_eth_txq_task_batch_lso_send_completion_cb_t success_task_batch_completion_cb,
	doca_eth_txq_task_batch_lso_send_completion_cb_t error_task_batch_completion_cb);
DOCA_EXPERIMENTAL
doca_error_t doca_eth_txq_task_batch_lso_send_allocate(struct doca_eth_txq *eth_txq, uint16_t tasks_num,
						       union doca_data task_batch_user_data,
						       struct doca_buf ***pkt_payload_array,
						       struct doca_gather_list ***headers_array,
						       union doca_data **task_user_data_array,
						       struct doca_task_batch **task_batch);

#ifdef __cplusplus
}
#endif

#endif
