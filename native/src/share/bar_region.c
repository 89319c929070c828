// SPDX-License-Identifier: Apache-2.0
/* Regions in a BAR: in this machine's memory, and in the other machine's. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "error.h"
#include "share/bar.h"
#include "share/descriptor.h"
#include "share/polling.h"

/* The part of a BAR that belongs to a region. */
struct part {
	struct dg_bar *bar;
	uint64_t offset;
	struct bar_blob exports[4]; /* of this machine's memory, by access; size 0: none */
	struct bar_blob import; /* of the other machine's */
	uint32_t slot;
};

static struct part *part_new(struct dg_region *r)
{
	struct part *t = calloc(1, sizeof *t);
	if (!t)
		dg_fail(ENOMEM, "out of memory for a region in a BAR");
	r->provider_state = t;
	return t;
}

static void part_free(struct dg_region *r)
{
	struct part *t = r->provider_state;
	if (t->bar)
		dg_bar_drop(t->bar);
	free(t);
	r->provider_state = NULL;
}

static int bar_map(struct dg_region *r, const dg_memory *m, struct dg_region_entry *entry)
{
	if (m->fd < 0)
		return dg_fail(EINVAL, "memory in a BAR cannot be registered without the fd that "
				       "maps it");
	struct part *t = part_new(r);
	int rc = t ? dg_bar_take(m->fd, m->block, 0, NULL, false, &t->bar) : -ENOMEM;
	if (rc)
		goto fail;
	t->offset = m->fd_offset;
	if (m->fd_offset < BAR_TABLE || m->fd_offset > t->bar->size ||
	    m->size > t->bar->size - m->fd_offset) {
		rc = dg_fail(ERANGE,
			     "%" PRIu64 " bytes at offset %" PRIu64
			     " leave the memory of a BAR of %" PRIu64 " bytes",
			     m->size, m->fd_offset, t->bar->size);
		goto fail;
	}
	/* To processes of this machine it is host memory without an fd that they could map. */
	r->memory.kind = DG_KIND_HOST;
	r->memory.fd = -1;
	entry->base = m->addr;
	return 0;
fail:
	if (t)
		part_free(r);
	return rc;
}

static int read_blob(const struct dg_descriptor *d, struct bar_blob *out)
{
	if (d->blob_length != sizeof *out)
		return dg_fail(EBADMSG, "the descriptor's export in a BAR has %u bytes, not %zu",
			       d->blob_length, sizeof *out);
	memcpy(out, d->blob, sizeof *out);
	if (d->size != out->size || d->access != out->access)
		return dg_fail(EBADMSG,
			       "the descriptor was altered: it describes %" PRIu64
			       " bytes with access %u, and its export in a BAR %" PRIu64
			       " bytes with access %u",
			       d->size, d->access, out->size, out->access);
	return 0;
}

static int bar_import(struct dg_region *r, struct dg_region_entry *entry)
{
	struct part *t = part_new(r);
	int rc = t ? read_blob(r->descriptor, &t->import) : -ENOMEM;
	if (!rc)
		rc = dg_bar_find(t->import.id, &t->bar);
	if (!rc)
		rc = dg_bar_claim(t->bar, &t->import, &t->slot);
	if (rc) {
		if (t)
			part_free(r);
		return rc;
	}
	entry->base = t->bar->base + t->import.offset;
	entry->gate = &bar_page_at(t->bar, t->import.page)->slots[t->slot].gate;
	return 0;
}

static int bar_export(struct dg_region *r, uint32_t access, struct dg_descriptor *d)
{
	struct part *t = r->provider_state;
	int rc = 0;
	struct bar_blob *blob = &t->exports[access];
	pthread_mutex_lock(&r->dev->lock);
	if (atomic_load(&r->closing))
		rc = dg_fail(ESTALE, "the region is closed");
	else if (!blob->size) {
		struct bar_blob made = {.offset = t->offset, .size = r->memory.size, .access = access};
		rc = dg_bar_open(t->bar, &made);
		if (!rc)
			*blob = made;
	}
	if (!rc) {
		snprintf((char *)d->provider, sizeof d->provider, "%s", dg_bar_memory.name);
		memcpy(d->blob, blob, sizeof *blob);
		d->blob_length = sizeof *blob;
	}
	pthread_mutex_unlock(&r->dev->lock);
	return rc;
}

/* Reports an error that names the process of a slot. */
static int busy(const struct dg_region *r, const struct bar_slot *s)
{
	uint64_t own[2], boot_id[2] = {
		atomic_load_explicit(&s->boot_id[0], memory_order_relaxed),
		atomic_load_explicit(&s->boot_id[1], memory_order_relaxed),
	};
	bool known = !dg_boot_id((uint8_t *)own) && !memcmp(own, boot_id, sizeof own);
	return dg_fail(EBUSY,
		       "local region #%u: process %u of %s still has transfers in flight on it, "
		       "through the PCI BAR; new ones are refused: keep its memory and close it "
		       "again. If that process has ended, the next import there takes its slot back",
		       r->name, atomic_load_explicit(&s->pid, memory_order_relaxed),
		       known ? "this machine" : "the DPU guest");
}

static int bar_revoke(struct dg_region *r, uint64_t deadline_ns)
{
	const struct part *t = r->provider_state;
	struct bar_blob exports[4];
	uint32_t naps = 0;
	/* Under the lock: bar_export() adds no export after r->closing was set. */
	pthread_mutex_lock(&r->dev->lock);
	memcpy(exports, t->exports, sizeof exports);
	pthread_mutex_unlock(&r->dev->lock);
	for (uint32_t access = 1; access < 4; access++) {
		const struct bar_blob *blob = &exports[access];
		for (int slot; blob->size && (slot = dg_bar_revoke(t->bar, blob->page)) >= 0;) {
			if (now_ns() >= deadline_ns)
				return busy(r, &bar_page_at(t->bar, blob->page)->slots[slot]);
			dg_devices_poll(); /* the importer may be this process itself */
			life_nap(&naps);
		}
	}
	return 0;
}

static void bar_unmap(struct dg_region *r)
{
	struct part *t = r->provider_state;
	if (r->remote)
		dg_bar_release(t->bar, t->import.page, t->slot);
	for (uint32_t access = 1; access < 4; access++)
		if (t->exports[access].size)
			dg_bar_close(t->bar, t->exports[access].page);
	part_free(r);
}

static bool bar_lost(const struct dg_region *r)
{
	const struct part *t = r->provider_state;
	return r->remote &&
	       atomic_load_explicit(&bar_page_at(t->bar, t->import.page)->export.state,
				    memory_order_relaxed) == BAR_LOST;
}

static uint32_t bar_importers(struct dg_region *r)
{
	const struct part *t = r->provider_state;
	uint32_t n = 0;
	pthread_mutex_lock(&r->dev->lock);
	for (uint32_t access = 1; access < 4; access++)
		if (t->exports[access].size)
			n += dg_bar_imports(t->bar, t->exports[access].page);
	pthread_mutex_unlock(&r->dev->lock);
	return n;
}

const struct dg_memory_ops dg_bar_memory = {
	.name = "bar",
	.text = "memory in a testbed's PCI BAR",
	.method = DG_METHOD_BAR,
	.map = bar_map,
	.import = bar_import,
	.unmap = bar_unmap,
	.export = bar_export,
	.revoke = bar_revoke,
	.importers = bar_importers,
	.lost = bar_lost,
};
