/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated GPU's PTX instructions: dgkit/gpu_initiated/ptx.py replaces the statements of inline
 * assembly by calls of these functions. Operands are the bits of registers, and the type of the
 * instruction says what they mean. Loads and stores that other threads may race with are yield
 * points.
 */
#ifndef DGKIT_EMULATED_PTX_H
#define DGKIT_EMULATED_PTX_H

#include "../emulated_gpu.h"

namespace dg_ptx
{
/* Converts to the type of an instruction by taking the low bytes. */
struct Bits {
	uint64_t bits;
	template <class V> Bits(V value) : bits(0)
	{
		if constexpr (std::is_integral<V>::value || std::is_enum<V>::value)
			bits = (uint64_t)value;
		else
			memcpy(&bits, &value, sizeof value);
	}
	template <class T> T as() const
	{
		T value;
		memcpy(&value, &bits, sizeof value);
		return value;
	}
	template <class T> operator T() const
	{
		return as<T>();
	}
};

/* A register may be wider than what is written to it: integers are extended by their sign. */
template <class D, class V> void set(D &to, V value)
{
	to = Bits(value).as<D>();
}

inline uint64_t &sink()
{
	static thread_local uint64_t nowhere;
	return nowhere;
}

template <class T, class V> void pack(V &to, Bits a, Bits b)
{
	const unsigned half = 4 * sizeof(T);
	set(to, (T)((a.bits & ((1ull << half) - 1)) | b.bits << half));
}

template <class T, class V> void pack(V &to, Bits a, Bits b, Bits c, Bits d)
{
	const unsigned part = 2 * sizeof(T);
	const uint64_t mask = (1ull << part) - 1;
	set(to, (T)((a.bits & mask) | (b.bits & mask) << part | (c.bits & mask) << 2 * part |
		    d.bits << 3 * part));
}

template <class T, class... V> void unpack(Bits from, V &...to)
{
	const unsigned part = 8 * sizeof(T) / sizeof...(to);
	const uint64_t mask = part == 64 ? ~0ull : (1ull << part) - 1;
	unsigned shift = 0;
	((set(to, from.bits >> shift & mask), shift += part), ...);
}

/* Reads through a cast to a pointer to volatile: programs poll this way. */
template <class P> struct Polled {
	P at;
	Polled(P p, DG_EMU_LINE) : at(p)
	{
		dg_emu_yield(line, file);
	}
	auto &operator*() const
	{
		return *at;
	}
};

/* WEAK: nobody else accesses the memory meanwhile. ORDERED: acquires, or releases. */
enum Order { WEAK, RELAXED, ORDERED };

template <class T, Order order> T load(Bits address, unsigned index, DG_EMU_LINE)
{
	T *at = (T *)address.bits + index, value;
	if (order == WEAK)
		return *at;
	dg_emu_yield(line, file);
	__atomic_load(at, &value, __ATOMIC_RELAXED);
	if (order == ORDERED)
		dg_emu::fence();
	return value;
}

template <class T, Order order> void store(Bits address, unsigned index, Bits bits, DG_EMU_LINE)
{
	T *at = (T *)address.bits + index, value = bits;
	if (order == WEAK) {
		*at = value;
		return;
	}
	if (order == ORDERED)
		dg_emu::fence();
	__atomic_store(at, &value, __ATOMIC_RELAXED);
	dg_emu_yield(line, file);
}

inline void copy(Bits to, Bits from, Bits size, DG_EMU_LINE)
{
	memcpy((void *)to.bits, (const void *)from.bits, size);
	dg_emu_yield(line, file);
}

/* Fences around, so that any order that the statement asks for is kept. */
#define DG_PTX_ATOMIC(name, function)                                                              \
	template <class T> T name(Bits address, T value)                                           \
	{                                                                                          \
		dg_emu::fence();                                                                   \
		const T old = function((T *)address.bits, value);                                  \
		dg_emu::fence();                                                                   \
		return old;                                                                        \
	}
DG_PTX_ATOMIC(atom_add, atomicAdd)
DG_PTX_ATOMIC(atom_min, atomicMin)
DG_PTX_ATOMIC(atom_max, atomicMax)
DG_PTX_ATOMIC(atom_exch, atomicExch)
DG_PTX_ATOMIC(atom_inc, atomicInc)
DG_PTX_ATOMIC(atom_dec, atomicDec)
DG_PTX_ATOMIC(atom_and, atomicAnd)
DG_PTX_ATOMIC(atom_or, atomicOr)
DG_PTX_ATOMIC(atom_xor, atomicXor)

template <class T> T atom_cas(Bits address, T expected, T value)
{
	dg_emu::fence();
	const T old = atomicCAS((T *)address.bits, expected, value);
	dg_emu::fence();
	return old;
}

#define DG_PTX_BINARY(name, expression)                                                            \
	template <class T> T name(T a, T b)                                                        \
	{                                                                                          \
		return (T)(expression);                                                            \
	}
DG_PTX_BINARY(add_, a + b)
DG_PTX_BINARY(sub_, a - b)
DG_PTX_BINARY(div_, a / b)
DG_PTX_BINARY(rem_, a % b)
DG_PTX_BINARY(min_, b < a ? b : a)
DG_PTX_BINARY(max_, a < b ? b : a)
DG_PTX_BINARY(and_, a & b)
DG_PTX_BINARY(or_, a | b)
DG_PTX_BINARY(xor_, a ^ b)

template <class T> T not_(T a)
{
	return std::is_same<T, bool>::value ? !a : (T)~a;
}

template <class T> T neg_(T a)
{
	return (T)-a;
}

template <class T> T abs_(T a)
{
	return a < 0 ? -a : a;
}

/* Shifts by more than the width give 0, or the sign. */
template <class T> T shl_(T a, uint32_t n)
{
	return n < 8 * sizeof(T) ? (T)(a << n) : 0;
}

template <class T> T shr_(T a, uint32_t n)
{
	return (T)(n < 8 * sizeof(T) ? a >> n : a < 0 ? -1 : 0);
}

template <class T> T selp_(T a, T b, bool yes)
{
	return yes ? a : b;
}

template <class T> T fma_(T a, T b, T c)
{
	return a * b + c;
}

template <class T> T mul_lo(T a, T b)
{
	return (T)((uint64_t)a * (uint64_t)b);
}

template <class T> T mul_hi(T a, T b)
{
	return (T)((__int128)a * (__int128)b >> 8 * sizeof(T));
}

template <class T> int64_t mul_wide(T a, T b)
{
	return (int64_t)a * (int64_t)b;
}

template <class T> T mad_lo(T a, T b, T c)
{
	return mul_lo<T>(a, b) + c;
}

template <class T> int64_t mad_wide(T a, T b, int64_t c)
{
	return mul_wide<T>(a, b) + c;
}

template <class T> T bfe_(T a, uint32_t from, uint32_t n)
{
	const unsigned bits = 8 * sizeof(T);
	if (!n || from >= bits)
		return 0;
	const unsigned left = n + from < bits ? bits - n - from : 0;
	return (T)(a << left) >> (left + from);
}

template <class T> T lop3_(T a, T b, T c, uint32_t table)
{
	T found = 0;
	for (unsigned i = 0; i < 8; i++)
		if (table >> i & 1)
			found |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
	return found;
}

template <class T> uint32_t popc_(T a)
{
	return (uint32_t)__builtin_popcountll((uint64_t)a);
}

template <class T> uint32_t clz_(T a)
{
	return a ? (uint32_t)__builtin_clzll((uint64_t)a) - (64 - 8 * sizeof(T)) : 8 * sizeof(T);
}

template <class T> T brev_(T a)
{
	T found = 0;
	for (unsigned i = 0; i < 8 * sizeof(T); i++)
		found |= (T)(a >> i & 1) << (8 * sizeof(T) - 1 - i);
	return found;
}

inline unsigned warp()
{
	return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32;
}
} // namespace dg_ptx

#endif
