/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated GPU runs kernels only: there is no runtime library. */
#include "cuda.h"
