// SPDX-License-Identifier: Apache-2.0
#include "object.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#define RESERVED ((size_t)16 << 30)
#define LEAST	 ((size_t)64 << 20) /* where addresses are few (RLIMIT_AS) */
#define STEP	 ((size_t)1 << 20) /* made usable at a time */
enum { CLASSES = 64 }; /* free lists by size, in lines of 64 bytes */

struct object_arena softdoca_arena;

struct free_object {
	struct object o;
	struct free_object *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct free_object *free_lists[CLASSES + 1];
static size_t reserved, usable, used;

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

static bool reserve(void)
{
	void *at = MAP_FAILED;
	for (reserved = RESERVED; at == MAP_FAILED && reserved >= LEAST; reserved /= 2)
		at = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			  -1, 0);
	if (at == MAP_FAILED)
		return false;
	reserved *= 2; /* the loop halved it once more */
	/* Without randomness handles are still checked, only guessable. */
	if (getrandom(&softdoca_arena.secret, sizeof softdoca_arena.secret, GRND_NONBLOCK) < 0)
		softdoca_arena.secret = (uint32_t)(uintptr_t)at;
	softdoca_arena.base = (uintptr_t)at;
	pthread_atfork(before_fork, after_fork, after_fork);
	return true;
}

/* `size` more bytes behind those in use, zeroed. */
static char *extend(size_t size)
{
	if (!softdoca_arena.base && !reserve())
		return NULL;
	char *base = (char *)softdoca_arena.base;
	if (size > reserved - used)
		return NULL;
	if (used + size > usable) {
		size_t more = (used + size - usable + STEP - 1) & ~(STEP - 1);
		if (more > reserved - usable)
			more = reserved - usable;
		if (mprotect(base + usable, more, PROT_READ | PROT_WRITE))
			return NULL;
		usable += more;
	}
	char *at = base + used;
	used += size;
	return at;
}

static void *begin(char *at, enum object_kind kind, size_t lines)
{
	((struct object *)at)->lines = (uint32_t)lines;
	object_become(at, kind);
	return at;
}

void *softdoca_object_new(enum object_kind kind, size_t size)
{
	size_t lines = object_lines(size);
	pthread_mutex_lock(&lock);
	struct free_object *found = lines <= CLASSES ? free_lists[lines] : NULL;
	char *at = (char *)found;
	if (found) {
		free_lists[lines] = found->next;
		memset(at + sizeof(struct object), 0, lines * 64 - sizeof(struct object));
	} else {
		at = extend(lines * 64);
	}
	if (at)
		begin(at, kind, lines);
	/* After the tag: who sees the size may look at what lies below it. */
	__atomic_store_n(&softdoca_arena.size, used, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
	return at;
}

bool softdoca_object_room(size_t size, size_t n)
{
	size_t total;
	pthread_mutex_lock(&lock);
	bool room = (softdoca_arena.base || reserve()) &&
		    !__builtin_mul_overflow(object_lines(size) * 64, n, &total) &&
		    total <= reserved - used;
	pthread_mutex_unlock(&lock);
	return room;
}

void softdoca_object_free(void *p)
{
	struct free_object *f = p;
	size_t lines = f->o.lines;
	object_become(p, OBJECT_FREE);
	if (!lines || lines > CLASSES)
		return;
	pthread_mutex_lock(&lock);
	f->next = free_lists[lines];
	free_lists[lines] = f;
	pthread_mutex_unlock(&lock);
}
