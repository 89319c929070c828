/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated GPU runs kernels only, so there are no functions: types for headers that name them. */
#ifndef DGKIT_EMULATED_CUDA_RUNTIME_API_H
#define DGKIT_EMULATED_CUDA_RUNTIME_API_H

#include "cuda.h"

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef enum cudaError { cudaSuccess = 0 } cudaError_t;

#endif
