// SPDX-License-Identifier: Apache-2.0
/* Endpoints of Comm Channel: properties, start and end. Sources: "CC 2.2" is the comment of that
 * release's header; "guess" marks an assumption that no published source confirms. */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "clock.h"
#include "comm_channel.h"

/* Of 1.3: as in include/doca_comm_channel.h. */
struct init_attr {
	uint32_t cookie, flags, max_msgs, msg_size;
};
enum { FLAG_NONBLOCK = 1 };
#define CONNECT_NS ((uint64_t)5 * 1000 * 1000 * 1000) /* guess */

/* The limits of softdoca's Comch do not depend on the device. */
static uint32_t limit_of(doca_error_t (*get)(const struct doca_devinfo *, uint32_t *),
			 const struct cc_endpoint *ep)
{
	uint32_t limit = 0;
	return ep->dev && get(&ep->dev->info, &limit) == DOCA_SUCCESS ? limit : UINT16_MAX;
}

DOCA_STABLE doca_error_t doca_comm_channel_ep_create(struct cc_endpoint **ep)
{
	CHECK_OUT(ep);
	struct cc_endpoint *e = softdoca_object_new(OBJECT_COMM_CHANNEL_ENDPOINT, sizeof *e);
	if (!e || doca_pe_create(&e->pe)) {
		if (e)
			softdoca_object_free(e);
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for an endpoint");
	}
	e->send_queue = e->recv_queue = QUEUE_DEFAULT;
	e->send.fd = e->send.event = e->recv.fd = e->recv.event = -1;
	*ep = e;
	return DOCA_SUCCESS;
}

/* ---- properties ---- */

static doca_error_t may_set(const struct cc_endpoint *ep, const char *func)
{
	if (!ep->ctx)
		return DOCA_SUCCESS;
	return REFUSE_FOR(func, DOCA_ERROR_BAD_STATE, "the endpoint is active"); /* CC 2.2 */
}

DOCA_STABLE doca_error_t doca_comm_channel_ep_set_device(struct cc_endpoint *ep,
							 struct doca_dev *device)
{
	CHECK_ENDPOINT(ep);
	CHECK_DEV(device);
	doca_error_t e = may_set(ep, __func__);
	if (!e)
		ep->dev = device;
	return e;
}

DOCA_STABLE doca_error_t doca_comm_channel_ep_set_device_rep(struct cc_endpoint *ep,
							     struct doca_dev_rep *device_rep)
{
	CHECK_ENDPOINT(ep);
	CHECK_OBJECT(device_rep, OBJECT_DEV_REP, "an open representor");
	doca_error_t e = may_set(ep, __func__);
	if (!e)
		ep->rep = device_rep;
	return e;
}

static doca_error_t set_number(struct cc_endpoint *ep, uint16_t *field, uint16_t value,
			       uint32_t limit, const char *func)
{
	TRY(may_set(ep, func));
	if (!value || value > limit)
		return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE, "%u: it must be 1 to %u", value,
				  limit);
	*field = value;
	return DOCA_SUCCESS;
}

DOCA_STABLE doca_error_t doca_comm_channel_ep_set_max_msg_size(struct cc_endpoint *ep,
							       uint16_t max_msg_size)
{
	CHECK_ENDPOINT(ep);
	return set_number(ep, &ep->max_msg, max_msg_size,
			  limit_of(doca_comch_cap_get_max_msg_size, ep), __func__);
}

DOCA_STABLE doca_error_t doca_comm_channel_ep_set_send_queue_size(struct cc_endpoint *ep,
								  uint16_t send_queue_size)
{
	CHECK_ENDPOINT(ep);
	return set_number(ep, &ep->send_queue, send_queue_size,
			  limit_of(doca_comch_cap_get_max_send_tasks, ep), __func__);
}

DOCA_STABLE doca_error_t doca_comm_channel_ep_set_recv_queue_size(struct cc_endpoint *ep,
								  uint16_t recv_queue_size)
{
	CHECK_ENDPOINT(ep);
	return set_number(ep, &ep->recv_queue, recv_queue_size,
			  limit_of(doca_comch_cap_get_max_recv_queue_size, ep), __func__);
}

DOCA_STABLE GETTER(doca_comm_channel_ep_get_device, CHECK_ENDPOINT, struct cc_endpoint,
		   struct doca_dev *, handle->dev)
DOCA_STABLE GETTER(doca_comm_channel_ep_get_device_rep, CHECK_ENDPOINT, struct cc_endpoint,
		   struct doca_dev_rep *, handle->rep)

DOCA_STABLE doca_error_t doca_comm_channel_ep_get_max_msg_size(struct cc_endpoint *ep,
							       uint16_t *max_msg_size)
{
	CHECK_ENDPOINT(ep);
	uint16_t limit = (uint16_t)limit_of(doca_comch_cap_get_max_msg_size, ep);
	return SET_OUT(max_msg_size, ep->max_msg ? ep->max_msg : limit);
}

DOCA_STABLE GETTER(doca_comm_channel_ep_get_send_queue_size, CHECK_ENDPOINT, struct cc_endpoint,
		   uint16_t, handle->send_queue)
DOCA_STABLE GETTER(doca_comm_channel_ep_get_recv_queue_size, CHECK_ENDPOINT, struct cc_endpoint,
		   uint16_t, handle->recv_queue)

/* ---- limits ---- */

DOCA_STABLE doca_error_t doca_comm_channel_get_max_service_name_len(uint32_t *max_service_name_len)
{
	return SET_OUT(max_service_name_len, 120); /* as doca_comch_cap_get_max_name_len() */
}

DOCA_STABLE doca_error_t doca_comm_channel_get_max_message_size(struct doca_devinfo *devinfo,
		uint32_t *max_message_size)
{
	return doca_comch_cap_get_max_msg_size(devinfo, max_message_size);
}

DOCA_STABLE doca_error_t doca_comm_channel_get_max_send_queue_size(struct doca_devinfo *devinfo,
		uint32_t *max_send_queue_size)
{
	return doca_comch_cap_get_max_send_tasks(devinfo, max_send_queue_size);
}

DOCA_STABLE doca_error_t doca_comm_channel_get_max_recv_queue_size(struct doca_devinfo *devinfo,
		uint32_t *max_recv_queue_size)
{
	return doca_comch_cap_get_max_recv_queue_size(devinfo, max_recv_queue_size);
}

DOCA_STABLE doca_error_t doca_comm_channel_get_service_max_num_connections(struct doca_devinfo *devinfo,
		uint32_t *max_num_connections)
{
	return doca_comch_cap_get_max_clients(devinfo, max_num_connections);
}

/* ---- 1.3: an endpoint opens its devices itself ---- */

DOCA_STABLE doca_error_t softdoca_1_3_comm_channel_ep_create(const struct init_attr *attr,
							     struct cc_endpoint **ep)
{
	CHECK_OUT(attr);
	if (attr->max_msgs > UINT16_MAX || attr->msg_size > UINT16_MAX) /* CC 1.3 */
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "%u messages of %u bytes: at most %u",
			      attr->max_msgs, attr->msg_size, UINT16_MAX);
	TRY(doca_comm_channel_ep_create(ep));
	(*ep)->max_msg = (uint16_t)attr->msg_size;
	if (attr->max_msgs)
		(*ep)->send_queue = (*ep)->recv_queue = (uint16_t)attr->max_msgs;
	(*ep)->blocking = !(attr->flags & FLAG_NONBLOCK);
	(*ep)->owns_devices = true;
	return DOCA_SUCCESS;
}

static void open_rep(struct cc_endpoint *ep)
{
	struct doca_devinfo_rep **list;
	uint32_t n;
	if (doca_devinfo_rep_create_list(ep->dev, DOCA_DEVINFO_REP_FILTER_NET, &list, &n))
		return;
	if (n)
		doca_dev_rep_open(list[0], &ep->rep);
	doca_devinfo_rep_destroy_list(list);
}

static void open_devices(struct cc_endpoint *ep, enum softdoca_cap cap)
{
	struct doca_devinfo **list;
	uint32_t n;
	if (!ep->owns_devices || ep->dev || doca_devinfo_create_list(&list, &n))
		return;
	for (uint32_t i = 0; i < n && !ep->dev; i++)
		if (list[i]->f.caps & cap)
			doca_dev_open(list[i], &ep->dev);
	doca_devinfo_destroy_list(list);
	if (ep->dev && cap == CAP_COMCH_SERVER)
		open_rep(ep);
}

static void close_devices(struct cc_endpoint *ep)
{
	if (!ep->owns_devices)
		return;
	if (ep->rep)
		doca_dev_rep_close(ep->rep);
	doca_dev_close(ep->dev);
}

/* ---- events ---- */

static struct cc_peer *new_peer(struct cc_endpoint *ep, struct doca_comch_connection *connection)
{
	struct cc_peer *p = softdoca_object_new(OBJECT_COMM_CHANNEL_PEER, sizeof *p);
	if (!p)
		return NULL;
	p->ep = ep;
	p->connection = connection;
	p->id = ++ep->last_id;
	p->next = ep->peers;
	ep->peers = p;
	if (connection)
		doca_comch_connection_set_user_data(connection, (union doca_data){.ptr = p});
	return p;
}

static struct cc_endpoint *endpoint_of(struct doca_ctx *ctx)
{
	union doca_data data = {.ptr = NULL};
	doca_ctx_get_user_data(ctx, &data);
	return data.ptr;
}

static void send_completed(struct doca_comch_task_send *task, union doca_data task_data,
			   union doca_data ctx_data)
{
	struct cc_endpoint *ep = ctx_data.ptr;
	for (struct cc_peer *p = ep->peers; p; p = p->next)
		if (p->id == task_data.u64)
			p->now.in_flight--;
	doca_task_free(doca_comch_task_send_as_task(task));
}

/* Appends a message to those that the program has not taken yet. */
static void append(struct cc_endpoint *ep, struct cc_received *m)
{
	m->next = NULL;
	*(ep->last ? &ep->last->next : &ep->first) = m;
	ep->last = m;
	ep->queued++;
	m->peer->queued++;
	if (ep->queued >= ep->recv_queue)
		softdoca_comch_hold(ep->ctx, true);
}

static void message_received(struct doca_comch_event_msg_recv *event, uint8_t *bytes, uint32_t len,
			     struct doca_comch_connection *connection)
{
	struct cc_peer *p = doca_comch_connection_get_user_data(connection).ptr;
	struct cc_endpoint *ep = NULL;
	(void)event;
	if (!p) { /* a client's: its connection is known by now */
		struct doca_comch_client *client = doca_comch_client_get_client_ctx(connection);
		ep = client ? endpoint_of(doca_comch_client_as_ctx(client)) : NULL;
		p = ep ? ep->peers : NULL;
	}
	struct cc_received *m = p ? malloc(sizeof *m + len) : NULL;
	if (!m) {
		softdoca_log(DOCA_LOG_LEVEL_ERROR, __func__, "no memory: a message is lost");
		return;
	}
	*m = (struct cc_received){.peer = p, .len = len};
	memcpy(m->bytes, bytes, len);
	append(p->ep, m);
}

static void connected(struct doca_comch_event_connection_status_changed *event,
		      struct doca_comch_connection *connection, uint8_t successful)
{
	struct doca_comch_server *server = doca_comch_server_get_server_ctx(connection);
	(void)event;
	if (successful && server)
		new_peer(endpoint_of(doca_comch_server_as_ctx(server)), connection);
}

static void disconnected(struct doca_comch_event_connection_status_changed *event,
			 struct doca_comch_connection *connection, uint8_t successful)
{
	struct cc_peer *p = doca_comch_connection_get_user_data(connection).ptr;
	(void)event;
	(void)successful;
	if (!p)
		return;
	p->connection = NULL;
	p->lost = true;
	if (!p->queued && !p->now.received) /* the program never had its address */
		cc_peer_free(p);
}

/* ---- start ---- */

static doca_error_t may_start(struct cc_endpoint *ep, const char *name, const char *func)
{
	const char *why = !name ? "the name is NULL" : "the endpoint is active";
	doca_error_t error = !name ? DOCA_ERROR_INVALID_VALUE : DOCA_ERROR_NOT_PERMITTED;
	if (name && !ep->ctx) {
		if (ep->dev)
			return DOCA_SUCCESS;
		why = "no device was set";
		error = DOCA_ERROR_BAD_STATE;
	}
	softdoca_log(DOCA_LOG_LEVEL_WARNING, func, "%s", why); /* CC 2.2 */
	return error;
}

/* Connects the context to the engine and starts it. */
static doca_error_t start(struct cc_endpoint *ep)
{
	doca_error_t e = doca_ctx_set_user_data(ep->ctx, (union doca_data){.ptr = ep});
	if (!e)
		e = doca_pe_connect_ctx(ep->pe, ep->ctx);
	if (!e)
		e = doca_ctx_start(ep->ctx);
	return e == DOCA_ERROR_IN_PROGRESS ? DOCA_SUCCESS : e;
}

static doca_error_t start_server(struct cc_endpoint *ep, const char *name)
{
	TRY(doca_comch_server_create(ep->dev, ep->rep, name, &ep->server));
	ep->ctx = doca_comch_server_as_ctx(ep->server);
	doca_error_t e = doca_comch_server_task_send_set_conf(ep->server, send_completed,
							      send_completed, ep->send_queue);
	if (!e)
		e = doca_comch_server_event_msg_recv_register(ep->server, message_received);
	if (!e)
		e = doca_comch_server_event_connection_status_changed_register(
			ep->server, connected, disconnected);
	if (!e && ep->max_msg)
		e = doca_comch_server_set_max_msg_size(ep->server, ep->max_msg);
	return e ? e : start(ep);
}

static doca_error_t start_client(struct cc_endpoint *ep, const char *name)
{
	TRY(doca_comch_client_create(ep->dev, name, &ep->client));
	ep->ctx = doca_comch_client_as_ctx(ep->client);
	doca_error_t e = doca_comch_client_task_send_set_conf(ep->client, send_completed,
							      send_completed, ep->send_queue);
	if (!e)
		e = doca_comch_client_event_msg_recv_register(ep->client, message_received);
	if (!e && ep->max_msg)
		e = doca_comch_client_set_max_msg_size(ep->client, ep->max_msg);
	return e ? e : start(ep);
}

DOCA_STABLE doca_error_t doca_comm_channel_ep_listen(struct cc_endpoint *local_ep, const char *name)
{
	CHECK_ENDPOINT(local_ep);
	open_devices(local_ep, CAP_COMCH_SERVER);
	TRY(may_start(local_ep, name, __func__));
	if (!local_ep->rep) /* CC 2.2 */
		return REFUSE(DOCA_ERROR_BAD_STATE, "no representor was set");
	doca_error_t e = start_server(local_ep, name);
	if (e)
		cc_endpoint_end(local_ep);
	/* CC 2.2: registration of the service failed */
	return e == DOCA_ERROR_ALREADY_EXIST || e == DOCA_ERROR_IN_USE
		       ? DOCA_ERROR_CONNECTION_ABORTED
		       : e;
}

DOCA_STABLE doca_error_t doca_comm_channel_peer_addr_update_info(struct cc_peer *peer_addr);

/* Waits for the connection, but not for ever if the server does not answer. */
static doca_error_t await_connection(struct cc_peer *p)
{
	const uint64_t deadline = now_ns() + CONNECT_NS;
	unsigned int rounds = 0;
	doca_error_t e;
	while ((e = doca_comm_channel_peer_addr_update_info(p)) == DOCA_ERROR_CONNECTION_INPROGRESS) {
		if (now_ns() >= deadline)
			return REFUSE(DOCA_ERROR_CONNECTION_ABORTED, "the server does not answer");
		cc_endpoint_wait(p->ep, &rounds);
	}
	return e;
}

DOCA_STABLE doca_error_t doca_comm_channel_ep_connect(struct cc_endpoint *local_ep,
						      const char *name, struct cc_peer **peer_addr)
{
	CHECK_ENDPOINT(local_ep);
	CHECK_OUT(peer_addr);
	open_devices(local_ep, CAP_COMCH_CLIENT);
	TRY(may_start(local_ep, name, __func__));
	struct cc_peer *p = new_peer(local_ep, NULL);
	doca_error_t e = p ? start_client(local_ep, name) : DOCA_ERROR_NO_MEMORY;
	if (!e && local_ep->blocking)
		e = await_connection(p);
	if (e)
		cc_endpoint_end(local_ep);
	else
		*peer_addr = p;
	return e;
}

/* ---- end ---- */

void cc_peer_free(struct cc_peer *peer)
{
	struct cc_endpoint *ep = peer->ep;
	struct cc_peer **at = &ep->peers;
	while (*at != peer)
		at = &(*at)->next;
	*at = peer->next;
	struct cc_received *m, **from = &ep->first;
	ep->last = NULL;
	while ((m = *from)) {
		if (m->peer == peer) {
			*from = m->next;
			ep->queued--;
			free(m);
		} else {
			ep->last = m;
			from = &m->next;
		}
	}
	softdoca_object_free(peer);
}

void cc_endpoint_end(struct cc_endpoint *ep)
{
	if (ep->ctx) {
		doca_ctx_stop(ep->ctx);
		while (ep->ctx->state != DOCA_CTX_STATE_IDLE)
			doca_pe_progress(ep->pe);
		if (ep->client)
			doca_comch_client_destroy(ep->client);
		else
			doca_comch_server_destroy(ep->server);
	}
	ep->ctx = NULL;
	ep->client = NULL;
	ep->server = NULL;
	while (ep->peers)
		cc_peer_free(ep->peers);
}

static void close_channel(struct cc_channel *c)
{
	if (c->fd >= 0)
		close(c->fd);
	if (c->event >= 0)
		close(c->event);
}

DOCA_STABLE doca_error_t doca_comm_channel_ep_destroy(struct cc_endpoint *local_ep)
{
	if (!object_is(local_ep, OBJECT_COMM_CHANNEL_ENDPOINT)) /* CC 2.2 */
		return REFUSE(DOCA_ERROR_NOT_CONNECTED, "%p is not an endpoint", (void *)local_ep);
	cc_endpoint_end(local_ep);
	close_channel(&local_ep->send);
	close_channel(&local_ep->recv);
	close_devices(local_ep);
	doca_pe_destroy(local_ep->pe);
	softdoca_object_free(local_ep);
	return DOCA_SUCCESS;
}

/* ---- waiting ---- */

static bool open_channel(struct cc_channel *c, int engine)
{
	struct epoll_event e = {.events = EPOLLIN};
	if (c->fd >= 0)
		return true;
	c->fd = epoll_create1(EPOLL_CLOEXEC);
	c->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->fd >= 0 && c->event >= 0 && !epoll_ctl(c->fd, EPOLL_CTL_ADD, engine, &e) &&
	    !epoll_ctl(c->fd, EPOLL_CTL_ADD, c->event, &e))
		return true;
	close_channel(c);
	c->fd = c->event = -1;
	return false;
}

DOCA_STABLE doca_error_t doca_comm_channel_ep_get_event_channel(struct cc_endpoint *local_ep,
								int *send_event_channel,
								int *recv_event_channel)
{
	CHECK_ENDPOINT(local_ep);
	if (!send_event_channel && !recv_event_channel)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "both outputs are NULL");
	if (!local_ep->ctx) /* CC 2.2 */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the endpoint is not active");
	doca_notification_handle_t engine;
	TRY(doca_pe_get_notification_handle(local_ep->pe, &engine));
	if (!open_channel(&local_ep->send, engine) || !open_channel(&local_ep->recv, engine))
		return REFUSE(DOCA_ERROR_NOT_FOUND, "no file descriptors are left"); /* CC 2.2 */
	if (send_event_channel)
		*send_event_channel = local_ep->send.fd;
	if (recv_event_channel)
		*recv_event_channel = local_ep->recv.fd;
	return DOCA_SUCCESS;
}
