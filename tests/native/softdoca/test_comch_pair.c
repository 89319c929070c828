// SPDX-License-Identifier: Apache-2.0
/*
 * Comch between two processes, as host and DPU: streams of messages, and deaths. The sample comch_copy
 * exports a descriptor over Comch and copies by DMA, as the application dma_copy does.
 */
#include "comch_check.h"

#define N ((uint32_t)repeats(10000))

static void as_host(struct side *c, const char *name)
{
	setenv("SOFTDOCA_SIDE", "host", 1);
	a_client(c, name);
	REFUSED(doca_ctx_start(c->ctx), IN_PROGRESS);
	UNTIL(c, !idle(c) && state_of(c) != DOCA_CTX_STATE_STARTING);
	CHECK(running(c));
	connected(c);
}

static void as_dpu(struct side *s, const char *name)
{
	setenv("SOFTDOCA_SIDE", "dpu", 1);
	a_server(s, name);
	OK(doca_ctx_start(s->ctx));
}

/* ---- streams ---- */

static uint32_t len_of(uint32_t i)
{
	return 1 + (uint32_t)((uint64_t)i * (MAX_MSG - 1) / (N - 1));
}

static void answer(struct side *s, const uint8_t *bytes, uint32_t len,
		   struct doca_comch_connection *from)
{
	uint32_t i = s->received - 1;
	uint8_t back[MAX_MSG];

	CHECK(from == s->peer);
	CHECK_EQ(len, len_of(i));
	check_filled(bytes, len, i);
	for (uint32_t k = 0; k < len; k++)
		back[k] = (uint8_t)~bytes[k];
	say(s, back, len);
}

static void sleeping_server(int fd)
{
	struct side s = {.on_message = answer};

	as_dpu(&s, "sleepers");
	tell(fd);
	while (!s.disconnects)
		wake_up(&s);
	CHECK_EQ(s.sent, N);
	stopped(&s);
}

/* A side progresses only when its handle is readable, so a single lost wake-up makes this test
 * hang. */
TEST(ten_thousand_messages_find_both_sides_asleep)
{
	struct side c = {0};
	uint8_t bytes[MAX_MSG];
	int fd;
	pid_t other = other_process(sleeping_server, &fd);

	hear(fd);
	as_host(&c, "sleepers");
	for (uint32_t i = 0; i < N; i++) {
		fill(bytes, len_of(i), i);
		say(&c, bytes, len_of(i));
		while (c.received != i + 1 || c.sent != i + 1)
			wake_up(&c);
	}
	stopped(&c);
	ended_well(other);
}

static void in_order(struct side *s, const uint8_t *bytes, uint32_t len,
		     struct doca_comch_connection *from)
{
	uint32_t i = s->received - 1;

	(void)from;
	CHECK_EQ(len, len_of(i));
	check_filled(bytes, len, i);
}

/* Sends as many messages as there are tasks for, and receives meanwhile. */
static void stream(struct side *s)
{
	struct doca_task *task;
	uint8_t bytes[MAX_MSG];

	for (uint32_t i = 0; i < N;) {
		fill(bytes, len_of(i), i);
		if (alloc_send(s, s->peer, bytes, len_of(i), &task) == DOCA_SUCCESS) {
			OK(doca_task_submit(task));
			i++;
		}
		doca_pe_progress(s->pe);
	}
	UNTIL(s, s->sent == N && s->received == N);
	CHECK_EQ(s->failed, 0);
}

static void streaming_server(int fd)
{
	struct side s = {.on_message = in_order};

	as_dpu(&s, "stream");
	tell(fd);
	UNTIL(&s, s.connects);
	stream(&s);
	UNTIL(&s, s.disconnects);
	stopped(&s);
}

TEST(both_sides_stream_at_once_and_nothing_is_lost_or_out_of_order)
{
	struct side c = {.on_message = in_order};
	int fd;
	pid_t other = other_process(streaming_server, &fd);

	hear(fd);
	as_host(&c, "stream");
	stream(&c);
	stopped(&c);
	ended_well(other);
}

/* ---- deaths ---- */

static void stuck_client(int fd)
{
	struct side c = {0};

	hear(fd);
	as_host(&c, "dies");
	say(&c, "alive", 5);
	UNTIL(&c, c.sent);
	tell(fd);
	pause();
}

TEST(a_client_that_is_killed_is_an_event_and_what_waits_fails)
{
	struct side s = {0};
	int fd;
	pid_t other = other_process(stuck_client, &fd);

	as_dpu(&s, "dies");
	tell(fd);
	UNTIL(&s, s.received);
	hear(fd);
	uint32_t waiting = fill_up(&s);
	CHECK(waiting);
	killed(other);
	UNTIL(&s, s.disconnects);
	CHECK_EQ(s.failed, waiting);
	CHECK_EQ(s.last_error, DOCA_ERROR_CONNECTION_RESET);
	CHECK(running(&s));
	stopped(&s);
}

static void stuck_server(int fd)
{
	struct side s = {0};

	as_dpu(&s, "dies");
	tell(fd);
	UNTIL(&s, s.connects);
	tell(fd);
	pause();
}

TEST(a_server_that_is_killed_ends_its_client_and_its_name_is_free)
{
	struct side s = {0}, c = {0};
	struct doca_task *task;
	int fd;
	pid_t other = other_process(stuck_server, &fd);

	hear(fd);
	as_host(&c, "dies");
	hear(fd);
	uint32_t waiting = fill_up(&c);
	CHECK(waiting);
	OK(alloc_send(&c, c.peer, "late", 4, &task));
	killed(other);
	UNTIL(&c, c.failed == waiting);
	CHECK_EQ(c.last_error, DOCA_ERROR_CONNECTION_RESET);
	CHECK_EQ(state_of(&c), DOCA_CTX_STATE_STOPPING); /* one task is not freed */
	CHECK(doca_task_submit(task) != DOCA_SUCCESS);
	doca_task_free(task);
	UNTIL(&c, idle(&c));
	CHECK(!strcmp(c.states, "SRPI"));
	/* The remains of the dead server are not a server: the next one replaces it. */
	CHECK(leftovers());
	setenv("SOFTDOCA_SIDE", "both", 1);
	a_server(&s, "dies");
	OK(doca_ctx_start(s.ctx));
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	UNTIL2(&s, &c, running(&c));
	both_stopped(&s, &c);
	CHECK(!leftovers());
}

/* The server has a child that keeps running, which must not be mistaken for the server. */
static void forking_server(int fd)
{
	struct side s = {0};

	as_dpu(&s, "forks");
	tell(fd);
	UNTIL(&s, s.connects);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, 0);
		doca_pe_progress(s.pe);
		doca_ctx_stop(s.ctx);
		tell(fd);
		recv(fd, &child, 1, 0); /* until the test ends */
		_exit(0);
	}
	pause();
}

TEST(a_child_of_a_killed_server_does_not_hold_its_clients)
{
	struct side c = {0};
	struct sockaddr_un a;
	int fd;
	pid_t other = other_process(forking_server, &fd);

	hear(fd);
	as_host(&c, "forks");
	hear(fd); /* the child has tried what must not harm its parent's server */
	CHECK(socket_path(&a));
	say(&c, "still there", 11);
	UNTIL(&c, c.sent);
	CHECK(running(&c));
	killed(other);
	UNTIL(&c, idle(&c));
	destroyed(&c);
	close(fd);
	unlink(a.sun_path);
	memcpy(strrchr(a.sun_path, '.'), ".lock", 6);
	unlink(a.sun_path);
}

TEST_MAIN(in_a_folder)
