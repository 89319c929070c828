/* SPDX-License-Identifier: Apache-2.0 */
/* Many small copies in one call: rows of a strided transfer, and records that are all alike. */
#ifndef DG_STRIDED_COPY_H
#define DG_STRIDED_COPY_H

#include "dgkit.h"
#include "ring.h"

/* `rows` copies of `size` bytes, ds and ss bytes apart. */
void dg_copy_rows(char *d, const char *s, uint64_t size, uint64_t ds, uint64_t ss, uint64_t rows);
/* The copies of n operations of `size` <= 64 bytes, one row each. */
void dg_copy_ops(const struct dg_op *ops, uint32_t n, uint64_t size);
/* n completions like *like, each with its own user as it is there. */
void dg_fill_completions(dg_wc *wc, uint32_t n, const dg_wc *like);

#endif
