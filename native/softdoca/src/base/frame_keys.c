// SPDX-License-Identifier: Apache-2.0
/*
 * The table of keys for frames. A key lasts until its map is stopped or its memory is freed. Copies are made
 * with the lock held, so memory is not unmapped meanwhile.
 *
 * Lock: `lock` guards the table.
 */
#include "frame_keys.h"

#include <string.h>

enum { KEYS = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct key {
	const void *owner; /* a map; NULL: free */
	uintptr_t addr;
	const char *base;
	size_t size;
	uint8_t generation;
} keys[KEYS];
static uint32_t last;

FORK_HANDLERS(lock)

/* Before the constructor of gpu.c, whose lock is held when memory is freed: fork() takes that lock
 * first. */
static void __attribute__((constructor(200))) watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork);
}

static uint32_t key_number(const struct key *k)
{
	return (uint32_t)(k - keys) << 8 | k->generation;
}

/* Returns the owner's key, or a free one; NULL if all are in use. */
static struct key *find(const void *owner)
{
	for (uint32_t i = 0; i < KEYS; i++)
		if (keys[i].owner == owner)
			return &keys[i];
	for (uint32_t i = 1; i <= KEYS; i++)
		if (!keys[(last + i) % KEYS].owner)
			return &keys[(last + i) % KEYS];
	return NULL;
}

doca_error_t frame_key_get(const void *owner, const char *addr, const char *base, size_t size,
			   uint32_t *key)
{
	pthread_mutex_lock(&lock);
	struct key *k = find(owner);
	if (k && !k->owner) {
		*k = (struct key){owner, (uintptr_t)addr, base, size, (uint8_t)(k->generation + 1)};
		last = (uint32_t)(k - keys);
	}
	if (k)
		*key = key_number(k);
	pthread_mutex_unlock(&lock);
	if (k)
		return DOCA_SUCCESS;
	return REFUSE(DOCA_ERROR_NO_MEMORY, "all %d keys are in use: stop some maps", KEYS);
}

bool frame_key_copy(uint32_t key, uint64_t addr, uint32_t size, void *to)
{
	const struct key *k = &keys[(key >> 8) % KEYS];
	pthread_mutex_lock(&lock);
	bool covered = k->owner && key_number(k) == key &&
		       range_within((void *)(uintptr_t)addr, size, (void *)k->addr, k->size);
	if (covered)
		memcpy(to, k->base + ((uintptr_t)addr - k->addr), size);
	pthread_mutex_unlock(&lock);
	return covered;
}

void frame_key_end(const void *owner)
{
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < KEYS; i++)
		if (keys[i].owner == owner)
			keys[i].owner = NULL;
	pthread_mutex_unlock(&lock);
}

void frame_keys_end_range(const char *base, size_t size)
{
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < KEYS; i++)
		if (keys[i].base < base + size && base < keys[i].base + keys[i].size)
			keys[i].owner = NULL;
	pthread_mutex_unlock(&lock);
}
