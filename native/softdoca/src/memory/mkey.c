// SPDX-License-Identifier: Apache-2.0
/* Keys of maps for frames: which memory of which maps has one. */
#include <string.h>

#include "base/frame_keys.h"
#include "gpu/gpu.h"
#include "memory.h"

/* Device code passes its own address of the memory, where the CPU has it mapped, too. */
static doca_error_t get_key(struct doca_mmap *m, bool of_gpu, uint32_t *mkey)
{
	struct gpu_memory *memory = softdoca_gpu_take(m->addr, m->len);
	if (!memory && !of_gpu && m->backing == BACKING_HOST && m->base)
		return frame_key_get(m, m->addr, m->window ? m->base : m->addr, m->len, mkey);
	if (!memory)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "%zu bytes at %p are not memory of doca_gpu_mem_alloc()", m->len,
			      (void *)m->addr);
	doca_error_t error = softdoca_gpu_reach(memory);
	if (!error)
		error = frame_key_get(m, m->addr, m->window ? m->base : m->addr, m->len, mkey);
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
	return frame_key_copy(key, addr, size, to) || copy_of_array(key, addr, size, to);
}
