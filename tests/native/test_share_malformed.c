/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that could raise SIGBUS is refused on both sides, and so are malformed replies of an
 * exporter. */
#include <sys/un.h>

#include "share/descriptor.h"
#include "share/server.h"
#include "two_sides.h"

static int memfd_of(size_t size, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, size), 0);
	CHECK_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

TEST(memory_that_could_kill_its_user_is_refused)
{
	dg_device *dev = device_spinning(0);
	uint8_t *at = pages(8192);
	dg_memory m = { .addr = at, .size = 4096 };
	char name[] = P_tmpdir "/dgkit-test-XXXXXX";
	dg_region *r;

	m.fd = memfd_of(4096, 0);
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), -EMEDIUMTYPE);
	CHECK_SAYS(dg_last_error(), "F_SEAL_SHRINK");
	close(m.fd);
	m.fd = memfd_of(4096, F_SEAL_GROW);
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), -EMEDIUMTYPE);
	close(m.fd);
	m.fd = memfd_of(4095, F_SEAL_SHRINK | F_SEAL_GROW);
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), -EMEDIUMTYPE);
	CHECK_SAYS(dg_last_error(), "4095");
	close(m.fd);
	m.fd = memfd_of(4096, F_SEAL_SHRINK);
	CHECK_EQ(dg_memfd_check(m.fd, 4096), 0);
	CHECK_EQ(dg_memfd_check(m.fd, 4097), -EMEDIUMTYPE);
	m.fd_offset = 1;
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), -EMEDIUMTYPE);
	m.fd_offset = UINT64_MAX;
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), -ERANGE);
	m.fd_offset = 0;
	close(m.fd);
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), -EMEDIUMTYPE); /* a closed fd */
	m.fd = mkstemp(name);
	unlink(name);
	CHECK_EQ(ftruncate(m.fd, 4096), 0);
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), -EMEDIUMTYPE);
	close(m.fd);
	CHECK(!r);
	CHECK_EQ(dg_device_close(dev, 0), 0);
	CHECK_EQ(munmap(at, 8192), 0);
}

/* The reply of a fake exporter to the first request, and the expected result. */
struct reply_case {
	struct dg_share_reply answer;
	size_t size; /* of the message */
	bool send_control, send_memory;
	size_t memory_size;
	int memory_seals;
	size_t control_size;
	int want; /* expected result of dg_region_import() */
};

/* A valid reply: 4096 bytes in a memfd. */
static struct reply_case valid_reply(void)
{
	return (struct reply_case){
		.answer = { .magic = SHARE_MAGIC, .version = SHARE_VERSION, .access = DG_ACCESS_READ,
			    .method = DG_METHOD_MAP, .has_control = 1, .size = 4096 },
		.size = sizeof(struct dg_share_reply), .send_control = true, .send_memory = true,
		.memory_size = 4096, .memory_seals = F_SEAL_SHRINK, .control_size = CONTROL_SIZE,
	};
}

static void send_case(int conn, const struct reply_case *reply_case)
{
	struct dg_share_reply a = reply_case->answer;
	struct dg_share_request q;
	int fds[2], n = 0;

	CHECK_EQ(packet_from(conn, &q, sizeof(q), fds, &n), (ssize_t)sizeof(q));
	a.tag += q.tag;
	if (reply_case->send_control)
		fds[n++] = memfd_of(reply_case->control_size, F_SEAL_SHRINK | F_SEAL_GROW);
	if (reply_case->send_memory)
		fds[n++] = memfd_of(reply_case->memory_size, reply_case->memory_seals);
	CHECK_EQ(dg_unix_socket_send(conn, &a, reply_case->size, fds, n), (ssize_t)reply_case->size);
	while (n)
		close(fds[--n]);
	while (packet_from(conn, &q, sizeof(q), fds, &n) > 0)
		; /* until the importer disconnects */
}

/* Serves reply cases on a socket, one connection each. */
static void serve_reply_cases(int fd)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct reply_case reply_case;

	hear(fd, a.sun_path, DESCRIPTOR_PATH);
	CHECK_EQ(bind(server, (struct sockaddr *)&a, sizeof(a)), 0);
	CHECK_EQ(listen(server, 5), 0);
	say_int(fd, 0);
	while (hears(fd, &reply_case, sizeof(reply_case))) {
		int conn = accept(server, NULL, NULL);

		CHECK(conn >= 0);
		send_case(conn, &reply_case);
		close(conn);
	}
	unlink(a.sun_path);
}

static int import_of_case(dg_device *dev, struct other o, const char *path, const struct reply_case *reply_case)
{
	struct dg_descriptor d = { .size = 4096, .access = DG_ACCESS_READ };
	uint8_t buf[DG_DESCRIPTOR_MAX];
	dg_region *r;
	int len, rc;

	CHECK_EQ(dg_boot_id(d.boot_id), 0);
	snprintf(d.path, sizeof(d.path), "%s", path);
	len = dg_descriptor_pack(&d, buf, sizeof(buf));
	CHECK(len > 0);
	say(o.fd, reply_case, sizeof(*reply_case));
	rc = dg_region_import(dev, buf, len, 10 * SECOND, &r);
	if (rc == 0)
		CHECK_EQ(dg_region_close(r, 0), 0);
	return rc;
}

static int reply_cases(struct reply_case *all)
{
	int n = 0;

#define CASE(error, change) (all[n] = valid_reply(), all[n].want = (error), all[n].change, n++)
	CASE(0, answer.text[0] = 0);
	CASE(-EMEDIUMTYPE, memory_seals = 0);
	CASE(-EMEDIUMTYPE, memory_size = 4095);
	CASE(-EMEDIUMTYPE, answer.fd_offset = 1);
	CASE(-EMEDIUMTYPE, answer.size = 1ull << 62);
	CASE(-EMEDIUMTYPE, control_size = CONTROL_SIZE - 1);
	CASE(-EBADMSG, answer.fd_offset = UINT64_MAX);
	CASE(-EBADMSG, answer.size = 0);
	CASE(-EBADMSG, answer.slot = CONTROL_SLOTS);
	CASE(-EBADMSG, answer.slot = UINT32_MAX);
	CASE(-EBADMSG, send_memory = false);
	CASE(-EBADMSG, answer.has_control = 0);
	CASE(-EPROTONOSUPPORT, answer.magic = 1);
	CASE(-EPROTONOSUPPORT, answer.tag = 1);
	CASE(-EPROTONOSUPPORT, size = 20);
	CASE(-EPERM, answer.error = EPERM);
	CASE(-ENOKEY, answer.error = ENOKEY);
#undef CASE
	return n;
}

TEST(a_malformed_reply_is_refused)
{
	struct other o = start(serve_reply_cases);
	char path[DESCRIPTOR_PATH] = { 0 };
	dg_device *dev = device_spinning(0);
	struct reply_case all[32];
	int n = reply_cases(all), fds;

	snprintf(path, sizeof(path), "%s/liar.sock", own_folder);
	say(o.fd, path, sizeof(path));
	hear_int(o.fd);
	CHECK_EQ(import_of_case(dev, o, path, &all[0]), 0); /* also starts this process's share server */
	fds = entries("/proc/self/fd");
	for (int i = 0; i < n; i++) {
		int rc = import_of_case(dev, o, path, &all[i]);

		if (rc != all[i].want)
			check_failed(__FILE__, __LINE__, "lie %d: %d, not %d", i, rc, all[i].want);
		CHECK_EQ(entries("/proc/self/fd"), fds);
	}
	CHECK_EQ(shutdown(o.fd, SHUT_WR), 0);
	join(o);
	CHECK_EQ(dg_device_close(dev, 0), 0);
}

/* The error in a reply may be any number; the import must fail. */
TEST(an_error_outside_the_errno_range_is_still_an_error)
{
	static const uint32_t errors[] = { 100000, INT32_MAX, 1u << 31, UINT32_MAX };
	struct other o = start(serve_reply_cases);
	char path[DESCRIPTOR_PATH] = { 0 };
	dg_device *dev = device_spinning(0);

	snprintf(path, sizeof(path), "%s/liar.sock", own_folder);
	say(o.fd, path, sizeof(path));
	hear_int(o.fd);
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		struct reply_case reply_case = valid_reply();

		reply_case.answer.error = errors[i];
		memset(reply_case.answer.text, 'x', sizeof(reply_case.answer.text)); /* not NUL-terminated */
		CHECK(import_of_case(dev, o, path, &reply_case) < 0);
	}
	CHECK_EQ(shutdown(o.fd, SHUT_WR), 0);
	join(o);
	CHECK_EQ(dg_device_close(dev, 0), 0);
}

/* Exports the first page of a memfd that may grow, then makes it grow and exports its last page. */
static void exporter_that_grows(int fd)
{
	dg_device *dev = device_spinning(0);
	uint8_t buf[DG_DESCRIPTOR_MAX];
	dg_memory m = { .size = 4096, .fd = memfd_of(4096, F_SEAL_SHRINK) };
	dg_region *r;

	for (uint64_t end = 4096; end <= 1 << 20; end <<= 8) {
		CHECK_EQ(ftruncate(m.fd, end), 0);
		m.fd_offset = end - 4096;
		m.addr = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, m.fd_offset);
		CHECK(m.addr != MAP_FAILED);
		CHECK_EQ(dg_region_register(dev, &m, RW, &r), 0);
		say_int(fd, dg_region_export(r, RW, buf, sizeof(buf)));
		say(fd, buf, sizeof(buf));
		hear_int(fd); /* imported, or written */
	}
	CHECK_EQ(((uint8_t *)m.addr)[0], pattern(0, 1));
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

TEST(a_memfd_that_grew_is_mapped_anew)
{
	struct other o = start(exporter_that_grows);
	uint8_t buf[DG_DESCRIPTOR_MAX];
	dg_region *r[2];
	dg_wr wr;

	FIXTURE(fix, f, fix_open, 4096, 4);
	fill(f.local_bytes, 4096, 1);
	for (int i = 0; i < 2; i++) {
		int len = hear_int(o.fd);

		hear(o.fd, buf, sizeof(buf));
		CHECK_EQ(dg_region_import(f.dev, buf, len, 10 * SECOND, &r[i]), 0);
		if (i == 0)
			say_int(o.fd, 0);
	}
	wr = record(&f, DG_WRITE, 4096, 0, 0);
	wr.remote = id_of(r[1]);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	say_int(o.fd, 0);
	join(o);
}

/* Replies to an import of unshared memory, and to each copy with an undefined status. */
static void exporter_with_undefined_status(int fd)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), conn, fds[2], n;
	struct reply_case reply_case = valid_reply();
	struct dg_share_request q;

	hear(fd, a.sun_path, DESCRIPTOR_PATH);
	CHECK_EQ(bind(server, (struct sockaddr *)&a, sizeof(a)), 0);
	CHECK_EQ(listen(server, 5), 0);
	say_int(fd, 0);
	conn = accept(server, NULL, NULL);
	CHECK(conn >= 0);
	for (int i = 0; packet_from(conn, &q, sizeof(q), fds, &n) == (ssize_t)sizeof(q); i++) {
		reply_case.answer.method = DG_METHOD_PROXY;
		reply_case.answer.tag = q.tag;
		reply_case.answer.size = i ? 0 : 4096;
		reply_case.answer.has_control = !i;
		/* The value of OP_MORE for the last row, so that the engine would continue past
		 * the end. */
		reply_case.answer.status = i && q.offset >= 2048 ? UINT32_MAX : 0;
		fds[0] = i ? -1 : memfd_of(CONTROL_SIZE, F_SEAL_SHRINK | F_SEAL_GROW);
		if (q.kind != SHARE_RELEASE)
			CHECK(dg_unix_socket_send(conn, &reply_case.answer, reply_case.size, fds, !i) > 0);
	}
	unlink(a.sun_path);
}

TEST(an_undefined_status_ends_the_transfer)
{
	struct other o = start(exporter_with_undefined_status);
	struct dg_descriptor d = { .size = 4096, .access = DG_ACCESS_READ };
	uint8_t buf[DG_DESCRIPTOR_MAX];
	dg_region *r;
	dg_wr wr;
	dg_wc wc;

	snprintf(d.path, sizeof(d.path), "%s/liar.sock", own_folder);
	say(o.fd, d.path, sizeof(d.path));
	hear_int(o.fd);
	FIXTURE(fix, f, fix_open, 4096, 4);
	CHECK_EQ(dg_boot_id(d.boot_id), 0);
	CHECK_EQ(dg_region_import(f.dev, buf, dg_descriptor_pack(&d, buf, sizeof(buf)), PATIENCE, &r), 0);
	wr = record(&f, DG_READ, 2048, 0, 0);
	wr.remote = id_of(r);
	wr.rows = 2;
	wr.local_stride = wr.remote_stride = 2048;
	CHECK_EQ(dg_queue_run(f.q, &wr, 1, &wc, 10 * SECOND), 1);
	CHECK_EQ(wc.status, DG_IO_FAILED);
	CHECK_EQ(dg_region_close(r, PATIENCE), 0);
	join(o);
}

TEST_MAIN(run_with_own_folder)
