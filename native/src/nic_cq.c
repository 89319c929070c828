// SPDX-License-Identifier: Apache-2.0
/* Completion queues: opening, closing, and writing their entries. */
#include <stdlib.h>

#include "nic.h"

/* The words are those of a little-endian host. They are made in registers: a load of a word whose
 * bytes were just stored would have to wait for these stores. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "CQEs are made of little-endian words");

void dg_nic_cqe(struct dg_nic_qp *qp, struct dg_nic_cq *cq, const struct nic_cqe *e)
{
	const uint64_t place = cq->collapsed ? 0 : cq->produced & (cq->entries - 1);
	uint8_t *at = cq->ring + place * 64;
	const uint32_t number = htobe32((uint32_t)e->send_opcode << 24 | qp->qpn);
	const uint64_t op_own = (uint64_t)e->opcode << 4 | (e->n_inline ? CQE_INLINE_32 : 0) |
				!!(cq->produced & cq->entries);
	uint64_t words[7] = {0};
	__builtin_prefetch(cq->ring + ((cq->produced + NIC_AHEAD) & (cq->entries - 1)) * 64, 1);
	if (__builtin_expect(e->n_inline, 0))
		memcpy(words, e->data, e->n_inline);
	words[4] |= (uint64_t)e->immediate << 32;
	words[5] = (uint64_t)htobe32(e->bytes) << 32;
	words[6] = (uint64_t)e->syndrome << 56;
	store_words(at, words, 7);
	/* Release: whoever sees op_own, in the last byte, also sees the other words, and the bytes
	 * that the entry moved. */
	atomic_store_explicit((_Atomic uint64_t *)(at + 56),
			      number | (uint64_t)htobe16(e->index) << 32 | op_own << 56,
			      memory_order_release);
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
