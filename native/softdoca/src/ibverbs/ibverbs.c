// SPDX-License-Identifier: Apache-2.0
/* libibverbs.so.1 of softdoca: what GPUNetIO programs call of it, over nic/ibv.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nic/soft_nic.h"

#define GID_TABLE 4 /* programs choose an index by the kind of network; all entries are equal */

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	return softdoca_ibv_list(num_devices);
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	return softdoca_ibv_open(device);
}

int ibv_close_device(struct ibv_context *context)
{
	return softdoca_ibv_close(context);
}

static int refuse_port(const char *func, uint8_t port_num)
{
	return REFUSE_FOR(func, EINVAL, "port %u does not exist: the only one is 1", port_num);
}

int ibv_query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *port_attr)
{
	union ibv_gid gid;
	int code = port_num == 1 ? softdoca_ibv_gid(context, &gid)
				 : refuse_port("ibv_query_port", port_num);
	if (code)
		return code;
	*port_attr = (struct ibv_port_attr){
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = GID_TABLE,
		.max_msg_sz = 1u << 30,
		.pkey_tbl_len = 1,
		.phys_state = 5, /* LinkUp */
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};
	return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	if (port_num != 1)
		return refuse_port("ibv_query_gid", port_num);
	if (index < 0 || index >= GID_TABLE) {
		softdoca_log(DOCA_LOG_LEVEL_WARNING, "ibv_query_gid",
			     "gid index %d is not below %d", index, GID_TABLE);
		return EINVAL;
	}
	return softdoca_ibv_gid(context, gid);
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	return softdoca_ibv_alloc_pd(context);
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return softdoca_ibv_dealloc_pd(pd);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return softdoca_ibv_reg(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	return softdoca_ibv_reg(pd, addr, length, iova, access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	return softdoca_ibv_reg_fd(pd, offset, length, iova, fd, (unsigned)access);
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const texts[] = {
		[IBV_WC_SUCCESS] = "success",
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_QP_OP_ERR] = "local queue pair error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "flushed by an earlier error",
		[IBV_WC_REM_INV_REQ_ERR] = "request that the peer refused",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "no answer from the peer",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "no receive at the peer",
		[IBV_WC_GENERAL_ERR] = "general error",
	};
	const bool known = (unsigned)status < sizeof texts / sizeof *texts && texts[status];
	return known ? texts[status] : "unknown";
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	return softdoca_ibv_dereg(mr);
}
