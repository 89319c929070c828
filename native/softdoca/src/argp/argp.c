// SPDX-License-Identifier: Apache-2.0
/* State from doca_argp_init to doca_argp_destroy. "ARGP" is DOCA's published reference 3.0. */
#include "argp.h"

#include <stdlib.h>
#include <string.h>

struct argp argp;

/* ARGP: INVALID_VALUE, BAD_STATE for a second call. Without a
 * configuration, callbacks get NULL. Without a name, as in programs of DOCA 3, doca_argp_start()
 * takes that of the program's file. */
doca_error_t doca_argp_init(const char *program_name, void *program_config)
{
	if (program_name && !*program_name)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "program_name is empty");
	if (argp.ready)
		return REFUSE(DOCA_ERROR_BAD_STATE, "doca_argp_init was already called, for %s",
			      argp.program);
	argp.program = strdup(program_name ? program_name : "");
	if (!argp.program)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for the program's name");
	argp.config = program_config;
	argp.ready = true;
	return DOCA_SUCCESS;
}

doca_error_t doca_argp_destroy(void)
{
	if (argp.running)
		return REFUSE(DOCA_ERROR_BAD_STATE, "called inside a callback of doca_argp_start");
	if (!argp.ready)
		return REFUSE(DOCA_ERROR_BAD_STATE, "doca_argp_init was not called");
	argp_params_free(argp.params);
	argp_params_free(argp.loose);
	free(argp.program);
	memset(&argp, 0, sizeof argp);
	return DOCA_SUCCESS;
}

/* ARGP: INVALID_VALUE, BAD_STATE. The last one is used. */
#define REGISTER(name, type, member)                                                           \
	doca_error_t doca_argp_register_##name##_callback(type callback)                       \
	{                                                                                      \
		if (!callback)                                                                 \
			return REFUSE(DOCA_ERROR_INVALID_VALUE, "callback is NULL");           \
		if (!argp.ready || argp.running)                                               \
			return REFUSE(DOCA_ERROR_BAD_STATE,                                    \
				      "called before doca_argp_init or inside doca_argp_start"); \
		argp.member = callback;                                                        \
		return DOCA_SUCCESS;                                                           \
	}
REGISTER(validation, doca_argp_validation_cb_t, validate)
REGISTER(version, doca_argp_param_cb_t, version)
