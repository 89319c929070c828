/* SPDX-License-Identifier: Apache-2.0 */
/* Entry to a progress engine, for one thread at a time, and the fds that wake a program waiting for
 * it. */
#ifndef SOFTDOCA_PE_H
#define SOFTDOCA_PE_H

#include "provider.h"
#include "progress.h"

/* The variable's address identifies the thread. With initial-exec, access takes one load instead of
 * a call. */
extern _Thread_local char pe_self __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Costs one atomic exchange, or none within a callback, where `thread` already is the calling
 * thread: only that thread stores this value, so a relaxed load that returns it has read the
 * thread's own store. Acquire and release make the previous thread's changes to the engine, its
 * contexts and tasks visible. */
static inline enum pe_entry pe_enter(struct doca_pe *pe)
{
	uintptr_t me = (uintptr_t)&pe_self, none = 0;
	if (!pe || atomic_load_explicit(&pe->thread, memory_order_relaxed) == me)
		return PE_NESTED;
	return atomic_compare_exchange_strong_explicit(&pe->thread, &none, me, memory_order_acquire,
						       memory_order_relaxed)
		       ? PE_ENTERED
		       : PE_BUSY;
}

static inline void pe_leave(struct doca_pe *pe, enum pe_entry how)
{
	if (how == PE_ENTERED)
		atomic_store_explicit(&pe->thread, 0, memory_order_release);
}

/* Returns whether this process is a forked child and the engine was created by its parent. The
 * child lacks the copying threads, and shares the notification handle with its parent. So it cannot
 * start or submit anything with this engine, only stop and destroy. */
#define FORKED "the progress engine is this process's parent's"
static inline bool pe_forked(const struct doca_pe *pe)
{
	return pe->fork_generation !=
	       atomic_load_explicit(&dg_fork_generation, memory_order_relaxed);
}

/* Marks a task as no longer in flight; as softdoca_task_landed(). */
static inline bool task_landed(struct doca_task *task, doca_error_t status)
{
	struct task_watch *watch = task->watch;
	task->in_flight = false;
	task->status = status;
	task->ctx->in_flight--;
	if (__builtin_expect(!watch, 1))
		return true;
	task->watch = NULL;
	watch->landed(watch, status);
	return false;
}

/* Adds the fd of a context of pe, which wakes the program only while pe_wakes(.., true). */
bool pe_watch(struct doca_pe *pe, int fd);
void pe_unwatch(struct doca_pe *pe, int fd);
void pe_wakes(struct doca_pe *pe, int fd, bool on);
/* ctx.c: connect ctx to pe; disconnect it before it is destroyed. */
void pe_add(struct doca_pe *pe, struct doca_ctx *ctx);
void pe_remove(struct doca_pe *pe, struct doca_ctx *ctx);
/* ctx.c: returns whether ctx is STOPPING and quiet, so that the next progress makes it IDLE. */
bool ctx_at_end(const struct doca_ctx *ctx);
/* ctx.c: frees a context that was destroyed in a callback, once none of its callbacks is running.
 * The caller must not use ctx afterwards. */
void ctx_release(struct doca_ctx *ctx);
/* Called while the program waits: checks ctx for events, and wakes the program if there are any. */
void pe_arm_ctx(struct doca_pe *pe, struct doca_ctx *ctx);

#endif
