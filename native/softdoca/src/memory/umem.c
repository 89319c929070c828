// SPDX-License-Identifier: Apache-2.0
/* Memory for rings and doorbell records (umems), and doorbell pages (UARs). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "umem.h"

static atomic_uint next_id = 1;

static doca_error_t umem_new(struct doca_dev *dev, void *address, size_t size, uint32_t access,
			     struct gpu_memory *memory, struct doca_umem **out)
{
	struct doca_umem *u = softdoca_object_new(OBJECT_UMEM, sizeof *u);
	if (!u)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a umem");
	u->dev = dev;
	u->addr = address;
	u->size = size;
	u->access = access;
	u->memory = memory;
	u->id = atomic_fetch_add(&next_id, 1);
	*out = u;
	return DOCA_SUCCESS;
}

static doca_error_t check_range(struct doca_dev *dev, void *address, size_t size,
				struct doca_umem **umem)
{
	CHECK_DEV(dev);
	CHECK_OUT(umem);
	if (!address || !size || (uintptr_t)address + size < size || (uintptr_t)address % 8)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%zu bytes at %p are not a range of memory aligned to 8", size,
			      address);
	return DOCA_SUCCESS;
}

/* A umem of memory of doca_gpu_mem_alloc() keeps it from being freed. */
doca_error_t doca_umem_create(struct doca_dev *dev, void *address, size_t size,
			      uint32_t access_flags, struct doca_umem **umem)
{
	doca_error_t error = check_range(dev, address, size, umem);
	if (error)
		return error;
	struct gpu_memory *memory = softdoca_gpu_take(address, size);
	if (memory && !memory->by_cpu)
		error = REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			       "%p is GPU memory: use doca_umem_gpu_create()", address);
	else if (!memory && range_look(address, size, true) != RANGE_OK)
		error = REFUSE(DOCA_ERROR_INVALID_VALUE,
			       "%zu bytes at %p are not all mapped and writable", size, address);
	else
		error = umem_new(dev, address, size, access_flags, memory, umem);
	if (error && memory)
		softdoca_gpu_drop(memory);
	return error;
}

doca_error_t doca_umem_gpu_create(struct doca_gpu *gpu_dev, struct doca_dev *dev, void *address,
				  size_t size, uint32_t access_flags, struct doca_umem **umem)
{
	doca_error_t error = check_range(dev, address, size, umem);
	CHECK_GPU(gpu_dev);
	if (error)
		return error;
	struct gpu_memory *memory = softdoca_gpu_take(address, size);
	if (!memory)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "%zu bytes at %p are not memory of doca_gpu_mem_alloc(), so the "
			      "software NIC cannot access them",
			      size, address);
	error = memory->by_cpu ? DOCA_SUCCESS : gpu_cuda_move(memory);
	if (!error)
		error = umem_new(dev, address, size, access_flags, memory, umem);
	if (error)
		softdoca_gpu_drop(memory);
	return error;
}

doca_error_t doca_umem_destroy(struct doca_umem *umem)
{
	CHECK_UMEM(umem);
	uint32_t users = atomic_load(&umem->users);
	if (users)
		return REFUSE(
			DOCA_ERROR_IN_USE,
			"the umem of %zu bytes at %p is in use by %u queues: destroy them first",
			umem->size, (void *)umem->addr, users);
	struct gpu_memory *memory = umem->memory;
	softdoca_object_free(umem);
	if (memory)
		softdoca_gpu_drop(memory);
	return DOCA_SUCCESS;
}

GETTER(doca_umem_get_id, CHECK_UMEM, const struct doca_umem, uint32_t, handle->id)
GETTER(doca_umem_get_size, CHECK_UMEM, const struct doca_umem, size_t, handle->size)
GETTER(doca_umem_get_address, CHECK_UMEM, const struct doca_umem, void *, handle->addr)

/* ---- doorbell pages ---- */

doca_error_t doca_uar_create(struct doca_dev *dev, enum doca_uar_allocation_type allocation_type,
			     struct doca_uar **uar)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	CHECK_DEV(dev);
	CHECK_OUT(uar);
	if (allocation_type == DOCA_UAR_ALLOCATION_TYPE_BLUEFLAME)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "the software NIC has no BlueFlame: use "
							"NONCACHE or NONCACHE_DEDICATED");
	if ((unsigned)allocation_type > DOCA_UAR_ALLOCATION_TYPE_NONCACHE_DEDICATED)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "allocation type %u exceeds 2",
			      (unsigned)allocation_type);
	struct doca_uar *u = softdoca_object_new(OBJECT_UAR, sizeof *u);
	if (u && !(u->page = aligned_alloc(page, page))) {
		softdoca_object_free(u);
		u = NULL;
	}
	if (!u)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a doorbell page");
	memset(u->page, 0, page);
	u->dev = dev;
	u->type = allocation_type;
	u->id = atomic_fetch_add(&next_id, 1);
	*uar = u;
	return DOCA_SUCCESS;
}

doca_error_t doca_uar_destroy(struct doca_uar *uar)
{
	CHECK_UAR(uar);
	uint32_t users = atomic_load(&uar->users);
	if (users)
		return REFUSE(DOCA_ERROR_IN_USE,
			      "the UAR is in use by %u queue pairs: destroy them first", users);
	free(uar->page);
	softdoca_object_free(uar);
	return DOCA_SUCCESS;
}

GETTER(doca_uar_id_get, CHECK_UAR, const struct doca_uar, uint32_t, handle->id)
GETTER(doca_uar_reg_addr_get, CHECK_UAR, const struct doca_uar, void *, handle->page)
