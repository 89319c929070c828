// SPDX-License-Identifier: Apache-2.0
/* Staging memory of an engine, in slots: the provider copies inline bytes and operands from them, and
 * operations in two legs pass through them. */
#include <stdlib.h>
#include <unistd.h>

#include "control_path.h"
#include "executor.h"

static void add_slot(struct exec_staging *s, uint32_t i, uint64_t offset, bool large)
{
	s->slots[i] = (struct staging_slot){s->free[large], offset, large};
	s->free[large] = &s->slots[i];
}

/* Registers the memory with a device, and imports it again. */
static int register_memory(const struct exec_staging *s, dg_device *dev, size_t size,
			   struct staging_region *out)
{
	const dg_memory m = {.addr = s->bytes, .size = size, .fd = -1};
	uint8_t descriptor[DG_DESCRIPTOR_MAX];
	int rc = dg_region_register(dev, &m, DG_ACCESS_READ | DG_ACCESS_WRITE, &out->region);
	if (rc)
		return rc;
	out->name = out->region->name;
	rc = dg_region_export(out->region, DG_ACCESS_READ | DG_ACCESS_WRITE, descriptor, sizeof descriptor);
	if (rc >= 0)
		rc = dg_region_import(dev, descriptor, (size_t)rc, UINT64_MAX, &out->import);
	if (!rc)
		out->import_name = out->import->name;
	return rc;
}

int dg_exec_staging_open(struct exec_engine *e)
{
	struct exec_staging *s = &e->staging;
	const uint64_t small = EXEC_SLOTS * EXEC_SLOT;
	const uint32_t chunks = e->dev->gpu ? EXEC_CHUNKS : 0;
	const size_t size = small + (size_t)chunks * EXEC_CHUNK;
	s->bytes = aligned_alloc(4096, size);
	if (!s->bytes)
		return dg_fail(ENOMEM, "out of memory for a NIC");
	memset(s->bytes, 0, size);
	for (uint32_t i = 0; i < EXEC_SLOTS; i++)
		add_slot(s, i, (uint64_t)i * EXEC_SLOT, false);
	for (uint32_t i = 0; i < chunks; i++)
		add_slot(s, EXEC_SLOTS + i, small + (uint64_t)i * EXEC_CHUNK, true);
	const int rc = register_memory(s, e->dev, size, &s->by[0]);
	return rc || !e->dev->gpu ? rc : register_memory(s, e->soft, size, &s->by[1]);
}

void dg_exec_staging_close(struct exec_engine *e)
{
	for (int i = 1; i >= 0; i--) {
		dg_region_end(e->staging.by[i].import);
		dg_region_end(e->staging.by[i].region);
	}
	free(e->staging.bytes);
	dg_exec_atomic_close(e);
}

bool dg_exec_staging_take(struct exec_engine *e, struct exec_flight *f, uint32_t size)
{
	if (!f->staging) {
		struct staging_slot **free_slots = &e->staging.free[size > EXEC_SLOT];
		f->staging = *free_slots;
		if (f->staging)
			*free_slots = f->staging->next;
	}
	return f->staging;
}

void dg_exec_staging_put(struct exec_engine *e, struct exec_flight *f)
{
	if (!f->staging)
		return;
	struct staging_slot **free_slots = &e->staging.free[f->staging->large];
	f->staging->next = *free_slots;
	*free_slots = f->staging;
	f->staging = NULL;
}
