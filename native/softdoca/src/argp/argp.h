/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of libdoca_argp. As in DOCA, a process has one command line, used by one thread at a
 * time.
 *
 *   argp.c    state, and public functions
 *   param.c   parameters: creation, setters, registration
 *   start.c   parses the command line and calls the program's callbacks
 *   usage.c   --help and --version
 */
#ifndef SOFTDOCA_ARGP_H
#define SOFTDOCA_ARGP_H

#include <stdbool.h>

#include "doca_argp.h"
#include "base/base.h"

/* A flag of the command line: a parameter of the program, or a flag of argp itself. */
struct flag {
	char *short_name, *long_name, *description;
	enum doca_argp_type type;
	char *arguments; /* name of the value in the usage; NULL: derived from the type */
};

struct doca_argp_param {
	struct object o;
	struct flag flag;
	doca_argp_param_cb_t callback;
	bool mandatory, multiple, registered;
	bool on_line; /* found by the current start() */
	bool unset; /* a text could not be copied: out of memory */
	struct doca_argp_param *next;
};

enum own { OWN_HELP, OWN_VERSION, OWN_LOG, OWN_SDK_LOG, OWN_JSON, N_OWN };

struct argp {
	bool ready; /* between init() and destroy() */
	bool running; /* inside start(), whose callbacks cannot change anything */
	char *program;
	void *config;
	doca_argp_validation_cb_t validate;
	doca_argp_param_cb_t version;
	struct doca_argp_param *params; /* in the order of registration */
	struct doca_argp_param *loose; /* created and not registered */
};
extern struct argp argp;
extern const struct flag argp_own[N_OWN];

/* param.c */
void argp_params_free(struct doca_argp_param *first);
/* Returns the flag of this name (n bytes of text), short or long; NULL if unknown. */
const struct flag *argp_flag(const char *text, size_t n, bool is_long);
/* Returns the parameter of a flag; NULL for a flag of argp. */
struct doca_argp_param *argp_param_of(const struct flag *flag);

/* usage.c */
void argp_usage(FILE *out);
/* Reports an error in the log, and on stderr with the usage. Returns the error. */
doca_error_t argp_wrong(doca_error_t error, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
