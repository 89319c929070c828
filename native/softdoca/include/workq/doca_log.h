/* SPDX-License-Identifier: Apache-2.0 */
/* Log records, as of DOCA 1.3 to 2.2. */
#ifndef DOCA_WORKQ_LOG_H
#define DOCA_WORKQ_LOG_H

#include "../doca_log.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Prints the program's records, which these releases do without it. */
DOCA_STABLE
doca_error_t doca_log_create_standard_backend(void);

#ifdef __cplusplus
}
#endif

#endif
