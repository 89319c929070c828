/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The software NIC of this process (nic/soft_nic.c), and the objects of libibverbs over it
 * (nic/ibv.c). libdoca_verbs, libdoca_gpunetio and the libibverbs in ibverbs/ use both.
 */
#ifndef SOFTDOCA_SOFT_NIC_H
#define SOFTDOCA_SOFT_NIC_H

#include <infiniband/verbs.h>

#include "base/base.h"

/* soft_nic.c: opens the NIC, or uses the open one; each user drops it once. It moves GPU memory only if
 * the process created a GPU before the first user. */
SOFTDOCA_INTERNAL doca_error_t softdoca_nic_take(dg_nic **out);
SOFTDOCA_INTERNAL void softdoca_nic_drop(void);
/* Registers the handlers of fork(), once; for users that call softdoca_nic_drop() with a lock held,
 * whose handlers are registered after these. */
void softdoca_nic_watch_forks(void);
/* The device of the open NIC. */
dg_device *nic_device(void);

/* The core's functions, which only libdoca_common contains. */
struct nic_functions {
	int (*cq_open)(dg_nic *, const dg_nic_cq_config *, dg_nic_cq **);
	int (*cq_number)(dg_nic_cq *, uint32_t *);
	int (*cq_close)(dg_nic_cq *);
	int (*qp_open)(dg_nic *, const dg_nic_qp_config *, dg_nic_qp **);
	int (*qp_modify)(dg_nic_qp *, uint32_t, const dg_nic_address *, uint32_t);
	int (*qp_set_doorbell)(dg_nic_qp *, uint32_t, uint64_t *, uint64_t *);
	int (*qp_info_get)(dg_nic_qp *, dg_nic_qp_info *);
	int (*qp_close)(dg_nic_qp *);
	int (*qp_lay_out)(dg_nic_qp *, void *);
};
extern SOFTDOCA_INTERNAL const struct nic_functions softdoca_nic;

/* Objects of libibverbs: what the program gets is the member v. */
struct nic_device {
	struct object o;
	_Alignas(64) struct ibv_device v;
	struct nic_device *next;
};

struct nic_context {
	struct object o;
	_Alignas(64) struct ibv_context v;
	dg_nic *nic;
	atomic_uint users; /* protection domains */
};

struct nic_pd {
	struct object o;
	_Alignas(64) struct ibv_pd v;
	atomic_uint users; /* memory regions and queue pairs */
};

/* Returns the object whose member v the program's pointer points to; NULL if it is not of this
 * kind. */
static inline void *nic_object(const void *p, enum object_kind kind)
{
	void *at = (void *)((uintptr_t)p - 64);
	return object_is(at, kind) ? at : NULL;
}
_Static_assert(offsetof(struct nic_context, v) == 64 && offsetof(struct nic_pd, v) == 64,
	       "as above");

static inline struct nic_context *nic_context(const struct ibv_context *p)
{
	return nic_object(p, OBJECT_IBV_CONTEXT);
}

static inline struct nic_pd *nic_pd(const struct ibv_pd *p)
{
	return nic_object(p, OBJECT_IBV_PD);
}

/* ibv.c: what the functions of libibverbs with these names do. Failures: NULL or an errno, logged
 * with the name of the function. */
SOFTDOCA_INTERNAL struct ibv_device **softdoca_ibv_list(int *n);
SOFTDOCA_INTERNAL struct ibv_context *softdoca_ibv_open(struct ibv_device *device);
SOFTDOCA_INTERNAL int softdoca_ibv_close(struct ibv_context *context);
SOFTDOCA_INTERNAL int softdoca_ibv_gid(struct ibv_context *context, union ibv_gid *gid);
SOFTDOCA_INTERNAL struct ibv_pd *softdoca_ibv_alloc_pd(struct ibv_context *context);
SOFTDOCA_INTERNAL int softdoca_ibv_dealloc_pd(struct ibv_pd *pd);
SOFTDOCA_INTERNAL struct ibv_mr *softdoca_ibv_reg(struct ibv_pd *pd, void *addr, size_t length,
						  uint64_t iova, unsigned access);
/* Of another process's region, whose descriptor was imported, for peers only. */
SOFTDOCA_INTERNAL struct ibv_mr *softdoca_ibv_reg_import(struct ibv_pd *pd, const uint8_t *descriptor,
							 size_t bytes, void *addr, size_t length,
							 unsigned access);
SOFTDOCA_INTERNAL struct ibv_mr *softdoca_ibv_reg_fd(struct ibv_pd *pd, uint64_t offset,
						     size_t length, uint64_t iova, int fd,
						     unsigned access);
SOFTDOCA_INTERNAL int softdoca_ibv_dereg(struct ibv_mr *mr);

#endif
