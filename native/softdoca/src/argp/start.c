// SPDX-License-Identifier: Apache-2.0
/*
 * The command line. It is parsed completely before any callback is called, so a syntax error has no
 * other effect.
 */
#include "argp.h"
#include "doca_version.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A flag of the command line. value is NULL for a boolean. */
struct given {
	const struct flag *flag;
	const char *value;
};

struct line {
	int argc, next; /* next: index of the next argument */
	char **argv;
	struct given *given;
	size_t n;
};

/* Parses a decimal or hexadecimal int. */
static bool to_int(const char *text, int *out)
{
	const char *digits = text + (*text == '-' || *text == '+');
	bool hexadecimal = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X');
	const char *known = hexadecimal ? "0123456789abcdefABCDEF" : "0123456789";
	digits += hexadecimal ? 2 : 0;
	if (!*digits || digits[strspn(digits, known)])
		return false;
	errno = 0;
	long n = strtol(text, NULL, hexadecimal ? 16 : 10);
	*out = (int)n;
	return !errno && n >= INT_MIN && n <= INT_MAX;
}

/* DOCA API reference, ARGP: the value belongs to argp and is valid in the callback only. So the
 * callback gets a copy, which it may modify. */
static doca_error_t deliver_text(struct doca_argp_param *p, const char *value)
{
	char *copy = strdup(value);
	if (!copy)
		return argp_wrong(DOCA_ERROR_NO_MEMORY, "no memory for a parameter's value");
	doca_error_t error = p->callback(copy, argp.config);
	free(copy);
	return error;
}

/* Converts a value to the parameter's type and calls its callback. */
static doca_error_t deliver(struct doca_argp_param *p, const char *value)
{
	const char *name = p->flag.long_name ? p->flag.long_name : p->flag.short_name;
	doca_error_t error;
	int number;
	bool flag = value && !strcmp(value, "true");
	switch (p->flag.type) {
	case DOCA_ARGP_TYPE_INT:
		if (!to_int(value, &number))
			return argp_wrong(DOCA_ERROR_INVALID_VALUE,
					  "%s must be an integer, not '%s'", name, value);
		error = p->callback(&number, argp.config);
		break;
	case DOCA_ARGP_TYPE_BOOLEAN:
		error = p->callback(&flag, argp.config);
		break;
	default:
		error = deliver_text(p, value);
	}
	if (error != DOCA_SUCCESS)
		softdoca_log(DOCA_LOG_LEVEL_WARNING, "doca_argp_start",
			     "the program rejects %s '%s': %s", name, value,
			     doca_error_get_name(error));
	return error;
}

static doca_error_t store_flag(struct line *l, const struct flag *flag, const char *value)
{
	struct doca_argp_param *p = argp_param_of(flag);
	const char *name = flag->long_name ? flag->long_name : flag->short_name;
	/* DOCA Arg Parser guide: multiplicity is off unless set. */
	if (p && p->on_line && !p->multiple)
		return argp_wrong(DOCA_ERROR_INVALID_VALUE, "%s is given more than once", name);
	if (p)
		p->on_line = true;
	if (flag == &argp_own[OWN_JSON] || flag->type == DOCA_ARGP_TYPE_JSON_OBJ)
		return argp_wrong(DOCA_ERROR_NOT_SUPPORTED,
				  "%s: softdoca reads no parameters of JSON; give them on the command line",
				  name);
	l->given[l->n++] = (struct given){flag, value};
	return DOCA_SUCCESS;
}

/* Reads the value of a flag: the joined text, or the next argument. */
static doca_error_t with_value(struct line *l, const struct flag *flag, const char *joined,
			       const char *as_given)
{
	if (joined)
		return store_flag(l, flag, joined);
	if (l->next == l->argc)
		return argp_wrong(DOCA_ERROR_INVALID_VALUE, "%s needs a value", as_given);
	return store_flag(l, flag, l->argv[l->next++]);
}

/* --name, --name value, --name=value */
static doca_error_t read_long(struct line *l, const char *text)
{
	size_t n = strcspn(text, "=");
	const char *joined = text[n] ? text + n + 1 : NULL;
	const struct flag *flag = argp_flag(text, n, true);
	if (!flag) /* DOCA API reference, ARGP: NOT_SUPPORTED for a flag that is unknown */
		return argp_wrong(DOCA_ERROR_NOT_SUPPORTED, "unknown parameter --%.*s", (int)n,
				  text);
	if (flag->type != DOCA_ARGP_TYPE_BOOLEAN)
		return with_value(l, flag, joined, text - 2);
	if (joined)
		return argp_wrong(DOCA_ERROR_INVALID_VALUE, "--%.*s takes no value, not '%s'",
				  (int)n, text, joined);
	return store_flag(l, flag, NULL);
}

/* -n, -n value, -nvalue; several booleans as -abc; a short name may have several letters. */
static doca_error_t read_short(struct line *l, const char *text)
{
	const struct flag *flag = argp_flag(text, strlen(text), false);
	doca_error_t error = DOCA_SUCCESS;
	if (flag)
		return flag->type == DOCA_ARGP_TYPE_BOOLEAN ? store_flag(l, flag, NULL)
							    : with_value(l, flag, NULL, text - 1);
	for (; *text && error == DOCA_SUCCESS; text++) {
		flag = argp_flag(text, 1, false);
		if (!flag)
			return argp_wrong(DOCA_ERROR_NOT_SUPPORTED, "unknown parameter -%s", text);
		if (flag->type != DOCA_ARGP_TYPE_BOOLEAN)
			return with_value(l, flag, text[1] ? text + 1 : NULL, text);
		error = store_flag(l, flag, NULL);
	}
	return error;
}

static doca_error_t read_line(struct line *l)
{
	doca_error_t error = DOCA_SUCCESS;
	while (error == DOCA_SUCCESS && l->next < l->argc) {
		const char *text = l->argv[l->next++];
		if (text[0] == '-' && text[1] == '-' && text[2])
			error = read_long(l, text + 2);
		else if (text[0] == '-' && text[1] && text[1] != '-')
			error = read_short(l, text + 1);
		else
			error = argp_wrong(DOCA_ERROR_NOT_SUPPORTED, "'%s' is not a parameter",
					   text);
	}
	return error;
}

static bool was_given(const struct line *l, enum own own)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->given[i].flag == &argp_own[own])
			return true;
	return false;
}

/* Applies --log-level or --sdk-log-level. */
static doca_error_t set_level(const struct flag *flag, const char *value)
{
	bool sdk = flag == &argp_own[OWN_SDK_LOG];
	int n;
	if (to_int(value, &n) && n > 0 &&
	    (sdk ? softdoca_log_sdk_limit((uint32_t)n) : softdoca_log_limit((uint32_t)n)))
		return DOCA_SUCCESS;
	return argp_wrong(DOCA_ERROR_INVALID_VALUE,
			  "%s '%s' is invalid: the levels are 10, 20, 30, 40, 50, 60, 70",
			  flag->long_name, value);
}

static doca_error_t apply_line(const struct line *l)
{
	doca_error_t error = DOCA_SUCCESS;
	for (size_t i = 0; i < l->n && error == DOCA_SUCCESS; i++) {
		const struct given *g = &l->given[i];
		struct doca_argp_param *p = argp_param_of(g->flag);
		if (p)
			error = deliver(p, g->value ? g->value : "true");
		else
			error = set_level(g->flag, g->value);
	}
	return error;
}

static doca_error_t check_complete(void)
{
	for (struct doca_argp_param *p = argp.params; p; p = p->next)
		if (p->mandatory && !p->on_line)
			return argp_wrong(DOCA_ERROR_INVALID_VALUE, "%s%s is required",
					  p->flag.long_name ? "--" : "-",
					  p->flag.long_name ? p->flag.long_name
							    : p->flag.short_name);
	return argp.validate ? argp.validate(argp.config) : DOCA_SUCCESS;
}

/* DOCA API reference, ARGP: --help and --version end the program. */
static void print_help_or_version(const struct line *l)
{
	if (was_given(l, OWN_HELP)) {
		argp_usage(stdout);
		exit(EXIT_SUCCESS);
	}
	if (!was_given(l, OWN_VERSION))
		return;
	if (argp.version)
		argp.version(NULL, argp.config);
	else
		printf("built for DOCA %s, runs with softdoca %s\n", doca_version(),
		       doca_version_runtime());
	exit(EXIT_SUCCESS);
}

static doca_error_t run_callbacks(struct line *l)
{
	for (struct doca_argp_param *p = argp.params; p; p = p->next)
		p->on_line = false;
	doca_error_t error = read_line(l);
	if (error == DOCA_SUCCESS)
		print_help_or_version(l);
	if (error == DOCA_SUCCESS)
		error = apply_line(l);
	return error == DOCA_SUCCESS ? check_complete() : error;
}

/* Takes the last part of argv[0] as the program's name. */
static bool take_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *name = strdup(slash ? slash + 1 : path);
	if (!name)
		return false;
	free(argp.program);
	argp.program = name;
	return true;
}

/* DOCA API reference, ARGP: NOT_SUPPORTED, INVALID_VALUE, NO_MEMORY,
 * INITIALIZATION, and results of callbacks. That a second start is allowed: guess. */
doca_error_t doca_argp_start(int argc, char **argv)
{
	struct line l = {.argc = argc, .next = 1, .argv = argv};
	if (!argp.ready)
		return REFUSE(DOCA_ERROR_BAD_STATE, "doca_argp_init was not called");
	if (argp.running)
		return REFUSE(DOCA_ERROR_BAD_STATE, "called inside a callback of doca_argp_start");
	if (argc < 1 || !argv)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "argc is %d, argv %p", argc, (void *)argv);
	size_t letters = 0; /* each letter may be a flag: -abc */
	for (int i = 0; i < argc; i++) {
		if (!argv[i])
			return REFUSE(DOCA_ERROR_INVALID_VALUE, "argv[%d] is NULL, argc is %d", i,
				      argc);
		letters += strlen(argv[i]);
	}
	if (!*argp.program && !take_name(argv[0]))
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for the program's name");
	l.given = calloc(letters + 1, sizeof *l.given);
	if (!l.given)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %zu flags", letters);
	argp.running = true;
	doca_error_t error = run_callbacks(&l);
	argp.running = false;
	free(l.given);
	return error;
}
