/* SPDX-License-Identifier: Apache-2.0 */
/* GPUNetIO Ethernet for device code: send queues. doca_gpu_dev_eth_txq_send() does all steps for any
 * number of threads. With the steps one by one, the program chooses the indices itself: it writes
 * entries, then submits the index behind the last one, and must not mix both ways in a queue. Keys are in
 * big-endian. */
#ifndef DOCA_GPUNETIO_DEV_ETH_TXQ_CUH
#define DOCA_GPUNETIO_DEV_ETH_TXQ_CUH

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

#endif
