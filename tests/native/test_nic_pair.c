/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs of the software NICs of two processes. */
#include "nic.h"
#include "nic_programs.h"
#include "other_process.h"

enum { SIZE = 1 << 16 };

/* What each side tells the other. */
struct side {
	dg_nic_address address;
	uint64_t base;
	uint32_t key, reserved;
};

struct here {
	dg_device *dev;
	dg_nic *nic;
	struct program p;
	dg_region *region;
	dg_memory memory;
	uint8_t *bytes;
	struct side mine, theirs;
};

static void here_open(struct here *h, int fd)
{
	memset(h, 0, sizeof(*h));
	h->dev = device_spinning(0);
	CHECK_EQ(dg_nic_open(h->dev, 1000000, &h->nic), 0);
	h->memory = sealed_memory(SIZE);
	h->bytes = h->memory.addr;
	CHECK_EQ(dg_region_register(h->dev, &h->memory, RW, &h->region), 0);
	h->mine.base = (uintptr_t)h->bytes;
	CHECK_EQ(dg_nic_key_open(h->nic, h->region, h->mine.base, 7, ALL_ACCESS, &h->mine.key), 0);
	program_open(&h->p, h->nic, DG_NIC_PROXY, SENDS, CQES);
	h->mine.address = address_of(&h->p);
	say(fd, &h->mine, sizeof(h->mine));
	hear(fd, &h->theirs, sizeof(h->theirs));
	program_connect(&h->p, &h->theirs.address);
}

static void here_close(struct here *h)
{
	program_close(&h->p);
	CHECK_EQ(dg_nic_close(h->nic), 0);
	CHECK_EQ(dg_device_close(h->dev, PATIENCE), 0);
	munmap(h->bytes, SIZE);
	close(h->memory.fd);
}

static void *far_at(const struct here *h, size_t offset)
{
	return (void *)(uintptr_t)(h->theirs.base + offset);
}

static void tell(int fd)
{
	say(fd, "x", 1);
}

static void await(int fd)
{
	char c;

	hear(fd, &c, 1);
}

static void check_done(struct program *p)
{
	const struct cqe c = wait_cqe(p);

	CHECK_EQ(c.syndrome, 0);
	CHECK_EQ(c.opcode, CQE_REQUEST);
}

/* The other side of most tests: posts receives, and says what it got. */
static void receiver(int fd)
{
	struct here h;
	uint8_t command;

	here_open(&h, fd);
	while (hears(fd, &command, 1) && command != 'q') {
		if (command == 'r') {
			put_receive(&h.p, h.bytes + 8192, h.mine.key, 4096);
		} else if (command == 'w') {
			const struct cqe c = wait_receive(&h.p);
			say(fd, &c, sizeof(c));
		} else if (command == 'k') {
			CHECK_EQ(dg_nic_key_close(h.nic, h.mine.key), 0);
		} else if (command == 'c') {
			CHECK_EQ(dg_region_close(h.region, PATIENCE), 0);
		}
		if (command != 'w')
			tell(fd);
	}
	here_close(&h);
}

static void order(struct other *o, char command)
{
	say(o->fd, &command, 1);
	await(o->fd);
}

static void finish(struct other *o, struct here *h)
{
	int status;

	say(o->fd, "q", 1);
	CHECK_EQ(waitpid(o->pid, &status, 0), o->pid);
	CHECK_EQ(status, 0);
	here_close(h);
}

static void put_send(struct here *h, size_t at, uint32_t size)
{
	uint8_t w[64] = { 0 };

	control(&h->p, w, WQE_SEND, 2, WQE_CQE);
	data_segment(w + 16, h->bytes + at, h->mine.key, size);
	put_entry(&h->p, w, 1);
	ring(&h->p);
}

static void bytes_move_between_processes(void)
{
	struct other o = start(receiver);
	struct here h;
	uint64_t *old;
	struct cqe c;

	here_open(&h, o.fd);
	fill(h.bytes, 1000, 2);
	old = (uint64_t *)(h.bytes + 4096);
	put_copy(&h.p, WQE_WRITE, far_at(&h, 8192), h.theirs.key, h.bytes, h.mine.key, 1000);
	put_copy(&h.p, WQE_READ, far_at(&h, 8192), h.theirs.key, h.bytes + 2000, h.mine.key, 1000);
	put_atomic(&h.p, WQE_ATOMIC_FA, far_at(&h, 64), h.theirs.key, 7, 0, old, h.mine.key);
	put_atomic(&h.p, WQE_ATOMIC_CS, far_at(&h, 64), h.theirs.key, 9, 7, old + 1, h.mine.key);
	ring(&h.p);
	for (int i = 0; i < 4; i++)
		check_done(&h.p);
	check_pattern(h.bytes + 2000, 0, 1000, 2);
	CHECK_EQ(old[0], 0);
	CHECK_EQ(old[1], 7);
	/* A message that waits for its receive. */
	put_send(&h, 0, 500);
	check_waits(&h.p, DG_NIC_WAITS_RECEIVE);
	order(&o, 'r');
	say(o.fd, "w", 1);
	hear(o.fd, &c, sizeof(c));
	CHECK_EQ(c.opcode, CQE_SEND);
	CHECK_EQ(c.size, 500);
	check_done(&h.p);
	finish(&o, &h);
}

static void a_key_that_its_process_closed_is_refused(void)
{
	struct other o = start(receiver);
	struct here h;

	here_open(&h, o.fd);
	put_copy(&h.p, WQE_WRITE, far_at(&h, 0), h.theirs.key, h.bytes, h.mine.key, 8);
	ring(&h.p);
	check_done(&h.p);
	order(&o, 'k');
	put_copy(&h.p, WQE_WRITE, far_at(&h, 0), h.theirs.key, h.bytes, h.mine.key, 8);
	ring(&h.p);
	CHECK_EQ(wait_cqe(&h.p).syndrome, SYNDROME_REMOTE_ACCESS);
	finish(&o, &h);
}

static void a_region_that_its_process_closed_is_refused(void)
{
	struct other o = start(receiver);
	struct here h;

	here_open(&h, o.fd);
	put_copy(&h.p, WQE_WRITE, far_at(&h, 0), h.theirs.key, h.bytes, h.mine.key, 8);
	ring(&h.p);
	check_done(&h.p);
	order(&o, 'c');
	put_copy(&h.p, WQE_WRITE, far_at(&h, 0), h.theirs.key, h.bytes, h.mine.key, 8);
	ring(&h.p);
	CHECK_EQ(wait_cqe(&h.p).syndrome, SYNDROME_REMOTE_ACCESS);
	finish(&o, &h);
}

static void a_key_of_another_domain_or_range_is_refused(void)
{
	struct other o = start(receiver);
	struct here h;

	here_open(&h, o.fd);
	put_copy(&h.p, WQE_WRITE, far_at(&h, SIZE - 7), h.theirs.key, h.bytes, h.mine.key, 8);
	ring(&h.p);
	CHECK_EQ(wait_cqe(&h.p).syndrome, SYNDROME_REMOTE_ACCESS);
	CHECK_SAYS(qp_info(&h.p).why, "outside its key");
	finish(&o, &h);
}

/* A peer that dies: what was posted ends as an error, other queue pairs go on. */
static void a_killed_peer_ends_its_queue_pairs_only(void)
{
	struct other o = start(receiver);
	struct here h;
	struct program own;
	uint64_t limit;

	here_open(&h, o.fd);
	program_open(&own, h.nic, DG_NIC_PROXY, SENDS, CQES);
	const dg_nic_address self = address_of(&own);
	program_connect(&own, &self);
	put_send(&h, 0, 100); /* waits for a receive */
	put_receive(&h.p, h.bytes, h.mine.key, 100);
	check_waits(&h.p, DG_NIC_WAITS_RECEIVE);
	kill_and_reap(o);
	CHECK_EQ(wait_cqe(&h.p).syndrome, SYNDROME_RETRIES);
	CHECK_EQ(wait_receive(&h.p).syndrome, SYNDROME_FLUSHED);
	CHECK_EQ(qp_info(&h.p).state, DG_NIC_ERROR);
	CHECK_SAYS(qp_info(&h.p).why, "ended");
	put_copy(&own, WQE_WRITE, h.bytes + 100, h.mine.key, h.bytes, h.mine.key, 8);
	ring(&own);
	check_done(&own);
	/* Its file is removed by whoever connects next. */
	program_close(&own);
	program_open(&own, h.nic, DG_NIC_PROXY, SENDS, CQES);
	CHECK_EQ(dg_nic_qp_modify(own.qp, DG_NIC_INIT, NULL, ALL_ACCESS), 0);
	limit = dg_now_ns() + PATIENCE;
	int rc;
	while ((rc = dg_nic_qp_modify(own.qp, DG_NIC_RTR, &h.theirs.address, 0)) != -ENOTCONN) {
		CHECK(rc < 0);
		CHECK(dg_now_ns() < limit);
	}
	program_close(&own);
	here_close(&h);
}

static void a_killed_peer_ends_a_queue_pair_that_only_receives(void)
{
	struct other o = start(receiver);
	struct here h;

	here_open(&h, o.fd);
	put_receive(&h.p, h.bytes, h.mine.key, 100);
	kill_and_reap(o);
	CHECK_EQ(wait_receive(&h.p).syndrome, SYNDROME_FLUSHED);
	CHECK_SAYS(qp_info(&h.p).why, "ended");
	here_close(&h);
}

/* A process that writes random words to all that its NIC publishes, but for the numbers that keep
 * the peer interested. */
static void vandal(int fd)
{
	struct here h;
	uint64_t state = (uint64_t)getpid();

	here_open(&h, fd);
	struct nic_box *b = &h.nic->table->boxes[qp_index(h.p.qpn)];
	await(fd);
	for (int i = 0; i < 200000; i++) {
		state = state * 6364136223846793005 + 1442695040888963407;
		_Atomic uint64_t *words = i & 1 ? (_Atomic uint64_t *)&b->posted
						: (_Atomic uint64_t *)&h.nic->table->keys[key_index(h.mine.key)].body;
		const uint32_t n = i & 1 ? (sizeof(*b) - 64) / 8 : KEY_WORDS;
		atomic_store_explicit(&words[(state >> 33) % n], state >> (state & 63),
				      memory_order_relaxed);
	}
	tell(fd);
	await(fd);
	_exit(0);
}

static void a_peer_that_lies_ends_its_queue_pairs_only(void)
{
	struct other o = start(vandal);
	struct here h;
	struct program own;

	here_open(&h, o.fd);
	tell(o.fd);
	program_open(&own, h.nic, DG_NIC_PROXY, SENDS, CQES);
	const dg_nic_address self = address_of(&own);
	program_connect(&own, &self);
	for (int i = 0; i < 300; i++) {
		put_receive(&h.p, h.bytes, h.mine.key, 100);
		put_copy(&h.p, i & 1 ? WQE_READ : WQE_WRITE, far_at(&h, 0), h.theirs.key, h.bytes,
			 h.mine.key, 64);
		put_send(&h, 0, 100);
		put_copy(&own, WQE_WRITE, h.bytes + 100, h.mine.key, h.bytes, h.mine.key, 8);
		ring(&own);
		check_done(&own);
		if (qp_info(&h.p).state != DG_NIC_ERROR && h.p.next - qp_info(&h.p).taken < SENDS / 2)
			continue;
		CHECK_EQ(dg_nic_qp_modify(h.p.qp, DG_NIC_RESET, NULL, 0), 0);
		h.p.next = h.p.posted = 0;
		h.p.record[0] = 0;
		ring(&h.p);
		CHECK_EQ(dg_nic_qp_modify(h.p.qp, DG_NIC_INIT, NULL, ALL_ACCESS), 0);
		CHECK_EQ(dg_nic_qp_modify(h.p.qp, DG_NIC_RTR, &h.theirs.address, 0), 0);
		dg_nic_qp_modify(h.p.qp, DG_NIC_RTS, NULL, 0); /* unless a lie has ended it already */
	}
	await(o.fd);
	tell(o.fd);
	CHECK_EQ(waitpid(o.pid, NULL, 0), o.pid);
	program_close(&own);
	here_close(&h);
}

static void late_receiver(int fd)
{
	await(fd);
	receiver(fd);
}

static void the_file_of_a_killed_process_is_removed_by_the_next(void)
{
	struct other first = start(receiver), next = start(late_receiver);
	struct side side;
	char path[256];

	hear(first.fd, &side, sizeof(side));
	CHECK_EQ(dg_nic_table_path(side.address.gid, path, sizeof(path)), 0);
	CHECK_EQ(access(path, F_OK), 0);
	kill_and_reap(first);
	tell(next.fd);
	hear(next.fd, &side, sizeof(side));
	CHECK_EQ(access(path, F_OK), -1);
	kill_and_reap(next);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		TEST(bytes_move_between_processes),
		TEST(a_key_that_its_process_closed_is_refused),
		TEST(a_region_that_its_process_closed_is_refused),
		TEST(a_key_of_another_domain_or_range_is_refused),
		TEST(a_peer_that_lies_ends_its_queue_pairs_only),
		TEST(a_killed_peer_ends_its_queue_pairs_only),
		TEST(a_killed_peer_ends_a_queue_pair_that_only_receives),
		TEST(the_file_of_a_killed_process_is_removed_by_the_next),
	};

	return RUN_TESTS(tests, argc, argv);
}
