/* SPDX-License-Identifier: Apache-2.0 */
/* Command line parameters of a DOCA program. */
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

DOCA_EXPERIMENTAL
doca_error_t doca_argp_destroy(void);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_init(const char *program_name, void *program_config);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_param_create(struct doca_argp_param **param);

DOCA_EXPERIMENTAL
void doca_argp_param_set_callback(struct doca_argp_param *param, doca_argp_param_cb_t callback);

DOCA_EXPERIMENTAL
void doca_argp_param_set_description(struct doca_argp_param *param, const char *description);

DOCA_EXPERIMENTAL
void doca_argp_param_set_long_name(struct doca_argp_param *param, const char *name);

DOCA_EXPERIMENTAL
void doca_argp_param_set_short_name(struct doca_argp_param *param, const char *name);

DOCA_EXPERIMENTAL
void doca_argp_param_set_type(struct doca_argp_param *param, enum doca_argp_type type);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_register_param(struct doca_argp_param *input_param);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_start(int argc, char **argv);

DOCA_EXPERIMENTAL
void doca_argp_param_set_mandatory(struct doca_argp_param *param);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_register_validation_callback(doca_argp_validation_cb_t callback);

DOCA_EXPERIMENTAL
doca_error_t doca_argp_register_version_callback(doca_argp_param_cb_t callback);

#ifdef __cplusplus
}
#endif

#endif
