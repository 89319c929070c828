// SPDX-License-Identifier: Apache-2.0
/* Work queues: jobs are tasks of the current API, whose completions become events. */
#include "workq.h"

/* As in include/workq/doca_ctx.h and doca_dma.h. */
struct wq_job {
	int type, flags;
	struct wq_dma *ctx;
	union doca_data user_data;
	struct doca_buf *dst;
	const struct doca_buf *src;
};
/* DOCA 1.3's. */
struct wq_job_1_3 {
	struct wq_job job;
	uint64_t size;
};
enum { JOB_MEMCPY = (1 << 16) + 1 };

DOCA_STABLE doca_error_t doca_workq_create(uint32_t depth, struct wq_workq **workq)
{
	CHECK_OUT(workq);
	if (!depth || depth > TASKS_MAX) /* Ctx 1.5 for invalid input; guess for the limit */
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%u jobs: the depth must be 1 to %u", depth,
			      TASKS_MAX);
	struct wq_workq *w = softdoca_object_new(OBJECT_WORKQ, sizeof *w);
	if (!w || doca_pe_create(&w->pe)) {
		if (w)
			softdoca_object_free(w);
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a work queue");
	}
	w->depth = depth;
	*workq = w;
	return DOCA_SUCCESS;
}

DOCA_STABLE doca_error_t doca_workq_destroy(struct wq_workq *workq)
{
	CHECK_WORKQ(workq);
	if (workq->contexts) /* Ctx 1.5 */
		return REFUSE(DOCA_ERROR_IN_USE, "it was not removed from %u contexts",
			      workq->contexts);
	doca_error_t e = doca_pe_destroy(workq->pe);
	if (!e)
		softdoca_object_free(workq);
	return e;
}

/* ---- jobs ---- */

static struct binding *binding_of(const struct wq_dma *dma, const struct wq_workq *w)
{
	struct binding *b = dma->bindings;
	while (b && b->workq != w)
		b = b->next;
	return b;
}

/* Finds the job's binding, and checks that it can be submitted. */
static doca_error_t check_job(const struct wq_workq *w, const struct wq_job *job,
			      struct binding **out)
{
	CHECK_WORKQ(w);
	CHECK_OUT(job);
	CHECK_OBJECT(job->ctx, OBJECT_WORKQ_DMA, "a DMA context");
	if (job->type != JOB_MEMCPY || job->flags)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "a job of type %#x and flags %#x: %#x and 0 are known",
			      (unsigned int)job->type, (unsigned int)job->flags, JOB_MEMCPY);
	CHECK_BUF(job->src);
	CHECK_BUF(job->dst);
	if (!job->ctx->started) /* Ctx 1.5 */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is stopped");
	*out = binding_of(job->ctx, w);
	if (!*out) /* Ctx 1.5 */
		return REFUSE(DOCA_ERROR_NOT_FOUND, "the work queue was not added to the context");
	if (w->in_flight >= workq_jobs(w)) /* Ctx 1.5 */
		return REFUSE(DOCA_ERROR_NO_MEMORY, "%u jobs are in flight in a queue of depth %u",
			      w->in_flight, w->depth);
	return wq_binding_run(*out);
}

/* In these releases a copy overwrites the destination: programs submit a job again as it is. */
static doca_error_t submit(struct binding *b, const struct wq_job *from)
{
	for (struct doca_buf *d = from->dst; d; d = d->next)
		d->data_len = 0;
	struct job *job = b->free;
	job->type = from->type;
	job->user_data = from->user_data;
	doca_dma_task_memcpy_set_src(job->task, from->src);
	doca_dma_task_memcpy_set_dst(job->task, from->dst);
	TRY(doca_task_submit(doca_dma_task_memcpy_as_task(job->task)));
	b->free = job->next_free;
	b->in_flight++;
	b->workq->in_flight++;
	return DOCA_SUCCESS;
}

DOCA_STABLE doca_error_t doca_workq_submit(struct wq_workq *workq, const struct wq_job *job)
{
	struct binding *b;
	doca_error_t e = check_job(workq, job, &b);
	return e ? e : submit(b, job);
}

DOCA_STABLE doca_error_t softdoca_1_3_workq_submit(struct wq_workq *workq,
						   const struct wq_job_1_3 *job)
{
	struct binding *b;
	TRY(check_job(workq, &job->job, &b));
	struct doca_buf *src = (struct doca_buf *)job->job.src, *dst = job->job.dst;
	if (!job->size || job->size > src->len || job->size > dst->len)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "a copy of %llu bytes between buffers of %zu and %zu",
			      (unsigned long long)job->size, src->len, dst->len);
	src->data = src->head;
	src->data_len = job->size;
	dst->data = dst->head;
	return submit(b, &job->job);
}

DOCA_STABLE doca_error_t doca_workq_progress_retrieve(struct wq_workq *workq, struct wq_event *ev,
						      int flags)
{
	CHECK_WORKQ(workq);
	CHECK_OUT(ev);
	if (flags)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "flags %#x: none is known",
			      (unsigned int)flags);
	while (!workq->ready)
		if (!doca_pe_progress(workq->pe))
			return DOCA_ERROR_AGAIN;
	*ev = workq->event;
	workq->ready = false;
	return workq->error ? DOCA_ERROR_IO_FAILED : DOCA_SUCCESS; /* Ctx 1.5 */
}

/* ---- attributes ---- */

DOCA_STABLE GETTER(doca_workq_get_depth, CHECK_WORKQ, const struct wq_workq, uint32_t,
		   handle->depth)

DOCA_STABLE doca_error_t doca_workq_set_depth(struct wq_workq *workq, uint32_t depth)
{
	CHECK_WORKQ(workq);
	if (!depth || depth > TASKS_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%u jobs: the depth must be 1 to %u", depth,
			      TASKS_MAX);
	if (workq->contexts) /* guess */
		return REFUSE(DOCA_ERROR_BAD_STATE, "it is added to %u contexts", workq->contexts);
	workq->depth = depth;
	return DOCA_SUCCESS;
}

DOCA_STABLE doca_error_t doca_workq_set_event_driven_enable(struct wq_workq *workq, uint8_t enable)
{
	CHECK_WORKQ(workq);
	if (enable > 1)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "enable is %u, not 0 or 1", enable);
	if (workq->contexts && workq->event_driven != enable) /* Ctx 1.5 */
		return REFUSE(DOCA_ERROR_BAD_STATE, "it is added to %u contexts", workq->contexts);
	workq->event_driven = enable;
	return DOCA_SUCCESS;
}

DOCA_STABLE GETTER(doca_workq_get_event_driven_enable, CHECK_WORKQ, struct wq_workq, uint8_t,
		   handle->event_driven)

/* Ctx 1.5: BAD_STATE unless enabled. */
#define CHECK_EVENT_DRIVEN(w)                                             \
	do {                                                              \
		CHECK_WORKQ(w);                                           \
		if (!(w)->event_driven)                                   \
			return REFUSE(DOCA_ERROR_BAD_STATE,               \
				      "event-driven mode is not enabled"); \
	} while (0)

DOCA_STABLE doca_error_t doca_workq_get_event_handle(struct wq_workq *workq,
						     doca_event_handle_t *handle)
{
	CHECK_EVENT_DRIVEN(workq);
	return doca_pe_get_notification_handle(workq->pe, handle);
}

DOCA_STABLE doca_error_t doca_workq_event_handle_arm(struct wq_workq *workq)
{
	CHECK_EVENT_DRIVEN(workq);
	return doca_pe_request_notification(workq->pe);
}

DOCA_STABLE doca_error_t doca_workq_event_handle_clear(struct wq_workq *workq,
						       doca_event_handle_t handle)
{
	CHECK_EVENT_DRIVEN(workq);
	return doca_pe_clear_notification(workq->pe, handle);
}
