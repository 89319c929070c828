// SPDX-License-Identifier: Apache-2.0
/*
 * From the submission ring into a stream.
 *
 * One operation is one copy by the GPU's copy engine, which takes care to ensure: the driver sends
 * a copy of less than 32 KiB from the host inline, through the channel of the compute engine. While
 * another process keeps the GPU busy, that channel waits for its time slice: 2.4 ms on an H200
 * instead of 6 us. A copy of two rows always goes to the copy engine, so a small write is made of
 * two rows: its two halves if its size is a multiple of 16 bytes, otherwise the bytes themselves
 * and, as the second row, the same bytes to a scratch granule that is mapped behind each imported
 * block. (A polling kernel saw two halves of 8 bytes torn 8,270 times in 222,895 writes, and one
 * row of 8 bytes never in 299,609.)
 *
 * Many small operations posted together are one launch of a kernel (cuda_gather.h): the driver
 * spends 0.4 us of CPU time on each copy of a batch, while the kernel runs 256 in 7 us. Therefore
 * order holds between posts and not within one.
 */
#include "cuda.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cuda_gather.h"
#include "region.h"
#include "strided_copy.h"

enum {
	PLAIN_FROM =
		32768, /* from this size in bytes, any copy from the host uses the copy engine */
	WORD = 8, /* bytes that a polling kernel never sees torn */
	GATHER_MAX = 4096, /* largest operation for the kernel, in bytes */
	GATHER_MIN = 8, /* smallest number of operations worth a launch */
	GATHER_SMALL = 64, /* up to this size, 8 threads copy an operation; above, a warp */
	THREADS = 256, /* per block */
	PUBLISHED = 64, /* completions published at a time */
};

static inline bool to_gpu(const struct dg_op *op)
{
	return op->flags & (op->opcode == DG_WRITE ? OP_GPU_REMOTE : OP_GPU_LOCAL);
}

static inline bool from_gpu(const struct dg_op *op)
{
	return op->flags & (op->opcode == DG_WRITE ? OP_GPU_LOCAL : OP_GPU_REMOTE);
}

static inline CUdeviceptr ptr(const void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

CUresult cuda_plain_copy(struct cuda_queue *q, const struct dg_op *op)
{
	if (!from_gpu(op))
		return cuda.cuMemcpyHtoDAsync(ptr(op->dst), op->src, op->size, q->stream);
	if (!to_gpu(op))
		return cuda.cuMemcpyDtoHAsync(op->dst, ptr(op->src), op->size, q->stream);
	return cuda.cuMemcpyDtoDAsync(ptr(op->dst), ptr(op->src), op->size, q->stream);
}

/* Copies rows between host and GPU, or on the GPU. */
static CUresult rows(struct cuda_queue *q, const struct dg_op *op, uint64_t width, uint64_t height,
		     uint64_t dst_pitch, uint64_t src_pitch)
{
	CUDA_MEMCPY2D c = {
		.srcMemoryType = from_gpu(op) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
		.srcHost = op->src,
		.srcDevice = ptr(op->src),
		.srcPitch = src_pitch,
		.dstMemoryType = to_gpu(op) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
		.dstHost = op->dst,
		.dstDevice = ptr(op->dst),
		.dstPitch = dst_pitch,
		.WidthInBytes = width,
		.Height = height,
	};
	return cuda.cuMemcpy2DAsync(&c, q->stream);
}

/* Copies n bytes from src, which has them twice, src_pitch apart, to dst and to the scratch granule
 * behind dst's block. */
static CUresult with_scratch(struct cuda_queue *q, char *dst, const char *src, uint64_t n,
			     uint64_t src_pitch, CUdeviceptr tail)
{
	struct dg_op op = {.dst = dst, .src = src, .opcode = DG_WRITE, .flags = OP_GPU_REMOTE};
	uint64_t away = tail - ptr(dst), plane = q->c->granularity / 2;
	if (away <= q->c->max_pitch)
		return rows(q, &op, n, 2, away, src_pitch);
	/* Too far apart for a pitch: two planes of one row, a number of half granules apart such
	 * that the second one begins in the first half of the scratch granule. */
	CUDA_MEMCPY3D c = {
		.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = src,
		.srcPitch = src_pitch,
		.srcHeight = 1,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = ptr(dst),
		.dstPitch = plane,
		.dstHeight = (away + plane - 1) / plane,
		.WidthInBytes = n,
		.Height = 1,
		.Depth = 2,
	};
	return cuda.cuMemcpy3DAsync(&c, q->stream);
}

/* Copies less than PLAIN_FROM bytes from the host to the GPU: see the top of this file. */
static CUresult small_write(struct cuda_queue *q, const struct dg_op *op, uint32_t index)
{
	const struct dg_region_entry *to =
		region_entry_at(op->opcode == DG_WRITE ? op->remote : op->local);
	const struct dg_region_entry *from =
		region_entry_at(op->opcode == DG_WRITE ? op->local : op->remote);
	const struct cuda_mapping *m = to->region->provider_state;
	CUdeviceptr tail = m && m->kind == MAPPED_BLOCK ? m->tail : 0;
	uint64_t halves = op->size & ~(uint64_t)(2 * WORD - 1), rest = op->size - halves;
	CUresult code = 0;

	if (rest && tail && op->src + 2 * op->size <= from->base + from->size)
		return with_scratch(q, op->dst, op->src, op->size, op->size, tail);
	if (halves)
		code = rows(q, op, halves / 2, 2, halves / 2, halves / 2);
	if (code || !rest)
		return code;
	if (!tail)
		return cuda.cuMemcpyHtoDAsync(ptr(op->dst + halves), op->src + halves, rest,
					      q->stream);
	uint8_t *staged = q->staging + (uint64_t)(index & q->p->mask) * STAGED;
	memcpy(staged, op->src + halves, rest);
	return with_scratch(q, op->dst + halves, (char *)staged, rest, STAGED / 2, tail);
}

static CUresult copy_row_by_row(struct cuda_queue *q, const struct dg_op *op)
{
	CUresult code = 0;
	for (uint64_t i = 0; i < op->rows && !code; i++) {
		struct dg_op row = *op;
		row.dst = op->dst + i * op->dst_stride;
		row.src = op->src + i * op->src_stride;
		code = cuda_plain_copy(q, &row);
	}
	return code;
}

static CUresult copy_row(struct cuda_queue *q, const struct dg_op *op, uint32_t index)
{
	return to_gpu(op) && !from_gpu(op) && op->size < PLAIN_FROM ? small_write(q, op, index)
								    : cuda_plain_copy(q, op);
}

/* Source rows overlap: copies them in columns that are as wide as the stride, each with one
 * call. */
static CUresult copy_columns(struct cuda_queue *q, const struct dg_op *op)
{
	uint64_t wide = op->src_stride;
	CUresult code = 0;
	for (uint64_t at = 0; at < op->size && !code; at += wide) {
		struct dg_op column = *op;
		column.dst = op->dst + at;
		column.src = op->src + at;
		code = rows(q, &column, wide < op->size - at ? wide : op->size - at, op->rows,
			    op->dst_stride, wide);
	}
	return code;
}

/* Copies one source row to all destination rows: each call doubles the number of copied rows. */
static CUresult copy_repeated_row(struct cuda_queue *q, const struct dg_op *op, uint32_t index)
{
	struct dg_op next = *op;
	uint64_t stride = op->dst_stride;
	CUresult code = copy_row(q, op, index);
	if (!to_gpu(op)) {
		if (!code)
			code = cuda.cuStreamSynchronize(q->stream);
		if (!code)
			dg_copy_rows(op->dst + stride, op->dst, op->size, stride, 0, op->rows - 1);
		return code;
	}
	next.flags |= OP_GPU;
	next.src = op->dst;
	for (uint64_t n = 1; n < op->rows && !code; n += n) {
		next.dst = op->dst + n * stride;
		code = rows(q, &next, op->size, n < op->rows - n ? n : op->rows - n, stride,
			    stride);
	}
	return code;
}

/* Copies op in few driver calls, whatever its shape, because they take the caller's time. */
static CUresult copy(struct cuda_queue *q, const struct dg_op *op, uint32_t index)
{
	uint64_t most = q->c->max_pitch;
	if (op->rows == 1)
		return copy_row(q, op, index);
	if (op->src_stride > most || op->dst_stride > most)
		return copy_row_by_row(q, op); /* no memory has room for many such rows */
	/* Source rows may repeat or overlap, which the copy engine's pitch cannot express. */
	if (op->src_stride == 0)
		return copy_repeated_row(q, op, index);
	if (op->src_stride < op->size)
		return op->size / op->src_stride < op->rows ? copy_columns(q, op)
							    : copy_row_by_row(q, op);
	return rows(q, op, op->size, op->rows, op->dst_stride, op->src_stride);
}

void cuda_abort(struct cuda_queue *q, CUresult code)
{
	int no_error = 0;
	bool entered = cuda_enter(q->c);
	bool alive = !cuda.cuStreamSynchronize(q->stream);
	cuda_leave(entered);
	if (!alive)
		atomic_compare_exchange_strong(&q->c->lost, &no_error, code);
	for (uint32_t i = q->done; !alive && i != q->p->sq_head; i++)
		if (sq_entry(q->p, i)->status == DG_OK)
			sq_entry(q->p, i)->status = DG_IO_FAILED;
	q->submitted = q->p->sq_head;
	/* For the next poll and for the waker: nothing in the stream sets the flag any more. */
	atomic_store(q->flag, q->submitted);
	cuda_publish(q, q->submitted, now_ns(), true);
	dg_pipe_wake(q->p);
}

/* Returns the status of a copy call. INVALID_VALUE is also the driver's error for a write to memory
 * that is mapped read-only. */
static int status_of_refusal(const struct dg_op *op, CUresult code)
{
	if (code == CUDA_SUCCESS)
		return DG_OK;
	if (code != CUDA_ERROR_INVALID_VALUE)
		return DG_IO_FAILED;
	return op->flags & OP_GPU_REMOTE ? DG_REMOTE_ACCESS_ERROR : DG_LOCAL_ERROR;
}

static CUfunction gather_function(struct cuda *c)
{
	pthread_mutex_lock(&c->lock);
	if (!c->gather_tried && cuda.cuModuleLoadData && cuda.cuModuleGetFunction &&
	    cuda.cuModuleUnload && cuda.cuLaunchKernel && c->host_pointers &&
	    !cuda.cuModuleLoadData(&c->module, dg_gather_ptx) &&
	    cuda.cuModuleGetFunction(&c->gather, c->module, "dg_gather"))
		c->gather = NULL;
	c->gather_tried = true;
	pthread_mutex_unlock(&c->lock);
	return c->gather;
}

/* Consecutive operations of the ring that one launch can run. */
struct group {
	uint32_t first, n;
	uint64_t largest;
};

static CUresult launch(struct cuda_queue *q, const struct group *g)
{
	struct gather_op *ops = q->gathers;
	uint32_t first = g->first, mask = q->p->mask, n = g->n;
	uint32_t shift = g->largest <= GATHER_SMALL ? 3 : 5;
	void *params[] = {&ops, &first, &mask, &n, &shift};
	uint32_t blocks = (uint32_t)((((uint64_t)n << shift) + THREADS - 1) / THREADS);
	for (uint32_t i = 0; i < n; i++) {
		const struct dg_op *op = sq_entry(q->p, first + i);
		ops[(first + i) & mask] =
			(struct gather_op){ptr(op->dst), ptr(op->src), op->size, 0};
	}
	return cuda.cuLaunchKernel(q->c->gather, blocks, 1, 1, THREADS, 1, 1, 0, q->stream, params,
				   NULL);
}

static void flush(struct cuda_queue *q, struct group *g)
{
	if (g->n >= GATHER_MIN && gather_function(q->c)) {
		CUresult code = launch(q, g);
		for (uint32_t i = 0; i < g->n && code; i++)
			sq_entry(q->p, g->first + i)->status = DG_IO_FAILED;
	} else {
		for (uint32_t i = 0; i < g->n; i++) {
			struct dg_op *op = sq_entry(q->p, g->first + i);
			op->status = (uint16_t)status_of_refusal(op, copy(q, op, g->first + i));
		}
	}
	g->n = 0;
}

/* Whether the kernel can run op: it is small, and the GPU can access both sides. */
static inline bool gatherable(const struct dg_op *op)
{
	return op->rows == 1 && op->size <= GATHER_MAX && (op->flags & OP_GPU_REMOTE);
}

/* Submits one operation, whose regions may be accessed. */
static void submit_one(struct cuda_queue *q, struct dg_op *op, struct group *g)
{
	uint32_t index = q->p->sq_head;
	if (gatherable(op)) {
		if (op->flags & DG_FENCE)
			flush(q, g);
		if (!g->n)
			*g = (struct group){.first = index};
		g->n++;
		g->largest = op->size > g->largest ? op->size : g->largest;
		return;
	}
	flush(q, g);
	if (op->flags & OP_GPU)
		op->status = (uint16_t)status_of_refusal(op, copy(q, op, index));
	else
		op->status = (uint16_t)dg_op_run(op);
}

void cuda_check(struct cuda_queue *q)
{
	CUresult code = cuda.cuStreamQuery(q->stream);
	if (code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_READY)
		cuda_abort(q, code);
}

/* Appends the write of the flag that reports the completion of what was submitted. */
static void write_flag(struct cuda_queue *q, bool gpu)
{
	uint32_t head = q->p->sq_head;
	if (!gpu && q->submitted == q->done) { /* all of it was copied by the CPU */
		q->submitted = head;
		atomic_store(q->flag, head);
		cuda_publish(q, head, now_ns(), false);
		return;
	}
	q->submitted = head;
	CUresult code = cuda.cuStreamWriteValue32(q->stream, ptr(q->flag), head, 0);
	q->last_poll_ns = now_ns();
	if (code)
		cuda_abort(q, code);
}

void cuda_submit(struct cuda_queue *q)
{
	struct dg_pipe *p = q->p;
	struct group g = {0};
	uint32_t before = p->sq_head;
	bool gpu = false, failed = false;
	for (; sq_has(p, p->sq_head); p->sq_head++) {
		struct dg_op *op = sq_entry(p, p->sq_head);
		/* The stream keeps a fence by itself; a copy by the CPU has to wait for the
		 * stream. */
		if ((op->flags & DG_FENCE) && !(op->flags & OP_GPU) && p->sq_head != q->done)
			break;
		int status = atomic_load_explicit(&q->c->lost, memory_order_relaxed)
				     ? DG_IO_FAILED
				     : q->submit_chain;
		if (!status)
			status = dg_op_allowed(op);
		op->status = (uint16_t)status;
		if (status)
			flush(q, &g);
		else
			submit_one(q, op, &g);
		gpu |= op->flags & OP_GPU && !status;
		failed |= op->status != DG_OK;
		q->submit_chain = op->flags & DG_CHAIN ? op->status : DG_OK;
	}
	flush(q, &g);
	if (p->sq_head != before)
		write_flag(q, gpu);
	if (failed && gpu)
		cuda_check(q);
}

void cuda_publish(struct cuda_queue *q, uint32_t upto, uint64_t stamp_ns, bool late)
{
	struct dg_pipe *p = q->p;
	struct dg_gates gates = {.pass = gate_leave};
	uint32_t done[PUBLISHED], n = 0;
	q->wake_requested &= q->done == upto;
	while (q->done != upto) {
		const struct dg_op *op = sq_entry(p, q->done++);
		int status = q->publish_chain ? q->publish_chain : op->status;
		gates_add(&gates, op);
		q->publish_chain = op->flags & DG_CHAIN ? status : DG_OK;
		if (!(op->flags & DG_CHAIN))
			done[n++] = slot_status(op->slot, status) | (late ? CQE_LATE : 0);
		if (n < PUBLISHED && q->done != upto)
			continue;
		/* The gates first: after seeing the completion, a caller may close the region
		 * without waiting. */
		gates_flush(&gates);
		if (n)
			cq_publish(p, done, n, stamp_ns);
		n = 0;
	}
}
