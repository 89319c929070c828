// SPDX-License-Identifier: Apache-2.0
/* Memory windows: keys whose memory is a part of another key's region. An entry binds one, without a call: whoever has
 * its key has access from then on, until it is bound again or invalidated. */
#include "control_path.h"
#include "nic.h"

int dg_nic_window_open(dg_nic *n, uint32_t type, uint32_t pd, uint32_t *key)
{
	struct nic_key k = {.pd = pd, .window = type};
	TRY(dg_nic_check_process(n));
	if (type != 1 && type != 2)
		return dg_fail(EINVAL, "a memory window has type %u; it is 1 or 2", type);
	TRY(dg_nic_key_add(n, &k, &(const uint8_t){0}, 0));
	atomic_fetch_add_explicit(&n->n_windows, 1, memory_order_relaxed);
	*key = k.key;
	return 0;
}

/* Returns the window with this key, or with another variant of it, or NULL. */
static struct nic_key *find(struct dg_nic *n, uint32_t key)
{
	struct nic_key *k = key_index(key) < DG_NIC_KEYS ? &n->keys[key_index(key)] : NULL;
	return k && k->key && k->window ? k : NULL;
}

int dg_nic_window_close(dg_nic *n, uint32_t key)
{
	if (dg_nic_check_process(n))
		return 0;
	dg_poller_lock(&n->poller);
	struct nic_key *k = find(n, key);
	if (k) {
		dg_nic_key_take_out(n, k);
		atomic_fetch_sub_explicit(&n->n_windows, 1, memory_order_relaxed);
	}
	dg_poller_unlock(&n->poller);
	return k ? 0 : dg_fail(EINVAL, "the NIC has no memory window with key %#x", key);
}

/* Gives the window another key, which has no memory. */
static void unbind(struct dg_nic *n, struct nic_key *k, uint8_t variant)
{
	/* Release: who sees a change of the entry also sees that the key is 0. */
	atomic_store_explicit(&n->table->keys[k - n->keys].key, 0, memory_order_release);
	*k = (struct nic_key){.key = (k->key & ~0xffu) | variant, .pd = k->pd, .generation = variant, .window = k->window};
}

static int refuse(struct dg_nic *n, const char *what, uint64_t value, uint64_t limit)
{
	return nic_fault(n, SYNDROME_BIND, what, value, limit);
}

static int bind_window(struct dg_nic_qp *qp, struct nic_key *k)
{
	struct dg_nic *n = qp->nic;
	const struct nic_binding *b = &n->wqe.window;
	const struct nic_key *of = nic_key_find(n, b->memory.key);
	uint64_t offset;
	if (b->is_free && k->size)
		return refuse(n, "memory window, still bound, key", k->key, 0);
	if (b->qpn != (k->window == 2 ? qp->qpn : WINDOW_ANY))
		return refuse(n, "user of a memory window; it should be the second number", b->qpn,
			      k->window == 2 ? qp->qpn : WINDOW_ANY);
	if (!of || !(of->access & DG_NIC_BIND) || of->pd != k->pd)
		return refuse(n, "lkey, to which this window cannot be bound", b->memory.key, 0);
	if (b->access & (DG_NIC_REMOTE_WRITE | DG_NIC_REMOTE_ATOMIC) && !(of->access & DG_NIC_LOCAL_WRITE))
		return refuse(n, "access of a memory window; its lkey cannot be written", b->access, of->access);
	if (!b->size || !key_covers(of, b->memory.address, b->size, &offset))
		return refuse(n, "memory of a window, outside its lkey", b->memory.address, of->address + of->size);
	const struct nic_key_body *body = &n->table->keys[of - n->keys].body;
	unbind(n, k, b->variant);
	k->access = b->access;
	k->address = b->address;
	k->size = b->size;
	k->offset = offset;
	k->qpn = k->window == 2 ? qp->qpn : 0;
	k->remote = of->remote;
	dg_nic_key_publish(n, k, body->descriptor, (int)body->length);
	return EXECUTED;
}

int dg_nic_window_change(struct dg_nic_qp *qp)
{
	struct dg_nic *n = qp->nic;
	const struct nic_wqe *w = &n->wqe;
	struct nic_key *k = find(n, w->rkey);
	if (qp_flies(qp)) /* what was posted before may use the window */
		return nic_wait(qp, DG_NIC_WAITS_BYTES);
	if (!k || k->pd != qp->c.pd)
		return refuse(n, "key, of no memory window of this protection domain", w->rkey, 0);
	if (w->window.binds)
		return bind_window(qp, k);
	if (w->window.is_own && (k->key != w->rkey || k->qpn != qp->qpn))
		return refuse(n, "key to invalidate, of no window of this queue pair", w->rkey, 0);
	unbind(n, k, w->window.variant);
	return EXECUTED;
}

bool dg_nic_window_invalidate(struct dg_nic_qp *qp, uint32_t key)
{
	struct nic_key *k = find(qp->nic, key);
	if (!k || k->key != key || k->qpn != qp->qpn)
		return false;
	unbind(qp->nic, k, (uint8_t)key);
	return true;
}

void dg_nic_windows_leave(struct dg_nic_qp *qp)
{
	struct dg_nic *n = qp->nic;
	if (!atomic_load_explicit(&n->n_windows, memory_order_relaxed))
		return;
	for (struct nic_key *k = n->keys; k < n->keys + DG_NIC_KEYS; k++)
		if (k->key && k->window && k->qpn == qp->qpn)
			unbind(n, k, (uint8_t)k->key);
}
