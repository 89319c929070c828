// SPDX-License-Identifier: Apache-2.0
/* map() and unmap() of a region: of its memory's kind, of its device's provider, or the default. */
#include "error.h"
#include "region.h"

int dg_map_default(struct dg_device *dev, const dg_memory *m, struct dg_region_entry *entry)
{
	entry->base = m->addr;
	if (m->kind == DG_KIND_HOST)
		return 0;
	entry->method = DG_METHOD_GPU;
	return entry->remote ? dg_fail(EOPNOTSUPP,
				       "the region is GPU memory, which the provider %s cannot "
				       "copy: open a device with the provider cuda",
				       dev->caps.provider)
			     : 0;
}

int dg_region_map(struct dg_region *r, const dg_memory *m, struct dg_region_entry *entry)
{
	struct dg_device *dev = r->dev;
	if (r->kind)
		return r->descriptor ? r->kind->import(r, entry) : r->kind->map(r, m, entry);
	if (dev->ops->map)
		return dev->ops->map(dev, dev->provider, r, m, entry);
	return dg_map_default(dev, m, entry);
}

void dg_region_unmap(struct dg_region *r)
{
	if (r->provider_state && r->kind)
		r->kind->unmap(r);
	else if (r->provider_state)
		r->dev->ops->unmap(r->dev, r->dev->provider, r);
	r->provider_state = NULL;
}
