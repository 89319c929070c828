// SPDX-License-Identifier: Apache-2.0
/*
 * DEVX: commands in the adapter's own format, which the kernel passes on, and the memory (umem) that they name.
 *
 * A command is a mailbox of big-endian fields: opcode, modifier, and a context of a queue pair or CQ; the numbers
 * are those of mlx5_ifc.h in rdma-core. The kernel refuses what is no command of the method (EINVAL), or names
 * another object; the adapter answers with a status and a syndrome, and the call then fails with EREMOTEIO.
 * Syndromes are the vendor's and not published: here they are 0xd6000000, plus the first bit of the field that is
 * wrong.
 */
#include <errno.h>
#include <stdlib.h>

#include <rdma/ib_user_ioctl_verbs.h>

#include "error.h"
#include "ioctl.h"

enum opcode {
	QUERY_HCA_CAP = 0x100,
	CREATE_CQ = 0x400,
	CREATE_QP = 0x500,
	RST2INIT = 0x502,
	INIT2RTR = 0x503,
	RTR2RTS = 0x504,
	RTS2RTS = 0x505,
	TO_ERROR = 0x507,
	TO_RESET = 0x50a,
	QUERY_QP = 0x50b,
	INIT2INIT = 0x50e,
	QUERY_ROCE_ADDRESS = 0x760,
	ALLOC_PD = 0x800,
};

enum status { GOOD, BAD_OPCODE = 2, BAD_PARAMETER = 3, BAD_RESOURCE = 5, NO_RESOURCES = 15, BAD_QP_STATE = 16,
	      BAD_INPUT_LENGTH = 0x50, BAD_OUTPUT_LENGTH = 0x51 };
enum { SYNDROME = 0xd6 << 24 };

/* A field: its first bit, and how many. */
#define FIELD(at, bits) ((at) << 8 | (bits))
/* The context of a queue pair, with its primary path, from its start. */
enum { QPC_BYTES = 232 };
#define QPC_STATE FIELD(0, 4)
#define QPC_ST FIELD(8, 8)
#define QPC_PD FIELD(40, 24)
#define QPC_MTU FIELD(64, 3)
#define QPC_LOG_RQ_SIZE FIELD(73, 4)
#define QPC_LOG_RQ_STRIDE FIELD(77, 3)
#define QPC_NO_SQ FIELD(80, 1)
#define QPC_LOG_SQ_SIZE FIELD(81, 4)
#define QPC_UAR_PAGE FIELD(104, 24)
#define QPC_SEND_DBR_MODE FIELD(128, 2)
#define QPC_USER_INDEX FIELD(136, 24)
#define QPC_REMOTE_QPN FIELD(168, 24)
#define QPC_PKEY_INDEX FIELD(208, 16)
#define QPC_ACK_TIMEOUT FIELD(256, 5)
#define QPC_SRC_ADDR_INDEX FIELD(264, 8)
#define QPC_HOP_LIMIT FIELD(280, 8)
#define QPC_RGID 320
#define QPC_PORT FIELD(488, 8)
#define QPC_LOG_SRA_MAX FIELD(904, 3)
#define QPC_RETRY_COUNT FIELD(909, 3)
#define QPC_RNR_RETRY FIELD(912, 3)
#define QPC_NEXT_SEND_PSN FIELD(968, 24)
#define QPC_CQN_SND FIELD(1000, 24)
#define QPC_LOG_RRA_MAX FIELD(1160, 3)
#define QPC_RRE FIELD(1168, 1)
#define QPC_RWE FIELD(1169, 1)
#define QPC_RAE FIELD(1170, 1)
#define QPC_MIN_RNR_NAK FIELD(1187, 5)
#define QPC_NEXT_RCV_PSN FIELD(1192, 24)
#define QPC_CQN_RCV FIELD(1256, 24)
#define QPC_DBR_ADDR FIELD(1280, 64)
#define QPC_Q_KEY FIELD(1344, 32)
#define QPC_RQ_TYPE FIELD(1381, 3)
#define QPC_SRQN FIELD(1384, 24)
#define QPC_DBR_UMEM FIELD(1824, 32)
/* Commands, from their start: their contexts, and what is behind these. */
enum { QPC = 192, CQC = 128 };
#define OPCODE FIELD(0, 16)
#define OP_MOD FIELD(48, 16)
#define NUMBER FIELD(72, 24) /* of the object, in and out */
#define OPT_PARAM_MASK FIELD(128, 32)
#define WQ_UMEM_OFFSET FIELD(2048, 64)
#define WQ_UMEM FIELD(2112, 32)
#define CQC_CQE_SZ FIELD(CQC + 8, 3)
#define CQC_COLLAPSED FIELD(CQC + 11, 1)
#define CQC_OVERRUN FIELD(CQC + 14, 1)
#define CQC_COMPRESSED FIELD(CQC + 17, 1)
#define CQC_DBR_UMEM FIELD(CQC + 32, 32)
#define CQC_LOG_SIZE FIELD(CQC + 99, 5)
#define CQC_UAR_PAGE FIELD(CQC + 104, 24)
#define CQC_DBR_ADDR FIELD(CQC + 448, 64)
#define CQ_UMEM_OFFSET FIELD(640, 64)
#define CQ_UMEM FIELD(704, 32)

/* A command on its way. o: the object that it is about. */
struct devx {
	struct context *context;
	struct object *o;
	uint8_t *in, *out;
	uint32_t in_size, out_size, syndrome;
};

static uint64_t get(const uint8_t *bytes, uint32_t field)
{
	uint64_t value = 0;
	for (uint32_t i = field >> 8, end = i + (field & 255); i < end; i++)
		value = value << 1 | (bytes[i / 8] >> (7 - i % 8) & 1);
	return value;
}

static void set(uint8_t *bytes, uint32_t field, uint64_t value)
{
	const uint32_t at = field >> 8;
	for (uint32_t i = at + (field & 255); i-- > at; value >>= 1)
		bytes[i / 8] = (uint8_t)((bytes[i / 8] & ~(128 >> i % 8)) | (value & 1) << (7 - i % 8));
}

static const uint8_t *qpc_of(const struct devx *d)
{
	return d->in + QPC / 8;
}

/* Returns the status, with the syndrome of a field of the command. */
static int refuse(struct devx *d, enum status status, uint32_t field)
{
	d->syndrome = (uint32_t)SYNDROME | field >> 8;
	return status;
}

static int refuse_qpc(struct devx *d, enum status status, uint32_t field)
{
	return refuse(d, status, field + (QPC << 8));
}

static int query_hca_cap(struct devx *d)
{
	enum { GENERAL = 0, ATOMIC = 3, ROCE = 4 };
	enum { CAS = 1, FETCH_ADD = 2, MASKED_CAS = 4, MASKED_FETCH_ADD = 8, BYTES_4 = 1 << 2, BYTES_8 = 1 << 3 };
	/* Fields of the structures cmd_hca_cap, atomic_caps and roce_caps, behind the header. */
	static const struct { uint16_t type; uint32_t field; uint64_t value; } caps[] = {
		{GENERAL, FIELD(32, 1), 1}, /* hca_cap_2: that kind can be asked for */
		{GENERAL, FIELD(128, 8), 15}, /* log_max_srq_sz */
		{GENERAL, FIELD(136, 8), 15}, /* log_max_qp_sz */
		{GENERAL, FIELD(155, 5), 10}, /* log_max_qp */
		{GENERAL, FIELD(171, 5), 10}, /* log_max_srq */
		{GENERAL, FIELD(200, 8), 22}, /* log_max_cq_sz */
		{GENERAL, FIELD(219, 5), 13}, /* log_max_cq */
		{GENERAL, FIELD(234, 6), 13}, /* log_max_mkey */
		{GENERAL, FIELD(330, 6), 4}, /* log_max_ra_req_qp */
		{GENERAL, FIELD(346, 6), 4}, /* log_max_ra_res_qp */
		{GENERAL, FIELD(368, 16), 1}, /* gid_table_size: 16 entries */
		{GENERAL, FIELD(438, 2), 1}, /* port_type: Ethernet */
		{GENERAL, FIELD(440, 8), 1}, /* num_ports */
		{GENERAL, FIELD(451, 5), 30}, /* log_max_msg */
		{GENERAL, FIELD(508, 4), 1}, /* cqe_version */
		{GENERAL, FIELD(512, 1), 1}, /* compact_address_vector */
		{GENERAL, FIELD(541, 1), 1}, /* roce */
		{GENERAL, FIELD(542, 1), 1}, /* atomic */
		{GENERAL, FIELD(572, 4), 15}, /* xrc, ud, uc, rc */
		{GENERAL, FIELD(576, 1), 1}, /* uar_4k */
		{GENERAL, FIELD(608, 1), 1}, /* bf */
		{GENERAL, FIELD(619, 5), 9}, /* log_bf_reg_size */
		{GENERAL, FIELD(656, 16), 1008}, /* max_wqe_sz_sq */
		{GENERAL, FIELD(688, 16), 16 * DG_NIC_SGES}, /* max_wqe_sz_rq */
		{GENERAL, FIELD(811, 5), 13}, /* log_max_pd */
		{GENERAL, FIELD(1168, 16), 12}, /* log_uar_page_sz */
		{GENERAL, FIELD(1312, 32), 1}, /* num_of_uars_per_page */
		{ATOMIC, FIELD(64, 2), 1}, /* atomic_req_8B_endianness_mode: the host's */
		{ATOMIC, FIELD(70, 1), 1}, /* supported_atomic_req_8B_endianness_mode_1 */
		{ATOMIC, FIELD(144, 16), CAS | FETCH_ADD | MASKED_CAS | MASKED_FETCH_ADD},
		{ATOMIC, FIELD(176, 16), BYTES_4 | BYTES_8},
		{ROCE, FIELD(140, 4), 3}, /* l3_type: IPv4, IPv6 */
		{ROCE, FIELD(152, 8), 4}, /* roce_version: 2 */
		{ROCE, FIELD(176, 16), 4791}, /* r_roce_dest_udp_port */
		{ROCE, FIELD(192, 16), 0xffff}, /* r_roce_max_src_udp_port */
		{ROCE, FIELD(208, 16), 0xc000}, /* r_roce_min_src_udp_port */
		{ROCE, FIELD(240, 16), 1}, /* roce_address_table_size */
	};
	enum { KINDS = 0x40 }; /* of capabilities: what is not here is all 0 */
	const uint32_t type = (uint32_t)get(d->in, OP_MOD) >> 1; /* now and at most are the same */
	for (uint32_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
		const uint32_t field = caps[i].field + (DEVX_HEADER * 8 << 8), end = (field >> 8) + (field & 255);
		if (caps[i].type == type && end <= 8 * d->out_size)
			set(d->out, field, caps[i].value);
	}
	return type < KINDS ? GOOD : refuse(d, BAD_PARAMETER, OP_MOD);
}

static int query_roce_address(struct devx *d)
{
	enum { INDEX = FIELD(64, 16), ADDRESS = DEVX_HEADER * 8 };
	if (get(d->in, INDEX))
		return refuse(d, BAD_PARAMETER, INDEX);
	/* The GID of 127.0.0.1 and up, as in dgkit/software_adapter.py. */
	set(d->out, FIELD(96, 16), 1);
	set(d->out, FIELD(ADDRESS + 64, 64), 0xffff7f000001ull + d->context->adapter);
	set(d->out, FIELD(ADDRESS + 144, 48), 0x020000000000ull);
	set(d->out, FIELD(ADDRESS + 216, 8), 2); /* roce_version */
	return GOOD;
}

static struct object *find_numbered(const struct context *x, uint32_t number, enum kind kind)
{
	struct object *o = dg_mlx5_find_any(x, number, KIND_ANY);
	return o && o->kind == kind ? o : NULL;
}

static struct cq *find_cq(const struct context *x, uint32_t number)
{
	struct object *o;
	for (uint32_t i = 0; i < MAX_OBJECTS; i++)
		if ((o = find_numbered(x, i, KIND_CQ)) && ((struct cq *)o)->number == number)
			return (struct cq *)o;
	return NULL;
}

/* Stores the address of bytes in a umem, which `o` uses from now on. *gpu: where they are on a GPU, with a copy of
 * them at *at, or 0. gpu: NULL, if they cannot be there. Returns a status. */
static int take_memory(struct devx *d, struct object *o, uint32_t umem_field, uint32_t offset_field, uint64_t size,
		       uint8_t **at, uint64_t *gpu)
{
	struct umem *u = (struct umem *)find_numbered(d->context, (uint32_t)get(d->in, umem_field), KIND_UMEM);
	const uint64_t offset = get(d->in, offset_field);
	if (!u)
		return refuse(d, BAD_RESOURCE, umem_field);
	if (offset > u->size || size > u->size - offset)
		return refuse(d, BAD_PARAMETER, offset_field);
	if (u->is_on_gpu ? !gpu : !dg_mlx5_is_writable(u->start + offset, size))
		return refuse(d, BAD_RESOURCE, umem_field);
	dg_mlx5_use(o, &u->o);
	*at = (uint8_t *)(uintptr_t)(u->start + offset);
	if (!u->is_on_gpu)
		return GOOD;
	*gpu = u->start + offset;
	o->ring = *at = aligned_alloc(64, (size + 63) & ~63ull);
	return *at ? GOOD : refuse(d, NO_RESOURCES, umem_field);
}

static int take_uar(struct devx *d, struct object *o, uint32_t field)
{
	struct object *uar = find_numbered(d->context, (uint32_t)get(d->in, field), KIND_UAR);
	if (!uar)
		return refuse(d, BAD_RESOURCE, field);
	dg_mlx5_use(o, uar);
	return GOOD;
}

static int create_cq(struct devx *d)
{
	const uint32_t log = (uint32_t)get(d->in, CQC_LOG_SIZE), size = get(d->in, CQC_CQE_SZ) ? 128 : 64;
	uint8_t *ring = NULL, *record = NULL;
	uint64_t gpu_ring = 0;
	struct cq *q;
	if (get(d->in, CQC_CQE_SZ) > 1)
		return refuse(d, BAD_PARAMETER, CQC_CQE_SZ);
	if (log > 22)
		return refuse(d, BAD_PARAMETER, CQC_LOG_SIZE);
	if (get(d->in, CQC_COMPRESSED))
		return refuse(d, BAD_PARAMETER, CQC_COMPRESSED);
	if (dg_mlx5_new(d->context, sizeof *q, KIND_CQ, &q))
		return refuse(d, NO_RESOURCES, OPCODE);
	const bool is_collapsed = get(d->in, CQC_COLLAPSED);
	int status = take_uar(d, &q->o, CQC_UAR_PAGE);
	if (!status)
		status = take_memory(d, &q->o, CQ_UMEM, CQ_UMEM_OFFSET, is_collapsed ? size : (uint64_t)size << log, &ring,
				     &gpu_ring);
	/* A record on a GPU is not read: it would say where CQEs have no place. */
	struct umem *records = (struct umem *)find_numbered(d->context, (uint32_t)get(d->in, CQC_DBR_UMEM), KIND_UMEM);
	if (!status && !(records && records->is_on_gpu && get(d->in, CQC_OVERRUN)))
		status = take_memory(d, &q->o, CQC_DBR_UMEM, CQC_DBR_ADDR, 8, &record, NULL);
	const dg_nic_cq_config config = {
		.ring = ring,
		.gpu_ring = gpu_ring,
		.entries = 1u << log,
		.collapsed = is_collapsed,
		.entry_size = size,
		.record = (uint32_t *)record,
		.event = q->o.event,
		.event_fd = record ? dg_mlx5_event_fd() : -1,
		.async_fd = dg_mlx5_event_fd(),
		.is_checked = !get(d->in, CQC_OVERRUN),
	};
	if (!status && dg_nic_cq_open(dg_mlx5_nic(), &config, &q->nic_cq))
		status = refuse(d, BAD_PARAMETER, CQ_UMEM_OFFSET); /* not at a multiple of 64, or the record of 4 */
	if (status) {
		dg_mlx5_remove(&q->o);
		return status;
	}
	dg_nic_cq_number(q->nic_cq, &q->number);
	q->entry_size = size;
	d->o = &q->o;
	set(d->out, NUMBER, q->number);
	return GOOD;
}

/* Finds what the context names. */
static int find_parts(struct devx *d, struct qp *q)
{
	enum { REGULAR, SHARED, NO_RECEIVES = 3 };
	const uint8_t *c = qpc_of(d);
	const uint64_t type = get(c, QPC_RQ_TYPE);
	q->pd = find_numbered(d->context, (uint32_t)get(c, QPC_PD), KIND_PD);
	if (!q->pd)
		return refuse_qpc(d, BAD_RESOURCE, QPC_PD);
	q->send_cq = find_cq(d->context, (uint32_t)get(c, QPC_CQN_SND));
	if (!q->send_cq)
		return refuse_qpc(d, BAD_RESOURCE, QPC_CQN_SND);
	if (type == NO_RECEIVES)
		return GOOD;
	q->receive_cq = find_cq(d->context, (uint32_t)get(c, QPC_CQN_RCV));
	if (!q->receive_cq)
		return refuse_qpc(d, BAD_RESOURCE, QPC_CQN_RCV);
	if (type == SHARED)
		q->srq = (struct srq *)find_numbered(d->context, (uint32_t)get(c, QPC_SRQN), KIND_SRQ);
	return type == REGULAR || q->srq ? GOOD : refuse_qpc(d, BAD_RESOURCE, type == SHARED ? QPC_SRQN : QPC_RQ_TYPE);
}

static int open_qp(struct devx *d, struct qp *q)
{
	static _Alignas(64) uint8_t no_entries[64];
	const uint8_t *c = qpc_of(d);
	const bool sends = !get(c, QPC_NO_SQ), receives = q->receive_cq && !q->srq;
	const uint64_t stride = 16ull << get(c, QPC_LOG_RQ_STRIDE);
	dg_nic_qp_config config = {
		.send_entries = sends ? 1u << get(c, QPC_LOG_SQ_SIZE) : 1,
		.receive_entries = receives ? 1u << get(c, QPC_LOG_RQ_SIZE) : 0,
		.receive_sges = receives ? (uint32_t)stride / 16 : 0,
		.doorbell_mode = DG_NIC_RECORD,
		.user_index = (uint32_t)get(c, QPC_USER_INDEX),
		.async_fd = dg_mlx5_event_fd(),
		.event = q->o.event,
	};
	uint8_t *ring, *record;
	/* The receive ring, then the send ring. */
	const uint64_t receive_size = receives ? stride * config.receive_entries : 0;
	int status = take_memory(d, &q->o, WQ_UMEM, WQ_UMEM_OFFSET,
				 receive_size + (sends ? 64ull * config.send_entries : 0), &ring,
				 receives ? NULL : &config.gpu_ring);
	if (!status)
		status = take_memory(d, &q->o, QPC_DBR_UMEM + (QPC << 8), QPC_DBR_ADDR + (QPC << 8), 8, &record, NULL);
	if (status)
		return status;
	config.receive_ring = ring;
	config.send_ring = sends ? ring + receive_size : no_entries;
	config.record = (uint32_t *)record;
	return dg_mlx5_qp_open(q, &config) ? refuse(d, BAD_PARAMETER, WQ_UMEM_OFFSET) : GOOD;
}

static int create_qp(struct devx *d)
{
	static const uint8_t transports[] = {DG_NIC_RC, DG_NIC_UC, DG_NIC_UD};
	const uint8_t *c = qpc_of(d);
	const uint64_t type = get(c, QPC_ST);
	struct qp *q;
	if (type >= sizeof transports)
		return refuse_qpc(d, BAD_PARAMETER, QPC_ST);
	if (get(c, QPC_SEND_DBR_MODE))
		return refuse_qpc(d, BAD_PARAMETER, QPC_SEND_DBR_MODE);
	if (dg_mlx5_new(d->context, sizeof *q, KIND_QP, &q))
		return refuse(d, NO_RESOURCES, OPCODE);
	q->transport = transports[type];
	int status = find_parts(d, q);
	if (!status)
		status = take_uar(d, &q->o, QPC_UAR_PAGE + (QPC << 8));
	if (!status)
		status = open_qp(d, q);
	if (status) {
		dg_mlx5_remove(&q->o);
		return status;
	}
	memcpy(q->devx_context, c, QPC_BYTES);
	d->o = &q->o;
	set(d->out, NUMBER, q->number);
	return GOOD;
}

static int alloc_pd(struct devx *d)
{
	if (dg_mlx5_new(d->context, sizeof *d->o, KIND_PD, &d->o))
		return refuse(d, NO_RESOURCES, OPCODE);
	set(d->out, NUMBER, d->o->handle);
	return GOOD;
}

/* Bits of opt_param_mask: fields that a change may take, or leave. */
enum { OPT_RRE = 1 << 1, OPT_RAE = 1 << 2, OPT_RWE = 1 << 3, OPT_RNR = 1 << 6 };

static uint32_t access_after(const struct devx *d, const struct qp *q, bool takes_all)
{
	static const struct { uint32_t bit, field, right; } rights[] = {
		{OPT_RRE, QPC_RRE, IB_UVERBS_ACCESS_REMOTE_READ},
		{OPT_RAE, QPC_RAE, IB_UVERBS_ACCESS_REMOTE_ATOMIC},
		{OPT_RWE, QPC_RWE, IB_UVERBS_ACCESS_REMOTE_WRITE},
	};
	const uint64_t mask = get(d->in, OPT_PARAM_MASK);
	uint32_t access = takes_all ? 0 : q->attributes.qp_access_flags;
	for (uint32_t i = 0; i < 3; i++)
		if (takes_all || mask & rights[i].bit)
			access = (access & ~rights[i].right) | (get(qpc_of(d), rights[i].field) ? rights[i].right : 0);
	return access;
}

/* A change of state: what it takes, as in ibv_modify_qp(). */
static const struct change { uint16_t opcode, from, to; uint32_t mask; } changes[] = {
	{RST2INIT, DG_NIC_RESET, DG_NIC_INIT, STATE | PKEY_INDEX | PORT | ACCESS},
	{INIT2INIT, DG_NIC_INIT, DG_NIC_INIT, STATE | PKEY_INDEX | PORT | ACCESS},
	{INIT2RTR, DG_NIC_INIT, DG_NIC_RTR, STATE | PATH | MTU | DEST_QPN | RQ_PSN | DEST_RD_ATOMIC | RNR_TIMER | ACCESS},
	{RTR2RTS, DG_NIC_RTR, DG_NIC_RTS, STATE | TIMEOUT | RETRIES | RNR_RETRIES | SQ_PSN | RD_ATOMIC | ACCESS},
	{RTS2RTS, DG_NIC_RTS, DG_NIC_RTS, STATE | ACCESS},
	{TO_ERROR, UINT16_MAX, DG_NIC_ERROR, STATE},
	{TO_RESET, UINT16_MAX, DG_NIC_RESET, STATE},
};

static const struct change *find_change(uint32_t opcode)
{
	uint32_t i = 0;
	while (i < sizeof changes / sizeof changes[0] && changes[i].opcode != opcode)
		i++;
	return i < sizeof changes / sizeof changes[0] ? &changes[i] : NULL;
}

static int modify_qp(struct devx *d)
{
	struct qp *q = (struct qp *)d->o;
	const struct change *change = find_change((uint32_t)get(d->in, OPCODE));
	const uint8_t *c = qpc_of(d);
	const bool is_short = change->mask == STATE; /* a command without a context */
	struct ib_uverbs_modify_qp m = {.attr_mask = change->mask, .qp_state = (uint8_t)change->to};
	dg_mlx5_qp_load_state(q);
	if (change->from != UINT16_MAX && q->attributes.qp_state != change->from)
		return refuse(d, BAD_QP_STATE, OPCODE);
	if (!is_short) {
		if (q->transport == DG_NIC_UD && change->opcode == RST2INIT)
			m.attr_mask |= QKEY;
		m.attr_mask &= dg_mlx5_qp_known(q);
		m.pkey_index = (uint16_t)get(c, QPC_PKEY_INDEX);
		m.port_num = get(c, QPC_PORT) ? (uint8_t)get(c, QPC_PORT) : 1; /* of one port there is only one */
		m.qp_access_flags = (uint8_t)access_after(d, q, change->opcode == RST2INIT);
		m.qkey = (uint32_t)get(c, QPC_Q_KEY);
		m.path_mtu = (uint8_t)get(c, QPC_MTU);
		m.dest_qp_num = (uint32_t)get(c, QPC_REMOTE_QPN);
		m.dest.sgid_index = (uint8_t)get(c, QPC_SRC_ADDR_INDEX);
		memcpy(m.dest.dgid, c + QPC_RGID / 8, sizeof m.dest.dgid);
		m.rq_psn = (uint32_t)get(c, QPC_NEXT_RCV_PSN);
		m.sq_psn = (uint32_t)get(c, QPC_NEXT_SEND_PSN);
		m.max_rd_atomic = (uint8_t)(1u << get(c, QPC_LOG_SRA_MAX));
		m.max_dest_rd_atomic = (uint8_t)(1u << get(c, QPC_LOG_RRA_MAX));
		m.timeout = (uint8_t)get(c, QPC_ACK_TIMEOUT);
		m.retry_cnt = (uint8_t)get(c, QPC_RETRY_COUNT);
		m.rnr_retry = (uint8_t)get(c, QPC_RNR_RETRY);
		m.min_rnr_timer = (uint8_t)get(c, QPC_MIN_RNR_NAK);
		if (change->opcode == RTS2RTS && get(d->in, OPT_PARAM_MASK) & OPT_RNR)
			m.attr_mask |= RNR_TIMER;
	}
	if (m.pkey_index)
		return refuse_qpc(d, BAD_PARAMETER, QPC_PKEY_INDEX);
	if (m.attr_mask & PORT && m.port_num != 1)
		return refuse_qpc(d, BAD_PARAMETER, QPC_PORT);
	if (m.attr_mask & PATH && m.dest.sgid_index)
		return refuse_qpc(d, BAD_PARAMETER, QPC_SRC_ADDR_INDEX);
	if (m.attr_mask & MTU && (!m.path_mtu || m.path_mtu > 5))
		return refuse_qpc(d, BAD_PARAMETER, QPC_MTU);
	if (m.attr_mask & RD_ATOMIC && m.max_rd_atomic > MAX_QP_RD_ATOM)
		return refuse_qpc(d, BAD_PARAMETER, QPC_LOG_SRA_MAX);
	if (m.attr_mask & DEST_RD_ATOMIC && m.max_dest_rd_atomic > MAX_QP_RD_ATOM)
		return refuse_qpc(d, BAD_PARAMETER, QPC_LOG_RRA_MAX);
	const int rc = dg_mlx5_qp_modify(q, &m);
	return !rc ? GOOD : rc == -EINVAL ? refuse(d, BAD_PARAMETER, OPCODE) : refuse_qpc(d, BAD_RESOURCE, QPC_REMOTE_QPN);
}

static uint32_t log_of(uint32_t value)
{
	return value ? 31u - (uint32_t)__builtin_clz(value) : 0;
}

static int query_qp(struct devx *d)
{
	struct qp *q = (struct qp *)d->o;
	const struct ib_uverbs_query_qp_resp *a = &q->attributes;
	uint8_t *c = d->out + QPC / 8;
	dg_mlx5_qp_load_state(q);
	memcpy(c, q->devx_context, QPC_BYTES);
	set(c, QPC_STATE, a->qp_state);
	set(c, QPC_PD, q->pd->handle);
	set(c, QPC_MTU, a->path_mtu);
	set(c, QPC_REMOTE_QPN, a->dest_qp_num);
	set(c, QPC_PKEY_INDEX, a->pkey_index);
	set(c, QPC_ACK_TIMEOUT, a->timeout);
	set(c, QPC_PORT, a->port_num);
	memcpy(c + QPC_RGID / 8, a->dest.dgid, sizeof a->dest.dgid);
	set(c, QPC_LOG_SRA_MAX, log_of(a->max_rd_atomic));
	set(c, QPC_RETRY_COUNT, a->retry_cnt);
	set(c, QPC_RNR_RETRY, a->rnr_retry);
	set(c, QPC_NEXT_SEND_PSN, a->sq_psn);
	set(c, QPC_CQN_SND, q->send_cq ? q->send_cq->number : 0);
	set(c, QPC_LOG_RRA_MAX, log_of(a->max_dest_rd_atomic));
	set(c, QPC_RRE, !!(a->qp_access_flags & IB_UVERBS_ACCESS_REMOTE_READ));
	set(c, QPC_RWE, !!(a->qp_access_flags & IB_UVERBS_ACCESS_REMOTE_WRITE));
	set(c, QPC_RAE, !!(a->qp_access_flags & IB_UVERBS_ACCESS_REMOTE_ATOMIC));
	set(c, QPC_MIN_RNR_NAK, a->min_rnr_timer);
	set(c, QPC_NEXT_RCV_PSN, a->rq_psn);
	set(c, QPC_CQN_RCV, q->receive_cq ? q->receive_cq->number : 0);
	set(c, QPC_Q_KEY, a->qkey);
	return GOOD;
}

/* in, out: bytes that the command and its answer have at least. */
static const struct mailbox {
	uint16_t opcode, in, out;
	int (*other)(struct devx *), (*create)(struct devx *), (*modify)(struct devx *), (*query)(struct devx *);
} mailboxes[] = {
	{QUERY_HCA_CAP, 16, 16, .other = query_hca_cap},
	{QUERY_ROCE_ADDRESS, 16, 48, .other = query_roce_address},
	{ALLOC_PD, 16, 16, .create = alloc_pd},
	{CREATE_CQ, 272, 16, .create = create_cq},
	{CREATE_QP, 272, 16, .create = create_qp},
	{RST2INIT, 256, 16, .modify = modify_qp},
	{INIT2INIT, 256, 16, .modify = modify_qp},
	{INIT2RTR, 256, 16, .modify = modify_qp},
	{RTR2RTS, 256, 16, .modify = modify_qp},
	{RTS2RTS, 256, 16, .modify = modify_qp},
	{TO_ERROR, 16, 16, .modify = modify_qp},
	{TO_RESET, 16, 16, .modify = modify_qp},
	{QUERY_QP, 16, 256, .query = query_qp},
};

/* What an adapter of this kind can create, and this one cannot: keys, shared queues, DC, steering, general objects. */
static bool is_missing(uint32_t opcode)
{
	static const uint16_t opcodes[] = {0x200, 0x600, 0x700, 0x705, 0x710, 0x717, 0x771, 0x782, 0x80e, 0x816, 0x900, 0x904, 0x908,
					   0x90c, 0x912, 0x916, 0x930, 0x933, 0x936, 0x939, 0x93d, 0x940, 0xa00};
	for (uint32_t i = 0; i < sizeof opcodes / sizeof opcodes[0]; i++)
		if (opcodes[i] == opcode)
			return true;
	return false;
}

static const struct mailbox *find_mailbox(uint32_t opcode)
{
	for (uint32_t i = 0; i < sizeof mailboxes / sizeof mailboxes[0]; i++)
		if (mailboxes[i].opcode == opcode)
			return &mailboxes[i];
	return NULL;
}

/* Runs the command in d->in, which is the request's attribute `input`. offset: of the function in the table, for the
 * request's method. Stores the answer in d->out, and a status in *status. Returns 0 or a negative errno. */
static int run_command(struct request *r, struct devx *d, size_t offset, int *status)
{
	int (*function)(struct devx *) = NULL;
	const struct mailbox *m = find_mailbox((uint32_t)get(d->in, OPCODE));
	if (m)
		memcpy(&function, (const char *)m + offset, sizeof function);
	if (!r->context->has_devx || !function)
		return is_missing((uint32_t)get(d->in, OPCODE)) ? -EOPNOTSUPP : -EINVAL;
	if (d->o && (d->o->kind != KIND_QP || ((struct qp *)d->o)->number != get(d->in, NUMBER)))
		return -EINVAL;
	*status = d->in_size < m->in	? refuse(d, BAD_INPUT_LENGTH, OPCODE)
		  : d->out_size < m->out ? refuse(d, BAD_OUTPUT_LENGTH, OPCODE)
					 : function(d);
	if (!*status)
		return 0;
	memset(d->out, 0, d->out_size);
	d->out[0] = (uint8_t)*status;
	if (d->out_size >= 8)
		set(d->out, FIELD(32, 32), d->syndrome);
	return 0;
}

/* The same for a command whose answer is the next attribute: a status other than 0 is an error. *made: the object. */
static int run(struct request *r, uint32_t input, size_t offset, struct object **made)
{
	struct devx d = {.context = r->context, .o = r->object, .in_size = dg_mlx5_length(r, input),
			 .out_size = dg_mlx5_length(r, input + 1)};
	int rc = -ENOMEM, status = GOOD;
	d.in = malloc(d.in_size);
	d.out = calloc(1, d.out_size);
	if (d.in && d.out)
		rc = dg_mlx5_get(r, input, d.in, d.in_size);
	if (!rc)
		rc = run_command(r, &d, offset, &status);
	if (made)
		*made = rc || status ? NULL : d.o;
	if (!rc)
		rc = dg_mlx5_put(r, input + 1, d.out, d.out_size);
	free(d.in);
	free(d.out);
	return rc ? rc : status ? -EREMOTEIO : 0;
}

int dg_mlx5_devx_answer(struct request *r, uint32_t input, uint8_t *out, uint32_t size)
{
	struct devx d = {.context = r->context, .o = r->object, .in_size = dg_mlx5_length(r, input), .out = out,
			 .out_size = size};
	int status;
	d.in = malloc(d.in_size);
	int rc = d.in ? dg_mlx5_get(r, input, d.in, d.in_size) : -ENOMEM;
	if (!rc)
		rc = size ? run_command(r, &d, offsetof(struct mailbox, query), &status) : -EINVAL;
	free(d.in);
	return rc;
}

int dg_mlx5_devx_other(struct request *r)
{
	return run(r, 0, offsetof(struct mailbox, other), NULL);
}

int dg_mlx5_devx_create(struct request *r)
{
	struct object *o = NULL;
	int rc = run(r, 1, offsetof(struct mailbox, create), &o);
	if (!o)
		return rc;
	o->is_devx = true;
	if (!rc)
		rc = dg_mlx5_put_handle(r, 0, o->handle);
	if (rc)
		dg_mlx5_destroy(o);
	return rc;
}

int dg_mlx5_devx_modify(struct request *r)
{
	return run(r, 1, offsetof(struct mailbox, modify), NULL);
}

int dg_mlx5_devx_query(struct request *r)
{
	return run(r, 1, offsetof(struct mailbox, query), NULL);
}

int dg_mlx5_umem_reg(struct request *r)
{
	enum { HANDLE, ADDRESS, LENGTH, ACCESS_FLAGS, ID, PAGE_SIZES, FD };
	const uint32_t known = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_READ;
	const uint64_t start = dg_mlx5_value(r, ADDRESS), size = dg_mlx5_value(r, LENGTH);
	const uint32_t access = (uint32_t)dg_mlx5_value(r, ACCESS_FLAGS);
	struct umem *u;
	if (!r->context->has_devx || access & ~known || !size ||
	    (access & IB_UVERBS_ACCESS_REMOTE_WRITE && !(access & IB_UVERBS_ACCESS_LOCAL_WRITE)))
		return -EINVAL;
	if (r->is_given[FD]) /* a dma-buf does not say where its memory is; programs then give the address */
		return -EOPNOTSUPP;
	const int on_gpu = dg_mlx5_is_on_gpu(start, size);
	if (on_gpu < 0)
		return on_gpu;
	if (!on_gpu &&
	    (start + size < start || !dg_mlx5_is_accessible(start, size, access & IB_UVERBS_ACCESS_LOCAL_WRITE)))
		return -EFAULT;
	TRY(dg_mlx5_new(r->context, sizeof *u, KIND_UMEM, &u));
	u->is_on_gpu = on_gpu;
	u->start = start;
	u->size = size;
	int rc = dg_mlx5_put(r, ID, &u->o.handle, sizeof u->o.handle);
	if (!rc)
		rc = dg_mlx5_put_handle(r, HANDLE, u->o.handle);
	if (rc)
		dg_mlx5_remove(&u->o);
	return rc;
}
