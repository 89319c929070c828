// SPDX-License-Identifier: Apache-2.0
/*
 * doca_rdma over the RDMA adapters of two machines, which may be of different architectures.
 *
 *	far_rdma serve PORT             the side that is written to; the two are connected by descriptors
 *	far_rdma join ADDRESS PORT      the side that writes, and whose peer then dies
 *	far_rdma besieged PORT          the side that listens while a hostile machine calls it
 *	far_rdma assault ADDRESS PORT   the hostile one, which in the end calls as it should
 *	far_rdma alone                  what an adapter's device refuses
 *
 * Descriptors and synchronization go over TCP, the bytes over RDMA.
 */
#include <sys/wait.h>

#include <doca_gpunetio.h>
#include <doca_rdma_bridge.h>

#include "rdma_check.h"

#include "other_machine.h"
#include "other_process.h"

#define N         ((size_t)100000) /* several packets */
#define DOCA_PORT 7005 /* of a connection by address */

static struct side s;
static struct side_offer mine, theirs;

/* ---- the two machines ---- */

static struct doca_dev *the_adapter(void)
{
	char name[DOCA_DEVINFO_IBDEV_NAME_SIZE] = "";
	struct doca_devinfo **list;
	struct doca_dev *dev = NULL;
	uint32_t n;

	OK(doca_devinfo_create_list(&list, &n));
	for (uint32_t i = 0; i < n && !dev; i++) {
		OK(doca_devinfo_get_ibdev_name(list[i], name, sizeof name));
		if (!strcmp(name, "rxe0"))
			OK(doca_dev_open(list[i], &dev));
	}
	OK(doca_devinfo_destroy_list(list));
	CHECK(dev);
	return dev;
}

static struct doca_rdma_task_receive *got[3];
static struct {
	enum doca_rdma_opcode opcode;
	uint32_t len;
	doca_be32_t immediate;
} seen[3];

static void note_receive(struct doca_rdma_task_receive *t, union doca_data data, union doca_data ctx_data)
{
	const unsigned i = (unsigned)data.u64;

	CHECK(i < 3 && got[i] == t);
	seen[i].opcode = doca_rdma_task_receive_get_result_opcode(t);
	seen[i].len = doca_rdma_task_receive_get_result_len(t);
	seen[i].immediate = doca_rdma_task_receive_get_result_immediate_data(t);
	on_receive(t, data, ctx_data);
}

static void meet(int fd, uint32_t permissions)
{
	side_make_on(&s, the_adapter(), permissions, 1);
	OK(doca_rdma_task_receive_set_conf(s.rdma, note_receive, on_receive_error, SIDE_TASKS));
	side_offers(&s, &mine);
	say(fd, &mine, sizeof mine);
	hear(fd, &theirs, sizeof theirs);
	side_takes(&s, &theirs);
}

/* Both sides say it, so that neither goes on alone. */
static void both(int fd)
{
	uint8_t byte = 1;

	say(fd, &byte, 1);
	hear(fd, &byte, 1);
}

/* ---- tasks ---- */

/* Its peer's tasks, in order; its memory: what is read, what is written, a word, two messages. */
enum { READ_AT = 0, WRITTEN_AT = 200000, WORD_AT = 400000, MESSAGE_AT = 500000, LOCAL_AT = 700000 };
enum { NOTICE = 0x600d, GREETING = 0xbeef };

static void serve_tasks(int fd)
{
	struct doca_buf *room[3];

	for (unsigned i = 0; i < 3; i++) {
		room[i] = near_buf(&s, MESSAGE_AT + i * 50000, 50000, false);
		OK(doca_rdma_task_receive_allocate_init(s.rdma, room[i], number(i), &got[i]));
		OK(doca_task_submit(doca_rdma_task_receive_as_task(got[i])));
	}
	fill(s.bytes + READ_AT, N, 3);
	memset(s.bytes + WORD_AT, 0, 8);
	both(fd);
	side_until(&s, 3);
	CHECK_EQ(s.failed, 0);
	CHECK_EQ(seen[0].opcode, DOCA_RDMA_OPCODE_RECV_SEND);
	CHECK_EQ(seen[0].len, 40000);
	CHECK_EQ(seen[1].opcode, DOCA_RDMA_OPCODE_RECV_SEND_WITH_IMM);
	CHECK_EQ(seen[1].len, 9);
	CHECK_EQ(seen[1].immediate, GREETING);
	CHECK_EQ(seen[2].opcode, DOCA_RDMA_OPCODE_RECV_WRITE_WITH_IMM);
	CHECK_EQ(seen[2].immediate, NOTICE);
	CHECK_EQ(data_len(room[0]), 40000);
	CHECK_EQ(data_len(room[1]), 9);
	CHECK_EQ(data_len(room[2]), 0);
	both(fd);
	say(fd, s.bytes, SIDE_BYTES);
	for (unsigned i = 0; i < 3; i++)
		drop(room[i]);
}

static uint64_t word_at(size_t offset)
{
	uint64_t word;

	memcpy(&word, s.bytes + offset, sizeof word);
	return word;
}

static void atomics(void)
{
	struct doca_buf *word = peer_buf(&s, &theirs, WORD_AT, 8, true);
	struct doca_buf *old[3];

	for (unsigned i = 0; i < 3; i++)
		old[i] = near_buf(&s, LOCAL_AT + i * 8, 8, false);
	SUBMIT(&s, atomic_fetch_add, s.connection, word, old[0], 5, number(0));
	SUBMIT(&s, atomic_cmp_swp, s.connection, word, old[1], 5, 70, number(1));
	SUBMIT(&s, atomic_cmp_swp, s.connection, word, old[2], 5, 99, number(2));
	side_until(&s, s.done + 3);
	CHECK_EQ(s.failed, 0);
	CHECK_EQ(word_at(LOCAL_AT), 0);
	CHECK_EQ(word_at(LOCAL_AT + 8), 5);
	CHECK_EQ(word_at(LOCAL_AT + 16), 70);
	for (unsigned i = 0; i < 3; i++)
		drop(old[i]);
	drop(word);
}

static void join_tasks(int fd)
{
	static uint8_t there[SIDE_BYTES], want[N];
	struct doca_buf *from = near_buf(&s, READ_AT, N, true), *more = near_buf(&s, READ_AT + N, 10, true);
	struct doca_buf *to = peer_buf(&s, &theirs, WRITTEN_AT, N + 10, false);
	struct doca_buf *far = peer_buf(&s, &theirs, READ_AT, N, true);
	struct doca_buf *near = near_buf(&s, WRITTEN_AT, N, false);
	struct doca_buf *message = near_buf(&s, READ_AT, 40000, true), *nine = near_buf(&s, READ_AT, 9, true);

	fill(s.bytes, N + 10, 4);
	OK(doca_buf_chain_list(from, more));
	both(fd);
	SUBMIT(&s, send, s.connection, message, number(0));
	SUBMIT(&s, send_imm, s.connection, nine, GREETING, number(1));
	SUBMIT(&s, read, s.connection, far, near, number(2));
	SUBMIT(&s, write_imm, s.connection, from, to, NOTICE, number(3));
	side_until(&s, 4);
	CHECK_EQ(s.failed, 0);
	for (uint64_t i = 0; i < 4; i++)
		CHECK_EQ(s.order[i], i);
	CHECK_EQ(data_len(near), N);
	fill(want, N, 3);
	CHECK_EQ(memcmp(s.bytes + WRITTEN_AT, want, N), 0);
	atomics();
	both(fd);
	hear(fd, there, sizeof there);
	CHECK_EQ(memcmp(there + WRITTEN_AT, s.bytes, N + 10), 0);
	CHECK_EQ(memcmp(there + MESSAGE_AT, s.bytes, 40000), 0);
	CHECK_EQ(memcmp(there + MESSAGE_AT + 50000, s.bytes, 9), 0);
	CHECK_EQ(memcmp(there + WORD_AT, (uint64_t[]){70}, 8), 0);
	drop(from, to, far, near, message, nine);
}

/* ---- ends ---- */

static void ends_with_an_error(unsigned ended)
{
	const unsigned done = s.done;
	double end = now_s() + WAIT_SECONDS;

	side_until(&s, ended);
	CHECK_EQ(s.done, done);
	CHECK_EQ(s.last, DOCA_ERROR_IO_FAILED);
	while (!s.disconnected) {
		doca_pe_progress(s.pe);
		CHECK(now_s() < end);
	}
}

/* A receive in flight is flushed by the stop of the context. */
static void close_with_a_receive(void)
{
	const unsigned failed = s.failed;
	struct doca_buf *room = near_buf(&s, 0, 64, false);

	SUBMIT(&s, receive, room, number(0));
	side_stop(&s);
	CHECK_EQ(s.failed, failed + 1);
	CHECK_EQ(s.last, DOCA_ERROR_IO_FAILED);
	drop(room);
	side_close(&s);
}

/* The peer may not read this memory: its read ends the connection, and so this receive. */
static void serve_refusal(int fd)
{
	meet(fd, LENT & ~(uint32_t)DOCA_ACCESS_FLAG_RDMA_READ);
	struct doca_buf *room = near_buf(&s, 0, 64, false);
	SUBMIT(&s, receive, room, number(0));
	both(fd);
	ends_with_an_error(1);
	both(fd);
	drop(room);
	side_close(&s);
}

static void join_refusal(int fd)
{
	meet(fd, LENT);
	memset(s.bytes, 7, 128);
	struct doca_buf *far = peer_buf(&s, &theirs, 0, 64, true), *near = near_buf(&s, 0, 64, false);
	both(fd);
	SUBMIT(&s, read, s.connection, far, near, number(0));
	ends_with_an_error(1);
	CHECK_EQ(data_len(near), 0);
	CHECK_EQ(s.bytes[0], 7);
	both(fd);
	drop(far, near);
	side_close(&s);
}

/* The peer is killed while this side waits for a message. */
static void serve_death(int fd)
{
	meet(fd, LENT);
	both(fd);
	kill(getpid(), SIGKILL);
}

static void join_death(int fd)
{
	meet(fd, LENT);
	struct doca_buf *room = near_buf(&s, 0, 64, false);
	SUBMIT(&s, receive, room, number(0));
	both(fd);
	ends_with_an_error(1);
	drop(room);
	side_close(&s);
}

/* ---- by address ---- */

static unsigned established, failures;

static void on_request(struct doca_rdma_connection *c, union doca_data data)
{
	(void)data;
	OK(doca_rdma_connection_accept(c, NULL, 0));
}

static void on_established(struct doca_rdma_connection *c, union doca_data connection_data,
			   union doca_data data)
{
	(void)connection_data;
	(void)data;
	OK(doca_rdma_connection_set_user_data(c, number(7)));
	s.connection = c;
	established++;
}

static void on_failure(struct doca_rdma_connection *c, union doca_data connection_data, union doca_data data)
{
	(void)c;
	(void)connection_data;
	(void)data;
	failures++;
}

static void progress_until(const unsigned *flag)
{
	double end = now_s() + WAIT_SECONDS;

	while (!*flag) {
		doca_pe_progress(s.pe);
		CHECK(now_s() < end);
	}
}

static void make_for_addresses(void)
{
	side_make_on(&s, the_adapter(), READ_WRITE, 2);
	OK(doca_rdma_set_connection_state_callbacks(s.rdma, on_request, on_established, on_failure,
						    on_disconnect));
	OK(doca_ctx_start(s.ctx));
}

/* One message; then the peer disconnects. */
static void serve_address(int fd)
{
	make_for_addresses();
	OK(doca_rdma_start_listen_to_port(s.rdma, DOCA_PORT));
	struct doca_buf *room = near_buf(&s, 0, 4096, false);
	SUBMIT(&s, receive, room, number(3));
	both(fd);
	side_until(&s, 1);
	CHECK_EQ(s.done, 1);
	CHECK_EQ(data_len(room), 4096);
	progress_until(&s.disconnected);
	both(fd);
	drop(room);
	side_close(&s);
}

static void call(const char *address, uint16_t port)
{
	struct doca_rdma_addr *addr;

	OK(doca_rdma_addr_create(DOCA_RDMA_ADDR_TYPE_IPv4, address, port, &addr));
	OK(doca_rdma_connect_to_addr(s.rdma, addr, number(7)));
	OK(doca_rdma_addr_destroy(addr));
}

static void join_address(int fd, const char *address)
{
	make_for_addresses();
	both(fd);
	call(address, DOCA_PORT);
	progress_until(&established);
	struct doca_buf *message = near_buf(&s, 0, 4096, true);
	SUBMIT(&s, send, s.connection, message, number(0));
	side_until(&s, 1);
	CHECK_EQ(s.done, 1);
	OK(doca_rdma_connection_disconnect(s.connection));
	both(fd);
	drop(message);
	call(address, DOCA_PORT + 1); /* nobody listens there */
	progress_until(&failures);
	side_close(&s);
}

static void serve(int fd)
{
	meet(fd, LENT);
	serve_tasks(fd);
	close_with_a_receive();
	serve_address(fd);
	serve_refusal(fd);
	serve_death(fd);
}

static void join(int fd, const char *address)
{
	meet(fd, LENT);
	join_tasks(fd);
	side_close(&s);
	join_address(fd, address);
	join_refusal(fd);
	join_death(fd);
}

/* ---- a hostile machine ---- */

enum {
	ROUNDS = 120,
	ROOM = 4, /* connections of the side that listens */
	CHECKSUM_AT = 12, ADAPTER_AT = 16, GID_AT = 28, BLOB = 72, PACKET = 80, /* of rdma.h */
	REQUEST = 1, READY = 4,
};
#define STALL_S 0.9 /* a look at the network for a machine that is not there takes a second */

static struct doca_rdma_connection *over[ROOM];
static unsigned stalls; /* of the program, in an accept */

/* What a caller says may be wrong in any way; the error is typed, and the call is refused. */
static void on_any_request(struct doca_rdma_connection *c, union doca_data data)
{
	const double begun = now_s();
	const doca_error_t error = doca_rdma_connection_accept(c, NULL, 0);

	(void)data;
	stalls += now_s() - begun > STALL_S;
	if (!error)
		return;
	CHECK(error == DOCA_ERROR_NOT_CONNECTED || error == DOCA_ERROR_CONNECTION_ABORTED);
	OK(doca_rdma_connection_reject(c));
}

static void on_any_established(struct doca_rdma_connection *c, union doca_data connection_data,
			       union doca_data data)
{
	(void)connection_data;
	(void)data;
	OK(doca_rdma_connection_set_user_data(c, number(7)));
	established++;
}

static void on_any_disconnect(struct doca_rdma_connection *c, union doca_data connection_data,
			      union doca_data data)
{
	(void)connection_data;
	(void)data;
	for (unsigned i = 0; i < ROOM; i++)
		if (!over[i]) {
			over[i] = c;
			return;
		}
	check_failed(__FILE__, __LINE__, "more than %d connections are over", ROOM);
}

static void let_go_of_ended(void)
{
	for (unsigned i = 0; i < ROOM; i++) {
		if (over[i])
			OK(doca_rdma_connection_disconnect(over[i]));
		over[i] = NULL;
	}
}

/* Serves whoever calls until the caller at fd says that it is over. */
static void besieged(int fd)
{
	struct doca_buf *room;
	uint8_t byte = 1;

	side_make_on(&s, the_adapter(), READ_WRITE, ROOM);
	OK(doca_rdma_set_connection_state_callbacks(s.rdma, on_any_request, on_any_established, on_failure,
						    on_any_disconnect));
	OK(doca_ctx_start(s.ctx));
	OK(doca_rdma_start_listen_to_port(s.rdma, DOCA_PORT));
	room = near_buf(&s, 0, 4096, false);
	SUBMIT(&s, receive, room, number(0));
	say(fd, &byte, 1);
	while (recv(fd, &byte, 1, MSG_DONTWAIT) != 1) {
		doca_pe_progress(s.pe);
		let_go_of_ended();
		if (s.done + s.failed == 1 && !s.done) { /* flushed with a connection */
			s.failed = 0;
			SUBMIT(&s, receive, room, number(0));
		}
	}
	CHECK_EQ(s.done, 1);
	CHECK_EQ(data_len(room), 4096);
	printf("%u connections, %u failures, %u stalls\n", established, failures, stalls);
	CHECK(stalls < ROUNDS / 6 / 2); /* the emulator stands still at times, too */
	say(fd, &byte, 1);
	drop(room);
}

static void sign(uint8_t *blob)
{
	uint32_t hash = 2166136261u;

	memset(blob + CHECKSUM_AT, 0, 4);
	for (size_t i = 0; i < BLOB; i++)
		hash = (hash ^ blob[i]) * 16777619u;
	memcpy(blob + CHECKSUM_AT, &hash, 4);
}

/* A packet that is right but for what this round is about. */
static size_t forge(uint8_t packet[PACKET], const uint8_t *blob, unsigned round)
{
	static const uint8_t absent[16] = {[10] = 0xff, 0xff, 10, 9, 0, 77};
	uint32_t kind = REQUEST;

	memcpy(packet, blob, BLOB);
	memset(packet + BLOB, 0, PACKET - BLOB);
	switch (round % 6) {
	case 0:
		packet[ADAPTER_AT + rand() % (BLOB - ADAPTER_AT)] ^= (uint8_t)(1 << rand() % 8);
		break;
	case 1:
		memcpy(packet + GID_AT, absent, sizeof absent);
		break;
	case 2:
		kind = (uint32_t)rand() % 6;
		break;
	}
	sign(packet);
	memcpy(packet + BLOB, &kind, sizeof kind);
	for (size_t i = 0; round % 6 == 3 && i < PACKET; i++)
		packet[i] = (uint8_t)rand();
	return round % 6 == 4 ? (size_t)rand() % PACKET : PACKET;
}

/* Says a packet; then some callers wait for the answer and say more, some end with RST, some stay. */
static void annoy(const char *address, const uint8_t *blob, unsigned round)
{
	static int kept[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
	const struct linger hard = {.l_onoff = 1};
	const struct timeval patience = {.tv_usec = 200000};
	uint8_t packet[PACKET];
	int fd = connected(address, DOCA_PORT);
	const size_t n = forge(packet, blob, round);

	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
	send(fd, packet, n, MSG_NOSIGNAL);
	if (n == PACKET && rand() % 2 && recv(fd, packet, PACKET, MSG_WAITALL) == PACKET) {
		packet[BLOB] = rand() % 3 ? READY : (uint8_t)rand();
		send(fd, packet, PACKET, MSG_NOSIGNAL);
	}
	if (rand() % 2)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
	if (rand() % 4 == 0) {
		const int other = kept[round % 8];

		kept[round % 8] = fd;
		fd = other;
	}
	if (fd >= 0)
		close(fd);
}

/* Calls until there is room for it, as the others' connections end one after the other. */
static void visit(const char *address)
{
	unsigned before = failures;
	double end = now_s() + WAIT_SECONDS;

	make_for_addresses();
	call(address, DOCA_PORT);
	while (!established) {
		doca_pe_progress(s.pe);
		if (failures == before)
			continue;
		before = failures;
		CHECK(now_s() < end);
		call(address, DOCA_PORT);
	}
}

/* Is killed some time after it has begun to connect. */
static void visit_and_die(const char *address)
{
	const pid_t child = fork();

	CHECK(child >= 0);
	if (!child) {
		visit(address);
		pause();
	}
	usleep((useconds_t)(rand() % 1500000));
	CHECK_EQ(kill(child, SIGKILL), 0);
	CHECK_EQ(waitpid(child, NULL, 0), child);
}

static void assault(int fd, const char *address)
{
	struct doca_buf *message;
	struct side_offer o;
	uint8_t byte;

	hear(fd, &byte, 1);
	for (unsigned i = 0; i < 3; i++)
		visit_and_die(address);
	side_make_on(&s, the_adapter(), READ_WRITE, 1);
	OK(doca_ctx_start(s.ctx));
	s.connection = offer_connection(&s, &o);
	CHECK_EQ(o.blob_len, BLOB);
	for (unsigned i = 0; i < ROUNDS; i++)
		annoy(address, o.blob, i);
	side_close(&s);
	visit(address);
	message = near_buf(&s, 0, 4096, true);
	SUBMIT(&s, send, s.connection, message, number(0));
	side_until(&s, 1);
	CHECK_EQ(s.done, 1);
	say(fd, &byte, 1);
	hear(fd, &byte, 1);
	drop(message);
}

/* ---- what is refused ---- */

static void of_another_kind(void)
{
	static struct side soft;
	static struct side_offer software;
	struct doca_mmap *map;
	struct doca_rdma_task_receive *none;

	side_make(&soft, LENT, 1);
	side_offers(&soft, &software);
	REFUSED(doca_rdma_connect(s.rdma, software.blob, software.blob_len, s.connection), CONNECTION_ABORTED);
	REFUSED(doca_rdma_connect(soft.rdma, mine.blob, mine.blob_len, soft.connection), CONNECTION_ABORTED);
	REFUSED(doca_mmap_create_from_export(NULL, software.desc, software.desc_len, s.dev, &map),
		INVALID_VALUE);
	REFUSED(doca_mmap_create_from_export(NULL, mine.desc, mine.desc_len, soft.dev, &map), INVALID_VALUE);
	OK(doca_rdma_task_receive_allocate_init(s.rdma, near_buf(&soft, 0, 8, false), number(0), &none));
	REFUSED(doca_task_submit(doca_rdma_task_receive_as_task(none)), INVALID_VALUE);
}

static void alone(void)
{
	uint8_t address[4];
	const void *bytes;
	struct doca_gpu *gpu;
	struct doca_dma *dma;
	struct ibv_pd *pd;
	uint32_t most;
	size_t len;

	setenv("DGKIT_FAKE_CUDA", "gpus=1", 1);
	OK(doca_gpu_create("41:00.0", &gpu));
	side_make_on(&s, the_adapter(), LENT, 1);
	struct doca_devinfo *info = doca_dev_as_devinfo(s.dev);
	OK(doca_rdma_cap_task_write_is_supported(info));
	REFUSED(doca_rdma_cap_task_remote_net_sync_event_get_is_supported(info), NOT_SUPPORTED);
	OK(doca_rdma_cap_get_max_message_size(info, &most));
	CHECK_EQ(most, 8 << 20); /* of Soft-RoCE */
	REFUSED(doca_ctx_set_datapath_on_gpu(s.ctx, gpu), NOT_SUPPORTED);
	REFUSED(doca_dma_create(s.dev, &dma), NOT_SUPPORTED);
	REFUSED(doca_rdma_bridge_get_dev_pd(s.dev, &pd), NOT_SUPPORTED);
	REFUSED(doca_devinfo_get_ipv4_addr(info, address, sizeof address), NOT_SUPPORTED);
	REFUSED(doca_mmap_export_pci(s.map, s.dev, &bytes, &len), NOT_SUPPORTED);
	side_offers(&s, &mine);
	of_another_kind();
}

int main(int argc, char **argv)
{
	alarm(CHECK_SECONDS + CONNECT_S);
	if (argc == 3 && !strcmp(argv[1], "serve"))
		serve(accepted((uint16_t)atoi(argv[2])));
	else if (argc == 4 && !strcmp(argv[1], "join"))
		join(connected(argv[2], (uint16_t)atoi(argv[3])), argv[2]);
	else if (argc == 3 && !strcmp(argv[1], "besieged"))
		besieged(accepted((uint16_t)atoi(argv[2])));
	else if (argc == 4 && !strcmp(argv[1], "assault"))
		assault(connected(argv[2], (uint16_t)atoi(argv[3])), argv[2]);
	else if (argc == 2 && !strcmp(argv[1], "alone"))
		alone();
	else
		check_failed(__FILE__, __LINE__, "serve or besieged PORT, join or assault ADDRESS PORT, or alone");
	printf("ok\n");
	return 0;
}
