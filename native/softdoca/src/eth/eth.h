/* SPDX-License-Identifier: Apache-2.0 */
/* Ethernet queues over a port (port.h), with their data path on a GPU or on the CPU. */
#ifndef SOFTDOCA_ETH_H
#define SOFTDOCA_ETH_H

#include "doca_eth_rxq.h"
#include "doca_eth_rxq_cpu_data_path.h"
#include "doca_eth_rxq_gpu_data_path.h"
#include "doca_eth_txq.h"
#include "doca_eth_txq_cpu_data_path.h"
#include "doca_eth_txq_gpu_data_path.h"
#include "gpu/gpu.h"
#include "memory/memory.h"
#include "port/port.h"
#include "progress/progress.h"

#define CHECK_TXQ(q)  CHECK_OBJECT(q, OBJECT_ETH_TXQ, "an Ethernet send queue")
#define CHECK_RXQ(q)  CHECK_OBJECT(q, OBJECT_ETH_RXQ, "an Ethernet receive queue")
#define CHECK_IDLE(q)                                              \
	do {                                                       \
		if ((q)->ctx.state != DOCA_CTX_STATE_IDLE)         \
			return REFUSE(DOCA_ERROR_BAD_STATE,        \
				      "the queue is started");     \
	} while (0)
#define CHECK_STARTED(q)                                           \
	do {                                                       \
		if ((q)->ctx.state != DOCA_CTX_STATE_RUNNING)      \
			return REFUSE(DOCA_ERROR_BAD_STATE,        \
				      "the queue is not started"); \
	} while (0)
#define CHECK_ON_GPU(q)                                                             \
	do {                                                                        \
		if (!(q)->ctx.gpu)                                                  \
			return REFUSE(DOCA_ERROR_BAD_STATE,                         \
				      "the queue's data path is on the CPU");       \
	} while (0)

#define ETH_WAKE_NS 100000 /* interval at which a waiting program checks its queues */
enum { TXQ_MIN = 1024, TXQ_MAX = 32768, HEADERS_MAX = 256, RXQ_MAX = 65536, ALIGN = 64 };

/* Port and memory of a started queue. On a GPU: the structure for device code, the ring, the words.
 * On the CPU: `host`, which has ring and words. */
struct eth_queue {
	struct port *port;
	struct gpu_memory *structure, *ring, *words;
	void *host;
};

struct doca_eth_txq_gpu_event_error_send_packet {
	struct object o;
	uint16_t position;
};

struct doca_eth_txq_gpu_event_notify_send_packet {
	struct object o;
	uint16_t position;
	uint64_t timestamp_ns;
};

/* The tasks of a type, or its batches: maximum, number allocated, tasks of a batch, callbacks. */
struct eth_tasks {
	uint32_t n, used, tasks;
	bool is_batch, is_large;
	union {
		doca_eth_txq_task_send_completion_cb_t single;
		doca_eth_txq_task_lso_send_completion_cb_t large;
		doca_eth_txq_task_batch_send_completion_cb_t batch;
		doca_eth_txq_task_batch_lso_send_completion_cb_t large_batch;
	} done, failed;
};
enum { SINGLE, BATCH, LARGE, LARGE_BATCH, TASK_TYPES };

/* A send task of a queue on the CPU, or a batch of them, with the arrays for its frames. Of a large one the
 * buffers are payloads. */
struct eth_send {
	struct doca_task_batch batch; /* a send task has its task, too */
	struct eth_tasks *tasks;
	struct eth_send *next; /* of those in flight, in their order */
	uint64_t first; /* index of its first entry */
	uint64_t *ends; /* that behind the last one of each task */
	uint8_t *segments; /* frames of large ones, while they are in flight */
	uint16_t n;
	union doca_data *data;
	struct doca_gather_list **headers;
	doca_error_t *results;
	struct doca_buf *frames[];
};

struct doca_eth_txq {
	struct object o;
	uint32_t entries;
	bool l3_checksum, l4_checksum, may_wait, proxy;
	struct port_txq queue;
	struct eth_queue eth;
	/* Events for the progress engine; each has its callback and data. notify.told: number of
	 * completions that were delivered or skipped. */
	struct {
		doca_eth_txq_gpu_event_error_send_packet_cb_t call;
		union doca_data data;
		bool told;
	} error;
	struct {
		doca_eth_txq_gpu_event_notify_send_packet_cb_t call;
		union doca_data data;
		uint64_t told;
	} notify;
	struct eth_tasks tasks[TASK_TYPES]; /* of a queue on the CPU */
	uint16_t mss, max_headers;
	struct eth_send *first, *last; /* in flight */
	uint64_t submitted; /* entries */
	bool removed; /* from its port */
	_Alignas(64) struct doca_ctx ctx;
};

/* What a frame was received with. */
struct eth_received {
	uint64_t time_ns;
	uint32_t bytes, hash, meta, mark;
};

struct doca_eth_rxq_event_managed_recv {
	struct object o;
	const struct doca_eth_rxq *queue;
	doca_error_t status;
	struct eth_received received;
};

struct doca_eth_rxq_event_batch_managed_recv {
	struct object o;
	struct doca_eth_rxq *queue;
	uint16_t n;
	uint32_t *meta, *mark, *hash;
	uint64_t *times;
	_Alignas(64) struct doca_buf *packets[];
};

struct doca_eth_rxq_task_recv {
	struct object o;
	struct doca_buf *pkt;
	struct eth_received received;
	_Alignas(64) struct doca_task task;
};

struct doca_eth_rxq {
	struct object o;
	enum doca_eth_rxq_type type;
	uint32_t entries, largest;
	struct doca_mmap *map;
	char *packets; /* the program's memory, NULL until it is set */
	uint32_t packets_size;
	uint32_t key; /* of its map, for kernels */
	struct gpu_memory *packets_memory; /* while it is started */
	struct port_rxq queue;
	struct eth_queue eth;
	/* For a queue on the CPU. posted: the buffer or the task of each place in use. posted_n:
	 * number of places ever posted; taken: number of these that were delivered to the
	 * program. */
	uint16_t headroom, tailroom;
	bool metadata, flow_tag, hash, timestamp;
	struct doca_buf_pool *pool;
	void **posted;
	uint64_t posted_n, taken;
	bool removed, told; /* from its port; of an error */
	struct {
		uint32_t n, used;
		doca_eth_rxq_task_recv_completion_cb_t done, failed;
	} recv;
	struct {
		doca_eth_rxq_event_managed_recv_handler_cb_t done, failed;
		union doca_data data;
	} event;
	struct {
		doca_eth_rxq_event_batch_managed_recv_handler_cb_t done, failed;
		union doca_data data;
		uint32_t max, min;
	} batch;
	_Alignas(64) struct doca_ctx ctx;
};

OWNER(eth_txq_of, struct doca_eth_txq, struct doca_ctx, ctx)
OWNER(eth_rxq_of, struct doca_eth_rxq, struct doca_ctx, ctx)

/* Bytes from a packet of a queue to the next. */
static inline uint64_t eth_stride(const struct doca_eth_rxq *q)
{
	return ((uint64_t)q->headroom + q->largest + q->tailroom + ALIGN - 1) / ALIGN * ALIGN;
}

/* eth_queue.c */
/* Start of a queue: takes its device's port, and allocates its memory, zeroed. */
doca_error_t eth_open(struct doca_ctx *ctx, size_t structure, size_t ring, size_t words,
		      struct eth_queue *q);
/* The same for a queue of the CPU; its ring is at q->host, and `words` behind it. */
doca_error_t eth_open_host(struct doca_ctx *ctx, size_t ring, size_t words, struct eth_queue *q);
void eth_close(struct eth_queue *q);
/* Checks that a frame to send, or the place of one to receive, is a single buffer. */
doca_error_t eth_check_single(const struct doca_buf *b);
doca_error_t eth_set(const struct doca_ctx *ctx, bool *setting, uint8_t value);

/* Operations of queues on a GPU (txq.c, rxq.c) and on the CPU (eth_send.c, eth_receive.c). */
extern const struct ctx_ops eth_txq_gpu, eth_txq_cpu, eth_rxq_gpu, eth_rxq_cpu;
/* eth_send.c */
doca_error_t eth_tasks_set(struct doca_eth_txq *q, int type, struct eth_tasks tasks);
doca_error_t eth_batches_set(struct doca_eth_txq *q, int type,
			     enum doca_task_batch_max_tasks_number tasks_number, uint16_t n,
			     struct eth_tasks tasks);
doca_error_t eth_task_allocate(struct doca_eth_txq *q, int type, uint16_t n, union doca_data data,
			       struct eth_send **out);
doca_error_t eth_batch_allocate(struct doca_eth_txq *q, int type, uint16_t n, union doca_data data,
				struct eth_send **out);
void eth_post(struct doca_eth_txq *q, uint64_t index, const void *frame, size_t size, uint32_t key);
/* DOCA_ERROR_AGAIN if the ring has no places for the frames: a place is free when its task has ended, since its result
 * is found there. */
doca_error_t eth_check_room(const struct doca_eth_txq *q, uint64_t frames);
/* eth_large.c: posts the frames of large ones, from index q->submitted on, and stores s->ends. */
doca_error_t eth_post_large(struct doca_eth_txq *q, struct eth_send *s);
/* eth_receive.c: frees the places of a queue that is idle. Errors: IN_USE if a buffer was not returned. */
doca_error_t eth_rxq_close_pool(struct doca_eth_rxq *q);

#endif
