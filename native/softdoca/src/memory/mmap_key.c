// SPDX-License-Identifier: Apache-2.0
/* Keys of memory maps, by which entries name memory to the software NIC or to an adapter (adapter_key.c). */
#include <errno.h>
#include <string.h>

#include "doca_rdma_bridge.h"
#include "gpu/gpu.h"
#include "memory.h"
#include "nic/soft_nic.h"

/* Remote writes and atomic operations need LOCAL_WRITE, too, as in ibv_reg_mr(). */
static unsigned ibv_access(const struct doca_mmap *m)
{
	const uint32_t permissions = mmap_rdma_permissions(m);
	unsigned access = mmap_access(permissions) & DG_ACCESS_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0;
	if (permissions & DOCA_ACCESS_FLAG_RDMA_READ)
		access |= IBV_ACCESS_REMOTE_READ;
	if (permissions & DOCA_ACCESS_FLAG_RDMA_WRITE)
		access |= IBV_ACCESS_REMOTE_WRITE;
	if (permissions & DOCA_ACCESS_FLAG_RDMA_ATOMIC)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	return access;
}

/* Guards the list. Registered for fork() by a constructor, so that fork() takes it after the locks of
 * Comch, whose thread holds maps under its own lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct doca_mmap *keyed;

FORK_HANDLERS(lock)

static void __attribute__((constructor)) watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

static doca_error_t make_key(struct doca_mmap *m)
{
	struct ibv_pd *pd;
	if (dev_is_adapter(m->attached[0].dev))
		return adapter_key_make(m, ibv_access(m));
	TRY(doca_rdma_bridge_get_dev_pd(m->attached[0].dev, &pd));
	const struct export_bytes *d = &m->attached[0].desc[EXPORT_PCI];
	m->mr = m->from_export
			? softdoca_ibv_reg_import(pd, d->bytes, d->len, m->addr, m->len, ibv_access(m))
			: softdoca_ibv_reg(pd, m->base ? m->base : m->addr, m->len,
					   (uintptr_t)m->addr, ibv_access(m));
	if (m->mr && !m->from_export) {
		gpu_count_map(m->mr->addr, m->len, true);
		pthread_mutex_lock(&lock);
		m->next_keyed = keyed;
		keyed = m;
		pthread_mutex_unlock(&lock);
	}
	if (m->mr)
		return DOCA_SUCCESS;
	return REFUSE(errno == ENOMEM ? DOCA_ERROR_NO_MEMORY : DOCA_ERROR_DRIVER,
		      "the software NIC cannot access %zu bytes at %p", m->len, (void *)m->addr);
}

static doca_error_t key_of(struct doca_mmap *m, uint32_t *key)
{
	pthread_mutex_lock(&m->key_lock);
	doca_error_t error = m->mr ? DOCA_SUCCESS : make_key(m);
	if (!error)
		*key = m->mr->lkey;
	pthread_mutex_unlock(&m->key_lock);
	return error;
}

doca_error_t softdoca_mmap_key(struct doca_mmap *m, uint32_t *key)
{
	if (!mmap_started(m) || !m->n_attached)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the map is not started, or has no device");
	if (!m->from_export)
		return key_of(m, key);
	if (!m->key)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "the map is from an export for PCI: the NIC has no key for it");
	*key = m->key;
	return DOCA_SUCCESS;
}

doca_error_t softdoca_mmap_remote_key(struct doca_mmap *m, uint32_t *key, uint8_t gid[16])
{
	union ibv_gid found;
	TRY(key_of(m, key)); /* registers the memory and stores the lkey */
	*key = m->mr->rkey;
	if (dev_is_adapter(m->attached[0].dev))
		return adapter_gid(m->attached[0].dev, gid);
	if (softdoca_ibv_gid(m->mr->context, &found))
		return REFUSE(DOCA_ERROR_DRIVER, "the software NIC has no GID");
	memcpy(gid, found.raw, sizeof found.raw);
	return DOCA_SUCCESS;
}

struct doca_mmap *softdoca_mmap_hold(uint32_t key)
{
	pthread_mutex_lock(&lock);
	struct doca_mmap *m = keyed;
	while (m && m->mr->lkey != key)
		m = m->next_keyed;
	if (!m)
		pthread_mutex_unlock(&lock);
	return m;
}

void softdoca_mmap_let_go(void)
{
	pthread_mutex_unlock(&lock);
}

void mmap_key_drop(struct doca_mmap *m)
{
	struct doca_mmap **at = &keyed;
	if (!m->mr)
		return;
	if (dev_is_adapter(m->attached[0].dev)) {
		adapter_key_drop(m);
		m->mr = NULL;
		return;
	}
	if (!m->from_export) {
		pthread_mutex_lock(&lock);
		while (*at != m)
			at = &(*at)->next_keyed;
		*at = m->next_keyed;
		pthread_mutex_unlock(&lock);
		gpu_count_map(m->mr->addr, m->len, false);
	}
	softdoca_ibv_dereg(m->mr);
	m->mr = NULL;
}
