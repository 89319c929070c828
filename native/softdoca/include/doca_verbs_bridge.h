/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts and protection domains of libibverbs and of DOCA Verbs. The libibverbs is softdoca's:
 * objects of another one are refused with INVALID_VALUE. */
#ifndef DOCA_VERBS_BRIDGE_H
#define DOCA_VERBS_BRIDGE_H

#include <stdint.h>

#include "doca_compat.h"
#include "doca_error.h"
#include "doca_verbs.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_context;
struct ibv_device;
struct ibv_pd;
struct ibv_recv_wr;
struct ibv_send_wr;
struct ibv_wc;

/* Opens a device of ibv_get_device_list(). flags: DOCA_VERBS_CONTEXT_CREATE_FLAGS_NONE. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_bridge_verbs_context_create(struct ibv_device *ibv_dev, uint32_t flags,
						    struct doca_verbs_context **verbs_ctx);

/* Import a context or a protection domain, which must last longer than the result. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_bridge_verbs_context_import(struct ibv_context *ibv_ctx, uint32_t flags,
						    struct doca_verbs_context **verbs_ctx);

DOCA_EXPERIMENTAL
doca_error_t doca_verbs_bridge_verbs_pd_import(struct ibv_pd *ibv_pd,
					       struct doca_verbs_pd **verbs_pd);

/* Return the object of libibverbs; NULL for an invalid handle. */
DOCA_EXPERIMENTAL
struct ibv_context *doca_verbs_bridge_verbs_context_get_ibv_ctx(
	struct doca_verbs_context *verbs_ctx);

DOCA_EXPERIMENTAL
struct ibv_pd *doca_verbs_bridge_verbs_pd_get_ibv_pd(const struct doca_verbs_pd *verbs_pd);

/* ---- the CPU's data path: rings that are softdoca's, of queue pairs that are not exported to a GPU ----
 * As ibv_post_send(), ibv_post_recv() and ibv_poll_cq(): 0, or an errno and the request that was not
 * posted; the number of completions, or -1. A queue pair's sends and receives may each be posted by any
 * thread. Inline data: up to max_inline_data, and 28 bytes of a write. */

DOCA_EXPERIMENTAL
int doca_verbs_bridge_post_send(struct doca_verbs_qp *verbs_qp, struct ibv_send_wr *wr,
				struct ibv_send_wr **bad_wr);

DOCA_EXPERIMENTAL
int doca_verbs_bridge_post_recv(struct doca_verbs_qp *verbs_qp, struct ibv_recv_wr *wr,
				struct ibv_recv_wr **bad_wr);

DOCA_EXPERIMENTAL
int doca_verbs_bridge_poll_cq(struct doca_verbs_cq *verbs_cq, int num_entries, struct ibv_wc *wc);

/* Returns how many completions were polled, in 24 bits. */
DOCA_EXPERIMENTAL
uint32_t doca_verbs_bridge_get_current_cq_ci(struct doca_verbs_cq *verbs_cq);

/* Makes a send request that waits until the completion with the number pi, from 0, is in the queue. Its own
 * completion has the opcode IBV_WC_DRIVER1. */
DOCA_EXPERIMENTAL
doca_error_t doca_verbs_bridge_set_wait_cq_pi_wr(struct doca_verbs_cq *verbs_cq, uint32_t pi,
						 struct ibv_send_wr *wr);

#ifdef __cplusplus
}
#endif

#endif
