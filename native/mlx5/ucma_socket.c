// SPDX-License-Identifier: Apache-2.0
/* Ports of the connection manager, which are names of UNIX sockets, and its messages. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "share/server.h"
#include "ucma.h"

enum { FIRST_PORT = 32768, PORTS = 28232, REQUEST_MS = 200 };

void dg_mlx5_cm_gid(const struct sockaddr_in6 *a, uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	const struct sockaddr_in *a4 = (const void *)a;
	if (a->sin6_family == AF_INET6) {
		memcpy(gid, &a->sin6_addr, 16);
		return;
	}
	memcpy(gid, mapped, sizeof mapped);
	memcpy(gid + sizeof mapped, &a4->sin_addr, 4);
}

bool dg_mlx5_cm_is_any(const struct sockaddr_in6 *a)
{
	const struct sockaddr_in *a4 = (const void *)a;
	return a->sin6_family == AF_INET ? !a4->sin_addr.s_addr : IN6_IS_ADDR_UNSPECIFIED(&a->sin6_addr);
}

/* A socket can be bound to the machine's own addresses only. */
bool dg_mlx5_cm_is_local(const struct sockaddr_in6 *a)
{
	struct sockaddr_in6 any_port = *a; /* the port is where sockaddr_in has it */
	any_port.sin6_port = 0;
	const int fd = socket(a->sin6_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const bool local = fd >= 0 && !bind(fd, (void *)&any_port,
					    a->sin6_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof *a);
	if (fd >= 0)
		dg_mlx5_close(fd);
	return local;
}

/* Writes the name of a port. mark: behind it, 'o' for a listener that takes IPv6 only. Returns its length. */
static socklen_t name_of(struct sockaddr_un *u, uint32_t ps, uint16_t port, const uint8_t gid[16], const char *mark)
{
	char dir[sizeof u->sun_path], hex[33];
	struct stat s;
	if (dg_runtime_dir(dir, sizeof dir) || stat(dir, &s))
		return 0;
	for (uint32_t i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", gid[i]);
	*u = (struct sockaddr_un){.sun_family = AF_UNIX};
	const int n = snprintf(u->sun_path + 1, sizeof u->sun_path - 1, "dgkit-cm-%u-%llx-%llx-%x-%u-%s%s",
			       (unsigned)geteuid(), (unsigned long long)s.st_dev, (unsigned long long)s.st_ino, ps,
			       ntohs(port), hex, mark);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int bind_port(const struct cm_id *id, uint16_t port)
{
	struct sockaddr_un u;
	uint8_t gid[16];
	dg_mlx5_cm_gid(&id->source, gid);
	const socklen_t size = name_of(&u, id->ps, port, gid, id->only_ipv6 ? "o" : "");
	if (!size)
		return -ENODEV;
	return bind(id->fd, (void *)&u, size) ? -errno : 0;
}

int dg_mlx5_cm_bind(struct cm_id *id)
{
	uint32_t start = 0;
	id->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (id->fd < 0)
		return -errno;
	int rc = id->source.sin6_port ? bind_port(id, id->source.sin6_port) : -EADDRINUSE;
	if (!id->source.sin6_port && getrandom(&start, sizeof start, 0) != sizeof start)
		start = (uint32_t)getpid();
	for (uint32_t i = 0; !id->source.sin6_port && rc == -EADDRINUSE && i < PORTS; i++) {
		const uint16_t port = htons((uint16_t)(FIRST_PORT + (start + i) % PORTS));
		rc = bind_port(id, port);
		if (!rc)
			id->source.sin6_port = port;
	}
	if (rc) {
		dg_mlx5_close(id->fd);
		id->fd = -1;
	}
	return rc;
}

/* Whether the process at the other end is of this user: the names are for all. */
static bool is_mine(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.uid == geteuid();
}

int dg_mlx5_cm_connect(const struct cm_id *id)
{
	const bool is_ipv4 = id->target.sin6_family == AF_INET;
	uint8_t gids[4][16] = {{0}};
	struct sockaddr_un u;
	/* A listener on this address; on any of its family; on any of both; on any of IPv6. */
	dg_mlx5_cm_gid(&id->target, gids[0]);
	if (is_ipv4)
		memset(gids[1] + 10, 0xff, 2);
	for (uint32_t i = 0; i < (is_ipv4 ? 3 : 4); i++) {
		const socklen_t size = name_of(&u, id->ps, id->target.sin6_port, gids[i], i == 3 ? "o" : "");
		if (!size)
			return -ENODEV;
		if (!connect(id->fd, (void *)&u, size))
			return is_mine(id->fd) ? 0 : -ECONNREFUSED;
		if (errno != ECONNREFUSED)
			return -errno;
	}
	return -ECONNREFUSED;
}

int dg_mlx5_cm_send(const struct cm_id *id, const struct cm_message *m)
{
	struct cm_message with_version = *m;
	with_version.version = CM_VERSION;
	return send(id->fd, &with_version, sizeof with_version, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int dg_mlx5_cm_receive(int fd, struct cm_message *m)
{
	ssize_t n = recv(fd, m, sizeof *m, MSG_DONTWAIT | MSG_TRUNC);
	if (n < 0 && errno == ECONNRESET) /* told once, in front of what has arrived */
		n = recv(fd, m, sizeof *m, MSG_DONTWAIT | MSG_TRUNC);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return -EAGAIN;
	return n == sizeof *m && m->version == CM_VERSION && m->kind >= CM_REQUEST && m->kind <= CM_DISCONNECT;
}

int dg_mlx5_cm_take(const struct cm_id *listener, struct cm_message *request)
{
	const int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) /* without a free descriptor the request would stay, and be tried without end */
		return errno == EMFILE || errno == ENFILE ? -errno : -EAGAIN;
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	/* Its process connects and sends at once. */
	if (is_mine(fd) && poll(&readable, 1, REQUEST_MS) > 0 && dg_mlx5_cm_receive(fd, request) == 1 &&
	    request->kind == CM_REQUEST && (request->from.sin6_family == AF_INET || request->from.sin6_family == AF_INET6) &&
	    request->to.sin6_family == request->from.sin6_family)
		return fd;
	dg_mlx5_close(fd);
	return -EAGAIN;
}
