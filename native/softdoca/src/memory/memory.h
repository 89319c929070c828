/* SPDX-License-Identifier: Apache-2.0 */
/* Memory maps, their keys and exports; buffers and their inventories. */
#ifndef SOFTDOCA_MEMORY_H
#define SOFTDOCA_MEMORY_H

#include <sched.h>

#include "device/device.h"
#include "doca_buf.h"
#include "doca_buf_inventory.h"
#include "doca_mmap.h"

/* Limits: those of a BlueField where known (MEMCPY_MAX: 2 MiB), otherwise arbitrary. */
#define MEMCPY_MAX      ((uint64_t)2 << 20)
#define LIST_MAX        64u /* buffers of one list in a task */
#define MMAP_DEVS_MAX   8u
#define EXPORT_DESC_MAX 512u

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
	struct doca_mmap *next_keyed; /* in the list of maps with keys for local use */
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
	atomic_bool locked; /* of the free buffers, and of adding some */
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

/* ---- the files of this folder ---- */

/* The first checks of a public function, like CHECK_OBJECT. */
#define CHECK_MMAP(m)      CHECK_OBJECT(m, OBJECT_MMAP, "a memory map")
#define CHECK_DEV(d)       CHECK_OBJECT(d, OBJECT_DEV, "an open device")
#define CHECK_BUF(b)       CHECK_OBJECT(b, OBJECT_BUF, "a buffer in use")
#define CHECK_INVENTORY(i) CHECK_OBJECT(i, OBJECT_INVENTORY, "a buffer inventory")

/* One thread sets the state; others, which take buffers, read it. Release and acquire make the
 * results of start() visible together with the state. */
static inline bool mmap_started(const struct doca_mmap *m)
{
	return __atomic_load_n(&m->state, __ATOMIC_ACQUIRE) == MMAP_STARTED;
}

/* mmap_export.c: returns the permissions that peers over RDMA have. */
uint32_t mmap_rdma_permissions(const struct doca_mmap *m);
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

/* adapter_key.c: the same for the key of an adapter. make: registers the map's memory, with flags of
 * ibv_reg_mr(). gid: stores the GID of the adapter's port. */
doca_error_t adapter_key_make(struct doca_mmap *m, unsigned flags);
void adapter_key_drop(struct doca_mmap *m);
doca_error_t adapter_gid(struct doca_dev *dev, uint8_t gid[16]);

/* mkey.c: keys of maps for frames. Both functions are thread-safe. */
/* Copies memory that a key covers. Returns whether it covers it. */
bool mkey_copy(uint32_t key, uint64_t addr, uint32_t size, void *to);
/* Stores the key of a map of any memory that the CPU accesses, for entries of the CPU. Errors: as
 * doca_mmap_get_mkey(). */
SOFTDOCA_INTERNAL doca_error_t softdoca_mmap_frame_key(struct doca_mmap *m, const struct doca_dev *dev,
						       uint32_t *key);

/* mmap_export.c: converts a failure of dgkit to one of the errors that DOCA Mmap lists for exports and
 * imports. */
doca_error_t export_failed(int rc, const char *func);

/* buf.c: returns the list b to its inventories. */
void buf_give_back(struct doca_buf *b);
/* inventory.c: returns a single buffer with one reference; NULL if none is free. */
struct doca_buf *inventory_take(struct doca_buf_inventory *inv);

static inline void inventory_lock(struct doca_buf_inventory *inv)
{
	while (atomic_exchange_explicit(&inv->locked, true, memory_order_acquire))
		sched_yield();
}

static inline void inventory_unlock(struct doca_buf_inventory *inv)
{
	atomic_store_explicit(&inv->locked, false, memory_order_release);
}
/* Initializes a buffer that was taken. */
struct doca_buf *inventory_fill(struct doca_buf *b, struct doca_mmap *m, char *head, size_t len,
				char *data, size_t data_len);

#endif
