/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the providers doca and softdoca share. */
#ifndef DG_DOCA_H
#define DG_DOCA_H

#include "doca_api.h"
#include "provider.h"
#include "region.h"

enum {
	STAMP_GROUP = 16, /* completions that share a stamp */
	NO_GROUP = UINT16_MAX, /* of a task: it is all of its operation */
	NO_REGION = UINT32_MAX,
	NO_SLOT = UINT32_MAX, /* of a flight: nobody waits for its completion */
};

/* An open device: one function of a BlueField, or of softdoca. */
struct doca {
	enum doca_kind kind;
	struct doca_dev *dev;
	bool can_dma, can_export, can_import; /* as its capabilities say */
	uint64_t max_size; /* bytes of a task */
	pthread_mutex_t lock; /* dev, and the maps: DOCA's objects are for one thread at a time */
	void *scratch; /* a page; tasks are made over it, before they have work */
	struct doca_mmap *scratch_map;
	pthread_mutex_t queues_lock;
	struct doca_queue *queues;
	uint32_t n_queues;
};

/* What a region has of this provider. */
struct doca_mapped {
	struct doca_mmap *mmap;
	struct doca_mmap *
		readonly; /* for a read-only export of memory that may be written; NULL: none yet */
	int fd; /* of a dma-buf, or -1 */
	uint64_t offset; /* in it */
	bool by_address; /* GPU memory that DOCA took by its address, not by its dma-buf */
};

/* A DOCA task with its two buffers, each over a whole region; used again and again. */
struct task {
	_Alignas(64) struct doca_task *task;
	struct doca_dma_task_memcpy *memcpy;
	struct doca_buf *buf[2]; /* over the local and the remote region */
	uint32_t region[2]; /* table indices of what they are over, or NO_REGION */
	uint32_t slot, size;
	uint16_t task_group;
	uint8_t op; /* which of the two is the source */
};

/* An operation of several tasks, or a chain. Its slot completes when `left` is 0. */
struct task_group {
	uint32_t left; /* tasks, and one while more may come */
	uint32_t slot;
	int status;
};

/* A queue's far end: a progress engine with one DMA context. */
struct doca_queue {
	struct doca *d;
	struct dg_pipe *p;
	struct doca_queue *next;
	struct doca_pe *pe;
	struct doca_dma *dma;
	struct doca_ctx *ctx;
	struct doca_buf_inventory *inventory;
	struct doca_buf *scratch[2];
	int handle, epoll_fd;
	bool requested; /* a notification */
	/* Of tasks and flights all memory is there from the start; the free ones are on stacks. */
	struct task *tasks, **free;
	uint32_t n_tasks, n_free;
	struct task_group *groups;
	uint16_t *free_groups;
	uint32_t n_free_groups;
	/* Under way. */
	uint32_t in_flight; /* tasks */
	uint64_t bytes;
	struct task *
		pending_task; /* the last one, not given to DOCA yet: the last of a batch is submitted otherwise */
	struct task_group *open_group; /* of the operation or chain in hand */
	bool started; /* the operation at sq_head */
	/* Ended, and not published yet. */
	struct dg_gates gates;
	uint32_t n_done, done[STAMP_GROUP];
	uint64_t last_poll_ns; /* when it was last looked at whether something has ended */
	bool first, late; /* of the stamps of one look */
	/* After an error that stopped the context. */
	bool broken, dead;
	bool closing; /* what fails now is FLUSHED */
	uint32_t *completed_count; /* not NULL: tasks end by counting here, and in no other way */
	/* Inside: the owner of the queue stores busy and then looks at wanted; who unmaps a region stores
	 * wanted and then looks at busy. Forbidden: both go on. See ring.h for the same shape. */
	_Alignas(64) atomic_uint busy;
	atomic_uint region_waiting;
};

/* doca_map.c */
int dg_doca_map(struct dg_device *dev, void *state, struct dg_region *r, const dg_memory *m,
		struct dg_region_entry *entry);
void dg_doca_unmap(struct dg_device *dev, void *state, struct dg_region *r);
int dg_doca_export(struct dg_device *dev, void *state, struct dg_region *r, uint32_t access,
		   struct dg_descriptor *out);
/* A started map of [addr, addr + size) of this process, for d. */
int dg_doca_map_new(struct doca *d, void *addr, uint64_t size, uint32_t permissions,
		    struct doca_mmap **out);
void dg_doca_map_free(struct doca_mmap *map);

/* doca_copy.c: the data path, from within the lane. */
/* Gives DOCA what is in the submission ring, as far as there is room. */
void dg_doca_submit(struct doca_queue *q);
/* Takes all completions that are there, and goes on. */
void dg_doca_progress(struct doca_queue *q);
/* Ends without a task, as `status`, what is still in the ring. */
void dg_doca_flush(struct doca_queue *q, int status);
/* Publishes what has ended. */
void dg_doca_publish(struct doca_queue *q);
/* The callbacks of the lane's context. */
void dg_doca_task_completed(struct doca_dma_task_memcpy *task, union doca_data task_data,
			    union doca_data ctx_data);
void dg_doca_task_failed(struct doca_dma_task_memcpy *task, union doca_data task_data,
			 union doca_data ctx_data);
/* As dg_ops.direct. */
int dg_doca_run(struct doca_queue *q, const struct dg_op *op);
/* Puts op's regions and direction into t. 0, or -EIO. */
int dg_doca_bind(struct doca_queue *q, struct task *t, const struct dg_op *op);

/* doca_lane.c */
int dg_doca_attach(struct dg_device *dev, void *state, struct dg_pipe *p);
void dg_doca_detach(struct dg_device *dev, struct dg_pipe *p);
int dg_doca_arm(struct dg_device *dev, struct dg_pipe *p);
void dg_doca_doorbell(struct dg_device *dev, struct dg_pipe *p);
void dg_doca_poll(struct dg_device *dev, struct dg_pipe *p);
int dg_doca_direct(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op);
int dg_doca_bare(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op, uint32_t count,
		 uint32_t window, uint64_t *samples_ns);
/* Every lane gives up its buffers over the region with this index. */
void dg_doca_release_region(struct doca *d, uint32_t region);
/* Starts the context, and waits until it runs. 0, or a negative errno. */
int dg_doca_start(struct doca_queue *q);
/* The tasks that nobody has under way, made or freed. 0, or a negative errno. */
int dg_doca_tasks_new(struct doca_queue *q);
void dg_doca_tasks_free(struct doca_queue *q);

static inline struct dg_op *next_op(struct doca_queue *q)
{
	struct dg_pipe *p = q->p;
	return sq_has(p, p->sq_head) ? sq_entry(p, p->sq_head) : NULL;
}

#endif
