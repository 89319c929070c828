/* SPDX-License-Identifier: Apache-2.0 */
/* The providers of this build. */
#ifndef DG_PROVIDER_TABLE_H
#define DG_PROVIDER_TABLE_H

#include "provider.h"

extern const struct dg_ops dg_soft_ops, dg_cuda_ops, dg_verbs_ops, dg_doca_ops, dg_softdoca_ops,
	dg_fault_ops;
/* Returns NULL if no provider has the name. */
const struct dg_ops *dg_ops_find(const char *name);

#endif
