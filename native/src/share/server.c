// SPDX-License-Identifier: Apache-2.0
/* The share server's socket and thread, and the fork handlers. The work itself is in exports.c and
 * importer.c. */
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
#include "share/bar.h"
#include "share/exports.h"
#include "share/importer.h"
#include "share/peer_fds.h"
#include "share/polling.h"
#include "share/unix_socket.h"
#include "thread.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

static pthread_mutex_t lifecycle_lock = PTHREAD_MUTEX_INITIALIZER; /* starting and stopping */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the table of exports: dg_share_lock() */
static struct {
	uint32_t refs;
	int listen_fd, epoll_fd, stop_fd, spare_fd, poll_fd;
	bool polling;
	pthread_t thread;
	char path[SHARE_PATH_MAX];
} server = {.listen_fd = -1, .epoll_fd = -1, .stop_fd = -1, .spare_fd = -1, .poll_fd = -1};

/* The low bits of an event's 64-bit cookie identify what it belongs to. */
enum { ON_STOP, ON_LISTEN, ON_CONN, ON_EXPORTER, ON_POLL, ON_MASK = 7 };
/* Limits how long an exporter waits for an importer that does not poll its queues. */
#define POLL_INTERVAL_NS 20000000

void dg_share_lock(void)
{
	pthread_mutex_lock(&lock);
}

void dg_share_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

const char *dg_share_server_path(void)
{
	return server.path;
}

int dg_runtime_dir(char *out, size_t cap)
{
	const char *base = getenv("XDG_RUNTIME_DIR");
	struct stat st;
	bool given = base && base[0] == '/';
	int n = given ? snprintf(out, cap, "%s/dgkit", base)
			: snprintf(out, cap, P_tmpdir "/dgkit-%u", (unsigned)geteuid());
	if (n < 0 || (size_t)n >= cap)
		return dg_fail(ENAMETOOLONG,
			       "XDG_RUNTIME_DIR is too long for the path of a socket: %s", base);
	/* The owner of the folder above could replace this one; root may use that of nobody else. */
	if (given && !stat(base, &st) && st.st_uid && st.st_uid != geteuid())
		return dg_fail(EPERM,
			       "XDG_RUNTIME_DIR is %s, which belongs to user %u: set it to a folder "
			       "of this user, or unset it",
			       base, (unsigned)st.st_uid);
	if (mkdir(out, 0700) && errno != EEXIST)
		return dg_fail_errno("cannot create the runtime folder %s (set XDG_RUNTIME_DIR to "
				     "a folder that you own)",
				     out);
	if (lstat(out, &st))
		return dg_fail_errno("cannot query the runtime folder %s", out);
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
		return dg_fail(EPERM,
			       "the runtime folder %s must be a folder of this user with mode "
			       "0700: fix it, or set XDG_RUNTIME_DIR",
			       out);
	return 0;
}

/* Removes the sockets that killed processes left behind: those that refuse connections. */
static void remove_stale_sockets(const char *dir)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct dirent *e;
	DIR *d = opendir(dir);
	if (!d)
		return;
	while ((e = readdir(d))) {
		size_t len = strlen(e->d_name);
		int pid = 0, n = snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", dir, e->d_name);
		/* Left behind by a process that died before it listened. */
		if (sscanf(e->d_name, "new-%d-", &pid) == 1 && kill(pid, 0) && errno == ESRCH)
			unlink(a.sun_path);
		if (strncmp(e->d_name, "share-", 6) || len < 11 ||
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
	char dir[SHARE_PATH_MAX];
	uint32_t salt = 0;
	int rc = dg_runtime_dir(dir, sizeof dir);
	if (rc)
		return rc;
	remove_stale_sockets(dir);
	if (getrandom(&salt, sizeof salt, 0) != sizeof salt)
		return dg_fail_errno("cannot get random bytes");
	/* Bind under another name, and rename the socket once it listens, so that
	 * remove_stale_sockets() of another process never finds it refusing connections. */
	int n = snprintf(server.path, sizeof server.path, "%s/share-%d-%08x.sock", dir,
			 (int)getpid(), salt);
	int m = snprintf(a.sun_path, sizeof a.sun_path, "%s/new-%d-%08x", dir, (int)getpid(), salt);
	if ((size_t)n >= sizeof server.path || (size_t)m >= sizeof a.sun_path)
		return dg_fail(ENAMETOOLONG,
			       "the folder %s is too long for the path of a socket (at most %zu "
			       "bytes): set XDG_RUNTIME_DIR to a shorter one",
			       dir, sizeof a.sun_path - 1);
	server.listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (server.listen_fd < 0)
		return dg_fail_errno("cannot create the share server's socket");
	if (bind(server.listen_fd, (struct sockaddr *)&a, sizeof a))
		return dg_fail_errno("cannot bind a socket to %s", a.sun_path);
	/* Importers send no fds. Linux 6.16 and later refuse them; see close_peer_fd(). */
	const int none = 0;
	setsockopt(server.listen_fd, SOL_SOCKET, SO_PASSRIGHTS, &none, sizeof none);
	if (chmod(a.sun_path, 0600) || listen(server.listen_fd, 128) ||
	    rename(a.sun_path, server.path)) {
		rc = dg_fail_errno("cannot listen on %s", server.path);
		unlink(a.sun_path);
	}
	return rc;
}

static int watch(int fd, uint32_t events, uint64_t cookie)
{
	struct epoll_event e = {.events = events, .data.u64 = cookie};
	return epoll_ctl(server.epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

int dg_share_server_watch(int fd, int pidfd, void *cookie)
{
	uint64_t id = (uint64_t)(uintptr_t)cookie * (ON_MASK + 1) | ON_EXPORTER;
	if (watch(fd, EPOLLRDHUP | EPOLLHUP, id) || (pidfd >= 0 && watch(pidfd, EPOLLIN, id)))
		return dg_fail_errno("cannot watch the exporter's process");
	return 0;
}

void dg_share_server_unwatch(int fd, int pidfd)
{
	epoll_ctl(server.epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	if (pidfd >= 0)
		epoll_ctl(server.epoll_fd, EPOLL_CTL_DEL, pidfd, NULL);
}

/* Ends a connection with a reply that says why. A request that has arrived is read first: the
 * kernel would report it to the importer as ECONNRESET, before the reply. */
static void refuse(int fd)
{
	struct dg_share_reply a = {
		.magic = SHARE_MAGIC, .version = SHARE_VERSION, .error = EMFILE, .tag = SHARE_NO_TAG};
	struct dg_share_request q;
	int fds[2], n_fds = 0;
	snprintf(a.text, sizeof a.text,
		 "the exporter (process %d) has no free file descriptor: close some there, or raise "
		 "its limit (`ulimit -n`)",
		 (int)getpid());
	dg_unix_socket_recv(fd, &q, sizeof q, fds, &n_fds);
	for (int i = 0; i < n_fds; i++)
		close_peer_fd(fds[i]);
	dg_unix_socket_send(fd, &a, sizeof a, NULL, 0);
	close(fd);
}

/* Rejects a connection. The process has no free fds, and a connection that is not accepted would
 * wake the thread forever: closing the spare fd makes room to accept the connection and close
 * it. */
static void reject_one(void)
{
	if (server.spare_fd < 0) {
		usleep(1000);
	} else {
		close(server.spare_fd);
		int fd = accept4(server.listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			refuse(fd);
	}
	server.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void on_listen(void)
{
	struct ucred cred;
	socklen_t len = sizeof cred;
	dg_conns_sweep();
	int fd = accept4(server.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		reject_one();
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

/* Opens the pidfd of an importer if fds were short when it connected. An importer that lives keeps
 * what it imports, so its end must be noticed. Where pidfds do not exist at all, exports.c has
 * other means. */
static int watch_process(struct conn *c)
{
	if (c->pidfd >= 0)
		return 0;
	int pidfd = dg_pidfd_open(c->pid);
	if (pidfd < 0 && errno != EMFILE && errno != ENFILE && errno != ENOMEM)
		return 0;
	if (pidfd < 0 || watch(pidfd, EPOLLIN, (uint64_t)(uintptr_t)c | ON_CONN)) {
		int rc = dg_fail_errno("cannot watch the importing process");
		if (pidfd >= 0)
			close(pidfd);
		return rc;
	}
	c->pidfd = pidfd;
	return 0;
}

static int import(struct conn *c, const struct dg_share_request *q, struct dg_share_reply *a,
		  int fds[2], int *n_fds)
{
	int rc = watch_process(c);
	return rc ? rc : dg_conn_import(c, q, a, fds, n_fds);
}

static void reply_to(struct conn *c, const struct dg_share_request *q)
{
	struct dg_share_reply a = {.magic = SHARE_MAGIC, .version = SHARE_VERSION, .tag = q->tag};
	int fds[2], n_fds = 0, rc = 0;
	if (q->version != SHARE_VERSION)
		rc = dg_fail(EPROTONOSUPPORT,
			     "the exporter uses protocol version %u, the importer %u: use the same "
			     "release of dgkit on both sides",
			     SHARE_VERSION, q->version);
	else if (q->kind == SHARE_IMPORT)
		rc = import(c, q, &a, fds, &n_fds);
	else if (q->kind >= SHARE_GET && q->kind <= SHARE_ATOMIC)
		a.status = dg_conn_access(c, q);
	else
		rc = dg_fail(EBADMSG, "the exporter does not support request %u", q->kind);
	if (rc) {
		a.error = (uint32_t)-rc;
		snprintf(a.text, sizeof a.text, "%.127s", dg_last_error());
	}
	ssize_t sent = dg_unix_socket_send(c->fd, &a, sizeof a, fds, n_fds);
	if (sent == (ssize_t)sizeof a && a.has_control)
		c->control_sent = true;
	/* fds contains the control memfd, which the connection keeps, followed by the region's. */
	for (int i = (int)a.has_control; i < n_fds; i++)
		close(fds[i]);
}

/* The socket was closed: ends the connection immediately if nothing is in flight, otherwise when
 * the process ends. */
static void disconnect(struct conn *c)
{
	dg_share_server_unwatch(c->fd, -1);
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	if (dg_conn_over(c))
		dg_conn_free(c);
}

static void on_conn(struct conn *c, uint32_t events)
{
	struct dg_share_request q;
	int fds[2], n_fds = 0;
	if (c->fd < 0 || (c->pidfd >= 0 && dg_pidfd_dead(c->pidfd))) {
		dg_conn_free(c);
		return;
	}
	ssize_t n = dg_unix_socket_recv(c->fd, &q, sizeof q, fds, &n_fds);
	for (int i = 0; i < n_fds; i++)
		close_peer_fd(fds[i]);
	if (n == -EAGAIN && !(events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
		return;
	if (n != (ssize_t)sizeof q || q.magic != SHARE_MAGIC)
		disconnect(c);
	else if (q.kind == SHARE_RELEASE && q.version == SHARE_VERSION)
		dg_conn_release(c, q.slot);
	else
		reply_to(c, &q);
}

static void *server_thread(void *unused)
{
	struct epoll_event e;
	(void)unused;
	for (;;) {
		/* One event at a time: handling it may free the object of the next one. */
		int n = epoll_wait(server.epoll_fd, &e, 1, -1);
		if (n < 0 && errno != EINTR)
			return NULL;
		if (n != 1)
			continue;
		uint64_t what = e.data.u64 & ON_MASK;
		if (what == ON_STOP)
			return NULL;
		if (what == ON_POLL) {
			uint64_t ticks;
			if (read(server.poll_fd, &ticks, sizeof ticks) > 0)
				dg_devices_poll();
			continue;
		}
		if (what == ON_EXPORTER) {
			dg_importer_exporter_died((void *)(uintptr_t)(e.data.u64 / (ON_MASK + 1)));
			continue;
		}
		dg_share_lock();
		if (what == ON_LISTEN)
			on_listen();
		else
			on_conn((struct conn *)(uintptr_t)(e.data.u64 & ~(uint64_t)ON_MASK),
				e.events);
		dg_share_unlock();
	}
}

/* Number of calls of fork_prepare() for the current fork: the handlers may be registered twice. The
 * first call before the fork locks, the last one after it unlocks: see dg_fork_watch_last(). */
static _Thread_local int fork_depth;

static void fork_prepare(void)
{
	if (fork_depth++)
		return;
	dg_devices_fork_lock();
	pthread_mutex_lock(&lifecycle_lock);
	dg_importer_fork_lock();
	dg_bar_lock();
	dg_share_lock();
	dg_region_table_fork_lock();
}

static void fork_unlock(bool child)
{
	dg_region_table_fork_unlock();
	dg_share_unlock();
	dg_bar_unlock();
	dg_importer_fork_unlock();
	pthread_mutex_unlock(&lifecycle_lock);
	dg_devices_fork_unlock(child);
}

static void fork_parent(void)
{
	if (!--fork_depth)
		fork_unlock(false);
}

static void close_all(void)
{
	if (server.listen_fd >= 0)
		close(server.listen_fd);
	if (server.epoll_fd >= 0)
		close(server.epoll_fd);
	if (server.stop_fd >= 0)
		close(server.stop_fd);
	if (server.spare_fd >= 0)
		close(server.spare_fd);
	if (server.poll_fd >= 0)
		close(server.poll_fd);
	server.listen_fd = server.epoll_fd = server.stop_fd = server.spare_fd = server.poll_fd = -1;
	dg_conns_free();
}

/* The child has no other threads. It must close the sockets whose end-of-file tells other processes
 * that the parent died. */
static void fork_child(void)
{
	if (--fork_depth)
		return;
	atomic_fetch_add(&dg_fork_generation, 1);
	dg_importer_forget_all();
	dg_bar_forget_all();
	close_all();
	dg_exports_forget_all();
	server.refs = 0;
	server.path[0] = 0;
	server.polling = false;
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
	return fork_rc ? dg_fail(fork_rc, "cannot register fork handlers (pthread_atfork): %s",
				 strerror(fork_rc))
		       : 0;
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

static void set_poll_timer(void)
{
	struct itimerspec t = {0};
	if (server.polling)
		t.it_interval.tv_nsec = t.it_value.tv_nsec = POLL_INTERVAL_NS;
	if (server.poll_fd >= 0)
		timerfd_settime(server.poll_fd, 0, &t, NULL);
}

void dg_share_server_set_polling(bool on)
{
	pthread_mutex_lock(&lifecycle_lock);
	server.polling = on;
	set_poll_timer();
	pthread_mutex_unlock(&lifecycle_lock);
}

static int open_all(void)
{
	TRY(listen_open());
	server.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	server.stop_fd = eventfd(0, EFD_CLOEXEC);
	server.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	server.poll_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (server.epoll_fd < 0 || server.stop_fd < 0 || server.poll_fd < 0 ||
	    watch(server.listen_fd, EPOLLIN, ON_LISTEN) ||
	    watch(server.stop_fd, EPOLLIN, ON_STOP) || watch(server.poll_fd, EPOLLIN, ON_POLL))
		return dg_fail_errno("cannot set up the share server's epoll");
	set_poll_timer();
	return dg_thread_start(&server.thread, "dgkit-share", server_thread, NULL);
}

int dg_share_server_acquire(void)
{
	pthread_mutex_lock(&lifecycle_lock);
	int rc = server.refs ? 0 : open_all();
	if (!rc) {
		server.refs++;
	} else {
		if (server.path[0])
			unlink(server.path);
		server.path[0] = 0;
		close_all();
	}
	pthread_mutex_unlock(&lifecycle_lock);
	return rc;
}

/* Removes the socket of a process that exits, or unloads the library, while devices are still open.
 * After _exit() or a kill, remove_stale_sockets() of another process removes it. */
__attribute__((destructor)) static void remove_own_socket(void)
{
	/* Another thread may be starting or stopping the server, and may have called exit() itself.
	 * In a forked child the path is empty. */
	if (pthread_mutex_trylock(&lifecycle_lock))
		return;
	if (server.path[0])
		unlink(server.path);
	pthread_mutex_unlock(&lifecycle_lock);
}

void dg_share_server_release(void)
{
	pthread_mutex_lock(&lifecycle_lock);
	if (--server.refs == 0) {
		eventfd_write(server.stop_fd, 1);
		pthread_join(server.thread, NULL);
		unlink(server.path);
		server.path[0] = 0;
		close_all();
	}
	pthread_mutex_unlock(&lifecycle_lock);
}
