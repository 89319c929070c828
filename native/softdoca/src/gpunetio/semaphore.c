// SPDX-License-Identifier: Apache-2.0
/*
 * Semaphores: items with a status and memory of the program, by which kernels and the CPU hand packets
 * on. Where no public source names an error, it is a guess.
 */
#include "doca_gpunetio_sem_dev.h"
#include "gpu/gpu.h"

enum { ITEMS_MAX = 1 << 20, INFO_MAX = 1 << 20 };

struct doca_gpu_semaphore {
	struct object o;
	struct doca_gpu *gpu;
	enum doca_gpu_mem_type type, info_type;
	uint32_t items, info_size;
	/* NULL unless it is started; infos also if there is no memory of the program. */
	struct gpu_memory *structure, *ring, *infos;
};

#define CHECK_SEMAPHORE(s) CHECK_OBJECT(s, OBJECT_GPU_SEMAPHORE, "a semaphore")
#define CHECK_STOPPED(s)                                                              \
	do {                                                                          \
		if ((s)->structure)                                                   \
			return REFUSE(DOCA_ERROR_BAD_STATE, "the semaphore is started"); \
	} while (0)

static doca_error_t check_type(enum doca_gpu_mem_type type)
{
	if ((unsigned)type <= DOCA_GPU_MEM_TYPE_CPU_GPU)
		return DOCA_SUCCESS;
	return REFUSE(DOCA_ERROR_INVALID_VALUE,
		      "memory type %u is not 0 (GPU), 1 (GPU_CPU) or 2 (CPU_GPU)", (unsigned)type);
}

doca_error_t doca_gpu_semaphore_create(struct doca_gpu *gpu_dev, struct doca_gpu_semaphore **semaphore)
{
	CHECK_GPU(gpu_dev);
	CHECK_OUT(semaphore);
	struct doca_gpu_semaphore *s = softdoca_object_new(OBJECT_GPU_SEMAPHORE, sizeof *s);
	if (!s)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a semaphore");
	s->gpu = gpu_dev;
	*semaphore = s;
	return DOCA_SUCCESS;
}

doca_error_t doca_gpu_semaphore_destroy(struct doca_gpu_semaphore *semaphore)
{
	CHECK_SEMAPHORE(semaphore);
	CHECK_STOPPED(semaphore);
	softdoca_object_free(semaphore);
	return DOCA_SUCCESS;
}

doca_error_t doca_gpu_semaphore_set_memory_type(struct doca_gpu_semaphore *semaphore,
						enum doca_gpu_mem_type mtype)
{
	CHECK_SEMAPHORE(semaphore);
	CHECK_STOPPED(semaphore);
	doca_error_t error = check_type(mtype);
	if (!error)
		semaphore->type = mtype;
	return error;
}

doca_error_t doca_gpu_semaphore_set_items_num(struct doca_gpu_semaphore *semaphore, uint32_t num_items)
{
	CHECK_SEMAPHORE(semaphore);
	CHECK_STOPPED(semaphore);
	if (!num_items || num_items > ITEMS_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%u items: the number must be 1 to %d",
			      num_items, ITEMS_MAX);
	semaphore->items = num_items;
	return DOCA_SUCCESS;
}

doca_error_t doca_gpu_semaphore_set_custom_info(struct doca_gpu_semaphore *semaphore, uint32_t nbytes,
						enum doca_gpu_mem_type mtype)
{
	CHECK_SEMAPHORE(semaphore);
	CHECK_STOPPED(semaphore);
	TRY(check_type(mtype));
	if (!nbytes || nbytes > INFO_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%u bytes: the size must be 1 to %d", nbytes,
			      INFO_MAX);
	/* Each item's memory is aligned for any type. */
	semaphore->info_size = (nbytes + 15) / 16 * 16;
	semaphore->info_type = mtype;
	return DOCA_SUCCESS;
}

static doca_error_t allocate(struct doca_gpu_semaphore *s, size_t size, enum doca_gpu_mem_type type,
			     struct gpu_memory **out)
{
	return softdoca_gpu_alloc_own(s->gpu, size, 64, type, out);
}

static void free_semaphore(struct doca_gpu_semaphore *s)
{
	struct gpu_memory *const all[] = {s->structure, s->ring, s->infos};
	for (int i = 0; i < 3; i++)
		if (all[i])
			softdoca_gpu_drop(all[i]);
	s->structure = s->ring = s->infos = NULL;
}

doca_error_t doca_gpu_semaphore_start(struct doca_gpu_semaphore *semaphore)
{
	struct doca_gpu_semaphore *s = semaphore;
	CHECK_SEMAPHORE(s);
	CHECK_STOPPED(s);
	CHECK_GPU(s->gpu);
	if (!s->items)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the semaphore has no number of items");
	struct doca_gpu_semaphore_gpu device = {.items = s->items, .info_size = s->info_size};
	doca_error_t error = allocate(s, sizeof device, DOCA_GPU_MEM_TYPE_GPU, &s->structure);
	if (!error)
		error = allocate(s, s->items * sizeof *device.ring, s->type, &s->ring);
	if (!error && s->info_size)
		error = allocate(s, (size_t)s->items * s->info_size, s->info_type, &s->infos);
	if (!error) {
		device.ring = (struct doca_gpu_dev_semaphore_item *)s->ring->addr;
		device.infos = s->infos ? (uint8_t *)s->infos->addr : NULL;
		error = softdoca_gpu_fill(s->structure, &device, sizeof device);
	}
	if (error)
		free_semaphore(s);
	return error;
}

doca_error_t doca_gpu_semaphore_stop(struct doca_gpu_semaphore *semaphore)
{
	CHECK_SEMAPHORE(semaphore);
	free_semaphore(semaphore);
	return DOCA_SUCCESS;
}

doca_error_t doca_gpu_semaphore_get_gpu_handle(struct doca_gpu_semaphore *semaphore,
					       struct doca_gpu_semaphore_gpu **semaphore_gpu)
{
	CHECK_SEMAPHORE(semaphore);
	if (!semaphore->structure)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the semaphore is not started");
	return SET_OUT(semaphore_gpu, (struct doca_gpu_semaphore_gpu *)semaphore->structure->addr);
}

/* ---- items, for the CPU ---- */

static doca_error_t check_item(const struct doca_gpu_semaphore *s, uint32_t index,
			       const struct gpu_memory *m)
{
	CHECK_SEMAPHORE(s);
	if (!s->structure || !m)
		return REFUSE(DOCA_ERROR_BAD_STATE, s->structure ? "the items have no memory of the program"
								  : "the semaphore is not started");
	if (index >= s->items)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "item %u of %u", index, s->items);
	if (!m->by_cpu)
		return REFUSE(DOCA_ERROR_NOT_PERMITTED,
			      "the CPU cannot access memory of the type GPU");
	return DOCA_SUCCESS;
}

static struct doca_gpu_dev_semaphore_item *item(const struct doca_gpu_semaphore *s, uint32_t index)
{
	return (struct doca_gpu_dev_semaphore_item *)s->ring->addr + index;
}

doca_error_t doca_gpu_semaphore_get_status(struct doca_gpu_semaphore *semaphore, uint32_t item_idx,
					   enum doca_gpu_semaphore_status *status)
{
	CHECK_SEMAPHORE(semaphore);
	TRY(check_item(semaphore, item_idx, semaphore->ring));
	/* acquire: what the kernel wrote before it set the status */
	return SET_OUT(status, (enum doca_gpu_semaphore_status)__atomic_load_n(
				       &item(semaphore, item_idx)->status, __ATOMIC_ACQUIRE));
}

doca_error_t doca_gpu_semaphore_set_status(struct doca_gpu_semaphore *semaphore, uint32_t item_idx,
					   enum doca_gpu_semaphore_status status)
{
	CHECK_SEMAPHORE(semaphore);
	TRY(check_item(semaphore, item_idx, semaphore->ring));
	if ((unsigned)status > DOCA_GPU_SEMAPHORE_STATUS_EXIT)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "status %u exceeds %d", (unsigned)status,
			      DOCA_GPU_SEMAPHORE_STATUS_EXIT);
	/* release: a kernel that sees the status sees what the CPU wrote before */
	__atomic_store_n(&item(semaphore, item_idx)->status, (uint32_t)status, __ATOMIC_RELEASE);
	return DOCA_SUCCESS;
}

doca_error_t doca_gpu_semaphore_get_custom_info_addr(struct doca_gpu_semaphore *semaphore,
						     uint32_t item_idx, void **custom_info)
{
	CHECK_SEMAPHORE(semaphore);
	TRY(check_item(semaphore, item_idx, semaphore->infos));
	return SET_OUT(custom_info,
		       semaphore->infos->addr + (size_t)item_idx * semaphore->info_size);
}
