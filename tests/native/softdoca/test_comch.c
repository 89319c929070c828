// SPDX-License-Identifier: Apache-2.0
/* Comch between a client and a server: states, messages, events. Both sides are in this process. */
#include "comch_check.h"

#include <sys/resource.h>

TEST(a_server_runs_at_once_and_a_client_once_it_is_accepted)
{
	struct side s = {0}, c = {0};
	struct doca_comch_connection *peer;

	a_server(&s, "states");
	a_client(&c, "states");
	OK(doca_ctx_start(s.ctx));
	CHECK(running(&s));
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	/* However often the client alone progresses: the server has to accept. */
	for (int i = 0; i < 100; i++)
		doca_pe_progress(c.pe);
	CHECK_EQ(state_of(&c), DOCA_CTX_STATE_STARTING);
	REFUSED(doca_comch_client_get_connection(c.client, &peer), BAD_STATE);
	UNTIL(&s, s.connects);
	CHECK_EQ(state_of(&c), DOCA_CTX_STATE_STARTING);
	UNTIL(&c, running(&c));
	OK(doca_comch_client_get_connection(c.client, &peer));
	CHECK(!strcmp(s.states, "R"));
	CHECK(!strcmp(c.states, "SR"));
	CHECK(doca_comch_server_get_server_ctx(s.peer) == s.server);
	CHECK(!doca_comch_client_get_client_ctx(s.peer));
	CHECK(doca_comch_client_get_client_ctx(peer) == c.client);
	CHECK(!doca_comch_server_get_server_ctx(peer));
	stopped(&c);
	CHECK(!strcmp(c.states, "SRI"));
	UNTIL(&s, s.disconnects);
	stopped(&s);
	CHECK(!strcmp(s.states, "RI"));
	CHECK(!leftovers());
}

TEST(messages_of_every_size_arrive_whole_and_in_order)
{
	struct side s = {0}, c = {0};
	uint8_t bytes[MAX_MSG];

	a_pair(&s, &c, "sizes");
	for (uint32_t len = 1; len <= MAX_MSG; len++) {
		fill(bytes, len, len);
		say(&c, bytes, len);
		say(&s, bytes, len);
		UNTIL2(&s, &c, s.received == len && c.received == len);
		CHECK_EQ(s.last_len, len);
		check_filled(s.last, len, len);
		CHECK_EQ(c.last_len, len);
		check_filled(c.last, len, len);
		UNTIL2(&s, &c, s.sent == len && c.sent == len);
	}
	both_stopped(&s, &c);
}

static void in_order(struct side *s, const uint8_t *bytes, uint32_t len,
		     struct doca_comch_connection *c)
{
	uint32_t i = s->received - 1;

	(void)c;
	CHECK_EQ(len, 1 + i * 37 % MAX_MSG);
	check_filled(bytes, len, i);
}

/* Sends more than a socket holds, while neither side receives: tasks wait, none is lost, and all
 * keep their order. */
TEST(tasks_that_find_the_socket_full_wait_in_order)
{
	enum { N = 2000 };
	struct side s = {0}, c = {.on_message = in_order};
	struct doca_task *task;
	uint8_t bytes[MAX_MSG];
	size_t waiting;

	a_server(&s, "full");
	a_client(&c, "full");
	OK(doca_comch_server_task_send_set_conf(s.server, sent_cb, failed_cb, N));
	OK(doca_ctx_start(s.ctx));
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	UNTIL2(&s, &c, running(&c) && s.connects);
	for (uint32_t i = 0; i < N; i++) {
		uint32_t len = 1 + i * 37 % MAX_MSG;
		fill(bytes, len, i);
		say(&s, bytes, len);
	}
	REFUSED(alloc_send(&s, s.peer, bytes, 1, &task), NO_MEMORY);
	while (doca_pe_progress(s.pe))
		;
	OK(doca_ctx_get_num_inflight_tasks(s.ctx, &waiting));
	CHECK(s.sent && waiting); /* some are in the socket, others wait for room */
	CHECK_EQ(s.sent + waiting, N);
	UNTIL2(&s, &c, c.received == N && s.sent == N);
	both_stopped(&s, &c);
	CHECK_EQ(s.failed, 0);
}

TEST(nothing_is_told_outside_progress_and_one_thing_a_call)
{
	struct side s = {0}, c = {0};

	a_pair(&s, &c, "one");
	for (uint32_t i = 0; i < TASKS; i++)
		say(&c, "a", 1);
	CHECK_EQ(c.told, 0);
	for (uint32_t i = 1; i <= TASKS; i++) {
		CHECK_EQ(doca_pe_progress(c.pe), 1);
		CHECK_EQ(c.told, i);
	}
	CHECK_EQ(doca_pe_progress(c.pe), 0);
	s.told = 0;
	for (uint32_t i = 1; i <= TASKS; i++) {
		CHECK_EQ(doca_pe_progress(s.pe), 1);
		CHECK_EQ(s.told, i);
	}
	CHECK_EQ(doca_pe_progress(s.pe), 0);
	both_stopped(&s, &c);
}

TEST(a_message_is_what_it_was_when_its_task_was_made)
{
	struct side s = {0}, c = {0};
	struct doca_task *task;
	char text[] = "before";

	a_pair(&s, &c, "copy");
	OK(alloc_send(&c, c.peer, text, 6, &task));
	memcpy(text, "after.", 6);
	OK(doca_task_submit(task));
	UNTIL(&s, s.received);
	CHECK(!memcmp(s.last, "before", 6));
	both_stopped(&s, &c);
}

static void sent_again(struct side *s, struct doca_task *task, union doca_data user_data)
{
	CHECK_EQ(user_data.u64, 4711);
	CHECK(doca_task_get_ctx(task) == s->ctx);
	if (s->sent < 5)
		OK(doca_task_submit(task));
	else
		doca_task_free(task);
}

TEST(user_data_come_back_and_a_task_can_be_sent_again)
{
	struct side s = {0}, c = {.on_sent = sent_again};
	union doca_data mine = {.u64 = 4711}, other = {.u64 = 12};
	struct doca_task *task;

	a_pair(&s, &c, "data");
	CHECK_EQ(doca_comch_connection_get_user_data(c.peer).u64, 0);
	OK(doca_comch_connection_set_user_data(c.peer, mine));
	OK(doca_comch_connection_set_user_data(s.peer, other));
	CHECK_EQ(doca_comch_connection_get_user_data(c.peer).u64, 4711);
	CHECK_EQ(doca_comch_connection_get_user_data(s.peer).u64, 12);
	OK(alloc_send(&c, c.peer, "again", 5, &task));
	doca_task_set_user_data(task, mine);
	OK(doca_task_submit(task));
	UNTIL2(&s, &c, s.received == 5 && c.sent == 5);
	both_stopped(&s, &c);
}

static void keep_data(struct side *s, struct doca_comch_connection *c)
{
	/* The last message arrived before this event, and the connection can still be queried. */
	CHECK_EQ(s->received, TASKS);
	CHECK_EQ(doca_comch_connection_get_user_data(c).u64, 99);
	REFUSED(doca_comch_server_disconnect(s->server, c), INVALID_VALUE);
}

TEST(a_client_that_leaves_is_heard_to_the_end_then_the_event_comes)
{
	struct side s = {.on_disconnect = keep_data}, c = {0};
	union doca_data mine = {.u64 = 99};

	a_pair(&s, &c, "leaves");
	OK(doca_comch_connection_set_user_data(s.peer, mine));
	say(&s, "never read", 10); /* an unread message must not hide those that it sent */
	for (uint32_t i = 0; i < TASKS; i++)
		say(&c, "bye", 3);
	stopped(&c);
	CHECK_EQ(c.sent, TASKS);
	UNTIL(&s, s.disconnects);
	CHECK_EQ(s.disconnects, 1);
	REFUSED(doca_comch_connection_set_user_data(s.peer, mine), INVALID_VALUE);
	stopped(&s);
}

/* On a BlueField-3, a server that disconnects a client gets no event for it (facts in server.c). */
TEST(a_client_that_is_sent_away_goes_idle_and_the_server_gets_no_event)
{
	struct side s = {0}, c = {0};
	struct doca_task *task;

	a_pair(&s, &c, "away");
	say(&s, "last words", 10);
	OK(alloc_send(&s, s.peer, "x", 1, &task));
	OK(doca_comch_server_disconnect(s.server, s.peer));
	REFUSED(doca_comch_server_disconnect(s.server, s.peer), INVALID_VALUE);
	REFUSED(doca_task_submit(task), NOT_CONNECTED);
	doca_task_free(task);
	UNTIL(&c, idle(&c));
	CHECK(!strcmp(c.states, "SRPI"));
	CHECK_EQ(c.received, 1);
	UNTIL(&s, s.sent);
	while (doca_pe_progress(s.pe))
		;
	CHECK_EQ(s.disconnects, 0);
	both_stopped(&s, &c);
}

TEST(what_waits_fails_when_the_peer_is_sent_away_or_leaves)
{
	struct side s = {0}, c = {0};

	a_pair(&s, &c, "waits");
	size_t waiting = fill_up(&s);
	OK(doca_comch_server_disconnect(s.server, s.peer));
	UNTIL(&s, s.failed == waiting);
	CHECK_EQ(s.last_error, DOCA_ERROR_CONNECTION_ABORTED);
	UNTIL(&c, idle(&c));
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	UNTIL2(&s, &c, running(&c) && s.connects == 2);
	s.failed = 0;
	waiting = fill_up(&s);
	stopped(&c);
	UNTIL(&s, s.disconnects);
	CHECK_EQ(s.failed, waiting); /* before the event */
	CHECK_EQ(s.last_error, DOCA_ERROR_CONNECTION_RESET);
	stopped(&s);
}

TEST(stopping_a_server_ends_its_clients_and_flushes_what_waits)
{
	struct side s = {0}, c[3] = {0};

	a_server(&s, "stop");
	OK(doca_ctx_start(s.ctx));
	for (uint32_t i = 0; i < 3; i++) {
		a_client(&c[i], "stop");
		REFUSED(doca_ctx_start(c[i].ctx), IN_PROGRESS);
		UNTIL2(&s, &c[i], running(&c[i]) && s.connects == i + 1);
	}
	size_t waiting = fill_up(&s);
	REFUSED(doca_ctx_stop(s.ctx), IN_PROGRESS);
	CHECK_EQ(state_of(&s), DOCA_CTX_STATE_STOPPING);
	UNTIL(&s, idle(&s));
	CHECK_EQ(s.failed, waiting);
	CHECK_EQ(s.last_error, DOCA_ERROR_IO_FAILED);
	CHECK_EQ(s.disconnects, 0);
	CHECK(!leftovers());
	for (uint32_t i = 0; i < 3; i++) {
		UNTIL(&c[i], idle(&c[i]));
		CHECK(!strcmp(c[i].states, "SRPI"));
		destroyed(&c[i]);
	}
	destroyed(&s);
}

TEST(a_client_without_a_server_gives_up_and_is_idle)
{
	struct side c = {0};

	a_client(&c, "nobody");
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	UNTIL(&c, idle(&c));
	CHECK(!strcmp(c.states, "SPI"));
	/* It can also be stopped while it is searching. */
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	OK(doca_ctx_stop(c.ctx));
	CHECK(idle(&c));
	destroyed(&c);
}

TEST(a_client_waits_a_little_for_its_server)
{
	struct side s = {0}, c = {0};

	a_client(&c, "late");
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	doca_pe_progress(c.pe);
	a_server(&s, "late");
	OK(doca_ctx_start(s.ctx));
	UNTIL2(&s, &c, running(&c));
	both_stopped(&s, &c);
}

TEST(a_name_has_one_server_and_is_free_once_that_stopped)
{
	struct side a = {0}, b = {0}, other = {0};

	a_server(&a, "name");
	a_server(&b, "name");
	a_server(&other, "another name");
	OK(doca_ctx_start(a.ctx));
	REFUSED(doca_ctx_start(b.ctx), ALREADY_EXIST);
	CHECK(idle(&b));
	OK(doca_ctx_start(other.ctx));
	stopped(&a);
	OK(doca_ctx_start(b.ctx));
	stopped(&b);
	stopped(&other);
}

static void left(struct side *s, struct doca_comch_connection *c)
{
	(void)c;
	doca_ctx_stop(s->ctx);
}

static void stop_now(struct side *s, const uint8_t *bytes, uint32_t len,
		     struct doca_comch_connection *c)
{
	(void)bytes;
	(void)len;
	(void)c;
	doca_ctx_stop(s->ctx);
}

static void reject(struct side *s, struct doca_comch_connection *c)
{
	OK(doca_comch_server_disconnect(s->server, c));
}

TEST(callbacks_may_stop_the_context_and_send_clients_away)
{
	struct side s = {.on_connect = reject}, c = {0};

	a_server(&s, "inside");
	a_client(&c, "inside");
	OK(doca_ctx_start(s.ctx));
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	UNTIL2(&s, &c, s.connects && idle(&c));
	s.on_connect = NULL;
	s.on_disconnect = left;
	c.on_message = stop_now;
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	UNTIL2(&s, &c, s.connects == 2);
	say(&s, "stop", 4);
	UNTIL2(&s, &c, idle(&c) && idle(&s));
	destroyed(&c);
	destroyed(&s);
}

TEST(the_notification_handle_wakes_for_all_that_comes)
{
	struct side s = {0}, c = {0};

	a_client(&c, "sleep");
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	wake_up(&c); /* so that it searches for the server again */
	a_server(&s, "sleep");
	OK(doca_ctx_start(s.ctx));
	while (!running(&c)) {
		wake_up(&c);
		while (!s.connects && doca_pe_progress(s.pe))
			;
	}
	connected(&c);
	say(&c, "wake", 4);
	wake_up(&c);
	CHECK_EQ(c.sent, 1);
	wake_up(&s);
	CHECK_EQ(s.received, 1);
	size_t waiting = fill_up(&s), done = s.sent;
	CHECK(waiting);
	UNTIL(&c, c.received == done);
	wake_up(&s); /* now there is room again */
	CHECK(s.sent > done);
	stopped(&c);
	while (!s.disconnects)
		wake_up(&s);
	stopped(&s);
}

TEST(contexts_start_again_and_leave_nothing_behind)
{
	struct side s = {0}, c = {0};
	int before = -1;

	a_server(&s, "cycles");
	a_client(&c, "cycles");
	for (uint32_t i = 1; i <= 200; i++) {
		s.states[0] = c.states[0] = '\0';
		memset(s.states, 0, sizeof(s.states));
		memset(c.states, 0, sizeof(c.states));
		OK(doca_ctx_start(s.ctx));
		REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
		UNTIL2(&s, &c, running(&c) && s.connects == i);
		connected(&c);
		say(&c, &i, sizeof(i));
		UNTIL2(&s, &c, s.received == i && c.sent == i);
		OK(doca_ctx_stop(i % 2 ? c.ctx : s.ctx));
		doca_ctx_stop(c.ctx);
		doca_ctx_stop(s.ctx);
		UNTIL2(&s, &c, idle(&s) && idle(&c));
		int fd = dup(0);
		close(fd);
		CHECK(before < 0 || fd == before);
		before = fd;
	}
	destroyed(&c);
	destroyed(&s);
	CHECK(!leftovers());
}

TEST(the_clients_of_a_server_are_limited_and_one_more_is_refused)
{
	enum { MOST = 512 };
	static struct side c[MOST + 1];
	struct rlimit files;
	struct side s = {0};

	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
	if (files.rlim_cur < 6 * MOST)
		SKIP("too few file descriptors for 512 clients");
	a_server(&s, "many");
	OK(doca_ctx_start(s.ctx));
	for (uint32_t i = 0; i <= MOST; i++) {
		a_client(&c[i], "many");
		REFUSED(doca_ctx_start(c[i].ctx), IN_PROGRESS);
		UNTIL2(&s, &c[i], running(&c[i]) || idle(&c[i]));
	}
	CHECK_EQ(s.connects, MOST);
	CHECK(idle(&c[MOST]));
	stopped(&c[0]);
	UNTIL(&s, s.disconnects);
	REFUSED(doca_ctx_start(c[MOST].ctx), IN_PROGRESS);
	UNTIL2(&s, &c[MOST], running(&c[MOST]));
	for (uint32_t i = 1; i <= MOST; i++)
		stopped(&c[i]);
	stopped(&s);
}

/* The program frees its last task at a time when it is not waiting, and only then waits for the
 * end. */
TEST(the_end_of_a_stop_wakes_who_waits_for_it)
{
	struct side s = {0}, c = {0};
	struct doca_task *task;

	a_pair(&s, &c, "stop");
	OK(alloc_send(&c, c.peer, "x", 1, &task));
	REFUSED(doca_ctx_stop(c.ctx), IN_PROGRESS);
	doca_task_free(task);
	while (!idle(&c))
		wake_up(&c);
	both_stopped(&s, &c);
}

TEST_MAIN(in_a_folder)
