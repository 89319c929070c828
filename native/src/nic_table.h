/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of a NIC: memory that its NIC alone writes, and that NICs of other processes import for
 * reading.
 *
 * A key's entry is read by a sequence lock: `key` is 0 while the entry changes. Its high half counts the
 * keys of the NIC, because a number that was closed comes back after 255 others of its index, and an
 * importer must not take the memory of the old one for it. A box has what the peer of a queue pair
 * needs. All its words are atomic:
 *
 *	posted     receives published; the peer's sender takes them in order
 *	delivered  messages for the peer, each of which used one of the peer's receives
 *	consumed   messages of the peer that were taken
 *	wants      receives of the peer that the sender waits for: how many there have to be, and in the low
 *	           bits the number of the try. The peer publishes those of a ring that queue pairs share
 *	           only when one is wanted
 *	resets     how often the queue pair was reset: a peer that is connected again before this one does
 *	           not take the messages of before
 *	dry        the peer's `wants` for which there is no receive: the answer "receiver not ready" (RNR)
 *	srq        XRC: of a sender, the number of the shared receive queue that it needs; of a receiver, the
 *	           peer's whose receives and protection domain are in the box, with NIC_SRQ_UNKNOWN if it has none
 *
 *	receiver: stores a receive, then `posted` (release). Sender: loads `posted` (acquire).
 *	sender: stores the bytes and the message, then `delivered` (release). Receiver: loads it
 *	(acquire), completes the receive, then stores `consumed` (release).
 *
 * Datagrams go from one NIC to another, whatever their queue pairs. The sender has an outbox for each part of
 * the adapter, with `delivered` and places as in a box; the receiver has `consumed` in the inbox that it has
 * for the sender. Both name the NIC that they are for, by a random number, because a part that ends is
 * replaced by another process's.
 *
 * A place of receives[] is written again only when posted - consumed < NIC_WINDOW, when the sender
 * has used it; a place of messages[] only when delivered - consumed < NIC_WINDOW, when the receiver
 * has taken it. Forbidden outcome: a side reads a place that is half new.
 */
#ifndef DG_NIC_TABLE_H
#define DG_NIC_TABLE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "dgkit.h"

enum { NIC_WINDOW = 64, NIC_INLINE = 32, NIC_CARRIED = 256, NIC_DATAGRAMS = 32, NIC_TRY_BITS = 3 };
#define NIC_MAGIC   0x31434e74696b6764ull /* "dgkitNC1" */
#define NIC_VERSION 10u
#define NIC_SRQ_UNKNOWN 0x80000000u

/* descriptor: of the region, `length` bytes; 0 if other NICs have no right to it. offset: in the region, of the key's
 * first byte. qpn: the queue pair whose peer alone may use the key, or 0. */
struct nic_key_body {
	uint32_t pd, access, length, qpn;
	uint64_t address, size, offset;
	uint8_t descriptor[DG_DESCRIPTOR_MAX];
};

/* key: the number of the key, and above it which of the NIC's keys it is. */
struct nic_public_key {
	_Atomic uint64_t key;
	struct nic_key_body body;
};

/* A receive. syndrome: not 0 if its data segments are wrong. */
struct nic_receive {
	uint32_t n, syndrome;
	struct {
		uint64_t address;
		uint32_t key, size;
	} segments[DG_NIC_SGES];
};

/* What the sender tells the receiver. opcode: of the receiver's CQE. solicited: whether the sender asks
 * for an event. data: the n_inline bytes of a short message, for the CQE or, if the box has no inline_receive, for
 * the receive: between processes, where the sender would have to ask the receiver's for each copy. */
struct nic_message {
	uint32_t opcode, immediate, syndrome;
	uint16_t n_inline, solicited;
	uint64_t bytes;
	uint8_t data[NIC_CARRIED];
};

/* to, from: queue pairs. gid: of both. */
struct nic_datagram {
	uint32_t to, from, q_key, immediate, bytes;
	uint16_t opcode, solicited;
	uint8_t gid[16];
	uint8_t data[DG_NIC_MTU];
};

struct nic_outbox {
	_Atomic uint64_t to, delivered;
	_Alignas(64) struct nic_datagram datagrams[NIC_DATAGRAMS];
};

struct nic_inbox {
	_Atomic uint64_t from, consumed;
};

enum {
	KEY_WORDS = sizeof(struct nic_key_body) / 8,
	RECEIVE_WORDS = offsetof(struct nic_receive, segments) / 8, /* without its segments */
	SEGMENT_WORDS = 2,
	MESSAGE_WORDS = offsetof(struct nic_message, data) / 8, /* without its bytes */
	DATAGRAM_WORDS = offsetof(struct nic_datagram, data) / 8 /* without its bytes */
};

struct nic_box {
	_Atomic uint32_t qpn, state, access, pd, peer_qpn, inline_receive, receive_entries, rnr_timer;
	_Atomic uint64_t peer_gid[2];
	_Atomic uint32_t srq;
	_Alignas(64) _Atomic uint64_t posted, consumed, delivered, wants, dry, resets;
	_Alignas(64) struct nic_receive receives[NIC_WINDOW];
	struct nic_message messages[NIC_WINDOW];
};

_Static_assert(sizeof(struct nic_public_key) == 816 && sizeof(struct nic_box) == 51648,
	       "tests/safety/fuzz_nic_peers.py writes to both");

/* The alignment is the layout's, not the system's page size: all of it is mapped at once. */
struct nic_table {
	uint64_t magic;
	uint32_t version, pid;
	uint8_t gid[16];
	uint64_t instance; /* a random number */
	_Atomic uint32_t queue_pairs, n_keys; /* open ones: for dg_nic_part_info_get() */
	_Alignas(4096) struct nic_public_key keys[DG_NIC_KEYS];
	_Alignas(4096) struct nic_box boxes[DG_NIC_QPS];
	_Alignas(4096) struct nic_inbox inboxes[DG_NIC_PARTS];
	_Alignas(4096) struct nic_outbox outboxes[DG_NIC_PARTS];
};

/* A key is index << 8 | generation, a queue pair number generation << 10 | index, in a part of an adapter
 * part << 16 | generation << 10 | index. The first keys and numbers are left out, as they are reserved by
 * mlx5. */
enum { NIC_FIRST_KEY = 16, NIC_QP_BITS = 10, NIC_PART_SHIFT = 16 };
_Static_assert(1 << NIC_QP_BITS == DG_NIC_QPS, "a queue pair number has the index of a box");
_Static_assert(DG_NIC_PARTS == 1 << (24 - NIC_PART_SHIFT), "a queue pair number has the number of a part");

static inline uint32_t key_index(uint32_t key)
{
	return key >> 8;
}

static inline uint32_t qp_index(uint32_t qpn)
{
	return qpn & (DG_NIC_QPS - 1);
}

#endif
