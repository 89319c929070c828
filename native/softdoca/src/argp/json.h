/* SPDX-License-Identifier: Apache-2.0 */
/* Strict reader of JSON (RFC 8259, and comments as in C) over a text in memory. It allocates nothing
 * and stops at the first mistake. Its results are parts of the text. */
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
	const char *wrong; /* what was expected where `at` stands; NULL: all is well so far */
	bool inside; /* of an object whose first member was read */
};

struct json_value {
	enum json_type type;
	const char *text; /* as it stands there, quotes and brackets included */
	size_t size;
};

void json_open(struct json *j, const char *text, size_t size);
/* The value that comes next, checked whole. False: j->wrong. */
bool json_value(struct json *j, struct json_value *out);
/* Steps into the object that comes next. */
bool json_enter(struct json *j);
/* Its next member. False: none is left, or j->wrong. */
bool json_member(struct json *j, struct json_value *key, struct json_value *value);
/* That nothing is left but space. */
bool json_ended(struct json *j);
/* A string's characters, decoded, with a NUL behind them; out has room for v->size bytes. False:
 * the text holds a NUL, which a C string cannot. */
bool json_text(const struct json_value *v, char *out);
/* The line, from 1 on, where `at` stands. */
unsigned json_line(const struct json *j);

#endif
