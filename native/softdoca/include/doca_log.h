/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log records, of programs and of the library itself. Nothing is written where nobody made a
 * backend, but that SOFTDOCA_LOG=LEVEL has the library's own records go to stderr. Any thread may
 * call the functions here. INVALID_VALUE: NULL, or a value that is none.
 */
#ifndef DOCA_LOG_H
#define DOCA_LOG_H

#include <stddef.h>
#include <stdint.h>

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

/* At the top of a file: its records carry this name. With a semicolon behind it or without. */
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
/* TRACE: only where DOCA_LOGGING_ALLOW_TRACE is defined. */
#ifdef DOCA_LOGGING_ALLOW_TRACE
#define DOCA_LOG_TRC(...) DOCA_LOG(DOCA_LOG_LEVEL_TRACE, __VA_ARGS__)
#else
#define DOCA_LOG_TRC(...) \
	do { \
		if (0) \
			DOCA_LOG(DOCA_LOG_LEVEL_TRACE, __VA_ARGS__); \
	} while (0)
#endif
/* DOCA_DLOG_*: only where DOCA_LOGGING_ALLOW_DLOG is defined. */
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

/* Writes a record of the program: to the standard backend if its level is within the limit
 * (INFO, or what --log-level says), else nowhere. One record is one line; what is longer than
 * 2,000 bytes is cut and ends in "...". Programs use DOCA_LOG_*. INVALID_VALUE: no level from
 * CRIT to TRACE, a source that was not registered, NULL. */
DOCA_EXPERIMENTAL
doca_error_t doca_log(uint32_t level, int source, const char *fname, int line, const char *func,
		const char *format, ...) __attribute__((format(printf, 6, 7)));

/* From now on records of the program are printed: WARNING and worse to stderr, the rest to
 * stdout. A second call changes nothing. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_backend_create_standard(void);

/* From now on records of the library are printed to fptr, too; INFO and worse, unless
 * doca_log_backend_set_sdk_level() or --sdk-log-level say otherwise. fptr stays the program's, and
 * open as long as the process runs: a backend is never given up. NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_backend_create_with_file_sdk(FILE *fptr, struct doca_log_backend **backend);

/* Records of this level and worse go to the backend. INVALID_VALUE: no level, or a backend that is
 * none. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_backend_set_sdk_level(struct doca_log_backend *backend, uint32_t level);

/* A number for the name by which records say where they come from. DOCA_LOG_REGISTER() calls this.
 * The name is copied. NO_MEMORY. FULL: 4,096 are the most. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_register_source(const char *source_name, int *source);

/* Changes nothing: programs built with the headers of some DOCA 2 call it as they end. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_unregister_source(int source);

/* Records of the program of this level and worse are printed, as --log-level says. INVALID_VALUE: no
 * level. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_level_set_global_lower_limit(uint32_t level);

/* The same for records of the library: for all its backends and those to come, as --sdk-log-level
 * says. */
DOCA_EXPERIMENTAL
doca_error_t doca_log_level_set_global_sdk_limit(uint32_t level);

#ifdef __cplusplus
}
#endif

#endif
