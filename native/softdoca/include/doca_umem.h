/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the program in which the NIC keeps rings and doorbell records. */
#ifndef DOCA_UMEM_H
#define DOCA_UMEM_H

#include <stddef.h>
#include <stdint.h>

#include "doca_compat.h"
#include "doca_dev.h"
#include "doca_error.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_gpu;
struct doca_umem;

/* Registers host memory. access_flags: of enum doca_access_flag. */
DOCA_EXPERIMENTAL
doca_error_t doca_umem_create(struct doca_dev *dev, void *address, size_t size,
			      uint32_t access_flags, struct doca_umem **umem);

/* Registers memory of doca_gpu_mem_alloc(). Memory of the type GPU moves to host memory, at the
 * same address and with its contents, because the software NIC's CPU has to access it; no kernel or
 * copy may use it meanwhile. Errors: NOT_SUPPORTED for other GPU memory, and where the driver
 * cannot do that (SOFTDOCA_GPU_MEMORY=pinned avoids it). */
DOCA_EXPERIMENTAL
doca_error_t doca_umem_gpu_create(struct doca_gpu *gpu_dev, struct doca_dev *dev, void *address,
				  size_t size, uint32_t access_flags, struct doca_umem **umem);

/* Errors: IN_USE while a queue pair or completion queue uses it. */
DOCA_EXPERIMENTAL
doca_error_t doca_umem_destroy(struct doca_umem *umem);

DOCA_EXPERIMENTAL
doca_error_t doca_umem_get_id(const struct doca_umem *umem, uint32_t *umem_id);

DOCA_EXPERIMENTAL
doca_error_t doca_umem_get_size(const struct doca_umem *umem, size_t *umem_size);

DOCA_EXPERIMENTAL
doca_error_t doca_umem_get_address(const struct doca_umem *umem, void **umem_address);

#ifdef __cplusplus
}
#endif

#endif
