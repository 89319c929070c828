/* SPDX-License-Identifier: Apache-2.0 */
/* Comch consumers and producers (doca_comch_consumer_get_gpu_handle(), doca_comch_producer_get_gpu_handle())
 * for device code. One thread at a time uses a consumer or a producer. Keys are those of
 * doca_gpu_dev_buf_get_mkey(). Of all functions AGAIN means: try again later; NOT_CONNECTED: the other
 * side or the context has ended. */
#ifndef DOCA_GPUNETIO_DEV_COMCH_CUH
#define DOCA_GPUNETIO_DEV_COMCH_CUH

#include <doca_gpunetio_dev_buf.cuh>
#include <doca_gpunetio_dev_verbs_common.cuh>

/* Whether a function waits until there is something: guess of the values. */
enum doca_gpu_comch_wait_flags {
	DOCA_GPU_COMCH_WAIT_FLAG_NB = 0,
	DOCA_GPU_COMCH_WAIT_FLAG_B = 1,
};

/* Returns the error that ended the queue; AGAIN as long as there is none. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_priv_comch_gpu_status(struct doca_priv_comch_gpu_queue *q)
{
	const uint32_t status = doca_priv_gpu_dev_verbs_load_acquire_sys(q->status);
	return status ? (doca_error_t)status : DOCA_ERROR_AGAIN;
}

/* Writes a request. AGAIN if the ring is full: each of its entries waits for an answer. */
DOCA_GPUNETIO_DEVICE doca_error_t
doca_priv_comch_gpu_request(struct doca_priv_comch_gpu_queue *q,
			    const struct doca_priv_comch_gpu_entry *request)
{
	struct doca_priv_comch_gpu_entry *to = q->requests + q->requested % q->entries;
	const doca_error_t status = doca_priv_comch_gpu_status(q);
	if (status != DOCA_ERROR_AGAIN || q->requested - q->answered >= q->entries)
		return status;
	uint64_t *words = (uint64_t *)to;
	for (unsigned int i = 0; i < offsetof(struct doca_priv_comch_gpu_entry, turn) / 8; i++)
		doca_priv_gpu_dev_verbs_write(&words[i], ((const uint64_t *)request)[i]);
	__threadfence_system();
	q->requested++;
	doca_priv_gpu_dev_verbs_write(&to->turn, (uint32_t)q->requested);
	return DOCA_SUCCESS;
}

/* Returns the next answer, NULL if there is none; *status says why. */
DOCA_GPUNETIO_DEVICE struct doca_priv_comch_gpu_entry *
doca_priv_comch_gpu_answer(struct doca_priv_comch_gpu_queue *q, enum doca_gpu_comch_wait_flags flag,
			   doca_error_t *status)
{
	struct doca_priv_comch_gpu_entry *from = q->answers + q->answered % q->entries;
	for (;;) {
		/* First, so that an answer that came before it is not missed. */
		*status = doca_priv_comch_gpu_status(q);
		if (doca_priv_gpu_dev_verbs_load_acquire_sys(&from->turn) ==
		    (uint32_t)(q->answered + 1)) {
			q->answered++;
			*status = (doca_error_t)from->status;
			return from;
		}
		if (*status != DOCA_ERROR_AGAIN || flag == DOCA_GPU_COMCH_WAIT_FLAG_NB)
			return NULL;
	}
}

/* Posts a receive of up to `size` bytes at `addr`, which are in the consumer's map. */
DOCA_GPUNETIO_DEVICE doca_error_t
doca_dev_gpu_comch_consumer_post_recv(struct doca_comch_gpu_consumer *consumer, uint32_t mkey,
				      uintptr_t addr, uint32_t size)
{
	struct doca_priv_comch_gpu_entry e = {};
	e.addr = addr;
	e.key = mkey;
	e.size = size;
	return doca_priv_comch_gpu_request(&consumer->q, &e);
}

/* Returns the next message: where it is, and its length. imm_data (room for 32 bytes) and imm_data_len
 * may be NULL. A receive that failed returns its error, with *mkey and *addr, so that it can be posted
 * again. */
DOCA_GPUNETIO_DEVICE doca_error_t
doca_dev_gpu_comch_consumer_recv_wait(struct doca_comch_gpu_consumer *consumer, uint32_t *mkey,
				      uintptr_t *addr, uint32_t *recv_len, uint8_t *imm_data,
				      uint32_t *imm_data_len, enum doca_gpu_comch_wait_flags flag)
{
	doca_error_t status;
	struct doca_priv_comch_gpu_entry *e =
		doca_priv_comch_gpu_answer(&consumer->q, flag, &status);
	if (!e)
		return status;
	*mkey = e->key;
	*addr = (uintptr_t)e->addr;
	*recv_len = e->size;
	for (uint32_t i = 0; imm_data && i < e->imm_len && i < sizeof e->imm; i++)
		imm_data[i] = e->imm[i];
	if (imm_data_len)
		*imm_data_len = e->imm_len;
	return status;
}

/* Sends `size` bytes at `addr`, of any map with a key, and up to 32 bytes of immediate data to a consumer
 * of the other side. Messages of a producer are sent in order, each as soon as its consumer has a receive.
 * doca_dev_gpu_comch_producer_poll() returns user_msg_id when the memory can be used again. Errors:
 * INVALID_VALUE for more immediate data. */
DOCA_GPUNETIO_DEVICE doca_error_t doca_dev_gpu_comch_producer_send(
	struct doca_comch_gpu_producer *producer, uint32_t mkey, uintptr_t addr, uint32_t size,
	const uint8_t *imm_data, uint32_t imm_data_len, uint32_t consumer_id, uint64_t user_msg_id)
{
	struct doca_priv_comch_gpu_entry e = {};
	if (imm_data_len > sizeof e.imm)
		return DOCA_ERROR_INVALID_VALUE;
	e.addr = addr;
	e.user = user_msg_id;
	e.key = mkey;
	e.size = size;
	e.peer = consumer_id;
	e.imm_len = imm_data_len;
	for (uint32_t i = 0; i < imm_data_len; i++)
		e.imm[i] = imm_data[i];
	return doca_priv_comch_gpu_request(&producer->q, &e);
}

/* Returns the next send that has ended, in the order of the sends: SUCCESS, or its error. */
DOCA_GPUNETIO_DEVICE doca_error_t
doca_dev_gpu_comch_producer_poll(struct doca_comch_gpu_producer *producer, uint64_t *user_msg_id,
				 enum doca_gpu_comch_wait_flags flag)
{
	doca_error_t status;
	struct doca_priv_comch_gpu_entry *e =
		doca_priv_comch_gpu_answer(&producer->q, flag, &status);
	if (e)
		*user_msg_id = e->user;
	return status;
}

#endif
