// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <stdint.h>
#include <string.h>

enum { DEPTH_MAX = 32 };

void json_open(struct json *j, const char *text, size_t size)
{
	*j = (struct json){.begin = text, .at = text, .end = text + size};
}

unsigned json_line(const struct json *j)
{
	unsigned line = 1;
	for (const char *c = j->begin; c < j->at; c++)
		line += *c == '\n';
	return line;
}

static bool fail(struct json *j, const char *expected)
{
	if (!j->wrong)
		j->wrong = expected;
	return false;
}

static int peek(const struct json *j)
{
	return j->at < j->end ? (unsigned char)*j->at : -1;
}

/* Skips a comment. RFC 8259 has no comments, but files of programs do. Returns false if there is no
 * terminated comment. */
static bool comment(struct json *j)
{
	if (j->end - j->at < 2 || j->at[0] != '/' || (j->at[1] != '/' && j->at[1] != '*'))
		return false;
	bool line = j->at[1] == '/';
	for (const char *c = j->at + 2; c < j->end; c++) {
		bool ends = line ? *c == '\n' : *c == '*' && c + 1 < j->end && c[1] == '/';
		if (ends) {
			j->at = c + (line ? 1 : 2);
			return true;
		}
	}
	if (line)
		j->at = j->end;
	return line;
}

/* Skips white space and comments. */
static void space(struct json *j)
{
	do {
		while (j->at < j->end && strchr(" \t\r\n", *j->at) && *j->at)
			j->at++;
	} while (comment(j));
}

static bool eat(struct json *j, char c)
{
	space(j);
	if (peek(j) != c)
		return false;
	j->at++;
	return true;
}

static int hex(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* Returns the value of four hexadecimal digits at c, or -1. */
static int32_t unit(const char *c, const char *end)
{
	int32_t n = 0;
	if (end - c < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int digit = hex(c[i]);
		if (digit < 0)
			return -1;
		n = n << 4 | digit;
	}
	return n;
}

/* Decodes the character after `\u` at *c, which has one or two UTF-16 units, and moves *c past it.
 * Returns -1 if invalid. */
static int32_t code_point(const char **c, const char *end)
{
	int32_t high = unit(*c, end), low;
	*c += high < 0 ? 0 : 4;
	if (high < 0xd800 || high > 0xdfff)
		return high;
	if (high > 0xdbff || end - *c < 6 || (*c)[0] != '\\' || (*c)[1] != 'u')
		return -1;
	low = unit(*c + 2, end);
	if (low < 0xdc00 || low > 0xdfff)
		return -1;
	*c += 6;
	return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

static bool escape(struct json *j)
{
	int c = peek(j);
	if (c < 0 || !c || !strchr("\"\\/bfnrtu", c))
		return fail(j, "a known escape behind \\");
	j->at++;
	return c != 'u' || code_point(&j->at, j->end) >= 0 || fail(j, "a character behind \\u");
}

/* Parses a string. Called after the opening quote. */
static bool string(struct json *j)
{
	for (;;) {
		int c = peek(j);
		if (c < 0x20)
			return fail(j, c < 0 ? "a closing quote"
					     : "no control character within a string");
		j->at++;
		if (c == '"')
			return true;
		if (c == '\\' && !escape(j))
			return false;
	}
}

static bool digits(struct json *j)
{
	const char *from = j->at;
	while (peek(j) >= '0' && peek(j) <= '9')
		j->at++;
	return j->at > from || fail(j, "a digit");
}

static bool number(struct json *j)
{
	if (peek(j) == '-')
		j->at++;
	bool zero = peek(j) == '0';
	j->at += zero;
	if (zero && peek(j) >= '0' && peek(j) <= '9')
		return fail(j, "a number without a leading zero");
	if (!zero && !digits(j))
		return false;
	if (peek(j) == '.' && (j->at++, !digits(j)))
		return false;
	if (peek(j) != 'e' && peek(j) != 'E')
		return true;
	j->at++;
	if (peek(j) == '+' || peek(j) == '-')
		j->at++;
	return digits(j);
}

static bool parse_literal(struct json *j, const char *text)
{
	size_t n = strlen(text);
	if ((size_t)(j->end - j->at) < n || memcmp(j->at, text, n))
		return fail(j, "a value");
	j->at += n;
	return true;
}

static bool parse_value(struct json *j, unsigned depth, enum json_type *type);

static bool key(struct json *j)
{
	return (eat(j, '"') || fail(j, "a key in quotes")) && string(j);
}

/* Parses members or elements, separated by commas. Called after the opening bracket. */
static bool inner(struct json *j, unsigned depth, bool object)
{
	enum json_type type;
	const char close = object ? '}' : ']';
	if (depth == DEPTH_MAX)
		return fail(j, "no more than 32 levels");
	if (eat(j, close))
		return true;
	do {
		if (object && (!key(j) || !(eat(j, ':') || fail(j, "a colon"))))
			return false;
		if (!parse_value(j, depth + 1, &type))
			return false;
	} while (eat(j, ','));
	return eat(j, close) || fail(j, object ? "a comma or }" : "a comma or ]");
}

static bool parse_value(struct json *j, unsigned depth, enum json_type *type)
{
	space(j);
	int c = peek(j);
	*type = c == '{'   ? JSON_OBJECT
		: c == '[' ? JSON_ARRAY
		: c == '"' ? JSON_STRING
		: c == 't' ? JSON_TRUE
		: c == 'f' ? JSON_FALSE
		: c == 'n' ? JSON_NULL
			   : JSON_NUMBER;
	switch (*type) {
	case JSON_TRUE:
		return parse_literal(j, "true");
	case JSON_FALSE:
		return parse_literal(j, "false");
	case JSON_NULL:
		return parse_literal(j, "null");
	case JSON_NUMBER:
		return c == '-' || (c >= '0' && c <= '9') ? number(j) : fail(j, "a value");
	case JSON_STRING:
		j->at++;
		return string(j);
	default:
		j->at++;
		return inner(j, depth, c == '{');
	}
}

bool json_value(struct json *j, struct json_value *out)
{
	space(j);
	out->text = j->at;
	bool good = !j->wrong && parse_value(j, 0, &out->type);
	out->size = (size_t)(j->at - out->text);
	return good;
}

bool json_enter(struct json *j)
{
	j->inside = false;
	return eat(j, '{') || fail(j, "an object, in braces");
}

bool json_member(struct json *j, struct json_value *name, struct json_value *value)
{
	if (j->wrong || eat(j, '}'))
		return false;
	if (j->inside && !eat(j, ','))
		return fail(j, "a comma or }");
	j->inside = true;
	space(j);
	if (peek(j) != '"')
		return fail(j, "a key in quotes");
	return json_value(j, name) && (eat(j, ':') || fail(j, "a colon")) && json_value(j, value);
}

bool json_ended(struct json *j)
{
	space(j);
	return !j->wrong && (j->at == j->end || fail(j, "nothing more"));
}

static char *utf8(char *out, int32_t c)
{
	if (c < 0x80) {
		*out++ = (char)c;
	} else if (c < 0x800) {
		*out++ = (char)(0xc0 | c >> 6);
		*out++ = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*out++ = (char)(0xe0 | c >> 12);
		*out++ = (char)(0x80 | (c >> 6 & 0x3f));
		*out++ = (char)(0x80 | (c & 0x3f));
	} else {
		*out++ = (char)(0xf0 | c >> 18);
		*out++ = (char)(0x80 | (c >> 12 & 0x3f));
		*out++ = (char)(0x80 | (c >> 6 & 0x3f));
		*out++ = (char)(0x80 | (c & 0x3f));
	}
	return out;
}

bool json_text(const struct json_value *v, char *out)
{
	static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
	const char *end = v->text + v->size - 1; /* the closing quote */
	for (const char *c = v->text + 1; c < end;) {
		if (*c != '\\') {
			*out++ = *c++;
			continue;
		}
		char e = c[1];
		const char *simple = strchr(from, e);
		c += 2;
		if (e != 'u') {
			*out++ = simple ? to[simple - from] : e;
			continue;
		}
		int32_t point = code_point(&c, end);
		if (!point)
			return false;
		out = utf8(out, point);
	}
	*out = '\0';
	return true;
}
