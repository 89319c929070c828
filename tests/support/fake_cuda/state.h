/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake driver knows: contexts, blocks of GPU memory and where they are mapped, streams.
 *
 * Locks: `maps` guards blocks, ranges and host memory. Whoever copies holds it for reading, so that
 * nothing is unmapped under a copy. Each stream has a lock of its own. None is taken inside another,
 * but a stream's inside that of the list of streams, and that of the knobs inside any. */
#ifndef FAKE_CUDA_STATE_H
#define FAKE_CUDA_STATE_H

#include "driver.h"

#include <pthread.h>
#include <stdatomic.h>

enum { DEVICES = 8, PAGE = 4096, GRANULE = 2 << 20 };

struct entry { /* a function of the driver */
	const char *name;
	unsigned long calls;
	struct entry *next;
};

struct knobs { /* DGKIT_FAKE_CUDA */
	int gpus, peer, host_numa, dmabuf_mmap, full;
	bool wrong_peer, wrong_host;
	long copy_us, compute_us;
	size_t total;
	long lost_after; /* copies, or -1 */
};

struct context {
	struct context *next;
	CUdevice device;
	unsigned int retained, flags;
	bool primary, peers[DEVICES];
	atomic_bool alive, lost;
	struct stream *legacy; /* the stream that is named by NULL */
};

enum kind { VMM, LINEAR, POOLED, MANAGED };

#define BLOCK_NAME "dgkit-fake-gpu" /* of its memfd; the device's number follows */

struct block { /* physical memory: a memfd */
	struct block *next;
	enum kind kind;
	int fd;
	CUdevice device;
	size_t size; /* of the memfd */
	unsigned int handles, maps;
	bool imported;
	uint64_t id;
	CUmemAllocationProp prop;
};

struct range { /* a block, mapped */
	struct range *next;
	struct block *block;
	uintptr_t start;
	size_t size; /* what was asked for */
	size_t mapped; /* whole pages */
	unsigned char access[DEVICES];
	unsigned int opens; /* by cuIpcOpenMemHandle */
	bool sync_memops;
};

struct host { /* memory of the host that the GPUs may reach */
	struct host *next;
	uintptr_t start;
	size_t size;
	unsigned int flags;
	bool owned; /* it came from cuMemHostAlloc */
};

extern pthread_rwlock_t maps;

/* gate.c: each function of the driver begins with one of these. */
struct knobs knobs(void); /* as they are now: a test may set others at any time */
int gate(struct entry *entry);
int gate_early(struct entry *entry);
int gate_context(struct entry *entry, struct context **context);
void initialise(void);
bool missing(const char *symbol);
bool attribute_knob(int attribute, int *value);
bool copy_is_lost(void);

#define ENTER(how, ...)                                              \
	do {                                                         \
		static struct entry entry_ = {.name = __func__};     \
		int code_ = how(&entry_ __VA_OPT__(, ) __VA_ARGS__); \
		if (code_)                                           \
			return code_;                                \
	} while (0)

/* contexts.c */
struct context *current(void);
struct context *primary(CUdevice device);
bool is_device(CUdevice device);

/* blocks.c: the caller holds `maps`, for writing where something changes. */
struct block *block_new(enum kind kind, CUdevice device, size_t size, int *code);
struct block *block_import(int fd);
struct block *block_of(CUhandle handle);
void block_put(struct block *block);
size_t used(CUdevice device);
struct range *range_new(struct block *block, uintptr_t at, size_t size, int protection);
void range_free(struct range *range, bool keep_reserved);
struct range *range_at(uintptr_t address);
struct range *range_first(void);
bool range_overlaps(uintptr_t address, size_t size);
bool reachable(uintptr_t address, size_t size, CUdevice device, bool write);

/* host.c: the same. */
struct host *host_at(uintptr_t address, size_t size);

/* streams.c */

/* Which of the GPU's engines runs it: the compute engine may be kept busy by another process
 * (compute_us=N). A write-value and the like has the channel of the work before it; small copies
 * of one call stay with the copy engine directly behind a copy that it makes. */
enum channel { SAME_CHANNEL, COMPUTE_CHANNEL, COPY_CHANNEL, BEHIND_A_COPY };

struct work {
	struct work *next;
	bool (*perform)(struct work *work, struct stream *stream); /* false: the context is lost */
	enum channel channel;
	bool late; /* it waits for the compute engine */
	bool on_sms; /* multiprocessors run it */
};

int submit(CUstream stream, struct context *context, struct work *work, bool wait);
int stream_wait(CUstream stream, struct context *context);
int context_wait(struct context *context);
void context_lose(struct context *context);
struct context *stream_context(struct stream *stream);
bool stream_given_up(struct stream *stream);

#endif
