// SPDX-License-Identifier: Apache-2.0
// A thousand rounds in which each rank puts two words to each rank, each with a signal, and each kernel checks
// the words that it got. One word is a value, whose signal is in a window: NCCL posts that as two requests.
// With KILL=1 the last rank, a process, is killed in mid-run: the others must then learn of an error from NCCL.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "nccl_device.h"
#include "utils.h"

namespace {

constexpr int ROUNDS = 1000, A_KERNEL = 100, RANKS_MAX = 32;
constexpr size_t WINDOW = 1 << 21, VALUES = WINDOW / 2, SIGNAL = WINDOW - 8; // bytes
constexpr int64_t LOSS_NS = 2000000000;

int64_t now_ns()
{
	return std::chrono::steady_clock::now().time_since_epoch().count();
}

// Shared with the ranks, which are forked later.
std::atomic<int64_t> *killed_ns = static_cast<std::atomic<int64_t> *>(
	mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));

__host__ __device__ uint64_t word_of(int round, int from, int to)
{
	return (uint64_t(round) * RANKS_MAX + from) * RANKS_MAX + to + 1;
}

// Two rounds have places of their own: a rank is at most one round ahead of another.
__global__ void exchange(ncclDevComm comm, ncclWindow_t from_window, ncclWindow_t to_window, uint64_t *from,
			 const volatile uint64_t *to, int first, unsigned *wrong)
{
	ncclGin gin{comm, 0};
	const int peer = threadIdx.x;
	for (int round = first; round < first + A_KERNEL; round++) {
		const size_t half = size_t(round % 2) * RANKS_MAX;
		from[half + peer] = word_of(round, comm.rank, peer);
		__threadfence_system();
		gin.putValue(ncclTeamWorld(comm), peer, to_window, VALUES + (half + comm.rank) * 8,
			     word_of(round, comm.rank, peer), ncclGin_WeakVASignalAdd{to_window, SIGNAL, 1});
		gin.put(ncclTeamWorld(comm), peer, to_window, (half + comm.rank) * 8, from_window,
			(half + peer) * 8, 8, ncclGin_WeakSignalInc{0});
		while (to[SIGNAL / 8] < uint64_t(round + 1) * comm.nRanks)
			;
		__threadfence_system();
		if (to[VALUES / 8 + half + peer] != word_of(round, peer, comm.rank))
			atomicAdd(wrong, 1);
		gin.waitSignal(ncclCoopCta(), 0, uint64_t(round + 1) * comm.nRanks);
		if (to[half + peer] != word_of(round, peer, comm.rank))
			atomicAdd(wrong, 1);
		__syncthreads();
	}
	gin.flush(ncclCoopCta());
}

// Waits for the stream, or for NCCL's error. Returns whether there was one.
bool wait_for(cudaStream_t stream, ncclComm_t comm)
{
	ncclResult_t error = ncclSuccess;
	while (cudaStreamQuery(stream) == cudaErrorNotReady) {
		NCCLCHECK(ncclCommGetAsyncError(comm, &error));
		if (error != ncclSuccess && error != ncclInProgress)
			return true;
		std::this_thread::yield();
	}
	CUDACHECK(cudaStreamSynchronize(stream));
	return false;
}

// The kernel that waits for the lost rank ends with this process.
[[noreturn]] void report_loss(int rank)
{
	const int64_t ns = killed_ns->load() ? now_ns() - killed_ns->load() : -1;
	const bool passed = ns >= 0 && ns < LOSS_NS;
	printf("rank %d: %s, NCCL's error came after %.1f ms\n", rank, passed ? "PASSED" : "FAILED", ns / 1e6);
	fflush(stdout);
	_exit(passed ? 0 : 1);
}

void run_rounds(ncclDevComm dev, ncclComm_t comm, ncclWindow_t windows[2], uint64_t *bytes[2], cudaStream_t stream,
		unsigned *wrong, int rank, int ranks)
{
	const bool kills = getenv("KILL") && rank == ranks - 1;
	for (int round = 0; round < ROUNDS; round += A_KERNEL) {
		if (kills && round == ROUNDS / 2) {
			*killed_ns = now_ns();
			raise(SIGKILL);
		}
		exchange<<<1, ranks, 0, stream>>>(dev, windows[0], windows[1], bytes[0], bytes[1], round, wrong);
		if (wait_for(stream, comm))
			report_loss(rank);
	}
	printf("rank %d: %d rounds, %u words were wrong: %s\n", rank, ROUNDS, *wrong, *wrong ? "FAILED" : "PASSED");
}

void *example(int rank, int ranks, int device, int)
{
	ncclUniqueId id;
	ncclComm_t comm;
	ncclDevComm dev;
	uint64_t *bytes[2];
	ncclWindow_t windows[2];
	if (!rank)
		NCCLCHECK(ncclGetUniqueId(&id));
	util_broadcast(0, rank, &id);
	CUDACHECK(cudaSetDevice(device));
	NCCLCHECK(ncclCommInitRank(&comm, ranks, id, rank));
	for (int i = 0; i < 2; i++) {
		NCCLCHECK(ncclMemAlloc(reinterpret_cast<void **>(&bytes[i]), WINDOW));
		CUDACHECK(cudaMemset(bytes[i], 0, WINDOW));
		NCCLCHECK(ncclCommWindowRegister(comm, bytes[i], WINDOW, &windows[i], NCCL_WIN_COLL_SYMMETRIC));
	}
	ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
	needs.ginSignalCount = 1;
	needs.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
	NCCLCHECK(ncclDevCommCreate(comm, &needs, &dev));
	cudaStream_t stream;
	unsigned *wrong;
	CUDACHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CUDACHECK(cudaHostAlloc(&wrong, sizeof *wrong, cudaHostAllocMapped));
	*wrong = 0;
	CUDACHECK(cudaDeviceSynchronize()); // the window is zero before any rank puts
	util_broadcast(0, rank, &id);
	run_rounds(dev, comm, windows, bytes, stream, wrong, rank, ranks);
	// Until all ranks have ended their rounds: freeing waits for the kernels of ranks in other threads, and
	// stops the driver's calls that they wait for.
	util_broadcast(0, rank, &id);
	CUDACHECK(cudaFreeHost(wrong));
	CUDACHECK(cudaStreamDestroy(stream));
	NCCLCHECK(ncclDevCommDestroy(comm, &dev));
	for (int i = 0; i < 2; i++) {
		NCCLCHECK(ncclCommWindowDeregister(comm, windows[i]));
		NCCLCHECK(ncclMemFree(bytes[i]));
	}
	NCCLCHECK(ncclCommFinalize(comm));
	NCCLCHECK(ncclCommDestroy(comm));
	return nullptr;
}

} // namespace

int main(int argc, char **argv)
{
	setvbuf(stdout, nullptr, _IOLBF, 0);
	return run_example(argc, argv, example);
}
