/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs and their memory (gpu.c; gpu_cuda.c on a GPU). */
#ifndef SOFTDOCA_GPU_H
#define SOFTDOCA_GPU_H

#include <sys/types.h>

#include "base/devices.h"
#include "doca_gpunetio.h"

#define CHECK_GPU(g) CHECK_OBJECT(g, OBJECT_GPU, "a GPU")

struct doca_gpu {
	struct object o;
	char pci[DOCA_DEVINFO_PCI_ADDR_SIZE];
	int ordinal; /* of the GPU; -1: emulated */
	int device; /* CUdevice; its primary context is retained */
	void *context; /* CUcontext */
	atomic_uint exports; /* queue pairs */
};

/* Memory of doca_gpu_mem_alloc(). `lock` of gpu.c guards the list, and users and freed. */
struct gpu_memory {
	struct gpu_memory *next;
	struct doca_gpu *gpu;
	enum doca_gpu_mem_type type;
	char *base; /* mapping of `mapped` bytes */
	size_t mapped;
	char *addr; /* the program's: aligned, `size` bytes */
	size_t size;
	bool by_cpu; /* the CPU can access it */
	int fd; /* memfd, mapped at base, otherwise -1 */
	unsigned long long handle; /* CUDA virtual memory, otherwise 0 */
	/* Identity of the last fd that doca_gpu_dmabuf_fd() returned, and where its bytes begin.
	 * All fds of an emulated GPU's memory have the same inode; the file position of each tells
	 * where its bytes begin. */
	dev_t dmabuf_dev;
	ino_t dmabuf_inode;
	char *dmabuf_at;
	uint32_t users; /* umems and memory regions */
	uint32_t maps; /* users that are keys of maps: the program may free the memory before these */
	bool freed; /* with its last user */
};

/* gpu.c: implementations of the functions of libdoca_gpunetio with these names. */
SOFTDOCA_INTERNAL doca_error_t softdoca_gpu_create(const char *pci, struct doca_gpu **out);
SOFTDOCA_INTERNAL doca_error_t softdoca_gpu_destroy(struct doca_gpu *gpu);
SOFTDOCA_INTERNAL doca_error_t softdoca_gpu_alloc(struct doca_gpu *gpu, size_t size,
						  size_t alignment, enum doca_gpu_mem_type type,
						  struct gpu_memory **out);
SOFTDOCA_INTERNAL doca_error_t softdoca_gpu_free(struct doca_gpu *gpu, void *addr);
SOFTDOCA_INTERNAL doca_error_t softdoca_gpu_dmabuf_fd(struct doca_gpu *gpu, void *addr, size_t size,
						      int *fd);
/* Returns the memory that contains the range, with one more user; NULL if there is none. */
SOFTDOCA_INTERNAL struct gpu_memory *softdoca_gpu_take(const void *addr, size_t size);
/* The same for the memory whose fd this is; *at is where the fd's bytes begin. */
SOFTDOCA_INTERNAL struct gpu_memory *softdoca_gpu_take_fd(int fd, char **at);
SOFTDOCA_INTERNAL void softdoca_gpu_drop(struct gpu_memory *m);
/* Lets the CPU access the memory: moves memory of the type GPU to host memory, at the same address. */
SOFTDOCA_INTERNAL doca_error_t softdoca_gpu_reach(struct gpu_memory *m);
/* Adds (`one_more`) or removes the key of a map as a user of this memory. Ignores other memory. */
void gpu_count_map(const void *addr, size_t size, bool one_more);
/* Allocates memory whose only user is the caller: freed by softdoca_gpu_drop(), also after the GPU was
 * destroyed. */
SOFTDOCA_INTERNAL doca_error_t softdoca_gpu_alloc_own(struct doca_gpu *gpu, size_t size,
						      size_t alignment,
						      enum doca_gpu_mem_type type,
						      struct gpu_memory **out);
/* Ordinal of the GPU whose memory the NIC has to move: that which this process created last; -1 if
 * that is emulated, if there is none, or if all memory is pinned. */
int gpu_for_nic(void);
/* Reads SOFTDOCA_GPU_MEMORY: 1 for "pinned", 0 if it is unset or empty, -1, logged, otherwise. */
int gpu_pinned(void);

/* Map m->mapped bytes of a new memfd at m->base, which other processes can map, too; undo it. */
doca_error_t gpu_map_shared(struct gpu_memory *m);
void gpu_unmap_shared(struct gpu_memory *m);

/* gpu_cuda.c. Returns the number of GPUs, 0 with dg_last_error() if CUDA cannot be used. */
int gpu_cuda_count(void);
doca_error_t gpu_cuda_open(struct doca_gpu *gpu, int gpus);
void gpu_cuda_close(struct doca_gpu *gpu);
/* Allocate by m->type and m->mapped; the CPU can access all but the type GPU. */
doca_error_t gpu_cuda_alloc(struct doca_gpu *gpu, struct gpu_memory *m);
void gpu_cuda_free(struct gpu_memory *m);
/* Moves memory of the type GPU to host memory, at the same address and with its contents. */
doca_error_t gpu_cuda_move(struct gpu_memory *m);
/* Copies from the CPU to memory of the type GPU. */
SOFTDOCA_INTERNAL doca_error_t softdoca_gpu_fill(struct gpu_memory *m, const void *bytes, size_t n);
/* Copies n bytes at an address of memory of doca_gpu_mem_alloc(), to or from the CPU's memory. */
SOFTDOCA_INTERNAL doca_error_t softdoca_gpu_copy(void *at, void *host, size_t n, bool to_gpu);
doca_error_t gpu_cuda_dmabuf(const struct gpu_memory *m, void *addr, size_t size, int *fd);

#endif
