/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of softdoca: the objects behind the handles, and the functions that its files share.
 *
 *   dev.c      devices and representors, described by devices.c; each device has an engine of dgkit
 *   mmap.c     memory maps; mmap_export.c their export descriptors; dmabuf.c memory behind a dma-buf
 *   buf.c      buffers; buf_list.c lists of them; inventory.c, buf_pool.c their allocation
 *   ctx.c      states of contexts; pe.c progress and notification; task.c tasks
 *   engine.c   DMA tasks through dgkit's provider; mmap_advise.c cache invalidation; clock.c clocks
 *   sync_event.c  events, a value that processes share; sync_task.c their tasks
 *   gpu.c      GPUs and their memory; umem.c rings in it; soft_nic.c the software NIC; ibv.c libibverbs
 *   adapter.c  RDMA adapters, by the libibverbs of the machine
 *   ../dma     DMA contexts; ../comch channels; ../argp command lines
 *   ../verbs   queue pairs; ../gpunetio their export to device code; ../ibverbs libibverbs.so.1
 *
 * Errors: functions return a doca_error_t only; the reason is in the log (softdoca_log, level
 * WARNING).
 */
#ifndef SOFTDOCA_H
#define SOFTDOCA_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dgkit.h"
#include "doca_buf.h"
#include "doca_buf_array.h"
#include "doca_buf_inventory.h"
#include "doca_ctx.h"
#include "doca_dev.h"
#include "doca_dma.h"
#include "doca_error.h"
#include "doca_log.h"
#include "doca_mmap.h"
#include "doca_pe.h"
#include "doca_types.h"
#include "doca_version.h"
#include "error.h"
#include "base/object.h"

/* Limits: those of a BlueField where known (MEMCPY_MAX: 2 MiB), otherwise arbitrary. */
#define MEMCPY_MAX      ((uint64_t)2 << 20)
#define LIST_MAX        64u /* buffers of one list in a memcpy task */
#define TASKS_MAX       65536u /* of one context */
#define MMAP_DEVS_MAX   8u
#define EXPORT_DESC_MAX 512u

/* log.c: writes a record of the library. level is a doca_log_level. */
SOFTDOCA_INTERNAL void softdoca_log(uint32_t level, const char *func, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));
/* Returns the text of this thread's last record at WARNING or worse, for language bindings that
 * raise it as an exception; "" if there is none. */
SOFTDOCA_INTERNAL const char *softdoca_last_refusal(void);
/* Logs the reason (WARNING) and evaluates to the error: return REFUSE(DOCA_ERROR_BAD_STATE, "the
 * context runs"); */
#define REFUSE(error, ...) REFUSE_FOR(__func__, error, __VA_ARGS__)
/* The same in a function that `func` calls. */
#define REFUSE_FOR(func, error, ...) \
	(softdoca_log(DOCA_LOG_LEVEL_WARNING, func, __VA_ARGS__), (error))
/* Like REFUSE, for invalid environment variables of softdoca: logs at CRIT, which is printed on
 * stderr by default. */
#define MISCONFIGURED(...) \
	(softdoca_log(DOCA_LOG_LEVEL_CRIT, __func__, __VA_ARGS__), DOCA_ERROR_BAD_CONFIG)
/* The first checks of a public function; a failed check returns from the function. DOCA documents
 * INVALID_VALUE for invalid input in general. */
#define CHECK_OBJECT(p, kind, what)                                                \
	do {                                                                       \
		if (__builtin_expect(!object_is(p, kind), 0))                      \
			return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not " what, \
				      (const void *)(p));                          \
	} while (0)
#define CHECK_OUT(p)                                                               \
	do {                                                                       \
		if (__builtin_expect(!(p), 0))                                     \
			return REFUSE(DOCA_ERROR_INVALID_VALUE, "%s is NULL", #p); \
	} while (0)
/* Stores a result of a public function and evaluates to its error: return SET_OUT(size, map->len); */
#define SET_OUT(out, value)                               \
	(__builtin_expect((out) != NULL, 1)               \
		 ? (void)(*(out) = (value)), DOCA_SUCCESS \
		 : REFUSE(DOCA_ERROR_INVALID_VALUE, "%s is NULL", #out))
/* Defines a public function that stores one value of an object. `check` is one as CHECK_BUF; `value`
 * is an expression of `handle`. */
#define GETTER(function, check, object, type, value)        \
	doca_error_t function(object *handle, type *result) \
	{                                                   \
		check(handle);                              \
		return SET_OUT(result, value);              \
	}
/* Defines a public function that returns the pointer to a member of an object: NULL, which is logged,
 * for an invalid object. */
#define AS_MEMBER(function, object, type, kind, what, member)                         \
	type *function(object *handle)                                                \
	{                                                                             \
		return object_is(handle, kind)                                        \
			       ? &handle->member                                      \
			       : REFUSE((type *)NULL, "%p is not " what, (void *)handle); \
	}
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
/* Set the level limit of the program's records, and of every SDK backend. Return false for an
 * invalid level. */
SOFTDOCA_INTERNAL bool softdoca_log_limit(uint32_t level);
SOFTDOCA_INTERNAL bool softdoca_log_sdk_limit(uint32_t level);
/* error_names.c: logs a negative result of dgkit.h with its text, and returns the corresponding
 * doca_error_t. */
SOFTDOCA_INTERNAL doca_error_t softdoca_failed(const char *func, int rc) __attribute__((cold));
/* runtime.c: writes the path of the socket of the Comch server with this name on the function with
 * this vuid. The path is in dgkit's folder for sockets. Errors: OPERATING_SYSTEM and others if the
 * folder cannot be used or the path exceeds cap. */
SOFTDOCA_INTERNAL doca_error_t softdoca_runtime_path(const char *name, const char *function,
						     const char *ending, char *out, size_t cap);

/* ---- devices: devices.c reads their description, dev.c opens them ---- */

enum softdoca_side { SIDE_HOST = 1, SIDE_DPU = 2, SIDE_BOTH = 3 };
enum softdoca_cap {
	CAP_DMA = 1,
	CAP_EXPORT_PCI = 2,
	CAP_FROM_EXPORT_PCI = 4,
	CAP_COMCH_CLIENT = 8,
	CAP_COMCH_SERVER = 16,
	CAP_ADAPTER = 32, /* an RDMA adapter of this machine; not a word of SOFTDOCA_DEVICES */
};

/* Attributes of a function or a representor. */
struct function {
	char pci[DOCA_DEVINFO_PCI_ADDR_SIZE]; /* 0000:03:00.0 */
	char ibdev[DOCA_DEVINFO_IBDEV_NAME_SIZE];
	char iface[DOCA_DEVINFO_IFACE_NAME_SIZE];
	char vuid[DOCA_DEVINFO_VUID_SIZE];
	enum doca_pci_func_type type;
	uint32_t sf_index, caps;
	uint16_t vhca_id;
	enum softdoca_side side;
};

struct doca_devinfo {
	struct object o;
	struct function f;
};

struct doca_devinfo_rep {
	struct object o;
	struct function f; /* of the host's function that it represents */
	struct doca_dev *dev;
};

struct doca_dev {
	struct object o;
	uint32_t opened; /* number of times; an open device is opened again as the same object */
	int pid; /* of the opening process: a forked child opens its own device */
	_Alignas(64) struct doca_devinfo info;
	dg_device *engine; /* provider soft, or fault on top of it */
	dg_device *gpu; /* provider cuda, opened when GPU memory is first used; NULL until then */
	atomic_uint users; /* maps and contexts that use it: closing returns IN_USE */
	struct ibv_pd *pd; /* for doca_rdma_bridge_get_dev_pd(), may be freed by the program */
	bool owns_pd;
	struct adapter *adapter; /* opened when first used; NULL until then, and without CAP_ADAPTER */
	struct doca_dev *next;
};

struct doca_dev_rep {
	struct object o;
	struct doca_dev *dev;
	struct function f;
};

/* dev.c: returns dev->gpu, opened if necessary: the GPU with this UUID, or the first GPU if uuid is
 * NULL. Logs and returns NULL if there is no GPU. */
SOFTDOCA_INTERNAL dg_device *softdoca_dev_gpu(struct doca_dev *dev, const uint8_t *uuid);

/* Whether its RDMA is that of an adapter, not of the software NIC. */
static inline bool dev_is_adapter(const struct doca_dev *dev)
{
	return dev->info.f.caps & CAP_ADAPTER;
}
/* Stores the adapter of such a device, opened if necessary. Errors: those of softdoca_failed(). */
SOFTDOCA_INTERNAL doca_error_t softdoca_dev_adapter(struct doca_dev *dev, struct adapter **out);

/* Sets dev->pd unless pd is NULL, and whether the device frees it with its context. Returns dev->pd. */
struct ibv_pd *softdoca_dev_pd(struct doca_dev *dev, struct ibv_pd *pd, bool owned);

/* ---- memory maps ---- */

enum mmap_state { MMAP_NEW, MMAP_STARTED, MMAP_STOPPED };
enum mmap_backing {
	BACKING_NONE,
	BACKING_HOST, /* set_memrange, or a udmabuf */
	BACKING_GPU, /* copied by dgkit's CUDA import: dma-buf identity only */
};

enum export_kind { EXPORT_PCI, EXPORT_RDMA, EXPORT_KINDS };

/* A map on one device: registered with that device's engine, or imported into it. */
struct attachment {
	struct doca_dev *dev;
	dg_region *host; /* in dev->engine; NULL for GPU memory */
	dg_region *gpu; /* in dev->gpu: GPU memory, or host memory in a task with GPU memory */
	/* Export descriptors by kind, each created once; for an import, [0] is the imported
	 * descriptor. */
	struct export_bytes {
		uint8_t *bytes;
		size_t len;
	} desc[EXPORT_KINDS];
};

struct doca_mmap {
	struct object o;
	enum mmap_state state;
	enum mmap_backing backing;
	bool exported, from_export, thread_safe;
	bool writable; /* a task of this process may write to it */
	uint32_t permissions; /* doca_access_flag */
	char *addr; /* as the program uses it: for a map from an export, the exporter's address */
	size_t len;
	char *base; /* address in this process; differs from addr for a udmabuf; NULL: not mapped */
	int dmabuf_fd; /* a duplicate, or -1 */
	size_t mapped; /* bytes of a udmabuf mapped at `window` */
	void *window;
	dg_memory gpu; /* GPU memory of this process; the map owns its fd */
	uint32_t key; /* of a map from an export for RDMA: its rkey, of the NIC with this GID */
	uint8_t gid[16];
	uint32_t n_attached, max_attached;
	struct attachment attached[MMAP_DEVS_MAX];
	struct ibv_mr *mr; /* its key for the NIC of its first device; NULL until one is needed */
	struct doca_mmap *next_keyed; /* in the list of maps with keys */
	atomic_uint bufs; /* buffers in use that point into it */
	union doca_data user_data;
	doca_mmap_memrange_free_cb_t *free_cb;
	void *free_opaque;
	pthread_mutex_t lock; /* guards attachments used by several threads */
	pthread_mutex_t key_lock; /* guards its key; taken last */
};

/* Returns the attachment of a started map for this device, or NULL. */
SOFTDOCA_INTERNAL struct attachment *softdoca_mmap_attachment(const struct doca_mmap *m,
							      const struct doca_dev *dev);
/* mmap_key.c: stores the key, for local use, of a started map for the NIC of its first device: the software
 * NIC, or the adapter. It is in the device's protection domain, with the rights of the map's permissions. It lasts
 * until the map is stopped. Of a map from an export for RDMA: its rkey in the exporter's NIC. Errors:
 * BAD_STATE, NOT_SUPPORTED, DRIVER, NO_MEMORY. */
SOFTDOCA_INTERNAL doca_error_t softdoca_mmap_key(struct doca_mmap *m, uint32_t *key);
/* The same for peers, and the GID of the NIC. */
doca_error_t softdoca_mmap_remote_key(struct doca_mmap *m, uint32_t *key, uint8_t gid[16]);
/* Returns the map with this key, NULL if there is none. A map stays started until it is let go; a
 * thread holds one map at a time. */
SOFTDOCA_INTERNAL struct doca_mmap *softdoca_mmap_hold(uint32_t key);
SOFTDOCA_INTERNAL void softdoca_mmap_let_go(void);
/* dmabuf.c: another copy of dgkit's core finds and calls this function by name: see
 * dg_cuda_share_pins(). */
SOFTDOCA_INTERNAL void *softdoca_share_pins(void *theirs);
/* Returns the map's region in dev->gpu, created if necessary, for a task that copies between host
 * memory and GPU memory. Returns NULL on failure. */
SOFTDOCA_INTERNAL dg_region *softdoca_mmap_for_gpu(struct doca_mmap *m, struct attachment *a);

/* ---- buffers ---- */

struct doca_buf {
	struct object o;
	uint16_t refcount;
	char *head, *data;
	size_t len, data_len;
	struct doca_buf *next; /* in its list */
	struct doca_buf *first; /* of its list; itself if single */
	struct doca_buf *last; /* of its list; valid in the first buffer only */
	uint32_t list_len; /* likewise */
	/* Numbers of submitted tasks that use the buffer, which cannot be returned meanwhile. For a
	 * list they are in its first buffer. in_tasks counts the tasks of `owner`, in_others those
	 * of other engines: see buf_count(). */
	atomic_uint in_tasks, in_others;
	_Atomic(struct doca_pe *) owner; /* NULL until its first task */
	struct doca_mmap *mmap;
	struct doca_buf_inventory *inventory;
	struct doca_buf *next_free;
};

/* Returns whether a submitted task uses the list that begins with b. Acquire: if the result is
 * false, the engine of another thread has finished reading the memory, so the caller may write to
 * it. */
static inline bool buf_in_tasks(const struct doca_buf *b)
{
	return atomic_load_explicit(&b->in_tasks, memory_order_acquire) ||
	       atomic_load_explicit(&b->in_others, memory_order_acquire);
}

struct doca_buf_inventory {
	struct object o;
	bool started;
	bool of_pool; /* its buffers have fixed places: see buf_pool.c */
	size_t n, n_free;
	struct doca_buf *free; /* each an OBJECT_BUF_IDLE */
	struct doca_buf **all;
	union doca_data user_data;
};

/* buf_pool.c: lets the first buffer begin at an offset of the map; before the pool's start. */
struct doca_buf_pool;
SOFTDOCA_INTERNAL void softdoca_buf_pool_begin_at(struct doca_buf_pool *pool, size_t offset);

/* ---- sync events ---- */

struct doca_sync_event_remote_net;
enum remote_event_op { REMOTE_EVENT_GET, REMOTE_EVENT_SET, REMOTE_EVENT_ADD };
/* sync_export.c: SET stores *value, ADD adds it; GET and ADD store in *value what the event had. Errors:
 * CONNECTION_RESET; BAD_STATE in a forked child. */
SOFTDOCA_INTERNAL doca_error_t softdoca_remote_event(struct doca_sync_event_remote_net *event,
						     enum remote_event_op op, uint64_t *value);

/* ---- contexts, tasks, progress engines ---- */

struct ctx_ops {
	/* Returns DOCA_SUCCESS if the context runs, DOCA_ERROR_IN_PROGRESS if progress() completes
	 * the start. */
	doca_error_t (*start)(struct doca_ctx *ctx);
	/* Cancels the tasks that can be cancelled; progress() completes the others. Called once
	 * before IDLE. */
	void (*stop)(struct doca_ctx *ctx);
	/* Returns whether a STOPPING context can become IDLE as soon as its tasks in flight, which
	 * are counted elsewhere, have ended. */
	bool (*quiet)(struct doca_ctx *ctx);
	/* Frees what start() allocated; called last, before the state becomes IDLE. */
	void (*ended)(struct doca_ctx *ctx);
	doca_error_t (*submit)(struct doca_task *task, uint32_t flags);
	/* Delivers at most one event, with at most one callback. Returns whether it delivered
	 * one. */
	bool (*progress)(struct doca_ctx *ctx);
	/* Returns an fd that is readable, once armed, when there is an event to deliver; -1 if
	 * there is none. */
	int (*fileno)(struct doca_ctx *ctx);
	/* Called before the program sleeps. Returns true if there already is an event to deliver.
 */
	bool (*arm)(struct doca_ctx *ctx);
	/* Reverts arm(). */
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
	int fd; /* ops->fileno(), unless it is IDLE */
};

/* Called at the end of a task instead of the program's callback. */
struct task_watch {
	void (*landed)(struct task_watch *watch, doca_error_t status);
};

struct doca_task {
	struct object o; /* within its library's object, aligned to 64 bytes */
	struct doca_ctx *ctx;
	struct task_watch *watch; /* a node of a graph that has submitted it; NULL: none */
	union doca_data user_data;
	doca_error_t status;
	bool in_flight;
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

/* page.c: pages of memory that two processes share, each in a memfd. Create one; *fd is its memfd.
 * Map the one of another process. Both return NULL on failure, new() with errno set. */
SOFTDOCA_INTERNAL void *softdoca_page_new(const char *name, int *fd);
SOFTDOCA_INTERNAL void *softdoca_page_map(int fd);
SOFTDOCA_INTERNAL void softdoca_page_free(void *page);

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
/* comch/endpoint.c: lets messages of a client's or server's open connections stay in their sockets,
 * or reads them again. For a layer whose own queue is full; may be called in a callback. */
SOFTDOCA_INTERNAL void softdoca_comch_hold(struct doca_ctx *ctx, bool hold);
SOFTDOCA_INTERNAL void softdoca_ctx_move(struct doca_ctx *ctx, enum doca_ctx_states next);
/* Handles a fatal error: RUNNING becomes STOPPING, as if the context were stopped. */
SOFTDOCA_INTERNAL void softdoca_ctx_fail(struct doca_ctx *ctx);
/* task.c: assign a task to ctx; mark it as no longer in flight, before its completion callback.
 * Returns whether this is to be called: for a task that a graph has submitted, the graph is told. */
SOFTDOCA_INTERNAL void softdoca_task_init(struct doca_task *task, struct doca_ctx *ctx,
					  union doca_data user_data);
SOFTDOCA_INTERNAL bool softdoca_task_landed(struct doca_task *task, doca_error_t status);
/* Makes a STOPPING context IDLE if it is quiet; called after a callback and after stop(). */
SOFTDOCA_INTERNAL void softdoca_ctx_settle(struct doca_ctx *ctx);

/* Returns the least power of two that is not below n; 0 for 0. */
static inline uint32_t power_of_two(uint32_t n)
{
	return n < 2 ? n : 1u << (32 - __builtin_clz(n - 1));
}

#endif
