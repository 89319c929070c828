/* SPDX-License-Identifier: Apache-2.0 */
/* Atomic operations by two processes on memory that one of them exports. */
#include "two_sides.h"

enum { ADDS = 20000, FAR_ADDS = 2000, LOCKED = 2000, SIZE = 4096, PAGE = 65536 };
enum { COUNTER = 0, LOCK = 64, GUARDED = 128 }; /* offsets */

static dg_wr atomic_record(const struct fix *f, uint32_t op, uint64_t at, uint64_t operand, uint64_t swap)
{
	dg_wr wr = record(f, op, 8, 0, at);

	wr.local_stride = operand;
	wr.remote_stride = swap;
	return wr;
}

/* Imports the other process's export, with a queue of this path. */
static void import_at(struct fix *f, const struct token *t, uint32_t path)
{
	import_fix(f, t, SIZE, 8);
	CHECK_EQ(dg_queue_close(f->q), 0);
	dg_queue_free(f->q);
	CHECK_EQ(test_queue_open(&f->tq, f->dev, 8, path, 20000, 20 * SECOND), 0);
	f->q = f->tq.q;
}

/* Executes the operation and returns the word's old value. */
static uint64_t old_of(struct fix *f, dg_wr wr)
{
	uint64_t old;
	dg_wc wc;

	CHECK_EQ(dg_queue_run(f->q, &wr, 1, &wc, 20 * SECOND), 1);
	CHECK_EQ(wc.status, DG_OK);
	memcpy(&old, f->local_bytes, sizeof(old));
	return old;
}

static void add_many(struct fix *f, uint64_t n)
{
	for (uint64_t i = 0, last = 0; i < n; i++) {
		uint64_t old = old_of(f, atomic_record(f, DG_FETCH_ADD, COUNTER, 1, 0));

		CHECK(i == 0 || old > last);
		last = old;
	}
}

/* Adds 1 to a number that is protected by a lock, with a read and a write. The write and the unlock
 * are posted together: the order of the queue keeps the number consistent. */
static void add_locked(struct fix *f)
{
	const dg_wr lock = atomic_record(f, DG_COMPARE_SWAP, LOCK, 0, 1);
	dg_wr wr[2];
	dg_wc wc[2];

	wr[0] = record(f, DG_WRITE, 8, 8, GUARDED);
	wr[1] = atomic_record(f, DG_COMPARE_SWAP, LOCK, 1, 0);
	for (uint32_t i = 0; i < LOCKED; i++) {
		dg_wr read = record(f, DG_READ, 8, 8, GUARDED);
		uint64_t number;

		while (old_of(f, lock))
			;
		CHECK_EQ(dg_queue_run(f->q, &read, 1, wc, 20 * SECOND), 1);
		memcpy(&number, f->local_bytes + 8, sizeof(number));
		number++;
		memcpy(f->local_bytes + 8, &number, sizeof(number));
		CHECK_EQ(dg_queue_run(f->q, wr, 2, wc, 20 * SECOND), 2);
		CHECK_EQ(wc[0].status, DG_OK);
		CHECK_EQ(wc[1].status, DG_OK);
		memcpy(&number, f->local_bytes, sizeof(number));
		CHECK_EQ(number, 1); /* no other process had unlocked it */
	}
}

struct order {
	struct token token;
	uint32_t path;
	bool locked;
};

static void other_side(int fd)
{
	struct order o;

	hear(fd, &o, sizeof(o));
	FIXTURE(fix, f, import_at, &o.token, o.path);
	say_int(fd, 0); /* ready */
	hear_int(fd);
	if (o.locked)
		add_locked(&f);
	else
		add_many(&f, ADDS);
}

/* Both processes work on exported memory concurrently. Returns the value of the word at `at`. */
static uint64_t both(uint32_t path, bool locked, uint64_t at)
{
	struct other o = start(other_side);
	dg_memory m = sealed_memory(SIZE);
	dg_device *dev = device_spinning(0);
	dg_region *r = exportable(dev, &m);
	struct order order = { export_of(r, RW), path, locked };
	struct fix f;
	uint64_t value;

	say(o.fd, &order, sizeof(order));
	import_at(&f, &order.token, path);
	hear_int(o.fd);
	say_int(o.fd, 0);
	if (locked)
		add_locked(&f);
	else
		add_many(&f, ADDS);
	join(o);
	value = __atomic_load_n((uint64_t *)((char *)m.addr + at), __ATOMIC_SEQ_CST);
	fix_close(&f);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	return value;
}

TEST(a_counter_of_two_processes_loses_nothing)
{
	CHECK_EQ(both(DG_PATH_WORKER, false, COUNTER), 2 * ADDS);
	CHECK_EQ(both(DG_PATH_INLINE, false, COUNTER), 2 * ADDS);
}

TEST(a_lock_by_compare_swap_guards_what_two_processes_write)
{
	CHECK_EQ(both(DG_PATH_WORKER, true, GUARDED), 2 * LOCKED);
	CHECK_EQ(both(DG_PATH_INLINE, true, GUARDED), 2 * LOCKED);
}

/* Imports memory that is not mapped here, of which the second half is closed to its own process. */
static void unmapped_side(int fd)
{
	struct token token;
	dg_wr wr;
	dg_wc wc;

	hear(fd, &token, sizeof(token));
	FIXTURE(fix, f, import_fix, &token, 2 * PAGE, 8);
	say_int(fd, info_of(f.remote).method);
	hear_int(fd);
	add_many(&f, FAR_ADDS);
	CHECK_EQ(old_of(&f, atomic_record(&f, DG_COMPARE_SWAP, LOCK, 1, 2)), 5);
	CHECK_EQ(old_of(&f, atomic_record(&f, DG_COMPARE_SWAP, LOCK, 5, 6)), 5);
	wr = atomic_record(&f, DG_FETCH_ADD, PAGE, 1, 0);
	CHECK_EQ(dg_queue_run(f.q, &wr, 1, &wc, SECOND), 1);
	CHECK_EQ(wc.status, DG_REMOTE_ACCESS_ERROR);
	CHECK_EQ(old_of(&f, atomic_record(&f, DG_FETCH_ADD, LOCK, 1, 0)), 6);
}

/* Its own process changes the words at the same time, by its CPU. */
TEST(memory_that_is_not_mapped_is_changed_by_its_exporter)
{
	for (enum how how = BY_VM; how <= BY_PROXY; how++) {
		dg_memory m = plain_memory(pages(2 * PAGE), 2 * PAGE);
		uint64_t *words = m.addr;
		struct token token;
		struct other o;
		dg_device *dev;

		if (!choose(how))
			continue; /* not supported: an emulator has no process_vm_readv */
		o = start(unmapped_side);
		dev = device_spinning(0);
		words[LOCK / 8] = 5;
		token = export_of(exportable(dev, &m), RW);
		CHECK_EQ(mprotect((char *)m.addr + PAGE, PAGE, PROT_READ), 0);
		say(o.fd, &token, sizeof(token));
		CHECK_EQ(hear_int(o.fd), how);
		say_int(o.fd, 0);
		for (int i = 0; i < ADDS; i++)
			__atomic_fetch_add(&words[COUNTER], 1, __ATOMIC_RELAXED);
		join(o);
		CHECK_EQ(__atomic_load_n(&words[COUNTER], __ATOMIC_RELAXED), ADDS + FAR_ADDS);
		CHECK_EQ(__atomic_load_n(&words[LOCK / 8], __ATOMIC_RELAXED), 7);
		CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	}
}

/* Memory whose file may shrink is copied by system calls, which is sufficient on the local side. */
TEST(memory_that_may_fault_is_only_for_the_local_side)
{
	dg_memory m = plain_memory(pages(SIZE), SIZE);
	dg_region *fallible;
	dg_wr wr;
	dg_wc wc;

	FIXTURE(fix, f, fix_open, SIZE, 8);
	m.flags = DG_MEMORY_MAY_FAULT;
	fallible = exportable(f.dev, &m);
	wr = atomic_record(&f, DG_FETCH_ADD, COUNTER, 7, 0);
	wr.local = id_of(fallible);
	*(uint64_t *)f.remote_bytes = 3;
	CHECK_EQ(dg_queue_run(f.q, &wr, 1, &wc, PATIENCE), 1);
	CHECK_EQ(wc.status, DG_OK);
	CHECK_EQ(*(uint64_t *)m.addr, 3);
	CHECK_EQ(*(uint64_t *)f.remote_bytes, 10);
	wr.local = f.l;
	wr.remote = id_of(imported(f.dev, fallible, RW));
	CHECK_EQ(dg_queue_run(f.q, &wr, 1, &wc, SECOND), -EOPNOTSUPP);
	CHECK_SAYS(dg_last_error(), "can only copy");
}

/* Adds until the region is revoked, and reports how often. */
static void adds_until_revoked(int fd)
{
	struct order o;
	dg_wr wr;
	dg_wc wc;
	int added = 0;

	hear(fd, &o, sizeof(o));
	FIXTURE(fix, f, import_at, &o.token, o.path);
	wr = atomic_record(&f, DG_FETCH_ADD, COUNTER, 1, 0);
	for (;;) {
		CHECK_EQ(dg_queue_run(f.q, &wr, 1, &wc, 20 * SECOND), 1);
		if (wc.status)
			break;
		if (++added == 1000)
			say_int(fd, 0);
	}
	CHECK_EQ(wc.status, DG_REMOTE_ACCESS_ERROR);
	say_int(fd, added);
}

/* After the region was closed, the word must equal the number of reported additions. */
TEST(no_atomic_comes_after_a_revocation)
{
	for (int way = 0; way < 3; way++) {
		struct other o = start(adds_until_revoked);
		dg_memory m = memory_for(way < 2 ? BY_MAP : BY_PROXY, SIZE);
		dg_device *dev = device_spinning(0);
		dg_region *r = exportable(dev, &m);
		struct order order = { export_of(r, RW), way ? DG_PATH_WORKER : DG_PATH_INLINE, false };
		uint64_t at_close;

		say(o.fd, &order, sizeof(order));
		hear_int(o.fd);
		CHECK_EQ(dg_region_close(r, 20 * SECOND), 0);
		at_close = __atomic_load_n((uint64_t *)m.addr, __ATOMIC_SEQ_CST);
		CHECK_EQ(hear_int(o.fd), at_close);
		join(o);
		CHECK_EQ(__atomic_load_n((uint64_t *)m.addr, __ATOMIC_SEQ_CST), at_close);
		CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	}
}

TEST_MAIN(run_with_own_folder)
