// SPDX-License-Identifier: Apache-2.0
/*
 * The system calls of the program that concern the adapter, in front of the C library's.
 *
 * An open device is a descriptor of /dev/zero: libibverbs wants a character device whose number is that of
 * the sysfs tree, and libmlx5 maps doorbell pages from it. libibverbs finds the sysfs tree by SYSFS_PATH.
 *
 * Programs that poll or post by libibverbs also make passes of the NIC in their own threads: a completion is
 * there when the post returns, and on few cores no other thread need run.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include "mlx5.h"
#include "preload.h"
#include "providers/verbs_api.h"
#include "share/server.h"

enum { EMPTY_POLLS = 64, REST_US = 10, SLEEPS = 100, LISTENER_TRIES = 100, LISTENER_US = 10000 };
static const char node[] = "/dev/infiniband/uverbs", cm_node[] = "/dev/infiniband/rdma_cm";

/* By descriptor: a context, a channel or one of the connection manager, or nothing. They change with the lock held, and are loaded without
 * it, to see whether a descriptor is the adapter's. */
static _Atomic(struct context *) contexts[MAX_FDS];
static _Atomic(struct channel *) channels[MAX_FDS];
static _Atomic(struct cm_channel *) cm_channels[MAX_FDS];
/* The number of the opening that a channel is of: a new one may get the descriptor and the memory of one that is
 * closed. Accessed with the lock held. */
static uint64_t cm_serials[MAX_FDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t opener; /* the process that has a NIC */
static pid_t owner;  /* the process that has these tables: a child of vfork() does not */
/* In a pass of the NIC, or with the lock: a signal handler that calls exit() there must not clean up. */
static _Thread_local bool inside;

void dg_mlx5_enter(void)
{
	pthread_mutex_lock(&lock);
	inside = true;
}

void dg_mlx5_leave(void)
{
	inside = false;
	pthread_mutex_unlock(&lock);
}

static void progress(void)
{
	inside = true;
	if (dg_mlx5_nic()) /* not in a child that uses its parent's objects */
		dg_nic_progress(dg_mlx5_nic());
	inside = false;
}

/* Returns the number of the adapter whose device this is, or -1. */
static int adapter_at(const char *path)
{
	enum { PREFIX = sizeof node - 1 };
	if (!path || strncmp(path, node, PREFIX) || path[PREFIX] < '0' || path[PREFIX] >= '0' + MAX_ADAPTERS)
		return -1;
	return path[PREFIX + 1] ? -1 : path[PREFIX] - '0';
}

/* The system's own fstat(2): the program's is replaced here. */
static int stat_of(int fd, struct stat *s)
{
	return (int)syscall(SYS_fstat, fd, s);
}

/* The program may have closed a descriptor without close(), as by dup2(), and another file may have it. */
static struct context *context_of(int fd)
{
	struct context *x = fd >= 0 && fd < MAX_FDS ? contexts[fd] : NULL;
	struct stat s;
	return x && !stat_of(fd, &s) && S_ISCHR(s.st_mode) && s.st_rdev == makedev(1, 5) ? x : NULL;
}

struct channel *dg_mlx5_channel(int fd)
{
	struct channel *c = fd >= 0 && fd < MAX_FDS ? channels[fd] : NULL;
	struct stat s;
	return c && !stat_of(fd, &s) && S_ISFIFO(s.st_mode) && s.st_ino == c->inode ? c : NULL;
}

/* An epoll instance has no type. */
struct cm_channel *dg_mlx5_cm_channel(int fd)
{
	struct cm_channel *c = fd >= 0 && fd < MAX_FDS ? cm_channels[fd] : NULL;
	struct stat s;
	return c && !stat_of(fd, &s) && !(s.st_mode & S_IFMT) ? c : NULL;
}

uint32_t dg_mlx5_adapters(void)
{
	static uint32_t number;
	char path[sizeof node + 1];
	while (number < MAX_ADAPTERS && snprintf(path, sizeof path, "%s%u", node, number) > 0 &&
	       !access(path, F_OK))
		number++;
	return number;
}

int dg_mlx5_close(int fd)
{
	REAL(close);
	return real(fd);
}

static int set_errno(int rc)
{
	if (rc >= 0)
		return rc;
	errno = -rc;
	return -1;
}

/* Makes a pipe: the program's end, and ours, which does not block. Returns 0 or a negative errno. */
static int open_pipe(int fds[2])
{
	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	if (fds[0] < MAX_FDS && !fcntl(fds[1], F_SETFL, O_NONBLOCK))
		return 0;
	dg_mlx5_close(fds[0]);
	dg_mlx5_close(fds[1]);
	return -EMFILE;
}

int dg_mlx5_channel_open(bool is_async)
{
	int fds[2];
	struct channel *c = calloc(1, sizeof *c);
	struct stat s;
	const int rc = c ? open_pipe(fds) : -ENOMEM;
	if (rc) {
		free(c);
		return rc;
	}
	stat_of(fds[0], &s);
	*c = (struct channel){
		.inode = s.st_ino, .fd = fds[0], .write_fd = fds[1], .users = 1, .is_async = is_async};
	channels[fds[0]] = c;
	return fds[0];
}

void dg_mlx5_channel_drop(const struct channel *c, uint64_t event)
{
	REAL(read);
	struct ib_uverbs_async_event_desc e;
	const ssize_t size = c->is_async ? sizeof e : sizeof e.element;
	char path[32];
	int left = 0;
	if (dg_mlx5_channel(c->fd) != c || ioctl(c->fd, FIONREAD, &left) || !left)
		return;
	/* Opened once more, as the program's descriptor may block, and another thread may read meanwhile. */
	snprintf(path, sizeof path, "/proc/self/fd/%d", c->fd);
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	for (; fd >= 0 && left > 0 && real(fd, &e, (size_t)size) == size; left -= (int)size)
		if (e.element != event && write(c->write_fd, &e, (size_t)size) != size)
			break; /* the NIC has filled the pipe meanwhile: events are lost then anyway */
	if (fd >= 0)
		dg_mlx5_close(fd);
}

void dg_mlx5_channel_put(struct channel *c)
{
	if (--c->users)
		return;
	dg_mlx5_close(c->write_fd);
	free(c);
}

/* Destroys what the context has, as the kernel does when a descriptor is closed. */
static void close_context(struct context *x)
{
	contexts[x->fd] = NULL;
	if (x->pid == getpid())
		dg_mlx5_destroy_all(x);
	if (x->async)
		dg_mlx5_channel_put(x->async);
	free(x);
}

/* Its writing end is closed once the child has copied the shared pages: the parent waits for that. */
static int copied[2] = {-1, -1};

static void fork_prepare(void)
{
	dg_mlx5_enter();
	if (!dg_mlx5_has_pages() || pipe2(copied, O_CLOEXEC))
		copied[0] = -1;
}

static void fork_parent(void)
{
	REAL(read);
	char end;
	if (copied[0] >= 0) {
		dg_mlx5_close(copied[1]);
		while (real(copied[0], &end, 1) < 0 && errno == EINTR)
			continue;
		dg_mlx5_close(copied[0]);
	}
	dg_mlx5_leave();
}

static void fork_child(void)
{
	owner = getpid();
	opener = 0;
	dg_mlx5_pages_forked();
	dg_mlx5_objects_forked();
	dg_mlx5_nic_forked();
	dg_mlx5_cm_forked();
	dg_mlx5_events_forked();
	for (int fd = 0; fd < MAX_FDS; fd++)
		cm_channels[fd] = NULL;
	if (copied[0] >= 0) {
		dg_mlx5_close(copied[0]);
		dg_mlx5_close(copied[1]);
	}
	dg_mlx5_leave();
}

int __open_2(const char *path, int flags); /* not in all headers */
int __open64_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags);

/* Prepares for forks, before the first descriptor of ours. Call with the lock held. */
static void prepare(void)
{
	static bool is_prepared;
	/* The core's handlers first: before a fork, the last ones are called first, and a command that has
	 * this lock takes the core's. */
	if (!is_prepared && !dg_fork_watch())
		is_prepared = !pthread_atfork(fork_prepare, fork_parent, fork_child);
	owner = getpid();
	if (!opener)
		opener = owner;
}

static int open_node(int fd, int adapter)
{
	struct context *x = calloc(1, sizeof *x);
	if (!x || fd >= MAX_FDS) {
		free(x);
		dg_mlx5_close(fd);
		return set_errno(x ? -EMFILE : -ENOMEM);
	}
	x->fd = fd;
	x->pid = getpid();
	x->adapter = (uint32_t)adapter;
	dg_mlx5_enter();
	prepare();
	contexts[fd] = x;
	dg_mlx5_leave();
	return fd;
}

/* Opens a channel of the connection manager in the place of its node. */
static int open_cm(int node_fd, int flags)
{
	static uint64_t serial;
	struct cm_channel *c;
	dg_mlx5_close(node_fd);
	dg_mlx5_enter();
	prepare();
	int fd = dg_mlx5_cm_open(&c);
	if (fd >= MAX_FDS) {
		dg_mlx5_cm_close(c);
		dg_mlx5_close(fd);
		fd = -EMFILE;
	}
	if (fd >= 0) {
		cm_channels[fd] = c;
		cm_serials[fd] = ++serial;
	}
	dg_mlx5_leave();
	if (fd >= 0)
		fcntl(fd, F_SETFL, flags & O_NONBLOCK);
	return set_errno(fd);
}

static int open_ours(const char *path, int flags, int fd)
{
	const int adapter = adapter_at(path);
	if (fd < 0)
		return fd;
	if (adapter >= 0)
		return open_node(fd, adapter);
	return path && !strcmp(path, cm_node) ? open_cm(fd, flags) : fd;
}

static int mode_of(int flags, va_list list)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(list, int) : 0;
}

#define OPEN(name, parameters, ...)                              \
	VISIBLE int name parameters                              \
	{                                                        \
		va_list list;                                    \
		va_start(list, flags);                           \
		const int mode = mode_of(flags, list);           \
		va_end(list);                                    \
		char room[PATH_MAX];                             \
		REAL(name);                                      \
		return open_ours(path, flags, real(__VA_ARGS__, flags, mode)); \
	}
#define TO dg_mlx5_path(path, room)
OPEN(open, (const char *path, int flags, ...), TO)
OPEN(open64, (const char *path, int flags, ...), TO)
OPEN(openat, (int folder, const char *path, int flags, ...), folder, TO)
OPEN(openat64, (int folder, const char *path, int flags, ...), folder, TO)

/* What a fortified program calls instead; it gives no mode. */
VISIBLE int __open_2(const char *path, int flags)
{
	return open(path, flags);
}

VISIBLE int __open64_2(const char *path, int flags)
{
	return open64(path, flags);
}

VISIBLE int __openat_2(int folder, const char *path, int flags)
{
	return openat(folder, path, flags);
}

VISIBLE int __openat64_2(int folder, const char *path, int flags)
{
	return openat64(folder, path, flags);
}

VISIBLE int close(int fd)
{
	REAL(close);
	struct context *x = context_of(fd);
	struct channel *c = dg_mlx5_channel(fd);
	struct cm_channel *cm = dg_mlx5_cm_channel(fd);
	if ((!x && !c && !cm) || owner != getpid())
		return real(fd);
	dg_mlx5_enter();
	if (x)
		close_context(x);
	if (c) {
		channels[fd] = NULL;
		dg_mlx5_channel_put(c);
	}
	if (cm) {
		cm_channels[fd] = NULL;
		dg_mlx5_cm_close(cm);
	}
	dg_mlx5_leave();
	return real(fd);
}

/* librdmacm wants a character device. */
static int show_device(int rc, int fd, void *s)
{
	if (!rc && dg_mlx5_cm_channel(fd)) /* stat and stat64 are the same in 64 bits */
		((struct stat *)s)->st_mode |= S_IFCHR;
	return rc;
}

int __fxstat(int version, int fd, struct stat *s); /* not in all headers */
int __fxstat64(int version, int fd, struct stat64 *s);

VISIBLE int fstat(int fd, struct stat *s)
{
	return show_device(stat_of(fd, s), fd, s);
}

VISIBLE int fstat64(int fd, struct stat64 *s)
{
	return fstat(fd, (struct stat *)s);
}

VISIBLE int __fxstat(int version, int fd, struct stat *s)
{
	(void)version;
	return fstat(fd, s);
}

VISIBLE int __fxstat64(int version, int fd, struct stat64 *s)
{
	(void)version;
	return fstat(fd, (struct stat *)s);
}

/* Without the kernel's list of adapters libibverbs reads that of sysfs. */
VISIBLE int socket(int domain, int type, int protocol)
{
	enum { RDMA = 20 }; /* NETLINK_RDMA */
	REAL(socket);
	if (domain == AF_NETLINK && protocol == RDMA)
		return set_errno(-EPROTONOSUPPORT);
	return real(domain, type, protocol);
}

/* A command of the connection manager: it may wait, without the lock, for an event, or for a listener, whose
 * program may be out of its turn for a while where there are few cores. As the kernel's, it waits on when the
 * descriptor is closed meanwhile, by a program that is about to end. */
static int write_cm(int fd, const void *bytes, size_t size)
{
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	uint64_t begun = 0;
	for (uint32_t tries = 0;; tries++) {
		dg_mlx5_enter();
		struct cm_channel *c = dg_mlx5_cm_channel(fd);
		const bool is_open = c && (!begun || cm_serials[fd] == begun);
		const int rc = is_open ? dg_mlx5_cm_write(c, bytes, size, tries < LISTENER_TRIES) : -EBADF;
		const bool waits = is_open && !(fcntl(fd, F_GETFL) & O_NONBLOCK);
		const uint64_t serial = is_open ? cm_serials[fd] : begun;
		dg_mlx5_leave();
		if (rc == -EINPROGRESS) {
			usleep(LISTENER_US);
			continue;
		}
		if (is_open ? rc != -EAGAIN || !waits : !begun)
			return rc;
		begun = serial;
		if (poll(&readable, is_open, -1) < 0)
			return -errno;
	}
}

VISIBLE ssize_t write(int fd, const void *bytes, size_t size)
{
	REAL(write);
	struct context *x = context_of(fd);
	if (!x && dg_mlx5_cm_channel(fd)) {
		const int rc = write_cm(fd, bytes, size);
		return rc ? set_errno(rc) : (ssize_t)size;
	}
	if (!x)
		return real(fd, bytes, size);
	dg_mlx5_enter();
	const int rc = x->pid == getpid() ? dg_mlx5_write(x, bytes, size) : -EIO;
	dg_mlx5_leave();
	return rc ? set_errno(rc) : (ssize_t)size;
}

VISIBLE int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	va_start(list, request);
	void *argument = va_arg(list, void *);
	va_end(list);
	REAL(ioctl);
	struct context *x = context_of(fd);
	if (!x)
		return real(fd, request, argument);
	if (request != RDMA_VERBS_IOCTL)
		return set_errno(-ENOTTY);
	dg_mlx5_enter();
	const int rc = x->pid == getpid() ? dg_mlx5_ioctl(x, argument) : -EIO;
	dg_mlx5_leave();
	return set_errno(rc);
}

/* Reads an event of a channel: the pipe has what the NIC wrote, the program gets its own handle of the object.
 * Events of objects that are destroyed meanwhile are left out. */
VISIBLE ssize_t read(int fd, void *bytes, size_t size)
{
	REAL(read);
	struct ib_uverbs_async_event_desc event;
	const struct channel *c = dg_mlx5_channel(fd);
	if (!c)
		return real(fd, bytes, size);
	const bool is_async = c->is_async;
	const size_t wanted = is_async ? sizeof event : sizeof event.element;
	if (size < wanted)
		return set_errno(-EINVAL);
	for (;;) {
		const ssize_t n = real(fd, &event, wanted);
		if (n != (ssize_t)wanted)
			return n;
		if (is_async && event.element == PORT_EVENT) {
			memcpy(bytes, &event, wanted);
			return n;
		}
		dg_mlx5_enter();
		struct object *o = dg_mlx5_event_object(event.element);
		if (o) {
			++*(is_async ? &o->async_reported : &((struct cq *)o)->reported);
			event.element = o->user_handle;
			memcpy(bytes, &event, wanted);
		}
		dg_mlx5_leave();
		if (o)
			return n;
	}
}

/* libmlx5's functions, which are the same for all contexts of the adapter. */
static int (*real_poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
static int (*real_post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static int (*real_req_notify_cq)(struct ibv_cq *, int);

/* Called after polls that found nothing. Where other threads want this core, among them maybe the peer that
 * the program waits for, the thread sleeps: one that sleeps is run soon after it wakes up, one that spins or
 * yields has to wait for the time slices of all others. */
static void rest(void)
{
	static _Thread_local long preempted;
	static _Thread_local uint32_t sleeps;
	struct rusage usage;
	getrusage(RUSAGE_THREAD, &usage);
	if (usage.ru_nivcsw != preempted)
		sleeps = SLEEPS;
	preempted = usage.ru_nivcsw;
	if (sleeps) {
		sleeps--;
		usleep(REST_US);
	}
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
	static _Thread_local uint32_t empty;
	int n = real_poll_cq(cq, most, wc);
	if (n)
		return n;
	progress();
	n = real_poll_cq(cq, most, wc);
	if (n)
		empty = 0;
	else if (++empty % EMPTY_POLLS == 0)
		rest();
	return n;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	const int rc = real_post_send(qp, wr, bad);
	progress();
	return rc;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	const int rc = real_req_notify_cq(cq, solicited);
	progress();
	return rc;
}

VISIBLE struct ibv_context *ibv_open_device(struct ibv_device *device);
VISIBLE struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	REAL(ibv_open_device);
	if (!real) /* libibverbs is loaded for a plugin alone (UCX): it is not behind this library */
		real = (__typeof__(&ibv_open_device))dlsym(dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD),
							   "ibv_open_device");
	struct ibv_context *c = real(device);
	if (!c || !context_of(c->cmd_fd))
		return c;
	real_poll_cq = c->poll_cq;
	real_post_send = c->post_send;
	real_req_notify_cq = c->req_notify_cq;
	c->poll_cq = poll_cq;
	c->post_send = post_send;
	c->req_notify_cq = req_notify_cq;
	return c;
}

/* Closes what the program has left open, as the kernel does. Its other threads may still poll, so they keep the
 * NIC; what it leaves in the runtime folder the next process removes, as after a kill. */
__attribute__((destructor)) static void close_all(void)
{
	if (opener != getpid() || inside)
		return;
	dg_mlx5_enter();
	for (int fd = 0; fd < MAX_FDS; fd++)
		if (contexts[fd])
			close_context(contexts[fd]);
	dg_mlx5_leave();
	if (dg_mlx5_is_single_threaded())
		dg_mlx5_close_nic();
}
