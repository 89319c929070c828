/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A communicator of the RMA plugin: one rank's connections, memory and requests.
 *
 * The ranks are connected by Unix sockets, each with each. A socket carries the messages of
 * collective calls and ends with its rank, so that the others notice. Bytes are moved by queues of
 * the core: by the provider soft between host memory, by the provider cuda where either side is on
 * a GPU. With DGKIT_NCCL_DPU, a DPU agent moves them instead: see agent.h. Signals are added by the rank that owns the word: see signal.c.
 *
 * States of a request:
 *
 *          post       it and all before moved       in the owner's ring        added
 *   FREE ------> MOVING ----------------> READY ---------------------> SENT ------> FINISHED
 *                   \_________________ without a signal, or failed ________________/
 *
 * A signal becomes READY when each earlier request to its peer has left MOVING, too, whether NCCL
 * calls it strong or weak: see signal.c. A finished request is FREE again when it was tested and all
 * earlier requests to its peer have left MOVING.
 *
 * Calls go down only:
 *
 *	plugin.c                     what NCCL calls
 *	comm.c                       opening, progress, ranks that end, closing
 *	request.c                    transfers: posted, submitted, moved
 *	memory.c                     memory that all ranks register
 *	signal.c                     signals
 *	request_list.c, ranks.c      requests and lists; connections and collective messages
 *	agent.c, statistics.c
 *
 * Threads: `lock` protects all of a communicator except for collective calls, which are serialized
 * by `collective` and hold `lock` only briefly: NCCL registers memory in one thread while its proxy
 * makes progress in another.
 *
 * Cost. NCCL's proxy tests every request in flight in each of its passes, before it takes one new
 * request of each context and peer, and then calls for progress. So a test takes no lock and makes
 * no progress of its own (request_waits()), and requests are submitted by progress, together: while
 * an engine works on some, those that come meanwhile wait, unless they are many.
 */
#ifndef DG_NCCL_COMM_H
#define DG_NCCL_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "agent.h"
#include "dgkit.h"
#include "rma_abi.h"
#include "statistics.h"

enum {
	RANKS_MAX = 128,
	RING_SLOTS = 256,
	BATCH_WORDS = 64,
	QUEUE_DEPTH = 1024,
	REQUESTS_MAX = 1 << 20,
};

/* The plugin's state for one of NCCL's communicators. */
struct plugin {
	nccl_log log;
	uint64_t comm_id;
};

struct listener {
	struct plugin *plugin;
	int fd;
	char path[108];
};

/* A signal on its way to the owner of the word. status: of the owner, 0 or a negative errno. */
struct signal_slot {
	uint64_t offset, value;
	uint32_t memory;
	int32_t status;
	uint64_t reserved;
};

/* Written by one sender (head, slots) and one owner (done, status). */
struct signal_ring {
	_Alignas(64) _Atomic uint64_t head;
	_Alignas(64) _Atomic uint64_t done;
	_Alignas(64) struct signal_slot slots[RING_SLOTS];
};

/* One rank's memfd, mapped by all ranks. closed: the rank has closed its communicator. */
struct mailbox {
	_Alignas(64) _Atomic uint32_t closed;
	struct signal_ring rings[]; /* by sender */
};


/* AGENT: an agent, which moves the bytes; its device only exports this rank's memory, to an agent that
 * uses DOCA. */
enum engine_kind { SOFT, CUDA, AGENT, ENGINES };

/* A peer's part of a collective registration. engine: which one imported it. region: NULL for GPU
 * memory that CUDA does not share, such as NCCL's own signals: it can only be signalled. */
struct remote_memory {
	dg_region *region;
	uint64_t size;
	uint32_t id, engine, agent_id;
};

/* remote: by rank. shadow: the values of signal words in GPU memory that nobody else changes;
 * known: which of them have been read. */
struct memory {
	dg_memory at;
	uint32_t engine;
	dg_region *local[ENGINES];
	uint32_t local_id[ENGINES];
	struct remote_memory *remote;
	uint64_t *shadow;
	bool *known;
};

enum request_state { FREE, MOVING, READY, SENT, FINISHED };
struct request {
	struct request *next_in_order, *next;
	struct peer *peer;
	uint32_t index;
	uint8_t state, engine;
	bool signals, flushes, submitted, moved, in_order, tested;
	bool gpu; /* memory of it is a GPU's */
	bool joined; /* the signal is written directly behind the bytes: see signal.c */
	nccl_result result;
	_Atomic bool finished; /* state is FINISHED, and result is valid */
	uint32_t seen; /* the pass of progress before the last test */
	dg_wr wr;
	struct signal_slot signal;
	uint64_t posted_ns; /* with statistics */
};

/* A list of requests, linked by next or by next_in_order. */
struct request_list {
	struct request *first, *last;
};

/* waiting: requests that were not submitted yet; moving: number of those in the queue. */
struct engine {
	dg_device *dev;
	dg_queue *queue;
	struct agent *agent;
	struct request_list waiting;
	uint32_t n_waiting, moving;
	uint32_t seen, batch; /* n_waiting in the last pass; size of the last batch */
	bool is_cheap; /* the last submission was the copy service's, by the time that it took */
	uint64_t busy_since_ns; /* with statistics */
};

/* in_order: requests that have not been moved, and those behind them; broken: one that has left it had
 * failed, so signals and flushes behind it fail. ready: signals that wait for a place in the ring `out`;
 * sent: those in it. */
struct peer {
	int fd;
	uint32_t rank;
	bool ended, failed, broken;
	struct dg_mapping *mapping;
	struct mailbox *mailbox;
	struct signal_ring *out;
	uint64_t collected;
	struct request_list in_order, ready, sent;
};

/* Additions to words of GPU memory that are done together. */
struct signal_batch {
	dg_queue *queue;
	uint32_t region_id, n, pending;
	enum { BATCH_IDLE, BATCH_READS, BATCH_WRITES } phase;
	int status;
	uint64_t since_ns, call_ns; /* with statistics */
	struct {
		struct memory *memory;
		uint64_t offset, sum;
	} words[BATCH_WORDS];
	uint64_t *values; /* BATCH_WORDS of the batch, then as many of signals that were joined */
	uint32_t joined, next_joined; /* signals in progress; the next one's number */
};

struct comm {
	struct plugin *plugin;
	pthread_mutex_t lock, collective;
	uint32_t rank, ranks, sequence;
	bool failed;
	bool serves; /* DGKIT_NCCL_COPY_SERVICE: a kernel of this process makes small copies */
	struct peer *peers;
	struct mailbox *mailbox;
	size_t mailbox_size;
	struct engine engines[ENGINES];
	struct memory **memories; /* index + 1 is NCCL's handle */
	uint32_t n_memories;
	struct request **requests; /* index + 1 is NCCL's request; REQUESTS_MAX entries */
	uint32_t n_requests;
	struct request *free;
	_Atomic uint32_t passes; /* of progress */
	uint64_t checked_ns, *taken;
	struct signal_batch batch;
	struct statistics *statistics; /* or NULL */
};

struct rma_context {
	struct comm *comm;
	int contexts;
};

/* What ranks tell each other in a collective call. status: 0 or a negative errno. */
struct message {
	uint32_t sequence, kind, length;
	int32_t status;
	uint64_t size;
	uint32_t on_gpu, agent_length;
	uint8_t descriptor[DG_DESCRIPTOR_MAX], agent_descriptor[DG_DESCRIPTOR_MAX];
};
enum message_kind { MESSAGE_MEMORY = 1, MESSAGE_IMPORTED = 2 };

/* All return 0 or a negative errno, with a message in dg_last_error(). */

/* ranks.c */
int listener_open(struct plugin *p, void *handle, struct listener **out);
void listener_close(struct listener *l);
/* Connects this rank with all others, and maps their mailboxes and its own. */
int ranks_connect(struct comm *c, void *const *handles, const struct listener *l);
void ranks_disconnect(struct peer *p);
/* Gives `own` to each rank and stores each rank's message in all[rank]. */
int comm_exchange(struct comm *c, struct message *own, struct message *all);

/* request_list.c */
void list_add(struct request_list *l, struct request *r);
/* Returns the first one, or NULL. */
struct request *list_take(struct request_list *l);
int request_new(struct comm *c, struct request **out);
void request_free(struct comm *c, struct request *r);
void request_finish(struct comm *c, struct request *r, nccl_result result);

/* memory.c */
int memory_open(struct comm *c, void *addr, uint64_t size, int type, uint64_t flags, void **out);
int memory_close(struct comm *c, struct memory *m);
/* Returns the memory with this handle, or NULL. */
struct memory *memory_find(const struct comm *c, const void *handle);
/* Registers the memory with the engine unless it is, and stores the id. */
int memory_local_id(struct comm *c, struct memory *m, uint32_t engine, uint32_t *id);

/* request.c */
struct transfer {
	struct memory *local, *remote;
	uint64_t local_offset, remote_offset, size;
	uint8_t op;
};
/* Starts a transfer, a signal or a flush (neither) and stores the request's number. */
int request_post(struct comm *c, const struct transfer *t, const struct signal_slot *signal,
		 uint32_t rank, void **out);
/* Ends the requests in flight at the agent, which has ended. */
void requests_lose_agent(struct comm *c);
/* Takes completions, and submits what waits. */
void requests_progress(struct comm *c);

/* signal.c */
int signal_check(const struct memory *m, uint32_t rank, const struct signal_slot *s);
/* Sender: stores signals in the peer's ring, and finishes those that the peer has added. */
void signals_send(struct comm *c, struct peer *p);
/* Owner: adds the signals that other ranks have sent to its words. */
void signals_serve(struct comm *c);
/* Joins r's signal to its put where signal.c allows it, and fills `write` with the signal's work
 * request. */
bool signal_join(struct comm *c, struct request *r, dg_wr *write);
/* Undoes the last signal_join(): nothing was submitted. */
void signal_part(struct comm *c, struct request *r);
int batch_open(struct comm *c);
void batch_close(struct comm *c);
/* Waits until no addition is in progress. */
int batch_wait(struct comm *c);

/* comm.c */
int comm_open(struct plugin *p, void *const *handles, uint32_t ranks, uint32_t rank,
	      struct listener *l, struct comm **out);
int comm_close(struct comm *c);
/* Notices ranks that have ended. */
void comm_check_peers(struct comm *c);
void comm_progress(struct comm *c);
int request_test(struct comm *c, const void *handle, int *done, nccl_result *result);
/* Whether the request is in flight and there was progress since its last test. Needs no lock. */
bool request_waits(const struct comm *c, const void *handle);

#endif
