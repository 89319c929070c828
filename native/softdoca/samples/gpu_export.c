// SPDX-License-Identifier: Apache-2.0
/*
 * GPU export: exports GPU memory to the DPU, which reads and writes it without the CPU.
 *
 *	gpu_export [--gpu N] [--text TEXT] [--size BYTES] [--descriptor-path FILE] [--buffer-path FILE]
 *
 * It runs on the host. remote_copy_receiver --write on the DPU reads the text in the GPU's memory
 * and writes another one; this program prints both. It uses a dma-buf of the GPU's memory with
 * doca_mmap_set_dmabuf_memrange, then doca_mmap_export_pci. Without dma-buf support in CUDA or DOCA
 * it uses the GPU's address instead, which needs the kernel module nvidia-peermem.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <doca_log.h>
#include <doca_mmap.h>
#include <doca_types.h>

#include "sample.h"
#include "cuda_memory.h"

DOCA_LOG_REGISTER(GPU_EXPORT);

struct gpu_export {
	struct gpu_memory gpu;
	struct doca_dev *dev;
	struct doca_mmap *map;
};

static doca_error_t can_export(const struct doca_devinfo *info)
{
	uint8_t can = 0;
	doca_error_t result = doca_mmap_cap_is_export_pci_supported(info, &can);

	return result == DOCA_SUCCESS && !can ? DOCA_ERROR_NOT_SUPPORTED : result;
}

/* Creates a map of the GPU's memory from the dma-buf fd, or from its address if fd is -1. */
static doca_error_t map_gpu(struct gpu_export *e, int fd)
{
	uint32_t access = DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | DOCA_ACCESS_FLAG_PCI_READ_WRITE;
	void *addr = (void *)(uintptr_t)e->gpu.addr;

	TRY_DOCA(doca_mmap_create(&e->map));
	TRY_DOCA(doca_mmap_set_permissions(e->map, access));
	TRY_DOCA(doca_mmap_add_dev(e->map, e->dev));
	if (fd >= 0)
		TRY_DOCA(doca_mmap_set_dmabuf_memrange(e->map, fd, addr, 0, e->gpu.size));
	else
		TRY_DOCA(doca_mmap_set_memrange(e->map, addr, e->gpu.size));
	TRY_DOCA(doca_mmap_start(e->map));
	return DOCA_SUCCESS;
}

static doca_error_t map_by_dmabuf(struct gpu_export *e)
{
	doca_error_t result;
	int fd;

	TRY(gpu_dmabuf(&e->gpu, &fd));
	result = map_gpu(e, fd);
	close(fd); /* the map holds a duplicate */
	if (result == DOCA_SUCCESS)
		DOCA_LOG_INFO("The DPU accesses it by a dma-buf");
	return result;
}

/* Each attempt needs a new map, because a map's range can be set once. */
static doca_error_t map_either_way(struct gpu_export *e)
{
	if (map_by_dmabuf(e) == DOCA_SUCCESS)
		return DOCA_SUCCESS;
	if (e->map)
		doca_mmap_destroy(e->map);
	e->map = NULL;
	if (access("/sys/module/nvidia_peermem", F_OK))
		DOCA_LOG_WARN(
			"No dma-buf, and nvidia-peermem is not loaded: modprobe nvidia-peermem");
	TRY(map_gpu(e, -1));
	DOCA_LOG_INFO("The DPU accesses it by its address: nvidia-peermem");
	return DOCA_SUCCESS;
}

static doca_error_t show(const struct gpu_export *e, const char *label)
{
	char text[TEXT_MAX] = "";

	TRY(gpu_read(&e->gpu, text, sizeof text - 1));
	print_text(label, text, sizeof text);
	return DOCA_SUCCESS;
}

static doca_error_t gpu_export(struct gpu_export *e, const struct options *o)
{
	size_t length = strlen(o->text) + 1;
	size_t size = (size_t)o->size > length ? (size_t)o->size : length;
	const void *descriptor;
	size_t n;

	TRY(open_device(o->pci, can_export, &e->dev));
	TRY(gpu_alloc(&e->gpu, o->gpu, size > TEXT_MAX ? size : TEXT_MAX));
	TRY(gpu_write(&e->gpu, o->text, length));
	TRY(map_either_way(e));
	TRY_DOCA(doca_mmap_export_pci(e->map, e->dev, &descriptor, &n));
	TRY(write_export(o, descriptor, n, (void *)(uintptr_t)e->gpu.addr, size));
	TRY(show(e, "the GPU's memory holds"));
	printf("The DPU may read and write %zu bytes of it now. "
	       "Run remote_copy_receiver --write there, then press Enter here.\n",
	       size);
	fflush(stdout);
	wait_for_enter();
	return show(e, "the GPU's memory holds");
}

/* Destroys the map before its memory is freed. */
static void give_back(struct gpu_export *e, const struct options *o)
{
	if (e->map) {
		remove_export(o);
		doca_mmap_destroy(e->map);
	}
	gpu_free(&e->gpu);
	if (e->dev)
		doca_dev_close(e->dev);
}

int main(int argc, char **argv)
{
	struct options o = {.text = "a text in the GPU's memory"};
	struct gpu_export e = {.map = NULL};
	doca_error_t result = sample_begin(argc, argv, "gpu_export",
					   WANT_TEXT | WANT_FILES | WANT_SIZE | WANT_GPU, &o);

	if (result == DOCA_SUCCESS)
		result = gpu_export(&e, &o);
	give_back(&e, &o);
	return sample_end(result);
}
