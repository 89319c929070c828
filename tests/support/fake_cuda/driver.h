/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the CUDA driver's ABI that the fake driver has, declared here so that it builds without
 * NVIDIA's headers. Names and numbers are the driver's. */
#ifndef FAKE_CUDA_DRIVER_H
#define FAKE_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

#define CODE(name, number, words) name = number,
typedef enum {
#include "codes.h"
} CUresult;
#undef CODE

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUhandle; /* CUmemGenericAllocationHandle */
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;

typedef struct {
	char bytes[16];
} CUuuid;

typedef struct {
	char reserved[64];
} CUipcMemHandle;

enum { LOCATION_DEVICE = 1, LOCATION_HOST = 2, LOCATION_HOST_NUMA = 3 };
enum { HANDLE_POSIX_FD = 1 };
enum { ALLOCATION_PINNED = 1 };
enum { ACCESS_NONE = 0, ACCESS_READ = 1, ACCESS_READWRITE = 3 };
enum { RANGE_DMA_BUF_FD = 1 };
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_ARRAY = 3, MEMORY_UNIFIED = 4 };
enum { HOST_PORTABLE = 1, HOST_DEVICEMAP = 2, HOST_IOMEMORY = 4, HOST_READ_ONLY = 8 };

typedef struct {
	int type;
	int id;
} CUmemLocation;

typedef struct {
	int type;
	int requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType;
		unsigned char gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;

typedef struct {
	CUmemLocation location;
	int flags;
} CUmemAccessDesc;

typedef struct {
	size_t xInBytes, y;
	int memoryType;
	void *host;
	CUdeviceptr device;
	void *array;
	size_t pitch;
} CUside; /* what CUDA_MEMCPY2D has twice */

typedef struct {
	CUside src, dst;
	size_t widthInBytes, height;
} CUmemcpy2D;

typedef struct {
	size_t xInBytes, y, z, lod;
	int memoryType;
	void *host;
	CUdeviceptr device;
	void *array, *reserved;
	size_t pitch, height;
} CUside3D;

typedef struct {
	CUside3D src, dst;
	size_t widthInBytes, height, depth;
} CUmemcpy3D;

enum { ORDER_STREAM = 1, ORDER_DURING_CALL = 2, ORDER_ANY = 3 };

typedef struct {
	int srcAccessOrder;
	CUmemLocation srcLocHint, dstLocHint;
	unsigned int flags;
} CUmemcpyAttributes;

enum { WRITE_VALUE_32 = 2, WRITE_VALUE_64 = 5 };

typedef union {
	int operation;
	struct {
		int operation;
		CUdeviceptr address;
		uint64_t value;
		unsigned int flags;
		CUdeviceptr alias;
	} write;
	uint64_t pad[6];
} CUmemOp;

enum { WAIT_GEQ = 0, WAIT_EQ = 1, WAIT_AND = 2, WAIT_NOR = 3 };

enum {
	POINTER_CONTEXT = 1,
	POINTER_MEMORY_TYPE,
	POINTER_DEVICE_POINTER,
	POINTER_HOST_POINTER,
	POINTER_SYNC_MEMOPS = 6,
	POINTER_BUFFER_ID,
	POINTER_IS_MANAGED,
	POINTER_DEVICE_ORDINAL,
	POINTER_IS_LEGACY_IPC_CAPABLE,
	POINTER_RANGE_START_ADDR,
	POINTER_RANGE_SIZE,
	POINTER_MAPPED,
	POINTER_ALLOWED_HANDLE_TYPES,
	POINTER_IS_GPU_DIRECT_RDMA_CAPABLE,
	POINTER_ACCESS_FLAGS,
	POINTER_MEMPOOL_HANDLE,
	POINTER_MAPPING_SIZE,
	POINTER_MAPPING_BASE_ADDR,
	POINTER_MEMORY_BLOCK_ID,
};

#endif
