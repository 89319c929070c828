// SPDX-License-Identifier: Apache-2.0
/* RDMA between two processes. */
#include "rdma_check.h"

#include "other_process.h"

static struct side s;
static struct side_offer mine, theirs;

static void meet(int fd)
{
	side_make(&s, LENT, 1);
	side_offers(&s, &mine);
	say(fd, &mine, sizeof mine);
	hear(fd, &theirs, sizeof theirs);
	side_takes(&s, &theirs);
}

/* Receives one message, waits for a byte, and says what is at the start of its memory. */
static void receiver(int fd)
{
	uint8_t word;

	meet(fd);
	struct doca_buf *dst = near_buf(&s, 4096, 4096, false);
	SUBMIT(&s, receive, dst, number(1));
	say(fd, "r", 1);
	side_until(&s, 1);
	CHECK_EQ(s.done, 1);
	CHECK_EQ(data_len(dst), 4096);
	hear(fd, &word, 1);
	say(fd, s.bytes, 8192);
	drop(dst);
	side_close(&s);
}

TEST(writes_and_messages_arrive_in_another_process)
{
	static uint8_t there[8192];
	uint8_t word;
	int status;
	struct other o = start(receiver);

	meet(o.fd);
	fill(s.bytes, 4096, 9);
	struct doca_buf *src = near_buf(&s, 0, 4096, true), *dst = peer_buf(&s, &theirs, 0, 4096, false);
	hear(o.fd, &word, 1);
	SUBMIT(&s, write, s.connection, src, dst, number(1));
	SUBMIT(&s, send, s.connection, src, number(2));
	side_until(&s, 2);
	CHECK_EQ(s.done, 2);
	say(o.fd, "g", 1);
	hear(o.fd, there, sizeof there);
	CHECK_EQ(memcmp(there, s.bytes, 4096), 0);
	CHECK_EQ(memcmp(there + 4096, s.bytes, 4096), 0);
	CHECK_EQ(waitpid(o.pid, &status, 0), o.pid);
	CHECK_EQ(status, 0);
	close(o.fd);
	drop(src, dst);
	side_close(&s);
}

static void one_message(int fd)
{
	uint8_t word;

	meet(fd);
	struct doca_buf *dst = near_buf(&s, 0, 64, false);
	SUBMIT(&s, receive, dst, number(1));
	say(fd, "r", 1);
	hears(fd, &word, 1);
	side_until(&s, 1);
	CHECK_EQ(s.done, 1);
	drop(dst);
	side_close(&s);
}

TEST(a_message_that_is_complete_arrives_though_the_sender_ends)
{
	for (int i = 0; i < 10; i++) {
		struct other o = start(one_message);
		uint8_t word;
		int status;

		meet(o.fd);
		struct doca_buf *src = near_buf(&s, 0, 64, true);
		hear(o.fd, &word, 1);
		SUBMIT(&s, send, s.connection, src, number(1));
		side_until(&s, 1);
		drop(src);
		side_close(&s);
		close(o.fd);
		CHECK_EQ(waitpid(o.pid, &status, 0), o.pid);
		CHECK_EQ(status, 0);
	}
}

static void waiter(int fd)
{
	uint8_t word;

	meet(fd);
	say(fd, "r", 1);
	hears(fd, &word, 1);
	pause();
}

TEST(the_death_of_a_peer_ends_tasks_and_connection)
{
	struct other o = start(waiter);
	double end = now_s() + WAIT_SECONDS;
	uint8_t word;

	meet(o.fd);
	struct doca_buf *src = near_buf(&s, 0, 4096, true), *dst = near_buf(&s, 4096, 4096, false);
	hear(o.fd, &word, 1);
	SUBMIT(&s, send, s.connection, src, number(1)); /* waits for a receive of the peer */
	SUBMIT(&s, receive, dst, number(2));
	for (int i = 0; i < 1000; i++)
		doca_pe_progress(s.pe);
	CHECK_EQ(s.done + s.failed, 0);
	kill_and_reap(o);
	side_until(&s, 2);
	CHECK_EQ(s.failed, 2);
	while (!s.disconnected && now_s() < end)
		doca_pe_progress(s.pe);
	CHECK_EQ(s.disconnected, 1);
	drop(src, dst);
	side_close(&s);
}

TEST(the_death_of_a_peer_is_seen_without_tasks)
{
	struct other o = start(waiter);
	double end = now_s() + WAIT_SECONDS;
	uint8_t word;

	meet(o.fd);
	hear(o.fd, &word, 1);
	kill_and_reap(o);
	while (!s.disconnected && now_s() < end)
		doca_pe_progress(s.pe);
	CHECK_EQ(s.disconnected, 1);
	side_close(&s);
}

static void one_that_ended(int fd)
{
	side_make(&s, LENT, 1);
	side_offers(&s, &mine);
	say(fd, &mine, sizeof mine);
	side_close(&s);
}

TEST(a_peer_that_ended_cannot_be_connected)
{
	struct other o = start(one_that_ended);
	int status;

	side_make(&s, LENT, 1);
	side_offers(&s, &mine);
	hear(o.fd, &theirs, sizeof theirs);
	CHECK_EQ(waitpid(o.pid, &status, 0), o.pid);
	close(o.fd);
	REFUSED(doca_rdma_connect(s.rdma, theirs.blob, theirs.blob_len, s.connection), NOT_CONNECTED);
	side_close(&s);
}

/* As with an adapter, whose key is only checked where it is used. NTHU-LSALAB/bf3-bench relies on it. */
TEST(the_export_of_a_process_that_ended_makes_a_map)
{
	struct other o = start(one_that_ended);
	struct doca_mmap *map;
	void *addr;
	size_t len;
	int status;

	side_make(&s, LENT, 1);
	hear(o.fd, &theirs, sizeof theirs);
	CHECK_EQ(waitpid(o.pid, &status, 0), o.pid);
	close(o.fd);
	OK(doca_mmap_create_from_export(NULL, theirs.desc, theirs.desc_len, s.dev, &map));
	OK(doca_mmap_get_memrange(map, &addr, &len));
	CHECK_EQ((uintptr_t)addr, theirs.addr);
	OK(doca_mmap_destroy(map));
	side_close(&s);
}

TEST_MAIN(run_tests)
