/* SPDX-License-Identifier: Apache-2.0 */
/* Common part of the samples of GPUNetIO Ethernet: a GPU, a device, and a send queue and a receive
 * queue of that device for kernels. Frames are received into memory that can also be sent from, so
 * that a kernel can change a frame in place and send it back. The device writes the checksums of
 * sent frames. */
#ifndef SAMPLES_ETHERNET_H
#define SAMPLES_ETHERNET_H

#include <cuda_runtime.h>

#include <doca_eth_rxq.h>
#include <doca_eth_rxq_gpu_data_path.h>
#include <doca_eth_txq.h>
#include <doca_eth_txq_gpu_data_path.h>
#include <doca_flow.h>
#include <doca_gpunetio.h>
#include <doca_gpunetio_eth_def.h>

#include "sample.h"

#define FRAME_BYTES 2048u /* the largest frame */
#define FRAMES	    1024u /* of each queue */

/* Calls a function of the CUDA runtime; logs an error and returns from the calling function. */
#define TRY_CUDA(call)                                     \
	do {                                               \
		cudaError_t try_result = (call);           \
		if (try_result != cudaSuccess)             \
			return failed_cuda(#call, try_result); \
	} while (0)

struct ethernet {
	struct options options;
	struct doca_gpu *gpu;
	struct doca_dev *dev;
	struct doca_eth_rxq *rxq;
	struct doca_eth_txq *txq;
	struct doca_mmap *map; /* of the memory of both */
	char *frames; /* that are received */
	char *own; /* own_bytes of memory for frames to send; set own_bytes before the opening */
	size_t own_bytes;
	struct doca_flow_port *port;
	struct doca_flow_pipe *root;
	/* Arguments for kernels. key: of the memory, in big-endian. */
	struct doca_gpu_eth_rxq *gpu_rxq;
	struct doca_gpu_eth_txq *gpu_txq;
	uint32_t key;
};

/* Opens everything; no frame is received before a rule says so. */
doca_error_t ethernet_open(struct ethernet *e);
/* Lets the receive queue have the frames of an Ethernet type, and for IPv4 of a protocol; 0: any. */
doca_error_t ethernet_receive(struct ethernet *e, uint16_t type, uint8_t protocol);
void ethernet_close(struct ethernet *e);
doca_error_t failed_cuda(const char *what, cudaError_t error);

#endif
