/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory that this process has already, by its address. */
#ifndef DG_CUDA_POINTER_H
#define DG_CUDA_POINTER_H

#include "dgkit.h"

/* What dg_region_register() needs to know of `size` bytes at `addr` on a GPU: the block that they lie in
 * and how others import it, whole. out->fd is the caller's to close, -1 if there is none; it, and the
 * block, must stay as long as the region. DG_KIND_CUDA_OWN: CUDA shares it with no other process (it is
 * from a pool, of several blocks side by side, or was made without a handle).
 * ENODEV nobody uses CUDA here; EINVAL no memory of a GPU; EOPNOTSUPP managed memory, or the host's;
 * ERANGE the bytes leave their allocation. Any thread; no context need be current. */
int dg_cuda_pointer_query(const void *addr, uint64_t size, dg_memory *out);

/* The number of the GPU that has this UUID, as dg_device_config has it. ENODEV: this process sees none. */
int dg_cuda_ordinal(const uint8_t uuid[16]);

/* Where two copies of this core are in one process, dgkit's own and the one inside softdoca: what the one
 * gives is for the other, and what the other then gives for this one. From then on they know of the memory
 * that either has registered with CUDA. NULL only asks. Nothing changes for who has registered some. */
void *dg_cuda_share_pins(void *theirs);

#endif
