/* SPDX-License-Identifier: Apache-2.0 */
/* The software NIC within one process: entries of every kind, right and wrong. */
#include "nic_programs.h"

enum { SIZE = 1 << 16 };

/* Two connected queue pairs of one NIC, and two keys. */
struct pair {
	dg_device *dev;
	dg_nic *nic;
	struct program a, b;
	uint8_t *mine, *theirs;
	dg_region *r_mine, *r_theirs;
	uint32_t lkey, rkey;
};

static void pair_keys(struct pair *p)
{
	p->mine = pages(SIZE);
	p->theirs = pages(SIZE);
	p->r_mine = registered(p->dev, p->mine, SIZE, RW);
	p->r_theirs = registered(p->dev, p->theirs, SIZE, RW);
	CHECK_EQ(dg_nic_key_open(p->nic, p->r_mine, (uintptr_t)p->mine, 7, ALL_ACCESS, &p->lkey), 0);
	CHECK_EQ(dg_nic_key_open(p->nic, p->r_theirs, (uintptr_t)p->theirs, 7, ALL_ACCESS, &p->rkey),
		 0);
}

static void pair_open(struct pair *p, uint32_t mode)
{
	dg_nic_address a, b;

	memset(p, 0, sizeof(*p));
	p->dev = device_spinning(0);
	CHECK_EQ(dg_nic_open(p->dev, 1000000, &p->nic), 0);
	pair_keys(p);
	program_open(&p->a, p->nic, mode, SENDS, CQES);
	program_open(&p->b, p->nic, mode, SENDS, CQES);
	a = address_of(&p->a);
	b = address_of(&p->b);
	program_connect(&p->a, &b);
	program_connect(&p->b, &a);
}

static void pair_close(struct pair *p)
{
	program_close(&p->a);
	program_close(&p->b);
	CHECK_EQ(dg_nic_close(p->nic), 0);
	CHECK_EQ(dg_device_close(p->dev, SECOND), 0);
	munmap(p->mine, SIZE);
	munmap(p->theirs, SIZE);
}

static void check_done(struct program *p, uint16_t index)
{
	const struct cqe c = wait_cqe(p);

	CHECK_EQ(c.opcode, CQE_REQUEST);
	CHECK_EQ(c.index, index);
	CHECK_EQ(c.qpn, p->qpn);
	CHECK_EQ(c.syndrome, 0);
}

static void each_opcode_moves_its_bytes(uint32_t mode)
{
	struct pair p;
	uint64_t *word, *old;

	pair_open(&p, mode);
	word = (uint64_t *)(p.theirs + 4096);
	old = (uint64_t *)(p.mine + 8192);
	fill(p.mine, 1000, 1);
	put_copy(&p.a, WQE_WRITE, p.theirs + 5, p.rkey, p.mine, p.lkey, 1000);
	put_short(&p.a, WQE_NOP, WQE_CQE);
	put_copy(&p.a, WQE_READ, p.theirs + 5, p.rkey, p.mine + 2000, p.lkey, 1000);
	put_atomic(&p.a, WQE_ATOMIC_FA, word, p.rkey, 5, 0, old, p.lkey);
	put_atomic(&p.a, WQE_ATOMIC_CS, word, p.rkey, 9, 5, old + 1, p.lkey);
	put_atomic(&p.a, WQE_ATOMIC_CS, word, p.rkey, 11, 5, old + 2, p.lkey);
	ring(&p.a);
	for (uint16_t i = 0; i < 6; i++)
		check_done(&p.a, i);
	check_pattern(p.theirs + 5, 0, 1000, 1);
	check_pattern(p.mine + 2000, 0, 1000, 1);
	CHECK_EQ(*word, 9);
	CHECK_EQ(old[0], 0);
	CHECK_EQ(old[1], 5);
	CHECK_EQ(old[2], 9);
	pair_close(&p);
}

static void entries_are_executed_with_a_proxy_doorbell(void)
{
	each_opcode_moves_its_bytes(DG_NIC_PROXY);
}

static void entries_are_executed_with_a_record(void)
{
	each_opcode_moves_its_bytes(DG_NIC_RECORD);
}

static void entries_are_executed_without_a_record(void)
{
	each_opcode_moves_its_bytes(DG_NIC_NO_RECORD);
}

static void messages_arrive_in_receives(void)
{
	struct pair p;
	uint8_t w[64] = { 0 };
	struct cqe c;

	pair_open(&p, DG_NIC_PROXY);
	fill(p.mine, 100, 3);
	control(&p.a, w, WQE_SEND_IMM, 2, WQE_CQE);
	put32(w + 12, 0x12345678);
	data_segment(w + 16, p.mine, p.lkey, 100);
	put_entry(&p.a, w, 1);
	ring(&p.a);
	usleep(2000);
	CHECK_EQ(qp_info(&p.a).waiting, DG_NIC_WAITS_RECEIVE);
	put_receive(&p.b, p.theirs + 50, p.rkey, 200);
	c = wait_receive(&p.b);
	CHECK_EQ(c.opcode, CQE_SEND_IMM);
	CHECK_EQ(c.size, 100);
	CHECK_EQ(be32_at(c.bytes + 36), 0x12345678);
	check_done(&p.a, 0);
	check_pattern(p.theirs + 50, 0, 100, 3);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(entries_are_executed_with_a_proxy_doorbell),
		TEST(entries_are_executed_with_a_record),
		TEST(entries_are_executed_without_a_record),
		TEST(messages_arrive_in_receives),
	};

	return RUN_TESTS(tests, argc, argv);
}
