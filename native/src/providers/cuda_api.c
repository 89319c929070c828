// SPDX-License-Identifier: Apache-2.0
/* Loading libcuda, and advice for errors while loading and starting it. */
#include "cuda_api.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "error.h"

struct cuda_api cuda;
static char load_error[320]; /* "" once the library is loaded */
static int load_reason = DG_REASON_OLD_NVIDIA_DRIVER;

static void load(void)
{
	typedef CUresult (*get_v2)(const char *, void **, int, uint64_t, int *);
	typedef CUresult (*get_v1)(const char *, void **, int, uint64_t);
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		load_reason = DG_REASON_NO_NVIDIA_DRIVER;
		snprintf(load_error, sizeof load_error,
			 "the NVIDIA driver's library was not found (%s): install the driver, or "
			 "start the container with the GPU (docker run --gpus all)",
			 dlerror());
		return;
	}
	get_v2 get2 = (get_v2)(uintptr_t)dlsym(lib, "cuGetProcAddress_v2");
	get_v1 get1 = (get_v1)(uintptr_t)dlsym(lib, "cuGetProcAddress");
	if (!get2 && !get1) {
		snprintf(load_error, sizeof load_error,
			 "the NVIDIA driver is older than CUDA 11.3 (libcuda.so.1 has no "
			 "cuGetProcAddress): install a newer driver");
		return;
	}
#define CUDA_TAKE(name, version, needed, params)                                            \
	do {                                                                                \
		void *found = NULL;                                                         \
		int status = 0;                                                             \
		CUresult rc = get2 ? get2(#name, &found, version, 0, &status)               \
				   : get1(#name, &found, version, 0);                       \
		if ((rc || !found) && (needed) && !load_error[0])                           \
			snprintf(load_error, sizeof load_error,                             \
				 "the NVIDIA driver is too old: libcuda.so.1 has no " #name \
				 " of CUDA %d.%d: install a newer driver",                  \
				 (version) / 1000, (version) % 1000 / 10);                  \
		cuda.name = (CUresult(*) params)(uintptr_t)(rc ? NULL : found);             \
	} while (0);
	CUDA_FUNCTIONS(CUDA_TAKE)
#undef CUDA_TAKE
}

int cuda_load(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, load);
	return load_error[0] ? dg_fail(load_reason, "no GPU can be used: %s", load_error) : 0;
}

const char *cuda_name(CUresult code)
{
	const char *name = NULL;
	return cuda.cuGetErrorName && !cuda.cuGetErrorName(code, &name) && name ? name
										: "unknown error";
}

static const char *remedy_of(CUresult code)
{
	switch (code) {
	case CUDA_ERROR_NO_DEVICE:
		return "there is no GPU, or CUDA_VISIBLE_DEVICES hides it, or a container was "
		       "started without it (docker run --gpus all)";
	case CUDA_ERROR_STUB_LIBRARY:
		return "libcuda.so.1 is the CUDA toolkit's stub: remove its folder from "
		       "LD_LIBRARY_PATH, so that the driver's own library is found";
	case CUDA_ERROR_NOT_INITIALIZED:
		return "CUDA was initialized before fork() and cannot be used in the child: start "
		       "processes with the spawn method (multiprocessing.set_start_method)";
	case CUDA_ERROR_SYSTEM_NOT_READY:
		return "the system is not ready: check that nvidia-fabricmanager is running "
		       "(systemctl status nvidia-fabricmanager)";
	case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
		return "the kernel module and libcuda.so.1 have different versions: after a driver "
		       "update, reboot or reload the module";
	case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
		return "the CUDA compatibility package does not support this GPU: remove its "
		       "folder from LD_LIBRARY_PATH";
	default:
		return "check nvidia-smi and the kernel log (dmesg | grep -i nvrm)";
	}
}

int cuda_start(int *gpus)
{
	TRY(cuda_load());
	CUresult code = cuda.cuInit(0);
	if (!code)
		code = cuda.cuDeviceGetCount(gpus);
	if (!code && *gpus == 0)
		code = CUDA_ERROR_NO_DEVICE;
	if (!code)
		return 0;
	/* Called before fork(): a defect of the program, not of the driver. */
	return dg_fail(code == CUDA_ERROR_NOT_INITIALIZED ? ENODEV : DG_REASON_CUDA,
		       "no GPU can be used: %s (%d): %s", cuda_name(code), code, remedy_of(code));
}
