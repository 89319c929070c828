/* SPDX-License-Identifier: Apache-2.0 */
/* Ethernet queues whose data path is on a GPU, over a port (port.h). */
#ifndef SOFTDOCA_ETH_H
#define SOFTDOCA_ETH_H

#include "doca_eth_rxq.h"
#include "doca_eth_rxq_gpu_data_path.h"
#include "doca_eth_txq.h"
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

/* Memory of a started queue: the structure for device code, and its ring and words. */
struct eth_memory {
	struct gpu_memory *structure, *ring, *words;
};

struct doca_eth_txq {
	struct object o;
	uint32_t entries;
	bool l3_checksum, l4_checksum, may_wait, proxy;
	struct port *port;
	struct port_txq queue;
	struct eth_memory memory;
	_Alignas(64) struct doca_ctx ctx;
};

struct doca_eth_rxq {
	struct object o;
	uint32_t entries, largest;
	char *packets; /* the program's memory, NULL until it is set */
	struct gpu_memory *packets_memory; /* while it is started */
	struct port *port;
	struct port_rxq queue;
	struct eth_memory memory;
	_Alignas(64) struct doca_ctx ctx;
};

/* queue.c */
/* Allocates the memory of a queue, zeroed. */
doca_error_t eth_allocate(struct doca_gpu *gpu, size_t structure, size_t ring, size_t words,
			  struct eth_memory *out);
void eth_release(struct eth_memory *m);
/* Operations of contexts that have neither tasks nor events. */
bool eth_quiet(struct doca_ctx *ctx);
int eth_fileno(struct doca_ctx *ctx);
bool eth_no_event(struct doca_ctx *ctx);
void eth_nothing(struct doca_ctx *ctx);
/* Start of a context whose data path is on the CPU. */
doca_error_t eth_no_cpu_path(struct doca_ctx *ctx);

#endif
