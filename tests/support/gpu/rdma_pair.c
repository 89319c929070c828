/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes with an RC queue pair each, whose memory is a GPU's. Prints the status of each work request of the
 * first, and how many bytes are wrong in the memory of both. An argument: `dmabuf`, the memory is registered by its
 * dma-buf; `freed`, `killed`: what the second does; `refusals`: one process, and what it may not register. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "providers/cuda_api.h"

#define CHECK(what)                                                                    \
	do {                                                                           \
		if (!(what)) {                                                         \
			printf("%s: %s failed: %s\n", name, #what, strerror(errno));   \
			fflush(stdout);                                                \
			_exit(1);                                                      \
		}                                                                      \
	} while (0)

enum { SIZE = 1 << 20, SMALL = 4096, ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
struct side {
	uint32_t qpn, gpu_key, host_key;
	uint64_t gpu, host;
	union ibv_gid gid;
};

static const char *name = "first";
static unsigned long long gpu;
static unsigned char *host, *copy;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *gpu_mr, *host_mr;
static struct side own, far;
static int to_far;
static int (*alloc_gpu)(unsigned long long *, size_t), (*free_gpu)(unsigned long long),
	(*copy_2d)(const CUDA_MEMCPY2D *), (*synchronize)(void), (*current)(void **), (*dmabuf)(int *, unsigned long long, size_t, int, unsigned long long);

static void *function(const char *symbol)
{
	static void *lib;
	if (!lib)
		CHECK(lib = dlopen("libcuda.so.1", RTLD_NOW));
	void *found = dlsym(lib, symbol);
	CHECK(found);
	return found;
}

static int to_gpu(unsigned long long at, const void *from, size_t size)
{
	/* A copy from pageable memory may still be on its way when it returns. */
	return copy_2d(&(CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_HOST,
					.srcHost = from,
					.dstMemoryType = CU_MEMORYTYPE_DEVICE,
					.dstDevice = at,
					.WidthInBytes = size,
					.Height = 1}) ||
	       synchronize();
}

static int from_gpu(void *to, unsigned long long at, size_t size)
{
	return copy_2d(&(CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
					.srcDevice = at,
					.dstMemoryType = CU_MEMORYTYPE_HOST,
					.dstHost = to,
					.WidthInBytes = size,
					.Height = 1});
}

static void start_gpu(void)
{
	void *context;
	int (*init)(unsigned) = function("cuInit"), (*retain)(void **, int) = function("cuDevicePrimaryCtxRetain"),
	    (*set)(void *) = function("cuCtxSetCurrent");
	alloc_gpu = function("cuMemAlloc_v2");
	free_gpu = function("cuMemFree_v2");
	copy_2d = function("cuMemcpy2D_v2");
	synchronize = function("cuCtxSynchronize");
	current = function("cuCtxGetCurrent");
	dmabuf = function("cuMemGetHandleForAddressRange");
	CHECK(!init(0) && !retain(&context, 0) && !set(context));
	CHECK(!alloc_gpu(&gpu, 2 * SIZE));
}

static void meet(void)
{
	char c = 0;
	CHECK(write(to_far, &c, 1) == 1 && read(to_far, &c, 1) == 1);
}

static struct ibv_mr *register_dmabuf(void)
{
	int fd;
	CHECK(!dmabuf(&fd, gpu, 2 * SIZE, 1, 0));
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, 2 * SIZE, gpu, fd, ALL);
	close(fd);
	return mr;
}

static void open_adapter(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context && (pd = ibv_alloc_pd(context)) && (cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
	CHECK(!ibv_query_gid(context, 1, 0, &own.gid));
}

static void connect_qp(void)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = cq,
					.qp_type = IBV_QPT_RC,
					.sq_sig_all = 1,
					.cap = {64, 16, 2, 2, 64}};
	CHECK(qp = ibv_create_qp(pd, &init));
	own.qpn = qp->qp_num;
	own.gpu = gpu;
	own.host = (uintptr_t)host;
	own.gpu_key = gpu_mr ? gpu_mr->rkey : 0;
	own.host_key = host_mr->rkey;
	CHECK(write(to_far, &own, sizeof own) == sizeof own && read(to_far, &far, sizeof far) == sizeof far);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL};
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
				 .path_mtu = IBV_MTU_4096,
				 .dest_qp_num = far.qpn,
				 .max_dest_rd_atomic = 1,
				 .min_rnr_timer = 12,
				 .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = far.gid, .hop_limit = 1}}};
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	meet();
}

/* Fills the memory of the GPU and the host, with different bytes. */
static void fill(unsigned seed)
{
	for (unsigned i = 0; i < 2 * SIZE; i++) {
		copy[i] = (unsigned char)(i / 251 * 7 + i + seed);
		host[i] = (unsigned char)(i / 251 * 5 + i + seed);
	}
	CHECK(!to_gpu(gpu, copy, 2 * SIZE));
}

static int wait_cq(void)
{
	struct ibv_wc wc;
	int n;
	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		continue;
	CHECK(n == 1);
	return wc.status;
}

static int post(int opcode, unsigned long long local, uint32_t lkey, uint32_t size, unsigned long long remote,
		uint32_t rkey, int flags)
{
	struct ibv_sge sge = {local, size, lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags};
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	CHECK(!ibv_post_send(qp, &wr, &bad));
	return wait_cq();
}

static void receive(unsigned long long at, uint32_t lkey, uint32_t size)
{
	struct ibv_sge sge = {at, size, lkey};
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};
	CHECK(!ibv_post_recv(qp, &wr, &bad));
}

/* Prints how many bytes differ from those that the other side, or this one, was filled with. */
static void compare(const char *what, unsigned long long at, unsigned factor, unsigned seed, unsigned from,
		    unsigned size)
{
	unsigned wrong = 0;
	if (at)
		CHECK(!from_gpu(copy, at, size));
	else
		memcpy(copy, host + SIZE, size);
	for (unsigned i = 0; i < size; i++)
		wrong += copy[i] != (unsigned char)((i + from) / 251 * factor + i + from + seed);
	printf("%s: %u wrong\n", what, wrong);
	fflush(stdout);
}

static void first(void)
{
	void *before, *after;
	CHECK(!current(&before));
	printf("write %d\n", post(IBV_WR_RDMA_WRITE, gpu, gpu_mr->lkey, SIZE, far.gpu + SIZE, far.gpu_key, 0));
	meet();
	meet();
	printf("write from host %d\n",
	       post(IBV_WR_RDMA_WRITE, own.host, host_mr->lkey, SIZE - 3, far.gpu + SIZE, far.gpu_key, 0));
	meet();
	meet();
	printf("write to host %d\n",
	       post(IBV_WR_RDMA_WRITE, gpu, gpu_mr->lkey, SIZE - 5, far.host + SIZE, far.host_key, 0));
	meet();
	meet();
	printf("inline %d\n", post(IBV_WR_RDMA_WRITE, own.host, 0, 60, far.gpu + SIZE, far.gpu_key, IBV_SEND_INLINE));
	meet();
	meet();
	printf("read %d\n", post(IBV_WR_RDMA_READ, gpu + SIZE, gpu_mr->lkey, SIZE, far.gpu, far.gpu_key, 0));
	compare("read", gpu + SIZE, 7, 2, 0, SIZE);
	printf("read to host %d\n", post(IBV_WR_RDMA_READ, own.host + SIZE, host_mr->lkey, SIZE, far.gpu, far.gpu_key, 0));
	compare("read to host", 0, 7, 2, 0, SIZE);
	printf("read from host %d\n",
	       post(IBV_WR_RDMA_READ, gpu + SIZE, gpu_mr->lkey, SIZE, far.host, far.host_key, 0));
	compare("read from host", gpu + SIZE, 5, 2, 0, SIZE);
	printf("send %d\n", post(IBV_WR_SEND, gpu, gpu_mr->lkey, SMALL, 0, 0, 0));
	printf("send from host %d\n", post(IBV_WR_SEND, own.host, host_mr->lkey, 100, 0, 0, 0));
	meet();
	unsigned long long word = 40;
	CHECK(!to_gpu(gpu, &word, 8));
	printf("fetch and add %d\n",
	       post(IBV_WR_ATOMIC_FETCH_AND_ADD, gpu + 8, gpu_mr->lkey, 8, far.gpu, far.gpu_key, 0));
	meet();
	CHECK(!current(&after));
	printf("context %s\n", before == after ? "is the program's" : "was changed");
	printf("fetch and add to host %d\n",
	       post(IBV_WR_ATOMIC_FETCH_AND_ADD, own.host, host_mr->lkey, 8, far.gpu, far.gpu_key, 0));
	meet();
}

static void second(void)
{
	receive(gpu + SIZE, gpu_mr->lkey, SMALL);
	receive(gpu + SIZE + SMALL, gpu_mr->lkey, SMALL);
	meet();
	compare("write", gpu + SIZE, 7, 1, 0, SIZE);
	meet();
	meet();
	compare("write from host", gpu + SIZE, 5, 1, 0, SIZE - 3);
	meet();
	meet();
	compare("write to host", 0, 7, 1, 0, SIZE - 5);
	meet();
	meet();
	compare("inline", gpu + SIZE, 5, 1, 0, 60);
	meet();
	CHECK(!wait_cq() && !wait_cq());
	compare("send", gpu + SIZE, 7, 1, 0, SMALL);
	compare("send from host", gpu + SIZE + SMALL, 5, 1, 0, 100);
	const unsigned long long word = 1;
	unsigned long long now;
	CHECK(!to_gpu(gpu, &word, 8));
	meet();
	meet();
	CHECK(!from_gpu(&now, gpu, 8));
	printf("word %llu\n", now);
	fflush(stdout);
	meet();
}

/* The second frees the memory that it has registered, or is killed; the first writes there. */
static void ending(int is_first, int is_freed)
{
	if (!is_first && is_freed)
		CHECK(!free_gpu(gpu));
	meet();
	if (!is_first && !is_freed)
		raise(SIGKILL);
	if (!is_first) {
		meet();
		return;
	}
	if (!is_freed)
		wait(NULL);
	printf("ends with %s\n",
	       ibv_wc_status_str(post(IBV_WR_RDMA_WRITE, gpu, gpu_mr->lkey, SIZE, far.gpu, far.gpu_key, 0)));
	if (is_freed)
		printf("and then %s\n",
		       ibv_wc_status_str(post(IBV_WR_RDMA_READ, own.host, host_mr->lkey, 8, far.host, far.host_key, 0)));
	if (is_freed)
		meet();
}

static void refusals(void)
{
	int fd = memfd_create("x", 0), gpu_fd;
	CHECK(!ftruncate(fd, SIZE) && !dmabuf(&gpu_fd, gpu, SIZE, 1, 0));
#define REFUSED(what, call) printf("%s: %s\n", what, (call) ? "registered" : strerror(errno))
	REFUSED("too long", ibv_reg_mr(pd, (void *)(uintptr_t)gpu, 1ull << 40, ALL));
	REFUSED("closed fd", ibv_reg_dmabuf_mr(pd, 0, SIZE, gpu, 999, ALL));
	REFUSED("beyond the dma-buf", ibv_reg_dmabuf_mr(pd, 0, 1ull << 32, gpu, gpu_fd, ALL));
	REFUSED("another offset", ibv_reg_dmabuf_mr(pd, 8, SIZE - 8, gpu, gpu_fd, ALL));
	REFUSED("host address", ibv_reg_dmabuf_mr(pd, 0, SIZE, (uintptr_t)host, fd, ALL));
	REFUSED("right", ibv_reg_mr(pd, (void *)(uintptr_t)gpu, SIZE, IBV_ACCESS_REMOTE_WRITE));
	REFUSED("half of it", ibv_reg_mr(pd, (void *)(uintptr_t)(gpu + SIZE), SIZE, ALL));
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 && strcmp(argv[1], "dmabuf") ? argv[1] : "";
	const int is_dmabuf = argc > 1 && !strcmp(argv[1], "dmabuf");
	int pair[2];
	pid_t child = 0;
	if (strcmp(mode, "refusals")) {
		CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
		child = fork();
		to_far = pair[!child];
		close(pair[!!child]);
		name = child ? "first" : "second";
	}
	host = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	copy = malloc(2 * SIZE);
	open_adapter();
	start_gpu();
	CHECK(host_mr = ibv_reg_mr(pd, host, 2 * SIZE, ALL));
	if (!strcmp(mode, "refusals")) {
		refusals();
		return 0;
	}
	connect_qp(); /* before there is GPU memory, as NCCL does */
	CHECK(gpu_mr = is_dmabuf ? register_dmabuf() : ibv_reg_mr(pd, (void *)(uintptr_t)gpu, 2 * SIZE, ALL));
	own.gpu_key = gpu_mr->rkey;
	fill(child ? 1 : 2);
	CHECK(write(to_far, &own, sizeof own) == sizeof own && read(to_far, &far, sizeof far) == sizeof far);
	if (*mode)
		ending(!!child, !strcmp(mode, "freed"));
	else if (child)
		first();
	else
		second();
	if (child)
		wait(NULL);
	return 0;
}
