// SPDX-License-Identifier: Apache-2.0
/*
 * Remote copy, host side: exports its memory to the DPU, and waits while the DPU reads it.
 *
 *	remote_copy_sender [--text TEXT] [--size BYTES] [--write] [--descriptor-path FILE] [--buffer-path FILE]
 *
 * It writes two files that remote_copy_receiver reads: the export descriptor, and the address and
 * length of the memory. Copy both to the DPU (scp). With --write the DPU may also write to it; the
 * final content of the memory is printed. There is no DMA context: the host's CPU copies nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <doca_log.h>
#include <doca_mmap.h>
#include <doca_types.h>

#include "sample.h"

DOCA_LOG_REGISTER(REMOTE_COPY_SENDER);

struct sender {
	char *memory;
	size_t size;
	struct doca_dev *dev;
	struct doca_mmap *map;
};

static doca_error_t can_export(const struct doca_devinfo *info)
{
	uint8_t can = 0;
	doca_error_t result = doca_mmap_cap_is_export_pci_supported(info, &can);

	return result == DOCA_SUCCESS && !can ? DOCA_ERROR_NOT_SUPPORTED : result;
}

static doca_error_t export_memory(struct sender *s, const struct options *o)
{
	uint32_t access =
		o->write ? DOCA_ACCESS_FLAG_PCI_READ_WRITE : DOCA_ACCESS_FLAG_PCI_READ_ONLY;
	const void *descriptor;
	size_t size;

	TRY(open_device(o->pci, can_export, &s->dev));
	TRY_DOCA(doca_mmap_create(&s->map));
	TRY_DOCA(doca_mmap_set_memrange(s->map, s->memory, s->size));
	TRY_DOCA(doca_mmap_set_permissions(s->map, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE | access));
	TRY_DOCA(doca_mmap_add_dev(s->map, s->dev));
	TRY_DOCA(doca_mmap_start(s->map));
	TRY_DOCA(doca_mmap_export_pci(s->map, s->dev, &descriptor, &size));
	return write_export(o, descriptor, size, s->memory, s->size);
}

static doca_error_t send_memory(struct sender *s, const struct options *o)
{
	size_t length = strlen(o->text) + 1;

	s->size = (size_t)o->size > length ? (size_t)o->size : length;
	s->memory = calloc(1, s->size);
	if (!s->memory)
		return failed("calloc", DOCA_ERROR_NO_MEMORY);
	memcpy(s->memory, o->text, length);
	print_text("sent", s->memory, s->size);
	TRY(export_memory(s, o));
	printf("The DPU may %s %zu bytes now. Run remote_copy_receiver there, then press Enter "
	       "here.\n",
	       o->write ? "read and write" : "read", s->size);
	fflush(stdout);
	wait_for_enter();
	print_text("the memory holds", s->memory, s->size);
	return DOCA_SUCCESS;
}

/* Removes the files first, because they are useless without the memory. Destroying the map ends the
 * export. */
static void give_back(struct sender *s, const struct options *o)
{
	if (s->map) {
		remove_export(o);
		doca_mmap_destroy(s->map);
	}
	if (s->dev)
		doca_dev_close(s->dev);
	free(s->memory);
}

int main(int argc, char **argv)
{
	struct options o = {.text = "a text in the host's memory"};
	struct sender s = {.size = 0};
	doca_error_t result = sample_begin(argc, argv, "remote_copy_sender",
					   WANT_TEXT | WANT_FILES | WANT_WRITE | WANT_SIZE, &o);

	if (result == DOCA_SUCCESS)
		result = send_memory(&s, &o);
	give_back(&s, &o);
	return sample_end(result);
}
