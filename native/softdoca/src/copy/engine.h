/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A DMA context, its tasks, and their copies. libdoca_dma contains the public functions; everything
 * else is in libdoca_common, together with dgkit's core.
 *
 *   submit                 adds a task to `ready` (to `held` until it is flushed)
 *   empty pipes:           progress copies and completes it, if it is small host memory
 *   otherwise              submit posts it to a pipe, in order; it is copied without progress
 *   completion of a pipe   progress completes the task
 *
 * So tasks start in the order of their submission, and complete in this order unless the provider
 * fault delays, reorders or loses some. Of the two pipes, CPU and GPU, that with the oldest task is
 * the one whose completions are taken.
 */
#ifndef SOFTDOCA_ENGINE_H
#define SOFTDOCA_ENGINE_H

#include "gpu_queue.h"
#include "ring.h"
#include "doca_dma.h"
#include "memory/memory.h"
#include "progress/progress.h"

enum memcpy_path {
	PATH_INLINE, /* small host memory: copied by progress */
	PATH_CPU, /* by the device's engine */
	PATH_GPU, /* by the device's GPU */
	PATH_FAILED, /* completes with `outcome` when its turn comes */
};

struct doca_dma_task_memcpy {
	struct object o;
	const struct doca_buf *src;
	struct doca_buf *dst;
	/* Valid while the task is submitted; to and from are set for a task of one piece. */
	char *to;
	const char *from;
	size_t size;
	struct doca_dma_task_memcpy *next;
	uint32_t to_region, from_region; /* indices in dg_region_table */
	_Alignas(64) struct doca_task task;
	uint32_t index; /* in the engine's table; also the slot in a pipe */
	uint32_t order; /* of posting */
	uint16_t pieces; /* operations in a pipe */
	uint8_t path; /* enum memcpy_path */
	bool posted, gated;
	bool guarded; /* copied by system calls: see register_host() */
	doca_error_t outcome;
};
_Static_assert(sizeof(struct doca_dma_task_memcpy) == 128, "a task is two cache lines");

struct task_list {
	struct doca_dma_task_memcpy *first, *last;
};

/* A pipe to a provider. */
struct channel {
	dg_device *dev; /* NULL: not open */
	uint32_t tasks, used; /* tasks in it, and used entries of its ring */
	struct task_list posted; /* its tasks, in the order of posting */
	struct dg_pipe pipe;
};

struct engine {
	uint32_t in_channels; /* tasks in both channels */
	uint32_t posts; /* tasks posted so far */
	uint32_t polls; /* consecutive polls without a completion */
	uint32_t for_pipe; /* waiting tasks that progress cannot copy itself */
	bool failed; /* a task has failed since the start */
	struct task_list ready, held;
	struct doca_dma_task_memcpy *free; /* not allocated */
	struct doca_dma_task_memcpy **all; /* n of them */
	uint32_t n;
	dg_region *bounce; /* for copies between two other processes; NULL until needed */
	uint64_t inline_max; /* largest copy that progress executes itself; 0: none */
	struct channel cpu, gpu;
};

struct doca_dma {
	struct object o;
	doca_dma_task_memcpy_completion_cb_t done_cb, error_cb;
	uint32_t num_tasks; /* 0: not configured */
	_Alignas(64) struct doca_ctx ctx;
	struct engine e;
	struct gpu_queue on_gpu; /* of a started context with its data path on a GPU */
};

extern SOFTDOCA_INTERNAL const struct ctx_ops softdoca_dma_ops;
extern const struct ctx_ops dma_gpu_ops; /* dma_gpu.c */
/* Returns a task of a running context; NULL if all tasks are in use. */
SOFTDOCA_INTERNAL struct doca_dma_task_memcpy *softdoca_memcpy_new(struct doca_dma *dma,
								   union doca_data user_data);

OWNER(dma_of, struct doca_dma, struct doca_ctx, ctx)
OWNER(memcpy_of, struct doca_dma_task_memcpy, struct doca_task, task)

/* ---- pieces.c: copying a task's bytes in pieces ---- */

/* Checks the buffers and sets path, size, pieces and the fields needed to copy. Returns false,
 * with the reason logged, for a task that would complete as IO_FAILED. */
bool pieces_plan(struct doca_dma_task_memcpy *t, struct doca_dma *dma);
/* Copies a task with PATH_INLINE. Returns a dg_status. */
int pieces_copy(struct doca_dma_task_memcpy *t);
/* Posts a task to a pipe that has space for its pieces. Returns false if the program changed the
 * task's buffers. */
bool pieces_post(struct doca_dma_task_memcpy *t, struct channel *l);
/* Frees the resources of tasks. */
void pieces_end(struct engine *e);
/* Extends the destination's data by the copied bytes. */
void pieces_arrived(struct doca_dma_task_memcpy *t);

#endif
