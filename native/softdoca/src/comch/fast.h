/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast path of Comch: consumers and producers of a connection.
 *
 *   link.c           state shared by a connection, its consumers and its producers; remote consumers
 *   fast_ctx.c       common code of consumers and producers: contexts, tasks, waking
 *   fast_message.c   messages of the fast path, from and to a program's memory
 *   consumer.c, producer.c   consumers and producers, with their public functions
 *   comch_gpu.c      those whose data path is on a GPU, and the thread that serves them
 *
 *      consumer                                       the other side's producers
 *      doca_ctx_start: a channel (a pair of SEQPACKET
 *      sockets) and a counter of receives (a word in a
 *      page of shared memory)
 *      progress: CONSUMER with both fds ------------> the event of a new consumer
 *      a receive is submitted: counter + 1            a send is submitted: counter - 1 (AGAIN if 0),
 *      progress: into its buffer <------------------- then the message, into the channel
 *      end: the channel is closed ------------------> the event of an expired consumer
 *
 * So a send does not depend on the consumer making progress, the death of either side closes the
 * channel, and the counter is all that a process writes in another's memory. A producer trusts no
 * number in it, and no call on what it was given can block: an eventfd would, once the other side
 * clears O_NONBLOCK, which is a flag of the description that both share. Producers in all threads share a
 * consumer's channel and counter. A message larger than INLINE_MAX is sent as a memfd.
 *
 * Threads. Endpoint, consumer and producer may belong to three different progress engines. One lock
 * per process (fast_lock) guards the state that they share, and is held across fork(). Only `over`
 * and `woken` are read without holding the lock.
 */
#ifndef SOFTDOCA_FAST_H
#define SOFTDOCA_FAST_H

#include <sys/uio.h>

#include "comch.h"
#include "doca_comch_consumer.h"
#include "doca_comch_producer.h"
#include "doca_gpunetio_dev.h"
#include "gpu/gpu.h"

/* From DOCA's guide for the DPA. */
#define IMM_MAX 32u
/* From DOCA's Comch guide: "1GB or more". */
#define FAST_MAX ((uint32_t)1 << 30)
/* Guesses: no public figures are known. */
#define FAST_TASKS_MAX 8192u
#define CONTEXTS_MAX   64u /* consumers, and likewise producers, of one side of a connection */
/* Consumers of the other side, including expired ones whose event has not been handled yet. */
#define REMOTES_MAX (4 * CONTEXTS_MAX)
/* Ids of consumers and producers are 1, 2, 3 and so on in a client, as public programs count on; those of
 * a server begin here, so that they are unique in the connection. */
#define SERVER_IDS 0x10001u
/* Far below the default size of a socket's buffer, 208 KiB. */
#define INLINE_MAX ((size_t)32 << 10)

/* The message CONSUMER, sent with the fds of the channel and of the counter's page. */
struct announcement {
	struct packet p;
	uint32_t id, imm_max;
};

#define FAST_MESSAGE_MAGIC 0x70636473u
struct fast_message {
	uint32_t magic, producer, imm_len, in_memfd;
	uint64_t size;
	uint8_t imm[IMM_MAX];
};

struct fast_link {
	struct fast_link *next; /* in the list of the process */
	uint32_t refs; /* held by the connection, and by each consumer and producer */
	int fd; /* the connection's socket; -1 once the connection has ended */
	atomic_bool over; /* whether the connection has ended */
	struct doca_dev *dev;
	struct fast_ctx *contexts;
	struct remote *remotes;
	uint32_t n_consumers, n_producers, n_remotes;
	uint32_t next_consumer, next_producer; /* next ids: see SERVER_IDS */
};

/* A consumer of the other side. */
struct remote {
	struct object o;
	struct endpoint *e;
	struct doca_comch_connection *c;
	struct fast_link *link;
	struct remote *next;
	uint32_t id, imm_max;
	int fd; /* the channel */
	_Atomic(uint32_t) *receives; /* the counter, in the consumer's page */
	uint64_t full_in; /* the producer's `pass` in which the channel was found full */
	struct item expired;
};

enum fast_place { NOWHERE, IN_PENDING, IN_DONE };

/* A task of a consumer or a producer. */
struct fast_task {
	struct object o; /* OBJECT_FREE while not allocated */
	_Alignas(64) struct doca_task task;
	struct doca_buf *buf;
	struct doca_buf *held; /* the buffer that is referenced while the task is in flight */
	uint32_t peer; /* id of the consumer to send to, or of the producer received from */
	uint32_t imm_len;
	uint8_t imm[IMM_MAX];
	doca_error_t status;
	int memfd; /* holds a large message that waits for space; otherwise -1 */
	enum fast_place place;
	struct fast_task *next; /* in its list */
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

/* Of a consumer or producer whose data path is on a GPU. Its memory lasts until the next start, or the
 * destruction: a kernel may still look at it when the context has ended by itself. */
struct fast_gpu {
	struct fast_gpu *next; /* served */
	struct fast_ctx *p;
	bool served;
	atomic_bool ended; /* a consumer's channel has ended */
	uint32_t entries; /* of a ring */
	struct gpu_memory *rings, *structure;
	struct doca_priv_comch_gpu_entry *requests, *answers; /* in the rings */
	uint32_t *status; /* likewise */
	struct doca_priv_comch_gpu_entry *held; /* copies of the requests without an answer */
	uint64_t requested, answered;
};

/* A consumer or a producer of this process. */
struct fast_ctx {
	struct object o;
	uint32_t id;
	bool is_consumer;
	_Alignas(64) struct doca_ctx ctx;
	struct fast_link *link;
	struct fast_ctx *next; /* of the link */
	uint32_t n_tasks; /* 0: not configured */
	enum object_kind task_kind;
	void (*call)(struct fast_ctx *p, struct fast_task *t); /* the program's callback */

	/* Valid while the context is started. */
	int epoll_fd; /* the context's fd, which polls the others */
	int wake_fd; /* eventfd by which another thread reports a change of the link */
	atomic_bool woken; /* whether wake_fd is readable */
	struct fast_list pending; /* receives, or sends that found a channel full */
	struct fast_list done; /* completed, to be delivered */
	struct task_pool pool;
	int channel; /* of a consumer */
	_Atomic(uint32_t) *receives; /* of a consumer: its counter, in a page of its own */
	int offered, counter; /* the other end, the page's memfd: until they are sent */
	struct fast_gpu gpu;
};

struct doca_comch_consumer {
	struct fast_ctx p;
	struct doca_mmap *mmap;
	uint32_t imm_max;
	doca_comch_consumer_task_post_recv_completion_cb_t done_cb, error_cb;
};
struct doca_comch_producer {
	struct fast_ctx p;
	uint64_t pass;
	doca_comch_producer_task_send_completion_cb_t done_cb, error_cb;
};

OWNER(fast_ctx_of, struct fast_ctx, struct doca_ctx, ctx)
OWNER(fast_task_of, struct fast_task, struct doca_task, task)

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

/* Counts a receive. relaxed: the message, which comes through the channel, orders the rest. */
static inline void receives_add(_Atomic(uint32_t) *receives)
{
	atomic_fetch_add_explicit(receives, 1, memory_order_relaxed);
}

/* Takes a receive; returns whether there was one. */
static inline bool receives_take(_Atomic(uint32_t) *receives)
{
	uint32_t n = atomic_load_explicit(receives, memory_order_relaxed);
	while (n && !atomic_compare_exchange_weak_explicit(receives, &n, n - 1, memory_order_relaxed,
							   memory_order_relaxed))
		;
	return n;
}

/* ---- link.c ---- */

void fast_lock(void);
void fast_unlock(void);
void fast_close(int *fd);
/* Creates the link of a connection over this socket. Returns NULL if out of memory. */
struct fast_link *link_new(const struct endpoint *e, int fd);
/* Ends the link: its consumers and producers wake up and stop. The consumers of the other side
 * expire, with events in `events` unless that is NULL. Idempotent. */
void link_end(struct doca_comch_connection *c, struct items *events);
/* Detaches and returns the link of a connection that is being freed. */
struct fast_link *link_detach(struct doca_comch_connection *c);
/* Releases a reference. */
void link_leave(struct fast_link *l);
/* Adds a consumer or producer to the link of a connection, with an id. Errors: BAD_STATE;
 * NO_MEMORY. */
doca_error_t link_join(struct doca_comch_connection *c, struct fast_ctx *p);
void link_remove(struct fast_ctx *p);
/* Returns whether the link has consumers or producers of this side. */
bool link_in_use(struct fast_link *l);
/* Sends CONSUMER. Returns 0 or a negative errno. */
int link_announce(struct fast_ctx *p, uint32_t imm_max);
/* Handles CONSUMER and takes ownership of the fds. Returns whether a callback was called. */
bool remote_announced(struct doca_comch_connection *c, const struct announcement *a, int fds[2]);
/* Handles the closing of a channel by its consumer. Returns whether a callback was called. */
bool remote_expired(struct remote *r);
/* Calls the callback of an expired consumer, and frees it. */
void remote_deliver_expired(struct remote *r);
/* Finds a consumer of the other side. Call it with the lock held. */
struct remote *remote_find(const struct fast_link *l, uint32_t id);

/* ---- fast_ctx.c ---- */

doca_error_t fast_ctx_init(struct fast_ctx *p, struct doca_comch_connection *c,
			   enum object_kind task_kind, const struct ctx_ops *ops);
doca_error_t fast_ctx_destroy(struct fast_ctx *p);
doca_error_t fast_ctx_set_tasks(struct fast_ctx *p, bool callbacks, uint32_t n);
/* Allocates the resources of a started context. fast_ctx_ended() frees them, even after a failure.
 * */
doca_error_t fast_ctx_start(struct fast_ctx *p);
void fast_ctx_ended(struct doca_ctx *ctx);
bool fast_ctx_arm(struct doca_ctx *ctx);
void fast_ctx_free_task(struct doca_task *task);
/* The functions of a context that consumers and producers have in common. */
#define FAST_OPS .ended = fast_ctx_ended, .arm = fast_ctx_arm, .free_task = fast_ctx_free_task
/* Wakes the program that polls the context. Call it from any thread, with the lock held. */
void fast_ctx_wake(struct fast_ctx *p);
/* Clears the effect of fast_ctx_wake(). Call it in the context's own thread. */
void fast_ctx_woken(struct fast_ctx *p);
/* Allocates a task. */
doca_error_t fast_ctx_alloc(struct fast_ctx *p, struct doca_buf *buf, struct fast_task **out);
/* Keeps a reference to the buffer of a task that is submitted. Errors: those of
 * doca_buf_inc_refcount. */
doca_error_t fast_ctx_hold(struct fast_task *t);
/* Releases the task's reference and its memfd. */
void fast_ctx_release(struct fast_task *t);
/* Completes a task, which is delivered later. */
void fast_ctx_done(struct fast_ctx *p, struct fast_task *t, doca_error_t status);
/* Delivers a task, if there is one. */
bool fast_ctx_deliver(struct fast_ctx *p);
/* Removes a task from the list that it is in. */
void fast_ctx_unlink(struct fast_ctx *p, struct fast_task *t);
/* Returns the task of a handle of this kind. Logs an invalid handle and returns NULL. */
struct fast_task *fast_task_check(void *task, enum object_kind kind, const char *func);
/* The same, for setting a field: a task in flight is also treated as invalid. */
struct fast_task *fast_task_settable(void *task, enum object_kind kind, const char *func);

/* ---- consumer.c, producer.c ---- */

/* Defines the public functions that consumers and producers have in common. Errors: INVALID_VALUE;
 * BAD_STATE for set_conf. */
#define FAST_FUNCTIONS(side, CHECK, KIND, what, TASK)                                          \
	doca_error_t doca_comch_##side##_destroy(struct doca_comch_##side *handle)             \
	{                                                                                      \
		CHECK(handle);                                                                 \
		return fast_ctx_destroy(&handle->p);                                           \
	}                                                                                      \
	doca_error_t doca_comch_##side##_get_gpu_handle(struct doca_comch_##side *handle,      \
							struct doca_comch_gpu_##side **result) \
	{                                                                                      \
		CHECK(handle);                                                                 \
		return fast_gpu_handle(&handle->p, (void **)result);                           \
	}                                                                                      \
	GETTER(doca_comch_##side##_get_id, CHECK, const struct doca_comch_##side, uint32_t,    \
	       handle->p.id)                                                                   \
	AS_MEMBER(doca_comch_##side##_as_ctx, struct doca_comch_##side, struct doca_ctx, KIND, \
		  what, p.ctx)                                                                 \
	doca_error_t doca_comch_##side##_cap_is_supported(const struct doca_devinfo *devinfo)  \
	{                                                                                      \
		uint32_t unused;                                                               \
		return comch_get_limit(devinfo, 0, &unused);                                   \
	}                                                                                      \
	LIMIT(doca_comch_##side##_cap_get_max_num_tasks, FAST_TASKS_MAX)                       \
	LIMIT(doca_comch_##side##_cap_get_max_buf_size, FAST_MAX)                              \
	LIMIT(doca_comch_##side##_cap_get_max_buf_list_len, LIST_MAX)                          \
	LIMIT(doca_comch_##side##_cap_get_max_##side##s, CONTEXTS_MAX)                         \
	doca_error_t doca_comch_##side##_task_##TASK##_set_conf(                               \
		struct doca_comch_##side *handle,                                              \
		doca_comch_##side##_task_##TASK##_completion_cb_t done,                        \
		doca_comch_##side##_task_##TASK##_completion_cb_t failed, uint32_t n)          \
	{                                                                                      \
		CHECK(handle);                                                                 \
		TRY(fast_ctx_set_tasks(&handle->p, done && failed, n));                        \
		handle->done_cb = done;                                                        \
		handle->error_cb = failed;                                                     \
		return DOCA_SUCCESS;                                                           \
	}

/* Defines a public function that returns a field of the task t, which is NULL for an invalid handle. */
#define FAST_TASK_FIELD(function, TASK, KIND, type, value) \
	type function(struct TASK *task) \
	{ \
		struct fast_task *t = fast_task_check(task, KIND, __func__); \
		return value; \
	}
/* Defines the public functions that the tasks of both have in common. */
#define FAST_TASK_FUNCTIONS(TASK, KIND, buffer, id) \
	FAST_TASK_FIELD(TASK##_get_buf, TASK, KIND, buffer *, t ? t->buf : NULL) \
	FAST_TASK_FIELD(TASK##_get_##id, TASK, KIND, uint32_t, t ? t->peer : 0) \
	FAST_TASK_FIELD(TASK##_get_imm_data, TASK, KIND, uint8_t *, t && t->imm_len ? t->imm : NULL) \
	FAST_TASK_FIELD(TASK##_get_imm_data_len, TASK, KIND, uint32_t, t ? t->imm_len : 0) \
	FAST_TASK_FIELD(TASK##_as_task, TASK, KIND, struct doca_task *, t ? &t->task : NULL) \
	void TASK##_set_buf(struct TASK *task, buffer *buf) \
	{ \
		struct fast_task *t = fast_task_settable(task, KIND, __func__); \
		if (t) \
			t->buf = (struct doca_buf *)buf; \
	}

/* ---- comch_gpu.c ---- */

/* Allocates the rings of a context, and serves them. */
doca_error_t fast_gpu_start(struct fast_ctx *p);
/* Ends the service of kernels. status: what they get from now on. Idempotent. */
void fast_gpu_stop(struct fast_gpu *g, doca_error_t status);
void fast_gpu_free(struct fast_gpu *g);
/* In a forked child, which has no such thread. */
void fast_gpu_in_child(void);
doca_error_t fast_gpu_handle(const struct fast_ctx *p, void **handle);
doca_error_t fast_gpu_submit(struct doca_task *task, uint32_t flags);

/* ---- producer.c, for comch_gpu.c: call them with the lock held ---- */

/* Takes one of the consumer's receives for a message. Errors: AGAIN, INVALID_VALUE, NOT_CONNECTED. */
doca_error_t producer_take_receive(const struct fast_ctx *p, const struct fast_task *t);
void producer_return_receive(const struct fast_ctx *p, const struct fast_task *t);
/* Sends the message for which a receive was taken. On AGAIN it was returned. */
doca_error_t producer_send_receive_taken(const struct fast_ctx *p, struct fast_task *t);

/* ---- fast_message.c ---- */

/* Receives a packet, with MSG_TRUNC, and at most two fds (-1 for each that is missing). Returns its
 * size, 0 at the end, or a negative errno. */
ssize_t fast_receive(int fd, struct iovec *iov, size_t n, int fds[2]);
/* Sends a packet with n_fds fds. Returns 0 or a negative errno. */
int fast_send(int fd, struct iovec *iov, size_t n, const int *fds, size_t n_fds);
/* Checks a buffer or list that a task of p sends or receives into: it must be host memory of this
 * process, and in `map` unless that is NULL. */
doca_error_t fast_message_check(const struct fast_ctx *p, const struct doca_buf *buf,
				const struct doca_mmap *map, const char *func);
/* Copies the data of a large message to t->memfd. Returns 0 or a negative errno, for example
 * because the data is not accessible. */
int fast_message_prepare(struct fast_task *t);
/* Sends a task's message. Returns 0 or a negative errno. */
int fast_message_send(const struct fast_ctx *p, const struct fast_task *t, int channel);
/* Receives a message into a task: its fields and its buffer. Returns 0 with t->status set, or a
 * negative errno: EAGAIN if there is none, EPIPE at the end or for a malformed one. */
int fast_message_receive(struct fast_task *t, int channel, uint32_t imm_max);

#endif
