/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of CUDA's driver that gpu_export uses, loaded at run time, so it builds without
 * CUDA. Names and values are those of the driver API; the declarations were written for this
 * sample.
 */
#ifndef SAMPLES_CUDA_MEMORY_H
#define SAMPLES_CUDA_MEMORY_H

#include <stdint.h>

#include "sample.h"

struct gpu_memory {
	void *library, *context;
	int device;
	uint64_t addr; /* device address; 0: none */
	size_t size; /* whole pages */
};

/* Allocates at least `size` zeroed, page-aligned bytes on that GPU. *g must be zero. gpu_free()
 * releases it, also after a failure. */
doca_error_t gpu_alloc(struct gpu_memory *g, int number, size_t size);
void gpu_free(struct gpu_memory *g);
/* Gets a file descriptor of this memory's dma-buf, which the caller closes. Errors: NOT_SUPPORTED,
 * logged, if the driver cannot create one. */
doca_error_t gpu_dmabuf(const struct gpu_memory *g, int *fd);
doca_error_t gpu_write(const struct gpu_memory *g, const void *from, size_t size);
doca_error_t gpu_read(const struct gpu_memory *g, void *to, size_t size);

#endif
