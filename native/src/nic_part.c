// SPDX-License-Identifier: Apache-2.0
/*
 * The parts of the adapter, for datagrams: a NIC takes them from the tables of all others, so it finds those
 * of new processes by itself, in the folder that has their files.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "nic.h"

/* How long after a change of the folder it is searched: its time stamp is as coarse as a tick. */
#define RECENT_NS 50000000

/* Both sides name the NIC that their counts are for. Call with the lock held. */
static void meet(struct dg_nic *n, uint32_t part, struct nic_peer *peer, const struct nic_table *t)
{
	struct nic_outbox *out = &n->table->outboxes[part];
	struct nic_inbox *in = &n->table->inboxes[part];
	n->parts[part] = (struct nic_part){.peer = peer, .table = t};
	n->parts_end = part < n->parts_end ? n->parts_end : part + 1;
	atomic_store_explicit(&out->delivered, 0, memory_order_relaxed);
	atomic_store_explicit(&in->consumed, 0, memory_order_relaxed);
	/* Release: who sees the number sees counts that start again. */
	atomic_store_explicit(&out->to, t->instance, memory_order_release);
	atomic_store_explicit(&in->from, t->instance, memory_order_release);
}

static int reserve(struct dg_nic *n, uint32_t part)
{
	return dg_nic_table_reserve(n, &n->table->outboxes[part], sizeof n->table->outboxes[part]);
}

int dg_nic_parts_open(struct dg_nic *n)
{
	struct nic_part *parts = NULL;
	int rc = n->is_part ? dg_nic_resolver_start(n) : 0;
	if (rc)
		return rc;
	dg_poller_lock(&n->poller);
	if (!n->parts) {
		parts = calloc(DG_NIC_PARTS, sizeof *parts);
		rc = parts ? reserve(n, n->part) : dg_fail(ENOMEM, "out of memory for datagrams");
		if (!rc)
			rc = dg_nic_table_reserve(n, n->table->inboxes, sizeof n->table->inboxes);
		if (!rc) {
			n->parts = parts;
			meet(n, n->part, NULL, n->table);
			parts = NULL;
		}
	}
	dg_poller_unlock(&n->poller);
	free(parts);
	return rc;
}

void dg_nic_parts_close(struct dg_nic *n)
{
	for (uint32_t i = 0; n->parts && i < DG_NIC_PARTS; i++)
		if (n->parts[i].peer)
			dg_nic_peer_release(n, n->parts[i].peer);
	free(n->parts);
}

static void drop_lost(struct dg_nic *n, uint32_t part)
{
	struct nic_part *p = &n->parts[part];
	dg_poller_lock(&n->poller);
	struct nic_peer *peer = p->peer;
	if (peer && atomic_load_explicit(&peer->entry->lost, memory_order_relaxed))
		*p = (struct nic_part){.peer = NULL};
	else
		peer = NULL;
	dg_poller_unlock(&n->poller);
	if (peer)
		dg_nic_peer_release(n, peer);
}

/* Returns false if the part is there and has to be searched for again. */
static bool find(struct dg_nic *n, uint32_t part)
{
	uint8_t gid[16];
	char path[sizeof n->table_file];
	struct stat s;
	struct nic_peer *peer;
	dg_nic_part_gid(part << NIC_PART_SHIFT, gid);
	if (n->parts[part].table || dg_nic_table_path(gid, path, sizeof path) || stat(path, &s))
		return true;
	if (dg_nic_peer_take(n, gid, &peer))
		return false;
	if (reserve(n, part)) {
		dg_nic_peer_release(n, peer);
		return false;
	}
	dg_poller_lock(&n->poller);
	meet(n, part, peer, peer->table);
	dg_poller_unlock(&n->poller);
	return true;
}

/* Whether the folder may have new files since the last search. */
static bool is_changed(struct dg_nic *n)
{
	char path[sizeof n->table_file];
	struct timespec now;
	struct stat s;
	memcpy(path, n->table_file, sizeof path);
	*strrchr(path, '/') = 0;
	if (stat(path, &s))
		return false;
	clock_gettime(CLOCK_REALTIME, &now);
	const int64_t at = s.st_mtim.tv_sec * 1000000000ll + s.st_mtim.tv_nsec;
	const bool changed = at != n->searched_ns;
	if (now.tv_sec * 1000000000ll + now.tv_nsec - at > RECENT_NS)
		n->searched_ns = at;
	return changed;
}

void dg_nic_parts_search(struct dg_nic *n)
{
	dg_poller_lock(&n->poller);
	const bool searches = n->n_datagram_qps && n->is_part;
	dg_poller_unlock(&n->poller);
	if (!searches)
		return;
	for (uint32_t i = 0; i < DG_NIC_PARTS; i++)
		drop_lost(n, i);
	const bool changed = is_changed(n);
	for (uint32_t i = 0; i < DG_NIC_PARTS && changed; i++)
		if (!find(n, i))
			n->searched_ns = 0;
	dg_poller_lock(&n->poller);
	n->searches++;
	dg_poller_unlock(&n->poller);
}
