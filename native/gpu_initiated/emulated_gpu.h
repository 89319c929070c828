/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated GPU, part 1: the subset of CUDA C++ that kernels use, for a C++17 compiler. Part 2,
 * emulated_gpu.cpp, runs the grid: one OS thread for each block, and in it a fiber for each of the
 * block's threads.
 *
 * A fiber runs until it waits for others or its budget of yield points is used up; atomic
 * operations, clocks, fences and polls are yield points. The next fiber is chosen at random, from a
 * given seed. A thread that spins on plain memory without a yield point never yields.
 *
 * With a seed of 2^63 or more, a fiber continues until it ends or waits for the other threads of its
 * block, for 50 ms at most. So an operation that it posts and waits for is complete before the other
 * threads run, which shows a missing barrier before the operation.
 */
#ifndef DGKIT_EMULATED_GPU_H
#define DGKIT_EMULATED_GPU_H

#ifndef DG_EMULATED_GPU
#define DG_EMULATED_GPU 1
#endif

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__	    inline __attribute__((always_inline))
#define __noinline__	    __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n)	    __attribute__((aligned(n)))
/* A block is one OS thread, so memory shared by its threads is thread-local. */
#define __shared__	    static thread_local
#ifndef __restrict__
#define __restrict__ __restrict
#endif

struct uint3 {
	unsigned x, y, z;
};
struct dim3 {
	unsigned x, y, z;
	constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
	{
	}
};

namespace dg_emu
{
/* The built-in variables of the running thread. */
struct Indices {
	uint3 thread, block;
	dim3 block_size, grid_size;
};
extern thread_local const Indices *indices;
extern thread_local int budget; /* yield points until the fiber is switched */

/* A thread's place in the source, for the report of a deadlock. */
struct Place {
	const char *call, *file;
	int line;
};

void yield(const Place &place, unsigned sleep_ns);
/* Waits until all threads of the block that have not exited have called it. Returns the number of
 * threads that passed `yes` as true. */
unsigned barrier(const Place &place, bool yes);
/* Waits until all lanes of `mask` that have not exited are in this call with the same mask. out
 * gets the values of all lanes. Returns the mask of lanes that took part. */
unsigned gather(const Place &place, unsigned mask, uint64_t value, uint64_t *out);
/* Returns the converged lanes of the warp: those that are at the same place now. */
unsigned converged(const Place &place);
unsigned lane();
uint64_t now_ns();
void *dynamic_shared();
void fence();

typedef void Invoke(void *const *arguments);
/* kind: i signed, u unsigned, f float, p pointer, s anything else. */
struct Parameter {
	char kind;
	unsigned size;
};
void add_kernel(const char *name, Invoke *invoke, const Parameter *parameters, unsigned count);
/* Runs a grid in this process, which then ends with status 0; others: see emulated_gpu.cpp. */
[[noreturn]] void run_and_exit(dim3 grid, dim3 block, size_t shared_size, Invoke *invoke,
			       void *const *arguments);

template <class T> constexpr Parameter parameter()
{
	return {std::is_pointer<T>::value	   ? 'p'
		: std::is_floating_point<T>::value ? 'f'
		: !std::is_integral<T>::value	   ? 's'
		: std::is_signed<T>::value	   ? 'i'
						   : 'u',
		sizeof(T)};
}

template <auto kernel> struct Kernel;
template <class... T, void (*kernel)(T...)> struct Kernel<kernel> {
	template <size_t... i>
	static void call(void *const *a, std::integer_sequence<size_t, i...>)
	{
		(void)a;
		kernel(*(std::remove_reference_t<T> *)a[i]...);
	}
	static void invoke(void *const *a)
	{
		call(a, std::make_index_sequence<sizeof...(T)>());
	}
	explicit Kernel(const char *name)
	{
		static const Parameter parameters[] = {parameter<T>()..., {'s', 0}};
		add_kernel(name, invoke, parameters, sizeof...(T));
	}
};

template <class T> uint64_t to_bits(T value)
{
	static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
	uint64_t bits = 0;
	memcpy(&bits, &value, sizeof value);
	return bits;
}

template <class T> T from_bits(uint64_t bits)
{
	T value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

template <class T> struct Same {
	typedef T type;
};
template <class T> using same = typename Same<T>::type;
} // namespace dg_emu

#define threadIdx (dg_emu::indices->thread)
#define blockIdx  (dg_emu::indices->block)
#define blockDim  (dg_emu::indices->block_size)
#define gridDim	  (dg_emu::indices->grid_size)
enum { warpSize = 32 };

/* Last two parameters of a built-in: the caller's line and file. */
#define DG_EMU_LINE int line = __builtin_LINE(), const char *file = __builtin_FILE()
#define DG_EMU_HERE(call) dg_emu::Place{call, file, line}

/* Not instrumented, because the budget belongs to the OS thread and ThreadSanitizer should report
 * only data races of the kernel. */
__attribute__((no_sanitize("thread"))) static inline void dg_emu_yield(DG_EMU_LINE)
{
	if (--dg_emu::budget <= 0)
		dg_emu::yield(DG_EMU_HERE("runs"), 0);
}

static inline uint64_t dg_emu_now_ns()
{
	return dg_emu::now_ns();
}

static inline long long clock64(DG_EMU_LINE)
{
	dg_emu_yield(line, file);
	return (long long)dg_emu::now_ns();
}

static inline long long clock(DG_EMU_LINE)
{
	return clock64(line, file);
}

static inline void __nanosleep(unsigned ns, DG_EMU_LINE)
{
	dg_emu::yield(DG_EMU_HERE("__nanosleep"), ns);
}

static inline void __syncthreads(DG_EMU_LINE)
{
	dg_emu::barrier(DG_EMU_HERE("__syncthreads"), false);
}

static inline int __syncthreads_count(int yes, DG_EMU_LINE)
{
	return (int)dg_emu::barrier(DG_EMU_HERE("__syncthreads_count"), yes != 0);
}

static inline int __syncthreads_or(int yes, DG_EMU_LINE)
{
	return dg_emu::barrier(DG_EMU_HERE("__syncthreads_or"), yes != 0) != 0;
}

static inline int __syncthreads_and(int yes, DG_EMU_LINE)
{
	return dg_emu::barrier(DG_EMU_HERE("__syncthreads_and"), yes == 0) == 0;
}

static inline void __syncwarp(unsigned mask = ~0u, DG_EMU_LINE)
{
	uint64_t all[32];
	dg_emu::gather(DG_EMU_HERE("__syncwarp"), mask, 0, all);
}

static inline unsigned __activemask(DG_EMU_LINE)
{
	return dg_emu::converged(DG_EMU_HERE("__activemask"));
}

static inline unsigned __ballot_sync(unsigned mask, int yes, DG_EMU_LINE)
{
	uint64_t all[32];
	unsigned found = 0, there = dg_emu::gather(DG_EMU_HERE("__ballot_sync"), mask, yes != 0, all);
	for (unsigned i = 0; i < 32; i++)
		found |= (there >> i & 1u) && all[i] ? 1u << i : 0;
	return found;
}

static inline int __any_sync(unsigned mask, int yes, DG_EMU_LINE)
{
	return __ballot_sync(mask, yes, line, file) != 0;
}

static inline int __all_sync(unsigned mask, int yes, DG_EMU_LINE)
{
	return __ballot_sync(mask, !yes, line, file) == 0;
}

template <class T> unsigned __match_any_sync(unsigned mask, T value, DG_EMU_LINE)
{
	uint64_t all[32], own = dg_emu::to_bits(value);
	unsigned found = 0;
	unsigned there = dg_emu::gather(DG_EMU_HERE("__match_any_sync"), mask, own, all);
	for (unsigned i = 0; i < 32; i++)
		found |= (there >> i & 1u) && all[i] == own ? 1u << i : 0;
	return found;
}

namespace dg_emu
{
/* Shuffle from lane `from`. The result is the caller's own value if that lane does not take part or
 * is in another section. */
template <class T>
T shuffle(const Place &place, unsigned mask, T value, int from, bool inside)
{
	uint64_t all[32];
	const unsigned there = gather(place, mask, to_bits(value), all);
	const bool given = inside && from >= 0 && from < 32 && (there >> from & 1u);
	return given ? from_bits<T>(all[from]) : value;
}

template <class T, class F> T reduce(const Place &place, unsigned mask, T value, F join)
{
	uint64_t all[32];
	const unsigned there = gather(place, mask, to_bits(value), all);
	bool first = true;
	T result = value;
	for (unsigned i = 0; i < 32; i++) {
		if (!(there >> i & 1u))
			continue;
		result = first ? from_bits<T>(all[i]) : join(result, from_bits<T>(all[i]));
		first = false;
	}
	return result;
}
} // namespace dg_emu

template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32, DG_EMU_LINE)
{
	const int base = (int)dg_emu::lane() & ~(width - 1);
	return dg_emu::shuffle(DG_EMU_HERE("__shfl_sync"), mask, value, base + (from & (width - 1)),
			       true);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, DG_EMU_LINE)
{
	const int base = (int)dg_emu::lane() & ~(width - 1), from = (int)dg_emu::lane() - (int)delta;
	return dg_emu::shuffle(DG_EMU_HERE("__shfl_up_sync"), mask, value, from, from >= base);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, DG_EMU_LINE)
{
	const int base = (int)dg_emu::lane() & ~(width - 1), from = (int)dg_emu::lane() + (int)delta;
	return dg_emu::shuffle(DG_EMU_HERE("__shfl_down_sync"), mask, value, from,
			       from < base + width);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, DG_EMU_LINE)
{
	const int base = (int)dg_emu::lane() & ~(width - 1), from = (int)dg_emu::lane() ^ lanes;
	return dg_emu::shuffle(DG_EMU_HERE("__shfl_xor_sync"), mask, value, from,
			       from < base + width);
}

#define DG_EMU_REDUCE(name, expression)                                                            \
	template <class T> T name(unsigned mask, T value, DG_EMU_LINE)                             \
	{                                                                                          \
		return dg_emu::reduce(DG_EMU_HERE(#name), mask, value,                             \
				      [](T a, T b) -> T { return expression; });                   \
	}
DG_EMU_REDUCE(__reduce_add_sync, a + b)
DG_EMU_REDUCE(__reduce_min_sync, a < b ? a : b)
DG_EMU_REDUCE(__reduce_max_sync, a < b ? b : a)
DG_EMU_REDUCE(__reduce_and_sync, a & b)
DG_EMU_REDUCE(__reduce_or_sync, a | b)
DG_EMU_REDUCE(__reduce_xor_sync, a ^ b)

static inline void __threadfence()
{
	dg_emu_yield();
	dg_emu::fence();
}
#define __threadfence_block()  __threadfence()
#define __threadfence_system() __threadfence()

/* Like CUDA's atomics: relaxed, returning the previous value. */
#define DG_EMU_ATOMIC(name, result)                                                                \
	template <class T> T name(T *p, dg_emu::same<T> value, DG_EMU_LINE)                        \
	{                                                                                          \
		dg_emu_yield(line, file);                                                          \
		T old;                                                                             \
		__atomic_load(p, &old, __ATOMIC_RELAXED);                                          \
		for (;;) {                                                                         \
			T changed = (T)(result);                                                   \
			if (__atomic_compare_exchange(p, &old, &changed, false, __ATOMIC_RELAXED,  \
						      __ATOMIC_RELAXED))                           \
				return old;                                                        \
		}                                                                                  \
	}                                                                                          \
	template <class T> T name##_block(T *p, dg_emu::same<T> value)                             \
	{                                                                                          \
		return name(p, value);                                                             \
	}                                                                                          \
	template <class T> T name##_system(T *p, dg_emu::same<T> value)                            \
	{                                                                                          \
		return name(p, value);                                                             \
	}
DG_EMU_ATOMIC(atomicAdd, old + value)
DG_EMU_ATOMIC(atomicSub, old - value)
DG_EMU_ATOMIC(atomicExch, value)
DG_EMU_ATOMIC(atomicMin, value < old ? value : old)
DG_EMU_ATOMIC(atomicMax, old < value ? value : old)
DG_EMU_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
DG_EMU_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
DG_EMU_ATOMIC(atomicAnd, old & value)
DG_EMU_ATOMIC(atomicOr, old | value)
DG_EMU_ATOMIC(atomicXor, old ^ value)

template <class T> T atomicCAS(T *p, dg_emu::same<T> expected, dg_emu::same<T> value, DG_EMU_LINE)
{
	dg_emu_yield(line, file);
	__atomic_compare_exchange(p, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return expected;
}

template <class T> T atomicCAS_block(T *p, dg_emu::same<T> expected, dg_emu::same<T> value)
{
	return atomicCAS(p, expected, value);
}

template <class T> T atomicCAS_system(T *p, dg_emu::same<T> expected, dg_emu::same<T> value)
{
	return atomicCAS(p, expected, value);
}

static inline int __popc(unsigned v)
{
	return __builtin_popcount(v);
}

static inline int __popcll(unsigned long long v)
{
	return __builtin_popcountll(v);
}

static inline int __ffs(int v)
{
	return __builtin_ffs(v);
}

static inline int __ffsll(long long v)
{
	return __builtin_ffsll(v);
}

static inline int __clz(int v)
{
	return v ? __builtin_clz((unsigned)v) : 32;
}

static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n)
{
	return (unsigned)(((uint64_t)high << 32 | low) << (n & 31) >> 32);
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n)
{
	return (unsigned)(((uint64_t)high << 32 | low) >> (n & 31));
}

/* Each nibble of the selector chooses one of 8 bytes; its upper bit repeats that byte's sign. */
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
	const uint64_t bytes = (uint64_t)b << 32 | a;
	unsigned found = 0;
	for (unsigned i = 0; i < 4; i++) {
		const unsigned nibble = selector >> 4 * i & 15;
		const uint8_t byte = (uint8_t)(bytes >> 8 * (nibble & 7));
		found |= (nibble & 8 ? (byte & 0x80 ? 0xffu : 0) : byte) << 8 * i;
	}
	return found;
}

template <class T> T __ldg(const T *p)
{
	return *p;
}

template <class T> T min(T a, dg_emu::same<T> b)
{
	return b < a ? b : a;
}

template <class T> T max(T a, dg_emu::same<T> b)
{
	return a < b ? b : a;
}

#endif
