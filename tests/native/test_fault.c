/* SPDX-License-Identifier: Apache-2.0 */
/* The provider fault acts according to its rules and leaves nothing behind. */
#include "fixture.h"

#define ALWAYS .every = 1, .max_size = UINT64_MAX, .ppm = 1000000, .ops = 3
#define SIZE (1 << 16)

/* Opens a fixture with fault over the provider `wrapped`, with these rules. */
static void fault_open(struct fix *f, const dg_fault_rule *rules, uint32_t n, uint64_t op_timeout_ns)
{
	dg_device_config config = { .over = wrapped, .rules = rules, .n_rules = n };

	memset(f, 0, sizeof(*f));
	CHECK_EQ(dg_device_open("fault", &config, &f->dev), 0);
	f->size = SIZE;
	f->local_bytes = pages(SIZE);
	f->remote_bytes = pages(SIZE);
	f->local = registered(f->dev, f->local_bytes, SIZE, RW);
	f->source = registered(f->dev, f->remote_bytes, SIZE, RW);
	f->remote = imported(f->dev, f->source, RW);
	f->l = id_of(f->local);
	f->r = id_of(f->remote);
	CHECK_EQ(test_queue_open(&f->tq, f->dev, 8, DG_PATH_AUTO, 20000, op_timeout_ns), 0);
	f->q = f->tq.q;
	fill(f->local_bytes, SIZE, 6);
}

static void close_regions(struct fix *f)
{
	CHECK_EQ(dg_region_close(f->source, 0), 0);
	CHECK_EQ(dg_region_close(f->remote, 0), 0);
	CHECK_EQ(dg_region_close(f->local, 0), 0);
}

/* Polls n completions; their `user` values go to order. */
static void poll_order(struct fix *f, uint32_t n, uint64_t *order, dg_wc *last)
{
	for (uint32_t got = 0; got < n;) {
		int rc = dg_queue_poll(f->q, last, 1, 20 * SECOND);

		CHECK_EQ(rc, 1);
		order[got++] = last->user;
	}
}

TEST(an_error_is_reported_and_copies_nothing)
{
	for (int status = DG_LOCAL_ERROR; status <= DG_IO_FAILED; status++) {
		const dg_fault_rule rule = { .action = DG_FAULT_ERROR, .status = status, ALWAYS };
		struct fix f;
		dg_wr wr;
		dg_wc wc;

		fault_open(&f, &rule, 1, 20 * SECOND);
		wr = record(&f, DG_WRITE, 100, 0, 0);
		wc = done(&f.tq, &wr);
		CHECK_EQ(wc.status, status);
		CHECK_EQ(wc.size, 0);
		CHECK_EQ(f.remote_bytes[1], 0);
		close_regions(&f);
		fix_close(&f);
	}
}

/* Also after an operation that is still being copied: an error takes no time of its own. */
TEST(an_error_does_not_overtake)
{
	const dg_fault_rule rule = { .action = DG_FAULT_ERROR, .status = DG_IO_FAILED, .skip = 2, .count = 2, ALWAYS };
	uint64_t order[6];
	dg_wr wr[6];
	dg_wc wc;

	FIXTURE(fix, f, fault_open, &rule, 1, 20 * SECOND);
	for (int round = 0; round < 50; round++) {
		for (uint32_t i = 0; i < 6; i++) {
			wr[i] = record(&f, DG_WRITE, SIZE, 0, 0);
			wr[i].user = i;
		}
		CHECK_EQ(dg_queue_post(f.q, wr, 6), 0);
		poll_order(&f, 6, order, &wc);
		for (uint32_t i = 0; i < 6; i++)
			CHECK_EQ(order[i], i);
	}
}

/* Returns which of n operations of 100 + i bytes fail, as a bit mask. */
static uint64_t failures(const dg_fault_rule *rule, uint32_t op, uint32_t n)
{
	uint64_t mask = 0;
	struct fix f;

	fault_open(&f, rule, 1, 20 * SECOND);
	for (uint32_t i = 0; i < n; i++) {
		dg_wr wr = record(&f, op, 100 + i, 0, 0);

		mask |= (uint64_t)(done(&f.tq, &wr).status != DG_OK) << i;
	}
	fix_close(&f);
	return mask;
}

TEST(a_rule_matches_what_it_says_and_no_more)
{
	dg_fault_rule rule = { .action = DG_FAULT_ERROR, .status = DG_IO_FAILED, ALWAYS };

	CHECK_EQ(failures(&rule, DG_READ, 8), 0xff);
	rule.ops = 2;
	CHECK_EQ(failures(&rule, DG_READ, 8), 0);
	CHECK_EQ(failures(&rule, DG_WRITE, 8), 0xff);
	rule.min_size = 102;
	rule.max_size = 104;
	CHECK_EQ(failures(&rule, DG_WRITE, 8), 0x1c);
	rule.min_size = 0;
	rule.max_size = UINT64_MAX;
	rule.skip = 2;
	rule.every = 3;
	CHECK_EQ(failures(&rule, DG_WRITE, 12), 1 << 2 | 1 << 5 | 1 << 8 | 1 << 11);
	rule.count = 2;
	CHECK_EQ(failures(&rule, DG_WRITE, 12), 1 << 2 | 1 << 5);
	rule.ppm = 0;
	CHECK_EQ(failures(&rule, DG_WRITE, 12), 0);
}

TEST(a_rule_matches_atomics_by_their_bits)
{
	dg_fault_rule rule = { .action = DG_FAULT_ERROR, .status = DG_IO_FAILED, ALWAYS };

	if (strcmp(wrapped, "soft"))
		return; /* softdoca has no atomic operations */
	for (uint32_t op = DG_FETCH_ADD; op <= DG_COMPARE_SWAP; op++) {
		struct fix f;
		dg_wr wr;
		dg_wc wc;

		rule.ops = 1 << op;
		fault_open(&f, &rule, 1, 20 * SECOND);
		for (uint32_t other = DG_READ; other <= DG_COMPARE_SWAP; other++) {
			wr = record(&f, other, 8, 0, 0);
			wr.remote_stride = 9; /* a swap of a zero word stores 9, an add keeps it */
			memset(f.remote_bytes, 0, 8);
			CHECK_EQ(dg_queue_run(f.q, &wr, 1, &wc, 20 * SECOND), 1);
			CHECK_EQ(wc.status, op == other ? DG_IO_FAILED : DG_OK);
			CHECK_EQ(wc.size, op == other ? 0 : 8);
			if (other == DG_COMPARE_SWAP)
				CHECK_EQ(f.remote_bytes[0], op == other ? 0 : 9);
		}
		close_regions(&f);
		fix_close(&f);
	}
}

TEST(chance_follows_the_seed)
{
	dg_fault_rule rule = { .action = DG_FAULT_ERROR, .status = DG_IO_FAILED, ALWAYS, .seed = 42 };
	uint64_t first, other;

	rule.ppm = 500000;
	first = failures(&rule, DG_WRITE, 60);
	CHECK_EQ(failures(&rule, DG_WRITE, 60), first);
	rule.seed = 43;
	other = failures(&rule, DG_WRITE, 60);
	CHECK(first != other);
	CHECK(__builtin_popcountll(first) > 15 && __builtin_popcountll(first) < 45);
}

TEST(a_delayed_operation_takes_at_least_its_delay)
{
	const dg_fault_rule rule = { .action = DG_FAULT_DELAY, .delay_ns = 30 * MS, .skip = 1, ALWAYS };
	dg_wr wr;
	dg_wc wc;

	FIXTURE(fix, f, fault_open, &rule, 1, 20 * SECOND);
	wr = record(&f, DG_WRITE, 100, 0, 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	wr = record(&f, DG_WRITE, 100, 200, 200);
	wc = done(&f.tq, &wr);
	CHECK_EQ(wc.status, DG_OK);
	CHECK(wc.complete_ns - wc.submit_ns >= 30 * MS);
	check_pattern(f.remote_bytes + 200, 200, 100, 6);
}

/* The end of a delay must wake a caller that sleeps on the fd. */
TEST(a_delay_that_ends_wakes_the_sleeper)
{
	const dg_fault_rule rule = { .action = DG_FAULT_DELAY, .delay_ns = 20 * MS, ALWAYS };
	struct pollfd fd = { .events = POLLIN };
	dg_wr wr;
	dg_wc wc;

	FIXTURE(fix, f, fault_open, &rule, 1, 60 * SECOND);
	for (int i = 0; i < 3; i++) {
		wr = record(&f, DG_WRITE, 100, 0, 0);
		CHECK_EQ(dg_queue_post(f.q, &wr, 1), 0);
		while (dg_queue_poll(f.q, &wc, 1, 0) == 0) {
			fd.fd = dg_queue_fileno(f.q);
			if (dg_queue_arm(f.q) == 1)
				CHECK_EQ(poll(&fd, 1, 20000), 1);
		}
		CHECK_EQ(wc.status, DG_OK);
	}
}

TEST(a_reordered_operation_comes_after_the_next)
{
	const dg_fault_rule rule = { .action = DG_FAULT_REORDER, .delay_ns = 10 * SECOND, .count = 1, ALWAYS };
	uint64_t order[3];
	dg_wr wr[3];
	dg_wc wc;

	FIXTURE(fix, f, fault_open, &rule, 1, 60 * SECOND);
	for (uint32_t i = 0; i < 3; i++) {
		wr[i] = record(&f, DG_WRITE, 100, 100 * i, 0); /* all to the same place: the last one wins */
		wr[i].user = i;
	}
	CHECK_EQ(dg_queue_post(f.q, wr, 3), 0);
	poll_order(&f, 3, order, &wc);
	CHECK(order[0] == 1 && order[1] == 0 && order[2] == 2);
	check_pattern(f.remote_bytes, 200, 100, 6);
	CHECK_EQ(dg_queue_post(f.q, wr, 2), 0);
	poll_order(&f, 2, order, &wc);
	CHECK(order[0] == 0 && order[1] == 1); /* its count is used up */
}

TEST(a_reordered_operation_without_a_next_comes_all_the_same)
{
	const dg_fault_rule rule = { .action = DG_FAULT_REORDER, ALWAYS };
	dg_wr wr;

	FIXTURE(fix, f, fault_open, &rule, 1, 20 * SECOND);
	wr = record(&f, DG_WRITE, 100, 0, 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
}

TEST(a_fence_holds_under_delays_and_reordering)
{
	static const uint32_t actions[] = { DG_FAULT_DELAY, DG_FAULT_REORDER };

	for (size_t k = 0; k < 2; k++) {
		const dg_fault_rule rule = { .action = actions[k], .delay_ns = 20 * MS, .every = 2,
					     .max_size = UINT64_MAX, .ppm = 1000000, .ops = 3 };
		uint64_t order[5];
		struct fix f;
		dg_wr wr[5];
		dg_wc wc;

		fault_open(&f, &rule, 1, 20 * SECOND);
		for (uint32_t i = 0; i < 5; i++) {
			wr[i] = record(&f, DG_WRITE, 100, 100 * i, 100 * (i % 3));
			wr[i].user = i;
		}
		wr[3].flags = DG_FENCE;
		CHECK_EQ(dg_queue_post(f.q, wr, 5), 0);
		poll_order(&f, 5, order, &wc);
		for (uint32_t i = 0; i < 5; i++)
			CHECK_EQ(order[i] >= 3, i >= 3);
		check_pattern(f.remote_bytes, 300, 100, 6);
		fix_close(&f);
	}
}

/* Delayed operations are released between chains, never within one; a chain fails if one of its
 * requests does. */
TEST(a_held_operation_never_comes_between_the_parts_of_a_chain)
{
	const dg_fault_rule rule = { .action = DG_FAULT_REORDER, .delay_ns = 10 * SECOND, .count = 1, ALWAYS };
	uint64_t order[2];
	uint8_t *gone = pages(4096);
	dg_region *source, *revoked;
	struct fix f;
	dg_wr wr[3];
	dg_wc wc;

	fault_open(&f, &rule, 1, 60 * SECOND);
	source = registered(f.dev, gone, 4096, RW);
	revoked = imported(f.dev, source, RW);
	CHECK_EQ(dg_region_close(source, 0), 0);
	for (uint32_t i = 0; i < 3; i++) {
		wr[i] = record(&f, DG_WRITE, 100, 0, 100 * i);
		wr[i].user = i;
	}
	wr[1].flags = DG_CHAIN;
	wr[1].remote = id_of(revoked);
	CHECK_EQ(dg_queue_post(f.q, wr, 3), 0);
	poll_order(&f, 1, order, &wc);
	CHECK_EQ(wc.user, 2);
	CHECK_EQ(wc.status, DG_REMOTE_ACCESS_ERROR);
	poll_order(&f, 1, order, &wc);
	CHECK_EQ(wc.user, 0);
	CHECK_EQ(wc.status, DG_OK);
	CHECK_EQ(f.remote_bytes[200], 0); /* the request after the one that failed */
	CHECK_EQ(dg_queue_pending(f.q), 0);
	fix_close(&f);
	CHECK_EQ(munmap(gone, 4096), 0);
}

TEST(a_fence_inside_a_chain_waits_for_what_is_held)
{
	const dg_fault_rule rule = { .action = DG_FAULT_DELAY, .delay_ns = 20 * MS, .count = 1, ALWAYS };
	uint64_t order[2];
	dg_wr wr[3];
	dg_wc wc;

	FIXTURE(fix, f, fault_open, &rule, 1, 20 * SECOND);
	for (uint32_t i = 0; i < 3; i++) {
		wr[i] = record(&f, DG_WRITE, 100, 100 * i, 0);
		wr[i].user = i;
	}
	wr[1].flags = DG_CHAIN;
	wr[2].flags = DG_FENCE;
	CHECK_EQ(dg_queue_post(f.q, wr, 3), 0);
	poll_order(&f, 2, order, &wc);
	CHECK(order[0] == 0 && order[1] == 2);
	check_pattern(f.remote_bytes, 200, 100, 6);
}

TEST(a_lost_completion_ends_as_timed_out)
{
	const dg_fault_rule rule = { .action = DG_FAULT_LOSE, .count = 3, ALWAYS };
	struct transfer t;
	int64_t ticket;
	dg_wr wr;
	dg_wc wc;

	FIXTURE(fix, f, fault_open, &rule, 1, 500 * MS);
	wr = record(&f, DG_WRITE, 100, 0, 0);
	wr.user = 5;
	CHECK_EQ(dg_queue_post(f.q, &wr, 1), 0);
	CHECK_EQ(dg_queue_poll(f.q, &wc, 1, 20 * SECOND), 1);
	CHECK_EQ(wc.status, DG_TIMED_OUT);
	CHECK_EQ(wc.user, 5);
	CHECK(wc.complete_ns - wc.post_ns >= 500 * MS);
	t = begin(&f.tq, &wr);
	ticket = t.ticket;
	CHECK_EQ(take(&t, 0), -ETIME);
	CHECK_EQ(take(&t, 20 * SECOND), 0);
	CHECK_EQ(t.wc.status, DG_TIMED_OUT);
	CHECK_EQ(dg_transfer_wait(ticket, UINT64_MAX, &wc), -EINVAL);
	CHECK_EQ(dg_transfer_drop(ticket), -EINVAL);
	t = begin(&f.tq, &wr);
	CHECK_EQ(dg_transfer_drop(t.ticket), 0);
	wr.local_offset = wr.remote_offset = 1000;
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	close_regions(&f); /* the regions have nothing in flight */
}

TEST(arming_reports_a_lost_completion)
{
	const dg_fault_rule rule = { .action = DG_FAULT_LOSE, .count = 1, ALWAYS };
	uint64_t start;
	dg_wr wr;
	dg_wc wc;

	FIXTURE(fix, f, fault_open, &rule, 1, 300 * MS);
	wr = record(&f, DG_WRITE, 100, 0, 0);
	CHECK_EQ(dg_queue_post(f.q, &wr, 1), 0);
	CHECK_EQ(dg_queue_poll(f.q, &wc, 1, 0), 0);
	start = dg_now_ns();
	while (dg_now_ns() - start < 350 * MS)
		;
	/* The operation is overdue and will never signal the fd, so arming must report it. */
	CHECK_EQ(dg_queue_arm(f.q), 0);
	CHECK_EQ(dg_queue_poll(f.q, &wc, 1, 0), 1);
	CHECK_EQ(wc.status, DG_TIMED_OUT);
}

TEST(places_of_lost_operations_are_missed_and_named)
{
	const dg_fault_rule rule = { .action = DG_FAULT_LOSE, .count = 6, ALWAYS };
	dg_wr wr[8];
	dg_wc wc[8];

	FIXTURE(fix, f, fault_open, &rule, 1, 200 * MS);
	for (uint32_t i = 0; i < 8; i++)
		wr[i] = record(&f, DG_WRITE, 100, 0, 100 * i);
	CHECK_EQ(dg_queue_run(f.q, wr, 6, wc, 20 * SECOND), 6);
	for (uint32_t i = 0; i < 6; i++)
		CHECK_EQ(wc[i].status, DG_TIMED_OUT);
	CHECK_EQ(dg_queue_pending(f.q), 0);
	CHECK_EQ(dg_queue_post(f.q, wr, 3), -EAGAIN);
	CHECK_SAYS(dg_last_error(), "timed out");
	CHECK_EQ(dg_queue_run(f.q, wr, 2, wc, 20 * SECOND), 2);
	CHECK_EQ(wc[1].status, DG_OK);
	CHECK_EQ(dg_queue_close(f.q), 0);
	close_regions(&f);
}

TEST(closing_flushes_what_is_held_and_what_was_lost)
{
	const dg_fault_rule rules[] = {
		{ .action = DG_FAULT_LOSE, .count = 2, ALWAYS },
		{ .action = DG_FAULT_DELAY, .delay_ns = 100 * SECOND, .count = 2, ALWAYS },
		{ .action = DG_FAULT_REORDER, .delay_ns = 100 * SECOND, ALWAYS },
	};
	struct transfer t;
	dg_wr wr[6];
	dg_wc wc[8];

	FIXTURE(fix, f, fault_open, rules, 3, 1000 * SECOND);
	for (uint32_t i = 0; i < 6; i++)
		wr[i] = record(&f, DG_WRITE, 100, 0, 100 * i);
	CHECK_EQ(dg_queue_post(f.q, wr, 6), 0);
	t = begin(&f.tq, wr);
	CHECK(t.ticket > 0);
	CHECK_EQ(dg_transfer_drop(begin(&f.tq, wr).ticket), 0);
	CHECK_EQ(dg_queue_pending(f.q), 8);
	CHECK_EQ(dg_queue_close(f.q), 0);
	close_regions(&f);
	CHECK_EQ(dg_queue_poll(f.q, wc, 8, 0), 6);
	for (uint32_t i = 0; i < 6; i++)
		CHECK_EQ(wc[i].status, DG_FLUSHED);
	CHECK_EQ(take(&t, 0), 0);
	CHECK_EQ(t.wc.status, DG_FLUSHED);
	CHECK_EQ(dg_queue_pending(f.q), 0);
}

TEST(a_lost_chain_gives_all_its_places_back_at_close)
{
	dg_fault_rule rule = { .action = DG_FAULT_DELAY, .delay_ns = 1000 * SECOND, .count = 1, ALWAYS };
	dg_wr wr[5];
	dg_wc wc[8];

	FIXTURE(fix, f, fault_open, &rule, 1, 1000 * SECOND);
	for (uint32_t i = 0; i < 5; i++)
		wr[i] = record(&f, DG_WRITE, 100, 0, 100 * i);
	wr[1].flags = DG_FENCE | DG_CHAIN; /* waits in the ring behind the delayed operation */
	wr[2].flags = wr[3].flags = DG_CHAIN;
	CHECK_EQ(dg_queue_post(f.q, wr, 5), 0);
	CHECK_EQ(dg_queue_close(f.q), 0);
	close_regions(&f);
	CHECK_EQ(dg_queue_poll(f.q, wc, 8, 0), 2);
	CHECK_EQ(wc[0].status, DG_FLUSHED);
	CHECK_EQ(wc[1].status, DG_FLUSHED);
	CHECK_EQ(dg_queue_pending(f.q), 0);
}

TEST(a_stamp_that_was_shared_says_so)
{
	const dg_fault_rule rule = { .action = DG_FAULT_DELAY, .delay_ns = 20 * MS, .count = 1, ALWAYS };
	bool shared = false;
	dg_wr wr;
	dg_wc wc[2];

	FIXTURE(fix, f, fault_open, &rule, 1, 20 * SECOND);
	wr = record(&f, DG_WRITE, 100, 0, 0);
	CHECK_EQ(dg_queue_run(f.q, &wr, 1, wc, PATIENCE), 1);
	CHECK_EQ(wc[0].flags & DG_SHARED_STAMP, 0);
	/* Two posts of one record each: equal stamps must be marked as shared by the provider. */
	for (uint32_t i = 0; i < 2000; i++) {
		CHECK_EQ(dg_queue_post(f.q, &wr, 1), 0);
		CHECK_EQ(dg_queue_post(f.q, &wr, 1), 0);
		for (int got = 0; got < 2;)
			got += dg_queue_poll(f.q, wc + got, 2 - got, PATIENCE);
		if (wc[0].complete_ns == wc[1].complete_ns) {
			shared = true;
			CHECK(wc[0].flags & wc[1].flags & DG_SHARED_STAMP);
		}
	}
	printf("a shared stamp was %sseen\n", shared ? "" : "not ");
}

TEST(nonsense_rules_are_refused)
{
	const dg_fault_rule bad[] = {
		{ .action = 4, ALWAYS }, { .action = DG_FAULT_ERROR, .status = DG_OK, ALWAYS },
		{ .action = DG_FAULT_ERROR, .status = 7, ALWAYS }, { .action = DG_FAULT_LOSE, .max_size = 1, .ppm = 1 },
		{ .action = DG_FAULT_LOSE, .ops = 1, .min_size = 2, .max_size = 1 },
		{ .action = DG_FAULT_LOSE, .ops = 1, .ppm = 1000001 },
	};
	dg_device_config config = { .over = "soft", .n_rules = 1 };
	dg_device *dev;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		config.rules = &bad[i];
		CHECK_EQ(dg_device_open("fault", &config, &dev), -EINVAL);
	}
	config.n_rules = 0;
	config.over = "fault";
	CHECK_EQ(dg_device_open("fault", &config, &dev), -ENODEV);
	config.over = "nonesuch";
	CHECK_EQ(dg_device_open("fault", &config, &dev), -ENODEV);
}

int main(int argc, char **argv)
{
	static const char *const inner[] = { "soft", "softdoca" };
	int failed = 0, skipped = 0;

	provider = "fault";
	for (int i = 0; i < 2; i++) {
		int rc;

		wrapped = inner[i];
		rc = run_over(argc, argv);
		failed += rc && rc != CHECK_SKIPPED;
		skipped += rc == CHECK_SKIPPED;
	}
	return failed ? 1 : skipped == 2 ? CHECK_SKIPPED : 0;
}
