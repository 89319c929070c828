// SPDX-License-Identifier: Apache-2.0
/* Copies within one process: every byte arrives, and no other byte changes. */
#include "doca_check.h"

#define SIZE ((size_t)4 << 20)

/* Copies n bytes and checks them and the bytes around them. */
static void check_copy(struct rig *r, size_t from, size_t to, size_t n)
{
	size_t before = to < 64 ? to : 64, after = r->size - to - n < 64 ? r->size - to - n : 64;

	memset(r->to + to - before, 0xee, before);
	memset(r->to + to, 0, n);
	memset(r->to + to + n, 0xee, after);
	OK(copied_at(r, from, to, n));
	CHECK_EQ(memcmp(r->from + from, r->to + to, n), 0);
	for (size_t i = 0; i < before; i++)
		CHECK_EQ(r->to[to - 1 - i], 0xee);
	for (size_t i = 0; i < after; i++)
		CHECK_EQ(r->to[to + n + i], 0xee);
}

TEST(copies_of_every_size_arrive)
{
	FIXTURE(rig, r, rig_open, SIZE, 4);
	fill(r.from, SIZE, 1);
	for (size_t n = 1; n <= 1100; n++)
		check_copy(&r, n % 61, 64 + n % 67, n);
	for (size_t n = 2048; n <= MEMCPY_LIMIT; n *= 2)
		for (size_t k = 0; k < 3; k++)
			check_copy(&r, k * 3, 64 + k * 5, n - 1 + (n < MEMCPY_LIMIT ? k : k / 2));
}

TEST(the_limits_are_those_that_are_told)
{
	uint64_t size;
	uint32_t n;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	OK(doca_dma_cap_task_memcpy_is_supported(doca_dev_as_devinfo(r.dev)));
	OK(doca_dma_cap_task_memcpy_get_max_buf_size(doca_dev_as_devinfo(r.dev), &size));
	OK(doca_dma_cap_task_memcpy_get_max_buf_list_len(doca_dev_as_devinfo(r.dev), &n));
	CHECK_EQ(size, MEMCPY_LIMIT);
	CHECK_EQ(n, 64);
	fill(r.from, SIZE, 1);
	check_copy(&r, 0, 100, size);
}

TEST(what_is_written_follows_the_data_that_is_there)
{
	void *data;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	fill(r.from, 400, 1);
	memset(r.to, 0xee, 1000);
	struct doca_buf *src = source(&r, 0, 400), *dst = target(&r, 0, 1000);
	OK(doca_buf_set_data_len(src, 100));
	OK(doca_buf_set_data(dst, r.to + 10, 5));
	OK(copied(&r, src, dst));
	OK(doca_buf_get_data(dst, &data));
	CHECK(data == r.to + 10);
	CHECK_EQ(data_len(dst), 105);
	CHECK_EQ(r.to[14], 0xee);
	CHECK_EQ(memcmp(r.from, r.to + 15, 100), 0);
	CHECK_EQ(r.to[115], 0xee);
	OK(copied(&r, src, dst));
	CHECK_EQ(data_len(dst), 205);
	CHECK_EQ(memcmp(r.from, r.to + 115, 100), 0);
	OK(doca_buf_reset_data_len(dst));
	OK(doca_buf_set_data(src, r.from + 200, 100));
	OK(copied(&r, src, dst));
	CHECK_EQ(data_len(dst), 100);
	CHECK_EQ(memcmp(r.from + 200, r.to + 10, 100), 0);
	drop(src, dst);
}

/* ---- lists ---- */

/* A list over the memory of one side, its buffers `gap` bytes apart. */
static struct doca_buf *list_of(struct rig *r, bool src, const size_t *sizes, unsigned n, size_t gap)
{
	struct doca_buf *first = NULL;
	size_t at = 0;

	for (unsigned i = 0; i < n; i++) {
		struct doca_buf *b = src ? source(r, at, sizes[i]) : target(r, at, sizes[i]);

		if (first)
			OK(doca_buf_chain_list(first, b));
		else
			first = b;
		at += sizes[i] + gap;
	}
	return first;
}

/* Checks that the bytes of one list arrived in the other, as one stream. */
static void check_lists(struct rig *r, const size_t *from, unsigned n_from, size_t from_gap,
			const size_t *to, unsigned n_to, size_t to_gap)
{
	struct doca_buf *src = list_of(r, true, from, n_from, from_gap);
	struct doca_buf *dst = list_of(r, false, to, n_to, to_gap), *b = dst;
	size_t total = 0, s = 0, d = 0, in_s = 0, in_d = 0, at_s = 0, at_d = 0;

	for (unsigned i = 0; i < n_from; i++)
		total += from[i];
	OK(copied(r, src, dst));
	for (size_t i = 0; i < total; i++) {
		while (in_s == from[s])
			at_s += from[s++] + from_gap, in_s = 0;
		while (in_d == to[d])
			at_d += to[d++] + to_gap, in_d = 0;
		if (r->from[at_s + in_s] != r->to[at_d + in_d])
			check_failed(__FILE__, __LINE__, "byte %zu of %zu is wrong", i, total);
		in_s++;
		in_d++;
	}
	for (unsigned i = 0; i < n_to; i++) {
		size_t want = to[i] < total ? to[i] : total;

		CHECK_EQ(data_len(b), want);
		total -= want;
		OK(doca_buf_get_next_in_list(b, &b));
	}
	drop(src, dst);
}

TEST(lists_of_unequal_length_join)
{
	const size_t one[] = { 6000 }, three[] = { 1000, 2000, 3000 }, four[] = { 1, 4999, 500, 500 };
	const size_t room[] = { 100, 7000 };

	FIXTURE(rig, r, rig_open, SIZE, 4);
	fill(r.from, 100000, 2);
	check_lists(&r, three, 3, 64, one, 1, 0);
	check_lists(&r, one, 1, 0, three, 3, 64);
	check_lists(&r, three, 3, 0, four, 4, 33);
	check_lists(&r, four, 4, 100, three, 3, 1);
	check_lists(&r, three, 3, 7, room, 2, 9); /* more room than bytes */
}

TEST(random_lists_join_as_one_stream)
{
	unsigned seed = 12345;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	fill(r.from, SIZE, 3);
	for (int round = 0; round < 300; round++) {
		size_t from[64], to[64], total = 0, room = 0;
		unsigned n_from = 1 + rand_r(&seed) % 64, n_to = 0;
		size_t most = round % 3 ? 200 : 20000;

		for (unsigned i = 0; i < n_from; i++)
			total += from[i] = 1 + rand_r(&seed) % most;
		for (; room < total && n_to < 63; n_to++)
			room += to[n_to] = 1 + rand_r(&seed) % most;
		if (room < total)
			to[n_to++] = total - room;
		check_lists(&r, from, n_from, rand_r(&seed) % 100, to, n_to, rand_r(&seed) % 100);
	}
}

TEST(empty_buffers_of_a_list_are_passed_over)
{
	struct doca_buf *src, *b;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	fill(r.from, SIZE, 3);
	src = source(&r, 0, 100);
	OK(doca_buf_chain_list(src, source(&r, 200, 0)));
	OK(doca_buf_chain_list(src, source(&r, 300, 50)));

	struct doca_buf *dst = target(&r, 0, 60);

	b = target(&r, 100, 40);
	OK(doca_buf_set_data(b, r.to + 100, 40)); /* full */
	OK(doca_buf_chain_list(dst, b));
	OK(doca_buf_chain_list(dst, target(&r, 200, 90)));
	OK(copied(&r, src, dst));
	CHECK_EQ(memcmp(r.to, r.from, 60), 0);
	CHECK_EQ(memcmp(r.to + 200, r.from + 60, 40), 0);
	CHECK_EQ(memcmp(r.to + 240, r.from + 300, 50), 0);
	CHECK_EQ(r.to[100], 0);
	drop(src, dst);
}

/* ---- failures ---- */

enum kind { NO_DATA, NO_ROOM, TOO_LARGE, TOO_MANY, READ_ONLY, NO_DEVICE, KINDS };

static struct doca_mmap *other_map;

/* Creates a task that must fail, of each kind. */
static struct doca_dma_task_memcpy *hopeless(struct rig *r, enum kind kind)
{
	const size_t ones[65] = { [0 ... 64] = 1 };
	struct doca_buf *src = NULL, *dst = NULL;

	if (kind == NO_DATA)
		src = source(r, 0, 0);
	if (kind == NO_ROOM)
		dst = target(r, 0, 63);
	if (kind == TOO_LARGE) {
		src = source(r, 0, MEMCPY_LIMIT + 1);
		dst = target(r, 0, MEMCPY_LIMIT + 1);
	}
	if (kind == TOO_MANY)
		src = list_of(r, true, ones, 65, 1);
	if (kind == READ_ONLY || kind == NO_DEVICE) {
		other_map = a_started_map(kind == NO_DEVICE ? NULL : r->dev, r->to, 4096,
					  kind == READ_ONLY ? 0 : READ_WRITE);
		dst = a_buf(r->inv, other_map, r->to, 64);
	}
	return a_memcpy(r, src ? src : source(r, 0, 64), dst ? dst : target(r, 0, 128), 0);
}

static void drop_all(struct rig *r, struct doca_dma_task_memcpy *t)
{
	struct doca_buf *src = (struct doca_buf *)doca_dma_task_memcpy_get_src(t);
	struct doca_buf *dst = doca_dma_task_memcpy_get_dst(t);

	doca_task_free(doca_dma_task_memcpy_as_task(t));
	drop(src, dst);
	if (other_map)
		OK(doca_mmap_destroy(other_map));
	other_map = NULL;
	CHECK_EQ(free_bufs(r->inv), 4096);
}

TEST(a_task_that_cannot_be_is_taken_and_fails_at_its_completion)
{
	for (enum kind kind = 0; kind < KINDS; kind++) {
		struct rig r;
		struct doca_dma_task_memcpy *t;

		rig_open(&r, SIZE, 4);
		r.free_in_callback = false;
		t = hopeless(&r, kind);
		OK(doca_task_submit(doca_dma_task_memcpy_as_task(t)));
		CHECK_EQ(r.failed, 0);
		CHECK_EQ(doca_pe_progress(r.pe), 1);
		CHECK_EQ(r.failed, 1);
		CHECK_DOCA(r.last, DOCA_ERROR_IO_FAILED);
		CHECK_EQ(state_of(&r), DOCA_CTX_STATE_STOPPING);
		CHECK_EQ(r.to[0], 0);
		drop_all(&r, t);
		rig_close(&r);
	}
}

TEST(try_submit_refuses_a_task_that_cannot_be)
{
	FIXTURE(rig, r, rig_open, SIZE, 4);
	for (enum kind kind = 0; kind < KINDS; kind++) {
		struct doca_dma_task_memcpy *t = hopeless(&r, kind);

		CHECK_DOCA(doca_task_try_submit(doca_dma_task_memcpy_as_task(t)),
			   DOCA_ERROR_INVALID_VALUE);
		CHECK_EQ(in_flight(&r), 0);
		drop_all(&r, t);
	}
	CHECK_EQ(state_of(&r), DOCA_CTX_STATE_RUNNING);
	OK(copied_at(&r, 0, 0, 100));
}

TEST(try_submit_takes_a_good_task)
{
	FIXTURE(rig, r, rig_open, SIZE, 4);
	struct doca_buf *src = source(&r, 0, 64), *dst = target(&r, 0, 64);
	OK(doca_task_try_submit(a_task(&r, src, dst, 0)));
	run_until(&r, 1);
	OK(r.last);
	drop(src, dst);
}

/* ---- many tasks at a time ---- */

TEST(mixed_sizes_in_flight_complete_in_order_with_their_bytes)
{
	enum { N = 64, AREA = 65536 };
	static struct doca_buf *src[N], *dst[N];
	unsigned seed = 99;

	FIXTURE(rig, r, rig_open, N * AREA, N);
	fill(r.from, N * AREA, 8);
	for (int round = 0; round < 30; round++) {
		size_t n[N];

		r.done = 0;
		memset(r.to, 0, N * AREA);
		for (unsigned i = 0; i < N; i++) {
			n[i] = 1 + rand_r(&seed) % (rand_r(&seed) % 3 ? 200 : AREA);
			src[i] = source(&r, i * AREA, n[i]);
			dst[i] = target(&r, i * AREA, n[i]);
			OK(doca_task_submit(a_task(&r, src[i], dst[i], i)));
			if (rand_r(&seed) % 4 == 0)
				doca_pe_progress(r.pe);
		}
		run_until(&r, N);
		CHECK_EQ(r.failed, 0);
		for (unsigned i = 0; i < N; i++) {
			CHECK_EQ(r.order[i], i);
			CHECK_EQ(data_len(dst[i]), n[i]);
			CHECK_EQ(memcmp(r.from + i * AREA, r.to + i * AREA, n[i]), 0);
			CHECK_EQ(r.to[i * AREA + n[i] % AREA], n[i] == AREA ? r.to[i * AREA] : 0);
			drop(src[i]);
			drop(dst[i]);
		}
	}
}

TEST(more_pieces_than_the_ring_holds_all_arrive)
{
	enum { N = 60 };
	struct doca_buf *src, *dst[N];
	size_t sizes[64];

	FIXTURE(rig, r, rig_open, SIZE, N);
	fill(r.from, SIZE, 8);
	for (int i = 0; i < 64; i++)
		sizes[i] = 1000;
	src = list_of(&r, true, sizes, 64, 3);
	for (unsigned i = 0; i < N; i++) {
		dst[i] = target(&r, i * 64000, 64000);
		OK(doca_task_submit(a_task(&r, src, dst[i], i)));
	}
	run_until(&r, N);
	CHECK_EQ(r.done, N);
	for (unsigned i = 0; i < N; i++) {
		CHECK_EQ(r.order[i], i);
		for (unsigned k = 0; k < 64; k++)
			CHECK_EQ(memcmp(r.to + i * 64000 + k * 1000, r.from + k * 1003, 1000), 0);
		drop(dst[i]);
	}
	drop(src);
}

TEST_MAIN(run_tests)
