// SPDX-License-Identifier: Apache-2.0
/*
 * Comch between two processes, as host and DPU: streams of messages, deaths, and the steps of the
 * application dma_copy: export descriptors over Comch, then DMA.
 */
#include "comch_check.h"

#include <doca_dma.h>

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

static void answering_server(int fd)
{
	struct side s = {.on_message = answer};

	as_dpu(&s, "ping");
	tell(fd);
	UNTIL(&s, s.disconnects);
	CHECK_EQ(s.received, N);
	CHECK_EQ(s.sent, N);
	stopped(&s);
}

TEST(ten_thousand_messages_of_all_sizes_go_there_and_back)
{
	struct side c = {0};
	uint8_t bytes[MAX_MSG];
	int fd;
	pid_t other = other_process(answering_server, &fd);

	hear(fd);
	as_host(&c, "ping");
	for (uint32_t i = 0; i < N; i++) {
		fill(bytes, len_of(i), i);
		say(&c, bytes, len_of(i));
		UNTIL(&c, c.received == i + 1 && c.sent == i + 1);
		CHECK_EQ(c.last_len, len_of(i));
		for (uint32_t k = 0; k < c.last_len; k++)
			CHECK_EQ(c.last[k], (uint8_t)~bytes[k]);
	}
	stopped(&c);
	ended_well(other);
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

/* ---- a small dma_copy ---- */

#define FILE_SIZE ((size_t)3 << 20) /* larger than one task may copy */
#define PIECE     ((size_t)1 << 20)

struct offer {
	uint64_t addr, size;
	uint32_t desc_len;
	uint8_t desc[512];
};

static struct doca_comch_connection *the_client(struct side *s)
{
	UNTIL(s, s->received);
	return s->peer;
}

static void copied(struct doca_dma_task_memcpy *task, union doca_data data,
		   union doca_data ctx_data)
{
	(void)ctx_data;
	doca_error_t *out = data.ptr;
	*out = doca_task_get_status(doca_dma_task_memcpy_as_task(task));
	doca_task_free(doca_dma_task_memcpy_as_task(task));
}

static doca_error_t copy_piece(struct doca_pe *pe, struct doca_dma *dma, struct doca_buf *from,
			       struct doca_buf *to)
{
	doca_error_t result = DOCA_ERROR_IN_PROGRESS;
	union doca_data data = {.ptr = &result};
	struct doca_dma_task_memcpy *task;

	OK(doca_dma_task_memcpy_alloc_init(dma, from, to, data, &task));
	OK(doca_task_submit(doca_dma_task_memcpy_as_task(task)));
	while (result == DOCA_ERROR_IN_PROGRESS)
		doca_pe_progress(pe);
	OK(doca_buf_dec_refcount(from, NULL));
	OK(doca_buf_dec_refcount(to, NULL));
	return result;
}

/* Copies everything that the offer describes to `to`, by DMA. */
static void copy_all(struct side *s, const struct offer *o, uint8_t *to)
{
	struct doca_mmap *remote, *local = a_started_map(s->dev, to, FILE_SIZE, READ_WRITE);
	struct doca_buf_inventory *inv = an_inventory(2);
	struct doca_dma *dma;

	OK(doca_mmap_create_from_export(NULL, o->desc, o->desc_len, s->dev, &remote));
	OK(doca_dma_create(s->dev, &dma));
	OK(doca_dma_task_memcpy_set_conf(dma, copied, copied, 4));
	OK(doca_pe_connect_ctx(s->pe, doca_dma_as_ctx(dma))); /* beside the server's */
	OK(doca_ctx_start(doca_dma_as_ctx(dma)));
	for (size_t at = 0; at < o->size; at += PIECE) {
		struct doca_buf *from = a_buf(inv, remote, (char *)(uintptr_t)o->addr + at, PIECE);
		OK(doca_buf_set_data(from, (char *)(uintptr_t)o->addr + at, PIECE));
		OK(copy_piece(s->pe, dma, from, a_buf(inv, local, to + at, PIECE)));
	}
	OK(doca_ctx_stop(doca_dma_as_ctx(dma)));
	OK(doca_dma_destroy(dma));
	OK(doca_mmap_destroy(remote));
	OK(doca_mmap_destroy(local));
	OK(doca_buf_inventory_destroy(inv));
}

static void copying_server(int fd)
{
	struct side s = {0};
	struct offer o;
	uint8_t *to = malloc(FILE_SIZE);

	as_dpu(&s, "dma copy");
	tell(fd);
	the_client(&s);
	CHECK_EQ(s.last_len, sizeof(o));
	memcpy(&o, s.last, sizeof(o));
	CHECK_EQ(o.size, FILE_SIZE);
	copy_all(&s, &o, to);
	for (size_t i = 0; i < FILE_SIZE; i++)
		CHECK_EQ(to[i], (uint8_t)(i * 13 + (i >> 12)));
	say(&s, "done", 4);
	UNTIL(&s, s.disconnects);
	stopped(&s);
	free(to);
}

TEST(a_file_is_copied_as_dma_copy_does_it)
{
	struct side c = {0};
	struct offer o = {.size = FILE_SIZE};
	uint8_t *from = malloc(FILE_SIZE);
	const void *desc;
	size_t desc_len;
	int fd;
	pid_t other = other_process(copying_server, &fd);

	for (size_t i = 0; i < FILE_SIZE; i++)
		from[i] = (uint8_t)(i * 13 + (i >> 12));
	hear(fd);
	as_host(&c, "dma copy");
	struct doca_mmap *map = a_started_map(c.dev, from, FILE_SIZE, PCI_RO);
	OK(doca_mmap_export_pci(map, c.dev, &desc, &desc_len));
	CHECK(desc_len <= sizeof(o.desc));
	o.addr = (uintptr_t)from;
	o.desc_len = (uint32_t)desc_len;
	memcpy(o.desc, desc, desc_len);
	say(&c, &o, sizeof(o));
	UNTIL(&c, c.received);
	CHECK(c.last_len == 4 && !memcmp(c.last, "done", 4));
	OK(doca_mmap_destroy(map));
	stopped(&c);
	ended_well(other);
	free(from);
}

TEST_MAIN(in_a_folder)
