// SPDX-License-Identifier: Apache-2.0
#include "cuda_memory.h"

#include <dlfcn.h>
#include <unistd.h>

#include <doca_log.h>

DOCA_LOG_REGISTER(CUDA);

enum {
	DMA_BUF_FD = 1, /* CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD */
	SYNC_MEMOPS = 6, /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
	BLOCK = 2 << 20, /* size and alignment of CUDA's allocations */
};

static int (*cuInit)(unsigned int flags);
static int (*cuDeviceGet)(int *device, int number);
static int (*cuDeviceGetName)(char *name, int size, int device);
static int (*cuDevicePrimaryCtxRetain)(void **context, int device);
static int (*cuDevicePrimaryCtxRelease)(int device);
static int (*cuCtxSetCurrent)(void *context);
static int (*cuCtxSynchronize)(void);
static int (*cuMemAlloc)(uint64_t *addr, size_t size);
static int (*cuMemFree)(uint64_t addr);
static int (*cuMemcpyHtoD)(uint64_t to, const void *from, size_t size);
static int (*cuMemcpyDtoH)(void *to, uint64_t from, size_t size);
static int (*cuMemsetD8)(uint64_t to, unsigned char value, size_t size);
static int (*cuPointerSetAttribute)(const void *value, int attribute, uint64_t addr);
static int (*cuMemGetHandleForAddressRange)(void *handle, uint64_t addr, size_t size, int type,
					    unsigned long long flags);
static int (*cuGetErrorString)(int error, const char **text);

static const struct {
	const char *name;
	void *function; /* a pointer to the variable above */
	bool optional;
} functions[] = {
	{"cuInit", &cuInit, false},
	{"cuDeviceGet", &cuDeviceGet, false},
	{"cuDeviceGetName", &cuDeviceGetName, false},
	{"cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain, false},
	{"cuDevicePrimaryCtxRelease_v2", &cuDevicePrimaryCtxRelease, false},
	{"cuCtxSetCurrent", &cuCtxSetCurrent, false},
	{"cuCtxSynchronize", &cuCtxSynchronize, false},
	{"cuMemAlloc_v2", &cuMemAlloc, false},
	{"cuMemFree_v2", &cuMemFree, false},
	{"cuMemcpyHtoD_v2", &cuMemcpyHtoD, false},
	{"cuMemcpyDtoH_v2", &cuMemcpyDtoH, false},
	{"cuMemsetD8_v2", &cuMemsetD8, false},
	{"cuPointerSetAttribute", &cuPointerSetAttribute, false},
	{"cuMemGetHandleForAddressRange", &cuMemGetHandleForAddressRange, true}, /* since 11.7 */
	{"cuGetErrorString", &cuGetErrorString, false},
};

static doca_error_t cuda_failed(const char *what, int error)
{
	const char *text = "no text";

	cuGetErrorString(error, &text);
	DOCA_LOG_ERR("%s failed: %s (CUDA error %d)", what, text, error);
	return DOCA_ERROR_DRIVER;
}

#define TRY_CUDA(call)                                        \
	do {                                                  \
		int try_error = (call);                       \
		if (try_error)                                \
			return cuda_failed(#call, try_error); \
	} while (0)

static doca_error_t load(struct gpu_memory *g)
{
	g->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!g->library) {
		DOCA_LOG_ERR("No CUDA driver: %s", dlerror());
		return DOCA_ERROR_NOT_FOUND;
	}
	for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
		void *found = dlsym(g->library, functions[i].name);

		*(void **)functions[i].function = found;
		if (!found && !functions[i].optional) {
			DOCA_LOG_ERR("This CUDA driver has no %s", functions[i].name);
			return DOCA_ERROR_NOT_SUPPORTED;
		}
	}
	return DOCA_SUCCESS;
}

doca_error_t gpu_alloc(struct gpu_memory *g, int number, size_t size)
{
	char name[128] = "";
	int on = 1;

	TRY(load(g));
	TRY_CUDA(cuInit(0));
	TRY_CUDA(cuDeviceGet(&g->device, number));
	TRY_CUDA(cuDeviceGetName(name, sizeof name, g->device));
	TRY_CUDA(cuDevicePrimaryCtxRetain(&g->context, g->device));
	TRY_CUDA(cuCtxSetCurrent(g->context));
	g->size = (size + BLOCK - 1) / BLOCK * BLOCK;
	TRY_CUDA(cuMemAlloc(&g->addr, g->size));
	/* Makes CUDA's copies synchronous, so that the DPU reads their results. */
	TRY_CUDA(cuPointerSetAttribute(&on, SYNC_MEMOPS, g->addr));
	TRY_CUDA(cuMemsetD8(g->addr, 0, g->size));
	TRY_CUDA(cuCtxSynchronize());
	if (g->addr % (uint64_t)sysconf(_SC_PAGESIZE)) {
		DOCA_LOG_ERR("The GPU memory at %#lx is not page-aligned", (unsigned long)g->addr);
		return DOCA_ERROR_UNEXPECTED;
	}
	DOCA_LOG_INFO("%zu bytes on %s, at %#lx", g->size, name, (unsigned long)g->addr);
	return DOCA_SUCCESS;
}

void gpu_free(struct gpu_memory *g)
{
	if (g->addr)
		cuMemFree(g->addr);
	if (g->context)
		cuDevicePrimaryCtxRelease(g->device);
	if (g->library)
		dlclose(g->library);
}

doca_error_t gpu_dmabuf(const struct gpu_memory *g, int *fd)
{
	int error;

	if (!cuMemGetHandleForAddressRange) {
		DOCA_LOG_WARN("This CUDA driver is older than dma-buf");
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	error = cuMemGetHandleForAddressRange(fd, g->addr, g->size, DMA_BUF_FD, 0);
	if (error) {
		cuda_failed("cuMemGetHandleForAddressRange", error);
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	return DOCA_SUCCESS;
}

doca_error_t gpu_write(const struct gpu_memory *g, const void *from, size_t size)
{
	TRY_CUDA(cuMemcpyHtoD(g->addr, from, size));
	return DOCA_SUCCESS;
}

doca_error_t gpu_read(const struct gpu_memory *g, void *to, size_t size)
{
	TRY_CUDA(cuMemcpyDtoH(to, g->addr, size));
	return DOCA_SUCCESS;
}
