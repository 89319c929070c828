/* A program for the recorder: RDMA between two contexts, by descriptors and by address, and what a
 * program sets up for kernels, which it does not run. */
#include "rdma_check.h"
#include "verbs_check.h"

#include <doca_buf_array.h>

#define PORT 7471

static void received(struct doca_rdma_task_receive *task, union doca_data data, union doca_data ctx_data)
{
	struct side *s = ctx_data.ptr;
	uint32_t length = doca_rdma_task_receive_get_result_len(task);
	enum doca_rdma_opcode opcode = doca_rdma_task_receive_get_result_opcode(task);

	CHECK_EQ(length, opcode == DOCA_RDMA_OPCODE_RECV_WRITE_WITH_IMM ? 512u : 4096u);
	CHECK(doca_rdma_task_receive_get_result_rdma_connection(task) == s->connection);
	doca_rdma_task_receive_get_result_immediate_data(task);
	side_note(s, doca_rdma_task_receive_as_task(task), data, &s->done);
}

static void configure(struct side *s, uint32_t permissions)
{
	uint32_t n;

	side_make(s, permissions, 1);
	OK(doca_rdma_task_receive_set_conf(s->rdma, received, received, SIDE_TASKS));
	OK(doca_rdma_get_permissions(s->rdma, &n));
	OK(doca_rdma_set_send_queue_size(s->rdma, 64));
	OK(doca_rdma_get_send_queue_size(s->rdma, &n));
	REFUSED(doca_rdma_set_recv_queue_size(s->rdma, 0), INVALID_VALUE);
	REFUSED(doca_rdma_set_transport_type(s->rdma, DOCA_RDMA_TRANSPORT_TYPE_DC), NOT_SUPPORTED);
}

static void drop_all(struct doca_buf **bufs, unsigned n)
{
	while (n--)
		OK(doca_buf_dec_refcount(bufs[n], NULL));
}

/* Tasks of one side on the memory of the other, one after the other. */
static void one_sided(struct side *s, const struct side_offer *o)
{
	struct doca_buf *bufs[] = {
		near_buf(s, 0, 4096, true), peer_buf(s, o, 0, 4096, false),
		peer_buf(s, o, 8192, 4096, true), near_buf(s, 8192, 4096, false),
		near_buf(s, 16384, 8, false), peer_buf(s, o, 16384, 8, true),
	};
	struct doca_rdma_task_atomic_fetch_add *add;
	struct doca_rdma_task_write *write;
	size_t length;

	OK(doca_rdma_task_write_allocate_init(s->rdma, s->connection, bufs[0], bufs[1], number(1), &write));
	CHECK(doca_rdma_task_write_get_src_buf(write) == bufs[0]);
	OK(doca_task_submit(doca_rdma_task_write_as_task(write)));
	SUBMIT(s, read, s->connection, bufs[2], bufs[3], number(2));
	side_until(s, 2);
	OK(doca_buf_get_data_len(bufs[3], &length));
	OK(doca_rdma_task_atomic_fetch_add_allocate_init(s->rdma, s->connection, bufs[5], bufs[4], 7,
							 number(3), &add));
	CHECK_EQ(doca_rdma_task_atomic_fetch_add_get_add_data(add), 7);
	OK(doca_task_submit(doca_rdma_task_atomic_fetch_add_as_task(add)));
	side_until(s, 3);
	drop_all(bufs, 6);
}

static void two_sided(struct side *s, struct side *other, const struct side_offer *o)
{
	struct doca_buf *bufs[] = {
		near_buf(s, 0, 4096, true), near_buf(other, 32768, 4096, false),
		near_buf(s, 0, 512, true), peer_buf(s, o, 0, 512, false),
	};

	SUBMIT(other, receive, bufs[1], number(11));
	SUBMIT(other, receive, NULL, number(12));
	SUBMIT(s, send, s->connection, bufs[0], number(4));
	SUBMIT(s, write_imm, s->connection, bufs[2], bufs[3], 99, number(5));
	side_until(s, 5);
	side_until(other, 2);
	drop_all(bufs, 4);
}

/* The other side's context does not permit it: the task fails, and the connection ends. */
static void forbidden(struct side *s, const struct side_offer *o)
{
	struct doca_buf *bufs[] = {near_buf(s, 0, 8, false), peer_buf(s, o, 0, 8, true)};

	SUBMIT(s, atomic_cmp_swp, s->connection, bufs[1], bufs[0], 0, 1, number(6));
	side_until(s, 1);
	CHECK_EQ(s->last, DOCA_ERROR_IO_FAILED);
	while (!s->disconnected)
		doca_pe_progress(s->pe);
	drop_all(bufs, 2);
}

static void by_descriptors(bool fails)
{
	struct side_offer offers[2];
	struct side a, b;
	uint32_t id;

	configure(&a, LENT);
	configure(&b, fails ? LENT & ~(uint32_t)DOCA_ACCESS_FLAG_RDMA_ATOMIC : LENT);
	side_offers(&a, &offers[0]);
	side_offers(&b, &offers[1]);
	side_takes(&a, &offers[1]);
	side_takes(&b, &offers[0]);
	OK(doca_rdma_connection_get_id(a.connection, &id));
	REFUSED(doca_rdma_set_permissions(a.rdma, LENT), BAD_STATE);
	if (fails) {
		forbidden(&a, &offers[1]);
	} else {
		one_sided(&a, &offers[1]);
		two_sided(&a, &b, &offers[1]);
	}
	side_close(&a);
	side_close(&b);
}

static unsigned established;

static void requested(struct doca_rdma_connection *c, union doca_data data)
{
	(void)data;
	OK(doca_rdma_connection_accept(c, NULL, 0));
}

static void connected(struct doca_rdma_connection *c, union doca_data data, union doca_data ctx_data)
{
	struct side *s = ctx_data.ptr;

	(void)data;
	s->connection = c;
	established++;
}

static void ended(struct doca_rdma_connection *c, union doca_data data, union doca_data ctx_data)
{
	struct side *s = ctx_data.ptr;

	(void)c;
	(void)data;
	s->disconnected++;
}

static void by_address(void)
{
	struct doca_rdma_addr *addr;
	struct side s[2];

	for (int i = 0; i < 2; i++) {
		configure(&s[i], LENT);
		OK(doca_rdma_set_connection_state_callbacks(s[i].rdma, requested, connected, ended, ended));
		OK(doca_ctx_start(s[i].ctx));
	}
	OK(doca_rdma_start_listen_to_port(s[0].rdma, PORT));
	REFUSED(doca_rdma_addr_create(DOCA_RDMA_ADDR_TYPE_IPv4, "nowhere", PORT, &addr), INVALID_VALUE);
	OK(doca_rdma_addr_create(DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", PORT, &addr));
	OK(doca_rdma_connect_to_addr(s[1].rdma, addr, number(3)));
	while (established < 2)
		for (int i = 0; i < 2; i++)
			doca_pe_progress(s[i].pe);
	OK(doca_rdma_addr_destroy(addr));
	OK(doca_rdma_connection_disconnect(s[1].connection));
	while (!s[0].disconnected)
		for (int i = 0; i < 2; i++)
			doca_pe_progress(s[i].pe);
	OK(doca_rdma_stop_listen_to_port(s[0].rdma, PORT));
	side_close(&s[1]);
	side_close(&s[0]);
}

/* ---- what kernels would use ---- */

static void queue_pair_for_kernels(void)
{
	struct end e = {0};
	struct address self;
	size_t size;

	open_end(&e, DOCA_GPUNETIO_VERBS_NIC_HANDLER_CPU_PROXY);
	OK(doca_umem_get_size(e.qp_umem, &size));
	REFUSED(doca_umem_destroy(e.qp_umem), IN_USE);
	self = (struct address){.gid = e.gid, .qpn = doca_verbs_qp_get_qpn(e.qp)};
	CHECK(doca_verbs_cq_get_cqn(e.cq));
	connect_end(&e, &self);
	close_end(&e);
}

static void contexts_for_kernels(void)
{
	struct doca_dev *dev = a_dev();
	struct doca_gpu_buf_arr *for_kernels;
	struct doca_gpu_dma *dma_for_kernels;
	struct doca_buf_arr *array;
	struct doca_mmap *map;
	struct doca_gpu *gpu;
	struct doca_dma *dma;
	void *at;
	int fd;

	OK(doca_gpu_create("41:00.0", &gpu));
	REFUSED(doca_gpu_mem_alloc(gpu, 0, 4096, DOCA_GPU_MEM_TYPE_GPU, &at, NULL), INVALID_VALUE);
	OK(doca_gpu_mem_alloc(gpu, 65536, 4096, DOCA_GPU_MEM_TYPE_GPU, &at, NULL));
	OK(doca_gpu_dmabuf_fd(gpu, at, 65536, &fd));
	OK(doca_mmap_create(&map));
	OK(doca_mmap_add_dev(map, dev));
	OK(doca_mmap_set_dmabuf_memrange(map, fd, at, 0, 65536));
	OK(doca_mmap_start(map));
	OK(doca_buf_arr_create(4, &array));
	REFUSED(doca_buf_arr_start(array), BAD_STATE);
	OK(doca_buf_arr_set_target_gpu(array, gpu));
	OK(doca_buf_arr_set_params(array, map, 16384, 0));
	OK(doca_buf_arr_start(array));
	OK(doca_buf_arr_get_gpu_handle(array, &for_kernels));
	OK(doca_dma_create(dev, &dma));
	OK(doca_ctx_set_datapath_on_gpu(doca_dma_as_ctx(dma), gpu));
	OK(doca_ctx_start(doca_dma_as_ctx(dma)));
	OK(doca_dma_get_gpu_handle(dma, &dma_for_kernels));
	OK(doca_ctx_stop(doca_dma_as_ctx(dma)));
	OK(doca_dma_destroy(dma));
	OK(doca_buf_arr_destroy(array));
	OK(doca_mmap_destroy(map));
	OK(doca_gpu_mem_free(gpu, at));
	OK(doca_gpu_destroy(gpu));
	OK(doca_dev_close(dev));
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "--kernels")) {
		queue_pair_for_kernels();
		contexts_for_kernels();
	} else {
		by_descriptors(false);
		by_descriptors(true);
		by_address();
	}
	puts("done");
	return 0;
}
