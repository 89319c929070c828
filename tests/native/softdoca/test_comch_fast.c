// SPDX-License-Identifier: Apache-2.0
/* Comch's fast path with both sides in one process: the behavior of consumers and producers, and
 * invalid input. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "fast_check.h"
#include "fork_check.h"

#define SIZE ((size_t)8 << 20)

static struct side s, c;

static void a_pair_of_ends(struct end *to, struct end *from, uint32_t *id)
{
	a_fast_pair(&s, &c, "fast");
	*id = a_consumer(to, &s, SIZE);
	UNTIL(&c, of_client.added);
	CHECK_EQ(of_client.last, *id);
	a_producer(from, &c, SIZE);
}

static void done(struct end *to, struct end *from)
{
	close_end(from);
	close_end(to);
	UNTIL(&c, of_client.expired);
	both_stopped(&s, &c);
}

/* ---- messages ---- */

static void check_imm(struct end *e, struct doca_comch_consumer_task_post_recv *task)
{
	uint32_t n = doca_comch_consumer_task_post_recv_get_imm_data_len(task);
	const uint8_t *imm = doca_comch_consumer_task_post_recv_get_imm_data(task);

	CHECK(n == 5 && !memcmp(imm, "apart", 5));
	e->last_error = doca_comch_consumer_task_post_recv_get_producer_id(task);
	doca_task_free(doca_comch_consumer_task_post_recv_as_task(task));
}

TEST(a_message_arrives_with_its_immediate_data_and_its_producer)
{
	struct end to = {.on_received = check_imm}, from = {0};
	uint32_t id, producer;

	a_pair_of_ends(&to, &from, &id);
	struct doca_buf *in = room_at(&to, 0, 100), *out = data_at(&from, 0, 11);
	memcpy(from.bytes, "hello there", 11);
	OK(doca_comch_producer_get_id(from.producer, &producer));
	receive_into(&to, in);
	OK(doca_task_submit(a_send(&from, out, "apart", id)));
	UNTIL(&from, from.done);
	UNTIL(&to, to.done);
	CHECK_EQ(data_len(in), 11);
	CHECK(!memcmp(to.bytes, "hello there", 11));
	CHECK(producer && (uint32_t)to.last_error == producer);
	let_go(in);
	let_go(out);
	done(&to, &from);
}

TEST(a_send_is_again_until_there_is_a_receive_and_each_takes_one)
{
	struct end to = {0}, from = {0};
	uint32_t id;

	a_pair_of_ends(&to, &from, &id);
	struct doca_buf *in = room_at(&to, 0, 10), *out = data_at(&from, 0, 5);
	struct doca_task *first = a_send(&from, out, NULL, id);
	REFUSED(doca_task_submit(first), AGAIN);
	REFUSED(doca_task_try_submit(first), AGAIN);
	receive_into(&to, in);
	OK(doca_task_submit(first));
	struct doca_task *second = a_send(&from, out, NULL, id);
	REFUSED(doca_task_submit(second), AGAIN);
	UNTIL(&to, to.done);
	REFUSED(doca_task_submit(second), AGAIN);
	receive_into(&to, in); /* appended to the data that it already has */
	OK(doca_task_submit(second));
	UNTIL(&from, from.done == 2);
	UNTIL(&to, to.done == 2);
	CHECK_EQ(data_len(in), 10);
	let_go(in);
	let_go(out);
	done(&to, &from);
}

TEST(messages_of_all_sizes_arrive)
{
	static const size_t sizes[] = {1,     63,    4096,        32767,   32768,
				       32769, 65536, 1 << 20, (5 << 20) + 7};
	struct end to = {0}, from = {0};
	uint32_t id;

	a_pair_of_ends(&to, &from, &id);
	for (size_t i = 0; i < SIZE; i++)
		from.bytes[i] = (uint8_t)(i * 31 + (i >> 11));
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct doca_buf *in = room_at(&to, 3, SIZE - 3);
		struct doca_buf *out = data_at(&from, 5 + i, sizes[i]);

		memset(to.bytes, 0, SIZE);
		receive_into(&to, in);
		OK(doca_task_submit(a_send(&from, out, NULL, id)));
		UNTIL(&from, from.done == i + 1);
		UNTIL(&to, to.done == i + 1);
		CHECK_EQ(data_len(in), sizes[i]);
		CHECK(!memcmp(to.bytes + 3, from.bytes + 5 + i, sizes[i]));
		CHECK(!to.bytes[3 + sizes[i]] && !to.bytes[2]);
		let_go(in);
		let_go(out);
	}
	done(&to, &from);
}

TEST(lists_are_gathered_and_scattered)
{
	for (size_t piece = 100; piece <= 100000; piece *= 1000) {
		struct end to = {0}, from = {0};
		uint32_t id;

		memset(&of_client, 0, sizeof(of_client));
		a_pair_of_ends(&to, &from, &id);
		struct doca_buf *in = room_at(&to, 0, 2 * piece), *out = data_at(&from, 0, piece);
		OK(doca_buf_chain_list(in, room_at(&to, 3 * piece, 5 * piece)));
		OK(doca_buf_chain_list(out, data_at(&from, 2 * piece, 3 * piece)));
		for (size_t i = 0; i < 8 * piece; i++)
			from.bytes[i] = (uint8_t)(i / 7);
		receive_into(&to, in);
		OK(doca_task_submit(a_send(&from, out, NULL, id)));
		UNTIL(&from, from.done);
		UNTIL(&to, to.done);
		CHECK_EQ(data_len(in), 2 * piece);
		CHECK(!memcmp(to.bytes, from.bytes, piece));
		CHECK(!memcmp(to.bytes + piece, from.bytes + 2 * piece, piece));
		CHECK(!memcmp(to.bytes + 3 * piece, from.bytes + 3 * piece, 2 * piece));
		let_go(in);
		let_go(out);
		done(&to, &from);
	}
}

TEST(immediate_data_alone_needs_no_buffer)
{
	struct end to = {.on_received = check_imm}, from = {0};
	uint32_t id;

	a_pair_of_ends(&to, &from, &id);
	receive_into(&to, NULL);
	OK(doca_task_submit(a_send(&from, NULL, "apart", id)));
	UNTIL(&from, from.done);
	UNTIL(&to, to.done);
	done(&to, &from);
}

TEST(a_message_above_its_buffer_fails_that_receive_alone)
{
	struct end to = {0}, from = {0};
	uint32_t id;

	a_pair_of_ends(&to, &from, &id);
	for (size_t size = 11; size <= 110000; size *= 10000) {
		struct doca_buf *small = room_at(&to, 0, 10), *large = room_at(&to, 16, SIZE - 16);
		struct doca_buf *out = data_at(&from, 0, size);

		memset(from.bytes, 7, size);
		memset(to.bytes, 0, SIZE);
		to.done = to.failed = 0;
		receive_into(&to, small);
		receive_into(&to, large);
		OK(doca_task_submit(a_send(&from, out, NULL, id)));
		OK(doca_task_submit(a_send(&from, out, NULL, id)));
		UNTIL(&to, to.done && to.failed);
		CHECK_EQ(to.last_error, DOCA_ERROR_IO_FAILED);
		CHECK_EQ(data_len(small), 0);
		CHECK_EQ(data_len(large), size);
		CHECK(!to.bytes[10] && !to.bytes[15]); /* nothing is written beyond it */
		CHECK_EQ(end_state(&to), DOCA_CTX_STATE_RUNNING);
		let_go(small);
		let_go(large);
		let_go(out);
	}
	UNTIL(&from, from.done == 4);
	done(&to, &from);
}

TEST(memory_that_is_no_longer_accessible_fails_the_task)
{
	struct end to = {0}, from = {0};
	uint32_t id;

	a_pair_of_ends(&to, &from, &id);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	struct doca_mmap *m = a_started_map(c.dev, at, page, READ_WRITE);
	struct doca_buf *out, *in = room_at(&to, 0, page);
	OK(doca_buf_inventory_buf_get_by_data(from.inv, m, at, page, &out));
	CHECK_EQ(mprotect(at, page, PROT_NONE), 0);
	receive_into(&to, in);
	OK(doca_task_submit(a_send(&from, out, NULL, id)));
	UNTIL(&from, from.failed);
	CHECK_EQ(from.last_error, DOCA_ERROR_IO_FAILED);
	/* The receive is still available for another message. */
	CHECK_EQ(mprotect(at, page, PROT_READ), 0);
	OK(doca_task_submit(a_send(&from, out, NULL, id)));
	UNTIL(&from, from.done);
	UNTIL(&to, to.done);
	CHECK_EQ(data_len(in), page);
	let_go(in);
	let_go(out);
	OK(doca_mmap_destroy(m));
	munmap(at, 2 * page);
	done(&to, &from);
}

/* ---- ends ---- */

TEST(a_consumer_that_stops_flushes_its_receives_and_expires)
{
	struct end to = {0}, from = {0};
	uint32_t id;

	a_pair_of_ends(&to, &from, &id);
	struct doca_buf *in = room_at(&to, 0, 100), *out = data_at(&from, 0, 100);
	receive_into(&to, in);
	receive_into(&to, in);
	REFUSED(doca_ctx_stop(to.ctx), IN_PROGRESS);
	struct doca_task *late = a_send(&from, out, NULL, id);
	REFUSED(doca_task_submit(late), NOT_CONNECTED); /* before its side has learned of it */
	UNTIL(&to, end_state(&to) == DOCA_CTX_STATE_IDLE);
	CHECK_EQ(to.failed, 2);
	CHECK_EQ(to.last_error, DOCA_ERROR_IO_FAILED);
	CHECK(!strcmp(to.states, "SRPI"));
	UNTIL(&c, of_client.expired);
	REFUSED(doca_task_submit(late), INVALID_VALUE); /* the id is unknown */
	doca_task_free(late);
	/* The same consumer can start again, and appears to the other side as a new one. */
	REFUSED(doca_ctx_start(to.ctx), IN_PROGRESS);
	UNTIL(&to, end_state(&to) == DOCA_CTX_STATE_RUNNING);
	UNTIL(&c, of_client.added == 2);
	receive_into(&to, in);
	OK(doca_task_submit(a_send(&from, out, NULL, id)));
	UNTIL(&to, to.done);
	UNTIL(&from, from.done);
	let_go(in);
	let_go(out);
	of_client.expired = 0;
	done(&to, &from);
}

/* Public programs end like this: they free buffers and tasks in flight, and stop. */
TEST(receives_that_are_freed_in_flight_keep_nothing_alive)
{
	struct doca_comch_consumer_task_post_recv *task[8];
	struct end to = {0}, from = {0};
	struct doca_buf *in[8];
	uint32_t id;

	a_pair_of_ends(&to, &from, &id);
	for (int i = 0; i < 8; i++) {
		in[i] = room_at(&to, 0, 10);
		task[i] = a_receive(&to, in[i]);
		OK(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(task[i])));
	}
	for (int i = 0; i < 8; i++) {
		let_go(in[i]);
		doca_task_free(doca_comch_consumer_task_post_recv_as_task(task[i]));
	}
	size_t n;
	OK(doca_ctx_get_num_inflight_tasks(to.ctx, &n));
	CHECK_EQ(n, 0);
	struct doca_buf *out = data_at(&from, 0, 10);
	struct doca_task *send = a_send(&from, out, NULL, id);
	REFUSED(doca_task_submit(send), AGAIN); /* none of them counts any more */
	doca_task_free(send);
	let_go(out);
	CHECK_EQ(to.ended, 0); /* no callback */
	OK(doca_ctx_stop(to.ctx));
	done(&to, &from);
}

/* Sends until some messages wait, while the consumer receives nothing. */
static uint32_t fill_channel(struct end *to, struct end *from, struct doca_buf *in,
			     struct doca_buf *out, uint32_t id)
{
	size_t waiting = 0;
	uint32_t n = 0;

	for (; waiting < 4; n++) {
		receive_into(to, in);
		OK(doca_task_submit(a_send(from, out, NULL, id)));
		while (doca_pe_progress(from->pe))
			;
		OK(doca_ctx_get_num_inflight_tasks(from->ctx, &waiting));
	}
	return n;
}

TEST(sends_wait_for_a_full_channel_and_keep_their_order)
{
	struct end to = {0}, from = {0};
	uint32_t id;

	a_pair_of_ends(&to, &from, &id);
	struct doca_buf *in = room_at(&to, 0, SIZE), *out = data_at(&from, 0, 30000);
	for (size_t i = 0; i < 30000; i++)
		from.bytes[i] = (uint8_t)(i >> 5);
	uint32_t n = fill_channel(&to, &from, in, out, id);
	UNTIL2(&to, &from, to.done == n && from.done == n);
	CHECK_EQ(data_len(in), n * 30000);
	for (uint32_t i = 0; i < n; i++)
		CHECK(!memcmp(to.bytes + i * 30000, from.bytes, 30000));
	let_go(in);
	let_go(out);
	done(&to, &from);
}

TEST(a_consumer_that_ends_fails_the_sends_that_wait_for_it)
{
	for (int known = 0; known < 2; known++) {
		struct end to = {0}, from = {0};
		uint32_t id;

		memset(&of_client, 0, sizeof(of_client));
		a_pair_of_ends(&to, &from, &id);
		struct doca_buf *in = room_at(&to, 0, SIZE), *out = data_at(&from, 0, 30000);
		uint32_t n = fill_channel(&to, &from, in, out, id);
		stop_end(&to);
		if (known)
			UNTIL(&c, of_client.expired);
		UNTIL(&from, from.ended == n);
		CHECK_EQ(from.failed, 4);
		CHECK_EQ(from.last_error, DOCA_ERROR_CONNECTION_RESET);
		CHECK_EQ(end_state(&from), DOCA_CTX_STATE_RUNNING);
		let_go(in);
		let_go(out);
		done(&to, &from);
	}
}

TEST(a_producer_that_stops_flushes_the_sends_that_wait)
{
	struct end to = {0}, from = {0};
	uint32_t id;

	a_pair_of_ends(&to, &from, &id);
	struct doca_buf *in = room_at(&to, 0, SIZE), *out = data_at(&from, 0, 30000);
	uint32_t n = fill_channel(&to, &from, in, out, id);
	stop_end(&from);
	CHECK_EQ(from.failed, 4);
	CHECK_EQ(from.last_error, DOCA_ERROR_IO_FAILED);
	UNTIL(&to, to.done == n - 4);
	let_go(in);
	let_go(out);
	done(&to, &from);
}

TEST(the_end_of_the_connection_ends_both)
{
	struct end to = {0}, from = {0}, back = {0};
	uint32_t id;

	a_pair_of_ends(&to, &from, &id);
	a_producer(&back, &s, 100);
	struct doca_buf *in = room_at(&to, 0, 100), *out = data_at(&from, 0, 100);
	receive_into(&to, in);
	REFUSED(doca_comch_server_disconnect(s.server, s.peer), IN_USE);
	OK(doca_ctx_stop(c.ctx));
	UNTIL(&from, end_state(&from) == DOCA_CTX_STATE_IDLE);
	CHECK(!strcmp(from.states, "RPI"));
	UNTIL(&to, end_state(&to) == DOCA_CTX_STATE_IDLE);
	CHECK_EQ(to.failed, 1);
	REFUSED(doca_ctx_start(from.ctx), NOT_CONNECTED);
	UNTIL(&s, s.disconnects);
	UNTIL(&back, end_state(&back) == DOCA_CTX_STATE_IDLE);
	let_go(in);
	let_go(out);
	destroy_end(&from);
	destroy_end(&to);
	destroy_end(&back);
	both_stopped(&s, &c);
}

static void on_disconnect(struct side *side, struct doca_comch_connection *connection)
{
	CHECK(side == &s && connection == s.peer);
	CHECK_EQ(of_server.expired, 1);
}

TEST(consumers_expire_before_their_connection)
{
	struct end to = {0};

	a_fast_pair(&s, &c, "fast");
	a_consumer(&to, &c, 100);
	UNTIL(&s, of_server.added);
	s.on_disconnect = on_disconnect;
	OK(doca_ctx_stop(c.ctx));
	UNTIL(&s, s.disconnects);
	UNTIL(&to, end_state(&to) == DOCA_CTX_STATE_IDLE);
	destroy_end(&to);
	both_stopped(&s, &c);
}

TEST(a_program_may_sleep_at_every_end)
{
	struct end to = {0}, from = {0};
	uint32_t id;

	a_fast_pair(&s, &c, "fast");
	make_consumer(&to, &s, SIZE);
	REFUSED(doca_ctx_start(to.ctx), IN_PROGRESS);
	wake_end(&to);
	CHECK_EQ(end_state(&to), DOCA_CTX_STATE_RUNNING);
	while (!of_client.added)
		wake_up(&c);
	id = of_client.last;
	a_producer(&from, &c, SIZE);
	struct doca_buf *in = room_at(&to, 0, SIZE), *out = data_at(&from, 0, 30000);
	for (uint32_t i = 1; i <= 100; i++) {
		receive_into(&to, in);
		OK(doca_task_submit(a_send(&from, out, NULL, id)));
		wake_end(&from);
		CHECK_EQ(from.done, i);
		wake_end(&to);
		CHECK_EQ(to.done, i);
	}
	OK(doca_buf_reset_data_len(in));
	uint32_t n = fill_channel(&to, &from, in, out, id), before = from.done;
	CHECK(before < 100 + n);
	wake_end(&to); /* takes all messages, so there is space again */
	while (from.done < 100 + n) {
		wake_end(&from);
		while (doca_pe_progress(to.pe))
			;
	}
	OK(doca_ctx_stop(c.ctx));
	while (end_state(&to) != DOCA_CTX_STATE_IDLE)
		wake_end(&to);
	while (end_state(&from) != DOCA_CTX_STATE_IDLE)
		wake_end(&from);
	let_go(in);
	let_go(out);
	destroy_end(&from);
	destroy_end(&to);
	both_stopped(&s, &c);
}

/* ---- threads: one for each end, and one for the connections ---- */

enum { THREADS = 3, EACH = 2000 };
static atomic_uint ids[THREADS], finished;

static void again(struct end *e, struct doca_comch_consumer_task_post_recv *task)
{
	struct doca_buf *b = doca_comch_consumer_task_post_recv_get_buf(task);
	void *at;

	OK(doca_buf_get_data(b, &at));
	CHECK_EQ(data_len(b), 100);
	CHECK_EQ(((uint8_t *)at)[99], (uint8_t)((e->done - 1) * 3));
	OK(doca_buf_reset_data_len(b));
	if (e->done + FAST_TASKS / 2 <= EACH)
		OK(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(task)));
	else
		doca_task_free(doca_comch_consumer_task_post_recv_as_task(task));
}

static void *consume(void *arg)
{
	struct end to = {.on_received = again};
	struct doca_buf *in[FAST_TASKS / 2];
	uint32_t i;

	i = (uint32_t)(uintptr_t)arg;
	uint32_t id = a_consumer(&to, &s, 100 * FAST_TASKS);
	for (uint32_t k = 0; k < FAST_TASKS / 2; k++) {
		in[k] = room_at(&to, 100 * k, 100);
		receive_into(&to, in[k]);
	}
	atomic_store(&ids[i], id);
	UNTIL(&to, to.done == EACH);
	for (uint32_t k = 0; k < FAST_TASKS / 2; k++)
		let_go(in[k]);
	close_end(&to);
	atomic_fetch_add(&finished, 1);
	return NULL;
}

static void *produce(void *arg)
{
	struct end from = {0};
	uint32_t i = (uint32_t)(uintptr_t)arg, id;

	a_producer(&from, &c, 100);
	struct doca_buf *out = data_at(&from, 0, 100);
	while (!(id = atomic_load(&ids[i])))
		usleep(100);
	for (uint32_t k = 0; k < EACH; k++) {
		from.bytes[99] = (uint8_t)(k * 3);
		OK(submit_soon(a_send(&from, out, NULL, id)));
		UNTIL(&from, from.done == k + 1);
	}
	let_go(out);
	close_end(&from);
	atomic_fetch_add(&finished, 1);
	return NULL;
}

TEST(ends_in_threads_of_their_own_disturb_nobody)
{
	pthread_t thread[2 * THREADS];

	a_fast_pair(&s, &c, "threads");
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&thread[i], NULL, consume, (void *)i));
	UNTIL2(&s, &c, of_client.added == THREADS);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&thread[THREADS + i], NULL, produce, (void *)i));
	UNTIL2(&s, &c, atomic_load(&finished) == 2 * THREADS && of_client.expired == THREADS);
	for (int i = 0; i < 2 * THREADS; i++)
		pthread_join(thread[i], NULL);
	both_stopped(&s, &c);
}

/* ---- processes ---- */

TEST(a_forked_child_does_not_hold_the_channels)
{
	struct end to = {0}, from = {0};
	uint32_t id;
	int fds[2];

	if (!fork_among_threads())
		return; /* such a child does not live here: see fork_check.h */
	a_pair_of_ends(&to, &from, &id);
	struct doca_buf *in = room_at(&to, 0, 100), *out = data_at(&from, 0, 100);
	CHECK(!pipe(fds));
	pid_t child = fork();
	if (!child) {
		char byte;

		close(fds[1]);
		REFUSED(doca_task_submit(a_send(&from, out, NULL, id)), BAD_STATE);
		doca_pe_progress(to.pe);
		_exit(read(fds[0], &byte, 1) ? 1 : 0); /* until the parent is done */
	}
	close(fds[0]);
	receive_into(&to, in);
	OK(doca_task_submit(a_send(&from, out, NULL, id)));
	UNTIL(&to, to.done);
	UNTIL(&from, from.done);
	stop_end(&to);
	UNTIL(&c, of_client.expired); /* the child does not hold the channel any more */
	close(fds[1]);
	ended_well(child);
	let_go(in);
	let_go(out);
	done(&to, &from);
}

/* ---- bad input ---- */

static struct end to_all, from_all;
static struct doca_comch_consumer *consumer_out;
static struct doca_comch_producer *producer_out;
static struct doca_comch_consumer_task_post_recv *receive_out;
static struct doca_comch_producer_task_send *send_out;
static uint32_t number;

CALL(c_create, doca_comch_consumer_create(h, to_all.map, &consumer_out))
CALL(c_create_map, doca_comch_consumer_create(s.peer, h, &consumer_out))
CALL(c_destroy, doca_comch_consumer_destroy(h))
CALL(c_id, doca_comch_consumer_get_id(h, &number))
CALL(c_set_imm, doca_comch_consumer_set_imm_data_len(h, 8))
CALL(c_get_imm, doca_comch_consumer_get_imm_data_len(h, &number))
CALL(c_cap, doca_comch_consumer_cap_is_supported(h))
CALL(c_cap_tasks, doca_comch_consumer_cap_get_max_num_tasks(h, &number))
CALL(c_cap_size, doca_comch_consumer_cap_get_max_buf_size(h, &number))
CALL(c_cap_list, doca_comch_consumer_cap_get_max_buf_list_len(h, &number))
CALL(c_cap_n, doca_comch_consumer_cap_get_max_consumers(h, &number))
CALL(c_cap_imm, doca_comch_consumer_cap_get_max_imm_data_len(h, &number))
CALL(c_conf, doca_comch_consumer_task_post_recv_set_conf(h, received_cb, not_received_cb, 1))
CALL(c_alloc, doca_comch_consumer_task_post_recv_alloc_init(h, NULL, &receive_out))
CALL(p_create, doca_comch_producer_create(h, &producer_out))
CALL(p_destroy, doca_comch_producer_destroy(h))
CALL(p_id, doca_comch_producer_get_id(h, &number))
CALL(p_cap, doca_comch_producer_cap_is_supported(h))
CALL(p_cap_tasks, doca_comch_producer_cap_get_max_num_tasks(h, &number))
CALL(p_cap_size, doca_comch_producer_cap_get_max_buf_size(h, &number))
CALL(p_cap_list, doca_comch_producer_cap_get_max_buf_list_len(h, &number))
CALL(p_cap_n, doca_comch_producer_cap_get_max_producers(h, &number))
CALL(p_conf, doca_comch_producer_task_send_set_conf(h, produced_cb, not_produced_cb, 1))
CALL(p_alloc, doca_comch_producer_task_send_alloc_init(h, NULL, NULL, 0, 1, &send_out))

/* Functions without a result: they must survive an invalid handle, and return nothing. */
static void no_task(void *h)
{
	doca_comch_consumer_task_post_recv_set_buf(h, NULL);
	doca_comch_producer_task_send_set_buf(h, NULL);
	doca_comch_producer_task_send_set_consumer_id(h, 1);
	doca_comch_producer_task_send_set_imm_data(h, (uint8_t *)"x", 1);
	CHECK(!doca_comch_consumer_as_ctx(h) && !doca_comch_producer_as_ctx(h));
	CHECK(!doca_comch_consumer_task_post_recv_get_buf(h));
	CHECK(!doca_comch_consumer_task_post_recv_get_producer_id(h));
	CHECK(!doca_comch_consumer_task_post_recv_get_imm_data(h));
	CHECK(!doca_comch_consumer_task_post_recv_get_imm_data_len(h));
	CHECK(!doca_comch_consumer_task_post_recv_as_task(h));
	CHECK(!doca_comch_producer_task_send_get_buf(h));
	CHECK(!doca_comch_producer_task_send_get_consumer_id(h));
	CHECK(!doca_comch_producer_task_send_get_imm_data(h));
	CHECK(!doca_comch_producer_task_send_get_imm_data_len(h));
	CHECK(!doca_comch_producer_task_send_as_task(h));
}

TEST(every_function_refuses_what_is_no_handle_of_its_kind)
{
	uint32_t id;

	a_pair_of_ends(&to_all, &from_all, &id);
	void *handles[] = NO_HANDLES(s.pe);
	all_refuse(handles, sizeof(handles) / sizeof(handles[0]));
	for (size_t i = 0; i < sizeof(handles) / sizeof(handles[0]); i++)
		no_task(handles[i]);
	/* A handle of the other kind, and a freed one. */
	struct doca_comch_producer_task_send *send;
	OK(doca_comch_producer_task_send_alloc_init(from_all.producer, NULL, NULL, 0, id, &send));
	CHECK(!doca_comch_consumer_task_post_recv_as_task((void *)send));
	doca_task_free(doca_comch_producer_task_send_as_task(send));
	no_task(send);
	done(&to_all, &from_all);
}

TEST(values_out_of_range_are_refused)
{
	struct doca_comch_producer_task_send *send;
	struct end to = {0}, from = {0};
	uint8_t imm[33] = {0};
	uint32_t id;

	a_pair_of_ends(&to, &from, &id);
	REFUSED(doca_comch_consumer_create(s.peer, to.map, NULL), INVALID_VALUE);
	REFUSED(doca_comch_producer_create(c.peer, NULL), INVALID_VALUE);
	REFUSED(doca_comch_consumer_get_id(to.consumer, NULL), INVALID_VALUE);
	REFUSED(doca_comch_producer_get_id(from.producer, NULL), INVALID_VALUE);
	REFUSED(doca_comch_producer_task_send_alloc_init(from.producer, NULL, imm, 33, id, &send),
		INVALID_VALUE);
	REFUSED(doca_comch_producer_task_send_alloc_init(from.producer, NULL, NULL, 3, id, &send),
		INVALID_VALUE);
	REFUSED(doca_comch_producer_task_send_alloc_init(from.producer, (void *)64, NULL, 0, id,
							 &send),
		INVALID_VALUE);
	struct doca_task *nobody = a_send(&from, NULL, NULL, id + 1000);
	REFUSED(doca_task_submit(nobody), INVALID_VALUE);
	doca_task_free(nobody);
	/* A buffer from a map other than the consumer's; a read-only map. */
	struct doca_buf *alien = room_at(&from, 0, 10);
	struct doca_comch_consumer_task_post_recv *receive = a_receive(&to, alien);
	REFUSED(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(receive)),
		INVALID_VALUE);
	doca_task_free(doca_comch_consumer_task_post_recv_as_task(receive));
	let_go(alien);
	struct doca_mmap *read_only = a_started_map(s.dev, to.bytes, 64, PCI_RO);
	struct doca_comch_consumer *consumer;
	REFUSED(doca_comch_consumer_create(s.peer, read_only, &consumer), NOT_PERMITTED);
	OK(doca_mmap_destroy(read_only));
	struct doca_mmap *not_started = a_map(s.dev, to.bytes, 64, READ_WRITE);
	REFUSED(doca_comch_consumer_create(s.peer, not_started, &consumer), BAD_STATE);
	OK(doca_mmap_destroy(not_started));
	done(&to, &from);
}

TEST(immediate_data_above_what_a_consumer_takes_is_refused)
{
	struct end to = {0}, from = {0};

	a_fast_pair(&s, &c, "fast");
	make_consumer(&to, &s, 100);
	REFUSED(doca_comch_consumer_set_imm_data_len(to.consumer, 33), INVALID_VALUE);
	OK(doca_comch_consumer_set_imm_data_len(to.consumer, 4));
	OK(doca_comch_consumer_get_imm_data_len(to.consumer, &number));
	CHECK_EQ(number, 4);
	REFUSED(doca_ctx_start(to.ctx), IN_PROGRESS);
	UNTIL(&to, end_state(&to) == DOCA_CTX_STATE_RUNNING);
	UNTIL(&c, of_client.added);
	a_producer(&from, &c, 100);
	receive_into(&to, NULL);
	struct doca_task *five = a_send(&from, NULL, "12345", of_client.last);
	REFUSED(doca_task_submit(five), INVALID_VALUE);
	doca_task_free(five);
	OK(doca_task_submit(a_send(&from, NULL, "1234", of_client.last)));
	UNTIL(&from, from.done);
	UNTIL(&to, to.done);
	done(&to, &from);
}

TEST(settings_and_tasks_have_their_states)
{
	struct doca_comch_producer_task_send *send;
	struct end to = {0}, from = {0};
	struct doca_comch_producer *bare;
	struct doca_pe *pe;
	uint32_t id;

	a_pair_of_ends(&to, &from, &id);
	REFUSED(c_conf(to.consumer), BAD_STATE);
	REFUSED(c_set_imm(to.consumer), BAD_STATE);
	REFUSED(c_destroy(to.consumer), BAD_STATE);
	REFUSED(p_conf(from.producer), BAD_STATE);
	REFUSED(p_destroy(from.producer), BAD_STATE);
	OK(doca_comch_producer_create(c.peer, &bare));
	REFUSED(doca_comch_producer_task_send_alloc_init(bare, NULL, NULL, 0, id, &send),
		BAD_STATE);
	REFUSED(doca_comch_producer_task_send_set_conf(bare, NULL, not_produced_cb, 1),
		INVALID_VALUE);
	REFUSED(doca_comch_producer_task_send_set_conf(bare, produced_cb, not_produced_cb, 0),
		INVALID_VALUE);
	OK(doca_pe_create(&pe));
	OK(doca_pe_connect_ctx(pe, doca_comch_producer_as_ctx(bare)));
	REFUSED(doca_ctx_start(doca_comch_producer_as_ctx(bare)), BAD_STATE); /* no tasks */
	OK(doca_comch_producer_destroy(bare));
	OK(doca_pe_destroy(pe));
	/* Fields. */
	struct doca_buf *out = data_at(&from, 0, 10);
	OK(doca_comch_producer_task_send_alloc_init(from.producer, NULL, NULL, 0, 77, &send));
	doca_comch_producer_task_send_set_consumer_id(send, id);
	doca_comch_producer_task_send_set_buf(send, out);
	doca_comch_producer_task_send_set_imm_data(send, (uint8_t *)"now", 3);
	CHECK_EQ(doca_comch_producer_task_send_get_consumer_id(send), id);
	CHECK(doca_comch_producer_task_send_get_buf(send) == out);
	CHECK_EQ(doca_comch_producer_task_send_get_imm_data_len(send), 3);
	CHECK(!memcmp(doca_comch_producer_task_send_get_imm_data(send), "now", 3));
	doca_task_free(doca_comch_producer_task_send_as_task(send));
	let_go(out);
	/* At most as many tasks as were configured. */
	struct doca_task *tasks[FAST_TASKS];
	for (uint32_t i = 0; i < FAST_TASKS; i++)
		tasks[i] = a_send(&from, NULL, NULL, id);
	REFUSED(doca_comch_producer_task_send_alloc_init(from.producer, NULL, NULL, 0, id, &send),
		NO_MEMORY);
	for (uint32_t i = 0; i < FAST_TASKS; i++)
		doca_task_free(tasks[i]);
	done(&to, &from);
}

TEST(a_connection_has_a_number_of_consumers)
{
	struct doca_comch_consumer *all[64], *more;
	struct end to = {0}, from = {0};
	uint32_t id;

	a_pair_of_ends(&to, &from, &id);
	OK(doca_comch_consumer_cap_get_max_consumers(doca_dev_as_devinfo(s.dev), &number));
	CHECK_EQ(number, 64);
	for (uint32_t i = 1; i < number; i++)
		OK(doca_comch_consumer_create(s.peer, to.map, &all[i]));
	REFUSED(doca_comch_consumer_create(s.peer, to.map, &more), NO_MEMORY);
	for (uint32_t i = 1; i < number; i++)
		OK(doca_comch_consumer_destroy(all[i]));
	done(&to, &from);
}

/* ---- what programs do in callbacks ---- */

#define ROUNDS 200u

static void received_again(struct end *e, struct doca_comch_consumer_task_post_recv *task)
{
	struct doca_buf *b = doca_comch_consumer_task_post_recv_get_buf(task);

	CHECK_EQ(data_len(b), 64);
	CHECK_EQ(e->bytes[0], (uint8_t)e->done);
	if (e->done < ROUNDS) {
		OK(doca_buf_reset_data_len(b));
		OK(doca_task_submit(doca_comch_consumer_task_post_recv_as_task(task)));
		return;
	}
	doca_task_free(doca_comch_consumer_task_post_recv_as_task(task));
	let_go(b);
	doca_error_t error = doca_ctx_stop(e->ctx);
	CHECK(error == DOCA_SUCCESS || error == DOCA_ERROR_IN_PROGRESS);
}

static void sent_again(struct end *e, struct doca_comch_producer_task_send *task)
{
	struct doca_task *base = doca_comch_producer_task_send_as_task(task);

	if (e->done < ROUNDS) {
		e->bytes[0]++;
		OK(submit_soon(base));
		return;
	}
	doca_task_free(base);
	doca_error_t error = doca_ctx_stop(e->ctx);
	CHECK(error == DOCA_SUCCESS || error == DOCA_ERROR_IN_PROGRESS);
}

/* Posts its receive once it runs, and is destroyed once it is idle. */
static void post_or_destroy(const union doca_data data, struct doca_ctx *ctx,
			    enum doca_ctx_states prev, enum doca_ctx_states next)
{
	struct end *e = data.ptr;

	end_state_cb(data, ctx, prev, next);
	if (next == DOCA_CTX_STATE_RUNNING && e->consumer)
		receive_into(e, room_at(e, 0, 64));
	if (next != DOCA_CTX_STATE_IDLE)
		return;
	if (e->consumer)
		OK(doca_comch_consumer_destroy(e->consumer));
	else
		OK(doca_comch_producer_destroy(e->producer));
	e->ctx = NULL;
}

static void *progress_until_it_is_gone(void *of)
{
	UNTIL((struct end *)of, !((struct end *)of)->ctx);
	return NULL;
}

static void free_what_is_left(struct end *e)
{
	OK(doca_pe_destroy(e->pe));
	CHECK_EQ(free_bufs(e->inv), 256);
	OK(doca_buf_inventory_destroy(e->inv));
	OK(doca_mmap_destroy(e->map));
	free(e->bytes);
}

TEST(callbacks_may_submit_stop_and_destroy)
{
	struct end to = {.on_received = received_again}, from = {.on_sent = sent_again};
	pthread_t sender;

	a_fast_pair(&s, &c, "fast");
	make_consumer(&to, &s, 64);
	OK(doca_ctx_set_state_changed_cb(to.ctx, post_or_destroy));
	REFUSED(doca_ctx_start(to.ctx), IN_PROGRESS);
	UNTIL(&to, end_state(&to) == DOCA_CTX_STATE_RUNNING);
	UNTIL(&c, of_client.added);
	make_producer(&from, &c, 64);
	OK(doca_ctx_set_state_changed_cb(from.ctx, post_or_destroy));
	OK(doca_ctx_start(from.ctx));
	struct doca_buf *out = data_at(&from, 0, 64);
	from.bytes[0] = 1;
	OK(submit_soon(a_send(&from, out, NULL, of_client.last)));
	CHECK(!pthread_create(&sender, NULL, progress_until_it_is_gone, &from));
	progress_until_it_is_gone(&to);
	CHECK(!pthread_join(sender, NULL));
	CHECK_EQ(to.done, ROUNDS);
	CHECK_EQ(from.done, ROUNDS);
	CHECK(!to.failed && !from.failed);
	let_go(out);
	free_what_is_left(&from);
	free_what_is_left(&to);
	UNTIL(&c, of_client.expired);
	both_stopped(&s, &c);
}

TEST_MAIN(in_a_folder)
