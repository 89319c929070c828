/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal interface of the provider verbs.
 *
 *   importer                                             exporter
 *   link: one connection for each import      <------>   a guest of the region, without rights:
 *                                                        probes, and the notices of a revocation
 *   endpoint: one connection for each queue   <------>   a guest of the region, with a
 *         and import, made at its first                  separate memory window and rkey
 *         operation
 *
 *   queue pair that is connected by hand     <------>    any program that uses libibverbs
 *
 * One control thread for each device makes and ends all connections, on both sides. Operations are
 * posted and polled in the caller's thread.
 */
#ifndef DG_VERBS_H
#define DG_VERBS_H

#include <arpa/inet.h>
#include <netinet/in.h>

#include "ended.h"
#include "provider.h"
#include "queue_list.h"
#include "region.h"
#include "verbs_api.h"

enum {
	VERBS_MAX_QUEUES = 1024, /* per device */
	VERBS_MAX_GUESTS = 8192, /* connections that a device accepts */
	VERBS_BACKLOG = 64, /* connection requests that wait for the control thread */
	VERBS_ENDPOINTS = 256, /* connections of a queue; must be a power of 2 */
	VERBS_ENDPOINT_WRS = 256, /* in flight on an endpoint; must be a power of 2 */
	VERBS_QUEUE_WRS = 1024, /* in flight on a queue */
	VERBS_BATCH = 64, /* work requests per doorbell */
	VERBS_SGES = 8, /* elements of a work request */
	VERBS_SIGNAL_EVERY = 16, /* and the last one of each doorbell */
	/* Soft-RoCE treats 7, the highest number, as infinite
	 * (drivers/infiniband/sw/rxe/rxe_comp.c), and would never give up on a peer whose link is
	 * down. */
	VERBS_RETRIES = 6,
	VERBS_PROBES = 256, /* in flight at a time */
	VERBS_ASKED = 256, /* importers asked to stop at a time */
	VERBS_NOTICES = 4096, /* room for notices that the control thread has not taken yet */
};
#define VERBS_CONNECT_NS 5000000000ull /* how long a connection may take */
#define VERBS_PROBE_NS 500000000ull /* between two probes of the other side */

/* ENDPOINT: operations will be posted; without it the connection is a link. SHARED_GATE: the
 * exporter can access the import's gate, as on one machine, so it need not ask the importer to
 * stop. */
enum { REQUEST_ENDPOINT = 1, REQUEST_SHARED_GATE = 2 };

/* Private data of an importer's connection request. The key crosses the network unencrypted. */
struct verbs_request {
	uint64_t magic;
	uint32_t version;
	uint32_t flags;
	uint8_t key[16];
	uint64_t importer; /* number of the importer's device */
};

/* Private data of the exporter's answer, an acceptance or a refusal. */
struct verbs_reply {
	uint64_t magic;
	uint32_t error; /* positive errno of a refusal */
	uint32_t access;
	uint64_t address, size;
	uint32_t rkey;
	uint32_t atomics; /* enum ibv_atomic_cap of the exporter's adapter */
	uint32_t registration; /* enum dg_registration */
};
#define VERBS_MAGIC   0x5342524556474bdeull
#define VERBS_VERSION 2u

/* Address at which an exporter listens: the blob of a descriptor. In network byte order. */
struct verbs_blob {
	uint16_t family; /* 4 or 6 */
	uint16_t port;
	uint8_t address[16];
};

/* What a connection that is CONNECTING waits for. */
enum conn_step { STEP_ADDRESS, STEP_ROUTE, STEP_ANSWER };
enum conn_state { CONN_CONNECTING, CONN_READY, CONN_FAILED, CONN_ENDED };

/* A device at the other end of connections: an exporter's, identified by the address at which it
 * listens, or an importer's, identified by its number. Guarded by the device's lock. */
struct verbs_peer {
	struct sockaddr_storage address;
	uint64_t importer; /* 0: an exporter */
	struct verbs_peer *next;
	uint32_t conns;
	uint64_t probe; /* number of the probe in flight, or 0 */
	uint64_t probe_ns; /* when the next one is due */
	struct verbs_link *via; /* the link that carries it */
};

/* One end of a link. Guarded by the device's lock. */
struct verbs_link {
	struct verbs_link *next; /* in the device's list */
	struct ibv_qp *qp; /* NULL: the link is not open */
	struct verbs_peer *peer;
	uint64_t number; /* wr_id of its receive request */
	uint64_t remote_address;
	struct verbs_conn *conn; /* the importer's connection, or NULL */
	struct verbs_guest *guest; /* the exporter's guest, or NULL */
};

/* An importer's connection: the link of an import, or the connection of an endpoint. `id`, `why`,
 * `next`, `peer` and the times and steps of the state are guarded by the device's lock. */
struct verbs_conn {
	struct verbs *d;
	struct rdma_cm_id *id;
	struct verbs_conn *next; /* in the device's list */
	uint64_t deadline_ns;
	uint64_t again_ns; /* when to repeat the request, or 0 */
	uint32_t step, refusals; /* refusals: number of refusals for lack of room */
	struct sockaddr_storage to;
	struct verbs_request request;
	struct verbs_reply reply; /* valid once READY */
	struct ibv_cq *cq;
	struct dg_pipe *pipe; /* of the endpoint's queue, to wake its caller; NULL: a link */
	uint32_t max_inline;
	int error; /* FAILED: a positive errno */
	char why[400];
	struct verbs_peer *peer;
	struct verbs_link link;
	struct dg_gate *gate; /* of the import; NULL for an endpoint */
	bool draining; /* the exporter revokes the region and waits until the gate is quiet */
	/* Stored with release by the control thread and loaded with acquire by others, so that the
	 * members above are valid for them. */
	atomic_uint state;
};

/* A connection that the exporter has accepted. An endpoint's guest has a memory window over the
 * region's registration, or a registration in a separate protection domain. Guarded by the device's
 * lock. */
struct verbs_guest {
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	struct ibv_mw *mw; /* NULL: no window, or its rights were revoked */
	struct ibv_pd *pd;
	struct ibv_mr *mr; /* NULL: no registration, or its rights were revoked */
	struct dg_region *region; /* NULL once the region was closed */
	struct verbs_guest *next;
	struct verbs_peer *peer;
	struct verbs_link link;
	bool asked, stopped; /* the importer was asked to stop; has stopped or is not waited for */
};

/* How the adapter accesses the memory of a region of this process. Determined by the first
 * registration; those for importers are made in the same way. */
struct verbs_source {
	enum dg_registration way;
	int fd; /* dma-buf of DMABUF, otherwise -1 */
	uint64_t offset; /* in the dma-buf */
};

/* A region's provider_state. */
struct verbs_region {
	struct ibv_mr *mr; /* registration of a region of this process */
	struct verbs_source source; /* how that was registered */
	bool by_cpu; /* the CPU can read the memory, so a work request can carry it inline */
	struct dg_gate *gate; /* of an import: shared with its exporter, or own_gate */
	struct dg_gate own_gate;
	struct verbs_conn *link; /* of an import */
	struct sockaddr_storage exporter;
	uint8_t key[16];
	uint32_t rkey; /* of an import by a queue pair */
};

/* Whether a work request can carry a write of `bytes` bytes inline: the CPU copies them into it
 * when it is posted, and cannot access GPU memory. */
static inline bool dg_verbs_fits_inline(uint32_t max_inline, const struct dg_op *op, uint64_t bytes)
{
	const struct verbs_region *local = region_entry_at(op->local)->region->provider_state;
	return bytes <= max_inline && local->by_cpu;
}

/* An open device: a port of an RDMA adapter. */
struct verbs {
	struct dg_device *dev;
	struct ibv_context *context;
	struct ibv_pd *pd; /* of local regions: remote access is granted by windows only */
	struct ibv_pd *link_pd; /* of links: no memory is registered in it */
	struct ibv_cq *idle_cq; /* of endpoints: receives, and the bind of an exporter's window */
	struct ibv_cq *probe_cq; /* of links: sends */
	struct ibv_cq *notice_cq; /* of links: receives */
	struct ibv_comp_channel *notice_channel;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct sockaddr_storage address; /* of the port, including the listener's port number */
	char name[64];
	bool software, iwarp;
	atomic_bool windows; /* the adapter has memory windows of type 2B, and none has failed */
	uint8_t port;
	uint64_t number; /* identifies this device to exporters: random, never 0 */
	atomic_bool removed; /* the device was removed, by its driver or its user */
	struct rdma_cm_id **waiting; /* ids that are destroyed when the port is active again */
	uint32_t n_waiting;
	uint32_t max_message, max_piece, max_sge, max_wr;
	uint32_t max_reads; /* reads and atomic operations in flight on a connection */
	uint32_t atomics; /* enum ibv_atomic_cap */
	uint8_t ack_timeout; /* time until a packet is sent again: 4.096 us << this */
	pthread_t thread;
	int wake_fd;
	atomic_bool stop;
	pthread_mutex_t lock; /* guards the event channel, all ids and their lists */
	pthread_cond_t changed; /* the state of a connection has changed */
	struct verbs_conn *conns;
	struct verbs_guest *guests;
	uint32_t n_guests;
	struct verbs_peer *peers;
	struct verbs_link *links;
	uint64_t last_link;
	uint32_t n_probes; /* probes in flight */
	uint64_t last_probe;
	uint32_t n_draining; /* importer's links that are draining */
	struct queue_list queues;
	atomic_uint n_qps; /* queue pairs that are connected by hand */
};

/* Work that is complete when `left` is 0: a single operation, or a chain. */
struct verbs_work {
	uint32_t left; /* work requests in flight, plus 1 while more may be posted */
	uint32_t slot, local, remote; /* local NO_REGION: a chain, whose requests hold the gates */
	int status;
	struct verbs_work *chain;
};

/* An endpoint: a connection for one queue and one import, or a queue pair that was connected by
 * hand, with the work requests in flight on it, in order. */
struct verbs_endpoint {
	struct verbs_conn *conn; /* NULL for a queue pair */
	struct verbs_qp *qp; /* NULL for a connection */
	struct verbs_endpoint *next; /* in its hash bucket */
	uint32_t region; /* of a connection: index in the region table */
	uint32_t number; /* index in verbs_queue.endpoints, with a generation in the higher bits */
	uint32_t head, tail, unsignaled;
	int status; /* of the first error, after which all other operations are flushed */
	bool broken; /* its queue pair is in the error state or gone */
	struct {
		struct verbs_work *work;
		uint64_t bytes;
	} wrs[VERBS_ENDPOINT_WRS];
};

/* Memory that is registered for a queue pair that is connected by hand. */
struct verbs_registration {
	struct verbs_registration *next;
	struct ibv_mr *mr;
	uint32_t region; /* index in the region table */
	bool granted; /* to the peer; otherwise for the local side of operations */
};

/* A queue pair that is connected by hand. Its protection domain contains only its own
 * registrations, so their rkeys are of no use on another connection. Guarded by the queue's
 * guard. */
struct verbs_qp {
	struct verbs_queue *queue;
	struct dg_qp *core;
	struct verbs_qp *next; /* in the queue's list */
	struct ibv_pd *pd;
	struct ibv_qp *qp; /* NULL once the queue pair has ended */
	struct verbs_registration *registrations, *last_used;
	uint32_t max_inline, peer; /* peer: number of the other queue pair */
	bool connected, closing;
	struct verbs_endpoint endpoint;
};

struct verbs_queue {
	struct listed_queue listed;
	struct verbs *d;
	struct dg_pipe *p;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	int epoll_fd;
	struct verbs_endpoint *endpoints[VERBS_ENDPOINTS], *buckets[VERBS_ENDPOINTS];
	struct verbs_qp *qps;
	uint32_t last_generation;
	bool any_broken;
	/* The work requests of the next doorbell, all for one endpoint. */
	struct verbs_endpoint *batch_endpoint;
	uint32_t n_batch;
	struct ibv_send_wr batch[VERBS_BATCH];
	struct ibv_sge sges[VERBS_BATCH][VERBS_SGES];
	/* In flight. */
	uint32_t in_flight; /* work requests, including those of the next doorbell */
	uint64_t bytes;
	struct verbs_work *works, **free_works, *current, *chain;
	uint32_t n_free_works;
	struct ended ended;
	bool closing; /* operations that fail from now on end as FLUSHED */
};

/* Relaxed: while the value changes, either value is correct. */
static inline bool dg_verbs_has_windows(const struct verbs *d)
{
	return atomic_load_explicit(&d->windows, memory_order_relaxed);
}

/* verbs_port.c */
bool dg_verbs_port_active(const struct verbs *d);
static inline bool dg_verbs_removed(const struct verbs *d)
{
	return atomic_load_explicit(&d->removed, memory_order_relaxed);
}
/* Stores the name of a device whose port has no link; only `wanted` is considered unless it is
 * NULL. Returns whether there is one. */
bool dg_verbs_find_down(const char *wanted, char *out, size_t size);
/* Returns the error for a port without a link. */
int dg_verbs_no_link(const char *device);
/* Checks that the port can be used. Errors: ENODEV if the device was removed or has no link. */
int dg_verbs_check_port(const struct verbs *d);
/* Puts the queue pair of the id into the error state and notifies the other side, unless a message
 * must not be sent (see verbs_port.c). */
void dg_verbs_disconnect(const struct verbs *d, struct rdma_cm_id *id);
/* Destroys the id, which has no queue pair any more: immediately, or once the port is active. Call
 * with the device's lock held. */
void dg_verbs_id_free(struct verbs *d, struct rdma_cm_id *id);
/* Whether the destruction of the id was postponed. */
bool dg_verbs_id_waits(const struct rdma_cm_id *id);
/* Destroys the ids whose destruction was postponed. */
void dg_verbs_ids_free(struct verbs *d);
/* Destroys the postponed ids if the port is active. Returns how long to sleep, in ms; -1: until an
 * event. */
int dg_verbs_look_at_port(struct verbs *d);

/* verbs_gid.c */
/* Fills in the port's GID and GID index, lid, number, mtu and max_reads. Errors: ENODEV. */
int dg_verbs_port_address(const struct verbs *d, dg_qp_address *out);
/* Returns 0 if packets from the port can reach this address, as far as this machine knows. Errors:
 * EXDEV, EINVAL. */
int dg_verbs_check_peer(const struct verbs *d, const dg_qp_address *own, const dg_qp_address *to);
struct gid_text {
	char text[INET6_ADDRSTRLEN];
};
struct gid_text dg_verbs_gid_text(const uint8_t *gid);

/* verbs_qp.c: queue pairs that are connected by hand. */
extern const struct dg_qp_ops dg_verbs_qp_ops;
/* The steps of such a queue pair, for other users of a port. init: chooses out->psn, and enters the
 * state INIT. `flags`: what the peer may do. connect: checks the port and the peer, and enters RTS.
 * `own`: of dg_verbs_port_address() and init. */
int dg_verbs_qp_init(const struct verbs *d, struct ibv_qp *qp, unsigned flags, dg_qp_address *out);
int dg_verbs_qp_connect(const struct verbs *d, struct ibv_qp *qp, const dg_qp_address *own,
			const dg_qp_address *to);
/* Returns the key of a local region that dg_qp_check() has registered. */
uint32_t dg_verbs_qp_lkey(struct verbs_qp *qp, uint32_t region);
/* Ends the queue pair: afterwards, no posted work request moves a byte of this process. */
void dg_verbs_qp_abort(struct verbs_qp *qp);
/* Makes each of the queue's queue pairs end its registrations of this region. Call inside the
 * guard. */
void dg_verbs_qps_forget(struct verbs_queue *q, uint32_t region);

/* verbs_listen.c: the exporter's side. Called by the control thread with the device's lock. */
int dg_verbs_listen(struct verbs *d);
/* Accepts or refuses the connection request `asked` of `id`. */
void dg_verbs_serve(struct verbs *d, struct rdma_cm_id *id, const struct rdma_conn_param *asked);
/* Frees the guest of this id. */
void dg_verbs_guest_left(struct verbs *d, struct rdma_cm_id *id);
void dg_verbs_guests_free(struct verbs *d);
/* Returns the number of links of the region. Takes the device's lock itself. */
uint32_t dg_verbs_importers(void *state, struct dg_region *r);
/* Revokes the rights of every guest of the region. */
void dg_verbs_rights_take(struct verbs *d, const struct dg_region *r);
/* Withdraws the region's memory from every guest. Takes the device's lock itself. */
void dg_verbs_guests_forget(struct verbs *d, struct dg_region *r);

/* verbs_rights.c: what one guest may do with its region. */
/* Returns libibverbs' access flags that give a peer this access. Read and write access together
 * include atomic operations. */
unsigned dg_verbs_remote_flags(const struct verbs *d, uint32_t access);
/* Creates the guest's queue pair, ready to be accepted. A link has access 0 and gets no rights.
 * Otherwise stores the rkey with which the importer has that access. Errors: a negative errno,
 * without a text. */
int dg_verbs_guest_open(struct verbs *d, struct verbs_guest *g, uint32_t access,
			const struct rdma_conn_param *param, uint32_t *rkey);
/* Revokes its rights: from then on the adapter refuses what the importer posts. */
void dg_verbs_guest_rights_take(struct verbs_guest *g);
/* Revokes its rights and destroys its queue pair. */
void dg_verbs_guest_close(struct verbs_guest *g);

/* verbs_revoke.c: revocation by agreement. */
/* Asks the importers of r to stop, and waits until each has stopped or the deadline has passed;
 * those that have not stopped by then lose their rights. Takes the device's lock itself. Errors:
 * EBUSY if an importer has not confirmed that it stopped. */
int dg_verbs_revoke(struct dg_device *dev, void *state, struct dg_region *r, uint64_t deadline_ns);
/* Handles the notices that have arrived, and answers exporters whose regions are quiet. Call with
 * the device's lock held. */
void dg_verbs_notices(struct verbs *d);

/* verbs_connect.c: the importer's side, and the control thread. */
int dg_verbs_control_start(struct verbs *d);
struct address_text {
	char text[INET6_ADDRSTRLEN];
};
struct address_text dg_verbs_address_text(const struct sockaddr_storage *address);
void dg_verbs_control_stop(struct verbs *d);
/* Starts a connection to the exporter of t: an endpoint of the queue with `cq`, or a link if cq is
 * NULL. Errors: those of dg_verbs_check_port(), and lack of memory or ids. */
int dg_verbs_connect(struct verbs *d, const struct verbs_region *t, struct ibv_cq *cq,
		     struct dg_pipe *pipe, struct verbs_conn **out);
/* Waits until the connection is READY. Errors: those of the connection. */
int dg_verbs_connected(struct verbs_conn *c);
void dg_verbs_conn_free(struct verbs_conn *c);
/* Whether the system routes packets from one address to the other. */
bool dg_verbs_has_route(const struct sockaddr_storage *from, const struct sockaddr_storage *to);
/* Whether the exporter of an imported region is known to have ended. */
bool dg_verbs_lost(const struct dg_region *r);
/* Ends the connection's queue pair: afterwards, no posted work request moves a byte of this
 * process. */
void dg_verbs_conn_abort(struct verbs_conn *c);

/* verbs_probe.c. Call these with the device's lock held. */
/* Probes the other sides, and ends the connections with one that does not answer. Returns how long
 * to sleep, in ms; -1: until an event. */
int dg_verbs_probe(struct verbs *d);
/* Returns the exporter at this address, or the importer with this number if address is NULL, and
 * counts one more connection with it. NULL: out of memory. */
struct verbs_peer *dg_verbs_peer_join(struct verbs *d, const struct sockaddr_storage *address,
				      uint64_t importer);
/* Removes a connection, which is about to end, from its peer. */
void dg_verbs_peer_leave(struct verbs *d, struct verbs_peer *p);
/* Opens one end of a link, whose conn or guest is filled in, so that it can receive a notice.
 * Errors: a negative errno, without a text. */
int dg_verbs_link_open(struct verbs *d, struct verbs_link *l, struct ibv_qp *qp, struct verbs_peer *p);
/* Idempotent. */
void dg_verbs_link_close(struct verbs *d, struct verbs_link *l);
/* Sends an empty message to the other end. Returns whether it was posted. */
bool dg_verbs_link_send(struct verbs_link *l);
/* Ends a connection whose other side is gone, and wakes the threads that wait for it. */
void dg_verbs_conn_ended(struct verbs_conn *c);

/* verbs_mr.c */
/* Registers memory of this process for the local side of operations, in the best way that the
 * adapter supports: GPU memory as a dma-buf, otherwise by its address. Fills *out and *s, which
 * verbs_source_close() closes; on an error nothing is left open. Errors: ENOMEM; EOPNOTSUPP: no
 * on-demand paging; EMEDIUMTYPE: neither way works for GPU memory; others of ibv_reg_mr(). */
int dg_verbs_register(const struct verbs *d, const dg_memory *m, int flags, struct verbs_source *s,
		      struct ibv_mr **out);
/* Registers that memory in this protection domain, in the same way. Returns NULL and sets errno on
 * an error. */
struct ibv_mr *dg_verbs_mr(struct ibv_pd *pd, const dg_memory *m, const struct verbs_source *s,
			   int flags);
/* Converts errno of a failed registration of this kind to an error. */
int dg_verbs_mr_refused(const struct verbs *d, const dg_memory *m, enum dg_registration way);
void dg_verbs_source_close(struct verbs_source *s);
/* Folder of the loaded kernel modules; tests replace it. */
extern const char *dg_verbs_modules;

/* verbs_map.c */
/* Returns the state of a region without registrations. NULL, with an error text: out of memory. */
struct verbs_region *dg_verbs_region_new(void);
int dg_verbs_map(struct dg_device *dev, void *state, struct dg_region *r, const dg_memory *m,
		 struct dg_region_entry *entry);
void dg_verbs_unmap(struct dg_device *dev, void *state, struct dg_region *r);
int dg_verbs_export(struct dg_device *dev, void *state, struct dg_region *r, uint32_t access,
		    struct dg_descriptor *out);

/* verbs_queue.c */
int dg_verbs_attach(struct dg_device *dev, void *state, struct dg_pipe *p);
void dg_verbs_detach(struct dg_device *dev, struct dg_pipe *p);
int dg_verbs_arm(struct dg_device *dev, struct dg_pipe *p);
int dg_verbs_direct(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op);
void dg_verbs_doorbell(struct dg_device *dev, struct dg_pipe *p);
void dg_verbs_poll(struct dg_device *dev, struct dg_pipe *p);
/* Makes every queue end its endpoint to the region with this index, and its queue pairs'
 * registrations of that region. */
void dg_verbs_release_region(struct verbs *d, uint32_t region);

/* verbs_post.c: the data path. Call these inside the queue's guard. */
void dg_verbs_submit(struct verbs_queue *q);
/* Publishes the operations that have ended since the last call, then submits those that now can be. */
void dg_verbs_progress(struct verbs_queue *q);
/* Executes an operation while nothing else is in flight. Returns its status; OP_MORE: it is in
 * flight; OP_NOT: it has to be posted. */
int dg_verbs_run(struct verbs_queue *q, const struct dg_op *op);
/* Completes everything with DG_FLUSHED, and ends all endpoints. */
void dg_verbs_flush(struct verbs_queue *q);
/* Finds the endpoint to this region, or starts one. Returns DG_OK; OP_MORE: it is not ready; or the
 * status with which an operation that needs it ends. */
int dg_verbs_endpoint_get(struct verbs_queue *q, uint32_t region, struct verbs_endpoint **out);
/* Ends the queue pair of an endpoint, and the work requests in flight on it. For an import, the
 * next operation creates another endpoint; a queue pair that is connected by hand stays broken. */
void dg_verbs_endpoint_break(struct verbs_queue *q, struct verbs_endpoint *ep);
/* Closes the endpoint to this region, on which nothing is in flight. */
void dg_verbs_endpoint_close(struct verbs_queue *q, uint32_t region);
/* Assigns a number to a queue pair's endpoint. Errors: EMFILE. */
int dg_verbs_endpoint_add(struct verbs_queue *q, struct verbs_endpoint *ep);
/* Breaks the endpoint of a queue pair and removes it from the queue. */
void dg_verbs_endpoint_remove(struct verbs_queue *q, struct verbs_endpoint *ep);
static inline struct ibv_qp *endpoint_qp(const struct verbs_endpoint *ep)
{
	return ep->qp ? ep->qp->qp : ep->conn->id->qp;
}
static inline uint32_t endpoint_max_inline(const struct verbs_endpoint *ep)
{
	return ep->qp ? ep->qp->max_inline : ep->conn->max_inline;
}
/* The two functions below return the keys of a region, by its index, on this endpoint. */
static inline uint32_t endpoint_rkey(const struct verbs_endpoint *ep, uint32_t remote)
{
	const struct verbs_region *t = region_entry_at(remote)->region->provider_state;
	return ep->qp ? t->rkey : ep->conn->reply.rkey;
}
static inline uint32_t endpoint_lkey(const struct verbs_endpoint *ep, uint32_t local)
{
	const struct verbs_region *t = region_entry_at(local)->region->provider_state;
	return ep->qp ? dg_verbs_qp_lkey(ep->qp, local) : t->mr->lkey;
}

/* verbs_bare.c */
int dg_verbs_bare(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op, uint32_t count,
		  uint32_t window, uint64_t *samples_ns);

#endif
