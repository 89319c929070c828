/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of Comch: messages between two processes of one user, over a SEQPACKET socket in
 * dgkit's folder.
 *
 *   endpoint.c          common code of clients and servers: configuration, states, progress
 *   comch_connection.c  connections: handshake, received packets, end
 *   listen.c            sockets of servers, and how clients find them
 *   comch_send.c        send tasks
 *   sides.c, caps.c     public functions of clients and servers; capabilities
 *   fast.h              the fast path: consumers and producers of a connection
 *
 *      client                                   server
 *      doca_ctx_start: connect, HELLO --------> accepted, in doca_pe_progress: GREETING
 *      STARTING                        WELCOME  OPEN, the connect event
 *      RUNNING, OPEN <------------------------- (or REFUSED: the client goes STOPPING, IDLE)
 *      MESSAGE <------------------------------> MESSAGE
 *      end of file: STOPPING, IDLE <----------> end of file: the disconnect event
 */
#ifndef SOFTDOCA_COMCH_H
#define SOFTDOCA_COMCH_H

#include <sys/types.h>

#include "comch_hold.h"
#include "doca_comch.h"
#include "memory/memory.h"
#include "progress/progress.h"

/* The limit that public programs use on BlueField-3. */
#define MSG_MAX 4080u
/* guesses: no public figures are known */
#define NAME_MAX_LEN   120u /* with its terminating 0 */
#define CLIENTS_MAX    512u
#define SEND_TASKS_MAX 8192u
#define RECV_QUEUE_MAX 8192u
#define RECV_QUEUE     512u
/* How long a starting client waits for a server that does not listen yet. guess: the guide
 * requires the server to be started first and does not define what happens otherwise. */
#define CONNECT_NS ((uint64_t)3 * 1000 * 1000 * 1000)
#define RETRY_NS   (5 * 1000 * 1000)

enum packet_kind {
	PACKET_HELLO = 1,
	PACKET_WELCOME,
	PACKET_REFUSED,
	PACKET_MESSAGE,
	PACKET_CONSUMER, /* used by the fast path: see fast.h */
};
#define PACKET_MAGIC   0x63636473u
#define PACKET_VERSION 3u

struct packet {
	uint32_t magic;
	uint16_t version, kind;
};
struct hello {
	struct packet p;
	uint32_t max_msg;
	char name[NAME_MAX_LEN];
	char function[DOCA_DEVINFO_VUID_SIZE];
};
/* WELCOME and REFUSED. */
struct reply {
	struct packet p;
	uint32_t max_msg;
	uint32_t error; /* doca_error_t */
};
struct message {
	struct packet p;
	uint8_t bytes[MSG_MAX];
};

/* A pending event for doca_pe_progress to deliver: a completed task, a consumer of the other side
 * that expired, or a connection that ended. */
struct item {
	struct item *next;
	struct doca_comch_task_send *task; /* NULL: another kind of event */
	struct remote *consumer; /* NULL: the event is about the connection */
	struct doca_comch_connection *connection;
};
struct items {
	struct item *first, *last;
};

enum connection_state {
	GREETING, /* server: accepted, HELLO pending; client: WELCOME pending */
	OPEN,
	OVER,
};

struct doca_comch_connection {
	struct object o;
	struct endpoint *e;
	struct doca_comch_connection *next, **link; /* of the endpoint's list */
	enum connection_state state;
	int fd;
	uint64_t id; /* handles are reused, ids are not */
	uint32_t peer_max;
	union doca_data user_data;
	struct items pending; /* tasks that wait for space in the socket, in order */
	struct item over;
	struct fast_link *fast; /* of the fast path */
};

struct doca_comch_task_send {
	struct object o; /* OBJECT_COMCH_SEND, or OBJECT_FREE while not allocated */
	_Alignas(64) struct doca_task task;
	struct doca_comch_connection *connection;
	uint64_t connection_id;
	struct message *message;
	uint32_t len;
	doca_error_t status;
	struct item item;
	struct doca_comch_task_send *next_free, *next;
};

/* A client or a server. */
struct endpoint {
	struct object o;
	_Alignas(64) struct doca_ctx ctx;
	_Alignas(64) struct object event; /* passed to the callbacks of events */
	bool is_server;
	char name[NAME_MAX_LEN];
	char function[DOCA_DEVINFO_VUID_SIZE]; /* of the host: the served or the client's own */
	struct doca_dev_rep *rep;
	uint32_t max_msg, recv_queue, n_tasks;
	doca_comch_task_send_completion_cb_t completion_cb, error_cb;
	doca_comch_event_msg_recv_cb_t recv_cb;
	doca_comch_event_connection_status_changed_cb_t connect_cb, disconnect_cb;
	doca_comch_event_consumer_cb_t consumer_cb, expired_cb; /* NULL: not registered */

	/* Valid from start() to ended(). */
	pid_t pid; /* of the process that started it; a forked child only inherits the handles */
	int epoll_fd, timer_fd, listen_fd, lock_fd, spare_fd;
	bool sockets_first;
	bool full; /* messages stay in the sockets: see softdoca_comch_hold() */
	uint64_t deadline_ns, last_id;
	struct doca_comch_connection *connections;
	uint32_t n_connections;
	struct items items;
	struct doca_comch_task_send *tasks, *free_tasks;
	uint8_t *slots;
	struct endpoint *next_started;
};

struct doca_comch_client {
	struct endpoint e;
};
struct doca_comch_server {
	struct endpoint e;
};

OWNER(endpoint_of, struct endpoint, struct doca_ctx, ctx)

static inline void items_add(struct items *q, struct item *i)
{
	i->next = NULL;
	*(q->first ? &q->last->next : &q->first) = i;
	q->last = i;
}

static inline struct item *items_take(struct items *q)
{
	struct item *i = q->first;
	if (i)
		q->first = i->next;
	return i;
}

/* ---- endpoint.c ---- */

/* Creates a client on dev's own function, or a server for the host's function that rep represents.
 */
doca_error_t comch_endpoint_new(struct doca_dev *dev, struct doca_dev_rep *rep, const char *name,
				enum object_kind kind, struct endpoint **out);
doca_error_t comch_endpoint_destroy(struct endpoint *e);
/* Returns BAD_STATE, logged, unless the context is IDLE and can be configured. */
doca_error_t comch_configurable(const struct endpoint *e, const char *what);
doca_error_t comch_set_max_msg(struct endpoint *e, uint32_t size);
doca_error_t comch_set_recv_queue(struct endpoint *e, uint32_t size);
doca_error_t comch_set_recv_cb(struct endpoint *e, doca_comch_event_msg_recv_cb_t cb);
doca_error_t comch_set_consumer_cbs(struct endpoint *e, doca_comch_event_consumer_cb_t added,
				    doca_comch_event_consumer_cb_t expired);
/* Queues an event for doca_pe_progress and wakes a waiting program. */
void comch_notify(struct endpoint *e, struct item *i);
/* Adds fd to e->epoll_fd; `what` identifies its owner. */
doca_error_t comch_watch(struct endpoint *e, int fd, void *what);

/* caps.c: gets a limit of a device that can be a client or a server. */
doca_error_t comch_get_limit(const struct doca_devinfo *devinfo, uint32_t value, uint32_t *out);
/* Defines a public function that stores a limit. */
#define LIMIT(function, limit)                                                       \
	doca_error_t function(const struct doca_devinfo *devinfo, uint32_t *result)  \
	{                                                                            \
		return comch_get_limit(devinfo, limit, result);                          \
	}

/* ---- listen.c: how a server is found ---- */

doca_error_t comch_listen(struct endpoint *e);
void comch_listen_end(struct endpoint *e);
/* Removes the socket and the lock file of a server that listens in this process. */
void comch_remove_files(const struct endpoint *e);
/* Removes the files of servers that were killed. */
void comch_sweep(const struct endpoint *e);
/* Accepts a connection. */
void comch_accept(struct endpoint *e);
/* Tries to connect a client. Returns IN_PROGRESS if no server listens yet. */
doca_error_t comch_connect(struct endpoint *e);

/* ---- comch_connection.c ---- */

struct doca_comch_connection *comch_connection_new(struct endpoint *e, int fd);
/* Watches the connection's socket for what it now waits for. */
void comch_connection_watch(struct doca_comch_connection *c);
/* Handles events of the connection's socket, with at most one callback. Returns whether one was
 * called. */
bool comch_connection_event(struct doca_comch_connection *c, uint32_t events);
/* Closes the connection; tasks that were not sent complete with `error`. The object stays valid. */
void comch_connection_end(struct doca_comch_connection *c, doca_error_t error);
/* Removes the connection from the endpoint's list; to be called before a callback that may end the
 * endpoint. */
void comch_connection_unlist(struct doca_comch_connection *c);
void comch_connection_free(struct doca_comch_connection *c);
/* Sends a packet. Returns 0, or -EAGAIN if the socket is full, or another negative errno. */
int comch_put(int fd, const void *packet, size_t size);
int comch_reply(int fd, enum packet_kind kind, uint32_t max_msg, doca_error_t error);
/* Returns whether the peer of fd is a process of this user. */
bool comch_same_user(int fd);

/* ---- comch_send.c ---- */

doca_error_t comch_tasks_new(struct endpoint *e);
void comch_tasks_free(struct endpoint *e);
doca_error_t comch_send_set_conf(struct endpoint *e, doca_comch_task_send_completion_cb_t done,
				 doca_comch_task_send_completion_cb_t failed, uint32_t n);
doca_error_t comch_send_alloc(struct endpoint *e, struct doca_comch_connection *peer,
			      const void *msg, uint32_t len, struct doca_comch_task_send **task);
doca_error_t comch_submit(struct doca_task *task, uint32_t flags);
void comch_free_task(struct doca_task *task);
void comch_send_done(struct doca_comch_task_send *t, doca_error_t status);
/* Sends waiting tasks; called when the socket has space again. */
void comch_send_pending(struct doca_comch_connection *c);
void comch_deliver(struct doca_comch_task_send *t);

#endif
