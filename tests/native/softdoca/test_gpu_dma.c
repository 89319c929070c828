// SPDX-License-Identifier: Apache-2.0
/* The data path of DMA on a GPU: arrays of buffers and contexts for kernels, whose copies are posted
 * here by the CPU. */
#include "verbs_check.h"

#include <doca_buf_array.h>
#include <doca_ctx.h>
#include <doca_dma.h>
#include <doca_gpunetio_dev.h>
#include <doca_pe.h>

#define SIZE 65536u
#define ELEM 4096u
#define N    (SIZE / ELEM)

/* Maps of GPU memory and of the process's, with arrays over them, and a started context. */
struct copies {
	struct end e;
	char *gpu, *host;
	struct doca_mmap *maps[2];
	struct doca_buf_arr *arrays[2];
	struct doca_gpu_buf_arr *bufs[2];
	struct doca_dma *dma;
	struct doca_gpu_dma *handle;
};
enum { GPU, HOST };

static struct doca_mmap *mapped(struct copies *c, void *at, uint32_t permissions)
{
	struct doca_mmap *map;

	OK(doca_mmap_create(&map));
	OK(doca_mmap_add_dev(map, c->e.dev));
	OK(doca_mmap_set_memrange(map, at, SIZE));
	OK(doca_mmap_set_permissions(map, permissions));
	OK(doca_mmap_start(map));
	return map;
}

static struct doca_buf_arr *array_of(struct copies *c, struct doca_mmap *map,
				     struct doca_gpu_buf_arr **bufs)
{
	struct doca_buf_arr *array;

	OK(doca_buf_arr_create(N, &array));
	OK(doca_buf_arr_set_target_gpu(array, c->e.gpu));
	OK(doca_buf_arr_set_params(array, map, ELEM, 0));
	OK(doca_buf_arr_start(array));
	OK(doca_buf_arr_get_gpu_handle(array, bufs));
	CHECK_EQ((*bufs)->count, N);
	return array;
}

static void start_dma(struct copies *c)
{
	OK(doca_ctx_start(doca_dma_as_ctx(c->dma)));
	OK(doca_dma_get_gpu_handle(c->dma, &c->handle));
	c->e.device = &c->handle->qp;
	c->e.producer = 0;
}

static void open_copies(struct copies *c, uint32_t host_permissions)
{
	*c = (struct copies){.host = malloc(SIZE)};
	open_device(&c->e);
	c->gpu = gpu_alloc(c->e.gpu, SIZE, DOCA_GPU_MEM_TYPE_GPU);
	for (uint32_t i = 0; i < SIZE; i++)
		c->gpu[i] = (char)(i * 7 + i / 251);
	memset(c->host, 0, SIZE);
	c->maps[GPU] = mapped(c, c->gpu, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
	c->maps[HOST] = mapped(c, c->host, host_permissions);
	for (int i = 0; i < 2; i++)
		c->arrays[i] = array_of(c, c->maps[i], &c->bufs[i]);
	OK(doca_dma_create(c->e.dev, &c->dma));
	OK(doca_ctx_set_datapath_on_gpu(doca_dma_as_ctx(c->dma), c->e.gpu));
	start_dma(c);
}

/* The maps before the arrays, and the GPU's memory before these, as programs do it. */
static void copies_close(struct copies *c)
{
	OK(doca_ctx_stop(doca_dma_as_ctx(c->dma)));
	OK(doca_dma_destroy(c->dma));
	for (int i = 0; i < 2; i++)
		if (c->maps[i])
			OK(doca_mmap_destroy(c->maps[i]));
	OK(doca_gpu_mem_free(c->e.gpu, c->gpu));
	for (int i = 0; i < 2; i++)
		OK(doca_buf_arr_destroy(c->arrays[i]));
	free(c->host);
	close_device(&c->e);
}

/* Posts a copy between elements `i` of the arrays. */
static void post(struct copies *c, int from, int to, uint64_t i, uint32_t size)
{
	const struct doca_gpu_buf *src = &c->bufs[from]->bufs[i], *dst = &c->bufs[to]->bufs[i];

	put(&c->e, dst->addr, be32toh(dst->key), src->addr, be32toh(src->key), size);
}

/* Returns the syndrome, 0 if it succeeded. */
static int copy(struct copies *c, int from, int to, uint64_t i, uint32_t size)
{
	post(c, from, to, i, size);
	return wait_cqe(&c->e);
}

static void copies_both_ways(void)
{
	FIXTURE(copies, c, open_copies, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
	for (uint64_t i = 0; i < 3 * N; i++)
		CHECK_EQ(copy(&c, GPU, HOST, i % N, ELEM), 0);
	CHECK(!memcmp(c.host, c.gpu, SIZE));
	memset(c.host, 'h', ELEM);
	CHECK_EQ(copy(&c, HOST, GPU, 0, ELEM), 0);
	CHECK(!memcmp(c.host, c.gpu, SIZE));
}

TEST(a_kernel_copies_between_emulated_gpu_and_host)
{
	no_gpu();
	copies_both_ways();
}

TEST(a_kernel_copies_between_gpu_and_host)
{
	one_gpu();
	copies_both_ways();
}

/* More than the ring has. */
TEST(the_ring_is_used_again_and_a_context_started_again)
{
	no_gpu();
	FIXTURE(copies, c, open_copies, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
	for (int round = 0; round < 2; round++) {
		const uint32_t entries = c.handle->qp.sq_wqe_num;

		for (uint32_t i = 0; i < 3; i++) {
			for (uint32_t k = 0; k < entries / 2; k++)
				post(&c, GPU, HOST, k % N, 8);
			for (uint32_t k = 0; k < entries / 2; k++)
				CHECK_EQ(wait_cqe(&c.e), 0);
		}
		OK(doca_ctx_stop(doca_dma_as_ctx(c.dma)));
		REFUSED(doca_dma_get_gpu_handle(c.dma, &c.handle), BAD_STATE);
		start_dma(&c);
	}
}

static void nothing_is_written(struct copies *c)
{
	for (uint32_t i = 0; i < SIZE; i++)
		CHECK_EQ(c->host[i], 0);
	OK(doca_ctx_stop(doca_dma_as_ctx(c->dma)));
	CHECK_SAYS(softdoca_last_refusal(), "an entry of a kernel failed");
}

TEST(a_copy_beyond_the_map_fails_and_writes_nothing)
{
	no_gpu();
	FIXTURE(copies, c, open_copies, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
	CHECK_EQ(copy(&c, GPU, HOST, N - 1, ELEM + 1), 0x13); /* remote access */
	CHECK(copy(&c, GPU, HOST, 0, ELEM)); /* flushed */
	nothing_is_written(&c);
	start_dma(&c);
	CHECK_EQ(copy(&c, GPU, HOST, 0, ELEM), 0);
}

TEST(a_copy_to_a_map_that_is_only_for_reading_fails)
{
	no_gpu();
	FIXTURE(copies, c, open_copies, DOCA_ACCESS_FLAG_LOCAL_READ_ONLY);
	CHECK_EQ(copy(&c, HOST, GPU, 1, ELEM), 0);
	CHECK_EQ(copy(&c, GPU, HOST, 0, ELEM), 0x13);
	nothing_is_written(&c);
}

TEST(a_copy_to_a_map_that_was_destroyed_or_stopped_fails)
{
	struct copies c;

	no_gpu();
	for (int stops = 0; stops < 2; stops++) {
		open_copies(&c, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
		if (stops) {
			OK(doca_mmap_stop(c.maps[HOST]));
		} else {
			OK(doca_mmap_destroy(c.maps[HOST]));
			c.maps[HOST] = NULL;
		}
		CHECK_EQ(copy(&c, GPU, HOST, 0, ELEM), 0x13);
		nothing_is_written(&c);
		copies_close(&c);
	}
}

/* A kernel can write anything to its rings: the NIC takes their sizes from nowhere else. */
TEST(garbage_in_the_rings_ends_the_context_only)
{
	no_gpu();
	FIXTURE(copies, c, open_copies, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
	memset(c.handle->qp.sq_wqe_daddr, 0xff, 64 * (size_t)c.handle->qp.sq_wqe_num);
	c.handle->qp.sq_wqe_mask = 0xffff;
	__atomic_store_n(c.handle->qp.sq_dbrec, htobe32(0x7fff), __ATOMIC_RELEASE);
	CHECK(wait_cqe(&c.e));
	nothing_is_written(&c);
	start_dma(&c);
	CHECK_EQ(copy(&c, GPU, HOST, 0, ELEM), 0);
}

TEST(two_dmabufs_of_an_allocation_are_not_confused)
{
	struct doca_mmap *halves[2];
	struct doca_buf_arr *array;
	struct doca_gpu_buf_arr *bufs;
	int fds[2];

	no_gpu();
	FIXTURE(copies, c, open_copies, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
	for (int i = 0; i < 2; i++)
		OK(doca_gpu_dmabuf_fd(c.e.gpu, c.gpu + i * (SIZE / 2), SIZE / 2, &fds[i]));
	for (int i = 0; i < 2; i++) {
		OK(doca_mmap_create(&halves[i]));
		OK(doca_mmap_add_dev(halves[i], c.e.dev));
		OK(doca_mmap_set_dmabuf_memrange(halves[i], fds[i], c.gpu + i * (SIZE / 2), ELEM,
						 SIZE / 4));
		OK(doca_mmap_start(halves[i]));
		OK(doca_buf_arr_create(1, &array));
		OK(doca_buf_arr_set_target_gpu(array, c.e.gpu));
		OK(doca_buf_arr_set_params(array, halves[i], ELEM, 0));
		OK(doca_buf_arr_start(array));
		OK(doca_buf_arr_get_gpu_handle(array, &bufs));
		put(&c.e, c.bufs[HOST]->bufs[0].addr, be32toh(c.bufs[HOST]->bufs[0].key),
		    bufs->bufs[0].addr, be32toh(bufs->bufs[0].key), ELEM);
		CHECK_EQ(wait_cqe(&c.e), 0);
		CHECK(!memcmp(c.host, c.gpu + i * (SIZE / 2) + ELEM, ELEM));
		OK(doca_buf_arr_destroy(array));
		OK(doca_mmap_destroy(halves[i]));
	}
	OK(doca_mmap_create(&halves[0]));
	REFUSED(doca_mmap_set_dmabuf_memrange(halves[0], fds[1], c.gpu, ELEM, SIZE / 2),
		INVALID_VALUE);
	OK(doca_mmap_destroy(halves[0]));
	for (int i = 0; i < 2; i++)
		close(fds[i]);
}

/* NVIDIA's application does it in this order. */
TEST(memory_may_be_freed_before_its_map)
{
	void *again;

	no_gpu();
	FIXTURE(copies, c, open_copies, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
	again = c.gpu;
	OK(doca_gpu_mem_free(c.e.gpu, c.gpu));
	REFUSED(doca_gpu_mem_free(c.e.gpu, again), INVALID_VALUE);
	CHECK_EQ(copy(&c, GPU, HOST, 0, ELEM), 0);
	OK(doca_mmap_destroy(c.maps[GPU]));
	c.maps[GPU] = NULL;
	CHECK(copy(&c, GPU, HOST, 0, ELEM));
	c.gpu = gpu_alloc(c.e.gpu, SIZE, DOCA_GPU_MEM_TYPE_GPU);
}

TEST(contexts_are_checked)
{
	struct doca_ctx *ctx;
	struct doca_dma *dma;
	struct doca_pe *pe;
	struct doca_gpu *gpu;
	struct doca_dma_task_memcpy *task;

	no_gpu();
	FIXTURE(copies, c, open_copies, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
	ctx = doca_dma_as_ctx(c.dma);
	REFUSED(doca_ctx_set_datapath_on_gpu(ctx, c.e.gpu), BAD_STATE);
	REFUSED(doca_ctx_start(ctx), BAD_STATE);
	REFUSED(doca_dma_destroy(c.dma), IN_USE);
	REFUSED(doca_dma_task_memcpy_alloc_init(c.dma, NULL, NULL, (union doca_data){0}, &task),
		BAD_STATE);
	OK(doca_dma_create(c.e.dev, &dma));
	ctx = doca_dma_as_ctx(dma);
	REFUSED(doca_ctx_set_datapath_on_gpu(ctx, NULL), INVALID_VALUE);
	REFUSED(doca_ctx_set_datapath_on_gpu(ctx, (void *)dma), INVALID_VALUE);
	REFUSED(doca_dma_get_gpu_handle(dma, &c.handle), BAD_STATE);
	OK(doca_ctx_set_datapath_on_gpu(ctx, c.e.gpu));
	REFUSED(doca_dma_get_gpu_handle(dma, &c.handle), BAD_STATE);
	OK(doca_ctx_stop(ctx));
	/* An engine is allowed, and has nothing to do. */
	OK(doca_pe_create(&pe));
	OK(doca_pe_connect_ctx(pe, ctx));
	OK(doca_ctx_start(ctx));
	CHECK_EQ(doca_pe_progress(pe), 0);
	OK(doca_pe_request_notification(pe));
	OK(doca_dma_get_gpu_handle(dma, &c.handle));
	doca_ctx_flush_tasks(ctx);
	OK(doca_ctx_stop(ctx));
	OK(doca_gpu_create("42:00.0", &gpu));
	OK(doca_ctx_set_datapath_on_gpu(ctx, gpu));
	OK(doca_gpu_destroy(gpu));
	REFUSED(doca_ctx_start(ctx), BAD_STATE);
	OK(doca_dma_destroy(dma));
	OK(doca_pe_destroy(pe));
}

TEST(arrays_are_checked)
{
	struct doca_mmap *map;
	struct doca_buf_arr *array;
	struct doca_gpu_buf_arr *bufs;

	no_gpu();
	FIXTURE(copies, c, open_copies, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
	array = c.arrays[HOST];
	REFUSED(doca_buf_arr_start(array), BAD_STATE);
	REFUSED(doca_buf_arr_set_target_gpu(array, c.e.gpu), BAD_STATE);
	REFUSED(doca_buf_arr_set_params(array, c.maps[HOST], ELEM, 0), BAD_STATE);
	REFUSED(doca_buf_arr_get_gpu_handle(array, NULL), INVALID_VALUE);
	OK(doca_buf_arr_stop(array));
	REFUSED(doca_buf_arr_get_gpu_handle(array, &bufs), BAD_STATE);
	OK(doca_buf_arr_start(array));
	OK(doca_buf_arr_create(N, &array));
	OK(doca_buf_arr_set_params(array, c.maps[HOST], ELEM, 0));
	REFUSED(doca_buf_arr_start(array), BAD_STATE); /* no GPU */
	OK(doca_buf_arr_set_target_gpu(array, c.e.gpu));
	OK(doca_mmap_create(&map));
	OK(doca_mmap_set_memrange(map, c.host, SIZE));
	OK(doca_buf_arr_set_params(array, map, ELEM, 0));
	REFUSED(doca_buf_arr_start(array), BAD_STATE); /* not started */
	OK(doca_mmap_start(map));
	REFUSED(doca_buf_arr_start(array), BAD_STATE); /* no device */
	OK(doca_mmap_destroy(map));
	REFUSED(doca_buf_arr_start(array), BAD_STATE); /* no map */
	OK(doca_buf_arr_destroy(array));
}

TEST_MAIN(run_tests)
