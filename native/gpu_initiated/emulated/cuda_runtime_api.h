/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's runtime, as far as programs with GPUNetIO kernels use it. host.cpp has the functions; a
 * source that emulate() compiles has kernels only, and needs the types. */
#ifndef DGKIT_EMULATED_CUDA_RUNTIME_API_H
#define DGKIT_EMULATED_CUDA_RUNTIME_API_H

#include <stddef.h>

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDART_VERSION CUDA_VERSION
#define cudaStreamNonBlocking 1u

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef enum cudaError {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInvalidDevice = 101,
	cudaErrorLaunchFailure = 719
} cudaError_t;
enum cudaMemcpyKind {
	cudaMemcpyHostToHost = 0,
	cudaMemcpyHostToDevice = 1,
	cudaMemcpyDeviceToHost = 2,
	cudaMemcpyDeviceToDevice = 3,
	cudaMemcpyDefault = 4
};

struct cudaDeviceProp {
	char name[256];
	int major, minor; /* compute capability */
};

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetPCIBusId(char *address, int size, int device);
cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *address);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaMalloc(void **memory, size_t size);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind);
cudaError_t cudaMemset(void *memory, int value, size_t size);
cudaError_t cudaMemsetAsync(void *memory, int value, size_t size, cudaStream_t stream);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t error);

#ifdef __cplusplus
}

template <class T> cudaError_t cudaMalloc(T **memory, size_t size)
{
	return cudaMalloc((void **)memory, size);
}

/* A grid that starts later sees it. */
template <class T>
cudaError_t cudaMemcpyToSymbol(const T &symbol, const void *from, size_t size, size_t offset = 0,
			       cudaMemcpyKind kind = cudaMemcpyHostToDevice)
{
	return cudaMemcpy((char *)&symbol + offset, from, size, kind);
}
#endif

#endif
