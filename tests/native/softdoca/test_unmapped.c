// SPDX-License-Identifier: Apache-2.0
/* Copies of memory that the program unmapped or protected while its map is started: they fail, and
 * no process is killed by a signal. */
#include "pair_check.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>

#define SIZE ((size_t)2 << 20)
#define HOLE ((size_t)1 << 20) /* offset of the page that is removed */
#define PAGE ((size_t)4096)

/* How a page of the map is removed or protected, before it is restored. */
enum loss { UNMAPPED, NO_ACCESS, NO_WRITE, LOSSES };

static void lose(uint8_t *at, enum loss how)
{
	if (how == UNMAPPED)
		CHECK_EQ(munmap(at, PAGE), 0);
	else
		CHECK_EQ(mprotect(at, PAGE, how == NO_WRITE ? PROT_READ : PROT_NONE), 0);
}

/* Uses a direct system call: TSan treats mmap() as a write to the page, and cannot see that the
 * importer orders it after the copies of the exporter's thread. */
static void restore(uint8_t *at)
{
	CHECK_EQ(syscall(SYS_mmap, at, PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
		 (intptr_t)at);
}

/* Copies n bytes that begin `before` bytes before the hole in either the source or the target. */
static void fails_without_a_signal(bool source_lost, enum loss how, size_t before, size_t n)
{
	uint8_t *hole;

	FIXTURE(rig, r, rig_open, SIZE, 4);
	OK(copied_at(&r, HOLE - before, HOLE - before, n));
	hole = (source_lost ? r.from : r.to) + HOLE;
	lose(hole, how);
	CHECK_DOCA(copied_at(&r, HOLE - before, HOLE - before, n), DOCA_ERROR_IO_FAILED);
	run_until_idle(&r);
	restore(hole);
	/* The context works again. */
	OK(doca_ctx_start(r.ctx));
	OK(copied_at(&r, HOLE - before, HOLE - before, n));
}

static const size_t sizes[] = { 1, 64, 1000, 70000, (size_t)1 << 20 };

static void each_way_to_lose_a_page(bool source_lost)
{
	for (int how = UNMAPPED; how < LOSSES; how++) {
		if (source_lost && how == NO_WRITE)
			continue;
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			fails_without_a_signal(source_lost, (enum loss)how, 0, sizes[i]);
			fails_without_a_signal(source_lost, (enum loss)how, sizes[i] / 2, sizes[i]);
		}
	}
}

TEST(a_copy_from_memory_that_was_lost_fails)
{
	each_way_to_lose_a_page(true);
}

TEST(a_copy_to_memory_that_was_lost_fails)
{
	each_way_to_lose_a_page(false);
}

/* Makes the system refuse process_vm_readv and process_vm_writev, as some containers do. Returns
 * false if that is not possible, as under an emulator. */
static bool refuse_process_vm(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void without_process_vm(int fd)
{
	uint8_t done = 1;

	if (refuse_process_vm()) {
		a_copy_from_memory_that_was_lost_fails();
		a_copy_to_memory_that_was_lost_fails();
	}
	say(fd, &done, 1);
}

TEST(so_it_is_without_process_vm_readv)
{
	struct other o = start(without_process_vm);
	uint8_t done;

	CHECK(hears(o.fd, &done, 1));
	join(o);
}

/* A host that exports plain memory. For each byte that it receives it changes a page of the memory:
 * to the state that the byte specifies, or back. */
static void host_that_loses_a_page(int fd)
{
	struct doca_dev *dev = a_dev();
	uint8_t *bytes = pages(SIZE), how;
	struct doca_mmap *m = a_started_map(dev, bytes, SIZE, READ_WRITE | PCI_RW);
	struct offer offer = { .addr = (uintptr_t)bytes, .len = SIZE };
	const void *desc;
	size_t desc_len;

	OK(doca_mmap_export_pci(m, dev, &desc, &desc_len));
	offer.desc_len = desc_len;
	memcpy(offer.desc, desc, desc_len);
	say(fd, &offer, sizeof(offer));
	while (hears(fd, &how, 1)) {
		if (how == LOSSES)
			restore(bytes + HOLE);
		else
			lose(bytes + HOLE, (enum loss)how);
		say(fd, &how, 1);
	}
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
	munmap(bytes, SIZE);
}

static void ask(struct other host, uint8_t what)
{
	uint8_t answer;

	say(host.fd, &what, 1);
	CHECK(hears(host.fd, &answer, 1));
}

/* Reads from the host, or writes to it. */
static doca_error_t far_copy(struct rig *r, struct doca_mmap *map, const struct offer *offer,
			     bool read, size_t n)
{
	struct doca_buf *far = far_buf(r, map, offer, HOLE, n, read);
	struct doca_buf *near = read ? target(r, 0, n) : source(r, 0, n);
	doca_error_t status = read ? copied(r, far, near) : copied(r, near, far);

	drop(far, near);
	return status;
}

static void the_importer_gets_an_error(bool by_thread)
{
	struct other host;
	struct offer offer;
	struct doca_mmap *map;
	struct rig r;

	choose(by_thread);
	host = start(host_that_loses_a_page);
	CHECK(hears(host.fd, &offer, sizeof(offer)));
	rig_open(&r, SIZE, 4);
	map = imported(&r, &offer);
	for (int how = UNMAPPED; how < LOSSES; how++)
		for (int read = 0; read < 2; read++) {
			if (read && how == NO_WRITE)
				continue;
			OK(far_copy(&r, map, &offer, read, 5000));
			ask(host, (uint8_t)how);
			CHECK_DOCA(far_copy(&r, map, &offer, read, 5000), DOCA_ERROR_IO_FAILED);
			run_until_idle(&r);
			ask(host, LOSSES); /* it is still alive */
			r.n_seen = 0;
			OK(doca_ctx_start(r.ctx));
		}
	OK(doca_mmap_destroy(map));
	rig_close(&r);
	join(host);
}

TEST(memory_that_its_host_unmapped_fails_by_its_thread)
{
	the_importer_gets_an_error(true);
}

TEST(memory_that_its_host_unmapped_fails_by_the_kernel)
{
	the_importer_gets_an_error(false);
}

/* The importer's own memory is removed. */
TEST(an_importers_own_memory_may_be_lost)
{
	struct other host;
	struct offer offer;
	struct doca_mmap *map;
	struct rig r;

	choose(true);
	host = start(host_that_loses_a_page);
	CHECK(hears(host.fd, &offer, sizeof(offer)));
	rig_open(&r, SIZE, 4);
	map = imported(&r, &offer);
	for (int read = 0; read < 2; read++) {
		uint8_t *page = read ? r.to : r.from;

		lose(page, NO_ACCESS);
		CHECK_DOCA(far_copy(&r, map, &offer, read, 5000), DOCA_ERROR_IO_FAILED);
		run_until_idle(&r);
		restore(page);
		OK(doca_ctx_start(r.ctx));
		OK(far_copy(&r, map, &offer, read, 5000));
	}
	OK(doca_mmap_destroy(map));
	rig_close(&r);
	join(host);
}

TEST_MAIN(run_tests)
