// SPDX-License-Identifier: Apache-2.0
/* Queue pairs that are connected by hand: their handles, and the checks of arguments. */
#include <inttypes.h>
#include <stdlib.h>

#include "control_path.h"
#include "queue.h"

enum { BITS_24 = 0xffffff, MTU_MIN = 256, MTU_MAX = 4096, READS_MAX = 255 };

void dg_qp_unref(struct dg_qp *p)
{
	struct dg_queue *q = p->q;
	/* acq_rel: as in dg_queue_unref(). */
	if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
		return;
	free(p);
	dg_queue_unref(q);
}

static int open_entered(struct dg_queue *q, dg_qp **out)
{
	const struct dg_ops *ops = q->dev->ops;
	TRY(dg_queue_postable(q));
	if (!ops->qp)
		return dg_fail(EOPNOTSUPP,
			       "the provider %s has no queue pairs: open a device with the provider "
			       "verbs",
			       ops->name);
	struct dg_qp *p = calloc(1, sizeof *p);
	if (!p)
		return dg_fail(ENOMEM, "out of memory for a queue pair");
	p->q = q;
	int rc = ops->qp->open(q->dev, &q->pipe, p);
	if (rc) {
		free(p);
		return rc;
	}
	atomic_store(&p->refs, 2);
	atomic_fetch_add_explicit(&q->refs, 1, memory_order_relaxed);
	p->next = q->qps;
	q->qps = p;
	*out = p;
	return 0;
}

int dg_qp_open(dg_queue *q, dg_qp **out)
{
	*out = NULL;
	TRY(queue_enter(q));
	int rc = open_entered(q, out);
	queue_leave(q);
	return rc;
}

/* Enters the queue if the queue pair is open. */
static int enter(struct dg_qp *p)
{
	TRY(queue_enter(p->q));
	int rc = dg_queue_postable(p->q);
	if (!rc && !p->provider)
		rc = dg_fail(ESTALE, "queue pair %u is closed", p->address.qpn);
	if (rc)
		queue_leave(p->q);
	return rc;
}

int dg_qp_address_get(dg_qp *p, dg_qp_address *out)
{
	*out = p->address; /* never changes */
	return 0;
}

static int check_24_bits(const char *what, uint32_t value)
{
	return value <= BITS_24 ? 0
				: dg_fail(ERANGE, "%s is %u; it has 24 bits, so the limit is %u", what,
					  value, BITS_24);
}

static int check_mtu(const struct dg_qp *p, uint32_t mtu)
{
	if (mtu < MTU_MIN || mtu > MTU_MAX || (mtu & (mtu - 1)))
		return dg_fail(EINVAL, "mtu is %u bytes; it is one of 256, 512, 1024, 2048 and 4096",
			       mtu);
	if (mtu > p->address.mtu)
		return dg_fail(ERANGE,
			       "mtu is %u bytes; the limit is that of port %u, %u bytes: use the "
			       "smaller one of the two ports on both sides",
			       mtu, p->address.port, p->address.mtu);
	return 0;
}

/* Checks an address, and replaces zeroes by their defaults. */
static int complete(const struct dg_qp *p, dg_qp_address *to)
{
	int rc = check_24_bits("qpn", to->qpn);
	if (!rc)
		rc = check_24_bits("psn", to->psn);
	if (!rc && to->lid > UINT16_MAX)
		rc = dg_fail(ERANGE, "lid is %u; it has 16 bits, so the limit is %u", to->lid,
			     UINT16_MAX);
	if (!rc && to->max_reads > READS_MAX)
		rc = dg_fail(ERANGE, "max_reads is %u; the limit is %u", to->max_reads, READS_MAX);
	to->mtu = to->mtu ? to->mtu : p->address.mtu;
	to->max_reads = to->max_reads ? to->max_reads : 1;
	return rc ? rc : check_mtu(p, to->mtu);
}

int dg_qp_connect(dg_qp *p, const dg_qp_address *to)
{
	dg_qp_address peer = *to;
	TRY(enter(p));
	struct dg_device *dev = p->q->dev;
	int rc = complete(p, &peer);
	if (!rc)
		rc = dev->ops->qp->connect(dev, p, &peer);
	queue_leave(p->q);
	return rc;
}

/* Grants access. Called with the region entered, and inside the queue. */
static int grant_entered(struct dg_qp *p, struct dg_region *r, uint32_t access, dg_rdma_memory *out)
{
	struct dg_device *dev = p->q->dev;
	TRY(dg_region_check_access(r, access, "granted"));
	if (r->dev != dev)
		return dg_fail(EINVAL, "region #%u belongs to another device than queue pair %u: "
				       "register it with the queue's device",
			       r->name, p->address.qpn);
	if (atomic_load(&r->closing))
		return dg_fail(ESTALE, "region #%u is being closed", r->name);
	*out = (dg_rdma_memory){
		.address = (uintptr_t)r->memory.addr, .size = r->memory.size, .access = access};
	return dev->ops->qp->grant(dev, p, r, access, &out->rkey);
}

int dg_qp_grant(dg_qp *p, dg_region *r, uint32_t access, dg_rdma_memory *out)
{
	TRY(enter(p));
	int rc = dg_region_enter(r);
	if (!rc) {
		rc = grant_entered(p, r, access, out);
		life_leave(&r->life);
	}
	queue_leave(p->q);
	return rc;
}

static int check_memory(const dg_rdma_memory *m)
{
	if (!m->size)
		return dg_fail(ERANGE, "size is 0; the minimum is 1 byte");
	if (m->address + (m->size - 1) < m->address)
		return dg_fail(ERANGE, "address %#" PRIx64 " + size %" PRIu64 " exceeds 2^64",
			       m->address, m->size);
	if (!m->access || m->access > 3)
		return dg_fail(EINVAL, "access %u is not one of read (1), write (2) and both (3)",
			       m->access);
	return 0;
}

int dg_qp_import(dg_qp *p, const dg_rdma_memory *memory, dg_region **out)
{
	*out = NULL;
	TRY(enter(p));
	int rc = check_memory(memory);
	/* dg_queues_grace() waits for this thread while holding the device's lock, which the import
	 * takes. If the queue pair is closed after this point, its imports are lost. */
	queue_leave(p->q);
	if (!rc)
		rc = dg_device_enter(p->q->dev);
	if (rc)
		return rc;
	rc = dg_region_import_by_qp(p, memory, out);
	life_leave(&p->q->dev->life);
	return rc;
}

int dg_qp_check(const struct dg_queue *q, struct dg_qp *qp, struct dg_region *local)
{
	if (qp->q != q)
		return dg_fail(EINVAL,
			       "the remote region belongs to queue pair %u of another queue: post to "
			       "that queue",
			       qp->address.qpn);
	if (!qp->provider)
		return dg_fail(ESTALE, "queue pair %u, of the remote region, is closed",
			       qp->address.qpn);
	return q->dev->ops->qp->check(q->dev, qp, local);
}

/* Ends the queue pair. Called with the queue entered, in the process that opened it. */
static void end(struct dg_qp *p)
{
	struct dg_device *dev = p->q->dev;
	struct dg_qp **at = &p->q->qps;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	atomic_store(&p->broken, 1);
	dev->ops->qp->close(dev, p);
	p->provider = NULL;
	dg_qp_unref(p);
}

void dg_queue_close_qps(struct dg_queue *q)
{
	while (q->qps)
		end(q->qps);
}

int dg_qp_close(dg_qp *p)
{
	struct dg_queue *q = p->q;
	uint32_t found = QUEUE_FREE;
	int rc = 0;
	if (dg_queue_forked(q))
		return 0; /* it belongs to the parent */
	if (!atomic_compare_exchange_strong(&q->in_use, &found, QUEUE_CLOSING))
		rc = dg_queue_refuse(q, found, QUEUE_CLOSING);
	if (rc)
		return rc;
	if (p->provider)
		end(p);
	queue_leave(q);
	return 0;
}

void dg_qp_free(dg_qp *p)
{
	dg_qp_close(p); /* if a thread is inside the queue, it is closed together with the queue */
	dg_qp_unref(p);
}
