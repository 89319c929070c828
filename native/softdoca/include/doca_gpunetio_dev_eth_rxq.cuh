/* SPDX-License-Identifier: Apache-2.0 */
/* GPUNetIO Ethernet for device code: receive queues. */
#ifndef DOCA_GPUNETIO_DEV_ETH_RXQ_CUH
#define DOCA_GPUNETIO_DEV_ETH_RXQ_CUH

#include <doca_gpunetio_dev_buf.cuh>
#include <doca_gpunetio_dev_eth_common.cuh>

/* Returns the address of a received packet. */
DOCA_GPUNETIO_DEVICE uint64_t doca_gpu_dev_eth_rxq_get_pkt_addr(struct doca_gpu_eth_rxq *rxq,
								uint64_t index)
{
	return (uint64_t)rxq->packets + (index & (rxq->entries - 1)) * rxq->stride;
}

/* Returns the key of the packets' memory, in big-endian, as entries of send queues have it. */
DOCA_GPUNETIO_DEVICE uint32_t doca_gpu_dev_eth_rxq_get_pkt_mkey(struct doca_gpu_eth_rxq *rxq)
{
	return rxq->key;
}

/* Lets the NIC write to the places of all packets that were taken before. */
DOCA_GPUNETIO_DEVICE void doca_priv_gpu_dev_eth_rxq_release(struct doca_gpu_eth_rxq *rxq)
{
	const uint64_t taken = doca_priv_gpu_dev_verbs_read(&rxq->next);
	if (atomicMax((unsigned long long *)&rxq->released, taken) >= taken)
		return;
	__threadfence_system(); /* the packets were read before */
	atomicMax_system((unsigned long long *)&rxq->words->released, taken);
}

/* Takes up to `most` packets (0: all that are there), waiting up to timeout_ns for the first. Returns their number. */
DOCA_GPUNETIO_DEVICE uint32_t doca_priv_gpu_dev_eth_rxq_take(struct doca_gpu_eth_rxq *rxq,
							     uint32_t most, uint64_t timeout_ns,
							     uint64_t *first, bool *failed)
{
	const uint64_t start = doca_priv_gpu_dev_eth_now_ns();
	unsigned long long *next = (unsigned long long *)&rxq->next;
	for (;;) {
		const uint64_t end = doca_priv_gpu_dev_eth_load_acquire(&rxq->words->producer);
		*first = doca_priv_gpu_dev_verbs_read(&rxq->next);
		const uint64_t there = end > *first ? end - *first : 0;
		const uint32_t count = (uint32_t)(most && most < there ? most : there);
		if (count && atomicCAS(next, *first, *first + count) == *first)
			return count;
		*failed = doca_priv_gpu_dev_verbs_read(&rxq->words->failed) != 0;
		if (!count && (*failed || doca_priv_gpu_dev_eth_now_ns() - start >= timeout_ns))
			return 0;
	}
}

#if DOCA_FORM_gpu_dev_eth_rxq_recv
typedef bool doca_priv_gpu_dev_eth_rx_attr;
#else
typedef enum doca_gpu_dev_eth_rx_attr doca_priv_gpu_dev_eth_rx_attr;
#endif

/* Receives up to `most` packets together, or with 0 all that are there. All threads of the scope call it, with the same arguments. It
 * returns when there is a packet, with *count 0 after timeout_ns without one, or with IO_FAILED if the
 * queue ended. attr[] must be memory that all these threads share; packet *first + i is described by
 * attr[i]. The packets stay in place until a thread calls this function again, and after that until the
 * queue has received as many as it has places. */
template <enum doca_gpu_dev_eth_exec_scope scope = DOCA_GPUNETIO_ETH_EXEC_SCOPE_THREAD,
	  enum doca_gpu_dev_eth_mcst_mode mcst = DOCA_GPUNETIO_ETH_MCST_AUTO,
	  enum doca_gpu_dev_eth_nic_handler handler = DOCA_GPUNETIO_ETH_NIC_HANDLER_AUTO,
	  doca_priv_gpu_dev_eth_rx_attr attributes = (doca_priv_gpu_dev_eth_rx_attr)0>
DOCA_GPUNETIO_DEVICE doca_error_t
doca_gpu_dev_eth_rxq_recv(struct doca_gpu_eth_rxq *rxq, uint32_t most, uint64_t timeout_ns,
			  uint64_t *first, uint32_t *count, struct doca_gpu_dev_eth_rxq_attr *attr)
{
	const int wanted = DOCA_FORM_gpu_dev_eth_rxq_recv && attributes ? DOCA_GPUNETIO_ETH_RX_ATTR_ALL
									: (int)attributes;
	const uint32_t rank = doca_priv_gpu_dev_eth_rank<scope>();
	uint64_t from = 0, got = 0;
	bool failed = false;
	doca_priv_gpu_dev_eth_sync<scope>(); /* all threads have read the packets before */
	if (rank == 0) {
		doca_priv_gpu_dev_eth_rxq_release(rxq);
		got = doca_priv_gpu_dev_eth_rxq_take(rxq, most, timeout_ns, &from, &failed);
		got |= (uint64_t)failed << 32;
	}
	from = doca_priv_gpu_dev_eth_from_first<scope>(from);
	got = doca_priv_gpu_dev_eth_from_first<scope>(got);
	doca_priv_gpu_dev_verbs_write(first, from);
	doca_priv_gpu_dev_verbs_write(count, (uint32_t)got);
	for (uint32_t i = rank; i < (uint32_t)got;
	     i += doca_priv_gpu_dev_eth_threads<scope>()) {
		const struct doca_gpu_dev_eth_rxq_entry e =
			rxq->ring[(from + i) & (rxq->entries - 1)];
		if (wanted & DOCA_GPUNETIO_ETH_RX_ATTR_BYTES)
			attr[i].bytes = e.bytes;
		if (wanted & DOCA_GPUNETIO_ETH_RX_ATTR_TIMESTAMP)
			attr[i].timestamp_ns = e.timestamp_ns;
	}
	doca_priv_gpu_dev_eth_sync<scope>();
	return got >> 32 ? DOCA_ERROR_IO_FAILED : DOCA_SUCCESS;
}

/* ---- up to DOCA 3.1 ----
 * As doca_gpu_dev_eth_rxq_recv(), by the threads of one scope. */

#define DOCA_PRIV_RXQ_RECEIVE(name, scope)                                                            \
	DOCA_OF_gpu_dev_eth_rxq_receive DOCA_GPUNETIO_DEVICE doca_error_t                             \
		doca_gpu_dev_eth_rxq_receive_##name(struct doca_gpu_eth_rxq *rxq, uint32_t most,      \
						    uint64_t timeout_ns, uint32_t *count,             \
						    uint64_t *first)                                  \
	{                                                                                             \
		return doca_gpu_dev_eth_rxq_recv<DOCA_GPUNETIO_ETH_EXEC_SCOPE_##scope>(               \
			rxq, most, timeout_ns, first, count, NULL);                                   \
	}
DOCA_PRIV_RXQ_RECEIVE(thread, THREAD)
DOCA_PRIV_RXQ_RECEIVE(warp, WARP)
DOCA_PRIV_RXQ_RECEIVE(block, BLOCK)
#undef DOCA_PRIV_RXQ_RECEIVE

/* Gets the place of a received packet, with the size of a place. */
DOCA_OF_gpu_dev_eth_rxq_get_buf
DOCA_GPUNETIO_DEVICE doca_error_t doca_gpu_dev_eth_rxq_get_buf(struct doca_gpu_eth_rxq *rxq,
								uint64_t index,
								struct doca_gpu_buf **buf)
{
	*buf = rxq->bufs + (index & (rxq->entries - 1));
	return DOCA_SUCCESS;
}

#endif
