// SPDX-License-Identifier: Apache-2.0
/* Completion queues: opening, closing, and writing their entries. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "nic.h"

/* The words are those of a little-endian host. They are made in registers: a load of a word whose
 * bytes were just stored would have to wait for these stores. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "CQEs are made of little-endian words");

/* Returns how many CQEs there were that the owner had not seen when it last wrote the record. */
static uint32_t unread(const struct dg_nic_cq *cq)
{
	const uint32_t seen = be32toh(atomic_load_explicit(&cq->record[0], memory_order_acquire));
	return (uint32_t)(cq->produced - seen) & 0xffffff;
}

/* Whether a CQE has no place. */
static __attribute__((noinline)) bool overruns(struct dg_nic_qp *qp, struct dg_nic_cq *cq)
{
	if (!cq->is_full)
		cq->room_end = cq->produced + cq->entries - unread(cq);
	if (cq->produced != cq->room_end)
		return false;
	const struct nic_fault f = {SYNDROME_LOCAL_QP, "CQ, full; its CQEs", cq->entries, 0};
	if (!cq->is_full)
		dg_nic_async(cq->async_fd, cq->event, DG_NIC_CQ_OVERRUN);
	cq->is_full = true;
	if (qp->state != DG_NIC_ERROR)
		dg_nic_qp_fatal(qp, &f, qp->completed);
	return true;
}

void dg_nic_cqe(struct dg_nic_qp *qp, struct dg_nic_cq *cq, const struct nic_cqe *e)
{
	if (__builtin_expect(cq->produced == cq->room_end, 0) && overruns(qp, cq))
		return;
	const uint64_t place = cq->collapsed ? 0 : cq->produced & (cq->entries - 1);
	uint8_t *at = cq->ring + ((place + 1) << cq->shift) - 64;
	const uint32_t number = htobe32((uint32_t)e->send_opcode << 24 | qp->qpn);
	const uint64_t op_own = (uint64_t)e->opcode << 4 | (e->n_inline ? CQE_INLINE_32 : 0) |
				!!(cq->produced & cq->entries);
	uint64_t words[7] = {0};
	__builtin_prefetch(cq->ring + (((cq->produced + NIC_AHEAD) & (cq->entries - 1)) << cq->shift), 1);
	if (__builtin_expect(e->n_inline, 0))
		memcpy(words, e->data, e->n_inline);
	words[3] |= htobe32(e->from);
	words[4] |= (uint64_t)e->immediate << 32 | htobe32(qp->c.user_index);
	words[5] = (uint64_t)htobe32(e->bytes) << 32;
	words[6] = (uint64_t)e->syndrome << 56 | (uint64_t)e->vendor << 48;
	store_words(at, words, 7);
	/* Release: whoever sees op_own, in the last byte, also sees the other words, and the bytes
	 * that the entry moved. */
	atomic_store_explicit((_Atomic uint64_t *)(at + 56),
			      number | (uint64_t)htobe16(e->index) << 32 | op_own << 56,
			      memory_order_release);
	if (__builtin_expect(cq->gpu_ring != 0, 0))
		dg_nic_gpu_cqe(cq, at);
	cq->produced++;
	if (__builtin_expect(e->solicited || e->syndrome, 0))
		cq->solicited = cq->produced;
	qp->info.produced_cqes++;
	qp->nic->cqes++;
	if (__builtin_expect(qp->nic->observer && qp->nic->observer->completion, 0))
		qp->nic->observer->completion(qp, e);
}

/* The vendor's syndromes that ConnectX adapters were seen to give, with those that they come with; 0: not known.
 * openucx/ucx issues 7774 (0x51), 5472 (0x89), 6000 (0x81); linux-nvme/nvme-cli issue 3268 (0xf9);
 * forums.developer.nvidia.com 207715 (0x88); a published experiment with rnr_retry 0 (0x87). */
static const uint8_t vendors[] = {
	[SYNDROME_LOCAL_PROTECTION] = 0x51, [SYNDROME_FLUSHED] = 0xf9, [SYNDROME_REMOTE_ACCESS] = 0x88,
	[SYNDROME_REMOTE_OPERATION] = 0x89, [SYNDROME_RETRIES] = 0x81, [SYNDROME_RECEIVE_RETRIES] = 0x87,
};

void dg_nic_error_cqe(struct dg_nic_qp *qp, struct dg_nic_cq *cq, struct nic_cqe e)
{
	if (!e.vendor && e.syndrome < sizeof vendors)
		e.vendor = vendors[e.syndrome];
	if (qp->nic->observer)
		qp->nic->observer->failed(qp, &e);
	dg_nic_cqe(qp, cq, &e);
}

/* What the arm word is while the CQ is not armed. mlx5's format has no such value: its two top bits are
 * a count modulo 4 below two bits that are 0. */
#define DISARMED UINT32_MAX

/* Whether the CQ is armed and has a CQE behind those that its owner had seen when it armed it, which no
 * earlier event was for: programs arm a CQ again before they poll what its event was for. The word: the
 * owner's consumer index in 24 bits, and bit 24 if only solicited CQEs count. */
static bool is_due(const struct dg_nic_cq *cq, uint32_t arm)
{
	const uint32_t word = be32toh(arm);
	const uint64_t produced = word >> 24 & 1 ? cq->solicited : cq->produced;
	const uint32_t ahead = (uint32_t)(produced - word) & 0xffffff;
	return arm != DISARMED && produced > cq->notified && ahead && !(ahead >> 23);
}

bool dg_nic_cq_events(struct dg_nic *n)
{
	bool any = false;
	for (struct dg_nic_cq *cq = n->cqs; cq; cq = cq->next) {
		uint32_t arm = cq->is_armable ? atomic_load_explicit(&cq->record[1], memory_order_acquire) : 0;
		/* An exchange: the owner may be arming the CQ again. */
		if (!cq->is_armable || !is_due(cq, arm) ||
		    !atomic_compare_exchange_strong_explicit(&cq->record[1], &arm, DISARMED,
							     memory_order_acq_rel, memory_order_relaxed))
			continue;
		if (write(cq->event_fd, &cq->event, sizeof cq->event) > 0) {
			cq->notified = cq->produced;
			any = true;
		} else if (errno == EAGAIN) { /* its owner has hundreds of events that it has not read: armed as it was */
			uint32_t disarmed = DISARMED;
			atomic_compare_exchange_strong_explicit(&cq->record[1], &disarmed, arm, memory_order_acq_rel,
								memory_order_relaxed);
		}
	}
	return any;
}

void dg_nic_async(int fd, uint64_t event, uint32_t type)
{
	const dg_nic_async_event e = {event, type, 0};
	if (event && write(fd, &e, sizeof e) < 0)
		return; /* full: its owner has hundreds of events that it has not read */
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
	if (cfg->entry_size && cfg->entry_size != 64 && cfg->entry_size != 128)
		return dg_fail(EINVAL, "a CQ has entries of %u bytes; they have 64 or 128",
			       cfg->entry_size);
	if ((uintptr_t)cfg->record % 4)
		return dg_fail(EINVAL, "the doorbell record of a CQ is at %p; it needs an address that is "
				       "a multiple of 4",
			       (void *)cfg->record);
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
	cq->gpu_ring = cfg->gpu_ring;
	cq->entries = cfg->entries;
	cq->shift = cfg->entry_size == 128 ? 7 : 6;
	cq->collapsed = cfg->collapsed;
	cq->record = (_Atomic uint32_t *)cfg->record;
	cq->event = cfg->event;
	cq->event_fd = cfg->event_fd;
	cq->async_fd = cfg->async_fd;
	cq->is_armable = cfg->record && cfg->event_fd >= 0;
	cq->is_checked = cfg->record && cfg->is_checked && !cfg->collapsed;
	cq->room_end = cq->is_checked ? cfg->entries : UINT64_MAX;
	if (cq->record)
		atomic_store_explicit(&cq->record[1], DISARMED, memory_order_relaxed);
	dg_poller_lock(&n->poller);
	n->n_armable += cq->is_armable;
	cq->number = ++n->next_cq & 0xffffff;
	cq->next = n->cqs;
	n->cqs = cq;
	dg_poller_unlock(&n->poller);
	*out = cq;
	return 0;
}

int dg_nic_cq_resize(dg_nic_cq *cq, void *ring, uint32_t entries)
{
	enum { RESIZED = 5 };
	const dg_nic_cq_config cfg = {.ring = ring, .entries = entries};
	int rc = dg_nic_check_process(cq->nic);
	if (!rc)
		rc = cq->collapsed ? dg_fail(EINVAL, "a collapsed CQ has one size") : check_config(&cfg);
	if (rc)
		return rc;
	dg_poller_lock(&cq->nic->poller);
	const uint32_t left = cq->record ? unread(cq) : 0;
	if (left >= entries) {
		dg_poller_unlock(&cq->nic->poller);
		return dg_fail(EINVAL, "a CQ with %u entries that were not polled cannot be resized to %u", left,
			       entries);
	}
	uint8_t *at = cq->ring + (((cq->produced & (cq->entries - 1)) + 1) << cq->shift) - 64;
	/* Its owner finds this behind the CQEs that it has not polled, and copies those to the new ring. */
	atomic_store_explicit((_Atomic uint64_t *)(at + 56),
			      (uint64_t)(RESIZED << 4 | !!(cq->produced & cq->entries)) << 56,
			      memory_order_release);
	cq->produced++;
	cq->ring = ring;
	cq->entries = entries;
	if (cq->is_checked && !cq->is_full)
		cq->room_end = cq->produced; /* to look again */
	dg_poller_unlock(&cq->nic->poller);
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
	if (!rc) {
		cq->produced = cq->solicited = cq->notified = 0;
		cq->is_full = false;
		cq->room_end = cq->is_checked ? cq->entries : UINT64_MAX;
	}
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
	if (!users) {
		*at = cq->next;
		n->n_armable -= cq->is_armable;
	}
	dg_poller_unlock(&n->poller);
	if (users)
		return dg_fail(EBUSY, "CQ %u is used by %u queue pairs: close them first", cq->number,
			       users);
	free(cq);
	return 0;
}
