// SPDX-License-Identifier: Apache-2.0
/* Checks mappings and protections of an address range of this process, like a device that pins the
 * pages. */
#include "base.h"

#include <inttypes.h>
#include <stdio.h>

enum range_found range_look(const void *addr, size_t len, bool write)
{
	uintptr_t at = (uintptr_t)addr, end = at + len, from, to;
	enum range_found found = RANGE_MISSING;
	char line[512], mode[8];
	FILE *f = fopen("/proc/self/maps", "re");
	if (!f)
		return RANGE_OK; /* unknown */
	/* Lines are sorted by address. */
	while (at < end && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s", &from, &to, mode) != 3 ||
		    to <= at)
			continue;
		if (from > at)
			break;
		if (mode[0] != 'r' || (write && mode[1] != 'w')) {
			found = RANGE_CLOSED;
			break;
		}
		at = to;
	}
	fclose(f);
	return at >= end ? RANGE_OK : found;
}
