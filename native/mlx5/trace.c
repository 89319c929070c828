// SPDX-License-Identifier: Apache-2.0
/* The trace of `dgkit mlx5 run --trace`: a line for each entry and completion, or a capture in pcapng. Several
 * processes may append to one file: each line or block is one write(2). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace.h"

enum { FIRST_FD = 900 }; /* programs that close all their descriptors usually begin at 3 */
#define BYTES_MAX (1ull << 30)

static int fd = -1;
static uint64_t written;

/* What is not whole ends the trace, as does its limit. */
void dg_mlx5_trace_write(const void *bytes, size_t size)
{
	if (fd < 0)
		return;
	written += size;
	const ssize_t n = written > BYTES_MAX ? -1 : write(fd, bytes, size);
	if (n == (ssize_t)size)
		return;
	fprintf(stderr, "dgkit mlx5: the trace ends: %s\n",
		written > BYTES_MAX ? "1 GiB was written" : strerror(errno));
	dg_mlx5_close(fd);
	fd = -1;
}

int dg_mlx5_trace_open(const char *path, bool *is_capture)
{
	const size_t length = strlen(path);
	*is_capture = (length > 5 && !strcmp(path + length - 5, ".pcap")) ||
		      (length > 7 && !strcmp(path + length - 7, ".pcapng"));
	const int low = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, FIRST_FD);
	if (fd < 0)
		fd = low;
	else
		dg_mlx5_close(low);
	return fd < 0 ? -errno : 0;
}

/* A line that is being made; what does not fit is left out. */
struct line {
	char text[512];
	size_t length;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *l, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	const int n = vsnprintf(l->text + l->length, sizeof l->text - l->length, format, list);
	va_end(list);
	const size_t room = sizeof l->text - 2 - l->length;
	l->length += n > 0 && (size_t)n < room ? (size_t)n : room;
}

static struct line begin_line(const struct dg_nic_qp *qp)
{
	struct line l = {.length = 0};
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	add(&l, "%lld.%09ld pid=%d qp=%#x", (long long)now.tv_sec, now.tv_nsec, getpid(), qp->qpn);
	return l;
}

static void end(struct line *l)
{
	l->text[l->length++] = '\n';
	dg_mlx5_trace_write(l->text, l->length);
}

static const char *op_name(uint32_t opcode)
{
	static const char *const names[64] = {
		[WQE_NOP] = "NOP", [WQE_WRITE] = "WRITE", [WQE_WRITE_IMM] = "WRITE_IMM",
		[WQE_SEND] = "SEND", [WQE_SEND_IMM] = "SEND_IMM", [WQE_WAIT] = "WAIT",
		[WQE_READ] = "READ", [WQE_ATOMIC_CS] = "COMPARE_SWAP", [WQE_ATOMIC_FA] = "FETCH_ADD",
		[WQE_MASKED_CS] = "MASKED_COMPARE_SWAP", [WQE_MASKED_FA] = "MASKED_FETCH_ADD",
		[WQE_DUMP] = "DUMP", [WQE_SEND_INVAL] = "SEND_INVAL", [WQE_UMR] = "UMR",
	};
	return opcode < 64 && names[opcode] ? names[opcode] : "unknown";
}

const char *dg_mlx5_syndrome_name(uint8_t syndrome)
{
	static const char *const names[] = {
		[0x01] = "local length error", [0x02] = "local queue pair operation error",
		[0x04] = "local protection error", [0x05] = "flushed",
		[0x06] = "memory window bind error", [0x10] = "bad response",
		[0x11] = "local access error", [0x12] = "remote invalid request",
		[0x13] = "remote access error", [0x14] = "remote operation error",
		[0x15] = "retries exceeded", [0x16] = "receiver not ready, retries exceeded",
		[0x22] = "remote abort",
	};
	return syndrome < sizeof names / sizeof *names && names[syndrome] ? names[syndrome] : "unknown";
}

void dg_mlx5_trace_entry(struct dg_nic_qp *qp, const struct nic_entry *e, bool is_valid, const char *fault)
{
	const struct nic_wqe *w = &qp->nic->wqe;
	struct line l = begin_line(qp);
	add(&l, " entry=%u op=%s", (unsigned)(uint16_t)e->index, op_name(e->opcode));
	if (!is_valid) {
		add(&l, " invalid");
		end(&l);
		return;
	}
	add(&l, " size=%" PRIu64, w->total);
	if (w->srq)
		add(&l, " srq=%#x", w->srq);
	if (e->opcode == WQE_WRITE || e->opcode == WQE_WRITE_IMM ||
	    (e->opcode >= WQE_READ && e->opcode <= WQE_MASKED_FA))
		add(&l, " rkey=%#x remote=%#" PRIx64, w->rkey, w->remote);
	for (uint32_t i = 0; i < w->n_segments; i++) {
		const struct nic_segment *s = &w->segments[i];
		if (s->is_inline)
			add(&l, " inline=%u", s->size);
		else
			add(&l, " lkey=%#x local=%#" PRIx64 "+%u", s->key, s->address, s->size);
	}
	if (e->opcode == WQE_UMR)
		add(&l, " window=%#x", w->rkey);
	if (e->opcode == WQE_UMR && w->window.binds)
		add(&l, " lkey=%#x local=%#" PRIx64 "+%u variant=%#x", w->window.memory.key, w->window.memory.address,
		    w->window.memory.size, w->window.variant);
	if (e->opcode == WQE_SEND_INVAL)
		add(&l, " invalidates=%#x", be32toh(w->immediate));
	if (e->opcode == WQE_WRITE_IMM || e->opcode == WQE_SEND_IMM)
		add(&l, " immediate=%#x", be32toh(w->immediate));
	const uint32_t flags = e->flags;
	if (flags & (WQE_CQE | WQE_SOLICITED | WQE_FENCE))
		add(&l, " flags=%s%s%s", flags & WQE_CQE ? "c" : "", flags & WQE_SOLICITED ? "s" : "",
		    flags & WQE_FENCE ? "f" : "");
	if (fault)
		add(&l, " fault=%s", fault);
	end(&l);
}

void dg_mlx5_trace_completion(struct dg_nic_qp *qp, const struct nic_cqe *e)
{
	static const char *const received[8] = {[CQE_WRITE_IMM] = "WRITE_IMM", [CQE_SEND] = "SEND",
						[CQE_SEND_IMM] = "SEND_IMM", [CQE_SEND_INVAL] = "SEND_INVAL"};
	struct line l = begin_line(qp);
	if (e->opcode == CQE_REQUEST || e->opcode == CQE_REQUEST_ERROR)
		add(&l, " entry=%u op=%s", e->index, op_name(e->send_opcode));
	else if (e->opcode == CQE_RECEIVE_ERROR)
		add(&l, " receive=%u", e->index);
	else
		add(&l, " receive=%u op=%s size=%u", e->index, received[e->opcode & 7], e->bytes);
	if (e->syndrome)
		add(&l, " completion=error syndrome=0x%x vendor=0x%x (%s)", e->syndrome, e->vendor,
		    dg_mlx5_syndrome_name(e->syndrome));
	else
		add(&l, " completion=ok");
	end(&l);
}
