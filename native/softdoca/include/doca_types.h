/* SPDX-License-Identifier: Apache-2.0 */
/* Types that several libraries share. */
#ifndef DOCA_TYPES_H
#define DOCA_TYPES_H

/* PRIu64: programs print sizes and addresses and include nothing for it themselves */
#include <inttypes.h>
#include <stdint.h>

#include "doca_compat.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A program's own data, given back as it was. Passed by value. */
union doca_data {
	void *ptr;
	uint64_t u64;
};

/* What may be done with the memory of a map: the low bits by this process and its devices, RDMA_* by
 * peers of exports for RDMA, PCI_* by the DPU, through an export for PCI. */
enum doca_access_flag {
	DOCA_ACCESS_FLAG_LOCAL_READ_ONLY = 0,
	DOCA_ACCESS_FLAG_LOCAL_READ_WRITE = 1 << 0,
	DOCA_ACCESS_FLAG_RDMA_READ = 1 << 1,
	DOCA_ACCESS_FLAG_RDMA_WRITE = 1 << 2,
	DOCA_ACCESS_FLAG_RDMA_ATOMIC = 1 << 3,
	DOCA_ACCESS_FLAG_PCI_READ_ONLY = 1 << 4,
	DOCA_ACCESS_FLAG_PCI_READ_WRITE = 1 << 5,
	DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING = 1 << 6,
};

#ifdef __cplusplus
}
#endif

#endif
