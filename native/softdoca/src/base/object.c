// SPDX-License-Identifier: Apache-2.0
#include "object.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#define RESERVED ((size_t)16 << 30)
#define LEAST    ((size_t)16 << 20) /* smallest range, if address space is limited (RLIMIT_AS) */
#define SHARE    8 /* at most 1/SHARE of RLIMIT_AS is reserved; the program needs the rest */
#define STEP     ((size_t)1 << 20) /* bytes made accessible at once; a multiple of any page size */

/*
 * Free lists by size: one for each number of lines up to EXACT, then one for each power of two. A
 * list is first in, first out, and its objects are reused only while it has more than KEPT of them.
 * So a freed handle stays recognisable for a while; otherwise the next object would get the same
 * address and be mistaken for the freed one.
 */
enum { EXACT = 64, CLASSES = EXACT + 32, KEPT = 64 };
#define LISTED 0x80000000u /* flag in `lines` while the object is in its free list */

struct object_arena softdoca_arena;

struct free_object {
	struct object o;
	struct free_object *next;
};

struct free_list {
	struct free_object *first, *last;
	size_t n;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct free_list lists[CLASSES];
static size_t reserved, usable, used;

FORK_HANDLERS(lock)

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

static void lock_arena(void)
{
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&lock);
}

/* For LeakSanitizer: registers the range, so that memory that objects point to does not count as
 * leaked. */
__attribute__((weak)) extern void __lsan_register_root_region(const void *p, size_t size);

static bool reserve_addresses(void)
{
	struct rlimit limit;
	size_t size = RESERVED;
	void *at = MAP_FAILED;
	if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY)
		while (size > LEAST && size > limit.rlim_cur / SHARE)
			size /= 2;
	for (; at == MAP_FAILED && size >= LEAST; size /= 2) {
		at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
			  0);
		reserved = size;
	}
	if (at == MAP_FAILED)
		return false;
	/* Without random bytes, handles are still checked, but could be guessed. */
	if (getrandom(&softdoca_arena.secret, sizeof softdoca_arena.secret, GRND_NONBLOCK) < 0)
		softdoca_arena.secret = (uint32_t)((uintptr_t)at >> 12);
	softdoca_arena.base = (uintptr_t)at;
	return true;
}

/* Returns `size` more zeroed bytes after those in use. */
static char *extend(size_t size)
{
	if (!softdoca_arena.base && !reserve_addresses())
		return NULL;
	char *base = (char *)softdoca_arena.base;
	if (size > reserved - used)
		return NULL;
	if (used + size > usable) {
		size_t more = (used + size - usable + STEP - 1) & ~(STEP - 1);
		if (mprotect(base + usable, more, PROT_READ | PROT_WRITE))
			return NULL;
		if (__lsan_register_root_region)
			__lsan_register_root_region(base + usable, more);
		usable += more;
	}
	char *at = base + used;
	used += size;
	return at;
}

/* Returns the free list for an object of *lines lines, and sets *lines to the size of that list's
 * objects. */
static struct free_list *list_for(size_t *lines)
{
	if (*lines <= EXACT)
		return &lists[*lines - 1];
	unsigned power = 0;
	while (((size_t)EXACT << power) < *lines)
		power++;
	*lines = (size_t)EXACT << power;
	return &lists[EXACT - 1 + power];
}

static char *pop_free(struct free_list *l)
{
	struct free_object *f = l->first;
	if (l->n <= KEPT)
		return NULL;
	l->first = f->next;
	l->n--;
	f->next = NULL;
	return (char *)f;
}

void *softdoca_object_new(enum object_kind kind, size_t size)
{
	size_t lines = object_lines(size);
	if (!lines || size > RESERVED)
		return NULL;
	lock_arena();
	struct free_list *l = list_for(&lines);
	char *at = pop_free(l);
	if (!at)
		at = extend(lines * 64);
	if (at) {
		((struct object *)at)->lines = (uint32_t)lines;
		object_become(at, kind);
	}
	/* Stored after the tag, the base and the secret: a thread that sees the size may read the
	 * memory below it. */
	__atomic_store_n(&softdoca_arena.size, used, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
	return at;
}

/* The limit is half of the machine's memory: objects are written when they are allocated, so using
 * more memory than the machine has would not fail; the kernel would kill the process. */
bool softdoca_object_room(size_t size, size_t n)
{
	size_t total, lines = object_lines(size);
	size_t machine = (size_t)sysconf(_SC_PHYS_PAGES) / 2 * (size_t)sysconf(_SC_PAGESIZE);
	if (!lines || size > RESERVED)
		return false;
	lock_arena();
	(void)list_for(&lines);
	bool room = (softdoca_arena.base || reserve_addresses()) &&
		    !__builtin_mul_overflow(lines * 64, n, &total) && total <= machine &&
		    total <= reserved - used;
	pthread_mutex_unlock(&lock);
	return room;
}

void softdoca_object_free(void *p)
{
	struct free_object *f = p;
	lock_arena();
	/* If two threads free the object concurrently, only one succeeds. */
	if (f->o.lines && !(f->o.lines & LISTED)) {
		size_t lines = f->o.lines;
		object_become(p, OBJECT_FREE);
		/* Invalidates objects within this one, and clears stale pointers, which could hide
		 * a leak. */
		memset((char *)p + sizeof f->o, 0, lines * 64 - sizeof f->o);
		struct free_list *l = list_for(&lines);
		f->o.lines |= LISTED;
		*(l->n ? &l->last->next : &l->first) = f;
		l->last = f;
		l->n++;
	}
	pthread_mutex_unlock(&lock);
}
