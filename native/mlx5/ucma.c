// SPDX-License-Identifier: Apache-2.0
/*
 * Commands of librdmacm, and its events, with the errors of the kernel's drivers/infiniband/core/ucma.c and
 * cma.c. Run with the lock held.
 *
 * The program's descriptor of a channel is an epoll instance, so that it can be polled: in it are an eventfd,
 * which is readable while there are events that this process made, and sockets. Each message, and the end of
 * a connection, is one event, so a program that has polled does not block. librdmacm finds that the
 * commands of AF_IB addresses are missing, and does not use them.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "error.h"
#include "ucma.h"

/* enum ib_qp_type, enum rdma_cm_event_type. */
enum { TYPE_RC = 2, TYPE_UD = 4 };
enum {
	ADDR_RESOLVED,
	ADDR_ERROR,
	ROUTE_RESOLVED,
	CONNECT_REQUEST = 4,
	CONNECT_RESPONSE,
	UNREACHABLE = 7,
	REJECTED,
	ESTABLISHED,
	DISCONNECTED
};
/* Bytes of private data in messages: a program gets all of them, with zeros behind what was sent. */
enum {
	REQUEST_DATA = 56,
	REPLY_DATA = 196,
	REJECT_DATA = 148,
	DATAGRAM_REQUEST_DATA = 180,
	DATAGRAM_REPLY_DATA = 136
};
enum { MAX_IDS = 16384, MAX_BACKLOG = 1024, MTU_4096 = 5, RATE_400 = 21, HOPS = 64, TIMEOUT_CODE = 14,
       LAST_UNPRIVILEGED = 1024, PKEY = 0xffff };
#define DATAGRAM_QKEY 0x01234567u

struct cm_event {
	struct cm_event *next;
	struct cm_id *id;
	struct rdma_ucm_event_resp r;
};

struct cm_channel {
	int fd, wake;
	struct cm_event *events;
};

static struct cm_id *ids[MAX_IDS];

int dg_mlx5_cm_open(struct cm_channel **out)
{
	struct cm_channel *c = calloc(1, sizeof *c);
	struct epoll_event e = {.events = EPOLLIN};
	if (!c)
		return -ENOMEM;
	c->fd = epoll_create1(EPOLL_CLOEXEC);
	c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->fd >= 0 && c->wake >= 0 && !epoll_ctl(c->fd, EPOLL_CTL_ADD, c->wake, &e)) {
		*out = c;
		return c->fd;
	}
	const int rc = -errno;
	if (c->wake >= 0)
		dg_mlx5_close(c->wake);
	if (c->fd >= 0)
		dg_mlx5_close(c->fd);
	free(c);
	return rc;
}

/* Shows or hides that there are events. */
static void show(const struct cm_channel *c)
{
	eventfd_t count;
	if (c->events)
		eventfd_write(c->wake, 1);
	else
		eventfd_read(c->wake, &count);
}

static int watch(const struct cm_id *id)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u32 = id->handle};
	return epoll_ctl(id->channel->fd, EPOLL_CTL_ADD, id->fd, &e) ? -errno : 0;
}

static void hang_up(struct cm_id *id)
{
	if (id->fd < 0)
		return;
	epoll_ctl(id->channel->fd, EPOLL_CTL_DEL, id->fd, NULL);
	dg_mlx5_close(id->fd);
	id->fd = -1;
}

static void end(struct cm_id *id)
{
	hang_up(id);
	id->state = CM_ENDED;
}

/* Moves the events of an ID to another channel, or for NULL drops them. */
static void move_events(struct cm_id *id, struct cm_channel *to)
{
	struct cm_event **at = &id->channel->events, **last = to ? &to->events : NULL, *e;
	while (last && *last)
		last = &(*last)->next;
	while ((e = *at)) {
		if (e->id != id) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		e->next = NULL;
		if (last) {
			*last = e;
			last = &e->next;
		} else {
			free(e);
		}
	}
	show(id->channel);
	if (to)
		show(to);
}

static void destroy(struct cm_id *id)
{
	move_events(id, NULL);
	hang_up(id);
	ids[id->handle] = NULL;
	free(id);
}

void dg_mlx5_cm_close(struct cm_channel *c)
{
	for (uint32_t i = 1; i < MAX_IDS; i++)
		if (ids[i] && ids[i]->channel == c)
			destroy(ids[i]);
	dg_mlx5_close(c->wake);
	free(c);
}

/* The epoll instances are the parent's, too, and stay as they are; the sockets tell peers that it has ended. */
void dg_mlx5_cm_forked(void)
{
	for (uint32_t i = 1; i < MAX_IDS; i++) {
		if (ids[i] && ids[i]->fd >= 0)
			dg_mlx5_close(ids[i]->fd);
		free(ids[i]);
		ids[i] = NULL;
	}
}

static struct cm_id *add_id(struct cm_channel *c, uint64_t uid, uint32_t ps, bool is_datagram)
{
	static uint32_t last;
	struct cm_id *id = NULL;
	for (uint32_t i = 1; i < MAX_IDS && !id; i++) {
		last = last % (MAX_IDS - 1) + 1;
		if (!ids[last])
			id = ids[last] = calloc(1, sizeof *id);
	}
	if (!id)
		return NULL;
	*id = (struct cm_id){.channel = c,
			     .uid = uid,
			     .handle = last,
			     .ps = ps,
			     .is_datagram = is_datagram,
			     .fd = -1,
			     .ack_timeout = TIMEOUT_CODE};
	if (getrandom(&id->psn, sizeof id->psn, 0) != sizeof id->psn)
		id->psn = last;
	id->psn &= 0xffffff;
	return id;
}

static int find(const struct cm_channel *c, uint32_t handle, struct cm_id **out)
{
	*out = handle < MAX_IDS ? ids[handle] : NULL;
	return !*out ? -ENOENT : (*out)->channel == c ? 0 : -EINVAL;
}

/* Adds an event that this process makes. */
static int add_event(struct cm_id *id, uint32_t type, int status)
{
	struct cm_event *e = calloc(1, sizeof *e), **at = &id->channel->events;
	if (!e)
		return -ENOMEM;
	e->id = id;
	e->r = (struct rdma_ucm_event_resp){
		.uid = id->uid, .id = id->handle, .event = type, .status = (uint32_t)status};
	while (*at)
		at = &(*at)->next;
	*at = e;
	show(id->channel);
	return 0;
}

/* The adapter of a source address: 127.0.0.1 is that of mlx5_0, the next that of mlx5_1, if there is one. */
static void choose_adapter(struct cm_id *id)
{
	const struct sockaddr_in *a = (const void *)&id->source;
	const uint32_t number = ntohl(a->sin_addr.s_addr) - INADDR_LOOPBACK;
	const bool has_own = a->sin_family == AF_INET && number < dg_mlx5_adapters();
	id->has_adapter = true;
	id->adapter = has_own ? number : 0;
}

/* What a command has and gives. in: copied, with zeros behind. */
struct cm_call {
	struct cm_channel *channel;
	bool waits;
	_Alignas(8) uint8_t in[512], out[512];
};

static int create_id(struct cm_call *c)
{
	const struct rdma_ucm_create_id *q = (void *)c->in;
	const bool is_datagram = q->ps == RDMA_PS_UDP || q->ps == RDMA_PS_IPOIB;
	if (!is_datagram && q->ps != RDMA_PS_TCP && (q->ps != RDMA_PS_IB || q->qp_type != TYPE_RC))
		return -EINVAL;
	const struct cm_id *id = add_id(c->channel, q->uid, q->ps, is_datagram);
	if (!id)
		return -ENOMEM;
	((struct rdma_ucm_create_id_resp *)c->out)->id = id->handle;
	return 0;
}

static int destroy_id(struct cm_call *c)
{
	struct cm_id *id;
	TRY(find(c->channel, ((struct rdma_ucm_destroy_id *)c->in)->id, &id));
	((struct rdma_ucm_destroy_id_resp *)c->out)->events_reported = id->events_reported;
	destroy(id);
	return 0;
}

static bool has_family(const struct sockaddr_in6 *a)
{
	return a->sin6_family == AF_INET || a->sin6_family == AF_INET6;
}

static int bind_id(struct cm_id *id, const struct sockaddr_in6 *a)
{
	if (id->state != CM_IDLE)
		return -EINVAL;
	if (!dg_mlx5_cm_is_any(a) && !dg_mlx5_cm_is_local(a))
		return -EADDRNOTAVAIL;
	if (a->sin6_port && ntohs(a->sin6_port) < LAST_UNPRIVILEGED && geteuid())
		return -EACCES;
	id->source = *a;
	TRY(dg_mlx5_cm_bind(id));
	if (!dg_mlx5_cm_is_any(a))
		choose_adapter(id);
	id->state = CM_BOUND;
	return 0;
}

static int bind_ip(struct cm_call *c)
{
	const struct rdma_ucm_bind_ip *q = (void *)c->in;
	struct cm_id *id;
	if (!has_family(&q->addr))
		return -EINVAL;
	const int rc = find(c->channel, q->id, &id);
	return rc ? rc : bind_id(id, &q->addr);
}

/* An address without a port, of the family of another. */
static struct sockaddr_in6 any_like(const struct sockaddr_in6 *a)
{
	return (struct sockaddr_in6){.sin6_family = a->sin6_family};
}

/* Gives a socket address the IP address of another of its family. */
static void take_ip(struct sockaddr_in6 *to, const struct sockaddr_in6 *from)
{
	const uint16_t port = to->sin6_port;
	*to = *from;
	to->sin6_port = port;
}

/* Binds an identifier that is not bound, and queues ADDR_RESOLVED or ADDR_ERROR. A sockaddr_in6 has room for an address of
 * either family. */
static int resolve_ip(struct cm_call *c)
{
	const struct rdma_ucm_resolve_ip *q = (void *)c->in;
	struct sockaddr_in6 source = q->src_addr, target = q->dst_addr;
	struct cm_id *id;
	if (!has_family(&target) || (source.sin6_family && !has_family(&source)))
		return -EINVAL;
	int rc = find(c->channel, q->id, &id);
	if (!rc && id->state == CM_IDLE) {
		if (!source.sin6_family)
			source = any_like(&target);
		rc = bind_id(id, &source);
	}
	if (rc)
		return rc;
	if (id->state != CM_BOUND || id->source.sin6_family != target.sin6_family)
		return -EINVAL;
	if (dg_mlx5_cm_is_any(&target)) { /* this machine */
		struct sockaddr_in *t4 = (void *)&target;
		if (target.sin6_family == AF_INET)
			t4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		else
			target.sin6_addr = in6addr_loopback;
	}
	if (!dg_mlx5_cm_is_local(&target))
		return add_event(id, ADDR_ERROR, -EHOSTUNREACH);
	rc = add_event(id, ADDR_RESOLVED, 0);
	if (rc)
		return rc;
	if (dg_mlx5_cm_is_any(&id->source))
		take_ip(&id->source, &target);
	id->target = target;
	id->state = CM_ADDRESS_RESOLVED;
	choose_adapter(id);
	return 0;
}

static int resolve_route(struct cm_call *c)
{
	struct cm_id *id;
	int rc = find(c->channel, ((struct rdma_ucm_resolve_route *)c->in)->id, &id);
	if (!rc)
		rc = id->state == CM_ADDRESS_RESOLVED ? add_event(id, ROUTE_RESOLVED, 0) : -EINVAL;
	if (!rc)
		id->state = CM_ROUTE_RESOLVED;
	return rc;
}

static int query_route(struct cm_call *c)
{
	struct rdma_ucm_query_route_resp *r = (void *)c->out;
	struct cm_id *id;
	TRY(find(c->channel, ((struct rdma_ucm_query *)c->in)->id, &id));
	r->src_addr = id->source;
	r->dst_addr = id->target;
	if (!id->has_adapter)
		return 0;
	r->node_guid = htobe64(NODE_GUID + id->adapter);
	r->port_num = 1;
	r->ibdev_index = id->adapter;
	r->num_paths = id->state >= CM_ROUTE_RESOLVED && id->target.sin6_family;
	struct ib_user_path_rec *path = &r->ib_route[0];
	dg_mlx5_cm_gid(&id->source, path->sgid);
	if (id->target.sin6_family)
		dg_mlx5_cm_gid(&id->target, path->dgid);
	path->pkey = htobe16(PKEY);
	if (!r->num_paths)
		return 0;
	path->reversible = 1;
	path->numb_path = 1;
	path->hop_limit = HOPS;
	path->mtu_selector = path->rate_selector = path->packet_life_time_selector = 2; /* exactly */
	path->mtu = MTU_4096;
	path->rate = RATE_400;
	path->packet_life_time = TIMEOUT_CODE;
	return 0;
}

static int listen_on(struct cm_call *c)
{
	const struct rdma_ucm_listen *q = (void *)c->in;
	struct cm_id *id;
	int rc = find(c->channel, q->id, &id);
	if (!rc && id->state == CM_IDLE)
		rc = bind_id(id, &(struct sockaddr_in6){.sin6_family = AF_INET});
	if (rc)
		return rc;
	if (id->state != CM_BOUND)
		return -EINVAL;
	const uint32_t backlog = q->backlog && q->backlog < MAX_BACKLOG ? q->backlog : MAX_BACKLOG;
	if (listen(id->fd, (int)backlog))
		return -errno;
	rc = watch(id);
	if (!rc)
		id->state = CM_LISTENS;
	return rc;
}

static int reject_at_once(struct cm_id *id, int reason)
{
	id->state = CM_ENDED;
	return add_event(id, id->is_datagram ? UNREACHABLE : REJECTED, reason);
}

static int connect_to(struct cm_call *c)
{
	const struct rdma_ucm_connect *q = (void *)c->in;
	struct cm_id *id;
	int rc = find(c->channel, q->id, &id);
	if (rc)
		return rc;
	const uint32_t room = id->is_datagram ? DATAGRAM_REQUEST_DATA : REQUEST_DATA;
	if (!q->conn_param.valid || id->state != CM_ROUTE_RESOLVED || q->conn_param.private_data_len > room)
		return -EINVAL;
	const struct cm_message m = {.kind = CM_REQUEST,
				     .psn = id->psn,
				     .from = id->source,
				     .to = id->target,
				     .p = q->conn_param,
				     .ece = q->ece};
	rc = dg_mlx5_cm_connect(id);
	if (rc == -ECONNREFUSED && c->waits)
		return -EINPROGRESS;
	if (rc == -ECONNREFUSED)
		return reject_at_once(id, id->is_datagram ? 1 : REASON_NO_LISTENER);
	if (rc == -EAGAIN) /* the listener has as many as it wants */
		return reject_at_once(id, id->is_datagram ? REASON_DATAGRAM : REASON_CONSUMER);
	if (!rc)
		rc = dg_mlx5_cm_send(id, &m);
	if (!rc)
		rc = watch(id);
	if (rc)
		return rc;
	id->ours = q->conn_param;
	id->state = CM_CONNECTING;
	return 0;
}

/* A server replies; a client accepts the reply. */
static int accept_it(struct cm_call *c)
{
	const struct rdma_ucm_accept *q = (void *)c->in;
	struct cm_message m = {.kind = CM_REPLY, .p = q->conn_param, .ece = q->ece};
	struct cm_id *id;
	int rc = find(c->channel, q->id, &id);
	if (rc)
		return rc;
	if (id->state == CM_REPLIED && !q->conn_param.valid) {
		m.kind = CM_READY;
		rc = dg_mlx5_cm_send(id, &m) ? -EINVAL : 0;
		if (!rc)
			id->state = CM_CONNECTED;
		return rc;
	}
	const uint32_t room = id->is_datagram ? DATAGRAM_REPLY_DATA : REPLY_DATA;
	if (id->state != CM_REQUESTED || !q->conn_param.valid || q->conn_param.private_data_len > room)
		return -EINVAL;
	m.psn = id->psn;
	if (id->is_datagram && !m.p.qkey)
		m.p.qkey = DATAGRAM_QKEY;
	if (dg_mlx5_cm_send(id, &m)) { /* the client has ended */
		end(id);
		return -EINVAL;
	}
	id->uid = q->uid;
	id->ours = q->conn_param;
	if (id->is_datagram) {
		end(id);
		return 0;
	}
	id->state = CM_ACCEPTED;
	return watch(id);
}

static int send_reject(struct cm_call *c)
{
	enum { VENDOR_OPTION = 35 };
	const struct rdma_ucm_reject *q = (void *)c->in;
	struct cm_message m = {.kind = CM_REJECT, .reason = q->reason ? q->reason : REASON_CONSUMER};
	struct cm_id *id;
	if (q->reason && q->reason != VENDOR_OPTION)
		return -EINVAL;
	TRY(find(c->channel, q->id, &id));
	const uint32_t room = id->is_datagram ? DATAGRAM_REPLY_DATA : REJECT_DATA;
	if ((id->state != CM_REQUESTED && id->state != CM_REPLIED) || q->private_data_len > room)
		return -EINVAL;
	if (id->is_datagram)
		m.reason = REASON_DATAGRAM;
	memcpy(m.p.private_data, q->private_data, q->private_data_len);
	m.p.private_data_len = q->private_data_len;
	dg_mlx5_cm_send(id, &m); /* a client that has ended need not know */
	end(id);
	return 0;
}

static int disconnect(struct cm_call *c)
{
	const struct cm_message m = {.kind = CM_DISCONNECT};
	struct cm_id *id;
	TRY(find(c->channel, ((struct rdma_ucm_disconnect *)c->in)->id, &id));
	if (id->state == CM_ENDED && id->was_connected) /* the other side was first */
		return 0;
	if (id->state < CM_REPLIED || id->state > CM_CONNECTED)
		return -EINVAL;
	dg_mlx5_cm_send(id, &m);
	end(id);
	id->was_connected = true;
	return add_event(id, DISCONNECTED, 0);
}

static void fill_address(struct ib_uverbs_ah_attr *a, const struct cm_id *id)
{
	*a = (struct ib_uverbs_ah_attr){.is_global = 1, .port_num = 1, .grh.hop_limit = HOPS};
	dg_mlx5_cm_gid(&id->target, a->grh.dgid);
}

static int init_qp_attr(struct cm_call *c)
{
	enum { REMOTE_WRITE = 2, REMOTE_READ = 4, REMOTE_ATOMIC = 8, QP_ERROR = 6 };
	const struct rdma_ucm_init_qp_attr *q = (void *)c->in;
	struct ib_uverbs_qp_attr *a = (void *)c->out;
	struct cm_id *id;
	if (q->qp_state > QP_ERROR)
		return -EINVAL;
	TRY(find(c->channel, q->id, &id));
	const bool knows_peer = id->state >= CM_REQUESTED && id->state < CM_ENDED;
	const bool has_parameters = id->state == CM_CONNECTING || knows_peer;
	const struct rdma_ucm_conn_param *p = id->state == CM_REQUESTED ? &id->theirs.p : &id->ours;
	if (!id->has_adapter || (q->qp_state != DG_NIC_INIT && (!knows_peer || id->is_datagram)))
		return -EINVAL;
	a->qp_state = q->qp_state;
	a->qp_attr_mask = STATE;
	a->port_num = 1;
	switch (q->qp_state) {
	case DG_NIC_INIT:
		a->qp_attr_mask |= PKEY_INDEX | PORT | (id->is_datagram ? QKEY : ACCESS);
		a->qkey = id->is_datagram ? DATAGRAM_QKEY : 0;
		if (!id->is_datagram && has_parameters)
			a->qp_access_flags =
				REMOTE_WRITE | (p->responder_resources ? REMOTE_READ | REMOTE_ATOMIC : 0);
		return 0;
	case DG_NIC_RTR:
		a->qp_attr_mask |= PATH | MTU | DEST_QPN | RQ_PSN | DEST_RD_ATOMIC | RNR_TIMER;
		fill_address(&a->ah_attr, id);
		a->path_mtu = MTU_4096;
		a->dest_qp_num = id->theirs.p.qp_num;
		a->rq_psn = id->theirs.psn;
		a->max_dest_rd_atomic = p->responder_resources;
		return 0;
	case DG_NIC_RTS:
		a->qp_attr_mask |= SQ_PSN | TIMEOUT | RETRIES | RNR_RETRIES | RD_ATOMIC;
		a->sq_psn = id->psn;
		a->timeout = id->ack_timeout;
		a->retry_cnt = p->retry_count & 7;
		a->rnr_retry = p->rnr_retry_count & 7;
		a->max_rd_atomic = p->initiator_depth;
		return 0;
	default:
		return -EINVAL;
	}
}

static int set_option(struct cm_call *c)
{
	static const uint8_t sizes[] = {[RDMA_OPTION_ID_TOS] = 1,
					[RDMA_OPTION_ID_REUSEADDR] = 4,
					[RDMA_OPTION_ID_AFONLY] = 4,
					[RDMA_OPTION_ID_ACK_TIMEOUT] = 1};
	const struct rdma_ucm_set_option *q = (void *)c->in;
	struct cm_id *id;
	uint32_t value = 0;
	TRY(find(c->channel, q->id, &id));
	if (q->level != RDMA_OPTION_ID || q->optname >= sizeof sizes)
		return -ENOSYS;
	if (q->optlen != sizes[q->optname])
		return -EINVAL;
	if (dg_mlx5_copy_user(&value, q->optval, q->optlen, false))
		return -EFAULT;
	/* The type of service has no effect on this network; a port is free at once when its ID is destroyed. */
	if (q->optname == RDMA_OPTION_ID_AFONLY && id->state != CM_IDLE)
		return -EINVAL;
	if (q->optname == RDMA_OPTION_ID_AFONLY)
		id->only_ipv6 = value;
	if (q->optname == RDMA_OPTION_ID_ACK_TIMEOUT)
		id->ack_timeout = (uint8_t)(value < 31 ? value : 31);
	return 0;
}

static int migrate_id(struct cm_call *c)
{
	const struct rdma_ucm_migrate_id *q = (void *)c->in;
	const struct cm_channel *from = dg_mlx5_cm_channel((int)q->fd);
	struct cm_id *id;
	if (!from)
		return -EINVAL;
	int rc = find(from, q->id, &id);
	if (rc)
		return rc;
	const bool watched = id->state == CM_LISTENS || id->state == CM_CONNECTING ||
			     (id->state >= CM_REPLIED && id->state <= CM_CONNECTED);
	((struct rdma_ucm_migrate_resp *)c->out)->events_reported = id->events_reported;
	if (from == c->channel)
		return 0;
	move_events(id, c->channel);
	if (watched)
		epoll_ctl(id->channel->fd, EPOLL_CTL_DEL, id->fd, NULL);
	id->channel = c->channel;
	if (watched)
		rc = watch(id);
	return rc;
}

/* Writes the parameters of an event, of which the private data has `room` bytes. */
static void fill_event(struct rdma_ucm_event_resp *r, const struct cm_id *id, const struct cm_message *m,
		       uint32_t room)
{
	if (id->is_datagram) {
		struct rdma_ucm_ud_param *u = &r->param.ud;
		u->qp_num = m->p.qp_num;
		u->qkey = m->p.qkey;
		if (m->kind == CM_REPLY)
			fill_address(&u->ah_attr, id);
		memcpy(u->private_data, m->p.private_data, room);
		u->private_data_len = (uint8_t)room;
		return;
	}
	r->param.conn = m->p;
	/* Each side names what it does: what one initiates, the other responds to. */
	r->param.conn.responder_resources = m->p.initiator_depth;
	r->param.conn.initiator_depth = m->p.responder_resources;
	r->param.conn.private_data_len = (uint8_t)room;
	r->ece = m->ece;
}

/* A process has connected to a listener. */
static int take_request(struct cm_id *listener, struct rdma_ucm_event_resp *r)
{
	struct cm_message m;
	const int fd = dg_mlx5_cm_take(listener, &m);
	if (fd < 0)
		return fd;
	struct cm_id *id = add_id(listener->channel, 0, listener->ps, listener->is_datagram);
	if (!id) {
		dg_mlx5_close(fd);
		return -EAGAIN;
	}
	id->fd = fd;
	id->state = CM_REQUESTED;
	id->source = m.to;
	id->target = m.from;
	id->theirs = m;
	choose_adapter(id);
	*r = (struct rdma_ucm_event_resp){.uid = listener->uid, .id = id->handle, .event = CONNECT_REQUEST};
	fill_event(r, id, &m, id->is_datagram ? DATAGRAM_REQUEST_DATA : REQUEST_DATA);
	id->theirs.p.responder_resources = r->param.conn.responder_resources;
	id->theirs.p.initiator_depth = r->param.conn.initiator_depth;
	listener->events_reported++;
	return 0;
}

/* The connection has ended without a message. */
static void lost(struct cm_id *id, struct rdma_ucm_event_resp *r)
{
	r->event = id->state == CM_CONNECTED ? DISCONNECTED : id->is_datagram ? UNREACHABLE : REJECTED;
	r->status = id->state == CM_CONNECTED ? 0
		    : id->is_datagram	      ? (uint32_t)-ETIMEDOUT
					      : REASON_CONSUMER;
	id->was_connected = id->state == CM_CONNECTED;
	end(id);
}

/* Reads the socket of a connection. */
static int take_message(struct cm_id *id, struct rdma_ucm_event_resp *r)
{
	struct cm_message m;
	const int rc = dg_mlx5_cm_receive(id->fd, &m);
	if (rc < 0)
		return rc;
	*r = (struct rdma_ucm_event_resp){.uid = id->uid, .id = id->handle};
	id->events_reported++;
	if (rc && m.kind == CM_REPLY && id->state == CM_CONNECTING) {
		r->event = id->is_datagram ? ESTABLISHED : CONNECT_RESPONSE;
		fill_event(r, id, &m, id->is_datagram ? DATAGRAM_REPLY_DATA : REPLY_DATA);
		id->theirs = m;
		id->state = CM_REPLIED;
		if (id->is_datagram)
			end(id);
	} else if (rc && m.kind == CM_REJECT && (id->state == CM_CONNECTING || id->state == CM_ACCEPTED)) {
		r->event = id->is_datagram ? UNREACHABLE : REJECTED;
		fill_event(r, id, &m, id->is_datagram ? DATAGRAM_REPLY_DATA : REJECT_DATA);
		r->status = m.reason;
		end(id);
	} else if (rc && m.kind == CM_READY && id->state == CM_ACCEPTED) {
		r->event = ESTABLISHED;
		id->state = CM_CONNECTED;
	} else if (rc && m.kind == CM_DISCONNECT && id->state >= CM_REPLIED) {
		r->event = DISCONNECTED;
		end(id);
		id->was_connected = true;
	} else { /* also what no process of ours sends */
		lost(id, r);
	}
	return 0;
}

static int get_event(struct cm_call *c)
{
	struct rdma_ucm_event_resp *r = (void *)c->out;
	struct cm_channel *channel = c->channel;
	struct cm_event *e = channel->events;
	struct epoll_event ready;
	if (e) {
		*r = e->r;
		e->id->events_reported++;
		channel->events = e->next;
		free(e);
		if (!channel->events)
			show(channel);
		return 0;
	}
	if (epoll_wait(channel->fd, &ready, 1, 0) != 1)
		return -EAGAIN;
	struct cm_id *id = ids[ready.data.u32 % MAX_IDS];
	if (!id) {
		show(channel); /* of events that were dropped */
		return -EAGAIN;
	}
	return id->state == CM_LISTENS ? take_request(id, r) : take_message(id, r);
}

/* in, out: bytes of the command and of the response, whose address is at `response`. least_in, least_out: bytes
 * before these structures became longer. */
static const struct cm_command {
	int (*run)(struct cm_call *c);
	uint16_t in, least_in, out, least_out, response;
} commands[] = {
#define COMMAND(name, type, function) [RDMA_USER_CM_CMD_##name] = {.run = (function), .in = sizeof(struct type)}
#define LONGER(name, type, new, function)                                                      \
	[RDMA_USER_CM_CMD_##name] = {                                                          \
		.run = (function), .in = sizeof(struct type), .least_in = offsetof(struct type, new)}
#define ANSWERED(name, type, answer, end_, function)                                               \
	[RDMA_USER_CM_CMD_##name] = {.run = (function),                                            \
				     .in = sizeof(struct type),                                    \
				     .out = sizeof(struct answer),                                 \
				     .least_out = (end_),                                          \
				     .response = offsetof(struct type, response)}
	ANSWERED(CREATE_ID, rdma_ucm_create_id, rdma_ucm_create_id_resp, 4, create_id),
	ANSWERED(DESTROY_ID, rdma_ucm_destroy_id, rdma_ucm_destroy_id_resp, 4, destroy_id),
	COMMAND(BIND_IP, rdma_ucm_bind_ip, bind_ip),
	COMMAND(RESOLVE_IP, rdma_ucm_resolve_ip, resolve_ip),
	COMMAND(RESOLVE_ROUTE, rdma_ucm_resolve_route, resolve_route),
	ANSWERED(QUERY_ROUTE, rdma_ucm_query, rdma_ucm_query_route_resp,
		 offsetof(struct rdma_ucm_query_route_resp, ibdev_index), query_route),
	LONGER(CONNECT, rdma_ucm_connect, ece, connect_to),
	COMMAND(LISTEN, rdma_ucm_listen, listen_on),
	LONGER(ACCEPT, rdma_ucm_accept, ece, accept_it),
	COMMAND(REJECT, rdma_ucm_reject, send_reject),
	COMMAND(DISCONNECT, rdma_ucm_disconnect, disconnect),
	ANSWERED(INIT_QP_ATTR, rdma_ucm_init_qp_attr, ib_uverbs_qp_attr,
		 sizeof(struct ib_uverbs_qp_attr), init_qp_attr),
	ANSWERED(GET_EVENT, rdma_ucm_get_event, rdma_ucm_event_resp,
		 offsetof(struct rdma_ucm_event_resp, reserved), get_event),
	COMMAND(SET_OPTION, rdma_ucm_set_option, set_option),
	ANSWERED(MIGRATE_ID, rdma_ucm_migrate_id, rdma_ucm_migrate_resp, 4, migrate_id),
	[RDMA_USER_CM_CMD_JOIN_MCAST] = {.run = NULL}, /* the last one */
};

int dg_mlx5_cm_write(struct cm_channel *channel, const void *command, size_t size, bool waits)
{
	struct rdma_ucm_cmd_hdr h;
	struct cm_call c = {.channel = channel, .waits = waits};
	const uint64_t body = (uintptr_t)command + sizeof h;
	uint64_t response = 0;
	if (size < sizeof h)
		return -EINVAL;
	if (dg_mlx5_copy_user(&h, (uintptr_t)command, sizeof h, false))
		return -EFAULT;
	if (h.cmd >= sizeof commands / sizeof commands[0] || h.in + sizeof h > size)
		return -EINVAL;
	const struct cm_command *k = &commands[h.cmd];
	if (!k->run)
		return -ENOSYS;
	if (h.out < k->least_out)
		return -ENOSPC;
	if (h.in < k->least_in)
		return -EINVAL;
	if (dg_mlx5_copy_user(c.in, body, k->least_in && h.in < k->in ? h.in : k->in, false))
		return -EFAULT;
	memcpy(&response, c.in + k->response, sizeof response);
	const size_t out = h.out < k->out ? h.out : k->out;
	/* Before it has an effect; without one, the bytes stay. */
	if (out && (dg_mlx5_copy_user(c.out, response, out, false) || dg_mlx5_copy_user(c.out, response, out, true)))
		return -EFAULT;
	memset(c.out, 0, sizeof c.out);
	const int rc = k->run(&c);
	return rc || !out ? rc : dg_mlx5_copy_user(c.out, response, out, true);
}
