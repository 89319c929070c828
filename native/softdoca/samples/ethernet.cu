// SPDX-License-Identifier: Apache-2.0
#include "ethernet.h"

#include <arpa/inet.h>
#include <endian.h>
#include <unistd.h>

#include <doca_log.h>
#include <doca_mmap.h>

DOCA_LOG_REGISTER(ETHERNET);

#define PAGE	 65536u /* no page of a system is larger */
#define QUEUE	 0 /* number of the receive queue */
#define COUNTERS 16u

doca_error_t failed_cuda(const char *what, cudaError_t error)
{
	DOCA_LOG_ERR("%s failed: %s", what, cudaGetErrorString(error));
	return DOCA_ERROR_DRIVER;
}

static doca_error_t any_device(const struct doca_devinfo *)
{
	return DOCA_SUCCESS;
}

static doca_error_t open_devices(struct ethernet *e)
{
	char pci[32];

	TRY_CUDA(cudaSetDevice(e->options.gpu));
	TRY_CUDA(cudaDeviceGetPCIBusId(pci, sizeof pci, e->options.gpu));
	TRY_DOCA(doca_gpu_create(pci, &e->gpu));
	return open_device(e->options.pci, any_device, &e->dev);
}

/* Maps the memory by its dma-buf, or by its address where the driver has none. */
static doca_error_t map_frames(struct ethernet *e, size_t size)
{
	doca_error_t result = DOCA_ERROR_NOT_SUPPORTED;
	uint32_t key;
	int fd;

	TRY_DOCA(doca_mmap_create(&e->map));
	TRY_DOCA(doca_mmap_add_dev(e->map, e->dev));
	if (doca_gpu_dmabuf_fd(e->gpu, e->frames, size, &fd) == DOCA_SUCCESS) {
		result = doca_mmap_set_dmabuf_memrange(e->map, fd, e->frames, 0, size);
		close(fd);
	}
	if (result != DOCA_SUCCESS)
		TRY_DOCA(doca_mmap_set_memrange(e->map, e->frames, size));
	TRY_DOCA(doca_mmap_set_permissions(e->map, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE));
	TRY_DOCA(doca_mmap_start(e->map));
	TRY_DOCA(doca_mmap_get_mkey(e->map, e->dev, &key));
	e->key = htobe32(key);
	return DOCA_SUCCESS;
}

static doca_error_t open_rxq(struct ethernet *e)
{
	uint32_t size;

	TRY_DOCA(doca_eth_rxq_create(e->dev, FRAMES, FRAME_BYTES, &e->rxq));
	TRY_DOCA(doca_eth_rxq_set_type(e->rxq, DOCA_ETH_RXQ_TYPE_CYCLIC));
	TRY_DOCA(doca_eth_rxq_estimate_packet_buf_size(DOCA_ETH_RXQ_TYPE_CYCLIC, 0, 0, FRAME_BYTES,
						       FRAMES, 0, 0, 0, &size));
	const size_t all = (size + e->own_bytes + PAGE - 1) / PAGE * PAGE;
	TRY_DOCA(doca_gpu_mem_alloc(e->gpu, all, PAGE, DOCA_GPU_MEM_TYPE_GPU, (void **)&e->frames,
				    NULL));
	e->own = e->frames + size;
	TRY(map_frames(e, all));
	TRY_DOCA(doca_eth_rxq_set_pkt_buf(e->rxq, e->map, 0, size));
	TRY_DOCA(doca_ctx_set_datapath_on_gpu(doca_eth_rxq_as_doca_ctx(e->rxq), e->gpu));
	TRY_DOCA(doca_ctx_start(doca_eth_rxq_as_doca_ctx(e->rxq)));
	TRY_DOCA(doca_eth_rxq_apply_queue_id(e->rxq, QUEUE));
	TRY_DOCA(doca_eth_rxq_get_gpu_handle(e->rxq, &e->gpu_rxq));
	return DOCA_SUCCESS;
}

static doca_error_t open_txq(struct ethernet *e)
{
	TRY_DOCA(doca_eth_txq_create(e->dev, FRAMES, &e->txq));
	TRY_DOCA(doca_eth_txq_gpu_set_completion_on_gpu(e->txq));
	TRY_DOCA(doca_eth_txq_set_wait_on_time_offload(e->txq));
	TRY_DOCA(doca_eth_txq_set_l3_chksum_offload(e->txq, 1));
	TRY_DOCA(doca_eth_txq_set_l4_chksum_offload(e->txq, 1));
	TRY_DOCA(doca_ctx_set_datapath_on_gpu(doca_eth_txq_as_doca_ctx(e->txq), e->gpu));
	TRY_DOCA(doca_ctx_start(doca_eth_txq_as_doca_ctx(e->txq)));
	TRY_DOCA(doca_eth_txq_get_gpu_handle(e->txq, &e->gpu_txq));
	return DOCA_SUCCESS;
}

static doca_error_t start_flow(void)
{
	struct doca_flow_cfg *cfg;

	TRY_DOCA(doca_flow_cfg_create(&cfg));
	TRY_DOCA(doca_flow_cfg_set_pipe_queues(cfg, 1));
	TRY_DOCA(doca_flow_cfg_set_mode_args(cfg, "vnf"));
	TRY_DOCA(doca_flow_cfg_set_nr_counters(cfg, COUNTERS));
	TRY_DOCA(doca_flow_init(cfg));
	TRY_DOCA(doca_flow_cfg_destroy(cfg));
	return DOCA_SUCCESS;
}

static doca_error_t start_port(struct ethernet *e)
{
	struct doca_flow_port_cfg *cfg;

	TRY_DOCA(doca_flow_port_cfg_create(&cfg));
	TRY_DOCA(doca_flow_port_cfg_set_port_id(cfg, 0));
	TRY_DOCA(doca_flow_port_cfg_set_dev(cfg, e->dev));
	TRY_DOCA(doca_flow_port_start(cfg, &e->port));
	TRY_DOCA(doca_flow_port_cfg_destroy(cfg));
	return DOCA_SUCCESS;
}

static doca_error_t open_root(struct ethernet *e)
{
	struct doca_flow_pipe_cfg *cfg;

	TRY_DOCA(doca_flow_pipe_cfg_create(&cfg, e->port));
	TRY_DOCA(doca_flow_pipe_cfg_set_name(cfg, "ROOT"));
	TRY_DOCA(doca_flow_pipe_cfg_set_type(cfg, DOCA_FLOW_PIPE_CONTROL));
	TRY_DOCA(doca_flow_pipe_cfg_set_is_root(cfg, true));
	TRY_DOCA(doca_flow_pipe_create(cfg, NULL, NULL, &e->root));
	TRY_DOCA(doca_flow_pipe_cfg_destroy(cfg));
	return DOCA_SUCCESS;
}

doca_error_t ethernet_open(struct ethernet *e)
{
	TRY(open_devices(e));
	TRY(start_flow());
	TRY(start_port(e));
	TRY(open_root(e));
	TRY(open_rxq(e));
	return open_txq(e);
}

doca_error_t ethernet_receive(struct ethernet *e, uint16_t type, uint8_t protocol)
{
	struct doca_flow_pipe_entry *entry;
	struct doca_flow_match match = {};
	struct doca_flow_fwd fwd = {};
	uint16_t queues[] = {QUEUE};

	match.outer.eth.type = htons(type);
	if (type == DOCA_FLOW_ETHER_TYPE_IPV4) {
		match.outer.l3_type = DOCA_FLOW_L3_TYPE_IP4;
		match.outer.ip4.next_proto = protocol;
	}
	fwd.type = DOCA_FLOW_FWD_RSS;
	fwd.rss_type = DOCA_FLOW_RESOURCE_TYPE_NON_SHARED;
	fwd.rss.queues_array = queues;
	fwd.rss.nr_queues = 1;
	fwd.rss.outer_flags = DOCA_FLOW_RSS_IPV4;
	TRY_DOCA(doca_flow_pipe_control_add_entry(0, e->root, &match, NULL, NULL, NULL, NULL, NULL,
						  NULL, 0, &fwd, NULL, &entry));
	TRY_DOCA(doca_flow_entries_process(e->port, 0, 0, 0));
	return DOCA_SUCCESS;
}

/* In the order in which one uses the other; what was not opened is NULL. */
void ethernet_close(struct ethernet *e)
{
	if (e->port) {
		doca_flow_port_stop(e->port);
		doca_flow_destroy();
	}
	if (e->txq) {
		doca_ctx_stop(doca_eth_txq_as_doca_ctx(e->txq));
		doca_eth_txq_destroy(e->txq);
	}
	if (e->rxq) {
		doca_ctx_stop(doca_eth_rxq_as_doca_ctx(e->rxq));
		doca_eth_rxq_destroy(e->rxq);
	}
	if (e->map)
		doca_mmap_destroy(e->map);
	if (e->frames)
		doca_gpu_mem_free(e->gpu, e->frames);
	if (e->dev)
		doca_dev_close(e->dev);
	if (e->gpu)
		doca_gpu_destroy(e->gpu);
}
