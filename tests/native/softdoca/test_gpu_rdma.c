// SPDX-License-Identifier: Apache-2.0
/* The data path of RDMA on a GPU: contexts for kernels, whose operations are posted here by the CPU. */
#include "verbs_check.h"

#include <doca_buf_array.h>
#include <doca_ctx.h>
#include <doca_gpunetio_dev.h>
#include <doca_pe.h>
#include <doca_rdma.h>

#define SIZE   65536u
#define RIGHTS (READ_WRITE | DOCA_ACCESS_FLAG_RDMA_WRITE)

/* Two contexts of a device, and the memory that the second one lends to the first. */
struct contexts {
	struct end e;
	char *near, *far;
	struct doca_mmap *near_map, *far_map, *lent;
	struct doca_buf_arr *arrays[2];
	struct doca_gpu_buf_arr *bufs[2];
	struct doca_rdma *rdma[2];
	struct doca_rdma_connection *connection[2];
	struct doca_gpu_dev_rdma *handle;
};

static struct doca_mmap *mapped(struct contexts *c, char *at)
{
	struct doca_mmap *map;

	OK(doca_mmap_create(&map));
	OK(doca_mmap_add_dev(map, c->e.dev));
	OK(doca_mmap_set_memrange(map, at, SIZE));
	OK(doca_mmap_set_permissions(map, RIGHTS));
	OK(doca_mmap_start(map));
	return map;
}

static struct doca_buf_arr *array_of(struct contexts *c, struct doca_mmap *map,
				     struct doca_gpu_buf_arr **bufs)
{
	struct doca_buf_arr *array;

	OK(doca_buf_arr_create(1, &array));
	OK(doca_buf_arr_set_target_gpu(array, c->e.gpu));
	OK(doca_buf_arr_set_params(array, map, SIZE, 0));
	OK(doca_buf_arr_start(array));
	OK(doca_buf_arr_get_gpu_handle(array, bufs));
	return array;
}

static struct doca_rdma *context(struct contexts *c, uint32_t rights)
{
	struct doca_rdma *r;

	OK(doca_rdma_create(c->e.dev, &r));
	OK(doca_rdma_set_permissions(r, rights));
	OK(doca_rdma_set_send_queue_size(r, 64));
	OK(doca_ctx_set_datapath_on_gpu(doca_rdma_as_ctx(r), c->e.gpu));
	OK(doca_ctx_start(doca_rdma_as_ctx(r)));
	return r;
}

static void lend(struct contexts *c)
{
	const void *bytes;
	size_t n;

	c->near = gpu_alloc(c->e.gpu, SIZE, DOCA_GPU_MEM_TYPE_GPU);
	c->far = gpu_alloc(c->e.gpu, SIZE, DOCA_GPU_MEM_TYPE_GPU);
	c->near_map = mapped(c, c->near);
	c->far_map = mapped(c, c->far);
	OK(doca_mmap_export_rdma(c->far_map, c->e.dev, &bytes, &n));
	OK(doca_mmap_create_from_export(NULL, bytes, n, c->e.dev, &c->lent));
	c->arrays[0] = array_of(c, c->near_map, &c->bufs[0]);
	c->arrays[1] = array_of(c, c->lent, &c->bufs[1]);
}

static void connect_contexts(struct contexts *c, uint32_t rights)
{
	const void *blobs[2];
	size_t sizes[2];

	for (int i = 0; i < 2; i++) {
		c->rdma[i] = context(c, i ? rights : RIGHTS);
		OK(doca_rdma_export(c->rdma[i], &blobs[i], &sizes[i], &c->connection[i]));
	}
	for (int i = 0; i < 2; i++)
		OK(doca_rdma_connect(c->rdma[i], blobs[!i], sizes[!i], c->connection[i]));
	OK(doca_rdma_get_gpu_handle(c->rdma[0], &c->handle));
	CHECK_EQ(c->handle->count, 1);
	c->e.device = c->handle->connections[0].qp;
	c->e.producer = 0;
}

static void open_contexts(struct contexts *c, uint32_t rights)
{
	no_gpu();
	*c = (struct contexts){.near = NULL};
	open_device(&c->e);
	lend(c);
	connect_contexts(c, rights);
}

static void contexts_close(struct contexts *c)
{
	for (int i = 0; i < 2; i++) {
		OK(doca_ctx_stop(doca_rdma_as_ctx(c->rdma[i])));
		OK(doca_rdma_destroy(c->rdma[i]));
		OK(doca_buf_arr_destroy(c->arrays[i]));
	}
	OK(doca_mmap_destroy(c->lent));
	OK(doca_mmap_destroy(c->far_map));
	OK(doca_mmap_destroy(c->near_map));
	OK(doca_gpu_mem_free(c->e.gpu, c->near));
	OK(doca_gpu_mem_free(c->e.gpu, c->far));
	close_device(&c->e);
}

/* Returns the syndrome, 0 if it succeeded. */
static int write_bytes(struct contexts *c, uint64_t at, uint32_t n)
{
	const struct doca_gpu_buf *src = c->bufs[0]->bufs, *dst = c->bufs[1]->bufs;

	put(&c->e, dst->addr + at, be32toh(dst->key), src->addr + at, be32toh(src->key), n);
	return wait_cqe(&c->e);
}

TEST(a_kernel_writes_to_the_peers_memory)
{
	FIXTURE(contexts, c, open_contexts, RIGHTS);
	for (uint32_t i = 0; i < SIZE; i++)
		c.near[i] = (char)(i * 7 + i / 251);
	for (uint32_t i = 0; i < 256; i++) /* more than the ring has */
		CHECK_EQ(write_bytes(&c, i * (SIZE / 256), SIZE / 256), 0);
	CHECK_EQ(memcmp(c.far, c.near, SIZE), 0);
}

TEST(what_the_peer_does_not_permit_fails)
{
	struct contexts c;

	open_contexts(&c, READ_WRITE);
	c.near[0] = 1;
	CHECK(write_bytes(&c, 0, 64));
	CHECK_EQ(c.far[0], 0);
	contexts_close(&c);
	open_contexts(&c, RIGHTS);
	c.near[0] = 1;
	CHECK(write_bytes(&c, 1, SIZE)); /* beyond the map */
	CHECK_EQ(c.far[0], 0);
	contexts_close(&c);
}

TEST(a_context_is_started_and_connected_again)
{
	FIXTURE(contexts, c, open_contexts, RIGHTS);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(write_bytes(&c, 0, 64), 0);
		for (int k = 0; k < 2; k++) {
			OK(doca_ctx_stop(doca_rdma_as_ctx(c.rdma[k])));
			OK(doca_rdma_destroy(c.rdma[k]));
		}
		connect_contexts(&c, RIGHTS);
	}
}

static void nothing(struct doca_rdma_task_send *t, union doca_data task_data, union doca_data ctx_data)
{
	(void)t, (void)task_data, (void)ctx_data;
}

TEST(contexts_are_checked)
{
	struct doca_gpu_dev_rdma *handle;
	struct doca_rdma_connection *more;
	struct doca_rdma_task_send *task;
	struct doca_rdma_addr *addr;
	struct doca_rdma *r;
	const void *blob;
	size_t n;

	FIXTURE(contexts, c, open_contexts, RIGHTS);
	REFUSED(doca_rdma_get_gpu_handle(NULL, &handle), INVALID_VALUE);
	REFUSED(doca_rdma_get_gpu_handle(c.rdma[0], NULL), INVALID_VALUE);
	OK(doca_rdma_connection_disconnect(c.connection[0]));
	REFUSED(doca_rdma_export(c.rdma[0], &blob, &n, &more), FULL); /* its queue pair is used up */
	OK(doca_rdma_addr_create(DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", 1, &addr));
	REFUSED(doca_rdma_connect_to_addr(c.rdma[0], addr, (union doca_data){0}), BAD_STATE); /* no engine */
	REFUSED(doca_rdma_start_listen_to_port(c.rdma[0], 1), BAD_STATE);
	OK(doca_rdma_addr_destroy(addr));

	OK(doca_rdma_create(c.e.dev, &r));
	OK(doca_rdma_task_send_set_conf(r, nothing, nothing, 1));
	OK(doca_ctx_set_datapath_on_gpu(doca_rdma_as_ctx(r), c.e.gpu));
	REFUSED(doca_rdma_get_gpu_handle(r, &handle), BAD_STATE);
	OK(doca_ctx_start(doca_rdma_as_ctx(r)));
	OK(doca_rdma_get_gpu_handle(r, &handle));
	REFUSED(doca_rdma_task_send_allocate_init(r, c.connection[1], NULL, (union doca_data){0}, &task),
		INVALID_VALUE); /* of another context */
	OK(doca_rdma_export(r, &blob, &n, &more));
	REFUSED(doca_rdma_task_send_allocate_init(r, more, NULL, (union doca_data){0}, &task), BAD_STATE);
	OK(doca_ctx_stop(doca_rdma_as_ctx(r)));
	REFUSED(doca_rdma_get_gpu_handle(r, &handle), BAD_STATE);
	OK(doca_rdma_destroy(r));
}

TEST_MAIN(run_tests)
