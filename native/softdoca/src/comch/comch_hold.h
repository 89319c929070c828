/* SPDX-License-Identifier: Apache-2.0 */
/* What libdoca_comch offers to a layer over it. */
#ifndef SOFTDOCA_COMCH_HOLD_H
#define SOFTDOCA_COMCH_HOLD_H

#include "base/base.h"
#include "doca_ctx.h"

/* endpoint.c: lets messages of a client's or server's open connections stay in their sockets,
 * or reads them again. For a layer whose own queue is full; may be called in a callback. */
SOFTDOCA_INTERNAL void softdoca_comch_hold(struct doca_ctx *ctx, bool hold);

#endif
