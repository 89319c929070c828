/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts that invalidate the CPU's cache for a buffer after a device has written to it. The
 * memory of softdoca's devices is coherent, so that a task only orders the accesses around it.
 * Every function returns INVALID_VALUE (or NULL, or does nothing) for an invalid object or output
 * pointer.
 */
#ifndef DOCA_MMAP_ADVISE_H
#define DOCA_MMAP_ADVISE_H

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
struct doca_dev;
struct doca_devinfo;
struct doca_mmap_advise;
struct doca_mmap_advise_task_invalidate_cache;

typedef void (*doca_mmap_advise_task_invalidate_cache_completion_cb_t)(
	struct doca_mmap_advise_task_invalidate_cache *task, union doca_data task_user_data,
	union doca_data ctx_user_data);

/* Errors: NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_mmap_advise_create(struct doca_dev *dev, struct doca_mmap_advise **mmap_advise);

/* Errors: BAD_STATE unless it is idle. */
DOCA_EXPERIMENTAL
doca_error_t doca_mmap_advise_destroy(struct doca_mmap_advise *mmap_advise);

DOCA_EXPERIMENTAL
struct doca_ctx *doca_mmap_advise_as_ctx(struct doca_mmap_advise *mmap_advise);

/* Returns SUCCESS for every device. */
DOCA_EXPERIMENTAL
doca_error_t doca_mmap_advise_cap_task_cache_invalidate_is_supported(
		const struct doca_devinfo *devinfo);

/* Gets the largest size of a buffer, which is not limited. */
DOCA_EXPERIMENTAL
doca_error_t doca_mmap_advise_task_cache_invalidate_get_max_buf_size(
		const struct doca_devinfo *devinfo, uint64_t *buf_size);

/* Configures the tasks, which is necessary before the start. Errors: INVALID_VALUE for a callback
 * that is NULL, or a number outside 1 to 65,536; NOT_PERMITTED unless the context is idle. */
DOCA_EXPERIMENTAL
doca_error_t doca_mmap_advise_task_invalidate_cache_set_conf(struct doca_mmap_advise *mmap_advise,
		doca_mmap_advise_task_invalidate_cache_completion_cb_t completion_cb,
		doca_mmap_advise_task_invalidate_cache_completion_cb_t error_cb, uint32_t num_tasks);

/* Allocates a task. buf may be NULL until it is submitted. Errors: BAD_STATE unless the context is
 * running; NO_MEMORY if all tasks are allocated. */
DOCA_EXPERIMENTAL
doca_error_t doca_mmap_advise_task_invalidate_cache_alloc_init(struct doca_mmap_advise *mmap_advise,
		struct doca_buf *buf, union doca_data user_data,
		struct doca_mmap_advise_task_invalidate_cache **task);

DOCA_EXPERIMENTAL
struct doca_task *doca_mmap_advise_task_invalidate_cache_as_doca_task(
		struct doca_mmap_advise_task_invalidate_cache *task);

DOCA_EXPERIMENTAL
void doca_mmap_advise_task_invalidate_cache_set_buf(
		struct doca_mmap_advise_task_invalidate_cache *task, struct doca_buf *buf);

DOCA_EXPERIMENTAL
struct doca_buf *doca_mmap_advise_task_invalidate_cache_get_buf(
		const struct doca_mmap_advise_task_invalidate_cache *task);

#ifdef __cplusplus
}
#endif

#endif
