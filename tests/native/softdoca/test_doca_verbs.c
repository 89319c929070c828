// SPDX-License-Identifier: Apache-2.0
/* Queue pairs of GPUNetIO programs: two processes, on the emulated GPU, whose kernel is the CPU. */
#include "verbs_check.h"

#include <dlfcn.h>
#include <errno.h>

#include "other_process.h"

#define BYTES 10000u

/* ---- two processes ---- */

static enum {
	PLAIN = -1,
	ON_GPU = DOCA_GPU_MEM_TYPE_GPU,
	PINNED = DOCA_GPU_MEM_TYPE_CPU_GPU
} offered = PLAIN;

/* Offers zeroed memory, connects, and sends it back when asked. */
static void server(int fd)
{
	struct end e = {0};
	struct address ours, theirs;
	uint8_t *plain = calloc(1, BYTES), *bytes = plain, asked;

	open_end(&e, DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO);
	if (offered != PLAIN)
		bytes = (void *)gpu_alloc(e.gpu, BYTES, (enum doca_gpu_mem_type)offered);

	struct ibv_mr *mr = ibv_reg_mr(e.pd, bytes, BYTES, ALL_ACCESS);

	CHECK(mr);
	ours = (struct address){e.gid, doca_verbs_qp_get_qpn(e.qp), mr->rkey, (uintptr_t)bytes};
	say(fd, &ours, sizeof(ours));
	hear(fd, &theirs, sizeof(theirs));
	connect_end(&e, &theirs);
	say(fd, &(char){1}, 1);
	hear(fd, &asked, 1);
	say(fd, bytes, BYTES);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	close_end(&e);
	free(plain);
}

static void exchange(struct end *e, int fd, struct address *theirs)
{
	struct address ours = {.gid = e->gid, .qpn = doca_verbs_qp_get_qpn(e->qp)};
	char ready;

	hear(fd, theirs, sizeof(*theirs));
	say(fd, &ours, sizeof(ours));
	connect_end(e, theirs);
	hear(fd, &ready, 1);
}

/* Puts BYTES in pieces, more than the ring has entries. */
static void puts_arrive(enum doca_gpu_dev_verbs_nic_handler handler,
			enum doca_gpu_dev_verbs_nic_handler chosen)
{
	const uint32_t piece = 100;
	struct other o = start(server);
	struct end e = {0};
	struct address to;
	static uint8_t got[BYTES];

	open_end(&e, handler);
	CHECK_EQ(e.device->nic_handler, chosen);

	uint8_t *from = (void *)gpu_alloc(e.gpu, BYTES, DOCA_GPU_MEM_TYPE_GPU);
	int fd;

	for (uint32_t i = 0; i < BYTES; i++)
		from[i] = (uint8_t)(i * 7 + 1);

	struct ibv_mr *mr;

	/* As programs do: by a dma-buf, or else by the address. */
	if (doca_gpu_dmabuf_fd(e.gpu, from, BYTES, &fd)) {
		mr = ibv_reg_mr(e.pd, from, BYTES, ALL_ACCESS);
	} else {
		mr = ibv_reg_dmabuf_mr(e.pd, 0, BYTES, (uintptr_t)from, fd, ALL_ACCESS);
		close(fd);
	}
	CHECK(mr);
	exchange(&e, o.fd, &to);
	for (uint32_t at = 0; at < BYTES; at += piece) {
		put(&e, to.addr + at, to.rkey, (uintptr_t)from + at, mr->lkey, piece);
		CHECK_EQ(wait_cqe(&e), 0);
	}
	say(o.fd, &(char){1}, 1);
	hear(o.fd, got, BYTES);
	CHECK_EQ(memcmp(got, from, BYTES), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	close_end(&e);

	int status;

	CHECK_EQ(waitpid(o.pid, &status, 0), o.pid);
	CHECK_EQ(status, 0);
}

TEST(puts_arrive_by_the_doorbell_that_auto_chooses)
{
	puts_arrive(DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO,
		    DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_DB);
}

TEST(puts_arrive_by_the_proxy)
{
	puts_arrive(DOCA_GPUNETIO_VERBS_NIC_HANDLER_CPU_PROXY,
		    DOCA_GPUNETIO_VERBS_NIC_HANDLER_CPU_PROXY);
}

TEST(puts_arrive_without_a_doorbell_record)
{
	puts_arrive(DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_NO_DBR,
		    DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_NO_DBR);
}

TEST(puts_arrive_from_gpu_memory_in_gpu_memory)
{
	one_gpu();
	offered = ON_GPU;
	puts_arrive(DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO,
		    DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_DB);
}

TEST(puts_arrive_from_gpu_memory_in_pinned_memory)
{
	one_gpu();
	offered = PINNED;
	puts_arrive(DOCA_GPUNETIO_VERBS_NIC_HANDLER_CPU_PROXY,
		    DOCA_GPUNETIO_VERBS_NIC_HANDLER_CPU_PROXY);
}

TEST(puts_arrive_from_a_gpu_s_pinned_memory_in_plain_memory)
{
	one_gpu();
	setenv("SOFTDOCA_GPU_MEMORY", "pinned", 1);
	puts_arrive(DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO,
		    DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_DB);
}

/* ---- one process: a queue pair connected to itself ---- */

static void open_loop(struct end *e)
{
	no_gpu();
	open_end(e, DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO);

	struct address self = {.gid = e->gid, .qpn = doca_verbs_qp_get_qpn(e->qp)};

	connect_end(e, &self);
}

TEST(a_wrong_key_ends_as_an_error_and_the_query_says_so)
{
	struct end e = {0};
	struct doca_verbs_qp_attr *attr;
	uint64_t word = 5;

	open_loop(&e);

	struct ibv_mr *mr = ibv_reg_mr(e.pd, &word, 8, IBV_ACCESS_LOCAL_WRITE);

	CHECK(mr);
	put(&e, (uintptr_t)&word, mr->rkey, (uintptr_t)&word, mr->lkey, 8);
	CHECK_EQ(wait_cqe(&e), 0x13); /* remote access: the region allows peers nothing */
	OK(doca_verbs_qp_attr_create(&attr));
	OK(doca_verbs_qp_query(e.qp, attr, NULL, NULL));
	CHECK_EQ(doca_verbs_qp_attr_get_current_state(attr), DOCA_VERBS_QP_STATE_ERR);
	OK(doca_verbs_qp_attr_destroy(attr));
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	close_end(&e);
}

TEST(what_is_in_use_cannot_be_destroyed)
{
	struct end e = {0};
	uint64_t word = 0;

	open_loop(&e);

	struct ibv_mr *mr = ibv_reg_mr(e.pd, &word, 8, 0);

	CHECK(mr);
	REFUSED(doca_verbs_qp_destroy(e.qp), IN_USE); /* exported */
	REFUSED(doca_verbs_cq_destroy(e.cq), IN_USE);
	REFUSED(doca_umem_destroy(e.qp_umem), IN_USE);
	REFUSED(doca_umem_destroy(e.record_umem), IN_USE);
	REFUSED(doca_umem_destroy(e.cq_umem), IN_USE);
	REFUSED(doca_uar_destroy(e.uar), IN_USE);
	REFUSED(doca_gpu_mem_free(e.gpu, e.qp_rings), IN_USE);
	REFUSED(doca_gpu_destroy(e.gpu), IN_USE);
	REFUSED(doca_verbs_pd_destroy(e.verbs_pd), IN_USE);
	REFUSED(doca_verbs_context_destroy(e.context), IN_USE);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	close_end(&e);
}

TEST(programs_leave_rings_behind_when_they_destroy_the_gpu)
{
	const int fds = open_fds();
	struct end e = {0};

	open_loop(&e);
	OK(doca_gpu_verbs_unexport_qp(e.gpu, e.exported));
	e.exported = NULL;
	OK(doca_gpu_destroy(e.gpu)); /* the queue pair still works: the memory lasts */
	put(&e, 0, 0, 0, 0, 8);
	CHECK(wait_cqe(&e) != 0);
	OK(doca_gpu_create("41:00.0", &e.gpu));
	close_end(&e);
	/* The second round finds what the first one keeps for ever. */
	e = (struct end){0};
	open_loop(&e);
	close_end(&e);
	CHECK(open_fds() <= fds + 4);
}

/* ---- attributes and states ---- */

TEST(attributes_refuse_what_exceeds_their_limit)
{
	struct doca_verbs_cq_attr *cq;
	struct doca_verbs_qp_init_attr *init;
	struct doca_verbs_qp_attr *qp;

	no_gpu();
	OK(doca_verbs_cq_attr_create(&cq));
	REFUSED(doca_verbs_cq_attr_set_cq_size(cq, 0), INVALID_VALUE);
	REFUSED(doca_verbs_cq_attr_set_cq_size(cq, 4194305), INVALID_VALUE);
	CHECK_SAYS(softdoca_last_refusal(), "cq_size is 4194305: it must be 1 to 4194304");
	REFUSED(doca_verbs_cq_attr_set_cq_collapsed(cq, 2), INVALID_VALUE);
	REFUSED(doca_verbs_cq_attr_set_external_umem(cq, NULL, 0), INVALID_VALUE);
	OK(doca_verbs_qp_init_attr_create(&init));
	REFUSED(doca_verbs_qp_init_attr_set_sq_wr(init, 32769), INVALID_VALUE);
	REFUSED(doca_verbs_qp_init_attr_set_qp_type(init, 1), INVALID_VALUE);
	REFUSED(doca_verbs_qp_init_attr_set_pd(init, (void *)cq), INVALID_VALUE);
	REFUSED(doca_verbs_qp_init_attr_set_srq(init, (void *)cq), NOT_SUPPORTED);
	OK(doca_verbs_qp_attr_create(&qp));
	REFUSED(doca_verbs_qp_attr_set_dest_qp_num(qp, 1 << 24), INVALID_VALUE);
	REFUSED(doca_verbs_qp_attr_set_port_num(qp, 2), INVALID_VALUE);
	REFUSED(doca_verbs_qp_attr_set_retry_cnt(qp, 8), INVALID_VALUE);
	OK(doca_verbs_cq_attr_destroy(cq));
	REFUSED(doca_verbs_cq_attr_destroy(cq), INVALID_VALUE);
	OK(doca_verbs_qp_init_attr_destroy(init));
	OK(doca_verbs_qp_attr_destroy(qp));
	CHECK_EQ(doca_verbs_qp_get_qpn(NULL), 0);
	CHECK_EQ(doca_verbs_cq_get_cqn((void *)init), 0);
}

TEST(a_queue_pair_needs_its_attributes_and_room)
{
	struct end e = {0};
	struct doca_verbs_qp_init_attr *attr;
	struct doca_verbs_qp *qp;

	no_gpu();
	open_end(&e, DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO);
	attr = init_attr(&e, false);
	OK(doca_verbs_qp_init_attr_set_external_umem(attr, e.qp_umem, 8192 - 64));
	REFUSED(doca_verbs_qp_create(e.context, attr, &qp), INVALID_VALUE);
	CHECK_SAYS(softdoca_last_refusal(), "exceed the umem");
	OK(doca_verbs_qp_init_attr_set_external_umem(attr, e.qp_umem, 8));
	REFUSED(doca_verbs_qp_create(e.context, attr, &qp), INVALID_VALUE);
	CHECK_SAYS(softdoca_last_refusal(), "not aligned to 64");
	OK(doca_verbs_qp_init_attr_set_send_cq(attr, NULL));
	REFUSED(doca_verbs_qp_create(e.context, attr, &qp), INVALID_VALUE);
	OK(doca_verbs_qp_init_attr_set_pd(attr, NULL));
	REFUSED(doca_verbs_qp_create(e.context, attr, &qp), INVALID_VALUE);
	OK(doca_verbs_qp_init_attr_destroy(attr));
	close_end(&e);
}

TEST(states_change_in_their_order)
{
	struct end e = {0};
	struct doca_verbs_qp_attr *attr;
	const int init = ATTR(NEXT_STATE) | ATTR(PKEY_INDEX) | ATTR(PORT_NUM);

	no_gpu();
	open_end(&e, DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO);
	OK(doca_verbs_qp_attr_create(&attr));
	OK(doca_verbs_qp_attr_set_next_state(attr, DOCA_VERBS_QP_STATE_INIT));
	REFUSED(doca_verbs_qp_modify(e.qp, attr, init & ~ATTR(NEXT_STATE)), INVALID_VALUE);
	REFUSED(doca_verbs_qp_modify(e.qp, attr, init | 1 << 18), INVALID_VALUE);
	REFUSED(doca_verbs_qp_modify(e.qp, attr, ATTR(NEXT_STATE)), INVALID_VALUE);
	CHECK_SAYS(softdoca_last_refusal(), "lacks 0x14, which INIT requires");
	OK(doca_verbs_qp_attr_set_next_state(attr, DOCA_VERBS_QP_STATE_RTS));
	REFUSED(doca_verbs_qp_modify(e.qp, attr,
				     ATTR(NEXT_STATE) | ATTR(SQ_PSN) | ATTR(ACK_TIMEOUT) |
					     ATTR(RETRY_CNT) | ATTR(RNR_RETRY)),
		BAD_STATE);
	CHECK_SAYS(softdoca_last_refusal(), "cannot change from RST to RTS");
	change(e.qp, attr, DOCA_VERBS_QP_STATE_INIT, init);
	change(e.qp, attr, DOCA_VERBS_QP_STATE_ERR, 0);
	change(e.qp, attr, DOCA_VERBS_QP_STATE_RST, 0);
	OK(doca_verbs_qp_attr_destroy(attr));
	close_end(&e);
}

/* ---- exports ---- */

TEST(an_export_needs_a_handler_that_the_queue_pair_has)
{
	struct end e = {0};
	struct doca_gpu_verbs_qp *x;

	no_gpu();
	open_end(&e, DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO);
#define EXPORT(handler, rings, cq) \
	doca_gpu_verbs_export_qp(e.gpu, e.dev, e.qp, DOCA_GPUNETIO_VERBS_NIC_HANDLER_##handler, rings, cq, cq, &x)
	REFUSED(EXPORT(AUTO, e.qp_rings, e.cq), IN_USE);
	REFUSED(doca_gpu_verbs_cpu_proxy_progress(e.exported), NOT_SUPPORTED);
	OK(doca_gpu_verbs_unexport_qp(e.gpu, e.exported));
	REFUSED(EXPORT(GPU_SM_BF, e.qp_rings, e.cq), NOT_SUPPORTED);
	REFUSED(EXPORT(GPU_SM_NO_DBR, e.qp_rings, e.cq), INVALID_VALUE);
	REFUSED(EXPORT(AUTO, e.cq_ring, e.cq), INVALID_VALUE);
	REFUSED(EXPORT(AUTO, e.qp_rings, NULL), INVALID_VALUE);
	OK(EXPORT(CPU_PROXY, e.qp_rings, e.cq));
	e.exported = x;
	OK(doca_gpu_verbs_cpu_proxy_progress(x));
	struct address self = {.gid = e.gid, .qpn = doca_verbs_qp_get_qpn(e.qp)};
	connect_end(&e, &self);
	OK(doca_gpu_verbs_unexport_qp(e.gpu, x));
	REFUSED(EXPORT(CPU_PROXY, e.qp_rings, e.cq), BAD_STATE); /* the doorbell is in use */
	REFUSED(doca_gpu_verbs_unexport_qp(e.gpu, x), INVALID_VALUE);
	OK(doca_verbs_qp_destroy(e.qp));
	OK(doca_umem_destroy(e.qp_umem));
	OK(doca_umem_destroy(e.record_umem));
	OK(doca_verbs_cq_destroy(e.cq));
	OK(doca_umem_destroy(e.cq_umem));
	OK(doca_uar_destroy(e.uar));
	close_device(&e);
}

/* ---- the CPU's data path ---- */

#define DEPTH 4u /* of rings, so that they wrap around */

/* A queue pair whose rings are softdoca's, on `cq`. */
static void open_cpu_qp(struct end *e, struct doca_verbs_cq *cq, uint32_t sends, uint32_t receives, bool no_record)
{
	struct doca_verbs_qp_init_attr *attr;

	OK(doca_verbs_qp_init_attr_create(&attr));
	OK(doca_verbs_qp_init_attr_set_pd(attr, e->verbs_pd));
	OK(doca_verbs_qp_init_attr_set_sq_wr(attr, sends));
	OK(doca_verbs_qp_init_attr_set_rq_wr(attr, receives));
	OK(doca_verbs_qp_init_attr_set_send_cq(attr, cq));
	OK(doca_verbs_qp_init_attr_set_receive_cq(attr, cq));
	OK(doca_verbs_qp_init_attr_set_send_max_sges(attr, 2));
	OK(doca_verbs_qp_init_attr_set_receive_max_sges(attr, 2));
	OK(doca_verbs_qp_init_attr_set_max_inline_data(attr, 32));
	if (no_record)
		OK(doca_verbs_qp_init_attr_set_send_dbr_mode(attr, DOCA_VERBS_QP_SEND_DBR_MODE_NO_DBR_EXT));
	OK(doca_verbs_qp_create(e->context, attr, &e->qp));
	OK(doca_verbs_qp_init_attr_destroy(attr));
}

static struct doca_verbs_cq *open_cpu_cq(struct end *e)
{
	struct doca_verbs_cq_attr *attr;
	struct doca_verbs_cq *cq;

	OK(doca_verbs_cq_attr_create(&attr));
	OK(doca_verbs_cq_attr_set_cq_size(attr, DEPTH * 4));
	OK(doca_verbs_cq_attr_set_entry_size(attr, DOCA_VERBS_CQ_ENTRY_SIZE_64));
	REFUSED(doca_verbs_cq_attr_set_entry_size(attr, DOCA_VERBS_CQ_ENTRY_SIZE_128), NOT_SUPPORTED);
	OK(doca_verbs_cq_create(e->context, attr, &cq));
	OK(doca_verbs_cq_attr_destroy(attr));
	return cq;
}

/* Two queue pairs of one process, connected: what e[0] sends arrives at e[1]. */
static struct ibv_mr *open_cpu_pair(struct end e[2], struct doca_verbs_cq *cq[2], void *memory, size_t n, bool no_record)
{
	struct doca_devinfo **infos;
	uint32_t n_infos;

	OK(doca_devinfo_create_list(&infos, &n_infos));
	OK(doca_verbs_context_create(infos[0], DOCA_VERBS_CONTEXT_CREATE_FLAGS_NONE, &e[0].context));
	OK(doca_devinfo_destroy_list(infos));
	OK(doca_verbs_pd_create(e[0].context, &e[0].verbs_pd));
	OK(doca_verbs_pd_as_doca_dev(e[0].verbs_pd, &e[0].dev));
	e[0].pd = doca_verbs_bridge_verbs_pd_get_ibv_pd(e[0].verbs_pd);
	CHECK_EQ(ibv_query_gid(e[0].pd->context, 1, 0, &e[0].gid), 0);
	e[1] = e[0];
	for (int i = 0; i < 2; i++) {
		cq[i] = open_cpu_cq(&e[i]);
		open_cpu_qp(&e[i], cq[i], DEPTH, DEPTH, no_record);
	}
	for (int i = 0; i < 2; i++)
		connect_end(&e[i], &(struct address){.gid = e[0].gid, .qpn = doca_verbs_qp_get_qpn(e[1 - i].qp)});

	struct ibv_mr *mr = ibv_reg_mr(e[0].pd, memory, n, ALL_ACCESS);

	CHECK(mr);
	return mr;
}

static void close_cpu_pair(struct end e[2], struct doca_verbs_cq *cq[2], struct ibv_mr *mr)
{
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	for (int i = 0; i < 2; i++) {
		OK(doca_verbs_qp_destroy(e[i].qp));
		OK(doca_verbs_cq_destroy(cq[i]));
	}
	OK(doca_dev_close(e[0].dev));
	OK(doca_verbs_pd_destroy(e[0].verbs_pd));
	OK(doca_verbs_context_destroy(e[0].context));
}

static struct ibv_wc poll_one(struct doca_verbs_cq *cq)
{
	const time_t end = time(NULL) + 30;
	struct ibv_wc wc;
	int n;

	while (!(n = doca_verbs_bridge_poll_cq(cq, 1, &wc)))
		CHECK(time(NULL) < end);
	CHECK_EQ(n, 1);
	return wc;
}

static int post(struct end *e, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad = NULL;
	const int code = doca_verbs_bridge_post_send(e->qp, &wr, &bad);

	CHECK(code ? bad == &wr : !bad);
	return code;
}

static int post_receive(struct end *e, uint64_t id, struct ibv_sge *list, int n)
{
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = list, .num_sge = n}, *bad = NULL;

	return doca_verbs_bridge_post_recv(e->qp, &wr, &bad);
}

static void requests_of_the_cpu(bool no_record)
{
	struct doca_verbs_cq *cq[2];
	struct end e[2] = {0};
	_Alignas(8) static char memory[256];
	struct ibv_mr *mr = open_cpu_pair(e, cq, memory, sizeof(memory), no_record);
#define PIECE(offset, n) {.addr = (uintptr_t)(memory + (offset)), .length = n, .lkey = mr->lkey}
	struct ibv_sge two[] = {PIECE(0, 5), PIECE(5, 6)}, into[] = {PIECE(100, 4), PIECE(110, 20)};
	struct ibv_wc wc;

	strcpy(memory, "hello world");
	for (uint64_t i = 0; i < 3 * DEPTH; i++) { /* messages, in two pieces, with a value, and inline */
		const bool is_inline = i % 2;

		memset(memory + 100, 0, 40);
		CHECK_EQ(post_receive(&e[1], 1000 + i, into, 2), 0);
		CHECK_EQ(post(&e[0], (struct ibv_send_wr){
			.wr_id = i, .sg_list = two, .num_sge = 2, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htobe32(77),
			.send_flags = (i % DEPTH == DEPTH - 1 ? IBV_SEND_SIGNALED : 0) | (is_inline ? IBV_SEND_INLINE : 0)}), 0);
		wc = poll_one(cq[1]);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_RECV);
		CHECK_EQ(wc.wr_id, 1000 + i);
		CHECK_EQ(wc.byte_len, 11);
		CHECK_EQ(be32toh(wc.imm_data), 77);
		CHECK_EQ(wc.qp_num, doca_verbs_qp_get_qpn(e[1].qp));
		CHECK_EQ(memcmp(memory + 100, "hell", 4), 0);
		CHECK_EQ(memcmp(memory + 110, "o world", 7), 0);
		if (i % DEPTH == DEPTH - 1) { /* which completes those before it */
			wc = poll_one(cq[0]);
			CHECK_EQ(wc.wr_id, i);
			CHECK_EQ(wc.opcode, IBV_WC_SEND);
		}
	}

	uint64_t word = 5;

	memcpy(memory + 160, &word, 8);

	struct ibv_sge old = PIECE(168, 8), from = PIECE(0, 11), to = PIECE(140, 11);
	const uint64_t far = (uintptr_t)memory;
	const struct {
		struct ibv_send_wr wr;
		enum ibv_wc_opcode opcode;
	} steps[] = {
		{{.sg_list = &from, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {far + 120, mr->rkey}}, IBV_WC_RDMA_WRITE},
		{{.sg_list = &to, .opcode = IBV_WR_RDMA_READ, .wr.rdma = {far + 120, mr->rkey}}, IBV_WC_RDMA_READ},
		{{.sg_list = &old, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		  .wr.atomic = {far + 160, 3, 0, mr->rkey}}, IBV_WC_FETCH_ADD},
		{{.sg_list = &old, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
		  .wr.atomic = {far + 160, 8, 9, mr->rkey}}, IBV_WC_COMP_SWAP},
	};

	for (uint64_t i = 0; i < 4; i++) {
		struct ibv_send_wr wr = steps[i].wr;

		wr.wr_id = i;
		wr.num_sge = 1;
		wr.send_flags = IBV_SEND_SIGNALED;
		CHECK_EQ(post(&e[0], wr), 0);
		wc = poll_one(cq[0]);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, steps[i].opcode);
		CHECK_EQ(wc.wr_id, i);
	}
	CHECK_EQ(memcmp(memory + 140, "hello world", 11), 0);
	memcpy(&word, memory + 160, 8);
	CHECK_EQ(word, 9);
	memcpy(&word, memory + 168, 8);
	CHECK_EQ(word, 8);

	/* What is refused, and the limits of rings. */
	struct ibv_send_wr write = {.sg_list = &from, .num_sge = 3, .opcode = IBV_WR_RDMA_WRITE,
				    .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {far + 120, mr->rkey}};

	CHECK_EQ(post(&e[0], write), EINVAL);
	write.num_sge = 1;
	write.opcode = (enum ibv_wr_opcode)8;
	CHECK_EQ(post(&e[0], write), EINVAL);
	write.opcode = IBV_WR_SEND;
	write.send_flags = IBV_SEND_INLINE;
	from.length = 33;
	CHECK_EQ(post(&e[0], write), EINVAL);
	from.length = 11;
	for (uint32_t i = 0; i < DEPTH; i++)
		CHECK_EQ(post_receive(&e[1], i, into, 1), 0);
	CHECK_EQ(post_receive(&e[1], 9, into, 1), ENOMEM);

	/* An error ends the pair; what comes behind it is flushed. */
	write.opcode = IBV_WR_RDMA_WRITE;
	write.send_flags = IBV_SEND_SIGNALED;
	write.wr.rdma.rkey ^= 0xff00;
	CHECK_EQ(post(&e[0], write), 0);
	wc = poll_one(cq[0]);
	CHECK_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
	CHECK(strstr(ibv_wc_status_str(wc.status), "remote access"));
	CHECK_EQ(post(&e[0], write), 0);
	CHECK_EQ(poll_one(cq[0]).status, IBV_WC_WR_FLUSH_ERR);
	CHECK(!strcmp(ibv_wc_status_str((enum ibv_wc_status)-1), "unknown"));

	/* After RST it works again. */
	struct doca_verbs_qp_attr *attr;

	for (int i = 0; i < 2; i++) {
		OK(doca_verbs_qp_attr_create(&attr));
		change(e[i].qp, attr, DOCA_VERBS_QP_STATE_RST, 0);
		OK(doca_verbs_qp_attr_destroy(attr));
		while (doca_verbs_bridge_poll_cq(cq[i], 1, &wc))
			;
	}
	for (int i = 0; i < 2; i++)
		connect_end(&e[i], &(struct address){.gid = e[0].gid, .qpn = doca_verbs_qp_get_qpn(e[1 - i].qp)});
	write.wr.rdma.rkey = mr->rkey;
	CHECK_EQ(post(&e[0], write), 0);
	CHECK_EQ(poll_one(cq[0]).status, IBV_WC_SUCCESS);
	close_cpu_pair(e, cq, mr);
}

TEST(requests_of_the_cpu_complete)
{
	requests_of_the_cpu(false);
}

TEST(requests_of_the_cpu_complete_without_a_doorbell_record)
{
	requests_of_the_cpu(true);
}

TEST(a_request_of_the_cpu_waits_for_a_completion)
{
	struct doca_verbs_cq *cq[2];
	struct end e[2] = {0};
	static char memory[64];
	struct ibv_mr *mr = open_cpu_pair(e, cq, memory, sizeof(memory), false);
	struct ibv_sge source = PIECE(0, 8), middle = PIECE(16, 8), last = PIECE(32, 8);
	struct ibv_send_wr wait = {.wr_id = 1, .send_flags = IBV_SEND_SIGNALED},
			   send = {.sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND, .wr_id = 2,
				   .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc;

	memcpy(memory, "chained", 8);
	CHECK_EQ(post_receive(&e[0], 0, &last, 1), 0);
	CHECK_EQ(post_receive(&e[1], 0, &middle, 1), 0);
	/* e[1] answers with what it has received, once that is complete. */
	OK(doca_verbs_bridge_set_wait_cq_pi_wr(cq[1], doca_verbs_bridge_get_current_cq_ci(cq[1]), &wait));
	CHECK_EQ(post(&e[1], wait), 0);
	send.sg_list = &middle;
	CHECK_EQ(post(&e[1], send), 0);
	CHECK_EQ(doca_verbs_bridge_poll_cq(cq[1], 1, &wc), 0);
	send.sg_list = &source;
	CHECK_EQ(post(&e[0], send), 0);
	CHECK_EQ(poll_one(cq[1]).opcode, IBV_WC_RECV);
	CHECK_EQ(poll_one(cq[1]).opcode, IBV_WC_DRIVER1);
	CHECK_EQ(poll_one(cq[1]).wr_id, 2);
	CHECK_EQ(doca_verbs_bridge_get_current_cq_ci(cq[1]), 3);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(poll_one(cq[0]).status, IBV_WC_SUCCESS);
	CHECK_EQ(memcmp(memory + 32, "chained", 8), 0);
	close_cpu_pair(e, cq, mr);
#undef PIECE
}

TEST(the_cpu_posts_to_rings_of_softdoca_only)
{
	struct ibv_recv_wr receive = {0}, *bad_receive = NULL;
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND};
	struct end e = {0};
	struct ibv_wc wc;
	struct doca_verbs_qp *with_umem;

	open_end(&e, DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO);
	CHECK_EQ(post(&e, send), EINVAL);
	CHECK_EQ(doca_verbs_bridge_post_recv(e.qp, &receive, &bad_receive), EINVAL);
	CHECK(bad_receive == &receive);
	CHECK_EQ(doca_verbs_bridge_poll_cq(e.cq, 1, NULL), -1);
	CHECK_EQ(doca_verbs_bridge_poll_cq((void *)e.qp, 1, &wc), -1);
	CHECK_EQ(doca_verbs_bridge_post_recv((void *)e.cq, &receive, NULL), EINVAL);
	with_umem = e.qp;
	for (int i = 0; i < 2; i++) { /* one ring alone */
		open_cpu_qp(&e, e.cq, i, !i, false);
		CHECK_EQ(post(&e, send), i ? 0 : EINVAL);
		CHECK_EQ(doca_verbs_bridge_post_recv(e.qp, &receive, NULL), i ? EINVAL : 0);
		OK(doca_verbs_qp_destroy(e.qp));
	}
	e.qp = with_umem;
	close_end(&e);
}

/* ---- as gpunetio 3.0 finds the libraries ---- */

TEST(libraries_are_found_by_their_names_without_a_version)
{
	static const char *const names[] = {"libdoca_common.so", "libdoca_verbs.so",
					    "libdoca_gpunetio.so"};
	static const char *const functions[] = {"doca_umem_get_id", "doca_rdma_bridge_get_dev_pd",
						"doca_verbs_bridge_verbs_pd_import",
						"doca_verbs_qp_query", "doca_gpu_dmabuf_fd"};
	static const int owners[] = {0, 0, 1, 1, 2};
	void *libraries[3];
	char path[4096];
	Dl_info info;

	CHECK(dladdr((void *)(uintptr_t)doca_gpu_create, &info));
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%.*s/sdk/%s",
			 (int)(strrchr(info.dli_fname, '/') - info.dli_fname), info.dli_fname,
			 names[i]);
		libraries[i] = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (!libraries[i])
			check_failed(__FILE__, __LINE__, "%s", dlerror());
	}
	for (int i = 0; i < 5; i++)
		CHECK(dlsym(libraries[owners[i]], functions[i]));
	CHECK(dlsym(libraries[2], "doca_gpu_create") == (void *)(uintptr_t)doca_gpu_create);
}

int main(int argc, char **argv)
{
	no_gpu();
	return run_tests(argc, argv);
}
