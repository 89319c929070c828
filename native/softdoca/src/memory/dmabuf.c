// SPDX-License-Identifier: Apache-2.0
/*
 * Memory behind a dma-buf. A udmabuf is mapped and used as host memory. GPU memory cannot be
 * mapped: the fd is only checked, the allocation is looked up by its address, and copies use
 * dgkit's CUDA import. That of an emulated GPU, whose fd is a memfd, is host memory. Sources: "DOCA
 * Mmap" is the published reference of that library; "guess" marks an assumption that no published
 * source confirms.
 */
#include "gpu/gpu.h"
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "providers/cuda_pointer.h"

struct request {
	int fd; /* belongs to the program */
	char *addr;
	size_t offset, len;
};

void dmabuf_drop(struct doca_mmap *m)
{
	if (m->window)
		munmap(m->window, m->mapped);
	if (m->dmabuf_fd >= 0)
		close(m->dmabuf_fd);
	if (m->gpu.fd >= 0)
		close(m->gpu.fd);
	m->window = NULL;
	m->dmabuf_fd = m->gpu.fd = -1;
}

/* The fdinfo of a dma-buf names its exporter, and the link in /proc/self/fd begins with the name of
 * its file system. */
static bool is_dmabuf(int fd)
{
	char path[64], line[256];
	bool found = false;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, line, sizeof line - 1);
	if (n >= 7 && !memcmp(line, "/dmabuf", 7))
		return true;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	FILE *f = n < 0 ? NULL : fopen(path, "re");
	if (!f)
		return false;
	while (!found && fgets(line, sizeof line, f))
		found = !strncmp(line, "exp_name:", 9);
	fclose(f);
	return found;
}

void *softdoca_share_pins(void *theirs)
{
	return dg_cuda_share_pins(theirs);
}

int dmabuf_find_gpu(struct doca_mmap *m)
{
	dg_memory found;
	TRY(dg_cuda_pointer_query(m->addr, m->len, &found));
	if (m->gpu.fd >= 0)
		close(m->gpu.fd);
	m->gpu = found;
	m->backing = BACKING_GPU;
	return 0;
}

/* mmap takes whole pages. */
static doca_error_t map(struct doca_mmap *m, const struct request *r)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = r->offset % page;
	if (r->len > SIZE_MAX - skip)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%zu bytes are not a valid range of memory",
			      r->len);
	off_t at = (off_t)(r->offset - skip);
	char *window =
		mmap(NULL, r->len + skip, PROT_READ | PROT_WRITE, MAP_SHARED, m->dmabuf_fd, at);
	if (window == MAP_FAILED && errno == EACCES)
		window = mmap(NULL, r->len + skip, PROT_READ, MAP_SHARED, m->dmabuf_fd, at);
	if (window == MAP_FAILED)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "the dma-buf cannot be mapped (%s), and %p is not GPU memory "
			      "of this process",
			      strerror(errno), (void *)r->addr);
	m->window = window;
	m->mapped = r->len + skip;
	m->base = window + skip;
	m->backing = BACKING_HOST;
	return DOCA_SUCCESS;
}

static doca_error_t back_range(struct doca_mmap *m, const struct request *r)
{
	m->addr = r->addr;
	m->len = r->len;
	int rc = dmabuf_find_gpu(m);
	if (rc == -ERANGE) /* DOCA Mmap: invalid input */
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%s", dg_last_error());
	if (!rc) {
		softdoca_log(DOCA_LOG_LEVEL_INFO, "doca_mmap_set_dmabuf_memrange",
			     "dma-buf identity only: %zu bytes at %p are GPU memory, whose bytes "
			     "move by CUDA",
			     r->len, (void *)r->addr);
		return DOCA_SUCCESS;
	}
	return map(m, r);
}

/* Memory of an emulated GPU, which the CPU reaches at the address that the GPU has. Returns whether the
 * fd is of such memory. */
static bool set_emulated(struct doca_mmap *m, const struct request *r, doca_error_t *e)
{
	char *begin;
	struct gpu_memory *memory = softdoca_gpu_take_fd(r->fd, &begin);
	bool emulated = memory && memory->gpu->ordinal < 0;
	if (emulated && !range_within((char *)((uintptr_t)begin + r->offset), r->len, memory->addr,
				      memory->size)) {
		*e = REFUSE(DOCA_ERROR_INVALID_VALUE,
			    "%zu bytes at offset %zu exceed the allocation of %zu bytes", r->len,
			    r->offset, memory->size);
	} else if (emulated) {
		m->addr = r->addr;
		m->base = begin + r->offset;
		m->len = r->len;
		m->backing = BACKING_HOST;
	}
	if (memory)
		softdoca_gpu_drop(memory);
	return emulated;
}

static doca_error_t set_range(struct doca_mmap *m, const struct request *r)
{
	doca_error_t e = mmap_may_take_range(m, "doca_mmap_set_dmabuf_memrange");
	if (e || set_emulated(m, r, &e))
		return e;
	if (!is_dmabuf(r->fd))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "fd %d is not a dma-buf", r->fd);
	/* SEEK_END gives the size of a dma-buf. */
	off_t end = lseek(r->fd, 0, SEEK_END);
	if (end >= 0 && (r->offset > (size_t)end || r->len > (size_t)end - r->offset))
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%zu bytes at offset %zu exceed the dma-buf of %lld bytes", r->len,
			      r->offset, (long long)end);
	m->dmabuf_fd = fcntl(r->fd, F_DUPFD_CLOEXEC, 3);
	if (m->dmabuf_fd < 0)
		return REFUSE(DOCA_ERROR_OPERATING_SYSTEM, "fd %d: %s", r->fd, strerror(errno));
	e = back_range(m, r);
	if (!e)
		return DOCA_SUCCESS;
	dmabuf_drop(m);
	m->addr = m->base = NULL;
	m->len = 0;
	return e;
}

doca_error_t doca_mmap_set_dmabuf_memrange(struct doca_mmap *mmap, int dmabuf_fd, void *addr,
					   size_t dmabuf_offset, size_t len)
{
	CHECK_MMAP(mmap);
	if (!addr || !len || (uintptr_t)addr + len < len || dmabuf_offset + len < len)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%zu bytes at %p, offset %zu in the dma-buf, are not a valid range "
			      "of memory",
			      len, addr, dmabuf_offset);
	const struct request r = {dmabuf_fd, addr, dmabuf_offset, len};
	mmap_lock(mmap);
	doca_error_t e = set_range(mmap, &r);
	mmap_unlock(mmap);
	return e;
}
