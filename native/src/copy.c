// SPDX-License-Identifier: Apache-2.0
/*
 * Copies of any size. The methods for large copies are in a table, so that
 * tests/bench/copy_sweep.py can run each of them over all sizes.
 */
#include "copy.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "error.h"
#include "provider.h"

#define PIPE_BYTES ((uint64_t)65536) /* default capacity of a pipe (pipe(7)) */

typedef void (*copy_fn)(char *d, const char *s, uint64_t n);

static void copy_libc(char *d, const char *s, uint64_t n)
{
	memcpy(d, s, n);
}

/* Portable: copies four streams a page apart, so that several DRAM rows and several prefetchers
 * work at the same time. The compiler turns the inner copies into the widest moves of the baseline
 * architecture. */
static void copy_pages(char *d, const char *s, uint64_t n)
{
	enum { PAGE = 4096, STREAMS = 4, BLOCK = PAGE * STREAMS };
	for (; n >= BLOCK; n -= BLOCK, d += BLOCK, s += BLOCK)
		for (uint32_t o = 0; o < PAGE; o += 64)
			for (uint32_t k = 0; k < STREAMS; k++)
				memcpy(d + k * PAGE + o, s + k * PAGE + o, 64);
	memcpy(d, s, n);
}

#if defined(__x86_64__)
static void copy_rep(char *d, const char *s, uint64_t n)
{
	__asm__ __volatile__("rep movsb" : "+D"(d), "+S"(s), "+c"(n) : : "memory");
}

/* Streaming stores bypass the caches. dst is not read first, which saves a third of the memory
 * traffic. */
static void copy_stream(char *d, const char *s, uint64_t n)
{
	uint64_t head = (64 - ((uintptr_t)d & 63)) & 63;
	if (head > n)
		head = n;
	memcpy(d, s, head);
	d += head, s += head, n -= head;
	for (; n >= 64; n -= 64, d += 64, s += 64) {
		__m128i a = _mm_loadu_si128((const __m128i *)s);
		__m128i b = _mm_loadu_si128((const __m128i *)(s + 16));
		__m128i c = _mm_loadu_si128((const __m128i *)(s + 32));
		__m128i e = _mm_loadu_si128((const __m128i *)(s + 48));
		_mm_prefetch(s + 1024, _MM_HINT_T0);
		_mm_stream_si128((__m128i *)d, a);
		_mm_stream_si128((__m128i *)(d + 16), b);
		_mm_stream_si128((__m128i *)(d + 32), c);
		_mm_stream_si128((__m128i *)(d + 48), e);
	}
	/* Streaming stores are weakly ordered even on x86, and must be visible before the
	 * completion. */
	_mm_sfence();
	memcpy(d, s, n);
}

/* Streaming stores over four pages at once. */
static void copy_stream_pages(char *d, const char *s, uint64_t n)
{
	enum { PAGE = 4096, STREAMS = 4, BLOCK = PAGE * STREAMS };
	uint64_t head = (64 - ((uintptr_t)d & 63)) & 63;
	if (head > n)
		head = n;
	memcpy(d, s, head);
	d += head, s += head, n -= head;
	for (; n >= BLOCK; n -= BLOCK, d += BLOCK, s += BLOCK)
		for (uint32_t o = 0; o < PAGE; o += 64)
			for (uint32_t k = 0; k < STREAMS; k++) {
				const char *f = s + k * PAGE + o;
				char *t = d + k * PAGE + o;
				__m128i a = _mm_loadu_si128((const __m128i *)f);
				__m128i b = _mm_loadu_si128((const __m128i *)(f + 16));
				__m128i c = _mm_loadu_si128((const __m128i *)(f + 32));
				__m128i e = _mm_loadu_si128((const __m128i *)(f + 48));
				_mm_prefetch(f + 256, _MM_HINT_T0);
				_mm_stream_si128((__m128i *)t, a);
				_mm_stream_si128((__m128i *)(t + 16), b);
				_mm_stream_si128((__m128i *)(t + 32), c);
				_mm_stream_si128((__m128i *)(t + 48), e);
			}
	_mm_sfence();
	copy_stream(d, s, n);
}
#endif

static const struct {
	const char *name;
	copy_fn copy;
} methods[] = {
	{"memcpy", copy_libc}, {"pages", copy_pages},
#if defined(__x86_64__)
	{"rep", copy_rep},     {"stream", copy_stream}, {"stream-pages", copy_stream_pages},
#endif
};
#define N_METHODS (sizeof methods / sizeof methods[0])

const char *dg_copy_method(uint32_t method)
{
	return method < N_METHODS ? methods[method].name : NULL;
}

int dg_copy_with(uint32_t method, void *dst, const void *src, uint64_t size)
{
	if (method >= N_METHODS)
		return dg_fail(EINVAL, "copy method %u does not exist: there are %zu, from 0",
			       method, N_METHODS);
	methods[method].copy(dst, src, size);
	return 0;
}

void dg_copy(void *dst, const void *src, uint64_t n)
{
	if (n <= 64)
		copy_upto64(dst, src, n);
	else
		memcpy(dst, src, n);
}

/* The choice follows tests/bench/results/copy_sweep*.json. As long as a cache holds the bytes,
 * libc's memcpy is as good as any method. For larger sizes on x86-64, streaming stores over four
 * pages are the fastest method or within 4 % of it; on other architectures libc's memcpy is tuned
 * for the machine. */
void dg_copy_large(void *dst, const void *src, uint64_t size)
{
#if defined(__x86_64__)
	copy_stream_pages(dst, src, size);
#else
	memcpy(dst, src, size);
#endif
}

/* Reads n bytes that a pipe already holds. Returns 0 or -EFAULT. */
static int read_all(int fd, char *d, uint64_t n)
{
	while (n) {
		ssize_t got = read(fd, d, n);
		if (got <= 0)
			return -EFAULT;
		d += got, n -= (uint64_t)got;
	}
	return 0;
}

/* Copies through a pipe. This is slower than process_vm_readv(), but supported everywhere,
 * including mappings of device memory (VM_PFNMAP). */
static int copy_by_pipe(char *d, const char *s, uint64_t n)
{
	int ends[2], rc = 0;
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	while (n && !rc) {
		ssize_t got = write(ends[1], s, n < PIPE_BYTES ? n : PIPE_BYTES);
		if (got <= 0) {
			rc = -EFAULT;
			break;
		}
		rc = read_all(ends[0], d, (uint64_t)got);
		d += got, s += got, n -= (uint64_t)got;
	}
	close(ends[0]);
	close(ends[1]);
	return rc;
}

int dg_copy_guarded(void *dst, const void *src, uint64_t n)
{
	char *d = dst;
	const char *s = src;
	while (n) {
		struct iovec to = {d, n}, from = {(void *)(uintptr_t)s, n};
		/* A direct system call: TSan would report a race between a write by libc's function
		 * and a program that reads the bytes after another process said that they are
		 * there, because it cannot see that order. */
		ssize_t got = syscall(SYS_process_vm_readv, getpid(), &to, 1UL, &from, 1UL, 0UL);
		if (got <= 0)
			return copy_by_pipe(d, s, n);
		d += got, s += got, n -= (uint64_t)got;
	}
	return 0;
}
