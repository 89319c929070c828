/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comch: messages between a program on the host (the client) and one on the DPU (the server).
 *
 * softdoca carries them over a Unix socket between two processes of one user on one machine. The
 * server starts first. Callbacks are called by doca_pe_progress alone, one a call; what comes with
 * an event (the message's bytes, the event itself) is valid until the callback returns. A handle
 * that is NULL, freed or of another kind gives DOCA_ERROR_INVALID_VALUE, or NULL; settings are
 * refused with DOCA_ERROR_BAD_STATE once the context is started. One thread at a time uses a
 * progress engine and all that is connected to it.
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
/* A client and its server, as one side sees it. It ends with the disconnect event, with
 * doca_comch_server_disconnect, or when its context is idle. */
struct doca_comch_connection;
struct doca_comch_task_send;
struct doca_comch_event_msg_recv;
struct doca_comch_event_connection_status_changed;
struct doca_comch_event_consumer;

/* Of a task that was sent (the message is with the peer's system), or that failed: its status
 * says why. */
typedef void (*doca_comch_task_send_completion_cb_t)(struct doca_comch_task_send *task,
						     union doca_data task_user_data,
						     union doca_data ctx_user_data);
typedef void (*doca_comch_event_msg_recv_cb_t)(struct doca_comch_event_msg_recv *event,
					       uint8_t *recv_buffer, uint32_t msg_len,
					       struct doca_comch_connection *comch_connection);
/* change_successful: 0 if a client left before it was told that it is connected; the connection
 * then ends with the callback. */
typedef void (*doca_comch_event_connection_status_changed_cb_t)(
	struct doca_comch_event_connection_status_changed *event,
	struct doca_comch_connection *comch_connection, uint8_t change_successful);
typedef void (*doca_comch_event_consumer_cb_t)(struct doca_comch_event_consumer *event,
					       struct doca_comch_connection *comch_connection,
					       uint32_t id);

/* ---- what a device can do ---- */

/* DOCA_ERROR_NOT_SUPPORTED: it cannot. */
DOCA_STABLE
doca_error_t doca_comch_cap_client_is_supported(const struct doca_devinfo *devinfo);

DOCA_STABLE
doca_error_t doca_comch_cap_server_is_supported(const struct doca_devinfo *devinfo);

/* In bytes: 4080. */
DOCA_STABLE
doca_error_t doca_comch_cap_get_max_msg_size(const struct doca_devinfo *devinfo, uint32_t *size);

/* Of a server's name, its terminating 0 included. */
DOCA_STABLE
doca_error_t doca_comch_cap_get_max_name_len(const struct doca_devinfo *devinfo,
		uint32_t *max_name_len);

DOCA_STABLE
doca_error_t doca_comch_cap_get_max_recv_queue_size(const struct doca_devinfo *devinfo,
		uint32_t *size);

/* Of one server. */
DOCA_STABLE
doca_error_t doca_comch_cap_get_max_clients(const struct doca_devinfo *devinfo,
		uint32_t *num_clients);

DOCA_STABLE
doca_error_t doca_comch_cap_get_max_send_tasks(const struct doca_devinfo *devinfo,
		uint32_t *max_send_tasks);

/* ---- the client ---- */

/* A client, on the device's own function, of the server of this name. DOCA_ERROR_NOT_SUPPORTED:
 * the device cannot be one. */
DOCA_STABLE
doca_error_t doca_comch_client_create(struct doca_dev *dev, const char *name,
		struct doca_comch_client **comch_client);

/* DOCA_ERROR_BAD_STATE unless its context is idle. */
DOCA_STABLE
doca_error_t doca_comch_client_destroy(struct doca_comch_client *comch_client);

/* Its context. doca_ctx_start gives DOCA_ERROR_IN_PROGRESS; doca_pe_progress makes it run once
 * the server has accepted. If no server listens within three seconds, or when the server ends
 * the connection, it goes by STOPPING to IDLE; why stands in the log. */
DOCA_STABLE
struct doca_ctx *doca_comch_client_as_ctx(struct doca_comch_client *comch_client);

/* Both callbacks, and how many tasks there may be at a time. Must be set before the start. */
DOCA_STABLE
doca_error_t doca_comch_client_task_send_set_conf(struct doca_comch_client *comch_client,
		doca_comch_task_send_completion_cb_t task_completion_cb,
		doca_comch_task_send_completion_cb_t task_error_cb, uint32_t num_send_tasks);

/* Must be set before the start. */
DOCA_STABLE
doca_error_t doca_comch_client_event_msg_recv_register(struct doca_comch_client *comch_client,
		doca_comch_event_msg_recv_cb_t recv_event_cb);

/* Never called: consumers are of Comch's fast path, which softdoca has not. */
DOCA_STABLE
doca_error_t doca_comch_client_event_consumer_register(struct doca_comch_client *comch_client,
		doca_comch_event_consumer_cb_t new_consumer_event_cb,
		doca_comch_event_consumer_cb_t expired_consumer_event_cb);

/* The longest message that is sent or taken. Unless set, what the device can. */
DOCA_STABLE
doca_error_t doca_comch_client_set_max_msg_size(struct doca_comch_client *comch_client,
		uint32_t size);

DOCA_STABLE
doca_error_t doca_comch_client_get_max_msg_size(const struct doca_comch_client *comch_client,
		uint32_t *size);

/* Kept, and without effect: what waits to be received is bounded by the socket's buffer. */
DOCA_STABLE
doca_error_t doca_comch_client_set_recv_queue_size(struct doca_comch_client *comch_client,
		uint32_t size);

DOCA_STABLE
doca_error_t doca_comch_client_get_recv_queue_size(const struct doca_comch_client *comch_client,
		uint32_t *size);

DOCA_STABLE
doca_error_t doca_comch_client_get_device(const struct doca_comch_client *comch_client,
		struct doca_dev **dev);

/* DOCA_ERROR_BAD_STATE until the server has accepted. */
DOCA_STABLE
doca_error_t doca_comch_client_get_connection(const struct doca_comch_client *comch_client,
		struct doca_comch_connection **connection);

/* A task that sends msg, which is copied here. DOCA_ERROR_INVALID_VALUE: no message, one that is
 * empty or longer than this side sends or the peer takes, or a peer that is not connected to
 * this client. DOCA_ERROR_NO_MEMORY: all tasks are taken; free some. */
DOCA_STABLE
doca_error_t doca_comch_client_task_send_alloc_init(struct doca_comch_client *comch_client,
		struct doca_comch_connection *peer, const void *msg, uint32_t len,
		struct doca_comch_task_send **task);

/* ---- the server ---- */

/* A server of the host's function that repr, of dev, stands for. DOCA_ERROR_NOT_SUPPORTED: the
 * device cannot be one. */
DOCA_STABLE
doca_error_t doca_comch_server_create(struct doca_dev *dev, struct doca_dev_rep *repr,
		const char *name, struct doca_comch_server **comch_server);

/* DOCA_ERROR_BAD_STATE unless its context is idle. */
DOCA_STABLE
doca_error_t doca_comch_server_destroy(struct doca_comch_server *comch_server);

/* Its context, which runs as soon as it is started. DOCA_ERROR_ALREADY_EXIST: another server has
 * this name on this function. Stopping it ends all connections, without disconnect events. */
DOCA_STABLE
struct doca_ctx *doca_comch_server_as_ctx(struct doca_comch_server *comch_server);

/* As for the client. */
DOCA_STABLE
doca_error_t doca_comch_server_task_send_set_conf(struct doca_comch_server *comch_server,
		doca_comch_task_send_completion_cb_t task_completion_cb,
		doca_comch_task_send_completion_cb_t task_error_cb, uint32_t num_send_tasks);

/* Must be set before the start. */
DOCA_STABLE
doca_error_t doca_comch_server_event_msg_recv_register(struct doca_comch_server *comch_server,
		doca_comch_event_msg_recv_cb_t recv_event_cb);

/* Must be set before the start. The disconnect event is for clients that leave or die; it comes
 * after their last message, and after the completions of what could not be sent to them. */
DOCA_STABLE
doca_error_t doca_comch_server_event_connection_status_changed_register(
		struct doca_comch_server *comch_server,
		doca_comch_event_connection_status_changed_cb_t connect_event_cb,
		doca_comch_event_connection_status_changed_cb_t disconnect_event_cb);

/* Never called: see the client's. */
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

/* Sends a client away: its context goes idle, after the messages sent so far. Tasks that wait
 * for room fail with DOCA_ERROR_CONNECTION_ABORTED. No event follows, and the handle is no more. */
DOCA_STABLE
doca_error_t doca_comch_server_disconnect(struct doca_comch_server *comch_server,
		struct doca_comch_connection *connection);

/* As for the client; peer is one of this server's clients. */
DOCA_STABLE
doca_error_t doca_comch_server_task_send_alloc_init(struct doca_comch_server *comch_server,
		struct doca_comch_connection *peer, const void *msg, uint32_t len,
		struct doca_comch_task_send **task);

/* ---- connections and tasks ---- */

/* At first, and of a handle that is none: zero. */
DOCA_STABLE
union doca_data doca_comch_connection_get_user_data(const struct doca_comch_connection *connection);

DOCA_STABLE
doca_error_t doca_comch_connection_set_user_data(struct doca_comch_connection *connection,
		union doca_data user_data);

/* NULL: the connection is a client's. */
DOCA_STABLE
struct doca_comch_server *doca_comch_server_get_server_ctx(
		const struct doca_comch_connection *connection);

/* NULL: the connection is a server's. */
DOCA_STABLE
struct doca_comch_client *doca_comch_client_get_client_ctx(
		const struct doca_comch_connection *connection);

/* The task, to be submitted. doca_task_submit gives DOCA_ERROR_NOT_CONNECTED when its connection
 * is over; a task that finds the socket full waits, in order. One whose peer is gone fails with
 * DOCA_ERROR_CONNECTION_RESET. */
DOCA_STABLE
struct doca_task *doca_comch_task_send_as_task(struct doca_comch_task_send *task);

#ifdef __cplusplus
}
#endif

#endif
