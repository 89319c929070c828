/* SPDX-License-Identifier: Apache-2.0 */
/* Strict JSON reader (RFC 8259, plus C comments) for a text in memory. It allocates nothing and
 * stops at the first error. Its results point into the text. */
#ifndef SOFTDOCA_JSON_H
#define SOFTDOCA_JSON_H

#include <stdbool.h>
#include <stddef.h>

enum json_type {
	JSON_OBJECT,
	JSON_ARRAY,
	JSON_STRING,
	JSON_NUMBER,
	JSON_TRUE,
	JSON_FALSE,
	JSON_NULL,
};

struct json {
	const char *begin, *at, *end;
	const char *wrong; /* what was expected at `at`; NULL: no error */
	bool inside; /* the first member of the object was read */
};

struct json_value {
	enum json_type type;
	const char *text; /* the source text, with quotes and brackets */
	size_t size;
};

void json_open(struct json *j, const char *text, size_t size);
/* Reads and checks the next value. Returns false with j->wrong set. */
bool json_value(struct json *j, struct json_value *out);
/* Enters the next object. */
bool json_enter(struct json *j);
/* Reads the next member of the object. Returns false at its end, or on an error, with j->wrong
 * set. */
bool json_member(struct json *j, struct json_value *key, struct json_value *value);
/* Checks that only white space is left. */
bool json_ended(struct json *j);
/* Decodes a string to out, of v->size bytes, with a terminating NUL. Returns false if the text
 * contains a NUL. */
bool json_text(const struct json_value *v, char *out);
/* Returns the line number of `at`, from 1. */
unsigned json_line(const struct json *j);

#endif
