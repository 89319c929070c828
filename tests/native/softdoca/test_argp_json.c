// SPDX-License-Identifier: Apache-2.0
/* Parameters from a JSON file. */
#include "argp_check.h"

TEST(a_json_file_gives_values_of_each_type)
{
	set_up();
	CHECK_EQ(start_json("{ \"doca_general_flags\": {\"log-level\": 60,\n"
			    "\"sdk-log-level\": 40},\n"
			    "  \"doca_program_flags\": {"
			    "\"text\": \"a\\u00e4\\ud83d\\ude00\\n\\\"\","
			    " \"number\": -12, \"flag\": true,"
			    " \"object\": {\"a\": [1, 2.5e3, null]}}}\n"),
		 DOCA_SUCCESS);
	CHECK(!strcmp(config.text, "a\xc3\xa4\xf0\x9f\x98\x80\n\""));
	CHECK_EQ(config.number, -12);
	CHECK(config.flag);
	CHECK(!strcmp(config.json, "{\"a\": [1, 2.5e3, null]}"));
	CHECK_EQ(start_json("{\"doca_program_flags\": {\"flag\": false}}"), DOCA_SUCCESS);
	CHECK(config.flag_given && !config.flag);
	CHECK_EQ(start_json("{}"), DOCA_SUCCESS);
}

/* RFC 8259 has no comments, but the files of published programs do. */
TEST(a_json_file_may_have_comments)
{
	set_up();
	CHECK_EQ(start_json("// at the top\n{ /* of no use */\n"
			    "  \"doca_program_flags\": /**/ { // the program's\n"
			    "    \"text\": \"a // b /* c */\", // in a text it is none\n"
			    "    \"number\" /* x */ : /* * / ** */ 7 /* , */,\n"
			    "    \"object\": {\"a\": 1 /* kept */}\n"
			    "  }\n} // no newline at the end"),
		 DOCA_SUCCESS);
	CHECK(!strcmp(config.text, "a // b /* c */"));
	CHECK_EQ(config.number, 7);
	CHECK_EQ(start_json("{} /* open"), DOCA_ERROR_IO_FAILED);
	CHECK_EQ(start_json("{} /* open *"), DOCA_ERROR_IO_FAILED);
	CHECK_EQ(start_json("{} /"), DOCA_ERROR_IO_FAILED);
	CHECK_EQ(start_json("{} / / x"), DOCA_ERROR_IO_FAILED);
	CHECK_EQ(start_json("{\"doca_program_flags\": {\"number\": 1/2}}"), DOCA_ERROR_IO_FAILED);
	CHECK_EQ(start_json("/*/ {}"), DOCA_ERROR_IO_FAILED);
}

TEST(a_long_name_with_a_space_is_a_key_and_one_argument)
{
	set_up();
	CHECK_EQ(doca_argp_register_param(
			 make(NULL, "queue depth", DOCA_ARGP_TYPE_INT, on_number)),
		 DOCA_SUCCESS);
	CHECK_EQ(start_json("{\"doca_program_flags\": {\"queue depth\": 9}}"), DOCA_SUCCESS);
	CHECK_EQ(config.number, 9);
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
	CHECK_EQ(start_json("{\"doca_program_flags\": {\"many\": 4, \"many\": 5}}"), DOCA_SUCCESS);
	CHECK_EQ(config.calls, 2);
	CHECK_EQ(config.number, 5);
	CHECK_EQ(START("-n", "1", "-n", "2"), DOCA_ERROR_INVALID_VALUE);
}

TEST(the_command_line_counts_more_than_the_file)
{
	const char text[] = "{\"doca_program_flags\": {\"number\": 1, \"text\": \"file\"}}";
	set_up();
	char *path = file_of(text, sizeof text - 1);
	CHECK_EQ(START("-n", "2", "--json", path), DOCA_SUCCESS);
	CHECK_EQ(config.number, 2);
	CHECK(!strcmp(config.text, "file"));
	CHECK_EQ(config.calls, 2);
	CHECK_EQ(START("-j", path, "-j", path), DOCA_ERROR_INVALID_VALUE);
	unlink(path);
}

TEST(a_wrong_file_says_where_and_calls_nothing)
{
	static const struct {
		const char *text;
		doca_error_t error;
	} files[] = {
		{"", DOCA_ERROR_IO_FAILED},
		{"[]", DOCA_ERROR_IO_FAILED},
		{"3", DOCA_ERROR_IO_FAILED},
		{"{", DOCA_ERROR_IO_FAILED},
		{"{}x", DOCA_ERROR_IO_FAILED},
		{"{,}", DOCA_ERROR_IO_FAILED},
		{"{\"a\"}", DOCA_ERROR_IO_FAILED},
		{"{\"a\":}", DOCA_ERROR_IO_FAILED},
		{"{'a': 1}", DOCA_ERROR_IO_FAILED},
		{"{\"doca_program_flags\": {\"number\": 1,}}", DOCA_ERROR_IO_FAILED},
		{"{\"doca_program_flags\": {\"number\": 01}}", DOCA_ERROR_IO_FAILED},
		{"{\"doca_program_flags\": {\"number\": 1 \"flag\": true}}", DOCA_ERROR_IO_FAILED},
		{"{\"doca_program_flags\": {\"text\": \"a\nb\"}}", DOCA_ERROR_IO_FAILED},
		{"{\"doca_program_flags\": {\"text\": \"\\q\"}}", DOCA_ERROR_IO_FAILED},
		{"{\"doca_program_flags\": {\"text\": \"\\ud800\"}}", DOCA_ERROR_IO_FAILED},
		{"{\"doca_program_flags\": {\"text\": \"\\u12\"}}", DOCA_ERROR_IO_FAILED},
		{"{\"doca_program_flags\": {\"text\": \"open}}", DOCA_ERROR_IO_FAILED},
		{"{\"doca_program_flags\": {\"flag\": True}}", DOCA_ERROR_IO_FAILED},
		{"{\"doca_program_flags\": 3}", DOCA_ERROR_INVALID_VALUE},
		{"{\"other\": {}}", DOCA_ERROR_NOT_SUPPORTED},
		{"{\"doca_program_flags\": {\"unknown\": 1}}", DOCA_ERROR_NOT_SUPPORTED},
		{"{\"doca_program_flags\": {\"help\": true}}", DOCA_ERROR_NOT_SUPPORTED},
		{"{\"doca_program_flags\": {\"log-level\": 60}}", DOCA_ERROR_NOT_SUPPORTED},
		{"{\"doca_general_flags\": {\"number\": 60}}", DOCA_ERROR_NOT_SUPPORTED},
		{"{\"doca_general_flags\": {\"json\": \"x\"}}", DOCA_ERROR_NOT_SUPPORTED},
		{"{\"doca_general_flags\": {\"log-level\": 61}}", DOCA_ERROR_INVALID_VALUE},
		{"{\"doca_general_flags\": {\"log-level\": \"60\"}}", DOCA_ERROR_INVALID_VALUE},
		{"{\"doca_program_flags\": {\"number\": \"1\"}}", DOCA_ERROR_INVALID_VALUE},
		{"{\"doca_program_flags\": {\"number\": 1.5}}", DOCA_ERROR_INVALID_VALUE},
		{"{\"doca_program_flags\": {\"number\": 1e2}}", DOCA_ERROR_INVALID_VALUE},
		{"{\"doca_program_flags\": {\"number\": 4294967296}}", DOCA_ERROR_INVALID_VALUE},
		{"{\"doca_program_flags\": {\"number\": null}}", DOCA_ERROR_INVALID_VALUE},
		{"{\"doca_program_flags\": {\"flag\": 1}}", DOCA_ERROR_INVALID_VALUE},
		{"{\"doca_program_flags\": {\"text\": 1}}", DOCA_ERROR_INVALID_VALUE},
		{"{\"doca_program_flags\": {\"text\": \"a\\u0000b\"}}", DOCA_ERROR_INVALID_VALUE},
		{"{\"doca_program_flags\": {\"object\": 1}}", DOCA_ERROR_INVALID_VALUE},
	};
	set_up();
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		CHECK_EQ(start_json(files[i].text), files[i].error);
		CHECK_EQ(config.calls, 0);
	}
	CHECK_EQ(start_json("{\"doca_program_flags\": {\"number\": 1, \"number\": 1}}"),
		 DOCA_ERROR_INVALID_VALUE);
}

TEST(a_file_s_error_names_file_line_key_and_value)
{
	const char text[] = "{\n\"doca_program_flags\":\n{\n\"number\": \"three\"\n}}";
	char out[8192], at[96];
	set_up();
	char *path = file_of(text, sizeof text - 1);
	CHECK_EQ(start_apart((char *[]){"prog", "-j", path, NULL}, out, sizeof out), 41);
	unlink(path);
	snprintf(at, sizeof at, "%s line 4", path);
	CHECK_SAYS(out, at);
	CHECK_SAYS(out, "\"number\"");
	CHECK_SAYS(out, "\"three\"");
}

TEST(files_without_end_or_of_a_thousand_levels_are_refused)
{
	static char big[(1 << 20) + 100];
	set_up();
	memset(big, ' ', sizeof big);
	memcpy(big, "{}", 2);
	char *path = file_of(big, sizeof big);
	CHECK_EQ(START("-j", path), DOCA_ERROR_IO_FAILED);
	path = file_of(big, 1 << 20);
	CHECK_EQ(START("-j", path), DOCA_SUCCESS);
	memset(big, '[', 1 << 20);
	path = file_of(big, 1 << 20);
	CHECK_EQ(START("-j", path), DOCA_ERROR_IO_FAILED);
	unlink(path);
	CHECK_EQ(START("-j", "/dev/zero"), DOCA_ERROR_IO_FAILED);
	CHECK_EQ(START("-j", "/tmp"), DOCA_ERROR_IO_FAILED);
}

/* Each start either succeeds or returns one of the documented errors, and has no other effect. */
TEST(altered_files_never_do_harm)
{
	const char good[] = "{\"doca_general_flags\": {\"log-level\": 60}, \"doca_program_flags\": "
			    "{\"text\": \"a\\u00e4\\ud83d\\ude00\\n\", \"number\": -12, \"flag\": "
			    "true, \"object\": {\"a\": [1, 2.5e3, null, {}]}}}";
	const char bytes[] = "{}[]\",:\\u0d8eE+-. \ntfn\x80\xff";
	char text[sizeof good + 1];
	uint64_t random = 1;
	set_up();
	CHECK(freopen("/dev/null", "w", stderr));
	for (int i = 0; i < repeats(3000); i++) {
		size_t size = sizeof good - 1;
		memcpy(text, good, sizeof good);
		for (int k = i % 4; k >= 0; k--) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			text[(random >> 33) % size] = bytes[(random >> 20) % (sizeof bytes - 1)];
		}
		if (i % 5 == 0)
			size = (random >> 40) % size;
		char *path = file_of(text, size);
		doca_error_t error = START("-j", path);
		CHECK(error == DOCA_SUCCESS || error == DOCA_ERROR_IO_FAILED ||
		      error == DOCA_ERROR_INVALID_VALUE || error == DOCA_ERROR_NOT_SUPPORTED);
		unlink(path);
	}
}

TEST_MAIN(run_tests)
