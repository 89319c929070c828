// SPDX-License-Identifier: Apache-2.0
/* The proxy's thread; opening, connecting and closing rings. See gpu_ring.h for the states, and
 * poller.c for how long the thread spins and sleeps. */
#include "gpu_ring.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "control_path.h"
#include "share/server.h"

enum { PAGE = 4096 }; /* unit of the layout; neither side's page size, which may differ */
enum { TRACE_OWN = 1, TRACE_SHARED = 2 }; /* dg_ring_config.trace */

/* Makes one pass over all rings, with at most PASS_RECORDS for each. Returns whether anything was
 * done. */
static bool pass(void *arg)
{
	struct dg_proxy *p = arg;
	bool busy = false;
	for (struct dg_ring *r = p->rings; r; r = r->next)
		busy |= dg_ring_serve(r);
	return busy;
}

static int same_process(const struct dg_proxy *p)
{
	if (p->fork_generation == atomic_load(&dg_fork_generation))
		return 0;
	return dg_fail(EOWNERDEAD, "this GPU queue was opened before fork(): open one in the child");
}

/* Acquires the lock for a call on an open ring, which another thread may be closing. */
static int enter(struct dg_ring *r)
{
	TRY(same_process(r->proxy));
	dg_poller_lock(&r->proxy->poller);
	if (!r->closed)
		return 0;
	dg_poller_unlock(&r->proxy->poller);
	return dg_fail(ESTALE, "the GPU queue is closed");
}

/* Drops a reference, which is the handle's or that of a ring that is being freed. */
static void proxy_unref(struct dg_proxy *p)
{
	/* acq_rel: everything that each holder did with the proxy happens before the last one frees
	 * it. */
	if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
		return;
	pthread_mutex_destroy(&p->poller.lock);
	free(p->engine.words);
	free(p);
}

int dg_proxy_open(dg_device *dev, uint64_t spin_ns, dg_proxy **out)
{
	*out = NULL;
	if (dev->fork_generation != atomic_load(&dg_fork_generation))
		return dg_fail(EOWNERDEAD,
			       "this device was opened before fork(): open one in the child");
	struct dg_proxy *p = calloc(1, sizeof *p);
	if (!p)
		return dg_fail(ENOMEM, "out of memory for a proxy");
	p->engine.dev = dev;
	atomic_init(&p->refs, 1);
	p->fork_generation = dev->fork_generation;
	const int rc = dg_poller_start(&p->poller, "dgkit-proxy", spin_ns, pass, p);
	if (rc) {
		free(p);
		return rc;
	}
	*out = p;
	return 0;
}

static void free_staging(struct staging *s)
{
	dg_region_end(s->region);
	free(s->bytes);
	free(s);
}

int dg_proxy_close(dg_proxy *p)
{
	/* A forked child has no such thread, and the lock may be held forever. */
	if (p->fork_generation != atomic_load(&dg_fork_generation))
		return 0;
	dg_poller_lock(&p->poller);
	const bool serves = p->rings;
	struct staging *stagings = serves ? NULL : p->stagings;
	if (!serves) {
		p->stagings = NULL;
		/* Under the lock, so that a ring that is still being closed does not keep staging
		 * memory. */
		dg_poller_stop(&p->poller);
	}
	dg_poller_unlock(&p->poller);
	if (serves)
		return dg_fail(EBUSY, "the proxy still serves GPU queues: close them first");
	dg_poller_join(&p->poller);
	for (struct staging *next; stagings; stagings = next) {
		next = stagings->next;
		free_staging(stagings);
	}
	proxy_unref(p);
	return 0;
}

int dg_proxy_stats_get(dg_proxy *p, dg_proxy_stats *out)
{
	TRY(same_process(p));
	dg_poller_lock(&p->poller);
	const struct dg_poller_stats *s = &p->poller.stats;
	*out = (dg_proxy_stats){
		.passes = s->passes,
		.idle = s->idle,
		.spun_ns = s->spun_ns,
		.sleeps = s->sleeps,
		.slept_ns = s->slept_ns,
		.records = p->records,
		.batches = p->engine.batches,
	};
	for (struct dg_ring *r = p->rings; r; r = r->next)
		out->rings++;
	dg_poller_unlock(&p->poller);
	return 0;
}

static int check_config(const dg_ring_config *cfg)
{
	if (cfg->depth < DG_RING_DEPTH_MIN || cfg->depth > DG_RING_DEPTH_MAX ||
	    cfg->depth & (cfg->depth - 1))
		return dg_fail(EINVAL, "depth is %u; a GPU queue holds a power of two from %u to %u "
				       "operations",
			       cfg->depth, DG_RING_DEPTH_MIN, DG_RING_DEPTH_MAX);
	if (cfg->first & ~DG_SEQUENCE_MASK)
		return dg_fail(EINVAL, "first is %llu; a ticket has %u bits",
			       (unsigned long long)cfg->first, DG_SEQUENCE_BITS);
	if (cfg->trace > TRACE_SHARED || (cfg->memory && cfg->trace == TRACE_OWN))
		return dg_fail(EINVAL, "trace is %u; it is 0, 1, or 2 for a GPU queue of another process",
			       cfg->trace);
	if (cfg->memory && cfg->n_peers > DG_RING_PEERS)
		return dg_fail(EINVAL, "a GPU queue of another process has at most %u local regions; %u "
				       "were given",
			       DG_RING_PEERS, cfg->n_peers);
	return 0;
}

/* Layout of the memory: dg_gpu_queue in the first page, then the kernel's trace, the proxy's
 * stamps, and the ring. */
struct layout {
	uint64_t trace, stamps, ring, size;
};

static struct layout layout_of(const dg_ring_config *cfg)
{
	struct layout l = {
		.trace = cfg->trace ? 16ull * cfg->depth : 0,
		.stamps = cfg->trace == TRACE_SHARED ? 8ull * STAMP_WORDS * cfg->depth : 0,
	};
	l.ring = PAGE + (l.trace + l.stamps + PAGE - 1) / PAGE * PAGE;
	l.size = (l.ring + DG_RING_SIZE((uint64_t)cfg->depth) + PAGE - 1) / PAGE * PAGE;
	return l;
}

uint64_t dg_ring_memory_size(const dg_ring_config *cfg)
{
	return layout_of(cfg).size;
}

static void place_ring(struct dg_ring *r, char *base, const dg_ring_config *cfg)
{
	const struct layout l = layout_of(cfg);
	r->base = base;
	r->size = l.size;
	r->handle = (struct dg_gpu_queue *)base;
	r->gpu_trace = l.trace ? (uint64_t *)(base + PAGE) : NULL;
	r->stamps = l.stamps ? (dg_u64 *)(base + PAGE + l.trace) : NULL;
	r->out = (struct dg_gpu_ring *)(base + l.ring);
	r->completions = (struct dg_gpu_completion *)(base + l.ring + DG_RING_COMPLETIONS);
	r->records = (struct dg_gpu_record *)(base + l.ring + DG_RING_RECORDS((uint64_t)cfg->depth));
}

/* Allocates the memory in this process: a memfd, sealed because the process of an emulated GPU also
 * maps it, and could otherwise shrink it. */
static int map_ring(struct dg_ring *r, const dg_ring_config *cfg)
{
	const uint64_t size = layout_of(cfg).size;
	r->fd = memfd_create("dgkit-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (r->fd < 0)
		return dg_fail_errno("cannot create the memory of a GPU queue");
	const int rc = posix_fallocate(r->fd, 0, (off_t)size);
	if (rc)
		return dg_fail(rc, "cannot allocate %llu bytes for a GPU queue: %s",
			       (unsigned long long)size, strerror(rc));
	if (fcntl(r->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return dg_fail_errno("cannot seal the memory of a GPU queue");
	void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (base == MAP_FAILED)
		return dg_fail_errno("cannot map the memory of a GPU queue");
	place_ring(r, base, cfg);
	return 0;
}

static int find_id(uint32_t name, uint64_t *id)
{
	return dg_region_table_find(name, id)
		       ? 0
		       : dg_fail(ESTALE, "region #%u of the GPU queue is closed", name);
}

/* Keeps the ids of the regions that the kernels of another process may use. */
static int refer(struct dg_ring *r, const dg_ring_config *cfg)
{
	int rc = find_id(cfg->own, &r->own);
	if (!rc)
		rc = find_id(cfg->own_import, &r->own_import);
	for (uint32_t i = 0; i < cfg->n_peers && !rc; i++)
		rc = find_id(cfg->peers[i], &r->peers[i]);
	r->n_peers = cfg->n_peers;
	return rc;
}

/* Imports the memory from another process. Its gate stays entered until dg_ring_free(): if this
 * process dies, the exporter waits for its end before it reads the ring's words for the last
 * time. */
static int adopt_ring(struct dg_ring *r, const dg_ring_config *cfg)
{
	uint64_t id;
	struct dg_region_entry *entry = dg_region_table_find(cfg->memory, &id);
	const uint64_t size = layout_of(cfg).size;
	if (!entry || !entry->remote || entry->device != r->proxy->engine.dev->number)
		return dg_fail(ESTALE, "the memory of the GPU queue, region #%u, is closed",
			       cfg->memory);
	if (entry->method != DG_METHOD_MAP || entry->may_fault ||
	    entry->access != (DG_ACCESS_READ | DG_ACCESS_WRITE) || (uintptr_t)entry->base % PAGE)
		return dg_fail(EOPNOTSUPP, "the memory of a GPU queue must be whole pages of "
					   "dgkit.empty(), exported for reading and writing");
	if (entry->size < size)
		return dg_fail(ERANGE,
			       "the memory of the GPU queue has %llu bytes; depth %u needs %llu",
			       (unsigned long long)entry->size, cfg->depth,
			       (unsigned long long)size);
	TRY(refer(r, cfg));
	gate_enter(entry->gate, 1);
	if (gate_revoked(entry->gate)) {
		gate_leave(entry->gate, 1);
		return dg_fail(ESTALE, "the memory of the GPU queue was closed by its owner");
	}
	r->gate = entry->gate;
	place_ring(r, entry->base, cfg);
	return 0;
}

static void set_numbers(struct dg_ring *r, const dg_ring_config *cfg)
{
	r->depth = cfg->depth;
	r->mask = cfg->depth - 1;
	r->shift = (uint32_t)__builtin_ctz(cfg->depth);
	r->first = cfg->first;
	r->weak = cfg->weak != 0;
	r->index = cfg->index;
}

/* Initializes the ring, with addresses as an emulated GPU sees them, which are those of this
 * process. */
static void fill_ring(struct dg_ring *r, const dg_ring_config *cfg)
{
	ring_reset(r->out, r->completions, r->records, r->depth, r->shift, r->first);
	*r->handle = (struct dg_gpu_queue){
		.ring = (uintptr_t)r->out,
		.completions = (uintptr_t)r->completions,
		.records = (uintptr_t)r->records,
		.trace = (uintptr_t)r->gpu_trace,
		.limit = cfg->limit,
		.first = r->first,
		.version = DG_GPU_VERSION,
		.mask = r->mask,
		.shift = r->shift,
		.weak = r->weak,
		.index = r->index,
		.next = r->first,
		.credits = r->depth,
	};
}

int dg_ring_lay_out(void *base, const dg_ring_config *cfg)
{
	struct dg_ring r = {0};
	TRY(check_config(cfg));
	set_numbers(&r, cfg);
	place_ring(&r, base, cfg);
	fill_ring(&r, cfg);
	return 0;
}

void dg_ring_words_get(const void *base, const dg_ring_config *cfg, dg_ring_words *out)
{
	const struct dg_gpu_ring *ring =
		(const struct dg_gpu_ring *)((const char *)base + layout_of(cfg).ring);
	/* In the order of a kernel's wait: load what is complete first, then its error. */
	out->closed = ring_load(&ring->closed, memory_order_acquire);
	out->done = ring_load(&ring->done, memory_order_acquire);
	out->first_error = ring_load(&ring->first_error, memory_order_relaxed);
}

int dg_ring_stamps_get(const void *base, const dg_ring_config *cfg, dg_ring_stamp *out, uint32_t n)
{
	const struct layout l = layout_of(cfg);
	const dg_u64 *gpu = (const dg_u64 *)((const char *)base + PAGE), *stamps = gpu + 2 * cfg->depth;
	const struct dg_gpu_ring *ring = (const struct dg_gpu_ring *)((const char *)base + l.ring);
	dg_u64 words[STAMP_WORDS];
	uint32_t found = 0;
	if (!l.stamps)
		return dg_fail(EINVAL, "the GPU queue was opened without a trace");
	/* Acquire: also makes the kernel's stamps of complete operations visible, where it has
	 * waited for them. */
	const uint64_t done = ring_load(&ring->done, memory_order_acquire);
	/* From the latest operation that may be complete to the oldest whose stamps may still be
	 * stored. */
	for (uint64_t left = 2ull * cfg->depth, count = done + cfg->depth; left-- && count-- && found < n;) {
		const dg_u64 sequence = (cfg->first + count) & DG_SEQUENCE_MASK;
		const dg_u64 at = sequence & (cfg->depth - 1);
		if (!ring_stamp_load(&stamps[STAMP_WORDS * at], sequence, words))
			continue;
		out[found++] = (dg_ring_stamp){
			.ticket = sequence,
			.seen_ns = words[2],
			.posted_ns = words[3],
			.completed_ns = words[4],
			.gpu_post_ns = ring_load(&gpu[2 * at], memory_order_relaxed),
			.gpu_complete_ns = ring_load(&gpu[2 * at + 1], memory_order_relaxed),
			.status = (int32_t)(words[1] & 255),
			.op = (uint32_t)(words[1] >> 8),
		};
	}
	for (uint32_t i = 0; i < found / 2; i++) {
		const dg_ring_stamp other = out[i];
		out[i] = out[found - 1 - i];
		out[found - 1 - i] = other;
	}
	return (int)found;
}

void dg_ring_watch(dg_region *region, void *base, const dg_ring_config *cfg)
{
	struct dg_gpu_ring *ring = (struct dg_gpu_ring *)((char *)base + layout_of(cfg).ring);
	dg_share_watch(region, (_Atomic uint64_t *)&ring->closed, DG_RING_RETIRED);
}

void dg_ring_lose(void *base, const dg_ring_config *cfg)
{
	struct dg_gpu_ring *ring = (struct dg_gpu_ring *)((char *)base + layout_of(cfg).ring);
	const uint64_t sequence = cfg->first + ring_load(&ring->done, memory_order_acquire);
	if (!ring_load(&ring->first_error, memory_order_relaxed))
		ring_store(&ring->first_error,
			   dg_completion_state(sequence & DG_SEQUENCE_MASK, DG_PEER_LOST),
			   memory_order_relaxed);
	ring_store(&ring->closed, DG_RING_RETIRED, memory_order_release);
}

static int no_staging(struct staging *s, int rc)
{
	free(s->bytes);
	free(s);
	return rc;
}

/* Allocates memory of the proxy that a provider copies from. */
static int make_staging(struct dg_ring *r, struct staging *s)
{
	const uint64_t size = (uint64_t)r->depth * PLACE_STAGING;
	dg_region_info info;
	s->depth = r->depth;
	s->bytes = aligned_alloc(PAGE, size);
	if (!s->bytes)
		return no_staging(s, dg_fail(ENOMEM, "out of memory for a GPU queue of depth %u",
					     r->depth));
	memset(s->bytes, 0, size);
	const dg_memory memory = {.addr = s->bytes, .size = size, .fd = -1};
	const int rc = dg_region_register(r->proxy->engine.dev, &memory, DG_ACCESS_READ, &s->region);
	if (rc)
		return no_staging(s, rc);
	dg_region_info_get(s->region, &info);
	s->id = info.id;
	r->staging = s;
	return 0;
}

/* Takes over the staging memory of a closed ring, or allocates some. */
static int open_staging(struct dg_ring *r)
{
	struct dg_proxy *p = r->proxy;
	dg_poller_lock(&p->poller);
	struct staging **at = &p->stagings;
	while (*at && (*at)->depth != r->depth)
		at = &(*at)->next;
	r->staging = *at;
	if (r->staging)
		*at = r->staging->next;
	dg_poller_unlock(&p->poller);
	if (r->staging)
		return 0;
	struct staging *s = calloc(1, sizeof *s);
	return s ? make_staging(r, s)
		 : dg_fail(ENOMEM, "out of memory for a GPU queue of depth %u", r->depth);
}

/* Keeps the staging memory for the next ring, unless the proxy is closed. */
static void keep_staging(struct dg_ring *r)
{
	struct dg_proxy *p = r->proxy;
	struct staging *s = r->staging;
	r->staging = NULL;
	dg_poller_lock(&p->poller);
	const bool stopped = atomic_load_explicit(&p->poller.stop, memory_order_relaxed);
	if (!stopped) {
		s->next = p->stagings;
		p->stagings = s;
	}
	dg_poller_unlock(&p->poller);
	if (stopped)
		free_staging(s);
}

static int open_tables(struct dg_ring *r)
{
	r->places = calloc(r->depth, sizeof *r->places);
	r->requests = calloc(r->depth, sizeof *r->requests);
	return r->places && r->requests
		       ? 0
		       : dg_fail(ENOMEM, "out of memory for a GPU queue of depth %u", r->depth);
}

/* Frees the ring's objects on this device, even if it was only partially opened. */
static void free_tables(struct dg_ring *r)
{
	if (r->x.q)
		dg_queue_free(r->x.q);
	if (r->staging)
		keep_staging(r);
	free(r->places);
	free(r->requests);
	r->x.q = NULL;
	r->places = NULL;
	r->requests = NULL;
}

static void free_memory(struct dg_ring *r)
{
	if (r->gate)
		gate_leave(r->gate, 1);
	else if (r->base)
		munmap(r->base, r->size);
	if (r->fd >= 0)
		close(r->fd);
	/* In a forked child the lock may be held forever, and the proxy is not freed. */
	if (r->fork_generation == atomic_load(&dg_fork_generation))
		proxy_unref(r->proxy);
	free(r);
}

int dg_ring_open(dg_proxy *p, const dg_ring_config *cfg, dg_ring **out)
{
	*out = NULL;
	int rc = same_process(p);
	if (!rc)
		rc = check_config(cfg);
	if (rc)
		return rc;
	struct dg_ring *r = calloc(1, sizeof *r);
	if (!r)
		return dg_fail(ENOMEM, "out of memory for a GPU queue");
	r->proxy = p;
	/* Relaxed: the caller has a reference. */
	atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
	r->fork_generation = p->fork_generation;
	r->fd = -1;
	r->x = (struct executor){.engine = &p->engine, .inline_able = true};
	set_numbers(r, cfg);
	rc = cfg->memory ? adopt_ring(r, cfg) : map_ring(r, cfg);
	if (!rc)
		rc = open_tables(r);
	if (!rc)
		rc = open_staging(r);
	/* The queue has room for the operations and the signals that follow them. */
	if (!rc)
		rc = dg_queue_open_for_kernels(p->engine.dev, 4 * r->depth, p, &r->x.q);
	if (rc) {
		free_tables(r);
		free_memory(r);
		return rc;
	}
	dg_poller_lock(&p->poller);
	if (!r->index)
		r->index = ++p->n_indices;
	if (!r->gate) /* otherwise its owner has filled it, and only the GPU writes records */
		fill_ring(r, cfg);
	r->next = p->rings;
	p->rings = r;
	dg_poller_unlock(&p->poller);
	*out = r;
	return 0;
}

int dg_ring_info_get(dg_ring *r, dg_ring_info *out)
{
	*out = (dg_ring_info){
		.fd = r->fd,
		.depth = r->depth,
		.index = r->index,
		.weak = r->weak,
		.size = r->size,
		.address = (uintptr_t)r->base,
		.handle = (uintptr_t)r->handle,
	};
	return 0;
}

/* Returns the first place that is not filled although a later one is. */
static uint64_t find_hole(struct dg_ring *r)
{
	dg_u64 words[DG_RECORD_WORDS];
	uint64_t hole = UINT64_MAX;
	for (uint64_t n = r->head; n - r->done < r->depth; n++) {
		const uint64_t sequence = sequence_of(r, n);
		const bool filled =
			ring_take(&r->records[sequence & r->mask], sequence, r->shift, words);
		if (filled && hole != UINT64_MAX)
			return hole;
		if (!filled && hole == UINT64_MAX)
			hole = sequence;
	}
	return UINT64_MAX;
}

int dg_ring_stats_get(dg_ring *r, dg_ring_stats *out)
{
	TRY(enter(r));
	*out = (dg_ring_stats){
		.taken = r->head,
		.completed = r->completed,
		.failed = r->failed,
		.hole = find_hole(r),
		.first_failed = ((r->first_error >> 8) - 1) & DG_SEQUENCE_MASK,
		.first_error = (int32_t)(r->first_error & 255),
		.waiting = r->waiting,
	};
	dg_poller_unlock(&r->proxy->poller);
	return 0;
}

int dg_ring_trace(dg_ring *r, dg_ring_stamp *out, uint32_t n)
{
	const int rc = enter(r);
	uint32_t stored = 0;
	if (rc)
		return rc;
	const uint64_t kept = r->head < r->depth ? r->head : r->depth;
	for (uint64_t count = r->head - (kept < n ? kept : n); count != r->head; count++) {
		const struct place *p = place_of(r, count);
		const uint64_t at = (r->first + count) & r->mask;
		out[stored++] = (dg_ring_stamp){
			.ticket = sequence_of(r, count),
			.seen_ns = p->seen_ns,
			.posted_ns = p->posted_ns,
			.completed_ns = p->completed_ns,
			.gpu_post_ns = r->gpu_trace ? ring_load((dg_u64 *)&r->gpu_trace[2 * at],
								memory_order_relaxed)
						    : 0,
			.gpu_complete_ns =
				r->gpu_trace ? ring_load((dg_u64 *)&r->gpu_trace[2 * at + 1],
							 memory_order_relaxed)
					     : 0,
			.status = p->status,
			.op = p->op,
		};
	}
	dg_poller_unlock(&r->proxy->poller);
	return (int)stored;
}

int dg_ring_connect(dg_ring *a, dg_ring *b)
{
	if (a == b || a->proxy != b->proxy)
		return dg_fail(EINVAL, "a GPU queue is connected to another one of the same device");
	int rc = enter(a);
	if (rc)
		return rc;
	if (b->closed) {
		rc = dg_fail(ESTALE, "the GPU queue is closed");
	} else if (a->peer || b->peer || a->peer_lost || b->peer_lost) {
		rc = dg_fail(EBUSY, "a GPU queue is connected once, to one other");
	} else {
		a->peer = b;
		b->peer = a;
	}
	dg_poller_unlock(&a->proxy->poller);
	return rc;
}

/* Tells the other end of a connection that the ring is closed, so that nothing waits for it any
 * more. */
static void lose_peer(struct dg_ring *peer)
{
	peer->peer = NULL;
	peer->peer_lost = true;
	peer->now = now_ns();
	for (uint64_t count = peer->done; count != peer->head; count++)
		if (place_of(peer, count)->state == PLACE_RECEIVING)
			dg_ring_finish(peer, count, DG_PEER_LOST, 0);
}

/* Removes an open ring from the serving thread and from its peer. Call with the lock held. */
static void retire(struct dg_ring *r)
{
	struct dg_ring **at = &r->proxy->rings;
	r->closed = true;
	ring_store(&r->out->closed, DG_RING_RETIRING, memory_order_release);
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	if (r->peer)
		lose_peer(r->peer);
	r->peer = NULL;
	dg_exec_disown(&r->x);
}

/* Waits until another thread has closed the ring. */
static void wait_retired(struct dg_ring *r)
{
	for (uint32_t naps = 0; !atomic_load_explicit(&r->retired, memory_order_acquire);)
		life_nap(&naps);
}

int dg_ring_close(dg_ring *r)
{
	struct dg_proxy *p = r->proxy;
	if (r->fork_generation != atomic_load(&dg_fork_generation))
		return 0; /* it belongs to the parent of a fork() */
	dg_poller_lock(&p->poller);
	const bool first = !r->closed;
	if (first)
		retire(r);
	dg_poller_unlock(&p->poller);
	if (!first) {
		wait_retired(r);
		return 0;
	}
	dg_queue_close(r->x.q);
	dg_ring_flush(r);
	/* Rule 6: stored after every completion. */
	ring_store(&r->out->closed, DG_RING_RETIRED, memory_order_release);
	free_tables(r);
	/* Release: once another closer sees this, it frees the ring. */
	atomic_store_explicit(&r->retired, 1, memory_order_release);
	return 0;
}

void dg_ring_free(dg_ring *r)
{
	dg_ring_close(r);
	free_memory(r);
}
