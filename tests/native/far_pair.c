/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two machines move bytes by RDMA; they may be of different architectures.
 *
 *	far_pair export PORT            exports a region to the first that connects
 *	far_pair import ADDRESS PORT    imports it, checks, reads, writes; then the exporter closes it
 *	far_pair grant PORT             the same with queue pairs that the two sides connect by hand
 *	far_pair join ADDRESS PORT
 *	far_pair lose ADDRESS PORT      imports it, says "up", and writes until the peer is lost
 *	far_pair idle ADDRESS PORT      imports it, says "up", and sees the peer's end without an operation
 *	far_pair hold ADDRESS PORT      imports it, says "up", and keeps it until it is killed
 *	far_pair watch PORT             exports a region, says "up" when it is imported, and sees the
 *	                                importer's end; then it closes the region at once
 *
 * Descriptors and synchronization go over TCP, the bytes over RDMA.
 */
#include <netinet/tcp.h>

#include "other_machine.h"
#include "two_sides.h"

#define SIZE (1 << 20)
#define EDGE 4093 /* an odd offset, so that no copy is aligned */

/* Lets the other side read and write the region, and try once more after it is closed. */
static void be_used(int fd, dg_region *r, uint8_t *bytes)
{
	CHECK_EQ(hear_int(fd), 1);
	check_pattern(bytes, 0, EDGE, 1); /* not written by the importer */
	for (size_t i = EDGE; i < SIZE; i++)
		CHECK_EQ(bytes[i], pattern(i - EDGE, 2));
	CHECK_EQ(dg_region_close(r, PATIENCE), 0);
	memset(bytes, 0, SIZE);
	say_int(fd, 2);
	CHECK_EQ(hear_int(fd), 3);
	for (size_t i = 0; i < SIZE; i++)
		CHECK_EQ(bytes[i], 0);
}

/* Runs an atomic operation on the word at this offset and returns its old value. */
static uint64_t atomically(struct fix *f, uint32_t op, uint64_t at, uint64_t operand, uint64_t swap)
{
	dg_wr wr = record(f, op, 8, 3, at); /* the local side needs no alignment */
	uint64_t old;
	dg_wc wc;

	wr.local_stride = operand;
	wr.remote_stride = swap;
	CHECK_EQ(dg_queue_run(f->q, &wr, 1, &wc, 20 * SECOND), 1);
	CHECK_EQ(wc.status, DG_OK);
	memcpy(&old, f->local_bytes + 3, sizeof(old));
	return old;
}

/* Changes a word of the other machine and restores its value. */
static void check_atomics(struct fix *f)
{
	uint64_t value;
	dg_caps caps;

	CHECK_EQ(dg_device_caps(f->dev, &caps), 0);
	CHECK(caps.atomics);
	for (uint32_t i = 0; i < 8; i++)
		((uint8_t *)&value)[i] = pattern(64 + i, 1);
	CHECK_EQ(atomically(f, DG_FETCH_ADD, 64, 5, 0), value);
	CHECK_EQ(atomically(f, DG_COMPARE_SWAP, 64, value, 0), value + 5);
	CHECK_EQ(atomically(f, DG_COMPARE_SWAP, 64, value + 5, value), value + 5);
	CHECK_EQ(atomically(f, DG_FETCH_ADD, 64, 0, 0), value);
}

static void use(int fd, struct fix *f)
{
	dg_wr wr = record(f, DG_READ, SIZE, 0, 0);

	CHECK_EQ(done(&f->tq, &wr).status, DG_OK);
	check_pattern(f->local_bytes, 0, SIZE, 1);
	fill(f->local_bytes, SIZE, 2);
	wr = record(f, DG_WRITE, SIZE - EDGE, 0, EDGE);
	CHECK_EQ(done(&f->tq, &wr).status, DG_OK);
	check_atomics(f);
	say_int(fd, 1);
	CHECK_EQ(hear_int(fd), 2);
	CHECK_EQ(done(&f->tq, &wr).status, DG_REMOTE_ACCESS_ERROR);
	say_int(fd, 3);
}

static void export_side(uint16_t port)
{
	dg_device *dev = device_spinning(0);
	uint8_t *bytes = pages(SIZE);
	dg_region *r = registered(dev, bytes, SIZE, RW);
	struct token t = export_of(r, RW);
	int fd = accepted(port);

	fill(bytes, SIZE, 1);
	say(fd, &t, sizeof(t));
	be_used(fd, r, bytes);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

/* Imports the region of the other side. Returns the socket to it. */
static int import_from(const char *address, uint16_t port, struct fix *f)
{
	int fd = connected(address, port);
	struct token t;

	hear(fd, &t, sizeof(t));
	import_fix(f, &t, SIZE, 16);
	return fd;
}

/* Returns a write that has succeeded once. */
static dg_wr write_once(struct fix *f)
{
	dg_wr wr = record(f, DG_WRITE, 64, 0, 0);

	CHECK_EQ(done(&f->tq, &wr).status, DG_OK);
	return wr;
}

static void import_side(const char *address, uint16_t port)
{
	struct fix f;
	int fd = import_from(address, port, &f);

	use(fd, &f);
	CHECK_EQ(info_of(f.remote).revoked, 1);
	fix_close(&f);
}

/* Exchanges the numbers of two queue pairs, and connects this side's. */
static dg_qp *connect_by_hand(int fd, dg_queue *q)
{
	dg_qp_address own, peer;
	dg_qp *qp;

	CHECK_EQ(dg_qp_open(q, &qp), 0);
	CHECK_EQ(dg_qp_address_get(qp, &own), 0);
	say(fd, &own, sizeof(own));
	hear(fd, &peer, sizeof(peer));
	if (peer.mtu > own.mtu)
		peer.mtu = own.mtu;
	CHECK_EQ(dg_qp_connect(qp, &peer), 0);
	say_int(fd, 0);
	CHECK_EQ(hear_int(fd), 0);
	return qp;
}

static void grant_side(uint16_t port)
{
	dg_device *dev = device_spinning(0);
	uint8_t *bytes = pages(SIZE);
	dg_region *r = registered(dev, bytes, SIZE, RW);
	int fd = accepted(port);
	struct test_queue tq;
	dg_rdma_memory m;
	dg_qp *qp;

	fill(bytes, SIZE, 1);
	CHECK_EQ(test_queue_open(&tq, dev, 4, DG_PATH_AUTO, 0, PATIENCE), 0);
	qp = connect_by_hand(fd, tq.q);
	CHECK_EQ(dg_qp_grant(qp, r, RW, &m), 0);
	say(fd, &m, sizeof(m));
	be_used(fd, r, bytes);
	dg_qp_free(qp);
	dg_queue_free(tq.q);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

static void join_side(const char *address, uint16_t port)
{
	int fd = connected(address, port);
	dg_rdma_memory m;
	dg_qp *qp;

	FIXTURE(fix, f, fix_open, SIZE, 16);
	qp = connect_by_hand(fd, f.q);
	hear(fd, &m, sizeof(m));
	CHECK_EQ(dg_qp_import(qp, &m, &f.remote), 0);
	f.r = id_of(f.remote);
	use(fd, &f);
	CHECK_EQ(info_of(f.remote).lost, 1);
	dg_qp_free(qp);
}

static void lose_side(const char *address, uint16_t port)
{
	struct fix f;
	int fd = import_from(address, port, &f), status;
	dg_wr wr = write_once(&f);

	puts("up");
	fflush(stdout);
	while ((status = done(&f.tq, &wr).status) == DG_OK)
		usleep(10000);
	CHECK_EQ(status, DG_PEER_LOST);
	CHECK_EQ(done(&f.tq, &wr).status, DG_PEER_LOST);
	fix_close(&f);
	close(fd);
}

static void idle_side(const char *address, uint16_t port)
{
	struct fix f;
	int fd = import_from(address, port, &f);
	dg_wr wr = write_once(&f);

	for (int i = 0; i < 20; i++) { /* some probes are answered */
		usleep(100000);
		CHECK_EQ(info_of(f.remote).lost, 0);
	}
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	puts("up");
	fflush(stdout);
	while (!info_of(f.remote).lost)
		usleep(10000);
	CHECK_EQ(done(&f.tq, &wr).status, DG_PEER_LOST);
	fix_close(&f);
	close(fd);
}

static void hold_side(const char *address, uint16_t port)
{
	struct fix f;

	import_from(address, port, &f);
	write_once(&f);
	puts("up");
	fflush(stdout);
	for (;;)
		pause();
}

static void watch_side(uint16_t port)
{
	dg_device *dev = device_spinning(0);
	dg_region *r = registered(dev, pages(SIZE), SIZE, RW);
	struct token t = export_of(r, RW);
	int fd = accepted(port);

	say(fd, &t, sizeof(t));
	while (info_of(r).importers != 1)
		usleep(10000);
	puts("up");
	fflush(stdout);
	while (info_of(r).importers)
		usleep(10000);
	CHECK_EQ(dg_region_close(r, PATIENCE), 0);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	close(fd);
}

int main(int argc, char **argv)
{
	provider = "verbs";
	if (argc == 3 && !strcmp(argv[1], "export"))
		export_side((uint16_t)atoi(argv[2]));
	else if (argc == 4 && !strcmp(argv[1], "import"))
		import_side(argv[2], (uint16_t)atoi(argv[3]));
	else if (argc == 3 && !strcmp(argv[1], "grant"))
		grant_side((uint16_t)atoi(argv[2]));
	else if (argc == 4 && !strcmp(argv[1], "join"))
		join_side(argv[2], (uint16_t)atoi(argv[3]));
	else if (argc == 4 && !strcmp(argv[1], "lose"))
		lose_side(argv[2], (uint16_t)atoi(argv[3]));
	else if (argc == 4 && !strcmp(argv[1], "idle"))
		idle_side(argv[2], (uint16_t)atoi(argv[3]));
	else if (argc == 4 && !strcmp(argv[1], "hold"))
		hold_side(argv[2], (uint16_t)atoi(argv[3]));
	else if (argc == 3 && !strcmp(argv[1], "watch"))
		watch_side((uint16_t)atoi(argv[2]));
	else
		return fprintf(stderr, "usage: far_pair export|grant|watch PORT | "
				       "import|join|lose|idle|hold ADDRESS PORT\n"), 2;
	printf("ok   %s\n", argv[1]);
	return 0;
}
