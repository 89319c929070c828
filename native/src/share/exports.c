// SPDX-License-Identifier: Apache-2.0
/*
 * The exporter's table: which key opens which region, and which processes have imported it; and
 * revocation. One lock guards all of it, taken by the share server's thread and by the callers of
 * control functions.
 */
#include "share/exports.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "copy.h"
#include "share/polling.h"
#include "share/unix_socket.h"
#include "atomic.h"
#include "clock.h"
#include "error.h"

struct dg_export {
	uint8_t key[16];
	uint32_t access;
	struct dg_region *region;
	struct dg_export *next_hash, *next_region;
};

struct dg_import {
	struct dg_region *region; /* NULL once revoked and quiet */
	struct conn *conn;
	uint32_t slot, access;
	bool by_cpu; /* only threads of the importing process access the memory */
	struct dg_import *next;
};

#define BUCKETS 16384u
static struct dg_export *table[BUCKETS];
static struct conn *conns; /* all connections of importers */
static struct conn *self_conn; /* this process's own connection, if it imports from itself */

static uint32_t bucket_of(const uint8_t key[16])
{
	uint32_t h;
	memcpy(&h, key, sizeof h);
	return h % BUCKETS;
}

static struct dg_export *find_export(const uint8_t key[16])
{
	struct dg_export *e = table[bucket_of(key)];
	while (e && memcmp(e->key, key, 16))
		e = e->next_hash;
	return e;
}

int dg_share_export(struct dg_region *r, uint32_t access, uint8_t key[16])
{
	int rc = 0;
	dg_share_lock();
	struct dg_export *e = r->exports;
	while (e && e->access != access)
		e = e->next_region;
	/* Checked under the lock: after a closer's remove_exports() no export is added. */
	if (atomic_load(&r->closing)) {
		rc = dg_fail(ESTALE, "the region is closed");
		goto unlock;
	}
	if (!e) {
		e = calloc(1, sizeof *e);
		if (!e) {
			rc = dg_fail(ENOMEM, "out of memory for an export");
			goto unlock;
		}
		if (getrandom(e->key, sizeof e->key, 0) != sizeof e->key) {
			rc = dg_fail_errno("cannot get a random key");
			free(e);
			goto unlock;
		}
		e->access = access;
		e->region = r;
		e->next_region = r->exports;
		r->exports = e;
		e->next_hash = table[bucket_of(e->key)];
		table[bucket_of(e->key)] = e;
	}
	memcpy(key, e->key, 16);
unlock:
	dg_share_unlock();
	return rc;
}

int dg_share_enter(const uint8_t key[16], const struct dg_device *dev, struct dg_region **out,
		   uint32_t *access)
{
	dg_share_lock();
	/* Under the lock: a region that is in the table is not freed. */
	struct dg_export *e = find_export(key);
	bool entered = e && e->region->dev == dev && life_enter(&e->region->life);
	if (entered) {
		*out = e->region;
		*access = e->access;
	}
	dg_share_unlock();
	return entered ? 0 : -ENOKEY;
}

static void remove_exports(struct dg_region *r)
{
	while (r->exports) {
		struct dg_export *e = r->exports, **at = &table[bucket_of(e->key)];
		while (*at != e)
			at = &(*at)->next_hash;
		*at = e->next_hash;
		r->exports = e->next_region;
		free(e);
	}
}

/* Connections of importers, and their slots. */

struct conn *dg_conn_new(int fd, pid_t pid, int pidfd)
{
	struct conn *c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->fd = fd;
	c->pid = pid;
	c->pidfd = pidfd;
	c->control_fd = c->maps_fd = -1;
	c->next = conns;
	conns = c;
	return c;
}

/* Once a connection. Sealed: an importer that shrank the memory would have this process raise SIGBUS. */
static int control_open(struct conn *c)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	if (c->control)
		return 0;
	void *at = MAP_FAILED;
	int fd = memfd_create("dgkit-control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd >= 0 && !ftruncate(fd, (off_t)CONTROL_SIZE) && !fcntl(fd, F_ADD_SEALS, seals))
		at = mmap(NULL, CONTROL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) {
		int rc = dg_fail_errno("cannot create control memory for an importer");
		if (fd >= 0)
			close(fd);
		return rc;
	}
	c->control_fd = fd;
	c->control = at;
	c->maps_fd = c->pidfd < 0 ? -1 : dg_address_space_open(c->pid);
	return 0;
}

/* Reserves the pages, so that running out of memory is an error here rather than a signal at the
 * first access. */
static int control_reserve(struct conn *c, uint64_t from, uint64_t size)
{
	if (fallocate(c->control_fd, 0, (off_t)from, (off_t)size))
		return dg_fail_errno("cannot reserve control memory for an importer");
	return 0;
}

static int slots_grow(struct conn *c)
{
	uint32_t n = c->slots + CONTROL_STEP;
	if (n > CONTROL_SLOTS)
		return dg_fail(EMFILE,
			       "the importing process has %u regions of this exporter open, which "
			       "is the maximum: close some",
			       CONTROL_SLOTS);
	void *imports = realloc(c->imports, sizeof *c->imports * n);
	if (imports)
		c->imports = imports;
	void *free_slots = realloc(c->free_slots, sizeof *c->free_slots * n);
	if (free_slots)
		c->free_slots = free_slots;
	if (!imports || !free_slots)
		return dg_fail(ENOMEM, "out of memory for %u imports", n);
	TRY(control_reserve(c, c->slots * sizeof(struct dg_gate),
			    CONTROL_STEP * sizeof(struct dg_gate)));
	for (uint32_t i = n; i-- > c->slots;)
		c->free_slots[c->n_free++] = i;
	memset(c->imports + c->slots, 0, sizeof *c->imports * CONTROL_STEP);
	c->slots = n;
	return 0;
}

static struct dg_gate *gate_of(const struct conn *c, uint32_t slot)
{
	return (struct dg_gate *)c->control + slot;
}

static int import_add(struct conn *c, struct dg_export *e, bool by_cpu, uint32_t *slot)
{
	int rc = control_open(c);
	if (!rc && !c->n_free)
		rc = slots_grow(c);
	if (rc)
		return rc;
	struct dg_import *m = calloc(1, sizeof *m);
	if (!m)
		return dg_fail(ENOMEM, "out of memory for an import");
	*slot = m->slot = c->free_slots[--c->n_free];
	m->conn = c;
	m->region = e->region;
	m->access = e->access;
	m->by_cpu = by_cpu;
	m->next = e->region->imports;
	e->region->imports = m;
	c->imports[m->slot] = m;
	memset(gate_of(c, m->slot), 0, sizeof(struct dg_gate));
	return 0;
}

static void import_unlink(struct dg_import *m)
{
	if (!m->region)
		return;
	struct dg_import **at = &m->region->imports;
	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	/* Release: a reader that sees the value also sees what the importer stored before it ended.
	 * Those stores precede the importer's end, and the kernel orders the end before its
	 * notification. */
	if (m->region->watched && !m->region->imports)
		atomic_store_explicit(m->region->watched, m->region->watched_value,
				      memory_order_release);
	m->region = NULL;
}

void dg_share_watch(struct dg_region *r, _Atomic uint64_t *word, uint64_t value)
{
	dg_share_lock();
	r->watched_value = value;
	r->watched = word;
	dg_share_unlock();
}

static void import_remove(struct conn *c, uint32_t slot)
{
	if (slot >= c->slots || !c->imports[slot])
		return;
	struct dg_import *m = c->imports[slot];
	import_unlink(m);
	c->imports[slot] = NULL;
	c->free_slots[c->n_free++] = slot;
	free(m);
}

/* Whether the importing process has ended and its memory and files are freed. Without a pidfd, as
 * on kernels before 5.3, this is known only once its parent has waited for it; if its pid is reused
 * by then, only once that process has ended, too. */
static bool process_ended(const struct conn *c)
{
	if (c->pidfd >= 0)
		return dg_pidfd_dead(c->pidfd);
	return c->pid > 0 && kill(c->pid, 0) && errno == ESRCH;
}

/* Whether no more bytes can move through the slot, once it is revoked or its connection has ended.
 * Either nothing is in flight, or everything that could move the rest is gone:
 * - the process has ended;
 * - or, if only its CPUs move the bytes, no thread uses the address space that the import was made
 *   for. An exec has this effect: it ends all other threads of the process before it leaves the
 *   address space. The process keeps its pid and pidfd, and the end of the connection alone would
 *   prove nothing: the process may have closed the socket, and a forked child may keep it open. A
 *   forked child has a copy of the address space without the threads that copied, and dgkit refuses
 *   its transfers.
 * Transfers by a device may continue until the kernel has closed the device's files, which an exec
 * does after it has left the address space: such a slot waits for the end of the process. */
static bool import_over(const struct dg_import *m)
{
	const struct conn *c = m->conn;
	return gate_quiet(gate_of(c, m->slot)) || process_ended(c) ||
	       (m->by_cpu && dg_address_space_gone(c->maps_fd));
}

void dg_conn_free(struct conn *c)
{
	for (uint32_t i = 0; i < c->slots; i++) {
		if (c->imports[i] && c->imports[i]->region)
			c->imports[i]->region->importers_lost++;
		import_remove(c, i);
	}
	struct conn **at = &conns;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	/* Explicitly: an fd that is shared with a forked child stays in the epoll set after
	 * close(), when c is already freed. */
	dg_share_server_unwatch(c->fd, c->pidfd);
	if (c->control)
		munmap(c->control, CONTROL_SIZE);
	if (c->control_fd >= 0)
		close(c->control_fd);
	if (c->fd >= 0)
		close(c->fd);
	if (c->pidfd >= 0)
		close(c->pidfd);
	if (c->maps_fd >= 0)
		close(c->maps_fd);
	free(c->imports);
	free(c->free_slots);
	free(c);
}

bool dg_conn_over(struct conn *c)
{
	/* Of a process in another pid namespace, whose number is 0 here, nothing is known but the end of
	 * its connection. */
	bool known = c->pidfd >= 0 || c->pid > 0;
	for (uint32_t i = 0; known && i < c->slots; i++)
		if (c->imports[i] && !import_over(c->imports[i]))
			return false;
	return true;
}

void dg_conns_sweep(void)
{
	struct conn *next;
	for (struct conn *c = conns; c; c = next) {
		next = c->next;
		if (c != self_conn && c->fd < 0 && c->pidfd < 0 && dg_conn_over(c))
			dg_conn_free(c);
	}
}

void dg_conns_free(void)
{
	while (conns)
		dg_conn_free(conns);
	self_conn = NULL;
}

void dg_exports_forget_all(void)
{
	memset(table, 0, sizeof table);
}

/* Requests of importers. */

static int reply_fds(struct conn *c, struct dg_region *r, struct dg_share_reply *a, int fds[2],
		     int *n_fds)
{
	char name[32];
	*n_fds = 0;
	if (!c->control_sent) {
		fds[(*n_fds)++] = c->control_fd;
		a->has_control = 1;
	}
	if (r->memory.fd < 0)
		return 0;
	/* A new open file description, which cannot be mapped writable if the export is read-only.
	 * The importer could reopen the file: this stops mistakes; readonly_export=True also stops
	 * an adversary. */
	bool write = a->access & DG_ACCESS_WRITE;
	if (r->memory.kind != DG_KIND_HOST) { /* the fd of a GPU block cannot be opened again */
		fds[*n_fds] = fcntl(r->memory.fd, F_DUPFD_CLOEXEC, 0);
		if (fds[*n_fds] < 0)
			return dg_fail_errno("cannot duplicate the fd of a GPU block");
		++*n_fds;
		return 0;
	}
	snprintf(name, sizeof name, "/proc/self/fd/%d", r->memory.fd);
	int fd = open(name, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (fd < 0)
		return dg_fail_errno("cannot open %s", name);
	fds[(*n_fds)++] = fd;
	return 0;
}

int dg_conn_import(struct conn *c, const struct dg_share_request *q, struct dg_share_reply *a,
		   int fds[2], int *n_fds)
{
	struct dg_export *e = find_export(q->key);
	if (!e)
		return dg_fail(ENOKEY, "the exporter has no region for this descriptor: it was "
				       "closed, or the descriptor is forged");
	struct dg_region *r = e->region;
	int rc = import_add(c, e, q->size == SHARE_BY_CPU, &a->slot);
	if (rc)
		return rc;
	a->access = e->access;
	a->method = r->memory.kind != DG_KIND_HOST ? DG_METHOD_GPU
		    : r->memory.fd >= 0            ? DG_METHOD_MAP
						   : DG_METHOD_PROXY;
	a->kind = r->memory.kind;
	a->block = r->memory.block;
	memcpy(a->uuid, r->memory.uuid, sizeof a->uuid);
	memcpy(a->handle, r->memory.handle, sizeof a->handle);
	a->size = r->memory.size;
	a->address = (uint64_t)(uintptr_t)r->memory.addr;
	a->fd_offset = r->memory.fd_offset;
	if (a->method == DG_METHOD_PROXY && !c->bounce) {
		rc = control_reserve(c, BOUNCE_OFFSET, BOUNCE_SIZE);
		c->bounce = !rc;
	}
	if (r->memory.flags & DG_MEMORY_SHARE_PROCESS)
		prctl(PR_SET_PTRACER, (unsigned long)c->pid, 0, 0, 0);
	if (!rc)
		rc = reply_fds(c, r, a, fds, n_fds);
	if (rc) {
		import_remove(c, a->slot);
		/* The control memory is sent with the first successful reply. */
		a->has_control = 0;
		*n_fds = 0;
	}
	return rc;
}

void dg_conn_release(struct conn *c, uint32_t slot)
{
	import_remove(c, slot);
}

/* Whether the word can be read and written. The kernel sets no bit of it, atomically, and fails where
 * this process would get a signal. (It also wakes a thread that waits for the word at a certain
 * value, which by the rules of futexes looks again.) */
static bool is_writable(void *word)
{
	static uint32_t nobody_waits;
	const uint32_t no_bits = FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0x7ff);
	return syscall(SYS_futex, &nobody_waits, FUTEX_WAKE_OP_PRIVATE, 0, 0L, word, no_bits) >= 0;
}

/* The program may have unmapped or protected its memory since it was registered, and an importer's
 * request must not end the exporter: checked before, since no atomic operation fails. */
static uint32_t run_atomic(void *word, char *bounce, uint64_t size)
{
	struct dg_atomic a;
	memcpy(&a, bounce, sizeof a);
	a.size = (uint32_t)size;
	if ((uintptr_t)word % size)
		return DG_IO_FAILED;
	if (!is_writable(word))
		return DG_REMOTE_ACCESS_ERROR;
	const uint64_t old = dg_atomic_run(&a, word);
	memcpy(bounce, &old, sizeof old);
	return DG_OK;
}

/* Returns the bytes that q names, if the import has these rights to them, otherwise NULL. */
static char *bytes_of(struct conn *c, const struct dg_share_request *q, uint32_t access)
{
	struct dg_import *m = q->slot < c->slots ? c->imports[q->slot] : NULL;
	if (!m || !m->region || gate_revoked(gate_of(c, q->slot)) || !c->bounce)
		return NULL;
	const dg_memory *mem = &m->region->memory;
	if (mem->kind != DG_KIND_HOST || (m->access & access) != access || q->size > BOUNCE_SIZE ||
	    q->offset > mem->size || q->size > mem->size - q->offset)
		return NULL;
	if (q->kind == SHARE_ATOMIC &&
	    ((q->size != 4 && q->size != 8) || mem->flags & DG_MEMORY_MAY_FAULT))
		return NULL;
	return (char *)mem->addr + q->offset;
}

uint32_t dg_conn_access(struct conn *c, const struct dg_share_request *q)
{
	static const uint32_t needs[] = {[SHARE_GET] = DG_ACCESS_READ,
					 [SHARE_PUT] = DG_ACCESS_WRITE,
					 [SHARE_ATOMIC] = DG_ACCESS_READ | DG_ACCESS_WRITE};
	char *bytes = bytes_of(c, q, needs[q->kind]), *bounce;
	if (!bytes)
		return DG_REMOTE_ACCESS_ERROR;
	bounce = c->control + BOUNCE_OFFSET;
	if (q->kind == SHARE_ATOMIC)
		return run_atomic(bytes, bounce, q->size);
	/* Guarded, for the same reason. */
	const int rc = q->kind == SHARE_PUT ? dg_copy_guarded(bytes, bounce, q->size)
					    : dg_copy_guarded(bounce, bytes, q->size);
	return (uint32_t)guarded_status(rc, DG_REMOTE_ACCESS_ERROR);
}

int dg_share_import_self(const uint8_t key[16], struct dg_share_reply *a,
			 struct dg_region_entry *entry, dg_memory *memory)
{
	struct dg_share_request q = {.kind = SHARE_IMPORT};
	int fds[2], n_fds = 0, rc;
	memset(a, 0, sizeof *a);
	memcpy(q.key, key, sizeof q.key);
	dg_share_lock();
	if (!self_conn)
		self_conn = dg_conn_new(-1, getpid(), -1);
	rc = self_conn ? 0 : dg_fail(ENOMEM, "out of memory for an import");
	if (!rc) {
		self_conn->control_sent = true;
		rc = dg_conn_import(self_conn, &q, a, fds, &n_fds);
	}
	if (!rc) {
		/* Under the lock: another thread may close the region as soon as the lock is
		 * released. */
		*memory = self_conn->imports[a->slot]->region->memory;
		entry->gate = gate_of(self_conn, a->slot);
		entry->may_fault = !!(memory->flags & DG_MEMORY_MAY_FAULT);
	}
	dg_share_unlock();
	for (int i = 0; i < n_fds; i++)
		close(fds[i]);
	return rc;
}

void dg_share_release_self(uint32_t slot)
{
	dg_share_lock();
	import_remove(self_conn, slot);
	dg_share_unlock();
}

uint32_t dg_share_importers(struct dg_region *r)
{
	uint32_t n = 0;
	dg_share_lock();
	for (struct dg_import *m = r->imports; m; m = m->next)
		n++;
	dg_share_unlock();
	return n;
}

bool dg_share_abandoned(struct dg_region *r)
{
	dg_share_lock();
	bool abandoned = r->importers_lost && !r->imports;
	dg_share_unlock();
	return abandoned;
}

/* Revokes every import and unlinks those that are over. Returns one that still has transfers in
 * flight, or NULL. */
static struct dg_import *revoke_pass(struct dg_region *r)
{
	struct dg_import *busy = NULL, *next;
	for (struct dg_import *m = r->imports; m; m = next) {
		struct dg_gate *g = gate_of(m->conn, m->slot);
		next = m->next;
		atomic_store_explicit(&g->revoked, 1, memory_order_seq_cst);
		if (import_over(m))
			import_unlink(m);
		else
			busy = m;
	}
	return busy;
}

int dg_share_revoke(struct dg_region *r, uint64_t deadline_ns)
{
	for (uint32_t naps = 0;; naps++) {
		dg_share_lock();
		remove_exports(r);
		struct dg_import *busy = revoke_pass(r);
		pid_t pid = busy ? busy->conn->pid : 0;
		dg_share_unlock();
		if (!busy)
			return 0;
		if (now_ns() >= deadline_ns)
			return dg_fail(EBUSY,
				       "local region #%u: process %d still has transfers in flight "
				       "on it; new ones are refused: keep its memory and close it "
				       "again, or end that process",
				       r->name, (int)pid);
		dg_devices_poll(); /* the importer may be this process itself */
		usleep(naps < 50 ? 20 : 500);
	}
}
