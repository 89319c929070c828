// SPDX-License-Identifier: Apache-2.0
/*
 * Messages of the fast path. System calls read them from and write them to the program's memory, so
 * that unmapped or protected memory makes the task fail instead of raising a signal.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fast.h"
#include "share/peer_fds.h"

#define PARTS_MAX (LIST_MAX + 1) /* the header, and each buffer of a list */

/* ---- packets with fds ---- */

ssize_t fast_receive(int fd, struct iovec *iov, size_t n, int fds[2])
{
	union peer_fds control;
	struct msghdr m = {.msg_iov = iov,
			   .msg_iovlen = n,
			   .msg_control = control.bytes,
			   .msg_controllen = sizeof control.bytes};
	ssize_t got;
	fds[0] = fds[1] = -1;
	/* ECONNRESET only reports that the peer closed without having read everything; the peer's
	 * own messages follow, then end of file. The error is reported once. */
	do
		got = recvmsg(fd, &m, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
	while (got < 0 && (errno == EINTR || errno == ECONNRESET));
	if (got < 0)
		return -errno;
	take_peer_fds(&m, fds);
	return got;
}

int fast_send(int fd, struct iovec *iov, size_t n, const int *fds, size_t n_fds)
{
	union peer_fds control;
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = n};
	ssize_t sent;
	if (n_fds) {
		memset(control.bytes, 0, CMSG_SPACE(n_fds * sizeof(int)));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fds, n_fds * sizeof(int));
		m.msg_control = control.bytes;
		m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
	}
	do
		sent = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0; /* a packet is sent completely or not at all */
}

/* ---- a program's buffers ---- */

static char *place(const struct doca_buf *b, const char *at)
{
	return b->mmap->base + (at - b->mmap->addr);
}

/* Gets the parts of a list's data or, with `room`, of the free space after its data. Returns their
 * number. */
static size_t parts_of(const struct doca_buf *b, bool room, struct iovec *out, uint64_t *size)
{
	size_t n = 0;
	*size = 0;
	for (; b; b = b->next, n++) {
		char *end = b->data + b->data_len;
		out[n].iov_base = place(b, room ? end : b->data);
		out[n].iov_len = room ? (size_t)(b->head + b->len - end) : b->data_len;
		*size += out[n].iov_len;
	}
	return n;
}

static doca_error_t check_map(const struct fast_ctx *p, const struct doca_mmap *m,
			      const struct doca_mmap *only, const char *func)
{
	const char *why = NULL;
	doca_error_t error = DOCA_ERROR_INVALID_VALUE; /* guess */
	if (only && m != only) {
		why = "a buffer is not in the consumer's memory map";
	} else if (!softdoca_mmap_attachment(m, p->ctx.dev)) {
		why = "a buffer's map is not started, or lacks the connection's device";
	} else if (m->backing != BACKING_HOST || !m->base || m->from_export) {
		why = "a buffer is not in host memory of this process";
		error = DOCA_ERROR_NOT_SUPPORTED;
	}
	if (!why)
		return DOCA_SUCCESS;
	return REFUSE_FOR(func, error, "%s", why);
}

doca_error_t fast_message_check(const struct fast_ctx *p, const struct doca_buf *buf,
				const struct doca_mmap *map, const char *func)
{
	struct iovec parts[LIST_MAX];
	uint64_t size;
	if (!buf)
		return DOCA_SUCCESS;
	if (!object_is(buf, OBJECT_BUF) || buf->first != buf || buf->list_len > LIST_MAX)
		return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE,
				  "%p is not a buffer, or not the first of at most %u",
				  (const void *)buf, LIST_MAX);
	for (const struct doca_buf *b = buf; b; b = b->next) {
		TRY(check_map(p, b->mmap, map, func));
	}
	parts_of(buf, map, parts, &size);
	if (size > FAST_MAX && !map)
		return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE,
				  "a message of %llu bytes: the limit is %u",
				  (unsigned long long)size, FAST_MAX);
	return DOCA_SUCCESS;
}

/* ---- a message in a memfd ---- */

/* Skips n bytes of the parts. */
static void advance(struct iovec **part, size_t *left, size_t n)
{
	while (*left && n >= (*part)->iov_len) {
		n -= (*part)->iov_len;
		++*part;
		--*left;
	}
	if (n) {
		(*part)->iov_base = (char *)(*part)->iov_base + n;
		(*part)->iov_len -= n;
	}
}

/* Copies `size` bytes between a memfd and the parts. Returns 0 or a negative errno. */
static int move(int fd, struct iovec *part, size_t left, uint64_t size, bool out)
{
	uint64_t done = 0;
	while (done < size) {
		/* When receiving, the last part may be larger than the rest of the message. */
		ssize_t n = out ? pwritev(fd, part, (int)left, (off_t)done)
				: preadv(fd, part, (int)left, (off_t)done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		done += (uint64_t)n;
		advance(&part, &left, (size_t)n);
	}
	return done == size ? 0 : -EIO;
}

/* Linux sends nothing of a packet if any of its parts is not accessible. An emulator (QEMU) sends
 * the parts before the first inaccessible one; fast_message_prepare() then has to find that part
 * itself. */
static bool packets_are_whole;

static void try_packet(void)
{
	char byte = 0;
	int fds[2];
	void *page = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return;
	struct iovec parts[] = {{&byte, 1}, {page, 1}};
	if (!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds)) {
		packets_are_whole = fast_send(fds[0], parts, 2, NULL, 0) == -EFAULT;
		close(fds[0]);
		close(fds[1]);
	}
	munmap(page, 1);
}

int fast_message_prepare(struct fast_task *t)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct iovec parts[LIST_MAX];
	uint64_t size;
	pthread_once(&once, try_packet);
	size_t n = parts_of(t->buf, false, parts, &size);
	if (!size || (size <= INLINE_MAX && packets_are_whole))
		return 0;
	t->memfd = memfd_create("softdoca-comch", MFD_CLOEXEC);
	if (t->memfd < 0)
		return -errno;
	int rc = move(t->memfd, parts, n, size, true);
	if (size <= INLINE_MAX)
		fast_close(&t->memfd);
	return rc;
}

int fast_message_send(const struct fast_ctx *p, const struct fast_task *t, int channel)
{
	struct iovec parts[PARTS_MAX];
	struct fast_message head = {.magic = FAST_MESSAGE_MAGIC,
			      .producer = p->id,
			      .imm_len = t->imm_len,
			      .in_memfd = t->memfd >= 0};
	size_t n = parts_of(t->buf, false, parts + 1, &head.size);
	memcpy(head.imm, t->imm, t->imm_len);
	parts[0] = (struct iovec){&head, sizeof head};
	return fast_send(channel, parts, t->memfd >= 0 ? 1 : n + 1, &t->memfd, t->memfd >= 0);
}

/* ---- receiving ---- */

static bool well_formed(const struct fast_message *head, ssize_t got, int memfd, uint32_t imm_max)
{
	if ((size_t)got < sizeof *head)
		return false;
	uint64_t inline_size = head->in_memfd ? 0 : head->size;
	/* Reading any other kind of file may block. */
	bool is_memfd = memfd >= 0 && fcntl(memfd, F_GET_SEALS) >= 0;
	return head->magic == FAST_MESSAGE_MAGIC && head->in_memfd <= 1 &&
	       head->imm_len <= imm_max && head->size <= FAST_MAX &&
	       (uint64_t)got == sizeof *head + inline_size && (memfd >= 0) == head->in_memfd &&
	       is_memfd == head->in_memfd;
}

/* Appends the bytes received to the data of the list. */
static void append(struct doca_buf *b, uint64_t size)
{
	for (; b && size; b = b->next) {
		uint64_t room = (uint64_t)(b->head + b->len - b->data) - b->data_len;
		uint64_t n = size < room ? size : room;
		b->data_len += n;
		size -= n;
	}
}

/* Completes a receive whose packet was read from the channel. */
static doca_error_t unpack(struct fast_task *t, const struct fast_message *head,
			   struct iovec *parts, size_t n, uint64_t room, int memfd)
{
	if (head->size > room)
		return REFUSE(DOCA_ERROR_IO_FAILED, /* guess */
			      "a message of %llu bytes: the buffer has space for %llu",
			      (unsigned long long)head->size, (unsigned long long)room);
	int rc = memfd >= 0 ? move(memfd, parts, n, head->size, false) : 0;
	if (rc)
		return REFUSE(DOCA_ERROR_IO_FAILED, "a message could not be received: %s",
			      strerror(-rc));
	append(t->buf, head->size);
	t->peer = head->producer;
	t->imm_len = head->imm_len;
	memcpy(t->imm, head->imm, head->imm_len);
	return DOCA_SUCCESS;
}

int fast_message_receive(struct fast_task *t, int channel, uint32_t imm_max)
{
	struct iovec parts[PARTS_MAX];
	struct fast_message head;
	uint64_t room;
	int fds[2];
	size_t n = parts_of(t->buf, true, parts + 1, &room);
	parts[0] = (struct iovec){&head, sizeof head};
	ssize_t got = fast_receive(channel, parts, n + 1, fds);
	if (got == -EFAULT) { /* the packet is lost */
		t->status = REFUSE(DOCA_ERROR_IO_FAILED, "the buffer is not accessible");
		return 0;
	}
	if (got < 0)
		return (int)got;
	bool well = got && well_formed(&head, got, fds[0], imm_max);
	if (well)
		t->status = unpack(t, &head, parts + 1, n, room, fds[0]);
	else if (got)
		softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__,
			     "a consumer received %zd bytes that are not a message of softdoca",
			     got);
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close_peer_fd(fds[i]);
	return well ? 0 : -EPIPE;
}
