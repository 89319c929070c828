// SPDX-License-Identifier: Apache-2.0
/*
 * Provider cuda: the GPU's copy engine moves the bytes. The provider has no thread of its own: the
 * caller's thread enqueues operations on a stream when it posts, and reads a flag in pinned memory
 * when it polls or waits. For a caller that sleeps, the driver runs a callback when the flag
 * changes.
 */
#include "cuda_provider.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "error.h"
#include "provider_table.h"

enum {
	MAX_QUEUES = 1024,
	QUERY_NS = 1000000, /* between two queries of the context while nothing completes */
	FLAGS = 256, /* bytes for a queue's flags: a cache line each, and one for struct spare */
	PAGE = 4096, /* alignment of the bounce buffer, whatever the system's page size */
};

/* Header inside a queue's pinned memory, behind its flags: the size of the memory, and the next
 * free one. */
struct spare {
	struct spare *next;
	uint64_t size;
};

bool cuda_enter_context(CUcontext ctx)
{
	CUcontext current = NULL;
	cuda.cuCtxGetCurrent(&current);
	return current != ctx && !cuda.cuCtxPushCurrent(ctx);
}

bool cuda_enter(struct cuda *c)
{
	return cuda_enter_context(c->ctx);
}

void cuda_leave(bool entered)
{
	CUcontext popped;
	if (entered)
		cuda.cuCtxPopCurrent(&popped);
}

void dg_cuda_stay(dg_device *dev)
{
	cuda_enter(dev->provider);
}

int dg_cuda_ring_open(dg_device *dev)
{
	struct cuda *c = dev->provider;
	const bool entered = cuda_enter(c);
	const CUresult code = cuda.cuStreamCreate(&c->rings, CU_STREAM_NON_BLOCKING);
	cuda_leave(entered);
	return code ? cuda_fail("cuStreamCreate", code) : 0;
}

int dg_cuda_ring_copy(dg_device *dev, void *here, uint64_t there, size_t size, bool to_gpu)
{
	struct cuda *c = dev->provider;
	const bool entered = cuda_enter(c);
	CUresult code = to_gpu ? cuda.cuMemcpyHtoDAsync(there, here, size, c->rings)
			       : cuda.cuMemcpyDtoHAsync(here, there, size, c->rings);
	if (!code && !to_gpu)
		code = cuda.cuStreamSynchronize(c->rings);
	cuda_leave(entered);
	return code ? cuda_fail("copying a ring", code) : 0;
}

/* After these errors, every call of the process on that GPU fails in the same way. */
static bool ends_context(CUresult code)
{
	return code == CUDA_ERROR_ECC_UNCORRECTABLE || code == CUDA_ERROR_ILLEGAL_ADDRESS ||
	       code == CUDA_ERROR_LAUNCH_TIMEOUT || code == CUDA_ERROR_ASSERT ||
	       (code >= CUDA_ERROR_HARDWARE_STACK_ERROR && code <= CUDA_ERROR_LAUNCH_FAILED);
}

int cuda_fail(const char *what, CUresult code)
{
	if (code == CUDA_ERROR_OUT_OF_MEMORY)
		return dg_fail(ENOMEM,
			       "the GPU is out of memory (%s: %s): free memory on it (nvidia-smi "
			       "shows which processes use it)",
			       what, cuda_name(code));
	if (ends_context(code))
		return dg_fail(ENODEV, "the GPU's context is lost (%s: %s): restart this process",
			       what, cuda_name(code));
	return dg_fail(EIO, "%s: %s (%d)", what, cuda_name(code), code);
}

static int cuda_probe(bool deep)
{
	int gpus = 0;
	return deep ? cuda_start(&gpus) : cuda_load();
}

static int find_gpu(struct cuda *c, uint32_t gpu)
{
	int gpus = 0, value = 0, rc = cuda_start(&gpus);
	CUuuid uuid;
	if (rc)
		return rc;
	if (gpu >= (uint32_t)gpus)
		return dg_fail(DG_REASON_NO_GPU,
			       "there is no GPU %u: this process sees %d, counted from 0", gpu,
			       gpus);
	c->ordinal = (int)gpu;
	CUresult code = cuda.cuDeviceGet(&c->dev, c->ordinal);
	if (!code)
		code = cuda.cuDeviceGetUuid(&uuid, c->dev);
	if (!code)
		code = cuda.cuDeviceGetAttribute(&value, CU_ATTRIBUTE_MAX_PITCH, c->dev);
	if (code)
		return cuda_fail("cuDeviceGet", code);
	memcpy(c->uuid, &uuid, sizeof c->uuid);
	c->max_pitch = (uint64_t)value;
	value = 0;
	cuda.cuDeviceGetAttribute(&value, CU_ATTRIBUTE_HOST_POINTER_FOR_REGISTERED, c->dev);
	c->host_pointers = value;
	value = 0;
	cuda.cuDeviceGetAttribute(&value, CU_ATTRIBUTE_64_BIT_STREAM_MEM_OPS, c->dev);
	c->word_writes = value && cuda.cuStreamBatchMemOp;
	return 0;
}

static CUresult map_scratch(struct cuda *c)
{
	CUresult code = cuda.cuMemAddressReserve(&c->scratch_at, c->granularity, 0, 0, 0);
	if (code)
		return code;
	code = cuda.cuMemMap(c->scratch_at, c->granularity, 0, c->scratch, 0);
	if (code)
		goto free_address;
	code = cuda_set_access(c, c->scratch_at, c->granularity, true);
	if (!code)
		return 0;
	cuda.cuMemUnmap(c->scratch_at, c->granularity);
free_address:
	cuda.cuMemAddressFree(c->scratch_at, c->granularity);
	return code;
}

static int make_scratch(struct cuda *c)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, c->ordinal},
	};
	size_t granularity = 0;
	CUresult code = cuda.cuMemGetAllocationGranularity(&granularity, &prop, 0);
	c->granularity = granularity;
	if (code)
		return cuda_fail("cuMemGetAllocationGranularity", code);
	code = cuda.cuMemCreate(&c->scratch, granularity, &prop, 0);
	if (code)
		return cuda_fail("cuMemCreate", code);
	code = map_scratch(c);
	if (!code)
		return 0;
	cuda.cuMemRelease(c->scratch);
	return cuda_fail("cuMemMap", code);
}

static void free_scratch(struct cuda *c)
{
	cuda.cuMemUnmap(c->scratch_at, c->granularity);
	cuda.cuMemAddressFree(c->scratch_at, c->granularity);
	cuda.cuMemRelease(c->scratch);
}

static void set_engine_name(struct dg_device *dev, const struct cuda *c, uint64_t spin_ns)
{
	char name[64] = "";
	cuda.cuDeviceGetName(name, sizeof name, c->dev);
	snprintf(dev->caps.engine, sizeof dev->caps.engine, "GPU %d, %s", c->ordinal, name);
	dev->gpu = true;
	dev->caps.max_size = INT64_MAX;
	dev->caps.inline_max = 0;
	dev->caps.spin_ns = dg_cpus() > 1 ? spin_ns : 0;
	dev->caps.ordered = 0;
	dev->caps.max_queues = MAX_QUEUES;
}

static int cuda_open(struct dg_device *dev, const dg_device_config *cfg, void **state)
{
	struct cuda *c = calloc(1, sizeof *c);
	if (!c)
		return dg_fail(ENOMEM, "out of memory for a device");
	int rc = find_gpu(c, cfg->gpu);
	if (rc)
		goto free_state;
	CUresult code = cuda.cuDevicePrimaryCtxRetain(&c->ctx, c->dev);
	if (code) {
		rc = cuda_fail("cuDevicePrimaryCtxRetain", code);
		goto free_state;
	}
	bool entered = cuda_enter(c);
	rc = make_scratch(c);
	cuda_leave(entered);
	if (rc)
		goto release;
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->spare_lock, NULL);
	c->serves = cfg->serves;
	set_engine_name(dev, c, cfg->spin_ns);
	*state = c;
	return 0;
release:
	cuda.cuDevicePrimaryCtxRelease(c->dev);
free_state:
	free(c);
	return rc;
}

static struct spare *spare_of(void *pinned)
{
	return (struct spare *)((char *)pinned + FLAGS - sizeof(struct spare));
}

static void *pinned_of(struct spare *s)
{
	return (char *)(s + 1) - FLAGS;
}

/* Returns zeroed pinned memory of at least `size` bytes in *out: that of a closed queue, or new. */
static CUresult take_pinned(struct cuda *c, uint64_t size, void **out)
{
	pthread_mutex_lock(&c->spare_lock);
	struct spare **at = &c->spares, *found;
	while (*at && (*at)->size < size)
		at = &(*at)->next;
	found = *at;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&c->spare_lock);
	if (found) {
		*out = pinned_of(found);
		size = found->size;
	} else {
		CUresult code = cuda.cuMemHostAlloc(out, size,
						    CU_MEMHOST_PORTABLE | CU_MEMHOST_DEVICEMAP);
		if (code)
			return code;
	}
	memset(*out, 0, size);
	spare_of(*out)->size = size;
	return 0;
}

static void keep_pinned(struct cuda *c, void *pinned)
{
	struct spare *s = spare_of(pinned);
	pthread_mutex_lock(&c->spare_lock);
	s->next = c->spares;
	c->spares = s;
	pthread_mutex_unlock(&c->spare_lock);
}

static void free_pinned(struct cuda *c)
{
	while (c->spares) {
		struct spare *s = c->spares;
		c->spares = s->next;
		cuda.cuMemFreeHost(pinned_of(s));
	}
}

static void cuda_close(struct dg_device *dev, void *state)
{
	struct cuda *c = state;
	(void)dev;
	bool entered = cuda_enter(c);
	if (c->module)
		cuda.cuModuleUnload(c->module);
	if (c->rings)
		cuda.cuStreamDestroy(c->rings);
	cuda_services_free(c);
	free_pinned(c);
	free_scratch(c);
	cuda_leave(entered);
	cuda.cuDevicePrimaryCtxRelease(c->dev);
	pthread_mutex_destroy(&c->spare_lock);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* Returns a part of the scratch granule's first half, whose contents do not matter. Each of the
 * first 32 queues has a part of its own, so that no two of them write the same words at the same
 * time. */
static uint64_t scratch_part(struct cuda *c)
{
	uint64_t parts = c->granularity / 2 / PLAIN_FROM;
	/* Relaxed: the counter orders no other data. */
	uint32_t turn = atomic_fetch_add_explicit(&c->scratch_turn, 1, memory_order_relaxed);
	return parts ? turn % parts * PLAIN_FROM : 0;
}

/* Destroys the shared stream of q after the last queue of its proxy. */
static void leave_shared(struct cuda_queue *q)
{
	struct cuda *c = q->c;
	struct cuda_stream **at = &c->shared, *left = q->shared;
	pthread_mutex_lock(&c->spare_lock);
	const bool last = left && !--left->queues;
	if (last) {
		while (*at != left)
			at = &(*at)->next;
		*at = left->next;
		cuda_service_retire(c, left->service);
	}
	pthread_mutex_unlock(&c->spare_lock);
	if (!last)
		return;
	cuda.cuStreamDestroy(left->handle);
	free(left);
}

/* Finds the shared stream of q's proxy, or creates it. */
static CUresult join_shared(struct cuda_queue *q)
{
	struct cuda *c = q->c;
	struct cuda_stream *s = NULL;
	CUresult code = 0;
	pthread_mutex_lock(&c->spare_lock);
	for (s = c->shared; s && s->proxy != q->p->beside_kernels; s = s->next)
		;
	if (!s) {
		s = calloc(1, sizeof *s);
		code = s ? cuda.cuStreamCreate(&s->handle, CU_STREAM_NON_BLOCKING)
			 : CUDA_ERROR_OUT_OF_MEMORY;
		if (!code) {
			s->proxy = q->p->beside_kernels;
			s->next = c->shared;
			c->shared = s;
			q->stream = s;
			code = cuda_warm_up(q); /* before any other thread submits to it */
			s->service = c->serves ? cuda_service_open(c) : NULL;
			q->stream = &q->own;
		} else {
			free(s);
			s = NULL;
		}
	}
	q->shared = s;
	if (s)
		s->queues++;
	pthread_mutex_unlock(&c->spare_lock);
	return code;
}

static int queue_open(struct cuda_queue *q)
{
	const char *what = "cuMemHostAlloc";
	uint64_t n = (uint64_t)q->p->mask + 1;
	uint64_t size = FLAGS + n * (sizeof(struct gather_op) + STAGED) + STAGED;
	uint64_t bounce = (size + PAGE - 1) / PAGE * PAGE;
	void *pinned;
	if (q->p->beside_kernels)
		size = bounce + BOUNCE + PLAIN_FROM;
	CUresult code = take_pinned(q->c, size, &pinned);
	if (code)
		return cuda_fail(what, code);
	q->bounce = q->p->beside_kernels ? (char *)pinned + bounce : NULL;
	q->flag = pinned;
	q->canary.flag = (atomic_uint *)((char *)pinned + FLAGS / 4);
	q->bare_flag = (atomic_uint *)((char *)pinned + FLAGS / 2);
	q->gathers = (struct gather_op *)((char *)pinned + FLAGS);
	q->staging = (uint8_t *)(q->gathers + n);
	what = "cuStreamCreate";
	q->stream = &q->own;
	code = cuda.cuStreamCreate(&q->own.handle, CU_STREAM_NON_BLOCKING);
	if (code)
		goto give_back;
	code = cuda.cuStreamCreate(&q->waker, CU_STREAM_NON_BLOCKING);
	if (code)
		goto destroy_stream;
	if (!q->bounce)
		return 0;
	what = "the first copies of a queue";
	code = cuda_warm_up(q);
	if (!code)
		code = join_shared(q);
	if (!code)
		return 0;
	leave_shared(q);
	cuda.cuStreamDestroy(q->waker);
destroy_stream:
	cuda.cuStreamDestroy(q->own.handle);
give_back:
	if (q->bounce)
		keep_pinned(q->c, pinned);
	else
		cuda.cuMemFreeHost(pinned);
	return cuda_fail(what, code);
}

static int cuda_attach(struct dg_device *dev, void *state, struct dg_pipe *p)
{
	struct cuda *c = state;
	struct cuda_queue *q = calloc(1, sizeof *q);
	(void)dev;
	if (!q)
		return dg_fail(ENOMEM, "out of memory for a queue");
	q->c = c;
	q->p = p;
	q->scratch = scratch_part(c);
	bool entered = cuda_enter(c);
	int rc = queue_open(q);
	cuda_leave(entered);
	if (rc)
		free(q);
	else
		p->provider = q;
	return rc;
}

static void wake(void *arg)
{
	dg_pipe_wake(arg);
}

/* Has the driver wake the sleeper at the next completion. If an earlier request has already fired,
 * the flag is set, and the caller sees it at its next poll. */
static void request_wake(struct cuda_queue *q)
{
	CUdeviceptr flag = (CUdeviceptr)(uintptr_t)q->flag;
	CUdeviceptr unwritten = q->c->scratch_at + q->c->granularity - sizeof(uint64_t);
	if (q->submitted == q->done || q->wake_requested)
		return;
	bool entered = cuda_enter(q->c);
	/* Copy first: the waker then waits in a copy engine's channel. In the compute engine's
	 * channel, the sleeper on a busy GPU would wake up only at its next time slice. */
	q->wake_requested =
		!cuda.cuMemcpyDtoHAsync(q->staging + (uint64_t)(q->p->mask + 1) * STAGED,
					unwritten, sizeof(uint64_t), q->waker) &&
		!cuda.cuStreamWaitValue32(q->waker, flag, q->done + 1, CU_STREAM_WAIT_VALUE_GEQ) &&
		!cuda.cuLaunchHostFunc(q->waker, wake, q->p);
	cuda_leave(entered);
}

static void cuda_doorbell(struct dg_device *dev, struct dg_pipe *p)
{
	struct cuda_queue *q = p->provider;
	(void)dev;
	/* A proxy's thread uses no other context, so it leaves this one current. */
	bool entered = cuda_enter(q->c) && !p->beside_kernels;
	cuda_submit(q);
	/* The queue was armed before this post: its caller may already be asleep. */
	if (atomic_load_explicit(&p->cq_armed, memory_order_relaxed)) {
		if (cq_peek(p))
			dg_pipe_wake(p);
		else
			request_wake(q);
	}
	cuda_leave(entered);
}

/* Asks the driver whether the stream has failed, as a flag that does not change does not say so. */
static void query_stalled(struct cuda_queue *q, uint64_t now)
{
	q->last_query_ns = now;
	bool entered = cuda_enter(q->c);
	cuda_check(q);
	cuda_renew_canary(q);
	cuda_leave(entered);
}

static void cuda_poll(struct dg_device *dev, struct dg_pipe *p)
{
	struct cuda_queue *q = p->provider;
	if (!q)
		return; /* detached */
	if (q->n_served)
		cuda_service_poll(q);
	if (q->submitted != q->done) {
		/* Acquire: what the GPU wrote to host memory before the flag is visible after this
		 * load. */
		uint32_t upto = atomic_load_explicit(q->flag, memory_order_acquire);
		uint64_t now = now_ns();
		bool late = now - q->last_poll_ns > LATE_NS;
		cuda_read_canary(q, now);
		if (upto != q->done) {
			cuda_measure(q, upto, now);
			cuda_publish(q, upto, now, late);
		} else if (now - q->last_query_ns > QUERY_NS) {
			query_stalled(q, now);
		}
		q->last_poll_ns = now;
	}
	if (sq_peek(p)) /* held by a fence */
		cuda_doorbell(dev, p);
}

static int cuda_arm(struct dg_device *dev, struct dg_pipe *p)
{
	struct cuda_queue *q = p->provider;
	cuda_poll(dev, p);
	if (q->n_served || !dg_pipe_arm(p))
		return 0; /* the copy service does not wake a sleeper */
	request_wake(q);
	cuda_poll(dev, p);
	if (!cq_peek(p))
		return 1;
	atomic_store_explicit(&p->cq_armed, 0, memory_order_relaxed);
	return 0;
}

static void cuda_detach(struct dg_device *dev, struct dg_pipe *p)
{
	struct cuda_queue *q = p->provider;
	(void)dev;
	bool entered = cuda_enter(q->c);
	CUresult code = cuda.cuStreamSynchronize(q->stream->handle);
	while (q->n_served && !code) {
		cuda_service_poll(q);
		code = cuda.cuStreamSynchronize(q->stream->handle);
	}
	if (!code) /* the callback of the waker uses the pipe */
		code = cuda.cuStreamSynchronize(q->waker);
	if (code)
		cuda_abort(q, code);
	else
		cuda_publish(q, q->submitted, now_ns(), true);
	for (struct dg_op *op; (op = sq_peek(p)); p->sq_head++)
		op->status = DG_FLUSHED;
	cuda_publish(q, p->sq_head, now_ns(), false);
	if (q->canary.stream) { /* the canary writes its flag */
		cuda.cuStreamSynchronize(q->canary.stream);
		cuda.cuStreamDestroy(q->canary.stream);
	}
	cuda.cuStreamDestroy(q->waker);
	cuda.cuStreamDestroy(q->own.handle);
	leave_shared(q);
	cuda_leave(entered);
	keep_pinned(q->c, q->flag);
	p->provider = NULL;
	free(q);
}

/* Times the driver's plain copy followed by a flag: the cost that every program has. */
static int cuda_bare(struct dg_device *dev, struct dg_pipe *p, const struct dg_op *op,
		     uint32_t count, uint32_t window, uint64_t *samples_ns)
{
	struct cuda_queue *q = p->provider;
	CUdeviceptr flag = (CUdeviceptr)(uintptr_t)q->bare_flag;
	CUstream stream = q->stream->handle;
	uint32_t posted = 0, ended = 0;
	CUresult code = 0;
	(void)dev;
	if (!(op->flags & OP_GPU) || op->rows != 1)
		return dg_fail(EOPNOTSUPP, "the bare copy loop of the provider cuda takes an "
					   "operation of one row, to or from GPU memory");
	bool entered = cuda_enter(q->c);
	q->timed.running = false;
	code = cuda.cuStreamWriteValue32(stream, flag, 0, 0);
	if (!code)
		code = cuda.cuStreamSynchronize(stream);
	uint64_t before = now_ns();
	while (ended < count && !code) {
		for (; posted < count && posted - ended < window && !code; posted++) {
			code = cuda_plain_copy(q, op);
			if (!code)
				code = cuda.cuStreamWriteValue32(stream, flag, posted + 1, 0);
		}
		uint32_t seen = atomic_load_explicit(q->bare_flag, memory_order_acquire);
		uint64_t now = seen == ended ? 0 : now_ns();
		for (; ended != seen && ended < count; before = now)
			samples_ns[ended++] = now - before;
		if (!now && now_ns() - before > 1000000000u)
			code = cuda.cuStreamSynchronize(stream);
	}
	if (code)
		cuda.cuStreamSynchronize(stream);
	cuda_leave(entered);
	return code ? cuda_fail("the driver's plain copy", code) : (int)count;
}

const struct dg_ops dg_cuda_ops = {
	.name = "cuda",
	.probe = cuda_probe,
	.open = cuda_open,
	.close = cuda_close,
	.attach = cuda_attach,
	.detach = cuda_detach,
	.doorbell = cuda_doorbell,
	.poll = cuda_poll,
	.arm = cuda_arm,
	.map = cuda_map,
	.unmap = cuda_unmap,
	.bare = cuda_bare,
	.inline_copies = false,
};
