// SPDX-License-Identifier: Apache-2.0
/*
 * Reader of the file of --json, which gives parameters by their long names, in DOCA's sections:
 *
 *	{"doca_general_flags": {"log-level": 60}, "doca_program_flags": {"pci-addr": "03:00.0"}}
 *
 * (DOCA Arg Parser guide, JSON file.) A parameter of type JSON_OBJ gets the source text of the
 * value. The whole file is checked before any callback is called.
 */
#include "argp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

enum { BYTES_MAX = 1 << 20 };

struct file {
	const char *path;
	char *text, *scratch; /* of the same size, because decoding does not lengthen a string */
	size_t size;
	struct json_value key, value;
	bool program; /* whether the current section is doca_program_flags */
};

/* Formats a position, for example "params.json line 7". */
static const char *where(const struct file *f, char out[128])
{
	struct json at = {.begin = f->text, .at = f->key.text};
	snprintf(out, 128, "%.100s line %u", f->path, json_line(&at));
	return out;
}

static doca_error_t refuse_value(const struct file *f, doca_error_t error, const char *why)
{
	char at[128];
	return argp_wrong(error, "%s: %.*s: %.*s: %s", where(f, at),
			  f->key.size > 64 ? 64 : (int)f->key.size, f->key.text,
			  f->value.size > 64 ? 64 : (int)f->value.size, f->value.text, why);
}

/* Returns the value as text for argp_deliver(), in f->scratch; NULL if it is not of the flag's
 * type. */
static const char *as_text(const struct file *f, enum doca_argp_type type)
{
	const enum json_type t = f->value.type;
	const bool fits = type == DOCA_ARGP_TYPE_STRING    ? t == JSON_STRING
			  : type == DOCA_ARGP_TYPE_INT     ? t == JSON_NUMBER
			  : type == DOCA_ARGP_TYPE_BOOLEAN ? t == JSON_TRUE || t == JSON_FALSE
							   : t == JSON_OBJECT || t == JSON_ARRAY;
	if (!fits)
		return NULL;
	if (t == JSON_STRING)
		return json_text(&f->value, f->scratch) ? f->scratch : NULL;
	memcpy(f->scratch, f->value.text, f->value.size);
	f->scratch[f->value.size] = '\0';
	return f->scratch;
}

static doca_error_t deliver(struct file *f, const struct flag *flag)
{
	static const char *const wanted[] = {
		[DOCA_ARGP_TYPE_STRING] = "the value must be a string without NUL",
		[DOCA_ARGP_TYPE_INT] = "the value must be a number",
		[DOCA_ARGP_TYPE_BOOLEAN] = "the value must be true or false",
		[DOCA_ARGP_TYPE_JSON_OBJ] = "the value must be an object or an array"};
	struct doca_argp_param *p = argp_param_of(flag);
	char at[128];
	if (p && p->in_file && !p->multiple)
		return refuse_value(f, DOCA_ERROR_INVALID_VALUE, "the key is repeated");
	const char *text = as_text(f, flag->type);
	if (!text)
		return refuse_value(f, DOCA_ERROR_INVALID_VALUE, wanted[flag->type]);
	if (!p)
		return argp_level(flag, text);
	p->in_file = true;
	return p->on_line ? DOCA_SUCCESS : argp_deliver(p, text, where(f, at));
}

static doca_error_t read_member(struct file *f)
{
	const struct flag *flag = NULL;
	if (json_text(&f->key, f->scratch))
		flag = argp_flag(f->scratch, strlen(f->scratch), true);
	bool level = flag == &argp_own[OWN_LOG] || flag == &argp_own[OWN_SDK_LOG];
	if (!flag || (f->program ? !argp_param_of(flag) : !level))
		return refuse_value(f, DOCA_ERROR_NOT_SUPPORTED, "unknown parameter");
	return deliver(f, flag);
}

static doca_error_t read_section(struct file *f)
{
	struct json j;
	doca_error_t error = DOCA_SUCCESS;
	json_open(&j, f->value.text, f->value.size);
	json_enter(&j);
	while (error == DOCA_SUCCESS && json_member(&j, &f->key, &f->value))
		error = read_member(f);
	return error;
}

static bool key_is(const struct file *f, const char *name)
{
	return json_text(&f->key, f->scratch) && !strcmp(f->scratch, name);
}

static doca_error_t read_sections(struct file *f)
{
	struct json j;
	doca_error_t error = DOCA_SUCCESS;
	json_open(&j, f->text, f->size);
	if (!json_value(&j, &f->value) || !json_ended(&j))
		return argp_wrong(DOCA_ERROR_IO_FAILED, "%s line %u: expected %s", f->path,
				  json_line(&j), j.wrong);
	json_open(&j, f->text, f->size);
	if (!json_enter(&j))
		return argp_wrong(DOCA_ERROR_IO_FAILED, "%s line 1: expected %s", f->path, j.wrong);
	while (error == DOCA_SUCCESS && json_member(&j, &f->key, &f->value)) {
		f->program = key_is(f, "doca_program_flags");
		if (!f->program && !key_is(f, "doca_general_flags"))
			error = refuse_value(f, DOCA_ERROR_NOT_SUPPORTED,
				      "unknown section: the sections are doca_general_flags and "
				      "doca_program_flags");
		else if (f->value.type != JSON_OBJECT)
			error = refuse_value(f, DOCA_ERROR_INVALID_VALUE, "a section must be an object");
		else
			error = read_section(f);
	}
	return error;
}

static doca_error_t read_bytes(struct file *f)
{
	FILE *in = fopen(f->path, "re");
	if (!in)
		return argp_wrong(DOCA_ERROR_IO_FAILED, "%s cannot be opened: %s", f->path,
				  strerror(errno));
	f->size = fread(f->text, 1, BYTES_MAX, in);
	bool failed = ferror(in), more = f->size == BYTES_MAX && fgetc(in) != EOF;
	fclose(in);
	if (failed)
		return argp_wrong(DOCA_ERROR_IO_FAILED, "%s cannot be read", f->path);
	if (more)
		return argp_wrong(DOCA_ERROR_IO_FAILED, "%s is longer than %d bytes", f->path,
				  BYTES_MAX);
	return DOCA_SUCCESS;
}

doca_error_t argp_file(const char *path)
{
	struct file f = {.path = path, .text = malloc(BYTES_MAX), .scratch = malloc(BYTES_MAX + 1)};
	doca_error_t error = f.text && f.scratch ? read_bytes(&f)
						 : argp_wrong(DOCA_ERROR_NO_MEMORY,
							      "no memory to read %s", path);
	if (error == DOCA_SUCCESS)
		error = read_sections(&f);
	free(f.text);
	free(f.scratch);
	return error;
}
