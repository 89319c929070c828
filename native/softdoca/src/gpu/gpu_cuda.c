// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of a GPU by CUDA. The type GPU is virtual memory (cuMemCreate), because its address can
 * get other memory behind it: doca_umem_gpu_create() moves rings to host memory that GPU and CPU
 * both access, since a CPU cannot access GPU memory in general.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"
#include "provider.h"
#include "providers/cuda_api.h"
#include "providers/cuda_pointer.h"

int gpu_cuda_count(void)
{
	int gpus = 0;
	return cuda_start(&gpus) ? 0 : gpus;
}

/* Logs a failed function of CUDA. */
static doca_error_t failed(const char *func, const char *what, CUresult code)
{
	softdoca_log(DOCA_LOG_LEVEL_WARNING, func, "%s: %s (%d)", what, cuda_name(code), code);
	return code == CUDA_ERROR_OUT_OF_MEMORY   ? DOCA_ERROR_NO_MEMORY
	       : code == CUDA_ERROR_NOT_SUPPORTED ? DOCA_ERROR_NOT_SUPPORTED
						  : DOCA_ERROR_DRIVER;
}

doca_error_t gpu_cuda_open(struct doca_gpu *gpu, int gpus)
{
	CUdevice dev;
	CUresult code = cuda.cuDeviceGetByPCIBusId ? cuda.cuDeviceGetByPCIBusId(&dev, gpu->pci)
						   : CUDA_ERROR_NOT_SUPPORTED;
	if (code)
		return REFUSE(DOCA_ERROR_NOT_FOUND,
			      "none of the %d GPUs of this process has the address %s (%s)", gpus,
			      gpu->pci, cuda_name(code));
	code = cuda.cuDevicePrimaryCtxRetain((CUcontext *)&gpu->context, dev);
	if (code)
		return failed("doca_gpu_create", "cuDevicePrimaryCtxRetain", code);
	gpu->device = dev;
	for (gpu->ordinal = 0; gpu->ordinal < gpus - 1; gpu->ordinal++) {
		CUdevice other;
		if (!cuda.cuDeviceGet(&other, gpu->ordinal) && other == dev)
			break;
	}
	return DOCA_SUCCESS;
}

void gpu_cuda_close(struct doca_gpu *gpu)
{
	cuda.cuDevicePrimaryCtxRelease(gpu->device);
}

static CUmemAllocationProp on_gpu(const struct doca_gpu *gpu)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_POSIX_FD,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu->device},
		.allocFlags.gpuDirectRDMACapable = 1,
	};
}

/* Node 0: a CPU of another node accesses it, too, only more slowly. */
static const CUmemAllocationProp on_host = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
};

/* Maps new memory at m->base, and sets its handle. */
static CUresult map_new(struct gpu_memory *m, CUmemAllocationProp prop, const char **what)
{
	CUmemAccessDesc access[] = {
		{{CU_MEM_LOCATION_TYPE_DEVICE, m->gpu->device}, CU_MEM_ACCESS_READWRITE},
		{prop.location, CU_MEM_ACCESS_READWRITE}};
	bool host = prop.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
	CUmemHandle handle;
	*what = "cuMemCreate";
	CUresult code = cuda.cuMemCreate(&handle, m->mapped, &prop, 0);
	if (code && prop.allocFlags.gpuDirectRDMACapable) {
		prop.allocFlags.gpuDirectRDMACapable = 0;
		code = cuda.cuMemCreate(&handle, m->mapped, &prop, 0);
	}
	if (code)
		return code;
	*what = "cuMemMap";
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)m->base;
	code = cuda.cuMemMap(at, m->mapped, 0, handle, 0);
	if (!code) {
		*what = "cuMemSetAccess";
		code = cuda.cuMemSetAccess(at, m->mapped, access, host ? 2 : 1);
		if (code)
			cuda.cuMemUnmap(at, m->mapped);
	}
	if (code)
		cuda.cuMemRelease(handle);
	else
		m->handle = handle;
	return code;
}

static size_t granularity(const struct doca_gpu *gpu)
{
	CUmemAllocationProp prop = on_gpu(gpu);
	size_t device = 0, host = 0;
	if (cuda.cuMemGetAllocationGranularity(&device, &prop, 0) || !device)
		device = (size_t)2 << 20;
	if (cuda.cuMemGetAllocationGranularity(&host, &on_host, 0))
		host = 0;
	return device > host ? device : host;
}

static doca_error_t alloc_virtual(struct doca_gpu *gpu, struct gpu_memory *m)
{
	const char *what = "cuMemAddressReserve";
	CUdeviceptr at;
	size_t granule = granularity(gpu);
	m->mapped = (m->mapped + granule - 1) / granule * granule;
	CUresult code = cuda.cuMemAddressReserve(&at, m->mapped, granule, 0, 0);
	if (code)
		return failed("doca_gpu_mem_alloc", what, code);
	m->base = (char *)(uintptr_t)at;
	code = map_new(m, on_gpu(gpu), &what);
	if (code) {
		cuda.cuMemAddressFree(at, m->mapped);
		return failed("doca_gpu_mem_alloc", what, code);
	}
	return DOCA_SUCCESS;
}

/* Memory of CUDA, which no other process can map. */
static doca_error_t alloc_private(struct gpu_memory *m)
{
	CUresult code = cuda.cuMemHostAlloc((void **)&m->base, m->mapped,
					    CU_MEMHOST_PORTABLE | CU_MEMHOST_DEVICEMAP);
	if (code)
		return failed("doca_gpu_mem_alloc", "cuMemHostAlloc", code);
	m->by_cpu = true;
	memset(m->base, 0, m->mapped);
	return DOCA_SUCCESS;
}

/* Memory that other processes map, and their GPUs reach; if kernels can use its address. */
static doca_error_t alloc_pinned(struct doca_gpu *gpu, struct gpu_memory *m)
{
	int one_address = 0;
	cuda.cuDeviceGetAttribute(&one_address, CU_ATTRIBUTE_HOST_POINTER_FOR_REGISTERED,
				  gpu->device);
	if (!one_address)
		return alloc_private(m);
	TRY(gpu_map_shared(m));
	CUresult code = cuda.cuMemHostRegister(m->base, m->mapped,
					       CU_MEMHOST_PORTABLE | CU_MEMHOST_DEVICEMAP);
	if (code) {
		gpu_unmap_shared(m);
		return failed("doca_gpu_mem_alloc", "cuMemHostRegister", code);
	}
	return DOCA_SUCCESS;
}

doca_error_t gpu_cuda_alloc(struct doca_gpu *gpu, struct gpu_memory *m)
{
	int pinned = gpu_pinned();
	if (pinned < 0)
		return DOCA_ERROR_BAD_CONFIG;
	bool entered = cuda_enter_context(gpu->context);
	doca_error_t error = pinned || m->type != DOCA_GPU_MEM_TYPE_GPU ? alloc_pinned(gpu, m)
									: alloc_virtual(gpu, m);
	cuda_leave(entered);
	if (!error && !m->by_cpu) {
		void *zeros = calloc(1, m->mapped);
		error = zeros ? softdoca_gpu_fill(m, zeros, m->mapped) : DOCA_ERROR_NO_MEMORY;
		free(zeros);
		if (error)
			gpu_cuda_free(m);
	}
	return error;
}

void gpu_cuda_free(struct gpu_memory *m)
{
	bool entered = cuda_enter_context(m->gpu->context);
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)m->base;
	if (m->handle) {
		cuda.cuMemUnmap(at, m->mapped);
		cuda.cuMemRelease(m->handle);
		cuda.cuMemAddressFree(at, m->mapped);
	} else if (m->fd >= 0) {
		cuda.cuMemHostUnregister(m->base);
	} else {
		cuda.cuMemFreeHost(m->base);
	}
	cuda_leave(entered);
}

/* Copies through a stream of its own: the default stream would wait for running kernels. */
static CUresult copy(const void *gpu, void *host, size_t n, bool to_gpu)
{
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)gpu;
	CUstream stream;
	CUresult code = cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
	if (code)
		return code;
	code = to_gpu ? cuda.cuMemcpyHtoDAsync(at, host, n, stream)
		      : cuda.cuMemcpyDtoHAsync(host, at, n, stream);
	if (!code)
		code = cuda.cuStreamSynchronize(stream);
	cuda.cuStreamDestroy(stream);
	return code;
}

doca_error_t softdoca_gpu_fill(struct gpu_memory *m, const void *bytes, size_t n)
{
	if (m->by_cpu) {
		memcpy(m->addr, bytes, n);
		return DOCA_SUCCESS;
	}
	bool entered = cuda_enter_context(m->gpu->context);
	CUresult code = copy(m->base, (void *)(uintptr_t)bytes, n, true);
	cuda_leave(entered);
	return code ? failed(__func__, "cuMemcpyHtoD", code) : DOCA_SUCCESS;
}

doca_error_t softdoca_gpu_copy(void *at, void *host, size_t n, bool to_gpu)
{
	struct gpu_memory *m = softdoca_gpu_take(at, n);
	if (!m)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "%zu bytes at %p are not memory of doca_gpu_mem_alloc()", n, at);
	CUresult code = 0;
	if (m->by_cpu) {
		memcpy(to_gpu ? at : host, to_gpu ? host : at, n);
	} else {
		bool entered = cuda_enter_context(m->gpu->context);
		code = copy(at, host, n, to_gpu);
		cuda_leave(entered);
	}
	softdoca_gpu_drop(m);
	return code ? failed(__func__, "cuMemcpyAsync", code) : DOCA_SUCCESS;
}

/* Maps host memory in place of the GPU memory; on failure, new GPU memory with the contents. */
static doca_error_t replace(struct gpu_memory *m, void *contents)
{
	const char *what = "cuMemcpyDtoH";
	CUmemHandle before = m->handle;
	CUresult code = copy(m->base, contents, m->mapped, false);
	if (!code) {
		what = "cuMemUnmap";
		code = cuda.cuMemUnmap((CUdeviceptr)(uintptr_t)m->base, m->mapped);
	}
	if (code)
		return failed("doca_umem_gpu_create", what, code);
	cuda.cuMemRelease(before);
	code = map_new(m, on_host, &what);
	m->by_cpu = !code;
	if (!code) {
		memcpy(m->base, contents, m->mapped);
		return DOCA_SUCCESS;
	}
	softdoca_log(DOCA_LOG_LEVEL_WARNING, "doca_umem_gpu_create",
		     "the driver cannot map host memory at the address of GPU memory (%s: %s): set "
		     "SOFTDOCA_GPU_MEMORY=pinned",
		     what, cuda_name(code));
	code = map_new(m, on_gpu(m->gpu), &what);
	if (code) {
		m->handle = 0;
		return failed("doca_umem_gpu_create", what, code);
	}
	copy(m->base, contents, m->mapped, true);
	return DOCA_ERROR_NOT_SUPPORTED;
}

doca_error_t gpu_cuda_move(struct gpu_memory *m)
{
	void *contents = malloc(m->mapped);
	if (!contents)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %zu bytes", m->mapped);
	bool entered = cuda_enter_context(m->gpu->context);
	doca_error_t error = replace(m, contents);
	cuda_leave(entered);
	free(contents);
	return error;
}

doca_error_t gpu_cuda_dmabuf(const struct gpu_memory *m, void *addr, size_t size, int *fd)
{
	dg_memory found;
	uint64_t offset;
	if (m->by_cpu)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "%p is host memory, which has no dma-buf: use its address", addr);
	int rc = dg_cuda_pointer_query(addr, size, &found);
	if (!rc)
		rc = dg_cuda_dmabuf(&found, fd, &offset);
	if (!rc && found.fd >= 0)
		close(found.fd);
	return rc ? softdoca_failed("doca_gpu_dmabuf_fd", rc) : DOCA_SUCCESS;
}
