/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of an address: its attributes, and a dma-buf of what lies there. */
#include "state.h"

#include <stdio.h>
#include <fcntl.h>
#include <unistd.h>

/* An answer has the width that the driver writes for its attribute. */
static int word(void *data, unsigned int value)
{
	*(unsigned int *)data = value;
	return CUDA_SUCCESS;
}

static int wide(void *data, unsigned long long value)
{
	*(unsigned long long *)data = value;
	return CUDA_SUCCESS;
}

static int of_host(void *data, int attribute, const struct host *host, CUdeviceptr address)
{
	switch (attribute) {
	case POINTER_CONTEXT:
		return wide(data, (uintptr_t)primary(0));
	case POINTER_MEMORY_TYPE:
		return word(data, MEMORY_HOST);
	case POINTER_DEVICE_POINTER:
	case POINTER_HOST_POINTER:
		return wide(data, address);
	case POINTER_RANGE_START_ADDR:
	case POINTER_MAPPING_BASE_ADDR:
		return wide(data, host->start);
	case POINTER_RANGE_SIZE:
	case POINTER_MAPPING_SIZE:
		return wide(data, host->size);
	case POINTER_BUFFER_ID:
	case POINTER_MEMPOOL_HANDLE:
		return wide(data, 0);
	case POINTER_MAPPED:
		return word(data, 1);
	case POINTER_ACCESS_FLAGS:
		return word(data, ACCESS_READWRITE);
	default:
		return word(data, 0);
	}
}

static int of_range(void *data, int attribute, const struct range *range, CUdeviceptr address)
{
	const struct block *block = range->block;
	struct context *context = current();

	switch (attribute) {
	case POINTER_CONTEXT:
		return wide(data, block->kind == VMM ? 0 : (uintptr_t)primary(block->device));
	case POINTER_MEMORY_TYPE:
		return word(data, MEMORY_DEVICE);
	case POINTER_DEVICE_POINTER:
		return wide(data, address);
	case POINTER_HOST_POINTER:
		return block->kind == MANAGED ? wide(data, address) : CUDA_ERROR_INVALID_VALUE;
	case POINTER_SYNC_MEMOPS:
		return word(data, range->sync_memops);
	case POINTER_BUFFER_ID:
	case POINTER_MEMORY_BLOCK_ID:
		return wide(data, block->id);
	case POINTER_IS_MANAGED:
		return word(data, block->kind == MANAGED);
	case POINTER_DEVICE_ORDINAL:
		return word(data, (unsigned int)block->device);
	case POINTER_IS_LEGACY_IPC_CAPABLE:
		return word(data, block->kind == LINEAR);
	case POINTER_RANGE_START_ADDR:
	case POINTER_MAPPING_BASE_ADDR:
		return wide(data, range->start);
	case POINTER_RANGE_SIZE:
		return wide(data, range->size);
	case POINTER_MAPPING_SIZE:
		return wide(data, range->mapped);
	case POINTER_MAPPED:
		return word(data, 1);
	case POINTER_ALLOWED_HANDLE_TYPES:
		return wide(data, (unsigned int)block->prop.requestedHandleTypes);
	case POINTER_IS_GPU_DIRECT_RDMA_CAPABLE:
		return word(data,
			    block->kind != VMM || block->prop.allocFlags.gpuDirectRDMACapable);
	case POINTER_ACCESS_FLAGS:
		return word(data, context ? range->access[context->device] : ACCESS_NONE);
	case POINTER_MEMPOOL_HANDLE:
		return wide(data, block->kind == POOLED ? block->id : 0);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static int answer(void *data, int attribute, CUdeviceptr address)
{
	struct range *range = range_at(address);
	struct host *host = host_at(address, 1);

	if (attribute < POINTER_CONTEXT || attribute > POINTER_MEMORY_BLOCK_ID)
		return CUDA_ERROR_INVALID_VALUE;
	if (range)
		return of_range(data, attribute, range, address);
	return host ? of_host(data, attribute, host, address) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address)
{
	int code;

	ENTER(gate);
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_rwlock_rdlock(&maps);
	code = answer(data, attribute, address);
	pthread_rwlock_unlock(&maps);
	return code;
}

EXPORT CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address)
{
	struct range *range;
	int code = CUDA_ERROR_INVALID_VALUE;

	ENTER(gate);
	if (!value || attribute != POINTER_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_rwlock_wrlock(&maps);
	range = range_at(address);
	if (range && range->block->kind == VMM)
		code = CUDA_ERROR_NOT_SUPPORTED;
	if (range && (range->block->kind == LINEAR || range->block->kind == POOLED)) {
		range->sync_memops = *(const unsigned int *)value;
		code = CUDA_SUCCESS;
	}
	pthread_rwlock_unlock(&maps);
	return code;
}

/* An fd of the block's own memfd. Unless a knob says otherwise it can not be mapped, as the H200's
 * driver has it; a range that begins inside of a block never can: a memfd has no such part. */
static int dma_buf(const struct block *block, bool whole)
{
	char path[32];

	if (knobs().dmabuf_mmap && whole)
		return fcntl(block->fd, F_DUPFD_CLOEXEC, 3);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", block->fd);
	return open(path, O_WRONLY | O_CLOEXEC);
}

EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t size,
					      int type, unsigned long long flags)
{
	struct context *context;
	struct range *range;
	int fd = -1, supported = 1;

	ENTER(gate_context, &context);
	if (flags)
		return CUDA_ERROR_NOT_SUPPORTED;
	attribute_knob(124, &supported);
	if (!supported)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!handle || type != RANGE_DMA_BUF_FD || !size || address % PAGE || size % PAGE)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_rwlock_rdlock(&maps);
	range = range_at(address);
	if (range && range->block->kind != MANAGED &&
	    address + size <= range->start + range->mapped)
		fd = dma_buf(range->block, address == range->start);
	pthread_rwlock_unlock(&maps);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	*(int *)handle = fd;
	return CUDA_SUCCESS;
}
