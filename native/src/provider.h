/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the core and its providers share: regions as the data path sees them, their gates, devices,
 * and the table of operations that a provider fills in.
 */
#ifndef DG_PROVIDER_H
#define DG_PROVIDER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dgkit.h"
#include "ring.h"

/*
 * A gate counts the transfers that use a region, and revokes it. It lies in private memory for a
 * local region and in memory shared by exporter and importer for a remote one, one for each import.
 *
 *   posting    posted += n (seq_cst)  then, before any byte moves, look at revoked (seq_cst)
 *   revoking   revoked = 1 (seq_cst)  then wait until done == posted
 *
 * Forbidden outcome: bytes move after the revoker saw done == posted. All four accesses are seq_cst,
 * so in their one order either the revoker's look at posted comes after posted += n, and it waits;
 * or before, and then the store of revoked comes before the poster's look too, which finds it and
 * moves nothing. done is added (release) after the last byte, and read (acquire) before posted, so
 * equality means that those bytes are finished. posted and done have a cache line each because the
 * caller adds to one and the engine to the other; revoked lies with done, as who looks at it is who
 * moves the bytes.
 */
struct dg_gate {
	_Alignas(64) atomic_uint_least64_t posted;
	_Alignas(64) atomic_uint_least64_t done;
	atomic_uint revoked;
};
_Static_assert(sizeof(struct dg_gate) == 128, "the layout is shared between processes");

static inline void gate_enter(struct dg_gate *g, uint32_t n)
{
	atomic_fetch_add_explicit(&g->posted, n, memory_order_seq_cst);
}

static inline void gate_leave(struct dg_gate *g, uint32_t n)
{
	atomic_fetch_add_explicit(&g->done, n, memory_order_release);
}

static inline bool gate_revoked(struct dg_gate *g)
{
	return atomic_load_explicit(&g->revoked, memory_order_seq_cst);
}

static inline bool gate_quiet(struct dg_gate *g)
{
	uint64_t done = atomic_load_explicit(&g->done, memory_order_acquire);
	return done == atomic_load_explicit(&g->posted, memory_order_seq_cst);
}

/* A region as the data path sees it, one cache line in the device's table. */
struct dg_region_entry {
	char *base; /* here; in the exporter for VM; for ASK an offset, so 0 */
	uint64_t size;
	struct dg_gate *gate;
	struct dg_region *region;
	atomic_uint id; /* 0: nobody may post to it */
	uint8_t access, method, remote, may_fault;
	atomic_uint lost; /* its exporter is gone */
	uint32_t next_free;
	int32_t pid; /* VM: whose memory base is in; 0 for our own */
	uint32_t slot;
	uint32_t generation;
	uint32_t device; /* number */
};
_Static_assert(sizeof(struct dg_region_entry) == 64, "a region is one cache line on the data path");

/* table.c: one table for the process, never freed, so that a stale id or index is never a stray
 * pointer, and a region of one device is not mistaken for one of another. */
#define REGION_TABLE_SIZE (1u << 20)
#define REGION_INDEX(id)  ((id) & (REGION_TABLE_SIZE - 1))
extern struct dg_region_entry *dg_region_table;

static inline struct dg_region_entry *region_entry_at(uint32_t index)
{
	return dg_region_table + index;
}

struct dg_ops;
struct dg_descriptor;

struct dg_device {
	const struct dg_ops *ops;
	void *provider; /* the provider's own state */
	pthread_mutex_t lock; /* the lists */
	uint32_t number;
	struct dg_device *next; /* of those that move only when they are polled */
	struct dg_region *regions;
	struct dg_queue *queues;
	uint32_t fork_generation;
	bool uses_share_server; /* this device holds a reference to the door */
	bool gpu; /* its provider reaches GPU memory */
	bool registers; /* it moves only what map() was given: also memory that is mapped here already */
	const char *blob_provider; /* whose exports map() takes, and export() makes; NULL: none */
	dg_caps caps;
};

/* A provider without a thread moves on when its queues are polled. Where their caller looks away, gates
 * stay entered, and an exporter's close would wait for him: so whoever waits for a gate, here and in
 * the door's thread, calls this, again and again. It looks at each queue that nobody is in, and leaves
 * out what is locked: it never waits. */
void dg_devices_poll(void);
/* Around fork(): before all other locks. In the child none of them is polled any more. */
void dg_devices_fork_lock(void);
void dg_devices_fork_unlock(bool child);

/* What an operation that has no dg_status yet gives: it goes on; or it was not begun. */
enum { OP_MORE = -1, OP_NOT = -2 };

struct dg_ops {
	const char *name;
	/* 0 if it can be opened here; else dg_fail() says why not. !deep: as far as a look at once tells. */
	int (*probe)(bool deep);
	/* *state is the provider's own; each pipe that it is attached to carries it on. */
	int (*open)(struct dg_device *dev, const dg_device_config *cfg, void **state);
	void (*close)(struct dg_device *dev, void *state);
	/* A pipe whose far end is the provider's from attach until detach, which quiesces: every
	 * operation then has a completion and its gates are left. */
	int (*attach)(struct dg_device *dev, void *state, struct dg_pipe *p);
	void (*detach)(struct dg_device *dev, struct dg_pipe *p);
	/* There is something new in the submission ring. */
	void (*doorbell)(struct dg_device *dev, struct dg_pipe *p);
	/* Moves the provider on in the caller's thread. NULL: it needs no caller. */
	void (*poll)(struct dg_device *dev, struct dg_pipe *p);
	/* As dg_pipe_arm. NULL: the pipe's own is right. */
	int (*arm)(struct dg_device *dev, struct dg_pipe *p);
	/* Makes memory usable that is this process's own (m->addr), or a GPU block that another exports
	 * (m->addr NULL), or what the blob of r->from opens: fills hot->base and method, and r->mapped for
	 * unmap. NULL: dg_map_default. */
	int (*map)(struct dg_device *dev, void *state, struct dg_region *r, const dg_memory *m,
		   struct dg_region_entry *entry);
	void (*unmap)(struct dg_device *dev, void *state, struct dg_region *r);
	/* Puts the provider's own export of r into d: provider, blob and blob_length. NULL: it has none. */
	int (*export)(struct dg_device *dev, void *state, struct dg_region *r, uint32_t access,
		      struct dg_descriptor *d);
	/* Runs one operation to its end in the caller's thread, if that takes no longer than a few looks.
	 * Its gates are not its concern. A dg_status; OP_MORE: it is under way, as if it came from the ring, and
	 * completes op->slot; OP_NOT: nothing was done, it has to be posted. NULL: all are posted. */
	int (*direct)(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op);
	/* dg_measure_bare over one checked operation. NULL: there is no such floor. */
	int (*bare)(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op,
		    uint32_t count, uint32_t window, uint64_t *samples_ns);
	/* Whether the caller may run dg_op_run itself. */
	bool inline_copies;
};

extern const struct dg_ops dg_soft_ops, dg_fault_ops, dg_cuda_ops, dg_doca_ops, dg_softdoca_ops;
/* region.c: what a provider without a GPU does: host memory as it is; GPU memory is lent, not copied. */
int dg_map_default(struct dg_device *dev, const dg_memory *m, struct dg_region_entry *entry);
const struct dg_ops *dg_ops_find(const char *name);

/* Counts forks of this process: what was opened before a fork is not usable in the child. */
extern atomic_uint dg_fork_generation;

/* execute.c: what every provider that copies with the CPU does with one operation. */
/* Moves at most `budget` bytes of op, from *progress on. OP_MORE, or the final dg_status. */
int dg_op_step(const struct dg_op *op, uint64_t *progress, uint64_t budget);
/* The whole operation at once. */
int dg_op_run(const struct dg_op *op);
/* DG_OK if both regions of op may still be touched. */
int dg_op_allowed(const struct dg_op *op);
/* After the last byte, or when it will never move: leaves both gates. */
void dg_op_leave(const struct dg_op *op);

/* Enters or leaves gates for many operations at a time: consecutive ones mostly use the same regions. */
struct dg_gates {
	void (*pass)(struct dg_gate *g, uint32_t n);
	uint32_t local, remote, n;
};

static inline void gates_flush(struct dg_gates *l)
{
	if (!l->n)
		return;
	l->pass(region_entry_at(l->local)->gate, l->n);
	l->pass(region_entry_at(l->remote)->gate, l->n);
	l->n = 0;
}

static inline void gates_pair(struct dg_gates *l, uint32_t local, uint32_t remote)
{
	if (l->n && (local != l->local || remote != l->remote))
		gates_flush(l);
	l->local = local;
	l->remote = remote;
	l->n++;
}

static inline void gates_add(struct dg_gates *l, const struct dg_op *op)
{
	gates_pair(l, op->local, op->remote);
}

/* cuda_dmabuf.c: a dma-buf of the pages that m->addr[0..size) lies in, memory of a GPU, and where in it
 * the bytes begin. The fd is the caller's. */
int dg_cuda_dmabuf(const dg_memory *m, int *fd, uint64_t *offset);

/* copy.c */
void dg_copy(void *dst, const void *src, uint64_t n);
/* For a part of a run of DG_LARGE bytes or more, which no cache holds. */
#define DG_LARGE (8u << 20)
void dg_copy_large(void *dst, const void *src, uint64_t n);
/* A copy that gives -EFAULT where memcpy would raise a signal. -EOPNOTSUPP: this kernel cannot. */
int dg_copy_guarded(void *dst, const void *src, uint64_t n);

#endif
