// SPDX-License-Identifier: Apache-2.0
/*
 * The structure of a queue pair that device code of GPUNetIO Verbs counts in. Offsets: as in NVIDIA's
 * open headers, with the receive queue in their reserved bytes (native/softdoca/include/
 * doca_gpunetio_verbs_dev.h).
 */
#include <endian.h>
#include <string.h>

#include "nic.h"

enum {
	HANDLER_CPU_PROXY = 1,
	HANDLER_GPU_SM_DB = 2,
	HANDLER_GPU_SM_NO_DBR = 10, /* enum doca_gpu_dev_verbs_nic_handler */
	MEM_TYPE_GPU = 2,
	SGE_BYTES = 16,
};

struct cq_layout {
	uint8_t *ring;
	uint32_t number, entries;
	uint32_t *record;
	uint64_t consumed;
	uint32_t mask;
	uint8_t cqe_bytes, reserved1[3];
	uint64_t reserved;
	uint32_t mem_type;
	uint8_t reserved2[12];
};

struct qp_layout {
	uint64_t sq_reserved, sq_ready, sq_producer;
	uint32_t number, number_shifted;
	uint32_t number_be[6]; /* alone, and with 1 to 5 segments */
	int32_t sq_lock;
	uint16_t sq_entries, sq_mask;
	void *sq_ring;
	uint32_t *sq_record;
	uint64_t *doorbell;
	uint8_t reserved1[8];
	uint64_t rq_reserved, rq_ready, rq_producer;
	void *rq_ring;
	uint32_t *rq_record;
	uint32_t rq_entries, rq_mask, rq_shift;
	int32_t rq_lock;
	uint8_t reserved2[8];
	struct cq_layout sq_cq, rq_cq;
	uint32_t handler, mem_type;
};

_Static_assert(sizeof(struct cq_layout) == 64 && sizeof(struct qp_layout) == DG_NIC_LAYOUT_SIZE,
	       "the sizes of the open headers");

static struct cq_layout lay_out_cq(const struct dg_nic_cq *cq)
{
	if (!cq)
		return (struct cq_layout){0};
	return (struct cq_layout){
		.ring = cq->ring,
		.number = cq->number,
		.entries = cq->entries,
		.mask = cq->entries - 1,
		.cqe_bytes = (uint8_t)(1u << cq->shift),
		.mem_type = MEM_TYPE_GPU,
	};
}

static uint32_t shift_of(uint32_t bytes)
{
	return 31u - (uint32_t)__builtin_clz(bytes);
}

static void lay_out_receives(const dg_nic_qp_config *c, struct qp_layout *l)
{
	if (!c->receive_entries)
		return;
	l->rq_ring = c->receive_ring;
	l->rq_record = c->record;
	l->rq_entries = c->receive_entries;
	l->rq_mask = c->receive_entries - 1;
	l->rq_shift = shift_of(SGE_BYTES * c->receive_sges);
	l->rq_cq = lay_out_cq(c->receive_cq);
}

int dg_nic_qp_lay_out(dg_nic_qp *qp, void *out)
{
	const dg_nic_qp_config *c = &qp->c;
	static const uint32_t handlers[] = {[DG_NIC_PROXY] = HANDLER_CPU_PROXY,
					    [DG_NIC_RECORD] = HANDLER_GPU_SM_DB,
					    [DG_NIC_NO_RECORD] = HANDLER_GPU_SM_NO_DBR};
	struct qp_layout l = {
		.number = qp->qpn,
		.number_shifted = qp->qpn << 8,
		.sq_entries = (uint16_t)c->send_entries,
		.sq_mask = (uint16_t)(c->send_entries - 1),
		.sq_ring = c->send_ring,
		.sq_record = c->record ? c->record + 1 : NULL,
		.doorbell = c->doorbell,
		.sq_cq = lay_out_cq(c->send_cq),
		.handler = handlers[c->doorbell_mode],
		.mem_type = MEM_TYPE_GPU,
	};
	for (uint32_t segments = 0; segments < 6; segments++)
		l.number_be[segments] = htobe32(qp->qpn << 8 | segments);
	lay_out_receives(c, &l);
	memcpy(out, &l, sizeof l);
	return 0;
}
