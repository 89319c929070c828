/* SPDX-License-Identifier: Apache-2.0 */
/* Own part of these headers: words that other threads or the NIC access meanwhile. */
#ifndef DOCA_GPUNETIO_DEV_VERBS_WORDS_CUH
#define DOCA_GPUNETIO_DEV_VERBS_WORDS_CUH

#include <doca_gpunetio_verbs_dev.h>

#ifdef DG_EMULATED_GPU
#include <cuda/atomic>
#endif

#define DOCA_GPUNETIO_DEVICE __device__ static __forceinline__

/* Relaxed, of the whole system. */
template <typename T> DOCA_GPUNETIO_DEVICE T doca_priv_gpu_dev_verbs_read(T *at)
{
#ifdef DG_EMULATED_GPU /* ThreadSanitizer takes no volatile access for atomic */
	return cuda::atomic_ref<T>(*at).load(cuda::memory_order_relaxed);
#else
	return DOCA_GPUNETIO_VOLATILE(*at);
#endif
}

template <typename T> DOCA_GPUNETIO_DEVICE void doca_priv_gpu_dev_verbs_write(T *at, T value)
{
#ifdef DG_EMULATED_GPU
	cuda::atomic_ref<T>(*at).store(value, cuda::memory_order_relaxed);
#else
	DOCA_GPUNETIO_VOLATILE(*at) = value;
#endif
}

#endif
