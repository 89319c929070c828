// SPDX-License-Identifier: Apache-2.0
/* Common code of send and receive queues. */
#include "eth.h"

#include <stdlib.h>
#include <string.h>

doca_error_t eth_open(struct doca_ctx *ctx, size_t structure, size_t ring, size_t words,
		      struct eth_queue *q)
{
	*q = (struct eth_queue){NULL};
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

doca_error_t eth_open_host(struct doca_ctx *ctx, size_t ring, size_t words, struct eth_queue *q)
{
	*q = (struct eth_queue){NULL};
	q->host = aligned_alloc(ALIGN, ring + words);
	doca_error_t error = q->host ? softdoca_port_take(ctx->dev, &q->port)
				     : REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a queue");
	if (error) {
		eth_close(q);
		return error;
	}
	memset(q->host, 0, ring + words);
	return DOCA_SUCCESS;
}

void eth_close(struct eth_queue *q)
{
	struct gpu_memory *const all[] = {q->structure, q->ring, q->words};
	for (int i = 0; i < 3; i++)
		if (all[i])
			softdoca_gpu_drop(all[i]);
	if (q->port)
		softdoca_port_drop(q->port);
	free(q->host);
	*q = (struct eth_queue){NULL};
}

doca_error_t eth_check_single(const struct doca_buf *b)
{
	CHECK_OBJECT(b, OBJECT_BUF, "a buffer");
	if (b->first != b || b->list_len != 1)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "a frame is a single buffer, not a list");
	return DOCA_SUCCESS;
}

/* ---- settings ---- */

doca_error_t eth_set(const struct doca_ctx *ctx, bool *setting, uint8_t value)
{
	if (ctx->state != DOCA_CTX_STATE_IDLE)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the queue is started");
	if (value > 1)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the value is %u, not 0 or 1", value);
	*setting = value;
	return DOCA_SUCCESS;
}
