/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: each has a thread that does, one after the other, what was submitted to it. */
#include "state.h"

#include <stdlib.h>
#include <string.h>

struct stream {
	struct stream *next;
	struct context *context;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t news;
	struct work *first, *last;
	uint64_t submitted, done;
	bool on_engine; /* its channel is a copy engine's */
	bool copies; /* its last work is such a copy */
	bool stop; /* it was destroyed: its thread ends when all is done */
	unsigned int references; /* its handle, its thread, who looks at it */
};

static struct stream *streams;
static pthread_mutex_t all = PTHREAD_MUTEX_INITIALIZER;

struct context *stream_context(struct stream *stream)
{
	return stream->context;
}

/* Whether work that waits for something may as well stop waiting. */
bool stream_given_up(struct stream *stream)
{
	return atomic_load(&stream->context->lost);
}

static void discard(struct stream *stream)
{
	while (stream->first) {
		struct work *work = stream->first;

		stream->first = work->next;
		free(work);
	}
}

static void end(struct stream *stream)
{
	discard(stream);
	pthread_cond_destroy(&stream->news);
	pthread_mutex_destroy(&stream->lock);
	free(stream);
}

/* Gives a reference back; with the last one the stream is gone. */
static void drop(struct stream *stream)
{
	struct stream **at = &streams;
	bool last;

	pthread_mutex_lock(&all);
	last = !--stream->references;
	if (last) {
		while (*at != stream)
			at = &(*at)->next;
		*at = stream->next;
	}
	pthread_mutex_unlock(&all);
	if (last)
		end(stream);
}

/* The next work, or NULL when there will be none. Of a lost context nothing is done any more. */
static struct work *next(struct stream *stream)
{
	struct work *work;

	pthread_mutex_lock(&stream->lock);
	for (;;) {
		if (atomic_load(&stream->context->lost))
			discard(stream);
		if (stream->first || stream->stop)
			break;
		pthread_cond_wait(&stream->news, &stream->lock);
	}
	work = stream->first;
	if (work)
		stream->first = work->next;
	pthread_mutex_unlock(&stream->lock);
	return work;
}

/* Waits for the time slice of this process. */
static void wait_for_slice(void)
{
	long us = knobs().compute_us;
	struct timespec slice = {us / 1000000, us % 1000000 * 1000};

	if (us)
		nanosleep(&slice, NULL);
}

/* Waits for the end of a kernel that has every multiprocessor. */
static void wait_for_room(struct context *context)
{
	struct timespec pause = {0, 200000};

	while (knobs().full && !atomic_load(&context->lost))
		nanosleep(&pause, NULL);
}

static void *run(void *argument)
{
	struct stream *stream = argument;
	struct work *work;

	while ((work = next(stream))) {
		if (work->late)
			wait_for_slice();
		if (work->on_sms)
			wait_for_room(stream->context);
		bool fine = work->perform(work, stream);

		free(work);
		if (!fine) {
			context_lose(stream->context);
			continue;
		}
		pthread_mutex_lock(&stream->lock);
		stream->done++;
		pthread_cond_broadcast(&stream->news);
		pthread_mutex_unlock(&stream->lock);
	}
	drop(stream);
	return NULL;
}

/* The caller holds the lock of the list. */
static struct stream *begin(struct context *context)
{
	struct stream *stream = calloc(1, sizeof(*stream));

	stream->context = context;
	stream->references = 2;
	pthread_mutex_init(&stream->lock, NULL);
	pthread_cond_init(&stream->news, NULL);
	if (pthread_create(&stream->thread, NULL, run, stream)) {
		end(stream);
		return NULL;
	}
	stream->next = streams;
	return streams = stream;
}

/* The stream that a handle names in this context: NULL, 1 and 2 name its default ones. The caller
 * drops it. */
static struct stream *find(CUstream handle, struct context *context)
{
	struct stream *stream;

	pthread_mutex_lock(&all);
	if ((uintptr_t)handle <= 2) {
		if (!context->legacy)
			context->legacy = begin(context);
		stream = context->legacy;
	} else {
		for (stream = streams; stream && stream != handle; stream = stream->next)
			;
	}
	if (stream)
		stream->references++;
	pthread_mutex_unlock(&all);
	return stream;
}

void context_lose(struct context *context)
{
	atomic_store(&context->lost, true);
	pthread_mutex_lock(&all);
	for (struct stream *stream = streams; stream; stream = stream->next) {
		pthread_mutex_lock(&stream->lock);
		pthread_cond_broadcast(&stream->news);
		pthread_mutex_unlock(&stream->lock);
	}
	pthread_mutex_unlock(&all);
}

static int wait_until(struct stream *stream, uint64_t number)
{
	int code = CUDA_SUCCESS;

	pthread_mutex_lock(&stream->lock);
	while (stream->done < number && !code) {
		if (atomic_load(&stream->context->lost))
			code = CUDA_ERROR_ILLEGAL_ADDRESS;
		else
			pthread_cond_wait(&stream->news, &stream->lock);
	}
	pthread_mutex_unlock(&stream->lock);
	return code;
}

/* The caller holds the stream's lock. */
static void choose_channel(struct stream *stream, struct work *work)
{
	bool copies = work->channel == COPY_CHANNEL ||
		      (work->channel == BEHIND_A_COPY && stream->copies);

	if (work->channel != SAME_CHANNEL)
		stream->on_engine = copies;
	stream->copies = copies;
	work->late = !stream->on_engine;
}

/* Gives a stream work, which it frees; waits for it if asked to. */
int submit(CUstream handle, struct context *context, struct work *work, bool wait)
{
	struct stream *stream = find(handle, context);
	uint64_t number;
	int code;

	if (!stream) {
		free(work);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	work->next = NULL;
	pthread_mutex_lock(&stream->lock);
	choose_channel(stream, work);
	if (stream->first)
		stream->last->next = work;
	else
		stream->first = work;
	stream->last = work;
	number = ++stream->submitted;
	pthread_cond_broadcast(&stream->news);
	pthread_mutex_unlock(&stream->lock);
	code = wait ? wait_until(stream, number) : CUDA_SUCCESS;
	drop(stream);
	return code;
}

static uint64_t submitted(struct stream *stream)
{
	uint64_t number;

	pthread_mutex_lock(&stream->lock);
	number = stream->submitted;
	pthread_mutex_unlock(&stream->lock);
	return number;
}

static bool idle(struct stream *stream)
{
	bool is;

	pthread_mutex_lock(&stream->lock);
	is = stream->done == stream->submitted;
	pthread_mutex_unlock(&stream->lock);
	return is;
}

int stream_wait(CUstream handle, struct context *context)
{
	struct stream *stream = find(handle, context);
	int code;

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	code = wait_until(stream, submitted(stream));
	drop(stream);
	return code;
}

/* A stream of the context that has something to do. The caller drops it. */
static struct stream *busy(struct context *context)
{
	struct stream *stream;

	pthread_mutex_lock(&all);
	for (stream = streams; stream; stream = stream->next)
		if (stream->context == context && !idle(stream))
			break;
	if (stream)
		stream->references++;
	pthread_mutex_unlock(&all);
	return stream;
}

/* Waits for all streams of a context. */
int context_wait(struct context *context)
{
	struct stream *stream;
	int code = CUDA_SUCCESS;

	wait_for_room(context);
	while (!code && (stream = busy(context))) {
		code = wait_until(stream, submitted(stream));
		drop(stream);
	}
	return code;
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	struct context *context;

	ENTER(gate_context, &context);
	if (!stream || flags > 1)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&all);
	*stream = begin(context);
	pthread_mutex_unlock(&all);
	return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* What was submitted is still done; the call does not wait for it. */
EXPORT CUresult cuStreamDestroy_v2(CUstream handle)
{
	struct context *context;
	struct stream *stream;
	pthread_t thread;
	bool finished;

	ENTER(gate_context, &context);
	stream = (uintptr_t)handle <= 2 ? NULL : find(handle, context);
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&stream->lock);
	finished = stream->done == stream->submitted;
	thread = stream->thread;
	stream->stop = true;
	pthread_cond_broadcast(&stream->news);
	pthread_mutex_unlock(&stream->lock);
	if (finished)
		pthread_join(thread, NULL);
	else
		pthread_detach(thread);
	drop(stream); /* that of this call, and the handle's */
	drop(stream);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
	struct context *context;

	ENTER(gate_context, &context);
	return stream_wait(stream, context);
}

EXPORT CUresult cuStreamQuery(CUstream handle)
{
	struct context *context;
	struct stream *stream;
	int code;

	ENTER(gate_context, &context);
	stream = find(handle, context);
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	code = idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
	drop(stream);
	return code;
}

