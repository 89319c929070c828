/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of command lines: a program with a parameter of each type, which records the values
 * that it receives. */
#ifndef SOFTDOCA_ARGP_CHECK_H
#define SOFTDOCA_ARGP_CHECK_H

#define CHECK_DETAIL() ""
#include "check.h"

#include <stdbool.h>

#include "doca_argp.h"
#include "doca_log.h"

#define UNUSED __attribute__((unused))

struct config {
	char text[64], json[64];
	int number, calls;
	bool flag, flag_given;
	const char *order[8];
};

static struct config config;

UNUSED static void note(struct config *c, const char *what)
{
	c->order[c->calls++] = what;
}

UNUSED static doca_error_t on_text(void *param, void *to)
{
	struct config *c = to;
	note(c, "text");
	snprintf(c->text, sizeof c->text, "%s", (const char *)param);
	memset(param, 'x', strlen(param)); /* it is the callback's own */
	return strcmp(c->text, "refused") ? DOCA_SUCCESS : DOCA_ERROR_TOO_BIG;
}

UNUSED static doca_error_t on_number(void *param, void *to)
{
	struct config *c = to;
	note(c, "number");
	c->number = *(int *)param;
	return DOCA_SUCCESS;
}

UNUSED static doca_error_t on_flag(void *param, void *to)
{
	struct config *c = to;
	note(c, "flag");
	c->flag = *(bool *)param;
	c->flag_given = true;
	return DOCA_SUCCESS;
}

UNUSED static doca_error_t on_json(void *param, void *to)
{
	struct config *c = to;
	note(c, "json");
	snprintf(c->json, sizeof c->json, "%s", (const char *)param);
	return DOCA_SUCCESS;
}

UNUSED static struct doca_argp_param *make(const char *short_name, const char *long_name,
				    enum doca_argp_type type, doca_argp_param_cb_t callback)
{
	struct doca_argp_param *p = NULL;
	CHECK_EQ(doca_argp_param_create(&p), DOCA_SUCCESS);
	if (short_name)
		doca_argp_param_set_short_name(p, short_name);
	if (long_name)
		doca_argp_param_set_long_name(p, long_name);
	doca_argp_param_set_description(p, "what it is for");
	doca_argp_param_set_callback(p, callback);
	doca_argp_param_set_type(p, type);
	return p;
}

/* -t --text, -n --number, -f --flag, -g --other-flag, --object */
UNUSED static void set_up(void)
{
	CHECK_EQ(doca_argp_init("prog", &config), DOCA_SUCCESS);
	CHECK_EQ(doca_argp_register_param(make("t", "text", DOCA_ARGP_TYPE_STRING, on_text)), 0);
	CHECK_EQ(doca_argp_register_param(make("n", "number", DOCA_ARGP_TYPE_INT, on_number)), 0);
	CHECK_EQ(doca_argp_register_param(make("f", "flag", DOCA_ARGP_TYPE_BOOLEAN, on_flag)), 0);
	CHECK_EQ(doca_argp_register_param(
			 make("g", "other-flag", DOCA_ARGP_TYPE_BOOLEAN, on_flag)),
		 0);
	CHECK_EQ(doca_argp_register_param(make(NULL, "object", DOCA_ARGP_TYPE_JSON_OBJ, on_json)),
		 0);
}

/* Starts with these arguments after the program's name. */
#define START(...) start((char *[]){"prog", ##__VA_ARGS__, NULL})
UNUSED static doca_error_t start(char **argv)
{
	int argc = 0;
	while (argv[argc])
		argc++;
	memset(&config, 0, sizeof config);
	return doca_argp_start(argc, argv);
}

/* Runs one start in a child process. Its output to stdout and stderr is stored in out. Returns its
 * exit status. */
UNUSED static int start_apart(char **argv, char *out, size_t cap)
{
	int pipe_fds[2], status;
	size_t n = 0;
	ssize_t got;
	fflush(NULL);
	CHECK_EQ(pipe(pipe_fds), 0);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		dup2(pipe_fds[1], STDOUT_FILENO);
		dup2(pipe_fds[1], STDERR_FILENO);
		close(pipe_fds[0]);
		close(pipe_fds[1]);
		exit(start(argv) == DOCA_SUCCESS ? 40 : 41);
	}
	close(pipe_fds[1]);
	while ((got = read(pipe_fds[0], out + n, cap - 1 - n)) > 0)
		n += (size_t)got;
	out[n] = '\0';
	close(pipe_fds[0]);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* Creates a file with this text; its path is valid until the next call. */
UNUSED static char *file_of(const char *text, size_t size)
{
	static char path[64];
	snprintf(path, sizeof path, "/tmp/softdoca-argp-%d.json", (int)getpid());
	FILE *f = fopen(path, "w");
	CHECK(f && fwrite(text, 1, size, f) == size && !fclose(f));
	return path;
}

UNUSED static doca_error_t start_json(const char *text)
{
	char *path = file_of(text, strlen(text));
	doca_error_t error = START("-j", path);
	CHECK_EQ(unlink(path), 0);
	return error;
}

#endif
