/* SPDX-License-Identifier: Apache-2.0 */
/* Time stamps and the pause inside a spin. */
#ifndef DG_CLOCK_H
#define DG_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Sums that may be "for ever" (UINT64_MAX) must not wrap. */
static inline uint64_t add_sat(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

/* From here on a spin gives its CPU away at each look at the clock: on a machine with more to do than
 * CPUs the far end may be waiting for this very one. */
#define YIELD_AFTER_NS 5000u

/* Before the stores of an operation: those of the one before are seen first. Writes of one queue become
 * visible in posting order; on x86 stores do so by themselves (streaming ones end in an sfence). */
static inline void order_stores(void)
{
#if defined(__aarch64__)
	__asm__ __volatile__("dmb ishst" ::: "memory");
#else
	__asm__ __volatile__("" ::: "memory");
#endif
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	/* `yield` is a no-op on most Arm cores; `isb` costs about as much as x86's pause. */
	__asm__ __volatile__("isb" ::: "memory");
#endif
}

#endif
