/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of the provider cuda. */
#ifndef DG_CUDA_H
#define DG_CUDA_H

#include "cuda_api.h"
#include "provider.h"

/* An open device: one GPU, used through its primary context, as CuPy does. */
struct cuda {
	CUdevice dev;
	int ordinal;
	CUcontext ctx;
	uint8_t uuid[16];
	uint64_t granularity, max_pitch;
	CUmemHandle scratch; /* one granule, mapped behind each imported block: see cuda_copy.c */
	/* The same granule, mapped by itself. Writes stay in the first half and 32 KiB behind it,
	 * so none reaches the last word, which the wakers read. */
	CUdeviceptr scratch_at;
	atomic_uint scratch_turn; /* queues that were given their part of it */
	bool word_writes; /* the driver can write 8 bytes of GPU memory from within a stream */
	bool host_pointers; /* kernels can use the addresses of registered host memory */
	pthread_mutex_t lock; /* guards the three below */
	bool gather_tried;
	CUmodule module;
	CUfunction gather; /* the kernel of cuda_gather.h; NULL: not available */
	/* Pinned memory of closed queues, for the next ones: to free it waits for every kernel. */
	pthread_mutex_t spare_lock; /* guards the two below */
	struct spare *spares;
	struct cuda_stream *shared; /* of the proxies */
	atomic_int lost; /* the error that ended the context, or 0 */
};

/* One operation of the kernel. cuda_gather.h depends on this layout. */
struct gather_op {
	uint64_t dst, src, size, reserved;
};

#define BOUNCE (1u << 20) /* bytes of a bounce buffer, and PLAIN_FROM more that may be read */
#define LATE_NS 1000u /* what is seen after a longer gap between polls was there before */
#define BULK (1u << 20) /* bytes of an operation that the queues of a proxy do not wait for */
#define STAGED 32u /* staging bytes for each operation */
#define PLAIN_FROM 32768u /* bytes from which any copy from the host uses the copy engine */

/* What runs a submission: see cuda_batch.c. */
enum form {
	BY_ENGINE, /* the copy engine, by copies */
	BY_WORDS, /* the copy engine's channel, by write-values */
	BY_KERNEL,
};

/* A submission whose time is measured: all of what was posted together, in one form. */
struct timed {
	enum form form;
	bool running;
	uint32_t upto, n; /* it is done when `upto` operations are; it has n */
	uint64_t since_ns;
};

/* An empty kernel in a second stream: how long the GPU's compute engine takes to answer. */
struct canary {
	CUstream stream; /* NULL until the first one */
	atomic_uint *flag;
	uint32_t sent, seen; /* `flag` becomes `sent` */
	uint64_t sent_ns;
};

/* A stream, which one thread at a time submits to. The queues of a proxy share one: a GPU takes 40 us
 * from one stream's copies to another's, and a proxy's thread posts to many queues in turn. */
struct cuda_stream {
	CUstream handle;
	bool on_engine; /* its last work is the copy engine's: see cuda_copy.c */
	const void *proxy; /* of a shared one: whose queues' it is, and how many there are */
	uint32_t queues;
	struct cuda_stream *next;
};

/*
 * The provider's end of a queue: a stream. Operations enter it in posting order. After the
 * operations of one call, the stream writes a value to `flag` in pinned memory: the number of
 * operations, counted as sq_head does, that are then complete.
 *
 *   done <= flag <= submitted <= sq_head; what is submitted and not done is in the stream
 */
struct cuda_queue {
	struct cuda *c;
	struct dg_pipe *p;
	/* Of a proxy's queue the one that it shares, unless it posts an operation of BULK bytes, which
	 * would delay the others; else its own. It changes where nothing is in progress. */
	struct cuda_stream *stream, *shared;
	struct cuda_stream own;
	/* Wakes a sleeper: a second stream that waits for the flag. In the first stream the wake-up
	 * would delay later copies, and come only after all copies already there. */
	CUstream waker;
	/* one block of pinned memory */
	atomic_uint *flag, *bare_flag;
	struct canary canary;
	struct gather_op *gathers; /* by index of the submission ring */
	uint8_t *staging;
	/* Of a queue that works beside kernels, else NULL: see cuda_bounce.c. Such a queue starts no
	 * kernel, and nothing that is copied by one. */
	char *bounce;
	uint64_t scratch; /* offset of its part of the scratch granule */
	/* of the caller's thread */
	uint32_t submitted, done;
	bool wake_requested; /* for the next completion */
	struct timed timed;
	/* Measured: the answer of the compute engine, and when it was known (0: never); the copy
	 * engine's time for an operation of a batch (0: not yet). */
	uint64_t answer_ns, answer_at_ns, engine_ns;
	bool engine_ran;
	uint32_t close_calls;
	bool wants_canary; /* a batch was left to the copy engine */
	uint32_t canary_upto; /* where that batch ends */
	int submit_chain, publish_chain; /* status of the current chain */
	uint64_t last_poll_ns, last_query_ns;
};

/* A region's provider_state. */
struct cuda_mapping {
	enum { MAPPED_PIN, MAPPED_BLOCK, MAPPED_IPC } kind;
	struct pin *pin;
	CUdeviceptr base;
	uint64_t size;
	CUmemHandle handle;
	bool writable;
	CUdeviceptr tail; /* address of the scratch granule behind the block, 0 if none */
};

/* cuda.c: makes the device's context current. Returns whether cuda_leave() must undo that. */
bool cuda_enter(struct cuda *c);
void cuda_leave(bool entered);
/* dg_fail() with the function's name, the error's name and its meaning. */
int cuda_fail(const char *what, CUresult code);

/* cuda_map.c */
CUresult cuda_set_access(const struct cuda *c, CUdeviceptr at, uint64_t size, bool write);
int cuda_map(struct dg_device *dev, void *state, struct dg_region *r, const dg_memory *m,
	     struct dg_region_entry *entry);
void cuda_unmap(struct dg_device *dev, void *state, struct dg_region *r);

/* cuda_copy.c: moves new operations of the submission ring into the stream. The context must be
 * current. */
void cuda_submit(struct cuda_queue *q);
/* Handles an error of the driver. If the stream can still be synchronized, only that call failed,
 * and what is in the stream is complete; otherwise the context is lost, and the operations end as
 * DG_IO_FAILED. */
void cuda_abort(struct cuda_queue *q, CUresult code);
/* Queries the stream and calls cuda_abort() on an error. The context must be current. */
void cuda_check(struct cuda_queue *q);
/* Publishes the completion of all operations before index `upto`. */
void cuda_publish(struct cuda_queue *q, uint32_t upto, uint64_t stamp_ns, bool late);
/* Copies op, one row, with the driver's plain asynchronous copy. */
CUresult cuda_plain_copy(struct cuda_queue *q, const struct dg_op *op);
/* Copies op, number `index` of the ring, in few driver calls, whatever its shape. */
CUresult cuda_copy(struct cuda_queue *q, const struct dg_op *op, uint32_t index);
/* Returns the status of a copy call. */
int cuda_copy_status(const struct dg_op *op, CUresult code);
/* Has the copy engine take the stream: it keeps cuMemcpyBatchAsync and write-values behind that. */
CUresult cuda_take_engine(struct cuda_queue *q);

/* Copies less than PLAIN_FROM bytes from the host to the GPU. `room`: as many bytes behind the source
 * may be read, too; then the source is read only when the stream comes to it. */
CUresult cuda_small_write(struct cuda_queue *q, const struct dg_op *op, uint32_t index, bool room);
/* Whether the bytes behind op's source may be read, as many as it has. */
bool cuda_has_room(const struct dg_op *op);

static inline bool to_gpu(const struct dg_op *op)
{
	return op->flags & (op->opcode == DG_WRITE ? OP_GPU_REMOTE : OP_GPU_LOCAL);
}

static inline bool from_gpu(const struct dg_op *op)
{
	return op->flags & (op->opcode == DG_WRITE ? OP_GPU_LOCAL : OP_GPU_REMOTE);
}

static inline CUdeviceptr gpu_ptr(const void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

/* cuda_batch.c: small operations posted together. */
/* Consecutive operations of the ring that are one batch. */
struct group {
	uint32_t first, n;
	uint64_t largest;
};
/* Submits the operations of g and empties it. */
void cuda_flush(struct cuda_queue *q, struct group *g);
/* Copies the rows of op, number `index` of the ring, from row `from` on, each by itself. */
CUresult cuda_copy_rows(struct cuda_queue *q, const struct dg_op *op, uint32_t index, uint64_t from);
/* Copies n < 16 bytes from the host to the GPU. The stream must be with a copy engine. */
CUresult cuda_led_copy(struct cuda_queue *q, CUdeviceptr dst, const char *src, uint64_t n);
/* Whether the compute engine is expected to run n operations earlier than the copy engine. */
bool cuda_kernel_pays(struct cuda_queue *q, uint64_t n);
/* Takes the time of what is complete: `now_ns` is when that was seen. */
void cuda_measure(struct cuda_queue *q, uint32_t upto, uint64_t now_ns);
/* Sends a canary if a batch would have used its answer, and the last answer is too old. */
void cuda_send_canary(struct cuda_queue *q);
/* The same while a batch runs: the answer to the canary sent behind it may be old at its end. */
void cuda_renew_canary(struct cuda_queue *q);
/* Reads the canary's flag. */
void cuda_read_canary(struct cuda_queue *q, uint64_t now_ns);
/* Since CUDA 12.8. It takes one kind of address. */
bool cuda_can_chunk(const struct cuda *c);
/* Copies of one call of the driver, all in one direction. */
enum { CHUNK = 256 };
enum direction { READS, WRITES, ON_GPU };
struct chunk {
	enum direction which;
	bool room; /* as many bytes as each copy has may be read behind its source */
	bool rows; /* all are of one operation, which has staging memory for one copy */
	size_t n, size[CHUNK];
	CUdeviceptr dst[CHUNK], src[CHUNK];
	/* The operation that a copy is of, or the first one, and its number in the ring. */
	const struct dg_op *op[CHUNK];
	uint32_t index[CHUNK];
};
static inline void chunk_of(struct chunk *c, enum direction which)
{
	c->which = which;
	c->room = c->rows = false;
	c->n = 0;
}
/* Sends the copies in as few calls as the copy engine takes them, and empties c. */
CUresult cuda_chunk_send(struct cuda_queue *q, struct chunk *c);
/* Adds a copy for op, number `index` of the ring, which stays until the copies are sent; one that
 * continues the last one on both sides becomes part of it. */
CUresult cuda_chunk_add(struct cuda_queue *q, struct chunk *c, const struct dg_op *op,
			uint32_t index, CUdeviceptr dst, CUdeviceptr src);

/* cuda_bounce.c: from GPU to GPU memory, by a queue that works beside kernels. */
CUresult cuda_bounce(struct cuda_queue *q, const struct dg_op *op, uint32_t index);
/* The same for those operations of g that are between GPU memory, if cuda_can_chunk(). */
CUresult cuda_bounce_many(struct cuda_queue *q, const struct group *g);
/* Has the driver set up what these copies need: it does so at the first use of a call, which may
 * wait for a kernel. */
CUresult cuda_warm_up(struct cuda_queue *q);

#endif
