// SPDX-License-Identifier: Apache-2.0
/* RDMA contexts whose data path is on a GPU: kernels post to the connections' queue pairs. All queue pairs
 * are opened by the start, so that no memory of a running kernel changes; a connection that ends does not
 * give its queue pair back. "guess" marks an assumption that no published source confirms. */
#include <stdlib.h>
#include <string.h>

#include "doca_gpunetio_dev.h"
#include "copy/gpu_queue.h"
#include "rdma.h"

static doca_error_t open_queues(struct doca_rdma *r)
{
	struct gpu_queue *q = calloc(r->max_connections, sizeof *q);
	doca_error_t error = q ? DOCA_SUCCESS
			       : REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %u queue pairs",
					r->max_connections);
	r->gpu.queues = q;
	for (uint32_t i = 0; i < r->max_connections && !error; i++)
		error = softdoca_gpu_queue_open(&q[i], r->ctx.gpu, r->ctx.dev,
						power_of_two(r->send_size),
						i ? 0 : power_of_two(r->receive_size),
						i ? q : NULL, rdma_nic_rights(r));
	return error;
}

/* The structure for device code, and the connections behind it. */
static doca_error_t lay_out(struct doca_rdma *r)
{
	struct doca_priv_gpu_dev_rdma_connection *connections;
	const size_t size =
		sizeof(struct doca_gpu_dev_rdma) + r->max_connections * sizeof *connections;
	doca_error_t error =
		softdoca_gpu_alloc_own(r->ctx.gpu, size, 64, DOCA_GPU_MEM_TYPE_GPU, &r->gpu.structure);
	if (error)
		return error;
	char *const at = r->gpu.structure->addr;
	struct doca_gpu_dev_rdma *s = calloc(1, size);
	if (!s)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for the structure of kernels");
	s->count = r->max_connections;
	s->connections = (void *)(at + sizeof *s);
	connections = (void *)(s + 1);
	for (uint32_t i = 0; i < r->max_connections; i++)
		connections[i].qp = (void *)r->gpu.queues[i].structure->addr;
	s->receives.rdma = (void *)at;
	s->receives.qp = (void *)r->gpu.queues[0].structure->addr;
	error = softdoca_gpu_fill(r->gpu.structure, s, size);
	free(s);
	return error;
}

static void rdma_gpu_ended(struct doca_ctx *ctx)
{
	struct doca_rdma *r = rdma_of(ctx);
	rdma_end_connections(r);
	/* The first one, which has the receives, last. */
	for (uint32_t i = r->max_connections; i-- > 0 && r->gpu.queues;)
		if (r->gpu.queues[i].pd)
			softdoca_gpu_queue_close(&r->gpu.queues[i]);
	free(r->gpu.queues);
	if (r->gpu.structure)
		softdoca_gpu_drop(r->gpu.structure);
	r->gpu = (struct rdma_gpu){NULL};
}

static doca_error_t rdma_gpu_start(struct doca_ctx *ctx)
{
	struct doca_rdma *r = rdma_of(ctx);
	r->gpu = (struct rdma_gpu){NULL};
	doca_error_t error = rdma_open(r, &rdma_nic);
	if (!error)
		error = open_queues(r);
	if (!error)
		error = lay_out(r);
	if (error)
		rdma_gpu_ended(ctx);
	return error;
}

static bool rdma_gpu_progress(struct doca_ctx *ctx)
{
	struct doca_rdma *r = rdma_of(ctx);
	r->calling = true;
	const bool any = rdma_serve_connections(r);
	r->calling = false;
	return any;
}

const struct ctx_ops rdma_gpu_ops = {
	.start = rdma_gpu_start,
	.stop = rdma_stop,
	.quiet = rdma_quiet,
	.ended = rdma_gpu_ended,
	.progress = rdma_gpu_progress,
	.arm = rdma_arm,
	.timed = true,
};

/* RDMA reference: INVALID_VALUE, BAD_STATE. */
doca_error_t doca_rdma_get_gpu_handle(struct doca_rdma *rdma, struct doca_gpu_dev_rdma **gpu_rdma)
{
	CHECK_OBJECT(rdma, OBJECT_RDMA, "an RDMA context");
	CHECK_OUT(gpu_rdma);
	if (!rdma->gpu.structure)
		return REFUSE(DOCA_ERROR_BAD_STATE,
			      "the context is not started, or its data path is not on a GPU");
	*gpu_rdma = (struct doca_gpu_dev_rdma *)rdma->gpu.structure->addr;
	return DOCA_SUCCESS;
}
