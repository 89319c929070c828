/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every file of softdoca uses: log records and refusals, checks of arguments, text of errors, pages of
 * shared memory.
 *
 * Errors: functions return a doca_error_t only; the reason is in the log (softdoca_log, level WARNING).
 */
#ifndef SOFTDOCA_BASE_H
#define SOFTDOCA_BASE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dgkit.h"
#include "doca_error.h"
#include "doca_log.h"
#include "doca_types.h"
#include "error.h"
#include "object.h"

/* How long closing a region waits for transfers in flight. */
#define MMAP_CLOSE_NS ((uint64_t)2000000000)

/* log.c: writes a record of the library. level is a doca_log_level. */
SOFTDOCA_INTERNAL void softdoca_log(uint32_t level, const char *func, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));
/* Returns the text of this thread's last record at WARNING or worse, for language bindings that
 * raise it as an exception; "" if there is none. */
SOFTDOCA_INTERNAL const char *softdoca_last_refusal(void);
/* As doca_log_backend_create_with_file_sdk(), with the program's records, too. */
SOFTDOCA_INTERNAL doca_error_t softdoca_log_to_file(FILE *file, struct doca_log_backend **backend);
/* Logs the reason (WARNING) and evaluates to the error: return REFUSE(DOCA_ERROR_BAD_STATE, "the
 * context runs"); */
#define REFUSE(error, ...) REFUSE_FOR(__func__, error, __VA_ARGS__)
/* The same in a function that `func` calls. */
#define REFUSE_FOR(func, error, ...) \
	(softdoca_log(DOCA_LOG_LEVEL_WARNING, func, __VA_ARGS__), (error))
/* Like REFUSE, for invalid environment variables of softdoca: logs at CRIT, which is printed on
 * stderr by default. */
#define MISCONFIGURED(...) \
	(softdoca_log(DOCA_LOG_LEVEL_CRIT, __func__, __VA_ARGS__), DOCA_ERROR_BAD_CONFIG)
/* The first checks of a public function; a failed check returns from the function. DOCA documents
 * INVALID_VALUE for invalid input in general. */
#define CHECK_OBJECT(p, kind, what)                                                \
	do {                                                                       \
		if (__builtin_expect(!object_is(p, kind), 0))                      \
			return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not " what, \
				      (const void *)(p));                          \
	} while (0)
#define CHECK_OUT(p)                                                               \
	do {                                                                       \
		if (__builtin_expect(!(p), 0))                                     \
			return REFUSE(DOCA_ERROR_INVALID_VALUE, "%s is NULL", #p); \
	} while (0)
/* Stores a result of a public function and evaluates to its error: return SET_OUT(size, map->len); */
#define SET_OUT(out, value)                               \
	(__builtin_expect((out) != NULL, 1)               \
		 ? (void)(*(out) = (value)), DOCA_SUCCESS \
		 : REFUSE(DOCA_ERROR_INVALID_VALUE, "%s is NULL", #out))
/* Defines a public function that stores one value of an object. `check` is one as CHECK_BUF; `value`
 * is an expression of `handle`. */
#define GETTER(function, check, object, type, value)        \
	doca_error_t function(object *handle, type *result) \
	{                                                   \
		check(handle);                              \
		return SET_OUT(result, value);              \
	}
/* Defines a public function that sets a member of an object to any value. */
#define SETTER(function, check, object, type, member)       \
	doca_error_t function(object *handle, type member) \
	{                                                   \
		check(handle);                              \
		handle->member = member;                    \
		return DOCA_SUCCESS;                        \
	}
/* Defines a public function that returns the pointer to a member of an object: NULL, which is logged,
 * for an invalid object. */
#define AS_MEMBER(function, object, type, kind, what, member)                         \
	type *function(object *handle)                                                \
	{                                                                             \
		return object_is(handle, kind)                                        \
			       ? &handle->member                                      \
			       : REFUSE((type *)NULL, "%p is not " what, (void *)handle); \
	}
/* Set the level limit of the program's records, and of every SDK backend. Return false for an
 * invalid level. */
SOFTDOCA_INTERNAL bool softdoca_log_limit(uint32_t level);
SOFTDOCA_INTERNAL bool softdoca_log_sdk_limit(uint32_t level);
/* error_names.c: logs a negative result of dgkit.h with its text, and returns the corresponding
 * doca_error_t. */
SOFTDOCA_INTERNAL doca_error_t softdoca_failed(const char *func, int rc) __attribute__((cold));
/* runtime.c: writes the path of the socket of the Comch server with this name on the function with
 * this vuid. The path is in dgkit's folder for sockets. Errors: OPERATING_SYSTEM and others if the
 * folder cannot be used or the path exceeds cap. */
SOFTDOCA_INTERNAL doca_error_t softdoca_runtime_path(const char *name, const char *function,
						     const char *ending, char *out, size_t cap);

/* page.c: pages of memory that two processes share, each in a memfd. Create one; *fd is its memfd.
 * Map the one of another process. Both return NULL on failure, new() with errno set. */
SOFTDOCA_INTERNAL void *softdoca_page_new(const char *name, int *fd);
SOFTDOCA_INTERNAL void *softdoca_page_map(int fd);
SOFTDOCA_INTERNAL void softdoca_page_free(void *page);

/* range.c: what this process may do with a range of addresses. */
enum range_found {
	RANGE_MISSING, /* not completely mapped */
	RANGE_CLOSED, /* mapped, but not readable, or not writable although `write` is set */
	RANGE_OK,
};
enum range_found range_look(const void *addr, size_t len, bool write);

/* Returns whether [at, at + n) is within [from, from + len), without wrap-around. */
static inline bool range_within(const void *at, size_t n, const void *from, size_t len)
{
	uintptr_t skip = (uintptr_t)at - (uintptr_t)from;
	return skip <= len && n <= len - skip;
}

/* Returns the least power of two that is not below n; 0 for 0. */
static inline uint32_t power_of_two(uint32_t n)
{
	return n < 2 ? n : 1u << (32 - __builtin_clz(n - 1));
}

#endif
