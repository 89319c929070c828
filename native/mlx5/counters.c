// SPDX-License-Identifier: Apache-2.0
/*
 * The counters of the adapters' ports: /sys/class/infiniband/mlx5_N/ports/1/counters and hw_counters.
 *
 * A file of the runtime folder has a slot for each part of the adapter, which only the process that has the part writes
 * to, and which the next one with this part goes on with. A counter is the sum over all slots, so it never decreases,
 * also if a process is killed. The initiator counts for both sides: the receiver's NIC sees no request.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mlx5.h"
#include "nic.h"
#include "trace.h"

enum counter {
	XMIT_BYTES,
	RCV_BYTES,
	XMIT_PACKETS,
	RCV_PACKETS,
	RX_WRITES,
	RX_READS,
	RX_ATOMICS,
	REQUEST_ERRORS,
	REQUESTS_FLUSHED,
	RECEIVE_ERRORS,
	RECEIVES_FLUSHED,
	REQUESTS_DENIED,
	REQUESTS_INVALID,
	ACCESSES_DENIED,
	RECEIVES_SHORT,
	TIMEOUTS,
	RNR_NAKS,
	NO_RECEIVES,
	COUNTERS = 32 /* and room for more: the file stays as it is */
};

/* The kernel's names: Documentation/ABI/stable/sysfs-class-infiniband, and mlx5_ib's counters.c. */
static const struct {
	const char *name;
	uint32_t counter, unit;
} files[] = {
	{"counters/port_xmit_data", XMIT_BYTES, 4},
	{"counters/port_rcv_data", RCV_BYTES, 4},
	{"counters/port_xmit_packets", XMIT_PACKETS, 1},
	{"counters/port_rcv_packets", RCV_PACKETS, 1},
	{"counters/unicast_xmit_packets", XMIT_PACKETS, 1},
	{"counters/unicast_rcv_packets", RCV_PACKETS, 1},
	{"hw_counters/rx_write_requests", RX_WRITES, 1},
	{"hw_counters/rx_read_requests", RX_READS, 1},
	{"hw_counters/rx_atomic_requests", RX_ATOMICS, 1},
	{"hw_counters/req_cqe_error", REQUEST_ERRORS, 1},
	{"hw_counters/req_cqe_flush_error", REQUESTS_FLUSHED, 1},
	{"hw_counters/resp_cqe_error", RECEIVE_ERRORS, 1},
	{"hw_counters/resp_cqe_flush_error", RECEIVES_FLUSHED, 1},
	{"hw_counters/req_remote_access_errors", REQUESTS_DENIED, 1},
	{"hw_counters/req_remote_invalid_request", REQUESTS_INVALID, 1},
	{"hw_counters/resp_remote_access_errors", ACCESSES_DENIED, 1},
	{"hw_counters/resp_local_length_error", RECEIVES_SHORT, 1},
	{"hw_counters/local_ack_timeout_err", TIMEOUTS, 1},
	{"hw_counters/rnr_nak_retry_err", RNR_NAKS, 1},
	{"hw_counters/out_of_buffer", NO_RECEIVES, 1},
};

typedef _Atomic uint64_t port[COUNTERS];
enum { FILE_SIZE = DG_NIC_PARTS * MAX_ADAPTERS * sizeof(port) };

/* Of this process, by adapter. */
static port own[MAX_ADAPTERS], *ports = own;

static struct path {
	uint32_t mtu;
	uint8_t far; /* the peer's adapter */
} paths[DG_NIC_QPS];
/* Atomic: a port that goes down looks at all queue pairs, of which another thread may just open one. */
static _Atomic uint8_t near_adapters[DG_NIC_QPS];

/* Maps the file. Returns it, or NULL. */
static port *map(int flags, int protection)
{
	char path[PATH_MAX];
	if (dg_runtime_dir(path, sizeof path - sizeof "/mlx5-counters"))
		return NULL;
	strcat(path, "/mlx5-counters");
	const int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return NULL;
	void *at = flags & O_CREAT && ftruncate(fd, FILE_SIZE) ? MAP_FAILED
							       : mmap(NULL, FILE_SIZE, protection, MAP_SHARED, fd, 0);
	if (at != MAP_FAILED && lseek(fd, 0, SEEK_END) < FILE_SIZE) { /* a reader, before its first ftruncate() */
		munmap(at, FILE_SIZE);
		at = MAP_FAILED;
	}
	dg_mlx5_close(fd);
	return at == MAP_FAILED ? NULL : at;
}

void dg_mlx5_counters_open(const dg_nic *n)
{
	port *all = map(O_CREAT | O_RDWR, PROT_READ | PROT_WRITE);
	if (all)
		ports = all + n->part * MAX_ADAPTERS;
}

/* Returns the number of the adapter that has this GID, as dgkit/software_adapter.py assigns them,
 * or `otherwise` if none has it: rdma_cm accepts every address of the machine. */
static uint32_t adapter_of(const uint8_t gid[16], uint32_t otherwise)
{
	static const uint8_t loopback[15] = {[10] = 0xff, [11] = 0xff, [12] = 127};
	const uint32_t number = gid[15] - 1u;
	return memcmp(gid, loopback, sizeof loopback) || number >= MAX_ADAPTERS ? otherwise : number;
}

void dg_mlx5_counters_path(uint32_t qpn, uint32_t adapter, const uint8_t far_gid[16], uint32_t mtu)
{
	paths[qp_index(qpn)] = (struct path){mtu, (uint8_t)adapter_of(far_gid, adapter)};
	atomic_store_explicit(&near_adapters[qp_index(qpn)], (uint8_t)adapter, memory_order_relaxed);
}

uint32_t dg_mlx5_counters_adapter(uint32_t qpn)
{
	return atomic_load_explicit(&near_adapters[qp_index(qpn)], memory_order_relaxed);
}

static void add(port p, enum counter c, uint64_t value)
{
	atomic_store_explicit(&p[c], atomic_load_explicit(&p[c], memory_order_relaxed) + value, memory_order_relaxed);
}

static void count_transfer(port from, port to, uint64_t bytes, uint64_t packets)
{
	add(from, XMIT_BYTES, bytes);
	add(from, XMIT_PACKETS, packets);
	add(to, RCV_BYTES, bytes);
	add(to, RCV_PACKETS, packets);
}

static bool is_reliable(const struct dg_nic_qp *qp)
{
	return qp->c.transport != DG_NIC_UC && qp->c.transport != DG_NIC_UD;
}

void dg_mlx5_count_entry(struct dg_nic_qp *qp, const struct nic_entry *e)
{
	const struct path *path = &paths[qp_index(qp->qpn)];
	const bool is_ud = qp->c.transport == DG_NIC_UD;
	port *near = &ports[dg_mlx5_counters_adapter(qp->qpn)];
	port *far = &ports[is_ud ? adapter_of(qp->nic->wqe.gid, path->far) : path->far];
	const uint64_t bytes = e->message.opcode ? e->message.bytes : e->bytes;
	const uint32_t mtu = path->mtu ? path->mtu : DG_NIC_MTU;
	const uint64_t packets = bytes <= mtu ? 1 : (bytes + mtu - 1) / mtu;
	switch (e->opcode) {
	case WQE_WRITE:
	case WQE_WRITE_IMM:
		add(*far, RX_WRITES, 1);
		/* fall through */
	case WQE_SEND:
	case WQE_SEND_IMM:
	case WQE_SEND_INVAL:
		count_transfer(*near, *far, bytes, packets);
		if (is_reliable(qp))
			count_transfer(*far, *near, 0, 1); /* the acknowledgement */
		break;
	case WQE_READ:
		add(*far, RX_READS, 1);
		count_transfer(*near, *far, 0, 1);
		count_transfer(*far, *near, bytes, packets);
		break;
	case WQE_ATOMIC_CS:
	case WQE_ATOMIC_FA:
	case WQE_MASKED_CS:
	case WQE_MASKED_FA:
		add(*far, RX_ATOMICS, 1);
		count_transfer(*near, *far, 0, 1);
		count_transfer(*far, *near, bytes, 1);
		break;
	default: /* stays in the adapter */
		break;
	}
}

void dg_mlx5_count_error(struct dg_nic_qp *qp, const struct nic_cqe *e)
{
	const struct path *path = &paths[qp_index(qp->qpn)];
	port *near = &ports[dg_mlx5_counters_adapter(qp->qpn)];
	const bool is_request = e->opcode == CQE_REQUEST_ERROR, is_flushed = e->syndrome == SYNDROME_FLUSHED;
	add(*near, is_request ? REQUEST_ERRORS : RECEIVE_ERRORS, 1);
	if (is_flushed)
		add(*near, is_request ? REQUESTS_FLUSHED : RECEIVES_FLUSHED, 1);
	if (!is_request && e->syndrome == SYNDROME_LOCAL_LENGTH)
		add(*near, RECEIVES_SHORT, 1);
	if (is_request && e->syndrome == SYNDROME_REMOTE_REQUEST)
		add(*near, REQUESTS_INVALID, 1);
	if (is_request && e->syndrome == SYNDROME_RETRIES)
		add(*near, TIMEOUTS, 1);
	if (is_request && e->syndrome == SYNDROME_REMOTE_ACCESS) {
		add(*near, REQUESTS_DENIED, 1);
		add(ports[path->far], ACCESSES_DENIED, 1);
	}
}

void dg_mlx5_count_not_ready(struct dg_nic_qp *qp)
{
	const struct path *path = &paths[qp_index(qp->qpn)];
	add(ports[path->far], NO_RECEIVES, 1);
	if (is_reliable(qp))
		add(ports[dg_mlx5_counters_adapter(qp->qpn)], RNR_NAKS, 1);
}

/* Returns the sum over all parts. */
static uint64_t sum(uint32_t adapter, uint32_t counter)
{
	uint64_t total = 0;
	port *all = map(O_RDONLY, PROT_READ);
	for (uint32_t part = 0; all && part < DG_NIC_PARTS; part++)
		total += atomic_load_explicit(&all[part * MAX_ADAPTERS + adapter][counter], memory_order_relaxed);
	if (all)
		munmap(all, FILE_SIZE);
	return total;
}

/* Replaces the file: another process may be reading it. */
static void store(const char *path, uint64_t value)
{
	char draft[PATH_MAX], text[24];
	const int size = snprintf(text, sizeof text, "%llu\n", (unsigned long long)value);
	const int thread = (int)syscall(SYS_gettid); /* glibc 2.30 has gettid() */
	if (snprintf(draft, sizeof draft, "%s.%d.%d", path, getpid(), thread) >= (int)sizeof draft)
		return;
	const int fd = open(draft, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return;
	const bool is_written = write(fd, text, (size_t)size) == size;
	dg_mlx5_close(fd);
	if (!is_written || rename(draft, path))
		unlink(draft);
}

void dg_mlx5_counters_refresh(const char *path)
{
	const int error = errno;
	const char *end = strstr(path, "counters/"), *device = strstr(path, "/infiniband/mlx5_");
	if (!end || !device)
		return;
	const uint32_t adapter = (uint32_t)device[sizeof "/infiniband/mlx5_" - 1] - '0';
	end -= end[-1] == '_' ? 3 : 0; /* hw_ */
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
		if (!strcmp(end, files[i].name) && adapter < MAX_ADAPTERS)
			store(path, sum(adapter, files[i].counter) / files[i].unit);
	errno = error;
}
