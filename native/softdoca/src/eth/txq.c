// SPDX-License-Identifier: Apache-2.0
/*
 * Send queues. No public source documents the errors of these functions for a GPU's data path: they are
 * guesses.
 */
#include <sched.h>

#include "eth.h"

static struct doca_eth_txq *txq_of(struct doca_ctx *ctx)
{
	return (struct doca_eth_txq *)((char *)ctx - offsetof(struct doca_eth_txq, ctx));
}

static doca_error_t fill(struct doca_eth_txq *q)
{
	const struct doca_gpu_eth_txq device = {
		.entries = q->entries,
		.ring = (struct doca_gpu_dev_eth_txq_wqe *)q->memory.ring->addr,
		.words = (struct doca_gpu_dev_eth_txq_words *)q->memory.words->addr,
	};
	device.words->failed = UINT64_MAX;
	q->queue = (struct port_txq){
		.ring = device.ring,
		.words = device.words,
		.entries = q->entries,
		.l3_checksum = q->l3_checksum,
		.l4_checksum = q->l4_checksum,
		.may_wait = q->may_wait,
	};
	return softdoca_gpu_fill(q->memory.structure, &device, sizeof device);
}

static doca_error_t start(struct doca_ctx *ctx)
{
	struct doca_eth_txq *q = txq_of(ctx);
	doca_error_t error = softdoca_port_take(ctx->dev, &q->port);
	if (error)
		return error;
	error = eth_allocate(ctx->gpu, sizeof(struct doca_gpu_eth_txq),
			     q->entries * sizeof(struct doca_gpu_dev_eth_txq_wqe),
			     sizeof(struct doca_gpu_dev_eth_txq_words), &q->memory);
	if (!error)
		error = fill(q);
	if (error) {
		eth_release(&q->memory);
		softdoca_port_drop(q->port);
		return error;
	}
	softdoca_port_add_txq(q->port, &q->queue);
	return DOCA_SUCCESS;
}

static void ended(struct doca_ctx *ctx)
{
	struct doca_eth_txq *q = txq_of(ctx);
	softdoca_port_remove_txq(q->port, &q->queue);
	eth_release(&q->memory);
	softdoca_port_drop(q->port);
}

static const struct ctx_ops on_gpu = {
	.start = start,
	.stop = eth_nothing,
	.quiet = eth_quiet,
	.ended = ended,
	.progress = eth_no_event,
	.fileno = eth_fileno,
	.arm = eth_no_event,
	.disarm = eth_nothing,
};

static const struct ctx_ops on_cpu = {.start = eth_no_cpu_path, .on_gpu = &on_gpu};

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
	softdoca_ctx_init(&q->ctx, dev, &on_cpu);
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

static doca_error_t set(struct doca_eth_txq *q, bool *setting, uint8_t value)
{
	CHECK_IDLE(q);
	if (value > 1)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the value is %u, not 0 or 1", value);
	*setting = value;
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_txq_set_l3_chksum_offload(struct doca_eth_txq *eth_txq,
						uint8_t enable_l3_chksum_offload)
{
	CHECK_TXQ(eth_txq);
	return set(eth_txq, &eth_txq->l3_checksum, enable_l3_chksum_offload);
}

doca_error_t doca_eth_txq_set_l4_chksum_offload(struct doca_eth_txq *eth_txq,
						uint8_t enable_l4_chksum_offload)
{
	CHECK_TXQ(eth_txq);
	return set(eth_txq, &eth_txq->l4_checksum, enable_l4_chksum_offload);
}

doca_error_t doca_eth_txq_set_wait_on_time_offload(struct doca_eth_txq *eth_txq)
{
	CHECK_TXQ(eth_txq);
	return set(eth_txq, &eth_txq->may_wait, 1);
}

doca_error_t doca_eth_txq_gpu_set_uar_on_cpu(struct doca_eth_txq *eth_txq)
{
	CHECK_TXQ(eth_txq);
	return set(eth_txq, &eth_txq->proxy, 1);
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
	(void)queue_id;
	return DOCA_SUCCESS;
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
	return SET_OUT(gpu_txq, (struct doca_gpu_eth_txq *)eth_txq->memory.structure->addr);
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
