/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accesses to memory that the program may have unmapped: in a thread that catches faults, SIGSEGV and
 * SIGBUS end the access instead of the process.
 *
 *	struct memory_fault f;
 *	if (MEMORY_FAULT_CATCH(&f))
 *		return failed_at(f.at);
 *	memcpy(to, from, n);
 *	dg_memory_fault_release();
 *
 * Catching costs a sigsetjmp() without a signal mask, so a thread catches once for many accesses. What
 * it has stored before an access is there after a fault if it is in memory that others can see, and a
 * compiler barrier, such as order_stores(), precedes the access. A program that installs a handler of
 * its own after dg_memory_fault_open() gets the faults first.
 */
#ifndef DG_MEMORY_FAULT_H
#define DG_MEMORY_FAULT_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

struct memory_fault {
	sigjmp_buf back;
	const void *at;
};

/* Of this thread. initial-exec: the handler may not allocate it. */
extern _Thread_local struct memory_fault *dg_memory_fault
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Installs the handlers, once in a process. They pass on what is not caught. */
void dg_memory_fault_open(void);

#define MEMORY_FAULT_CATCH(f) (dg_memory_fault = (f), sigsetjmp((f)->back, 0))

static inline void dg_memory_fault_release(void)
{
	dg_memory_fault = NULL;
}

/* Copies n bytes, of a copy of `all`. Returns NULL, or the address where the copy faulted. */
const void *dg_copy_caught(void *dst, const void *src, uint64_t n, uint64_t all);

#endif
