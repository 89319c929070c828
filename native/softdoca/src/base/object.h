/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles that can be validated. Every object that a program has a pointer to lies in one reserved
 * address range, is aligned to 64 bytes, and begins with a tag computed from its kind and its
 * address. So any value can be checked without an invalid memory access: NULL, a number, a pointer
 * to something else, an object of another kind, or one that was freed. The range is never unmapped;
 * freed memory in it is only reused.
 */
#ifndef SOFTDOCA_OBJECT_H
#define SOFTDOCA_OBJECT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Defines handlers of pthread_atfork() that hold a lock of this file across the fork. */
#define FORK_HANDLERS(lock)                  \
	static void before_fork(void)        \
	{                                    \
		pthread_mutex_lock(&lock);   \
	}                                    \
	static void after_fork(void)         \
	{                                    \
		pthread_mutex_unlock(&lock); \
	}

/* Symbols of libdoca_common that the other libraries use. */
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
	OBJECT_BUF_POOL,
	OBJECT_ADVISE,
	OBJECT_ADVISE_TASK,
	OBJECT_CLOCK,
	OBJECT_PE,
	OBJECT_GRAPH,
	OBJECT_GRAPH_NODE,
	OBJECT_GRAPH_INSTANCE,
	OBJECT_CTX,
	OBJECT_TASK,
	OBJECT_TASK_BATCH,
	OBJECT_DMA,
	OBJECT_MEMCPY,
	OBJECT_LOG_BACKEND,
	OBJECT_PARAM,
	OBJECT_COMCH_CLIENT,
	OBJECT_COMCH_SERVER,
	OBJECT_COMCH_CONNECTION,
	OBJECT_COMCH_SEND,
	OBJECT_COMCH_EVENT,
	OBJECT_COMCH_REMOTE,
	OBJECT_COMCH_PRODUCER,
	OBJECT_COMCH_CONSUMER,
	OBJECT_COMCH_PRODUCER_SEND,
	OBJECT_COMCH_POST_RECV,
	OBJECT_SYNC_EVENT,
	OBJECT_SYNC_EVENT_REMOTE_NET,
	OBJECT_SYNC_TASK,
	OBJECT_GPU,
	OBJECT_UMEM,
	OBJECT_UAR,
	OBJECT_IBV_DEVICE,
	OBJECT_IBV_CONTEXT,
	OBJECT_IBV_PD,
	OBJECT_IBV_MR,
	OBJECT_VERBS_CONTEXT,
	OBJECT_VERBS_PD,
	OBJECT_VERBS_DEVICE_ATTR,
	OBJECT_VERBS_AH_ATTR,
	OBJECT_VERBS_CQ_ATTR,
	OBJECT_VERBS_CQ,
	OBJECT_VERBS_QP_INIT_ATTR,
	OBJECT_VERBS_QP_ATTR,
	OBJECT_VERBS_QP,
	OBJECT_VERBS_EXPORT,
	OBJECT_GPU_SEMAPHORE,
	OBJECT_ETH_TXQ,
	OBJECT_ETH_RXQ,
	OBJECT_ETH_SEND,
	OBJECT_ETH_SEND_LARGE,
	OBJECT_ETH_RECEIVE,
	OBJECT_ETH_EVENT, /* a received packet */
	OBJECT_ETH_EVENTS, /* a batch of them */
	OBJECT_ETH_SEND_ERROR,
	OBJECT_ETH_SEND_NOTE,
	OBJECT_FLOW_CFG,
	OBJECT_FLOW_PORT_CFG,
	OBJECT_FLOW_PORT,
	OBJECT_FLOW_PIPE_CFG,
	OBJECT_FLOW_PIPE,
	OBJECT_FLOW_ENTRY,
	OBJECT_RDMA,
	OBJECT_RDMA_CONNECTION,
	OBJECT_RDMA_ADDR,
	OBJECT_RDMA_FREED, /* a task that was freed */
	OBJECT_RDMA_LISTENER,
	OBJECT_RDMA_RECEIVE, /* the tasks, in the order of enum rdma_type */
	OBJECT_RDMA_SEND,
	OBJECT_RDMA_SEND_IMM,
	OBJECT_RDMA_READ,
	OBJECT_RDMA_WRITE,
	OBJECT_RDMA_WRITE_IMM,
	OBJECT_RDMA_CMP_SWP,
	OBJECT_RDMA_FETCH_ADD,
	OBJECT_RDMA_EVENT_GET,
	OBJECT_RDMA_EVENT_SET,
	OBJECT_RDMA_EVENT_ADD,
	OBJECT_WORKQ, /* of the API of DOCA 1.3 to 2.2, like the next two */
	OBJECT_WORKQ_MMAP,
	OBJECT_WORKQ_DMA,
	OBJECT_COMM_CHANNEL_ENDPOINT,
	OBJECT_COMM_CHANNEL_PEER,
	OBJECT_BUF_IDLE, /* a buffer that is not in use */
	OBJECT_LIST, /* header of an array of handles given to the program */
};

/* First member of every object. */
struct object {
	uint32_t tag;
	uint32_t lines; /* size in units of 64 bytes; 0: part of another object */
};

struct object_arena {
	uintptr_t base; /* 0 before the first object */
	size_t size; /* bytes in use, starting at base */
	uint32_t secret;
};
extern SOFTDOCA_INTERNAL struct object_arena softdoca_arena;

static inline uint32_t object_tag(const void *p, enum object_kind kind)
{
	return ((uint32_t)((uintptr_t)p >> 6) * 0x9e3779b1u ^ softdoca_arena.secret) + kind;
}

/* Returns whether p is a valid object of this kind. p may have any value. The size is loaded
 * first: it is stored last, so base and secret are valid with it; it only grows, and memory below
 * it stays readable. */
static inline bool object_is(const void *p, enum object_kind kind)
{
	size_t size = __atomic_load_n(&softdoca_arena.size, __ATOMIC_ACQUIRE);
	return size && (uintptr_t)p - softdoca_arena.base < size && !((uintptr_t)p & 63) &&
	       __atomic_load_n(&((const struct object *)p)->tag, __ATOMIC_ACQUIRE) ==
		       object_tag(p, kind);
}

/* Allocates an object of `size` bytes, zeroed except for its header. Returns NULL if out of memory.
 * Thread-safe. */
SOFTDOCA_INTERNAL void *softdoca_object_new(enum object_kind kind, size_t size);
/* Returns whether n objects of that size can be allocated. Lets callers refuse an excessive number
 * before memory runs out. */
SOFTDOCA_INTERNAL bool softdoca_object_room(size_t size, size_t n);
/* Frees the object and the objects within it: object_is() returns false from then on. */
SOFTDOCA_INTERNAL void softdoca_object_free(void *p);
/* Defines a function that returns the object with this member. */
#define OWNER(function, object, type, member)                              \
	static inline object *function(const type *p)                      \
	{                                                                  \
		return (object *)((uintptr_t)p - offsetof(object, member)); \
	}
static inline size_t object_lines(size_t size)
{
	return (size + 63) / 64;
}
/* Changes an object's kind; OBJECT_FREE makes it invalid without freeing its memory. The object may
 * also be part of another one, if it is aligned to 64 bytes. */
static inline void object_become(void *p, enum object_kind kind)
{
	__atomic_store_n(&((struct object *)p)->tag, object_tag(p, kind), __ATOMIC_RELEASE);
}

#endif
