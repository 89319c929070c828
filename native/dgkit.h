/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dgkit: move bytes between this process and memory that another process owns.
 *
 * This is the only public header. It deals in addresses, lengths and file descriptors, and knows
 * neither Python nor Jupyter. native/README.md explains the concepts and has a complete example.
 *
 * Control calls return 0, a count or a negative errno; dg_last_error() and dg_last_reason() of the
 * calling thread then have the details. The result of a transfer is dg_wc.status. The two kinds of
 * result never mix.
 *
 * READ and WRITE are named from the side of the DPU, which moves the bytes: DG_READ copies from the
 * remote region into the local region, DG_WRITE from the local region into the remote region. Sizes
 * are bytes. Times are nanoseconds of CLOCK_MONOTONIC on the side that owns the queue.
 *
 * Threads: any thread may call any function, but one thread at a time may be inside a queue (a
 * second one gets -EALREADY), and no handle may be used after the call that freed it. The child of
 * a fork() can only close what its parent opened: opening, posting, waiting and exporting with it
 * returns -EOWNERDEAD.
 *
 * errno values of control calls:
 *   EINVAL invalid argument           ERANGE out of bounds
 *   EACCES forbidden by access flags  EAGAIN queue full
 *   EBUSY  transfers still in flight  EALREADY another thread is inside the queue
 *   ENODEV provider not available     EOPNOTSUPP not supported by the provider
 *   ESTALE used after close           EOWNERDEAD opened before fork()
 *   EBADMSG not a valid descriptor    EPROTONOSUPPORT version of a descriptor or peer not supported
 *   EXDEV  memory of another machine  ENOKEY region not registered with the exporter
 *   ENOTCONN exporter gone            ETIMEDOUT no answer from the exporter
 *   EPERM  refused by the exporter    EMEDIUMTYPE memory that could raise SIGBUS in its users (not
 *          sealed, or shorter than claimed), or that the provider's hardware cannot access
 *   EINTR  interrupted by a signal    ENOMEM, EMFILE, ENFILE, ENOSPC limits of the system
 */
#ifndef DGKIT_H
#define DGKIT_H

#include <stddef.h>
#include <stdint.h>

#define DG_VERSION 1
/* Bytes of a descriptor; share/descriptor.c and dgkit/wire/messages.py refuse more. */
#define DG_DESCRIPTOR_MAX 768
#define DG_DEPTH_MAX 65536
#define DG_TICKET 4096

/* cdef: begin. build_ffi.py passes everything from here to the end mark to cffi. */

typedef struct dg_device dg_device;
typedef struct dg_region dg_region;
typedef struct dg_queue dg_queue;
typedef struct dg_prep dg_prep;
typedef struct dg_qp dg_qp;
typedef struct dg_proxy dg_proxy;
typedef struct dg_ring dg_ring;
typedef struct dg_mover dg_mover;

enum dg_opcode { DG_READ = 0, DG_WRITE = 1, DG_FETCH_ADD = 2, DG_COMPARE_SWAP = 3 };
enum dg_wr_flag { DG_FENCE = 1, DG_CHAIN = 2 };
enum dg_access { DG_ACCESS_READ = 1, DG_ACCESS_WRITE = 2 };
enum dg_path { DG_PATH_AUTO = 0, DG_PATH_INLINE = 1, DG_PATH_WORKER = 2 };
enum dg_wc_flag { DG_SHARED_STAMP = 1, DG_LATE_STAMP = 2, DG_BY_KERNEL = 4 };
/* OK: each byte was moved into or out of the memory of the region. The process that exported it may
 * have died meanwhile: the import keeps memory that is mapped or on a GPU alive, so operations
 * posted before PEER_LOST is noticed may end as OK. IO_FAILED: the provider's hardware, library or
 * system calls failed. */
enum dg_status {
	DG_OK = 0,
	DG_LOCAL_ERROR = 1,
	DG_REMOTE_ACCESS_ERROR = 2,
	DG_PEER_LOST = 3,
	DG_TIMED_OUT = 4,
	DG_FLUSHED = 5,
	DG_IO_FAILED = 6,
	/* Of operations that a GPU's kernel posted, which are checked when they are taken. */
	DG_OUT_OF_BOUNDS = 7,
	DG_ACCESS_DENIED = 8,
	DG_BAD_RECORD = 9,
	DG_CLOSED = 10,
	DG_HOLE = 11,
	DG_UNSUPPORTED = 12,
	DG_QUEUE_FULL = 13
};
/* READONLY: cannot be written. SHARE_PROCESS: importers may access this process with ptrace, so
 * that they can copy the memory themselves. MAY_FAULT: see dg_memory_may_fault(). ON_DEMAND: an
 * RDMA adapter pages the memory instead of pinning it. */
enum dg_memory_flag {
	DG_MEMORY_READONLY = 1,
	DG_MEMORY_SHARE_PROCESS = 2,
	DG_MEMORY_MAY_FAULT = 4,
	DG_MEMORY_ON_DEMAND = 8
};
/* How a region's memory was registered with an RDMA adapter.
 *   NONE       not at all: other providers
 *   PINNED     host memory, pinned
 *   ON_DEMAND  host memory, not pinned: the adapter faults its pages in
 *   DMABUF     GPU memory, as a dma-buf
 *   PEERMEM    GPU memory, by its address, which nvidia-peermem resolves */
enum dg_registration {
	DG_REGISTRATION_NONE = 0,
	DG_REGISTRATION_PINNED = 1,
	DG_REGISTRATION_ON_DEMAND = 2,
	DG_REGISTRATION_DMABUF = 3,
	DG_REGISTRATION_PEERMEM = 4
};
/* How a region's bytes are reached.
 *   MAP          mapped into this process, or its own memory
 *   VM           process_vm_readv/writev into the exporter's memory
 *   PROXY        copied by the exporter on request, through a bounce buffer
 *   GPU          by the GPU's copy engine
 *   EXPORT_ONLY  not at all: memory of another GPU than the device's, which can only be exported
 *   DOCA         through a DOCA memory map
 *   RDMA         by RDMA, on a connection that the device makes
 *   BAR          mapped into this process, of another machine: a PCI BAR, under an emulator only
 *   QP           by RDMA, on a queue pair that was connected by hand (dg_qp_import()) */
enum dg_method {
	DG_METHOD_MAP = 0,
	DG_METHOD_VM = 1,
	DG_METHOD_PROXY = 2,
	DG_METHOD_GPU = 3,
	DG_METHOD_EXPORT_ONLY = 4,
	DG_METHOD_DOCA = 5,
	DG_METHOD_RDMA = 6,
	DG_METHOD_BAR = 7,
	DG_METHOD_QP = 8
};
enum dg_memory_kind {
	DG_KIND_HOST = 0,
	DG_KIND_CUDA_VMM = 1,
	DG_KIND_CUDA_IPC = 2,
	DG_KIND_CUDA_OWN = 3,
	DG_KIND_BAR = 4
};

/* A work request (one record of a batch), 64 bytes. With rows <= 1 it is one run of `size` bytes;
 * otherwise `rows` rows of `size` bytes each, local_stride and remote_stride bytes apart. DG_CHAIN
 * links a request to the next one: a chain is one operation with one completion, which carries the
 * `user` of its last request. DG_FENCE: do not start before everything posted earlier is complete.
 * `local` is a registered region, or imported GPU memory. Where source and destination overlap, the
 * result is undefined.
 *
 * DG_FETCH_ADD and DG_COMPARE_SWAP (atomic operations, where dg_caps.atomics is not 0) work on one
 * word of 8 bytes at remote_offset, whose address in the exporter must be a multiple of 8. They
 * write its old value to the 8 bytes at local_offset, in the byte order of the host. `size` must be
 * 8 and `rows` at most 1. DG_FETCH_ADD adds local_stride, modulo 2^64. DG_COMPARE_SWAP stores
 * remote_stride if the word equals local_stride. Both need a remote region with read and write
 * access and a local one with write access. If the operation failed while it ran (DG_LOCAL_ERROR,
 * DG_PEER_LOST, DG_TIMED_OUT, DG_IO_FAILED), the word may have been changed. */
typedef struct dg_wr {
	uint64_t user;
	uint32_t local, remote;
	uint64_t local_offset, remote_offset;
	uint64_t size;
	uint64_t local_stride, remote_stride;
	uint32_t rows;
	uint8_t op, flags;
	uint16_t reserved;
} dg_wr;

/* A work completion, 48 bytes. size is the number of bytes moved (all rows, all requests of a
 * chain), and 0 unless status is DG_OK. path says who copied (enum dg_path). DG_SHARED_STAMP: one
 * of the time stamps was taken once for several operations of a batch. DG_LATE_STAMP: complete_ns
 * is when the queue was next polled; the bytes had arrived before. DG_BY_KERNEL: a kernel on the
 * GPU copied, not its copy engine. */
typedef struct dg_wc {
	uint64_t user;
	uint64_t size;
	uint64_t submit_ns, post_ns, complete_ns;
	int32_t status;
	uint8_t op, path, flags, reserved;
} dg_wc;

/* Memory to register: `size` bytes at `addr`. If fd >= 0, the same bytes start at fd_offset of that
 * sealed memfd, which importers map; otherwise importers reach them through this process.
 *
 * On a GPU, `addr` is a device pointer, and the bytes start at fd_offset of a block of `block`
 * bytes that importers import as a whole: CUDA virtual memory by its POSIX fd (DG_KIND_CUDA_VMM),
 * memory from cudaMalloc by its CUDA IPC handle (DG_KIND_CUDA_IPC), or not at all
 * (DG_KIND_CUDA_OWN). The fd stays the caller's and must stay open as long as the region.
 *
 * In a PCI BAR of another machine (DG_KIND_BAR; emulator only), the bytes start at fd_offset of the
 * BAR, which starts at `block` of the fd's file, such as /dev/mem. The other machine imports them by
 * the provider soft, too. */
typedef struct dg_memory {
	void *addr;
	uint64_t size;
	int fd;
	uint32_t flags;
	uint64_t fd_offset;
	uint64_t block;
	uint32_t kind, reserved;
	uint8_t uuid[16]; /* of the GPU */
	uint8_t handle[64]; /* CUDA IPC handle */
} dg_memory;

enum dg_fault_action {
	DG_FAULT_ERROR = 0,
	DG_FAULT_DELAY = 1,
	DG_FAULT_REORDER = 2,
	DG_FAULT_LOSE = 3
};

/* A rule of the provider fault. `action` is applied to each matching operation: ERROR completes it
 * with `status` without copying, DELAY starts it delay_ns later, REORDER starts it after the next
 * operation, LOSE never completes it. An operation matches if its opcode is in `ops` (bit 0 reads,
 * bit 1 writes, bit 2 fetch-adds, bit 3 compare-swaps) and min_size <= size <= max_size. The first
 * `skip` matches are left alone; after them the action is applied to every `every`-th match, at most
 * `count` times (0: no limit), each time with probability ppm / 1,000,000, drawn from `seed`. */
typedef struct dg_fault_rule {
	uint32_t action, ops;
	int32_t status;
	uint32_t every;
	uint64_t min_size, max_size;
	uint64_t skip, count;
	uint64_t delay_ns;
	uint32_t ppm, seed;
} dg_fault_rule;

typedef struct dg_device_config {
	uint64_t spin_ns; /* soft: how long the idle engine thread spins before it sleeps */
	const char *over; /* fault: name of the wrapped provider; NULL: soft */
	const dg_fault_rule *rules;
	uint32_t n_rules;
	uint32_t gpu; /* cuda: device ordinal, from 0 */
	const char *pci; /* doca: PCI address, such as 03:00.0; NULL: the first capable function */
	const char *rdma; /* verbs: name of the RDMA device, such as mlx5_0; NULL: the first active port */
	uint32_t shared; /* threads share the handles: see dg_device_free() */
	uint32_t serves; /* cuda: a kernel copies small operations that kernels wait for: a copy service */
} dg_device_config;

typedef struct dg_caps {
	char provider[32];
	char engine[96]; /* what copies, as text */
	uint64_t max_size;   /* of one transfer */
	uint64_t inline_max; /* largest copy done inline with DG_PATH_AUTO */
	uint64_t spin_ns;    /* in effect; 0 where spinning would do harm */
	uint32_t ordered;    /* 1: writes of one queue become visible in posting order */
	uint32_t max_queues;
	/* 0: no DG_FETCH_ADD and DG_COMPARE_SWAP; 1: they are atomic with respect to those of the
	 * same adapter; 2: also with respect to CPUs */
	uint32_t atomics, reserved;
} dg_caps;

/* Counters since the device was opened. engine_sleeps: how often the provider's thread slept, after
 * which the next operation waits for its wake-up; engine_moves: how often it was found on the CPU of
 * the caller that waited for it, and was moved to another one. */
typedef struct dg_stats {
	uint64_t engine_sleeps, engine_moves;
} dg_stats;

/* id: the value for dg_wr.local and dg_wr.remote. remote: 1 if imported. peer_pid: process id of the
 * exporter, 0 if unknown. revoked: closed by its exporter. lost: the exporter is gone. importers:
 * number of imports of a local region. registration: enum dg_registration; of an imported region, as
 * its exporter says. */
typedef struct dg_region_info {
	uint64_t size;
	uint32_t id, access, remote, method;
	int32_t peer_pid;
	uint32_t revoked, lost, importers, registration;
} dg_region_info;

typedef struct dg_rate {
	uint64_t ops, bytes, elapsed_ns, failed;
	uint64_t inlined; /* how many of ops were copied inline */
} dg_rate;

/* Reasons of a failure, for an errno that several causes share. They are larger than any errno, so
 * that one int can hold either. Each reason has the errno that its comment begins with. */
enum dg_reason {
	/* ENODEV: no provider has this name. */
	DG_REASON_UNKNOWN_PROVIDER = 4096,
	/* ENODEV: softdoca cannot be loaded, or its settings describe no device. */
	DG_REASON_SOFTDOCA,
	/* ENODEV: libcuda, the NVIDIA driver's library, was not found. */
	DG_REASON_NO_NVIDIA_DRIVER,
	/* ENODEV: the NVIDIA driver is too old. */
	DG_REASON_OLD_NVIDIA_DRIVER,
	/* ENODEV: CUDA cannot be initialized. */
	DG_REASON_CUDA,
	/* ENODEV: there is no such GPU, or it is hidden. */
	DG_REASON_NO_GPU,
	/* ENODEV: rdma-core is not installed, or too old. */
	DG_REASON_RDMA_CORE,
	/* ENODEV: there is no such RDMA device, or its port cannot be used. */
	DG_REASON_RDMA_DEVICE,
	/* ENODEV: DOCA is not installed. */
	DG_REASON_NO_DOCA,
	/* ENODEV: the installed DOCA is too old. */
	DG_REASON_OLD_DOCA,
	/* ENODEV: there is no such BlueField, or DOCA cannot use it. */
	DG_REASON_BLUEFIELD,
	/* EMEDIUMTYPE: DOCA does not export memory, for example in the BlueField's present mode. */
	DG_REASON_BLUEFIELD_MODE,
	/* EMEDIUMTYPE: DOCA's export does not fit a descriptor. */
	DG_REASON_DOCA_EXPORT_SIZE,
	/* EMEDIUMTYPE: no other device can access this GPU memory, neither as a dma-buf nor by its
	 * address. */
	DG_REASON_DMABUF_GPU,
	/* EMEDIUMTYPE: the RDMA adapter's driver or the kernel does not support dma-buf. */
	DG_REASON_DMABUF_ADAPTER,
	/* EMEDIUMTYPE: rdma-core is too old for dma-buf. */
	DG_REASON_DMABUF_RDMA_CORE,
	/* EAGAIN: a thread cannot be started. */
	DG_REASON_THREADS
};

/* Returns the last error of this thread as one sentence. Valid until its next failing call. */
const char *dg_last_error(void);
/* Returns the reason of this thread's last failing call, which returned the negative rc: an enum
 * dg_reason, or the errno -rc if no such reason was given. Valid as long as dg_last_error(). */
int dg_last_reason(int rc);
/* Returns the name of the i-th built-in provider, or NULL past the last one. */
const char *dg_provider_name(uint32_t i);
/* Returns 0 if the provider can be opened on this machine, otherwise a negative errno (ENODEV: it
 * is not available); dg_last_error() then says why. Unless `deep` is set, only looks for the
 * provider's library: starting a GPU's driver takes up to a second. A deep probe of doca forks a
 * short-lived process. Any thread. */
int dg_provider_probe(const char *provider, uint32_t deep);
/* Returns the time of CLOCK_MONOTONIC. */
uint64_t dg_now_ns(void);
/* Writes the path of the folder for sockets to out and creates the folder if needed:
 * $XDG_RUNTIME_DIR/dgkit, otherwise dgkit-UID in P_tmpdir. Errors: EPERM if it is not a folder of
 * this user with mode 0700; ENAMETOOLONG if it does not fit `cap`. */
int dg_runtime_dir(char *out, size_t cap);
/* Returns the number of CPUs that this process may use at once: the smaller of its affinity mask
 * and its cgroup's quota, at least 1. */
uint32_t dg_cpus(void);

/* Opens a provider. cfg may be NULL (defaults). Any thread. Errors: ENODEV if it is not available,
 * EINVAL for an invalid configuration. */
int dg_device_open(const char *provider, const dg_device_config *cfg, dg_device **out);
/* Closes the queues and regions that are still open, then the device, and frees it. Queue handles
 * stay valid until dg_queue_free(). Errors: EBUSY if after timeout_ns a region is still in use, or
 * another thread still opens a queue or a region; EALREADY if a thread is inside a queue. The
 * device then stays open and the call may be repeated. */
int dg_device_close(dg_device *dev, uint64_t timeout_ns);
/* Frees the handle of a device that was opened with `shared`, and only of such a device, for which
 * dg_device_close() and dg_region_close() free no handle: until dg_device_free() and
 * dg_region_free() any thread may call any function with it, before, during and after the close.
 * Closing a closed object returns 0; every other call with it returns -ESTALE. A close that finds
 * another thread closing the same object waits for it. Without `shared` a handle is freed by the
 * close, and no other thread may use it meanwhile. Free is the caller's last use of a handle. An
 * object that is still open is closed first; if it is still in use after 100 ms, it stays open until
 * its device is closed. */
void dg_device_free(dg_device *dev);
/* Copies the device's capabilities to *out. */
int dg_device_caps(dg_device *dev, dg_caps *out);

/* Copies the device's counters to *out. Any thread. */
int dg_device_stats(dg_device *dev, dg_stats *out);

/* Registers memory in place. The memory (and mem->fd) must stay valid until dg_region_close()
 * returned 0. access: enum dg_access. Any thread. Errors: EINVAL, ERANGE, EACCES, EMEDIUMTYPE,
 * EOPNOTSUPP. */
int dg_region_register(dg_device *dev, const dg_memory *mem, uint32_t access, dg_region **out);
/* Writes the region's descriptor to buf (DG_DESCRIPTOR_MAX bytes always suffice) and returns its
 * length. `access` may narrow the region's own. A descriptor is a capability: any process of the
 * same user that has it can import the region. Errors: EACCES, ESTALE, ENOSPC if `cap` is too
 * small. */
int dg_region_export(dg_region *r, uint32_t access, uint8_t *buf, size_t cap);
/* Imports a descriptor, of this process or another, as a remote region. Waits up to timeout_ns for
 * the exporter. Any thread. Errors: EBADMSG, EPROTONOSUPPORT, EXDEV, ENOKEY, ENOTCONN, ETIMEDOUT,
 * EPERM, EMEDIUMTYPE, EOPNOTSUPP. */
int dg_region_import(dg_device *dev, const uint8_t *desc, size_t len, uint64_t timeout_ns,
		     dg_region **out);
/* Revokes the region, waits for its transfers in flight in this process and in every importer, then
 * frees it. Errors: EBUSY if some are still in flight after timeout_ns; new transfers stay refused,
 * the handle and the memory must stay valid, and the call may be repeated. */
int dg_region_close(dg_region *r, uint64_t timeout_ns);
/* Frees the handle of a region of a device with `shared`: see dg_device_free(). */
void dg_region_free(dg_region *r);
/* Copies the region's state to *out. */
int dg_region_info_get(dg_region *r, dg_region_info *out);
/* Stores the address at which this process accesses an imported region, and keeps its exporter from
 * releasing the memory until dg_region_let_go(): closing it waits, there and here. Errors: ESTALE if
 * it was closed, EOPNOTSUPP if this process does not map it. */
int dg_region_hold(dg_region *r, char **base);
void dg_region_let_go(dg_region *r);
/* Returns 1 if these bytes are mapped from a file that can shrink, otherwise 0. Reading past the
 * end of a truncated file raises SIGBUS: register such memory with DG_MEMORY_MAY_FAULT, and it is
 * copied by a system call that fails instead. */
int dg_memory_may_fault(const void *addr, uint64_t size);
/* Advises the kernel to back the whole pages among these bytes with huge pages at their first
 * access, so that there are fewer page faults (madvise(2), MADV_HUGEPAGE). A kernel without huge
 * pages ignores it. The bytes are unchanged. */
void dg_memory_prefer_huge_pages(void *addr, uint64_t size);
/* Returns the whole pages among these bytes of private memory to the kernel; they are zero at their
 * next access (madvise(2), MADV_DONTNEED). */
void dg_memory_discard(void *addr, uint64_t size);
/* Checks the bytes of a descriptor without contacting its exporter and returns its length. Errors:
 * EBADMSG, EPROTONOSUPPORT. */
int dg_descriptor_check(const uint8_t *desc, size_t len);
/* Returns 0 if fd is a memfd sealed against shrinking with at least `size` bytes; otherwise
 * -EMEDIUMTYPE. */
int dg_memfd_check(int fd, uint64_t size);

/* Opens a queue. depth: how many operations can be posted and not yet reaped, 1 to DG_DEPTH_MAX.
 * path: enum dg_path. spin_ns: how long a wait spins before it sleeps (0 on one CPU).
 * op_timeout_ns: after this time an operation without completion ends as DG_TIMED_OUT. One thread
 * at a time may be inside a queue; others get EALREADY. Errors: EINVAL, EMFILE, EOPNOTSUPP for a
 * path that the provider lacks. */
int dg_queue_open(dg_device *dev, uint32_t depth, uint32_t path, uint64_t spin_ns,
		  uint64_t op_timeout_ns, dg_queue **out);
/* Quiesces the provider; what was pending completes as DG_FLUSHED. Completions can still be taken;
 * posting returns -ESTALE. Idempotent. The handle stays valid until dg_queue_free(). */
int dg_queue_close(dg_queue *q);
/* Closes the queue and releases the handle. Never fails with EALREADY: the caller guarantees that
 * no other thread uses the queue. Its memory lives on until its last prepared operation is
 * closed. */
void dg_queue_free(dg_queue *q);
/* Returns a file descriptor that becomes readable at the next completion once dg_queue_arm()
 * returned 1. Owned by the queue; for poll(2) and epoll(7) only. */
int dg_queue_fileno(dg_queue *q);
/* Arms the fd. Returns 1 if it is armed, 0 if completions are already available. Clears the fd
 * first. Poll until the queue is empty, then arm: completions that an earlier call already took out
 * of the ring do not count as available. */
int dg_queue_arm(dg_queue *q);
/* Posts n requests with one doorbell, all or none. Their completions come from dg_queue_poll().
 * Errors: EAGAIN if they do not fit; ERANGE, EACCES, EINVAL, ESTALE, EOPNOTSUPP for an invalid
 * request. */
int dg_queue_post(dg_queue *q, const dg_wr *wr, uint32_t n);
/* Takes up to n completions of posted requests, waiting up to timeout_ns for the first one. Returns
 * their count, 0 on time-out. Errors: EINTR. */
int dg_queue_poll(dg_queue *q, dg_wc *wc, uint32_t n, uint64_t timeout_ns);
/* Posts n requests and waits for all of them: dg_queue_post() and dg_queue_poll() in one call.
 * Returns the number of completions, one for each chain. Errors: as those two; ETIMEDOUT. */
int dg_queue_run(dg_queue *q, const dg_wr *wr, uint32_t n, dg_wc *wc, uint64_t timeout_ns);
/* Returns the number of posted operations that were not yet reaped. */
int dg_queue_pending(dg_queue *q);

/* Transfers: operations whose completion is not returned by dg_queue_poll(), but in *wc by the call
 * that posts them or the call that waits for them. Posting returns 0 if the operation is complete,
 * with any status; otherwise a ticket, which is DG_TICKET or larger. A ticket occupies one of the
 * queue's `depth` places until it is waited for or dropped, and is invalid after that. flags: 0 or
 * DG_FENCE. Errors: as dg_queue_post(). */
int64_t dg_transfer_post(dg_queue *q, uint32_t op, uint32_t local, uint32_t remote, uint64_t size,
			 uint64_t local_offset, uint64_t remote_offset, uint32_t flags, dg_wc *wc);
/* The same for n requests that form one chain, or one strided request. */
int64_t dg_transfer_post_wr(dg_queue *q, const dg_wr *wr, uint32_t n, dg_wc *wc);
/* Waits for the completion of a ticket and stores it in *wc. Returns 0. Errors: ETIME if it is not
 * complete within timeout_ns (the ticket stays valid; UINT64_MAX: limited only by the queue's
 * op_timeout_ns), EINVAL for an invalid ticket, EINTR. */
int dg_transfer_wait(int64_t ticket, uint64_t timeout_ns, dg_wc *wc);
/* Gives up a ticket: its completion is discarded, now or when it arrives. */
int dg_transfer_drop(int64_t ticket);

/* Queue pairs that are connected by hand, for providers that use RDMA. The peer may be any program
 * that uses libibverbs. Each side passes the numbers of its queue pair to the other side, by any
 * means, and connects. Memory is then granted and used by address and rkey, without descriptors: an
 * rkey is valid only for the peer of the queue pair that granted it.
 *
 * A queue pair belongs to a queue, and a call that uses it is inside that queue: EALREADY, ESTALE
 * and EOWNERDEAD as there. An error puts a queue pair into the error state for good: operations
 * behind the one that failed end as DG_FLUSHED, or as DG_PEER_LOST if the peer did not answer;
 * later posts return -ENOTCONN. */

/* gid: the address of the port; gid_index: its index in the port's table. lid: that of an InfiniBand
 * port, otherwise 0. mtu: bytes. max_reads: how many reads of the peer this side answers at a
 * time. qpn and psn have 24 bits. */
typedef struct dg_qp_address {
	uint32_t qpn, psn;
	uint8_t gid[16];
	uint32_t gid_index, lid, port, mtu, max_reads;
} dg_qp_address;

/* Memory for RDMA: what a peer needs to use it. access: enum dg_access. */
typedef struct dg_rdma_memory {
	uint64_t address, size;
	uint32_t rkey, access;
} dg_rdma_memory;

/* Makes a queue pair that is not connected. Errors: EOPNOTSUPP for a provider without queue pairs;
 * ENODEV for a port without a link or an address; EMFILE, ENOMEM. */
int dg_qp_open(dg_queue *q, dg_qp **out);
/* Copies the address, which the other side passes to its connect, to *out. */
int dg_qp_address_get(dg_qp *p, dg_qp_address *out);
/* Connects to the queue pair with this address; the other side does the same. Does not wait for the
 * other side. gid_index and port are ignored; mtu 0 means the port's, which must be the same on both
 * sides; max_reads 0 means 1. Errors: ERANGE for a number that is too large, EINVAL for a wrong one
 * or a second call, EXDEV and ENOTCONN for a GID that cannot be reached from this port. After an
 * error nothing has changed. */
int dg_qp_connect(dg_qp *p, const dg_qp_address *to);
/* Lets the peer use a registered region, until the region or the queue pair is closed: after that
 * the adapter refuses it. Each call returns another rkey. Errors: EINVAL for an imported region or
 * one of another device, EACCES for access that the region does not have, ENOMEM. */
int dg_qp_grant(dg_qp *p, dg_region *r, uint32_t access, dg_rdma_memory *out);
/* Makes the peer's memory a remote region, for operations of this queue alone. The peer's adapter
 * decides what is allowed: wrong numbers end as DG_REMOTE_ACCESS_ERROR. Close it with
 * dg_region_close(). Errors: ERANGE, EINVAL for numbers that cannot be right, EMFILE, ENOMEM. */
int dg_qp_import(dg_qp *p, const dg_rdma_memory *memory, dg_region **out);
/* Ends the queue pair, its grants and its imports: what is in flight on it completes as DG_FLUSHED.
 * Closing the queue does the same. Idempotent. The handle stays valid until dg_qp_free(). */
int dg_qp_close(dg_qp *p);
/* Releases the handle. The queue pair is closed, at the latest with its queue. */
void dg_qp_free(dg_qp *p);

/* Prepares n requests: they are checked once, and each run checks only what may have changed.
 * Usable until the queue is closed; close it with dg_prep_close(). Errors: as dg_queue_post(). */
int dg_prep_open(dg_queue *q, const dg_wr *wr, uint32_t n, dg_prep **out);
int dg_prep_close(dg_prep *p);
/* Posts and waits. Returns 0, the first failed dg_status (> 0), or a negative errno. */
int dg_prep_run(dg_prep *p);
/* The same in two calls, for a caller that holds a lock or handles signals. The first one posts and
 * waits at most spin_ns, without sleeping where the provider has a thread. If one of the two returns
 * -EINPROGRESS or -EINTR, the caller is still inside the queue: dg_prep_finish() waits for the rest,
 * dg_prep_cancel() abandons it, as dg_prep_run() does at a signal. */
int dg_prep_start(dg_prep *p, uint64_t spin_ns);
int dg_prep_finish(dg_prep *p);
void dg_prep_cancel(dg_prep *p);
/* Posts; the completions come from dg_queue_poll(). */
int dg_prep_post(dg_prep *p);
/* Returns the completions of the last dg_prep_run(), one for each request without DG_CHAIN. Owned
 * by p. */
const dg_wc *dg_prep_wc(dg_prep *p);

/* Runs p `count` times, one after another. samples_ns[i] is the time from before the submission to
 * after the completion was taken. Stops at the first failure and stores its status in *status.
 * Returns the number of samples. */
int dg_measure_latency(dg_prep *p, uint32_t count, uint64_t *samples_ns, int32_t *status);
/* Keeps `window` requests in flight for duration_ns, cycling through the n given. Errors: EBUSY if
 * something is already posted, EINVAL for a window larger than the queue's depth. */
int dg_measure_rate(dg_queue *q, const dg_wr *wr, uint32_t n, uint32_t window, uint64_t duration_ns,
		    dg_rate *out);
/* Measures the lower bound of a transfer on this machine: a second thread sees a doorbell, copies
 * `size` bytes with memcpy and sets a flag (handoff != 0), or one memcpy in this thread (handoff ==
 * 0). Returns the number of samples. Errors: EOPNOTSUPP for a hand-off on one CPU. */
int dg_measure_floor(uint32_t handoff, uint64_t size, uint32_t count, uint64_t *samples_ns);
/* The CPU's part of measuring the lower bound of an operation that a GPU's kernel posts: stores
 * each new value of words[0] to words[8], until that value is UINT64_MAX. `words` has 128 bytes,
 * which GPU and CPU access. Errors: ETIMEDOUT if words[0] does not change for timeout_ns. */
int dg_measure_answer(uint64_t *words, uint64_t timeout_ns);
/* Measures the lower bound of p, an operation of one request, with its provider's own calls only:
 * no queue, no checks. samples_ns[i] is the time from the end of copy i - 1 to the end of copy i,
 * with `window` in flight. Returns the number of samples. Errors: EOPNOTSUPP if the provider has no
 * such loop, EBUSY if something is in flight. */
int dg_measure_bare(dg_prep *p, uint32_t count, uint32_t window, uint64_t *samples_ns);
/* Copies (part of) a run of bytes that is larger than the caches, by the method that is best for
 * it: without reading dst into them first. The two may not overlap. */
void dg_copy_large(void *dst, const void *src, uint64_t size);

/* GPU-initiated operations: a kernel posts records to a ring (gpu_initiated/dgkit_device.cuh), and a
 * proxy, a thread of this process, takes them and has the device's provider run them. */

enum { DG_RING_PEERS = 8 };
/* depth: a power of two, DG_RING_DEPTH_MIN to DG_RING_DEPTH_MAX. weak: the kernel chooses the place
 * of each operation in the ring. first: number of the first operation. limit: how long one wait of
 * a kernel may last, in cycles of the GPU's clock. trace: 1: the kernel stores its clock at post
 * and completion of each operation; 2: and the proxy stores its stamps in the ring's memory, for a
 * kernel of another process. index: the number by which counters name the ring; 0: the proxy's next
 * one.
 *
 * A ring for a kernel of another process: `memory` is the id of an imported region, which that
 * process filled by dg_ring_lay_out(); it stays open until dg_ring_free(). The kernel's remote
 * region is memory of this process: `own`, which is also imported here as own_import, through which
 * the core writes inline bytes and signals. The kernel's local regions are imports: `peers`. The
 * kernel can use no other region, and cannot send messages. */
typedef struct dg_ring_config {
	uint32_t depth, weak, trace, index;
	uint64_t first, limit;
	uint32_t memory, own, own_import, n_peers;
	uint32_t peers[DG_RING_PEERS];
} dg_ring_config;

/* fd: memfd with the ring; `size` bytes, mapped at `address` here. handle: address of the
 * dg_gpu_queue in it, where an emulated GPU that maps the memfd at the same address finds it. */
typedef struct dg_ring_info {
	int32_t fd;
	uint32_t depth, index, weak;
	uint64_t size, address, handle;
} dg_ring_info;

/* passes: over all rings, of which `idle` found nothing. spun_ns, slept_ns: time of idle passes, and
 * of the sleeps that follow them. batches: posts to the provider. */
typedef struct dg_proxy_stats {
	uint64_t passes, idle, spun_ns, sleeps, slept_ns;
	uint64_t records, batches, rings;
} dg_proxy_stats;

/* taken, completed, failed: operations. waiting: 1 while the next one waits for a counter, a
 * receive or a fence. hole: the first place that is not filled although a later one is, else
 * UINT64_MAX. first_error: status of the first operation that failed, first_failed its ticket. */
typedef struct dg_ring_stats {
	uint64_t taken, completed, failed, hole, first_failed;
	int32_t first_error;
	uint32_t waiting;
} dg_ring_stats;

/* Stamps of one operation: by the proxy (seen, posted, completed: CLOCK_MONOTONIC) and by the kernel
 * (gpu_post, gpu_complete: its own clock; 0 without trace). */
typedef struct dg_ring_stamp {
	uint64_t ticket, seen_ns, posted_ns, completed_ns, gpu_post_ns, gpu_complete_ns;
	int32_t status;
	uint32_t op;
} dg_ring_stamp;

/* Starts the proxy of a device. spin_ns: how long it spins when all rings are idle, before it sleeps
 * between polls (0 on one CPU). Any thread. */
int dg_proxy_open(dg_device *dev, uint64_t spin_ns, dg_proxy **out);
/* Stops the proxy and frees it: before its device is closed, and no other thread may use its handle
 * meanwhile. With the provider cuda it waits for the kernels of this process, and so do closing the
 * device and its regions: let them end first. Errors: EBUSY while rings are open. */
int dg_proxy_close(dg_proxy *p);
int dg_proxy_stats_get(dg_proxy *p, dg_proxy_stats *out);
/* Opens a ring. Errors: EINVAL for a wrong configuration, ENOMEM, EMFILE; ESTALE, EOPNOTSUPP and
 * ERANGE for memory that is closed, cannot be used, or is too small. */
int dg_ring_open(dg_proxy *p, const dg_ring_config *cfg, dg_ring **out);
/* Returns the size of a ring's memory in bytes. */
uint64_t dg_ring_memory_size(const dg_ring_config *cfg);
/* Fills memory for a ring that another process will serve. Call it before the region is exported.
 * base: page-aligned. Errors: EINVAL. */
int dg_ring_lay_out(void *base, const dg_ring_config *cfg);
/* State of a ring that another process serves: how many operations are complete, the state of the
 * first that failed (as dg_gpu_ring.first_error), and whether the ring is closed. */
typedef struct dg_ring_words {
	uint64_t done, first_error, closed;
} dg_ring_words;
void dg_ring_words_get(const void *base, const dg_ring_config *cfg, dg_ring_words *out);
/* Copies the stamps of the latest complete operations of such a ring with trace 2, at most n of
 * them, oldest first. Returns how many. */
int dg_ring_stamps_get(const void *base, const dg_ring_config *cfg, dg_ring_stamp *out, uint32_t n);
/* Arranges that the ring in a region's memory is marked as closed when the region's last import
 * ends, even if the importing process dies. Every wait of a kernel then ends. `base`: the memory's
 * start. */
void dg_ring_watch(dg_region *r, void *base, const dg_ring_config *cfg);
/* Marks such a ring as closed after its proxy's process has ended: the first operation that is not
 * complete failed as DG_PEER_LOST. Every wait of a kernel then ends. */
void dg_ring_lose(void *base, const dg_ring_config *cfg);
int dg_ring_info_get(dg_ring *r, dg_ring_info *out);
int dg_ring_stats_get(dg_ring *r, dg_ring_stats *out);
/* Stores the stamps of the latest operations, at most n of them, oldest first. Returns how many. */
int dg_ring_trace(dg_ring *r, dg_ring_stamp *out, uint32_t n);
/* Joins two rings of one proxy: a send of one is a message to the next receive of the other. Errors:
 * EBUSY if one is connected already, EINVAL for rings of two proxies or one ring twice. */
int dg_ring_connect(dg_ring *a, dg_ring *b);
/* Refuses new operations, ends those in progress (DG_FLUSHED), then lets every wait of a kernel end.
 * Never waits for a kernel, which may use the ring's memory until dg_ring_free(). Idempotent. Any
 * thread, also while others use the ring; a second closer waits for the first. */
int dg_ring_close(dg_ring *r);
/* Closes the ring and frees it. The caller guarantees that no GPU accesses its memory any more; an
 * emulated GPU maps it itself. */
void dg_ring_free(dg_ring *r);

/* The mover: moves bytes for other processes of this user, between memory that they name by
 * descriptors on both sides (native/src/mover_ring.h). NCCL's plugin is its client. */

/* Listens at a Unix socket, with a thread for each client. dev: copies GPU memory if it can; a device
 * of the mover's own copies host memory. The caller closes the mover before dev. Errors: ENAMETOOLONG,
 * EADDRINUSE and those of bind(2). */
int dg_mover_open(dg_device *dev, const char *path, dg_mover **out);
/* Ends all clients, and waits for their operations. */
void dg_mover_close(dg_mover *m);

/* Software NIC: a thread that executes mlx5 work queue entries (WQEs) from rings in memory and writes
 * completion queue entries (CQEs), as an NVIDIA network adapter would. Who writes the entries, a
 * GPU's kernel or a CPU, makes no difference. Bytes are moved by the device's provider. A wrong entry
 * ends its own queue pair only, and no entry can reach a byte outside its keys.
 *
 * Any thread may call these functions, but none may use a handle after the call that freed it. In the
 * child of a fork() all return -EOWNERDEAD, except for closing, which does nothing and returns 0. */

/* Up to DG_NIC_KEYS keys and DG_NIC_QPS queue pairs are open at once, with DG_NIC_SGES data segments
 * a receive. */
enum { DG_NIC_KEYS = 8192, DG_NIC_QPS = 1024, DG_NIC_SGES = 32, DG_NIC_ENTRIES_MAX = 32768,
       DG_NIC_CQES_MAX = 4194304 };
typedef struct dg_nic dg_nic;
typedef struct dg_nic_cq dg_nic_cq;
typedef struct dg_nic_qp dg_nic_qp;
typedef struct dg_nic_srq dg_nic_srq;

/* Names a queue pair of this machine. gid: its NIC, unique on this machine. qpn: 24 bits, unique in
 * the NIC. */
typedef struct dg_nic_address {
	uint8_t gid[16];
	uint32_t qpn, reserved;
} dg_nic_address;

/* How the NIC learns of new entries. PROXY: *doorbell is a 64-bit producer index. RECORD: the low 16
 * bits of the big-endian record[1]; the doorbell is ignored. NO_RECORD: *producer is a 64-bit
 * producer index, in the structure of the queue pair's user. An index that goes back is ignored. */
enum dg_nic_doorbell { DG_NIC_PROXY = 0, DG_NIC_RECORD = 1, DG_NIC_NO_RECORD = 2 };
/* States as in the InfiniBand specification. */
enum dg_nic_state {
	DG_NIC_RESET = 0,
	DG_NIC_INIT = 1,
	DG_NIC_RTR = 2,
	DG_NIC_RTS = 3,
	DG_NIC_ERROR = 6
};
/* What queue pairs do for each other. RC, UC: reliable and unreliable connections. UD: datagrams, each with an
 * address of its own, of at most DG_NIC_MTU bytes; between NICs only if they are parts of one adapter. XRC: as RC,
 * from a queue pair that only sends to one that only receives; each entry names the shared receive queue of its
 * receive, whose protection domain it also accesses. */
enum dg_nic_transport {
	DG_NIC_RC = 0,
	DG_NIC_UC = 1,
	DG_NIC_UD = 2,
	DG_NIC_XRC_SEND = 3,
	DG_NIC_XRC_RECEIVE = 4
};
enum { DG_NIC_MTU = 4096, DG_NIC_GRH = 40 };
enum dg_nic_access {
	DG_NIC_LOCAL_WRITE = 1,
	DG_NIC_REMOTE_WRITE = 2,
	DG_NIC_REMOTE_READ = 4,
	DG_NIC_REMOTE_ATOMIC = 8,
	DG_NIC_BIND = 16 /* memory windows may be bound to it */
};
/* dg_nic_qp_info.waiting. WAIT: a WAIT entry. RECEIVE: the peer has posted no receive. PEER: the
 * peer is not ready to receive. BYTES: the provider moves its bytes. KEY: the peer's memory is being
 * imported. */
enum dg_nic_waiting {
	DG_NIC_WAITS_NOT = 0,
	DG_NIC_WAITS_WAIT = 1,
	DG_NIC_WAITS_RECEIVE = 2,
	DG_NIC_WAITS_BYTES = 3,
	DG_NIC_WAITS_KEY = 4,
	DG_NIC_WAITS_PEER = 5
};

/* ring: `entries` CQEs (a power of two, up to DG_NIC_CQES_MAX), aligned to 64, in memory
 * that this process's CPU can access for the CQ's whole life. entry_size: 0 or 64 bytes, or 128, of which
 * the NIC writes the second half. Its owner writes the initial CQEs. The
 * NIC never waits for free CQEs. collapsed: every CQE is written to the ring's first place. record:
 * NULL, or the CQ's doorbell record of two big-endian words in mlx5's format, of which the first counts the CQEs
 * that its owner has seen, and the second arms it. When an armed CQ has a CQE that its owner has not seen, the NIC
 * writes the 8 bytes `event` to event_fd, which must not block, and disarms the CQ by storing UINT32_MAX; not if
 * event_fd is negative. is_checked: with a record; a CQE for which there is no place is lost, and ends its queue pair
 * and the CQ, which gets no CQE any more. Otherwise it overwrites the oldest. async_fd: of DG_NIC_CQ_OVERRUN.
 * gpu_ring: 0, or where in memory of the NIC's GPU the owner has the ring; `ring` is then a copy of it. */
typedef struct dg_nic_cq_config {
	void *ring;
	uint64_t gpu_ring;
	uint32_t entries, collapsed;
	uint32_t *record;
	uint64_t event;
	int32_t event_fd;
	uint32_t entry_size;
	int32_t async_fd;
	uint32_t is_checked;
} dg_nic_cq_config;

/* What happens to a CQ, queue pair or shared receive queue besides its CQEs, by the numbers of ibv_event_type: a CQE
 * was lost; its ring or record is wrong, or its CQ is full; fewer receives than dg_nic_srq_set_limit() asks for; in the error state, the last receive
 * that it took from a shared receive queue is flushed. If the object's `event` is not 0, the NIC writes this to its
 * async_fd, which must not block. */
enum dg_nic_async_type {
	DG_NIC_CQ_OVERRUN = 0,
	DG_NIC_QP_FATAL = 1,
	DG_NIC_SRQ_LIMIT = 15,
	DG_NIC_QP_LAST_RECEIVE = 16
};
typedef struct dg_nic_async_event {
	uint64_t event;
	uint32_t type, reserved;
} dg_nic_async_event;

/* A shared receive queue (SRQ) in mlx5's format. ring: `entries` (a power of two, up to DG_NIC_ENTRIES_MAX)
 * of 16 * (1 + sges) bytes: the index of the next entry in bytes 2 and 3, big-endian, then the data
 * segments. The first receive is in entry 0. record: a big-endian word, the count of receives. cq: NULL, or of a queue
 * for XRC: where its receives are completed, with this user_index. number: by which senders name it in its XRC domain;
 * it has 24 bits and is not 0. */
typedef struct dg_nic_srq_config {
	void *ring;
	uint32_t entries, sges;
	uint32_t *record;
	uint32_t pd, number, domain, user_index;
	dg_nic_cq *cq;
	int32_t async_fd;
	uint64_t event;
} dg_nic_srq_config;

/* send_ring: send_entries WQE basic blocks of 64 bytes; receive_ring: receive_entries of 16 *
 * receive_sges bytes. The entries are powers of two, up to DG_NIC_ENTRIES_MAX; receive_sges is one up to
 * DG_NIC_SGES. record: two big-endian words, the counts of receives and of sends. doorbell_mode:
 * enum dg_nic_doorbell. All of this is memory that the CPU can access until dg_nic_qp_close()
 * returns. receive_cq may be NULL if receive_entries is 0. pd: protection domain; keys of other
 * domains are refused. inline_receive: received messages of up to 32 bytes are stored in the CQE
 * instead of the receive's memory, where the CPU can read the sender's bytes. own_rights: if its peer is
 * of this NIC, rkeys need the rights that lkeys need: for copies within a process. receives_of: NULL, or a
 * queue pair with a receive ring that this one, without receive entries, shares, with its record and CQ: a
 * message takes the next receive of the ring, whichever queue pair it arrives at. srq: NULL, or a shared receive
 * queue, not for XRC, of the same protection domain, in the same way, but with a CQ of this one's own. user_index:
 * 24 bits, for the user index of its CQEs. transport: enum dg_nic_transport. A receive of a datagram has
 * DG_NIC_GRH bytes in front, where the header of its packet is. domain: of an XRC_RECEIVE, which has no CQs.
 * gpu_ring: as for a CQ, of the send ring. */
typedef struct dg_nic_qp_config {
	uint64_t gpu_ring;
	void *send_ring, *receive_ring;
	uint32_t send_entries, receive_entries, receive_sges, doorbell_mode;
	uint32_t *record;
	uint64_t *doorbell, *producer;
	dg_nic_cq *send_cq, *receive_cq;
	uint32_t pd, inline_receive, own_rights, user_index;
	dg_nic_qp *receives_of;
	dg_nic_srq *srq;
	uint32_t transport, domain;
	int32_t async_fd;
	uint64_t event;
} dg_nic_qp_config;

/* syndrome, vendor: of the first error CQE. Counts since RESET: taken and completed in basic blocks,
 * as the doorbell counts; produced_cqes: of this queue pair; posted_receives: as far as the NIC has
 * read the ring. by_opcode: entries taken. waiting: enum dg_nic_waiting. why: the first error, with
 * value and limit. */
typedef struct dg_nic_qp_info {
	uint32_t qpn, state, syndrome, vendor;
	uint64_t taken, completed, produced_cqes, received, posted_receives, doorbell;
	uint64_t by_opcode[64];
	uint32_t waiting, reserved;
	char why[120];
} dg_nic_qp_info;

/* passes: over all queue pairs, of which `idle` found nothing. */
typedef struct dg_nic_stats {
	uint64_t passes, idle, sleeps, entries, bytes, cqes, errors, queue_pairs, keys;
} dg_nic_stats;

/* Opens a NIC over a device: soft for host memory, cuda for host and GPU memory. spin_ns: how long its
 * thread spins when idle, before it sleeps between passes (0 on one CPU). Errors: EOPNOTSUPP for
 * other providers, ENOMEM, EMFILE. */
int dg_nic_open(dg_device *dev, uint64_t spin_ns, dg_nic **out);
/* Like dg_nic_open(), for a NIC that is a part of one adapter of this user, which several processes have
 * open: queue pair numbers are unique in all of its parts. Errors: EMFILE beyond DG_NIC_PARTS too. */
int dg_nic_open_part(dg_device *dev, uint64_t spin_ns, dg_nic **out);
enum { DG_NIC_PARTS = 256 };
/* Stores the 16 bytes of the GID of the part that has this queue pair. */
int dg_nic_part_gid(uint32_t qpn, uint8_t *gid);
/* A process that has a part open, with its open queue pairs and keys. */
typedef struct dg_nic_part_info {
	uint32_t pid, queue_pairs, keys, reserved;
} dg_nic_part_info;
/* Finds who has a part, from 0 to DG_NIC_PARTS - 1, over a device of the provider soft. Errors: ENOTCONN if
 * nobody has. */
int dg_nic_part_info_get(dg_device *soft, uint32_t part, dg_nic_part_info *out);
/* Makes one pass over all queue pairs in this thread, unless another thread makes one. */
int dg_nic_progress(dg_nic *n);
/* Closes the NIC and its keys and frees it: before its device is closed. Errors: EBUSY while CQs or
 * queue pairs are open. */
int dg_nic_close(dg_nic *n);
/* Stores 16 bytes. */
int dg_nic_gid_get(dg_nic *n, uint8_t *gid);
int dg_nic_stats_get(dg_nic *n, dg_nic_stats *out);
/* Gives a region of the device a key, which is its lkey and its rkey. WQEs address the region's first
 * byte as `address`. access: enum dg_nic_access. Errors: EACCES for access that the region does not
 * have; ERANGE if the range exceeds 2^64; EMFILE for too many keys. */
int dg_nic_key_open(dg_nic *n, dg_region *r, uint64_t address, uint32_t pd, uint32_t access,
		    uint32_t *key);
/* The same for another process's region, by its descriptor. The key is an rkey only, and ends with that region.
 * access: what the region does not allow is left out. Errors: those of dg_region_import(). */
int dg_nic_key_open_import(dg_nic *n, const uint8_t *descriptor, size_t length, uint64_t address,
			   uint32_t pd, uint32_t access, uint32_t *key);
/* Gives the key another region, address, domain and access. Errors: EINVAL if there is no such key, and
 * those of dg_nic_key_open(); the key is then as before. */
int dg_nic_key_change(dg_nic *n, uint32_t key, dg_region *r, uint64_t address, uint32_t pd,
		      uint32_t access);
/* Entries that are taken later do not find the key. Errors: EINVAL if there is no such key. */
int dg_nic_key_close(dg_nic *n, uint32_t key);
/* Opens a memory window: a key that has no memory until an entry (UMR) binds it to a part of another key's, with rights
 * of its own, and chooses its low 8 bits. type: 1, or 2 for one that only the queue pair's peer can use that bound it.
 * Errors: EINVAL, and EMFILE and ENOSPC as for keys. */
int dg_nic_window_open(dg_nic *n, uint32_t type, uint32_t pd, uint32_t *key);
/* key: any that the window had. Errors: EINVAL if there is no such window. */
int dg_nic_window_close(dg_nic *n, uint32_t key);
int dg_nic_cq_open(dg_nic *n, const dg_nic_cq_config *cfg, dg_nic_cq **out);
/* Goes on in another ring, as mlx5 does: the old one gets an entry with opcode 5, which counts. The new one has the
 * owner's initial CQEs. Errors: EINVAL for a wrong ring, one without room for what was not polled, or a collapsed CQ. */
int dg_nic_cq_resize(dg_nic_cq *cq, void *ring, uint32_t entries);
int dg_nic_cq_number(dg_nic_cq *cq, uint32_t *cqn);
/* Starts again at the ring's first place, in its first lap. Errors: EBUSY while a queue pair that uses
 * it is not in RESET. */
int dg_nic_cq_restart(dg_nic_cq *cq);
/* Frees the CQ. Errors: EBUSY while a queue pair uses it. */
int dg_nic_cq_close(dg_nic_cq *cq);
int dg_nic_srq_open(dg_nic *n, const dg_nic_srq_config *cfg, dg_nic_srq **out);
/* Asks for one event when there are fewer receives than this, now or later; 0: for none. */
int dg_nic_srq_set_limit(dg_nic_srq *s, uint32_t limit);
/* Returns the number that was asked for; 0 after its event. */
uint32_t dg_nic_srq_limit(dg_nic_srq *s);
/* Frees the queue. One for XRC is detached from the queue pairs that use it; their messages that are on the way end
 * the connection. Errors: EBUSY while a queue pair uses one that is not for XRC. */
int dg_nic_srq_close(dg_nic_srq *s);
/* Opens a queue pair in the state RESET. */
int dg_nic_qp_open(dg_nic *n, const dg_nic_qp_config *cfg, dg_nic_qp **out);
/* Changes the state: RESET to INIT to RTR to RTS; any to ERROR, which flushes the rings, or to RESET,
 * which sets all counts to 0 and waits for the bytes in flight. ERROR, and closing, wait up to .2 s until
 * the peer's NIC has taken the messages that are complete here. access: what the peer may do, taken
 * by INIT, and by RTR and RTS unless it is 0. peer: taken by RTR, NULL for datagrams and otherwise; that NIC must be open. Errors: EINVAL for another
 * change, ENOTCONN if there is no such NIC, and those of dg_region_import(). */
int dg_nic_qp_modify(dg_nic_qp *qp, uint32_t state, const dg_nic_address *peer, uint32_t access);
/* Sets what was left out at the opening, before RTR. Errors: EINVAL for a mode without its word, or
 * for a later state. */
int dg_nic_qp_set_doorbell(dg_nic_qp *qp, uint32_t mode, uint64_t *doorbell, uint64_t *producer);
/* How long a queue pair tries, in the codes of the InfiniBand specification. timeout, retries: a peer that is
 * not ready is tried 1 + retries times, for 4.096 us * 2^timeout each, or for ever if timeout is 0.
 * rnr_retries: how often a message that finds no receive is tried again, 7: for ever. rnr_timer: how long
 * the peer waits before each of that. UC: what cannot be delivered is dropped, and is no error. */
typedef struct dg_nic_retries {
	uint32_t timeout, retries, rnr_retries, rnr_timer;
} dg_nic_retries;
/* In place of 4 s, and for ever for a receive. Errors: EINVAL for a code beyond 31, 7, 7, 31. */
int dg_nic_qp_set_retries(dg_nic_qp *qp, const dg_nic_retries *r);
/* Sets the key that datagrams for this queue pair must have, and those of it whose own has its highest bit set. */
int dg_nic_qp_set_q_key(dg_nic_qp *qp, uint32_t q_key);
int dg_nic_qp_info_get(dg_nic_qp *qp, dg_nic_qp_info *out);
/* Frees the queue pair. Once this returns, the NIC accesses none of its memory. Errors: EBUSY while others
 * share its receives. */
int dg_nic_qp_close(dg_nic_qp *qp);
/* Writes the DG_NIC_LAYOUT_SIZE bytes of the structure that device code of GPUNetIO Verbs works on
 * (struct doca_gpu_dev_verbs_qp), with all counts 0. Its NIC handler is 1, 2 or 10 (enum
 * doca_gpu_dev_verbs_nic_handler) for PROXY, RECORD and NO_RECORD; call it after
 * dg_nic_qp_set_doorbell(). Its CQs have no doorbell records. */
enum { DG_NIC_LAYOUT_SIZE = 296 };
int dg_nic_qp_lay_out(dg_nic_qp *qp, void *out);

/* A completion callback for DOCA tasks, used by its address: stores 1 in the uint32_t that
 * task_data points to. DOCA passes a `union doca_data` by value; a uint64_t is passed in the same
 * register. */
void dg_doca_note(void *task, uint64_t task_data, uint64_t ctx_data);
/* Shares the list of pinned memory with softdoca. CUDA registers a range of memory once in a
 * process, so softdoca and this core must use one list. Call it after loading softdoca, with the
 * address of its softdoca_share_pins, or NULL. */
void dg_softdoca_join(void *share_pins);

/* cdef: end. */

#endif
