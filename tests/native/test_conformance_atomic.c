/* SPDX-License-Identifier: Apache-2.0 */
/* Atomic operations: old values, order, errors. For each provider and path; a provider without
 * atomic operations must refuse each of them. */
#include <pthread.h>

#include "fixture.h"

#define WORD 512 /* offset of the remote word */

static dg_wr fetch_add(const struct fix *f, uint64_t addend, uint64_t local_offset)
{
	dg_wr wr = record(f, DG_FETCH_ADD, 8, local_offset, WORD);

	wr.local_stride = addend;
	return wr;
}

static dg_wr compare_swap(const struct fix *f, uint64_t compare, uint64_t swap, uint64_t local_offset)
{
	dg_wr wr = record(f, DG_COMPARE_SWAP, 8, local_offset, WORD);

	wr.local_stride = compare;
	wr.remote_stride = swap;
	return wr;
}

static uint64_t local_word(const struct fix *f, uint64_t offset)
{
	uint64_t value;

	memcpy(&value, f->local_bytes + offset, sizeof(value));
	return value;
}

static uint64_t *remote_word(const struct fix *f)
{
	return (uint64_t *)(f->remote_bytes + WORD);
}

/* Whether the provider supports atomic operations. If not, they must be refused. */
static bool has_atomics(const struct fix *f)
{
	dg_wr wr = fetch_add(f, 1, 0);
	dg_caps caps;
	dg_wc wc;

	CHECK_EQ(dg_device_caps(f->dev, &caps), 0);
	CHECK(caps.atomics <= 2);
	if (caps.atomics)
		return true;
	CHECK_EQ(dg_queue_run(f->q, &wr, 1, &wc, SECOND), -EOPNOTSUPP);
	CHECK_SAYS(dg_last_error(), caps.provider);
	CHECK_SAYS(dg_last_error(), "soft");
	return false;
}

static uint64_t run(struct fix *f, dg_wr wr)
{
	dg_wc wc;

	memset(f->local_bytes + wr.local_offset, 0xee, 8);
	CHECK_EQ(dg_queue_run(f->q, &wr, 1, &wc, 20 * SECOND), 1);
	CHECK_EQ(wc.status, DG_OK);
	CHECK_EQ(wc.size, 8);
	CHECK_EQ(wc.op, wr.op);
	return local_word(f, wr.local_offset);
}

static void old_values(struct fix *f, uint32_t path)
{
	(void)path;
	if (!has_atomics(f))
		return;
	*remote_word(f) = 40;
	CHECK_EQ(run(f, fetch_add(f, 2, 0)), 40);
	CHECK_EQ(*remote_word(f), 42);
	CHECK_EQ(run(f, fetch_add(f, UINT64_MAX, 16)), 42);
	CHECK_EQ(run(f, fetch_add(f, 0, 19)), 41); /* the local side needs no alignment */
	CHECK_EQ(run(f, compare_swap(f, 42, 7, 0)), 41);
	CHECK_EQ(*remote_word(f), 41);
	CHECK_EQ(run(f, compare_swap(f, 41, UINT64_MAX - 1, 0)), 41);
	CHECK_EQ(*remote_word(f), UINT64_MAX - 1);
	CHECK_EQ(run(f, fetch_add(f, 5, 0)), UINT64_MAX - 1);
	CHECK_EQ(*remote_word(f), 3);
	CHECK_EQ(remote_word(f)[-1], 0);
	CHECK_EQ(remote_word(f)[1], 0);
}

TEST(the_old_value_arrives_and_sums_wrap)
{
	each_path(4096, 8, old_values);
}

static void mixed(struct fix *f, uint32_t path)
{
	enum { N = 6 };
	const uint64_t five = 5;
	dg_wc wc[N];
	dg_wr wr[N];

	(void)path;
	if (!has_atomics(f))
		return;
	memcpy(f->local_bytes, &five, 8);
	wr[0] = record(f, DG_WRITE, 8, 0, WORD);
	wr[1] = fetch_add(f, 10, 64);
	wr[2] = compare_swap(f, 15, 100, 128);
	wr[3] = compare_swap(f, 15, 200, 192);
	wr[4] = fetch_add(f, 1, 256);
	wr[5] = record(f, DG_READ, 8, 320, WORD);
	for (uint32_t i = 0; i < N; i++)
		wr[i].user = 70 + i;
	for (uint32_t round = 0; round < 20; round++) {
		memset(f->local_bytes + 64, 0xee, 320);
		CHECK_EQ(dg_queue_run(f->q, wr, N, wc, 20 * SECOND), N);
		for (uint32_t i = 0; i < N; i++) {
			CHECK_EQ(wc[i].status, DG_OK);
			CHECK_EQ(wc[i].user, 70 + i);
			CHECK_EQ(wc[i].op, wr[i].op);
			CHECK_EQ(wc[i].size, 8);
		}
		CHECK_EQ(local_word(f, 64), 5);
		CHECK_EQ(local_word(f, 128), 15);
		CHECK_EQ(local_word(f, 192), 100);
		CHECK_EQ(local_word(f, 256), 100);
		CHECK_EQ(local_word(f, 320), 101);
	}
}

TEST(a_batch_of_all_operations_keeps_their_order)
{
	each_path(4096, 8, mixed);
}

static void forms(struct fix *f, uint32_t path)
{
	enum { N = 60 }; /* more than an adapter's responder accepts at the same time */
	dg_wr wr[N], chain[2];
	struct transfer t;
	dg_prep *p;
	dg_wc wc;

	(void)path;
	if (!has_atomics(f))
		return;
	for (uint32_t i = 0; i < N; i++)
		wr[i] = fetch_add(f, 1, 8 * i);
	CHECK_EQ(dg_prep_open(f->q, wr, N, &p), 0);
	CHECK_EQ(dg_prep_run(p), 0);
	CHECK_EQ(dg_prep_run(p), 0);
	for (uint32_t i = 0; i < N; i++) {
		CHECK_EQ(local_word(f, 8 * i), N + i);
		CHECK_EQ(dg_prep_wc(p)[i].size, 8);
	}
	CHECK_EQ(dg_prep_close(p), 0);
	CHECK_EQ(dg_prep_open(f->q, wr, 1, &p), 0);
	CHECK_EQ(dg_prep_run(p), 0);
	CHECK_EQ(local_word(f, 0), 2 * N);
	CHECK_EQ(dg_measure_bare(p, 1, 1, &(uint64_t){ 0 }), -EOPNOTSUPP);
	CHECK_EQ(dg_prep_close(p), 0);
	t = begin_wr(&f->tq, wr, 1);
	CHECK_EQ(take(&t, 20 * SECOND), 0);
	CHECK_EQ(t.wc.status, DG_OK);
	CHECK_EQ(local_word(f, 0), 2 * N + 1);
	chain[0] = record(f, DG_WRITE, 100, 1000, 1000);
	chain[0].flags = DG_CHAIN;
	chain[1] = wr[0];
	fill(f->local_bytes + 1000, 100, 9);
	CHECK_EQ(dg_queue_run(f->q, chain, 2, &wc, 20 * SECOND), 1);
	CHECK_EQ(wc.size, 108);
	CHECK_EQ(wc.op, DG_FETCH_ADD);
	check_pattern(f->remote_bytes + 1000, 0, 100, 9);
	CHECK_EQ(*remote_word(f), 2 * N + 3);
}

TEST(atomics_are_prepared_awaited_and_chained_like_others)
{
	each_path(4096, 64, forms);
}

static void fenced(struct fix *f, uint32_t path)
{
	const size_t half = f->size / 2;
	dg_wr wr[2];
	dg_wc wc[2];

	(void)path;
	if (!has_atomics(f))
		return;
	for (uint64_t round = 1; round <= 20; round++) {
		memset(f->local_bytes + half, (int)round, half);
		wr[0] = record(f, DG_WRITE, half, half, half);
		wr[1] = fetch_add(f, 1, 0);
		wr[1].flags = DG_FENCE;
		CHECK_EQ(dg_queue_post(f->q, wr, 2), 0);
		for (int got = 0; got < 2;)
			got += dg_queue_poll(f->q, wc + got, 2 - got, 20 * SECOND);
		CHECK_EQ(wc[1].status, DG_OK);
		CHECK_EQ(wc[1].op, DG_FETCH_ADD);
		CHECK(wc[0].complete_ns <= wc[1].complete_ns);
		CHECK_EQ(local_word(f, 0), round - 1);
		CHECK_EQ(f->remote_bytes[f->size - 1], round);
	}
}

TEST(atomics_honour_a_fence)
{
	each_path(1 << 20, 8, fenced);
}

/* The record is refused with this error, alone and at the end of a batch, which then does
 * nothing. */
static void refused(struct fix *f, dg_wr bad, int error, const char *says)
{
	const uint64_t before = *remote_word(f);
	dg_wr wr[2] = { fetch_add(f, 1, 0), bad };
	dg_prep *p;
	dg_wc wc[2];

	CHECK_EQ(dg_queue_run(f->q, wr, 2, wc, SECOND), -error);
	CHECK_SAYS(dg_last_error(), "record 1 of 2");
	CHECK_SAYS(dg_last_error(), says);
	CHECK_EQ(dg_queue_post(f->q, &bad, 1), -error);
	CHECK_EQ(dg_transfer_post_wr(f->q, &bad, 1, wc), -error);
	CHECK_EQ(dg_prep_open(f->q, &bad, 1, &p), -error);
	CHECK_EQ(*remote_word(f), before);
	CHECK_EQ(dg_queue_pending(f->q), 0);
}

static void refusals(struct fix *f, uint32_t path)
{
	dg_wr wr = fetch_add(f, 1, 0);

	(void)path;
	if (!has_atomics(f))
		return;
	wr.size = 4;
	refused(f, wr, EINVAL, "size 4 ");
	wr.size = 16;
	refused(f, wr, EINVAL, "size 16 ");
	wr.size = 8;
	wr.rows = 2;
	refused(f, wr, EINVAL, "rows 2;");
	wr.rows = 1;
	wr.remote_offset = WORD + 4;
	refused(f, wr, EINVAL, "offset 516");
	wr.remote_offset = f->size;
	refused(f, wr, ERANGE, "remote region");
	wr.remote_offset = UINT64_MAX - 7;
	refused(f, wr, ERANGE, "remote region");
	wr.remote_offset = WORD;
	wr.local_offset = f->size - 7;
	refused(f, wr, ERANGE, "local region");
	wr.local_offset = 0;
	wr.flags = 64;
	refused(f, wr, EINVAL, "flags");
	wr.flags = 0;
	wr.op = 4;
	refused(f, wr, EINVAL, "operation 4");
}

TEST(records_without_sense_are_refused)
{
	each_path(4096, 8, refusals);
}

static void each_access(struct fix *f, uint32_t path)
{
	dg_wr wr = fetch_add(f, 1, 0);
	dg_region *r;

	(void)path;
	if (!has_atomics(f))
		return;
	for (uint32_t access = DG_ACCESS_READ; access <= DG_ACCESS_WRITE; access++) {
		r = imported(f->dev, f->source, access);
		wr.remote = id_of(r);
		refused(f, wr, EACCES, access == DG_ACCESS_READ ? "read-only" : "write-only");
		CHECK_EQ(dg_region_close(r, PATIENCE), 0);
	}
	wr.remote = f->r;
	r = registered(f->dev, f->local_bytes, f->size, DG_ACCESS_READ);
	wr.local = id_of(r);
	refused(f, wr, EACCES, "local region");
	CHECK_EQ(dg_region_close(r, PATIENCE), 0);
}

TEST(an_atomic_needs_read_and_write_access)
{
	each_path(4096, 8, each_access);
}

/* The alignment of the address matters, not that of the offset. */
static void at_odd_address(struct fix *f, uint32_t path)
{
	dg_wr wr = fetch_add(f, 1, 0);
	dg_region *source, *r;

	(void)path;
	if (!has_atomics(f))
		return;
	source = registered(f->dev, f->remote_bytes + WORD - 4, 64, RW);
	r = imported(f->dev, source, RW);
	wr.remote = id_of(r);
	wr.remote_offset = 8;
	refused(f, wr, EINVAL, "4 bytes after a multiple of 8");
	wr.remote_offset = 4;
	run(f, wr);
	CHECK_EQ(*remote_word(f), 1);
	CHECK_EQ(dg_region_close(r, PATIENCE), 0);
	CHECK_EQ(dg_region_close(source, PATIENCE), 0);
}

TEST(the_address_of_the_word_must_be_aligned)
{
	each_path(4096, 8, at_odd_address);
}

static void revoked(struct fix *f, uint32_t path)
{
	dg_wr wr[2] = { fetch_add(f, 1, 0), compare_swap(f, 0, 9, 8) };

	(void)path;
	if (!has_atomics(f))
		return;
	memset(f->local_bytes, 1, 16);
	CHECK_EQ(dg_region_close(f->source, 0), 0);
	for (int i = 0; i < 2; i++) {
		struct transfer t = begin_wr(&f->tq, &wr[i], 1);

		CHECK_EQ(take(&t, 20 * SECOND), 0);
		CHECK_EQ(t.wc.status, DG_REMOTE_ACCESS_ERROR);
		CHECK_EQ(t.wc.size, 0);
	}
	CHECK_EQ(*remote_word(f), 0);
	CHECK_EQ(local_word(f, 0), 0x0101010101010101);
	CHECK_EQ(dg_region_close(f->remote, 0), 0);
}

TEST(a_revoked_region_gives_errors_and_no_change)
{
	each_path(4096, 4, revoked);
}

enum { ADDS = 500 };

struct adder {
	struct fix *f;
	uint32_t path, number;
	uint64_t sum; /* of the old values */
};

/* Adds 1 to the word ADDS times, with a queue of this thread, and checks that it only grows. */
static void *add(void *arg)
{
	struct adder *a = arg;
	dg_wr wr = fetch_add(a->f, 1, 64 + 8 * a->number);
	uint64_t last = 0;
	dg_queue *q;
	dg_wc wc;

	CHECK_EQ(dg_queue_open(a->f->dev, 4, a->path, 20000, 20 * SECOND, &q), 0);
	for (int i = 0; i < ADDS; i++) {
		uint64_t old;

		CHECK_EQ(dg_queue_run(q, &wr, 1, &wc, 20 * SECOND), 1);
		CHECK_EQ(wc.status, DG_OK);
		old = local_word(a->f, wr.local_offset);
		CHECK(i == 0 || old > last);
		last = old;
		a->sum += old;
	}
	CHECK_EQ(dg_queue_close(q), 0);
	dg_queue_free(q);
	return NULL;
}

/* Each old value is seen once, so their sum is that of the numbers from 0 on. */
static void contended(struct fix *f, uint32_t path)
{
	struct adder a[2] = { { f, path, 0, 0 }, { f, path, 1, 0 } };
	uint64_t total = 2 * ADDS;
	pthread_t thread;
	dg_caps caps;

	if (!has_atomics(f))
		return;
	CHECK_EQ(dg_device_caps(f->dev, &caps), 0);
	CHECK_EQ(pthread_create(&thread, NULL, add, &a[1]), 0);
	add(&a[0]);
	for (int i = 0; caps.atomics == 2 && i < ADDS; i++, total++)
		a[0].sum += __atomic_fetch_add(remote_word(f), 1, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	CHECK_EQ(*remote_word(f), total);
	CHECK_EQ(a[0].sum + a[1].sum, total * (total - 1) / 2);
}

TEST(no_increment_is_lost)
{
	each_path(4096, 8, contended);
}

TEST_MAIN(run_over_providers)
