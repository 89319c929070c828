/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DMA: copies between buffers.
 *
 * A memcpy task copies the data of the source list, buffer after buffer, to the free space of the
 * destination list: in each buffer from data + data_len to the end. data_len grows by the bytes
 * copied, so a program that reuses a destination resets its data_len first. Source and destination
 * are the first buffers of their lists. If they overlap, the result is unspecified.
 *
 * A task that cannot be executed (more than 2 MiB, no space, no permission, a map without the
 * context's device, memory that was unmapped, an exporter that died) is accepted, completes with
 * IO_FAILED, and stops the context.
 */
#ifndef DOCA_DMA_H
#define DOCA_DMA_H

#include <stddef.h>
#include <stdint.h>

#include "doca_buf.h"
#include "doca_compat.h"
#include "doca_ctx.h"
#include "doca_dev.h"
#include "doca_error.h"
#include "doca_pe.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_dma;
struct doca_dma_task_memcpy;
struct doca_gpu_dma;

typedef void (*doca_dma_task_memcpy_completion_cb_t)(struct doca_dma_task_memcpy *task,
						     union doca_data task_user_data,
						     union doca_data ctx_user_data);

/* Returns the context, which the program configures, connects to a progress engine and starts; NULL
 * for an invalid handle. */
DOCA_STABLE
struct doca_ctx *doca_dma_as_ctx(struct doca_dma *dma);

/* Gets the largest number of buffers in a list: 64 in softdoca. Errors: NOT_SUPPORTED for a device
 * without DMA. */
DOCA_STABLE
doca_error_t doca_dma_cap_task_memcpy_get_max_buf_list_len(const struct doca_devinfo *devinfo,
							   uint32_t *max_buf_list_len);

/* Gets the largest number of bytes of a task: 2 MiB. Errors: NOT_SUPPORTED for a device without
 * DMA. */
DOCA_STABLE
doca_error_t doca_dma_cap_task_memcpy_get_max_buf_size(const struct doca_devinfo *devinfo,
						       uint64_t *buf_size);

/* Returns SUCCESS, or NOT_SUPPORTED for a device without DMA. */
DOCA_STABLE
doca_error_t doca_dma_cap_task_memcpy_is_supported(const struct doca_devinfo *devinfo);

/* Creates a DMA context; the device cannot be closed before the context is destroyed. Errors:
 * NOT_SUPPORTED for a device without DMA; NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_dma_create(struct doca_dev *dev, struct doca_dma **dma);

/* Destroys the context. The context's own callback for the state IDLE may call it. Errors: IN_USE
 * unless it is IDLE. */
DOCA_STABLE
doca_error_t doca_dma_destroy(struct doca_dma *dma);

/* Allocates one of the configured tasks. The buffers may be NULL and set later. Errors: BAD_STATE
 * if the context is not running; NO_MEMORY if all tasks are allocated. */
DOCA_STABLE
doca_error_t doca_dma_task_memcpy_alloc_init(struct doca_dma *dma, const struct doca_buf *src,
					     struct doca_buf *dst, union doca_data user_data,
					     struct doca_dma_task_memcpy **task);

/* Returns the task, for doca_task_submit() and doca_task_free(); NULL for an invalid handle. */
DOCA_STABLE
struct doca_task *doca_dma_task_memcpy_as_task(struct doca_dma_task_memcpy *task);

/* Sets the number of tasks and the callbacks for success and failure. Required before the start.
 * Errors: BAD_STATE if the context is started; INVALID_VALUE if a callback is NULL or the number
 * is 0 or above doca_dma_cap_get_max_num_tasks(). */
DOCA_STABLE
doca_error_t doca_dma_task_memcpy_set_conf(struct doca_dma *dma,
					   doca_dma_task_memcpy_completion_cb_t task_completion_cb,
					   doca_dma_task_memcpy_completion_cb_t task_error_cb,
					   uint32_t num_memcpy_tasks);

/* Gets the largest number of tasks: 65,536 in softdoca. */
DOCA_STABLE
doca_error_t doca_dma_cap_get_max_num_tasks(struct doca_dma *dma, uint32_t *max_num_tasks);

/* Sets the source. Ignored while the task is in flight. */
DOCA_STABLE
void doca_dma_task_memcpy_set_src(struct doca_dma_task_memcpy *task, const struct doca_buf *src);

/* Returns the source; NULL for an invalid handle. */
DOCA_STABLE
const struct doca_buf *doca_dma_task_memcpy_get_src(const struct doca_dma_task_memcpy *task);

/* Sets the destination. Ignored while the task is in flight. */
DOCA_STABLE
void doca_dma_task_memcpy_set_dst(struct doca_dma_task_memcpy *task, struct doca_buf *dst);

/* Returns the destination; NULL for an invalid handle. */
DOCA_STABLE
struct doca_buf *doca_dma_task_memcpy_get_dst(const struct doca_dma_task_memcpy *task);

/* Sets the order of completions (DOCA 3.2). softdoca completes in the order of submission in either
 * case. Errors: BAD_STATE if the context is started; INVALID_VALUE unless enable is 0 or 1. */
DOCA_EXPERIMENTAL
doca_error_t doca_dma_set_ordered_completions(struct doca_dma *dma, uint8_t enable);

/* Returns the context for kernels (doca_gpunetio_dev_dma.cuh), valid until it is stopped. Errors:
 * BAD_STATE unless it is started with its data path on a GPU. */
DOCA_EXPERIMENTAL
doca_error_t doca_dma_get_gpu_handle(struct doca_dma *dma, struct doca_gpu_dma **gpu_dma);

#ifdef __cplusplus
}
#endif

#endif
