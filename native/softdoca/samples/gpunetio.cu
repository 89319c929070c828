// SPDX-License-Identifier: Apache-2.0
#include "gpunetio.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <doca_log.h>
#include <doca_rdma_bridge.h>
#include <doca_uar.h>
#include <doca_umem.h>
#include <doca_verbs.h>
#include <doca_verbs_bridge.h>
#include <infiniband/verbs.h>

DOCA_LOG_REGISTER(GPUNETIO);

#define PAGE	    65536u /* no page of a system is larger */
#define CQE_BYTES   64u
#define WQE_BYTES   64u
#define RECV_BYTES  16u
#define RING_ACCESS (DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_RDMA_WRITE)
#define DATA_ACCESS                                                                      \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |     \
	 IBV_ACCESS_REMOTE_ATOMIC)
#define QP_ATTR(name) DOCA_VERBS_QP_ATTR_##name

/* GPU memory that the NIC uses. */
struct ring {
	char *at;
	struct doca_umem *umem;
};

struct queue_pair {
	struct ring send_ring, receive_ring, entries, record;
	struct doca_verbs_cq *send_cq, *receive_cq;
	struct doca_verbs_qp *qp;
	struct doca_gpu_verbs_qp *exported;
	struct doca_gpu_dev_verbs_qp *device;
};

struct connection {
	struct options options;
	int socket;
	bool client;
	struct doca_gpu *gpu;
	struct doca_dev *dev;
	struct ibv_pd *pd;
	struct doca_verbs_context *context;
	struct doca_verbs_pd *verbs_pd;
	struct doca_uar *uar;
	int n; /* of queue pairs */
	struct queue_pair pairs[2];
	size_t size; /* bytes of `data` */
	char *data;
	uint32_t *failed, *failed_cpu;
	struct ibv_mr *mr;
};

/* What one process tells the other. */
struct address {
	uint8_t gid[16];
	uint32_t qpn[2], count, key;
	uint64_t at;
};

doca_error_t failed_cuda(const char *what, cudaError_t error)
{
	DOCA_LOG_ERR("%s failed: %s", what, cudaGetErrorString(error));
	return DOCA_ERROR_DRIVER;
}

/* ---- the socket ---- */

/* Waits for the client. */
static int serve(struct sockaddr_in *address)
{
	socklen_t size = sizeof *address;
	int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1, fd = -1;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (!bind(listener, (struct sockaddr *)address, size) && !listen(listener, 1) &&
	    !getsockname(listener, (struct sockaddr *)address, &size)) {
		printf("server: port %d\n", ntohs(address->sin_port));
		fflush(stdout);
		fd = wait_readable(listener) ? accept(listener, NULL, NULL) : -1;
	}
	close(listener);
	return fd;
}

/* Connects to the server, which may be started up to 10 s later. */
static int meet(const struct sockaddr_in *address)
{
	const struct timespec pause = {0, 10000000};
	int tries = 1000;

	DOCA_LOG_INFO("Waiting for the server");
	while (tries-- && !stopped()) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (!connect(fd, (const struct sockaddr *)address, sizeof *address))
			return fd;
		close(fd);
		if (errno != ECONNREFUSED)
			break;
		nanosleep(&pause, NULL);
	}
	return -1;
}

static doca_error_t open_socket(struct connection *c)
{
	const struct options *o = &c->options;
	struct sockaddr_in address = {};

	c->client = !strcmp(o->role, "client");
	address.sin_family = AF_INET;
	address.sin_port = htons((uint16_t)o->port);
	if ((!c->client && strcmp(o->role, "server")) || o->port > 65535 ||
	    inet_pton(AF_INET, o->address, &address.sin_addr) != 1) {
		DOCA_LOG_ERR("--role must be client or server, --address numbers like 127.0.0.1, "
			     "--port at most 65535");
		return DOCA_ERROR_INVALID_VALUE;
	}
	c->socket = c->client ? meet(&address) : serve(&address);
	return c->socket < 0 ? failed_system("Meeting the other process at", o->address)
			     : DOCA_SUCCESS;
}

/* Sends `size` bytes and receives as many. */
static doca_error_t swap(struct connection *c, const void *mine, void *theirs, size_t size)
{
	size_t got = 0;

	if (send(c->socket, mine, size, MSG_NOSIGNAL) != (ssize_t)size)
		return failed_system("Sending to", "the other process");
	while (got < size) {
		ssize_t n = wait_readable(c->socket) ?
				    recv(c->socket, (char *)theirs + got, size - got, 0) :
				    -1;
		if (n <= 0) {
			DOCA_LOG_ERR("The other process has ended");
			return DOCA_ERROR_CONNECTION_RESET;
		}
		got += (size_t)n;
	}
	return DOCA_SUCCESS;
}

doca_error_t gpunetio_barrier(struct connection *c)
{
	char mine = 0, theirs;

	return swap(c, &mine, &theirs, 1);
}

/* ---- device and memory ---- */

static doca_error_t any_device(const struct doca_devinfo *)
{
	return DOCA_SUCCESS;
}

/* The GPU comes first: softdoca's NIC moves the memory of the GPU that exists when it starts. */
static doca_error_t open_devices(struct connection *c)
{
	char pci[32];

	TRY_CUDA(cudaSetDevice(c->options.gpu));
	TRY_CUDA(cudaDeviceGetPCIBusId(pci, sizeof pci, c->options.gpu));
	TRY_DOCA(doca_gpu_create(pci, &c->gpu));
	TRY(open_device(c->options.pci, any_device, &c->dev));
	TRY_DOCA(doca_rdma_bridge_get_dev_pd(c->dev, &c->pd));
	TRY_DOCA(doca_verbs_bridge_verbs_context_import(
		c->pd->context, DOCA_VERBS_CONTEXT_CREATE_FLAGS_NONE, &c->context));
	TRY_DOCA(doca_verbs_bridge_verbs_pd_import(c->pd, &c->verbs_pd));
	TRY_DOCA(doca_uar_create(c->dev, DOCA_UAR_ALLOCATION_TYPE_NONCACHE_DEDICATED, &c->uar));
	return DOCA_SUCCESS;
}

/* Registers the memory by its dma-buf, or by its address where the driver has none. */
static doca_error_t register_data(struct connection *c)
{
	const size_t size = (c->size + PAGE - 1) / PAGE * PAGE;
	int fd;

	if (doca_gpu_dmabuf_fd(c->gpu, c->data, size, &fd) == DOCA_SUCCESS) {
		c->mr = ibv_reg_dmabuf_mr(c->pd, 0, size, (uint64_t)c->data, fd, DATA_ACCESS);
		close(fd);
	}
	if (!c->mr)
		c->mr = ibv_reg_mr(c->pd, c->data, size, DATA_ACCESS);
	return c->mr ? DOCA_SUCCESS : failed_system("Registering", "GPU memory");
}

static doca_error_t open_data(struct connection *c)
{
	const uint32_t count = (uint32_t)c->options.count;
	uint8_t *sent;
	cudaError_t copied;

	if (!count || count > 1u << 20) {
		DOCA_LOG_ERR("--count is %u; it must be 1 to %u", count, 1u << 20);
		return DOCA_ERROR_INVALID_VALUE;
	}
	c->size = result_word(count, count);
	TRY_DOCA(doca_gpu_mem_alloc(c->gpu, (c->size + PAGE - 1) / PAGE * PAGE, PAGE,
				    DOCA_GPU_MEM_TYPE_GPU, (void **)&c->data, NULL));
	TRY_DOCA(doca_gpu_mem_alloc(c->gpu, PAGE, PAGE, DOCA_GPU_MEM_TYPE_GPU_CPU,
				    (void **)&c->failed, (void **)&c->failed_cpu));
	sent = (uint8_t *)malloc((size_t)count * SLOT);
	for (uint32_t i = 0; i < count * SLOT; i++)
		sent[i] = pattern(c->client, i / SLOT, i % SLOT);
	copied = cudaMemcpy(c->data, sent, (size_t)count * SLOT, cudaMemcpyDefault);
	free(sent);
	TRY_CUDA(copied);
	return register_data(c);
}

/* ---- queues ---- */

static doca_error_t open_ring(struct connection *c, struct ring *r, size_t size)
{
	size = (size + PAGE - 1) / PAGE * PAGE;
	TRY_DOCA(doca_gpu_mem_alloc(c->gpu, size, PAGE, DOCA_GPU_MEM_TYPE_GPU, (void **)&r->at,
				    NULL));
	TRY_DOCA(doca_umem_gpu_create(c->gpu, c->dev, r->at, size, RING_ACCESS, &r->umem));
	return DOCA_SUCCESS;
}

/* Sets the queue to its initial state, in which each entry is invalid. */
static doca_error_t reset_cqes(const struct ring *r)
{
	char cqes[DEPTH * CQE_BYTES] = "";

	for (uint32_t i = 0; i < DEPTH; i++)
		cqes[i * CQE_BYTES + CQE_BYTES - 1] =
			(char)(DOCA_GPUNETIO_IB_MLX5_CQE_INVALID
				       << DOCA_GPUNETIO_VERBS_MLX5_CQE_OPCODE_SHIFT |
			       DOCA_GPUNETIO_IB_MLX5_CQE_OWNER_MASK);
	TRY_CUDA(cudaMemcpy(r->at, cqes, sizeof cqes, cudaMemcpyDefault));
	return DOCA_SUCCESS;
}

static doca_error_t open_cq(struct connection *c, struct ring *r, struct doca_verbs_cq **cq)
{
	struct doca_verbs_cq_attr *attr;

	/* Its doorbell record is behind the entries. */
	TRY(open_ring(c, r, (DEPTH + 1) * CQE_BYTES));
	TRY(reset_cqes(r));
	TRY_DOCA(doca_verbs_cq_attr_create(&attr));
	TRY_DOCA(doca_verbs_cq_attr_set_external_datapath_en(attr, 1));
	TRY_DOCA(doca_verbs_cq_attr_set_external_umem(attr, r->umem, 0));
	TRY_DOCA(doca_verbs_cq_attr_set_external_uar(attr, c->uar));
	TRY_DOCA(doca_verbs_cq_attr_set_cq_size(attr, DEPTH));
	TRY_DOCA(doca_verbs_cq_attr_set_cq_overrun(attr, DOCA_VERBS_CQ_ENABLE_OVERRUN));
	TRY_DOCA(doca_verbs_cq_create(c->context, attr, cq));
	TRY_DOCA(doca_verbs_cq_attr_destroy(attr));
	return DOCA_SUCCESS;
}

static doca_error_t create_qp(struct connection *c, struct queue_pair *q)
{
	struct doca_verbs_qp_init_attr *attr;

	TRY_DOCA(doca_verbs_qp_init_attr_create(&attr));
	TRY_DOCA(doca_verbs_qp_init_attr_set_qp_type(attr, DOCA_VERBS_QP_TYPE_RC));
	TRY_DOCA(doca_verbs_qp_init_attr_set_pd(attr, c->verbs_pd));
	TRY_DOCA(doca_verbs_qp_init_attr_set_external_datapath_en(attr, 1));
	TRY_DOCA(doca_verbs_qp_init_attr_set_external_uar(attr, c->uar));
	TRY_DOCA(doca_verbs_qp_init_attr_set_external_umem(attr, q->entries.umem, 0));
	TRY_DOCA(doca_verbs_qp_init_attr_set_external_dbr_umem(attr, q->record.umem, 0));
	TRY_DOCA(doca_verbs_qp_init_attr_set_send_cq(attr, q->send_cq));
	TRY_DOCA(doca_verbs_qp_init_attr_set_receive_cq(attr, q->receive_cq));
	TRY_DOCA(doca_verbs_qp_init_attr_set_sq_wr(attr, DEPTH));
	TRY_DOCA(doca_verbs_qp_init_attr_set_rq_wr(attr, DEPTH));
	TRY_DOCA(doca_verbs_qp_init_attr_set_send_max_sges(attr, 1));
	TRY_DOCA(doca_verbs_qp_init_attr_set_receive_max_sges(attr, 1));
	/* Lets the companion wait for completions of the first queue pair. */
	TRY_DOCA(doca_verbs_qp_init_attr_set_core_direct_master(attr, q == &c->pairs[1]));
	TRY_DOCA(doca_verbs_qp_create(c->context, attr, &q->qp));
	TRY_DOCA(doca_verbs_qp_init_attr_destroy(attr));
	return DOCA_SUCCESS;
}

static doca_error_t open_queue_pair(struct connection *c, struct queue_pair *q)
{
	TRY(open_cq(c, &q->send_ring, &q->send_cq));
	TRY(open_cq(c, &q->receive_ring, &q->receive_cq));
	TRY(open_ring(c, &q->entries, DEPTH * (WQE_BYTES + RECV_BYTES)));
	TRY(open_ring(c, &q->record, PAGE));
	TRY(create_qp(c, q));
	TRY_DOCA(doca_gpu_verbs_export_qp(c->gpu, c->dev, q->qp,
					  DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO, q->entries.at,
					  q->send_cq, q->receive_cq, &q->exported));
	TRY_DOCA(doca_gpu_verbs_get_qp_dev(q->exported, &q->device));
	return DOCA_SUCCESS;
}

/* ---- the connection ---- */

static doca_error_t change_state(struct doca_verbs_qp *qp, struct doca_verbs_qp_attr *attr,
				 enum doca_verbs_qp_state next, int mask)
{
	TRY_DOCA(doca_verbs_qp_attr_set_next_state(attr, next));
	TRY_DOCA(doca_verbs_qp_modify(qp, attr, mask | QP_ATTR(NEXT_STATE)));
	return DOCA_SUCCESS;
}

static doca_error_t set_attributes(struct doca_verbs_qp_attr *attr, struct doca_verbs_ah_attr *to,
				   uint32_t qpn)
{
	TRY_DOCA(doca_verbs_qp_attr_set_ah_attr(attr, to));
	TRY_DOCA(doca_verbs_qp_attr_set_dest_qp_num(attr, qpn));
	TRY_DOCA(doca_verbs_qp_attr_set_allow_remote_write(attr, 1));
	TRY_DOCA(doca_verbs_qp_attr_set_allow_remote_read(attr, 1));
	TRY_DOCA(doca_verbs_qp_attr_set_atomic_mode(attr, DOCA_VERBS_QP_ATOMIC_MODE_IB_SPEC));
	TRY_DOCA(doca_verbs_qp_attr_set_path_mtu(attr, DOCA_MTU_SIZE_1K_BYTES));
	TRY_DOCA(doca_verbs_qp_attr_set_port_num(attr, 1));
	TRY_DOCA(doca_verbs_qp_attr_set_ack_timeout(attr, 14));
	TRY_DOCA(doca_verbs_qp_attr_set_retry_cnt(attr, 7));
	TRY_DOCA(doca_verbs_qp_attr_set_rnr_retry(attr, 7));
	TRY_DOCA(doca_verbs_qp_attr_set_min_rnr_timer(attr, 1));
	TRY_DOCA(doca_verbs_qp_attr_set_max_rd_atomic(attr, 1));
	TRY_DOCA(doca_verbs_qp_attr_set_max_dest_rd_atomic(attr, 1));
	return DOCA_SUCCESS;
}

static doca_error_t connect_queue_pair(struct doca_verbs_qp *qp, struct doca_verbs_ah_attr *to,
				       uint32_t qpn)
{
	struct doca_verbs_qp_attr *attr;

	TRY_DOCA(doca_verbs_qp_attr_create(&attr));
	TRY(set_attributes(attr, to, qpn));
	TRY(change_state(qp, attr, DOCA_VERBS_QP_STATE_INIT,
			 QP_ATTR(PKEY_INDEX) | QP_ATTR(PORT_NUM) | QP_ATTR(ALLOW_REMOTE_WRITE) |
				 QP_ATTR(ALLOW_REMOTE_READ) | QP_ATTR(ATOMIC_MODE)));
	TRY(change_state(qp, attr, DOCA_VERBS_QP_STATE_RTR,
			 QP_ATTR(RQ_PSN) | QP_ATTR(DEST_QP_NUM) | QP_ATTR(PATH_MTU) |
				 QP_ATTR(AH_ATTR) | QP_ATTR(MIN_RNR_TIMER) |
				 QP_ATTR(MAX_DEST_RD_ATOMIC)));
	TRY(change_state(qp, attr, DOCA_VERBS_QP_STATE_RTS,
			 QP_ATTR(SQ_PSN) | QP_ATTR(ACK_TIMEOUT) | QP_ATTR(RETRY_CNT) |
				 QP_ATTR(RNR_RETRY) | QP_ATTR(MAX_QP_RD_ATOMIC)));
	TRY_DOCA(doca_verbs_qp_attr_destroy(attr));
	return DOCA_SUCCESS;
}

static doca_error_t tell_address(struct connection *c, struct address *theirs)
{
	struct address mine = {};
	union ibv_gid gid;

	if (ibv_query_gid(c->pd->context, 1, c->options.gid_index, &gid))
		return failed_system("Reading", "the gid");
	memcpy(mine.gid, gid.raw, sizeof mine.gid);
	for (int i = 0; i < c->n; i++)
		mine.qpn[i] = doca_verbs_qp_get_qpn(c->pairs[i].qp);
	mine.count = (uint32_t)c->options.count;
	mine.key = htobe32(c->mr->rkey);
	mine.at = (uint64_t)c->data;
	TRY(swap(c, &mine, theirs, sizeof mine));
	if (theirs->count == mine.count)
		return DOCA_SUCCESS;
	DOCA_LOG_ERR("--count is %u here and %u there", mine.count, theirs->count);
	return DOCA_ERROR_INVALID_VALUE;
}

static doca_error_t connect_queue_pairs(struct connection *c, struct address *theirs)
{
	struct doca_verbs_ah_attr *to;
	struct doca_verbs_gid gid;

	TRY(tell_address(c, theirs));
	memcpy(gid.raw, theirs->gid, sizeof gid.raw);
	TRY_DOCA(doca_verbs_ah_attr_create(c->context, &to));
	TRY_DOCA(doca_verbs_ah_attr_set_addr_type(to, DOCA_VERBS_ADDR_TYPE_IPv4));
	TRY_DOCA(doca_verbs_ah_attr_set_gid(to, gid));
	TRY_DOCA(doca_verbs_ah_attr_set_sgid_index(to, (uint8_t)c->options.gid_index));
	TRY_DOCA(doca_verbs_ah_attr_set_hop_limit(to, 255));
	for (int i = 0; i < c->n; i++)
		TRY(connect_queue_pair(c->pairs[i].qp, to, theirs->qpn[i]));
	TRY_DOCA(doca_verbs_ah_attr_destroy(to));
	return DOCA_SUCCESS;
}

static void close_ring(struct connection *c, struct ring *r)
{
	if (r->umem)
		doca_umem_destroy(r->umem);
	if (r->at)
		doca_gpu_mem_free(c->gpu, r->at);
}

static void close_queue_pair(struct connection *c, struct queue_pair *q)
{
	if (q->exported)
		doca_gpu_verbs_unexport_qp(c->gpu, q->exported);
	if (q->qp)
		doca_verbs_qp_destroy(q->qp);
	if (q->send_cq)
		doca_verbs_cq_destroy(q->send_cq);
	if (q->receive_cq)
		doca_verbs_cq_destroy(q->receive_cq);
	close_ring(c, &q->record);
	close_ring(c, &q->entries);
	close_ring(c, &q->receive_ring);
	close_ring(c, &q->send_ring);
}

static void close_connection(struct connection *c)
{
	for (int i = c->n - 1; i >= 0; i--)
		close_queue_pair(c, &c->pairs[i]);
	if (c->mr)
		ibv_dereg_mr(c->mr);
	if (c->uar)
		doca_uar_destroy(c->uar);
	if (c->verbs_pd)
		doca_verbs_pd_destroy(c->verbs_pd);
	if (c->context)
		doca_verbs_context_destroy(c->context);
	if (c->dev)
		doca_dev_close(c->dev);
	if (c->gpu)
		doca_gpu_destroy(c->gpu); /* frees the memory, too */
	if (c->socket >= 0)
		close(c->socket);
}

/* ---- the sample ---- */

/* Compares what was received with what the other process has sent. */
static doca_error_t check(const struct connection *c, const char *name)
{
	const uint32_t count = (uint32_t)c->options.count;
	const uint32_t failed = *(volatile uint32_t *)c->failed_cpu;
	uint8_t *received = (uint8_t *)malloc((size_t)count * SLOT);
	cudaError_t copied = cudaMemcpy(received, c->data + receive_slot(count, 0),
					(size_t)count * SLOT, cudaMemcpyDefault);
	uint32_t right = 0;

	for (uint32_t slot = 0; copied == cudaSuccess && slot < count; slot++) {
		uint32_t at = 0;

		while (at < SLOT && received[slot * SLOT + at] == pattern(!c->client, slot, at))
			at++;
		right += at == SLOT;
	}
	free(received);
	TRY_CUDA(copied);
	printf("%s, %s: %u of %u right, %u errors in kernels\n", name, c->options.role, right, count,
	       failed);
	fflush(stdout);
	return right == count && !failed ? DOCA_SUCCESS : DOCA_ERROR_IO_FAILED;
}

static doca_error_t run_sample(struct connection *c, const char *name, sample_run run)
{
	struct address theirs;
	struct side side;

	TRY(open_socket(c));
	TRY(open_devices(c));
	TRY(open_data(c));
	for (int i = 0; i < c->n; i++)
		TRY(open_queue_pair(c, &c->pairs[i]));
	TRY(connect_queue_pairs(c, &theirs));
	TRY(gpunetio_barrier(c));
	DOCA_LOG_INFO("Both processes are connected");
	side = {.qp = c->pairs[0].device, .companion = c->pairs[1].device,
		.local = (uint64_t)c->data, .remote = theirs.at, .local_key = htobe32(c->mr->lkey),
		.remote_key = theirs.key, .count = theirs.count, .client = c->client,
		.failed = c->failed};
	TRY(run(c, &side));
	TRY(gpunetio_barrier(c)); /* both have sent everything */
	return check(c, name);
}

int gpunetio_main(int argc, char **argv, const char *name, int queue_pairs, sample_run run)
{
	static struct connection c;
	doca_error_t result;

	c.socket = -1;
	c.n = queue_pairs;
	c.options.count = 1000;
	c.options.port = 18515;
	strcpy(c.options.address, "127.0.0.1");
	strcpy(c.options.role, "server");
	result = sample_begin(argc, argv, name, WANT_COUNT | WANT_GPU | WANT_PEER, &c.options);
	if (result == DOCA_SUCCESS)
		result = run_sample(&c, name, run);
	close_connection(&c);
	return sample_end(result);
}
