/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside libdoca_argp. One command line a process, as DOCA has it; one thread at a time.
 *
 *   argp.c    the state, and what programs call
 *   param.c   parameters: made, described, registered
 *   start.c   the command line: read, and handed to the program's callbacks
 *   file.c    the file of --json, likewise
 *   json.c    a reader of JSON
 *   usage.c   --help and --version
 */
#ifndef SOFTDOCA_ARGP_H
#define SOFTDOCA_ARGP_H

#include <stdbool.h>

#include "doca_argp.h"
#include "softdoca.h"

/* A flag of the command line: a parameter of the program, or one of argp's own. */
struct flag {
	char *short_name, *long_name, *description;
	enum doca_argp_type type;
	char *arguments; /* name of the value in the usage; NULL: by the type */
};

struct doca_argp_param {
	struct object o;
	struct flag flag;
	doca_argp_param_cb_t callback;
	bool mandatory, multiple, registered;
	bool on_line, in_file; /* found by this start() */
	bool unset; /* a text could not be copied: no memory */
	struct doca_argp_param *next;
};

enum own { OWN_HELP, OWN_VERSION, OWN_LOG, OWN_SDK_LOG, OWN_JSON, N_OWN };

struct argp {
	bool ready; /* between init() and destroy() */
	bool running; /* inside start(): callbacks change nothing here */
	char *program;
	void *config;
	doca_argp_validation_cb_t validate;
	doca_argp_param_cb_t version;
	struct doca_argp_param *params; /* registered, in that order */
	struct doca_argp_param *loose; /* made, and not registered yet */
};
extern struct argp argp;
extern const struct flag argp_own[N_OWN];

/* param.c */
void argp_params_free(struct doca_argp_param *first);
/* The flag of this name (n bytes of text), short or long; NULL: none. */
const struct flag *argp_flag(const char *text, size_t n, bool is_long);
/* The program's parameter behind a flag, or NULL: it is one of argp's own. */
struct doca_argp_param *argp_param_of(const struct flag *flag);

/* start.c: hands a value to the parameter's callback, as the type it was registered with. */
doca_error_t argp_deliver(struct doca_argp_param *p, const char *value, const char *where);
/* An int in decimal or hexadecimal, whole. */
bool argp_int(const char *text, int *out);
/* start.c: --log-level or --sdk-log-level, by its number. */
doca_error_t argp_level(const struct flag *flag, const char *value);
/* file.c: hands what the JSON file says to the callbacks. */
doca_error_t argp_file(const char *path);

/* usage.c */
void argp_usage(FILE *out);
/* Says what is wrong: in the log, and on stderr for the person at the terminal. */
doca_error_t argp_wrong(doca_error_t error, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
