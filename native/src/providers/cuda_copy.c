// SPDX-License-Identifier: Apache-2.0
/*
 * From the submission ring into a stream.
 *
 * Every operation must be executed by the GPU's copy engine, which takes some care. The driver
 * sends a copy of less than 32 KiB from the host inline, through the channel of the compute engine,
 * and write-values through the channel of the stream's last work. While another process keeps the
 * GPU busy, the compute channel waits for its time slice: 2.4 ms on an H200 instead of 7 us. So a
 * small write takes one of these forms:
 *
 *   words      up to 32 bytes in whole, aligned words, alone in the queue, and those that follow
 *              behind fences: write-values, and the completion's flag with them, in one call. 5 us
 *              for 8 bytes, 1 us for each word more.
 *              Only while `on_engine` says that the stream's last work was the copy engine's:
 *              otherwise this form waits for the time slice, and so does each one after it. In memory
 *              without a scratch granule, two rows of scratch memory go before it then.
 *   two rows   a 2-D copy of two rows always goes to the copy engine. The two halves, if the size
 *              is a multiple of 16 bytes; otherwise the bytes themselves and, as the second row,
 *              the same bytes to a scratch granule that is mapped behind each imported block of
 *              CUDA virtual memory. 7 to 9 us.
 *   led        where there is no such granule (CUDA IPC, whose blocks the driver does not let a
 *              pitch leave), for what is not whole words: a call of several copies
 *              (cuMemcpyBatchAsync), whose second one goes to scratch memory, directly behind two
 *              rows. It stays with the copy engine, which a single plain copy does not. 10 us; about
 *              1 of 1,000 waits all the same, and so may a write-value behind it.
 *
 * Bare C on an H200, median us with its owner idle; busy. The last column: across two GPUs.
 *
 *   write 8 B, a plain copy                       6.4; 2,421
 *   write 8 B, two rows                           6.9; 7.0       9.0; 8.0
 *   write 64 B, two rows                          7.0; 7.0       9.0; 8.0
 *   write 8 B, write-values with the flag         4.6; 4.5       5.1; 5.0
 *   write 32 B, write-values                                     7.6; 6.8
 *   write 64 B, write-values                                    10.8; 9.9
 *   256 writes of 64 B, one call behind two rows   128; 135       223; 133
 *   256 writes of 64 B, one call alone             260; 2,427
 *   256 writes of 64 B, pairs as two rows each     315; 314       304; 306
 *   256 writes of 64 B, a kernel                    18; 2,431
 *   read 8 B, a plain copy                         5.9; 5.9
 *
 * A row ends at a word boundary of 8 bytes, so no word is torn. (With two rows of 4 bytes, a
 * polling kernel saw 181 of 4,430 words torn; with one row or one write-value, none.)
 *
 * Operations posted together are a batch: see cuda_batch.c. Order is kept between posts, but not
 * within one.
 */
#include "cuda_provider.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cpu_copy.h"
#include "region.h"
#include "strided_copy.h"

enum {
	WORD = 8, /* bytes that a polling kernel never sees torn */
	WORDS = 4, /* written by write-values; for more words, two rows are faster */
	RUN = 32, /* words of operations behind fences that one call writes */
	REPEATED = 256, /* rows that the copy engine repeats in 100 us */
	SMALL = 4096, /* largest operation of a batch, in bytes */
	BOUNCED = 16384, /* the same, beside kernels: alone, each would wait for two engines */
	PUBLISHED = 64, /* completions published at a time */
};

CUresult cuda_plain_copy(struct cuda_queue *q, const struct dg_op *op)
{
	const CUstream stream = q->stream->handle;
	q->stream->on_engine = to_gpu(op) ? !from_gpu(op) && op->size >= PLAIN_FROM : true;
	if (!from_gpu(op))
		return cuda.cuMemcpyHtoDAsync(gpu_ptr(op->dst), op->src, op->size, stream);
	if (!to_gpu(op))
		return cuda.cuMemcpyDtoHAsync(op->dst, gpu_ptr(op->src), op->size, stream);
	return cuda.cuMemcpyDtoDAsync(gpu_ptr(op->dst), gpu_ptr(op->src), op->size, stream);
}

/* Copies rows between host and GPU, or on the GPU. */
static CUresult rows(struct cuda_queue *q, const struct dg_op *op, uint64_t width, uint64_t height,
		     uint64_t dst_pitch, uint64_t src_pitch)
{
	CUDA_MEMCPY2D c = {
		.srcMemoryType = from_gpu(op) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
		.srcHost = op->src,
		.srcDevice = gpu_ptr(op->src),
		.srcPitch = src_pitch,
		.dstMemoryType = to_gpu(op) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
		.dstHost = op->dst,
		.dstDevice = gpu_ptr(op->dst),
		.dstPitch = dst_pitch,
		.WidthInBytes = width,
		.Height = height,
	};
	q->stream->on_engine = to_gpu(op) ? !from_gpu(op) && height > 1 : true;
	return cuda.cuMemcpy2DAsync(&c, q->stream->handle);
}

CUresult cuda_take_engine(struct cuda_queue *q)
{
	/* The copied bytes do not matter. */
	struct dg_op op = {.dst = (char *)(uintptr_t)(q->c->scratch_at + q->scratch),
			   .src = (char *)q->staging,
			   .opcode = DG_WRITE,
			   .flags = OP_GPU_REMOTE};
	return rows(q, &op, WORD, 2, STAGED, WORD);
}

/* Copies n bytes from src, which holds them twice, src_pitch apart: once to dst, and once to the
 * queue's part of the scratch granule behind dst's block. */
static CUresult with_scratch(struct cuda_queue *q, char *dst, const char *src, uint64_t n,
			     uint64_t src_pitch, CUdeviceptr tail)
{
	struct dg_op op = {.dst = dst, .src = src, .opcode = DG_WRITE, .flags = OP_GPU_REMOTE};
	uint64_t away = tail + q->scratch - gpu_ptr(dst), plane = q->c->granularity / 2;
	if (away <= q->c->max_pitch)
		return rows(q, &op, n, 2, away, src_pitch);
	/* The distance is too large for a pitch: use two planes of one row each. The second plane
	 * is a multiple of half a granule away, so that it begins anywhere in the first half of the
	 * scratch granule. */
	CUDA_MEMCPY3D c = {
		.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = src,
		.srcPitch = src_pitch,
		.srcHeight = 1,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = gpu_ptr(dst),
		.dstPitch = plane,
		.dstHeight = (tail - gpu_ptr(dst) + plane - 1) / plane,
		.WidthInBytes = n,
		.Height = 1,
		.Depth = 2,
	};
	q->stream->on_engine = true;
	return cuda.cuMemcpy3DAsync(&c, q->stream->handle);
}

static const struct dg_region_entry *gpu_side(const struct dg_op *op)
{
	return region_entry_at(op->opcode == DG_WRITE ? op->remote : op->local);
}

static CUdeviceptr tail_of(const struct dg_op *op)
{
	const struct cuda_mapping *m = gpu_side(op)->region->provider_state;
	return m && m->kind == MAPPED_BLOCK ? m->tail : 0;
}

/* Whether the GPU may write op's target. The driver refuses copies to other memory; whether it also
 * refuses write-values is not known. */
static bool is_writable(const struct dg_op *op)
{
	const struct cuda_mapping *m = gpu_side(op)->region->provider_state;
	return !m || m->writable;
}

bool cuda_has_room(const struct dg_op *op)
{
	const struct dg_region_entry *from =
		region_entry_at(op->opcode == DG_WRITE ? op->local : op->remote);
	return op->src + 2 * op->size <= from->base + from->size;
}

/* Whether part of op's source is copied to staging memory when op is submitted. */
static bool is_staged(const struct dg_op *op)
{
	return to_gpu(op) && !from_gpu(op) && op->rows == 1 && op->size < PLAIN_FROM &&
	       op->size % (2 * WORD) && tail_of(op) && !cuda_has_room(op);
}

CUresult cuda_small_write(struct cuda_queue *q, const struct dg_op *op, uint32_t index, bool room)
{
	CUdeviceptr tail = tail_of(op);
	uint64_t halves = op->size & ~(uint64_t)(2 * WORD - 1), rest = op->size - halves;
	CUresult code = 0;

	if (rest && tail && room)
		return with_scratch(q, op->dst, op->src, op->size, op->size, tail);
	if (halves)
		code = rows(q, op, halves / 2, 2, halves / 2, halves / 2);
	else if (!tail)
		code = cuda_take_engine(q);
	if (code || !rest)
		return code;
	if (!tail)
		return cuda_led_copy(q, gpu_ptr(op->dst) + halves, op->src + halves, rest);
	uint8_t *staged = q->staging + (uint64_t)(index & q->p->mask) * STAGED;
	memcpy(staged, op->src + halves, rest);
	return with_scratch(q, op->dst + halves, (char *)staged, rest, STAGED / 2, tail);
}

static bool is_words(const struct dg_op *op)
{
	return to_gpu(op) && !from_gpu(op) && op->rows == 1 && op->size <= WORDS * WORD &&
	       op->size % WORD == 0 && (uintptr_t)op->dst % WORD == 0;
}

/* Whether op continues a run of write-values, which are executed in order, as its fence demands. */
static bool continues(const struct dg_op *op)
{
	return (op->flags & DG_FENCE) && is_words(op) && is_writable(op) && !dg_op_allowed(op);
}

/* Submits the next operation, and those of the same form that follow it behind fences, as write-values
 * in one call: see the top of this file. The flag goes with them if nothing follows. Returns the number
 * of operations, 0 if they have another form. Sources are read here, and the flag completes all before
 * it, too. So the queue must otherwise be empty, or, beside kernels, nothing in it may write a source. */
static uint32_t write_words(struct cuda_queue *q, bool *flagged)
{
	CUmemOp ops[RUN + 1], *at = ops;
	const struct dg_op *op = sq_entry(q->p, q->p->sq_head);
	const bool alone = q->submitted == q->done && q->done == q->p->sq_head;
	const bool behind = q->bounce && (op->flags & DG_FENCE) && !q->to_host;
	uint32_t head = q->p->sq_head;
	bool last;

	if (!q->c->word_writes || !is_words(op) || (!alone && !behind) || !is_writable(op))
		return 0;
	do {
		for (uint64_t i = 0; i < op->size; i += WORD) {
			uint64_t value;
			memcpy(&value, op->src + i, WORD);
			*at++ = (CUmemOp){.writeValue = {.operation = CU_MEM_OP_WRITE_VALUE_64,
							 .address = gpu_ptr(op->dst) + i,
							 .value = value}};
		}
		sq_entry(q->p, head)->status = DG_OK;
		last = !sq_has(q->p, ++head);
		op = sq_entry(q->p, head);
	} while (!last && at + WORDS <= ops + RUN && continues(op));
	const uint32_t n = head - q->p->sq_head;
	op = sq_entry(q->p, q->p->sq_head);
	/* Two rows are no slower than write-values behind two others, if their form is possible. */
	if (n == 1 && (!last || (!q->stream->on_engine && tail_of(op))))
		return 0;
	if (!q->stream->on_engine && cuda_take_engine(q))
		return 0;
	if (last)
		*at++ = (CUmemOp){.writeValue = {.operation = CU_MEM_OP_WRITE_VALUE_32,
						 .address = gpu_ptr(q->flag),
						 .value = head}};
	uint64_t since = now_ns();
	if (cuda.cuStreamBatchMemOp(q->stream->handle, (unsigned)(at - ops), ops, 0))
		return 0;
	q->timed = (struct timed){
		.form = BY_WORDS, .running = alone, .upto = head, .n = n, .since_ns = since};
	*flagged = last;
	if (last) {
		q->submitted = head;
		q->last_poll_ns = now_ns();
	}
	return n;
}

static CUresult copy_row(struct cuda_queue *q, const struct dg_op *op, uint32_t index)
{
	if (to_gpu(op) && from_gpu(op) && q->bounce)
		return cuda_bounce(q, op, index);
	if (to_gpu(op) && !from_gpu(op) && op->size < PLAIN_FROM)
		return cuda_small_write(q, op, index, cuda_has_room(op));
	return cuda_plain_copy(q, op);
}

/* Copies overlapping source rows in columns that are as wide as the stride, one call for each. */
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
			code = cuda.cuStreamSynchronize(q->stream->handle);
		if (!code)
			dg_copy_rows(op->dst + stride, op->dst, op->size, stride, 0, op->rows - 1);
		return code;
	}
	/* Within the GPU, the compute engine copies. */
	if (!code && !from_gpu(op) && op->rows <= REPEATED && !cuda_kernel_pays(q, op->rows))
		return cuda_copy_rows(q, op, index, 1);
	next.flags |= OP_GPU;
	next.src = op->dst;
	for (uint64_t n = 1; n < op->rows && !code; n += n) {
		next.dst = op->dst + n * stride;
		code = rows(q, &next, op->size, n < op->rows - n ? n : op->rows - n, stride,
			    stride);
	}
	return code;
}

CUresult cuda_copy(struct cuda_queue *q, const struct dg_op *op, uint32_t index)
{
	uint64_t most = q->c->max_pitch;
	if (op->rows == 1)
		return copy_row(q, op, index);
	if (op->src_stride > most || op->dst_stride > most)
		return cuda_copy_rows(q, op, index, 0); /* no memory could hold so many rows */
	/* Source rows may repeat or overlap, which the copy engine's pitch cannot express. */
	if (op->src_stride == 0)
		return copy_repeated_row(q, op, index);
	if (op->src_stride < op->size)
		return op->size / op->src_stride < op->rows ? copy_columns(q, op)
							    : cuda_copy_rows(q, op, index, 0);
	return rows(q, op, op->size, op->rows, op->dst_stride, op->src_stride);
}

void cuda_abort(struct cuda_queue *q, CUresult code)
{
	int no_error = 0;
	bool entered = cuda_enter(q->c);
	bool alive = !cuda.cuStreamSynchronize(q->stream->handle);
	cuda_leave(entered);
	if (!alive)
		atomic_compare_exchange_strong(&q->c->lost, &no_error, code);
	for (uint32_t i = q->done; !alive && i != q->p->sq_head; i++)
		if (sq_entry(q->p, i)->status == DG_OK)
			sq_entry(q->p, i)->status = DG_IO_FAILED;
	cuda_unserve(q);
	q->submitted = q->p->sq_head;
	/* For the next poll and for the waker: nothing left in the stream sets the flag. */
	atomic_store(q->flag, q->submitted);
	cuda_publish(q, q->submitted, now_ns(), true);
	dg_pipe_wake(q->p);
}

/* INVALID_VALUE is also the driver's error for a write to memory that is mapped read-only. */
int cuda_copy_status(const struct dg_op *op, CUresult code)
{
	if (code == CUDA_SUCCESS)
		return DG_OK;
	if (code != CUDA_ERROR_INVALID_VALUE)
		return DG_IO_FAILED;
	return op->flags & OP_GPU_REMOTE ? DG_REMOTE_ACCESS_ERROR : DG_LOCAL_ERROR;
}

/* Whether op can be part of a batch: small, and between this process's memory and a GPU's. */
static inline bool is_small(const struct cuda_queue *q, const struct dg_op *op)
{
	return op->rows == 1 && op->size <= (q->bounce ? BOUNCED : SMALL) &&
	       (op->flags & OP_GPU_REMOTE);
}

/* Submits one operation, whose regions may be accessed. */
static void submit_one(struct cuda_queue *q, struct dg_op *op, struct group *g)
{
	uint32_t index = q->p->sq_head;
	if (is_small(q, op)) {
		if (!g->n)
			*g = (struct group){.first = index};
		g->n++;
		g->largest = op->size > g->largest ? op->size : g->largest;
		return;
	}
	cuda_flush(q, g);
	if (op->flags & OP_GPU)
		op->status = (uint16_t)cuda_copy_status(op, cuda_copy(q, op, index));
	else
		op->status = (uint16_t)dg_op_run(op);
}

void cuda_check(struct cuda_queue *q)
{
	CUresult code = cuda.cuStreamQuery(q->stream->handle);
	if (code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_READY)
		cuda_abort(q, code);
}

/* Appends the write of the flag that reports the completion of what was submitted. */
static void write_flag(struct cuda_queue *q, bool gpu)
{
	uint32_t head = q->p->sq_head;
	if (!gpu && q->submitted == q->done) { /* the CPU copied all of it */
		q->submitted = head;
		atomic_store(q->flag, head);
		cuda_publish(q, head, now_ns(), false);
		return;
	}
	q->submitted = head;
	q->timed.running &= q->timed.upto == head;
	CUresult code = cuda.cuStreamWriteValue32(q->stream->handle, gpu_ptr(q->flag), head, 0);
	q->last_poll_ns = now_ns();
	if (code)
		cuda_abort(q, code);
}

/* Whether op has to wait until the stream is empty: a fence before an operation that the CPU copies
 * or reads at submission. For other operations the stream's own order is enough. */
static bool is_held(const struct cuda_queue *q, const struct dg_op *op)
{
	return (op->flags & DG_FENCE) && q->p->sq_head != q->done &&
	       (!(op->flags & OP_GPU) || is_staged(op));
}

/* Selects the stream for op. Returns false if the work in progress has to end first. */
static bool choose_stream(struct cuda_queue *q, const struct dg_op *op)
{
	const bool idle = q->p->sq_head == q->done;
	if (!q->shared)
		return true;
	if (op->size * op->rows < BULK)
		q->stream = idle ? q->shared : q->stream;
	else if (idle)
		q->stream = &q->own;
	return op->size * op->rows < BULK || q->stream == &q->own;
}

/* Submits the group, which ends before the next operation of the ring. */
static void flush_before(struct cuda_queue *q, struct group *g)
{
	if (!g->n)
		return;
	cuda_flush(q, g);
	const struct dg_op *last = sq_entry(q->p, q->p->sq_head - 1);
	q->submit_chain = last->flags & DG_CHAIN ? last->status : DG_OK;
}

void cuda_submit(struct cuda_queue *q)
{
	struct dg_pipe *p = q->p;
	struct group g = {0};
	uint32_t before = p->sq_head, n;
	bool gpu = false, failed = false, flagged = false;
	q->to_host &= q->submitted != q->done;
	if (cuda_serve(q))
		return;
	for (; sq_has(p, p->sq_head); p->sq_head++) {
		struct dg_op *op = sq_entry(p, p->sq_head);
		if (is_held(q, op) || !choose_stream(q, op))
			break;
		if (op->flags & DG_FENCE)
			flush_before(q, &g);
		flagged = false;
		int status = atomic_load_explicit(&q->c->lost, memory_order_relaxed)
				     ? DG_IO_FAILED
				     : q->submit_chain;
		if (!status)
			status = dg_op_allowed(op);
		op->status = (uint16_t)status;
		if (status)
			cuda_flush(q, &g);
		else if ((n = write_words(q, &flagged)))
			p->sq_head += n - 1;
		else
			submit_one(q, op, &g);
		gpu |= op->flags & OP_GPU && !status;
		q->to_host |= !to_gpu(op);
		failed |= op->status != DG_OK;
		q->submit_chain = op->flags & DG_CHAIN ? op->status : DG_OK;
	}
	cuda_flush(q, &g);
	if (p->sq_head != before && !flagged)
		write_flag(q, gpu);
	cuda_send_canary(q);
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
			done[n++] = slot_status(op->slot, status) | (late ? CQE_LATE : 0) |
				    (op->flags & OP_KERNEL ? CQE_KERNEL : 0);
		if (n < PUBLISHED && q->done != upto)
			continue;
		/* Leave the gates first: a caller that has seen the completion may close the region
		 * without waiting. */
		gates_flush(&gates);
		if (n)
			cq_publish(p, done, n, stamp_ns);
		n = 0;
	}
}
