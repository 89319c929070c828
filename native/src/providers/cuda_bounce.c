// SPDX-License-Identifier: Apache-2.0
/*
 * Copies beside kernels: for the queue of a proxy, whose operations a kernel waits for that may
 * occupy every multiprocessor of the GPU.
 *
 * While such a kernel runs, all forms of copies between host and device that cuda_copy.c and
 * cuda_batch.c use make progress, and so do write-values. These wait until the kernel ends: any
 * other kernel, any copy within one GPU, cuMemFreeHost and cuMemHostUnregister. So copies from GPU
 * to GPU memory go through a bounce buffer in pinned memory, in one stream, whose order ensures
 * that a copy out of the buffer follows the copy into it and precedes the next copy into it.
 */
#include "cuda.h"

enum { ALIGNED = 64, WORD = 8 };

CUresult cuda_bounce(struct cuda_queue *q, const struct dg_op *op, uint32_t index)
{
	const bool write = op->opcode == DG_WRITE;
	struct dg_op out = *op, in = *op;
	CUresult code = 0;
	out.flags &= (uint8_t)~(write ? OP_GPU_REMOTE : OP_GPU_LOCAL);
	in.flags &= (uint8_t)~(write ? OP_GPU_LOCAL : OP_GPU_REMOTE);
	out.dst = q->bounce;
	in.src = q->bounce;
	for (uint64_t at = 0; at < op->size && !code; at += BOUNCE) {
		out.size = in.size = op->size - at < BOUNCE ? op->size - at : BOUNCE;
		out.src = op->src + at;
		in.dst = op->dst + at;
		code = cuda_plain_copy(q, &out);
		if (!code)
			code = in.size < PLAIN_FROM ? cuda_small_write(q, &in, index, true)
						    : cuda_plain_copy(q, &in);
	}
	return code;
}

/* Sends both lists: the second one copies out of the buffer what the first one copied into it. */
static CUresult send_both(struct cuda_queue *q, struct chunk *out, struct chunk *in)
{
	CUresult code = cuda_chunk_send(q, out);
	return code ? code : cuda_chunk_send(q, in);
}

CUresult cuda_bounce_many(struct cuda_queue *q, const struct group *g)
{
	struct chunk out, in;
	CUresult code = 0;
	uint64_t used = 0;
	chunk_of(&out, READS);
	chunk_of(&in, WRITES);
	in.room = true;
	for (uint32_t i = g->first; i != g->first + g->n && !code; i++) {
		const struct dg_op *op = sq_entry(q->p, i);
		if (!to_gpu(op) || !from_gpu(op))
			continue;
		if (out.n == CHUNK || in.n == CHUNK || op->size > BOUNCE - used) {
			code = send_both(q, &out, &in);
			used = 0;
		}
		const CUdeviceptr at = gpu_ptr(q->bounce + used);
		if (!code)
			code = cuda_chunk_add(q, &out, op, i, at, gpu_ptr(op->src));
		if (!code)
			code = cuda_chunk_add(q, &in, op, i, gpu_ptr(op->dst), at);
		used += (op->size + ALIGNED - 1) / ALIGNED * ALIGNED;
	}
	return code || !used ? code : send_both(q, &out, &in);
}

/* Copies two planes of one row each, the form that cuda_copy.c uses. */
static void warm_planes(struct cuda_queue *q, CUdeviceptr at)
{
	const CUDA_MEMCPY3D c = {
		.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = q->bounce,
		.srcPitch = WORD,
		.srcHeight = 1,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = at,
		.dstPitch = STAGED,
		.dstHeight = 1,
		.WidthInBytes = WORD,
		.Height = 1,
		.Depth = 2,
	};
	cuda.cuMemcpy3DAsync(&c, q->stream->handle);
}

CUresult cuda_warm_up(struct cuda_queue *q)
{
	const CUdeviceptr at = q->c->scratch_at + q->scratch;
	CUmemOp word = {.writeValue = {.operation = CU_MEM_OP_WRITE_VALUE_64, .address = at}};
	/* A call that the driver refuses here will also be refused for the operation that needs
	 * it. */
	cuda_take_engine(q);
	cuda_led_copy(q, at, q->bounce, WORD);
	warm_planes(q, at);
	cuda.cuMemcpyDtoHAsync(q->bounce, at, STAGED, q->stream->handle);
	cuda.cuMemcpyHtoDAsync(at, q->bounce, PLAIN_FROM, q->stream->handle);
	if (q->c->word_writes)
		cuda.cuStreamBatchMemOp(q->stream->handle, 1, &word, 0);
	cuda.cuStreamWriteValue32(q->stream->handle, gpu_ptr(q->flag), 0, 0);
	q->stream->on_engine = false;
	return cuda.cuStreamSynchronize(q->stream->handle);
}
