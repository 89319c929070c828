/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command line parameters of a DOCA program.
 *
 * 	init -> for each parameter: create, set its attributes, register -> start -> destroy
 *
 * A process has one command line, used by one thread at a time. Setters return no error: a call
 * with an invalid or registered parameter, or with NULL, changes nothing and is logged. Other
 * functions return INVALID_VALUE for such arguments. The callbacks of doca_argp_start() cannot
 * change parameters: such calls return BAD_STATE. So do all but doca_argp_init() before it.
 *
 * A parameter is written as -n VALUE, -nVALUE, --name VALUE or --name=VALUE. A boolean takes no
 * value; several can be combined as -abc. A long name may contain spaces, in one quoted argument,
 * "--long name". Each program also accepts --help, --version, --log-level and --sdk-log-level (10 to
 * 70). --json FILE is refused.
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

/* Values as in DOCA 3.0; later headers give the value 4 another meaning. */
enum doca_argp_type {
	DOCA_ARGP_TYPE_UNKNOWN = 0,
	DOCA_ARGP_TYPE_STRING = 1,
	DOCA_ARGP_TYPE_INT = 2,
	DOCA_ARGP_TYPE_BOOLEAN = 3,
	DOCA_ARGP_TYPE_JSON_OBJ = 4,
};

typedef doca_error_t (*doca_argp_param_cb_t)(void *param, void *config);
typedef doca_error_t (*doca_argp_validation_cb_t)(void *config);

/* Frees all parameters, registered or not. The program may call doca_argp_init() again. */
DOCA_EXPERIMENTAL
doca_error_t doca_argp_destroy(void);

/* Starts the definition of the command line. program_name is shown in the usage; NULL selects
 * the name of the program's file. program_config is passed to each callback. Errors: BAD_STATE if
 * already called. */
DOCA_EXPERIMENTAL
doca_error_t doca_argp_init(const char *program_name, void *program_config);

/* Creates a parameter. Describe it with the setters, then register it. doca_argp_destroy() frees it
 * unless a failed registration already did. Errors: NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_argp_param_create(struct doca_argp_param **param);

/* Sets the function that receives the value. Required. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_callback(struct doca_argp_param *param, doca_argp_param_cb_t callback);

/* Sets the description in the usage. Required. The text is copied. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_description(struct doca_argp_param *param, const char *description);

/* Sets the name of the value that the usage shows after the flag, for example "<path>". Optional.
 * The text is copied. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_arguments(struct doca_argp_param *param, const char *arguments);

/* Sets "name" for --name. At least one of the two names is required.
 * The text is copied. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_long_name(struct doca_argp_param *param, const char *name);

/* Sets "n" for -n. The text is copied. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_short_name(struct doca_argp_param *param, const char *name);

/* Sets the type of the value, and so what the first argument of the callback points to: the text,
 * an int, or a bool. A parameter of the type JSON_OBJ cannot be given a value. Required. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_type(struct doca_argp_param *param, enum doca_argp_type type);

/* Registers a parameter. The library takes ownership of it, and frees it on failure. Errors:
 * INITIALIZATION if a required attribute is missing;
 * BAD_STATE if it was registered, or one of its names is in use (the long forms of -h -v -l -j are reserved; the
 * short ones belong to a parameter that has them);
 * INVALID_VALUE for a name that cannot be typed or an unknown type. */
DOCA_EXPERIMENTAL
doca_error_t doca_argp_register_param(struct doca_argp_param *input_param);

/* Parses the command line and calls the callbacks of the parameters in order. Then checks for
 * mandatory parameters and calls the validation callback. --help and --version end the process with
 * status 0. An error is printed on stderr with the usage; after a syntax error no callback is
 * called. Errors: NOT_SUPPORTED for an unknown parameter and --json; INVALID_VALUE for an invalid value,
 * a repeated or a missing parameter; NO_MEMORY; otherwise the result of a callback. */
DOCA_EXPERIMENTAL
doca_error_t doca_argp_start(int argc, char **argv);

/* Requires the parameter: doca_argp_start() fails without it. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_mandatory(struct doca_argp_param *param);

/* Allows the parameter to be given more than once; the callback is called for each value. */
DOCA_EXPERIMENTAL
void doca_argp_param_set_multiplicity(struct doca_argp_param *param);

/* Sets the validation function: doca_argp_start() calls it last, with program_config, and returns
 * its result. A later call replaces the function. */
DOCA_EXPERIMENTAL
doca_error_t doca_argp_register_validation_callback(doca_argp_validation_cb_t callback);

/* Sets a function that --version calls with NULL and program_config, before the process ends. */
DOCA_EXPERIMENTAL
doca_error_t doca_argp_register_version_callback(doca_argp_param_cb_t callback);

#ifdef __cplusplus
}
#endif

#endif
