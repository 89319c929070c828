// SPDX-License-Identifier: Apache-2.0
/*
 * Drives an RMA plugin in the place of NCCL: ranks that are threads or processes put, get and signal
 * at random over host memory, and check each byte and each counter.
 *
 * What each rank does in a round follows from the seed (plan_of()), so the others know what they
 * must find. Memory of each rank: a window with one block for each operation of each rank, so that no
 * two operations write the same bytes; words that are signalled; a source, a landing for gets, and
 * memory that others get from.
 */
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "providers/cuda_api.h"
#include "rma_abi.h"

enum { RANKS_MAX = 16, OPS = 12, BLOCK = 32768, SHARED_WORDS = 4, CONTEXTS = 2 };
enum { WINDOW, WORDS, SOURCE, LANDING, FIXED, MEMORIES };
#define PATIENCE_NS 60000000000u
#define LOSS_NS 2000000000u

struct options {
	const char *plugin;
	unsigned ranks, rounds, api;
	uint64_t seed;
	bool processes, kill, gpu;
	pid_t agent; /* is killed in the end, unless 0 */
};

/* Memory that all ranks share. */
struct shared {
	_Atomic uint32_t arrived, generation, failed;
	_Atomic uint64_t killed_ns, lost_ns, puts, gets, signals, bytes, refused;
	char handles[RANKS_MAX][NCCL_HANDLE_SIZE];
	char failure[512];
};

struct plan {
	enum { PUT, GET, FLUSH } kind;
	uint32_t peer, context, size, offset, op;
	uint64_t hash, value, word; /* word: UINT64_MAX: no signal */
	bool strong;
};

struct rank {
	const struct options *options;
	struct shared *shared;
	uint32_t rank;
	const struct rma_transfers_v15 *v15; /* of version 15 or 16; NULL unless that is tested. So are v16, v13 */
	const struct rma_plugin_v16 *v16;
	const struct rma_plugin_v14 *v14;
	const struct rma_plugin_v13 *v13;
	void *ctx, *listener, *comm, *rma;
	void *memory[MEMORIES];
	/* bytes: what the CPU accesses; at: what is registered, the same unless it is on the GPU */
	char *bytes[MEMORIES], *model;
	void *at[MEMORIES];
	size_t size[MEMORIES];
	uint64_t *words;
	void *requests[OPS];
	bool checked[RANKS_MAX][OPS];
};

static uint64_t clock_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* splitmix64. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static void fill_bytes(char *to, size_t size, uint64_t hash)
{
	for (size_t i = 0; i < size; i++) {
		if (i % 8 == 0)
			hash = mix(hash);
		to[i] = (char)(hash >> (i % 8 * 8));
	}
}

/* Ends the whole test: the first failure is the one that is reported. */
__attribute__((format(printf, 2, 3))) static void fail(struct rank *r, const char *fmt, ...)
{
	uint32_t none = 0;
	va_list arguments;
	if (atomic_compare_exchange_strong(&r->shared->failed, &none, 1)) {
		int n = snprintf(r->shared->failure, sizeof r->shared->failure, "rank %u: ", r->rank);
		va_start(arguments, fmt);
		vsnprintf(r->shared->failure + n, sizeof r->shared->failure - (size_t)n, fmt, arguments);
		va_end(arguments);
		atomic_store(&r->shared->failed, 2);
	}
	if (r->options->processes)
		_exit(1);
	while (atomic_load(&r->shared->failed) != 2)
		sched_yield();
	fprintf(stderr, "%s\n", r->shared->failure);
	_exit(1);
}

#define EXPECT(r, call) \
	do { \
		nccl_result result_ = (call); \
		if (result_) \
			fail(r, "%s returned %d", #call, (int)result_); \
	} while (0)

/* Whether this thread makes calls that are meant to fail. */
static _Thread_local bool refusing;

static void print_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	va_list arguments;
	(void)level, (void)flags, (void)line;
	if (refusing)
		return;
	fprintf(stderr, "%s: ", file);
	va_start(arguments, fmt);
	vfprintf(stderr, fmt, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

static struct plan plan_of(const struct options *o, unsigned round, uint32_t rank, uint32_t i)
{
	const uint64_t h = mix(o->seed + mix(round + 1) + mix(rank * 1000u + i + 7));
	const uint64_t a = mix(h), b = mix(a), limits[] = {16, 512, 4096, BLOCK};
	struct plan p = {.hash = h, .peer = (uint32_t)(a % o->ranks), .context = h >> 9 & 1};
	const uint64_t kind = h % 16;
	p.kind = kind == 15 ? FLUSH : kind >= 12 ? GET : PUT;
	p.size = (uint32_t)(a >> 20) % (uint32_t)(limits[b % 4] + 1);
	p.offset = (uint32_t)(a >> 40) % (BLOCK - p.size + 1);
	p.word = UINT64_MAX;
	if (p.kind == PUT && kind < 9) {
		p.strong = (h >> 10 & 1) || o->api == 13;
		p.op = h >> 11 & 1 ? NCCL_SIGNAL_ADD : NCCL_SIGNAL_INC;
		p.value = p.op == NCCL_SIGNAL_INC ? 1 : b >> 16 | 1;
		p.word = kind < 4 ? b >> 8 & (SHARED_WORDS - 1) : SHARED_WORDS + rank * OPS + i;
	}
	return p;
}

static size_t block_of(const struct plan *p, uint32_t rank, uint32_t i)
{
	return ((size_t)rank * OPS + i) * BLOCK + p->offset;
}

static nccl_result progress(struct rank *r)
{
	return r->v14->last.progress(r->rma);
}

/* Waits for the other ranks, and makes progress meanwhile: signals to this rank need it. */
static void barrier(struct rank *r)
{
	struct shared *s = r->shared;
	const uint32_t generation = atomic_load(&s->generation);
	const uint64_t end = clock_ns() + PATIENCE_NS;
	if (atomic_fetch_add(&s->arrived, 1) + 1 == r->options->ranks) {
		atomic_store(&s->arrived, 0);
		atomic_fetch_add(&s->generation, 1);
	}
	while (atomic_load(&s->generation) == generation) {
		if (r->rma)
			EXPECT(r, progress(r));
		if (atomic_load(&s->failed))
			fail(r, "another rank failed");
		if (clock_ns() > end)
			fail(r, "the other ranks are not there after 60 s");
		sched_yield();
	}
}

/* The words are never reset, as NCCL says of its own. */
static nccl_result register_memory(struct rank *r, int i, size_t size, void **out)
{
	void *at = r->at[i], *device_memory;
	const int type = at == r->bytes[i] ? NCCL_HOST : NCCL_CUDA;
	const uint64_t flags = i == WORDS && r->rank % 2 == 0 ? NCCL_SIGNAL_NEVER_RESET : 0;
	return r->v13 ? r->v13->register_memory(r->comm, at, size, type, flags, out, &device_memory)
		      : r->v14->start.register_memory(r->comm, at, size, type, flags, out);
}

static nccl_result put_signal(struct rank *r, const struct plan *p, uint64_t from, uint64_t to,
			      void **out)
{
	void *source = r->memory[SOURCE], *window = r->memory[WINDOW], *words = r->memory[WORDS];
	const uint64_t word = p->word * 8;
	const int context = (int)p->context;
	if (r->v15)
		return r->v15->put_signal(r->rma, context, from, source, p->size, to, window, p->peer,
					  word, words, p->value, p->op, p->strong, p->hash & 1, out);
	if (r->v13)
		return r->v13->put_signal(r->rma, context, from, source, p->size, to, window, p->peer,
					  word, words, p->value, p->op, out);
	return r->v14->put_signal(r->rma, context, from, source, p->size, to, window, p->peer, word,
				  words, p->value, p->op, p->strong, out);
}

static nccl_result put_by_plugin(struct rank *r, const struct plan *p, uint64_t from, uint64_t to,
				 void **out)
{
	void *source = p->size ? r->memory[SOURCE] : NULL, *window = p->size ? r->memory[WINDOW] : NULL;
	const int context = (int)p->context;
	return r->v15 ? r->v15->put(r->rma, context, from, source, p->size, to, window, p->peer,
				    p->hash & 1, out)
		      : r->v14->put(r->rma, context, from, source, p->size, to, window, p->peer, out);
}

static nccl_result get_by_plugin(struct rank *r, const struct plan *p, uint64_t to, void **out)
{
	void *fixed = r->memory[FIXED], *landing = r->memory[LANDING];
	const int context = (int)p->context;
	return r->v15 ? r->v15->get(r->rma, context, p->offset, fixed, p->size, to, landing, p->peer,
				    p->hash & 1, out)
		      : r->v14->get(r->rma, context, p->offset, fixed, p->size, to, landing, p->peer, out);
}

/* A function of the driver, which must succeed. */
#define DRIVER(r, name, types, ...)                                             \
	do {                                                                    \
		CUresult(*function_) types =                                    \
			(CUresult(*) types)(uintptr_t)driver_function(r, name); \
		const CUresult code_ = function_(__VA_ARGS__);                  \
		if (code_)                                                      \
			fail(r, "%s returned %d", name, code_);                 \
	} while (0)

static void *driver_function(struct rank *r, const char *name)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *found = lib ? dlsym(lib, name) : NULL;
	if (!found)
		fail(r, "libcuda.so.1 was not found, or has no %s", name);
	return found;
}

static void use_gpu(struct rank *r)
{
	CUcontext context;
	DRIVER(r, "cuInit", (unsigned), 0);
	DRIVER(r, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice), &context, 0);
	DRIVER(r, "cuCtxSetCurrent", (CUcontext), context);
}

/* Allocates CUDA virtual memory: shared, as ncclMemAlloc() does, or not, as NCCL's signals. */
static void *gpu_pages(struct rank *r, size_t size, bool shared)
{
	CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .requestedHandleTypes = shared ? CU_MEM_HANDLE_POSIX_FD : 0,
				 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemAccessDesc access = {.location = p.location, .flags = CU_MEM_ACCESS_READWRITE};
	CUmemHandle handle;
	CUdeviceptr at;
	size_t unit;
	DRIVER(r, "cuMemGetAllocationGranularity", (size_t *, const CUmemAllocationProp *, int), &unit,
	       &p, 0);
	size = (size + unit - 1) / unit * unit;
	DRIVER(r, "cuMemCreate",
	       (CUmemHandle *, size_t, const CUmemAllocationProp *, unsigned long long), &handle, size,
	       &p, 0);
	DRIVER(r, "cuMemAddressReserve",
	       (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long), &at, size, 0, 0, 0);
	DRIVER(r, "cuMemMap", (CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long), at, size, 0,
	       handle, 0);
	DRIVER(r, "cuMemSetAccess", (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t), at, size,
	       &access, 1);
	return (void *)(uintptr_t)at;
}

/* Copies the CPU's bytes to the registered memory. A copy of pageable memory returns before its
 * bytes have arrived, hence the second call. */
static void write_memory(struct rank *r, int i, size_t offset, size_t size)
{
	if (r->at[i] == r->bytes[i] || !size)
		return;
	DRIVER(r, "cuMemcpyHtoD_v2", (CUdeviceptr, const void *, size_t),
	       (CUdeviceptr)(uintptr_t)r->at[i] + offset, r->bytes[i] + offset, size);
	DRIVER(r, "cuCtxSynchronize", (void));
}

/* Copies the registered memory to the CPU's bytes. */
static void read_memory(struct rank *r, int i, size_t offset, size_t size)
{
	if (r->at[i] != r->bytes[i] && size)
		DRIVER(r, "cuMemcpyDtoH_v2", (void *, CUdeviceptr, size_t), r->bytes[i] + offset,
		       (CUdeviceptr)(uintptr_t)r->at[i] + offset, size);
}

static uint64_t word_of(struct rank *r, uint64_t i)
{
	_Atomic uint64_t *words = (_Atomic uint64_t *)(void *)r->bytes[WORDS];
	read_memory(r, WORDS, i * sizeof *words, sizeof *words);
	return atomic_load_explicit(&words[i], memory_order_acquire);
}

static void connect_ranks(struct rank *r)
{
	const struct rma_first *f = &r->v14->start.first;
	void *handles[RANKS_MAX], *device_handle;
	rma_config_v14 config = {.contexts = CONTEXTS, .traffic_class = -1};
	rma_config_v13 config_v13 = {.contexts = CONTEXTS, .queue_depth = 64, .traffic_class = -1};
	nccl_properties properties;
	int n = 0;
	EXPECT(r, f->init(&r->ctx, 1, print_log));
	EXPECT(r, f->devices(&n));
	EXPECT(r, f->properties(0, &properties));
	if (n != 1 || properties.device_type != NCCL_GIN_PROXY || properties.device_version != 100)
		fail(r, "NCCL would refuse these properties");
	EXPECT(r, f->listen(r->ctx, 0, r->shared->handles[r->rank], &r->listener));
	barrier(r);
	for (unsigned i = 0; i < r->options->ranks; i++)
		handles[i] = r->shared->handles[i];
	EXPECT(r, f->connect(r->ctx, handles, (int)r->options->ranks, (int)r->rank, r->listener, &r->comm));
	EXPECT(r, r->v14->start.middle.close_listener(r->listener));
	rma_properties_v16 more = {.signal_after_all = true};
	if (r->v16)
		EXPECT(r, r->v16->rma_properties(r->comm, &more));
	if (r->v16 && (more.signal_after_all || r->v16->connect != f->connect ||
		       r->v16->middle.close_comm != r->v14->start.middle.close_comm ||
		       r->v16->last.finalize != r->v14->last.finalize))
		fail(r, "the table of version 16 is wrong");
	if (r->v13)
		EXPECT(r, r->v13->create_context(r->comm, &config_v13, &r->rma, &device_handle));
	else
		EXPECT(r, r->v14->start.create_context(r->comm, &config, &r->rma));
}

static void register_all(struct rank *r)
{
	const size_t window = (size_t)r->options->ranks * OPS * BLOCK;
	const size_t words = (SHARED_WORDS + r->options->ranks * OPS) * sizeof(uint64_t);
	const size_t sizes[MEMORIES] = {window, words, OPS * BLOCK, OPS * BLOCK, BLOCK};
	memcpy(r->size, sizes, sizeof sizes);
	for (int i = 0; i < MEMORIES; i++) {
		r->bytes[i] = aligned_alloc(64, (sizes[i] + 63) / 64 * 64);
		if (!r->bytes[i])
			fail(r, "out of memory");
		memset(r->bytes[i], 0, sizes[i]);
		/* NCCL's inline values are in host memory: so is every second rank's source. */
		const bool on_gpu = r->options->gpu && (i != SOURCE || r->rank % 2);
		r->at[i] = on_gpu ? gpu_pages(r, sizes[i], i != WORDS) : r->bytes[i];
		write_memory(r, i, 0, sizes[i]);
	}
	fill_bytes(r->bytes[FIXED], BLOCK, r->rank);
	write_memory(r, FIXED, 0, BLOCK);
	r->model = calloc(1, window);
	r->words = calloc(1, words);
	if (!r->model || !r->words)
		fail(r, "out of memory");
	for (int i = 0; i < MEMORIES; i++)
		EXPECT(r, register_memory(r, i, sizes[i], &r->memory[i]));
}

/* Checks that wrong arguments are refused, at the call. */
static void check_refusals(struct rank *r)
{
	const struct rma_plugin_v14 *v = r->v14;
	const struct rma_middle *m = &v->start.middle;
	const struct rma_last *l = &r->v14->last;
	void *q = NULL, *window = r->memory[WINDOW], *source = r->memory[SOURCE];
	void *wrong = (void *)(uintptr_t)4711;
	const uint64_t end = r->size[SOURCE], far = UINT64_MAX - 3;
	struct plan p = {.word = 0, .value = 1, .op = NCCL_SIGNAL_ADD};
	bool refused[64];
	int n = 0, done = 0;
	refusing = true;
	refused[n++] = v->put(r->rma, 0, end - 7, source, 8, 0, window, 0, &q);
	refused[n++] = v->put(r->rma, 0, far, source, 8, 0, window, 0, &q);
	refused[n++] = v->put(r->rma, 0, 0, source, 8, r->size[WINDOW] - 7, window, 0, &q);
	refused[n++] = v->put(r->rma, 0, 0, source, SIZE_MAX, 0, window, 0, &q);
	refused[n++] = v->put(r->rma, 0, 0, source, 8, far, window, 0, &q);
	refused[n++] = v->put(r->rma, 0, 0, wrong, 8, 0, window, 0, &q);
	refused[n++] = v->put(r->rma, 0, 0, source, 8, 0, wrong, 0, &q);
	refused[n++] = v->put(r->rma, 0, 0, NULL, 8, 0, window, 0, &q);
	refused[n++] = v->put(r->rma, 0, 0, source, 8, 0, window, r->options->ranks, &q);
	refused[n++] = v->put(r->rma, CONTEXTS, 0, source, 8, 0, window, 0, &q);
	refused[n++] = v->put(r->rma, -1, 0, source, 8, 0, window, 0, &q);
	refused[n++] = v->put(r->rma, 0, 0, source, 8, 0, window, 0, NULL);
	refused[n++] = v->put(NULL, 0, 0, source, 8, 0, window, 0, &q);
	refused[n++] = v->get(r->rma, 0, r->size[WINDOW], window, 1, 0, source, 0, &q);
	refused[n++] = v->get(r->rma, 0, 0, window, 1, end, source, 0, &q);
	refused[n++] = l->flush(r->rma, 0, window, UINT32_MAX, &q);
	refused[n++] = l->test(r->comm, NULL, &done);
	refused[n++] = l->test(r->comm, wrong, &done);
	refused[n++] = l->test(r->comm, &done, NULL);
	refused[n++] = m->deregister(r->comm, NULL);
	refused[n++] = m->deregister(r->comm, wrong);
	p.word = r->size[WORDS] / 8;
	refused[n++] = put_signal(r, &p, 0, 0, &q);
	p.word = UINT64_MAX / 8;
	refused[n++] = put_signal(r, &p, 0, 0, &q);
	p.word = 0;
	p.op = 3;
	refused[n++] = put_signal(r, &p, 0, 0, &q);
	for (int i = 0; i < n; i++)
		if (!refused[i])
			fail(r, "wrong call %d was accepted", i);
	if (q)
		fail(r, "a refused call returned a request");
	atomic_fetch_add(&r->shared->refused, (uint64_t)n);
	/* All ranks are refused together, whichever of them gave wrong arguments. */
	if (!register_memory(r, FIXED, r->rank ? BLOCK : 0, &q))
		fail(r, "memory without bytes of rank 0 was accepted");
	if (!v->start.register_memory(r->comm, r->rank ? r->bytes[FIXED] : (void *)4096, BLOCK, NCCL_HOST, 0,
				      &q))
		fail(r, "memory of rank 0 that is not mapped was accepted");
	refusing = false;
}

/* Checks operation i of `sender`, whose target this rank is. */
static void check_bytes(struct rank *r, const struct plan *p, uint32_t sender, uint32_t i)
{
	char expected[BLOCK];
	const size_t at = block_of(p, sender, i);
	fill_bytes(expected, p->size, p->hash);
	read_memory(r, WINDOW, at, p->size);
	if (memcmp(r->bytes[WINDOW] + at, expected, p->size))
		fail(r, "the signal of operation %u of rank %u was seen before its %u bytes", i, sender,
		     p->size);
}

/* Looks at the words of one operation each: those that have changed promise bytes. */
static void check_signals(struct rank *r, unsigned round)
{
	for (uint32_t s = 0; s < r->options->ranks; s++) {
		for (uint32_t i = 0; i < OPS; i++) {
			const struct plan p = plan_of(r->options, round, s, i);
			if (r->checked[s][i] || p.peer != r->rank || p.word == UINT64_MAX ||
			    p.word < SHARED_WORDS)
				continue;
			if (word_of(r, p.word) == r->words[p.word])
				continue;
			r->checked[s][i] = true;
			check_bytes(r, &p, s, i);
			/* A signal without bytes may belong to any of them: see signal.c. */
			for (uint32_t j = 0; j < i && (p.strong || !p.size); j++) {
				const struct plan before = plan_of(r->options, round, s, j);
				if (before.kind == PUT && before.peer == r->rank &&
				    before.context == p.context)
					check_bytes(r, &before, s, j);
			}
		}
	}
}

static nccl_result post(struct rank *r, unsigned round, uint32_t i)
{
	const struct plan p = plan_of(r->options, round, r->rank, i);
	const uint64_t from = (uint64_t)i * BLOCK + p.offset;
	if (p.kind == FLUSH)
		return r->v14->last.flush(r->rma, (int)p.context, r->memory[WORDS], p.peer,
					  &r->requests[i]);
	if (p.kind == GET) {
		atomic_fetch_add(&r->shared->gets, 1);
		return get_by_plugin(r, &p, from, &r->requests[i]);
	}
	fill_bytes(r->bytes[SOURCE] + from, p.size, p.hash);
	write_memory(r, SOURCE, from, p.size);
	atomic_fetch_add(&r->shared->puts, 1);
	atomic_fetch_add(&r->shared->bytes, p.size);
	const uint64_t to = block_of(&p, r->rank, i);
	if (p.word == UINT64_MAX)
		return put_by_plugin(r, &p, from, to, &r->requests[i]);
	atomic_fetch_add(&r->shared->signals, 1);
	return put_signal(r, &p, from, to, &r->requests[i]);
}

static void check_get(struct rank *r, unsigned round, uint32_t i)
{
	char expected[BLOCK];
	const struct plan p = plan_of(r->options, round, r->rank, i);
	const size_t at = (size_t)i * BLOCK + p.offset;
	if (p.kind != GET)
		return;
	fill_bytes(expected, BLOCK, p.peer);
	read_memory(r, LANDING, at, p.size);
	if (memcmp(r->bytes[LANDING] + at, expected + p.offset, p.size))
		fail(r, "a get of %u bytes from rank %u returned other bytes", p.size, p.peer);
}

/* Tests the requests in flight. Returns how many are left; *lost: one failed. */
static unsigned test_all(struct rank *r, unsigned round, bool *lost)
{
	unsigned left = 0;
	for (uint32_t i = 0; i < OPS; i++) {
		int done = 0;
		if (!r->requests[i])
			continue;
		const nccl_result result = r->v14->last.test(r->comm, r->requests[i], &done);
		if (result && !r->options->kill && !r->options->agent)
			fail(r, "operation %u of round %u ended with %d", i, round, (int)result);
		*lost |= result != 0;
		if (done && !result)
			check_get(r, round, i);
		if (done || result)
			r->requests[i] = NULL;
		else
			left++;
	}
	return left;
}

static void wait_all(struct rank *r, unsigned round, bool *lost)
{
	const uint64_t end = clock_ns() + PATIENCE_NS;
	while (test_all(r, round, lost)) {
		check_signals(r, round);
		EXPECT(r, progress(r));
		if (clock_ns() > end)
			fail(r, "requests of round %u are not complete after 60 s", round);
		sched_yield();
	}
}

/* Compares all memory with what the plans of all ranks make of it. */
static void check_round(struct rank *r, unsigned round)
{
	for (uint32_t s = 0; s < r->options->ranks; s++)
		for (uint32_t i = 0; i < OPS; i++) {
			const struct plan p = plan_of(r->options, round, s, i);
			if (p.kind != PUT || p.peer != r->rank)
				continue;
			fill_bytes(r->model + block_of(&p, s, i), p.size, p.hash);
			if (p.word != UINT64_MAX)
				r->words[p.word] += p.value;
		}
	read_memory(r, WINDOW, 0, r->size[WINDOW]);
	if (memcmp(r->bytes[WINDOW], r->model, r->size[WINDOW]))
		fail(r, "the window is wrong after round %u", round);
	for (size_t i = 0; i < r->size[WORDS] / 8; i++) {
		const uint64_t word = word_of(r, i);
		if (word != r->words[i])
			fail(r, "word %zu is %" PRIu64 " after round %u: it should be %" PRIu64, i, word,
			     round, r->words[i]);
	}
}

static void run_round(struct rank *r, unsigned round)
{
	bool lost = false;
	memset(r->checked, 0, sizeof r->checked);
	for (uint32_t i = 0; i < OPS; i++)
		EXPECT(r, post(r, round, i));
	wait_all(r, round, &lost);
	barrier(r);
	check_signals(r, round);
	check_round(r, round);
	barrier(r);
}

/* The last rank kills itself or the DPU agent with requests in flight. The others go on posting until
 * they are told. */
static void run_loss(struct rank *r)
{
	bool lost = false, error = false;
	const unsigned round = r->options->rounds;
	refusing = true;
	const uint64_t end = clock_ns() + PATIENCE_NS;
	for (unsigned left = 1; left || !error; left = test_all(r, round, &lost)) {
		for (uint32_t i = 0; i < OPS && !lost; i++)
			if (!r->requests[i] && post(r, round, i))
				lost = true;
		if (r->rank == r->options->ranks - 1 && !atomic_load(&r->shared->killed_ns)) {
			atomic_store(&r->shared->killed_ns, clock_ns());
			kill(r->options->agent ? r->options->agent : getpid(), SIGKILL);
		}
		EXPECT(r, progress(r));
		EXPECT(r, r->v14->last.query_error(r->rma, &error));
		if (clock_ns() > end)
			fail(r, "the loss of a rank was not noticed within 60 s");
		sched_yield();
	}
	const uint64_t ns = clock_ns() - atomic_load(&r->shared->killed_ns);
	uint64_t longest = atomic_load(&r->shared->lost_ns);
	while (longest < ns && !atomic_compare_exchange_weak(&r->shared->lost_ns, &longest, ns))
		;
	if (ns > LOSS_NS)
		fail(r, "the loss of a rank was noticed after %.1f s", (double)ns / 1e9);
	/* Nothing waits for the lost rank any more. */
	void *q;
	if (!r->v14->put(r->rma, 0, 0, r->memory[SOURCE], 8, 0, r->memory[WINDOW], r->options->ranks - 1,
			 &q))
		fail(r, "a put to the lost rank was accepted");
}

static void close_all(struct rank *r)
{
	for (int i = 0; i < MEMORIES; i++)
		EXPECT(r, r->v14->start.middle.deregister(r->comm, r->memory[i]));
	EXPECT(r, r->v14->start.middle.destroy_context(r->rma));
	EXPECT(r, r->v14->start.middle.close_comm(r->comm));
	EXPECT(r, r->v14->last.finalize(r->ctx));
	for (int i = 0; i < MEMORIES; i++)
		free(r->bytes[i]);
	free(r->model);
	free(r->words);
}

static void *load(struct rank *r)
{
	void *lib = dlopen(r->options->plugin, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		fail(r, "%s", dlerror());
	r->v14 = dlsym(lib, "ncclRmaPlugin_v14");
	r->v13 = r->options->api == 13 ? dlsym(lib, "ncclRmaPlugin_v13") : NULL;
	r->v16 = r->options->api == 16 ? dlsym(lib, "ncclRmaPlugin_v16") : NULL;
	const struct rma_plugin_v15 *v15 = r->options->api == 15 ? dlsym(lib, "ncclRmaPlugin_v15") : NULL;
	r->v15 = r->v16 ? &r->v16->transfers : v15 ? &v15->transfers : NULL;
	if (!r->v14 || (r->options->api == 13 && !r->v13) || (r->options->api >= 15 && !r->v15))
		fail(r, "%s has no ncclRmaPlugin_v%u", r->options->plugin, r->options->api);
	return lib;
}

static void *run_rank(void *argument)
{
	struct rank *r = argument;
	load(r);
	if (r->options->gpu)
		use_gpu(r);
	connect_ranks(r);
	register_all(r);
	check_refusals(r);
	for (unsigned i = 0; i < r->options->rounds; i++)
		run_round(r, i);
	if (r->options->kill || r->options->agent)
		run_loss(r);
	else
		barrier(r);
	close_all(r);
	return NULL;
}

static int run_processes(const struct options *o, struct rank *ranks)
{
	pid_t pids[RANKS_MAX];
	const pid_t parent = getpid();
	int failed = 0, status;
	for (unsigned i = 0; i < o->ranks; i++) {
		pids[i] = fork();
		if (pids[i] < 0)
			return -errno;
		if (!pids[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
			if (getppid() != parent)
				_exit(1);
			run_rank(&ranks[i]);
			exit(0);
		}
	}
	for (unsigned i = 0; i < o->ranks; i++) {
		while (waitpid(pids[i], &status, 0) < 0 && errno == EINTR)
			;
		const bool killed = o->kill && i == o->ranks - 1;
		failed |= killed ? !WIFSIGNALED(status) : status != 0;
	}
	return failed;
}

static int run_threads(const struct options *o, struct rank *ranks)
{
	pthread_t threads[RANKS_MAX];
	for (unsigned i = 0; i < o->ranks; i++) {
		const int rc = pthread_create(&threads[i], NULL, run_rank, &ranks[i]);
		if (rc)
			return -rc;
	}
	for (unsigned i = 0; i < o->ranks; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

static void print_result(const struct options *o, const struct shared *s, double seconds)
{
	printf("{\"ranks\": %u, \"ranks_are\": \"%s\", \"memory\": \"%s\", \"interface\": %u, "
	       "\"rounds\": %u, \"seed\": %" PRIu64 ", \"puts\": %" PRIu64 ", \"gets\": %" PRIu64
	       ", \"signals\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"refused_calls\": %" PRIu64
	       ", \"loss_noticed_ms\": ",
	       o->ranks, o->processes ? "processes" : "threads", o->gpu ? "GPU" : "host", o->api,
	       o->rounds, o->seed, s->puts, s->gets, s->signals, s->bytes, s->refused);
	if (o->kill || o->agent)
		printf("%.1f", (double)s->lost_ns / 1e6);
	else
		printf("null");
	printf(", \"seconds\": %.2f}\n", seconds);
}

static bool parse_number(const char *text, unsigned long long lo, unsigned long long hi,
			 unsigned long long *out)
{
	char *end;
	errno = 0;
	*out = strtoull(text, &end, 0);
	return !errno && end != text && !*end && *out >= lo && *out <= hi;
}

static int usage(void)
{
	fprintf(stderr,
		"nccl-selftest --plugin FILE [--ranks 1..%d] [--rounds N] [--seed N] [--api 13|14|15|16]\n"
		"              [--processes [--kill]] [--gpu] [--kill-agent PID]\n",
		RANKS_MAX);
	return 2;
}

static bool parse_options(int argc, char **argv, struct options *o)
{
	static const struct option known[] = {
		{"plugin", required_argument, NULL, 'p'}, {"ranks", required_argument, NULL, 'n'},
		{"rounds", required_argument, NULL, 'r'}, {"seed", required_argument, NULL, 's'},
		{"api", required_argument, NULL, 'a'},    {"processes", no_argument, NULL, 'P'},
		{"kill", no_argument, NULL, 'k'},         {"gpu", no_argument, NULL, 'g'},
		{"kill-agent", required_argument, NULL, 'A'},
		{NULL, 0, NULL, 0}};
	unsigned long long n = 0;
	bool ok = true;
	for (int c; ok && (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
		ok = c == 'p' || c == 'P' || c == 'g' || c == 'k' ||
		     (c == 'n'   ? parse_number(optarg, 1, RANKS_MAX, &n)
		      : c == 'r' ? parse_number(optarg, 1, 1000000, &n)
		      : c == 'a' ? parse_number(optarg, 13, 16, &n)
		      : c == 'A' ? parse_number(optarg, 2, INT32_MAX, &n)
				 : c == 's' && parse_number(optarg, 0, UINT64_MAX, &n));
		o->plugin = c == 'p' ? optarg : o->plugin;
		o->ranks = c == 'n' ? (unsigned)n : o->ranks;
		o->rounds = c == 'r' ? (unsigned)n : o->rounds;
		o->api = c == 'a' ? (unsigned)n : o->api;
		o->seed = c == 's' ? n : o->seed;
		o->agent = c == 'A' ? (pid_t)n : o->agent;
		o->processes |= c == 'P';
		o->kill |= c == 'k';
		o->gpu |= c == 'g';
	}
	return ok && o->plugin && optind == argc && (!o->kill || (o->processes && o->ranks > 1));
}

int main(int argc, char **argv)
{
	static struct rank ranks[RANKS_MAX];
	struct options o = {.ranks = 4, .rounds = 100, .seed = 1, .api = 16};
	if (!parse_options(argc, argv, &o))
		return usage();
	struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s == MAP_FAILED) {
		perror("nccl-selftest");
		return 1;
	}
	for (unsigned i = 0; i < o.ranks; i++)
		ranks[i] = (struct rank){.options = &o, .shared = s, .rank = i};
	const uint64_t start = clock_ns();
	const int failed = (o.processes ? run_processes : run_threads)(&o, ranks);
	if (failed) {
		fprintf(stderr, "%s\n", atomic_load(&s->failed) ? s->failure : "a rank ended early");
		return 1;
	}
	print_result(&o, s, (double)(clock_ns() - start) / 1e9);
	return 0;
}
