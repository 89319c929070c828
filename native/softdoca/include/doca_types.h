/* SPDX-License-Identifier: Apache-2.0 */
/* Types that several libraries share. */
#ifndef DOCA_TYPES_H
#define DOCA_TYPES_H

/* assert.h, inttypes.h, string.h: programs use assert, PRIu64 and memset and include only DOCA's
 * headers. */
#include <assert.h>
#include <inttypes.h>
#include <stdint.h>
#include <string.h>

#include "doca_compat.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Data of the program, which the library returns unchanged. Passed by value. */
union doca_data {
	void *ptr;
	uint64_t u64;
};

/* A number in big-endian order. */
typedef uint32_t doca_be32_t;

/* A list of memory ranges. */
struct doca_gather_list {
	void *addr;
	uint64_t len;
	struct doca_gather_list *next;
};

#define DOCA_GID_BYTE_LENGTH 16

enum doca_mtu_size {
	DOCA_MTU_SIZE_256_BYTES = 0,
	DOCA_MTU_SIZE_512_BYTES = 1,
	DOCA_MTU_SIZE_1K_BYTES = 2,
	DOCA_MTU_SIZE_2K_BYTES = 3,
	DOCA_MTU_SIZE_4K_BYTES = 4,
};

/* Handle of doca_pe_get_notification_handle: on Linux a file descriptor for epoll. The second name
 * is the one used by DOCA 3. */
typedef int doca_event_handle_t;
typedef doca_event_handle_t doca_notification_handle_t;
#define doca_event_invalid_handle -1

/* Permitted access to the memory of a map: LOCAL_* for this process and its devices, RDMA_* for
 * peers of exports for RDMA, PCI_* for the DPU, through an export for PCI. PCI_READ_WRITE also lets
 * the devices of this process write. */
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

enum doca_pci_func_type {
	DOCA_PCI_FUNC_TYPE_PF = 0,
	DOCA_PCI_FUNC_TYPE_VF = 1,
	DOCA_PCI_FUNC_TYPE_SF = 2,
};

#ifdef __cplusplus
}
#endif

#endif
