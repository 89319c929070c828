// SPDX-License-Identifier: Apache-2.0
/* Comch's fast path between two processes, as host and DPU: streams, deaths, hostile clients. */
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>

#include "comch/fast.h"
#include "fast_check.h"
#include "lingering.h"

#define N ((uint32_t)repeats(5000))
#define PIECE 200u

static void as_host(struct side *c)
{
	setenv("SOFTDOCA_SIDE", "host", 1);
	a_client(c, "fast pair");
	with_consumers(c);
	REFUSED(doca_ctx_start(c->ctx), IN_PROGRESS);
	UNTIL(c, state_of(c) != DOCA_CTX_STATE_STARTING);
	CHECK(running(c));
	connected(c);
}

static void as_dpu(struct side *s, int fd)
{
	setenv("SOFTDOCA_SIDE", "dpu", 1);
	a_server(s, "fast pair");
	with_consumers(s);
	OK(doca_ctx_start(s->ctx));
	tell(fd);
	UNTIL(s, s->connects);
}

/* ---- streams ---- */

/* Checks that messages arrive in order, and submits each receive again. */
static void check_next(struct end *e, struct doca_comch_consumer_task_post_recv *task)
{
	struct doca_buf *b = doca_comch_consumer_task_post_recv_get_buf(task);
	struct doca_task *base = doca_comch_consumer_task_post_recv_as_task(task);
	uint32_t i = e->done - 1, imm;
	void *at;

	CHECK_EQ(doca_comch_consumer_task_post_recv_get_imm_data_len(task), sizeof(imm));
	memcpy(&imm, doca_comch_consumer_task_post_recv_get_imm_data(task), sizeof(imm));
	CHECK_EQ(imm, i);
	CHECK_EQ(data_len(b), 1 + i % PIECE);
	OK(doca_buf_get_data(b, &at));
	check_filled(at, 1 + i % PIECE, i);
	OK(doca_buf_reset_data_len(b));
	if (e->done + FAST_TASKS <= N)
		OK(doca_task_submit(base));
	else
		doca_task_free(base);
}

static void send_next(struct end *from, struct doca_buf *out, uint32_t i, uint32_t id)
{
	struct doca_comch_producer_task_send *task;

	fill(from->bytes, 1 + i % PIECE, i);
	OK(doca_buf_set_data_len(out, 1 + i % PIECE));
	OK(doca_comch_producer_task_send_alloc_init(from->producer, out, (uint8_t *)&i, sizeof(i),
						    id, &task));
	OK(submit_soon(doca_comch_producer_task_send_as_task(task)));
}

/* Sends in both directions concurrently. A side that sleeps progresses only when its handle is
 * readable. */
static void stream(struct side *s, struct consumers *others)
{
	struct end to = {.on_received = check_next}, from = {0};
	struct doca_buf *in[FAST_TASKS];

	a_consumer(&to, s, PIECE * FAST_TASKS);
	a_producer(&from, s, PIECE);
	struct doca_buf *out = data_at(&from, 0, PIECE);
	for (uint32_t k = 0; k < FAST_TASKS; k++) {
		in[k] = room_at(&to, k * PIECE, PIECE);
		receive_into(&to, in[k]);
	}
	UNTIL(s, others->added);
	for (uint32_t i = 0; i < N; i++) {
		/* No side may wait for the other's receives without receiving itself. */
		struct doca_comch_producer_task_send *task;
		doca_error_t error;

		fill(from.bytes, 1 + i % PIECE, i);
		OK(doca_buf_set_data_len(out, 1 + i % PIECE));
		OK(doca_comch_producer_task_send_alloc_init(
			from.producer, out, (uint8_t *)&i, sizeof(i), others->last, &task));
		while ((error = doca_task_submit(doca_comch_producer_task_send_as_task(task))) ==
		       DOCA_ERROR_AGAIN)
			doca_pe_progress(to.pe);
		OK(error);
		UNTIL2(&to, &from, from.done == i + 1);
	}
	UNTIL(&to, to.done == N);
	for (uint32_t k = 0; k < FAST_TASKS; k++)
		let_go(in[k]);
	let_go(out);
	say(s, "done", 4); /* the other side's messages have all been received */
	UNTIL(s, s->received || !running(s));
	close_end(&from);
	close_end(&to);
}

static void streaming_server(int fd)
{
	struct side s = {0};

	as_dpu(&s, fd);
	stream(&s, &of_server);
	UNTIL(&s, s.disconnects);
	stopped(&s);
}

TEST(both_sides_stream_at_once_and_nothing_is_lost_or_out_of_order)
{
	struct side c = {0};
	int fd;
	pid_t other = other_process(streaming_server, &fd);

	hear(fd);
	as_host(&c);
	stream(&c, &of_client);
	stopped(&c);
	ended_well(other);
}

static void sleeping_server(int fd)
{
	struct end to = {.on_received = check_next};
	struct doca_buf *in[FAST_TASKS];
	struct side s = {0};

	as_dpu(&s, fd);
	a_consumer(&to, &s, PIECE * FAST_TASKS);
	for (uint32_t k = 0; k < FAST_TASKS; k++) {
		in[k] = room_at(&to, k * PIECE, PIECE);
		receive_into(&to, in[k]);
	}
	while (to.done < N)
		wake_end(&to);
	for (uint32_t k = 0; k < FAST_TASKS; k++)
		let_go(in[k]);
	close_end(&to);
	UNTIL(&s, s.disconnects);
	stopped(&s);
}

/* A single lost wake-up makes this test hang. */
TEST(messages_find_a_consumer_asleep)
{
	struct side c = {0};
	struct end from = {0};
	int fd;
	pid_t other = other_process(sleeping_server, &fd);

	hear(fd);
	as_host(&c);
	while (!of_client.added)
		wake_up(&c);
	a_producer(&from, &c, PIECE);
	struct doca_buf *out = data_at(&from, 0, PIECE);
	for (uint32_t i = 0; i < N; i++) {
		send_next(&from, out, i, of_client.last);
		while (from.done <= i)
			wake_end(&from);
	}
	let_go(out);
	close_end(&from);
	while (!of_client.expired)
		wake_up(&c);
	stopped(&c);
	ended_well(other);
}

/* ---- deaths ---- */

static void stuck_consumer(int fd)
{
	struct side s = {0};
	struct end to = {0};

	as_dpu(&s, fd);
	a_consumer(&to, &s, 64 * 30000);
	for (uint32_t k = 0; k < 32; k++)
		receive_into(&to, room_at(&to, k * 30000, 30000));
	tell(fd);
	pause();
}

TEST(a_killed_consumer_is_an_error_and_an_event)
{
	struct side c = {0};
	struct end from = {0};
	size_t waiting;
	int fd;
	pid_t other = other_process(stuck_consumer, &fd);

	hear(fd);
	as_host(&c);
	hear(fd);
	UNTIL(&c, of_client.added);
	a_producer(&from, &c, 30000);
	struct doca_buf *out = data_at(&from, 0, 30000);
	struct doca_task *late = a_send(&from, out, NULL, of_client.last);
	for (uint32_t i = 0; i < 32; i++)
		OK(doca_task_submit(a_send(&from, out, NULL, of_client.last)));
	REFUSED(doca_task_submit(late), AGAIN);
	while (doca_pe_progress(from.pe))
		;
	OK(doca_ctx_get_num_inflight_tasks(from.ctx, &waiting));
	CHECK(waiting); /* the channel is full */
	killed(other);
	/* A retry loop on AGAIN ends, although no thread progresses the connection. */
	REFUSED(submit_soon(late), NOT_CONNECTED);
	while (from.failed < waiting)
		wake_end(&from);
	CHECK_EQ(from.failed, waiting);
	CHECK_EQ(from.last_error, DOCA_ERROR_CONNECTION_RESET);
	UNTIL(&c, of_client.expired && idle(&c));
	CHECK_EQ(of_client.expired, 1);
	doca_task_free(late);
	while (end_state(&from) != DOCA_CTX_STATE_IDLE)
		wake_end(&from);
	let_go(out);
	destroy_end(&from);
	destroyed(&c);
}

static void stuck_producer(int fd)
{
	struct side s = {0};
	struct end from = {0};

	as_dpu(&s, fd);
	a_producer(&from, &s, 100);
	UNTIL(&s, of_server.added);
	struct doca_buf *out = data_at(&from, 0, 100);
	OK(submit_soon(a_send(&from, out, NULL, of_server.last)));
	tell(fd);
	pause();
}

TEST(a_killed_producer_ends_a_consumer_after_its_last_message)
{
	struct side c = {0};
	struct end to = {0};
	int fd;
	pid_t other = other_process(stuck_producer, &fd);

	hear(fd);
	as_host(&c);
	a_consumer(&to, &c, 100);
	struct doca_buf *in = room_at(&to, 0, 100);
	receive_into(&to, in);
	hear(fd); /* sent, not received */
	killed(other);
	while (end_state(&to) != DOCA_CTX_STATE_IDLE)
		wake_end(&to);
	CHECK_EQ(to.done, 1);
	CHECK_EQ(data_len(in), 100);
	let_go(in);
	destroy_end(&to);
	UNTIL(&c, idle(&c));
	destroyed(&c);
}

TEST(a_side_killed_while_a_consumer_starts_ends_it)
{
	struct side c = {0};
	struct end to = {0};
	int fd;
	pid_t other = other_process(stuck_producer, &fd);

	hear(fd);
	as_host(&c);
	make_consumer(&to, &c, 100);
	REFUSED(doca_ctx_start(to.ctx), IN_PROGRESS);
	killed(other);
	UNTIL(&to, end_state(&to) == DOCA_CTX_STATE_IDLE);
	CHECK(!strcmp(to.states, "SPI"));
	destroy_end(&to);
	UNTIL(&c, idle(&c));
	destroyed(&c);
}

/* ---- strangers: any program of this user may connect and send anything ---- */

/* Connects as a client without the library. */
static int a_stranger(void)
{
	struct hello h = {.p = {PACKET_MAGIC, PACKET_VERSION, PACKET_HELLO}, .max_msg = MSG_MAX};
	struct sockaddr_un to;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(h.name, sizeof(h.name), "strange");
	snprintf(h.function, sizeof(h.function), "%s", getenv("FUNCTION"));
	CHECK(socket_path(&to));
	CHECK_EQ(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	CHECK_EQ(send(fd, &h, sizeof(h), 0), sizeof(h));
	return fd;
}

/* Sends a packet with at most 4 fds. Returns its size, or -1. */
static ssize_t send_with(int fd, void *packet, size_t size, const int *fds, size_t n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control = {0};
	struct iovec part = {packet, size};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};

	if (n) {
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fds, n * sizeof(int));
		m.msg_control = control.bytes;
		m.msg_controllen = CMSG_SPACE(n * sizeof(int));
	}
	return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The same, and announces a consumer with these fds. */
static int announce(const int *fds, size_t n, uint32_t id)
{
	struct announcement a = {{PACKET_MAGIC, PACKET_VERSION, PACKET_CONSUMER}, id, 8};
	int fd = a_stranger();

	CHECK_EQ(send_with(fd, &a, sizeof(a), fds, n), sizeof(a));
	return fd;
}

static struct side strange;

static void a_strange_server(void)
{
	struct doca_devinfo_rep **list;
	char vuid[DOCA_DEVINFO_REP_VUID_SIZE];
	uint32_t n;

	a_server(&strange, "strange");
	with_consumers(&strange);
	OK(doca_devinfo_rep_create_list(strange.dev, DOCA_DEVINFO_REP_FILTER_NET, &list, &n));
	OK(doca_devinfo_rep_get_vuid(list[0], vuid, sizeof(vuid)));
	OK(doca_devinfo_rep_destroy_list(list));
	setenv("FUNCTION", vuid, 1);
	OK(doca_ctx_start(strange.ctx));
}

/* Returns the memfd of a counter of receives, which is 0. */
static int a_counter(int seals)
{
	int fd = memfd_create("counter", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, sysconf(_SC_PAGESIZE)), 0);
	CHECK_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

TEST(wrong_fds_are_no_consumer_and_are_closed)
{
	int pair[2], pipes[2];

	a_strange_server();
	int before = open_fds();
	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	CHECK_EQ(pipe(pipes), 0);
	int counter = a_counter(F_SEAL_SHRINK), stream = socket(AF_UNIX, SOCK_STREAM, 0);
	int shrinks = a_counter(0), event = eventfd(0, EFD_NONBLOCK);
	const int wrong[][4] = {
		{pair[0], pair[0], -1, -1}, {counter, counter, -1, -1}, {pipes[0], counter, -1, -1},
		{pair[0], pipes[0], -1, -1}, {counter, pair[0], -1, -1}, {stream, counter, -1, -1},
		{pair[0], shrinks, -1, -1}, {pair[0], event, -1, -1},
	};
	uint32_t n = sizeof(wrong) / sizeof(wrong[0]);
	for (uint32_t i = 0; i < n + 3; i++) {
		/* None, one, and more than two. */
		const int more[] = {pair[0], counter, pipes[0], pipes[1]};
		size_t count = i < n ? 2 : i == n ? 0 : i == n + 1 ? 1 : 4;
		int fd = announce(i < n ? wrong[i] : more, count, i == n + 2 ? 0 : 7);
		uint32_t connects = strange.connects;

		UNTIL(&strange, strange.connects > connects);
		for (int k = 0; k < 10; k++)
			doca_pe_progress(strange.pe);
		close(fd);
		UNTIL(&strange, strange.disconnects == strange.connects);
	}
	CHECK_EQ(of_server.added, 0);
	for (int i = 0; i < 2; i++) {
		close(pair[i]);
		close(pipes[i]);
	}
	close(counter);
	close(stream);
	close(shrinks);
	close(event);
	CHECK_EQ(open_fds(), before);
	stopped(&strange);
}

TEST(an_fd_whose_close_would_wait_delays_nobody)
{
	int peers[4], fds[4];

	a_strange_server();
	int before = open_fds();
	for (int i = 0; i < 4; i++)
		fds[i] = lingering_socket(&peers[i]);
	int fd = announce(fds, 4, 7);
	for (int i = 0; i < 4; i++)
		close(fds[i]); /* so that the server's close is the last one */
	time_t start = time(NULL);
	UNTIL(&strange, strange.connects);
	close(fd);
	UNTIL(&strange, strange.disconnects);
	CHECK(time(NULL) - start < LINGER_S / 2);
	for (int i = 0; i < 4; i++)
		close(peers[i]);
	CHECK_EQ(open_fds(), before);
	CHECK_EQ(of_server.added, 0);
	stopped(&strange);
}

/* What a producer of this side sends reaches whatever a stranger announced as a consumer, whose
 * counter and flags the stranger changes meanwhile. */
TEST(whatever_a_stranger_announces_the_server_goes_on)
{
	const int rounds = repeats(400);
	unsigned seed = (unsigned)time(NULL);
	int pair[2], pipes[2], page = a_counter(F_SEAL_SHRINK), event = eventfd(0, EFD_NONBLOCK);
	uint32_t size = (uint32_t)sysconf(_SC_PAGESIZE);
	uint32_t *count = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);

	printf("seed %u\n", seed);
	a_strange_server();
	int before = open_fds();
	CHECK(count != MAP_FAILED && !pipe(pipes));
	for (int i = 0; i < rounds; i++) {
		CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
		const int all[] = {pair[0], page, event, pipes[0], pair[1], a_counter(0)};
		uint32_t connects = strange.connects;
		int fd = a_stranger();

		UNTIL(&strange, strange.connects > connects);
		struct end from = {0};
		a_producer(&from, &strange, 100);
		for (int k = rand_r(&seed) % 6; k >= 0; k--) {
			struct announcement a = {{PACKET_MAGIC, PACKET_VERSION, PACKET_CONSUMER},
						 rand_r(&seed) % 4, rand_r(&seed) % 40};
			int fds[4] = {pair[0], page};
			for (int f = 0; rand_r(&seed) % 3 == 0 && f < 4; f++)
				fds[f] = all[rand_r(&seed) % 6];
			if (rand_r(&seed) % 4 == 0)
				((uint8_t *)&a)[rand_r(&seed) % sizeof(a)] ^= 1u << rand_r(&seed) % 8;
			send_with(fd, &a, sizeof(a) - (rand_r(&seed) % 8 == 0), fds,
				  rand_r(&seed) % 4 ? 2 : rand_r(&seed) % 3);
			*count = rand_r(&seed) % 3 ? (uint32_t)rand_r(&seed) % 3 : UINT32_MAX;
			fcntl(pair[0], F_SETFL, 0); /* clears O_NONBLOCK */
			while (doca_pe_progress(strange.pe))
				;
			while (doca_pe_progress(from.pe))
				;
			if (end_state(&from) != DOCA_CTX_STATE_RUNNING)
				break; /* a malformed packet ended the connection */
			struct doca_task *send = a_send(&from, NULL, "imm", 1 + rand_r(&seed) % 3);
			if (doca_task_submit(send) != DOCA_SUCCESS)
				doca_task_free(send);
			while (doca_pe_progress(from.pe))
				;
		}
		close(fd);
		for (int f = 0; f < 2; f++)
			close(pair[f]);
		close(all[5]);
		UNTIL(&strange, strange.disconnects == strange.connects);
		close_end(&from);
	}
	close(page);
	close(event);
	for (int f = 0; f < 2; f++)
		close(pipes[f]);
	munmap(count, size);
	CHECK_EQ(open_fds(), before - 2); /* the page and the event were opened before */
	stopped(&strange);
}

TEST(a_stranger_s_consumer_expires_with_its_channel)
{
	int pair[2], fds[2];

	a_strange_server();
	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	fds[0] = pair[0];
	fds[1] = a_counter(F_SEAL_SHRINK);
	int fd = announce(fds, 2, 7);
	UNTIL(&strange, of_server.added);
	CHECK_EQ(of_server.last, 7);
	struct end from = {0};
	a_producer(&from, &strange, 100);
	struct doca_task *send = a_send(&from, NULL, NULL, 7);
	REFUSED(doca_task_submit(send), AGAIN);
	close(pair[0]);
	close(pair[1]);
	UNTIL(&strange, of_server.expired);
	doca_task_free(send);
	close(fds[1]);
	close(fd);
	close_end(&from);
	UNTIL(&strange, strange.disconnects);
	stopped(&strange);
}

/* Sends arbitrary packets to a consumer whose channel it was given. */
TEST(noise_on_a_channel_ends_the_consumer_alone)
{
	const struct fast_message good = {.magic = FAST_MESSAGE_MAGIC, .producer = 9, .size = 4};
	struct fast_message bad[6];
	struct side c = {0};

	a_fast_pair(&strange, &c, "noise");
	for (int i = 0; i < 6; i++)
		bad[i] = good;
	bad[0].magic++;
	bad[1].imm_len = 33;
	bad[2].in_memfd = 1;
	bad[3].size = UINT64_MAX;
	bad[4].size = 5;
	bad[5].in_memfd = 77;
	for (int i = 0; i < 8; i++) {
		struct end to = {0};
		uint8_t packet[sizeof(good) + 4];
		size_t size = i == 7 ? 1 : sizeof(packet);

		memset(&of_client, 0, sizeof(of_client));
		a_consumer(&to, &strange, 100);
		UNTIL(&c, of_client.added);
		struct doca_buf *in = room_at(&to, 0, 100);
		receive_into(&to, in);
		memcpy(packet, i < 6 ? &bad[i] : &good, sizeof(good));
		memcpy(packet + sizeof(good), "good", 4);
		/* The only channel to the other side, which is in this process. */
		struct remote *r = c.peer->fast->remotes;
		CHECK_EQ(send(r->fd, packet, size, 0), (ssize_t)size);
		UNTIL(&to, to.ended);
		CHECK_EQ(to.done, i == 6);
		if (i != 6)
			UNTIL(&to, end_state(&to) == DOCA_CTX_STATE_IDLE);
		let_go(in);
		close_end(&to);
		UNTIL(&c, of_client.expired);
		CHECK(running(&strange) && running(&c));
	}
	both_stopped(&strange, &c);
}

TEST_MAIN(in_a_folder)
