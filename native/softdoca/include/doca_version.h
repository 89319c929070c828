/* SPDX-License-Identifier: Apache-2.0 */
/* Version strings, which can be compared. */
#ifndef DOCA_VERSION_H
#define DOCA_VERSION_H

#include <stddef.h>
#include <stdint.h>

#include "doca_compat.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the API that these headers declare. */
#define DOCA_VER_MAJOR 3
#define DOCA_VER_MINOR 0
#define DOCA_VER_PATCH 58
#define DOCA_VER_STRING "3.0.0058"

/* Returns the version of these headers. */
static inline const char *doca_version(void)
{
	return DOCA_VER_STRING;
}

/* Returns the version of the API that the loaded library implements, which equals doca_version()
 * if headers and library match. The text is constant. */
DOCA_EXPERIMENTAL
const char *doca_version_runtime(void);

#ifdef __cplusplus
}
#endif

#endif
