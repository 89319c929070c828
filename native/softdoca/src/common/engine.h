/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A DMA context, its tasks, and how their bytes move. libdoca_dma has the public functions; the rest is
 * in libdoca_common, where dgkit's core is.
 *
 *   submit                 a task waits in `ready` (in `held` until it is flushed)
 *   nothing in a pipe:     progress copies it, if it is small and plain, and delivers it
 *   else                   it goes into a pipe at submit, in turn, so it moves without progress
 *   a pipe's completion    progress delivers it
 *
 * So tasks start in the order of their submission, and complete in it unless the provider (fault) says
 * otherwise; those of the two pipes, CPU and GPU, have no order between them.
 */
#ifndef SOFTDOCA_ENGINE_H
#define SOFTDOCA_ENGINE_H

#include "ring.h"
#include "softdoca.h"

enum memcpy_way {
	WAY_HERE, /* small and plain: by progress */
	WAY_CPU, /* by the device's engine */
	WAY_GPU, /* by the device's GPU */
	WAY_FAILED, /* it ends as `outcome` when it is its turn */
};

struct doca_dma_task_memcpy {
	struct object o;
	const struct doca_buf *src;
	struct doca_buf *dst;
	/* While it is submitted. to and from: of a task in one piece */
	char *to;
	const char *from;
	size_t size;
	struct doca_dma_task_memcpy *next;
	uint32_t to_region, from_region; /* indices in dg_region_table */
	_Alignas(64) struct doca_task task;
	uint32_t index; /* in the engine's table: the slot in a pipe */
	uint16_t pieces; /* operations in a pipe */
	uint8_t way; /* enum memcpy_way */
	bool posted, gated;
	bool guarded; /* a side of it may be unmapped: see register_host() */
	doca_error_t outcome;
};
_Static_assert(sizeof(struct doca_dma_task_memcpy) == 128, "a task is two cache lines");

struct task_list {
	struct doca_dma_task_memcpy *first, *last;
};

/* A pipe to a provider. */
struct lane {
	dg_device *dev; /* NULL: not open */
	uint32_t tasks, used; /* tasks in it, and entries of its ring */
	struct dg_pipe pipe;
};

struct engine {
	uint32_t in_lanes; /* tasks in both */
	uint32_t looks; /* without a completion, one after the other */
	uint32_t for_pipe; /* tasks that wait, and that progress cannot copy itself */
	struct task_list ready, held;
	struct doca_dma_task_memcpy *free; /* not allocated */
	struct doca_dma_task_memcpy **all; /* n of them */
	uint32_t n;
	dg_region *stop_over; /* for bytes between two other processes; NULL: none so far */
	uint64_t inline_max; /* what progress copies itself; 0: nothing */
	struct lane cpu, gpu;
};

struct doca_dma {
	struct object o;
	doca_dma_task_memcpy_completion_cb_t done_cb, error_cb;
	uint32_t num_tasks; /* 0: not configured */
	_Alignas(64) struct doca_ctx ctx;
	struct engine e;
};

extern SOFTDOCA_INTERNAL const struct ctx_ops softdoca_dma_ops;
/* A task of a running context. NULL: all are in use. */
SOFTDOCA_INTERNAL struct doca_dma_task_memcpy *softdoca_memcpy_new(struct doca_dma *dma,
								   union doca_data user_data);

static inline struct doca_dma *dma_of(const struct doca_ctx *ctx)
{
	return (struct doca_dma *)((uintptr_t)ctx - offsetof(struct doca_dma, ctx));
}

static inline struct doca_dma_task_memcpy *memcpy_of(const struct doca_task *task)
{
	return (struct doca_dma_task_memcpy *)((uintptr_t)task -
					       offsetof(struct doca_dma_task_memcpy, task));
}

static inline void task_landed(struct doca_task *task, doca_error_t status)
{
	task->in_flight = false;
	task->status = status;
	task->ctx->in_flight--;
}

/* ---- pieces.c: a task's bytes, piece by piece ---- */

/* Looks at the buffers: sets way, size and pieces, and what is needed to copy it. False: what the task
 * asks for cannot be, why is logged; it would end as IO_FAILED. */
bool pieces_plan(struct doca_dma_task_memcpy *t, struct doca_dma *dma);
/* Copies a plain task. A dg_status. */
int pieces_copy(struct doca_dma_task_memcpy *t);
/* Puts a task into a pipe that has room for its pieces. False: the program changed its buffers. */
bool pieces_post(struct doca_dma_task_memcpy *t, struct lane *l);
/* Frees what tasks needed. */
void pieces_end(struct engine *e);
/* Its bytes are there: they are data of the destination now. */
void pieces_arrived(struct doca_dma_task_memcpy *t);

#endif
