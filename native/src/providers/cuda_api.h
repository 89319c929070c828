/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of libcuda.so.1 that the provider cuda uses: types, constants and functions, declared
 * here so that dgkit builds without CUDA. The library is loaded at run time. Several functions
 * exist in two versions, so each is looked up with cuGetProcAddress at the version that has the
 * signature below. Source: CUDA Driver API reference, and the versions in its cudaTypedefs.h.
 */
#ifndef DG_CUDA_API_H
#define DG_CUDA_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef unsigned long long CUmemHandle; /* CUmemGenericAllocationHandle */

typedef struct {
	char bytes[16];
} CUuuid;

typedef struct {
	char reserved[64];
} CUipcMemHandle;

enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2, CU_MEMORYTYPE_UNIFIED = 4 };

typedef struct {
	size_t srcXInBytes, srcY;
	unsigned srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	void *srcArray;
	size_t srcPitch;
	size_t dstXInBytes, dstY;
	unsigned dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	void *dstArray;
	size_t dstPitch;
	size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct {
	size_t srcXInBytes, srcY, srcZ, srcLOD;
	unsigned srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	void *srcArray, *reserved0;
	size_t srcPitch, srcHeight;
	size_t dstXInBytes, dstY, dstZ, dstLOD;
	unsigned dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	void *dstArray, *reserved1;
	size_t dstPitch, dstHeight;
	size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

typedef struct {
	unsigned type;
	int id;
} CUmemLocation;

typedef struct {
	unsigned srcAccessOrder;
	CUmemLocation srcLocHint, dstLocHint;
	unsigned flags;
} CUmemcpyAttributes;

/* CUstreamBatchMemOpParams */
typedef union {
	unsigned operation;
	struct {
		unsigned operation;
		CUdeviceptr address;
		uint64_t value; /* a 32-bit operation uses the lower half */
		unsigned flags;
		CUdeviceptr alias;
	} writeValue;
	uint64_t pad[6];
} CUmemOp;

typedef struct {
	CUmemLocation location;
	unsigned flags;
} CUmemAccessDesc;

typedef struct {
	unsigned type, requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType, gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_STUB_LIBRARY = 34,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_ECC_UNCORRECTABLE = 214,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	CUDA_ERROR_LAUNCH_TIMEOUT = 702,
	CUDA_ERROR_ASSERT = 710,
	CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_SYSTEM_NOT_READY = 802,
	CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
	CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,

	CU_STREAM_NON_BLOCKING = 1,
	CU_MEM_OP_WRITE_VALUE_32 = 2,
	CU_MEM_OP_WRITE_VALUE_64 = 5,
	CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1,
	CU_STREAM_WAIT_VALUE_GEQ = 0, /* compares the signed difference, so values may wrap */
	CU_MEM_LOCATION_TYPE_DEVICE = 1,
	CU_MEM_LOCATION_TYPE_HOST_NUMA = 3,
	CU_MEM_ALLOCATION_TYPE_PINNED = 1,
	CU_MEM_ACCESS_READ = 1,
	CU_MEM_ACCESS_READWRITE = 3,
	CU_MEM_HANDLE_POSIX_FD = 1,
	CU_MEMHOST_PORTABLE = 1, /* the same value for cuMemHostAlloc and cuMemHostRegister */
	CU_MEMHOST_DEVICEMAP = 2,
	CU_MEMHOSTREGISTER_READ_ONLY = 8,
	CU_IPC_LAZY_PEER_ACCESS = 1,
	CU_ATTRIBUTE_MAX_PITCH = 11,
	CU_ATTRIBUTE_HOST_POINTER_FOR_REGISTERED = 91,
	CU_ATTRIBUTE_64_BIT_STREAM_MEM_OPS = 122,
	CU_POINTER_MEMORY_TYPE = 2,
	CU_POINTER_IS_MANAGED = 8,
	CU_POINTER_DEVICE_ORDINAL = 9,
	CU_POINTER_RANGE_START = 11,
	CU_POINTER_RANGE_SIZE = 12,
	CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1,
	CU_POINTER_MEMPOOL = 17,
	CU_POINTER_MAPPING_SIZE = 18,
	CU_POINTER_MAPPING_BASE = 19,
};

/* X(name, version to look up, whether dgkit requires it, parameters) */
#define CUDA_FUNCTIONS(X)                                                                        \
	X(cuInit, 2000, 1, (unsigned flags))                                                     \
	X(cuDeviceGetCount, 2000, 1, (int *count))                                               \
	X(cuDeviceGet, 2000, 1, (CUdevice * dev, int ordinal))                                   \
	X(cuDeviceGetByPCIBusId, 4010, 0, (CUdevice * dev, const char *address))                 \
	X(cuDeviceGetName, 2000, 1, (char *name, int len, CUdevice dev))                         \
	X(cuDeviceGetUuid, 11040, 1, (CUuuid * uuid, CUdevice dev))                              \
	X(cuDeviceGetAttribute, 2000, 1, (int *value, int attribute, CUdevice dev))              \
	X(cuDevicePrimaryCtxRetain, 7000, 1, (CUcontext * ctx, CUdevice dev))                    \
	X(cuDevicePrimaryCtxRelease, 11000, 1, (CUdevice dev))                                   \
	X(cuCtxGetCurrent, 4000, 1, (CUcontext * ctx))                                           \
	X(cuCtxPushCurrent, 4000, 1, (CUcontext ctx))                                            \
	X(cuCtxPopCurrent, 4000, 1, (CUcontext * ctx))                                           \
	X(cuStreamCreate, 2000, 1, (CUstream * stream, unsigned flags))                          \
	X(cuStreamDestroy, 4000, 1, (CUstream stream))                                           \
	X(cuStreamSynchronize, 2000, 1, (CUstream stream))                                       \
	X(cuStreamQuery, 2000, 1, (CUstream stream))                                             \
	X(cuStreamWriteValue32, 11070, 1,                                                        \
	  (CUstream stream, CUdeviceptr addr, uint32_t value, unsigned flags))                   \
	X(cuStreamWaitValue32, 11070, 1,                                                         \
	  (CUstream stream, CUdeviceptr addr, uint32_t value, unsigned flags))                   \
	X(cuStreamBatchMemOp, 11070, 0,                                                          \
	  (CUstream stream, unsigned count, CUmemOp *ops, unsigned flags))                       \
	X(cuMemcpyBatchAsync, 12080, 0,                                                          \
	  (CUdeviceptr * dst, CUdeviceptr * src, size_t *size, size_t count,                     \
	   CUmemcpyAttributes * attributes, size_t *first, size_t n_attributes, size_t *refused, \
	   CUstream stream))                                                                     \
	X(cuLaunchHostFunc, 10000, 1, (CUstream stream, void (*call)(void *), void *arg))        \
	X(cuMemcpyHtoDAsync, 3020, 1,                                                            \
	  (CUdeviceptr dst, const void *src, size_t n, CUstream stream))                         \
	X(cuMemcpyDtoHAsync, 3020, 1, (void *dst, CUdeviceptr src, size_t n, CUstream stream))   \
	X(cuMemcpyDtoDAsync, 3020, 1,                                                            \
	  (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream))                         \
	X(cuMemcpy2DAsync, 3020, 1, (const CUDA_MEMCPY2D *copy, CUstream stream))                \
	X(cuMemcpy3DAsync, 3020, 1, (const CUDA_MEMCPY3D *copy, CUstream stream))                \
	X(cuMemHostRegister, 6050, 1, (void *addr, size_t n, unsigned flags))                    \
	X(cuMemHostUnregister, 4000, 1, (void *addr))                                            \
	X(cuMemHostAlloc, 2020, 1, (void **addr, size_t n, unsigned flags))                      \
	X(cuMemFreeHost, 2000, 1, (void *addr))                                                  \
	X(cuPointerGetAttribute, 4000, 1, (void *value, int attribute, CUdeviceptr addr))        \
	X(cuMemCreate, 10020, 1,                                                                 \
	  (CUmemHandle * handle, size_t n, const CUmemAllocationProp *prop,                      \
	   unsigned long long flags))                                                            \
	X(cuMemRelease, 10020, 1, (CUmemHandle handle))                                          \
	X(cuMemImportFromShareableHandle, 10020, 1,                                              \
	  (CUmemHandle * handle, void *os_handle, unsigned type))                                \
	X(cuMemAddressReserve, 10020, 1,                                                         \
	  (CUdeviceptr * addr, size_t n, size_t align, CUdeviceptr hint,                         \
	   unsigned long long flags))                                                            \
	X(cuMemAddressFree, 10020, 1, (CUdeviceptr addr, size_t n))                              \
	X(cuMemMap, 10020, 1,                                                                    \
	  (CUdeviceptr addr, size_t n, size_t offset, CUmemHandle handle,                        \
	   unsigned long long flags))                                                            \
	X(cuMemUnmap, 10020, 1, (CUdeviceptr addr, size_t n))                                    \
	X(cuMemSetAccess, 10020, 1,                                                              \
	  (CUdeviceptr addr, size_t n, const CUmemAccessDesc *access, size_t count))             \
	X(cuMemGetAllocationGranularity, 10020, 1,                                               \
	  (size_t *n, const CUmemAllocationProp *prop, unsigned option))                         \
	X(cuMemRetainAllocationHandle, 11000, 0, (CUmemHandle * handle, void *addr))             \
	X(cuMemExportToShareableHandle, 10020, 0,                                                \
	  (void *os_handle, CUmemHandle handle, unsigned type, unsigned long long flags))        \
	X(cuIpcGetMemHandle, 4010, 0, (CUipcMemHandle * handle, CUdeviceptr addr))               \
	X(cuIpcOpenMemHandle, 11000, 1,                                                          \
	  (CUdeviceptr * addr, CUipcMemHandle handle, unsigned flags))                           \
	X(cuIpcCloseMemHandle, 4010, 1, (CUdeviceptr addr))                                      \
	X(cuMemGetHandleForAddressRange, 11070, 0,                                               \
	  (void *handle, CUdeviceptr addr, size_t n, int type, unsigned long long flags))        \
	X(cuGetErrorName, 6000, 1, (CUresult code, const char **name))                           \
	X(cuModuleLoadData, 2000, 0, (CUmodule * module, const void *image))                     \
	X(cuModuleUnload, 2000, 0, (CUmodule module))                                            \
	X(cuModuleGetFunction, 2000, 0,                                                          \
	  (CUfunction * function, CUmodule module, const char *name))                            \
	X(cuLaunchKernel, 4000, 0,                                                               \
	  (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
	   unsigned bz, unsigned shared, CUstream stream, void **params, void **extra))

struct cuda_api {
#define CUDA_FIELD(name, version, needed, params) CUresult(*name) params;
	CUDA_FUNCTIONS(CUDA_FIELD)
#undef CUDA_FIELD
};

extern struct cuda_api cuda;
/* Loads the library, once for the process. Errors: ENODEV with the reason. */
int cuda_load(void);
/* Loads the library, starts the driver (cuInit, which may take a second) and counts the GPUs.
 * Errors: ENODEV with the reason. */
int cuda_start(int *gpus);
/* Returns the name of an error: "CUDA_ERROR_...". */
const char *cuda_name(CUresult code);

#endif
