/* SPDX-License-Identifier: Apache-2.0 */
/* The mover, by clients that obey the protocol and by ones that do not. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "mover_ring.h"
#include "share/unix_socket.h"

enum { SIZE = 100000 }; /* more than a move's staging memory */

static char path[64];
static dg_device *device;
static dg_mover *mover;
static dg_region *regions[2];
static _Alignas(64) char from[SIZE], to[SIZE];

struct client {
	int fd;
	struct dg_mapping *mapping;
	struct mover_ring *ring; /* in it */
	uint32_t memory[2];
	uint64_t posted;
};

static void start(void)
{
	const dg_device_config config = {0};
	const dg_memory at[2] = {{.addr = from, .size = SIZE, .fd = -1}, {.addr = to, .size = SIZE, .fd = -1}};
	snprintf(path, sizeof path, "/tmp/dgkit-test-mover-%d", (int)getpid());
	CHECK_EQ(dg_device_open("soft", &config, &device), 0);
	CHECK_EQ(dg_mover_open(device, path, &mover), 0);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(dg_region_register(device, &at[i], DG_ACCESS_READ | DG_ACCESS_WRITE, &regions[i]), 0);
	memset(from, 7, SIZE);
	memset(to, 0, SIZE);
}

static void stop(void)
{
	dg_mover_close(mover);
	for (int i = 0; i < 2; i++)
		if (regions[i])
			CHECK_EQ(dg_region_close(regions[i], PATIENCE), 0);
	CHECK_EQ(dg_device_close(device, PATIENCE), 0);
	CHECK_EQ(access(path, F_OK), -1);
}

static int dial(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	strcpy(at.sun_path, path);
	CHECK_EQ(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
	return fd;
}

/* Returns the bytes of the reply, which replaces the message; 0 if the connection has ended. */
static ssize_t ask(int fd, struct mover_message *m, int with)
{
	int fds[2], n = 0;
	struct pollfd on = {.fd = fd, .events = POLLIN};
	CHECK_EQ(dg_unix_socket_send(fd, m, sizeof *m, &with, with >= 0), sizeof *m);
	CHECK_EQ(poll(&on, 1, PATIENCE / 1000000), 1);
	return dg_unix_socket_recv(fd, m, sizeof *m, fds, &n);
}

static int make_ring(size_t size)
{
	int fd = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	CHECK_EQ(ftruncate(fd, (off_t)size), 0);
	CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	return fd;
}

static struct client join(void)
{
	struct client c = {.fd = dial()};
	struct mover_message m = {.kind = MOVER_HELLO, .number = MOVER_VERSION};
	int ring = make_ring(sizeof *c.ring);
	CHECK_EQ(dg_mapping_take(&dg_mover_rings, ring, true, sizeof *c.ring, &c.mapping), 0);
	c.ring = (struct mover_ring *)(void *)c.mapping->base;
	CHECK_EQ(ask(c.fd, &m, ring), sizeof m);
	CHECK_EQ(m.status, 0);
	close(ring);
	for (int i = 0; i < 2; i++) {
		m = (struct mover_message){.kind = MOVER_IMPORT};
		m.length = (uint32_t)dg_region_export(regions[i], DG_ACCESS_READ | DG_ACCESS_WRITE,
						      m.descriptor, sizeof m.descriptor);
		CHECK_EQ(ask(c.fd, &m, -1), sizeof m);
		CHECK_EQ(m.status, 0);
		c.memory[i] = m.number;
	}
	return c;
}

static void leave(struct client *c)
{
	dg_mapping_drop(&dg_mover_rings, c->mapping);
	close(c->fd);
}

/* Returns the status of a request. */
static int32_t move(struct client *c, struct mover_request r)
{
	const uint64_t end = dg_now_ns() + PATIENCE;
	r.user = c->posted + 1000;
	c->ring->requests[c->posted++ % MOVER_DEPTH] = r;
	atomic_store(&c->ring->head, c->posted);
	while (atomic_load(&c->ring->completed) != c->posted)
		CHECK(dg_now_ns() < end);
	const struct mover_completion *done = &c->ring->completions[(c->posted - 1) % MOVER_DEPTH];
	CHECK_EQ(done->user, r.user);
	return done->status;
}

static void check_that_it_ends(int fd)
{
	struct pollfd on = {.fd = fd, .events = POLLIN};
	CHECK_EQ(poll(&on, 1, PATIENCE / 1000000), 1);
	CHECK(on.revents & POLLHUP);
	close(fd);
}

TEST(bytes_arrive_whole_and_nothing_beside_them)
{
	start();
	struct client c = join();
	const struct mover_request most = {.from = c.memory[0], .to = c.memory[1], .from_offset = 1,
					   .to_offset = 3, .size = SIZE - 5};
	CHECK_EQ(move(&c, most), DG_OK);
	for (int i = 0; i < SIZE; i++)
		CHECK_EQ(to[i], i < 3 || i >= SIZE - 2 ? 0 : 7);
	leave(&c);
	stop();
}

TEST(a_request_beyond_its_memory_moves_nothing)
{
	start();
	struct client c = join();
	const struct mover_request right = {.from = c.memory[0], .to = c.memory[1], .size = 8};
	struct mover_request wrong[6];
	for (int i = 0; i < 6; i++)
		wrong[i] = right;
	wrong[0].to = 77;
	wrong[1].from = UINT32_MAX;
	wrong[2].to_offset = SIZE - 7;
	wrong[3].from_offset = UINT64_MAX - 3;
	wrong[4].size = UINT64_MAX;
	wrong[5].size = 0;
	for (int i = 0; i < 6; i++)
		CHECK_EQ(move(&c, wrong[i]), DG_REMOTE_ACCESS_ERROR);
	const struct mover_message gone = {.kind = MOVER_RELEASE, .number = c.memory[0]};
	CHECK_EQ(move(&c, right), DG_OK);
	CHECK_EQ(dg_unix_socket_send(c.fd, &gone, sizeof gone, NULL, 0), sizeof gone);
	const uint64_t end = dg_now_ns() + PATIENCE;
	while (move(&c, right) == DG_OK)
		CHECK(dg_now_ns() < end);
	CHECK_EQ(to[8], 0);
	leave(&c);
	stop();
}

TEST(memory_that_its_owner_closed_is_not_touched)
{
	start();
	struct client c = join();
	const struct mover_request r = {.from = c.memory[0], .to = c.memory[1], .size = SIZE};
	CHECK_EQ(dg_region_close(regions[1], PATIENCE), 0);
	regions[1] = NULL;
	CHECK_EQ(move(&c, r), DG_REMOTE_ACCESS_ERROR);
	CHECK_EQ(to[0], 0);
	leave(&c);
	stop();
}

/* The requests in flight end first, and a client that ends leaves none behind. */
TEST(a_release_and_an_end_wait_for_what_is_in_flight)
{
	start();
	for (int turn = 0; turn < 20; turn++) {
		struct client c = join();
		const struct mover_message gone = {.kind = MOVER_RELEASE, .number = c.memory[1]};
		for (uint64_t i = 0; i < 200; i++)
			c.ring->requests[i] = (struct mover_request){
				.user = i, .from = c.memory[0], .to = c.memory[1], .size = SIZE};
		atomic_store(&c.ring->head, 200);
		if (turn % 2)
			CHECK_EQ(dg_unix_socket_send(c.fd, &gone, sizeof gone, NULL, 0), sizeof gone);
		const uint64_t end = dg_now_ns() + PATIENCE;
		while (turn % 2 && atomic_load(&c.ring->completed) != 200)
			CHECK(dg_now_ns() < end);
		leave(&c);
	}
	stop();
}

TEST(a_client_that_violates_the_protocol_ends_alone)
{
	start();
	struct client good = join(), late = join();
	const struct mover_request r = {.from = good.memory[0], .to = good.memory[1], .size = 8};
	struct mover_message m = {.kind = MOVER_HELLO, .number = MOVER_VERSION + 1};
	int small = make_ring(64), fd = dial();
	CHECK_EQ(ask(fd, &m, -1), sizeof m);
	CHECK_EQ(m.status, -EPROTO);
	CHECK(strstr((char *)m.descriptor, "version"));
	check_that_it_ends(fd);
	fd = dial();
	m = (struct mover_message){.kind = MOVER_HELLO, .number = MOVER_VERSION};
	CHECK_EQ(ask(fd, &m, small), sizeof m);
	CHECK(m.status < 0);
	check_that_it_ends(fd);
	close(small);
	fd = dial();
	CHECK_EQ(send(fd, "x", 1, 0), 1);
	check_that_it_ends(fd);
	atomic_store(&late.ring->head, MOVER_DEPTH + 1);
	check_that_it_ends(late.fd);
	dg_mapping_drop(&dg_mover_rings, late.mapping);
	m = (struct mover_message){.kind = MOVER_IMPORT, .length = 40, .descriptor = {1, 2, 3}};
	CHECK_EQ(ask(good.fd, &m, -1), sizeof m);
	CHECK(m.status < 0);
	m = (struct mover_message){.kind = MOVER_IMPORT, .length = 40, .on_gpu = 1};
	CHECK_EQ(ask(good.fd, &m, -1), sizeof m);
	CHECK_EQ(m.status, -EOPNOTSUPP);
	CHECK_EQ(move(&good, r), DG_OK);
	leave(&good);
	stop();
}

TEST_MAIN(run_tests)
