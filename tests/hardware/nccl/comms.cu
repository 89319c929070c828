// SPDX-License-Identifier: Apache-2.0
// Several communicators: the world, parts of it, and the world again, at the same time. In each, every rank
// puts to every rank pieces of odd sizes at odd places, with each kind of signal, and gets them back. In the end
// a communicator with puts in flight is aborted, and another one goes on.
#include <chrono>

#include "nccl_device.h"
#include "utils.h"

namespace {

constexpr int PARTS = 2;
constexpr size_t PLACE = 40000, LEAD = 3; // bytes for a piece; of a place before it. Of at most 26 ranks
constexpr size_t WINDOW = 2 << 20, WORD = WINDOW - 8; // the signal in the window
constexpr size_t SIZES[] = {1, 7, 13, 255, 4097, 33333};
constexpr int LEFT = 40; // puts; fewer than a ring of NCCL's has places
constexpr double ABORT_S = 5;

struct World {
	ncclComm_t comm;
	ncclDevComm dev;
	char *bytes[3]; // put from, put to, got
	ncclWindow_t windows[3];
	cudaStream_t stream;
	unsigned *wrong;
};

__device__ char byte_of(int from, int to, size_t size, size_t i)
{
	return static_cast<char>(1 + (from * 31 + to * 7 + size + i) % 127);
}

// A thread for each peer; `round` counts the sizes.
__global__ void exchange(ncclDevComm comm, ncclWindow_t from_w, ncclWindow_t to_w, ncclWindow_t got_w, char *from,
			 volatile char *to, volatile char *got, size_t size, uint64_t round, unsigned *wrong)
{
	ncclGin gin{comm, 0};
	const auto world = ncclTeamWorld(comm);
	const int peer = threadIdx.x, own = comm.rank;
	const size_t mine = own * PLACE + LEAD, theirs = peer * PLACE + LEAD;
	for (size_t i = 0; i < size; i++)
		from[theirs + i] = byte_of(own, peer, size, i);
	__threadfence_system();
	gin.put(world, peer, to_w, mine, from_w, theirs, size, ncclGin_StrongSignalAdd{0, 3});
	gin.putValue(world, peer, to_w, WINDOW / 2 + own * 8, round << 32 | own, ncclGin_WeakVASignalAdd{to_w, WORD, 5});
	gin.waitSignal(ncclCoopCta(), 0, round * 3 * comm.nRanks);
	const auto word = reinterpret_cast<volatile uint64_t *>(to + WORD);
	while (*word < round * 5 * comm.nRanks)
		;
	__threadfence_system();
	gin.get(world, peer, to_w, mine, got_w, theirs, size);
	gin.flush(ncclCoopCta());
	__threadfence_system();
	unsigned bad = reinterpret_cast<volatile uint64_t *>(to + WINDOW / 2)[peer] != (round << 32 | peer);
	bad += to[theirs - 1] || to[theirs + size];
	for (size_t i = 0; i < size; i++) {
		bad += to[theirs + i] != byte_of(peer, own, size, i);
		bad += got[theirs + i] != byte_of(own, peer, size, i);
	}
	if (bad)
		atomicAdd_system(wrong, bad);
}

// A thread for each peer leaves puts in flight.
__global__ void leave(ncclDevComm comm, ncclWindow_t from, ncclWindow_t to)
{
	ncclGin gin{comm, 0};
	for (int i = 0; i < LEFT; i++)
		gin.put(ncclTeamWorld(comm), threadIdx.x, to, 0, from, 0, PLACE);
}

World open_world(ncclComm_t comm)
{
	World w{};
	w.comm = comm;
	for (int i = 0; i < 3; i++) {
		NCCLCHECK(ncclMemAlloc(reinterpret_cast<void **>(&w.bytes[i]), WINDOW));
		CUDACHECK(cudaMemset(w.bytes[i], 0, WINDOW));
		NCCLCHECK(ncclCommWindowRegister(comm, w.bytes[i], WINDOW, &w.windows[i], NCCL_WIN_COLL_SYMMETRIC));
	}
	ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
	needs.ginSignalCount = 1;
	needs.ginConnectionType = NCCL_GIN_CONNECTION_FULL;
	NCCLCHECK(ncclDevCommCreate(comm, &needs, &w.dev));
	CUDACHECK(cudaStreamCreateWithFlags(&w.stream, cudaStreamNonBlocking));
	CUDACHECK(cudaHostAlloc(&w.wrong, sizeof *w.wrong, cudaHostAllocMapped));
	*w.wrong = 0;
	CUDACHECK(cudaDeviceSynchronize());
	return w;
}

void close_world(World &w)
{
	NCCLCHECK(ncclDevCommDestroy(w.comm, &w.dev));
	for (int i = 0; i < 3; i++) {
		NCCLCHECK(ncclCommWindowDeregister(w.comm, w.windows[i]));
		NCCLCHECK(ncclMemFree(w.bytes[i]));
	}
	NCCLCHECK(ncclCommFinalize(w.comm));
	NCCLCHECK(ncclCommDestroy(w.comm));
}

void launch(const World &w, size_t size, uint64_t round)
{
	exchange<<<1, w.dev.nRanks, 0, w.stream>>>(w.dev, w.windows[0], w.windows[1], w.windows[2], w.bytes[0],
						   w.bytes[1], w.bytes[2], size, round, w.wrong);
}

// Returns the seconds that an abort took.
double abort_world(World &w)
{
	leave<<<1, w.dev.nRanks, 0, w.stream>>>(w.dev, w.windows[0], w.windows[1]);
	CUDACHECK(cudaStreamSynchronize(w.stream));
	const auto start = std::chrono::steady_clock::now();
	NCCLCHECK(ncclCommAbort(w.comm));
	return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void *example(int rank, int ranks, int device, int)
{
	ncclComm_t comms[3];
	ncclUniqueId id;
	CUDACHECK(cudaSetDevice(device));
	for (int i : {0, 2}) {
		if (!rank)
			NCCLCHECK(ncclGetUniqueId(&id));
		util_broadcast(0, rank, &id);
		NCCLCHECK(ncclCommInitRank(&comms[i], ranks, id, rank));
	}
	NCCLCHECK(ncclCommSplit(comms[0], rank % PARTS, rank, &comms[1], nullptr));
	World worlds[3];
	for (int i = 0; i < 3; i++)
		worlds[i] = open_world(comms[i]);
	util_broadcast(0, rank, &id); // from here on, kernels wait for the peers'
	uint64_t round = 0;
	for (size_t size : SIZES) {
		round++;
		for (const World &w : worlds)
			launch(w, size, round);
		for (const World &w : worlds)
			CUDACHECK(cudaStreamSynchronize(w.stream));
		util_broadcast(0, rank, &id);
	}
	const unsigned wrong = *worlds[0].wrong + *worlds[1].wrong + *worlds[2].wrong;
	printf("rank %d: 3 communicators, %u bytes were wrong: %s\n", rank, wrong, wrong ? "FAILED" : "PASSED");
	close_world(worlds[1]);
	const double s = abort_world(worlds[0]);
	printf("rank %d: the abort with puts in flight took %.1f ms: %s\n", rank, s * 1e3,
	       s < ABORT_S ? "PASSED" : "FAILED");
	util_broadcast(0, rank, &id);
	launch(worlds[2], SIZES[5], round + 1);
	CUDACHECK(cudaStreamSynchronize(worlds[2].stream));
	printf("rank %d: the other communicator after that: %s\n", rank, *worlds[2].wrong ? "FAILED" : "PASSED");
	util_broadcast(0, rank, &id);
	close_world(worlds[2]);
	return nullptr;
}

} // namespace

int main(int argc, char **argv)
{
	setvbuf(stdout, nullptr, _IOLBF, 0);
	return run_example(argc, argv, example);
}
