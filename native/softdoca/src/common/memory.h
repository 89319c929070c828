/* SPDX-License-Identifier: Apache-2.0 */
/* What the files about memory share: maps, what lies behind them, buffers. */
#ifndef SOFTDOCA_MEMORY_H
#define SOFTDOCA_MEMORY_H

#include "softdoca.h"

/* The first checks of a public function, as CHECK_OBJECT. */
#define CHECK_MMAP(m)      CHECK_OBJECT(m, OBJECT_MMAP, "a memory map")
#define CHECK_DEV(d)       CHECK_OBJECT(d, OBJECT_DEV, "an open device")
#define CHECK_BUF(b)       CHECK_OBJECT(b, OBJECT_BUF, "a buffer in use")
#define CHECK_INVENTORY(i) CHECK_OBJECT(i, OBJECT_INVENTORY, "a buffer inventory")

/* How long a region's end waits for transfers in flight. */
#define MMAP_CLOSE_NS ((uint64_t)2000000000)

/* The state is set by one thread and looked at by others that take buffers: release and acquire make
 * what start() did visible with it. */
static inline bool mmap_started(const struct doca_mmap *m)
{
	return __atomic_load_n(&m->state, __ATOMIC_ACQUIRE) == MMAP_STARTED;
}

/* Whether [at, at + n) lies in [from, from + len), without wrapping. */
static inline bool range_within(const void *at, size_t n, const void *from, size_t len)
{
	uintptr_t skip = (uintptr_t)at - (uintptr_t)from;
	return skip <= len && n <= len - skip;
}

/* mmap.c: no more than nothing without doca_mmap_enable_thread_safety(). */
void mmap_lock(struct doca_mmap *m);
void mmap_unlock(struct doca_mmap *m);
/* A map with nothing in it, or NULL. */
struct doca_mmap *mmap_new(void);
/* Ends what the map holds, but not the map. NOT_PERMITTED: a transfer is still in flight. */
doca_error_t mmap_detach(struct doca_mmap *m, const char *func);
/* The dg_access that permissions stand for. */
uint32_t mmap_access(uint32_t permissions);
/* Whether its range may be set now. */
doca_error_t mmap_may_take_range(const struct doca_mmap *m, const char *func);
/* dmabuf.c: the map's range as memory of a GPU, BACKING_GPU. Negative: it is none; dg_last_error(). */
int dmabuf_find_gpu(struct doca_mmap *m);
/* Gives back what set_dmabuf_memrange() and dmabuf_find_gpu() took. */
void dmabuf_drop(struct doca_mmap *m);

/* range.c */
enum range_found {
	RANGE_MISSING, /* not mapped, or not all of it */
	RANGE_CLOSED, /* mapped, and may not be read, or not be written though `write` is set */
	RANGE_OK,
};
enum range_found range_look(const void *addr, size_t len, bool write);

/* buf.c: back to the inventory; `b` is a whole list. */
void buf_give_back(struct doca_buf *b);
/* inventory.c: a buffer of one reference, alone; NULL: none is free. */
struct doca_buf *inventory_take(struct doca_buf_inventory *inv);

#endif
