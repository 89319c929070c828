/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks and a runner for the native tests. A test is a function that returns if all checks pass.
 *
 *	TEST(a_closed_region_refuses_transfers)
 *	{
 *		CHECK_EQ(dg_queue_post(q, &wr, 1), -ESTALE);
 *	}
 *	TEST_MAIN(run_tests)
 *
 * A program's tests run in the order in which they stand in its file.
 *
 * Each test runs in a child process, so a test that crashes or hangs does not affect the next one. A
 * program called with a test's name runs that test only, in its own process (for a debugger).
 */
#ifndef DGKIT_CHECK_H
#define DGKIT_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dgkit.h"

/* Detail of the last failing call, if any. */
#ifndef CHECK_DETAIL
#define CHECK_DETAIL() dg_last_error()
#endif

#define CHECK_SKIPPED 77
#define CHECK_SECONDS 120 /* a test that takes longer is considered hung */
#define SECOND 1000000000ull
#define PATIENCE (30 * SECOND) /* for what ends at once, unless the machine is busy */

#define CHECK(cond) ((cond) ? (void)0 : check_failed(__FILE__, __LINE__, "%s", #cond))
#define CHECK_EQ(got, want) \
	check_eq(__FILE__, __LINE__, #got, (intmax_t)(got), #want, (intmax_t)(want))
/* Checks that the text `got` contains `part`. */
#define CHECK_SAYS(got, part) check_says(__FILE__, __LINE__, #got, got, part)
/* Skips the test, because this machine lacks something. If DG_NO_SKIP is set, as in CI, it
 * fails. */
#define SKIP(why) check_skip(__FILE__, __LINE__, why)

struct test {
	const char *name;
	void (*run)(void);
};
enum { MAX_TESTS = 256 };
__attribute__((unused)) static struct test tests[MAX_TESTS];
__attribute__((unused)) static size_t n_tests;

/* Constructors without priorities have no order; those below 101 belong to the C library. */
#define TEST(function) TEST_AT(function, 200 + __COUNTER__)
#define TEST_AT(function, priority) \
	static void function(void); \
	__attribute__((constructor(priority))) static void function##_is_a_test(void) \
	{ \
		tests[n_tests++] = (struct test){ #function, function }; \
	} \
	static void function(void)
/* The main function of a program that does no more than run its tests. */
#define TEST_MAIN(runner) \
	int main(int argc, char **argv) \
	{ \
		return runner(argc, argv); \
	}

/* Declares a fixture, a `struct type` that `open` sets up from the other arguments. type_close() closes it at
 * the end of the block. */
#define FIXTURE(type, name, open, ...) \
	__attribute__((cleanup(type##_close))) struct type name = {0}; \
	open(&name __VA_OPT__(, ) __VA_ARGS__)

/* How often a test repeats something: `n` times, or a tenth of it in an emulator or in Valgrind, where
 * each time takes 20 to 200 times as long. */
__attribute__((unused)) static int repeats(int n)
{
	return getenv("DG_EMULATOR") ? n / 10 : n;
}

/* Any thread may fail the test, so nothing is unwound. */
__attribute__((noreturn, format(printf, 3, 4), unused)) static void check_failed(
	const char *file, int line, const char *format, ...)
{
	__builtin_va_list args;

	fprintf(stderr, "%s:%d: failed: ", file, line);
	__builtin_va_start(args, format);
	vfprintf(stderr, format, args);
	__builtin_va_end(args);
	fprintf(stderr, "\n\tlast error: %s\n", CHECK_DETAIL());
	fflush(NULL);
	_exit(1);
}

__attribute__((unused)) static void check_eq(const char *file, int line, const char *got_text,
					     intmax_t got, const char *want_text, intmax_t want)
{
	if (got != want)
		check_failed(file, line, "%s is %jd, not %s (%jd)", got_text, got, want_text, want);
}

__attribute__((unused)) static void check_says(const char *file, int line, const char *got_text,
					       const char *got, const char *part)
{
	if (!got || !strstr(got, part))
		check_failed(file, line, "%s is \"%s\" and says nothing of \"%s\"", got_text,
			     got ? got : "(null)", part);
}

__attribute__((noreturn, unused)) static void check_skip(const char *file, int line, const char *why)
{
	if (getenv("DG_NO_SKIP"))
		check_failed(file, line, "skipped: %s", why);
	fprintf(stderr, "%s:%d: skipped: %s\n", file, line, why);
	fflush(NULL);
	_exit(CHECK_SKIPPED);
}

/* Runs one test in a child process. Returns its exit status, or 128 plus the signal that ended
 * it. */
__attribute__((unused)) static int run_apart(const struct test *test)
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		alarm(CHECK_SECONDS);
		test->run();
		exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Runs all tests of this program, or the one that its first argument names. */
__attribute__((unused)) static int run_tests(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : NULL;
	size_t failed = 0, skipped = 0, ran = 0;

	for (size_t i = 0; i < n_tests; i++) {
		int rc = 0;

		if (only && strcmp(only, tests[i].name))
			continue;
		ran++;
		if (only)
			tests[i].run();
		else
			rc = run_apart(&tests[i]);
		skipped += rc == CHECK_SKIPPED;
		failed += rc != 0 && rc != CHECK_SKIPPED;
		printf("%-4s %s", rc == CHECK_SKIPPED ? "skip" : rc ? "FAIL" : "ok", tests[i].name);
		printf(rc >= 128 ? " (signal %d)\n" : "\n", rc - 128);
	}
	printf("%zu tests, %zu failed, %zu skipped\n", ran, failed, skipped);
	if (failed || !ran)
		return 1;
	return skipped == ran ? CHECK_SKIPPED : 0;
}

#endif
