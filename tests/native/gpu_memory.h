/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory for tests of the provider cuda. They run with the fake driver of
 * tests/support/fake_cuda, whose GPU memory the CPU can access at the same address.
 */
#ifndef DGKIT_GPU_MEMORY_H
#define DGKIT_GPU_MEMORY_H

#include <dlfcn.h>

#include "check.h"
#include "dgkit.h"
#include "providers/cuda_api.h"

#define UNUSED_GPU __attribute__((unused))

UNUSED_GPU static void *driver(const char *name)
{
	static void *lib;
	void *found;

	if (!lib)
		lib = dlopen("libcuda.so.1", RTLD_NOW);
	CHECK(lib != NULL);
	found = dlsym(lib, name);
	CHECK(found != NULL);
	return found;
}

/* Calls a function of the driver, which must succeed. */
#define DRIVER(name, types, ...) CHECK_EQ(((int (*) types)(uintptr_t)driver(name))(__VA_ARGS__), 0)

UNUSED_GPU static void gpu_context(void)
{
	void *context;

	DRIVER("cuInit", (unsigned), 0);
	DRIVER("cuDevicePrimaryCtxRetain", (void **, int), &context, 0);
	DRIVER("cuCtxSetCurrent", (void *), context);
}

/* Allocates zeroed GPU memory. */
UNUSED_GPU static void *gpu_pages(size_t size)
{
	unsigned long long at = 0;

	gpu_context();
	DRIVER("cuMemAlloc_v2", (unsigned long long *, size_t), &at, size);
	DRIVER("cuMemsetD8_v2", (unsigned long long, unsigned char, size_t), at, 0, size);
	return (void *)(uintptr_t)at;
}

UNUSED_GPU static void gpu_free(void *at)
{
	gpu_context();
	DRIVER("cuMemFree_v2", (unsigned long long), (unsigned long long)(uintptr_t)at);
}

/* Stores the UUID of the first GPU, 16 bytes. */
UNUSED_GPU static void gpu_uuid(uint8_t *uuid)
{
	gpu_context();
	DRIVER("cuDeviceGetUuid_v2", (uint8_t *, int), uuid, 0);
}

/* A block of CUDA virtual memory, mapped, and its POSIX fd. */
UNUSED_GPU static dg_memory gpu_block(size_t size)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .requestedHandleTypes = CU_MEM_HANDLE_POSIX_FD,
				     .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemAccessDesc access = { .location = prop.location, .flags = CU_MEM_ACCESS_READWRITE };
	dg_memory m = { .size = size, .block = size, .kind = DG_KIND_CUDA_VMM };
	CUdeviceptr at;
	CUmemHandle handle;

	gpu_uuid(m.uuid);
	DRIVER("cuMemCreate", (CUmemHandle *, size_t, void *, unsigned long long), &handle, size, &prop, 0);
	DRIVER("cuMemExportToShareableHandle", (int *, CUmemHandle, int, unsigned long long), &m.fd, handle,
	       CU_MEM_HANDLE_POSIX_FD, 0);
	DRIVER("cuMemAddressReserve", (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long), &at,
	       size, 0, 0, 0);
	DRIVER("cuMemMap", (CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long), at, size, 0,
	       handle, 0);
	DRIVER("cuMemSetAccess", (CUdeviceptr, size_t, void *, size_t), at, size, &access, 1);
	m.addr = (void *)(uintptr_t)at;
	return m;
}

/* Sets the fake driver's options, as DGKIT_FAKE_CUDA does, and resets its call counts. */
UNUSED_GPU static void gpu_knobs(const char *knobs)
{
	((void (*)(const char *))(uintptr_t)driver("dgkitFakeCuda"))(knobs);
}

/* Returns how often a function of the driver was called. */
UNUSED_GPU static unsigned long gpu_calls(const char *name)
{
	return ((unsigned long (*)(const char *))(uintptr_t)driver("dgkitFakeCudaCalls"))(name);
}

#endif
