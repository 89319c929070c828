// SPDX-License-Identifier: Apache-2.0
/* Keys of maps for an RDMA adapter. */
#include <errno.h>
#include <string.h>

#include "device/adapter.h"
#include "memory.h"

doca_error_t adapter_key_make(struct doca_mmap *m, unsigned flags)
{
	struct adapter *a;
	TRY(softdoca_dev_adapter(m->attached[0].dev, &a));
	if (m->backing != BACKING_HOST || m->base != m->addr)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "%s: only maps of host memory by its address can be used with an adapter",
			      a->d->name);
	m->mr = dg_verbs.ibv_reg_mr(a->pd, m->base, m->len, (int)flags);
	if (m->mr)
		return DOCA_SUCCESS;
	return REFUSE(errno == ENOMEM ? DOCA_ERROR_NO_MEMORY : DOCA_ERROR_DRIVER,
		      "%s cannot register %zu bytes at %p: %s", a->d->name, m->len, (void *)m->addr,
		      strerror(errno));
}

void adapter_key_drop(struct doca_mmap *m)
{
	dg_verbs.ibv_dereg_mr(m->mr);
}

doca_error_t adapter_gid(struct doca_dev *dev, uint8_t gid[16])
{
	struct adapter *a;
	dg_qp_address address;
	TRY(softdoca_dev_adapter(dev, &a));
	const int rc = dg_verbs_port_address(a->d, &address);
	if (rc)
		return softdoca_failed("doca_mmap_export_rdma", rc);
	memcpy(gid, address.gid, sizeof address.gid);
	return DOCA_SUCCESS;
}
