// SPDX-License-Identifier: Apache-2.0
/*
 * What the official samples rely on, line by line: facts/doca.md, "What the official samples rely
 * on". The number of each test is that of the line. Others test the rest: test_dev.c (1),
 * test_states.c (2, 9), test_remote.c (7), test_mmap.c and test_buf_list.c (8), test_dma.c (8, 9),
 * test_export.c (11), test_dmabuf.c (12).
 */
#include <dlfcn.h>

#include "pair_check.h"

#include <doca_version.h>

#define SIZE ((size_t)4 << 20)

TEST(line_3_completions_come_from_progress_only_one_a_call)
{
	enum { N = 20 };
	struct rig r;
	struct doca_buf *src, *dst, *big_src, *big_dst;

	rig_open(&r, SIZE, N);
	src = source(&r, 0, 64);
	dst = target(&r, 0, 4096);
	big_src = source(&r, 0, 100000);
	big_dst = target(&r, 100000, 2000000);
	for (int i = 0; i < N; i++)
		OK(doca_task_submit(i % 3 ? a_task(&r, src, dst, i) :
					    a_task(&r, big_src, big_dst, i)));
	CHECK_EQ(r.done, 0);
	for (unsigned i = 0; i < N;) {
		uint8_t did = doca_pe_progress(r.pe);

		i += did;
		CHECK_EQ(r.done, i);
	}
	CHECK_EQ(doca_pe_progress(r.pe), 0);
	drop(src);
	drop(dst);
	drop(big_src);
	drop(big_dst);
	rig_close(&r);
}

static doca_error_t stopped;
static size_t left;

static void free_and_stop(struct doca_dma_task_memcpy *t, union doca_data task_data,
			  union doca_data ctx_data)
{
	struct rig *r = ctx_data.ptr;

	on_done(t, task_data, ctx_data);
	left = in_flight(r);
	stopped = doca_ctx_stop(r->ctx);
}

/* Copies once; the callback frees the task and stops the context, as the samples do. */
static void free_and_stop_after(size_t size)
{
	struct rig r;
	struct doca_buf *src, *dst;

	rig_make(&r, SIZE, 1);
	OK(doca_dma_task_memcpy_set_conf(r.dma, free_and_stop, on_error, 1));
	OK(doca_ctx_start(r.ctx));
	fill(r.from, size, 2);
	src = source(&r, 0, size);
	dst = target(&r, 0, size);
	OK(doca_task_submit(a_task(&r, src, dst, 0)));
	run_until_idle(&r);
	CHECK_EQ(left, 0);
	OK(stopped);
	CHECK_EQ(r.n_seen, 2);
	CHECK_EQ(r.seen[1], DOCA_CTX_STATE_IDLE);
	CHECK_EQ(memcmp(r.from, r.to, size), 0);
	drop(src);
	drop(dst);
	rig_close(&r);
}

TEST(line_4_the_callback_may_free_the_task_and_stop_the_context)
{
	free_and_stop_after(64);
	free_and_stop_after(1 << 20);
}

TEST(line_5_a_map_without_permissions_set_is_read_and_written)
{
	struct rig r;
	struct doca_mmap *plain;
	struct doca_buf *src, *dst;

	rig_open(&r, SIZE, 1);
	fill(r.from, 100, 2);
	OK(doca_mmap_create(&plain));
	OK(doca_mmap_set_memrange(plain, r.to + 8192, 4096));
	OK(doca_mmap_add_dev(plain, r.dev));
	OK(doca_mmap_start(plain));
	src = source(&r, 0, 100);
	dst = a_buf(r.inv, plain, r.to + 8192, 100);
	OK(copied(&r, src, dst));
	CHECK_EQ(memcmp(r.from, r.to + 8192, 100), 0);
	drop(src);
	drop(dst);
	OK(doca_mmap_destroy(plain));
	rig_close(&r);
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
