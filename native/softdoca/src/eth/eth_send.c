// SPDX-License-Identifier: Apache-2.0
/*
 * The data path of send queues on the CPU: tasks become entries of the ring that the port's thread executes,
 * as those of kernels. The reference of DOCA Ethernet 3.1 lists most errors; the others are guesses.
 */
#include <stdlib.h>

#include "eth.h"

static struct eth_send *send_of(struct doca_task *task)
{
	return (struct eth_send *)((char *)task - offsetof(struct eth_send, batch.task));
}

/* ---- start and end ---- */

/* The ring has a place for each task that can be in flight. */
static doca_error_t count_entries(struct doca_eth_txq *q, uint64_t *entries)
{
	const uint64_t tasks = q->single.n + (uint64_t)q->batch.n * q->batch.tasks;
	if (!tasks)
		return REFUSE(DOCA_ERROR_BAD_STATE,
			      "a queue of the CPU needs tasks: call doca_eth_txq_task_send_set_conf() or "
			      "doca_eth_txq_task_batch_send_set_conf()");
	if (tasks > TXQ_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%llu tasks, with those of batches, exceed %d",
			      (unsigned long long)tasks, TXQ_MAX);
	*entries = power_of_two(tasks > q->entries ? (uint32_t)tasks : q->entries);
	return DOCA_SUCCESS;
}

static doca_error_t start(struct doca_ctx *ctx)
{
	struct doca_eth_txq *q = eth_txq_of(ctx);
	uint64_t n;
	doca_error_t error = count_entries(q, &n);
	if (error)
		return error;
	const size_t ring = n * sizeof(struct doca_gpu_dev_eth_txq_wqe);
	error = eth_open_host(ctx, ring, sizeof(struct doca_gpu_dev_eth_txq_words), &q->eth);
	if (error)
		return error;
	q->queue = (struct port_txq){
		.ring = q->eth.host,
		.words = (void *)((char *)q->eth.host + ring),
		.entries = n,
		.l3_checksum = q->l3_checksum,
		.l4_checksum = q->l4_checksum,
		.refused = calloc(n, sizeof(bool)),
	};
	if (!q->queue.refused) {
		eth_close(&q->eth);
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %llu entries", (unsigned long long)n);
	}
	q->queue.words->failed = UINT64_MAX;
	q->submitted = 0;
	q->removed = false;
	softdoca_port_add_txq(q->eth.port, &q->queue);
	return DOCA_SUCCESS;
}

/* What was not sent yet ends with an error. */
static void stop(struct doca_ctx *ctx)
{
	struct doca_eth_txq *q = eth_txq_of(ctx);
	softdoca_port_remove_txq(q->eth.port, &q->queue);
	q->removed = true;
}

static void ended(struct doca_ctx *ctx)
{
	struct doca_eth_txq *q = eth_txq_of(ctx);
	free(q->queue.refused);
	eth_close(&q->eth);
}

/* ---- tasks ---- */

static doca_error_t check_frame(const struct doca_eth_txq *q, const struct doca_buf *b, uint32_t *key)
{
	doca_error_t error = eth_check_single(b);
	if (error)
		return error;
	if (b->data_len < FRAME_MIN || b->data_len > FRAME_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "a frame of %zu bytes: it has %d to %d", b->data_len,
			      FRAME_MIN, FRAME_MAX);
	return softdoca_mmap_frame_key(b->mmap, q->ctx.dev, key) ? DOCA_ERROR_INVALID_VALUE : DOCA_SUCCESS;
}

/* Writes the entries of all frames before the port's thread sees the first. */
static doca_error_t submit(struct doca_task *task, uint32_t flags)
{
	struct doca_eth_txq *q = eth_txq_of(task->ctx);
	struct eth_send *s = send_of(task);
	(void)flags;
	for (uint16_t i = 0; i < s->n; i++) {
		uint32_t key, index = (uint32_t)(q->submitted + i);
		doca_error_t error = check_frame(q, s->frames[i], &key);
		if (error)
			return error;
		q->queue.ring[index & (q->queue.entries - 1)] = (struct doca_gpu_dev_eth_txq_wqe){
			.addr = (uintptr_t)s->frames[i]->data,
			.size = (uint32_t)s->frames[i]->data_len,
			.key = __builtin_bswap32(key),
			.index = index,
		};
	}
	s->first = q->submitted;
	s->next = NULL;
	*(q->first ? &q->last->next : &q->first) = s;
	q->last = s;
	q->submitted += s->n;
	__atomic_store_n(&q->queue.words->producer, q->submitted, __ATOMIC_RELEASE);
	return DOCA_SUCCESS;
}

static bool is_done(const struct doca_eth_txq *q, const struct eth_send *s)
{
	return s && __atomic_load_n(&q->queue.words->done, __ATOMIC_ACQUIRE) >= s->first + s->n;
}

/* Stores the results of all frames, and returns the first error. */
static doca_error_t find_results(const struct doca_eth_txq *q, struct eth_send *s)
{
	const bool failed = __atomic_load_n(&q->queue.words->failed, __ATOMIC_ACQUIRE) != UINT64_MAX;
	const uint64_t end = failed ? q->queue.failed_at : UINT64_MAX;
	doca_error_t first = DOCA_SUCCESS;
	for (uint16_t i = 0; i < s->n; i++) {
		const uint64_t at = s->first + i;
		const bool sent = at < end && !q->queue.refused[at & (q->queue.entries - 1)];
		s->results[i] = sent ? DOCA_SUCCESS : FLUSHED;
		if (!sent)
			first = FLUSHED;
	}
	return first;
}

static void tell(struct doca_eth_txq *q, struct eth_send *s, doca_error_t error)
{
	const union doca_data of_ctx = q->ctx.user_data, data = s->batch.task.user_data;
	if (object_is(s, OBJECT_TASK_BATCH))
		(error ? q->batch.failed : q->batch.done)(&s->batch, s->n, of_ctx, data, s->data, s->frames,
							  s->results);
	else
		(error ? q->single.failed : q->single.done)((struct doca_eth_txq_task_send *)s, data, of_ctx);
}

static bool progress(struct doca_ctx *ctx)
{
	struct doca_eth_txq *q = eth_txq_of(ctx);
	struct eth_send *s = q->first;
	if (!is_done(q, s))
		return false;
	const doca_error_t error = find_results(q, s);
	q->first = s->next;
	if (softdoca_task_landed(&s->batch.task, error))
		tell(q, s, error);
	return true;
}

static void free_task(struct doca_task *task)
{
	struct doca_eth_txq *q = eth_txq_of(task->ctx);
	struct eth_send *s = send_of(task);
	--*(object_is(s, OBJECT_TASK_BATCH) ? &q->batch.used : &q->single.used);
	object_become(task, OBJECT_FREE);
	softdoca_object_free(s);
}

static int fileno_of(struct doca_ctx *ctx)
{
	return eth_txq_of(ctx)->eth.timer;
}

static bool arm(struct doca_ctx *ctx)
{
	const struct doca_eth_txq *q = eth_txq_of(ctx);
	eth_wait(&q->eth);
	return is_done(q, q->first);
}

static void disarm(struct doca_ctx *ctx)
{
	eth_wait_no_more(&eth_txq_of(ctx)->eth);
}

const struct ctx_ops eth_txq_cpu = {
	.start = start,
	.stop = stop,
	.quiet = eth_quiet,
	.ended = ended,
	.submit = submit,
	.progress = progress,
	.fileno = fileno_of,
	.arm = arm,
	.disarm = disarm,
	.free_task = free_task,
	.on_gpu = &eth_txq_gpu,
};

/* ---- allocation ---- */

static doca_error_t new_task(struct doca_eth_txq *q, enum object_kind kind, uint16_t n,
			     union doca_data data, struct eth_send **out)
{
	uint32_t *used = kind == OBJECT_TASK_BATCH ? &q->batch.used : &q->single.used;
	const uint32_t all = kind == OBJECT_TASK_BATCH ? q->batch.n : q->single.n;
	const size_t per_frame =
		sizeof(struct doca_buf *) + sizeof(union doca_data) + sizeof(doca_error_t);
	if (q->ctx.state != DOCA_CTX_STATE_RUNNING || q->ctx.gpu)
		return REFUSE(DOCA_ERROR_BAD_STATE, q->ctx.gpu ? "kernels post this context's operations"
							       : "the context is not running");
	struct eth_send *s =
		*used < all ? softdoca_object_new(kind, sizeof *s + n * per_frame) : NULL;
	if (!s)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "all %u of this type are allocated", all);
	++*used;
	s->n = n;
	s->data = (union doca_data *)(s->frames + n);
	s->results = (doca_error_t *)(s->data + n);
	softdoca_task_init(&s->batch.task, &q->ctx, data);
	*out = s;
	return DOCA_SUCCESS;
}

static doca_error_t allocate(struct doca_eth_txq *q, enum object_kind kind, uint16_t n,
			     union doca_data data, struct eth_send **out)
{
	RETURN_INSIDE(q->ctx.pe, new_task(q, kind, n, data, out));
}

doca_error_t doca_eth_txq_task_send_set_conf(
	struct doca_eth_txq *eth_txq, doca_eth_txq_task_send_completion_cb_t success_completion_cb,
	doca_eth_txq_task_send_completion_cb_t error_completion_cb, uint32_t num_tasks)
{
	CHECK_TXQ(eth_txq);
	doca_error_t error = eth_check_conf(&eth_txq->ctx, success_completion_cb && error_completion_cb,
					    num_tasks, TXQ_MAX);
	if (error)
		return error;
	eth_txq->single.n = num_tasks;
	eth_txq->single.done = success_completion_cb;
	eth_txq->single.failed = error_completion_cb;
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_txq_task_send_allocate_init(struct doca_eth_txq *eth_txq, struct doca_buf *pkt,
						  union doca_data user_data,
						  struct doca_eth_txq_task_send **task_send)
{
	struct eth_send *s;
	CHECK_TXQ(eth_txq);
	CHECK_OBJECT(pkt, OBJECT_BUF, "a buffer");
	CHECK_OUT(task_send);
	doca_error_t error = allocate(eth_txq, OBJECT_ETH_SEND, 1, user_data, &s);
	if (error)
		return error;
	s->frames[0] = pkt;
	*task_send = (struct doca_eth_txq_task_send *)s;
	return DOCA_SUCCESS;
}

struct doca_task *doca_eth_txq_task_send_as_doca_task(struct doca_eth_txq_task_send *task_send)
{
	if (object_is(task_send, OBJECT_ETH_SEND))
		return &((struct eth_send *)task_send)->batch.task;
	softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__, "%p is not a send task", (void *)task_send);
	return NULL;
}

doca_error_t doca_eth_txq_task_send_set_pkt(struct doca_eth_txq_task_send *task_send,
					    struct doca_buf *pkt)
{
	CHECK_OBJECT(task_send, OBJECT_ETH_SEND, "a send task");
	CHECK_OBJECT(pkt, OBJECT_BUF, "a buffer");
	if (((struct eth_send *)task_send)->batch.task.in_flight)
		return REFUSE(DOCA_ERROR_BAD_STATE, "the task is in flight");
	((struct eth_send *)task_send)->frames[0] = pkt;
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_txq_task_send_get_pkt(const struct doca_eth_txq_task_send *task_send,
					    struct doca_buf **pkt)
{
	CHECK_OBJECT(task_send, OBJECT_ETH_SEND, "a send task");
	return SET_OUT(pkt, ((const struct eth_send *)task_send)->frames[0]);
}

doca_error_t doca_eth_txq_task_batch_send_set_conf(
	struct doca_eth_txq *eth_txq, enum doca_task_batch_max_tasks_number max_tasks_number,
	uint16_t num_task_batches,
	doca_eth_txq_task_batch_send_completion_cb_t success_task_batch_completion_cb,
	doca_eth_txq_task_batch_send_completion_cb_t error_task_batch_completion_cb)
{
	CHECK_TXQ(eth_txq);
	if ((unsigned)max_tasks_number > DOCA_TASK_BATCH_MAX_TASKS_NUMBER_128)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "number %d of tasks: the known ones are 0 to %d",
			      (int)max_tasks_number, DOCA_TASK_BATCH_MAX_TASKS_NUMBER_128);
	const uint32_t tasks = 16u << max_tasks_number;
	doca_error_t error = eth_check_conf(
		&eth_txq->ctx, success_task_batch_completion_cb && error_task_batch_completion_cb,
		num_task_batches * tasks, TXQ_MAX);
	if (error)
		return error;
	eth_txq->batch.n = num_task_batches;
	eth_txq->batch.tasks = tasks;
	eth_txq->batch.done = success_task_batch_completion_cb;
	eth_txq->batch.failed = error_task_batch_completion_cb;
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_txq_task_batch_send_allocate(struct doca_eth_txq *eth_txq, uint16_t tasks_num,
						   union doca_data task_batch_user_data,
						   struct doca_buf ***pkt_array,
						   union doca_data **task_user_data_array,
						   struct doca_task_batch **task_batch)
{
	struct eth_send *s;
	CHECK_TXQ(eth_txq);
	CHECK_OUT(pkt_array);
	CHECK_OUT(task_user_data_array);
	CHECK_OUT(task_batch);
	if (!tasks_num || tasks_num > eth_txq->batch.tasks)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%u tasks: a batch of the queue has 1 to %u",
			      tasks_num, eth_txq->batch.tasks);
	doca_error_t error =
		allocate(eth_txq, OBJECT_TASK_BATCH, tasks_num, task_batch_user_data, &s);
	if (error)
		return error;
	*pkt_array = s->frames;
	*task_user_data_array = s->data;
	*task_batch = &s->batch;
	return DOCA_SUCCESS;
}

/* ---- large frames ---- */

#define NO_LSO(q)                                                                               \
	do {                                                                                    \
		CHECK_TXQ(q);                                                                   \
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "large frames (LSO) are not segmented"); \
	} while (0)

doca_error_t doca_eth_txq_set_mss(struct doca_eth_txq *eth_txq, uint16_t mss)
{
	(void)mss;
	NO_LSO(eth_txq);
}

doca_error_t doca_eth_txq_set_max_lso_header_size(struct doca_eth_txq *eth_txq,
						  uint16_t max_lso_header_size)
{
	(void)max_lso_header_size;
	NO_LSO(eth_txq);
}

doca_error_t doca_eth_txq_task_lso_send_set_conf(
	struct doca_eth_txq *eth_txq, doca_eth_txq_task_lso_send_completion_cb_t success_completion_cb,
	doca_eth_txq_task_lso_send_completion_cb_t error_completion_cb, uint32_t num_tasks)
{
	(void)success_completion_cb;
	(void)error_completion_cb;
	(void)num_tasks;
	NO_LSO(eth_txq);
}

doca_error_t doca_eth_txq_task_lso_send_allocate_init(struct doca_eth_txq *eth_txq,
						      struct doca_buf *pkt_payload,
						      struct doca_gather_list *headers,
						      union doca_data user_data,
						      struct doca_eth_txq_task_lso_send **task_lso_send)
{
	(void)pkt_payload;
	(void)headers;
	(void)user_data;
	(void)task_lso_send;
	NO_LSO(eth_txq);
}

struct doca_task *
doca_eth_txq_task_lso_send_as_doca_task(struct doca_eth_txq_task_lso_send *task_lso_send)
{
	softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__, "%p is not a task", (void *)task_lso_send);
	return NULL;
}

doca_error_t
doca_eth_txq_task_lso_send_get_pkt_payload(const struct doca_eth_txq_task_lso_send *task_lso_send,
					   struct doca_buf **pkt_payload)
{
	(void)pkt_payload;
	return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a task", (const void *)task_lso_send);
}

doca_error_t doca_eth_txq_task_batch_lso_send_set_conf(
	struct doca_eth_txq *eth_txq, enum doca_task_batch_max_tasks_number max_tasks_number,
	uint16_t num_task_batches,
	doca_eth_txq_task_batch_lso_send_completion_cb_t success_task_batch_completion_cb,
	doca_eth_txq_task_batch_lso_send_completion_cb_t error_task_batch_completion_cb)
{
	(void)max_tasks_number;
	(void)num_task_batches;
	(void)success_task_batch_completion_cb;
	(void)error_task_batch_completion_cb;
	NO_LSO(eth_txq);
}

doca_error_t doca_eth_txq_task_batch_lso_send_allocate(struct doca_eth_txq *eth_txq, uint16_t tasks_num,
						       union doca_data task_batch_user_data,
						       struct doca_buf ***pkt_payload_array,
						       struct doca_gather_list ***headers_array,
						       union doca_data **task_user_data_array,
						       struct doca_task_batch **task_batch)
{
	(void)tasks_num;
	(void)task_batch_user_data;
	(void)pkt_payload_array;
	(void)headers_array;
	(void)task_user_data_array;
	(void)task_batch;
	NO_LSO(eth_txq);
}
