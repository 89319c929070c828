/* SPDX-License-Identifier: Apache-2.0 */
/* DMA, as of DOCA 1.3 to 2.2. Every function returns INVALID_VALUE for an invalid object or output
 * pointer. */
#ifndef DOCA_WORKQ_DMA_H
#define DOCA_WORKQ_DMA_H

#include <inttypes.h>

#include "doca_buf.h"
#include "doca_ctx.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_dma;

enum doca_dma_job_types {
	DOCA_DMA_JOB_MEMCPY = DOCA_ACTION_DMA_FIRST + 1,
};

enum doca_dma_devinfo_caps {
	DOCA_DMA_CAP_NONE = 0,
	DOCA_DMA_CAP_HW_OFFLOAD = 1U << 0,
};

/* Copies the source's data to the place of the destination's data. */
struct doca_dma_job_memcpy {
	struct doca_job base;
	struct doca_buf *dst_buff;
	struct doca_buf const *src_buff;
#if SOFTDOCA_NAMED
	uint64_t num_bytes_to_copy; /* from the start of the buffers, which have no data in 1.3 */
#endif
};

struct doca_dma_memcpy_result {
	doca_error_t result;
};

/* Errors: NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_dma_create(struct doca_dma **dma);

/* Errors: IN_USE if it is started. */
DOCA_STABLE
doca_error_t doca_dma_destroy(struct doca_dma *dma);

DOCA_STABLE
struct doca_ctx *doca_dma_as_ctx(struct doca_dma *dma);

/* Returns SUCCESS if the device can copy, NOT_SUPPORTED if not. */
DOCA_STABLE
doca_error_t doca_dma_job_get_supported(struct doca_devinfo *devinfo,
		enum doca_dma_job_types job_type);

/* Gets the sum of doca_dma_devinfo_caps (1.3). */
DOCA_STABLE
doca_error_t doca_dma_devinfo_caps_get(struct doca_devinfo *devinfo, uint32_t *caps);

DOCA_STABLE
doca_error_t doca_dma_get_max_list_buf_num_elem(const struct doca_devinfo *devinfo,
		uint32_t *max_list_num_elem);

DOCA_STABLE
doca_error_t doca_dma_get_max_buf_size(const struct doca_devinfo *devinfo, uint64_t *buf_size);

#ifdef __cplusplus
}
#endif

#endif
