// SPDX-License-Identifier: Apache-2.0
/*
 * Send queues. The reference of DOCA Ethernet 3.1 lists most errors; the others are guesses.
 */
#include <sched.h>
#include <stdlib.h>

#include "eth.h"

static doca_error_t fill_gpu_structure(struct doca_eth_txq *q)
{
	const struct doca_gpu_eth_txq device = {
		.entries = q->entries,
		.ring = (struct doca_gpu_dev_eth_txq_wqe *)q->eth.ring->addr,
		.words = (struct doca_gpu_dev_eth_txq_words *)q->eth.words->addr,
	};
	struct port_note *notes =
		q->notify.call ? calloc(q->entries, sizeof(struct port_note)) : NULL;
	if (q->notify.call && !notes)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a send queue's events");
	device.words->failed = UINT64_MAX;
	q->error.told = false;
	q->notify.told = 0;
	q->queue = (struct port_txq){
		.ring = device.ring,
		.words = device.words,
		.entries = q->entries,
		.l3_checksum = q->l3_checksum,
		.l4_checksum = q->l4_checksum,
		.may_wait = q->may_wait,
		.notes = notes,
	};
	return softdoca_gpu_fill(q->eth.structure, &device, sizeof device);
}

static void free_notes(struct doca_eth_txq *q)
{
	free(q->queue.notes);
	q->queue.notes = NULL;
}

static doca_error_t start(struct doca_ctx *ctx)
{
	struct doca_eth_txq *q = eth_txq_of(ctx);
	doca_error_t error = eth_open(ctx, sizeof(struct doca_gpu_eth_txq),
				      q->entries * sizeof(struct doca_gpu_dev_eth_txq_wqe),
				      sizeof(struct doca_gpu_dev_eth_txq_words), &q->eth);
	if (!error)
		error = fill_gpu_structure(q);
	if (error) {
		free_notes(q);
		eth_close(&q->eth);
		return error;
	}
	softdoca_port_add_txq(q->eth.port, &q->queue);
	return DOCA_SUCCESS;
}

static void txq_stopped(struct doca_ctx *ctx)
{
	struct doca_eth_txq *q = eth_txq_of(ctx);
	softdoca_port_remove_txq(q->eth.port, &q->queue);
	free_notes(q);
	eth_close(&q->eth);
}

/* ---- events ---- */

static bool tell_error(struct doca_eth_txq *q)
{
	if (!q->error.call || q->error.told ||
	    __atomic_load_n(&q->queue.words->failed, __ATOMIC_ACQUIRE) == UINT64_MAX)
		return false;
	struct doca_eth_txq_gpu_event_error_send_packet *event =
		softdoca_object_new(OBJECT_ETH_SEND_ERROR, sizeof *event);
	if (!event)
		return false;
	event->position = (uint16_t)q->queue.failed_at;
	q->error.told = true;
	q->error.call(event, q->error.data);
	softdoca_object_free(event);
	return true;
}

/* A completion with an error has no note: it is the last one. */
static uint64_t noted(const struct doca_eth_txq *q)
{
	const uint64_t end = __atomic_load_n(&q->queue.words->completions, __ATOMIC_ACQUIRE);
	const uint64_t failed = __atomic_load_n(&q->queue.words->failed, __ATOMIC_ACQUIRE);
	return end < failed ? end : failed;
}

/* A note that was overwritten before, or while, it was read is left out: the loads with acquire come before
 * that of the completions. */
static bool tell_completion(struct doca_eth_txq *q)
{
	struct doca_eth_txq_gpu_event_notify_send_packet *event = NULL;
	bool found = false;
	while (!found && q->notify.call && q->notify.told < noted(q)) {
		event = event ? event : softdoca_object_new(OBJECT_ETH_SEND_NOTE, sizeof *event);
		if (!event)
			return false;
		const uint64_t n = q->notify.told++;
		const struct port_note *note = &q->queue.notes[n & (q->entries - 1)];
		event->position = (uint16_t)__atomic_load_n(&note->index, __ATOMIC_ACQUIRE);
		event->timestamp_ns = __atomic_load_n(&note->time_ns, __ATOMIC_ACQUIRE);
		found = noted(q) - n < q->entries;
	}
	if (found)
		q->notify.call(event, q->notify.data);
	if (event)
		softdoca_object_free(event);
	return found;
}

static bool progress(struct doca_ctx *ctx)
{
	struct doca_eth_txq *q = eth_txq_of(ctx);
	return tell_completion(q) || tell_error(q);
}

const struct ctx_ops eth_txq_gpu = {
	.start = start,
	.ended = txq_stopped,
	.progress = progress,
};

doca_error_t doca_eth_txq_create(struct doca_dev *dev, uint32_t max_burst_size,
				 struct doca_eth_txq **eth_txq)
{
	CHECK_OBJECT(dev, OBJECT_DEV, "an open device");
	CHECK_OUT(eth_txq);
	if (!max_burst_size || max_burst_size > TXQ_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%u entries: the number must be 1 to %d",
			      max_burst_size, TXQ_MAX);
	struct doca_eth_txq *q = softdoca_object_new(OBJECT_ETH_TXQ, sizeof *q);
	if (!q)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a send queue");
	/* All threads of a block may send at once. */
	q->entries = power_of_two(max_burst_size < TXQ_MIN ? TXQ_MIN : max_burst_size);
	q->mss = 1500;
	q->max_headers = HEADERS_MAX;
	softdoca_ctx_init(&q->ctx, dev, &eth_txq_cpu);
	*eth_txq = q;
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_txq_destroy(struct doca_eth_txq *eth_txq)
{
	CHECK_TXQ(eth_txq);
	return softdoca_ctx_destroy(&eth_txq->ctx, DOCA_ERROR_BAD_STATE, softdoca_object_free,
				    eth_txq);
}

struct doca_ctx *doca_eth_txq_as_doca_ctx(struct doca_eth_txq *eth_txq)
{
	if (object_is(eth_txq, OBJECT_ETH_TXQ))
		return &eth_txq->ctx;
	softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__, "%p is not an Ethernet send queue",
		     (void *)eth_txq);
	return NULL;
}

/* ---- settings ---- */

doca_error_t doca_eth_txq_set_type(struct doca_eth_txq *eth_txq, enum doca_eth_txq_type type)
{
	CHECK_TXQ(eth_txq);
	CHECK_IDLE(eth_txq);
	if (type != DOCA_ETH_TXQ_TYPE_REGULAR)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "type %d: the known one is REGULAR, %d",
			      (int)type, DOCA_ETH_TXQ_TYPE_REGULAR);
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_txq_set_l3_chksum_offload(struct doca_eth_txq *eth_txq,
						uint8_t enable_l3_chksum_offload)
{
	CHECK_TXQ(eth_txq);
	return eth_set(&eth_txq->ctx, &eth_txq->l3_checksum, enable_l3_chksum_offload);
}

doca_error_t doca_eth_txq_set_l4_chksum_offload(struct doca_eth_txq *eth_txq,
						uint8_t enable_l4_chksum_offload)
{
	CHECK_TXQ(eth_txq);
	return eth_set(&eth_txq->ctx, &eth_txq->l4_checksum, enable_l4_chksum_offload);
}

doca_error_t doca_eth_txq_set_wait_on_time_offload(struct doca_eth_txq *eth_txq)
{
	CHECK_TXQ(eth_txq);
	return eth_set(&eth_txq->ctx, &eth_txq->may_wait, 1);
}

doca_error_t doca_eth_txq_gpu_set_uar_on_cpu(struct doca_eth_txq *eth_txq)
{
	CHECK_TXQ(eth_txq);
	return eth_set(&eth_txq->ctx, &eth_txq->proxy, 1);
}

doca_error_t doca_eth_txq_gpu_set_completion_on_gpu(struct doca_eth_txq *eth_txq)
{
	CHECK_TXQ(eth_txq);
	CHECK_IDLE(eth_txq);
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_txq_apply_queue_id(struct doca_eth_txq *eth_txq, uint16_t queue_id)
{
	CHECK_TXQ(eth_txq);
	CHECK_STARTED(eth_txq);
	softdoca_port_lock(eth_txq->eth.port);
	eth_txq->queue.number = queue_id;
	softdoca_port_unlock(eth_txq->eth.port);
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_txq_cap_get_max_burst_size(const struct doca_devinfo *devinfo,
						 uint32_t max_send_buf_list_len,
						 uint16_t max_lso_header_size,
						 uint32_t *max_burst_size)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a devinfo");
	if (max_send_buf_list_len > 1 || max_lso_header_size > HEADERS_MAX)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "lists of %u buffers, headers of %u bytes: a frame is a single buffer, "
			      "and headers have at most %d",
			      max_send_buf_list_len, max_lso_header_size, HEADERS_MAX);
	return SET_OUT(max_burst_size, TXQ_MAX);
}

doca_error_t doca_eth_txq_cap_get_max_lso_header_size(const struct doca_devinfo *devinfo,
						      uint16_t *max_lso_header_size)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a devinfo");
	return SET_OUT(max_lso_header_size, HEADERS_MAX);
}

doca_error_t doca_eth_txq_cap_is_type_supported(const struct doca_devinfo *devinfo,
						enum doca_eth_txq_type type,
						enum doca_eth_txq_data_path_type data_path_type)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a devinfo");
	if (type == DOCA_ETH_TXQ_TYPE_REGULAR && (unsigned)data_path_type <= DOCA_ETH_TXQ_DATA_PATH_TYPE_GPU)
		return DOCA_SUCCESS;
	return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "type %d on data path %d: the known type is REGULAR, %d",
		      (int)type, (int)data_path_type, DOCA_ETH_TXQ_TYPE_REGULAR);
}

doca_error_t doca_eth_txq_cap_get_wait_on_time_offload_supported(
	const struct doca_devinfo *devinfo, enum doca_eth_wait_on_time_type *wait_on_time_mode)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a devinfo");
	return SET_OUT(wait_on_time_mode, DOCA_ETH_WAIT_ON_TIME_TYPE_NATIVE);
}

/* ---- started queues ---- */

doca_error_t doca_eth_txq_calculate_timestamp(struct doca_eth_txq *eth_txq, uint64_t timestamp_ns,
					      uint64_t *wait_on_time_value)
{
	CHECK_TXQ(eth_txq);
	if (!eth_txq->may_wait)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "doca_eth_txq_set_wait_on_time_offload() was not called");
	return SET_OUT(wait_on_time_value, timestamp_ns);
}

doca_error_t doca_eth_txq_get_gpu_handle(const struct doca_eth_txq *eth_txq,
					 struct doca_gpu_eth_txq **gpu_txq)
{
	CHECK_TXQ(eth_txq);
	CHECK_STARTED(eth_txq);
	CHECK_ON_GPU(eth_txq);
	return SET_OUT(gpu_txq, (struct doca_gpu_eth_txq *)eth_txq->eth.structure->addr);
}

doca_error_t doca_eth_txq_gpu_cpu_proxy_progress(struct doca_eth_txq *eth_txq)
{
	CHECK_TXQ(eth_txq);
	if (!eth_txq->proxy)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "doca_eth_txq_gpu_set_uar_on_cpu() was not called");
	sched_yield();
	return DOCA_SUCCESS;
}

/* ---- settings of events ---- */

doca_error_t doca_eth_txq_gpu_event_error_send_packet_register(
	struct doca_eth_txq *eth_txq,
	doca_eth_txq_gpu_event_error_send_packet_cb_t event_error_send_packet_cb,
	union doca_data event_user_data)
{
	CHECK_TXQ(eth_txq);
	CHECK_IDLE(eth_txq);
	CHECK_OUT(event_error_send_packet_cb);
	eth_txq->error.call = event_error_send_packet_cb;
	eth_txq->error.data = event_user_data;
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_txq_gpu_event_notify_send_packet_register(
	struct doca_eth_txq *eth_txq,
	doca_eth_txq_gpu_event_notify_send_packet_cb_t event_notify_send_packet_cb,
	union doca_data event_user_data)
{
	CHECK_TXQ(eth_txq);
	CHECK_IDLE(eth_txq);
	CHECK_OUT(event_notify_send_packet_cb);
	eth_txq->notify.call = event_notify_send_packet_cb;
	eth_txq->notify.data = event_user_data;
	return DOCA_SUCCESS;
}

#define CHECK_ERROR(e) CHECK_OBJECT(e, OBJECT_ETH_SEND_ERROR, "an event of an error")
#define CHECK_NOTE(e)  CHECK_OBJECT(e, OBJECT_ETH_SEND_NOTE, "an event of a sent frame")

GETTER(doca_eth_txq_gpu_event_error_send_packet_get_position, CHECK_ERROR,
       const struct doca_eth_txq_gpu_event_error_send_packet, uint16_t, handle->position)

GETTER(doca_eth_txq_gpu_event_notify_send_packet_get_position, CHECK_NOTE,
       const struct doca_eth_txq_gpu_event_notify_send_packet, uint16_t, handle->position)

GETTER(doca_eth_txq_gpu_event_notify_send_packet_get_timestamp, CHECK_NOTE,
       const struct doca_eth_txq_gpu_event_notify_send_packet, uint64_t, handle->timestamp_ns)
