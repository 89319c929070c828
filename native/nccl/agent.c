// SPDX-License-Identifier: Apache-2.0
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "error.h"
#include "mover_ring.h"
#include "share/unix_socket.h"

#define REPLY_NS 10000000000u

/* head and collected are used by one thread at a time: see comm.h. */
struct agent {
	int fd;
	bool ended;
	uint64_t head, collected;
	struct dg_mapping *mapping;
	struct mover_ring *ring; /* in it */
	char address[256], provider[32];
};

static bool is_same_user(int fd)
{
	struct ucred who;
	socklen_t size = sizeof who;
	const bool known = !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
	if (known && who.uid != geteuid())
		errno = EPERM;
	return known && who.uid == geteuid();
}

static int connect_to(struct agent *a)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const char *path = a->address + strlen("ipc://");
	if (strncmp(a->address, "ipc://", strlen("ipc://")))
		return dg_fail(EINVAL, "DGKIT_NCCL_DPU is %s: it must be the address of an agent of this "
				       "machine, which begins with ipc://", a->address);
	const int n = snprintf(to.sun_path, sizeof to.sun_path, "%s.mover", path);
	if (n < 0 || (size_t)n >= sizeof to.sun_path)
		return dg_fail(ENAMETOOLONG, "DGKIT_NCCL_DPU is %s: the path is too long for a socket",
			       a->address);
	a->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (a->fd < 0)
		return dg_fail_errno("cannot create a socket");
	if (connect(a->fd, (struct sockaddr *)&to, sizeof to) || !is_same_user(a->fd))
		return dg_fail_errno("cannot connect to the DPU agent %s (DGKIT_NCCL_DPU), which must be "
				     "`dgkit serve` with the provider soft, cuda, verbs, doca or softdoca", a->address);
	return 0;
}

/* Creates the ring. Returns its memfd. */
static int make_ring(struct agent *a)
{
	int fd = memfd_create("dgkit-nccl-dpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return dg_fail_errno("cannot create memory for requests");
	int rc = ftruncate(fd, sizeof *a->ring) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)
			 ? dg_fail_errno("cannot size memory for requests")
			 : dg_mapping_take(&dg_mover_rings, fd, true, sizeof *a->ring, &a->mapping);
	if (rc) {
		close(fd);
		return rc;
	}
	a->ring = (struct mover_ring *)(void *)a->mapping->base;
	return fd;
}

/* Sends a message and waits for its reply, which replaces it. */
static int ask(struct agent *a, struct mover_message *m, const int *fd)
{
	int fds[2], n_fds = 0;
	struct pollfd on = {.fd = a->fd, .events = POLLIN};
	if (dg_unix_socket_send(a->fd, m, sizeof *m, fd, fd ? 1 : 0) != sizeof *m)
		return dg_fail(ENOTCONN, "the DPU agent %s has ended", a->address);
	if (poll(&on, 1, (int)(REPLY_NS / 1000000)) == 0)
		return dg_fail(ETIMEDOUT, "the DPU agent %s did not answer within 10 s", a->address);
	const ssize_t n = dg_unix_socket_recv(a->fd, m, sizeof *m, fds, &n_fds);
	while (n_fds)
		close(fds[--n_fds]);
	if (n != sizeof *m)
		return dg_fail(ENOTCONN, "the DPU agent %s has ended", a->address);
	m->descriptor[sizeof m->descriptor - 1] = 0;
	if (!m->status)
		return 0;
	const bool is_errno = m->status < 0 && m->status >= -4095; /* MAX_ERRNO of Linux */
	return dg_fail(is_errno ? -m->status : EBADMSG, "DPU agent %s: %s", a->address,
		       (char *)m->descriptor);
}

int agent_open(struct agent **out)
{
	const char *address = getenv("DGKIT_NCCL_DPU");
	struct mover_message hello = {.kind = MOVER_HELLO, .number = MOVER_VERSION};
	*out = NULL;
	if (!address || !*address)
		return 0;
	struct agent *a = calloc(1, sizeof *a);
	if (!a)
		return dg_fail(ENOMEM, "out of memory for a connection to a DPU agent");
	snprintf(a->address, sizeof a->address, "%s", address);
	a->fd = -1;
	int rc = connect_to(a);
	int ring = rc ? rc : make_ring(a);
	if (ring >= 0) {
		rc = ask(a, &hello, &ring);
		close(ring);
		snprintf(a->provider, sizeof a->provider, "%.31s", (char *)hello.descriptor);
	} else {
		rc = ring;
	}
	if (rc)
		agent_close(a);
	else
		*out = a;
	return rc;
}

void agent_close(struct agent *a)
{
	if (!a)
		return;
	dg_mapping_drop(&dg_mover_rings, a->mapping);
	if (a->fd >= 0)
		close(a->fd);
	free(a);
}

int agent_import(struct agent *a, const uint8_t *descriptor, uint32_t length, bool on_gpu, uint32_t *id)
{
	struct mover_message m = {.kind = MOVER_IMPORT, .on_gpu = on_gpu, .length = length};
	memcpy(m.descriptor, descriptor, length);
	const int rc = ask(a, &m, NULL);
	if (!rc)
		*id = m.number;
	return rc;
}

void agent_release(struct agent *a, uint32_t id)
{
	const struct mover_message m = {.kind = MOVER_RELEASE, .number = id};
	/* Without room for the message, the import ends with the connection. */
	dg_unix_socket_send(a->fd, &m, sizeof m, NULL, 0);
}

int agent_post(struct agent *a, const dg_wr *wr, uint32_t n)
{
	if (a->ended)
		return dg_fail(ENOTCONN, "the DPU agent %s has ended", a->address);
	if (a->head + n - a->collected > MOVER_DEPTH)
		return -EAGAIN;
	for (uint32_t i = 0; i < n; i++) {
		const bool writes = wr[i].op == DG_WRITE;
		a->ring->requests[(a->head + i) % MOVER_DEPTH] = (struct mover_request){
			.user = wr[i].user,
			.size = wr[i].size,
			.from = writes ? wr[i].local : wr[i].remote,
			.to = writes ? wr[i].remote : wr[i].local,
			.from_offset = writes ? wr[i].local_offset : wr[i].remote_offset,
			.to_offset = writes ? wr[i].remote_offset : wr[i].local_offset,
		};
	}
	a->head += n;
	atomic_store_explicit(&a->ring->head, a->head, memory_order_release);
	return 0;
}

void agent_break(struct agent *a)
{
	a->ended = true;
}

int agent_poll(struct agent *a, dg_wc *wc, uint32_t n)
{
	const uint64_t completed = atomic_load_explicit(&a->ring->completed, memory_order_acquire);
	const uint64_t posted = a->head - a->collected, ready = completed - a->collected;
	/* The agent can store any number: more completions than requests, or fewer than before, which wraps. */
	if (ready > posted) {
		agent_break(a);
		return 0;
	}
	const uint32_t count = ready < n ? (uint32_t)ready : n;
	for (uint32_t i = 0; i < count; i++) {
		const struct mover_completion *c = &a->ring->completions[a->collected++ % MOVER_DEPTH];
		wc[i].user = c->user;
		wc[i].status = c->status;
	}
	return (int)count;
}

bool agent_ended(struct agent *a)
{
	struct pollfd on = {.fd = a->fd, .events = 0};
	a->ended |= poll(&on, 1, 0) == 1;
	return a->ended;
}

const char *agent_address(const struct agent *a)
{
	return a->address;
}

const char *agent_provider(const struct agent *a)
{
	return a->provider;
}
