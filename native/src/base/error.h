/* SPDX-License-Identifier: Apache-2.0 */
/* The last error of each thread: its message and its reason, see dg_last_error(). */
#ifndef DG_ERROR_H
#define DG_ERROR_H

#include "dgkit.h"

/* Buffers of the calling thread, of DG_TEXT_SIZE bytes each. They are no _Thread_local arrays, which
 * would need more of glibc's static reserve for such data than is left beside other libraries. */
enum dg_text { DG_TEXT_ERROR, DG_TEXT_REFUSAL, DG_TEXTS };
#define DG_TEXT_SIZE 512
char *dg_thread_text(enum dg_text which);

/* Stores the message and the reason of a failure. reason: a positive errno, or an enum dg_reason
 * where that is more specific. Returns the negative errno of the reason. */
int dg_fail(int reason, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));
/* dg_fail() for a failed system call: the reason is errno, and strerror(errno) is appended. */
int dg_fail_errno(const char *fmt, ...) __attribute__((format(printf, 1, 2), cold));
/* Prepends "PREFIX: " to the message of the failure that returned rc, and keeps its reason. Returns
 * rc. */
int dg_fail_in(int rc, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));

/* Returns from the function with the error of a call that fails. */
#define TRY(call)                         \
	do {                              \
		__auto_type rc_ = (call); \
		if (rc_)                  \
			return rc_;       \
	} while (0)

#endif
