// SPDX-License-Identifier: Apache-2.0
/* Copies between this process and a process that exports memory, also when that process dies. */
#include "pair_check.h"

#define SIZE ((size_t)2 << 20)

static void host_rw(int fd)
{
	export_and_wait(fd, SIZE, READ_WRITE | PCI_RW);
}

static void host_ro(int fd)
{
	export_and_wait(fd, SIZE, READ_WRITE | PCI_RO);
}

struct remote {
	struct rig r;
	struct other host;
	struct offer offer;
	struct doca_mmap *map;
};

static void remote_open(struct remote *m, void (*side)(int fd))
{
	void *at;
	size_t len;

	m->host = start(side);
	CHECK(hears(m->host.fd, &m->offer, sizeof(m->offer)));
	rig_open(&m->r, SIZE, 8);
	m->map = imported(&m->r, &m->offer);
	OK(doca_mmap_get_memrange(m->map, &at, &len));
	CHECK_EQ((uintptr_t)at, m->offer.addr);
	CHECK_EQ(len, m->offer.len);
}

static void remote_close(struct remote *m)
{
	OK(doca_mmap_destroy(m->map));
	rig_close(&m->r);
}

/* Reads n bytes from the host. */
static doca_error_t pull(struct remote *m, size_t offset, size_t n)
{
	struct doca_buf *src = far_buf(&m->r, m->map, &m->offer, offset, n, true);
	struct doca_buf *dst = target(&m->r, offset, n);
	doca_error_t status = copied(&m->r, src, dst);

	drop(src, dst);
	return status;
}

static doca_error_t push(struct remote *m, size_t offset, size_t n)
{
	struct doca_buf *src = source(&m->r, offset, n);
	struct doca_buf *dst = far_buf(&m->r, m->map, &m->offer, offset, n, false);
	doca_error_t status = copied(&m->r, src, dst);

	drop(src, dst);
	return status;
}

static void pull_and_push(bool by_thread)
{
	struct remote m;
	uint8_t look = 1, same;

	choose(by_thread);
	remote_open(&m, host_rw);
	fill(m.r.from, SIZE, 5);
	for (size_t n = 1; n <= SIZE; n = n * 2 + (n < 1000 ? 1 : 0)) {
		memset(m.r.to, 0, SIZE);
		OK(pull(&m, SIZE - n, n));
		CHECK_EQ(memcmp(m.r.from + SIZE - n, m.r.to + SIZE - n, n), 0);
	}
	fill(m.r.from, SIZE, 6);
	OK(push(&m, 0, 100));
	OK(push(&m, 100, 1000000));
	OK(push(&m, 1000100, SIZE - 1000100));
	say(m.host.fd, &look, 1);
	CHECK(hears(m.host.fd, &same, 1));
	CHECK_EQ(same, 1);
	remote_close(&m);
	join(m.host);
}

TEST(plain_memory_of_another_process_is_copied_by_its_own_thread)
{
	pull_and_push(true);
}

TEST(plain_memory_of_another_process_is_copied_by_the_kernel)
{
	pull_and_push(false);
}

TEST(lists_join_memory_of_two_processes)
{
	struct remote m;
	struct doca_buf *src, *dst;

	choose(true);
	remote_open(&m, host_rw);
	fill(m.r.from, SIZE, 5);
	src = far_buf(&m.r, m.map, &m.offer, 0, 1000, true);
	OK(doca_buf_chain_list(src, source(&m.r, 1000, 500)));
	OK(doca_buf_chain_list(src, far_buf(&m.r, m.map, &m.offer, 1500, 3000, true)));
	dst = target(&m.r, 0, 1200);
	OK(doca_buf_chain_list(dst, target(&m.r, 1200, 3300)));
	OK(copied(&m.r, src, dst));
	CHECK_EQ(memcmp(m.r.from, m.r.to, 4500), 0);
	drop(src, dst);
	remote_close(&m);
	join(m.host);
}

/* Copies from one place of the host to another; neither is mapped in this process. */
static void far_to_far(bool by_thread)
{
	struct remote m;
	const size_t half = SIZE / 2, sizes[] = { 1, 1000, 262144, 262145, half };

	choose(by_thread);
	remote_open(&m, host_rw);
	fill(m.r.from, SIZE, 5);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t n = sizes[i];
		struct doca_buf *src = far_buf(&m.r, m.map, &m.offer, 0, n / 3, true);
		struct doca_buf *dst = far_buf(&m.r, m.map, &m.offer, half, n, false);

		OK(doca_buf_chain_list(
			src, far_buf(&m.r, m.map, &m.offer, n / 3, n - n / 3, true)));
		OK(copied(&m.r, src, dst));
		OK(pull(&m, half, n));
		CHECK_EQ(memcmp(m.r.from, m.r.to + half, n), 0);
		drop(src, dst);
	}
	remote_close(&m);
	join(m.host);
}

TEST(bytes_go_from_host_to_host_by_its_thread)
{
	far_to_far(true);
}

TEST(bytes_go_from_host_to_host_by_the_kernel)
{
	far_to_far(false);
}

TEST(a_read_only_export_is_not_written_to)
{
	struct remote m;
	uint8_t look = 1, same;

	choose(true);
	remote_open(&m, host_ro);
	OK(pull(&m, 0, 1000));
	CHECK_DOCA(push(&m, 0, 1000), DOCA_ERROR_IO_FAILED);
	run_until_idle(&m.r);
	say(m.host.fd, &look, 1);
	CHECK(hears(m.host.fd, &same, 1));
	CHECK_EQ(same, 0);
	remote_close(&m);
	join(m.host);
}

/* Copies continue while the host is killed: the last one fails, and the context becomes idle. */
static void killed_while_copying(bool by_thread)
{
	struct remote m;
	struct doca_mmap *again;
	struct doca_buf *src, *dst[8];
	double end = now_s() + WAIT_SECONDS;
	bool killed = false;

	choose(by_thread);
	remote_open(&m, host_rw);
	src = far_buf(&m.r, m.map, &m.offer, 0, SIZE, true);
	for (int i = 0; i < 8; i++)
		dst[i] = target(&m.r, 0, SIZE);
	for (unsigned i = 0; !m.r.failed; i++) {
		CHECK(now_s() < end);
		OK(doca_buf_reset_data_len(dst[i % 8]));
		if (doca_task_submit(a_task(&m.r, src, dst[i % 8], i)))
			break;
		if (i >= 7)
			run_until(&m.r, i - 6);
		if (i == 20) {
			kill_and_reap(m.host);
			killed = true;
		}
	}
	CHECK(killed);
	CHECK_DOCA(m.r.last, DOCA_ERROR_IO_FAILED);
	run_until_idle(&m.r);
	CHECK_EQ(in_flight(&m.r), 0);
	CHECK_DOCA(doca_mmap_create_from_export(NULL, m.offer.desc, m.offer.desc_len, m.r.dev, &again),
		   DOCA_ERROR_DRIVER);
	drop(src);
	for (int i = 0; i < 8; i++)
		drop(dst[i]);
	remote_close(&m);
}

TEST(a_host_that_dies_fails_the_copies_by_its_thread)
{
	killed_while_copying(true);
}

TEST(a_host_that_dies_fails_the_copies_by_the_kernel)
{
	killed_while_copying(false);
}

static void revoke_then_wait(int fd)
{
	struct doca_dev *dev = a_dev();
	uint8_t *bytes = pages(SIZE), told;
	struct offer offer = { .addr = (uintptr_t)bytes, .len = SIZE };
	struct doca_mmap *m = a_started_map(dev, bytes, SIZE, READ_WRITE | PCI_RW);
	const void *desc;
	size_t desc_len;

	OK(doca_mmap_export_pci(m, dev, &desc, &desc_len));
	offer.desc_len = desc_len;
	memcpy(offer.desc, desc, desc_len);
	say(fd, &offer, sizeof(offer));
	CHECK(hears(fd, &told, 1));
	OK(doca_mmap_stop(m)); /* and the bytes stay where they are */
	say(fd, &told, 1);
	CHECK(!hears(fd, &told, 1));
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
	munmap(bytes, SIZE);
}

TEST(memory_that_its_host_took_back_is_not_reached_any_more)
{
	struct remote m;
	uint8_t byte = 1;

	choose(false);
	remote_open(&m, revoke_then_wait);
	OK(pull(&m, 0, SIZE));
	say(m.host.fd, &byte, 1);
	CHECK(hears(m.host.fd, &byte, 1));
	CHECK_DOCA(pull(&m, 0, 64), DOCA_ERROR_IO_FAILED);
	run_until_idle(&m.r);
	remote_close(&m);
	join(m.host);
}

/* One process may be both host and DPU: the bytes are then mapped here, and progress copies small
 * ones itself. */
TEST(an_export_may_come_back_to_its_own_process)
{
	struct rig r;
	struct doca_mmap *own, *back;
	const void *desc;
	struct offer offer;
	uint8_t *bytes = pages(SIZE);
	size_t desc_len, sizes[] = { 1, 64, 5000, SIZE };

	rig_open(&r, SIZE, 4);
	fill(bytes, SIZE, 4);
	own = a_started_map(r.dev, bytes, SIZE, READ_WRITE | PCI_RW);
	OK(doca_mmap_export_pci(own, r.dev, &desc, &desc_len));
	offer = (struct offer){ .addr = (uintptr_t)bytes, .len = SIZE, .desc_len = desc_len };
	memcpy(offer.desc, desc, desc_len);
	back = imported(&r, &offer);
	for (int i = 0; i < 4; i++) {
		struct doca_buf *src = far_buf(&r, back, &offer, 0, sizes[i], true);
		struct doca_buf *dst = target(&r, 0, sizes[i]);

		OK(copied(&r, src, dst));
		CHECK_EQ(memcmp(bytes, r.to, sizes[i]), 0);
		drop(src, dst);
	}
	/* From one import to the other. */
	struct doca_buf *src = far_buf(&r, back, &offer, 0, 4096, true);
	struct doca_buf *dst = far_buf(&r, back, &offer, 8192, 4096, false);

	OK(copied(&r, src, dst));
	CHECK_EQ(memcmp(bytes, bytes + 8192, 4096), 0);
	OK(doca_buf_reset_data_len(dst));
	/* The exporter withdraws the memory while the import exists. */
	OK(doca_mmap_destroy(own));
	CHECK_DOCA(copied(&r, src, dst), DOCA_ERROR_IO_FAILED);
	drop(src, dst);
	OK(doca_mmap_destroy(back));
	rig_close(&r);
	munmap(bytes, SIZE);
}

TEST_MAIN(run_tests)
