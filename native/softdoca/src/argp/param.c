// SPDX-License-Identifier: Apache-2.0
/* Parameters: creation, setters, registration. */
#include "argp.h"

#include <stdlib.h>
#include <string.h>

static void param_free(struct doca_argp_param *p)
{
	free(p->flag.short_name);
	free(p->flag.long_name);
	free(p->flag.description);
	free(p->flag.arguments);
	softdoca_object_free(p);
}

void argp_params_free(struct doca_argp_param *first)
{
	while (first) {
		struct doca_argp_param *next = first->next;
		param_free(first);
		first = next;
	}
}

struct doca_argp_param *argp_param_of(const struct flag *flag)
{
	for (struct doca_argp_param *p = argp.params; p; p = p->next)
		if (flag == &p->flag)
			return p;
	return NULL;
}

static bool has_name(const struct flag *f, const char *text, size_t n, bool is_long)
{
	const char *name = is_long ? f->long_name : f->short_name;
	return name && strlen(name) == n && !memcmp(name, text, n);
}

const struct flag *argp_flag(const char *text, size_t n, bool is_long)
{
	for (struct doca_argp_param *p = argp.params; p; p = p->next)
		if (has_name(&p->flag, text, n, is_long))
			return &p->flag;
	for (int i = 0; i < N_OWN; i++)
		if (has_name(&argp_own[i], text, n, is_long))
			return &argp_own[i];
	return NULL;
}

/* DOCA API reference, ARGP: INVALID_VALUE, NO_MEMORY. */
doca_error_t doca_argp_param_create(struct doca_argp_param **param)
{
	if (!param)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "param is NULL");
	struct doca_argp_param *p = softdoca_object_new(OBJECT_PARAM, sizeof *p);
	if (!p)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a parameter");
	p->next = argp.loose;
	argp.loose = p;
	*param = p;
	return DOCA_SUCCESS;
}

/* DOCA does not define what a setter does with NULL. Here it is logged and ignored. */
static bool may_set(const char *func, const struct doca_argp_param *p, bool valid)
{
	const char *why = !object_is(p, OBJECT_PARAM) ? "not a parameter"
			  : p->registered             ? "already registered"
			  : !valid                    ? "the value is NULL or unknown"
						      : NULL;
	if (why)
		softdoca_log(DOCA_LOG_LEVEL_WARNING, func, "%p: %s", (const void *)p, why);
	return !why;
}

static void set_text(const char *func, struct doca_argp_param *p, char **to, const char *text)
{
	char *copy = strdup(text);
	free(*to);
	*to = copy;
	p->unset |= !copy;
	if (!copy)
		softdoca_log(DOCA_LOG_LEVEL_ERROR, func, "no memory for a text");
}

#define SET_TEXT(name)                                                                   \
	void doca_argp_param_set_##name(struct doca_argp_param *param, const char *text) \
	{                                                                                \
		if (may_set(__func__, param, text))                                      \
			set_text(__func__, param, &param->flag.name, text);              \
	}
SET_TEXT(short_name)
SET_TEXT(long_name)
SET_TEXT(description)
SET_TEXT(arguments)

void doca_argp_param_set_callback(struct doca_argp_param *param, doca_argp_param_cb_t callback)
{
	if (may_set(__func__, param, callback))
		param->callback = callback;
}

void doca_argp_param_set_type(struct doca_argp_param *param, enum doca_argp_type type)
{
	if (may_set(__func__, param, true))
		param->flag.type = type;
}

void doca_argp_param_set_mandatory(struct doca_argp_param *param)
{
	if (may_set(__func__, param, true))
		param->mandatory = true;
}

void doca_argp_param_set_multiplicity(struct doca_argp_param *param)
{
	if (may_set(__func__, param, true))
		param->multiple = true;
}

/* Returns whether a name can be typed on a command line: no leading `-`, no `=`, no tab or newline.
 * A long name may contain spaces; then it is typed as a quoted argument. */
static bool typable(const char *name, bool is_long)
{
	size_t n = strlen(name);
	return n && *name != '-' && *name != ' ' && name[n - 1] != ' ' &&
	       !name[strcspn(name, is_long ? "=\t\r\n" : "= \t\r\n")];
}

static doca_error_t check_name(const char *name, bool is_long)
{
	if (!name)
		return DOCA_SUCCESS;
	if (!typable(name, is_long))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "'%s' cannot be a parameter's name", name);
	const struct flag *found = argp_flag(name, strlen(name), is_long);
	if (found && (is_long || argp_param_of(found)))
		return REFUSE(DOCA_ERROR_BAD_STATE, "parameter %s%s already exists",
			      is_long ? "--" : "-", name);
	return DOCA_SUCCESS;
}

/* DOCA API reference, ARGP: BAD_STATE without doca_argp_init(); INITIALIZATION if the description, the callback, the type or both names
 * are missing; BAD_STATE if it was registered, as is a name in use, including argp's own long names. A short name of
 * argp's is taken from it: annali07/doca_dma_2024 has a -l of its own. */
static doca_error_t check(const struct doca_argp_param *p)
{
	const struct flag *f = &p->flag;
	if (!argp.ready || argp.running)
		return REFUSE(DOCA_ERROR_BAD_STATE, "called before doca_argp_init or inside "
						    "doca_argp_start");
	if (p->unset)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a text of the parameter");
	if (!f->short_name && !f->long_name)
		return REFUSE(DOCA_ERROR_INITIALIZATION, "the parameter has no name");
	const char *name = f->long_name ? f->long_name : f->short_name;
	if (!f->description || !p->callback || f->type == DOCA_ARGP_TYPE_UNKNOWN)
		return REFUSE(DOCA_ERROR_INITIALIZATION, "parameter %s has no %s", name,
			      !f->description ? "description"
			      : !p->callback  ? "callback"
					      : "type");
	if ((unsigned)f->type > DOCA_ARGP_TYPE_JSON_OBJ)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "parameter %s: type %u is unknown", name,
			      (unsigned)f->type);
	doca_error_t error = check_name(f->short_name, false);
	return error == DOCA_SUCCESS ? check_name(f->long_name, true) : error;
}

/* DOCA API reference, ARGP: the parameter belongs to argp afterwards, and is freed on failure,
 * too. */
doca_error_t doca_argp_register_param(struct doca_argp_param *input_param)
{
	struct doca_argp_param *p = input_param, **at = &argp.loose, **end = &argp.params;
	CHECK_OBJECT(p, OBJECT_PARAM, "a parameter");
	if (p->registered)
		return REFUSE(DOCA_ERROR_BAD_STATE, "%p is already registered", (void *)p);
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	p->next = NULL;
	doca_error_t error = check(p);
	if (error != DOCA_SUCCESS) {
		param_free(p);
		return error;
	}
	while (*end)
		end = &(*end)->next;
	*end = p;
	p->registered = true;
	return DOCA_SUCCESS;
}
