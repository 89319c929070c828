/* SPDX-License-Identifier: Apache-2.0 */
/* One thread at a time inside a progress engine; and which fds wake a program that waits for it. */
#ifndef SOFTDOCA_PE_H
#define SOFTDOCA_PE_H

#include "provider.h"
#include "softdoca.h"

/* Its address stands for the thread. initial-exec: one load instead of a call. */
extern _Thread_local char pe_self __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* One exchange; none within a callback, where `thread` is this very one: nobody else stores that value, so
 * a relaxed load that sees it saw our own store. Acquire and release: what the thread before did to the
 * engine, its contexts and tasks is seen. */
static inline enum pe_entry pe_enter(struct doca_pe *pe)
{
	uintptr_t me = (uintptr_t)&pe_self, nobody = 0;
	if (!pe || atomic_load_explicit(&pe->thread, memory_order_relaxed) == me)
		return PE_NESTED;
	return atomic_compare_exchange_strong_explicit(&pe->thread, &nobody, me,
						       memory_order_acquire, memory_order_relaxed)
		       ? PE_ENTERED
		       : PE_BUSY;
}

static inline void pe_leave(struct doca_pe *pe, enum pe_entry how)
{
	if (how == PE_ENTERED)
		atomic_store_explicit(&pe->thread, 0, memory_order_release);
}

/* Whether this is the child of a fork and the engine its parent's. The child has neither the threads that copy
 * nor a notification handle of its own: what it did to the handle, the parent would feel. So there nothing
 * is started or submitted any more, and what is there can be stopped and destroyed. */
#define FORKED "the progress engine is this process's parent's"
static inline bool pe_forked(const struct doca_pe *pe)
{
	return pe->fork_generation !=
	       atomic_load_explicit(&dg_fork_generation, memory_order_relaxed);
}

/* fd belongs to a context of pe. It wakes the program only while pe_wakes(.., true). */
bool pe_watch(struct doca_pe *pe, int fd);
void pe_unwatch(struct doca_pe *pe, int fd);
void pe_wakes(struct doca_pe *pe, int fd, bool on);
/* ctx.c: pe becomes the engine of ctx; before ctx ends. */
void pe_add(struct doca_pe *pe, struct doca_ctx *ctx);
void pe_remove(struct doca_pe *pe, struct doca_ctx *ctx);
/* ctx.c: it is STOPPING and nothing is left of it, so that the next progress makes it IDLE. */
bool ctx_at_end(const struct doca_ctx *ctx);
/* ctx.c: frees a context that was destroyed in a callback, once none of it runs. The caller does not use ctx
 * after it. */
void ctx_release(struct doca_ctx *ctx);
/* The program waits: has ctx look for what is to be delivered, and say so. */
void pe_arm_ctx(struct doca_pe *pe, struct doca_ctx *ctx);

#endif
