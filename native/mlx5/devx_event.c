// SPDX-License-Identifier: Apache-2.0
/*
 * Events of DEVX objects, and answers to their asynchronous queries. A channel is a pair of sockets, so that each
 * event is read as a whole; the program has one of them. What the NIC writes about an object goes to a thread, which
 * looks for those who subscribed.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rdma/mlx5_user_ioctl_verbs.h>

#include "ioctl.h"
#include "thread.h"

/* Of struct mlx5_eqe in the kernel's include/linux/mlx5/device.h. */
enum event_type { COMPLETION = 0, CQ_ERROR = 4, QP_FATAL = 5, LAST_RECEIVE = 0x13 };
enum { EQE = 64, MOST_TYPES = 16, COOKIE = 8 };

struct event_channel {
	struct event_channel *next;
	uint64_t inode; /* of the program's socket: its descriptor may be another file's by now */
	int fd;
	bool has_data;
};

/* event: of the object; eventfd: where its events are counted instead, or -1; is_owed: the channel was full. */
struct subscription {
	struct subscription *next;
	struct event_channel *channel;
	uint64_t event, cookie;
	uint32_t type;
	int eventfd;
	bool is_owed;
};

static struct event_channel *channels;
static struct subscription *subscriptions;
static int from_nic = -1, pipe_end = -1; /* where the NIC writes, and the thread reads */
static bool is_running;

enum { OWED_MS = 10 }; /* a full channel is tried again after */

static uint64_t inode_of(int fd)
{
	struct stat s;
	return fstat(fd, &s) ? 0 : s.st_ino;
}

static void unsubscribe(struct subscription **at)
{
	struct subscription *s = *at;
	*at = s->next;
	if (s->eventfd >= 0)
		dg_mlx5_close(s->eventfd);
	free(s);
}

/* Forgets channels whose other end the program has closed, and what objects had that are destroyed. */
static void clean(void)
{
	for (struct event_channel **at = &channels, *c; (c = *at);) {
		char byte;
		ssize_t n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
		if (n < 0 && errno == ECONNRESET) /* once, if the program left events unread */
			n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
		if (n) {
			at = &c->next;
			continue;
		}
		for (struct subscription **s = &subscriptions; *s;)
			if ((*s)->channel == c)
				unsubscribe(s);
			else
				s = &(*s)->next;
		*at = c->next;
		dg_mlx5_close(c->fd);
		free(c);
	}
	for (struct subscription **s = &subscriptions; *s;)
		if (dg_mlx5_event_object((*s)->event))
			s = &(*s)->next;
		else
			unsubscribe(s);
}

static int open_channel(struct request *r, bool has_data)
{
	int fds[2];
	clean();
	if (!r->context->has_devx)
		return -EINVAL;
	struct event_channel *c = calloc(1, sizeof *c);
	if (!c || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds)) {
		free(c);
		return c ? -EMFILE : -ENOMEM;
	}
	*c = (struct event_channel){.next = channels, .inode = inode_of(fds[0]), .fd = fds[1], .has_data = has_data};
	channels = c;
	const int rc = dg_mlx5_put_handle(r, 0, (uint32_t)fds[0]);
	if (rc)
		dg_mlx5_close(fds[0]); /* clean() frees the rest */
	return rc;
}

int dg_mlx5_event_channel(struct request *r)
{
	enum { FD, FLAGS };
	const uint64_t flags = dg_mlx5_value(r, FLAGS);
	return flags & ~(uint64_t)MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA ? -EINVAL : open_channel(r, !flags);
}

int dg_mlx5_command_channel(struct request *r)
{
	return open_channel(r, true);
}

static struct event_channel *find_channel(int fd)
{
	const uint64_t inode = inode_of(fd);
	struct event_channel *c = channels;
	while (c && c->inode != inode)
		c = c->next;
	return inode ? c : NULL;
}

int dg_mlx5_async_query(struct request *r)
{
	enum { OBJECT, INPUT, FD, WR_ID, OUT_LENGTH };
	const uint32_t size = (uint32_t)dg_mlx5_value(r, OUT_LENGTH) & 0xffff;
	struct event_channel *c = find_channel((int)dg_mlx5_value(r, FD));
	if (!c)
		return -EBADF;
	uint8_t *answer = calloc(1, COOKIE + size);
	if (!answer)
		return -ENOMEM;
	int rc = dg_mlx5_devx_answer(r, INPUT, answer + COOKIE, size);
	const uint64_t id = dg_mlx5_value(r, WR_ID);
	memcpy(answer, &id, sizeof id);
	if (!rc && send(c->fd, answer, COOKIE + size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		rc = errno == EAGAIN ? -EAGAIN : -EIO; /* too many answers that were not read */
	free(answer);
	return rc;
}

static uint32_t number_of(const struct object *o)
{
	return o->kind == KIND_CQ ? ((const struct cq *)o)->number : ((const struct qp *)o)->number;
}

static void fill_eqe(uint8_t *eqe, uint32_t type, const struct object *o)
{
	const uint32_t number = htobe32(number_of(o));
	eqe[1] = (uint8_t)type;
	memcpy(eqe + (type == CQ_ERROR ? 32 : 56), &number, sizeof number);
	if (type == CQ_ERROR)
		eqe[32 + 11] = 1; /* overrun */
}

static void tell(struct subscription *s, const struct object *o)
{
	uint8_t packet[COOKIE + EQE] = {0};
	const uint64_t one = 1;
	struct pollfd p = {.fd = s->eventfd, .events = POLLOUT};
	if (s->eventfd >= 0) { /* one that is full has as many events as it counts; it may block */
		if (poll(&p, 1, 0) == 1 && p.revents & POLLOUT && write(s->eventfd, &one, sizeof one) < 0)
			return;
		return;
	}
	memcpy(packet, &s->cookie, COOKIE);
	fill_eqe(packet + COOKIE, s->type, o);
	s->is_owed = send(s->channel->fd, packet, s->channel->has_data ? sizeof packet : COOKIE,
			  MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* Tells those who subscribed to an event of this object. With the lock. */
static void deliver(uint64_t event, uint32_t type)
{
	const struct object *o = dg_mlx5_event_object(event);
	for (struct subscription *s = o ? subscriptions : NULL; s; s = s->next)
		if (s->event == event && s->type == type)
			tell(s, o);
}

/* Tells those whose channel was full. Returns whether one still is. With the lock. */
static bool deliver_owed(void)
{
	bool any = false;
	for (struct subscription *s = subscriptions; s; s = s->next) {
		const struct object *o = s->is_owed ? dg_mlx5_event_object(s->event) : NULL;
		if (o)
			tell(s, o);
		any |= o && s->is_owed;
	}
	return any;
}

/* Reads what the NIC writes: 8 bytes for a completion, or a struct dg_nic_async_event. */
static void *serve(void *fd)
{
	struct pollfd p = {.fd = (int)(intptr_t)fd, .events = POLLIN};
	bool owes = false;
	for (;;) {
		dg_nic_async_event e;
		ssize_t n = -1;
		if (poll(&p, 1, owes ? OWED_MS : -1) > 0) {
			n = recv(p.fd, &e, sizeof e, 0);
			if (!n || (n < 0 && errno != EINTR))
				return NULL;
		}
		dg_mlx5_enter();
		if (n > 0)
			deliver(e.event, n == sizeof e.event	       ? COMPLETION
					 : e.type == DG_NIC_CQ_OVERRUN ? CQ_ERROR
					 : e.type == DG_NIC_QP_FATAL   ? QP_FATAL
								       : LAST_RECEIVE);
		owes = deliver_owed();
		dg_mlx5_leave();
	}
}

static int run_thread(void)
{
	pthread_t thread;
	dg_nic_async_event e;
	if (is_running)
		return 0;
	if (dg_mlx5_event_fd() < 0)
		return -EMFILE;
	while (recv(pipe_end, &e, sizeof e, MSG_DONTWAIT) > 0)
		continue; /* of the time before */
	if (dg_thread_start(&thread, "dgkit-events", serve, (void *)(intptr_t)pipe_end))
		return -EAGAIN;
	pthread_detach(thread);
	is_running = true;
	return 0;
}

int dg_mlx5_event_fd(void)
{
	int fds[2];
	if (from_nic < 0 && !socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds)) {
		pipe_end = fds[0];
		from_nic = fds[1];
		fcntl(from_nic, F_SETFL, O_NONBLOCK); /* the NIC does not wait */
	}
	return from_nic;
}

/* In the child, whose copies of the descriptors would keep the channels open. */
void dg_mlx5_events_forked(void)
{
	while (subscriptions)
		unsubscribe(&subscriptions);
	for (struct event_channel *c; (c = channels);) {
		channels = c->next;
		dg_mlx5_close(c->fd);
		free(c);
	}
	if (from_nic >= 0) {
		dg_mlx5_close(from_nic);
		dg_mlx5_close(pipe_end);
	}
	from_nic = pipe_end = -1;
	is_running = false;
}

/* As the kernel, which takes no other file. */
static bool is_eventfd(int fd)
{
	static const char wanted[] = "anon_inode:[eventfd]";
	char path[32], target[sizeof wanted];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	const ssize_t n = readlink(path, target, sizeof target);
	return n == sizeof wanted - 1 && !memcmp(target, wanted, sizeof wanted - 1);
}

static int subscribe(struct event_channel *c, const struct object *o, uint32_t type, uint64_t cookie, int eventfd)
{
	const bool fits = o->kind == KIND_CQ ? type == COMPLETION || type == CQ_ERROR
					     : o->kind == KIND_QP && (type == QP_FATAL || type == LAST_RECEIVE);
	struct subscription *s = fits ? calloc(1, sizeof *s) : NULL;
	if (!s)
		return fits ? -ENOMEM : -EINVAL;
	*s = (struct subscription){.next = subscriptions, .channel = c, .event = o->event, .cookie = cookie,
				   .type = type, .eventfd = -1};
	if (eventfd >= 0 && (s->eventfd = fcntl(eventfd, F_DUPFD_CLOEXEC, 0)) < 0) {
		free(s);
		return -EBADF;
	}
	subscriptions = s;
	return 0;
}

int dg_mlx5_subscribe(struct request *r)
{
	enum { FD, OBJECT, TYPES, FD_NUMBER, EVENT_COOKIE };
	uint16_t types[MOST_TYPES];
	const uint32_t size = dg_mlx5_length(r, TYPES), n = size / sizeof types[0];
	clean();
	struct event_channel *c = find_channel((int)dg_mlx5_value(r, FD));
	if (!c)
		return -EBADF;
	/* Events of no object are those of the port, which ibv_get_async_event() has. */
	if (!r->object || size % sizeof types[0] || n > MOST_TYPES)
		return -EINVAL;
	const int eventfd = r->is_given[FD_NUMBER] ? (int)dg_mlx5_value(r, FD_NUMBER) : -1;
	if (r->is_given[FD_NUMBER] && fcntl(eventfd, F_GETFD) < 0)
		return -EBADF;
	if (r->is_given[FD_NUMBER] && !is_eventfd(eventfd))
		return -EINVAL;
	int rc = dg_mlx5_get(r, TYPES, types, size);
	if (!rc)
		rc = run_thread();
	struct subscription *const before = subscriptions;
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = subscribe(c, r->object, types[i], dg_mlx5_value(r, EVENT_COOKIE), eventfd);
	while (rc && subscriptions != before)
		unsubscribe(&subscriptions);
	return rc;
}
