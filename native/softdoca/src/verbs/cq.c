// SPDX-License-Identifier: Apache-2.0
/* Completion queues. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_objects.h"

#define DBR_BYTES   8u /* consumer index and arm word behind the ring; the NIC reads neither */
#define CQE_INITIAL (DOCA_GPUNETIO_IB_MLX5_CQE_INVALID << 4 | DOCA_GPUNETIO_IB_MLX5_CQE_OWNER_MASK)

char *umem_at(const char *func, const struct placed *p, size_t size, size_t alignment)
{
	struct doca_umem *u = p->umem;
	size_t space = object_is(u, OBJECT_UMEM) ? u->size : 0; /* 0: it was destroyed */
	bool fits = p->offset <= space && size <= space - p->offset;
	if (fits && !(((uintptr_t)u->addr + p->offset) % alignment))
		return u->addr + p->offset;
	return REFUSE_FOR(func, NULL, "%zu bytes at offset %llu %s %zu", size,
			  (unsigned long long)p->offset,
			  fits ? "are not aligned to" : "exceed the umem, whose size is",
			  fits ? alignment : space);
}

/* A ring of softdoca's own, with the CQEs in their initial state. */
static char *own_ring(uint32_t entries)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t size = ((size_t)entries * CQE_BYTES + DBR_BYTES + page - 1) / page * page;
	char *ring = aligned_alloc(page, size);
	if (!ring)
		return NULL;
	memset(ring, 0, size);
	for (uint32_t i = 0; i < entries; i++)
		ring[(i + 1) * CQE_BYTES - 1] = (char)CQE_INITIAL;
	return ring;
}

static doca_error_t cq_ring(struct doca_verbs_cq *cq, const struct doca_verbs_cq_attr *attr)
{
	if (!attr->cq_size)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the size was not set");
	if (attr->external_uar && !object_is(attr->external_uar, OBJECT_UAR))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the external UAR was destroyed");
	cq->entries = power_of_two(attr->cq_size);
	cq->owned = !attr->external.umem;
	size_t size = (size_t)cq->entries * CQE_BYTES + DBR_BYTES;
	cq->ring = cq->owned ? own_ring(cq->entries)
			     : umem_at("doca_verbs_cq_create", &attr->external, size, CQE_BYTES);
	if (!cq->ring)
		return cq->owned ? REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a ring of %u CQEs",
					  cq->entries)
				 : DOCA_ERROR_INVALID_VALUE;
	return DOCA_SUCCESS;
}

static doca_error_t cq_open(struct doca_verbs_cq *cq, const struct doca_verbs_cq_attr *attr)
{
	dg_nic *nic;
	TRY(softdoca_nic_take(&nic));
	const dg_nic_cq_config cfg = {
		.ring = cq->ring, .entries = cq->entries, .collapsed = attr->cq_collapsed};
	int rc = softdoca_nic.cq_open(nic, &cfg, &cq->cq);
	if (!rc)
		rc = softdoca_nic.cq_number(cq->cq, &cq->number);
	if (rc) {
		softdoca_nic_drop();
		return softdoca_failed("doca_verbs_cq_create", rc);
	}
	return DOCA_SUCCESS;
}

/* DOCA API reference, Verbs: INVALID_VALUE, NO_MEMORY. */
doca_error_t doca_verbs_cq_create(struct doca_verbs_context *verbs_ctx,
				  struct doca_verbs_cq_attr *cq_attr,
				  struct doca_verbs_cq **verbs_cq)
{
	CHECK_CONTEXT(verbs_ctx);
	CHECK_OBJECT(cq_attr, OBJECT_VERBS_CQ_ATTR, "attributes of a completion queue");
	CHECK_OUT(verbs_cq);
	struct doca_verbs_cq *cq = softdoca_object_new(OBJECT_VERBS_CQ, sizeof *cq);
	if (!cq)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a completion queue");
	doca_error_t error = cq_ring(cq, cq_attr);
	if (!error)
		error = cq_open(cq, cq_attr);
	if (error) {
		if (cq->owned)
			free(cq->ring);
		softdoca_object_free(cq);
		return error;
	}
	pthread_mutex_init(&cq->lock, NULL);
	cq->collapsed = cq_attr->cq_collapsed;
	cq->umem = cq_attr->external.umem;
	if (cq->umem)
		atomic_fetch_add(&cq->umem->users, 1);
	cq->uar = cq_attr->external_uar;
	if (cq->uar)
		atomic_fetch_add(&cq->uar->users, 1);
	*verbs_cq = cq;
	return DOCA_SUCCESS;
}

doca_error_t doca_verbs_cq_destroy(struct doca_verbs_cq *verbs_cq)
{
	CHECK_CQ(verbs_cq);
	int rc = softdoca_nic.cq_close(verbs_cq->cq);
	if (rc)
		return softdoca_failed(__func__, rc);
	softdoca_nic_drop();
	if (verbs_cq->umem)
		atomic_fetch_sub(&verbs_cq->umem->users, 1);
	if (verbs_cq->uar)
		atomic_fetch_sub(&verbs_cq->uar->users, 1);
	if (verbs_cq->owned)
		free(verbs_cq->ring);
	free(verbs_cq->qps);
	pthread_mutex_destroy(&verbs_cq->lock);
	softdoca_object_free(verbs_cq);
	return DOCA_SUCCESS;
}

static bool is_cq(const char *func, const struct doca_verbs_cq *cq)
{
	return object_is(cq, OBJECT_VERBS_CQ) ||
	       REFUSE_FOR(func, false, "%p is not a completion queue", (const void *)cq);
}

uint32_t doca_verbs_cq_get_cqn(const struct doca_verbs_cq *verbs_cq)
{
	return is_cq(__func__, verbs_cq) ? verbs_cq->number : 0;
}

void doca_verbs_cq_get_wq(struct doca_verbs_cq *verbs_cq, void **cq_buf, uint32_t *cq_num_entries,
			  uint8_t *cq_entry_size)
{
	if (!is_cq(__func__, verbs_cq))
		return;
	if (cq_buf)
		*cq_buf = verbs_cq->ring;
	if (cq_num_entries)
		*cq_num_entries = verbs_cq->entries;
	if (cq_entry_size)
		*cq_entry_size = CQE_BYTES;
}

void doca_verbs_cq_get_dbr_addr(struct doca_verbs_cq *verbs_cq, uint64_t **uar_db_reg,
				uint32_t **ci_dbr, uint32_t **arm_dbr)
{
	if (!is_cq(__func__, verbs_cq))
		return;
	uint32_t *record = (uint32_t *)(verbs_cq->ring + (size_t)verbs_cq->entries * CQE_BYTES);
	if (uar_db_reg)
		*uar_db_reg = verbs_cq->uar ? verbs_cq->uar->page : NULL;
	if (ci_dbr)
		*ci_dbr = record;
	if (arm_dbr)
		*arm_dbr = record + 1;
}
