/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of libdoca_common and libdoca_dma that the providers doca and softdoca use. The types
 * are those of softdoca's headers; the functions are looked up at run time with dlsym, without
 * symbol versions, so dgkit builds without DOCA. A process loads either the real libraries or
 * softdoca's, never both.
 */
#ifndef DG_DOCA_API_H
#define DG_DOCA_API_H

#include <stdbool.h>
#include <stddef.h>

#include "doca_buf_inventory.h"
#include "doca_dma.h"
#include "doca_mmap.h"
#include "doca_version.h"

/* X(name, whether dgkit requires it). Functions that are experimental or missing in DOCA 2.5 are
 * optional. */
#define DOCA_COMMON_FUNCTIONS(X)                                \
	X(doca_error_get_name, 1)                               \
	X(doca_error_get_descr, 1)                              \
	X(doca_version_runtime, 0)                              \
	X(doca_devinfo_create_list, 1)                          \
	X(doca_devinfo_destroy_list, 1)                         \
	X(doca_devinfo_get_pci_addr_str, 1)                     \
	X(doca_devinfo_get_ibdev_name, 0)                       \
	X(doca_devinfo_is_equal_pci_addr, 1)                    \
	X(doca_dev_open, 1)                                     \
	X(doca_dev_close, 1)                                    \
	X(doca_dev_as_devinfo, 1)                               \
	X(doca_mmap_create, 1)                                  \
	X(doca_mmap_destroy, 1)                                 \
	X(doca_mmap_add_dev, 1)                                 \
	X(doca_mmap_set_memrange, 1)                            \
	X(doca_mmap_set_dmabuf_memrange, 0)                     \
	X(doca_mmap_get_memrange, 0)                            \
	X(doca_mmap_set_permissions, 1)                         \
	X(doca_mmap_start, 1)                                   \
	X(doca_mmap_stop, 1)                                    \
	X(doca_mmap_export_pci, 1)                              \
	X(doca_mmap_create_from_export, 1)                      \
	X(doca_mmap_cap_is_export_pci_supported, 0)             \
	X(doca_mmap_cap_is_create_from_export_pci_supported, 0) \
	X(doca_buf_inventory_create, 1)                         \
	X(doca_buf_inventory_start, 1)                          \
	X(doca_buf_inventory_destroy, 1)                        \
	X(doca_buf_inventory_buf_get_by_args, 1)                \
	X(doca_buf_dec_refcount, 1)                             \
	X(doca_buf_set_data, 1)                                 \
	X(doca_pe_create, 1)                                    \
	X(doca_pe_destroy, 1)                                   \
	X(doca_pe_connect_ctx, 1)                               \
	X(doca_pe_progress, 1)                                  \
	X(doca_pe_get_notification_handle, 1)                   \
	X(doca_pe_request_notification, 1)                      \
	X(doca_pe_clear_notification, 1)                        \
	X(doca_ctx_start, 1)                                    \
	X(doca_ctx_stop, 1)                                     \
	X(doca_ctx_get_state, 1)                                \
	X(doca_ctx_set_user_data, 1)                            \
	X(doca_task_submit, 1)                                  \
	X(doca_task_submit_ex, 0)                               \
	X(doca_task_free, 1)                                    \
	X(doca_task_get_status, 1)

#define DOCA_DMA_FUNCTIONS(X)                           \
	X(doca_dma_create, 1)                           \
	X(doca_dma_destroy, 1)                          \
	X(doca_dma_as_ctx, 1)                           \
	X(doca_dma_cap_task_memcpy_is_supported, 1)     \
	X(doca_dma_cap_task_memcpy_get_max_buf_size, 1) \
	X(doca_dma_cap_get_max_num_tasks, 0)            \
	X(doca_dma_task_memcpy_set_conf, 1)             \
	X(doca_dma_task_memcpy_alloc_init, 1)           \
	X(doca_dma_task_memcpy_as_task, 1)              \
	X(doca_dma_task_memcpy_set_src, 1)              \
	X(doca_dma_task_memcpy_set_dst, 1)

struct dg_doca_api {
#define DOCA_FIELD(name, needed) __typeof__(name) *name;
	DOCA_COMMON_FUNCTIONS(DOCA_FIELD)
	DOCA_DMA_FUNCTIONS(DOCA_FIELD)
#undef DOCA_FIELD
	const char *(*softdoca_last_refusal)(void); /* NULL in the real libraries */
};

/* Valid after dg_doca_load(). */
extern struct dg_doca_api dg_doca;

enum doca_kind { DOCA_REAL, DOCA_SOFT };

/* Loads the libraries of that kind; they are never unloaded. Errors: ENODEV with the reason. */
int dg_doca_load(enum doca_kind kind);
/* Looks for the libraries without loading them. Errors: ENODEV with what is missing. */
int dg_doca_locate(enum doca_kind kind);
/* Reports the error "WHAT: DOCA_ERROR_NAME (detail)" by dg_fail(); reason 0 means the reason that
 * corresponds to e. */
int dg_doca_fail(int reason, const char *what, doca_error_t e);

#endif
