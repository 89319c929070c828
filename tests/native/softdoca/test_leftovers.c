// SPDX-License-Identifier: Apache-2.0
/* Files in the folder where processes meet: none is left by a process that exits, and those of a killed
 * one are removed by the next. */
#include "comch_check.h"
#include "fork_check.h"

static char memory[4096];

static unsigned files(void)
{
	char pattern[64];
	glob_t found;
	unsigned n = 0;

	snprintf(pattern, sizeof(pattern), "%s/dgkit/*", folder);
	if (!glob(pattern, 0, NULL, &found)) {
		n = (unsigned)found.gl_pathc;
		globfree(&found);
	}
	return n;
}

static struct doca_mmap *exported(struct doca_dev *dev)
{
	struct doca_mmap *m = a_started_map(dev, memory, sizeof(memory), READ_WRITE | PCI_RW);
	const void *desc;
	size_t len;

	OK(doca_mmap_export_pci(m, dev, &desc, &len));
	return m;
}

/* Starts a Comch server and an exporter. */
static void open_all(struct side *s, const char *name)
{
	a_server(s, name);
	OK(doca_ctx_start(s->ctx));
	exported(s->dev);
}

static void exits_without_closing(int fd)
{
	static struct side s;

	open_all(&s, "exits");
	tell(fd);
	hear(fd);
	exit(0);
}

static void lives_on(int fd)
{
	static struct side s;

	open_all(&s, "lives");
	tell(fd);
	UNTIL(&s, s.disconnects);
}

TEST(a_process_that_exits_without_closing_leaves_no_file)
{
	int fd;
	pid_t other = other_process(exits_without_closing, &fd);

	hear(fd);
	CHECK_EQ(files(), 3); /* the server's socket and lock, the exporter's socket */
	tell(fd);
	ended_well(other);
	CHECK_EQ(files(), 0);
}

/* A forked child that exits must not remove its parent's files. */
TEST(a_child_that_exits_leaves_its_parent_s_files)
{
	static struct side s;
	struct side c = {0};

	if (!fork_among_threads())
		return;
	open_all(&s, "parent");
	CHECK_EQ(files(), 3);
	fflush(NULL);

	pid_t child = fork();

	CHECK(child >= 0);
	if (!child)
		exit(0);
	ended_well(child);
	CHECK_EQ(files(), 3);
	a_client(&c, "parent");
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	UNTIL2(&s, &c, running(&c) && s.connects);
}

TEST(files_of_a_killed_process_are_removed_by_the_next)
{
	struct doca_mmap *m;
	struct side s = {0}, c = {0};
	int fd, live_fd;
	pid_t other = other_process(exits_without_closing, &fd), living;

	hear(fd);
	killed(other);
	CHECK_EQ(files(), 3);
	living = other_process(lives_on, &live_fd);
	hear(live_fd);
	CHECK_EQ(files(), 3);
	/* Files of live processes are not removed. */
	a_server(&s, "next");
	OK(doca_ctx_start(s.ctx));
	m = exported(s.dev);
	CHECK_EQ(files(), 6);
	a_client(&c, "lives");
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	UNTIL(&c, running(&c));
	OK(doca_mmap_destroy(m));
	both_stopped(&s, &c);
	ended_well(living);
	CHECK_EQ(files(), 0);
}

/* The only server or client in the folder removes leftovers while others start and stop. */
static void starts_and_stops(int fd)
{
	char name[16];

	snprintf(name, sizeof(name), "%d", (int)getpid());
	tell(fd);
	for (int i = 0; i < repeats(200); i++) {
		struct side s = {0};

		a_server(&s, name);
		OK(doca_ctx_start(s.ctx));
		stopped(&s);
	}
}

TEST(a_server_that_starts_is_not_taken_for_a_leftover)
{
	int fds[4];
	pid_t others[4];

	for (int i = 0; i < 4; i++)
		others[i] = other_process(starts_and_stops, &fds[i]);
	for (int i = 0; i < 4; i++)
		ended_well(others[i]);
	CHECK_EQ(files(), 0);
}

static void never_progresses(int fd)
{
	static struct side s;

	a_server(&s, "busy");
	OK(doca_ctx_start(s.ctx));
	tell(fd);
	hear(fd);
}

TEST(a_client_ends_when_its_server_is_killed_while_it_connects)
{
	struct side c = {0};
	int fd;
	pid_t other = other_process(never_progresses, &fd);

	hear(fd);
	a_client(&c, "busy");
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	for (int i = 0; i < 100; i++)
		doca_pe_progress(c.pe);
	CHECK_EQ(state_of(&c), DOCA_CTX_STATE_STARTING);
	killed(other);
	UNTIL(&c, idle(&c));
	destroyed(&c);
}

static void connects(int fd)
{
	static struct side c;

	hear(fd);
	a_client(&c, "patient");
	REFUSED(doca_ctx_start(c.ctx), IN_PROGRESS);
	tell(fd);
	hear(fd);
}

TEST(a_server_hears_of_a_client_that_is_killed_while_it_connects)
{
	struct side s = {0};
	int fd;
	pid_t other = other_process(connects, &fd);

	a_server(&s, "patient");
	OK(doca_ctx_start(s.ctx));
	tell(fd);
	hear(fd);
	killed(other);
	UNTIL(&s, s.unsuccessful);
	CHECK_EQ(s.connects, 0);
	CHECK_EQ(s.disconnects, 0);
	stopped(&s);
}

TEST_MAIN(in_a_folder)
