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

#ifdef __cplusplus
}
#endif

#endif
