/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDMA adapters of this machine, Soft-RoCE among them, as devices of doca_rdma: dgkit's provider verbs
 * opens them, and libibverbs moves the bytes. Include it without nic.h, which declares softdoca's own
 * libibverbs.
 */
#ifndef SOFTDOCA_ADAPTER_H
#define SOFTDOCA_ADAPTER_H

#include "device.h"
#include "providers/verbs_provider.h"

struct adapter {
	dg_device *device;
	const struct verbs *d; /* its state */
	struct ibv_pd *pd; /* of the maps and the queue pairs of the doca_dev */
};

/* The core's functions, which only libdoca_common contains. */
struct verbs_functions {
	const struct dg_verbs_api *api;
	int (*port_address)(const struct verbs *, dg_qp_address *);
	int (*qp_init)(const struct verbs *, struct ibv_qp *, unsigned, dg_qp_address *);
	int (*qp_connect)(const struct verbs *, struct ibv_qp *, const dg_qp_address *,
			  const dg_qp_address *);
};
extern SOFTDOCA_INTERNAL const struct verbs_functions softdoca_verbs;

#endif
