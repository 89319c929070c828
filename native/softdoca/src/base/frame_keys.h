/* SPDX-License-Identifier: Apache-2.0 */
/* Keys by which entries of Ethernet queues name memory. All functions are thread-safe. */
#ifndef SOFTDOCA_FRAME_KEYS_H
#define SOFTDOCA_FRAME_KEYS_H

#include "base.h"

/* Stores the key of this owner's memory, a new one if it has none. addr: as device code has it; base: where
 * the CPU has it mapped. Errors: NO_MEMORY. */
doca_error_t frame_key_get(const void *owner, const char *addr, const char *base, size_t size,
			   uint32_t *key);
/* Copies memory that a key covers. Returns whether it covers it. */
bool frame_key_copy(uint32_t key, uint64_t addr, uint32_t size, void *to);
/* End the key of an owner, and all keys of memory that is about to be unmapped. */
void frame_key_end(const void *owner);
void frame_keys_end_range(const char *base, size_t size);

#endif
