// SPDX-License-Identifier: Apache-2.0
/*
 * What the official samples rely on, line by line: facts/doca.md, "What the official samples rely
 * on". The number of each test is that of the line.
 */
#include <dlfcn.h>

#include "pair_check.h"

#include <doca_version.h>

#define SIZE ((size_t)4 << 20)

TEST(line_1_closing_no_device_succeeds)
{
	OK(doca_dev_close(NULL));
}

TEST(line_2_stopping_an_idle_context_succeeds)
{
	struct rig r;

	rig_make(&r, SIZE, 1);
	OK(doca_ctx_stop(r.ctx));
	OK(doca_ctx_start(r.ctx));
	OK(doca_ctx_stop(r.ctx));
	OK(doca_ctx_stop(r.ctx));
	CHECK_EQ(r.n_seen, 2);
	rig_close(&r);
}

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

static void host(int fd)
{
	export_and_wait(fd, 100000, READ_WRITE | PCI_RO);
}

TEST(line_7_buffers_of_an_import_carry_the_exporters_addresses)
{
	struct other o = start(host);
	struct offer offer;
	struct rig r;
	struct doca_mmap *map;
	struct doca_buf *src, *dst;
	void *addr;
	size_t len;

	CHECK(hears(o.fd, &offer, sizeof(offer)));
	rig_open(&r, SIZE, 1);
	map = imported(&r, &offer);
	OK(doca_mmap_get_memrange(map, &addr, &len));
	CHECK_EQ((uintptr_t)addr, offer.addr);
	CHECK_EQ(len, offer.len);
	src = far_buf(&r, map, &offer, 0, len, true);
	dst = target(&r, 0, len);
	OK(doca_buf_get_data(src, &addr));
	CHECK_EQ((uintptr_t)addr, offer.addr);
	OK(copied(&r, src, dst));
	fill(r.from, len, 5);
	CHECK_EQ(memcmp(r.from, r.to, len), 0);
	drop(src);
	drop(dst);
	OK(doca_mmap_destroy(map));
	rig_close(&r);
	join(o);
}

TEST(line_8_a_started_map_is_destroyed)
{
	struct doca_dev *dev = a_dev();
	uint8_t *bytes = pages(4096);
	struct doca_mmap *m = a_started_map(dev, bytes, 4096, READ_WRITE | PCI_RW);
	const void *desc;
	size_t n;

	OK(doca_mmap_destroy(m));
	m = a_started_map(dev, bytes, 4096, READ_WRITE | PCI_RW);
	OK(doca_mmap_export_pci(m, dev, &desc, &n));
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
}

TEST(line_8_dropping_the_head_of_a_list_frees_all_of_it)
{
	struct rig r;
	struct doca_buf *first;

	rig_open(&r, SIZE, 1);
	first = source(&r, 0, 10);
	for (int i = 1; i < 10; i++)
		OK(doca_buf_chain_list(first, source(&r, i * 10, 10)));
	CHECK_EQ(free_bufs(r.inv), 4086);
	drop(first);
	CHECK_EQ(free_bufs(r.inv), 4096);
	rig_close(&r);
}

TEST(line_8_lists_of_unequal_length_and_the_destinations_data_len)
{
	struct rig r;
	struct doca_buf *src, *dst, *b;

	rig_open(&r, SIZE, 1);
	fill(r.from, 300, 2);
	src = source(&r, 0, 100);
	OK(doca_buf_chain_list(src, source(&r, 100, 100)));
	OK(doca_buf_chain_list(src, source(&r, 200, 100)));
	dst = target(&r, 0, 250);
	OK(doca_buf_chain_list(dst, target(&r, 250, 250)));
	CHECK_EQ(data_len(dst), 0);
	OK(copied(&r, src, dst));
	OK(doca_buf_get_next_in_list(dst, &b));
	CHECK_EQ(data_len(dst), 250);
	CHECK_EQ(data_len(b), 50);
	CHECK_EQ(memcmp(r.from, r.to, 300), 0);
	drop(src);
	drop(dst);
	rig_close(&r);
}

TEST(line_9_a_task_above_the_limit_is_taken_fails_and_stops_the_context)
{
	struct rig r;
	struct doca_buf *src, *dst;

	rig_open(&r, SIZE, 1);
	OK(copied_at(&r, 0, 0, 2097152));
	src = source(&r, 0, 2097153);
	dst = target(&r, 0, 2097153);
	OK(doca_task_submit(a_task(&r, src, dst, 0)));
	CHECK_EQ(r.failed, 0);
	run_until_idle(&r);
	CHECK_EQ(r.failed, 1);
	CHECK_DOCA(r.last, DOCA_ERROR_IO_FAILED);
	CHECK_EQ(data_len(dst), 0);
	CHECK_EQ(r.n_seen, 3);
	CHECK_EQ(r.seen[1], DOCA_CTX_STATE_STOPPING);
	drop(src);
	drop(dst);
	rig_close(&r);
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

TEST(line_11_relaxed_ordering_is_not_exported)
{
	struct doca_dev *dev = a_dev();
	uint8_t *bytes = pages(4096);
	struct doca_mmap *m = a_started_map(
		dev, bytes, 4096, READ_WRITE | PCI_RW | DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING);
	const void *desc;
	size_t n;

	CHECK_DOCA(doca_mmap_export_pci(m, dev, &desc, &n), DOCA_ERROR_INVALID_VALUE);
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
}

/* An fd that is not a dma-buf leaves the map unchanged, so that the address can still be set; but
 * only once. */
TEST(line_12_after_a_refused_dmabuf_the_address_is_given)
{
	struct doca_dev *dev = a_dev();
	uint8_t *bytes = pages(4096);
	struct doca_mmap *m;

	OK(doca_mmap_create(&m));
	OK(doca_mmap_add_dev(m, dev));
	CHECK(doca_mmap_set_dmabuf_memrange(m, 0, bytes, 0, 4096) != DOCA_SUCCESS);
	OK(doca_mmap_set_memrange(m, bytes, 4096));
	CHECK(doca_mmap_set_memrange(m, bytes, 4095) != DOCA_SUCCESS);
	OK(doca_mmap_start(m));
	OK(doca_mmap_destroy(m));
	OK(doca_dev_close(dev));
}

TEST_MAIN(run_tests)
