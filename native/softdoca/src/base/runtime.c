// SPDX-License-Identifier: Apache-2.0
/* Paths in dgkit's folder for sockets, which only this user can access. */
#include <stdio.h>
#include <string.h>

#include "base.h"

/* FNV-1a: a name may contain any character and exceed the length of a socket's path. */
static uint64_t mix(uint64_t h, const char *text)
{
	do {
		h = (h ^ (unsigned char)*text) * 0x100000001b3u;
	} while (*text++);
	return h;
}

doca_error_t softdoca_runtime_path(const char *name, const char *function, const char *ending,
				   char *out, size_t cap)
{
	int rc = dg_runtime_dir(out, cap);
	if (rc)
		return softdoca_failed(__func__, rc);
	uint64_t h = mix(mix(0xcbf29ce484222325u, function), name);
	size_t dir = strnlen(out, cap);
	int n = snprintf(out + dir, cap - dir, "/comch-%016llx%s", (unsigned long long)h, ending);
	if (n < 0 || (size_t)n >= cap - dir)
		return REFUSE(
			DOCA_ERROR_OPERATING_SYSTEM,
			"the runtime folder's name is too long for a socket's path (%zu bytes): "
			"set XDG_RUNTIME_DIR to a shorter one",
			cap);
	return DOCA_SUCCESS;
}
