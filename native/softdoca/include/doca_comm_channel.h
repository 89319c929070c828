/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comm Channel, as of DOCA 1.3 to 2.5, which later releases replaced by Comch: messages between a service on the
 * DPU and clients on the host. It works beside work queues and beside progress engines.
 *
 *   service   create, set device and representor, listen -> recvfrom (accepts clients), sendto
 *   client    create, set device, connect -> update_info until connected -> sendto, recvfrom
 *
 * In 1.3 an endpoint opens the first capable device itself, and calls wait, unless it was created
 * with DOCA_COMM_CHANNEL_INIT_FLAG_NONBLOCK. Only one thread at a time may use an endpoint. Every
 * function returns INVALID_VALUE for an invalid endpoint, address, device or output pointer.
 */
#ifndef DOCA_COMM_CHANNEL_H
#define DOCA_COMM_CHANNEL_H

#include <stddef.h>
#include <stdint.h>

#include <doca_dev.h> /* in angles: those of include/workq come first in the path */
#include <doca_error.h>
#include <doca_types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_comm_channel_ep_t; /* an endpoint */
struct doca_comm_channel_addr_t; /* a connection */

typedef int doca_event_channel_t; /* a file descriptor for epoll */

enum doca_comm_channel_msg_flags {
	DOCA_CC_MSG_FLAG_NONE = 0,
	DOCA_CC_MSG_FLAG_DONTWAIT = 1, /* 1.3 */
};

enum doca_comm_channel_init_flags {
	DOCA_COMM_CHANNEL_INIT_FLAG_NONBLOCK = 1,
};

/* Properties of an endpoint in DOCA 1.3. 0 selects the default. */
struct doca_comm_channel_init_attr {
	uint32_t cookie; /* without effect */
	uint32_t flags;
	uint32_t maxmsgs;
	uint32_t msgsize;
};

/* ---- limits ---- */

DOCA_STABLE
doca_error_t doca_comm_channel_get_max_service_name_len(uint32_t *max_service_name_len);

DOCA_STABLE
doca_error_t doca_comm_channel_get_max_message_size(struct doca_devinfo *devinfo,
		uint32_t *max_message_size);

DOCA_STABLE
doca_error_t doca_comm_channel_get_max_send_queue_size(struct doca_devinfo *devinfo,
		uint32_t *max_send_queue_size);

DOCA_STABLE
doca_error_t doca_comm_channel_get_max_recv_queue_size(struct doca_devinfo *devinfo,
		uint32_t *max_recv_queue_size);

DOCA_STABLE
doca_error_t doca_comm_channel_get_service_max_num_connections(struct doca_devinfo *devinfo,
		uint32_t *max_num_connections);

/* ---- endpoints ---- */

/* Creates an endpoint. Errors: NO_MEMORY; in 1.3 NOT_PERMITTED for a size above the limit. */
#if SOFTDOCA_NAMED
doca_error_t doca_comm_channel_ep_create(struct doca_comm_channel_init_attr *attr,
					 struct doca_comm_channel_ep_t **ep)
	SOFTDOCA_1_3(comm_channel_ep_create);
#else
DOCA_STABLE
doca_error_t doca_comm_channel_ep_create(struct doca_comm_channel_ep_t **ep);
#endif

/* Ends all connections and frees the endpoint. Errors: NOT_CONNECTED without an endpoint. */
DOCA_STABLE
doca_error_t doca_comm_channel_ep_destroy(struct doca_comm_channel_ep_t *local_ep);

/* Set properties. Errors: BAD_STATE if the endpoint listens or is connected; INVALID_VALUE above
 * the limits. */
DOCA_STABLE
doca_error_t doca_comm_channel_ep_set_device(struct doca_comm_channel_ep_t *ep,
		struct doca_dev *device);

DOCA_STABLE
doca_error_t doca_comm_channel_ep_set_device_rep(struct doca_comm_channel_ep_t *ep,
		struct doca_dev_rep *device_rep);

DOCA_STABLE
doca_error_t doca_comm_channel_ep_set_max_msg_size(struct doca_comm_channel_ep_t *ep,
		uint16_t max_msg_size);

DOCA_STABLE
doca_error_t doca_comm_channel_ep_set_send_queue_size(struct doca_comm_channel_ep_t *ep,
		uint16_t send_queue_size);

DOCA_STABLE
doca_error_t doca_comm_channel_ep_set_recv_queue_size(struct doca_comm_channel_ep_t *ep,
		uint16_t recv_queue_size);

DOCA_STABLE
doca_error_t doca_comm_channel_ep_get_device(struct doca_comm_channel_ep_t *ep,
		struct doca_dev **device);

DOCA_STABLE
doca_error_t doca_comm_channel_ep_get_device_rep(struct doca_comm_channel_ep_t *ep,
		struct doca_dev_rep **device_rep);

DOCA_STABLE
doca_error_t doca_comm_channel_ep_get_max_msg_size(struct doca_comm_channel_ep_t *ep,
		uint16_t *max_msg_size);

DOCA_STABLE
doca_error_t doca_comm_channel_ep_get_send_queue_size(struct doca_comm_channel_ep_t *ep,
		uint16_t *send_queue_size);

DOCA_STABLE
doca_error_t doca_comm_channel_ep_get_recv_queue_size(struct doca_comm_channel_ep_t *ep,
		uint16_t *recv_queue_size);

/* Get descriptors that are readable, once armed, when a message can be sent or received. Errors:
 * BAD_STATE unless the endpoint listens or is connected. */
DOCA_STABLE
doca_error_t doca_comm_channel_ep_get_event_channel(struct doca_comm_channel_ep_t *local_ep,
		doca_event_channel_t *send_event_channel, doca_event_channel_t *recv_event_channel);

DOCA_STABLE
doca_error_t doca_comm_channel_ep_event_handle_arm_send(struct doca_comm_channel_ep_t *local_ep);

DOCA_STABLE
doca_error_t doca_comm_channel_ep_event_handle_arm_recv(struct doca_comm_channel_ep_t *local_ep);

/* Offers a service. Errors: BAD_STATE without device and representor; NOT_PERMITTED if the endpoint
 * listens or is connected; NOT_SUPPORTED if the device cannot serve; CONNECTION_ABORTED if the name
 * is in use. */
DOCA_STABLE
doca_error_t doca_comm_channel_ep_listen(struct doca_comm_channel_ep_t *local_ep, const char *name);

/* Connects to a service. Errors: BAD_STATE without a device; NOT_PERMITTED if the endpoint listens
 * or is connected; NOT_SUPPORTED if the device cannot be a client; in 1.3 CONNECTION_ABORTED
 * without a service, or if a call that waits gets no answer from it within 5 s. */
DOCA_STABLE
doca_error_t doca_comm_channel_ep_connect(struct doca_comm_channel_ep_t *local_ep,
		const char *name, struct doca_comm_channel_addr_t **peer_addr);

/* Sends a message. Errors: NOT_CONNECTED without a connection; INVALID_VALUE for a message above
 * the limit; AGAIN if the send queue is full; CONNECTION_RESET if the connection is lost. */
DOCA_STABLE
doca_error_t doca_comm_channel_ep_sendto(struct doca_comm_channel_ep_t *local_ep, const void *msg,
		size_t len, int flags, struct doca_comm_channel_addr_t *peer_addr);

/* Receives a message of at most *len bytes, and sets its length and sender. A service accepts
 * clients by it. Errors: NOT_CONNECTED if the endpoint does neither listen nor have a connection;
 * AGAIN without a message; INVALID_VALUE if the message, which stays, has more than *len bytes;
 * CONNECTION_RESET if a connection, that of *peer_addr, is lost. */
DOCA_STABLE
doca_error_t doca_comm_channel_ep_recvfrom(struct doca_comm_channel_ep_t *local_ep, void *msg,
		size_t *len, int flags, struct doca_comm_channel_addr_t **peer_addr);

/* Ends a connection, after its messages have been sent, and frees its address. Errors:
 * NOT_CONNECTED without a connection. */
DOCA_STABLE
doca_error_t doca_comm_channel_ep_disconnect(struct doca_comm_channel_ep_t *local_ep,
		struct doca_comm_channel_addr_t *peer_addr);

/* ---- connections ---- */

/* Returns SUCCESS for a connection, CONNECTION_INPROGRESS before, and CONNECTION_ABORTED if it
 * failed. Updates the numbers that the functions below get. */
DOCA_STABLE
doca_error_t doca_comm_channel_peer_addr_update_info(struct doca_comm_channel_addr_t *peer_addr);

DOCA_STABLE
doca_error_t doca_comm_channel_peer_addr_get_send_messages(
		const struct doca_comm_channel_addr_t *peer_addr, uint64_t *send_messages);

DOCA_STABLE
doca_error_t doca_comm_channel_peer_addr_get_send_bytes(
		const struct doca_comm_channel_addr_t *peer_addr, uint64_t *send_bytes);

DOCA_STABLE
doca_error_t doca_comm_channel_peer_addr_get_recv_messages(
		const struct doca_comm_channel_addr_t *peer_addr, uint64_t *recv_messages);

DOCA_STABLE
doca_error_t doca_comm_channel_peer_addr_get_recv_bytes(
		const struct doca_comm_channel_addr_t *peer_addr, uint64_t *recv_bytes);

DOCA_STABLE
doca_error_t doca_comm_channel_peer_addr_get_send_in_flight_messages(
		const struct doca_comm_channel_addr_t *peer_addr, uint64_t *send_in_flight_messages);

DOCA_STABLE
doca_error_t doca_comm_channel_peer_addr_set_user_data(struct doca_comm_channel_addr_t *peer_addr,
		uint64_t user_context);

DOCA_STABLE
doca_error_t doca_comm_channel_peer_addr_get_user_data(struct doca_comm_channel_addr_t *peer_addr,
		uint64_t *user_data);

#ifdef __cplusplus
}
#endif

#endif
