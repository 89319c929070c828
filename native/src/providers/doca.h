/* SPDX-License-Identifier: Apache-2.0 */
/* Internal interface of the providers doca and softdoca. */
#ifndef DG_DOCA_H
#define DG_DOCA_H

#include "doca_api.h"
#include "ended.h"
#include "provider.h"
#include "queue_list.h"
#include "region.h"

enum {
	DOCA_MAX_QUEUES = 1024, /* per device */
	NO_GROUP = UINT16_MAX, /* for a task that is a whole operation */
	NO_REGION = UINT32_MAX,
	NO_SLOT = UINT32_MAX, /* for a task group without a completion */
};

/* An open device: one function of a BlueField, or of softdoca. */
struct doca {
	enum doca_kind kind;
	struct doca_dev *dev;
	bool can_dma, can_export, can_import; /* capabilities */
	uint64_t max_size; /* largest task in bytes */
	pthread_mutex_t lock; /* guards dev and the maps: DOCA's objects are not thread-safe */
	void *scratch; /* a page that tasks are allocated over, before they have buffers to copy */
	struct doca_mmap *scratch_map;
	struct queue_list queues;
};

/* A region's provider_state. */
struct doca_mapped {
	struct doca_mmap *mmap;
	struct doca_mmap *readonly; /* for read-only exports of writable memory; may be NULL */
	int fd; /* dma-buf, or -1 */
	uint64_t offset; /* in the dma-buf */
	bool by_address; /* GPU memory that DOCA accepted by its address, not as a dma-buf */
};

/* A reusable DOCA task with its two buffers, each over a whole region. */
struct task {
	_Alignas(64) struct doca_task *task;
	struct doca_dma_task_memcpy *memcpy;
	struct doca_buf *buf[2]; /* of the local and the remote region */
	uint32_t region[2]; /* region table indices of both regions, or NO_REGION */
	uint32_t slot, size;
	uint16_t task_group;
	uint8_t op; /* direction that the buffers are set up for */
};

/* The tasks of a chain, or of an operation of several tasks. Its slot completes when `left` reaches
 * 0. */
struct task_group {
	uint32_t left; /* tasks in flight, plus 1 while more may be submitted */
	uint32_t slot;
	int status;
};

/* The provider's end of a queue: a progress engine with one DMA context. */
struct doca_queue {
	struct listed_queue listed;
	struct doca *d;
	struct dg_pipe *p;
	struct doca_pe *pe;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	struct doca_buf_inventory *inventory;
	struct doca_buf *scratch[2];
	int handle, epoll_fd;
	bool requested; /* a notification was requested */
	/* All tasks and task groups are allocated when the queue is created; free ones are on
	 * stacks. */
	struct task *tasks, **free;
	uint32_t n_tasks, n_free;
	struct task_group *groups;
	uint16_t *free_groups;
	uint32_t n_free_groups;
	/* In flight. */
	uint32_t in_flight; /* tasks */
	uint64_t bytes;
	struct task *pending_task; /* not submitted yet: a batch's last task has other flags */
	struct task_group *open_group; /* of the current operation or chain */
	bool started; /* the operation at sq_head has been started */
	struct ended ended;
	/* broken: an error stopped the context; dead: it could not be restarted. */
	bool broken, dead;
	bool closing; /* tasks that fail from now on end as FLUSHED */
	uint32_t *completed_count; /* if not NULL, a task that ends only increments this counter */
};

/* doca_map.c */
int dg_doca_map(struct dg_device *dev, void *state, struct dg_region *r, const dg_memory *m,
		struct dg_region_entry *entry);
void dg_doca_unmap(struct dg_device *dev, void *state, struct dg_region *r);
int dg_doca_export(struct dg_device *dev, void *state, struct dg_region *r, uint32_t access,
		   struct dg_descriptor *out);
/* Creates and starts a map of [addr, addr + size) of this process for d. */
int dg_doca_map_new(struct doca *d, void *addr, uint64_t size, uint32_t permissions,
		    struct doca_mmap **out);
void dg_doca_map_free(struct doca_mmap *map);

/* doca_copy.c: the data path. Call these between enter() and leave() of doca_context.c. */
/* Submits operations of the submission ring as tasks, as long as there is room. */
void dg_doca_submit(struct doca_queue *q);
/* Takes all available completions, then submits more. */
void dg_doca_progress(struct doca_queue *q);
/* Completes all operations left in the submission ring with `status`. */
void dg_doca_flush(struct doca_queue *q, int status);
/* Publishes the completions of ended operations. */
/* DOCA's callbacks for tasks of the context. */
void dg_doca_task_completed(struct doca_dma_task_memcpy *task, union doca_data task_data,
			    union doca_data ctx_data);
void dg_doca_task_failed(struct doca_dma_task_memcpy *task, union doca_data task_data,
			 union doca_data ctx_data);
/* dg_ops.direct. */
int dg_doca_run(struct doca_queue *q, const struct dg_op *op);
/* Sets the buffers and the direction of t for op. Returns 0 or -EIO. */
int dg_doca_bind(struct doca_queue *q, struct task *t, const struct dg_op *op);

/* doca_context.c */
int dg_doca_attach(struct dg_device *dev, void *state, struct dg_pipe *p);
void dg_doca_detach(struct dg_device *dev, struct dg_pipe *p);
int dg_doca_arm(struct dg_device *dev, struct dg_pipe *p);
void dg_doca_doorbell(struct dg_device *dev, struct dg_pipe *p);
void dg_doca_poll(struct dg_device *dev, struct dg_pipe *p);
int dg_doca_direct(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op);
int dg_doca_bare(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op, uint32_t count,
		 uint32_t window, uint64_t *samples_ns);
/* Makes every queue release its buffers over the region with this index. */
void dg_doca_release_region(struct doca *d, uint32_t region);
/* Starts the context and waits until it is running. Returns 0 or a negative errno. */
int dg_doca_start(struct doca_queue *q);
/* Allocates or frees the tasks that are not in flight. The first returns 0 or a negative errno. */
int dg_doca_tasks_new(struct doca_queue *q);
void dg_doca_tasks_free(struct doca_queue *q);

/* Returns the operation at sq_head, or NULL. */
static inline struct dg_op *next_op(struct doca_queue *q)
{
	struct dg_pipe *p = q->p;
	return sq_has(p, p->sq_head) ? sq_entry(p, p->sq_head) : NULL;
}

#endif
