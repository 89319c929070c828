// SPDX-License-Identifier: Apache-2.0
/* Keys of memory maps for the software NIC, which entries that a kernel posts name. */
#include <errno.h>

#include "doca_rdma_bridge.h"
#include "memory.h"
#include "nic.h"

/* As an adapter, which grants nothing to a peer that it does not grant to the device itself. */
static unsigned ibv_access(uint32_t permissions)
{
	unsigned access = mmap_access(permissions) & DG_ACCESS_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0;
	if (permissions & DOCA_ACCESS_FLAG_RDMA_READ)
		access |= IBV_ACCESS_REMOTE_READ;
	if (permissions & DOCA_ACCESS_FLAG_RDMA_WRITE)
		access |= IBV_ACCESS_REMOTE_WRITE;
	if (permissions & DOCA_ACCESS_FLAG_RDMA_ATOMIC)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	return access;
}

static doca_error_t make(const struct doca_mmap *m, struct attachment *a)
{
	struct ibv_pd *pd;
	doca_error_t error = doca_rdma_bridge_get_dev_pd(a->dev, &pd);
	if (error)
		return error;
	a->mr = softdoca_ibv_reg(pd, m->base ? m->base : m->addr, m->len, (uintptr_t)m->addr,
				 ibv_access(m->permissions));
	if (a->mr)
		return DOCA_SUCCESS;
	return REFUSE(errno == ENOMEM ? DOCA_ERROR_NO_MEMORY : DOCA_ERROR_DRIVER,
		      "the software NIC cannot access %zu bytes at %p", m->len, (void *)m->addr);
}

doca_error_t softdoca_mmap_key(struct doca_mmap *m, uint32_t *key)
{
	struct attachment *a = &m->attached[0];
	if (!mmap_started(m) || !m->n_attached)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the map is not started, or has no device");
	if (m->from_export)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "the software NIC has no keys for maps created from an export");
	pthread_mutex_lock(&m->lock);
	doca_error_t error = a->mr ? DOCA_SUCCESS : make(m, a);
	if (!error)
		*key = a->mr->lkey;
	pthread_mutex_unlock(&m->lock);
	return error;
}

void mmap_key_drop(struct attachment *a)
{
	if (a->mr)
		softdoca_ibv_dereg(a->mr);
	a->mr = NULL;
}
