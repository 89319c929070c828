// SPDX-License-Identifier: Apache-2.0
/* Finds the allocation of a GPU address and how other processes import it, like
 * dgkit/memory/cuda_pointer.py. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "cuda_provider.h"
#include "error.h"

/* If the driver is not loaded and initialized, nothing was allocated with it; that would take a second. */
static bool driver_is_used(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	CUcontext current;
	if (!lib)
		return false;
	const bool used = !cuda_load() && cuda.cuCtxGetCurrent(&current) != CUDA_ERROR_NOT_INITIALIZED;
	dlclose(lib);
	return used;
}

/* The driver writes 4 or 8 bytes, depending on the attribute; the rest stays 0. */
static uint64_t pointer_attribute(int attribute, CUdeviceptr at)
{
	uint64_t value = 0;
	return cuda.cuPointerGetAttribute(&value, attribute, at) ? 0 : value;
}

static int check_kind(CUdeviceptr at, int *ordinal)
{
	unsigned type = 0, managed = 0;
	CUresult code = cuda.cuPointerGetAttribute(&type, CU_POINTER_MEMORY_TYPE, at);
	if (!code)
		code = cuda.cuPointerGetAttribute(ordinal, CU_POINTER_DEVICE_ORDINAL, at);
	if (code)
		return dg_fail(EINVAL, "%#llx is not an address of CUDA memory in this process",
			       at);
	if (cuda.cuPointerGetAttribute(&managed, CU_POINTER_IS_MANAGED, at))
		managed = 0;
	if (managed)
		return dg_fail(EOPNOTSUPP,
			       "%#llx is managed memory, which migrates between CPU and GPU and "
			       "cannot be registered",
			       at);
	if (type != CU_MEMORYTYPE_DEVICE)
		return dg_fail(EOPNOTSUPP,
			       "%#llx is host memory that the GPU can access, not GPU memory", at);
	return 0;
}

/* Finds the block that contains the bytes: the memory of one handle, or one cudaMalloc
 * allocation. */
static int find_block(CUdeviceptr at, uint64_t size, bool virtual, dg_memory *out)
{
	uint64_t base = virtual ? pointer_attribute(CU_POINTER_MAPPING_BASE, at) : 0;
	uint64_t block = base ? pointer_attribute(CU_POINTER_MAPPING_SIZE, at) : 0;
	if (!block) {
		base = pointer_attribute(CU_POINTER_RANGE_START, at);
		block = pointer_attribute(CU_POINTER_RANGE_SIZE, at);
	}
	if (!block || at < base || at - base >= block)
		return dg_fail(EINVAL, "CUDA does not report the block that contains %#llx", at);
	out->block = block;
	out->fd_offset = at - base;
	if (size <= block - out->fd_offset)
		return 0;
	/* Virtual memory may continue in the next block; several blocks cannot be imported as
	 * one. */
	if (!virtual ||
	    pointer_attribute(CU_POINTER_MEMORY_TYPE, at + size - 1) != CU_MEMORYTYPE_DEVICE)
		return dg_fail(ERANGE,
			       "%" PRIu64 " bytes at %#llx exceed their allocation, which ends "
			       "%" PRIu64 " bytes after that address",
			       size, at, block - out->fd_offset);
	out->kind = DG_KIND_CUDA_OWN;
	return 0;
}

static void export_fd(CUmemHandle handle, dg_memory *out)
{
	int fd = -1;
	if (!cuda.cuMemExportToShareableHandle ||
	    cuda.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_POSIX_FD, 0))
		return;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	out->fd = fd;
	out->kind = DG_KIND_CUDA_VMM;
}

static void export_ipc(CUdeviceptr base, dg_memory *out)
{
	CUipcMemHandle handle;
	_Static_assert(sizeof handle == sizeof out->handle, "an IPC handle fits");
	if (!cuda.cuIpcGetMemHandle || cuda.cuIpcGetMemHandle(&handle, base))
		return;
	memcpy(out->handle, &handle, sizeof handle);
	out->kind = DG_KIND_CUDA_IPC;
}

/* handle: retained handle of virtual memory, 0 for other memory. */
static int query_allocation(CUdeviceptr at, uint64_t size, CUmemHandle handle, dg_memory *out)
{
	bool pooled = pointer_attribute(CU_POINTER_MEMPOOL, at);
	int rc = find_block(at, size, handle, out);
	if (rc || out->fd_offset + size > out->block || pooled)
		return rc;
	if (handle)
		export_fd(handle, out);
	else
		export_ipc(at - out->fd_offset, out);
	return 0;
}

static int query_device(CUdevice dev, CUdeviceptr at, uint64_t size, dg_memory *out)
{
	CUmemHandle handle = 0;
	CUuuid uuid;
	CUresult code = cuda.cuDeviceGetUuid(&uuid, dev);
	if (code)
		return cuda_fail("cuDeviceGetUuid", code);
	memcpy(out->uuid, &uuid, sizeof out->uuid);
	if (!cuda.cuMemRetainAllocationHandle ||
	    cuda.cuMemRetainAllocationHandle(&handle, out->addr))
		handle = 0; /* not virtual memory */
	int rc = query_allocation(at, size, handle, out);
	if (handle)
		cuda.cuMemRelease(handle);
	return rc;
}

int dg_cuda_pointer_query(const void *addr, uint64_t size, dg_memory *out)
{
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)addr;
	CUcontext ctx = NULL;
	CUdevice dev;
	int gpus = 0, ordinal = 0;
	*out = (dg_memory){
		.addr = (void *)(uintptr_t)addr, .size = size, .fd = -1, .kind = DG_KIND_CUDA_OWN};
	if (!addr || !size || at + size < at)
		return dg_fail(EINVAL, "%" PRIu64 " bytes at %#llx are not a valid range", size,
			       at);
	if (!driver_is_used())
		return dg_fail(ENODEV, "this process does not use CUDA");
	int rc = cuda_start(&gpus);
	if (!rc)
		rc = check_kind(at, &ordinal);
	if (rc)
		return rc;
	CUresult code = cuda.cuDeviceGet(&dev, ordinal);
	if (!code)
		code = cuda.cuDevicePrimaryCtxRetain(&ctx, dev);
	if (code)
		return cuda_fail("cuDevicePrimaryCtxRetain", code);
	const bool entered = cuda_enter_context(ctx);
	rc = query_device(dev, at, size, out);
	cuda_leave(entered);
	cuda.cuDevicePrimaryCtxRelease(dev);
	return rc;
}
