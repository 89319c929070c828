// SPDX-License-Identifier: Apache-2.0
#include "softdoca.h"

/* The library's version is that of the API it follows. That it is softdoca stands in the log and
 * in the functions' vuid, not here: programs compare this string. */
const char *doca_version_runtime(void)
{
	return DOCA_VER_STRING;
}
