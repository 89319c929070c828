/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command line parameters of a DOCA program.
 *
 *	init -> for each parameter: create, set what describes it, register -> start -> destroy
 *
 * There is one command line a process, and one thread uses it. Setters give no error: what is no
 * parameter, was registered, or gets NULL, is left as it is, and the log says so. Others give
 * INVALID_VALUE for these. Inside a callback of doca_argp_start() nothing can be changed: BAD_STATE
 * or INITIALIZATION.
 *
 * A parameter is written -n VALUE, -nVALUE, --name VALUE or --name=VALUE; a boolean without a
 * value, and several of them as -abc. Each program also knows --help, --version, --log-level and
 * --sdk-log-level (10 to 70), and --json FILE:
 *
 *	{"doca_general_flags": {"log-level": 60}, "doca_program_flags": {"name": "value"}}
 *
 * The file may contain comments as in C. A long name may contain spaces: on the command line it is
 * one quoted argument, "--long name".
 */
#ifndef DOCA_ARGP_H
#define DOCA_ARGP_H

#include <stddef.h>
#include <stdint.h>

#include "doca_compat.h"
#include "doca_error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_argp_param;

/* Values of DOCA 3.0; later headers give 4 another meaning. */
enum doca_argp_type {
	DOCA_ARGP_TYPE_UNKNOWN = 0,
	DOCA_ARGP_TYPE_STRING = 1,
	DOCA_ARGP_TYPE_INT = 2,
	DOCA_ARGP_TYPE_BOOLEAN = 3,
	DOCA_ARGP_TYPE_JSON_OBJ = 4,
};

typedef doca_error_t (*doca_argp_param_cb_t)(void *param, void *config);
typedef doca_error_t (*doca_argp_validation_cb_t)(void *config);

/* Frees all parameters, registered or not. The program may begin again with doca_argp_init(). */
DOCA_EXPERIMENTAL
doca_error_t doca_argp_destroy(void);

/* First of all. The name stands in the usage; NULL: that of the program's file. program_config
 * goes to each callback as it is. BAD_STATE: it was called before. */
DOCA_EXPERIMENTAL
doca_error_t doca_argp_init(const char *program_name, void *program_config);

/* A parameter, to be described by the setters and registered. It is freed by doca_argp_destroy()
 * at the latest. NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_argp_param_create(struct doca_argp_param **param);

/* What gets the value. Must be set. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_callback(struct doca_argp_param *param, doca_argp_param_cb_t callback);

/* What the usage says of it. Must be set; the text is copied. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_description(struct doca_argp_param *param, const char *description);

/* Sets the name of the value that the usage shows after the flag, for example "<path>". Optional; the
 * text is copied. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_arguments(struct doca_argp_param *param, const char *arguments);

/* "name" for --name, and the key in a JSON file. One name at least must be set; the text is
 * copied. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_long_name(struct doca_argp_param *param, const char *name);

/* "n" for -n. The text is copied. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_short_name(struct doca_argp_param *param, const char *name);

/* What the value is, and so what the callback's first argument points to: the text, an int, a
 * bool; of JSON_OBJ the text of the JSON value, and such a parameter stands in a JSON file only.
 * Must be set. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_type(struct doca_argp_param *param, enum doca_argp_type type);

/* The parameter is the library's from here on, and is freed if this fails. INITIALIZATION:
 * something that must be set is not, or doca_argp_init() was not called. ALREADY_EXIST: one of
 * its names is taken; -h -v -l -j and their long forms are. INVALID_VALUE: a name that cannot be
 * typed, an unknown type. */
DOCA_EXPERIMENTAL
doca_error_t doca_argp_register_param(struct doca_argp_param *input_param);

/* Reads the command line, then calls the parameters' callbacks: for the values of the JSON file,
 * then in the order of the line, which counts more; then looks for parameters that are
 * mandatory, and calls the validation callback. --help and --version end the process with 0. A
 * mistake is said on stderr, with the usage, and calls no callback if it is one of form.
 * NOT_SUPPORTED: there is no such parameter. INVALID_VALUE: a value that is none, a parameter
 * given twice, one that is missing. IO_FAILED: the file cannot be read, or is no JSON.
 * NO_MEMORY, INITIALIZATION; else what a callback gave. */
DOCA_EXPERIMENTAL
doca_error_t doca_argp_start(int argc, char **argv);

/* Requires the parameter: doca_argp_start() fails without it. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_mandatory(struct doca_argp_param *param);

/* Allows the parameter to be given more than once; the callback is called for each value. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_multiplicity(struct doca_argp_param *param);

/* Called with program_config at the end of doca_argp_start(), whose result is then the
 * callback's. The last one registered counts. INITIALIZATION. */
DOCA_EXPERIMENTAL
doca_error_t doca_argp_register_validation_callback(doca_argp_validation_cb_t callback);

/* Called for --version with NULL and program_config, before the process ends. INITIALIZATION. */
DOCA_EXPERIMENTAL
doca_error_t doca_argp_register_version_callback(doca_argp_param_cb_t callback);

#ifdef __cplusplus
}
#endif

#endif
