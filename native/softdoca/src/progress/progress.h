/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, their tasks, and the progress engines that run both. */
#ifndef SOFTDOCA_PROGRESS_H
#define SOFTDOCA_PROGRESS_H

#include "device/device.h"
#include "doca_ctx.h"
#include "doca_pe.h"

#define TASKS_MAX 65536u /* of one context */

struct ctx_ops {
	/* Returns DOCA_SUCCESS if the context runs, DOCA_ERROR_IN_PROGRESS if progress() completes
	 * the start. */
	doca_error_t (*start)(struct doca_ctx *ctx);
	/* Cancels the tasks that can be cancelled; progress() completes the others. Called once
	 * before IDLE. NULL: progress() completes all. */
	void (*stop)(struct doca_ctx *ctx);
	/* Returns whether a STOPPING context can become IDLE as soon as its tasks in flight, which
	 * are counted elsewhere, have ended. NULL: it can. */
	bool (*quiet)(struct doca_ctx *ctx);
	/* Frees what start() allocated; called last, before the state becomes IDLE. If start()
	 * fails, it is not called. */
	void (*ended)(struct doca_ctx *ctx);
	doca_error_t (*submit)(struct doca_task *task, uint32_t flags);
	/* Delivers at most one event, with at most one callback. Returns whether it delivered
	 * one. */
	bool (*progress)(struct doca_ctx *ctx);
	/* Called before the program sleeps. Returns true if there already is an event to deliver.
	 * NULL: there is none. */
	bool (*arm)(struct doca_ctx *ctx);
	/* Reverts arm(), but for the fd, which is not looked at unless armed. NULL: nothing else. */
	void (*disarm)(struct doca_ctx *ctx);
	void (*free_task)(struct doca_task *task);
	/* Cancels a task in flight, so that it can be freed; its callback is not called. Returns
	 * false if it cannot be cancelled. NULL: tasks in flight cannot be freed. */
	bool (*cancel)(struct doca_task *task);
	/* Starts tasks submitted without DOCA_TASK_SUBMIT_FLAG_FLUSH. NULL: submit starts them at
	 * once. */
	void (*flush)(struct doca_ctx *ctx);
	/* The operations of a context of this kind whose data path is on a GPU. It has no tasks,
	 * and needs no progress engine unless needs_pe is set. NULL: the data path cannot be on a
	 * GPU. */
	const struct ctx_ops *on_gpu;
	bool needs_pe;
	/* Nothing tells of its events: `fd` is a timer, which arm() sets by softdoca_ctx_wake_after()
	 * so that the program looks for them. */
	bool timed;
};
/* Flag of submit, set by doca_task_try_submit: refuse a task that would fail. */
#define SUBMIT_CHECKED 0x80000000u

struct doca_ctx {
	struct object o; /* within its library's object, aligned to 64 bytes */
	const struct ctx_ops *ops;
	enum doca_ctx_states state;
	struct doca_dev *dev;
	struct doca_gpu *gpu; /* its data path is there; NULL: on the CPU */
	struct doca_pe *pe;
	struct doca_ctx *next; /* of the engine: a ring */
	union doca_data user_data;
	doca_ctx_state_changed_callback_t state_cb;
	size_t in_flight; /* tasks submitted whose callback was not called yet */
	size_t tasks; /* tasks allocated and not freed; STOPPING lasts until there are none */
	bool stopping_asked; /* ops->stop was called */
	bool busy; /* its progress or a callback is running, so its memory is still in use */
	void (*release)(void *object); /* set if destroyed while busy: frees `object` afterwards */
	void *object;
	/* Readable, once armed, when there is an event to deliver; -1: none. Set by ops->start(), which owns it,
	 * but for a timer. */
	int fd;
};

/* Called at the end of a task instead of the program's callback. */
struct task_watch {
	void (*landed)(struct task_watch *watch, doca_error_t status);
};

struct doca_task {
	struct object o; /* within its library's object, aligned to 64 bytes */
	struct doca_ctx *ctx; /* stays when it is free: a second thread looks at it to be refused */
	struct task_watch *watch; /* a node of a graph that has submitted it; NULL: none */
	union {
		union doca_data user_data;
		struct doca_task *next_free; /* of its pool */
	};
	doca_error_t status;
	bool in_flight;
};

/* Tasks that a context has and the program has not. When it becomes IDLE, it has all of them. */
struct task_pool {
	struct doca_task *free;
};

/* Tasks that are submitted and freed together, as one. */
struct doca_task_batch {
	struct object o;
	_Alignas(64) struct doca_task task;
};

struct doca_pe {
	struct object o;
	struct doca_ctx *first; /* the next one to serve, round robin */
	uint32_t n;
	int epoll_fd; /* the notification handle */
	int event_fd; /* makes it readable at once */
	enum doca_pe_event_mode mode;
	_Atomic(uintptr_t) thread; /* the thread inside, or 0; a second one is refused */
	bool armed; /* the program waits for the notification handle, which is not readable yet */
	uint32_t fork_generation; /* at its creation: see pe_forked() */
};

/* pe.c: enters an engine, its contexts and their tasks. Only one thread can be inside; others get
 * PE_BUSY. A callback is already inside and gets PE_NESTED. Objects without an engine (NULL) can
 * always be entered. */
enum pe_entry { PE_ENTERED, PE_NESTED, PE_BUSY };
SOFTDOCA_INTERNAL enum pe_entry softdoca_pe_enter(struct doca_pe *pe);
SOFTDOCA_INTERNAL void softdoca_pe_leave(struct doca_pe *pe, enum pe_entry how);
/* Wakes the program if it is waiting, because there is an event to deliver. */
SOFTDOCA_INTERNAL void softdoca_pe_kick(struct doca_pe *pe);

/* Returns from a public function with the result of `call`, which is made inside the engine. */
#define RETURN_INSIDE(engine, call)                                                \
	do {                                                                       \
		struct doca_pe *pe_ = (engine);                                    \
		enum pe_entry how_ = softdoca_pe_enter(pe_);                       \
		if (how_ == PE_BUSY)                                               \
			return REFUSE(DOCA_ERROR_IN_USE,                           \
				      "another thread is in its progress engine"); \
		doca_error_t error_ = (call);                                      \
		softdoca_pe_leave(pe_, how_);                                      \
		return error_;                                                     \
	} while (0)
/* Result of tasks that a stopped context did not finish. */
#define FLUSHED DOCA_ERROR_IO_FAILED /* guess */

/* ctx.c, for libraries: initialize a context, or destroy it. Destroying requires the state IDLE,
 * otherwise returns `started`. release(object) frees the library's object, immediately or, if a
 * callback destroys it, after that callback; its handle is invalid at once. */
SOFTDOCA_INTERNAL doca_error_t softdoca_ctx_init(struct doca_ctx *ctx, struct doca_dev *dev,
						 const struct ctx_ops *ops);
SOFTDOCA_INTERNAL doca_error_t softdoca_ctx_destroy(struct doca_ctx *ctx, doca_error_t started,
						    void (*release)(void *object), void *object);
/* Changes the state and notifies the program. */
SOFTDOCA_INTERNAL void softdoca_ctx_move(struct doca_ctx *ctx, enum doca_ctx_states next);
/* Sets the timer of a `timed` context; 0 stops it. */
SOFTDOCA_INTERNAL void softdoca_ctx_wake_after(const struct doca_ctx *ctx, long ns);
/* The operation `progress` of a context without events. */
SOFTDOCA_INTERNAL bool softdoca_ctx_no_event(struct doca_ctx *ctx);
/* Handles a fatal error: RUNNING becomes STOPPING, as if the context were stopped. */
SOFTDOCA_INTERNAL void softdoca_ctx_fail(struct doca_ctx *ctx);
/* task.c: assign a task to ctx; mark it as no longer in flight, before its completion callback.
 * Returns whether this is to be called: for a task that a graph has submitted, the graph is told. */
SOFTDOCA_INTERNAL void softdoca_task_init(struct doca_task *task, struct doca_ctx *ctx,
					  union doca_data user_data);
/* Makes n objects of `size` bytes, each with a task at `offset`. Returns false without memory for all: then, as
 * at the end, softdoca_tasks_free() frees what there is. */
SOFTDOCA_INTERNAL bool softdoca_tasks_make(struct task_pool *pool, uint32_t n, size_t size, size_t offset);
SOFTDOCA_INTERNAL void softdoca_tasks_free(struct task_pool *pool, size_t offset);
#define TASKS_MAKE(pool, n, type) softdoca_tasks_make(pool, n, sizeof(type), offsetof(type, task))
#define TASKS_FREE(pool, type)    softdoca_tasks_free(pool, offsetof(type, task))
/* Takes a task, for softdoca_task_init(), and puts it back, no longer a task; NULL: there is none. */
SOFTDOCA_INTERNAL struct doca_task *softdoca_task_take(struct task_pool *pool);
SOFTDOCA_INTERNAL void softdoca_task_return(struct task_pool *pool, struct doca_task *task);
/* Checks the configuration of tasks: an idle context, callbacks, 1 to max tasks. */
SOFTDOCA_INTERNAL doca_error_t softdoca_tasks_check(const struct doca_ctx *ctx, bool callbacks, uint32_t n,
						    uint32_t max, const char *func);
SOFTDOCA_INTERNAL bool softdoca_task_landed(struct doca_task *task, doca_error_t status);
/* Makes a STOPPING context IDLE if it is quiet; called after a callback and after stop(). */
SOFTDOCA_INTERNAL void softdoca_ctx_settle(struct doca_ctx *ctx);

#endif
