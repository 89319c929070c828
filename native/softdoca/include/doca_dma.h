/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DMA: copies between buffers.
 *
 * A memcpy task copies the data of the source, buffer after buffer of its list, to the room behind the
 * destination's data: from data + data_len up to the end of each buffer; data_len grows by what came. So who
 * uses a destination again resets its data_len first. Both are the first buffers of their lists. Where
 * source and destination overlap, what arrives is unspecified.
 *
 * A task that cannot be done (more than 2 MiB, no room, no permission, a map without the context's
 * device, an exporter that died) is accepted, ends with IO_FAILED, and stops the context.
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

/* The context in it, to be configured, connected and started. NULL for what is no DMA context. */
DOCA_STABLE
struct doca_ctx *doca_dma_as_ctx(struct doca_dma *dma);

/* Buffers of one list: 64 in softdoca. NOT_SUPPORTED: the device has no DMA. */
DOCA_STABLE
doca_error_t doca_dma_cap_task_memcpy_get_max_buf_list_len(const struct doca_devinfo *devinfo,
							   uint32_t *max_buf_list_len);

/* Bytes of one task: 2 MiB. NOT_SUPPORTED: the device has no DMA. */
DOCA_STABLE
doca_error_t doca_dma_cap_task_memcpy_get_max_buf_size(const struct doca_devinfo *devinfo,
						       uint64_t *buf_size);

/* SUCCESS, or NOT_SUPPORTED. */
DOCA_STABLE
doca_error_t doca_dma_cap_task_memcpy_is_supported(const struct doca_devinfo *devinfo);

/* The device stays open as long as this is there. NOT_SUPPORTED: it has no DMA. NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_dma_create(struct doca_dev *dev, struct doca_dma **dma);

/* BAD_STATE: it is not IDLE, or this is one of its callbacks. */
DOCA_STABLE
doca_error_t doca_dma_destroy(struct doca_dma *dma);

/* One of the configured tasks. The buffers may be NULL and set later. BAD_STATE: the context does not run.
 * NO_MEMORY: all of them are allocated. */
DOCA_STABLE
doca_error_t doca_dma_task_memcpy_alloc_init(struct doca_dma *dma, const struct doca_buf *src,
					     struct doca_buf *dst, union doca_data user_data,
					     struct doca_dma_task_memcpy **task);

/* The task in it, to be submitted and freed. NULL for what is no memcpy task. */
DOCA_STABLE
struct doca_task *doca_dma_task_memcpy_as_task(struct doca_dma_task_memcpy *task);

/* How many tasks there can be at a time, and what is called at their end: one for SUCCESS, the other for
 * failures. Mandatory before the start. BAD_STATE: it is started. INVALID_VALUE: a callback is NULL, no
 * tasks, or more than doca_dma_cap_get_max_num_tasks says. */
DOCA_STABLE
doca_error_t doca_dma_task_memcpy_set_conf(struct doca_dma *dma,
					   doca_dma_task_memcpy_completion_cb_t task_completion_cb,
					   doca_dma_task_memcpy_completion_cb_t task_error_cb,
					   uint32_t num_memcpy_tasks);

/* 65536 in softdoca. */
DOCA_STABLE
doca_error_t doca_dma_cap_get_max_num_tasks(struct doca_dma *dma, uint32_t *max_num_tasks);

/* Not in flight: then nothing happens. */
DOCA_STABLE
void doca_dma_task_memcpy_set_src(struct doca_dma_task_memcpy *task, const struct doca_buf *src);

/* NULL for what is no memcpy task. */
DOCA_STABLE
const struct doca_buf *doca_dma_task_memcpy_get_src(const struct doca_dma_task_memcpy *task);

/* Not in flight: then nothing happens. */
DOCA_STABLE
void doca_dma_task_memcpy_set_dst(struct doca_dma_task_memcpy *task, struct doca_buf *dst);

/* NULL for what is no memcpy task. */
DOCA_STABLE
struct doca_buf *doca_dma_task_memcpy_get_dst(const struct doca_dma_task_memcpy *task);

/* Of DOCA 3.2. softdoca completes in the order of submission either way. BAD_STATE: it is started.
 * INVALID_VALUE: neither 0 nor 1. */
DOCA_EXPERIMENTAL
doca_error_t doca_dma_set_ordered_completions(struct doca_dma *dma, uint8_t enable);

/* NOT_SUPPORTED in softdoca. */
DOCA_EXPERIMENTAL
doca_error_t doca_dma_get_gpu_handle(struct doca_dma *dma, struct doca_gpu_dma **gpu_dma);

#ifdef __cplusplus
}
#endif

#endif
