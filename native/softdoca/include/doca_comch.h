/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comch: messages between a program on the host (the client) and one on the DPU (the server).
 *
 * softdoca transfers them over a Unix socket between two processes of one user on one machine. The
 * server is started first. doca_pe_progress calls all callbacks, at most one per call; the
 * arguments of an event (the message's bytes, the event itself) are valid until the callback
 * returns. Functions return DOCA_ERROR_INVALID_VALUE or NULL for an invalid or freed handle;
 * setters return DOCA_ERROR_BAD_STATE once the context is started. Only one thread at a time may
 * use a progress engine and all objects connected to it.
 */
#ifndef DOCA_COMCH_H
#define DOCA_COMCH_H

#include <stddef.h>
#include <stdint.h>

#include "doca_compat.h"
#include "doca_ctx.h"
#include "doca_dev.h"
#include "doca_error.h"
#include "doca_pe.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_comch_client;
struct doca_comch_server;
/* A connection of a client and its server, as seen by one side. It ends with the disconnect event,
 * with doca_comch_server_disconnect, or when its context is idle. */
struct doca_comch_connection;
struct doca_comch_task_send;
struct doca_comch_event_msg_recv;
struct doca_comch_event_connection_status_changed;
struct doca_comch_event_consumer;

/* Called when a task's message was sent (it is in the socket), or when the task failed: its status
 * gives the reason. */
typedef void (*doca_comch_task_send_completion_cb_t)(struct doca_comch_task_send *task,
						     union doca_data task_user_data,
						     union doca_data ctx_user_data);
typedef void (*doca_comch_event_msg_recv_cb_t)(struct doca_comch_event_msg_recv *event,
					       uint8_t *recv_buffer, uint32_t msg_len,
					       struct doca_comch_connection *comch_connection);
/* change_successful is 0 if a client left before its connection was complete; the connection then
 * ends with the callback. */
typedef void (*doca_comch_event_connection_status_changed_cb_t)(
	struct doca_comch_event_connection_status_changed *event,
	struct doca_comch_connection *comch_connection, uint8_t change_successful);
typedef void (*doca_comch_event_consumer_cb_t)(struct doca_comch_event_consumer *event,
					       struct doca_comch_connection *comch_connection,
					       uint32_t id);

/* ---- capabilities of a device ---- */

/* Returns SUCCESS, or NOT_SUPPORTED if the device cannot be a client. */
DOCA_STABLE
doca_error_t doca_comch_cap_client_is_supported(const struct doca_devinfo *devinfo);

/* Returns SUCCESS, or NOT_SUPPORTED if the device cannot be a server. */
DOCA_STABLE
doca_error_t doca_comch_cap_server_is_supported(const struct doca_devinfo *devinfo);

/* Gets the size of the longest message in bytes: 4080. */
DOCA_STABLE
doca_error_t doca_comch_cap_get_max_msg_size(const struct doca_devinfo *devinfo, uint32_t *size);

/* Gets the length of the longest name of a server, with its terminating 0. */
DOCA_STABLE
doca_error_t doca_comch_cap_get_max_name_len(const struct doca_devinfo *devinfo,
		uint32_t *max_name_len);

DOCA_STABLE
doca_error_t doca_comch_cap_get_max_recv_queue_size(const struct doca_devinfo *devinfo,
		uint32_t *size);

/* Gets the largest number of clients of a server. */
DOCA_STABLE
doca_error_t doca_comch_cap_get_max_clients(const struct doca_devinfo *devinfo,
		uint32_t *num_clients);

DOCA_STABLE
doca_error_t doca_comch_cap_get_max_send_tasks(const struct doca_devinfo *devinfo,
		uint32_t *max_send_tasks);

/* ---- the client ---- */

/* Creates a client, on the device's own function, that connects to the server with this name.
 * Errors: NOT_SUPPORTED if the device cannot be a client. */
DOCA_STABLE
doca_error_t doca_comch_client_create(struct doca_dev *dev, const char *name,
		struct doca_comch_client **comch_client);

/* Destroys the client. Errors: BAD_STATE unless its context is idle. */
DOCA_STABLE
doca_error_t doca_comch_client_destroy(struct doca_comch_client *comch_client);

/* Returns the context. doca_ctx_start returns IN_PROGRESS; progress makes the context RUNNING once
 * the server has accepted. If no server listens within three seconds, or when the server ends the
 * connection, it becomes STOPPING, then IDLE; the log contains the reason. */
DOCA_STABLE
struct doca_ctx *doca_comch_client_as_ctx(struct doca_comch_client *comch_client);

/* Sets both callbacks and the number of tasks. Required before the start. */
DOCA_STABLE
doca_error_t doca_comch_client_task_send_set_conf(struct doca_comch_client *comch_client,
		doca_comch_task_send_completion_cb_t task_completion_cb,
		doca_comch_task_send_completion_cb_t task_error_cb, uint32_t num_send_tasks);

/* Sets the callback for messages. Required before the start. */
DOCA_STABLE
doca_error_t doca_comch_client_event_msg_recv_register(struct doca_comch_client *comch_client,
		doca_comch_event_msg_recv_cb_t recv_event_cb);

/* Sets the callbacks for consumers of the server's side: see doca_comch_consumer.h. A consumer
 * expires when it ends or its side ends. */
DOCA_STABLE
doca_error_t doca_comch_client_event_consumer_register(struct doca_comch_client *comch_client,
		doca_comch_event_consumer_cb_t new_consumer_event_cb,
		doca_comch_event_consumer_cb_t expired_consumer_event_cb);

/* Sets the size of the longest message that is sent or received; the default is the device's
 * limit. */
DOCA_STABLE
doca_error_t doca_comch_client_set_max_msg_size(struct doca_comch_client *comch_client,
		uint32_t size);

DOCA_STABLE
doca_error_t doca_comch_client_get_max_msg_size(const struct doca_comch_client *comch_client,
		uint32_t *size);

/* Stores the size, which has no effect: the socket's buffer limits the number of waiting
 * messages. */
DOCA_STABLE
doca_error_t doca_comch_client_set_recv_queue_size(struct doca_comch_client *comch_client,
		uint32_t size);

DOCA_STABLE
doca_error_t doca_comch_client_get_recv_queue_size(const struct doca_comch_client *comch_client,
		uint32_t *size);

DOCA_STABLE
doca_error_t doca_comch_client_get_device(const struct doca_comch_client *comch_client,
		struct doca_dev **dev);

/* Gets the connection. Errors: BAD_STATE until the server has accepted. */
DOCA_STABLE
doca_error_t doca_comch_client_get_connection(const struct doca_comch_client *comch_client,
		struct doca_comch_connection **connection);

/* Allocates a task that sends msg, which is copied by this call. Errors: INVALID_VALUE for a
 * message that is NULL, empty, or above the limit of either side, or a peer that is not connected
 * to this client; NO_MEMORY if all tasks are allocated. */
DOCA_STABLE
doca_error_t doca_comch_client_task_send_alloc_init(struct doca_comch_client *comch_client,
		struct doca_comch_connection *peer, const void *msg, uint32_t len,
		struct doca_comch_task_send **task);

/* ---- the server ---- */

/* Creates a server for the host's function that repr, a representor of dev, represents. Errors:
 * NOT_SUPPORTED if the device cannot be a server. */
DOCA_STABLE
doca_error_t doca_comch_server_create(struct doca_dev *dev, struct doca_dev_rep *repr,
		const char *name, struct doca_comch_server **comch_server);

/* Destroys the server. Errors: BAD_STATE unless its context is idle. */
DOCA_STABLE
doca_error_t doca_comch_server_destroy(struct doca_comch_server *comch_server);

/* Returns the context, which is RUNNING as soon as it is started. doca_ctx_start returns
 * ALREADY_EXIST if another server has this name on this function. doca_ctx_stop ends all
 * connections, without disconnect events. */
DOCA_STABLE
struct doca_ctx *doca_comch_server_as_ctx(struct doca_comch_server *comch_server);

/* Sets both callbacks and the number of tasks. Required before the start. */
DOCA_STABLE
doca_error_t doca_comch_server_task_send_set_conf(struct doca_comch_server *comch_server,
		doca_comch_task_send_completion_cb_t task_completion_cb,
		doca_comch_task_send_completion_cb_t task_error_cb, uint32_t num_send_tasks);

/* Sets the callback for messages. Required before the start. */
DOCA_STABLE
doca_error_t doca_comch_server_event_msg_recv_register(struct doca_comch_server *comch_server,
		doca_comch_event_msg_recv_cb_t recv_event_cb);

/* Sets the callbacks for connections. Required before the start. The disconnect event reports a
 * client that left or died; it follows the client's last message and the completions of tasks that
 * could not be sent to it. */
DOCA_STABLE
doca_error_t doca_comch_server_event_connection_status_changed_register(
		struct doca_comch_server *comch_server,
		doca_comch_event_connection_status_changed_cb_t connect_event_cb,
		doca_comch_event_connection_status_changed_cb_t disconnect_event_cb);

/* Sets the callbacks for consumers of clients. Consumers expire before the disconnect event of
 * their client. */
DOCA_STABLE
doca_error_t doca_comch_server_event_consumer_register(struct doca_comch_server *comch_server,
		doca_comch_event_consumer_cb_t new_consumer_event_cb,
		doca_comch_event_consumer_cb_t expired_consumer_event_cb);

DOCA_STABLE
doca_error_t doca_comch_server_set_max_msg_size(struct doca_comch_server *comch_server,
		uint32_t size);

DOCA_STABLE
doca_error_t doca_comch_server_get_max_msg_size(const struct doca_comch_server *comch_server,
		uint32_t *size);

DOCA_STABLE
doca_error_t doca_comch_server_set_recv_queue_size(struct doca_comch_server *comch_server,
		uint32_t size);

DOCA_STABLE
doca_error_t doca_comch_server_get_recv_queue_size(const struct doca_comch_server *comch_server,
		uint32_t *size);

DOCA_STABLE
doca_error_t doca_comch_server_get_device(const struct doca_comch_server *comch_server,
		struct doca_dev **dev);

DOCA_STABLE
doca_error_t doca_comch_server_get_device_repr(const struct doca_comch_server *comch_server,
		struct doca_dev_rep **repr);

/* Disconnects a client, whose context becomes idle after it has received the messages sent so far.
 * Tasks that wait for space in the socket fail with CONNECTION_ABORTED. No disconnect event
 * follows, and the handle is no longer valid. Errors: IN_USE if the connection has consumers or
 * producers of this side. */
DOCA_STABLE
doca_error_t doca_comch_server_disconnect(struct doca_comch_server *comch_server,
		struct doca_comch_connection *connection);

/* Allocates a task like doca_comch_client_task_send_alloc_init(); peer is a client of this
 * server. */
DOCA_STABLE
doca_error_t doca_comch_server_task_send_alloc_init(struct doca_comch_server *comch_server,
		struct doca_comch_connection *peer, const void *msg, uint32_t len,
		struct doca_comch_task_send **task);

/* ---- connections and tasks ---- */

/* Returns the data that was set; 0 if none was set, or for an invalid handle. */
DOCA_STABLE
union doca_data doca_comch_connection_get_user_data(const struct doca_comch_connection *connection);

DOCA_STABLE
doca_error_t doca_comch_connection_set_user_data(struct doca_comch_connection *connection,
		union doca_data user_data);

/* Returns the server of a connection; NULL for a connection of a client. */
DOCA_STABLE
struct doca_comch_server *doca_comch_server_get_server_ctx(
		const struct doca_comch_connection *connection);

/* Returns the client of a connection; NULL for a connection of a server. */
DOCA_STABLE
struct doca_comch_client *doca_comch_client_get_client_ctx(
		const struct doca_comch_connection *connection);

/* Returns the task for doca_task_submit, which returns NOT_CONNECTED if the task's connection has
 * ended. Tasks that find the socket full wait and are sent in order. A task whose peer is gone
 * fails with CONNECTION_RESET. */
DOCA_STABLE
struct doca_task *doca_comch_task_send_as_task(struct doca_comch_task_send *task);

#ifdef __cplusplus
}
#endif

#endif
