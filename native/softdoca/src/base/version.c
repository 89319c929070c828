// SPDX-License-Identifier: Apache-2.0
#include "doca_version.h"

#include "base.h"

/* The version is that of the API. The log and the functions' vuids identify softdoca; this string
 * does not, because programs compare version strings. */
const char *doca_version_runtime(void)
{
	return DOCA_VER_STRING;
}
