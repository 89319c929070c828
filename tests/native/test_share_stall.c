/* SPDX-License-Identifier: Apache-2.0 */
/* An exporter that stalls delays only the imports from itself. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "share/descriptor.h"
#include "share/server.h"
#include "two_sides.h"

#define STALL (3 * SECOND) /* time limit of an import from a stalled exporter */
#define PROMPT (2 * SECOND) /* maximum time of any other import, even on a busy machine */
#define SPARSE (4ull << 30)

/* The wall clock of this program has been set back by an hour since it was read: no wait ends by it. */
int clock_gettime(clockid_t id, struct timespec *t)
{
	const int rc = (int)syscall(SYS_clock_gettime, id, t);

	if (id == CLOCK_REALTIME)
		t->tv_sec += 3600;
	return rc;
}

/* Exports one region until the test ends. */
static void honest_exporter(int fd)
{
	dg_device *dev = device_spinning(0);
	dg_memory m = memory_for(BY_MAP, 4096);
	struct token t = export_of(exportable(dev, &m), RW);

	say(fd, &t, sizeof(t));
	hear_int(fd);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

static struct token heard_token(struct other o)
{
	struct token t;

	hear(o.fd, &t, sizeof(t));
	return t;
}

static int listener_at(const char *path, int backlog)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	CHECK_EQ(bind(server, (struct sockaddr *)&a, sizeof(a)), 0);
	CHECK_EQ(listen(server, backlog), 0);
	return server;
}

/* Creates a listener whose backlog has no room for another connection. Returns the connection that
 * fills the backlog. */
static int listener_without_room(const char *path, int *server)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	*server = listener_at(path, 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	CHECK_EQ(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static struct token token_of(const char *path)
{
	struct dg_descriptor d = { .size = 4096, .access = DG_ACCESS_READ };
	struct token t;

	CHECK_EQ(dg_boot_id(d.boot_id), 0);
	snprintf(d.path, sizeof(d.path), "%s", path);
	t.len = dg_descriptor_pack(&d, t.bytes, sizeof(t.bytes));
	CHECK(t.len > 0);
	return t;
}

/* One import in a separate thread. */
struct importing {
	pthread_t thread;
	dg_device *dev;
	struct token token;
	int rc;
	uint64_t took;
	dg_region *region;
};

static void *importing(void *arg)
{
	struct importing *i = arg;
	uint64_t began = dg_now_ns();

	i->rc = dg_region_import(i->dev, i->token.bytes, i->token.len, STALL, &i->region);
	i->took = dg_now_ns() - began;
	return NULL;
}

static void start_import(struct importing *i, dg_device *dev, const struct token *t)
{
	*i = (struct importing){ .dev = dev, .token = *t };
	CHECK_EQ(pthread_create(&i->thread, NULL, importing, i), 0);
}

/* Imports from the honest exporter and closes, until the stalled imports end. Returns the longest
 * time. */
static uint64_t longest_beside(dg_device *dev, const struct token *honest, struct importing *stalled, int n)
{
	uint64_t longest = 0, start = dg_now_ns();
	int rounds = 0;

	while (dg_now_ns() < start + STALL - SECOND / 2) {
		uint64_t began = dg_now_ns();
		dg_region *r = import_of(dev, honest);

		CHECK_EQ(dg_region_close(r, PATIENCE), 0);
		if (dg_now_ns() - began > longest)
			longest = dg_now_ns() - began;
		rounds++;
		usleep(1000);
	}
	CHECK(rounds > 10);
	for (int i = 0; i < n; i++) {
		CHECK_EQ(pthread_join(stalled[i].thread, NULL), 0);
		CHECK_EQ(stalled[i].rc, -ETIMEDOUT);
		CHECK(stalled[i].took < 2 * STALL);
	}
	return longest;
}

TEST(a_full_backlog_delays_no_other_import)
{
	struct other o = start(honest_exporter);
	dg_device *dev = device_spinning(0);
	struct token honest = heard_token(o), t;
	struct importing stalled[2];
	char path[100];
	int server, inside;

	snprintf(path, sizeof(path), "%s/full.sock", own_folder);
	inside = listener_without_room(path, &server);
	t = token_of(path);
	for (int i = 0; i < 2; i++)
		start_import(&stalled[i], dev, &t);
	CHECK(longest_beside(dev, &honest, stalled, 2) < PROMPT);
	close(inside);
	close(server);
	unlink(path);
	say_int(o.fd, 0);
	join(o);
	CHECK_EQ(dg_device_close(dev, 0), 0);
}

TEST(an_exporter_that_never_answers_delays_no_other_import)
{
	struct other o = start(honest_exporter);
	dg_device *dev = device_spinning(0);
	struct token honest = heard_token(o), t;
	struct importing stalled[3];
	char path[100];
	int server, conn;

	snprintf(path, sizeof(path), "%s/mute.sock", own_folder);
	server = listener_at(path, 5);
	t = token_of(path);
	for (int i = 0; i < 3; i++)
		start_import(&stalled[i], dev, &t);
	conn = accept(server, NULL, NULL);
	CHECK(conn >= 0);
	CHECK(longest_beside(dev, &honest, stalled, 3) < PROMPT);
	CHECK_EQ(fcntl(server, F_SETFL, O_NONBLOCK), 0);
	CHECK_EQ(accept(server, NULL, NULL), -1); /* all imports used one connection */
	close(conn);
	close(server);
	unlink(path);
	say_int(o.fd, 0);
	join(o);
	CHECK_EQ(dg_device_close(dev, 0), 0);
}

/* While another thread waits longer for the same exporter. */
TEST(an_import_ends_by_its_own_time_limit)
{
	dg_device *dev = device_spinning(0);
	struct importing patient;
	struct token t;
	char path[100];
	int server, conn;

	snprintf(path, sizeof(path), "%s/mute.sock", own_folder);
	server = listener_at(path, 5);
	t = token_of(path);
	start_import(&patient, dev, &t);
	conn = accept(server, NULL, NULL);
	CHECK(conn >= 0);
	const uint64_t start = dg_now_ns();
	dg_region *r;
	CHECK_EQ(dg_region_import(dev, t.bytes, t.len, SECOND / 2, &r), -ETIMEDOUT);
	CHECK(dg_now_ns() - start >= SECOND / 2);
	CHECK(dg_now_ns() - start < STALL - SECOND / 2);
	CHECK_EQ(pthread_join(patient.thread, NULL), 0);
	close(conn);
	close(server);
	unlink(path);
	CHECK_EQ(dg_device_close(dev, 0), 0);
}

/* Once there is room in the backlog, the waiting imports continue, with one connection. */
TEST(imports_that_waited_for_a_connection_share_it)
{
	dg_device *dev = device_spinning(0);
	struct importing waiting[4];
	struct token t;
	char path[100];
	int server, inside, conn;

	snprintf(path, sizeof(path), "%s/later.sock", own_folder);
	inside = listener_without_room(path, &server);
	t = token_of(path);
	for (int i = 0; i < 4; i++)
		start_import(&waiting[i], dev, &t);
	usleep(100000);
	close(accept(server, NULL, NULL));
	conn = accept(server, NULL, NULL);
	CHECK(conn >= 0);
	close(conn); /* the exporter ends, so each import ends now and need not wait */
	CHECK_EQ(listen(server, 5), 0);
	close(server);
	unlink(path);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(pthread_join(waiting[i].thread, NULL), 0);
		CHECK_EQ(waiting[i].rc, -ENOTCONN);
	}
	close(inside);
	CHECK_EQ(dg_device_close(dev, 0), 0);
}

static int sealed_memfd(uint64_t size)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	CHECK(fd >= 0);
	CHECK_EQ(ftruncate(fd, (off_t)size), 0);
	CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

static bool blocks_lie;

/* As libc's; while blocks_lie, as in a kernel that does not count the pages of a memfd (gVisor). */
int fstat(int fd, struct stat *st)
{
	int rc = fstatat(fd, "", st, AT_EMPTY_PATH);

	if (!rc && blocks_lie && S_ISREG(st->st_mode))
		st->st_blocks = (st->st_size + 511) / 512;
	return rc;
}

static uint64_t allocated(int fd)
{
	struct stat st;

	CHECK_EQ(fstatat(fd, "", &st, AT_EMPTY_PATH), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* Replies to one import on a connection with a sparse memfd, which is stored in *memory. */
static int answer_with_sparse(int server, int *memory)
{
	struct dg_share_reply a = { .magic = SHARE_MAGIC, .version = SHARE_VERSION,
				    .access = RW, .method = DG_METHOD_MAP, .has_control = 1,
				    .size = SPARSE };
	int conn = accept(server, NULL, NULL), fds[2], n = 0;
	struct dg_share_request q;

	CHECK(conn >= 0);
	CHECK_EQ(packet_from(conn, &q, sizeof(q), fds, &n), (ssize_t)sizeof(q));
	a.tag = q.tag;
	fds[0] = sealed_memfd(CONTROL_SIZE);
	fds[1] = *memory = sealed_memfd(SPARSE);
	CHECK_EQ(dg_unix_socket_send(conn, &a, sizeof(a), fds, 2), (ssize_t)sizeof(a));
	close(fds[0]);
	return conn;
}

static void import_sparse(void)
{
	struct importing one;
	struct token t;
	char path[100];
	int server, conn, memory;
	dg_wr wr;

	FIXTURE(fix, f, fix_open, 4096, 4);
	snprintf(path, sizeof(path), "%s/sparse.sock", own_folder);
	server = listener_at(path, 5);
	t = token_of(path);
	start_import(&one, f.dev, &t);
	conn = answer_with_sparse(server, &memory);
	CHECK_EQ(pthread_join(one.thread, NULL), 0);
	CHECK_EQ(one.rc, 0);
	CHECK(one.took < STALL);
	CHECK_EQ(allocated(memory), 0);
	fill(f.local_bytes, 4096, 1);
	wr = record(&f, DG_WRITE, 4096, 0, SPARSE - 4096);
	wr.remote = id_of(one.region);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	CHECK(allocated(memory) <= 4u << 20);
	CHECK_EQ(dg_region_close(one.region, PATIENCE), 0);
	close(memory);
	close(conn);
	close(server);
	unlink(path);
}

TEST(a_sparse_memfd_is_imported_without_its_pages)
{
	import_sparse();
}

TEST(a_sparse_memfd_is_imported_without_its_pages_though_the_kernel_counts_none)
{
	blocks_lie = true;
	import_sparse();
	blocks_lie = false;
}

/* Imports from the exporter and closes, repeatedly for a second. */
static void *churning(void *arg)
{
	struct importing *i = arg;
	uint64_t end = dg_now_ns() + SECOND;

	while (dg_now_ns() < end) {
		i->rc = dg_region_import(i->dev, i->token.bytes, i->token.len, SECOND / 20, &i->region);
		CHECK(!i->rc || i->rc == -ETIMEDOUT || i->rc == -ENOTCONN);
		if (!i->rc)
			CHECK_EQ(dg_region_close(i->region, PATIENCE), 0);
	}
	return NULL;
}

/* For ThreadSanitizer: the last reference to an exporter is dropped while others connect to it. */
TEST(threads_import_from_honest_and_stalled_exporters)
{
	struct other first = start(honest_exporter), second = start(honest_exporter);
	dg_device *dev = device_spinning(0);
	struct token tokens[3] = { heard_token(first), heard_token(second) };
	struct importing all[9];
	char path[100];
	int server, inside;

	snprintf(path, sizeof(path), "%s/crowded.sock", own_folder);
	inside = listener_without_room(path, &server);
	tokens[2] = token_of(path);
	for (int i = 0; i < 9; i++) {
		all[i] = (struct importing){ .dev = dev, .token = tokens[i % 3] };
		CHECK_EQ(pthread_create(&all[i].thread, NULL, churning, &all[i]), 0);
	}
	usleep(500000);
	kill_and_reap(second); /* while it is imported from */
	for (int i = 0; i < 9; i++)
		CHECK_EQ(pthread_join(all[i].thread, NULL), 0);
	close(inside);
	close(server);
	unlink(path);
	say_int(first.fd, 0);
	join(first);
	CHECK_EQ(dg_device_close(dev, 0), 0);
}

TEST_MAIN(run_with_own_folder)
