/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of the adapter: trace.c, lines of text; roce.c, packets as RoCE v2 would have them; counters.c. Called in a
 * pass of the NIC.
 */
#ifndef DG_MLX5_TRACE_H
#define DG_MLX5_TRACE_H

#include "mlx5.h"
#include "nic.h"

/* trace.c */
/* Opens the file, to append to it. *is_capture: by its suffix. Returns 0 or a negative errno. */
int dg_mlx5_trace_open(const char *path, bool *is_capture);
void dg_mlx5_trace_write(const void *bytes, size_t size);
/* fault: the action that a rule takes, or NULL. */
void dg_mlx5_trace_entry(struct dg_nic_qp *qp, const struct nic_entry *e, bool is_valid, const char *fault);
void dg_mlx5_trace_completion(struct dg_nic_qp *qp, const struct nic_cqe *e);
const char *dg_mlx5_syndrome_name(uint8_t syndrome);

/* roce.c */
void dg_mlx5_roce_begin(void);
/* Writes the packets of an entry that has ended: requests, and the answer. */
void dg_mlx5_roce_entry(struct dg_nic_qp *qp, const struct nic_entry *e, uint8_t syndrome);

/* counters.c */
void dg_mlx5_counters_open(const dg_nic *n);
/* An entry has ended without an error; a CQE with an error is written; the peer has no receive, as it answered. */
void dg_mlx5_count_entry(struct dg_nic_qp *qp, const struct nic_entry *e);
void dg_mlx5_count_error(struct dg_nic_qp *qp, const struct nic_cqe *e);
void dg_mlx5_count_not_ready(struct dg_nic_qp *qp);

#endif
