/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs, their memory, and queue pairs for device code.
 *
 * On a machine without a GPU, doca_gpu_create() returns an emulated GPU, and its log record says so:
 * memory of every type is then shared host memory with the same address for GPU and CPU.
 */
#ifndef DOCA_GPUNETIO_H
#define DOCA_GPUNETIO_H

#include <stddef.h>
#include <stdint.h>

#include "doca_compat.h"
#include "doca_dev.h"
#include "doca_error.h"
#include <doca_gpunetio_sem_dev.h>
#include <doca_gpunetio_verbs_def.h>
#include <doca_gpunetio_verbs_dev.h>

#ifdef __cplusplus
extern "C" {
#endif

struct doca_gpu;
struct doca_verbs_cq;
struct doca_verbs_qp;
struct doca_gpu_verbs_qp;
struct doca_gpu_dev_verbs_qp;

enum doca_gpu_mem_type {
	DOCA_GPU_MEM_TYPE_GPU = 0, /* GPU memory, for kernels only */
	DOCA_GPU_MEM_TYPE_GPU_CPU = 1, /* for both; in softdoca pinned host memory */
	DOCA_GPU_MEM_TYPE_CPU_GPU = 2, /* pinned host memory, for both */
};

/* Creates a handle of the GPU with this PCI address, such as "17:00.0". Errors: NOT_FOUND if no GPU
 * has it; INVALID_VALUE for another format. */
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_create(const char *gpu_bus_id, struct doca_gpu **gpu_dev);

/* Destroys it and frees its memory, except memory that a umem or a memory region still uses, which
 * is freed with that. IN_USE while a queue pair is exported. */
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_destroy(struct doca_gpu *gpu_dev);

/* Allocates zeroed memory. alignment: a power of two, or 0. memptr_cpu: NULL, or set to the CPU's
 * address, NULL for the type GPU on a GPU. Errors: INVALID_VALUE, NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_mem_alloc(struct doca_gpu *gpu_dev, size_t size, size_t alignment,
				enum doca_gpu_mem_type mtype, void **memptr_gpu, void **memptr_cpu);

/* Frees memory of doca_gpu_mem_alloc(). Errors: IN_USE while a umem or a memory region uses it. */
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_mem_free(struct doca_gpu *gpu_dev, void *memptr_gpu);

/* Gets a file descriptor of the memory, which the caller closes: a dma-buf; on the emulated GPU a
 * memfd. For memory regions: ibv_reg_dmabuf_mr(). Errors: NOT_SUPPORTED for pinned host memory and
 * where the driver exports none; INVALID_VALUE for other memory. */
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_dmabuf_fd(struct doca_gpu *gpu_dev, void *memptr_gpu, size_t size,
				int *dmabuf_fd);

/* Prepares a queue pair for device code, in the state RESET or INIT. gpu_qp_umem_dev_ptr: the GPU's
 * address of its rings, NULL if the queue pair has rings of its own. AUTO: a doorbell if the GPU
 * can write the queue pair's doorbell record, otherwise the CPU proxy. Errors: NOT_SUPPORTED for
 * BlueFlame; BAD_STATE for another state; INVALID_VALUE if the handler does not match the queue
 * pair's doorbell mode. */
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_verbs_export_qp(struct doca_gpu *gpu_dev, struct doca_dev *dev,
				      struct doca_verbs_qp *qp,
				      enum doca_gpu_dev_verbs_nic_handler nic_handler,
				      void *gpu_qp_umem_dev_ptr, struct doca_verbs_cq *cq_sq,
				      struct doca_verbs_cq *cq_rq,
				      struct doca_gpu_verbs_qp **qp_out);

/* Frees what the export created. Kernels must not use the queue pair any more. */
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_verbs_unexport_qp(struct doca_gpu *gpu_dev, struct doca_gpu_verbs_qp *qp);

/* Gets the queue pair's structure, an argument for kernels. */
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_verbs_get_qp_dev(struct doca_gpu_verbs_qp *qp,
				       struct doca_gpu_dev_verbs_qp **qp_gpu);

/* Gives up the CPU for a moment: the software NIC's own thread serves the queue pair. Errors:
 * NOT_SUPPORTED without a CPU proxy. */
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_verbs_cpu_proxy_progress(struct doca_gpu_verbs_qp *qp);

/* ---- semaphores: kernels and the CPU hand on packets or memory of the program, item by item ---- */

struct doca_gpu_semaphore;
struct doca_gpu_semaphore_gpu;

DOCA_EXPERIMENTAL
doca_error_t doca_gpu_semaphore_create(struct doca_gpu *gpu_dev,
				       struct doca_gpu_semaphore **semaphore);

/* Errors: BAD_STATE if it is started. */
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_semaphore_destroy(struct doca_gpu_semaphore *semaphore);

/* Set the type of the items' memory (default: GPU), their number (at most 1 Mi), and size (at most 1 MiB)
 * and type of the program's own memory in each item (default: none). Errors: BAD_STATE if it is
 * started. */
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_semaphore_set_memory_type(struct doca_gpu_semaphore *semaphore,
						enum doca_gpu_mem_type mtype);
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_semaphore_set_items_num(struct doca_gpu_semaphore *semaphore,
					      uint32_t num_items);
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_semaphore_set_custom_info(struct doca_gpu_semaphore *semaphore, uint32_t nbytes,
						enum doca_gpu_mem_type mtype);

/* Allocates the items, all FREE. Errors: BAD_STATE without a number; NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_semaphore_start(struct doca_gpu_semaphore *semaphore);

/* Frees the items. Kernels must not use them any more. */
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_semaphore_stop(struct doca_gpu_semaphore *semaphore);

/* Gets the semaphore's structure, an argument for kernels. Errors: BAD_STATE unless it is started. */
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_semaphore_get_gpu_handle(struct doca_gpu_semaphore *semaphore,
					       struct doca_gpu_semaphore_gpu **semaphore_gpu);

/* Get and set an item's status, and get the CPU's address of its memory of the program. Errors: BAD_STATE
 * unless it is started; NOT_PERMITTED for memory of the type GPU on a GPU. */
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_semaphore_get_status(struct doca_gpu_semaphore *semaphore, uint32_t item_idx,
					   enum doca_gpu_semaphore_status *status);
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_semaphore_set_status(struct doca_gpu_semaphore *semaphore, uint32_t item_idx,
					   enum doca_gpu_semaphore_status status);
DOCA_EXPERIMENTAL
doca_error_t doca_gpu_semaphore_get_custom_info_addr(struct doca_gpu_semaphore *semaphore,
						     uint32_t item_idx, void **custom_info);

#ifdef __cplusplus
}
#endif

#endif
