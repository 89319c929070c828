/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels and host code need of CUDA's header, for the emulated GPU; host.cpp has the functions. */
#ifndef DGKIT_EMULATED_CUDA_H
#define DGKIT_EMULATED_CUDA_H

#ifdef __cplusplus
#include "../emulated_gpu.h"
#endif

#ifndef CUDA_VERSION
#define CUDA_VERSION 13000
#endif

typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef enum cudaError_enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_LAUNCH_FAILED = 719
} CUresult;
typedef enum CUevent_flags_enum {
	CU_EVENT_DEFAULT = 0,
	CU_EVENT_BLOCKING_SYNC = 1,
	CU_EVENT_DISABLE_TIMING = 2
} CUevent_flags;

#ifdef __cplusplus
extern "C" {
#endif

CUresult cuEventCreate(CUevent *event, unsigned int flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventSynchronize(CUevent event);
/* In milliseconds, from the end of one recorded event to that of the other, as far as the program waited for
 * them: a grid that nobody waits for has no time of its own. */
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);
CUresult cuEventDestroy(CUevent event);

#ifdef __cplusplus
}
#endif

#endif
