// SPDX-License-Identifier: Apache-2.0
/* Shared receive queues: opening and closing. Queue pairs publish their receives (nic_receive.c). */
#include <stdlib.h>

#include "nic.h"

static int check_config(const dg_nic_srq_config *c)
{
	const uint32_t n = c->entries;
	if (!c->ring || (uintptr_t)c->ring % WQE_SEGMENT)
		return dg_fail(EINVAL, "the ring of a shared receive queue is at %p; it needs an address that is "
				       "a multiple of %d",
			       c->ring, WQE_SEGMENT);
	if (!n || n & (n - 1) || n > DG_NIC_ENTRIES_MAX)
		return dg_fail(EINVAL, "a shared receive queue has %u entries; it is a power of two up to %d", n,
			       DG_NIC_ENTRIES_MAX);
	if (!c->sges || c->sges > DG_NIC_SGES)
		return dg_fail(EINVAL, "a shared receive has %u data segments; it has 1 to %d", c->sges,
			       DG_NIC_SGES);
	if (!c->record || (uintptr_t)c->record % 4)
		return dg_fail(EINVAL, "the doorbell record of a shared receive queue is at %p; it needs an "
				       "address that is a multiple of 4",
			       (void *)c->record);
	return 0;
}

int dg_nic_srq_open(dg_nic *n, const dg_nic_srq_config *cfg, dg_nic_srq **out)
{
	*out = NULL;
	int rc = dg_nic_check_process(n);
	if (!rc)
		rc = check_config(cfg);
	if (rc)
		return rc;
	struct dg_nic_srq *s = calloc(1, sizeof *s);
	uint16_t *returned = calloc(cfg->entries, sizeof *returned);
	if (!s || !returned) {
		free(s);
		free(returned);
		return dg_fail(ENOMEM, "out of memory for a shared receive queue");
	}
	s->nic = n;
	s->r = (struct nic_receives){
		.ring = cfg->ring,
		.entries = cfg->entries,
		.sges = cfg->sges,
		.record = cfg->record,
		.pd = cfg->pd,
		.is_list = true,
		.returned = returned,
		.async_fd = cfg->async_fd,
		.event = cfg->event,
	};
	*out = s;
	return 0;
}

void dg_nic_check_limit(struct nic_receives *rq)
{
	const uint32_t posted = be32toh(atomic_load_explicit((_Atomic uint32_t *)rq->record, memory_order_acquire));
	if ((uint16_t)(posted - (uint32_t)rq->taken) + rq->n_returned >= rq->limit)
		return;
	rq->limit = 0;
	dg_nic_async(rq->async_fd, rq->event, DG_NIC_SRQ_LIMIT);
}

int dg_nic_srq_set_limit(dg_nic_srq *s, uint32_t limit)
{
	TRY(dg_nic_check_process(s->nic));
	if (limit >= s->r.entries)
		return dg_fail(EINVAL, "the limit of a shared receive queue is %u; it has room for %u receives",
			       limit, s->r.entries - 1);
	dg_poller_lock(&s->nic->poller);
	s->r.limit = limit;
	dg_nic_check_limit(&s->r);
	dg_poller_unlock(&s->nic->poller);
	return 0;
}

uint32_t dg_nic_srq_limit(dg_nic_srq *s)
{
	dg_poller_lock(&s->nic->poller);
	const uint32_t limit = s->r.limit;
	dg_poller_unlock(&s->nic->poller);
	return limit;
}

int dg_nic_srq_close(dg_nic_srq *s)
{
	struct dg_nic *n = s->nic;
	if (dg_nic_check_process(n))
		return 0;
	dg_poller_lock(&n->poller);
	const uint32_t users = s->r.sharers;
	dg_poller_unlock(&n->poller);
	if (users)
		return dg_fail(EBUSY, "a shared receive queue is used by %u queue pairs: close them first", users);
	free(s->r.returned);
	free(s);
	return 0;
}
