/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: the two that dgkit has, written again for a CPU. A module holds one, whose name is the module. */
#include "state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char gather[] = "dg_gather", serve[] = "dg_serve";

struct gather_call {
	struct work work;
	const uint64_t (*ops)[4]; /* target, source, size, nothing */
	uint32_t first, mask, count;
};

EXPORT CUresult cuModuleLoadData(const char **loaded, const void *image)
{
	struct context *context;

	ENTER(gate_context, &context);
	if (!image || (!strstr(image, ".entry dg_gather(") && !strstr(image, ".entry dg_serve(")))
		return CUDA_ERROR_INVALID_VALUE;
	*loaded = strstr(image, ".entry dg_serve(") ? serve : gather;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleUnload(const char *loaded)
{
	struct context *context;

	ENTER(gate_context, &context);
	return loaded == gather || loaded == serve ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuModuleGetFunction(const char **found, const char *loaded, const char *name)
{
	struct context *context;

	ENTER(gate_context, &context);
	if ((loaded != gather && loaded != serve) || strcmp(name, loaded))
		return CUDA_ERROR_INVALID_VALUE;
	*found = loaded;
	return CUDA_SUCCESS;
}

/* Registered memory of the host, or memory of a GPU with the right access. */
static bool usable(uint64_t address, uint64_t size, CUdevice device, bool write)
{
	return host_at((uintptr_t)address, size) ||
	       reachable((uintptr_t)address, size, device, write);
}

/* A kernel that touches what it may not costs the context, as on a GPU. */
static bool perform_gather(struct work *work, struct stream *stream)
{
	struct gather_call *g = (struct gather_call *)work;
	CUdevice device = stream_context(stream)->device;
	bool fine = true;

	pthread_rwlock_rdlock(&maps);
	for (uint32_t i = 0; i < g->count && fine; i++) {
		const uint64_t *op = g->ops[(g->first + i) & g->mask];

		fine = usable(op[0], op[2], device, true) && usable(op[1], op[2], device, false);
		if (fine)
			memmove((void *)(uintptr_t)op[0], (void *)(uintptr_t)op[1], op[2]);
	}
	pthread_rwlock_unlock(&maps);
	return fine;
}

/* The ring of the copy service, as native/src/providers/cuda_serve.cu has it. */
enum { SERVE_SLOTS = 1024, ROUND = 32 };
static const uint64_t fence = 1ull << 63, value = 1ull << 62, then = 1ull << 61, stop = ~0ull;

struct serve_ring {
	_Atomic uint64_t head, unused[7];
	_Atomic uint64_t done, started, ended, unused2[5];
	uint64_t entries[SERVE_SLOTS][8]; /* target, source, size, value, word, nothing */
};

struct serve_call {
	struct work work;
	struct serve_ring *ring;
	uint64_t epoch, idle_ns, life_ns;
};

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The end of the next round: of 32 entries at most, of which only the first may have a fence. */
static uint64_t round_end(const struct serve_ring *r, uint64_t tail, uint64_t head)
{
	uint64_t end = tail + 1;

	while (end < head && end < tail + ROUND && !(r->entries[end % SERVE_SLOTS][2] & fence))
		end++;
	return end;
}

/* In the reverse order: the kernel has none within a round. */
static bool serve_round(const struct serve_ring *r, uint64_t tail, uint64_t end, CUdevice device)
{
	bool fine = true;

	pthread_rwlock_rdlock(&maps);
	while (end-- > tail && fine) {
		const uint64_t *e = r->entries[end % SERVE_SLOTS], size = e[2] & (then - 1);
		const void *from = e[2] & value ? &e[3] : (void *)(uintptr_t)e[1];

		fine = (e[0] | size) % 8 == 0 && (uintptr_t)from % 8 == 0 &&
		       usable(e[0], size, device, true) &&
		       (e[2] & value ? size == 8 : usable(e[1], size, device, false));
		if (fine)
			memcpy((void *)(uintptr_t)e[0], from, size);
		if (!(e[2] & then))
			continue;
		fine = fine && usable(e[4], 8, device, true);
		if (fine)
			__atomic_store_n((uint64_t *)(uintptr_t)e[4], e[3], __ATOMIC_RELEASE);
	}
	pthread_rwlock_unlock(&maps);
	return fine;
}

static bool perform_serve(struct work *work, struct stream *stream)
{
	struct serve_call *s = (struct serve_call *)work;
	struct serve_ring *r = s->ring;
	const struct timespec pause = {0, 1000};
	const uint64_t born = clock_ns();
	uint64_t tail = atomic_load(&r->done), since = born;

	atomic_store(&r->started, s->epoch);
	while (clock_ns() - since <= s->idle_ns && clock_ns() - born <= s->life_ns) {
		const uint64_t head = atomic_load(&r->head);

		if (head == stop || stream_given_up(stream))
			break;
		if (head == tail) {
			nanosleep(&pause, NULL);
			continue;
		}
		const uint64_t end = round_end(r, tail, head);
		if (!serve_round(r, tail, end, stream_context(stream)->device))
			return false;
		atomic_store(&r->done, tail = end);
		since = clock_ns();
	}
	atomic_store(&r->ended, s->epoch);
	return true;
}

static struct work *gather_work(void **params, uint64_t threads)
{
	struct gather_call *g = NULL;

	if (threads >= (uint64_t)*(uint32_t *)params[3] << *(uint32_t *)params[4])
		g = calloc(1, sizeof *g);
	if (!g)
		return NULL;
	g->work.perform = perform_gather;
	memcpy(&g->ops, params[0], sizeof g->ops);
	memcpy(&g->first, params[1], sizeof g->first);
	memcpy(&g->mask, params[2], sizeof g->mask);
	memcpy(&g->count, params[3], sizeof g->count);
	return &g->work;
}

static struct work *serve_work(void **params, uint64_t threads)
{
	struct serve_call *s = threads == 1024 ? calloc(1, sizeof *s) : NULL;

	if (!s)
		return NULL;
	s->work.perform = perform_serve;
	memcpy(&s->ring, params[0], sizeof s->ring);
	memcpy(&s->epoch, params[1], sizeof s->epoch);
	memcpy(&s->idle_ns, params[2], sizeof s->idle_ns);
	memcpy(&s->life_ns, params[3], sizeof s->life_ns);
	return &s->work;
}

EXPORT CUresult cuLaunchKernel(const char *launched, unsigned gx, unsigned gy, unsigned gz,
			       unsigned bx, unsigned by, unsigned bz, unsigned shared,
			       CUstream stream, void **params, void **extra)
{
	struct context *context;
	struct work *work = NULL;
	uint64_t threads = (uint64_t)gx * gy * gz * bx * by * bz;

	ENTER(gate_context, &context);
	(void)extra;
	if (!shared && params && launched == gather)
		work = gather_work(params, threads);
	else if (!shared && params && launched == serve)
		work = serve_work(params, threads);
	if (!work)
		return CUDA_ERROR_INVALID_VALUE;
	work->channel = COMPUTE_CHANNEL;
	work->on_sms = true;
	return submit(stream, context, work, false);
}
