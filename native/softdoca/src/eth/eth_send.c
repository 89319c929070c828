// SPDX-License-Identifier: Apache-2.0
/*
 * The data path of send queues on the CPU: tasks become entries of the ring that the port's thread executes,
 * as those of kernels. The reference of DOCA Ethernet 3.1 lists most errors; the others are guesses.
 */
#include <stdlib.h>

#include "eth.h"

OWNER(send_of, struct eth_send, struct doca_task, batch.task)

/* ---- start and end ---- */

/* The ring has a place for each task that can be in flight; how many frames a large one is, is not known yet. */
static doca_error_t count_entries(struct doca_eth_txq *q, uint64_t *entries)
{
	uint64_t tasks = 0;
	bool is_large = false;
	for (int i = 0; i < TASK_TYPES; i++) {
		tasks += (uint64_t)q->tasks[i].n * q->tasks[i].tasks;
		is_large |= q->tasks[i].n && q->tasks[i].is_large;
	}
	if (!tasks)
		return REFUSE(DOCA_ERROR_BAD_STATE,
			      "a queue of the CPU needs tasks: call doca_eth_txq_task_send_set_conf() or "
			      "another ..._send_set_conf()");
	if (tasks > TXQ_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%llu tasks, with those of batches, exceed %d",
			      (unsigned long long)tasks, TXQ_MAX);
	*entries = is_large ? TXQ_MAX : power_of_two(tasks > q->entries ? (uint32_t)tasks : q->entries);
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
		.on_cpu = true,
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

static void txq_stopped(struct doca_ctx *ctx)
{
	struct doca_eth_txq *q = eth_txq_of(ctx);
	free(q->queue.refused);
	eth_close(&q->eth);
}

/* ---- tasks ---- */

static doca_error_t check_frame(const struct doca_eth_txq *q, const struct doca_buf *b, uint32_t *key)
{
	TRY(eth_check_single(b));
	if (b->data_len < FRAME_MIN || b->data_len > FRAME_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "a frame of %zu bytes: it has %d to %d", b->data_len,
			      FRAME_MIN, FRAME_MAX);
	return softdoca_mmap_frame_key(b->mmap, q->ctx.dev, key) ? DOCA_ERROR_INVALID_VALUE : DOCA_SUCCESS;
}

void eth_post(struct doca_eth_txq *q, uint64_t index, const void *frame, size_t size, uint32_t key)
{
	q->queue.ring[index & (q->queue.entries - 1)] = (struct doca_gpu_dev_eth_txq_wqe){
		.addr = (uintptr_t)frame,
		.size = (uint32_t)size,
		.key = __builtin_bswap32(key),
		.index = (uint32_t)index,
	};
}

doca_error_t eth_check_room(const struct doca_eth_txq *q, uint64_t frames)
{
	const uint64_t oldest = q->first ? q->first->first : q->submitted;
	/* A queue that failed takes all, which then fail, too. */
	return q->submitted + frames - oldest <= q->queue.entries || q->queue.words->failed != UINT64_MAX
		       ? DOCA_SUCCESS
		       : REFUSE(DOCA_ERROR_AGAIN, "the queue has no places for %llu frames now",
				(unsigned long long)frames);
}

static doca_error_t post(struct doca_eth_txq *q, struct eth_send *s)
{
	doca_error_t room = eth_check_room(q, s->n);
	if (room)
		return room;
	for (uint16_t i = 0; i < s->n; i++) {
		uint32_t key;
		doca_error_t error = check_frame(q, s->frames[i], &key);
		if (error)
			return error;
		eth_post(q, q->submitted + i, s->frames[i]->data, s->frames[i]->data_len, key);
		s->ends[i] = q->submitted + i + 1;
	}
	return DOCA_SUCCESS;
}

/* Writes the entries of all frames before the port's thread sees the first. */
static doca_error_t submit(struct doca_task *task, uint32_t flags)
{
	struct doca_eth_txq *q = eth_txq_of(task->ctx);
	struct eth_send *s = send_of(task);
	(void)flags;
	TRY(s->tasks->is_large ? eth_post_large(q, s) : post(q, s));
	s->first = q->submitted;
	s->next = NULL;
	*(q->first ? &q->last->next : &q->first) = s;
	q->last = s;
	q->submitted = s->ends[s->n - 1];
	__atomic_store_n(&q->queue.words->producer, q->submitted, __ATOMIC_RELEASE);
	return DOCA_SUCCESS;
}

static bool is_done(const struct doca_eth_txq *q, const struct eth_send *s)
{
	return s && __atomic_load_n(&q->queue.words->done, __ATOMIC_ACQUIRE) >= s->ends[s->n - 1];
}

/* Stores the results of all tasks, and returns the first error. */
static doca_error_t find_results(const struct doca_eth_txq *q, struct eth_send *s)
{
	const bool failed = __atomic_load_n(&q->queue.words->failed, __ATOMIC_ACQUIRE) != UINT64_MAX;
	const uint64_t end = failed ? q->queue.failed_at : UINT64_MAX;
	doca_error_t first = DOCA_SUCCESS;
	uint64_t at = s->first;
	for (uint16_t i = 0; i < s->n; i++) {
		bool sent = s->ends[i] <= end;
		for (; at < s->ends[i]; at++)
			sent &= !q->queue.refused[at & (q->queue.entries - 1)];
		s->results[i] = sent ? DOCA_SUCCESS : FLUSHED;
		if (!sent)
			first = FLUSHED;
	}
	return first;
}

static void report_completion(struct doca_eth_txq *q, struct eth_send *s, doca_error_t error)
{
	const union doca_data of_ctx = q->ctx.user_data, data = s->batch.task.user_data;
	const struct eth_tasks *t = s->tasks;
	if (t->is_batch && t->is_large)
		(error ? t->failed : t->done).large_batch(&s->batch, s->n, of_ctx, data, s->data, s->frames,
							  s->headers, s->results);
	else if (t->is_batch)
		(error ? t->failed : t->done).batch(&s->batch, s->n, of_ctx, data, s->data, s->frames,
						    s->results);
	else if (t->is_large)
		(error ? t->failed : t->done).large((struct doca_eth_txq_task_lso_send *)s, data, of_ctx);
	else
		(error ? t->failed : t->done).single((struct doca_eth_txq_task_send *)s, data, of_ctx);
}

static bool progress(struct doca_ctx *ctx)
{
	struct doca_eth_txq *q = eth_txq_of(ctx);
	struct eth_send *s = q->first;
	if (!is_done(q, s))
		return false;
	const doca_error_t error = find_results(q, s);
	q->first = s->next;
	free(s->segments);
	s->segments = NULL;
	if (softdoca_task_landed(&s->batch.task, error))
		report_completion(q, s, error);
	return true;
}

static void free_task(struct doca_task *task)
{
	struct eth_send *s = send_of(task);
	--s->tasks->used;
	object_become(task, OBJECT_FREE);
	softdoca_object_free(s);
}

static bool arm(struct doca_ctx *ctx)
{
	const struct doca_eth_txq *q = eth_txq_of(ctx);
	softdoca_ctx_wake_after(ctx, ETH_WAKE_NS);
	return is_done(q, q->first);
}

const struct ctx_ops eth_txq_cpu = {
	.start = start,
	.stop = stop,
	.ended = txq_stopped,
	.submit = submit,
	.progress = progress,
	.arm = arm,
	.free_task = free_task,
	.on_gpu = &eth_txq_gpu,
	.timed = true,
};

/* ---- allocation ---- */

static doca_error_t new_task(struct doca_eth_txq *q, int type, uint16_t n, union doca_data data,
			     struct eth_send **out)
{
	struct eth_tasks *tasks = &q->tasks[type];
	const enum object_kind kind = tasks->is_batch	? OBJECT_TASK_BATCH
				      : type == LARGE ? OBJECT_ETH_SEND_LARGE
						      : OBJECT_ETH_SEND;
	const size_t per_frame = sizeof(struct doca_buf *) + sizeof(union doca_data) +
				 sizeof(struct doca_gather_list *) + sizeof(uint64_t) + sizeof(doca_error_t);
	if (q->ctx.state != DOCA_CTX_STATE_RUNNING || q->ctx.gpu)
		return REFUSE(DOCA_ERROR_BAD_STATE, q->ctx.gpu ? "kernels post this context's operations"
							       : "the context is not running");
	struct eth_send *s =
		tasks->used < tasks->n ? softdoca_object_new(kind, sizeof *s + n * per_frame) : NULL;
	if (!s)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "all %u of this type are allocated", tasks->n);
	++tasks->used;
	s->tasks = tasks;
	s->n = n;
	s->data = (union doca_data *)(s->frames + n);
	s->headers = (struct doca_gather_list **)(s->data + n);
	s->ends = (uint64_t *)(s->headers + n);
	s->results = (doca_error_t *)(s->ends + n);
	softdoca_task_init(&s->batch.task, &q->ctx, data);
	*out = s;
	return DOCA_SUCCESS;
}

doca_error_t eth_task_allocate(struct doca_eth_txq *q, int type, uint16_t n, union doca_data data,
			       struct eth_send **out)
{
	RETURN_INSIDE(q->ctx.pe, new_task(q, type, n, data, out));
}

doca_error_t eth_batch_allocate(struct doca_eth_txq *q, int type, uint16_t n, union doca_data data,
				struct eth_send **out)
{
	if (!n || n > q->tasks[type].tasks)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%u tasks: a batch of the queue has 1 to %u", n,
			      q->tasks[type].tasks);
	return eth_task_allocate(q, type, n, data, out);
}

doca_error_t eth_tasks_set(struct doca_eth_txq *q, int type, struct eth_tasks tasks)
{
	TRY(softdoca_tasks_check(&q->ctx, tasks.done.single && tasks.failed.single, tasks.n * tasks.tasks, TXQ_MAX,
				 __func__));
	q->tasks[type] = tasks;
	return DOCA_SUCCESS;
}

doca_error_t eth_batches_set(struct doca_eth_txq *q, int type,
			     enum doca_task_batch_max_tasks_number tasks_number, uint16_t n,
			     struct eth_tasks tasks)
{
	if ((unsigned)tasks_number > DOCA_TASK_BATCH_MAX_TASKS_NUMBER_128)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "number %d of tasks: the known ones are 0 to %d",
			      (int)tasks_number, DOCA_TASK_BATCH_MAX_TASKS_NUMBER_128);
	tasks.n = n;
	tasks.tasks = 16u << tasks_number;
	tasks.is_batch = true;
	return eth_tasks_set(q, type, tasks);
}

doca_error_t doca_eth_txq_task_send_set_conf(
	struct doca_eth_txq *eth_txq, doca_eth_txq_task_send_completion_cb_t success_completion_cb,
	doca_eth_txq_task_send_completion_cb_t error_completion_cb, uint32_t num_tasks)
{
	CHECK_TXQ(eth_txq);
	return eth_tasks_set(eth_txq, SINGLE,
			     (struct eth_tasks){.n = num_tasks,
						.tasks = 1,
						.done.single = success_completion_cb,
						.failed.single = error_completion_cb});
}

doca_error_t doca_eth_txq_task_send_allocate_init(struct doca_eth_txq *eth_txq, struct doca_buf *pkt,
						  union doca_data user_data,
						  struct doca_eth_txq_task_send **task_send)
{
	struct eth_send *s;
	CHECK_TXQ(eth_txq);
	CHECK_OBJECT(pkt, OBJECT_BUF, "a buffer");
	CHECK_OUT(task_send);
	TRY(eth_task_allocate(eth_txq, SINGLE, 1, user_data, &s));
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
	return eth_batches_set(eth_txq, BATCH, max_tasks_number, num_task_batches,
			       (struct eth_tasks){.done.batch = success_task_batch_completion_cb,
						  .failed.batch = error_task_batch_completion_cb});
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
	TRY(eth_batch_allocate(eth_txq, BATCH, tasks_num, task_batch_user_data, &s));
	*pkt_array = s->frames;
	*task_user_data_array = s->data;
	*task_batch = &s->batch;
	return DOCA_SUCCESS;
}
