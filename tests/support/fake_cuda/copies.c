/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills. Each is checked when it is asked for, as the driver does, and once more when the
 * stream comes to it, as the hardware does: what is unmapped by then loses the context. */
#include "state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/mman.h>

enum { MAX_PITCH = 0x7fffffff, INLINE_BELOW = 32768 };

struct side {
	uintptr_t address;
	size_t pitch;
	bool device; /* else memory of the host, as the GPU is told it is */
};

struct copy {
	struct work work;
	struct side from, to;
	size_t width, height;
	bool lost; /* lost@K: this one is never done */
	char staged[];
};

struct fill {
	struct work work;
	uintptr_t address;
	size_t count;
	unsigned int value;
	int width;
};

static size_t extent(const struct side *side, size_t width, size_t height)
{
	return side->pitch * (height - 1) + width;
}

/* One row. What a single access can carry is one load and one store, as on a GPU: a copy of another
 * stream sees all of it or nothing. */
static void copy_row(void *to, const void *from, size_t width)
{
	bool aligned = ((uintptr_t)to | (uintptr_t)from) % width == 0;

	if (width == 8 && aligned)
		__atomic_store_n((uint64_t *)to,
				 __atomic_load_n((const uint64_t *)from, __ATOMIC_ACQUIRE),
				 __ATOMIC_RELEASE);
	else if (width == 4 && aligned)
		__atomic_store_n((uint32_t *)to,
				 __atomic_load_n((const uint32_t *)from, __ATOMIC_ACQUIRE),
				 __ATOMIC_RELEASE);
	else
		memmove(to, from, width);
}

/* Whether there is memory at all. */
static bool is_there(uintptr_t start, size_t size)
{
	uintptr_t page = start & ~(uintptr_t)(PAGE - 1);

	return !msync((void *)page, start + size - page, MS_ASYNC);
}

/* Of the host, so nothing of a GPU; and memory that is registered at its beginning is to its end. */
static bool valid_host(const struct side *side, size_t size)
{
	struct range *range = range_at(side->address);

	if (range)
		return range->block->kind == MANAGED;
	return host_at(side->address, 1) ? host_at(side->address, size) != NULL
					 : is_there(side->address, size);
}

static bool valid(const struct side *side, size_t width, size_t height, CUdevice device, bool write)
{
	uintptr_t at = side->address;

	if (!side->device)
		return valid_host(side, extent(side, width, height));
	for (size_t row = 0; row < height; row++, at += side->pitch)
		if (!reachable(at, width, device, write))
			return false;
	return true;
}

static bool valid_copy(const struct copy *copy, CUdevice device)
{
	return valid(&copy->from, copy->width, copy->height, device, false) &&
	       valid(&copy->to, copy->width, copy->height, device, true);
}

static bool perform_copy(struct work *work, struct stream *stream)
{
	struct copy *copy = (struct copy *)work;
	struct knobs set = knobs();
	long us = set.copy_us;
	struct timespec longer = {us / 1000000, us % 1000000 * 1000};
	bool between = copy->from.device && copy->to.device, fine;

	if (us)
		nanosleep(&longer, NULL);
	if (copy->lost)
		return false;
	pthread_rwlock_rdlock(&maps);
	fine = valid_copy(copy, stream_context(stream)->device);
	if (between ? set.wrong_peer : set.wrong_host)
		copy->width--;
	for (size_t row = 0; fine && row < copy->height; row++)
		copy_row((void *)(copy->to.address + row * copy->to.pitch),
			 (const void *)(copy->from.address + row * copy->from.pitch), copy->width);
	pthread_rwlock_unlock(&maps);
	return fine;
}

/* Copies the source into the work itself: the caller may change pageable memory at once. */
static struct copy *stage(struct copy *copy)
{
	struct copy *bigger = realloc(copy, sizeof(*copy) + copy->width * copy->height);

	for (size_t row = 0; row < bigger->height; row++)
		memcpy(bigger->staged + row * bigger->width,
		       (const char *)bigger->from.address + row * bigger->from.pitch,
		       bigger->width);
	bigger->from = (struct side){(uintptr_t)bigger->staged, bigger->width, false};
	return bigger;
}

static bool pageable(const struct side *side, size_t size)
{
	return !side->device && !host_at(side->address, size);
}

/* Checks a copy: its work, or NULL. With pageable memory of the host it is, as the driver's, not
 * asynchronous: the source is read at once, and the target is complete on return. */
static struct copy *prepare(struct context *context, struct side to, struct side from, size_t width,
			    size_t height, bool *wait)
{
	struct copy *copy = malloc(sizeof(*copy));
	bool fine;

	*copy = (struct copy){{.perform = perform_copy}, from, to, width, height, false};
	pthread_rwlock_rdlock(&maps);
	fine = valid_copy(copy, context->device);
	if (fine && pageable(&from, extent(&from, width, height)))
		copy = stage(copy);
	*wait = *wait || (fine && pageable(&to, extent(&to, width, height)));
	pthread_rwlock_unlock(&maps);
	if (fine)
		return copy;
	free(copy);
	return NULL;
}

static bool is_on_gpu(uintptr_t address)
{
	bool is;

	pthread_rwlock_rdlock(&maps);
	is = range_at(address);
	pthread_rwlock_unlock(&maps);
	return is;
}

/* Small copies of one row to the GPU are sent inline, through the compute engine's channel, and it
 * copies on the GPU. */
static enum channel channel_of(const struct copy *copy)
{
	if (!is_on_gpu(copy->to.address))
		return COPY_CHANNEL;
	if (is_on_gpu(copy->from.address))
		return COMPUTE_CHANNEL;
	return copy->height == 1 && copy->width < INLINE_BELOW ? COMPUTE_CHANNEL : COPY_CHANNEL;
}

static int give(CUstream stream, struct context *context, struct copy *copy, bool wait)
{
	if (copy->work.channel == SAME_CHANNEL)
		copy->work.channel = channel_of(copy);
	copy->work.on_sms = is_on_gpu(copy->to.address) && is_on_gpu(copy->from.address);
	copy->lost = copy_is_lost();
	return submit(stream, context, &copy->work, wait);
}

static int copy_rows(CUstream stream, struct context *context, struct side to, struct side from,
		     size_t width, size_t height, bool wait)
{
	struct copy *copy = prepare(context, to, from, width, height, &wait);

	return copy ? give(stream, context, copy, wait) : CUDA_ERROR_INVALID_VALUE;
}

static int copy_bytes(CUstream stream, struct context *context, struct side to, struct side from,
		      size_t size, bool wait)
{
	to.pitch = from.pitch = size;
	return size ? copy_rows(stream, context, to, from, size, 1, wait) : CUDA_SUCCESS;
}

static struct side device_side(CUdeviceptr address)
{
	return (struct side){address, 0, true};
}

static struct side host_side(const void *bytes)
{
	return (struct side){(uintptr_t)bytes, 0, false};
}

/* An address of which only the driver knows what it is. */
static struct side any_side(CUdeviceptr address)
{
	struct side side = {address, 0, false};

	pthread_rwlock_rdlock(&maps);
	side.device = range_at(address) || host_at(address, 1);
	pthread_rwlock_unlock(&maps);
	return side;
}

#define COPY(name, parameters, to, from, stream, wait)                    \
	EXPORT CUresult name parameters                                   \
	{                                                                 \
		struct context *context;                                  \
                                                                          \
		ENTER(gate_context, &context);                            \
		return copy_bytes(stream, context, to, from, size, wait); \
	}

COPY(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t size), device_side(to),
     host_side(from), NULL, true)
COPY(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t size), host_side(to), device_side(from),
     NULL, true)
COPY(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t size), device_side(to),
     device_side(from), NULL, true)
COPY(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t size), any_side(to), any_side(from), NULL,
     true)
COPY(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t size, CUstream stream),
     device_side(to), host_side(from), stream, false)
COPY(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t size, CUstream stream),
     host_side(to), device_side(from), stream, false)
COPY(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream),
     device_side(to), device_side(from), stream, false)
COPY(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream), any_side(to),
     any_side(from), stream, false)
COPY(cuMemcpyPeerAsync,
     (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t size,
      CUstream stream),
     (((void)there, (void)here), device_side(to)), device_side(from), stream, false)

static int side_of(const CUside *given, size_t width, size_t height, struct side *side)
{
	size_t offset = given->y * given->pitch + given->xInBytes;

	if (given->pitch > MAX_PITCH || (given->pitch && given->pitch < width + given->xInBytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (given->memoryType == MEMORY_HOST)
		*side = host_side((const char *)given->host + offset);
	else if (given->memoryType == MEMORY_DEVICE)
		*side = device_side(given->device + offset);
	else if (given->memoryType == MEMORY_UNIFIED)
		*side = any_side(given->device + offset);
	else
		return CUDA_ERROR_INVALID_VALUE;
	side->pitch = height > 1 && given->pitch ? given->pitch : width;
	return CUDA_SUCCESS;
}

static int copy_2d(const CUmemcpy2D *given, struct context *context, CUstream stream, bool wait)
{
	struct side to, from;
	int code;

	if (!given)
		return CUDA_ERROR_INVALID_VALUE;
	if (!given->widthInBytes || !given->height)
		return CUDA_SUCCESS;
	code = side_of(&given->src, given->widthInBytes, given->height, &from);
	if (!code)
		code = side_of(&given->dst, given->widthInBytes, given->height, &to);
	return code ? code
		    : copy_rows(stream, context, to, from, given->widthInBytes, given->height,
				wait);
}

EXPORT CUresult cuMemcpy2DAsync_v2(const CUmemcpy2D *given, CUstream stream)
{
	struct context *context;

	ENTER(gate_context, &context);
	return copy_2d(given, context, stream, false);
}

EXPORT CUresult cuMemcpy2D_v2(const CUmemcpy2D *given)
{
	struct context *context;

	ENTER(gate_context, &context);
	return copy_2d(given, context, NULL, true);
}

/* Planes of one row are all that is known here: rows that lie a plane apart. */
EXPORT CUresult cuMemcpy3DAsync_v2(const CUmemcpy3D *given, CUstream stream)
{
	struct context *context;
	struct side to, from;

	ENTER(gate_context, &context);
	if (!given || given->height != 1 || given->src.memoryType != MEMORY_HOST ||
	    given->dst.memoryType != MEMORY_DEVICE || given->src.pitch > MAX_PITCH ||
	    given->dst.pitch > MAX_PITCH)
		return CUDA_ERROR_INVALID_VALUE;
	from = host_side(given->src.host);
	to = device_side(given->dst.device);
	from.pitch = given->src.pitch * given->src.height;
	to.pitch = given->dst.pitch * given->dst.height;
	return copy_rows(stream, context, to, from, given->widthInBytes, given->depth, false);
}

static bool sensible(const CUmemcpyAttributes *attributes, const size_t *first, size_t count,
		     size_t copies)
{
	for (size_t i = 0; i < count; i++)
		if (attributes[i].srcAccessOrder < ORDER_STREAM ||
		    attributes[i].srcAccessOrder > ORDER_ANY || first[i] >= copies ||
		    (i ? first[i] <= first[i - 1] : first[i] != 0))
			return false;
	return true;
}

static struct copy *prepare_bytes(struct context *context, CUdeviceptr to, CUdeviceptr from,
				  size_t size)
{
	struct side there = any_side(to), here = any_side(from);
	bool wait = false;

	there.pitch = here.pitch = size;
	return prepare(context, there, here, size, 1, &wait);
}

/* All of the copies, or none: which one was refused stands in `refused`. The last comes first: a batch
 * has no order, as CUDA's documentation of cuMemcpyBatchAsync says. */
static int batch(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes, size_t count,
		 size_t *refused, struct context *context, CUstream stream)
{
	struct copy **copies = calloc(count, sizeof(*copies));
	int code = CUDA_SUCCESS;
	size_t i;

	for (i = 0; i < count; i++) {
		copies[i] = prepare_bytes(context, to[i], from[i], sizes[i]);
		if (!copies[i])
			break;
	}
	*refused = i < count ? i : SIZE_MAX;
	if (i < count)
		code = CUDA_ERROR_INVALID_VALUE;
	for (size_t j = i; j--;) {
		if (code) {
			free(copies[j]);
			continue;
		}
		if (channel_of(copies[j]) == COMPUTE_CHANNEL)
			copies[j]->work.channel = BEHIND_A_COPY;
		code = give(stream, context, copies[j], false);
	}
	free(copies);
	return code;
}

/* Of CUDA 12.8. */
EXPORT CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,
				   CUmemcpyAttributes *attributes, size_t *first,
				   size_t attribute_count, size_t *refused, CUstream stream)
{
	struct context *context;
	size_t ignored;

	ENTER(gate_context, &context);
	if (!count || (uintptr_t)stream <= 1 ||
	    !sensible(attributes, first, attribute_count, count))
		return CUDA_ERROR_INVALID_VALUE;
	return batch(to, from, sizes, count, refused ? refused : &ignored, context, stream);
}

/* Since CUDA 13.0. */
EXPORT CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes,
				      size_t count, CUmemcpyAttributes *attributes, size_t *first,
				      size_t attribute_count, CUstream stream)
{
	return cuMemcpyBatchAsync(to, from, sizes, count, attributes, first, attribute_count, NULL,
				  stream);
}

static bool perform_fill(struct work *work, struct stream *stream)
{
	struct fill *fill = (struct fill *)work;
	size_t size = fill->count * (size_t)fill->width;
	bool fine;

	pthread_rwlock_rdlock(&maps);
	fine = reachable(fill->address, size, stream_context(stream)->device, true);
	if (fine && fill->width == 1)
		memset((char *)fill->address, (int)fill->value, fill->count);
	for (size_t i = 0; fine && fill->width > 1 && i < fill->count; i++)
		memcpy((char *)fill->address + i * (size_t)fill->width, &fill->value,
		       (size_t)fill->width);
	pthread_rwlock_unlock(&maps);
	return fine;
}

static int fill(CUdeviceptr address, unsigned int value, int width, size_t count, CUstream stream,
		struct context *context, bool wait)
{
	size_t size = count * (size_t)width;
	struct fill *fill;
	bool fine;

	pthread_rwlock_rdlock(&maps);
	fine = address % (unsigned int)width == 0 &&
	       reachable(address, size, context->device, true);
	pthread_rwlock_unlock(&maps);
	if (!fine)
		return CUDA_ERROR_INVALID_VALUE;
	fill = malloc(sizeof(*fill));
	*fill = (struct fill){{.perform = perform_fill, .channel = COMPUTE_CHANNEL},
			      address, count, value, width};
	return submit(stream, context, &fill->work, wait);
}

#define FILL(name, type, parameters, stream, wait)                                       \
	EXPORT CUresult name parameters                                                  \
	{                                                                                \
		struct context *context;                                                 \
                                                                                         \
		ENTER(gate_context, &context);                                           \
		return fill(address, value, sizeof(type), count, stream, context, wait); \
	}

FILL(cuMemsetD8_v2, char, (CUdeviceptr address, unsigned char value, size_t count), NULL, true)
FILL(cuMemsetD32_v2, int, (CUdeviceptr address, unsigned int value, size_t count), NULL, true)
FILL(cuMemsetD8Async, char,
     (CUdeviceptr address, unsigned char value, size_t count, CUstream stream), stream, false)
FILL(cuMemsetD16Async, short,
     (CUdeviceptr address, unsigned short value, size_t count, CUstream stream), stream, false)
FILL(cuMemsetD32Async, int,
     (CUdeviceptr address, unsigned int value, size_t count, CUstream stream), stream, false)
