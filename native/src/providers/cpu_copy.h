/* SPDX-License-Identifier: Apache-2.0 */
/* Executing operations with the CPU. */
#ifndef DG_CPU_COPY_H
#define DG_CPU_COPY_H

#include "provider.h"

/* Copies at most `budget` bytes of op, starting at *progress. Returns OP_MORE or the final
 * dg_status. */
int dg_op_step(const struct dg_op *op, uint64_t *progress, uint64_t budget);
/* Executes the whole operation. Returns a dg_status. */
int dg_op_run(const struct dg_op *op);
/* Returns DG_OK if both regions of op may still be accessed, otherwise the status with which to
 * complete it. */
int dg_op_allowed(const struct dg_op *op);
/* The same for a pair of regions; local may be NULL. */
int dg_regions_allowed(struct dg_region_entry *local, struct dg_region_entry *remote);
/* Leaves both gates of op: after its last byte, or when it will not be executed. */
void dg_op_leave(const struct dg_op *op);

#endif
