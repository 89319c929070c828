// SPDX-License-Identifier: Apache-2.0
/* DMA contexts whose data path is on a GPU: kernels post copies to a queue of the software NIC. There
 * are no tasks, and no progress is needed. */
#include "engine.h"
#include "gpu_queue.h"

/* Copies that kernels may post ahead: chosen. */
#define ENTRIES 1024u

static doca_error_t dma_gpu_start(struct doca_ctx *ctx)
{
	return gpu_queue_open(&dma_of(ctx)->on_gpu, ctx->gpu, ctx->dev, ENTRIES);
}

static void dma_gpu_ended(struct doca_ctx *ctx)
{
	softdoca_gpu_queue_close(&dma_of(ctx)->on_gpu);
}

const struct ctx_ops dma_gpu_ops = {
	.start = dma_gpu_start,
	.ended = dma_gpu_ended,
	.progress = softdoca_ctx_no_event,
};
