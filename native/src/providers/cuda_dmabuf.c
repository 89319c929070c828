// SPDX-License-Identifier: Apache-2.0
/* Export of GPU memory as a dma-buf, for providers whose hardware imports it, and lookup of a GPU
 * by UUID. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cuda_provider.h"
#include "error.h"

int dg_cuda_ordinal(const uint8_t uuid[16])
{
	int gpus = 0, rc = cuda_start(&gpus);
	CUuuid found;
	CUdevice dev;
	for (int i = 0; i < gpus && !rc; i++)
		if (!cuda.cuDeviceGet(&dev, i) && !cuda.cuDeviceGetUuid(&found, dev) &&
		    !memcmp(&found, uuid, sizeof found))
			return i;
	return rc ? rc
		  : dg_fail(DG_REASON_NO_GPU,
			    "this process sees no GPU with the UUID of this memory: check "
			    "CUDA_VISIBLE_DEVICES");
}

/* Retains the primary context of the GPU with this UUID. */
static int context_of(const uint8_t uuid[16], CUdevice *dev, CUcontext *ctx)
{
	int number = dg_cuda_ordinal(uuid);
	if (number < 0)
		return number;
	CUresult code = cuda.cuDeviceGet(dev, number);
	if (!code)
		code = cuda.cuDevicePrimaryCtxRetain(ctx, *dev);
	return code ? cuda_fail("cuDevicePrimaryCtxRetain", code) : 0;
}

int dg_cuda_dmabuf(const dg_memory *m, int *fd, uint64_t *offset)
{
	/* CUDA exports whole system pages only. */
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), addr = (uintptr_t)m->addr;
	uint64_t from = addr - addr % page, upto = (addr + m->size + page - 1) / page * page;
	CUdevice dev;
	CUcontext ctx = NULL;
	TRY(context_of(m->uuid, &dev, &ctx));
	CUresult code = CUDA_ERROR_NOT_SUPPORTED;
	if (cuda.cuMemGetHandleForAddressRange) {
		const bool entered = cuda_enter_context(ctx);
		code = cuda.cuMemGetHandleForAddressRange(fd, from, upto - from,
							  CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
		cuda_leave(entered);
	}
	cuda.cuDevicePrimaryCtxRelease(dev);
	if (code) {
		*fd = -1;
		return dg_fail(EOPNOTSUPP,
			       "the NVIDIA driver does not export this memory as a dma-buf (%s)",
			       cuda_name(code));
	}
	*offset = addr - from;
	return 0;
}

int dg_dmabuf_reason(int rc)
{
	int reason = dg_last_reason(rc);
	switch (reason) {
	case DG_REASON_DMABUF_ADAPTER:
	case DG_REASON_DMABUF_RDMA_CORE:
		return reason;
	case ENODEV: /* the context is lost, or belongs to the parent process */
		return EMEDIUMTYPE;
	default:
		return DG_REASON_DMABUF_GPU;
	}
}
