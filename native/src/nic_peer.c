// SPDX-License-Identifier: Apache-2.0
/*
 * The peers of queue pairs: their boxes and keys. A peer of the same NIC is in its own table. The
 * table of another NIC is imported by the thread that connects the first queue pair to it; its keys
 * are imported by the resolver when an entry first uses them.
 */
#include <fcntl.h>
#include <stdalign.h>
#include <stdlib.h>
#include <unistd.h>

#include "control_path.h"
#include "nic.h"
#include "thread.h"

#define IMPORT_NS 5000000000ull
#define SEARCH_NS 2000000

static bool is_self(const struct dg_nic *n, const uint8_t gid[16])
{
	return !memcmp(n->table->gid, gid, 16);
}

static const struct nic_table *far_table(const struct dg_nic_qp *qp)
{
	return qp->peer ? qp->peer->table : qp->nic->table;
}

bool dg_nic_peer_ready(struct dg_nic_qp *qp, struct nic_fault *f)
{
	const struct nic_box *b = qp->far;
	uint64_t gid[2];
	const uint32_t state = atomic_load_explicit(&b->state, memory_order_acquire);
	const uint32_t qpn = atomic_load_explicit(&b->qpn, memory_order_relaxed);
	memcpy(gid, qp->nic->table->gid, sizeof gid);
	*f = (struct nic_fault){SYNDROME_RETRIES, "process of the peer, ended", 0, 0};
	if (qp->peer && atomic_load_explicit(&qp->peer->entry->lost, memory_order_relaxed))
		return false;
	*f = (struct nic_fault){SYNDROME_RETRIES, "queue pair of the peer, closed", qpn, qp->address.qpn};
	if (qpn != qp->address.qpn)
		return false;
	*f = (struct nic_fault){SYNDROME_NONE, "state of the peer", state, DG_NIC_RTR};
	if (state < DG_NIC_RTR)
		return false;
	*f = (struct nic_fault){SYNDROME_RETRIES, "state of the peer, an error", state, DG_NIC_RTR};
	if (state > DG_NIC_RTS)
		return false;
	const uint32_t theirs = atomic_load_explicit(&b->peer_qpn, memory_order_relaxed);
	*f = (struct nic_fault){SYNDROME_REMOTE_ACCESS, "peer of the peer, another queue pair", theirs,
				qp->qpn};
	if (theirs != qp->qpn ||
	    atomic_load_explicit(&b->peer_gid[0], memory_order_relaxed) != gid[0] ||
	    atomic_load_explicit(&b->peer_gid[1], memory_order_relaxed) != gid[1])
		return false;
	const uint64_t resets = atomic_load_explicit(&b->resets, memory_order_relaxed);
	*f = (struct nic_fault){SYNDROME_NONE, "state of the peer, not reset as this queue pair was", state,
				DG_NIC_RTR};
	if (resets == qp->ignored)
		return false;
	*f = (struct nic_fault){SYNDROME_RETRIES, "peer, reset and connected again, and this queue pair not",
				qpn, 0};
	if (!is_same_connection(qp, resets))
		return false;
	qp->far_pd = atomic_load_explicit(&b->pd, memory_order_relaxed);
	qp->far_access = atomic_load_explicit(&b->access, memory_order_relaxed);
	return true;
}

const struct nic_key *dg_nic_peer_key(struct dg_nic_qp *qp, uint32_t key, bool *waits)
{
	const uint32_t index = key_index(key);
	if (!key || index >= DG_NIC_KEYS)
		return NULL;
	const uint64_t published =
		atomic_load_explicit(&qp->peer->table->keys[index].key, memory_order_acquire);
	if ((uint32_t)published != key)
		return NULL;
	const struct nic_key *k = qp->peer->keys[index];
	if (k && k->published == published)
		return k;
	if (qp->wanted_key != key) {
		qp->wanted_key = key;
		sem_post(&qp->nic->resolve);
	}
	*waits = true;
	return NULL;
}

/* Copies the peer's entry of a key. Returns what it has in nic_public_key.key, or 0 if the key is
 * closed. */
static uint64_t load_key(const struct nic_table *t, uint32_t key, struct nic_key_body *out)
{
	const struct nic_public_key *p = &t->keys[key_index(key)];
	const uint64_t published = atomic_load_explicit(&p->key, memory_order_acquire);
	if ((uint32_t)published != key)
		return 0;
	load_words_in(out, &p->body, KEY_WORDS, memory_order_acquire);
	/* A length that no descriptor has is a key without memory: the entry must not wait for it. */
	if (out->length > DG_DESCRIPTOR_MAX)
		out->length = 0;
	return atomic_load_explicit(&p->key, memory_order_relaxed) == published ? published : 0;
}

/* On failure the key has no memory. */
static int import_memory(dg_device *dev, struct nic_key *k, const struct nic_key_body *body)
{
	TRY(dg_region_import(dev, body->descriptor, body->length, IMPORT_NS, &k->import));
	k->remote.entry = dg_region_table_find(k->import->name, &k->remote.id);
	/* What the peer says is not trusted. */
	const uint64_t size = k->import->memory.size, room = k->offset < size ? size - k->offset : 0;
	if (room < k->size)
		k->size = room;
	k->access &= dg_nic_key_access(k->import->access);
	return 0;
}

int dg_nic_key_import(struct dg_nic *n, struct nic_key *k, const struct nic_key_body *body)
{
	int rc = import_memory(n->engine.dev, k, body);
	/* A program whose own memory is all the host's may have a peer with GPU memory. */
	if (rc == -EOPNOTSUPP && n->is_part && (n->gpu || !dg_nic_gpu_open(n, 0)))
		rc = import_memory(n->gpu->dev, k, body);
	if (!rc && n->engine.dev->gpu && by_exporter(k->remote.entry)) {
		dg_region_end(k->import);
		k->import = NULL;
		k->remote.entry = NULL;
		rc = import_memory(n->engine.soft, k, body);
	}
	return rc;
}

/* Makes the key that `body` describes. An import that fails leaves it without memory, so that the
 * entry that waits ends with an error. */
static struct nic_key *import_key(struct dg_nic *n, uint64_t published, const struct nic_key_body *body)
{
	struct nic_key *k = calloc(1, sizeof *k);
	if (!k)
		return NULL;
	*k = (struct nic_key){
		.published = published,
		.pd = body->pd,
		.access = body->access,
		.address = body->address,
		.size = body->size,
		.offset = body->offset,
		.qpn = body->qpn,
	};
	if (body->length)
		dg_nic_key_import(n, k, body);
	return k;
}

static void free_key(struct nic_key *k)
{
	if (!k)
		return;
	dg_region_end(k->import);
	free(k);
}

/* Returns a queue pair that waits for a key, and copies what is needed. The peer is referenced. */
static struct nic_peer *find_work(struct dg_nic *n, uint32_t *key, struct nic_key_body *body,
				  uint64_t *published)
{
	for (struct dg_nic_qp *qp = n->qps; qp; qp = qp->next) {
		if (!qp->wanted_key || !qp->peer)
			continue;
		*key = qp->wanted_key;
		*published = load_key(qp->peer->table, *key, body);
		qp->peer->refs++;
		return qp->peer;
	}
	return NULL;
}

static void forget_wanted(struct dg_nic *n, const struct nic_peer *peer, uint32_t key)
{
	for (struct dg_nic_qp *qp = n->qps; qp; qp = qp->next)
		if (qp->peer == peer && qp->wanted_key == key)
			qp->wanted_key = 0;
}

/* Imports one key that a queue pair waits for. Returns false if none does. */
static bool resolve_one(struct dg_nic *n)
{
	struct nic_key_body body;
	struct nic_key *old = NULL, *made = NULL;
	uint32_t key;
	uint64_t published;
	dg_poller_lock(&n->poller);
	struct nic_peer *peer = find_work(n, &key, &body, &published);
	dg_poller_unlock(&n->poller);
	if (!peer)
		return false;
	if (published)
		made = import_key(n, published, &body);
	dg_poller_lock(&n->poller);
	if (made) {
		struct nic_key **at = &peer->keys[key_index(key)];
		old = *at;
		*at = made;
	}
	forget_wanted(n, peer, key);
	dg_poller_unlock(&n->poller);
	free_key(old);
	dg_nic_peer_release(n, peer);
	return true;
}

/* Waits for a key to import, or with datagrams for a while: other parts of the adapter come and go. */
static void wait_for_work(struct dg_nic *n)
{
	struct timespec t;
	dg_poller_lock(&n->poller);
	const bool searches = n->n_datagram_qps;
	dg_poller_unlock(&n->poller);
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += SEARCH_NS;
	t.tv_sec += t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	while (searches ? sem_timedwait(&n->resolve, &t) : sem_wait(&n->resolve))
		if (errno == ETIMEDOUT)
			return;
}

static void *resolver_thread(void *arg)
{
	struct dg_nic *n = arg;
	for (;;) {
		wait_for_work(n);
		if (atomic_load_explicit(&n->resolver_stop, memory_order_acquire))
			return NULL;
		while (resolve_one(n))
			;
		dg_nic_gpu_queues(n);
		dg_nic_parts_search(n);
	}
}

void dg_nic_resolver_stop(struct dg_nic *n)
{
	if (!n->resolver_runs)
		return;
	atomic_store_explicit(&n->resolver_stop, 1, memory_order_release);
	sem_post(&n->resolve);
	pthread_join(n->resolver, NULL);
	n->resolver_runs = false;
}

/* Reads the descriptor of another NIC's table. */
static int read_descriptor(const char *path, uint8_t *out, size_t cap)
{
	/* O_NONBLOCK: it may be a FIFO. */
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT
			       ? dg_fail(ENOTCONN, "no NIC of this machine has the peer's GID (%s)", path)
			       : dg_fail_errno("cannot open %s", path);
	const ssize_t length = read(fd, out, cap);
	close(fd);
	return length > 0 ? (int)length : dg_fail(EBADMSG, "%s is empty, or not the file of a NIC", path);
}

/* Maps another NIC's table. */
static int import_table(dg_device *soft, struct nic_peer *p)
{
	uint8_t descriptor[DG_DESCRIPTOR_MAX];
	char path[sizeof ((struct dg_nic *)0)->table_file];
	int rc = dg_nic_table_path(p->gid, path, sizeof path);
	if (!rc)
		rc = read_descriptor(path, descriptor, sizeof descriptor);
	if (rc < 0)
		return rc;
	rc = dg_region_import(soft, descriptor, (size_t)rc, IMPORT_NS, &p->import);
	if (rc == -ENOTCONN || rc == -ENOKEY) /* its process has ended */
		unlink(path);
	if (rc)
		return dg_fail_in(rc, "the peer's NIC");
	p->entry = p->import->entry;
	if (p->entry->method != DG_METHOD_MAP || p->entry->size < sizeof *p->table)
		return dg_fail(EBADMSG, "the table of the peer's NIC has %llu bytes, not %zu",
			       (unsigned long long)p->entry->size, sizeof *p->table);
	p->table = (const struct nic_table *)p->entry->base;
	if (!p->import->exporter) {
		p->table = p->own = dg_nic_table_take(p->gid);
		if (!p->own)
			return dg_fail(ENOTCONN, "the peer's NIC was closed");
	}
	if ((uintptr_t)p->table % alignof(struct nic_table)) /* Arm's atomics need it */
		return dg_fail(EBADMSG, "the table of the peer's NIC is not aligned");
	if (p->table->magic != NIC_MAGIC || p->table->version != NIC_VERSION)
		return dg_fail(EPROTONOSUPPORT, "the peer's NIC has version %u of its table, this one "
						"has %u: use one version of dgkit on both sides",
			       p->table->version, NIC_VERSION);
	return 0;
}

static void free_peer(struct nic_peer *p)
{
	for (uint32_t i = 0; i < DG_NIC_KEYS; i++)
		free_key(p->keys[i]);
	dg_nic_table_drop(p->own);
	dg_region_end(p->import);
	free(p);
}

int dg_nic_part_info_get(dg_device *soft, uint32_t part, dg_nic_part_info *out)
{
	if (part >= DG_NIC_PARTS)
		return dg_fail(EINVAL, "part %u of an adapter; there are %d", part, DG_NIC_PARTS);
	struct nic_peer *p = calloc(1, sizeof *p);
	if (!p)
		return dg_fail(ENOMEM, "out of memory for a part of an adapter");
	dg_nic_part_gid(part << NIC_PART_SHIFT, p->gid);
	const int rc = import_table(soft, p);
	if (!rc)
		*out = (dg_nic_part_info){
			.pid = p->table->pid,
			.queue_pairs = atomic_load_explicit(&p->table->queue_pairs, memory_order_relaxed),
			.keys = atomic_load_explicit(&p->table->n_keys, memory_order_relaxed),
		};
	free_peer(p);
	return rc;
}

void dg_nic_peer_release(struct dg_nic *n, struct nic_peer *peer)
{
	dg_poller_lock(&n->poller);
	const bool last = !--peer->refs;
	if (last) {
		struct nic_peer **at = &n->peers;
		while (*at != peer)
			at = &(*at)->next;
		*at = peer->next;
	}
	dg_poller_unlock(&n->poller);
	if (last)
		free_peer(peer);
}

/* Returns the referenced peer with this GID, if it is alive, or NULL. */
static struct nic_peer *find_peer(struct dg_nic *n, const uint8_t gid[16])
{
	dg_poller_lock(&n->poller);
	struct nic_peer *p = n->peers;
	while (p && (memcmp(p->gid, gid, 16) || atomic_load(&p->entry->lost)))
		p = p->next;
	if (p)
		p->refs++;
	dg_poller_unlock(&n->poller);
	return p;
}

int dg_nic_resolver_start(struct dg_nic *n)
{
	int rc = 0;
	dg_poller_lock(&n->poller);
	if (!n->resolver_runs)
		rc = dg_thread_start(&n->resolver, "dgkit-nic-keys", resolver_thread, n);
	n->resolver_runs = !rc;
	dg_poller_unlock(&n->poller);
	return rc;
}

/* Imports the table of another NIC. */
static int open_peer(struct dg_nic *n, const uint8_t gid[16], struct nic_peer **out)
{
	int rc = dg_nic_resolver_start(n);
	struct nic_peer *p = rc ? NULL : calloc(1, sizeof *p);
	if (!p)
		return rc ? rc : dg_fail(ENOMEM, "out of memory for the peer's NIC");
	memcpy(p->gid, gid, 16);
	p->refs = 1;
	rc = import_table(n->engine.soft, p);
	if (rc) {
		free_peer(p);
		return rc;
	}
	dg_poller_lock(&n->poller);
	p->next = n->peers;
	n->peers = p;
	dg_poller_unlock(&n->poller);
	*out = p;
	return 0;
}

int dg_nic_peer_take(struct dg_nic *n, const uint8_t gid[16], struct nic_peer **out)
{
	*out = find_peer(n, gid);
	return *out ? 0 : open_peer(n, gid, out);
}

int dg_nic_peer_connect(struct dg_nic_qp *qp, const dg_nic_address *to)
{
	struct dg_nic *n = qp->nic;
	struct nic_peer *peer = NULL;
	if (!is_self(n, to->gid))
		TRY(dg_nic_peer_take(n, to->gid, &peer));
	struct dg_queue *q = qp->x.soft_q;
	if (peer && n->engine.dev->gpu && !q) {
		const int rc = dg_queue_open_for_kernels(n->engine.soft, 1, n, &q);
		if (rc) {
			dg_nic_peer_release(n, peer);
			return rc;
		}
	}
	dg_poller_lock(&n->poller);
	qp->x.soft_q = q;
	qp->peer = peer;
	qp->far = &far_table(qp)->boxes[qp_index(to->qpn)];
	dg_poller_unlock(&n->poller);
	return 0;
}

void dg_nic_peer_leave(struct dg_nic_qp *qp)
{
	struct dg_nic *n = qp->nic;
	dg_poller_lock(&n->poller);
	struct nic_peer *peer = qp->peer;
	qp->peer = NULL;
	dg_poller_unlock(&n->poller);
	if (peer)
		dg_nic_peer_release(n, peer);
}
