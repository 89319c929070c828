/* SPDX-License-Identifier: Apache-2.0 */
/* What tells in a stream how far it is: values written and waited for, host functions, events. */
#include "state.h"

#include <stdlib.h>
#include <time.h>

struct value {
	struct work work;
	uintptr_t address;
	uint64_t value;
	int width;
	unsigned int flags;
};

struct call {
	struct work work;
	void (*function)(void *);
	void *argument;
};

struct event {
	pthread_mutex_t lock;
	pthread_cond_t news;
	uint64_t recorded, reached; /* which record, of those asked for */
	int64_t at_ns;
	struct context *context;
	unsigned int references;
};

struct record {
	struct work work;
	struct event *event;
	uint64_t number;
};

/* Whether the GPU may write (or read) a value there. */
static bool valid(const struct value *value, CUdevice device, bool write)
{
	return value->address % (unsigned int)value->width == 0 &&
	       reachable(value->address, (size_t)value->width, device, write);
}

static bool perform_write(struct work *work, struct stream *stream)
{
	struct value *value = (struct value *)work;
	bool fine;

	pthread_rwlock_rdlock(&maps);
	fine = valid(value, stream_context(stream)->device, true);
	if (fine && value->width == 4)
		__atomic_store_n((uint32_t *)value->address, (uint32_t)value->value,
				 __ATOMIC_RELEASE);
	else if (fine)
		__atomic_store_n((uint64_t *)value->address, value->value, __ATOMIC_RELEASE);
	pthread_rwlock_unlock(&maps);
	return fine;
}

static bool holds(const struct value *value)
{
	uint32_t seen = __atomic_load_n((uint32_t *)value->address, __ATOMIC_ACQUIRE);
	uint32_t wanted = (uint32_t)value->value;

	switch (value->flags & 3) {
	case WAIT_GEQ:
		return (int32_t)(seen - wanted) >= 0;
	case WAIT_EQ:
		return seen == wanted;
	case WAIT_AND:
		return seen & wanted;
	default:
		return ~(seen | wanted);
	}
}

static bool perform_wait(struct work *work, struct stream *stream)
{
	struct value *value = (struct value *)work;
	struct timespec pause = {0, 20000};
	bool fine, done;

	for (;;) {
		pthread_rwlock_rdlock(&maps);
		fine = valid(value, stream_context(stream)->device, false);
		done = fine && holds(value);
		pthread_rwlock_unlock(&maps);
		if (!fine || done || stream_given_up(stream))
			return fine && done;
		nanosleep(&pause, NULL);
	}
}

static bool is_valid(const struct value *value, CUdevice device)
{
	bool fine;

	pthread_rwlock_rdlock(&maps);
	fine = valid(value, device, true);
	pthread_rwlock_unlock(&maps);
	return fine;
}

static int submit_value(CUstream stream, struct context *context, struct value given, bool write)
{
	struct value *value;
	bool fine;

	pthread_rwlock_rdlock(&maps);
	fine = valid(&given, context->device, write);
	pthread_rwlock_unlock(&maps);
	if (!fine)
		return CUDA_ERROR_INVALID_VALUE;
	value = malloc(sizeof(*value));
	*value = given;
	return submit(stream, context, &value->work, false);
}

EXPORT CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
					unsigned int flags)
{
	struct value given = {{.perform = perform_write}, address, value, 4, flags};
	struct context *context;

	ENTER(gate_context, &context);
	return submit_value(stream, context, given, true);
}

EXPORT CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value,
					unsigned int flags)
{
	struct value given = {{.perform = perform_write}, address, value, 8, flags};
	struct context *context;

	ENTER(gate_context, &context);
	return submit_value(stream, context, given, true);
}

EXPORT CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
				       unsigned int flags)
{
	struct value given = {{.perform = perform_wait}, address, value, 4, flags};
	struct context *context;

	ENTER(gate_context, &context);
	return submit_value(stream, context, given, false);
}

/* All of them are checked before the first is submitted. */
EXPORT CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, const CUmemOp *ops,
				      unsigned int flags)
{
	struct context *context;
	int code = CUDA_SUCCESS;

	ENTER(gate_context, &context);
	if (!count || count >= 256 || flags)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int pass = 0; pass < 2; pass++)
		for (unsigned int i = 0; i < count && !code; i++) {
			int width = ops[i].operation == WRITE_VALUE_64 ? 8 : 4;
			struct value given = {{.perform = perform_write}, ops[i].write.address,
					      ops[i].write.value, width, 0};

			if ((ops[i].operation != WRITE_VALUE_64 &&
			     ops[i].operation != WRITE_VALUE_32) ||
			    ops[i].write.flags || !is_valid(&given, context->device))
				code = CUDA_ERROR_INVALID_VALUE;
			else if (pass)
				code = submit_value(stream, context, given, true);
		}
	return code;
}

static bool perform_call(struct work *work, struct stream *stream)
{
	struct call *call = (struct call *)work;

	(void)stream;
	call->function(call->argument);
	return true;
}

EXPORT CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *argument)
{
	struct context *context;
	struct call *call;

	ENTER(gate_context, &context);
	if (!function)
		return CUDA_ERROR_INVALID_VALUE;
	call = malloc(sizeof(*call));
	*call = (struct call){{.perform = perform_call}, function, argument};
	return submit(stream, context, &call->work, false);
}

static void put(struct event *event)
{
	bool last;

	pthread_mutex_lock(&event->lock);
	last = !--event->references;
	pthread_mutex_unlock(&event->lock);
	if (!last)
		return;
	pthread_cond_destroy(&event->news);
	pthread_mutex_destroy(&event->lock);
	free(event);
}

static bool perform_record(struct work *work, struct stream *stream)
{
	struct record *record = (struct record *)work;
	struct event *event = record->event;
	struct timespec now;

	(void)stream;
	clock_gettime(CLOCK_MONOTONIC, &now);
	pthread_mutex_lock(&event->lock);
	if (record->number > event->reached)
		event->reached = record->number;
	event->at_ns = now.tv_sec * 1000000000ll + now.tv_nsec;
	pthread_cond_broadcast(&event->news);
	pthread_mutex_unlock(&event->lock);
	put(event);
	return true;
}

/* Waits until an event is reached; false when the context it hangs on is lost. */
static bool reach(struct event *event, uint64_t number)
{
	struct timespec until;
	bool lost = false;

	pthread_mutex_lock(&event->lock);
	while (event->reached < number && !lost) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 1000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&event->news, &event->lock, &until);
		lost = atomic_load(&event->context->lost);
	}
	pthread_mutex_unlock(&event->lock);
	return !lost;
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	struct context *context;

	ENTER(gate_context, &context);
	(void)flags;
	*event = calloc(1, sizeof(**event));
	(*event)->context = context;
	(*event)->references = 1;
	pthread_mutex_init(&(*event)->lock, NULL);
	pthread_cond_init(&(*event)->news, NULL);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
	ENTER(gate);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	put(event);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
	struct context *context;
	struct record *record;

	ENTER(gate_context, &context);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	record = malloc(sizeof(*record));
	pthread_mutex_lock(&event->lock);
	event->references++;
	event->recorded++;
	*record = (struct record){{.perform = perform_record}, event, event->recorded};
	pthread_mutex_unlock(&event->lock);
	return submit(stream, context, &record->work, false);
}

/* How often it was recorded. */
static uint64_t recorded(struct event *event)
{
	uint64_t number;

	pthread_mutex_lock(&event->lock);
	number = event->recorded;
	pthread_mutex_unlock(&event->lock);
	return number;
}

/* When its last record was reached, or -1. */
static int64_t reached_ns(struct event *event)
{
	int64_t at;

	pthread_mutex_lock(&event->lock);
	at = event->reached < event->recorded ? -1 : event->at_ns;
	pthread_mutex_unlock(&event->lock);
	return at;
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
	struct context *context;

	ENTER(gate_context, &context);
	return reach(event, recorded(event)) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

EXPORT CUresult cuEventElapsedTime_v2(float *ms, CUevent begin, CUevent end)
{
	ENTER(gate);
	if (!recorded(begin) || !recorded(end))
		return CUDA_ERROR_INVALID_HANDLE;
	if (reached_ns(begin) < 0 || reached_ns(end) < 0)
		return CUDA_ERROR_NOT_READY;
	*ms = (float)(reached_ns(end) - reached_ns(begin)) / 1e6f;
	return CUDA_SUCCESS;
}
