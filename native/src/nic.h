/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The software NIC: one thread (poller.h) that executes the work queue entries of many queue pairs.
 *
 * Calls go down only:
 *
 *	nic.c             opens and closes NICs and completion queues; the pass over all queue pairs
 *	nic_qp.c          opens, modifies and closes queue pairs
 *	nic_srq.c         opens and closes receive queues that they share
 *	   |
 *	nic_send.c        one pass over a send queue: take entries, complete them, errors and flush
 *	nic_receive.c     one pass over a receive queue: publish receives, complete them
 *	   |
 *	nic_message.c     entries that use a receive
 *	nic_datagram.c    datagrams: to outboxes, from those of other NICs
 *	   |
 *	nic_execute.c     one entry: its keys looked up and checked, its pieces given to the executor
 *	   |
 *	nic_peer.c        the queue pairs and keys of other NICs
 *	nic_part.c        the other parts of the adapter, for datagrams
 *	nic_window.c      binds memory windows, which are keys, and invalidates them
 *	nic_gpu.c         GPU memory beside the NIC's own
 *	nic_key.c, nic_cq.c, nic_table.c, nic_wqe.c; executor.h
 *
 * States of an entry of the send queue:
 *
 *	         take, check       copied by this thread                     CQE, in order
 *	IN RING ------------> o ----------------------------------> COMPLETE --------------> gone
 *	   ^                  |                                        ^
 *	   | must wait        | posted to the queue pair's dg_queue    | the provider has
 *	   +------------------+--------------------> FLIGHT -----------+ finished all pieces
 *
 * An entry that must wait (for a WAIT, a receive, a fence, a key, room) stays in the ring, and is
 * read and checked again in the next pass. No other queue pair waits for it.
 *
 * Memory of a NIC that other NICs see, its table, is written by this NIC alone and read by the
 * others: keys with their descriptors, and for each queue pair a box (nic_table.h). What is read
 * there is checked like an entry. Queue pairs of one NIC use their boxes in the same way.
 *
 * Threads: the poller's lock guards everything. The thread is inside the dg_queue of the queue pair
 * that it serves, so no region is closed while its bytes are copied. The resolver (nic_peer.c) is a
 * thread that imports keys of other processes, which may take long; it holds the lock only to look
 * and to store.
 */
#ifndef DG_NIC_H
#define DG_NIC_H

#include <semaphore.h>

#include "executor.h"
#include "nic_table.h"
#include "nic_wqe.h"
#include "poller.h"

enum {
	NIC_PASS = 64, /* entries of a queue pair in one pass */
	NIC_PASS_BYTES = 256 << 10, /* copied for a queue pair in one pass, by this thread */
	NIC_PIECES = WQE_SEGMENTS_MAX + DG_NIC_SGES,
	NIC_AHEAD = 8 /* blocks that are prefetched */
};
/* How long what needs no answer (UC, UD) waits for a receive before it is dropped: programs post them in
 * time, but here they may be out of their turn. */
#define NIC_DRY_NS 50000000ull
/* How long closing a queue pair waits for the peer's NIC, which takes messages without its program. */
#define NIC_CLOSE_NS 200000000ull

/* A key of this NIC or, cached, of another. */
struct nic_key {
	uint32_t key, pd, access, generation;
	uint64_t address, size, offset; /* offset: as in nic_key_body, as is qpn */
	uint32_t qpn, window; /* window: its type, or 0 */
	struct exec_region local, remote; /* the region, unless of another NIC; its import. No entry: none */
	dg_region *import;
	uint64_t published; /* of another NIC: nic_public_key.key when it was imported */
};

/* Another NIC whose table was imported. */
struct nic_peer {
	struct nic_peer *next;
	uint32_t refs; /* queue pairs */
	uint8_t gid[16];
	dg_region *import;
	const struct nic_table *table;
	const struct nic_table *own; /* the same, referenced, if it is of this process, or NULL */
	struct dg_region_entry *entry; /* of the import */
	struct nic_key *keys[DG_NIC_KEYS]; /* by index, NULL: not imported yet */
};

/* What completing an entry of the send queue needs. message: for the peer, unless its opcode is 0. */
struct nic_entry {
	uint64_t index, bytes;
	uint8_t opcode, flags, blocks;
	struct nic_message message;
};

/* What happens to an entry or a receive instead of, or besides, its execution. syndrome: not 0, it ends with
 * this error. drop: it moves nothing, and completes. lose: it has no CQE. corrupt: of its first byte sent,
 * one bit is inverted. */
struct nic_verdict {
	uint8_t syndrome, vendor;
	bool drop, lose, corrupt;
	uint64_t due_ns; /* an entry: not executed before */
};

struct nic_cqe;

/* Sees what a NIC does, and may interfere: counters, injected faults, traces. Called with the lock. entry: an
 * entry was loaded into n->wqe, the first time; is_valid: as dg_nic_parse() says. receive: a message arrived for
 * a receive. ended: an entry was executed or has failed; completion: a CQE is written; failed: one with an error;
 * not_ready: the peer answered that it has no receive. All but `ended`, `failed` and `not_ready` may be NULL. */
struct nic_observer {
	void (*entry)(struct dg_nic_qp *qp, const struct nic_entry *e, bool is_valid, struct nic_verdict *v);
	void (*receive)(struct dg_nic_qp *qp, const struct nic_message *m, struct nic_verdict *v);
	void (*ended)(struct dg_nic_qp *qp, const struct nic_entry *e, uint8_t syndrome);
	void (*completion)(struct dg_nic_qp *qp, const struct nic_cqe *e);
	void (*failed)(struct dg_nic_qp *qp, const struct nic_cqe *e);
	void (*not_ready)(struct dg_nic_qp *qp);
};

/* A part of the adapter, as this NIC exchanges datagrams with it. sent: put into the outbox; taken: from its
 * outbox. */
struct nic_part {
	struct nic_peer *peer; /* NULL: itself, if it has a table */
	const struct nic_table *table;
	uint64_t sent, taken;
};

struct dg_nic_cq {
	struct dg_nic *nic;
	struct dg_nic_cq *next;
	uint8_t *ring;
	uint64_t gpu_ring; /* as in its configuration */
	uint32_t number, entries, users, shift; /* shift: of the bytes of a CQE */
	bool collapsed, is_armable, is_checked, is_full;
	uint64_t room_end; /* CQEs up to here have a place, as its owner's record said; UINT64_MAX: not checked */
	/* solicited, notified: `produced` behind the last CQE that asks for an event; at the last event. */
	uint64_t produced, solicited, notified;
	_Atomic uint32_t *record; /* or NULL */
	uint64_t event;
	int event_fd, async_fd;
};

/* A ring of receives: of a queue pair and of those that share it, or a shared receive queue (SRQ), whose
 * places are a linked list, because programs free them in any order. sharers: queue pairs but the one
 * that the ring is part of. end, taken, done: in the ring; published in boxes; completed. */
struct nic_receives {
	const uint8_t *ring;
	uint32_t entries, sges, pd, sharers;
	uint32_t *record;
	uint64_t end, taken, done;
	/* Of a list: its next place; places that were published and not used. */
	bool is_list;
	uint16_t next;
	uint32_t n_returned, limit;
	uint16_t *returned;
	int async_fd;
	uint64_t event;
};

/* next, number and those behind: for XRC. */
struct dg_nic_srq {
	struct dg_nic *nic;
	struct nic_receives r;
	struct dg_nic_srq *next;
	uint32_t number, domain, user_index;
	struct dg_nic_cq *cq;
};

struct dg_nic_qp {
	struct dg_nic *nic;
	struct dg_nic_qp *next;
	struct dg_nic_qp_config c;
	uint32_t qpn, state, access;
	pthread_mutex_t modifying; /* by dg_nic_qp_modify(), which releases the lock meanwhile */
	struct executor x, gpu; /* gpu: without an engine, until keys have GPU memory and it is opened */
	struct executor *active; /* which of them may have operations in flight */
	struct nic_box *box; /* its own, in the table */
	/* The peer. */
	dg_nic_address address;
	struct nic_peer *peer; /* NULL: a queue pair of this NIC */
	const struct nic_box *far;
	uint32_t far_pd, far_access;
	uint32_t q_key;
	uint64_t asked; /* which search for parts decides whether the datagram's receiver exists; 0: none */
	uint64_t dry_ns; /* since when there is no receive for a datagram */
	bool far_ready; /* looked at in this pass, and ready */
	uint64_t not_ready_ns; /* since when the peer is not ready */
	uint64_t patience_ns;  /* for how long it may be */
	uint64_t wants, retry_ns; /* as in the box; when it is tried again, or 0 */
	uint64_t dry;		  /* as in the box */
	uint32_t rnr_retries, rnr_timer;
	/* The send queue, in basic blocks; in the order completed <= taken <= end. */
	uint64_t fetched; /* with a ring on a GPU: the entries before this place are in send_ring */
	uint64_t taken, completed, sent; /* sent: receives of the peer that were used */
	uint64_t flush_end; /* after a doorbell that jumped: where flushing ends; or UINT64_MAX */
	struct exec_flight flights[EXEC_FLIGHTS];
	struct nic_entry entries[EXEC_FLIGHTS]; /* of the flights that end one */
	/* With an observer: the entries before this place were seen; what it said about the last of them. */
	uint64_t observed;
	struct nic_verdict verdict;
	/* The receive queue: `own`, or one that it shares. */
	struct nic_receives own, *rq;
	uint64_t posted, received; /* of its box: published; completed */
	/* The peer's `resets`: of an earlier connection, or UINT64_MAX; when messages were first exchanged. */
	uint64_t ignored, met;
	uint16_t places[NIC_WINDOW]; /* in the ring, of the receives in the box */
	bool last_reached;	     /* DG_NIC_QP_LAST_RECEIVE was sent */
	/* Of this pass. */
	uint64_t pass_bytes;
	uint32_t wanted_key; /* for the resolver */
	dg_nic_qp_info info;
};

struct dg_nic {
	struct dg_poller poller;
	struct exec_engine engine; /* whose device `soft` also has the table */
	dg_region *table_region;
	struct nic_table *table;
	int table_fd;
	bool is_part;
	uint32_t part;
	char table_file[256];
	uint32_t fork_generation;
	struct dg_nic_cq *cqs;
	struct dg_nic_qp *qps;
	struct dg_nic_srq *srqs; /* for XRC */
	struct nic_peer *peers;
	struct nic_key keys[DG_NIC_KEYS];
	uint32_t next_key, n_keys, opened_keys, next_qp, n_qps, next_cq;
	uint32_t n_armable; /* CQs with events */
	atomic_uint n_windows;
	struct exec_engine *_Atomic gpu; /* of GPU memory, or NULL: set once, with the lock */
	uint32_t gpu_ordinal;
	bool is_in_context; /* its thread */
	pthread_mutex_t gpu_opening;
	/* Datagrams: queue pairs, by index, and their number; parts of the adapter; searches that have ended. */
	struct dg_nic_qp *datagram_qps[DG_NIC_QPS];
	uint32_t n_datagram_qps;
	struct nic_part *parts; /* DG_NIC_PARTS of them, with the first such queue pair */
	uint32_t parts_end;	/* behind the last one that was found */
	uint64_t searches;
	int64_t searched_ns; /* when the folder was changed that was searched */
	uint32_t box_generations[DG_NIC_QPS];
	pthread_t resolver;
	bool resolver_runs;
	atomic_uint resolver_stop;
	sem_t resolve;
	/* Scratch memory of the thread. */
	uint8_t bytes[WQE_BLOCK * WQE_BLOCKS_MAX];
	struct nic_wqe wqe;
	struct nic_entry entry;
	struct exec_piece pieces[NIC_PIECES];
	struct nic_fault fault;
	const struct nic_observer *observer; /* or NULL */
	uint64_t entries, moved, cqes, errors;
};

/* Copies 8-byte words that others may be writing. */
static inline void load_words_in(void *to, const void *from, uint32_t n, memory_order order)
{
	const _Atomic uint64_t *s = from;
#pragma GCC unroll 8
	for (uint32_t i = 0; i < n; i++) {
		const uint64_t word = atomic_load_explicit(&s[i], order);
		memcpy((char *)to + 8 * i, &word, 8);
	}
}

static inline void store_words_in(void *to, const void *from, uint32_t n, memory_order order)
{
	_Atomic uint64_t *d = to;
#pragma GCC unroll 8
	for (uint32_t i = 0; i < n; i++) {
		uint64_t word;
		memcpy(&word, (const char *)from + 8 * i, 8);
		atomic_store_explicit(&d[i], word, order);
	}
}

static inline void load_words(void *to, const void *from, uint32_t n)
{
	load_words_in(to, from, n, memory_order_relaxed);
}

static inline void store_words(void *to, const void *from, uint32_t n)
{
	store_words_in(to, from, n, memory_order_relaxed);
}

static inline bool is_shared(const struct nic_receives *rq)
{
	return rq->is_list || rq->sharers;
}

/* Whether the peer was not reset since the first message of this connection. */
static inline bool is_same_connection(struct dg_nic_qp *qp, uint64_t resets)
{
	if (!qp->sent && !qp->received)
		qp->met = resets;
	return qp->met == resets;
}

static inline bool qp_flies(const struct dg_nic_qp *qp)
{
	return exec_flies(qp->active);
}

/* nic.c */
/* Fails with EOWNERDEAD in the child of a fork(). */
int dg_nic_check_process(const struct dg_nic *n);
void dg_nic_observe(struct dg_nic *n, const struct nic_observer *o);

/* nic_table.c */
/* Writes the path of the file that leads to the table of the NIC with this GID. Errors: those of
 * dg_runtime_dir(). */
int dg_nic_table_path(const uint8_t gid[16], char *out, size_t cap);
int dg_nic_table_open(struct dg_nic *n);
void dg_nic_table_close(struct dg_nic *n);
/* References the table of a NIC of this process by its GID, so that it stays mapped when that NIC is
 * closed. Returns NULL if no open NIC has it. */
const struct nic_table *dg_nic_table_take(const uint8_t gid[16]);
/* Drops a reference; the last one unmaps the table. NULL is ignored. */
void dg_nic_table_drop(const struct nic_table *t);
/* Reserves the memory of `size` bytes at `at` in the table. Errors: ENOSPC, ENOMEM. */
int dg_nic_table_reserve(struct dg_nic *n, void *at, size_t size);

/* Returns the key of this NIC with this number, or NULL. */
static inline const struct nic_key *nic_key_find(const struct dg_nic *n, uint32_t key)
{
	const uint32_t index = key_index(key);
	return index < DG_NIC_KEYS && key && n->keys[index].key == key ? &n->keys[index] : NULL;
}

/* nic_key.c */
/* Whether size bytes at `address` are in the key; stores their offset in its region. */
static inline bool key_covers(const struct nic_key *k, uint64_t address, uint64_t size,
			      uint64_t *offset)
{
	*offset = k->offset + (address - k->address);
	return address >= k->address && size <= k->size && address - k->address <= k->size - size;
}
/* Gives a key without memory a number, and puts it into both tables. descriptor: what others import. */
int dg_nic_key_add(struct dg_nic *n, struct nic_key *k, const uint8_t *descriptor, int length);
/* Writes the key into the table for others. With the lock, as is the function below. */
void dg_nic_key_publish(struct dg_nic *n, const struct nic_key *k, const uint8_t *descriptor, int length);
/* Takes the key out of both tables. Returns its import. */
dg_region *dg_nic_key_take_out(struct dg_nic *n, struct nic_key *k);
void dg_nic_keys_close(struct dg_nic *n);
/* Returns the rights (enum dg_nic_access) that a key of a region with this access can have. */
uint32_t dg_nic_key_access(uint32_t access);

/* nic_window.c */
/* Executes the entry in n->wqe that binds a window or invalidates one. As dg_nic_execute(). */
int dg_nic_window_change(struct dg_nic_qp *qp);
/* A message asks for it. Returns false if the queue pair has no window with this key. */
bool dg_nic_window_invalidate(struct dg_nic_qp *qp, uint32_t key);
/* Invalidates the windows that only this queue pair's peer can use, at its end. Call with the lock held. */
void dg_nic_windows_leave(struct dg_nic_qp *qp);

/* nic_cq.c */
struct nic_cqe {
	uint8_t opcode, syndrome, vendor, send_opcode, n_inline;
	bool solicited;
	uint16_t index;
	uint32_t immediate, bytes;
	uint32_t from; /* of a datagram: its header's kind, and the sender's queue pair */
	const uint8_t *data;
};
/* Writes a CQE, after everything that this thread stored before. */
void dg_nic_cqe(struct dg_nic_qp *qp, struct dg_nic_cq *cq, const struct nic_cqe *e);
/* The same for one with a syndrome. vendor: 0 for the one that hardware has with it. */
void dg_nic_error_cqe(struct dg_nic_qp *qp, struct dg_nic_cq *cq, struct nic_cqe e);
/* Sends the events of armed CQs. Returns whether there were any. */
bool dg_nic_cq_events(struct dg_nic *n);
/* Sends an asynchronous event, if the object has them. */
void dg_nic_async(int fd, uint64_t event, uint32_t type);

/* nic_peer.c */
/* Finds the peer of a queue pair that goes to RTR. Called without the lock. */
int dg_nic_peer_connect(struct dg_nic_qp *qp, const dg_nic_address *to);
/* Drops the reference that the queue pair has. Called without the lock. */
void dg_nic_peer_leave(struct dg_nic_qp *qp);
/* Looks at the peer's box. Returns whether the peer can receive; otherwise fills *f, with syndrome 0
 * if it may become ready. Stores far_pd and far_access. */
bool dg_nic_peer_ready(struct dg_nic_qp *qp, struct nic_fault *f);
/* Returns the key of a peer of another NIC, NULL if it has none. *waits: it is being imported. */
const struct nic_key *dg_nic_peer_key(struct dg_nic_qp *qp, uint32_t key, bool *waits);
/* Imports the memory that `body` describes, for *k, which has access, size and offset: what is more than the
 * memory allows is taken from it. On failure it has no memory. Called without the lock. */
int dg_nic_key_import(struct dg_nic *n, struct nic_key *k, const struct nic_key_body *body);
int dg_nic_resolver_start(struct dg_nic *n);
void dg_nic_resolver_stop(struct dg_nic *n);
/* Takes a reference to the NIC with this GID, importing its table if need be. Called without the lock, as is
 * the function below. */
int dg_nic_peer_take(struct dg_nic *n, const uint8_t gid[16], struct nic_peer **out);
void dg_nic_peer_release(struct dg_nic *n, struct nic_peer *peer);

/* nic_part.c */
/* Makes the NIC ready for datagrams. Called without the lock. */
int dg_nic_parts_open(struct dg_nic *n);
void dg_nic_parts_close(struct dg_nic *n);
/* Searches for new parts, and drops those whose process has ended. Called by the resolver. */
void dg_nic_parts_search(struct dg_nic *n);

/* nic_gpu.c */
/* Prepares for memory of a GPU. Called without the lock, as the others but dg_nic_executor(). Errors: EOPNOTSUPP if
 * the NIC has another one; those of dg_device_open(). */
int dg_nic_gpu_open(struct dg_nic *n, uint32_t gpu);
/* The same by UUID, for the device whose regions may have keys of this NIC. */
int dg_nic_gpu_device(struct dg_nic *n, const uint8_t uuid[16], dg_device **out);
void dg_nic_gpu_close(struct dg_nic *n);
/* Opens the queues that queue pairs lack. Called by the resolver. */
void dg_nic_gpu_queues(struct dg_nic *n);
void dg_nic_gpu_free(struct executor *x);
/* Copies the entries before `end` of a send ring on a GPU that are not here yet. Returns 0 or a negative errno. */
int dg_nic_gpu_fetch(struct dg_nic_qp *qp, uint64_t end);
/* Copies a CQE to a ring on a GPU: behind those before it, and all bytes that the NIC has moved. at: here. */
void dg_nic_gpu_cqe(struct dg_nic_cq *cq, const uint8_t *at);
/* Makes the executor active that reaches these pieces. As dg_nic_execute(). */
int dg_nic_executor(struct dg_nic_qp *qp, const struct exec_piece *pieces, uint32_t count);

static inline bool nic_is_on_gpu(const struct dg_nic *n, const struct exec_region *r)
{
	return n->gpu && r && r->entry && exec_reaches(n->gpu->dev, r->entry);
}

/* nic_execute.c */
enum { EXECUTED, POSTED, WAITS, FAILED };
/* Executes the entry in n->wqe, of which the blocks are in n->bytes. Returns EXECUTED, POSTED, WAITS
 * (qp->info.waiting says for what), or FAILED with n->fault, as do the functions below. e->bytes and
 * e->message are what completing it needs. */
int dg_nic_execute(struct dg_nic_qp *qp, struct nic_entry *e);
/* Returns the syndrome of an operation that ended with this dg_status. */
uint8_t dg_nic_syndrome(int status);
/* Finds the local memory of a segment. access: what is to be done, 0 for reading. */
int dg_nic_find_local(struct dg_nic_qp *qp, const struct nic_segment *s, uint32_t access,
		      struct exec_piece *p);
/* Finds the peer's key, for the bytes of a piece at `address`. right: enum dg_nic_access. */
int dg_nic_find_remote(struct dg_nic_qp *qp, uint32_t key, uint64_t address, uint64_t size,
		       uint32_t right, struct exec_piece *p);
/* Moves n->pieces[0..count). */
int dg_nic_move(struct dg_nic_qp *qp, struct nic_entry *e, uint32_t count, bool write);
/* WRITE and READ. */
int dg_nic_one_sided(struct dg_nic_qp *qp, struct nic_entry *e, uint32_t right);

static inline int nic_fault(struct dg_nic *n, uint8_t syndrome, const char *what, uint64_t value,
			    uint64_t limit)
{
	n->fault = (struct nic_fault){syndrome, what, value, limit};
	return FAILED;
}

/* Whether the entry is complete although the other side refuses it: over UC, nothing tells the sender. */
static inline bool is_dropped(const struct dg_nic_qp *qp, struct nic_entry *e, uint8_t syndrome)
{
	if (__builtin_expect(syndrome < SYNDROME_REMOTE_REQUEST, 1) || qp->c.transport != DG_NIC_UC)
		return false;
	e->bytes = 0;
	e->message.opcode = 0;
	return true;
}

static inline int nic_wait(struct dg_nic_qp *qp, uint32_t what)
{
	qp->info.waiting = what;
	return WAITS;
}

/* nic_message.c */
int dg_nic_two_sided(struct dg_nic_qp *qp, struct nic_entry *e);
/* Ends a message that the receiver refuses: both sides get an error. */
int dg_nic_refuse(struct dg_nic_qp *qp, struct nic_entry *e, uint32_t at_receiver, uint8_t here,
		  const char *what, uint64_t value, uint64_t limit);

/* nic_datagram.c */
int dg_nic_datagram(struct dg_nic_qp *qp, struct nic_entry *e);
/* Copies bytes behind the first `at` of a receive in host memory whose segments are checked. Returns false if its
 * memory is gone. Called in a pass of a queue pair. */
bool dg_nic_scatter(struct dg_nic *n, const struct nic_segment *s, uint32_t count, uint64_t at,
		    const uint8_t *from, uint64_t size);
/* Delivers what other NICs have sent. Returns whether there was any. */
bool dg_nic_datagrams(struct dg_nic *n);
/* Whether a receiver has datagrams of this NIC that it has not taken. */
bool dg_nic_datagrams_wait(const struct dg_nic *n);

/* nic_srq.c */
/* Sends the event that was asked for, if there are fewer receives now. */
void dg_nic_check_limit(struct nic_receives *rq);
/* Gives a shared ring back the places of receives that were published and not used. */
void dg_nic_return_receives(struct dg_nic_qp *qp);
/* Has an XRC_RECEIVE take its receives from this queue, or from none (NULL). */
void dg_nic_srq_attach(struct dg_nic_qp *qp, struct dg_nic_srq *s);
/* Attaches an XRC_RECEIVE to the queue that its peer needs now. Returns whether that is another one. */
bool dg_nic_srq_follow(struct dg_nic_qp *qp);
/* Has the peer of an XRC_SEND attach itself to the queue that the entry names. Returns EXECUTED, WAITS or FAILED. */
int dg_nic_srq_request(struct dg_nic_qp *qp);

/* nic_receive.c */
/* Whether the peer's box is still that of the peer, and its messages are for this queue pair. */
bool dg_nic_is_peer(const struct dg_nic_qp *qp);
/* Whether the ring has a receive that no box has. */
bool dg_nic_has_receive(const struct nic_receives *rq);
/* Copies the data segments of the next receive in the ring to `segments`. Returns its place. */
uint16_t dg_nic_load_receive(struct nic_receives *rq, uint8_t *segments);
/* Returns 0, or the syndrome of a receive's segment that is wrong. */
uint32_t dg_nic_check_segment(struct dg_nic_qp *qp, const struct nic_segment *s);
/* One pass over the receive queue. Returns whether anything was done. */
bool dg_nic_receive(struct dg_nic_qp *qp);
/* Finds a receive of the peer, and room for a message. Returns EXECUTED, WAITS, or FAILED once it was tried as
 * often as the queue pair has to. */
int dg_nic_find_receive(struct dg_nic_qp *qp);
/* Stores a message for the peer. */
void dg_nic_deliver(struct dg_nic_qp *qp, const struct nic_message *m);

/* nic_send.c */
/* One pass over a queue pair. Returns whether anything was done. */
bool dg_nic_serve(struct dg_nic_qp *qp);
/* Whether there are entries that were not taken. */
bool dg_nic_sends(struct dg_nic_qp *qp);
/* Puts the queue pair into the error state. f: why; NULL: its owner asked for it. */
void dg_nic_qp_fail(struct dg_nic_qp *qp, const struct nic_fault *f, uint64_t index);
/* The same where no entry gets an error CQE of its own: with an event. */
void dg_nic_qp_fatal(struct dg_nic_qp *qp, const struct nic_fault *f, uint64_t index);

#endif
