// SPDX-License-Identifier: Apache-2.0
/* Completion queues: opening, closing, and writing their entries. */
#include <stdlib.h>

#include "nic.h"

/* Stores the CQE's words; the last one, which has op_own, makes it valid. Release: whoever sees it
 * also sees the other words, and the bytes that the entry moved. */
static void store(uint8_t *at, const uint64_t words[8])
{
	store_words(at, words, 7);
	atomic_store_explicit((_Atomic uint64_t *)(at + 56), words[7], memory_order_release);
}

void dg_nic_cqe(struct dg_nic_qp *qp, struct dg_nic_cq *cq, const struct nic_cqe *e)
{
	union {
		uint64_t words[8];
		uint8_t bytes[64];
	} c = {{0}};
	const uint64_t place = cq->collapsed ? 0 : cq->produced & (cq->entries - 1);
	const uint32_t number = htobe32((uint32_t)e->send_opcode << 24 | qp->qpn);
	const uint32_t size = htobe32(e->bytes);
	const uint16_t index = htobe16(e->index);
	uint8_t op_own = (uint8_t)(e->opcode << 4 | !!(cq->produced & cq->entries));
	if (e->n_inline) {
		memcpy(c.bytes, e->data, e->n_inline);
		op_own |= CQE_INLINE_32;
	}
	memcpy(c.bytes + 36, &e->immediate, 4);
	memcpy(c.bytes + 44, &size, 4);
	c.bytes[55] = e->syndrome;
	memcpy(c.bytes + 56, &number, 4);
	memcpy(c.bytes + 60, &index, 2);
	c.bytes[63] = op_own;
	store(cq->ring + place * 64, c.words);
	cq->produced++;
	qp->info.produced_cqes++;
	qp->nic->cqes++;
}

static int check_config(const dg_nic_cq_config *cfg)
{
	if (!cfg->ring || (uintptr_t)cfg->ring % 64)
		return dg_fail(EINVAL, "the ring of a CQ is at %p; it needs an address that is a "
				       "multiple of 64",
			       cfg->ring);
	if (!cfg->entries || cfg->entries & (cfg->entries - 1) || cfg->entries > DG_NIC_CQES_MAX)
		return dg_fail(EINVAL, "a CQ has %u entries; it is a power of two up to %d",
			       cfg->entries, DG_NIC_CQES_MAX);
	return 0;
}

int dg_nic_cq_open(dg_nic *n, const dg_nic_cq_config *cfg, dg_nic_cq **out)
{
	*out = NULL;
	int rc = dg_nic_check_process(n);
	if (!rc)
		rc = check_config(cfg);
	if (rc)
		return rc;
	struct dg_nic_cq *cq = calloc(1, sizeof *cq);
	if (!cq)
		return dg_fail(ENOMEM, "out of memory for a CQ");
	cq->nic = n;
	cq->ring = cfg->ring;
	cq->entries = cfg->entries;
	cq->collapsed = cfg->collapsed;
	dg_poller_lock(&n->poller);
	cq->number = ++n->next_cq & 0xffffff;
	cq->next = n->cqs;
	n->cqs = cq;
	dg_poller_unlock(&n->poller);
	*out = cq;
	return 0;
}

int dg_nic_cq_number(dg_nic_cq *cq, uint32_t *cqn)
{
	*cqn = cq->number;
	return 0;
}

int dg_nic_cq_restart(dg_nic_cq *cq)
{
	struct dg_nic *n = cq->nic;
	int rc = dg_nic_check_process(n);
	if (rc)
		return rc;
	dg_poller_lock(&n->poller);
	for (struct dg_nic_qp *qp = n->qps; qp && !rc; qp = qp->next)
		if ((qp->c.send_cq == cq || qp->c.receive_cq == cq) && qp->state != DG_NIC_RESET)
			rc = dg_fail(EBUSY, "CQ %u is used by queue pair %u: reset that first",
				     cq->number, qp->qpn);
	if (!rc)
		cq->produced = 0;
	dg_poller_unlock(&n->poller);
	return rc;
}

int dg_nic_cq_close(dg_nic_cq *cq)
{
	struct dg_nic *n = cq->nic;
	if (dg_nic_check_process(n))
		return 0;
	dg_poller_lock(&n->poller);
	const uint32_t users = cq->users;
	struct dg_nic_cq **at = &n->cqs;
	while (*at != cq)
		at = &(*at)->next;
	if (!users)
		*at = cq->next;
	dg_poller_unlock(&n->poller);
	if (users)
		return dg_fail(EBUSY, "CQ %u is used by %u queue pairs: close them first", cq->number,
			       users);
	free(cq);
	return 0;
}
