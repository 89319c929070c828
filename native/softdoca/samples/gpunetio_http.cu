// SPDX-License-Identifier: Apache-2.0
/*
 * A GPU that serves one page: a kernel answers ARP requests and HTTP requests for an IPv4 address, at
 * --port, by its own TCP (tcp.cuh). GET of / returns the page, anything else "404 Not Found". The CPU
 * puts both into GPU memory, starts the kernel, and waits for Ctrl-C or for --count replies.
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <doca_gpunetio_dev_eth_rxq.cuh>
#include <doca_gpunetio_dev_eth_txq.cuh>

#include "tcp.cuh"

#define TIMEOUT_NS 200000u
#define PAGE_MAX   (1u << 30)

static __device__ uint64_t now_ns(void)
{
	uint64_t ns;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
	return ns;
}

/* Each thread handles the segments of its own connections, in order; the first one handles ARP as
 * well. */
static __device__ void take_packets(const struct server *v, struct outbox *out, struct connection *own,
				    struct doca_gpu_eth_rxq *rxq, uint64_t first, uint32_t count,
				    const struct doca_gpu_dev_eth_rxq_attr *attr)
{
	struct arrival a;
	for (uint32_t i = 0; i < count; i++) {
		uint8_t *frame = (uint8_t *)doca_gpu_dev_eth_rxq_get_pkt_addr(rxq, first + i);
		if (read_segment(v, frame, attr[i].bytes, &a)) {
			if (a.port % THREADS == threadIdx.x && is_right(v, &a))
				take_arrival(v, out, own, &a);
		} else if (threadIdx.x == 0 && attr[i].bytes >= ETHER &&
			   big16(frame + 12) == TYPE_ARP && answer_arp(frame, attr[i].bytes, v->own)) {
			struct segment *s = add(out);
			if (s) {
				s->flags = 0;
				s->data = frame;
				s->size = attr[i].bytes;
			}
		}
	}
}

static __device__ void serve(const struct server *v, struct outbox *out, struct connection *own)
{
	for (int i = 0; i < SLOTS; i++) {
		struct connection *c = &own[i];
		if (c->used)
			look_at_clock(v, out, c);
		if (c->used && c->resend)
			c->resend = !send_at(v, out, c, c->acked, c->mss);
		if (c->used)
			send_window(v, out, c);
		if (c->used && c->ack_due)
			emit(v, out, c, c->next, ACK, NULL, 0);
	}
}

/* All threads copy the data of each segment; then each writes headers and entries, and one submits them
 * in the order of the list. Returns whether all were sent. */
static __device__ bool send_list(const struct server *v, const struct outbox *out, uint8_t *frames,
				 struct doca_gpu_eth_txq *txq, uint32_t key, uint64_t first,
				 uint64_t completions)
{
	const uint32_t n = least(out->n, SEGMENTS);
	for (uint32_t i = 0; i < n; i++) {
		const struct segment *s = &out->list[i];
		uint8_t *to = frames + i * FRAME_BYTES + (s->flags ? TCP : 0);
		for (uint32_t at = threadIdx.x; at < s->size; at += THREADS)
			to[at] = s->data[at];
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
		uint8_t *frame = frames + i * FRAME_BYTES;
		const uint32_t size = write_headers(v, &out->list[i], frame);
		doca_gpu_dev_eth_txq_wqe_prepare_send(
			txq, doca_gpu_dev_eth_txq_get_wqe_ptr(txq, first + i), first + i,
			(uint64_t)frame, key, size,
			i == n - 1 ? DOCA_GPUNETIO_ETH_SEND_FLAG_NOTIFY
				   : DOCA_GPUNETIO_ETH_SEND_FLAG_NONE);
	}
	__threadfence_system();
	__syncthreads();
	if (threadIdx.x || !n)
		return true;
	doca_gpu_dev_eth_txq_submit(txq, first + n);
	return doca_gpu_dev_eth_txq_poll_completion_at(txq, completions,
						       DOCA_GPUNETIO_ETH_WAIT_FLAG_B) == DOCA_SUCCESS;
}

static __device__ bool goes_on(const struct state *state, uint64_t most)
{
	return !DOCA_GPUNETIO_VOLATILE(state->stop) && !DOCA_GPUNETIO_VOLATILE(state->failed) &&
	       (!most || DOCA_GPUNETIO_VOLATILE(state->replies) < most);
}

/* One block. A round receives, lets each thread serve its connections, and sends. */
static __global__ void http(struct doca_gpu_eth_rxq *rxq, struct doca_gpu_eth_txq *txq, uint8_t *frames,
			    uint32_t key, struct server server, struct connection *connections,
			    uint64_t most)
{
	__shared__ struct outbox out;
	__shared__ struct doca_gpu_dev_eth_rxq_attr attr[THREADS];
	__shared__ uint64_t first;
	__shared__ uint32_t count, on;
	struct state *state = server.state;
	struct connection *own = connections + threadIdx.x * SLOTS;
	uint64_t sent = 0, completions = 0;

	for (int i = 0; i < SLOTS; i++)
		own[i].used = false;
	if (threadIdx.x == 0)
		out.n = 0;
	for (;;) {
		if (threadIdx.x == 0)
			on = goes_on(state, most);
		const uint64_t timeout = out.n > SEGMENTS ? 0 : TIMEOUT_NS;
		__syncthreads();
		if (!on)
			break;
		const doca_error_t got =
			doca_gpu_dev_eth_rxq_recv<DOCA_GPUNETIO_ETH_EXEC_SCOPE_BLOCK,
						  DOCA_GPUNETIO_ETH_MCST_AUTO,
						  DOCA_GPUNETIO_ETH_NIC_HANDLER_AUTO,
						  DOCA_GPUNETIO_ETH_RX_ATTR_BYTES>(
				rxq, THREADS, timeout, &first, &count, attr);
		if (threadIdx.x == 0) {
			out.n = 0;
			out.now = now_ns();
		}
		__syncthreads();
		take_packets(&server, &out, own, rxq, first, count, attr);
		serve(&server, &out, own);
		__syncthreads();
		const bool all = send_list(&server, &out, frames, txq, key, sent, completions);
		sent += least(out.n, SEGMENTS);
		completions += out.n != 0;
		if (threadIdx.x == 0 && (got != DOCA_SUCCESS || !all))
			state->failed = 1;
		__syncthreads();
	}
	if (threadIdx.x == 0) {
		__threadfence_system();
		DOCA_GPUNETIO_VOLATILE(state->ended) = 1;
	}
}

/* ---- the CPU's part ---- */

/* Reads a file behind the header of its reply. The caller frees the memory. */
static doca_error_t read_reply(const char *path, char **reply, size_t *size)
{
	const char *format = "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
			     "Connection: close\r\n\r\n";
	const char text[] = "This page was sent by a GPU.\n";
	struct stat file = {};
	size_t body = sizeof text - 1;

	if (*path && stat(path, &file))
		return failed_system("stat of", path);
	if (*path)
		body = (size_t)file.st_size;
	if (body > PAGE_MAX) {
		fprintf(stderr, "%s has %zu bytes; a page has 1 GiB at most\n", path, body);
		return DOCA_ERROR_TOO_BIG;
	}
	*reply = (char *)malloc(body + 256);
	if (!*reply)
		return DOCA_ERROR_NO_MEMORY;
	const size_t head = (size_t)snprintf(*reply, 256, format,
					     *path ? "application/octet-stream" : "text/plain", body);
	*size = head + body;
	if (*path)
		return read_file(path, *reply + head, body + 1, &body);
	memcpy(*reply + head, text, body);
	return DOCA_SUCCESS;
}

static doca_error_t to_gpu(struct ethernet *e, const char *bytes, size_t size, struct reply *reply)
{
	void *memory;

	TRY_DOCA(doca_gpu_mem_alloc(e->gpu, size, 4096, DOCA_GPU_MEM_TYPE_GPU, &memory, NULL));
	TRY_CUDA(cudaMemcpy(memory, bytes, size, cudaMemcpyHostToDevice));
	*reply = {(const uint8_t *)memory, (uint32_t)size};
	return DOCA_SUCCESS;
}

static doca_error_t put_replies(struct ethernet *e, struct server *server)
{
	const char missing[] = "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n"
			       "Content-Length: 12\r\nConnection: close\r\n\r\nNo such page";
	char *page = NULL;
	size_t size;

	doca_error_t result = read_reply(e->options.page, &page, &size);
	if (result == DOCA_SUCCESS)
		result = to_gpu(e, page, size, &server->page);
	free(page);
	TRY(result);
	return to_gpu(e, missing, sizeof missing - 1, &server->missing);
}

static doca_error_t run(struct ethernet *e, struct server *server)
{
	struct connection *connections;
	struct state *seen;

	TRY_DOCA(doca_gpu_mem_alloc(e->gpu, THREADS * SLOTS * sizeof *connections, 4096,
				    DOCA_GPU_MEM_TYPE_GPU, (void **)&connections, NULL));
	TRY_DOCA(doca_gpu_mem_alloc(e->gpu, sizeof *seen, 4096, DOCA_GPU_MEM_TYPE_GPU_CPU,
				    (void **)&server->state, (void **)&seen));
	http<<<1, THREADS>>>(e->gpu_rxq, e->gpu_txq, (uint8_t *)e->own, e->key, *server, connections,
			     (uint64_t)e->options.count);
	TRY_CUDA(cudaGetLastError());
	printf("gpunetio_http: http://%s:%u/\n", e->options.address, server->port);
	fflush(stdout);
	while (!stopped() && !DOCA_GPUNETIO_VOLATILE(seen->ended))
		usleep(1000);
	DOCA_GPUNETIO_VOLATILE(seen->stop) = 1;
	TRY_CUDA(cudaDeviceSynchronize());
	printf("gpunetio_http: %lu replies, %lu connections, of which %lu were lost; %lu segments of no "
	       "connection; %lu segments sent, and %lu bytes again; %lu dropped for their checksums\n",
	       (unsigned long)seen->replies, (unsigned long)seen->opened, (unsigned long)seen->lost,
	       (unsigned long)seen->refused, (unsigned long)seen->segments,
	       (unsigned long)seen->again, (unsigned long)seen->wrong);
	return seen->failed ? DOCA_ERROR_IO_FAILED : DOCA_SUCCESS;
}

static doca_error_t http_main(struct ethernet *e)
{
	struct server server = {};

	TRY(read_station(e->options.address, &server.own));
	if (e->options.port < 1 || e->options.port > 65535) {
		fprintf(stderr, "--port is %d; it must be 1 to 65535\n", e->options.port);
		return DOCA_ERROR_INVALID_VALUE;
	}
	server.port = (uint32_t)e->options.port;
	e->own_bytes = SEGMENTS * FRAME_BYTES;
	TRY(ethernet_open(e));
	TRY(put_replies(e, &server));
	TRY(ethernet_receive(e, TYPE_ARP, 0));
	TRY(ethernet_receive(e, DOCA_FLOW_ETHER_TYPE_IPV4, IPPROTO_TCP));
	return run(e, &server);
}

int main(int argc, char **argv)
{
	static struct ethernet e;

	strcpy(e.options.address, "10.0.0.2");
	e.options.port = 80;
	doca_error_t result = sample_begin(argc, argv, "gpunetio_http",
					   WANT_GPU | WANT_COUNT | WANT_IP | WANT_PAGE, &e.options);
	if (result == DOCA_SUCCESS)
		result = http_main(&e);
	ethernet_close(&e);
	return sample_end(result);
}
