/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections by addresses and ports: what the kernel's rdma_ucm is for librdmacm.
 *
 *	ucma.c            write(2) on /dev/infiniband/rdma_cm: commands, events
 *	ucma_socket.c     names of ports; messages between processes
 *
 * An ID has a UNIX socket whose name is its port: it listens, or connects to that of another process. Names
 * are abstract ones, with the user and the runtime folder in them, so that what a killed process had is
 * free again. A process that ends, however it does, closes its sockets, which its peers see.
 */
#ifndef DG_MLX5_UCMA_H
#define DG_MLX5_UCMA_H

#include <stdbool.h>
#include <stdint.h>
#include <netinet/in.h>

#include <rdma/rdma_user_cm.h>

#include "mlx5.h"

/* In the order of a connection. REPLIED: of a client, before it has accepted the reply; ACCEPTED: of a
 * server, before its client has. ENDED: nothing more is sent or received. */
enum cm_state {
	CM_IDLE,
	CM_BOUND,
	CM_ADDRESS_RESOLVED,
	CM_ROUTE_RESOLVED,
	CM_LISTENS,
	CM_CONNECTING,
	CM_REQUESTED,
	CM_REPLIED,
	CM_ACCEPTED,
	CM_CONNECTED,
	CM_ENDED
};

/* Reasons of a rejection, as InfiniBand's CM has them; of one of datagrams. */
enum { REASON_NO_LISTENER = 8, REASON_CONSUMER = 28, REASON_DATAGRAM = 2 };

enum cm_kind { CM_REQUEST = 1, CM_REPLY, CM_READY, CM_REJECT, CM_DISCONNECT };

/* What processes send each other. p: as the sender gave it. */
struct cm_message {
	uint32_t version, kind, reason, psn;
	struct sockaddr_in6 from, to; /* of any family; of a request */
	struct rdma_ucm_conn_param p;
	struct rdma_ucm_ece ece;
};
enum { CM_VERSION = 1 };

struct cm_id {
	struct cm_channel *channel;
	uint64_t uid;
	uint32_t handle, ps, adapter, psn, events_reported;
	enum cm_state state;
	int fd; /* its socket, or -1 */
	bool is_datagram, has_adapter, only_ipv6, was_connected;
	uint8_t ack_timeout;
	struct sockaddr_in6 source, target; /* of any family */
	struct rdma_ucm_conn_param ours;
	struct cm_message theirs; /* the request or reply */
};

/* ucma_socket.c: return 0 or a negative errno. */
/* Makes the socket of a source address, whose port is stored if it was 0. */
int dg_mlx5_cm_bind(struct cm_id *id);
/* Connects it to the listener of the target. -ECONNREFUSED: there is none. */
int dg_mlx5_cm_connect(const struct cm_id *id);
int dg_mlx5_cm_send(const struct cm_id *id, const struct cm_message *m);
/* Returns 1 for a message, 0 for the end of the connection, or -EAGAIN. */
int dg_mlx5_cm_receive(int fd, struct cm_message *m);
/* Returns the socket of a process that connects to a listener, with its request; or -EAGAIN. */
int dg_mlx5_cm_take(const struct cm_id *listener, struct cm_message *request);
/* Whether packets to this address stay on this machine. */
bool dg_mlx5_cm_is_local(const struct sockaddr_in6 *a);
bool dg_mlx5_cm_is_any(const struct sockaddr_in6 *a);
/* Stores the address as IPv6 has it. */
void dg_mlx5_cm_gid(const struct sockaddr_in6 *a, uint8_t gid[16]);

#endif
