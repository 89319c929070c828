/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interface between the core and its providers: regions as the data path sees them, their gates,
 * devices, and the ops table that each provider defines.
 */
#ifndef DG_PROVIDER_H
#define DG_PROVIDER_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dgkit.h"
#include "life.h"
#include "ring.h"

/*
 * A gate counts the transfers that use a region, and allows the region to be revoked. The gate of a
 * local region is in private memory; a remote region has one gate for each import, in memory shared
 * by exporter and importer.
 *
 *   posting    posted += n (seq_cst)  then, before any byte moves, load revoked (seq_cst)
 *   revoking   revoked = 1 (seq_cst)  then wait until done == posted
 *
 * Forbidden outcome: bytes move after the revoker saw done == posted. All four accesses are seq_cst
 * and have one total order. In it, either the revoker's load of posted comes after posted += n, so
 * that the revoker waits; or it comes before, and then the store of revoked also precedes the
 * poster's load of it, so that the poster sees the revocation and moves nothing. done is
 * incremented (release) after the last byte, and loaded (acquire) before posted, so equality means
 * that those bytes are complete.
 *
 * posted and done have separate cache lines because the caller writes one and the engine the other.
 * revoked shares the line of done: both are used by the thread that moves the bytes.
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

/* A region as the data path sees it: an entry of the region table, one cache line. */
struct dg_region_entry {
	/* address in this process; METHOD_VM: in the exporter; METHOD_PROXY: 0, so that addresses
	 * are offsets */
	char *base;
	uint64_t size;
	struct dg_gate *gate;
	struct dg_region *region;
	_Atomic uint64_t id; /* generation << 20 | index; 0: closed to new operations */
	uint8_t access, method, remote, may_fault;
	atomic_uint lost; /* the exporter is gone */
	int32_t pid; /* METHOD_VM: the process that base belongs to; otherwise 0 */
	uint32_t slot;
	uint32_t device; /* dg_device.number */
};
_Static_assert(sizeof(struct dg_region_entry) == 64, "a region is one cache line on the data path");

/* Whether this process cannot access the region's bytes: its exporter copies them, or the kernel. */
static inline bool by_exporter(const struct dg_region_entry *e)
{
	return e->method == DG_METHOD_VM || e->method == DG_METHOD_PROXY;
}

/* region_table.c: one table for the process, which is never freed. So a stale id or index is never
 * a dangling pointer, and a region of one device is never mistaken for a region of another.
 *
 * An id has 64 bits, and no other region of the process ever gets it: whatever keeps an id keeps all
 * of them. A work request or a record of a GPU queue has the low 32 bits, its name, which another
 * region may get after 67 million closes. */
#define REGION_TABLE_SIZE (1u << 20)
#define REGION_INDEX(id)  ((uint32_t)(id) & (REGION_TABLE_SIZE - 1))
#define REGION_NAME(id)   ((uint32_t)(id))
extern struct dg_region_entry *dg_region_table;

/* Whether this thread may access the region's bytes. */
static inline bool is_plain(const struct dg_region_entry *e)
{
	return !(e->method | e->may_fault);
}

static inline struct dg_region_entry *region_entry_at(uint32_t index)
{
	return dg_region_table + index;
}

/* Whether operations may still be posted to the region with this id. Inside a queue, the region then
 * stays open until the queue is left: see dg_queues_grace(). */
static inline bool region_is_open(uint64_t id)
{
	return atomic_load_explicit(&region_entry_at(REGION_INDEX(id))->id, memory_order_seq_cst) == id;
}

struct dg_ops;
struct dg_descriptor;

struct dg_device {
	struct dg_life life;
	bool shared; /* handles are freed by dg_device_free() and dg_region_free() */
	const struct dg_ops *ops;
	void *provider; /* state of the provider */
	pthread_mutex_t lock; /* guards the lists */
	uint32_t number;
	struct dg_device *next; /* in the list of devices whose provider has poll() */
	struct dg_region *regions;
	struct dg_queue *queues;
	void (*poll_queues)(struct dg_device *dev); /* of the polled devices, share/polling.h */
	uint32_t fork_generation;
	bool uses_share_server; /* the device holds a reference to the share server */
	bool gpu; /* the provider can copy GPU memory */
	bool on_demand; /* the provider supports DG_MEMORY_ON_DEMAND */
	bool registers; /* the provider copies only memory that was passed to map() */
	bool connects; /* exports of this process are also imported by map() of the blob */
	bool mapped_kinds; /* the provider copies all that is mapped: also kinds with dg_memory_ops */
	/* provider name in descriptors whose blob map() reads and export() writes, or NULL */
	const char *blob_provider;
	dg_caps caps;
};

/* A queue pair that is connected by hand. Guarded by its queue: only the thread inside uses it. */
struct dg_qp {
	atomic_uint refs; /* held by its open queue, by the handle and by each import */
	struct dg_queue *q; /* referenced */
	struct dg_qp *next; /* in the queue's list */
	void *provider; /* state of the provider; NULL: closed */
	dg_qp_address address;
	atomic_uint broken; /* in the error state, or closed: its imports are lost. Any thread. */
};

/* Operations of a provider that supports queue pairs. All are called by the thread inside the
 * queue, with checked arguments. */
struct dg_qp_ops {
	/* Stores the provider's state in qp->provider and fills qp->address. */
	int (*open)(struct dg_device *dev, struct dg_pipe *p, struct dg_qp *qp);
	int (*connect)(struct dg_device *dev, struct dg_qp *qp, const dg_qp_address *to);
	/* Allows the peer to access r, which stays open during the call; unmap() ends the
	 * access. */
	int (*grant)(struct dg_device *dev, struct dg_qp *qp, struct dg_region *r, uint32_t access,
		     uint32_t *rkey);
	/* Sets r->provider_state of an import, for unmap(). */
	int (*import)(struct dg_device *dev, struct dg_region *r, uint32_t rkey);
	/* Whether operations between local and an import of qp can be posted. */
	int (*check)(struct dg_device *dev, struct dg_qp *qp, struct dg_region *local);
	/* Completes the operations in flight and ends all access that was granted. */
	void (*close)(struct dg_device *dev, struct dg_qp *qp);
};

/* Results of an operation that has no dg_status yet: in progress; not started. */
enum { OP_MORE = -1, OP_NOT = -2 };

struct dg_ops {
	const char *name;
	/* Returns 0 if the provider can be opened on this machine, otherwise dg_fail() with the
	 * reason. If deep is false, checks only what takes no time. NULL: always available. */
	int (*probe)(bool deep);
	/* Stores the provider's state in *state and fills dev->caps. */
	int (*open)(struct dg_device *dev, const dg_device_config *cfg, void **state);
	void (*close)(struct dg_device *dev, void *state);
	/* From attach until detach returns, the provider owns its end of the pipe. detach quiesces:
	 * afterwards every operation has a completion, and its gates have been left. */
	int (*attach)(struct dg_device *dev, void *state, struct dg_pipe *p);
	void (*detach)(struct dg_device *dev, struct dg_pipe *p);
	/* The submission ring has new entries. */
	void (*doorbell)(struct dg_device *dev, struct dg_pipe *p);
	/* Makes progress in the caller's thread. NULL: the provider makes progress by itself. */
	void (*poll)(struct dg_device *dev, struct dg_pipe *p);
	/* Like dg_pipe_arm(), which is used if this is NULL. */
	int (*arm)(struct dg_device *dev, struct dg_pipe *p);
	/* Makes memory accessible to this provider: memory of this process (m->addr), a GPU block
	 * that another process exports (m->addr is NULL), or the memory that the blob of
	 * r->descriptor opens. Fills entry->base and entry->method, r->provider_state for unmap,
	 * and r->registration if an RDMA adapter registers the memory. NULL: dg_map_default(). */
	int (*map)(struct dg_device *dev, void *state, struct dg_region *r, const dg_memory *m,
		   struct dg_region_entry *entry);
	void (*unmap)(struct dg_device *dev, void *state, struct dg_region *r);
	/* Asks importers that only the provider knows to stop using r, and waits until they have.
	 * Errors: EBUSY at the deadline. NULL: there are no such importers. */
	int (*revoke)(struct dg_device *dev, void *state, struct dg_region *r, uint64_t deadline_ns);
	/* Returns the number of imports of r. NULL: the share server counts them. */
	uint32_t (*importers)(void *state, struct dg_region *r);
	/* Writes the provider's own export of r to d: provider, blob and blob_length. Required if
	 * dev->blob_provider is set. */
	int (*export)(struct dg_device *dev, void *state, struct dg_region *r, uint32_t access,
		      struct dg_descriptor *d);
	/* Whether the exporter of an imported region is known to have ended. NULL: this shows only
	 * in the share server's connection and in operations. */
	bool (*lost)(const struct dg_region *r);
	/* Executes one operation in the caller's thread if it completes within a few polls. The
	 * caller handles its gates. Returns a dg_status; OP_MORE: it is in flight as if it had come
	 * from the ring, and will complete op->slot; OP_NOT: nothing was done, and it has to be
	 * posted. NULL: all operations are posted. */
	int (*direct)(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op);
	/* Called when the caller has spun for a while: moves the provider's thread away from the
	 * caller's CPU if it may run on another. Returns whether it is on another CPU. NULL: there
	 * is no thread. */
	bool (*separate)(struct dg_device *dev, struct dg_pipe *p);
	/* Adds the provider's counters to *out. NULL: it has none. */
	void (*stats)(void *state, dg_stats *out);
	/* dg_measure_bare() for one checked operation. NULL: -EOPNOTSUPP. */
	int (*bare)(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op,
		    uint32_t count, uint32_t window, uint64_t *samples_ns);
	/* NULL: queue pairs that are connected by hand are not supported (-EOPNOTSUPP). */
	const struct dg_qp_ops *qp;
	/* Whether the posting thread may copy with dg_op_run() itself. */
	bool inline_copies;
	/* Whether the provider supports operations with OP_GROUP, in posting order. */
	bool groups;
};

/* Number of forks between the first process and this one. Objects opened before a fork cannot be
 * used in the child. */
extern atomic_uint dg_fork_generation;

/* Enters or leaves (`pass`) the gates of many operations, with one atomic operation for each
 * sequence of operations between the same two regions. */
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

#endif
