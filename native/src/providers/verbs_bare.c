// SPDX-License-Identifier: Apache-2.0
/*
 * dg_measure_bare() for verbs: makes the libibverbs calls that a program without dgkit would make
 * for the same operation, on the same connection.
 */
#include <errno.h>
#include <unistd.h>

#include "clock.h"
#include "error.h"
#include "verbs_provider.h"

enum {
	WC_BATCH = 32,
	NAP_US = 1000, /* sleep while a connection is being established */
};
/* The adapter gives up earlier than this. */
#define SILENCE_NS 20000000000ull

/* Posts n copies with one doorbell. The ids of work requests are their numbers, starting at 1; they
 * stay below 2^32, so that they belong to no endpoint. */
static int post(struct ibv_qp *qp, struct ibv_send_wr *wrs, uint32_t posted, uint32_t n)
{
	struct ibv_send_wr *bad;
	for (uint32_t i = 0; i < n; i++) {
		wrs[i].wr_id = posted + i + 1;
		wrs[i].next = i + 1 < n ? &wrs[i + 1] : NULL;
		wrs[i].send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
		if (i + 1 == n || !(wrs[i].wr_id % VERBS_SIGNAL_EVERY))
			wrs[i].send_flags |= IBV_SEND_SIGNALED;
	}
	return qp->context->post_send(qp, wrs, &bad);
}

/* Returns the number of the last copy that has ended; `ended` if there is no new one; or -EIO. */
static int64_t poll_once(struct ibv_cq *cq, uint32_t ended)
{
	struct ibv_wc wcs[WC_BATCH];
	int64_t last = ended;
	int n = cq->context->poll_cq(cq, WC_BATCH, wcs);
	for (int i = 0; i < n; i++) {
		if (wcs[i].status)
			return -EIO;
		last = (int64_t)wcs[i].wr_id;
	}
	return n < 0 ? -EIO : last;
}

static int run_bare_loop(struct verbs_queue *q, struct ibv_qp *qp, struct ibv_send_wr *wrs,
			 uint32_t count, uint32_t window, uint64_t *samples_ns)
{
	uint32_t posted = 0, ended = 0;
	uint64_t before = now_ns();
	while (ended < count) {
		uint32_t n = window - (posted - ended);
		if (n > count - posted)
			n = count - posted;
		/* The whole window, or as many copies as one completion covers. */
		if (n && (posted == ended || n >= VERBS_SIGNAL_EVERY)) {
			if (post(qp, wrs, posted, n))
				return -EIO;
			posted += n;
		}
		int64_t seen = poll_once(q->cq, ended);
		if (seen < 0)
			return -EIO;
		if (seen == ended) {
			if (now_ns() - before > SILENCE_NS)
				return -ETIMEDOUT;
			continue;
		}
		for (uint64_t now = now_ns(); ended != (uint32_t)seen; before = now)
			samples_ns[ended++] = now - before;
	}
	return (int)count;
}

static int wait_for_endpoint(struct verbs_queue *q, uint32_t region, struct verbs_endpoint **ep)
{
	uint64_t deadline_ns = now_ns() + 2 * VERBS_CONNECT_NS;
	int status;
	while ((status = dg_verbs_endpoint_get(q, region, ep)) == OP_MORE && now_ns() < deadline_ns)
		usleep(NAP_US);
	return status ? dg_fail(EIO, "there is no RDMA connection to measure") : 0;
}

int dg_verbs_bare(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op, uint32_t count,
		  uint32_t window, uint64_t *samples_ns)
{
	struct verbs_queue *q = p->provider;
	struct verbs_endpoint *ep = NULL;
	struct ibv_send_wr wrs[VERBS_ENDPOINT_WRS];
	bool write = op->opcode == DG_WRITE;
	(void)dev;
	if (op->rows != 1 || op->size > q->d->max_message || window > q->d->max_wr)
		return dg_fail(EOPNOTSUPP,
			       "the bare copy loop of verbs takes an operation of one row and at "
			       "most %u bytes, with at most %u in flight",
			       q->d->max_message, q->d->max_wr);
	guard_enter(&q->listed.guard);
	int rc = wait_for_endpoint(q, op->remote, &ep);
	if (!rc) {
		struct ibv_sge sge = {
			.addr = (uintptr_t)(write ? op->src : op->dst),
			.length = (uint32_t)op->size,
			.lkey = endpoint_lkey(ep, op->local),
		};
		for (uint32_t i = 0; i < window; i++)
			wrs[i] = (struct ibv_send_wr){
				.sg_list = &sge,
				.num_sge = 1,
				.opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
				.send_flags = write && dg_verbs_fits_inline(endpoint_max_inline(ep), op, op->size)
						      ? IBV_SEND_INLINE
						      : 0,
				.rdma = {.remote_addr = (uintptr_t)(write ? op->dst : op->src),
					 .rkey = endpoint_rkey(ep, op->remote)},
			};
		rc = run_bare_loop(q, endpoint_qp(ep), wrs, count, window, samples_ns);
		if (rc < 0) {
			dg_verbs_endpoint_break(q, ep);
			rc = dg_fail(-rc, "an RDMA operation of the measurement failed, or did "
					  "not end");
		}
	}
	guard_leave(&q->listed.guard);
	return rc;
}
