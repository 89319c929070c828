/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts: the primary one of each GPU, those that a program makes, and which is current. */
#include "state.h"

#include <stdlib.h>

enum { DEPTH = 16 };

static struct context primaries[DEVICES];
static struct context *made; /* by cuCtxCreate */
static bool reset_lost[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct context *stack[DEPTH];
static _Thread_local int depth;

struct context *current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

struct context *primary(CUdevice device)
{
	return &primaries[device];
}

static bool is_context(struct context *context)
{
	bool found = context >= primaries && context < primaries + DEVICES;

	pthread_mutex_lock(&lock);
	for (struct context *one = made; one; one = one->next)
		found = found || one == context;
	pthread_mutex_unlock(&lock);
	return found;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	ENTER(gate);
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (reset_lost[device])
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	*context = &primaries[device];
	pthread_mutex_lock(&lock);
	(*context)->device = device;
	(*context)->primary = true;
	(*context)->retained++;
	atomic_store(&(*context)->alive, true);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	bool retained;

	ENTER(gate);
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	retained = primaries[device].retained > 0;
	if (retained && !--primaries[device].retained)
		atomic_store(&primaries[device].alive, false);
	pthread_mutex_unlock(&lock);
	return retained ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* A context that was lost does not come back in the same process. */
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	ENTER(gate);
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	reset_lost[device] = atomic_load(&primaries[device].lost);
	primaries[device].retained = 0;
	atomic_store(&primaries[device].alive, false);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	ENTER(gate);
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = primaries[device].flags;
	*active = atomic_load(&primaries[device].alive);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
	ENTER(gate);
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	primaries[device].flags = flags;
	return CUDA_SUCCESS;
}

static CUresult make(CUcontext *context, unsigned int flags, CUdevice device)
{
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (depth == DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*context = calloc(1, sizeof(**context));
	(*context)->device = device;
	(*context)->flags = flags;
	atomic_store(&(*context)->alive, true);
	pthread_mutex_lock(&lock);
	(*context)->next = made;
	made = *context;
	pthread_mutex_unlock(&lock);
	stack[depth++] = *context;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	ENTER(gate);
	return make(context, flags, device);
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned int flags,
			       CUdevice device)
{
	ENTER(gate);
	return parameters ? CUDA_ERROR_NOT_SUPPORTED : make(context, flags, device);
}

/* The context stays known, so that who still uses it hears that it is destroyed. */
EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
	ENTER(gate);
	if (!is_context(context) || context->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	atomic_store(&context->alive, false);
	if (current() == context)
		depth--;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
	ENTER(gate);
	*context = current();
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
	ENTER(gate);
	if (!context) {
		depth -= depth > 0;
		return CUDA_SUCCESS;
	}
	if (!is_context(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	depth += depth == 0;
	stack[depth - 1] = context;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	ENTER(gate);
	if (!is_context(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth == DEPTH)
		return CUDA_ERROR_INVALID_VALUE;
	stack[depth++] = context;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	ENTER(gate);
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (context)
		*context = current();
	depth--;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
	ENTER(gate);
	if (!current())
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = current()->device;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetFlags(unsigned int *flags)
{
	ENTER(gate);
	if (!current())
		return CUDA_ERROR_INVALID_CONTEXT;
	*flags = current()->flags;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetFlags(unsigned int flags)
{
	struct context *context;

	ENTER(gate_context, &context);
	context->flags = flags;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void)
{
	struct context *context;

	ENTER(gate_context, &context);
	return context_wait(context);
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	struct context *context;

	ENTER(gate_context, &context);
	if (flags || !is_context(peer))
		return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
	if (peer->device == context->device || !knobs().peer)
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (context->peers[peer->device])
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	context->peers[peer->device] = true;
	return CUDA_SUCCESS;
}

