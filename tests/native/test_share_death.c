/* SPDX-License-Identifier: Apache-2.0 */
/* One side is revoked, stopped or killed while bytes move: the other side notices in time. */
#include "region.h"
#include "two_sides.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/syscall.h>

#define BIG (256u << 20)
#define DEPTH 16 /* operations of BIG bytes: more than is copied in a second */
#define EACH_WAY(how) \
	for (enum how how = BY_MAP; how <= BY_PROXY; how++) \
		if (!choose(how)) \
			fprintf(stderr, "this machine has no process_vm_readv\n"); \
		else

static void post_all(struct fix *f, struct transfer *t, uint64_t size)
{
	dg_wr wr = record(f, DG_WRITE, size, 0, 0);

	for (uint32_t i = 0; i < DEPTH; i++) {
		t[i] = begin(&f->tq, &wr);
		CHECK(t[i].ticket >= DG_TICKET);
	}
}

/* Imports the descriptor it receives, posts many transfers, sends the method, and then each
 * status. */
static void busy_importer(int fd)
{
	struct transfer t[DEPTH];
	struct token token;

	hear(fd, &token, sizeof(token));
	FIXTURE(fix, f, import_fix, &token, BIG, DEPTH);
	post_all(&f, t, BIG);
	say_int(fd, info_of(f.remote).method);
	for (uint32_t i = 0; i < DEPTH; i++) {
		CHECK_EQ(take(&t[i], 60 * SECOND), 0);
		say_int(fd, t[i].wc.status);
	}
	CHECK_EQ(dg_region_close(f.remote, PATIENCE), 0);
}

struct exporting {
	struct other importer;
	dg_device *dev;
	dg_memory memory;
	dg_region *region;
};

/* Exports to the importer that was started. */
static void export_to_started(struct exporting *e, enum how how)
{
	struct token token;

	e->dev = device_spinning(0);
	e->memory = memory_for(how, BIG);
	e->region = exportable(e->dev, &e->memory);
	token = export_of(e->region, RW);
	say(e->importer.fd, &token, sizeof(token));
	CHECK_EQ(hear_int(e->importer.fd), how);
}

static void export_to(struct exporting *e, enum how how, void (*importer)(int fd))
{
	e->importer = start(importer);
	export_to_started(e, how);
}

static void export_to_busy(struct exporting *e, enum how how)
{
	export_to(e, how, busy_importer);
}

static void let_go(struct exporting *e)
{
	CHECK_EQ(dg_device_close(e->dev, PATIENCE), 0);
	CHECK_EQ(munmap(e->memory.addr, e->memory.size), 0);
	if (e->memory.fd >= 0)
		close(e->memory.fd);
}

TEST(a_region_revoked_under_transfers_is_free_at_once)
{
	EACH_WAY(how) {
		struct exporting e;
		int status = DG_OK;

		export_to_busy(&e, how);
		CHECK_EQ(dg_region_close(e.region, PATIENCE), 0);
		/* No process writes to this memory any more, so any later change of a byte is
		 * detected. */
		memset(e.memory.addr, 0x5a, BIG);
		for (uint32_t i = 0; i < DEPTH; i++) {
			status = hear_int(e.importer.fd);
			CHECK(status == DG_OK || status == DG_REMOTE_ACCESS_ERROR);
		}
		CHECK_EQ(status, DG_REMOTE_ACCESS_ERROR);
		join(e.importer);
		for (size_t i = 0; i < BIG; i += 509)
			CHECK_EQ(((uint8_t *)e.memory.addr)[i], 0x5a);
		let_go(&e);
	}
}

TEST(an_importer_that_is_killed_holds_nothing)
{
	EACH_WAY(how) {
		struct exporting e;

		export_to_busy(&e, how);
		CHECK_EQ(info_of(e.region).importers, 1);
		CHECK_EQ(kill(e.importer.pid, SIGKILL), 0); /* not yet reaped */
		CHECK_EQ(dg_region_close(e.region, PATIENCE), 0);
		kill_and_reap(e.importer);
		let_go(&e);
	}
}

/* A process that shares the importer's fds and memory, as after a fork that the library did not
 * notice. It ends with the importer. */
static void leave_a_keeper(int fd)
{
	pid_t keeper = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);

	CHECK(keeper >= 0);
	if (keeper)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(fd);
	for (;;)
		poll(NULL, 0, -1);
}

static bool keeps; /* whether the next importer leaves a keeper behind */

/* Like busy_importer, but executes another program while its transfers are in flight; the exec
 * closes fd. */
static void importer_that_executes(int fd)
{
	struct transfer t[DEPTH];
	struct token token;
	struct fix f;

	hear(fd, &token, sizeof(token));
	import_fix(&f, &token, BIG, DEPTH);
	post_all(&f, t, BIG);
	if (keeps)
		leave_a_keeper(fd);
	say_int(fd, info_of(f.remote).method);
	execl("/bin/sleep", "sleep", "60", NULL);
	CHECK(!"exec");
}

TEST(an_importer_that_executes_another_program_holds_nothing)
{
	EACH_WAY(how) {
		for (int i = 0; i < 2; i++) {
			struct exporting e;
			char byte;

			keeps = i;
			export_to(&e, how, importer_that_executes);
			CHECK(!hears(e.importer.fd, &byte, 1)); /* the program has been executed */
			CHECK_EQ(dg_region_close(e.region, PATIENCE), 0);
			memset(e.memory.addr, 0x5a, BIG);
			CHECK_EQ(waitpid(e.importer.pid, NULL, WNOHANG), 0); /* it is still alive */
			for (size_t at = 0; at < BIG; at += 509)
				CHECK_EQ(((uint8_t *)e.memory.addr)[at], 0x5a);
			kill_and_reap(e.importer);
			let_go(&e);
		}
	}
}

TEST(a_program_that_was_executed_is_no_importer)
{
	struct exporting e;
	char byte;

	keeps = false;
	choose(BY_MAP);
	export_to(&e, BY_MAP, importer_that_executes);
	CHECK(!hears(e.importer.fd, &byte, 1));
	for (uint64_t end = dg_now_ns() + PATIENCE; info_of(e.region).importers;)
		CHECK(dg_now_ns() < end);
	kill_and_reap(e.importer);
	let_go(&e);
}

/* Makes the system refuse pidfd_open, as a kernel before 5.3 does. Returns false if that is not
 * possible, as under an emulator. */
static bool refuse_pidfds(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Ends this process's connections to an exporter, as if it had closed their sockets. */
static void hang_up(void)
{
	for (int fd = 3; fd < 256; fd++) {
		int type = 0;
		socklen_t size = sizeof(type);

		if (!getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_SEQPACKET)
			shutdown(fd, SHUT_RDWR);
	}
}

/* Ends its connection with an operation in flight, and keeps running. */
static void importer_that_hangs_up(int fd)
{
	struct token token;
	struct fix f;

	hear(fd, &token, sizeof(token));
	import_fix(&f, &token, BIG, DEPTH);
	gate_enter(f.remote->entry->gate, 1);
	hang_up();
	say_int(fd, info_of(f.remote).method);
	pause();
}

TEST(an_importer_without_a_pidfd_holds_what_it_uses_until_it_ends)
{
	struct exporting e;

	choose(BY_MAP);
	e.importer = start(importer_that_hangs_up);
	if (!refuse_pidfds()) {
		fprintf(stderr, "pidfd_open cannot be refused here\n");
		kill_and_reap(e.importer);
		return;
	}
	export_to_started(&e, BY_MAP);
	CHECK_EQ(dg_region_close(e.region, 200 * MS), -EBUSY);
	CHECK_SAYS(dg_last_error(), "in flight");
	kill_and_reap(e.importer);
	CHECK_EQ(dg_region_close(e.region, PATIENCE), 0);
	let_go(&e);
}

TEST(a_stopped_importer_holds_the_region_until_it_goes_on)
{
	EACH_WAY(how) {
		uint8_t descriptor[DG_DESCRIPTOR_MAX];
		struct exporting e;

		export_to_busy(&e, how);
		stop(e.importer);
		CHECK_EQ(dg_region_close(e.region, 20 * MS), -EBUSY);
		CHECK_SAYS(dg_last_error(), "in flight");
		CHECK_EQ(dg_region_export(e.region, RW, descriptor, sizeof(descriptor)), -ESTALE);
		CHECK_EQ(dg_region_close(e.region, 0), -EBUSY);
		resume(e.importer);
		CHECK_EQ(dg_region_close(e.region, PATIENCE), 0);
		for (uint32_t i = 0; i < DEPTH; i++)
			hear_int(e.importer.fd);
		join(e.importer);
		let_go(&e);
	}
}

/* Exports BIG bytes, sends the descriptor, then replies to ask(). */
static void exporter_by(int fd, enum how how)
{
	dg_device *dev = device_spinning(0);
	dg_memory m = memory_for(how, BIG);
	dg_region *r = exportable(dev, &m);
	struct token t = export_of(r, RW);
	int what;

	say(fd, &t, sizeof(t));
	while (hears(fd, &what, sizeof(what))) {
		int importers = (int)info_of(r).importers; /* takes the lock under which copies are made */

		say_int(fd, what < 0 ? importers : ((uint8_t *)m.addr)[what]);
	}
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

static void map_exporter(int fd)
{
	exporter_by(fd, BY_MAP);
}

static void plain_exporter(int fd)
{
	exporter_by(fd, BY_VM);
}

static struct other start_exporter(enum how how, struct token *t)
{
	struct other o = start(how == BY_MAP ? map_exporter : plain_exporter);

	hear(o.fd, t, sizeof(*t));
	return o;
}

/* Sends the exporter the byte `what`, or -1 to query its number of importers. */
static int ask(struct other o, int what)
{
	say_int(o.fd, what);
	return hear_int(o.fd);
}

TEST(an_exporter_that_is_killed_ends_transfers_as_peer_lost)
{
	EACH_WAY(how) {
		struct transfer t[DEPTH];
		struct token token;
		struct other o = start_exporter(how, &token);
		uint64_t killed;
		dg_region *again;
		struct fix f;

		import_fix(&f, &token, BIG, DEPTH);
		CHECK_EQ(info_of(f.remote).method, how);
		CHECK_EQ(info_of(f.remote).peer_pid, o.pid);
		post_all(&f, t, BIG);
		killed = dg_now_ns();
		kill_and_reap(o);
		for (uint32_t i = 0; i < DEPTH; i++) {
			CHECK_EQ(take(&t[i], 60 * SECOND), 0);
			CHECK(t[i].wc.status == DG_OK || t[i].wc.status == DG_PEER_LOST);
		}
		CHECK_EQ(t[DEPTH - 1].wc.status, DG_PEER_LOST);
		CHECK(t[DEPTH - 1].wc.complete_ns - killed < PATIENCE);
		while (!info_of(f.remote).lost) /* the copy may have noticed before the share server did */
			CHECK(dg_now_ns() - killed < PATIENCE);
		CHECK_EQ(dg_region_import(f.dev, token.bytes, token.len, SECOND, &again), -ENOTCONN);
		CHECK_EQ(dg_region_close(f.remote, 0), 0);
		fix_close(&f);
	}
}

TEST(a_stopped_exporter_is_named_at_import)
{
	struct token token;
	struct other o = start_exporter(BY_MAP, &token);
	dg_device *dev = device_spinning(0);
	dg_region *r;

	stop(o);
	CHECK_EQ(dg_region_import(dev, token.bytes, token.len, 30 * MS, &r), -ETIMEDOUT);
	CHECK_SAYS(dg_last_error(), "stopped");
	resume(o);
	r = import_of(dev, &token);
	CHECK_EQ(dg_region_close(r, 0), 0);
	CHECK_EQ(dg_device_close(dev, 0), 0);
	kill_and_reap(o);
}

TEST(an_import_that_came_too_late_is_given_back)
{
	struct token token;
	struct other o = start_exporter(BY_MAP, &token);
	dg_device *dev = device_spinning(0);
	dg_region *held = import_of(dev, &token), *r;

	stop(o);
	CHECK_EQ(dg_region_import(dev, token.bytes, token.len, 30 * MS, &r), -ETIMEDOUT);
	CHECK_EQ(dg_region_import(dev, token.bytes, token.len, 30 * MS, &r), -ETIMEDOUT);
	resume(o);
	r = import_of(dev, &token);
	CHECK_EQ(dg_region_close(r, 0), 0);
	for (uint64_t end = dg_now_ns() + 10 * SECOND; ask(o, -1) != 1;) /* the import that is held */
		CHECK(dg_now_ns() < end);
	CHECK_EQ(dg_region_close(held, 0), 0);
	CHECK_EQ(dg_device_close(dev, 0), 0);
	kill_and_reap(o);
}

/* A reply to an abandoned request must not affect later requests. */
TEST(a_copy_after_one_that_timed_out_moves_the_right_bytes)
{
	struct token token;
	struct transfer t;
	struct other o;
	struct fix f;
	dg_wr wr;

	choose(BY_PROXY);
	o = start_exporter(BY_PROXY, &token);
	import_fix(&f, &token, 1 << 20, 4);
	CHECK_EQ(info_of(f.remote).method, BY_PROXY);
	stop(o);
	wr = record(&f, DG_READ, 1 << 20, 0, 1 << 20);
	CHECK_EQ(done(&f.tq, &wr).status, DG_TIMED_OUT);
	memset(f.local_bytes, 0x77, 1 << 20);
	wr = record(&f, DG_WRITE, 1 << 20, 0, 0);
	t = begin(&f.tq, &wr);
	CHECK(t.ticket >= DG_TICKET);
	resume(o);
	CHECK_EQ(take(&t, 30 * SECOND), 0);
	CHECK_EQ(t.wc.status, DG_OK);
	CHECK_EQ(ask(o, 0), 0x77);
	CHECK_EQ(ask(o, (1 << 20) - 1), 0x77);
	wr = record(&f, DG_READ, 1 << 20, 0, 0);
	CHECK_EQ(done(&f.tq, &wr).status, DG_OK);
	for (size_t i = 0; i < 1 << 20; i++)
		CHECK_EQ(f.local_bytes[i], 0x77);
	fix_close(&f);
	kill_and_reap(o);
}

TEST(closing_a_queue_does_not_wait_for_each_copy_of_a_stopped_exporter)
{
	struct transfer t[DEPTH];
	struct token token;
	struct other o;
	uint64_t start_ns;
	struct fix f;

	choose(BY_PROXY);
	o = start_exporter(BY_PROXY, &token);
	import_fix(&f, &token, 4096, DEPTH);
	stop(o);
	post_all(&f, t, 64);
	start_ns = dg_now_ns();
	CHECK_EQ(dg_queue_close(f.q), 0);
	CHECK(dg_now_ns() - start_ns < DEPTH * SECOND / 2); /* one copy gives up after a second, DEPTH copies after DEPTH seconds */
	for (uint32_t i = 0; i < DEPTH; i++) {
		CHECK_EQ(take(&t[i], 0), 0);
		CHECK(t[i].wc.status == DG_FLUSHED || t[i].wc.status == DG_TIMED_OUT);
	}
	CHECK_EQ(dg_region_close(f.remote, 0), 0);
	fix_close(&f);
	kill_and_reap(o);
}

TEST_MAIN(run_with_own_folder)
