/* A program for the recorder: rules, and Ethernet queues of the CPU, whose frames it sends to itself;
 * with an argument, queues that are set up for kernels. */
#include "verbs_check.h"

#include <doca_eth_rxq.h>
#include <doca_eth_rxq_cpu_data_path.h>
#include <doca_eth_rxq_gpu_data_path.h>
#include <doca_eth_txq.h>
#include <doca_eth_txq_cpu_data_path.h>
#include <doca_eth_txq_gpu_data_path.h>
#include <doca_flow.h>
#include <sys/socket.h>

#define FRAME  100
#define BYTES  (64 * 4096)
#define NUMBER 3

static uint8_t memory[BYTES];
static struct doca_dev *dev;
static struct doca_mmap *map;
static struct doca_buf_inventory *bufs;
static struct doca_pe *pe;
static int wire; /* the other end */
static int done;

static union doca_data number(uint64_t n)
{
	return (union doca_data){.u64 = n};
}

static void until(int n)
{
	while (done < n)
		doca_pe_progress(pe);
	done = 0;
}

static void arrive(int n)
{
	uint8_t frame[FRAME] = {[12] = 0x88, [13] = 0xb5};

	while (n--)
		CHECK_EQ(send(wire, frame, FRAME, 0), FRAME);
}

static void start(struct doca_ctx *ctx)
{
	enum doca_ctx_states state;

	OK(doca_pe_connect_ctx(pe, ctx));
	OK(doca_ctx_set_user_data(ctx, number(7)));
	OK(doca_ctx_start(ctx));
	OK(doca_ctx_get_state(ctx, &state));
	CHECK_EQ(state, DOCA_CTX_STATE_RUNNING);
}

static void stop(struct doca_ctx *ctx)
{
	enum doca_ctx_states state;

	doca_ctx_stop(ctx);
	do {
		doca_pe_progress(pe);
		OK(doca_ctx_get_state(ctx, &state));
	} while (state != DOCA_CTX_STATE_IDLE);
}

static struct doca_buf *a_frame(int i, size_t size)
{
	struct doca_buf *buf;

	OK(doca_buf_inventory_buf_get_by_args(bufs, map, memory + BYTES - (i + 1) * 4096, 4096,
					      memory + BYTES - (i + 1) * 4096, size, &buf));
	return buf;
}

/* ---- send ---- */

static void sent(struct doca_eth_txq_task_send *task, union doca_data data, union doca_data ctx)
{
	struct doca_buf *frame;

	(void)data;
	(void)ctx;
	OK(doca_eth_txq_task_send_get_pkt(task, &frame));
	OK(doca_task_get_status(doca_eth_txq_task_send_as_doca_task(task)));
	doca_task_free(doca_eth_txq_task_send_as_doca_task(task));
	OK(doca_buf_dec_refcount(frame, NULL));
	done++;
}

static void batch_sent(struct doca_task_batch *batch, uint16_t n, union doca_data ctx, union doca_data data,
		       union doca_data *each, struct doca_buf **frames, doca_error_t *results)
{
	size_t size;

	(void)ctx;
	(void)data;
	(void)each;
	OK(results[0]);
	OK(doca_buf_get_data_len(frames[0], &size));
	for (uint16_t i = 0; i < n; i++)
		OK(doca_buf_dec_refcount(frames[i], NULL));
	doca_task_batch_free(batch);
	done += n;
}

static void send_frames(void)
{
	struct doca_eth_txq_task_send *task;
	struct doca_task_batch *batch;
	struct doca_buf **frames;
	struct doca_eth_txq *txq;
	union doca_data *each;
	uint32_t n;
	uint16_t size;

	OK(doca_eth_txq_cap_get_max_burst_size(doca_dev_as_devinfo(dev), 1, 0, &n));
	OK(doca_eth_txq_cap_get_max_lso_header_size(doca_dev_as_devinfo(dev), &size));
	OK(doca_eth_txq_cap_is_type_supported(doca_dev_as_devinfo(dev), DOCA_ETH_TXQ_TYPE_REGULAR,
					      DOCA_ETH_TXQ_DATA_PATH_TYPE_CPU));
	OK(doca_eth_txq_create(dev, 8, &txq));
	OK(doca_eth_txq_set_type(txq, DOCA_ETH_TXQ_TYPE_REGULAR));
	OK(doca_eth_txq_set_l3_chksum_offload(txq, 1));
	OK(doca_eth_txq_set_mss(txq, 100));
	REFUSED(doca_eth_txq_apply_queue_id(txq, 1), BAD_STATE);
	OK(doca_eth_txq_task_send_set_conf(txq, sent, sent, 8));
	OK(doca_eth_txq_task_batch_send_set_conf(txq, DOCA_TASK_BATCH_MAX_TASKS_NUMBER_16, 1, batch_sent,
						 batch_sent));
	start(doca_eth_txq_as_doca_ctx(txq));
	for (unsigned i = 0; i < 3; i++) {
		OK(doca_eth_txq_task_send_allocate_init(txq, a_frame((int)i, 60 + i), number(i + 1), &task));
		OK(doca_task_submit(doca_eth_txq_task_send_as_doca_task(task)));
	}
	until(3);
	OK(doca_eth_txq_task_batch_send_allocate(txq, 4, number(9), &frames, &each, &batch));
	for (int i = 0; i < 4; i++)
		frames[i] = a_frame(i, 80);
	OK(doca_task_batch_submit(batch));
	until(4);
	stop(doca_eth_txq_as_doca_ctx(txq));
	OK(doca_eth_txq_destroy(txq));
}

/* ---- receive ---- */

static void task_received(struct doca_eth_rxq_task_recv *task, union doca_data data, union doca_data ctx)
{
	struct doca_buf *frame;
	size_t size;
	uint32_t hash;

	(void)data;
	(void)ctx;
	OK(doca_eth_rxq_task_recv_get_pkt(task, &frame));
	OK(doca_buf_get_data_len(frame, &size));
	if (!doca_task_get_status(doca_eth_rxq_task_recv_as_doca_task(task)))
		OK(doca_eth_rxq_task_recv_get_rx_hash(task, &hash));
	doca_task_free(doca_eth_rxq_task_recv_as_doca_task(task));
	OK(doca_buf_dec_refcount(frame, NULL));
	done++;
}

static void event_received(struct doca_eth_rxq_event_managed_recv *event, struct doca_buf *frame,
			   union doca_data data)
{
	void *at;

	(void)data;
	OK(doca_eth_rxq_event_managed_recv_get_status(event));
	OK(doca_buf_get_data(frame, &at));
	OK(doca_buf_dec_refcount(frame, NULL));
	done++;
}

static void batch_received(struct doca_eth_rxq_event_batch_managed_recv *batch, uint16_t n,
			   union doca_data data, doca_error_t status, struct doca_buf **frames)
{
	const uint32_t *metadata;
	size_t size;

	(void)data;
	OK(status);
	OK(doca_eth_rxq_event_batch_managed_recv_get_metadata_array(batch, &metadata));
	doca_eth_rxq_event_batch_managed_recv_metadata_array_get_metadata(metadata, 1, 0, 0);
	OK(doca_buf_get_data_len(frames[n - 1], &size));
	doca_eth_rxq_event_batch_managed_recv_pkt_array_free(frames);
	done += n;
}

static struct doca_eth_rxq *an_rxq(enum doca_eth_rxq_type type)
{
	struct doca_eth_rxq *rxq;
	uint32_t size;

	OK(doca_eth_rxq_cap_is_type_supported(doca_dev_as_devinfo(dev), type,
					      DOCA_ETH_RXQ_DATA_PATH_TYPE_CPU));
	OK(doca_eth_rxq_create(dev, 16, 2048, &rxq));
	OK(doca_eth_rxq_set_type(rxq, type));
	OK(doca_eth_rxq_set_metadata_num(rxq, 1));
	if (type == DOCA_ETH_RXQ_TYPE_REGULAR)
		return rxq;
	OK(doca_eth_rxq_estimate_packet_buf_size(type, 0, 0, 2048, 16, 0, 0, 0, &size));
	OK(doca_eth_rxq_set_pkt_buf(rxq, map, 0, size));
	return rxq;
}

static void receive(struct doca_eth_rxq *rxq, int n)
{
	start(doca_eth_rxq_as_doca_ctx(rxq));
	OK(doca_eth_rxq_apply_queue_id(rxq, NUMBER));
	REFUSED(doca_eth_rxq_set_rx_hash(rxq, 1), BAD_STATE);
	arrive(n);
	until(n);
}

static void close_rxq(struct doca_eth_rxq *rxq)
{
	stop(doca_eth_rxq_as_doca_ctx(rxq));
	OK(doca_eth_rxq_destroy(rxq));
}

static void receive_by_tasks(void)
{
	struct doca_eth_rxq *rxq = an_rxq(DOCA_ETH_RXQ_TYPE_REGULAR);
	struct doca_eth_rxq_task_recv *task;

	OK(doca_eth_rxq_set_rx_hash(rxq, 1));
	OK(doca_eth_rxq_task_recv_set_conf(rxq, task_received, task_received, 8));
	start(doca_eth_rxq_as_doca_ctx(rxq));
	OK(doca_eth_rxq_apply_queue_id(rxq, NUMBER));
	for (unsigned i = 0; i < 4; i++) {
		OK(doca_eth_rxq_task_recv_allocate_init(rxq, a_frame((int)i, 0), number(i + 1), &task));
		OK(doca_task_submit(doca_eth_rxq_task_recv_as_doca_task(task)));
	}
	arrive(2);
	until(2);
	close_rxq(rxq); /* flushes the others */
	CHECK_EQ(done, 2);
	done = 0;
}

static void receive_by_events(void)
{
	struct doca_eth_rxq *rxq = an_rxq(DOCA_ETH_RXQ_TYPE_MANAGED_MEMPOOL);

	OK(doca_eth_rxq_event_managed_recv_register(rxq, number(5), event_received, event_received));
	receive(rxq, 3);
	close_rxq(rxq);
	rxq = an_rxq(DOCA_ETH_RXQ_TYPE_MANAGED_MEMPOOL);
	OK(doca_eth_rxq_event_batch_managed_recv_register(
		rxq, DOCA_EVENT_BATCH_EVENTS_NUMBER_4, DOCA_EVENT_BATCH_EVENTS_NUMBER_2, number(6),
		batch_received, batch_received));
	receive(rxq, 4);
	close_rxq(rxq);
}

/* ---- rules ---- */

static struct doca_flow_port *port;
static struct doca_flow_pipe *root, *next;
static struct doca_flow_pipe_entry *entries[2];

static void start_port(void)
{
	struct doca_flow_port_cfg *port_cfg;
	struct doca_flow_cfg *cfg;

	OK(doca_flow_cfg_create(&cfg));
	OK(doca_flow_cfg_set_mode_args(cfg, "vnf,hws"));
	OK(doca_flow_cfg_set_pipe_queues(cfg, 1));
	OK(doca_flow_init(cfg));
	REFUSED(doca_flow_init(cfg), ALREADY_EXIST);
	OK(doca_flow_cfg_destroy(cfg));
	OK(doca_flow_port_cfg_create(&port_cfg));
	REFUSED(doca_flow_port_start(port_cfg, &port), BAD_STATE);
	OK(doca_flow_port_cfg_set_dev(port_cfg, dev));
	OK(doca_flow_port_start(port_cfg, &port));
	OK(doca_flow_port_cfg_destroy(port_cfg));
}

static struct doca_flow_pipe_cfg *a_pipe(const char *name, enum doca_flow_pipe_type type)
{
	struct doca_flow_pipe_cfg *cfg;

	OK(doca_flow_pipe_cfg_create(&cfg, port));
	OK(doca_flow_pipe_cfg_set_name(cfg, name));
	OK(doca_flow_pipe_cfg_set_type(cfg, type));
	OK(doca_flow_pipe_cfg_set_is_root(cfg, type == DOCA_FLOW_PIPE_CONTROL));
	return cfg;
}

static void add_pipes(void)
{
	struct doca_flow_actions action = {.meta.pkt_meta = 1}, *actions[] = {&action};
	struct doca_flow_match match = {.outer.eth.type = htons(0x88b5)};
	struct doca_flow_monitor monitor = {.counter_type = DOCA_FLOW_RESOURCE_TYPE_NON_SHARED};
	struct doca_flow_fwd to_pipe = {.type = DOCA_FLOW_FWD_PIPE};
	uint16_t queue = NUMBER;
	struct doca_flow_fwd fwd = {.type = DOCA_FLOW_FWD_RSS,
				    .rss = {.queues_array = &queue, .nr_queues = 1}};
	struct doca_flow_fwd wrong = {.type = DOCA_FLOW_FWD_PORT};
	struct doca_flow_pipe_cfg *cfg = a_pipe("next", DOCA_FLOW_PIPE_BASIC);

	OK(doca_flow_pipe_cfg_set_match(cfg, &match, NULL));
	OK(doca_flow_pipe_cfg_set_monitor(cfg, &monitor));
	OK(doca_flow_pipe_cfg_set_actions(cfg, actions, NULL, NULL, 1));
	REFUSED(doca_flow_pipe_create(cfg, &wrong, NULL, &next), NOT_SUPPORTED);
	OK(doca_flow_pipe_create(cfg, &fwd, NULL, &next));
	OK(doca_flow_pipe_cfg_destroy(cfg));
	OK(doca_flow_pipe_basic_add_entry(0, next, &match, 0, NULL, NULL, NULL, 0, NULL, &entries[0]));
	REFUSED(doca_flow_pipe_basic_add_entry(0, next, NULL, 1, NULL, NULL, NULL, 0, NULL, &entries[1]),
		NOT_SUPPORTED);
	cfg = a_pipe("root", DOCA_FLOW_PIPE_CONTROL);
	OK(doca_flow_pipe_create(cfg, NULL, NULL, &root));
	OK(doca_flow_pipe_cfg_destroy(cfg));
	to_pipe.next_pipe = next;
	OK(doca_flow_pipe_control_add_entry(0, root, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, &to_pipe,
					    NULL, &entries[1]));
	OK(doca_flow_entries_process(port, 0, 1000, 1));
}

static void remove_pipes(void)
{
	struct doca_flow_resource_query query;
	struct doca_flow_target *target;

	OK(doca_flow_get_target(DOCA_FLOW_TARGET_KERNEL, &target));
	OK(doca_flow_resource_query_entry(entries[0], &query));
	OK(doca_flow_pipe_remove_entry(0, 0, entries[0]));
	REFUSED(doca_flow_resource_query_entry(entries[0], &query), INVALID_VALUE);
	OK(doca_flow_resource_query_pipe_miss(next, &query));
	doca_flow_pipe_destroy(next);
	OK(doca_flow_port_stop(port));
	doca_flow_destroy();
}

/* ---- for kernels ---- */

static void set_up_for_kernels(void)
{
	struct doca_gpu_eth_rxq *in;
	struct doca_gpu_eth_txq *out;
	struct doca_eth_rxq *rxq;
	struct doca_eth_txq *txq;
	struct doca_mmap *packets;
	struct doca_gpu *gpu;
	uint32_t size;
	uint64_t time;
	char *at;

	OK(doca_gpu_create("41:00.0", &gpu));
	OK(doca_eth_rxq_create(dev, 16, 2048, &rxq));
	OK(doca_eth_rxq_set_type(rxq, DOCA_ETH_RXQ_TYPE_CYCLIC));
	OK(doca_eth_rxq_estimate_packet_buf_size(DOCA_ETH_RXQ_TYPE_CYCLIC, 0, 0, 2048, 16, 0, 0, 0, &size));
	at = gpu_alloc(gpu, size, DOCA_GPU_MEM_TYPE_GPU);
	OK(doca_mmap_create(&packets));
	OK(doca_mmap_add_dev(packets, dev));
	OK(doca_mmap_set_memrange(packets, at, size));
	OK(doca_mmap_start(packets));
	OK(doca_eth_rxq_set_pkt_buf(rxq, packets, 0, size));
	OK(doca_ctx_set_datapath_on_gpu(doca_eth_rxq_as_doca_ctx(rxq), gpu));
	REFUSED(doca_eth_rxq_get_gpu_handle(rxq, &in), BAD_STATE);
	OK(doca_ctx_start(doca_eth_rxq_as_doca_ctx(rxq)));
	OK(doca_eth_rxq_apply_queue_id(rxq, NUMBER));
	OK(doca_eth_rxq_get_gpu_handle(rxq, &in));
	OK(doca_eth_txq_create(dev, 8, &txq));
	OK(doca_eth_txq_set_wait_on_time_offload(txq));
	OK(doca_eth_txq_gpu_set_uar_on_cpu(txq));
	OK(doca_ctx_set_datapath_on_gpu(doca_eth_txq_as_doca_ctx(txq), gpu));
	OK(doca_ctx_start(doca_eth_txq_as_doca_ctx(txq)));
	OK(doca_eth_txq_get_gpu_handle(txq, &out));
	OK(doca_eth_txq_calculate_timestamp(txq, 1000, &time));
	OK(doca_eth_txq_gpu_cpu_proxy_progress(txq));
	OK(doca_ctx_stop(doca_eth_txq_as_doca_ctx(txq)));
	OK(doca_ctx_stop(doca_eth_rxq_as_doca_ctx(rxq)));
	OK(doca_eth_txq_destroy(txq));
	OK(doca_eth_rxq_destroy(rxq));
	OK(doca_mmap_destroy(packets));
	OK(doca_gpu_mem_free(gpu, at));
	OK(doca_gpu_destroy(gpu));
}

static void open_all(void)
{
	int ends[2];
	char net[32];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	snprintf(net, sizeof(net), "fd:%d", ends[0]);
	setenv("SOFTDOCA_NET", net, 1);
	wire = ends[1];
	dev = a_dev();
	OK(doca_mmap_create(&map));
	OK(doca_mmap_add_dev(map, dev));
	OK(doca_mmap_set_memrange(map, memory, BYTES));
	OK(doca_mmap_start(map));
	OK(doca_buf_inventory_create(16, &bufs));
	OK(doca_buf_inventory_start(bufs));
	OK(doca_pe_create(&pe));
}

int main(int argc, char **argv)
{
	(void)argv;
	open_all();
	start_port();
	add_pipes();
	if (argc > 1) {
		set_up_for_kernels();
	} else {
		send_frames();
		receive_by_tasks();
		receive_by_events();
	}
	remove_pipes();
	OK(doca_pe_destroy(pe));
	OK(doca_buf_inventory_destroy(bufs));
	OK(doca_mmap_destroy(map));
	OK(doca_dev_close(dev));
	puts("done");
	return 0;
}
