/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files about memory: maps, their memory, buffers. */
#ifndef SOFTDOCA_MEMORY_H
#define SOFTDOCA_MEMORY_H

#include "softdoca.h"

/* The first checks of a public function, like CHECK_OBJECT. */
#define CHECK_MMAP(m)      CHECK_OBJECT(m, OBJECT_MMAP, "a memory map")
#define CHECK_DEV(d)       CHECK_OBJECT(d, OBJECT_DEV, "an open device")
#define CHECK_BUF(b)       CHECK_OBJECT(b, OBJECT_BUF, "a buffer in use")
#define CHECK_INVENTORY(i) CHECK_OBJECT(i, OBJECT_INVENTORY, "a buffer inventory")

/* How long closing a region waits for transfers in flight. */
#define MMAP_CLOSE_NS ((uint64_t)2000000000)

/* One thread sets the state; others, which take buffers, read it. Release and acquire make the
 * results of start() visible together with the state. */
static inline bool mmap_started(const struct doca_mmap *m)
{
	return __atomic_load_n(&m->state, __ATOMIC_ACQUIRE) == MMAP_STARTED;
}

/* Returns whether [at, at + n) is within [from, from + len), without wrap-around. */
static inline bool range_within(const void *at, size_t n, const void *from, size_t len)
{
	uintptr_t skip = (uintptr_t)at - (uintptr_t)from;
	return skip <= len && n <= len - skip;
}

/* mmap.c: lock and unlock the map; do nothing unless doca_mmap_enable_thread_safety() was
 * called. */
void mmap_lock(struct doca_mmap *m);
void mmap_unlock(struct doca_mmap *m);
/* Returns an empty map, or NULL. */
struct doca_mmap *mmap_new(void);
/* Closes the map's regions. Errors: NOT_PERMITTED if a transfer is in flight. */
doca_error_t mmap_detach(struct doca_mmap *m, const char *func);
/* Returns the dg_access of permissions. */
uint32_t mmap_access(uint32_t permissions);
/* Returns DOCA_SUCCESS if the range can be set now. */
doca_error_t mmap_may_take_range(const struct doca_mmap *m, const char *func);
/* dmabuf.c: looks the map's range up as GPU memory (BACKING_GPU). Returns a negative errno, with
 * dg_last_error(), for other memory. */
int dmabuf_find_gpu(struct doca_mmap *m);
/* Releases the resources of set_dmabuf_memrange() and dmabuf_find_gpu(). */
void dmabuf_drop(struct doca_mmap *m);

/* mmap_key.c: closes the key, if there is one. What is posted with it later fails. */
void mmap_key_drop(struct doca_mmap *m);

/* adapter.c: the same for the key of an adapter. make: registers the map's memory, with flags of
 * ibv_reg_mr(). gid: stores the GID of the adapter's port. */
doca_error_t adapter_key_make(struct doca_mmap *m, unsigned flags);
void adapter_key_drop(struct doca_mmap *m);
doca_error_t adapter_gid(struct doca_dev *dev, uint8_t gid[16]);

/* mmap_export.c: converts a failure of dgkit to one of the errors that DOCA Mmap lists for exports and
 * imports. */
doca_error_t export_failed(int rc, const char *func);

/* range.c */
enum range_found {
	RANGE_MISSING, /* not completely mapped */
	RANGE_CLOSED, /* mapped, but not readable, or not writable although `write` is set */
	RANGE_OK,
};
enum range_found range_look(const void *addr, size_t len, bool write);

/* buf.c: returns the list b to its inventories. */
void buf_give_back(struct doca_buf *b);
/* inventory.c: returns a single buffer with one reference; NULL if none is free. */
struct doca_buf *inventory_take(struct doca_buf_inventory *inv);
/* Initializes a buffer that was taken. */
struct doca_buf *inventory_fill(struct doca_buf *b, struct doca_mmap *m, char *head, size_t len,
				char *data, size_t data_len);

#endif
