// SPDX-License-Identifier: Apache-2.0
// Starts the ranks of NCCL's examples (run_example() and util_broadcast() of their utils.h) as $RANKS
// threads, or processes with RANKS_ARE=processes, on however many GPUs there are. With KILL=1 one may be killed.
#include <sys/mman.h>
#include <sys/wait.h>

#include <thread>
#include <vector>

#include "utils.h"

namespace {

struct Shared {
	pthread_barrier_t barrier;
	ncclUniqueId id;
};
Shared *shared;

void run_rank(void *(*example)(int, int, int, int), int rank, int ranks)
{
	int gpus = 0;
	CUDACHECK(cudaGetDeviceCount(&gpus));
	example(rank, ranks, rank % gpus, 1);
	fflush(stdout);
}

bool run_processes(void *(*example)(int, int, int, int), int ranks)
{
	bool ended_well = true;
	for (int i = 0; i < ranks; i++) {
		if (fork())
			continue;
		run_rank(example, i, ranks);
		_exit(0);
	}
	for (int i = 0, status; i < ranks; i++)
		ended_well &= wait(&status) > 0 && (!status || (getenv("KILL") && WIFSIGNALED(status)));
	return ended_well;
}

} // namespace

int util_broadcast(int root, int rank, ncclUniqueId *id)
{
	if (rank == root)
		shared->id = *id;
	pthread_barrier_wait(&shared->barrier);
	*id = shared->id;
	return 0;
}

int run_example(int, char **, void *(*example)(int, int, int, int))
{
	const char *count = getenv("RANKS"), *kind = getenv("RANKS_ARE");
	const int ranks = count ? atoi(count) : 1;
	void *at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ranks < 1 || at == MAP_FAILED)
		return 2;
	shared = static_cast<Shared *>(at);
	pthread_barrierattr_t across_processes;
	pthread_barrierattr_init(&across_processes);
	pthread_barrierattr_setpshared(&across_processes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->barrier, &across_processes, static_cast<unsigned>(ranks));
	if (kind && kind[0] == 'p')
		return run_processes(example, ranks) ? 0 : 1;
	std::vector<std::thread> threads;
	for (int i = 0; i < ranks; i++)
		threads.emplace_back(run_rank, example, i, ranks);
	for (std::thread &thread : threads)
		thread.join();
	return 0;
}
