// SPDX-License-Identifier: Apache-2.0
/*
 * Receive queues. The reference of DOCA Ethernet 3.1 lists most errors; the others are guesses.
 */
#include "eth.h"

#include <stdlib.h>

#include "doca_gpunetio_dev.h"

/* The structure, and behind it the places of packets as buffers. */
static size_t structure_bytes(const struct doca_eth_rxq *q)
{
	return sizeof(struct doca_gpu_eth_rxq) + q->entries * sizeof(struct doca_gpu_buf);
}

static doca_error_t fill_gpu_structure(struct doca_eth_rxq *q)
{
	struct doca_gpu_eth_rxq *const device = calloc(1, structure_bytes(q));
	if (!device)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %llu packets", (unsigned long long)q->entries);
	struct doca_gpu_buf *const bufs = (struct doca_gpu_buf *)(device + 1);
	*device = (struct doca_gpu_eth_rxq){
		.entries = q->entries,
		.stride = eth_stride(q),
		.packets = (uint8_t *)q->packets,
		.ring = (struct doca_gpu_dev_eth_rxq_entry *)q->eth.ring->addr,
		.words = (struct doca_gpu_dev_eth_rxq_words *)q->eth.words->addr,
		.bufs = (struct doca_gpu_buf *)(q->eth.structure->addr + sizeof *device),
		.key = __builtin_bswap32(q->key),
	};
	for (uint64_t i = 0; i < q->entries; i++)
		bufs[i] = (struct doca_gpu_buf){
			.addr = (uintptr_t)device->packets + i * device->stride,
			.size = device->stride,
			.key = device->key,
		};
	q->queue = (struct port_rxq){
		.packets = device->packets,
		.ring = device->ring,
		.words = device->words,
		.entries = q->entries,
		.stride = device->stride,
		.largest = q->largest,
	};
	const doca_error_t error = softdoca_gpu_fill(q->eth.structure, device, structure_bytes(q));
	free(device);
	return error;
}

/* Keeps the memory for packets from being freed while the queue is started. */
static doca_error_t take_packets(struct doca_eth_rxq *q)
{
	const uint64_t size = q->entries * eth_stride(q);
	if (q->type != DOCA_ETH_RXQ_TYPE_CYCLIC)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "type %d: queues of a GPU have the type CYCLIC, %d",
			      (int)q->type, DOCA_ETH_RXQ_TYPE_CYCLIC);
	if (q->headroom || q->tailroom)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "packets of a CYCLIC queue have no room around them");
	if (!q->packets)
		return REFUSE(DOCA_ERROR_BAD_STATE,
			      "the queue has no memory for packets: call "
			      "doca_eth_rxq_set_pkt_buf()");
	q->packets_memory = softdoca_gpu_take(q->packets, size);
	if (!q->packets_memory)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "%llu bytes at %p are not memory of doca_gpu_mem_alloc()",
			      (unsigned long long)size, (void *)q->packets);
	doca_error_t error = softdoca_gpu_reach(q->packets_memory);
	if (error)
		softdoca_gpu_drop(q->packets_memory);
	return error;
}

static doca_error_t start(struct doca_ctx *ctx)
{
	struct doca_eth_rxq *q = eth_rxq_of(ctx);
	doca_error_t error = take_packets(q);
	if (error)
		return error;
	error = eth_open(ctx, structure_bytes(q),
			 q->entries * sizeof(struct doca_gpu_dev_eth_rxq_entry),
			 sizeof(struct doca_gpu_dev_eth_rxq_words), &q->eth);
	if (!error)
		error = fill_gpu_structure(q);
	if (error) {
		eth_close(&q->eth);
		softdoca_gpu_drop(q->packets_memory);
		return error;
	}
	softdoca_port_add_rxq(q->eth.port, &q->queue);
	return DOCA_SUCCESS;
}

static void rxq_stopped(struct doca_ctx *ctx)
{
	struct doca_eth_rxq *q = eth_rxq_of(ctx);
	softdoca_port_remove_rxq(q->eth.port, &q->queue);
	eth_close(&q->eth);
	softdoca_gpu_drop(q->packets_memory);
}

const struct ctx_ops eth_rxq_gpu = {
	.start = start,
	.ended = rxq_stopped,
	.progress = softdoca_ctx_no_event,
};

static doca_error_t check_sizes(uint32_t burst, uint32_t largest)
{
	if (burst && burst <= RXQ_MAX && largest >= FRAME_MIN && largest <= FRAME_MAX)
		return DOCA_SUCCESS;
	return REFUSE(DOCA_ERROR_INVALID_VALUE,
		      "%u packets of %u bytes: the number must be 1 to %d, the size %d to %d", burst,
		      largest, RXQ_MAX, FRAME_MIN, FRAME_MAX);
}

doca_error_t doca_eth_rxq_create(struct doca_dev *dev, uint32_t max_burst_size,
				 uint32_t max_packet_size, struct doca_eth_rxq **eth_rxq)
{
	CHECK_OBJECT(dev, OBJECT_DEV, "an open device");
	CHECK_OUT(eth_rxq);
	TRY(check_sizes(max_burst_size, max_packet_size));
	struct doca_eth_rxq *q = softdoca_object_new(OBJECT_ETH_RXQ, sizeof *q);
	if (!q)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a receive queue");
	q->entries = power_of_two(max_burst_size);
	q->largest = max_packet_size;
	q->type = DOCA_ETH_RXQ_TYPE_CYCLIC;
	softdoca_ctx_init(&q->ctx, dev, &eth_rxq_cpu);
	*eth_rxq = q;
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_rxq_destroy(struct doca_eth_rxq *eth_rxq)
{
	CHECK_RXQ(eth_rxq);
	TRY(eth_rxq->ctx.state == DOCA_CTX_STATE_IDLE ? eth_rxq_close_pool(eth_rxq)
								       : DOCA_SUCCESS);
	return softdoca_ctx_destroy(&eth_rxq->ctx, DOCA_ERROR_BAD_STATE, softdoca_object_free,
				    eth_rxq);
}

struct doca_ctx *doca_eth_rxq_as_doca_ctx(struct doca_eth_rxq *eth_rxq)
{
	if (object_is(eth_rxq, OBJECT_ETH_RXQ))
		return &eth_rxq->ctx;
	softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__, "%p is not an Ethernet receive queue",
		     (void *)eth_rxq);
	return NULL;
}

static doca_error_t check_type(enum doca_eth_rxq_type type)
{
	if ((unsigned)type <= DOCA_ETH_RXQ_TYPE_MANAGED_MEMPOOL)
		return DOCA_SUCCESS;
	return REFUSE(DOCA_ERROR_INVALID_VALUE, "type %d: the known ones are 0 to %d", (int)type,
		      DOCA_ETH_RXQ_TYPE_MANAGED_MEMPOOL);
}

doca_error_t doca_eth_rxq_set_type(struct doca_eth_rxq *eth_rxq, enum doca_eth_rxq_type type)
{
	CHECK_RXQ(eth_rxq);
	CHECK_IDLE(eth_rxq);
	doca_error_t error = check_type(type);
	if (!error)
		eth_rxq->type = type;
	return error;
}

doca_error_t doca_eth_rxq_cap_get_max_burst_size(const struct doca_devinfo *devinfo,
						 uint32_t *max_burst_size)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a devinfo");
	return SET_OUT(max_burst_size, RXQ_MAX);
}

doca_error_t doca_eth_rxq_cap_get_max_packet_size(const struct doca_devinfo *devinfo,
						  uint32_t *max_packet_size)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a devinfo");
	return SET_OUT(max_packet_size, FRAME_MAX);
}

doca_error_t doca_eth_rxq_cap_is_type_supported(const struct doca_devinfo *devinfo,
						enum doca_eth_rxq_type type,
						enum doca_eth_rxq_data_path_type data_path_type)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a devinfo");
	TRY(check_type(type));
	if (data_path_type == (type == DOCA_ETH_RXQ_TYPE_CYCLIC ? DOCA_ETH_RXQ_DATA_PATH_TYPE_GPU
								: DOCA_ETH_RXQ_DATA_PATH_TYPE_CPU))
		return DOCA_SUCCESS;
	return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
		      "type %d on data path %d: CYCLIC is for a GPU, the others are for the CPU", (int)type,
		      (int)data_path_type);
}

doca_error_t doca_eth_rxq_estimate_packet_buf_size(enum doca_eth_rxq_type type, uint32_t rate,
						   uint32_t packet_max_process_time,
						   uint32_t max_packet_size, uint32_t max_burst_size,
						   uint8_t log_max_lro_pkt_sz, uint16_t head_size,
						   uint16_t tail_size, uint32_t *buf_size)
{
	const struct doca_eth_rxq like = {
		.largest = max_packet_size, .headroom = head_size, .tailroom = tail_size};
	CHECK_OUT(buf_size);
	(void)rate;
	(void)packet_max_process_time;
	(void)log_max_lro_pkt_sz;
	doca_error_t error = check_type(type);
	if (!error)
		error = check_sizes(max_burst_size, max_packet_size);
	if (error)
		return error;
	if (type == DOCA_ETH_RXQ_TYPE_REGULAR ||
	    (type == DOCA_ETH_RXQ_TYPE_CYCLIC && (head_size || tail_size)))
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "type %d with head %u and tail %u: a REGULAR queue has no memory of its own, "
			      "packets of a CYCLIC one no room around them",
			      (int)type, head_size, tail_size);
	const uint64_t size = power_of_two(max_burst_size) * eth_stride(&like);
	if (size > UINT32_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%u packets of %u bytes exceed 4 GiB",
			      max_burst_size, max_packet_size);
	*buf_size = (uint32_t)size;
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_rxq_set_pkt_buf(struct doca_eth_rxq *eth_rxq, struct doca_mmap *mmap,
				      uint32_t mmap_offset, uint32_t mmap_len)
{
	CHECK_RXQ(eth_rxq);
	CHECK_OBJECT(mmap, OBJECT_MMAP, "a memory map");
	CHECK_IDLE(eth_rxq);
	const uint64_t needed = eth_rxq->entries * eth_stride(eth_rxq);
	if (!softdoca_mmap_attachment(mmap, eth_rxq->ctx.dev))
		return REFUSE(DOCA_ERROR_BAD_STATE,
			      "the map is not started, or it lacks the queue's device");
	if ((uint64_t)mmap_offset + mmap_len > mmap->len || mmap_len < needed)
		return REFUSE(DOCA_ERROR_TOO_BIG,
			      "%u bytes at %u of a map of %zu bytes: the queue needs %llu bytes, as "
			      "doca_eth_rxq_estimate_packet_buf_size() says",
			      mmap_len, mmap_offset, mmap->len, (unsigned long long)needed);
	if (!mmap->writable)
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "the map's permissions are %#x: read only",
			      mmap->permissions);
	TRY(softdoca_mmap_frame_key(mmap, eth_rxq->ctx.dev, &eth_rxq->key));
	eth_rxq->map = mmap;
	eth_rxq->packets = mmap->addr + mmap_offset;
	eth_rxq->packets_size = mmap_len;
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_rxq_apply_queue_id(struct doca_eth_rxq *eth_rxq, uint16_t queue_id)
{
	CHECK_RXQ(eth_rxq);
	CHECK_STARTED(eth_rxq);
	if (queue_id >= PORT_QUEUES)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "queue number %u exceeds %d", queue_id,
			      PORT_QUEUES - 1);
	if (!softdoca_port_number_rxq(eth_rxq->eth.port, &eth_rxq->queue, queue_id))
		return REFUSE(DOCA_ERROR_ALREADY_EXIST, "another queue has the number %u", queue_id);
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_rxq_get_flow_queue_id(struct doca_eth_rxq *eth_rxq, uint16_t *flow_queue_id)
{
	CHECK_RXQ(eth_rxq);
	CHECK_OUT(flow_queue_id);
	CHECK_STARTED(eth_rxq);
	struct port_rxq *queue = &eth_rxq->queue;
	for (int number = 0; queue->number < 0 && number < PORT_QUEUES; number++)
		softdoca_port_number_rxq(eth_rxq->eth.port, queue, number);
	if (queue->number < 0)
		return REFUSE(DOCA_ERROR_FULL, "the device's %d queue numbers are taken", PORT_QUEUES);
	*flow_queue_id = (uint16_t)queue->number;
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_rxq_get_gpu_handle(const struct doca_eth_rxq *eth_rxq,
					 struct doca_gpu_eth_rxq **gpu_rxq)
{
	CHECK_RXQ(eth_rxq);
	CHECK_STARTED(eth_rxq);
	CHECK_ON_GPU(eth_rxq);
	return SET_OUT(gpu_rxq, (struct doca_gpu_eth_rxq *)eth_rxq->eth.structure->addr);
}

doca_error_t doca_eth_rxq_gpu_enable_mcst_qp(struct doca_eth_rxq *eth_rxq)
{
	CHECK_RXQ(eth_rxq);
	CHECK_IDLE(eth_rxq);
	return DOCA_SUCCESS;
}
