// SPDX-License-Identifier: Apache-2.0
// What a copy service on multiprocessors of the GPU would reach, bare: a persistent kernel takes requests from
// a ring in pinned host memory, copies within GPU memory, adds to a signal's word and reports to the host. dgkit
// has no such service; its puts go through the copy engine (tests/bench/README.md has both figures).
//
//     nvcc -O2 -std=c++17 -arch=sm_90 -cudart=static copy_service.cu -o copy_service && ./copy_service
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call) \
	do { \
		const cudaError_t error_ = (call); \
		if (error_ != cudaSuccess) { \
			printf("%s: %s\n", #call, cudaGetErrorString(error_)); \
			exit(1); \
		} \
	} while (0)

namespace {

using u64 = unsigned long long;
constexpr int RING = 4096, WORDS = 4, WARP = 32, PLACES = 4096, ROUNDS = 5000, PUTS = 400000;
constexpr u64 LOW = (1ull << 56) - 1;

// Words of a request: source, target, size, signal's word or 0; the lap of its place in the top byte of each.
struct Ring {
	u64 requests[RING][WORDS];
	u64 done[1024][8]; // by warp, a cache line each
	unsigned stop;
};

__device__ u64 load(const volatile u64 *p)
{
	return *p;
}

__device__ void copy(char *to, const char *from, u64 size, int lane)
{
	if (((u64)to | (u64)from | size) % 16 == 0)
		for (u64 i = lane; i < size / 16; i += WARP)
			reinterpret_cast<int4 *>(to)[i] = __ldcg(reinterpret_cast<const int4 *>(from) + i);
	else
		for (u64 i = lane; i < size / 8; i += WARP)
			reinterpret_cast<u64 *>(to)[i] = __ldcg(reinterpret_cast<const u64 *>(from) + i);
}

// Each warp serves the places whose number is its own modulo the number of warps.
__global__ void serve(Ring *ring, int warps)
{
	const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
	u64 done = 0;
	for (u64 at = warp;;) {
		const u64 lap = at / RING + 1;
		u64 word = lane < WORDS ? load(&ring->requests[at % RING][lane]) : lap << 56;
		if (!__all_sync(~0u, word >> 56 == (lap & 255))) {
			if (__shfl_sync(~0u, lane ? 0 : *(volatile unsigned *)&ring->stop, 0))
				return;
			continue;
		}
		word &= LOW;
		const u64 from = __shfl_sync(~0u, word, 0), to = __shfl_sync(~0u, word, 1);
		const u64 size = __shfl_sync(~0u, word, 2), signal = __shfl_sync(~0u, word, 3);
		copy(reinterpret_cast<char *>(to), reinterpret_cast<const char *>(from), size, lane);
		__threadfence();
		__syncwarp();
		if (!lane) {
			if (signal)
				atomicAdd(reinterpret_cast<u64 *>(signal), 1ull);
			__threadfence_system();
			*(volatile u64 *)&ring->done[warp][0] = ++done;
		}
		at += warps;
	}
}

// A kernel that waits for signals, and tells the host of each.
__global__ void watch(const volatile u64 *signal, volatile u64 *seen, int rounds)
{
	for (u64 i = 1; i <= u64(rounds); i++) {
		while (*signal < i)
			;
		*seen = i;
	}
}

__global__ void compute(float *out, int loops)
{
	float x = threadIdx.x;
	for (int i = 0; i < loops; i++)
		x = x * 1.0001f + 0.5f;
	out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

double now_us()
{
	return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Service {
	Ring *ring;
	cudaStream_t stream;
	int warps;
	u64 posted = 0;
	char *from, *to;
	u64 *signal, *seen;

	explicit Service(int blocks, int threads) : warps(blocks * threads / WARP)
	{
		CHECK(cudaHostAlloc(&ring, sizeof *ring, cudaHostAllocMapped));
		memset(ring, 0, sizeof *ring);
		CHECK(cudaHostAlloc(&seen, 8, cudaHostAllocMapped));
		CHECK(cudaMalloc(&from, size_t(PLACES) * 8192));
		CHECK(cudaMalloc(&to, size_t(PLACES) * 8192));
		CHECK(cudaMalloc(&signal, 8));
		CHECK(cudaMemset(signal, 0, 8));
		CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
		CHECK(cudaDeviceSynchronize());
		serve<<<blocks, threads, 0, stream>>>(ring, warps);
		CHECK(cudaGetLastError());
	}
	// Before that, to free memory would wait for the service.
	~Service()
	{
		*(volatile unsigned *)&ring->stop = 1;
		CHECK(cudaStreamSynchronize(stream));
		CHECK(cudaFreeHost(ring));
		CHECK(cudaFreeHost(seen));
		CHECK(cudaFree(from));
		CHECK(cudaFree(to));
		CHECK(cudaFree(signal));
		CHECK(cudaStreamDestroy(stream));
	}
	u64 done_of(u64 warp) const
	{
		return *(volatile u64 *)&ring->done[warp][0];
	}
	// The number of requests that the place's warp has completed when this one is complete.
	u64 turn(u64 at) const
	{
		return at / warps + 1;
	}
	void post(u64 place, u64 size, bool signals)
	{
		const u64 at = posted++, lap = (at / RING + 1) << 56, spread = place * 37 % PLACES * size;
		if (at >= RING)
			while (done_of((at - RING) % warps) < turn(at - RING))
				;
		const u64 words[WORDS] = {u64(from) + spread, u64(to) + spread, size, signals ? u64(signal) : 0};
		for (int i = 0; i < WORDS; i++)
			*(volatile u64 *)&ring->requests[at % RING][i] = words[i] | lap;
	}
	void wait()
	{
		for (u64 at = posted > u64(warps) ? posted - warps : 0; at < posted; at++)
			while (done_of(at % warps) < turn(at))
				;
	}
};

void latency(Service &s, u64 size, const char *beside)
{
	u64 *const seen = s.seen;
	cudaStream_t stream;
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	*seen = 0;
	CHECK(cudaMemsetAsync(s.signal, 0, 8, stream));
	watch<<<1, 1, 0, stream>>>(s.signal, seen, ROUNDS);
	std::vector<double> us;
	for (u64 i = 1; i <= ROUNDS; i++) {
		const double start = now_us();
		s.post(i, size, true);
		while (*(volatile u64 *)seen != i)
			;
		us.push_back(now_us() - start);
	}
	std::sort(us.begin(), us.end());
	printf("put of %llu B and signal, until a kernel saw it and the host knew: p50 %.2f us, p99 %.2f us%s\n", size,
	       us[ROUNDS / 2], us[ROUNDS * 99 / 100], beside);
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaStreamDestroy(stream));
}

void rate(Service &s, u64 size)
{
	const double start = now_us();
	for (u64 i = 0; i < PUTS; i++)
		s.post(i, size, false);
	s.wait();
	printf("scattered puts of %llu B: %.2f M/s\n", size, PUTS / (now_us() - start));
}

double compute_ms(int sms, float *out)
{
	cudaStream_t stream;
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	double best = 1e9;
	for (int i = 0; i < 5; i++) {
		const double start = now_us();
		compute<<<sms * 16, 1024, 0, stream>>>(out, 20000);
		CHECK(cudaStreamSynchronize(stream));
		best = std::min(best, (now_us() - start) / 1e3);
	}
	CHECK(cudaStreamDestroy(stream));
	return best;
}

void check_bytes(Service &s)
{
	std::vector<char> sent(8192 * PLACES), got(sent.size());
	for (size_t i = 0; i < sent.size(); i++)
		sent[i] = char(i * 131 >> 3);
	cudaStream_t stream;
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaMemcpyAsync(s.from, sent.data(), sent.size(), cudaMemcpyHostToDevice, stream));
	CHECK(cudaStreamSynchronize(stream));
	for (u64 i = 0; i < PLACES; i++)
		s.post(i, 8192, false);
	s.wait();
	CHECK(cudaMemcpyAsync(got.data(), s.to, got.size(), cudaMemcpyDeviceToHost, stream));
	CHECK(cudaStreamSynchronize(stream));
	printf("%s\n", got == sent ? "each byte is right" : "WRONG BYTES");
	CHECK(cudaStreamDestroy(stream));
}

} // namespace

int main()
{
	setenv("CUDA_MODULE_LOADING", "EAGER", 1); // no kernel is loaded while another one runs for ever
	cudaDeviceProp gpu;
	float *out;
	CHECK(cudaGetDeviceProperties(&gpu, 0));
	CHECK(cudaMalloc(&out, size_t(gpu.multiProcessorCount) * 16 * 1024 * sizeof *out));
	const double alone = compute_ms(gpu.multiProcessorCount, out);
	printf("%s, %d multiprocessors; a kernel on all of them: %.2f ms\n", gpu.name, gpu.multiProcessorCount, alone);
	for (const int *shape : {(const int[]){1, 256}, (const int[]){1, 1024}, (const int[]){4, 1024}}) {
		printf("== %d x %d threads\n", shape[0], shape[1]);
		Service s(shape[0], shape[1]);
		check_bytes(s);
		for (u64 size : {8, 256, 8192})
			latency(s, size, "");
		for (u64 size : {8, 256, 8192})
			rate(s, size);
		printf("the kernel beside the idle service: %.2f ms, alone %.2f ms\n",
		       compute_ms(gpu.multiProcessorCount, out), alone);
		cudaStream_t stream;
		CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
		compute<<<gpu.multiProcessorCount * 16, 1024, 0, stream>>>(out, 12000000);
		for (u64 size : {8, 256, 8192})
			rate(s, size);
		printf("the last three while that kernel %s\n",
		       cudaStreamQuery(stream) == cudaErrorNotReady ? "filled the rest" : "had ended: not valid");
		CHECK(cudaStreamSynchronize(stream));
		CHECK(cudaStreamDestroy(stream));
	}
	return 0;
}
