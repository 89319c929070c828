/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor: moves the bytes of queues that others fill, in one thread (poller.h).
 *
 * A front end takes an entry out of its ring, decodes it, and finds the regions that it names, by
 * rules of its own. From there on all front ends are the same: one operation of checked pieces is
 * copied by this thread, or staged and passed to the provider, and comes back with a dg_status. The
 * front end's completion writer then tells whoever filled the queue.
 *
 *	gpu_ring_*.c                           nic_*.c
 *	dgkit's records, one place each        mlx5's entries (WQEs), CQEs in order
 *	   |        the executor never calls a front end        |
 *	executor.c            regions entered, copies here, requests staged and posted, flights
 *	   |
 *	executor_atomic.c     atomic operations: by this thread, by the provider, by the exporter
 *	executor_signal.c     words that are stored or added to behind the bytes
 *	executor_bounce.c     two legs, where one provider does not reach both sides
 *	executor_staging.c    memory that providers copy inline bytes and operands from
 *
 * A call on an operation returns DG_OK if it is complete, another dg_status if it may not be
 * executed, EXEC_POSTED if the provider will complete it, and EXEC_WAITS if it has to be tried again
 * in a later pass: then nothing was done. No call blocks, so no queue waits for another.
 *
 * One pass: exec_pass_begin(), operations, dg_exec_post(), exec_pass_end(). The thread is inside x->q
 * meanwhile, where a region that was found open stays open until the queue is left
 * (dg_queues_grace()). So a pair of regions is checked once for consecutive copies.
 *
 * Order: a front end with a `flights` ring gets its operations back in the order in which they were
 * started (dg_exec_take()). One without it numbers its requests itself (dg_wr.user) and takes them as
 * they complete.
 */
#ifndef DG_EXECUTOR_H
#define DG_EXECUTOR_H

#include "atomic.h"
#include "copy.h"
#include "queue.h"
#include "region.h"

enum { EXEC_POSTED = -1, EXEC_WAITS = -2 };

enum {
	EXEC_COPY_MOST = 64 << 10, /* bytes of an operation in flights that this thread copies itself */
	EXEC_FLIGHTS = 128, /* operations with the provider, or pieces of such operations */
	EXEC_DEPTH = 512, /* requests that are staged in one pass, and completions taken at once */
	EXEC_SLOT = 1024, /* bytes of staging memory: inline bytes, operands, short pieces */
	EXEC_SLOTS = 256,
	EXEC_CHUNK = 128 << 10, /* bytes of large staging memory, which only a GPU's device has */
	EXEC_CHUNKS = 16
};

/* A region as a front end found it: its entry stays valid, and the id says whether it is still open. */
struct exec_region {
	struct dg_region_entry *entry;
	uint64_t id;
};

/* Part of an operation's bytes, which are in bounds. local NULL: inline, at `bytes`. */
struct exec_piece {
	const struct exec_region *local, *remote;
	const char *bytes;
	uint64_t local_offset, remote_offset;
	uint32_t size;
};

/* A checked operation. write: from the local to the remote side. */
struct exec_op {
	const struct exec_piece *pieces;
	uint32_t n;
	bool write;
	uint64_t total; /* bytes of all pieces */
	/* Of an atomic operation, whose piece has the word at its remote side, and at the local one
	 * where its old value goes: that memory once more, as the remote side of a request. */
	const struct exec_region *result;
	const struct dg_atomic *atomic;
};

/* PUT, GET, FAR_ATOMIC: see executor_bounce.c. */
enum flight_kind {
	FLIGHT_COPY,
	FLIGHT_ATOMIC_READ,
	FLIGHT_ATOMIC_WRITE,
	FLIGHT_PUT,
	FLIGHT_GET,
	FLIGHT_FAR_ATOMIC
};

/* An operation with the provider, or complete behind one that is. Not `last`: a piece of the
 * operation that the next flight belongs to. */
struct exec_flight {
	uint32_t left; /* requests with the provider */
	uint8_t status, kind;
	bool last, write;
	struct staging_slot *staging;
	/* Of a bounced piece. far_soft, near_soft: its remote, its local memory is reached by the provider soft.
	 * leg: the second. posted: the provider has that leg. local, remote: names of regions. */
	bool far_soft, near_soft, leg, posted;
	uint32_t local, remote, size, done;
	uint64_t local_offset, remote_offset;
};

struct staging_slot {
	struct staging_slot *next;
	uint64_t offset;
	bool large;
};

/* Staging memory: registered with a device, and imported as the remote side of copies between it and local
 * memory. The second: of exec_engine.soft, where the first is a GPU's. */
struct exec_staging {
	struct staging_region {
		dg_region *region, *import;
		uint32_t name, import_name;
	} by[2];
	char *bytes;
	struct staging_slot slots[EXEC_SLOTS + EXEC_CHUNKS], *free[2]; /* by `large` */
};

/* A word that holds a running sum; only its owner adds to it. */
struct signal_word {
	uint64_t region, offset, sum;
	const struct executor *owner;
};

/* What the queues of one thread share. */
struct exec_engine {
	dg_device *dev;
	dg_device *soft; /* reaches what the device of a GPU does not; NULL: of a front end without flights */
	struct exec_staging staging;
	struct executor *atomic_owner; /* whose atomic operation the provider executes */
	int atomic_lock_plus_1; /* the descriptor of the file that it has locked meanwhile, plus 1; 0: not open */
	struct signal_word *words;
	uint32_t n_words, words_room;
	uint64_t batches; /* that were posted */
	/* Scratch memory of a pass. */
	dg_wr wr[EXEC_DEPTH];
	dg_wc wc[EXEC_DEPTH];
};

/* One queue that others fill. */
struct executor {
	struct exec_engine *engine;
	struct dg_queue *q;
	struct dg_queue *soft_q; /* of engine->soft; NULL until a peer needs it */
	/* The gate that is entered, and the regions that were found open behind it. */
	struct dg_gate *gate;
	bool paired;
	struct exec_region local, remote;
	/* Staged in this pass, in the order of q->scratch. */
	uint32_t n_staged;
	bool inline_able;
	uint64_t staged_bytes;
	struct op_run run;
	/* EXEC_FLIGHTS of them, or NULL. head: the oldest; tail: the next. */
	struct exec_flight *flights;
	uint32_t head, tail;
	uint32_t bounced; /* flights of executor_bounce.c that are not complete */
	bool stopped; /* the queue has failed or was reset: no leg of a flight is begun */
	/* An atomic operation with the provider, of which there is one in an engine. */
	struct dg_atomic atomic;
	uint32_t atomic_word, atomic_result; /* names of regions */
	uint64_t atomic_word_offset, atomic_result_offset;
};

static inline bool exec_flies(const struct executor *x)
{
	return x->head != x->tail;
}

static inline struct exec_flight *flight_at(const struct executor *x, uint32_t n)
{
	return &x->flights[n % EXEC_FLIGHTS];
}

static inline char *exec_local(const struct exec_piece *p)
{
	return p->local ? p->local->entry->base + p->local_offset : (char *)(uintptr_t)p->bytes;
}

static inline char *exec_remote(const struct exec_piece *p)
{
	return p->remote->entry->base + p->remote_offset;
}

/* Whether this device reaches the region; exec_engine.soft reaches the others. */
static inline bool exec_reaches(const dg_device *dev, const struct dg_region_entry *e)
{
	return e->device == dev->number;
}

static inline bool exec_in_bounds(const struct dg_region_entry *e, uint64_t offset, uint64_t size,
				  uint32_t access)
{
	return e->access & access && size <= e->size && offset <= e->size - size;
}

/* Leaves the gate that a copy has entered. */
static inline void exec_leave(struct executor *x)
{
	if (x->gate)
		gate_leave(x->gate, 1);
	x->gate = NULL;
	x->paired = false;
}

/* Begins a pass. Returns 0, or the error of queue_enter(). */
static inline int exec_pass_begin(struct executor *x)
{
	const int rc = queue_enter(x->q);
	if (!rc)
		x->run = (struct op_run){0};
	return rc;
}

static inline void exec_pass_end(struct executor *x)
{
	exec_leave(x);
	queue_leave(x->q);
}

/* Enters the gate of the remote region, and checks that both are open and not revoked. The local one
 * (NULL: inline bytes) needs no gate, as its closer waits until this thread has left the queue.
 * Returns a dg_status. */
int dg_exec_enter(struct executor *x, const struct exec_region *local,
		  const struct exec_region *remote);

static inline int exec_enter(struct executor *x, const struct exec_region *local,
			     const struct exec_region *remote)
{
	if (__builtin_expect(x->paired && remote->id == x->remote.id &&
				     (!local || local->id == x->local.id),
			     1))
		return DG_OK;
	return dg_exec_enter(x, local, remote);
}

/* Copies bytes of entered regions. The ranges may overlap. */
static inline void exec_copy(char *to, const char *from, uint64_t size)
{
	order_stores(); /* behind the bytes of the operations before */
	if (size <= 64)
		copy_upto64(to, from, size);
	else
		memmove(to, from, size);
}

/* executor.c */
/* Moves the pieces of an operation, in a queue with flights. */
int dg_exec_move(struct executor *x, const struct exec_op *op);
/* Stages one request. Returns a dg_status. */
int dg_exec_stage(struct executor *x, const dg_wr *wr);
/* Takes back the last n requests that were staged. */
void dg_exec_unstage(struct executor *x, uint32_t n);
/* Posts what was staged as one batch. here: if it is small, this thread executes it. Returns the
 * number of completions of this kind, in engine->wc. */
uint32_t dg_exec_post(struct executor *x, bool here, uint64_t now);
/* Takes at most `most` completions of the provider from q into engine->wc. Returns their number. */
uint32_t dg_exec_completions(struct executor *x, struct dg_queue *q, uint32_t most);
/* Whether n more requests can be staged. */
static inline bool exec_has_room(const struct executor *x, uint32_t n)
{
	return credits(x->q) >= x->n_staged + n && x->q->n_free >= x->n_staged + n;
}

/* Appends a flight; if the operation is complete already, it waits for those before it. */
struct exec_flight *dg_exec_fly(struct executor *x, uint32_t left);
/* Whether an operation has to wait for those before it: for a fence, and behind an atomic operation
 * that the provider executes. */
static inline bool exec_blocked(const struct executor *x, bool fence)
{
	return (fence && exec_flies(x)) || x->engine->atomic_owner == x;
}
/* Takes the completions of the provider, and goes on with the flights. Returns whether there was
 * anything to do. */
bool dg_exec_progress(struct executor *x);
/* Takes the oldest operation if it is complete, with its flight's number and its status. */
bool dg_exec_take(struct executor *x, uint32_t *number, int *status);
/* Gives back what the flights hold, once the provider has ended them. */
void dg_exec_end(struct executor *x);

/* executor_atomic.c */
int dg_exec_atomic(struct executor *x, const struct exec_op *op);
/* The provider has no atomic operation any more. */
void dg_exec_atomic_end(struct exec_engine *e);
void dg_exec_atomic_close(struct exec_engine *e);
/* Posts the second part of an atomic operation: the new word, and where its old value goes. */
int dg_exec_atomic_result(struct executor *x, struct exec_flight *f);

/* executor_signal.c */
/* Stages the store of a word, whose value is `addend` or, unless `set`, the sum of what was added to
 * it. wr: of the store; its local bytes are at `staged`. Returns a dg_status. */
int dg_exec_signal(struct executor *x, const dg_wr *wr, char *staged, uint64_t addend, bool set);
/* Gives up ownership of the words that a queue has added to, so that another may add to them. */
void dg_exec_disown(struct executor *x);

/* executor_bounce.c */
/* Executes an operation in two legs; kind says how. */
int dg_exec_bounce(struct executor *x, const struct exec_op *op, uint32_t kind);
/* Posts the legs that may be posted. Returns whether anything was done. */
bool dg_exec_bounce_all(struct executor *x);
/* A leg has ended. */
void dg_exec_bounce_step(struct executor *x, struct exec_flight *f, int status);

/* executor_staging.c */
int dg_exec_staging_open(struct exec_engine *e);
/* Also after an opening that failed. */
void dg_exec_staging_close(struct exec_engine *e);
/* Takes staging memory for `size` bytes of a flight, if it has none yet. Returns whether it has. */
bool dg_exec_staging_take(struct exec_engine *e, struct exec_flight *f, uint32_t size);
void dg_exec_staging_put(struct exec_engine *e, struct exec_flight *f);

#endif
