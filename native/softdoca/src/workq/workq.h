/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libdoca_workq: the API of DOCA 1.3 to 2.2 (include/workq) as a layer over the current one.
 *
 *   workq_mmap.c    maps of several ranges: each range is a current map
 *   workq_export.c  their descriptors, which were texts of JSON
 *   workq.c         work queues and their jobs
 *   workq_dma.c     contexts: each work queue of a context is a current DMA context on the queue's
 *                   progress engine
 *   workq_names.c   functions that only have another name now
 *
 * Where both APIs have a function of one name, this library defines it as wq_X and exports it as
 * doca_X at the node DOCA_1, which programs get that are linked with this library. The current one
 * is doca_X in the files here, which its library also exports as softdoca_current_X: a linker does
 * not tell two functions of one name apart by their nodes in one link.
 *
 * Sources: "Mmap 1.5", "Ctx 1.5" and so on are the comments of DOCA 1.5's headers; "guess" marks an
 * assumption that no published source confirms.
 */
#ifndef SOFTDOCA_WORKQ_H
#define SOFTDOCA_WORKQ_H

/* CMakeLists.txt has the same list. */
#define doca_mmap_create	     softdoca_current_mmap_create
#define doca_mmap_create_from_export softdoca_current_mmap_create_from_export
#define doca_mmap_destroy	     softdoca_current_mmap_destroy
#define doca_mmap_start		     softdoca_current_mmap_start
#define doca_mmap_set_memrange	     softdoca_current_mmap_set_memrange
#define doca_mmap_set_permissions    softdoca_current_mmap_set_permissions
#define doca_mmap_get_memrange	     softdoca_current_mmap_get_memrange
#define doca_mmap_get_num_bufs	     softdoca_current_mmap_get_num_bufs
#define doca_buf_inventory_create    softdoca_current_buf_inventory_create
#define doca_ctx_start		     softdoca_current_ctx_start
#define doca_ctx_stop		     softdoca_current_ctx_stop
#define doca_dma_create		     softdoca_current_dma_create
#define doca_dma_destroy	     softdoca_current_dma_destroy
#define doca_dma_as_ctx		     softdoca_current_dma_as_ctx

#include "doca_dma.h"
#include "memory/memory.h"
#include "progress/progress.h"

/* Defines a function that has another name in the current API. */
#define RENAMED(type, function, parameters, current) \
	DOCA_STABLE type function parameters         \
	{                                            \
		return current;                      \
	}
/* Exports wq_NAME as doca_NAME. */
#define EXPORT(name) __asm__(".symver wq_" #name ", doca_" #name "@@DOCA_1")

/* ---- maps ---- */

struct chunk {
	struct doca_mmap *map; /* NULL unless the map is started */
	char *addr;
	size_t len;
	bool exportable; /* by default: see doca_mmap_set_permissions() */
	doca_mmap_memrange_free_cb_t *free_cb;
	void *opaque;
	struct chunk *next;
};

struct wq_mmap {
	struct object o;
	bool started, ever_started, exported, from_export;
	bool permissions_set;
	uint32_t permissions;
	uint32_t n_devs, max_devs, n_chunks, max_chunks;
	struct doca_dev *devs[MMAP_DEVS_MAX];
	struct chunk *chunks, *last;
	union doca_data user_data;
	void *export_desc; /* of doca_mmap_export_dpu() */
};

#define CHECK_WQ_MMAP(m) CHECK_OBJECT(m, OBJECT_WORKQ_MMAP, "a memory map")

/* workq_mmap.c: returns a new map; NULL if out of memory. */
struct wq_mmap *wq_mmap_new(void);
/* Adds a range, without opening it. Errors: NO_MEMORY. */
doca_error_t wq_mmap_add(struct wq_mmap *m, void *addr, size_t len, bool exportable);
doca_error_t wq_mmap_destroy(struct wq_mmap *mmap);

/* ---- contexts and work queues ---- */

struct wq_workq {
	struct object o;
	struct doca_pe *pe;
	uint32_t depth, in_flight, contexts;
	bool event_driven;
	bool ready; /* `event` was not retrieved */
	doca_error_t error; /* of `event` */
	struct wq_event {
		int type;
		union doca_data user_data, result;
	} event;
};

/* Returns how many jobs a queue takes. The least is a guess: programs that were published with figures
 * of a BlueField-2 submit 1,024 jobs to a queue of depth 32. */
static inline uint32_t workq_jobs(const struct wq_workq *w)
{
	const uint32_t least = 1024;
	return w->depth < least ? least : w->depth;
}

/* A job in flight. */
struct job {
	struct doca_dma_task_memcpy *task; /* NULL unless allocated */
	struct binding *binding;
	int type;
	union doca_data user_data;
	struct job *next_free;
};

/* A work queue of a context. */
struct binding {
	struct wq_dma *dma;
	struct wq_workq *workq;
	struct doca_dma *engine;
	struct job *jobs, *free; /* workq_jobs() of the work queue */
	uint32_t n, in_flight;
	struct binding *next;
};

struct wq_dma {
	struct object o;
	struct doca_dev *dev; /* NULL: none */
	bool started;
	struct binding *bindings;
};

#define CHECK_WORKQ(w) CHECK_OBJECT(w, OBJECT_WORKQ, "a work queue")
#define CHECK_CTX(c)   CHECK_OBJECT(c, OBJECT_WORKQ_DMA, "a DMA context")

/* workq_dma.c: returns a binding whose context runs, although a failed job may have stopped it. Errors:
 * BAD_STATE while other jobs of a stopped context are in flight. */
doca_error_t wq_binding_run(struct binding *b);

#endif
