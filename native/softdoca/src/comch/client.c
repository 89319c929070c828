// SPDX-License-Identifier: Apache-2.0
/* Public functions of clients. Sources: "Comch API reference" is the header's documentation. */
#include "comch.h"

/* Comch API reference: INVALID_VALUE for an invalid handle. */
#define CLIENT(p) CHECK_OBJECT(p, OBJECT_COMCH_CLIENT, "a Comch client")

doca_error_t doca_comch_client_create(struct doca_dev *dev, const char *name,
				      struct doca_comch_client **comch_client)
{
	struct endpoint *e;
	if (!object_is(dev, OBJECT_DEV))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not an open device", (void *)dev);
	CHECK_OUT(comch_client);
	doca_error_t error = comch_endpoint_new(dev, NULL, name, OBJECT_COMCH_CLIENT, &e);
	if (error == DOCA_SUCCESS)
		*comch_client = (struct doca_comch_client *)e;
	return error;
}

doca_error_t doca_comch_client_destroy(struct doca_comch_client *comch_client)
{
	CLIENT(comch_client);
	return comch_endpoint_destroy(&comch_client->e);
}

struct doca_ctx *doca_comch_client_as_ctx(struct doca_comch_client *comch_client)
{
	return object_is(comch_client, OBJECT_COMCH_CLIENT)
		       ? &comch_client->e.ctx
		       : REFUSE((struct doca_ctx *)NULL, "%p is not a Comch client",
				(void *)comch_client);
}

doca_error_t doca_comch_client_set_max_msg_size(struct doca_comch_client *comch_client,
						uint32_t size)
{
	CLIENT(comch_client);
	return comch_set_max_msg(&comch_client->e, size);
}

doca_error_t doca_comch_client_get_max_msg_size(const struct doca_comch_client *comch_client,
						uint32_t *size)
{
	CLIENT(comch_client);
	return SET_OUT(size, comch_client->e.max_msg);
}

doca_error_t doca_comch_client_set_recv_queue_size(struct doca_comch_client *comch_client,
						   uint32_t size)
{
	CLIENT(comch_client);
	return comch_set_recv_queue(&comch_client->e, size);
}

doca_error_t doca_comch_client_get_recv_queue_size(const struct doca_comch_client *comch_client,
						   uint32_t *size)
{
	CLIENT(comch_client);
	return SET_OUT(size, comch_client->e.recv_queue);
}

doca_error_t doca_comch_client_get_device(const struct doca_comch_client *comch_client,
					  struct doca_dev **dev)
{
	CLIENT(comch_client);
	return SET_OUT(dev, comch_client->e.ctx.dev);
}

doca_error_t doca_comch_client_event_msg_recv_register(struct doca_comch_client *comch_client,
						       doca_comch_event_msg_recv_cb_t recv_event_cb)
{
	CLIENT(comch_client);
	return comch_set_recv_cb(&comch_client->e, recv_event_cb);
}

doca_error_t doca_comch_client_event_consumer_register(
	struct doca_comch_client *comch_client,
	doca_comch_event_consumer_cb_t new_consumer_event_cb,
	doca_comch_event_consumer_cb_t expired_consumer_event_cb)
{
	CLIENT(comch_client);
	return comch_set_consumer_cbs(&comch_client->e, new_consumer_event_cb,
				      expired_consumer_event_cb);
}

/* Comch API reference: BAD_STATE before the context is started. BAD_STATE before the server has
 * accepted: guess. */
doca_error_t doca_comch_client_get_connection(const struct doca_comch_client *comch_client,
					      struct doca_comch_connection **connection)
{
	CLIENT(comch_client);
	CHECK_OUT(connection);
	struct doca_comch_connection *c = comch_client->e.connections;
	if (!c || c->state == GREETING)
		return REFUSE(DOCA_ERROR_BAD_STATE, "client '%s' is not connected",
			      comch_client->e.name);
	*connection = c;
	return DOCA_SUCCESS;
}

struct doca_comch_client *doca_comch_client_get_client_ctx(
	const struct doca_comch_connection *connection)
{
	if (!object_is(connection, OBJECT_COMCH_CONNECTION))
		return REFUSE((struct doca_comch_client *)NULL, "%p is not a connection",
			      (const void *)connection);
	return connection->e->is_server ? NULL : (struct doca_comch_client *)connection->e;
}

doca_error_t doca_comch_client_task_send_set_conf(
	struct doca_comch_client *comch_client,
	doca_comch_task_send_completion_cb_t task_completion_cb,
	doca_comch_task_send_completion_cb_t task_error_cb, uint32_t num_send_tasks)
{
	CLIENT(comch_client);
	return comch_send_set_conf(&comch_client->e, task_completion_cb, task_error_cb,
				   num_send_tasks);
}

doca_error_t doca_comch_client_task_send_alloc_init(struct doca_comch_client *comch_client,
						    struct doca_comch_connection *peer,
						    const void *msg, uint32_t len,
						    struct doca_comch_task_send **task)
{
	CLIENT(comch_client);
	return comch_send_alloc(&comch_client->e, peer, msg, len, task);
}
