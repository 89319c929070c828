// SPDX-License-Identifier: Apache-2.0
/* Command lines, as a DOCA program with a parameter of each type sees them. */
#define CHECK_DETAIL() ""
#include "check.h"

#include <stdbool.h>

#include "doca_argp.h"
#include "doca_log.h"

DOCA_LOG_REGISTER(TEST_ARGP);

struct config {
	char text[64];
	int number, calls;
	bool flag, flag_given;
	const char *order[8];
};

static struct config config;

static void note(struct config *c, const char *what)
{
	c->order[c->calls++] = what;
}

static doca_error_t on_text(void *param, void *to)
{
	struct config *c = to;
	note(c, "text");
	snprintf(c->text, sizeof c->text, "%s", (const char *)param);
	memset(param, 'x', strlen(param)); /* it is the callback's own */
	return strcmp(c->text, "refused") ? DOCA_SUCCESS : DOCA_ERROR_TOO_BIG;
}

static doca_error_t on_number(void *param, void *to)
{
	struct config *c = to;
	note(c, "number");
	c->number = *(int *)param;
	return DOCA_SUCCESS;
}

static doca_error_t on_flag(void *param, void *to)
{
	struct config *c = to;
	note(c, "flag");
	c->flag = *(bool *)param;
	c->flag_given = true;
	return DOCA_SUCCESS;
}

static struct doca_argp_param *make(const char *short_name, const char *long_name,
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
static void set_up(void)
{
	CHECK_EQ(doca_argp_init("prog", &config), DOCA_SUCCESS);
	CHECK_EQ(doca_argp_register_param(make("t", "text", DOCA_ARGP_TYPE_STRING, on_text)), 0);
	CHECK_EQ(doca_argp_register_param(make("n", "number", DOCA_ARGP_TYPE_INT, on_number)), 0);
	CHECK_EQ(doca_argp_register_param(make("f", "flag", DOCA_ARGP_TYPE_BOOLEAN, on_flag)), 0);
	CHECK_EQ(doca_argp_register_param(
			 make("g", "other-flag", DOCA_ARGP_TYPE_BOOLEAN, on_flag)),
		 0);
	CHECK_EQ(doca_argp_register_param(make(NULL, "object", DOCA_ARGP_TYPE_JSON_OBJ, on_text)),
		 0);
}

/* Starts with these arguments after the program's name. */
#define START(...) start((char *[]){"prog", ##__VA_ARGS__, NULL})
static doca_error_t start(char **argv)
{
	int argc = 0;
	while (argv[argc])
		argc++;
	memset(&config, 0, sizeof config);
	return doca_argp_start(argc, argv);
}

/* Runs one start in a child process. Its output to stdout and stderr is stored in out. Returns its
 * exit status. */
static int start_apart(char **argv, char *out, size_t cap)
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

TEST(each_way_to_write_a_value_reaches_the_callback)
{
	set_up();
	CHECK_EQ(START("-t", "a"), DOCA_SUCCESS);
	CHECK(!strcmp(config.text, "a"));
	CHECK_EQ(START("-ta b"), DOCA_SUCCESS);
	CHECK(!strcmp(config.text, "a b"));
	CHECK_EQ(START("--text", "--number"), DOCA_SUCCESS);
	CHECK(!strcmp(config.text, "--number"));
	CHECK_EQ(START("--text=x=y"), DOCA_SUCCESS);
	CHECK(!strcmp(config.text, "x=y"));
	CHECK_EQ(START("--text="), DOCA_SUCCESS);
	CHECK(!strcmp(config.text, "") && config.calls == 1);
	CHECK_EQ(START("-n", "-17"), DOCA_SUCCESS);
	CHECK_EQ(config.number, -17);
	CHECK_EQ(START("-n0x1f"), DOCA_SUCCESS);
	CHECK_EQ(config.number, 31);
	CHECK_EQ(START("--number=2147483647"), DOCA_SUCCESS);
	CHECK_EQ(config.number, 2147483647);
	CHECK_EQ(START("-f"), DOCA_SUCCESS);
	CHECK(config.flag);
	CHECK_EQ(START("-fgn", "3"), DOCA_SUCCESS);
	CHECK_EQ(config.calls, 3);
	CHECK_EQ(config.number, 3);
	CHECK_EQ(START(), DOCA_SUCCESS);
	CHECK_EQ(config.calls, 0);
	CHECK_EQ(doca_argp_destroy(), DOCA_SUCCESS);
}

TEST(callbacks_run_in_the_order_of_the_line)
{
	set_up();
	CHECK_EQ(START("--flag", "-n", "1", "-t", "x"), DOCA_SUCCESS);
	CHECK_EQ(config.calls, 3);
	CHECK(!strcmp(config.order[0], "flag") && !strcmp(config.order[1], "number") &&
	      !strcmp(config.order[2], "text"));
}

TEST(a_mistake_on_the_line_gives_its_error_and_calls_nothing)
{
	static const struct {
		char *argv[5];
		doca_error_t error;
		const char *says;
	} lines[] = {
		{{"prog", "-f", "--unknown"}, DOCA_ERROR_NOT_SUPPORTED, "--unknown"},
		{{"prog", "-f", "-u"}, DOCA_ERROR_NOT_SUPPORTED, "-u"},
		{{"prog", "-fu"}, DOCA_ERROR_NOT_SUPPORTED, "-u"},
		{{"prog", "-f", "word"}, DOCA_ERROR_NOT_SUPPORTED, "'word'"},
		{{"prog", "-f", "--json", "x"}, DOCA_ERROR_NOT_SUPPORTED, "command line"},
		{{"prog", "-f", "-"}, DOCA_ERROR_NOT_SUPPORTED, "'-'"},
		{{"prog", "-f", "--"}, DOCA_ERROR_NOT_SUPPORTED, "'--'"},
		{{"prog", "-f", "--=3"}, DOCA_ERROR_NOT_SUPPORTED, "--"},
		{{"prog", "-f", ""}, DOCA_ERROR_NOT_SUPPORTED, "''"},
		{{"prog", "-f", "-t"}, DOCA_ERROR_INVALID_VALUE, "needs a value"},
		{{"prog", "-f", "--number"}, DOCA_ERROR_INVALID_VALUE, "needs a value"},
		{{"prog", "-f", "-f"}, DOCA_ERROR_INVALID_VALUE, "flag is given more than once"},
		{{"prog", "-t", "a", "--text=b"}, DOCA_ERROR_INVALID_VALUE, "text is given more than once"},
		{{"prog", "--flag=1"}, DOCA_ERROR_INVALID_VALUE, "'1'"},
		{{"prog", "-f", "--object", "{}"}, DOCA_ERROR_NOT_SUPPORTED, "command line"},
		{{"prog", "-f", "-j/nowhere"}, DOCA_ERROR_NOT_SUPPORTED, "json"},
	};
	char out[8192];
	set_up();
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
		CHECK_EQ(start((char **)lines[i].argv), lines[i].error);
		CHECK_EQ(config.calls, 0);
		CHECK_EQ(start_apart((char **)lines[i].argv, out, sizeof out), 41);
		CHECK_SAYS(out, "prog: ");
		CHECK_SAYS(out, lines[i].says);
		CHECK_SAYS(out, "Usage: prog");
	}
}

TEST(a_number_that_is_none_is_refused)
{
	static char *const wrong[] = {"", "x", "1x", " 1", "1.5", "0x", "2147483648",
				      "-2147483649", "99999999999999999999", "--1", "+-1", "0xg"};
	set_up();
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		CHECK_EQ(START("-n", wrong[i]), DOCA_ERROR_INVALID_VALUE);
		CHECK_EQ(config.calls, 0);
	}
}

TEST(a_callback_s_error_ends_the_start)
{
	set_up();
	CHECK_EQ(START("-t", "refused", "-f"), DOCA_ERROR_TOO_BIG);
	CHECK_EQ(config.calls, 1);
}

TEST(help_lists_every_parameter_aligned_and_exits_0)
{
	char out[8192];
	set_up();
	struct doca_argp_param *p =
		make("p", "a-name-that-is-far-too-long-for-the-column", DOCA_ARGP_TYPE_STRING,
		     on_text);
	doca_argp_param_set_description(p, "a description that is so long that it takes more than "
					   "one line of a terminal, and is broken between words");
	doca_argp_param_set_mandatory(p);
	CHECK_EQ(doca_argp_register_param(p), DOCA_SUCCESS);
	p = make("r", "rules", DOCA_ARGP_TYPE_STRING, on_text);
	doca_argp_param_set_arguments(p, "<path of rules>");
	CHECK_EQ(doca_argp_register_param(p), DOCA_SUCCESS);
	CHECK_EQ(start_apart((char *[]){"prog", "-t", "x", "--help", NULL}, out, sizeof out), 0);
	static const char *const parts[] = {
		"Usage: prog [DOCA Flags] [Program Flags]\n", "-h, --help ", "-v, --version ",
		"-l, --log-level <number>", "    --sdk-log-level <number>", "-j, --json <path>",
		"-t, --text <text>", "-r, --rules <path of rules>", "-n, --number <number>", "-f, --flag ", "(required)"};
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		CHECK_SAYS(out, parts[i]);
	long column = -1;
	for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n")) {
		CHECK(strlen(line) <= 120);
		char *description = strstr(line, "what it is for");
		if (description && column < 0)
			column = description - line;
		if (description)
			CHECK_EQ(description - line, column);
	}
	CHECK(column > 0);
	CHECK_EQ(start_apart((char *[]){"prog", "-h", NULL}, out, sizeof out), 0);
}

TEST(a_program_that_gives_no_name_goes_by_that_of_its_file)
{
	char out[4096];
	CHECK_EQ(doca_argp_init(NULL, &config), DOCA_SUCCESS);
	CHECK_EQ(start_apart((char *[]){"/a/path/to/prog", "-h", NULL}, out, sizeof out), 0);
	CHECK_SAYS(out, "Usage: prog [DOCA Flags]\n");
	CHECK_EQ(start_apart((char *[]){"other", "--help", NULL}, out, sizeof out), 0);
	CHECK_SAYS(out, "Usage: other [DOCA Flags]\n");
}

static doca_error_t own_version(void *param, void *to)
{
	(void)param;
	CHECK(to == &config);
	printf("version of my own\n");
	return DOCA_SUCCESS;
}

TEST(version_calls_the_program_s_callback_and_exits_0)
{
	char out[4096];
	set_up();
	CHECK_EQ(start_apart((char *[]){"prog", "-v", NULL}, out, sizeof out), 0);
	CHECK_SAYS(out, "3.3.0");
	CHECK_EQ(doca_argp_register_version_callback(own_version), DOCA_SUCCESS);
	CHECK_EQ(start_apart((char *[]){"prog", "--version", NULL}, out, sizeof out), 0);
	CHECK_SAYS(out, "version of my own");
}

static doca_error_t valid_if_even(void *to)
{
	return ((struct config *)to)->number % 2 ? DOCA_ERROR_BAD_CONFIG : DOCA_SUCCESS;
}

TEST(the_validation_callback_has_the_last_word)
{
	set_up();
	CHECK_EQ(doca_argp_register_validation_callback(valid_if_even), DOCA_SUCCESS);
	CHECK_EQ(START("-n", "2"), DOCA_SUCCESS);
	CHECK_EQ(START("-n", "3"), DOCA_ERROR_BAD_CONFIG);
	CHECK_EQ(START("-n", "x"), DOCA_ERROR_INVALID_VALUE);
}

TEST(a_mandatory_parameter_is_asked_for)
{
	set_up();
	struct doca_argp_param *p = make("m", "must", DOCA_ARGP_TYPE_INT, on_number);
	doca_argp_param_set_mandatory(p);
	CHECK_EQ(doca_argp_register_param(p), DOCA_SUCCESS);
	CHECK_EQ(START(), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(START("-m", "1"), DOCA_SUCCESS);
	CHECK_EQ(START(), DOCA_ERROR_INVALID_VALUE);
}

TEST(a_long_name_with_a_space_is_one_argument)
{
	set_up();
	CHECK_EQ(doca_argp_register_param(
			 make(NULL, "queue depth", DOCA_ARGP_TYPE_INT, on_number)),
		 DOCA_SUCCESS);
	CHECK_EQ(START("--queue depth", "10"), DOCA_SUCCESS);
	CHECK_EQ(config.number, 10);
	CHECK_EQ(START("--queue depth=11"), DOCA_SUCCESS);
	CHECK_EQ(config.number, 11);
	CHECK_EQ(START("--queue", "depth"), DOCA_ERROR_NOT_SUPPORTED);
}

TEST(a_parameter_of_several_values_gets_each)
{
	struct doca_argp_param *p = make("m", "many", DOCA_ARGP_TYPE_INT, on_number);

	set_up();
	doca_argp_param_set_multiplicity(p);
	doca_argp_param_set_multiplicity(NULL);
	CHECK_EQ(doca_argp_register_param(p), DOCA_SUCCESS);
	CHECK_EQ(START("-m", "1", "--many", "2", "-m3"), DOCA_SUCCESS);
	CHECK_EQ(config.calls, 3);
	CHECK_EQ(config.number, 3);
	CHECK_EQ(START("-n", "1", "-n", "2"), DOCA_ERROR_INVALID_VALUE);
}

TEST(log_levels_are_set_by_the_line)
{
	static char *const wrong[] = {"0", "11", "80", "-10", "info", ""};
	set_up();
	CHECK_EQ(doca_log_backend_create_standard(), DOCA_SUCCESS);
	CHECK_EQ(START("-l", "70", "--sdk-log-level", "10"), DOCA_SUCCESS);
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		CHECK_EQ(START("--log-level", wrong[i]), DOCA_ERROR_INVALID_VALUE);
		CHECK_EQ(START("--sdk-log-level", wrong[i]), DOCA_ERROR_INVALID_VALUE);
	}
}

static doca_error_t say_something(void *to)
{
	(void)to;
	DOCA_LOG_INFO("an info record");
	DOCA_LOG_DBG("a debug record");
	return DOCA_SUCCESS;
}

TEST(the_program_s_records_follow_the_log_level)
{
	char out[8192];
	set_up();
	CHECK_EQ(doca_log_backend_create_standard(), DOCA_SUCCESS);
	CHECK_EQ(doca_argp_register_validation_callback(say_something), DOCA_SUCCESS);
	CHECK_EQ(start_apart((char *[]){"prog", NULL}, out, sizeof out), 40);
	CHECK(strstr(out, "an info record") && !strstr(out, "a debug record"));
	CHECK_EQ(start_apart((char *[]){"prog", "-l", "40", NULL}, out, sizeof out), 40);
	CHECK(!strstr(out, "an info record"));
	CHECK_EQ(start_apart((char *[]){"prog", "-l60", NULL}, out, sizeof out), 40);
	CHECK(strstr(out, "an info record") && strstr(out, "a debug record"));
}

TEST(a_parameter_that_lacks_something_is_not_registered)
{
	struct doca_argp_param *p;
	set_up();
	CHECK_EQ(doca_argp_register_param(make(NULL, NULL, DOCA_ARGP_TYPE_INT, on_number)),
		 DOCA_ERROR_INITIALIZATION);
	CHECK_EQ(doca_argp_register_param(make("a", NULL, DOCA_ARGP_TYPE_UNKNOWN, on_number)),
		 DOCA_ERROR_INITIALIZATION);
	CHECK_EQ(doca_argp_register_param(make("a", NULL, (enum doca_argp_type)9, on_number)),
		 DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_argp_register_param(make("a", NULL, DOCA_ARGP_TYPE_INT, NULL)),
		 DOCA_ERROR_INITIALIZATION);
	CHECK_EQ(doca_argp_param_create(&p), DOCA_SUCCESS);
	doca_argp_param_set_short_name(p, "a");
	doca_argp_param_set_type(p, DOCA_ARGP_TYPE_INT);
	doca_argp_param_set_callback(p, on_number);
	CHECK_EQ(doca_argp_register_param(p), DOCA_ERROR_INITIALIZATION);
	CHECK_EQ(START("-a", "1"), DOCA_ERROR_NOT_SUPPORTED);
	CHECK_EQ(doca_argp_register_param(make("a", NULL, DOCA_ARGP_TYPE_INT, on_number)), 0);
	CHECK_EQ(START("-a", "1"), DOCA_SUCCESS);
}

TEST(a_name_that_is_taken_or_cannot_be_typed_is_refused)
{
	static const struct {
		const char *short_name, *long_name;
		doca_error_t error;
	} names[] = {
		{"t", NULL, DOCA_ERROR_BAD_STATE},
		{NULL, "text", DOCA_ERROR_BAD_STATE},
		{NULL, "help", DOCA_ERROR_BAD_STATE},
		{NULL, "json", DOCA_ERROR_BAD_STATE},
		{"x", "version", DOCA_ERROR_BAD_STATE},
		{"-", NULL, DOCA_ERROR_INVALID_VALUE},
		{"", NULL, DOCA_ERROR_INVALID_VALUE},
		{NULL, "", DOCA_ERROR_INVALID_VALUE},
		{NULL, "--dash", DOCA_ERROR_INVALID_VALUE},
		{NULL, "a=b", DOCA_ERROR_INVALID_VALUE},
		{"a b", NULL, DOCA_ERROR_INVALID_VALUE},
		{NULL, " a", DOCA_ERROR_INVALID_VALUE},
		{NULL, "a ", DOCA_ERROR_INVALID_VALUE},
		{NULL, "a\tb", DOCA_ERROR_INVALID_VALUE},
		{NULL, "a b", DOCA_SUCCESS},
		{"w", "a-new-one", DOCA_SUCCESS},
	};
	set_up();
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		CHECK_EQ(doca_argp_register_param(make(names[i].short_name, names[i].long_name,
						       DOCA_ARGP_TYPE_INT, on_number)),
			 names[i].error);
}

TEST(a_short_name_of_argp_is_the_programs_if_it_has_it)
{
	char out[8192];

	set_up();
	CHECK_EQ(doca_argp_register_param(make("l", "loops", DOCA_ARGP_TYPE_INT, on_number)), DOCA_SUCCESS);
	CHECK_EQ(START("-l", "7"), DOCA_SUCCESS);
	CHECK_EQ(config.number, 7);
	CHECK_EQ(START("--log-level", "50"), DOCA_SUCCESS);
	CHECK_EQ(config.calls, 0);
	CHECK_EQ(start_apart((char *[]){"prog", "-t", "x", "--help", NULL}, out, sizeof out), 0);
	CHECK(strstr(out, "    --log-level") && !strstr(out, "-l, --log-level") && strstr(out, "-l, --loops"));
}

static struct doca_argp_param *registered, *loose;

static doca_error_t misuse(void *to)
{
	(void)to;
	CHECK_EQ(doca_argp_init("again", NULL), DOCA_ERROR_BAD_STATE);
	CHECK_EQ(START("-f"), DOCA_ERROR_BAD_STATE);
	CHECK_EQ(doca_argp_destroy(), DOCA_ERROR_BAD_STATE);
	CHECK_EQ(doca_argp_register_validation_callback(misuse), DOCA_ERROR_BAD_STATE);
	CHECK_EQ(doca_argp_register_version_callback(own_version), DOCA_ERROR_BAD_STATE);
	CHECK_EQ(doca_argp_register_param(make("z", NULL, DOCA_ARGP_TYPE_INT, on_number)),
		 DOCA_ERROR_BAD_STATE);
	return DOCA_SUCCESS;
}

TEST(calls_inside_a_callback_change_nothing)
{
	set_up();
	CHECK_EQ(doca_argp_register_validation_callback(misuse), DOCA_SUCCESS);
	CHECK_EQ(START("-f"), DOCA_SUCCESS);
	CHECK_EQ(doca_argp_destroy(), DOCA_SUCCESS);
}

TEST(calls_out_of_order_give_errors)
{
	char *no_end[] = {"prog", "-f", NULL, "-f"};
	CHECK_EQ(doca_argp_destroy(), DOCA_ERROR_BAD_STATE);
	CHECK_EQ(START("-f"), DOCA_ERROR_BAD_STATE);
	CHECK_EQ(doca_argp_register_param(make("a", "b", DOCA_ARGP_TYPE_INT, on_number)),
		 DOCA_ERROR_BAD_STATE);
	CHECK_EQ(doca_argp_register_validation_callback(valid_if_even), DOCA_ERROR_BAD_STATE);
	CHECK_EQ(doca_argp_register_version_callback(own_version), DOCA_ERROR_BAD_STATE);
	CHECK_EQ(doca_argp_init("", NULL), DOCA_ERROR_INVALID_VALUE);
	set_up();
	CHECK_EQ(doca_argp_init("again", NULL), DOCA_ERROR_BAD_STATE);
	CHECK_EQ(doca_argp_start(0, no_end), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_argp_start(-1, no_end), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_argp_start(1, NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_argp_start(4, no_end), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_argp_param_create(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_argp_register_validation_callback(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_argp_register_version_callback(NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_argp_destroy(), DOCA_SUCCESS);
	CHECK_EQ(doca_argp_destroy(), DOCA_ERROR_BAD_STATE);
	set_up();
	CHECK_EQ(START("-f"), DOCA_SUCCESS);
}

static void set_all(struct doca_argp_param *p)
{
	doca_argp_param_set_short_name(p, "q");
	doca_argp_param_set_long_name(p, "quite-new");
	doca_argp_param_set_description(p, "d");
	doca_argp_param_set_callback(p, on_flag);
	doca_argp_param_set_type(p, DOCA_ARGP_TYPE_BOOLEAN);
	doca_argp_param_set_mandatory(p);
	doca_argp_param_set_arguments(p, "<x>");
	doca_argp_param_set_multiplicity(p);
}

TEST(what_is_no_parameter_is_never_touched)
{
	_Alignas(64) char here[256] = {0};
	set_up();
	registered = make("r", "registered", DOCA_ARGP_TYPE_STRING, on_text);
	CHECK_EQ(doca_argp_register_param(registered), DOCA_SUCCESS);
	loose = make("x", NULL, DOCA_ARGP_TYPE_UNKNOWN, on_text);
	CHECK_EQ(doca_argp_register_param(loose), DOCA_ERROR_INITIALIZATION); /* and freed */
	struct doca_argp_param *const wrong[] = {
		NULL,	    (void *)1, (void *)here, (void *)-1, (void *)-64, loose,
		registered, (void *)((char *)registered + 64),
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		set_all(wrong[i]);
		CHECK_EQ(doca_argp_register_param(wrong[i]),
			 wrong[i] == registered ? DOCA_ERROR_BAD_STATE : DOCA_ERROR_INVALID_VALUE);
	}
	/* A setter without a value changes nothing, and neither does a setter after
	 * registration. */
	struct doca_argp_param *p = make("k", "kept", DOCA_ARGP_TYPE_STRING, on_text);
	doca_argp_param_set_short_name(p, NULL);
	doca_argp_param_set_long_name(p, NULL);
	doca_argp_param_set_description(p, NULL);
	doca_argp_param_set_callback(p, NULL);
	doca_argp_param_set_arguments(p, NULL);
	CHECK_EQ(doca_argp_register_param(p), DOCA_SUCCESS);
	CHECK_EQ(START("-r", "1"), DOCA_SUCCESS);
	CHECK_EQ(START("-k", "1"), DOCA_SUCCESS);
	CHECK_EQ(doca_argp_destroy(), DOCA_SUCCESS);
	CHECK_EQ(doca_argp_register_param(registered), DOCA_ERROR_INVALID_VALUE);
}

TEST_MAIN(run_tests)
