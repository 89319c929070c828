// SPDX-License-Identifier: Apache-2.0
/*
 * The state shared by a connection, its consumers and its producers, and the consumers of the other
 * side. The fds of a remote consumer come from another process and are checked: a channel is a Unix
 * socket, a counter is a memfd that cannot shrink.
 */
#include "fast.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct fast_link *links;

void fast_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* ---- a forked child must not hold channels, whose end reports the parent's death ---- */

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

static void close_context(struct fast_ctx *p)
{
	int *const fds[] = {&p->epoll_fd, &p->wake_fd, &p->channel, &p->counter, &p->offered};
	for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
		fast_close(fds[i]);
}

static void in_child(void)
{
	fast_gpu_in_child();
	for (struct fast_link *l = links; l; l = l->next) {
		l->fd = -1; /* closed by its endpoint */
		atomic_store_explicit(&l->over, true, memory_order_release);
		for (struct fast_ctx *p = l->contexts; p; p = p->next)
			close_context(p);
		for (struct remote *r = l->remotes; r; r = r->next) {
			fast_close(&r->fd);
			softdoca_page_free(r->receives);
			r->receives = NULL;
		}
	}
	after_fork();
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}

void fast_lock(void)
{
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&lock);
}

void fast_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/* ---- links ---- */

struct fast_link *link_new(const struct endpoint *e, int fd)
{
	struct fast_link *l = calloc(1, sizeof *l);
	if (!l)
		return NULL;
	l->refs = 1;
	l->fd = fd;
	l->dev = e->ctx.dev;
	l->next_consumer = l->next_producer = e->is_server ? SERVER_IDS : 1;
	fast_lock();
	l->next = links;
	links = l;
	fast_unlock();
	return l;
}

static void drop_link(struct fast_link *l)
{
	struct fast_link **at = &links;
	if (--l->refs)
		return;
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	free(l);
}

void link_leave(struct fast_link *l)
{
	if (!l)
		return;
	fast_lock();
	drop_link(l);
	fast_unlock();
}

struct fast_link *link_detach(struct doca_comch_connection *c)
{
	fast_lock();
	struct fast_link *l = c->fast;
	c->fast = NULL;
	fast_unlock();
	return l;
}

static void wake_all(struct fast_link *l)
{
	for (struct fast_ctx *p = l->contexts; p; p = p->next)
		fast_ctx_wake(p);
}

static void remote_close(struct remote *r)
{
	struct remote **at = &r->link->remotes;
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	r->link->n_remotes--;
	/* Removed explicitly, because closing the fd may not do it: a producer that waits for space
	 * also watches it, and a forked child may hold a copy. */
	epoll_ctl(r->e->epoll_fd, EPOLL_CTL_DEL, r->fd, NULL);
	fast_close(&r->fd);
	softdoca_page_free(r->receives);
	r->receives = NULL;
}

void link_end(struct doca_comch_connection *c, struct items *events)
{
	struct fast_link *l = c->fast;
	fast_lock();
	l->fd = -1;
	/* release: a thread that sees the flag also sees the state of the link that led to it */
	if (!atomic_exchange_explicit(&l->over, true, memory_order_release))
		wake_all(l);
	for (struct remote *r; (r = l->remotes);) {
		remote_close(r);
		if (events && r->e->expired_cb)
			items_add(events, &r->expired);
		else
			softdoca_object_free(r);
	}
	fast_unlock();
}

static doca_error_t join_link(struct fast_link *l, struct fast_ctx *p)
{
	if (!l || l->fd < 0) /* Comch consumer and producer references */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the connection has ended");
	uint32_t *n = p->is_consumer ? &l->n_consumers : &l->n_producers;
	uint32_t *next = p->is_consumer ? &l->next_consumer : &l->next_producer;
	if (*n == CONTEXTS_MAX)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "the connection has %u %s, the maximum", *n,
			      p->is_consumer ? "consumers" : "producers");
	++*n;
	p->id = *next;
	++*next;
	l->refs++;
	p->link = l;
	p->next = l->contexts;
	l->contexts = p;
	return DOCA_SUCCESS;
}

doca_error_t link_join(struct doca_comch_connection *c, struct fast_ctx *p)
{
	fast_lock();
	doca_error_t error = join_link(c->fast, p);
	fast_unlock();
	return error;
}

/* Undoes link_join(). */
void link_remove(struct fast_ctx *p)
{
	fast_lock();
	struct fast_link *l = p->link;
	struct fast_ctx **at = &l->contexts;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	--*(p->is_consumer ? &l->n_consumers : &l->n_producers);
	drop_link(l);
	fast_unlock();
}

bool link_in_use(struct fast_link *l)
{
	fast_lock();
	bool in_use = l->contexts;
	fast_unlock();
	return in_use;
}

int link_announce(struct fast_ctx *p, uint32_t imm_max)
{
	struct announcement a = {
		.p = {PACKET_MAGIC, PACKET_VERSION, PACKET_CONSUMER},
		.id = p->id,
		.imm_max = imm_max,
	};
	const int fds[] = {p->offered, p->counter};
	fast_lock();
	int rc = p->link->fd < 0
			 ? -EPIPE
			 : fast_send(p->link->fd, &(struct iovec){&a, sizeof a}, 1, fds, 2);
	if (!rc) {
		fast_close(&p->offered); /* so that the channel ends when the other side ends */
		fast_close(&p->counter);
	}
	fast_unlock();
	return rc;
}

/* ---- consumers of the other side ---- */

struct remote *remote_find(const struct fast_link *l, uint32_t id)
{
	struct remote *r = l->remotes;
	while (r && r->id != id)
		r = r->next;
	return r;
}

static bool is_channel(int fd)
{
	int domain, type;
	socklen_t n = sizeof domain, m = sizeof type;
	return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) && domain == AF_UNIX &&
	       !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &m) && type == SOCK_SEQPACKET;
}

/* Takes ownership of the channel fds[0]. */
static struct remote *remote_new(struct doca_comch_connection *c, const struct announcement *a,
				 int fds[2])
{
	struct remote *r = softdoca_object_new(OBJECT_COMCH_REMOTE, sizeof *r);
	struct epoll_event event = {.events = 0, .data.ptr = r}; /* EPOLLHUP is always reported */
	if (r)
		r->receives = softdoca_page_map(fds[1]);
	if (!r || !r->receives || epoll_ctl(c->e->epoll_fd, EPOLL_CTL_ADD, fds[0], &event)) {
		if (r) {
			softdoca_page_free(r->receives);
			softdoca_object_free(r);
		}
		return NULL;
	}
	r->e = c->e;
	r->c = c;
	r->link = c->fast;
	r->id = a->id;
	r->imm_max = a->imm_max;
	r->fd = fds[0];
	r->expired.consumer = r;
	fds[0] = -1;
	return r;
}

bool remote_announced(struct doca_comch_connection *c, const struct announcement *a, int fds[2])
{
	struct fast_link *l = c->fast;
	struct remote *r = NULL;
	if (a->id && a->imm_max <= IMM_MAX && is_channel(fds[0])) {
		fast_lock();
		if (l->n_remotes < REMOTES_MAX && !remote_find(l, a->id))
			r = remote_new(c, a, fds);
		if (r) {
			r->next = l->remotes;
			l->remotes = r;
			l->n_remotes++;
		}
		fast_unlock();
	}
	if (!r)
		return REFUSE(false, "Comch '%s': consumer %u of the other side is refused",
			      c->e->name, a->id); /* its channel was closed, so it stops */
	if (c->e->consumer_cb)
		c->e->consumer_cb((void *)&c->e->event, c, a->id);
	return c->e->consumer_cb;
}

void remote_deliver_expired(struct remote *r)
{
	struct endpoint *e = r->e;
	struct doca_comch_connection *c = r->c;
	uint32_t id = r->id;
	softdoca_object_free(r);
	e->expired_cb((void *)&e->event, c, id);
}

bool remote_expired(struct remote *r)
{
	struct endpoint *e = r->e;
	fast_lock();
	struct fast_link *l = r->link;
	remote_close(r);
	wake_all(l); /* producers that wait for space */
	fast_unlock();
	if (!e->expired_cb) {
		softdoca_object_free(r);
		return false;
	}
	remote_deliver_expired(r);
	return true;
}
