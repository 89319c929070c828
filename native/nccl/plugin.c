// SPDX-License-Identifier: Apache-2.0
/*
 * NCCL's RMA plugin: the puts, gets and signals that NCCL's proxy takes from kernels (GIN) are run
 * by dgkit's core. README.md says how NCCL is told to load it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "error.h"

#define EXPORT __attribute__((visibility("default")))

static nccl_result result_of(int rc)
{
	switch (-rc) {
	case 0:
		return NCCL_SUCCESS;
	case EINVAL:
	case ERANGE:
	case EACCES:
	case EFAULT:
		return NCCL_INVALID_ARGUMENT;
	case EOPNOTSUPP:
	case EXDEV:
		return NCCL_INVALID_USAGE;
	case ENOTCONN:
	case ESTALE:
	case EPROTO:
		return NCCL_REMOTE_ERROR;
	default:
		return NCCL_SYSTEM_ERROR;
	}
}

/* The result for NCCL; its log gets the reason of a failure. */
static nccl_result answer(const struct plugin *p, const char *call, int rc)
{
	if (rc && p->log)
		p->log(NCCL_LOG_WARN, NCCL_LOG_NET, call, 0, "dgkit: %s", dg_last_error());
	return result_of(rc);
}

static nccl_result rma_init(void **ctx, uint64_t comm_id, nccl_log log)
{
	struct plugin *p = ctx ? calloc(1, sizeof *p) : NULL;
	if (!p)
		return ctx ? NCCL_SYSTEM_ERROR : NCCL_INVALID_ARGUMENT;
	p->log = log;
	p->comm_id = comm_id;
	*ctx = p;
	return NCCL_SUCCESS;
}

static nccl_result rma_finalize(void *ctx)
{
	free(ctx);
	return NCCL_SUCCESS;
}

static nccl_result rma_devices(int *n)
{
	if (!n)
		return NCCL_INVALID_ARGUMENT;
	*n = 1;
	return NCCL_SUCCESS;
}

static nccl_result rma_properties(int dev, nccl_properties *out)
{
	static char name[] = "dgkit";
	if (dev || !out)
		return NCCL_INVALID_ARGUMENT;
	*out = (nccl_properties){.name = name,
				 .guid = 0x64676b6974, /* "dgkit" */
				 .pointers = NCCL_HOST | NCCL_CUDA,
				 .megabits = 100000,
				 .max_comms = 65536,
				 .max_receives = 2, /* 64 requests of a context and peer: each costs time
						     * in each pass of NCCL's proxy */
				 .device_type = NCCL_GIN_PROXY,
				 .device_version = NCCL_GIN_PROXY_VERSION,
				 .max_transfer = (size_t)1 << 40,
				 .max_collective = (size_t)1 << 40,
				 .max_multi_request = 1,
				 .rail = -1,
				 .plane = -1};
	out->virtual_devices.n = 1;
	return NCCL_SUCCESS;
}

/* What NCCL assumes of version 15: a signal says nothing of other peers' puts. */
static nccl_result rma_properties_of(void *comm, rma_properties_v16 *out)
{
	if (!comm || !out)
		return NCCL_INVALID_ARGUMENT;
	*out = (rma_properties_v16){.signal_after_all = false};
	return NCCL_SUCCESS;
}

static nccl_result rma_listen(void *ctx, int dev, void *handle, void **listener)
{
	struct listener *l;
	if (!ctx || dev || !handle || !listener)
		return NCCL_INVALID_ARGUMENT;
	const int rc = listener_open(ctx, handle, &l);
	if (!rc)
		*listener = l;
	return answer(ctx, "listen", rc);
}

static nccl_result rma_close_listener(void *listener)
{
	if (!listener)
		return NCCL_INVALID_ARGUMENT;
	listener_close(listener);
	return NCCL_SUCCESS;
}

static nccl_result rma_connect(void *ctx, void *handles[], int ranks, int rank, void *listener,
			       void **comm)
{
	struct comm *c;
	if (!ctx || !handles || !listener || !comm || ranks < 0 || rank < 0)
		return NCCL_INVALID_ARGUMENT;
	const int rc = comm_open(ctx, handles, (uint32_t)ranks, (uint32_t)rank, listener, &c);
	if (!rc)
		*comm = c;
	return answer(ctx, "connect", rc);
}

static nccl_result rma_close_comm(void *comm)
{
	struct comm *c = comm;
	if (!c)
		return NCCL_INVALID_ARGUMENT;
	const struct plugin *p = c->plugin;
	return answer(p, "closeColl", comm_close(c));
}

static nccl_result create_context(struct comm *c, int contexts, void **rma)
{
	if (!c || !rma || contexts < 1)
		return NCCL_INVALID_ARGUMENT;
	struct rma_context *x = calloc(1, sizeof *x);
	if (!x)
		return NCCL_SYSTEM_ERROR;
	*x = (struct rma_context){.comm = c, .contexts = contexts};
	*rma = x;
	return NCCL_SUCCESS;
}

static nccl_result create_context_v14(void *comm, rma_config_v14 *config, void **rma)
{
	return create_context(comm, config ? config->contexts : 0, rma);
}

static nccl_result create_context_v13(void *comm, rma_config_v13 *config, void **rma,
				      void **device_handle)
{
	if (device_handle)
		*device_handle = NULL;
	return create_context(comm, config ? config->contexts : 0, rma);
}

static nccl_result rma_destroy_context(void *rma)
{
	free(rma);
	return NCCL_SUCCESS;
}

static nccl_result register_v14(void *comm, void *data, size_t size, int type, uint64_t flags,
				void **memory)
{
	struct comm *c = comm;
	if (!c || !memory)
		return NCCL_INVALID_ARGUMENT;
	return answer(c->plugin, "regMrSym", memory_open(c, data, size, type, flags, memory));
}

static nccl_result register_v13(void *comm, void *data, size_t size, int type, uint64_t flags,
				void **memory, void **device_memory)
{
	const nccl_result result = register_v14(comm, data, size, type, flags, memory);
	if (!result && device_memory)
		*device_memory = *memory;
	return result;
}

/* Never called by NCCL, because the properties offer no dma-buf: memory is exported by its
 * address. */
static nccl_result dmabuf_v14(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
			      uint64_t flags, void **memory)
{
	(void)offset, (void)fd;
	return register_v14(comm, data, size, type, flags, memory);
}

static nccl_result dmabuf_v13(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
			      uint64_t flags, void **memory, void **device_memory)
{
	(void)offset, (void)fd;
	return register_v13(comm, data, size, type, flags, memory, device_memory);
}

static nccl_result rma_deregister(void *comm, void *handle)
{
	struct comm *c = comm;
	if (!c)
		return NCCL_INVALID_ARGUMENT;
	pthread_mutex_lock(&c->lock);
	struct memory *m = memory_find(c, handle);
	int rc = m ? memory_close(c, m) : dg_fail(EINVAL, "%p is not a memory handle", handle);
	pthread_mutex_unlock(&c->lock);
	return answer(c->plugin, "deregMrSym", rc);
}

/* Checks what all requests have in common, and posts. */
static nccl_result post(const struct rma_context *x, int context, const struct transfer *t,
			const struct signal_slot *signal, uint32_t rank, void **request)
{
	struct comm *c = x->comm;
	int rc;
	if (context < 0 || context >= x->contexts)
		rc = dg_fail(EINVAL, "context %d of %d", context, x->contexts);
	else if (rank >= c->ranks)
		rc = dg_fail(EINVAL, "rank %u of %u", rank, c->ranks);
	else if (t && t->size && (!t->local || !t->remote))
		rc = dg_fail(EINVAL, "a memory handle is wrong");
	else
		rc = request_post(c, t, signal, rank, request);
	return rc ? answer(c->plugin, "post", rc) : NCCL_SUCCESS;
}

static nccl_result put(void *rma, int context, uint64_t from_offset, void *from, size_t size,
		       uint64_t to_offset, void *to, uint32_t rank, const struct signal_slot *signal,
		       void **request)
{
	struct rma_context *x = rma;
	const struct transfer t = {.local = memory_find(x->comm, from),
				   .remote = memory_find(x->comm, to),
				   .local_offset = from_offset,
				   .remote_offset = to_offset,
				   .size = size,
				   .op = DG_WRITE};
	return post(x, context, &t, signal, rank, request);
}

static nccl_result rma_put(void *rma, int context, uint64_t from_offset, void *from, size_t size,
			   uint64_t to_offset, void *to, uint32_t rank, void **request)
{
	struct rma_context *x = rma;
	if (!x || !request)
		return NCCL_INVALID_ARGUMENT;
	pthread_mutex_lock(&x->comm->lock);
	const nccl_result result = put(x, context, from_offset, from, size, to_offset, to, rank, NULL,
				       request);
	pthread_mutex_unlock(&x->comm->lock);
	return result;
}

/* is_strong: all signals are, see signal.c. */
static nccl_result put_signal_v14(void *rma, int context, uint64_t from_offset, void *from,
				  size_t size, uint64_t to_offset, void *to, uint32_t rank,
				  uint64_t signal_offset, void *signal, uint64_t value, uint32_t op,
				  bool is_strong, void **request)
{
	struct rma_context *x = rma;
	nccl_result result;
	(void)is_strong;
	if (!x || !request || (op != NCCL_SIGNAL_INC && op != NCCL_SIGNAL_ADD))
		return NCCL_INVALID_ARGUMENT;
	pthread_mutex_lock(&x->comm->lock);
	if (memory_find(x->comm, signal)) {
		const struct signal_slot s = {.memory = (uint32_t)((uintptr_t)signal - 1),
					      .offset = signal_offset,
					      .value = op == NCCL_SIGNAL_INC ? 1 : value};
		result = put(x, context, from_offset, from, size, to_offset, to, rank, &s, request);
	} else {
		result = answer(x->comm->plugin, "iputSignal",
				dg_fail(EINVAL, "%p is not a memory handle", signal));
	}
	pthread_mutex_unlock(&x->comm->lock);
	return result;
}

static nccl_result put_signal_v13(void *rma, int context, uint64_t from_offset, void *from,
				  size_t size, uint64_t to_offset, void *to, uint32_t rank,
				  uint64_t signal_offset, void *signal, uint64_t value, uint32_t op,
				  void **request)
{
	return put_signal_v14(rma, context, from_offset, from, size, to_offset, to, rank,
			      signal_offset, signal, value, op, true, request);
}

static nccl_result rma_get(void *rma, int context, uint64_t from_offset, void *from, size_t size,
			   uint64_t to_offset, void *to, uint32_t rank, void **request)
{
	struct rma_context *x = rma;
	if (!x || !request)
		return NCCL_INVALID_ARGUMENT;
	pthread_mutex_lock(&x->comm->lock);
	const struct transfer t = {.local = memory_find(x->comm, to),
				   .remote = memory_find(x->comm, from),
				   .local_offset = to_offset,
				   .remote_offset = from_offset,
				   .size = size,
				   .op = DG_READ};
	const nccl_result result = post(x, context, &t, NULL, rank, request);
	pthread_mutex_unlock(&x->comm->lock);
	return result;
}

static nccl_result put_v15(void *rma, int context, uint64_t from_offset, void *from, size_t size,
			   uint64_t to_offset, void *to, uint32_t rank, uint32_t hints, void **request)
{
	(void)hints;
	return rma_put(rma, context, from_offset, from, size, to_offset, to, rank, request);
}

static nccl_result put_signal_v15(void *rma, int context, uint64_t from_offset, void *from,
				  size_t size, uint64_t to_offset, void *to, uint32_t rank,
				  uint64_t signal_offset, void *signal, uint64_t value, uint32_t op,
				  bool strong, uint32_t hints, void **request)
{
	(void)hints;
	return put_signal_v14(rma, context, from_offset, from, size, to_offset, to, rank,
			      signal_offset, signal, value, op, strong, request);
}

static nccl_result get_v15(void *rma, int context, uint64_t from_offset, void *from, size_t size,
			   uint64_t to_offset, void *to, uint32_t rank, uint32_t hints, void **request)
{
	(void)hints;
	return rma_get(rma, context, from_offset, from, size, to_offset, to, rank, request);
}

static nccl_result rma_flush(void *rma, int context, void *memory, uint32_t rank, void **request)
{
	struct rma_context *x = rma;
	(void)memory;
	if (!x || !request)
		return NCCL_INVALID_ARGUMENT;
	pthread_mutex_lock(&x->comm->lock);
	const nccl_result result = post(x, context, NULL, NULL, rank, request);
	pthread_mutex_unlock(&x->comm->lock);
	return result;
}

static nccl_result rma_test(void *comm, void *request, int *done)
{
	struct comm *c = comm;
	nccl_result result = NCCL_SUCCESS;
	if (!c || !done)
		return NCCL_INVALID_ARGUMENT;
	*done = 0;
	if (request_waits(c, request))
		return NCCL_SUCCESS;
	pthread_mutex_lock(&c->lock);
	const int rc = request_test(c, request, done, &result);
	pthread_mutex_unlock(&c->lock);
	return rc ? answer(c->plugin, "test", rc) : result;
}

static nccl_result rma_progress(void *rma)
{
	struct rma_context *x = rma;
	if (!x)
		return NCCL_INVALID_ARGUMENT;
	pthread_mutex_lock(&x->comm->lock);
	comm_progress(x->comm);
	pthread_mutex_unlock(&x->comm->lock);
	return NCCL_SUCCESS;
}

static nccl_result rma_query_error(void *rma, bool *has_error)
{
	struct rma_context *x = rma;
	if (!x || !has_error)
		return NCCL_INVALID_ARGUMENT;
	pthread_mutex_lock(&x->comm->lock);
	comm_check_peers(x->comm);
	*has_error = x->comm->failed;
	pthread_mutex_unlock(&x->comm->lock);
	return NCCL_SUCCESS;
}

#define FIRST \
	{"dgkit", rma_init, rma_devices, rma_properties, rma_listen, rma_connect}
#define MIDDLE {rma_deregister, rma_destroy_context, rma_close_comm, rma_close_listener}
#define START {FIRST, create_context_v14, register_v14, dmabuf_v14, MIDDLE}
#define TRANSFERS_V15 {put_v15, put_signal_v15, get_v15}
#define LAST {rma_flush, rma_test, rma_progress, rma_query_error, rma_finalize}

EXPORT struct rma_plugin_v16 ncclRmaPlugin_v16 = {
	"dgkit",	    rma_init,	   rma_devices, rma_properties_of, rma_properties, rma_listen, rma_connect,
	create_context_v14, register_v14, dmabuf_v14,  MIDDLE,		   TRANSFERS_V15,  LAST};
extern EXPORT struct rma_plugin_v16 ncclRmaPlugin_v17 __attribute__((alias("ncclRmaPlugin_v16")));
EXPORT struct rma_plugin_v15 ncclRmaPlugin_v15 = {START, TRANSFERS_V15, LAST, NULL};
EXPORT struct rma_plugin_v14 ncclRmaPlugin_v14 = {START, rma_put, put_signal_v14, rma_get, LAST};
EXPORT struct rma_plugin_v13 ncclRmaPlugin_v13 = {FIRST,      create_context_v13, register_v13,
						  dmabuf_v13, MIDDLE,             rma_put,
						  put_signal_v13, rma_get,        LAST};
