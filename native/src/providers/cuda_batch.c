// SPDX-License-Identifier: Apache-2.0
/*
 * Small operations posted together: executed by the copy engine or by a kernel.
 *
 * A kernel (cuda_gather.h) executes 256 of them in 18 us, but while another process or another
 * kernel of this process keeps the GPU busy, it waits for its time slice: 2.4 ms on an H200. The
 * copy engine needs 0.4 us for each operation (the driver's CPU time in cuMemcpyBatchAsync),
 * whatever the GPU does. Which of them is faster is measured, not assumed: the copy engine's time
 * with the batches that it executes; the compute engine's with a canary, an empty kernel in another
 * stream that copies no bytes, and with the batches that a kernel executes. A measurement is valid
 * for FRESH_NS. Without a valid one, the copy engine executes the batch, and a canary is sent
 * behind it; more are sent while the batch runs, because the answer to the first would be too old
 * at its end. So at most one batch is delayed when a GPU becomes busy, and a GPU that stays busy
 * gets few canaries.
 *
 * The driver sends the small writes of such a batch inline, through the channel of the compute
 * engine, unless the stream's last work was a copy engine's when they arrive. So the writes follow
 * two rows (cuda_copy.c) to scratch memory. Of 1,000 batches of 256 writes after such a lead, 1 was
 * late; without a lead, all were. Reads of the same batch do not serve as a lead: writes behind
 * them waited 1 to 2 ms. Adjacent copies are merged into one, and when there are few copies, each
 * is sent alone, as two rows.
 *
 * A queue of a proxy (dg_pipe.beside_kernels) uses neither the kernel nor canaries: the posting
 * kernel may occupy every multiprocessor of the GPU while it waits for the very operations that
 * would run after it.
 */
#include <string.h>

#include "clock.h"
#include "cuda_provider.h"
#include "cuda_gather.h"

enum {
	GATHER_MIN = 8, /* smallest number of operations for which a launch is faster */
	GATHER_SMALL = 64, /* up to this size in bytes, 8 threads copy each; above it, a warp */
	THREADS = 256, /* per block */
	FRESH_NS = 1000000, /* how long a measured answer is valid */
	FRESH_PART = 4, /* or this fraction of the time that the copy engine would take: 1/4 */
	SLOW_NS = 250000, /* no write-value takes longer than this in a copy engine's channel */
	REST = 8, /* the pause between canaries is this many times the last answer */
	REST_NS = 20000000, /* but no longer than this */
	FEW = 1, /* up to this number of copies, separate calls cost less than a call for many */
	TWO_WORDS = 16, /* multiples of this size are written as two rows of whole words */
	CLOSE = 4, /* expected times that differ by at most this factor are close */
	RETRY = 16, /* when they are close, every 16th batch goes to the copy engine */
};

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

static CUresult launch_gather(struct cuda_queue *q, CUstream stream, uint32_t first, uint32_t n,
			      uint64_t largest)
{
	uint32_t mask = q->p->mask, shift = largest <= GATHER_SMALL ? 3 : 5;
	void *params[] = {&q->gathers, &first, &mask, &n, &shift};
	uint32_t blocks = (uint32_t)((((uint64_t)n << shift) + THREADS - 1) / THREADS);
	return cuda.cuLaunchKernel(q->c->gather, blocks ? blocks : 1, 1, 1, THREADS, 1, 1, 0,
				   stream, params, NULL);
}

static void by_kernel(struct cuda_queue *q, const struct group *g)
{
	for (uint32_t i = 0; i < g->n; i++) {
		struct dg_op *op = sq_entry(q->p, g->first + i);
		op->flags |= OP_KERNEL;
		q->gathers[(g->first + i) & q->p->mask] =
			(struct gather_op){gpu_ptr(op->dst), gpu_ptr(op->src), op->size, 0};
	}
	q->stream->on_engine = false;
	CUresult code = launch_gather(q, q->stream->handle, g->first, g->n, g->largest);
	for (uint32_t i = 0; i < g->n && code; i++)
		sq_entry(q->p, g->first + i)->status = DG_IO_FAILED;
}

bool cuda_can_chunk(const struct cuda *c)
{
	return cuda.cuMemcpyBatchAsync && c->host_pointers;
}

static CUresult send_together(struct cuda_queue *q, struct chunk *c)
{
	CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
	size_t first = 0, refused;
	/* Known of reads only; writes almost certainly go to the copy engine, too. */
	q->stream->on_engine = c->which == READS;
	return cuda.cuMemcpyBatchAsync(c->dst, c->src, c->size, c->n, &attributes, &first, 1,
				       &refused, q->stream->handle);
}

/* Returns copy number `at` of c as an operation. */
static struct dg_op op_of(const struct chunk *c, size_t at)
{
	struct dg_op op = *c->op[at];
	const bool gpu_is_remote = (op.opcode == DG_WRITE) == (c->which == WRITES);
	op.flags &= (uint8_t)~(gpu_is_remote ? OP_GPU_LOCAL : OP_GPU_REMOTE); /* bounced */
	op.dst = (char *)(uintptr_t)c->dst[at];
	op.src = (const char *)(uintptr_t)c->src[at];
	op.size = c->size[at];
	op.rows = 1;
	return op;
}

/* Whether the copies are few, and no merged copy has a source that would be read now: is_held()
 * checks single operations only. */
static bool are_few(const struct chunk *c)
{
	bool few = c->n <= (c->rows ? 1 : FEW);
	for (size_t i = 0; i < c->n && few && c->which == WRITES && !c->room; i++) {
		const struct dg_op op = op_of(c, i);
		few = op.size == c->op[i]->size || op.size % TWO_WORDS == 0 || cuda_has_room(&op);
	}
	return few;
}

static CUresult send_alone(struct cuda_queue *q, const struct chunk *c, size_t at)
{
	const struct dg_op op = op_of(c, at);
	if (c->which == READS || op.size >= PLAIN_FROM)
		return cuda_plain_copy(q, &op);
	return cuda_small_write(q, &op, c->index[at], c->room || cuda_has_room(&op));
}

CUresult cuda_chunk_send(struct cuda_queue *q, struct chunk *c)
{
	CUresult code = 0;
	if (are_few(c)) {
		for (size_t i = 0; i < c->n && !code; i++)
			code = send_alone(q, c, i);
	} else {
		if (c->which == WRITES)
			code = cuda_take_engine(q);
		if (!code)
			code = send_together(q, c);
	}
	c->n = 0;
	return code;
}

CUresult cuda_chunk_add(struct cuda_queue *q, struct chunk *c, const struct dg_op *op,
			uint32_t index, CUdeviceptr dst, CUdeviceptr src)
{
	const size_t last = c->n - 1;
	if (c->n && c->dst[last] + c->size[last] == dst && c->src[last] + c->size[last] == src) {
		c->size[last] += op->size;
		return 0;
	}
	CUresult code = c->n == CHUNK ? cuda_chunk_send(q, c) : 0;
	c->dst[c->n] = dst;
	c->src[c->n] = src;
	c->size[c->n] = op->size;
	c->op[c->n] = op;
	c->index[c->n++] = index;
	return code;
}

static enum direction direction_of(const struct dg_op *op)
{
	return !to_gpu(op) ? READS : from_gpu(op) ? ON_GPU : WRITES;
}

static void one_by_one(struct cuda_queue *q, const struct group *g, enum direction which)
{
	for (uint32_t i = g->first; i != g->first + g->n; i++) {
		struct dg_op *op = sq_entry(q->p, i);
		if (direction_of(op) == which)
			op->status = (uint16_t)cuda_copy_status(op, cuda_copy(q, op, i));
	}
}

/* Copies the operations of one direction. */
static void in_chunks(struct cuda_queue *q, const struct group *g, enum direction which)
{
	struct chunk c;
	CUresult code = 0;
	chunk_of(&c, which);
	for (uint32_t i = g->first; i != g->first + g->n && !code; i++) {
		const struct dg_op *op = sq_entry(q->p, i);
		if (direction_of(op) == which)
			code = cuda_chunk_add(q, &c, op, i, gpu_ptr(op->dst), gpu_ptr(op->src));
	}
	if (!code)
		code = cuda_chunk_send(q, &c);
	/* The driver does not say which copies of a refused call it made, so each is repeated
	 * alone. */
	if (code)
		one_by_one(q, g, which);
}

static void by_engine(struct cuda_queue *q, const struct group *g)
{
	if (g->n == 1 || !cuda_can_chunk(q->c)) {
		for (enum direction which = READS; which <= ON_GPU; which++)
			one_by_one(q, g, which);
		return;
	}
	in_chunks(q, g, READS);
	in_chunks(q, g, WRITES);
	if (!q->bounce || cuda_bounce_many(q, g))
		one_by_one(q, g, ON_GPU);
}

void cuda_flush(struct cuda_queue *q, struct group *g)
{
	if (!g->n)
		return;
	bool kernel = g->n >= GATHER_MIN && cuda_kernel_pays(q, g->n);
	q->timed = (struct timed){
		.form = kernel ? BY_KERNEL : BY_ENGINE,
		.running = g->n > 1 && q->submitted == q->done && g->first == q->done,
		.upto = g->first + g->n,
		.n = g->n,
		.since_ns = now_ns(),
	};
	if (!kernel && g->n >= GATHER_MIN) {
		q->wants_canary = true;
		q->canary_upto = g->first + g->n;
	}
	if (kernel)
		by_kernel(q, g);
	else
		by_engine(q, g);
	g->n = 0;
}

CUresult cuda_copy_rows(struct cuda_queue *q, const struct dg_op *op, uint32_t index, uint64_t from)
{
	struct chunk c;
	struct dg_op row = *op;
	bool chunks = cuda_can_chunk(q->c) && (!to_gpu(op) || !from_gpu(op));
	CUresult code = 0;
	chunk_of(&c, direction_of(op));
	c.rows = true;
	for (uint64_t i = from; i < op->rows && !code; i++) {
		row.dst = op->dst + i * op->dst_stride;
		row.src = op->src + i * op->src_stride;
		code = chunks ? cuda_chunk_add(q, &c, &row, index, gpu_ptr(row.dst),
					       gpu_ptr(row.src))
			      : cuda_plain_copy(q, &row);
	}
	q->wants_canary = true;
	return code ? code : cuda_chunk_send(q, &c);
}

CUresult cuda_led_copy(struct cuda_queue *q, CUdeviceptr dst, const char *src, uint64_t n)
{
	struct chunk c;
	q->stream->on_engine = false; /* almost certainly the work is not the copy engine's */
	if (!cuda_can_chunk(q->c))
		return cuda.cuMemcpyHtoDAsync(dst, src, n, q->stream->handle);
	chunk_of(&c, WRITES);
	c.n = 2;
	c.dst[0] = dst;
	c.src[0] = gpu_ptr(src);
	c.dst[1] = q->c->scratch_at + q->scratch;
	c.src[1] = gpu_ptr(q->staging);
	c.size[0] = c.size[1] = n;
	return send_together(q, &c);
}

bool cuda_kernel_pays(struct cuda_queue *q, uint64_t n)
{
	if (q->bounce) /* the compute engine may be fully occupied */
		return false;
	uint64_t now = now_ns(), engine_ns = n * q->engine_ns;
	uint64_t fresh_ns = engine_ns / FRESH_PART > FRESH_NS ? engine_ns / FRESH_PART : FRESH_NS;
	cuda_read_canary(q, now);
	if (!q->answer_at_ns || now - q->answer_at_ns >= fresh_ns || q->answer_ns >= engine_ns ||
	    !gather_function(q->c))
		return false;
	/* When the expected times are close, the copy engine's time is measured again now and
	 * then. */
	return engine_ns > CLOSE * q->answer_ns || ++q->close_calls % RETRY;
}

void cuda_measure(struct cuda_queue *q, uint32_t upto, uint64_t now)
{
	struct timed *t = &q->timed;
	/* Compares serial numbers: upto is at or after t->upto. */
	if (!t->running || (int32_t)(upto - t->upto) < 0)
		return;
	uint64_t took = now - t->since_ns, each = took / t->n, known = q->engine_ns;
	t->running = false;
	if (t->form == BY_ENGINE) {
		/* The first batch includes the driver's one-time initialization, so it is not
		 * measured. For a sleeping caller all times are too long, but equally so, and are
		 * still compared. */
		if (q->engine_ran)
			q->engine_ns = known && each > known ? known + (each - known) / REST : each;
		q->engine_ran = true;
	} else if (t->form == BY_KERNEL) {
		q->answer_at_ns = now;
		/* A launch's cost is the shortest of all answers, until one is late. */
		if (took < q->answer_ns || took >= t->n * known)
			q->answer_ns = took;
	} else if (took > SLOW_NS) {
		q->stream->on_engine = false; /* the write-values went through the compute engine */
	}
}

void cuda_read_canary(struct cuda_queue *q, uint64_t now)
{
	struct canary *c = &q->canary;
	if (c->seen == c->sent ||
	    atomic_load_explicit(c->flag, memory_order_relaxed) != c->sent)
		return;
	c->seen = c->sent;
	q->answer_ns = now - c->sent_ns;
	if (now - q->last_poll_ns > LATE_NS) /* it arrived at any time since then */
		q->answer_ns /= 2;
	q->answer_at_ns = now;
}

/* Sends a canary if one is wanted and the last answer is at least `old_ns` old. */
static void send_canary(struct cuda_queue *q, uint64_t old_ns)
{
	struct canary *c = &q->canary;
	uint64_t rest = q->answer_ns < REST_NS / REST ? q->answer_ns * REST : REST_NS;
	if (!q->wants_canary || q->bounce || c->seen != c->sent || !gather_function(q->c))
		return;
	q->wants_canary = false;
	uint64_t now = now_ns();
	if (q->answer_at_ns && now - q->answer_at_ns < (rest > old_ns ? rest : old_ns))
		return;
	if (!c->stream && cuda.cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING))
		return;
	c->sent_ns = now;
	if (!launch_gather(q, c->stream, 0, 0, 0) &&
	    !cuda.cuStreamWriteValue32(c->stream, gpu_ptr(c->flag), c->sent + 1, 0))
		c->sent++;
}

void cuda_send_canary(struct cuda_queue *q)
{
	send_canary(q, FRESH_NS);
}

void cuda_renew_canary(struct cuda_queue *q)
{
	/* Compares serial numbers: the batch is not complete. */
	if ((int32_t)(q->done - q->canary_upto) >= 0)
		return;
	q->wants_canary = true;
	send_canary(q, FRESH_NS / 2);
}
