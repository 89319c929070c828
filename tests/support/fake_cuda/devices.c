/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs: how many there are, and what they say of themselves. */
#include "state.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 13000 };

/* CU_DEVICE_ATTRIBUTE_...: those that dgkit or cuda.core asks for. What concerns GPUDirect, dma-bufs
 * and handles is what an H200 answered. */
static const struct {
	int number, value;
} answers[] = {
	{1, 1024}, /* MAX_THREADS_PER_BLOCK */
	{10, 32}, /* WARP_SIZE */
	{11, 0x7fffffff}, /* MAX_PITCH */
	{14, 512}, /* TEXTURE_ALIGNMENT */
	{15, 1}, /* GPU_OVERLAP */
	{16, 132}, /* MULTIPROCESSOR_COUNT */
	{18, 0}, /* INTEGRATED */
	{19, 1}, /* CAN_MAP_HOST_MEMORY */
	{20, 0}, /* COMPUTE_MODE */
	{34, 0}, /* PCI_DEVICE_ID */
	{40, 3}, /* ASYNC_ENGINE_COUNT */
	{41, 1}, /* UNIFIED_ADDRESSING */
	{50, 0}, /* PCI_DOMAIN_ID */
	{75, 9}, /* COMPUTE_CAPABILITY_MAJOR */
	{76, 0}, /* COMPUTE_CAPABILITY_MINOR */
	{78, 1}, /* STREAM_PRIORITIES_SUPPORTED */
	{83, 1}, /* MANAGED_MEMORY */
	{88, 0}, /* PAGEABLE_MEMORY_ACCESS */
	{89, 1}, /* CONCURRENT_MANAGED_ACCESS */
	{91, 1}, /* CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM */
	{92, 1}, /* CAN_USE_STREAM_MEM_OPS_V1 */
	{98, 1}, /* CAN_FLUSH_REMOTE_WRITES */
	{99, 1}, /* HOST_REGISTER_SUPPORTED */
	{102, 1}, /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
	{103, 1}, /* HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED */
	{104, 0}, /* HANDLE_TYPE_WIN32_HANDLE_SUPPORTED */
	{110, 1}, /* GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED */
	{113, 1}, /* READ_ONLY_HOST_REGISTER_SUPPORTED */
	{115, 1}, /* MEMORY_POOLS_SUPPORTED */
	{116, 1}, /* GPU_DIRECT_RDMA_SUPPORTED */
	{117, 1}, /* GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS */
	{118, 100}, /* GPU_DIRECT_RDMA_WRITES_ORDERING */
	{119, 1}, /* MEMPOOL_SUPPORTED_HANDLE_TYPES */
	{122, 1}, /* CAN_USE_64_BIT_STREAM_MEM_OPS */
	{123, 1}, /* CAN_USE_STREAM_WAIT_VALUE_NOR */
	{124, 1}, /* DMA_BUF_SUPPORTED */
	{125, 1}, /* IPC_EVENT_SUPPORTED */
	{128, 0}, /* HANDLE_TYPE_FABRIC_SUPPORTED */
	{146, 0}, /* HOST_ALLOC_DMA_BUF_SUPPORTED */
};

enum { PCI_BUS_ID = 33, LAST_ATTRIBUTE = 147 };

bool is_device(CUdevice device)
{
	return device >= 0 && device < knobs().gpus;
}

EXPORT CUresult cuInit(unsigned int flags)
{
	ENTER(gate_early);
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (knobs().gpus <= 0)
		return CUDA_ERROR_NO_DEVICE;
	initialise();
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
	ENTER(gate_early);
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = VERSION;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	ENTER(gate);
	*count = knobs().gpus;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	ENTER(gate);
	if (!is_device(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
	ENTER(gate);
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, (size_t)size, "dgkit fake GPU");
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	ENTER(gate);
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	memcpy(uuid->bytes, "dgkit fake GPU ", 15);
	uuid->bytes[15] = (char)('0' + device);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	return cuDeviceGetUuid_v2(uuid, device);
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	ENTER(gate);
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (attribute_knob(attribute, value))
		return CUDA_SUCCESS;
	if (attribute < 1 || attribute > LAST_ATTRIBUTE)
		return CUDA_ERROR_INVALID_VALUE;
	*value = attribute == PCI_BUS_ID ? 0x41 + device : 0;
	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++)
		if (answers[i].number == attribute)
			*value = answers[i].value;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device)
{
	ENTER(gate);
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(text, (size_t)size, "0000:%02X:00.0", 0x41 + device);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
	unsigned int bus;

	ENTER(gate);
	if (sscanf(text, "%*x:%x", &bus) != 1 || !is_device((int)bus - 0x41))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = (int)bus - 0x41;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	ENTER(gate);
	if (!is_device(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = knobs().total;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	ENTER(gate);
	if (!is_device(device) || !is_device(peer))
		return CUDA_ERROR_INVALID_DEVICE;
	*can = device != peer && knobs().peer;
	return CUDA_SUCCESS;
}
