// SPDX-License-Identifier: Apache-2.0
/* Queue pairs of the software NIC: entries in the format of mlx5, and completions. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "doca_rdma_bridge.h"
#include "copy/gpu_queue.h"
#include "nic/soft_nic.h"
#include "nic_wqe.h"
#include "rdma.h"

enum { CQE_BYTES = 64, CQES_MIN = 16, CQE_INVALID = 0xf1 };
enum { CQE_IMMEDIATE = 36, CQE_COUNT = 44, CQE_QPN = 56, CQE_OWN = 63 };

/* ---- the NIC ---- */

static doca_error_t open_nic(struct doca_rdma *r)
{
	union ibv_gid gid;
	struct ibv_pd *pd;
	TRY(doca_rdma_bridge_get_dev_pd(r->ctx.dev, &pd));
	r->pd = nic_pd(pd);
	atomic_fetch_add(&r->pd->users, 1);
	r->nic = nic_context(pd->context)->nic;
	const int rc = -softdoca_ibv_gid(r->pd->v.context, &gid);
	if (rc)
		return softdoca_failed("doca_ctx_start", rc);
	memcpy(r->gid, gid.raw, sizeof r->gid);
	r->max_bytes = RDMA_BYTES_MAX;
	return DOCA_SUCCESS;
}

static doca_error_t open_cq(struct doca_rdma *r, uint32_t tasks)
{
	uint32_t n = CQES_MIN;
	while (n < tasks)
		n *= 2;
	r->n_cqes = n;
	r->cq_head = 0;
	r->cqes = aligned_alloc(CQE_BYTES, (size_t)n * CQE_BYTES);
	if (!r->cqes)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %u completions", n);
	memset(r->cqes, CQE_INVALID, (size_t)n * CQE_BYTES);
	const dg_nic_cq_config cfg = {.ring = r->cqes, .entries = n};
	const int rc = softdoca_nic.cq_open(r->nic, &cfg, &r->cq);
	return rc ? softdoca_failed("doca_ctx_start", rc) : DOCA_SUCCESS;
}

static void close_nic(struct doca_rdma *r)
{
	if (r->cq)
		softdoca_nic.cq_close(r->cq);
	r->cq = NULL;
	free(r->cqes);
	r->cqes = NULL;
	if (r->pd)
		atomic_fetch_sub(&r->pd->users, 1);
	r->pd = NULL;
}

/* ---- queue pairs ---- */

static bool make_rings(struct doca_rdma_connection *c)
{
	c->send.n_blocks = c->send.n < DG_NIC_ENTRIES_MAX ? 2 * c->send.n : c->send.n;
	const size_t sends = (size_t)c->send.n_blocks * WQE_BLOCK,
		     receives = (size_t)c->receive.n * RDMA_LIST_MAX * WQE_SEGMENT;
	c->memory = aligned_alloc(WQE_BLOCK, (sends + receives + WQE_BLOCK - 1) / WQE_BLOCK * WQE_BLOCK);
	if (!c->memory)
		return false;
	c->send.entries = c->memory;
	c->receive.entries = c->memory + sends;
	return true;
}

uint32_t rdma_nic_rights(const struct doca_rdma *r)
{
	const uint32_t permissions = r->permissions;
	return DG_NIC_LOCAL_WRITE |
	       (permissions & DOCA_ACCESS_FLAG_RDMA_WRITE ? DG_NIC_REMOTE_WRITE : 0) |
	       (permissions & DOCA_ACCESS_FLAG_RDMA_READ ? DG_NIC_REMOTE_READ : 0) |
	       (permissions & DOCA_ACCESS_FLAG_RDMA_ATOMIC ? DG_NIC_REMOTE_ATOMIC : 0);
}

static int open_pair(struct doca_rdma_connection *c)
{
	const struct doca_rdma *r = c->rdma;
	const dg_nic_qp_config cfg = {
		.send_ring = c->send.entries,
		.receive_ring = c->receive.entries,
		.send_entries = c->send.n_blocks,
		.receive_entries = c->receive.n,
		.receive_sges = RDMA_LIST_MAX,
		.doorbell_mode = DG_NIC_PROXY,
		.record = c->record,
		.doorbell = &c->doorbell,
		.send_cq = r->cq,
		.receive_cq = r->cq,
		.pd = r->pd->v.handle,
	};
	int rc = softdoca_nic.qp_open(r->nic, &cfg, &c->qp);
	if (!rc)
		rc = softdoca_nic.qp_modify(c->qp, DG_NIC_INIT, NULL, rdma_nic_rights(r));
	return rc;
}

static int pair_open(struct doca_rdma_connection *c)
{
	struct rdma_gpu *gpu = &c->rdma->gpu;
	dg_nic_qp_info info;
	int rc = 0;
	if (gpu->structure) {
		c->id = gpu->used++;
		c->qp = gpu->queues[c->id].qp;
	} else {
		rc = make_rings(c) ? open_pair(c) : -ENOMEM;
	}
	if (!rc)
		rc = softdoca_nic.qp_info_get(c->qp, &info);
	if (!rc)
		c->qpn = c->blob.address.qpn = info.qpn;
	memcpy(c->blob.address.gid, c->rdma->gid, sizeof c->rdma->gid);
	return rc;
}

static int pair_join(struct doca_rdma_connection *c, const struct rdma_blob *peer)
{
	dg_nic_address address = {.qpn = peer->address.qpn};
	memcpy(address.gid, peer->address.gid, sizeof address.gid);
	const int rc = softdoca_nic.qp_modify(c->qp, DG_NIC_RTR, &address, 0);
	return rc ? rc : softdoca_nic.qp_modify(c->qp, DG_NIC_RTS, NULL, 0);
}

static int pair_break(struct doca_rdma_connection *c)
{
	dg_nic_qp_info info;
	if (!softdoca_nic.qp_info_get(c->qp, &info) && info.why[0])
		softdoca_log(DOCA_LOG_LEVEL_WARNING, "doca_pe_progress",
			     "connection %u broke, syndrome %#x: %s", c->id, info.syndrome, info.why);
	return softdoca_nic.qp_modify(c->qp, DG_NIC_ERROR, NULL, 0);
}

static bool pair_failed(struct doca_rdma_connection *c)
{
	dg_nic_qp_info info;
	return !softdoca_nic.qp_info_get(c->qp, &info) && info.state == DG_NIC_ERROR;
}

static void pair_close(struct doca_rdma_connection *c)
{
	if (c->qp && !c->rdma->gpu.structure)
		softdoca_nic.qp_close(c->qp);
	c->qp = NULL;
	free(c->memory);
	c->memory = NULL;
}

/* ---- entries ---- */

static const uint8_t opcodes[RDMA_TYPES] = {
	[RDMA_SEND] = WQE_SEND,		  [RDMA_SEND_IMM] = WQE_SEND_IMM,
	[RDMA_READ] = WQE_READ,		  [RDMA_WRITE] = WQE_WRITE,
	[RDMA_WRITE_IMM] = WQE_WRITE_IMM, [RDMA_CMP_SWP] = WQE_ATOMIC_CS,
	[RDMA_FETCH_ADD] = WQE_ATOMIC_FA, /* WQE_NOP, 0: of a task on a sync event */
};

static char *put_segments(char *at, const struct rdma_segments *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		at = put_data_segment(at, s->part[i].at, s->part[i].n, s->part[i].key);
	return at;
}

static char *put_remote(char *at, const struct rdma_task *t)
{
	uint32_t key;
	at = put_be64(at, rdma_remote(t, &key));
	at = put_be32(at, key);
	return put_be32(at, 0);
}

static char *put_operands(char *at, const struct rdma_task *t)
{
	at = put_be64(at, t->operand);
	return put_be64(at, t->compare);
}

/* Returns the size of a task's entry in WQE blocks. The entry of a task on a sync event is a NOP,
 * which has no data segments. */
static uint32_t blocks_of(const struct rdma_task *t)
{
	const uint32_t list = rdma_local_buf(t) && t->bytes && !is_event(t) ? rdma_local_buf(t)->list_len : 0;
	const uint32_t segments = 1 + has_remote(t) + is_atomic(t) + list;
	return (segments * WQE_SEGMENT + WQE_BLOCK - 1) / WQE_BLOCK;
}

static bool has_room(const struct doca_rdma_connection *c, const struct rdma_task *t)
{
	const struct rdma_ring *r = &c->send;
	return ring_used(r) < r->n && r->end_block - r->first_block + blocks_of(t) <= r->n_blocks;
}

static void put_send(struct doca_rdma_connection *c, struct rdma_task *t, const struct rdma_segments *s)
{
	char entry[2 * WQE_BLOCK] = {0}, *at = entry + WQE_SEGMENT;
	struct rdma_ring *r = &c->send;
	if (has_remote(t))
		at = put_remote(at, t);
	if (is_atomic(t))
		at = put_operands(at, t);
	if (!is_event(t))
		at = put_segments(at, s);
	put_be32(entry, (r->end_block & 0xffff) << 8 | opcodes[t->type]);
	put_be32(entry + 4, c->qpn << 8 | (uint32_t)((at - entry) / WQE_SEGMENT));
	entry[11] = WQE_CQE;
	memcpy(entry + 12, &t->immediate, sizeof t->immediate);
	t->blocks = (uint32_t)((at - entry + WQE_BLOCK - 1) / WQE_BLOCK);
	for (uint32_t i = 0; i < t->blocks; i++)
		memcpy(r->entries + (size_t)(r->end_block++ & (r->n_blocks - 1)) * WQE_BLOCK,
		       entry + i * WQE_BLOCK, WQE_BLOCK);
}

static void put_receive(struct doca_rdma_connection *c, struct rdma_task *t, const struct rdma_segments *s)
{
	const size_t size = RDMA_LIST_MAX * WQE_SEGMENT;
	char *at = c->receive.entries + (c->receive.end & (c->receive.n - 1)) * size;
	t->blocks = 0;
	at = put_segments(at, s);
	if (s->n < RDMA_LIST_MAX)
		put_data_segment(at, 0, 0, WQE_END_KEY);
}

static doca_error_t post(struct doca_rdma_connection *c, struct rdma_task *t, const struct rdma_segments *s)
{
	/* Release: the NIC that sees the count sees the entry. */
	if (is_receive(t)) {
		put_receive(c, t, s);
		__atomic_store_n(&c->record[0], htobe32(c->receive.end + 1), __ATOMIC_RELEASE);
	} else {
		put_send(c, t, s);
		__atomic_store_n(&c->doorbell, c->doorbell + t->blocks, __ATOMIC_RELEASE);
	}
	return DOCA_SUCCESS;
}

/* ---- completions ---- */

static uint8_t *next_cqe(const struct doca_rdma *r)
{
	return r->cqes + (size_t)(r->cq_head & (r->n_cqes - 1)) * CQE_BYTES;
}

static bool ready(struct doca_rdma *r)
{
	/* Acquire: the completion, and the bytes that the entry moved, are visible with it. The NIC
	 * stores 8 bytes at once. */
	const uint64_t last =
		__atomic_load_n((const uint64_t *)(const void *)(next_cqe(r) + CQE_QPN), __ATOMIC_ACQUIRE);
	const uint8_t own = (uint8_t)(last >> 56);
	return own >> 4 != 15 && (own & 1) == !!(r->cq_head & r->n_cqes);
}

static bool poll_cq(struct doca_rdma *r, struct rdma_cqe *out)
{
	const uint8_t *cqe = next_cqe(r);
	if (!ready(r))
		return false;
	r->cq_head++;
	out->qpn = be32_at(cqe + CQE_QPN) & 0xffffff;
	out->bytes = be32_at(cqe + CQE_COUNT);
	memcpy(&out->immediate, cqe + CQE_IMMEDIATE, sizeof out->immediate);
	out->opcode = cqe[CQE_OWN] >> 4;
	return true;
}

const struct rdma_net rdma_nic = {
	.open = open_nic,
	.open_cq = open_cq,
	.close = close_nic,
	.pair_open = pair_open,
	.pair_join = pair_join,
	.pair_break = pair_break,
	.pair_failed = pair_failed,
	.pair_close = pair_close,
	.has_room = has_room,
	.post = post,
	.poll = poll_cq,
	.ready = ready,
};
