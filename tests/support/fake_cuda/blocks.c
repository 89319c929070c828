/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of GPU memory, each a memfd, and the ranges of addresses where they are mapped. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EDGE = 1 << 20, STALE = 0xdb };

pthread_rwlock_t maps;
static struct block *blocks;
static struct range *ranges;
static uint64_t last_id;

/* A writer is not kept waiting by an endless row of copies. */
__attribute__((constructor)) static void begin(void)
{
	pthread_rwlockattr_t how;

	pthread_rwlockattr_init(&how);
	pthread_rwlockattr_setkind_np(&how, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&maps, &how);
}

size_t used(CUdevice device)
{
	size_t sum = 0;

	for (struct block *block = blocks; block; block = block->next)
		if (block->device == device && !block->imported && block->kind != MANAGED)
			sum += block->size;
	return sum;
}

/* New memory of a GPU is not zero: it holds what somebody left. Both ends are enough to show it. */
static void leave_something(int fd, size_t size)
{
	size_t edge = size < EDGE ? size : EDGE;
	char *bytes = malloc(edge);

	memset(bytes, STALE, edge);
	if (pwrite(fd, bytes, edge, 0) < 0 || pwrite(fd, bytes, edge, (off_t)(size - edge)) < 0)
		perror("dgkit fake CUDA: pwrite");
	free(bytes);
}

static struct block *block_add(enum kind kind, CUdevice device, int fd, size_t size)
{
	struct block *block = calloc(1, sizeof(*block));

	block->kind = kind;
	block->fd = fd;
	block->device = device;
	block->size = size;
	block->id = ++last_id;
	block->next = blocks;
	return blocks = block;
}

struct block *block_new(enum kind kind, CUdevice device, size_t size, int *code)
{
	char name[32];
	int fd;

	*code = CUDA_ERROR_OUT_OF_MEMORY;
	size = (size + PAGE - 1) / PAGE * PAGE;
	if (kind != MANAGED && (size > knobs().total || used(device) > knobs().total - size))
		return NULL;
	snprintf(name, sizeof(name), BLOCK_NAME "%d", device);
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd >= 0 && !ftruncate(fd, (off_t)size)) {
		*code = CUDA_SUCCESS;
		leave_something(fd, size);
		return block_add(kind, device, fd, size);
	}
	if (fd >= 0)
		close(fd);
	return NULL;
}

/* The block that an fd from another process names. Takes the fd only where it is one. */
struct block *block_import(int fd)
{
	char link[32], name[64];
	struct stat stat;
	ssize_t length;
	int device;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, name, sizeof(name) - 1);
	if (length < 0 || fstat(fd, &stat))
		return NULL;
	name[length] = '\0';
	if (sscanf(name, "/memfd:" BLOCK_NAME "%d", &device) != 1 || !is_device(device))
		return NULL;
	struct block *block = block_add(VMM, device, fd, (size_t)stat.st_size);
	block->imported = true;
	return block;
}

struct block *block_of(CUhandle handle)
{
	for (struct block *block = blocks; block; block = block->next)
		if ((CUhandle)(uintptr_t)block == handle && block->handles)
			return block;
	return NULL;
}

/* Frees a block that no handle and no mapping names. */
void block_put(struct block *block)
{
	struct block **at = &blocks;

	if (block->handles || block->maps)
		return;
	while (*at != block)
		at = &(*at)->next;
	*at = block->next;
	close(block->fd);
	free(block);
}

/* Maps a block: at an address that is reserved, or, for `at` 0, where there is room. */
struct range *range_new(struct block *block, uintptr_t at, size_t size, int protection)
{
	size_t mapped = (size + PAGE - 1) / PAGE * PAGE;
	int flags = MAP_SHARED | (at ? MAP_FIXED : 0);
	void *bytes = mmap((void *)at, mapped, protection, flags, block->fd, 0);
	struct range *range;

	if (bytes == MAP_FAILED)
		return NULL;
	range = calloc(1, sizeof(*range));
	range->block = block;
	range->start = (uintptr_t)bytes;
	range->size = size;
	range->mapped = mapped;
	range->next = ranges;
	block->maps++;
	return ranges = range;
}

void range_free(struct range *range, bool keep_reserved)
{
	struct range **at = &ranges;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;

	while (*at != range)
		at = &(*at)->next;
	*at = range->next;
	if (keep_reserved)
		mmap((void *)range->start, range->mapped, PROT_NONE, flags, -1, 0);
	else
		munmap((void *)range->start, range->mapped);
	range->block->maps--;
	block_put(range->block);
	free(range);
}

struct range *range_first(void)
{
	return ranges;
}

struct range *range_at(uintptr_t address)
{
	for (struct range *range = ranges; range; range = range->next)
		if (address - range->start < range->size)
			return range;
	return NULL;
}

bool range_overlaps(uintptr_t address, size_t size)
{
	for (struct range *range = ranges; range; range = range->next)
		if (address < range->start + range->mapped && range->start < address + size)
			return true;
	return false;
}

/* Whether a GPU reaches all of these bytes: ranges that lie side by side, or memory of the host. */
bool reachable(uintptr_t address, size_t size, CUdevice device, bool write)
{
	int needed = write ? ACCESS_READWRITE : ACCESS_READ;

	if (host_at(address, size))
		return true;
	while (size) {
		struct range *range = range_at(address);
		size_t here;

		if (!range || (range->access[device] & needed) != needed)
			return false;
		here = range->start + range->size - address;
		if (here >= size)
			return true;
		address += here;
		size -= here;
	}
	return true;
}
