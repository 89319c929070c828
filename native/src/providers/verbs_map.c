// SPDX-License-Identifier: Apache-2.0
/* Memory of the provider verbs: that of this process is registered, that of other processes is
 * reached through a connection. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "share/descriptor.h"
#include "verbs_provider.h"

static int register_own(struct verbs *d, struct verbs_region *t, struct dg_region *r,
			const dg_memory *m, struct dg_region_entry *entry)
{
	int flags = entry->access & DG_ACCESS_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0;
	TRY(dg_verbs_register(d, m, flags, &t->source, &t->mr));
	t->by_cpu = m->kind == DG_KIND_HOST;
	r->registration = (uint8_t)t->source.way;
	entry->base = m->addr;
	/* The method is MAP where the CPU can access the memory. */
	entry->method = t->by_cpu ? DG_METHOD_MAP : DG_METHOD_RDMA;
	return 0;
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

/* Connects to the exporter, whose table determines size and access. */
static int open_import(struct verbs *d, struct verbs_region *t, struct dg_region *r,
		       const dg_memory *m, struct dg_region_entry *entry)
{
	TRY(read_blob(r->descriptor, &t->exporter));
	memcpy(t->key, r->descriptor->key, sizeof t->key);
	if (!entry->gate)
		entry->gate = &t->own_gate;
	t->gate = entry->gate;
	TRY(dg_verbs_connect(d, t, NULL, NULL, &t->link));
	int rc = dg_verbs_connected(t->link);
	const struct verbs_reply *reply = &t->link->reply;
	if (!rc && (reply->size != m->size || !reply->access || reply->access > 3 ||
		    reply->access != entry->access))
		rc = dg_fail(EBADMSG,
			     "the descriptor was altered: it describes %" PRIu64
			     " bytes with access %u, and the exporter has %" PRIu64
			     " bytes with access %u",
			     m->size, entry->access, reply->size, reply->access);
	if (rc) {
		dg_verbs_conn_free(t->link);
		return rc;
	}
	entry->base = (char *)(uintptr_t)reply->address;
	entry->method = DG_METHOD_RDMA;
	r->no_atomics = !reply->atomics;
	if (reply->registration <= DG_REGISTRATION_PEERMEM)
		r->registration = (uint8_t)reply->registration;
	return 0;
}

struct verbs_region *dg_verbs_region_new(void)
{
	struct verbs_region *t = aligned_alloc(_Alignof(struct verbs_region), sizeof *t);
	if (!t) {
		dg_fail(ENOMEM, "out of memory for a region");
		return NULL;
	}
	memset(t, 0, sizeof *t);
	t->source.fd = -1;
	return t;
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
	struct verbs_region *t = dg_verbs_region_new();
	if (!t)
		return -ENOMEM;
	int rc = dg_verbs_removed(d) ? dg_verbs_check_port(d) : 0;
	if (!rc)
		rc = entry->remote ? open_import(d, t, r, m, entry)
				   : register_own(d, t, r, m, entry);
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
	} else if (!r->remote) {
		dg_verbs_guests_forget(d, r);
		if (r->entry && atomic_load(&d->n_qps))
			dg_verbs_release_region(d, r->index);
	}
	if (t->mr)
		dg_verbs.ibv_dereg_mr(t->mr);
	dg_verbs_source_close(&t->source);
	free(t);
}

bool dg_verbs_lost(const struct dg_region *r)
{
	const struct verbs_region *t = r->provider_state;
	/* A side whose own device was removed knows nothing about the exporter. */
	return t && t->link && !dg_verbs_removed(t->link->d) &&
	       atomic_load_explicit(&t->link->state, memory_order_acquire) == CONN_ENDED;
}

int dg_verbs_export(struct dg_device *dev, void *state, struct dg_region *r, uint32_t access,
		    struct dg_descriptor *out)
{
	struct verbs *d = state;
	struct verbs_blob b = {.port = ((struct sockaddr_in *)&d->address)->sin_port};
	(void)r; /* the key identifies it in the table of exports, */
	(void)access; /* which also holds its access */
	if (dg_verbs_removed(d))
		return dg_verbs_check_port(d);
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
