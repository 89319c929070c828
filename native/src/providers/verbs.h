/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal interface of the provider verbs.
 *
 *   importer                                             exporter
 *   link: one connection for each import      <------>   a guest of the region: its rights
 *   lane: one connection for each queue and   <------>   a guest of the region, with a
 *         import, made at its first operation            separate registration and rkey
 *
 * One control thread for each device makes and ends all connections, on both sides. Operations are
 * posted and polled in the caller's thread.
 */
#ifndef DG_VERBS_H
#define DG_VERBS_H

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
	VERBS_LANES = 256, /* connections of a queue; must be a power of 2 */
	VERBS_LANE_WRS = 256, /* in flight on a lane; must be a power of 2 */
	VERBS_QUEUE_WRS = 1024, /* in flight on a queue */
	VERBS_BATCH = 64, /* work requests of one doorbell */
	VERBS_SGES = 8, /* of a work request */
	VERBS_SIGNAL_EVERY = 16, /* and the last one of each doorbell */
	VERBS_PROBES = 256, /* in flight at a time */
};
#define VERBS_CONNECT_NS 5000000000ull /* how long a connection may take */
#define VERBS_PROBE_NS 500000000ull /* between two probes of an exporter */

/* What an importer sends with its request for a connection. The key crosses the network in clear. */
struct verbs_request {
	uint64_t magic;
	uint32_t version;
	uint32_t lane; /* 1: operations will be posted; 0: for the rights alone */
	uint8_t key[16];
};

/* What the exporter answers, with its acceptance or its refusal. */
struct verbs_reply {
	uint64_t magic;
	uint32_t error; /* positive errno of a refusal */
	uint32_t access;
	uint64_t address, size;
	uint32_t rkey;
	uint32_t atomics; /* enum ibv_atomic_cap of the exporter's adapter */
};
#define VERBS_MAGIC   0x5342524556474bdeull
#define VERBS_VERSION 1u

/* Where an exporter listens: the blob of a descriptor. In network byte order. */
struct verbs_blob {
	uint16_t family; /* 4 or 6 */
	uint16_t port;
	uint8_t address[16];
};

/* What a connection that is CONNECTING waits for. */
enum conn_step { STEP_ADDRESS, STEP_ROUTE, STEP_ANSWER };
enum conn_state { CONN_CONNECTING, CONN_READY, CONN_FAILED, CONN_ENDED };

/* A device of an exporter, to which this one has connections. Guarded by the device's lock. */
struct verbs_peer {
	struct sockaddr_storage address;
	struct verbs_peer *next;
	uint32_t conns;
	uint64_t probe; /* number of the probe in flight, or 0 */
	uint64_t probe_ns; /* when the next one is due */
	struct verbs_conn *via; /* the link that carries it */
};

/* An importer's connection: the link of an import, or a lane. The state's times and steps, `id`, `why`,
 * `next` and `peer` are guarded by the device's lock. */
struct verbs_conn {
	struct verbs *d;
	struct rdma_cm_id *id;
	struct verbs_conn *next; /* in the device's list */
	uint64_t deadline_ns;
	uint64_t again_ns; /* when to ask again, or 0 */
	uint32_t step, refusals; /* refusals: for lack of room */
	struct sockaddr_storage to;
	struct verbs_request request;
	struct verbs_reply reply; /* valid once READY */
	struct ibv_cq *cq;
	struct dg_pipe *pipe; /* of the lane's queue, to wake its caller; NULL: a link */
	uint32_t max_inline;
	int error; /* FAILED: a positive errno */
	char why[400];
	struct verbs_peer *peer;
	/* Release by the control thread, acquire by others: then what is above is valid. */
	atomic_uint state;
};

/* A connection that the exporter has accepted. Guarded by the device's lock. */
struct verbs_guest {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_mr *mr; /* NULL: a link, or the region was closed */
	struct dg_region *region; /* NULL once it was closed */
	struct verbs_guest *next;
};

/* A region's provider_state. */
struct verbs_region {
	struct ibv_mr *mr; /* a region of this process: for the local side of operations */
	struct verbs_conn *link; /* an import's */
	struct sockaddr_storage exporter;
	uint8_t key[16];
};

/* An open device: a port of an RDMA adapter. */
struct verbs {
	struct dg_device *dev;
	struct ibv_context *context;
	struct ibv_pd *pd; /* of local regions: they give no remote access */
	struct ibv_cq *idle_cq; /* of connections on which nothing is posted */
	struct ibv_cq *probe_cq; /* of links, which carry probes only */
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct sockaddr_storage address; /* of the port; the listener's port number included */
	char name[64];
	bool software;
	uint8_t port;
	atomic_bool removed; /* the device, by its driver or its user */
	struct rdma_cm_id **waiting; /* ids that have ended, until the port is active */
	uint32_t n_waiting;
	uint32_t max_message, max_piece, max_sge, max_wr;
	uint32_t max_reads; /* reads and atomic operations in flight on a connection */
	uint32_t atomics; /* enum ibv_atomic_cap */
	uint8_t ack_timeout; /* 4.096 us << this: until a packet is sent again */
	pthread_t thread;
	int wake_fd;
	atomic_bool stop;
	pthread_mutex_t lock; /* guards the event channel, all ids and the lists of them */
	pthread_cond_t changed; /* the state of a connection */
	struct verbs_conn *conns;
	struct verbs_guest *guests;
	uint32_t n_guests;
	struct verbs_peer *peers;
	uint32_t n_probes; /* in flight */
	uint64_t last_probe;
	struct queue_list queues;
};

/* A part of an operation that is complete when `left` is 0: the operation itself, or a chain. */
struct verbs_work {
	uint32_t left; /* work requests in flight, plus 1 while more may be posted */
	uint32_t slot, local, remote; /* local NO_REGION: a chain, whose requests hold the gates */
	int status;
	struct verbs_work *chain;
};

/* A lane: a connection for one queue and one import, with what is in flight on it, in order. */
struct verbs_lane {
	struct verbs_conn *conn;
	struct verbs_lane *next; /* of its bucket */
	uint32_t region; /* index of the region table */
	uint32_t number; /* its place in verbs_queue.lanes, and above it a generation */
	uint32_t head, tail, unsignaled;
	int status; /* of the first error, after which the rest is flushed */
	bool broken; /* its queue pair is in the error state or gone */
	struct {
		struct verbs_work *work;
		uint64_t bytes;
	} wrs[VERBS_LANE_WRS];
};

struct verbs_queue {
	struct listed_queue listed;
	struct verbs *d;
	struct dg_pipe *p;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	int epoll_fd;
	struct verbs_lane *lanes[VERBS_LANES], *buckets[VERBS_LANES];
	uint32_t last_generation;
	bool any_broken;
	/* The work request list of the next doorbell, all for one lane. */
	struct verbs_lane *batch_lane;
	uint32_t n_batch;
	struct ibv_send_wr batch[VERBS_BATCH];
	struct ibv_sge sges[VERBS_BATCH][VERBS_SGES];
	/* In flight. */
	uint32_t in_flight; /* work requests, those of the next doorbell included */
	uint64_t bytes;
	struct verbs_work *works, **free_works, *current, *chain;
	uint32_t n_free_works;
	struct ended ended;
	bool closing; /* what fails now is FLUSHED */
};

/* verbs_port.c */
bool dg_verbs_port_active(const struct verbs *d);
static inline bool dg_verbs_removed(const struct verbs *d)
{
	return atomic_load_explicit(&d->removed, memory_order_relaxed);
}
/* Stores the name of a device (the wanted one, unless that is NULL) whose port has no link. Returns
 * whether there is one. */
bool dg_verbs_find_down(const char *wanted, char *out, size_t size);
/* Returns the error for a port without a link. */
int dg_verbs_no_link(const char *device);
/* Errors: ENODEV, if the device was removed, or has no link. */
int dg_verbs_check_port(const struct verbs *d);
/* Puts the queue pair of the id into the error state, and sends word to the other side, unless
 * that may not be. */
void dg_verbs_disconnect(const struct verbs *d, struct rdma_cm_id *id);
/* Destroys the id, which has no queue pair any more: at once, or later. With the device's lock. */
void dg_verbs_id_free(struct verbs *d, struct rdma_cm_id *id);
/* Whether the id is one that will be destroyed later. */
bool dg_verbs_id_waits(const struct rdma_cm_id *id);
/* Destroys the ids that were to be destroyed later. */
void dg_verbs_ids_free(struct verbs *d);
/* Does that if the port is active. Returns how long to sleep, in ms; -1: until an event. */
int dg_verbs_look_at_port(struct verbs *d);

/* verbs_listen.c: the exporter's side. Called by the control thread with the device's lock. */
int dg_verbs_listen(struct verbs *d);
/* Accepts or refuses the connection `id` that asks with `request`. */
void dg_verbs_serve(struct verbs *d, struct rdma_cm_id *id, const struct rdma_conn_param *asked);
/* Ends the guest of this id. */
void dg_verbs_guest_left(struct verbs *d, struct rdma_cm_id *id);
void dg_verbs_guests_free(struct verbs *d);
/* Takes the region's memory from every guest. Takes the device's lock itself. */
void dg_verbs_guests_revoke(struct verbs *d, struct dg_region *r);

/* verbs_connect.c: the importer's side, and the control thread. */
int dg_verbs_control_start(struct verbs *d);
void dg_verbs_control_stop(struct verbs *d);
/* Starts a connection to the exporter of t: a lane of that queue, or (cq NULL) a link. Errors: those
 * of dg_verbs_check_port(), and lack of memory or ids. */
int dg_verbs_connect(struct verbs *d, const struct verbs_region *t, struct ibv_cq *cq,
		     struct dg_pipe *pipe, struct verbs_conn **out);
/* Waits until it is READY. Errors: those of the connection. */
int dg_verbs_connected(struct verbs_conn *c);
void dg_verbs_conn_free(struct verbs_conn *c);
/* Whether the exporter of an imported region is known to be gone. */
bool dg_verbs_lost(const struct dg_region *r);
/* Ends the connection's queue pair: nothing that was posted moves a byte of this process after it. */
void dg_verbs_conn_abort(struct verbs_conn *c);

/* verbs_probe.c. With the device's lock. */
/* Probes the exporters, and ends the connections to one that does not answer. Returns how long to
 * sleep, in ms; -1: until an event. */
int dg_verbs_probe(struct verbs *d);
/* Sets c->peer to the peer of this address. Errors: ENOMEM. */
int dg_verbs_peer_join(struct verbs_conn *c, const struct sockaddr_storage *address);
/* Takes c, which is about to end, from its peer. */
void dg_verbs_peer_leave(struct verbs_conn *c);
/* Ends a connection whose other side is gone, and wakes who waits for it. */
void dg_verbs_conn_ended(struct verbs_conn *c);

/* verbs_map.c */
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
/* Has every queue end its lane to the region with this index. */
void dg_verbs_release_region(struct verbs *d, uint32_t region);

/* verbs_post.c: the data path. Called inside the queue's guard. */
void dg_verbs_submit(struct verbs_queue *q);
void dg_verbs_progress(struct verbs_queue *q);
/* Runs an operation while nothing is in flight. Returns its status; OP_MORE: it is in flight; OP_NOT:
 * it has to be posted. */
int dg_verbs_run(struct verbs_queue *q, const struct dg_op *op);
/* Completes everything with DG_FLUSHED, and ends all lanes. */
void dg_verbs_flush(struct verbs_queue *q);
/* Finds the lane to this region, or starts one. Returns DG_OK; OP_MORE: it is not ready; or the
 * status of an operation that needs it. */
int dg_verbs_lane_get(struct verbs_queue *q, uint32_t region, struct verbs_lane **out);
/* Ends the queue pair of a lane on which the core has nothing in flight: the next operation makes
 * another one. */
void dg_verbs_lane_break(struct verbs_queue *q, struct verbs_lane *l);
/* Ends the lane to this region, on which nothing is in flight. */
void dg_verbs_lane_close(struct verbs_queue *q, uint32_t region);

/* verbs_bare.c */
int dg_verbs_bare(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op, uint32_t count,
		  uint32_t window, uint64_t *samples_ns);

#endif
