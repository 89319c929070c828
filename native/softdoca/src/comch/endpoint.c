// SPDX-License-Identifier: Apache-2.0
/*
 * Common code of clients and servers. Such a context has its own epoll fd over all its sockets as
 * notification handle, so a program can sleep on it. (According to DOCA's guide Comch has no
 * event-triggered completions: a program for NVIDIA's library polls doca_pe_progress instead.)
 * Sources: "Comch API reference" is the published header's documentation; "guess" marks an
 * assumption that no published source confirms.
 */
#include "fast.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* ---- a forked child must not hold sockets whose end of file reports the parent's death ---- */

static pthread_mutex_t started_lock = PTHREAD_MUTEX_INITIALIZER;
static struct endpoint *started;

static void each_fd(struct endpoint *e, void (*visit)(int *fd))
{
	int *const fds[] = {&e->epoll_fd, &e->timer_fd, &e->listen_fd, &e->lock_fd, &e->spare_fd};
	for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
		visit(fds[i]);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void no_fd(int *fd)
{
	*fd = -1;
}

static void before_fork(void)
{
	pthread_mutex_lock(&started_lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&started_lock);
}

static void in_child(void)
{
	for (struct endpoint *e = started; e; e = e->next_started) {
		each_fd(e, close_fd);
		for (struct doca_comch_connection *c = e->connections; c; c = c->next)
			close_fd(&c->fd);
	}
	after_fork();
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}

static void list_started(struct endpoint *e)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&started_lock);
	e->next_started = started;
	started = e;
	pthread_mutex_unlock(&started_lock);
}

static void unlist_started(struct endpoint *e)
{
	struct endpoint **at = &started;
	pthread_mutex_lock(&started_lock);
	while (*at && *at != e)
		at = &(*at)->next_started;
	if (*at)
		*at = e->next_started;
	pthread_mutex_unlock(&started_lock);
}

/* ---- a process that exits with servers still running ---- */

__attribute__((destructor)) static void remove_files(void)
{
	/* Another thread may hold the lock, and may have called exit() itself. */
	if (pthread_mutex_trylock(&started_lock))
		return;
	for (struct endpoint *e = started; e; e = e->next_started)
		comch_remove_files(e);
	pthread_mutex_unlock(&started_lock);
}

/* ---- states ---- */

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

doca_error_t comch_watch(struct endpoint *e, int fd, void *what)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
	if (fd >= 0 && !epoll_ctl(e->epoll_fd, EPOLL_CTL_ADD, fd, &event))
		return DOCA_SUCCESS;
	int code = errno;
	return REFUSE(DOCA_ERROR_OPERATING_SYSTEM, "cannot watch a file descriptor: %s",
		      strerror(code));
}

/* There is no server yet: the timer wakes the program, and progress retries. */
static doca_error_t wait_for_server(struct endpoint *e)
{
	struct itimerspec every = {{0, RETRY_NS}, {0, RETRY_NS}};
	e->deadline_ns = now_ns() + CONNECT_NS;
	e->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (e->timer_fd >= 0)
		timerfd_settime(e->timer_fd, 0, &every, NULL);
	softdoca_log(DOCA_LOG_LEVEL_INFO, __func__,
		     "no server '%s' listens for this function yet: retrying for %u s", e->name,
		     (unsigned)(CONNECT_NS / 1000000000u));
	return comch_watch(e, e->timer_fd, &e->timer_fd);
}

static doca_error_t start_client(struct endpoint *e)
{
	doca_error_t error = comch_connect(e);
	if (error == DOCA_ERROR_IN_PROGRESS)
		error = wait_for_server(e);
	return error == DOCA_SUCCESS ? DOCA_ERROR_IN_PROGRESS : error;
}

static void endpoint_stopped(struct doca_ctx *ctx)
{
	struct endpoint *e = endpoint_of(ctx);
	unlist_started(e);
	while (e->connections) {
		comch_connection_end(e->connections, DOCA_ERROR_CONNECTION_ABORTED);
		comch_connection_free(e->connections);
	}
	comch_listen_end(e);
	comch_tasks_free(e);
	each_fd(e, close_fd);
}

/* Comch guide: these settings are required before the start. The error BAD_STATE: guess. */
static doca_error_t configured(const struct endpoint *e)
{
	const char *lacks = !e->n_tasks   ? "send tasks (..._task_send_set_conf)"
			    : !e->recv_cb ? "a callback for messages (..._event_msg_recv_register)"
			    : e->is_server && !e->connect_cb ? "callbacks for connections"
							     : NULL;
	return lacks ? REFUSE(DOCA_ERROR_BAD_STATE, "'%s' starts without %s", e->name, lacks)
		     : DOCA_SUCCESS;
}

static doca_error_t start(struct doca_ctx *ctx)
{
	struct endpoint *e = endpoint_of(ctx);
	TRY(configured(e));
	each_fd(e, no_fd);
	e->pid = getpid();
	e->items = (struct items){0};
	e->full = false;
	list_started(e);
	comch_sweep(e);
	e->ctx.fd = e->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	doca_error_t error = e->epoll_fd < 0 ? DOCA_ERROR_OPERATING_SYSTEM : comch_tasks_new(e);
	if (error == DOCA_SUCCESS)
		error = e->is_server ? comch_listen(e) : start_client(e);
	if (error != DOCA_SUCCESS && error != DOCA_ERROR_IN_PROGRESS)
		endpoint_stopped(ctx);
	return error;
}

/* guess: no disconnect event for clients that the server itself disconnects. */
static void stop(struct doca_ctx *ctx)
{
	struct endpoint *e = endpoint_of(ctx);
	comch_listen_end(e);
	close_fd(&e->timer_fd);
	for (struct doca_comch_connection *c = e->connections; c; c = c->next)
		comch_connection_end(c, FLUSHED);
}

static bool quiet(struct doca_ctx *ctx)
{
	return !endpoint_of(ctx)->items.first;
}

/* ---- progress ---- */

static bool try_again(struct endpoint *e)
{
	uint64_t ticks;
	ssize_t got = read(e->timer_fd, &ticks, sizeof ticks);
	(void)got;
	doca_error_t error = comch_connect(e);
	if (error == DOCA_ERROR_IN_PROGRESS && now_ns() < e->deadline_ns)
		return false;
	close_fd(&e->timer_fd);
	if (error == DOCA_SUCCESS)
		return false;
	softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__,
		     "no server '%s' listens for the function %s: start it before its clients",
		     e->name, e->function);
	softdoca_ctx_fail(&e->ctx);
	return true;
}

/* Handles socket events until one calls a callback. */
static bool deliver_from_sockets(struct endpoint *e)
{
	struct epoll_event event;
	/* The loop is bounded, so that peers that connect without sending a message cannot keep the
	 * program here. */
	for (int i = 0; i < 16 && epoll_wait(e->epoll_fd, &event, 1, 0) == 1; i++) {
		void *what = event.data.ptr;
		bool called = false;
		if (what == &e->listen_fd)
			comch_accept(e);
		else if (what == &e->timer_fd)
			called = try_again(e);
		else if (object_is(what, OBJECT_COMCH_REMOTE))
			called = remote_expired(what);
		else
			called = comch_connection_event(what, event.events);
		if (called)
			return true;
	}
	return false;
}

static bool deliver_item(struct endpoint *e)
{
	struct item *i = items_take(&e->items);
	if (!i)
		return false;
	if (i->task) {
		comch_deliver(i->task);
		return true;
	}
	if (i->consumer) {
		remote_deliver_expired(i->consumer);
		return true;
	}
	struct doca_comch_connection *c = i->connection;
	/* Removed from the list first, because the callback may stop the server. */
	comch_connection_unlist(c);
	e->disconnect_cb((void *)&e->event, c, 1);
	comch_connection_free(c);
	return true;
}

static bool progress(struct doca_ctx *ctx)
{
	struct endpoint *e = endpoint_of(ctx);
	/* Alternate, so that completions whose callbacks submit again and incoming messages do not
	 * starve each other. */
	e->sockets_first = !e->sockets_first;
	if (e->sockets_first)
		return deliver_from_sockets(e) || deliver_item(e);
	return deliver_item(e) || deliver_from_sockets(e) || deliver_item(e);
}

void softdoca_comch_hold(struct doca_ctx *ctx, bool hold)
{
	struct endpoint *e = endpoint_of(ctx);
	bool held = e->full;
	e->full = hold;
	if (held && !hold)
		for (struct doca_comch_connection *c = e->connections; c; c = c->next)
			comch_connection_watch(c);
}

/* Socket events make the handle readable without arming. */
static bool arm(struct doca_ctx *ctx)
{
	return endpoint_of(ctx)->items.first;
}

void comch_notify(struct endpoint *e, struct item *i)
{
	items_add(&e->items, i);
	softdoca_pe_kick(e->ctx.pe);
}

static const struct ctx_ops ops = {
	.start = start,
	.stop = stop,
	.quiet = quiet,
	.ended = endpoint_stopped,
	.submit = comch_submit,
	.progress = progress,
	.arm = arm,
	.free_task = comch_free_task,
	.needs_pe = true,
	.on_gpu =
		&ops, /* programs ask for it, for the sake of its consumers; messages are the CPU's */
};

/* ---- objects and their configuration ---- */

/* Comch API reference, doca_comch_*_create: INVALID_VALUE, NO_MEMORY. NOT_SUPPORTED: guess. */
doca_error_t comch_endpoint_new(struct doca_dev *dev, struct doca_dev_rep *rep, const char *name,
				enum object_kind kind, struct endpoint **out)
{
	bool server = kind == OBJECT_COMCH_SERVER;
	size_t len = name ? strnlen(name, NAME_MAX_LEN) : 0;
	if (!len || len == NAME_MAX_LEN)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "the name of a server must have 1 to %u characters",
			      NAME_MAX_LEN - 1);
	if (!(dev->info.f.caps & (server ? CAP_COMCH_SERVER : CAP_COMCH_CLIENT)))
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "device %s cannot be a Comch %s",
			      dev->info.f.pci, server ? "server" : "client");
	struct endpoint *e = softdoca_object_new(kind, sizeof *e);
	if (!e)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for an endpoint");
	doca_error_t error = softdoca_ctx_init(&e->ctx, dev, &ops);
	if (error != DOCA_SUCCESS) {
		softdoca_object_free(e);
		return error;
	}
	memcpy(e->name, name, len);
	snprintf(e->function, sizeof e->function, "%s", rep ? rep->f.vuid : dev->info.f.vuid);
	e->is_server = server;
	e->rep = rep;
	e->max_msg = MSG_MAX;
	e->recv_queue = RECV_QUEUE;
	each_fd(e, no_fd);
	object_become(&e->event, OBJECT_COMCH_EVENT);
	*out = e;
	return DOCA_SUCCESS;
}

doca_error_t comch_endpoint_destroy(struct endpoint *e)
{
	return softdoca_ctx_destroy(&e->ctx, DOCA_ERROR_BAD_STATE, softdoca_object_free, e);
}

doca_error_t comch_configurable(const struct endpoint *e, const char *what)
{
	if (e->ctx.state == DOCA_CTX_STATE_IDLE)
		return DOCA_SUCCESS;
	return REFUSE(DOCA_ERROR_BAD_STATE, "'%s' is started: %s can no longer be set", e->name,
		      what);
}

/* Comch API reference, doca_comch_*_set_*, doca_comch_*_register: INVALID_VALUE, BAD_STATE. */
static doca_error_t set_size(struct endpoint *e, uint32_t *field, uint32_t size, uint32_t most,
			     const char *what)
{
	if (!size || size > most)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%s is %u: it must be 1 to %u", what, size,
			      most);
	doca_error_t error = comch_configurable(e, what);
	if (error == DOCA_SUCCESS)
		*field = size;
	return error;
}

doca_error_t comch_set_max_msg(struct endpoint *e, uint32_t size)
{
	return set_size(e, &e->max_msg, size, MSG_MAX, "the largest message");
}

doca_error_t comch_set_recv_queue(struct endpoint *e, uint32_t size)
{
	return set_size(e, &e->recv_queue, size, RECV_QUEUE_MAX, "the receive queue");
}

doca_error_t comch_set_recv_cb(struct endpoint *e, doca_comch_event_msg_recv_cb_t cb)
{
	if (!cb)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the callback is NULL");
	doca_error_t error = comch_configurable(e, "the callback for messages");
	if (error == DOCA_SUCCESS)
		e->recv_cb = cb;
	return error;
}

doca_error_t comch_set_consumer_cbs(struct endpoint *e, doca_comch_event_consumer_cb_t added,
				    doca_comch_event_consumer_cb_t expired)
{
	if (!added || !expired)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "a callback is NULL");
	TRY(comch_configurable(e, "the callbacks for consumers"));
	e->consumer_cb = added;
	e->expired_cb = expired;
	return DOCA_SUCCESS;
}
