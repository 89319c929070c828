/* SPDX-License-Identifier: Apache-2.0 */
/* Versions, as texts that can be compared. */
#ifndef DOCA_VERSION_H
#define DOCA_VERSION_H

#include <stddef.h>
#include <stdint.h>

#include "doca_compat.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version whose API these headers follow. */
#define DOCA_VER_MAJOR 3
#define DOCA_VER_MINOR 0
#define DOCA_VER_PATCH 58
#define DOCA_VER_STRING "3.0.0058"

/* The version of these headers. */
static inline const char *doca_version(void)
{
	return DOCA_VER_STRING;
}

/* The version of the library that runs: that of the API it follows, so what doca_version() gives if
 * headers and library belong together. The text is the library's own and stays. */
DOCA_EXPERIMENTAL
const char *doca_version_runtime(void);

#ifdef __cplusplus
}
#endif

#endif
