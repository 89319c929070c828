/* SPDX-License-Identifier: Apache-2.0 */
/* Comm Channel: an endpoint is a Comch client or server with a progress engine of its own, which
 * its functions progress. Received messages wait in a queue. */
#ifndef SOFTDOCA_COMM_CHANNEL_H
#define SOFTDOCA_COMM_CHANNEL_H

#include "comch/comch_hold.h"
#include "doca_comch.h"
#include "memory/memory.h"
#include "progress/progress.h"

#define QUEUE_DEFAULT 16u /* guess */

struct cc_received {
	struct cc_peer *peer;
	struct cc_received *next;
	uint32_t len;
	uint8_t bytes[];
};

/* An fd for epoll: readable by an event of the engine, or by `event`. */
struct cc_channel {
	int fd, event; /* -1: not open */
	bool armed;
};

struct cc_counts {
	uint64_t sent, sent_bytes, received, received_bytes, in_flight;
};

struct cc_peer {
	struct object o;
	struct cc_endpoint *ep;
	struct doca_comch_connection *connection; /* NULL: not yet, or no longer */
	bool lost, told; /* told: recvfrom has returned CONNECTION_RESET */
	uint64_t user_data;
	struct cc_counts now, info; /* info: at the last update_info */
	uint64_t id; /* never reused: tasks in flight may outlive the peer */
	uint32_t queued; /* messages that the program has not taken yet */
	struct cc_peer *next;
};

struct cc_endpoint {
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
	struct cc_peer *peers;
	uint64_t last_id;
	struct cc_received *first, *last;
	uint32_t queued; /* at most recv_queue */
	struct cc_channel send, recv;
};

#define CHECK_ENDPOINT(e) CHECK_OBJECT(e, OBJECT_COMM_CHANNEL_ENDPOINT, "an endpoint")
#define CHECK_PEER(p)	  CHECK_OBJECT(p, OBJECT_COMM_CHANNEL_PEER, "a connection's address")

/* comm_channel_peer.c: delivers events until there are none, but not more than a bounded number: a peer
 * may cause them without end. Messages stay in the sockets while the queue is full. */
void cc_endpoint_progress(struct cc_endpoint *ep);
/* Waits for an event, first by polling, then asleep. The caller makes progress before each
 * round. */
void cc_endpoint_wait(struct cc_endpoint *ep, unsigned int *rounds);
/* comm_channel_ep.c: ends the endpoint's service, or its connection. */
void cc_endpoint_end(struct cc_endpoint *ep);
/* Frees a peer with its messages. */
void cc_peer_free(struct cc_peer *peer);

#endif
