/* SPDX-License-Identifier: Apache-2.0 */
/* The detail behind a negative errno, kept for each thread. */
#ifndef DG_ERROR_H
#define DG_ERROR_H

/* Stores the sentence for dg_last_error() and returns -err. err > 0. */
int dg_fail(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3), cold));
/* The same for a failed system call: appends what errno says, and returns -errno. */
int dg_fail_errno(const char *fmt, ...) __attribute__((format(printf, 1, 2), cold));

#endif
