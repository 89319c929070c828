/* SPDX-License-Identifier: Apache-2.0 */
/* Own part of the Ethernet headers: threads that call a function together, and words that the NIC
 * accesses meanwhile. */
#ifndef DOCA_GPUNETIO_DEV_ETH_COMMON_CUH
#define DOCA_GPUNETIO_DEV_ETH_COMMON_CUH

#ifndef __CUDACC_RTC__
#include <cuda.h>
#endif

#include <doca_gpunetio_verbs_dev.h>
#include <doca_error.h>
#include <doca_gpunetio_dev_verbs_words.cuh>
#include <doca_gpunetio_eth_dev.h>

DOCA_GPUNETIO_DEVICE uint32_t doca_gpu_dev_eth_get_lane_id()
{
	uint32_t lane;
	asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
	return lane;
}

DOCA_GPUNETIO_DEVICE uint64_t doca_priv_gpu_dev_eth_now_ns()
{
	uint64_t ns;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
	return ns;
}

DOCA_GPUNETIO_DEVICE uint64_t doca_priv_gpu_dev_eth_load_acquire(const uint64_t *at)
{
	uint64_t value;
	asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
	return value;
}

/* Number of threads of a scope, and the caller's rank among them. */
template <enum doca_gpu_dev_eth_exec_scope scope>
DOCA_GPUNETIO_DEVICE uint32_t doca_priv_gpu_dev_eth_threads()
{
	return scope == DOCA_GPUNETIO_ETH_EXEC_SCOPE_BLOCK ? blockDim.x * blockDim.y * blockDim.z
	       : scope == DOCA_GPUNETIO_ETH_EXEC_SCOPE_WARP ? DOCA_GPUNETIO_ETH_WARP_SIZE
							     : 1;
}

template <enum doca_gpu_dev_eth_exec_scope scope>
DOCA_GPUNETIO_DEVICE uint32_t doca_priv_gpu_dev_eth_rank()
{
	return scope == DOCA_GPUNETIO_ETH_EXEC_SCOPE_BLOCK
		       ? threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)
	       : scope == DOCA_GPUNETIO_ETH_EXEC_SCOPE_WARP ? doca_gpu_dev_eth_get_lane_id()
							     : 0;
}

template <enum doca_gpu_dev_eth_exec_scope scope> DOCA_GPUNETIO_DEVICE void doca_priv_gpu_dev_eth_sync()
{
	if (scope == DOCA_GPUNETIO_ETH_EXEC_SCOPE_BLOCK)
		__syncthreads();
	else if (scope == DOCA_GPUNETIO_ETH_EXEC_SCOPE_WARP)
		__syncwarp();
}

/* Returns the value of the thread of rank 0. */
template <enum doca_gpu_dev_eth_exec_scope scope>
DOCA_GPUNETIO_DEVICE uint64_t doca_priv_gpu_dev_eth_from_first(uint64_t value)
{
	if (scope == DOCA_GPUNETIO_ETH_EXEC_SCOPE_WARP)
		return __shfl_sync(DOCA_GPUNETIO_ETH_WARP_FULL_MASK, value, 0);
	if (scope == DOCA_GPUNETIO_ETH_EXEC_SCOPE_BLOCK) {
		__shared__ uint64_t first;
		if (doca_priv_gpu_dev_eth_rank<scope>() == 0)
			first = value;
		__syncthreads();
		value = first;
		__syncthreads(); /* before `first` is written again */
	}
	return value;
}

template <enum doca_gpu_dev_eth_resource_sharing_mode sharing>
DOCA_GPUNETIO_DEVICE uint64_t doca_priv_gpu_dev_eth_add(uint64_t *at, uint64_t value)
{
	unsigned long long *word = (unsigned long long *)at;
	if (sharing == DOCA_GPUNETIO_ETH_RESOURCE_SHARING_MODE_CTA)
		return atomicAdd_block(word, value);
	if (sharing == DOCA_GPUNETIO_ETH_RESOURCE_SHARING_MODE_GPU)
		return atomicAdd(word, value);
	const uint64_t old = *at;
	*at = old + value;
	return old;
}

#endif
