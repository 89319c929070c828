/* SPDX-License-Identifier: Apache-2.0 */
/* Copies, guarded ones, and small ones that are inlined: a call into libc costs more than copying the
 * bytes. */
#ifndef DG_COPY_H
#define DG_COPY_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "dgkit.h"

/* Copies n <= 64 bytes with at most two loads and two stores, with all loads first; fewer than 4
 * bytes are copied one by one. A copy of 8 aligned bytes is a single store, so no reader sees half
 * of it. */
static inline void copy_upto64(char *d, const char *s, uint64_t n)
{
	/* Vector types instead of structs: the compiler keeps them in registers of any width. */
	typedef uint64_t b16 __attribute__((vector_size(16)));
	typedef uint64_t b32 __attribute__((vector_size(32)));

	if (n >= 32) {
		b32 lo, hi;
		memcpy(&lo, s, 32);
		memcpy(&hi, s + n - 32, 32);
		memcpy(d, &lo, 32);
		memcpy(d + n - 32, &hi, 32);
	} else if (n >= 16) {
		b16 lo, hi;
		memcpy(&lo, s, 16);
		memcpy(&hi, s + n - 16, 16);
		memcpy(d, &lo, 16);
		memcpy(d + n - 16, &hi, 16);
	} else if (n >= 8) {
		uint64_t lo, hi;
		memcpy(&lo, s, 8);
		memcpy(&hi, s + n - 8, 8);
		memcpy(d, &lo, 8);
		memcpy(d + n - 8, &hi, 8);
	} else if (n >= 4) {
		uint32_t lo, hi;
		memcpy(&lo, s, 4);
		memcpy(&hi, s + n - 4, 4);
		memcpy(d, &lo, 4);
		memcpy(d + n - 4, &hi, 4);
	} else {
		while (n--)
			*d++ = *s++;
	}
}

/* Copies any number of bytes. */
void dg_copy(void *dst, const void *src, uint64_t n);
/* Copies of at least this size use dg_copy_large(), because no cache holds them. */
#define DG_LARGE (8u << 20)
/* Copies by system calls, and returns -EFAULT where memcpy would raise a signal. Part of the bytes
 * may have been copied by then. Errors: EFAULT; if process_vm_readv(2) refuses the copy and no pipe
 * can be opened to repeat it, EMFILE, ENFILE or ENOMEM of pipe2(2). */
int dg_copy_guarded(void *dst, const void *src, uint64_t n);
/* Returns the dg_status of a guarded copy: `fault` if memory could not be accessed, DG_IO_FAILED if
 * it could not be determined whether it can. */
static inline int guarded_status(int rc, int fault)
{
	if (!rc)
		return DG_OK;
	return rc == -EFAULT ? fault : DG_IO_FAILED;
}

/* Whether all of these bytes are memory from dgkit.empty(), which stays mapped and
 * accessible while it is registered. */
bool dg_memory_is_own(const void *addr, uint64_t size);

#endif
