/* SPDX-License-Identifier: Apache-2.0 */
/* Many regions, many cycles, forks: nothing is left behind, and regions are not confused. */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "two_sides.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif
#define CYCLES (SANITIZED ? 200 : 1000)
#define MANY (SANITIZED ? 5000u : 100000u)

/* Imports `count` regions, writes to each and reports; closes them on request. */
static void importer_of_many(int fd)
{
	uint32_t count = hear_int(fd);
	dg_region **r = calloc(count, sizeof(*r));
	struct token t;

	hear(fd, &t, sizeof(t));
	FIXTURE(fix, f, import_fix, &t, 4096, 8);
	for (uint32_t i = 0; i < count; i++) {
		dg_wr wr = record(&f, DG_WRITE, 1, 1, 0);

		hear(fd, &t, sizeof(t));
		r[i] = import_of(f.dev, &t);
		f.local_bytes[1] = (uint8_t)(i % 251);
		wr.remote = id_of(r[i]);
		CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	}
	say_int(fd, 0);
	hear_int(fd);
	for (uint32_t i = 0; i < count; i++)
		CHECK_EQ(dg_region_close(r[i], 0), 0);
	say_int(fd, 0);
	hear_int(fd);
	free(r);
}

static double seconds_since(uint64_t start)
{
	return (double)(dg_now_ns() - start) / 1e9;
}

TEST(many_regions_over_one_buffer_come_and_go)
{
	struct other o = start(importer_of_many);
	uint64_t start_ns = dg_now_ns();
	dg_device *dev = device_spinning(0);
	dg_memory whole = sealed_memory(MANY + 1), m = whole;
	dg_region **r = calloc(MANY, sizeof(*r)), *first;
	struct token t;

	CHECK(r);
	say_int(o.fd, MANY);
	first = exportable(dev, &whole);
	t = export_of(first, RW);
	say(o.fd, &t, sizeof(t));
	for (uint32_t i = 0; i < MANY; i++) {
		m.addr = (char *)whole.addr + i;
		m.size = 1;
		m.fd_offset = i;
		r[i] = exportable(dev, &m);
		t = export_of(r[i], RW);
		say(o.fd, &t, sizeof(t));
	}
	hear_int(o.fd);
	printf("%u regions registered, exported, imported, written: %.1f s\n", MANY, seconds_since(start_ns));
	for (uint32_t i = 0; i < MANY; i++)
		CHECK_EQ(((uint8_t *)whole.addr)[i], i % 251);
	start_ns = dg_now_ns();
	say_int(o.fd, 0); /* about half of the pairs are closed by the exporter first */
	for (uint32_t i = MANY; i-- > 0;)
		CHECK_EQ(dg_region_close(r[i], PATIENCE), 0);
	hear_int(o.fd);
	printf("and closed: %.1f s\n", seconds_since(start_ns));
	say_int(o.fd, 0);
	join(o);
	free(r);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	CHECK_EQ(munmap(whole.addr, whole.size), 0);
	close(whole.fd);
}

struct usage {
	int fds, threads, mappings;
};

static struct usage usage(void)
{
	struct usage u = { entries("/proc/self/fd"), entries("/proc/self/task"), 0 };
	FILE *f = fopen("/proc/self/maps", "r");
	int c;

	CHECK(f);
	while (!SANITIZED && (c = fgetc(f)) != EOF)
		u.mappings += c == '\n';
	fclose(f);
	return u;
}

static int threads(void)
{
	return entries("/proc/self/task");
}

/* Returns the usage once there are n threads: a joined thread is visible for a moment longer,
 * and ThreadSanitizer starts a thread with the first one of the program. */
static struct usage usage_with(int n)
{
	uint64_t end = dg_now_ns() + PATIENCE;

	while (threads() > n + SANITIZED)
		CHECK(dg_now_ns() < end);
	return usage();
}

static void check_usage(struct usage before)
{
	uint64_t end = dg_now_ns() + PATIENCE;
	struct usage now;

	do
		now = usage();
	while (memcmp(&now, &before, sizeof(now)) && dg_now_ns() < end);
	CHECK_EQ(now.fds, before.fds);
	CHECK_EQ(now.threads, before.threads);
	CHECK_EQ(now.mappings, before.mappings);
}

/* Opens everything, moves bytes, closes everything. */
static void cycle(enum how how)
{
	dg_device *dev = device_spinning(0);
	dg_memory m = memory_for(how, 65536);
	dg_region *source = exportable(dev, &m), *remote = imported(dev, source, RW);
	uint8_t local_bytes[8192];
	dg_region *local = registered(dev, local_bytes, sizeof(local_bytes), RW);
	struct test_queue l;
	dg_wr wr = { .op = DG_WRITE, .local = id_of(local), .remote = id_of(remote), .size = sizeof(local_bytes) };

	CHECK_EQ(test_queue_open(&l, dev, 16, DG_PATH_WORKER, 0, 20 * SECOND), 0);
	fill(local_bytes, sizeof(local_bytes), 4);
	CHECK_EQ(done(&l, &wr).status, DG_OK);
	check_pattern(m.addr, 0, sizeof(local_bytes), 4);
	CHECK_EQ(dg_queue_close(l.q), 0);
	dg_queue_free(l.q);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	CHECK_EQ(munmap(m.addr, 65536), 0);
	if (m.fd >= 0)
		close(m.fd);
}

static void cycles(int fd)
{
	struct usage before;
	int alone = threads();

	(void)fd;
	mallopt(M_ARENA_MAX, 1);
	for (int i = 0; i < CYCLES / 10; i++)
		cycle(i % 2 ? BY_MAP : BY_VM);
	before = usage_with(alone);
	for (int i = 0; i < CYCLES; i++)
		cycle(i % 2 ? BY_MAP : BY_VM);
	check_usage(before);
}

TEST(cycles_in_one_process_leave_nothing)
{
	join(start(cycles));
}

/* Imports and closes repeatedly, each time with a new device. */
static void importing_cycles(int fd)
{
	struct usage before = { 0 };
	int alone = threads();
	struct token t;

	mallopt(M_ARENA_MAX, 1);
	hear(fd, &t, sizeof(t));
	for (int i = 0; i < CYCLES / 2; i++) {
		struct fix f;
		dg_wr wr;

		import_fix(&f, &t, 4096, 4);
		wr = record(&f, DG_READ, 4096, 0, 0);
		CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
		check_pattern(f.local_bytes, 0, 4096, 4);
		fix_close(&f);
		if (i == CYCLES / 10)
			before = usage_with(alone);
	}
	check_usage(before);
	say_int(fd, 0);
	hear_int(fd);
}

TEST(importers_that_come_and_go_leave_nothing)
{
	int alone = threads();

	mallopt(M_ARENA_MAX, 1); /* a thread's malloc arena would count as a mapping */
	for (enum how how = BY_MAP; how <= BY_PROXY; how++) {
		struct other o;
		struct usage before;
		dg_device *dev;
		dg_memory m;
		struct token t;

		if (!choose(how))
			continue;
		usage_with(alone);
		o = start(importing_cycles);
		m = memory_for(how, 4096);
		dev = device_spinning(0);
		fill(m.addr, 4096, 4);
		t = export_of(exportable(dev, &m), RW);
		before = usage_with(alone + 2); /* the engine and the share server */
		say(o.fd, &t, sizeof(t));
		hear_int(o.fd);
		check_usage(before);
		say_int(o.fd, 0);
		join(o);
		CHECK_EQ(dg_device_close(dev, 0), 0);
		CHECK_EQ(munmap(m.addr, 4096), 0);
	}
}

/* Exports a page and sends its number of imports on request. */
static void counting_exporter(int fd)
{
	dg_device *dev = device_spinning(0);
	dg_memory m = sealed_memory(4096);
	struct token t;
	dg_region *r;

	CHECK_EQ(dg_region_register(dev, &m, RW, &r), 0);
	t.len = dg_region_export(r, RW, t.bytes, sizeof(t.bytes));
	say(fd, &t, sizeof(t));
	while (hear_int(fd))
		say_int(fd, info_of(r).importers);
	CHECK_EQ(dg_region_close(r, PATIENCE), 0);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

/* One import stays open, so that no end of the connection releases the others. */
TEST(many_imports_that_close_at_once_are_all_given_back)
{
	enum { BURST = 2000 };
	struct other o = start(counting_exporter);
	dg_device *dev = device_spinning(0);
	dg_region *r[BURST];
	struct token t;
	int left = 0;

	hear(o.fd, &t, sizeof(t));
	for (int i = 0; i < BURST; i++)
		CHECK_EQ(dg_region_import(dev, t.bytes, t.len, 10 * SECOND, &r[i]), 0);
	for (int i = 1; i < BURST; i++)
		CHECK_EQ(dg_region_close(r[i], PATIENCE), 0);
	for (int asked = 0; left != 1; asked++) {
		CHECK(asked < 5000);
		say_int(o.fd, 1);
		left = hear_int(o.fd);
	}
	CHECK_EQ(dg_region_close(r[0], PATIENCE), 0);
	say_int(o.fd, 0);
	join(o);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

/* The child of a fork gets EOWNERDEAD for its parent's objects, and can close them. */
static void child_gets_eownerdead(struct fix *f, dg_prep *p)
{
	uint8_t buf[DG_DESCRIPTOR_MAX];
	dg_memory m = plain_memory(buf, sizeof(buf));
	dg_wr wr = record(f, DG_WRITE, 8, 0, 0);
	dg_region_info info;
	dg_region *r;
	dg_queue *q;
	dg_wc wc;

	CHECK_EQ(dg_queue_post(f->q, &wr, 1), -EOWNERDEAD);
	CHECK_SAYS(dg_last_error(), "fork");
	CHECK_EQ(dg_transfer_post(f->q, DG_WRITE, f->l, f->r, 8, 0, 0, 0, &wc), -EOWNERDEAD);
	CHECK_EQ(dg_queue_run(f->q, &wr, 1, &wc, SECOND), -EOWNERDEAD);
	CHECK_EQ(dg_prep_run(p), -EOWNERDEAD);
	CHECK_EQ(dg_queue_arm(f->q), -EOWNERDEAD);
	CHECK_EQ(dg_region_info_get(f->remote, &info), -EOWNERDEAD);
	CHECK_EQ(dg_queue_open(f->dev, 4, DG_PATH_AUTO, 0, SECOND, &q), -EOWNERDEAD);
	CHECK_EQ(dg_region_register(f->dev, &m, RW, &r), -EOWNERDEAD);
	CHECK_EQ(dg_region_export(f->source, RW, buf, sizeof(buf)), -EOWNERDEAD);
	CHECK_EQ(dg_prep_close(p), 0);
	CHECK_EQ(dg_queue_close(f->q), 0);
	dg_queue_free(f->q);
	CHECK_EQ(dg_region_close(f->remote, PATIENCE), 0);
	CHECK_EQ(dg_device_close(f->dev, PATIENCE), 0);
}

/* Runs body in a forked child, which must succeed. */
static void in_child(void (*body)(struct fix *f, dg_prep *p), struct fix *f, dg_prep *p)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		alarm(60);
		body(f, p);
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

TEST(a_forked_child_gets_eownerdead_and_leaves_the_parent_intact)
{
	dg_prep *p;
	dg_wr wr;

	FIXTURE(fix, f, fix_open, 4096, 4);
	wr = record(&f, DG_WRITE, 8, 0, 0);
	CHECK_EQ(dg_prep_open(f.q, &wr, 1, &p), 0);
	in_child(child_gets_eownerdead, &f, p);
	CHECK_EQ(dg_prep_run(p), 0);
	CHECK_EQ(dg_prep_close(p), 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	CHECK_EQ(info_of(f.source).importers, 1);
	CHECK_EQ(dg_region_close(f.remote, 0), 0);
	f.remote = imported(f.dev, f.source, RW); /* the share server still replies */
}

static void close_all_of(struct fix *f, dg_prep *p)
{
	dg_queue *q;

	(void)p;
	CHECK_EQ(dg_queue_open(f->dev, 4, DG_PATH_AUTO, 0, SECOND, &q), -EOWNERDEAD);
	dg_queue_free(f->q);
	CHECK_EQ(dg_device_close(f->dev, PATIENCE), 0);
}

TEST(a_child_of_a_process_that_never_exported_gets_eownerdead)
{
	struct fix f = { 0 };

	f.dev = device_spinning(0);
	CHECK_EQ(test_queue_open(&f.tq, f.dev, 4, DG_PATH_WORKER, 0, PATIENCE), 0);
	f.q = f.tq.q;
	in_child(close_all_of, &f, NULL);
	dg_queue_free(f.q);
	CHECK_EQ(dg_device_close(f.dev, 0), 0);
}

static void own_device(struct fix *f, dg_prep *p)
{
	dg_wr wr;

	(void)p;
	FIXTURE(fix, mine, fix_open, 4096, 4);
	wr = record(&mine, DG_WRITE, 100, 0, 0);
	CHECK_EQ(done(&mine.tq, &wr).status, DG_OK);
	wr.remote = f->r; /* the parent's */
	CHECK(dg_queue_post(mine.q, &wr, 1) < 0);
}

TEST(a_forked_child_may_open_a_device_of_its_own)
{
	struct fix f;
	dg_wr wr;

#ifdef __SANITIZE_THREAD__
	return; /* it does not allow threads in the child of a process with threads */
#endif
	fix_open(&f, 4096, 4);
	wr = record(&f, DG_WRITE, 8, 0, 0);
	in_child(own_device, &f, NULL);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	fix_close(&f);
}

/* Exports, forks a child that keeps running, sends the child's pid and waits to be killed. */
static void exporter_with_child(int fd)
{
	dg_device *dev = device_spinning(0);
	dg_memory m = sealed_memory(4096);
	struct token t = export_of(exportable(dev, &m), RW);
	pid_t child;

	say(fd, &t, sizeof(t));
	hear_int(fd); /* it was imported */
	child = fork();
	if (child == 0) {
		alarm(60);
		for (;;)
			pause();
	}
	say_int(fd, child);
	for (;;)
		pause();
}

TEST(a_dead_exporter_is_noticed_though_its_child_lives)
{
	struct other o = start(exporter_with_child);
	uint64_t killed;
	struct token t;
	pid_t child;
	dg_wr wr;

	hear(o.fd, &t, sizeof(t));
	FIXTURE(fix, f, import_fix, &t, 4096, 4);
	wr = record(&f, DG_WRITE, 8, 0, 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	say_int(o.fd, 0);
	child = hear_int(o.fd);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	killed = dg_now_ns();
	kill_and_reap(o);
	while (!info_of(f.remote).lost)
		CHECK(dg_now_ns() - killed < PATIENCE);
	CHECK_EQ(kill(child, 0), 0); /* the child is alive and has not kept the parent's socket */
	CHECK_EQ(done(&f.tq, &wr).status, DG_PEER_LOST);
	CHECK_EQ(kill(child, SIGKILL), 0);
}

static atomic_bool enough;

/* Imports and closes one region: each time a new connection to its exporter. */
static void *import_and_close(void *arg)
{
	const struct token *t = arg;
	dg_device *dev = device_spinning(0);

	while (!atomic_load(&enough))
		CHECK_EQ(dg_region_close(import_of(dev, t), PATIENCE), 0);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	return NULL;
}

/* In a forked child: the number of sockets of its parent's connections and share server. */
static int sockets_left(void)
{
	int n = 0;

	for (int fd = 3; fd < 256; fd++) {
		int type = 0;
		socklen_t size = sizeof(type);

		n += !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_SEQPACKET;
	}
	return n;
}

static void waiting_exporter(int fd)
{
	dg_memory m = sealed_memory(4096);
	struct token t = export_of(exportable(device_spinning(0), &m), RW);

	say(fd, &t, sizeof(t));
	pause();
}

TEST(a_child_that_is_forked_beside_an_import_keeps_no_socket)
{
	enum { IMPORTERS = 8, FORKS = 1000 };
	const uint64_t end = dg_now_ns() + 10 * SECOND; /* an emulator forks slowly */
	struct other o[IMPORTERS]; /* an exporter for each: otherwise they share connections */
	pthread_t importers[IMPORTERS];
	struct token t[IMPORTERS];

	for (int i = 0; i < IMPORTERS; i++)
		o[i] = start(waiting_exporter);
	for (int i = 0; i < IMPORTERS; i++) {
		hear(o[i].fd, &t[i], sizeof(t[i]));
		CHECK_EQ(pthread_create(&importers[i], NULL, import_and_close, &t[i]), 0);
	}
	for (int i = 0; i < FORKS && dg_now_ns() < end; i++) {
		int status;
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0)
			_exit(sockets_left());
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFEXITED(status));
		CHECK_EQ(WEXITSTATUS(status), 0);
	}
	atomic_store(&enough, true);
	for (int i = 0; i < IMPORTERS; i++) {
		pthread_join(importers[i], NULL);
		kill_and_reap(o[i]);
	}
}

TEST_MAIN(run_with_own_folder)
