// SPDX-License-Identifier: Apache-2.0
/*
 * Connection by address. Over the software NIC a port is an abstract Unix socket of this user, as connections
 * lead to processes of this machine only; over an adapter it is one of TCP, at the adapter's address. "guess" marks an assumption that no published source confirms; all errors of this
 * file are.
 *
 *      client                        server
 *      REQUEST, its blob  -------->  callback for requests; accept or reject
 *      CONNECTED          <--------  ACCEPT, its blob  (or REJECT)
 *      READY              -------->  CONNECTED
 *
 * The socket stays open until the connection ends; no further packet is allowed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "device/adapter.h"
#include "rdma.h"

#define LOOK_NS 100000u /* interval of checking the sockets of a context */
#define CALL_NS 500000000u /* guess: programs connect to a server that listens a little later */
#define TCP_NS 5000000000u /* guess: likewise, with the way there; and for what a caller has to say */
#define AGAIN_NS 50000000u /* between two calls by TCP */
#define BACKLOG 128
#define CHECK_CONNECTION(c) CHECK_OBJECT(c, OBJECT_RDMA_CONNECTION, "an RDMA connection")

enum packet_kind { PACKET_REQUEST = 1, PACKET_ACCEPT, PACKET_REJECT, PACKET_READY };

struct doca_rdma_addr {
	struct object o;
	enum doca_rdma_addr_type type;
	uint16_t port;
	char text[INET6_ADDRSTRLEN];
	union {
		struct sockaddr any;
		struct sockaddr_in ip4;
		struct sockaddr_in6 ip6; /* also of a GID */
	};
};

struct rdma_listener {
	struct object o;
	struct rdma_listener *next;
	uint16_t port;
	int fd;
};

/* ---- addresses ---- */

static struct doca_rdma_addr *copy_of(const struct doca_rdma_addr *a)
{
	struct doca_rdma_addr *copy = softdoca_object_new(OBJECT_RDMA_ADDR, sizeof *copy);
	if (!copy)
		return NULL;
	const struct object o = copy->o;
	*copy = *a;
	copy->o = o;
	return copy;
}

doca_error_t doca_rdma_addr_create(enum doca_rdma_addr_type addr_type, const char *address, uint16_t port,
				   struct doca_rdma_addr **addr)
{
	struct doca_rdma_addr a = {.type = addr_type, .port = port};
	CHECK_OUT(address);
	CHECK_OUT(addr);
	const bool is_ip4 = addr_type == DOCA_RDMA_ADDR_TYPE_IPv4;
	if (!is_ip4 && addr_type != DOCA_RDMA_ADDR_TYPE_IPv6 && addr_type != DOCA_RDMA_ADDR_TYPE_GID)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "address type %d is unknown", (int)addr_type);
	a.any.sa_family = is_ip4 ? AF_INET : AF_INET6;
	if (inet_pton(a.any.sa_family, address,
		      is_ip4 ? (void *)&a.ip4.sin_addr : (void *)&a.ip6.sin6_addr) != 1)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "'%.64s' is not an address of %s", address,
			      is_ip4 ? "IPv4" : "IPv6");
	inet_ntop(a.any.sa_family, is_ip4 ? (void *)&a.ip4.sin_addr : (void *)&a.ip6.sin6_addr, a.text,
		  sizeof a.text);
	*addr = copy_of(&a);
	return *addr ? DOCA_SUCCESS : REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for an address");
}

doca_error_t doca_rdma_addr_get_params(const struct doca_rdma_addr *addr, enum doca_rdma_addr_type *addr_type,
				       const char **address, uint16_t *port)
{
	CHECK_OBJECT(addr, OBJECT_RDMA_ADDR, "an RDMA address");
	CHECK_OUT(addr_type);
	CHECK_OUT(address);
	CHECK_OUT(port);
	*addr_type = addr->type;
	*address = addr->text;
	*port = addr->port;
	return DOCA_SUCCESS;
}

doca_error_t doca_rdma_addr_destroy(struct doca_rdma_addr *addr)
{
	CHECK_OBJECT(addr, OBJECT_RDMA_ADDR, "an RDMA address");
	softdoca_object_free(addr);
	return DOCA_SUCCESS;
}

/* A GID is that of a NIC, and compared with that of the server that answers. */
static bool is_local(const struct doca_rdma_addr *a)
{
	if (a->type == DOCA_RDMA_ADDR_TYPE_GID)
		return true;
	const int fd = socket(a->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const bool local = fd >= 0 && !bind(fd, &a->any,
					    a->any.sa_family == AF_INET ? sizeof a->ip4 : sizeof a->ip6);
	if (fd >= 0)
		close(fd);
	return local;
}

/* ---- sockets ---- */

union name {
	struct sockaddr any;
	struct sockaddr_un local;
	struct sockaddr_in ip4;
	struct sockaddr_in6 ip6;
};

static socklen_t local_name(uint16_t port, union name *name)
{
	name->local = (struct sockaddr_un){.sun_family = AF_UNIX};
	const int n = snprintf(name->local.sun_path + 1, sizeof name->local.sun_path - 1,
			       "softdoca-rdma-%u-%u", (unsigned)geteuid(), port);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static bool is_tcp(const struct doca_rdma *r)
{
	return dev_is_adapter(r->ctx.dev);
}

static socklen_t set_port(union name *name, uint16_t port)
{
	const bool is_ip4 = name->any.sa_family == AF_INET;
	*(is_ip4 ? &name->ip4.sin_port : &name->ip6.sin6_port) = htons(port);
	return is_ip4 ? sizeof name->ip4 : sizeof name->ip6;
}

/* Where the server of this address listens, and where this context listens. */
static socklen_t peer_name(const struct doca_rdma *r, const struct doca_rdma_addr *a, union name *name)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	if (!is_tcp(r))
		return local_name(a->port, name);
	name->ip6 = a->ip6;
	if (a->any.sa_family == AF_INET)
		name->ip4 = a->ip4;
	else if (!memcmp(&a->ip6.sin6_addr, mapped, sizeof mapped)) {
		name->ip4 = (struct sockaddr_in){.sin_family = AF_INET};
		memcpy(&name->ip4.sin_addr, a->ip6.sin6_addr.s6_addr + sizeof mapped, 4);
	}
	return set_port(name, a->port);
}

static socklen_t bind_address(const struct doca_rdma *r, uint16_t port, union name *name)
{
	if (!is_tcp(r))
		return local_name(port, name);
	memcpy(name, &r->over.adapter->d->address, sizeof name->ip6);
	return set_port(name, port);
}

static int open_socket(const struct doca_rdma *r, const union name *name)
{
	return socket(name->any.sa_family,
		      (is_tcp(r) ? SOCK_STREAM : SOCK_SEQPACKET) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Anybody can use the name of a Unix socket. Who may use an adapter is the network's matter. */
static bool is_own(const struct doca_rdma *r, int fd)
{
	struct ucred peer;
	socklen_t n = sizeof peer;
	return is_tcp(r) ||
	       (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) && peer.uid == geteuid());
}

/* Over Ethernet the GID of an adapter is the address that it listens to and calls from. A peer that says
 * another one would have this program wait for a machine that may not exist, a second for each call. */
static bool is_of_peer(const struct doca_rdma_connection *c, const struct rdma_blob *blob)
{
	uint8_t gid[16] = {[10] = 0xff, 0xff}; /* of an IPv4 address */
	union name name;
	socklen_t n = sizeof name;
	if (!is_tcp(c->rdma) || !c->blob.adapter || c->blob.address.lid)
		return true;
	if (getpeername(c->fd, &name.any, &n))
		return false;
	if (name.any.sa_family == AF_INET)
		memcpy(gid + 12, &name.ip4.sin_addr, 4);
	else
		memcpy(gid, &name.ip6.sin6_addr, sizeof gid);
	return !memcmp(gid, blob->address.gid, sizeof gid);
}

static bool send_packet(const struct doca_rdma_connection *c, enum packet_kind kind)
{
	const struct rdma_packet p = {.blob = c->blob, .kind = kind};
	return send(c->fd, &p, sizeof p, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof p;
}

static bool watch_socket(struct doca_rdma *r, int fd, void *object, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = object};
	if (r->sockets < 0)
		r->sockets = epoll_create1(EPOLL_CLOEXEC);
	return r->sockets >= 0 && !epoll_ctl(r->sockets, EPOLL_CTL_ADD, fd, &e);
}

/* Ends it for the peer, too, though a forked process may hold copies. */
static void end_socket(const struct doca_rdma *r, int *fd)
{
	if (*fd < 0)
		return;
	if (r->pid == getpid()) {
		epoll_ctl(r->sockets, EPOLL_CTL_DEL, *fd, NULL);
		shutdown(*fd, SHUT_RDWR);
	}
	close(*fd);
	*fd = -1;
}

void rdma_hang_up(struct doca_rdma_connection *c)
{
	end_socket(c->rdma, &c->fd);
}

static void fail_connection(struct doca_rdma_connection *c, const char *why)
{
	softdoca_log(DOCA_LOG_LEVEL_WARNING, "doca_rdma_connect_to_addr", "connection %u failed: %s", c->id,
		     why);
	c->state = CONNECTION_FAILED;
	rdma_hang_up(c);
}

/* The peer is gone, or breaks the protocol. */
static void hung_up(struct doca_rdma_connection *c, const char *why)
{
	rdma_hang_up(c);
	if (c->state == CONNECTION_CALLED)
		rdma_connection_free(c);
	else if (c->state == CONNECTION_CONNECTED)
		rdma_connection_break(c);
	else if (c->state < CONNECTION_CONNECTED)
		fail_connection(c, why);
}

/* ---- the client ---- */

/* Nobody listens yet: connects again later, NULL, unless the time is up. */
static const char *retry_later(struct doca_rdma_connection *c)
{
	rdma_hang_up(c);
	c->again_ns = is_tcp(c->rdma) ? now_ns() + AGAIN_NS : 0;
	return now_ns() < c->until_ns ? NULL : "nobody listens to the port";
}

/* Returns why the connection fails; NULL also if nobody listens yet: then it has no socket. */
static const char *call(struct doca_rdma_connection *c)
{
	union name name, own;
	const socklen_t n = peer_name(c->rdma, c->addr, &name);
	c->fd = open_socket(c->rdma, &name);
	int rc = c->fd < 0 ? -1 : 0;
	if (!rc && is_tcp(c->rdma)) /* see is_of_peer() */
		rc = bind(c->fd, &own.any, bind_address(c->rdma, 0, &own));
	if (!rc)
		rc = connect(c->fd, &name.any, n);
	c->asked = !rc;
	if (c->fd >= 0 && rc && errno == EINPROGRESS)
		return watch_socket(c->rdma, c->fd, c, EPOLLOUT) ? NULL
								 : "no connection to the server";
	if (!rc && is_own(c->rdma, c->fd))
		return watch_socket(c->rdma, c->fd, c, EPOLLIN) && send_packet(c, PACKET_REQUEST)
			       ? NULL
			       : "no connection to the server";
	return retry_later(c);
}

/* The end of a call that was in progress. */
static const char *ask(struct doca_rdma_connection *c)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
	int error;
	socklen_t n = sizeof error;
	if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &n) || error)
		return retry_later(c);
	c->asked = true;
	return !epoll_ctl(c->rdma->sockets, EPOLL_CTL_MOD, c->fd, &e) && send_packet(c, PACKET_REQUEST)
		       ? NULL
		       : "no connection to the server";
}

/* What a connection that calls does when there is no event. */
static const char *look_after(struct doca_rdma_connection *c)
{
	const uint64_t now = now_ns();
	if (c->fd < 0)
		return now < c->again_ns ? NULL : call(c);
	return c->asked || now < c->until_ns ? NULL : "the server's machine does not answer";
}

/* A caller that stays silent must not keep a connection that another could have. */
static bool is_late(const struct doca_rdma_connection *c)
{
	return is_tcp(c->rdma) && (c->state == CONNECTION_CALLED || c->state == CONNECTION_ACCEPTED) &&
	       now_ns() >= c->until_ns;
}

/* Calls the servers that did not listen yet, and ends callers that are late. */
static void look_after_all(struct doca_rdma *r)
{
	for (struct doca_rdma_connection *c = r->connections, *next; c; c = next) {
		next = c->next;
		const char *why = c->state == CONNECTION_CALLING ? look_after(c) : NULL;
		if (why)
			fail_connection(c, why);
		else if (is_late(c))
			hung_up(c, "the peer has not answered in time");
	}
}

static doca_error_t connect_to(struct doca_rdma *r, const struct doca_rdma_addr *a, union doca_data data)
{
	struct doca_rdma_connection *c;
	TRY(rdma_connection_new(r, "doca_rdma_connect_to_addr", &c));
	c->user_data = data;
	c->state = CONNECTION_CALLING;
	memset(c->peer_gid, 0, sizeof c->peer_gid);
	if (a->type == DOCA_RDMA_ADDR_TYPE_GID)
		memcpy(c->peer_gid, &a->ip6.sin6_addr, sizeof c->peer_gid);
	c->addr = copy_of(a);
	c->until_ns = now_ns() + (is_tcp(r) ? TCP_NS : CALL_NS);
	const char *why = !c->addr	 ? "no memory for its address"
			  : !is_tcp(r) && !is_local(a) ? "the address is of another machine"
					 : call(c);
	if (why)
		fail_connection(c, why);
	softdoca_pe_kick(r->ctx.pe);
	return DOCA_SUCCESS;
}

doca_error_t doca_rdma_connect_to_addr(struct doca_rdma *rdma, struct doca_rdma_addr *addr,
				       union doca_data connection_user_data)
{
	CHECK_OBJECT(rdma, OBJECT_RDMA, "an RDMA context");
	CHECK_OBJECT(addr, OBJECT_RDMA_ADDR, "an RDMA address");
	if (!rdma->ctx.pe)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context has no progress engine");
	RETURN_INSIDE(rdma->ctx.pe, connect_to(rdma, addr, connection_user_data));
}

static bool handle_accept(struct doca_rdma_connection *c, const struct rdma_packet *p)
{
	static const uint8_t any[sizeof c->peer_gid];
	const uint8_t *gid = p->blob.address.gid;
	const bool right = (!memcmp(c->peer_gid, any, sizeof any) || !memcmp(c->peer_gid, gid, sizeof any)) &&
			   is_of_peer(c, &p->blob);
	if (p->kind != PACKET_ACCEPT || !right || rdma_connection_join(c, &p->blob) ||
	    !send_packet(c, PACKET_READY)) {
		fail_connection(c, p->kind == PACKET_REJECT ? "the server has rejected it"
				   : right                  ? "the server is gone"
							    : "the server has another GID");
		return false;
	}
	return true;
}

/* ---- the server ---- */

static doca_error_t open_port(struct doca_rdma *r, struct rdma_listener *l)
{
	union name name;
	const socklen_t n = bind_address(r, l->port, &name);
	const int one = 1;
	l->fd = open_socket(r, &name);
	if (l->fd >= 0 && !setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) &&
	    !bind(l->fd, &name.any, n) && !listen(l->fd, BACKLOG) &&
	    watch_socket(r, l->fd, l, EPOLLIN))
		return DOCA_SUCCESS;
	return errno == EADDRINUSE
		       ? REFUSE(DOCA_ERROR_IN_USE, "a context already listens to port %u", l->port)
		       : REFUSE(DOCA_ERROR_OPERATING_SYSTEM, "port %u: %s", l->port, strerror(errno));
}

static doca_error_t listen_to(struct doca_rdma *r, uint16_t port)
{
	if (r->ctx.state != DOCA_CTX_STATE_RUNNING)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context is not running");
	if (!r->ctx.pe)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the context has no progress engine");
	struct rdma_listener *l = softdoca_object_new(OBJECT_RDMA_LISTENER, sizeof *l);
	if (!l)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a port");
	l->port = port;
	doca_error_t error = open_port(r, l);
	if (error) {
		end_socket(r, &l->fd);
		softdoca_object_free(l);
		return error;
	}
	l->next = r->listeners;
	r->listeners = l;
	return DOCA_SUCCESS;
}

static void close_port(struct doca_rdma *r, struct rdma_listener **at)
{
	struct rdma_listener *l = *at;
	*at = l->next;
	end_socket(r, &l->fd);
	softdoca_object_free(l);
}

static doca_error_t stop_listening(struct doca_rdma *r, uint16_t port)
{
	struct rdma_listener **at = &r->listeners;
	while (*at && (*at)->port != port)
		at = &(*at)->next;
	if (!*at)
		return REFUSE(DOCA_ERROR_NOT_FOUND, "the context does not listen to port %u", port);
	close_port(r, at);
	return DOCA_SUCCESS;
}

/* Calls a function of a context and a port, in its progress engine. */
static doca_error_t with_port(struct doca_rdma *rdma, uint16_t port,
			      doca_error_t (*what)(struct doca_rdma *, uint16_t))
{
	CHECK_OBJECT(rdma, OBJECT_RDMA, "an RDMA context");
	RETURN_INSIDE(rdma->ctx.pe, what(rdma, port));
}

doca_error_t doca_rdma_start_listen_to_port(struct doca_rdma *rdma, uint16_t port)
{
	return with_port(rdma, port, listen_to);
}

doca_error_t doca_rdma_stop_listen_to_port(struct doca_rdma *rdma, uint16_t port)
{
	return with_port(rdma, port, stop_listening);
}

/* Makes room in a context that has all its connections: ends the oldest one that has said nothing. */
static void end_silent(struct doca_rdma *r)
{
	struct doca_rdma_connection *oldest = NULL;
	for (struct doca_rdma_connection *c = r->connections; c; c = c->next) /* the newest first */
		if (c->state == CONNECTION_CALLED)
			oldest = c;
	if (oldest && r->n_connections == r->max_connections)
		rdma_connection_free(oldest);
}

/* A context that has all its connections ends the caller's. */
static void take_call(struct doca_rdma *r, struct rdma_listener *l)
{
	struct doca_rdma_connection *c = NULL;
	int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	end_silent(r);
	if (!is_own(r, fd) || rdma_connection_new(r, "doca_pe_progress", &c) ||
	    !watch_socket(r, fd, c, EPOLLIN)) {
		close(fd);
		if (c)
			rdma_connection_free(c);
		return;
	}
	c->fd = fd;
	c->state = CONNECTION_CALLED;
	c->until_ns = now_ns() + TCP_NS;
	doca_rdma_addr_create(DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", l->port, &c->addr);
}

doca_error_t doca_rdma_connection_get_addr(const struct doca_rdma_connection *rdma_connection,
					   struct doca_rdma_addr **addr)
{
	CHECK_CONNECTION(rdma_connection);
	CHECK_OUT(addr);
	if (!rdma_connection->addr)
		return REFUSE(DOCA_ERROR_BAD_STATE, "connection %u was not made by address",
			      rdma_connection->id);
	*addr = rdma_connection->addr;
	return DOCA_SUCCESS;
}

static bool handle_request(struct doca_rdma_connection *c, const struct rdma_packet *p)
{
	struct doca_rdma *r = c->rdma;
	if (p->kind != PACKET_REQUEST || !r->request_cb || !is_of_peer(c, &p->blob)) {
		send_packet(c, PACKET_REJECT);
		rdma_connection_free(c);
		return false;
	}
	c->peer = p->blob;
	c->state = CONNECTION_REQUESTED;
	r->request_cb(c, r->ctx.user_data);
	return true;
}

static doca_error_t accept_it(struct doca_rdma_connection *c)
{
	if (c->state != CONNECTION_REQUESTED)
		return REFUSE(DOCA_ERROR_BAD_STATE, "connection %u does not wait for an answer", c->id);
	TRY(rdma_connection_join(c, &c->peer));
	if (!send_packet(c, PACKET_ACCEPT))
		return REFUSE(DOCA_ERROR_NOT_CONNECTED, "the peer of connection %u is gone", c->id);
	c->state = CONNECTION_ACCEPTED;
	c->until_ns = now_ns() + TCP_NS;
	return DOCA_SUCCESS;
}

static doca_error_t reject_it(struct doca_rdma_connection *c)
{
	if (c->state != CONNECTION_REQUESTED)
		return REFUSE(DOCA_ERROR_BAD_STATE, "connection %u does not wait for an answer", c->id);
	send_packet(c, PACKET_REJECT);
	rdma_connection_free(c);
	return DOCA_SUCCESS;
}

static doca_error_t answer(struct doca_rdma_connection *c,
			   doca_error_t (*how_to)(struct doca_rdma_connection *))
{
	RETURN_INSIDE(c->rdma->ctx.pe, how_to(c));
}

doca_error_t doca_rdma_connection_accept(struct doca_rdma_connection *rdma_connection, void *private_data,
					 uint8_t private_data_len)
{
	CHECK_CONNECTION(rdma_connection);
	if (private_data_len && !private_data)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "private_data is NULL, its length is %u",
			      private_data_len);
	return answer(rdma_connection, accept_it);
}

doca_error_t doca_rdma_connection_reject(struct doca_rdma_connection *rdma_connection)
{
	CHECK_CONNECTION(rdma_connection);
	return answer(rdma_connection, reject_it);
}

/* ---- progress ---- */

static bool report_established(struct doca_rdma_connection *c)
{
	struct doca_rdma *r = c->rdma;
	c->state = CONNECTION_CONNECTED;
	rdma_spread_receives(r);
	if (r->established_cb)
		r->established_cb(c, c->user_data, r->ctx.user_data);
	return r->established_cb;
}

/* Reads what has arrived, so that it wakes nobody again. Returns whether the peer has said a packet, in
 * *p: it says one in three states only. */
static bool read_packet(struct doca_rdma_connection *c, struct rdma_packet *p)
{
	const bool speaks = c->state == CONNECTION_CALLING || c->state == CONNECTION_CALLED ||
			    c->state == CONNECTION_ACCEPTED;
	const ssize_t n = recv(c->fd, (char *)&c->heard + c->n_heard, sizeof c->heard - c->n_heard,
			       MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	c->n_heard += n > 0 ? (size_t)n : 0;
	const bool whole = c->n_heard == sizeof c->heard;
	if (n > 0 && speaks && !whole && is_tcp(c->rdma))
		return false; /* the rest is on its way */
	if (n <= 0 || !speaks || !whole || rdma_blob_parse(&c->heard.blob, sizeof c->heard.blob, &p->blob)) {
		hung_up(c, n <= 0 ? "the peer is gone" : "the peer does not speak the protocol");
		return false;
	}
	p->kind = c->heard.kind;
	c->n_heard = 0;
	return true;
}

static bool handle_packet(struct doca_rdma_connection *c)
{
	struct rdma_packet p;
	if (c->state == CONNECTION_CALLING && !c->asked) {
		const char *why = ask(c);
		if (why)
			fail_connection(c, why);
		return false;
	}
	if (!read_packet(c, &p))
		return false;
	if (c->state == CONNECTION_CALLED)
		return handle_request(c, &p);
	if (c->state == CONNECTION_CALLING)
		return handle_accept(c, &p) && report_established(c);
	if (p.kind == PACKET_READY)
		return report_established(c);
	hung_up(c, "the peer does not speak the protocol");
	return false;
}

bool rdma_handle_event(struct doca_rdma *r)
{
	struct epoll_event e;
	if (r->pid != getpid())
		return false;
	const uint64_t now = now_ns();
	if (now - r->looked_ns < LOOK_NS)
		return false;
	look_after_all(r);
	if (r->sockets < 0 || epoll_wait(r->sockets, &e, 1, 0) != 1) {
		r->looked_ns = now; /* otherwise there may be another one */
		return false;
	}
	if (!object_is(e.data.ptr, OBJECT_RDMA_LISTENER))
		return handle_packet(e.data.ptr);
	take_call(r, e.data.ptr);
	return false;
}

void rdma_stop_listening(struct doca_rdma *r)
{
	while (r->listeners)
		close_port(r, &r->listeners);
}
