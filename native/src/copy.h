/* SPDX-License-Identifier: Apache-2.0 */
/* Inlined small copies: a call into libc costs more than copying the bytes. */
#ifndef DG_COPY_H
#define DG_COPY_H

#include <stdint.h>
#include <string.h>

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

#endif
