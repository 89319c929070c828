// SPDX-License-Identifier: Apache-2.0
/* Comch capabilities of devices. Errors: Comch API reference, doca_comch_cap_*: INVALID_VALUE,
 * NOT_SUPPORTED. */
#include "comch.h"

static doca_error_t check_capable(const struct doca_devinfo *devinfo, uint32_t cap, const char *what)
{
	if (!object_is(devinfo, OBJECT_DEVINFO))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a devinfo",
			      (const void *)devinfo);
	/* A query deserves no warning. */
	if (!(devinfo->f.caps & cap)) {
		softdoca_log(DOCA_LOG_LEVEL_DEBUG, __func__, "%s (%s) cannot be a Comch %s",
			     devinfo->f.pci, devinfo->f.ibdev, what);
		return DOCA_ERROR_NOT_SUPPORTED;
	}
	return DOCA_SUCCESS;
}

doca_error_t doca_comch_cap_client_is_supported(const struct doca_devinfo *devinfo)
{
	return check_capable(devinfo, CAP_COMCH_CLIENT, "client");
}

doca_error_t doca_comch_cap_server_is_supported(const struct doca_devinfo *devinfo)
{
	return check_capable(devinfo, CAP_COMCH_SERVER, "server");
}

doca_error_t comch_get_limit(const struct doca_devinfo *devinfo, uint32_t value, uint32_t *out)
{
	TRY(check_capable(devinfo, CAP_COMCH_CLIENT | CAP_COMCH_SERVER, "client or server"));
	if (!out)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the output pointer is NULL");
	*out = value;
	return DOCA_SUCCESS;
}

LIMIT(doca_comch_cap_get_max_msg_size, MSG_MAX)
LIMIT(doca_comch_cap_get_max_name_len, NAME_MAX_LEN)
LIMIT(doca_comch_cap_get_max_recv_queue_size, RECV_QUEUE_MAX)
LIMIT(doca_comch_cap_get_max_clients, CLIENTS_MAX)
LIMIT(doca_comch_cap_get_max_send_tasks, SEND_TASKS_MAX)
