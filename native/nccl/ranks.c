// SPDX-License-Identifier: Apache-2.0
/* Connects the ranks, and carries the messages of collective calls. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <fcntl.h>

#include "comm.h"
#include "error.h"
#include "share/mapping.h"
#include "share/unix_socket.h"

#define CONNECT_NS 60000000000u

/* The content of a listen handle. */
struct address {
	char magic[8], boot_id[8], path[108];
};
_Static_assert(sizeof(struct address) <= NCCL_HANDLE_SIZE, "the address fits NCCL's handle");
static const char magic[8] = "dgnccl1";

/* The first message of either side of a connection; with it goes the rank's memfd. */
struct hello {
	char magic[8];
	uint32_t rank, ranks;
};

static void read_boot_id(char out[8])
{
	memset(out, 0, 8);
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (read(fd, out, 8) != 8)
		memset(out, 0, 8);
	close(fd);
}

int listener_open(struct plugin *p, void *handle, struct listener **out)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct listener *l = calloc(1, sizeof *l);
	struct address to = {0};
	char dir[sizeof l->path];
	uint32_t salt = 0;
	if (!l)
		return dg_fail(ENOMEM, "out of memory for a listener");
	int rc = dg_runtime_dir(dir, sizeof dir);
	if (rc)
		goto free_listener;
	rc = -EIO;
	if (getrandom(&salt, sizeof salt, 0) != sizeof salt) {
		rc = dg_fail_errno("cannot get random bytes");
		goto free_listener;
	}
	const int n = snprintf(l->path, sizeof l->path, "%s/nccl-%d-%08x.sock", dir, (int)getpid(), salt);
	if (n < 0 || (size_t)n >= sizeof l->path) {
		rc = dg_fail(ENAMETOOLONG, "the folder %s is too long for the path of a socket: set "
					   "XDG_RUNTIME_DIR to a shorter one", dir);
		goto free_listener;
	}
	memcpy(a.sun_path, l->path, sizeof l->path);
	l->plugin = p;
	l->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0) {
		rc = dg_fail_errno("cannot create a socket");
		goto free_listener;
	}
	if (bind(l->fd, (struct sockaddr *)&a, sizeof a) || listen(l->fd, RANKS_MAX)) {
		rc = dg_fail_errno("cannot listen on %s", l->path);
		goto close_socket;
	}
	memcpy(to.magic, magic, sizeof magic);
	memcpy(to.path, l->path, sizeof to.path);
	read_boot_id(to.boot_id);
	memset(handle, 0, NCCL_HANDLE_SIZE);
	memcpy(handle, &to, sizeof to);
	*out = l;
	return 0;
close_socket:
	close(l->fd);
	unlink(l->path);
free_listener:
	free(l);
	return rc;
}

void listener_close(struct listener *l)
{
	close(l->fd);
	unlink(l->path);
	free(l);
}

/* Waits until fd is readable. Errors: ETIMEDOUT. end_ns: UINT64_MAX for no limit. */
static int wait_readable(int fd, uint64_t end_ns)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	for (;;) {
		const uint64_t now = dg_now_ns();
		if (now >= end_ns)
			return dg_fail(ETIMEDOUT, "a rank did not connect within 60 s");
		const int n = poll(&p, 1, 100);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return dg_fail_errno("cannot wait for a rank");
	}
}

/* Whether the peer is a process of this user. */
static int check_user(int fd)
{
	struct ucred who;
	socklen_t size = sizeof who;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size))
		return dg_fail_errno("cannot query the user of a rank");
	if (who.uid != geteuid())
		return dg_fail(EPERM, "process %d, which belongs to user %u, is not a rank of this user",
			       (int)who.pid, (unsigned)who.uid);
	return 0;
}

/* The mailboxes of all ranks: those of one process share their mappings. */
static struct dg_mappings mailboxes = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Maps a rank's memfd, and closes it. */
static int mailbox_map(const struct comm *c, int fd, struct peer *p)
{
	const int rc = dg_mapping_take(&mailboxes, fd, true, c->mailbox_size, &p->mapping);
	close(fd);
	if (!rc)
		p->mailbox = (struct mailbox *)(void *)p->mapping->base;
	return rc;
}

static int mailbox_create(struct comm *c)
{
	int fd = memfd_create("dgkit-nccl", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return dg_fail_errno("cannot create memory for signals");
	if (ftruncate(fd, (off_t)c->mailbox_size) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)) {
		const int rc = dg_fail_errno("cannot size memory for signals");
		close(fd);
		return rc;
	}
	return fd;
}

static int send_hello(const struct comm *c, int fd, int mailbox_fd)
{
	struct hello h = {.rank = c->rank, .ranks = c->ranks};
	memcpy(h.magic, magic, sizeof magic);
	const ssize_t n = dg_unix_socket_send(fd, &h, sizeof h, &mailbox_fd, 1);
	return n == sizeof h ? 0 : dg_fail(ENOTCONN, "a rank ended while ranks were connected");
}

/* Receives a peer's hello and adopts the socket. */
static int receive_hello(struct comm *c, int fd, uint64_t end_ns, uint32_t lo, uint32_t hi)
{
	struct hello h;
	int fds[2], n_fds = 0, rc = wait_readable(fd, end_ns);
	if (rc)
		return rc;
	const ssize_t n = dg_unix_socket_recv(fd, &h, sizeof h, fds, &n_fds);
	if (n != sizeof h || n_fds != 1 || memcmp(h.magic, magic, sizeof magic) ||
	    h.ranks != c->ranks || h.rank < lo || h.rank > hi || c->peers[h.rank].fd >= 0) {
		while (n_fds)
			close(fds[--n_fds]);
		return n ? dg_fail(EPROTO, "a rank's first message is wrong")
			 : dg_fail(ENOTCONN, "a rank ended while ranks were connected");
	}
	rc = mailbox_map(c, fds[0], &c->peers[h.rank]);
	if (!rc)
		c->peers[h.rank].fd = fd;
	return rc;
}

static int connect_to(const void *handle, uint32_t rank)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct address to;
	char boot_id[8];
	memcpy(&to, handle, sizeof to);
	read_boot_id(boot_id);
	if (memcmp(to.magic, magic, sizeof magic) || !memchr(to.path, 0, sizeof to.path))
		return dg_fail(EBADMSG, "the handle of rank %" PRIu32 " is not of this plugin", rank);
	if (memcmp(to.boot_id, boot_id, sizeof boot_id))
		return dg_fail(EXDEV, "rank %" PRIu32 " is on another machine: this plugin connects the "
				      "ranks of one", rank);
	memcpy(a.sun_path, to.path, sizeof to.path);
	/* Not blocking: a rank's listener has room for all ranks, so one that is full is none. */
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return dg_fail_errno("cannot create a socket");
	int rc = connect(fd, (struct sockaddr *)&a, sizeof a)
			 ? dg_fail_errno("cannot connect to rank %" PRIu32 " at %s", rank, to.path)
			 : check_user(fd);
	if (rc) {
		close(fd);
		return rc;
	}
	return fd;
}

/* Accepts the ranks above this one. */
static int accept_higher(struct comm *c, const struct listener *l, int mailbox_fd, uint64_t end_ns)
{
	for (uint32_t left = c->ranks - 1 - c->rank; left; left--) {
		TRY(wait_readable(l->fd, end_ns));
		int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			return dg_fail_errno("cannot accept a rank");
		int rc = check_user(fd);
		if (!rc)
			rc = receive_hello(c, fd, end_ns, c->rank + 1, c->ranks - 1);
		if (!rc)
			rc = send_hello(c, fd, mailbox_fd);
		else
			close(fd);
		if (rc)
			return rc;
	}
	return 0;
}

/* Connects to the ranks below this one. fds: of `rank` sockets, -1 where it failed. */
static int connect_lower(struct comm *c, void *const *handles, int mailbox_fd, int *fds)
{
	for (uint32_t i = 0; i < c->rank; i++) {
		fds[i] = connect_to(handles[i], i);
		if (fds[i] < 0)
			return fds[i];
		const int rc = send_hello(c, fds[i], mailbox_fd);
		if (rc)
			return rc;
	}
	return 0;
}

int ranks_connect(struct comm *c, void *const *handles, const struct listener *l)
{
	const uint64_t end_ns = dg_now_ns() + CONNECT_NS;
	int fds[RANKS_MAX];
	memset(fds, -1, sizeof fds);
	int mailbox_fd = mailbox_create(c);
	if (mailbox_fd < 0)
		return mailbox_fd;
	int rc = connect_lower(c, handles, mailbox_fd, fds);
	if (!rc)
		rc = accept_higher(c, l, mailbox_fd, end_ns);
	for (uint32_t i = 0; i < c->rank; i++) {
		if (!rc)
			rc = receive_hello(c, fds[i], end_ns, i, i);
		if (fds[i] >= 0 && c->peers[i].fd != fds[i])
			close(fds[i]);
	}
	if (rc) {
		close(mailbox_fd);
		return rc;
	}
	return mailbox_map(c, mailbox_fd, &c->peers[c->rank]);
}

static int send_message(const struct peer *p, const struct message *m)
{
	for (;;) {
		const ssize_t n = dg_unix_socket_send(p->fd, m, sizeof *m, NULL, 0);
		if (n == sizeof *m)
			return 0;
		if (n != -EAGAIN)
			return dg_fail(ENOTCONN, "rank %" PRIu32 " has ended", p->rank);
		struct pollfd w = {.fd = p->fd, .events = POLLOUT};
		poll(&w, 1, 100);
	}
}

static int receive_message(const struct peer *p, const struct message *own, struct message *out)
{
	int fds[2], n_fds = 0;
	TRY(wait_readable(p->fd, UINT64_MAX));
	const ssize_t n = dg_unix_socket_recv(p->fd, out, sizeof *out, fds, &n_fds);
	while (n_fds)
		close(fds[--n_fds]);
	if (n <= 0)
		return dg_fail(ENOTCONN, "rank %" PRIu32 " has ended", p->rank);
	if (n != sizeof *out || out->sequence != own->sequence || out->kind != own->kind ||
	    out->length > sizeof out->descriptor || out->agent_length > sizeof out->agent_descriptor)
		return dg_fail(EPROTO, "rank %" PRIu32 " makes another collective call", p->rank);
	return 0;
}

int comm_exchange(struct comm *c, struct message *own, struct message *all)
{
	int rc = 0;
	own->sequence = c->sequence++;
	all[c->rank] = *own;
	for (uint32_t i = 0; i < c->ranks && !rc; i++)
		rc = i == c->rank ? 0 : send_message(&c->peers[i], own);
	for (uint32_t i = 0; i < c->ranks && !rc; i++)
		rc = i == c->rank ? 0 : receive_message(&c->peers[i], own, &all[i]);
	return rc;
}

void ranks_disconnect(struct peer *p)
{
	dg_mapping_drop(&mailboxes, p->mapping);
	if (p->fd >= 0)
		close(p->fd);
}
