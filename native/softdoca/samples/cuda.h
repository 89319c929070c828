/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few functions of CUDA's driver that gpu_export uses, found at run time: it builds where there is no
 * CUDA. Names and numbers are those of the driver API; the declarations are our own.
 */
#ifndef SAMPLES_CUDA_H
#define SAMPLES_CUDA_H

#include <stdint.h>

#include "common.h"

struct gpu_memory {
	void *library, *context;
	int device;
	uint64_t addr; /* as CUDA says it; 0: none */
	size_t size; /* whole pages */
};

/* At least `size` bytes on that GPU, on a page boundary, zeroed. *g is zero before. Whatever came of it,
 * gpu_free() tidies up. */
doca_error_t gpu_alloc(struct gpu_memory *g, int number, size_t size);
void gpu_free(struct gpu_memory *g);
/* An fd of the dma-buf that this memory is; the caller closes it. NOT_SUPPORTED, logged, where this
 * driver gives none. */
doca_error_t gpu_dmabuf(const struct gpu_memory *g, int *fd);
doca_error_t gpu_write(const struct gpu_memory *g, const void *from, size_t size);
doca_error_t gpu_read(const struct gpu_memory *g, void *to, size_t size);

#endif
