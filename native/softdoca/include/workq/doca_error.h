/* SPDX-License-Identifier: Apache-2.0 */
/* Results of calls, as of DOCA 1.3 to 2.2. */
#ifndef DOCA_WORKQ_ERROR_H
#define DOCA_WORKQ_ERROR_H

#include "../doca_error.h"

/* The marker of these releases. */
#define __DOCA_EXPERIMENTAL DOCA_EXPERIMENTAL

/* SOFTDOCA_DOCA is the release that pkg-config declares: 103, or 202 for 1.5 to 2.2. Functions of
 * 1.3 that had other parameters later are softdoca's functions of another name. */
#if defined(SOFTDOCA_DOCA) && SOFTDOCA_DOCA < 105
#define SOFTDOCA_NAMED 1
#define SOFTDOCA_1_3(name) __asm__("softdoca_1_3_" #name)
#else
#define SOFTDOCA_NAMED 0
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Returns a short description, never NULL. */
DOCA_STABLE
const char *doca_get_error_string(doca_error_t error);

/* Returns the name, for example "DOCA_ERROR_IN_USE". */
DOCA_STABLE
const char *doca_get_error_name(doca_error_t error);

#ifdef __cplusplus
}
#endif

#endif
