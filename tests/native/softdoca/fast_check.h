/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of Comch's fast path: an end (a consumer or a producer of a side's connection) with its
 * own progress engine and memory, which counts the calls of its callbacks.
 */
#ifndef SOFTDOCA_FAST_CHECK_H
#define SOFTDOCA_FAST_CHECK_H

#include <doca_comch_consumer.h>
#include <doca_comch_producer.h>

#include "comch_check.h"

#define FAST_TASKS 64u

struct end {
	struct side *side;
	struct doca_pe *pe;
	struct doca_comch_consumer *consumer;
	struct doca_comch_producer *producer;
	struct doca_ctx *ctx;
	struct doca_mmap *map;
	struct doca_buf_inventory *inv;
	uint8_t *given; /* memory of the test; NULL: made here */
	uint8_t *bytes;
	size_t size;
	uint32_t done, failed, ended;
	doca_error_t last_error;
	char states[32];
	bool keep; /* the callbacks do not free tasks */
	void (*on_received)(struct end *e, struct doca_comch_consumer_task_post_recv *task);
	void (*on_sent)(struct end *e, struct doca_comch_producer_task_send *task);
};

/* The consumer events of a side: ids are positive, and the last new id is recorded here. */
struct consumers {
	uint32_t added, expired, last;
};
static struct consumers of_client, of_server;

UNUSED static void added_cb(struct doca_comch_event_consumer *event,
			    struct doca_comch_connection *c, uint32_t id)
{
	struct consumers *k = side_of(c)->server ? &of_server : &of_client;

	CHECK(event && id);
	side_of(c)->told++;
	k->added++;
	k->last = id;
}

UNUSED static void expired_cb(struct doca_comch_event_consumer *event,
			      struct doca_comch_connection *c, uint32_t id)
{
	struct consumers *k = side_of(c)->server ? &of_server : &of_client;

	CHECK(event && id);
	side_of(c)->told++;
	k->expired++;
}

UNUSED static void end_state_cb(const union doca_data data, struct doca_ctx *ctx,
				enum doca_ctx_states prev, enum doca_ctx_states next)
{
	struct end *e = data.ptr;
	size_t n = strlen(e->states);

	CHECK(ctx == e->ctx);
	(void)prev;
	CHECK(n + 1 < sizeof(e->states));
	e->states[n] = "ISRP"[next];
}

UNUSED static void note_end(struct end *e, struct doca_task *task, bool well)
{
	doca_error_t status = doca_task_get_status(task);

	CHECK_EQ(status == DOCA_SUCCESS, well);
	e->ended++;
	e->done += well;
	e->failed += !well;
	if (!well)
		e->last_error = status;
}

UNUSED static void received_cb(struct doca_comch_consumer_task_post_recv *task,
			       union doca_data task_data, union doca_data ctx_data)
{
	struct end *e = ctx_data.ptr;
	struct doca_task *base = doca_comch_consumer_task_post_recv_as_task(task);

	(void)task_data;
	note_end(e, base, true);
	if (e->on_received)
		e->on_received(e, task);
	else if (!e->keep)
		doca_task_free(base);
}

UNUSED static void not_received_cb(struct doca_comch_consumer_task_post_recv *task,
				   union doca_data task_data, union doca_data ctx_data)
{
	struct end *e = ctx_data.ptr;

	(void)task_data;
	note_end(e, doca_comch_consumer_task_post_recv_as_task(task), false);
	doca_task_free(doca_comch_consumer_task_post_recv_as_task(task));
}

UNUSED static void produced_cb(struct doca_comch_producer_task_send *task, union doca_data task_data,
			       union doca_data ctx_data)
{
	struct end *e = ctx_data.ptr;
	struct doca_task *base = doca_comch_producer_task_send_as_task(task);

	(void)task_data;
	note_end(e, base, true);
	if (e->on_sent)
		e->on_sent(e, task);
	else if (!e->keep)
		doca_task_free(base);
}

UNUSED static void not_produced_cb(struct doca_comch_producer_task_send *task,
				   union doca_data task_data, union doca_data ctx_data)
{
	struct end *e = ctx_data.ptr;

	(void)task_data;
	note_end(e, doca_comch_producer_task_send_as_task(task), false);
	doca_task_free(doca_comch_producer_task_send_as_task(task));
}

/* Called after a_server or a_client, before the start. */
UNUSED static void with_consumers(struct side *s)
{
	if (s->server)
		OK(doca_comch_server_event_consumer_register(s->server, added_cb, expired_cb));
	else
		OK(doca_comch_client_event_consumer_register(s->client, added_cb, expired_cb));
}

/* Like a_pair, with consumer events. */
UNUSED static void a_fast_pair(struct side *s, struct side *c, const char *name)
{
	a_server(s, name);
	a_client(c, name);
	with_consumers(s);
	with_consumers(c);
	OK(doca_ctx_start(s->ctx));
	REFUSED(doca_ctx_start(c->ctx), IN_PROGRESS);
	UNTIL2(s, c, running(c) && s->connects);
	connected(c);
}

UNUSED static void make_end(struct end *e, struct side *s, size_t size)
{
	e->side = s;
	e->size = size;
	e->bytes = e->given ? e->given : calloc(1, size);
	CHECK(e->bytes);
	e->map = a_started_map(s->dev, e->bytes, size, READ_WRITE | PCI_RW);
	e->inv = an_inventory(256);
	OK(doca_pe_create(&e->pe));
}

UNUSED static void join_end(struct end *e)
{
	union doca_data self = {.ptr = e};

	OK(doca_pe_connect_ctx(e->pe, e->ctx));
	OK(doca_ctx_set_user_data(e->ctx, self));
	OK(doca_ctx_set_state_changed_cb(e->ctx, end_state_cb));
}

/* Not started. */
UNUSED static void make_consumer(struct end *e, struct side *s, size_t size)
{
	make_end(e, s, size);
	OK(doca_comch_consumer_create(s->peer, e->map, &e->consumer));
	OK(doca_comch_consumer_task_post_recv_set_conf(e->consumer, received_cb, not_received_cb,
						       FAST_TASKS));
	e->ctx = doca_comch_consumer_as_ctx(e->consumer);
	join_end(e);
}

UNUSED static enum doca_ctx_states end_state(const struct end *e)
{
	enum doca_ctx_states state;

	OK(doca_ctx_get_state(e->ctx, &state));
	return state;
}

UNUSED static uint32_t a_consumer(struct end *e, struct side *s, size_t size)
{
	uint32_t id;

	make_consumer(e, s, size);
	REFUSED(doca_ctx_start(e->ctx), IN_PROGRESS);
	UNTIL(e, end_state(e) == DOCA_CTX_STATE_RUNNING);
	OK(doca_comch_consumer_get_id(e->consumer, &id));
	CHECK(id);
	return id;
}

/* Not started. */
UNUSED static void make_producer(struct end *e, struct side *s, size_t size)
{
	make_end(e, s, size);
	OK(doca_comch_producer_create(s->peer, &e->producer));
	OK(doca_comch_producer_task_send_set_conf(e->producer, produced_cb, not_produced_cb,
						  FAST_TASKS));
	e->ctx = doca_comch_producer_as_ctx(e->producer);
	join_end(e);
}

UNUSED static void a_producer(struct end *e, struct side *s, size_t size)
{
	make_producer(e, s, size);
	OK(doca_ctx_start(e->ctx));
}

/* Buffers of n bytes at an offset: an empty and a full one. */
UNUSED static struct doca_buf *room_at(struct end *e, size_t offset, size_t n)
{
	return a_buf(e->inv, e->map, e->bytes + offset, n);
}

UNUSED static struct doca_buf *data_at(struct end *e, size_t offset, size_t n)
{
	struct doca_buf *b;

	OK(doca_buf_inventory_buf_get_by_data(e->inv, e->map, e->bytes + offset, n, &b));
	return b;
}

UNUSED static struct doca_comch_consumer_task_post_recv *a_receive(struct end *e,
								    struct doca_buf *b)
{
	struct doca_comch_consumer_task_post_recv *task;

	OK(doca_comch_consumer_task_post_recv_alloc_init(e->consumer, b, &task));
	return task;
}

UNUSED static void receive_into(struct end *e, struct doca_buf *b)
{
	OK(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(a_receive(e, b))));
}

UNUSED static struct doca_task *a_send(struct end *e, struct doca_buf *b, const char *imm,
				       uint32_t to)
{
	struct doca_comch_producer_task_send *task;

	OK(doca_comch_producer_task_send_alloc_init(e->producer, b, (uint8_t *)imm,
						    imm ? (uint32_t)strlen(imm) : 0, to, &task));
	return doca_comch_producer_task_send_as_task(task);
}

/* Repeats a submit without progress, as programs do. */
UNUSED static doca_error_t submit_soon(struct doca_task *task)
{
	doca_error_t error;

	while ((error = doca_task_submit(task)) == DOCA_ERROR_AGAIN)
		usleep(20);
	return error;
}

UNUSED static size_t data_len(const struct doca_buf *b)
{
	size_t n;

	OK(doca_buf_get_data_len(b, &n));
	return n;
}

UNUSED static void let_go(struct doca_buf *b)
{
	OK(doca_buf_dec_refcount(b, NULL));
}

UNUSED static void destroy_end(struct end *e)
{
	if (e->consumer)
		OK(doca_comch_consumer_destroy(e->consumer));
	else
		OK(doca_comch_producer_destroy(e->producer));
	OK(doca_pe_destroy(e->pe));
	CHECK_EQ(free_bufs(e->inv), 256);
	OK(doca_buf_inventory_destroy(e->inv));
	OK(doca_mmap_destroy(e->map));
	if (!e->given)
		free(e->bytes);
}

UNUSED static void stop_end(struct end *e)
{
	doca_error_t error = doca_ctx_stop(e->ctx);

	CHECK(error == DOCA_SUCCESS || error == DOCA_ERROR_IN_PROGRESS);
	UNTIL(e, end_state(e) == DOCA_CTX_STATE_IDLE);
}

UNUSED static void close_end(struct end *e)
{
	stop_end(e);
	destroy_end(e);
}

/* Like wake_up(). */
UNUSED static void wake_end(struct end *e)
{
	struct side as = {.pe = e->pe};

	wake_up(&as);
}

#endif
