// SPDX-License-Identifier: Apache-2.0
/*
 * Connections of a client and its server. Bytes from a socket are untrusted: only this user can
 * access the folder, but any of their programs may connect.
 */
#include "fast.h"
#include "share/peer_fds.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOG_INFO(...) softdoca_log(DOCA_LOG_LEVEL_INFO, __func__, __VA_ARGS__)

int comch_put(int fd, const void *packet, size_t size)
{
	ssize_t n;
	do
		n = send(fd, packet, size, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0; /* a packet is sent completely or not at all */
}

int comch_reply(int fd, enum packet_kind kind, uint32_t max_msg, doca_error_t error)
{
	struct reply r = {{PACKET_MAGIC, PACKET_VERSION, (uint16_t)kind}, max_msg, (uint32_t)error};
	return comch_put(fd, &r, sizeof r);
}

struct doca_comch_connection *comch_connection_new(struct endpoint *e, int fd)
{
	struct doca_comch_connection *c = softdoca_object_new(OBJECT_COMCH_CONNECTION, sizeof *c);
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
	struct fast_link *link = c ? link_new(e, fd) : NULL;
	if (!link || epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
		if (link)
			link_leave(link);
		if (c)
			softdoca_object_free(c);
		return NULL;
	}
	c->fast = link;
	c->e = e;
	c->fd = fd;
	c->id = ++e->last_id;
	c->over.connection = c;
	c->link = &e->connections;
	c->next = e->connections;
	if (c->next)
		c->next->link = &c->next;
	e->connections = c;
	e->n_connections++;
	return c;
}

static bool is_held(const struct doca_comch_connection *c)
{
	return c->e->full && c->state == OPEN;
}

void comch_connection_watch(struct doca_comch_connection *c)
{
	/* epoll reports the end of a held connection whatever the mask is; edge-triggered, it does
	 * so only once. */
	uint32_t events = is_held(c) ? EPOLLET : EPOLLIN;
	struct epoll_event event = {.events = events, .data.ptr = c};
	if (c->pending.first)
		event.events |= EPOLLOUT;
	epoll_ctl(c->e->epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
}

void comch_connection_unlist(struct doca_comch_connection *c)
{
	if (!c->link)
		return;
	*c->link = c->next;
	if (c->next)
		c->next->link = c->link;
	c->link = NULL;
}

void comch_connection_end(struct doca_comch_connection *c, doca_error_t error)
{
	struct item *i;
	if (c->state == OVER)
		return;
	c->state = OVER;
	c->e->n_connections--;
	link_end(c, NULL);
	if (c->fd >= 0) {
		epoll_ctl(c->e->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
		close(c->fd);
		c->fd = -1;
	}
	while ((i = items_take(&c->pending)))
		comch_send_done(i->task, error);
}

void comch_connection_free(struct doca_comch_connection *c)
{
	comch_connection_unlist(c);
	link_leave(link_detach(c));
	softdoca_object_free(c);
}

/* Handles the end of a connection: the peer closed it, died, or violated the protocol. Returns
 * whether a callback was called. */
static bool ended(struct doca_comch_connection *c, doca_error_t error)
{
	struct endpoint *e = c->e;
	bool greeting = c->state == GREETING;
	link_end(c, &e->items); /* so that its consumers expire first */
	comch_connection_end(c, error);
	if (e->is_server) {
		/* The program does not know of a client that sent no HELLO. */
		if (greeting)
			comch_connection_free(c);
		else
			comch_notify(e, &c->over);
		return false;
	}
	LOG_INFO(greeting ? "server '%s' did not accept the connection"
			  : "server '%s' closed the connection",
		 e->name);
	softdoca_ctx_fail(&e->ctx);
	return true;
}

static bool refuse_malformed(struct doca_comch_connection *c, ssize_t n)
{
	return REFUSE(ended(c, DOCA_ERROR_CONNECTION_ABORTED),
		      "Comch '%s': received %zd bytes that are not a packet of softdoca",
		      c->e->name, n);
}

static bool refuse_client(struct doca_comch_connection *c, doca_error_t error)
{
	softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__, "server '%s' refuses a client: %s",
		     c->e->name, doca_error_get_descr(error));
	comch_reply(c->fd, PACKET_REFUSED, c->e->max_msg, error);
	return ended(c, error);
}

/* Handles a client's HELLO. */
static bool greet(struct doca_comch_connection *c, const struct hello *h)
{
	struct endpoint *e = c->e;
	if (h->p.version != PACKET_VERSION)
		return refuse_client(c, DOCA_ERROR_UNSUPPORTED_VERSION);
	if (memcmp(h->name, e->name, sizeof h->name) ||
	    memcmp(h->function, e->function, sizeof h->function))
		return refuse_client(c, DOCA_ERROR_NOT_FOUND); /* another name with the same hash */
	if (!h->max_msg || h->max_msg > MSG_MAX)
		return refuse_client(c, DOCA_ERROR_INVALID_VALUE);
	c->peer_max = h->max_msg;
	if (!comch_reply(c->fd, PACKET_WELCOME, e->max_msg, DOCA_SUCCESS)) {
		c->state = OPEN;
		LOG_INFO("server '%s': a client connected, %u now", e->name, e->n_connections);
		e->connect_cb((void *)&e->event, c, 1);
		return true; /* the callback may have ended c, or the server */
	}
	/* The client has disconnected meanwhile. */
	comch_connection_end(c, DOCA_ERROR_CONNECTION_RESET);
	comch_connection_unlist(c);
	e->connect_cb((void *)&e->event, c, 0);
	comch_connection_free(c);
	return true;
}

/* Handles the server's reply. */
static bool answered(struct doca_comch_connection *c, const struct reply *r)
{
	if (r->p.kind == PACKET_REFUSED)
		return REFUSE(ended(c, DOCA_ERROR_CONNECTION_ABORTED), "server '%s' refuses: %s",
			      c->e->name, doca_error_get_descr((doca_error_t)r->error));
	if (r->p.version != PACKET_VERSION || !r->max_msg || r->max_msg > MSG_MAX)
		return refuse_malformed(c, sizeof *r);
	c->peer_max = r->max_msg;
	c->state = OPEN;
	LOG_INFO("connected to server '%s'", c->e->name);
	softdoca_ctx_move(&c->e->ctx, DOCA_CTX_STATE_RUNNING);
	return true;
}

/* fds are those of a consumer, or -1. */
static bool arrived(struct doca_comch_connection *c, struct message *m, ssize_t n, int fds[2])
{
	struct endpoint *e = c->e;
	size_t len = (size_t)n - sizeof m->p;
	if ((size_t)n < sizeof m->p || m->p.magic != PACKET_MAGIC)
		return refuse_malformed(c, n);
	if (c->state == OPEN && m->p.kind == PACKET_CONSUMER)
		return n == (ssize_t)sizeof(struct announcement) && m->p.version == PACKET_VERSION
			       ? remote_announced(c, (void *)m, fds)
			       : refuse_malformed(c, n);
	if (c->state == OPEN) {
		if (m->p.kind != PACKET_MESSAGE || m->p.version != PACKET_VERSION || !len ||
		    len > e->max_msg)
			return refuse_malformed(c, n);
		e->recv_cb((void *)&e->event, m->bytes, (uint32_t)len, c);
		return true;
	}
	if (e->is_server)
		return m->p.kind == PACKET_HELLO && n == (ssize_t)sizeof(struct hello)
			       ? greet(c, (void *)m)
			       : refuse_malformed(c, n);
	return (m->p.kind == PACKET_WELCOME || m->p.kind == PACKET_REFUSED) &&
			       n == (ssize_t)sizeof(struct reply)
		       ? answered(c, (void *)m)
		       : refuse_malformed(c, n);
}

bool comch_connection_event(struct doca_comch_connection *c, uint32_t events)
{
	struct message m; /* on the stack, because a callback may receive the next message */
	int fds[2];
	if (events & EPOLLOUT)
		comch_send_pending(c);
	if (is_held(c)) {
		if (events & EPOLLIN) /* not yet watched as a held one */
			comch_connection_watch(c);
		return false;
	}
	if (!(events & ~(uint32_t)EPOLLOUT))
		return false;
	ssize_t n = fast_receive(c->fd, &(struct iovec){&m, sizeof m}, 1, fds);
	if (n == -EAGAIN)
		return false;
	bool called = n > 0 ? arrived(c, &m, n, fds) : ended(c, DOCA_ERROR_CONNECTION_RESET);
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0) /* unless a consumer has taken it */
			close_peer_fd(fds[i]);
	return called;
}

doca_error_t doca_comch_connection_set_user_data(struct doca_comch_connection *connection,
						 union doca_data user_data)
{
	if (!object_is(connection, OBJECT_COMCH_CONNECTION))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a connection",
			      (void *)connection);
	connection->user_data = user_data;
	return DOCA_SUCCESS;
}

union doca_data doca_comch_connection_get_user_data(const struct doca_comch_connection *connection)
{
	if (!object_is(connection, OBJECT_COMCH_CONNECTION))
		return REFUSE((union doca_data){0}, "%p is not a connection",
			      (const void *)connection);
	return connection->user_data;
}
