/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comch consumers: the receiving end of Comch's fast path.
 *
 * A consumer belongs to a Comch connection and has an id. The other side's program learns the id
 * from the event registered with doca_comch_client_event_consumer_register or
 * doca_comch_server_event_consumer_register, and its producers send to that id. Each message is
 * received into the buffer of one post_recv task; the tasks are used in the order of their
 * submission. Consumers and producers of one connection may have their own progress engines and
 * threads.
 *
 * If the connection or the other side ends, the tasks fail, and the context becomes STOPPING, then
 * IDLE. Functions return DOCA_ERROR_INVALID_VALUE, NULL or 0 for an invalid or freed handle;
 * setters return DOCA_ERROR_BAD_STATE once the context is started.
 */
#ifndef DOCA_COMCH_CONSUMER_H
#define DOCA_COMCH_CONSUMER_H

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
struct doca_mmap;
struct doca_task;
struct doca_comch_connection;
struct doca_comch_consumer;
struct doca_comch_gpu_consumer;
struct doca_comch_consumer_task_post_recv;

/* Called when a task received a message, or when it failed: its status gives the reason. */
typedef void (*doca_comch_consumer_task_post_recv_completion_cb_t)(
	struct doca_comch_consumer_task_post_recv *task, union doca_data task_user_data,
	union doca_data ctx_user_data);

/* ---- consumers ---- */

/* Creates a consumer of an established connection, which receives into memory of buf_mmap: a
 * started map of the connection's device that tasks may write to. Errors: BAD_STATE if the
 * connection has ended or the map is not started; NOT_PERMITTED if the map is read-only; NO_MEMORY,
 * also if the connection already has the largest number of consumers. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_consumer_create(struct doca_comch_connection *comch_connection,
					struct doca_mmap *buf_mmap,
					struct doca_comch_consumer **consumer);

/* Destroys the consumer. Errors: BAD_STATE unless its context is idle. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_consumer_destroy(struct doca_comch_consumer *consumer);

/* Gets the id that producers of the other side send to: unique in the connection, never 0. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_consumer_get_id(const struct doca_comch_consumer *consumer, uint32_t *id);

/* Sets the largest length of immediate data that can be received: at most 32 bytes, which is the
 * default. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_consumer_set_imm_data_len(struct doca_comch_consumer *consumer,
						  uint32_t imm_data_len);

DOCA_EXPERIMENTAL
doca_error_t doca_comch_consumer_get_imm_data_len(const struct doca_comch_consumer *consumer,
						  uint32_t *imm_data_len);

/* Returns the context. doca_ctx_start returns IN_PROGRESS; progress announces the consumer to the
 * other side and makes the context RUNNING. When the consumer stops, the other side gets the event
 * that it has expired. */
DOCA_EXPERIMENTAL
struct doca_ctx *doca_comch_consumer_as_ctx(struct doca_comch_consumer *consumer);

/* Returns the consumer for kernels (doca_gpunetio_dev_comch.cuh), if doca_ctx_set_datapath_on_gpu() was called
 * before the start; its rings have as many entries as tasks were configured, rounded up to a power of two.
 * Valid until the consumer is started again or destroyed. Errors: BAD_STATE unless started so. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_consumer_get_gpu_handle(struct doca_comch_consumer *consumer,
					      struct doca_comch_gpu_consumer **gpu_consumer);

/* ---- capabilities of a device ---- */

/* Returns SUCCESS, or NOT_SUPPORTED for a device that can be neither client nor server of Comch. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_consumer_cap_is_supported(const struct doca_devinfo *devinfo);

DOCA_EXPERIMENTAL
doca_error_t doca_comch_consumer_cap_get_max_num_tasks(const struct doca_devinfo *devinfo,
						       uint32_t *max_num_tasks);

/* Gets the size of the longest message in bytes. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_consumer_cap_get_max_buf_size(const struct doca_devinfo *devinfo,
						      uint32_t *max_buf_size);

DOCA_EXPERIMENTAL
doca_error_t doca_comch_consumer_cap_get_max_buf_list_len(const struct doca_devinfo *devinfo,
							  uint32_t *max_buf_list_len);

/* Gets the largest number of consumers of one side of a connection. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_consumer_cap_get_max_consumers(const struct doca_devinfo *devinfo,
						       uint32_t *max_consumers);

DOCA_EXPERIMENTAL
doca_error_t doca_comch_consumer_cap_get_max_imm_data_len(const struct doca_devinfo *devinfo,
							  uint32_t *max_imm_data_len);

/* ---- tasks ---- */

/* Sets both callbacks and the number of tasks. Required before the start. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_consumer_task_post_recv_set_conf(
	struct doca_comch_consumer *consumer,
	doca_comch_consumer_task_post_recv_completion_cb_t task_completion_cb,
	doca_comch_consumer_task_post_recv_completion_cb_t task_error_cb,
	uint32_t num_post_recv_tasks);

/* Allocates a task that receives one message and appends it to the data of buf, a buffer or list of
 * the consumer's map. With NULL as buf the task receives immediate data only. The task keeps a
 * reference to the buffer while it is submitted. Errors: BAD_STATE if the context is not started;
 * NO_MEMORY if all tasks are allocated. */
DOCA_EXPERIMENTAL
doca_error_t doca_comch_consumer_task_post_recv_alloc_init(
	struct doca_comch_consumer *consumer, struct doca_buf *buf,
	struct doca_comch_consumer_task_post_recv **task);

/* Returns the buffer, to whose data the message was appended. */
DOCA_EXPERIMENTAL
struct doca_buf *doca_comch_consumer_task_post_recv_get_buf(
	struct doca_comch_consumer_task_post_recv *task);

/* Sets the buffer. Ignored while the task is in flight. */
DOCA_EXPERIMENTAL
void doca_comch_consumer_task_post_recv_set_buf(struct doca_comch_consumer_task_post_recv *task,
						struct doca_buf *buf);

/* Returns the id of the producer that sent the message; 0 before a message was received. */
DOCA_EXPERIMENTAL
uint32_t doca_comch_consumer_task_post_recv_get_producer_id(
	struct doca_comch_consumer_task_post_recv *task);

/* Returns the message's immediate data, valid until the task is submitted again or freed; NULL if
 * it has none. */
DOCA_EXPERIMENTAL
uint8_t *doca_comch_consumer_task_post_recv_get_imm_data(
	struct doca_comch_consumer_task_post_recv *task);

DOCA_EXPERIMENTAL
uint32_t doca_comch_consumer_task_post_recv_get_imm_data_len(
	struct doca_comch_consumer_task_post_recv *task);

/* Returns the task for doca_task_submit. A message larger than the free space of the buffer makes
 * the task fail with IO_FAILED. doca_task_free of a task in flight cancels it: it receives nothing
 * and its callback is not called. */
DOCA_EXPERIMENTAL
struct doca_task *doca_comch_consumer_task_post_recv_as_task(
	struct doca_comch_consumer_task_post_recv *task);

#ifdef __cplusplus
}
#endif

#endif
