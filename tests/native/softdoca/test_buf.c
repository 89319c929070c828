// SPDX-License-Identifier: Apache-2.0
/* Inventories and single buffers; invalid handles are in test_object.c. */
#include "memory_check.h"

#include <pthread.h>

#include <doca_buf_array.h>
#include <doca_buf_pool.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static char bytes[8192];
static struct doca_buf *got;
static void *out;
static size_t len;
static uint16_t count;
static uint32_t number;

/* Objects that most tests start with. */
struct setup {
	struct doca_mmap *map;
	struct doca_buf_inventory *inv;
};

static struct setup begin(size_t n)
{
	return (struct setup){a_started_map(NULL, bytes, sizeof bytes, READ_WRITE),
			      an_inventory(n)};
}

static void end(struct setup s)
{
	OK(doca_buf_inventory_destroy(s.inv));
	OK(doca_mmap_destroy(s.map));
}

TEST(a_missing_place_for_the_answer_is_refused)
{
	struct setup s = begin(1);
	struct doca_buf *b;

	REFUSED(doca_buf_inventory_create(1, NULL), INVALID_VALUE);
	REFUSED(doca_buf_inventory_buf_get_by_addr(s.inv, s.map, bytes, 1, NULL), INVALID_VALUE);
	b = a_buf(s.inv, s.map, bytes, 64);
	REFUSED(doca_buf_inventory_buf_dup(s.inv, b, NULL), INVALID_VALUE);
	REFUSED(doca_buf_inventory_get_num_elements(s.inv, NULL), INVALID_VALUE);
	REFUSED(doca_buf_inventory_get_num_free_elements(s.inv, NULL), INVALID_VALUE);
	REFUSED(doca_buf_get_refcount(b, NULL), INVALID_VALUE);
	REFUSED(doca_buf_get_len(b, NULL), INVALID_VALUE);
	REFUSED(doca_buf_get_head(b, NULL), INVALID_VALUE);
	REFUSED(doca_buf_get_data(b, NULL), INVALID_VALUE);
	REFUSED(doca_buf_get_data_len(b, NULL), INVALID_VALUE);
	REFUSED(doca_buf_get_next_in_list(b, NULL), INVALID_VALUE);
	REFUSED(doca_buf_get_last_in_list(b, NULL), INVALID_VALUE);
	REFUSED(doca_buf_is_last_in_list(b, NULL), INVALID_VALUE);
	REFUSED(doca_buf_is_first_in_list(b, NULL), INVALID_VALUE);
	REFUSED(doca_buf_is_in_list(b, NULL), INVALID_VALUE);
	REFUSED(doca_buf_get_list_len(b, NULL), INVALID_VALUE);
	OK(doca_buf_inc_refcount(b, NULL)); /* the result may be omitted */
	OK(doca_buf_dec_refcount(b, NULL));
	OK(doca_buf_dec_refcount(b, NULL));
	end(s);
}

TEST(a_buffer_got_by_address_is_empty_and_by_data_full)
{
	struct setup s = begin(2);
	struct doca_buf *b = a_buf(s.inv, s.map, bytes + 100, 200);

	OK(doca_buf_get_head(b, &out));
	CHECK(out == bytes + 100);
	OK(doca_buf_get_len(b, &len));
	CHECK_EQ(len, 200);
	OK(doca_buf_get_data(b, &out));
	CHECK(out == bytes + 100);
	OK(doca_buf_get_data_len(b, &len));
	CHECK_EQ(len, 0);
	OK(doca_buf_dec_refcount(b, NULL));
	OK(doca_buf_inventory_buf_get_by_data(s.inv, s.map, bytes, 300, &b));
	OK(doca_buf_get_len(b, &len));
	CHECK_EQ(len, 300);
	OK(doca_buf_get_data_len(b, &len));
	CHECK_EQ(len, 300);
	OK(doca_buf_dec_refcount(b, NULL));
	end(s);
}

TEST(data_moves_within_its_buffer_only)
{
	struct setup s = begin(1);
	struct doca_buf *b = a_buf(s.inv, s.map, bytes + 100, 200);

	OK(doca_buf_set_data(b, bytes + 150, 150));
	OK(doca_buf_get_data(b, &out));
	CHECK(out == bytes + 150);
	REFUSED(doca_buf_set_data(b, bytes + 150, 151), INVALID_VALUE);
	REFUSED(doca_buf_set_data(b, bytes + 99, 1), INVALID_VALUE);
	REFUSED(doca_buf_set_data(b, bytes + 301, 0), INVALID_VALUE);
	REFUSED(doca_buf_set_data(b, bytes + 150, SIZE_MAX), INVALID_VALUE);
	REFUSED(doca_buf_set_data(b, NULL, 0), INVALID_VALUE);
	REFUSED(doca_buf_set_data_len(b, 151), INVALID_VALUE);
	OK(doca_buf_get_data_len(b, &len));
	CHECK_EQ(len, 150); /* unchanged by the refused calls */
	OK(doca_buf_set_data_len(b, 7));
	OK(doca_buf_get_data_len(b, &len));
	CHECK_EQ(len, 7);
	OK(doca_buf_reset_data_len(b));
	OK(doca_buf_get_data_len(b, &len));
	CHECK_EQ(len, 0);
	OK(doca_buf_get_data(b, &out));
	CHECK(out == bytes + 150);
	OK(doca_buf_set_data(b, bytes + 300, 0)); /* the very end of its memory */
	OK(doca_buf_dec_refcount(b, NULL));
	end(s);
}

TEST(a_buffer_lies_within_its_map)
{
	struct setup s = begin(1);
	char *before = (char *)((uintptr_t)bytes - 1);

	REFUSED(doca_buf_inventory_buf_get_by_addr(s.inv, s.map, before, 1, &got), INVALID_VALUE);
	REFUSED(doca_buf_inventory_buf_get_by_addr(s.inv, s.map, bytes, sizeof bytes + 1, &got),
		INVALID_VALUE);
	REFUSED(doca_buf_inventory_buf_get_by_addr(s.inv, s.map, bytes + 1, sizeof bytes, &got),
		INVALID_VALUE);
	REFUSED(doca_buf_inventory_buf_get_by_addr(s.inv, s.map, bytes + 1, SIZE_MAX, &got),
		INVALID_VALUE);
	REFUSED(doca_buf_inventory_buf_get_by_addr(s.inv, s.map, NULL, 1, &got), INVALID_VALUE);
	REFUSED(doca_buf_inventory_buf_get_by_args(s.inv, s.map, bytes, 64, bytes + 60, 5, &got),
		INVALID_VALUE);
	REFUSED(doca_buf_inventory_buf_get_by_args(s.inv, s.map, bytes + 1, 64, bytes, 1, &got),
		INVALID_VALUE);
	CHECK_EQ(free_bufs(s.inv), 1);
	CHECK_EQ(bufs_of(s.map), 0);
	end(s);
}

TEST(nothing_is_taken_before_map_and_inventory_are_started)
{
	struct doca_mmap *m = a_map(NULL, bytes, sizeof bytes, READ_WRITE);
	struct doca_buf_inventory *inv;
	struct doca_buf *b;

	OK(doca_buf_inventory_create(2, &inv));
	REFUSED(doca_buf_inventory_buf_get_by_addr(inv, m, bytes, 1, &got), BAD_STATE);
	OK(doca_mmap_start(m));
	REFUSED(doca_buf_inventory_buf_get_by_addr(inv, m, bytes, 1, &got), BAD_STATE);
	OK(doca_buf_inventory_start(inv));
	OK(doca_buf_inventory_start(inv));
	b = a_buf(inv, m, bytes, 1);
	OK(doca_buf_inventory_stop(inv));
	OK(doca_buf_inventory_stop(inv));
	REFUSED(doca_buf_inventory_buf_get_by_addr(inv, m, bytes, 1, &got), BAD_STATE);
	REFUSED(doca_buf_inventory_buf_dup(inv, b, &got), BAD_STATE);
	OK(doca_buf_dec_refcount(b, NULL)); /* free the buffer that was allocated */
	OK(doca_mmap_stop(m));
	OK(doca_buf_inventory_start(inv));
	REFUSED(doca_buf_inventory_buf_get_by_addr(inv, m, bytes, 1, &got), BAD_STATE);
	OK(doca_buf_inventory_destroy(inv));
	OK(doca_mmap_destroy(m));
}

TEST(user_data_of_an_inventory_is_set_while_it_is_not_started)
{
	union doca_data data = { .u64 = 7 };
	struct doca_buf_inventory *inv;

	OK(doca_buf_inventory_create(1, &inv));
	OK(doca_buf_inventory_get_user_data(inv, &data));
	CHECK_EQ(data.u64, 0);
	data.u64 = 8;
	OK(doca_buf_inventory_set_user_data(inv, data));
	OK(doca_buf_inventory_start(inv));
	data.u64 = 9;
	REFUSED(doca_buf_inventory_set_user_data(inv, data), BAD_STATE);
	OK(doca_buf_inventory_get_user_data(inv, &data));
	CHECK_EQ(data.u64, 8);
	OK(doca_buf_inventory_stop(inv));
	data.u64 = 10;
	OK(doca_buf_inventory_set_user_data(inv, data));
	REFUSED(doca_buf_inventory_get_user_data(inv, NULL), INVALID_VALUE);
	REFUSED(doca_buf_inventory_get_user_data(NULL, &data), INVALID_VALUE);
	REFUSED(doca_buf_inventory_set_user_data(NULL, data), INVALID_VALUE);
	OK(doca_buf_inventory_destroy(inv));
}

TEST(an_empty_inventory_has_no_memory)
{
	struct setup s = begin(3);
	struct doca_buf *all[3];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 3; i++) {
			CHECK_EQ(free_bufs(s.inv), 3 - i);
			all[i] = a_buf(s.inv, s.map, bytes + i, 1);
		}
		REFUSED(doca_buf_inventory_buf_get_by_addr(s.inv, s.map, bytes, 1, &got),
			NO_MEMORY);
		REFUSED(doca_buf_inventory_buf_dup(s.inv, all[0], &got), NO_MEMORY);
		CHECK_EQ(bufs_of(s.map), 3);
		for (int i = 0; i < 3; i++)
			OK(doca_buf_dec_refcount(all[i], NULL));
	}
	OK(doca_buf_inventory_get_num_elements(s.inv, &number));
	CHECK_EQ(number, 3);
	end(s);
}

TEST(an_inventory_grows_also_while_it_is_used)
{
	struct setup s = begin(1);
	struct doca_buf *all[300];

	all[0] = a_buf(s.inv, s.map, bytes, 1);
	REFUSED(doca_buf_inventory_expand(s.inv, 0), INVALID_VALUE);
	OK(doca_buf_inventory_stop(s.inv));
	REFUSED(doca_buf_inventory_expand(s.inv, 299), BAD_STATE);
	OK(doca_buf_inventory_start(s.inv));
	OK(doca_buf_inventory_expand(s.inv, 299));
	OK(doca_buf_inventory_get_num_elements(s.inv, &number));
	CHECK_EQ(number, 300);
	CHECK_EQ(free_bufs(s.inv), 299);
	for (int i = 1; i < 300; i++)
		all[i] = a_buf(s.inv, s.map, bytes + i, 1);
	for (int i = 0; i < 300; i++) {
		OK(doca_buf_get_head(all[i], &out));
		CHECK(out == bytes + i);
		OK(doca_buf_dec_refcount(all[i], NULL));
	}
	end(s);
}

TEST(an_absurd_number_of_buffers_is_refused_at_once)
{
	static const size_t absurd[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 60, (size_t)1 << 40,
					(size_t)1 << 34};
	struct setup s = begin(1);

	for (size_t i = 0; i < COUNT(absurd); i++) {
		struct doca_buf_inventory *inv;

		REFUSED(doca_buf_inventory_create(absurd[i], &inv), NO_MEMORY);
	}
	REFUSED(doca_buf_inventory_create(0, &s.inv), INVALID_VALUE);
	REFUSED(doca_buf_inventory_expand(s.inv, UINT32_MAX), NO_MEMORY);
	CHECK_EQ(free_bufs(s.inv), 1); /* still usable */
	end(s);
}

TEST(an_inventory_whose_buffers_are_out_stays)
{
	struct setup s = begin(2);
	struct doca_buf *b = a_buf(s.inv, s.map, bytes, 1);

	REFUSED(doca_buf_inventory_destroy(s.inv), IN_USE);
	OK(doca_buf_dec_refcount(b, NULL));
	OK(doca_buf_inventory_destroy(s.inv));
	REFUSED(doca_buf_inventory_destroy(s.inv), INVALID_VALUE);
	REFUSED(doca_buf_dec_refcount(b, NULL), INVALID_VALUE);
	OK(doca_mmap_destroy(s.map));
}

TEST(references_are_counted_and_told_as_they_were_before)
{
	struct setup s = begin(1);
	struct doca_buf *b = a_buf(s.inv, s.map, bytes, 1);

	OK(doca_buf_get_refcount(b, &count));
	CHECK_EQ(count, 1);
	OK(doca_buf_inc_refcount(b, &count));
	CHECK_EQ(count, 1);
	OK(doca_buf_dec_refcount(b, &count));
	CHECK_EQ(count, 2);
	CHECK_EQ(free_bufs(s.inv), 0);
	OK(doca_buf_dec_refcount(b, &count));
	CHECK_EQ(count, 1);
	CHECK_EQ(free_bufs(s.inv), 1);
	end(s);
}

TEST(references_do_not_wrap)
{
	struct setup s = begin(1);
	struct doca_buf *b = a_buf(s.inv, s.map, bytes, 1);

	for (int i = 1; i < UINT16_MAX; i++)
		OK(doca_buf_inc_refcount(b, NULL));
	REFUSED(doca_buf_inc_refcount(b, NULL), TOO_BIG);
	for (int i = 0; i < UINT16_MAX; i++)
		OK(doca_buf_dec_refcount(b, NULL));
	CHECK_EQ(free_bufs(s.inv), 1);
	end(s);
}

TEST(a_duplicate_is_a_buffer_of_its_own)
{
	struct setup s = begin(1);
	struct doca_buf_inventory *other = an_inventory(1);
	struct doca_buf *a, *b;

	OK(doca_buf_inventory_buf_get_by_args(s.inv, s.map, bytes, 100, bytes + 10, 20, &a));
	OK(doca_buf_inc_refcount(a, NULL));
	OK(doca_buf_inventory_buf_dup(other, a, &b));
	CHECK(a != b);
	CHECK_EQ(bufs_of(s.map), 2);
	OK(doca_buf_get_refcount(b, &count));
	CHECK_EQ(count, 1);
	OK(doca_buf_set_data(a, bytes, 0));
	OK(doca_buf_get_data(b, &out));
	CHECK(out == bytes + 10);
	OK(doca_buf_get_data_len(b, &len));
	CHECK_EQ(len, 20);
	OK(doca_buf_dec_refcount(a, NULL));
	OK(doca_buf_dec_refcount(a, NULL));
	OK(doca_buf_dec_refcount(b, NULL));
	OK(doca_buf_inventory_destroy(other));
	end(s);
}

static void *take_and_give(void *arg)
{
	struct doca_buf_inventory *inv = an_inventory(8);
	struct doca_buf *b[8];

	for (int round = 0; round < 2000; round++) {
		for (int i = 0; i < 8; i++)
			b[i] = a_buf(inv, arg, bytes, 8);
		for (int i = 0; i < 8; i++)
			OK(doca_buf_dec_refcount(b[i], NULL));
	}
	OK(doca_buf_inventory_destroy(inv));
	return NULL;
}

TEST(threads_with_an_inventory_each_share_a_map)
{
	struct doca_mmap *m = a_started_map(NULL, bytes, sizeof bytes, READ_WRITE);
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, take_and_give, m), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(bufs_of(m), 0);
	OK(doca_mmap_destroy(m));
}

TEST(inventories_come_and_go)
{
	for (int i = 0; i < 2000; i++)
		OK(doca_buf_inventory_destroy(an_inventory(1 + (size_t)i % 300)));
}

/* With a GPU: see test_gpu_dma.c. */
TEST(parameters_of_an_array_are_checked)
{
	struct doca_mmap *m = a_started_map(NULL, bytes, sizeof bytes, READ_WRITE);
	struct doca_gpu_buf_arr *gpu;
	struct doca_buf_arr *arr;

	REFUSED(doca_buf_arr_create(0, &arr), INVALID_VALUE);
	REFUSED(doca_buf_arr_create(1, NULL), INVALID_VALUE);
	OK(doca_buf_arr_create(8, &arr));
	REFUSED(doca_buf_arr_start(arr), BAD_STATE);
	REFUSED(doca_buf_arr_set_params(arr, m, sizeof bytes, 0), INVALID_VALUE);
	REFUSED(doca_buf_arr_set_params(arr, m, SIZE_MAX, 0), INVALID_VALUE);
	REFUSED(doca_buf_arr_set_params(arr, m, 64, UINT64_MAX), INVALID_VALUE);
	REFUSED(doca_buf_arr_set_params(arr, NULL, 64, 0), INVALID_VALUE);
	OK(doca_buf_arr_set_params(arr, m, 64, 0));
	REFUSED(doca_buf_arr_set_target_gpu(arr, NULL), INVALID_VALUE);
	REFUSED(doca_buf_arr_set_target_gpu(arr, (void *)bytes), INVALID_VALUE);
	REFUSED(doca_buf_arr_start(arr), BAD_STATE);
	REFUSED(doca_buf_arr_get_gpu_handle(arr, &gpu), BAD_STATE);
	OK(doca_buf_arr_stop(arr));
	OK(doca_buf_arr_destroy(arr));
	REFUSED(doca_buf_arr_destroy(arr), INVALID_VALUE);
	REFUSED(doca_buf_arr_stop(NULL), INVALID_VALUE);
	REFUSED(doca_buf_arr_start((void *)m), INVALID_VALUE);
	OK(doca_mmap_destroy(m));
}

TEST(a_pool_s_buffers_keep_their_aligned_places)
{
	struct doca_mmap *m = a_map(NULL, bytes + 1, 1000, READ_WRITE);
	struct doca_buf_pool *pool;
	struct doca_buf *bufs[3];
	char *heads[3];

	OK(doca_mmap_start(m));
	OK(doca_buf_pool_create(3, 100, m, &pool));
	OK(doca_buf_pool_set_element_alignment(pool, 64));
	OK(doca_buf_pool_start(pool));
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 3; i++) {
			OK(doca_buf_pool_buf_alloc(pool, &bufs[i]));
			OK(doca_buf_get_head(bufs[i], (void **)&heads[i]));
			OK(doca_buf_get_len(bufs[i], &len));
			CHECK(len == 100 && (uintptr_t)heads[i] % 64 == 0);
			CHECK(heads[i] > bytes && heads[i] + 100 <= bytes + 1001);
			OK(doca_buf_get_data_len(bufs[i], &len));
			CHECK_EQ(len, 0);
			OK(doca_buf_set_data(bufs[i], heads[i] + 1, 50));
		}
		REFUSED(doca_buf_pool_buf_alloc(pool, &got), EMPTY);
		for (int i = 0; i < 3; i++)
			for (int j = 0; j < i; j++)
				CHECK(heads[i] - heads[j] >= 100 || heads[j] - heads[i] >= 100);
		for (int i = round; i < round + 3; i++)
			OK(doca_buf_dec_refcount(bufs[i % 3], NULL));
	}
	OK(doca_buf_pool_destroy(pool)); /* stops it */
	OK(doca_mmap_destroy(m));
}

TEST(each_misuse_of_a_pool_has_its_documented_error)
{
	struct doca_mmap *m = a_map(NULL, bytes, 256, READ_WRITE);
	struct doca_buf_pool *pool;
	union doca_data data = {.u64 = 7};

	REFUSED(doca_buf_pool_create(0, 64, m, &pool), INVALID_VALUE);
	REFUSED(doca_buf_pool_create(4, 0, m, &pool), INVALID_VALUE);
	REFUSED(doca_buf_pool_create(4, 64, NULL, &pool), INVALID_VALUE);
	REFUSED(doca_buf_pool_create(4, 64, m, NULL), INVALID_VALUE);
	OK(doca_buf_pool_create(4, 64, m, &pool));
	REFUSED(doca_buf_pool_start(pool), BAD_STATE); /* the map is not started */
	REFUSED(doca_buf_pool_buf_alloc(pool, &got), BAD_STATE);
	OK(doca_mmap_start(m));
	REFUSED(doca_buf_pool_set_element_alignment(pool, 3), INVALID_VALUE);
	OK(doca_buf_pool_set_element_alignment(pool, 128));
	REFUSED(doca_buf_pool_start(pool), INITIALIZATION); /* 448 bytes of 256 */
	OK(doca_buf_pool_set_element_alignment(pool, 1));
	OK(doca_buf_pool_set_user_data(pool, data));
	OK(doca_buf_pool_start(pool));
	REFUSED(doca_buf_pool_set_user_data(pool, data), BAD_STATE);
	REFUSED(doca_buf_pool_set_element_alignment(pool, 1), BAD_STATE);
	OK(doca_buf_pool_buf_alloc(pool, &got));
	REFUSED(doca_buf_inventory_buf_reuse_by_args(got, bytes, 8, bytes, 0), NOT_PERMITTED);
	OK(doca_buf_pool_get_num_elements(pool, &number));
	CHECK_EQ(number, 4);
	OK(doca_buf_pool_get_num_free_elements(pool, &number));
	CHECK_EQ(number, 3);
	OK(doca_buf_pool_get_element_alignment(pool, &len));
	CHECK_EQ(len, 1);
	data.u64 = 0;
	OK(doca_buf_pool_get_user_data(pool, &data));
	CHECK_EQ(data.u64, 7);
	REFUSED(doca_buf_pool_stop(pool), IN_USE);
	REFUSED(doca_buf_pool_destroy(pool), IN_USE);
	OK(doca_buf_dec_refcount(got, NULL));
	OK(doca_buf_pool_stop(pool));
	REFUSED(doca_buf_pool_buf_alloc(pool, &got), BAD_STATE);
	OK(doca_buf_pool_destroy(pool));
	REFUSED(doca_buf_pool_destroy(pool), INVALID_VALUE);
	OK(doca_mmap_destroy(m));
}

TEST_MAIN(run_tests)
