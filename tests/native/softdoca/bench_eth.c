// SPDX-License-Identifier: Apache-2.0
/*
 * Measures how many frames of 64 bytes a second one send queue sends, with a thread in place of the GPU,
 * beside a bare loop of write() to a file descriptor of the same kind, in turn:
 *
 *	unshare --map-root-user --net bench_eth tap:dg0 [FRAMES]
 *	unshare --map-root-user --net bench_eth lo [FRAMES]
 *
 * The queue needs two cores at once, the loop one: on a busy machine run it with a high priority
 * (`nice -n -18`). Not a test: it prints.
 */
#include "verbs_check.h"

#include <doca_eth_txq.h>
#include <doca_eth_txq_gpu_data_path.h>
#include <doca_gpunetio_eth_dev.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { SIZE = 64, EVERY = 32, ROUNDS = 7, MEMORY = 4096 };

struct bench {
	struct doca_gpu_eth_txq *queue;
	uint64_t posted;
	uint8_t *frame;
	uint32_t key;
	int fd; /* of the bare loop */
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t done(const struct bench *b)
{
	return __atomic_load_n(&b->queue->words->done, __ATOMIC_ACQUIRE);
}

/* Submits each frame by itself; every 32nd has a completion. */
static double by_queue(struct bench *b, uint64_t frames)
{
	const uint64_t end = b->posted + frames, mask = b->queue->entries - 1;
	const double start = now_s();

	while (b->posted < end) {
		while (b->posted - done(b) > mask)
			continue;
		b->queue->ring[b->posted & mask] = (struct doca_gpu_dev_eth_txq_wqe){
			.addr = (uint64_t)(uintptr_t)b->frame,
			.key = __builtin_bswap32(b->key),
			.size = SIZE,
			.index = (uint32_t)b->posted,
			.flags = b->posted % EVERY == EVERY - 1 ? DOCA_GPUNETIO_ETH_SEND_FLAG_NOTIFY : 0,
		};
		__atomic_store_n(&b->queue->words->producer, ++b->posted, __ATOMIC_RELEASE);
	}
	while (done(b) < end)
		continue;
	return (double)frames / (now_s() - start);
}

static double by_loop(const struct bench *b, uint64_t frames)
{
	const double start = now_s();

	for (uint64_t i = 0; i < frames; i++)
		CHECK_EQ(write(b->fd, b->frame, SIZE), SIZE);
	return (double)frames / (now_s() - start);
}

static void open_queue(struct bench *b)
{
	struct doca_gpu *gpu;
	struct doca_mmap *map;
	struct doca_eth_txq *txq;
	struct doca_dev *dev = a_dev();

	OK(doca_gpu_create("41:00.0", &gpu));
	b->frame = (uint8_t *)gpu_alloc(gpu, MEMORY, DOCA_GPU_MEM_TYPE_GPU);
	memset(b->frame, 0xff, 12);
	b->frame[12] = 0x88; /* the protocol that IEEE 802 reserves for experiments */
	b->frame[13] = 0xb5;
	OK(doca_mmap_create(&map));
	OK(doca_mmap_add_dev(map, dev));
	OK(doca_mmap_set_memrange(map, b->frame, MEMORY));
	OK(doca_mmap_start(map));
	OK(doca_mmap_get_mkey(map, dev, &b->key));
	OK(doca_eth_txq_create(dev, 1, &txq));
	OK(doca_ctx_set_datapath_on_gpu(doca_eth_txq_as_doca_ctx(txq), gpu));
	OK(doca_ctx_start(doca_eth_txq_as_doca_ctx(txq)));
	OK(doca_eth_txq_get_gpu_handle(txq, &b->queue));
}

/* Opens another TAP device, since each has one reader; or another socket of the interface. */
static int open_loop(const char *net)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(net)};
	struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI, .ifr_name = "bare0"};
	const int s = socket(AF_PACKET, SOCK_RAW, 0);

	if (strncmp(net, "tap:", 4)) {
		CHECK_EQ(bind(s, (struct sockaddr *)&at, sizeof(at)), 0);
		return s;
	}
	const int fd = open("/dev/net/tun", O_RDWR);

	CHECK_EQ(ioctl(fd, TUNSETIFF, &r), 0);
	r.ifr_flags = IFF_UP;
	CHECK_EQ(ioctl(s, SIOCSIFFLAGS, &r), 0);
	close(s);
	return fd;
}

int main(int argc, char **argv)
{
	const uint64_t frames = argc > 2 ? strtoull(argv[2], NULL, 10) : 400000;
	struct bench b = {0};

	if (argc < 2)
		return fprintf(stderr, "usage: bench_eth tap:NAME|NAME [FRAMES]\n"), 2;
	setenv("SOFTDOCA_NET", argv[1], 1);
	no_gpu();
	open_queue(&b);
	b.fd = open_loop(argv[1]);
	for (int i = 0; i < ROUNDS; i++) {
		const double loop = by_loop(&b, frames), queue = by_queue(&b, frames);

		printf("loop %.0f frames/s, queue %.0f frames/s: %.2f of it\n", loop, queue,
		       queue / loop);
	}
	return 0;
}
