/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs of the software NICs of two processes. */
#include "nic.h"
#include "nic_programs.h"
#include "two_sides.h"

enum { SIZE = 1 << 20, SECOND_SIZE = 4096, ADDS = 100000 };

/* How memory is reached from the other process. With the provider cuda, this side's own is GPU memory. */
static enum how how = BY_MAP;

/* What each side tells the other. */
struct side {
	dg_nic_address address;
	uint64_t base, second;
	uint32_t key, second_key;
};

struct here {
	dg_device *dev;
	dg_nic *nic;
	struct program p;
	dg_region *region, *second_region;
	dg_memory memory, second;
	uint8_t *bytes;
	struct side mine, theirs;
};

static bool on_gpu(void)
{
	return !strcmp(provider, "cuda");
}

/* exports: the other process reaches this one's memory, otherwise it may be on the GPU. */
static void open_with(struct here *h, int fd, bool exports)
{
	memset(h, 0, sizeof(*h));
	h->dev = device_spinning(0);
	CHECK_EQ(dg_nic_open(h->dev, 1000000, &h->nic), 0);
	h->memory = memory_for(how, SIZE);
	h->second = memory_for(how, SECOND_SIZE);
	h->bytes = h->memory.addr;
	h->region = exportable(h->dev, &h->memory);
	h->second_region = exportable(h->dev, &h->second);
	if (!exports && on_gpu()) {
		h->bytes = gpu_pages(SIZE);
		h->region = registered_gpu(h->dev, h->bytes, SIZE, RW);
	}
	h->mine.base = (uintptr_t)h->bytes;
	h->mine.second = (uintptr_t)h->second.addr;
	CHECK_EQ(dg_nic_key_open(h->nic, h->region, h->mine.base, 7, ALL_ACCESS, &h->mine.key), 0);
	CHECK_EQ(dg_nic_key_open(h->nic, h->second_region, h->mine.second, 7, ALL_ACCESS,
				 &h->mine.second_key), 0);
	program_open(&h->p, h->nic, DG_NIC_PROXY, SENDS, CQES);
	h->mine.address = address_of(&h->p);
	say(fd, &h->mine, sizeof(h->mine));
	hear(fd, &h->theirs, sizeof(h->theirs));
	program_connect(&h->p, &h->theirs.address);
}

static void here_open(struct here *h, int fd)
{
	open_with(h, fd, false);
}

static void here_close(struct here *h)
{
	program_close(&h->p);
	CHECK_EQ(dg_nic_close(h->nic), 0);
	CHECK_EQ(dg_device_close(h->dev, PATIENCE), 0);
	if (h->bytes != h->memory.addr)
		gpu_free(h->bytes);
	munmap(h->memory.addr, SIZE);
	munmap(h->second.addr, SECOND_SIZE);
	if (how == BY_MAP) {
		close(h->memory.fd);
		close(h->second.fd);
	}
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

/* Gives the number of the first key to the second region: all other keys are in use, and the numbers of
 * an index come back after 255. */
static void use_number_again(struct here *h)
{
	uint32_t key = h->mine.key, other;

	while (!dg_nic_key_open(h->nic, h->region, 0, 7, 0, &other))
		continue;
	do {
		CHECK_EQ(dg_nic_key_close(h->nic, key), 0);
		CHECK_EQ(dg_nic_key_open(h->nic, h->second_region, h->mine.base, 7, ALL_ACCESS, &key), 0);
	} while (key != h->mine.key);
}

/* Gives the peer write access to 32 bytes of the first region, the first of which is its address 4096. */
static uint32_t bind_window(struct here *h)
{
	uint32_t key, window;

	CHECK_EQ(dg_nic_key_open(h->nic, h->region, 0, 7, DG_NIC_LOCAL_WRITE | DG_NIC_BIND, &key), 0);
	CHECK_EQ(dg_nic_window_open(h->nic, 2, 7, &window), 0);
	put_window(&h->p, window, 200, h->p.qpn, key, (void *)16, 4096, 32, REMOTE_WRITE);
	check_done(&h->p);
	return (window & ~0xffu) | 200;
}

/* The other side of most tests: posts receives, and says what it got. */
static void receiver(int fd)
{
	uint8_t command;

	FIXTURE(here, h, open_with, fd, true);
	while (hears(fd, &command, 1) && command != 'q') {
		if (command == 'r') {
			put_receive(&h.p, h.bytes + 8192, h.mine.key, 4096);
		} else if (command == 'w') {
			const struct cqe c = wait_receive(&h.p);
			say(fd, &c, sizeof(c));
		} else if (command == 'k') {
			CHECK_EQ(dg_nic_key_close(h.nic, h.mine.key), 0);
		} else if (command == 'n') {
			use_number_again(&h);
		} else if (command == 'l') {
			h.nic->table->keys[key_index(h.mine.key)].body.length = DG_DESCRIPTOR_MAX + 1;
		} else if (command == 'c') {
			CHECK_EQ(dg_region_close(h.region, PATIENCE), 0);
			say(fd, h.bytes, 64);
		} else if (command == 'b') {
			const uint32_t window = bind_window(&h);
			say(fd, &window, sizeof(window));
		} else if (command == 'v') {
			say(fd, h.second.addr, 8);
		} else if (command == 'x') { /* the peer has reset its queue pair */
			CHECK_EQ(dg_nic_qp_modify(h.p.qp, DG_NIC_RESET, NULL, 0), 0);
			program_connect(&h.p, &h.theirs.address);
		} else if (command == 'a') {
			for (int i = 0; i < ADDS; i++)
				__atomic_fetch_add((uint64_t *)h.second.addr, 1, __ATOMIC_RELAXED);
		}
		if (command != 'w')
			tell(fd);
	}
}

static void order(struct other *o, char command)
{
	say(o->fd, &command, 1);
	await(o->fd);
}

/* The other process closes its first region. */
static void close_theirs(struct other *o)
{
	uint8_t first[64];

	say(o->fd, "c", 1);
	hear(o->fd, first, sizeof(first));
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

TEST(bytes_move_between_processes)
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

TEST(a_key_that_its_process_closed_is_refused)
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

TEST(a_window_of_another_process_leads_to_a_part_of_its_region)
{
	struct other o = start(receiver);
	uint8_t w[64] = {0}, first[64];
	struct here h;
	uint32_t window;
	struct cqe c;

	here_open(&h, o.fd);
	say(o.fd, "b", 1);
	hear(o.fd, &window, sizeof(window));
	await(o.fd);
	fill(h.bytes, 32, 6);
	put_copy(&h.p, WQE_WRITE, (void *)4096, window, h.bytes, h.mine.key, 32);
	ring(&h.p);
	check_done(&h.p);
	/* A message invalidates it. */
	order(&o, 'r');
	control(&h.p, w, WQE_SEND_INVAL, 2, WQE_CQE);
	put32(w + 12, window);
	data_segment(w + 16, h.bytes, h.mine.key, 8);
	put_entry(&h.p, w, 1);
	ring(&h.p);
	check_done(&h.p);
	say(o.fd, "w", 1);
	hear(o.fd, &c, sizeof(c));
	CHECK_EQ(c.opcode, CQE_SEND_INVAL);
	put_copy(&h.p, WQE_WRITE, (void *)4096, window, h.bytes, h.mine.key, 8);
	ring(&h.p);
	CHECK_EQ(wait_cqe(&h.p).syndrome, SYNDROME_REMOTE_ACCESS);
	say(o.fd, "c", 1);
	hear(o.fd, first, sizeof(first));
	await(o.fd);
	check_pattern(first + 16, 0, 32, 6);
	CHECK_EQ(first[15] | first[48], 0);
	finish(&o, &h);
}

TEST(a_key_whose_number_is_used_again_leads_to_its_own_region)
{
	struct other o = start(receiver);
	struct here h;
	uint8_t second[8];

	here_open(&h, o.fd);
	put_copy(&h.p, WQE_WRITE, far_at(&h, 0), h.theirs.key, h.bytes, h.mine.key, 8);
	ring(&h.p);
	check_done(&h.p);
	order(&o, 'n');
	memcpy(h.bytes, "for both", 8);
	put_copy(&h.p, WQE_WRITE, far_at(&h, 0), h.theirs.key, h.bytes, h.mine.key, 8);
	ring(&h.p);
	check_done(&h.p);
	say(o.fd, "v", 1);
	hear(o.fd, second, sizeof(second));
	await(o.fd);
	CHECK_EQ(memcmp(second, "for both", 8), 0);
	finish(&o, &h);
}

TEST(an_entry_does_not_wait_for_a_key_with_an_impossible_descriptor)
{
	struct other o = start(receiver);
	struct here h;

	here_open(&h, o.fd);
	order(&o, 'l');
	put_copy(&h.p, WQE_WRITE, far_at(&h, 0), h.theirs.key, h.bytes, h.mine.key, 8);
	ring(&h.p);
	CHECK_EQ(wait_cqe(&h.p).syndrome, SYNDROME_REMOTE_ACCESS);
	CHECK_SAYS(qp_info(&h.p).why, "cannot be imported");
	finish(&o, &h);
}

TEST(a_region_that_its_process_closed_is_refused)
{
	struct other o = start(receiver);
	struct here h;

	here_open(&h, o.fd);
	put_copy(&h.p, WQE_WRITE, far_at(&h, 0), h.theirs.key, h.bytes, h.mine.key, 8);
	ring(&h.p);
	check_done(&h.p);
	close_theirs(&o);
	put_copy(&h.p, WQE_WRITE, far_at(&h, 0), h.theirs.key, h.bytes, h.mine.key, 8);
	ring(&h.p);
	CHECK_EQ(wait_cqe(&h.p).syndrome, SYNDROME_REMOTE_ACCESS);
	finish(&o, &h);
}

TEST(a_key_of_another_domain_or_range_is_refused)
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
TEST(a_killed_peer_ends_its_queue_pairs_only)
{
	struct other o = start(receiver);
	struct program own;
	uint64_t limit;

	FIXTURE(here, h, here_open, o.fd);
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
}

TEST(a_killed_peer_ends_a_queue_pair_that_only_receives)
{
	struct other o = start(receiver);

	FIXTURE(here, h, here_open, o.fd);
	put_receive(&h.p, h.bytes, h.mine.key, 100);
	kill_and_reap(o);
	CHECK_EQ(wait_receive(&h.p).syndrome, SYNDROME_FLUSHED);
	CHECK_SAYS(qp_info(&h.p).why, "ended");
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

TEST(a_peer_that_lies_ends_its_queue_pairs_only)
{
	struct other o = start(vandal);
	struct program own;

	FIXTURE(here, h, here_open, o.fd);
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
}

static void *second_at(const struct here *h, size_t offset)
{
	return (void *)(uintptr_t)(h->theirs.second + offset);
}

struct way {
	const char *provider;
	enum how how;
};

/* Selects the way. Returns false if this machine does not support it. */
static bool choose_way(const struct way *w)
{
	provider = w->provider;
	how = w->how;
	return choose(how) && !dg_provider_probe(provider, false);
}

/* Calls body with memory that its process alone can copy, over each provider. All processes are forked
 * before this one uses CUDA. */
static void each_far(void (*body)(struct other *o, struct here *h))
{
	static const struct way ways[] = {
		{ "soft", BY_VM }, { "soft", BY_PROXY }, { "cuda", BY_VM }, { "cuda", BY_PROXY },
	};
	struct other others[4];
	struct here h;

	for (int i = 0; i < 4; i++)
		if (choose_way(&ways[i]))
			others[i] = start(receiver);
	for (int i = 0; i < 4; i++) {
		if (!choose_way(&ways[i]))
			continue;
		here_open(&h, others[i].fd);
		body(&others[i], &h);
	}
}

static void put_masked(struct here *h)
{
	uint8_t w[128] = { 0 };

	/* Compares the low byte, swaps the high one. */
	control(&h->p, w, WQE_MASKED_CS, 5, WQE_CQE);
	w[0] = 9;
	remote_segment(w + 16, second_at(h, 64), h->theirs.second_key);
	put64(w + 32, 0xaa00000000000000);
	put64(w + 40, 0x09);
	put64(w + 48, 0xff00000000000000);
	put64(w + 56, 0xff);
	data_segment(w + 64, h->bytes + 24, h->mine.key, 8);
	put_entry(&h->p, w, 2);
	/* The upper 4 bytes of a word: two fields, of which the low one wraps. */
	memset(w, 0, sizeof(w));
	control(&h->p, w, WQE_MASKED_FA, 4, WQE_CQE);
	w[0] = 8;
	remote_segment(w + 16, second_at(h, 68), h->theirs.second_key);
	put32(w + 32, 0x0001ffff);
	put32(w + 36, 0x80008000);
	data_segment(w + 48, h->bytes + 32, h->mine.key, 4);
	put_entry(&h->p, w, 1);
}

static void atomics(struct other *o, struct here *h)
{
	const uint64_t *old = (uint64_t *)h->bytes;

	memset(h->bytes, 0xee, 64);
	put_atomic(&h->p, WQE_ATOMIC_FA, second_at(h, 64), h->theirs.second_key, 7, 0, old, h->mine.key);
	put_atomic(&h->p, WQE_ATOMIC_CS, second_at(h, 64), h->theirs.second_key, 9, 7, old + 1, h->mine.key);
	put_atomic(&h->p, WQE_ATOMIC_CS, second_at(h, 64), h->theirs.second_key, 5, 7, old + 2, h->mine.key);
	put_masked(h);
	put_copy(&h->p, WQE_READ, second_at(h, 64), h->theirs.second_key, h->bytes + 40, h->mine.key, 8);
	ring(&h->p);
	for (int i = 0; i < 6; i++)
		check_done(&h->p);
	CHECK_EQ(old[0], 0);
	CHECK_EQ(old[1], 7);
	CHECK_EQ(old[2], 9);
	CHECK_EQ(old[3], 9);
	CHECK_EQ(old[4], (int64_t)0xeeeeeeeeaa000000);
	CHECK_EQ(old[5], (int64_t)0xaa01ffff00000009);
	/* Its CPU adds to a word at the same time. */
	say(o->fd, "a", 1);
	for (int i = 0; i < 300; i++) {
		put_atomic(&h->p, WQE_ATOMIC_FA, second_at(h, 0), h->theirs.second_key, 1, 0, old, h->mine.key);
		ring(&h->p);
		check_done(&h->p);
	}
	await(o->fd);
	put_copy(&h->p, WQE_READ, second_at(h, 0), h->theirs.second_key, h->bytes + 40, h->mine.key, 8);
	ring(&h->p);
	check_done(&h->p);
	CHECK_EQ(old[5], ADDS + 300);
	finish(o, h);
}

TEST(atomics_reach_memory_that_only_its_process_copies)
{
	each_far(atomics);
}

/* Writes `size` bytes to the other process, reads them back, and looks at what is around them. */
static void there_and_back(struct here *h, uint32_t size)
{
	enum { AT = 5, BACK = SIZE / 2 };

	memset(h->bytes, 0, SIZE);
	put_copy(&h->p, WQE_WRITE, far_at(h, 0), h->theirs.key, h->bytes, h->mine.key, SIZE);
	fill(h->bytes + AT, size, size);
	ring(&h->p);
	check_done(&h->p);
	put_copy(&h->p, WQE_WRITE, far_at(h, 2 * AT), h->theirs.key, h->bytes + AT, h->mine.key, size);
	put_copy(&h->p, WQE_READ, far_at(h, AT), h->theirs.key, h->bytes + BACK, h->mine.key, size + 2 * AT);
	ring(&h->p);
	check_done(&h->p);
	check_done(&h->p);
	check_pattern(h->bytes + BACK + AT, 0, size, size);
	for (int i = 0; i < AT; i++)
		CHECK_EQ(h->bytes[BACK + size + AT + i], 0);
}

static void sizes(struct other *o, struct here *h)
{
	static const uint32_t all[] = { 1, 7, 8, 64, EXEC_SLOT - 1, EXEC_SLOT, EXEC_SLOT + 1,
					EXEC_CHUNK - 1, EXEC_CHUNK, EXEC_CHUNK + 1, 2 * EXEC_CHUNK,
					3 * EXEC_CHUNK + 5 };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		there_and_back(h, all[i]);
	finish(o, h);
}

TEST(copies_of_all_sizes_reach_memory_that_only_its_process_copies)
{
	each_far(sizes);
}

/* Segments of many sizes, one inline, in one WRITE; and a message over three segments of a receive. */
static void segments(struct other *o, struct here *h)
{
	uint8_t w[64 * WQE_BLOCKS_MAX] = { 0 };
	const uint32_t n = 40;
	uint32_t total = 20;
	struct cqe c;

	fill(h->bytes, 100000, 3);
	control(&h->p, w, WQE_WRITE, 4 + n, WQE_CQE);
	remote_segment(w + 16, far_at(h, 0), h->theirs.key);
	put32(w + 32, WQE_INLINE | 20);
	memcpy(w + 36, "twenty bytes inline.", 20);
	for (uint32_t i = 0; i < n; i++) {
		data_segment(w + 64 + 16 * i, h->bytes + total, h->mine.key, 1 + 97 * i);
		total += 1 + 97 * i;
	}
	put_entry(&h->p, w, (4 + n) / 4);
	put_copy(&h->p, WQE_READ, far_at(h, 0), h->theirs.key, h->bytes + SIZE / 2, h->mine.key, total);
	ring(&h->p);
	check_done(&h->p);
	check_done(&h->p);
	CHECK_EQ(memcmp(h->bytes + SIZE / 2, "twenty bytes inline.", 20), 0);
	check_pattern(h->bytes + SIZE / 2 + 20, 20, total - 20, 3);
	order(o, 'r');
	put_send(h, 0, 3000);
	put_copy(&h->p, WQE_READ, far_at(h, 8192), h->theirs.key, h->bytes + SIZE / 2, h->mine.key, 3000);
	ring(&h->p);
	say(o->fd, "w", 1);
	hear(o->fd, &c, sizeof(c));
	CHECK_EQ(c.size, 3000);
	check_done(&h->p);
	check_done(&h->p);
	check_pattern(h->bytes + SIZE / 2, 0, 3000, 3);
	finish(o, h);
}

TEST(segments_and_messages_reach_memory_that_only_its_process_copies)
{
	each_far(segments);
}

/* Each READ sees the WRITE and the atomic operation that were posted before it, and none after. */
static void unmapped_here(struct other *o, struct here *h, uint32_t opcode)
{
	if (!on_gpu()) {
		CHECK_EQ(munmap(h->bytes + SIZE / 2, SIZE / 2), 0);
		put_copy(&h->p, opcode, far_at(h, 8192), h->theirs.key, h->bytes + SIZE / 2 - 8,
			 h->mine.key, 4096);
		ring(&h->p);
		CHECK_EQ(wait_cqe(&h->p).syndrome, SYNDROME_LOCAL_PROTECTION);
	}
	finish(o, h);
}

static void unmapped_source(struct other *o, struct here *h)
{
	unmapped_here(o, h, WQE_WRITE);
}

static void unmapped_target(struct other *o, struct here *h)
{
	unmapped_here(o, h, WQE_READ);
}

TEST(an_unmapped_source_of_this_side_ends_its_entry)
{
	each_far(unmapped_source);
}

TEST(an_unmapped_target_of_this_side_ends_its_entry)
{
	each_far(unmapped_target);
}

static void in_order(struct other *o, struct here *h)
{
	uint64_t *words = (uint64_t *)h->bytes;

	if (on_gpu())
		gpu_knobs("copy_us=50");
	for (uint64_t round = 0; round < 20; round++) {
		for (uint64_t i = 0; i < 15; i++) {
			words[i] = 1000 * round + 10 * i;
			put_copy(&h->p, WQE_WRITE, second_at(h, 0), h->theirs.second_key, &words[i],
				 h->mine.key, 8);
			put_atomic(&h->p, WQE_ATOMIC_FA, second_at(h, 0), h->theirs.second_key, 3, 0,
				   &words[100 + i], h->mine.key);
			put_copy(&h->p, WQE_READ, second_at(h, 0), h->theirs.second_key, &words[200 + i],
				 h->mine.key, 8);
			put_short(&h->p, WQE_NOP, WQE_CQE);
		}
		ring(&h->p);
		for (int i = 0; i < 60; i++)
			check_done(&h->p);
		for (uint64_t i = 0; i < 15; i++) {
			CHECK_EQ(words[100 + i], (int64_t)words[i]);
			CHECK_EQ(words[200 + i], (int64_t)words[i] + 3);
		}
	}
	/* A direct entry behind such entries, and before them. */
	for (int i = 0; i < 8; i++) {
		put_copy(&h->p, WQE_WRITE, second_at(h, 8), h->theirs.second_key, words, h->mine.key, 8);
		put_short(&h->p, WQE_NOP, i & 1 ? WQE_CQE | 0x80 : WQE_CQE);
	}
	ring(&h->p);
	for (int i = 0; i < 16; i++)
		check_done(&h->p);
	finish(o, h);
}

TEST(entries_for_memory_that_only_its_process_copies_keep_their_order)
{
	each_far(in_order);
}

/* Its first region is closed under traffic. What was posted behind the entry that failed, to another
 * region, is not executed. */
static void revoked(struct other *o, struct here *h)
{
	uint64_t *words = (uint64_t *)h->bytes;
	uint8_t first[64];
	struct cqe c;

	put_atomic(&h->p, WQE_ATOMIC_FA, second_at(h, 0), h->theirs.second_key, 1, 0, words, h->mine.key);
	do {
		put_copy(&h->p, WQE_WRITE, far_at(h, 0), h->theirs.key, h->bytes, h->mine.key, 3 * EXEC_CHUNK);
		if (h->p.next == 4)
			say(o->fd, "c", 1);
		ring(&h->p);
		c = wait_cqe(&h->p);
	} while (!c.syndrome);
	CHECK_EQ(c.syndrome, SYNDROME_REMOTE_ACCESS);
	hear(o->fd, first, sizeof(first));
	await(o->fd);
	CHECK_EQ(dg_nic_qp_modify(h->p.qp, DG_NIC_RESET, NULL, 0), 0);
	order(o, 'x');
	h->p.next = h->p.seen = 0;
	memset(h->p.cqes, 0xff, CQES * 64);
	CHECK_EQ(dg_nic_cq_restart(h->p.send_cq), 0);
	ring(&h->p);
	program_connect(&h->p, &h->theirs.address);
	put_copy(&h->p, WQE_WRITE, far_at(h, 0), h->theirs.key, h->bytes, h->mine.key, 8);
	put_atomic(&h->p, WQE_ATOMIC_FA, second_at(h, 0), h->theirs.second_key, 1, 0, words, h->mine.key);
	ring(&h->p);
	CHECK_EQ(wait_cqe(&h->p).syndrome, SYNDROME_REMOTE_ACCESS);
	CHECK_EQ(wait_cqe(&h->p).syndrome, SYNDROME_FLUSHED);
	say(o->fd, "v", 1);
	hear(o->fd, first, 8);
	await(o->fd);
	CHECK_EQ(*(uint64_t *)first, 1);
	finish(o, h);
}

TEST(nothing_is_executed_behind_an_entry_whose_memory_was_revoked)
{
	each_far(revoked);
}

/* Entries that need no other process, and other memory than the first 3 * EXEC_CHUNK bytes. */
static void check_others_go_on(struct here *h, struct program *own)
{
	uint8_t *bytes = h->bytes + SIZE - 4096;

	put_copy(own, WQE_WRITE, bytes + 100, h->mine.key, bytes, h->mine.key, 8);
	put_copy(own, WQE_READ, h->second.addr, h->mine.second_key, bytes, h->mine.key, 8);
	ring(own);
	check_done(own);
	check_done(own);
}

/* A peer that stops in the middle of large copies, and is then killed. */
static void killed(struct other *o, struct here *h)
{
	struct program own;
	uint64_t posted = 0;

	program_open(&own, h->nic, DG_NIC_PROXY, SENDS, CQES);
	const dg_nic_address self = address_of(&own);
	program_connect(&own, &self);
	for (;;) {
		for (int i = 0; i < SENDS; i++)
			put_copy(&h->p, i & 1 ? WQE_WRITE : WQE_READ, far_at(h, 0), h->theirs.key,
				 h->bytes, h->mine.key, 3 * EXEC_CHUNK);
		ring(&h->p);
		posted += SENDS;
		check_done(&h->p);
		stop(*o);
		if (qp_info(&h->p).completed < posted)
			break;
		resume(*o); /* all were over before this thread had a core again */
		for (int i = 1; i < SENDS; i++)
			check_done(&h->p);
	}
	for (int i = 0; i < 20; i++)
		check_others_go_on(h, &own);
	CHECK(qp_info(&h->p).completed < posted);
	kill_and_reap(*o);
	struct cqe c;
	do
		c = wait_cqe(&h->p);
	while (!c.syndrome);
	CHECK_EQ(c.syndrome, SYNDROME_RETRIES);
	CHECK_EQ(qp_info(&h->p).state, DG_NIC_ERROR);
	check_others_go_on(h, &own);
	program_close(&own);
	here_close(h);
}

TEST(a_peer_killed_in_the_middle_of_copies_ends_its_queue_pairs_only)
{
	each_far(killed);
}

static void late_receiver(int fd)
{
	await(fd);
	receiver(fd);
}

TEST(the_file_of_a_killed_process_is_removed_by_the_next)
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

TEST_MAIN(run_tests)
