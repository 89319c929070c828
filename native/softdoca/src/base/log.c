// SPDX-License-Identifier: Apache-2.0
/*
 * Log records. The program's records are written to the standard backend, the library's records to
 * SDK backends and, if SOFTDOCA_LOG selects them, to stderr. Without a backend nothing is written.
 *
 * Backends and sources are only added, never removed, so their lists can be read without a lock,
 * even in a forked child. Each record is written with a single write to its stream.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base.h"

#define SOURCES_MAX 4096
#define RECORD_MAX  2048 /* bytes of a record; a longer one is truncated and ends in "..." */
#define SDK_SOURCE  "SOFTDOCA"

struct doca_log_backend {
	struct object o;
	FILE *file;
	_Atomic uint32_t level; /* limit: records with this or a lower number are written */
	atomic_bool of_program; /* the program's records, too */
	struct doca_log_backend *next;
};

struct record {
	uint32_t level;
	const char *source, *file, *func;
	int line;
};

static _Atomic(struct doca_log_backend *) sdk_backends;
static atomic_bool standard;
static _Atomic uint32_t app_limit = DOCA_LOG_LEVEL_INFO, sdk_limit = DOCA_LOG_LEVEL_INFO;
static _Atomic(const char *) sources[SOURCES_MAX];
static atomic_int n_sources;

/* The level set by SOFTDOCA_LOG; 0: not read yet. */
static _Atomic uint32_t asked;

static const struct {
	uint32_t level;
	const char *tag, *name;
} levels[] = {
	{DOCA_LOG_LEVEL_DISABLE, "", "disable"}, {DOCA_LOG_LEVEL_CRIT, "CRT", "crit"},
	{DOCA_LOG_LEVEL_ERROR, "ERR", "error"},  {DOCA_LOG_LEVEL_WARNING, "WRN", "warning"},
	{DOCA_LOG_LEVEL_INFO, "INF", "info"},    {DOCA_LOG_LEVEL_DEBUG, "DBG", "debug"},
	{DOCA_LOG_LEVEL_TRACE, "TRC", "trace"},
};
#define N_LEVELS (sizeof levels / sizeof levels[0])

static const char *tag_of(uint32_t level)
{
	for (size_t i = 0; i < N_LEVELS; i++)
		if (levels[i].level == level)
			return levels[i].tag;
	return NULL;
}

static uint32_t level_named(const char *text)
{
	char number[16];
	for (size_t i = 0; i < N_LEVELS; i++) {
		snprintf(number, sizeof number, "%u", levels[i].level);
		if (!strcasecmp(text, levels[i].name) || !strcmp(text, number))
			return levels[i].level;
	}
	return 0;
}

/* Returns the level of SOFTDOCA_LOG, read once; CRIT if it is unset. An invalid value is reported
 * on stderr and treated as WARNING. */
static uint32_t asked_level(void)
{
	uint32_t level = atomic_load_explicit(&asked, memory_order_relaxed), none = 0;
	if (level)
		return level;
	const char *text = getenv("SOFTDOCA_LOG");
	level = text && *text ? level_named(text) : DOCA_LOG_LEVEL_CRIT;
	bool bad = !level;
	if (bad)
		level = DOCA_LOG_LEVEL_WARNING;
	if (atomic_compare_exchange_strong(&asked, &none, level) && bad)
		fprintf(stderr,
			"softdoca: SOFTDOCA_LOG=%s is not a level (disable crit error warning info "
			"debug trace, or 10 to 70): using warning\n",
			text);
	return level;
}

/* Writes "[time][pid][DOCA][LVL][source][file:line][func] message\n" to out and returns its
 * length. */
static size_t format_record(char *out, const struct record *r, const char *format, va_list args)
{
	struct timespec now;
	struct tm tm;
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	size_t n = strftime(out, RECORD_MAX, "[%Y-%m-%d %H:%M:%S", &tm), room = RECORD_MAX - 5;
	int k = snprintf(out + n, room - n, ":%06ld][%d][DOCA][%s][%.64s]", now.tv_nsec / 1000,
			 (int)getpid(), tag_of(r->level), r->source);
	n += (size_t)k;
	if (r->file)
		k = snprintf(out + n, room - n, "[%.256s:%d][%.128s] ", r->file, r->line, r->func);
	else
		k = snprintf(out + n, room - n, "[%.128s] ", r->func);
	n += (size_t)k;
	k = vsnprintf(out + n, room - n, format, args);
	if (k >= 0 && (size_t)k >= room - n) {
		memcpy(out + room - 1, "...", 3);
		n = room + 2;
	} else if (k > 0) {
		n += (size_t)k;
	}
	while (n && out[n - 1] == '\n')
		n--;
	out[n++] = '\n';
	out[n] = '\0';
	return n;
}

static void put(FILE *file, const char *text, size_t n)
{
	fwrite(text, 1, n, file);
	fflush(file);
}

static void put_sdk(const struct record *r, const char *text, size_t n)
{
	bool on_stderr = false;
	for (struct doca_log_backend *b = atomic_load_explicit(&sdk_backends, memory_order_acquire);
	     b; b = b->next)
		if (r->level <= atomic_load_explicit(&b->level, memory_order_relaxed)) {
			put(b->file, text, n);
			on_stderr |= b->file == stderr;
		}
	if (!on_stderr && r->level <= asked_level())
		put(stderr, text, n);
}

static bool sdk_heard(uint32_t level)
{
	for (struct doca_log_backend *b = atomic_load_explicit(&sdk_backends, memory_order_acquire);
	     b; b = b->next)
		if (level <= atomic_load_explicit(&b->level, memory_order_relaxed))
			return true;
	return level <= asked_level();
}

void softdoca_log(uint32_t level, const char *func, const char *format, ...)
{
	char text[RECORD_MAX];
	const struct record r = {.level = level, .source = SDK_SOURCE, .func = func};
	int saved = errno;
	va_list args;
	if (level <= DOCA_LOG_LEVEL_WARNING) {
		va_start(args, format);
		vsnprintf(dg_thread_text(DG_TEXT_REFUSAL), DG_TEXT_SIZE, format, args);
		va_end(args);
	}
	if (tag_of(level) && sdk_heard(level)) {
		va_start(args, format);
		put_sdk(&r, text, format_record(text, &r, format, args));
		va_end(args);
	}
	errno = saved;
}

const char *softdoca_last_refusal(void)
{
	return dg_thread_text(DG_TEXT_REFUSAL);
}

/* DOCA API reference, Logging: the standard backend prints INFO and lower to stdout, WARNING and
 * higher to stderr. Backends for the SDK's records get the program's only by their of_program, and nothing without
 * the standard one. The errors of doca_log are guesses. */
doca_error_t doca_log(uint32_t level, int source, const char *fname, int line, const char *func,
		      const char *format, ...)
{
	if (!tag_of(level) || level == DOCA_LOG_LEVEL_DISABLE)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "level %u is invalid: the levels are 20 to 70", level);
	if (source < 0 || source >= atomic_load_explicit(&n_sources, memory_order_acquire))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "source %d was not registered", source);
	if (!fname || !func || !format)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "fname, func or format is NULL");
	if (!atomic_load_explicit(&standard, memory_order_acquire) ||
	    level > atomic_load_explicit(&app_limit, memory_order_relaxed))
		return DOCA_SUCCESS;
	char text[RECORD_MAX];
	const char *name = atomic_load_explicit(&sources[source], memory_order_acquire);
	const struct record r = {level, name ? name : "?", fname, func, line};
	int saved = errno;
	va_list args;
	va_start(args, format);
	size_t n = format_record(text, &r, format, args);
	va_end(args);
	put(level >= DOCA_LOG_LEVEL_INFO ? stdout : stderr, text, n);
	for (struct doca_log_backend *b = atomic_load_explicit(&sdk_backends, memory_order_acquire);
	     b; b = b->next)
		if (atomic_load_explicit(&b->of_program, memory_order_relaxed))
			put(b->file, text, n);
	errno = saved;
	return DOCA_SUCCESS;
}

/* A second backend would print each record twice, so the first is reused: guess. */
doca_error_t doca_log_backend_create_standard(void)
{
	atomic_store_explicit(&standard, true, memory_order_release);
	return DOCA_SUCCESS;
}

doca_error_t doca_log_backend_create_with_file_sdk(FILE *fptr, struct doca_log_backend **backend)
{
	if (!fptr || !backend)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "fptr or backend is NULL");
	struct doca_log_backend *b = softdoca_object_new(OBJECT_LOG_BACKEND, sizeof *b);
	if (!b)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a backend");
	b->file = fptr;
	/* DOCA API reference, Logging: a new backend starts with the common limit. */
	atomic_init(&b->level, atomic_load_explicit(&sdk_limit, memory_order_relaxed));
	b->next = atomic_load_explicit(&sdk_backends, memory_order_relaxed);
	/* Release: readers that find b see its fields. */
	while (!atomic_compare_exchange_weak_explicit(&sdk_backends, &b->next, b,
						      memory_order_release, memory_order_relaxed))
		;
	*backend = b;
	return DOCA_SUCCESS;
}

/* The standard backend already writes the program's records to stdout and stderr. */
doca_error_t softdoca_log_to_file(FILE *file, struct doca_log_backend **backend)
{
	doca_error_t error = doca_log_backend_create_with_file_sdk(file, backend);
	if (!error)
		atomic_store_explicit(&(*backend)->of_program, file != stdout && file != stderr,
				      memory_order_relaxed);
	return error;
}

doca_error_t doca_log_backend_create_with_fd_sdk(int fd, struct doca_log_backend **backend)
{
	const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	FILE *file = copy < 0 ? NULL : fdopen(copy, "a");
	if (!file) {
		if (copy >= 0)
			close(copy);
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "descriptor %d cannot be written: %s", fd,
			      strerror(errno));
	}
	setvbuf(file, NULL, _IONBF, 0);
	doca_error_t error = doca_log_backend_create_with_file_sdk(file, backend);
	if (error)
		fclose(file);
	return error;
}

doca_error_t doca_log_backend_set_sdk_level(struct doca_log_backend *backend, uint32_t level)
{
	if (!object_is(backend, OBJECT_LOG_BACKEND))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a backend", (void *)backend);
	if (!tag_of(level))
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "level %u is invalid: the levels are 10 to 70", level);
	atomic_store_explicit(&backend->level, level, memory_order_relaxed);
	return DOCA_SUCCESS;
}

doca_error_t doca_log_register_source(const char *source_name, int *source)
{
	if (!source_name || !source)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "source_name or source is NULL");
	char *name = strdup(
		source_name); /* copied, because unloading a plugin unmaps its strings */
	if (!name)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a source's name");
	int i = atomic_load_explicit(&n_sources, memory_order_relaxed);
	do {
		if (i >= SOURCES_MAX) {
			free(name);
			return REFUSE(DOCA_ERROR_FULL, "all %d sources are in use", SOURCES_MAX);
		}
	} while (!atomic_compare_exchange_weak(&n_sources, &i, i + 1));
	atomic_store_explicit(&sources[i], name, memory_order_release);
	*source = i;
	return DOCA_SUCCESS;
}

/* For --log-level: limits the program's records. */
bool softdoca_log_limit(uint32_t level)
{
	if (!tag_of(level))
		return false;
	atomic_store_explicit(&app_limit, level, memory_order_relaxed);
	return true;
}

/* For --sdk-log-level: limits all SDK backends, including later ones. */
bool softdoca_log_sdk_limit(uint32_t level)
{
	if (!tag_of(level))
		return false;
	atomic_store_explicit(&sdk_limit, level, memory_order_relaxed);
	for (struct doca_log_backend *b = atomic_load_explicit(&sdk_backends, memory_order_acquire);
	     b; b = b->next)
		atomic_store_explicit(&b->level, level, memory_order_relaxed);
	return true;
}

/* DOCA API reference, Logging: always SUCCESS, without effect. */
doca_error_t doca_log_unregister_source(int source)
{
	(void)source;
	return DOCA_SUCCESS;
}

doca_error_t doca_log_level_set_global_lower_limit(uint32_t level)
{
	if (!softdoca_log_limit(level))
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "level %u is invalid: the levels are 10 to 70", level);
	return DOCA_SUCCESS;
}

doca_error_t doca_log_level_set_global_sdk_limit(uint32_t level)
{
	if (!softdoca_log_sdk_limit(level))
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "level %u is invalid: the levels are 10 to 70", level);
	return DOCA_SUCCESS;
}
