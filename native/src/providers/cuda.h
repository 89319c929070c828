/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the provider cuda share. */
#ifndef DG_CUDA_H
#define DG_CUDA_H

#include "cuda_api.h"
#include "provider.h"

/* An open device: one GPU, through its primary context, which CuPy uses, too. */
struct cuda {
	CUdevice dev;
	int ordinal;
	CUcontext ctx;
	uint8_t uuid[16];
	uint64_t granularity, max_pitch;
	CUmemHandle scratch; /* one granule, mapped behind each import: see cuda_copy.c */
	bool host_pointers; /* a kernel may use the addresses of registered host memory */
	pthread_mutex_t lock; /* the kernel */
	bool gather_tried;
	CUmodule module;
	CUfunction gather; /* NULL: not here */
	atomic_int lost; /* the error that ended the context, or 0 */
};

/* One operation for the kernel; its layout is known to cuda_gather.h. */
struct gather_op {
	uint64_t dst, src, size, reserved;
};

#define STAGED 32u /* bytes of staging for each operation */

/*
 * A queue's far end: a stream. Operations enter it in posting order. Behind those of one call a value is
 * written to `flag`, in pinned memory: the number of operations, as sq_head counts them, that are then
 * complete.
 *
 *   done <= flag <= emitted <= sq_head, and what is emitted and not done is in the stream
 */
struct cuda_queue {
	struct cuda *c;
	struct dg_pipe *p;
	CUstream stream;
	/* What wakes a sleeper runs beside the stream, and waits for the flag: in it, it would hold up the
	 * copies behind, and come only after all that was there. */
	CUstream waker;
	/* pinned, one block */
	atomic_uint *flag, *bare_flag;
	struct gather_op *gathers; /* by sq index */
	uint8_t *staging;
	/* the caller's thread */
	uint32_t submitted, done;
	bool wake_requested; /* a wake-up, for when done moves on */
	int submit_chain, publish_chain; /* the status of the chain in hand */
	uint64_t last_poll_ns, last_query_ns;
};

/* What a region has of this provider. */
struct cuda_mapping {
	enum { MAPPED_PIN, MAPPED_BLOCK, MAPPED_IPC } kind;
	struct pin *pin;
	CUdeviceptr base;
	uint64_t size;
	CUmemHandle handle;
	CUdeviceptr tail; /* the scratch granule behind the block, 0 if there is none */
};

/* cuda.c: makes the device's context current; gives whether cuda_leave has to undo it. */
bool cuda_enter(struct cuda *c);
void cuda_leave(bool entered);
/* dg_fail with the function's name, the error's name and what they mean. */
int cuda_fail(const char *what, CUresult code);

/* cuda_map.c */
int cuda_map(struct dg_device *dev, void *state, struct dg_region *r, const dg_memory *m,
	     struct dg_region_entry *entry);
void cuda_unmap(struct dg_device *dev, void *state, struct dg_region *r);

/* cuda_copy.c: what is new in the submission ring goes into the stream. The context is current. */
void cuda_submit(struct cuda_queue *q);
/* The driver answered `code`. Where the stream can be waited for that call alone failed, and what is in
 * the stream is complete; else the context is gone, and it ends as DG_IO_FAILED. */
void cuda_abort(struct cuda_queue *q, CUresult code);
/* Asks whether the stream still goes on; else cuda_abort. The context is current. */
void cuda_check(struct cuda_queue *q);
/* Operations up to index `upto` are complete. */
void cuda_publish(struct cuda_queue *q, uint32_t upto, uint64_t stamp_ns, bool late);
/* The plain copy that the driver offers for op. */
CUresult cuda_plain_copy(struct cuda_queue *q, const struct dg_op *op);

#endif
