// SPDX-License-Identifier: Apache-2.0
/*
 * Network interfaces. SOFTDOCA_NET=tap:NAME is a TAP device, created unless it exists: the machine's
 * stack is the other end of its wire. SOFTDOCA_NET=NAME is an existing interface, by a packet socket:
 * the machine's stack receives the same frames. SOFTDOCA_NET=fd:NUMBER is an open socket, a frame a message.
 * A device may have another one by net= in SOFTDOCA_DEVICES.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "port.h"

#define TUN	 "/dev/net/tun"
#define CALL_MAX 64 /* frames of one system call */
#define NEEDS(capability)                                                                    \
	"%s: not permitted without " capability ". Run the program in a network namespace of " \
	"its own: unshare --map-root-user --net PROGRAM; or as root, for whom sudo drops a "   \
	"variable: sudo -E env LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH\" PROGRAM"

static doca_error_t refuse_errno(const struct interface *i, const char *what)
{
	switch (errno) {
	case EPERM:
	case EACCES:
		return i->is_tap ? REFUSE(DOCA_ERROR_NOT_PERMITTED, NEEDS("CAP_NET_ADMIN"), i->name)
				 : REFUSE(DOCA_ERROR_NOT_PERMITTED, NEEDS("CAP_NET_RAW"), i->name);
	case ENODEV:
	case ENXIO:
		return REFUSE(DOCA_ERROR_NOT_FOUND,
			      "no network interface has the name %s: SOFTDOCA_NET=tap:%s creates "
			      "one",
			      i->name, i->name);
	case EBUSY:
		return REFUSE(DOCA_ERROR_IN_USE,
			      "another device of this process, or another process, has the TAP device %s; a "
			      "device has an interface of its own by net= in SOFTDOCA_DEVICES",
			      i->name);
	default:
		return REFUSE(DOCA_ERROR_OPERATING_SYSTEM, "%s of %s: %s", what, i->name,
			      strerror(errno));
	}
}

/* Brings the interface up, if that is permitted. */
static void bring_up(const struct interface *i)
{
	struct ifreq r = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	memcpy(r.ifr_name, i->name, sizeof r.ifr_name);
	if (fd < 0)
		return;
	if (!ioctl(fd, SIOCGIFFLAGS, &r) && !(r.ifr_flags & IFF_UP)) {
		r.ifr_flags |= IFF_UP;
		if (ioctl(fd, SIOCSIFFLAGS, &r))
			softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__,
				     "%s is down, and cannot be brought up: %s", i->name,
				     strerror(errno));
	}
	close(fd);
}

static doca_error_t open_tap(struct interface *i)
{
	struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	memcpy(r.ifr_name, i->name, sizeof r.ifr_name);
	i->fd = open(TUN, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (i->fd < 0 && errno == ENOENT)
		return REFUSE(DOCA_ERROR_NOT_FOUND,
			      TUN " is missing: sudo modprobe tun; for a container also --device " TUN);
	const bool opened = i->fd >= 0 && !ioctl(i->fd, TUNSETIFF, &r);
	if (!opened && errno == EINVAL)
		return MISCONFIGURED("%s is 'tap:%s', and %s is no TAP device, or no name for one",
				     i->setting, i->name, i->name);
	if (!opened)
		return refuse_errno(i, "opening");
	memcpy(i->name, r.ifr_name, sizeof r.ifr_name); /* the kernel replaces %d by a number */
	bring_up(i);
	return DOCA_SUCCESS;
}

/* The interface goes up first: a socket that is bound to one that is down keeps ENETDOWN for its next call, and
 * that would lose a frame. */
static doca_error_t open_socket(struct interface *i)
{
	struct ifreq r = {0};
	int on = 1;
	memcpy(r.ifr_name, i->name, sizeof r.ifr_name);
	i->fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (i->fd < 0 || ioctl(i->fd, SIOCGIFINDEX, &r))
		return refuse_errno(i, "opening");
	bring_up(i);
	struct sockaddr_ll at = {.sll_family = AF_PACKET,
				 .sll_protocol = __builtin_bswap16(ETH_P_ALL),
				 .sll_ifindex = r.ifr_ifindex};
	struct packet_mreq all = {.mr_ifindex = r.ifr_ifindex, .mr_type = PACKET_MR_PROMISC};
	if (setsockopt(i->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) ||
	    bind(i->fd, (struct sockaddr *)&at, sizeof at) ||
	    setsockopt(i->fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on) ||
	    setsockopt(i->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all))
		return refuse_errno(i, "binding to the interface");
	return DOCA_SUCCESS;
}

/* Duplicates the descriptor, so that its number stays valid when the last queue has stopped. */
static doca_error_t open_inherited(struct interface *i, const char *number)
{
	char *end = NULL;
	int type = 0;
	socklen_t size = sizeof type;
	const long fd = strtol(number, &end, 10);
	if (!*number || *end || fd < 0 || fd > INT_MAX ||
	    getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &size) ||
	    (type != SOCK_DGRAM && type != SOCK_SEQPACKET))
		return MISCONFIGURED("%s is 'fd:%s': the number must be that of an open socket of the type "
				     "SOCK_DGRAM or SOCK_SEQPACKET",
				     i->setting, number);
	i->fd = fcntl((int)fd, F_DUPFD_CLOEXEC, 0);
	if (i->fd < 0 || fcntl(i->fd, F_SETFL, fcntl(i->fd, F_GETFL) | O_NONBLOCK))
		return refuse_errno(i, "opening");
	return DOCA_SUCCESS;
}

doca_error_t interface_open(struct interface *i, const char *net)
{
	const char *setting = *net ? net : getenv("SOFTDOCA_NET");
	*i = (struct interface){.setting = *net ? "net" : "SOFTDOCA_NET", .fd = -1};
	if (!setting || !*setting)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "the device has no network interface: set SOFTDOCA_NET to tap:NAME, "
			      "to the name of an interface, or to fd:NUMBER");
	i->is_tap = !strncmp(setting, "tap:", 4);
	const char *name = setting + (i->is_tap ? 4 : 0);
	if (!*name || strlen(name) >= sizeof i->name || strchr(name, '/'))
		return MISCONFIGURED("%s is '%s': it must be tap:NAME, fd:NUMBER or NAME, and a name has 1 to "
				     "%zu characters",
				     i->setting, setting, sizeof i->name - 1);
	memcpy(i->name, name, strlen(name));
	i->is_inherited = !strncmp(setting, "fd:", 3);
	doca_error_t error = i->is_tap	       ? open_tap(i)
			     : i->is_inherited ? open_inherited(i, setting + 3)
					       : open_socket(i);
	if (error)
		interface_close(i);
	return error;
}

void interface_close(struct interface *i)
{
	if (i->fd >= 0)
		close(i->fd);
	i->fd = -1;
}

static bool is_there(const struct interface *i)
{
	struct ifreq r = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	memcpy(r.ifr_name, i->name, sizeof r.ifr_name);
	bool there = fd < 0 || !ioctl(fd, SIOCGIFINDEX, &r);
	if (fd >= 0)
		close(fd);
	return there;
}

/* An interface that is down loses frames, as one without a cable does; one that is gone is an error. */
static int result(const struct interface *i, ssize_t n)
{
	if (n >= 0)
		return (int)n;
	switch (errno) {
	case EAGAIN:
	case ENOBUFS:
	case EINTR:
		return -EAGAIN;
	case ENETDOWN:
	case EIO:
		return is_there(i) ? 0 : -ENODEV;
	case EMSGSIZE:
	case EINVAL:
		return -EMSGSIZE;
	default:
		return -ENODEV;
	}
}

static int receive_of_tap(const struct interface *i, struct iovec *frames, int n, int *sizes)
{
	int done = 0, size = 0;
	while (done < n && (size = result(i, read(i->fd, frames[done].iov_base, frames[done].iov_len))) > 0)
		sizes[done++] = size;
	return !done && size == -ENODEV ? size : done;
}

/* What the kernel says of a frame. */
union auxiliary {
	struct cmsghdr head;
	char bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
};

static void complete(const struct mmsghdr *m, uint8_t *frame)
{
	const struct cmsghdr *c = CMSG_FIRSTHDR(&m->msg_hdr);
	struct tpacket_auxdata aux;
	if (!c || c->cmsg_type != PACKET_AUXDATA)
		return;
	memcpy(&aux, CMSG_DATA(c), sizeof aux);
	if (aux.tp_status & TP_STATUS_CSUMNOTREADY)
		checksum_transport(frame, m->msg_len);
}

int interface_receive(const struct interface *i, struct iovec *frames, int n, int *sizes)
{
	struct mmsghdr messages[CALL_MAX];
	union auxiliary about[CALL_MAX];
	if (i->is_tap)
		return receive_of_tap(i, frames, n, sizes);
	for (int at = 0; at < n; at++)
		messages[at] = (struct mmsghdr){
			.msg_hdr = {.msg_iov = &frames[at],
				    .msg_iovlen = 1,
				    .msg_control = &about[at],
				    .msg_controllen = sizeof about[at]},
		};
	const int got = recvmmsg(i->fd, messages, (unsigned)n, MSG_DONTWAIT, NULL);
	if (got < 0)
		return result(i, -1) == -ENODEV ? -ENODEV : 0;
	if (got && i->is_inherited && !messages[0].msg_len) /* the other end is closed */
		return -ENODEV;
	for (int at = 0; at < got; at++) {
		complete(&messages[at], frames[at].iov_base);
		sizes[at] = (int)messages[at].msg_len;
	}
	return got;
}

/* Sends frames until the interface takes no more, and stores the result of each, including the
 * first that was not sent. A TAP device takes one frame at a time. */
static int send_first(const struct interface *i, struct iovec *frames, int n, int *results)
{
	struct mmsghdr messages[CALL_MAX];
	if (i->is_tap) {
		*results = result(i, write(i->fd, frames->iov_base, frames->iov_len));
		return *results > 0;
	}
	for (int at = 0; at < n; at++)
		messages[at] = (struct mmsghdr){
			.msg_hdr = {.msg_iov = &frames[at], .msg_iovlen = 1},
		};
	const int sent = sendmmsg(i->fd, messages, (unsigned)n, MSG_NOSIGNAL);
	for (int at = 0; at < sent; at++)
		results[at] = (int)frames[at].iov_len;
	if (sent <= 0)
		*results = result(i, -1);
	return sent > 0 ? sent : 0;
}

int interface_send(const struct interface *i, struct iovec *frames, int n, int *results)
{
	int done = 0;
	while (done < n) {
		const int sent = send_first(i, frames + done, n - done, results + done);
		if (!sent && results[done] == -EAGAIN)
			break;
		if (!sent && results[done] == -ENODEV)
			return -ENODEV;
		done += sent ? sent : 1;
	}
	return done;
}
