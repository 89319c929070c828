// SPDX-License-Identifier: Apache-2.0
/* RDMA between two processes. */
#include "rdma_check.h"

#include "pair_check.h"

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
	REFUSED(doca_rdma_connect(s.rdma, theirs.blob, theirs.blob_len, s.connection), CONNECTION_ABORTED);
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

static void read_write_host(int fd)
{
	export_and_wait(fd, 8192, PCI_RW);
}

static void read_only_host(int fd)
{
	export_and_wait(fd, 8192, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_PCI_READ_ONLY);
}

/* Waits for a task; returns whether it succeeded. */
static bool moved(unsigned ended)
{
	side_until(&s, ended);
	return s.last == DOCA_SUCCESS;
}

/* Reads what its peer names, writes there if it is told to, and reads again when it is told to. */
static void storage_target(int fd)
{
	static uint8_t want[8192];
	uint8_t word, is_writer, told;

	hear(fd, &is_writer, 1);
	meet(fd);
	struct doca_buf *near = near_buf(&s, 0, 8192, false), *far = peer_buf(&s, &theirs, 0, 8192, true);
	SUBMIT(&s, read, s.connection, far, near, number(1));
	fill(want, sizeof want, 5);
	word = moved(1) && !memcmp(s.bytes, want, sizeof want);
	say(fd, &word, 1);
	if (is_writer) {
		fill(s.bytes, 8192, 6);
		OK(doca_buf_set_data(far, (void *)(uintptr_t)theirs.addr, 0));
		SUBMIT(&s, write, s.connection, near, far, number(2));
		word = moved(2);
		say(fd, &word, 1);
	}
	hear(fd, &told, 1);
	OK(doca_buf_reset_data_len(near));
	OK(doca_buf_set_data(far, (void *)(uintptr_t)theirs.addr, 8192));
	if (word) {
		SUBMIT(&s, read, s.connection, far, near, number(3));
		word = moved(s.done + s.failed + 1);
		say(fd, &word, 1);
	}
	drop(near, far);
	side_close(&s);
}

static uint8_t said(int fd)
{
	double end = now_s() + WAIT_SECONDS;
	uint8_t word;

	while (recv(fd, &word, 1, MSG_DONTWAIT) != 1) {
		doca_pe_progress(s.pe);
		CHECK(now_s() < end);
	}
	return word;
}

enum stopping { BY_THE_HOST, BY_THIS_PROCESS };

/* As NVIDIA's application "storage": the host's memory is exported to the DPU, which exports its map to a
 * target, and the target reads and writes the host's memory. */
static void a_host_and_a_target(void (*host)(int fd), bool is_writer, bool is_by_thread, enum stopping stopping)
{
	const bool may_write = host == read_write_host;

	choose(is_by_thread);
	struct other h = start(host), target = start(storage_target);
	struct offer lent;
	struct doca_mmap *map;
	const void *desc, *again;
	size_t len;

	hear(h.fd, &lent, sizeof lent);
	side_make(&s, LENT, 1);
	OK(doca_mmap_create_from_export(NULL, lent.desc, lent.desc_len, s.dev, &map));
	side_offers(&s, &mine);
	OK(doca_mmap_export_rdma(map, s.dev, &desc, &len));
	OK(doca_mmap_export_rdma(map, s.dev, &again, &len));
	CHECK(again == desc);
	mine.addr = lent.addr;
	mine.desc_len = len;
	memcpy(mine.desc, desc, len);
	say(target.fd, &(uint8_t){is_writer}, 1);
	say(target.fd, &mine, sizeof mine);
	hear(target.fd, &theirs, sizeof theirs);
	side_takes(&s, &theirs);
	CHECK_EQ(said(target.fd), 1);
	if (is_writer)
		CHECK_EQ(said(target.fd), may_write);
	/* Either stop ends this process's export. */
	if (stopping == BY_THE_HOST) {
		say(h.fd, "s", 1);
		CHECK_EQ(said(h.fd), is_writer && may_write);
	} else {
		OK(doca_mmap_stop(map));
	}
	say(target.fd, "s", 1);
	if (!is_writer || may_write) /* else the connection is broken */
		CHECK_EQ(said(target.fd), 0);
	join(target);
	OK(doca_mmap_destroy(map));
	side_close(&s);
	join(h);
}

TEST(a_peer_uses_the_memory_that_a_host_exported_to_this_process)
{
	for (int is_by_thread = 0; is_by_thread < 2; is_by_thread++) {
		for (int stopping = BY_THE_HOST; stopping <= BY_THIS_PROCESS; stopping++) {
			a_host_and_a_target(read_write_host, true, is_by_thread, stopping);
			a_host_and_a_target(read_only_host, false, is_by_thread, stopping);
		}
		a_host_and_a_target(read_only_host, true, is_by_thread, BY_THE_HOST);
	}
}

TEST_MAIN(run_tests)
