/* SPDX-License-Identifier: Apache-2.0 */
/* User access regions: pages of doorbell registers. In softdoca a page of memory, which the
 * software NIC does not read: it polls doorbell records and producer indices. */
#ifndef DOCA_UAR_H
#define DOCA_UAR_H

#include <stdint.h>

#include "doca_compat.h"
#include "doca_dev.h"
#include "doca_error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_uar;

enum doca_uar_allocation_type {
	DOCA_UAR_ALLOCATION_TYPE_BLUEFLAME = 0,
	DOCA_UAR_ALLOCATION_TYPE_NONCACHE = 1,
	DOCA_UAR_ALLOCATION_TYPE_NONCACHE_DEDICATED = 2,
};

/* Errors: NOT_SUPPORTED for BLUEFLAME. */
DOCA_EXPERIMENTAL
doca_error_t doca_uar_create(struct doca_dev *dev, enum doca_uar_allocation_type allocation_type,
			     struct doca_uar **uar);

/* Errors: IN_USE while a queue pair uses it. */
DOCA_EXPERIMENTAL
doca_error_t doca_uar_destroy(struct doca_uar *uar);

DOCA_EXPERIMENTAL
doca_error_t doca_uar_id_get(const struct doca_uar *uar, uint32_t *id);

DOCA_EXPERIMENTAL
doca_error_t doca_uar_reg_addr_get(const struct doca_uar *uar, void **reg_addr);

#ifdef __cplusplus
}
#endif

#endif
