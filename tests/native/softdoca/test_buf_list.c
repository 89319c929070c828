// SPDX-License-Identifier: Apache-2.0
/* Lists of buffers: chaining, unchaining, freeing. */
#include "memory_check.h"

enum { MOST = 12 };

static char bytes[8192];
static struct doca_mmap *map;
static struct doca_buf_inventory *inv;
static struct doca_buf *b[MOST], *got;
static uint16_t count;
static uint32_t number;
static uint8_t flag;

/* Allocates n buffers, none of them chained. */
static void begin(int n)
{
	map = a_started_map(NULL, bytes, sizeof bytes, READ_WRITE);
	inv = an_inventory(MOST);
	for (int i = 0; i < n; i++)
		b[i] = a_buf(inv, map, bytes + i, 1);
}

static void end(void)
{
	OK(doca_buf_inventory_destroy(inv));
	OK(doca_mmap_destroy(map));
}

/* Checks that b[from] to b[to - 1] form a list, according to each of them. */
static void is_list(int from, int to)
{
	OK(doca_buf_get_list_len(b[from], &number));
	CHECK_EQ(number, to - from);
	for (int i = from; i < to; i++) {
		OK(doca_buf_get_next_in_list(b[i], &got));
		CHECK(got == (i + 1 < to ? b[i + 1] : NULL));
		OK(doca_buf_get_last_in_list(b[i], &got));
		CHECK(got == b[to - 1]);
		OK(doca_buf_is_first_in_list(b[i], &flag));
		CHECK_EQ(flag, i == from);
		OK(doca_buf_is_last_in_list(b[i], &flag));
		CHECK_EQ(flag, i + 1 == to);
		OK(doca_buf_is_in_list(b[i], &flag));
		CHECK_EQ(flag, to - from > 1);
		if (i > from)
			REFUSED(doca_buf_get_list_len(b[i], &number), NOT_PERMITTED);
	}
}

/* Chains b[from] to b[to - 1] in this order. */
static void chain(int from, int to)
{
	for (int i = from + 1; i < to; i++)
		OK(doca_buf_chain_list(b[from], b[i]));
}

TEST(a_buffer_alone_is_a_list_of_one)
{
	begin(1);
	is_list(0, 1);
	OK(doca_buf_dec_refcount(b[0], NULL));
	end();
}

TEST(lists_are_chained_whole)
{
	begin(8);
	chain(0, 3);
	is_list(0, 3);
	chain(3, 8);
	is_list(3, 8);
	OK(doca_buf_chain_list(b[0], b[3]));
	is_list(0, 8);
	OK(doca_buf_dec_refcount(b[0], NULL));
	end();
}

TEST(the_heads_last_reference_gives_the_whole_list_back)
{
	begin(MOST);
	chain(0, MOST);
	CHECK_EQ(free_bufs(inv), 0);
	OK(doca_buf_inc_refcount(b[0], NULL));
	OK(doca_buf_dec_refcount(b[0], NULL));
	CHECK_EQ(free_bufs(inv), 0);
	OK(doca_buf_dec_refcount(b[0], &count));
	CHECK_EQ(count, 1);
	CHECK_EQ(free_bufs(inv), MOST);
	CHECK_EQ(bufs_of(map), 0);
	for (int i = 0; i < MOST; i++)
		REFUSED(doca_buf_dec_refcount(b[i], NULL), BAD_STATE);
	for (int i = 0; i < MOST; i++) { /* and each can be allocated again, unchained */
		b[i] = a_buf(inv, map, bytes, 1);
		is_list(i, i + 1);
	}
	for (int i = 0; i < MOST; i++)
		OK(doca_buf_dec_refcount(b[i], NULL));
	end();
}

TEST(who_is_not_the_head_has_no_references_of_its_own)
{
	begin(3);
	chain(0, 3);
	for (int i = 1; i < 3; i++) {
		REFUSED(doca_buf_inc_refcount(b[i], NULL), NOT_PERMITTED);
		REFUSED(doca_buf_dec_refcount(b[i], NULL), NOT_PERMITTED);
		OK(doca_buf_get_refcount(b[i], &count));
		CHECK_EQ(count, 1);
		REFUSED(doca_buf_inventory_buf_dup(inv, b[i], &got), NOT_PERMITTED);
	}
	is_list(0, 3);
	OK(doca_buf_dec_refcount(b[0], NULL));
	end();
}

TEST(what_cannot_be_chained_is_refused_and_unchanged)
{
	begin(5);
	chain(0, 2);
	chain(2, 4);
	REFUSED(doca_buf_chain_list(b[0], b[0]), INVALID_VALUE);
	REFUSED(doca_buf_chain_list(b[0], b[1]), NOT_PERMITTED); /* its own member */
	REFUSED(doca_buf_chain_list(b[1], b[0]), NOT_PERMITTED);
	REFUSED(doca_buf_chain_list(b[1], b[4]), NOT_PERMITTED); /* not a list head */
	REFUSED(doca_buf_chain_list(b[0], b[3]), NOT_PERMITTED);
	OK(doca_buf_inc_refcount(b[4], NULL));
	REFUSED(doca_buf_chain_list(b[0], b[4]), NOT_PERMITTED); /* two references */
	OK(doca_buf_chain_list(b[4], b[2])); /* the first list may have several references */
	REFUSED(doca_buf_chain_list(NULL, b[0]), INVALID_VALUE);
	REFUSED(doca_buf_chain_list(b[0], NULL), INVALID_VALUE);
	REFUSED(doca_buf_chain_list((void *)map, b[0]), INVALID_VALUE);
	is_list(0, 2);
	OK(doca_buf_dec_refcount(b[0], NULL));
	REFUSED(doca_buf_chain_list(b[4], b[0]), INVALID_VALUE); /* it was freed */
	OK(doca_buf_dec_refcount(b[4], NULL));
	OK(doca_buf_dec_refcount(b[4], NULL));
	end();
}

TEST(a_list_comes_apart_at_every_place)
{
	begin(6);
	for (int at = 1; at < 6; at++) {
		chain(0, 6);
		OK(doca_buf_unchain_list(b[0], b[at]));
		is_list(0, at);
		is_list(at, 6);
		OK(doca_buf_get_refcount(b[at], &count));
		CHECK_EQ(count, 1);
		for (int i = 5; i > at; i--) /* until each is unchained again */
			OK(doca_buf_unchain_list(b[at], b[i]));
		for (int i = at - 1; i > 0; i--)
			OK(doca_buf_unchain_list(b[0], b[i]));
		for (int i = 0; i < 6; i++)
			is_list(i, i + 1);
	}
	for (int i = 0; i < 6; i++)
		OK(doca_buf_dec_refcount(b[i], NULL));
	end();
}

TEST(a_list_comes_apart_from_a_member_on)
{
	begin(5);
	chain(0, 5);
	OK(doca_buf_unchain_list(b[1], b[3]));
	is_list(0, 3);
	is_list(3, 5);
	OK(doca_buf_dec_refcount(b[0], NULL));
	CHECK_EQ(free_bufs(inv), MOST - 2);
	OK(doca_buf_dec_refcount(b[3], NULL));
	end();
}

TEST(what_is_no_part_of_the_list_is_not_unchained)
{
	begin(5);
	chain(0, 3);
	chain(3, 5);
	REFUSED(doca_buf_unchain_list(b[0], b[0]), INVALID_VALUE);
	REFUSED(doca_buf_unchain_list(b[0], b[3]), INVALID_VALUE);
	REFUSED(doca_buf_unchain_list(b[0], b[4]), INVALID_VALUE);
	REFUSED(doca_buf_unchain_list(b[2], b[1]), INVALID_VALUE); /* it comes earlier */
	REFUSED(doca_buf_unchain_list(NULL, b[1]), INVALID_VALUE);
	REFUSED(doca_buf_unchain_list(b[0], NULL), INVALID_VALUE);
	REFUSED(doca_buf_unchain_list(b[0], (void *)inv), INVALID_VALUE);
	is_list(0, 3);
	is_list(3, 5);
	OK(doca_buf_dec_refcount(b[0], NULL));
	OK(doca_buf_dec_refcount(b[3], NULL));
	end();
}

TEST(a_list_is_duplicated_whole_or_not_at_all)
{
	struct doca_buf *copy, *next;
	void *head;

	begin(7);
	chain(0, 4);
	CHECK_EQ(free_bufs(inv), 5);
	OK(doca_buf_inventory_buf_dup(inv, b[0], &copy));
	CHECK_EQ(free_bufs(inv), 1);
	OK(doca_buf_get_list_len(copy, &number));
	CHECK_EQ(number, 4);
	next = copy;
	for (int i = 0; i < 4; i++) {
		CHECK(next != b[i]);
		OK(doca_buf_get_head(next, &head));
		CHECK(head == bytes + i);
		OK(doca_buf_is_first_in_list(next, &flag));
		CHECK_EQ(flag, i == 0);
		OK(doca_buf_get_next_in_list(next, &next));
	}
	CHECK(next == NULL);
	REFUSED(doca_buf_inventory_buf_dup(inv, b[0], &next), NO_MEMORY);
	CHECK_EQ(free_bufs(inv), 1);
	OK(doca_buf_dec_refcount(copy, NULL));
	is_list(0, 4);
	OK(doca_buf_dec_refcount(b[0], NULL));
	for (int i = 4; i < 7; i++)
		OK(doca_buf_dec_refcount(b[i], NULL));
	end();
}

TEST(members_of_a_list_go_back_to_their_own_inventories)
{
	struct doca_buf_inventory *other = an_inventory(1);

	begin(2);
	b[2] = a_buf(other, map, bytes, 1);
	chain(0, 3);
	OK(doca_buf_dec_refcount(b[0], NULL));
	CHECK_EQ(free_bufs(inv), MOST);
	CHECK_EQ(free_bufs(other), 1);
	OK(doca_buf_inventory_destroy(other));
	end();
}

/* Chains and unchains randomly, and compares with a plain array that holds the expected lists. */
TEST(lists_stay_lists_through_thousands_of_random_changes)
{
	int first[MOST];
	unsigned seed = 1;

	begin(MOST);
	for (int i = 0; i < MOST; i++)
		first[i] = i;
	for (int round = 0; round < 5000; round++) {
		int at = 1 + rand_r(&seed) % (MOST - 1), to = at;

		/* Members are adjacent, so a list is [first, first + length). */
		while (to < MOST && first[to] == first[at])
			to++;
		if (first[at] == at) /* a list head: append it to the list that ends before it */
			OK(doca_buf_chain_list(b[first[at - 1]], b[at]));
		else
			OK(doca_buf_unchain_list(b[first[at]], b[at]));
		for (int i = to, head = first[at] == at ? first[at - 1] : at; i-- > at;)
			first[i] = head;
		for (int i = 0, end_of; i < MOST; i = end_of) {
			for (end_of = i; end_of < MOST && first[end_of] == i;)
				end_of++;
			is_list(i, end_of);
		}
	}
	for (int i = 0; i < MOST; i++)
		if (first[i] == i)
			OK(doca_buf_dec_refcount(b[i], NULL));
	CHECK_EQ(free_bufs(inv), MOST);
	end();
}

TEST_MAIN(run_tests)
