/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels need of CUDA's header, for the emulated GPU. */
#ifndef DGKIT_EMULATED_CUDA_H
#define DGKIT_EMULATED_CUDA_H

#ifdef __cplusplus
#include "../emulated_gpu.h"
#endif

#ifndef CUDA_VERSION
#define CUDA_VERSION 13000
#endif

#endif
