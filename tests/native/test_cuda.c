/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider cuda with the fake driver: which driver calls a transfer makes, and how it ends if
 * one of them fails. Another process owns the GPU memory.
 */
#include <pthread.h>

#include "provider.h"
#include "providers/cuda_api.h"
#include "providers/cuda_pointer.h"
#include "queue.h"
#include "region.h"
#include "share/polling.h"
#include "two_sides.h"

#define BLOCK (2u << 20) /* the granularity */
#define LOCAL (256u << 10)
#define DEPTH 1024u

/* The host: receives a size and an access, sends a descriptor, and exits at end-of-file. */
static void lend(int fd)
{
	uint64_t size = 0;
	uint32_t access = 0;
	dg_region *r;
	dg_memory m;
	struct token t;
	dg_device *dev;

	hear(fd, &size, sizeof(size));
	hear(fd, &access, sizeof(access));
	provider = "soft";
	dev = device_spinning(0);
	m = gpu_block(size);
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), 0);
	t = export_of(r, access);
	say(fd, &t, sizeof(t));
	while (hears(fd, &size, sizeof(size)))
		;
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

/* The same with memory of cudaMalloc, which is shared by CUDA IPC. */
static void lend_ipc(int fd)
{
	dg_device *dev;
	struct token t;
	dg_memory m;
	dg_region *r;
	char end;

	provider = "soft";
	dev = device_spinning(0);
	CHECK_EQ(dg_cuda_pointer_query(gpu_pages(BLOCK), BLOCK, &m), 0);
	CHECK_EQ(m.kind, DG_KIND_CUDA_IPC);
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), 0);
	t = export_of(r, RW);
	say(fd, &t, sizeof(t));
	CHECK(!hears(fd, &end, 1));
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

/* State of both sides. */
struct two {
	struct other host;
	struct fix f;
	uint8_t *remote_bytes; /* the remote bytes, as the CPU sees them */
};

static void two_open(struct two *t, uint64_t size, uint32_t access, const char *knobs)
{
	struct token token;

	t->host = start(lend);
	say(t->host.fd, &size, sizeof(size));
	say(t->host.fd, &access, sizeof(access));
	hear(t->host.fd, &token, sizeof(token));
	provider = "cuda";
	gpu_knobs(knobs);
	import_fix(&t->f, &token, LOCAL, DEPTH);
	t->remote_bytes = (uint8_t *)region_entry_at(REGION_INDEX(t->f.r))->base;
}

static void two_close(struct two *t)
{
	int fd = t->host.fd;

	fix_close(&t->f);
	shutdown(fd, SHUT_WR);
	join(t->host);
}

/* A write of n bytes; the bytes next to them must not change. */
static void write_once(struct two *t, size_t n, size_t at, size_t offset)
{
	dg_wr wr = record(&t->f, DG_WRITE, n, at, offset);

	fill(t->f.local_bytes, LOCAL, (unsigned)n);
	memset(t->remote_bytes + offset, 0xee, n + 64);
	if (offset)
		t->remote_bytes[offset - 1] = 0xdd;
	CHECK_EQ(done(&t->f.tq, &wr).status, DG_OK);
	check_pattern(t->remote_bytes + offset, at, n, (unsigned)n);
	for (size_t i = n; i < n + 64; i++)
		CHECK_EQ(t->remote_bytes[offset + i], 0xee);
	CHECK(!offset || t->remote_bytes[offset - 1] == 0xdd);
}

TEST(a_small_write_is_always_a_copy_of_two_rows)
{
	static const size_t sizes[] = { 71, 100, 4095, 4096, 4097, 16384, 32767 };
	unsigned long copies = 0;

	FIXTURE(two, t, two_open, BLOCK, RW, "");
	for (size_t n = 1; n <= 64; n++) {
		write_once(&t, n, n % 9, n % 7);
		write_once(&t, n, LOCAL - n, 4096 + n); /* no bytes behind it for a second row */
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		write_once(&t, sizes[i], 3, 5);
		write_once(&t, sizes[i], LOCAL - sizes[i], 64);
	}
	copies = gpu_calls("cuMemcpy2DAsync");
	CHECK(copies >= 2 * (64 + 7));
	CHECK_EQ(gpu_calls("cuMemcpyHtoDAsync"), 0);
	write_once(&t, 32768, 3, 5);
	CHECK_EQ(gpu_calls("cuMemcpyHtoDAsync"), 1);
	CHECK_EQ(gpu_calls("cuMemcpy2DAsync"), copies);
	CHECK_EQ(gpu_calls("cuLaunchKernel"), 0);
}

TEST(halves_are_rows_and_an_odd_rest_has_the_scratch_for_its_second)
{
	FIXTURE(two, t, two_open, BLOCK, RW, "");
	gpu_knobs("");
	write_once(&t, 64, 0, 0);
	CHECK_EQ(gpu_calls("cuMemcpy2DAsync"), 1); /* 2 x 32 */
	write_once(&t, 20, 0, 0);
	CHECK_EQ(gpu_calls("cuMemcpy2DAsync"), 2); /* the bytes, and the scratch */
	write_once(&t, 100, 0, 0);
	CHECK_EQ(gpu_calls("cuMemcpy2DAsync"), 3);
	write_once(&t, 100, LOCAL - 100, 0); /* 2 x 48, and 4 with the scratch */
	CHECK_EQ(gpu_calls("cuMemcpy2DAsync"), 5);
}

/* The stream's last work must be the copy engine's. */
TEST(a_few_whole_words_are_write_values)
{
	unsigned long words, all = 0;

	FIXTURE(two, t, two_open, BLOCK, RW, "");
	for (int again = 0; again < 20; again++) {
		gpu_knobs("");
		write_once(&t, 64, 0, 0);
		CHECK_EQ(gpu_calls("cuMemcpy2DAsync"), 1);
		for (size_t n = 8; n <= 32; n += 8)
			write_once(&t, n, 3, 4096 + n);
		/* A late write-value is followed by two rows: the stream may not be with a copy
		 * engine. */
		words = gpu_calls("cuStreamBatchMemOp");
		all += words;
		CHECK_EQ(words + gpu_calls("cuMemcpy2DAsync"), 5);
		CHECK_EQ(words + gpu_calls("cuStreamWriteValue32"), 5);
		write_once(&t, 8, 3, 4); /* not aligned */
		write_once(&t, 12, 3, 8);
		write_once(&t, 40, 3, 8);
		CHECK_EQ(gpu_calls("cuStreamBatchMemOp"), words);
	}
	CHECK(all > 0);
}

static void words_that_the_driver_refuses_are_copied(const char *knobs)
{
	FIXTURE(two, t, two_open, BLOCK, RW, knobs);
	for (size_t n = 8; n <= 32; n += 8)
		write_once(&t, n, 3, 4096 + n);
	CHECK_EQ(gpu_calls("cuMemcpyHtoDAsync"), 0);
}

TEST(words_that_fail_are_copied)
{
	words_that_the_driver_refuses_are_copied("cuStreamBatchMemOp=1");
}

TEST(without_write_values_words_are_copied)
{
	words_that_the_driver_refuses_are_copied("missing=cuStreamBatchMemOp");
}

TEST(without_write_values_of_64_bits_words_are_copied)
{
	words_that_the_driver_refuses_are_copied("attr122=0");
}

/* A write reads its source when the stream reaches it, not when it is posted. */
TEST(a_fenced_write_sends_what_the_read_before_it_brought)
{
	static const size_t sizes[] = { 1, 8, 20, 64, 4096 };

	FIXTURE(two, t, two_open, BLOCK, RW, "");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t n = sizes[i], at = LOCAL - n; /* no bytes behind it for a second row */
		dg_wr wr[2] = { record(&t.f, DG_READ, n, at, 0), record(&t.f, DG_WRITE, n, at, 8192) };
		dg_wc wc[2];

		wr[1].flags = DG_FENCE;
		gpu_knobs("");
		write_once(&t, 64, 0, 65536); /* now the stream is with a copy engine */
		gpu_knobs("copy_us=3000");
		fill(t.remote_bytes, n, (unsigned)i + 50);
		memset(t.f.local_bytes, 0, LOCAL);
		memset(t.remote_bytes + 8192, 0, n);
		CHECK_EQ(dg_queue_run(t.f.q, wr, 2, wc, 10 * SECOND), 2);
		check_pattern(t.remote_bytes + 8192, 0, n, (unsigned)i + 50);
	}
}

TEST(far_from_the_scratch_the_two_rows_are_planes)
{
	FIXTURE(two, t, two_open, 3ull << 30, RW, "total=17179869184");
	for (size_t n = 1; n <= 40; n++)
		write_once(&t, n, n, n);
	write_once(&t, 4095, 1, 1 << 20);
	CHECK(gpu_calls("cuMemcpy3DAsync") >= 21);
	CHECK_EQ(gpu_calls("cuMemcpyHtoDAsync"), 0);
	write_once(&t, 3, 1, (3ull << 30) - 100);
}

static dg_wc done_rows(struct test_queue *l, const dg_wr *wr)
{
	struct transfer t = begin_wr(l, wr, 1);

	CHECK(t.ticket >= 0);
	CHECK_EQ(take(&t, 30 * SECOND), 0);
	return t.wc;
}

TEST(reads_and_rows_are_one_call_each)
{
	dg_wr wr;

	FIXTURE(two, t, two_open, BLOCK, RW, "");
	fill(t.remote_bytes, BLOCK, 3);
	for (size_t n = 1; n < 70000; n = n * 3 + 1) {
		wr = record(&t.f, DG_READ, n, 7, n);
		gpu_knobs("");
		memset(t.f.local_bytes, 0, LOCAL);
		CHECK_EQ(done(&t.f.tq, &wr).status, DG_OK);
		/* and one before each wake-up request */
		CHECK_EQ(gpu_calls("cuMemcpyDtoHAsync"), 1 + gpu_calls("cuLaunchHostFunc"));
		check_pattern(t.f.local_bytes + 7, n, n, 3);
		CHECK_EQ(t.f.local_bytes[6], 0);
		CHECK_EQ(t.f.local_bytes[7 + n], 0);
	}
	for (uint32_t op = DG_READ; op <= DG_WRITE; op++) {
		wr = record(&t.f, op, 24, 0, 0);
		wr.rows = 500;
		wr.local_stride = 32;
		wr.remote_stride = 100;
		gpu_knobs("");
		CHECK_EQ(done_rows(&t.f.tq, &wr).size, 500 * 24);
		CHECK_EQ(gpu_calls("cuMemcpy2DAsync"), 1);
	}
	wr.local_stride = 8; /* source rows overlap, which a pitch cannot express: three columns */
	gpu_knobs("");
	CHECK_EQ(done_rows(&t.f.tq, &wr).size, 500 * 24);
	CHECK_EQ(gpu_calls("cuMemcpy2DAsync"), 3);
	CHECK_EQ(gpu_calls("cuMemcpyHtoDAsync"), 0);
}

/* The driver calls cost the caller's time, so their number must not grow with the number of
 * rows. */
TEST(rows_that_repeat_or_overlap_are_few_calls)
{
	static const uint64_t sizes[] = { 1, 7, 8, 24 }, apart[] = { 0, 1, 5, 8, 23 };
	dg_wr wr;

	FIXTURE(two, t, two_open, BLOCK, RW, "");
	for (int i = 0; i < 2 * 4 * 5; i++) {
		uint32_t op = i % 2 ? DG_WRITE : DG_READ, rows = 9001;
		uint64_t n = sizes[i / 2 % 4], stride = apart[i / 8];
		uint8_t *from = op == DG_WRITE ? t.f.local_bytes : t.remote_bytes, *to = op == DG_WRITE ? t.remote_bytes : t.f.local_bytes;

		if (stride >= n)
			continue;
		wr = record(&t.f, op, n, op == DG_WRITE ? 3 : 1, op == DG_WRITE ? 1 : 3);
		wr.rows = rows;
		wr.local_stride = op == DG_WRITE ? stride : n + 1;
		wr.remote_stride = op == DG_WRITE ? n + 1 : stride;
		fill(from, LOCAL, (unsigned)i);
		memset(to, 0xee, LOCAL);
		gpu_knobs("");
		CHECK_EQ(done_rows(&t.f.tq, &wr).size, rows * n);
		CHECK(gpu_calls("cuMemcpy2DAsync") + gpu_calls("cuMemcpyHtoDAsync") +
			      gpu_calls("cuMemcpyDtoHAsync") <= 25);
		for (uint32_t row = 0; row < rows; row++) {
			check_pattern(to + 1 + row * (n + 1), 3 + row * stride, n, (unsigned)i);
			CHECK_EQ(to[row * (n + 1)], 0xee);
		}
		CHECK_EQ(to[rows * (n + 1)], 0xee);
	}
}

/* Posts n writes of `size` bytes together, 64 bytes apart, until a kernel copies them, at most
 * `tries` times. Returns the number of writes that a kernel copied. */
static uint32_t by_kernel(struct two *t, uint32_t n, uint64_t size, uint32_t fence_at,
			  const char *knobs, int tries)
{
	dg_wr wr[300];
	dg_wc wc[300];
	uint32_t kernel = 0;

	CHECK(n <= 300);
	fill(t->f.local_bytes, LOCAL, n);
	memset(t->remote_bytes, 0, LOCAL);
	for (uint32_t i = 0; i < n; i++) {
		wr[i] = record(&t->f, DG_WRITE, size, 64 * i, 64 * (n - 1 - i));
		wr[i].flags = fence_at && i == fence_at ? DG_FENCE : 0;
	}
	gpu_knobs(knobs);
	for (int again = 0; again < tries && !kernel; again++) {
		CHECK_EQ(dg_queue_run(t->f.q, wr, n, wc, 10 * SECOND), n);
		for (uint32_t i = 0; i < n; i++)
			kernel += !!(wc[i].flags & DG_BY_KERNEL);
	}
	for (uint32_t i = 0; i < n; i++) {
		CHECK_EQ(wc[i].status, DG_OK);
		check_pattern(t->remote_bytes + 64 * (n - 1 - i), 64 * i, size, n);
		CHECK(size == 64 || !t->remote_bytes[64 * (n - 1 - i) + size]);
	}
	CHECK_EQ(gpu_calls("cuMemcpyHtoDAsync"), 0);
	return kernel;
}

enum { TRIES = 10000 };

/* The earlier batches measured that the GPU answers sooner than the copies would be made. */
TEST(a_batch_is_a_kernel_once_the_gpu_has_answered_sooner)
{
	FIXTURE(two, t, two_open, BLOCK, RW, "");
	CHECK_EQ(by_kernel(&t, 300, 8, 0, "", 1), 0); /* nothing was measured yet */
	CHECK_EQ(by_kernel(&t, 7, 8, 0, "", 100), 0);
	for (uint64_t size = 1; size <= 64; size += 7) {
		CHECK_EQ(by_kernel(&t, 300, size, 0, "copy_us=1", TRIES), 300);
		CHECK_EQ(by_kernel(&t, 300, size, 4, "copy_us=1", TRIES), 296); /* 4 copies, a launch */
	}
}

/* Runs batches repeatedly, so that operations wrap around the end of the rings. */
TEST(batches_go_round_the_ring)
{
	FIXTURE(two, t, two_open, BLOCK, RW, "");
	for (int i = 0; i < 40; i++)
		CHECK_EQ(by_kernel(&t, 299, 1 + i, 0, "copy_us=1", TRIES), 299);
}

enum { SLICE_MS = 20000 }; /* how long the compute engine takes to answer */

/* Runs n requests, which must take far less than the time slice. */
static void run_soon(struct two *t, const dg_wr *wr, uint32_t n)
{
	dg_wc wc[300];
	uint64_t since = dg_now_ns();

	CHECK_EQ(dg_queue_run(t->f.q, wr, n, wc, 10 * SECOND), n);
	if (dg_now_ns() - since > SLICE_MS * 1000000ull / 2)
		fprintf(stderr, "%u of op %u, %llu bytes, %u rows: %llu ns\n", n, wr->op,
			(unsigned long long)wr->size, wr->rows,
			(unsigned long long)(dg_now_ns() - since));
	CHECK(dg_now_ns() - since < SLICE_MS * 1000000ull / 2);
	for (uint32_t i = 0; i < n; i++) {
		CHECK_EQ(wc[i].status, DG_OK);
		CHECK_EQ(wc[i].flags & DG_BY_KERNEL, 0);
	}
}

TEST(while_the_gpu_computes_nothing_small_waits_for_it)
{
	static const size_t sizes[] = { 1, 4, 8, 12, 16, 24, 32, 40, 64, 100, 4096, 16384, 40000 };
	struct two t;
	dg_wr wr[300];

	two_open(&t, BLOCK, RW, "compute_us=20000000");
	for (uint32_t op = DG_READ; op <= DG_WRITE; op++) {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (uint32_t n = 1; n < 40; n = 5 * n + 2) {
				for (uint32_t j = 0; j < n; j++)
					wr[j] = record(&t.f, op, sizes[i], 5000 * (j % 40), 5000 * (n - j));
				run_soon(&t, wr, n);
			}
		for (uint32_t j = 0; j < 300; j++)
			wr[j] = record(&t.f, op, 64, 128 * j, 128 * (299 - j));
		for (int again = 0; again < 5; again++)
			run_soon(&t, wr, 300);
		wr[0] = record(&t.f, op, 24, 0, 0);
		wr[0].rows = 200;
		wr[0].local_stride = wr[0].remote_stride = 40;
		run_soon(&t, wr, 1);
		*(op == DG_WRITE ? &wr[0].local_stride : &wr[0].remote_stride) = 0; /* one row, repeated */
		run_soon(&t, wr, 1);
	}
	_exit(0); /* to close would wait for the slice */
}

/* A sleeper waits for the driver's callback, and the driver for the flag. */
TEST(while_the_gpu_computes_a_sleeper_is_woken_in_time)
{
	struct two t;
	dg_wr wr;

	two_open(&t, BLOCK, RW, "compute_us=20000000,copy_us=5000");
	for (int i = 0; i < 5; i++) {
		uint64_t since = dg_now_ns();

		wr = record(&t.f, DG_READ, 8, 0, 0);
		CHECK_EQ(done(&t.f.tq, &wr).status, DG_OK);
		CHECK(dg_now_ns() - since < SLICE_MS * 1000000ull / 2);
	}
	_exit(0); /* to close would wait for the slice */
}

static void without_the_kernel_they_are_copies(const char *knobs)
{
	FIXTURE(two, t, two_open, BLOCK, RW, knobs);
	CHECK_EQ(by_kernel(&t, 100, 8, 0, knobs, 50), 0);
}

/* Polls until n operations are complete, each with DG_OK. */
static void all_done(dg_queue *q, uint32_t n)
{
	uint64_t end = now_ns() + 20 * SECOND;
	dg_wc wc[64];

	while (n) {
		int got = dg_queue_poll(q, wc, 64, 0);

		CHECK(got >= 0 && now_ns() < end);
		for (int i = 0; i < got; i++)
			CHECK_EQ(wc[i].status, DG_OK);
		n -= (uint32_t)got;
	}
}

/* A queue of a proxy copies from GPU to GPU memory and between host and GPU, while a kernel
 * occupies the GPU. */
static void beside_a_kernel_bytes_pass_the_host(const char *knobs)
{
	static const size_t sizes[] = { 1, 8, 40, 64, 100, 4096, 4097, 70000 };
	enum { MANY = 200, STEP = 128 };
	dg_wr wr[MANY];
	char full[64];
	dg_region *own;
	dg_queue *q;

	FIXTURE(two, t, two_open, BLOCK, RW, "");
	const dg_memory m = gpu_block(BLOCK);
	CHECK_EQ(dg_region_register(t.f.dev, &m, RW, &own), 0);
	fill(m.addr, BLOCK, 3);
	for (int turn = 0; turn < 2; turn++) { /* the second queue reuses the first one's memory */
		CHECK_EQ(dg_queue_open_for_kernels(t.f.dev, DEPTH, t.f.dev, &q), 0);
		snprintf(full, sizeof full, "full=1%s", knobs);
		gpu_knobs(full);
		for (size_t i = 0, at = 0; i < sizeof sizes / sizeof *sizes; at += sizes[i++] + 5) {
			wr[0] = record(&t.f, DG_WRITE, sizes[i], at + 3, at);
			wr[0].local = id_of(own);
			memset(t.remote_bytes + at, 0xee, sizes[i] + 5);
			CHECK_EQ(dg_queue_post(q, wr, 1), 0);
			all_done(q, 1);
			check_pattern(t.remote_bytes + at, at + 3, sizes[i], 3);
			CHECK_EQ(t.remote_bytes[at + sizes[i]], 0xee);
		}
		memset(t.remote_bytes, 0xee, MANY * STEP);
		fill(t.f.local_bytes, LOCAL, 7);
		for (size_t i = 0; i < MANY; i++) {
			wr[i] = record(&t.f, DG_WRITE, 61 + i % 8, i * STEP + i % 3, i * STEP);
			if (i % 2)
				wr[i].local = id_of(own);
		}
		CHECK_EQ(dg_queue_post(q, wr, MANY), 0);
		all_done(q, MANY);
		for (size_t i = 0; i < MANY; i++) {
			check_pattern(t.remote_bytes + i * STEP, i * STEP + i % 3, 61 + i % 8,
				      i % 2 ? 3 : 7);
			CHECK_EQ(t.remote_bytes[i * STEP + 61 + i % 8], 0xee);
		}
		dg_queue_free(q);
		CHECK_EQ(gpu_calls("cuLaunchKernel") + gpu_calls("cuModuleLoadData"), 0);
		CHECK_EQ(gpu_calls("cuMemcpyDtoDAsync"), 0);
		CHECK_EQ(gpu_calls("cuMemFreeHost"), 0);
		gpu_knobs("");
	}
}

/* With what is between them. */
TEST(beside_a_kernel_near_sources_are_read_together)
{
	enum { MANY = 40, SMALL = 8 };
	dg_wr wr[MANY];
	dg_region *own;
	dg_queue *q;
	FIXTURE(two, t, two_open, BLOCK, RW, "");
	const dg_memory m = gpu_block(BLOCK);
	CHECK_EQ(dg_region_register(t.f.dev, &m, RW, &own), 0);
	CHECK_EQ(dg_queue_open_for_kernels(t.f.dev, DEPTH, t.f.dev, &q), 0);
	fill(m.addr, BLOCK, 3);
	for (uint32_t i = 0; i < MANY; i++) {
		wr[i] = record(&t.f, DG_WRITE, SMALL, i * 37 % MANY * SMALL * 2, i * 1000);
		wr[i].local = id_of(own);
	}
	memset(t.remote_bytes, 0xee, MANY * 1000);
	const int before = gpu_calls("cuMemcpyDtoHAsync"), batches = gpu_calls("cuMemcpyBatchAsync");
	CHECK_EQ(dg_queue_post(q, wr, MANY), 0);
	all_done(q, MANY);
	CHECK_EQ(gpu_calls("cuMemcpyDtoHAsync") - before, 1);
	CHECK_EQ(gpu_calls("cuMemcpyBatchAsync") - batches, 1);
	for (uint32_t i = 0; i < MANY; i++) {
		check_pattern(t.remote_bytes + i * 1000, i * 37 % MANY * SMALL * 2, SMALL, 3);
		CHECK_EQ(t.remote_bytes[i * 1000 + SMALL], 0xee);
	}
	dg_queue_free(q);
}

TEST(beside_a_kernel_copies_on_the_gpu_pass_the_host)
{
	beside_a_kernel_bytes_pass_the_host("");
}

TEST(beside_a_kernel_refused_batches_pass_one_by_one)
{
	beside_a_kernel_bytes_pass_the_host(",cuMemcpyBatchAsync=1");
}

TEST(words_in_ipc_memory_are_write_values_behind_one_copy)
{
	struct token token;
	struct two t = {.host = start(lend_ipc)};
	hear(t.host.fd, &token, sizeof(token));
	provider = "cuda";
	gpu_knobs("");
	import_fix(&t.f, &token, LOCAL, DEPTH);
	t.remote_bytes = (uint8_t *)region_entry_at(REGION_INDEX(t.f.r))->base;
	for (int i = 0; i < 10; i++) {
		write_once(&t, 8, 16, 64);
		write_once(&t, 32, 16, 256);
	}
	CHECK_EQ(gpu_calls("cuStreamBatchMemOp"), 20);
	CHECK(gpu_calls("cuMemcpy2DAsync") >= 1); /* and after each write that took long */
	CHECK_EQ(gpu_calls("cuMemcpyBatchAsync"), 0);
	write_once(&t, 20, 16, 64); /* led: on the compute engine's channel, for all that is known */
	write_once(&t, 8, 16, 64);
	write_once(&t, 8, 16, 64);
	CHECK_EQ(gpu_calls("cuStreamBatchMemOp"), 22);
	CHECK_EQ(gpu_calls("cuMemcpyHtoDAsync"), 0);
	two_close(&t);
}

/* A queue of a proxy on a device with a copy service, and this side's own block. */
struct service {
	struct two t;
	dg_region *own;
	uint8_t *bytes;
	dg_queue *q;
};

static void service_open(struct service *s, uint32_t access, const char *knobs)
{
	serves = 1;
	two_open(&s->t, BLOCK, access, knobs);
	serves = 0;
	const dg_memory m = gpu_block(BLOCK);
	CHECK_EQ(dg_region_register(s->t.f.dev, &m, RW, &s->own), 0);
	CHECK_EQ(dg_queue_open_for_kernels(s->t.f.dev, DEPTH, s->t.f.dev, &s->q), 0);
	s->bytes = m.addr;
	fill(s->bytes, BLOCK, 3);
}

static void service_close(struct service *s)
{
	dg_queue_free(s->q);
	two_close(&s->t);
}

static dg_wr from_own(struct service *s, size_t n, size_t at, size_t offset)
{
	dg_wr wr = record(&s->t.f, DG_WRITE, n, at, offset);
	wr.local = id_of(s->own);
	return wr;
}

static int copies_of_the_engine(void)
{
	return gpu_calls("cuMemcpyDtoHAsync") + gpu_calls("cuMemcpy2DAsync") +
	       gpu_calls("cuMemcpy3DAsync") + gpu_calls("cuMemcpyBatchAsync");
}

/* Copies one word again and again until the service does it. */
static void wait_for_service(struct service *s)
{
	const uint64_t end = now_ns() + 20 * SECOND;
	int before;
	do {
		const dg_wr wr = from_own(s, 8, 0, 0);
		before = copies_of_the_engine();
		CHECK_EQ(dg_queue_post(s->q, &wr, 1), 0);
		all_done(s->q, 1);
		CHECK(now_ns() < end);
	} while (copies_of_the_engine() != before);
}

/* Posts n copies of whole words, from both kinds of memory, as `posts` posts of as many each, and
 * checks the bytes. Each target is written twice, the second time behind a fence. */
static void serve_many(struct service *s, uint32_t n, uint32_t posts, unsigned seed)
{
	dg_wr wr[256];
	fill(s->t.f.local_bytes, LOCAL, seed);
	memset(s->t.remote_bytes, 0xee, n * 512);
	for (uint32_t i = 0; i < n; i++) {
		const size_t words = 8 * (1 + (i + seed) % 63);
		wr[2 * i] = from_own(s, words, i * 256, i * 512);
		wr[2 * i + 1] = record(&s->t.f, DG_WRITE, words, i * 256, i * 512);
		wr[2 * i + 1].flags = DG_FENCE;
	}
	for (uint32_t i = 0; i < posts; i++)
		CHECK_EQ(dg_queue_post(s->q, wr + i * (2 * n / posts), 2 * n / posts), 0);
	all_done(s->q, 2 * n);
	for (uint32_t i = 0; i < n; i++) {
		const size_t words = 8 * (1 + (i + seed) % 63);
		check_pattern(s->t.remote_bytes + i * 512, i * 256, words, seed);
		CHECK_EQ(s->t.remote_bytes[i * 512 + words], 0xee);
	}
}

TEST(a_copy_service_copies_whole_words)
{
	FIXTURE(service, s, service_open, RW, "");
	for (unsigned turn = 0; turn < 8; turn++) {
		wait_for_service(&s);
		serve_many(&s, 128, 1 << turn % 6, turn + 7);
	}
	CHECK_EQ(gpu_calls("cuMemcpyDtoDAsync"), 0);
}

TEST(what_is_not_for_the_service_is_for_the_engine)
{
	static const size_t sizes[] = { 1, 7, 12, 100, 16392, 70000 };
	FIXTURE(service, s, service_open, RW, "");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		wait_for_service(&s);
		const dg_wr wr = from_own(&s, sizes[i], 3, 64);
		const int before = copies_of_the_engine();
		CHECK_EQ(dg_queue_post(s.q, &wr, 1), 0);
		all_done(s.q, 1);
		check_pattern(s.t.remote_bytes + 64, 3, sizes[i], 3);
		CHECK(copies_of_the_engine() > before);
	}
}

/* The launch waits for the GPU, and nothing waits for the launch. */
TEST(without_room_for_the_service_the_engine_copies)
{
	FIXTURE(service, s, service_open, RW, "full=1");
	for (unsigned turn = 0; turn < 5; turn++)
		serve_many(&s, 128, 4, turn);
	CHECK_EQ(gpu_calls("cuLaunchKernel"), 1);
	gpu_knobs("");
	wait_for_service(&s);
}

/* The kernel ends every 20 ms, whatever it has, and after a pause; the queue may be closed at any time. */
TEST(what_the_service_leaves_is_taken_back)
{
	const uint64_t end = now_ns() + 20 * SECOND;
	FIXTURE(service, s, service_open, RW, "");
	for (unsigned turn = 0; turn < 20 || gpu_calls("cuLaunchKernel") < 6; turn++) {
		CHECK(now_ns() < end);
		serve_many(&s, 128, 8, turn);
		if (turn % 16 == 0)
			nanosleep(&(struct timespec){ 0, 400000 + turn % 7 * 30000 }, NULL);
	}
	for (int i = 0; i < 20; i++) {
		const dg_wr wr = from_own(&s, 4096, 0, 0);
		CHECK_EQ(dg_queue_post(s.q, &wr, 1), 0);
		dg_queue_free(s.q);
		CHECK_EQ(dg_queue_open_for_kernels(s.t.f.dev, DEPTH, s.t.f.dev, &s.q), 0);
	}
}

TEST(a_word_behind_a_fence_goes_with_the_bytes_before_it)
{
	FIXTURE(service, s, service_open, RW, "");
	for (uint64_t i = 1; i < 40; i++) {
		dg_wr wr[2] = { from_own(&s, 256, 0, 4096), record(&s.t.f, DG_WRITE, 8, 64, 0) };
		wr[0].flags = DG_CHAIN;
		wr[1].flags = DG_FENCE;
		memcpy(s.t.f.local_bytes + 64, &i, sizeof(i));
		memset(s.t.remote_bytes + 4096, 0xee, 256);
		wait_for_service(&s); /* writes the word, too */
		CHECK_EQ(dg_queue_post(s.q, wr, 2), 0);
		dg_wc wc;
		for (int got = 0; !got; got = dg_queue_poll(s.q, &wc, 1, 0))
			if (*(_Atomic uint64_t *)(void *)s.t.remote_bytes == i)
				check_pattern(s.t.remote_bytes + 4096, 0, 256, 3);
		CHECK_EQ(wc.status, DG_OK);
		CHECK_EQ(*(uint64_t *)(void *)s.t.remote_bytes, i);
	}
}

TEST(two_queues_share_a_service)
{
	dg_queue *other;
	FIXTURE(service, s, service_open, RW, "");
	CHECK_EQ(dg_queue_open_for_kernels(s.t.f.dev, DEPTH, s.t.f.dev, &other), 0);
	for (unsigned turn = 0; turn < 60; turn++) {
		const dg_wr first = from_own(&s, 4096, 0, 0), second = from_own(&s, 256, 4096, 4096);
		memset(s.t.remote_bytes, 0xee, 8192);
		CHECK_EQ(dg_queue_post(s.q, &first, 1), 0);
		CHECK_EQ(dg_queue_post(other, &second, 1), 0);
		if (turn % 10 == 0) /* the kernel may end meanwhile */
			nanosleep(&(struct timespec){ 0, 600000 }, NULL);
		all_done(turn % 2 ? s.q : other, 1);
		all_done(turn % 2 ? other : s.q, 1);
		check_pattern(s.t.remote_bytes, 0, 4096 + 256, 3);
		CHECK_EQ(s.t.remote_bytes[4096 + 256], 0xee);
	}
	dg_queue_free(other);
}

/* A kernel that writes it would lose the context. */
TEST(the_service_does_not_write_a_read_only_import)
{
	dg_wc wc;
	FIXTURE(service, s, service_open, DG_ACCESS_READ, "");
	region_entry_at(REGION_INDEX(s.t.f.r))->access = RW;
	for (int i = 0; i < 20; i++) {
		const dg_wr wr = from_own(&s, 64, 0, 0);
		CHECK_EQ(dg_queue_post(s.q, &wr, 1), 0);
		while (dg_queue_poll(s.q, &wc, 1, 0) == 0)
			;
		CHECK_EQ(wc.status, DG_REMOTE_ACCESS_ERROR);
		nanosleep(&(struct timespec){ 0, 10000 }, NULL);
	}
}

TEST(a_driver_that_does_not_launch_has_no_service)
{
	FIXTURE(service, s, service_open, RW, "cuLaunchKernel=1");
	for (unsigned turn = 0; turn < 5; turn++)
		serve_many(&s, 128, 4, turn);
	gpu_knobs("");
}

TEST(a_driver_without_modules_has_no_kernel)
{
	without_the_kernel_they_are_copies("missing=cuModuleLoadData");
}

TEST(a_driver_without_launches_has_no_kernel)
{
	without_the_kernel_they_are_copies("missing=cuLaunchKernel+cuModuleUnload");
}

TEST(a_gpu_that_does_not_use_host_addresses_copies_one_by_one)
{
	without_the_kernel_they_are_copies("attr91=0");
}

TEST(a_driver_without_batches_copies_one_by_one)
{
	without_the_kernel_they_are_copies("missing=cuMemcpyBatchAsync+cuModuleLoadData");
}

TEST(a_batch_that_the_driver_refuses_is_copied_one_by_one)
{
	without_the_kernel_they_are_copies("cuMemcpyBatchAsync=1,missing=cuModuleLoadData");
}

/* The GPU's page tables stop an importer that violates the protocol. */
TEST(a_read_only_import_is_read_only_on_the_gpu)
{
	static const size_t sizes[] = { 1, 8, 100, 4096, 40000 };
	struct dg_region_entry *entry;
	dg_wr wr;
	dg_wc wc;

	FIXTURE(two, t, two_open, BLOCK, DG_ACCESS_READ, "");
	entry = region_entry_at(REGION_INDEX(t.f.r));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint8_t before = t.remote_bytes[0];

		wr = record(&t.f, DG_WRITE, sizes[i], 0, 0);
		CHECK_EQ(dg_transfer_post_wr(t.f.q, &wr, 1, &wc), -EACCES);
		entry->access = RW;
		memset(t.f.local_bytes, before + 1, LOCAL);
		CHECK_EQ(done(&t.f.tq, &wr).status, DG_REMOTE_ACCESS_ERROR);
		CHECK_EQ(t.remote_bytes[0], before);
		entry->access = DG_ACCESS_READ;
		wr.op = DG_READ; /* the context still works */
		CHECK_EQ(done(&t.f.tq, &wr).status, DG_OK);
		CHECK_EQ(t.f.local_bytes[0], before);
	}
}

TEST(copies_whose_flag_is_refused_are_complete_all_the_same)
{
	dg_wr wr;

	FIXTURE(two, t, two_open, BLOCK, RW, "");
	for (int i = 0; i < 20; i++) {
		gpu_knobs(i % 2 ? "copy_us=1000" : "cuStreamWriteValue32=1,copy_us=1000");
		fill(t.f.local_bytes, LOCAL, (unsigned)i);
		wr = record(&t.f, DG_WRITE, 5000, 0, 0);
		CHECK_EQ(done(&t.f.tq, &wr).status, DG_OK);
		check_pattern(t.remote_bytes, 0, 5000, (unsigned)i);
	}
	gpu_knobs("");
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd p = { fd, POLLIN, 0 };

	return poll(&p, 1, timeout_ms) == 1;
}

TEST(a_sleeper_is_woken_by_the_driver)
{
	dg_wr wr;
	dg_wc wc[4];

	FIXTURE(two, t, two_open, BLOCK, RW, "");
	wr = record(&t.f, DG_WRITE, 5000, 0, 0);
	for (int i = 0; i < 50; i++) {
		gpu_knobs(i % 2 ? "copy_us=1000" : "");
		CHECK_EQ(dg_queue_post(t.f.q, &wr, 1), 0);
		if (dg_queue_arm(t.f.q) == 1 && dg_queue_arm(t.f.q) == 1) { /* armed twice, requested once */
			CHECK(gpu_calls("cuLaunchHostFunc") <= 1);
			CHECK(readable(dg_queue_fileno(t.f.q), 20000));
		}
		CHECK_EQ(dg_queue_poll(t.f.q, wc, 4, 20 * SECOND), 1);
		CHECK_EQ(wc[0].status, DG_OK);
	}
}

TEST(a_sleeper_is_woken_at_the_first_of_many)
{
	dg_wr wr;
	dg_wc wc[8];
	int got = 0;

	FIXTURE(two, t, two_open, BLOCK, RW, "");
	wr = record(&t.f, DG_WRITE, 5000, 0, 0);
	gpu_knobs("copy_us=20000");
	for (int i = 0; i < 8; i++)
		CHECK_EQ(dg_queue_post(t.f.q, &wr, 1), 0);
	for (int woken = 0; got < 8; woken++) {
		if (dg_queue_arm(t.f.q) == 1)
			CHECK(readable(dg_queue_fileno(t.f.q), 20000));
		got += dg_queue_poll(t.f.q, wc, 8, 0);
		CHECK(woken || got < 8); /* not only after all were complete */
	}
}

/* Only the share server's thread polls the queue, and finds that the context is lost. */
TEST(a_sleeper_is_woken_when_the_context_is_lost)
{
	dg_wr wr;
	dg_wc wc[1];

	FIXTURE(two, t, two_open, BLOCK, RW, "");
	wr = record(&t.f, DG_WRITE, 5000, 0, 0);
	gpu_knobs("lost@0,copy_us=10000");
	CHECK_EQ(dg_queue_post(t.f.q, &wr, 1), 0);
	if (dg_queue_arm(t.f.q) == 1)
		CHECK(readable(dg_queue_fileno(t.f.q), 20000));
	CHECK_EQ(dg_queue_poll(t.f.q, wc, 1, 20 * SECOND), 1);
	CHECK_EQ(wc[0].status, DG_IO_FAILED);
}

/* One thread with its own queue over shared regions. */
struct worker {
	struct two *t;
	uint32_t number;
};

enum { WORKERS = 4, OWN = 65536 };

static void *work(void *arg)
{
	struct worker *w = arg;
	struct fix *f = &w->t->f;
	struct test_queue tq;
	dg_wr wr[64];
	dg_wc wc[64];

	CHECK_EQ(test_queue_open(&tq, f->dev, 64, DG_PATH_WORKER, 0, 60 * SECOND), 0);
	for (uint32_t turn = 0; turn < 60; turn++) {
		/* A single write is split in two halves. For other sizes, each thread's queue
		 * writes to its own part of the scratch granule. */
		uint32_t n = turn % 3 ? 64 : 1, size = n == 1 ? 16 * (turn + 1) : turn % 5 ? 8 + turn : 500;

		for (uint32_t i = 0; i < n; i++) {
			uint64_t at = (uint64_t)w->number * OWN + 1024 * i;

			wr[i] = record(f, DG_WRITE, size, at, at);
		}
		if (turn % 2) {
			CHECK_EQ(dg_queue_run(tq.q, wr, n, wc, 30 * SECOND), n);
		} else {
			CHECK_EQ(dg_queue_post(tq.q, wr, n), 0);
			for (uint32_t got = 0; got < n;)
				got += (uint32_t)dg_queue_poll(tq.q, wc + got, n - got, 30 * SECOND);
		}
		for (uint32_t i = 0; i < n; i++) {
			CHECK_EQ(wc[i].status, DG_OK);
			check_pattern(w->t->remote_bytes + wr[i].remote_offset, wr[i].local_offset, size, 9);
		}
	}
	CHECK_EQ(dg_queue_close(tq.q), 0);
	dg_queue_free(tq.q);
	return NULL;
}

TEST(each_thread_has_a_queue_and_others_look_at_it)
{
	struct worker workers[WORKERS];
	pthread_t threads[WORKERS];

	FIXTURE(two, t, two_open, BLOCK, RW, "");
	fill(t.f.local_bytes, LOCAL, 9);
	for (uint32_t i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){ &t, i };
		CHECK_EQ(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < 300; i++) {
		dg_region *r = registered(t.f.dev, t.f.local_bytes + 5, 100, RW); /* part of pinned memory */

		dg_devices_poll();
		CHECK_EQ(dg_region_close(r, PATIENCE), 0);
	}
	for (uint32_t i = 0; i < WORKERS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

int main(int argc, char **argv)
{
	/* Not through dgkit, which would now look up the available functions. */
	if (!dlopen("libcuda.so.1", RTLD_NOW)) {
		printf("skip: %s\n", dlerror());
		return CHECK_SKIPPED;
	}
	return run_with_own_folder(argc, argv);
}
