// SPDX-License-Identifier: Apache-2.0
/*
 * A program on DEVX alone: PD, CQ and queue pairs by commands, entries and doorbells by hand.
 *
 * devx one: two queue pairs of a process; devx gpu: the same with rings, CQs and bytes on a GPU, as GPUNetIO has them
 * behind its CPU proxy; devx two: of two processes, each with the same work; devx events: of a CQ and a queue pair, by
 * cookie and by eventfd, and an asynchronous query; devx refusals: what wrong commands are answered.
 */
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, ENTRIES = 32, CQES = 64, WORKS = 500, QPC = 192, CQC = 128, ACCESS = 15 };
enum { CREATE_CQ = 0x400, CREATE_QP = 0x500, RST2INIT = 0x502, INIT2RTR, RTR2RTS, TO_ERROR = 0x507, TO_RESET = 0x50a,
       QUERY_QP, ALLOC_PD = 0x800 };

#define CHECK(x)                                                                      \
	do {                                                                          \
		if (!(x)) {                                                           \
			printf("line %d: %s: %s\n", __LINE__, #x, strerror(errno)); \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

static struct ibv_context *context;
static struct mlx5dv_devx_uar *uar;
static uint8_t in[272], out[272];

/* Functions of libcuda.so.1, with `gpu`. */
static int (*create_gpu)(unsigned long long *, size_t, const void *, unsigned long long),
	(*reserve_gpu)(unsigned long long *, size_t, size_t, unsigned long long, unsigned long long),
	(*map_gpu)(unsigned long long, size_t, size_t, unsigned long long, unsigned long long),
	(*allow_gpu)(unsigned long long, size_t, const void *, size_t), (*to_gpu)(unsigned long long, const void *, size_t), (*from_gpu)(void *, unsigned long long, size_t);

/* rings: of receives, then of sends. records: of the queue pair, then of the CQ. gpu: the same memory there, of which
 * rings, cqes and bytes are then copies, in this order, and where a record of the CQ is. */
struct end {
	unsigned long long gpu;
	uint8_t *rings, *cqes, *records, *bytes;
	struct mlx5dv_devx_umem *ring_umem, *cq_umem, *record_umem;
	struct mlx5dv_devx_obj *pd, *cq, *qp;
	struct ibv_pd *verbs_pd;
	struct ibv_mr *mr;
	uint32_t pdn, cqn, produced, seen, posted;
};

struct address {
	uint64_t at;
	uint32_t qpn, rkey;
};

static void set(int bit, int width, uint64_t value)
{
	for (int i = bit + width - 1; i >= bit; i--, value >>= 1)
		in[i / 8] = (uint8_t)((in[i / 8] & ~(128 >> i % 8)) | (value & 1) << (7 - i % 8));
}

static uint64_t get(const uint8_t *from, int bit, int width)
{
	uint64_t value = 0;
	for (int i = bit; i < bit + width; i++)
		value = value << 1 | (from[i / 8] >> (7 - i % 8) & 1);
	return value;
}

static void command(int opcode)
{
	memset(in, 0, sizeof in);
	memset(out, 0, sizeof out);
	set(0, 16, (uint64_t)opcode);
}

static void *pages(size_t n)
{
	void *p = mmap(NULL, n * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

static void open_context(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct mlx5dv_context_attr attributes = {.flags = MLX5DV_CONTEXT_FLAGS_DEVX};
	CHECK(n == 1);
	context = mlx5dv_open_device(list[0], &attributes);
	CHECK(context);
	ibv_free_device_list(list);
	uar = mlx5dv_devx_alloc_uar(context, MLX5DV_UAR_ALLOC_TYPE_NC);
	CHECK(uar);
}

static void fill_cq(const struct end *e)
{
	uint32_t eqn;
	CHECK(!mlx5dv_devx_query_eqn(context, 0, &eqn));
	command(CREATE_CQ);
	set(CQC + 99, 5, 6); /* log_cq_size */
	set(CQC + 104, 24, uar->page_id);
	set(CQC + 184, 8, eqn);
	set(CQC + 32, 32, e->record_umem->umem_id);
	set(CQC + 448, 64, 64);
	set(704, 32, e->cq_umem->umem_id);
	if (e->gpu) {
		set(CQC + 14, 1, 1); /* oi: the record, behind the ring, is not looked at */
		set(CQC + 32, 32, e->cq_umem->umem_id);
	}
}

static void fill_qp(const struct end *e)
{
	command(CREATE_QP);
	set(QPC + 40, 24, e->pdn);
	if (e->gpu)
		set(QPC + 1381, 3, 3); /* rq_type: none */
	else
		set(QPC + 73, 4, 5); /* log_rq_size */
	set(QPC + 81, 4, 5); /* log_sq_size */
	set(QPC + 104, 24, uar->page_id);
	set(QPC + 136, 24, 0x1234);
	set(QPC + 1000, 24, e->cqn);
	set(QPC + 1256, 24, e->cqn);
	set(QPC + 1824, 32, e->record_umem->umem_id);
	set(2112, 32, e->ring_umem->umem_id);
}

/* Memory without a handle by which others could import it, as NCCL allocates GIN's signals. */
static void alloc_gpu(unsigned long long *at)
{
	const struct {
		unsigned type, handles, location;
		int gpu;
		void *metadata;
		unsigned char flags[8];
	} properties = {.type = 1, .location = 1};
	const struct {
		unsigned location;
		int gpu;
		unsigned flags;
	} access = {1, 0, 3};
	unsigned long long handle;
	const size_t size = 2 << 20;
	CHECK(!create_gpu(&handle, size, &properties, 0) && !reserve_gpu(at, size, 0, 0, 0));
	CHECK(!map_gpu(*at, size, 0, handle, 0) && !allow_gpu(*at, size, &access, 1));
}

static void open_end(struct end *e)
{
	struct mlx5dv_pd pd;
	e->rings = pages(1);
	e->cqes = pages(1);
	e->records = pages(1);
	e->bytes = pages(2);
	memset(e->cqes, 0xff, PAGE);
	if (create_gpu) {
		alloc_gpu(&e->gpu);
		CHECK(!to_gpu(e->gpu + PAGE, e->cqes, PAGE));
	}
	e->ring_umem = mlx5dv_devx_umem_reg(context, e->gpu ? (void *)e->gpu : e->rings, PAGE, IBV_ACCESS_LOCAL_WRITE);
	e->cq_umem = mlx5dv_devx_umem_reg(context, e->gpu ? (void *)(e->gpu + PAGE) : e->cqes, PAGE, IBV_ACCESS_LOCAL_WRITE);
	e->record_umem = mlx5dv_devx_umem_reg(context, e->records, PAGE, IBV_ACCESS_LOCAL_WRITE);
	CHECK(e->ring_umem && e->cq_umem && e->record_umem);
	e->verbs_pd = ibv_alloc_pd(context);
	CHECK(e->verbs_pd && !mlx5dv_init_obj(&(struct mlx5dv_obj){.pd = {e->verbs_pd, &pd}}, MLX5DV_OBJ_PD));
	e->pdn = pd.pdn;
	e->mr = ibv_reg_mr(e->verbs_pd, e->gpu ? (void *)(e->gpu + 2 * PAGE) : e->bytes, 2 * PAGE, ACCESS);
	CHECK(e->mr);
	fill_cq(e);
	e->cq = mlx5dv_devx_obj_create(context, in, sizeof in, out, 16);
	CHECK(e->cq);
	e->cqn = (uint32_t)get(out, 72, 24);
	fill_qp(e);
	e->qp = mlx5dv_devx_obj_create(context, in, sizeof in, out, 16);
	CHECK(e->qp);
}

static struct address address_of(struct end *e)
{
	return (struct address){(uintptr_t)e->mr->addr, (uint32_t)get(out, 72, 24), e->mr->rkey};
}

static void change(struct end *e, int opcode, uint32_t qpn, uint32_t peer)
{
	command(opcode);
	set(72, 24, qpn);
	if (opcode == RST2INIT) {
		set(QPC + 488, 8, 1); /* vhca_port_num */
		set(QPC + 1168, 3, 7); /* rre, rwe, rae */
	} else if (opcode == INIT2RTR) {
		set(QPC + 64, 3, 3);
		set(QPC + 168, 24, peer);
		set(QPC + 1187, 5, 1);
	} else if (opcode == RTR2RTS) {
		set(QPC + 256, 5, 14);
		set(QPC + 909, 3, 7);
		set(QPC + 912, 3, 7);
	}
	CHECK(!mlx5dv_devx_obj_modify(e->qp, in, sizeof in, out, 16));
}

static void connect_end(struct end *e, uint32_t qpn, uint32_t peer)
{
	for (int opcode = RST2INIT; opcode <= RTR2RTS; opcode++)
		change(e, opcode, qpn, peer);
	command(QUERY_QP);
	set(72, 24, qpn);
	CHECK(!mlx5dv_devx_obj_query(e->qp, in, 16, out, sizeof out));
	CHECK(get(out, QPC, 4) == 3 && get(out, QPC + 168, 24) == peer && get(out, QPC + 81, 4) == 5);
}

static void post_receive(struct end *e)
{
	mlx5dv_set_data_seg((void *)(e->rings + 16 * (e->posted % ENTRIES)), PAGE, e->mr->lkey, (uintptr_t)e->bytes + PAGE);
	e->posted++;
	__atomic_store_n((uint32_t *)e->records, htobe32(e->posted & 0xffff), __ATOMIC_RELEASE);
}

/* The first half of one end's bytes goes to the second half of the other's. */
static void post_send(struct end *e, uint8_t opcode, uint32_t qpn, const struct address *peer, uint32_t size)
{
	const uint32_t place = (e->gpu ? 0 : 16 * ENTRIES) + 64 * (e->produced % ENTRIES);
	uint8_t *w = e->rings + place;
	const int has_address = opcode == MLX5_OPCODE_RDMA_WRITE;
	mlx5dv_set_ctrl_seg((void *)w, (uint16_t)e->produced, opcode, 0, qpn, MLX5_WQE_CTRL_CQ_UPDATE,
			    (uint8_t)(2 + has_address), 0, htobe32(size));
	if (has_address) {
		struct mlx5_wqe_raddr_seg *r = (void *)(w + 16);
		*r = (struct mlx5_wqe_raddr_seg){.raddr = htobe64(peer->at + PAGE), .rkey = htobe32(peer->rkey)};
	}
	mlx5dv_set_data_seg((void *)(w + 16 + 16 * has_address), size, e->mr->lkey, (uintptr_t)e->mr->addr);
	e->produced++;
	CHECK(!e->gpu || !to_gpu(e->gpu + place, w, 64));
	__atomic_store_n((uint32_t *)e->records + 1, htobe32(e->produced & 0xffff), __ATOMIC_RELEASE);
	uint64_t first;
	memcpy(&first, w, 8);
	__atomic_store_n((uint64_t *)uar->reg_addr, first, __ATOMIC_RELEASE);
}

/* Waits for a CQE, and returns it. */
static struct mlx5_cqe64 *take(struct end *e)
{
	struct mlx5_cqe64 *c = (void *)(e->cqes + 64 * (e->seen % CQES));
	const uint8_t owner = e->seen / CQES % 2;
	while ((__atomic_load_n(&c->op_own, __ATOMIC_ACQUIRE) & 1) != owner || c->op_own >> 4 == MLX5_CQE_INVALID)
		if (e->gpu)
			CHECK(!from_gpu(c, e->gpu + PAGE + 64 * (e->seen % CQES), 64));
		else
			usleep(1);
	e->seen++;
	__atomic_store_n((uint32_t *)(e->records + 64), htobe32(e->seen & 0xffffff), __ATOMIC_RELEASE);
	return c;
}

static void close_end(struct end *e)
{
	CHECK(!mlx5dv_devx_obj_destroy(e->qp) && !mlx5dv_devx_obj_destroy(e->cq));
	CHECK(!mlx5dv_devx_umem_dereg(e->ring_umem) && !mlx5dv_devx_umem_dereg(e->cq_umem));
	CHECK(!mlx5dv_devx_umem_dereg(e->record_umem));
	CHECK(!ibv_dereg_mr(e->mr) && !ibv_dealloc_pd(e->verbs_pd));
}

static void start_gpu(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *driver_context;
	CHECK(lib);
	int (*init)(unsigned) = dlsym(lib, "cuInit"), (*retain)(void **, int) = dlsym(lib, "cuDevicePrimaryCtxRetain"),
	    (*make_current)(void *) = dlsym(lib, "cuCtxSetCurrent");
	/* As libcudart finds them. */
	int (*find)(const char *, void *, int, uint64_t, int *) = dlsym(lib, "cuGetProcAddress_v2"), found;
	CHECK(!find("cuGetProcAddress", &find, 12000, 0, &found) && !find("cuMemCreate", &create_gpu, 10020, 0, &found));
	reserve_gpu = dlsym(lib, "cuMemAddressReserve");
	map_gpu = dlsym(lib, "cuMemMap");
	allow_gpu = dlsym(lib, "cuMemSetAccess");
	to_gpu = dlsym(lib, "cuMemcpyHtoD_v2");
	from_gpu = dlsym(lib, "cuMemcpyDtoH_v2");
	CHECK(!init(0) && !retain(&driver_context, 0) && !make_current(driver_context));
}

static void connect_both(struct end ends[2], struct address at[2])
{
	for (int i = 0; i < 2; i++) {
		open_end(&ends[i]);
		at[i] = address_of(&ends[i]);
	}
	for (int i = 0; i < 2; i++)
		connect_end(&ends[i], at[i].qpn, at[!i].qpn);
}

static void one(void)
{
	struct end ends[2] = {0};
	struct address at[2];
	int wrong = 0;
	open_context();
	connect_both(ends, at);
	for (int i = 0; i < WORKS; i++) {
		memset(ends[0].bytes, i, PAGE);
		CHECK(!ends[0].gpu || !to_gpu(ends[0].gpu + 2 * PAGE, ends[0].bytes, PAGE));
		post_send(&ends[0], MLX5_OPCODE_RDMA_WRITE, at[0].qpn, &at[1], PAGE);
		const struct mlx5_cqe64 *c = take(&ends[0]);
		CHECK(!ends[1].gpu || !from_gpu(ends[1].bytes + PAGE, ends[1].gpu + 3 * PAGE, PAGE));
		wrong += c->op_own >> 4 != MLX5_CQE_REQ || be16toh(c->wqe_counter) != i || be32toh(c->srqn_uidx) != 0x1234 ||
			 memcmp(ends[0].bytes, ends[1].bytes + PAGE, PAGE);
	}
	printf("%d writes by hand, %d wrong\n", WORKS, wrong);
	at[1].rkey++;
	post_send(&ends[0], MLX5_OPCODE_RDMA_WRITE, at[0].qpn, &at[1], 8);
	const struct mlx5_err_cqe *c = (void *)take(&ends[0]);
	printf("a wrong rkey: opcode %d, syndrome %#x\n", c->op_own >> 4, c->syndrome);
	command(QUERY_QP);
	set(72, 24, at[0].qpn);
	CHECK(!mlx5dv_devx_obj_query(ends[0].qp, in, 16, out, sizeof out));
	printf("then the state is %d\n", (int)get(out, QPC, 4));
	close_end(&ends[0]);
	close_end(&ends[1]);
	mlx5dv_devx_free_uar(uar);
	CHECK(!ibv_close_device(context));
}

/* Sends and receives with the peer at the other end of the socket, and returns how much was wrong. */
static int exchange(int fd, int side)
{
	struct end e = {0};
	struct address here, there;
	int wrong = 0;
	open_context();
	open_end(&e);
	here = address_of(&e);
	CHECK(write(fd, &here, sizeof here) == sizeof here && read(fd, &there, sizeof there) == sizeof there);
	connect_end(&e, here.qpn, there.qpn);
	post_receive(&e);
	CHECK(write(fd, "r", 1) == 1 && read(fd, out, 1) == 1);
	for (int i = 0; i < WORKS; i++) {
		memset(e.bytes, i + side, PAGE);
		post_send(&e, MLX5_OPCODE_SEND_IMM, here.qpn, NULL, PAGE - (uint32_t)i);
		for (int n = 0; n < 2; n++) {
			const struct mlx5_cqe64 *c = take(&e);
			const int is_receive = c->op_own >> 4 == MLX5_CQE_RESP_SEND_IMM;
			wrong += !is_receive && c->op_own >> 4 != MLX5_CQE_REQ;
			if (!is_receive)
				continue;
			wrong += be32toh(c->byte_cnt) != PAGE - (uint32_t)i || be32toh(c->imm_inval_pkey) != PAGE - (uint32_t)i;
			for (int at = 0; at < PAGE - i; at++)
				wrong += e.bytes[PAGE + at] != (uint8_t)(i + !side);
			post_receive(&e);
		}
		/* Each has its receive before the other sends again. */
		CHECK(write(fd, "r", 1) == 1 && read(fd, out, 1) == 1);
	}
	close_end(&e);
	CHECK(!ibv_close_device(context));
	return wrong;
}

static void two(void)
{
	int fds[2], status;
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	const pid_t child = fork();
	CHECK(child >= 0);
	if (!child)
		_exit(exchange(fds[1], 1) ? 1 : 0);
	const int wrong = exchange(fds[0], 0);
	CHECK(waitpid(child, &status, 0) == child);
	printf("%d messages each way, %d wrong here, %s there\n", WORKS, wrong, status ? "some" : "0");
}

/* Reads an event of a channel, and prints it. */
static void show_event(const char *what, struct mlx5dv_devx_event_channel *c, uint32_t number)
{
	struct {
		struct mlx5dv_devx_async_event_hdr header;
		uint8_t eqe[64];
	} e;
	const ssize_t n = mlx5dv_devx_get_event(c, &e.header, sizeof e);
	CHECK(n > 0);
	printf("%s: %zd bytes, cookie %#llx, type %d, %s object\n", what, n, (unsigned long long)e.header.cookie, e.eqe[1],
	       get(e.eqe, 8 * (e.eqe[1] == 4 ? 32 : 56), 32) == number ? "its" : "another");
}

static void events(void)
{
	struct end ends[2] = {0};
	struct address at[2];
	uint64_t count;
	open_context();
	connect_both(ends, at);
	struct mlx5dv_devx_event_channel *c = mlx5dv_devx_create_event_channel(context, 0);
	const int fd = eventfd(0, 0), zero = open("/dev/zero", O_RDWR);
	CHECK(c && fd >= 0 && zero >= 0);
	CHECK(!mlx5dv_devx_subscribe_devx_event(c, ends[0].cq, 4, (uint16_t[]){0, 4}, 0xabcd));
	errno = mlx5dv_devx_subscribe_devx_event(c, ends[0].cq, 4, (uint16_t[]){0, 0x99}, 0x77); /* neither of them */
	printf("an unknown type after a known one: %s\n", strerror(errno));
	errno = mlx5dv_devx_subscribe_devx_event_fd(c, zero, ends[0].cq, 0);
	printf("by another file: %s\n", strerror(errno));
	CHECK(!close(zero));
	CHECK(!mlx5dv_devx_subscribe_devx_event(c, ends[0].qp, 2, (uint16_t[]){5}, 0xef));
	CHECK(!mlx5dv_devx_subscribe_devx_event_fd(c, fd, ends[0].cq, 0));
	__atomic_store_n((uint32_t *)(ends[0].records + 68), 0, __ATOMIC_RELEASE); /* arms the CQ */
	post_send(&ends[0], MLX5_OPCODE_RDMA_WRITE, at[0].qpn, &at[1], 8);
	show_event("a completion", c, ends[0].cqn);
	CHECK(read(fd, &count, sizeof count) == sizeof count);
	printf("by eventfd: %d\n", (int)count);
	take(&ends[0]);
	__atomic_store_n((uint32_t *)ends[0].records + 1, htobe32(0x1000), __ATOMIC_RELEASE); /* beyond the ring */
	show_event("a wrong doorbell", c, at[0].qpn);
	errno = mlx5dv_devx_subscribe_devx_event(c, ends[0].cq, 2, (uint16_t[]){5}, 1);
	printf("of another kind of object: %s\n", strerror(errno));
	mlx5dv_devx_destroy_event_channel(c);

	struct mlx5dv_devx_cmd_comp *answers = mlx5dv_devx_create_cmd_comp(context);
	struct {
		struct mlx5dv_devx_async_cmd_hdr header;
		uint8_t out[272];
	} answer;
	CHECK(answers);
	command(QUERY_QP);
	set(72, 24, at[1].qpn);
	CHECK(!mlx5dv_devx_obj_query_async(ends[1].qp, in, 16, 272, 77, answers));
	CHECK(!mlx5dv_devx_get_async_cmd_comp(answers, &answer.header, sizeof answer));
	printf("a query: wr_id %d, state %d\n", (int)answer.header.wr_id, (int)get(answer.out, QPC, 4));
	mlx5dv_devx_destroy_cmd_comp(answers);
	close_end(&ends[0]);
	close_end(&ends[1]);
	CHECK(!ibv_close_device(context));
}

/* Prints what a command is answered. */
static void show(const char *what, int rc)
{
	printf("%s: %s", what, rc ? strerror(errno) : "done");
	if (rc && errno == EREMOTEIO)
		printf(", status %#x, syndrome %#x", out[0], (unsigned)get(out, 32, 32));
	printf("\n");
	errno = 0;
}

static void show_object(const char *what, struct mlx5dv_devx_obj *o)
{
	show(what, !o);
	CHECK(!o || !mlx5dv_devx_obj_destroy(o));
}

#define CREATE(what, change, in_size, out_size)                                                        \
	do {                                                                                         \
		change;                                                                               \
		show_object(what, mlx5dv_devx_obj_create(context, in, in_size, out, out_size)); \
	} while (0)

static void refusals(void)
{
	struct end e = {0};
	uint8_t caps[4112];
	open_context();
	open_end(&e);
	const uint32_t qpn = address_of(&e).qpn;
	command(0x100);
	show("another opcode than the method's", mlx5dv_devx_obj_create(context, in, 16, out, 16) ? 0 : 1);
	command(0x200);
	show("CREATE_MKEY", mlx5dv_devx_obj_create(context, in, 272, out, 16) ? 0 : 1);
	errno = mlx5dv_devx_general_cmd(context, (command(0x999), in), 16, out, 16);
	show("an unknown opcode", errno);
	errno = mlx5dv_devx_general_cmd(context, (command(0x100), in), 8, out, 16);
	show("8 bytes", errno);
	errno = mlx5dv_devx_general_cmd(context, (command(0x100), in), 16, (void *)8, 16);
	show("an answer at address 8", errno);
	errno = mlx5dv_devx_general_cmd(context, (command(0x100), set(48, 16, 0xfe), in), 16, out, 16);
	show("capabilities of an unknown kind", errno);
	errno = mlx5dv_devx_general_cmd(context, (command(0x100), in), 16, caps, sizeof caps);
	show("capabilities", errno);
	printf("RC %d, port type %d, WQEs of %d bytes\n", (int)get(caps + 16, 575, 1), (int)get(caps + 16, 438, 2),
	       (int)get(caps + 16, 656, 16));
	CREATE("a short CREATE_CQ", fill_cq(&e), 64, 16);
	CREATE("a CQ of 2^31", (fill_cq(&e), set(CQC + 99, 5, 31)), 272, 16);
	CREATE("a CQ beyond its umem", (fill_cq(&e), set(640, 64, 64)), 272, 16);
	CREATE("a CQ in no umem", (fill_cq(&e), set(704, 32, 0xffffff)), 272, 16);
	CREATE("a CQ at byte 4", (fill_cq(&e), set(CQC + 99, 5, 2), set(640, 64, 4)), 272, 16);
	CREATE("a CQ without UAR", (fill_cq(&e), set(CQC + 104, 24, 0)), 272, 16);
	CREATE("a QP of an unknown service", (fill_qp(&e), set(QPC + 8, 8, 9)), 272, 16);
	CREATE("a QP in no PD", (fill_qp(&e), set(QPC + 40, 24, 0)), 272, 16);
	CREATE("a QP without CQ", (fill_qp(&e), set(QPC + 1000, 24, 0)), 272, 16);
	CREATE("a QP without SRQ", (fill_qp(&e), set(QPC + 1381, 3, 1)), 272, 16);
	CREATE("a QP beyond its umem", (fill_qp(&e), set(QPC + 81, 4, 15)), 272, 16);
	CREATE("a QP without records", (fill_qp(&e), set(QPC + 1824, 32, 0)), 272, 16);
	CREATE("a PD", command(ALLOC_PD), 16, 16);
	CREATE("a PD with a short answer", command(ALLOC_PD), 16, 15);
	for (int opcode = INIT2RTR; opcode <= RTR2RTS; opcode++) {
		command(opcode);
		set(72, 24, qpn);
		show("RESET to RTR, RTS", errno = mlx5dv_devx_obj_modify(e.qp, in, 272, out, 16));
	}
	command(RST2INIT);
	set(72, 24, qpn + 1);
	show("another QP", errno = mlx5dv_devx_obj_modify(e.qp, in, 272, out, 16));
	set(72, 24, qpn);
	set(QPC + 488, 8, 2);
	show("port 2", errno = mlx5dv_devx_obj_modify(e.qp, in, 272, out, 16));
	show("a short RST2INIT", errno = mlx5dv_devx_obj_modify(e.qp, in, 64, out, 16));
	show("a modify by query", errno = mlx5dv_devx_obj_query(e.qp, in, 272, out, 16));
	show("a QP by its CQ", errno = mlx5dv_devx_obj_modify(e.cq, in, 272, out, 16));
	change(&e, RST2INIT, qpn, 0);
	command(INIT2RTR);
	set(72, 24, qpn);
	set(QPC + 64, 3, 3);
	set(QPC + 168, 24, 0xabcdef);
	show("a peer that is nowhere", errno = mlx5dv_devx_obj_modify(e.qp, in, 272, out, 16));
	change(&e, TO_ERROR, qpn, 0);
	change(&e, TO_RESET, qpn, 0);
	show("a umem in use", errno = mlx5dv_devx_umem_dereg(e.ring_umem));
	show("a CQ in use", errno = mlx5dv_devx_obj_destroy(e.cq));
	show("a umem of nothing", mlx5dv_devx_umem_reg(context, e.bytes, 0, 1) ? 0 : 1);
	show("a umem that is not mapped", mlx5dv_devx_umem_reg(context, (void *)PAGE, PAGE, 1) ? 0 : 1);
	show("a umem with unknown access", mlx5dv_devx_umem_reg(context, e.bytes, PAGE, 1 << 19) ? 0 : 1);
	uint32_t eqn;
	show("an EQ of vector 7", errno = mlx5dv_devx_query_eqn(context, 7, &eqn));
	close_end(&e);
	CHECK(!ibv_close_device(context));
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "one";
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(mode, "gpu"))
		start_gpu();
	!strcmp(mode, "two") ? two() : !strcmp(mode, "refusals") ? refusals() : !strcmp(mode, "events") ? events() : one();
	return 0;
}
