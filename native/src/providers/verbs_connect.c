// SPDX-License-Identifier: Apache-2.0
/*
 * The control thread of the provider verbs, and the importer's side of connections.
 *
 * All of the connection manager happens under the device's lock: the control thread takes an event,
 * copies it, acknowledges it and handles it with the lock held, so a thread with the lock may end
 * any id, whose events were all acknowledged.
 */
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
#include "thread.h"
#include "verbs.h"

enum {
	RESOLVE_MS = 2000,
	/* Soft-RoCE takes 7, the highest number, for "without end" (drivers/infiniband/sw/rxe/
	 * rxe_comp.c), and would never give up on a peer whose link is down. */
	RETRIES = 6,
	TICK_MS = 100, /* how often deadlines are looked at, while there are any */
};

/* An event, copied so that it can be acknowledged at once. */
struct event {
	struct rdma_cm_id *id;
	int event, status;
	struct rdma_conn_param conn;
	uint8_t data[256];
};

static void settle(struct verbs_conn *c, enum conn_state state)
{
	atomic_store_explicit(&c->state, state, memory_order_seq_cst);
	pthread_cond_broadcast(&c->d->changed);
	/* seq_cst: the caller of a queue stores its flag and then loads the state of its lanes;
	 * here the state is stored and then the flag is loaded, as in ring.h. */
	if (c->pipe)
		dg_pipe_wake(c->pipe);
}

void dg_verbs_conn_ended(struct verbs_conn *c)
{
	/* Has what is in flight flushed, which otherwise waits for its retries. */
	dg_verbs.rdma_disconnect(c->id);
	settle(c, CONN_ENDED);
}

static void fail(struct verbs_conn *c, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void fail(struct verbs_conn *c, int err, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(c->why, sizeof c->why, format, args);
	va_end(args);
	c->error = err;
	settle(c, CONN_FAILED);
}

/* The exporter's address is known: makes the queue pair and asks. */
static void ask(struct verbs_conn *c)
{
	struct verbs *d = c->d;
	struct ibv_qp_init_attr qp = {
		.send_cq = c->cq ? c->cq : d->probe_cq,
		.recv_cq = d->idle_cq,
		.cap = {.max_send_wr = c->cq ? d->max_wr : 1,
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
		.retry_count = RETRIES,
		.rnr_retry_count = 7,
	};
	if (c->id->verbs != d->context) {
		fail(c, EXDEV, "the way to the exporter does not lead through %s", d->name);
		return;
	}
	if (dg_verbs.rdma_create_qp(c->id, d->pd, &qp)) {
		fail(c, errno, "%s has no more queue pairs (%s)", d->name, strerror(errno));
		return;
	}
	c->max_inline = qp.cap.max_inline_data;
	/* Kernels before 5.2 do not know the option: then the connection manager's own time-out
	 * holds. */
	if (dg_verbs.rdma_set_option(c->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
				     &d->ack_timeout, sizeof d->ack_timeout) &&
	    errno != ENOSYS) {
		fail(c, errno, "%s refuses an acknowledgement time-out (%s)", d->name,
		     strerror(errno));
		return;
	}
	if (dg_verbs.rdma_connect(c->id, &param))
		fail(c, ENOTCONN, "the exporter cannot be asked (%s)", strerror(errno));
}

static void refused(struct verbs_conn *c, const struct event *e)
{
	struct verbs_reply refusal = {0};
	if (e->status == RDMA_REJECTED_BY_PEER && e->conn.private_data_len >= sizeof refusal)
		memcpy(&refusal, e->data, sizeof refusal);
	if (refusal.magic != VERBS_MAGIC || !refusal.error || refusal.error > 4095)
		fail(c, ENOTCONN, "nothing listens there: the exporter has ended (reason %d)",
		     e->status);
	else if (refusal.error == ENOKEY)
		fail(c, ENOKEY, "the exporter has no region for this descriptor: it was closed, or "
				"the descriptor is forged");
	else
		fail(c, (int)refusal.error, "the exporter refused (%s)",
		     strerror((int)refusal.error));
}

static void established(struct verbs_conn *c, const struct event *e)
{
	if (e->conn.private_data_len >= sizeof c->reply)
		memcpy(&c->reply, e->data, sizeof c->reply);
	if (c->reply.magic != VERBS_MAGIC)
		fail(c, EBADMSG, "the exporter's answer is malformed");
	else
		settle(c, CONN_READY);
}

static void importer_event(struct verbs_conn *c, const struct event *e)
{
	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (dg_verbs.rdma_resolve_route(c->id, RESOLVE_MS))
			fail(c, ENOTCONN, "no route to the exporter (%s)", strerror(errno));
		return;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		ask(c);
		return;
	case RDMA_CM_EVENT_ESTABLISHED:
		established(c, e);
		return;
	case RDMA_CM_EVENT_REJECTED:
		refused(c, e);
		return;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		dg_verbs_conn_ended(c);
		return;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		return;
	default:
		fail(c, ENOTCONN, "the exporter cannot be reached (event %d, %s)", e->event,
		     strerror(e->status < 0 ? -e->status : e->status));
	}
}

static void exporter_event(struct verbs *d, const struct event *e)
{
	if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		dg_verbs_serve(d, e->id, &e->conn);
	else if (e->event != RDMA_CM_EVENT_ESTABLISHED && e->event != RDMA_CM_EVENT_ADDR_CHANGE)
		dg_verbs_guest_left(d, e->id);
}

/* Takes an event. Returns false if there is none. */
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

/* The connection of an importer that has this id, or NULL: then the id is an exporter's. A new id
 * has the listener's context, which is NULL, as a guest's. */
static struct verbs_conn *importer_of(const struct event *e)
{
	return e->event == RDMA_CM_EVENT_CONNECT_REQUEST ? NULL : e->id->context;
}

/* Fails the connections that are late. Returns how long to sleep, in ms; -1: until an event. */
static int check_deadlines(struct verbs *d)
{
	int sleep_ms = -1;
	for (struct verbs_conn *c = d->conns; c; c = c->next) {
		if (atomic_load_explicit(&c->state, memory_order_relaxed) != CONN_CONNECTING)
			continue;
		if (now_ns() >= c->deadline_ns)
			fail(c, ETIMEDOUT, "the exporter did not answer within %u s",
			     (unsigned)(VERBS_CONNECT_NS / 1000000000u));
		else
			sleep_ms = TICK_MS;
	}
	return sleep_ms;
}

static void *control(void *arg)
{
	struct verbs *d = arg;
	struct pollfd fds[2] = {{d->channel->fd, POLLIN, 0}, {d->wake_fd, POLLIN, 0}};
	struct event e;
	eventfd_t n;
	for (int sleep_ms = -1; !atomic_load(&d->stop);) {
		poll(fds, 2, sleep_ms);
		eventfd_read(d->wake_fd, &n);
		pthread_mutex_lock(&d->lock);
		while (take_event(d, &e)) {
			struct verbs_conn *c = importer_of(&e);
			if (c)
				importer_event(c, &e);
			else
				exporter_event(d, &e);
		}
		sleep_ms = dg_verbs_probe(d);
		int tick_ms = check_deadlines(d);
		if (sleep_ms < 0 || (tick_ms >= 0 && tick_ms < sleep_ms))
			sleep_ms = tick_ms;
		pthread_mutex_unlock(&d->lock);
	}
	return NULL;
}

int dg_verbs_control_start(struct verbs *d)
{
	int flags = fcntl(d->channel->fd, F_GETFL);
	d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->wake_fd < 0 || fcntl(d->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return dg_fail_errno("cannot set up the events of RDMA connections");
	int rc = dg_thread_start(&d->thread, "dgkit-verbs", control, d);
	return rc ? dg_fail(rc, "cannot start the thread for RDMA connections: %s", strerror(rc)) : 0;
}

void dg_verbs_control_stop(struct verbs *d)
{
	atomic_store(&d->stop, true);
	eventfd_write(d->wake_fd, 1);
	pthread_join(d->thread, NULL);
}

static int start(struct verbs_conn *c, const struct verbs_region *t)
{
	struct verbs *d = c->d;
	struct sockaddr_storage from = d->address, to = t->exporter;
	((struct sockaddr_in *)&from)->sin_port = 0;
	int rc = dg_verbs_peer_join(c, &t->exporter);
	if (rc)
		return rc;
	if (dg_verbs.rdma_create_id(d->channel, &c->id, c, RDMA_PS_TCP)) {
		rc = dg_fail_errno("cannot make an RDMA connection");
		dg_verbs_peer_leave(c);
		return rc;
	}
	if (!dg_verbs.rdma_resolve_addr(c->id, (struct sockaddr *)&from, (struct sockaddr *)&to,
					RESOLVE_MS))
		return 0;
	rc = dg_fail_errno("no way from %s to the exporter's address", d->name);
	dg_verbs_peer_leave(c);
	dg_verbs.rdma_destroy_id(c->id);
	return rc;
}

struct verbs_conn *dg_verbs_connect(struct verbs *d, const struct verbs_region *t,
				    struct ibv_cq *cq, struct dg_pipe *pipe)
{
	struct verbs_conn *c = calloc(1, sizeof *c);
	if (!c) {
		dg_fail(ENOMEM, "out of memory for an RDMA connection");
		return NULL;
	}
	c->d = d;
	c->cq = cq;
	c->pipe = pipe;
	c->deadline_ns = now_ns() + VERBS_CONNECT_NS;
	c->request = (struct verbs_request){
		.magic = VERBS_MAGIC, .version = VERBS_VERSION, .lane = cq != NULL};
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
		return c;
	}
	free(c);
	return NULL;
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
	dg_verbs_peer_leave(c);
	/* Without a queue pair this fails, and the exporter learns of it by the end of the id. */
	dg_verbs.rdma_disconnect(c->id);
	if (c->id->qp)
		dg_verbs.rdma_destroy_qp(c->id);
	dg_verbs.rdma_destroy_id(c->id);
	pthread_mutex_unlock(&d->lock);
	free(c);
}
