/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log records of programs and of the library. Nothing is written without a backend, except that
 * SOFTDOCA_LOG=LEVEL sends the library's records to stderr. All functions are thread-safe. They
 * return INVALID_VALUE for NULL and for invalid values.
 */
#ifndef DOCA_LOG_H
#define DOCA_LOG_H

/* string.h: programs use memcmp and include only this header and doca_error.h. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "doca_compat.h"
#include "doca_error.h"

#ifdef __cplusplus
extern "C" {
#endif

#include <stdio.h>

struct doca_log_backend;

enum doca_log_level {
	DOCA_LOG_LEVEL_DISABLE = 10,
	DOCA_LOG_LEVEL_CRIT = 20,
	DOCA_LOG_LEVEL_ERROR = 30,
	DOCA_LOG_LEVEL_WARNING = 40,
	DOCA_LOG_LEVEL_INFO = 50,
	DOCA_LOG_LEVEL_DEBUG = 60,
	DOCA_LOG_LEVEL_TRACE = 70,
};

/* Names the source of the records of a file. A semicolon may follow. */
#define DOCA_LOG_REGISTER(SOURCE) \
	static int log_source; \
	static void __attribute__((constructor(101), used)) softdoca_log_register(void) \
	{ \
		doca_log_register_source(#SOURCE, &log_source); \
	}

#define DOCA_LOG(level, ...) \
	doca_log(level, log_source, __FILE__, __LINE__, __func__, __VA_ARGS__)
#define DOCA_LOG_CRIT(...) DOCA_LOG(DOCA_LOG_LEVEL_CRIT, __VA_ARGS__)
#define DOCA_LOG_ERR(...) DOCA_LOG(DOCA_LOG_LEVEL_ERROR, __VA_ARGS__)
#define DOCA_LOG_WARN(...) DOCA_LOG(DOCA_LOG_LEVEL_WARNING, __VA_ARGS__)
#define DOCA_LOG_INFO(...) DOCA_LOG(DOCA_LOG_LEVEL_INFO, __VA_ARGS__)
#define DOCA_LOG_DBG(...) DOCA_LOG(DOCA_LOG_LEVEL_DEBUG, __VA_ARGS__)
/* TRACE needs DOCA_LOGGING_ALLOW_TRACE. */
#ifdef DOCA_LOGGING_ALLOW_TRACE
#define DOCA_LOG_TRC(...) DOCA_LOG(DOCA_LOG_LEVEL_TRACE, __VA_ARGS__)
#else
#define DOCA_LOG_TRC(...) \
	do { \
		if (0) \
			DOCA_LOG(DOCA_LOG_LEVEL_TRACE, __VA_ARGS__); \
	} while (0)
#endif
/* DOCA_DLOG_* needs DOCA_LOGGING_ALLOW_DLOG. */
#ifdef DOCA_LOGGING_ALLOW_DLOG
#define DOCA_DLOG(level, ...) DOCA_LOG(level, __VA_ARGS__)
#else
#define DOCA_DLOG(level, ...) \
	do { \
		if (0) \
			DOCA_LOG(level, __VA_ARGS__); \
	} while (0)
#endif
#define DOCA_DLOG_CRIT(...) DOCA_DLOG(DOCA_LOG_LEVEL_CRIT, __VA_ARGS__)
#define DOCA_DLOG_ERR(...) DOCA_DLOG(DOCA_LOG_LEVEL_ERROR, __VA_ARGS__)
#define DOCA_DLOG_WARN(...) DOCA_DLOG(DOCA_LOG_LEVEL_WARNING, __VA_ARGS__)
#define DOCA_DLOG_INFO(...) DOCA_DLOG(DOCA_LOG_LEVEL_INFO, __VA_ARGS__)
#define DOCA_DLOG_DBG(...) DOCA_DLOG(DOCA_LOG_LEVEL_DEBUG, __VA_ARGS__)

/* Writes a record of the program to the standard backend if its level is within the limit (INFO,
 * or that of --log-level). A record is one line; beyond 2,000 bytes it is truncated and ends in
 * "...". Programs use DOCA_LOG_*. Errors: INVALID_VALUE for a level outside CRIT to TRACE, an
 * unregistered source, or NULL. */
DOCA_EXPERIMENTAL
doca_error_t doca_log(uint32_t level, int source, const char *fname, int line, const char *func,
		const char *format, ...) __attribute__((format(printf, 6, 7)));

/* Prints the program's records from now on: WARNING and worse to stderr, others to stdout.
 * Idempotent. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_backend_create_standard(void);

/* Also prints the library's records to fptr: INFO and worse, unless
 * doca_log_backend_set_sdk_level() or --sdk-log-level change it. fptr must stay open until the
 * process ends, as a backend is never freed. Errors: NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_backend_create_with_file_sdk(FILE *fptr, struct doca_log_backend **backend);

/* The same with a descriptor, of which the backend keeps a copy. Errors: INVALID_VALUE for a closed one. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_backend_create_with_fd_sdk(int fd, struct doca_log_backend **backend);

/* Limits a backend to records of this level and worse. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_backend_set_sdk_level(struct doca_log_backend *backend, uint32_t level);

/* Gets a number for the name of a source of records; called by DOCA_LOG_REGISTER(). The name is
 * copied. Errors: NO_MEMORY; FULL beyond 4,096. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_register_source(const char *source_name, int *source);

/* Does nothing. Programs built with the headers of some releases of DOCA 2 call it at their end. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_unregister_source(int source);

/* Limits the program's records to this level and worse, like --log-level. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_level_set_global_lower_limit(uint32_t level);

/* Limits the library's records to this level and worse in all backends, including later ones, like
 * --sdk-log-level. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_level_set_global_sdk_limit(uint32_t level);

#ifdef __cplusplus
}
#endif

#endif
