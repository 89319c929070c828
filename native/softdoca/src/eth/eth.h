/* SPDX-License-Identifier: Apache-2.0 */
/* Ethernet queues whose data path is on a GPU, over a port (port.h). */
#ifndef SOFTDOCA_ETH_H
#define SOFTDOCA_ETH_H

#include "doca_eth_rxq.h"
#include "doca_eth_rxq_cpu_data_path.h"
#include "doca_eth_rxq_gpu_data_path.h"
#include "doca_eth_txq.h"
#include "doca_eth_txq_cpu_data_path.h"
#include "doca_eth_txq_gpu_data_path.h"
#include "gpu.h"
#include "port.h"

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

enum { TXQ_MIN = 1024, TXQ_MAX = 32768, RXQ_MAX = 65536, ALIGN = 64 };

/* A started queue's port, and its memory: the structure for device code, and its ring and words. */
struct eth_queue {
	struct port *port;
	struct gpu_memory *structure, *ring, *words;
};

struct doca_eth_txq_gpu_event_error_send_packet {
	uint16_t position;
};

struct doca_eth_txq_gpu_event_notify_send_packet {
	uint16_t position;
	uint64_t timestamp_ns;
};

struct doca_eth_txq {
	struct object o;
	uint32_t entries;
	bool l3_checksum, l4_checksum, may_wait, proxy;
	struct port_txq queue;
	struct eth_queue eth;
	/* Events for the progress engine; each has its callback and data. told: completions that
	 * `notify` has had, or left out. */
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
	_Alignas(64) struct doca_ctx ctx;
};

struct doca_eth_rxq {
	struct object o;
	uint32_t entries, largest;
	char *packets; /* the program's memory, NULL until it is set */
	uint32_t key; /* of its map */
	struct gpu_memory *packets_memory; /* while it is started */
	struct port_rxq queue;
	struct eth_queue eth;
	_Alignas(64) struct doca_ctx ctx;
};

/* queue.c */
/* Start of a queue: takes its device's port, and allocates its memory, zeroed. */
doca_error_t eth_open(struct doca_ctx *ctx, size_t structure, size_t ring, size_t words,
		      struct eth_queue *q);
void eth_close(struct eth_queue *q);
/* Operations of contexts that have neither tasks nor events. */
bool eth_quiet(struct doca_ctx *ctx);
int eth_fileno(struct doca_ctx *ctx);
bool eth_no_event(struct doca_ctx *ctx);
void eth_nothing(struct doca_ctx *ctx);
/* Start of a context whose data path is on the CPU. */
doca_error_t eth_no_cpu_path(struct doca_ctx *ctx);

#endif
