/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RDMA: messages between two contexts, and reads, writes and atomic operations on a peer's memory, over
 * the software NIC of one machine.
 *
 * A program creates a context on a device, sets the tasks that it will use and what peers may do
 * (doca_rdma_set_permissions()), and starts it. A connection is made from both sides: each calls
 * doca_rdma_export(), passes the bytes to the other by its own means, and calls doca_rdma_connect(). Or
 * by address: one calls doca_rdma_start_listen_to_port(), the other doca_rdma_connect_to_addr().
 *
 * Buffers. A source gives its data. A destination takes bytes behind its data, as in DMA tasks, and its
 * data_len grows by them; the word of an atomic operation is at its data. Local buffers, except for words,
 * may be lists of up to 4. The peer's memory is a map of doca_mmap_create_from_export() from a descriptor
 * of doca_mmap_export_rdma() of the connected process.
 *
 * Order and failures. The tasks of a connection complete in the order of their submission. A task that
 * the NIC or the peer refuses (no permission, memory that was unmapped, a message that is larger than
 * the receive, a peer that ended) completes with IO_FAILED, and ends its connection: the tasks behind
 * it complete with IO_FAILED as well, and the callback for disconnections is called.
 *
 * A context with its data path on a GPU has no tasks, and needs no progress engine unless it connects by
 * address. It has as many connections from its start to its stop as doca_rdma_set_max_num_connections()
 * says, including those that ended.
 *
 * Receives belong to the context. One whose connections are several gives them out as they are used,
 * so a connection can have to wait for a receive while one that is idle has some.
 */
#ifndef DOCA_RDMA_H
#define DOCA_RDMA_H

#include <stddef.h>
#include <stdint.h>

#include "doca_buf.h"
#include "doca_compat.h"
#include "doca_ctx.h"
#include "doca_dev.h"
#include "doca_error.h"
#include "doca_pe.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_rdma;
struct doca_rdma_connection;
struct doca_rdma_addr;
struct doca_gpu_dev_rdma;
struct doca_rdma_task_receive;
struct doca_rdma_task_send;
struct doca_rdma_task_send_imm;
struct doca_rdma_task_read;
struct doca_rdma_task_write;
struct doca_rdma_task_write_imm;
struct doca_rdma_task_atomic_cmp_swp;
struct doca_rdma_task_atomic_fetch_add;
struct doca_rdma_task_remote_net_sync_event_get;
struct doca_rdma_task_remote_net_sync_event_notify_set;
struct doca_rdma_task_remote_net_sync_event_notify_add;
struct doca_sync_event_remote_net;

/* What a receive got. Guess: the values. */
enum doca_rdma_opcode {
	DOCA_RDMA_OPCODE_RECV_SEND = 0,
	DOCA_RDMA_OPCODE_RECV_SEND_WITH_IMM = 1,
	DOCA_RDMA_OPCODE_RECV_WRITE_WITH_IMM = 2,
};

/* RC: reliable connections. softdoca has no DC. Guess: the values. */
enum doca_rdma_transport_type {
	DOCA_RDMA_TRANSPORT_TYPE_RC = 0,
	DOCA_RDMA_TRANSPORT_TYPE_DC = 1,
};

/* Guess: the values. */
enum doca_rdma_addr_type {
	DOCA_RDMA_ADDR_TYPE_IPv4 = 0,
	DOCA_RDMA_ADDR_TYPE_IPv6 = 1,
	DOCA_RDMA_ADDR_TYPE_GID = 2,
};

typedef void (*doca_rdma_task_receive_completion_cb_t)(struct doca_rdma_task_receive *task,
	union doca_data task_user_data, union doca_data ctx_user_data);
typedef void (*doca_rdma_task_send_completion_cb_t)(struct doca_rdma_task_send *task,
	union doca_data task_user_data, union doca_data ctx_user_data);
typedef void (*doca_rdma_task_send_imm_completion_cb_t)(struct doca_rdma_task_send_imm *task,
	union doca_data task_user_data, union doca_data ctx_user_data);
typedef void (*doca_rdma_task_read_completion_cb_t)(struct doca_rdma_task_read *task,
	union doca_data task_user_data, union doca_data ctx_user_data);
typedef void (*doca_rdma_task_write_completion_cb_t)(struct doca_rdma_task_write *task,
	union doca_data task_user_data, union doca_data ctx_user_data);
typedef void (*doca_rdma_task_write_imm_completion_cb_t)(struct doca_rdma_task_write_imm *task,
	union doca_data task_user_data, union doca_data ctx_user_data);
typedef void (*doca_rdma_task_atomic_cmp_swp_completion_cb_t)(struct doca_rdma_task_atomic_cmp_swp *task,
	union doca_data task_user_data, union doca_data ctx_user_data);
typedef void (*doca_rdma_task_atomic_fetch_add_completion_cb_t)(struct doca_rdma_task_atomic_fetch_add *task,
	union doca_data task_user_data, union doca_data ctx_user_data);
typedef void (*doca_rdma_task_remote_net_sync_event_get_completion_cb_t)(struct doca_rdma_task_remote_net_sync_event_get *task,
	union doca_data task_user_data, union doca_data ctx_user_data);
typedef void (*doca_rdma_task_remote_net_sync_event_notify_set_completion_cb_t)(struct doca_rdma_task_remote_net_sync_event_notify_set *task,
	union doca_data task_user_data, union doca_data ctx_user_data);
typedef void (*doca_rdma_task_remote_net_sync_event_notify_add_completion_cb_t)(struct doca_rdma_task_remote_net_sync_event_notify_add *task,
	union doca_data task_user_data, union doca_data ctx_user_data);

/* Called with the connection of a peer that asks for it. */
typedef void (*doca_rdma_connection_request_cb_t)(struct doca_rdma_connection *connection,
	union doca_data ctx_user_data);
/* Called when a connection is established, cannot be established, or has ended. */
typedef void (*doca_rdma_connection_established_cb_t)(struct doca_rdma_connection *connection,
	union doca_data connection_user_data, union doca_data ctx_user_data);
typedef void (*doca_rdma_connection_failure_cb_t)(struct doca_rdma_connection *connection,
	union doca_data connection_user_data, union doca_data ctx_user_data);
typedef void (*doca_rdma_connection_disconnection_cb_t)(struct doca_rdma_connection *connection,
	union doca_data connection_user_data, union doca_data ctx_user_data);

/* Creates an RDMA context; the device cannot be closed before the context is destroyed.
 * Errors: NOT_SUPPORTED for a device without an RDMA device (ibdev) name; NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_create(struct doca_dev *dev, struct doca_rdma **rdma);

/* Destroys the context. The context's own callback for the state IDLE may call it. Errors:
 * BAD_STATE unless it is IDLE. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_destroy(struct doca_rdma *rdma);

/* Returns the context, which the program configures, connects to a progress engine and starts;
 * NULL for an invalid handle. */
DOCA_EXPERIMENTAL
struct doca_ctx *doca_rdma_as_ctx(struct doca_rdma *rdma);

/* Return SUCCESS, or NOT_SUPPORTED for a device without RDMA. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_task_receive_is_supported(const struct doca_devinfo *devinfo);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_task_send_is_supported(const struct doca_devinfo *devinfo);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_task_send_imm_is_supported(const struct doca_devinfo *devinfo);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_task_read_is_supported(const struct doca_devinfo *devinfo);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_task_write_is_supported(const struct doca_devinfo *devinfo);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_task_write_imm_is_supported(const struct doca_devinfo *devinfo);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_task_atomic_cmp_swp_is_supported(const struct doca_devinfo *devinfo);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_task_atomic_fetch_add_is_supported(const struct doca_devinfo *devinfo);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_task_remote_net_sync_event_get_is_supported(const struct doca_devinfo *devinfo);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_task_remote_net_sync_event_notify_set_is_supported(const struct doca_devinfo *devinfo);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_task_remote_net_sync_event_notify_add_is_supported(const struct doca_devinfo *devinfo);

/* Returns SUCCESS for RC, NOT_SUPPORTED for other types and for a device without RDMA. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_transport_type_is_supported(const struct doca_devinfo *devinfo,
	enum doca_rdma_transport_type transport_type);

/* Gets the largest size of a send queue: 32,768. Errors: NOT_SUPPORTED for a device without
 * RDMA. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_get_max_send_queue_size(const struct doca_devinfo *devinfo,
	uint32_t *max_send_queue_size);

/* Gets the largest size of a receive queue: 32,768. Errors: NOT_SUPPORTED for a device without
 * RDMA. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_get_max_recv_queue_size(const struct doca_devinfo *devinfo,
	uint32_t *max_recv_queue_size);

/* Gets the largest number of local buffers in the list of a task: 4. Errors: NOT_SUPPORTED for a
 * device without RDMA. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_get_max_send_buf_list_len(const struct doca_devinfo *devinfo,
	uint32_t *max_send_buf_list_len);

/* Gets the largest number of buffers in the list of a receive: 4. Errors: NOT_SUPPORTED for a
 * device without RDMA. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_task_receive_get_max_dst_buf_list_len(const struct doca_devinfo *devinfo,
	enum doca_rdma_transport_type transport_type, uint32_t *max_dst_buf_list_len);

/* Gets the largest number of bytes of a message, a read or a write: 1 GiB. Errors:
 * NOT_SUPPORTED for a device without RDMA. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_cap_get_max_message_size(const struct doca_devinfo *devinfo,
	uint32_t *max_message_size);

/* Sets what peers may do: a combination of LOCAL_READ_WRITE, RDMA_READ, RDMA_WRITE and
 * RDMA_ATOMIC of enum doca_access_flag; LOCAL_READ_WRITE unless set. The map must allow it,
 * too. Errors: BAD_STATE if the context is started; INVALID_VALUE for other flags. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_set_permissions(struct doca_rdma *rdma, uint32_t permissions);

/* Gets what peers may do. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_get_permissions(const struct doca_rdma *rdma, uint32_t *permissions);

/* Sets how many tasks other than receives that a connection can have in flight, which is
 * rounded up to a power of two; 512 unless set. Errors: BAD_STATE if the context is started;
 * INVALID_VALUE for 0 or more than doca_rdma_cap_get_max_send_queue_size(). */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_set_send_queue_size(struct doca_rdma *rdma, uint32_t send_queue_size);

/* Gets that number. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_get_send_queue_size(const struct doca_rdma *rdma,
	uint32_t *send_queue_size);

/* Sets how many receives that a connection can have in flight, which is rounded up to a power
 * of two; 512 unless set. Errors: BAD_STATE if the context is started; INVALID_VALUE for 0 or
 * more than doca_rdma_cap_get_max_recv_queue_size(). */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_set_recv_queue_size(struct doca_rdma *rdma, uint32_t recv_queue_size);

/* Gets that number. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_get_recv_queue_size(const struct doca_rdma *rdma,
	uint32_t *recv_queue_size);

/* Sets the number of connections, 1 unless set. Errors: BAD_STATE if the context is started;
 * INVALID_VALUE for 0 or more than 256. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_set_max_num_connections(struct doca_rdma *rdma, uint16_t max_num_connections);

/* Gets the number of connections. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_get_max_num_connections(const struct doca_rdma *rdma,
	uint16_t *max_num_connections);

/* Sets the type of transport. Errors: BAD_STATE if the context is started; NOT_SUPPORTED for
 * DC. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_set_transport_type(struct doca_rdma *rdma,
	enum doca_rdma_transport_type transport_type);

/* Gets the type of transport. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_get_transport_type(const struct doca_rdma *rdma,
	enum doca_rdma_transport_type *transport_type);

/* Sets which address of the device is used, without an effect: the software NIC has one.
 * Errors: BAD_STATE if the context is started; INVALID_VALUE from 256. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_set_gid_index(struct doca_rdma *rdma, uint32_t gid_index);

/* Sets whether packets have a global route header, without an effect: there are no packets.
 * Errors: BAD_STATE if the context is started; INVALID_VALUE unless it is 0 or 1. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_set_grh_enabled(struct doca_rdma *rdma, uint8_t grh_enabled);

/* Sets the callbacks of connections; NULL for none. Those for a request, an established
 * connection and a failure are for connections by address. Errors:
 * BAD_STATE if the context is started. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_set_connection_state_callbacks(struct doca_rdma *rdma,
	doca_rdma_connection_request_cb_t request_cb, doca_rdma_connection_established_cb_t established_cb,
	doca_rdma_connection_failure_cb_t failure_cb, doca_rdma_connection_disconnection_cb_t disconnect_cb);

/* Makes a connection that is not connected yet, and the bytes that its peer needs, which are
 * valid until the context is stopped. Errors: BAD_STATE unless the context runs; FULL if it
 * has all its connections; DRIVER. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_export(struct doca_rdma *rdma, const void **local_rdma_conn_details,
	size_t *local_rdma_conn_details_size, struct doca_rdma_connection **rdma_connection);

/* Connects a connection to the one that the bytes are of. The peer may connect later: tasks
 * wait for it for some seconds. Errors: BAD_STATE unless the context runs and the connection
 * is new; CONNECTION_ABORTED for bytes that are not of doca_rdma_export(), and if there
 * is no such peer on this machine. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_connect(struct doca_rdma *rdma, const void *remote_rdma_conn_details,
	size_t remote_rdma_conn_details_size, struct doca_rdma_connection *rdma_connection);

/* Makes the address of a server: a numeric address of IPv4 or IPv6, or the GID of its NIC, and the port
 * that it listens to. Errors: INVALID_VALUE for another type or text; NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_addr_create(enum doca_rdma_addr_type addr_type, const char *address, uint16_t port,
	struct doca_rdma_addr **addr);

/* Gets what an address was made of. The text is valid until the address is destroyed. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_addr_get_params(const struct doca_rdma_addr *addr, enum doca_rdma_addr_type *addr_type,
	const char **address, uint16_t *port);

/* Gets the address of the server: the one that the client connected to, or, at the server, 127.0.0.1 and
 * the port that was called. It belongs to the connection. Errors: BAD_STATE for a connection by
 * descriptors. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_connection_get_addr(const struct doca_rdma_connection *rdma_connection,
	struct doca_rdma_addr **addr);

/* Destroys an address. Connections that were made with it stay. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_addr_destroy(struct doca_rdma_addr *addr);

/* Asks a server for a connection. The callback for established connections, or that for failures, gets
 * the connection with this user data; after a failure it is gone. Where nobody listens yet it asks again
 * for half a second (guess). Errors: BAD_STATE unless the context runs and has a progress engine; FULL if
 * it has all its connections; DRIVER. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_connect_to_addr(struct doca_rdma *rdma, struct doca_rdma_addr *addr,
	union doca_data connection_user_data);

/* Listens to a port, for clients of this user and this machine; a context may listen to several. Ports
 * are not those of TCP. Each client's request calls the callback for requests; without a callback, or if
 * the context has all its connections, it is rejected. Errors: BAD_STATE unless the context runs and has
 * a progress engine; IN_USE if a context listens to the port; OPERATING_SYSTEM. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_start_listen_to_port(struct doca_rdma *rdma, uint16_t port);

/* Stops that; stopping the context does, too. Errors: NOT_FOUND if the context does not listen to it. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_stop_listen_to_port(struct doca_rdma *rdma, uint16_t port);

/* Accepts a request, in its callback or later; the callback for established connections follows. The
 * private data is not sent, as no function of the client would return it. Errors: BAD_STATE if the
 * connection waits for no answer; NOT_CONNECTED if the client is gone; INVALID_VALUE for a length with
 * NULL. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_connection_accept(struct doca_rdma_connection *rdma_connection, void *private_data,
	uint8_t private_data_len);

/* Rejects a request: the connection is gone, and the client's callback for failures is called. Errors:
 * BAD_STATE if the connection waits for no answer. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_connection_reject(struct doca_rdma_connection *rdma_connection);

/* Ends a connection: its tasks complete with IO_FAILED, those of the peer as well. Errors:
 * BAD_STATE unless it is connected. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_connection_disconnect(struct doca_rdma_connection *rdma_connection);

/* Sets the program's data of a connection. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_connection_set_user_data(struct doca_rdma_connection *rdma_connection,
	union doca_data connection_user_data);

/* Gets the program's data of a connection. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_connection_get_user_data(const struct doca_rdma_connection *rdma_connection,
	union doca_data *connection_user_data);

/* Gets the number of a connection in its context, from 0. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_connection_get_id(const struct doca_rdma_connection *rdma_connection,
	uint32_t *connection_id);

/* Gets the context for device code (doca_gpunetio_dev_rdma.cuh), valid until the context is stopped. Its data
 * path is on a GPU (doca_ctx_set_datapath_on_gpu()), and it is started; connections may be made later.
 * Errors: BAD_STATE otherwise. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_get_gpu_handle(struct doca_rdma *rdma, struct doca_gpu_dev_rdma **gpu_rdma);

/* Set the number of tasks of a type, and the callbacks for success and failure. Errors: BAD_STATE if the
 * context is started; INVALID_VALUE if a callback is NULL or the number is 0 or above 65,536. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_receive_set_conf(struct doca_rdma *rdma,
	doca_rdma_task_receive_completion_cb_t successful_task_completion_cb,
	doca_rdma_task_receive_completion_cb_t error_task_completion_cb, uint32_t num_tasks);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_send_set_conf(struct doca_rdma *rdma,
	doca_rdma_task_send_completion_cb_t successful_task_completion_cb,
	doca_rdma_task_send_completion_cb_t error_task_completion_cb, uint32_t num_tasks);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_send_imm_set_conf(struct doca_rdma *rdma,
	doca_rdma_task_send_imm_completion_cb_t successful_task_completion_cb,
	doca_rdma_task_send_imm_completion_cb_t error_task_completion_cb, uint32_t num_tasks);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_read_set_conf(struct doca_rdma *rdma,
	doca_rdma_task_read_completion_cb_t successful_task_completion_cb,
	doca_rdma_task_read_completion_cb_t error_task_completion_cb, uint32_t num_tasks);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_write_set_conf(struct doca_rdma *rdma,
	doca_rdma_task_write_completion_cb_t successful_task_completion_cb,
	doca_rdma_task_write_completion_cb_t error_task_completion_cb, uint32_t num_tasks);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_write_imm_set_conf(struct doca_rdma *rdma,
	doca_rdma_task_write_imm_completion_cb_t successful_task_completion_cb,
	doca_rdma_task_write_imm_completion_cb_t error_task_completion_cb, uint32_t num_tasks);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_atomic_cmp_swp_set_conf(struct doca_rdma *rdma,
	doca_rdma_task_atomic_cmp_swp_completion_cb_t successful_task_completion_cb,
	doca_rdma_task_atomic_cmp_swp_completion_cb_t error_task_completion_cb, uint32_t num_tasks);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_atomic_fetch_add_set_conf(struct doca_rdma *rdma,
	doca_rdma_task_atomic_fetch_add_completion_cb_t successful_task_completion_cb,
	doca_rdma_task_atomic_fetch_add_completion_cb_t error_task_completion_cb, uint32_t num_tasks);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_remote_net_sync_event_get_set_conf(struct doca_rdma *rdma,
	doca_rdma_task_remote_net_sync_event_get_completion_cb_t successful_task_completion_cb,
	doca_rdma_task_remote_net_sync_event_get_completion_cb_t error_task_completion_cb, uint32_t num_tasks);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_remote_net_sync_event_notify_set_set_conf(struct doca_rdma *rdma,
	doca_rdma_task_remote_net_sync_event_notify_set_completion_cb_t successful_task_completion_cb,
	doca_rdma_task_remote_net_sync_event_notify_set_completion_cb_t error_task_completion_cb, uint32_t num_tasks);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_remote_net_sync_event_notify_add_set_conf(struct doca_rdma *rdma,
	doca_rdma_task_remote_net_sync_event_notify_add_completion_cb_t successful_task_completion_cb,
	doca_rdma_task_remote_net_sync_event_notify_add_completion_cb_t error_task_completion_cb, uint32_t num_tasks);

/* Allocate one of the configured tasks. Errors: BAD_STATE if the context is not running; NO_MEMORY if all
 * tasks of the type are allocated; INVALID_VALUE for an invalid connection, buffer or event. */

/* dst_buf may be NULL, for a message without bytes or a write with an immediate value. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_receive_allocate_init(struct doca_rdma *rdma, struct doca_buf *dst_buf, union doca_data user_data,
	struct doca_rdma_task_receive **task);

/* src_buf may be NULL, for a message without bytes. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_send_allocate_init(struct doca_rdma *rdma, struct doca_rdma_connection *rdma_connection, const struct doca_buf *src_buf, union doca_data user_data,
	struct doca_rdma_task_send **task);
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_send_imm_allocate_init(struct doca_rdma *rdma, struct doca_rdma_connection *rdma_connection, const struct doca_buf *src_buf,
	doca_be32_t immediate_data, union doca_data user_data,
	struct doca_rdma_task_send_imm **task);

/* src_buf is the peer's. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_read_allocate_init(struct doca_rdma *rdma, struct doca_rdma_connection *rdma_connection, const struct doca_buf *src_buf, struct doca_buf *dst_buf, union doca_data user_data,
	struct doca_rdma_task_read **task);

/* dst_buf is the peer's. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_write_allocate_init(struct doca_rdma *rdma, struct doca_rdma_connection *rdma_connection, const struct doca_buf *src_buf, struct doca_buf *dst_buf, union doca_data user_data,
	struct doca_rdma_task_write **task);

/* dst_buf is the peer's. It uses a receive of the peer. Without bytes, both buffers may be NULL. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_write_imm_allocate_init(struct doca_rdma *rdma, struct doca_rdma_connection *rdma_connection, const struct doca_buf *src_buf, struct doca_buf *dst_buf,
	doca_be32_t immediate_data, union doca_data user_data,
	struct doca_rdma_task_write_imm **task);

/* dst_buf is the peer's word of 8 bytes, aligned; result_buf gets its old value. The word becomes swap_data if
 * it is cmp_data. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_atomic_cmp_swp_allocate_init(struct doca_rdma *rdma, struct doca_rdma_connection *rdma_connection, struct doca_buf *dst_buf, struct doca_buf *result_buf,
	uint64_t cmp_data, uint64_t swap_data, union doca_data user_data,
	struct doca_rdma_task_atomic_cmp_swp **task);

/* The same, but add_data is added to the word. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_atomic_fetch_add_allocate_init(struct doca_rdma *rdma, struct doca_rdma_connection *rdma_connection, struct doca_buf *dst_buf, struct doca_buf *result_buf,
	uint64_t add_data, union doca_data user_data,
	struct doca_rdma_task_atomic_fetch_add **task);

/* Appends the value of a peer's sync event, 8 bytes, to dst_buf. Tasks on sync events start when those before
 * them on the connection have completed, and are executed by doca_pe_progress(); a later write may arrive
 * before. The event may be of any process. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_remote_net_sync_event_get_allocate_init(
	struct doca_rdma *rdma, struct doca_rdma_connection *rdma_connection,
	struct doca_sync_event_remote_net *event, struct doca_buf *dst_buf, union doca_data user_data,
	struct doca_rdma_task_remote_net_sync_event_get **task);

/* Sets a peer's sync event to the 8 bytes of src_buf. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_remote_net_sync_event_notify_set_allocate_init(
	struct doca_rdma *rdma, struct doca_rdma_connection *rdma_connection,
	struct doca_sync_event_remote_net *event, const struct doca_buf *src_buf, union doca_data user_data,
	struct doca_rdma_task_remote_net_sync_event_notify_set **task);

/* Adds to a peer's sync event, and appends its previous value to result_buf. */
DOCA_EXPERIMENTAL
doca_error_t doca_rdma_task_remote_net_sync_event_notify_add_allocate_init(
	struct doca_rdma *rdma, struct doca_rdma_connection *rdma_connection,
	struct doca_sync_event_remote_net *event, struct doca_buf *result_buf, uint64_t add_data, union doca_data user_data,
	struct doca_rdma_task_remote_net_sync_event_notify_add **task);

/* Return the task; NULL for an invalid handle. */
DOCA_EXPERIMENTAL
struct doca_task *doca_rdma_task_receive_as_task(struct doca_rdma_task_receive *task);
DOCA_EXPERIMENTAL
struct doca_task *doca_rdma_task_send_as_task(struct doca_rdma_task_send *task);
DOCA_EXPERIMENTAL
struct doca_task *doca_rdma_task_send_imm_as_task(struct doca_rdma_task_send_imm *task);
DOCA_EXPERIMENTAL
struct doca_task *doca_rdma_task_read_as_task(struct doca_rdma_task_read *task);
DOCA_EXPERIMENTAL
struct doca_task *doca_rdma_task_write_as_task(struct doca_rdma_task_write *task);
DOCA_EXPERIMENTAL
struct doca_task *doca_rdma_task_write_imm_as_task(struct doca_rdma_task_write_imm *task);
DOCA_EXPERIMENTAL
struct doca_task *doca_rdma_task_atomic_cmp_swp_as_task(struct doca_rdma_task_atomic_cmp_swp *task);
DOCA_EXPERIMENTAL
struct doca_task *doca_rdma_task_atomic_fetch_add_as_task(struct doca_rdma_task_atomic_fetch_add *task);
DOCA_EXPERIMENTAL
struct doca_task *doca_rdma_task_remote_net_sync_event_get_as_task(
	struct doca_rdma_task_remote_net_sync_event_get *task);
DOCA_EXPERIMENTAL
struct doca_task *doca_rdma_task_remote_net_sync_event_notify_set_as_task(
	struct doca_rdma_task_remote_net_sync_event_notify_set *task);
DOCA_EXPERIMENTAL
struct doca_task *doca_rdma_task_remote_net_sync_event_notify_add_as_task(
	struct doca_rdma_task_remote_net_sync_event_notify_add *task);

/* Set a field, which is ignored while the task is in flight, and return it; NULL or 0 for an invalid
 * handle. */
DOCA_EXPERIMENTAL
void doca_rdma_task_receive_set_dst_buf(struct doca_rdma_task_receive *task, struct doca_buf *dst_buf);
DOCA_EXPERIMENTAL
struct doca_buf *doca_rdma_task_receive_get_dst_buf(const struct doca_rdma_task_receive *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_send_set_src_buf(struct doca_rdma_task_send *task, const struct doca_buf *src_buf);
DOCA_EXPERIMENTAL
const struct doca_buf *doca_rdma_task_send_get_src_buf(const struct doca_rdma_task_send *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_send_imm_set_src_buf(struct doca_rdma_task_send_imm *task, const struct doca_buf *src_buf);
DOCA_EXPERIMENTAL
const struct doca_buf *doca_rdma_task_send_imm_get_src_buf(const struct doca_rdma_task_send_imm *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_send_imm_set_immediate_data(struct doca_rdma_task_send_imm *task, doca_be32_t immediate_data);
DOCA_EXPERIMENTAL
doca_be32_t doca_rdma_task_send_imm_get_immediate_data(const struct doca_rdma_task_send_imm *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_read_set_src_buf(struct doca_rdma_task_read *task, const struct doca_buf *src_buf);
DOCA_EXPERIMENTAL
const struct doca_buf *doca_rdma_task_read_get_src_buf(const struct doca_rdma_task_read *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_read_set_dst_buf(struct doca_rdma_task_read *task, struct doca_buf *dst_buf);
DOCA_EXPERIMENTAL
struct doca_buf *doca_rdma_task_read_get_dst_buf(const struct doca_rdma_task_read *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_write_set_src_buf(struct doca_rdma_task_write *task, const struct doca_buf *src_buf);
DOCA_EXPERIMENTAL
const struct doca_buf *doca_rdma_task_write_get_src_buf(const struct doca_rdma_task_write *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_write_set_dst_buf(struct doca_rdma_task_write *task, struct doca_buf *dst_buf);
DOCA_EXPERIMENTAL
struct doca_buf *doca_rdma_task_write_get_dst_buf(const struct doca_rdma_task_write *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_write_imm_set_src_buf(struct doca_rdma_task_write_imm *task, const struct doca_buf *src_buf);
DOCA_EXPERIMENTAL
const struct doca_buf *doca_rdma_task_write_imm_get_src_buf(const struct doca_rdma_task_write_imm *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_write_imm_set_dst_buf(struct doca_rdma_task_write_imm *task, struct doca_buf *dst_buf);
DOCA_EXPERIMENTAL
struct doca_buf *doca_rdma_task_write_imm_get_dst_buf(const struct doca_rdma_task_write_imm *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_write_imm_set_immediate_data(struct doca_rdma_task_write_imm *task, doca_be32_t immediate_data);
DOCA_EXPERIMENTAL
doca_be32_t doca_rdma_task_write_imm_get_immediate_data(const struct doca_rdma_task_write_imm *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_atomic_cmp_swp_set_dst_buf(struct doca_rdma_task_atomic_cmp_swp *task, struct doca_buf *dst_buf);
DOCA_EXPERIMENTAL
struct doca_buf *doca_rdma_task_atomic_cmp_swp_get_dst_buf(const struct doca_rdma_task_atomic_cmp_swp *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_atomic_cmp_swp_set_result_buf(struct doca_rdma_task_atomic_cmp_swp *task, struct doca_buf *result_buf);
DOCA_EXPERIMENTAL
struct doca_buf *doca_rdma_task_atomic_cmp_swp_get_result_buf(const struct doca_rdma_task_atomic_cmp_swp *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_atomic_cmp_swp_set_cmp_data(struct doca_rdma_task_atomic_cmp_swp *task, uint64_t cmp_data);
DOCA_EXPERIMENTAL
uint64_t doca_rdma_task_atomic_cmp_swp_get_cmp_data(const struct doca_rdma_task_atomic_cmp_swp *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_atomic_cmp_swp_set_swap_data(struct doca_rdma_task_atomic_cmp_swp *task, uint64_t swap_data);
DOCA_EXPERIMENTAL
uint64_t doca_rdma_task_atomic_cmp_swp_get_swap_data(const struct doca_rdma_task_atomic_cmp_swp *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_atomic_fetch_add_set_dst_buf(struct doca_rdma_task_atomic_fetch_add *task, struct doca_buf *dst_buf);
DOCA_EXPERIMENTAL
struct doca_buf *doca_rdma_task_atomic_fetch_add_get_dst_buf(const struct doca_rdma_task_atomic_fetch_add *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_atomic_fetch_add_set_result_buf(struct doca_rdma_task_atomic_fetch_add *task, struct doca_buf *result_buf);
DOCA_EXPERIMENTAL
struct doca_buf *doca_rdma_task_atomic_fetch_add_get_result_buf(const struct doca_rdma_task_atomic_fetch_add *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_atomic_fetch_add_set_add_data(struct doca_rdma_task_atomic_fetch_add *task, uint64_t add_data);
DOCA_EXPERIMENTAL
uint64_t doca_rdma_task_atomic_fetch_add_get_add_data(const struct doca_rdma_task_atomic_fetch_add *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_remote_net_sync_event_get_set_dst_buf(
	struct doca_rdma_task_remote_net_sync_event_get *task, struct doca_buf *dst_buf);
DOCA_EXPERIMENTAL
struct doca_buf *doca_rdma_task_remote_net_sync_event_get_get_dst_buf(
	const struct doca_rdma_task_remote_net_sync_event_get *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_remote_net_sync_event_notify_set_set_src_buf(
	struct doca_rdma_task_remote_net_sync_event_notify_set *task, const struct doca_buf *src_buf);
DOCA_EXPERIMENTAL
const struct doca_buf *doca_rdma_task_remote_net_sync_event_notify_set_get_src_buf(
	const struct doca_rdma_task_remote_net_sync_event_notify_set *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_remote_net_sync_event_notify_add_set_result_buf(
	struct doca_rdma_task_remote_net_sync_event_notify_add *task, struct doca_buf *result_buf);
DOCA_EXPERIMENTAL
struct doca_buf *doca_rdma_task_remote_net_sync_event_notify_add_get_result_buf(
	const struct doca_rdma_task_remote_net_sync_event_notify_add *task);
DOCA_EXPERIMENTAL
void doca_rdma_task_remote_net_sync_event_notify_add_set_add_data(
	struct doca_rdma_task_remote_net_sync_event_notify_add *task, uint64_t add_data);
DOCA_EXPERIMENTAL
uint64_t doca_rdma_task_remote_net_sync_event_notify_add_get_add_data(
	const struct doca_rdma_task_remote_net_sync_event_notify_add *task);

/* Returns what the receive got; RECV_SEND for an invalid handle. */
DOCA_EXPERIMENTAL
enum doca_rdma_opcode doca_rdma_task_receive_get_result_opcode(const struct doca_rdma_task_receive *task);

/* Returns the number of bytes that were received, or written by the peer; 0 for an invalid
 * handle. */
DOCA_EXPERIMENTAL
uint32_t doca_rdma_task_receive_get_result_len(const struct doca_rdma_task_receive *task);

/* Returns the immediate value that was received, as it was sent; 0 if there is none. */
DOCA_EXPERIMENTAL
doca_be32_t doca_rdma_task_receive_get_result_immediate_data(const struct doca_rdma_task_receive *task);

/* Returns the connection over which it was received; NULL for an invalid handle. */
DOCA_EXPERIMENTAL
const struct doca_rdma_connection *doca_rdma_task_receive_get_result_rdma_connection(
	const struct doca_rdma_task_receive *task);

/* Up to DOCA 2.8: return, and make, the connection of a context that has one. */
__attribute__((visibility("default")))
struct doca_rdma_connection *softdoca_rdma_connection(struct doca_rdma *rdma);
__attribute__((visibility("default")))
doca_error_t softdoca_rdma_export(struct doca_rdma *rdma, const void **details, size_t *size);

#if DOCA_FORM_rdma_connection
#define doca_rdma_export softdoca_rdma_export
#define doca_rdma_connect(rdma, details, size) \
	doca_rdma_connect(rdma, details, size, softdoca_rdma_connection(rdma))
#define doca_rdma_connection_accept(connection) doca_rdma_connection_accept(connection, NULL, 0)
#define doca_rdma_task_send_allocate_init(rdma, ...) \
	doca_rdma_task_send_allocate_init(rdma, softdoca_rdma_connection(rdma), __VA_ARGS__)
#define doca_rdma_task_send_imm_allocate_init(rdma, ...) \
	doca_rdma_task_send_imm_allocate_init(rdma, softdoca_rdma_connection(rdma), __VA_ARGS__)
#define doca_rdma_task_read_allocate_init(rdma, ...) \
	doca_rdma_task_read_allocate_init(rdma, softdoca_rdma_connection(rdma), __VA_ARGS__)
#define doca_rdma_task_write_allocate_init(rdma, ...) \
	doca_rdma_task_write_allocate_init(rdma, softdoca_rdma_connection(rdma), __VA_ARGS__)
#define doca_rdma_task_write_imm_allocate_init(rdma, ...) \
	doca_rdma_task_write_imm_allocate_init(rdma, softdoca_rdma_connection(rdma), __VA_ARGS__)
#define doca_rdma_task_atomic_cmp_swp_allocate_init(rdma, ...) \
	doca_rdma_task_atomic_cmp_swp_allocate_init(rdma, softdoca_rdma_connection(rdma), __VA_ARGS__)
#define doca_rdma_task_atomic_fetch_add_allocate_init(rdma, ...) \
	doca_rdma_task_atomic_fetch_add_allocate_init(rdma, softdoca_rdma_connection(rdma), __VA_ARGS__)
#define doca_rdma_task_remote_net_sync_event_get_allocate_init(rdma, ...) \
	doca_rdma_task_remote_net_sync_event_get_allocate_init(rdma, softdoca_rdma_connection(rdma), __VA_ARGS__)
#define doca_rdma_task_remote_net_sync_event_notify_set_allocate_init(rdma, ...) \
	doca_rdma_task_remote_net_sync_event_notify_set_allocate_init(rdma, softdoca_rdma_connection(rdma), __VA_ARGS__)
#define doca_rdma_task_remote_net_sync_event_notify_add_allocate_init(rdma, ...) \
	doca_rdma_task_remote_net_sync_event_notify_add_allocate_init(rdma, softdoca_rdma_connection(rdma), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif

#endif
