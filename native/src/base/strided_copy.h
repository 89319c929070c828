/* SPDX-License-Identifier: Apache-2.0 */
/* Many small copies in one call: the rows of a strided transfer, and batches of uniform
 * requests. */
#ifndef DG_STRIDED_COPY_H
#define DG_STRIDED_COPY_H

#include "dgkit.h"
#include "ring.h"

/* Copies `rows` rows of `size` bytes, ds bytes apart in the destination and ss bytes apart in the
 * source. */
void dg_copy_rows(char *d, const char *s, uint64_t size, uint64_t ds, uint64_t ss, uint64_t rows);
/* Executes n operations of one row of `size` <= 64 bytes each. */
void dg_copy_ops(const struct dg_op *ops, uint32_t n, uint64_t size);
/* Does the same for pairs of addresses. */
void dg_copy_pairs(const struct dg_pair *pairs, uint32_t n, uint64_t size);
/* Fills n completions from *like, except for `user`, which is left unchanged. */
void dg_fill_completions(dg_wc *wc, uint32_t n, const dg_wc *like);

#endif
