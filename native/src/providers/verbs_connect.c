// SPDX-License-Identifier: Apache-2.0
/*
 * The control thread of the provider verbs, and the importer's side of connections.
 *
 * All calls of the connection manager are made with the device's lock held: the control thread
 * takes the lock, receives an event, copies it, acknowledges it and handles it. So a thread that
 * holds the lock may destroy any id, because all events of the id were acknowledged.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "error.h"
#include "share/polling.h"
#include "thread.h"
#include "verbs_provider.h"

enum {
	RESOLVE_MS = 2000,
	DRAIN_MS = 1, /* interval of polling queues while an exporter waits for their transfers */
	TICK_MS = 100, /* interval of checking deadlines while there are any */
	EVENTS = 64, /* handled at a time while others wait for the lock */
};

/* An event, copied so that it can be acknowledged at once. */
struct event {
	struct rdma_cm_id *id;
	int event, status;
	struct rdma_conn_param conn;
	uint8_t data[256];
};

static void set_state(struct verbs_conn *c, enum conn_state state)
{
	atomic_store_explicit(&c->state, state, memory_order_seq_cst);
	pthread_cond_broadcast(&c->d->changed);
	/* seq_cst: the caller of a queue stores its flag and then loads the state of its endpoints;
	 * here the state is stored first and the flag loaded afterwards, as in ring.h. */
	if (c->pipe)
		dg_pipe_wake(c->pipe);
}

void dg_verbs_conn_ended(struct verbs_conn *c)
{
	/* Flush the work requests in flight, which would otherwise wait for their retries. */
	dg_verbs_disconnect(c->d, c->id);
	set_state(c, CONN_ENDED);
}

static void fail_connection(struct verbs_conn *c, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void fail_connection(struct verbs_conn *c, int err, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(c->why, sizeof c->why, format, args);
	va_end(args);
	c->error = err;
	set_state(c, CONN_FAILED);
}

struct address_text dg_verbs_address_text(const struct sockaddr_storage *address)
{
	struct address_text t = {"?"};
	const void *at = address->ss_family == AF_INET
				 ? (const void *)&((const struct sockaddr_in *)address)->sin_addr
				 : (const void *)&((const struct sockaddr_in6 *)address)->sin6_addr;
	inet_ntop(address->ss_family, at, t.text, sizeof t.text);
	return t;
}

/* Whether the kernel has a route from `from` to `to`; true also where this cannot be found out (no socket, or
 * an address that cannot be bound). Needed because the connection manager reports a missing route as a
 * time-out. */
bool dg_verbs_has_route(const struct sockaddr_storage *from, const struct sockaddr_storage *to)
{
	struct sockaddr_storage here = *from;
	socklen_t size = here.ss_family == AF_INET ? sizeof(struct sockaddr_in)
						   : sizeof(struct sockaddr_in6);
	int fd = socket(here.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	((struct sockaddr_in *)&here)->sin_port = 0;
	/* For a datagram socket connect() only looks up the route and sends nothing. */
	bool found = fd < 0 || bind(fd, (struct sockaddr *)&here, size) ||
		     !connect(fd, (const struct sockaddr *)to, size);
	if (fd >= 0)
		close(fd);
	return found;
}

/* The exporter's address cannot be reached from this device. */
static void unreachable(struct verbs_conn *c, int err)
{
	struct address_text to = dg_verbs_address_text(&c->to),
			    from = dg_verbs_address_text(&c->d->address);
	if (err == EXDEV || err == EINVAL || !dg_verbs_has_route(&c->d->address, &c->to))
		fail_connection(
			c, EXDEV,
			"the exporter's address %s is not on the network of %s (%s): check the way "
			"to "
			"it (ip route get %s), or have the other side export with a device on this "
			"network",
			to.text, c->d->name, from.text, to.text);
	else
		fail_connection(
			c, ENOTCONN,
			"the exporter's address %s does not answer on the network of %s (%s; %s): "
			"check "
			"that its machine and its link are up (ip neigh show %s; rdma link)",
			to.text, c->d->name, from.text, strerror(err), to.text);
}

/* Creates the queue pair and sends the request, once the exporter's address is known. */
static void ask(struct verbs_conn *c)
{
	struct verbs *d = c->d;
	struct ibv_qp_init_attr qp = {
		.send_cq = c->cq ? c->cq : d->probe_cq,
		.recv_cq = c->cq ? d->idle_cq : d->notice_cq,
		.cap = {.max_send_wr = c->cq ? d->max_wr : 2, /* a link's probe and notice */
			.max_recv_wr = 1,
			.max_send_sge = d->max_sge,
			.max_recv_sge = 1,
			.max_inline_data = c->cq ? 64 : 0},
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_conn_param param = {
		.private_data = &c->request,
		.private_data_len = sizeof c->request,
		.responder_resources = (uint8_t)d->max_reads,
		.initiator_depth = (uint8_t)d->max_reads,
		.retry_count = VERBS_RETRIES,
		.rnr_retry_count = 7,
	};
	if (c->id->verbs != d->context) {
		unreachable(c, EXDEV);
		return;
	}
	int rc = dg_verbs.rdma_create_qp(c->id, c->cq ? d->pd : d->link_pd, &qp) ? -errno : 0;
	if (!rc && !c->cq)
		rc = dg_verbs_link_open(d, &c->link, c->id->qp, c->peer);
	if (rc) {
		fail_connection(c, -rc, "%s has no more queue pairs (%s)", d->name, strerror(-rc));
		return;
	}
	c->max_inline = qp.cap.max_inline_data;
	/* Kernels before 5.2 do not know the option; the connection manager's own time-out then
	 * applies. */
	if (dg_verbs.rdma_set_option(c->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
				     &d->ack_timeout, sizeof d->ack_timeout) &&
	    errno != ENOSYS) {
		fail_connection(c, errno, "%s rejects the acknowledgement time-out (%s)", d->name,
				strerror(errno));
		return;
	}
	c->step = STEP_ANSWER;
	if (dg_verbs.rdma_connect(c->id, &param))
		fail_connection(c, ENOTCONN, "the connection request to the exporter failed (%s)",
				strerror(errno));
}

static void handle_refusal(struct verbs_conn *c, const struct event *e)
{
	struct verbs_reply refusal = {0};
	if (e->status == RDMA_REJECTED_BY_PEER && e->conn.private_data_len >= sizeof refusal)
		memcpy(&refusal, e->data, sizeof refusal);
	/* The exporter's kernel has reached its limit of pending requests. */
	if (e->status == RDMA_REJECTED_BY_PEER && !e->conn.private_data_len) {
		c->refusals++;
		c->again_ns = now_ns() + (uint64_t)TICK_MS * 1000000u;
		return;
	}
	if (refusal.magic != VERBS_MAGIC || !refusal.error || refusal.error > 4095)
		fail_connection(c, ENOTCONN,
				"nothing listens there: the exporter has ended (reason %d)",
				e->status);
	else if (refusal.error == ENOKEY)
		fail_connection(c, ENOKEY,
				"the exporter has no region for this descriptor: it was closed, or "
				"the descriptor is forged");
	else if (refusal.error == EMFILE)
		fail_connection(
			c, EMFILE,
			"the exporter has %u connections, or no protection domain for another one: "
			"close imports or queues of its regions",
			VERBS_MAX_GUESTS);
	else if (refusal.error == ENOMEM)
		fail_connection(c, ENOMEM,
				"the exporter cannot pin the region's memory for this connection: "
				"raise the limit of locked memory there (ulimit -l; memlock in "
				"/etc/security/limits.conf)");
	else
		fail_connection(c, (int)refusal.error, "the exporter refused (%s)",
				strerror((int)refusal.error));
}

static void handle_established(struct verbs_conn *c, const struct event *e)
{
	if (e->conn.private_data_len >= sizeof c->reply)
		memcpy(&c->reply, e->data, sizeof c->reply);
	c->link.remote_address = c->reply.address;
	if (c->reply.magic != VERBS_MAGIC)
		fail_connection(c, EBADMSG, "the exporter's answer is malformed");
	else
		set_state(c, CONN_READY);
}

/* The event that each step waits for. An event of another step is repeated or late and is ignored;
 * if the expected one does not arrive, the connection ends at the deadline. */
static const struct step {
	int done, failed;
} steps[] = {
	[STEP_ADDRESS] = {RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_ERROR},
	[STEP_ROUTE] = {RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_ERROR},
	[STEP_ANSWER] = {RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_UNREACHABLE},
};

static void next_step(struct verbs_conn *c, const struct event *e)
{
	switch (c->step) {
	case STEP_ADDRESS:
		c->step = STEP_ROUTE;
		if (dg_verbs.rdma_resolve_route(c->id, RESOLVE_MS))
			unreachable(c, errno);
		return;
	case STEP_ROUTE:
		ask(c);
		return;
	default:
		handle_established(c, e);
	}
}

static void handle_connecting(struct verbs_conn *c, const struct event *e)
{
	if (c->again_ns)
		return;
	if (e->event == steps[c->step].done)
		next_step(c, e);
	else if (e->event == steps[c->step].failed)
		unreachable(c, e->status < 0 ? -e->status : ENOTCONN);
	else if (c->step == STEP_ANSWER && e->event == RDMA_CM_EVENT_REJECTED)
		handle_refusal(c, e);
	else if (e->event == RDMA_CM_EVENT_DISCONNECTED)
		fail_connection(c, ENOTCONN, "the exporter ended while connecting");
	else if (c->step == STEP_ANSWER && e->event == RDMA_CM_EVENT_CONNECT_ERROR)
		fail_connection(c, ENOTCONN, "the connection to the exporter failed (%s)",
				strerror(e->status < 0 ? -e->status : e->status));
}

static void importer_event(struct verbs_conn *c, const struct event *e)
{
	uint32_t state = atomic_load_explicit(&c->state, memory_order_relaxed);
	if (e->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
		atomic_store(&c->d->removed, true);
	if (e->event == RDMA_CM_EVENT_DEVICE_REMOVAL && state == CONN_CONNECTING)
		fail_connection(c, DG_REASON_RDMA_DEVICE, "the RDMA device %s was removed",
				c->d->name);
	else if (state == CONN_CONNECTING)
		handle_connecting(c, e);
	else if (state == CONN_READY && (e->event == RDMA_CM_EVENT_DISCONNECTED ||
					 e->event == RDMA_CM_EVENT_DEVICE_REMOVAL))
		dg_verbs_conn_ended(c);
}

static void exporter_event(struct verbs *d, const struct event *e)
{
	if (e->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
		atomic_store(&d->removed, true);
	if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		dg_verbs_serve(d, e->id, &e->conn);
	else if (e->event != RDMA_CM_EVENT_ESTABLISHED && e->event != RDMA_CM_EVENT_ADDR_CHANGE)
		dg_verbs_guest_left(d, e->id);
}

/* Receives an event. Returns false if there is none. */
static bool take_event(struct verbs *d, struct event *out)
{
	struct rdma_cm_event *e;
	if (dg_verbs.rdma_get_cm_event(d->channel, &e))
		return false;
	*out = (struct event){.id = e->id, .event = e->event, .status = e->status};
	if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST || e->event == RDMA_CM_EVENT_ESTABLISHED ||
	    e->event == RDMA_CM_EVENT_REJECTED) {
		out->conn = e->conn;
		if (e->conn.private_data)
			memcpy(out->data, e->conn.private_data, e->conn.private_data_len);
		else
			out->conn.private_data_len = 0;
		out->conn.private_data = out->data;
	}
	dg_verbs.rdma_ack_cm_event(e);
	return true;
}

/* Returns the importer's connection with this id; NULL if the id is an exporter's. A new id has the
 * listener's context, which is NULL, like a guest's. */
static struct verbs_conn *importer_of(const struct event *e)
{
	return e->event == RDMA_CM_EVENT_CONNECT_REQUEST ? NULL : e->id->context;
}

/* Creates an id and starts resolving the address of the exporter. */
static int resolve(struct verbs_conn *c)
{
	struct verbs *d = c->d;
	struct sockaddr_storage from = d->address, to = c->to;
	struct rdma_cm_id *id, *before = c->id;
	((struct sockaddr_in *)&from)->sin_port = 0;
	if (dg_verbs.rdma_create_id(d->channel, &id, c, RDMA_PS_TCP))
		return -errno;
	c->id = id;
	c->step = STEP_ADDRESS;
	c->again_ns = 0;
	if (dg_verbs.rdma_resolve_addr(id, (struct sockaddr *)&from, (struct sockaddr *)&to,
				       RESOLVE_MS))
		unreachable(c, errno);
	dg_verbs_link_close(d, &c->link);
	if (before && before->qp)
		dg_verbs.rdma_destroy_qp(before);
	if (before)
		dg_verbs_id_free(d, before);
	return 0;
}

static void handle_timeout(struct verbs_conn *c)
{
	struct address_text to = dg_verbs_address_text(&c->to);
	unsigned seconds = (unsigned)(VERBS_CONNECT_NS / 1000000000u);
	if (c->refusals)
		fail_connection(
			c, ETIMEDOUT,
			"the exporter at %s did not take this connection within %u s: more than %u "
			"requests of others are waiting there",
			to.text, seconds, VERBS_BACKLOG);
	else
		fail_connection(
			c, ETIMEDOUT, "the exporter at %s did not answer within %u s%s", to.text,
			seconds,
			c->d->software ? ": if its link, or that of this machine, was down before, "
					 "recreate the Soft-RoCE device there (rdma link delete; "
					 "rdma link add)"
				       : "");
}

/* Fails the connections whose deadline has passed, and repeats requests that were refused for lack
 * of room. Returns how long to sleep, in ms; -1: until an event. */
static int check_deadlines(struct verbs *d)
{
	int sleep_ms = -1;
	for (struct verbs_conn *c = d->conns; c; c = c->next) {
		if (atomic_load_explicit(&c->state, memory_order_relaxed) != CONN_CONNECTING)
			continue;
		int rc = 0;
		if (now_ns() >= c->deadline_ns)
			handle_timeout(c);
		else if (c->again_ns && now_ns() >= c->again_ns)
			rc = resolve(c);
		if (rc)
			fail_connection(c, -rc, "cannot make an RDMA connection (%s)",
					strerror(-rc));
		sleep_ms = TICK_MS;
	}
	return sleep_ms;
}

static int sooner(int a_ms, int b_ms)
{
	return a_ms < 0 || (b_ms >= 0 && b_ms < a_ms) ? b_ms : a_ms;
}

static void handle_event(struct verbs *d, const struct event *e)
{
	struct verbs_conn *c = importer_of(e);
	if (dg_verbs_id_waits(e->id))
		return;
	if (c)
		importer_event(c, e);
	else
		exporter_event(d, e);
}

static void *control_thread(void *arg)
{
	struct verbs *d = arg;
	struct pollfd fds[] = {{d->channel->fd, POLLIN, 0},
			       {d->notice_channel->fd, POLLIN, 0},
			       {d->wake_fd, POLLIN, 0}};
	struct event e;
	eventfd_t n;
	bool draining = false;
	for (int sleep_ms = 0; !atomic_load(&d->stop);) {
		poll(fds, sizeof fds / sizeof fds[0], sleep_ms);
		eventfd_read(d->wake_fd, &n);
		/* Without the lock, because queues take it. A draining queue's own user may be busy
		 * elsewhere. */
		if (draining)
			dg_devices_poll();
		pthread_mutex_lock(&d->lock);
		for (int i = 0; i < EVENTS && take_event(d, &e); i++)
			handle_event(d, &e);
		dg_verbs_notices(d);
		sleep_ms = sooner(dg_verbs_probe(d), check_deadlines(d));
		sleep_ms = sooner(sleep_ms, dg_verbs_look_at_port(d));
		draining = d->n_draining;
		if (draining)
			sleep_ms = DRAIN_MS;
		pthread_mutex_unlock(&d->lock);
	}
	return NULL;
}

static int set_nonblocking(int fd)
{
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

int dg_verbs_control_start(struct verbs *d)
{
	d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->wake_fd < 0 || set_nonblocking(d->channel->fd) ||
	    set_nonblocking(d->notice_channel->fd))
		return dg_fail_errno("cannot set up the events of RDMA connections");
	return dg_thread_start(&d->thread, "dgkit-verbs", control_thread, d);
}

void dg_verbs_control_stop(struct verbs *d)
{
	atomic_store(&d->stop, true);
	eventfd_write(d->wake_fd, 1);
	pthread_join(d->thread, NULL);
}

static int start(struct verbs_conn *c, const struct verbs_region *t)
{
	c->to = t->exporter;
	TRY(dg_verbs_check_port(c->d));
	c->peer = dg_verbs_peer_join(c->d, &t->exporter, 0);
	if (!c->peer)
		return dg_fail(ENOMEM, "out of memory for an RDMA connection");
	int rc = resolve(c);
	if (!rc)
		return 0;
	dg_verbs_peer_leave(c->d, c->peer);
	return dg_fail(rc == -ENODEV ? DG_REASON_RDMA_DEVICE : -rc,
		       "cannot make an RDMA connection: %s", strerror(-rc));
}

int dg_verbs_connect(struct verbs *d, const struct verbs_region *t, struct ibv_cq *cq,
		     struct dg_pipe *pipe, struct verbs_conn **out)
{
	struct verbs_conn *c = calloc(1, sizeof *c);
	if (!c)
		return dg_fail(ENOMEM, "out of memory for an RDMA connection");
	c->d = d;
	c->cq = cq;
	c->pipe = pipe;
	c->deadline_ns = now_ns() + VERBS_CONNECT_NS;
	c->link.conn = c;
	c->gate = cq ? NULL : t->gate;
	c->request = (struct verbs_request){
		.magic = VERBS_MAGIC,
		.version = VERBS_VERSION,
		.flags = (cq ? REQUEST_ENDPOINT : 0) |
			 (t->gate != &t->own_gate ? REQUEST_SHARED_GATE : 0),
		.importer = d->number,
	};
	memcpy(c->request.key, t->key, sizeof c->request.key);
	pthread_mutex_lock(&d->lock);
	int rc = start(c, t);
	if (!rc) {
		c->next = d->conns;
		d->conns = c;
	}
	pthread_mutex_unlock(&d->lock);
	if (!rc) {
		eventfd_write(d->wake_fd, 1);
		*out = c;
		return 0;
	}
	free(c);
	return rc;
}

int dg_verbs_connected(struct verbs_conn *c)
{
	struct verbs *d = c->d;
	pthread_mutex_lock(&d->lock);
	/* The control thread ends the wait at the deadline. */
	while (atomic_load_explicit(&c->state, memory_order_relaxed) == CONN_CONNECTING)
		pthread_cond_wait(&d->changed, &d->lock);
	uint32_t state = atomic_load_explicit(&c->state, memory_order_relaxed);
	int rc = 0;
	if (state == CONN_FAILED)
		rc = dg_fail(c->error, "the memory cannot be reached by RDMA: %s", c->why);
	else if (state == CONN_ENDED)
		rc = dg_fail(ENOTCONN, "the memory cannot be reached by RDMA: the exporter has ended");
	pthread_mutex_unlock(&d->lock);
	return rc;
}

void dg_verbs_conn_abort(struct verbs_conn *c)
{
	pthread_mutex_lock(&c->d->lock);
	if (c->id->qp)
		dg_verbs.rdma_destroy_qp(c->id);
	pthread_mutex_unlock(&c->d->lock);
}

void dg_verbs_conn_free(struct verbs_conn *c)
{
	struct verbs *d = c->d;
	pthread_mutex_lock(&d->lock);
	struct verbs_conn **at = &d->conns;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	dg_verbs_link_close(d, &c->link);
	d->n_draining -= c->draining;
	dg_verbs_peer_leave(d, c->peer);
	/* Without a queue pair this fails, and the exporter is notified when the id is
	 * destroyed. */
	dg_verbs_disconnect(d, c->id);
	if (c->id->qp)
		dg_verbs.rdma_destroy_qp(c->id);
	dg_verbs_id_free(d, c->id);
	pthread_mutex_unlock(&d->lock);
	free(c);
}
