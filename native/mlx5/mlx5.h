/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ConnectX adapters in software, for programs that use the libibverbs and libmlx5 of rdma-core.
 *
 * libmlx5 writes work queue entries and doorbell records into memory of the program, where the NIC of
 * the core (src/nic.h) finds them. What it asks of the kernel, by write(2) and ioctl(2) on
 * /dev/infiniband/uverbsN, is answered here, in the process itself.
 *
 * Calls go down only:
 *
 *	paths.c           the program's paths below /sys and /dev that lead to the adapter's folder
 *	preload.c         the system calls of the program; which descriptors belong to the adapter; events
 *	uverbs.c          write(2): headers, lengths and addresses, as ib_uverbs checks them
 *	uverbs_ioctl.c    ioctl(2): attributes, in the same way; doorbell pages, dma-bufs
 *	devx.c            commands in the adapter's own format (DEVX), and the memory that they name
 *	devx_event.c      events of what these make
 *	ucma.c            the same on /dev/infiniband/rdma_cm: connections by addresses (ucma.h)
 *	uverbs_context.c  commands about the device, the port, a context
 *	uverbs_qp.c       commands about queue pairs
 *	uverbs_srq.c      commands about shared receive queues and XRC domains
 *	uverbs_object.c   handles; commands about protection domains, memory regions and windows, CQs
 *	cuda_calls.c      GPU memory of the program gets a handle by which peers import it
 *	pages.c           registered memory: checks; pages shared with the adapter's other processes
 *	observer.c        what the NIC does, for the three below; faults by rule: `dgkit mlx5 run --fault`, `--trace`
 *	trace.c, roce.c   the lines of a trace; its packets
 *	counters.c        counters of the ports
 *
 * All processes of a user see the same adapters: a NIC each, which are parts of one (dg_nic_open_part()). The
 * adapters of a process differ in what they are asked for (names, GUIDs), and have one NIC.
 * A child after fork() has nothing of what its parent opened: commands fail with EIO. It may open the adapter
 * itself. One lock guards everything here; the
 * NIC has its own.
 */
#ifndef DG_MLX5_H
#define DG_MLX5_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "dgkit.h"

/* What identifies the adapter: as in the sysfs tree of dgkit/software_adapter.py. */
#define NODE_GUID 0x0200000000000001ull /* of mlx5_0; the next adapter has the next */
#define FIRMWARE (28ull << 32 | 43ull << 16 | 1000) /* 28.43.1000 */

enum {
	MAX_ADAPTERS = 8, /* as in dgkit/software_adapter.py */
	MAX_FDS = 65536,
	MAX_OBJECTS = 49152, /* more than all of those below together: a free handle is searched for */
	MAX_UARS = 1024,
	MAX_UMEMS = 2048,
	MAX_CQS = 8192,
	MAX_PDS = 8192,
	MAX_XRCDS = 1024,
	MAX_SRQS = 1024,
	MAX_AHS = 8192,
	MAX_SGES = 30, /* of a send queue: as ConnectX adapters have */
	MAX_SRQ_SGES = DG_NIC_SGES - 1, /* the links of the list take the place of one */
	MAX_QP_RD_ATOM = 16,
};

/* Bits of attr_mask: enum ib_qp_attr_mask of the kernel. */
enum {
	STATE = 1 << 0,
	CURRENT_STATE = 1 << 1,
	ACCESS = 1 << 3,
	PKEY_INDEX = 1 << 4,
	PORT = 1 << 5,
	QKEY = 1 << 6,
	PATH = 1 << 7, /* IB_QP_AV */
	MTU = 1 << 8,
	TIMEOUT = 1 << 9,
	RETRIES = 1 << 10,
	RNR_RETRIES = 1 << 11,
	RQ_PSN = 1 << 12,
	RD_ATOMIC = 1 << 13,
	RNR_TIMER = 1 << 15,
	SQ_PSN = 1 << 16,
	DEST_RD_ATOMIC = 1 << 17,
	DEST_QPN = 1 << 20
};

/* A pipe of events, whose reading end is the program's: of CQs, or asynchronous ones. users: the descriptor, and
 * CQs or a context. */
struct channel {
	uint64_t inode; /* of the pipe: the descriptor may be another file's by now */
	int fd, write_fd;
	uint32_t users;
	bool is_async;
};

/* An open descriptor of the device. async: NULL before GET_CONTEXT. */
struct context {
	int fd;
	pid_t pid; /* the process that opened it: a child has none of its objects */
	uint32_t adapter; /* 0: mlx5_0 */
	bool has_devx; /* as asked for */
	struct channel *async;
};

/* KIND_ANY, KIND_DEVX: only to find an object, the latter one that a command of DEVX made. */
enum kind { KIND_NONE, KIND_UAR, KIND_UMEM, KIND_PD, KIND_XRCD, KIND_AH, KIND_MW, KIND_MR, KIND_CQ, KIND_SRQ, KIND_QP,
	    KIND_ANY, KIND_DEVX };

/* What a handle of the program names. users: objects that depend on it; uses: on which a DEVX object depends. event:
 * what the NIC writes as its name, with a count, which tells its events from those of an earlier one; user_handle:
 * what the program reads instead. */
struct object {
	enum kind kind;
	bool is_devx;
	uint32_t handle, users;
	struct object *uses[3];
	void *ring; /* of DEVX: a copy of one on a GPU, or NULL */
	struct context *context;
	uint64_t event, user_handle;
	uint32_t async_reported;
};

/* Memory for rings and doorbell records that commands of DEVX name. */
struct umem {
	struct object o;
	uint64_t start, size;
	bool is_on_gpu;
};

struct ah {
	struct object o;
	struct object *pd;
};

struct mr {
	struct object o;
	struct object *pd;
	dg_region *region;
	uint64_t start, length, address; /* address: of the first byte in entries */
	uint32_t access, key;
	struct pages *pages;
	int gpu_fd; /* of the block of GPU memory that it is in, or -1 */
	bool is_dmabuf;
};

struct mw {
	struct object o;
	struct object *pd;
	uint32_t key;
};

struct cq {
	struct object o;
	dg_nic_cq *nic_cq;
	struct channel *channel; /* NULL: no events */
	uint32_t reported, entry_size, number;
};

/* number: of the domain, which contexts that open it by the same file share; dev, ino: of the file, or 0. */
struct xrcd {
	struct object o;
	uint32_t number;
	dev_t dev;
	ino_t ino;
};

/* xrcd, cq: of a queue for XRC. */
struct srq {
	struct object o;
	struct object *pd;
	struct xrcd *xrcd;
	struct cq *cq;
	dg_nic_srq *nic_srq;
	uint32_t max_wr, max_sge;
};

/* pd: of an XRC_RECV, its XRC domain; it has no CQs. */
struct qp {
	struct object o;
	struct object *pd;
	struct cq *send_cq, *receive_cq;
	struct srq *srq; /* or NULL */
	dg_nic_qp *nic_qp;
	uint32_t transport; /* enum dg_nic_transport */
	uint32_t number;
	struct ib_uverbs_query_qp_resp attributes;
	uint8_t devx_context[232]; /* as DEVX created it, or zeros */
};

/* A command. in, driver: copies of what the program gave, with zeros behind; out: what it gets. */
struct call {
	struct context *context;
	enum kind destroys;
	_Alignas(8) uint8_t in[512], driver[256], out[512];
	size_t out_size;
};

/* preload.c */
/* Take the lock, and give it back. */
void dg_mlx5_enter(void);
void dg_mlx5_leave(void);
/* Returns how many adapters the program sees. */
uint32_t dg_mlx5_adapters(void);
/* Returns the channel of the connection manager with this descriptor, or NULL. */
struct cm_channel *dg_mlx5_cm_channel(int fd);
/* Returns the channel with this descriptor, or NULL. */
struct channel *dg_mlx5_channel(int fd);
/* Makes a channel, and returns its descriptor or a negative errno. */
int dg_mlx5_channel_open(bool is_async);
void dg_mlx5_channel_put(struct channel *c);
/* Takes the unread events of an object out of the channel: it is destroyed, and sends no more. */
void dg_mlx5_channel_drop(const struct channel *c, uint64_t event);
/* The C library's close(2), for descriptors that are ours. */
int dg_mlx5_close(int fd);

/* uverbs.c, uverbs_ioctl.c: run with the lock held, and return 0 or a negative errno. */
/* Copies bytes of this process, which may not exist. write: to the address. */
int dg_mlx5_copy_user(void *ours, uint64_t address, size_t size, bool write);
int dg_mlx5_write(struct context *x, const void *command, size_t size);
int dg_mlx5_ioctl(struct context *x, const void *request);

/* devx_event.c */
void dg_mlx5_events_forked(void);

/* ucma.c: as uverbs.c */
/* Makes a channel. Returns its descriptor, which the functions below do not close, or a negative errno. */
int dg_mlx5_cm_open(struct cm_channel **out);
void dg_mlx5_cm_close(struct cm_channel *c);
void dg_mlx5_cm_forked(void);
/* -EAGAIN: there is no event; -EINPROGRESS, if `waits`: no process listens where to connect to. */
int dg_mlx5_cm_write(struct cm_channel *c, const void *command, size_t size, bool waits);

/* uverbs_context.c */
/* Return the NIC of this process and its device, or NULL before the first context. */
dg_nic *dg_mlx5_nic(void);
dg_device *dg_mlx5_device(void);
void dg_mlx5_close_nic(void);
/* In the child of a fork, as are the others of this name: forgets the parent's. */
void dg_mlx5_nic_forked(void);
int dg_mlx5_get_context(struct call *c);
int dg_mlx5_query_device(struct call *c);
int dg_mlx5_query_device_ex(struct call *c);
int dg_mlx5_query_port(struct call *c);
int dg_mlx5_create_channel(struct call *c);

/* uverbs_qp.c */
/* Opens the queue pair in the NIC, with the parts that *q names, and counts these. Returns 0 or a negative errno. */
int dg_mlx5_qp_open(struct qp *q, dg_nic_qp_config *c);
/* Stores the state as the NIC has it: an entry may have ended the queue pair. */
void dg_mlx5_qp_load_state(struct qp *q);
/* Returns what a queue pair of this transport may be given (attr_mask). */
uint32_t dg_mlx5_qp_known(const struct qp *q);
int dg_mlx5_qp_modify(struct qp *q, struct ib_uverbs_modify_qp *m);
int dg_mlx5_create_qp(struct call *c);
int dg_mlx5_create_qp_ex(struct call *c);
int dg_mlx5_modify_qp(struct call *c);
int dg_mlx5_modify_qp_ex(struct call *c);
int dg_mlx5_query_qp(struct call *c);
int dg_mlx5_destroy_qp(struct call *c);

/* uverbs_srq.c */
int dg_mlx5_open_xrcd(struct call *c);
int dg_mlx5_create_srq(struct call *c);
int dg_mlx5_create_xsrq(struct call *c);
int dg_mlx5_modify_srq(struct call *c);
int dg_mlx5_query_srq(struct call *c);
int dg_mlx5_destroy_srq(struct call *c);

/* uverbs_object.c */
/* Gives an object a handle. Returns 0 or a negative errno. */
int dg_mlx5_add(struct context *x, struct object *o, enum kind kind);
/* Stores a new object of `size` bytes, zeroed, which has a handle. Returns 0 or a negative errno. */
int dg_mlx5_new(struct context *x, size_t size, enum kind kind, void *out);
/* Returns the object with this handle, or NULL, also for one of DEVX. x: NULL for one of any context. */
void *dg_mlx5_find(const struct context *x, uint32_t handle, enum kind kind);
/* The same with KIND_ANY and KIND_DEVX. */
struct object *dg_mlx5_find_any(const struct context *x, uint32_t handle, enum kind kind);
/* Has an object depend on another one until it is removed. */
void dg_mlx5_use(struct object *o, struct object *used);
/* Takes back the handle, and frees the object. */
void dg_mlx5_remove(struct object *o);
/* Destroys an object of any kind. Returns 0 or a negative errno. */
int dg_mlx5_destroy(struct object *o);
/* Destroys everything that a context has. */
void dg_mlx5_destroy_all(const struct context *x);
void dg_mlx5_objects_forked(void);
/* Returns the object whose event this is, or NULL if it is destroyed. */
struct object *dg_mlx5_event_object(uint64_t event);
/* Returns whether the bytes are on a GPU, which the NIC is then ready for, or a negative errno. */
int dg_mlx5_is_on_gpu(uint64_t start, uint64_t length);
/* Whether no region has any of these bytes. */
bool dg_mlx5_is_alone(uint64_t start, uint64_t length);
int dg_mlx5_alloc_pd(struct call *c);
int dg_mlx5_create_ah(struct call *c);
int dg_mlx5_reg_mr(struct call *c);
/* Registers memory; address: of its first byte in entries. is_dmabuf: it is on a GPU, or the call fails. */
int dg_mlx5_add_mr(struct context *x, uint32_t pd_handle, uint64_t start, uint64_t length, uint64_t address,
		   uint32_t access, bool is_dmabuf, struct mr **out);
int dg_mlx5_rereg_mr(struct call *c);
int dg_mlx5_alloc_mw(struct call *c);
int dg_mlx5_create_cq(struct call *c);
int dg_mlx5_create_cq_ex(struct call *c);
int dg_mlx5_resize_cq(struct call *c);
int dg_mlx5_destroy_cq(struct call *c);

/* observer.c */
/* The element of an asynchronous event of a port, which is the port's number: no object has it. */
enum { PORT_EVENT = 1 };
/* Whether the adapter's port is up: a rule may have put it down for a while. */
bool dg_mlx5_port_is_up(uint32_t adapter);
/* Has the NIC count, inject the faults and write the trace that the environment asks for. Returns 0 or a negative errno. */
int dg_mlx5_observe(dg_nic *n);

/* roce.c */
/* Stores what packets of a queue pair need, before it sends: bytes of a packet (0: no packets are written), the
 * first sequence number. */
void dg_mlx5_roce_path(uint32_t qpn, uint32_t mtu, uint32_t psn, bool unreliable);

/* counters.c */
/* Stores who the ends of a queue pair are, and the bytes of a packet (0: unknown). */
void dg_mlx5_counters_path(uint32_t qpn, uint32_t adapter, const uint8_t far_gid[16], uint32_t mtu);
/* Returns the adapter of a queue pair. */
uint32_t dg_mlx5_counters_adapter(uint32_t qpn);
/* Writes the file of a counter with this path in the adapter's folder anew; other paths are ignored. */
void dg_mlx5_counters_refresh(const char *path);

/* pages.c */
/* Fills a dg_memory for the bytes, with the file of their pages if they are shared. may_share: no other
 * region has any of the bytes. Returns 0, or -EFAULT if the program itself cannot access them. */
int dg_mlx5_memory(uint64_t start, uint64_t length, bool writes, bool may_share, dg_memory *out,
		   struct pages **pages);
/* Whether the program itself can read and write the bytes: the NIC's thread is one of its own. */
bool dg_mlx5_is_writable(uint64_t start, uint64_t length);
/* The same for reading, or, if `writes`, for both. */
bool dg_mlx5_is_accessible(uint64_t start, uint64_t length, bool writes);
/* Drops a reference to shared pages; NULL is ignored. The pages become private again with the last one, or
 * as soon after it as the program has no other thread. */
void dg_mlx5_pages_put(struct pages *p);
/* Whether all threads but the calling one are the core's own. */
bool dg_mlx5_is_single_threaded(void);
bool dg_mlx5_has_pages(void);
/* In the child of a fork: gives it pages of its own, as fork() does with private memory. The parent must
 * not write to them meanwhile. */
void dg_mlx5_pages_forked(void);

#endif
