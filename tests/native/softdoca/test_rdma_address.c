// SPDX-License-Identifier: Apache-2.0
/* RDMA connections by address, within a process and between two. With OVER_TCP by a port of TCP, which an
 * adapter has; otherwise by a Unix socket. */
#include "rdma_check.h"

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "other_process.h"

#ifdef OVER_TCP
#include <arpa/inet.h>

#include "address_over_tcp.h"
#define LOOPBACK6 "::ffff:127.0.0.1" /* where the server listens */
#else
#define LOOPBACK6 "::1"
#endif

static struct side client, server;
static unsigned requests, established, failures;
static bool accepts;

static uint16_t port(void)
{
	return (uint16_t)(20000 + getpid() % 10000); /* no port that the kernel chooses */
}

static void on_request(struct doca_rdma_connection *c, union doca_data ctx_data)
{
	struct side *s = ctx_data.ptr;

	requests++;
	s->connection = c;
	OK(doca_rdma_connection_set_user_data(c, number(7)));
	if (accepts)
		OK(doca_rdma_connection_accept(c, NULL, 0));
}

static void on_established(struct doca_rdma_connection *c, union doca_data data, union doca_data ctx_data)
{
	struct side *s = ctx_data.ptr;

	CHECK_EQ(data.u64, 7);
	s->connection = c;
	established++;
}

static void on_failure(struct doca_rdma_connection *c, union doca_data data, union doca_data ctx_data)
{
	(void)ctx_data;
	CHECK_EQ(data.u64, 7);
	REFUSED(doca_rdma_connection_disconnect(c), BAD_STATE);
	failures++;
}

static void open_side(struct side *s)
{
	side_make(s, LENT, 2); /* a server may see the end of one after the next one's begin */
	OK(doca_rdma_set_connection_state_callbacks(s->rdma, on_request, on_established, on_failure,
						    on_disconnect));
#ifdef OVER_TCP
	over_tcp(s->rdma);
#endif
	OK(doca_ctx_start(s->ctx));
	requests = established = failures = 0;
	accepts = true;
}

static void call(struct side *s, enum doca_rdma_addr_type type, const char *text, uint16_t to)
{
	struct doca_rdma_addr *a;

	OK(doca_rdma_addr_create(type, text, to, &a));
	OK(doca_rdma_connect_to_addr(s->rdma, a, number(7)));
	OK(doca_rdma_addr_destroy(a));
}

/* Progresses both sides until a count is reached. */
static void until(const unsigned *count, unsigned n)
{
	double end = now_s() + WAIT_SECONDS;

	while (*count < n) {
		if (server.pe)
			doca_pe_progress(server.pe);
		if (client.pe)
			doca_pe_progress(client.pe);
		CHECK(now_s() < end);
	}
}

static void open_both(void)
{
	open_side(&server);
	open_side(&client);
	OK(doca_rdma_start_listen_to_port(server.rdma, port()));
}

static void close_both(void)
{
	side_close(&client);
	side_close(&server);
}

static void send_one(void)
{
	struct doca_buf *src = near_buf(&client, 0, 64, true), *dst = near_buf(&server, 0, 64, false);

	fill(client.bytes, 64, 3);
	SUBMIT(&server, receive, dst, number(1));
	SUBMIT(&client, send, client.connection, src, number(2));
	until(&server.done, 1);
	until(&client.done, 1);
	CHECK_EQ(memcmp(client.bytes, server.bytes, 64), 0);
	drop(src, dst);
}

TEST(a_client_and_a_server_connect)
{
	open_both();
	call(&client, DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", port());
	until(&established, 2);
	CHECK_EQ(requests, 1);
	send_one();
	OK(doca_rdma_connection_disconnect(client.connection));
	until(&server.disconnected, 1);
	OK(doca_rdma_connection_disconnect(server.connection));
	CHECK_EQ(client.disconnected, 0);
	call(&client, DOCA_RDMA_ADDR_TYPE_IPv6, LOOPBACK6, port());
	until(&established, 4);
	close_both();
}

static void address_is(const struct doca_rdma_addr *a, enum doca_rdma_addr_type type, const char *text)
{
	enum doca_rdma_addr_type got_type;
	const char *got;
	uint16_t got_port;

	OK(doca_rdma_addr_get_params(a, &got_type, &got, &got_port));
	CHECK_EQ(got_type, type);
	CHECK(!strcmp(got, text));
	CHECK_EQ(got_port, port());
	REFUSED(doca_rdma_addr_get_params(a, NULL, &got, &got_port), INVALID_VALUE);
	REFUSED(doca_rdma_addr_get_params(a, &got_type, NULL, &got_port), INVALID_VALUE);
	REFUSED(doca_rdma_addr_get_params(a, &got_type, &got, NULL), INVALID_VALUE);
}

/* A server of several ports chooses by it what to do with a request, as fknauf/shoc does. */
TEST(a_connection_knows_its_address)
{
	struct doca_rdma_addr *a;

	open_both();
	call(&client, DOCA_RDMA_ADDR_TYPE_IPv6, LOOPBACK6, port());
	until(&established, 2);
	OK(doca_rdma_connection_get_addr(client.connection, &a));
	address_is(a, DOCA_RDMA_ADDR_TYPE_IPv6, LOOPBACK6);
	OK(doca_rdma_connection_get_addr(server.connection, &a));
	address_is(a, DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1");
	REFUSED(doca_rdma_connection_get_addr(server.connection, NULL), INVALID_VALUE);
	close_both();
}

TEST(a_request_can_wait_for_its_answer)
{
	open_both();
	accepts = false;
	call(&client, DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", port());
	until(&requests, 1);
	for (int i = 0; i < 1000; i++)
		doca_pe_progress(client.pe);
	CHECK_EQ(established + failures, 0);
	OK(doca_rdma_connection_accept(server.connection, NULL, 0));
	REFUSED(doca_rdma_connection_accept(server.connection, NULL, 0), BAD_STATE);
	REFUSED(doca_rdma_connection_reject(server.connection), BAD_STATE);
	until(&established, 2);
	close_both();
}

TEST(what_is_rejected_fails)
{
	open_both();
	accepts = false;
	call(&client, DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", port());
	until(&requests, 1);
	REFUSED(doca_rdma_connection_accept(server.connection, NULL, 1), INVALID_VALUE);
	OK(doca_rdma_connection_reject(server.connection));
	until(&failures, 1);
	accepts = true;
	call(&client, DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", port());
	until(&established, 2);
	close_both();
}

TEST(a_server_with_all_its_connections_rejects)
{
	struct side_offer o;

	open_both();
	offer_connection(&server, &o);
	offer_connection(&server, &o);
	call(&client, DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", port());
	until(&failures, 1);
	CHECK_EQ(requests, 0);
	close_both();
}

#ifndef OVER_TCP /* there, a packet to another machine may be lost */
TEST(an_address_without_a_server_fails)
{
	static const struct {
		enum doca_rdma_addr_type type;
		const char *text;
	} addresses[] = {
		{DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1"}, /* of another port */
		{DOCA_RDMA_ADDR_TYPE_IPv4, "192.0.2.1"}, /* of another machine */
		{DOCA_RDMA_ADDR_TYPE_IPv6, "2001:db8::1"},
		{DOCA_RDMA_ADDR_TYPE_GID, "2001:db8::1"}, /* of another NIC */
	};

	open_both();
	for (unsigned i = 0; i < sizeof addresses / sizeof *addresses; i++) {
		call(&client, addresses[i].type, addresses[i].text, (uint16_t)(port() + !i));
		until(&failures, i + 1);
	}
	CHECK_EQ(established, 0);
	close_both();
}
#endif

/* On a busy machine a call may be given up before: then the next one is tried. */
TEST(a_server_may_listen_after_the_call)
{
	double end = now_s() + WAIT_SECONDS;

	open_side(&server);
	open_side(&client);
	while (established < 2) {
		failures = 0;
		call(&client, DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", port());
		doca_pe_progress(client.pe);
		OK(doca_rdma_start_listen_to_port(server.rdma, port()));
		while (established < 2 && !failures) {
			doca_pe_progress(server.pe);
			doca_pe_progress(client.pe);
			CHECK(now_s() < end);
		}
		if (failures)
			OK(doca_rdma_stop_listen_to_port(server.rdma, port()));
	}
	send_one();
	close_both();
}

TEST(a_context_stops_while_it_calls)
{
	open_both();
	call(&client, DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", (uint16_t)(port() + 1));
	close_both();
	CHECK_EQ(established, 0);
}

TEST(a_port_has_one_listener)
{
	open_both();
	REFUSED(doca_rdma_start_listen_to_port(client.rdma, port()), IN_USE);
	REFUSED(doca_rdma_stop_listen_to_port(client.rdma, port()), NOT_FOUND);
	OK(doca_rdma_stop_listen_to_port(server.rdma, port()));
	OK(doca_rdma_start_listen_to_port(client.rdma, port()));
	side_stop(&client);
	REFUSED(doca_rdma_start_listen_to_port(client.rdma, port()), BAD_STATE);
	OK(doca_rdma_start_listen_to_port(server.rdma, port()));
	close_both();
}

CALL(destroy, doca_rdma_addr_destroy(h))
CALL(connect_to, doca_rdma_connect_to_addr(client.rdma, h, number(0)))
CALL(listen_to, doca_rdma_start_listen_to_port(h, 1))
CALL(accept_from, doca_rdma_connection_accept(h, NULL, 0))

static int dial(void)
{
#ifdef OVER_TCP
	const struct sockaddr_in name = {AF_INET, htons(port()), {htonl(INADDR_LOOPBACK)}, {0}};
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const socklen_t size = sizeof name;
#else
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	const int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "softdoca-rdma-%u-%u",
			       (unsigned)geteuid(), port());
	const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
#endif
	CHECK_EQ(connect(fd, (const struct sockaddr *)&name, size), 0);
	return fd;
}

/* Progresses the server until it has ended this connection. */
static void until_ended(int fd)
{
	double end = now_s() + WAIT_SECONDS;
	uint8_t byte;

	while (recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN) {
		doca_pe_progress(server.pe);
		CHECK(now_s() < end);
	}
	close(fd);
}

TEST(strangers_who_say_nothing_keep_nobody_waiting)
{
	int fds[20];

	open_both();
	for (int i = 0; i < 20; i++)
		fds[i] = dial();
	for (double end = now_s() + 0.2; now_s() < end;)
		doca_pe_progress(server.pe);
	call(&client, DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", port());
	until(&established, 2);
	for (int i = 0; i < 20; i++)
		close(fds[i]);
	send_one();
	close_both();
}

TEST(strangers_who_say_anything_are_gone)
{
	uint8_t bytes[80]; /* of a packet; over TCP fewer may be the begin of one */

	open_both();
	for (unsigned i = 0; i < 300; i++) {
		int fd = dial();
#ifdef OVER_TCP
		size_t n = sizeof bytes;
#else
		size_t n = i % 2 ? sizeof bytes : (size_t)rand() % sizeof bytes;
#endif

		for (size_t k = 0; k < n; k++)
			bytes[k] = (uint8_t)rand();
		CHECK_EQ(send(fd, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
		until_ended(fd);
	}
	CHECK_EQ(requests, 0);
	call(&client, DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", port());
	until(&established, 2);
	send_one();
	close_both();
}

#ifdef OVER_TCP
TEST(a_caller_that_ends_within_its_request_is_gone)
{
	open_both();
	const int fd = dial();

	CHECK_EQ(send(fd, "a packet", 8, MSG_NOSIGNAL), 8);
	shutdown(fd, SHUT_WR);
	until_ended(fd);
	close_both();
}

TEST(a_byte_behind_the_last_packet_hides_no_end)
{
	open_both();
	call(&client, DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", port());
	until(&established, 2);
	CHECK_EQ(send(socket_of(client.connection), "x", 1, MSG_NOSIGNAL), 1);
	OK(doca_rdma_connection_disconnect(client.connection));
	until(&server.disconnected, 1);
	OK(doca_rdma_connection_disconnect(server.connection));
	close_both();
}

/* They have all connections of the server, and its blobs are those of a queue pair that exists. */
TEST(callers_that_do_not_say_that_they_are_ready_make_room)
{
	const uint32_t kind[2] = {1, 0}; /* a request */
	struct side_offer o;
	int fds[2];

	open_both();
	offer_connection(&client, &o);
	memcpy(o.blob + o.blob_len, kind, sizeof kind);
	for (unsigned i = 0; i < 2; i++) {
		fds[i] = dial();
		CHECK_EQ(send(fds[i], o.blob, o.blob_len + sizeof kind, MSG_NOSIGNAL), 80);
	}
	until(&requests, 2);
	until(&failures, 2);
	call(&client, DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", port());
	until(&established, 2);
	send_one();
	for (unsigned i = 0; i < 2; i++)
		close(fds[i]);
	close_both();
}
#endif

TEST(invalid_arguments_are_refused)
{
	struct doca_rdma_addr *a;

	open_side(&client);
	void *const handles[] = NO_HANDLES(client.map);
	all_refuse(handles, sizeof handles / sizeof *handles);
	REFUSED(doca_rdma_addr_create((enum doca_rdma_addr_type)3, "127.0.0.1", 1, &a), INVALID_VALUE);
	REFUSED(doca_rdma_addr_create(DOCA_RDMA_ADDR_TYPE_IPv4, "::1", 1, &a), INVALID_VALUE);
	REFUSED(doca_rdma_addr_create(DOCA_RDMA_ADDR_TYPE_GID, "1.2.3", 1, &a), INVALID_VALUE);
	REFUSED(doca_rdma_addr_create(DOCA_RDMA_ADDR_TYPE_IPv4, NULL, 1, &a), INVALID_VALUE);
	side_close(&client);
}

/* ---- two processes ---- */

static void serve(int fd)
{
	uint16_t my_port = port();

	open_side(&server);
	OK(doca_rdma_start_listen_to_port(server.rdma, my_port));
	say(fd, &my_port, sizeof my_port);
	until(&established, 1);
	until(&server.disconnected, 1);
	OK(doca_rdma_connection_disconnect(server.connection));
	until(&established, 2);
	pause();
}

TEST(the_end_of_either_side_is_seen_by_the_other)
{
	struct other o = start(serve);
	uint16_t its_port;

	hear(o.fd, &its_port, sizeof its_port);
	open_side(&client);
	call(&client, DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", its_port);
	until(&established, 1);
	OK(doca_rdma_connection_disconnect(client.connection));
	doca_pe_progress(client.pe);
	call(&client, DOCA_RDMA_ADDR_TYPE_IPv4, "127.0.0.1", its_port);
	until(&established, 2);
	kill_and_reap(o);
	until(&client.disconnected, 1);
	side_close(&client);
}

TEST_MAIN(run_tests)
