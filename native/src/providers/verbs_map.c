// SPDX-License-Identifier: Apache-2.0
/* Memory for the provider verbs: of this process, registered; of others, by a connection. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "share/descriptor.h"
#include "verbs.h"

static int register_own(struct verbs *d, struct verbs_region *t, const dg_memory *m,
			struct dg_region_entry *entry)
{
	if (m->kind != DG_KIND_HOST)
		return dg_map_default(d->dev, m, entry);
	int flags = entry->access & DG_ACCESS_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0;
	t->mr = dg_verbs.ibv_reg_mr(d->pd, m->addr, m->size, flags);
	entry->base = m->addr;
	if (t->mr)
		return 0;
	if (errno == ENOMEM)
		return dg_fail(ENOMEM,
			       "%s cannot pin %" PRIu64 " bytes: raise the limit of locked memory "
			       "(ulimit -l; memlock in /etc/security/limits.conf)",
			       d->name, m->size);
	return dg_fail_errno("%s cannot register %" PRIu64 " bytes at %p", d->name, m->size, m->addr);
}

static int read_blob(const struct dg_descriptor *from, struct sockaddr_storage *out)
{
	struct verbs_blob b;
	struct sockaddr_in *v4 = (struct sockaddr_in *)out;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
	memset(out, 0, sizeof *out);
	if (from->blob_length != sizeof b)
		return dg_fail(EBADMSG, "the descriptor's RDMA address has %u bytes, not %zu",
			       from->blob_length, sizeof b);
	memcpy(&b, from->blob, sizeof b);
	if (ntohs(b.family) == 4) {
		v4->sin_family = AF_INET;
		v4->sin_port = b.port;
		memcpy(&v4->sin_addr, b.address, sizeof v4->sin_addr);
	} else if (ntohs(b.family) == 6) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = b.port;
		memcpy(&v6->sin6_addr, b.address, sizeof v6->sin6_addr);
	} else {
		return dg_fail(EBADMSG, "the descriptor's RDMA address is of IPv%u", ntohs(b.family));
	}
	return 0;
}

/* Connects to the exporter. Its table decides size and access. */
static int open_import(struct verbs *d, struct verbs_region *t, const struct dg_region *r,
		       const dg_memory *m, struct dg_region_entry *entry)
{
	int rc = read_blob(r->descriptor, &t->exporter);
	if (rc)
		return rc;
	memcpy(t->key, r->descriptor->key, sizeof t->key);
	t->link = dg_verbs_connect(d, t, NULL, NULL);
	rc = t->link ? dg_verbs_connected(t->link) : -EIO;
	const struct verbs_reply *reply = t->link ? &t->link->reply : NULL;
	if (!rc && (reply->size != m->size || !reply->access || reply->access > 3 ||
		    reply->access != entry->access))
		rc = dg_fail(EBADMSG,
			     "the descriptor was altered: it describes %" PRIu64
			     " bytes with access %u, and the exporter has %" PRIu64
			     " bytes with access %u",
			     m->size, entry->access, reply->size, reply->access);
	if (rc) {
		if (t->link)
			dg_verbs_conn_free(t->link);
		return rc;
	}
	entry->base = (char *)(uintptr_t)reply->address;
	entry->method = DG_METHOD_RDMA;
	return 0;
}

int dg_verbs_map(struct dg_device *dev, void *state, struct dg_region *r, const dg_memory *m,
		 struct dg_region_entry *entry)
{
	struct verbs *d = state;
	if (entry->remote && !r->descriptor)
		return dg_fail(EOPNOTSUPP,
			       "the region's owner did not register it with the provider %s: "
			       "register it there with Device('%s')",
			       dev->blob_provider, dev->blob_provider);
	struct verbs_region *t = calloc(1, sizeof *t);
	if (!t)
		return dg_fail(ENOMEM, "out of memory for a region");
	int rc = entry->remote ? open_import(d, t, r, m, entry) : register_own(d, t, m, entry);
	if (rc) {
		free(t);
		return rc;
	}
	r->provider_state = t;
	return 0;
}

void dg_verbs_unmap(struct dg_device *dev, void *state, struct dg_region *r)
{
	struct verbs *d = state;
	struct verbs_region *t = r->provider_state;
	(void)dev;
	if (t->link) {
		if (r->entry) /* otherwise no queue has used it */
			dg_verbs_release_region(d, r->index);
		dg_verbs_conn_free(t->link);
	} else {
		dg_verbs_guests_revoke(d, r);
	}
	if (t->mr)
		dg_verbs.ibv_dereg_mr(t->mr);
	free(t);
}

bool dg_verbs_lost(const struct dg_region *r)
{
	const struct verbs_region *t = r->provider_state;
	return t && t->link &&
	       atomic_load_explicit(&t->link->state, memory_order_acquire) == CONN_ENDED;
}

int dg_verbs_export(struct dg_device *dev, void *state, struct dg_region *r, uint32_t access,
		    struct dg_descriptor *out)
{
	struct verbs *d = state;
	struct verbs_blob b = {.port = ((struct sockaddr_in *)&d->address)->sin_port};
	(void)access; /* in the table of exports, by the key */
	if (r->memory.kind != DG_KIND_HOST)
		return dg_fail(EMEDIUMTYPE, "the provider verbs can export host memory only");
	if (d->address.ss_family == AF_INET) {
		b.family = htons(4);
		memcpy(b.address, &((struct sockaddr_in *)&d->address)->sin_addr, 4);
	} else {
		b.family = htons(6);
		memcpy(b.address, &((struct sockaddr_in6 *)&d->address)->sin6_addr, 16);
	}
	strcpy((char *)out->provider, dev->blob_provider);
	memcpy(out->blob, &b, sizeof b);
	out->blob_length = sizeof b;
	return 0;
}
