/* SPDX-License-Identifier: Apache-2.0 */
/* Comm Channel: an endpoint is a Comch client or server with a progress engine of its own, which
 * its functions progress. Received messages wait in a queue. */
#ifndef SOFTDOCA_COMM_CHANNEL_H
#define SOFTDOCA_COMM_CHANNEL_H

#include "workq.h"

#include "comch/comch_hold.h"
#include "doca_comch.h"

#define QUEUE_DEFAULT 16u /* guess */

struct wq_received {
	struct wq_peer *peer;
	struct wq_received *next;
	uint32_t len;
	uint8_t bytes[];
};

/* An fd for epoll: readable by an event of the engine, or by `event`. */
struct wq_channel {
	int fd, event; /* -1: not open */
	bool armed;
};

struct wq_counts {
	uint64_t sent, sent_bytes, received, received_bytes, in_flight;
};

struct wq_peer {
	struct object o;
	struct wq_endpoint *ep;
	struct doca_comch_connection *connection; /* NULL: not yet, or no longer */
	bool lost, told; /* told: recvfrom has returned CONNECTION_RESET */
	uint64_t user_data;
	struct wq_counts now, info; /* info: at the last update_info */
	uint64_t id; /* never reused: tasks in flight may outlive the peer */
	uint32_t queued; /* messages that the program has not taken yet */
	struct wq_peer *next;
};

struct wq_endpoint {
	struct object o;
	struct doca_dev *dev;
	struct doca_dev_rep *rep;
	bool owns_devices; /* 1.3 */
	bool blocking; /* 1.3 */
	uint16_t max_msg, send_queue, recv_queue;
	struct doca_pe *pe;
	struct doca_comch_client *client;
	struct doca_comch_server *server;
	struct doca_ctx *ctx; /* of client or server; NULL: neither */
	struct wq_peer *peers;
	uint64_t last_id;
	struct wq_received *first, *last;
	uint32_t queued; /* at most recv_queue */
	struct wq_channel send, recv;
};

#define CHECK_ENDPOINT(e) CHECK_OBJECT(e, OBJECT_WORKQ_ENDPOINT, "an endpoint")
#define CHECK_PEER(p)	  CHECK_OBJECT(p, OBJECT_WORKQ_PEER, "a connection's address")

/* comm_channel_peer.c: delivers events until there are none, but not more than a bounded number: a peer
 * may cause them without end. Messages stay in the sockets while the queue is full. */
void wq_endpoint_progress(struct wq_endpoint *ep);
/* Waits for an event, first by polling, then asleep. The caller makes progress before each
 * round. */
void wq_endpoint_wait(struct wq_endpoint *ep, unsigned int *rounds);
/* comm_channel_ep.c: ends the endpoint's service, or its connection. */
void wq_endpoint_end(struct wq_endpoint *ep);
/* Frees a peer with its messages. */
void wq_peer_free(struct wq_peer *peer);

#endif
