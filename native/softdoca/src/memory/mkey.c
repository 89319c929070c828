// SPDX-License-Identifier: Apache-2.0
/*
 * Keys of maps for frames. A key lasts until its map is stopped or its memory is freed. Copies are made
 * with the lock held, so memory is not unmapped meanwhile.
 *
 * Lock: `lock` guards the table.
 */
#include "gpu/gpu.h"
#include "memory.h"
#include "port/port.h"

enum { KEYS = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct key {
	const struct doca_mmap *map; /* NULL: free */
	uintptr_t addr; /* as device code has it */
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

static uint32_t number(const struct key *k)
{
	return (uint32_t)(k - keys) << 8 | k->generation;
}

/* Returns the map's key, a new one if it has none; NULL if all are in use. */
static struct key *key_of(const struct doca_mmap *m)
{
	for (uint32_t i = 0; i < KEYS; i++)
		if (keys[i].map == m)
			return &keys[i];
	for (uint32_t i = 1; i <= KEYS; i++) {
		struct key *k = &keys[(last + i) % KEYS];
		if (k->map)
			continue;
		last = (uint32_t)(k - keys);
		*k = (struct key){m, (uintptr_t)m->addr, m->window ? m->base : m->addr, m->len,
				  (uint8_t)(k->generation + 1)};
		return k;
	}
	return NULL;
}

static doca_error_t find_key(const struct doca_mmap *m, uint32_t *mkey)
{
	pthread_mutex_lock(&lock);
	struct key *k = key_of(m);
	if (k)
		*mkey = number(k);
	pthread_mutex_unlock(&lock);
	if (k)
		return DOCA_SUCCESS;
	return REFUSE(DOCA_ERROR_NO_MEMORY, "all %d keys are in use: stop some maps", KEYS);
}

/* Device code passes its own address of the memory, where the CPU has it mapped, too. */
static doca_error_t get_key(struct doca_mmap *m, bool of_gpu, uint32_t *mkey)
{
	struct gpu_memory *memory = softdoca_gpu_take(m->addr, m->len);
	if (!memory && !of_gpu && m->backing == BACKING_HOST && m->base)
		return find_key(m, mkey);
	if (!memory)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "%zu bytes at %p are not memory of doca_gpu_mem_alloc()", m->len,
			      (void *)m->addr);
	doca_error_t error = softdoca_gpu_reach(memory);
	if (!error)
		error = find_key(m, mkey);
	softdoca_gpu_drop(memory);
	return error;
}

static doca_error_t get_checked(struct doca_mmap *mmap, const struct doca_dev *dev, bool of_gpu,
				uint32_t *mkey)
{
	if (!mmap_started(mmap))
		return REFUSE(DOCA_ERROR_BAD_STATE, "the map is not started");
	if (!softdoca_mmap_attachment(mmap, dev))
		return REFUSE(DOCA_ERROR_NOT_FOUND, "the map does not have %s", dev->info.f.pci);
	mmap_lock(mmap);
	doca_error_t error = get_key(mmap, of_gpu, mkey);
	mmap_unlock(mmap);
	return error;
}

/* The errors are guesses. */
doca_error_t doca_mmap_get_mkey(struct doca_mmap *mmap, struct doca_dev *dev, uint32_t *mkey)
{
	CHECK_MMAP(mmap);
	CHECK_DEV(dev);
	CHECK_OUT(mkey);
	return get_checked(mmap, dev, true, mkey);
}

doca_error_t softdoca_mmap_frame_key(struct doca_mmap *m, const struct doca_dev *dev, uint32_t *key)
{
	return get_checked(m, dev, false, key);
}

/* Copies memory of an array of buffers, whose keys are those of the software NIC. */
static bool copy_of_array(uint32_t key, uint64_t addr, uint32_t size, void *to)
{
	const void *at = (const void *)(uintptr_t)addr;
	const struct doca_mmap *m = softdoca_mmap_hold(key);
	struct gpu_memory *memory =
		m && range_within(at, size, m->addr, m->len) ? softdoca_gpu_take(at, size) : NULL;
	const bool covered = memory && memory->by_cpu;
	if (covered)
		memcpy(to, at, size);
	if (memory)
		softdoca_gpu_drop(memory);
	if (m)
		softdoca_mmap_let_go();
	return covered;
}

bool mkey_copy(uint32_t key, uint64_t addr, uint32_t size, void *to)
{
	const struct key *k = &keys[(key >> 8) % KEYS];
	pthread_mutex_lock(&lock);
	bool covered = k->map && number(k) == key &&
		       range_within((void *)(uintptr_t)addr, size, (void *)k->addr, k->size);
	if (covered)
		memcpy(to, k->base + ((uintptr_t)addr - k->addr), size);
	pthread_mutex_unlock(&lock);
	return covered || copy_of_array(key, addr, size, to);
}

static void forget(bool (*is)(const struct key *k, uintptr_t what, size_t size), uintptr_t what,
		   size_t size)
{
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < KEYS; i++)
		if (keys[i].map && is(&keys[i], what, size))
			keys[i].map = NULL;
	pthread_mutex_unlock(&lock);
}

static bool is_of_map(const struct key *k, uintptr_t map, size_t size)
{
	(void)size;
	return (uintptr_t)k->map == map;
}

static bool overlaps(const struct key *k, uintptr_t at, size_t size)
{
	uintptr_t base = (uintptr_t)k->base;
	return base < at + size && at < base + k->size;
}

void mkey_forget_map(const struct doca_mmap *m)
{
	forget(is_of_map, (uintptr_t)m, 0);
}

void mkey_forget_range(const char *addr, size_t size)
{
	forget(overlaps, (uintptr_t)addr, size);
}
