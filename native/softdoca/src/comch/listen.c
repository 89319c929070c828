// SPDX-License-Identifier: Apache-2.0
/*
 * How a client finds its server: a socket whose path is made of the server's name and the host
 * function's vuid. The server holds a lock on a second file as long as it lives. Files of a killed
 * server are replaced by a server of the same name, and removed by the next client or server that
 * starts.
 */
#include "comch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_TRIES = 20 };
#define LOCK_PAUSE_NS 1000000

static doca_error_t socket_path(const struct endpoint *e, const char *ending, struct sockaddr_un *a)
{
	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	return softdoca_runtime_path(e->name, e->function, ending, a->sun_path, sizeof a->sun_path);
}

static doca_error_t system_error(const char *path)
{
	int code = errno;
	return REFUSE(DOCA_ERROR_OPERATING_SYSTEM, "%s: %s", path, strerror(code));
}

/* Returns whether fd still refers to the file of that name; the previous holder may have removed
 * the file. */
static bool same_file(int fd, const char *path)
{
	struct stat a, b;
	return !fstat(fd, &a) && !stat(path, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

/* Takes the lock. Retries, because comch_sweep() of another process may hold it for a moment. */
static bool lock_file(int fd)
{
	const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
	for (int i = 0; flock(fd, LOCK_EX | LOCK_NB); i++) {
		if (errno != EWOULDBLOCK || i == LOCK_TRIES)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

/* Removes the files of one server if it is no longer running. `name` is that of its lock file. */
static void sweep(const char *dir, const char *name)
{
	struct sockaddr_un a;
	size_t cap = sizeof a.sun_path, ending = strlen(name) - strlen(".lock");
	char lock[sizeof a.sun_path];
	if ((size_t)snprintf(lock, cap, "%s/%s", dir, name) >= cap)
		return;
	snprintf(a.sun_path, cap, "%s/%.*s.sock", dir, (int)ending, name);
	int fd = open(lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return;
	if (!flock(fd, LOCK_EX | LOCK_NB) && same_file(fd, lock)) {
		unlink(a.sun_path);
		unlink(lock);
	}
	close(fd);
}

void comch_sweep(const struct endpoint *e)
{
	struct sockaddr_un a;
	if (socket_path(e, ".lock", &a) != DOCA_SUCCESS)
		return;
	const char *dir = dirname(a.sun_path);
	DIR *d = opendir(dir);
	for (struct dirent *f; d && (f = readdir(d));) {
		size_t n = strlen(f->d_name);
		if (n > 11 && !strncmp(f->d_name, "comch-", 6) &&
		    !strcmp(f->d_name + n - 5, ".lock"))
			sweep(dir, f->d_name);
	}
	if (d)
		closedir(d);
}

static doca_error_t lock_name(struct endpoint *e, const char *path)
{
	for (;;) {
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return system_error(path);
		if (!lock_file(fd)) {
			bool taken = errno == EWOULDBLOCK;
			close(fd);
			/* guess */
			return taken ? REFUSE(DOCA_ERROR_ALREADY_EXIST,
					      "a server '%s' already runs for this function",
					      e->name)
				     : system_error(path);
		}
		if (same_file(fd, path)) {
			e->lock_fd = fd;
			return DOCA_SUCCESS;
		}
		close(fd);
	}
}

doca_error_t comch_listen(struct endpoint *e)
{
	struct sockaddr_un lock, a;
	doca_error_t error = socket_path(e, ".lock", &lock);
	if (error == DOCA_SUCCESS)
		error = socket_path(e, ".sock", &a);
	if (error == DOCA_SUCCESS)
		error = lock_name(e, lock.sun_path);
	if (error != DOCA_SUCCESS)
		return error;
	/* The process that bound the socket is dead, because the lock was free. */
	unlink(a.sun_path);
	e->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	e->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (e->listen_fd < 0 || bind(e->listen_fd, (struct sockaddr *)&a, sizeof a) ||
	    chmod(a.sun_path, 0600) || listen(e->listen_fd, 128))
		return system_error(a.sun_path);
	return comch_watch(e, e->listen_fd, &e->listen_fd);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void comch_remove_files(const struct endpoint *e)
{
	struct sockaddr_un a;
	/* The name belongs to this process while it holds the lock; a forked child must not remove
	 * its parent's files. */
	if (e->lock_fd < 0 || e->pid != getpid())
		return;
	if (socket_path(e, ".sock", &a) == DOCA_SUCCESS)
		unlink(a.sun_path);
	if (socket_path(e, ".lock", &a) == DOCA_SUCCESS)
		unlink(a.sun_path);
}

void comch_listen_end(struct endpoint *e)
{
	comch_remove_files(e);
	close_fd(&e->listen_fd);
	close_fd(&e->spare_fd);
	close_fd(&e->lock_fd);
}

bool comch_same_user(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof cred;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return false;
	if (cred.uid == geteuid())
		return true;
	return REFUSE(false, "process %d belongs to user %u, not to this one", (int)cred.pid,
		      (unsigned)cred.uid);
}

/* Accepts and closes one connection when no fd is left, because a pending one keeps the handle
 * readable. */
static void hang_up_on_one(struct endpoint *e)
{
	softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__,
		     "no file descriptor is available for a client");
	close_fd(&e->spare_fd);
	int fd = accept4(e->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	close_fd(&fd);
	e->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void comch_accept(struct endpoint *e)
{
	int fd = accept4(e->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		hang_up_on_one(e);
	if (fd < 0)
		return;
	if (!comch_same_user(fd)) {
		close(fd);
	} else if (e->n_connections >= CLIENTS_MAX || !comch_connection_new(e, fd)) {
		softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__,
			     "cannot accept another client: there are %u", e->n_connections);
		comch_reply(fd, PACKET_REFUSED, e->max_msg, DOCA_ERROR_FULL);
		close(fd);
	}
}

/* Sends HELLO over a new connection. */
static doca_error_t say_hello(struct endpoint *e, int fd)
{
	struct hello h = {.p = {PACKET_MAGIC, PACKET_VERSION, PACKET_HELLO}, .max_msg = e->max_msg};
	memcpy(h.name, e->name, sizeof h.name);
	memcpy(h.function, e->function, sizeof h.function);
	if (!comch_same_user(fd))
		return DOCA_ERROR_NOT_PERMITTED;
	/* The server has ended meanwhile; another one may start. */
	if (comch_put(fd, &h, sizeof h))
		return DOCA_ERROR_IN_PROGRESS;
	return comch_connection_new(e, fd) ? DOCA_SUCCESS : DOCA_ERROR_NO_MEMORY;
}

doca_error_t comch_connect(struct endpoint *e)
{
	struct sockaddr_un a;
	doca_error_t error = socket_path(e, ".sock", &a);
	if (error != DOCA_SUCCESS)
		return error;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return system_error("a socket");
	if (!connect(fd, (struct sockaddr *)&a, sizeof a)) {
		error = say_hello(e, fd);
	} else if (errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN) {
		error = DOCA_ERROR_IN_PROGRESS; /* EAGAIN: the backlog is full */
	} else {
		error = system_error(a.sun_path);
	}
	if (error != DOCA_SUCCESS)
		close(fd);
	return error;
}
