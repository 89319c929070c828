// SPDX-License-Identifier: Apache-2.0
/* Log records, and the texts of errors and versions. */
#define CHECK_DETAIL() ""
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "doca_dev.h"
#include "doca_error.h"
#include "doca_log.h"
#include "doca_version.h"

DOCA_LOG_REGISTER(TEST::LOG);

/* Runs in a child process with stdout and stderr in separate files, and returns the contents of
 * both. */
static char outs[2][1 << 16];

static void apart(void (*run)(void))
{
	FILE *files[2] = {tmpfile(), tmpfile()};
	int status;
	CHECK(files[0] && files[1]);
	fflush(NULL);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		dup2(fileno(files[0]), STDOUT_FILENO);
		dup2(fileno(files[1]), STDERR_FILENO);
		run();
		exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	for (int i = 0; i < 2; i++) {
		rewind(files[i]);
		outs[i][fread(outs[i], 1, sizeof outs[i] - 1, files[i])] = '\0';
		fclose(files[i]);
	}
	if (status)
		fprintf(stderr, "%s", outs[1]);
	CHECK_EQ(status, 0);
}

/* Makes a call that is refused, so that the library logs it at WARNING. */
static void refuse(void)
{
	CHECK_EQ(doca_devinfo_create_list(NULL, NULL), DOCA_ERROR_INVALID_VALUE);
}

static void one_of_each_level(void)
{
	CHECK_EQ(doca_log_backend_create_standard(), DOCA_SUCCESS);
	CHECK_EQ(doca_log_backend_create_standard(), DOCA_SUCCESS);
	errno = EBUSY;
	DOCA_LOG_CRIT("crit %d", 1);
	DOCA_LOG_ERR("err");
	DOCA_LOG_WARN("warn");
	DOCA_LOG_INFO("info\n");
	DOCA_LOG_DBG("debug");
	DOCA_LOG_TRC("trace");
	CHECK_EQ(errno, EBUSY);
}

TEST(records_go_to_stdout_or_stderr_by_their_level_once)
{
	apart(one_of_each_level);
	CHECK(!strstr(outs[0], "[DOCA][CRT]") && strstr(outs[1], "[DOCA][CRT]"));
	CHECK(strstr(outs[1], "crit 1\n") && strstr(outs[1], "err\n") && strstr(outs[1], "warn\n"));
	CHECK_SAYS(outs[0], "[DOCA][INF][TEST::LOG]");
	CHECK_SAYS(outs[0], "test_log.c");
	CHECK_SAYS(outs[0], "[one_of_each_level] info\n");
	CHECK(!strstr(outs[0], "\n\n"));
	CHECK(!strstr(outs[0], "debug") && !strstr(outs[0], "trace"));
	CHECK(strstr(outs[0], "info") == strrchr(outs[0], 'i'));
}

static void without_a_backend(void)
{
	CHECK_EQ(doca_log(DOCA_LOG_LEVEL_ERROR, log_source, "f", 1, "g", "unheard"), DOCA_SUCCESS);
	refuse();
}

TEST(without_a_backend_nothing_is_written)
{
	unsetenv("SOFTDOCA_LOG");
	apart(without_a_backend);
	CHECK(!*outs[0] && !*outs[1]);
}

static void to_the_standard_one(void)
{
	CHECK_EQ(doca_log_backend_create_standard(), DOCA_SUCCESS);
	refuse();
}

TEST(the_library_s_own_records_need_an_sdk_backend)
{
	unsetenv("SOFTDOCA_LOG");
	apart(to_the_standard_one);
	CHECK(!*outs[0] && !*outs[1]);
}

static void to_an_sdk_one(void)
{
	struct doca_log_backend *b, *second;
	FILE *f = fdopen(dup(STDOUT_FILENO), "w");
	CHECK_EQ(doca_log_backend_create_with_file_sdk(f, &b), DOCA_SUCCESS);
	CHECK_EQ(doca_log_backend_create_with_file_sdk(stderr, &second), DOCA_SUCCESS);
	CHECK_EQ(doca_log_backend_set_sdk_level(second, DOCA_LOG_LEVEL_ERROR), DOCA_SUCCESS);
	DOCA_LOG_ERR("the program's");
	refuse();
	CHECK_EQ(doca_log_backend_set_sdk_level(b, DOCA_LOG_LEVEL_DISABLE), DOCA_SUCCESS);
	refuse();
}

TEST(each_sdk_backend_has_its_level)
{
	unsetenv("SOFTDOCA_LOG");
	apart(to_an_sdk_one);
	CHECK_SAYS(outs[0], "[DOCA][WRN][SOFTDOCA][doca_devinfo_create_list]");
	CHECK(strchr(outs[0], '\n') == outs[0] + strlen(outs[0]) - 1);
	CHECK(!*outs[1] && !strstr(outs[0], "the program's"));
}

static void to_a_descriptor(void)
{
	struct doca_log_backend *b;
	const int fd = dup(STDOUT_FILENO);
	CHECK_EQ(doca_log_backend_create_with_fd_sdk(fd, &b), DOCA_SUCCESS);
	refuse();
	CHECK_EQ(close(fd), 0); /* it is still the program's */
	CHECK_EQ(doca_log_backend_create_with_fd_sdk(-1, &b), DOCA_ERROR_INVALID_VALUE);
}

TEST(an_sdk_backend_can_have_a_descriptor)
{
	unsetenv("SOFTDOCA_LOG");
	apart(to_a_descriptor);
	CHECK_SAYS(outs[0], "[DOCA][WRN][SOFTDOCA][doca_devinfo_create_list]");
}

TEST(SOFTDOCA_LOG_sends_the_library_s_records_to_stderr)
{
	static const struct {
		const char *level;
		int heard;
	} levels[] = {{"warning", 1}, {"WARNING", 1}, {"info", 1}, {"40", 1},  {"trace", 1},
		      {"error", 0},   {"disable", 0}, {"30", 0},   {"", 0}};
	for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
		setenv("SOFTDOCA_LOG", levels[i].level, 1);
		apart(without_a_backend);
		CHECK_EQ(strstr(outs[1], "[doca_devinfo_create_list]") != NULL, levels[i].heard);
	}
	setenv("SOFTDOCA_LOG", "loud", 1);
	apart(without_a_backend);
	CHECK_SAYS(outs[1], "SOFTDOCA_LOG=loud");
	CHECK_SAYS(outs[1], "[doca_devinfo_create_list]");
}

static void with_an_sdk_backend_on_stderr(void)
{
	struct doca_log_backend *b;
	CHECK_EQ(doca_log_backend_create_with_file_sdk(stderr, &b), DOCA_SUCCESS);
	refuse();
}

TEST(a_record_is_on_stderr_once)
{
	setenv("SOFTDOCA_LOG", "info", 1);
	apart(with_an_sdk_backend_on_stderr);
	CHECK_SAYS(outs[1], "[DOCA][WRN]");
	CHECK(!strstr(strstr(outs[1], "[DOCA][WRN]") + 1, "[DOCA][WRN]"));
}

static char long_text[100000];

static void a_long_one(void)
{
	memset(long_text, 'y', sizeof long_text - 1);
	CHECK_EQ(doca_log_backend_create_standard(), DOCA_SUCCESS);
	DOCA_LOG_INFO("%s", long_text);
	CHECK_EQ(doca_log(DOCA_LOG_LEVEL_INFO, log_source, long_text, 1, long_text, "short"), 0);
}

TEST(a_long_record_is_cut_and_says_so)
{
	apart(a_long_one);
	CHECK_SAYS(outs[0], "yyy...\n");
	CHECK_SAYS(outs[0], "yyy] short\n");
	CHECK(strlen(outs[0]) < 4096);
}

TEST(wrong_calls_give_errors)
{
	struct doca_log_backend *b;
	_Alignas(64) char here[128] = {0};
	int source;
	const int unknown[] = {-1, 1 << 30, log_source + 100};
	const uint32_t levels[] = {0, 1, 10, 15, 80, UINT32_MAX};
	CHECK_EQ(doca_log_backend_create_standard(), DOCA_SUCCESS);
	for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
		CHECK_EQ(doca_log(50, unknown[i], "f", 1, "g", "x"), DOCA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
		CHECK_EQ(doca_log(levels[i], log_source, "f", 1, "g", "x"),
			 DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_log(50, log_source, NULL, 1, "g", "x"), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_log(50, log_source, "f", 1, NULL, "x"), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_log(50, log_source, "f", 1, "g", NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_log_register_source(NULL, &source), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_log_register_source("S", NULL), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_log_backend_create_with_file_sdk(NULL, &b), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_log_backend_create_with_file_sdk(stderr, NULL), DOCA_ERROR_INVALID_VALUE);
	struct doca_log_backend *const wrong[] = {NULL, (void *)1, (void *)here, (void *)-64};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		CHECK_EQ(doca_log_backend_set_sdk_level(wrong[i], DOCA_LOG_LEVEL_INFO),
			 DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_log_backend_create_with_file_sdk(stderr, &b), DOCA_SUCCESS);
	CHECK_EQ(doca_log_backend_set_sdk_level(b, 0), DOCA_ERROR_INVALID_VALUE);
	CHECK_EQ(doca_log_backend_set_sdk_level(b, 71), DOCA_ERROR_INVALID_VALUE);
}

TEST(sources_are_numbers_of_their_own_until_there_is_no_room)
{
	char name[16];
	int first, source, last = -1;
	doca_error_t error = DOCA_SUCCESS;
	CHECK_EQ(doca_log_register_source("A", &first), DOCA_SUCCESS);
	for (int i = 0; i < 100000 && error == DOCA_SUCCESS; i++) {
		snprintf(name, sizeof name, "S%d", i);
		error = doca_log_register_source(name, &source);
		CHECK(error != DOCA_SUCCESS || (source != first && source != last));
		last = source;
	}
	CHECK_EQ(error, DOCA_ERROR_FULL);
}

static void *write_records(void *arg)
{
	struct doca_log_backend *b = arg;
	int source;
	CHECK_EQ(doca_log_register_source("THREAD", &source), DOCA_SUCCESS);
	for (int i = 0; i < 100; i++) {
		CHECK_EQ(doca_log(DOCA_LOG_LEVEL_INFO, source, "f", i, "g", "whole record"), 0);
		CHECK_EQ(doca_log_backend_set_sdk_level(b, DOCA_LOG_LEVEL_INFO), DOCA_SUCCESS);
		refuse();
	}
	return NULL;
}

static void from_many_threads(void)
{
	pthread_t threads[4];
	struct doca_log_backend *b;
	FILE *null = fopen("/dev/null", "w");
	CHECK(null);
	CHECK_EQ(doca_log_backend_create_standard(), DOCA_SUCCESS);
	CHECK_EQ(doca_log_backend_create_with_file_sdk(null, &b), DOCA_SUCCESS);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, write_records, b), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

TEST(records_of_many_threads_do_not_mix)
{
	int lines = 0;
	apart(from_many_threads);
	for (char *line = strtok(outs[0], "\n"); line; line = strtok(NULL, "\n"), lines++)
		CHECK(!strncmp(line, "[2", 2) && strstr(line, "[g] whole record") &&
		      !strstr(strstr(line, "whole") + 1, "whole"));
	CHECK_EQ(lines, 400);
}

TEST(each_error_has_a_name_and_words_of_its_own)
{
	for (int i = 0; i <= DOCA_ERROR_DEVICE_FATAL_ERROR; i++) {
		const char *name = doca_error_get_name((doca_error_t)i);
		CHECK(!strncmp(name, "DOCA_", 5) && *doca_error_get_descr((doca_error_t)i));
		for (int k = 0; k < i; k++)
			CHECK(strcmp(name, doca_error_get_name((doca_error_t)k)) &&
			      strcmp(doca_error_get_descr((doca_error_t)i),
				     doca_error_get_descr((doca_error_t)k)));
	}
	CHECK(!strcmp(doca_error_get_name(DOCA_SUCCESS), "DOCA_SUCCESS"));
	CHECK(!strcmp(doca_error_get_name(DOCA_ERROR_IO_FAILED), "DOCA_ERROR_IO_FAILED"));
	const int none[] = {-1, 32, 1 << 30};
	for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
		CHECK(*doca_error_get_name((doca_error_t)none[i]) &&
		      *doca_error_get_descr((doca_error_t)none[i]));
}

TEST(the_library_is_of_the_version_of_its_headers)
{
	CHECK(!strcmp(doca_version(), doca_version_runtime()));
	CHECK(!strcmp(doca_version(), DOCA_VER_STRING));
}

TEST_MAIN(run_tests)
