// SPDX-License-Identifier: Apache-2.0
/* The keys of a NIC. The entry in the table, for other NICs, has the same index. */
#include <stdlib.h>

#include "control_path.h"
#include "nic.h"

/* Returns the rights to the region that these rights to a key need. */
static uint32_t region_access(uint32_t access)
{
	const uint32_t writes = DG_NIC_LOCAL_WRITE | DG_NIC_REMOTE_WRITE | DG_NIC_REMOTE_ATOMIC;
	const uint32_t reads = DG_NIC_REMOTE_READ | DG_NIC_REMOTE_ATOMIC | DG_NIC_BIND;
	return (access & writes ? DG_ACCESS_WRITE : 0u) | (access & reads ? DG_ACCESS_READ : 0u);
}

uint32_t dg_nic_key_access(uint32_t access)
{
	uint32_t rights = 0;
	if (access & DG_ACCESS_WRITE)
		rights |= DG_NIC_LOCAL_WRITE | DG_NIC_REMOTE_WRITE;
	if (access & DG_ACCESS_READ)
		rights |= DG_NIC_REMOTE_READ;
	if (access & DG_ACCESS_WRITE && access & DG_ACCESS_READ)
		rights |= DG_NIC_REMOTE_ATOMIC;
	return rights;
}

static int check_key(struct dg_nic *n, dg_region *r, uint64_t address, uint32_t access)
{
	const uint32_t all = DG_NIC_LOCAL_WRITE | DG_NIC_REMOTE_WRITE | DG_NIC_REMOTE_READ |
			     DG_NIC_REMOTE_ATOMIC | DG_NIC_BIND;
	if (r->dev != n->engine.dev && !(n->gpu && r->dev == n->gpu->dev))
		return dg_fail(EINVAL, "the region of a key belongs to another device than the NIC");
	if (access & ~all)
		return dg_fail(EINVAL, "access %#x of a key has unknown bits; all together are %#x",
			       access, all);
	if (address + r->memory.size < address)
		return dg_fail(ERANGE, "a key of %llu bytes at %#llx exceeds 2^64",
			       (unsigned long long)r->memory.size, (unsigned long long)address);
	const uint32_t needed = region_access(access);
	return dg_region_check_access(r, needed ? needed : r->access, "given a key");
}

/* Exports the region and imports it again, so that its rights and its revocation hold within this
 * process, too. */
static int import_own(dg_region *r, struct nic_key *k, uint8_t *descriptor)
{
	const uint32_t access = region_access(k->access);
	int length = 0;
	k->local.entry = dg_region_table_find(r->name, &k->local.id);
	if (!k->local.entry)
		return dg_fail(ESTALE, "the region of a key is closed");
	if (!access)
		return 0;
	length = dg_region_export(r, access, descriptor, DG_DESCRIPTOR_MAX);
	if (length < 0)
		return length;
	const int rc = dg_region_import(r->dev, descriptor, (size_t)length, UINT64_MAX, &k->import);
	if (rc)
		return rc;
	k->remote.entry = dg_region_table_find(k->import->name, &k->remote.id);
	return length;
}

/* Returns the index of a free key, 0 if there is none. Searches behind the last one, so that a
 * number is used again as late as possible. */
static uint32_t free_index(struct dg_nic *n)
{
	for (uint32_t i = NIC_FIRST_KEY; i < DG_NIC_KEYS; i++) {
		n->next_key = n->next_key + 1 < DG_NIC_KEYS && n->next_key + 1 > NIC_FIRST_KEY
				      ? n->next_key + 1
				      : NIC_FIRST_KEY;
		if (!n->keys[n->next_key].key)
			return n->next_key;
	}
	return 0;
}

void dg_nic_key_publish(struct dg_nic *n, const struct nic_key *k, const uint8_t *descriptor, int length)
{
	struct nic_public_key *p = &n->table->keys[key_index(k->key)];
	struct nic_key_body body = {
		.pd = k->pd,
		.access = k->access,
		.address = k->address,
		.size = k->size,
		.length = (uint32_t)length,
		.qpn = k->qpn,
		.offset = k->offset,
	};
	memcpy(body.descriptor, descriptor, (size_t)length);
	/* Release, and acquire in load_key(): a reader that sees one of the new words also sees that
	 * the key is 0, or the new key. */
	store_words_in(&p->body, &body, KEY_WORDS, memory_order_release);
	atomic_store_explicit(&p->key, (uint64_t)n->opened_keys++ << 32 | k->key, memory_order_release);
}

/* Puts the key into both tables. Call with the lock held. */
static void put_in(struct dg_nic *n, const struct nic_key *k, const uint8_t *descriptor, int length)
{
	n->keys[key_index(k->key)] = *k;
	dg_nic_key_publish(n, k, descriptor, length);
	atomic_store_explicit(&n->table->n_keys, ++n->n_keys, memory_order_relaxed);
}

int dg_nic_key_add(struct dg_nic *n, struct nic_key *k, const uint8_t *descriptor, int length)
{
	int rc = 0;
	dg_poller_lock(&n->poller);
	const uint32_t index = free_index(n);
	if (!index)
		rc = dg_fail(EMFILE, "the NIC has %d keys, which is the maximum: close some",
			     DG_NIC_KEYS - NIC_FIRST_KEY);
	else
		rc = dg_nic_table_reserve(n, &n->table->keys[index], sizeof n->table->keys[index]);
	if (!rc) {
		k->generation = n->keys[index].generation % 255 + 1;
		k->key = index << 8 | k->generation;
		put_in(n, k, descriptor, length);
	}
	dg_poller_unlock(&n->poller);
	return rc;
}

/* Fills *k, which has domain, access and address, but for the key. Returns the length of the descriptor. */
static int make(struct dg_nic *n, dg_region *r, struct nic_key *k, uint8_t *descriptor)
{
	int rc = dg_nic_check_process(n);
	if (!rc)
		rc = dg_region_enter(r);
	if (rc)
		return rc;
	rc = check_key(n, r, k->address, k->access);
	k->size = r->memory.size;
	if (!rc)
		rc = import_own(r, k, descriptor);
	life_leave(&r->life);
	return rc;
}

int dg_nic_key_open(dg_nic *n, dg_region *r, uint64_t address, uint32_t pd, uint32_t access,
		    uint32_t *key)
{
	uint8_t descriptor[DG_DESCRIPTOR_MAX];
	struct nic_key k = {.pd = pd, .access = access, .address = address};
	int rc = make(n, r, &k, descriptor); /* the length of the descriptor, or an error */
	if (rc >= 0)
		rc = dg_nic_key_add(n, &k, descriptor, rc);
	if (rc)
		dg_region_end(k.import);
	else
		*key = k.key;
	return rc;
}

int dg_nic_key_open_import(dg_nic *n, const uint8_t *descriptor, size_t length, uint64_t address,
			   uint32_t pd, uint32_t access, uint32_t *key)
{
	/* An rkey only: no receive may name it either. */
	struct nic_key k = {.pd = pd,
			    .access = access & ~(uint32_t)DG_NIC_LOCAL_WRITE,
			    .address = address,
			    .size = UINT64_MAX};
	struct nic_key_body body = {.length = (uint32_t)length};
	int rc = dg_nic_check_process(n);
	if (!rc && length > sizeof body.descriptor)
		rc = dg_fail(EINVAL, "a descriptor of %zu bytes; the most are %zu", length,
			     sizeof body.descriptor);
	if (rc)
		return rc;
	memcpy(body.descriptor, descriptor, length);
	rc = dg_nic_key_import(n, &k, &body);
	if (!rc && address + k.size < address)
		rc = dg_fail(ERANGE, "a key of %llu bytes at %#llx exceeds 2^64",
			     (unsigned long long)k.size, (unsigned long long)address);
	if (!rc)
		rc = dg_nic_key_add(n, &k, body.descriptor, (int)length);
	if (rc)
		dg_region_end(k.import);
	else
		*key = k.key;
	return rc;
}

dg_region *dg_nic_key_take_out(struct dg_nic *n, struct nic_key *k)
{
	dg_region *import = k->import;
	atomic_store_explicit(&n->table->keys[k - n->keys].key, 0, memory_order_release);
	*k = (struct nic_key){.generation = k->generation};
	atomic_store_explicit(&n->table->n_keys, --n->n_keys, memory_order_relaxed);
	return import;
}

static int no_key(uint32_t key)
{
	return dg_fail(EINVAL, "the NIC has no key %#x", key);
}

int dg_nic_key_change(dg_nic *n, uint32_t key, dg_region *r, uint64_t address, uint32_t pd,
		      uint32_t access)
{
	uint8_t descriptor[DG_DESCRIPTOR_MAX];
	struct nic_key k = {.pd = pd, .access = access, .address = address};
	const int length = make(n, r, &k, descriptor);
	if (length < 0) {
		dg_region_end(k.import);
		return length;
	}
	dg_poller_lock(&n->poller);
	const bool known = nic_key_find(n, key);
	dg_region *unused = known ? dg_nic_key_take_out(n, &n->keys[key_index(key)]) : k.import;
	if (known) {
		k.key = key;
		k.generation = n->keys[key_index(key)].generation;
		put_in(n, &k, descriptor, length);
	}
	dg_poller_unlock(&n->poller);
	dg_region_end(unused);
	return known ? 0 : no_key(key);
}

int dg_nic_key_close(dg_nic *n, uint32_t key)
{
	if (dg_nic_check_process(n))
		return 0;
	dg_poller_lock(&n->poller);
	const bool known = nic_key_find(n, key);
	dg_region *import = known ? dg_nic_key_take_out(n, &n->keys[key_index(key)]) : NULL;
	dg_poller_unlock(&n->poller);
	if (!known)
		return no_key(key);
	dg_region_end(import);
	return 0;
}

void dg_nic_keys_close(struct dg_nic *n)
{
	for (uint32_t i = 0; i < DG_NIC_KEYS; i++)
		if (n->keys[i].key)
			dg_region_end(dg_nic_key_take_out(n, &n->keys[i]));
}
