/* SPDX-License-Identifier: Apache-2.0 */
/* The provider softdoca: what the conformance suite does not cover. */
#include <pthread.h>
#include <stdatomic.h>

#include "share/descriptor.h"
#include "fixture.h"
#include "fork_check.h"

#define TASK_MAX (2u << 20) /* softdoca's limit, the same as a BlueField's */

TEST(a_device_says_what_it_is)
{
	dg_device *dev = device_spinning(0);
	dg_caps caps;

	CHECK_EQ(dg_device_caps(dev, &caps), 0);
	CHECK(!strcmp(caps.provider, "softdoca"));
	CHECK_SAYS(caps.engine, "softdoca ");
	CHECK_SAYS(caps.engine, "0000:03:00.0 mlx5_0");
	CHECK_EQ(caps.ordered, 0);
	CHECK_EQ(dg_device_close(dev, 0), 0);
}

TEST(a_function_is_found_by_its_address)
{
	static const char *const same[] = { "03:00.0", "0000:03:00.0" };
	dg_device_config config = { .pci = "0000:ff:00.0" };
	dg_device *dev;

	for (int i = 0; i < 2; i++) {
		config.pci = same[i];
		CHECK_EQ(dg_device_open("softdoca", &config, &dev), 0);
		CHECK_EQ(dg_device_close(dev, 0), 0);
	}
	config.pci = "0000:ff:00.0";
	CHECK_EQ(dg_device_open("softdoca", &config, &dev), -ENODEV);
	CHECK_SAYS(dg_last_error(), "0000:ff:00.0");
	CHECK_SAYS(dg_last_error(), "0000:03:00.0");
}

TEST(the_first_that_does_dma_is_taken)
{
	dg_device *dev;
	dg_caps caps;

	dev = device_of("side=both pci=0000:05:00.0 ibdev=mlx5_5 caps=export\n"
		 "side=both pci=0000:06:00.0 ibdev=mlx5_6 caps=dma,export,import\n");
	CHECK_EQ(dg_device_caps(dev, &caps), 0);
	CHECK_SAYS(caps.engine, "0000:06:00.0");
	CHECK_EQ(dg_device_close(dev, 0), 0);
}

TEST(a_function_without_dma_lends_and_moves_nothing)
{
	uint8_t bytes[64], buf[DG_DESCRIPTOR_MAX];
	struct dg_descriptor d;
	dg_device *dev;
	dg_region *r;
	dg_queue *q;
	int len;

	dev = device_of("side=both pci=0000:05:00.0 ibdev=mlx5_5 caps=export\n");
	CHECK_EQ(dg_queue_open(dev, 4, DG_PATH_AUTO, 0, SECOND, &q), -EOPNOTSUPP);
	CHECK_SAYS(dg_last_error(), "only export memory");
	r = registered(dev, bytes, sizeof(bytes), RW);
	len = dg_region_export(r, RW, buf, sizeof(buf));
	CHECK(len > 0);
	CHECK_EQ(dg_descriptor_parse(buf, len, &d), 0);
	CHECK(d.blob_length > 0);
	CHECK_EQ(dg_device_close(dev, 0), 0);
}

TEST(a_descriptor_carries_docas_export)
{
	uint8_t all[DG_DESCRIPTOR_MAX], narrow[DG_DESCRIPTOR_MAX];
	struct dg_descriptor a, n;
	uint64_t address;

	FIXTURE(fix, f, fix_regions, 4096, 0);
	CHECK_EQ(dg_descriptor_parse(all, dg_region_export(f.source, RW, all, sizeof(all)), &a), 0);
	CHECK_EQ(dg_descriptor_parse(narrow, dg_region_export(f.source, DG_ACCESS_READ, narrow, sizeof(narrow)), &n),
		 0);
	CHECK(!strcmp((char *)a.provider, "softdoca"));
	CHECK(a.blob_length > sizeof(address));
	memcpy(&address, a.blob, sizeof(address));
	CHECK(address == (uintptr_t)f.remote_bytes);
	/* A read-only export is read-only for DOCA, too: it uses another map. */
	CHECK(a.blob_length != n.blob_length || memcmp(a.blob, n.blob, a.blob_length));
}

static void check_copy(struct fix *f, uint32_t op, size_t size)
{
	uint8_t *from = op == DG_WRITE ? f->local_bytes : f->remote_bytes, *to = op == DG_WRITE ? f->remote_bytes : f->local_bytes;
	dg_wr wr = record(f, op, size, 3, 5);
	size_t from_at = op == DG_WRITE ? 3 : 5, to_at = op == DG_WRITE ? 5 : 3;
	dg_wc wc;

	fill(from, f->size, (unsigned)size);
	memset(to, 0xee, f->size);
	wc = done(&f->tq, &wr);
	CHECK_EQ(wc.status, DG_OK);
	CHECK_EQ(wc.size, size);
	check_pattern(to + to_at, from_at, size, (unsigned)size);
	CHECK_EQ(to[to_at - 1], 0xee);
	CHECK_EQ(to[to_at + size], 0xee);
	memset(to, 0xee, f->size);
	CHECK_EQ(dg_queue_run(f->q, &wr, 1, &wc, 20 * SECOND), 1);
	CHECK_EQ(wc.status, DG_OK);
	CHECK(wc.submit_ns <= wc.post_ns && wc.post_ns <= wc.complete_ns);
	check_pattern(to + to_at, from_at, size, (unsigned)size);
}

TEST(what_is_larger_than_a_task_completes_as_one)
{
	static const size_t sizes[] = { 65537, TASK_MAX - 1, TASK_MAX, TASK_MAX + 1, 3 * TASK_MAX,
					5 * TASK_MAX + 7 };

	FIXTURE(fix, f, fix_open, 6 * TASK_MAX, 4);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (uint32_t op = DG_READ; op <= DG_WRITE; op++)
			check_copy(&f, op, sizes[i]);
	CHECK_EQ(dg_queue_pending(f.q), 0);
}

TEST(rows_larger_than_a_task_land_where_they_should)
{
	enum { ROW = TASK_MAX + 4096, ROWS = 3 };
	dg_wr wr;
	dg_wc wc;

	FIXTURE(fix, f, fix_open, (ROW + 64) * ROWS, 4);
	wr = record(&f, DG_WRITE, ROW, 0, 0);
	wr.rows = ROWS;
	wr.local_stride = ROW;
	wr.remote_stride = ROW + 64;
	fill(f.local_bytes, f.size, 2);
	CHECK_EQ(dg_queue_run(f.q, &wr, 1, &wc, 20 * SECOND), 1);
	CHECK_EQ(wc.status, DG_OK);
	CHECK_EQ(wc.size, (uint64_t)ROW * ROWS);
	for (size_t i = 0; i < ROWS; i++)
		check_pattern(f.remote_bytes + i * (ROW + 64), i * ROW, ROW, 2);
}

/* More operations than a queue has tasks, then operations larger than its limit in flight. */
TEST(many_operations_wait_for_tasks_and_all_complete)
{
	enum { N = 3000, LARGE = 40 };
	static dg_wr wr[N];
	static dg_wc wc[N];

	FIXTURE(fix, f, fix_open, 16 * TASK_MAX, N);
	for (uint32_t i = 0; i < N; i++)
		wr[i] = record(&f, i % 2, 100, 128 * i, 128 * i);
	CHECK_EQ(dg_queue_run(f.q, wr, N, wc, 60 * SECOND), N);
	for (uint32_t i = 0; i < N; i++)
		CHECK_EQ(wc[i].status, DG_OK);
	for (uint32_t i = 0; i < LARGE; i++)
		wr[i] = record(&f, DG_WRITE, 16 * TASK_MAX, 0, 0);
	CHECK_EQ(dg_queue_run(f.q, wr, LARGE, wc, 60 * SECOND), LARGE);
	for (uint32_t i = 0; i < LARGE; i++)
		CHECK_EQ(wc[i].status, DG_OK);
}

/* A task that fails stops DOCA's context and flushes what was in flight. */
TEST(after_an_error_the_queue_goes_on)
{
	enum { N = 20 };
	dg_wr wr[N];
	dg_wc wc[N];
	uint32_t failed = 0;

	setenv("SOFTDOCA_FAULTS", "error skip=30 every=50 status=io_failed", 1);
	FIXTURE(fix, f, fix_open, 1 << 20, N);
	fill(f.local_bytes, f.size, 8);
	for (uint32_t round = 0; round < 20; round++) {
		for (uint32_t i = 0; i < N; i++)
			wr[i] = record(&f, DG_WRITE, 20000, 20000 * i, 20000 * i);
		CHECK_EQ(dg_queue_run(f.q, wr, N, wc, 20 * SECOND), N);
		for (uint32_t i = 0; i < N; i++) {
			CHECK(wc[i].status == DG_OK || wc[i].status == DG_IO_FAILED ||
			      wc[i].status == DG_FLUSHED);
			failed += wc[i].status != DG_OK;
			if (wc[i].status == DG_OK)
				check_pattern(f.remote_bytes + 20000 * i, 20000 * i, 20000, 8);
		}
		CHECK_EQ(dg_queue_pending(f.q), 0);
	}
	CHECK(failed > 0 && failed < 20 * N);
	/* The gates were left: nothing is in flight. */
	CHECK_EQ(dg_region_close(f.source, 0), 0);
	CHECK_EQ(dg_region_close(f.local, 0), 0);
}

TEST(a_single_one_that_fails_says_so_and_the_next_is_good)
{
	uint32_t failed = 0;
	dg_prep *p;
	dg_wr wr;

	setenv("SOFTDOCA_FAULTS", "error skip=3 status=io_failed", 1);
	FIXTURE(fix, f, fix_open, 1 << 20, 4);
	wr = record(&f, DG_WRITE, 64, 0, 0);
	CHECK_EQ(dg_prep_open(f.q, &wr, 1, &p), 0);
	for (uint32_t i = 0; i < 30; i++) {
		int status = dg_prep_run(p);

		CHECK(status == DG_OK || status == DG_IO_FAILED);
		CHECK_EQ(dg_prep_wc(p)->size, status ? 0 : 64);
		failed += status != DG_OK;
	}
	CHECK(failed > 0 && failed < 30);
	CHECK_EQ(dg_prep_close(p), 0);
}

TEST(a_sleeper_is_woken_by_docas_notification)
{
	dg_wr wr;
	dg_wc wc;

	setenv("SOFTDOCA_FAULTS", "delay ms=20", 1);
	FIXTURE(fix, f, fix_open, 1 << 20, 4);
	for (uint32_t size = 64; size <= 1 << 20; size <<= 7) {
		struct pollfd fd = { dg_queue_fileno(f.q), POLLIN, 0 };

		wr = record(&f, DG_WRITE, size, 0, 0);
		CHECK_EQ(dg_queue_post(f.q, &wr, 1), 0);
		while (!dg_queue_poll(f.q, &wc, 1, 0))
			if (dg_queue_arm(f.q) == 1)
				CHECK_EQ(poll(&fd, 1, 20000), 1);
		CHECK_EQ(wc.status, DG_OK);
	}
	/* Armed first, then posted. */
	for (uint32_t i = 0; i < 5; i++) {
		struct pollfd fd = { dg_queue_fileno(f.q), POLLIN, 0 };

		CHECK_EQ(dg_queue_arm(f.q), 1);
		CHECK_EQ(dg_queue_post(f.q, &wr, 1), 0);
		CHECK_EQ(poll(&fd, 1, 20000), 1);
		while (!dg_queue_poll(f.q, &wc, 1, PATIENCE))
			;
	}
}

/* dg_measure_bare() returns the requested number of samples, and the queue works afterwards. */
TEST(the_bare_loop_takes_its_samples)
{
	uint64_t samples[100];
	dg_prep *p;
	dg_wr wr;

	FIXTURE(fix, f, fix_open, 4 * TASK_MAX, 64);
	for (uint64_t size = 64; size <= TASK_MAX; size <<= 15) {
		wr = record(&f, DG_WRITE, size, 0, 0);
		CHECK_EQ(dg_prep_open(f.q, &wr, 1, &p), 0);
		memset(samples, 0, sizeof(samples));
		CHECK_EQ(dg_measure_bare(p, 100, 1, samples), 100);
		CHECK(samples[0] > 0 && samples[99] > 0);
		CHECK_EQ(dg_measure_bare(p, 100, 8, samples), 100);
		CHECK_EQ(dg_prep_run(p), DG_OK);
		CHECK_EQ(dg_prep_close(p), 0);
	}
	wr = record(&f, DG_WRITE, TASK_MAX + 1, 0, 0);
	CHECK_EQ(dg_prep_open(f.q, &wr, 1, &p), 0);
	CHECK_EQ(dg_measure_bare(p, 10, 1, samples), -EOPNOTSUPP);
	CHECK_EQ(dg_prep_close(p), 0);
}

/* DOCA never completes a task: the loop gives up, the memory stays in use, and the queue still
 * works. */
TEST(the_bare_loop_ends_though_a_task_does_not)
{
	uint64_t samples[100];
	dg_prep *p;
	dg_wr wr;

	setenv("SOFTDOCA_FAULTS", "lose skip=10 count=1", 1);
	FIXTURE(fix, f, fix_open, 4096, 8);
	wr = record(&f, DG_WRITE, 64, 0, 0);
	CHECK_EQ(dg_prep_open(f.q, &wr, 1, &p), 0);
	CHECK_EQ(dg_measure_bare(p, 100, 4, samples), -EIO);
	CHECK_EQ(dg_prep_run(p), DG_OK);
	CHECK_EQ(dg_region_close(f.source, 0), -EBUSY);
	CHECK_EQ(dg_prep_close(p), 0);
	CHECK_EQ(dg_queue_close(f.q), 0);
	CHECK_EQ(dg_region_close(f.source, 0), 0);
}

/* One thread opens and closes regions while another uses a queue, which keeps buffers over
 * regions. */
struct busy {
	struct fix *f;
	atomic_bool over;
	uint64_t moved;
};

static void *keep_busy(void *arg)
{
	struct busy *b = arg;
	dg_wr wr[8];
	dg_wc wc[8];

	for (uint32_t i = 0; i < 8; i++)
		wr[i] = record(b->f, i % 2, 64, 64 * i, 64 * i);
	while (!atomic_load(&b->over)) {
		CHECK_EQ(dg_queue_run(b->f->q, wr, 8, wc, 20 * SECOND), 8);
		b->moved += 8;
	}
	return NULL;
}

TEST(regions_close_while_a_queue_is_busy_with_others)
{
	struct busy b = { 0 };
	pthread_t thread;
	struct test_queue own;

	FIXTURE(fix, f, fix_open, 1 << 16, 64);
	b.f = &f;
	CHECK_EQ(test_queue_open(&own, f.dev, 4, DG_PATH_WORKER, 0, 20 * SECOND), 0);
	CHECK_EQ(pthread_create(&thread, NULL, keep_busy, &b), 0);
	for (uint32_t i = 0; i < 100; i++) {
		uint8_t *bytes = pages(4096);
		dg_region *r = registered(f.dev, bytes, 4096, RW);
		dg_wr wr = record(&f, DG_WRITE, 100, 0, 4096);

		wr.local = id_of(r);
		CHECK_EQ(done(&own, &wr).status, DG_OK);
		CHECK_EQ(dg_region_close(r, PATIENCE), 0);
		CHECK_EQ(munmap(bytes, 4096), 0);
	}
	atomic_store(&b.over, true);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(b.moved > 0);
	CHECK_EQ(dg_queue_close(own.q), 0);
	dg_queue_free(own.q);
}

/* One queue alternates between several pairs of regions, so its tasks are bound again each time. */
TEST(a_queue_goes_from_region_to_region)
{
	enum { N = 6 };
	dg_region *local[N];
	uint8_t *bytes[N];
	dg_wr wr[4 * N];
	dg_wc wc[4 * N];

	FIXTURE(fix, f, fix_open, 1 << 16, 4 * N);
	for (uint32_t i = 0; i < N; i++) {
		bytes[i] = pages(4096);
		fill(bytes[i], 4096, i);
		local[i] = registered(f.dev, bytes[i], 4096, RW);
	}
	for (uint32_t i = 0; i < 4 * N; i++) {
		wr[i] = record(&f, DG_WRITE, 100, 100, 1000 * i);
		wr[i].local = id_of(local[i % N]);
	}
	CHECK_EQ(dg_queue_run(f.q, wr, 4 * N, wc, 20 * SECOND), 4 * N);
	for (uint32_t i = 0; i < 4 * N; i++) {
		CHECK_EQ(wc[i].status, DG_OK);
		check_pattern(f.remote_bytes + 1000 * i, 100, 100, i % N);
	}
	for (uint32_t i = 0; i < N; i++) {
		CHECK_EQ(dg_region_close(local[i], PATIENCE), 0);
		CHECK_EQ(munmap(bytes[i], 4096), 0);
	}
}

TEST(a_child_of_a_fork_opens_its_own)
{
	struct fix f;
	int status;
	pid_t pid;

	fix_open(&f, 4096, 4);
	others_sleep();
	pid = fork();
	if (pid == 0) {
		dg_wr wr = record(&f, DG_WRITE, 8, 0, 0);
		dg_queue *q;

		CHECK_EQ(dg_queue_post(f.q, &wr, 1), -EOWNERDEAD);
		CHECK_EQ(dg_queue_open(f.dev, 4, DG_PATH_AUTO, 0, SECOND, &q), -EOWNERDEAD);
		CHECK_EQ(dg_queue_close(f.q), 0);
		dg_queue_free(f.q);
		CHECK_EQ(dg_device_close(f.dev, 0), 0);
#ifndef __SANITIZE_THREAD__ /* does not support threads in the child of a fork */
		fix_open(&f, 4096, 4);
		wr = record(&f, DG_WRITE, 8, 0, 0);
		CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
		fix_close(&f);
#endif
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	dg_wr wr = record(&f, DG_WRITE, 8, 0, 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	fix_close(&f);
}

int main(int argc, char **argv)
{
	provider = "softdoca";
	if (dg_provider_probe(provider, false))
		SKIP(dg_last_error());
	return run_tests(argc, argv);
}
