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

static void dma_gpu_stop(struct doca_ctx *ctx)
{
	(void)ctx;
}

static bool dma_gpu_quiet(struct doca_ctx *ctx)
{
	(void)ctx;
	return true;
}

static void dma_gpu_ended(struct doca_ctx *ctx)
{
	softdoca_gpu_queue_close(&dma_of(ctx)->on_gpu);
}

static bool dma_gpu_nothing(struct doca_ctx *ctx)
{
	(void)ctx;
	return false;
}

static void dma_gpu_disarm(struct doca_ctx *ctx)
{
	(void)ctx;
}

static int dma_gpu_fileno(struct doca_ctx *ctx)
{
	(void)ctx;
	return -1;
}

const struct ctx_ops dma_gpu_ops = {
	.start = dma_gpu_start,
	.stop = dma_gpu_stop,
	.quiet = dma_gpu_quiet,
	.ended = dma_gpu_ended,
	.progress = dma_gpu_nothing,
	.fileno = dma_gpu_fileno,
	.arm = dma_gpu_nothing,
	.disarm = dma_gpu_disarm,
};
