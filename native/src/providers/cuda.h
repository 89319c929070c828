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
	bool host_pointers; /* kernels can use the addresses of registered host memory */
	pthread_mutex_t lock; /* guards the three below */
	bool gather_tried;
	CUmodule module;
	CUfunction gather; /* the kernel of cuda_gather.h; NULL: not available */
	atomic_int lost; /* the error that ended the context, or 0 */
};

/* One operation of the kernel. cuda_gather.h depends on this layout. */
struct gather_op {
	uint64_t dst, src, size, reserved;
};

#define STAGED 32u /* staging bytes for each operation */

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
	CUstream stream;
	/* Wakes a sleeper: a second stream that waits for the flag. In the first stream the wake-up
	 * would delay later copies, and come only after all copies already there. */
	CUstream waker;
	/* one block of pinned memory */
	atomic_uint *flag, *bare_flag;
	struct gather_op *gathers; /* by index of the submission ring */
	uint8_t *staging;
	/* of the caller's thread */
	uint32_t submitted, done;
	bool wake_requested; /* for the next completion */
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
	CUdeviceptr tail; /* address of the scratch granule behind the block, 0 if none */
};

/* cuda.c: makes the device's context current. Returns whether cuda_leave() must undo that. */
bool cuda_enter(struct cuda *c);
void cuda_leave(bool entered);
/* dg_fail() with the function's name, the error's name and its meaning. */
int cuda_fail(const char *what, CUresult code);

/* cuda_map.c */
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

#endif
