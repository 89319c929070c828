// SPDX-License-Identifier: Apache-2.0
// What a kernel's puts cost: the time of a put with a signal until the peer's kernel sees the signal, and
// puts per second; beside it NCCL's other path, by which kernels store into the peer's memory themselves
// (LSA). Each rank puts to the next one, and the last to the first; one rank to itself. PART=latency, rate or
// lsa takes one of the three.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "nccl_device.h"
#include "utils.h"

namespace {

constexpr int ROUNDS = 2000, WARM = 200, BLOCKS = 4, PUTS = 32768;
// A thread that waits for a place in NCCL's ring polls host memory, which delays every copy.
constexpr int THREADS[] = {32, 256};
constexpr size_t SIZES[] = {8, 256, 8192}, PLACES = 1024, WINDOW = PLACES * 8192;
constexpr size_t SPREAD = 37; // odd: puts of neighbouring threads are not adjacent

__device__ long long now_ns()
{
	long long t;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

__global__ void exchange(ncclDevComm comm, ncclWindow_t from, ncclWindow_t to, size_t size, uint64_t before,
			 long long *ns)
{
	ncclGin gin{comm, 0};
	const int peer = (comm.rank + 1) % comm.nRanks;
	for (int i = 0; i < ROUNDS; i++) {
		const long long start = now_ns();
		gin.put(ncclTeamWorld(comm), peer, to, 0, from, 0, size, ncclGin_WeakSignalInc{0});
		gin.waitSignal(ncclCoopThread(), 0, before + i + 1);
		ns[i] = now_ns() - start;
	}
	gin.flush(ncclCoopThread());
}

__global__ void scatter(ncclDevComm comm, ncclWindow_t from, ncclWindow_t to, size_t size)
{
	ncclGin gin{comm, static_cast<int>(blockIdx.x % comm.ginContextCount)};
	const int peer = (comm.rank + 1) % comm.nRanks;
	const int threads = gridDim.x * blockDim.x, thread = blockIdx.x * blockDim.x + threadIdx.x;
	for (size_t i = thread; i < PUTS; i += threads) {
		const size_t at = i * SPREAD % PLACES * size;
		gin.put(ncclTeamWorld(comm), peer, to, at, from, at, size);
	}
	gin.flush(ncclCoopCta());
}

// A warp copies n bytes, a multiple of 8.
__device__ void store(char *to, const char *from, size_t n)
{
	for (size_t at = threadIdx.x % 32 * 8; at < n; at += 32 * 8)
		*reinterpret_cast<volatile uint64_t *>(to + at) =
			*reinterpret_cast<const volatile uint64_t *>(from + at);
}

// One warp. The last word of the window is the signal.
__global__ void exchange_lsa(ncclDevComm comm, ncclWindow_t from, ncclWindow_t to, size_t size, uint64_t before,
			     long long *ns)
{
	const int peer = (comm.lsaRank + 1) % comm.lsaSize;
	char *there = static_cast<char *>(ncclGetLsaPointer(to, 0, peer));
	const char *here = static_cast<char *>(ncclGetLsaPointer(from, 0, comm.lsaRank));
	const auto signal = reinterpret_cast<unsigned long long *>(there + WINDOW - 8);
	const char *word = static_cast<char *>(ncclGetLsaPointer(to, WINDOW - 8, comm.lsaRank));
	for (int i = 0; i < ROUNDS; i++) {
		const long long start = now_ns();
		store(there, here, size);
		__threadfence_system();
		__syncwarp();
		if (!threadIdx.x)
			atomicAdd_system(signal, 1);
		while (*reinterpret_cast<const volatile uint64_t *>(word) < before + i + 1)
			;
		__threadfence_system();
		__syncwarp();
		ns[i] = now_ns() - start;
	}
}

__global__ void scatter_lsa(ncclDevComm comm, ncclWindow_t from, ncclWindow_t to, size_t size)
{
	const int peer = (comm.lsaRank + 1) % comm.lsaSize;
	const size_t warps = gridDim.x * blockDim.x / 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
	char *there = static_cast<char *>(ncclGetLsaPointer(to, 0, peer));
	const char *here = static_cast<char *>(ncclGetLsaPointer(from, 0, comm.lsaRank));
	for (size_t i = warp; i < PUTS; i += warps)
		store(there + i * SPREAD % PLACES * size, here + i * SPREAD % PLACES * size, size);
	__threadfence_system();
}

// ns: pinned. It is freed after the last kernel of all ranks: that waits for kernels, which wait for others.
struct Windows {
	char *bytes[2];
	long long *ns;
	ncclWindow_t from, to;
};

void print_latency(int rank, const char *what, size_t size, std::vector<long long> ns)
{
	std::sort(ns.begin() + WARM, ns.end());
	const auto at = [&](double part) { return ns[WARM + size_t((ROUNDS - WARM - 1) * part)] / 1e3; };
	printf("rank %d: %s of %zu B with a signal until it is seen: p50 %.1f us, p99 %.1f us\n", rank, what,
	       size, at(.5), at(.99));
}

using exchange_kernel = void (*)(ncclDevComm, ncclWindow_t, ncclWindow_t, size_t, uint64_t, long long *);

void measure_latency(ncclDevComm comm, const Windows &w, int rank, const char *what, exchange_kernel kernel,
		     int threads)
{
	long long *ns = w.ns;
	uint64_t before = 0; // not read by the kernel: the peer may be ahead
	kernel<<<1, threads>>>(comm, w.from, w.to, SIZES[0], before, ns); // untimed
	for (size_t size : SIZES) {
		kernel<<<1, threads>>>(comm, w.from, w.to, size, before += ROUNDS, ns);
		CUDACHECK(cudaDeviceSynchronize());
		print_latency(rank, what, size, {ns, ns + ROUNDS});
	}
}

using scatter_kernel = void (*)(ncclDevComm, ncclWindow_t, ncclWindow_t, size_t);

void measure_rate(ncclDevComm comm, const Windows &w, int rank, const char *what, scatter_kernel kernel,
		  int threads)
{
	for (size_t size : SIZES) {
		kernel<<<BLOCKS, threads>>>(comm, w.from, w.to, size); // untimed
		CUDACHECK(cudaDeviceSynchronize());
		const auto start = std::chrono::steady_clock::now();
		kernel<<<BLOCKS, threads>>>(comm, w.from, w.to, size);
		CUDACHECK(cudaDeviceSynchronize());
		const std::chrono::duration<double> s = std::chrono::steady_clock::now() - start;
		printf("rank %d: scattered %ss of %zu B by %d x %d threads, %d contexts: %.3f M/s\n", rank, what,
		       size, BLOCKS, threads, comm.ginContextCount, PUTS / s.count() / 1e6);
	}
}

void measure(ncclDevComm comm, const Windows &w, int rank)
{
	const char *part = getenv("PART");
	const auto wanted = [=](const char *name) { return !part || !strcmp(part, name); };
	if (wanted("latency"))
		measure_latency(comm, w, rank, "put", exchange, 1);
	// First: later puts overwrite its signal.
	if (wanted("lsa") && comm.lsaSize == comm.nRanks) {
		measure_latency(comm, w, rank, "LSA store by one warp", exchange_lsa, 32);
		for (int threads : THREADS)
			measure_rate(comm, w, rank, "LSA store", scatter_lsa, threads);
	}
	for (int threads : THREADS)
		if (wanted("rate"))
			measure_rate(comm, w, rank, "put", scatter, threads);
	// So that the whole window was put.
	scatter<<<BLOCKS, THREADS[0]>>>(comm, w.from, w.to, SIZES[2]);
	CUDACHECK(cudaDeviceSynchronize());
}

void *example(int rank, int ranks, int device, int)
{
	ncclUniqueId id;
	ncclComm_t comm;
	ncclDevComm dev;
	Windows w;
	if (!rank)
		NCCLCHECK(ncclGetUniqueId(&id));
	util_broadcast(0, rank, &id);
	CUDACHECK(cudaSetDevice(device));
	NCCLCHECK(ncclCommInitRank(&comm, ranks, id, rank));
	for (char *&bytes : w.bytes)
		NCCLCHECK(ncclMemAlloc(reinterpret_cast<void **>(&bytes), WINDOW));
	NCCLCHECK(ncclCommWindowRegister(comm, w.bytes[0], WINDOW, &w.from, NCCL_WIN_COLL_SYMMETRIC));
	NCCLCHECK(ncclCommWindowRegister(comm, w.bytes[1], WINDOW, &w.to, NCCL_WIN_COLL_SYMMETRIC));
	CUDACHECK(cudaMallocHost(&w.ns, ROUNDS * sizeof *w.ns));
	CUDACHECK(cudaMemset(w.bytes[0], rank + 1, WINDOW));
	CUDACHECK(cudaMemset(w.bytes[1], 0, WINDOW));
	CUDACHECK(cudaDeviceSynchronize());
	ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
	needs.ginSignalCount = 1;
	needs.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
	NCCLCHECK(ncclDevCommCreate(comm, &needs, &dev));
	util_broadcast(0, rank, &id); // from here on, kernels wait for the peer's
	measure(dev, w, rank);
	util_broadcast(0, rank, &id); // until the peer has flushed its puts
	std::vector<char> got(WINDOW);
	CUDACHECK(cudaMemcpy(got.data(), w.bytes[1], WINDOW, cudaMemcpyDeviceToHost));
	const char expected = static_cast<char>((rank + ranks - 1) % ranks + 1);
	printf("rank %d: %s\n", rank,
	       std::all_of(got.begin(), got.end(), [=](char c) { return c == expected; }) ? "PASSED" : "FAILED");
	NCCLCHECK(ncclDevCommDestroy(comm, &dev));
	NCCLCHECK(ncclCommWindowDeregister(comm, w.from));
	NCCLCHECK(ncclCommWindowDeregister(comm, w.to));
	for (char *bytes : w.bytes)
		NCCLCHECK(ncclMemFree(bytes));
	CUDACHECK(cudaFreeHost(w.ns));
	NCCLCHECK(ncclCommFinalize(comm));
	NCCLCHECK(ncclCommDestroy(comm));
	return nullptr;
}

} // namespace

int main(int argc, char **argv)
{
	setvbuf(stdout, nullptr, _IOLBF, 0); // what was measured before a time limit is shown
	return run_example(argc, argv, example);
}
