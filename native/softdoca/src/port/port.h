/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ports: a device's network interface (port/interface.c) and the thread (port/port.c) that executes
 * its Ethernet queues, whose structures for device code are in doca_gpunetio_eth_dev.h. libdoca_eth
 * adds queues, libdoca_flow says which queue gets a frame.
 */
#ifndef SOFTDOCA_PORT_H
#define SOFTDOCA_PORT_H

#include <net/if.h>
#include <sys/uio.h>

#include "doca_gpunetio_eth_dev.h"
#include "device/device.h"

enum {
	FRAME_MIN = 14, /* an Ethernet header */
	FRAME_MAX = 65536,
	PORT_QUEUES = 256, /* numbers of receive queues are below it */
	PORT_DROP = -1, /* what a port_steer returns for no queue */
	RULE_MAX = 192, /* bytes of the name of a rule, with its end */
};

/* interface.c. An interface, by a TAP device, a packet socket or an inherited socket. */
struct interface {
	char name[IFNAMSIZ];
	const char *setting; /* its name, for messages */
	bool is_tap, is_inherited;
	int fd; /* does not block */
};
/* Opens the interface `net`, or if that is empty, that of SOFTDOCA_NET. Errors: NOT_SUPPORTED if neither is set,
 * and as doca_eth_txq_as_doca_ctx() says. */
doca_error_t interface_open(struct interface *i, const char *net);
void interface_close(struct interface *i);
/* Receives frames that are there, at most n and 64, and stores their sizes. A checksum that their sender left
 * to an adapter is written. Returns how many there are, or -ENODEV if the interface is gone. */
int interface_receive(const struct interface *i, struct iovec *frames, int n, int *sizes);
/* Sends frames in their order, at most 64. Stores for each its bytes (0: the interface is down), or a negative
 * errno: EAGAIN, EMSGSIZE for one that the interface cannot carry, or ENODEV if it is gone. Returns how many need
 * not be tried again, or -ENODEV. */
int interface_send(const struct interface *i, struct iovec *frames, int n, int *results);

/* checksum.c: writes the checksum of an IPv4 header, or of UDP or TCP over IPv4 and IPv6, into a frame
 * that has one, and leaves any other as it is. */
void checksum_ip(uint8_t *frame, size_t size);
void checksum_transport(uint8_t *frame, size_t size);
/* Writes into the headers of a frame, whose payload is a part of a larger one, what differs from part to part:
 * lengths, the identification of IPv4, the sequence number and flags of TCP. */
struct part {
	size_t offset; /* in the whole payload */
	uint32_t index;
	bool is_last;
};
void frame_complete_part(uint8_t *frame, size_t headers, size_t size, const struct part *part);

/* What a queue has done; for its log record. */
struct port_counters {
	uint64_t frames, bytes;
	uint64_t dropped; /* receive: no room; send: not accepted by the interface */
	uint64_t too_long; /* receive: longer than the queue's packets */
	uint64_t timed, late_ns, latest_ns; /* entries with a time: number, sum and maximum of delays */
};

/* When a frame whose completion was asked for was sent (CLOCK_REALTIME), and the index of its entry. */
struct port_note {
	uint64_t time_ns, index;
};

/* A queue; the caller's memory, until it is removed. failed_at: index of the entry that failed, or that
 * of the next one. notes: NULL, or as many as entries; that of a completion is at its index & (entries -
 * 1). */
struct port_txq {
	struct port_txq *next;
	struct doca_gpu_dev_eth_txq_wqe *ring;
	struct doca_gpu_dev_eth_txq_words *words;
	int number; /* for captures; 0 until it is set */
	uint64_t entries, done, completions, failed_at;
	struct port_note *notes;
	bool *refused; /* NULL, or for each place whether the interface did not take its frame */
	bool on_cpu; /* only the library posts: an entry with key 0 is a frame in the library's memory */
	bool failed, l3_checksum, l4_checksum, may_wait;
	struct port_counters counters;
};

/* Where a frame goes, and, for one that is there, the numbers that its rule gave it. */
struct port_place {
	uint8_t *at;
	uint64_t room;
	uint32_t hash, meta, mark;
};

/* places: NULL, and packets are `stride` apart; or a place for each entry, which is written before
 * words->released says so. */
struct port_rxq {
	struct port_rxq *next;
	int number; /* -1: none */
	uint8_t *packets;
	struct port_place *places;
	struct doca_gpu_dev_eth_rxq_entry *ring;
	struct doca_gpu_dev_eth_rxq_words *words;
	uint64_t entries, stride, largest, producer;
	struct port_counters counters;
};

/* A payload that becomes frames of at most `mss` bytes of it, each behind a copy of the headers. */
struct large {
	const uint8_t *headers;
	size_t headers_size;
	uint64_t payload;
	uint32_t payload_size, key, mss;
};
/* Writes the frames of a large one, one behind the other. Returns false if the key does not cover the payload. */
SOFTDOCA_INTERNAL bool softdoca_port_segment(const struct large *l, uint8_t *frames);

struct port;
/* What rules say of a frame. rule: NULL, or RULE_MAX bytes for what it matched on its way. meta, mark: in
 * network byte order. */
struct steered {
	char *rule;
	bool wants_hash;
	uint32_t hash, meta, mark;
};
/* Returns the number of the queue that gets a frame, or PORT_DROP. Called by the port's thread. */
typedef int port_steer(void *context, const uint8_t *frame, size_t size, struct steered *s);

/* Opens the port of a device, or uses the open one; each user drops it once. */
SOFTDOCA_INTERNAL doca_error_t softdoca_port_take(struct doca_dev *dev, struct port **out);
SOFTDOCA_INTERNAL void softdoca_port_drop(struct port *p);
SOFTDOCA_INTERNAL void softdoca_port_add_txq(struct port *p, struct port_txq *q);
SOFTDOCA_INTERNAL void softdoca_port_add_rxq(struct port *p, struct port_rxq *q);
/* Remove a queue: device code that still waits for it gets an error. */
SOFTDOCA_INTERNAL void softdoca_port_remove_txq(struct port *p, struct port_txq *q);
SOFTDOCA_INTERNAL void softdoca_port_remove_rxq(struct port *p, struct port_rxq *q);
/* Returns false if another receive queue of the port has the number. */
SOFTDOCA_INTERNAL bool softdoca_port_number_rxq(struct port *p, struct port_rxq *q, int number);
/* Sets who steers the frames; NULL: none, and all are dropped. */
SOFTDOCA_INTERNAL void softdoca_port_set_steer(struct port *p, port_steer *steer, void *context);
/* Lock and unlock the port, and so what its steer function uses. */
SOFTDOCA_INTERNAL void softdoca_port_lock(struct port *p);
SOFTDOCA_INTERNAL void softdoca_port_unlock(struct port *p);

#endif
