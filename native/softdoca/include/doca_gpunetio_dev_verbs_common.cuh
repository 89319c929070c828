/* SPDX-License-Identifier: Apache-2.0 */
/* GPUNetIO Verbs for device code, part 1: byte order, fences, atomics, locks. Template parameters and
 * arguments of all parts are those of DOCA and of NVIDIA's open headers. */
#ifndef DOCA_GPUNETIO_DEV_VERBS_COMMON_H
#define DOCA_GPUNETIO_DEV_VERBS_COMMON_H

#ifndef __CUDACC_RTC__
#include <cuda.h>
#endif

#include <doca_gpunetio_dev_verbs_words.cuh>

DOCA_GPUNETIO_DEVICE uint64_t doca_gpu_dev_verbs_query_globaltimer()
{
	uint64_t ns;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
	return ns;
}

DOCA_GPUNETIO_DEVICE unsigned int doca_gpu_dev_verbs_get_lane_id()
{
	unsigned int lane;
	asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
	return lane;
}

DOCA_GPUNETIO_DEVICE uint16_t doca_gpu_dev_verbs_bswap16(uint16_t x)
{
	return (uint16_t)(x << 8 | x >> 8);
}

DOCA_GPUNETIO_DEVICE uint32_t doca_gpu_dev_verbs_bswap32(uint32_t x)
{
	return __byte_perm(x, 0, 0x0123);
}

DOCA_GPUNETIO_DEVICE uint64_t doca_gpu_dev_verbs_bswap64(uint64_t x)
{
	return (uint64_t)doca_gpu_dev_verbs_bswap32((uint32_t)x) << 32 |
	       doca_gpu_dev_verbs_bswap32((uint32_t)(x >> 32));
}

template <enum doca_gpu_dev_verbs_sync_scope scope>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_fence_acquire()
{
	if (scope == DOCA_GPUNETIO_VERBS_SYNC_SCOPE_CTA)
		__threadfence_block();
	else if (scope == DOCA_GPUNETIO_VERBS_SYNC_SCOPE_GPU)
		__threadfence();
	else if (scope == DOCA_GPUNETIO_VERBS_SYNC_SCOPE_SYS)
		__threadfence_system();
}

template <enum doca_gpu_dev_verbs_sync_scope scope>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_fence_release()
{
	doca_gpu_dev_verbs_fence_acquire<scope>(); /* CUDA's fences order in both directions */
}

/* Loads that order all later accesses of the thread behind them. Unlike a fence they do not wait for
 * the thread's earlier stores, which takes as long as a round trip to the CPU. */
DOCA_GPUNETIO_DEVICE uint32_t doca_priv_gpu_dev_verbs_load_acquire_sys(const uint32_t *at)
{
	uint32_t value;
	asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
	return value;
}

DOCA_GPUNETIO_DEVICE uint64_t doca_priv_gpu_dev_verbs_load_acquire_gpu(const uint64_t *at)
{
	uint64_t value;
	asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
	return value;
}

template <typename T, enum doca_gpu_dev_verbs_resource_sharing_mode sharing>
DOCA_GPUNETIO_DEVICE T doca_gpu_dev_verbs_atomic_read(T *at)
{
	if (sharing == DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_EXCLUSIVE)
		return *at;
	return doca_priv_gpu_dev_verbs_read(at);
}

/* Add to and raise a 64-bit word; both return its previous value and order nothing. */
template <typename T, enum doca_gpu_dev_verbs_resource_sharing_mode sharing>
DOCA_GPUNETIO_DEVICE T doca_gpu_dev_verbs_atomic_add(T *at, T value)
{
	unsigned long long *word = (unsigned long long *)at;
	if (sharing == DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_CTA)
		return atomicAdd_block(word, value);
	if (sharing == DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU)
		return atomicAdd(word, value);
	const T old = *at;
	*at = old + value;
	return old;
}

template <typename T, enum doca_gpu_dev_verbs_resource_sharing_mode sharing>
DOCA_GPUNETIO_DEVICE T doca_gpu_dev_verbs_atomic_max(T *at, T value)
{
	unsigned long long *word = (unsigned long long *)at;
	if (sharing == DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_CTA)
		return atomicMax_block(word, value);
	if (sharing == DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU)
		return atomicMax(word, value);
	const T old = *at;
	*at = old < value ? value : old;
	return old;
}

template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_lock(int *lock)
{
	int owner = 1;
	while (owner && sharing != DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_EXCLUSIVE)
		asm volatile("atom.acquire.gpu.cas.b32 %0, [%1], 0, 1;"
			     : "=r"(owner)
			     : "l"(lock)
			     : "memory");
}

template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_unlock(int *lock)
{
	if (sharing != DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_EXCLUSIVE)
		asm volatile("st.release.gpu.u32 [%0], %1;" : : "l"(lock), "r"(0) : "memory");
}

#endif
