/* SPDX-License-Identifier: Apache-2.0 */
/* Hints for the compiler which branch is taken. */
#ifndef DOCA_COMMON_DEFINES_H
#define DOCA_COMMON_DEFINES_H

#define doca_likely(condition)	 __builtin_expect(!!(condition), 1)
#define doca_unlikely(condition) __builtin_expect(!!(condition), 0)

#endif
