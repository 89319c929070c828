// SPDX-License-Identifier: Apache-2.0
/* Local copy, by the steps of DOCA 1.3's DMA sample guide: dma_local_copy [TEXT] */
#include <stdio.h>
#include <string.h>

#include "workq_sample.h"

static doca_error_t local_copy(struct state *s, char *dst, char *src, size_t size)
{
	struct doca_buf *src_buf, *dst_buf;
	doca_error_t result = open_map(s, 2);

	if (result)
		return result;
	TRY(doca_mmap_populate(s->map, src, size, PAGE, NULL, NULL));
	TRY(doca_mmap_populate(s->map, dst, size, PAGE, NULL, NULL));
	result = open_dma(s);
	if (result)
		return result;
	TRY(doca_buf_inventory_buf_by_addr(s->inventory, s->map, src, size, &src_buf));
	TRY(doca_buf_inventory_buf_by_addr(s->inventory, s->map, dst, size, &dst_buf));
	result = copy(s, dst_buf, src_buf, size);
	doca_buf_refcount_rm(src_buf, NULL);
	doca_buf_refcount_rm(dst_buf, NULL);
	if (!result && memcmp(dst, src, size))
		result = failed("The comparison", DOCA_ERROR_UNEXPECTED);
	return result;
}

int main(int argc, char **argv)
{
	static char src[TEXT_MAX], dst[TEXT_MAX];
	struct state s = {.dev = NULL};
	doca_error_t result;

	snprintf(src, sizeof src, "%s", argc > 1 ? argv[1] : "a text, copied by DMA");
	result = local_copy(&s, dst, src, strlen(src) + 1);
	close_all(&s);
	if (!result)
		printf("copied: \"%s\"\n", dst);
	return result != DOCA_SUCCESS;
}
