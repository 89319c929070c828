/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binary interface between NCCL and an RMA plugin, versions 17 (in NCCL's sources, in no
 * release yet; equals 16), 16 (NCCL 2.32), 15 (2.31), 14 (2.30.4) and 13 (2.30.3): the functions that NCCL takes
 * from the symbols ncclRmaPlugin_v16 and so on. They differ in few functions, so all are made of the same parts.
 */
#ifndef DG_NCCL_RMA_ABI_H
#define DG_NCCL_RMA_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ncclResult_t. */
typedef enum {
	NCCL_SUCCESS = 0,
	NCCL_SYSTEM_ERROR = 2,
	NCCL_INTERNAL_ERROR = 3,
	NCCL_INVALID_ARGUMENT = 4,
	NCCL_INVALID_USAGE = 5,
	NCCL_REMOTE_ERROR = 6
} nccl_result;

enum { NCCL_HANDLE_SIZE = 128 };
enum nccl_pointer { NCCL_HOST = 1, NCCL_CUDA = 2, NCCL_DMABUF = 4 };
enum nccl_memory_flag { NCCL_STRICT_ORDER = 1, NCCL_SIGNAL_NEVER_RESET = 2 };
enum nccl_signal { NCCL_SIGNAL_INC = 1, NCCL_SIGNAL_ADD = 2 };
/* netDeviceType: NCCL's proxy calls the plugin on behalf of kernels. netDeviceVersion: of NCCL. */
enum { NCCL_GIN_PROXY = 2, NCCL_GIN_PROXY_VERSION = 100 };
enum { NCCL_LOG_WARN = 2, NCCL_LOG_NET = 0x10 };

typedef void (*nccl_log)(int level, unsigned long flags, const char *file, int line,
			 const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* ncclNetProperties_v12_t. */
typedef struct {
	char *name, *pci_path;
	uint64_t guid;
	int pointers, register_is_global, force_flush, megabits, port;
	float latency;
	int max_comms, max_receives, device_type, device_version;
	struct {
		int n, devices[8];
	} virtual_devices;
	size_t max_transfer, max_collective;
	int max_multi_request;
	int16_t rail, plane;
} nccl_properties;

typedef struct {
	int contexts, traffic_class, rank_stride;
} rma_config_v14;

typedef struct {
	int signals, counters, contexts, queue_depth, traffic_class;
} rma_config_v13;

struct rma_first {
	const char *name;
	nccl_result (*init)(void **ctx, uint64_t comm_id, nccl_log log);
	nccl_result (*devices)(int *n);
	nccl_result (*properties)(int dev, nccl_properties *out);
	nccl_result (*listen)(void *ctx, int dev, void *handle, void **listener);
	nccl_result (*connect)(void *ctx, void *handles[], int ranks, int rank, void *listener,
			       void **comm);
};

struct rma_middle {
	nccl_result (*deregister)(void *comm, void *memory);
	nccl_result (*destroy_context)(void *rma);
	nccl_result (*close_comm)(void *comm);
	nccl_result (*close_listener)(void *listener);
};

typedef nccl_result rma_transfer(void *rma, int context, uint64_t from_offset, void *from, size_t size,
				 uint64_t to_offset, void *to, uint32_t rank, void **request);
/* hints: 1 if more requests follow at once; they change nothing of what a request does. */
typedef nccl_result rma_transfer_v15(void *rma, int context, uint64_t from_offset, void *from,
				     size_t size, uint64_t to_offset, void *to, uint32_t rank,
				     uint32_t hints, void **request);

struct rma_last {
	nccl_result (*flush)(void *rma, int context, void *memory, uint32_t rank, void **request);
	nccl_result (*test)(void *comm, void *request, int *done);
	nccl_result (*progress)(void *rma);
	nccl_result (*query_error)(void *rma, bool *has_error);
	nccl_result (*finalize)(void *ctx);
};

/* What versions 15 and 14 begin with. */
struct rma_start {
	struct rma_first first;
	nccl_result (*create_context)(void *comm, rma_config_v14 *config, void **rma);
	nccl_result (*register_memory)(void *comm, void *data, size_t size, int type,
				       uint64_t flags, void **memory);
	nccl_result (*register_dmabuf)(void *comm, void *data, size_t size, int type,
				       uint64_t offset, int fd, uint64_t flags, void **memory);
	struct rma_middle middle;
};

struct rma_transfers_v15 {
	rma_transfer_v15 *put;
	nccl_result (*put_signal)(void *rma, int context, uint64_t from_offset, void *from,
				  size_t size, uint64_t to_offset, void *to, uint32_t rank,
				  uint64_t signal_offset, void *signal, uint64_t value, uint32_t op,
				  bool strong, uint32_t hints, void **request);
	rma_transfer_v15 *get;
};

/* signal_after_all: a signal is seen after the puts of other peers, too, that have arrived before. */
typedef struct {
	bool signal_after_all;
} rma_properties_v16;

/* As version 15, with one function more, in the fourth place. */
struct rma_plugin_v16 {
	const char *name;
	nccl_result (*init)(void **ctx, uint64_t comm_id, nccl_log log);
	nccl_result (*devices)(int *n);
	nccl_result (*rma_properties)(void *comm, rma_properties_v16 *out);
	nccl_result (*properties)(int dev, nccl_properties *out);
	nccl_result (*listen)(void *ctx, int dev, void *handle, void **listener);
	nccl_result (*connect)(void *ctx, void *handles[], int ranks, int rank, void *listener,
			       void **comm);
	nccl_result (*create_context)(void *comm, rma_config_v14 *config, void **rma);
	nccl_result (*register_memory)(void *comm, void *data, size_t size, int type,
				       uint64_t flags, void **memory);
	nccl_result (*register_dmabuf)(void *comm, void *data, size_t size, int type,
				       uint64_t offset, int fd, uint64_t flags, void **memory);
	struct rma_middle middle;
	struct rma_transfers_v15 transfers;
	struct rma_last last;
};
_Static_assert(sizeof(struct rma_plugin_v16) == 22 * sizeof(void *), "the table of version 16");

/* set_hint: of a later NCCL; may be NULL. */
struct rma_plugin_v15 {
	struct rma_start start;
	struct rma_transfers_v15 transfers;
	struct rma_last last;
	nccl_result (*set_hint)(void *ctx, const char *key, int value);
};

struct rma_plugin_v14 {
	struct rma_start start;
	rma_transfer *put;
	nccl_result (*put_signal)(void *rma, int context, uint64_t from_offset, void *from,
				  size_t size, uint64_t to_offset, void *to, uint32_t rank,
				  uint64_t signal_offset, void *signal, uint64_t value, uint32_t op,
				  bool strong, void **request);
	rma_transfer *get;
	struct rma_last last;
};

/* device_handle and device_memory: for plugins that run without NCCL's proxy. */
struct rma_plugin_v13 {
	struct rma_first first;
	nccl_result (*create_context)(void *comm, rma_config_v13 *config, void **rma,
				      void **device_handle);
	nccl_result (*register_memory)(void *comm, void *data, size_t size, int type,
				       uint64_t flags, void **memory, void **device_memory);
	nccl_result (*register_dmabuf)(void *comm, void *data, size_t size, int type,
				       uint64_t offset, int fd, uint64_t flags, void **memory,
				       void **device_memory);
	struct rma_middle middle;
	rma_transfer *put;
	nccl_result (*put_signal)(void *rma, int context, uint64_t from_offset, void *from,
				  size_t size, uint64_t to_offset, void *to, uint32_t rank,
				  uint64_t signal_offset, void *signal, uint64_t value, uint32_t op,
				  void **request);
	rma_transfer *get;
	struct rma_last last;
};

#endif
