// SPDX-License-Identifier: Apache-2.0
/*
 * The data path of receive queues on the CPU: the port's thread puts frames into the places that are posted, of
 * tasks (REGULAR) or of buffers of a pool in the program's memory (MANAGED_MEMPOOL).
 * The reference of DOCA Ethernet 3.1 lists most errors; the others are guesses.
 */
#include <endian.h>
#include <stdlib.h>

#include "doca_buf_pool.h"
#include "eth.h"

#define CHECK_RECEIVE(t) CHECK_OBJECT(t, OBJECT_ETH_RECEIVE, "a receive task")
#define CHECK_EVENT(e)	 CHECK_OBJECT(e, OBJECT_ETH_EVENT, "an event")
#define CHECK_EVENTS(e)	 CHECK_OBJECT(e, OBJECT_ETH_EVENTS, "a batch of events")

OWNER(receive_of, struct doca_eth_rxq_task_recv, struct doca_task, task)

/* ---- places ---- */

static void post(struct doca_eth_rxq *q, void *owner, const struct doca_buf *b, size_t skip, size_t room)
{
	const uint64_t at = q->posted_n & (q->queue.entries - 1);
	const struct doca_mmap *m = b->mmap;
	q->posted[at] = owner;
	q->queue.places[at] = (struct port_place){
		.at = (uint8_t *)m->base + (b->data - m->addr) + skip,
		.room = room < q->largest ? room : q->largest,
	};
	q->posted_n++;
	__atomic_store_n(&q->queue.words->released, q->posted_n - q->queue.entries, __ATOMIC_RELEASE);
}

/* Posts the buffers that the program has returned. */
static void refill(struct doca_eth_rxq *q)
{
	uint32_t n = 0;
	struct doca_buf *b;
	if (!q->pool || q->removed || doca_buf_pool_get_num_free_elements(q->pool, &n))
		return;
	while (n-- && !doca_buf_pool_buf_alloc(q->pool, &b))
		post(q, b, b, q->headroom, q->largest);
}

doca_error_t eth_rxq_close_pool(struct doca_eth_rxq *q)
{
	doca_error_t error = q->pool ? doca_buf_pool_stop(q->pool) : DOCA_SUCCESS;
	if (error || !q->pool)
		return error;
	doca_buf_pool_destroy(q->pool);
	q->pool = NULL;
	return DOCA_SUCCESS;
}

static doca_error_t check_map(const struct doca_mmap *m)
{
	if (!object_is(m, OBJECT_MMAP) || m->state != MMAP_STARTED)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the map is not started");
	if (m->backing != BACKING_HOST || !m->base)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "the map's memory is not that of the host");
	if (!m->writable)
		return REFUSE(DOCA_ERROR_NOT_PERMITTED, "the map's permissions are %#x: read only",
			      m->permissions);
	return DOCA_SUCCESS;
}

static doca_error_t open_pool(struct doca_eth_rxq *q)
{
	doca_error_t error = eth_rxq_close_pool(q);
	if (error)
		return error;
	if (!q->packets || q->entries * eth_stride(q) > q->packets_size)
		return REFUSE(DOCA_ERROR_BAD_STATE,
			      "the queue needs %llu bytes for packets, and has %u: call "
			      "doca_eth_rxq_set_pkt_buf()",
			      (unsigned long long)(q->entries * eth_stride(q)),
			      q->packets ? q->packets_size : 0);
	error = check_map(q->map);
	if (!error)
		error = doca_buf_pool_create(q->entries, eth_stride(q), q->map, &q->pool);
	if (error)
		return error;
	softdoca_buf_pool_begin_at(q->pool, (size_t)(q->packets - q->map->addr));
	error = doca_buf_pool_start(q->pool);
	if (error)
		eth_rxq_close_pool(q);
	return error;
}

/* ---- start and end ---- */

/* Checks the settings, and stores how many places there are. */
static doca_error_t prepare(struct doca_eth_rxq *q, uint64_t *entries)
{
	*entries = q->entries;
	if (q->type == DOCA_ETH_RXQ_TYPE_CYCLIC)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "a CYCLIC queue has its data path on a GPU: call doca_ctx_set_datapath_on_gpu(), "
			      "or doca_eth_rxq_set_type()");
	if (q->type == DOCA_ETH_RXQ_TYPE_MANAGED_MEMPOOL && !q->event.done && !q->batch.done)
		return REFUSE(DOCA_ERROR_BAD_STATE, "no callback for events is registered");
	if (q->type == DOCA_ETH_RXQ_TYPE_MANAGED_MEMPOOL)
		return open_pool(q);
	if (!q->recv.n)
		return REFUSE(DOCA_ERROR_BAD_STATE,
			      "the queue has no tasks: call doca_eth_rxq_task_recv_set_conf()");
	*entries = power_of_two(q->recv.n > q->entries ? q->recv.n : q->entries);
	return DOCA_SUCCESS;
}

static void free_places(struct doca_eth_rxq *q)
{
	free(q->queue.places);
	free(q->posted);
	q->posted = NULL;
	eth_close(&q->eth);
}

static doca_error_t start(struct doca_ctx *ctx)
{
	struct doca_eth_rxq *q = eth_rxq_of(ctx);
	uint64_t n;
	doca_error_t error = prepare(q, &n);
	if (error)
		return error;
	const size_t ring = n * sizeof(struct doca_gpu_dev_eth_rxq_entry);
	error = eth_open_host(ctx, (ring + ALIGN - 1) / ALIGN * ALIGN,
			      sizeof(struct doca_gpu_dev_eth_rxq_words), &q->eth);
	if (error)
		return error;
	q->queue = (struct port_rxq){
		.places = calloc(n, sizeof(struct port_place)),
		.ring = q->eth.host,
		.words = (void *)((char *)q->eth.host + (ring + ALIGN - 1) / ALIGN * ALIGN),
		.entries = n,
		.largest = q->largest,
	};
	q->posted = calloc(n, sizeof(void *));
	if (!q->queue.places || !q->posted) {
		free_places(q);
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %llu places", (unsigned long long)n);
	}
	q->queue.words->released = -n; /* none is posted */
	q->posted_n = q->taken = 0;
	q->removed = q->told = false;
	refill(q);
	softdoca_port_add_rxq(q->eth.port, &q->queue);
	return DOCA_SUCCESS;
}

/* What was not received ends with an error. Events that were not delivered are lost. */
static void stop(struct doca_ctx *ctx)
{
	struct doca_eth_rxq *q = eth_rxq_of(ctx);
	softdoca_port_remove_rxq(q->eth.port, &q->queue);
	q->removed = true;
	for (; q->pool && q->taken != q->posted_n; q->taken++)
		doca_buf_dec_refcount(q->posted[q->taken & (q->queue.entries - 1)], NULL);
}

static void ended(struct doca_ctx *ctx)
{
	free_places(eth_rxq_of(ctx));
}

/* ---- progress ---- */

/* Returns how many received frames can be delivered. `taken` exceeds the number received once tasks
 * were flushed or a pool was stopped. */
static uint64_t ready(const struct doca_eth_rxq *q)
{
	const uint64_t end = __atomic_load_n(&q->queue.words->producer, __ATOMIC_ACQUIRE);
	return end > q->taken ? end - q->taken : 0;
}

static bool failed(const struct doca_eth_rxq *q)
{
	return __atomic_load_n(&q->queue.words->failed, __ATOMIC_ACQUIRE);
}

/* Takes the next frame that is there. Returns what it was posted for. */
static void *take(struct doca_eth_rxq *q, struct eth_received *r)
{
	const uint64_t at = q->taken++ & (q->queue.entries - 1);
	const struct doca_gpu_dev_eth_rxq_entry *e = &q->queue.ring[at];
	const struct port_place *place = &q->queue.places[at];
	*r = (struct eth_received){.time_ns = e->timestamp_ns,
				   .bytes = e->bytes,
				   .hash = place->hash,
				   .meta = be32toh(place->meta),
				   .mark = be32toh(place->mark)};
	return q->posted[at];
}

static struct doca_buf *take_packet(struct doca_eth_rxq *q, struct eth_received *r)
{
	struct doca_buf *b = take(q, r);
	b->data = b->head + q->headroom;
	b->data_len = r->bytes;
	b->len = q->headroom + (size_t)r->bytes + q->tailroom;
	return b;
}

static bool progress_regular(struct doca_eth_rxq *q)
{
	struct eth_received r = {0};
	const bool over = failed(q); /* first, so that frames from before the failure are delivered */
	const bool received = ready(q);
	if (!received && (!over || q->taken == q->posted_n))
		return false;
	struct doca_eth_rxq_task_recv *t =
		received ? take(q, &r) : q->posted[q->taken++ & (q->queue.entries - 1)];
	t->received = r;
	if (received)
		t->pkt->data_len = r.bytes;
	if (softdoca_task_landed(&t->task, received ? DOCA_SUCCESS : FLUSHED))
		(received ? q->recv.done : q->recv.failed)(t, t->task.user_data, q->ctx.user_data);
	return true;
}

/* Without memory for the event, its frame waits. */
static bool deliver_one(struct doca_eth_rxq *q)
{
	struct doca_eth_rxq_event_managed_recv *event =
		softdoca_object_new(OBJECT_ETH_EVENT, sizeof *event);
	if (!event)
		return false;
	event->queue = q;
	struct doca_buf *b = take_packet(q, &event->received);
	q->event.done(event, b, q->event.data);
	softdoca_object_free(event);
	return true;
}

static struct doca_eth_rxq_event_batch_managed_recv *new_batch(struct doca_eth_rxq *q, uint16_t n)
{
	struct doca_eth_rxq_event_batch_managed_recv *batch =
		softdoca_object_new(OBJECT_ETH_EVENTS, sizeof *batch + n * (2 * 8 + 3 * 4));
	if (!batch)
		return NULL;
	batch->queue = q;
	batch->n = n;
	batch->times = (uint64_t *)(batch->packets + n);
	batch->meta = (uint32_t *)(batch->times + n);
	batch->mark = batch->meta + n;
	batch->hash = batch->mark + n;
	return batch;
}

/* Without memory for the batch, its frames wait. */
static bool deliver_batch(struct doca_eth_rxq *q, uint16_t n)
{
	struct doca_eth_rxq_event_batch_managed_recv *batch = new_batch(q, n);
	if (!batch)
		return false;
	for (uint16_t i = 0; i < n; i++) {
		struct eth_received r;
		batch->packets[i] = take_packet(q, &r);
		batch->times[i] = r.time_ns;
		batch->meta[i] = r.meta;
		batch->mark[i] = r.mark;
		batch->hash[i] = r.hash;
	}
	q->batch.done(batch, n, q->batch.data, DOCA_SUCCESS, batch->packets);
	return true;
}

static bool tell_event_error(struct doca_eth_rxq *q)
{
	struct doca_eth_rxq_event_managed_recv *event =
		softdoca_object_new(OBJECT_ETH_EVENT, sizeof *event);
	if (!event)
		return false;
	event->queue = q;
	event->status = FLUSHED;
	q->told = true;
	q->event.failed(event, NULL, q->event.data);
	softdoca_object_free(event);
	return true;
}

/* The program may free the batch, or not. */
static bool tell_batch_error(struct doca_eth_rxq *q)
{
	struct doca_eth_rxq_event_batch_managed_recv *batch = new_batch(q, 0);
	if (!batch)
		return false;
	q->told = true;
	q->batch.failed(batch, 0, q->batch.data, FLUSHED, NULL);
	if (object_is(batch, OBJECT_ETH_EVENTS))
		softdoca_object_free(batch);
	return true;
}

static bool deliver_error(struct doca_eth_rxq *q)
{
	if (q->told || q->removed || !failed(q) || ready(q))
		return false;
	return q->event.failed ? tell_event_error(q) : tell_batch_error(q);
}

/* A queue that has failed delivers its last frames even if they are fewer than a batch. */
static bool enough(const struct doca_eth_rxq *q, uint64_t n)
{
	return n && (q->event.done || n >= q->batch.min || failed(q));
}

static bool progress(struct doca_ctx *ctx)
{
	struct doca_eth_rxq *q = eth_rxq_of(ctx);
	if (!q->pool)
		return progress_regular(q);
	refill(q);
	const uint64_t n = ready(q);
	if (!enough(q, n))
		return deliver_error(q);
	if (q->batch.done)
		return deliver_batch(q, (uint16_t)(n < q->batch.max ? n : q->batch.max));
	return deliver_one(q);
}

/* ---- tasks ---- */

static doca_error_t submit(struct doca_task *task, uint32_t flags)
{
	struct doca_eth_rxq *q = eth_rxq_of(task->ctx);
	struct doca_eth_rxq_task_recv *t = receive_of(task);
	const struct doca_buf *b = t->pkt;
	(void)flags;
	TRY(eth_check_single(b));
	if (check_map(b->mmap))
		return DOCA_ERROR_INVALID_VALUE;
	post(q, t, b, 0, (size_t)(b->head + b->len - b->data));
	return DOCA_SUCCESS;
}

static void free_task(struct doca_task *task)
{
	eth_rxq_of(task->ctx)->recv.used--;
	object_become(task, OBJECT_FREE);
	softdoca_object_free(receive_of(task));
}

static bool arm(struct doca_ctx *ctx)
{
	const struct doca_eth_rxq *q = eth_rxq_of(ctx);
	softdoca_ctx_wake_after(ctx, ETH_WAKE_NS);
	return q->pool ? enough(q, ready(q)) : ready(q) || (failed(q) && q->taken != q->posted_n);
}

const struct ctx_ops eth_rxq_cpu = {
	.start = start,
	.stop = stop,
	.ended = ended,
	.submit = submit,
	.progress = progress,
	.arm = arm,
	.free_task = free_task,
	.on_gpu = &eth_rxq_gpu,
	.timed = true,
};

doca_error_t doca_eth_rxq_task_recv_set_conf(
	struct doca_eth_rxq *eth_rxq, doca_eth_rxq_task_recv_completion_cb_t success_completion_cb,
	doca_eth_rxq_task_recv_completion_cb_t error_completion_cb, uint32_t num_task_recv)
{
	CHECK_RXQ(eth_rxq);
	TRY(softdoca_tasks_check(&eth_rxq->ctx, success_completion_cb && error_completion_cb, num_task_recv,
				 RXQ_MAX, __func__));
	eth_rxq->recv.n = num_task_recv;
	eth_rxq->recv.done = success_completion_cb;
	eth_rxq->recv.failed = error_completion_cb;
	return DOCA_SUCCESS;
}

static doca_error_t new_task(struct doca_eth_rxq *q, struct doca_buf *pkt, union doca_data data,
			     struct doca_eth_rxq_task_recv **out)
{
	if (q->ctx.state != DOCA_CTX_STATE_RUNNING || q->ctx.gpu || q->type != DOCA_ETH_RXQ_TYPE_REGULAR)
		return REFUSE(DOCA_ERROR_BAD_STATE,
			      "the context is not running, or its queue is not REGULAR on the CPU");
	struct doca_eth_rxq_task_recv *t =
		q->recv.used < q->recv.n ? softdoca_object_new(OBJECT_ETH_RECEIVE, sizeof *t) : NULL;
	if (!t)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "all %u tasks are allocated", q->recv.n);
	q->recv.used++;
	t->pkt = pkt;
	softdoca_task_init(&t->task, &q->ctx, data);
	*out = t;
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_rxq_task_recv_allocate_init(struct doca_eth_rxq *eth_rxq, struct doca_buf *pkt,
						  union doca_data user_data,
						  struct doca_eth_rxq_task_recv **task_recv)
{
	CHECK_RXQ(eth_rxq);
	CHECK_OBJECT(pkt, OBJECT_BUF, "a buffer");
	CHECK_OUT(task_recv);
	RETURN_INSIDE(eth_rxq->ctx.pe, new_task(eth_rxq, pkt, user_data, task_recv));
}

struct doca_task *doca_eth_rxq_task_recv_as_doca_task(struct doca_eth_rxq_task_recv *task_recv)
{
	if (object_is(task_recv, OBJECT_ETH_RECEIVE))
		return &task_recv->task;
	softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__, "%p is not a receive task", (void *)task_recv);
	return NULL;
}

doca_error_t doca_eth_rxq_task_recv_set_pkt(struct doca_eth_rxq_task_recv *task_recv,
					    struct doca_buf *pkt)
{
	CHECK_RECEIVE(task_recv);
	CHECK_OBJECT(pkt, OBJECT_BUF, "a buffer");
	if (task_recv->task.in_flight)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the task is in flight");
	task_recv->pkt = pkt;
	return DOCA_SUCCESS;
}

GETTER(doca_eth_rxq_task_recv_get_pkt, CHECK_RECEIVE, const struct doca_eth_rxq_task_recv,
       struct doca_buf *, handle->pkt)

/* ---- numbers of a frame ---- */

/* Defines a function that stores a number of a frame, or those of a batch, if the queue was configured
 * to report it. `check` is one of the task or event; `queue` and `value` are expressions of `frame`. */
#define FRAME_GETTER(function, check, object, queue, asked, set, type, out, value)    \
	doca_error_t function(const object *frame, type *out)                         \
	{                                                                             \
		check(frame);                                                         \
		if (!(queue)->asked)                                                  \
			return REFUSE(DOCA_ERROR_BAD_STATE, set "() was not called"); \
		return SET_OUT(out, value);                                           \
	}
#define TASK_GETTER(name, ...)                                                            \
	FRAME_GETTER(doca_eth_rxq_task_recv_get_##name, CHECK_RECEIVE,                    \
		     struct doca_eth_rxq_task_recv, eth_rxq_of(frame->task.ctx), __VA_ARGS__)
#define EVENT_GETTER(name, ...)                                          \
	FRAME_GETTER(doca_eth_rxq_event_managed_recv_get_##name, CHECK_EVENT, \
		     struct doca_eth_rxq_event_managed_recv, frame->queue, __VA_ARGS__)
#define BATCH_GETTER(name, ...)                                                \
	FRAME_GETTER(doca_eth_rxq_event_batch_managed_recv_get_##name, CHECK_EVENTS, \
		     struct doca_eth_rxq_event_batch_managed_recv, frame->queue, __VA_ARGS__)
#define METADATA metadata, "doca_eth_rxq_set_metadata_num", const uint32_t *, metadata_array
#define FLOW_TAG flow_tag, "doca_eth_rxq_set_flow_tag"
#define HASH	 hash, "doca_eth_rxq_set_rx_hash"
#define TIME	 timestamp, "doca_eth_rxq_set_timestamp"

TASK_GETTER(metadata_array, METADATA, &frame->received.meta)
TASK_GETTER(flow_tag, FLOW_TAG, uint32_t, flow_tag, frame->received.mark)
TASK_GETTER(rx_hash, HASH, uint32_t, rx_hash, frame->received.hash)
TASK_GETTER(timestamp, TIME, uint64_t, timestamp, frame->received.time_ns)
EVENT_GETTER(metadata_array, METADATA, &frame->received.meta)
EVENT_GETTER(flow_tag, FLOW_TAG, uint32_t, flow_tag, frame->received.mark)
EVENT_GETTER(rx_hash, HASH, uint32_t, rx_hash, frame->received.hash)
EVENT_GETTER(timestamp, TIME, uint64_t, timestamp, frame->received.time_ns)
BATCH_GETTER(metadata_array, METADATA, frame->meta)
BATCH_GETTER(flow_tag_array, FLOW_TAG, const uint32_t *, flow_tag_array, frame->mark)
BATCH_GETTER(rx_hash_array, HASH, const uint32_t *, rx_hash_array, frame->hash)
BATCH_GETTER(timestamp_array, TIME, const uint64_t *, timestamp_array, frame->times)

doca_error_t doca_eth_rxq_event_managed_recv_get_status(
	const struct doca_eth_rxq_event_managed_recv *event_managed_recv)
{
	CHECK_EVENT(event_managed_recv);
	return event_managed_recv->status;
}

uint32_t doca_eth_rxq_event_batch_managed_recv_metadata_array_get_metadata(
	const uint32_t *metadata_array, uint8_t metadata_num, uint16_t packet_index,
	uint8_t metadata_index)
{
	return metadata_array ? metadata_array[(size_t)packet_index * metadata_num + metadata_index] : 0;
}

struct doca_ctx *doca_eth_rxq_event_batch_managed_recv_get_ctx(
	const struct doca_eth_rxq_event_batch_managed_recv *event_batch_managed_recv)
{
	if (event_batch_managed_recv)
		return &event_batch_managed_recv->queue->ctx;
	softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__, "the batch is NULL");
	return NULL;
}

void doca_eth_rxq_event_batch_managed_recv_pkt_array_free(struct doca_buf **pkt_array)
{
	struct doca_eth_rxq_event_batch_managed_recv *batch =
		(void *)((uintptr_t)pkt_array -
			 offsetof(struct doca_eth_rxq_event_batch_managed_recv, packets));
	if (!object_is(batch, OBJECT_ETH_EVENTS)) {
		softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__, "%p is not an array of packets",
			     (void *)pkt_array);
		return;
	}
	for (uint16_t i = 0; i < batch->n; i++)
		if (object_is(batch->packets[i], OBJECT_BUF))
			doca_buf_dec_refcount(batch->packets[i], NULL);
	softdoca_object_free(batch);
}

/* ---- settings ---- */

/* Defines a setting of a queue that is idle: whether, or how many of, numbers of a frame are reported. */
#define REPORT_SETTER(name, member)                                                        \
	doca_error_t doca_eth_rxq_set_##name(struct doca_eth_rxq *eth_rxq, uint8_t member) \
	{                                                                                  \
		CHECK_RXQ(eth_rxq);                                                        \
		return eth_set(&eth_rxq->ctx, &eth_rxq->member, member);                   \
	}
REPORT_SETTER(metadata_num, metadata)
REPORT_SETTER(flow_tag, flow_tag)
REPORT_SETTER(rx_hash, hash)
REPORT_SETTER(timestamp, timestamp)

doca_error_t doca_eth_rxq_set_packet_headroom(struct doca_eth_rxq *eth_rxq, uint16_t headroom_size)
{
	CHECK_RXQ(eth_rxq);
	CHECK_IDLE(eth_rxq);
	eth_rxq->headroom = headroom_size;
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_rxq_set_packet_tailroom(struct doca_eth_rxq *eth_rxq, uint16_t tailroom_size)
{
	CHECK_RXQ(eth_rxq);
	CHECK_IDLE(eth_rxq);
	eth_rxq->tailroom = tailroom_size;
	return DOCA_SUCCESS;
}

static doca_error_t may_register(const struct doca_eth_rxq *q, bool callbacks)
{
	if (!callbacks)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "a callback is NULL");
	if (q->event.done || q->batch.done)
		return REFUSE(DOCA_ERROR_ALREADY_EXIST, "callbacks for events are registered");
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_rxq_event_managed_recv_register(
	struct doca_eth_rxq *eth_rxq, union doca_data event_user_data,
	doca_eth_rxq_event_managed_recv_handler_cb_t success_event_cb,
	doca_eth_rxq_event_managed_recv_handler_cb_t error_event_cb)
{
	CHECK_RXQ(eth_rxq);
	CHECK_IDLE(eth_rxq);
	TRY(may_register(eth_rxq, success_event_cb && error_event_cb));
	eth_rxq->event.done = success_event_cb;
	eth_rxq->event.failed = error_event_cb;
	eth_rxq->event.data = event_user_data;
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_rxq_event_batch_managed_recv_register(
	struct doca_eth_rxq *eth_rxq, enum doca_event_batch_events_number events_number_max,
	enum doca_event_batch_events_number events_number_min, union doca_data event_batch_user_data,
	doca_eth_rxq_event_batch_managed_recv_handler_cb_t success_event_batch_handler,
	doca_eth_rxq_event_batch_managed_recv_handler_cb_t error_event_batch_handler)
{
	CHECK_RXQ(eth_rxq);
	CHECK_IDLE(eth_rxq);
	TRY(may_register(eth_rxq, success_event_batch_handler && error_event_batch_handler));
	if ((unsigned)events_number_max > DOCA_EVENT_BATCH_EVENTS_NUMBER_128 ||
	    events_number_min > events_number_max || 1u << events_number_min > eth_rxq->entries)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "numbers %d to %d of events: they must be 0 to %d, and a queue of %u packets "
			      "must hold the minimum",
			      (int)events_number_min, (int)events_number_max,
			      DOCA_EVENT_BATCH_EVENTS_NUMBER_128, eth_rxq->entries);
	eth_rxq->batch.done = success_event_batch_handler;
	eth_rxq->batch.failed = error_event_batch_handler;
	eth_rxq->batch.data = event_batch_user_data;
	eth_rxq->batch.max = 1u << events_number_max;
	eth_rxq->batch.min = 1u << events_number_min;
	return DOCA_SUCCESS;
}
