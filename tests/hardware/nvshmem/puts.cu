// SPDX-License-Identifier: Apache-2.0
// Puts with signals and gets of NVSHMEM's kernels between two processes, each word compared; for the software
// adapter. NVSHMEM: the folder of the package nvidia-nvshmem-cu13.
//
//	nvcc -std=c++17 -rdc=true -arch=native -I$NVSHMEM/include puts.cu -o puts -L$NVSHMEM/lib \
//		-l:libnvshmem_host.so.3 -lnvshmem_device -lcuda -Xlinker -rpath=$NVSHMEM/lib
//	export NVSHMEM_BOOTSTRAP=UID NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME=lo NVSHMEM_REMOTE_TRANSPORT=ibrc
//	export NVSHMEM_HCA_LIST=mlx5_0:1 NVSHMEM_IB_GID_INDEX=0 NVSHMEM_DISABLE_P2P=1 NVSHMEM_DISABLE_NVLS=1
//	dgkit mlx5 run -- ./puts 0 0 /tmp/uid &    # rank, GPU, a file that does not exist yet
//	dgkit mlx5 run -- ./puts 1 1 /tmp/uid
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>
#include <vector>

#include <nvshmem.h>
#include <nvshmemx.h>

__global__ void put(int *to, const int *from, size_t n, int peer, uint64_t *flag, int round)
{
	nvshmem_int_put(to, from, n, peer);
	nvshmem_fence();
	nvshmemx_signal_op(flag, round, NVSHMEM_SIGNAL_SET, peer);
	nvshmem_signal_wait_until(flag, NVSHMEM_CMP_GE, round);
}

__global__ void get(int *to, const int *from, size_t n, int peer)
{
	nvshmem_int_get(to, from, n, peer);
}

static int word_of(size_t i, int pe, size_t n)
{
	return static_cast<int>(i * 3 + pe * 1000 + n);
}

// Whether the first n words are the peer's.
static bool check(const char *what, const int *at, int peer, size_t n)
{
	std::vector<int> seen(n);
	size_t wrong = 0;
	cudaMemcpy(seen.data(), at, n * sizeof(int), cudaMemcpyDefault);
	for (size_t i = 0; i < n; i++)
		wrong += seen[i] != word_of(i, peer, n);
	printf("pe %d: %s of %zu words, %zu wrong\n", 1 - peer, what, n, wrong);
	fflush(stdout);
	return !wrong;
}

static void start(int rank, const std::string &path)
{
	nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
	nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
	const std::string draft = path + ".new";
	if (rank == 0) {
		nvshmemx_get_uniqueid(&id);
		FILE *f = fopen(draft.c_str(), "wb");
		fwrite(&id, sizeof id, 1, f);
		fclose(f);
		rename(draft.c_str(), path.c_str());
	} else {
		while (access(path.c_str(), F_OK))
			usleep(10000);
		FILE *f = fopen(path.c_str(), "rb");
		if (fread(&id, sizeof id, 1, f) != 1)
			exit(1);
		fclose(f);
	}
	nvshmemx_set_attr_uniqueid_args(rank, 2, &id, &attr);
	if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr))
		exit(1);
}

int main(int argc, char **argv)
{
	constexpr size_t MOST = 1 << 20;
	if (argc != 4)
		return 2;
	const int rank = atoi(argv[1]), peer = 1 - rank;
	cudaSetDevice(atoi(argv[2]));
	start(rank, argv[3]);
	auto *from = static_cast<int *>(nvshmem_malloc(MOST * sizeof(int)));
	auto *to = static_cast<int *>(nvshmem_malloc(MOST * sizeof(int)));
	auto *flag = static_cast<uint64_t *>(nvshmem_calloc(1, sizeof(uint64_t)));
	std::vector<int> words(MOST);
	int right = 0, total = 0, round = 0;
	for (size_t n : {size_t{1}, size_t{7}, size_t{1000}, size_t{65537}, MOST}) {
		for (size_t i = 0; i < n; i++)
			words[i] = word_of(i, rank, n);
		cudaMemcpy(from, words.data(), n * sizeof(int), cudaMemcpyDefault);
		cudaMemset(to, 0, MOST * sizeof(int));
		nvshmem_barrier_all();
		put<<<1, 1>>>(to, from, n, peer, flag, ++round);
		cudaDeviceSynchronize();
		nvshmem_barrier_all();
		right += check("put", to, peer, n);
		cudaMemset(to, 0, MOST * sizeof(int));
		nvshmem_barrier_all();
		get<<<1, 1>>>(to, from, n, peer);
		cudaDeviceSynchronize();
		right += check("get", to, peer, n);
		total += 2;
		nvshmem_barrier_all();
	}
	printf("pe %d: %d of %d right\n", rank, right, total);
	nvshmem_finalize();
	return right != total;
}
