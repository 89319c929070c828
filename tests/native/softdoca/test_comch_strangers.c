// SPDX-License-Identifier: Apache-2.0
/* Comch and hostile clients: other programs of this user send anything to its sockets. */
#include "comch_check.h"

static struct side s, c;

static int dial(void)
{
	struct sockaddr_un a;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && socket_path(&a));
	CHECK_EQ(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static uint32_t seed = 1;

static uint32_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 17;
	return seed ^= seed << 5;
}

/* Records the first packet that a client sends. */
static size_t overhear(uint8_t *out, size_t cap)
{
	struct side spy = {0};
	struct sockaddr_un a;
	char hidden[sizeof(a.sun_path) + 8];
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	/* Take the server's place for a moment. */
	CHECK(socket_path(&a));
	snprintf(hidden, sizeof(hidden), "%s.away", a.sun_path);
	CHECK_EQ(rename(a.sun_path, hidden), 0);
	CHECK_EQ(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	CHECK_EQ(listen(fd, 1), 0);
	a_client(&spy, "strangers");
	REFUSED(doca_ctx_start(spy.ctx), IN_PROGRESS);
	int in = accept(fd, NULL, NULL);
	ssize_t n = recv(in, out, cap, 0);
	CHECK(n > 0);
	close(in);
	close(fd);
	CHECK_EQ(rename(hidden, a.sun_path), 0);
	UNTIL(&spy, idle(&spy));
	destroyed(&spy);
	return (size_t)n;
}

static void served(const char *name)
{
	struct side friend = {0};
	uint32_t before = s.received;

	a_client(&friend, name);
	REFUSED(doca_ctx_start(friend.ctx), IN_PROGRESS);
	UNTIL2(&s, &friend, running(&friend));
	connected(&friend);
	say(&friend, "hello", 5);
	UNTIL2(&s, &friend, s.received == before + 1 && friend.sent);
	uint32_t left = s.disconnects;
	stopped(&friend);
	UNTIL(&s, s.disconnects == left + 1);
}

static void quiet_server(void)
{
	while (doca_pe_progress(s.pe))
		;
}

TEST(a_server_outlives_strangers_who_say_anything)
{
	uint8_t hello[4096], bytes[8192];
	size_t n;

	a_server(&s, "strangers");
	OK(doca_ctx_start(s.ctx));
	n = overhear(hello, sizeof(hello));
	for (uint32_t i = 0; i < 3000; i++) {
		int fd = dial();
		size_t len = i % 3 ? n : 1 + rnd() % sizeof(bytes);
		for (size_t k = 0; k < len; k++)
			bytes[k] = i % 3 ? hello[k] : (uint8_t)rnd();
		if (i % 3 == 1) /* a hello with an altered bit, or truncated */
			bytes[rnd() % n] ^= (uint8_t)(1u << rnd() % 8);
		else if (i % 3 == 2)
			len = rnd() % n;
		send(fd, bytes, len, MSG_NOSIGNAL);
		if (i % 2)
			quiet_server();
		close(fd);
		quiet_server();
	}
	/* Some altered bits only change the size of the largest message, so that the hello is still
	 * valid. */
	CHECK_EQ(s.connects, s.disconnects);
	CHECK_EQ(s.received, 0);
	served("strangers");
	stopped(&s);
}

TEST(one_who_leaves_before_it_is_welcome_is_an_unsuccessful_connection)
{
	uint8_t hello[4096];
	size_t n;

	a_server(&s, "strangers");
	OK(doca_ctx_start(s.ctx));
	n = overhear(hello, sizeof(hello));
	for (uint32_t i = 1; i <= 10; i++) {
		int fd = dial();
		CHECK_EQ(send(fd, hello, n, MSG_NOSIGNAL), (ssize_t)n);
		close(fd);
		UNTIL(&s, s.unsuccessful == i);
	}
	quiet_server();
	CHECK_EQ(s.connects, 0);
	CHECK_EQ(s.disconnects, 0);
	served("strangers");
	stopped(&s);
}

TEST(one_who_greets_well_and_then_says_anything_is_gone)
{
	uint8_t hello[4096], bytes[8192];
	size_t n;

	a_server(&s, "strangers");
	OK(doca_ctx_start(s.ctx));
	n = overhear(hello, sizeof(hello));
	for (uint32_t i = 1; i <= 300; i++) {
		int fd = dial();
		CHECK_EQ(send(fd, hello, n, MSG_NOSIGNAL), (ssize_t)n);
		UNTIL(&s, s.connects == i);
		size_t len = i % 8 ? 1 + rnd() % sizeof(bytes) : 0; /* includes an empty packet */
		for (size_t k = 0; k < len; k++)
			bytes[k] = (uint8_t)rnd();
		if (i % 4 == 1)
			memcpy(bytes, hello, len < 8 ? len : 8); /* a hello in place of a message */
		CHECK_EQ(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
		UNTIL(&s, s.disconnects == i);
		close(fd);
	}
	CHECK_EQ(s.received, 0);
	served("strangers");
	stopped(&s);
}

TEST(one_who_says_nothing_keeps_nobody_waiting)
{
	int fds[100];

	a_server(&s, "silent");
	OK(doca_ctx_start(s.ctx));
	for (int i = 0; i < 100; i++)
		fds[i] = dial();
	served("silent");
	for (int i = 0; i < 100; i++)
		close(fds[i]);
	quiet_server();
	CHECK_EQ(s.connects, 1);
	stopped(&s);
}

/* A process that answers in the server's place is not accepted as a server: the client ends, and
 * only its state callback is called. */
TEST(a_client_outlives_a_liar_in_its_servers_place)
{
	struct sockaddr_un a;
	uint8_t bytes[8192];

	a_server(&s, "liar");
	a_client(&c, "liar");
	OK(doca_ctx_start(s.ctx));
	CHECK(socket_path(&a));
	OK(doca_ctx_stop(s.ctx));
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK_EQ(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	CHECK_EQ(listen(fd, 8), 0);
	for (int i = 0; i < 500; i++) {
		memset(c.states, 0, sizeof(c.states));
		REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
		int in = accept(fd, NULL, NULL);
		ssize_t n = recv(in, bytes, sizeof(bytes), 0);
		CHECK(n > 8);
		size_t len = i % 4 ? 16 : rnd() % sizeof(bytes);
		for (size_t k = i % 2 ? 8 : 0; k < len; k++)
			bytes[k] = (uint8_t)rnd();
		if (i % 2)
			bytes[6] = (uint8_t)(rnd() % 6); /* each kind, after a valid magic number */
		send(in, bytes, len, MSG_NOSIGNAL);
		close(in);
		UNTIL(&c, idle(&c));
		CHECK(!strcmp(c.states, "SPI") || !strcmp(c.states, "SRPI"));
	}
	CHECK_EQ(c.received, 0);
	close(fd);
	destroyed(&c);
	destroyed(&s);
	unlink(a.sun_path);
}

TEST_MAIN(in_a_folder)
