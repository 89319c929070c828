/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles that can be checked. Each object that a program holds a pointer to lies in one reserved
 * range of addresses, on a 64-byte boundary, and begins with a tag made of its kind and its place.
 * So any value at all can be looked at without a stray access: NULL, a number, a pointer to
 * something else, an object of another kind, or one that was freed. The range is never given back,
 * only used again.
 */
#ifndef SOFTDOCA_OBJECT_H
#define SOFTDOCA_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What libdoca_dma, libdoca_argp and libdoca_comch use of libdoca_common. */
#define SOFTDOCA_INTERNAL __attribute__((visibility("default")))

enum object_kind {
	OBJECT_FREE,
	OBJECT_DEVINFO,
	OBJECT_DEVINFO_REP,
	OBJECT_DEV,
	OBJECT_DEV_REP,
	OBJECT_MMAP,
	OBJECT_INVENTORY,
	OBJECT_BUF,
	OBJECT_BUF_ARR,
	OBJECT_PE,
	OBJECT_CTX,
	OBJECT_TASK,
	OBJECT_DMA,
	OBJECT_MEMCPY,
	OBJECT_LOG_BACKEND,
	OBJECT_PARAM,
	OBJECT_COMCH_CLIENT,
	OBJECT_COMCH_SERVER,
	OBJECT_COMCH_CONNECTION,
	OBJECT_COMCH_SEND,
	OBJECT_COMCH_EVENT,
	OBJECT_BUF_IDLE, /* a buffer that lies in its inventory */
	OBJECT_LIST, /* before an array of handles that the program holds */
};

/* The first member of each. */
struct object {
	uint32_t tag;
	uint32_t lines; /* of 64 bytes; 0: part of another object */
};

struct object_arena {
	uintptr_t base; /* 0: no object was made yet */
	size_t size; /* bytes in use, from base on */
	uint32_t secret;
};
extern SOFTDOCA_INTERNAL struct object_arena softdoca_arena;

static inline uint32_t object_tag(const void *p, enum object_kind kind)
{
	return ((uint32_t)((uintptr_t)p >> 6) * 0x9e3779b1u ^ softdoca_arena.secret) + kind;
}

/* Whether p is a living object of this kind. Any value may be asked about. The size is looked at
 * first: it is stored last, so with it the base and the secret are there, and it only grows, and
 * what lies below it stays readable. */
static inline bool object_is(const void *p, enum object_kind kind)
{
	size_t size = __atomic_load_n(&softdoca_arena.size, __ATOMIC_ACQUIRE);
	return size && (uintptr_t)p - softdoca_arena.base < size && !((uintptr_t)p & 63) &&
	       __atomic_load_n(&((const struct object *)p)->tag, __ATOMIC_ACQUIRE) ==
		       object_tag(p, kind);
}

/* A new object of `size` bytes, zeroed but for its header. NULL: no memory. Any thread. */
SOFTDOCA_INTERNAL void *softdoca_object_new(enum object_kind kind, size_t size);
/* Whether n objects of that size may still be made: so that an absurd number is refused at once,
 * not by the system once its memory is gone. */
SOFTDOCA_INTERNAL bool softdoca_object_room(size_t size, size_t n);
/* Ends the object's life, and that of the objects within it: from now on object_is() is false. */
SOFTDOCA_INTERNAL void softdoca_object_free(void *p);
static inline size_t object_lines(size_t size)
{
	return (size + 63) / 64;
}
/* Changes what an object counts as; OBJECT_FREE makes it unusable without giving its memory
 * back. For an object within another one, aligned to 64 bytes, too. */
static inline void object_become(void *p, enum object_kind kind)
{
	__atomic_store_n(&((struct object *)p)->tag, object_tag(p, kind), __ATOMIC_RELEASE);
}

#endif
