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

/* Version of the API that these headers declare: see doca_releases.h. */
#if SOFTDOCA_SINCE(303)
#define DOCA_VER_MAJOR 3
#define DOCA_VER_MINOR 3
#define DOCA_VER_PATCH 0
#define DOCA_VER_STRING "3.3.0"
#elif SOFTDOCA_SINCE(302)
#define DOCA_VER_MAJOR 3
#define DOCA_VER_MINOR 2
#define DOCA_VER_PATCH 118
#define DOCA_VER_STRING "3.2.0118"
#elif SOFTDOCA_SINCE(301)
#define DOCA_VER_MAJOR 3
#define DOCA_VER_MINOR 1
#define DOCA_VER_PATCH 105
#define DOCA_VER_STRING "3.1.0105"
#elif SOFTDOCA_SINCE(300)
#define DOCA_VER_MAJOR 3
#define DOCA_VER_MINOR 0
#define DOCA_VER_PATCH 58
#define DOCA_VER_STRING "3.0.0058"
#elif SOFTDOCA_SINCE(210)
#define DOCA_VER_MAJOR 2
#define DOCA_VER_MINOR 10
#define DOCA_VER_PATCH 87
#define DOCA_VER_STRING "2.10.0087"
#elif SOFTDOCA_SINCE(209)
#define DOCA_VER_MAJOR 2
#define DOCA_VER_MINOR 9
#define DOCA_VER_PATCH 72
#define DOCA_VER_STRING "2.9.0072"
#elif SOFTDOCA_SINCE(208)
#define DOCA_VER_MAJOR 2
#define DOCA_VER_MINOR 8
#define DOCA_VER_PATCH 82
#define DOCA_VER_STRING "2.8.0082"
#elif SOFTDOCA_SINCE(207)
#define DOCA_VER_MAJOR 2
#define DOCA_VER_MINOR 7
#define DOCA_VER_PATCH 85
#define DOCA_VER_STRING "2.7.0085"
#else
#define DOCA_VER_MAJOR 2
#define DOCA_VER_MINOR 5
#define DOCA_VER_PATCH 108
#define DOCA_VER_STRING "2.5.0108"
#endif

/* Returns the version of these headers. */
static inline const char *doca_version(void)
{
	return DOCA_VER_STRING;
}

/* Returns the version of the API that the loaded library implements, which equals doca_version() of a program
 * for the newest release. The text is constant. */
DOCA_EXPERIMENTAL
const char *doca_version_runtime(void);

#ifdef __cplusplus
}
#endif

#endif
