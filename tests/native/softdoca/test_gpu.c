// SPDX-License-Identifier: Apache-2.0
/*
 * Tasks with GPU memory: they are sent to the GPU through a separate pipe, in addition to that of
 * the CPU. Uses CUDA's driver or the fake one. test_dmabuf.c tests how the maps are created.
 */
#include <sys/epoll.h>

#include "pair_check.h"

#include "gpu_memory.h"

#define SIZE ((size_t)1 << 20)

struct gpu_rig {
	struct rig r;
	uint8_t *at; /* SIZE bytes of GPU memory */
	struct doca_mmap *map;
};

static void gpu_rig_open(struct gpu_rig *g, uint32_t tasks)
{
	rig_open(&g->r, SIZE, tasks);
	fill(g->r.from, SIZE, 7);
	g->at = gpu_pages(SIZE);
	g->map = a_started_map(g->r.dev, g->at, SIZE, READ_WRITE | PCI_RW);
}

static void gpu_rig_close(struct gpu_rig *g)
{
	OK(doca_mmap_destroy(g->map));
	rig_close(&g->r);
	gpu_free(g->at);
}

static struct doca_buf *gpu_target(struct gpu_rig *g, size_t offset, size_t n)
{
	return a_buf(g->r.inv, g->map, g->at + offset, n);
}

static void gpu_bytes(const struct gpu_rig *g, size_t offset, size_t n, uint8_t *out)
{
	DRIVER("cuMemcpyDtoH_v2", (void *, unsigned long long, size_t), out,
	       (unsigned long long)(uintptr_t)(g->at + offset), n);
}

static void check_gpu(const struct gpu_rig *g, size_t offset, const uint8_t *want, size_t n)
{
	uint8_t *got = malloc(n);

	gpu_bytes(g, offset, n, got);
	CHECK_EQ(memcmp(got, want, n), 0);
	free(got);
}

TEST(copies_of_every_size_arrive)
{
	FIXTURE(gpu_rig, g, gpu_rig_open, 4);
	for (size_t n = 1; n <= SIZE; n = n * 3 + 1) {
		struct doca_buf *src = source(&g.r, 0, n), *mid = gpu_target(&g, SIZE - n, n);
		struct doca_buf *dst = target(&g.r, 0, n);

		memset(g.r.to, 0, n);
		OK(copied(&g.r, src, mid));
		check_gpu(&g, SIZE - n, g.r.from, n);
		OK(copied(&g.r, mid, dst));
		CHECK_EQ(memcmp(g.r.from, g.r.to, n), 0);
		drop(src, mid, dst);
	}
}

TEST(a_list_joins_host_and_gpu_memory)
{
	struct doca_buf *src, *dst;

	FIXTURE(gpu_rig, g, gpu_rig_open, 4);
	src = source(&g.r, 0, 30000);
	dst = target(&g.r, 0, 1000);
	OK(doca_buf_chain_list(dst, gpu_target(&g, 0, 9000)));
	OK(doca_buf_chain_list(dst, target(&g.r, 10000, 20000)));
	OK(copied(&g.r, src, dst));
	CHECK_EQ(memcmp(g.r.to, g.r.from, 1000), 0);
	check_gpu(&g, 0, g.r.from + 1000, 9000);
	CHECK_EQ(memcmp(g.r.to + 10000, g.r.from + 10000, 20000), 0);
	CHECK_EQ(data_len(dst), 1000);
	drop(src, dst);
}

TEST(tasks_of_both_pipes_are_in_flight_at_once_and_complete_in_order)
{
	enum { N = 64, AREA = 16384 };
	struct doca_buf *src[N], *dst[N];

	FIXTURE(gpu_rig, g, gpu_rig_open, N);
	for (int round = 0; round < 10; round++) {
		g.r.done = 0;
		memset(g.r.to, 0, SIZE);
		for (int i = 0; i < N; i++) {
			size_t n = i % 4 < 2 ? 100 : AREA;

			src[i] = source(&g.r, i * AREA, n);
			dst[i] = i % 2 ? gpu_target(&g, i * AREA, n) : target(&g.r, i * AREA, n);
			OK(doca_task_submit(a_task(&g.r, src[i], dst[i], i)));
		}
		run_until(&g.r, N);
		CHECK_EQ(g.r.failed, 0);
		for (int i = 0; i < N; i++) {
			CHECK_EQ(g.r.order[i], i);
			if (i % 2)
				check_gpu(&g, i * AREA, g.r.from + i * AREA, data_len(dst[i]));
			else
				CHECK_EQ(memcmp(g.r.to + i * AREA, g.r.from + i * AREA,
						data_len(dst[i])), 0);
			drop(src[i]);
			drop(dst[i]);
		}
	}
}

TEST(a_sleeper_is_woken_by_the_gpu)
{
	struct doca_buf *src, *dst;
	int handle;

	FIXTURE(gpu_rig, g, gpu_rig_open, 4);
	OK(doca_pe_get_notification_handle(g.r.pe, &handle));
	src = source(&g.r, 0, SIZE);
	dst = gpu_target(&g, 0, SIZE);
	for (unsigned i = 1; i <= 30; i++) {
		OK(doca_buf_reset_data_len(dst));
		if (i % 2)
			OK(doca_pe_request_notification(g.r.pe));
		OK(doca_task_submit(a_task(&g.r, src, dst, i)));
		while (g.r.done < i) {
			struct pollfd p = { .fd = handle, .events = POLLIN };

			OK(doca_pe_request_notification(g.r.pe));
			CHECK_EQ(poll(&p, 1, WAIT_SECONDS * 1000), 1);
			OK(doca_pe_clear_notification(g.r.pe, handle));
			while (doca_pe_progress(g.r.pe))
				;
		}
	}
	CHECK_EQ(g.r.failed, 0);
	drop(src, dst);
}

TEST(a_stop_ends_what_the_gpu_has_in_order)
{
	struct doca_buf *src, *dst[8];

	FIXTURE(gpu_rig, g, gpu_rig_open, 8);
	src = source(&g.r, 0, SIZE);
	for (int round = 0; round < 5; round++) {
		g.r.done = g.r.failed = g.r.n_seen = 0;
		g.r.seen[g.r.n_seen++] = DOCA_CTX_STATE_RUNNING;
		for (int i = 0; i < 8; i++) {
			dst[i] = i % 3 ? gpu_target(&g, 0, SIZE) : target(&g.r, 0, SIZE);
			OK(doca_task_submit(a_task(&g.r, src, dst[i], i)));
		}
		CHECK_DOCA(doca_ctx_stop(g.r.ctx), DOCA_ERROR_IN_PROGRESS);
		run_until_idle(&g.r);
		CHECK_EQ(g.r.done + g.r.failed, 8);
		for (int i = 0; i < 8; i++) {
			CHECK_EQ(g.r.order[i], i);
			drop(dst[i]);
		}
		OK(doca_ctx_start(g.r.ctx));
	}
	drop(src);
}

static void host(int fd)
{
	export_and_wait(fd, SIZE, READ_WRITE | PCI_RW);
}

/* The CPU copies plain memory of another process; a task between such memory and GPU memory
 * fails. */
TEST(what_the_gpu_cannot_reach_fails_at_completion)
{
	struct other o = start(host);
	struct offer offer;
	struct gpu_rig g;
	struct doca_mmap *map;
	struct doca_buf *src, *dst, *here;

	CHECK(hears(o.fd, &offer, sizeof(offer)));
	gpu_rig_open(&g, 4);
	map = imported(&g.r, &offer);
	src = far_buf(&g.r, map, &offer, 0, 4096, true);
	dst = gpu_target(&g, 0, 4096);
	here = target(&g.r, 0, 4096);
	OK(copied(&g.r, src, here));
	CHECK_DOCA(copied(&g.r, src, dst), DOCA_ERROR_IO_FAILED);
	run_until_idle(&g.r);
	drop(src, dst, here);
	OK(doca_mmap_destroy(map));
	gpu_rig_close(&g);
	join(o);
}

int main(int argc, char **argv)
{
	if (!dlopen("libcuda.so.1", RTLD_NOW))
		SKIP("there is no libcuda.so.1");
	return run_tests(argc, argv);
}
