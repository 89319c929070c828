// SPDX-License-Identifier: Apache-2.0
/*
 * Send tasks. A message is copied when its task is allocated, and sent when the task is submitted
 * or as soon as the socket has space. The task is complete when the message is in the socket.
 */
#include "comch.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

OWNER(of_task, struct doca_comch_task_send, struct doca_task, task)

doca_error_t comch_tasks_new(struct endpoint *e)
{
	size_t slot = (sizeof(struct packet) + e->max_msg + 63) & ~(size_t)63;
	e->slots = calloc(e->n_tasks, slot);
	for (uint32_t i = 0; e->slots && i < e->n_tasks; i++) {
		struct doca_comch_task_send *t = softdoca_object_new(OBJECT_COMCH_SEND, sizeof *t);
		if (!t)
			break;
		object_become(t, OBJECT_FREE);
		t->message = (void *)(e->slots + i * slot);
		t->message->p = (struct packet){PACKET_MAGIC, PACKET_VERSION, PACKET_MESSAGE};
		t->item.task = t;
		t->next = e->tasks;
		e->tasks = t;
		t->next_free = e->free_tasks;
		e->free_tasks = t;
		if (i + 1 == e->n_tasks)
			return DOCA_SUCCESS;
	}
	return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for %u send tasks", e->n_tasks);
}

void comch_tasks_free(struct endpoint *e)
{
	struct doca_comch_task_send *t;
	while ((t = e->tasks)) {
		e->tasks = t->next;
		object_become(&t->task, OBJECT_FREE);
		softdoca_object_free(t);
	}
	free(e->slots);
	e->slots = NULL;
	e->free_tasks = NULL;
}

doca_error_t comch_send_set_conf(struct endpoint *e, doca_comch_task_send_completion_cb_t done,
				 doca_comch_task_send_completion_cb_t failed, uint32_t n)
{
	doca_error_t error = comch_configurable(e, "send tasks");
	if (!done || !failed)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "a callback is NULL");
	if (!n || n > SEND_TASKS_MAX)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%u send tasks: the number must be 1 to %u",
			      n, SEND_TASKS_MAX);
	if (error != DOCA_SUCCESS)
		return error;
	e->completion_cb = done;
	e->error_cb = failed;
	e->n_tasks = n;
	return DOCA_SUCCESS;
}

static doca_error_t allocate_task(struct endpoint *e, struct doca_comch_connection *peer,
				  const void *msg, uint32_t len, struct doca_comch_task_send **task)
{
	if (!object_is(peer, OBJECT_COMCH_CONNECTION) || peer->e != e || peer->state != OPEN)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a connection of '%s'",
			      (void *)peer, e->name);
	/* That an empty message is refused: guess. */
	if (!msg || !len || !task)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "the message or the output pointer is NULL, or the message is empty");
	/* That the peer's limit applies, too: guess. */
	if (len > e->max_msg || len > peer->peer_max)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "a message of %u bytes: the limit is %u bytes, that of the peer %u",
			      len, e->max_msg, peer->peer_max);
	struct doca_comch_task_send *t = e->free_tasks;
	if (!t)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "all %u send tasks are allocated", e->n_tasks);
	e->free_tasks = t->next_free;
	object_become(t, OBJECT_COMCH_SEND);
	softdoca_task_init(&t->task, &e->ctx, (union doca_data){0});
	t->connection = peer;
	t->connection_id = peer->id;
	t->len = len;
	memcpy(t->message->bytes, msg, len);
	*task = t;
	return DOCA_SUCCESS;
}

/* Comch API reference, doca_comch_*_task_send_alloc_init: INVALID_VALUE, NO_MEMORY. */
doca_error_t comch_send_alloc(struct endpoint *e, struct doca_comch_connection *peer,
			      const void *msg, uint32_t len, struct doca_comch_task_send **task)
{
	RETURN_INSIDE(e->ctx.pe, allocate_task(e, peer, msg, len, task));
}

void comch_free_task(struct doca_task *task)
{
	struct doca_comch_task_send *t = of_task(task);
	struct endpoint *e = endpoint_of(task->ctx);
	object_become(&t->task, OBJECT_FREE);
	object_become(t, OBJECT_FREE);
	t->next_free = e->free_tasks;
	e->free_tasks = t;
}

AS_MEMBER(doca_comch_task_send_as_task, struct doca_comch_task_send, struct doca_task,
	  OBJECT_COMCH_SEND, "a send task", task)

/* Sends a message. The end of a connection is detected by reading. */
static int put(struct doca_comch_connection *c, struct doca_comch_task_send *t)
{
	return comch_put(c->fd, t->message, sizeof t->message->p + t->len);
}

/* Maps a negative errno to a doca_error_t. Which error maps to which is a guess. */
static doca_error_t status_of(int rc)
{
	if (!rc)
		return DOCA_SUCCESS;
	return rc == -EPIPE || rc == -ECONNRESET ? DOCA_ERROR_CONNECTION_RESET
						 : DOCA_ERROR_IO_FAILED;
}

doca_error_t comch_submit(struct doca_task *task, uint32_t flags)
{
	struct doca_comch_task_send *t = of_task(task);
	struct doca_comch_connection *c = t->connection;
	(void)flags;
	/* guess */
	if (!object_is(c, OBJECT_COMCH_CONNECTION) || c->id != t->connection_id || c->state != OPEN)
		return REFUSE(DOCA_ERROR_NOT_CONNECTED, "the task's connection has ended");
	bool behind_others = c->pending.first;
	int rc = behind_others ? -EAGAIN : put(c, t);
	if (rc != -EAGAIN) {
		comch_send_done(t, status_of(rc));
		return DOCA_SUCCESS;
	}
	items_add(&c->pending, &t->item);
	if (!behind_others)
		comch_connection_watch(c);
	return DOCA_SUCCESS;
}

void comch_send_pending(struct doca_comch_connection *c)
{
	while (c->pending.first) {
		int rc = put(c, c->pending.first->task);
		if (rc == -EAGAIN)
			return;
		comch_send_done(items_take(&c->pending)->task, status_of(rc));
	}
	comch_connection_watch(c);
}

void comch_send_done(struct doca_comch_task_send *t, doca_error_t status)
{
	t->status = status;
	comch_notify(endpoint_of(t->task.ctx), &t->item);
}

void comch_deliver(struct doca_comch_task_send *t)
{
	struct doca_ctx *ctx = t->task.ctx;
	struct endpoint *e = endpoint_of(ctx);
	doca_comch_task_send_completion_cb_t callback =
		t->status == DOCA_SUCCESS ? e->completion_cb : e->error_cb;
	if (softdoca_task_landed(&t->task, t->status))
		callback(t, t->task.user_data, ctx->user_data);
}
