// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of a GPU that peers can import. The processes that use the adapter copy each other's memory by CUDA, for
 * which it needs a handle; an adapter in hardware does not, so programs allocate some without (NCCL: GIN's signals).
 * cuMemCreate() of such memory gets one here. Programs find the driver's functions by dlsym() and cuGetProcAddress(),
 * which are therefore replaced, too.
 */
#include <dlfcn.h>
#include <string.h>

#include "preload.h"
#include "providers/cuda_api.h"

#ifdef __x86_64__
#define DLSYM_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define DLSYM_VERSION "GLIBC_2.17"
#else
#error "which version of the C library has dlsym() first?"
#endif

typedef CUresult create_function(CUmemHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
typedef CUresult find_function(const char *, void **, int, uint64_t, void *);
typedef CUresult find_function_1(const char *, void **, int, uint64_t);

static create_function *real_create;
static find_function *real_find;
static find_function_1 *real_find_1;

static CUresult create(CUmemHandle *handle, size_t size, const CUmemAllocationProp *given, unsigned long long flags)
{
	if (given && given->type == CU_MEM_ALLOCATION_TYPE_PINNED && !given->requestedHandleTypes &&
	    given->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
		CUmemAllocationProp p = *given;
		p.requestedHandleTypes = CU_MEM_HANDLE_POSIX_FD;
		if (!real_create(handle, size, &p, flags))
			return CUDA_SUCCESS;
	}
	return real_create(handle, size, given, flags);
}

static void take(const char *name, int version, void **found);

static CUresult find(const char *name, void **found, int version, uint64_t flags, void *status)
{
	const CUresult code = real_find(name, found, version, flags, status);
	if (!code && name && found)
		take(name, version, found);
	return code;
}

static CUresult find_1(const char *name, void **found, int version, uint64_t flags)
{
	const CUresult code = real_find_1(name, found, version, flags);
	if (!code && name && found)
		take(name, version, found);
	return code;
}

/* Replaces a function of the driver, in the version of CUDA that was asked for. libcudart asks cuGetProcAddress() for
 * itself, and gives that to cudaGetDriverEntryPoint(). */
static void take(const char *name, int version, void **found)
{
	void *ours = *found;
	if (!ours || ours == (void *)create || ours == (void *)find || ours == (void *)find_1)
		return;
	if (!strcmp(name, "cuMemCreate")) {
		real_create = (create_function *)ours;
		*found = (void *)create;
	} else if (!strcmp(name, "cuGetProcAddress_v2") || (!strcmp(name, "cuGetProcAddress") && version >= 12000)) {
		real_find = (find_function *)ours;
		*found = (void *)find;
	} else if (!strcmp(name, "cuGetProcAddress")) {
		real_find_1 = (find_function_1 *)ours;
		*found = (void *)find_1;
	}
}

/* For RTLD_NEXT and RTLD_DEFAULT the C library's function looks from its caller's library, so it must return there: that
 * call is a jump, which the compiler makes of it with -O2. Sanitizers call it before they have started. */
__attribute__((optimize("O2"), no_sanitize("address", "undefined", "thread"))) VISIBLE void *dlsym(void *restrict handle, const char *restrict name)
{
	static void *(*real)(void *restrict, const char *restrict);
	if (!real)
		real = (__typeof__(real))dlvsym(RTLD_NEXT, "dlsym", DLSYM_VERSION);
	if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || name[0] != 'c' || name[1] != 'u' ||
	    (strcmp(name, "cuMemCreate") && strncmp(name, "cuGetProcAddress", 16)))
		return real(handle, name);
	void *found = real(handle, name);
	take(name, 0, &found);
	return found;
}
