// SPDX-License-Identifier: Apache-2.0
/* The CPU's data path: work requests of libibverbs into the rings of queue pairs, and completions out of theirs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nic_wqe.h"
#include "verbs_objects.h"

#define WRITE_INLINE_MAX 28u /* of an entry of 64 bytes */
#define INLINE_HEADER	 4u

/* ---- the requests of a queue pair ---- */

static doca_error_t ids_new(struct work *w, uint32_t entries)
{
	pthread_mutex_init(&w->lock, NULL);
	w->ids = entries ? calloc(entries, sizeof *w->ids) : NULL;
	return w->ids || !entries ? DOCA_SUCCESS
				  : REFUSE_FOR("doca_verbs_qp_create", DOCA_ERROR_NO_MEMORY,
					       "no memory for %u work requests", entries);
}

static bool uses(const struct doca_verbs_qp *qp, const struct doca_verbs_cq *cq)
{
	return cq && ((qp->init.sq_wr && qp->init.send_cq == cq) || (qp->init.rq_wr && qp->init.receive_cq == cq));
}

static doca_error_t add_qp(struct doca_verbs_cq *cq, struct doca_verbs_qp *qp)
{
	pthread_mutex_lock(&cq->lock);
	struct doca_verbs_qp **more = realloc(cq->qps, (cq->n_qps + 1) * sizeof *more);
	if (more) {
		cq->qps = more;
		cq->qps[cq->n_qps++] = qp;
	}
	pthread_mutex_unlock(&cq->lock);
	return more ? DOCA_SUCCESS
		    : REFUSE_FOR("doca_verbs_qp_create", DOCA_ERROR_NO_MEMORY, "no memory for a queue pair");
}

static void remove_qp(struct doca_verbs_cq *cq, const struct doca_verbs_qp *qp)
{
	pthread_mutex_lock(&cq->lock);
	for (uint32_t i = 0; i < cq->n_qps; i++)
		if (cq->qps[i] == qp)
			cq->qps[i--] = cq->qps[--cq->n_qps];
	pthread_mutex_unlock(&cq->lock);
}

doca_error_t work_open(struct doca_verbs_qp *qp)
{
	struct doca_verbs_cq *const send = qp->init.send_cq, *const receive = qp->init.receive_cq;
	doca_error_t error = ids_new(&qp->sends, qp->init.sq_wr);
	if (!error)
		error = ids_new(&qp->receives, qp->init.rq_wr);
	if (!error && uses(qp, send))
		error = add_qp(send, qp);
	if (!error && uses(qp, receive) && (receive != send))
		error = add_qp(receive, qp);
	return error;
}

void work_close(struct doca_verbs_qp *qp)
{
	if (uses(qp, qp->init.send_cq))
		remove_qp(qp->init.send_cq, qp);
	if (uses(qp, qp->init.receive_cq))
		remove_qp(qp->init.receive_cq, qp);
	free(qp->sends.ids);
	free(qp->receives.ids);
}

void work_reset(struct doca_verbs_qp *qp)
{
	qp->sends.posted = qp->receives.posted = 0;
	atomic_store(&qp->sends.done, 0);
	atomic_store(&qp->receives.done, 0);
	qp->own_producer = 0;
	if (qp->own && !qp->init.external_dbr.umem)
		memset(qp->record, 0, 2 * sizeof *qp->record);
}

/* ---- posting ---- */

/* Whether the CPU may post `n` segments to a ring of the queue pair. Returns 0 or an errno, logged. */
static int check_post(const char *func, const struct doca_verbs_qp *qp, const struct work *w, uint32_t entries,
		      int n, uint32_t most)
{
	if (!entries)
		return REFUSE_FOR(func, EINVAL, "queue pair %u has no such ring", qp->number);
	if (qp->init.external.umem || atomic_load(&qp->exported))
		return REFUSE_FOR(func, EINVAL, "the rings of queue pair %u are the program's or a GPU's", qp->number);
	if (n < 0 || (uint32_t)n > most)
		return REFUSE_FOR(func, EINVAL, "%d segments: a request has at most %u", n, most);
	return w->posted - atomic_load(&w->done) < entries ? 0 : ENOMEM;
}

static uint8_t *put_segments(uint8_t *at, const struct ibv_sge *s, int n)
{
	for (; n--; s++)
		at = put_data_segment(at, s->addr, s->length, s->lkey);
	return at;
}

/* Returns NULL if there are more bytes than `most`. */
static uint8_t *put_inline(uint8_t *at, const struct ibv_sge *s, int n, uint32_t most)
{
	uint8_t *const header = at;
	uint32_t bytes = 0;
	at += INLINE_HEADER;
	for (; n--; s++) {
		if (s->length > most - bytes)
			return NULL;
		memcpy(at + bytes, (const void *)(uintptr_t)s->addr, s->length);
		bytes += s->length;
	}
	put_be32(header, WQE_INLINE | bytes);
	return at + (bytes + INLINE_HEADER + WQE_SEGMENT - 1) / WQE_SEGMENT * WQE_SEGMENT - INLINE_HEADER;
}

static const uint8_t opcodes[] = {
	[IBV_WR_RDMA_WRITE] = WQE_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = WQE_WRITE_IMM,
	[IBV_WR_SEND] = WQE_SEND,
	[IBV_WR_SEND_WITH_IMM] = WQE_SEND_IMM,
	[IBV_WR_RDMA_READ] = WQE_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = WQE_ATOMIC_CS,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = WQE_ATOMIC_FA,
	[IBV_WR_DRIVER1] = WQE_WAIT,
};

/* The segments between the control segment and the data. */
static uint8_t *put_operation(uint8_t *at, const struct ibv_send_wr *wr, uint8_t opcode)
{
	switch (opcode) {
	case WQE_SEND:
	case WQE_SEND_IMM:
		return at;
	case WQE_WAIT: /* as doca_verbs_bridge_set_wait_cq_pi_wr() filled it */
		put_be32(at + 8, (uint32_t)wr->wr.rdma.remote_addr);
		put_be32(at + 12, wr->wr.rdma.rkey);
		return at + WQE_SEGMENT;
	case WQE_ATOMIC_CS:
	case WQE_ATOMIC_FA:
		at = put_be64(at, wr->wr.atomic.remote_addr);
		put_be32(at, wr->wr.atomic.rkey);
		at = put_be64(at + 8, opcode == WQE_ATOMIC_CS ? wr->wr.atomic.swap : wr->wr.atomic.compare_add);
		return put_be64(at, wr->wr.atomic.compare_add);
	default:
		at = put_be64(at, wr->wr.rdma.remote_addr);
		put_be32(at, wr->wr.rdma.rkey);
		return at + 8;
	}
}

static int post_send(struct doca_verbs_qp *qp, const struct ibv_send_wr *wr)
{
	static const char func[] = "doca_verbs_bridge_post_send";
	const struct doca_verbs_qp_init_attr *a = &qp->init;
	struct work *w = &qp->sends;
	uint8_t entry[2 * WQE_BYTES] = {0}, *at;
	if ((unsigned)wr->opcode >= sizeof opcodes || !opcodes[wr->opcode])
		return REFUSE_FOR(func, EINVAL, "opcode %u is unknown", (unsigned)wr->opcode);
	const uint8_t opcode = opcodes[wr->opcode];
	const int n = opcode == WQE_WAIT ? 0 : wr->num_sge;
	const uint32_t most = opcode == WQE_ATOMIC_CS || opcode == WQE_ATOMIC_FA ? 1 : a->send_max_sges;
	TRY(check_post(func, qp, w, a->sq_wr, n, most));
	at = put_operation(entry + WQE_SEGMENT, wr, opcode);
	if (wr->send_flags & IBV_SEND_INLINE && opcode < WQE_WAIT) {
		uint32_t room = a->max_inline_data;
		if (opcode < WQE_SEND && room > WRITE_INLINE_MAX)
			room = WRITE_INLINE_MAX;
		at = put_inline(at, wr->sg_list, n, room);
		if (!at)
			return REFUSE_FOR(func, EINVAL, "more inline data than %u bytes", room);
	} else {
		at = put_segments(at, wr->sg_list, n);
	}
	put_be32(entry, (w->posted & 0xffff) << 8 | opcode);
	put_be32(entry + 4, qp->number << 8 | (uint32_t)(at - entry) / WQE_SEGMENT);
	entry[11] = (uint8_t)((a->sq_sig_all || wr->send_flags & IBV_SEND_SIGNALED ? WQE_CQE : 0) |
			      (wr->send_flags & IBV_SEND_FENCE ? 0x80 : 0) |
			      (wr->send_flags & IBV_SEND_SOLICITED ? WQE_SOLICITED : 0));
	memcpy(entry + 12, &wr->imm_data, sizeof wr->imm_data);
	const uint32_t index = w->posted & (a->sq_wr - 1);
	memcpy(qp->send_ring + (size_t)index * WQE_BYTES, entry, WQE_BYTES);
	w->ids[index] = wr->wr_id;
	w->posted++;
	/* Release: the NIC that sees the count sees the entry. */
	if (a->send_dbr_mode == DOCA_VERBS_QP_SEND_DBR_MODE_NO_DBR_EXT)
		__atomic_store_n(&qp->own_producer, qp->own_producer + 1, __ATOMIC_RELEASE);
	else
		__atomic_store_n(&qp->record[1], htobe32(w->posted & 0xffff), __ATOMIC_RELEASE);
	return 0;
}

static int post_receive(struct doca_verbs_qp *qp, const struct ibv_recv_wr *wr)
{
	const struct doca_verbs_qp_init_attr *a = &qp->init;
	struct work *w = &qp->receives;
	TRY(check_post("doca_verbs_bridge_post_recv", qp, w, a->rq_wr, wr->num_sge, a->receive_max_sges));
	const uint32_t index = w->posted & (a->rq_wr - 1);
	uint8_t *at = (uint8_t *)qp->receive_ring + (size_t)index * a->receive_max_sges * SGE_BYTES;
	at = put_segments(at, wr->sg_list, wr->num_sge);
	if ((uint32_t)wr->num_sge < a->receive_max_sges)
		put_segments(at, &(struct ibv_sge){.lkey = WQE_END_KEY}, 1);
	w->ids[index] = wr->wr_id;
	w->posted++;
	/* Release: as above. */
	__atomic_store_n(&qp->record[0], htobe32(w->posted & 0xffff), __ATOMIC_RELEASE);
	return 0;
}

/* Posts each request of a list, with the ring's lock. Sets *bad to the first that was not posted. */
#define POST_ALL(qp, work, wr, bad, post)                                                            \
	do {                                                                                         \
		int code_ = object_is(qp, OBJECT_VERBS_QP)                                           \
				    ? 0                                                              \
				    : REFUSE_FOR(__func__, EINVAL, "%p is not a queue pair", (void *)qp); \
		if (!code_) {                                                                        \
			pthread_mutex_lock(&(qp)->work.lock);                                        \
			while (wr && !(code_ = post(qp, wr)))                                        \
				wr = wr->next;                                                       \
			pthread_mutex_unlock(&(qp)->work.lock);                                      \
		}                                                                                    \
		if (code_ && bad)                                                                    \
			*bad = wr;                                                                   \
		return code_;                                                                        \
	} while (0)

int doca_verbs_bridge_post_send(struct doca_verbs_qp *verbs_qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	POST_ALL(verbs_qp, sends, wr, bad_wr, post_send);
}

int doca_verbs_bridge_post_recv(struct doca_verbs_qp *verbs_qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	POST_ALL(verbs_qp, receives, wr, bad_wr, post_receive);
}

doca_error_t doca_verbs_bridge_set_wait_cq_pi_wr(struct doca_verbs_cq *verbs_cq, uint32_t pi, struct ibv_send_wr *wr)
{
	CHECK_CQ(verbs_cq);
	CHECK_OUT(wr);
	wr->opcode = IBV_WR_DRIVER1;
	wr->wr.rdma.remote_addr = pi;
	wr->wr.rdma.rkey = verbs_cq->number;
	return DOCA_SUCCESS;
}

/* ---- completions ---- */

enum { CQE_IMMEDIATE = 36, CQE_BYTE_COUNT = 44, CQE_VENDOR = 54, CQE_SYNDROME = 55, CQE_QPN = 56, CQE_INDEX = 60, CQE_OWN = 63 };

static const uint8_t *next_cqe(const struct doca_verbs_cq *cq)
{
	const char *cqe = cq->ring + (size_t)(cq->polled & (cq->entries - 1)) * CQE_BYTES;
	/* Acquire: what the completion says, and the bytes that the entry moved, are visible with it. The NIC
	 * stores 8 bytes at once. */
	const uint64_t last = __atomic_load_n((const uint64_t *)(const void *)(cqe + CQE_QPN), __ATOMIC_ACQUIRE);
	const uint8_t own = (uint8_t)(last >> 56);
	const bool is_new = own >> 4 != 15 && (own & 1) == !!(cq->polled & cq->entries);
	return is_new ? (const uint8_t *)cqe : NULL;
}

static struct doca_verbs_qp *find_qp(const struct doca_verbs_cq *cq, uint32_t qpn)
{
	for (uint32_t i = 0; i < cq->n_qps; i++)
		if (cq->qps[i]->number == qpn)
			return cq->qps[i];
	return NULL;
}

static enum ibv_wc_status status_of(uint8_t syndrome)
{
	switch (syndrome) {
	case SYNDROME_LOCAL_LENGTH:
		return IBV_WC_LOC_LEN_ERR;
	case SYNDROME_LOCAL_QP:
		return IBV_WC_LOC_QP_OP_ERR;
	case SYNDROME_LOCAL_PROTECTION:
		return IBV_WC_LOC_PROT_ERR;
	case SYNDROME_FLUSHED:
		return IBV_WC_WR_FLUSH_ERR;
	case SYNDROME_REMOTE_REQUEST:
		return IBV_WC_REM_INV_REQ_ERR;
	case SYNDROME_REMOTE_ACCESS:
		return IBV_WC_REM_ACCESS_ERR;
	case SYNDROME_REMOTE_OPERATION:
		return IBV_WC_REM_OP_ERR;
	case SYNDROME_RETRIES:
		return IBV_WC_RETRY_EXC_ERR;
	case SYNDROME_RECEIVE_RETRIES:
		return IBV_WC_RNR_RETRY_EXC_ERR;
	default:
		return IBV_WC_GENERAL_ERR;
	}
}

static enum ibv_wc_opcode send_opcode(uint8_t opcode)
{
	switch (opcode) {
	case WQE_WRITE:
	case WQE_WRITE_IMM:
		return IBV_WC_RDMA_WRITE;
	case WQE_READ:
		return IBV_WC_RDMA_READ;
	case WQE_ATOMIC_CS:
		return IBV_WC_COMP_SWAP;
	case WQE_ATOMIC_FA:
		return IBV_WC_FETCH_ADD;
	case WQE_WAIT:
		return IBV_WC_DRIVER1;
	default:
		return IBV_WC_SEND;
	}
}

/* Received bytes that are in the completion go where the receive says. */
static void scatter(const struct doca_verbs_qp *qp, uint32_t index, const uint8_t *bytes, uint32_t left)
{
	const uint32_t most = qp->init.receive_max_sges;
	const uint8_t *at = (const uint8_t *)qp->receive_ring + (size_t)index * most * SGE_BYTES;
	for (uint32_t i = 0; i < most && left; i++, at += SGE_BYTES) {
		const uint32_t size = be32_at(at), n = size < left ? size : left;
		memcpy((void *)(uintptr_t)be64_at(at + 8), bytes, n);
		bytes += n;
		left -= n;
	}
}

static void complete_entry(struct doca_verbs_qp *qp, const uint8_t *cqe, struct ibv_wc *wc)
{
	const uint8_t kind = cqe[CQE_OWN] >> 4;
	const bool is_send = kind == CQE_REQUEST || kind == CQE_REQUEST_ERROR;
	const bool is_error = kind == CQE_REQUEST_ERROR || kind == CQE_RECEIVE_ERROR;
	struct work *w = is_send ? &qp->sends : &qp->receives;
	const uint32_t index = (uint32_t)(cqe[CQE_INDEX] << 8 | cqe[CQE_INDEX + 1]),
		       entry = index & ((is_send ? qp->init.sq_wr : qp->init.rq_wr) - 1);
	*wc = (struct ibv_wc){
		.wr_id = w->ids[entry],
		.status = is_error ? status_of(cqe[CQE_SYNDROME]) : IBV_WC_SUCCESS,
		.opcode = is_send ? send_opcode(cqe[CQE_QPN])
				  : kind == CQE_WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.vendor_err = is_error ? cqe[CQE_VENDOR] : 0,
		.byte_len = is_error ? 0 : be32_at(cqe + CQE_BYTE_COUNT),
		.qp_num = qp->number,
		.wc_flags = kind == CQE_WRITE_IMM || kind == CQE_SEND_IMM ? IBV_WC_WITH_IMM : 0,
	};
	if (wc->wc_flags)
		memcpy(&wc->imm_data, cqe + CQE_IMMEDIATE, sizeof wc->imm_data);
	if (!is_error && !is_send && cqe[CQE_OWN] & CQE_INLINE_32)
		scatter(qp, entry, cqe, wc->byte_len);
	/* An entry without a completion of its own is done with the next that has one. */
	const uint32_t done = atomic_load(&w->done);
	atomic_store(&w->done, done + (uint16_t)(index + 1 - done));
}

int doca_verbs_bridge_poll_cq(struct doca_verbs_cq *verbs_cq, int num_entries, struct ibv_wc *wc)
{
	const uint8_t *cqe;
	int n = 0;
	if (!object_is(verbs_cq, OBJECT_VERBS_CQ) || !wc || verbs_cq->collapsed)
		return REFUSE(-1, "%p is not a completion queue of the CPU's, or wc is NULL", (void *)verbs_cq);
	pthread_mutex_lock(&verbs_cq->lock);
	while (n < num_entries && (cqe = next_cqe(verbs_cq))) {
		struct doca_verbs_qp *qp = find_qp(verbs_cq, be32_at(cqe + CQE_QPN) & 0xffffff);
		if (qp) /* otherwise it was destroyed */
			complete_entry(qp, cqe, &wc[n++]);
		verbs_cq->polled++;
	}
	pthread_mutex_unlock(&verbs_cq->lock);
	return n;
}

uint32_t doca_verbs_bridge_get_current_cq_ci(struct doca_verbs_cq *verbs_cq)
{
	if (!object_is(verbs_cq, OBJECT_VERBS_CQ))
		return REFUSE(0, "%p is not a completion queue", (void *)verbs_cq);
	pthread_mutex_lock(&verbs_cq->lock);
	const uint32_t polled = verbs_cq->polled & 0xffffff;
	pthread_mutex_unlock(&verbs_cq->lock);
	return polled;
}
