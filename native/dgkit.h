/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dgkit: move bytes between this process and memory that another process owns.
 *
 * The only public header. It knows addresses, lengths and fds; no Python, no Jupyter.
 * Control calls return 0, a count or a negative errno, and leave the detail in dg_last_error()
 * of the calling thread. Data-path results are dg_wc.status. The two never mix.
 *
 * READ and WRITE are seen from the DPU, the side that moves the bytes: DG_READ brings remote bytes
 * into the local region, DG_WRITE puts local bytes into the remote region. Sizes are bytes, times
 * are nanoseconds of CLOCK_MONOTONIC on the side that owns the queue.
 *
 * What each errno of a control call means:
 *   ERANGE out of bounds              EACCES access flags forbid it
 *   EAGAIN queue full                 EALREADY another thread is in this queue
 *   EBUSY  transfers still in flight  EOPNOTSUPP the provider cannot do this
 *   ENODEV no such provider here      ESTALE used after close
 *   EBADMSG not a descriptor          EPROTONOSUPPORT descriptor or peer of another version
 *   EXDEV  of another machine         ENOKEY the exporter knows no such region
 *   ENOTCONN the exporter is gone     ETIMEDOUT the exporter does not answer
 *   EPERM  the exporter refused       EOWNERDEAD opened before fork()
 *   EMEDIUMTYPE memory that could kill its user (not sealed, or shorter than it says), or that the
 *          provider's hardware cannot be given
 *   ENOMEM, EMFILE, ENFILE, ENOSPC    the system's own limits
 */
#ifndef DGKIT_H
#define DGKIT_H

#include <stddef.h>
#include <stdint.h>

#define DG_VERSION 1
#define DG_DESCRIPTOR_MAX 768
#define DG_DEPTH_MAX 65536
#define DG_FAILED 65536
#define DG_TICKET 131072

/* cdef: begin. What follows, up to the end mark, is also what cffi is told. */

typedef struct dg_device dg_device;
typedef struct dg_region dg_region;
typedef struct dg_queue dg_queue;
typedef struct dg_prep dg_prep;

enum dg_opcode { DG_READ = 0, DG_WRITE = 1 };
enum dg_wr_flag { DG_FENCE = 1, DG_CHAIN = 2 };
enum dg_access { DG_ACCESS_READ = 1, DG_ACCESS_WRITE = 2 };
enum dg_path { DG_PATH_AUTO = 0, DG_PATH_INLINE = 1, DG_PATH_WORKER = 2 };
enum dg_wc_flag { DG_SHARED_STAMP = 1, DG_LATE_STAMP = 2 };
enum dg_status {
	DG_OK = 0,
	DG_LOCAL_ERROR = 1,
	DG_REMOTE_ACCESS_ERROR = 2,
	DG_PEER_LOST = 3,
	DG_TIMED_OUT = 4,
	DG_FLUSHED = 5,
	DG_IO_FAILED = 6
};
enum dg_memory_flag { DG_MEMORY_READONLY = 1, DG_MEMORY_SHARE_PROCESS = 2, DG_MEMORY_MAY_FAULT = 4 };
enum dg_method {
	DG_METHOD_MAP = 0,
	DG_METHOD_VM = 1,
	DG_METHOD_PROXY = 2,
	DG_METHOD_GPU = 3,
	DG_METHOD_EXPORT_ONLY = 4, /* memory of another GPU than the device's: others import it */
	DG_METHOD_DOCA = 5 /* through a DOCA memory map */
};
enum dg_memory_kind { DG_KIND_HOST = 0, DG_KIND_CUDA_VMM = 1, DG_KIND_CUDA_IPC = 2, DG_KIND_CUDA_OWN = 3 };

/* A work record, 64 bytes. rows is 0 or 1 for one run of bytes; else `size` bytes a row, and the
 * rows lie `local_stride` and `remote_stride` bytes apart. DG_CHAIN joins a record to the one
 * after it: a chain is one operation with one completion, which carries the last record's `user`.
 * DG_FENCE: start only when all that was posted before is complete. Where source and target overlap,
 * what arrives is unspecified. */
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

/* A completion, 48 bytes. size is the bytes moved (all rows, all of a chain), 0 if status is not
 * DG_OK. DG_SHARED_STAMP: a stamp here was taken once for several operations of a batch.
 * DG_LATE_STAMP: complete_ns is when the queue was next looked at; the bytes were there before. */
typedef struct dg_wc {
	uint64_t user;
	uint64_t size;
	uint64_t submit_ns, post_ns, complete_ns;
	int32_t status;
	uint8_t op, path, flags, reserved;
} dg_wc;

/* Memory to register: `size` bytes at `addr`. With fd >= 0 they are also bytes fd_offset.. of a
 * sealed memfd, which importers then map; else importers reach them through this process.
 *
 * On a GPU `addr` is a device pointer, and the bytes are bytes fd_offset.. of a block of `block` bytes
 * that others import whole: CUDA virtual memory by its POSIX fd (DG_KIND_CUDA_VMM), what cudaMalloc
 * made by its CUDA IPC handle (DG_KIND_CUDA_IPC), or not at all (DG_KIND_CUDA_OWN). */
typedef struct dg_memory {
	void *addr;
	uint64_t size;
	int fd;
	uint32_t flags;
	uint64_t fd_offset;
	uint64_t block;
	uint32_t kind, reserved;
	uint8_t uuid[16]; /* the GPU's */
	uint8_t handle[64];
} dg_memory;

enum dg_fault_action { DG_FAULT_ERROR = 0, DG_FAULT_DELAY = 1, DG_FAULT_REORDER = 2, DG_FAULT_LOSE = 3 };

/* When an operation matches, `action` happens to it: ERROR completes it with `status` and copies
 * nothing, DELAY starts it delay_ns later, REORDER starts it after the next one, LOSE never
 * completes it. Matches: opcode in `ops` (bit 0 reads, bit 1 writes), min_size <= size <= max_size,
 * past the first `skip` such, then each `every`-th, at most `count` times (0: no limit), and with
 * probability ppm / 1,000,000 drawn from `seed`. */
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
	uint64_t spin_ns; /* how long an idle engine spins before it sleeps */
	const char *over; /* fault: the provider that it wraps */
	const dg_fault_rule *rules;
	uint32_t n_rules;
	uint32_t gpu; /* cuda: which one, counted from 0 */
	const char *pci; /* doca: the address of its function, as 03:00.0; NULL: the first that can */
} dg_device_config;

typedef struct dg_caps {
	char provider[32];
	char engine[96]; /* what copies, in words */
	uint64_t max_size;   /* of one transfer */
	uint64_t inline_max; /* largest copy that the path `auto` does at once */
	uint64_t spin_ns;    /* in force: 0 where spinning would harm */
	uint32_t ordered;    /* writes of one queue become visible in posting order */
	uint32_t max_queues;
} dg_caps;

typedef struct dg_region_info {
	uint64_t size;
	uint32_t id, access, remote, method;
	int32_t peer_pid;
	uint32_t revoked, lost, importers;
} dg_region_info;

typedef struct dg_rate {
	uint64_t ops, bytes, elapsed_ns, failed;
	uint64_t inlined; /* of ops: done by the caller */
} dg_rate;

/* The last error of this thread, as one sentence. Valid until its next failing call. */
const char *dg_last_error(void);
/* The name of the i-th provider that is built in, or NULL past the last. */
const char *dg_provider_name(uint32_t i);
/* 0 if the provider can be opened here; else a negative errno, why in dg_last_error(). Unless `deep`
 * it only looks whether its library is there: starting a GPU's driver takes a while. */
int dg_provider_probe(const char *provider, uint32_t deep);
uint64_t dg_now_ns(void);
/* The folder for sockets, made if need be: $XDG_RUNTIME_DIR/dgkit, else dgkit-UID in P_tmpdir. EPERM if it
 * is not ours alone (mode 0700). */
int dg_runtime_dir(char *out, size_t cap);
/* CPUs that this process may use at once: the smaller of affinity and cgroup quota, at least 1. */
uint32_t dg_cpus(void);

/* Opens a provider. Any thread. cfg may be NULL. ENODEV, EINVAL. */
int dg_device_open(const char *provider, const dg_device_config *cfg, dg_device **out);
/* Closes what is left of its queues and regions, then the device. EBUSY: a region is still in
 * use after timeout_ns; the device stays open and the call may be made again. */
int dg_device_close(dg_device *dev, uint64_t timeout_ns);
int dg_device_caps(dg_device *dev, dg_caps *out);

/* Registers memory in place; it must stay valid until dg_region_close() returned 0. */
int dg_region_register(dg_device *dev, const dg_memory *mem, uint32_t access, dg_region **out);
/* Writes the descriptor to buf and returns its length. access may narrow the region's own. */
int dg_region_export(dg_region *r, uint32_t access, uint8_t *buf, size_t cap);
/* Makes a remote region of a descriptor, which may come from this process or another. */
int dg_region_import(dg_device *dev, const uint8_t *desc, size_t len, uint64_t timeout_ns, dg_region **out);
/* Revokes, waits for transfers in flight here and at each importer, then frees r. EBUSY after
 * timeout_ns: new transfers stay refused, r stays valid, the call may be made again. */
int dg_region_close(dg_region *r, uint64_t timeout_ns);
int dg_region_info_get(dg_region *r, dg_region_info *out);
/* 1 if a file that can shrink lies under these bytes (that would raise SIGBUS: register them with
 * DG_MEMORY_MAY_FAULT, and they are copied by a system call that fails instead); else 0. */
int dg_memory_may_fault(const void *addr, uint64_t size);
/* Checks a descriptor's bytes and says how many are its own. Touches no socket. EBADMSG... */
int dg_descriptor_check(const uint8_t *desc, size_t len);
/* EMEDIUMTYPE unless fd is a memfd sealed against shrinking and holds at least `size` bytes. */
int dg_memfd_check(int fd, uint64_t size);

/* depth: posted operations that were not yet reaped, 1 to DG_DEPTH_MAX. op_timeout_ns: when an
 * operation without completion ends as DG_TIMED_OUT. One thread at a time; others get EALREADY. */
int dg_queue_open(dg_device *dev, uint32_t depth, uint32_t path, uint64_t spin_ns,
		  uint64_t op_timeout_ns, dg_queue **out);
/* Quiesces the provider; what was pending is FLUSHED. Completions can still be taken; posting gives
 * ESTALE. Closing again does nothing. The handle stays valid until dg_queue_free(). */
int dg_queue_close(dg_queue *q);
/* Closes, then gives the handle back. Never EALREADY: the caller says that nobody else uses it. */
void dg_queue_free(dg_queue *q);
/* Readable when a completion is there and dg_queue_arm() returned 1. Owned by the queue. */
int dg_queue_fileno(dg_queue *q);
/* 1: armed, the fd will be written. 0: completions are there already. Clears the fd first. Poll
 * until nothing is there, then arm: what an earlier call brought along does not count here. */
int dg_queue_arm(dg_queue *q);
/* Posts n records whole or not at all. Their completions come from dg_queue_poll. */
int dg_queue_post(dg_queue *q, const dg_wr *wr, uint32_t n);
/* Takes up to n completions of posted records, waiting up to timeout_ns for the first. */
int dg_queue_poll(dg_queue *q, dg_wc *wc, uint32_t n, uint64_t timeout_ns);
/* Posts n records and reaps all n: dg_queue_post and dg_queue_poll in one crossing.
 * Returns the count of completions, one a chain. */
int dg_queue_run(dg_queue *q, const dg_wr *wr, uint32_t n, dg_wc *wc, uint64_t timeout_ns);
/* Posted operations that were not yet reaped. */
int dg_queue_pending(dg_queue *q);

/* Transfers: operations whose completion does not come from dg_queue_poll but goes to the queue's
 * sink, the next free one of wc[0..n). Where it went is an index into the sink; DG_FAILED is added
 * to it if the status is not DG_OK. A full sink gives -ENOSPC: set a new one and call again. */
int dg_queue_sink(dg_queue *q, dg_wc *wc, uint32_t n);
/* Posts. Below DG_TICKET: complete already, there in the sink. Else a ticket, which holds one of
 * the queue's places until it was waited for or dropped, and is good for no other call after that. */
int64_t dg_transfer_write(dg_queue *q, uint32_t local, uint32_t remote, uint64_t size, uint64_t local_offset,
			  uint64_t remote_offset);
int64_t dg_transfer_read(dg_queue *q, uint32_t local, uint32_t remote, uint64_t size, uint64_t local_offset,
			 uint64_t remote_offset);
/* Either, with DG_FENCE or without: two arguments more, and each costs a caller in Python. */
int64_t dg_transfer_post(dg_queue *q, uint32_t op, uint32_t local, uint32_t remote, uint64_t size,
			 uint64_t local_offset, uint64_t remote_offset, uint32_t flags);
/* The same for n records that form one chain or one strided transfer. */
int64_t dg_transfer_post_wr(dg_queue *q, const dg_wr *wr, uint32_t n);
/* Waits for the completion and puts it into the sink. -ETIME if it is not there within timeout_ns. */
int64_t dg_transfer_wait_for(int64_t ticket, uint64_t timeout_ns);
/* The same without a limit but the queue's op_timeout: one argument is what Python passes fastest. */
int64_t dg_transfer_wait(int64_t ticket);
/* Gives the ticket up: its completion, now or later, is dropped. */
int dg_transfer_drop(int64_t ticket);

/* A prepared operation: the checks of wr are paid once. Usable until its queue is closed. */
int dg_prep_open(dg_queue *q, const dg_wr *wr, uint32_t n, dg_prep **out);
int dg_prep_close(dg_prep *p);
/* Posts and waits. 0, or a dg_status > 0, or a negative errno. *dg_prep_wc() has the last one. */
int dg_prep_run(dg_prep *p);
/* Posts; the completions come from dg_queue_poll. */
int dg_prep_post(dg_prep *p);
/* The completions of the last run: as many as records without DG_CHAIN. Owned by p. */
const dg_wc *dg_prep_wc(dg_prep *p);

/* `count` runs of p one after another; samples_ns[i] is from before submit to after reap. Returns
 * how many were taken; stops at the first failure, whose status is in *status. */
int dg_measure_latency(dg_prep *p, uint32_t count, uint64_t *samples_ns, int32_t *status);
/* Keeps `window` of the n records in flight, round and round, for duration_ns. */
int dg_measure_rate(dg_queue *q, const dg_wr *wr, uint32_t n, uint32_t window, uint64_t duration_ns,
		    dg_rate *out);
/* The floor under a transfer on this machine, now: a second thread sees a doorbell, copies `size`
 * bytes with memcpy, sets a flag (handoff != 0); or one memcpy here (handoff == 0). */
int dg_measure_floor(uint32_t handoff, uint64_t size, uint32_t count, uint64_t *samples_ns);
/* The floor under p, an operation of one record, by its provider's own calls alone: no queue, no
 * checks. samples_ns[i] is from the end of copy i - 1 to that of copy i, with `window` in flight.
 * EOPNOTSUPP where the provider has none. Gives how many. */
int dg_measure_bare(dg_prep *p, uint32_t count, uint32_t window, uint64_t *samples_ns);
/* Copies with method `method` (0 memcpy, then those built in); its name, or NULL past the last. */
const char *dg_copy_method(uint32_t method);
int dg_copy_with(uint32_t method, void *dst, const void *src, uint64_t size);

/* A completion callback for DOCA, by its address: stores 1 into the uint32_t that task_data points to.
 * DOCA passes a `union doca_data` by value; a uint64_t goes in the same register. */
void dg_doca_note(void *task, uint64_t task_data, uint64_t ctx_data);
/* Who has loaded softdoca calls it with the address of its softdoca_share_pins, or NULL: CUDA registers
 * memory once in a process, and softdoca and this core then have one list of it. */
void dg_softdoca_join(void *share_pins);

/* cdef: end. */

#endif
