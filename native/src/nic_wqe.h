/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of mlx5: work queue entries (WQEs) and completion queue entries (CQEs), as in the "Ethernet
 * Adapters Programming Manual (PRM)" and rdma-core's providers/mlx5/mlx5dv.h. */
#ifndef DG_NIC_WQE_H
#define DG_NIC_WQE_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "atomic.h"

enum {
	WQE_NOP = 0x00,
	WQE_SEND_INVAL = 0x01,
	WQE_WRITE = 0x08,
	WQE_WRITE_IMM = 0x09,
	WQE_SEND = 0x0a,
	WQE_SEND_IMM = 0x0b,
	WQE_WAIT = 0x0f,
	WQE_READ = 0x10,
	WQE_ATOMIC_CS = 0x11,
	WQE_ATOMIC_FA = 0x12,
	WQE_MASKED_CS = 0x14,
	WQE_MASKED_FA = 0x15,
	WQE_DUMP = 0x23,
	WQE_UMR = 0x25
};
/* Bits of fm_ce_se: a fence in bits 7 to 5, a CQE wanted in bits 3 and 2, an event at the receiver in 1. */
enum { WQE_FENCE = 0xe0, WQE_CQE = 0x08, WQE_SOLICITED = 0x02 };
enum { WQE_BLOCK = 64, WQE_SEGMENT = 16, WQE_SEGMENTS_MAX = 63, WQE_BLOCKS_MAX = 16 };
#define WQE_INLINE 0x80000000u
#define WQE_MESSAGE_MAX 0x80000000u /* bytes; a data segment with length 0 has as many */
#define WQE_LONG_ADDRESS 0x80000000u /* in the number of a datagram's queue pair: its address has 48 bytes */
#define WQE_END_KEY 0x100u /* with length 0: ends the data segments of a receive */

enum {
	CQE_REQUEST = 0,
	CQE_WRITE_IMM = 1,
	CQE_SEND = 2,
	CQE_SEND_IMM = 3,
	CQE_SEND_INVAL = 4,
	CQE_REQUEST_ERROR = 13,
	CQE_RECEIVE_ERROR = 14
};
enum { CQE_INLINE_32 = 4 }; /* in op_own: the first 32 bytes of the CQE are received data */

enum nic_syndrome {
	SYNDROME_NONE = 0,
	SYNDROME_LOCAL_LENGTH = 0x01,
	SYNDROME_LOCAL_QP = 0x02,
	SYNDROME_LOCAL_PROTECTION = 0x04,
	SYNDROME_FLUSHED = 0x05,
	SYNDROME_BIND = 0x06,
	SYNDROME_LOCAL_ACCESS = 0x11,
	SYNDROME_REMOTE_REQUEST = 0x12,
	SYNDROME_REMOTE_ACCESS = 0x13,
	SYNDROME_REMOTE_OPERATION = 0x14,
	SYNDROME_RETRIES = 0x15,
	SYNDROME_RECEIVE_RETRIES = 0x16
};

/* A data segment. Inline: its bytes are at `at` of the entry. */
struct nic_segment {
	uint64_t address;
	uint32_t key, size;
	uint16_t at;
	bool is_inline;
};

/* What an entry makes of the memory window whose key is its rkey: bound to `memory`, whose key is another's, or to
 * nothing. variant: the low bits of its new key. access: enum dg_nic_access. qpn: its user, or WINDOW_ANY. */
struct nic_binding {
	bool binds, is_free, is_own; /* is_free, is_own: it has to be unbound; of this queue pair */
	uint8_t variant;
	uint32_t access, qpn;
	uint64_t address, size;
	struct nic_segment memory;
};
enum { WINDOW_ANY = 0xffffff };

/* A checked entry. total: bytes of all segments. */
struct nic_wqe {
	uint32_t opcode, flags, blocks, n_segments;
	uint32_t immediate; /* as it is in the entry */
	uint32_t rkey, max_index, cqn;
	uint64_t remote, total;
	uint32_t to, q_key; /* of a datagram */
	uint32_t srq;	    /* XRC: the peer's; else 0 */
	uint8_t gid[16];
	struct dg_atomic atomic;
	struct nic_binding window;
	struct nic_segment segments[WQE_SEGMENTS_MAX];
};

/* What is wrong with an entry: its syndrome, and for people the field, its value and the limit. */
struct nic_fault {
	uint8_t syndrome;
	const char *what;
	uint64_t value, limit;
};

static inline uint32_t be32_at(const uint8_t *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof v);
	return be32toh(v);
}

static inline uint64_t be64_at(const uint8_t *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof v);
	return be64toh(v);
}

/* Each stores at `at`, and returns what is behind it. */
static inline void *put_be32(void *at, uint32_t v)
{
	v = htobe32(v);
	return (uint8_t *)memcpy(at, &v, sizeof v) + sizeof v;
}

static inline void *put_be64(void *at, uint64_t v)
{
	v = htobe64(v);
	return (uint8_t *)memcpy(at, &v, sizeof v) + sizeof v;
}

static inline void *put_data_segment(void *at, uint64_t address, uint64_t n, uint32_t key)
{
	at = put_be32(at, (uint32_t)n);
	at = put_be32(at, key);
	return put_be64(at, address);
}

/* Returns how many basic blocks the entry that starts with this block has, at least 1. */
static inline uint32_t wqe_blocks(const uint8_t *block)
{
	const uint32_t segments = be32_at(block + 4) & 0x3f;
	return segments > 4 ? (segments + 3) / 4 : 1;
}

/* nic_wqe.c: parses and checks an entry, of which all blocks that it claims are at `bytes`. index,
 * qpn: what it should contain. transport: enum dg_nic_transport. Returns whether it is valid; otherwise fills *fault. out->opcode,
 * flags and blocks are set in any case. Accesses nothing else. */
bool dg_nic_parse(const uint8_t *bytes, uint16_t index, uint32_t qpn, uint32_t transport,
		  struct nic_wqe *out, struct nic_fault *fault);
/* Parses the n data segments of a receive into `out`. Returns their number. */
uint32_t dg_nic_parse_receive(const uint8_t *bytes, uint32_t n, struct nic_segment *out);

#endif
