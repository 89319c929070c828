// SPDX-License-Identifier: Apache-2.0
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dgkit.h"

static _Thread_local char last[512];

const char *dg_last_error(void)
{
	return last;
}

int dg_fail(int err, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(last, sizeof last, fmt, ap);
	va_end(ap);
	return -err;
}

int dg_fail_errno(const char *fmt, ...)
{
	int err = errno;
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(last, sizeof last, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof last)
		snprintf(last + n, sizeof last - (size_t)n, ": %s", strerror(err));
	return -err;
}
