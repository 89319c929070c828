/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA IPC: a handle names the memfd of a block as /proc shows it, while its owner lives. */
#include "state.h"

#include <stdio.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "dgkit fake GPU"

struct ticket { /* what lies in a CUipcMemHandle */
	char magic[16];
	int pid, fd;
	int device;
	uint64_t inode, size;
};

_Static_assert(sizeof(struct ticket) <= sizeof(CUipcMemHandle), "a ticket must fit");

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
	struct ticket ticket = {.magic = MAGIC, .pid = getpid()};
	struct context *context;
	struct range *range;
	struct stat stat;

	ENTER(gate_context, &context);
	pthread_rwlock_rdlock(&maps);
	range = range_at(address);
	if (range && (range->block->kind != LINEAR || range->block->imported ||
		      fstat(range->block->fd, &stat)))
		range = NULL;
	if (range) {
		ticket.fd = range->block->fd;
		ticket.device = range->block->device;
		ticket.size = range->size;
		ticket.inode = stat.st_ino;
		memset(handle, 0, sizeof(*handle));
		memcpy(handle, &ticket, sizeof(ticket));
	}
	pthread_rwlock_unlock(&maps);
	return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The memfd that a ticket names, while its owner lives and has it; or -1. */
static int open_ticket(const struct ticket *ticket)
{
	char path[64];
	struct stat stat;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", ticket->pid, ticket->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && (fstat(fd, &stat) || stat.st_ino != ticket->inode)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static struct range *opened(const struct ticket *ticket)
{
	struct stat stat;

	for (struct range *range = range_first(); range; range = range->next)
		if (range->opens && !fstat(range->block->fd, &stat) && stat.st_ino == ticket->inode)
			return range;
	return NULL;
}

static struct range *open_range(const struct ticket *ticket)
{
	struct range *range = opened(ticket);
	struct block *block;
	int fd;

	if (range)
		return range;
	fd = open_ticket(ticket);
	block = fd < 0 ? NULL : block_import(fd);
	if (!block) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	block->kind = LINEAR;
	range = range_new(block, 0, ticket->size, PROT_READ | PROT_WRITE);
	if (!range)
		block_put(block);
	else
		memset(range->access, ACCESS_READWRITE, sizeof(range->access));
	return range;
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle,
				      unsigned int flags)
{
	struct context *context;
	struct ticket ticket;
	struct range *range;

	ENTER(gate_context, &context);
	memcpy(&ticket, &handle, sizeof(ticket));
	if (flags != 1 || memcmp(ticket.magic, MAGIC, sizeof(MAGIC)))
		return CUDA_ERROR_INVALID_VALUE;
	if (ticket.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_rwlock_wrlock(&maps);
	range = open_range(&ticket);
	if (range) {
		range->opens++;
		*address = range->start;
	}
	pthread_rwlock_unlock(&maps);
	return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
	struct context *context;
	struct range *range;
	int code;

	ENTER(gate_context, &context);
	code = context_wait(context);
	if (code)
		return code;
	pthread_rwlock_wrlock(&maps);
	range = range_at(address);
	if (range && (range->start != address || !range->opens))
		range = NULL;
	if (range && !--range->opens)
		range_free(range, false);
	pthread_rwlock_unlock(&maps);
	return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
