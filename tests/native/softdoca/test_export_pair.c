// SPDX-License-Identifier: Apache-2.0
/* A host exports and a DPU imports, in separate processes. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "export_check.h"

struct other {
	pid_t pid;
	int fd;
};

/* Commands to the exporter. */
enum word { STOP_MAP = 1, LOOK, END };

struct offer {
	struct desc desc;
	uint8_t *at;
};

static void say(int fd, const void *what, size_t n)
{
	CHECK_EQ(send(fd, what, n, MSG_NOSIGNAL), (ssize_t)n);
}

static void hear(int fd, void *what, size_t n)
{
	CHECK_EQ(recv(fd, what, n, MSG_WAITALL), (ssize_t)n);
}

static enum word heard(int fd)
{
	enum word w;

	hear(fd, &w, sizeof(w));
	return w;
}

static void tell(int fd, enum word w)
{
	say(fd, &w, sizeof(w));
}

/* A host: exports SIZE bytes, and executes commands. */
static void host_side(int fd)
{
	struct offer offer = {.at = pages(SIZE)};
	struct doca_dev *dev = a_dev();
	struct doca_mmap *m = a_started_map(dev, offer.at, SIZE, READ_WRITE | PCI_RW);

	fill(offer.at, SIZE, 1);
	offer.desc = exported(m, dev);
	say(fd, &offer, sizeof(offer));
	for (enum word w; (w = heard(fd)) != END; tell(fd, w)) {
		if (w == STOP_MAP)
			OK(doca_mmap_stop(m));
		else if (w == LOOK)
			say(fd, offer.at, SIZE);
	}
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
}

static struct other start_host(void)
{
	struct other o;
	int fds[2];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	o.pid = fork();
	CHECK(o.pid >= 0);
	if (!o.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		alarm(CHECK_SECONDS);
		host_side(fds[1]);
		exit(0);
	}
	close(fds[1]);
	o.fd = fds[0];
	return o;
}

static void end_host(struct other o)
{
	int status;

	tell(o.fd, END);
	CHECK_EQ(waitpid(o.pid, &status, 0), o.pid);
	CHECK_EQ(status, 0);
	close(o.fd);
}

static void kill_host(struct other o)
{
	CHECK_EQ(kill(o.pid, SIGKILL), 0);
	CHECK_EQ(waitpid(o.pid, NULL, 0), o.pid);
	close(o.fd);
}

/* A rig whose source or target is the host's memory, at the host's own addresses. */
static void dpu_reads(struct rig *r, const struct offer *offer)
{
	rig_open(r, SIZE, 8);
	OK(doca_mmap_destroy(r->from_map));
	munmap(r->from, SIZE);
	r->from_map = imported(&offer->desc, r->dev);
	r->from = offer->at;
}

static void dpu_writes(struct rig *r, const struct offer *offer)
{
	rig_open(r, SIZE, 8);
	OK(doca_mmap_destroy(r->to_map));
	munmap(r->to, SIZE);
	r->to_map = imported(&offer->desc, r->dev);
	r->to = offer->at;
}

/* Like rig_close; none of these addresses is mapped here, so nothing is unmapped. */
static void dpu_ends(struct rig *r, const struct offer *offer)
{
	if (r->from == offer->at)
		r->from = pages(SIZE);
	else
		r->to = pages(SIZE);
	rig_close(r);
}

static void read_and_write(const char *share)
{
	static uint8_t want[SIZE], seen[SIZE];
	struct other host;
	struct offer offer;
	struct rig r;

	setenv("SOFTDOCA_SHARE_PROCESS", share, 1);
	host = start_host();
	hear(host.fd, &offer, sizeof(offer));
	fill(want, SIZE, 1);
	dpu_reads(&r, &offer);
	OK(copied_at(&r, 100, 7, 50));
	CHECK(!memcmp(r.to + 7, want + 100, 50));
	OK(copied_at(&r, 0, 0, SIZE));
	CHECK(!memcmp(r.to, want, SIZE));
	dpu_ends(&r, &offer);

	dpu_writes(&r, &offer);
	fill(r.from, SIZE, 9);
	OK(copied_at(&r, 0, 0, SIZE));
	tell(host.fd, LOOK);
	hear(host.fd, seen, SIZE);
	CHECK_EQ(heard(host.fd), LOOK);
	CHECK(!memcmp(seen, r.from, SIZE));
	dpu_ends(&r, &offer);
	end_host(host);
}

TEST(bytes_of_another_process_are_read_and_written_at_its_addresses)
{
	read_and_write("0");
}

/* Uses process_vm_readv if the system permits it; otherwise as above. */
TEST(a_process_that_shares_itself_is_read_and_written_too)
{
	read_and_write("1");
}

TEST(an_exporter_that_was_killed_ends_copies_as_io_failed)
{
	struct other host = start_host();
	struct offer offer;
	struct rig r;

	hear(host.fd, &offer, sizeof(offer));
	dpu_reads(&r, &offer);
	OK(copied_at(&r, 0, 0, SIZE));
	kill_host(host);
	REFUSED(copied_at(&r, 0, 0, SIZE), IO_FAILED);
	run_until_idle(&r);
	REFUSED(import_error(offer.desc.bytes, offer.desc.len, r.dev), DRIVER);
	dpu_ends(&r, &offer);
}

TEST(an_exporter_that_is_killed_meanwhile_hangs_nobody)
{
	for (int round = 0; round < 20; round++) {
		struct other host = start_host();
		struct doca_buf *src[8], *dst[8];
		struct offer offer;
		struct rig r;

		hear(host.fd, &offer, sizeof(offer));
		dpu_reads(&r, &offer);
		for (unsigned i = 0; i < 8; i++) {
			src[i] = source(&r, 0, SIZE);
			dst[i] = target(&r, 0, SIZE);
			OK(doca_task_submit(a_task(&r, src[i], dst[i], i)));
			if (i == (unsigned)round % 8)
				kill_host(host);
		}
		run_until(&r, 8);
		for (unsigned i = 0; i < 8; i++) {
			drop(src[i]);
			drop(dst[i]);
		}
		dpu_ends(&r, &offer);
	}
}

TEST(a_map_that_its_exporter_stopped_gives_io_failed)
{
	struct other host = start_host();
	struct offer offer;
	struct rig r;

	hear(host.fd, &offer, sizeof(offer));
	dpu_reads(&r, &offer);
	OK(copied_at(&r, 0, 0, 64));
	tell(host.fd, STOP_MAP);
	CHECK_EQ(heard(host.fd), STOP_MAP);
	REFUSED(copied_at(&r, 0, 0, 64), IO_FAILED);
	run_until_idle(&r);
	dpu_ends(&r, &offer);
	end_host(host);
}

TEST_MAIN(run_tests)
