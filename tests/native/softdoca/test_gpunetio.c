// SPDX-License-Identifier: Apache-2.0
/* GPUs, their memory, umems, UARs, and the objects of libibverbs. */
#include "verbs_check.h"

#include <errno.h>
#include <fcntl.h>

TEST(addresses_of_gpus_are_checked)
{
	struct doca_gpu *gpu;

	no_gpu();
	REFUSED(doca_gpu_create("nonsense", &gpu), INVALID_VALUE);
	REFUSED(doca_gpu_create(NULL, &gpu), INVALID_VALUE);
	REFUSED(doca_gpu_create("41:00.0", NULL), INVALID_VALUE);
	OK(doca_gpu_create("0000:41:00.0", &gpu));
	CHECK_SAYS(softdoca_last_refusal(), "is an emulated GPU, its memory is host memory");
	OK(doca_gpu_destroy(gpu));
	REFUSED(doca_gpu_destroy(gpu), INVALID_VALUE);
}

TEST(memory_of_each_type_is_shared_and_has_one_address)
{
	struct doca_gpu *gpu;

	no_gpu();
	OK(doca_gpu_create("41:00.0", &gpu));
	for (int type = 0; type < 3; type++) {
		void *at, *cpu;
		char byte = 0;
		int fd;

		OK(doca_gpu_mem_alloc(gpu, 5000, 1 << 16, (enum doca_gpu_mem_type)type, &at, &cpu));
		CHECK(at == cpu);
		CHECK_EQ((uintptr_t)at % (1 << 16), 0);
		CHECK_EQ(((char *)at)[4999], 0);
		OK(doca_gpu_mem_free(gpu, at));
		OK(doca_gpu_mem_alloc(gpu, 5000, 0, (enum doca_gpu_mem_type)type, &at, NULL));
		OK(doca_gpu_dmabuf_fd(gpu, at, 5000, &fd));
		((char *)at)[7] = 9;
		CHECK_EQ(pread(fd, &byte, 1, 7), 1); /* whoever has the fd sees the bytes */
		CHECK_EQ(byte, 9);
		close(fd);
		OK(doca_gpu_mem_free(gpu, at));
		REFUSED(doca_gpu_mem_free(gpu, at), INVALID_VALUE);
	}
	OK(doca_gpu_destroy(gpu));
}

TEST(umems_and_uars_are_checked)
{
	struct end e = {0};
	struct doca_umem *umem;
	struct doca_uar *uar;
	void *at;
	size_t size;
	uint32_t id, other;
	static char bytes[4096] __attribute__((aligned(4096)));

	no_gpu();
	open_device(&e);
	OK(doca_umem_create(e.dev, bytes, sizeof(bytes), RING_ACCESS, &umem));
	OK(doca_umem_get_address(umem, &at));
	OK(doca_umem_get_size(umem, &size));
	OK(doca_umem_get_id(umem, &id));
	CHECK(at == bytes && size == sizeof(bytes));
	OK(doca_umem_destroy(umem));
	REFUSED(doca_umem_destroy(umem), INVALID_VALUE);
	REFUSED(doca_umem_create(e.dev, NULL, 8, RING_ACCESS, &umem), INVALID_VALUE);
	REFUSED(doca_umem_create(e.dev, bytes, 0, RING_ACCESS, &umem), INVALID_VALUE);
	REFUSED(doca_umem_create(e.dev, bytes, (size_t)1 << 40, RING_ACCESS, &umem), INVALID_VALUE);
	REFUSED(doca_umem_gpu_create(e.gpu, e.dev, bytes, 4096, RING_ACCESS, &umem), NOT_SUPPORTED);
	REFUSED(doca_uar_create(e.dev, DOCA_UAR_ALLOCATION_TYPE_BLUEFLAME, &uar), NOT_SUPPORTED);
	REFUSED(doca_uar_create(e.dev, (enum doca_uar_allocation_type)3, &uar), INVALID_VALUE);
	OK(doca_uar_create(e.dev, DOCA_UAR_ALLOCATION_TYPE_NONCACHE, &uar));
	OK(doca_uar_id_get(uar, &other));
	OK(doca_uar_reg_addr_get(uar, &at));
	CHECK(other != id && at);
	OK(doca_uar_destroy(uar));
	close_device(&e);
}

TEST(devices_and_ports_are_those_of_the_software_nic)
{
	struct ibv_device *device = first_device();
	struct ibv_port_attr port;
	union ibv_gid gid, again, zero = {{0}};

	CHECK_EQ(strcmp(ibv_get_device_name(device), "mlx5_0"), 0);

	struct ibv_context *context = ibv_open_device(device);

	CHECK(context);
	CHECK(context->device == device);
	CHECK_EQ(ibv_query_port(context, 1, &port), 0);
	CHECK_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	CHECK_EQ(port.state, IBV_PORT_ACTIVE);
	CHECK_EQ(ibv_query_port(context, 2, &port), EINVAL);
	CHECK_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
	CHECK_EQ(ibv_query_gid(context, 1, 3, &again), 0);
	CHECK_EQ(ibv_query_gid(context, 1, 4, &again), EINVAL);
	CHECK(!memcmp(&gid, &again, 16) && memcmp(&gid, &zero, 16));

	struct ibv_pd *pd = ibv_alloc_pd(context);

	CHECK(pd && pd->context == context);
	CHECK_EQ(ibv_close_device(context), EBUSY);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), EINVAL);
	CHECK_EQ(ibv_close_device(context), 0);
	CHECK(!ibv_alloc_pd(context));
}

TEST(memory_regions_are_checked)
{
	struct end e = {0};
	static char bytes[8192];
	int fd;

	no_gpu();
	open_device(&e);
	CHECK(!ibv_reg_mr(NULL, bytes, 8, 0));
	CHECK(!ibv_reg_mr(e.pd, bytes, 0, 0));
	CHECK(!ibv_reg_mr(e.pd, bytes, 8, IBV_ACCESS_REMOTE_WRITE)); /* without LOCAL_WRITE */
	CHECK(!ibv_reg_mr(e.pd, bytes, 8, 1 << 30));
	CHECK_EQ(errno, EINVAL);
	CHECK(!ibv_reg_dmabuf_mr(e.pd, 0, 8, (uintptr_t)bytes, 0, ALL_ACCESS));

	struct ibv_mr *mr = ibv_reg_mr_iova2(e.pd, bytes, sizeof(bytes), 0x1000, ALL_ACCESS);

	CHECK(mr && mr->addr == bytes && mr->length == sizeof(bytes) && mr->pd == e.pd);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_dereg_mr(mr), EINVAL);

	char *at;

	OK(doca_gpu_mem_alloc(e.gpu, 8192, 1 << 20, DOCA_GPU_MEM_TYPE_GPU, (void **)&at, NULL));
	OK(doca_gpu_dmabuf_fd(e.gpu, at, 8192, &fd));
	CHECK(!ibv_reg_dmabuf_mr(e.pd, 4096, 8192, (uintptr_t)at, fd, ALL_ACCESS));
	mr = ibv_reg_dmabuf_mr(e.pd, 4096, 4096, 0, fd, ALL_ACCESS);
	CHECK(mr && mr->addr == at + 4096);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	close(fd);
	OK(doca_gpu_dmabuf_fd(e.gpu, at + 4096, 4096, &fd)); /* begins there */
	mr = ibv_reg_dmabuf_mr(e.pd, 0, 4096, 0, fd, ALL_ACCESS);
	CHECK(mr && mr->addr == at + 4096);
	close(fd);
	REFUSED(doca_gpu_mem_free(e.gpu, at), IN_USE);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	OK(doca_gpu_mem_free(e.gpu, at));
	close_device(&e);
}

TEST(objects_of_another_libibverbs_are_refused)
{
	struct ibv_context context = {0};
	struct ibv_pd pd = {.context = &context};
	struct doca_verbs_context *verbs;
	struct doca_verbs_pd *verbs_pd;
	struct ibv_pd *found;
	struct doca_dev *dev = a_dev();

	REFUSED(doca_verbs_bridge_verbs_context_import(&context, 0, &verbs), INVALID_VALUE);
	REFUSED(doca_verbs_bridge_verbs_pd_import(&pd, &verbs_pd), INVALID_VALUE);
	REFUSED(doca_rdma_bridge_open_dev_from_pd(&pd, &dev), INVALID_VALUE);
	OK(doca_rdma_bridge_get_dev_pd(dev, &found));
	OK(doca_verbs_bridge_verbs_context_import(found->context, 0, &verbs));
	OK(doca_verbs_bridge_verbs_pd_import(found, &verbs_pd));
	OK(doca_verbs_pd_destroy(verbs_pd));
	OK(doca_verbs_context_destroy(verbs));
	OK(doca_dev_close(dev)); /* closes its protection domain */
	REFUSED(doca_verbs_bridge_verbs_pd_import(found, &verbs_pd), INVALID_VALUE);
}

TEST(a_gpu_that_cannot_share_its_address_says_what_helps)
{
	struct end e = {0};
	struct doca_umem *umem;
	void *at, *cpu;

	setenv("DGKIT_FAKE_CUDA", "host_numa=0", 1);
	REFUSED(doca_gpu_create("7f:00.0", &e.gpu), NOT_FOUND);
	OK(doca_gpu_create("41:00.0", &e.gpu));
	OK(doca_gpu_mem_alloc(e.gpu, 5000, 4096, DOCA_GPU_MEM_TYPE_GPU, &at, &cpu));
	CHECK(at && !cpu);
	e.dev = a_dev();
	REFUSED(doca_umem_create(e.dev, at, 4096, RING_ACCESS, &umem), NOT_SUPPORTED);
	REFUSED(doca_umem_gpu_create(e.gpu, e.dev, at, 4096, RING_ACCESS, &umem), NOT_SUPPORTED);
	CHECK_SAYS(softdoca_last_refusal(), "SOFTDOCA_GPU_MEMORY=pinned");
	OK(doca_gpu_mem_free(e.gpu, at));
	setenv("SOFTDOCA_GPU_MEMORY", "pinned", 1);
	OK(doca_gpu_mem_alloc(e.gpu, 5000, 4096, DOCA_GPU_MEM_TYPE_GPU, &at, &cpu));
	CHECK(at == cpu);
	OK(doca_umem_gpu_create(e.gpu, e.dev, at, 4096, RING_ACCESS, &umem));
	OK(doca_umem_destroy(umem));
	setenv("SOFTDOCA_GPU_MEMORY", "elsewhere", 1);
	REFUSED(doca_gpu_mem_alloc(e.gpu, 8, 0, DOCA_GPU_MEM_TYPE_GPU, &at, NULL), BAD_CONFIG);
	OK(doca_gpu_destroy(e.gpu));
	OK(doca_dev_close(e.dev));
}

TEST(rings_in_gpu_memory_move_to_the_host_and_keep_address_and_bytes)
{
	struct end e = {0};
	struct doca_umem *umem;
	void *at;
	int fd;

	one_gpu();
	OK(doca_gpu_create("41:00.0", &e.gpu));
	e.dev = a_dev();
	at = gpu_alloc(e.gpu, 5000, DOCA_GPU_MEM_TYPE_GPU);
	CHECK_EQ(((char *)at)[4999], 0);
	memset(at, 7, 5000); /* only the fake GPU permits it */
	OK(doca_gpu_dmabuf_fd(e.gpu, at, 4096, &fd));
	close(fd);
	OK(doca_umem_gpu_create(e.gpu, e.dev, at, 5000, RING_ACCESS, &umem));
	for (int i = 0; i < 5000; i++)
		CHECK_EQ(((char *)at)[i], 7);
	REFUSED(doca_gpu_dmabuf_fd(e.gpu, at, 4096, &fd), NOT_SUPPORTED); /* now host memory */
	OK(doca_umem_destroy(umem));
	OK(doca_umem_create(e.dev, at, 5000, RING_ACCESS, &umem));
	OK(doca_umem_destroy(umem));
	OK(doca_gpu_mem_free(e.gpu, at));
	OK(doca_gpu_destroy(e.gpu));
	OK(doca_dev_close(e.dev));
}

TEST_MAIN(run_tests)
