// SPDX-License-Identifier: Apache-2.0
/*
 * A GPU that answers ping: a kernel receives ARP requests and ICMP echo requests for an IPv4 address,
 * turns each into its answer in place, and sends it back. The CPU starts the kernel, and waits for
 * Ctrl-C or for --count answers to echo requests.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <unistd.h>

#include <doca_gpunetio_dev_eth_rxq.cuh>
#include <doca_gpunetio_dev_eth_txq.cuh>

#include "ethernet.h"

#define THREADS	   32
#define TIMEOUT_NS 500000u

#define ETHER	 14u /* bytes of an Ethernet header */
#define ARP	 28u /* bytes of an ARP message for IPv4 */
#define TYPE_ARP 0x0806

/* Address of the GPU: 02:00:00 and the last bytes of its IPv4 address. */
struct station {
	uint8_t mac[6], ip[4];
};

/* Reads --ip. */
static inline doca_error_t read_station(const char *address, struct station *own)
{
	*own = {{2}, {}};
	if (inet_pton(AF_INET, address, own->ip) != 1) {
		fprintf(stderr, "--ip is %s; it must be an address like 10.0.0.2\n", address);
		return DOCA_ERROR_INVALID_VALUE;
	}
	memcpy(own->mac + 3, own->ip + 1, 3);
	return DOCA_SUCCESS;
}

static __device__ bool same(const uint8_t *a, const uint8_t *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (a[i] != b[i])
			return false;
	return true;
}

static __device__ void copy(uint8_t *to, const uint8_t *from, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		to[i] = from[i];
}

static __device__ uint32_t big16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

/* Returns the frame to its sender. */
static __device__ void turn(uint8_t *frame, const struct station &own)
{
	copy(frame, frame + 6, 6);
	copy(frame + 6, own.mac, 6);
}

/* RFC 826. Hardware and protocol are Ethernet and IPv4, the operation is a request for our address. */
static __device__ bool answer_arp(uint8_t *frame, uint32_t bytes, const struct station &own)
{
	const uint8_t request[8] = {0, 1, 8, 0, 6, 4, 0, 1};
	uint8_t *arp = frame + ETHER;

	if (bytes < ETHER + ARP || !same(arp, request, 8) || !same(arp + 24, own.ip, 4))
		return false;
	turn(frame, own);
	arp[7] = 2; /* reply */
	copy(arp + 18, arp + 8, 10);
	copy(arp + 8, own.mac, 6);
	copy(arp + 14, own.ip, 4);
	return true;
}

/* Memory of GPU and CPU. */
struct state {
	uint32_t stop, ended, failed;
	uint64_t arp, echo, other;
};

/* RFC 792. The IPv4 checksum stays right when the addresses are exchanged; that of ICMP grows by what
 * the type lost (RFC 1624). */
static __device__ bool answer_echo(uint8_t *frame, uint32_t bytes, const struct station &own)
{
	uint8_t *ip = frame + ETHER;
	const uint32_t header = bytes < ETHER + 20 ? 0 : (ip[0] & 15) * 4, all = header ? big16(ip + 2) : 0;
	uint8_t *icmp = ip + header;

	if (header < 20 || ip[0] >> 4 != 4 || ip[9] != 1 || all < header + 8 || ETHER + all > bytes)
		return false;
	if ((big16(ip + 6) & 0x3fff) || !same(ip + 16, own.ip, 4) || icmp[0] != 8)
		return false;
	turn(frame, own);
	copy(ip + 16, ip + 12, 4);
	copy(ip + 12, own.ip, 4);
	const uint32_t sum = big16(icmp + 2) + 0x0800;
	icmp[0] = 0;
	icmp[2] = (uint8_t)((sum + (sum >> 16)) >> 8);
	icmp[3] = (uint8_t)(sum + (sum >> 16));
	return true;
}

/* Answers packet i of those received. Returns whether there is an answer to send. */
static __device__ bool answer(uint8_t *frame, uint32_t bytes, const struct station &own,
			      struct state *state)
{
	const bool arp = bytes >= ETHER && big16(frame + 12) == TYPE_ARP &&
			 answer_arp(frame, bytes, own);
	const bool echo = !arp && bytes >= ETHER && big16(frame + 12) == DOCA_FLOW_ETHER_TYPE_IPV4 &&
			  answer_echo(frame, bytes, own);

	atomicAdd((unsigned long long *)(arp ? &state->arp : echo ? &state->echo : &state->other), 1);
	return arp || echo;
}

/* One block. Each thread answers the packet of its number, then one waits until all are sent, since the
 * next receive gives the packets' places back. */
static __global__ void ping(struct doca_gpu_eth_rxq *rxq, struct doca_gpu_eth_txq *txq, uint32_t key,
			    struct station own, uint64_t most, struct state *state)
{
	__shared__ uint64_t first;
	__shared__ uint32_t count, sent, failed;
	__shared__ struct doca_gpu_dev_eth_rxq_attr attr[THREADS];
	doca_gpu_dev_eth_ticket_t ticket;

	if (threadIdx.x == 0)
		failed = 0;
	__syncthreads();
	while (!failed && !DOCA_GPUNETIO_VOLATILE(state->stop) &&
	       (!most || DOCA_GPUNETIO_VOLATILE(state->echo) < most)) {
		bool answered = false;
		const doca_error_t got =
			doca_gpu_dev_eth_rxq_recv<DOCA_GPUNETIO_ETH_EXEC_SCOPE_BLOCK,
						  DOCA_GPUNETIO_ETH_MCST_AUTO,
						  DOCA_GPUNETIO_ETH_NIC_HANDLER_AUTO,
						  DOCA_GPUNETIO_ETH_RX_ATTR_BYTES>(
				rxq, THREADS, TIMEOUT_NS, &first, &count, attr);
		if (threadIdx.x < count) {
			uint8_t *frame = (uint8_t *)doca_gpu_dev_eth_rxq_get_pkt_addr(
				rxq, first + threadIdx.x);
			answered = answer(frame, attr[threadIdx.x].bytes, own, state);
			if (answered)
				doca_gpu_dev_eth_txq_send(
					txq, (uint64_t)frame, key, attr[threadIdx.x].bytes,
					DOCA_GPUNETIO_ETH_SEND_FLAG_NOTIFY, &ticket);
		}
		const int answers = __syncthreads_count(answered);
		if (threadIdx.x == 0)
			failed = got != DOCA_SUCCESS ||
				 doca_gpu_dev_eth_txq_poll_completion(
					 txq, answers, DOCA_GPUNETIO_ETH_WAIT_FLAG_B, &sent) !=
					 DOCA_SUCCESS;
		__syncthreads();
	}
	if (threadIdx.x == 0) {
		state->failed = failed;
		__threadfence_system();
		DOCA_GPUNETIO_VOLATILE(state->ended) = 1;
	}
}

static doca_error_t run(struct ethernet *e, const struct station *own)
{
	struct state *state, *seen;

	TRY_DOCA(doca_gpu_mem_alloc(e->gpu, sizeof *state, 4096, DOCA_GPU_MEM_TYPE_GPU_CPU,
				    (void **)&state, (void **)&seen));
	ping<<<1, THREADS>>>(e->gpu_rxq, e->gpu_txq, e->key, *own, (uint64_t)e->options.count, state);
	TRY_CUDA(cudaGetLastError());
	printf("gpunetio_ping: %s answers\n", e->options.address);
	fflush(stdout);
	while (!stopped() && !DOCA_GPUNETIO_VOLATILE(seen->ended))
		usleep(1000);
	DOCA_GPUNETIO_VOLATILE(seen->stop) = 1;
	TRY_CUDA(cudaDeviceSynchronize());
	printf("gpunetio_ping: answered %lu ARP requests and %lu echo requests, ignored %lu frames\n",
	       (unsigned long)seen->arp, (unsigned long)seen->echo, (unsigned long)seen->other);
	return seen->failed ? DOCA_ERROR_IO_FAILED : DOCA_SUCCESS;
}

static doca_error_t ping_main(struct ethernet *e)
{
	struct station own;

	TRY(read_station(e->options.address, &own));
	TRY(ethernet_open(e));
	TRY(ethernet_receive(e, TYPE_ARP, 0));
	TRY(ethernet_receive(e, DOCA_FLOW_ETHER_TYPE_IPV4, IPPROTO_ICMP));
	return run(e, &own);
}

int main(int argc, char **argv)
{
	static struct ethernet e;

	strcpy(e.options.address, "10.0.0.2");
	doca_error_t result = sample_begin(argc, argv, "gpunetio_ping",
					   WANT_GPU | WANT_COUNT | WANT_IP, &e.options);
	if (result == DOCA_SUCCESS)
		result = ping_main(&e);
	ethernet_close(&e);
	return sample_end(result);
}
