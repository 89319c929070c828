// SPDX-License-Identifier: Apache-2.0
/*
 * Measures how many frames of 64 bytes a second one send queue sends, with a thread in place of the GPU,
 * beside a bare loop of write() to a file descriptor of the same kind, in turn:
 *
 *	unshare --map-root-user --net bench_eth tap:dg0 [FRAMES]
 *	unshare --map-root-user --net bench_eth lo [FRAMES]
 *
 * With `receive` it is how many a receive queue takes in a second, with a rule, beside a bare loop of read(),
 * while a thread sends as many as it can to the other end of the wire:
 *
 *	unshare --map-root-user --net bench_eth receive tap:dg0
 *	unshare --map-root-user --net sh -c "ip link add va type veth peer name vb; ip link set va up;
 *		ip link set vb up; bench_eth receive va vb"
 *
 * The queue needs two cores at once, the loop one: on a busy machine run it with a high priority
 * (`nice -n -18`). Not a test: it prints.
 */
#include "verbs_check.h"

#include <doca_eth_rxq.h>
#include <doca_eth_txq.h>
#include <doca_eth_txq_gpu_data_path.h>
#include <doca_flow.h>
#include <doca_gpunetio_eth_dev.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { SIZE = 64, EVERY = 32, ROUNDS = 7, MEMORY = 4096, PLACES = 8192 };

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

/* ---- receiving ---- */

static void fill(uint8_t *frame)
{
	memset(frame, 0xff, 12);
	frame[12] = 0x88; /* the protocol that IEEE 802 reserves for experiments */
	frame[13] = 0xb5;
}

static int packet_socket(const char *interface, int protocol)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET,
				 .sll_protocol = htons((uint16_t)protocol),
				 .sll_ifindex = (int)if_nametoindex(interface)};
	const int fd = socket(AF_PACKET, SOCK_RAW, 0);

	CHECK_EQ(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

struct flood {
	int fd;
	atomic_bool stop;
};

static void *send_many(void *flood)
{
	struct flood *f = flood;
	static uint8_t frame[SIZE];
	struct iovec part = {frame, SIZE};
	struct mmsghdr messages[EVERY];

	fill(frame);
	for (int i = 0; i < EVERY; i++)
		messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
	while (!atomic_load(&f->stop))
		sendmmsg(f->fd, messages, EVERY, 0);
	return NULL;
}

/* Returns what `count` returns for a second, while a thread sends to an interface. */
static double while_flooded(const char *interface, uint64_t (*count)(void *with, double end), void *with)
{
	struct flood f = {.fd = packet_socket(interface, 0)};
	pthread_t thread;

	pthread_create(&thread, NULL, send_many, &f);
	const double start = now_s();
	const uint64_t n = count(with, start + 1);
	const double seconds = now_s() - start;

	atomic_store(&f.stop, true);
	pthread_join(thread, NULL);
	close(f.fd);
	return (double)n / seconds;
}

static uint64_t by_reads(void *fd, double end)
{
	uint8_t frame[2048];
	uint64_t n = 0;

	while (n % EVERY || now_s() < end)
		n += read(*(int *)fd, frame, sizeof(frame)) > 0;
	return n;
}

static uint64_t by_receives(void *rxq, double end)
{
	struct doca_gpu_dev_eth_rxq_words *w = ((struct doca_gpu_eth_rxq *)rxq)->words;
	const uint64_t first = w->released;

	while (now_s() < end) {
		usleep(100);
		__atomic_store_n(&w->released, __atomic_load_n(&w->producer, __ATOMIC_ACQUIRE),
				 __ATOMIC_RELEASE);
	}
	return w->released - first;
}

static void steer(struct doca_dev *dev)
{
	const struct doca_flow_match match = {.outer.eth.type = htons(0x88b5)};
	struct doca_flow_cfg *cfg;
	struct doca_flow_port_cfg *port_cfg;
	struct doca_flow_pipe_cfg *pipe_cfg;
	struct doca_flow_port *port;
	struct doca_flow_pipe *root;
	struct doca_flow_pipe_entry *entry;
	uint16_t queue = 0;
	struct doca_flow_fwd fwd = {.type = DOCA_FLOW_FWD_RSS,
				    .rss = {.queues_array = &queue, .nr_queues = 1}};

	OK(doca_flow_cfg_create(&cfg));
	OK(doca_flow_init(cfg));
	OK(doca_flow_port_cfg_create(&port_cfg));
	OK(doca_flow_port_cfg_set_dev(port_cfg, dev));
	OK(doca_flow_port_start(port_cfg, &port));
	OK(doca_flow_pipe_cfg_create(&pipe_cfg, port));
	OK(doca_flow_pipe_cfg_set_is_root(pipe_cfg, true));
	OK(doca_flow_pipe_cfg_set_match(pipe_cfg, &match, NULL));
	OK(doca_flow_pipe_create(pipe_cfg, &fwd, NULL, &root));
	OK(doca_flow_pipe_basic_add_entry(0, root, &match, 0, NULL, NULL, NULL, 0, NULL, &entry));
}

static struct doca_gpu_eth_rxq *open_rxq(void)
{
	struct doca_gpu *gpu;
	struct doca_mmap *map;
	struct doca_eth_rxq *rxq;
	struct doca_gpu_eth_rxq *device;
	struct doca_dev *dev = a_dev();

	OK(doca_gpu_create("41:00.0", &gpu));
	void *memory = gpu_alloc(gpu, PLACES * 2048, DOCA_GPU_MEM_TYPE_GPU);
	OK(doca_mmap_create(&map));
	OK(doca_mmap_add_dev(map, dev));
	OK(doca_mmap_set_memrange(map, memory, PLACES * 2048));
	OK(doca_mmap_start(map));
	OK(doca_eth_rxq_create(dev, PLACES, 2048, &rxq));
	OK(doca_eth_rxq_set_pkt_buf(rxq, map, 0, PLACES * 2048));
	OK(doca_ctx_set_datapath_on_gpu(doca_eth_rxq_as_doca_ctx(rxq), gpu));
	OK(doca_ctx_start(doca_eth_rxq_as_doca_ctx(rxq)));
	OK(doca_eth_rxq_apply_queue_id(rxq, 0));
	OK(doca_eth_rxq_get_gpu_handle(rxq, &device));
	steer(dev);
	return device;
}

static int open_loop(const char *net);

/* The bare loop has a TAP device of its own, or another socket of the same interface. */
static void receive_rounds(const char *net, const char *peer)
{
	const bool is_tap = !strncmp(net, "tap:", 4);
	struct doca_gpu_eth_rxq *rxq = open_rxq();

	for (int i = 0; i < ROUNDS; i++) {
		int fd = is_tap ? open_loop(net) : packet_socket(net, ETH_P_ALL);
		const double loop = while_flooded(is_tap ? "bare0" : peer, by_reads, &fd);

		close(fd);
		const double queue = while_flooded(is_tap ? net + 4 : peer, by_receives, rxq);

		printf("read loop %.0f frames/s, receive queue %.0f frames/s: %.2f of it\n", loop, queue,
		       queue / loop);
	}
}

/* ---- sending ---- */

static void open_queue(struct bench *b)
{
	struct doca_gpu *gpu;
	struct doca_mmap *map;
	struct doca_eth_txq *txq;
	struct doca_dev *dev = a_dev();

	OK(doca_gpu_create("41:00.0", &gpu));
	b->frame = (uint8_t *)gpu_alloc(gpu, MEMORY, DOCA_GPU_MEM_TYPE_GPU);
	fill(b->frame);
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
	const bool receive = argc > 2 && !strcmp(argv[1], "receive");
	struct bench b = {0};

	if (argc < 2)
		return fprintf(stderr, "usage: bench_eth [receive] tap:NAME|NAME [FRAMES|PEER]\n"), 2;
	setenv("SOFTDOCA_NET", argv[1 + receive], 1);
	no_gpu();
	if (receive)
		return receive_rounds(argv[2], argv[3]), 0;
	open_queue(&b);
	b.fd = open_loop(argv[1]);
	for (int i = 0; i < ROUNDS; i++) {
		const double loop = by_loop(&b, frames), queue = by_queue(&b, frames);

		printf("loop %.0f frames/s, queue %.0f frames/s: %.2f of it\n", loop, queue,
		       queue / loop);
	}
	return 0;
}
