// SPDX-License-Identifier: Apache-2.0
/* Results of dg_cuda_pointer_query() for all kinds of addresses, with the fake CUDA driver. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>

#include "gpu_memory.h"
#include "providers/cuda_pointer.h"

typedef unsigned long long address;

enum { GRANULE = 2 << 20 };

static char *as_pointer(address at)
{
	return (char *)(uintptr_t)at;
}

/* Reserves address space for n granules. */
static address reserve(int n)
{
	address at;

	gpu_context();
	DRIVER("cuMemAddressReserve", (address *, size_t, size_t, address, address), &at,
	       (size_t)n * GRANULE, 0, 0, 0);
	return at;
}

/* Maps a granule of physical memory. */
static void map_granule(address at, bool with_fd)
{
	/* CUmemAllocationProp and CUmemAccessDesc as words */
	unsigned prop[8] = {1, with_fd, 1, 0}, access[3] = {1, 0, 3};
	address handle;

	DRIVER("cuMemCreate", (address *, size_t, const void *, address), &handle, GRANULE, prop,
	       0);
	DRIVER("cuMemMap", (address, size_t, size_t, address, address), at, GRANULE, 0, handle, 0);
	DRIVER("cuMemSetAccess", (address, size_t, const void *, size_t), at, GRANULE, access, 1);
	DRIVER("cuMemRelease", (address), handle);
}

static void is_of_this_gpu(const dg_memory *m)
{
	uint8_t uuid[16];

	gpu_uuid(uuid);
	CHECK(!memcmp(m->uuid, uuid, sizeof(uuid)));
}

TEST(no_driver_is_loaded_for_a_query)
{
	static char bytes[64];
	dg_memory m;

	CHECK_EQ(dg_cuda_pointer_query(bytes, sizeof(bytes), &m), -ENODEV);
	CHECK_EQ(m.fd, -1);
}

TEST(memory_of_cudaMalloc_has_an_ipc_handle)
{
	char *at = gpu_pages(3 << 20);
	dg_memory m;

	CHECK_EQ(dg_cuda_pointer_query(at + 100, 1000, &m), 0);
	CHECK_EQ(m.kind, DG_KIND_CUDA_IPC);
	CHECK(m.addr == at + 100);
	CHECK_EQ(m.size, 1000);
	CHECK_EQ(m.fd, -1);
	CHECK_EQ(m.fd_offset, 100);
	CHECK_EQ(m.block, 3 << 20);
	is_of_this_gpu(&m);
	gpu_free(at);
}

TEST(virtual_memory_has_an_fd_that_exec_closes)
{
	address at = reserve(4);
	dg_memory m;

	map_granule(at + 2 * GRANULE, true);
	CHECK_EQ(dg_cuda_pointer_query(as_pointer(at + 2 * GRANULE + 64), GRANULE - 64, &m), 0);
	CHECK_EQ(m.kind, DG_KIND_CUDA_VMM);
	CHECK_EQ(m.fd_offset, 64); /* in its block, not in the reserved range */
	CHECK_EQ(m.block, GRANULE);
	CHECK_EQ(fcntl(m.fd, F_GETFD), FD_CLOEXEC);
	is_of_this_gpu(&m);
	CHECK_EQ(close(m.fd), 0);
}

TEST(memory_that_cuda_does_not_share_is_this_process_own)
{
	address at = reserve(3), pooled;
	dg_memory m;

	map_granule(at, false);
	CHECK_EQ(dg_cuda_pointer_query(as_pointer(at), GRANULE, &m), 0);
	CHECK_EQ(m.kind, DG_KIND_CUDA_OWN); /* made without an fd */
	CHECK_EQ(m.fd, -1);
	map_granule(at + GRANULE, true);
	CHECK_EQ(dg_cuda_pointer_query(as_pointer(at + 64), GRANULE, &m), 0);
	CHECK_EQ(m.kind, DG_KIND_CUDA_OWN); /* two blocks side by side */
	CHECK_EQ(m.fd, -1);
	DRIVER("cuMemAllocAsync", (address *, size_t, void *), &pooled, 4096, NULL);
	CHECK_EQ(dg_cuda_pointer_query(as_pointer(pooled), 4096, &m), 0);
	CHECK_EQ(m.kind, DG_KIND_CUDA_OWN); /* from a pool */
	is_of_this_gpu(&m);
}

TEST(a_driver_without_the_functions_leaves_it_this_process_own)
{
	address at;
	dg_memory m;

	setenv("DGKIT_FAKE_CUDA",
	       "missing=cuMemRetainAllocationHandle+cuMemExportToShareableHandle+cuIpcGetMemHandle",
	       1);
	at = reserve(1);
	map_granule(at, true);
	CHECK_EQ(dg_cuda_pointer_query(as_pointer(at), GRANULE, &m), 0);
	CHECK_EQ(m.kind, DG_KIND_CUDA_OWN);
	CHECK_EQ(dg_cuda_pointer_query(gpu_pages(64), 64, &m), 0);
	CHECK_EQ(m.kind, DG_KIND_CUDA_OWN);
}

TEST(other_memory_than_a_gpus_is_refused)
{
	static char bytes[64];
	address managed;
	void *pinned;
	dg_memory m;

	gpu_context();
	CHECK_EQ(dg_cuda_pointer_query(bytes, sizeof(bytes), &m), -EINVAL);
	CHECK_EQ(dg_cuda_pointer_query(NULL, 64, &m), -EINVAL);
	CHECK_EQ(dg_cuda_pointer_query(gpu_pages(64), 0, &m), -EINVAL);
	CHECK_EQ(dg_cuda_pointer_query((void *)UINTPTR_MAX, 64, &m), -EINVAL);
	DRIVER("cuMemAllocManaged", (address *, size_t, unsigned), &managed, 4096, 1);
	CHECK_EQ(dg_cuda_pointer_query(as_pointer(managed), 4096, &m), -EOPNOTSUPP);
	DRIVER("cuMemHostAlloc", (void **, size_t, unsigned), &pinned, 4096, 0);
	CHECK_EQ(dg_cuda_pointer_query(pinned, 4096, &m), -EOPNOTSUPP);
}

TEST(bytes_that_leave_their_allocation_are_refused)
{
	char *at = gpu_pages(4096);
	address virtual = reserve(2);
	dg_memory m;

	CHECK_EQ(dg_cuda_pointer_query(at, 4097, &m), -ERANGE);
	CHECK_EQ(dg_cuda_pointer_query(at + 4095, 2, &m), -ERANGE);
	CHECK_EQ(dg_cuda_pointer_query(at, UINT64_MAX / 2, &m), -ERANGE);
	map_granule(virtual, true);
	CHECK_EQ(dg_cuda_pointer_query(as_pointer(virtual), GRANULE + 1, &m), -ERANGE);
	CHECK_EQ(m.fd, -1);
}

TEST(a_driver_error_is_reported)
{
	char *at = gpu_pages(4096);
	dg_memory m;

	gpu_knobs("cuDeviceGetUuid=999");
	CHECK_EQ(dg_cuda_pointer_query(at, 64, &m), -EIO);
	CHECK_SAYS(dg_last_error(), "cuDeviceGetUuid");
	gpu_knobs("cuDevicePrimaryCtxRetain=2");
	CHECK_EQ(dg_cuda_pointer_query(at, 64, &m), -ENOMEM);
	gpu_knobs("");
	CHECK_EQ(dg_cuda_pointer_query(at, 64, &m), 0);
}

TEST(a_search_leaves_the_current_context_as_it_was)
{
	char *at = gpu_pages(4096);
	void *before = NULL, *after = (void *)1;
	dg_memory m;

	DRIVER("cuCtxSetCurrent", (void *), NULL);
	CHECK_EQ(dg_cuda_pointer_query(at, 64, &m), 0);
	CHECK_EQ(m.kind, DG_KIND_CUDA_IPC); /* which requires a current context */
	DRIVER("cuCtxGetCurrent", (void **), &after);
	CHECK(after == before);
}

TEST_MAIN(run_tests)
