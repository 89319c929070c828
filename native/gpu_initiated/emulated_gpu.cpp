// SPDX-License-Identifier: Apache-2.0
/*
 * The emulated GPU, part 2: fibers, their scheduler, and the program that runs one grid.
 *
 * The program reads one launch from standard input (see dgkit/gpu_initiated/launch.py), maps the
 * memory that it names at the addresses of the process that sent it, and runs the grid. Its exit
 * status is 0 on success, 2 for wrong arguments, 3 for a time-out, 4 for a deadlock, 5 for an
 * illegal address, 9 if an address to map is already in use. For 3 and 4, it writes the places of
 * all threads to the file descriptor given as argument, one line each: block thread call file line
 * address...
 *
 * This file is compiled without ThreadSanitizer even if the kernel is compiled with it. Fiber
 * switches are reported to ThreadSanitizer as unordered, so that only barriers, collectives and
 * atomics order accesses of the kernel's threads, as on a GPU.
 */
#include "emulated_gpu.h"

#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef DG_EMU_TSAN
extern "C" {
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void *__tsan_get_current_fiber(void);
void __tsan_acquire(void *at);
void __tsan_release(void *at);
}
#else
static void *__tsan_create_fiber(unsigned)
{
	return nullptr;
}
static void __tsan_destroy_fiber(void *)
{
}
static void __tsan_switch_to_fiber(void *, unsigned)
{
}
static void *__tsan_get_current_fiber()
{
	return nullptr;
}
static void __tsan_acquire(void *)
{
}
static void __tsan_release(void *)
{
}
#endif

namespace dg_emu
{
enum { LANES = 32, FRAMES = 24, STACK = 256 << 10, BLOCKS_AT_ONCE = 64, TURN_NS = 50000000 };
enum Exit { WRONG_ARGUMENTS = 2, TIMED_OUT = 3, DEADLOCK = 4, ILLEGAL = 5, ADDRESS_TAKEN = 9 };
enum State { READY, SLEEPING, AT_BARRIER, IN_GATHER, CONVERGING, EXITED };

struct Warp;
struct Fiber {
	Indices indices;
	State state;
	Place place;
	ucontext_t context;
	void *stack, *tsan;
	Warp *warp;
	unsigned lane, mask, there, waited;
	bool yes;
	uint64_t wake_ns, value, seen[LANES];
	void *frames[FRAMES];
	int n_frames;
};

struct Warp {
	Fiber *lanes[LANES];
	unsigned n;
};

struct Block {
	pthread_t thread;
	Fiber *fibers, *running;
	Warp *warps;
	unsigned n, n_warps, left, at_barrier, yes, yes_before;
	ucontext_t scheduler;
	void *tsan, *shared;
	uint64_t random, turn_ends_ns;
	unsigned patience;
	bool reporting;
};

struct Kernel_entry {
	const char *name;
	Invoke *invoke;
	const Parameter *parameters;
	unsigned count;
};

struct Launch {
	Kernel_entry *kernel;
	void **arguments;
	dim3 grid, block;
	uint64_t shared_size, seed, timeout_ns, n_blocks;
	uint64_t next_block; /* atomic */
	uint64_t stop; /* atomic: the time-out has passed */
};

thread_local const Indices *indices;
thread_local int budget;
static thread_local Block *block;
static Kernel_entry kernels[256];
static unsigned n_kernels;
static Launch launch;
static FILE *places;
static pthread_mutex_t report_lock = PTHREAD_MUTEX_INITIALIZER;

uint64_t now_ns()
{
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t draw(Block *b)
{
	b->random ^= b->random << 13;
	b->random ^= b->random >> 7;
	b->random ^= b->random << 17;
	return b->random;
}

void fence()
{
	/* Atomically changing one common word orders the fences of all threads, even for
	 * ThreadSanitizer, which does not model fences. */
	static uint64_t word;
	__tsan_acquire(&word);
	__atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
	__tsan_release(&word);
}

unsigned lane()
{
	return block->running->lane;
}

void *dynamic_shared()
{
	return block->shared;
}

void add_kernel(const char *name, Invoke *invoke, const Parameter *parameters, unsigned count)
{
	if (n_kernels < sizeof kernels / sizeof kernels[0])
		kernels[n_kernels++] = {name, invoke, parameters, count};
}

/* Switches to the scheduler. `state` says what the fiber waits for. */
static void leave(Fiber *f, State state, const Place &place)
{
	Block *b = block;
	f->state = state;
	f->place = place;
	__tsan_switch_to_fiber(b->tsan, 1);
	swapcontext(&f->context, &b->scheduler);
	while (b->reporting) {
		f->n_frames = backtrace(f->frames, FRAMES);
		__tsan_switch_to_fiber(b->tsan, 1);
		swapcontext(&f->context, &b->scheduler);
	}
}

void yield(const Place &place, unsigned sleep_ns)
{
	if (!block) { /* host code */
		sched_yield();
		return;
	}
	Fiber *f = block->running;
	f->wake_ns = sleep_ns ? now_ns() + sleep_ns : 0;
	leave(f, sleep_ns ? SLEEPING : READY, place);
}

/* Called when a thread arrives and when one exits. */
static void open_barrier(Block *b)
{
	if (!b->at_barrier || b->at_barrier != b->left)
		return;
	b->at_barrier = 0;
	b->yes_before = b->yes;
	b->yes = 0;
	for (unsigned i = 0; i < b->n; i++)
		if (b->fibers[i].state == AT_BARRIER)
			b->fibers[i].state = READY;
}

unsigned barrier(const Place &place, bool yes)
{
	Block *b = block;
	Fiber *f = b->running;
	__tsan_release(&b->at_barrier);
	b->at_barrier++;
	b->yes += yes;
	f->state = AT_BARRIER;
	open_barrier(b);
	leave(f, f->state, place);
	__tsan_acquire(&b->at_barrier);
	return b->yes_before;
}

/* Returns the lanes of a warp that have not exited. */
static unsigned living(const Warp *w)
{
	unsigned mask = 0;
	for (unsigned i = 0; i < w->n; i++)
		mask |= w->lanes[i]->state != EXITED ? 1u << i : 0;
	return mask;
}

/* Completes the collective with this mask if all of its lanes have arrived. */
static void close_gather(Warp *w, unsigned mask)
{
	const unsigned wanted = mask & living(w);
	unsigned there = 0;
	for (unsigned i = 0; i < w->n; i++)
		there |= w->lanes[i]->state == IN_GATHER && w->lanes[i]->mask == mask ? 1u << i : 0;
	if (!there || there != wanted)
		return;
	for (unsigned i = 0; i < w->n; i++) {
		if (!(there >> i & 1u))
			continue;
		Fiber *f = w->lanes[i];
		for (unsigned k = 0; k < w->n; k++)
			f->seen[k] = there >> k & 1u ? w->lanes[k]->value : 0;
		f->there = there;
		f->state = READY;
	}
}

unsigned gather(const Place &place, unsigned mask, uint64_t value, uint64_t *out)
{
	Fiber *f = block->running;
	if (!(mask >> f->lane & 1u)) {
		fprintf(stderr, "%s at %s:%d: lane %u is not in its own mask %#x\n", place.call,
			place.file, place.line, f->lane, mask);
		_exit(DEADLOCK);
	}
	__tsan_release(f->warp);
	f->mask = mask;
	f->value = value;
	f->state = IN_GATHER;
	close_gather(f->warp, mask);
	leave(f, f->state, place);
	__tsan_acquire(f->warp);
	memcpy(out, f->seen, sizeof f->seen);
	return f->there;
}

/* Chooses how long the lanes of a block wait for other lanes to converge with: not at all, for a
 * few turns, or until no other lane can arrive. In the last case the whole warp moves from one such
 * place to the next in lockstep, as on a GPU. */
static unsigned draw_patience(Block *b)
{
	static const unsigned turns[] = {1, 4, 256};
	return turns[draw(b) % 3];
}

/* Lanes that reach the same place within their turns converge; the number of turns is random (see
 * draw_patience()). */
unsigned converged(const Place &place)
{
	Fiber *f = block->running;
	const unsigned patience = block->patience;
	f->waited = patience > 4 ? patience : (unsigned)(draw(block) % patience);
	f->there = 0;
	leave(f, CONVERGING, place);
	return f->there;
}

/* Returns whether no running lane of the warp can still reach the place where others wait for it.
 * */
static bool in_step(const Warp *w)
{
	for (unsigned i = 0; i < w->n; i++)
		if (w->lanes[i]->state == READY || w->lanes[i]->state == SLEEPING)
			return false;
	return true;
}

static void release_converged(Fiber *first)
{
	Warp *w = first->warp;
	unsigned mask = 0;
	for (unsigned i = 0; i < w->n; i++) {
		Fiber *f = w->lanes[i];
		if (f->state == CONVERGING && f->place.line == first->place.line &&
		    f->place.file == first->place.file)
			mask |= 1u << i;
	}
	for (unsigned i = 0; i < w->n; i++) {
		if (!(mask >> i & 1u))
			continue;
		w->lanes[i]->there = mask;
		w->lanes[i]->state = READY;
	}
}

static void exit_fiber(Block *b, Fiber *f)
{
	f->state = EXITED;
	b->left--;
	open_barrier(b);
	/* Collectives that wait for this lane need not wait any more. */
	for (unsigned i = 0; i < f->warp->n; i++)
		if (f->warp->lanes[i]->state == IN_GATHER)
			close_gather(f->warp, f->warp->lanes[i]->mask);
}

static void run_fiber()
{
	Block *b = block;
	Fiber *f = b->running;
	__tsan_acquire(&b->fibers); /* ordered after the launch, but not after other threads' ends */
	launch.kernel->invoke(launch.arguments);
	__tsan_release(&b->left);
	exit_fiber(b, f);
	__tsan_switch_to_fiber(b->tsan, 1);
	setcontext(&b->scheduler);
}

static void resume(Block *b, Fiber *f)
{
	b->running = f;
	indices = &f->indices;
	budget = 1 + (int)(draw(b) % 16);
	__tsan_switch_to_fiber(f->tsan, 1);
	swapcontext(&b->scheduler, &f->context);
}

static void print_place(const Fiber *f)
{
	const uint3 &t = f->indices.thread, &k = f->indices.block;
	fprintf(places, "%u,%u,%u %u,%u,%u %s %s %d", k.x, k.y, k.z, t.x, t.y, t.z, f->place.call,
	       f->place.file, f->place.line);
	for (int i = 0; i < f->n_frames; i++)
		fprintf(places, " %p", f->frames[i]);
	fprintf(places, "\n");
}

/* Lets each fiber record its own frames, then prints all places. */
static void report(Block *b)
{
	b->reporting = true;
	for (unsigned i = 0; i < b->n; i++) {
		const State state = b->fibers[i].state;
		if (state == EXITED)
			continue;
		if (b->fibers[i].place.call)
			resume(b, &b->fibers[i]);
		else
			b->fibers[i].place = {"not-started", "-", 0};
	}
	pthread_mutex_lock(&report_lock);
	for (unsigned i = 0; i < b->n; i++)
		if (b->fibers[i].state != EXITED)
			print_place(&b->fibers[i]);
	fflush(places);
	pthread_mutex_unlock(&report_lock);
}

static bool is_ready(Fiber *f, uint64_t now)
{
	return f->state == READY || (f->state == SLEEPING && f->wake_ns <= now);
}

/* Chooses a fiber that can run, at random. If none can, sets *wake to the time when the next fiber
 * wakes up, or to 0 if none will. */
static Fiber *choose(Block *b, uint64_t *wake)
{
	const uint64_t now = now_ns();
	const unsigned start = (unsigned)(draw(b) % b->n);
	Fiber *converging = nullptr, *last = b->running;
	*wake = 0;
	if (last && (last->state == READY || last->state == SLEEPING) && now < b->turn_ends_ns) {
		*wake = last->wake_ns;
		return is_ready(last, now) ? last : nullptr;
	}
	b->turn_ends_ns = launch.seed >> 63 ? now + TURN_NS : 0;
	for (unsigned i = 0; i < b->n; i++) {
		Fiber *f = &b->fibers[(start + i) % b->n];
		if (is_ready(f, now))
			return f;
		if (f->state == CONVERGING && (f->waited-- == 0 || in_step(f->warp)))
			release_converged(f);
		if (f->state == READY)
			return f;
		if (f->state == CONVERGING)
			converging = f;
		if (f->state == SLEEPING && (!*wake || f->wake_ns < *wake))
			*wake = f->wake_ns;
	}
	if (converging && (!*wake || b->patience <= 4)) {
		release_converged(converging);
		return converging;
	}
	return nullptr;
}

static void schedule(Block *b)
{
	unsigned turns = 0;
	while (b->left) {
		uint64_t wake;
		if (__atomic_load_n(&launch.stop, __ATOMIC_RELAXED)) {
			report(b);
			pthread_exit(nullptr);
		}
		Fiber *f = choose(b, &wake);
		if (f) {
			f->state = READY;
			resume(b, f);
			/* Other blocks, and the proxy, may need this CPU. */
			if (++turns % (4 * b->n) == 0)
				sched_yield();
		} else if (wake) {
			const uint64_t now = now_ns(), left = wake > now ? wake - now : 0;
			const timespec t = {0, (long)(left < 1000000 ? left : 1000000)};
			nanosleep(&t, nullptr);
		} else {
			report(b);
			_exit(DEADLOCK);
		}
	}
}

static void *must_map(size_t size)
{
	void *at = mmap(nullptr, size, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED) {
		fprintf(stderr, "out of memory for the threads of a block: %s\n", strerror(errno));
		_exit(WRONG_ARGUMENTS);
	}
	return at;
}

static size_t page()
{
	static const size_t size = (size_t)sysconf(_SC_PAGESIZE);
	return size;
}

static void make_fiber(Block *b, unsigned i, uint3 at)
{
	Fiber *f = &b->fibers[i];
	const dim3 &n = launch.block;
	f->indices = {{i % n.x, i / n.x % n.y, i / (n.x * n.y)}, at, launch.block, launch.grid};
	f->warp = &b->warps[i / LANES];
	f->lane = i % LANES;
	f->warp->lanes[f->warp->n++] = f;
	/* The lowest page is a guard page, so that an overflowing stack cannot reach the next
	 * stack. */
	f->stack = must_map(page() + STACK);
	mprotect(f->stack, page(), PROT_NONE);
	f->tsan = __tsan_create_fiber(0);
	getcontext(&f->context);
	f->context.uc_stack.ss_sp = f->stack;
	f->context.uc_stack.ss_size = page() + STACK;
	f->context.uc_link = nullptr;
	makecontext(&f->context, run_fiber, 0);
}

static void run_block(uint64_t number)
{
	static thread_local Block own;
	Block *b = &own;
	const dim3 &g = launch.grid;
	const uint3 at = {(unsigned)(number % g.x), (unsigned)(number / g.x % g.y),
			  (unsigned)(number / g.x / g.y)};
	*b = {};
	block = b;
	b->n = b->left = launch.block.x * launch.block.y * launch.block.z;
	b->n_warps = (b->n + LANES - 1) / LANES;
	b->random = (launch.seed + 1) * 0x9e3779b97f4a7c15u ^ (number + 1) * 0xbf58476d1ce4e5b9u;
	b->patience = draw_patience(b);
	b->fibers = (Fiber *)must_map(b->n * sizeof(Fiber));
	b->warps = (Warp *)must_map(b->n_warps * sizeof(Warp));
	b->shared = must_map(launch.shared_size + 1);
	b->tsan = __tsan_get_current_fiber();
	for (unsigned i = 0; i < b->n; i++)
		make_fiber(b, i, at);
	__tsan_release(&b->fibers);
	schedule(b);
	__tsan_acquire(&b->left);
	for (unsigned i = 0; i < b->n; i++) {
		munmap(b->fibers[i].stack, page() + STACK);
		__tsan_destroy_fiber(b->fibers[i].tsan);
	}
	munmap(b->shared, launch.shared_size + 1);
	munmap(b->warps, b->n_warps * sizeof(Warp));
	munmap(b->fibers, b->n * sizeof(Fiber));
}

/* Runs one block. Each block has its own OS thread, and so its own (thread-local) shared memory. */
static void *block_thread(void *number)
{
	/* A fiber that overflows its stack cannot run the signal handler on that stack. */
	static thread_local char signal_stack[16384];
	const stack_t stack = {signal_stack, 0, sizeof signal_stack};
	sigaltstack(&stack, nullptr);
	run_block((uint64_t)(uintptr_t)number);
	return nullptr;
}

static void run_grid()
{
	static pthread_t threads[BLOCKS_AT_ONCE];
	for (uint64_t i = 0; i < launch.n_blocks + BLOCKS_AT_ONCE; i++) {
		pthread_t *t = &threads[i % BLOCKS_AT_ONCE];
		if (i >= BLOCKS_AT_ONCE && i - BLOCKS_AT_ONCE < launch.n_blocks)
			pthread_join(*t, nullptr);
		if (i >= launch.n_blocks)
			continue;
		const int rc = pthread_create(t, nullptr, block_thread, (void *)(uintptr_t)i);
		if (rc) {
			fprintf(stderr, "cannot start a thread for a block: %s\n", strerror(rc));
			_exit(WRONG_ARGUMENTS);
		}
	}
}

/* Stops the grid at the time-out: blocks report at their next switch; a thread that spins without a
 * switch is abandoned after another second. */
static void *watch(void *)
{
	const timespec second = {1, 0};
	const timespec t = {(time_t)(launch.timeout_ns / 1000000000u),
			    (long)(launch.timeout_ns % 1000000000u)};
	nanosleep(&t, nullptr);
	__atomic_store_n(&launch.stop, 1, __ATOMIC_RELAXED);
	nanosleep(&second, nullptr);
	fflush(places);
	_exit(TIMED_OUT);
}

static void illegal(int number, siginfo_t *info, void *)
{
	char text[256];
	const Fiber *f = block ? block->running : nullptr;
	const uint3 none = {0, 0, 0}, t = f ? f->indices.thread : none,
		    k = f ? f->indices.block : none;
	const int n = snprintf(text, sizeof text,
			       "signal %d: illegal address %p in thread %u,%u,%u of block %u,%u,%u\n",
			       number, info->si_addr, t.x, t.y, t.z, k.x, k.y, k.z);
	if (write(2, text, (size_t)n) < 0)
		_exit(ILLEGAL);
	_exit(ILLEGAL);
}

static void must_read(void *to, size_t size)
{
	if (fread(to, 1, size, stdin) != size)
		_exit(WRONG_ARGUMENTS);
}

template <class T> static T read_value()
{
	T v;
	must_read(&v, sizeof v);
	return v;
}

static void map_memory()
{
	const uint32_t n = read_value<uint32_t>();
	for (uint32_t i = 0; i < n; i++) {
		const int fd = read_value<int32_t>();
		const uint64_t offset = read_value<uint64_t>(), size = read_value<uint64_t>(),
			       address = read_value<uint64_t>();
		void *const at = (void *)(uintptr_t)address;
		if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd,
			 (off_t)offset) != at) {
			fprintf(stderr, "cannot map %llu bytes at %p: %s\n",
				(unsigned long long)size, at, strerror(errno));
			_exit(errno == EEXIST ? ADDRESS_TAKEN : WRONG_ARGUMENTS);
		}
	}
}

static void wrong_argument(uint32_t i, const char *why)
{
	fprintf(stderr, "argument %u of %s %s\n", i, launch.kernel->name, why);
	_exit(WRONG_ARGUMENTS);
}

static bool integer_fits(const Parameter &p, int64_t v, bool large)
{
	const unsigned bits = 8 * p.size;
	if (p.kind == 'u')
		return bits == 64 || (v >= 0 && (uint64_t)v >> bits == 0);
	return !large && (bits == 64 || (v >= -(1ll << (bits - 1)) && v < 1ll << (bits - 1)));
}

/* Converts an argument to its parameter. tag: i int, I int of 2^63 or more, f float, p pointer,
 * t bytes of the exact type. */
static void convert(uint32_t i, char tag, const char *bytes, uint32_t size, char *to)
{
	const Parameter &p = launch.kernel->parameters[i];
	int64_t integer = 0;
	double real = 0;
	if (tag == 't') {
		if (size != p.size)
			wrong_argument(i, "has another size than its parameter");
		memcpy(to, bytes, size);
		return;
	}
	memcpy(&integer, bytes, 8);
	memcpy(&real, bytes, 8);
	if (p.kind == 'f') {
		const double v = tag == 'f' ? real : (double)integer;
		const float single = (float)v;
		if (tag == 'p')
			wrong_argument(i, "is a pointer; its parameter is a float");
		memcpy(to, p.size == 4 ? (const void *)&single : &v, p.size);
		return;
	}
	if (p.kind == 's' || tag == 'f' || (tag == 'p' && p.size != 8))
		wrong_argument(i, "does not convert to its parameter");
	if (p.kind != 'p' && tag != 'p' && !integer_fits(p, integer, tag == 'I'))
		wrong_argument(i, "is out of the range of its parameter");
	memcpy(to, bytes, p.size);
}

static void read_arguments()
{
	const uint32_t n = read_value<uint32_t>();
	static char room[64][64];
	static void *pointers[64];
	static char bytes[65536];
	if (n != launch.kernel->count || n > 64) {
		fprintf(stderr, "%s takes %u arguments, not %u\n", launch.kernel->name,
			launch.kernel->count, n);
		_exit(WRONG_ARGUMENTS);
	}
	for (uint32_t i = 0; i < n; i++) {
		const char tag = read_value<char>();
		const uint32_t size = read_value<uint32_t>(), wanted = launch.kernel->parameters[i].size;
		if (size > sizeof bytes)
			wrong_argument(i, "is too large");
		memset(bytes, 0, 8);
		must_read(bytes, size);
		pointers[i] = wanted <= sizeof room[i] ? room[i] : (char *)must_map(wanted);
		convert(i, tag, bytes, size, (char *)pointers[i]);
	}
	launch.arguments = pointers;
}

static void find_kernel()
{
	char name[256] = "";
	const uint32_t length = read_value<uint32_t>();
	if (length >= sizeof name)
		_exit(WRONG_ARGUMENTS);
	must_read(name, length);
	for (unsigned i = 0; i < n_kernels; i++)
		if (!strcmp(kernels[i].name, name))
			launch.kernel = &kernels[i];
	if (!launch.kernel) {
		fprintf(stderr, "there is no kernel %s\n", name);
		_exit(WRONG_ARGUMENTS);
	}
}

static dim3 read_dim()
{
	dim3 d;
	must_read(&d, sizeof d);
	return d;
}

static void read_launch()
{
	map_memory();
	find_kernel();
	launch.grid = read_dim();
	launch.block = read_dim();
	launch.shared_size = read_value<uint64_t>();
	launch.seed = read_value<uint64_t>();
	launch.timeout_ns = read_value<uint64_t>();
	launch.n_blocks = (uint64_t)launch.grid.x * launch.grid.y * launch.grid.z;
	read_arguments();
}
static void prepare_process()
{
	struct sigaction action = {};
	void *frames[1];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	backtrace(frames, 1); /* loads the unwinder now, as a fiber's stack may be too small for it */
	action.sa_sigaction = illegal;
	action.sa_flags = SA_SIGINFO | SA_ONSTACK;
	sigaction(SIGSEGV, &action, nullptr);
	sigaction(SIGBUS, &action, nullptr);
}

void run_and_exit(dim3 grid, dim3 block, size_t shared_size, Invoke *invoke, void *const *arguments)
{
	static Kernel_entry kernel;
	kernel.invoke = invoke;
	prepare_process();
	places = stderr;
	launch.kernel = &kernel;
	launch.arguments = (void **)arguments;
	launch.grid = grid;
	launch.block = block;
	launch.shared_size = shared_size;
	launch.n_blocks = (uint64_t)grid.x * grid.y * grid.z;
	run_grid();
	fflush(nullptr);
	_exit(0);
}
} // namespace dg_emu

/* Weak: a program with host code has a main() of its own (see emulated/host.cpp). */
__attribute__((weak)) int main(int argc, char **argv)
{
	using namespace dg_emu;
	pthread_t watcher;
	places = argc > 1 ? fdopen(atoi(argv[1]), "w") : stderr;
	if (!places)
		return WRONG_ARGUMENTS;
	prepare_process();
	read_launch();
	pthread_create(&watcher, nullptr, watch, nullptr);
	run_grid();
	if (__atomic_load_n(&launch.stop, __ATOMIC_RELAXED)) {
		fflush(nullptr);
		_exit(TIMED_OUT);
	}
	fflush(nullptr);
	return 0;
}
