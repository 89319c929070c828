/* SPDX-License-Identifier: Apache-2.0 */
/* GPUNetIO Ethernet for device code: send queues. doca_gpu_dev_eth_txq_send() does all steps for any
 * number of threads. With the steps one by one, the program chooses the indices itself: it writes
 * entries, then submits the index behind the last one, and must not mix both ways in a queue. Keys are in
 * big-endian. */
#ifndef DOCA_GPUNETIO_DEV_ETH_TXQ_CUH
#define DOCA_GPUNETIO_DEV_ETH_TXQ_CUH

#include <doca_gpunetio_dev_buf.cuh>
#include <doca_gpunetio_dev_eth_common.cuh>

/* ---- step by step ---- */

DOCA_GPUNETIO_DEVICE struct doca_gpu_dev_eth_txq_wqe *
doca_gpu_dev_eth_txq_get_wqe_ptr(struct doca_gpu_eth_txq *txq, uint64_t index)
{
	return txq->ring + (index & (txq->entries - 1));
}

DOCA_GPUNETIO_DEVICE void
doca_gpu_dev_eth_txq_wqe_prepare_wait_send(struct doca_gpu_eth_txq *txq,
					   struct doca_gpu_dev_eth_txq_wqe *wqe, uint64_t index,
					   uint64_t time_ns, uint64_t addr, uint32_t mkey,
					   size_t size, enum doca_gpu_eth_send_flags flags)
{
	const uint32_t bytes = size > 0xffffffffu ? 0xffffffffu : (uint32_t)size;
	*wqe = {addr, time_ns, mkey, bytes, (uint32_t)index, (uint32_t)flags};
}

DOCA_GPUNETIO_DEVICE void
doca_gpu_dev_eth_txq_wqe_prepare_send(struct doca_gpu_eth_txq *txq,
				      struct doca_gpu_dev_eth_txq_wqe *wqe, uint64_t index,
				      uint64_t addr, uint32_t mkey, size_t size,
				      enum doca_gpu_eth_send_flags flags)
{
	doca_gpu_dev_eth_txq_wqe_prepare_wait_send(txq, wqe, index, 0, addr, mkey, size, flags);
}

/* Tells the NIC of all entries before `producer`. */
template <enum doca_gpu_dev_eth_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_ETH_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_eth_sync_scope sync_scope = DOCA_GPUNETIO_ETH_SYNC_SCOPE_GPU,
	  enum doca_gpu_dev_eth_nic_handler handler = DOCA_GPUNETIO_ETH_NIC_HANDLER_AUTO>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_eth_txq_submit(struct doca_gpu_eth_txq *txq,
						      uint64_t producer)
{
	__threadfence_system(); /* the entries, and the frames, before the index */
	if (sharing == DOCA_GPUNETIO_ETH_RESOURCE_SHARING_MODE_EXCLUSIVE)
		doca_priv_gpu_dev_verbs_write(&txq->words->producer, producer);
	else
		atomicMax_system((unsigned long long *)&txq->words->producer, producer);
}

/* ---- completions ---- */

/* Returns SUCCESS, AGAIN if there is no completion of this index yet, or IO_FAILED. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_priv_gpu_dev_eth_txq_try(struct doca_gpu_eth_txq *txq,
								uint64_t index)
{
	if (index < doca_priv_gpu_dev_eth_load_acquire(&txq->words->completions))
		return index < doca_priv_gpu_dev_verbs_read(&txq->words->failed)
			       ? DOCA_SUCCESS
			       : DOCA_ERROR_IO_FAILED;
	return doca_priv_gpu_dev_eth_load_acquire(&txq->words->failed) <= index
		       ? DOCA_ERROR_IO_FAILED
		       : DOCA_ERROR_AGAIN;
}

DOCA_GPUNETIO_DEVICE doca_error_t doca_priv_gpu_dev_eth_txq_wait(struct doca_gpu_eth_txq *txq,
								 uint64_t index,
								 enum doca_gpu_dev_eth_wait_flags flag)
{
	doca_error_t status;
	do
		status = doca_priv_gpu_dev_eth_txq_try(txq, index);
	while (status == DOCA_ERROR_AGAIN && flag == DOCA_GPUNETIO_ETH_WAIT_FLAG_B);
	return status;
}

/* Polls for the completion of this index, counted from 0. Returns AGAIN if it must not wait and there is
 * none; IO_FAILED if it, or one before it, failed. */
template <enum doca_gpu_dev_eth_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_ETH_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_eth_sync_scope sync_scope = DOCA_GPUNETIO_ETH_SYNC_SCOPE_GPU>
DOCA_GPUNETIO_DEVICE doca_error_t
doca_gpu_dev_eth_txq_poll_completion_at(struct doca_gpu_eth_txq *txq, uint64_t index,
					enum doca_gpu_dev_eth_wait_flags flag)
{
	const doca_error_t status = doca_priv_gpu_dev_eth_txq_wait(txq, index, flag);
	if (status == DOCA_SUCCESS)
		atomicMax((unsigned long long *)&txq->next_completion, index + 1);
	return status;
}

/* Takes the next `count` completions, which no other caller then gets. *completed is count, or 0 if it
 * must not wait and they are not all there, or on an error. */
template <enum doca_gpu_dev_eth_cq_poll_mode mode = DOCA_GPUNETIO_ETH_CQ_POLL_LAST>
DOCA_GPUNETIO_DEVICE doca_error_t
doca_gpu_dev_eth_txq_poll_completion(struct doca_gpu_eth_txq *txq, uint32_t count,
				     enum doca_gpu_dev_eth_wait_flags flag, uint32_t *completed)
{
	unsigned long long *next = (unsigned long long *)&txq->next_completion;
	uint64_t first = doca_priv_gpu_dev_verbs_read(&txq->next_completion);
	doca_error_t status = DOCA_SUCCESS;
	*completed = 0;
	if (count == 0)
		return DOCA_SUCCESS;
	if (flag == DOCA_GPUNETIO_ETH_WAIT_FLAG_B) {
		first = atomicAdd(next, count);
		status = doca_priv_gpu_dev_eth_txq_wait(txq, first + count - 1, flag);
	} else {
		status = doca_priv_gpu_dev_eth_txq_try(txq, first + count - 1);
		if (status == DOCA_ERROR_AGAIN ||
		    (status == DOCA_SUCCESS && atomicCAS(next, first, first + count) != first))
			return DOCA_SUCCESS;
	}
	if (status == DOCA_SUCCESS)
		*completed = count;
	return status;
}

/* ---- all steps ---- */

/* Returns the first of `count` entries, whose places are free. */
template <enum doca_gpu_dev_eth_resource_sharing_mode sharing>
DOCA_GPUNETIO_DEVICE uint64_t doca_priv_gpu_dev_eth_txq_reserve(struct doca_gpu_eth_txq *txq,
								uint64_t count)
{
	const uint64_t first = doca_priv_gpu_dev_eth_add<sharing>(&txq->reserved_index, count);
	const uint64_t end = first + count;
	while (end > txq->entries &&
	       doca_priv_gpu_dev_eth_load_acquire(&txq->words->done) < end - txq->entries)
		continue;
	return first;
}

/* Submits entries after all before `first`, whose threads have their turns in the order of the entries. */
template <enum doca_gpu_dev_eth_resource_sharing_mode sharing>
DOCA_GPUNETIO_DEVICE void doca_priv_gpu_dev_eth_txq_publish(struct doca_gpu_eth_txq *txq,
							    uint64_t first, uint64_t count)
{
	if (sharing != DOCA_GPUNETIO_ETH_RESOURCE_SHARING_MODE_EXCLUSIVE) {
		__threadfence_system();
		while (doca_priv_gpu_dev_eth_load_acquire(&txq->ready_index) != first)
			continue;
		atomicExch((unsigned long long *)&txq->ready_index, first + count);
	}
	doca_gpu_dev_eth_txq_submit<sharing>(txq, first + count);
}

/* Sends a frame of each thread at a time of doca_eth_txq_calculate_timestamp(); 0: at once. Entries
 * behind it in the queue wait as well. */
template <enum doca_gpu_dev_eth_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_ETH_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_eth_sync_scope sync_scope = DOCA_GPUNETIO_ETH_SYNC_SCOPE_GPU,
	  enum doca_gpu_dev_eth_nic_handler handler = DOCA_GPUNETIO_ETH_NIC_HANDLER_AUTO,
	  enum doca_gpu_dev_eth_exec_scope scope = DOCA_GPUNETIO_ETH_EXEC_SCOPE_THREAD>
DOCA_GPUNETIO_DEVICE void
doca_gpu_dev_eth_txq_wait_send(struct doca_gpu_eth_txq *txq, uint64_t time_ns, uint64_t addr,
			       uint32_t mkey, size_t size, enum doca_gpu_eth_send_flags flags,
			       doca_gpu_dev_eth_ticket_t *ticket)
{
	const uint32_t threads = doca_priv_gpu_dev_eth_threads<scope>();
	const uint32_t rank = doca_priv_gpu_dev_eth_rank<scope>();
	uint64_t first = 0;
	doca_priv_gpu_dev_eth_sync<scope>(); /* no thread still publishes what it posted before */
	if (rank == 0)
		first = doca_priv_gpu_dev_eth_txq_reserve<sharing>(txq, threads);
	first = doca_priv_gpu_dev_eth_from_first<scope>(first);
	*ticket = first + rank;
	doca_gpu_dev_eth_txq_wqe_prepare_wait_send(
		txq, doca_gpu_dev_eth_txq_get_wqe_ptr(txq, *ticket), *ticket, time_ns, addr, mkey,
		size, flags);
	doca_priv_gpu_dev_eth_sync<scope>();
	if (rank == 0)
		doca_priv_gpu_dev_eth_txq_publish<sharing>(txq, first, threads);
	doca_priv_gpu_dev_eth_sync<scope>();
}

/* Sends a frame of each thread. All threads of the scope call it; *ticket is the index of its entry. */
template <enum doca_gpu_dev_eth_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_ETH_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_eth_sync_scope sync_scope = DOCA_GPUNETIO_ETH_SYNC_SCOPE_GPU,
	  enum doca_gpu_dev_eth_nic_handler handler = DOCA_GPUNETIO_ETH_NIC_HANDLER_AUTO,
	  enum doca_gpu_dev_eth_exec_scope scope = DOCA_GPUNETIO_ETH_EXEC_SCOPE_THREAD>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_eth_txq_send(struct doca_gpu_eth_txq *txq, uint64_t addr,
						    uint32_t mkey, size_t size,
						    enum doca_gpu_eth_send_flags flags,
						    doca_gpu_dev_eth_ticket_t *ticket)
{
	doca_gpu_dev_eth_txq_wait_send<sharing, sync_scope, handler, scope>(txq, 0, addr, mkey, size,
									    flags, ticket);
}

/* ---- up to DOCA 3.1: enqueue, commit, push ----
 * Strong: any threads, each of which gets the next place. Weak: the program chooses positions, from
 * doca_gpu_dev_eth_txq_get_info() on, and one thread commits as many as were written. In a queue either
 * the one or the other. Entries are sent once they are committed and pushed. */

DOCA_GPUNETIO_DEVICE void doca_priv_gpu_dev_eth_txq_enqueue(struct doca_gpu_eth_txq *txq,
							    uint64_t time_ns, uint64_t addr,
							    uint32_t key, uint64_t size, uint32_t flags)
{
	const uint64_t index =
		doca_priv_gpu_dev_eth_txq_reserve<DOCA_GPUNETIO_ETH_RESOURCE_SHARING_MODE_GPU>(txq, 1);
	doca_gpu_dev_eth_txq_wqe_prepare_wait_send(
		txq, doca_gpu_dev_eth_txq_get_wqe_ptr(txq, index), index, time_ns, addr, key, size,
		(enum doca_gpu_eth_send_flags)flags);
	__threadfence_system(); /* the entry before the index, and in the order of the entries */
	while (doca_priv_gpu_dev_eth_load_acquire(&txq->ready_index) != index)
		continue;
	atomicExch((unsigned long long *)&txq->ready_index, index + 1);
}

/* Errors, of all of these: INVALID_VALUE for more bytes than the buffer has. */
DOCA_OF_gpu_dev_eth_txq_send_enqueue
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_eth_txq_send_enqueue_strong(
	struct doca_gpu_eth_txq *txq, const struct doca_gpu_buf *buf, uint32_t nbytes, uint32_t flags)
{
	if (nbytes > buf->size)
		return DOCA_ERROR_INVALID_VALUE;
	doca_priv_gpu_dev_eth_txq_enqueue(txq, 0, buf->addr, buf->key, nbytes, flags);
	return DOCA_SUCCESS;
}

/* What is enqueued behind it waits for the time. */
DOCA_OF_gpu_dev_eth_txq_send_enqueue
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_eth_txq_wait_time_enqueue_strong(
	struct doca_gpu_eth_txq *txq, uint64_t time_ns, uint32_t flags)
{
	if (time_ns)
		doca_priv_gpu_dev_eth_txq_enqueue(txq, time_ns, 0, 0, 0, flags);
	return DOCA_SUCCESS;
}

DOCA_OF_gpu_dev_eth_txq_send_enqueue
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_eth_txq_commit_strong(struct doca_gpu_eth_txq *txq)
{
	return DOCA_SUCCESS;
}

/* Gets the next position, and the mask of positions. */
DOCA_OF_gpu_dev_eth_txq_send_enqueue
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_eth_txq_get_info(struct doca_gpu_eth_txq *txq,
								 uint32_t *position, uint32_t *mask)
{
	*mask = 0xffff;
	*position = (uint32_t)doca_priv_gpu_dev_verbs_read(&txq->ready_index) & *mask;
	return DOCA_SUCCESS;
}

DOCA_GPUNETIO_DEVICE doca_error_t
doca_priv_gpu_dev_eth_txq_place(struct doca_gpu_eth_txq *txq, uint64_t time_ns, uint64_t addr,
				uint32_t key, uint64_t size, uint32_t position, uint32_t flags)
{
	const uint64_t next = doca_priv_gpu_dev_verbs_read(&txq->ready_index);
	const uint64_t index = next + (uint16_t)(position - (uint32_t)next);
	doca_gpu_dev_eth_txq_wqe_prepare_wait_send(
		txq, doca_gpu_dev_eth_txq_get_wqe_ptr(txq, index), index, time_ns, addr, key, size,
		(enum doca_gpu_eth_send_flags)flags);
	__threadfence_system(); /* the entry before the index */
	return DOCA_SUCCESS;
}

DOCA_OF_gpu_dev_eth_txq_send_enqueue
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_eth_txq_send_enqueue_weak(
	struct doca_gpu_eth_txq *txq, const struct doca_gpu_buf *buf, uint32_t nbytes,
	uint32_t position, uint32_t flags)
{
	if (nbytes > buf->size)
		return DOCA_ERROR_INVALID_VALUE;
	return doca_priv_gpu_dev_eth_txq_place(txq, 0, buf->addr, buf->key, nbytes, position, flags);
}

DOCA_OF_gpu_dev_eth_txq_send_enqueue
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_eth_txq_wait_time_enqueue_weak(
	struct doca_gpu_eth_txq *txq, uint64_t time_ns, uint32_t position, uint32_t flags)
{
	return doca_priv_gpu_dev_eth_txq_place(txq, time_ns ? time_ns : 1, 0, 0, 0, position, flags);
}

DOCA_OF_gpu_dev_eth_txq_send_enqueue
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_eth_txq_commit_weak(struct doca_gpu_eth_txq *txq,
								    uint32_t count)
{
	atomicAdd((unsigned long long *)&txq->ready_index, count);
	return DOCA_SUCCESS;
}

DOCA_OF_gpu_dev_eth_txq_send_enqueue
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_eth_txq_push(struct doca_gpu_eth_txq *txq)
{
	doca_gpu_dev_eth_txq_submit(txq, doca_priv_gpu_dev_eth_load_acquire(&txq->ready_index));
	return DOCA_SUCCESS;
}

DOCA_OF_gpu_dev_eth_txq_wait_completion
DOCA_GPUNETIO_DEVICE doca_error_t
doca_gpu_dev_eth_txq_wait_completion(struct doca_gpu_eth_txq *txq, uint32_t count,
				     enum doca_gpu_dev_eth_wait_flags flag, uint32_t *completed)
{
	return doca_gpu_dev_eth_txq_poll_completion(txq, count, flag, completed);
}

#endif
