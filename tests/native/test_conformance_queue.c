/* SPDX-License-Identifier: Apache-2.0 */
/* Depth of a queue, transfers, waiting, fences, closing. For each provider and path. */
#include <pthread.h>
#include <stdatomic.h>

#include "fixture.h"

static void depth_is_exact(struct fix *f, uint32_t path)
{
	enum { DEPTH = 5 };
	dg_wr wr[DEPTH + 1];
	dg_wc wc[DEPTH];
	int got = 0;

	(void)path;
	for (uint32_t i = 0; i <= DEPTH; i++)
		wr[i] = record(f, DG_WRITE, 8, 8 * i, 8 * i);
	CHECK_EQ(dg_queue_post(f->q, wr, DEPTH + 1), -EAGAIN);
	CHECK_EQ(dg_queue_pending(f->q), 0);
	for (uint32_t i = 0; i < DEPTH; i++) {
		CHECK_EQ(dg_queue_post(f->q, wr + i, 1), 0);
		CHECK_EQ(dg_queue_pending(f->q), i + 1);
	}
	CHECK_EQ(dg_queue_post(f->q, wr, 1), -EAGAIN);
	CHECK_EQ(dg_queue_poll(f->q, wc, 2, PATIENCE) > 0, 1);
	got = DEPTH - dg_queue_pending(f->q);
	CHECK_EQ(dg_queue_post(f->q, wr, got + 1), -EAGAIN);
	CHECK_EQ(dg_queue_post(f->q, wr, got), 0);
	CHECK_EQ(dg_queue_pending(f->q), DEPTH);
	CHECK_EQ(dg_queue_post(f->q, wr, 1), -EAGAIN);
	CHECK_EQ(dg_transfer_post(f->q, DG_WRITE, f->l, f->r, 8, 0, 0, 0, wc), -EAGAIN);
	for (got = 0; got < DEPTH;) {
		int n = dg_queue_poll(f->q, wc, DEPTH, PATIENCE);

		CHECK(n > 0);
		got += n;
	}
	CHECK_EQ(dg_queue_pending(f->q), 0);
	CHECK_EQ(dg_queue_post(f->q, wr, DEPTH), 0);
}

TEST(exactly_depth_operations_fit)
{
	each_path(4096, 5, depth_is_exact);
}

static void transfers_out_of_order(struct fix *f, uint32_t path)
{
	enum { N = 8 };
	struct transfer t[N];
	dg_wr wr;
	dg_wc wc;

	(void)path;
	fill(f->local_bytes, f->size, 5);
	for (uint32_t i = 0; i < N; i++) {
		wr = record(f, DG_WRITE, 20000, 100 * i, 20000 * i);
		t[i] = begin(&f->tq, &wr);
		CHECK(t[i].ticket >= 0);
	}
	for (uint32_t i = N; i-- > 0;) {
		bool held = t[i].ticket > 0;
		int before = dg_queue_pending(f->q);

		CHECK_EQ(take(&t[i], 30 * SECOND), 0);
		CHECK_EQ(t[i].wc.status, DG_OK);
		CHECK_EQ(dg_queue_pending(f->q), before - held);
		check_pattern(f->remote_bytes + 20000 * i, 100 * i, 20000, 5);
	}
	CHECK_EQ(dg_queue_poll(f->q, &wc, 1, 0), 0);
	CHECK_EQ(dg_queue_pending(f->q), 0);
}

TEST(transfers_may_be_taken_in_any_order)
{
	each_path(1 << 20, 8, transfers_out_of_order);
}

/* Transfers that are not taken occupy only their own places; dg_queue_poll() never returns their
 * completions. */
static void unreaped(struct fix *f, uint32_t path)
{
	enum { HELD = 3, DEPTH = 8 };
	struct transfer t[HELD];
	dg_wr wr = record(f, DG_WRITE, 20000, 0, 0);
	dg_wc wc[DEPTH];

	(void)path;
	for (uint32_t i = 0; i < HELD; i++) {
		t[i] = begin(&f->tq, &wr);
		CHECK(t[i].ticket >= 0);
	}
	for (uint32_t round = 0; round < 100; round++) {
		int room = DEPTH - dg_queue_pending(f->q), got = 0;

		CHECK(room >= DEPTH - HELD);
		wr.size = 8;
		for (int i = 0; i < room; i++) {
			wr.user = 100 * round + i;
			CHECK_EQ(dg_queue_post(f->q, &wr, 1), 0);
		}
		CHECK_EQ(dg_queue_post(f->q, &wr, 1), -EAGAIN);
		while (got < room) {
			int n = dg_queue_poll(f->q, wc, DEPTH, 30 * SECOND);

			CHECK(n > 0);
			for (int i = 0; i < n; i++)
				CHECK_EQ(wc[i].user, 100 * round + got + i);
			got += n;
		}
	}
	for (uint32_t i = 0; i < HELD; i++)
		CHECK_EQ(take(&t[i], PATIENCE), 0);
	CHECK_EQ(dg_queue_pending(f->q), 0);
}

TEST(untaken_transfers_do_not_block_others)
{
	each_path(1 << 16, 8, unreaped);
}

TEST(tickets_are_good_once)
{
	dg_wr wr;
	dg_wc wc;
	struct transfer t;
	int64_t ticket;

	FIXTURE(fix, f, fix_open, 4096, 4);
	wr = record(&f, DG_WRITE, 8, 0, 0);
	t = begin(&f.tq, &wr);
	ticket = t.ticket;
	CHECK(ticket >= DG_TICKET);
	CHECK_EQ(take(&t, PATIENCE), 0);
	CHECK_EQ(dg_transfer_wait(ticket, 0, &wc), -EINVAL);
	CHECK_EQ(dg_transfer_drop(ticket), -EINVAL);
	t = begin(&f.tq, &wr);
	ticket = t.ticket;
	CHECK_EQ(dg_transfer_drop(ticket), 0);
	CHECK_EQ(dg_transfer_wait(ticket, 0, &wc), -EINVAL);
	CHECK_EQ(dg_transfer_wait(5, 0, &wc), -EINVAL);
	CHECK_EQ(dg_transfer_wait(-1, 0, &wc), -EINVAL);
}

TEST(dropped_transfers_give_their_places_back)
{
	enum { DEPTH = 4 };
	struct transfer t;
	dg_wr wr;
	dg_wc wc;

	FIXTURE(fix, f, fix_open, 1 << 16, DEPTH);
	for (uint32_t i = 0; i < 50 * DEPTH; i++) {
		wr = record(&f, DG_WRITE, 8, 0, 8 * (i % 100));
		do {
			t = begin(&f.tq, &wr); /* a dropped transfer occupies its place until it is complete */
		} while (t.ticket == -EAGAIN);
		CHECK(t.ticket >= DG_TICKET);
		CHECK_EQ(dg_transfer_drop(t.ticket), 0);
	}
	CHECK_EQ(dg_queue_poll(f.q, &wc, 1, SECOND), 0); /* until none is in flight: their completions are never polled */
	CHECK_EQ(dg_queue_pending(f.q), 0);
}

/* A large operation keeps the engine busy; a small one with a fence must complete after it. */
static void fences(struct fix *f, uint32_t path)
{
	enum { BIG = 1 << 20 };
	dg_wr wr[3] = { record(f, DG_WRITE, BIG, 0, 0), record(f, DG_READ, BIG, BIG, 0),
			record(f, DG_WRITE, 8, 2 * BIG - 8, 2 * BIG) };
	dg_wc wc[3];

	(void)path;
	wr[1].flags = wr[2].flags = DG_FENCE;
	for (unsigned round = 0; round < 5; round++) {
		fill(f->local_bytes, BIG, round);
		CHECK_EQ(dg_queue_run(f->q, wr, 3, wc, 30 * SECOND), 3);
		for (uint32_t i = 0; i < 3; i++)
			CHECK_EQ(wc[i].status, DG_OK);
		CHECK(wc[0].complete_ns <= wc[1].complete_ns && wc[1].complete_ns <= wc[2].complete_ns);
		check_pattern(f->local_bytes + BIG, 0, BIG, round);
		check_pattern(f->remote_bytes + 2 * BIG, BIG - 8, 8, round);
	}
}

TEST(behind_a_fence_all_before_is_there)
{
	each_path((2 << 20) + 64, 4, fences);
}

static void runs(struct fix *f, uint32_t path)
{
	dg_wr wr[4];
	dg_prep *p, *bad;
	dg_wc wc[4];

	(void)path;
	fill(f->local_bytes, f->size, 2);
	for (uint32_t i = 0; i < 4; i++) {
		wr[i] = record(f, DG_WRITE, 50, 50 * i, 100 * i);
		wr[i].user = i;
	}
	CHECK_EQ(dg_prep_open(f->q, wr, 4, &p), 0);
	for (int round = 0; round < 20; round++) {
		memset(f->remote_bytes, 0, 400);
		CHECK_EQ(dg_prep_run(p), 0);
		for (uint32_t i = 0; i < 4; i++) {
			CHECK_EQ(dg_prep_wc(p)[i].user, i);
			CHECK_EQ(dg_prep_wc(p)[i].size, 50);
			check_pattern(f->remote_bytes + 100 * i, 50 * i, 50, 2);
		}
		CHECK_EQ(dg_prep_post(p), 0);
		for (uint32_t got = 0; got < 4;) {
			int n = dg_queue_poll(f->q, wc, 4, PATIENCE);

			CHECK(n > 0);
			got += n;
		}
	}
	CHECK_EQ(dg_prep_post(p), 0);
	CHECK_EQ(dg_prep_post(p), -EAGAIN); /* depth 4 */
	wr[2].remote_offset = f->size;
	CHECK_EQ(dg_prep_open(f->q, wr, 4, &bad), -ERANGE);
	CHECK_EQ(dg_prep_open(f->q, wr, 0, &bad), -EINVAL);
	CHECK_EQ(dg_prep_open(f->q, wr, 5, &bad), -EINVAL);
	CHECK_EQ(dg_queue_close(f->q), 0);
	CHECK_EQ(dg_prep_run(p), -ESTALE);
	CHECK_EQ(dg_prep_post(p), -ESTALE);
	CHECK_EQ(dg_prep_close(p), 0);
}

TEST(a_prepared_batch_runs_and_posts_until_its_queue_closes)
{
	each_path(4096, 4, runs);
}

static void prepared_stale(struct fix *f, uint32_t path)
{
	dg_wr wr = record(f, DG_WRITE, 50, 0, 0);
	dg_prep *p;

	(void)path;
	CHECK_EQ(dg_prep_open(f->q, &wr, 1, &p), 0);
	CHECK_EQ(dg_prep_run(p), 0);
	CHECK_EQ(dg_region_close(f->local, 0), 0);
	memset(f->remote_bytes, 0, 50);
	CHECK_EQ(dg_prep_run(p), -ESTALE);
	CHECK_EQ(dg_prep_post(p), -ESTALE);
	CHECK_EQ(f->remote_bytes[0], 0);
	CHECK_EQ(dg_prep_close(p), 0);
}

TEST(a_prepared_operation_is_refused_once_its_region_is_closed)
{
	each_path(4096, 4, prepared_stale);
}

static void handles_outlive(struct fix *f, uint32_t path)
{
	dg_wr wr = record(f, DG_WRITE, 50, 0, 0);
	dg_prep *p;
	dg_wc wc;

	(void)path;
	CHECK_EQ(dg_prep_open(f->q, &wr, 1, &p), 0);
	CHECK_EQ(dg_queue_post(f->q, &wr, 1), 0);
	CHECK_EQ(dg_device_close(f->dev, PATIENCE), 0);
	CHECK_EQ(dg_prep_run(p), -ESTALE);
	CHECK_EQ(dg_queue_post(f->q, &wr, 1), -ESTALE);
	CHECK_EQ(dg_queue_run(f->q, &wr, 1, &wc, 0), -ESTALE);
	CHECK_EQ(dg_queue_arm(f->q), -ESTALE);
	CHECK_EQ(dg_queue_fileno(f->q), -ESTALE);
	CHECK_EQ(dg_queue_poll(f->q, &wc, 1, PATIENCE), 1);
	CHECK_EQ(dg_queue_pending(f->q), 0);
	CHECK_EQ(dg_queue_close(f->q), 0);
	dg_queue_free(f->q);
	CHECK_EQ(dg_prep_run(p), -ESTALE);
	CHECK_EQ(dg_prep_close(p), 0);
	f->q = NULL;
	f->dev = device_spinning(0); /* for fix_close */
}

TEST(queues_and_prepared_operations_outlive_their_device)
{
	each_path(4096, 4, handles_outlive);
}

/* Waits like a program with its own event loop: poll, arm, sleep on the fd. */
static int poll_armed(dg_queue *q, dg_wc *wc, uint32_t n)
{
	for (;;) {
		struct pollfd fd = { dg_queue_fileno(q), POLLIN, 0 };
		int got = dg_queue_poll(q, wc, n, 0), armed;

		if (got)
			return got;
		armed = dg_queue_arm(q);
		CHECK(armed >= 0);
		if (armed == 1 && poll(&fd, 1, 20000) != 1)
			check_failed(__FILE__, __LINE__, "armed, and the fd was not written in 20 s");
	}
}

static void sleepers(struct fix *f, uint32_t path)
{
	dg_wr wr[3];
	dg_wc wc[3];

	(void)path;
	for (uint32_t round = 0; round < 300; round++) {
		uint32_t n = 1 + round % 3, got = 0;

		for (uint32_t i = 0; i < n; i++)
			wr[i] = record(f, DG_WRITE, round % 10 ? 8 : 100000, 0, 0);
		CHECK_EQ(dg_queue_post(f->q, wr, n), 0);
		while (got < n) {
			int rc = poll_armed(f->q, wc, 3);

			CHECK(rc > 0);
			got += rc;
		}
	}
	CHECK_EQ(dg_queue_arm(f->q), 1); /* nothing available, nothing posted */
}

TEST(an_armed_fd_is_written_when_both_sides_sleep)
{
	each_path(1 << 17, 4, sleepers);
}

/* Does the same inside the library, without spinning on either side. */
TEST(waiting_without_spinning_loses_no_completion)
{
	dg_wr wr;
	dg_wc wc;

	FIXTURE(fix, f, fix_regions, 4096, 0);
	CHECK_EQ(test_queue_open(&f.tq, f.dev, 4, DG_PATH_WORKER, 0, 20 * SECOND), 0);
	f.q = f.tq.q;
	for (uint32_t i = 0; i < 2000; i++) {
		wr = record(&f, DG_WRITE, 8, 0, 8 * (i % 64));
		CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
		CHECK_EQ(dg_queue_run(f.q, &wr, 1, &wc, 20 * SECOND), 1);
	}
}

struct waiter {
	struct test_queue *tq;
	struct transfer t;
	atomic_bool over;
};

static void *wait_long(void *arg)
{
	struct waiter *w = arg;
	int rc;

	do
		rc = take(&w->t, 60 * SECOND);
	while (rc == -EALREADY); /* the other thread is briefly inside */
	CHECK_EQ(rc, 0);
	atomic_store(&w->over, true);
	return NULL;
}

TEST(a_second_thread_gets_ealready)
{
	enum { SIZE = 64 << 20 };
	struct waiter w;
	pthread_t thread;
	dg_wr wr;
	dg_wc wc;
	int rc = 0;

	FIXTURE(fix, f, fix_open, SIZE, 4);
	wr = record(&f, DG_WRITE, SIZE, 0, 0);
	for (uint32_t tries = 0; rc != -EALREADY && tries < 200; tries++) {
		w = (struct waiter){ .tq = &f.tq, .t = begin(&f.tq, &wr) };
		CHECK(w.t.ticket >= DG_TICKET);
		CHECK_EQ(pthread_create(&thread, NULL, wait_long, &w), 0);
		do {
			rc = dg_transfer_post(f.q, DG_WRITE, f.l, f.r, 0, 0, 0, 0, &wc);
		} while (rc == -ERANGE && !atomic_load(&w.over)); /* 0 bytes: refused, never posted */
		CHECK_EQ(pthread_join(thread, NULL), 0);
	}
	CHECK_EQ(rc, -EALREADY);
}

TEST(nonsense_is_refused_when_a_queue_opens)
{
	dg_queue *q;

	FIXTURE(fix, f, fix_regions, 4096, 0);
	CHECK_EQ(dg_queue_open(f.dev, 0, DG_PATH_AUTO, 0, SECOND, &q), -EINVAL);
	CHECK_EQ(dg_queue_open(f.dev, DG_DEPTH_MAX + 1, DG_PATH_AUTO, 0, SECOND, &q), -EINVAL);
	CHECK_EQ(dg_queue_open(f.dev, 1, 3, 0, SECOND, &q), -EINVAL);
	CHECK(!q);
	CHECK_EQ(dg_queue_open(f.dev, DG_DEPTH_MAX, DG_PATH_AUTO, 0, PATIENCE, &q), 0);
	CHECK_EQ(dg_queue_close(q), 0);
	CHECK_EQ(dg_queue_close(q), 0);
	dg_queue_free(q);
	CHECK_EQ(dg_queue_open(f.dev, 1, DG_PATH_AUTO, 0, PATIENCE, &q), 0);
	dg_queue_free(q);
}

TEST_MAIN(run_over_providers)
