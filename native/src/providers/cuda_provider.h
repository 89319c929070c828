/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of the provider cuda. */
#ifndef DG_CUDA_H
#define DG_CUDA_H

#include "cuda_api.h"
#include "cuda_pointer.h"
#include "provider.h"

/* An open device: one GPU, used through its primary context, as CuPy does. */
struct cuda {
	CUdevice dev;
	int ordinal;
	CUcontext ctx;
	uint8_t uuid[16];
	uint64_t granularity, max_pitch;
	CUmemHandle scratch; /* one granule, mapped behind each imported block: see cuda_copy.c */
	/* The same granule, mapped on its own. Writes stay within the first half and the 32 KiB
	 * behind it, so none reaches the last word, which the wakers read. */
	CUdeviceptr scratch_at;
	atomic_uint scratch_turn; /* number of queues that were given a part of the scratch */
	bool word_writes; /* the driver can write 8 bytes of GPU memory from within a stream */
	bool host_pointers; /* kernels can use the addresses of registered host memory */
	pthread_mutex_t lock; /* guards the three members below */
	bool gather_tried;
	CUmodule module;
	CUfunction gather; /* the kernel of cuda_gather.h; NULL: not available */
	/* Pinned memory of closed queues, for reuse: freeing it would wait for every kernel. */
	pthread_mutex_t spare_lock; /* guards the two members below */
	struct spare *spares;
	struct cuda_stream *shared; /* streams shared by the queues of a proxy */
	struct cuda_service *retired; /* services of streams that are gone: a kernel may still use them */
	bool serves; /* a proxy's queues have a copy service: see cuda_serve.c */
	CUmodule serve_module;
	CUfunction serve; /* the kernel of cuda_serve.cu */
	CUstream rings; /* of dg_cuda_ring_copy(); NULL until dg_cuda_ring_open() */
	atomic_int lost; /* the error that ended the context, or 0 */
};

/* One operation of the gather kernel. cuda_gather.h depends on this layout. */
struct gather_op {
	uint64_t dst, src, size, reserved;
};

#define BOUNCE (1u << 20) /* bytes of a bounce buffer; PLAIN_FROM more behind it are readable */
#define BULK (1u << 20) /* larger operations use the queue's own stream, not its proxy's */
#define STAGED 32u /* staging bytes per operation */
#define PLAIN_FROM 32768u /* bytes from which any copy from the host uses the copy engine */

/* What executes a submission: see cuda_batch.c. */
enum form {
	BY_ENGINE, /* the copy engine, by copies */
	BY_WORDS, /* the copy engine's channel, by write-values */
	BY_KERNEL,
};

/* A submission whose time is measured: the operations that were posted together, in one form. */
struct timed {
	enum form form;
	bool running;
	uint32_t upto, n; /* complete when operation `upto` is; n operations */
	uint64_t since_ns;
};

/* An empty kernel in a second stream: how long the GPU's compute engine takes to answer. */
struct canary {
	CUstream stream; /* NULL until the first one */
	atomic_uint *flag;
	uint32_t sent, seen; /* `flag` becomes `sent` */
	uint64_t sent_ns;
};

/* A stream; one thread at a time submits to it. The queues of a proxy share a stream: a GPU takes
 * 40 us to switch from one stream's copies to another's, and a proxy's thread posts to many queues
 * in turn. */
struct cuda_stream {
	CUstream handle;
	bool on_engine; /* its last work went to the copy engine: see cuda_copy.c */
	const void *proxy; /* a shared stream's proxy and number of queues */
	uint32_t queues;
	struct cuda_service *service; /* of those queues, or NULL */
	struct cuda_stream *next;
};

/* The copy service of a shared stream's queues. lock: they may be polled by several threads. */
struct cuda_service {
	pthread_mutex_t lock;
	struct serve_ring *ring;
	CUstream stream;
	CUfunction function;
	uint64_t head, epoch; /* entries that were written; launches */
	uint32_t outstanding; /* posts of all queues that have not been forgotten */
	struct cuda_service *next;
};

/* Operations up to index `upto` of a queue's ring are the service's up to entry `end`. */
enum { SERVED = 16 };
struct served {
	uint32_t upto;
	uint64_t end;
};

/*
 * The provider's end of a queue: a stream. Operations enter it in posting order. After the
 * operations of one call, the stream writes a value to `flag` in pinned memory: the number of
 * operations that are complete by then, counted as in sq_head.
 *
 *   done <= flag <= submitted <= sq_head; operations from done to submitted are in the stream
 */
struct cuda_queue {
	struct cuda *c;
	struct dg_pipe *p;
	/* A proxy's queue uses the shared stream, unless it posts an operation of BULK bytes or
	 * more, which would delay the others; then it uses its own. It switches only while nothing
	 * is in progress. */
	struct cuda_stream *stream, *shared;
	struct cuda_stream own;
	/* Wakes a sleeper: a second stream that waits for the flag. In the first stream the wake-up
	 * would delay later copies, and would come only after all copies already there. */
	CUstream waker;
	/* one block of pinned memory */
	atomic_uint *flag, *bare_flag;
	struct canary canary;
	struct gather_op *gathers; /* by index of the submission ring */
	uint8_t *staging;
	/* Of a queue that works beside kernels, otherwise NULL: see cuda_bounce.c. Such a queue
	 * launches no kernel and makes no copy that the driver executes as a kernel. */
	char *bounce;
	uint64_t scratch; /* offset of this queue's part of the scratch granule */
	/* used by the caller's thread only */
	uint32_t submitted, done;
	/* The posts that the service has. While there is one, the stream gets nothing. */
	struct served served[SERVED];
	uint32_t first_served, n_served;
	bool to_host; /* an operation in progress writes host memory */
	bool wake_requested; /* a wake-up was requested for the next completion */
	struct timed timed;
	/* Measured: the response time of the compute engine and when it was measured (0: never),
	 * and the copy engine's time per operation of a batch (0: not measured yet). */
	uint64_t answer_ns, answer_at_ns, engine_ns;
	bool engine_ran;
	uint32_t close_calls;
	bool wants_canary; /* a batch went to the copy engine */
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
/* dg_fail() with the function's name, the error's name and its meaning. */
int cuda_fail(const char *what, CUresult code);

/* cuda_map.c */
CUresult cuda_set_access(const struct cuda *c, CUdeviceptr at, uint64_t size, bool write);
int cuda_map(struct dg_device *dev, void *state, struct dg_region *r, const dg_memory *m,
	     struct dg_region_entry *entry);
void cuda_unmap(struct dg_device *dev, void *state, struct dg_region *r);

/* cuda_copy.c: moves new operations from the submission ring into the stream. The context must be
 * current. */
void cuda_submit(struct cuda_queue *q);
/* Handles an error of the driver. If the stream can still be synchronized, only that call has
 * failed, and the work in the stream is complete; otherwise the context is lost, and the operations
 * end with DG_IO_FAILED. */
void cuda_abort(struct cuda_queue *q, CUresult code);
/* Queries the stream and calls cuda_abort() on an error. The context must be current. */
void cuda_check(struct cuda_queue *q);
/* Publishes the completion of all operations before index `upto`. */
void cuda_publish(struct cuda_queue *q, uint32_t upto, uint64_t stamp_ns, bool late);
/* Copies op, which has one row, with the driver's plain asynchronous copy. */
CUresult cuda_plain_copy(struct cuda_queue *q, const struct dg_op *op);
/* Copies op, number `index` of the ring, in as few driver calls as its shape allows. */
CUresult cuda_copy(struct cuda_queue *q, const struct dg_op *op, uint32_t index);
/* Returns the status of a copy call. */
int cuda_copy_status(const struct dg_op *op, CUresult code);
/* Makes the copy engine execute the stream's next work: cuMemcpyBatchAsync and write-values that
 * follow stay with it. */
CUresult cuda_take_engine(struct cuda_queue *q);

/* Copies less than PLAIN_FROM bytes from the host to the GPU. With `room`, as many bytes behind the
 * source may be read as well; the source is then read only when the stream reaches the copy. */
CUresult cuda_small_write(struct cuda_queue *q, const struct dg_op *op, uint32_t index, bool room);
/* Whether the bytes behind op's source, as many as op copies, may be read. */
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
/* Consecutive operations of the ring that form one batch. */
struct group {
	uint32_t first, n;
	uint64_t largest;
};
/* Submits the operations of g and empties it. */
void cuda_flush(struct cuda_queue *q, struct group *g);
/* Copies the rows of op, number `index` of the ring, from row `from` on, each with a separate
 * copy. */
CUresult cuda_copy_rows(struct cuda_queue *q, const struct dg_op *op, uint32_t index, uint64_t from);
/* Copies n < 16 bytes from the host to the GPU. The stream's last work must be the copy
 * engine's. */
CUresult cuda_led_copy(struct cuda_queue *q, CUdeviceptr dst, const char *src, uint64_t n);
/* Whether the compute engine is expected to complete n operations earlier than the copy engine. */
bool cuda_kernel_pays(struct cuda_queue *q, uint64_t n);
/* Records the time of the completed operations; `now_ns` is when their completion was observed. */
void cuda_measure(struct cuda_queue *q, uint32_t upto, uint64_t now_ns);
/* Sends a canary if a batch would have needed its answer, and the last answer is too old. */
void cuda_send_canary(struct cuda_queue *q);
/* Does the same while a batch runs: at its end the answer to the canary sent behind it may be too
 * old. */
void cuda_renew_canary(struct cuda_queue *q);
/* Reads the canary's flag. */
void cuda_read_canary(struct cuda_queue *q, uint64_t now_ns);
/* Whether cuMemcpyBatchAsync exists (CUDA 12.8 and later). It accepts one kind of address. */
bool cuda_can_chunk(const struct cuda *c);
/* Copies of one call of the driver, all in one direction. */
enum { CHUNK = 512 };
enum direction { READS, WRITES, ON_GPU };
struct chunk {
	enum direction which;
	bool room; /* behind each source, as many bytes may be read as the copy has */
	bool rows; /* all are rows of one operation, which has staging memory for one copy */
	size_t n, size[CHUNK];
	CUdeviceptr dst[CHUNK], src[CHUNK];
	/* For each copy: its operation, or the first of several, and that operation's number in the
	 * ring. */
	const struct dg_op *op[CHUNK];
	uint32_t index[CHUNK];
};
static inline void chunk_of(struct chunk *c, enum direction which)
{
	c->which = which;
	c->room = c->rows = false;
	c->n = 0;
}
/* Sends the copies in as few calls as the copy engine accepts, and empties c. */
CUresult cuda_chunk_send(struct cuda_queue *q, struct chunk *c);
/* Adds a copy for op, number `index` of the ring, which must stay in the ring until the copies are
 * sent. A copy that continues the last one on both sides is merged with it. */
CUresult cuda_chunk_add(struct cuda_queue *q, struct chunk *c, const struct dg_op *op,
			uint32_t index, CUdeviceptr dst, CUdeviceptr src);

/* cuda_serve.c: the copy service. Returns NULL if it is not possible; `retire` may be called with
 * NULL. */
struct cuda_service *cuda_service_open(struct cuda *c);
void cuda_service_retire(struct cuda *c, struct cuda_service *s);
/* Frees what was retired; waits for kernels that were launched. */
void cuda_services_free(struct cuda *c);
/* Gives the queue's new operations to the service. Returns whether the copy engine must not get
 * them: the service has them, or they have to wait for those that it has. */
bool cuda_serve(struct cuda_queue *q);
/* For a queue with n_served: sets its flag. Takes back what a kernel left that has ended. */
void cuda_service_poll(struct cuda_queue *q);
/* Forgets what the service has of the queue. */
void cuda_unserve(struct cuda_queue *q);

/* cuda_bounce.c: copies from GPU to GPU memory, for a queue that works beside kernels. */
CUresult cuda_bounce(struct cuda_queue *q, const struct dg_op *op, uint32_t index);
/* Does the same for those operations of g whose both sides are GPU memory, if cuda_can_chunk(). */
CUresult cuda_bounce_many(struct cuda_queue *q, const struct group *g);
/* Has the driver allocate what these copies need. Otherwise it does so at the first use of a call,
 * which may wait for a kernel. */
CUresult cuda_warm_up(struct cuda_queue *q);

#endif
