// SPDX-License-Identifier: Apache-2.0
/* GPU semaphores, as the CPU sees them; samples/gpunetio_receive.cu has two kernels with one. */
#include "verbs_check.h"

#include <doca_gpunetio_sem_dev.h>

static struct doca_gpu_semaphore *a_semaphore(struct doca_gpu *gpu, enum doca_gpu_mem_type type)
{
	struct doca_gpu_semaphore *s;

	OK(doca_gpu_semaphore_create(gpu, &s));
	OK(doca_gpu_semaphore_set_memory_type(s, type));
	OK(doca_gpu_semaphore_set_items_num(s, 5));
	OK(doca_gpu_semaphore_set_custom_info(s, 24, type));
	OK(doca_gpu_semaphore_start(s));
	return s;
}

/* What a kernel sets, the CPU gets, and the other way round. */
static void check_items(void)
{
	struct doca_gpu *gpu;
	struct doca_gpu_semaphore_gpu *device;
	enum doca_gpu_semaphore_status status;
	void *info, *next;

	OK(doca_gpu_create("41:00.0", &gpu));
	struct doca_gpu_semaphore *s = a_semaphore(gpu, DOCA_GPU_MEM_TYPE_CPU_GPU);

	OK(doca_gpu_semaphore_get_gpu_handle(s, &device));
	CHECK_EQ(device->items, 5);
	for (uint32_t i = 0; i < 5; i++) {
		OK(doca_gpu_semaphore_get_status(s, i, &status));
		CHECK_EQ(status, DOCA_GPU_SEMAPHORE_STATUS_FREE);
		device->ring[i].status = DOCA_GPU_SEMAPHORE_STATUS_READY;
		OK(doca_gpu_semaphore_get_status(s, i, &status));
		CHECK_EQ(status, DOCA_GPU_SEMAPHORE_STATUS_READY);
		OK(doca_gpu_semaphore_set_status(s, i, DOCA_GPU_SEMAPHORE_STATUS_EXIT));
		CHECK_EQ(device->ring[i].status, DOCA_GPU_SEMAPHORE_STATUS_EXIT);
	}
	OK(doca_gpu_semaphore_get_custom_info_addr(s, 3, &info));
	OK(doca_gpu_semaphore_get_custom_info_addr(s, 4, &next));
	CHECK((uint8_t *)info == device->infos + 3 * (size_t)device->info_size);
	CHECK((char *)next - (char *)info >= 24);
	OK(doca_gpu_semaphore_stop(s));
	OK(doca_gpu_semaphore_destroy(s));
	OK(doca_gpu_destroy(gpu));
}

TEST(items_are_shared_without_a_gpu)
{
	no_gpu();
	check_items();
}

TEST(items_are_shared_with_a_gpu)
{
	one_gpu();
	check_items();
}

TEST(the_cpu_has_no_items_in_memory_of_the_gpu)
{
	struct doca_gpu *gpu;
	enum doca_gpu_semaphore_status status;

	one_gpu();
	OK(doca_gpu_create("41:00.0", &gpu));
	struct doca_gpu_semaphore *s = a_semaphore(gpu, DOCA_GPU_MEM_TYPE_GPU);

	REFUSED(doca_gpu_semaphore_get_status(s, 0, &status), NOT_PERMITTED);
	OK(doca_gpu_semaphore_stop(s));
	OK(doca_gpu_semaphore_destroy(s));
}

TEST(settings_and_states_are_checked)
{
	struct doca_gpu *gpu;
	struct doca_gpu_semaphore *s;
	struct doca_gpu_semaphore_gpu *device;
	enum doca_gpu_semaphore_status status;
	void *info;

	no_gpu();
	OK(doca_gpu_create("41:00.0", &gpu));
	REFUSED(doca_gpu_semaphore_create(NULL, &s), INVALID_VALUE);
	OK(doca_gpu_semaphore_create(gpu, &s));
	REFUSED(doca_gpu_semaphore_start(s), BAD_STATE);
	REFUSED(doca_gpu_semaphore_set_items_num(s, 0), INVALID_VALUE);
	REFUSED(doca_gpu_semaphore_set_items_num(s, (1 << 20) + 1), INVALID_VALUE);
	REFUSED(doca_gpu_semaphore_set_memory_type(s, (enum doca_gpu_mem_type)3), INVALID_VALUE);
	REFUSED(doca_gpu_semaphore_set_custom_info(s, 0, DOCA_GPU_MEM_TYPE_GPU), INVALID_VALUE);
	REFUSED(doca_gpu_semaphore_get_gpu_handle(s, &device), BAD_STATE);
	REFUSED(doca_gpu_semaphore_get_status(s, 0, &status), BAD_STATE);
	OK(doca_gpu_semaphore_set_items_num(s, 2));
	OK(doca_gpu_semaphore_start(s));
	REFUSED(doca_gpu_semaphore_start(s), BAD_STATE);
	REFUSED(doca_gpu_semaphore_set_items_num(s, 3), BAD_STATE);
	REFUSED(doca_gpu_semaphore_destroy(s), BAD_STATE);
	REFUSED(doca_gpu_semaphore_get_status(s, 2, &status), INVALID_VALUE);
	REFUSED(doca_gpu_semaphore_set_status(s, 0, (enum doca_gpu_semaphore_status)6),
		INVALID_VALUE);
	REFUSED(doca_gpu_semaphore_get_custom_info_addr(s, 0, &info), BAD_STATE);
	OK(doca_gpu_semaphore_stop(s));
	OK(doca_gpu_semaphore_destroy(s));
	REFUSED(doca_gpu_semaphore_destroy(s), INVALID_VALUE);
	OK(doca_gpu_destroy(gpu));
}

TEST_MAIN(run_tests)
