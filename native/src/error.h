/* SPDX-License-Identifier: Apache-2.0 */
/* Detail of a negative errno, kept for each thread: see dg_last_error(). */
#ifndef DG_ERROR_H
#define DG_ERROR_H

/* Stores the sentence for dg_last_error() and returns -err. err must be positive. */
int dg_fail(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));
/* The same for a failed system call: appends strerror(errno) and returns -errno. */
int dg_fail_errno(const char *fmt, ...) __attribute__((format(printf, 1, 2), cold));

#endif
