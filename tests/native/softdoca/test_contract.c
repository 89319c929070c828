// SPDX-License-Identifier: Apache-2.0
/*
 * What the official samples rely on, line by line: facts/doca.md, "What the official samples rely
 * on". The number of each test is that of the line. Others test the rest: test_dev.c (1),
 * test_states.c (2, 4, 9), test_tasks.c (3), test_remote.c (7), test_mmap.c and test_buf_list.c (8),
 * test_dma.c (8, 9), test_export.c (11), test_dmabuf.c (12).
 */
#include <dlfcn.h>

#include "pair_check.h"

#include <doca_version.h>

#define SIZE ((size_t)4 << 20)

TEST(line_5_a_map_without_permissions_set_is_read_and_written)
{
	struct doca_mmap *plain;
	struct doca_buf *src, *dst;

	FIXTURE(rig, r, rig_open, SIZE, 1);
	fill(r.from, 100, 2);
	OK(doca_mmap_create(&plain));
	OK(doca_mmap_set_memrange(plain, r.to + 8192, 4096));
	OK(doca_mmap_add_dev(plain, r.dev));
	OK(doca_mmap_start(plain));
	src = source(&r, 0, 100);
	dst = a_buf(r.inv, plain, r.to + 8192, 100);
	OK(copied(&r, src, dst));
	CHECK_EQ(memcmp(r.from, r.to + 8192, 100), 0);
	drop(src, dst);
	OK(doca_mmap_destroy(plain));
}

TEST(line_6_an_export_descriptor_has_at_most_512_bytes)
{
	struct doca_dev *dev = a_dev();
	uint8_t *bytes = pages(4096);
	struct doca_mmap *m = a_started_map(dev, bytes, 4096, READ_WRITE | PCI_RW);
	const void *desc;
	size_t n = 0;

	OK(doca_mmap_export_pci(m, dev, &desc, &n));
	CHECK(n > 0 && n <= 512);
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
}

TEST(line_9_three_functions_are_in_the_headers_only)
{
	CHECK(doca_version());
	CHECK(dlsym(RTLD_DEFAULT, "doca_version_runtime"));
	CHECK(dlsym(RTLD_DEFAULT, "doca_buf_inventory_buf_get_by_args"));
	CHECK(!dlsym(RTLD_DEFAULT, "doca_version"));
	CHECK(!dlsym(RTLD_DEFAULT, "doca_buf_inventory_buf_get_by_addr"));
	CHECK(!dlsym(RTLD_DEFAULT, "doca_buf_inventory_buf_get_by_data"));
}

TEST(line_10_a_program_is_built_for_one_side)
{
#if defined(DOCA_ARCH_HOST) && defined(DOCA_ARCH_DPU)
	CHECK(!"one side");
#elif defined(DOCA_ARCH_HOST) || defined(DOCA_ARCH_DPU)
	OK(doca_dev_close(NULL));
#else
	CHECK(!"some side");
#endif
}

TEST_MAIN(run_tests)
