// SPDX-License-Identifier: Apache-2.0
/* The usage and error messages on the terminal. */
#include "argp.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 100, NAMES_MAX = 40 }; /* columns per line, and at most before the description */

#define LEVELS "10 disable, 20 critical, 30 error, 40 warning, 50 info, 60 debug, 70 trace"

const struct flag argp_own[N_OWN] = {
	[OWN_HELP] = {"h", "help", "print this text and exit", DOCA_ARGP_TYPE_BOOLEAN, NULL},
	[OWN_VERSION] = {"v", "version", "print the version and exit", DOCA_ARGP_TYPE_BOOLEAN,
			 NULL},
	[OWN_LOG] = {"l", "log-level", "level of the program's log: " LEVELS, DOCA_ARGP_TYPE_INT,
		     NULL},
	[OWN_SDK_LOG] = {NULL, "sdk-log-level", "level of the libraries' log: the same numbers",
			 DOCA_ARGP_TYPE_INT, NULL},
	[OWN_JSON] = {"j", "json", "refused: softdoca reads no file of parameters",
		      DOCA_ARGP_TYPE_STRING, "<path>"},
};

/* Writes "  -p, --pci-addr <text>" to out and returns its length. */
static int names(char *out, size_t cap, const struct flag *f)
{
	static const char *const argument[] = {[DOCA_ARGP_TYPE_STRING] = " <text>",
					       [DOCA_ARGP_TYPE_INT] = " <number>",
					       [DOCA_ARGP_TYPE_BOOLEAN] = "",
					       [DOCA_ARGP_TYPE_JSON_OBJ] = " (refused)"};
	/* A parameter of the program may have taken it from a flag of argp. */
	const char *name = f->short_name && argp_flag(f->short_name, strlen(f->short_name), false) == f
				   ? f->short_name
				   : NULL;
	int n = snprintf(out, cap, "  %s%s%s%s%s%s%s", name ? "-" : "    ", name ? name : "",
			 name && f->long_name ? ", " : "", f->long_name ? "--" : "",
			 f->long_name ? f->long_name : "", f->arguments ? " " : "",
			 f->arguments ? f->arguments : argument[f->type]);
	return n < 0 ? 0 : n;
}

/* Prints the description from column `indent` on, wrapped between words. */
static void describe(FILE *out, const char *text, int indent, bool mandatory)
{
	int column = indent;
	for (text += strspn(text, " \n\t"); *text; text += strspn(text, " \n\t")) {
		int n = (int)strcspn(text, " \n\t");
		if (column > indent && column + 1 + n > WIDTH) {
			fprintf(out, "\n%*s", indent, "");
			column = indent;
		}
		fprintf(out, "%s%.*s", column > indent ? " " : "", n, text);
		column += n + (column > indent);
		text += n;
	}
	fputs(mandatory ? " (required)\n" : "\n", out);
}

static void print_line(FILE *out, const struct flag *f, int indent, bool mandatory)
{
	char text[256];
	int n = names(text, sizeof text, f);
	fputs(text, out);
	if (n + 2 > indent) /* too long for its column: the description starts on the next line */
		fprintf(out, "\n%*s", indent, "");
	else
		fprintf(out, "%*s", indent - n, "");
	describe(out, f->description, indent, mandatory);
}

static int widen_column(int indent, const struct flag *f)
{
	char text[256];
	int n = names(text, sizeof text, f) + 2;
	return n > indent && n <= NAMES_MAX ? n : indent;
}

void argp_usage(FILE *out)
{
	int indent = 0;
	for (int i = 0; i < N_OWN; i++)
		indent = widen_column(indent, &argp_own[i]);
	for (struct doca_argp_param *p = argp.params; p; p = p->next)
		indent = widen_column(indent, &p->flag);
	fprintf(out, "Usage: %s [DOCA Flags]%s\n\nDOCA Flags:\n", argp.program,
		argp.params ? " [Program Flags]" : "");
	for (int i = 0; i < N_OWN; i++)
		print_line(out, &argp_own[i], indent, false);
	if (argp.params)
		fputs("\nProgram Flags:\n", out);
	for (struct doca_argp_param *p = argp.params; p; p = p->next)
		print_line(out, &p->flag, indent, p->mandatory);
}

/* DOCA Arg Parser guide: prints the error, then the usage. According to the guide this ends the
 * program; according to the API reference it returns an error, and programs rely on that. */
doca_error_t argp_wrong(doca_error_t error, const char *format, ...)
{
	char text[512];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	softdoca_log(DOCA_LOG_LEVEL_WARNING, "doca_argp_start", "%s", text);
	fflush(stdout);
	fprintf(stderr, "%s: %s\n", argp.program, text);
	argp_usage(stderr);
	return error;
}
