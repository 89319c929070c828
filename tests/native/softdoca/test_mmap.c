// SPDX-License-Identifier: Apache-2.0
/* Memory maps: their properties, their states, and what each function refuses; invalid handles are
 * in test_object.c. */
#include "memory_check.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

static char bytes[8192];
static struct doca_dev *dev;
static void *out;
static size_t len;
static uint32_t number;
static uint8_t flag;
static union doca_data data;

TEST(a_map_says_what_it_was_given)
{
	struct doca_mmap *m;

	OK(doca_mmap_create(&m));
	REFUSED(doca_mmap_get_memrange(m, &out, &len), BAD_STATE);
	OK(doca_mmap_get_user_data(m, &data));
	CHECK_EQ(data.u64, 0);
	OK(doca_mmap_set_user_data(m, (union doca_data){.u64 = 42}));
	OK(doca_mmap_get_user_data(m, &data));
	CHECK_EQ(data.u64, 42);
	OK(doca_mmap_set_memrange(m, bytes + 1, 100));
	OK(doca_mmap_get_memrange(m, &out, &len));
	CHECK(out == bytes + 1);
	CHECK_EQ(len, 100);
	OK(doca_mmap_get_max_num_devices(m, &number));
	CHECK(number >= 1);
	OK(doca_mmap_set_max_num_devices(m, 1));
	OK(doca_mmap_get_max_num_devices(m, &number));
	CHECK_EQ(number, 1);
	OK(doca_mmap_get_from_export(m, &flag));
	CHECK_EQ(flag, 0);
	CHECK_EQ(bufs_of(m), 0);
	OK(doca_mmap_destroy(m));
}

TEST(programs_set_the_same_range_again)
{
	struct doca_mmap *m;

	OK(doca_mmap_create(&m));
	OK(doca_mmap_set_memrange(m, bytes, 100));
	OK(doca_mmap_set_memrange(m, bytes, 100));
	REFUSED(doca_mmap_set_memrange(m, bytes, 99), NOT_PERMITTED);
	OK(doca_mmap_destroy(m));
}

TEST(memory_that_is_not_there_is_refused_at_start)
{
	struct doca_dev *d = a_dev();
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *at = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct doca_mmap *whole, *reader;

	CHECK(at != MAP_FAILED);
	/* A hole could be filled by a sanitizer's own allocations, so protect the page instead. */
	CHECK_EQ(mprotect(at + page, page, PROT_NONE), 0);
	CHECK_EQ(mprotect(at + 3 * page, page, PROT_READ), 0);
	whole = a_map(d, at, 3 * page, READ_WRITE);
	REFUSED(doca_mmap_start(whole), DRIVER);
	reader = a_map(d, at + 2 * page, 2 * page, READ_WRITE);
	REFUSED(doca_mmap_start(reader), DRIVER); /* the last page cannot be written */
	OK(doca_mmap_set_permissions(reader, PCI_RO));
	OK(doca_mmap_start(reader)); /* the cause of the failure was removed */
	OK(doca_mmap_destroy(reader));
	OK(doca_mmap_destroy(whole));
	whole = a_map(d, (void *)(uintptr_t)page, (size_t)1 << 46, READ_WRITE);
	REFUSED(doca_mmap_start(whole), DRIVER);
	OK(doca_mmap_destroy(whole));
	OK(doca_dev_close(d));
}

TEST(a_stopped_map_changes_but_for_its_number_of_devices)
{
	struct doca_dev *d = a_dev();
	struct doca_mmap *m = a_started_map(d, bytes, sizeof bytes, READ_WRITE);

	OK(doca_mmap_stop(m));
	OK(doca_mmap_stop(m));
	OK(doca_mmap_set_permissions(m, 0));
	OK(doca_mmap_set_user_data(m, data));
	REFUSED(doca_mmap_set_max_num_devices(m, 2),
		NOT_PERMITTED); /* before the first start only */
	OK(doca_mmap_rm_dev(m, d));
	OK(doca_mmap_add_dev(m, d));
	OK(doca_mmap_start(m));
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(d));
}

TEST(more_devices_than_a_map_may_have_are_refused)
{
	static const char *three = "side=host pci=0000:03:00.0 ibdev=a\n"
				   "side=host pci=0000:04:00.0 ibdev=b\n"
				   "side=host pci=0000:05:00.0 ibdev=c\n";
	char path[] = "/tmp/softdoca-devices-XXXXXX";
	int fd = mkstemp(path);
	struct doca_devinfo **list;
	struct doca_dev *devs[3];
	struct doca_mmap *m = a_map(NULL, bytes, sizeof bytes, READ_WRITE);

	CHECK_EQ(write(fd, three, strlen(three)), (ssize_t)strlen(three));
	close(fd);
	setenv("SOFTDOCA_DEVICES", path, 1);
	OK(doca_devinfo_create_list(&list, &number));
	unlink(path);
	CHECK_EQ(number, 3);
	for (int i = 0; i < 3; i++)
		OK(doca_dev_open(list[i], &devs[i]));
	OK(doca_mmap_set_max_num_devices(m, 2));
	OK(doca_mmap_add_dev(m, devs[0]));
	OK(doca_mmap_add_dev(m, devs[1]));
	REFUSED(doca_mmap_set_max_num_devices(m, 1), INVALID_VALUE);
	REFUSED(doca_mmap_add_dev(m, devs[2]), NO_MEMORY);
	OK(doca_mmap_start(m));
	OK(doca_mmap_destroy(m));
	for (int i = 0; i < 3; i++)
		OK(doca_dev_close(devs[i]));
	OK(doca_devinfo_destroy_list(list));
}

TEST(a_device_stays_open_while_a_map_has_it)
{
	struct doca_dev *d = a_dev();
	struct doca_mmap *m = a_map(d, bytes, sizeof bytes, READ_WRITE);

	REFUSED(doca_dev_close(d), IN_USE);
	OK(doca_mmap_rm_dev(m, d));
	OK(doca_mmap_add_dev(m, d));
	OK(doca_mmap_start(m));
	REFUSED(doca_dev_close(d), IN_USE);
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(d));
}

TEST(an_exported_map_is_stopped_and_destroyed)
{
	struct doca_dev *d = a_dev();
	struct doca_mmap *m = a_started_map(d, bytes, sizeof bytes, READ_WRITE | PCI_RW);

	OK(doca_mmap_export_pci(m, d, (const void **)&out, &len));
	OK(doca_mmap_stop(m));
	OK(doca_mmap_get_exported(m, &flag));
	CHECK_EQ(flag, 0);
	OK(doca_mmap_start(m));
	OK(doca_mmap_export_pci(m, d, (const void **)&out, &len));
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(d));
}

struct freed {
	void *addr;
	size_t len;
	int times;
};

static void note_free(void *addr, size_t n, void *opaque)
{
	struct freed *f = opaque;

	f->addr = addr;
	f->len = n;
	f->times++;
}

TEST(the_free_callback_comes_at_destroy_of_what_was_started)
{
	struct freed f = {0};
	struct doca_mmap *m = a_map(NULL, bytes, 100, READ_WRITE);

	OK(doca_mmap_set_free_cb(m, note_free, &f));
	OK(doca_mmap_start(m));
	OK(doca_mmap_stop(m));
	CHECK_EQ(f.times, 0);
	OK(doca_mmap_destroy(m));
	CHECK_EQ(f.times, 1);
	CHECK(f.addr == bytes);
	CHECK_EQ(f.len, 100);

	m = a_map(NULL, bytes, 100, READ_WRITE);
	OK(doca_mmap_set_free_cb(m, note_free, &f));
	OK(doca_mmap_destroy(m)); /* never started */
	CHECK_EQ(f.times, 1);

	m = a_map(NULL, bytes, 100, READ_WRITE);
	OK(doca_mmap_set_free_cb(m, note_free, &f));
	OK(doca_mmap_set_free_cb(m, NULL, NULL)); /* taken away */
	OK(doca_mmap_start(m));
	OK(doca_mmap_destroy(m));
	CHECK_EQ(f.times, 1);
}

/* Run by a thread repeatedly, so that ThreadSanitizer detects what is not guarded. */
static void *turn(void *arg)
{
	struct doca_mmap *m = arg;
	const void *desc;
	size_t n;

	for (int i = 0; i < repeats(200); i++) {
		doca_error_t e = doca_mmap_start(m);

		CHECK(e == DOCA_SUCCESS || e == DOCA_ERROR_BAD_STATE);
		e = doca_mmap_export_pci(m, dev, &desc, &n);
		CHECK(e == DOCA_SUCCESS || e == DOCA_ERROR_NOT_PERMITTED ||
		      e == DOCA_ERROR_NOT_FOUND);
		e = doca_mmap_stop(m);
		CHECK_EQ(e, DOCA_SUCCESS);
		e = doca_mmap_rm_dev(m, dev);
		CHECK(e == DOCA_SUCCESS || e == DOCA_ERROR_NOT_FOUND ||
		      e == DOCA_ERROR_NOT_PERMITTED);
		e = doca_mmap_add_dev(m, dev);
		CHECK(e == DOCA_SUCCESS || e == DOCA_ERROR_ALREADY_EXIST ||
		      e == DOCA_ERROR_NOT_PERMITTED);
	}
	return NULL;
}

TEST(threads_may_share_a_map_that_was_made_safe)
{
	pthread_t threads[4];
	struct doca_mmap *m;

	dev = a_dev();
	m = a_map(dev, bytes, sizeof bytes, READ_WRITE | PCI_RW);
	OK(doca_mmap_enable_thread_safety(m));
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, turn, m), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev)); /* no use of it was lost or counted twice */
}

static void export_one(struct doca_dev *d)
{
	struct doca_mmap *m = a_started_map(d, bytes, sizeof bytes, READ_WRITE | PCI_RW);

	OK(doca_mmap_export_pci(m, d, (const void **)&out, &len));
	OK(doca_mmap_destroy(m));
}

TEST(hundreds_of_maps_leave_nothing_behind)
{
	struct doca_dev *d = a_dev();

	export_one(d); /* which opens what stays open */
	int before = open_fds();
	for (int i = 0; i < repeats(300); i++)
		export_one(d);
	/* The share server's thread has some fds open now and then. */
	for (time_t end = time(NULL) + 10; open_fds() > before;)
		CHECK(time(NULL) < end);
	OK(doca_dev_close(d));
}

TEST_MAIN(run_tests)
