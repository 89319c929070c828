// SPDX-License-Identifier: Apache-2.0
/* Contexts, protection domains and device attributes, over the objects of libibverbs. */
#include <errno.h>

#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "doca_rdma_bridge.h"
#include "verbs_objects.h"

static doca_error_t context_new(struct ibv_context *ibv, bool owned,
				struct doca_verbs_context **out)
{
	struct doca_verbs_context *c = softdoca_object_new(OBJECT_VERBS_CONTEXT, sizeof *c);
	if (!c)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a Verbs context");
	c->ibv = ibv;
	c->owned = owned;
	*out = c;
	return DOCA_SUCCESS;
}

static doca_error_t check_flags(uint32_t flags)
{
	return flags == DOCA_VERBS_CONTEXT_CREATE_FLAGS_NONE
		       ? DOCA_SUCCESS
		       : REFUSE(DOCA_ERROR_INVALID_VALUE, "flags %#x: only 0 is known", flags);
}

doca_error_t doca_verbs_bridge_verbs_context_create(struct ibv_device *ibv_dev, uint32_t flags,
						    struct doca_verbs_context **verbs_ctx)
{
	CHECK_OUT(verbs_ctx);
	TRY(check_flags(flags));
	struct ibv_context *ibv = softdoca_ibv_open(ibv_dev);
	if (!ibv)
		return errno == EINVAL ? DOCA_ERROR_INVALID_VALUE : DOCA_ERROR_DRIVER;
	doca_error_t error = context_new(ibv, true, verbs_ctx);
	if (error)
		softdoca_ibv_close(ibv);
	return error;
}

doca_error_t doca_verbs_context_create(struct doca_devinfo *devinfo, uint32_t flags,
				       struct doca_verbs_context **verbs_ctx)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "an entry of a list of devices");
	int n = 0;
	struct ibv_device **list = softdoca_ibv_list(&n), *found = NULL;
	for (int i = 0; i < n && !found; i++)
		found = strcmp(list[i]->name, devinfo->f.ibdev) ? NULL : list[i];
	free(list);
	return found ? doca_verbs_bridge_verbs_context_create(found, flags, verbs_ctx)
		     : REFUSE(DOCA_ERROR_NOT_SUPPORTED, "%s has no software NIC", devinfo->f.ibdev);
}

doca_error_t doca_verbs_bridge_verbs_context_import(struct ibv_context *ibv_ctx, uint32_t flags,
						    struct doca_verbs_context **verbs_ctx)
{
	CHECK_OUT(verbs_ctx);
	TRY(check_flags(flags));
	if (!nic_context(ibv_ctx))
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%p is not a context of softdoca's libibverbs", (void *)ibv_ctx);
	return context_new(ibv_ctx, false, verbs_ctx);
}

doca_error_t doca_verbs_context_destroy(struct doca_verbs_context *verbs_ctx)
{
	CHECK_CONTEXT(verbs_ctx);
	if (verbs_ctx->owned && softdoca_ibv_close(verbs_ctx->ibv))
		return DOCA_ERROR_IN_USE;
	softdoca_object_free(verbs_ctx);
	return DOCA_SUCCESS;
}

struct ibv_context *doca_verbs_bridge_verbs_context_get_ibv_ctx(
	struct doca_verbs_context *verbs_ctx)
{
	return object_is(verbs_ctx, OBJECT_VERBS_CONTEXT) ? verbs_ctx->ibv : NULL;
}

/* ---- protection domains ---- */

static doca_error_t pd_new(struct ibv_pd *ibv, bool owned, struct doca_verbs_pd **out)
{
	struct doca_verbs_pd *pd = softdoca_object_new(OBJECT_VERBS_PD, sizeof *pd);
	if (!pd)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a protection domain");
	pd->ibv = ibv;
	pd->owned = owned;
	*out = pd;
	return DOCA_SUCCESS;
}

doca_error_t doca_verbs_pd_create(struct doca_verbs_context *verbs_ctx,
				  struct doca_verbs_pd **verbs_pd)
{
	CHECK_CONTEXT(verbs_ctx);
	CHECK_OUT(verbs_pd);
	struct ibv_pd *ibv = softdoca_ibv_alloc_pd(verbs_ctx->ibv);
	if (!ibv)
		return errno == EINVAL ? DOCA_ERROR_BAD_STATE : DOCA_ERROR_NO_MEMORY;
	doca_error_t error = pd_new(ibv, true, verbs_pd);
	if (error)
		softdoca_ibv_dealloc_pd(ibv);
	return error;
}

doca_error_t doca_verbs_bridge_verbs_pd_import(struct ibv_pd *ibv_pd,
					       struct doca_verbs_pd **verbs_pd)
{
	CHECK_OUT(verbs_pd);
	if (!nic_pd(ibv_pd))
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%p is not a protection domain of softdoca's libibverbs",
			      (void *)ibv_pd);
	return pd_new(ibv_pd, false, verbs_pd);
}

doca_error_t doca_verbs_pd_destroy(struct doca_verbs_pd *verbs_pd)
{
	CHECK_OBJECT(verbs_pd, OBJECT_VERBS_PD, "a protection domain");
	if (verbs_pd->owned && softdoca_ibv_dealloc_pd(verbs_pd->ibv))
		return DOCA_ERROR_IN_USE;
	softdoca_object_free(verbs_pd);
	return DOCA_SUCCESS;
}

doca_error_t doca_verbs_pd_as_doca_dev(struct doca_verbs_pd *verbs_pd, struct doca_dev **dev)
{
	CHECK_OBJECT(verbs_pd, OBJECT_VERBS_PD, "a protection domain");
	return doca_rdma_bridge_open_dev_from_pd(verbs_pd->ibv, dev);
}

struct ibv_pd *doca_verbs_bridge_verbs_pd_get_ibv_pd(const struct doca_verbs_pd *verbs_pd)
{
	return object_is(verbs_pd, OBJECT_VERBS_PD) ? verbs_pd->ibv : NULL;
}

/* ---- device attributes ---- */

#define CHECK_ATTR(a) CHECK_OBJECT(a, OBJECT_VERBS_DEVICE_ATTR, "attributes of a device")

doca_error_t doca_verbs_query_device(struct doca_verbs_context *verbs_ctx,
				     struct doca_verbs_device_attr **dev_attr)
{
	CHECK_CONTEXT(verbs_ctx);
	CHECK_OUT(dev_attr);
	*dev_attr = softdoca_object_new(OBJECT_VERBS_DEVICE_ATTR, sizeof **dev_attr);
	return *dev_attr ? DOCA_SUCCESS : REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for attributes");
}

doca_error_t doca_verbs_device_attr_free(struct doca_verbs_device_attr *dev_attr)
{
	CHECK_ATTR(dev_attr);
	softdoca_object_free(dev_attr);
	return DOCA_SUCCESS;
}

doca_error_t doca_verbs_device_attr_get_is_cqe_inline_supported(
	const struct doca_verbs_device_attr *dev_attr)
{
	CHECK_ATTR(dev_attr);
	return DOCA_SUCCESS;
}

doca_error_t doca_verbs_device_attr_get_is_send_dbr_mode_supported(
	const struct doca_verbs_device_attr *dev_attr, enum doca_verbs_qp_send_dbr_mode mode)
{
	CHECK_ATTR(dev_attr);
	return (unsigned)mode <= DOCA_VERBS_QP_SEND_DBR_MODE_NO_DBR_EXT
		       ? DOCA_SUCCESS
		       : REFUSE(DOCA_ERROR_NOT_SUPPORTED, "doorbell mode %u exceeds 1",
				(unsigned)mode);
}

static uint8_t rd_atomic(const char *func, const struct doca_verbs_device_attr *attr)
{
	if (object_is(attr, OBJECT_VERBS_DEVICE_ATTR))
		return RD_ATOMIC;
	return REFUSE_FOR(func, 0, "%p is not attributes of a device", (const void *)attr);
}

uint8_t doca_verbs_device_attr_get_max_qp_rd_atom(const struct doca_verbs_device_attr *dev_attr)
{
	return rd_atomic(__func__, dev_attr);
}

uint8_t doca_verbs_device_attr_get_max_qp_init_rd_atom(
	const struct doca_verbs_device_attr *dev_attr)
{
	return rd_atomic(__func__, dev_attr);
}
