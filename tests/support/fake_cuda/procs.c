/* SPDX-License-Identifier: Apache-2.0 */
/* How a program finds the driver's functions, and the words for their answers. */
#include "state.h"

#include <string.h>

/* Here only their addresses count. */
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **found, int version,
				    unsigned long long flags, int *status);

enum { VERSION = 13000, FOUND = 0, SYMBOL_NOT_FOUND = 1, VERSION_NOT_SUFFICIENT = 2 };

static const struct {
	const char *name;
	int number;
	const char *words;
} codes[] = {
#define CODE(name, number, words) {#name, number, words},
#include "codes.h"
#undef CODE
};

static const char *known(int code, bool name)
{
	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
		if (codes[i].number == code)
			return name ? codes[i].name : codes[i].words;
	return NULL;
}

EXPORT CUresult cuGetErrorName(int code, const char **name)
{
	*name = known(code, true);
	return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(int code, const char **words)
{
	*words = known(code, false);
	return *words ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int find(const char *symbol, void **found, int version, int *status);

EXPORT CUresult cuGetProcAddress(const char *symbol, void **found, int version,
				 unsigned long long flags)
{
	int status, code = find(symbol, found, version, &status);

	(void)flags;
	return !code && status ? CUDA_ERROR_NOT_FOUND : code;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **found, int version,
				    unsigned long long flags, int *status)
{
	int ignored;

	(void)flags;
	return find(symbol, found, version, status ? status : &ignored);
}

#define FUNCTION(name, since, symbol) extern char symbol##_[] __asm__(#symbol);
#include "functions.h"
#undef FUNCTION

static const struct {
	const char *name;
	int since;
	void *function;
} functions[] = {
#define FUNCTION(name, since, symbol) {#name, since, symbol##_},
#include "functions.h"
#undef FUNCTION
};

static int find(const char *symbol, void **found, int version, int *status)
{
	*found = NULL;
	*status = SYMBOL_NOT_FOUND;
	if (version > VERSION)
		return CUDA_ERROR_INVALID_VALUE;
	if (missing(symbol))
		return CUDA_SUCCESS;
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		if (strcmp(functions[i].name, symbol))
			continue;
		if (functions[i].since <= version)
			*found = functions[i].function;
		*status = *found ? FOUND : VERSION_NOT_SUFFICIENT;
	}
	return CUDA_SUCCESS;
}
