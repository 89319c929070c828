/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the host that the GPUs may reach: registered, or allocated as such. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static struct host *hosts;

/* The one that holds all of these bytes. */
struct host *host_at(uintptr_t address, size_t size)
{
	for (struct host *host = hosts; host; host = host->next)
		if (address >= host->start && address + size <= host->start + host->size)
			return host;
	return NULL;
}

static bool overlaps(uintptr_t start, size_t size)
{
	for (struct host *host = hosts; host; host = host->next)
		if (start < host->start + host->size && host->start < start + size)
			return true;
	return false;
}

static void add(uintptr_t start, size_t size, unsigned int flags, bool owned)
{
	struct host *host = malloc(sizeof(*host));

	*host = (struct host){hosts, start, size, flags, owned};
	hosts = host;
}

/* Takes out what begins there. The caller frees it. */
static struct host *take(uintptr_t start, bool owned)
{
	struct host **at = &hosts, *host;

	while (*at && ((*at)->start != start || (*at)->owned != owned))
		at = &(*at)->next;
	host = *at;
	if (host)
		*at = host->next;
	return host;
}

/* Whether there is memory at all of these addresses that can be read, and written if asked for. */
static bool is_there(uintptr_t start, size_t size, bool write)
{
	uintptr_t end = start + size;
	unsigned long first, last;
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512], rights[5];

	while (file && start < end && fgets(line, sizeof(line), file))
		if (sscanf(line, "%lx-%lx %4s", &first, &last, rights) == 3 && start >= first &&
		    start < last && rights[0] == 'r' && (!write || rights[1] == 'w'))
			start = last;
	if (file)
		fclose(file);
	return start >= end;
}

EXPORT CUresult cuMemHostRegister_v2(void *bytes, size_t size, unsigned int flags)
{
	struct context *context;
	int code = CUDA_SUCCESS;

	ENTER(gate_context, &context);
	if (!bytes || !size || flags & ~15u ||
	    !is_there((uintptr_t)bytes, size, !(flags & HOST_READ_ONLY)))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_rwlock_wrlock(&maps);
	if (overlaps((uintptr_t)bytes, size))
		code = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	else if (range_overlaps((uintptr_t)bytes, size))
		code = CUDA_ERROR_INVALID_VALUE;
	else
		add((uintptr_t)bytes, size, flags, false);
	pthread_rwlock_unlock(&maps);
	return code;
}

EXPORT CUresult cuMemHostUnregister(void *bytes)
{
	struct context *context;
	struct host *host;
	int code;

	ENTER(gate_context, &context);
	code = context_wait(context);
	if (code)
		return code;
	pthread_rwlock_wrlock(&maps);
	host = take((uintptr_t)bytes, false);
	pthread_rwlock_unlock(&maps);
	free(host);
	return host ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

EXPORT CUresult cuMemHostAlloc(void **bytes, size_t size, unsigned int flags)
{
	struct context *context;

	ENTER(gate_context, &context);
	if (!bytes || !size || flags & ~7u)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (*bytes == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_rwlock_wrlock(&maps);
	add((uintptr_t)*bytes, size, flags | HOST_DEVICEMAP, true);
	pthread_rwlock_unlock(&maps);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAllocHost_v2(void **bytes, size_t size)
{
	return cuMemHostAlloc(bytes, size, 0);
}

EXPORT CUresult cuMemFreeHost(void *bytes)
{
	struct context *context;
	struct host *host;
	int code;

	ENTER(gate_context, &context);
	code = context_wait(context);
	if (code)
		return code;
	pthread_rwlock_wrlock(&maps);
	host = take((uintptr_t)bytes, true);
	if (host)
		munmap(bytes, host->size);
	pthread_rwlock_unlock(&maps);
	free(host);
	return host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *bytes, unsigned int flags)
{
	struct context *context;
	bool known;

	ENTER(gate_context, &context);
	if (!address || flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_rwlock_rdlock(&maps);
	known = host_at((uintptr_t)bytes, 1);
	pthread_rwlock_unlock(&maps);
	if (!known)
		return CUDA_ERROR_INVALID_VALUE;
	*address = (uintptr_t)bytes;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemHostGetFlags(unsigned int *flags, void *bytes)
{
	struct host *host;

	ENTER(gate);
	pthread_rwlock_rdlock(&maps);
	host = host_at((uintptr_t)bytes, 1);
	if (host)
		*flags = host->flags;
	pthread_rwlock_unlock(&maps);
	return host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
