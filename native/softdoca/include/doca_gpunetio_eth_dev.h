/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ethernet queues as device code sees them, in softdoca's own format. The library fills in the
 * structures, which are in GPU memory; rings and words are in host memory that GPU and CPU access.
 * All indices count since the queue's start and are never reduced; a place in a ring is index & (entries
 * - 1). Each word has one writer and is released by it after what it announces.
 */
#ifndef DOCA_GPUNETIO_ETH_DEV_H
#define DOCA_GPUNETIO_ETH_DEV_H

#include <doca_gpunetio_eth_def.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An entry of a send queue. key: in big-endian. time_ns: of CLOCK_REALTIME, when the frame is sent; 0: at
 * once. size 0 with a time: no frame, and those behind it wait. index: the low bits of the entry's index, so
 * that a place that was not written is noticed. */
struct __attribute__((__aligned__(16))) doca_gpu_dev_eth_txq_wqe {
	uint64_t addr, time_ns;
	uint32_t key, size, index, flags;
};

/* producer: entries before this index can be sent (GPU). done: entries before it were executed, so
 * that their places are free (NIC). completions: of entries with NOTIFY, and of the first that failed
 * (NIC). failed: index of the first completion with an error, after which the queue sends nothing;
 * UINT64_MAX if there is none (NIC). */
struct doca_gpu_dev_eth_txq_words {
	uint64_t producer, reserved[7];
	uint64_t done, completions, failed, reserved2[5];
};

struct doca_gpu_eth_txq {
	uint64_t reserved_index, ready_index, next_completion; /* of device code */
	uint64_t entries;
	struct doca_gpu_dev_eth_txq_wqe *ring;
	struct doca_gpu_dev_eth_txq_words *words;
};

struct doca_gpu_dev_eth_rxq_entry {
	uint64_t timestamp_ns;
	uint32_t bytes, reserved;
};

/* producer: packets before this index were received (NIC). failed: not 0 if no more will be (NIC).
 * released: places before this index may be written again (GPU). */
struct doca_gpu_dev_eth_rxq_words {
	uint64_t producer, failed, reserved[6];
	uint64_t released, reserved2[7];
};

struct doca_gpu_buf;

struct doca_gpu_eth_rxq {
	uint64_t next; /* packets before this index were taken by device code */
	uint64_t released; /* what device code has stored in words->released */
	uint64_t entries, stride; /* bytes from a packet to the next */
	uint8_t *packets;
	struct doca_gpu_dev_eth_rxq_entry *ring;
	struct doca_gpu_dev_eth_rxq_words *words;
	struct doca_gpu_buf *bufs; /* behind this structure: the packets' places */
	uint32_t key; /* of the packets, in big-endian */
};

DOCA_GPUNETIO_SIZE_IS(struct doca_gpu_dev_eth_txq_wqe, 32);
DOCA_GPUNETIO_SIZE_IS(struct doca_gpu_dev_eth_txq_words, 128);
DOCA_GPUNETIO_SIZE_IS(struct doca_gpu_dev_eth_rxq_words, 128);

#ifdef __cplusplus
}
#endif
#endif
