// SPDX-License-Identifier: Apache-2.0
#include "workq_sample.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

doca_error_t failed(const char *what, doca_error_t error)
{
	fprintf(stderr, "%s failed: %s\n", what, doca_get_error_string(error));
	return error;
}

static doca_error_t open_device(struct doca_dev **dev)
{
	struct doca_devinfo **list;
	uint32_t n, caps;
	doca_error_t result = DOCA_ERROR_NOT_FOUND;

	TRY(doca_devinfo_list_create(&list, &n));
	for (uint32_t i = 0; i < n && result; i++)
		if (doca_dma_devinfo_caps_get(list[i], &caps) == DOCA_SUCCESS &&
		    (caps & DOCA_DMA_CAP_HW_OFFLOAD))
			result = doca_dev_open(list[i], dev);
	doca_devinfo_list_destroy(list);
	return result ? failed("Opening a device that can copy", result) : DOCA_SUCCESS;
}

doca_error_t open_map(struct state *s, uint32_t ranges)
{
	doca_error_t result = open_device(&s->dev);

	if (result)
		return result;
	TRY(doca_mmap_create("map", &s->map));
	TRY(doca_mmap_property_set(s->map, DOCA_MMAP_MAX_NUM_CHUNKS, (const uint8_t *)&ranges,
				   sizeof ranges));
	TRY(doca_mmap_start(s->map));
	TRY(doca_mmap_dev_add(s->map, s->dev));
	return DOCA_SUCCESS;
}

doca_error_t open_dma(struct state *s)
{
	TRY(doca_buf_inventory_create("inventory", 2, DOCA_BUF_EXTENSION_NONE, &s->inventory));
	TRY(doca_buf_inventory_start(s->inventory));
	TRY(doca_dma_create(&s->dma));
	s->ctx = doca_dma_as_ctx(s->dma);
	TRY(doca_workq_create(1, &s->workq));
	TRY(doca_ctx_dev_add(s->ctx, s->dev));
	s->has_device = true;
	TRY(doca_ctx_start(s->ctx));
	s->started = true;
	TRY(doca_ctx_workq_add(s->ctx, s->workq));
	s->has_workq = true;
	return DOCA_SUCCESS;
}

doca_error_t copy(struct state *s, struct doca_buf *dst, struct doca_buf *src, size_t size)
{
	struct doca_dma_job_memcpy job = {
		.base = {.type = DOCA_DMA_JOB_MEMCPY, .flags = DOCA_JOB_FLAGS_NONE, .ctx = s->ctx},
		.dst_buff = dst,
		.src_buff = src,
		.num_bytes_to_copy = size,
	};
	struct doca_event event;
	doca_error_t result;

	TRY(doca_workq_submit(s->workq, &job.base));
	do
		result = doca_workq_progress_retrieve(s->workq, &event,
						      DOCA_WORKQ_RETRIEVE_FLAGS_NONE);
	while (result == DOCA_ERROR_AGAIN);
	if (result)
		return failed("The copy", (doca_error_t)event.result.u64);
	return DOCA_SUCCESS;
}

void close_all(struct state *s)
{
	if (s->has_workq)
		doca_ctx_workq_rm(s->ctx, s->workq);
	if (s->started)
		doca_ctx_stop(s->ctx);
	if (s->has_device)
		doca_ctx_dev_rm(s->ctx, s->dev);
	if (s->workq)
		doca_workq_destroy(s->workq);
	if (s->dma)
		doca_dma_destroy(s->dma);
	if (s->inventory)
		doca_buf_inventory_destroy(s->inventory);
	if (s->map)
		doca_mmap_destroy(s->map);
	if (s->dev)
		doca_dev_close(s->dev);
}

/* ---- the socket ---- */

static int open_socket(const char *path, int (*use)(int, const struct sockaddr *, socklen_t))
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	if (fd < 0 || !use(fd, (struct sockaddr *)&address, sizeof address))
		return fd;
	close(fd);
	return -1;
}

int accept_one(const char *path)
{
	int listener = open_socket(path, bind), fd = -1;

	if (listener < 0)
		return -1;
	if (!listen(listener, 1)) {
		printf("waiting at %s\n", path);
		fflush(stdout);
		fd = accept(listener, NULL, NULL);
	}
	close(listener);
	unlink(path);
	return fd;
}

int connect_to(const char *path)
{
	return open_socket(path, connect);
}
