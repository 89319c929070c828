// SPDX-License-Identifier: Apache-2.0
/*
 * Turns operations of the submission ring into work requests, and work completions into
 * completions.
 *
 * Each queue has an endpoint for each import that it uses, created at the first operation; until
 * the endpoint is ready, that operation stays at the head of the ring. Work requests of an endpoint
 * complete in order, so only one in 16 is signaled, and the last of each doorbell. An error puts
 * the endpoint's queue pair into the error state: work requests posted later are flushed and not
 * executed.
 *
 * An operation is one work request, or several if it has rows or is large; its gates are left when
 * the last of them has ended.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_copy.h"
#include "error.h"
#include "share/importer.h"
#include "verbs_provider.h"

enum {
	NO_REGION = UINT32_MAX,
	WC_BATCH = 32,
	POLLS = 1000, /* polls in the caller's thread, for a single operation */
};
/* Bytes in flight at a time, limited so that a revocation does not wait long. */
#define MAX_IN_FLIGHT ((uint64_t)16 << 20)

/* Accounts for the end of a work request of w, or of its submission. */
static void work_ended(struct verbs_queue *q, struct verbs_work *w, int status)
{
	while (w) {
		struct verbs_work *chain = w->chain;
		if (status && !w->status)
			w->status = status;
		if (--w->left)
			return;
		status = w->status;
		if (w->local != NO_REGION)
			gates_pair(&q->ended.gates, w->local, w->remote);
		if (!chain)
			ended_add(&q->ended, q->p, w->slot, status);
		q->free_works[q->n_free_works++] = w;
		w = chain;
	}
}

/* Accounts for the end of the endpoint's oldest work request. */
static void oldest_ended(struct verbs_queue *q, struct verbs_endpoint *ep, int status)
{
	uint32_t i = ep->head++ & (VERBS_ENDPOINT_WRS - 1);
	q->in_flight--;
	q->bytes -= ep->wrs[i].bytes;
	work_ended(q, ep->wrs[i].work, status);
}

static int status_of(int wc_status)
{
	switch (wc_status) {
	case IBV_WC_SUCCESS:
		return DG_OK;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
		return DG_REMOTE_ACCESS_ERROR;
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
		return DG_LOCAL_ERROR;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_REM_ABORT_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return DG_PEER_LOST;
	default:
		return DG_IO_FAILED;
	}
}

/* Returns the status for wc_status. Soft-RoCE reports a missing link on this side as
 * LOC_QP_OP_ERR. */
static int status_with_port(const struct verbs *d, int wc_status)
{
	if (wc_status != IBV_WC_LOC_QP_OP_ERR)
		return status_of(wc_status);
	return dg_verbs_port_active(d) ? DG_LOCAL_ERROR : DG_PEER_LOST;
}

/* Whether the exporter is known to have ended. */
static bool exporter_gone(const struct verbs_endpoint *ep)
{
	struct dg_region_entry *remote = region_entry_at(ep->region);
	if (dg_verbs_lost(remote->region))
		atomic_store(&remote->lost, 1);
	return atomic_load(&remote->lost) || dg_importer_exporter_gone(remote->region);
}

/* Returns the status of operations that follow an error of their queue pair. They were not
 * executed, unless the error is a missing answer of the peer or of this adapter: then it is
 * unknown. */
static int broken_status(const struct verbs_endpoint *ep)
{
	bool answered = ep->status != DG_PEER_LOST && ep->status != DG_IO_FAILED;
	if (dg_verbs_removed(ep->qp->queue->d))
		return DG_IO_FAILED;
	return answered || ep->qp->closing ? DG_FLUSHED : ep->status;
}

/* Returns the status of a failed work request of a queue pair, which is now in the error state. */
static int qp_failure(struct verbs_queue *q, struct verbs_endpoint *ep, int wc_status)
{
	ep->broken = true;
	atomic_store(&ep->qp->core->broken, 1);
	if (wc_status == IBV_WC_WR_FLUSH_ERR || ep->qp->closing)
		return broken_status(ep);
	ep->status = status_with_port(q->d, wc_status);
	return ep->status;
}

/* Returns the status of a failed work request, which breaks the endpoint. */
static int failure(struct verbs_queue *q, struct verbs_endpoint *ep, int wc_status)
{
	if (ep->qp)
		return qp_failure(q, ep, wc_status);
	struct dg_region_entry *remote = region_entry_at(ep->region);
	ep->broken = q->any_broken = true;
	if (!ep->status && wc_status != IBV_WC_WR_FLUSH_ERR)
		ep->status = status_with_port(q->d, wc_status);
	if (dg_verbs_removed(q->d))
		return DG_IO_FAILED;
	if (gate_revoked(remote->gate) || ep->status == DG_REMOTE_ACCESS_ERROR) {
		/* The exporter has closed the region, so nothing more is posted to it. */
		atomic_store_explicit(&remote->gate->revoked, 1, memory_order_seq_cst);
		return DG_REMOTE_ACCESS_ERROR;
	}
	if (ep->status == DG_PEER_LOST || exporter_gone(ep)) {
		atomic_store(&remote->lost, 1);
		return DG_PEER_LOST;
	}
	if (q->closing)
		return DG_FLUSHED;
	return ep->status ? ep->status : DG_IO_FAILED;
}

static void take_completion(struct verbs_queue *q, const struct ibv_wc *wc)
{
	uint32_t number = (uint32_t)(wc->wr_id >> 32), place = (uint32_t)wc->wr_id;
	struct verbs_endpoint *ep = q->endpoints[number & (VERBS_ENDPOINTS - 1)];
	if (!ep || ep->number != number || place - ep->head >= ep->tail - ep->head)
		return; /* of an endpoint that has ended */
	while (ep->head != place)
		oldest_ended(q, ep, DG_OK);
	oldest_ended(q, ep, wc->status ? failure(q, ep, wc->status) : DG_OK);
}

/* Endpoints. */

static void endpoint_free(struct verbs_queue *q, struct verbs_endpoint *ep)
{
	struct verbs_endpoint **at = &q->buckets[ep->region & (VERBS_ENDPOINTS - 1)];
	while (*at != ep)
		at = &(*at)->next;
	*at = ep->next;
	q->endpoints[ep->number & (VERBS_ENDPOINTS - 1)] = NULL;
	if (ep->conn)
		dg_verbs_conn_free(ep->conn);
	free(ep);
}

static struct verbs_endpoint *endpoint_find(const struct verbs_queue *q, uint32_t region)
{
	struct verbs_endpoint *ep = q->buckets[region & (VERBS_ENDPOINTS - 1)];
	while (ep && ep->region != region)
		ep = ep->next;
	return ep;
}

void dg_verbs_endpoint_close(struct verbs_queue *q, uint32_t region)
{
	struct verbs_endpoint *ep = endpoint_find(q, region);
	if (ep)
		endpoint_free(q, ep);
}

/* Returns a free index of q->endpoints. If there is none, closes an idle endpoint first. */
static uint32_t endpoint_place(struct verbs_queue *q)
{
	uint32_t idle = VERBS_ENDPOINTS;
	for (uint32_t i = 0; i < VERBS_ENDPOINTS; i++) {
		if (!q->endpoints[i])
			return i;
		if (!q->endpoints[i]->qp && q->endpoints[i]->head == q->endpoints[i]->tail)
			idle = i;
	}
	if (idle < VERBS_ENDPOINTS)
		endpoint_free(q, q->endpoints[idle]);
	return idle;
}

static uint32_t next_number(struct verbs_queue *q, uint32_t place)
{
	return place | ++q->last_generation * VERBS_ENDPOINTS;
}

static struct verbs_endpoint *endpoint_new(struct verbs_queue *q, uint32_t region)
{
	const struct verbs_region *t = region_entry_at(region)->region->provider_state;
	uint32_t place = endpoint_place(q);
	struct verbs_endpoint *ep = place < VERBS_ENDPOINTS ? calloc(1, sizeof *ep) : NULL;
	if (!ep)
		return NULL;
	ep->region = region;
	ep->number = next_number(q, place);
	if (dg_verbs_connect(q->d, t, q->cq, q->p, &ep->conn)) {
		free(ep);
		return NULL;
	}
	q->endpoints[place] = ep;
	ep->next = q->buckets[region & (VERBS_ENDPOINTS - 1)];
	q->buckets[region & (VERBS_ENDPOINTS - 1)] = ep;
	return ep;
}

/* Returns the status of operations that would have used the endpoint, whose connection was refused
 * or has ended. */
static int not_connected(struct verbs_queue *q, struct verbs_endpoint *ep)
{
	struct dg_region_entry *remote = region_entry_at(ep->region);
	bool refused = atomic_load_explicit(&ep->conn->state, memory_order_acquire) == CONN_FAILED;
	int error = refused ? ep->conn->error : 0, status = DG_IO_FAILED;
	if (dg_verbs_removed(q->d)) {
		status = DG_IO_FAILED;
	} else if (gate_revoked(remote->gate) || error == ENOKEY) {
		atomic_store_explicit(&remote->gate->revoked, 1, memory_order_seq_cst);
		status = DG_REMOTE_ACCESS_ERROR;
	} else if (exporter_gone(ep) || !error || error == ENOTCONN || error == ETIMEDOUT) {
		atomic_store(&remote->lost, 1);
		status = DG_PEER_LOST;
	}
	endpoint_free(q, ep);
	return status;
}

/* Like dg_verbs_endpoint_get(), for memory that a queue pair imported: its endpoint is the queue
 * pair's, which is connected already. */
static int qp_endpoint_get(const struct dg_region_entry *remote, struct verbs_endpoint **out)
{
	struct verbs_qp *qp = remote->region->qp->provider;
	if (!qp)
		return DG_FLUSHED; /* closed since this was posted */
	*out = &qp->endpoint;
	return qp->endpoint.broken ? broken_status(&qp->endpoint) : DG_OK;
}

int dg_verbs_endpoint_get(struct verbs_queue *q, uint32_t region, struct verbs_endpoint **out)
{
	const struct dg_region_entry *remote = region_entry_at(region);
	if (remote->method == DG_METHOD_QP)
		return qp_endpoint_get(remote, out);
	struct verbs_endpoint *ep = endpoint_find(q, region);
	if (!ep)
		ep = endpoint_new(q, region);
	if (!ep)
		return DG_IO_FAILED;
	*out = ep;
	/* seq_cst: this is the sleeper's load, see settle() in verbs_connect.c. */
	uint32_t state = atomic_load_explicit(&ep->conn->state, memory_order_seq_cst);
	if (__builtin_expect(state == CONN_READY && !ep->broken, 1))
		return DG_OK;
	if (state == CONN_CONNECTING || ep->head != ep->tail)
		return OP_MORE;
	if (state != CONN_READY)
		return not_connected(q, ep);
	endpoint_free(q, ep); /* broken, nothing in flight: the next call starts another */
	return OP_MORE;
}

static void free_broken(struct verbs_queue *q)
{
	q->any_broken = false;
	for (uint32_t i = 0; i < VERBS_ENDPOINTS; i++) {
		struct verbs_endpoint *ep = q->endpoints[i];
		if (!ep || !ep->broken || ep->qp)
			continue;
		if (ep->head == ep->tail && ep != q->batch_endpoint)
			endpoint_free(q, ep);
		else
			q->any_broken = true;
	}
}

static void abort_qp(const struct verbs_endpoint *ep)
{
	if (ep->qp)
		dg_verbs_qp_abort(ep->qp);
	else
		dg_verbs_conn_abort(ep->conn);
}

/* Ends the endpoint's queue pair and the work requests in flight on it. */
static void endpoint_abort(struct verbs_queue *q, struct verbs_endpoint *ep)
{
	abort_qp(ep);
	while (ep->head != ep->tail)
		oldest_ended(q, ep, failure(q, ep, IBV_WC_WR_FLUSH_ERR));
}

void dg_verbs_endpoint_break(struct verbs_queue *q, struct verbs_endpoint *ep)
{
	endpoint_abort(q, ep);
	if (ep->qp)
		qp_failure(q, ep, IBV_WC_WR_FLUSH_ERR);
	else
		ep->broken = q->any_broken = true;
	ended_publish(&q->ended, q->p);
}

int dg_verbs_endpoint_add(struct verbs_queue *q, struct verbs_endpoint *ep)
{
	uint32_t place = endpoint_place(q);
	if (place == VERBS_ENDPOINTS)
		return dg_fail(EMFILE, "this queue has %u connections and queue pairs, which is the "
				       "maximum: close some, or open another queue", VERBS_ENDPOINTS);
	ep->number = next_number(q, place);
	q->endpoints[place] = ep;
	return 0;
}

void dg_verbs_endpoint_remove(struct verbs_queue *q, struct verbs_endpoint *ep)
{
	dg_verbs_endpoint_break(q, ep);
	q->endpoints[ep->number & (VERBS_ENDPOINTS - 1)] = NULL;
}

/* Posting. */

/* Rings the doorbell for the work requests that were collected. */
static void ring(struct verbs_queue *q)
{
	struct verbs_endpoint *ep = q->batch_endpoint;
	struct ibv_send_wr *bad;
	struct ibv_qp *qp = ep ? endpoint_qp(ep) : NULL;
	if (!ep)
		return;
	q->batch[q->n_batch - 1].next = NULL;
	q->batch[q->n_batch - 1].send_flags |= IBV_SEND_SIGNALED;
	ep->unsignaled = 0;
	q->batch_endpoint = NULL;
	q->n_batch = 0;
	/* Those before the request that was not accepted may be unsignaled, and nothing would then
	 * report their end. */
	if (__builtin_expect(!qp || qp->context->post_send(qp, q->batch, &bad), 0)) {
		ep->status = ep->qp ? DG_IO_FAILED : ep->status;
		endpoint_abort(q, ep);
	}
}

/* Fills in a work request's operation and its remote address. */
static void set_operation(struct ibv_send_wr *wr, const struct dg_op *op, uint64_t remote,
			  uint32_t rkey)
{
	static const int opcodes[] = {
		[DG_READ] = IBV_WR_RDMA_READ,
		[DG_WRITE] = IBV_WR_RDMA_WRITE,
		[DG_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
		[DG_COMPARE_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
	};
	wr->opcode = opcodes[op->opcode];
	wr->rdma.remote_addr = remote; /* also sets atomic.remote_addr */
	if (!(op->flags & OP_ATOMIC)) {
		wr->rdma.rkey = rkey;
		return;
	}
	wr->atomic.compare_add = op->dst_stride;
	wr->atomic.swap = op->src_stride;
	wr->atomic.rkey = rkey;
}

/* Appends a work request of `bytes` bytes, whose n_sge elements are already filled in. */
static void collect(struct verbs_queue *q, struct verbs_endpoint *ep, const struct dg_op *op,
		    uint64_t remote, int n_sge, uint64_t bytes)
{
	struct ibv_send_wr *wr = &q->batch[q->n_batch];
	uint32_t place = ep->tail++;
	*wr = (struct ibv_send_wr){
		.wr_id = (uint64_t)ep->number << 32 | place,
		.next = wr + 1,
		.sg_list = q->sges[q->n_batch],
		.num_sge = n_sge,
	};
	set_operation(wr, op, remote, endpoint_rkey(ep, op->remote));
	if (op->opcode == DG_WRITE && dg_verbs_fits_inline(endpoint_max_inline(ep), op, bytes))
		wr->send_flags |= IBV_SEND_INLINE;
	if (++ep->unsignaled == VERBS_SIGNAL_EVERY) {
		wr->send_flags |= IBV_SEND_SIGNALED;
		ep->unsignaled = 0;
	}
	ep->wrs[place & (VERBS_ENDPOINT_WRS - 1)].work = q->current;
	ep->wrs[place & (VERBS_ENDPOINT_WRS - 1)].bytes = bytes;
	q->current->left++;
	q->in_flight++;
	q->bytes += bytes;
	q->batch_endpoint = ep;
	if (++q->n_batch == VERBS_BATCH)
		ring(q);
}

/* Creates a work request for op's next bytes, from q->p->progress on: for one row, or for several
 * rows that are adjacent on the remote side. Returns the number of bytes. */
static uint64_t next_piece(struct verbs_queue *q, struct verbs_endpoint *ep, const struct dg_op *op)
{
	const struct verbs *d = q->d;
	uint32_t lkey = endpoint_lkey(ep, op->local);
	bool write = op->opcode == DG_WRITE;
	uint64_t remote_stride = write ? op->dst_stride : op->src_stride;
	uint64_t local_stride = write ? op->src_stride : op->dst_stride;
	uint64_t remote = (uintptr_t)(write ? op->dst : op->src);
	uint64_t local = (uintptr_t)(write ? op->src : op->dst);
	uint64_t at = q->p->progress, left = op->size * op->rows - at, row_size = op->size, n = 0;
	uint32_t n_sge = 0;
	if (op->rows == 1 || (remote_stride == op->size && local_stride == op->size))
		row_size = op->size * op->rows;
	uint64_t row = at / row_size, within = at % row_size;
	remote += row * remote_stride + within;
	do {
		uint64_t part = row_size - within;
		if (part > d->max_piece - n)
			part = d->max_piece - n;
		q->sges[q->n_batch][n_sge++] = (struct ibv_sge){
			.addr = local + row++ * local_stride + within,
			.length = (uint32_t)part,
			.lkey = lkey,
		};
		n += part;
		within = 0;
	} while (remote_stride == op->size && n < left && n < d->max_piece && n_sge < d->max_sge &&
		 row_size == op->size);
	collect(q, ep, op, remote, (int)n_sge, n);
	return n;
}

static bool has_room(const struct verbs_queue *q, const struct verbs_endpoint *ep)
{
	return ep->tail - ep->head < q->d->max_wr && q->in_flight < VERBS_QUEUE_WRS &&
	       q->bytes < MAX_IN_FLIGHT;
}

static struct verbs_work *work_new(struct verbs_queue *q, uint32_t local, uint32_t remote)
{
	struct verbs_work *w = q->free_works[--q->n_free_works];
	*w = (struct verbs_work){.left = 1, .local = local, .remote = remote};
	return w;
}

static void begin_work(struct verbs_queue *q, const struct dg_op *op)
{
	if ((op->flags & DG_CHAIN) && !q->chain)
		q->chain = work_new(q, NO_REGION, NO_REGION);
	q->current = work_new(q, op->local, op->remote);
	q->current->slot = op->slot;
	q->current->chain = q->chain;
	if (q->chain)
		q->chain->left++;
}

/* Ends the operation at the head of the ring: all of it was posted, or it has failed. */
static void finish(struct verbs_queue *q, const struct dg_op *op, int status)
{
	struct verbs_work *w = q->current, *chain = q->chain;
	bool last = chain && !(op->flags & DG_CHAIN);
	if (last) {
		chain->slot = op->slot;
		q->chain = NULL;
	}
	q->current = NULL;
	q->p->progress = 0;
	q->p->sq_head++;
	work_ended(q, w, status);
	if (last)
		work_ended(q, chain, DG_OK);
}

/* Posts work requests for the rest of op. Returns whether the whole of it was posted. */
static bool submit_op(struct verbs_queue *q, const struct dg_op *op)
{
	struct dg_pipe *p = q->p;
	struct verbs_endpoint *ep = NULL;
	uint64_t total = op->size * op->rows;
	if (!q->current) {
		if ((op->flags & DG_FENCE) && q->in_flight)
			return false;
		begin_work(q, op);
	}
	int status = DG_OK;
	while (p->progress < total) {
		status = q->current->status;
		if (!status && q->chain)
			status = q->chain->status;
		if (!status)
			status = dg_op_allowed(op);
		if (!status)
			status = dg_verbs_endpoint_get(q, op->remote, &ep);
		if (status == OP_MORE || (!status && !has_room(q, ep)))
			return false;
		if (status)
			break;
		if (q->batch_endpoint && q->batch_endpoint != ep) {
			ring(q);
			continue; /* ringing may have ended endpoints */
		}
		p->progress += next_piece(q, ep, op);
	}
	finish(q, op, status);
	return true;
}

static struct dg_op *next_op(struct verbs_queue *q)
{
	struct dg_pipe *p = q->p;
	return sq_has(p, p->sq_head) ? sq_entry(p, p->sq_head) : NULL;
}

void dg_verbs_submit(struct verbs_queue *q)
{
	ended_before_submit(&q->ended, q->p, q->in_flight);
	for (struct dg_op *op; (op = next_op(q)) && submit_op(q, op);)
		;
	ring(q);
	ended_publish(&q->ended, q->p);
}

/* Posts op, which is one piece, as the only work request of its doorbell. Returns the number of the
 * work request, or 0 if it was refused and nothing is in flight. */
static uint64_t post_one(struct verbs_queue *q, struct verbs_endpoint *ep, const struct dg_op *op)
{
	bool write = op->opcode == DG_WRITE;
	struct ibv_send_wr *wr = &q->batch[0], *bad;
	struct ibv_qp *qp = endpoint_qp(ep);
	q->sges[0][0] = (struct ibv_sge){
		.addr = (uintptr_t)(write ? op->src : op->dst),
		.length = (uint32_t)op->size,
		.lkey = endpoint_lkey(ep, op->local),
	};
	wr->wr_id = (uint64_t)ep->number << 32 | ep->tail;
	wr->next = NULL;
	wr->sg_list = q->sges[0];
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED |
			 (write && dg_verbs_fits_inline(endpoint_max_inline(ep), op, op->size)
				  ? IBV_SEND_INLINE
				  : 0);
	set_operation(wr, op, (uintptr_t)(write ? op->dst : op->src), endpoint_rkey(ep, op->remote));
	return qp && !qp->context->post_send(qp, wr, &bad) ? wr->wr_id : 0;
}

/* Records the request of post_one(), which has not ended yet, as if it had come from the ring. */
static void track(struct verbs_queue *q, struct verbs_endpoint *ep, const struct dg_op *op)
{
	uint32_t i = ep->tail++ & (VERBS_ENDPOINT_WRS - 1);
	struct verbs_work *w = work_new(q, op->local, op->remote);
	w->slot = op->slot;
	ep->wrs[i].work = w;
	ep->wrs[i].bytes = op->size;
	q->in_flight++;
	q->bytes += op->size;
	q->ended.first = q->ended.late = false;
	q->ended.last_poll_ns = now_ns();
}

/* Returns the endpoint to this region if it can be posted to, otherwise NULL. */
static struct verbs_endpoint *ready_endpoint(const struct verbs_queue *q, uint32_t region)
{
	const struct dg_region_entry *remote = region_entry_at(region);
	struct verbs_endpoint *ep;
	if (remote->method == DG_METHOD_QP)
		return qp_endpoint_get(remote, &ep) ? NULL : ep;
	ep = endpoint_find(q, region);
	return ep && atomic_load_explicit(&ep->conn->state, memory_order_acquire) == CONN_READY ? ep
											      : NULL;
}

int dg_verbs_run(struct verbs_queue *q, const struct dg_op *op)
{
	struct verbs_endpoint *ep = ready_endpoint(q, op->remote);
	struct ibv_wc wc;
	if (!ep || op->rows != 1 || (op->flags & DG_CHAIN) || op->size > q->d->max_piece)
		return OP_NOT;
	if (q->in_flight || q->any_broken || next_op(q))
		return OP_NOT;
	uint64_t number = post_one(q, ep, op);
	if (!number)
		return OP_NOT; /* from the ring it will be refused again */
	for (uint32_t i = 0; i < POLLS; i++) {
		if (q->cq->context->poll_cq(q->cq, 1, &wc) <= 0 || wc.wr_id != number)
			continue; /* no completion, or that of an endpoint that has ended */
		ep->head = ++ep->tail;
		return wc.status ? failure(q, ep, wc.status) : DG_OK;
	}
	track(q, ep, op);
	return OP_MORE;
}

static void take_completions(struct verbs_queue *q)
{
	struct ibv_wc wcs[WC_BATCH];
	int n = WC_BATCH;
	while (q->in_flight && n == WC_BATCH) {
		n = q->cq->context->poll_cq(q->cq, WC_BATCH, wcs);
		for (int i = 0; i < n; i++)
			take_completion(q, &wcs[i]);
	}
}

void dg_verbs_progress(struct verbs_queue *q)
{
	if (q->in_flight) {
		ended_before_poll(&q->ended);
		take_completions(q);
		ended_after_poll(&q->ended, q->p);
	}
	/* A broken endpoint is kept for its work requests in flight, which may have ended just now. */
	if (__builtin_expect(q->any_broken, 0))
		free_broken(q);
	/* Operations that waited for room, for a connection or for a fence. */
	if (next_op(q))
		dg_verbs_submit(q);
}

void dg_verbs_flush(struct verbs_queue *q)
{
	take_completions(q);
	q->closing = true;
	for (uint32_t i = 0; i < VERBS_ENDPOINTS; i++) {
		if (!q->endpoints[i])
			continue;
		endpoint_abort(q, q->endpoints[i]);
		endpoint_free(q, q->endpoints[i]);
	}
	for (struct dg_op *op; (op = next_op(q));) {
		if (!q->current)
			begin_work(q, op);
		finish(q, op, DG_FLUSHED);
	}
	ended_publish(&q->ended, q->p);
}
