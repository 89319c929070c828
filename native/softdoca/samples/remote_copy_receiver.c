// SPDX-License-Identifier: Apache-2.0
/*
 * Remote copy, DPU side: reads the host's memory by DMA, and may write to it.
 *
 *	remote_copy_receiver [--descriptor-path FILE] [--buffer-path FILE] [--write --text TEXT]
 *
 * remote_copy_sender or gpu_export writes the two files. The addresses of the map on this side are
 * those of the host's process.
 */
#include <stdlib.h>
#include <string.h>

#include <doca_log.h>
#include <doca_mmap.h>
#include <doca_types.h>

#include "sample.h"
#include "copier.h"

DOCA_LOG_REGISTER(REMOTE_COPY_RECEIVER);

struct receiver {
	struct copier copier;
	struct doca_mmap *remote, *local;
	void *remote_addr; /* in the host's process */
	char *memory;
	size_t size;
};

static doca_error_t import(struct receiver *r, const struct options *o)
{
	char descriptor[DESCRIPTOR_MAX];
	size_t n;

	TRY(read_export(o, descriptor, &n, &r->remote_addr, &r->size));
	TRY_DOCA(doca_mmap_create_from_export(NULL, descriptor, n, r->copier.dev, &r->remote));
	DOCA_LOG_INFO("The host exports %zu bytes", r->size);
	r->memory = calloc(1, r->size);
	if (!r->memory)
		return failed("calloc", DOCA_ERROR_NO_MEMORY);
	return map_memory(r->copier.dev, r->memory, r->size, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE,
			  &r->local);
}

static doca_error_t receive(struct receiver *r, const struct options *o)
{
	size_t length = strlen(o->text) + 1;

	TRY(copier_open(&r->copier, o->pci, 2));
	TRY(import(r, o));
	TRY(copier_copy(&r->copier, r->remote, r->remote_addr, r->local, r->memory, r->size));
	print_text("received", r->memory, r->size);
	if (!o->write)
		return DOCA_SUCCESS;
	if (length > r->size) {
		DOCA_LOG_ERR("The text has %zu bytes, the host's memory %zu", length, r->size);
		return DOCA_ERROR_TOO_BIG;
	}
	memcpy(r->memory, o->text, length);
	TRY(copier_copy(&r->copier, r->local, r->memory, r->remote, r->remote_addr, length));
	print_text("written back", r->memory, length);
	return DOCA_SUCCESS;
}

static void give_back(struct receiver *r)
{
	/* The maps use the copier's device; stop its context first. */
	copier_stop(&r->copier);
	if (r->local)
		doca_mmap_destroy(r->local);
	if (r->remote)
		doca_mmap_destroy(r->remote);
	copier_close(&r->copier);
	free(r->memory);
}

int main(int argc, char **argv)
{
	struct options o = {.text = "a text from the DPU"};
	struct receiver r = {.size = 0};
	doca_error_t result = sample_begin(argc, argv, "remote_copy_receiver",
					   WANT_TEXT | WANT_FILES | WANT_WRITE, &o);

	if (result == DOCA_SUCCESS)
		result = receive(&r, &o);
	give_back(&r);
	return sample_end(result);
}
