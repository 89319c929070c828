// SPDX-License-Identifier: Apache-2.0
/*
 * Ethernet queues. Each test has a network namespace of its own, in which softdoca has a TAP device;
 * the test has its other end, and does what a kernel would do with the queues. Where a test cannot have
 * a namespace or a TAP device, it checks what softdoca says of that.
 */
#define SOFTDOCA_DOCA 0 /* names of all releases */
#include "fork_check.h"
#include "verbs_check.h"

#include <errno.h>
#include <doca_eth_rxq.h>
#include <doca_eth_rxq_cpu_data_path.h>
#include <doca_eth_rxq_gpu_data_path.h>
#include <doca_eth_txq.h>
#include <doca_eth_txq_cpu_data_path.h>
#include <doca_eth_txq_gpu_data_path.h>
#include <doca_flow.h>
#include <doca_gpunetio_eth_dev.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define NAME	 "dg0"
#define LARGEST	 2048u
#define RECEIVES 8u
#define BYTES	 (LARGEST * 64)
#define NOTIFY	 DOCA_GPUNETIO_ETH_SEND_FLAG_NOTIFY

struct net {
	struct doca_gpu *gpu;
	struct doca_dev *dev;
	struct doca_mmap *map;
	uint8_t *memory; /* of received frames, then of frames to send */
	uint32_t key;
	struct doca_eth_rxq *rxq;
	struct doca_eth_txq *txq;
	struct doca_flow_port *port;
	struct doca_flow_pipe *root;
	struct doca_flow_pipe_entry *entry;
	struct doca_gpu_eth_rxq *in;
	struct doca_gpu_eth_txq *out;
	uint64_t posted;
	int peer; /* the machine's end of the wire */
};

struct gpu_memory *softdoca_gpu_take(const void *addr, size_t size);

/* ---- the namespace ---- */

/* Returns whether there is a network namespace, and a TAP device in it. */
static bool enter_namespace(void)
{
	struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	int fd;

	setenv("SOFTDOCA_NET", "tap:" NAME, 1);
	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return false;
	fd = open("/dev/net/tun", O_RDWR);
	const bool there = fd >= 0 && !ioctl(fd, TUNSETIFF, &r);
	close(fd);
	return there;
}

/* Where there is none, as in a container without privileges: the start of a queue says so. */
static void check_refusal(struct doca_gpu *gpu, struct doca_dev *dev)
{
	struct doca_eth_txq *txq;

	OK(doca_eth_txq_create(dev, 8, &txq));
	OK(doca_ctx_set_datapath_on_gpu(doca_eth_txq_as_doca_ctx(txq), gpu));
	const doca_error_t error = doca_ctx_start(doca_eth_txq_as_doca_ctx(txq));

	CHECK_EQ(error, access("/dev/net/tun", F_OK) ? DOCA_ERROR_NOT_FOUND
						      : DOCA_ERROR_NOT_PERMITTED);
	CHECK_SAYS(softdoca_last_refusal(), error == DOCA_ERROR_NOT_FOUND
						    ? "/dev/net/tun is missing: sudo modprobe tun"
						    : NAME ": not permitted without CAP_NET_ADMIN");
	OK(doca_eth_txq_destroy(txq));
}

static void open_peer(struct net *n, const char *name)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET,
				 .sll_protocol = htons(ETH_P_ALL),
				 .sll_ifindex = (int)if_nametoindex(name)};
	int on = 1;

	n->peer = socket(AF_PACKET, SOCK_RAW, 0);
	CHECK_EQ(setsockopt(n->peer, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)), 0);
	CHECK_EQ(bind(n->peer, (struct sockaddr *)&at, sizeof(at)), 0);
}

/* A frame of the protocol that IEEE 802 reserves for experiments. */
static void fill_frame(uint8_t *frame, size_t size, unsigned seed)
{
	for (size_t i = 0; i < size; i++)
		frame[i] = (uint8_t)(i * 7 + seed);
	memset(frame, 0xff, 6);
	frame[12] = 0x88;
	frame[13] = 0xb5;
}

static void peer_sends(struct net *n, const void *frame, size_t size)
{
	CHECK_EQ(send(n->peer, frame, size, 0), size);
}

/* Returns the size of the next frame of the queue, skipping the machine's own; 0 after 200 ms. */
static size_t peer_receives(struct net *n, uint8_t *frame)
{
	struct pollfd fd = {.fd = n->peer, .events = POLLIN};

	while (poll(&fd, 1, 200) > 0) {
		ssize_t size = recv(n->peer, frame, 65536, 0);

		if (size > 0)
			return (size_t)size;
	}
	return 0;
}

/* ---- queues ---- */

static void open_memory(struct net *n)
{
	OK(doca_gpu_create("41:00.0", &n->gpu));
	n->dev = a_dev();
	n->memory = (uint8_t *)gpu_alloc(n->gpu, BYTES, DOCA_GPU_MEM_TYPE_GPU);
	OK(doca_mmap_create(&n->map));
	OK(doca_mmap_add_dev(n->map, n->dev));
	OK(doca_mmap_set_memrange(n->map, n->memory, BYTES));
	OK(doca_mmap_start(n->map));
	OK(doca_mmap_get_mkey(n->map, n->dev, &n->key));
}

static void open_rxq(struct net *n)
{
	uint32_t size;

	OK(doca_eth_rxq_create(n->dev, RECEIVES, LARGEST, &n->rxq));
	OK(doca_eth_rxq_estimate_packet_buf_size(DOCA_ETH_RXQ_TYPE_CYCLIC, 0, 0, LARGEST, RECEIVES,
						 0, 0, 0, &size));
	CHECK_EQ(size, RECEIVES * LARGEST);
	OK(doca_eth_rxq_set_pkt_buf(n->rxq, n->map, 0, size));
	OK(doca_ctx_set_datapath_on_gpu(doca_eth_rxq_as_doca_ctx(n->rxq), n->gpu));
	OK(doca_ctx_start(doca_eth_rxq_as_doca_ctx(n->rxq)));
	OK(doca_eth_rxq_apply_queue_id(n->rxq, 3));
	OK(doca_eth_rxq_get_gpu_handle(n->rxq, &n->in));
}

static void open_txq(struct net *n)
{
	OK(doca_eth_txq_create(n->dev, 1, &n->txq));
	OK(doca_eth_txq_set_l3_chksum_offload(n->txq, 1));
	OK(doca_eth_txq_set_l4_chksum_offload(n->txq, 1));
	OK(doca_eth_txq_set_wait_on_time_offload(n->txq));
	OK(doca_ctx_set_datapath_on_gpu(doca_eth_txq_as_doca_ctx(n->txq), n->gpu));
	OK(doca_ctx_start(doca_eth_txq_as_doca_ctx(n->txq)));
	OK(doca_eth_txq_get_gpu_handle(n->txq, &n->out));
}

static void add_rule(struct net *n, const struct doca_flow_match *match, uint16_t queue)
{
	struct doca_flow_fwd fwd = {.type = DOCA_FLOW_FWD_RSS,
				    .rss = {.queues_array = &queue, .nr_queues = 1}};

	OK(doca_flow_pipe_control_add_entry(0, n->root, match, NULL, NULL, NULL, NULL, NULL, NULL,
					    0, &fwd, NULL, &n->entry));
}

static void open_flow(struct net *n)
{
	struct doca_flow_cfg *cfg;
	struct doca_flow_port_cfg *port;
	struct doca_flow_pipe_cfg *pipe;

	OK(doca_flow_cfg_create(&cfg));
	OK(doca_flow_cfg_set_pipe_queues(cfg, 1));
	OK(doca_flow_init(cfg));
	OK(doca_flow_cfg_destroy(cfg));
	OK(doca_flow_port_cfg_create(&port));
	OK(doca_flow_port_cfg_set_dev(port, n->dev));
	OK(doca_flow_port_start(port, &n->port));
	OK(doca_flow_port_cfg_destroy(port));
	OK(doca_flow_pipe_cfg_create(&pipe, n->port));
	OK(doca_flow_pipe_cfg_set_type(pipe, DOCA_FLOW_PIPE_CONTROL));
	OK(doca_flow_pipe_cfg_set_is_root(pipe, true));
	OK(doca_flow_pipe_create(pipe, NULL, NULL, &n->root));
	OK(doca_flow_pipe_cfg_destroy(pipe));
}

/* Only the experiments' frames are received: the machine sends others when the interface comes up. Ends
 * the test where there is no network. */
static void open_net(struct net *n)
{
	const struct doca_flow_match match = {.outer.eth.type = htons(0x88b5)};

	const bool there = enter_namespace();

	open_memory(n);
	if (!there) {
		check_refusal(n->gpu, n->dev);
		exit(0);
	}
	open_flow(n);
	open_rxq(n);
	open_txq(n);
	open_peer(n, NAME);
	add_rule(n, &match, 3);
}

static void net_close(struct net *n)
{
	OK(doca_flow_port_stop(n->port));
	doca_flow_destroy();
	OK(doca_ctx_stop(doca_eth_txq_as_doca_ctx(n->txq)));
	OK(doca_ctx_stop(doca_eth_rxq_as_doca_ctx(n->rxq)));
	OK(doca_eth_txq_destroy(n->txq));
	OK(doca_eth_rxq_destroy(n->rxq));
	OK(doca_mmap_destroy(n->map));
	OK(doca_gpu_destroy(n->gpu));
	OK(doca_dev_close(n->dev));
	close(n->peer);
}

/* ---- what a kernel does ---- */

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t load(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

/* Waits until *at is at least `value`. */
static void reaches(const uint64_t *at, uint64_t value)
{
	for (double end = now_s() + 30; load(at) < value; sched_yield())
		CHECK(now_s() < end);
}

static uint8_t *send_place(struct net *n)
{
	return n->memory + RECEIVES * LARGEST;
}

static void post(struct net *n, struct doca_gpu_dev_eth_txq_wqe e)
{
	n->out->ring[n->posted & (n->out->entries - 1)] = e;
	__atomic_store_n(&n->out->words->producer, ++n->posted, __ATOMIC_RELEASE);
}

static struct doca_gpu_dev_eth_txq_wqe entry(struct net *n, uint32_t size)
{
	return (struct doca_gpu_dev_eth_txq_wqe){.addr = (uint64_t)(uintptr_t)send_place(n),
						 .key = __builtin_bswap32(n->key),
						 .size = size,
						 .index = (uint32_t)n->posted,
						 .flags = NOTIFY};
}

static void check_received(const struct net *n, uint64_t index, const uint8_t *frame, size_t size)
{
	const uint64_t place = index & (n->in->entries - 1);

	CHECK_EQ(n->in->ring[place].bytes, size);
	CHECK_EQ(memcmp(n->in->packets + place * n->in->stride, frame, size), 0);
}

static void send_in_both_directions(struct net *net, int rounds)
{
	struct net n = *net;
	uint8_t frame[65536], got[65536];

	for (int i = 0; i < rounds; i++) {
		const size_t size = 60 + (size_t)i % 1400;

		fill_frame(frame, size, (unsigned)i);
		peer_sends(&n, frame, size);
		reaches(&n.in->words->producer, (uint64_t)i + 1);
		check_received(&n, (uint64_t)i, frame, size);
		CHECK(n.in->ring[i & 7].timestamp_ns > 1000000000);
		__atomic_store_n(&n.in->words->released, (uint64_t)i + 1, __ATOMIC_RELEASE);
		memcpy(send_place(&n), frame, size);
		post(&n, entry(&n, (uint32_t)size));
		reaches(&n.out->words->completions, (uint64_t)i + 1);
		CHECK_EQ(peer_receives(&n, got), size);
		CHECK_EQ(memcmp(frame, got, size), 0);
	}
	CHECK_EQ(load(&n.out->words->failed), UINT64_MAX);
	*net = n;
}

static void frames_arrive_in_both_directions(void)
{
	FIXTURE(net, n, open_net);
	send_in_both_directions(&n, repeats(300));
}

/* Needs no rights. The end of the other side ends the queues. */
TEST(frames_are_messages_of_an_inherited_socket)
{
	const struct doca_flow_match match = {.outer.eth.type = htons(0x88b5)};
	struct net n = {0};
	int ends[2];
	char name[16];

	no_gpu();
	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	snprintf(name, sizeof(name), "fd:%d", ends[0]);
	setenv("SOFTDOCA_NET", name, 1);
	n.peer = ends[1];
	open_memory(&n);
	open_flow(&n);
	open_rxq(&n);
	open_txq(&n);
	add_rule(&n, &match, 3);
	send_in_both_directions(&n, 20);
	close(ends[1]);
	reaches(&n.in->words->failed, 1);
	post(&n, entry(&n, 60));
	reaches(&n.out->words->done, n.posted);
	n.peer = ends[0];
	net_close(&n);
}

TEST(frames_arrive_without_a_gpu)
{
	no_gpu();
	frames_arrive_in_both_directions();
}

TEST(frames_arrive_with_a_gpu)
{
	one_gpu();
	frames_arrive_in_both_directions();
}

TEST(a_full_queue_drops_frames_and_goes_on)
{
	uint8_t frame[100];
	struct doca_flow_resource_query seen = {0};

	no_gpu();
	FIXTURE(net, n, open_net);
	for (unsigned i = 0; i < RECEIVES + 5; i++) {
		fill_frame(frame, sizeof(frame), i);
		peer_sends(&n, frame, sizeof(frame));
	}
	while (seen.counter.total_pkts < RECEIVES + 5)
		OK(doca_flow_resource_query_entry(n.entry, &seen));
	CHECK_EQ(load(&n.in->words->producer), RECEIVES);
	for (unsigned i = 0; i < RECEIVES; i++) {
		fill_frame(frame, sizeof(frame), i);
		check_received(&n, i, frame, sizeof(frame));
	}
	__atomic_store_n(&n.in->words->released, 1, __ATOMIC_RELEASE);
	peer_sends(&n, frame, sizeof(frame));
	reaches(&n.in->words->producer, RECEIVES + 1);
	check_received(&n, RECEIVES, frame, sizeof(frame));
}

TEST(a_frame_longer_than_the_packets_is_dropped)
{
	static uint8_t frame[LARGEST + 1];
	struct ifreq r = {.ifr_mtu = 9000};

	no_gpu();
	FIXTURE(net, n, open_net);
	strcpy(r.ifr_name, NAME);
	CHECK_EQ(ioctl(n.peer, SIOCSIFMTU, &r), 0);
	fill_frame(frame, sizeof(frame), 1);
	peer_sends(&n, frame, LARGEST + 1);
	peer_sends(&n, frame, LARGEST);
	reaches(&n.in->words->producer, 1);
	check_received(&n, 0, frame, LARGEST);
	CHECK_EQ(n.in->key, __builtin_bswap32(n.key));
}

/* Posts an entry that fails, then one that would not: both fail, and so does every later one. */
static void fails(struct net *n, struct doca_gpu_dev_eth_txq_wqe e)
{
	uint8_t got[65536];

	post(n, e);
	post(n, entry(n, 60));
	reaches(&n->out->words->done, 2);
	CHECK_EQ(load(&n->out->words->failed), 0);
	CHECK_EQ(load(&n->out->words->completions), 1);
	post(n, entry(n, 60));
	reaches(&n->out->words->done, 3);
	CHECK_EQ(peer_receives(n, got), 0);
}

#define FAILING_ENTRY(name, change)                          \
	TEST(name)                                           \
	{                                                    \
		struct net n = {0};                          \
                                                             \
		no_gpu();                                    \
		open_net(&n);                                \
		struct doca_gpu_dev_eth_txq_wqe e = entry(&n, 60); \
		change;                                      \
		fails(&n, e);                                \
		net_close(&n);                               \
	}
FAILING_ENTRY(an_unknown_key_fails_the_queue, e.key ^= __builtin_bswap32(0x100))
FAILING_ENTRY(an_address_before_the_map_fails_the_queue, e.addr = (uint64_t)(uintptr_t)n.memory - 1)
FAILING_ENTRY(an_address_behind_the_map_fails_the_queue,
	      e.addr = (uint64_t)(uintptr_t)n.memory + BYTES - 59)
FAILING_ENTRY(an_address_that_wraps_around_fails_the_queue, e.addr = UINT64_MAX - 10)
FAILING_ENTRY(a_runt_fails_the_queue, e.size = 13)
FAILING_ENTRY(a_giant_fails_the_queue, e.size = 65537)
FAILING_ENTRY(an_entry_of_another_index_fails_the_queue, e.index = 7)
FAILING_ENTRY(freed_memory_fails_the_queue,
	      OK(doca_ctx_stop(doca_eth_rxq_as_doca_ctx(n.rxq)));
	      OK(doca_gpu_mem_free(n.gpu, n.memory)))
FAILING_ENTRY(a_stopped_map_fails_the_queue, OK(doca_mmap_stop(n.map)))

/* ---- events ---- */

static uint64_t realtime_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

struct told {
	int errors, notes;
	uint16_t error, note;
	uint64_t time_ns;
};

static void on_error(struct doca_eth_txq_gpu_event_error_send_packet *event, union doca_data data)
{
	struct told *told = data.ptr;

	told->errors++;
	OK(doca_eth_txq_gpu_event_error_send_packet_get_position(event, &told->error));
}

static void on_note(struct doca_eth_txq_gpu_event_notify_send_packet *event, union doca_data data)
{
	struct told *told = data.ptr;

	told->notes++;
	OK(doca_eth_txq_gpu_event_notify_send_packet_get_position(event, &told->note));
	OK(doca_eth_txq_gpu_event_notify_send_packet_get_timestamp(event, &told->time_ns));
}

/* Gives the send queue a progress engine. */
static struct doca_pe *connect_events(struct net *n, struct told *told)
{
	struct doca_ctx *ctx = doca_eth_txq_as_doca_ctx(n->txq);
	const union doca_data data = {.ptr = told};
	struct doca_pe *pe;

	OK(doca_ctx_stop(ctx));
	OK(doca_eth_txq_gpu_event_error_send_packet_register(n->txq, on_error, data));
	OK(doca_eth_txq_gpu_event_notify_send_packet_register(n->txq, on_note, data));
	OK(doca_pe_create(&pe));
	OK(doca_pe_connect_ctx(pe, ctx));
	OK(doca_ctx_start(ctx));
	OK(doca_eth_txq_get_gpu_handle(n->txq, &n->out));
	return pe;
}

TEST(a_progress_engine_tells_of_sent_frames_and_of_the_entry_that_failed)
{
	struct net n = {0};
	struct told told = {0};

	no_gpu();
	open_net(&n);
	struct doca_pe *pe = connect_events(&n, &told);
	const uint64_t start = realtime_ns();
	struct doca_gpu_dev_eth_txq_wqe e = entry(&n, 60);

	e.flags = DOCA_GPUNETIO_ETH_SEND_FLAG_NONE;
	post(&n, e);
	post(&n, entry(&n, 60));
	e = entry(&n, 13);
	post(&n, e);
	reaches(&n.out->words->completions, 2);
	CHECK_EQ(doca_pe_progress(pe), 1);
	CHECK_EQ(doca_pe_progress(pe), 1);
	CHECK_EQ(doca_pe_progress(pe), 0);
	CHECK_EQ(told.notes, 1);
	CHECK_EQ(told.note, 1);
	CHECK(told.time_ns >= start);
	CHECK(told.time_ns <= realtime_ns());
	CHECK_EQ(told.errors, 1);
	CHECK_EQ(told.error, 2);
	REFUSED(doca_eth_txq_gpu_event_error_send_packet_register(n.txq, on_error,
								  (union doca_data){0}),
		BAD_STATE);
	net_close(&n);
	OK(doca_pe_destroy(pe));
}

/* Nobody calls the engine while more frames are sent than the queue has places. */
TEST(old_notes_are_left_out)
{
	struct net n = {0};
	struct told told = {0};

	no_gpu();
	open_net(&n);
	struct doca_pe *pe = connect_events(&n, &told);
	const uint64_t all = n.out->entries + 10;

	while (n.posted < all) {
		post(&n, entry(&n, 60));
		reaches(&n.out->words->completions, n.posted);
	}
	while (doca_pe_progress(pe))
		continue;
	CHECK(told.notes > 0 && (uint64_t)told.notes < n.out->entries);
	CHECK_EQ(told.note, all - 1);
	net_close(&n);
	OK(doca_pe_destroy(pe));
}

/* More than one system call takes, and the last one fails. What a socket of lo sends it receives again. */
TEST(a_packet_socket_sends_many_frames_in_order)
{
	struct net n = {0};
	const uint32_t frames = 200;
	uint8_t got[65536];

	no_gpu();
	const bool there = enter_namespace();

	open_memory(&n);
	if (!there)
		return;
	setenv("SOFTDOCA_NET", "lo", 1);
	open_txq(&n);
	struct sockaddr_ll at = {.sll_family = AF_PACKET,
				 .sll_protocol = htons(0x88b5),
				 .sll_ifindex = (int)if_nametoindex("lo")};

	n.peer = socket(AF_PACKET, SOCK_RAW, 0);
	CHECK_EQ(bind(n.peer, (struct sockaddr *)&at, sizeof(at)), 0);
	for (uint32_t i = 0; i < frames; i++) {
		struct doca_gpu_dev_eth_txq_wqe e = entry(&n, 64 + i);

		e.addr += i * 512;
		fill_frame(send_place(&n) + i * 512, 64 + i, i);
		n.out->ring[n.posted++] = e;
	}
	n.out->ring[n.posted] = entry(&n, 13);
	__atomic_store_n(&n.out->words->producer, ++n.posted, __ATOMIC_RELEASE);
	reaches(&n.out->words->completions, frames + 1);
	CHECK_EQ(load(&n.out->words->failed), frames);
	for (uint32_t i = 0; i < frames; i++) {
		CHECK_EQ(recv(n.peer, got, sizeof(got), 0), 64 + i);
		CHECK_EQ(memcmp(got, send_place(&n) + i * 512, 64 + i), 0);
	}
	OK(doca_ctx_stop(doca_eth_txq_as_doca_ctx(n.txq)));
	OK(doca_eth_txq_destroy(n.txq));
	close(n.peer);
}

TEST(an_index_beyond_the_ring_fails_the_queue)
{
	no_gpu();
	FIXTURE(net, n, open_net);
	__atomic_store_n(&n.out->words->producer, n.out->entries + 1, __ATOMIC_RELEASE);
	reaches(&n.out->words->done, n.out->entries + 1);
	CHECK_EQ(load(&n.out->words->failed), 0);
}

static uint16_t sum(const uint8_t *p, size_t n, uint32_t s)
{
	for (size_t i = 0; i + 1 < n; i += 2)
		s += (uint32_t)(p[i] << 8 | p[i + 1]);
	if (n % 2)
		s += (uint32_t)p[n - 1] << 8;
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return (uint16_t)s;
}

/* Sends IPv4 and UDP, or TCP, with wrong checksums; they arrive with right ones. */
TEST(checksums_are_written)
{
	uint8_t got[65536];

	no_gpu();
	FIXTURE(net, n, open_net);
	for (int i = 0; i < 40; i++) {
		const size_t header = 20 + 4 * (size_t)(i % 3), data = 20 + (size_t)i;
		const uint8_t protocol = i % 2 ? IPPROTO_TCP : IPPROTO_UDP;
		uint8_t *ip = send_place(&n) + 14;

		fill_frame(send_place(&n), 14 + header + data, (unsigned)i);
		send_place(&n)[12] = 8;
		send_place(&n)[13] = 0;
		ip[0] = (uint8_t)(0x40 | header / 4);
		ip[2] = 0;
		ip[3] = (uint8_t)(header + data);
		ip[6] = ip[7] = 0;
		ip[9] = protocol;
		post(&n, entry(&n, (uint32_t)(14 + header + data)));
		reaches(&n.out->words->done, (uint64_t)i + 1);
		do
			CHECK(peer_receives(&n, got));
		while (memcmp(got + 26, ip + 12, 8)); /* the machine's own frames */
		CHECK_EQ(sum(got + 14, header, 0), 0xffff);
		CHECK_EQ(sum(got + 14 + header, data,
			     sum(got + 26, 8, 0) + protocol + (uint32_t)data),
			 0xffff);
	}
}

TEST(an_entry_waits_for_its_time_and_those_behind_it_with_it)
{
	uint64_t at;

	no_gpu();
	FIXTURE(net, n, open_net);
	/* With a frame, or as an entry of its own. */
	for (uint64_t sent = 0; sent < 4; sent += 2) {
		OK(doca_eth_txq_calculate_timestamp(n.txq, realtime_ns() + SECOND / 20, &at));
		struct doca_gpu_dev_eth_txq_wqe e = entry(&n, sent ? 0 : 60);

		e.time_ns = at;
		fill_frame(send_place(&n), 60, 0);
		post(&n, e);
		post(&n, entry(&n, 60));
		while (realtime_ns() < at - SECOND / 100) {
			CHECK(load(&n.out->words->completions) == sent || realtime_ns() >= at);
			sched_yield();
		}
		reaches(&n.out->words->completions, sent + 2);
		CHECK(realtime_ns() >= at);
	}
}

/* Deletes the interface, as `ip link delete` does. */
static void delete_interface(void)
{
	struct {
		struct nlmsghdr head;
		struct ifinfomsg link;
	} request = {{.nlmsg_len = sizeof(request),
		      .nlmsg_type = RTM_DELLINK,
		      .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
		     {.ifi_index = (int)if_nametoindex(NAME)}};
	char answer[4096];
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	CHECK_EQ(send(fd, &request, sizeof(request), 0), sizeof(request));
	CHECK(recv(fd, answer, sizeof(answer), 0) > 0);
	close(fd);
	CHECK_EQ(if_nametoindex(NAME), 0);
}

TEST(an_interface_that_goes_away_fails_its_queues)
{
	no_gpu();
	FIXTURE(net, n, open_net);
	delete_interface();
	reaches(&n.in->words->failed, 1);
	for (double end = now_s() + 30; load(&n.out->words->failed); sched_yield())
		CHECK(now_s() < end);
	post(&n, entry(&n, 60));
	reaches(&n.out->words->done, 1);
}

TEST(stopped_queues_leave_nobody_waiting)
{
	struct net n = {0};

	no_gpu();
	open_net(&n);

	/* A kernel still has the memory mapped. */
	struct doca_gpu_dev_eth_txq_words *out = n.out->words;
	struct doca_gpu_dev_eth_rxq_words *in = n.in->words;
	CHECK(softdoca_gpu_take(out, sizeof(*out)) && softdoca_gpu_take(in, sizeof(*in)));
	net_close(&n);
	CHECK_EQ(load(&in->failed), 1);
	CHECK_EQ(load(&out->failed), 0);
	CHECK_EQ(load(&out->done), UINT64_MAX);
}

/* Headers of random sizes and types, some right and most not. */
TEST(malformed_frames_are_steered_or_dropped)
{
	uint8_t frame[1500];
	struct doca_flow_match match = {.outer.l3_type = DOCA_FLOW_L3_TYPE_IP4};
	static const uint8_t types[][2] = {{8, 0}, {0x86, 0xdd}, {8, 6}, {0x81, 0}};
	static const uint8_t protocols[] = {IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ESP};
	const int rounds = repeats(3000);

	no_gpu();
	srandom(4);
	FIXTURE(net, n, open_net);
	add_rule(&n, &match, 3);
	for (int i = 0; i < rounds; i++) {
		const size_t size = 14 + (size_t)random() % (i % 2 ? 60 : 1400);

		for (size_t at = 0; at < size; at++)
			frame[at] = (uint8_t)random();
		memcpy(frame + 12, types[random() % 4], 2);
		frame[14] = (uint8_t)(random() % 4 ? 0x45 : random());
		frame[16] = random() % 4 ? 0 : (uint8_t)random();
		frame[23] = protocols[random() % 4];
		peer_sends(&n, frame, size);
		__atomic_store_n(&n.in->words->released, load(&n.in->words->producer),
				 __ATOMIC_RELEASE);
		memcpy(send_place(&n), frame, size);
		post(&n, entry(&n, (uint32_t)size));
		reaches(&n.out->words->done, (uint64_t)i + 1);
	}
	CHECK_EQ(load(&n.out->words->failed), UINT64_MAX);
	CHECK(load(&n.in->words->producer) > 0);
}

/* ---- rules ---- */

/* Sends an IPv4 datagram to a UDP port, of `size` bytes with its headers. */
static void peer_sends_datagram(struct net *n, uint16_t port, uint8_t size)
{
	uint8_t frame[256];

	fill_frame(frame, size, port);
	memcpy(frame + 12, "\x08\x00\x45\x00\x00", 5);
	frame[17] = (uint8_t)(size - 14);
	memset(frame + 18, 0, 6);
	frame[23] = IPPROTO_UDP;
	frame[36] = (uint8_t)(port >> 8);
	frame[37] = (uint8_t)port;
	peer_sends(n, frame, size);
}

static struct doca_flow_pipe *a_pipe_of_ports(struct net *n)
{
	const struct doca_flow_match match = {
		.parser_meta = {DOCA_FLOW_L3_META_IPV4, DOCA_FLOW_L4_META_UDP},
		.outer.udp.l4_port.dst_port = 0xffff, /* of each entry */
	};
	const struct doca_flow_fwd drop = {.type = DOCA_FLOW_FWD_DROP};
	struct doca_flow_pipe_cfg *cfg;
	struct doca_flow_pipe *pipe;

	OK(doca_flow_pipe_cfg_create(&cfg, n->port));
	OK(doca_flow_pipe_cfg_set_type(cfg, DOCA_FLOW_PIPE_BASIC));
	OK(doca_flow_pipe_cfg_set_match(cfg, &match, NULL));
	OK(doca_flow_pipe_create(cfg, NULL, &drop, &pipe));
	OK(doca_flow_pipe_cfg_destroy(cfg));
	return pipe;
}

static struct doca_flow_pipe_entry *a_port(struct doca_flow_pipe *pipe, uint16_t port,
					   const struct doca_flow_fwd *fwd)
{
	const struct doca_flow_match match = {.outer.udp.l4_port.dst_port = htons(port)};
	struct doca_flow_pipe_entry *e;

	OK(doca_flow_pipe_basic_add_entry(0, pipe, &match, 0, NULL, NULL, fwd, 0, NULL, &e));
	return e;
}

static uint64_t hits(struct doca_flow_pipe_entry *e)
{
	struct doca_flow_resource_query q;

	OK(doca_flow_resource_query_entry(e, &q));
	return q.counter.total_pkts;
}

/* Waits until `count` frames matched no entry of a pipe. */
static void misses(struct doca_flow_pipe *pipe, uint64_t count)
{
	struct doca_flow_resource_query q = {0};

	for (double end = now_s() + 30; q.counter.total_pkts < count; sched_yield()) {
		OK(doca_flow_resource_query_pipe_miss(pipe, &q));
		CHECK(now_s() < end);
	}
	CHECK_EQ(q.counter.total_pkts, count);
}

TEST(rules_select_what_a_queue_receives)
{
	struct doca_flow_match udp = {.outer.l3_type = DOCA_FLOW_L3_TYPE_IP4,
				      .outer.ip4.next_proto = IPPROTO_UDP};
	const struct doca_flow_match bits = {.outer.l3_type = (enum doca_flow_l3_type)~0u,
					     .outer.ip4.next_proto = 0xff};
	uint16_t queue = 3, absent = 4;
	struct doca_flow_fwd to_queue = {.type = DOCA_FLOW_FWD_RSS,
					 .rss = {.queues_array = &queue, .nr_queues = 1}};
	struct doca_flow_fwd to_absent = {.type = DOCA_FLOW_FWD_RSS,
					  .rss = {.queues_array = &absent, .nr_queues = 1}};
	struct doca_flow_pipe_entry *e;

	no_gpu();
	FIXTURE(net, n, open_net);
	struct doca_flow_pipe *ports = a_pipe_of_ports(&n);
	struct doca_flow_fwd to_ports = {.type = DOCA_FLOW_FWD_PIPE, .next_pipe = ports};

	memset(udp.outer.eth.src_mac, 1, 6); /* not compared */
	OK(doca_flow_pipe_control_add_entry(0, n.root, &udp, &bits, NULL, NULL, NULL, NULL, NULL,
					    5, &to_ports, NULL, &e));
	struct doca_flow_pipe_entry *kept = a_port(ports, 1000, &to_queue);
	struct doca_flow_pipe_entry *lost = a_port(ports, 1001, &to_absent);

	for (uint16_t port = 1000; port < 1004; port++)
		peer_sends_datagram(&n, port, 60);
	peer_sends_datagram(&n, 1000, 100);
	reaches(&n.in->words->producer, 2);
	misses(ports, 2);
	CHECK_EQ(hits(kept), 2);
	CHECK_EQ(hits(lost), 1);
	CHECK_EQ(hits(e), 5);
	CHECK_EQ(n.in->ring[0].bytes, 60);
	CHECK_EQ(n.in->ring[1].bytes, 100);
	OK(doca_flow_pipe_remove_entry(0, 0, kept));
	peer_sends_datagram(&n, 1000, 60);
	misses(ports, 3);
	doca_flow_pipe_destroy(ports); /* its frames are dropped from then on */
	peer_sends_datagram(&n, 1000, 60);
	while (hits(e) < 7)
		sched_yield();
	CHECK_EQ(load(&n.in->words->producer), 2);
}

TEST(what_rules_cannot_do_is_refused)
{
	struct net n = {0};
	uint16_t queue = 256;
	struct doca_flow_fwd fwd = {.type = DOCA_FLOW_FWD_PORT};
	struct doca_flow_pipe_cfg *cfg;
	struct doca_flow_cfg *library;
	struct doca_flow_port *port;
	struct doca_flow_pipe *pipe;
	struct doca_flow_target *kernel;
	struct doca_flow_monitor monitor = {DOCA_FLOW_RESOURCE_TYPE_SHARED};

	no_gpu();
	open_net(&n);
	OK(doca_flow_cfg_create(&library));
	REFUSED(doca_flow_cfg_set_mode_args(library, "switch"), NOT_SUPPORTED);
	OK(doca_flow_cfg_set_mode_args(library, "vnf,hws"));
	REFUSED(doca_flow_init(library), ALREADY_EXIST);
	OK(doca_flow_pipe_cfg_create(&cfg, n.port));
	REFUSED(doca_flow_pipe_cfg_set_type(cfg, (enum doca_flow_pipe_type)2), NOT_SUPPORTED);
	REFUSED(doca_flow_pipe_cfg_set_monitor(cfg, &monitor), NOT_SUPPORTED);
	REFUSED(doca_flow_pipe_create(cfg, &fwd, NULL, &pipe), NOT_SUPPORTED);
	fwd.type = DOCA_FLOW_FWD_RSS;
	REFUSED(doca_flow_pipe_create(cfg, &fwd, NULL, &pipe), INVALID_VALUE);
	fwd.rss.queues_array = &queue;
	fwd.rss.nr_queues = 1;
	REFUSED(doca_flow_pipe_create(cfg, &fwd, NULL, &pipe), INVALID_VALUE);
	fwd.rss_type = DOCA_FLOW_RESOURCE_TYPE_SHARED;
	REFUSED(doca_flow_pipe_create(cfg, NULL, &fwd, &pipe), NOT_SUPPORTED);
	fwd.type = DOCA_FLOW_FWD_TARGET;
	REFUSED(doca_flow_pipe_create(cfg, &fwd, NULL, &pipe), INVALID_VALUE);
	OK(doca_flow_get_target(DOCA_FLOW_TARGET_KERNEL, &kernel));
	fwd.target = kernel;
	OK(doca_flow_pipe_create(cfg, &fwd, NULL, &pipe));
	REFUSED(doca_flow_pipe_basic_add_entry(0, n.root, NULL, 0, NULL, NULL, NULL, 0, NULL,
					       &n.entry),
		INVALID_VALUE);
	REFUSED(doca_flow_pipe_basic_add_entry(1, pipe, NULL, 0, NULL, NULL, NULL, 0, NULL, &n.entry),
		INVALID_VALUE);
	REFUSED(doca_flow_pipe_basic_add_entry(0, pipe, NULL, 1, NULL, NULL, NULL, 0, NULL,
					       &n.entry),
		NOT_SUPPORTED);
	OK(doca_flow_pipe_cfg_set_is_root(cfg, true));
	REFUSED(doca_flow_pipe_create(cfg, NULL, NULL, &pipe), ALREADY_EXIST);
	OK(doca_flow_pipe_cfg_destroy(cfg));
	OK(doca_flow_cfg_destroy(library));
	port = n.port;
	net_close(&n);
	REFUSED(doca_flow_port_stop(port), INVALID_VALUE);
	REFUSED(doca_flow_pipe_cfg_create(&cfg, port), INVALID_VALUE);
}

/* ---- settings ---- */

static bool is_up(const char *name)
{
	struct ifreq r = {0};
	const int fd = socket(AF_INET, SOCK_DGRAM, 0);

	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
	const bool up = !ioctl(fd, SIOCGIFFLAGS, &r) && r.ifr_flags & IFF_UP;
	close(fd);
	return up;
}

/* A TAP device ends with the process that is killed, and the next process gets the name. */
static void check_kill(struct doca_ctx *ctx)
{
	int fds[2];
	char byte;

	setenv("SOFTDOCA_NET", "tap:" NAME, 1);
	CHECK_EQ(pipe(fds), 0);
	const pid_t pid = fork();

	if (!pid) {
		alarm(60);
		OK(doca_ctx_start(ctx));
		CHECK_EQ(write(fds[1], "x", 1), 1);
		pause();
	}
	CHECK_EQ(read(fds[0], &byte, 1), 1);
	CHECK(is_up(NAME));
	REFUSED(doca_ctx_start(ctx), IN_USE);
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	CHECK_EQ(if_nametoindex(NAME), 0);
	OK(doca_ctx_start(ctx));
	CHECK(is_up(NAME));
	OK(doca_ctx_stop(ctx));
}

TEST(networks_are_checked)
{
	struct doca_gpu *gpu;
	struct doca_eth_txq *txq;

	no_gpu();
	const bool there = enter_namespace();

	OK(doca_gpu_create("41:00.0", &gpu));
	struct doca_dev *dev = a_dev();

	OK(doca_eth_txq_create(dev, 8, &txq));
	struct doca_ctx *ctx = doca_eth_txq_as_doca_ctx(txq);

	OK(doca_ctx_set_datapath_on_gpu(ctx, gpu));
	unsetenv("SOFTDOCA_NET");
	REFUSED(doca_ctx_start(ctx), NOT_SUPPORTED);
	setenv("SOFTDOCA_NET", "tap:", 1);
	REFUSED(doca_ctx_start(ctx), BAD_CONFIG);
	for (const char *const *wrong = (const char *const[]){"fd:", "fd:0x", "fd:-1", "fd:999", "fd:1", NULL};
	     *wrong; wrong++) {
		setenv("SOFTDOCA_NET", *wrong, 1);
		REFUSED(doca_ctx_start(ctx), BAD_CONFIG);
	}
	setenv("SOFTDOCA_NET", "a_name_of_16_byt", 1);
	REFUSED(doca_ctx_start(ctx), BAD_CONFIG);
	if (there) {
		setenv("SOFTDOCA_NET", "absent0", 1);
		REFUSED(doca_ctx_start(ctx), NOT_FOUND);
		CHECK_SAYS(softdoca_last_refusal(), "no network interface has the name absent0");
		setenv("SOFTDOCA_NET", "lo", 1);
		OK(doca_ctx_start(ctx));
		OK(doca_ctx_stop(ctx));
		setenv("SOFTDOCA_NET", "tap:lo", 1);
		REFUSED(doca_ctx_start(ctx), BAD_CONFIG);
		CHECK_SAYS(softdoca_last_refusal(), "lo is no TAP device, or no name for one");
		/* The kernel replaces %d by a number. */
		setenv("SOFTDOCA_NET", "tap:" NAME "%d", 1);
		OK(doca_ctx_start(ctx));
		CHECK(is_up(NAME "0"));
		OK(doca_ctx_stop(ctx));
		CHECK_EQ(if_nametoindex(NAME "0"), 0);
		if (fork_among_threads())
			check_kill(ctx);
		CHECK_EQ(setresuid(65534, 65534, 65534), 0);
	}
	setenv("SOFTDOCA_NET", "lo", 1);
	REFUSED(doca_ctx_start(ctx), NOT_PERMITTED);
	CHECK_SAYS(softdoca_last_refusal(), "lo: not permitted without CAP_NET_RAW");
	CHECK_SAYS(softdoca_last_refusal(), "unshare --map-root-user --net PROGRAM");
	setenv("SOFTDOCA_NET", "tap:" NAME, 1);
	check_refusal(gpu, dev);
	OK(doca_eth_txq_destroy(txq));
}

TEST(settings_are_checked)
{
	struct net n = {0};
	uint32_t size;
	uint64_t at;

	no_gpu();
	const bool there = enter_namespace();

	open_memory(&n);
	REFUSED(doca_eth_txq_create(n.dev, 0, &n.txq), INVALID_VALUE);
	REFUSED(doca_eth_txq_create(n.dev, 32769, &n.txq), INVALID_VALUE);
	REFUSED(doca_eth_rxq_create(n.dev, 1, 13, &n.rxq), INVALID_VALUE);
	REFUSED(doca_eth_rxq_create(n.dev, 65537, 64, &n.rxq), INVALID_VALUE);
	OK(doca_eth_txq_create(n.dev, 8, &n.txq));
	OK(doca_eth_rxq_create(n.dev, 8, 64, &n.rxq));
	REFUSED(doca_eth_txq_set_l3_chksum_offload(n.txq, 2), INVALID_VALUE);
	REFUSED(doca_eth_txq_set_type(n.txq, 1), INVALID_VALUE);
	OK(doca_eth_txq_set_type(n.txq, DOCA_ETH_TXQ_TYPE_REGULAR));
	REFUSED(doca_eth_txq_apply_queue_id(n.txq, 0), BAD_STATE);
	REFUSED(doca_eth_txq_get_gpu_handle(n.txq, &n.out), BAD_STATE);
	REFUSED(doca_eth_txq_calculate_timestamp(n.txq, 1, &at), NOT_SUPPORTED);
	REFUSED(doca_eth_txq_gpu_cpu_proxy_progress(n.txq), NOT_SUPPORTED);
	REFUSED(doca_eth_rxq_set_type(n.rxq, (enum doca_eth_rxq_type)3), INVALID_VALUE);
	REFUSED(doca_eth_rxq_estimate_packet_buf_size(DOCA_ETH_RXQ_TYPE_CYCLIC, 0, 0, 64, 8, 0, 1, 0,
						      &size),
		NOT_SUPPORTED);
	REFUSED(doca_eth_rxq_estimate_packet_buf_size(DOCA_ETH_RXQ_TYPE_REGULAR, 0, 0, 64, 8, 0, 0, 0,
						      &size),
		NOT_SUPPORTED);
	REFUSED(doca_eth_rxq_set_pkt_buf(n.rxq, n.map, 0, 8 * 64 - 1), TOO_BIG);
	REFUSED(doca_eth_rxq_set_pkt_buf(n.rxq, n.map, BYTES, 8 * 64), TOO_BIG);
	REFUSED(doca_eth_rxq_apply_queue_id(n.rxq, 0), BAD_STATE);
	REFUSED(doca_ctx_start(doca_eth_rxq_as_doca_ctx(n.rxq)), NOT_CONNECTED);
	OK(doca_ctx_set_datapath_on_gpu(doca_eth_rxq_as_doca_ctx(n.rxq), n.gpu));
	if (there)
		REFUSED(doca_ctx_start(doca_eth_rxq_as_doca_ctx(n.rxq)), BAD_STATE);
	OK(doca_eth_rxq_set_pkt_buf(n.rxq, n.map, 0, 8 * 64));
	if (there) {
		OK(doca_ctx_start(doca_eth_rxq_as_doca_ctx(n.rxq)));
		REFUSED(doca_eth_rxq_set_pkt_buf(n.rxq, n.map, 0, 8 * 64), BAD_STATE);
		REFUSED(doca_eth_rxq_apply_queue_id(n.rxq, 256), INVALID_VALUE);
		REFUSED(doca_gpu_mem_free(n.gpu, n.memory), IN_USE);
		REFUSED(doca_eth_rxq_destroy(n.rxq), BAD_STATE);
		OK(doca_ctx_stop(doca_eth_rxq_as_doca_ctx(n.rxq)));
	}
	OK(doca_eth_rxq_destroy(n.rxq));
	REFUSED(doca_eth_rxq_destroy(n.rxq), INVALID_VALUE);
	OK(doca_eth_txq_destroy(n.txq));
	CHECK(!doca_eth_txq_as_doca_ctx(n.txq));
}

TEST(keys_are_of_started_maps_of_gpu_memory)
{
	struct net n = {0};
	static char bytes[4096];
	struct doca_mmap *other;
	uint32_t key;

	no_gpu();
	open_memory(&n);
	OK(doca_mmap_get_mkey(n.map, n.dev, &key));
	CHECK_EQ(key, n.key);
	OK(doca_mmap_stop(n.map));
	REFUSED(doca_mmap_get_mkey(n.map, n.dev, &key), BAD_STATE);
	OK(doca_mmap_start(n.map));
	OK(doca_mmap_get_mkey(n.map, n.dev, &key));
	CHECK(key != n.key);
	OK(doca_mmap_create(&other));
	OK(doca_mmap_set_memrange(other, bytes, sizeof(bytes)));
	OK(doca_mmap_start(other));
	REFUSED(doca_mmap_get_mkey(other, n.dev, &key), NOT_FOUND);
	OK(doca_mmap_stop(other));
	OK(doca_mmap_add_dev(other, n.dev));
	OK(doca_mmap_start(other));
	REFUSED(doca_mmap_get_mkey(other, n.dev, &key), NOT_SUPPORTED);
}

/* ---- captures ---- */

/* Checks that a capture consists of whole blocks, and returns its size and its last bytes. */
static size_t check_capture(const char *path, char *last, size_t room)
{
	FILE *f = fopen(path, "rb");
	uint32_t head[2], tail;
	size_t at = 0;

	CHECK(f);
	while (fread(head, 4, 2, f) == 2) {
		CHECK(head[1] >= 12 && head[1] % 4 == 0);
		CHECK_EQ(fseek(f, (long)(at + head[1] - 4), SEEK_SET), 0);
		CHECK_EQ(fread(&tail, 4, 1, f), 1);
		CHECK_EQ(tail, head[1]);
		at += head[1];
	}
	CHECK_EQ(fseek(f, 0, SEEK_END), 0);
	CHECK_EQ(ftell(f), at);
	CHECK_EQ(fseek(f, -(long)room, SEEK_END), 0);
	CHECK_EQ(fread(last, 1, room, f), room);
	fclose(f);
	return at;
}

static const char *capture_many_frames(char *last, size_t room, size_t *size)
{
	static char path[] = "/tmp/test_eth_XXXXXX";
	struct net n = {0};
	uint8_t frame[1500];

	no_gpu();
	CHECK((close(mkstemp(path)), true));
	setenv("SOFTDOCA_CAPTURE", path, 1);
	open_net(&n);
	fill_frame(frame, sizeof(frame), 0);
	for (uint64_t i = 0; i < 1000; i++) {
		peer_sends(&n, frame, sizeof(frame));
		reaches(&n.in->words->producer, i + 1);
		__atomic_store_n(&n.in->words->released, i + 1, __ATOMIC_RELEASE);
	}
	net_close(&n);
	*size = check_capture(path, last, room);
	unlink(path);
	return last;
}

TEST(a_capture_ends_at_its_limit_and_says_so)
{
	char last[64];
	size_t size;

	setenv("SOFTDOCA_CAPTURE_LIMIT", "1", 1);
	capture_many_frames(last, sizeof(last), &size);
	CHECK(size <= 1 << 20 && size > 800 << 10);
	CHECK(memmem(last, sizeof(last), "the last frame of this capture", 30));
}

TEST(a_capture_that_cannot_be_written_on_has_whole_blocks)
{
	char last[64];
	size_t size;

	signal(SIGXFSZ, SIG_IGN);
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &(struct rlimit){400000, 400000}), 0);
	capture_many_frames(last, sizeof(last), &size);
	CHECK(size <= 400000 && size > 390000);
}

TEST(an_invalid_limit_of_captures_is_refused)
{
	no_gpu();
	if (!enter_namespace())
		exit(0);
	struct doca_eth_txq *txq;
	struct doca_gpu *gpu;

	setenv("SOFTDOCA_CAPTURE", "/tmp/unused", 1);
	setenv("SOFTDOCA_CAPTURE_LIMIT", "1G", 1);
	OK(doca_gpu_create("41:00.0", &gpu));
	OK(doca_eth_txq_create(a_dev(), 8, &txq));
	OK(doca_ctx_set_datapath_on_gpu(doca_eth_txq_as_doca_ctx(txq), gpu));
	REFUSED(doca_ctx_start(doca_eth_txq_as_doca_ctx(txq)), BAD_CONFIG);
	CHECK(access("/tmp/unused", F_OK));
}

/* ---- queues of the CPU ---- */

#define FRAMES 8u

/* A send queue and a receive queue of the CPU, their memory, and what their callbacks were told. */
struct cpu {
	struct net net; /* without its queues */
	struct doca_pe *pe;
	struct doca_mmap *map;
	struct doca_buf_inventory *bufs;
	uint8_t *memory; /* of the receive queue, then of FRAMES frames to send */
	struct doca_eth_rxq *rxq;
	struct doca_eth_txq *txq;
	int sent, not_sent, received, errors;
	struct doca_buf *packets[64]; /* of events */
	struct doca_buf **array; /* of the last batch */
	uint16_t batch;
};

static void task_sent(struct doca_eth_txq_task_send *task, union doca_data data, union doca_data ctx)
{
	struct cpu *c = ctx.ptr;

	CHECK_EQ(data.u64, (uint64_t)c->sent);
	CHECK_EQ(doca_task_get_status(doca_eth_txq_task_send_as_doca_task(task)), DOCA_SUCCESS);
	c->sent++;
	doca_task_free(doca_eth_txq_task_send_as_doca_task(task));
}

static void task_not_sent(struct doca_eth_txq_task_send *task, union doca_data data, union doca_data ctx)
{
	(void)data;
	CHECK_EQ(doca_task_get_status(doca_eth_txq_task_send_as_doca_task(task)), DOCA_ERROR_IO_FAILED);
	((struct cpu *)ctx.ptr)->not_sent++;
	doca_task_free(doca_eth_txq_task_send_as_doca_task(task));
}

static void batch_sent(struct doca_task_batch *batch, uint16_t n, union doca_data ctx,
		       union doca_data data, union doca_data *each, struct doca_buf **frames,
		       doca_error_t *results)
{
	struct cpu *c = ctx.ptr;
	size_t size;

	CHECK_EQ(data.u64, 35);
	for (uint16_t i = 0; i < n; i++) {
		CHECK_EQ(each[i].u64, i);
		OK(results[i]);
		OK(doca_buf_get_data_len(frames[i], &size));
		CHECK_EQ(size, 60 + i);
	}
	CHECK_EQ(doca_task_batch_get_ctx(batch), doca_eth_txq_as_doca_ctx(c->txq));
	c->sent += n;
	doca_task_batch_free(batch);
}

static void batch_not_sent(struct doca_task_batch *batch, uint16_t n, union doca_data ctx,
			   union doca_data data, union doca_data *each, struct doca_buf **frames,
			   doca_error_t *results)
{
	(void)data;
	(void)each;
	(void)frames;
	CHECK_EQ(results[n - 1], DOCA_ERROR_IO_FAILED);
	((struct cpu *)ctx.ptr)->not_sent += n;
	doca_task_batch_free(batch);
}

static void task_received(struct doca_eth_rxq_task_recv *task, union doca_data data, union doca_data ctx)
{
	struct cpu *c = ctx.ptr;
	const uint32_t *metadata;
	uint32_t hash, tag;
	uint64_t time;

	CHECK_EQ(data.u64, (uint64_t)c->received);
	OK(doca_eth_rxq_task_recv_get_metadata_array(task, &metadata));
	CHECK_EQ(metadata[0], 1235);
	OK(doca_eth_rxq_task_recv_get_flow_tag(task, &tag));
	CHECK_EQ(tag, 5678);
	OK(doca_eth_rxq_task_recv_get_rx_hash(task, &hash));
	OK(doca_eth_rxq_task_recv_get_timestamp(task, &time));
	CHECK(time <= realtime_ns() && time > realtime_ns() - 60 * SECOND);
	OK(doca_eth_rxq_task_recv_get_pkt(task, &c->packets[c->received++]));
	doca_task_free(doca_eth_rxq_task_recv_as_doca_task(task));
}

static void task_not_received(struct doca_eth_rxq_task_recv *task, union doca_data data,
			      union doca_data ctx)
{
	(void)data;
	CHECK_EQ(doca_task_get_status(doca_eth_rxq_task_recv_as_doca_task(task)), DOCA_ERROR_IO_FAILED);
	((struct cpu *)ctx.ptr)->errors++;
	doca_task_free(doca_eth_rxq_task_recv_as_doca_task(task));
}

static void event_received(struct doca_eth_rxq_event_managed_recv *event, struct doca_buf *packet,
			   union doca_data data)
{
	struct cpu *c = data.ptr;
	uint64_t time;
	uint32_t tag;

	OK(doca_eth_rxq_event_managed_recv_get_status(event));
	REFUSED(doca_eth_rxq_event_managed_recv_get_flow_tag(event, &tag), BAD_STATE);
	REFUSED(doca_eth_rxq_event_managed_recv_get_timestamp(event, &time), BAD_STATE);
	c->packets[c->received++] = packet;
}

static void event_failed(struct doca_eth_rxq_event_managed_recv *event, struct doca_buf *packet,
			 union doca_data data)
{
	CHECK(!packet);
	REFUSED(doca_eth_rxq_event_managed_recv_get_status(event), IO_FAILED);
	((struct cpu *)data.ptr)->errors++;
}

static void batch_received(struct doca_eth_rxq_event_batch_managed_recv *batch, uint16_t n,
			   union doca_data data, doca_error_t status, struct doca_buf **packets)
{
	struct cpu *c = data.ptr;
	const uint32_t *metadata, *tags, *hashes;
	const uint64_t *times;

	OK(status);
	CHECK_EQ(doca_eth_rxq_event_batch_managed_recv_get_ctx(batch),
		 doca_eth_rxq_as_doca_ctx(c->rxq));
	OK(doca_eth_rxq_event_batch_managed_recv_get_metadata_array(batch, &metadata));
	OK(doca_eth_rxq_event_batch_managed_recv_get_flow_tag_array(batch, &tags));
	OK(doca_eth_rxq_event_batch_managed_recv_get_rx_hash_array(batch, &hashes));
	OK(doca_eth_rxq_event_batch_managed_recv_get_timestamp_array(batch, &times));
	for (uint16_t i = 0; i < n; i++) {
		CHECK_EQ(doca_eth_rxq_event_batch_managed_recv_metadata_array_get_metadata(metadata, 1,
											   i, 0),
			 1235);
		CHECK_EQ(tags[i], 5678);
		CHECK_EQ(hashes[i], hashes[0]);
		CHECK(!i || times[i] >= times[i - 1]);
		c->packets[c->received++] = packets[i];
	}
	c->array = packets;
	c->batch = n;
}

static void batch_failed(struct doca_eth_rxq_event_batch_managed_recv *batch, uint16_t n,
			 union doca_data data, doca_error_t status, struct doca_buf **packets)
{
	(void)batch;
	CHECK(!n && !packets);
	REFUSED(status, IO_FAILED);
	((struct cpu *)data.ptr)->errors++;
}

/* Frames of the experiments' protocol go to queue 3, with metadata; to no queue from another one. */
static void open_cpu_flow(struct net *n)
{
	struct doca_flow_match match = {.outer.eth.type = htons(0x88b5)};
	struct doca_flow_actions action = {.meta = {htonl(1235), UINT32_MAX}}, *actions[] = {&action};
	struct doca_flow_actions tag = {.meta.mark = htonl(5678)};
	struct doca_flow_pipe_cfg *cfg;
	uint16_t queue = 3;
	struct doca_flow_fwd fwd = {.type = DOCA_FLOW_FWD_RSS,
				    .rss = {.queues_array = &queue, .nr_queues = 1}};

	open_flow(n);
	doca_flow_pipe_destroy(n->root);
	OK(doca_flow_pipe_cfg_create(&cfg, n->port));
	OK(doca_flow_pipe_cfg_set_is_root(cfg, true));
	OK(doca_flow_pipe_cfg_set_match(cfg, &match, NULL));
	OK(doca_flow_pipe_cfg_set_actions(cfg, actions, NULL, NULL, 1));
	OK(doca_flow_pipe_create(cfg, &fwd, NULL, &n->root));
	OK(doca_flow_pipe_cfg_destroy(cfg));
	OK(doca_flow_pipe_add_entry(0, n->root, &match, 0, &tag, NULL, NULL, 0, NULL, &n->entry));
}

/* Ends the test where there is no network. The receive queue is not started: a test chooses what it has. */
static void open_cpu(struct cpu *c, uint32_t burst, uint32_t size)
{
	static _Alignas(64) uint8_t memory[BYTES];

	no_gpu();
	if (!enter_namespace()) {
		OK(doca_gpu_create("41:00.0", &c->net.gpu));
		check_refusal(c->net.gpu, a_dev());
		exit(0);
	}
	c->net.dev = a_dev();
	c->memory = memory;
	c->map = a_map(c->net.dev, memory, sizeof(memory), READ_WRITE);
	OK(doca_mmap_start(c->map));
	OK(doca_buf_inventory_create(64, &c->bufs));
	OK(doca_buf_inventory_start(c->bufs));
	OK(doca_pe_create(&c->pe));
	OK(doca_eth_rxq_create(c->net.dev, burst, size, &c->rxq));
	OK(doca_eth_txq_create(c->net.dev, 8, &c->txq));
	OK(doca_eth_txq_task_send_set_conf(c->txq, task_sent, task_not_sent, 64));
	OK(doca_eth_txq_task_batch_send_set_conf(c->txq, DOCA_TASK_BATCH_MAX_TASKS_NUMBER_16, 2,
						 batch_sent, batch_not_sent));
	open_cpu_flow(&c->net);
}

static void start_queue(struct cpu *c, struct doca_ctx *ctx)
{
	OK(doca_pe_connect_ctx(c->pe, ctx));
	OK(doca_ctx_set_user_data(ctx, (union doca_data){.ptr = c}));
	OK(doca_ctx_start(ctx));
}

static void start_rxq(struct cpu *c)
{
	uint16_t id;

	start_queue(c, doca_eth_rxq_as_doca_ctx(c->rxq));
	OK(doca_eth_rxq_get_flow_queue_id(c->rxq, &id));
	CHECK_EQ(id, 0);
	OK(doca_eth_rxq_apply_queue_id(c->rxq, 3));
	OK(doca_eth_rxq_get_flow_queue_id(c->rxq, &id));
	CHECK_EQ(id, 3);
	open_peer(&c->net, NAME);
}

static void start_txq(struct cpu *c)
{
	start_queue(c, doca_eth_txq_as_doca_ctx(c->txq));
	open_peer(&c->net, NAME);
}

static void progress_until(struct cpu *c, const int *what, int n)
{
	for (double end = now_s() + 30; *what < n; sched_yield()) {
		CHECK(now_s() < end);
		doca_pe_progress(c->pe);
	}
	CHECK_EQ(*what, n);
}

static void stop_queue(struct cpu *c, struct doca_ctx *ctx)
{
	enum doca_ctx_states state;

	doca_ctx_stop(ctx);
	for (double end = now_s() + 30;; doca_pe_progress(c->pe)) {
		OK(doca_ctx_get_state(ctx, &state));
		if (state == DOCA_CTX_STATE_IDLE)
			break;
		CHECK(now_s() < end);
	}
}

static void cpu_close(struct cpu *c)
{
	stop_queue(c, doca_eth_rxq_as_doca_ctx(c->rxq));
	stop_queue(c, doca_eth_txq_as_doca_ctx(c->txq));
	OK(doca_eth_rxq_destroy(c->rxq));
	OK(doca_eth_txq_destroy(c->txq));
	OK(doca_flow_port_stop(c->net.port));
	doca_flow_destroy();
	OK(doca_buf_inventory_destroy(c->bufs));
	OK(doca_mmap_destroy(c->map));
	OK(doca_pe_destroy(c->pe));
	OK(doca_dev_close(c->net.dev));
}

static struct doca_buf *frame_to_send(struct cpu *c, unsigned i)
{
	struct doca_buf *b;
	uint8_t *at = c->memory + BYTES - (i + 1) * LARGEST;

	fill_frame(at, 60 + i, i);
	OK(doca_buf_inventory_buf_get_by_data(c->bufs, c->map, at, 60 + i, &b));
	return b;
}

static void check_frame(struct cpu *c, unsigned i)
{
	uint8_t frame[LARGEST], got[65536];

	fill_frame(frame, 60 + i, i);
	CHECK_EQ(peer_receives(&c->net, got), 60 + i);
	CHECK_EQ(memcmp(got, frame, 60 + i), 0);
}

TEST(cpu_tasks_and_batches_send_frames_in_order)
{
	struct doca_buf *bufs[FRAMES], **frames;
	union doca_data *each;
	struct doca_task_batch *batch;

	FIXTURE(cpu, c, open_cpu, 8, 64);
	start_txq(&c);
	for (unsigned i = 0; i < FRAMES; i++) {
		struct doca_eth_txq_task_send *task;

		bufs[i] = frame_to_send(&c, i);
		OK(doca_eth_txq_task_send_allocate_init(c.txq, bufs[i], (union doca_data){.u64 = i},
							&task));
		OK(doca_task_submit(doca_eth_txq_task_send_as_doca_task(task)));
	}
	progress_until(&c, &c.sent, FRAMES);
	OK(doca_eth_txq_task_batch_send_allocate(c.txq, FRAMES, (union doca_data){.u64 = 35}, &frames,
						 &each, &batch));
	for (unsigned i = 0; i < FRAMES; i++) {
		frames[i] = bufs[i];
		each[i].u64 = i;
	}
	OK(doca_task_batch_submit(batch));
	progress_until(&c, &c.sent, 2 * FRAMES);
	for (unsigned i = 0; i < 2 * FRAMES; i++)
		check_frame(&c, i % FRAMES);
	for (unsigned i = 0; i < FRAMES; i++)
		OK(doca_buf_dec_refcount(bufs[i], NULL));
}

TEST(cpu_tasks_that_cannot_be_sent_are_refused)
{
	struct doca_eth_txq_task_send *task;
	struct doca_task_batch *batch;
	struct doca_buf *a, *b, **frames;
	union doca_data *each, none = {0};

	FIXTURE(cpu, c, open_cpu, 8, 64);
	REFUSED(doca_eth_txq_task_send_allocate_init(c.txq, NULL, none, &task), INVALID_VALUE);
	a = frame_to_send(&c, 0);
	b = frame_to_send(&c, 1);
	REFUSED(doca_eth_txq_task_send_allocate_init(c.txq, a, none, &task), BAD_STATE);
	start_txq(&c);
	OK(doca_eth_txq_task_send_allocate_init(c.txq, a, none, &task));
	OK(doca_buf_set_data_len(a, 13));
	REFUSED(doca_task_submit(doca_eth_txq_task_send_as_doca_task(task)), INVALID_VALUE);
	OK(doca_buf_set_data_len(a, 60));
	OK(doca_buf_chain_list(a, b));
	REFUSED(doca_task_submit(doca_eth_txq_task_send_as_doca_task(task)), INVALID_VALUE);
	OK(doca_buf_unchain_list(a, b));
	REFUSED(doca_eth_txq_task_batch_send_allocate(c.txq, 17, none, &frames, &each, &batch),
		INVALID_VALUE);
	OK(doca_eth_txq_task_batch_send_allocate(c.txq, 2, none, &frames, &each, &batch));
	frames[0] = a; /* the second one was not set: neither is sent */
	REFUSED(doca_task_batch_submit(batch), INVALID_VALUE);
	doca_task_batch_free(batch);
	OK(doca_task_submit(doca_eth_txq_task_send_as_doca_task(task)));
	progress_until(&c, &c.sent, 1);
	check_frame(&c, 0);
	OK(doca_buf_dec_refcount(a, NULL));
	OK(doca_buf_dec_refcount(b, NULL));
}

/* ---- large frames ---- */

#define PAYLOAD 2500u
#define MSS	1000u
#define HEADERS (14u + 20 + 20)

static void large_sent(struct doca_eth_txq_task_lso_send *task, union doca_data data, union doca_data ctx)
{
	struct doca_buf *payload;

	OK(doca_eth_txq_task_lso_send_get_pkt_payload(task, &payload));
	CHECK_EQ(payload, data.ptr);
	OK(doca_task_get_status(doca_eth_txq_task_lso_send_as_doca_task(task)));
	((struct cpu *)ctx.ptr)->sent++;
}

static void large_not_sent(struct doca_eth_txq_task_lso_send *task, union doca_data data, union doca_data ctx)
{
	(void)data;
	CHECK_EQ(doca_task_get_status(doca_eth_txq_task_lso_send_as_doca_task(task)), DOCA_ERROR_IO_FAILED);
	((struct cpu *)ctx.ptr)->not_sent++;
}

static void large_batch_sent(struct doca_task_batch *batch, uint16_t n, union doca_data ctx,
			     union doca_data data, union doca_data *each, struct doca_buf **payloads,
			     struct doca_gather_list **headers, doca_error_t *results)
{
	CHECK_EQ(data.u64, 36);
	for (uint16_t i = 0; i < n; i++) {
		CHECK_EQ(each[i].u64, i);
		CHECK(payloads[i] && headers[i]);
		OK(results[i]);
	}
	((struct cpu *)ctx.ptr)->sent += n;
	doca_task_batch_free(batch);
}

static void large_batch_not_sent(struct doca_task_batch *batch, uint16_t n, union doca_data ctx,
				 union doca_data data, union doca_data *each, struct doca_buf **payloads,
				 struct doca_gather_list **headers, doca_error_t *results)
{
	(void)batch, (void)n, (void)ctx, (void)data, (void)each, (void)payloads, (void)headers, (void)results;
	CHECK(!"a batch failed");
}

static void start_large(struct cpu *c)
{
	OK(doca_eth_txq_set_mss(c->txq, MSS));
	OK(doca_eth_txq_set_max_lso_header_size(c->txq, HEADERS));
	OK(doca_eth_txq_set_l3_chksum_offload(c->txq, 1));
	OK(doca_eth_txq_set_l4_chksum_offload(c->txq, 1));
	OK(doca_eth_txq_task_lso_send_set_conf(c->txq, large_sent, large_not_sent, 2));
	OK(doca_eth_txq_task_batch_lso_send_set_conf(c->txq, DOCA_TASK_BATCH_MAX_TASKS_NUMBER_16, 1,
						     large_batch_sent, large_batch_not_sent));
	start_txq(c);
}

static struct doca_buf *payload_to_send(struct cpu *c)
{
	struct doca_buf *b;

	for (unsigned i = 0; i < PAYLOAD; i++)
		c->memory[i] = (uint8_t)(i * 7);
	OK(doca_buf_inventory_buf_get_by_data(c->bufs, c->map, c->memory, PAYLOAD, &b));
	return b;
}

static uint32_t at32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The three frames of a payload: 1,000, 1,000 and 500 bytes of it, with what TCP needs to put them together. */
static void check_parts(struct cpu *c)
{
	uint8_t got[65536];

	for (unsigned i = 0; i < 3; i++) {
		const size_t size = HEADERS + (i < 2 ? MSS : PAYLOAD % MSS);
		const uint8_t *ip = got + 14, *tcp = ip + 20;

		CHECK_EQ(peer_receives(&c->net, got), size);
		CHECK_EQ(at32(ip) & 0xffff, size - 14);
		CHECK_EQ(at32(ip + 4) >> 16, (0xffff + i) & 0xffff); /* identification */
		CHECK_EQ(sum(ip, 20, 0), 0xffff);
		CHECK_EQ(at32(tcp + 4), 0xfffffff0u + i * MSS); /* sequence number */
		CHECK_EQ(tcp[13], i == 0 ? 0x90 : i == 1 ? 0x10 : 0x19); /* CWR first; FIN, PSH last */
		CHECK_EQ(sum(tcp, size - 34, 6 + (uint32_t)size - 34 + sum(ip + 12, 8, 0)), 0xffff);
		for (unsigned j = 0; j < size - HEADERS; j++)
			CHECK_EQ(got[HEADERS + j], (uint8_t)((i * MSS + j) * 7));
	}
}

TEST(cpu_large_frames_are_sent_in_parts)
{
	static const uint8_t macs[14] = {2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 8, 0};
	uint8_t ip_tcp[40] = {0x45, 0, 0, 0, 0xff, 0xff, 0, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1};
	struct doca_gather_list second = {.addr = ip_tcp, .len = sizeof(ip_tcp)},
				first = {.addr = (void *)macs, .len = 14, .next = &second}, **headers;
	struct doca_eth_txq_task_lso_send *task;
	struct doca_task_batch *batch;
	union doca_data *each;
	struct doca_buf **payloads;

	memcpy(ip_tcp + 24, "\xff\xff\xff\xf0", 4);
	ip_tcp[32] = 0x50;
	ip_tcp[33] = 0x99;
	FIXTURE(cpu, c, open_cpu, 8, 64);
	start_large(&c);
	struct doca_buf *b = payload_to_send(&c);
	OK(doca_eth_txq_task_lso_send_allocate_init(c.txq, b, &first, (union doca_data){.ptr = b}, &task));
	for (int i = 1; i <= 2; i++) {
		OK(doca_task_submit(doca_eth_txq_task_lso_send_as_doca_task(task)));
		progress_until(&c, &c.sent, i);
		check_parts(&c);
	}
	doca_task_free(doca_eth_txq_task_lso_send_as_doca_task(task));
	OK(doca_eth_txq_task_batch_lso_send_allocate(c.txq, 2, (union doca_data){.u64 = 36}, &payloads,
						     &headers, &each, &batch));
	for (uint64_t i = 0; i < 2; i++) {
		payloads[i] = b;
		headers[i] = &first;
		each[i].u64 = i;
	}
	OK(doca_task_batch_submit(batch));
	progress_until(&c, &c.sent, 4);
	check_parts(&c);
	check_parts(&c);
	OK(doca_buf_dec_refcount(b, NULL));
}

/* The results of a task are where its entries are: until it has ended, they are not written over. */
TEST(cpu_places_of_large_frames_are_free_when_their_task_has_ended)
{
	enum { TASKS = 16, PARTS = 32768 / TASKS };
	static uint8_t bytes[HEADERS];
	struct doca_gather_list headers = {.addr = bytes, .len = 14};
	struct doca_eth_txq_task_lso_send *large[TASKS + 1];
	struct doca_eth_txq_task_send *small;
	struct doca_buf *b;

	FIXTURE(cpu, c, open_cpu, 8, 64);
	OK(doca_eth_txq_set_mss(c.txq, 1));
	OK(doca_eth_txq_set_max_lso_header_size(c.txq, HEADERS));
	OK(doca_eth_txq_task_lso_send_set_conf(c.txq, large_sent, large_not_sent, TASKS + 1));
	start_txq(&c);
	OK(doca_buf_inventory_buf_get_by_data(c.bufs, c.map, c.memory, PARTS, &b));
	for (int i = 0; i <= TASKS; i++)
		OK(doca_eth_txq_task_lso_send_allocate_init(c.txq, b, &headers, (union doca_data){.ptr = b}, &large[i]));
	OK(doca_eth_txq_task_send_allocate_init(c.txq, b, (union doca_data){0}, &small));
	for (int i = 0; i < TASKS; i++)
		OK(doca_task_submit(doca_eth_txq_task_lso_send_as_doca_task(large[i])));
	usleep(20000); /* many are sent, none has ended */
	REFUSED(doca_task_submit(doca_eth_txq_task_send_as_doca_task(small)), AGAIN);
	REFUSED(doca_task_submit(doca_eth_txq_task_lso_send_as_doca_task(large[TASKS])), AGAIN);
	progress_until(&c, &c.sent, TASKS);
	OK(doca_task_submit(doca_eth_txq_task_lso_send_as_doca_task(large[TASKS])));
	progress_until(&c, &c.sent, TASKS + 1);
	for (int i = 0; i <= TASKS; i++)
		doca_task_free(doca_eth_txq_task_lso_send_as_doca_task(large[i]));
	doca_task_free(doca_eth_txq_task_send_as_doca_task(small));
	OK(doca_buf_dec_refcount(b, NULL));
}

TEST(cpu_large_frames_that_cannot_be_sent_are_refused)
{
	uint8_t bytes[HEADERS + 1] = {0};
	struct doca_gather_list headers = {.addr = bytes, .len = sizeof(bytes)};
	struct doca_eth_txq_task_lso_send *task;
	struct doca_buf *b;

	FIXTURE(cpu, c, open_cpu, 8, 64);
	REFUSED(doca_eth_txq_set_mss(c.txq, 0), INVALID_VALUE);
	REFUSED(doca_eth_txq_set_max_lso_header_size(c.txq, 257), INVALID_VALUE);
	start_large(&c);
	REFUSED(doca_eth_txq_set_mss(c.txq, 1), BAD_STATE);
	OK(doca_buf_inventory_buf_get_by_addr(c.bufs, c.map, c.memory, PAYLOAD, &b));
	REFUSED(doca_eth_txq_task_lso_send_allocate_init(c.txq, b, NULL, (union doca_data){0}, &task),
		INVALID_VALUE);
	OK(doca_eth_txq_task_lso_send_allocate_init(c.txq, b, &headers, (union doca_data){0}, &task));
	struct doca_task *as_task = doca_eth_txq_task_lso_send_as_doca_task(task);
	headers.len = 14;
	REFUSED(doca_task_submit(as_task), INVALID_VALUE); /* no payload */
	OK(doca_buf_set_data_len(b, PAYLOAD));
	headers.len = sizeof(bytes); /* one more than the queue takes */
	REFUSED(doca_task_submit(as_task), INVALID_VALUE);
	headers.len = 13;
	REFUSED(doca_task_submit(as_task), INVALID_VALUE);
	headers.len = 14;
	delete_interface();
	OK(doca_task_submit(as_task));
	progress_until(&c, &c.not_sent, 1);
	doca_task_free(as_task);
	OK(doca_buf_dec_refcount(b, NULL));
}

TEST(cpu_tasks_receive_frames)
{
	struct cpu c = {0};
	struct doca_buf *bufs[FRAMES];
	uint8_t frame[LARGEST];
	uint64_t i;

	open_cpu(&c, 2, 512); /* fewer than its tasks */
	OK(doca_eth_rxq_set_type(c.rxq, DOCA_ETH_RXQ_TYPE_REGULAR));
	OK(doca_eth_rxq_task_recv_set_conf(c.rxq, task_received, task_not_received, FRAMES));
	OK(doca_eth_rxq_set_metadata_num(c.rxq, 1));
	OK(doca_eth_rxq_set_flow_tag(c.rxq, 1));
	OK(doca_eth_rxq_set_rx_hash(c.rxq, 1));
	OK(doca_eth_rxq_set_timestamp(c.rxq, 1));
	start_rxq(&c);
	for (i = 0; i < FRAMES; i++) {
		struct doca_eth_rxq_task_recv *task;

		OK(doca_buf_inventory_buf_get_by_addr(c.bufs, c.map, c.memory + i * 512, 400, &bufs[i]));
		OK(doca_eth_rxq_task_recv_allocate_init(c.rxq, bufs[i], (union doca_data){.u64 = i},
							&task));
		OK(doca_task_submit(doca_eth_rxq_task_recv_as_doca_task(task)));
	}
	fill_frame(frame, 401, 0);
	peer_sends(&c.net, frame, 401); /* too long for the buffer */
	for (i = 0; i < FRAMES - 2; i++) {
		fill_frame(frame, 300 + i, (unsigned)i);
		peer_sends(&c.net, frame, 300 + i);
	}
	progress_until(&c, &c.received, FRAMES - 2);
	for (i = 0; i < FRAMES - 2; i++) {
		size_t size;

		fill_frame(frame, 300 + i, (unsigned)i);
		CHECK_EQ(c.packets[i], bufs[i]);
		OK(doca_buf_get_data_len(bufs[i], &size));
		CHECK_EQ(size, 300 + i);
		CHECK_EQ(memcmp(c.memory + i * 512, frame, 300 + i), 0);
	}
	stop_queue(&c, doca_eth_rxq_as_doca_ctx(c.rxq));
	CHECK_EQ(c.errors, 2);
	for (i = 0; i < FRAMES; i++)
		OK(doca_buf_dec_refcount(bufs[i], NULL));
	cpu_close(&c);
}

/* A managed queue of 8 packets, with room around them. */
static void open_managed(struct cpu *c)
{
	uint32_t size;

	open_cpu(c, 8, 200);
	OK(doca_eth_rxq_set_type(c->rxq, DOCA_ETH_RXQ_TYPE_MANAGED_MEMPOOL));
	OK(doca_eth_rxq_estimate_packet_buf_size(DOCA_ETH_RXQ_TYPE_MANAGED_MEMPOOL, 1000, 100, 200, 8,
						 15, 32, 16, &size));
	CHECK_EQ(size, 8 * 256);
	OK(doca_eth_rxq_set_packet_headroom(c->rxq, 32));
	OK(doca_eth_rxq_set_packet_tailroom(c->rxq, 16));
	OK(doca_eth_rxq_set_pkt_buf(c->rxq, c->map, 64, size));
}

static void check_packet(struct cpu *c, int at, unsigned seed)
{
	uint8_t frame[150];
	uint8_t *head, *data;
	size_t size, len;

	fill_frame(frame, sizeof(frame), seed);
	OK(doca_buf_get_head(c->packets[at], (void **)&head));
	OK(doca_buf_get_data(c->packets[at], (void **)&data));
	OK(doca_buf_get_data_len(c->packets[at], &size));
	OK(doca_buf_get_len(c->packets[at], &len));
	CHECK(data == head + 32 && head >= c->memory + 64 && head < c->memory + 64 + 8 * 256);
	CHECK(size == 150 && len == 32 + 150 + 16);
	CHECK_EQ(memcmp(data, frame, size), 0);
}

static void peer_sends_frames(struct cpu *c, unsigned first, unsigned n)
{
	uint8_t frame[150];

	for (unsigned i = first; i < first + n; i++) {
		fill_frame(frame, sizeof(frame), i);
		peer_sends(&c->net, frame, sizeof(frame));
	}
}

/* Waits until n frames have matched the rule. */
static void matched(struct cpu *c, uint64_t n)
{
	struct doca_flow_resource_query seen = {0};

	for (double end = now_s() + 30; seen.counter.total_pkts < n; sched_yield()) {
		OK(doca_flow_resource_query_entry(c->net.entry, &seen));
		CHECK(now_s() < end);
	}
}

TEST(cpu_events_bring_frames_and_places_are_free_in_any_order)
{
	FIXTURE(cpu, c, open_managed);
	OK(doca_eth_rxq_event_managed_recv_register(c.rxq, (union doca_data){.ptr = &c}, event_received,
						    event_failed));
	start_rxq(&c);
	peer_sends_frames(&c, 0, 10); /* 2 more than it has places */
	matched(&c, 10);
	progress_until(&c, &c.received, 8);
	for (int i = 0; i < 8; i++)
		check_packet(&c, i, (unsigned)i);
	CHECK(!doca_pe_progress(c.pe));
	OK(doca_buf_dec_refcount(c.packets[7], NULL));
	OK(doca_buf_dec_refcount(c.packets[3], NULL));
	doca_pe_progress(c.pe); /* posts them */
	peer_sends_frames(&c, 20, 2);
	progress_until(&c, &c.received, 10);
	check_packet(&c, 8, 20);
	check_packet(&c, 9, 21);
	check_packet(&c, 0, 0);
	OK(doca_ctx_stop(doca_eth_rxq_as_doca_ctx(c.rxq)));
	REFUSED(doca_eth_rxq_destroy(c.rxq), IN_USE);
	REFUSED(doca_ctx_start(doca_eth_rxq_as_doca_ctx(c.rxq)), IN_USE);
	for (int i = 0; i < 10; i++)
		if (i != 3 && i != 7)
			OK(doca_buf_dec_refcount(c.packets[i], NULL));
	OK(doca_ctx_start(doca_eth_rxq_as_doca_ctx(c.rxq)));
	OK(doca_ctx_stop(doca_eth_rxq_as_doca_ctx(c.rxq)));
}

TEST(cpu_batches_bring_what_is_there_from_the_minimum_on)
{
	struct pollfd fd = {.events = POLLIN};

	FIXTURE(cpu, c, open_managed);
	OK(doca_eth_rxq_event_batch_managed_recv_register(
		c.rxq, DOCA_EVENT_BATCH_EVENTS_NUMBER_4, DOCA_EVENT_BATCH_EVENTS_NUMBER_2,
		(union doca_data){.ptr = &c}, batch_received, batch_failed));
	OK(doca_eth_rxq_set_metadata_num(c.rxq, 1));
	OK(doca_eth_rxq_set_flow_tag(c.rxq, 1));
	OK(doca_eth_rxq_set_rx_hash(c.rxq, 1));
	OK(doca_eth_rxq_set_timestamp(c.rxq, 1));
	start_rxq(&c);
	peer_sends_frames(&c, 0, 1);
	matched(&c, 1);
	CHECK(!doca_pe_progress(c.pe));
	OK(doca_pe_get_notification_handle(c.pe, &fd.fd));
	OK(doca_pe_request_notification(c.pe));
	peer_sends_frames(&c, 1, 5);
	matched(&c, 6);
	CHECK_EQ(poll(&fd, 1, 30000), 1);
	OK(doca_pe_clear_notification(c.pe, fd.fd));
	progress_until(&c, &c.received, 4);
	CHECK_EQ(c.batch, 4);
	struct doca_buf **first = c.array;
	progress_until(&c, &c.received, 6);
	CHECK_EQ(c.batch, 2);
	for (int i = 0; i < 6; i++)
		check_packet(&c, i, (unsigned)i);
	OK(doca_buf_dec_refcount(first[2], NULL)); /* the array's others are returned with it */
	doca_eth_rxq_event_batch_managed_recv_pkt_array_free(first);
	doca_eth_rxq_event_batch_managed_recv_pkt_array_free(first);
	CHECK_SAYS(softdoca_last_refusal(), "is not an array of packets");
	doca_eth_rxq_event_batch_managed_recv_pkt_array_free(c.array);
	for (int i = 0; i < 5; i++) {
		doca_pe_progress(c.pe); /* posts the places that are free */
		peer_sends_frames(&c, 0, 8);
		matched(&c, 14 + 8 * i);
		progress_until(&c, &c.received, 10 + 8 * i);
		doca_eth_rxq_event_batch_managed_recv_pkt_array_free(c.array);
		progress_until(&c, &c.received, 14 + 8 * i);
		doca_eth_rxq_event_batch_managed_recv_pkt_array_free(c.array);
	}
}

TEST(cpu_queues_of_an_interface_that_goes_away_tell_it)
{
	struct doca_eth_txq_task_send *task;
	struct doca_task_batch *batch;
	struct doca_buf **frames;
	union doca_data *each, none = {0};

	FIXTURE(cpu, c, open_managed);
	OK(doca_eth_rxq_event_batch_managed_recv_register(
		c.rxq, DOCA_EVENT_BATCH_EVENTS_NUMBER_8, DOCA_EVENT_BATCH_EVENTS_NUMBER_8,
		(union doca_data){.ptr = &c}, batch_received, batch_failed));
	OK(doca_eth_rxq_set_metadata_num(c.rxq, 1));
	OK(doca_eth_rxq_set_flow_tag(c.rxq, 1));
	OK(doca_eth_rxq_set_rx_hash(c.rxq, 1));
	OK(doca_eth_rxq_set_timestamp(c.rxq, 1));
	start_rxq(&c);
	start_queue(&c, doca_eth_txq_as_doca_ctx(c.txq));
	peer_sends_frames(&c, 0, 3); /* fewer than the minimum, delivered all the same */
	matched(&c, 3);
	delete_interface();
	progress_until(&c, &c.received, 3);
	doca_eth_rxq_event_batch_managed_recv_pkt_array_free(c.array);
	progress_until(&c, &c.errors, 1);
	struct doca_buf *b = frame_to_send(&c, 0);
	OK(doca_eth_txq_task_send_allocate_init(c.txq, b, none, &task));
	OK(doca_task_submit(doca_eth_txq_task_send_as_doca_task(task)));
	OK(doca_eth_txq_task_batch_send_allocate(c.txq, 2, none, &frames, &each, &batch));
	frames[0] = frames[1] = b;
	OK(doca_task_batch_submit(batch));
	progress_until(&c, &c.not_sent, 3);
	CHECK_EQ(c.errors, 1);
	OK(doca_buf_dec_refcount(b, NULL));
}

TEST(settings_of_cpu_queues_are_checked)
{
	uint32_t n;
	const uint32_t *tags;
	uint16_t header;
	union doca_data none = {0};
	struct doca_flow_pipe_cfg *pipe;

	FIXTURE(cpu, c, open_managed);
	struct doca_devinfo *info = doca_dev_as_devinfo(c.net.dev);
	struct doca_ctx *ctx = doca_eth_rxq_as_doca_ctx(c.rxq);

	OK(doca_eth_rxq_cap_get_max_burst_size(info, &n));
	CHECK_EQ(n, 65536);
	OK(doca_eth_rxq_cap_get_max_packet_size(info, &n));
	CHECK_EQ(n, 65536);
	OK(doca_eth_rxq_cap_is_type_supported(info, DOCA_ETH_RXQ_TYPE_REGULAR,
					      DOCA_ETH_RXQ_DATA_PATH_TYPE_CPU));
	REFUSED(doca_eth_rxq_cap_is_type_supported(info, DOCA_ETH_RXQ_TYPE_CYCLIC,
						   DOCA_ETH_RXQ_DATA_PATH_TYPE_CPU),
		NOT_SUPPORTED);
	OK(doca_eth_txq_cap_get_max_burst_size(info, 1, 0, &n));
	CHECK_EQ(n, 32768);
	REFUSED(doca_eth_txq_cap_get_max_burst_size(info, 2, 0, &n), NOT_SUPPORTED);
	OK(doca_eth_txq_cap_get_max_lso_header_size(info, &header));
	CHECK_EQ(header, 256);
	OK(doca_eth_txq_cap_is_type_supported(info, DOCA_ETH_TXQ_TYPE_REGULAR,
					      DOCA_ETH_TXQ_DATA_PATH_TYPE_CPU));
	REFUSED(doca_eth_txq_task_send_set_conf(c.txq, NULL, task_not_sent, 1), INVALID_VALUE);
	REFUSED(doca_eth_txq_task_send_set_conf(c.txq, task_sent, task_not_sent, 32769), INVALID_VALUE);
	REFUSED(doca_eth_rxq_set_metadata_num(c.rxq, 2), INVALID_VALUE);
	REFUSED(doca_task_batch_submit(NULL), INVALID_VALUE);
	/* no events */
	REFUSED(doca_eth_rxq_event_managed_recv_get_flow_tag((void *)c.memory, &n), INVALID_VALUE);
	REFUSED(doca_eth_rxq_event_managed_recv_get_status((void *)c.memory), INVALID_VALUE);
	REFUSED(doca_eth_rxq_event_batch_managed_recv_get_rx_hash_array((void *)c.memory, &tags), INVALID_VALUE);
	REFUSED(doca_eth_txq_gpu_event_error_send_packet_get_position((void *)c.memory, &header), INVALID_VALUE);
	REFUSED(doca_eth_txq_gpu_event_notify_send_packet_get_position((void *)c.memory, &header),
		INVALID_VALUE);
	OK(doca_pe_connect_ctx(c.pe, ctx));
	REFUSED(doca_ctx_start(ctx), BAD_STATE); /* no callbacks */
	REFUSED(doca_eth_rxq_event_batch_managed_recv_register(
			c.rxq, DOCA_EVENT_BATCH_EVENTS_NUMBER_32, DOCA_EVENT_BATCH_EVENTS_NUMBER_16, none,
			batch_received, batch_failed),
		INVALID_VALUE); /* a queue of 8 packets */
	OK(doca_eth_rxq_event_managed_recv_register(c.rxq, none, event_received, event_failed));
	REFUSED(doca_eth_rxq_event_batch_managed_recv_register(
			c.rxq, DOCA_EVENT_BATCH_EVENTS_NUMBER_2, DOCA_EVENT_BATCH_EVENTS_NUMBER_1, none,
			batch_received, batch_failed),
		ALREADY_EXIST);
	OK(doca_eth_rxq_set_packet_headroom(c.rxq, 1000)); /* more than its memory has */
	REFUSED(doca_ctx_start(ctx), BAD_STATE);
	OK(doca_eth_rxq_set_type(c.rxq, DOCA_ETH_RXQ_TYPE_CYCLIC));
	REFUSED(doca_ctx_start(ctx), NOT_SUPPORTED);
	OK(doca_eth_rxq_set_type(c.rxq, DOCA_ETH_RXQ_TYPE_REGULAR));
	REFUSED(doca_ctx_start(ctx), BAD_STATE); /* no tasks */
	OK(doca_flow_pipe_cfg_create(&pipe, c.net.port));
	REFUSED(doca_flow_pipe_cfg_set_actions(pipe, (struct doca_flow_actions *[]){NULL}, NULL, NULL, 1),
		NOT_SUPPORTED);
	OK(doca_flow_pipe_cfg_destroy(pipe));
}

/* ---- two devices ---- */

/* Starts a send queue on each of two functions; returns what the start of the second returned. */
static doca_error_t start_two(struct cpu *c, const char *net_of_second)
{
	static char memory[4096], path[64];
	struct doca_devinfo **list;
	uint32_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/tmp/test_eth_devices_%d", (int)getpid());
	f = fopen(path, "w");
	CHECK(f && fprintf(f, "side=both pci=03:00.0\nside=both pci=03:00.1 %s\n", net_of_second) > 0 && !fclose(f));
	setenv("SOFTDOCA_DEVICES", path, 1);
	OK(doca_devinfo_create_list(&list, &n));
	CHECK_EQ(n, 2);
	unlink(path);
	for (int i = 0; i < 2; i++) {
		c[i].memory = (uint8_t *)memory;
		OK(doca_dev_open(list[i], &c[i].net.dev));
		OK(doca_pe_create(&c[i].pe));
		OK(doca_eth_txq_create(c[i].net.dev, 8, &c[i].txq));
		OK(doca_eth_txq_task_send_set_conf(c[i].txq, task_sent, task_not_sent, 1));
	}
	start_queue(&c[0], doca_eth_txq_as_doca_ctx(c[0].txq));
	OK(doca_pe_connect_ctx(c[1].pe, doca_eth_txq_as_doca_ctx(c[1].txq)));
	OK(doca_ctx_set_user_data(doca_eth_txq_as_doca_ctx(c[1].txq), (union doca_data){.ptr = &c[1]}));
	return doca_ctx_start(doca_eth_txq_as_doca_ctx(c[1].txq));
}

TEST(two_devices_of_a_process_send_by_an_interface_each)
{
	struct cpu c[2] = {0};
	struct doca_eth_txq_task_send *task;
	struct doca_buf *b;
	uint8_t got[65536];

	no_gpu();
	if (!enter_namespace())
		exit(0);
	OK(start_two(c, "net=tap:dg1"));
	open_peer(&c[0].net, NAME);
	open_peer(&c[1].net, "dg1");
	for (unsigned i = 0; i < 2; i++) {
		c[i].map = a_map(c[i].net.dev, c[i].memory, 4096, READ_WRITE);
		OK(doca_mmap_start(c[i].map));
		OK(doca_buf_inventory_create(1, &c[i].bufs));
		OK(doca_buf_inventory_start(c[i].bufs));
		fill_frame(c[i].memory, 60 + i, i);
		OK(doca_buf_inventory_buf_get_by_data(c[i].bufs, c[i].map, c[i].memory, 60 + i, &b));
		OK(doca_eth_txq_task_send_allocate_init(c[i].txq, b, (union doca_data){0}, &task));
		OK(doca_task_submit(doca_eth_txq_task_send_as_doca_task(task)));
		progress_until(&c[i], &c[i].sent, 1);
		CHECK_EQ(peer_receives(&c[i].net, got), 60 + i);
	}
}

TEST(an_interface_that_another_device_of_the_process_has_is_refused)
{
	struct cpu c[2] = {0};

	no_gpu();
	if (!enter_namespace())
		exit(0);
	REFUSED(start_two(c, ""), IN_USE);
	CHECK(strstr(softdoca_last_refusal(), "net="));
}

TEST_MAIN(run_tests)
