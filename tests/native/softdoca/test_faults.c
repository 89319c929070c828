// SPDX-License-Identifier: Apache-2.0
/* SOFTDOCA_FAULTS: tasks behave as the rules say, and otherwise normally. */
#include "doca_check.h"

#define SIZE ((size_t)1 << 20)

static void open_with(struct rig *r, const char *rules, uint32_t tasks)
{
	setenv("SOFTDOCA_FAULTS", rules, 1);
	rig_open(r, SIZE, tasks);
	fill(r->from, SIZE, 2);
}

/* Starts the context, which is idle after a failure, again, and resets what was recorded. */
static void restart(struct rig *r)
{
	run_until_idle(r);
	r->n_seen = 0;
	OK(doca_ctx_start(r->ctx));
}

TEST(an_error_fails_the_task_copies_nothing_and_stops_the_context)
{
	static const char *const statuses[] = { "local_error", "remote_access_error", "peer_lost",
						"timed_out", "flushed", "io_failed" };

	for (unsigned i = 0; i < 6; i++) {
		struct rig r;
		char rule[64];

		snprintf(rule, sizeof(rule), "error skip=1 status=%s", statuses[i]);
		open_with(&r, rule, 4);
		for (unsigned k = 1; k < 4; k++) { /* each start of a context counts anew */
			memset(r.to, 0, 4096);
			OK(copied_at(&r, 0, 0, 64));
			CHECK_EQ(memcmp(r.from, r.to, 64), 0);
			CHECK_DOCA(copied_at(&r, 0, 1024, 64), DOCA_ERROR_IO_FAILED);
			CHECK_EQ(r.to[1025], 0);
			CHECK_EQ(r.failed, k);
			restart(&r);
		}
		rig_close(&r);
	}
}

/* Those after it: a context completes in the order of submission, and a copy of this size takes
 * longer than the error. */
TEST(an_error_ends_the_tasks_behind_it)
{
	enum { N = 10 };
	const size_t each = SIZE / N;
	struct doca_buf *src, *dst[N];

	FIXTURE(rig, r, open_with, "error skip=4 count=1 status=io_failed", N);
	src = source(&r, 0, each);
	for (int i = 0; i < N; i++) {
		dst[i] = target(&r, i * each, each);
		OK(doca_task_submit(a_task(&r, src, dst[i], i)));
	}
	run_until_idle(&r);
	CHECK_EQ(r.done, 4);
	CHECK_EQ(r.failed, N - 4);
	for (int i = 0; i < N; i++)
		CHECK_EQ(r.order[i], i);
	for (int i = 0; i < N; i++) {
		CHECK_EQ(data_len(dst[i]), i < 4 ? each : 0);
		CHECK_EQ(i < 4 && memcmp(r.from, r.to + i * each, each), 0);
		drop(dst[i]);
	}
	drop(src);
}

TEST(a_delayed_task_comes_late_and_whole)
{
	double before;

	FIXTURE(rig, r, open_with, "delay ms=20 min_size=5000", 4);
	before = now_s();
	OK(copied_at(&r, 0, 0, 5000));
	CHECK(now_s() - before >= 0.02);
	CHECK_EQ(memcmp(r.from, r.to, 5000), 0);
}

TEST(a_task_that_is_overtaken_completes_after_the_other)
{
	struct rig r;

	open_with(&r, "reorder count=1 ms=10000", 4); /* or when another task has overtaken it */
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 1024);
	OK(doca_task_submit(a_task(&r, src, dst, 1)));
	OK(doca_task_submit(a_task(&r, src, dst, 2)));
	run_until(&r, 2);
	CHECK_EQ(r.done, 2);
	CHECK_EQ(r.order[0], 2);
	CHECK_EQ(r.order[1], 1);
	rig_close(&r, src, dst);
}

/* The completion does not come before the context is stopped; other tasks are not delayed. */
TEST(a_lost_completion_ends_with_the_context)
{
	struct doca_buf *lost;

	FIXTURE(rig, r, open_with, "lose count=1", 4);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 64);
	lost = target(&r, 64, 64);
	OK(doca_task_submit(a_task(&r, src, lost, 1)));
	OK(doca_task_submit(a_task(&r, src, dst, 2)));
	run_until(&r, 1);
	CHECK_EQ(r.order[0], 2);
	CHECK_EQ(in_flight(&r), 1);
	CHECK_DOCA(doca_ctx_stop(r.ctx), DOCA_ERROR_IN_PROGRESS);
	run_until_idle(&r);
	CHECK_EQ(r.failed, 1);
	CHECK_EQ(r.order[1], 1);
	CHECK_EQ(data_len(lost), 0);
	drop(src, dst, lost);
}

TEST(lists_pass_through_the_rules_whole)
{
	struct doca_buf *src, *dst;

	FIXTURE(rig, r, open_with, "delay ms=1", 4);
	src = source(&r, 0, 1000);
	OK(doca_buf_chain_list(src, source(&r, 1000, 1000)));
	dst = target(&r, 0, 700);
	OK(doca_buf_chain_list(dst, target(&r, 700, 1300)));
	OK(copied(&r, src, dst));
	CHECK_EQ(memcmp(r.from, r.to, 2000), 0);
	drop(src, dst);
}

TEST(random_faults_leave_nothing_behind)
{
	enum { N = 16 };
	struct rig r;
	struct doca_buf *src, *dst[N];

	open_with(&r, "error ppm=20000 status=io_failed; delay us=50 ppm=100000; reorder ppm=100000; "
		      "lose ppm=5000",
		  N);
	src = source(&r, 0, 500);
	for (int i = 0; i < N; i++)
		dst[i] = target(&r, i * 1000, 500);
	for (int round = 0; round < 60; round++) {
		double end = now_s() + 0.02; /* if it were lost, this loop would not end */

		for (int i = 0; i < N; i++) {
			OK(doca_buf_reset_data_len(dst[i]));
			if (state_of(&r) == DOCA_CTX_STATE_RUNNING)
				OK(doca_task_submit(a_task(&r, src, dst[i], i)));
		}
		while (in_flight(&r) && now_s() < end)
			doca_pe_progress(r.pe);
		doca_ctx_stop(r.ctx);
		restart(&r);
		CHECK_EQ(in_flight(&r), 0);
	}
	drop(src);
	for (int i = 0; i < N; i++)
		drop(dst[i]);
	rig_close(&r);
}

TEST_MAIN(run_tests)
