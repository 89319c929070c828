/* SPDX-License-Identifier: Apache-2.0 */
/* Queries about GPU memory of this process, by its address. */
#ifndef DG_CUDA_POINTER_H
#define DG_CUDA_POINTER_H

#include <stdbool.h>

#include "dgkit.h"

/* Fills *out with what dg_region_register() needs to know about `size` bytes at `addr` on a GPU:
 * the block that contains them, and how other processes import it as a whole. The caller closes
 * out->fd (-1 if there is none); the fd and the block must stay valid as long as the region.
 * DG_KIND_CUDA_OWN: CUDA cannot share the memory with another process (it is from a pool, spans
 * several blocks, or was created without a handle). Any thread; no context need be current. Errors:
 * ENODEV if this process does not use CUDA, EINVAL if it is not GPU memory, EOPNOTSUPP for managed
 * or host memory, ERANGE if the bytes exceed their allocation. */
int dg_cuda_pointer_query(const void *addr, uint64_t size, dg_memory *out);

/* Returns the device ordinal of the GPU with this UUID, as in dg_device_config.gpu. Errors: ENODEV
 * if this process sees no such GPU. */
int dg_cuda_ordinal(const uint8_t uuid[16]);

/* Makes a context current, unless it is: cuCtxPushCurrent() was seen to wait for a running kernel (driver
 * 580). Returns whether cuda_leave() must undo that. */
struct CUctx_st;
bool cuda_enter_context(struct CUctx_st *ctx);
void cuda_leave(bool entered);
/* Makes the context of a device of the provider cuda current in the calling thread, until it ends. */
void dg_cuda_stay(dg_device *dev);
/* Copies between memory of this process and of the device's GPU, in the order of the calls. A copy to the GPU may be
 * under way when this returns, with bytes that were read already; one from it is complete. One thread at a time. */
/* Opens the stream of dg_cuda_ring_copy(), as a kernel that runs may wait for such a copy. Not the default stream,
 * whose copies would wait for kernels. */
int dg_cuda_ring_open(dg_device *dev);
int dg_cuda_ring_copy(dg_device *dev, void *here, uint64_t there, size_t size, bool to_gpu);

/* Shares the list of memory registered with CUDA between two copies of this core in one process:
 * dgkit's own and the one inside softdoca. Pass the result of one copy's function to the other
 * copy's, and its result back to the first. Returns the list in use; NULL only queries it. A copy
 * that already has registrations keeps its own list. */
void *dg_cuda_share_pins(void *theirs);

/* Exports the pages that contain the GPU memory m->addr[0..size) as a dma-buf.
 * *offset is the position of the bytes in it. The caller owns *fd. */
int dg_cuda_dmabuf(const dg_memory *m, int *fd, uint64_t *offset);
/* Returns the reason why a device cannot access GPU memory, given rc, the error of exporting its
 * dma-buf. */
int dg_dmabuf_reason(int rc);

#endif
