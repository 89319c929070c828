/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDMA contexts (doca_rdma_get_gpu_handle()) for device code. Connections are numbered from 0.
 *
 * Strong: any thread posts, at a position that the function takes; a commit by one thread starts all
 * operations that were posted before it. Weak: the caller gives each operation its position, one behind
 * the other from doca_gpu_dev_rdma_get_info() on, and commits so many; one thread at a time commits, and
 * both modes may follow each other on a connection. Operations of a connection are executed in order.
 *
 * Errors: INVALID_VALUE for another connection, and for bytes beyond a buffer; TOO_BIG for more than 1 GiB,
 * or more inline bytes than an entry has room for; IO_FAILED after an operation that failed. Positions,
 * the functions for reads and inline sends, and weak receives: guess.
 */
#ifndef DOCA_GPUNETIO_DEV_RDMA_CUH
#define DOCA_GPUNETIO_DEV_RDMA_CUH

#include <doca_gpunetio_dev_buf.cuh>
#include <doca_gpunetio_dev_verbs_twosided.cuh>

/* Guess: the values. */
enum doca_gpu_dev_rdma_write_flags {
	DOCA_GPU_RDMA_WRITE_FLAG_NONE = 0,
	DOCA_GPU_RDMA_WRITE_FLAG_IMM = 1,
};
enum doca_gpu_dev_rdma_send_flags {
	DOCA_GPU_RDMA_SEND_FLAG_NONE = 0,
	DOCA_GPU_RDMA_SEND_FLAG_IMM = 1,
};
enum doca_gpu_dev_rdma_recv_wait_flags {
	DOCA_GPU_RDMA_RECV_WAIT_FLAG_NB = 0, /* returns what is there */
	DOCA_GPU_RDMA_RECV_WAIT_FLAG_B = 1, /* waits for all receives that were committed */
};

/* ---- entries ---- */

/* An operation. bytes: inline, NULL: they are at `local`. */
struct doca_priv_gpu_dev_rdma_operation {
	struct doca_gpu_dev_verbs_addr remote, local;
	const uint8_t *bytes;
	uint32_t opcode, size, immediate;
};

DOCA_GPUNETIO_DEVICE struct doca_gpu_dev_verbs_qp *
doca_priv_gpu_dev_rdma_qp(struct doca_gpu_dev_rdma *rdma, uint32_t connection)
{
	return connection < rdma->count ? rdma->connections[connection].qp : NULL;
}

/* Writes the bytes behind their length, from segment `at` on. Returns the number of segments. */
DOCA_GPUNETIO_DEVICE uint32_t doca_priv_gpu_dev_rdma_inline(struct doca_gpu_dev_verbs_wqe *wqe,
							    uint32_t at, const uint8_t *bytes,
							    uint32_t size)
{
	uint8_t *to = wqe->inl_data + 16 * at;
	*(uint32_t *)to = doca_gpu_dev_verbs_bswap32(size | DOCA_GPUNETIO_IB_MLX5_INLINE_SEG);
	for (uint32_t i = 0; i < size; i++)
		to[4 + i] = bytes[i];
	return (4 + size + 15) / 16;
}

DOCA_GPUNETIO_DEVICE void
doca_priv_gpu_dev_rdma_write_entry(struct doca_gpu_dev_verbs_qp *qp, uint64_t index,
				   const struct doca_priv_gpu_dev_rdma_operation *o)
{
	struct doca_gpu_dev_verbs_wqe *wqe = doca_gpu_dev_verbs_get_wqe_ptr(qp, (uint16_t)index);
	const bool is_send = o->opcode == DOCA_GPUNETIO_IB_MLX5_OPCODE_SEND ||
			     o->opcode == DOCA_GPUNETIO_IB_MLX5_OPCODE_SEND_IMM;
	uint32_t n = 1;
	if (!is_send)
		doca_priv_gpu_dev_verbs_store(
			wqe, n++, doca_priv_gpu_dev_verbs_remote(o->remote.addr, o->remote.key));
	if (o->size && o->bytes)
		n += doca_priv_gpu_dev_rdma_inline(wqe, n, o->bytes, o->size);
	else if (o->size)
		doca_priv_gpu_dev_verbs_store(
			wqe, n++,
			doca_priv_gpu_dev_verbs_data(o->local.addr, o->local.key, o->size));
	doca_priv_gpu_dev_verbs_store(
		wqe, 0,
		doca_priv_gpu_dev_verbs_control(qp, (uint16_t)index, o->opcode, n,
						DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_CQ_UPDATE,
						o->immediate));
}

DOCA_GPUNETIO_DEVICE doca_error_t
doca_priv_gpu_dev_rdma_strong(struct doca_gpu_dev_rdma *rdma, uint32_t connection,
			      const struct doca_priv_gpu_dev_rdma_operation *o)
{
	struct doca_gpu_dev_verbs_qp *qp = doca_priv_gpu_dev_rdma_qp(rdma, connection);
	if (!qp)
		return DOCA_ERROR_INVALID_VALUE;
	const uint64_t consumed = doca_priv_gpu_dev_verbs_read(&qp->cq_sq.cqe_ci);
	const uint64_t index = doca_gpu_dev_verbs_reserve_wq_slots(
		qp, 1, DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_SKIP_AVAILABILITY_CHECK);
	const int status = doca_priv_gpu_dev_verbs_wait_for_slot(qp, index, consumed);
	doca_priv_gpu_dev_rdma_write_entry(qp, index, o);
	doca_gpu_dev_verbs_mark_wqes_ready<DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU>(qp, index,
											 index);
	return status ? DOCA_ERROR_IO_FAILED : DOCA_SUCCESS;
}

/* The index is the first one with this position that is not committed. */
DOCA_GPUNETIO_DEVICE doca_error_t
doca_priv_gpu_dev_rdma_weak(struct doca_gpu_dev_rdma *rdma, uint32_t connection, uint32_t position,
			    const struct doca_priv_gpu_dev_rdma_operation *o)
{
	struct doca_gpu_dev_verbs_qp *qp = doca_priv_gpu_dev_rdma_qp(rdma, connection);
	if (!qp)
		return DOCA_ERROR_INVALID_VALUE;
	const uint64_t consumed = doca_priv_gpu_dev_verbs_read(&qp->cq_sq.cqe_ci);
	const uint64_t next = doca_priv_gpu_dev_verbs_read(&qp->sq_rsvd_index);
	const uint64_t index = next + ((position - next) & __ldg(&qp->sq_wqe_mask));
	const int status = doca_priv_gpu_dev_verbs_wait_for_slot(qp, index, consumed);
	doca_priv_gpu_dev_rdma_write_entry(qp, index, o);
	return status ? DOCA_ERROR_IO_FAILED : DOCA_SUCCESS;
}

/* Fill in an operation. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_priv_gpu_dev_rdma_make(
	struct doca_priv_gpu_dev_rdma_operation *o, uint32_t opcode, const struct doca_gpu_buf *remote,
	uint64_t remote_offset, const struct doca_gpu_buf *local, uint64_t local_offset, uint64_t size,
	uint32_t immediate)
{
	if ((remote && doca_priv_gpu_dev_buf_part(remote, remote_offset, size, &o->remote)) ||
	    (local && doca_priv_gpu_dev_buf_part(local, local_offset, size, &o->local)))
		return DOCA_ERROR_INVALID_VALUE;
	if (doca_priv_gpu_dev_verbs_parts(size) > 1)
		return DOCA_ERROR_TOO_BIG;
	o->bytes = NULL;
	o->opcode = opcode;
	o->size = (uint32_t)size;
	o->immediate = immediate;
	return DOCA_SUCCESS;
}

DOCA_GPUNETIO_DEVICE doca_error_t doca_priv_gpu_dev_rdma_make_inline(
	struct doca_priv_gpu_dev_rdma_operation *o, uint32_t opcode, const struct doca_gpu_buf *remote,
	uint64_t remote_offset, const uint8_t *bytes, uint64_t size, uint32_t immediate)
{
	const doca_error_t error = doca_priv_gpu_dev_rdma_make(o, opcode, remote, remote_offset, NULL, 0,
							       size, immediate);
	o->bytes = bytes;
	return error ? error : size > (remote ? 28 : 44) ? DOCA_ERROR_TOO_BIG : DOCA_SUCCESS;
}

DOCA_GPUNETIO_DEVICE uint32_t doca_priv_gpu_dev_rdma_write_opcode(uint32_t flags)
{
	return flags & DOCA_GPU_RDMA_WRITE_FLAG_IMM ? DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_WRITE_IMM
						    : DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_WRITE;
}

DOCA_GPUNETIO_DEVICE uint32_t doca_priv_gpu_dev_rdma_send_opcode(uint32_t flags)
{
	return flags & DOCA_GPU_RDMA_SEND_FLAG_IMM ? DOCA_GPUNETIO_IB_MLX5_OPCODE_SEND_IMM
						   : DOCA_GPUNETIO_IB_MLX5_OPCODE_SEND;
}

/* ---- writes and reads ---- */

/* Post a write to the peer's buffer; with the flag IMM it uses a receive of the peer, which gets the
 * immediate value. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_write_strong(
	struct doca_gpu_dev_rdma *rdma, uint32_t connection_index, struct doca_gpu_buf *remote_buf,
	uint64_t remote_offset, struct doca_gpu_buf *local_buf, uint64_t local_offset, size_t length,
	uint32_t imm, const uint32_t flags_bitmask)
{
	struct doca_priv_gpu_dev_rdma_operation o;
	const doca_error_t error = doca_priv_gpu_dev_rdma_make(
		&o, doca_priv_gpu_dev_rdma_write_opcode(flags_bitmask), remote_buf, remote_offset, local_buf,
		local_offset, length, imm);
	return error ? error : doca_priv_gpu_dev_rdma_strong(rdma, connection_index, &o);
}

DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_write_weak(
	struct doca_gpu_dev_rdma *rdma, uint32_t connection_index, struct doca_gpu_buf *remote_buf,
	uint64_t remote_offset, struct doca_gpu_buf *local_buf, uint64_t local_offset, size_t length,
	uint32_t imm, const uint32_t flags_bitmask, uint32_t position)
{
	struct doca_priv_gpu_dev_rdma_operation o;
	const doca_error_t error = doca_priv_gpu_dev_rdma_make(
		&o, doca_priv_gpu_dev_rdma_write_opcode(flags_bitmask), remote_buf, remote_offset, local_buf,
		local_offset, length, imm);
	return error ? error : doca_priv_gpu_dev_rdma_weak(rdma, connection_index, position, &o);
}

/* Inline: up to 28 bytes, of any memory, which can be used again at once. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_write_inline_strong(
	struct doca_gpu_dev_rdma *rdma, uint32_t connection_index, struct doca_gpu_buf *remote_buf,
	uint64_t remote_offset, uint8_t *local_data, size_t length, uint32_t imm,
	const uint32_t flags_bitmask)
{
	struct doca_priv_gpu_dev_rdma_operation o;
	const doca_error_t error = doca_priv_gpu_dev_rdma_make_inline(
		&o, doca_priv_gpu_dev_rdma_write_opcode(flags_bitmask), remote_buf, remote_offset, local_data,
		length, imm);
	return error ? error : doca_priv_gpu_dev_rdma_strong(rdma, connection_index, &o);
}

DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_write_inline_weak(
	struct doca_gpu_dev_rdma *rdma, uint32_t connection_index, struct doca_gpu_buf *remote_buf,
	uint64_t remote_offset, uint8_t *local_data, size_t length, uint32_t imm,
	const uint32_t flags_bitmask, uint32_t position)
{
	struct doca_priv_gpu_dev_rdma_operation o;
	const doca_error_t error = doca_priv_gpu_dev_rdma_make_inline(
		&o, doca_priv_gpu_dev_rdma_write_opcode(flags_bitmask), remote_buf, remote_offset, local_data,
		length, imm);
	return error ? error : doca_priv_gpu_dev_rdma_weak(rdma, connection_index, position, &o);
}

/* Post a read of the peer's buffer. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_read_strong(
	struct doca_gpu_dev_rdma *rdma, uint32_t connection_index, struct doca_gpu_buf *remote_buf,
	uint64_t remote_offset, struct doca_gpu_buf *local_buf, uint64_t local_offset, size_t length,
	const uint32_t flags_bitmask)
{
	struct doca_priv_gpu_dev_rdma_operation o;
	const doca_error_t error = doca_priv_gpu_dev_rdma_make(
		&o, DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_READ, remote_buf, remote_offset, local_buf,
		local_offset, length, 0);
	(void)flags_bitmask;
	return error ? error : doca_priv_gpu_dev_rdma_strong(rdma, connection_index, &o);
}

DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_read_weak(
	struct doca_gpu_dev_rdma *rdma, uint32_t connection_index, struct doca_gpu_buf *remote_buf,
	uint64_t remote_offset, struct doca_gpu_buf *local_buf, uint64_t local_offset, size_t length,
	const uint32_t flags_bitmask, uint32_t position)
{
	struct doca_priv_gpu_dev_rdma_operation o;
	const doca_error_t error = doca_priv_gpu_dev_rdma_make(
		&o, DOCA_GPUNETIO_IB_MLX5_OPCODE_RDMA_READ, remote_buf, remote_offset, local_buf,
		local_offset, length, 0);
	(void)flags_bitmask;
	return error ? error : doca_priv_gpu_dev_rdma_weak(rdma, connection_index, position, &o);
}

/* ---- messages ---- */

/* Post a message, which waits for a receive of the peer. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_send_strong(
	struct doca_gpu_dev_rdma *rdma, uint32_t connection_index, struct doca_gpu_buf *local_buf,
	uint64_t local_offset, size_t length, uint32_t imm, const uint32_t flags_bitmask)
{
	struct doca_priv_gpu_dev_rdma_operation o;
	const doca_error_t error = doca_priv_gpu_dev_rdma_make(
		&o, doca_priv_gpu_dev_rdma_send_opcode(flags_bitmask), NULL, 0, local_buf, local_offset,
		length, imm);
	return error ? error : doca_priv_gpu_dev_rdma_strong(rdma, connection_index, &o);
}

DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_send_weak(
	struct doca_gpu_dev_rdma *rdma, uint32_t connection_index, struct doca_gpu_buf *local_buf,
	uint64_t local_offset, size_t length, uint32_t imm, const uint32_t flags_bitmask,
	uint32_t position)
{
	struct doca_priv_gpu_dev_rdma_operation o;
	const doca_error_t error = doca_priv_gpu_dev_rdma_make(
		&o, doca_priv_gpu_dev_rdma_send_opcode(flags_bitmask), NULL, 0, local_buf, local_offset,
		length, imm);
	return error ? error : doca_priv_gpu_dev_rdma_weak(rdma, connection_index, position, &o);
}

/* Inline: up to 44 bytes. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_send_inline_strong(
	struct doca_gpu_dev_rdma *rdma, uint32_t connection_index, uint8_t *local_data, size_t length,
	uint32_t imm, const uint32_t flags_bitmask)
{
	struct doca_priv_gpu_dev_rdma_operation o;
	const doca_error_t error = doca_priv_gpu_dev_rdma_make_inline(
		&o, doca_priv_gpu_dev_rdma_send_opcode(flags_bitmask), NULL, 0, local_data, length, imm);
	return error ? error : doca_priv_gpu_dev_rdma_strong(rdma, connection_index, &o);
}

DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_send_inline_weak(
	struct doca_gpu_dev_rdma *rdma, uint32_t connection_index, uint8_t *local_data, size_t length,
	uint32_t imm, const uint32_t flags_bitmask, uint32_t position)
{
	struct doca_priv_gpu_dev_rdma_operation o;
	const doca_error_t error = doca_priv_gpu_dev_rdma_make_inline(
		&o, doca_priv_gpu_dev_rdma_send_opcode(flags_bitmask), NULL, 0, local_data, length, imm);
	return error ? error : doca_priv_gpu_dev_rdma_weak(rdma, connection_index, position, &o);
}

/* ---- commits ---- */

/* Gets the next position of a connection, and the mask of positions. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_get_info(struct doca_gpu_dev_rdma *rdma,
							     uint32_t connection_index,
							     uint32_t *curr_position,
							     uint32_t *mask_max_position)
{
	struct doca_gpu_dev_verbs_qp *qp = doca_priv_gpu_dev_rdma_qp(rdma, connection_index);
	if (!qp)
		return DOCA_ERROR_INVALID_VALUE;
	*mask_max_position = __ldg(&qp->sq_wqe_mask);
	*curr_position =
		(uint32_t)doca_priv_gpu_dev_verbs_read(&qp->sq_rsvd_index) & *mask_max_position;
	return DOCA_SUCCESS;
}

DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_commit_strong(struct doca_gpu_dev_rdma *rdma,
								  uint32_t connection_index)
{
	struct doca_gpu_dev_verbs_qp *qp = doca_priv_gpu_dev_rdma_qp(rdma, connection_index);
	if (!qp)
		return DOCA_ERROR_INVALID_VALUE;
	doca_priv_gpu_dev_verbs_commit(qp);
	return DOCA_SUCCESS;
}

/* Starts the next num_ops operations that were posted in weak mode; the threads that posted them have
 * synchronized with the caller. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_commit_weak(struct doca_gpu_dev_rdma *rdma,
								uint32_t connection_index,
								uint32_t num_ops)
{
	struct doca_gpu_dev_verbs_qp *qp = doca_priv_gpu_dev_rdma_qp(rdma, connection_index);
	if (!qp)
		return DOCA_ERROR_INVALID_VALUE;
	if (num_ops == 0)
		return DOCA_SUCCESS;
	const uint64_t first = doca_gpu_dev_verbs_reserve_wq_slots(
		qp, num_ops, DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_SKIP_AVAILABILITY_CHECK);
	doca_gpu_dev_verbs_mark_wqes_ready<DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU>(
		qp, first, first + num_ops - 1);
	doca_priv_gpu_dev_verbs_commit(qp);
	return DOCA_SUCCESS;
}

/* Waits for all operations that were committed, of all connections. Gets how many completed since the last
 * call; one thread at a time. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_wait_all(struct doca_gpu_dev_rdma *rdma,
							     uint32_t *num_ops)
{
	int status = 0;
	*num_ops = 0;
	for (uint64_t i = 0; i < rdma->count && !status; i++) {
		struct doca_priv_gpu_dev_rdma_connection *c = &rdma->connections[i];
		const uint64_t committed = doca_priv_gpu_dev_verbs_read(&c->qp->sq_wqe_pi);
		if (committed == c->counted)
			continue;
		status = doca_gpu_dev_verbs_poll_cq_at(&c->qp->cq_sq, committed - 1);
		*num_ops += (uint32_t)(committed - c->counted);
		c->counted = committed;
	}
	return status ? DOCA_ERROR_IO_FAILED : DOCA_SUCCESS;
}

/* ---- receives ---- */

/* Gets the receives of the context. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_get_recv(struct doca_gpu_dev_rdma *rdma,
							     struct doca_gpu_dev_rdma_r **rdma_r)
{
	*rdma_r = &rdma->receives;
	return DOCA_SUCCESS;
}

DOCA_GPUNETIO_DEVICE doca_error_t doca_priv_gpu_dev_rdma_receive(
	struct doca_priv_gpu_dev_verbs_rq *rq, uint64_t index, struct doca_gpu_buf *buf, size_t length,
	uint64_t offset)
{
	struct doca_gpu_dev_verbs_addr to = {};
	to.key = doca_gpu_dev_verbs_bswap32(0x100); /* no memory */
	if (buf && doca_priv_gpu_dev_buf_part(buf, offset, length, &to))
		return DOCA_ERROR_INVALID_VALUE;
	doca_priv_gpu_dev_verbs_write_receive(rq, index, to, buf ? (uint32_t)length : 0);
	return DOCA_SUCCESS;
}

/* Waits until a receive's slot is free. */
DOCA_GPUNETIO_DEVICE int doca_priv_gpu_dev_rdma_wait_for_receive(struct doca_priv_gpu_dev_verbs_rq *rq,
								 uint64_t index)
{
	return index < rq->entries
		       ? 0
		       : doca_gpu_dev_verbs_poll_cq_at(&rq->cq, index - rq->entries);
}

/* Post a receive of a message, or, without a buffer, of a write's immediate value. Errors: INVALID_VALUE for
 * bytes beyond the buffer; IO_FAILED after a receive that failed. flags_bitmask is 0. */
DOCA_GPUNETIO_DEVICE doca_error_t
doca_gpu_dev_rdma_recv_strong(struct doca_gpu_dev_rdma_r *rdma_r, struct doca_gpu_buf *recv_buf,
			      size_t recv_length, uint64_t recv_offset, const uint32_t flags_bitmask)
{
	struct doca_priv_gpu_dev_verbs_rq *rq = doca_priv_gpu_dev_verbs_get_rq(rdma_r->qp);
	struct doca_gpu_dev_verbs_addr part;
	(void)flags_bitmask;
	if (recv_buf && doca_priv_gpu_dev_buf_part(recv_buf, recv_offset, recv_length, &part))
		return DOCA_ERROR_INVALID_VALUE;
	const uint64_t index =
		doca_gpu_dev_verbs_atomic_add<uint64_t, DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU>(
			&rq->reserved_index, 1);
	const int status = doca_priv_gpu_dev_rdma_wait_for_receive(rq, index);
	doca_priv_gpu_dev_rdma_receive(rq, index, recv_buf, recv_length, recv_offset);
	doca_priv_gpu_dev_verbs_mark_ready<DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU>(
		&rq->ready_index, index, index);
	return status ? DOCA_ERROR_IO_FAILED : DOCA_SUCCESS;
}

DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_recv_weak(
	struct doca_gpu_dev_rdma_r *rdma_r, struct doca_gpu_buf *recv_buf, size_t recv_length,
	uint64_t recv_offset, const uint32_t flags_bitmask, uint32_t position)
{
	struct doca_priv_gpu_dev_verbs_rq *rq = doca_priv_gpu_dev_verbs_get_rq(rdma_r->qp);
	const uint64_t next = doca_priv_gpu_dev_verbs_read(&rq->reserved_index);
	const uint64_t index = next + ((position - next) & rq->mask);
	(void)flags_bitmask;
	if (doca_priv_gpu_dev_rdma_wait_for_receive(rq, index))
		return DOCA_ERROR_IO_FAILED;
	return doca_priv_gpu_dev_rdma_receive(rq, index, recv_buf, recv_length, recv_offset);
}

/* Gets the next position, and the mask of positions. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_recv_get_info(struct doca_gpu_dev_rdma_r *rdma_r,
								  uint32_t *curr_position,
								  uint32_t *mask_max_position)
{
	struct doca_priv_gpu_dev_verbs_rq *rq = doca_priv_gpu_dev_verbs_get_rq(rdma_r->qp);
	*mask_max_position = rq->mask;
	*curr_position = (uint32_t)doca_priv_gpu_dev_verbs_read(&rq->reserved_index) & rq->mask;
	return DOCA_SUCCESS;
}

/* Starts all receives that are posted. */
DOCA_GPUNETIO_DEVICE doca_error_t
doca_gpu_dev_rdma_recv_commit_strong(struct doca_gpu_dev_rdma_r *rdma_r)
{
	struct doca_priv_gpu_dev_verbs_rq *rq = doca_priv_gpu_dev_verbs_get_rq(rdma_r->qp);
	doca_priv_gpu_dev_verbs_publish_receives<DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU>(
		rq, doca_priv_gpu_dev_verbs_load_acquire_gpu(&rq->ready_index));
	return DOCA_SUCCESS;
}

DOCA_GPUNETIO_DEVICE doca_error_t
doca_gpu_dev_rdma_recv_commit_weak(struct doca_gpu_dev_rdma_r *rdma_r, uint32_t num_recv)
{
	struct doca_priv_gpu_dev_verbs_rq *rq = doca_priv_gpu_dev_verbs_get_rq(rdma_r->qp);
	if (num_recv == 0)
		return DOCA_SUCCESS;
	const uint64_t first =
		doca_gpu_dev_verbs_atomic_add<uint64_t, DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU>(
			&rq->reserved_index, num_recv);
	doca_priv_gpu_dev_verbs_mark_ready<DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU>(
		&rq->ready_index, first, first + num_recv - 1);
	return doca_gpu_dev_rdma_recv_commit_strong(rdma_r);
}

/* Returns the connection whose queue pair has this number. */
DOCA_GPUNETIO_DEVICE uint32_t doca_priv_gpu_dev_rdma_number_of(struct doca_gpu_dev_rdma *rdma,
								uint32_t number)
{
	for (uint32_t i = 0; i < rdma->count; i++)
		if (__ldg(&rdma->connections[i].qp->sq_num) == number)
			return i;
	return 0;
}

/* Waits for the receives that were committed, or takes those that are complete; one thread at a time. Gets
 * how many, and of each, unless NULL, the immediate value (0 without one) and the connection. Errors:
 * IO_FAILED after a receive that failed; num_comp are complete. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_recv_wait_all(
	struct doca_gpu_dev_rdma_r *rdma_r, const enum doca_gpu_dev_rdma_recv_wait_flags flags,
	uint32_t *num_comp, uint32_t *imm_val, uint32_t *conn_idx)
{
	struct doca_priv_gpu_dev_verbs_rq *rq = doca_priv_gpu_dev_verbs_get_rq(rdma_r->qp);
	const uint64_t end = doca_priv_gpu_dev_verbs_read(&rq->producer);
	uint64_t at = doca_priv_gpu_dev_verbs_read(&rq->cq.cqe_ci);
	int status = 0;
	for (*num_comp = 0; at < end; at++, ++*num_comp) {
		do
			status = doca_gpu_dev_verbs_poll_one_cq_at(&rq->cq, at);
		while (status == EBUSY && flags == DOCA_GPU_RDMA_RECV_WAIT_FLAG_B);
		if (status)
			break;
		struct doca_gpunetio_ib_mlx5_cqe64 *cqe =
			(struct doca_gpunetio_ib_mlx5_cqe64 *)(rq->cq.cqe_daddr +
							       (at & rq->cq.cqe_mask) *
								       DOCA_GPUNETIO_VERBS_CQE_SIZE);
		if (imm_val)
			imm_val[*num_comp] = cqe->imm_inval_pkey;
		if (conn_idx)
			conn_idx[*num_comp] = doca_priv_gpu_dev_rdma_number_of(
				rdma_r->rdma, doca_gpu_dev_verbs_bswap32(cqe->sop_drop_qpn) & 0xffffff);
	}
	return status && status != EBUSY ? DOCA_ERROR_IO_FAILED : DOCA_SUCCESS;
}

/* The same, as of DOCA 2.9: without the connections. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_rdma_recv_wait_all(
	struct doca_gpu_dev_rdma_r *rdma_r, const enum doca_gpu_dev_rdma_recv_wait_flags flags,
	uint32_t *num_comp, uint32_t *imm_val)
{
	return doca_gpu_dev_rdma_recv_wait_all(rdma_r, flags, num_comp, imm_val, NULL);
}

#endif
