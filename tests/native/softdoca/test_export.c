// SPDX-License-Identifier: Apache-2.0
/* Exports of maps and their imports within one process, and what is refused. */
#include "export_check.h"

TEST(an_export_is_imported_by_its_own_process)
{
	union doca_data data = {.u64 = 7}, back;
	struct doca_mmap *m, *own;
	struct desc d;
	void *at;
	size_t len;
	uint8_t flag;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	own = a_started_map(r.dev, r.from, SIZE, READ_WRITE | PCI_RW);
	d = exported(own, r.dev);
	OK(doca_mmap_get_exported(own, &flag));
	CHECK_EQ(flag, 1);
	OK(doca_mmap_create_from_export(&data, d.bytes, d.len, r.dev, &m));
	OK(doca_mmap_get_user_data(m, &back));
	CHECK_EQ(back.u64, 7);
	OK(doca_mmap_get_from_export(m, &flag));
	CHECK_EQ(flag, 1);
	OK(doca_mmap_get_exported(m, &flag));
	CHECK_EQ(flag, 0);
	OK(doca_mmap_get_memrange(m, &at, &len));
	CHECK(at == r.from);
	CHECK_EQ(len, SIZE);
	OK(doca_mmap_destroy(r.from_map));
	r.from_map = m; /* the rig's source is now the import */
	fill(r.from, SIZE, 3);
	OK(copied_at(&r, 5, 9, 1000));
	CHECK(!memcmp(r.from + 5, r.to + 9, 1000));
	OK(copied_at(&r, 0, 0, SIZE));
	CHECK(!memcmp(r.from, r.to, SIZE));
	OK(doca_mmap_destroy(own));
}

TEST(the_same_descriptor_comes_each_time)
{
	struct doca_dev *dev = a_dev();
	struct doca_mmap *m;
	static char bytes[64];
	const void *one, *two, *rdma;
	size_t len;

	m = a_started_map(dev, bytes, sizeof(bytes),
			  READ_WRITE | PCI_RW | DOCA_ACCESS_FLAG_RDMA_READ);
	OK(doca_mmap_export_pci(m, dev, &one, &len));
	OK(doca_mmap_export_rdma(m, dev, &rdma, &len));
	OK(doca_mmap_export_pci(m, dev, &two, &len));
	CHECK(one == two);
	CHECK(one != rdma);
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
}

TEST(what_may_not_be_exported_is_refused)
{
	static const struct {
		uint32_t permissions;
		doca_error_t pci, rdma;
	} cases[] = {
		{0, DOCA_ERROR_NOT_PERMITTED, DOCA_ERROR_NOT_PERMITTED},
		{READ_WRITE, DOCA_ERROR_NOT_PERMITTED, DOCA_ERROR_NOT_PERMITTED},
		{PCI_RO, DOCA_SUCCESS, DOCA_ERROR_NOT_PERMITTED},
		{PCI_RW, DOCA_SUCCESS, DOCA_ERROR_NOT_PERMITTED},
		{PCI_RO | READ_WRITE, DOCA_SUCCESS, DOCA_ERROR_NOT_PERMITTED},
		{DOCA_ACCESS_FLAG_RDMA_READ, DOCA_ERROR_NOT_PERMITTED, DOCA_SUCCESS},
		{DOCA_ACCESS_FLAG_RDMA_WRITE, DOCA_ERROR_NOT_PERMITTED, DOCA_SUCCESS},
		{DOCA_ACCESS_FLAG_RDMA_ATOMIC, DOCA_ERROR_NOT_PERMITTED, DOCA_SUCCESS},
		{PCI_RW | DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING, DOCA_ERROR_INVALID_VALUE,
		 DOCA_ERROR_NOT_PERMITTED},
		{DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING | DOCA_ACCESS_FLAG_RDMA_READ,
		 DOCA_ERROR_NOT_PERMITTED, DOCA_SUCCESS},
	};
	static char bytes[64];
	struct doca_dev *dev = a_dev();

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct doca_mmap *m = a_map(dev, bytes, sizeof(bytes), cases[i].permissions);
		const void *desc;
		size_t len;

		REFUSED(doca_mmap_export_pci(m, dev, &desc, &len), NOT_PERMITTED);
		OK(doca_mmap_start(m));
		CHECK_DOCA(doca_mmap_export_pci(m, dev, &desc, &len), cases[i].pci);
		CHECK_DOCA(doca_mmap_export_rdma(m, dev, &desc, &len), cases[i].rdma);
		OK(doca_mmap_stop(m));
		REFUSED(doca_mmap_export_pci(m, dev, &desc, &len), NOT_PERMITTED);
		OK(doca_mmap_destroy(m));
	}
	OK(doca_dev_close(dev));
}

TEST(a_map_of_an_export_does_not_change)
{
	static char bytes[64];
	struct doca_dev *dev = a_dev();
	struct doca_mmap *m = a_started_map(dev, bytes, sizeof(bytes), PCI_RW | DOCA_ACCESS_FLAG_RDMA_READ),
			 *far, *by_rdma;
	struct desc d = exported(m, dev);
	const void *desc;
	size_t len;

	far = imported(&d, dev);
	REFUSED(doca_mmap_set_memrange(far, bytes, 1), NOT_PERMITTED);
	REFUSED(doca_mmap_set_dmabuf_memrange(far, 0, bytes, 0, 1), NOT_PERMITTED);
	REFUSED(doca_mmap_set_permissions(far, 0), NOT_PERMITTED);
	REFUSED(doca_mmap_set_user_data(far, (union doca_data){.u64 = 1}), NOT_PERMITTED);
	REFUSED(doca_mmap_set_free_cb(far, NULL, NULL), NOT_PERMITTED);
	REFUSED(doca_mmap_set_max_num_devices(far, 1), NOT_PERMITTED);
	REFUSED(doca_mmap_enable_thread_safety(far), NOT_PERMITTED);
	REFUSED(doca_mmap_add_dev(far, dev), NOT_PERMITTED);
	REFUSED(doca_mmap_rm_dev(far, dev), NOT_PERMITTED);
	REFUSED(doca_mmap_start(far), NOT_PERMITTED);
	OK(doca_mmap_stop(far)); /* as NVIDIA's samples do */
	REFUSED(doca_mmap_export_pci(far, dev, &desc, &len), NOT_PERMITTED);
	OK(doca_mmap_export_rdma(m, dev, &desc, &len));
	OK(doca_mmap_create_from_export(NULL, desc, len, dev, &by_rdma));
	REFUSED(doca_mmap_export_rdma(by_rdma, dev, &desc, &len), NOT_PERMITTED);
	OK(doca_mmap_destroy(by_rdma));
	OK(doca_mmap_destroy(far));
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
}

TEST(devices_that_cannot_export_or_import_say_so)
{
	static char bytes[64];
	struct doca_devinfo **list;
	struct doca_dev *dev[2];
	struct doca_mmap *m;
	struct desc d;
	const void *desc;
	size_t len;
	uint32_t n;
	uint8_t can;
	char path[] = "/tmp/softdoca-devices-XXXXXX";
	static const char *two = "side=host pci=0000:03:00.0 ibdev=a caps=dma,export\n"
				 "side=host pci=0000:04:00.0 ibdev=b caps=dma,import\n";
	int fd = mkstemp(path);

	CHECK_EQ(write(fd, two, strlen(two)), (ssize_t)strlen(two));
	close(fd);
	setenv("SOFTDOCA_DEVICES", path, 1);
	OK(doca_devinfo_create_list(&list, &n));
	unlink(path);
	CHECK_EQ(n, 2);
	for (uint32_t i = 0; i < n; i++) {
		OK(doca_mmap_cap_is_export_pci_supported(list[i], &can));
		CHECK_EQ(can, i == 0);
		OK(doca_mmap_cap_is_create_from_export_pci_supported(list[i], &can));
		CHECK_EQ(can, i == 1);
		OK(doca_dev_open(list[i], &dev[i]));
	}
	m = a_map(dev[0], bytes, sizeof(bytes), PCI_RW);
	OK(doca_mmap_add_dev(m, dev[1]));
	OK(doca_mmap_start(m));
	d = exported(m, dev[0]);
	REFUSED(doca_mmap_export_pci(m, dev[1], &desc, &len), NOT_SUPPORTED);
	REFUSED(import_error(d.bytes, d.len, dev[0]), NOT_SUPPORTED);
	OK(doca_mmap_destroy(imported(&d, dev[1])));
	OK(doca_mmap_destroy(m));
	m = a_started_map(dev[0], bytes, sizeof(bytes), PCI_RW);
	REFUSED(doca_mmap_export_pci(m, dev[1], &desc, &len), NOT_FOUND);
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev[0]));
	OK(doca_dev_close(dev[1]));
	OK(doca_devinfo_destroy_list(list));
}

TEST(importing_nothing_is_refused)
{
	static char bytes[64];
	struct doca_dev *dev = a_dev();
	struct doca_mmap *m = a_started_map(dev, bytes, sizeof(bytes), PCI_RW), *far;
	struct desc d = exported(m, dev);
	void *none[] = NO_HANDLES(m);

	REFUSED(doca_mmap_create_from_export(NULL, NULL, d.len, dev, &far), INVALID_VALUE);
	REFUSED(doca_mmap_create_from_export(NULL, d.bytes, 0, dev, &far), INVALID_VALUE);
	REFUSED(doca_mmap_create_from_export(NULL, d.bytes, d.len, dev, NULL), INVALID_VALUE);
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		REFUSED(import_error(d.bytes, d.len, none[i]), INVALID_VALUE);
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
}

TEST(an_export_that_ended_is_not_imported)
{
	static char bytes[64];
	struct doca_dev *dev = a_dev();
	struct doca_mmap *m = a_started_map(dev, bytes, sizeof(bytes), PCI_RW);
	struct desc d = exported(m, dev);

	OK(doca_mmap_stop(m));
	REFUSED(import_error(d.bytes, d.len, dev), DRIVER);
	OK(doca_mmap_start(m));
	REFUSED(import_error(d.bytes, d.len, dev), DRIVER); /* it needs a new export */
	d = exported(m, dev);
	OK(doca_mmap_destroy(imported(&d, dev)));
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
}

TEST(what_was_exported_for_reading_is_not_written)
{
	struct doca_mmap *m, *far;
	struct desc d;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	m = a_started_map(r.dev, r.to, SIZE, READ_WRITE | PCI_RO);
	d = exported(m, r.dev);
	far = imported(&d, r.dev);
	OK(doca_mmap_destroy(r.to_map));
	r.to_map = far;
	REFUSED(copied_at(&r, 0, 0, 64), IO_FAILED);
	CHECK_EQ(r.to[0], 0);
	run_until_idle(&r);
	OK(doca_mmap_destroy(m));
}

/* A stop waits for transfers, but not forever. Exports that it has already ended stay ended. */
TEST(a_stop_that_failed_half_way_leaves_a_map_to_stop_again)
{
	struct doca_devinfo **list;
	struct doca_dev *second;
	struct doca_buf *src, *dst;
	struct doca_mmap *m, *far;
	struct desc d;
	const void *desc;
	size_t len;
	uint32_t n;
	char path[] = "/tmp/softdoca-devices-XXXXXX";
	static const char *two = "side=both pci=0000:03:00.0\nside=both pci=0000:04:00.0\n";
	int fd = mkstemp(path);

	CHECK_EQ(write(fd, two, strlen(two)), (ssize_t)strlen(two));
	close(fd);
	setenv("SOFTDOCA_DEVICES", path, 1);
	setenv("SOFTDOCA_FAULTS", "delay ms=3000 min_size=1000", 1);
	FIXTURE(rig, r, rig_open, SIZE, 4);
	OK(doca_devinfo_create_list(&list, &n));
	unlink(path);
	CHECK_EQ(n, 2);
	OK(doca_dev_open(list[1], &second));
	m = a_map(second, r.from, SIZE, READ_WRITE | PCI_RW);
	OK(doca_mmap_add_dev(m, r.dev));
	OK(doca_mmap_start(m));
	d = exported(m, r.dev);
	far = imported(&d, r.dev);
	OK(doca_buf_inventory_buf_get_by_data(r.inv, far, r.from, SIZE, &src));
	dst = target(&r, 0, SIZE);
	OK(doca_task_submit(a_task(&r, src, dst, 0)));
	REFUSED(doca_mmap_stop(m), NOT_PERMITTED);
	REFUSED(doca_mmap_export_pci(m, second, &desc, &len), NOT_PERMITTED);
	run_until(&r, 1);
	OK(doca_mmap_stop(m));
	OK(doca_mmap_start(m));
	d = exported(m, second);
	OK(doca_mmap_destroy(m));
	drop(src, dst);
	OK(doca_mmap_destroy(far));
	OK(doca_dev_close(second));
	OK(doca_devinfo_destroy_list(list));
}

TEST_MAIN(run_tests)
