// SPDX-License-Identifier: Apache-2.0
/* What send and receive queues have in common. */
#include "eth.h"

doca_error_t eth_open(struct doca_ctx *ctx, size_t structure, size_t ring, size_t words,
		      struct eth_queue *q)
{
	*q = (struct eth_queue){0};
	doca_error_t error = softdoca_port_take(ctx->dev, &q->port);
	if (!error)
		error = softdoca_gpu_alloc_own(ctx->gpu, structure, ALIGN, DOCA_GPU_MEM_TYPE_GPU,
					       &q->structure);
	if (!error)
		error = softdoca_gpu_alloc_own(ctx->gpu, ring, ALIGN, DOCA_GPU_MEM_TYPE_CPU_GPU,
					       &q->ring);
	if (!error)
		error = softdoca_gpu_alloc_own(ctx->gpu, words, ALIGN, DOCA_GPU_MEM_TYPE_CPU_GPU,
					       &q->words);
	if (error)
		eth_close(q);
	return error;
}

void eth_close(struct eth_queue *q)
{
	struct gpu_memory *const all[] = {q->structure, q->ring, q->words};
	for (int i = 0; i < 3; i++)
		if (all[i])
			softdoca_gpu_drop(all[i]);
	if (q->port)
		softdoca_port_drop(q->port);
	*q = (struct eth_queue){0};
}

bool eth_quiet(struct doca_ctx *ctx)
{
	(void)ctx;
	return true;
}

int eth_fileno(struct doca_ctx *ctx)
{
	(void)ctx;
	return -1;
}

bool eth_no_event(struct doca_ctx *ctx)
{
	(void)ctx;
	return false;
}

void eth_nothing(struct doca_ctx *ctx)
{
	(void)ctx;
}

doca_error_t eth_no_cpu_path(struct doca_ctx *ctx)
{
	(void)ctx;
	return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
		      "Ethernet queues have their data path on a GPU: call "
		      "doca_ctx_set_datapath_on_gpu() before doca_ctx_start()");
}
