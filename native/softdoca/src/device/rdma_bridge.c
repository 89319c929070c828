// SPDX-License-Identifier: Apache-2.0
/* Bridges from protection domains of libibverbs to DOCA's devices, and back. */
#include "doca_rdma_bridge.h"

#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "nic/soft_nic.h"

doca_error_t doca_rdma_bridge_open_dev_from_pd(struct ibv_pd *pd, struct doca_dev **dev)
{
	struct doca_devinfo **list;
	uint32_t n, i = 0;
	CHECK_OUT(dev);
	if (!nic_pd(pd))
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%p is not a protection domain of softdoca's libibverbs", (void *)pd);
	TRY(doca_devinfo_create_list(&list, &n));
	while (i < n && strcmp(list[i]->f.ibdev, pd->context->device->name))
		i++;
	doca_error_t error = i < n ? doca_dev_open(list[i], dev)
				   : REFUSE(DOCA_ERROR_NOT_FOUND, "this process has no device %s",
					    pd->context->device->name);
	doca_devinfo_destroy_list(list);
	if (!error)
		softdoca_dev_pd(*dev, pd, false);
	return error;
}

static struct ibv_pd *pd_new(const char *name)
{
	int n = 0;
	struct ibv_pd *pd = NULL;
	struct ibv_device **list = softdoca_ibv_list(&n);
	for (int i = 0; i < n && !pd; i++) {
		struct ibv_context *c =
			strcmp(list[i]->name, name) ? NULL : softdoca_ibv_open(list[i]);
		pd = c ? softdoca_ibv_alloc_pd(c) : NULL;
	}
	free(list);
	return pd;
}

doca_error_t doca_rdma_bridge_get_dev_pd(struct doca_dev *dev, struct ibv_pd **pd)
{
	CHECK_DEV(dev);
	CHECK_OUT(pd);
	if (dev_is_adapter(dev))
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "%s is an RDMA adapter: its protection domain is not lent", dev->info.f.ibdev);
	struct ibv_pd *found = softdoca_dev_pd(dev, NULL, false);
	if (!nic_pd(found)) {
		found = pd_new(dev->info.f.ibdev);
		if (!found)
			return REFUSE(DOCA_ERROR_NOT_FOUND, "%s has no protection domain",
				      dev->info.f.pci);
		softdoca_dev_pd(dev, found, true);
	}
	*pd = found;
	return DOCA_SUCCESS;
}
