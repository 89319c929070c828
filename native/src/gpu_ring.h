/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proxy: one thread that serves the rings of a device in turn.
 *
 * Calls go down only:
 *
 *	gpu_ring_proxy.c      opens, connects and closes rings; poller.c has the thread
 *	   |
 *	gpu_ring_pass.c       one pass over a ring: take records, decode, start, hand out completions
 *	   |
 *	gpu_ring_small.c      small copies, of which a pass takes many at once
 *	gpu_ring_message.c    messages between two connected rings
 *	   |
 *	gpu_ring_place.c      the completion writer
 *	executor.h            regions, copies, requests for the provider, signals
 *	gpu_ring_words.h      the words that are shared with a kernel
 *
 * States of a place:
 *
 *	        take the record                          provider completes
 *	FREE ----------------> POSTED (put, get) --------------------------> COMPLETE
 *	  |                      |                                              ^
 *	  |                      | its signal or its peer's receive follows     |
 *	  |                      +--------------> SIGNALLING -------------------+
 *	  |                                                                     |
 *	  +-------------------> RECEIVING (until a message comes) --------------+
 *
 *	COMPLETE becomes FREE when all before it are complete: dg_gpu_ring.done then passes it.
 *
 * A record that must wait (for a counter, a fence, the peer's receive) stays in the ring and is
 * checked again in the next pass. No other ring waits for it.
 *
 * Threads: the proxy's thread (poller.h) does not access a ring once it is closed. Threads that
 * open, connect or close a ring hold its lock meanwhile.
 */
#ifndef DG_GPU_RING_H
#define DG_GPU_RING_H

#include "executor.h"
#include "gpu_ring_words.h"
#include "poller.h"

enum place_state { PLACE_FREE, PLACE_POSTED, PLACE_SIGNALLING, PLACE_RECEIVING, PLACE_COMPLETE };

struct place {
	uint64_t seen_ns, posted_ns, completed_ns;
	union {
		uint64_t receive; /* of a put with an immediate value: count of the peer's receive */
		uint64_t region; /* of a send or receive: id of its region; 0 before the first use */
	};
	uint8_t state, status, op;
};

/* A message that is being copied, in chunks, into a receive of the peer. */
struct message {
	bool active;
	uint64_t from, to; /* counts of the send and of the receive */
	uint64_t copied;
};

/* 64 bytes for each place of a ring, for inline bytes or a signal's value. */
struct staging {
	struct dg_region *region;
	char *bytes;
	uint32_t id, depth;
	struct staging *next;
};

struct dg_ring {
	struct dg_proxy *proxy;
	struct executor x;
	struct staging *staging;
	uint32_t index;
	/* The shared memory. */
	struct dg_gpu_queue *handle;
	struct dg_gpu_ring *out;
	struct dg_gpu_completion *completions;
	struct dg_gpu_record *records;
	uint64_t *gpu_trace;
	dg_u64 *stamps; /* of the proxy, STAMP_WORDS for each place; NULL unless trace is 2 */
	char *base;
	uint64_t size;
	int fd;
	struct dg_gate *gate; /* of the imported memory, if another process allocated it */
	uint64_t own, own_import, peers[DG_RING_PEERS]; /* ids: see dg_ring_config */
	uint32_t n_peers;
	uint32_t fork_generation;
	uint32_t depth, mask, shift, weak;
	uint64_t first;
	/* Counts of operations: those taken; those complete without a gap; and where a sender
	 * starts searching for the next receive. The place of count n is (first + n) & mask. */
	uint64_t head, done, receive;
	uint64_t completed, failed;
	uint64_t now; /* the last time stamp, used for the next completions */
	uint64_t first_error; /* like dg_gpu_ring.first_error */
	bool waiting, changed;
	bool closed; /* guarded by the proxy's lock */
	atomic_uint retired; /* the thread that closes the ring has finished */
	struct place *places;
	struct dg_gpu_request *requests; /* one per place; unused for immediate copies */
	struct dg_ring *peer;
	bool peer_lost;
	struct message message;
	uint32_t since; /* number of records taken in this pass */
	struct dg_ring *next;
};

struct dg_proxy {
	struct exec_engine engine;
	struct dg_poller poller;
	atomic_uint refs; /* held by the handle until closed and by each ring until freed */
	uint32_t fork_generation, n_indices;
	struct dg_ring *rings;
	/* Memory of closed rings, for reuse: a provider may have pinned it, and unpinning could
	 * wait for a kernel that waits for another ring. */
	struct staging *stagings;
	uint64_t records; /* of dg_proxy_stats */
};

/* Maximum number of records of a ring in one pass. */
enum { PASS_RECORDS = 64, PLACE_STAGING = 64 };
enum { AHEAD = 16 }; /* records that are prefetched before they are taken */

static inline struct place *place_of(struct dg_ring *r, uint64_t count)
{
	return &r->places[(r->first + count) & r->mask];
}

static inline struct dg_gpu_request *request_of(struct dg_ring *r, uint64_t count)
{
	return &r->requests[(r->first + count) & r->mask];
}

static inline uint64_t sequence_of(const struct dg_ring *r, uint64_t count)
{
	return (r->first + count) & DG_SEQUENCE_MASK;
}

/* gpu_ring_pass.c: one pass over a ring. Returns whether anything was done. */
bool dg_ring_serve(struct dg_ring *r);
/* Ends everything in progress, after the provider has quiesced. */
void dg_ring_flush(struct dg_ring *r);

/* Prefetches a place: the places, records and completions of a ring exceed a core's own caches. */
static inline void ring_prefetch(struct dg_ring *r, uint64_t count)
{
	const uint64_t slot = (r->first + count) & r->mask;
	__builtin_prefetch(&r->records[slot]);
	__builtin_prefetch(&r->completions[slot], 1);
	__builtin_prefetch(&r->places[slot], 1);
}

/* gpu_ring_small.c: takes and completes those puts and gets at the head of the ring that need only a
 * small copy by this thread. Returns their number; 0: dg_ring_serve() has to handle the record. */
uint32_t dg_ring_copy_small(struct dg_ring *r);

/* gpu_ring_message.c */
/* Starts delivering the send at r->head. Returns DG_OK, WAIT or a dg_status. */
int dg_message_start(struct dg_ring *r, const struct dg_gpu_request *request);
/* Checks whether the memory of a receive may be written. Returns a dg_status. */
uint32_t dg_message_receivable(struct dg_ring *r, uint64_t count);
/* Copies one chunk of the message in progress. Returns whether there is one. */
bool dg_message_step(struct dg_ring *r);
/* Finds the peer's next receive. Returns 0 and stores its count, or returns WAIT or a dg_status. */
int dg_message_receiver(struct dg_ring *r, uint64_t *count);

/* gpu_ring_place.c */
/* Completes a place: hands its status and, for a receive, its value to the kernel. */
void dg_ring_finish(struct dg_ring *r, uint64_t count, uint32_t status, uint64_t value);
/* Does the same for a receive of the peer. */
void dg_ring_finish_peer(struct dg_ring *r, uint64_t count, uint32_t status, uint64_t value);
/* Not a dg_status: the record has to be checked again in the next pass. */
enum { WAIT = EXEC_WAITS };

#endif
