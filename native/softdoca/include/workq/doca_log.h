/* SPDX-License-Identifier: Apache-2.0 */
/* Log records, as of DOCA 1.3 to 2.2. */
#ifndef DOCA_WORKQ_LOG_H
#define DOCA_WORKQ_LOG_H

#include "../doca_log.h"
#include "doca_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Prints the program's records, which these releases do without it. */
DOCA_STABLE
doca_error_t doca_log_create_standard_backend(void);

/* Writes the program's and the library's records to a file. Returns INVALID_VALUE or NO_MEMORY, 1.3 NULL. */
struct doca_logger_backend;
DOCA_STABLE
#if SOFTDOCA_NAMED
struct doca_logger_backend *doca_log_create_file_backend(FILE *fptr)
	SOFTDOCA_1_3(log_create_file_backend);
#else
doca_error_t doca_log_create_file_backend(FILE *fptr, struct doca_logger_backend **backend);
#endif

#ifdef __cplusplus
}
#endif

#endif
