/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes, with each method of reaching the other's memory: bytes, access, files that shrink,
 * malformed requests. */
#include "share/descriptor.h"
#include "lingering.h"
#include "share/server.h"
#include "two_sides.h"

#include <sys/un.h>

#define SIZE ((3u << 20) + 5)

/* Imports the descriptor it receives, moves bytes both ways in every shape, and sends the
 * method. */
static void mover(int fd)
{
	struct token token;
	dg_wr wr[2];
	dg_wc wc;

	hear(fd, &token, sizeof(token));
	FIXTURE(fix, f, import_fix, &token, SIZE, 8);
	wr[0] = record(&f, DG_READ, SIZE, 0, 0);
	CHECK_EQ(done(&f.tq, wr).status, DG_OK);
	check_pattern(f.local_bytes, 0, SIZE, 1);
	fill(f.local_bytes, SIZE, 2);
	for (uint32_t n = 1; n < 200; n++) { /* with gaps, so that the bytes in between must stay */
		wr[0] = record(&f, DG_WRITE, n % 90 + 1, 300 * n, 300 * n);
		CHECK_EQ(done(&f.tq, wr).status, DG_OK);
	}
	wr[0] = record(&f, DG_WRITE, 1000000, 1 << 20, 1 << 20);
	wr[0].flags = DG_CHAIN;
	wr[1] = record(&f, DG_WRITE, SIZE - (2 << 20) - 3, (2 << 20) + 3, (2 << 20) + 3);
	CHECK_EQ(dg_queue_run(f.q, wr, 2, &wc, 20 * SECOND), 1);
	CHECK_EQ(wc.size, 1000000 + SIZE - (2 << 20) - 3);
	wr[0] = record(&f, DG_WRITE, 10, 70000, 70000);
	wr[0].rows = 500;
	wr[0].local_stride = 1000;
	wr[0].remote_stride = 1000;
	CHECK_EQ(dg_queue_run(f.q, wr, 1, &wc, 20 * SECOND), 1);
	CHECK_EQ(wc.status, DG_OK);
	say_int(fd, info_of(f.remote).method);
	CHECK_EQ(dg_region_close(f.remote, PATIENCE), 0);
}

static void check_moved(const uint8_t *bytes)
{
	for (uint32_t n = 1; n < 200; n++) {
		check_pattern(bytes + 300 * n, 300 * n, n % 90 + 1, 2);
		check_pattern(bytes + 300 * n + n % 90 + 1, 300 * n + n % 90 + 1, 150, 1);
	}
	check_pattern(bytes + (1 << 20), 1 << 20, 1000000, 2);
	check_pattern(bytes + (2 << 20) + 3, (2 << 20) + 3, SIZE - (2 << 20) - 3, 2);
	check_pattern(bytes + (1 << 20) + 1000000, (1 << 20) + 1000000, 100, 1);
	for (uint32_t i = 0; i < 500; i++) {
		check_pattern(bytes + 70000 + 1000 * i, 70000 + 1000 * i, 10, 2);
		check_pattern(bytes + 70010 + 1000 * i, 70010 + 1000 * i, 990, 1);
	}
}

/* Exports SIZE bytes of m to another process, which moves bytes. Returns the method that process
 * used. */
static int moved_by(dg_memory m)
{
	struct other o = start(mover);
	dg_device *dev = device_spinning(0);
	dg_region *r = exportable(dev, &m);
	struct token token;
	int method;

	fill(m.addr, SIZE, 1);
	token = export_of(r, RW);
	say(o.fd, &token, sizeof(token));
	method = hear_int(o.fd);
	join(o);
	info_of(r); /* takes the lock under which copies for importers are made, so that TSan sees an order */
	check_moved(m.addr);
	CHECK_EQ(dg_region_close(r, 0), 0);
	CHECK_EQ(dg_device_close(dev, 0), 0);
	return method;
}

TEST(a_memfd_is_mapped)
{
	CHECK_EQ(moved_by(sealed_memory(SIZE)), BY_MAP);
}

TEST(a_part_of_a_memfd_is_mapped)
{
	dg_memory m = sealed_memory(SIZE + 12345);

	m.addr = (char *)m.addr + 12345;
	m.fd_offset = 12345;
	m.size = SIZE;
	CHECK_EQ(moved_by(m), BY_MAP);
}

TEST(plain_memory_is_copied_by_the_importer_where_it_may)
{
	if (!choose(BY_VM))
		return; /* not supported: an emulator has no process_vm_readv */
	CHECK_EQ(moved_by(plain_memory(pages(SIZE), SIZE)), BY_VM);
}

TEST(plain_memory_is_copied_by_the_exporter_else)
{
	choose(BY_PROXY);
	CHECK_EQ(moved_by(plain_memory(pages(SIZE), SIZE)), BY_PROXY);
}

/* Imports for reading, and tries to write. */
static void would_be_writer(int fd)
{
	struct token token;
	dg_wr wr;

	hear(fd, &token, sizeof(token));
	FIXTURE(fix, f, import_fix, &token, 4096, 4);
	CHECK_EQ(info_of(f.remote).access, DG_ACCESS_READ);
	wr = record(&f, DG_READ, 4096, 0, 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	check_pattern(f.local_bytes, 0, 4096, 1);
	wr = record(&f, DG_WRITE, 1, 0, 0);
	CHECK_EQ(dg_queue_post(f.q, &wr, 1), -EACCES);
}

TEST(a_narrowed_export_is_read_only)
{
	for (enum how how = BY_MAP; how <= BY_PROXY; how++) {
		struct other o;
		dg_memory m;
		dg_device *dev;
		struct token t;

		if (!choose(how))
			continue;
		o = start(would_be_writer);
		m = memory_for(how, 4096);
		dev = device_spinning(0);
		fill(m.addr, 4096, 1);
		t = export_of(exportable(dev, &m), DG_ACCESS_READ);
		say(o.fd, &t, sizeof(t));
		join(o);
		check_pattern(m.addr, 0, 4096, 1);
		CHECK_EQ(dg_device_close(dev, 0), 0);
	}
}

static int connect_share(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	CHECK_EQ(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

/* Sends one request and receives the reply, without this library's importer. */
static struct dg_share_reply send_request(int fd, struct dg_share_request q)
{
	struct dg_share_reply a;
	int fds[2], n = 0;

	q.magic = SHARE_MAGIC;
	q.version = SHARE_VERSION;
	CHECK_EQ(dg_unix_socket_send(fd, &q, sizeof(q), NULL, 0), (ssize_t)sizeof(q));
	CHECK_EQ(packet_from(fd, &a, sizeof(a), fds, &n), (ssize_t)sizeof(a));
	while (n)
		close(fds[--n]);
	return a;
}

/* Requests more than the export allows: the exporter's table decides, not the importer. */
static void rule_breaker(int fd)
{
	struct dg_share_request q = { .kind = SHARE_IMPORT };
	struct dg_descriptor d;
	struct token token;
	struct dg_share_reply a;
	int server;

	hear(fd, &token, sizeof(token));
	CHECK_EQ(dg_descriptor_parse(token.bytes, token.len, &d), 0);
	server = connect_share(d.path);
	memcpy(q.key, d.key, sizeof(q.key));
	a = send_request(server, q);
	CHECK_EQ(a.error, 0);
	CHECK_EQ(a.access, DG_ACCESS_READ);
	q = (struct dg_share_request){ .kind = SHARE_GET, .slot = a.slot, .size = 4096 };
	CHECK_EQ(send_request(server, q).status, DG_OK);
	q.kind = SHARE_PUT;
	CHECK_EQ(send_request(server, q).status, DG_REMOTE_ACCESS_ERROR);
	q.kind = SHARE_GET;
	q.offset = 1;
	CHECK_EQ(send_request(server, q).status, DG_REMOTE_ACCESS_ERROR);
	q.offset = UINT64_MAX;
	CHECK_EQ(send_request(server, q).status, DG_REMOTE_ACCESS_ERROR);
	q.offset = 0;
	q.size = UINT64_MAX;
	CHECK_EQ(send_request(server, q).status, DG_REMOTE_ACCESS_ERROR);
	q.kind = SHARE_ATOMIC; /* it needs the right to write */
	q.size = 8;
	CHECK_EQ(send_request(server, q).status, DG_REMOTE_ACCESS_ERROR);
	q.size = 1;
	q.slot = a.slot + 1;
	CHECK_EQ(send_request(server, q).status, DG_REMOTE_ACCESS_ERROR);
	q.slot = UINT32_MAX;
	CHECK_EQ(send_request(server, q).status, DG_REMOTE_ACCESS_ERROR);
	q = (struct dg_share_request){ .kind = SHARE_IMPORT };
	memcpy(q.key, d.key, sizeof(q.key));
	q.key[3] ^= 1;
	CHECK_EQ(send_request(server, q).error, ENOKEY);
	q.kind = 99;
	CHECK_EQ(send_request(server, q).error, EBADMSG);
	close(server);
}

/* Atomic operations on words of which there is none. */
static void wrong_atomics(int fd)
{
	static const struct {
		uint64_t offset, size;
		uint32_t status;
	} cases[] = {
		{ 0, 4, DG_OK }, { 4088, 8, DG_OK }, { 4092, 4, DG_OK },
		{ 4, 8, DG_IO_FAILED }, { 2, 4, DG_IO_FAILED },
		{ 4089, 8, DG_REMOTE_ACCESS_ERROR }, { UINT64_MAX - 3, 8, DG_REMOTE_ACCESS_ERROR },
		{ 0, 0, DG_REMOTE_ACCESS_ERROR }, { 0, 1, DG_REMOTE_ACCESS_ERROR },
		{ 0, 16, DG_REMOTE_ACCESS_ERROR }, { 0, 1ull << 32 | 8, DG_REMOTE_ACCESS_ERROR },
	};
	struct dg_share_request q = { .kind = SHARE_IMPORT };
	struct dg_descriptor d;
	struct token token;
	int server;

	hear(fd, &token, sizeof(token));
	CHECK_EQ(dg_descriptor_parse(token.bytes, token.len, &d), 0);
	server = connect_share(d.path);
	q.kind = SHARE_ATOMIC; /* before anything is imported */
	q.size = 8;
	CHECK_EQ(send_request(server, q).status, DG_REMOTE_ACCESS_ERROR);
	q.kind = SHARE_IMPORT;
	memcpy(q.key, d.key, sizeof(q.key));
	q = (struct dg_share_request){ .kind = SHARE_ATOMIC, .slot = send_request(server, q).slot };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		q.offset = cases[i].offset;
		q.size = cases[i].size;
		CHECK_EQ(send_request(server, q).status, cases[i].status);
	}
	close(server);
}

TEST(atomics_of_an_importer_are_checked)
{
	struct other o = start(wrong_atomics);
	uint8_t *bytes = pages(8192);
	uint64_t seen[1024];
	dg_device *dev = device_spinning(0);
	struct token t;

	fill(bytes, 8192, 1);
	t = export_of(registered(dev, bytes, 4096, RW), RW);
	say(o.fd, &t, sizeof(t));
	join(o);
	for (int i = 0; i < 1024; i++)
		seen[i] = __atomic_load_n((uint64_t *)bytes + i, __ATOMIC_RELAXED);
	check_pattern((uint8_t *)seen, 0, 8192, 1); /* their masks are 0 */
	CHECK_EQ(dg_device_close(dev, 0), 0);
}

TEST(the_exporters_table_decides)
{
	struct other o = start(rule_breaker);
	uint8_t *bytes = pages(8192);
	dg_device *dev = device_spinning(0);
	struct token t;

	fill(bytes, 8192, 1);
	t = export_of(registered(dev, bytes, 4096, RW), DG_ACCESS_READ);
	say(o.fd, &t, sizeof(t));
	join(o);
	check_pattern(bytes, 0, 8192, 1);
	CHECK_EQ(dg_device_close(dev, 0), 0);
}

static void send_with_fds(int server, const void *bytes, size_t n)
{
	int fds[2] = { dup(2), dup(2) };

	/* Since Linux 6.16 the server's socket accepts no fds. */
	if (dg_unix_socket_send(server, bytes, n, fds, 2) == -EPERM)
		dg_unix_socket_send(server, bytes, n, NULL, 0);
	close(fds[0]);
	close(fds[1]);
}

/* Sends malformed requests of every kind to a share server, then imports correctly. */
static void malformed_sender(int fd)
{
	uint8_t noise[sizeof(struct dg_share_request) + 100];
	struct dg_share_request q = { .magic = SHARE_MAGIC, .version = SHARE_VERSION, .kind = SHARE_RELEASE, .slot = 12345 };
	struct dg_descriptor d;
	struct token token;
	int server;

	hear(fd, &token, sizeof(token));
	CHECK_EQ(dg_descriptor_parse(token.bytes, token.len, &d), 0);
	fill(noise, sizeof(noise), 99);
	for (size_t n = 1; n <= sizeof(noise); n++) {
		server = connect_share(d.path);
		send_with_fds(server, noise, n);
		close(server);
		memcpy(noise, &q, sizeof(q) < n ? sizeof(q) : n); /* valid requests, truncated and extended */
		server = connect_share(d.path);
		send_with_fds(server, noise, n);
		close(server);
		fill(noise, sizeof(noise), (unsigned)n);
	}
	for (int i = 0; i < 50; i++)
		close(connect_share(d.path));
	int peer, slow[1] = { lingering_socket(&peer) };
	server = connect_share(d.path);
	if (dg_unix_socket_send(server, &q, sizeof(q), slow, 1) == -EPERM)
		close(peer); /* the server did not get the fd, so this process's close is the last one */
	close(slow[0]); /* so that the server's close is the last one */
	close(server);
	uint64_t start = dg_now_ns();
	server = connect_share(d.path); /* a connection that sends nothing */
	q.kind = SHARE_IMPORT;
	q.version = SHARE_VERSION + 1;
	CHECK_EQ(dg_unix_socket_send(server, &q, sizeof(q), NULL, 0), (ssize_t)sizeof(q));
	FIXTURE(fix, f, import_fix, &token, 4096, 4);
	CHECK(dg_now_ns() - start < LINGER_S * SECOND / 2);
	q.version = SHARE_VERSION;
	q.kind = SHARE_RELEASE; /* a connection's own slots only, so this frees none of another */
	for (q.slot = 0; q.slot < 100; q.slot++)
		dg_unix_socket_send(server, &q, sizeof(q), NULL, 0);
	say_int(fd, 0);
	hear_int(fd);
	CHECK_EQ(done(&f.tq, &(dg_wr){ .op = DG_READ, .local = f.l, .remote = f.r, .size = 4096 }).status, DG_OK);
	close(server);
	CHECK_EQ(dg_region_close(f.remote, 0), 0);
}

TEST(malformed_requests_are_rejected_and_other_clients_unaffected)
{
	struct other o = start(malformed_sender);
	dg_memory m = sealed_memory(4096);
	dg_device *dev = device_spinning(0);
	dg_region *r = exportable(dev, &m);
	struct token t = export_of(r, RW);
	int fds = entries("/proc/self/fd");

	say(o.fd, &t, sizeof(t));
	hear_int(o.fd);
	CHECK_EQ(info_of(r).importers, 1);
	say_int(o.fd, 0);
	join(o);
	for (uint64_t end = dg_now_ns() + PATIENCE; entries("/proc/self/fd") != fds - 1;) /* o.fd closed */
		CHECK(dg_now_ns() < end);
	CHECK_EQ(dg_region_close(r, 0), 0);
	CHECK_EQ(dg_device_close(dev, 0), 0);
}

/* Maps a file of 16 pages that can be truncated. */
static dg_memory file_memory(int *fd)
{
	char name[] = P_tmpdir "/dgkit-test-XXXXXX";
	dg_memory m = { .size = 16 * 4096, .fd = -1, .flags = DG_MEMORY_MAY_FAULT };

	*fd = mkstemp(name);
	CHECK(*fd >= 0);
	unlink(name);
	CHECK_EQ(ftruncate(*fd, m.size), 0);
	m.addr = mmap(NULL, m.size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	CHECK(m.addr != MAP_FAILED);
	fill(m.addr, m.size, 1);
	CHECK_EQ(dg_memory_may_fault(m.addr, m.size), 1);
	return m;
}

TEST(only_a_file_that_can_shrink_may_fault)
{
	dg_memory file, memfd = sealed_memory(4096), odd = sealed_memory(100);
	int fd;

	file = file_memory(&fd); /* may fault */
	CHECK_EQ(dg_memory_may_fault(pages(4096), 4096), 0);
	CHECK_EQ(dg_memory_may_fault(memfd.addr, memfd.size), 0);
	CHECK_EQ(dg_memory_may_fault(odd.addr, odd.size), 0);
	close(memfd.fd); /* no open fd shows any more that it is sealed */
	CHECK_EQ(dg_memory_may_fault(memfd.addr, memfd.size), 1);
	CHECK_EQ(dg_memory_may_fault(file.addr, file.size), 1);
}

static void file_importer(int fd)
{
	struct token token;
	dg_wr wr;

	hear(fd, &token, sizeof(token));
	FIXTURE(fix, f, import_fix, &token, 16 * 4096, 4);
	wr = record(&f, DG_READ, 16 * 4096, 0, 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	check_pattern(f.local_bytes, 0, 16 * 4096, 1);
	say_int(fd, 0);
	hear_int(fd); /* only the first page is left */
	CHECK_EQ(done(&f.tq, &wr).status, DG_REMOTE_ACCESS_ERROR);
	wr = record(&f, DG_WRITE, 4096, 0, 8 * 4096);
	CHECK_EQ(done(&f.tq, &wr).status, DG_REMOTE_ACCESS_ERROR);
	wr = record(&f, DG_READ, 4096, 0, 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
}

TEST(an_exported_file_that_is_cut_gives_errors_and_no_signal)
{
	for (enum how how = choose(BY_VM) ? BY_VM : BY_PROXY; how <= BY_PROXY; how++) {
		struct other o;
		dg_device *dev;
		struct token t;
		dg_memory m;
		int file;

		choose(how);
		o = start(file_importer);
		m = file_memory(&file);
		dev = device_spinning(0);
		t = export_of(exportable(dev, &m), RW);
		say(o.fd, &t, sizeof(t));
		hear_int(o.fd);
		CHECK_EQ(ftruncate(file, 4096), 0);
		say_int(o.fd, 0);
		join(o);
		CHECK_EQ(dg_device_close(dev, 0), 0);
		close(file);
	}
}

/* Registered without DG_MEMORY_MAY_FAULT. */
TEST(exported_memory_that_is_protected_gives_errors_and_the_exporter_lives)
{
	const size_t size = 16 * 4096;

	for (enum how how = choose(BY_VM) ? BY_VM : BY_PROXY; how <= BY_PROXY; how++) {
		struct other o;
		dg_device *dev;
		struct token t;
		uint8_t *bytes;
		dg_memory m;

		choose(how);
		o = start(file_importer);
		bytes = pages(size);
		m = plain_memory(bytes, size);
		fill(bytes, size, 1);
		dev = device_spinning(0);
		t = export_of(exportable(dev, &m), RW);
		say(o.fd, &t, sizeof(t));
		hear_int(o.fd);
		CHECK_EQ(mprotect(bytes + 4096, size - 4096, PROT_NONE), 0);
		say_int(o.fd, 0);
		join(o);
		CHECK_EQ(dg_device_close(dev, 0), 0);
	}
}

TEST(a_local_file_that_is_cut_gives_errors_and_no_signal)
{
	dg_memory m;
	struct fix f;
	dg_wr wr;
	int file;

	fix_regions(&f, 16 * 4096, 0);
	m = file_memory(&file);
	CHECK_EQ(test_queue_open(&f.tq, f.dev, 4, DG_PATH_AUTO, 0, 20 * SECOND), 0);
	f.q = f.tq.q;
	wr = record(&f, DG_WRITE, 16 * 4096, 0, 0);
	wr.local = id_of(exportable(f.dev, &m));
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	check_pattern(f.remote_bytes, 0, 16 * 4096, 1);
	CHECK_EQ(ftruncate(file, 4096), 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_LOCAL_ERROR);
	wr.op = DG_READ;
	CHECK_EQ(done(&f.tq, &wr).status, DG_LOCAL_ERROR);
	fix_close(&f);
	close(file);
}

TEST_MAIN(run_with_own_folder)
