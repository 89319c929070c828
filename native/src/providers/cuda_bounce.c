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
#include "cuda_provider.h"

enum {
	ALIGNED = 64,
	WORD = 8,
	/* Bytes that the copy engine reads while the driver submits one copy of a batch, .75 us. So
	 * sources that are closer to each other are read by one copy, with what is between them. */
	SPAN_EACH = 32768,
};

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

/* Operations of a group, of which those from GPU to GPU memory have their sources in one region,
 * between low and high. */
struct span {
	uint32_t first, end, n;
	uint32_t region;
	const char *low, *high;
};

static bool is_on_gpu(const struct dg_op *op)
{
	return to_gpu(op) && from_gpu(op);
}

/* Adds the group's operations from `first` on, as long as the sources fit the buffer. */
static struct span span_from(struct cuda_queue *q, const struct group *g, uint32_t first)
{
	struct span s = {.first = first, .end = first};
	for (; s.end != g->first + g->n && s.n < CHUNK; s.end++) {
		const struct dg_op *op = sq_entry(q->p, s.end);
		const uint32_t region = op->opcode == DG_WRITE ? op->local : op->remote;
		if (!is_on_gpu(op))
			continue;
		const char *low = s.n && s.low < op->src ? s.low : op->src;
		const char *high = s.n && s.high > op->src + op->size ? s.high : op->src + op->size;
		if ((s.n && region != s.region) || high - low > (ptrdiff_t)BOUNCE)
			break;
		s.region = region;
		s.low = low;
		s.high = high;
		s.n++;
	}
	return s;
}

/* Copies the whole span into the buffer by one copy, and each operation's bytes out of it. */
static CUresult bounce_span(struct cuda_queue *q, const struct span *s)
{
	struct chunk to_gpu;
	chunk_of(&to_gpu, WRITES);
	to_gpu.room = true; /* the buffer may be read beyond its end */
	CUresult code = cuda.cuMemcpyDtoHAsync(q->bounce, gpu_ptr(s->low), (size_t)(s->high - s->low),
					       q->stream->handle);
	q->stream->on_engine = true;
	for (uint32_t i = s->first; i != s->end && !code; i++) {
		const struct dg_op *op = sq_entry(q->p, i);
		if (is_on_gpu(op))
			code = cuda_chunk_add(q, &to_gpu, op, i, gpu_ptr(op->dst),
					      gpu_ptr(q->bounce + (op->src - s->low)));
	}
	return code ? code : cuda_chunk_send(q, &to_gpu);
}

/* Copies each operation's bytes into a place of their own in the buffer, and out of it. */
static CUresult bounce_each(struct cuda_queue *q, const struct span *s)
{
	struct chunk out, in;
	CUresult code = 0;
	uint64_t used = 0;
	chunk_of(&out, READS);
	chunk_of(&in, WRITES);
	in.room = true;
	for (uint32_t i = s->first; i != s->end && !code; i++) {
		const struct dg_op *op = sq_entry(q->p, i);
		if (!is_on_gpu(op))
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

CUresult cuda_bounce_many(struct cuda_queue *q, const struct group *g)
{
	const uint32_t end = g->first + g->n;
	CUresult code = 0;
	for (uint32_t i = g->first; i != end && !code;) {
		struct span s = span_from(q, g, i);
		const uint64_t bytes = s.n ? (uint64_t)(s.high - s.low) : 0;
		i = s.end;
		if (s.n > 1 && bytes <= s.n * (uint64_t)SPAN_EACH) {
			code = bounce_span(q, &s);
		} else {
			s.end = i = end; /* sources far apart: not looked at again */
			code = bounce_each(q, &s);
		}
	}
	return code;
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
