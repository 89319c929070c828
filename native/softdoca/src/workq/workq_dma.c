// SPDX-License-Identifier: Apache-2.0
/* DMA contexts. Each work queue of a context is a DMA context of the current API. It is started
 * when the work queue is added, because it has to be connected to its progress engine before the
 * start. */
#include <stdlib.h>

#include "workq.h"

/* ---- the current context of a work queue ---- */

/* A task is complete: makes it the work queue's event. */
static void complete(struct doca_dma_task_memcpy *task, union doca_data task_data,
		     union doca_data ctx_data)
{
	struct job *job = task_data.ptr;
	struct binding *b = job->binding;
	struct wq_workq *w = b->workq;
	(void)ctx_data;
	w->error = doca_task_get_status(doca_dma_task_memcpy_as_task(task));
	w->event = (struct wq_event){.type = job->type, .user_data = job->user_data};
	w->event.result.u64 = w->error;
	w->ready = true;
	w->in_flight--;
	b->in_flight--;
	job->next_free = b->free;
	b->free = job;
}

static void free_tasks(struct binding *b)
{
	for (uint32_t i = 0; i < b->n; i++) {
		if (b->jobs[i].task)
			doca_task_free(doca_dma_task_memcpy_as_task(b->jobs[i].task));
		b->jobs[i].task = NULL;
	}
}

/* Ends the context; nothing of it is in flight. */
static void stop(struct binding *b)
{
	struct doca_ctx *ctx = doca_dma_as_ctx(b->engine);
	free_tasks(b);
	doca_ctx_stop(ctx);
	while (ctx->state != DOCA_CTX_STATE_IDLE)
		doca_pe_progress(b->workq->pe);
}

static doca_error_t start(struct binding *b)
{
	doca_error_t e = doca_ctx_start(doca_dma_as_ctx(b->engine));
	if (e)
		return e;
	b->free = NULL;
	for (uint32_t i = 0; i < b->n && !e; i++) {
		struct job *job = &b->jobs[i];
		union doca_data data = {.ptr = job};
		e = doca_dma_task_memcpy_alloc_init(b->engine, NULL, NULL, data, &job->task);
		job->binding = b;
		job->next_free = b->free;
		b->free = job;
	}
	if (e)
		stop(b);
	return e;
}

doca_error_t wq_binding_run(struct binding *b)
{
	if (doca_dma_as_ctx(b->engine)->state == DOCA_CTX_STATE_RUNNING)
		return DOCA_SUCCESS;
	if (b->in_flight) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE,
			      "a job failed: retrieve the %u jobs in flight first", b->in_flight);
	stop(b);
	return start(b);
}

static void free_binding(struct binding *b)
{
	if (b->engine)
		doca_dma_destroy(b->engine);
	free(b->jobs);
	free(b);
}

static doca_error_t new_binding(struct wq_dma *dma, struct wq_workq *w, struct binding **out)
{
	struct binding *b = calloc(1, sizeof *b);
	const uint32_t n = workq_jobs(w);
	struct job *jobs = calloc(n, sizeof *jobs);
	if (!b || !jobs) {
		free(b);
		free(jobs);
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a work queue of %u jobs", n);
	}
	*b = (struct binding){.dma = dma, .workq = w, .jobs = jobs, .n = n};
	doca_error_t e = doca_dma_create(dma->dev, &b->engine);
	if (!e)
		e = doca_dma_task_memcpy_set_conf(b->engine, complete, complete, n);
	if (!e)
		e = doca_pe_connect_ctx(w->pe, doca_dma_as_ctx(b->engine));
	if (!e)
		e = start(b);
	if (e)
		free_binding(b);
	else
		*out = b;
	return e;
}

/* ---- contexts ---- */

DOCA_STABLE doca_error_t wq_dma_create(struct wq_dma **dma)
{
	CHECK_OUT(dma);
	struct wq_dma *d = softdoca_object_new(OBJECT_WORKQ_DMA, sizeof *d);
	if (!d)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a DMA context");
	*dma = d;
	return DOCA_SUCCESS;
}
EXPORT(dma_create);

DOCA_STABLE doca_error_t wq_dma_destroy(struct wq_dma *dma)
{
	CHECK_CTX(dma);
	if (dma->bindings || dma->started) /* DMA 1.5 for work queues; guess for started */
		return REFUSE(DOCA_ERROR_IN_USE, "the context is started");
	if (dma->dev)
		atomic_fetch_sub(&dma->dev->users, 1);
	softdoca_object_free(dma);
	return DOCA_SUCCESS;
}
EXPORT(dma_destroy);

DOCA_STABLE struct wq_dma *wq_dma_as_ctx(struct wq_dma *dma)
{
	if (object_is(dma, OBJECT_WORKQ_DMA))
		return dma;
	return REFUSE(NULL, "%p is not a DMA context", (void *)dma);
}
EXPORT(dma_as_ctx);

DOCA_STABLE doca_error_t doca_ctx_dev_add(struct wq_dma *ctx, struct doca_dev *dev)
{
	CHECK_CTX(ctx);
	CHECK_DEV(dev);
	if (ctx->started) /* Ctx 1.5 */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is started");
	if (ctx->dev == dev) /* Ctx 1.5 */
		return REFUSE(DOCA_ERROR_IN_USE, "the context has %s", dev->info.f.pci);
	if (ctx->dev || !(dev->info.f.caps & CAP_DMA)) /* Ctx 1.5; guess for a second device */
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "%s",
			      ctx->dev ? "the context has another device"
				       : "the device has no DMA");
	atomic_fetch_add(&dev->users, 1);
	ctx->dev = dev;
	return DOCA_SUCCESS;
}

DOCA_STABLE doca_error_t doca_ctx_dev_rm(struct wq_dma *ctx, struct doca_dev *dev)
{
	CHECK_CTX(ctx);
	CHECK_DEV(dev);
	if (ctx->started) /* Ctx 1.5 */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is started");
	if (ctx->dev != dev) /* Ctx 1.5 */
		return REFUSE(DOCA_ERROR_NOT_FOUND, "the context does not have %s",
			      dev->info.f.pci);
	atomic_fetch_sub(&dev->users, 1);
	ctx->dev = NULL;
	return DOCA_SUCCESS;
}

DOCA_STABLE doca_error_t wq_ctx_start(struct wq_dma *ctx)
{
	CHECK_CTX(ctx);
	if (!ctx->dev) /* Ctx 1.5 */
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the context has no device");
	if (ctx->started) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is started");
	ctx->started = true;
	return DOCA_SUCCESS;
}
EXPORT(ctx_start);

DOCA_STABLE doca_error_t wq_ctx_stop(struct wq_dma *ctx)
{
	CHECK_CTX(ctx);
	if (ctx->bindings) /* Ctx 1.5 */
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "a work queue is added: remove it first");
	ctx->started = false;
	return DOCA_SUCCESS;
}
EXPORT(ctx_stop);

DOCA_STABLE doca_error_t doca_ctx_workq_add(struct wq_dma *ctx, struct wq_workq *workq)
{
	CHECK_CTX(ctx);
	CHECK_WORKQ(workq);
	if (!ctx->started) /* Ctx 1.5 */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is not started");
	for (const struct binding *b = ctx->bindings; b; b = b->next)
		if (b->workq == workq) /* Ctx 1.5 */
			return REFUSE(DOCA_ERROR_IN_USE, "the work queue is added already");
	struct binding *b;
	TRY(new_binding(ctx, workq, &b));
	b->next = ctx->bindings;
	ctx->bindings = b;
	workq->contexts++;
	return DOCA_SUCCESS;
}

DOCA_STABLE doca_error_t doca_ctx_workq_rm(struct wq_dma *ctx, struct wq_workq *workq)
{
	CHECK_CTX(ctx);
	CHECK_WORKQ(workq);
	if (!ctx->started) /* Ctx 1.5 */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is not started");
	struct binding **at = &ctx->bindings;
	while (*at && (*at)->workq != workq)
		at = &(*at)->next;
	struct binding *b = *at;
	if (!b) /* Ctx 1.5 */
		return REFUSE(DOCA_ERROR_NOT_FOUND, "the work queue was not added");
	if (b->in_flight) /* Ctx 1.5 */
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "%u jobs are in flight", b->in_flight);
	stop(b);
	*at = b->next;
	free_binding(b);
	workq->contexts--;
	return DOCA_SUCCESS;
}

DOCA_STABLE GETTER(doca_ctx_get_event_driven_supported, CHECK_CTX, struct wq_dma, uint8_t, 1)
