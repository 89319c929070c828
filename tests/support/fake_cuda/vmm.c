/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA virtual memory: blocks and addresses apart, and what makes a block another process's too. */
#include "state.h"

#include <stdlib.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

struct reservation {
	struct reservation *next;
	uintptr_t start;
	size_t size;
};

static struct reservation *reservations;

static bool reserved(uintptr_t address, size_t size)
{
	for (struct reservation *one = reservations; one; one = one->next)
		if (address >= one->start && address + size <= one->start + one->size)
			return true;
	return false;
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
					      int option)
{
	ENTER(gate);
	if (!prop || option < 0 || option > 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type == LOCATION_DEVICE && !is_device(prop->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = GRANULE;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemCreate(CUhandle *handle, size_t size, const CUmemAllocationProp *prop,
			    unsigned long long flags)
{
	struct block *block;
	int code;

	ENTER(gate);
	if (!handle || !prop || flags || !size || size % GRANULE ||
	    prop->type != ALLOCATION_PINNED || prop->requestedHandleTypes & ~HANDLE_POSIX_FD)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type != LOCATION_DEVICE &&
	    (prop->location.type != LOCATION_HOST_NUMA || !knobs().host_numa))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!is_device(prop->location.id)) /* of memory of the host: its node, which is 0 */
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_rwlock_wrlock(&maps);
	block = block_new(VMM, prop->location.id, size, &code);
	if (block) {
		block->prop = *prop;
		block->handles = 1;
		*handle = (CUhandle)(uintptr_t)block;
	}
	pthread_rwlock_unlock(&maps);
	return code;
}

EXPORT CUresult cuMemRelease(CUhandle handle)
{
	struct block *block;

	ENTER(gate);
	pthread_rwlock_wrlock(&maps);
	block = block_of(handle);
	if (block) {
		block->handles--;
		block_put(block);
	}
	pthread_rwlock_unlock(&maps);
	return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUhandle *handle, void *address)
{
	struct range *range;
	bool found;

	ENTER(gate);
	pthread_rwlock_wrlock(&maps);
	range = range_at((uintptr_t)address);
	found = range && range->block->kind == VMM;
	if (found) {
		range->block->handles++;
		*handle = (CUhandle)(uintptr_t)range->block;
	}
	pthread_rwlock_unlock(&maps);
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemExportToShareableHandle(void *shareable, CUhandle handle, int type,
					     unsigned long long flags)
{
	struct block *block;
	int fd = -1;

	ENTER(gate);
	if (!shareable || flags || type != HANDLE_POSIX_FD)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_rwlock_rdlock(&maps);
	block = block_of(handle);
	if (block && !block->imported && block->prop.requestedHandleTypes & HANDLE_POSIX_FD)
		fd = fcntl(block->fd, F_DUPFD_CLOEXEC, 3);
	pthread_rwlock_unlock(&maps);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	*(int *)shareable = fd;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemImportFromShareableHandle(CUhandle *handle, void *shareable, int type)
{
	int fd = (int)(intptr_t)shareable;
	struct block *block;

	ENTER(gate);
	if (!handle || type != HANDLE_POSIX_FD)
		return CUDA_ERROR_INVALID_VALUE;
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return CUDA_ERROR_UNKNOWN;
	pthread_rwlock_wrlock(&maps);
	block = block_import(fd);
	if (block) {
		block->prop = (CUmemAllocationProp){
			.type = ALLOCATION_PINNED,
			.location = {LOCATION_DEVICE, block->device},
			.allocFlags.gpuDirectRDMACapable = 1,
		};
		block->handles = 1;
		*handle = (CUhandle)(uintptr_t)block;
	}
	pthread_rwlock_unlock(&maps);
	if (!block)
		close(fd);
	return block ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment,
				    CUdeviceptr wanted, unsigned long long flags)
{
	int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	size_t whole = size + (alignment > GRANULE ? alignment : GRANULE);
	struct reservation *one;
	uintptr_t start, end;
	void *bytes;

	ENTER(gate);
	(void)wanted;
	if (!address || !size || size % GRANULE || flags || (alignment & (alignment - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	bytes = mmap(NULL, whole, PROT_NONE, how, -1, 0);
	if (bytes == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	alignment = whole - size;
	start = ((uintptr_t)bytes + alignment - 1) & ~(alignment - 1);
	end = (uintptr_t)bytes + whole;
	if (start > (uintptr_t)bytes)
		munmap(bytes, start - (uintptr_t)bytes);
	if (end > start + size)
		munmap((void *)(start + size), end - start - size);
	one = malloc(sizeof(*one));
	*address = one->start = start;
	one->size = size;
	pthread_rwlock_wrlock(&maps);
	one->next = reservations;
	reservations = one;
	pthread_rwlock_unlock(&maps);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
	struct reservation **at = &reservations, *one;

	ENTER(gate);
	pthread_rwlock_wrlock(&maps);
	while (*at && ((*at)->start != address || (*at)->size != size))
		at = &(*at)->next;
	one = *at;
	if (one && range_overlaps(address, size))
		one = NULL;
	if (one) {
		*at = one->next;
		munmap((void *)one->start, one->size);
		free(one);
	}
	pthread_rwlock_unlock(&maps);
	return one ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUhandle handle,
			 unsigned long long flags)
{
	struct block *block;
	int code = CUDA_ERROR_INVALID_VALUE;

	ENTER(gate);
	if (flags || offset || !size || address % GRANULE || size % GRANULE)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_rwlock_wrlock(&maps);
	block = block_of(handle);
	if (block && size <= block->size && reserved(address, size) &&
	    !range_overlaps(address, size))
		code = range_new(block, address, size, PROT_NONE) ? CUDA_SUCCESS
								  : CUDA_ERROR_MAP_FAILED;
	pthread_rwlock_unlock(&maps);
	return code;
}

/* Whether each GPU that is named can reach the memory of the ranges. */
static bool peers(uintptr_t address, size_t size, const CUmemAccessDesc *descs, size_t count)
{
	for (uintptr_t at = address; at < address + size; at += range_at(at)->size)
		for (size_t i = 0; i < count; i++)
			if (descs[i].location.type == LOCATION_DEVICE &&
			    descs[i].location.id != range_at(at)->block->device && !knobs().peer)
				return false;
	return true;
}

/* Whether these addresses are whole ranges of virtual memory, none cut. */
static bool whole_ranges(uintptr_t address, size_t size)
{
	while (size) {
		struct range *range = range_at(address);

		if (!range || range->block->kind != VMM || range->start != address ||
		    range->size > size)
			return false;
		address += range->size;
		size -= range->size;
	}
	return true;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
	bool whole;

	ENTER(gate);
	pthread_rwlock_wrlock(&maps);
	whole = size && whole_ranges(address, size);
	while (whole && size) {
		struct range *range = range_at(address);

		address += range->size;
		size -= range->size;
		range_free(range, true);
	}
	pthread_rwlock_unlock(&maps);
	return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* What the CPU's side of the fake driver may do: what any GPU may. */
static void protect(struct range *range)
{
	int most = 0;

	for (int device = 0; device < DEVICES; device++)
		most |= range->access[device];
	mprotect((void *)range->start, range->mapped,
		 (most & ACCESS_READ ? PROT_READ : 0) |
			 (most == ACCESS_READWRITE ? PROT_WRITE : 0));
}

static bool sensible(const CUmemAccessDesc *descs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if ((descs[i].location.type != LOCATION_DEVICE &&
		     descs[i].location.type != LOCATION_HOST_NUMA) ||
		    !is_device(descs[i].location.id) ||
		    (descs[i].flags != ACCESS_NONE && descs[i].flags != ACCESS_READ &&
		     descs[i].flags != ACCESS_READWRITE))
			return false;
	return descs && count;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *descs,
			       size_t count)
{
	bool whole, reach;

	ENTER(gate);
	if (!size || !sensible(descs, count))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_rwlock_wrlock(&maps);
	whole = whole_ranges(address, size);
	reach = whole && peers(address, size, descs, count);
	while (reach && size) {
		struct range *range = range_at(address);

		for (size_t i = 0; i < count; i++)
			if (descs[i].location.type == LOCATION_DEVICE)
				range->access[descs[i].location.id] = (unsigned char)descs[i].flags;
		protect(range);
		address += range->size;
		size -= range->size;
	}
	pthread_rwlock_unlock(&maps);
	if (!whole)
		return CUDA_ERROR_INVALID_VALUE;
	return reach ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

