// SPDX-License-Identifier: Apache-2.0
/*
 * libdoca_dma: public functions of DMA contexts and memcpy tasks. libdoca_common implements them.
 *
 * Sources: "DMA reference" is DOCA's published one; "guess" marks an assumption that no published
 * source confirms.
 */
#include "copy/engine.h"

#define CHECK_DMA(dma) CHECK_OBJECT(dma, OBJECT_DMA, "a DMA context")

/* ---- capabilities ---- */

static doca_error_t check_devinfo(const struct doca_devinfo *devinfo, const char *func)
{
	if (!object_is(devinfo, OBJECT_DEVINFO))
		return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE, "%p is not a devinfo",
				  (const void *)devinfo);
	if (devinfo->f.caps & CAP_DMA)
		return DOCA_SUCCESS;
	/* INFO, because programs query each device of a list. */
	softdoca_log(DOCA_LOG_LEVEL_INFO, func, "%s has no DMA", devinfo->f.pci);
	return DOCA_ERROR_NOT_SUPPORTED; /* DMA reference */
}

doca_error_t doca_dma_cap_task_memcpy_is_supported(const struct doca_devinfo *devinfo)
{
	return check_devinfo(devinfo, __func__);
}

doca_error_t doca_dma_cap_task_memcpy_get_max_buf_size(const struct doca_devinfo *devinfo,
						       uint64_t *buf_size)
{
	CHECK_OUT(buf_size);
	doca_error_t error = check_devinfo(devinfo, __func__);
	if (!error)
		*buf_size = MEMCPY_MAX;
	return error;
}

doca_error_t doca_dma_cap_task_memcpy_get_max_buf_list_len(const struct doca_devinfo *devinfo,
							   uint32_t *max_buf_list_len)
{
	CHECK_OUT(max_buf_list_len);
	doca_error_t error = check_devinfo(devinfo, __func__);
	if (!error)
		*max_buf_list_len = LIST_MAX;
	return error;
}

GETTER(doca_dma_cap_get_max_num_tasks, CHECK_DMA, struct doca_dma, uint32_t, TASKS_MAX)

/* ---- contexts ---- */

doca_error_t doca_dma_create(struct doca_dev *dev, struct doca_dma **dma)
{
	if (!object_is(dev, OBJECT_DEV) || !dma)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not an open device, or dma is NULL",
			      (void *)dev);
	TRY(check_devinfo(&dev->info, __func__));
	struct doca_dma *d = softdoca_object_new(OBJECT_DMA, sizeof *d);
	if (!d)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a DMA context");
	doca_error_t error = softdoca_ctx_init(&d->ctx, dev, &softdoca_dma_ops);
	if (error) {
		softdoca_object_free(d);
		return error;
	}
	*dma = d;
	return DOCA_SUCCESS;
}

doca_error_t doca_dma_destroy(struct doca_dma *dma)
{
	CHECK_DMA(dma);
	return softdoca_ctx_destroy(&dma->ctx, DOCA_ERROR_IN_USE, softdoca_object_free, dma);
}

AS_MEMBER(doca_dma_as_ctx, struct doca_dma, struct doca_ctx, OBJECT_DMA, "a DMA context", ctx)

doca_error_t doca_dma_get_gpu_handle(struct doca_dma *dma, struct doca_gpu_dma **gpu_dma)
{
	CHECK_DMA(dma);
	CHECK_OUT(gpu_dma);
	if (!dma->on_gpu.structure) /* DMA reference */
		return REFUSE(DOCA_ERROR_BAD_STATE,
			      "the context is not started with its data path on a GPU");
	*gpu_dma = (struct doca_gpu_dma *)dma->on_gpu.structure->addr;
	return DOCA_SUCCESS;
}

/* Its signature is inferred from published uses; the errors are guesses. */
doca_error_t doca_dma_set_ordered_completions(struct doca_dma *dma, uint8_t enable)
{
	CHECK_DMA(dma);
	if (dma->ctx.state != DOCA_CTX_STATE_IDLE)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is started");
	if (enable > 1)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "enable is %u, not 0 or 1", enable);
	return DOCA_SUCCESS;
}

doca_error_t doca_dma_task_memcpy_set_conf(struct doca_dma *dma,
					   doca_dma_task_memcpy_completion_cb_t task_completion_cb,
					   doca_dma_task_memcpy_completion_cb_t task_error_cb,
					   uint32_t num_memcpy_tasks)
{
	CHECK_DMA(dma);
	TRY(softdoca_tasks_check(&dma->ctx, task_completion_cb && task_error_cb, num_memcpy_tasks, TASKS_MAX,
				 __func__));
	dma->done_cb = task_completion_cb;
	dma->error_cb = task_error_cb;
	dma->num_tasks = num_memcpy_tasks;
	return DOCA_SUCCESS;
}

/* ---- tasks ---- */

static doca_error_t new_task(struct doca_dma *dma, const struct doca_buf *src, struct doca_buf *dst,
			     union doca_data user_data, struct doca_dma_task_memcpy **task)
{
	if (dma->ctx.state != DOCA_CTX_STATE_RUNNING) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is not running");
	if (dma->ctx.gpu) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "kernels post this context's copies");
	struct doca_dma_task_memcpy *t = softdoca_memcpy_new(dma, user_data);
	if (!t) /* DMA reference */
		return REFUSE(DOCA_ERROR_NO_MEMORY, "all %u tasks are allocated", dma->num_tasks);
	t->src = src;
	t->dst = dst;
	*task = t;
	return DOCA_SUCCESS;
}

/* NULL is allowed: buffers may be set later, and are checked when the task is submitted. */
static bool may_be_buf(const struct doca_buf *buf)
{
	return !buf || object_is(buf, OBJECT_BUF);
}

doca_error_t doca_dma_task_memcpy_alloc_init(struct doca_dma *dma, const struct doca_buf *src,
					     struct doca_buf *dst, union doca_data user_data,
					     struct doca_dma_task_memcpy **task)
{
	CHECK_DMA(dma);
	CHECK_OUT(task);
	if (!may_be_buf(src) || !may_be_buf(dst)) /* guess */
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the %s, %p, is not a buffer",
			      may_be_buf(src) ? "destination" : "source",
			      may_be_buf(src) ? (const void *)dst : (const void *)src);
	RETURN_INSIDE(dma->ctx.pe, new_task(dma, src, dst, user_data, task));
}

static bool is_task(const struct doca_dma_task_memcpy *task, const char *func)
{
	return object_is(task, OBJECT_MEMCPY) ||
	       REFUSE_FOR(func, false, "%p is not a memcpy task", (const void *)task);
}

/* Returns whether the task's buffers can be set. They cannot while the task is in flight. */
static bool is_idle_task(const struct doca_dma_task_memcpy *task, const char *func)
{
	if (!is_task(task, func))
		return false;
	if (task->task.in_flight)
		softdoca_log(DOCA_LOG_LEVEL_WARNING, func, "%p is in flight: nothing is set",
			     (const void *)task);
	return !task->task.in_flight;
}

struct doca_task *doca_dma_task_memcpy_as_task(struct doca_dma_task_memcpy *task)
{
	return is_task(task, __func__) ? &task->task : NULL;
}

void doca_dma_task_memcpy_set_src(struct doca_dma_task_memcpy *task, const struct doca_buf *src)
{
	if (is_idle_task(task, __func__))
		task->src = src;
}

const struct doca_buf *doca_dma_task_memcpy_get_src(const struct doca_dma_task_memcpy *task)
{
	return is_task(task, __func__) ? task->src : NULL;
}

void doca_dma_task_memcpy_set_dst(struct doca_dma_task_memcpy *task, struct doca_buf *dst)
{
	if (is_idle_task(task, __func__))
		task->dst = dst;
}

struct doca_buf *doca_dma_task_memcpy_get_dst(const struct doca_dma_task_memcpy *task)
{
	return is_task(task, __func__) ? task->dst : NULL;
}
