/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softdoca inside: the objects behind the handles, and what its files do for each other.
 *
 *   dev.c      devices and representors, as described (devices.c); a device holds dgkit's own engine
 *   mmap.c     memory maps; export.c their export descriptors; dmabuf.c memory behind a dma-buf
 *   buf.c      buffers and lists of them; inventory.c where they come from
 *   ctx.c      the states of contexts; pe.c progress and notification; task.c
 *   engine.c   a task's bytes through dgkit's provider
 *   ../dma     DMA contexts; ../comch channels; ../argp command lines
 *
 * Errors: a doca_error_t and nothing else; why stands in the log (softdoca_log, level WARNING).
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
#include "object.h"

/* Limits. As a BlueField reports them where facts are known (MEMCPY_MAX: 2 MiB), else chosen. */
#define MEMCPY_MAX      ((uint64_t)2 << 20)
#define LIST_MAX        64u /* buffers of one list in a memcpy task */
#define TASKS_MAX       65536u /* of one context */
#define MMAP_DEVS_MAX   8u
#define EXPORT_DESC_MAX 512u

/* log.c. The library's own records; level is a doca_log_level. */
SOFTDOCA_INTERNAL void softdoca_log(uint32_t level, const char *func, const char *format, ...)
	__attribute__((format(printf, 3, 4), cold));
/* The last sentence of this thread at WARNING or worse, for bindings that raise it; "": none so far. */
SOFTDOCA_INTERNAL const char *softdoca_last_refusal(void);
/* Logs why (WARNING) and gives the error: return REFUSE(DOCA_ERROR_BAD_STATE, "the context runs"); */
#define REFUSE(error, ...) (softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__, __VA_ARGS__), (error))
/* For what softdoca's own variables say, which no program knows of: heard on stderr by itself. */
#define MISCONFIGURED(...) \
	(softdoca_log(DOCA_LOG_LEVEL_CRIT, __func__, __VA_ARGS__), DOCA_ERROR_BAD_CONFIG)
/* The first checks of a public function: they return from it. DOCA's documentation gives INVALID_VALUE
 * for invalid input in general. */
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
/* The limit of the program's own records, and that of every SDK backend. False: no such level. */
SOFTDOCA_INTERNAL bool softdoca_log_limit(uint32_t level);
SOFTDOCA_INTERNAL bool softdoca_log_sdk_limit(uint32_t level);
/* error.c. The doca_error_t that stands for a negative result of dgkit.h, logged with its sentence. */
SOFTDOCA_INTERNAL doca_error_t softdoca_failed(const char *func, int rc) __attribute__((cold));
/* runtime.c. The path, in dgkit's folder of sockets, that stands for a Comch server's name on the function
 * of this vuid. OPERATING_SYSTEM and others: no such folder, or a path longer than cap. */
SOFTDOCA_INTERNAL doca_error_t softdoca_runtime_path(const char *name, const char *function,
						     const char *ending, char *out, size_t cap);

/* ---- devices: devices.c reads what there is, dev.c hands it out ---- */

enum softdoca_side { SIDE_HOST = 1, SIDE_DPU = 2, SIDE_BOTH = 3 };
enum softdoca_cap {
	CAP_DMA = 1,
	CAP_EXPORT_PCI = 2,
	CAP_FROM_EXPORT_PCI = 4,
	CAP_COMCH_CLIENT = 8,
	CAP_COMCH_SERVER = 16,
};

/* What is known of a function; of a representor, too. */
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
	struct function f; /* of the function on the host that it stands for */
	struct doca_dev *dev;
};

struct doca_dev {
	struct object o;
	uint32_t opened; /* doca_dev_open of an open device gives the same one */
	int pid; /* opened by: a fork's child opens its own */
	_Alignas(64) struct doca_devinfo info;
	dg_device *engine; /* provider soft, or fault over it */
	dg_device *gpu; /* provider cuda, opened at the first GPU memory; NULL: none so far */
	atomic_uint users; /* maps and contexts that are still there: closing gives IN_USE */
	struct doca_dev *next;
};

struct doca_dev_rep {
	struct object o;
	struct doca_dev *dev;
	struct function f;
};

/* dev.c: dev->gpu, opened if need be: then the GPU of this UUID, or with NULL the first. NULL: there is no
 * GPU here; logged. */
SOFTDOCA_INTERNAL dg_device *softdoca_dev_gpu(struct doca_dev *dev, const uint8_t *uuid);

/* ---- memory maps ---- */

enum mmap_state { MMAP_NEW, MMAP_STARTED, MMAP_STOPPED };
enum mmap_backing {
	BACKING_NONE,
	BACKING_HOST, /* set_memrange; a udmabuf, too */
	BACKING_GPU, /* the bytes move by dgkit's CUDA import: dma-buf identity only */
};

enum export_kind { EXPORT_PCI, EXPORT_RDMA, EXPORT_KINDS };

/* A map as one device sees it: registered with that device's engine, or imported into it. */
struct attachment {
	struct doca_dev *dev;
	dg_region *host; /* in dev->engine; NULL for GPU memory */
	dg_region *gpu; /* in dev->gpu: GPU memory, or host memory that met GPU memory */
	/* Its export descriptors by kind, made once; of an import [0], what it was imported by. */
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
	char *addr; /* as programs say it: in a map from an export, the exporter's own address */
	size_t len;
	char *base; /* where the bytes lie here; of a udmabuf another place than addr. NULL: elsewhere */
	int dmabuf_fd; /* our own duplicate, or -1 */
	size_t mapped; /* bytes of a udmabuf that lie at `window` */
	void *window;
	dg_memory gpu; /* GPU memory of this process; its fd is ours */
	uint32_t n_attached, max_attached;
	struct attachment attached[MMAP_DEVS_MAX];
	atomic_uint bufs; /* buffers that were taken over it and not given back */
	union doca_data user_data;
	doca_mmap_memrange_free_cb_t *free_cb;
	void *free_opaque;
	pthread_mutex_t lock; /* attachments, where two threads meet */
};

/* The attachment of a started map for this device, or NULL. */
SOFTDOCA_INTERNAL struct attachment *softdoca_mmap_attachment(const struct doca_mmap *m,
							      const struct doca_dev *dev);
/* dmabuf.c: for dgkit's core outside of softdoca, which calls it by name: see dg_cuda_share_pins(). */
SOFTDOCA_INTERNAL void *softdoca_share_pins(void *theirs);
/* Its region in dev->gpu, made if need be: a task joins host memory and GPU memory. NULL: it cannot be. */
SOFTDOCA_INTERNAL dg_region *softdoca_mmap_for_gpu(struct doca_mmap *m, struct attachment *a);

/* ---- buffers ---- */

struct doca_buf {
	struct object o;
	uint16_t refcount;
	char *head, *data;
	size_t len, data_len;
	struct doca_buf *next; /* in its list */
	struct doca_buf *first; /* of its list; itself when alone */
	struct doca_buf *last; /* of its list; kept up to date in the first only */
	uint32_t list_len; /* likewise */
	/* Submitted and not complete: its data must not be given back. Of a list, in its first. See
	 * buf_count(); in_tasks counts the tasks of `owner`, in_others those of other engines. */
	atomic_uint in_tasks, in_others;
	_Atomic(struct doca_pe *) owner; /* NULL from when it is taken until its first task */
	struct doca_mmap *mmap;
	struct doca_buf_inventory *inventory;
	struct doca_buf *next_free;
};

/* Whether a submitted task uses the list that begins with b. Acquire: whose answer is no may write to the
 * memory, and the engine of another thread has read it by then. */
static inline bool buf_in_tasks(const struct doca_buf *b)
{
	return atomic_load_explicit(&b->in_tasks, memory_order_acquire) ||
	       atomic_load_explicit(&b->in_others, memory_order_acquire);
}

struct doca_buf_inventory {
	struct object o;
	bool started;
	size_t n, n_free;
	struct doca_buf *free; /* each an OBJECT_BUF_IDLE */
	struct doca_buf **all;
	union doca_data user_data;
};

/* ---- contexts, tasks, progress engines ---- */

struct ctx_ops {
	/* DOCA_SUCCESS: it runs. DOCA_ERROR_IN_PROGRESS: it starts, and progress() makes it run. */
	doca_error_t (*start)(struct doca_ctx *ctx);
	/* Gives up what can be; progress() ends the rest. Called once on the way to IDLE. */
	void (*stop)(struct doca_ctx *ctx);
	/* Whether nothing is left that keeps it STOPPING (tasks in flight are counted apart). */
	bool (*quiet)(struct doca_ctx *ctx);
	/* After the last: the state is IDLE in a moment. Frees what start() made. */
	void (*ended)(struct doca_ctx *ctx);
	doca_error_t (*submit)(struct doca_task *task, uint32_t flags);
	/* Delivers at most one event: calls at most one callback of the program. Whether it did. */
	bool (*progress)(struct doca_ctx *ctx);
	/* Readable when something is to be delivered, once armed. -1: none. */
	int (*fileno)(struct doca_ctx *ctx);
	/* Before the program sleeps: true if something is to be delivered already. */
	bool (*arm)(struct doca_ctx *ctx);
	/* Takes the wake-up back. */
	void (*disarm)(struct doca_ctx *ctx);
	void (*free_task)(struct doca_task *task);
	/* What was submitted without DOCA_TASK_SUBMIT_FLAG_FLUSH may go now. NULL: it goes at once. */
	void (*flush)(struct doca_ctx *ctx);
};
/* In submit's flags: doca_task_try_submit, which refuses what could only fail. */
#define SUBMIT_CHECKED 0x80000000u

struct doca_ctx {
	struct object o; /* within its library's object, on a boundary of 64 bytes */
	const struct ctx_ops *ops;
	enum doca_ctx_states state;
	struct doca_dev *dev;
	struct doca_pe *pe;
	struct doca_ctx *next; /* of the engine: a ring */
	union doca_data user_data;
	doca_ctx_state_changed_callback_t state_cb;
	size_t in_flight; /* submitted, and not yet given to a callback */
	size_t tasks; /* allocated and not freed: it is STOPPING until there are none */
	bool stopping_asked; /* ops->stop was called */
	bool busy; /* a callback of it runs, or its progress does: its memory has to stay */
	void (*release)(void *object); /* destroyed while busy: frees `object` afterwards */
	void *object;
	int fd; /* ops->fileno(), while it is not IDLE */
};

struct doca_task {
	struct object o; /* within its library's object, on a boundary of 64 bytes */
	struct doca_ctx *ctx;
	union doca_data user_data;
	doca_error_t status;
	bool in_flight;
};

struct doca_pe {
	struct object o;
	struct doca_ctx *first; /* round robin: where the next progress begins */
	uint32_t n;
	int epoll_fd, event_fd; /* epoll_fd is the notification handle; event_fd says "at once" */
	enum doca_pe_event_mode mode;
	_Atomic(uintptr_t) thread; /* inside: 0, or who. A second thread is turned away. */
	bool armed; /* the program waits for the notification handle, which says nothing yet */
	uint32_t fork_generation; /* when it was made: see pe_forked() */
};

/* pe.c. One thread is inside an engine, its contexts and their tasks: PE_BUSY turns another away. A
 * callback is inside already. Nobody is kept out of what has no engine (NULL). */
enum pe_entry { PE_ENTERED, PE_NESTED, PE_BUSY };
SOFTDOCA_INTERNAL enum pe_entry softdoca_pe_enter(struct doca_pe *pe);
SOFTDOCA_INTERNAL void softdoca_pe_leave(struct doca_pe *pe, enum pe_entry how);
/* There is something to deliver: wakes the program, if it waits. */
SOFTDOCA_INTERNAL void softdoca_pe_kick(struct doca_pe *pe);

/* What a stopped context does to tasks that it did not finish. */
#define FLUSHED DOCA_ERROR_IO_FAILED /* guess */

/* ctx.c, for libraries: fill in a context, or destroy it. Destroying needs the state IDLE, else the result is
 * `started`. release(object) frees the library's object: at once, or after the callback that destroys it; from
 * now on its handle is void. */
SOFTDOCA_INTERNAL doca_error_t softdoca_ctx_init(struct doca_ctx *ctx, struct doca_dev *dev,
						 const struct ctx_ops *ops);
SOFTDOCA_INTERNAL doca_error_t softdoca_ctx_destroy(struct doca_ctx *ctx, doca_error_t started,
						    void (*release)(void *object), void *object);
/* Moves the state on, and tells the program. */
SOFTDOCA_INTERNAL void softdoca_ctx_move(struct doca_ctx *ctx, enum doca_ctx_states next);
/* A fatal error: RUNNING becomes STOPPING, as if stop had been called. */
SOFTDOCA_INTERNAL void softdoca_ctx_fail(struct doca_ctx *ctx);
/* task.c: a task belongs to ctx; before a completion callback: it is no longer in flight. */
SOFTDOCA_INTERNAL void softdoca_task_init(struct doca_task *task, struct doca_ctx *ctx,
					  union doca_data user_data);
SOFTDOCA_INTERNAL void softdoca_task_landed(struct doca_task *task, doca_error_t status);
/* After a callback, or after stop(): STOPPING and quiet becomes IDLE. */
SOFTDOCA_INTERNAL void softdoca_ctx_settle(struct doca_ctx *ctx);

#endif
