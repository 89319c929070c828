// SPDX-License-Identifier: Apache-2.0
/* The adapter: the NIC of this process, and commands about device, port and context. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mlx5.h"

enum { VENDOR = 0x02c9, CONNECTX_7 = 0x1021, PORT_DOWN = 1, PORT_ACTIVE = 4, POLLING = 2, LINK_UP = 5,
       MTU_4096 = 5, WIDTH_4X = 2, SPEED_NDR = 128, ETHERNET = 2, IP_BASED_GIDS = 1 << 26, WINDOWS = 1 << 17, XRC = 1 << 20,
       WINDOWS_2B = 1 << 24 };

static dg_device *device;
static dg_nic *nic;

dg_nic *dg_mlx5_nic(void)
{
	return nic;
}

dg_device *dg_mlx5_device(void)
{
	return device;
}

/* The NIC's thread sleeps while the program's threads make passes, as they post and poll by libibverbs. It spins for
 * those that do so by themselves (UCX), unless there are more spinning threads than cores: src/poller.c. */
static int open_nic(void)
{
	enum { SPIN_NS = 1000000 };
	if (nic)
		return 0;
	int rc = dg_device_open("soft", NULL, &device);
	if (!rc)
		rc = dg_nic_open_part(device, SPIN_NS, &nic);
	if (!rc)
		rc = dg_mlx5_observe(nic);
	if (rc)
		fprintf(stderr, "dgkit mlx5: cannot open the adapter: %s\n", dg_last_error());
	return rc;
}

void dg_mlx5_close_nic(void)
{
	if (!nic)
		return;
	dg_nic_close(nic);
	dg_device_close(device, UINT64_MAX);
	nic = NULL;
}

void dg_mlx5_nic_forked(void)
{
	nic = NULL;
	device = NULL;
}

int dg_mlx5_get_context(struct call *c)
{
	struct ib_uverbs_get_context_resp *r = (void *)c->out;
	struct mlx5_ib_alloc_ucontext_resp *driver = (void *)r->driver_data;
	const struct mlx5_ib_alloc_ucontext_req_v2 *q = (void *)c->driver;
	if (c->context->async)
		return -EINVAL;
	if (!(q->lib_caps & MLX5_LIB_CAP_DYN_UAR)) /* rdma-core 28 and later have it */
		return -EOPNOTSUPP;
	int rc = open_nic();
	if (!rc)
		rc = dg_mlx5_channel_open(true);
	if (rc < 0)
		return rc;
	c->context->async = dg_mlx5_channel(rc);
	c->context->async->users++;
	c->context->has_devx = q->flags & MLX5_IB_ALLOC_UCTX_DEVX;
	*r = (struct ib_uverbs_get_context_resp){.async_fd = (uint32_t)rc, .num_comp_vectors = 1};
	/* tot_bfregs 0: doorbell pages are allocated by ioctl(2), one by one. cqe_version 1: CQEs have the
	 * index that the program gives to a queue pair. */
	*driver = (struct mlx5_ib_alloc_ucontext_resp){
		.qp_tab_size = 1 << 24,
		.bf_reg_size = 512,
		.cache_line_size = 64,
		.max_sq_desc_sz = 1008,
		.max_rq_desc_sz = 16 * DG_NIC_SGES,
		.max_send_wqebb = DG_NIC_ENTRIES_MAX,
		.max_recv_wr = DG_NIC_ENTRIES_MAX,
		.max_srq_recv_wr = DG_NIC_ENTRIES_MAX,
		.num_ports = 1,
		.response_length = sizeof *driver,
		.cqe_version = 1,
		.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
		.log_uar_size = 12,
		.num_uars_per_page = 1,
		.num_dyn_bfregs = 512,
	};
	c->out_size = sizeof *r + sizeof *driver;
	return 0;
}

static void fill_attributes(const struct context *x, struct ib_uverbs_query_device_resp *r)
{
	*r = (struct ib_uverbs_query_device_resp){
		.fw_ver = FIRMWARE,
		.node_guid = htobe64(NODE_GUID + x->adapter),
		.sys_image_guid = htobe64(NODE_GUID + x->adapter),
		.max_mr_size = UINT64_MAX,
		.page_size_cap = ~4095ull,
		.vendor_id = VENDOR,
		.vendor_part_id = CONNECTX_7,
		.max_qp = DG_NIC_QPS,
		.max_qp_wr = DG_NIC_ENTRIES_MAX,
		.device_cap_flags = WINDOWS | XRC | WINDOWS_2B,
		.max_sge = MAX_SGES,
		.max_sge_rd = MAX_SGES,
		.max_cq = MAX_CQS,
		.max_cqe = DG_NIC_CQES_MAX - 1,
		.max_mr = DG_NIC_KEYS - 16,
		.max_mw = DG_NIC_KEYS - 16,
		.max_pd = MAX_PDS,
		.max_ah = MAX_AHS,
		.max_srq = MAX_SRQS,
		.max_srq_wr = DG_NIC_ENTRIES_MAX - 1,
		.max_srq_sge = MAX_SRQ_SGES,
		.max_qp_rd_atom = MAX_QP_RD_ATOM,
		.max_res_rd_atom = MAX_QP_RD_ATOM * DG_NIC_QPS,
		.max_qp_init_rd_atom = MAX_QP_RD_ATOM,
		.atomic_cap = 2, /* IB_ATOMIC_GLOB: with respect to CPUs, too */
		.max_pkeys = 1,
		.local_ca_ack_delay = 16,
		.phys_port_cnt = 1,
	};
}

int dg_mlx5_query_device(struct call *c)
{
	struct ib_uverbs_query_device_resp *r = (void *)c->out;
	fill_attributes(c->context, r);
	c->out_size = sizeof *r;
	return 0;
}

int dg_mlx5_query_device_ex(struct call *c)
{
	const struct ib_uverbs_ex_query_device *q = (void *)c->in;
	struct ib_uverbs_ex_query_device_resp *r = (void *)c->out;
	if (q->comp_mask || q->reserved)
		return -EINVAL;
	fill_attributes(c->context, &r->base);
	r->response_length = sizeof *r;
	c->out_size = sizeof *r;
	return 0;
}

int dg_mlx5_query_port(struct call *c)
{
	if (((struct ib_uverbs_query_port *)c->in)->port_num != 1)
		return -EINVAL;
	const bool is_up = dg_mlx5_port_is_up(c->context->adapter);
	struct ib_uverbs_query_port_resp *r = (void *)c->out;
	*r = (struct ib_uverbs_query_port_resp){
		.port_cap_flags = IP_BASED_GIDS,
		.max_msg_sz = 1u << 30,
		.gid_tbl_len = 1,
		.pkey_tbl_len = 1,
		.state = is_up ? PORT_ACTIVE : PORT_DOWN,
		.max_mtu = MTU_4096,
		.active_mtu = MTU_4096,
		.active_width = WIDTH_4X,
		.active_speed = SPEED_NDR,
		.phys_state = is_up ? LINK_UP : POLLING,
		.link_layer = ETHERNET,
	};
	c->out_size = sizeof *r;
	return 0;
}

int dg_mlx5_create_channel(struct call *c)
{
	const int fd = dg_mlx5_channel_open(false);
	if (fd < 0)
		return fd;
	((struct ib_uverbs_create_comp_channel_resp *)c->out)->fd = (uint32_t)fd;
	c->out_size = sizeof(struct ib_uverbs_create_comp_channel_resp);
	return 0;
}
