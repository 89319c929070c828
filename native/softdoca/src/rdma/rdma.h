/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDMA contexts, over the software NIC or over an RDMA adapter.
 *
 *   rdma.c             contexts: capabilities, settings
 *   rdma_task.c        tasks: allocation and fields
 *   rdma_context.c     the operations of a context: start, submit, progress, stop
 *   rdma_connection.c  connections, each a queue pair; their blobs
 *   address.c          connection by address
 *   rdma_gpu.c         contexts with their data path on a GPU
 *   entry.c            what tasks read and write: checks, and the parts of an entry
 *   rdma_nic.c         queue pairs of the software NIC: the entries of their rings, and its completions
 *   rdma_verbs.c       queue pairs of an adapter, by libibverbs
 *
 *      submit: an entry in the ring of the task's connection ---> the NIC executes it
 *      receives: in `receives`, then in the ring of a connection
 *      progress: takes a completion from the context's only CQ <--- in the order of the entries
 *
 * A connection has the tasks in its rings in two FIFOs, so a completion is that of the oldest task.
 * Each task in a ring has one completion, as each entry asks for one and an error flushes the rest, so
 * the CQ has a place for every task.
 *
 * A connection breaks when its queue pair fails or is told to: the NIC flushes its tasks, and once they
 * are delivered, the program's callback for disconnections is called.
 */
#ifndef SOFTDOCA_RDMA_H
#define SOFTDOCA_RDMA_H

#include "doca_rdma.h"
#include "doca_sync_event.h"
#include "memory/memory.h"
#include "progress/progress.h"

/* Guesses: no public figures are known. */
#define RDMA_TASKS_MAX       65536u /* of one type */
#define RDMA_CONNECTIONS_MAX 256u
#define RDMA_QUEUE_DEFAULT   512u
#define RDMA_BYTES_MAX       ((uint32_t)1 << 30)
#define RDMA_LIST_MAX        4u /* buffers: each is a segment of a receive, of which the NIC has more */

enum rdma_type {
	RDMA_RECEIVE,
	RDMA_SEND,
	RDMA_SEND_IMM,
	RDMA_READ,
	RDMA_WRITE,
	RDMA_WRITE_IMM,
	RDMA_CMP_SWP,
	RDMA_FETCH_ADD,
	RDMA_EVENT_GET, /* on the peer's sync event */
	RDMA_EVENT_SET,
	RDMA_EVENT_ADD,
	RDMA_TYPES
};
/* Each type, and its name in the functions. */
#define RDMA_EACH(X)                   \
	X(RDMA_RECEIVE, receive)       \
	X(RDMA_SEND, send)             \
	X(RDMA_SEND_IMM, send_imm)     \
	X(RDMA_READ, read)             \
	X(RDMA_WRITE, write)           \
	X(RDMA_WRITE_IMM, write_imm)   \
	X(RDMA_CMP_SWP, atomic_cmp_swp) \
	X(RDMA_FETCH_ADD, atomic_fetch_add) \
	X(RDMA_EVENT_GET, remote_net_sync_event_get) \
	X(RDMA_EVENT_SET, remote_net_sync_event_notify_set) \
	X(RDMA_EVENT_ADD, remote_net_sync_event_notify_add)

struct rdma_task {
	struct object o;
	enum rdma_type type;
	doca_be32_t immediate; /* to send, or received */
	struct doca_rdma_connection *connection; /* of a receive: the one it came over */
	const struct doca_buf *src;
	struct doca_buf *dst, *result; /* result: for the old value of a word */
	struct doca_sync_event_remote_net *event;
	uint64_t operand, compare;
	uint64_t bytes; /* of the entry, or received */
	uint32_t blocks; /* of the entry of a send */
	enum doca_rdma_opcode opcode; /* of a receive */
	_Alignas(64) struct doca_task task;
	struct rdma_task *next; /* waiting */
};

struct rdma_list {
	struct rdma_task *first, *last;
};

/* Of the type doca_rdma_task_X_completion_cb_t of its tasks. */
typedef void rdma_callback(void);

struct rdma_conf {
	rdma_callback *done, *failed;
	uint32_t n; /* 0: not configured */
	struct task_pool pool;
};

enum connection_state {
	CONNECTION_NEW, /* of doca_rdma_export() */
	CONNECTION_CALLING, /* by address: a client that waits for the server's answer */
	CONNECTION_CALLED, /* a server that waits for the client's request */
	CONNECTION_REQUESTED,
	CONNECTION_ACCEPTED,
	CONNECTION_CONNECTED,
	CONNECTION_FAILED, /* could not be connected; the program was notified */
	CONNECTION_BROKEN, /* its tasks are being flushed */
	CONNECTION_OVER, /* flushed; the program was notified, unless it ended the connection itself */
};

/* A ring, and its tasks in the order of their entries. */
struct rdma_ring {
	char *entries;
	struct rdma_task **tasks;
	uint32_t n, begin, end;
	uint32_t n_blocks, first_block, end_block; /* of the send ring, whose entries differ in size */
};

struct rdma_blob {
	uint64_t magic;
	uint32_t version, checksum; /* FNV-1a, with this field 0 */
	uint32_t adapter; /* 1: of an RDMA adapter; 0: of the software NIC, which has a GID and a number only */
	dg_qp_address address;
	uint32_t link_qpn, link_psn; /* of the adapter's second queue pair: see rdma_verbs.c */
};

/* Between the two ends of a connection by address. */
struct rdma_packet {
	struct rdma_blob blob;
	uint32_t kind, reserved; /* enum packet_kind of address.c */
};

struct doca_rdma_connection {
	struct object o;
	uint32_t id;
	enum connection_state state;
	bool ended; /* by the program: freed when its tasks are flushed */
	struct doca_rdma *rdma;
	struct doca_rdma_connection *next;
	union doca_data user_data;
	uint32_t qpn;
	struct rdma_blob blob; /* for the peer */
	uint8_t peer_gid[16];
	int fd; /* of a connection by address; -1: none */
	struct doca_rdma_addr *addr; /* likewise; NULL: none */
	uint64_t until_ns, again_ns; /* when it fails if the peer says nothing; the next call */
	bool asked; /* the request was sent */
	struct rdma_packet heard; /* of the peer; it may arrive in parts */
	size_t n_heard;
	struct rdma_blob peer; /* of one that is requested */
	struct rdma_ring send, receive;
	/* Over the software NIC. */
	dg_nic_qp *qp;
	char *memory; /* of both rings */
	_Alignas(8) uint64_t doorbell;
	uint32_t record[2];
	/* Over an adapter. */
	struct ibv_qp *pair, *link;
	uint64_t probe, probed_ns; /* probe: the number of the one in flight, or 0 */
};

/* Of a context with its data path on a GPU. */
struct rdma_gpu {
	struct gpu_queue *queues; /* of each connection that there can be */
	uint32_t used; /* of these */
	struct gpu_memory *structure; /* for device code; NULL: the context is not started */
};

/* A completion, in host byte order. */
struct rdma_cqe {
	uint32_t qpn, bytes;
	doca_be32_t immediate;
	uint8_t opcode; /* CQE_... of nic_wqe.h */
};

/* Of a context over an adapter. */
struct rdma_adapter {
	struct adapter *adapter;
	struct ibv_cq *cq;
	struct rdma_cqe taken[16]; /* from the CQ, and not delivered yet */
	uint32_t n_taken, next;
	uint64_t probes; /* sent so far */
};

struct doca_rdma {
	struct object o;
	_Alignas(64) struct doca_ctx ctx;
	struct rdma_conf conf[RDMA_TYPES];
	uint32_t permissions, send_size, receive_size;
	uint16_t max_connections;
	doca_rdma_connection_request_cb_t request_cb;
	doca_rdma_connection_established_cb_t established_cb;
	doca_rdma_connection_failure_cb_t failure_cb;
	doca_rdma_connection_disconnection_cb_t disconnect_cb;

	/* Valid while the context is started. */
	const struct rdma_net *net;
	uint8_t gid[16];
	uint64_t max_bytes; /* of a task */
	struct nic_pd *pd;
	dg_nic *nic;
	dg_nic_cq *cq;
	uint8_t *cqes;
	uint32_t n_cqes, cq_head;
	struct rdma_adapter over;
	bool calling; /* progress is running, perhaps a callback */
	uint32_t idle; /* polls without a completion */
	struct doca_rdma_connection *connections;
	uint32_t n_connections;
	struct rdma_gpu gpu;
	struct rdma_list receives; /* in no ring yet */
	struct rdma_list flushed; /* that never were in a ring */
	uint32_t n_receives; /* submitted */
	int pid; /* that started it: a forked child leaves the sockets alone */
	int sockets; /* epoll: listeners, and connections by address; -1: there were none */
	uint64_t looked_ns; /* when the sockets were looked at */
	struct rdma_listener *listeners;
};

/* The local buffers of an entry. */
struct rdma_segments {
	struct {
		uint64_t at, n;
		uint32_t key;
	} part[RDMA_LIST_MAX];
	uint32_t n;
};

/* What executes the entries. An int is 0 or a negative errno, with dgkit's text. */
struct rdma_net {
	/* Takes the NIC, and sets the context's gid and max_bytes. */
	doca_error_t (*open)(struct doca_rdma *r);
	/* Opens its CQ, for n completions. */
	doca_error_t (*open_cq)(struct doca_rdma *r, uint32_t n);
	/* Frees what both have taken; idempotent. */
	void (*close)(struct doca_rdma *r);
	/* Gives the connection a queue pair, and sets its qpn and the addresses in its blob. */
	int (*pair_open)(struct doca_rdma_connection *c);
	int (*pair_join)(struct doca_rdma_connection *c, const struct rdma_blob *peer);
	/* Makes the NIC flush the tasks in the rings, and logs its reason, if it has one. */
	int (*pair_break)(struct doca_rdma_connection *c);
	/* Whether the queue pair has failed without a completion. */
	bool (*pair_failed)(struct doca_rdma_connection *c);
	/* Idempotent. */
	void (*pair_close)(struct doca_rdma_connection *c);
	/* Whether the send ring has room for the task's entry. */
	bool (*has_room)(const struct doca_rdma_connection *c, const struct rdma_task *t);
	doca_error_t (*post)(struct doca_rdma_connection *c, struct rdma_task *t, const struct rdma_segments *s);
	/* Takes a completion. Returns false if there is none. */
	bool (*poll)(struct doca_rdma *r, struct rdma_cqe *out);
	/* Returns whether there is one. */
	bool (*ready)(struct doca_rdma *r);
};
extern const struct rdma_net rdma_nic, rdma_verbs; /* rdma_nic.c, rdma_verbs.c */
/* rdma_verbs.c: stores the most bytes of a task over this adapter. */
doca_error_t rdma_verbs_max_message(struct doca_dev *dev, uint32_t *out);

OWNER(rdma_of, struct doca_rdma, struct doca_ctx, ctx)
OWNER(rdma_task_of, struct rdma_task, struct doca_task, task)

static inline bool is_receive(const struct rdma_task *t)
{
	return t->type == RDMA_RECEIVE;
}

static inline bool is_event(const struct rdma_task *t)
{
	return t->type >= RDMA_EVENT_GET;
}

static inline bool is_atomic(const struct rdma_task *t)
{
	return t->type == RDMA_CMP_SWP || t->type == RDMA_FETCH_ADD;
}

static inline bool has_remote(const struct rdma_task *t)
{
	return t->type >= RDMA_READ && !is_event(t);
}

static inline uint32_t ring_used(const struct rdma_ring *r)
{
	return r->end - r->begin;
}

static inline void rdma_append(struct rdma_list *l, struct rdma_task *t)
{
	t->next = NULL;
	*(l->first ? &l->last->next : &l->first) = t;
	l->last = t;
}

static inline struct rdma_task *rdma_take(struct rdma_list *l)
{
	struct rdma_task *t = l->first;
	if (t)
		l->first = t->next;
	return t;
}

/* rdma_gpu.c */
extern const struct ctx_ops rdma_gpu_ops;

/* rdma_context.c */
extern const struct ctx_ops rdma_ops, rdma_adapter_ops;
/* What both kinds of contexts do. open(): takes the NIC. end_connections(): frees all connections and
 * what open() has taken. serve_connections(): handles one event of a connection, and returns whether a
 * callback was called. */
doca_error_t rdma_open(struct doca_rdma *r, const struct rdma_net *net);
void rdma_end_connections(struct doca_rdma *r);
bool rdma_serve_connections(struct doca_rdma *r);
void rdma_stop(struct doca_ctx *ctx);
bool rdma_quiet(struct doca_ctx *ctx);
bool rdma_arm(struct doca_ctx *ctx);
/* Puts waiting receives into the rings of connections. */
void rdma_spread_receives(struct doca_rdma *r);

/* rdma_nic.c: what peers may do, as enum dg_nic_access. */
uint32_t rdma_nic_rights(const struct doca_rdma *r);

/* rdma_connection.c */
/* Makes a connection that is not connected. `func` is named in the log. */
doca_error_t rdma_connection_new(struct doca_rdma *r, const char *func, struct doca_rdma_connection **out);
/* Connects its queue pair to that of the peer's blob. */
doca_error_t rdma_connection_join(struct doca_rdma_connection *c, const struct rdma_blob *peer);
/* Checks the bytes of a blob. */
doca_error_t rdma_blob_parse(const void *bytes, size_t size, struct rdma_blob *out);
/* Breaks a connection: its tasks are flushed. */
void rdma_connection_break(struct doca_rdma_connection *c);
/* Breaks a connection whose queue pair has failed. */
void rdma_connection_look(struct doca_rdma_connection *c);
/* Closes the queue pairs and frees the connection. */
void rdma_connection_free(struct doca_rdma_connection *c);

/* address.c */
/* Handles one event of the context's sockets. Returns whether a callback was called. */
bool rdma_handle_event(struct doca_rdma *r);
/* Closes the socket of a connection. */
void rdma_hang_up(struct doca_rdma_connection *c);
void rdma_stop_listening(struct doca_rdma *r);

/* entry.c */
/* Checks a task, and sets its bytes. `func` is named in the log. */
doca_error_t rdma_check(struct rdma_task *t, const struct doca_rdma *r, const char *func);
/* Appends the task's entry to a ring of the connection that has room, and tells the NIC. Errors:
 * those of softdoca_mmap_key() and of the NIC. */
doca_error_t rdma_post(struct doca_rdma_connection *c, struct rdma_task *t);
/* The local buffer, or the first of a list; and where the task reads or writes at the peer: 0 for nothing. */
const struct doca_buf *rdma_local_buf(const struct rdma_task *t);
uint64_t rdma_remote(const struct rdma_task *t, uint32_t *key);
/* Counts the bytes that arrived to the task's local buffers. */
void rdma_arrived(struct rdma_task *t);
/* Executes a task on a sync event, whose entry, a NOP, has completed. */
doca_error_t rdma_execute_event(struct rdma_task *t);

#endif
