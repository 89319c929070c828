// SPDX-License-Identifier: Apache-2.0
/* Messages and connections of Comm Channel. Sources: as in comm_channel_ep.c. */
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "comm_channel.h"

enum { FLAG_DONTWAIT = 1 };
/* A call that waits polls for ROUNDS_AWAKE rounds, about 100 us, within which most answers come;
 * then it sleeps on the descriptors. SLEEP_MS bounds the delay of an event that no descriptor
 * reports. */
enum { ROUNDS_AWAKE = 200, SLEEP_MS = 100 };
enum { EVENTS_MAX = 1024 }; /* of one call, besides messages */
#define FLUSH_NS ((uint64_t)2 * 1000 * 1000 * 1000) /* guess */

static uint64_t in_flight(const struct cc_endpoint *ep)
{
	uint64_t n = 0;
	for (const struct cc_peer *p = ep->peers; p; p = p->next)
		n += p->now.in_flight;
	return n;
}

static struct cc_peer *lost_peer(const struct cc_endpoint *ep)
{
	struct cc_peer *p = ep->peers;
	while (p && (!p->lost || p->told))
		p = p->next;
	return p;
}

/* ---- progress and waiting ---- */

/* Signals a channel that is `ready`, if the program waits for it. */
static void signal_channel(struct cc_channel *c, bool ready)
{
	const uint64_t one = 1;
	if (!c->armed || !ready || c->event < 0)
		return;
	if (write(c->event, &one, sizeof one) == sizeof one)
		c->armed = false;
}

/* Signals both channels: one call may have delivered what another thread waits for. */
static void settle(struct cc_endpoint *ep)
{
	signal_channel(&ep->recv, ep->first || lost_peer(ep));
	signal_channel(&ep->send, in_flight(ep) < ep->send_queue);
	if (ep->recv.armed || ep->send.armed)
		doca_pe_request_notification(ep->pe);
}

void cc_endpoint_progress(struct cc_endpoint *ep)
{
	if (ep->recv.armed || ep->send.armed)
		doca_pe_clear_notification(ep->pe, 0);
	if (ep->ctx)
		softdoca_comch_hold(ep->ctx, ep->queued >= ep->recv_queue);
	for (uint32_t left = ep->recv_queue + EVENTS_MAX; left && doca_pe_progress(ep->pe); left--)
		;
	/* The client's one peer. */
	struct cc_peer *p = ep->client ? ep->peers : NULL;
	if (p && !p->connection && ep->ctx->state == DOCA_CTX_STATE_RUNNING)
		doca_comch_client_get_connection(ep->client, &p->connection);
	if (p && ep->ctx->state != DOCA_CTX_STATE_RUNNING &&
	    ep->ctx->state != DOCA_CTX_STATE_STARTING) {
		p->lost = true;
		p->connection = NULL;
	}
	settle(ep);
}

void cc_endpoint_wait(struct cc_endpoint *ep, unsigned int *rounds)
{
	struct pollfd fd = {.events = POLLIN};
	if (++*rounds < ROUNDS_AWAKE ||
	    doca_pe_get_notification_handle(ep->pe, &fd.fd) != DOCA_SUCCESS ||
	    doca_pe_request_notification(ep->pe) != DOCA_SUCCESS) {
		sched_yield();
		return;
	}
	poll(&fd, 1, SLEEP_MS);
	doca_pe_clear_notification(ep->pe, 0);
}

static doca_error_t arm(struct cc_endpoint *ep, struct cc_channel *c)
{
	uint64_t count;
	if (c->event >= 0 && read(c->event, &count, sizeof count) < 0)
		count = 0; /* it was not signalled */
	c->armed = true;
	settle(ep);
	return DOCA_SUCCESS;
}

DOCA_STABLE doca_error_t doca_comm_channel_ep_event_handle_arm_send(struct cc_endpoint *local_ep)
{
	CHECK_ENDPOINT(local_ep);
	return arm(local_ep, &local_ep->send);
}

DOCA_STABLE doca_error_t doca_comm_channel_ep_event_handle_arm_recv(struct cc_endpoint *local_ep)
{
	CHECK_ENDPOINT(local_ep);
	return arm(local_ep, &local_ep->recv);
}

/* ---- messages ---- */

static doca_error_t send_once(struct cc_endpoint *ep, const void *msg, size_t len,
			      struct cc_peer *peer)
{
	struct doca_comch_task_send *task;
	cc_endpoint_progress(ep);
	if (peer->lost) /* CC 2.2 */
		return REFUSE(DOCA_ERROR_CONNECTION_RESET, "the connection is lost");
	if (!peer->connection) /* CC 2.2 */
		return REFUSE(DOCA_ERROR_NOT_CONNECTED, "the connection is in progress");
	if (in_flight(ep) >= ep->send_queue)
		return DOCA_ERROR_AGAIN;
	doca_error_t e =
		ep->client ? doca_comch_client_task_send_alloc_init(ep->client, peer->connection,
								    msg, (uint32_t)len, &task)
			   : doca_comch_server_task_send_alloc_init(ep->server, peer->connection,
								    msg, (uint32_t)len, &task);
	if (e)
		return e == DOCA_ERROR_NO_MEMORY ? DOCA_ERROR_AGAIN : e;
	struct doca_task *t = doca_comch_task_send_as_task(task);
	doca_task_set_user_data(t, (union doca_data){.u64 = peer->id});
	e = doca_task_submit(t);
	if (e) {
		doca_task_free(t);
		return e == DOCA_ERROR_AGAIN ? e : DOCA_ERROR_CONNECTION_RESET;
	}
	peer->now.in_flight++;
	peer->now.sent++;
	peer->now.sent_bytes += len;
	cc_endpoint_progress(ep);
	return DOCA_SUCCESS;
}

DOCA_STABLE doca_error_t doca_comm_channel_ep_sendto(struct cc_endpoint *local_ep, const void *msg,
						     size_t len, int flags,
						     struct cc_peer *peer_addr)
{
	CHECK_ENDPOINT(local_ep);
	CHECK_OUT(msg);
	if (!object_is(peer_addr, OBJECT_COMM_CHANNEL_PEER) || peer_addr->ep != local_ep) /* CC 2.2 */
		return REFUSE(DOCA_ERROR_NOT_CONNECTED, "%p is not an address of the endpoint",
			      (void *)peer_addr);
	if (!len || len > UINT32_MAX || (local_ep->max_msg && len > local_ep->max_msg)) /* CC 2.2 */
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "a message of %zu bytes: at most %u", len,
			      local_ep->max_msg);
	const bool wait = local_ep->blocking && !(flags & FLAG_DONTWAIT);
	unsigned int rounds = 0;
	doca_error_t e;
	while ((e = send_once(local_ep, msg, len, peer_addr)) == DOCA_ERROR_AGAIN && wait)
		cc_endpoint_wait(local_ep, &rounds);
	return e;
}

static doca_error_t receive_once(struct cc_endpoint *ep, void *msg, size_t *len,
				 struct cc_peer **peer_addr)
{
	if (!ep->first)
		cc_endpoint_progress(ep);
	struct cc_received *m = ep->first;
	struct cc_peer *lost = lost_peer(ep);
	if (m) {
		if (m->len > *len) /* guess */
			return REFUSE(DOCA_ERROR_INVALID_VALUE,
				      "a message of %u bytes, and a buffer of %zu", m->len, *len);
		memcpy(msg, m->bytes, m->len);
		*len = m->len;
		*peer_addr = m->peer;
		m->peer->now.received++;
		m->peer->now.received_bytes += m->len;
		m->peer->queued--;
		ep->queued--;
		ep->first = m->next;
		if (!ep->first)
			ep->last = NULL;
		free(m);
		return DOCA_SUCCESS;
	}
	if (!lost)
		return DOCA_ERROR_AGAIN;
	lost->told = ep->server != NULL; /* a client has no other one to wait for */
	*peer_addr = lost;
	return REFUSE(DOCA_ERROR_CONNECTION_RESET, "the connection is lost"); /* CC 2.2 */
}

DOCA_STABLE doca_error_t doca_comm_channel_ep_recvfrom(struct cc_endpoint *local_ep, void *msg,
						       size_t *len, int flags,
						       struct cc_peer **peer_addr)
{
	CHECK_ENDPOINT(local_ep);
	CHECK_OUT(msg);
	CHECK_OUT(len);
	CHECK_OUT(peer_addr);
	if (!local_ep->ctx) /* CC 2.2 */
		return REFUSE(DOCA_ERROR_NOT_CONNECTED, "the endpoint is not active");
	const bool wait = local_ep->blocking && !(flags & FLAG_DONTWAIT);
	unsigned int rounds = 0;
	doca_error_t e;
	while ((e = receive_once(local_ep, msg, len, peer_addr)) == DOCA_ERROR_AGAIN && wait)
		cc_endpoint_wait(local_ep, &rounds);
	return e;
}

/* ---- connections ---- */

/* Waits until the peer's socket has what was sent to it, but not for ever if the peer does not
 * read. */
static void flush(struct cc_endpoint *ep, const struct cc_peer *peer)
{
	const uint64_t deadline = now_ns() + FLUSH_NS;
	unsigned int rounds = 0;
	cc_endpoint_progress(ep);
	while (peer->now.in_flight && peer->connection && now_ns() < deadline) {
		cc_endpoint_wait(ep, &rounds);
		cc_endpoint_progress(ep);
	}
	if (peer->now.in_flight)
		softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__,
			     "%llu messages are lost: the peer did not read them",
			     (unsigned long long)peer->now.in_flight);
}

DOCA_STABLE doca_error_t doca_comm_channel_ep_disconnect(struct cc_endpoint *local_ep,
							 struct cc_peer *peer_addr)
{
	CHECK_ENDPOINT(local_ep);
	if (!object_is(peer_addr, OBJECT_COMM_CHANNEL_PEER) || peer_addr->ep != local_ep) /* CC 2.2 */
		return REFUSE(DOCA_ERROR_NOT_CONNECTED, "%p is not an address of the endpoint",
			      (void *)peer_addr);
	flush(local_ep, peer_addr);
	if (local_ep->client) {
		cc_endpoint_end(local_ep);
		return DOCA_SUCCESS;
	}
	doca_error_t e = DOCA_SUCCESS;
	if (peer_addr->connection)
		e = doca_comch_server_disconnect(local_ep->server, peer_addr->connection);
	if (!e)
		cc_peer_free(peer_addr);
	return e;
}

DOCA_STABLE doca_error_t doca_comm_channel_peer_addr_update_info(struct cc_peer *peer_addr)
{
	CHECK_PEER(peer_addr);
	cc_endpoint_progress(peer_addr->ep);
	peer_addr->info = peer_addr->now;
	if (peer_addr->connection)
		return DOCA_SUCCESS;
	/* CC 2.2; no record, because programs call it in a loop */
	return peer_addr->lost ? DOCA_ERROR_CONNECTION_ABORTED : DOCA_ERROR_CONNECTION_INPROGRESS;
}

#define COUNT(name, field)                                                                    \
	DOCA_STABLE doca_error_t doca_comm_channel_peer_addr_get_##name(                      \
		const struct cc_peer *peer_addr, uint64_t *value)                             \
	{                                                                                     \
		CHECK_PEER(peer_addr);                                                        \
		return SET_OUT(value, peer_addr->info.field);                                 \
	}
COUNT(send_messages, sent)
COUNT(send_bytes, sent_bytes)
COUNT(recv_messages, received)
COUNT(recv_bytes, received_bytes)
COUNT(send_in_flight_messages, in_flight)

DOCA_STABLE doca_error_t doca_comm_channel_peer_addr_set_user_data(struct cc_peer *peer_addr,
								   uint64_t user_context)
{
	CHECK_PEER(peer_addr);
	peer_addr->user_data = user_context;
	return DOCA_SUCCESS;
}

DOCA_STABLE GETTER(doca_comm_channel_peer_addr_get_user_data, CHECK_PEER, struct cc_peer, uint64_t,
		   handle->user_data)
