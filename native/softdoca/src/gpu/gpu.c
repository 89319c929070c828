// SPDX-License-Identifier: Apache-2.0
/*
 * GPUs and their memory. Without a GPU, memory is a memfd, mapped here and by whoever emulates a
 * kernel.
 *
 * Lock: `lock` guards the list of memory, and each memory's `users` and `freed`.
 */
#include "gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/frame_keys.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_memory *memories;
static atomic_int last_ordinal = -1;

FORK_HANDLERS(lock)

/* As in mmap_key.c. */
static void __attribute__((constructor)) watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

int gpu_pinned(void)
{
	const char *setting = getenv("SOFTDOCA_GPU_MEMORY");
	if (!setting || !*setting)
		return 0;
	if (!strcmp(setting, "pinned"))
		return 1;
	(void)MISCONFIGURED("SOFTDOCA_GPU_MEMORY is '%s': it must be 'pinned' or unset", setting);
	return -1;
}

int gpu_for_nic(void)
{
	return gpu_pinned() == 1 ? -1 : atomic_load(&last_ordinal);
}

/* DOCA API reference, GPUNetIO: INVALID_VALUE, NOT_FOUND, NO_MEMORY. */
doca_error_t softdoca_gpu_create(const char *pci, struct doca_gpu **out)
{
	char full[DOCA_DEVINFO_PCI_ADDR_SIZE];
	if (!pci || !softdoca_pci_parse(pci, full))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%s is not a PCI address such as 17:00.0",
			      pci ? pci : "NULL");
	CHECK_OUT(out);
	struct doca_gpu *gpu = softdoca_object_new(OBJECT_GPU, sizeof *gpu);
	if (!gpu)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a GPU");
	memcpy(gpu->pci, full, sizeof gpu->pci);
	gpu->ordinal = -1;
	int gpus = gpu_cuda_count();
	doca_error_t error = gpus ? gpu_cuda_open(gpu, gpus) : DOCA_SUCCESS;
	if (error) {
		softdoca_object_free(gpu);
		return error;
	}
	if (!gpus)
		softdoca_log(DOCA_LOG_LEVEL_WARNING, "doca_gpu_create",
			     "%s is an emulated GPU, its memory is host memory: %s", full,
			     dg_last_error());
	atomic_store(&last_ordinal, gpu->ordinal);
	*out = gpu;
	return DOCA_SUCCESS;
}

static void free_gpu_memory(struct gpu_memory *m)
{
	frame_keys_end_range(m->base, m->mapped);
	if (m->gpu->ordinal >= 0)
		gpu_cuda_free(m);
	if (m->fd >= 0)
		gpu_unmap_shared(m);
	free(m);
}

/* Removes the memory from the list, so that the caller can release it. */
static void unlink_memory(struct gpu_memory *m)
{
	struct gpu_memory **at = &memories;
	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
}

/* Frees the GPU if it was destroyed and has no memory left. */
static void gpu_settle(struct doca_gpu *gpu)
{
	if (object_is(gpu, OBJECT_GPU)) /* not destroyed: softdoca_gpu_destroy() changes what it is */
		return;
	for (struct gpu_memory *m = memories; m; m = m->next)
		if (m->gpu == gpu)
			return;
	if (gpu->ordinal >= 0)
		gpu_cuda_close(gpu);
	softdoca_object_free(gpu);
}

/* Programs destroy it before they free all memory, and rely on SUCCESS. */
doca_error_t softdoca_gpu_destroy(struct doca_gpu *gpu)
{
	CHECK_GPU(gpu);
	const uint32_t exports = atomic_load(&gpu->exports);
	if (exports) /* guess: nobody could end the export without the GPU */
		return REFUSE_FOR("doca_gpu_destroy", DOCA_ERROR_IN_USE,
				  "%u queue pairs are exported: call doca_gpu_verbs_unexport_qp() first",
				  exports);
	pthread_mutex_lock(&lock);
	object_become(gpu, OBJECT_FREE);
	for (struct gpu_memory *m = memories, *next; m; m = next) {
		next = m->next;
		if (m->gpu != gpu)
			continue;
		m->freed = true;
		if (m->users)
			continue;
		unlink_memory(m);
		free_gpu_memory(m);
	}
	gpu_settle(gpu);
	pthread_mutex_unlock(&lock);
	return DOCA_SUCCESS;
}

/* Returns the machine's MemAvailable in bytes; a number above all sizes if /proc does not say. */
static size_t available(void)
{
	size_t kib = SIZE_MAX / 1024;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "re");
	while (f && fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %zu", &kib) != 1)
		;
	if (f)
		fclose(f);
	return kib * 1024;
}

doca_error_t gpu_map_shared(struct gpu_memory *m)
{
	void *at = MAP_FAILED;
	size_t limit = available();
	/* fallocate() would take all memory, and the kernel would end processes for want of it. */
	if (m->mapped > limit)
		return REFUSE_FOR("doca_gpu_mem_alloc", DOCA_ERROR_NO_MEMORY,
				  "%zu bytes are more than the %zu that the machine has available",
				  m->mapped, limit);
	m->fd = memfd_create("softdoca_gpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (m->fd >= 0 && !ftruncate(m->fd, (off_t)m->mapped) &&
	    !fallocate(m->fd, 0, 0, (off_t)m->mapped) &&
	    !fcntl(m->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		at = mmap(NULL, m->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	m->by_cpu = at != MAP_FAILED;
	m->base = at;
	if (m->by_cpu)
		return DOCA_SUCCESS;
	softdoca_log(DOCA_LOG_LEVEL_WARNING, "doca_gpu_mem_alloc", "%zu bytes: %s", m->mapped,
		     strerror(errno));
	if (m->fd >= 0)
		close(m->fd);
	m->fd = -1;
	return DOCA_ERROR_NO_MEMORY;
}

void gpu_unmap_shared(struct gpu_memory *m)
{
	munmap(m->base, m->mapped);
	close(m->fd);
	m->fd = -1;
}

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* DOCA API reference, GPUNetIO: INVALID_VALUE, NO_MEMORY. */
doca_error_t softdoca_gpu_alloc(struct doca_gpu *gpu, size_t size, size_t alignment,
				enum doca_gpu_mem_type type, struct gpu_memory **out)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	CHECK_GPU(gpu);
	if (!size || size > SIZE_MAX / 4 || alignment & (alignment - 1) || alignment > SIZE_MAX / 4)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%zu bytes aligned to %zu: the size must not be 0, and the alignment "
			      "must be a power of two",
			      size, alignment);
	if ((unsigned)type > DOCA_GPU_MEM_TYPE_CPU_GPU)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "memory type %u is not 0 (GPU), 1 (GPU_CPU) or "
			      "2 (CPU_GPU)",
			      (unsigned)type);
	struct gpu_memory *m = calloc(1, sizeof *m);
	if (!m)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a handle");
	*m = (struct gpu_memory){.gpu = gpu, .type = type, .size = size, .fd = -1};
	m->mapped = round_up(size + (alignment > page ? alignment : 0), page);
	doca_error_t error = gpu->ordinal >= 0 ? gpu_cuda_alloc(gpu, m) : gpu_map_shared(m);
	if (error) {
		free(m);
		return error;
	}
	m->addr = (char *)round_up((uintptr_t)m->base, alignment ? alignment : 1);
	pthread_mutex_lock(&lock);
	m->next = memories;
	memories = m;
	pthread_mutex_unlock(&lock);
	*out = m;
	return DOCA_SUCCESS;
}

/* Returns the memory that contains the range. */
static struct gpu_memory *find(const void *addr, size_t size)
{
	struct gpu_memory *m = memories;
	while (m && ((uintptr_t)addr - (uintptr_t)m->addr >= m->size ||
		     size > m->size - ((uintptr_t)addr - (uintptr_t)m->addr)))
		m = m->next;
	return m;
}

doca_error_t softdoca_gpu_free(struct doca_gpu *gpu, void *addr)
{
	CHECK_GPU(gpu);
	pthread_mutex_lock(&lock);
	struct gpu_memory *m = find(addr, 1);
	doca_error_t error = DOCA_SUCCESS;
	if (!m || m->addr != addr || m->gpu != gpu || m->freed)
		error = REFUSE(DOCA_ERROR_INVALID_VALUE,
			       "%p is not memory of doca_gpu_mem_alloc() on this GPU", addr);
	else if (m->users > m->maps)
		error = REFUSE(DOCA_ERROR_IN_USE,
			       "%zu bytes at %p are in use by %u umems and memory regions: destroy "
			       "them first",
			       m->size, addr, m->users);
	else if (m->users)
		m->freed = true;
	else
		unlink_memory(m);
	bool now = !error && !m->users;
	pthread_mutex_unlock(&lock);
	if (now)
		free_gpu_memory(m);
	return error;
}

void gpu_count_map(const void *addr, size_t size, bool one_more)
{
	pthread_mutex_lock(&lock);
	struct gpu_memory *m = find(addr, size);
	if (m)
		m->maps += one_more ? 1 : -1u;
	pthread_mutex_unlock(&lock);
}

static struct gpu_memory *take_and_unlock(struct gpu_memory *m)
{
	if (m)
		m->users++;
	pthread_mutex_unlock(&lock);
	return m;
}

struct gpu_memory *softdoca_gpu_take(const void *addr, size_t size)
{
	pthread_mutex_lock(&lock);
	return take_and_unlock(find(addr, size));
}

struct gpu_memory *softdoca_gpu_take_fd(int fd, char **at)
{
	struct stat s;
	if (fstat(fd, &s))
		return NULL;
	pthread_mutex_lock(&lock);
	struct gpu_memory *m = memories;
	while (m && (m->dmabuf_inode != s.st_ino || m->dmabuf_dev != s.st_dev))
		m = m->next;
	if (m)
		*at = m->gpu->ordinal < 0 ? m->base + lseek(fd, 0, SEEK_CUR) : m->dmabuf_at;
	return take_and_unlock(m);
}

doca_error_t softdoca_gpu_reach(struct gpu_memory *m)
{
	return m->by_cpu ? DOCA_SUCCESS : gpu_cuda_move(m);
}

void softdoca_gpu_drop(struct gpu_memory *m)
{
	pthread_mutex_lock(&lock);
	if (!--m->users && m->freed) {
		struct doca_gpu *gpu = m->gpu;
		unlink_memory(m);
		free_gpu_memory(m);
		gpu_settle(gpu);
	}
	pthread_mutex_unlock(&lock);
}

doca_error_t softdoca_gpu_alloc_own(struct doca_gpu *gpu, size_t size, size_t alignment,
				    enum doca_gpu_mem_type type, struct gpu_memory **out)
{
	TRY(softdoca_gpu_alloc(gpu, size, alignment, type, out));
	pthread_mutex_lock(&lock);
	(*out)->users = 1;
	(*out)->freed = true;
	pthread_mutex_unlock(&lock);
	return DOCA_SUCCESS;
}

/* Opens the memfd again: an fd that shares no position with others. */
static doca_error_t reopen(const struct gpu_memory *m, const char *addr, int *fd)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", m->fd);
	*fd = open(path, O_RDWR | O_CLOEXEC);
	if (*fd < 0)
		return REFUSE(DOCA_ERROR_OPERATING_SYSTEM, "%s: %s", path, strerror(errno));
	lseek(*fd, addr - m->base, SEEK_SET);
	return DOCA_SUCCESS;
}

static doca_error_t export_fd(struct gpu_memory *m, void *addr, size_t size, int *fd)
{
	struct stat s;
	doca_error_t error = m->gpu->ordinal >= 0 ? gpu_cuda_dmabuf(m, addr, size, fd)
						  : reopen(m, addr, fd);
	if (!error && !fstat(*fd, &s)) {
		m->dmabuf_dev = s.st_dev;
		m->dmabuf_inode = s.st_ino;
		m->dmabuf_at = addr;
	}
	return error;
}

/* DOCA API reference, GPUNetIO: INVALID_VALUE, NOT_SUPPORTED. */
doca_error_t softdoca_gpu_dmabuf_fd(struct doca_gpu *gpu, void *addr, size_t size, int *fd)
{
	CHECK_GPU(gpu);
	CHECK_OUT(fd);
	struct gpu_memory *m = softdoca_gpu_take(addr, size);
	if (!m)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%zu bytes at %p are not memory of doca_gpu_mem_alloc()", size, addr);
	doca_error_t error = export_fd(m, addr, size, fd);
	softdoca_gpu_drop(m);
	return error;
}
