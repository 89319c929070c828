// SPDX-License-Identifier: Apache-2.0
/*
 * RDMA contexts: capabilities, creation, settings. NVIDIA's published reference of DOCA RDMA 3.0 lists the errors.
 */
#include "rdma.h"

#define CHECK_RDMA(r) CHECK_OBJECT(r, OBJECT_RDMA, "an RDMA context")
#define CHECK_IDLE(r)                                                                          \
	do {                                                                                   \
		CHECK_RDMA(r);                                                                 \
		if ((r)->ctx.state != DOCA_CTX_STATE_IDLE)                                     \
			return REFUSE(DOCA_ERROR_BAD_STATE, "the context is started");         \
	} while (0)

/* ---- capabilities ---- */

static doca_error_t check_devinfo(const struct doca_devinfo *devinfo, const char *func)
{
	if (!object_is(devinfo, OBJECT_DEVINFO))
		return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE, "%p is not a devinfo",
				  (const void *)devinfo);
	if (devinfo->f.ibdev[0])
		return DOCA_SUCCESS;
	/* INFO, because programs query each device of a list. */
	softdoca_log(DOCA_LOG_LEVEL_INFO, func, "%s has no RDMA device", devinfo->f.pci);
	return DOCA_ERROR_NOT_SUPPORTED;
}

static doca_error_t check_type(const struct doca_devinfo *devinfo, enum rdma_type type, const char *func)
{
	TRY(check_devinfo(devinfo, func));
	if (type < RDMA_EVENT_GET || !(devinfo->f.caps & CAP_ADAPTER))
		return DOCA_SUCCESS;
	softdoca_log(DOCA_LOG_LEVEL_INFO, func, "%s has no tasks on sync events", devinfo->f.ibdev);
	return DOCA_ERROR_NOT_SUPPORTED;
}

#define CAP(TYPE, name)                                        \
	doca_error_t doca_rdma_cap_task_##name##_is_supported( \
		const struct doca_devinfo *devinfo)            \
	{                                                      \
		return check_type(devinfo, TYPE, __func__);    \
	}
RDMA_EACH(CAP)

/* Of an adapter it is known once it is open. */
static doca_error_t max_message(const struct doca_devinfo *devinfo, uint32_t *out)
{
	struct doca_dev *dev;
	*out = RDMA_BYTES_MAX;
	if (!(devinfo->f.caps & CAP_ADAPTER))
		return DOCA_SUCCESS;
	TRY(doca_dev_open((struct doca_devinfo *)(uintptr_t)devinfo, &dev));
	doca_error_t error = rdma_verbs_max_message(dev, out);
	doca_dev_close(dev);
	return error;
}

doca_error_t doca_rdma_cap_get_max_message_size(const struct doca_devinfo *devinfo, uint32_t *max_message_size)
{
	CHECK_OUT(max_message_size);
	TRY(check_devinfo(devinfo, __func__));
	return max_message(devinfo, max_message_size);
}

#define CAP_NUMBER(name, out, value)                                                             \
	doca_error_t doca_rdma_cap_##name(const struct doca_devinfo *devinfo, uint32_t *out)     \
	{                                                                                        \
		CHECK_OUT(out);                                                                  \
		doca_error_t error = check_devinfo(devinfo, __func__);                           \
		if (!error)                                                                      \
			*out = value;                                                            \
		return error;                                                                    \
	}
CAP_NUMBER(get_max_send_queue_size, max_send_queue_size, DG_NIC_ENTRIES_MAX)
CAP_NUMBER(get_max_recv_queue_size, max_recv_queue_size, DG_NIC_ENTRIES_MAX)
CAP_NUMBER(get_max_send_buf_list_len, max_send_buf_list_len, RDMA_LIST_MAX)

static doca_error_t check_transport(enum doca_rdma_transport_type type, const char *func)
{
	if (type == DOCA_RDMA_TRANSPORT_TYPE_RC)
		return DOCA_SUCCESS;
	softdoca_log(DOCA_LOG_LEVEL_WARNING, func, "transport %d: there is RC (0) only", (int)type);
	return type == DOCA_RDMA_TRANSPORT_TYPE_DC ? DOCA_ERROR_NOT_SUPPORTED
						   : DOCA_ERROR_INVALID_VALUE;
}

doca_error_t doca_rdma_cap_transport_type_is_supported(const struct doca_devinfo *devinfo,
						       enum doca_rdma_transport_type transport_type)
{
	doca_error_t error = check_devinfo(devinfo, __func__);
	return error ? error : check_transport(transport_type, __func__);
}

doca_error_t doca_rdma_cap_task_receive_get_max_dst_buf_list_len(
	const struct doca_devinfo *devinfo, enum doca_rdma_transport_type transport_type,
	uint32_t *max_dst_buf_list_len)
{
	CHECK_OUT(max_dst_buf_list_len);
	doca_error_t error = doca_rdma_cap_transport_type_is_supported(devinfo, transport_type);
	if (!error)
		*max_dst_buf_list_len = RDMA_LIST_MAX;
	return error;
}

/* ---- contexts ---- */

doca_error_t doca_rdma_create(struct doca_dev *dev, struct doca_rdma **rdma)
{
	if (!object_is(dev, OBJECT_DEV) || !rdma)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not an open device, or rdma is NULL",
			      (void *)dev);
	TRY(check_devinfo(&dev->info, __func__));
	struct doca_rdma *r = softdoca_object_new(OBJECT_RDMA, sizeof *r);
	if (!r)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for an RDMA context");
	r->permissions = DOCA_ACCESS_FLAG_LOCAL_READ_WRITE;
	r->send_size = r->receive_size = RDMA_QUEUE_DEFAULT;
	r->max_connections = 1;
	r->sockets = -1;
	doca_error_t error = softdoca_ctx_init(
		&r->ctx, dev, dev_is_adapter(dev) ? &rdma_adapter_ops : &rdma_ops);
	if (error) {
		softdoca_object_free(r);
		return error;
	}
	*rdma = r;
	return DOCA_SUCCESS;
}

doca_error_t doca_rdma_destroy(struct doca_rdma *rdma)
{
	CHECK_RDMA(rdma);
	return softdoca_ctx_destroy(&rdma->ctx, DOCA_ERROR_BAD_STATE, softdoca_object_free, rdma);
}

AS_MEMBER(doca_rdma_as_ctx, struct doca_rdma, struct doca_ctx, OBJECT_RDMA, "an RDMA context", ctx)

/* ---- settings ---- */

doca_error_t doca_rdma_set_permissions(struct doca_rdma *rdma, uint32_t permissions)
{
	const uint32_t known = DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_RDMA_READ |
			       DOCA_ACCESS_FLAG_RDMA_WRITE | DOCA_ACCESS_FLAG_RDMA_ATOMIC;
	CHECK_IDLE(rdma);
	if (permissions & ~known)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "permissions %#x are invalid: the known ones are %#x", permissions,
			      known);
	rdma->permissions = permissions;
	return DOCA_SUCCESS;
}

GETTER(doca_rdma_get_permissions, CHECK_RDMA, const struct doca_rdma, uint32_t, handle->permissions)

static doca_error_t check_number(const char *func, const char *what, uint32_t n, uint32_t most)
{
	if (n && n <= most)
		return DOCA_SUCCESS;
	return REFUSE_FOR(func, DOCA_ERROR_INVALID_VALUE, "%s is %u: it must be 1 to %u", what, n,
			  most);
}

#define NUMBER(name, ctype, member, most)                                                     \
	doca_error_t doca_rdma_set_##name(struct doca_rdma *rdma, ctype name)                 \
	{                                                                                     \
		CHECK_IDLE(rdma);                                                             \
		doca_error_t error = check_number(__func__, #name, name, most);               \
		if (!error)                                                                   \
			rdma->member = name;                                                  \
		return error;                                                                 \
	}                                                                                     \
	doca_error_t doca_rdma_get_##name(const struct doca_rdma *rdma, ctype *name)          \
	{                                                                                     \
		CHECK_RDMA(rdma);                                                             \
		return SET_OUT(name, rdma->member);                                           \
	}
NUMBER(send_queue_size, uint32_t, send_size, DG_NIC_ENTRIES_MAX)
NUMBER(recv_queue_size, uint32_t, receive_size, DG_NIC_ENTRIES_MAX)
NUMBER(max_num_connections, uint16_t, max_connections, RDMA_CONNECTIONS_MAX)

doca_error_t doca_rdma_set_transport_type(struct doca_rdma *rdma,
					  enum doca_rdma_transport_type transport_type)
{
	CHECK_IDLE(rdma);
	return check_transport(transport_type, __func__);
}

GETTER(doca_rdma_get_transport_type, CHECK_RDMA, const struct doca_rdma,
       enum doca_rdma_transport_type, DOCA_RDMA_TRANSPORT_TYPE_RC)

doca_error_t doca_rdma_set_gid_index(struct doca_rdma *rdma, uint32_t gid_index)
{
	CHECK_IDLE(rdma);
	return gid_index < 256 ? DOCA_SUCCESS
			       : REFUSE(DOCA_ERROR_INVALID_VALUE,
					"gid_index is %u: it must be 0 to 255", gid_index);
}

doca_error_t doca_rdma_set_grh_enabled(struct doca_rdma *rdma, uint8_t grh_enabled)
{
	CHECK_IDLE(rdma);
	return grh_enabled <= 1 ? DOCA_SUCCESS
				: REFUSE(DOCA_ERROR_INVALID_VALUE,
					 "grh_enabled is %u, not 0 or 1", grh_enabled);
}

doca_error_t doca_rdma_set_connection_state_callbacks(
	struct doca_rdma *rdma, doca_rdma_connection_request_cb_t request_cb,
	doca_rdma_connection_established_cb_t established_cb,
	doca_rdma_connection_failure_cb_t failure_cb,
	doca_rdma_connection_disconnection_cb_t disconnect_cb)
{
	CHECK_IDLE(rdma);
	rdma->request_cb = request_cb;
	rdma->established_cb = established_cb;
	rdma->failure_cb = failure_cb;
	rdma->disconnect_cb = disconnect_cb;
	return DOCA_SUCCESS;
}
