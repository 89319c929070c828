/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider cuda together with other threads, forks, other devices, and exporters that give
 * false information.
 */
#include <pthread.h>
#include <sys/un.h>

#include "share/descriptor.h"
#include "share/server.h"
#include "providers/cuda_api.h"
#include "queue.h"
#include "two_sides.h"

enum { SIZE = 1 << 20 };

static bool readable(int fd, int timeout_ms)
{
	struct pollfd p = { fd, POLLIN, 0 };

	return poll(&p, 1, timeout_ms) == 1;
}

/* A queue over GPU memory of this process. */
static void gpu_fix(struct fix *f, const char *knobs)
{
	provider = "cuda";
	gpu_knobs("");
	fix_open(f, SIZE, 64);
	gpu_knobs(knobs);
}

TEST(what_is_posted_to_an_armed_queue_wakes_its_sleeper)
{
	struct fix f;
	dg_wc wc[2];
	dg_wr wr;
	uint8_t *more;
	dg_region *source, *host;

	gpu_fix(&f, "copy_us=1000");
	more = pages(4096);
	source = registered(f.dev, more, 4096, RW);
	host = imported(f.dev, source, RW);
	for (int i = 0; i < 4; i++) {
		wr = record(&f, DG_WRITE, 4096, 0, 0);
		if (i % 2) /* copied by the CPU */
			wr.remote = id_of(host);
		CHECK_EQ(dg_queue_arm(f.q), 1);
		CHECK_EQ(dg_queue_post(f.q, &wr, 1), 0);
		CHECK(readable(dg_queue_fileno(f.q), 10000));
		CHECK_EQ(dg_queue_poll(f.q, wc, 2, 10 * SECOND), 1);
		CHECK_EQ(wc[0].status, DG_OK);
	}
	CHECK_EQ(dg_region_close(host, PATIENCE), 0);
	CHECK_EQ(dg_region_close(source, PATIENCE), 0);
	fix_close(&f);
	CHECK_EQ(munmap(more, 4096), 0);
}

/* If the driver refuses the call that wakes a sleeper, the share server's thread wakes it. */
TEST(a_sleeper_that_the_driver_does_not_wake_is_woken)
{
	dg_wc wc[2];
	dg_wr wr;

	FIXTURE(fix, f, gpu_fix, "cuLaunchHostFunc=801,cuStreamWaitValue32=801,copy_us=30000");
	wr = record(&f, DG_WRITE, 40000, 0, 0);
	CHECK_EQ(dg_queue_post(f.q, &wr, 1), 0);
	if (dg_queue_arm(f.q) == 1)
		CHECK(readable(dg_queue_fileno(f.q), 10000));
	CHECK_EQ(dg_queue_poll(f.q, wc, 2, 0), 1);
}

/* The child has a copy of the queue's memory. Polling it must not change anything shared with the
 * parent. */
TEST(a_forked_child_that_polls_changes_nothing)
{
	dg_wc wc[2];
	dg_wr wr;
	int status;
	pid_t pid;

	FIXTURE(fix, f, gpu_fix, "copy_us=300000");
	wr = record(&f, DG_WRITE, 40000, 0, 0);
	CHECK_EQ(dg_queue_post(f.q, &wr, 1), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		_exit(dg_queue_poll(f.q, wc, 2, SECOND / 10) > 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status & ~0xff00, 0); /* no signal */
	CHECK_EQ(status, 0);
	CHECK_EQ(dg_queue_poll(f.q, wc, 2, 10 * SECOND), 1);
	CHECK_EQ(wc[0].status, DG_OK);
}

/* A caller that stays inside a queue for a long time, while a region of the device is closed. */
static void *measure(void *arg)
{
	struct fix *f = arg;
	dg_wr wr = record(f, DG_WRITE, 40000, 0, 0);
	uint64_t samples[60];
	dg_prep *p;

	CHECK_EQ(dg_prep_open(f->q, &wr, 1, &p), 0);
	CHECK_EQ(dg_measure_bare(p, 60, 1, samples), 60);
	CHECK_EQ(dg_prep_close(p), 0);
	return NULL;
}

static void *close_slowly(void *arg)
{
	CHECK_EQ(dg_region_close(arg, SECOND), -EBUSY);
	CHECK_EQ(dg_region_close(arg, 60 * SECOND), 0);
	return NULL;
}

/* The region is closed between two measurements: its memory may be freed before the second. */
TEST(no_floor_is_measured_over_a_region_that_was_closed)
{
	uint64_t samples[2];
	dg_prep *p;
	dg_wr wr;

	FIXTURE(fix, f, gpu_fix, "");
	wr = record(&f, DG_WRITE, 64, 0, 0);
	CHECK_EQ(dg_prep_open(f.q, &wr, 1, &p), 0);
	CHECK_EQ(dg_measure_bare(p, 2, 1, samples), 2);
	CHECK_EQ(dg_region_close(f.remote, PATIENCE), 0);
	CHECK_EQ(dg_measure_bare(p, 2, 1, samples), -ESTALE);
	CHECK_EQ(dg_prep_close(p), 0);
}

static int connect_to_exporter(dg_region *r)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	struct dg_descriptor d;
	struct token t = export_of(r, RW);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	CHECK_EQ(dg_descriptor_parse(t.bytes, (size_t)t.len, &d), 0);
	memcpy(a.sun_path, d.path, sizeof(a.sun_path));
	CHECK_EQ(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

TEST(the_share_server_answers_while_a_region_is_being_closed)
{
	struct dg_share_request ask = { .magic = SHARE_MAGIC, .version = SHARE_VERSION, .kind = SHARE_GET };
	struct dg_share_reply answer;
	pthread_t measures, closes;
	int server;

	FIXTURE(fix, f, gpu_fix, "copy_us=50000");
	server = connect_to_exporter(f.source);
	CHECK_EQ(pthread_create(&measures, NULL, measure, &f), 0);
	while (!atomic_load(&region_entry_at(REGION_INDEX(f.r))->gate->posted))
		; /* the measuring thread has not started yet */
	CHECK_EQ(pthread_create(&closes, NULL, close_slowly, registered(f.dev, f.local_bytes, 4096, RW)), 0);
	for (int i = 0; i < 40; i++) { /* longer than the polling interval of the share server's thread */
		uint64_t before = dg_now_ns();

		CHECK_EQ(send(server, &ask, sizeof(ask), 0), (ssize_t)sizeof(ask));
		CHECK(readable(server, 400));
		CHECK_EQ(recv(server, &answer, sizeof(answer), 0), (ssize_t)sizeof(answer));
		CHECK_EQ(answer.status, DG_REMOTE_ACCESS_ERROR);
		while (dg_now_ns() < before + 5 * MS)
			;
	}
	pthread_join(closes, NULL);
	pthread_join(measures, NULL);
	close(server);
}

static bool context_lives(int gpu)
{
	unsigned int flags;
	int lives;

	DRIVER("cuDevicePrimaryCtxGetState", (int, unsigned int *, int *), gpu, &flags, &lives);
	return lives;
}

/* A registration ends with the context that created it. */
TEST(pinned_memory_keeps_the_context_that_pinned_it)
{
	dg_device_config first = { .gpu = 0 }, second = { .gpu = 1 };
	dg_device *a, *b;
	uint8_t *at = pages(4096);

	gpu_knobs("gpus=2");
	CHECK_EQ(dg_device_open("cuda", &first, &a), 0);
	CHECK_EQ(dg_device_open("cuda", &second, &b), 0);
	registered(a, at, 4096, RW);
	registered(b, at, 4096, RW);
	CHECK_EQ(gpu_calls("cuMemHostRegister"), 1);
	CHECK_EQ(dg_device_close(a, PATIENCE), 0);
	CHECK(context_lives(0));
	CHECK_EQ(gpu_calls("cuMemHostUnregister"), 0);
	CHECK_EQ(dg_device_close(b, PATIENCE), 0);
	CHECK_EQ(gpu_calls("cuMemHostUnregister"), 1);
	CHECK(!context_lives(0) && !context_lives(1));
	CHECK_EQ(munmap(at, 4096), 0);
}

/* A read-only view may be part of writable memory that is registered later. */
TEST(a_read_only_view_is_pinned_as_what_it_lies_in)
{
	struct fix f;
	unsigned int flags = 0;
	uint8_t *at = pages(8192);
	dg_memory view = { .addr = at, .size = 4096, .fd = -1, .flags = DG_MEMORY_READONLY };
	dg_region *r;

	gpu_fix(&f, "");
	CHECK_EQ(dg_region_register(f.dev, &view, DG_ACCESS_READ, &r), 0);
	registered(f.dev, at, 4096, RW);
	gpu_context();
	DRIVER("cuMemHostGetFlags", (unsigned int *, void *), &flags, at);
	CHECK(!(flags & CU_MEMHOSTREGISTER_READ_ONLY));
	/* Pages that are mapped read-only are registered as read-only. */
	CHECK_EQ(mprotect(at + 4096, 4096, PROT_READ), 0);
	view.addr = at + 4096;
	CHECK_EQ(dg_region_register(f.dev, &view, DG_ACCESS_READ, &r), 0);
	DRIVER("cuMemHostGetFlags", (unsigned int *, void *), &flags, at + 4096);
	CHECK(flags & CU_MEMHOSTREGISTER_READ_ONLY);
	fix_close(&f);
	CHECK_EQ(munmap(at, 8192), 0);
}

/* Exports 64 KiB as 1 GiB. */
static void export_oversized(int fd)
{
	dg_memory m = { .size = 1u << 30, .fd = -1, .block = 1u << 30, .kind = DG_KIND_CUDA_IPC };
	struct token t;
	dg_device *dev;
	dg_region *r;
	char byte;

	provider = "soft";
	dev = device_spinning(0);
	m.addr = gpu_pages(65536);
	gpu_uuid(m.uuid);
	DRIVER("cuIpcGetMemHandle", (void *, unsigned long long), m.handle,
	       (unsigned long long)(uintptr_t)m.addr);
	CHECK_EQ(dg_region_register(dev, &m, RW, &r), 0);
	t = export_of(r, RW);
	say(fd, &t, sizeof(t));
	while (hears(fd, &byte, 1))
		;
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

TEST(a_block_smaller_than_its_exporter_says_is_refused)
{
	struct other o = start(export_oversized);
	struct token t;
	dg_device *dev;
	dg_region *r;

	hear(o.fd, &t, sizeof(t));
	provider = "cuda";
	dev = device_spinning(0);
	CHECK_EQ(dg_region_import(dev, t.bytes, (size_t)t.len, 10 * SECOND, &r), -EBADMSG);
	CHECK_EQ(gpu_calls("cuIpcCloseMemHandle"), gpu_calls("cuIpcOpenMemHandle"));
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	shutdown(o.fd, SHUT_WR);
	join(o);
}

/* Opening, closing and exporting in threads, while the share server's thread polls queues. */
static atomic_bool enough;

static void *open_and_close(void *arg)
{
	(void)arg;
	while (!atomic_load(&enough)) {
		dg_device *dev;

		CHECK_EQ(dg_device_open("cuda", NULL, &dev), 0);
		CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	}
	return NULL;
}

TEST(the_share_server_stops_while_devices_open_and_close)
{
	pthread_t threads[2];
	uint8_t bytes[64];
	uint64_t end;

	provider = "cuda";
	gpu_knobs("");
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, open_and_close, NULL), 0);
	end = dg_now_ns() + 2 * SECOND;
	while (dg_now_ns() < end) {
		dg_device *dev;

		CHECK_EQ(dg_device_open("soft", NULL, &dev), 0);
		export_of(registered(dev, bytes, sizeof(bytes), RW), RW);
		CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
	}
	atomic_store(&enough, true);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
	provider = "cuda";
	if (dg_provider_probe("cuda", false))
		return CHECK_SKIPPED;
	return run_with_own_folder(argc, argv);
}
