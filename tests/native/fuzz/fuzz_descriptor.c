/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: a descriptor that passes the parser is consistent, and packs to the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "share/descriptor.h"

#define HEADER offsetof(struct dg_descriptor, blob)

static void must(int truth)
{
	if (!truth)
		abort();
}

static void check_parsed(const uint8_t *bytes, size_t size)
{
	struct dg_descriptor d;
	uint8_t packed[DG_DESCRIPTOR_MAX];
	int rc = dg_descriptor_parse(bytes, size, &d);

	must(dg_descriptor_check(bytes, size) == (rc ? rc : (int)size));
	if (rc)
		return;
	must(size == HEADER + d.blob_length && d.blob_length <= sizeof(d.blob));
	must(d.path[0] == '/' && memchr(d.path, 0, sizeof(d.path)));
	must(d.size && d.access >= 1 && d.access <= 3);
	must(dg_descriptor_pack(&d, packed, sizeof(packed)) == (int)size);
	must(!memcmp(packed, bytes, size));
}

/* Corrects header and checksum, so that the parser gets past them. */
static void check_signed(const uint8_t *data, size_t size)
{
	struct dg_descriptor d = {0};
	uint8_t *exact;
	int length;

	memcpy(&d, data, size < sizeof(d) ? size : sizeof(d));
	d.blob_length = (uint16_t)(size > HEADER ? (size < sizeof(d) ? size : sizeof(d)) - HEADER : 0);
	exact = malloc(HEADER + d.blob_length);
	must(exact != NULL);
	length = dg_descriptor_pack(&d, exact, HEADER + d.blob_length);
	must(length == (int)(HEADER + d.blob_length));
	check_parsed(exact, (size_t)length);
	free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_parsed(data, size);
	check_signed(data, size);
	return 0;
}
