/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes are moved: sizes, offsets, batches, chains, rows. For each provider and path. */
#include "fixture.h"

#define BIG ((1 << 20) + 3)
#define ROOM (BIG + 64)

/* One transfer of n bytes; the bytes next to them must not change. */
static void copy_once(struct fix *f, uint32_t op, size_t n, size_t local_offset, size_t remote_offset)
{
	uint8_t *from = op == DG_WRITE ? f->local_bytes : f->remote_bytes, *to = op == DG_WRITE ? f->remote_bytes : f->local_bytes;
	size_t at = op == DG_WRITE ? remote_offset : local_offset;
	size_t source = op == DG_WRITE ? local_offset : remote_offset;
	dg_wr wr = record(f, op, n, local_offset, remote_offset);
	dg_wc wc;

	fill(from, source + n, (unsigned)n);
	memset(to + at, 0xee, n + 1);
	if (at)
		to[at - 1] = 0xdd;
	wc = done(&f->tq, &wr);
	CHECK_EQ(wc.status, DG_OK);
	CHECK_EQ(wc.size, n);
	CHECK_EQ(wc.op, op);
	CHECK(wc.submit_ns && wc.submit_ns <= wc.post_ns && wc.post_ns <= wc.complete_ns);
	check_pattern(to + at, source, n, (unsigned)n);
	CHECK_EQ(to[at + n], 0xee);
	CHECK(!at || to[at - 1] == 0xdd);
}

static void small_sizes(struct fix *f, uint32_t path)
{
	(void)path;
	for (size_t n = 1; n <= 200; n++)
		for (uint32_t op = DG_READ; op <= DG_WRITE; op++) {
			copy_once(f, op, n, 0, 0);
			copy_once(f, op, n, n % 7, 64 - n % 9);
		}
}

TEST(every_small_size_arrives_whole_and_touches_nothing_beside)
{
	each_path(4096, 4, small_sizes);
}

static void large_sizes(struct fix *f, uint32_t path)
{
	static const size_t sizes[] = { 1023, 4095, 4096, 4097, 16384, 16385, 65537, BIG };

	(void)path;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (uint32_t op = DG_READ; op <= DG_WRITE; op++)
			copy_once(f, op, sizes[i], i, 5 * i % 11);
}

TEST(sizes_around_pages_and_over_a_mebibyte_arrive_whole)
{
	each_path(ROOM, 4, large_sizes);
}

static void says_path(struct fix *f, uint32_t path)
{
	dg_wr small = record(f, DG_WRITE, 64, 0, 0), large = record(f, DG_WRITE, 1 << 20, 0, 0);
	dg_caps caps;
	uint32_t got;

	CHECK_EQ(dg_device_caps(f->dev, &caps), 0);
	CHECK(!strcmp(caps.provider, provider));
	got = done(&f->tq, &small).path;
	if (path != DG_PATH_AUTO)
		CHECK_EQ(got, path);
	else
		CHECK(got == DG_PATH_INLINE || got == DG_PATH_WORKER);
	got = done(&f->tq, &large).path;
	CHECK_EQ(got, path == DG_PATH_INLINE ? DG_PATH_INLINE : DG_PATH_WORKER);
}

TEST(the_completion_says_the_path_that_was_taken)
{
	each_path(1 << 20, 4, says_path);
}

static void batch_in_order(struct fix *f, uint32_t path)
{
	enum { N = 40 };
	dg_wr wr[N];
	dg_wc wc[N];
	uint32_t got = 0;

	(void)path;
	for (uint32_t i = 0; i < N; i++) {
		wr[i] = record(f, DG_WRITE, 100, 100 * i, 100 * (N - 1 - i));
		wr[i].user = 1000 + i;
	}
	fill(f->local_bytes, 100 * N, 3);
	CHECK_EQ(dg_queue_post(f->q, wr, N), 0);
	while (got < N) {
		int n = dg_queue_poll(f->q, wc + got, N - got, PATIENCE);

		CHECK(n > 0);
		got += n;
	}
	for (uint32_t i = 0; i < N; i++) {
		CHECK_EQ(wc[i].user, 1000 + i);
		CHECK_EQ(wc[i].status, DG_OK);
		check_pattern(f->remote_bytes + 100 * (N - 1 - i), 100 * i, 100, 3);
	}
	CHECK_EQ(dg_queue_poll(f->q, wc, N, 0), 0);
	CHECK_EQ(dg_queue_pending(f->q), 0);
}

TEST(a_batch_completes_in_order_with_each_users_word)
{
	each_path(4096, 64, batch_in_order);
}

/* A batch that alternates between two pairs of regions, with an invalid record at `bad`: no byte
 * may be moved. */
static void refuse_batch(struct fix *f, uint32_t bad)
{
	enum { N = 24 };
	uint8_t *more = pages(4096);
	dg_region *other = registered(f->dev, more, 4096, RW);
	dg_wr wr[N];

	for (uint32_t i = 0; i < N; i++) {
		wr[i] = record(f, DG_WRITE, 64, 64 * i, 64 * i);
		if (i / 3 % 2)
			wr[i].local = id_of(other);
	}
	wr[bad].remote_offset = 4096 - 63;
	fill(f->local_bytes, 4096, 1);
	memset(f->remote_bytes, 0, 4096);
	CHECK_EQ(dg_queue_post(f->q, wr, N), -ERANGE);
	CHECK_SAYS(dg_last_error(), "record");
	CHECK_EQ(dg_queue_pending(f->q), 0);
	/* The gates were left: nothing is in flight, so closing does not have to wait. */
	CHECK_EQ(dg_region_close(other, 0), 0);
	for (size_t i = 0; i < 4096; i++)
		CHECK_EQ(f->remote_bytes[i], 0);
	CHECK_EQ(munmap(more, 4096), 0);
}

static void refuse_batches(struct fix *f, uint32_t path)
{
	dg_region *remote = f->remote;

	(void)path;
	refuse_batch(f, 0);
	refuse_batch(f, 1);
	refuse_batch(f, 3);
	refuse_batch(f, 7);
	refuse_batch(f, 23);
	CHECK_EQ(dg_region_close(remote, 0), 0);
	CHECK_EQ(dg_region_close(f->local, 0), 0);
	CHECK_EQ(dg_region_close(f->source, 0), 0);
}

TEST(a_batch_with_one_bad_record_moves_nothing)
{
	each_path(4096, 32, refuse_batches);
}

static void chain_parts(struct fix *f, uint32_t path)
{
	enum { PARTS = 5, LEN = 33 };
	dg_wr wr[PARTS + 1];
	dg_wc wc[4];
	struct transfer t;

	(void)path;
	fill(f->local_bytes, 4096, 9);
	for (uint32_t i = 0; i < PARTS; i++) {
		wr[i] = record(f, DG_WRITE, LEN, 400 * i, LEN * i);
		wr[i].flags = i + 1 < PARTS ? DG_CHAIN : 0;
		wr[i].user = i;
	}
	wr[PARTS] = record(f, DG_WRITE, 8, 0, 2000);
	wr[PARTS].user = 77;
	CHECK_EQ(dg_queue_run(f->q, wr, PARTS + 1, wc, PATIENCE), 2);
	CHECK_EQ(wc[0].user, PARTS - 1);
	CHECK_EQ(wc[0].size, PARTS * LEN);
	CHECK_EQ(wc[1].user, 77);
	CHECK_EQ(wc[1].size, 8);
	for (uint32_t i = 0; i < PARTS; i++)
		check_pattern(f->remote_bytes + LEN * i, 400 * i, LEN, 9);
	memset(f->remote_bytes, 0, 4096);
	t = begin_wr(&f->tq, wr, PARTS);
	CHECK(t.ticket >= 0);
	CHECK_EQ(take(&t, PATIENCE), 0);
	CHECK_EQ(t.wc.size, PARTS * LEN);
	for (uint32_t i = 0; i < PARTS; i++)
		check_pattern(f->remote_bytes + LEN * i, 400 * i, LEN, 9);
	CHECK_EQ(dg_queue_pending(f->q), 0);
}

TEST(a_chain_is_one_operation_with_one_completion)
{
	each_path(4096, 8, chain_parts);
}

static void open_chains(struct fix *f, uint32_t path)
{
	dg_wr wr[2] = { record(f, DG_WRITE, 8, 0, 0), record(f, DG_WRITE, 8, 8, 8) };
	dg_wc wc;

	(void)path;
	wr[0].flags = wr[1].flags = DG_CHAIN;
	CHECK_EQ(dg_queue_post(f->q, wr, 2), -EINVAL);
	CHECK_EQ(dg_queue_post(f->q, wr, 1), -EINVAL);
	CHECK_EQ(dg_transfer_post_wr(f->q, wr, 2, &wc), -EINVAL);
	wr[0].flags = wr[1].flags = 0;
	CHECK_EQ(dg_transfer_post_wr(f->q, wr, 2, &wc), -EINVAL);
	CHECK_EQ(dg_transfer_post_wr(f->q, wr, 0, &wc), -EINVAL);
	CHECK_EQ(dg_queue_pending(f->q), 0);
	CHECK_EQ(dg_region_close(f->remote, 0), 0);
	CHECK_EQ(dg_region_close(f->local, 0), 0);
}

TEST(a_chain_that_does_not_end_in_its_batch_is_refused)
{
	each_path(4096, 8, open_chains);
}

static void copy_rows(struct fix *f, uint32_t op, uint32_t size, uint32_t rows, uint32_t ls, uint32_t rs)
{
	uint8_t *from = op == DG_WRITE ? f->local_bytes : f->remote_bytes, *to = op == DG_WRITE ? f->remote_bytes : f->local_bytes;
	uint32_t from_stride = op == DG_WRITE ? ls : rs, to_stride = op == DG_WRITE ? rs : ls;
	dg_wr wr = record(f, op, size, 3, 3);
	struct transfer t;

	wr.rows = rows;
	wr.local_stride = ls;
	wr.remote_stride = rs;
	fill(from, f->size, size + rows);
	memset(to, 0xee, f->size);
	t = begin_wr(&f->tq, &wr, 1);
	CHECK(t.ticket >= 0);
	CHECK_EQ(take(&t, 30 * SECOND), 0);
	CHECK_EQ(t.wc.status, DG_OK);
	CHECK_EQ(t.wc.size, (uint64_t)size * rows);
	for (uint32_t i = 0; i < rows; i++) {
		check_pattern(to + 3 + (size_t)i * to_stride, 3 + (size_t)i * from_stride, size, size + rows);
		for (uint32_t k = size; k < to_stride && i + 1 < rows; k++)
			CHECK_EQ(to[3 + (size_t)i * to_stride + k], 0xee);
	}
}

static void rows(struct fix *f, uint32_t path)
{
	static const uint32_t sizes[] = { 1, 3, 4, 7, 8, 16, 31, 32, 33, 64, 65, 200 };

	(void)path;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (uint32_t op = DG_READ; op <= DG_WRITE; op++) {
			uint32_t n = sizes[i];

			copy_rows(f, op, n, 2, n, n);
			copy_rows(f, op, n, 100, n + 5, n);
			copy_rows(f, op, n, 100, n, n + 11);
			/* The source may repeat one row. */
			copy_rows(f, op, n, 50, op == DG_WRITE ? 0 : n + 1, op == DG_WRITE ? n + 1 : 0);
		}
	copy_rows(f, DG_WRITE, 300000, 3, 300001, 300007);
	copy_rows(f, DG_READ, 8, 40000, 24, 8);
}

TEST(rows_land_where_their_strides_say)
{
	each_path(ROOM, 4, rows);
}

static void bad_rows(struct fix *f, uint32_t path)
{
	dg_wr wr = record(f, DG_WRITE, 16, 0, 0);

	(void)path;
	wr.rows = 4;
	wr.local_stride = 16;
	wr.remote_stride = 15; /* written rows overlap */
	CHECK_EQ(dg_queue_post(f->q, &wr, 1), -EINVAL);
	CHECK_SAYS(dg_last_error(), "overlap");
	wr.remote_stride = (4096 - 16) / 3 + 1; /* only the last row exceeds the region, by less than its size */
	CHECK_EQ(dg_queue_post(f->q, &wr, 1), -ERANGE);
	wr.remote_stride = 1ull << 63; /* the last row's address wraps around */
	CHECK_EQ(dg_queue_post(f->q, &wr, 1), -ERANGE);
	wr.remote_stride = 16;
	wr.local_stride = UINT64_MAX / 3 + 1;
	CHECK_EQ(dg_queue_post(f->q, &wr, 1), -ERANGE);
	wr.local_stride = 0;
	wr.rows = UINT32_MAX;
	wr.size = 1ull << 40;
	wr.remote_stride = 1ull << 40;
	CHECK_EQ(dg_queue_post(f->q, &wr, 1), -ERANGE);
	wr.rows = 1; /* the strides of a single row are ignored */
	wr.size = 16;
	wr.remote_stride = 1;
	CHECK_EQ(dg_queue_post(f->q, &wr, 1), 0);
}

TEST(rows_that_overlap_or_leave_the_region_are_refused)
{
	each_path(4096, 4, bad_rows);
}

TEST_MAIN(run_over_providers)
