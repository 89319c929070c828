/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of GPUNetIO Verbs: one end of a connection, made in the steps of a GPUNetIO program, and
 * what its kernel would do, done by the CPU. no_gpu() or one_gpu() comes before the first use.
 */
#ifndef SOFTDOCA_VERBS_CHECK_H
#define SOFTDOCA_VERBS_CHECK_H

#include "memory_check.h"

#include <doca_gpunetio.h>
#include <doca_rdma_bridge.h>
#include <doca_uar.h>
#include <doca_umem.h>
#include <doca_verbs.h>
#include <doca_verbs_bridge.h>
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <time.h>

#define ENTRIES 64u
#define ALL_ACCESS                                                                                 \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)
#define RING_ACCESS (DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_RDMA_WRITE)
#define ATTR(name)  DOCA_VERBS_QP_ATTR_##name

struct end {
	struct doca_gpu *gpu;
	struct doca_verbs_context *context;
	struct doca_verbs_pd *verbs_pd;
	struct ibv_pd *pd;
	struct doca_dev *dev;
	struct doca_uar *uar;
	struct doca_verbs_cq *cq;
	struct doca_verbs_qp *qp;
	struct doca_umem *cq_umem, *qp_umem, *record_umem;
	char *cq_ring, *qp_rings, *record;
	struct doca_gpu_verbs_qp *exported;
	struct doca_gpu_dev_verbs_qp *device; /* what a kernel gets */
	union ibv_gid gid;
	uint64_t producer;
};

/* What one end tells the other. */
struct address {
	union ibv_gid gid;
	uint32_t qpn, rkey;
	uint64_t addr;
};

/* libcuda of these tests is a fake one: with no GPU, or with one, whose memory the CPU can access. */
UNUSED static void no_gpu(void)
{
	setenv("DGKIT_FAKE_CUDA", "gpus=0", 1);
}

UNUSED static void one_gpu(void)
{
	setenv("DGKIT_FAKE_CUDA", "gpus=1", 1);
}

UNUSED static char *gpu_alloc(struct doca_gpu *gpu, size_t size, enum doca_gpu_mem_type type)
{
	void *at = NULL;

	OK(doca_gpu_mem_alloc(gpu, size, 4096, type, &at, NULL));
	return at;
}

UNUSED static struct ibv_device *first_device(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	CHECK(list && n > 0);
	CHECK(!list[n]);

	struct ibv_device *first = list[0];

	ibv_free_device_list(list);
	return first;
}

UNUSED static void open_device(struct end *e)
{
	OK(doca_gpu_create("41:00.0", &e->gpu));
	OK(doca_verbs_bridge_verbs_context_create(first_device(), 0, &e->context));
	OK(doca_verbs_pd_create(e->context, &e->verbs_pd));
	e->pd = doca_verbs_bridge_verbs_pd_get_ibv_pd(e->verbs_pd);
	CHECK(e->pd);
	OK(doca_rdma_bridge_open_dev_from_pd(e->pd, &e->dev));
	CHECK_EQ(ibv_query_gid(e->pd->context, 1, 0, &e->gid), 0);
}

UNUSED static void close_device(struct end *e)
{
	OK(doca_verbs_pd_destroy(e->verbs_pd));
	OK(doca_verbs_context_destroy(e->context));
	OK(doca_gpu_destroy(e->gpu));
	OK(doca_dev_close(e->dev));
}

UNUSED static struct doca_umem *gpu_umem(struct end *e, char *at, size_t size)
{
	struct doca_umem *umem;

	OK(doca_umem_gpu_create(e->gpu, e->dev, at, size, RING_ACCESS, &umem));
	return umem;
}

UNUSED static void open_cq(struct end *e)
{
	struct doca_verbs_cq_attr *attr;

	e->cq_ring = gpu_alloc(e->gpu, 8192, DOCA_GPU_MEM_TYPE_GPU);
	e->cq_umem = gpu_umem(e, e->cq_ring, 8192);
	for (uint32_t i = 0; i < ENTRIES; i++)
		e->cq_ring[64 * i + 63] = (char)(MLX5_CQE_INVALID << 4 | MLX5_CQE_OWNER_MASK);
	OK(doca_verbs_cq_attr_create(&attr));
	OK(doca_verbs_cq_attr_set_external_datapath_en(attr, 1));
	OK(doca_verbs_cq_attr_set_external_umem(attr, e->cq_umem, 0));
	OK(doca_verbs_cq_attr_set_cq_size(attr, ENTRIES));
	OK(doca_verbs_cq_attr_set_cq_overrun(attr, DOCA_VERBS_CQ_ENABLE_OVERRUN));
	OK(doca_verbs_cq_create(e->context, attr, &e->cq));
	OK(doca_verbs_cq_attr_destroy(attr));
}

/* The attributes of a queue pair with both rings in qp_umem, on one completion queue. */
UNUSED static struct doca_verbs_qp_init_attr *init_attr(struct end *e, bool no_record)
{
	struct doca_verbs_qp_init_attr *attr;

	OK(doca_verbs_qp_init_attr_create(&attr));
	OK(doca_verbs_qp_init_attr_set_external_datapath_en(attr, 1));
	OK(doca_verbs_qp_init_attr_set_external_uar(attr, e->uar));
	OK(doca_verbs_qp_init_attr_set_external_umem(attr, e->qp_umem, 0));
	OK(doca_verbs_qp_init_attr_set_external_dbr_umem(attr, e->record_umem, 0));
	OK(doca_verbs_qp_init_attr_set_pd(attr, e->verbs_pd));
	OK(doca_verbs_qp_init_attr_set_sq_wr(attr, ENTRIES));
	OK(doca_verbs_qp_init_attr_set_rq_wr(attr, ENTRIES));
	OK(doca_verbs_qp_init_attr_set_qp_type(attr, DOCA_VERBS_QP_TYPE_RC));
	OK(doca_verbs_qp_init_attr_set_send_cq(attr, e->cq));
	OK(doca_verbs_qp_init_attr_set_receive_cq(attr, e->cq));
	OK(doca_verbs_qp_init_attr_set_send_max_sges(attr, 1));
	OK(doca_verbs_qp_init_attr_set_receive_max_sges(attr, 1));
	if (no_record)
		OK(doca_verbs_qp_init_attr_set_send_dbr_mode(
			attr, DOCA_VERBS_QP_SEND_DBR_MODE_NO_DBR_EXT));
	return attr;
}

UNUSED static void open_qp(struct end *e, bool no_record)
{
	struct doca_verbs_qp_init_attr *attr;

	OK(doca_uar_create(e->dev, DOCA_UAR_ALLOCATION_TYPE_NONCACHE_DEDICATED, &e->uar));
	e->qp_rings = gpu_alloc(e->gpu, 8192, DOCA_GPU_MEM_TYPE_GPU);
	e->qp_umem = gpu_umem(e, e->qp_rings, 8192);
	e->record = gpu_alloc(e->gpu, 4096, DOCA_GPU_MEM_TYPE_GPU);
	e->record_umem = gpu_umem(e, e->record, 4096);
	attr = init_attr(e, no_record);
	OK(doca_verbs_qp_create(e->context, attr, &e->qp));
	OK(doca_verbs_qp_init_attr_destroy(attr));
}

UNUSED static void open_end(struct end *e, enum doca_gpu_dev_verbs_nic_handler handler)
{
	open_device(e);
	open_cq(e);
	open_qp(e, handler == DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_NO_DBR);
	OK(doca_gpu_verbs_export_qp(e->gpu, e->dev, e->qp, handler, e->qp_rings, e->cq, e->cq,
				    &e->exported));
	OK(doca_gpu_verbs_get_qp_dev(e->exported, &e->device));
}

UNUSED static void close_end(struct end *e)
{
	if (e->exported)
		OK(doca_gpu_verbs_unexport_qp(e->gpu, e->exported));
	OK(doca_verbs_qp_destroy(e->qp));
	OK(doca_umem_destroy(e->qp_umem));
	OK(doca_umem_destroy(e->record_umem));
	OK(doca_verbs_cq_destroy(e->cq));
	OK(doca_umem_destroy(e->cq_umem));
	OK(doca_uar_destroy(e->uar));
	close_device(e);
}

UNUSED static void change(struct doca_verbs_qp *qp, struct doca_verbs_qp_attr *attr,
			  enum doca_verbs_qp_state next, int mask)
{
	OK(doca_verbs_qp_attr_set_next_state(attr, next));
	OK(doca_verbs_qp_modify(qp, attr, mask | ATTR(NEXT_STATE)));
}

/* Connects the queue pair, as far as RTS. */
UNUSED static void connect_end(struct end *e, const struct address *peer)
{
	struct doca_verbs_qp_attr *attr;
	struct doca_verbs_ah_attr *ah;
	struct doca_verbs_gid gid;

	memcpy(gid.raw, peer->gid.raw, sizeof(gid.raw));
	OK(doca_verbs_ah_attr_create(e->context, &ah));
	OK(doca_verbs_ah_attr_set_addr_type(ah, DOCA_VERBS_ADDR_TYPE_IPv4));
	OK(doca_verbs_ah_attr_set_gid(ah, gid));
	OK(doca_verbs_qp_attr_create(&attr));
	OK(doca_verbs_qp_attr_set_allow_remote_write(attr, 1));
	OK(doca_verbs_qp_attr_set_allow_remote_read(attr, 1));
	OK(doca_verbs_qp_attr_set_atomic_mode(attr, DOCA_VERBS_QP_ATOMIC_MODE_IB_SPEC));
	OK(doca_verbs_qp_attr_set_ah_attr(attr, ah));
	OK(doca_verbs_qp_attr_set_dest_qp_num(attr, peer->qpn));
	OK(doca_verbs_qp_attr_set_path_mtu(attr, DOCA_MTU_SIZE_1K_BYTES));
	change(e->qp, attr, DOCA_VERBS_QP_STATE_INIT,
	       ATTR(PKEY_INDEX) | ATTR(PORT_NUM) | ATTR(ALLOW_REMOTE_WRITE) |
		       ATTR(ALLOW_REMOTE_READ) | ATTR(ATOMIC_MODE));
	change(e->qp, attr, DOCA_VERBS_QP_STATE_RTR,
	       ATTR(RQ_PSN) | ATTR(DEST_QP_NUM) | ATTR(PATH_MTU) | ATTR(AH_ATTR) |
		       ATTR(MIN_RNR_TIMER));
	change(e->qp, attr, DOCA_VERBS_QP_STATE_RTS,
	       ATTR(SQ_PSN) | ATTR(ACK_TIMEOUT) | ATTR(RETRY_CNT) | ATTR(RNR_RETRY));
	OK(doca_verbs_qp_attr_destroy(attr));
	OK(doca_verbs_ah_attr_destroy(ah));
}

/* ---- what a kernel does ---- */

/* Writes an RDMA WRITE entry, and tells the NIC as the queue pair's handler requires. */
UNUSED static void put(struct end *e, uint64_t remote, uint32_t rkey, uint64_t local, uint32_t lkey,
		       uint32_t size)
{
	struct doca_gpu_dev_verbs_qp *q = e->device;
	const uint64_t index = e->producer++;
	uint64_t *to = (void *)(q->sq_wqe_daddr + 64 * (index & q->sq_wqe_mask));
	const struct doca_gpu_dev_verbs_wqe w = {
		.rw_cseg.opmod_idx_opcode = htobe32((uint32_t)(index & 0xffff) << 8 |
						    DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_WRITE),
		.rw_cseg.qpn_ds = q->sq_num_shift8_be_3ds,
		.rw_cseg.fm_ce_se = DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_CQ_UPDATE,
		.rw_rseg = {.raddr = htobe64(remote), .rkey = htobe32(rkey)},
		.rw_dseg0 = {htobe32(size), htobe32(lkey), htobe64(local)},
	};

	for (int i = 0; i < 8; i++) {
		uint64_t word;

		memcpy(&word, w.inl_data + 8 * i, 8);
		__atomic_store_n(&to[i], word, __ATOMIC_RELAXED);
	}
	/* The NIC sees the entry before its index. */
	if (q->nic_handler == DOCA_GPUNETIO_VERBS_NIC_HANDLER_CPU_PROXY)
		__atomic_store_n(q->sq_db, e->producer, __ATOMIC_RELEASE);
	else if (q->nic_handler == DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_DB)
		__atomic_store_n(q->sq_dbrec, htobe32((uint32_t)e->producer & 0xffff),
				 __ATOMIC_RELEASE);
	else
		__atomic_store_n(&q->sq_wqe_pi, e->producer, __ATOMIC_RELEASE);
}

/* Waits for the next CQE. Returns 0, or the syndrome of an error. */
UNUSED static int wait_cqe(struct end *e)
{
	struct doca_gpu_dev_verbs_cq *cq = &e->device->cq_sq;
	const uint64_t index = cq->cqe_ci++;
	const uint64_t *cqe = (void *)(cq->cqe_daddr + 64 * (index & cq->cqe_mask));
	const uint8_t owner = (uint8_t)(index / cq->cqe_num & 1);
	const time_t end = time(NULL) + 30;

	for (;;) {
		const uint64_t last = be64toh(__atomic_load_n(&cqe[7], __ATOMIC_ACQUIRE));
		const uint8_t opcode = (uint8_t)last >> 4;

		if (opcode != MLX5_CQE_INVALID && (last & 1) == owner)
			return opcode == MLX5_CQE_REQ_ERR
				       ? (uint8_t)be64toh(__atomic_load_n(&cqe[6], __ATOMIC_RELAXED))
				       : 0;
		CHECK(time(NULL) < end);
		if (e->device->nic_handler == DOCA_GPUNETIO_VERBS_NIC_HANDLER_CPU_PROXY)
			OK(doca_gpu_verbs_cpu_proxy_progress(e->exported));
		else
			nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	}
}

#endif
