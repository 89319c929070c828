// SPDX-License-Identifier: Apache-2.0
/*
 * The emulated GPU, part 3: launches and the runtime functions of a program with host code.
 *
 * A grid runs in a forked child. Those of one stream run one after the other; a grid of the default
 * stream starts after all others have ended. The child has the program's memory at the same addresses:
 * what is shared, such as memory of softdoca's doca_gpu_mem_alloc(), is the emulated GPU's memory; of
 * all else the kernel has a copy, so that the program does not see what a kernel writes to memory that a
 * GPU cannot reach.
 */
#include "host.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <map>
#include <set>

struct CUstream_st {
	pid_t child; /* that runs its last grid; 0: none */
	CUstream_st *next;
};

static CUstream_st default_stream;
static cudaError_t last_error;
static std::map<void *, size_t> allocations;

/* stream: of the grid that it waits for; NULL when it is over, or was not recorded. */
struct CUevent_st {
	CUstream_st *stream;
	bool recorded;
	timespec at;
};
static std::set<CUevent_st *> events;

static void complete(CUevent_st *event)
{
	clock_gettime(CLOCK_MONOTONIC, &event->at);
	event->stream = nullptr;
}

static void complete_events_of(const CUstream_st *stream)
{
	for (CUevent_st *event : events)
		if (event->stream == stream)
			complete(event);
}

static cudaError_t wait_for(CUstream_st *stream)
{
	int status = 0;
	if (stream->child > 0 && waitpid(stream->child, &status, 0) == stream->child && status)
		last_error = cudaErrorLaunchFailure;
	stream->child = 0;
	complete_events_of(stream);
	return last_error;
}

static cudaError_t wait_for_all()
{
	for (CUstream_st *stream = &default_stream; stream; stream = stream->next)
		wait_for(stream);
	return last_error;
}

void dg_emu::start(dim3 grid, dim3 block, size_t shared_size, cudaStream_t stream, Invoke *invoke,
		   void *const *arguments)
{
	if (stream ? wait_for(stream) : wait_for_all())
		return;
	fflush(nullptr);
	const pid_t child = fork();
	if (child == 0)
		run_and_exit(grid, block, shared_size, invoke, arguments);
	if (child < 0)
		last_error = cudaErrorLaunchFailure;
	(stream ? stream : &default_stream)->child = child;
}

cudaError_t cudaGetDeviceCount(int *count)
{
	*count = 1;
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
	return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceGetPCIBusId(char *address, int size, int device)
{
	if (device != 0)
		return cudaErrorInvalidDevice;
	return snprintf(address, (size_t)size, "0000:00:00.0") < size ? cudaSuccess
								       : cudaErrorInvalidValue;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
	if (device != 0)
		return cudaErrorInvalidDevice;
	*properties = {"emulated GPU", 9, 0};
	return cudaSuccess;
}

/* Whatever address the program gave to doca_gpu_create(). */
cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *)
{
	*device = 0;
	return cudaSuccess;
}

/* The default stream, which was there before all others, is the first of the list. */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int)
{
	*stream = new CUstream_st{0, default_stream.next};
	default_stream.next = *stream;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	return stream ? wait_for(stream) : wait_for_all();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	CUstream_st *before = &default_stream;
	while (before && before->next != stream)
		before = before->next;
	if (!stream || !before)
		return cudaErrorInvalidValue;
	wait_for(stream);
	before->next = stream->next;
	delete stream;
	return last_error;
}

static bool is_event(CUevent event)
{
	return events.count(event) != 0;
}

CUresult cuEventCreate(CUevent *event, unsigned int)
{
	*event = new CUevent_st{};
	events.insert(*event);
	return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	if (!is_event(event))
		return CUDA_ERROR_INVALID_HANDLE;
	event->recorded = true;
	event->stream = stream ? stream : &default_stream;
	if (event->stream->child <= 0)
		complete(event);
	return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event)
{
	if (!is_event(event))
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->stream && wait_for(event->stream))
		return CUDA_ERROR_LAUNCH_FAILED;
	return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
	if (!is_event(start) || !is_event(end) || !start->recorded || !end->recorded)
		return CUDA_ERROR_INVALID_HANDLE;
	if (start->stream || end->stream)
		return CUDA_ERROR_NOT_READY;
	*milliseconds = (float)((double)(end->at.tv_sec - start->at.tv_sec) * 1e3 +
				(double)(end->at.tv_nsec - start->at.tv_nsec) / 1e6);
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
	if (!events.erase(event))
		return CUDA_ERROR_INVALID_HANDLE;
	delete event;
	return CUDA_SUCCESS;
}

cudaError_t cudaMalloc(void **memory, size_t size)
{
	void *at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return size ? cudaErrorMemoryAllocation : cudaErrorInvalidValue;
	allocations[at] = size;
	*memory = at;
	return cudaSuccess;
}

/* Programs also call it with NULL, to initialize CUDA. */
cudaError_t cudaFree(void *memory)
{
	auto found = allocations.find(memory);
	if (found == allocations.end())
		return memory ? cudaErrorInvalidValue : cudaSuccess;
	wait_for_all();
	munmap(memory, found->second);
	allocations.erase(found);
	return last_error;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind)
{
	if (!wait_for(&default_stream))
		memcpy(to, from, size);
	return last_error;
}

cudaError_t cudaMemset(void *memory, int value, size_t size)
{
	return cudaMemsetAsync(memory, value, size, nullptr);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t size, cudaStream_t stream)
{
	if (!cudaStreamSynchronize(stream))
		memset(memory, value, size);
	return last_error;
}

cudaError_t cudaDeviceSynchronize()
{
	return wait_for_all();
}

cudaError_t cudaGetLastError()
{
	return last_error;
}

const char *cudaGetErrorString(cudaError_t error)
{
	switch (error) {
	case cudaSuccess:
		return "no error";
	case cudaErrorMemoryAllocation:
		return "out of memory";
	case cudaErrorInvalidDevice:
		return "the emulated GPU is device 0, and the only one";
	case cudaErrorLaunchFailure:
		return "a kernel failed on the emulated GPU";
	default:
		return "invalid argument";
	}
}
