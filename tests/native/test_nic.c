/* SPDX-License-Identifier: Apache-2.0 */
/* The software NIC within one process: entries of every kind, right and wrong. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "nic.h"
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
	const bool gpu = !strcmp(provider, "cuda");

	p->mine = pages(SIZE);
	p->theirs = gpu ? gpu_pages(SIZE) : pages(SIZE);
	p->r_mine = registered(p->dev, p->mine, SIZE, RW);
	p->r_theirs = gpu ? registered_gpu(p->dev, p->theirs, SIZE, RW)
			  : registered(p->dev, p->theirs, SIZE, RW);
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
	CHECK_EQ(dg_device_close(p->dev, PATIENCE), 0);
	munmap(p->mine, SIZE);
	if (strcmp(provider, "cuda"))
		munmap(p->theirs, SIZE);
	else
		gpu_free(p->theirs);
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
	uint64_t *word, *old;

	FIXTURE(pair, p, pair_open, mode);
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
}

TEST(entries_are_executed_with_a_proxy_doorbell)
{
	each_opcode_moves_its_bytes(DG_NIC_PROXY);
}

TEST(entries_are_executed_with_a_record)
{
	each_opcode_moves_its_bytes(DG_NIC_RECORD);
}

TEST(entries_are_executed_without_a_record)
{
	each_opcode_moves_its_bytes(DG_NIC_NO_RECORD);
}

static void put_send(struct program *p, uint8_t opcode, const void *local, uint32_t key, uint32_t size)
{
	uint8_t w[64] = { 0 };

	control(p, w, opcode, 2, WQE_CQE);
	put32(w + 12, 77);
	data_segment(w + 16, local, key, size);
	put_entry(p, w, 1);
}

/* Opens queue pairs of this transport that are connected to each other, in the place of the pair's. */
static void use_transport(struct pair *p, uint32_t transport)
{
	struct program *const both[] = {&p->a, &p->b};

	for (int i = 0; i < 2; i++) {
		CHECK_EQ(dg_nic_qp_close(both[i]->qp), 0);
		both[i]->c.transport = transport;
		CHECK_EQ(dg_nic_qp_open(p->nic, &both[i]->c, &both[i]->qp), 0);
		both[i]->qpn = qp_info(both[i]).qpn;
	}
	const dg_nic_address a = address_of(&p->a), b = address_of(&p->b);
	program_connect(&p->a, &b);
	program_connect(&p->b, &a);
}

/* An entry with this many segments of 3 bytes, each 5 behind the one before. */
static void put_list(struct pair *p, uint8_t opcode, uint32_t count)
{
	static _Alignas(64) uint8_t w[WQE_BLOCK * WQE_BLOCKS_MAX];
	const uint32_t first = opcode == WQE_SEND ? 1 : 2;

	control(&p->a, w, opcode, first + count, WQE_CQE);
	remote_segment(w + 16, p->theirs, p->rkey);
	for (uint32_t i = 0; i < count; i++)
		data_segment(w + 16 * (first + i), p->mine + 5 * i, p->lkey, 3);
	put_entry(&p->a, w, wqe_blocks(w));
}

TEST(entries_and_receives_have_lists_of_segments)
{
	enum { COUNT = 30 };
	uint8_t *const list = aligned_alloc(64, 16 * DG_NIC_SGES);
	uint8_t expected[3 * COUNT];

	FIXTURE(pair, p, pair_open, DG_NIC_RECORD);
	CHECK_EQ(dg_nic_qp_close(p.b.qp), 0);
	free(p.b.c.receive_ring);
	p.b.c.receive_ring = list;
	p.b.c.receive_entries = 1;
	p.b.c.receive_sges = DG_NIC_SGES;
	CHECK_EQ(dg_nic_qp_open(p.nic, &p.b.c, &p.b.qp), 0);
	p.b.qpn = qp_info(&p.b).qpn;
	CHECK_EQ(dg_nic_qp_modify(p.a.qp, DG_NIC_RESET, NULL, 0), 0);
	const dg_nic_address a = address_of(&p.a), b = address_of(&p.b);
	program_connect(&p.a, &b);
	program_connect(&p.b, &a);
	fill(p.mine, 5 * COUNT, 1);
	for (int i = 0; i < 3 * COUNT; i++)
		expected[i] = p.mine[i / 3 * 5 + i % 3];
	put_list(&p, WQE_WRITE, COUNT);
	ring(&p.a);
	check_done(&p.a, 0);
	CHECK_EQ(memcmp(p.theirs, expected, sizeof expected), 0);
	memset(p.mine, 0, 5 * COUNT);
	put_list(&p, WQE_READ, COUNT);
	ring(&p.a);
	check_done(&p.a, 8);
	for (int i = 0; i < 3 * COUNT; i++)
		CHECK_EQ(p.mine[i / 3 * 5 + i % 3], expected[i]);
	/* The receive has segments of 2 to 33 bytes. */
	for (uint32_t i = 0, at = 1000; i < DG_NIC_SGES; at += 2 * (2 + i), i++)
		data_segment(list + 16 * i, p.theirs + at, p.rkey, 2 + i);
	atomic_store((_Atomic uint32_t *)&p.b.record[0], htobe32(1));
	put_list(&p, WQE_SEND, COUNT);
	ring(&p.a);
	check_done(&p.a, 16);
	CHECK_EQ(wait_receive(&p.b).size, 3 * COUNT);
	for (uint32_t i = 0, at = 1000, done = 0; done < 3 * COUNT; at += 2 * (2 + i), done += 2 + i, i++)
		CHECK_EQ(memcmp(p.theirs + at, expected + done, 2 + i < 3 * COUNT - done ? 2 + i : 3 * COUNT - done), 0);
}

TEST(a_message_is_tried_as_often_as_the_program_asks)
{
	struct cqe c;
	const dg_nic_retries sender = {.timeout = 8, .retries = 1, .rnr_retries = 3}, receiver = {.rnr_timer = 12};

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	CHECK_EQ(dg_nic_qp_set_retries(p.a.qp, &(dg_nic_retries){.rnr_retries = 8}), -EINVAL);
	CHECK_EQ(dg_nic_qp_set_retries(p.a.qp, &sender), 0);
	CHECK_EQ(dg_nic_qp_set_retries(p.b.qp, &receiver), 0);
	for (int i = 0; i < 3; i++) /* each message is tried anew */
		put_receive(&p.b, p.theirs, p.rkey, 100);
	for (int i = 0; i < 4; i++)
		put_send(&p.a, WQE_SEND, p.mine, p.lkey, 5);
	const uint64_t begin = dg_now_ns();
	ring(&p.a);
	for (uint16_t i = 0; i < 3; i++)
		check_done(&p.a, i);
	c = wait_cqe(&p.a);
	CHECK(dg_now_ns() - begin >= 3 * 640000);
	CHECK_EQ(c.syndrome, SYNDROME_RECEIVE_RETRIES);
	CHECK_EQ(c.bytes[54], 0x87);
	CHECK_EQ(qp_info(&p.b).state, DG_NIC_RTS);
}

TEST(a_peer_that_is_not_ready_is_waited_for_as_long_as_the_program_asks)
{
	struct cqe c;
	const dg_nic_retries retries = {.timeout = 10, .retries = 1, .rnr_retries = 7};

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	CHECK_EQ(dg_nic_qp_set_retries(p.a.qp, &retries), 0);
	CHECK_EQ(dg_nic_qp_modify(p.b.qp, DG_NIC_RESET, NULL, 0), 0);
	const uint64_t begin = dg_now_ns();
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 5);
	ring(&p.a);
	c = wait_cqe(&p.a);
	CHECK(dg_now_ns() - begin >= 2 * 4194304);
	CHECK_EQ(c.syndrome, SYNDROME_RETRIES);
	CHECK_EQ(c.bytes[54], 0x81);
}

TEST(over_uc_what_cannot_be_delivered_is_dropped)
{
	struct cqe c;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	use_transport(&p, DG_NIC_UC);
	for (uint16_t i = 0; i < 2; i++) { /* no receive: each waits for one */
		const uint64_t begin = dg_now_ns();
		put_send(&p.a, WQE_SEND, p.mine, p.lkey, 5);
		ring(&p.a);
		check_done(&p.a, i);
		CHECK(dg_now_ns() - begin >= 50000000);
	}
	put_receive(&p.b, p.theirs, p.rkey, 100);
	put_copy(&p.a, WQE_WRITE, p.theirs, p.rkey + 1, p.mine, p.lkey, 8);
	put_copy(&p.a, WQE_WRITE, p.theirs + SIZE, p.rkey, p.mine, p.lkey, 8);
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 7);
	ring(&p.a);
	for (uint16_t i = 2; i < 5; i++)
		check_done(&p.a, i);
	CHECK_EQ(wait_receive(&p.b).size, 7);
	CHECK_EQ(dg_nic_qp_modify(p.b.qp, DG_NIC_ERROR, NULL, 0), 0);
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 7);
	put_copy(&p.a, WQE_READ, p.theirs, p.rkey, p.mine, p.lkey, 8); /* UC has none */
	ring(&p.a);
	check_done(&p.a, 5);
	c = wait_cqe(&p.a);
	CHECK_EQ(c.syndrome, SYNDROME_LOCAL_QP);
	CHECK_EQ(qp_info(&p.a).state, DG_NIC_ERROR);
}

/* Has the NIC's thread make no pass until the other function is called. Passes of a test go on. */
static void hold_passes(dg_nic *n)
{
	uint64_t before;

	atomic_fetch_add(&n->poller.wanted, 1);
	do {
		dg_poller_lock(&n->poller);
		before = n->poller.stats.passes;
		dg_poller_unlock(&n->poller);
		usleep(1000);
	} while (n->poller.stats.passes != before);
}

static void release_passes(dg_nic *n)
{
	atomic_fetch_sub(&n->poller.wanted, 1);
}

/* A pass over one queue pair. */
static void serve(struct program *p)
{
	dg_poller_lock(&p->nic->poller);
	dg_nic_serve(p->qp);
	dg_poller_unlock(&p->nic->poller);
}

TEST(over_uc_a_message_after_a_dropped_one_waits_for_its_receive)
{
	struct cqe c;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	use_transport(&p, DG_NIC_UC);
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 5);
	ring(&p.a);
	check_done(&p.a, 0);
	hold_passes(p.nic);
	put_receive(&p.b, p.theirs, p.rkey, 100); /* which the receiver's NIC has not seen */
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 7);
	ring(&p.a);
	serve(&p.a);
	CHECK(!peek_cqe(p.a.cqes, CQES, p.a.seen, &c));
	release_passes(p.nic);
	check_done(&p.a, 1);
	CHECK_EQ(wait_receive(&p.b).size, 7);
}

static struct nic_verdict verdicts[4];

/* What happens to entry number n is verdicts[n]. */
static void judge(struct dg_nic_qp *qp, const struct nic_entry *e, bool is_valid, struct nic_verdict *v)
{
	(void)qp;
	(void)is_valid;
	*v = verdicts[e->index % 4];
}

static void entry_ended(struct dg_nic_qp *qp, const struct nic_entry *e, uint8_t syndrome)
{
	(void)qp;
	(void)e;
	(void)syndrome;
}

static void cqe_failed(struct dg_nic_qp *qp, const struct nic_cqe *e)
{
	(void)qp;
	(void)e;
}

static const struct nic_observer judging = {.entry = judge, .ended = entry_ended, .failed = cqe_failed};

TEST(entries_wait_or_are_lost_as_an_observer_says)
{
	const uint64_t wait_ns = 20000000;
	struct cqe c;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	use_transport(&p, DG_NIC_UC);
	dg_nic_observe(p.nic, &judging);
	memset(verdicts, 0, sizeof(verdicts));
	verdicts[0].drop = true;
	verdicts[1].due_ns = dg_now_ns() + wait_ns;
	verdicts[2] = (struct nic_verdict){
		.due_ns = dg_now_ns() + 2 * wait_ns, .syndrome = SYNDROME_RETRIES, .vendor = 0x81};
	fill(p.mine, 20, 1);
	fill(p.mine + 100, 20, 2);
	put_receive(&p.b, p.theirs, p.rkey, 100);
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 20);
	put_send(&p.a, WQE_SEND_IMM, p.mine + 100, p.lkey, 10);
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 20);
	ring(&p.a);
	check_done(&p.a, 0);
	check_done(&p.a, 1);
	CHECK(dg_now_ns() >= verdicts[1].due_ns);
	/* The receive has the second message, and nothing of the first. */
	c = wait_receive(&p.b);
	CHECK_EQ(c.opcode, CQE_SEND_IMM);
	CHECK_EQ(c.size, 10);
	check_pattern(p.theirs, 0, 10, 2);
	CHECK_EQ(p.theirs[10], 0);
	c = wait_cqe(&p.a);
	CHECK(dg_now_ns() >= verdicts[2].due_ns);
	CHECK_EQ(c.syndrome, SYNDROME_RETRIES);
	CHECK_EQ(c.bytes[54], 0x81);
}

TEST(messages_arrive_in_receives)
{
	uint8_t w[64] = { 0 };
	struct cqe c;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	fill(p.mine, 100, 3);
	control(&p.a, w, WQE_SEND_IMM, 2, WQE_CQE);
	put32(w + 12, 0x12345678);
	data_segment(w + 16, p.mine, p.lkey, 100);
	put_entry(&p.a, w, 1);
	ring(&p.a);
	check_waits(&p.a, DG_NIC_WAITS_RECEIVE);
	put_receive(&p.b, p.theirs + 50, p.rkey, 200);
	c = wait_receive(&p.b);
	CHECK_EQ(c.opcode, CQE_SEND_IMM);
	CHECK_EQ(c.size, 100);
	CHECK_EQ(be32_at(c.bytes + 36), 0x12345678);
	check_done(&p.a, 0);
	check_pattern(p.theirs + 50, 0, 100, 3);
}


/* Checks that the entry that was just put ends with this error, and that the rest is flushed. */
static void check_error(struct pair *p, uint8_t syndrome, const char *why)
{
	struct program *a = &p->a;
	const uint16_t index = (uint16_t)(a->next - 1);
	struct cqe c;

	put_short(a, WQE_NOP, 0);
	ring(a);
	c = wait_cqe(a);
	CHECK_EQ(c.opcode, CQE_REQUEST_ERROR);
	CHECK_EQ(c.syndrome, syndrome);
	CHECK_EQ(c.index, index);
	c = wait_cqe(a);
	CHECK_EQ(c.opcode, CQE_REQUEST_ERROR);
	CHECK_EQ(c.syndrome, SYNDROME_FLUSHED);
	CHECK_EQ(c.index, (uint16_t)(index + 1));
	CHECK_EQ(qp_info(a).state, DG_NIC_ERROR);
	CHECK_EQ(qp_info(a).syndrome, syndrome);
	CHECK_SAYS(qp_info(a).why, why);
	for (size_t i = 0; i < SIZE; i++)
		CHECK_EQ(p->theirs[i], 0);
	/* The other queue pair of the NIC works, and so does this one after a reset. */
	CHECK_EQ(qp_info(&p->b).state, DG_NIC_RTS);
	put_short(&p->b, WQE_NOP, WQE_CQE);
	ring(&p->b);
	check_done(&p->b, (uint16_t)(p->b.next - 1));
}

TEST(a_message_to_a_queue_pair_without_receives_fails)
{
	struct program other;
	dg_nic_qp_info info;
	dg_nic_address to, from;
	uint8_t w[64] = { 0 };
	struct cqe c;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	other = p.b;
	other.c.receive_ring = NULL;
	other.c.receive_entries = other.c.receive_sges = 0;
	other.c.receive_cq = NULL;
	CHECK_EQ(dg_nic_qp_open(p.a.nic, &other.c, &other.qp), 0);
	CHECK_EQ(dg_nic_qp_info_get(other.qp, &info), 0);
	other.qpn = info.qpn;
	to = address_of(&other);
	from = address_of(&p.a);
	CHECK_EQ(dg_nic_qp_modify(p.a.qp, DG_NIC_RESET, NULL, 0), 0);
	program_connect(&other, &from);
	program_connect(&p.a, &to);
	control(&p.a, w, WQE_SEND, 2, WQE_CQE);
	data_segment(w + 16, p.mine, p.lkey, 100);
	put_entry(&p.a, w, 1);
	ring(&p.a);
	c = wait_cqe(&p.a);
	CHECK_EQ(c.opcode, CQE_REQUEST_ERROR);
	CHECK_EQ(c.syndrome, SYNDROME_RECEIVE_RETRIES);
	CHECK_SAYS(qp_info(&p.a).why, "without a receive queue");
	CHECK_EQ(dg_nic_qp_close(other.qp), 0);
}

/* Starts both queue pairs again. */
static void restart(struct pair *p)
{
	struct program *both[] = { &p->a, &p->b };
	dg_nic_address a = address_of(&p->a), b = address_of(&p->b);

	for (int i = 0; i < 2; i++) {
		CHECK_EQ(dg_nic_qp_modify(both[i]->qp, DG_NIC_RESET, NULL, 0), 0);
		both[i]->next = 0;
		ring(both[i]);
	}
	program_connect(&p->a, &b);
	program_connect(&p->b, &a);
}

/* An entry whose bytes a test changes before it is put. */
static uint8_t *write_entry(struct pair *p, uint8_t *w)
{
	memset(w, 0, 1024);
	control(&p->a, w, WQE_WRITE, 3, WQE_CQE);
	remote_segment(w + 16, p->theirs, p->rkey);
	data_segment(w + 32, p->mine, p->lkey, 64);
	return w;
}

TEST(wrong_entries_end_their_queue_pair)
{
	struct wrong {
		uint32_t at, bytes; /* where, and how many */
		uint64_t value;
		uint8_t syndrome;
		const char *why;
	} cases[] = {
		{ 0, 4, 0x123408, SYNDROME_LOCAL_QP, "index" },
		{ 4, 4, 0x55503, SYNDROME_LOCAL_QP, "queue pair number" },
		{ 0, 4, 0x7f, SYNDROME_LOCAL_QP, "opcode" },
		{ 0, 4, 0x0f, SYNDROME_LOCAL_QP, "too many" }, /* WAIT of three segments */
		{ 4, 4, 0, SYNDROME_LOCAL_QP, "queue pair number" },
		{ 24, 4, 0x999900, SYNDROME_REMOTE_ACCESS, "rkey, unknown" },
		{ 24, 4, 0, SYNDROME_REMOTE_ACCESS, "rkey, unknown" },
		{ 16, 8, 1, SYNDROME_REMOTE_ACCESS, "remote address, outside" },
		{ 16, 8, UINT64_MAX - 10, SYNDROME_REMOTE_ACCESS, "remote address, outside" },
		{ 36, 4, 0x999900, SYNDROME_LOCAL_PROTECTION, "lkey, unknown" },
		{ 36, 4, 0, SYNDROME_LOCAL_PROTECTION, "lkey, unknown" },
		{ 40, 8, 1, SYNDROME_LOCAL_PROTECTION, "local address, outside" },
		{ 40, 8, UINT64_MAX - 10, SYNDROME_LOCAL_PROTECTION, "local address, outside" },
		{ 32, 4, SIZE + 1, SYNDROME_REMOTE_ACCESS, "remote address, outside" },
		{ 32, 4, 0, SYNDROME_REMOTE_ACCESS, "remote address, outside" }, /* 2 GiB */
		{ 32, 4, 0x7fffffff, SYNDROME_REMOTE_ACCESS, "remote address, outside" },
		{ 32, 4, WQE_INLINE | 13, SYNDROME_LOCAL_QP, "inline bytes" },
		{ 32, 4, 0xffffffff, SYNDROME_LOCAL_QP, "inline bytes" },
	};

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t w[1024];

		write_entry(&p, w);
		if (cases[i].bytes == 4)
			put32(w + cases[i].at, (uint32_t)cases[i].value);
		else
			put64(w + cases[i].at, cases[i].value);
		put_entry(&p.a, w, 1);
		check_error(&p, cases[i].syndrome, cases[i].why);
		restart(&p);
	}
}

TEST(number_of_segments_must_fit)
{
	static const uint8_t counts[] = { 0, 1, 2, 63 };
	uint8_t w[1024];

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	for (size_t i = 0; i < sizeof(counts); i++) {
		write_entry(&p, w);
		put32(w + 4, p.a.qpn << 8 | counts[i]);
		if (counts[i] == 63)
			w[3] = WQE_NOP;
		put_entry(&p.a, w, 1);
		if (counts[i] == 2) { /* a WRITE of nothing */
			ring(&p.a);
			check_done(&p.a, (uint16_t)(p.a.next - 1));
			continue;
		}
		if (counts[i] == 63) { /* more blocks than the doorbell has */
			ring(&p.a);
			CHECK_EQ(wait_cqe(&p.a).syndrome, SYNDROME_LOCAL_QP);
		} else {
			check_error(&p, SYNDROME_LOCAL_QP, "too few");
		}
		restart(&p);
	}
}

TEST(keys_have_rights_and_a_domain)
{
	uint32_t read_only, other_domain, imported;
	uint8_t descriptor[DG_DESCRIPTOR_MAX];

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	const int length = dg_region_export(p.r_mine, RW, descriptor, sizeof(descriptor));
	CHECK_EQ(dg_nic_key_open_import(p.nic, descriptor, (size_t)length, (uintptr_t)p.mine, 7, ALL_ACCESS, &imported), 0);
	put_copy(&p.a, WQE_WRITE, p.theirs, p.rkey, p.mine, imported, 64);
	check_error(&p, SYNDROME_LOCAL_PROTECTION, "lkey, unknown"); /* an rkey only */
	restart(&p);
	CHECK_EQ(dg_nic_key_open(p.nic, p.r_theirs, (uintptr_t)p.theirs, 7, DG_NIC_REMOTE_READ, &read_only), 0);
	CHECK_EQ(dg_nic_key_open(p.nic, p.r_theirs, (uintptr_t)p.theirs, 8, ALL_ACCESS, &other_domain), 0);
	put_copy(&p.a, WQE_WRITE, p.theirs, read_only, p.mine, p.lkey, 64);
	check_error(&p, SYNDROME_REMOTE_ACCESS, "access of the rkey");
	restart(&p);
	put_copy(&p.a, WQE_WRITE, p.theirs, other_domain, p.mine, p.lkey, 64);
	check_error(&p, SYNDROME_REMOTE_ACCESS, "domain");
	restart(&p);
	put_copy(&p.a, WQE_READ, p.theirs, p.rkey, p.theirs, read_only, 64);
	check_error(&p, SYNDROME_LOCAL_PROTECTION, "access of the lkey");
	restart(&p);
	put_copy(&p.a, WQE_READ, p.theirs, p.rkey, p.mine, other_domain, 64);
	check_error(&p, SYNDROME_LOCAL_PROTECTION, "domain");
	restart(&p);
	CHECK_EQ(dg_nic_key_close(p.nic, read_only), 0);
	put_copy(&p.a, WQE_READ, p.theirs, read_only, p.mine, p.lkey, 64);
	check_error(&p, SYNDROME_REMOTE_ACCESS, "unknown");
	CHECK_EQ(dg_nic_key_close(p.nic, read_only), -EINVAL);
}

TEST(atomic_operations_are_checked)
{
	uint8_t w[1024];

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	put_atomic(&p.a, WQE_ATOMIC_FA, p.theirs + 4, p.rkey, 1, 0, p.mine, p.lkey);
	check_error(&p, SYNDROME_REMOTE_REQUEST, "not aligned");
	restart(&p);
	put_atomic(&p.a, WQE_MASKED_FA, p.theirs, p.rkey, 1, 0, p.mine, p.lkey);
	check_error(&p, SYNDROME_LOCAL_QP, "opmod");
	restart(&p);
	memset(w, 0, sizeof(w));
	control(&p.a, w, WQE_ATOMIC_FA, 4, WQE_CQE);
	remote_segment(w + 16, p.theirs, p.rkey);
	data_segment(w + 48, p.mine, p.lkey, 16);
	put_entry(&p.a, w, 1);
	check_error(&p, SYNDROME_LOCAL_LENGTH, "old value");
}

TEST(masked_atomic_operations_change_their_bits)
{
	uint8_t w[128] = { 0 };
	uint64_t *word;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	word = (uint64_t *)(p.theirs + 64);
	*word = 0x1122334455667788;
	/* 8 bytes: two blocks. Compare the low byte, swap the high one. */
	control(&p.a, w, WQE_MASKED_CS, 5, WQE_CQE);
	w[0] = 9;
	remote_segment(w + 16, word, p.rkey);
	put64(w + 32, 0xaa00000000000000);
	put64(w + 40, 0x88);
	put64(w + 48, 0xff00000000000000);
	put64(w + 56, 0xff);
	data_segment(w + 64, p.mine, p.lkey, 8);
	put_entry(&p.a, w, 2);
	/* 4 bytes: two fields of 16 bits, of which the low one wraps without a carry. */
	memset(w, 0, sizeof(w));
	control(&p.a, w, WQE_MASKED_FA, 4, WQE_CQE);
	w[0] = 8;
	remote_segment(w + 16, p.theirs + 96, p.rkey);
	put32(w + 32, 0x00010001);
	put32(w + 36, 0x80008000);
	data_segment(w + 48, p.mine + 8, p.lkey, 4);
	*(uint32_t *)(p.theirs + 96) = 0x0005ffff;
	put_entry(&p.a, w, 1);
	ring(&p.a);
	check_done(&p.a, 0);
	check_done(&p.a, 2);
	CHECK_EQ(*word, (int64_t)0xaa22334455667788);
	CHECK_EQ(*(uint64_t *)p.mine, 0x1122334455667788);
	CHECK_EQ(*(uint32_t *)(p.theirs + 96), 0x00060000);
	CHECK_EQ(*(uint32_t *)(p.mine + 8), 0x0005ffff);
	CHECK_EQ(*(uint32_t *)(p.theirs + 100), 0);
}

TEST(entries_may_have_many_segments)
{
	uint8_t w[1024] = { 0 };
	uint32_t at = 2;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	for (int i = 0; i < 60; i++) /* so that the entry wraps in the ring */
		put_short(&p.a, WQE_NOP, i == 59 ? WQE_CQE : 0);
	ring(&p.a);
	check_done(&p.a, 59);
	fill(p.mine, 4096, 9);
	control(&p.a, w, WQE_WRITE, 0, WQE_CQE);
	remote_segment(w + 16, p.theirs, p.rkey);
	for (uint32_t i = 0, from = 0; i < 6; i++) {
		data_segment(w + 16 * at++, p.mine + from, p.lkey, 100);
		from += 100;
		put32(w + 16 * at, WQE_INLINE | 44); /* three segments */
		memcpy(w + 16 * at + 4, p.mine + from, 44);
		from += 44;
		at += 3;
	}
	put32(w + 4, p.a.qpn << 8 | at);
	put_entry(&p.a, w, (at + 3) / 4);
	ring(&p.a);
	check_done(&p.a, 60);
	check_pattern(p.theirs, 0, 6 * 144, 9);
	CHECK_EQ(p.theirs[6 * 144], 0);
	CHECK_EQ(qp_info(&p.a).taken, 60 + (at + 3) / 4);
}

static void a_doorbell_that_goes_back_is_ignored(uint32_t mode)
{
	FIXTURE(pair, p, pair_open, mode);
	for (int i = 0; i < 8; i++)
		put_short(&p.a, WQE_NOP, WQE_CQE);
	ring(&p.a);
	for (uint16_t i = 0; i < 8; i++)
		check_done(&p.a, i);
	ring_at(&p.a, 3);
	usleep(3000);
	CHECK_EQ(qp_info(&p.a).taken, 8);
	CHECK_EQ(qp_info(&p.a).state, DG_NIC_RTS);
	put_short(&p.a, WQE_NOP, WQE_CQE);
	ring(&p.a);
	check_done(&p.a, 8);
	/* One that jumps ends the queue pair, and flushes one ring. */
	ring_at(&p.a, p.a.next + SENDS + 1);
	for (int i = 0; i < SENDS; i++) {
		const struct cqe c = wait_cqe(&p.a);

		CHECK_EQ(c.syndrome, SYNDROME_FLUSHED);
		CHECK_EQ(c.index, 9 + i);
	}
	CHECK_SAYS(qp_info(&p.a).why, "doorbell, beyond the ring");
	CHECK_EQ(qp_info(&p.a).syndrome, SYNDROME_LOCAL_QP);
	usleep(2000);
	CHECK_EQ(qp_info(&p.a).taken, 9 + SENDS);
}

TEST(doorbells_only_go_forward)
{
	for (uint32_t mode = DG_NIC_PROXY; mode <= DG_NIC_NO_RECORD; mode++)
		a_doorbell_that_goes_back_is_ignored(mode);
}

TEST(rings_and_indices_wrap)
{
	const int laps = repeats(1100); /* more than 65536 entries: the index wraps, too */

	FIXTURE(pair, p, pair_open, DG_NIC_RECORD);
	for (int lap = 0; lap < laps; lap++) {
		for (int i = 0; i < SENDS; i++) {
			p.mine[i] = (uint8_t)(lap + i);
			put_copy(&p.a, WQE_WRITE, p.theirs + i, p.rkey, p.mine + i, p.lkey, 1);
		}
		ring(&p.a);
		for (int i = 0; i < SENDS; i++)
			check_done(&p.a, (uint16_t)(lap * SENDS + i));
		CHECK_EQ(memcmp(p.mine, p.theirs, SENDS), 0);
	}
}

TEST(a_collapsed_cq_has_the_last_entry)
{
	dg_nic_qp_config c;
	dg_nic_cq *cq;
	dg_nic_qp *qp;
	struct program one;
	dg_nic_address b;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	program_open(&one, p.nic, DG_NIC_PROXY, SENDS, CQES);
	CHECK_EQ(dg_nic_qp_close(one.qp), 0);
	c = one.c;
	cq = c.send_cq = cq_over(p.nic, one.cqes, 1, true);
	CHECK_EQ(dg_nic_qp_open(p.nic, &c, &qp), 0);
	one.qp = qp;
	one.qpn = qp_info(&one).qpn;
	b = address_of(&one); /* its own peer */
	program_connect(&one, &b);
	for (int i = 0; i < 10; i++)
		put_short(&one, WQE_NOP, WQE_CQE);
	ring(&one);
	for (uint64_t limit = dg_now_ns() + PATIENCE; qp_info(&one).completed < 10;)
		CHECK(dg_now_ns() < limit);
	CHECK_EQ(one.cqes[61], 9);
	CHECK_EQ(one.cqes[63] >> 4, CQE_REQUEST);
	CHECK_EQ(one.cqes[64 + 63], 0xf1);
	CHECK_EQ(dg_nic_cq_close(cq), -EBUSY);
	program_close(&one);
	CHECK_EQ(dg_nic_cq_close(cq), 0);
}

TEST(a_wait_holds_its_own_queue_only)
{
	uint8_t w[64] = { 0 };
	uint32_t cqn;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	CHECK_EQ(dg_nic_cq_number(p.b.send_cq, &cqn), 0);
	control(&p.a, w, WQE_WAIT, 2, WQE_CQE);
	put32(w + 24, 1); /* the second CQE */
	put32(w + 28, cqn);
	put_entry(&p.a, w, 1);
	put_copy(&p.a, WQE_WRITE, p.theirs, p.rkey, p.mine, p.lkey, 1);
	ring(&p.a);
	put_short(&p.b, WQE_NOP, WQE_CQE);
	ring(&p.b);
	check_done(&p.b, 0);
	check_waits(&p.a, DG_NIC_WAITS_WAIT);
	CHECK_EQ(qp_info(&p.a).taken, 0);
	put_short(&p.b, WQE_NOP, WQE_CQE);
	ring(&p.b);
	check_done(&p.b, 1);
	check_done(&p.a, 0);
	check_done(&p.a, 1);
	control(&p.a, w, WQE_WAIT, 2, WQE_CQE);
	put32(w + 28, 0xfffff);
	put_entry(&p.a, w, 1);
	check_error(&p, SYNDROME_LOCAL_QP, "CQ to wait for");
}

TEST(large_entries_keep_their_order)
{
	enum { LARGE = 8 << 20 };
	struct pair p;
	uint8_t *from, *to;
	dg_region *r_from, *r_to;
	uint32_t lkey, rkey;

	pair_open(&p, DG_NIC_PROXY);
	from = pages(LARGE);
	to = pages(LARGE);
	fill(from, LARGE, 5);
	r_from = registered(p.dev, from, LARGE, RW);
	r_to = registered(p.dev, to, LARGE, RW);
	CHECK_EQ(dg_nic_key_open(p.nic, r_from, 0, 7, ALL_ACCESS, &lkey), 0); /* addresses from 0 */
	CHECK_EQ(dg_nic_key_open(p.nic, r_to, 4096, 7, ALL_ACCESS, &rkey), 0);
	put_copy(&p.a, WQE_WRITE, (void *)4096, rkey, (void *)0, lkey, LARGE);
	put_copy(&p.a, WQE_WRITE, (void *)4096, rkey, (void *)1, lkey, 10); /* over its start */
	put_copy(&p.a, WQE_READ, (void *)4096, rkey, p.mine, p.lkey, 20);
	put_atomic(&p.a, WQE_ATOMIC_FA, p.theirs, p.rkey, 3, 0, p.mine + 64, p.lkey);
	put_copy(&p.a, WQE_READ, p.theirs, p.rkey, p.mine + 128, p.lkey, 8);
	ring(&p.a);
	for (uint16_t i = 0; i < 5; i++)
		check_done(&p.a, i);
	check_pattern(to, 1, 10, 5);
	check_pattern(to + 10, 10, LARGE - 10, 5);
	CHECK_EQ(memcmp(p.mine, to, 20), 0);
	CHECK_EQ(p.mine[128], 3);
	CHECK_EQ(dg_region_close(r_to, PATIENCE), 0);
	memset(p.theirs, 0, 64);
	put_copy(&p.a, WQE_WRITE, (void *)4096, rkey, (void *)0, lkey, LARGE);
	check_error(&p, SYNDROME_REMOTE_ACCESS, "");
	pair_close(&p);
	munmap(from, LARGE);
	munmap(to, LARGE);
}

/* As GPUNetIO's functions that put with a signal: the word may not change before the bytes are there. */
TEST(an_atomic_operation_waits_for_the_writes_before_it)
{
	enum { LARGE = 8 << 20 };
	struct pair p;
	uint8_t *from = pages(LARGE), *to = pages(LARGE);
	uint32_t lkey, rkey;

	pair_open(&p, DG_NIC_PROXY);
	memset(from, 1, LARGE);
	CHECK_EQ(dg_nic_key_open(p.nic, registered(p.dev, from, LARGE, RW), 0, 7, ALL_ACCESS, &lkey), 0);
	CHECK_EQ(dg_nic_key_open(p.nic, registered(p.dev, to, LARGE, RW), 0, 7, ALL_ACCESS, &rkey), 0);
	memset(p.theirs, 0, 8);
	put_copy(&p.a, WQE_WRITE, NULL, rkey, NULL, lkey, LARGE); /* by the provider's thread */
	put_atomic(&p.a, WQE_ATOMIC_FA, p.theirs, p.rkey, 1, 0, p.mine, p.lkey);
	ring(&p.a);
	while (!atomic_load((_Atomic uint64_t *)(void *)p.theirs))
		sched_yield();
	CHECK_EQ(to[LARGE - 1], 1);
	check_done(&p.a, 0);
	check_done(&p.a, 1);
	pair_close(&p);
	munmap(from, LARGE);
	munmap(to, LARGE);
}

TEST(a_region_closed_under_traffic_ends_the_queue_pair)
{
	struct cqe c = { .syndrome = 0 };

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	for (int i = 0; i < SENDS / 2; i++)
		put_copy(&p.a, WQE_WRITE, p.theirs, p.rkey, p.mine, p.lkey, 64);
	ring(&p.a);
	CHECK_EQ(dg_region_close(p.r_theirs, PATIENCE), 0);
	mprotect(p.theirs, SIZE, PROT_NONE);
	put_copy(&p.a, WQE_WRITE, p.theirs, p.rkey, p.mine, p.lkey, 64);
	ring(&p.a);
	while (!c.syndrome)
		c = wait_cqe(&p.a);
	CHECK_EQ(c.syndrome, SYNDROME_REMOTE_ACCESS);
	CHECK_SAYS(qp_info(&p.a).why, "closed region");
}

/* As munmap(), but no other thread's memory can take the place before the NIC looks there. */
static void unmap(void *at, size_t size)
{
	CHECK(mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
}

/* Executes an entry over the start of memory that was unmapped; then the NIC still serves others. */
static void unmapped_memory_ends_its_entry(uint32_t opcode, uint32_t size, bool mine)
{
	const uintptr_t half = 1 << 20;
	const uint32_t before = size / 2;
	uint8_t *from = pages(2 * half), *to = pages(2 * half);
	uint32_t lkey, rkey;
	struct pair p;

	pair_open(&p, DG_NIC_PROXY);
	CHECK_EQ(dg_nic_key_open(p.nic, registered(p.dev, from, 2 * half, RW), 0, 7, ALL_ACCESS, &lkey), 0);
	CHECK_EQ(dg_nic_key_open(p.nic, registered(p.dev, to, 2 * half, RW), 0, 7, ALL_ACCESS, &rkey), 0);
	unmap((mine ? from : to) + half, half);
	if (opcode == WQE_ATOMIC_FA)
		put_atomic(&p.a, opcode, (void *)half, rkey, 1, 0, (void *)half, lkey);
	else
		put_copy(&p.a, opcode, (uint8_t *)half - before, rkey, (uint8_t *)half - before, lkey, size);
	check_error(&p, mine ? SYNDROME_LOCAL_PROTECTION : SYNDROME_REMOTE_ACCESS, "");
	restart(&p);
	put_copy(&p.a, WQE_WRITE, p.theirs, p.rkey, p.mine, p.lkey, 64);
	ring(&p.a);
	check_done(&p.a, 0);
	pair_close(&p);
	munmap(from, 2 * half);
	munmap(to, 2 * half);
}

TEST(memory_that_was_unmapped_ends_its_entry)
{
	static const uint32_t sizes[] = { 2, 64, 5000, 1 << 20 }; /* the last: by the provider's thread */

	for (int mine = 0; mine < 2; mine++) {
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			unmapped_memory_ends_its_entry(WQE_WRITE, sizes[i], mine);
			unmapped_memory_ends_its_entry(WQE_READ, sizes[i], mine);
		}
		unmapped_memory_ends_its_entry(WQE_ATOMIC_FA, 8, mine);
	}
}

/* The receive's error, of which the sender's queue pair learns only over RC. */
static void message_into_unmapped_memory(uint32_t transport, uint32_t size)
{
	const uintptr_t half = 1 << 20;
	uint8_t *from = pages(half), *to = pages(2 * half);
	uint32_t lkey, rkey;
	struct pair p;

	pair_open(&p, DG_NIC_PROXY);
	if (transport != DG_NIC_RC)
		use_transport(&p, transport);
	CHECK_EQ(dg_nic_key_open(p.nic, registered(p.dev, from, half, RW), 0, 7, ALL_ACCESS, &lkey), 0);
	CHECK_EQ(dg_nic_key_open(p.nic, registered(p.dev, to, 2 * half, RW), 0, 7, ALL_ACCESS, &rkey), 0);
	unmap(to + half, half);
	put_receive(&p.b, (uint8_t *)half - 32, rkey, half);
	put_send(&p.a, WQE_SEND, 0, lkey, size);
	ring(&p.a);
	if (transport == DG_NIC_UC)
		check_done(&p.a, 0);
	else
		CHECK_EQ(wait_cqe(&p.a).syndrome, SYNDROME_REMOTE_OPERATION);
	if (transport == DG_NIC_RC)
		CHECK_EQ(wait_receive(&p.b).syndrome, SYNDROME_LOCAL_PROTECTION);
	pair_close(&p);
	munmap(from, half);
	munmap(to, 2 * half);
}

TEST(a_message_into_unmapped_memory_is_the_receivers_error)
{
	for (uint32_t size = 5000; size <= 500000; size *= 100) { /* the larger by the provider's thread */
		message_into_unmapped_memory(DG_NIC_RC, size);
		message_into_unmapped_memory(DG_NIC_UC, size);
	}
}

static void leave(int signal_number)
{
	_exit(signal_number == SIGSEGV ? 3 : 4);
}

TEST(other_faults_are_those_of_the_program)
{
	for (int own = 0; own < 2; own++) {
		const pid_t child = fork();
		int status;

		if (!child) {
			uint8_t *at = pages(SIZE);
			dg_nic *nic;

			if (own)
				signal(SIGSEGV, leave);
			CHECK_EQ(dg_nic_open(device_spinning(0), 0, &nic), 0);
			munmap(at, SIZE);
			*(volatile uint8_t *)at = 1;
			_exit(0);
		}
		CHECK_EQ(waitpid(child, &status, 0), child);
		CHECK(own ? WIFEXITED(status) && WEXITSTATUS(status) == 3 : status != 0);
	}
}

TEST(an_error_flushes_receives)
{
	struct cqe c;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	put_receive(&p.b, p.theirs, p.rkey, 10);
	put_receive(&p.b, p.theirs, p.rkey, 10);
	CHECK_EQ(dg_nic_qp_modify(p.b.qp, DG_NIC_ERROR, NULL, 0), 0);
	for (uint16_t i = 0; i < 2; i++) {
		c = wait_receive(&p.b);
		CHECK_EQ(c.opcode, CQE_RECEIVE_ERROR);
		CHECK_EQ(c.syndrome, SYNDROME_FLUSHED);
		CHECK_EQ(c.index, i);
	}
	/* A send to it fails at once. */
	put_copy(&p.a, WQE_WRITE, p.theirs, p.rkey, p.mine, p.lkey, 64);
	ring(&p.a);
	CHECK_EQ(wait_cqe(&p.a).syndrome, SYNDROME_RETRIES);
}

TEST(messages_that_do_not_fit_are_errors_of_both)
{
	struct cqe c;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	put_receive(&p.b, p.theirs, p.rkey, 99);
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 100);
	ring(&p.a);
	CHECK_EQ(wait_cqe(&p.a).syndrome, SYNDROME_REMOTE_REQUEST);
	CHECK_SAYS(qp_info(&p.a).why, "more than the receive has");
	CHECK_EQ(p.theirs[0], 0);
	c = wait_receive(&p.b);
	CHECK_EQ(c.opcode, CQE_RECEIVE_ERROR);
	CHECK_EQ(c.syndrome, SYNDROME_LOCAL_LENGTH);
	CHECK_EQ(qp_info(&p.b).state, DG_NIC_ERROR);
}

/* A second pair, whose receiver shares the receives of the first one's. */
static void open_sharing(struct pair *p, struct program *from, struct program *to)
{
	program_open(from, p->nic, DG_NIC_PROXY, SENDS, CQES);
	program_open(to, p->nic, DG_NIC_PROXY, SENDS, CQES);
	CHECK_EQ(dg_nic_qp_close(to->qp), 0);
	to->c.receives_of = p->b.qp;
	CHECK_EQ(dg_nic_qp_open(p->nic, &to->c, &to->qp), -EINVAL);
	CHECK_SAYS(dg_last_error(), "no receive entries");
	to->c.receive_entries = 0;
	CHECK_EQ(dg_nic_qp_open(p->nic, &to->c, &to->qp), 0);
	to->qpn = qp_info(to).qpn;
	const dg_nic_address a = address_of(to), b = address_of(from);
	program_connect(from, &a);
	program_connect(to, &b);
}

static void check_receive(struct pair *p, uint32_t qpn, uint8_t syndrome, uint32_t size)
{
	const struct cqe c = wait_receive(&p->b);

	CHECK_EQ(c.syndrome, syndrome);
	CHECK_EQ(c.qpn, qpn);
	if (!syndrome)
		CHECK_EQ(c.size, size);
}

TEST(queue_pairs_share_receives)
{
	struct program from, to;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	open_sharing(&p, &from, &to);
	/* More messages than the ring has places, in turn; each takes the next receive. */
	for (uint32_t i = 0; i < 3 * RECEIVES; i++) {
		struct program *sender = i % 3 ? &from : &p.a;

		fill(p.mine, 100, i);
		put_send(sender, WQE_SEND, p.mine, p.lkey, 100);
		ring(sender);
		if (i < 2)
			check_waits(sender, DG_NIC_WAITS_RECEIVE);
		put_receive(&p.b, p.theirs + 200 * i, p.rkey, 200);
		check_receive(&p, i % 3 ? to.qpn : p.b.qpn, 0, 100);
		CHECK_EQ(wait_cqe(sender).opcode, CQE_REQUEST);
		check_pattern(p.theirs + 200 * i, 0, 100, i);
	}
	/* The end of one leaves the receives to the other. */
	put_receive(&p.b, p.theirs, p.rkey, 200);
	CHECK_EQ(dg_nic_qp_modify(p.b.qp, DG_NIC_ERROR, NULL, 0), 0);
	put_send(&from, WQE_SEND, p.mine, p.lkey, 70);
	ring(&from);
	check_receive(&p, to.qpn, 0, 70);
	CHECK_EQ(dg_nic_qp_modify(p.b.qp, DG_NIC_RESET, NULL, 0), -EBUSY);
	CHECK_EQ(dg_nic_qp_close(p.b.qp), -EBUSY);
	/* So does an error of a message. */
	put_receive(&p.b, p.theirs, p.rkey, 10);
	put_send(&from, WQE_SEND, p.mine, p.lkey, 11);
	ring(&from);
	check_receive(&p, to.qpn, SYNDROME_LOCAL_LENGTH, 0);
	program_close(&from);
	program_close(&to);
	/* Without others the rest is flushed, and nobody can share it any more. */
	CHECK_EQ(dg_nic_qp_open(p.nic, &to.c, &to.qp), -EINVAL);
	CHECK_SAYS(dg_last_error(), "(ERROR) has no receives");
	put_receive(&p.b, p.theirs, p.rkey, 10);
	check_receive(&p, p.b.qpn, SYNDROME_FLUSHED, 0);
}

enum { PLACES = 8, PLACE = 32 };

/* Opens a pair whose receiver takes from the list. */
static void open_listed(struct pair *p, dg_nic_srq *srq, struct program *from, struct program *to,
			int async_fd)
{
	program_open(from, p->nic, DG_NIC_PROXY, SENDS, CQES);
	program_open(to, p->nic, DG_NIC_PROXY, SENDS, CQES);
	CHECK_EQ(dg_nic_qp_close(to->qp), 0);
	to->c.srq = srq;
	CHECK_EQ(dg_nic_qp_open(p->nic, &to->c, &to->qp), -EINVAL);
	CHECK_SAYS(dg_last_error(), "no receive entries");
	to->c.receive_entries = 0;
	to->c.async_fd = async_fd;
	to->c.event = async_fd < 0 ? 0 : 6;
	CHECK_EQ(dg_nic_qp_open(p->nic, &to->c, &to->qp), 0);
	to->qpn = qp_info(to).qpn;
	const dg_nic_address a = address_of(to), b = address_of(from);
	program_connect(from, &a);
	program_connect(to, &b);
}

/* Stores receive number n of the list. Those that are free follow each other in steps of 3. */
static void put_listed(struct pair *p, uint8_t *list, uint32_t *record, uint32_t n)
{
	uint8_t *at = list + (3 * n % PLACES) * PLACE;

	put32(at, (3 * (n + 1)) % PLACES);
	data_segment(at + 16, p->theirs + 100 * n, p->rkey, 100);
	atomic_store_explicit((_Atomic uint32_t *)record, htobe32(n + 1), memory_order_release);
}

static void check_listed(struct pair *p, struct program *from, struct program *to, uint32_t n)
{
	fill(p->mine, 50, n);
	put_send(from, WQE_SEND, p->mine, p->lkey, 50);
	ring(from);
	CHECK_EQ(wait_cqe(from).syndrome, 0);
	CHECK_EQ(wait_receive(to).index, 3 * n % PLACES);
	check_pattern(p->theirs + 100 * n, 0, 50, n);
}

TEST(a_list_of_receives_is_taken_in_its_order)
{
	struct program from, to, other_from, other_to;
	dg_nic_srq *srq;
	uint32_t record = 0;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	uint8_t *list = aligned_alloc(64, PLACES * PLACE);
	const dg_nic_srq_config c = {
		.ring = list, .entries = PLACES, .sges = 1, .record = &record, .pd = 7};
	memset(list, 0, PLACES * PLACE);
	CHECK_EQ(dg_nic_srq_open(p.nic, &c, &srq), 0);
	open_listed(&p, srq, &from, &to, -1);
	open_listed(&p, srq, &other_from, &other_to, -1);
	CHECK_EQ(dg_nic_srq_close(srq), -EBUSY);
	for (uint32_t n = 0; n < 2 * PLACES; n++) {
		put_listed(&p, list, &record, n);
		check_listed(&p, n % 2 ? &from : &other_from, n % 2 ? &to : &other_to, n);
	}
	/* A receive that a queue pair took for a message that is wrong is another's, once that is closed. */
	put_listed(&p, list, &record, 2 * PLACES);
	put_send(&from, WQE_SEND, p.mine, 0xdead00, 50);
	ring(&from);
	CHECK_EQ(wait_cqe(&from).syndrome, SYNDROME_LOCAL_PROTECTION);
	put_listed(&p, list, &record, 2 * PLACES + 1);
	check_listed(&p, &other_from, &other_to, 2 * PLACES + 1);
	program_close(&from);
	program_close(&to);
	check_listed(&p, &other_from, &other_to, 2 * PLACES);
	program_close(&other_from);
	program_close(&other_to);
	CHECK_EQ(dg_nic_srq_close(srq), 0);
	free(list);
}

/* Ends an entry of p->b, of which the error is SYNDROME_BIND or none. */
static void check_window(struct pair *p, uint8_t syndrome, const char *why)
{
	const struct cqe c = wait_cqe(&p->b);

	CHECK_EQ(c.syndrome, syndrome);
	CHECK_EQ(c.bytes[56], WQE_UMR);
	if (!syndrome)
		return;
	CHECK_SAYS(qp_info(&p->b).why, why);
	restart(p);
}

/* An error of p->a, or none, for bytes at `address` of the key. */
static void check_access(struct pair *p, uint8_t opcode, uint64_t address, uint32_t key, uint32_t size, uint8_t syndrome)
{
	put_copy(&p->a, opcode, (void *)(uintptr_t)address, key, p->mine, p->lkey, size);
	ring(&p->a);
	CHECK_EQ(wait_cqe(&p->a).syndrome, syndrome);
	if (syndrome)
		restart(p);
}

/* The pair, with a key to which windows may be bound, and a window. */
static void open_window(struct pair *p, uint32_t type, uint32_t *parent, uint32_t *window)
{
	pair_open(p, DG_NIC_RECORD);
	CHECK_EQ(dg_nic_key_open(p->nic, p->r_theirs, (uintptr_t)p->theirs, 7, DG_NIC_LOCAL_WRITE | DG_NIC_BIND,
				 parent), 0);
	CHECK_EQ(dg_nic_window_open(p->nic, type, 7, window), 0);
}

TEST(a_window_gives_access_to_a_part_until_it_is_invalidated)
{
	uint32_t parent, window, key;
	struct pair p;

	for (uint32_t type = 1; type <= 2; type++) {
		open_window(&p, type, &parent, &window);
		key = (window & ~0xffu) | 0x77;
		check_access(&p, WQE_WRITE, 0, window, 8, SYNDROME_REMOTE_ACCESS);
		check_access(&p, WQE_WRITE, (uintptr_t)p.theirs, parent, 8, SYNDROME_REMOTE_ACCESS);
		put_window(&p.b, window, 0x77, type == 2 ? p.b.qpn : WINDOW_ANY, parent, p.theirs + 100, 4096, 50,
			   REMOTE_WRITE);
		check_window(&p, 0, NULL);
		fill(p.mine, 50, type);
		check_access(&p, WQE_WRITE, 4096, key, 50, 0);
		check_pattern(p.theirs + 100, 0, 50, type);
		check_access(&p, WQE_WRITE, 4097, key, 50, SYNDROME_REMOTE_ACCESS);
		check_access(&p, WQE_WRITE, 4095, key, 1, SYNDROME_REMOTE_ACCESS);
		check_access(&p, WQE_READ, 4096, key, 8, SYNDROME_REMOTE_ACCESS); /* it can be written only */
		check_access(&p, WQE_WRITE, 4096, key + 1, 8, SYNDROME_REMOTE_ACCESS);
		/* No key of one's own: of bytes to send, or for them. */
		put_copy(&p.a, WQE_WRITE, p.theirs, p.rkey, (void *)4096, key, 8);
		ring(&p.a);
		CHECK_EQ(wait_cqe(&p.a).syndrome, SYNDROME_LOCAL_PROTECTION);
		restart(&p);
		put_window(&p.b, key, 0x78, type == 2 ? p.b.qpn : WINDOW_ANY, 0, NULL, 0, 0, 0);
		check_window(&p, 0, NULL);
		check_access(&p, WQE_WRITE, 4096, key, 8, SYNDROME_REMOTE_ACCESS);
		/* A region that is closed takes its windows' memory with it. */
		put_window(&p.b, window, 1, type == 2 ? p.b.qpn : WINDOW_ANY, parent, p.theirs, 0, 50, REMOTE_WRITE);
		check_window(&p, 0, NULL);
		CHECK_EQ(dg_region_close(p.r_theirs, PATIENCE), 0);
		check_access(&p, WQE_WRITE, 0, (window & ~0xffu) | 1, 8, SYNDROME_REMOTE_ACCESS);
		CHECK_EQ(dg_nic_window_close(p.nic, window), 0);
		CHECK_EQ(dg_nic_window_close(p.nic, window), -EINVAL);
		pair_close(&p);
	}
}

TEST(windows_are_bound_to_what_their_lkey_allows)
{
	uint32_t parent, window, second, foreign, read_only;

	FIXTURE(pair, p, open_window, 1, &parent, &window);
	CHECK_EQ(dg_nic_window_open(p.nic, 3, 7, &second), -EINVAL);
	CHECK_EQ(dg_nic_window_open(p.nic, 2, 7, &second), 0);
	CHECK_EQ(dg_nic_key_open(p.nic, p.r_theirs, 0, 8, DG_NIC_LOCAL_WRITE | DG_NIC_BIND, &foreign), 0);
	CHECK_EQ(dg_nic_key_open(p.nic, p.r_theirs, 0, 7, DG_NIC_BIND, &read_only), 0);
	const struct {
		uint32_t window, qpn, lkey, size;
		uint64_t at;
		const char *why;
	} wrong[] = {
		{parent, WINDOW_ANY, parent, 8, (uintptr_t)p.theirs, "of no memory window"},
		{window, WINDOW_ANY, p.rkey, 8, (uintptr_t)p.theirs, "cannot be bound"},
		{window, WINDOW_ANY, foreign, 8, 0, "cannot be bound"},
		{window, WINDOW_ANY, second, 8, 0, "cannot be bound"},
		{window, WINDOW_ANY, read_only, 8, 0, "cannot be written"},
		{window, WINDOW_ANY, parent, 8, (uintptr_t)p.theirs + SIZE - 7, "outside its lkey"},
		{window, p.b.qpn, parent, 8, (uintptr_t)p.theirs, "user of a memory window"},
		{second, WINDOW_ANY, parent, 8, (uintptr_t)p.theirs, "user of a memory window"},
		{second, p.a.qpn, parent, 8, (uintptr_t)p.theirs, "user of a memory window"},
		{second, p.b.qpn, 0, 0, 0, "to invalidate"},
	};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		put_window(&p.b, wrong[i].window, 9, wrong[i].qpn, wrong[i].lkey, (void *)(uintptr_t)wrong[i].at, 0,
			   wrong[i].size, REMOTE_WRITE);
		check_window(&p, SYNDROME_BIND, wrong[i].why);
	}
	put_window(&p.b, second, 9, p.b.qpn, parent, p.theirs, 0, 8, REMOTE_WRITE);
	check_window(&p, 0, NULL);
	put_window(&p.b, second, 10, p.b.qpn, parent, p.theirs, 0, 8, REMOTE_WRITE);
	check_window(&p, SYNDROME_BIND, "still bound");
	CHECK_EQ(dg_nic_window_close(p.nic, parent), -EINVAL);
}

/* A SEND that asks the receiver to invalidate a window; not yet told to the NIC. */
static void put_invalidating(struct pair *p, uint32_t key)
{
	uint8_t w[64] = {0};

	put_receive(&p->b, p->theirs, p->rkey, 100);
	control(&p->a, w, WQE_SEND_INVAL, 2, WQE_CQE);
	put32(w + 12, key);
	data_segment(w + 16, p->mine, p->lkey, 20);
	put_entry(&p->a, w, 1);
}

TEST(a_message_invalidates_a_window_of_its_receiver)
{
	uint32_t parent, window;
	struct cqe c;

	FIXTURE(pair, p, open_window, 2, &parent, &window);
	put_window(&p.b, window, 9, p.b.qpn, parent, p.theirs + 100, 0, 50, REMOTE_WRITE);
	check_window(&p, 0, NULL);
	const uint32_t key = (window & ~0xffu) | 9;
	check_access(&p, WQE_WRITE, 0, key, 8, 0);
	/* It is of this queue pair's peer only. */
	put_copy(&p.b, WQE_WRITE, NULL, key, p.theirs, p.rkey, 8);
	ring(&p.b);
	CHECK_EQ(wait_cqe(&p.b).syndrome, SYNDROME_REMOTE_ACCESS);
	restart(&p);
	fill(p.mine, 20, 4);
	put_invalidating(&p, key);
	ring(&p.a);
	CHECK_EQ(wait_cqe(&p.a).syndrome, 0);
	c = wait_receive(&p.b);
	CHECK_EQ(c.opcode, CQE_SEND_INVAL);
	CHECK_EQ(c.size, 20);
	CHECK_EQ(be32_at(c.bytes + 36), key);
	check_pattern(p.theirs, 0, 20, 4);
	check_access(&p, WQE_WRITE, 0, key, 8, SYNDROME_REMOTE_ACCESS);
	put_invalidating(&p, key);
	ring(&p.a);
	CHECK_EQ(wait_cqe(&p.a).syndrome, SYNDROME_REMOTE_ACCESS);
	CHECK_EQ(wait_receive(&p.b).syndrome, SYNDROME_LOCAL_ACCESS);
}

TEST(a_window_is_invalidated_by_one_of_two_messages)
{
	uint32_t parent, window;

	FIXTURE(pair, p, open_window, 2, &parent, &window);
	const uint32_t key = (window & ~0xffu) | 9;
	put_window(&p.b, window, 9, p.b.qpn, parent, p.theirs + 100, 0, 50, REMOTE_WRITE);
	check_window(&p, 0, NULL);
	put_invalidating(&p, key);
	put_invalidating(&p, key);
	ring(&p.a);
	CHECK_EQ(wait_cqe(&p.a).syndrome, 0);
	CHECK_EQ(wait_cqe(&p.a).syndrome, SYNDROME_REMOTE_ACCESS);
	CHECK_EQ(wait_receive(&p.b).syndrome, 0);
	CHECK_EQ(wait_receive(&p.b).syndrome, SYNDROME_LOCAL_ACCESS);
}

/* Its number may be that of another queue pair later. */
TEST(a_window_of_one_peer_ends_with_its_queue_pair)
{
	uint32_t parent, window;
	struct pair p;

	for (uint32_t type = 1; type <= 2; type++) {
		open_window(&p, type, &parent, &window);
		put_window(&p.b, window, 9, type == 2 ? p.b.qpn : WINDOW_ANY, parent, p.theirs, 0, 50, REMOTE_WRITE);
		check_window(&p, 0, NULL);
		CHECK_EQ(p.nic->keys[key_index(window)].size, 50);
		program_close(&p.b);
		CHECK_EQ(p.nic->keys[key_index(window)].size, type == 2 ? 0 : 50);
		program_open(&p.b, p.nic, DG_NIC_RECORD, SENDS, CQES);
		pair_close(&p);
	}
}

enum { DOMAIN = 3, FIRST_QUEUE = 0x101 };

/* A queue for XRC with its list of receives; its CQ, whose CQEs are at `cqes`. */
struct xrc_queue {
	dg_nic_srq *srq;
	dg_nic_cq *cq;
	uint8_t *list, *cqes;
	uint64_t seen;
	uint32_t record, posted;
};

static void xrc_queue_open(struct xrc_queue *q, dg_nic *nic, uint32_t number, uint32_t domain)
{
	memset(q, 0, sizeof(*q));
	q->list = aligned_alloc(64, PLACES * PLACE);
	memset(q->list, 0, PLACES * PLACE);
	q->cqes = cq_memory(CQES);
	q->cq = cq_over(nic, q->cqes, CQES, false);
	const dg_nic_srq_config c = {.ring = q->list, .entries = PLACES, .sges = 1, .record = &q->record, .pd = 7,
				     .number = number, .domain = domain, .cq = q->cq, .user_index = number};
	CHECK_EQ(dg_nic_srq_open(nic, &c, &q->srq), 0);
}

static void xrc_queue_close(struct xrc_queue *q)
{
	CHECK_EQ(dg_nic_srq_close(q->srq), 0);
	CHECK_EQ(dg_nic_cq_close(q->cq), 0);
	free(q->list);
	free(q->cqes);
}

/* Opens the pair's queue pairs anew: a as the side that sends, b as the one that receives. */
static void use_xrc(struct pair *p)
{
	CHECK_EQ(dg_nic_qp_close(p->a.qp), 0);
	CHECK_EQ(dg_nic_qp_close(p->b.qp), 0);
	p->a.c.transport = DG_NIC_XRC_SEND;
	p->a.c.receive_entries = 0;
	p->a.c.receive_cq = NULL;
	p->b.c.transport = DG_NIC_XRC_RECEIVE;
	p->b.c.receive_entries = 0;
	CHECK_EQ(dg_nic_qp_open(p->nic, &p->b.c, &p->b.qp), -EINVAL);
	CHECK_SAYS(dg_last_error(), "has no CQ");
	p->b.c.send_cq = p->b.c.receive_cq = NULL;
	p->b.c.domain = DOMAIN;
	CHECK_EQ(dg_nic_qp_open(p->nic, &p->a.c, &p->a.qp), 0);
	CHECK_EQ(dg_nic_qp_open(p->nic, &p->b.c, &p->b.qp), 0);
	p->a.qpn = qp_info(&p->a).qpn;
	p->b.qpn = qp_info(&p->b).qpn;
	const dg_nic_address a = address_of(&p->a), b = address_of(&p->b);
	program_connect(&p->a, &b);
	program_connect(&p->b, &a);
}

/* Sends `size` bytes to the queue with this number. */
static void put_xrc(struct pair *p, uint32_t number, uint32_t size)
{
	uint8_t w[64] = {0};

	control(&p->a, w, WQE_SEND, 3, WQE_CQE);
	put32(w + 16, number);
	data_segment(w + 32, p->mine, p->lkey, size);
	put_entry(&p->a, w, 1);
	ring(&p->a);
}

TEST(an_entry_of_xrc_names_the_queue_that_takes_it)
{
	struct xrc_queue q[2], stranger;
	struct cqe c;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	use_xrc(&p);
	for (uint32_t i = 0; i < 2; i++)
		xrc_queue_open(&q[i], p.nic, FIRST_QUEUE + i, DOMAIN);
	xrc_queue_open(&stranger, p.nic, FIRST_QUEUE + 2, DOMAIN + 1);
	for (uint32_t n = 0; n < 3 * PLACES; n++) {
		struct xrc_queue *to = &q[n / 3 % 2];
		put_listed(&p, to->list, &to->record, to->posted);
		fill(p.mine, 60, n);
		put_xrc(&p, FIRST_QUEUE + n / 3 % 2, 60);
		check_done(&p.a, (uint16_t)n);
		c = next_cqe(to->cqes, &to->seen);
		CHECK_EQ(c.opcode, CQE_SEND);
		CHECK_EQ(c.size, 60);
		CHECK_EQ(c.index, 3 * to->posted % PLACES);
		check_pattern(p.theirs + 100 * to->posted++, 0, 60, n);
	}
	put_xrc(&p, FIRST_QUEUE + 2, 60); /* of another domain */
	CHECK_EQ(wait_cqe(&p.a).syndrome, SYNDROME_REMOTE_REQUEST);
	xrc_queue_close(&stranger);
	for (int i = 0; i < 2; i++)
		xrc_queue_close(&q[i]);
}

TEST(a_queue_of_xrc_closed_with_a_message_in_it_ends_the_connection)
{
	struct xrc_queue q[2];

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	use_xrc(&p);
	for (uint32_t i = 0; i < 2; i++) {
		xrc_queue_open(&q[i], p.nic, FIRST_QUEUE + i, DOMAIN);
		put_listed(&p, q[i].list, &q[i].record, 0);
		put_listed(&p, q[i].list, &q[i].record, 1);
	}
	put_xrc(&p, FIRST_QUEUE, 60);
	check_done(&p.a, 0);
	next_cqe(q[0].cqes, &q[0].seen);
	hold_passes(p.nic);
	put_xrc(&p, FIRST_QUEUE, 60);
	serve(&p.a); /* asks for a receive */
	serve(&p.b);
	serve(&p.a); /* delivers the message */
	check_done(&p.a, 1);
	xrc_queue_close(&q[0]);
	release_passes(p.nic);
	put_xrc(&p, FIRST_QUEUE + 1, 60);
	CHECK_EQ(wait_cqe(&p.a).syndrome, SYNDROME_RETRIES);
	CHECK_EQ(qp_info(&p.b).state, DG_NIC_ERROR);
	xrc_queue_close(&q[1]);
}

TEST(queue_pairs_of_rc_take_no_receives_of_a_queue_for_xrc)
{
	struct xrc_queue q;
	dg_nic_qp *qp;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	xrc_queue_open(&q, p.nic, FIRST_QUEUE, DOMAIN);
	dg_nic_qp_config c = p.b.c;
	c.receive_entries = 0;
	c.srq = q.srq;
	CHECK_EQ(dg_nic_qp_open(p.nic, &c, &qp), -EINVAL);
	CHECK_SAYS(dg_last_error(), "not for XRC");
	xrc_queue_close(&q);
}

static uint64_t passes(dg_nic *n)
{
	dg_nic_stats s;

	CHECK_EQ(dg_nic_stats_get(n, &s), 0);
	return s.passes;
}

static void check_async(int fd, uint64_t event, uint32_t type)
{
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	dg_nic_async_event e;

	CHECK_EQ(poll(&readable, 1, 2 * PATIENCE / 1000000), 1);
	CHECK_EQ(read(fd, &e, sizeof e), sizeof e);
	CHECK_EQ(e.event, event);
	CHECK_EQ(e.type, type);
}

TEST(asynchronous_events_are_sent_once)
{
	struct program from, to;
	dg_nic_srq *srq;
	dg_nic_async_event e;
	uint32_t record = 0;
	int fds[2];

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	CHECK_EQ(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
	uint8_t *list = aligned_alloc(64, PLACES * PLACE);
	const dg_nic_srq_config c = {.ring = list, .entries = PLACES, .sges = 1, .record = &record, .pd = 7,
				     .async_fd = fds[1], .event = 5};
	memset(list, 0, PLACES * PLACE);
	CHECK_EQ(dg_nic_srq_open(p.nic, &c, &srq), 0);
	open_listed(&p, srq, &from, &to, fds[1]);
	for (uint32_t n = 0; n < 4; n++)
		put_listed(&p, list, &record, n);
	CHECK_EQ(dg_nic_srq_set_limit(srq, PLACES), -EINVAL);
	CHECK_EQ(dg_nic_srq_set_limit(srq, 3), 0);
	CHECK_EQ(dg_nic_srq_limit(srq), 3);
	check_listed(&p, &from, &to, 0);
	CHECK_EQ(read(fds[0], &e, sizeof e), -1);
	check_listed(&p, &from, &to, 1);
	check_async(fds[0], 5, DG_NIC_SRQ_LIMIT);
	check_listed(&p, &from, &to, 2);
	CHECK_EQ(read(fds[0], &e, sizeof e), -1);
	CHECK_EQ(dg_nic_srq_set_limit(srq, 3), 0); /* there are fewer already */
	check_async(fds[0], 5, DG_NIC_SRQ_LIMIT);
	ring_at(&to, to.next + 2 * SENDS);
	check_async(fds[0], 6, DG_NIC_QP_FATAL);
	check_async(fds[0], 6, DG_NIC_QP_LAST_RECEIVE);
	const uint64_t before = passes(p.nic);
	while (passes(p.nic) < before + 2)
		;
	CHECK_EQ(read(fds[0], &e, sizeof e), -1);
	program_close(&from);
	program_close(&to);
	CHECK_EQ(dg_nic_srq_close(srq), 0);
	close(fds[0]);
	close(fds[1]);
	free(list);
}

TEST(a_cq_goes_on_in_another_ring)
{
	struct cqe c;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	uint8_t *larger = cq_memory(2 * CQES), *old = p.a.cqes;
	put_short(&p.a, WQE_NOP, WQE_CQE);
	ring(&p.a);
	check_done(&p.a, 0);
	CHECK_EQ(dg_nic_cq_resize(p.a.send_cq, larger, 3), -EINVAL);
	CHECK_EQ(dg_nic_cq_resize(p.a.send_cq, larger, 2 * CQES), 0);
	CHECK(peek_cqe(old, CQES, 1, &c));
	CHECK_EQ(c.opcode, 5);
	put_short(&p.a, WQE_NOP, WQE_CQE);
	ring(&p.a);
	p.a.cqes = larger;
	p.a.seen = 2;
	check_done(&p.a, 1);
	free(old);
}

TEST(a_cq_is_not_made_smaller_than_what_was_not_polled)
{
	uint32_t record[2] = {htobe32(0xffffff - 9)}; /* ten behind the first CQE */
	dg_device *dev = device_spinning(0);
	dg_nic *nic;
	dg_nic_cq *cq;
	uint8_t *ring = cq_memory(64);

	CHECK_EQ(dg_nic_open(dev, 0, &nic), 0);
	const dg_nic_cq_config cfg = {.ring = ring, .entries = 64, .record = record};
	CHECK_EQ(dg_nic_cq_open(nic, &cfg, &cq), 0);
	CHECK_EQ(dg_nic_cq_resize(cq, ring, 8), -EINVAL);
	CHECK_SAYS(dg_last_error(), "10 entries that were not polled");
	CHECK_EQ(dg_nic_cq_resize(cq, ring, 16), 0);
	CHECK_EQ(dg_nic_cq_close(cq), 0);
	CHECK_EQ(dg_nic_close(nic), 0);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	free(ring);
}

enum { Q_KEY = 0x11111111 };

static void open_datagrams(struct pair *p, struct program *a)
{
	program_open(a, p->nic, DG_NIC_RECORD, SENDS, CQES);
	CHECK_EQ(dg_nic_qp_close(a->qp), 0);
	a->c.transport = DG_NIC_UD;
	CHECK_EQ(dg_nic_qp_open(p->nic, &a->c, &a->qp), 0);
	a->qpn = qp_info(a).qpn;
	CHECK_EQ(dg_nic_qp_set_q_key(a->qp, Q_KEY), 0);
	program_connect(a, NULL);
}

/* A SEND of `size` bytes of p->mine to a queue pair of the pair's NIC. */
static void put_datagram(struct pair *p, struct program *from, uint32_t to, uint32_t q_key, uint32_t size)
{
	uint8_t w[128] = {0};

	control(from, w, WQE_SEND_IMM, 5, WQE_CQE);
	put32(w + 12, 0x12345678);
	put32(w + 16, q_key);
	put32(w + 24, WQE_LONG_ADDRESS | to);
	CHECK_EQ(dg_nic_gid_get(p->nic, w + 48), 0);
	data_segment(w + 64, p->mine, p->lkey, size);
	put_entry(from, w, 2);
	ring(from);
}

TEST(datagrams_arrive_with_a_header_or_are_dropped)
{
	struct program a, b;
	struct cqe c;
	uint8_t header[DG_NIC_GRH] = {0x60, [6] = 0x1b};

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	open_datagrams(&p, &a);
	open_datagrams(&p, &b);
	fill(p.mine, DG_NIC_MTU, 5);
	put_receive(&b, p.mine + 10000, p.lkey, DG_NIC_MTU + DG_NIC_GRH);
	/* To nobody, and with a wrong key: lost. */
	put_datagram(&p, &a, 0xffffff, Q_KEY, 100);
	put_datagram(&p, &a, b.qpn, Q_KEY + 1, 100);
	put_datagram(&p, &a, p.b.qpn, Q_KEY, 100);
	put_datagram(&p, &a, b.qpn, Q_KEY, DG_NIC_MTU);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(wait_cqe(&a).opcode, CQE_REQUEST);
	c = wait_receive(&b);
	CHECK_EQ(c.opcode, CQE_SEND_IMM);
	CHECK_EQ(c.size, DG_NIC_MTU + DG_NIC_GRH);
	CHECK_EQ(be32_at(c.bytes + 36), 0x12345678);
	CHECK_EQ(be32_at(c.bytes + 24), 1 << 28 | a.qpn);
	check_pattern(p.mine + 10000 + DG_NIC_GRH, 0, DG_NIC_MTU, 5);
	header[4] = (DG_NIC_MTU + 52) >> 8;
	header[5] = (uint8_t)(DG_NIC_MTU + 52);
	CHECK_EQ(dg_nic_gid_get(p.nic, header + 8), 0);
	memcpy(header + 24, header + 8, 16);
	CHECK_EQ(memcmp(p.mine + 10000, header, sizeof header), 0);
	/* With the highest bit, the sender's own key; without a receive, it waits for one for a moment. */
	put_datagram(&p, &a, b.qpn, 1u << 31, 100);
	CHECK_EQ(wait_cqe(&a).opcode, CQE_REQUEST);
	put_receive(&b, p.mine + 10000, p.lkey, 100 + DG_NIC_GRH);
	CHECK_EQ(wait_receive(&b).size, 100 + DG_NIC_GRH);
	/* What does not fit ends the receiver. */
	put_receive(&b, p.mine + 10000, p.lkey, 99 + DG_NIC_GRH);
	put_datagram(&p, &a, b.qpn, Q_KEY, 100);
	CHECK_EQ(wait_receive(&b).syndrome, SYNDROME_LOCAL_LENGTH);
	CHECK_EQ(wait_cqe(&a).opcode, CQE_REQUEST);
	put_datagram(&p, &a, b.qpn, Q_KEY, DG_NIC_MTU + 1);
	CHECK_EQ(wait_cqe(&a).syndrome, SYNDROME_LOCAL_LENGTH);
	program_close(&a);
	program_close(&b);
}

TEST(a_datagram_into_unmapped_memory_ends_its_receiver)
{
	uint8_t *to = pages(SIZE);
	struct pair p;
	struct program a, b;
	uint32_t key;

	pair_open(&p, DG_NIC_PROXY);
	CHECK_EQ(dg_nic_key_open(p.nic, registered(p.dev, to, SIZE, RW), 0, 7, ALL_ACCESS, &key), 0);
	open_datagrams(&p, &a);
	open_datagrams(&p, &b);
	unmap(to, SIZE);
	put_receive(&b, NULL, key, 200);
	put_datagram(&p, &a, b.qpn, Q_KEY, 100);
	CHECK_EQ(wait_receive(&b).syndrome, SYNDROME_LOCAL_PROTECTION);
	CHECK_EQ(wait_cqe(&a).opcode, CQE_REQUEST);
	program_close(&a);
	program_close(&b);
	pair_close(&p);
	munmap(to, SIZE);
}

TEST(datagrams_have_no_other_operations)
{
	struct program a;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	open_datagrams(&p, &a);
	put_copy(&a, WQE_WRITE, p.theirs, p.rkey, p.mine, p.lkey, 8);
	ring(&a);
	CHECK_EQ(wait_cqe(&a).syndrome, SYNDROME_LOCAL_QP);
	CHECK_SAYS(qp_info(&a).why, "opcode, not of this transport");
	program_close(&a);
}

TEST(a_wrong_receive_is_an_error_of_both)
{
	struct cqe c;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	put_receive(&p.b, p.theirs + SIZE - 10, p.rkey, 11);
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 5);
	ring(&p.a);
	c = wait_receive(&p.b);
	CHECK_EQ(c.syndrome, SYNDROME_LOCAL_PROTECTION);
	CHECK_EQ(wait_cqe(&p.a).syndrome, SYNDROME_REMOTE_OPERATION);
}

TEST(messages_go_both_ways_in_order)
{
	const uint32_t rounds = (uint32_t)repeats(2000);

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	for (uint32_t i = 0; i < rounds; i++) {
		struct cqe c;

		p.mine[0] = (uint8_t)i;
		put_receive(&p.b, p.theirs + 100, p.rkey, 200);
		put_receive(&p.a, p.theirs + 400, p.rkey, 200);
		put_send(&p.a, WQE_SEND, p.mine, p.lkey, 1 + i % 200);
		put_send(&p.b, WQE_SEND_IMM, p.mine, p.lkey, 1 + i % 100);
		ring(&p.a);
		ring(&p.b);
		c = wait_receive(&p.b);
		CHECK_EQ(c.opcode, CQE_SEND);
		CHECK_EQ(c.index, (uint16_t)i);
		CHECK_EQ(c.size, 1 + i % 200);
		CHECK_EQ(p.theirs[100], (uint8_t)i);
		c = wait_receive(&p.a);
		CHECK_EQ(c.opcode, CQE_SEND_IMM);
		CHECK_EQ(be32_at(c.bytes + 36), 77);
		check_done(&p.a, (uint16_t)i);
		check_done(&p.b, (uint16_t)i);
	}
	/* A write with an immediate value uses a receive, and none of its memory. */
	uint8_t w[64] = { 0 };
	put_receive(&p.b, p.theirs + 100, p.rkey, 200);
	control(&p.a, w, WQE_WRITE_IMM, 3, WQE_CQE);
	put32(w + 12, 5);
	remote_segment(w + 16, p.theirs + 900, p.rkey);
	data_segment(w + 32, p.mine, p.lkey, 30);
	put_entry(&p.a, w, 1);
	ring(&p.a);
	const struct cqe c = wait_receive(&p.b);
	CHECK_EQ(c.opcode, CQE_WRITE_IMM);
	CHECK_EQ(c.size, 30);
	CHECK_EQ(be32_at(c.bytes + 36), 5);
}

TEST(short_messages_may_lie_in_the_cqe)
{
	struct cqe c;
	dg_nic_address a, b;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	CHECK_EQ(dg_nic_qp_close(p.b.qp), 0);
	p.b.c.inline_receive = 1;
	CHECK_EQ(dg_nic_qp_open(p.nic, &p.b.c, &p.b.qp), 0);
	p.b.qpn = qp_info(&p.b).qpn;
	a = address_of(&p.a);
	b = address_of(&p.b);
	CHECK_EQ(dg_nic_qp_modify(p.a.qp, DG_NIC_RESET, NULL, 0), 0);
	program_connect(&p.a, &b);
	program_connect(&p.b, &a);
	fill(p.mine, 64, 4);
	put_receive(&p.b, p.theirs, p.rkey, 100);
	put_receive(&p.b, p.theirs, p.rkey, 100);
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 32);
	ring(&p.a);
	c = wait_receive(&p.b);
	CHECK_EQ(c.op_own & CQE_INLINE_32, CQE_INLINE_32);
	check_pattern(c.bytes, 0, 32, 4);
	CHECK_EQ(p.theirs[0], 0);
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 33);
	ring(&p.a);
	c = wait_receive(&p.b);
	CHECK_EQ(c.op_own & CQE_INLINE_32, 0);
	check_pattern(p.theirs, 0, 33, 4);
}

TEST(a_fence_and_a_dump_wait_for_earlier_entries)
{
	enum { LARGE = 4 << 20 };
	struct pair p;
	uint8_t w[64] = { 0 };
	uint8_t *to = pages(LARGE);
	uint32_t key;

	pair_open(&p, DG_NIC_PROXY);
	CHECK_EQ(dg_nic_key_open(p.nic, registered(p.dev, to, LARGE, RW), (uintptr_t)to, 7, ALL_ACCESS, &key), 0);
	memset(to, 1, LARGE / 2);
	put_copy(&p.a, WQE_WRITE, to + LARGE / 2, key, to, key, LARGE / 2);
	control(&p.a, w, WQE_WRITE, 3, WQE_CQE | 0x80);
	remote_segment(w + 16, p.theirs, p.rkey);
	data_segment(w + 32, to + LARGE - 1, key, 1); /* the last byte of the first */
	put_entry(&p.a, w, 1);
	memset(w, 0, sizeof(w));
	control(&p.a, w, WQE_DUMP, 2, WQE_CQE);
	data_segment(w + 16, p.mine, p.lkey, 8);
	put_entry(&p.a, w, 1);
	ring(&p.a);
	for (uint16_t i = 0; i < 3; i++)
		check_done(&p.a, i);
	CHECK_EQ(p.theirs[0], 1);
	pair_close(&p);
	munmap(to, LARGE);
}

TEST(queue_pairs_take_turns)
{
	enum { N = 8, MANY = 256 };
	struct program q[N];

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	for (int i = 0; i < N; i++) {
		program_open(&q[i], p.nic, DG_NIC_PROXY, MANY, CQES);
		const dg_nic_address self = address_of(&q[i]);
		program_connect(&q[i], &self);
		for (int j = 0; j < MANY; j++)
			put_short(&q[i], WQE_NOP, 0);
	}
	/* In place of the NIC's thread, which waits for its lock meanwhile. */
	dg_poller_lock(&p.nic->poller);
	for (int i = 0; i < N; i++)
		ring(&q[i]);
	for (uint64_t turn = 1; turn <= MANY / NIC_PASS; turn++) {
		CHECK(p.nic->poller.pass(p.nic));
		for (int i = 0; i < N; i++)
			CHECK_EQ(q[i].qp->taken, turn * NIC_PASS);
	}
	dg_poller_unlock(&p.nic->poller);
	for (int i = 0; i < N; i++)
		program_close(&q[i]);
}

TEST(a_full_cq_keeps_its_cqes_and_ends_with_its_queue_pair)
{
	enum { PLACES = 4 };
	struct pair p;
	struct program q;
	uint32_t record[2] = { 0 };
	int fds[2];

	pair_open(&p, DG_NIC_PROXY);
	CHECK_EQ(pipe2(fds, O_NONBLOCK), 0);
	program_open(&q, p.nic, DG_NIC_PROXY, SENDS, PLACES);
	dg_nic_qp_close(q.qp);
	dg_nic_cq_close(q.send_cq);
	const dg_nic_cq_config cfg = { .ring = q.cqes, .entries = PLACES, .record = record,
				       .event = 8, .event_fd = -1, .async_fd = fds[1], .is_checked = 1 };
	CHECK_EQ(dg_nic_cq_open(p.nic, &cfg, &q.send_cq), 0);
	q.c.send_cq = q.send_cq;
	q.c.async_fd = fds[1];
	q.c.event = 9;
	CHECK_EQ(dg_nic_qp_open(p.nic, &q.c, &q.qp), 0);
	q.qpn = qp_info(&q).qpn;
	const dg_nic_address self = address_of(&q);
	program_connect(&q, &self);
	for (int i = 0; i < PLACES; i++)
		put_short(&q, WQE_NOP, WQE_CQE);
	ring(&q);
	while (qp_info(&q).produced_cqes != PLACES)
		sched_yield();
	/* One is seen, so there is a place for one. */
	atomic_store((_Atomic uint32_t *)&record[0], htobe32(1));
	put_short(&q, WQE_NOP, WQE_CQE);
	ring(&q);
	while (qp_info(&q).produced_cqes != PLACES + 1)
		sched_yield();
	CHECK_EQ(qp_info(&q).state, DG_NIC_RTS);
	put_short(&q, WQE_NOP, WQE_CQE);
	ring(&q);
	while (qp_info(&q).state != DG_NIC_ERROR)
		sched_yield();
	check_async(fds[0], 8, DG_NIC_CQ_OVERRUN);
	check_async(fds[0], 9, DG_NIC_QP_FATAL);
	CHECK_SAYS(qp_info(&q).why, "CQ, full");
	for (uint64_t i = 1; i <= PLACES; i++)
		CHECK_EQ(be16toh(*(uint16_t *)(q.cqes + (i % PLACES) * 64 + 60)), i);
	program_close(&q);
	pair_close(&p);
	close(fds[0]);
	close(fds[1]);
}

static uint64_t sleeps(dg_nic *n)
{
	dg_nic_stats s;

	CHECK_EQ(dg_nic_stats_get(n, &s), 0);
	return s.sleeps;
}

TEST(a_thread_that_is_to_spin_sleeps_where_the_program_makes_passes)
{
	dg_device *dev = device_spinning(0);
	dg_nic *n;

	CHECK_EQ(dg_nic_open(dev, UINT64_MAX, &n), 0);
	while (!sleeps(n))
		CHECK_EQ(dg_nic_progress(n), 0);
	CHECK_EQ(dg_nic_close(n), 0);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

TEST(a_thread_that_is_to_spin_sleeps_where_others_need_its_cpu)
{
	dg_device *dev = device_spinning(0);
	cpu_set_t all, one;
	dg_nic *n;

	if (dg_cpus() < 2)
		SKIP("on one CPU no thread spins");
	CHECK_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
	CHECK_EQ(dg_nic_open(dev, UINT64_MAX, &n), 0);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	CHECK_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
	CHECK_EQ(pthread_setaffinity_np(n->poller.thread, sizeof(one), &one), 0);
	while (!sleeps(n))
		continue;
	CHECK_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
	CHECK_EQ(dg_nic_close(n), 0);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

TEST(a_forked_child_can_only_close)
{
	int status;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	const pid_t pid = fork();
	if (!pid) {
		dg_nic_stats stats;
		uint32_t key;

		CHECK_EQ(dg_nic_stats_get(p.nic, &stats), -EOWNERDEAD);
		CHECK_EQ(dg_nic_key_open(p.nic, p.r_mine, 0, 7, 0, &key), -EOWNERDEAD);
		CHECK_EQ(dg_nic_qp_modify(p.a.qp, DG_NIC_ERROR, NULL, 0), -EOWNERDEAD);
		CHECK_EQ(dg_nic_qp_close(p.a.qp), 0);
		CHECK_EQ(dg_nic_close(p.nic), 0);
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	put_short(&p.a, WQE_NOP, WQE_CQE);
	ring(&p.a);
	check_done(&p.a, 0);
}

TEST(wrong_configurations_are_refused)
{
	dg_nic_qp_config c;
	dg_nic_qp *qp;
	dg_nic_cq *cq;
	dg_nic_cq_config q;
	uint32_t key;
	dg_nic_address far = { .gid = { 1 }, .qpn = 5 };

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	c = p.a.c;
	c.send_entries = 3;
	CHECK_EQ(dg_nic_qp_open(p.nic, &c, &qp), -EINVAL);
	CHECK_SAYS(dg_last_error(), "3 send entries");
	c = p.a.c;
	c.receive_sges = 3;
	CHECK_EQ(dg_nic_qp_open(p.nic, &c, &qp), -EINVAL);
	c = p.a.c;
	c.receive_cq = NULL;
	CHECK_EQ(dg_nic_qp_open(p.nic, &c, &qp), -EINVAL);
	q = (dg_nic_cq_config){ .ring = p.a.cqes, .entries = 5 };
	CHECK_EQ(dg_nic_cq_open(p.nic, &q, &cq), -EINVAL);
	q = (dg_nic_cq_config){ .ring = p.a.cqes + 8, .entries = 4 };
	CHECK_EQ(dg_nic_cq_open(p.nic, &q, &cq), -EINVAL);
	q = (dg_nic_cq_config){ .ring = p.a.cqes, .entries = 4, .entry_size = 256 };
	CHECK_EQ(dg_nic_cq_open(p.nic, &q, &cq), -EINVAL);
	CHECK_EQ(dg_nic_key_open(p.nic, p.r_mine, UINT64_MAX, 7, 0, &key), -ERANGE);
	CHECK_EQ(dg_nic_key_open(p.nic, p.r_mine, 0, 7, 32, &key), -EINVAL);
	CHECK_EQ(dg_nic_qp_modify(p.a.qp, DG_NIC_RTR, &far, 0), -EINVAL);
	CHECK_SAYS(dg_last_error(), "state RTS and cannot go to RTR");
	CHECK_EQ(dg_nic_qp_modify(p.a.qp, DG_NIC_RESET, NULL, 0), 0);
	CHECK_EQ(dg_nic_qp_modify(p.a.qp, DG_NIC_INIT, NULL, 0), 0);
	CHECK_EQ(dg_nic_qp_modify(p.a.qp, DG_NIC_RTR, &far, 0), -ENOTCONN);
	CHECK_SAYS(dg_last_error(), "no NIC of this machine");
	CHECK_EQ(dg_nic_qp_set_doorbell(p.a.qp, DG_NIC_PROXY, NULL, NULL), -EINVAL);
	CHECK_EQ(dg_nic_qp_set_doorbell(p.a.qp, DG_NIC_PROXY, (uint64_t *)((char *)&p.a.doorbell + 4), NULL),
		 -EINVAL);
	CHECK_EQ(dg_nic_close(p.nic), -EBUSY);
}

/* Two NICs of this process: a queue pair of each is connected to one of the other. */
static void pairs_open(struct pair *p, struct pair *q)
{
	dg_nic_address a, b;

	pair_open(p, DG_NIC_PROXY);
	pair_open(q, DG_NIC_PROXY);
	a = address_of(&p->a);
	b = address_of(&q->a);
	CHECK_EQ(dg_nic_qp_modify(p->a.qp, DG_NIC_RESET, NULL, 0), 0);
	CHECK_EQ(dg_nic_qp_modify(q->a.qp, DG_NIC_RESET, NULL, 0), 0);
	program_connect(&p->a, &b);
	program_connect(&q->a, &a);
}

TEST(two_nics_of_a_process_reach_each_other)
{
	struct pair p, q;

	pairs_open(&p, &q);
	fill(p.mine, 1000, 8);
	put_copy(&p.a, WQE_WRITE, q.theirs, q.rkey, p.mine, p.lkey, 1000);
	put_copy(&p.a, WQE_READ, q.theirs, q.rkey, p.mine + 2000, p.lkey, 1000);
	ring(&p.a);
	check_done(&p.a, 0);
	check_done(&p.a, 1);
	check_pattern(q.theirs, 0, 1000, 8);
	check_pattern(p.mine + 2000, 0, 1000, 8);
	put_receive(&q.a, q.theirs + 5000, q.rkey, 600);
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 500);
	ring(&p.a);
	CHECK_EQ(wait_receive(&q.a).size, 500);
	check_pattern(q.theirs + 5000, 0, 500, 8);
	check_done(&p.a, 2);
	/* A key that has other memory there has it here; one that was closed is refused. */
	CHECK_EQ(dg_nic_key_change(q.nic, q.rkey + 1, q.r_mine, (uintptr_t)q.mine, 7, ALL_ACCESS), -EINVAL);
	CHECK_EQ(dg_nic_key_change(q.nic, q.rkey, q.r_mine, (uintptr_t)q.mine, 7, ALL_ACCESS), 0);
	put_copy(&p.a, WQE_WRITE, q.mine, q.rkey, p.mine, p.lkey, 1000);
	ring(&p.a);
	check_done(&p.a, 3);
	check_pattern(q.mine, 0, 1000, 8);
	CHECK_EQ(dg_nic_key_close(q.nic, q.rkey), 0);
	put_copy(&p.a, WQE_WRITE, q.theirs, q.rkey, p.mine, p.lkey, 10);
	ring(&p.a);
	CHECK_EQ(wait_cqe(&p.a).syndrome, SYNDROME_REMOTE_ACCESS);
	pair_close(&q);
	pair_close(&p);
}

static uint64_t passes_of(const struct program *p)
{
	dg_nic_stats s;

	CHECK_EQ(dg_nic_stats_get(p->nic, &s), 0);
	return s.passes;
}

TEST(a_nic_of_a_process_outlives_its_peer)
{
	struct pair p, q;
	uint64_t passes;

	pairs_open(&p, &q);
	put_receive(&p.a, p.theirs, p.rkey, 600);
	put_receive(&q.a, q.theirs, q.rkey, 600);
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 500);
	ring(&p.a);
	check_done(&p.a, 0);
	pair_close(&q);
	for (passes = passes_of(&p.a); passes_of(&p.a) < passes + 100;)
		sched_yield();
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 500);
	ring(&p.a);
	CHECK_EQ(wait_cqe(&p.a).syndrome, SYNDROME_RETRIES);
	pair_close(&p);
}

static void *close_nic(void *nic)
{
	CHECK_EQ(dg_nic_close(nic), 0);
	return NULL;
}

TEST(a_nic_that_is_closed_while_another_connects_harms_it_not)
{
	dg_nic_address to = { .qpn = 1 << 10 };

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	for (int i = 0; i < 100; i++) {
		pthread_t closer;
		dg_nic *q;
		int rc;

		CHECK_EQ(dg_nic_open(p.dev, 1000000, &q), 0);
		CHECK_EQ(dg_nic_gid_get(q, to.gid), 0);
		CHECK_EQ(dg_nic_qp_modify(p.a.qp, DG_NIC_RESET, NULL, 0), 0);
		CHECK_EQ(dg_nic_qp_modify(p.a.qp, DG_NIC_INIT, NULL, ALL_ACCESS), 0);
		CHECK_EQ(pthread_create(&closer, NULL, close_nic, q), 0);
		rc = dg_nic_qp_modify(p.a.qp, DG_NIC_RTR, &to, 0);
		CHECK(!rc || rc == -ENOTCONN || rc == -ENOKEY);
		CHECK_EQ(pthread_join(closer, NULL), 0);
		if (!rc)
			CHECK_EQ(dg_nic_qp_modify(p.a.qp, DG_NIC_RTS, NULL, 0), 0);
	}
}

TEST(an_armed_cq_sends_one_event_for_a_cqe)
{
	struct program c;
	struct pollfd readable;
	uint32_t record[2];
	uint64_t event, before;
	int fds[2];

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	program_open(&c, p.nic, DG_NIC_PROXY, SENDS, CQES);
	CHECK_EQ(dg_nic_qp_close(c.qp), 0);
	CHECK_EQ(dg_nic_cq_close(c.send_cq), 0);
	CHECK_EQ(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
	readable = (struct pollfd){ .fd = fds[0], .events = POLLIN };
	const dg_nic_cq_config config = {
		.ring = c.cqes, .entries = CQES, .record = record, .event = 99, .event_fd = fds[1]
	};
	CHECK_EQ(dg_nic_cq_open(p.nic, &config, &c.send_cq), 0);
	c.c.send_cq = c.send_cq;
	c.c.user_index = 0x123456;
	CHECK_EQ(dg_nic_qp_open(p.nic, &c.c, &c.qp), 0);
	c.qpn = qp_info(&c).qpn;
	const dg_nic_address to = address_of(&p.b);
	program_connect(&c, &to);
	for (uint16_t i = 0; i < 3; i++) {
		put_short(&c, WQE_NOP, WQE_CQE);
		ring(&c);
		check_done(&c, i);
		CHECK_EQ(be32_at(c.cqes + i * 64 + 32), 0x123456);
		/* The owner has seen i CQEs; it arms twice before it polls, as programs do. */
		for (int again = 0; again < 2; again++) {
			atomic_store((_Atomic uint32_t *)&record[1], htobe32(i));
			before = passes(p.nic);
			while (passes(p.nic) < before + 2)
				;
			CHECK_EQ(poll(&readable, 1, 0), again ? 0 : 1);
			CHECK_EQ(read(fds[0], &event, sizeof(event)), again ? -1 : 8);
			CHECK_EQ(event, 99);
		}
		CHECK_EQ(record[1], htobe32(i)); /* still armed */
	}
	program_close(&c);
	close(fds[0]);
	close(fds[1]);
}

TEST(messages_of_an_earlier_connection_are_not_taken)
{
	uint64_t before;

	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	put_receive(&p.b, p.theirs, p.rkey, 64);
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 64);
	ring(&p.a);
	CHECK_EQ(wait_receive(&p.b).size, 64);
	const dg_nic_address a = address_of(&p.a), b = address_of(&p.b);
	/* One side first: the other still has the message of before. */
	CHECK_EQ(dg_nic_qp_modify(p.b.qp, DG_NIC_RESET, NULL, 0), 0);
	p.b.posted = 0;
	put_receive(&p.b, p.theirs, p.rkey, 64);
	program_connect(&p.b, &a);
	before = passes(p.nic);
	while (passes(p.nic) < before + 3)
		;
	CHECK_EQ(qp_info(&p.b).state, DG_NIC_RTS);
	CHECK_EQ(qp_info(&p.b).produced_cqes, 0);
	CHECK_EQ(dg_nic_qp_modify(p.a.qp, DG_NIC_RESET, NULL, 0), 0);
	p.a.next = 0;
	ring(&p.a);
	program_connect(&p.a, &b);
	put_send(&p.a, WQE_SEND, p.mine, p.lkey, 32);
	ring(&p.a);
	CHECK_EQ(wait_receive(&p.b).size, 32);
}

/* As over a wire, where the sequence numbers of both sides no longer fit. */
TEST(a_connection_of_which_one_side_alone_was_reset_ends)
{
	struct pair p;
	const dg_nic_retries at_once = { .timeout = 1, .rnr_retries = 7 };

	for (int sender_is_reset = 0; sender_is_reset < 2; sender_is_reset++) {
		pair_open(&p, DG_NIC_PROXY);
		struct program *const reset = sender_is_reset ? &p.a : &p.b;
		const dg_nic_address other = address_of(sender_is_reset ? &p.b : &p.a);
		put_receive(&p.b, p.theirs, p.rkey, 64);
		put_send(&p.a, WQE_SEND, p.mine, p.lkey, 64);
		ring(&p.a);
		CHECK_EQ(wait_receive(&p.b).size, 64);
		check_done(&p.a, 0);
		CHECK_EQ(dg_nic_qp_modify(reset->qp, DG_NIC_RESET, NULL, 0), 0);
		reset->next = reset->posted = 0;
		ring(reset);
		CHECK_EQ(dg_nic_qp_set_retries(p.a.qp, &at_once), 0);
		program_connect(reset, &other);
		put_receive(&p.b, p.theirs, p.rkey, 64);
		put_send(&p.a, WQE_SEND, p.mine, p.lkey, 64);
		ring(&p.a);
		CHECK_EQ(wait_cqe(&p.a).syndrome, SYNDROME_RETRIES);
		pair_close(&p);
	}
}

TEST(parts_of_an_adapter_have_numbers_of_their_own)
{
	dg_device *dev = device_spinning(0);
	struct program a, b;
	uint8_t gid[16], theirs[16];
	dg_nic *parts[2];

	for (int again = 0; again < 3; again++) {
		CHECK_EQ(dg_nic_open_part(dev, 0, &parts[0]), 0);
		CHECK_EQ(dg_nic_open_part(dev, 0, &parts[1]), 0);
		program_open(&a, parts[0], DG_NIC_RECORD, SENDS, CQES);
		program_open(&b, parts[1], DG_NIC_RECORD, SENDS, CQES);
		CHECK(a.qpn != b.qpn);
		CHECK_EQ(dg_nic_part_gid(b.qpn, gid), 0);
		CHECK_EQ(dg_nic_gid_get(parts[1], theirs), 0);
		CHECK(!memcmp(gid, theirs, 16));
		const dg_nic_address to_a = address_of(&a), to_b = address_of(&b);
		program_connect(&a, &to_b);
		program_connect(&b, &to_a);
		put_short(&a, WQE_SEND, WQE_CQE);
		put_receive(&b, NULL, 0, 0);
		ring(&a);
		CHECK_EQ(dg_nic_progress(parts[0]), 0);
		check_done(&a, 0);
		CHECK_EQ(wait_receive(&b).opcode, CQE_SEND);
		program_close(&a);
		program_close(&b);
		CHECK_EQ(dg_nic_close(parts[0]), 0);
		CHECK_EQ(dg_nic_close(parts[1]), 0);
	}
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

TEST(gpu_memory_is_reached_by_the_provider)
{
	uint8_t w[128] = { 0 };

	provider = "cuda";
	if (dg_provider_probe(provider, false))
		SKIP(dg_last_error());
	each_opcode_moves_its_bytes(DG_NIC_PROXY);
	masked_atomic_operations_change_their_bits();
	messages_arrive_in_receives();
	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	/* Inline bytes, and pinned memory on both sides behind them. */
	control(&p.a, w, WQE_WRITE, 4, WQE_CQE);
	remote_segment(w + 16, p.theirs + 10, p.rkey);
	put32(w + 32, WQE_INLINE | 20);
	memcpy(w + 36, "twenty bytes inline.", 20);
	put_entry(&p.a, w, 1);
	put_copy(&p.a, WQE_WRITE, p.mine + 100, p.lkey, p.mine, p.lkey, 10);
	put_copy(&p.a, WQE_READ, p.theirs + 10, p.rkey, p.mine + 200, p.lkey, 20);
	for (int i = 0; i < SENDS - 3; i++)
		put_copy(&p.a, WQE_WRITE, p.theirs + 100 + 8 * i, p.rkey, p.mine + 200, p.lkey, 8);
	ring(&p.a);
	for (uint16_t i = 0; i < SENDS; i++)
		check_done(&p.a, i);
	CHECK_EQ(memcmp(p.mine + 200, "twenty bytes inline.", 20), 0);
	/* Its memory is closed with operations in flight. */
	for (int i = 0; i < SENDS; i++)
		put_copy(&p.a, WQE_WRITE, p.theirs, p.rkey, p.mine, p.lkey, 4096);
	ring(&p.a);
	CHECK_EQ(dg_region_close(p.r_theirs, PATIENCE), 0);
	put_atomic(&p.a, WQE_ATOMIC_FA, p.theirs, p.rkey, 1, 0, p.mine, p.lkey);
}

/* As an adapter's writes arrive on PCIe: a word never before the bytes of the entries before it. */
TEST(a_word_in_gpu_memory_is_seen_after_the_writes_before_it)
{
	enum { BYTES = 4096, ROUNDS = 200 };

	provider = "cuda";
	if (dg_provider_probe(provider, false))
		SKIP(dg_last_error());
	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	const _Atomic uint64_t *last = (_Atomic uint64_t *)(p.theirs + BYTES - 8);
	const _Atomic uint64_t *word = (_Atomic uint64_t *)(p.theirs + BYTES + 64);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		memcpy(p.mine + BYTES - 8, &i, 8);
		memcpy(p.mine + BYTES + 64, &i, 8);
		/* The first keeps the provider busy, so that the others go to it together. */
		put_copy(&p.a, WQE_WRITE, p.theirs + 2 * BYTES, p.rkey, p.mine, p.lkey, BYTES);
		put_copy(&p.a, WQE_WRITE, p.theirs, p.rkey, p.mine, p.lkey, BYTES);
		put_copy(&p.a, WQE_WRITE, p.theirs + BYTES + 64, p.rkey, p.mine + BYTES + 64, p.lkey, 8);
		ring(&p.a);
		while (atomic_load(word) != i)
			;
		CHECK_EQ(atomic_load(last), i);
		for (uint16_t j = 0; j < 3; j++)
			check_done(&p.a, (uint16_t)(3 * (i - 1) + j));
	}
}

/* Write-values are executed in order, so words behind each other need no call of their own. */
TEST(words_in_gpu_memory_are_written_in_few_calls)
{
	enum { WORDS = 58, CALLS = 2 + 2 }; /* two at least; more if the NIC sees some of them late */

	provider = "cuda";
	if (dg_provider_probe(provider, false))
		SKIP(dg_last_error());
	FIXTURE(pair, p, pair_open, DG_NIC_PROXY);
	gpu_knobs("copy_us=2000");
	/* Meanwhile all words are posted. */
	put_copy(&p.a, WQE_WRITE, p.theirs + SIZE / 2, p.rkey, p.mine, p.lkey, 4096);
	ring(&p.a);
	for (uint32_t i = 0; i < WORDS; i++) {
		memcpy(p.mine + 8 * i, &(uint64_t){ i + 1 }, 8);
		put_copy(&p.a, WQE_WRITE, p.theirs + 64 * i, p.rkey, p.mine + 8 * i, p.lkey, 8);
	}
	ring(&p.a);
	for (uint16_t i = 0; i <= WORDS; i++)
		check_done(&p.a, i);
	for (uint32_t i = 0; i < WORDS; i++)
		CHECK_EQ(*(uint64_t *)(p.theirs + 64 * i), i + 1);
	CHECK(gpu_calls("cuStreamBatchMemOp") <= CALLS);
}

static uint64_t seed = 88172645463325252;

static uint64_t random_word(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

static uint64_t random_of(const uint64_t *values, uint32_t n)
{
	return values[random_word() % n];
}

/* An entry of a random kind, of which some fields are wrong. */
static uint32_t random_entry(struct pair *p, uint8_t *w, uint8_t *key_start)
{
	static const uint8_t opcodes[] = { WQE_NOP, WQE_WRITE, WQE_READ, WQE_ATOMIC_FA, WQE_ATOMIC_CS,
					   WQE_MASKED_FA, WQE_MASKED_CS, WQE_SEND, WQE_DUMP, WQE_UMR,
					   WQE_SEND_INVAL, 0x7e };
	const uint64_t sizes[] = { 0, 1, 8, 64, 4095, 4096, 4097, 70000, 0x7fffffff, WQE_INLINE | 9,
				   WQE_INLINE | 300, 0xffffffff, 4 };
	const uint64_t places[] = { (uintptr_t)key_start, (uintptr_t)key_start + 8,
				    (uintptr_t)key_start - 8, (uintptr_t)key_start + 4096,
				    (uintptr_t)key_start + 4090, UINT64_MAX - 4, 0 };
	const uint64_t keys[] = { p->rkey, p->rkey, p->lkey, p->rkey + 1, 0, 0xffffffff };

	for (int i = 0; i < 128; i++) {
		const uint64_t word = random_word();
		memcpy(w + 8 * i, &word, 8);
	}
	control(&p->a, w, opcodes[random_word() % sizeof(opcodes)], (uint32_t)random_word() % 7, WQE_CQE);
	w[0] = (uint8_t)(random_word() % 11);
	remote_segment(w + 16, (void *)(uintptr_t)random_of(places, 7), (uint32_t)random_of(keys, 6));
	for (uint32_t at = 16; at < 128; at += 16)
		if (random_word() % 2)
			data_segment(w + at, (void *)(uintptr_t)random_of(places, 7),
				     (uint32_t)random_of(keys, 6), (uint32_t)random_of(sizes, 13));
	return wqe_blocks(w);
}

struct vandal {
	struct program *p;
	atomic_uint stop;
};

/* Writes to the ring while it is read. */
static void *overwrite(void *arg)
{
	struct vandal *v = arg;
	uint64_t state = 1;

	while (!atomic_load(&v->stop)) {
		state = state * 6364136223846793005 + 1442695040888963407;
		atomic_store_explicit((_Atomic uint64_t *)v->p->c.send_ring + (state >> 33) % (SENDS * 8),
				      state, memory_order_relaxed);
		usleep(20);
	}
	return NULL;
}

TEST(random_entries_reach_only_their_keys)
{
	struct pair p;
	struct vandal v = { .p = &p.a };
	pthread_t thread;
	uint8_t *all = pages(3 * 4096), *inside = all + 4096, w[1024];
	const int rounds = repeats(3000);

	pair_open(&p, DG_NIC_PROXY);
	CHECK_EQ(dg_nic_key_close(p.nic, p.rkey), 0);
	CHECK_EQ(dg_nic_key_close(p.nic, p.lkey), 0);
	dg_region *r = registered(p.dev, inside, 4096, RW);
	CHECK_EQ(dg_nic_key_open(p.nic, r, (uintptr_t)inside, 7, ALL_ACCESS, &p.rkey), 0);
	CHECK_EQ(dg_nic_key_open(p.nic, r, (uintptr_t)inside, 7, DG_NIC_REMOTE_READ, &p.lkey), 0);
	CHECK_EQ(pthread_create(&thread, NULL, overwrite, &v), 0);
	for (int i = 0; i < rounds; i++) {
		put_entry(&p.a, w, random_entry(&p, w, inside));
		if (random_word() % 100 == 0)
			ring_at(&p.a, random_word() >> (random_word() % 64));
		else
			ring(&p.a);
		if (qp_info(&p.a).state == DG_NIC_ERROR || p.a.next - qp_info(&p.a).taken > SENDS / 2)
			restart(&p);
		CHECK_EQ(qp_info(&p.b).state, DG_NIC_RTS);
	}
	atomic_store(&v.stop, 1);
	pthread_join(thread, NULL);
	for (size_t i = 0; i < 4096; i++)
		CHECK_EQ(all[i] | all[2 * 4096 + i], 0);
	pair_close(&p);
	munmap(all, 3 * 4096);
}

TEST_MAIN(run_tests)
