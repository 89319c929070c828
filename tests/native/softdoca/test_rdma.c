// SPDX-License-Identifier: Apache-2.0
/* RDMA between two contexts of one process: every type of task, and misuse. */
#include "rdma_check.h"

static struct side a, b;
static struct side_offer of_a, of_b;

static void connect_both(uint32_t permissions)
{
	side_make(&a, LENT, 1);
	side_make(&b, permissions, 1);
	side_offers(&a, &of_a);
	side_offers(&b, &of_b);
	side_takes(&a, &of_b);
	side_takes(&b, &of_a);
}

/* Drops the buffers that are given, and closes both sides. */
#define close_both(...) (drop(__VA_ARGS__), side_close(&a), side_close(&b))

TEST(a_write_arrives_behind_the_data_that_is_there)
{
	connect_both(LENT);
	fill(a.bytes, 5000, 1);
	struct doca_buf *src = near_buf(&a, 0, 5000, true), *dst = peer_buf(&a, &of_b, 100, 9000, false);
	OK(doca_buf_set_data_len(dst, 11));
	SUBMIT(&a, write, a.connection, src, dst, number(1));
	side_until(&a, 1);
	CHECK_EQ(a.done, 1);
	CHECK_EQ(data_len(dst), 5011);
	CHECK_EQ(memcmp(b.bytes + 111, a.bytes, 5000), 0);
	CHECK_EQ(b.bytes[110] | b.bytes[5111], 0);
	close_both(src, dst);
}

TEST(a_read_gets_the_peers_bytes)
{
	connect_both(LENT);
	fill(b.bytes, 70000, 2);
	struct doca_buf *src = peer_buf(&a, &of_b, 0, 70000, true), *dst = near_buf(&a, 0, 70000, false);
	SUBMIT(&a, read, a.connection, src, dst, number(1));
	side_until(&a, 1);
	CHECK_EQ(a.done, 1);
	CHECK_EQ(data_len(dst), 70000);
	CHECK_EQ(memcmp(a.bytes, b.bytes, 70000), 0);
	close_both(src, dst);
}

static enum doca_rdma_opcode got;
static uint32_t got_bytes;
static doca_be32_t got_immediate;
static const struct doca_rdma_connection *got_connection;

static void on_message(struct doca_rdma_task_receive *t, union doca_data task_data,
		       union doca_data ctx_data)
{
	got = doca_rdma_task_receive_get_result_opcode(t);
	got_bytes = doca_rdma_task_receive_get_result_len(t);
	got_immediate = doca_rdma_task_receive_get_result_immediate_data(t);
	got_connection = doca_rdma_task_receive_get_result_rdma_connection(t);
	on_receive(t, task_data, ctx_data);
}

static void connect_with_messages(void)
{
	side_make(&a, LENT, 1);
	side_make(&b, LENT, 1);
	OK(doca_rdma_task_receive_set_conf(b.rdma, on_message, on_receive_error, SIDE_TASKS));
	side_offers(&a, &of_a);
	side_offers(&b, &of_b);
	side_takes(&a, &of_b);
	side_takes(&b, &of_a);
}

TEST(messages_arrive_with_their_immediate_values)
{
	connect_with_messages();
	fill(a.bytes, 300, 3);
	struct doca_buf *src = near_buf(&a, 0, 300, true), *dst = near_buf(&b, 0, 1000, false);
	SUBMIT(&b, receive, dst, number(1));
	SUBMIT(&a, send, a.connection, src, number(1));
	side_until(&b, 1);
	CHECK_EQ(got, DOCA_RDMA_OPCODE_RECV_SEND);
	CHECK_EQ(got_bytes, 300);
	CHECK_EQ(data_len(dst), 300);
	CHECK(got_connection == b.connection);
	SUBMIT(&b, receive, dst, number(2));
	SUBMIT(&a, send_imm, a.connection, src, 0xabcd, number(2));
	side_until(&b, 2);
	CHECK_EQ(got, DOCA_RDMA_OPCODE_RECV_SEND_WITH_IMM);
	CHECK_EQ(got_immediate, 0xabcd);
	CHECK_EQ(data_len(dst), 600);
	CHECK_EQ(memcmp(b.bytes + 300, a.bytes, 300), 0);
	SUBMIT(&b, receive, NULL, number(3));
	SUBMIT(&a, send_imm, a.connection, NULL, 7, number(3));
	side_until(&b, 3);
	CHECK_EQ(got_bytes, 0);
	CHECK_EQ(got_immediate, 7);
	side_until(&a, 3);
	CHECK_EQ(a.failed + b.failed, 0);
	close_both(src, dst);
}

TEST(a_write_with_an_immediate_value_uses_a_receive)
{
	connect_with_messages();
	fill(a.bytes, 64, 4);
	struct doca_buf *src = near_buf(&a, 0, 64, true), *dst = peer_buf(&a, &of_b, 8, 64, false);
	SUBMIT(&b, receive, NULL, number(1));
	SUBMIT(&a, write_imm, a.connection, src, dst, 0x01020304, number(1));
	side_until(&b, 1);
	CHECK_EQ(got, DOCA_RDMA_OPCODE_RECV_WRITE_WITH_IMM);
	CHECK_EQ(got_immediate, 0x01020304);
	CHECK_EQ(memcmp(b.bytes + 8, a.bytes, 64), 0);
	side_until(&a, 1);
	close_both(src, dst);
}

TEST(atomic_operations_return_the_old_value)
{
	connect_both(LENT);
	uint64_t *word = (uint64_t *)(void *)(b.bytes + 64), *old = (uint64_t *)(void *)a.bytes;
	struct doca_buf *dst = peer_buf(&a, &of_b, 64, 8, true), *result = near_buf(&a, 0, 64, false);
	*word = 100;
	SUBMIT(&a, atomic_fetch_add, a.connection, dst, result, 5, number(1));
	side_until(&a, 1);
	SUBMIT(&a, atomic_cmp_swp, a.connection, dst, result, 99, 1, number(2));
	side_until(&a, 2);
	SUBMIT(&a, atomic_cmp_swp, a.connection, dst, result, 105, 1, number(3));
	side_until(&a, 3);
	CHECK_EQ(a.done, 3);
	CHECK_EQ(old[0], 100);
	CHECK_EQ(old[1], 105);
	CHECK_EQ(old[2], 105);
	CHECK_EQ(*word, 1);
	CHECK_EQ(data_len(result), 24);
	close_both(dst, result);
}

TEST(tasks_complete_in_order)
{
	connect_both(LENT);
	struct doca_buf *src = near_buf(&a, 0, 30000, true), *dst = peer_buf(&a, &of_b, 0, SIDE_BYTES, false);
	for (unsigned i = 0; i < SIDE_TASKS; i++) {
		OK(doca_buf_reset_data_len(dst));
		OK(doca_buf_set_data_len(src, i % 3 ? 8 : 30000));
		SUBMIT(&a, write, a.connection, src, dst, number(i));
	}
	REFUSED(doca_buf_dec_refcount(src, NULL), IN_USE);
	side_until(&a, SIDE_TASKS);
	CHECK_EQ(a.done, SIDE_TASKS);
	for (unsigned i = 0; i < SIDE_TASKS; i++)
		CHECK_EQ(a.order[i], i);
	close_both(src, dst);
}

/* The one that fails ends the connection, on both sides; nothing is written. */
static void check_broken(void)
{
	double end = now_s() + WAIT_SECONDS;

	side_until(&a, 1);
	CHECK_EQ(a.failed, 1);
	CHECK_EQ(a.last, DOCA_ERROR_IO_FAILED);
	while (!a.disconnected && now_s() < end)
		doca_pe_progress(a.pe);
	CHECK_EQ(a.disconnected, 1);
	CHECK_EQ(b.bytes[0], 0);
}

TEST(what_the_context_does_not_permit_breaks_the_connection)
{
	side_make(&a, LENT, 1);
	side_make(&b, LENT, 1);
	OK(doca_rdma_set_permissions(b.rdma, READ_WRITE | DOCA_ACCESS_FLAG_RDMA_READ));
	side_offers(&a, &of_a);
	side_offers(&b, &of_b);
	side_takes(&a, &of_b);
	side_takes(&b, &of_a);
	fill(a.bytes, 64, 5);
	struct doca_buf *src = near_buf(&a, 0, 64, true), *dst = peer_buf(&a, &of_b, 0, 64, false);
	SUBMIT(&a, write, a.connection, src, dst, number(1));
	check_broken();
	CHECK_EQ(data_len(dst), 0);

	struct doca_rdma_task_write *t;
	OK(doca_rdma_task_write_allocate_init(a.rdma, a.connection, src, dst, number(2), &t));
	REFUSED(doca_task_submit(doca_rdma_task_write_as_task(t)), NOT_CONNECTED);
	doca_task_free(doca_rdma_task_write_as_task(t));
	close_both(src, dst);
}

TEST(a_map_that_was_stopped_is_not_written)
{
	connect_both(LENT);
	fill(a.bytes, 64, 5);
	struct doca_buf *src = near_buf(&a, 0, 64, true), *dst = peer_buf(&a, &of_b, 0, 64, false);
	OK(doca_mmap_stop(b.map));
	SUBMIT(&a, write, a.connection, src, dst, number(1));
	check_broken();
	close_both(src, dst);
}

TEST(memory_that_was_unmapped_breaks_the_connection_only)
{
	enum { PAGES = 64 << 10 }; /* of any system */

	for (int source = 0; source < 2; source++) {
		connect_both(LENT);
		struct doca_buf *src = near_buf(&a, PAGES, 64, true),
				*dst = peer_buf(&a, &of_b, PAGES, 64, false);
		struct side *s = source ? &a : &b;

		CHECK_EQ(mprotect(s->bytes + PAGES, PAGES, PROT_NONE), 0);
		SUBMIT(&a, write, a.connection, src, dst, number(1));
		check_broken();
		CHECK_EQ(mprotect(s->bytes + PAGES, PAGES, PROT_READ | PROT_WRITE), 0);
		close_both(src, dst);
	}
}

TEST(a_message_larger_than_the_receive_breaks_both_sides)
{
	connect_both(LENT);
	struct doca_buf *src = near_buf(&a, 0, 64, true), *dst = near_buf(&b, 0, 63, false);
	fill(a.bytes, 64, 5);
	SUBMIT(&b, receive, dst, number(1));
	SUBMIT(&a, send, a.connection, src, number(1));
	check_broken();
	side_until(&b, 1);
	CHECK_EQ(b.failed, 1);
	close_both(src, dst);
}

TEST(stopping_flushes_what_waits)
{
	connect_both(LENT);
	struct doca_buf *src = near_buf(&a, 0, 64, true), *dst = near_buf(&a, 64, 64, false);
	SUBMIT(&a, receive, dst, number(1));
	SUBMIT(&a, send, a.connection, src, number(2)); /* the peer has no receive */
	REFUSED(doca_ctx_stop(a.ctx), IN_PROGRESS);
	side_stop(&a);
	CHECK_EQ(a.failed, 2);
	CHECK_EQ(a.last, DOCA_ERROR_IO_FAILED);
	close_both(src, dst);
}

TEST(a_connection_that_ended_makes_room_for_another)
{
	connect_both(LENT);
	const void *bytes;
	size_t len;
	struct doca_rdma_connection *more;
	REFUSED(doca_rdma_export(a.rdma, &bytes, &len, &more), FULL);
	OK(doca_rdma_connection_disconnect(a.connection));
	for (int i = 0; i < 10; i++)
		doca_pe_progress(a.pe);
	CHECK_EQ(a.disconnected, 0);
	REFUSED(doca_rdma_connection_disconnect(a.connection), INVALID_VALUE);
	OK(doca_rdma_export(a.rdma, &bytes, &len, &more));
	REFUSED(doca_rdma_connection_disconnect(more), BAD_STATE);
	close_both();
}

/* Two connections of one context: each gets a receive though only one was submitted for each. */
TEST(connections_share_the_receives_of_their_context)
{
	static struct side_offer more;
	struct doca_rdma_connection *second;

	side_make(&a, LENT, 2);
	side_make(&b, LENT, 2);
	side_offers(&a, &of_a);
	side_offers(&b, &of_b);
	struct doca_buf *src = near_buf(&a, 0, 8, true), *dst = near_buf(&b, 0, 64, false);
	SUBMIT(&b, receive, dst, number(1));
	side_takes(&a, &of_b);
	side_takes(&b, &of_a);
	SUBMIT(&a, send, a.connection, src, number(1));
	side_until(&b, 1);
	second = offer_connection(&a, &of_a);
	struct doca_rdma_connection *second_of_b = offer_connection(&b, &more);
	OK(doca_rdma_connect(a.rdma, more.blob, more.blob_len, second));
	OK(doca_rdma_connect(b.rdma, of_a.blob, of_a.blob_len, second_of_b));
	SUBMIT(&b, receive, dst, number(2));
	SUBMIT(&b, receive, dst, number(3));
	SUBMIT(&a, send, second, src, number(2));
	SUBMIT(&a, send, a.connection, src, number(3));
	side_until(&b, 3);
	side_until(&a, 3);
	CHECK_EQ(a.done + b.done, 6);
	close_both(src, dst);
}

TEST(bytes_of_another_kind_are_no_connection)
{
	side_make(&a, LENT, 1);
	side_offers(&a, &of_a);
	of_b = of_a;
	REFUSED(doca_rdma_connect(a.rdma, of_a.blob, of_a.blob_len - 1, a.connection), CONNECTION_ABORTED);
	REFUSED(doca_rdma_connect(a.rdma, of_a.desc, of_a.desc_len, a.connection), CONNECTION_ABORTED);
	for (size_t i = 0; i < of_a.blob_len; i++) {
		of_b.blob[i] ^= 1;
		REFUSED(doca_rdma_connect(a.rdma, of_b.blob, of_b.blob_len, a.connection), CONNECTION_ABORTED);
		of_b.blob[i] ^= 1;
	}
	side_close(&a);
}

TEST(buffers_that_do_not_fit_are_refused)
{
	connect_both(LENT);
	struct doca_buf *near = near_buf(&a, 0, 64, true), *far = peer_buf(&a, &of_b, 0, 63, false);
	struct doca_rdma_task_write *t;
	OK(doca_rdma_task_write_allocate_init(a.rdma, a.connection, near, far, number(1), &t));
	struct doca_task *task = doca_rdma_task_write_as_task(t);
	REFUSED(doca_task_submit(task), INVALID_VALUE); /* no room */
	doca_rdma_task_write_set_dst_buf(t, near);
	REFUSED(doca_task_submit(task), INVALID_VALUE); /* not the peer's */
	doca_rdma_task_write_set_src_buf(t, far);
	REFUSED(doca_task_submit(task), INVALID_VALUE); /* not local */
	doca_rdma_task_write_set_dst_buf(t, NULL);
	REFUSED(doca_task_submit(task), INVALID_VALUE);
	CHECK(doca_rdma_task_write_get_src_buf(t) == far);
	doca_task_free(task);
	CHECK_EQ(a.done + a.failed, 0);
	close_both(near, far);
}

/* A list of n buffers of sizes 100, 200 ... with a gap behind each. */
static struct doca_buf *list_of(struct side *s, size_t offset, uint32_t n, bool full)
{
	struct doca_buf *first = near_buf(s, offset, 100, full);

	for (uint32_t i = 1; i < n; i++)
		OK(doca_buf_chain_list(first, near_buf(s, offset + i * 1000, (i + 1) * 100, full)));
	return first;
}

/* Checks the bytes of such a list against those of one buffer, and what each has got. */
static void check_list_of(const struct side *s, size_t offset, uint32_t n, const uint8_t *all, size_t bytes)
{
	size_t at = 0;

	for (uint32_t i = 0; i < n && at < bytes; i++) {
		const size_t room = (i + 1) * 100, part = bytes - at < room ? bytes - at : room;

		CHECK_EQ(memcmp(s->bytes + offset + i * 1000, all + at, part), 0);
		at += part;
	}
	CHECK_EQ(at, bytes);
}

TEST(lists_are_gathered_and_scattered)
{
	connect_both(LENT);
	fill(a.bytes, 4096, 1);
	fill(b.bytes + 65536, 4096, 2);
	for (unsigned i = 0; i < 200; i++) { /* the rings are used again */
		const unsigned before = a.done;
		struct doca_buf *src = list_of(&a, 0, 4, true), *into = list_of(&a, 8192, 3, false),
				*message = list_of(&b, 16384, 4, false),
				*to = peer_buf(&a, &of_b, 0, 1000, false),
				*from = peer_buf(&a, &of_b, 65536, 350, true);

		SUBMIT(&b, receive, message, number(0));
		SUBMIT(&a, write, a.connection, src, to, number(1));
		SUBMIT(&a, read, a.connection, from, into, number(2));
		SUBMIT(&a, send, a.connection, src, number(3));
		side_until(&a, before + 3);
		side_until(&b, i + 1);
		CHECK_EQ(a.done, before + 3);
		CHECK_EQ(data_len(to), 1000);
		CHECK_EQ(data_len(into), 100); /* of its first buffer */
		drop(src, into, message, to, from);
	}
	check_list_of(&a, 0, 4, b.bytes, 1000);
	check_list_of(&a, 8192, 3, b.bytes + 65536, 350);
	for (unsigned i = 0; i < 4; i++)
		CHECK_EQ(memcmp(b.bytes + 16384 + i * 1000, a.bytes + i * 1000, (i + 1) * 100), 0);
	close_both();
}

TEST(lists_that_are_too_long_or_no_lists_are_refused)
{
	struct doca_rdma_task_write *t;
	struct doca_buf *second;
	uint32_t n;

	connect_both(LENT);
	OK(doca_rdma_cap_get_max_send_buf_list_len(doca_dev_as_devinfo(a.dev), &n));
	CHECK_EQ(n, 4);
	struct doca_buf *list = list_of(&a, 0, 5, true), *far = peer_buf(&a, &of_b, 0, 4096, false),
			*two = list_of(&a, 8192, 2, true);
	OK(doca_rdma_task_write_allocate_init(a.rdma, a.connection, list, far, number(1), &t));
	REFUSED(doca_task_submit(doca_rdma_task_write_as_task(t)), INVALID_VALUE);
	OK(doca_buf_get_next_in_list(two, &second));
	doca_rdma_task_write_set_src_buf(t, second);
	REFUSED(doca_task_submit(doca_rdma_task_write_as_task(t)), INVALID_VALUE);
	doca_task_free(doca_rdma_task_write_as_task(t));
	close_both(list, two, far);
}

TEST(what_is_set_too_late_or_out_of_range_is_refused)
{
	uint32_t n;

	side_make(&a, LENT, 1);
	REFUSED(doca_rdma_set_permissions(a.rdma, PCI_RW), INVALID_VALUE);
	REFUSED(doca_rdma_set_send_queue_size(a.rdma, 0), INVALID_VALUE);
	REFUSED(doca_rdma_set_recv_queue_size(a.rdma, 32769), INVALID_VALUE);
	REFUSED(doca_rdma_set_max_num_connections(a.rdma, 257), INVALID_VALUE);
	REFUSED(doca_rdma_set_grh_enabled(a.rdma, 2), INVALID_VALUE);
	REFUSED(doca_rdma_set_gid_index(a.rdma, 256), INVALID_VALUE);
	REFUSED(doca_rdma_set_transport_type(a.rdma, DOCA_RDMA_TRANSPORT_TYPE_DC), NOT_SUPPORTED);
	REFUSED(doca_rdma_task_send_set_conf(a.rdma, on_send, NULL, 1), INVALID_VALUE);
	REFUSED(doca_rdma_task_send_set_conf(a.rdma, on_send, on_send_error, 0), INVALID_VALUE);
	OK(doca_rdma_set_send_queue_size(a.rdma, 32768));
	OK(doca_rdma_get_send_queue_size(a.rdma, &n));
	CHECK_EQ(n, 32768);
	side_offers(&a, &of_a);
	REFUSED(doca_rdma_set_permissions(a.rdma, READ_WRITE), BAD_STATE);
	REFUSED(doca_rdma_set_send_queue_size(a.rdma, 1), BAD_STATE);
	REFUSED(doca_rdma_task_send_set_conf(a.rdma, on_send, on_send_error, 1), BAD_STATE);
	REFUSED(doca_rdma_set_connection_state_callbacks(a.rdma, NULL, NULL, NULL, NULL), BAD_STATE);
	REFUSED(doca_rdma_destroy(a.rdma), BAD_STATE);
	side_close(&a);
}

static struct doca_sync_event *event_of_b(struct doca_sync_event_remote_net **far)
{
	struct doca_sync_event *e;
	const uint8_t *bytes;
	size_t len;

	OK(doca_sync_event_create(&e));
	OK(doca_sync_event_add_publisher_location_remote_net(e));
	OK(doca_sync_event_add_subscriber_location_cpu(e, b.dev));
	OK(doca_sync_event_start(e));
	OK(doca_sync_event_export_to_remote_net(e, &bytes, &len));
	OK(doca_sync_event_remote_net_create_from_export(a.dev, bytes, len, far));
	return e;
}

TEST(tasks_on_a_sync_event_follow_the_tasks_before_them)
{
	static const uint64_t five = 5;
	struct doca_sync_event_remote_net *far;
	uint64_t value;

	connect_both(LENT);
	struct doca_sync_event *e = event_of_b(&far);
	struct doca_buf *src = near_buf(&a, 0, 4096, true), *word = near_buf(&a, 4096, 8, true),
			*got_it = near_buf(&a, 8192, 8, false), *old = near_buf(&a, 12288, 8, false),
			*dst = peer_buf(&a, &of_b, 0, 4096, false);
	fill(a.bytes, 4096, 4);
	memcpy(a.bytes + 4096, &five, 8);
	SUBMIT(&a, write, a.connection, src, dst, number(1));
	SUBMIT(&a, remote_net_sync_event_notify_set, a.connection, far, word, number(2));
	SUBMIT(&a, remote_net_sync_event_notify_add, a.connection, far, old, 10, number(3));
	SUBMIT(&a, remote_net_sync_event_get, a.connection, far, got_it, number(4));
	side_until(&a, 4);
	CHECK_EQ(a.done, 4);
	for (uint64_t i = 0; i < 4; i++)
		CHECK_EQ(a.order[i], i + 1);
	OK(doca_sync_event_get(e, &value));
	CHECK_EQ(value, 15);
	CHECK_EQ(memcmp(b.bytes, a.bytes, 4096), 0);
	CHECK_EQ(data_len(old), 8);
	CHECK_EQ(memcmp(a.bytes + 12288, &five, 8), 0);
	CHECK_EQ(memcmp(a.bytes + 8192, &value, 8), 0);
	OK(doca_sync_event_stop(e));
	OK(doca_sync_event_destroy(e));
	SUBMIT(&a, remote_net_sync_event_notify_set, a.connection, far, word, number(5));
	side_until(&a, 5);
	CHECK_EQ(a.last, DOCA_ERROR_IO_FAILED); /* the event has ended, the connection goes on */
	OK(doca_buf_reset_data_len(dst));
	SUBMIT(&a, write, a.connection, src, dst, number(6));
	side_until(&a, 6);
	CHECK_EQ(a.last, DOCA_SUCCESS);
	OK(doca_sync_event_remote_net_destroy(far));
	close_both(src, word, got_it, old, dst);
}

TEST(a_task_on_a_sync_event_needs_an_event_and_a_word)
{
	struct doca_rdma_task_remote_net_sync_event_notify_set *t;
	struct doca_sync_event_remote_net *far;

	connect_both(LENT);
	struct doca_sync_event *e = event_of_b(&far);
	struct doca_buf *word = near_buf(&a, 0, 8, true), *half = near_buf(&a, 0, 4, true);
	OK(doca_rdma_task_remote_net_sync_event_notify_set_allocate_init(a.rdma, a.connection, far, word,
									 number(1), &t));
	doca_rdma_task_remote_net_sync_event_notify_set_set_src_buf(t, half);
	REFUSED(doca_task_submit(doca_rdma_task_remote_net_sync_event_notify_set_as_task(t)), INVALID_VALUE);
	doca_rdma_task_remote_net_sync_event_notify_set_set_src_buf(t, NULL);
	REFUSED(doca_task_submit(doca_rdma_task_remote_net_sync_event_notify_set_as_task(t)), INVALID_VALUE);
	doca_rdma_task_remote_net_sync_event_notify_set_set_src_buf(t, word);
	OK(doca_sync_event_remote_net_destroy(far));
	REFUSED(doca_task_submit(doca_rdma_task_remote_net_sync_event_notify_set_as_task(t)), INVALID_VALUE);
	doca_task_free(doca_rdma_task_remote_net_sync_event_notify_set_as_task(t));
	OK(doca_sync_event_stop(e));
	OK(doca_sync_event_destroy(e));
	close_both(word, half);
}

static void stop_in_callback(struct doca_rdma_task_send *t, union doca_data task_data,
			     union doca_data ctx_data)
{
	struct side *s = ctx_data.ptr;

	(void)task_data;
	doca_task_free(doca_rdma_task_send_as_task(t));
	drop((struct doca_buf *)(uintptr_t)doca_rdma_task_send_get_src_buf(t)); /* of a freed task */
	s->last = doca_ctx_stop(s->ctx);
	s->done++;
}

TEST(a_stop_in_a_callback_ends_after_it)
{
	enum doca_ctx_states state;

	side_make(&a, LENT, 1);
	side_make(&b, LENT, 1);
	OK(doca_rdma_task_send_set_conf(a.rdma, stop_in_callback, on_send_error, SIDE_TASKS));
	side_offers(&a, &of_a);
	side_offers(&b, &of_b);
	side_takes(&a, &of_b);
	side_takes(&b, &of_a);
	struct doca_buf *dst = near_buf(&b, 0, 8, false);
	SUBMIT(&b, receive, dst, number(1));
	SUBMIT(&a, send, a.connection, near_buf(&a, 0, 8, true), number(2));
	side_until(&a, 1);
	CHECK_EQ(a.last, DOCA_ERROR_IN_PROGRESS);
	OK(doca_ctx_get_state(a.ctx, &state));
	CHECK_EQ(state, DOCA_CTX_STATE_IDLE);
	side_until(&b, 1);
	close_both(dst);
}

TEST(a_context_without_tasks_serves_its_peer)
{
	struct doca_rdma *r;

	side_make(&a, LENT, 1);
	side_make(&b, LENT, 1);
	r = b.rdma;
	OK(doca_rdma_create(b.dev, &b.rdma));
	OK(doca_rdma_set_permissions(b.rdma, LENT));
	OK(doca_rdma_destroy(r));
	b.ctx = doca_rdma_as_ctx(b.rdma);
	OK(doca_pe_connect_ctx(b.pe, b.ctx));
	side_offers(&a, &of_a);
	side_offers(&b, &of_b);
	side_takes(&a, &of_b);
	side_takes(&b, &of_a);
	struct doca_buf *src = near_buf(&a, 0, 8, true), *dst = peer_buf(&a, &of_b, 0, 8, false);
	fill(a.bytes, 8, 1);
	SUBMIT(&a, write, a.connection, src, dst, number(1));
	side_until(&a, 1);
	CHECK_EQ(a.done, 1);
	CHECK_EQ(memcmp(a.bytes, b.bytes, 8), 0);
	close_both(src, dst);
}

TEST(a_program_that_waits_is_woken)
{
	connect_both(LENT);
	struct doca_buf *src = near_buf(&a, 0, 64, true), *dst = near_buf(&b, 0, 64, false);
	doca_notification_handle_t handle;
	double end = now_s() + WAIT_SECONDS;
	OK(doca_pe_get_notification_handle(b.pe, &handle));
	SUBMIT(&b, receive, dst, number(1));
	SUBMIT(&a, send, a.connection, src, number(1));
	while (!b.done && now_s() < end) {
		OK(doca_pe_request_notification(b.pe));
		struct pollfd p = {.fd = handle, .events = POLLIN};
		CHECK_EQ(poll(&p, 1, WAIT_SECONDS * 1000), 1);
		OK(doca_pe_clear_notification(b.pe, 0));
		while (doca_pe_progress(b.pe))
			;
	}
	CHECK_EQ(b.done, 1);
	side_until(&a, 1);
	close_both(src, dst);
}

static const void *bytes_out;
static size_t len_out;
static struct doca_rdma_connection *connection_out;
static struct doca_rdma_task_receive *receive_out;

CALL(destroy, doca_rdma_destroy(h))
CALL(export, doca_rdma_export(h, &bytes_out, &len_out, &connection_out))
CALL(disconnect, doca_rdma_connection_disconnect(h))
CALL(alloc, doca_rdma_task_receive_allocate_init(h, NULL, number(0), &receive_out))

TEST(invalid_handles_are_refused)
{
	struct doca_mmap *m;

	OK(doca_mmap_create(&m));
	void *const handles[] = NO_HANDLES(m);
	all_refuse(handles, sizeof handles / sizeof *handles);
	CHECK(!doca_rdma_as_ctx((void *)m));
	CHECK(!doca_rdma_task_send_as_task((void *)m));
	CHECK(!doca_rdma_task_send_get_src_buf((void *)m));
	OK(doca_mmap_destroy(m));
}

TEST_MAIN(run_tests)
