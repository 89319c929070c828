// SPDX-License-Identifier: Apache-2.0
/* Sync events of two processes, as host and DPU: turns, deaths, altered descriptors. */
#include "sync_check.h"

#include "other_process.h"

#define ROUNDS 2000u

struct blob {
	uint64_t size;
	uint8_t bytes[1024];
};

/* An event that the other side publishes and this side waits for, or vice versa. */
static struct doca_sync_event *offered(struct doca_dev *dev, bool remote_publishes, struct blob *out)
{
	struct doca_sync_event *event;
	const uint8_t *data;
	size_t size;

	OK(doca_sync_event_create(&event));
	if (remote_publishes) {
		OK(doca_sync_event_add_publisher_location_remote_pci(event));
		OK(doca_sync_event_add_subscriber_location_cpu(event, dev));
	} else {
		OK(doca_sync_event_add_publisher_location_cpu(event, dev));
		OK(doca_sync_event_add_subscriber_location_remote_pci(event));
	}
	OK(doca_sync_event_export_to_remote_pci(event, dev, &data, &size));
	CHECK(size <= sizeof(out->bytes));
	memset(out, 0, sizeof(*out));
	out->size = size;
	memcpy(out->bytes, data, size);
	return event;
}

static struct doca_sync_event *taken(struct doca_dev *dev, const struct blob *b)
{
	struct doca_sync_event *event;

	OK(doca_sync_event_create_from_export(dev, b->bytes, b->size, &event));
	return event;
}

/* The other process: a host that exports an event and runs `act`. */
static bool remote_publishes;
static void (*act)(struct doca_sync_event *event, int fd);

static void host(int fd)
{
	struct blob b;
	char end;

	setenv("SOFTDOCA_SIDE", "host", 1);
	struct doca_dev *dev = a_dev();
	struct doca_sync_event *event = offered(dev, remote_publishes, &b);
	OK(doca_sync_event_start(event));
	say(fd, &b, sizeof(b));
	act(event, fd);
	CHECK(!hears(fd, &end, 1)); /* until the other side has closed it */
	OK(doca_sync_event_destroy(event));
	OK(doca_dev_close(dev));
}

static struct other start_host(bool publishes, void (*what)(struct doca_sync_event *, int),
			       struct blob *b)
{
	remote_publishes = publishes;
	act = what;
	struct other o = start(host);
	hear(o.fd, b, sizeof(*b));
	setenv("SOFTDOCA_SIDE", "dpu", 1);
	return o;
}

static void end_host(struct other o)
{
	int status;

	shutdown(o.fd, SHUT_WR);
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

/* ---- turns ---- */

static void answer(struct doca_sync_event *event, int fd)
{
	uint64_t before;

	(void)fd;
	for (uint64_t i = 0; i < ROUNDS; i++) {
		OK(doca_sync_event_wait_gt_yield(event, 2 * i, ALL));
		OK(doca_sync_event_update_add(event, 1, &before));
		CHECK_EQ(before, 2 * i + 1);
	}
}

TEST(two_processes_take_turns)
{
	struct blob b;
	struct other o = start_host(true, answer, &b);
	struct doca_dev *dev = a_dev();
	struct doca_sync_event *event = taken(dev, &b);

	REFUSED(doca_sync_event_add_publisher_location_remote_pci(event), NOT_PERMITTED);
	OK(doca_sync_event_start(event));
	for (uint64_t i = 0; i < ROUNDS; i++) {
		OK(doca_sync_event_update_set(event, 2 * i + 1));
		OK(doca_sync_event_wait_eq_yield(event, 2 * i + 2, ALL));
	}
	OK(doca_sync_event_destroy(event));
	end_host(o);
	OK(doca_dev_close(dev));
}

TEST(a_context_sleeps_until_the_other_process_updates)
{
	struct blob b;
	struct other o = start_host(true, answer, &b);
	struct doca_dev *dev = a_dev();
	struct events e = {0};

	as_context(&e, taken(dev, &b));
	for (uint64_t i = 0; i < ROUNDS; i++) {
		OK(doca_sync_event_update_set(e.event, 2 * i + 1));
		submit_wait_gt(&e, 2 * i + 1, i);
		while (e.done <= i)
			i % 50 ? (void)doca_pe_progress(e.pe) : sleep_once(&e);
	}
	end_context(&e);
	end_host(o);
	OK(doca_dev_close(dev));
}

static void add_many(struct doca_sync_event *event, int fd)
{
	uint64_t before;

	(void)fd;
	for (int i = 0; i < 20000; i++)
		OK(doca_sync_event_update_add(event, 1, &before));
}

TEST(additions_of_processes_are_all_counted)
{
	struct blob b;
	struct other o = start_host(true, add_many, &b);
	struct doca_dev *dev = a_dev();
	struct doca_sync_event *event = taken(dev, &b);

	OK(doca_sync_event_start(event));
	add_many(event, 0);
	OK(doca_sync_event_wait_eq_yield(event, 40000, ALL));
	OK(doca_sync_event_destroy(event));
	end_host(o);
	OK(doca_dev_close(dev));
}

/* ---- deaths ---- */

static void do_nothing(struct doca_sync_event *event, int fd)
{
	(void)event;
	(void)fd;
}

TEST(a_killed_exporter_ends_waits_and_updates)
{
	struct blob b;
	struct other o = start_host(false, do_nothing, &b);
	struct doca_dev *dev = a_dev();
	struct doca_sync_event *event = taken(dev, &b), *late;
	struct events e = {0};
	uint64_t value = 0;
	doca_error_t error;

	as_context(&e, taken(dev, &b));
	OK(doca_sync_event_start(event));
	OK(doca_sync_event_update_set(event, 5));
	submit_wait_gt(&e, 5, 1);
	kill_host(o);
	REFUSED(doca_sync_event_wait_gt(event, 5, ALL), CONNECTION_RESET);
	OK(doca_sync_event_wait_eq(event, 5, ALL)); /* which is true */
	while (!e.failed)
		sleep_once(&e);
	CHECK_EQ(e.last_error, DOCA_ERROR_CONNECTION_RESET);
	REFUSED(doca_sync_event_update_set(event, 6), CONNECTION_RESET);
	REFUSED(doca_sync_event_get(event, &value), CONNECTION_RESET);
	error = doca_sync_event_create_from_export(dev, b.bytes, b.size, &late);
	CHECK(error == DOCA_ERROR_DRIVER || error == DOCA_ERROR_INVALID_VALUE);
	OK(doca_sync_event_destroy(event));
	end_context(&e);
	OK(doca_dev_close(dev));
}

static void end_well(struct doca_sync_event *event, int fd)
{
	OK(doca_sync_event_wait_eq_yield(event, 1, ALL));
	OK(doca_sync_event_update_set(event, 2));
	OK(doca_sync_event_destroy(event));
	say(fd, "x", 1);
	exit(0);
}

TEST(an_exporter_that_ends_the_event_is_noticed)
{
	struct blob b;
	struct other o = start_host(true, end_well, &b);
	struct doca_dev *dev = a_dev();
	struct doca_sync_event *event = taken(dev, &b);
	char byte;

	OK(doca_sync_event_start(event));
	OK(doca_sync_event_update_set(event, 1));
	hear(o.fd, &byte, 1);
	OK(doca_sync_event_wait_gt(event, 1, ALL)); /* its last update counts */
	REFUSED(doca_sync_event_wait_gt(event, 2, ALL), CONNECTION_RESET);
	OK(doca_sync_event_destroy(event));
	CHECK_EQ(waitpid(o.pid, NULL, 0), o.pid);
	close(o.fd);
	OK(doca_dev_close(dev));
}

/* The importer dies while the exporter waits for it. */
static void wait_for_the_importer(int fd)
{
	struct blob b;
	char byte;

	hear(fd, &b, sizeof(b));
	setenv("SOFTDOCA_SIDE", "dpu", 1);
	struct doca_dev *dev = a_dev();
	struct doca_sync_event *event = taken(dev, &b);
	OK(doca_sync_event_start(event));
	OK(doca_sync_event_update_set(event, 1));
	say(fd, "x", 1);
	hears(fd, &byte, 1);
	pause();
}

TEST(a_killed_importer_ends_its_exporter_s_waits)
{
	struct other o = start(wait_for_the_importer);
	struct blob b;
	struct events e = {0};
	char byte;

	setenv("SOFTDOCA_SIDE", "host", 1);
	struct doca_dev *dev = a_dev();
	struct doca_sync_event *event = offered(dev, true, &b);
	as_context(&e, event);
	say(o.fd, &b, sizeof(b));
	hear(o.fd, &byte, 1);
	OK(doca_sync_event_wait_gt(event, 0, ALL));
	submit_wait_gt(&e, 1, 1);
	kill_host(o);
	REFUSED(doca_sync_event_wait_gt(event, 1, ALL), CONNECTION_RESET);
	while (!e.failed)
		sleep_once(&e);
	CHECK_EQ(e.last_error, DOCA_ERROR_CONNECTION_RESET);
	end_context(&e);
	OK(doca_dev_close(dev));
}

TEST(an_importer_that_leaves_well_does_not_end_waits)
{
	struct blob b;
	struct events e = {0};
	struct doca_dev *dev = a_dev();
	struct doca_sync_event *event = offered(dev, true, &b);

	as_context(&e, event);
	for (int i = 0; i < 3; i++) { /* from this process itself */
		struct doca_sync_event *mine = taken(dev, &b);

		OK(doca_sync_event_start(mine));
		OK(doca_sync_event_update_set(mine, 1));
		OK(doca_sync_event_destroy(mine));
	}
	submit_wait_gt(&e, 1, 1);
	for (int i = 0; i < 10; i++) {
		usleep(1000);
		CHECK_EQ(doca_pe_progress(e.pe), 0);
	}
	struct doca_sync_event *last = taken(dev, &b);
	OK(doca_sync_event_start(last));
	OK(doca_sync_event_update_set(last, 2));
	CHECK_EQ(doca_pe_progress(e.pe), 1);
	CHECK_EQ(e.done, 1);
	/* The exporter ends first. */
	end_context(&e);
	REFUSED(doca_sync_event_update_set(last, 3), CONNECTION_RESET);
	REFUSED(doca_sync_event_wait_gt(last, 0, ALL), CONNECTION_RESET);
	OK(doca_sync_event_destroy(last));
	OK(doca_dev_close(dev));
}

/* ---- descriptors ---- */

TEST(altered_descriptors_open_nothing)
{
	struct doca_dev *dev = a_dev();
	struct blob b, altered;
	struct doca_sync_event *event = offered(dev, false, &b), *out;
	struct doca_sync_event_remote_net *net;
	uint64_t other[2] = {0}; /* not the size of an event */
	struct doca_mmap *m = a_started_map(dev, other, sizeof(other), READ_WRITE | PCI_RW);
	const void *desc;
	size_t n;

	for (size_t i = 0; i < b.size; i++) {
		altered = b;
		altered.bytes[i] ^= 0x41;
		doca_error_t error = doca_sync_event_create_from_export(dev, altered.bytes, b.size,
									&out);
		if (error == DOCA_SUCCESS) /* the byte has no effect */
			OK(doca_sync_event_destroy(out));
	}
	for (size_t size = 0; size < b.size; size++)
		REFUSED(doca_sync_event_create_from_export(dev, b.bytes, size, &out), INVALID_VALUE);
	OK(doca_mmap_export_pci(m, dev, &desc, &n));
	REFUSED(doca_sync_event_create_from_export(dev, desc, n, &out), INVALID_VALUE);
	/* A map's descriptor behind the header of an event's. */
	const size_t head = 16, of_map = 40;
	memcpy(altered.bytes, b.bytes, head);
	memcpy(altered.bytes + head, (const uint8_t *)desc + of_map, n - of_map);
	uint16_t length = (uint16_t)(head + n - of_map);
	memcpy(altered.bytes + 10, &length, sizeof(length));
	REFUSED(doca_sync_event_create_from_export(dev, altered.bytes, length, &out),
		INVALID_VALUE);
	REFUSED(doca_sync_event_remote_net_create_from_export(dev, b.bytes, b.size, &net),
		INVALID_VALUE); /* a descriptor of the other kind */
	OK(doca_sync_event_destroy(event));
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
}

TEST(exports_need_their_location_and_device)
{
	struct doca_dev *dev = a_dev();
	struct doca_sync_event *event = an_event(dev);
	_Alignas(8) uint64_t own = 0;
	struct blob b;
	const uint8_t *data, *again;
	size_t n;

	REFUSED(doca_sync_event_export_to_remote_pci(event, dev, &data, &n), NOT_SUPPORTED);
	REFUSED(doca_sync_event_export_to_remote_net(event, &data, &n), NOT_SUPPORTED);
	OK(doca_sync_event_destroy(event));
	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_remote_pci(event));
	REFUSED(doca_sync_event_export_to_remote_pci(event, dev, &data, &n), BAD_STATE);
	OK(doca_sync_event_add_subscriber_location_cpu(event, dev));
	OK(doca_sync_event_set_addr(event, &own));
	REFUSED(doca_sync_event_export_to_remote_pci(event, dev, &data, &n), NOT_SUPPORTED);
	REFUSED(doca_sync_event_start(event), NOT_SUPPORTED);
	OK(doca_sync_event_destroy(event));
	event = offered(dev, true, &b);
	OK(doca_sync_event_export_to_remote_pci(event, dev, &data, &n));
	OK(doca_sync_event_export_to_remote_pci(event, dev, &again, &n));
	CHECK(data == again && n == b.size);
	struct doca_sync_event *out = taken(dev, &b);
	REFUSED(doca_sync_event_export_to_remote_pci(out, dev, &data, &n), NOT_SUPPORTED);
	OK(doca_sync_event_destroy(out));
	OK(doca_sync_event_destroy(event));
	OK(doca_dev_close(dev));
}

TEST(a_remote_net_handle_is_made_and_destroyed)
{
	struct doca_dev *dev = a_dev();
	struct doca_sync_event_remote_net *net;
	struct doca_sync_event *event;
	const uint8_t *data;
	uint64_t handle;
	size_t n;

	OK(doca_sync_event_create(&event));
	OK(doca_sync_event_add_publisher_location_remote_net(event));
	OK(doca_sync_event_add_subscriber_location_cpu(event, dev));
	OK(doca_sync_event_start(event));
	OK(doca_sync_event_export_to_remote_net(event, &data, &n));
	OK(doca_sync_event_remote_net_create_from_export(dev, data, n, &net));
	REFUSED(doca_sync_event_remote_net_get_dpa_handle(net, (void *)dev, &handle),
		NOT_SUPPORTED);
	REFUSED(doca_sync_event_remote_net_get_gpu_handle(net, (void *)dev, &handle),
		NOT_SUPPORTED);
	OK(doca_sync_event_remote_net_destroy(net));
	OK(doca_sync_event_destroy(event));
	OK(doca_dev_close(dev));
}

TEST_MAIN(run_tests)
