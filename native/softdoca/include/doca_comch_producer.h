/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comch producers: the sending end of Comch's fast path. See doca_comch_consumer.h.
 *
 * A producer of a connection sends to any consumer of the other side, by its id. One message uses
 * one receive that was submitted on that consumer. If there is none, doca_task_submit returns
 * DOCA_ERROR_AGAIN, and the program has to submit again. A send is complete when the consumer can
 * receive the message; the other side need not call doca_pe_progress for that.
 */
#ifndef DOCA_COMCH_PRODUCER_H
#define DOCA_COMCH_PRODUCER_H

#include <stddef.h>
#include <stdint.h>

#include "doca_compat.h"
#include "doca_error.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_buf;
struct doca_ctx;
struct doca_devinfo;
struct doca_task;
struct doca_comch_connection;
struct doca_comch_producer;
struct doca_comch_gpu_producer;
struct doca_comch_producer_task_send;

/* Called when a task's message was sent, or when the task failed: its status gives the reason. */
typedef void (*doca_comch_producer_task_send_completion_cb_t)(
	struct doca_comch_producer_task_send *task, union doca_data task_user_data,
	union doca_data ctx_user_data);

/* ---- producers ---- */

/* Creates a producer of an established connection. Errors: BAD_STATE if the connection has ended;
 * NO_MEMORY, also if the connection already has the largest number of producers. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_producer_create(struct doca_comch_connection *comch_connection,
					struct doca_comch_producer **producer);

/* Destroys the producer. Errors: BAD_STATE unless its context is idle. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_producer_destroy(struct doca_comch_producer *producer);

/* Gets the id by which consumers identify the producer: unique in the connection, never 0. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_producer_get_id(const struct doca_comch_producer *producer, uint32_t *id);

/* Returns the context, which is RUNNING as soon as it is started. */
DOCA_EXPERIMENTAL
struct doca_ctx *doca_comch_producer_as_ctx(struct doca_comch_producer *producer);

/* Returns the producer for kernels (doca_gpunetio_dev_comch.cuh), if doca_ctx_set_datapath_on_gpu() was called
 * before the start; its rings have as many entries as tasks were configured, rounded up to a power of two.
 * Valid until the producer is started again or destroyed. Errors: BAD_STATE unless started so. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_producer_get_gpu_handle(struct doca_comch_producer *producer,
					      struct doca_comch_gpu_producer **gpu_producer);

/* ---- capabilities of a device ---- */

/* Returns SUCCESS, or NOT_SUPPORTED for a device that can be neither client nor server of Comch. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_producer_cap_is_supported(const struct doca_devinfo *devinfo);

DOCA_EXPERIMENTAL
doca_error_t doca_comch_producer_cap_get_max_num_tasks(const struct doca_devinfo *devinfo,
						       uint32_t *max_num_tasks);

/* Gets the size of the longest message in bytes. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_producer_cap_get_max_buf_size(const struct doca_devinfo *devinfo,
						      uint32_t *max_buf_size);

DOCA_EXPERIMENTAL
doca_error_t doca_comch_producer_cap_get_max_buf_list_len(const struct doca_devinfo *devinfo,
							  uint32_t *max_buf_list_len);

/* Gets the largest number of producers of one side of a connection. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_producer_cap_get_max_producers(const struct doca_devinfo *devinfo,
						       uint32_t *max_producers);

/* ---- tasks ---- */

/* Sets both callbacks and the number of tasks. Required before the start. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_producer_task_send_set_conf(
	struct doca_comch_producer *producer,
	doca_comch_producer_task_send_completion_cb_t task_completion_cb,
	doca_comch_producer_task_send_completion_cb_t task_error_cb, uint32_t num_send_tasks);

/* Allocates a task that sends the data of buf, a buffer or list (NULL: none), and a copy of at most
 * 32 bytes of immediate data. The task keeps a reference to the buffer while it is submitted.
 * Errors: BAD_STATE if the context is not started; NO_MEMORY if all tasks are allocated. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_producer_task_send_alloc_init(struct doca_comch_producer *producer,
						      const struct doca_buf *buf, uint8_t *imm_data,
						      uint32_t imm_data_len, uint32_t consumer_id,
						      struct doca_comch_producer_task_send **task);

DOCA_EXPERIMENTAL
const struct doca_buf *doca_comch_producer_task_send_get_buf(
	struct doca_comch_producer_task_send *task);

/* Sets the buffer. Ignored while the task is in flight, like the other setters. */
DOCA_EXPERIMENTAL
void doca_comch_producer_task_send_set_buf(struct doca_comch_producer_task_send *task,
					   const struct doca_buf *buf);

DOCA_EXPERIMENTAL
uint32_t doca_comch_producer_task_send_get_consumer_id(struct doca_comch_producer_task_send *task);

DOCA_EXPERIMENTAL
void doca_comch_producer_task_send_set_consumer_id(struct doca_comch_producer_task_send *task,
						   const uint32_t consumer_id);

/* Returns the task's copy of the immediate data; NULL if it has none. */
DOCA_EXPERIMENTAL
uint8_t *doca_comch_producer_task_send_get_imm_data(struct doca_comch_producer_task_send *task);

DOCA_EXPERIMENTAL
uint32_t doca_comch_producer_task_send_get_imm_data_len(struct doca_comch_producer_task_send *task);

/* Copies immediate data to the task. Ignored if it is longer than 32 bytes. */
DOCA_EXPERIMENTAL
void doca_comch_producer_task_send_set_imm_data(struct doca_comch_producer_task_send *task,
						uint8_t *imm_data, uint32_t imm_data_len);

/* Returns the task for doca_task_submit, which returns AGAIN while the consumer has no receive
 * submitted; NOT_CONNECTED if the consumer or the connection has ended; INVALID_VALUE for an
 * unknown consumer, immediate data that the consumer does not accept, or an invalid buffer;
 * NOT_SUPPORTED for memory that is not host memory of this process. A task whose consumer ends
 * meanwhile fails with CONNECTION_RESET. */
DOCA_EXPERIMENTAL
struct doca_task *doca_comch_producer_task_send_as_task(struct doca_comch_producer_task_send *task);

#ifdef __cplusplus
}
#endif

#endif
