/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast path of Comch: consumers and producers of a connection.
 *
 *   link.c      what a connection, its consumers and its producers share; consumers of the other side
 *   party.c     common part of consumers and producers: contexts, tasks, waking
 *   parcel.c    messages of the fast path, from and to a program's memory
 *   consumer.c, producer.c   each of the two, with its public functions
 *
 *      consumer                                       the other side
 *      doca_ctx_start: a channel (a pair of SEQPACKET
 *      sockets) and a counter of receives (an eventfd)
 *      progress: CONSUMER with both fds ------------> the event of a new consumer
 *      a receive is submitted: counter + 1            a send is submitted: counter - 1 (AGAIN if 0),
 *      progress: into its buffer <------------------- then the message, into the channel
 *      end: the channel is closed ------------------> the event that it expired
 *
 * So a send needs no progress of the consumer, the death of either side closes the channel, and no
 * process ever writes to another's memory. Producers in any thread share a consumer's channel and
 * counter. A message above INLINE_MAX is in a memfd.
 *
 * Threads. Endpoint, consumer and producer may belong to three progress engines. What they share is
 * guarded by one lock of the process (fast_lock), also against fork(). Only `over` and `woken` are read
 * without it.
 */
#ifndef SOFTDOCA_FAST_H
#define SOFTDOCA_FAST_H

#include <sys/uio.h>

#include "comch.h"
#include "doca_comch_consumer.h"
#include "doca_comch_producer.h"

/* As DOCA's guide for the DPA has it. */
#define IMM_MAX 32u
/* As DOCA's guide has it: "1GB or more". */
#define FAST_MAX ((uint32_t)1 << 30)
/* guesses: no public figures are known */
#define FAST_TASKS_MAX 8192u
#define PARTIES_MAX    64u /* consumers, or producers, of one side of a connection */
/* Of the other side, with those that expired but were not noticed yet. */
#define REMOTES_MAX (4 * PARTIES_MAX)
/* Far below the default of a socket's buffer, 208 KiB. */
#define INLINE_MAX ((size_t)32 << 10)

/* CONSUMER: has the fds of the channel and of the counter. */
struct announcement {
	struct packet p;
	uint32_t id, imm_max;
};

#define PARCEL_MAGIC 0x70636473u
struct parcel {
	uint32_t magic, producer, imm_len, in_memfd;
	uint64_t size;
	uint8_t imm[IMM_MAX];
};

struct fast_link {
	struct fast_link *next; /* in the list of the process */
	uint32_t refs; /* the connection, and each consumer and producer */
	int fd; /* the connection's socket; -1: it has ended */
	atomic_bool over; /* it has ended */
	struct doca_dev *dev;
	struct party *parties;
	struct remote *remotes;
	uint32_t n_consumers, n_producers, n_remotes;
	uint32_t next_consumer, next_producer; /* ids: of clients odd, of servers even */
};

/* A consumer of the other side. */
struct remote {
	struct object o;
	struct endpoint *e;
	struct doca_comch_connection *c;
	struct fast_link *link;
	struct remote *next;
	uint32_t id, imm_max;
	int fd, counter; /* fd: the channel */
	uint64_t full_in; /* the pass of a producer that found the channel full */
	struct item expired;
};

enum fast_place { NOWHERE, IN_PENDING, IN_DONE };

/* A task of a consumer or a producer. */
struct fast_task {
	struct object o; /* OBJECT_FREE while not allocated */
	_Alignas(64) struct doca_task task;
	struct doca_buf *buf;
	struct doca_buf *held; /* the buffer that it has a reference to while it is in flight */
	uint32_t peer; /* id of the consumer to send to, or of the producer received from */
	uint32_t imm_len;
	uint8_t imm[IMM_MAX];
	doca_error_t status;
	int memfd; /* of a large message that waits for space; else -1 */
	enum fast_place place;
	struct fast_task *next; /* in its list */
	struct fast_task *next_free, *next_made;
};
struct doca_comch_producer_task_send {
	struct fast_task t;
};
struct doca_comch_consumer_task_post_recv {
	struct fast_task t;
};

struct fast_list {
	struct fast_task *first, *last;
};

/* A consumer or a producer of this process. */
struct party {
	struct object o;
	uint32_t id;
	bool is_consumer;
	_Alignas(64) struct doca_ctx ctx;
	struct fast_link *link;
	struct party *next; /* of the link */
	uint32_t n_tasks; /* 0: not configured */
	enum object_kind task_kind;
	void (*call)(struct party *p, struct fast_task *t); /* the program's callback */

	/* From the start to the end. */
	int epoll_fd; /* the context's fd, over the others */
	int wake_fd; /* an eventfd: another thread has changed the link */
	atomic_bool woken; /* wake_fd is readable */
	struct fast_list pending; /* receives; or sends that found a channel full */
	struct fast_list done; /* to be delivered */
	struct fast_task *tasks, *free_tasks;
	int channel, counter; /* of a consumer */
	int offered; /* the other end of the channel, until it is sent */
};

struct doca_comch_consumer {
	struct party p;
	struct doca_mmap *mmap;
	uint32_t imm_max;
	doca_comch_consumer_task_post_recv_completion_cb_t done_cb, error_cb;
};
struct doca_comch_producer {
	struct party p;
	uint64_t pass;
	doca_comch_producer_task_send_completion_cb_t done_cb, error_cb;
};

static inline struct party *party_of(const struct doca_ctx *ctx)
{
	return (void *)((char *)(uintptr_t)ctx - offsetof(struct party, ctx));
}

static inline struct fast_task *fast_task_of(const struct doca_task *task)
{
	return (void *)((char *)(uintptr_t)task - offsetof(struct fast_task, task));
}

static inline void fast_add(struct fast_list *l, struct fast_task *t)
{
	t->next = NULL;
	*(l->first ? &l->last->next : &l->first) = t;
	l->last = t;
}

static inline struct fast_task *fast_take(struct fast_list *l)
{
	struct fast_task *t = l->first;
	if (t)
		l->first = t->next;
	return t;
}

/* ---- link.c ---- */

void fast_lock(void);
void fast_unlock(void);
void fast_close(int *fd);
/* Creates the link of a connection over this socket. Returns NULL if out of memory. */
struct fast_link *link_new(const struct endpoint *e, int fd);
/* Ends it: its consumers and producers wake up and stop. The consumers of the other side expire: as
 * events in `events`, or without one. Idempotent. */
void link_end(struct doca_comch_connection *c, struct items *events);
/* Takes the link from a connection that is freed. */
struct fast_link *link_detach(struct doca_comch_connection *c);
/* Gives up a reference. */
void link_leave(struct fast_link *l);
/* Adds a consumer or producer to the link of a connection, with an id. Errors: BAD_STATE; NO_MEMORY. */
doca_error_t link_join(struct doca_comch_connection *c, struct party *p);
void link_part(struct party *p);
/* Whether it has consumers or producers of this side. */
bool link_in_use(struct fast_link *l);
/* Sends CONSUMER. Returns 0 or a negative errno. */
int link_announce(struct party *p, uint32_t imm_max);
/* Handles CONSUMER; takes the fds. Returns whether a callback was called. */
bool remote_announced(struct doca_comch_connection *c, const struct announcement *a, int fds[2]);
/* Handles an event of a channel: its consumer has closed it. Returns whether a callback was called. */
bool remote_expired(struct remote *r);
/* Calls the callback of an expired consumer, and frees it. */
void remote_deliver_expired(struct remote *r);
/* Finds a consumer of the other side. Under the lock. */
struct remote *remote_find(const struct fast_link *l, uint32_t id);

/* ---- party.c ---- */

doca_error_t party_init(struct party *p, struct doca_comch_connection *c, enum object_kind task_kind,
			const struct ctx_ops *ops);
doca_error_t party_destroy(struct party *p);
doca_error_t party_set_tasks(struct party *p, bool callbacks, uint32_t n);
/* Allocates what a started context needs. party_ended() frees it, also after a failure. */
doca_error_t party_start(struct party *p);
void party_ended(struct doca_ctx *ctx);
bool party_quiet(struct doca_ctx *ctx);
int party_fileno(struct doca_ctx *ctx);
bool party_arm(struct doca_ctx *ctx);
void party_disarm(struct doca_ctx *ctx);
void party_free_task(struct doca_task *task);
/* Wakes its program, from any thread. Under the lock. */
void party_wake(struct party *p);
/* Reverts party_wake(), in its own thread. */
void party_woken(struct party *p);
/* Allocates a task. */
doca_error_t party_alloc(struct party *p, struct doca_buf *buf, struct fast_task **out);
/* Keeps a reference to the buffer of a task that is submitted. Errors: those of doca_buf_inc_refcount. */
doca_error_t party_hold(struct fast_task *t);
/* Gives up the task's reference and its memfd. */
void party_let_go(struct fast_task *t);
/* Ends a task's flight: it is delivered in its turn. */
void party_done(struct party *p, struct fast_task *t, doca_error_t status);
/* Delivers a task, if there is one. */
bool party_deliver(struct party *p);
/* Removes a task from the lists. */
void party_unlink(struct party *p, struct fast_task *t);
/* Returns the task of a handle of this kind; NULL, logged, if it is invalid. */
struct fast_task *fast_task_check(void *task, enum object_kind kind, const char *func);
/* The same for a task whose fields can be set, which they cannot in flight. */
struct fast_task *fast_task_settable(void *task, enum object_kind kind, const char *func);

/* ---- parcel.c ---- */

/* Receives a packet, with MSG_TRUNC, and at most two fds (else -1). Returns its size, 0 at the end, or
 * a negative errno. */
ssize_t fast_receive(int fd, struct iovec *iov, size_t n, int fds[2]);
/* Sends a packet with n_fds fds. Returns 0 or a negative errno. */
int fast_send(int fd, struct iovec *iov, size_t n, const int *fds, size_t n_fds);
/* Checks a buffer or list that a task of p sends (or receives into): host memory of this process, in
 * `map` unless that is NULL. Writes its size. */
doca_error_t parcel_check(const struct party *p, const struct doca_buf *buf,
			  const struct doca_mmap *map, const char *func);
/* Puts the data of a large message in t->memfd; finds data that is not accessible. Returns 0 or a
 * negative errno. */
int parcel_prepare(struct fast_task *t);
/* Sends a task's message. Returns 0 or a negative errno. */
int parcel_send(const struct party *p, const struct fast_task *t, int channel);
/* Receives a message into a task: its fields and its buffer. Returns 0 with t->status set, or a
 * negative errno: EAGAIN if there is none, EPIPE at the end or for a malformed one. */
int parcel_receive(struct fast_task *t, int channel, uint32_t imm_max);

#endif
