/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that comes mapped: cuMemAlloc, managed memory; stream-ordered memory. */
#include "state.h"

#include <string.h>
#include <sys/mman.h>

/* Frees the range at its very start, once its context has done what was asked of it. */
static int release(CUdeviceptr address, struct context *context, unsigned int kinds)
{
	int code = context_wait(context);
	struct range *range;

	if (code)
		return code;
	pthread_rwlock_wrlock(&maps);
	range = range_at(address);
	if (!range || range->start != address || range->opens ||
	    !(1u << range->block->kind & kinds))
		range = NULL;
	if (range)
		range_free(range, false);
	pthread_rwlock_unlock(&maps);
	return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int allocate(CUdeviceptr *address, size_t size, CUdevice device, enum kind kind)
{
	struct block *block;
	struct range *range = NULL;
	int code;

	if (!address)
		return CUDA_ERROR_INVALID_VALUE;
	*address = 0;
	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_rwlock_wrlock(&maps);
	block = block_new(kind, device, size, &code);
	if (block) {
		range = range_new(block, 0, size, PROT_READ | PROT_WRITE);
		code = range ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
		if (!range)
			block_put(block);
	}
	if (range) {
		memset(range->access, ACCESS_READWRITE, sizeof(range->access));
		*address = range->start;
	}
	pthread_rwlock_unlock(&maps);
	return code;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
	struct context *context;

	ENTER(gate_context, &context);
	return allocate(address, size, context->device, LINEAR);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
	struct context *context;

	ENTER(gate_context, &context);
	if (!address)
		return CUDA_SUCCESS;
	return release(address, context, 1u << LINEAR | 1u << MANAGED | 1u << POOLED);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned int flags)
{
	struct context *context;

	ENTER(gate_context, &context);
	if (flags != 1 && flags != 2)
		return CUDA_ERROR_INVALID_VALUE;
	return allocate(address, size, context->device, MANAGED);
}

EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream)
{
	struct context *context;

	ENTER(gate_context, &context);
	(void)stream;
	return allocate(address, size, context->device, POOLED);
}

EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
	struct context *context;

	ENTER(gate_context, &context);
	(void)stream;
	return release(address, context, 1u << POOLED | 1u << LINEAR);
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	struct context *context;

	ENTER(gate_context, &context);
	pthread_rwlock_rdlock(&maps);
	*total = knobs().total;
	*free_bytes = knobs().total - used(context->device);
	pthread_rwlock_unlock(&maps);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *size, CUdeviceptr address)
{
	struct context *context;
	struct range *range;
	struct host *host;

	ENTER(gate_context, &context);
	pthread_rwlock_rdlock(&maps);
	range = range_at(address);
	host = host_at(address, 1);
	if (start && (range || host))
		*start = range ? range->start : host->start;
	if (size && (range || host))
		*size = range ? range->size : host->size;
	pthread_rwlock_unlock(&maps);
	return range || host ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
