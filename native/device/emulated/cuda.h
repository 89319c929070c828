/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels need of CUDA's header, for the emulated GPU. */
#ifndef DGKIT_EMULATED_CUDA_H
#define DGKIT_EMULATED_CUDA_H

#include "../emulated_gpu.h"

#ifndef CUDA_VERSION
#define CUDA_VERSION 13000
#endif

#endif
