/* SPDX-License-Identifier: Apache-2.0 */
/* A queue pair of a test or benchmark with its memory, and entries as a kernel writes them. */
#ifndef DGKIT_NIC_PROGRAMS_H
#define DGKIT_NIC_PROGRAMS_H

#include <endian.h>
#include <stdatomic.h>

#include "fixture.h"
#include "nic_wqe.h"

enum { CQES = 256, SENDS = 64, RECEIVES = 16, SGES = 4 };

struct program {
	dg_nic *nic;
	dg_nic_cq *send_cq, *receive_cq;
	dg_nic_qp *qp;
	dg_nic_qp_config c;
	uint32_t qpn;
	uint64_t next; /* block to write */
	uint64_t seen, seen_receives; /* CQEs */
	uint32_t posted;
	uint8_t *cqes, *receive_cqes;
	uint64_t doorbell, producer;
	uint32_t record[2];
};

static UNUSED uint8_t *cq_memory(uint32_t entries)
{
	uint8_t *ring = aligned_alloc(64, entries * 64u);

	CHECK(ring != NULL);
	memset(ring, 0, entries * 64u);
	for (uint32_t i = 0; i < entries; i++)
		ring[i * 64 + 63] = 0xf1;
	return ring;
}

static UNUSED dg_nic_cq *cq_over(dg_nic *nic, uint8_t *ring, uint32_t entries, bool collapsed)
{
	const dg_nic_cq_config cfg = { .ring = ring, .entries = entries, .collapsed = collapsed };
	dg_nic_cq *cq;

	CHECK_EQ(dg_nic_cq_open(nic, &cfg, &cq), 0);
	return cq;
}

/* Opens a queue pair, in RESET. *p has the memory afterwards, and must stay where it is. */
static UNUSED void program_open(struct program *p, dg_nic *nic, uint32_t mode, uint32_t sends,
				uint32_t cqes)
{
	dg_nic_qp_info info;

	memset(p, 0, sizeof(*p));
	p->nic = nic;
	p->cqes = cq_memory(cqes);
	p->receive_cqes = cq_memory(cqes);
	p->send_cq = cq_over(nic, p->cqes, cqes, false);
	p->receive_cq = cq_over(nic, p->receive_cqes, cqes, false);
	p->c = (dg_nic_qp_config){
		.send_ring = aligned_alloc(64, sends * 64u),
		.receive_ring = aligned_alloc(64, RECEIVES * SGES * 16u),
		.send_entries = sends,
		.receive_entries = RECEIVES,
		.receive_sges = SGES,
		.doorbell_mode = mode,
		.record = p->record,
		.doorbell = &p->doorbell,
		.producer = &p->producer,
		.send_cq = p->send_cq,
		.receive_cq = p->receive_cq,
		.pd = 7,
	};
	memset(p->c.send_ring, 0, sends * 64u);
	memset(p->c.receive_ring, 0, RECEIVES * SGES * 16u);
	CHECK_EQ(dg_nic_qp_open(nic, &p->c, &p->qp), 0);
	CHECK_EQ(dg_nic_qp_info_get(p->qp, &info), 0);
	p->qpn = info.qpn;
	p->c.send_entries = sends;
}

static UNUSED dg_nic_address address_of(const struct program *p)
{
	dg_nic_address a = { .qpn = p->qpn };

	CHECK_EQ(dg_nic_gid_get(p->nic, a.gid), 0);
	return a;
}

enum { ALL_ACCESS = 15 };

static UNUSED void program_connect(struct program *p, const dg_nic_address *to)
{
	CHECK_EQ(dg_nic_qp_modify(p->qp, DG_NIC_INIT, NULL, ALL_ACCESS), 0);
	CHECK_EQ(dg_nic_qp_modify(p->qp, DG_NIC_RTR, to, 0), 0);
	CHECK_EQ(dg_nic_qp_modify(p->qp, DG_NIC_RTS, NULL, 0), 0);
}

static UNUSED void program_close(struct program *p)
{
	CHECK_EQ(dg_nic_qp_close(p->qp), 0);
	CHECK_EQ(dg_nic_cq_close(p->send_cq), 0);
	CHECK_EQ(dg_nic_cq_close(p->receive_cq), 0);
	free(p->cqes);
	free(p->receive_cqes);
	free(p->c.send_ring);
	free(p->c.receive_ring);
}

static UNUSED void put32(uint8_t *at, uint32_t v)
{
	v = htobe32(v);
	memcpy(at, &v, 4);
}

static UNUSED void put64(uint8_t *at, uint64_t v)
{
	v = htobe64(v);
	memcpy(at, &v, 8);
}

static UNUSED void control(const struct program *p, uint8_t *w, uint8_t opcode, uint32_t segments,
			   uint8_t flags)
{
	memset(w, 0, 16);
	put32(w, (uint32_t)(p->next & 0xffff) << 8 | opcode);
	put32(w + 4, p->qpn << 8 | segments);
	w[11] = flags;
}

static UNUSED void remote_segment(uint8_t *w, const void *address, uint32_t key)
{
	put64(w, (uintptr_t)address);
	put32(w + 8, key);
	put32(w + 12, 0);
}

static UNUSED void data_segment(uint8_t *w, const void *address, uint32_t key, uint32_t size)
{
	put32(w, size);
	put32(w + 4, key);
	put64(w + 8, (uintptr_t)address);
}

/* Stores the blocks of an entry in the ring, as other threads may see them. */
static UNUSED void put_entry(struct program *p, const uint8_t *w, uint32_t blocks)
{
	for (uint32_t i = 0; i < blocks; i++, p->next++) {
		uint8_t *to = (uint8_t *)p->c.send_ring + (p->next & (p->c.send_entries - 1)) * 64;

		for (uint32_t j = 0; j < 8; j++) {
			uint64_t word;

			memcpy(&word, w + i * 64 + j * 8, 8);
			atomic_store_explicit((_Atomic uint64_t *)to + j, word, memory_order_relaxed);
		}
	}
}

static UNUSED void ring_at(struct program *p, uint64_t index)
{
	atomic_store_explicit((_Atomic uint32_t *)&p->record[1], htobe32(index & 0xffff),
			      memory_order_release);
	atomic_store_explicit((_Atomic uint64_t *)&p->producer, index, memory_order_release);
	atomic_store_explicit((_Atomic uint64_t *)&p->doorbell, index, memory_order_release);
}

static UNUSED void ring(struct program *p)
{
	ring_at(p, p->next);
}

/* WRITE or READ with one data segment. */
static UNUSED void put_copy(struct program *p, uint8_t opcode, const void *remote, uint32_t rkey,
			    const void *local, uint32_t lkey, uint32_t size)
{
	uint8_t w[64] = { 0 };

	control(p, w, opcode, 3, WQE_CQE);
	remote_segment(w + 16, remote, rkey);
	data_segment(w + 32, local, lkey, size);
	put_entry(p, w, 1);
}

static UNUSED void put_atomic(struct program *p, uint8_t opcode, const void *remote, uint32_t rkey,
			      uint64_t operand, uint64_t compare, const void *local, uint32_t lkey)
{
	uint8_t w[64] = { 0 };

	control(p, w, opcode, 4, WQE_CQE);
	remote_segment(w + 16, remote, rkey);
	put64(w + 32, operand);
	put64(w + 40, compare);
	data_segment(w + 48, local, lkey, 8);
	put_entry(p, w, 1);
}

static UNUSED void put_short(struct program *p, uint8_t opcode, uint8_t flags)
{
	uint8_t w[64] = { 0 };

	control(p, w, opcode, 1, flags);
	put_entry(p, w, 1);
}

enum { REMOTE_READ = 1 << 4, REMOTE_WRITE = 1 << 5 }; /* as a key's context has them */

/* Binds a memory window, as libmlx5 does, to `size` bytes at `at`, which entries address as `address`; size 0:
 * invalidates it. variant: of the new key. qpn: its user. */
static UNUSED void put_window(struct program *p, uint32_t window, uint8_t variant, uint32_t qpn, uint32_t lkey,
			      const void *at, uint64_t address, uint32_t size, uint8_t access)
{
	uint8_t w[192] = {0};
	const bool is_second = qpn != WINDOW_ANY;

	control(p, w, WQE_UMR, size ? 12 : 8, WQE_CQE);
	put32(w + 12, window);
	w[16] = 0x90 | (is_second ? size ? 0x20 : 0x08 : 0);
	put64(w + 24, size ? 0x203c6041 : 0x20006000); /* the fields that change */
	w[64] = size ? 0 : 0x40;
	w[66] = access;
	put32(w + 68, qpn << 8 | variant);
	put64(w + 80, address);
	put64(w + 88, size);
	data_segment(w + 128, at, lkey, size);
	put_entry(p, w, size ? 3 : 2);
	ring(p);
}

static UNUSED void put_receive(struct program *p, const void *address, uint32_t key, uint32_t size)
{
	uint8_t *w = (uint8_t *)p->c.receive_ring + (p->posted++ & (RECEIVES - 1)) * SGES * 16;
	uint8_t bytes[SGES * 16] = { 0 };

	data_segment(bytes, address, key, size);
	for (uint32_t i = 1; i < SGES; i++)
		put32(bytes + 16 * i + 4, WQE_END_KEY);
	for (uint32_t j = 0; j < sizeof(bytes) / 8; j++) {
		uint64_t word;

		memcpy(&word, bytes + j * 8, 8);
		atomic_store_explicit((_Atomic uint64_t *)w + j, word, memory_order_relaxed);
	}
	atomic_store_explicit((_Atomic uint32_t *)&p->record[0], htobe32(p->posted & 0xffff),
			      memory_order_release);
}

struct cqe {
	uint8_t bytes[64];
	uint8_t opcode, syndrome, op_own;
	uint16_t index;
	uint32_t qpn, size;
};

/* Copies CQE number n if it is there. */
static UNUSED bool peek_cqe(const uint8_t *ring, uint32_t entries, uint64_t n, struct cqe *out)
{
	const uint8_t *at = ring + (n & (entries - 1)) * 64;
	const uint64_t last = atomic_load_explicit((const _Atomic uint64_t *)(at + 56),
						   memory_order_acquire);

	memcpy(out->bytes + 56, &last, 8);
	out->op_own = out->bytes[63];
	if (out->op_own >> 4 == 15 || (out->op_own & 1) != !!(n & entries))
		return false;
	for (int i = 0; i < 7; i++) {
		const uint64_t word = atomic_load_explicit((const _Atomic uint64_t *)at + i,
							   memory_order_relaxed);
		memcpy(out->bytes + 8 * i, &word, 8);
	}
	out->opcode = out->op_own >> 4;
	out->syndrome = out->bytes[55];
	out->index = (uint16_t)(out->bytes[60] << 8 | out->bytes[61]);
	out->qpn = be32_at(out->bytes + 56) & 0xffffff;
	out->size = be32_at(out->bytes + 44);
	return true;
}

static UNUSED struct cqe next_cqe(const uint8_t *ring, uint64_t *seen)
{
	const uint64_t limit = dg_now_ns() + 2 * PATIENCE;
	struct cqe c;

	while (!peek_cqe(ring, CQES, *seen, &c)) {
		if (dg_now_ns() > limit)
			check_failed(__FILE__, __LINE__, "no CQE %llu", (unsigned long long)*seen);
		usleep(10);
	}
	++*seen;
	return c;
}

static UNUSED struct cqe wait_cqe(struct program *p)
{
	return next_cqe(p->cqes, &p->seen);
}

static UNUSED struct cqe wait_receive(struct program *p)
{
	return next_cqe(p->receive_cqes, &p->seen_receives);
}

static UNUSED dg_nic_qp_info qp_info(struct program *p)
{
	dg_nic_qp_info i;

	CHECK_EQ(dg_nic_qp_info_get(p->qp, &i), 0);
	return i;
}

/* Waits until the queue pair waits for this. */
static UNUSED void check_waits(struct program *p, uint32_t what)
{
	const uint64_t limit = dg_now_ns() + 2 * PATIENCE;

	while (qp_info(p).waiting != what)
		CHECK(dg_now_ns() < limit);
}

#endif
