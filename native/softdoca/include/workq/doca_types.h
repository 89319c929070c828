/* SPDX-License-Identifier: Apache-2.0 */
/* Types that several libraries share, as of DOCA 1.3 to 2.2. */
#ifndef DOCA_WORKQ_TYPES_H
#define DOCA_WORKQ_TYPES_H

#include <stdbool.h>

#include "../doca_types.h"

#define DOCA_PCI_FUNC_PF DOCA_PCI_FUNC_TYPE_PF
#define DOCA_PCI_FUNC_VF DOCA_PCI_FUNC_TYPE_VF
#define DOCA_PCI_FUNC_SF DOCA_PCI_FUNC_TYPE_SF

/* Permitted access to the memory of a map; DPU_* for the DPU, through an export. */
enum doca_access_flags {
	DOCA_ACCESS_LOCAL_READ_ONLY = 0,
	DOCA_ACCESS_LOCAL_READ_WRITE = 1 << 0,
	DOCA_ACCESS_RDMA_READ = 1 << 1,
	DOCA_ACCESS_RDMA_WRITE = 1 << 2,
	DOCA_ACCESS_RDMA_ATOMIC = 1 << 3,
	DOCA_ACCESS_DPU_READ_ONLY = 1 << 4,
	DOCA_ACCESS_DPU_READ_WRITE = 1 << 5,
};

#define PCI_FUNCTION_MAX_VALUE 8
#define PCI_DEVICE_MAX_VALUE   32
#define PCI_BUS_MAX_VALUE      256

/* A PCI address without its domain: 03:00.0. */
struct doca_pci_bdf {
	union {
		uint16_t raw;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
		struct {
			uint16_t bus : 8;
			uint16_t device : 5;
			uint16_t function : 3;
		};
#pragma GCC diagnostic pop
	};
};

#endif
