// SPDX-License-Identifier: Apache-2.0
/*
 * Scatter and gather: one task copies a list of buffers, end to end, into another list. The two
 * lists may have their boundaries at different offsets.
 *
 *	scatter_gather [--text TEXT] [--count PIECES]
 *
 * The text is divided into pieces, each in a separate cell. One task gathers them into one buffer,
 * a second one scatters them over cells of another size.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <doca_log.h>
#include <doca_types.h>

#include "sample.h"
#include "copier.h"

DOCA_LOG_REGISTER(SCATTER_GATHER);

#define GAP 16 /* bytes between cells, which no copy may modify */

struct scatter_gather {
	struct copier copier;
	struct doca_mmap *map;
	char *memory;
	size_t length; /* of the text, with its terminating 0 */
};

/* A row of cells in memory. Each holds `piece` bytes of the text, the last one the rest. */
struct cells {
	char *base;
	size_t piece, length;
};

static size_t cells_count(const struct cells *c)
{
	return (c->length + c->piece - 1) / c->piece;
}

static char *cell(const struct cells *c, size_t i, size_t *size)
{
	size_t at = i * c->piece;

	*size = c->length - at < c->piece ? c->length - at : c->piece;
	return c->base + at + i * GAP;
}

/* Takes buffers over the cells as one list, with data if `full`. *list is the first buffer, or
 * NULL. */
static doca_error_t list_of(struct scatter_gather *s, const struct cells *cells, bool full,
			    struct doca_buf **list)
{
	struct doca_buf *buf;

	for (size_t i = 0; i < cells_count(cells); i++) {
		size_t size;
		char *at = cell(cells, i, &size);

		TRY_DOCA(doca_buf_inventory_buf_get_by_args(s->copier.inventory, s->map, at, size,
							    at, full ? size : 0, &buf));
		if (!*list)
			*list = buf;
		else
			TRY_DOCA(doca_buf_chain_list(*list, buf));
	}
	return DOCA_SUCCESS;
}

static doca_error_t move(struct scatter_gather *s, const struct cells *from, const struct cells *to)
{
	struct doca_buf *src = NULL, *dst = NULL;
	doca_error_t result = list_of(s, from, true, &src);

	if (result == DOCA_SUCCESS)
		result = list_of(s, to, false, &dst);
	if (result == DOCA_SUCCESS)
		result = copier_run(&s->copier, src, dst);
	if (dst)
		doca_buf_dec_refcount(dst, NULL); /* releases the whole list */
	if (src)
		doca_buf_dec_refcount(src, NULL);
	return result;
}

static void show(const char *label, const struct cells *cells)
{
	printf("%s in %zu cells:", label, cells_count(cells));
	for (size_t i = 0; i < cells_count(cells); i++) {
		size_t size;
		const char *at = cell(cells, i, &size);

		printf(" \"%.*s\"", (int)size, at);
	}
	printf("\n");
	fflush(stdout);
}

/* Checks that the cells contain the text and nothing between them has changed. */
static doca_error_t check(const struct cells *cells, const char *text)
{
	static const char untouched[GAP];

	for (size_t i = 0; i < cells_count(cells); i++) {
		size_t size;
		const char *at = cell(cells, i, &size);

		if (memcmp(at, text + i * cells->piece, size) ||
		    memcmp(at + size, untouched, GAP)) {
			DOCA_LOG_ERR("Cell %zu has other bytes", i);
			return DOCA_ERROR_UNEXPECTED;
		}
	}
	return DOCA_SUCCESS;
}

static doca_error_t scatter_gather(struct scatter_gather *s, const struct options *o)
{
	size_t count = o->count > 0 ? (size_t)o->count : 1;
	size_t part, whole;
	struct cells first, middle, last;

	s->length = strlen(o->text) + 1;
	part = s->length * (GAP + 1); /* enough for cells of one byte each */
	whole = 3 * part;
	s->memory = calloc(1, whole);
	if (!s->memory)
		return failed("calloc", DOCA_ERROR_NO_MEMORY);
	first = (struct cells){s->memory, (s->length + count - 1) / count, s->length};
	middle = (struct cells){s->memory + part, s->length, s->length};
	last = (struct cells){s->memory + 2 * part, first.piece + first.piece / 2 + 1, s->length};
	TRY(copier_open(&s->copier, o->pci, 2 * s->length));
	if (cells_count(&first) > s->copier.max_list) {
		DOCA_LOG_ERR("%zu pieces are more than the %u buffers of a list",
			     cells_count(&first), s->copier.max_list);
		return DOCA_ERROR_TOO_BIG;
	}
	TRY(map_memory(s->copier.dev, s->memory, whole, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE,
		       &s->map));
	for (size_t i = 0, size; i < cells_count(&first); i++) {
		char *at = cell(&first, i, &size);
		memcpy(at, o->text + i * first.piece, size);
	}
	show("The text", &first);
	TRY(move(s, &first, &middle));
	show("gathered", &middle);
	TRY(check(&middle, o->text));
	TRY(move(s, &middle, &last));
	show("scattered", &last);
	return check(&last, o->text);
}

int main(int argc, char **argv)
{
	struct options o = {.text = "one text that lies in many places", .count = 7};
	struct scatter_gather s = {.length = 0};
	doca_error_t result =
		sample_begin(argc, argv, "scatter_gather", WANT_TEXT | WANT_COUNT, &o);

	if (result == DOCA_SUCCESS)
		result = scatter_gather(&s, &o);
	copier_stop(&s.copier);
	if (s.map)
		doca_mmap_destroy(s.map);
	copier_close(&s.copier);
	free(s.memory);
	return sample_end(result);
}
