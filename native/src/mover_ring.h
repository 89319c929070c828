/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client and a mover share: messages over a SEQPACKET Unix socket, and a ring in a memfd.
 *
 * The first message is MOVER_HELLO, with the ring's memfd. MOVER_IMPORT names memory by a descriptor;
 * its reply has the number by which requests then name it. Each message but MOVER_RELEASE has a
 * reply of the same kind: status 0, or a negative errno and a text in the place of the descriptor,
 * where the reply to MOVER_HELLO names the provider whose exports of host memory it imports.
 * Either side has ended when the socket has.
 *
 * Order. The client stores a request, then `head` with release; the mover loads `head` with acquire.
 * The mover stores a completion after the provider has reported the request's last byte, then
 * `completed` with release; the client loads that with acquire. Forbidden outcome: the client sees
 * the completion and not, in memory that it can read, the bytes.
 */
#ifndef DG_MOVER_RING_H
#define DG_MOVER_RING_H

#include <stdatomic.h>

#include "dgkit.h"
#include "share/mapping.h"

enum { MOVER_DEPTH = 1024, MOVER_VERSION = 1 };
enum mover_kind { MOVER_HELLO = 1, MOVER_IMPORT, MOVER_RELEASE };

/* number: MOVER_HELLO: the version; otherwise of the memory. */
struct mover_message {
	uint32_t kind, number, on_gpu, length;
	int32_t status;
	uint32_t reserved;
	uint8_t descriptor[DG_DESCRIPTOR_MAX];
};

/* Moves `size` bytes from memory `from` to memory `to`. */
struct mover_request {
	uint64_t user, from_offset, to_offset, size;
	uint32_t from, to;
	uint64_t reserved;
};

/* status: enum dg_status. */
struct mover_completion {
	uint64_t user;
	int32_t status;
	uint32_t reserved;
};

/* head, requests: written by the client; completed, completions: by the mover. A client has at most
 * MOVER_DEPTH requests without completion. */
struct mover_ring {
	_Alignas(64) _Atomic uint64_t head;
	_Alignas(64) _Atomic uint64_t completed;
	_Alignas(64) struct mover_request requests[MOVER_DEPTH];
	struct mover_completion completions[MOVER_DEPTH];
};

/* mover.c: the rings that this process has mapped. Two sides in one process share a mapping. */
extern struct dg_mappings dg_mover_rings;

#endif
