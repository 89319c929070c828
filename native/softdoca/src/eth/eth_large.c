// SPDX-License-Identifier: Apache-2.0
/*
 * Large frames (LSO): a task has headers and a payload, which is sent in parts of at most `mss` bytes, each in a
 * frame of its own behind the headers. The frames are made when the task is submitted. The errors are guesses.
 */
#include <stdlib.h>
#include <string.h>

#include "eth.h"

doca_error_t doca_eth_txq_set_mss(struct doca_eth_txq *eth_txq, uint16_t mss)
{
	CHECK_TXQ(eth_txq);
	CHECK_IDLE(eth_txq);
	if (!mss)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "the segments would be empty");
	eth_txq->mss = mss;
	return DOCA_SUCCESS;
}

doca_error_t doca_eth_txq_set_max_lso_header_size(struct doca_eth_txq *eth_txq,
						  uint16_t max_lso_header_size)
{
	CHECK_TXQ(eth_txq);
	CHECK_IDLE(eth_txq);
	if (max_lso_header_size < FRAME_MIN || max_lso_header_size > HEADERS_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "headers of %u bytes: they have %d to %d",
			      max_lso_header_size, FRAME_MIN, HEADERS_MAX);
	eth_txq->max_headers = max_lso_header_size;
	return DOCA_SUCCESS;
}

/* ---- segments ---- */

/* Copies the headers to `headers`, and checks them and the payload. */
static doca_error_t prepare(const struct doca_eth_txq *q, const struct doca_buf *payload,
			    const struct doca_gather_list *list, uint8_t headers[HEADERS_MAX],
			    struct large *l)
{
	*l = (struct large){.headers = headers, .mss = q->mss};
	TRY(eth_check_single(payload));
	for (; list; list = list->next) {
		if (list->len > q->max_headers - l->headers_size || (list->len && !list->addr))
			return REFUSE(DOCA_ERROR_INVALID_VALUE,
				      "%llu bytes of headers at %p, after %zu: the queue takes %u "
				      "(doca_eth_txq_set_max_lso_header_size())",
				      (unsigned long long)list->len, list->addr, l->headers_size,
				      q->max_headers);
		memcpy(headers + l->headers_size, list->addr, list->len);
		l->headers_size += list->len;
	}
	if (l->headers_size < FRAME_MIN)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "headers of %zu bytes: a frame begins with %d",
			      l->headers_size, FRAME_MIN);
	const size_t size = payload->data_len, part = size < q->mss ? size : q->mss;
	if (!size || (size + q->mss - 1) / q->mss > TXQ_MAX || l->headers_size + part > FRAME_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%zu bytes in parts of %u: a payload has 1 byte or more in at most %d parts, and "
			      "a frame %d",
			      size, q->mss, TXQ_MAX, FRAME_MAX);
	l->payload = (uintptr_t)payload->data;
	l->payload_size = (uint32_t)size;
	return softdoca_mmap_frame_key(payload->mmap, q->ctx.dev, &l->key) ? DOCA_ERROR_INVALID_VALUE
									     : DOCA_SUCCESS;
}

static uint32_t parts_of(const struct large *l)
{
	return (l->payload_size + l->mss - 1) / l->mss;
}

static size_t bytes_of(const struct large *l)
{
	return l->payload_size + parts_of(l) * l->headers_size;
}

static doca_error_t check_all(const struct doca_eth_txq *q, struct eth_send *s, size_t *bytes)
{
	uint8_t headers[HEADERS_MAX];
	struct large l;
	uint64_t parts = 0;
	*bytes = 0;
	for (uint16_t i = 0; i < s->n; i++) {
		doca_error_t error = prepare(q, s->frames[i], s->headers[i], headers, &l);
		if (error)
			return error;
		*bytes += bytes_of(&l);
		parts += parts_of(&l);
		s->ends[i] = q->submitted + parts;
	}
	if (parts > q->queue.entries)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%llu frames: a queue has places for %llu",
			      (unsigned long long)parts, (unsigned long long)q->queue.entries);
	return eth_check_room(q, parts);
}

static void post_frames(struct doca_eth_txq *q, uint64_t index, const struct large *l, const uint8_t *frames)
{
	for (uint32_t left = l->payload_size; left; index++) {
		const uint32_t part = left < l->mss ? left : l->mss;
		eth_post(q, index, frames, l->headers_size + part, 0);
		frames += l->headers_size + part;
		left -= part;
	}
}

doca_error_t eth_post_large(struct doca_eth_txq *q, struct eth_send *s)
{
	uint8_t headers[HEADERS_MAX];
	struct large l;
	size_t bytes;
	doca_error_t error = check_all(q, s, &bytes);
	if (error)
		return error;
	uint8_t *at = s->segments = malloc(bytes);
	if (!at)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %zu bytes of frames", bytes);
	for (uint16_t i = 0; i < s->n; i++) {
		error = prepare(q, s->frames[i], s->headers[i], headers, &l);
		if (!error && !softdoca_port_segment(&l, at))
			error = REFUSE(DOCA_ERROR_INVALID_VALUE, "%u bytes at %#llx are not in their map",
				       l.payload_size, (unsigned long long)l.payload);
		if (error) {
			free(s->segments);
			s->segments = NULL;
			return error;
		}
		post_frames(q, i ? s->ends[i - 1] : q->submitted, &l, at);
		at += bytes_of(&l);
	}
	return DOCA_SUCCESS;
}

/* ---- tasks ---- */

doca_error_t doca_eth_txq_task_lso_send_set_conf(
	struct doca_eth_txq *eth_txq, doca_eth_txq_task_lso_send_completion_cb_t success_completion_cb,
	doca_eth_txq_task_lso_send_completion_cb_t error_completion_cb, uint32_t num_tasks)
{
	CHECK_TXQ(eth_txq);
	return eth_tasks_set(eth_txq, LARGE,
			     (struct eth_tasks){.n = num_tasks,
						.tasks = 1,
						.is_large = true,
						.done.large = success_completion_cb,
						.failed.large = error_completion_cb});
}

doca_error_t doca_eth_txq_task_lso_send_allocate_init(struct doca_eth_txq *eth_txq,
						      struct doca_buf *pkt_payload,
						      struct doca_gather_list *headers,
						      union doca_data user_data,
						      struct doca_eth_txq_task_lso_send **task_lso_send)
{
	struct eth_send *s;
	CHECK_TXQ(eth_txq);
	CHECK_OBJECT(pkt_payload, OBJECT_BUF, "a buffer");
	CHECK_OUT(headers);
	CHECK_OUT(task_lso_send);
	TRY(eth_task_allocate(eth_txq, LARGE, 1, user_data, &s));
	s->frames[0] = pkt_payload;
	s->headers[0] = headers;
	*task_lso_send = (struct doca_eth_txq_task_lso_send *)s;
	return DOCA_SUCCESS;
}

struct doca_task *
doca_eth_txq_task_lso_send_as_doca_task(struct doca_eth_txq_task_lso_send *task_lso_send)
{
	if (object_is(task_lso_send, OBJECT_ETH_SEND_LARGE))
		return &((struct eth_send *)task_lso_send)->batch.task;
	softdoca_log(DOCA_LOG_LEVEL_WARNING, __func__, "%p is not a task for a large frame",
		     (void *)task_lso_send);
	return NULL;
}

doca_error_t
doca_eth_txq_task_lso_send_get_pkt_payload(const struct doca_eth_txq_task_lso_send *task_lso_send,
					   struct doca_buf **pkt_payload)
{
	CHECK_OBJECT(task_lso_send, OBJECT_ETH_SEND_LARGE, "a task for a large frame");
	return SET_OUT(pkt_payload, ((const struct eth_send *)task_lso_send)->frames[0]);
}

doca_error_t doca_eth_txq_task_batch_lso_send_set_conf(
	struct doca_eth_txq *eth_txq, enum doca_task_batch_max_tasks_number max_tasks_number,
	uint16_t num_task_batches,
	doca_eth_txq_task_batch_lso_send_completion_cb_t success_task_batch_completion_cb,
	doca_eth_txq_task_batch_lso_send_completion_cb_t error_task_batch_completion_cb)
{
	CHECK_TXQ(eth_txq);
	return eth_batches_set(eth_txq, LARGE_BATCH, max_tasks_number, num_task_batches,
			       (struct eth_tasks){.is_large = true,
						  .done.large_batch = success_task_batch_completion_cb,
						  .failed.large_batch = error_task_batch_completion_cb});
}

doca_error_t doca_eth_txq_task_batch_lso_send_allocate(struct doca_eth_txq *eth_txq, uint16_t tasks_num,
						       union doca_data task_batch_user_data,
						       struct doca_buf ***pkt_payload_array,
						       struct doca_gather_list ***headers_array,
						       union doca_data **task_user_data_array,
						       struct doca_task_batch **task_batch)
{
	struct eth_send *s;
	CHECK_TXQ(eth_txq);
	CHECK_OUT(pkt_payload_array);
	CHECK_OUT(headers_array);
	CHECK_OUT(task_user_data_array);
	CHECK_OUT(task_batch);
	TRY(eth_batch_allocate(eth_txq, LARGE_BATCH, tasks_num, task_batch_user_data, &s));
	*pkt_payload_array = s->frames;
	*headers_array = s->headers;
	*task_user_data_array = s->data;
	*task_batch = &s->batch;
	return DOCA_SUCCESS;
}
