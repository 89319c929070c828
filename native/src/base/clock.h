/* SPDX-License-Identifier: Apache-2.0 */
/* Time stamps, spinning, and the order of stores. */
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

/* Saturating sum: UINT64_MAX means no limit and must not wrap. */
static inline uint64_t add_sat(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

/* After spinning this long, a thread yields its CPU each time it reads the clock: on an
 * oversubscribed machine, the other side may be waiting for this CPU. */
#define YIELD_AFTER_NS 5000u

/* Called before the stores of an operation: makes the stores of the previous operation visible
 * first, so that writes of one queue become visible in posting order. x86 itself keeps the order of
 * stores (streaming stores end with an sfence). */
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
