// SPDX-License-Identifier: Apache-2.0
/* The door's socket and thread. What is behind the door is in export.c and peer.c. */
#include "share/server.h"

#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "error.h"
#include "share/exports.h"
#include "share/importer.h"
#include "thread.h"

static pthread_mutex_t hold_lock = PTHREAD_MUTEX_INITIALIZER; /* opening and shutting */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* what is behind the door */
static struct {
	uint32_t refs;
	int listen_fd, epoll_fd, stop_fd, spare_fd, pace_fd;
	bool paced;
	pthread_t thread;
	char path[DOOR_PATH_MAX];
} door = {.listen_fd = -1, .epoll_fd = -1, .stop_fd = -1, .spare_fd = -1, .pace_fd = -1};

atomic_uint dg_fork_generation;

/* What an event belongs to is in the low bits of its 64-bit cookie. */
enum { ON_STOP, ON_LISTEN, ON_CONN, ON_PEER, ON_PACE, ON_MASK = 7 };
#define PACE_NS 20000000 /* how long an exporter may wait for an importer that does not poll */

void dg_door_lock(void)
{
	pthread_mutex_lock(&lock);
}

void dg_door_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

const char *dg_door_path(void)
{
	return door.path;
}

int dg_runtime_dir(char *out, size_t cap)
{
	const char *base = getenv("XDG_RUNTIME_DIR");
	struct stat st;
	int n = base && base[0] == '/'
			? snprintf(out, cap, "%s/dgkit", base)
			: snprintf(out, cap, P_tmpdir "/dgkit-%u", (unsigned)geteuid());
	if (n < 0 || (size_t)n >= cap)
		return dg_fail(ENAMETOOLONG,
			       "XDG_RUNTIME_DIR is longer than a socket's path may be: %s", base);
	if (mkdir(out, 0700) && errno != EEXIST)
		return dg_fail_errno(
			"the runtime folder %s (set XDG_RUNTIME_DIR to one that you own)", out);
	if (lstat(out, &st))
		return dg_fail_errno("the runtime folder %s", out);
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
		return dg_fail(EPERM,
			       "the runtime folder %s must be a folder of this user with mode 0700",
			       out);
	return 0;
}

/* A process that was killed leaves its socket behind: nobody listens on it any more. */
static void sweep(const char *dir)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct dirent *e;
	DIR *d = opendir(dir);
	if (!d)
		return;
	while ((e = readdir(d))) {
		size_t len = strlen(e->d_name);
		int pid = 0, n = snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", dir, e->d_name);
		/* One that died before it listened. */
		if (sscanf(e->d_name, "new-%d-", &pid) == 1 && kill(pid, 0) && errno == ESRCH)
			unlink(a.sun_path);
		if (strncmp(e->d_name, "door-", 5) || len < 10 ||
		    strcmp(e->d_name + len - 5, ".sock"))
			continue;
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fd >= 0 && (size_t)n < sizeof a.sun_path &&
		    connect(fd, (struct sockaddr *)&a, sizeof a) && errno == ECONNREFUSED)
			unlink(a.sun_path);
		if (fd >= 0)
			close(fd);
	}
	closedir(d);
}

static int listen_open(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char dir[DOOR_PATH_MAX];
	uint32_t salt = 0;
	int rc = dg_runtime_dir(dir, sizeof dir);
	if (rc)
		return rc;
	sweep(dir);
	if (getrandom(&salt, sizeof salt, 0) != sizeof salt)
		return dg_fail_errno("no random bytes");
	/* Bound under another name and renamed once it listens, so that a sweep never meets it deaf. */
	int n = snprintf(door.path, sizeof door.path, "%s/door-%d-%08x.sock", dir, (int)getpid(),
			 salt);
	int m = snprintf(a.sun_path, sizeof a.sun_path, "%s/new-%d-%08x", dir, (int)getpid(), salt);
	if ((size_t)n >= sizeof door.path || (size_t)m >= sizeof a.sun_path)
		return dg_fail(ENAMETOOLONG,
			       "the folder %s is too long for a socket's path (%zu bytes)", dir,
			       sizeof a.sun_path);
	door.listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (door.listen_fd < 0)
		return dg_fail_errno("a socket for exports");
	if (bind(door.listen_fd, (struct sockaddr *)&a, sizeof a))
		return dg_fail_errno("%s", a.sun_path);
	if (chmod(a.sun_path, 0600) || listen(door.listen_fd, 128) ||
	    rename(a.sun_path, door.path)) {
		rc = dg_fail_errno("%s", door.path);
		unlink(a.sun_path);
	}
	return rc;
}

static int watch(int fd, uint32_t events, uint64_t cookie)
{
	struct epoll_event e = {.events = events, .data.u64 = cookie};
	return epoll_ctl(door.epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

int dg_door_watch(int fd, int pidfd, void *cookie)
{
	uint64_t id = (uint64_t)(uintptr_t)cookie * (ON_MASK + 1) | ON_PEER;
	if (watch(fd, EPOLLRDHUP | EPOLLHUP, id) || (pidfd >= 0 && watch(pidfd, EPOLLIN, id)))
		return dg_fail_errno("watching an exporter");
	return 0;
}

void dg_door_unwatch(int fd, int pidfd)
{
	epoll_ctl(door.epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	if (pidfd >= 0)
		epoll_ctl(door.epoll_fd, EPOLL_CTL_DEL, pidfd, NULL);
}

/* No fd is left to answer with, and a connection that is not accepted would wake us for ever: the spare
 * fd makes room to take it and hang up. */
static void hang_up_on_one(void)
{
	if (door.spare_fd < 0) {
		usleep(1000);
	} else {
		close(door.spare_fd);
		int fd = accept4(door.listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			close(fd);
	}
	door.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void on_listen(void)
{
	struct ucred cred;
	socklen_t len = sizeof cred;
	int fd = accept4(door.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		hang_up_on_one();
	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) || cred.uid != geteuid()) {
		close(fd);
		return;
	}
	int pidfd = dg_pidfd_open(cred.pid);
	struct conn *c = dg_conn_new(fd, cred.pid, pidfd);
	if (!c) {
		close(fd);
		if (pidfd >= 0)
			close(pidfd);
		return;
	}
	uint64_t cookie = (uint64_t)(uintptr_t)c | ON_CONN;
	if (watch(fd, EPOLLIN | EPOLLRDHUP, cookie) ||
	    (pidfd >= 0 && watch(pidfd, EPOLLIN, cookie)))
		dg_conn_free(c);
}

static void answer(struct conn *c, const struct door_ask *q)
{
	struct door_answer a = {.magic = DOOR_MAGIC, .version = DOOR_VERSION, .tag = q->tag};
	int fds[2], n_fds = 0, rc = 0;
	if (q->version != DOOR_VERSION)
		rc = dg_fail(EPROTONOSUPPORT, "the exporter speaks version %u, the importer %u",
			     DOOR_VERSION, q->version);
	else if (q->kind == DOOR_IMPORT)
		rc = dg_conn_import(c, q->key, &a, fds, &n_fds);
	else if (q->kind == DOOR_GET || q->kind == DOOR_PUT)
		a.status = dg_conn_copy(c, q);
	else
		rc = dg_fail(EBADMSG, "the exporter knows no request %u", q->kind);
	if (rc) {
		a.error = (uint32_t)-rc;
		snprintf(a.text, sizeof a.text, "%.127s", dg_last_error());
	}
	ssize_t sent = dg_sock_send(c->fd, &a, sizeof a, fds, n_fds);
	if (sent == (ssize_t)sizeof a && a.has_control)
		c->control_sent = true;
	/* fds holds the control memfd, which the connection keeps, and then the region's. */
	for (int i = (int)a.has_control; i < n_fds; i++)
		close(fds[i]);
}

/* The socket ended: over at once if nothing is in flight, else when the process is. */
static void hang_up(struct conn *c)
{
	dg_door_unwatch(c->fd, -1);
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	if (dg_conn_over(c))
		dg_conn_free(c);
}

static void on_conn(struct conn *c, uint32_t events)
{
	struct door_ask q;
	int fds[2], n_fds = 0;
	if (c->fd < 0 || (c->pidfd >= 0 && dg_pid_dead(c->pidfd))) {
		dg_conn_free(c);
		return;
	}
	ssize_t n = dg_sock_recv(c->fd, &q, sizeof q, fds, &n_fds);
	for (int i = 0; i < n_fds; i++)
		close(fds[i]);
	if (n == -EAGAIN && !(events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
		return;
	if (n != (ssize_t)sizeof q || q.magic != DOOR_MAGIC)
		hang_up(c);
	else if (q.kind == DOOR_RELEASE && q.version == DOOR_VERSION)
		dg_conn_release(c, q.slot);
	else
		answer(c, &q);
}

static void *run(void *unused)
{
	struct epoll_event e;
	(void)unused;
	for (;;) {
		/* One at a time: handling one may end what the next would be about. */
		int n = epoll_wait(door.epoll_fd, &e, 1, -1);
		if (n < 0 && errno != EINTR)
			return NULL;
		if (n != 1)
			continue;
		uint64_t what = e.data.u64 & ON_MASK;
		if (what == ON_STOP)
			return NULL;
		if (what == ON_PACE) {
			uint64_t ticks;
			if (read(door.pace_fd, &ticks, sizeof ticks) > 0)
				dg_devices_move();
			continue;
		}
		if (what == ON_PEER) {
			dg_peer_died((void *)(uintptr_t)(e.data.u64 / (ON_MASK + 1)));
			continue;
		}
		dg_door_lock();
		if (what == ON_LISTEN)
			on_listen();
		else
			on_conn((struct conn *)(uintptr_t)(e.data.u64 & ~(uint64_t)ON_MASK),
				e.events);
		dg_door_unlock();
	}
}

/* How many times these handlers are registered and have been called for the fork in hand. The first
 * call before it locks, the last one after it unlocks: see dg_fork_watch_last(). */
static _Thread_local int forking;

static void fork_prepare(void)
{
	if (forking++)
		return;
	dg_devices_fork_lock();
	pthread_mutex_lock(&hold_lock);
	dg_peer_fork_lock();
	dg_door_lock();
	dg_table_fork_lock();
}

static void fork_unlock(bool child)
{
	dg_table_fork_unlock();
	dg_door_unlock();
	dg_peer_fork_unlock();
	pthread_mutex_unlock(&hold_lock);
	dg_devices_fork_unlock(child);
}

static void fork_parent(void)
{
	if (!--forking)
		fork_unlock(false);
}

static void close_all(void)
{
	if (door.listen_fd >= 0)
		close(door.listen_fd);
	if (door.epoll_fd >= 0)
		close(door.epoll_fd);
	if (door.stop_fd >= 0)
		close(door.stop_fd);
	if (door.spare_fd >= 0)
		close(door.spare_fd);
	if (door.pace_fd >= 0)
		close(door.pace_fd);
	door.listen_fd = door.epoll_fd = door.stop_fd = door.spare_fd = door.pace_fd = -1;
	dg_conns_free();
}

/* The child has no threads and must not hold sockets whose end tells others that the parent died. */
static void fork_child(void)
{
	if (--forking)
		return;
	atomic_fetch_add(&dg_fork_generation, 1);
	dg_peer_forget();
	close_all();
	dg_exports_forget();
	door.refs = 0;
	door.path[0] = 0;
	door.paced = false;
	fork_unlock(true);
}

static int fork_rc;

static void fork_watch(void)
{
	fork_rc = pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static int fork_watch_once(pthread_once_t *once)
{
	pthread_once(once, fork_watch);
	return fork_rc ? dg_fail(fork_rc, "pthread_atfork: %s", strerror(fork_rc)) : 0;
}

int dg_fork_watch(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	return fork_watch_once(&once);
}

int dg_fork_watch_last(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	return fork_watch_once(&once);
}

static void set_pace(void)
{
	struct itimerspec t = {0};
	if (door.paced)
		t.it_interval.tv_nsec = t.it_value.tv_nsec = PACE_NS;
	if (door.pace_fd >= 0)
		timerfd_settime(door.pace_fd, 0, &t, NULL);
}

void dg_door_pace(bool on)
{
	pthread_mutex_lock(&hold_lock);
	door.paced = on;
	set_pace();
	pthread_mutex_unlock(&hold_lock);
}

static int open_all(void)
{
	int rc = listen_open();
	if (rc)
		return rc;
	door.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	door.stop_fd = eventfd(0, EFD_CLOEXEC);
	door.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	door.pace_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (door.epoll_fd < 0 || door.stop_fd < 0 || door.pace_fd < 0 ||
	    watch(door.listen_fd, EPOLLIN, ON_LISTEN) || watch(door.stop_fd, EPOLLIN, ON_STOP) ||
	    watch(door.pace_fd, EPOLLIN, ON_PACE))
		return dg_fail_errno("the export socket's epoll");
	set_pace();
	rc = dg_thread_start(&door.thread, "dgkit-door", run, NULL);
	return rc ? dg_fail(rc, "the export thread: %s", strerror(rc)) : 0;
}

int dg_door_hold(void)
{
	pthread_mutex_lock(&hold_lock);
	int rc = door.refs ? 0 : open_all();
	if (!rc) {
		door.refs++;
	} else {
		if (door.path[0])
			unlink(door.path);
		door.path[0] = 0;
		close_all();
	}
	pthread_mutex_unlock(&hold_lock);
	return rc;
}

void dg_door_drop(void)
{
	pthread_mutex_lock(&hold_lock);
	if (--door.refs == 0) {
		eventfd_write(door.stop_fd, 1);
		pthread_join(door.thread, NULL);
		unlink(door.path);
		door.path[0] = 0;
		close_all();
	}
	pthread_mutex_unlock(&hold_lock);
}
