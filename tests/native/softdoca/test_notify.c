// SPDX-License-Identifier: Apache-2.0
/*
 * Event-driven programs: a program that sleeps on the notification handle gets every completion,
 * once. The loop is the documented one: request, wait, clear, progress until nothing is left.
 */
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "pair_check.h"

#define SIZE ((size_t)4 << 20)
#define BIG  ((size_t)1 << 20)

static int handle_of(const struct rig *r)
{
	doca_notification_handle_t handle = -1;

	OK(doca_pe_get_notification_handle(r->pe, &handle));
	CHECK(handle >= 0);
	return handle;
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) == 1;
}

/* Sleeps until the handle is readable; a wake-up that never comes fails the test. */
static void sleep_on(struct rig *r, int epoll_fd)
{
	struct epoll_event e;

	CHECK_EQ(epoll_wait(epoll_fd, &e, 1, WAIT_SECONDS * 1000), 1);
	OK(doca_pe_clear_notification(r->pe, handle_of(r)));
}

static int epoll_over(const struct rig *r)
{
	struct epoll_event e = { .events = EPOLLIN };
	int fd = epoll_create1(EPOLL_CLOEXEC);

	CHECK_EQ(epoll_ctl(fd, EPOLL_CTL_ADD, handle_of(r), &e), 0);
	return fd;
}

/* Sleeps until `ended` tasks have ended. Progresses only after a wake-up. */
static void sleep_until(struct rig *r, int epoll_fd, unsigned ended)
{
	while (r->done + r->failed < ended) {
		OK(doca_pe_request_notification(r->pe));
		sleep_on(r, epoll_fd);
		while (doca_pe_progress(r->pe))
			;
	}
	CHECK_EQ(r->done + r->failed, ended);
}

TEST(the_handle_never_changes)
{
	int before;

	FIXTURE(rig, r, rig_make, SIZE, 4);
	before = handle_of(&r);
	OK(doca_ctx_start(r.ctx));
	CHECK_EQ(handle_of(&r), before);
	OK(copied_at(&r, 0, 0, 100));
	CHECK_EQ(handle_of(&r), before);
}

TEST(nothing_wakes_a_program_without_tasks)
{
	FIXTURE(rig, r, rig_open, SIZE, 4);
	CHECK(!readable(handle_of(&r), 0));
	OK(doca_pe_request_notification(r.pe));
	CHECK(!readable(handle_of(&r), 20));
	OK(doca_pe_clear_notification(r.pe, handle_of(&r)));
}

/* Submits between request and wait, or before both. */
static void wakes(size_t size, bool request_first)
{
	int fd;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	fd = epoll_over(&r);
	fill(r.from, SIZE, 3);
	struct doca_buf *src = source(&r, 0, size), *dst = target(&r, 0, size);
	for (unsigned i = 0; i < 50; i++) {
		memset(r.to, 0, size);
		OK(doca_buf_reset_data_len(dst));
		if (request_first)
			OK(doca_pe_request_notification(r.pe));
		OK(doca_task_submit(a_task(&r, src, dst, 0)));
		if (!request_first)
			OK(doca_pe_request_notification(r.pe));
		sleep_on(&r, fd);
		while (doca_pe_progress(r.pe))
			;
		sleep_until(&r, fd, i + 1);
		CHECK_EQ(memcmp(r.from, r.to, size), 0);
	}
	close(fd);
	drop(src, dst);
}

TEST(a_small_task_submitted_before_the_request_wakes)
{
	wakes(64, false);
}

TEST(a_small_task_submitted_after_the_request_wakes)
{
	wakes(64, true);
}

TEST(a_large_task_submitted_before_the_request_wakes)
{
	wakes(BIG, false);
}

TEST(a_large_task_submitted_after_the_request_wakes)
{
	wakes(BIG, true);
}

TEST(a_delayed_task_wakes_when_it_is_due)
{
	setenv("SOFTDOCA_FAULTS", "delay ms=3", 1);
	wakes(64, false);
	wakes(64, true);
}

TEST(an_injected_error_wakes_at_once)
{
	int fd;

	setenv("SOFTDOCA_FAULTS", "error status=io_failed", 1);
	FIXTURE(rig, r, rig_open, SIZE, 4);
	fd = epoll_over(&r);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 64);
	OK(doca_pe_request_notification(r.pe));
	OK(doca_task_submit(a_task(&r, src, dst, 0)));
	sleep_on(&r, fd);
	while (doca_pe_progress(r.pe))
		;
	CHECK_EQ(r.failed, 1);
	CHECK_EQ(state_of(&r), DOCA_CTX_STATE_IDLE);
	close(fd);
	drop(src, dst);
}

TEST(after_a_clear_the_handle_rests_until_the_next_request)
{
	struct doca_buf *big_src, *big_dst;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 64);
	big_src = source(&r, 0, BIG);
	big_dst = target(&r, 0, BIG);
	OK(doca_pe_request_notification(r.pe));
	OK(doca_task_submit(a_task(&r, big_src, big_dst, 0)));
	CHECK(readable(handle_of(&r), WAIT_SECONDS * 1000));
	OK(doca_pe_clear_notification(r.pe, handle_of(&r)));
	CHECK(!readable(handle_of(&r), 0));
	OK(doca_task_submit(a_task(&r, src, dst, 0)));
	CHECK(!readable(handle_of(&r), 0));
	OK(doca_pe_request_notification(r.pe));
	CHECK(readable(handle_of(&r), 0)); /* the large one still has to be delivered */
	run_until(&r, 2);
	OK(doca_pe_clear_notification(r.pe, handle_of(&r)));
	CHECK(!readable(handle_of(&r), 0));
	drop(src, dst, big_src, big_dst);
}

TEST(a_sleeper_loses_no_completion_and_gets_none_twice)
{
	enum { N = 32, AREA = 65536, ROUNDS = 200 };
	int fd;
	unsigned seed = 7;
	struct doca_buf *src[N], *dst[N];

	FIXTURE(rig, r, rig_open, N * AREA, N);
	fd = epoll_over(&r);
	fill(r.from, N * AREA, 3);
	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned n = 1 + rand_r(&seed) % N;

		r.done = 0;
		for (unsigned i = 0; i < n; i++) {
			size_t size = 1 + rand_r(&seed) % (rand_r(&seed) % 2 ? 300 : AREA);

			src[i] = source(&r, i * AREA, size);
			dst[i] = target(&r, i * AREA, size);
			OK(doca_task_submit(a_task(&r, src[i], dst[i], i)));
		}
		sleep_until(&r, fd, n);
		for (unsigned i = 0; i < n; i++) {
			CHECK_EQ(r.order[i], i);
			CHECK_EQ(memcmp(r.from + i * AREA, r.to + i * AREA, data_len(dst[i])), 0);
			drop(src[i]);
			drop(dst[i]);
		}
	}
	close(fd);
}

TEST(a_stop_wakes_who_waits_for_the_rest)
{
	int fd;
	struct doca_task *kept;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	fd = epoll_over(&r);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 64);
	kept = a_task(&r, NULL, NULL, 0);
	OK(doca_task_submit_ex(a_task(&r, src, dst, 1), DOCA_TASK_SUBMIT_FLAG_NONE));
	OK(doca_pe_request_notification(r.pe));
	CHECK(!readable(handle_of(&r), 0));
	CHECK_DOCA(doca_ctx_stop(r.ctx), DOCA_ERROR_IN_PROGRESS);
	sleep_on(&r, fd);
	while (doca_pe_progress(r.pe))
		;
	CHECK_EQ(r.failed, 1);
	OK(doca_pe_request_notification(r.pe));
	CHECK(!readable(handle_of(&r), 0));
	doca_task_free(kept);
	sleep_on(&r, fd);
	CHECK_EQ(doca_pe_progress(r.pe), 1);
	CHECK_EQ(state_of(&r), DOCA_CTX_STATE_IDLE);
	close(fd);
	drop(src, dst);
}

TEST(a_flush_wakes)
{
	int fd;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	fd = epoll_over(&r);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 64);
	OK(doca_pe_request_notification(r.pe));
	OK(doca_task_submit_ex(a_task(&r, src, dst, 1), DOCA_TASK_SUBMIT_FLAG_NONE));
	CHECK(!readable(handle_of(&r), 0));
	doca_ctx_flush_tasks(r.ctx);
	sleep_on(&r, fd);
	CHECK_EQ(doca_pe_progress(r.pe), 1);
	close(fd);
	drop(src, dst);
}

static void host(int fd)
{
	export_and_wait(fd, SIZE, READ_WRITE | PCI_RW);
}

TEST(memory_of_another_process_wakes_too)
{
	struct other o = start(host);
	struct offer offer;
	struct rig r;
	struct doca_mmap *map;
	struct doca_buf *src, *dst;
	int fd;

	CHECK(hears(o.fd, &offer, sizeof(offer)));
	rig_open(&r, SIZE, 4);
	fd = epoll_over(&r);
	map = imported(&r, &offer);
	src = far_buf(&r, map, &offer, 0, BIG, true);
	dst = target(&r, 0, BIG);
	for (unsigned i = 1; i <= 20; i++) {
		OK(doca_buf_reset_data_len(dst));
		OK(doca_task_submit(a_task(&r, src, dst, i)));
		sleep_until(&r, fd, i);
	}
	CHECK_EQ(r.done, 20);
	drop(src, dst);
	OK(doca_mmap_destroy(map));
	close(fd);
	rig_close(&r);
	join(o);
}

/* Programs for Linux pass 0, because the handle is for Windows only. */
TEST(clearing_takes_any_handle)
{
	FIXTURE(rig, r, rig_open, SIZE, 4);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 1024);
	for (int handle = -1; handle < 2; handle++) {
		OK(doca_pe_request_notification(r.pe));
		OK(doca_task_submit(a_task(&r, src, dst, 0)));
		CHECK(readable(handle_of(&r), 0));
		OK(doca_pe_clear_notification(r.pe, handle));
		CHECK(!readable(handle_of(&r), 0));
		CHECK_EQ(doca_pe_progress(r.pe), 1);
	}
	OK(doca_pe_clear_notification(r.pe, 0)); /* nothing was requested */
	drop(src, dst);
}

/* Replaces the C library's function, with which the library signals an event from any thread. */
static atomic_uint said;

__attribute__((visibility("default"))) int eventfd_write(int fd, eventfd_t n)
{
	atomic_fetch_add(&said, 1);
	return write(fd, &n, sizeof(n)) == sizeof(n) ? 0 : -1;
}

TEST(what_was_said_is_not_said_again_until_it_is_cleared)
{
	FIXTURE(rig, r, rig_open, SIZE, 8);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, SIZE);
	for (unsigned round = 1; round <= 3; round++) {
		OK(doca_pe_request_notification(r.pe));
		for (unsigned i = 0; i < 100; i++)
			OK(copied(&r, src, dst));
		CHECK_EQ(atomic_load(&said), round);
		CHECK(readable(handle_of(&r), 0));
		OK(doca_pe_clear_notification(r.pe, 0));
		CHECK(!readable(handle_of(&r), 0));
	}
	drop(src, dst);
}

TEST_MAIN(run_tests)
