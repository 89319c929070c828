/* SPDX-License-Identifier: Apache-2.0 */
/* Devices of libibverbs and of DOCA. */
#ifndef DOCA_RDMA_BRIDGE_H
#define DOCA_RDMA_BRIDGE_H

#include "doca_compat.h"
#include "doca_dev.h"
#include "doca_error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_pd;

/* Opens the device of a protection domain. Errors: INVALID_VALUE unless it is one of softdoca's
 * libibverbs; NOT_FOUND if this process has no such device. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_bridge_open_dev_from_pd(struct ibv_pd *pd, struct doca_dev **dev);

/* Gets a protection domain of the device: the one it was opened from, or a new one, which lasts as
 * long as the device. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_bridge_get_dev_pd(struct doca_dev *dev, struct ibv_pd **pd);

#ifdef __cplusplus
}
#endif

#endif
