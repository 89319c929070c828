// SPDX-License-Identifier: Apache-2.0
/*
 * What each form of a small copy costs, in bare CUDA: one process owns GPU memory, this one has it
 * imported, and the owner's GPU is idle or computes. Prints one line of JSON for each case.
 *
 *   form_probe [SECONDS_A_CASE [PART...]]    parts: single batch torn canary strided engine words
 * led wake
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_api.h"
#include "cuda_gather.h"
#include "error.h"

int dg_fail(int err, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	va_end(args);
	return -err;
}

enum {
	BLOCK = 64 << 20,
	GRANULE = 2 << 20,
	OPS = 1024,
	FAST_NS = 100000,
	MAX_SAMPLES = 20000,
	DEADLINE_NS = 2000000000,
};

typedef struct {
	int srcAccessOrder;
	CUmemLocation srcLocHint, dstLocHint;
	unsigned flags;
} attributes;

typedef struct {
	int type;
	union {
		struct {
			CUdeviceptr ptr;
			size_t rowLength, layerHeight;
			CUmemLocation hint;
		} ptr;
		struct {
			void *array;
			size_t x, y, z;
		} array;
	} op;
} operand;

typedef struct {
	operand src, dst;
	size_t width, height, depth;
	int srcAccessOrder;
	unsigned flags;
} op3d;

typedef union {
	int operation;
	struct {
		int operation;
		CUdeviceptr address;
		uint64_t value;
		unsigned flags;
		CUdeviceptr alias;
	} write;
	uint64_t pad[6];
} mem_op;

static struct {
	CUresult (*batch)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, attributes *, size_t *,
			  size_t, size_t *, CUstream);
	CUresult (*batch3d)(size_t, op3d *, size_t *, unsigned long long, CUstream);
	CUresult (*write64)(CUstream, CUdeviceptr, uint64_t, unsigned);
	CUresult (*memops)(CUstream, unsigned, mem_op *, unsigned);
	CUresult (*priority)(CUstream *, unsigned, int);
	CUresult (*range)(int *, int *);
	CUresult (*alloc)(CUdeviceptr *, size_t);
	CUresult (*unified)(CUdeviceptr, CUdeviceptr, size_t, CUstream);
} more;

static void take_more(void)
{
	typedef CUresult (*get_v2)(const char *, void **, int, uint64_t, int *);
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	get_v2 get = (get_v2)(uintptr_t)dlsym(lib, "cuGetProcAddress_v2");
#define TAKE(field, name, version)                                          \
	do {                                                                \
		void *found = NULL;                                         \
		int status;                                                 \
		if (!get(name, &found, version, 0, &status))                \
			memcpy(&more.field, &found, sizeof found);          \
	} while (0)
	TAKE(batch, "cuMemcpyBatchAsync", 12080);
	TAKE(batch3d, "cuMemcpy3DBatchAsync", 12080);
	TAKE(write64, "cuStreamWriteValue64", 11070);
	TAKE(memops, "cuStreamBatchMemOp", 11070);
	TAKE(priority, "cuStreamCreateWithPriority", 5050);
	TAKE(range, "cuCtxGetStreamPriorityRange", 5050);
	TAKE(alloc, "cuMemAlloc", 3020);
	TAKE(unified, "cuMemcpyAsync", 4000);
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void must(const char *what, CUresult code)
{
	if (!code)
		return;
	fprintf(stderr, "%s: %s (%d)\n", what, cuda_name(code), code);
	exit(1);
}

static const char kernels[] =
	".version 6.0\n.target sm_60\n.address_size 64\n"
	".visible .entry spin(.param .u64 cycles)\n"
	"{\n"
	"	.reg .pred %p;\n"
	"	.reg .b64 %rd<4>;\n"
	"	ld.param.u64 %rd3, [cycles];\n"
	"	mov.u64 %rd0, %clock64;\n"
	"AGAIN:\n"
	"	mov.u64 %rd1, %clock64;\n"
	"	sub.u64 %rd2, %rd1, %rd0;\n"
	"	setp.lt.u64 %p, %rd2, %rd3;\n"
	"	@%p bra AGAIN;\n"
	"	ret;\n"
	"}\n"
	".visible .entry nothing()\n"
	"{\n"
	"	ret;\n"
	"}\n"
	/* counts in out[0] the values seen at `at`, in out[1] those whose halves differ */
	".visible .entry watch(.param .u64 at, .param .u64 out, .param .u64 cycles)\n"
	"{\n"
	"	.reg .pred %p, %q;\n"
	"	.reg .b32 %r<3>;\n"
	"	.reg .b64 %rd<10>;\n"
	"	ld.param.u64 %rd3, [cycles];\n"
	"	ld.param.u64 %rd4, [at];\n"
	"	ld.param.u64 %rd5, [out];\n"
	"	mov.u64 %rd6, 0;\n"
	"	mov.u64 %rd7, 0;\n"
	"	mov.u64 %rd8, 0;\n"
	"	mov.u64 %rd0, %clock64;\n"
	"AGAIN:\n"
	"	ld.volatile.global.u64 %rd9, [%rd4];\n"
	"	setp.eq.u64 %p, %rd9, %rd6;\n"
	"	@%p bra SAME;\n"
	"	mov.u64 %rd6, %rd9;\n"
	"	add.u64 %rd7, %rd7, 1;\n"
	"	mov.b64 {%r0, %r1}, %rd9;\n"
	"	setp.eq.u32 %q, %r0, %r1;\n"
	"	@%q bra SAME;\n"
	"	add.u64 %rd8, %rd8, 1;\n"
	"SAME:\n"
	"	mov.u64 %rd1, %clock64;\n"
	"	sub.u64 %rd2, %rd1, %rd0;\n"
	"	setp.lt.u64 %p, %rd2, %rd3;\n"
	"	@%p bra AGAIN;\n"
	"	st.volatile.global.u64 [%rd5], %rd7;\n"
	"	st.volatile.global.u64 [%rd5+8], %rd8;\n"
	"	ret;\n"
	"}\n";

/* ---- the owner ---- */

static atomic_int busy_wanted, ending;
static CUcontext context;
static CUmodule owner_module;

static void *keep_busy(void *arg)
{
	CUfunction spin;
	CUstream stream;
	uint64_t cycles = 2000000;
	void *params[] = {&cycles};
	(void)arg;
	must("current", cuda.cuCtxPushCurrent(context));
	must("function", cuda.cuModuleGetFunction(&spin, owner_module, "spin"));
	must("stream", cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	while (!atomic_load(&ending)) {
		if (!atomic_load(&busy_wanted)) {
			usleep(1000);
			continue;
		}
		for (int i = 0; i < 4; i++)
			must("spin", cuda.cuLaunchKernel(spin, 264, 1, 1, 1024, 1, 1, 0, stream,
							 params, NULL));
		must("spun", cuda.cuStreamSynchronize(stream));
	}
	return NULL;
}

static CUdevice device;

static void start_cuda(void)
{
	int gpus;
	if (cuda_start(&gpus))
		exit(1);
	take_more();
	must("device", cuda.cuDeviceGet(&device, 0));
	must("context", cuda.cuDevicePrimaryCtxRetain(&context, device));
	must("push", cuda.cuCtxPushCurrent(context));
}

static void allow(CUdeviceptr at, size_t size)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_READWRITE};
	must("access", cuda.cuMemSetAccess(at, size, &access, 1));
}

static void send_fd(int sock, int fd, const CUipcMemHandle *ipc)
{
	char space[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec part = {(void *)(uintptr_t)ipc, sizeof *ipc};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = space,
				 .msg_controllen = sizeof space};
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	if (sendmsg(sock, &message, 0) < 0)
		exit(2);
}

static int take_fd(int sock, CUipcMemHandle *ipc)
{
	int fd = -1;
	char space[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec part = {ipc, sizeof *ipc};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = space,
				 .msg_controllen = sizeof space};
	if (recvmsg(sock, &message, 0) != (ssize_t)sizeof *ipc)
		exit(2);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

static void own(int sock)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_POSIX_FD,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
		.allocFlags = {.gpuDirectRDMACapable = 1},
	};
	CUmemHandle handle;
	CUdeviceptr at, plain;
	CUipcMemHandle ipc;
	pthread_t thread;
	int fd = -1;
	char word;
	start_cuda();
	must("create", cuda.cuMemCreate(&handle, BLOCK, &prop, 0));
	must("reserve", cuda.cuMemAddressReserve(&at, BLOCK, 0, 0, 0));
	must("map", cuda.cuMemMap(at, BLOCK, 0, handle, 0));
	allow(at, BLOCK);
	must("export", cuda.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_POSIX_FD, 0));
	must("alloc", more.alloc(&plain, BLOCK));
	must("ipc", cuda.cuIpcGetMemHandle(&ipc, plain));
	must("module", cuda.cuModuleLoadData(&owner_module, kernels));
	send_fd(sock, fd, &ipc);
	pthread_create(&thread, NULL, keep_busy, NULL);
	while (read(sock, &word, 1) == 1) {
		atomic_store(&busy_wanted, word == 'b');
		if (write(sock, &word, 1) != 1)
			break;
	}
	atomic_store(&ending, 1);
	pthread_join(thread, NULL);
	exit(0);
}

/* ---- the importer ---- */

static CUstream stream, prio;
static CUdeviceptr vmm, ipc, scratch;
static CUdeviceptr target; /* vmm or ipc, BLOCK bytes */
static char *host, *staging; /* pinned, BLOCK bytes; pinned, 1 MiB */
static atomic_uint *flag;
static uint64_t *counts;
static uint32_t posted;
static CUfunction gather, nothing, watch;
static struct gather_op {
	uint64_t dst, src, size, reserved;
} *gathers;
static int owner;
static const char *state = "idle";
static double seconds = 0.15;
static unsigned pause_us;
static CUresult (*before_each)(void);
static CUstream waker;
static CUdeviceptr near_ipc; /* a granule of our own, mapped close behind the ipc block, or 0 */

/* The operations of a case: to the GPU, or from it. */
static bool to_gpu;
static size_t size;
static unsigned n;
static uint32_t dsts[OPS], srcs[OPS]; /* offsets in the target and in host */
static uint32_t order[OPS]; /* by offset in the target */

static CUdeviceptr dst_at(unsigned i)
{
	return to_gpu ? target + dsts[i] : (CUdeviceptr)(uintptr_t)(host + dsts[i]);
}

static CUdeviceptr src_at(unsigned i)
{
	return to_gpu ? (CUdeviceptr)(uintptr_t)(host + srcs[i]) : target + srcs[i];
}

static CUresult plain_on(CUstream s, unsigned i)
{
	return to_gpu ? cuda.cuMemcpyHtoDAsync(target + dsts[i], host + srcs[i], size, s)
		      : cuda.cuMemcpyDtoHAsync(host + dsts[i], target + srcs[i], size, s);
}

static CUresult rows2d(unsigned type_host, CUdeviceptr dst, CUdeviceptr src, size_t width,
		       size_t height, size_t dst_pitch, size_t src_pitch)
{
	bool unified = type_host == CU_MEMORYTYPE_UNIFIED;
	unsigned dev = unified ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;
	CUDA_MEMCPY2D c = {
		.srcMemoryType = to_gpu ? type_host : dev,
		.srcHost = (void *)(uintptr_t)src,
		.srcDevice = src,
		.srcPitch = src_pitch,
		.dstMemoryType = to_gpu ? dev : type_host,
		.dstHost = (void *)(uintptr_t)dst,
		.dstDevice = dst,
		.dstPitch = dst_pitch,
		.WidthInBytes = width,
		.Height = height,
	};
	return cuda.cuMemcpy2DAsync(&c, stream);
}

/* two planes of one row, any distance apart, the second one at `away` bytes */
static CUresult planes(CUdeviceptr dst, uint64_t away, const char *src, size_t width,
		       size_t src_pitch)
{
	uint64_t pitch = 1 << 20;
	while (away % pitch || pitch < width)
		pitch = pitch < width ? width : pitch / 2;
	CUDA_MEMCPY3D c = {
		.srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = src,
		.srcPitch = src_pitch,
		.srcHeight = 1,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = dst,
		.dstPitch = pitch,
		.dstHeight = away / pitch,
		.WidthInBytes = width,
		.Height = 1,
		.Depth = 2,
	};
	return cuda.cuMemcpy3DAsync(&c, stream);
}

static CUresult f_plain(void)
{
	CUresult code = 0;
	for (unsigned i = 0; i < n && !code; i++)
		code = plain_on(stream, i);
	return code;
}

static CUresult f_plain_unified(void)
{
	CUresult code = 0;
	for (unsigned i = 0; i < n && !code; i++)
		code = more.unified(dst_at(i), src_at(i), size, stream);
	return code;
}

static CUresult f_halves(void)
{
	CUresult code = 0;
	for (unsigned i = 0; i < n && !code; i++)
		code = rows2d(CU_MEMORYTYPE_HOST, dst_at(i), src_at(i), size / 2, 2, size / 2,
			      size / 2);
	return code;
}

static CUresult f_halves_unified(void)
{
	CUresult code = 0;
	for (unsigned i = 0; i < n && !code; i++)
		code = rows2d(CU_MEMORYTYPE_UNIFIED, dst_at(i), src_at(i), size / 2, 2, size / 2,
			      size / 2);
	return code;
}

/* the halves apart in the source, so that the copy is not one run */
static CUresult f_halves_apart(void)
{
	CUresult code = 0;
	for (unsigned i = 0; i < n && !code; i++) {
		char *to = staging + i * 4 * size;
		memcpy(to, host + srcs[i], size / 2);
		memcpy(to + size, host + srcs[i] + size / 2, size / 2);
		code = rows2d(CU_MEMORYTYPE_HOST, dst_at(i), (CUdeviceptr)(uintptr_t)to, size / 2,
			      2, size / 2, size);
	}
	return code;
}

/* the second row goes to the tail behind the block (mapped there for vmm only) */
static CUresult f_tail(void)
{
	CUresult code = 0;
	for (unsigned i = 0; i < n && !code; i++) {
		char *to = staging + i * 2 * size;
		memcpy(to, host + srcs[i], size);
		memcpy(to + size, host + srcs[i], size);
		code = rows2d(CU_MEMORYTYPE_HOST, dst_at(i), (CUdeviceptr)(uintptr_t)to, size, 2,
			      target + BLOCK - dst_at(i), size);
	}
	return code;
}

/* the second plane goes to scratch memory at any address */
static CUresult f_far(void)
{
	CUresult code = 0;
	for (unsigned i = 0; i < n && !code; i++) {
		CUdeviceptr dst = dst_at(i), low = dst < scratch ? dst : scratch;
		uint64_t phase = dst % (1 << 20), other = scratch + phase, away;
		char *to = staging + i * 2 * size;
		low = dst < other ? dst : other;
		away = dst < other ? other - dst : dst - other;
		memcpy(to, host + srcs[i], size);
		memcpy(to + size, host + srcs[i], size);
		code = planes(low, away, to, size, size);
	}
	return code;
}

/* a first row of the block's own bytes is not needed: the flag's word of 4 bytes as second row */
static CUresult batch_on(CUstream s, int access, unsigned flags, bool halves)
{
	static CUdeviceptr d[2 * OPS], f[2 * OPS];
	static size_t sizes[2 * OPS];
	attributes a = {.srcAccessOrder = access, .flags = flags};
	size_t first = 0, failed, count = halves ? 2 * n : n;
	if (!more.batch)
		return CUDA_ERROR_NOT_SUPPORTED;
	for (unsigned i = 0; i < n; i++) {
		if (halves) {
			d[2 * i] = dst_at(i), d[2 * i + 1] = dst_at(i) + size / 2;
			f[2 * i] = src_at(i), f[2 * i + 1] = src_at(i) + size / 2;
			sizes[2 * i] = sizes[2 * i + 1] = size / 2;
		} else {
			d[i] = dst_at(i), f[i] = src_at(i), sizes[i] = size;
		}
	}
	return more.batch(d, f, sizes, count, &a, &first, 1, &failed, s);
}

static CUresult f_batch_stream(void)
{
	return batch_on(stream, 1, 0, false);
}

static CUresult f_batch_during(void)
{
	return batch_on(stream, 2, 0, false);
}

static CUresult f_batch_any(void)
{
	return batch_on(stream, 3, 0, false);
}

static CUresult f_batch_overlap(void)
{
	return batch_on(stream, 1, 1, false);
}

static CUresult f_batch_halves(void)
{
	return batch_on(stream, 1, 0, true);
}

/* a read goes first, so that the stream is already with a copy engine */
static CUresult f_read_batch(void)
{
	CUresult code = cuda.cuMemcpyDtoHAsync(staging, target + BLOCK - 4096, 8, stream);
	return code ? code : batch_on(stream, 1, 0, false);
}

static CUresult f_two_rows_batch(void)
{
	CUresult code = rows2d(CU_MEMORYTYPE_HOST, target + BLOCK - 8192,
			       (CUdeviceptr)(uintptr_t)staging, 16, 2, 32, 16);
	return code ? code : batch_on(stream, 1, 0, false);
}

static CUresult b3d(bool halves)
{
	static op3d ops[OPS];
	size_t failed;
	if (!more.batch3d)
		return CUDA_ERROR_NOT_SUPPORTED;
	memset(ops, 0, n * sizeof *ops);
	for (unsigned i = 0; i < n; i++) {
		size_t width = halves ? size / 2 : size;
		ops[i].src.type = ops[i].dst.type = 1;
		ops[i].src.op.ptr.ptr = src_at(i);
		ops[i].dst.op.ptr.ptr = dst_at(i);
		ops[i].src.op.ptr.rowLength = ops[i].dst.op.ptr.rowLength = width;
		ops[i].src.op.ptr.layerHeight = ops[i].dst.op.ptr.layerHeight = halves ? 2 : 1;
		ops[i].width = width;
		ops[i].height = halves ? 2 : 1;
		ops[i].depth = 1;
		ops[i].srcAccessOrder = 1;
	}
	return more.batch3d(n, ops, &failed, 0, stream);
}

static CUresult f_b3d_row(void)
{
	return b3d(false);
}

static CUresult f_b3d_halves(void)
{
	return b3d(true);
}

/* Two operations are two rows of one copy: in the order of the GPU's addresses, the host's side in
 * staging memory. */
static void pair_staged(char *to, unsigned a, unsigned b)
{
	memcpy(to, host + srcs[a], size);
	memcpy(to + size, host + srcs[b], size);
}

static CUresult f_pairs(void)
{
	CUresult code = 0;
	for (unsigned i = 0; i + 1 < n && !code; i += 2) {
		unsigned a = order[i], b = order[i + 1];
		char *to = staging + i * size;
		if (to_gpu) {
			pair_staged(to, a, b);
			code = rows2d(CU_MEMORYTYPE_HOST, dst_at(a), (CUdeviceptr)(uintptr_t)to,
				      size, 2, dsts[b] - dsts[a], size);
		} else {
			code = rows2d(CU_MEMORYTYPE_HOST, (CUdeviceptr)(uintptr_t)to, src_at(a),
				      size, 2, size, srcs[b] - srcs[a]);
		}
	}
	return code;
}

static CUresult f_b3d_pairs(void)
{
	static op3d ops[OPS];
	size_t failed;
	if (!more.batch3d || n < 2)
		return CUDA_ERROR_NOT_SUPPORTED;
	memset(ops, 0, n * sizeof *ops);
	for (unsigned i = 0; i + 1 < n; i += 2) {
		unsigned a = order[i], b = order[i + 1];
		char *to = staging + i * size;
		op3d *o = ops + i / 2;
		size_t apart = to_gpu ? dsts[b] - dsts[a] : srcs[b] - srcs[a];
		if (to_gpu)
			pair_staged(to, a, b);
		o->src.type = o->dst.type = 1;
		o->src.op.ptr.ptr = to_gpu ? (CUdeviceptr)(uintptr_t)to : src_at(a);
		o->dst.op.ptr.ptr = to_gpu ? dst_at(a) : (CUdeviceptr)(uintptr_t)to;
		o->src.op.ptr.rowLength = to_gpu ? size : apart;
		o->dst.op.ptr.rowLength = to_gpu ? apart : size;
		o->src.op.ptr.layerHeight = o->dst.op.ptr.layerHeight = 2;
		o->width = size;
		o->height = 2;
		o->depth = 1;
		o->srcAccessOrder = 1;
	}
	return more.batch3d(n / 2, ops, &failed, 0, stream);
}

static CUresult f_kernel(void)
{
	uint32_t first = 0, mask = OPS - 1, count = n, shift = size <= 64 ? 3 : 5;
	void *params[] = {&gathers, &first, &mask, &count, &shift};
	uint32_t blocks = (uint32_t)((((uint64_t)n << shift) + 255) / 256);
	for (unsigned i = 0; i < n; i++)
		gathers[i] = (struct gather_op){dst_at(i), src_at(i), size, 0};
	return cuda.cuLaunchKernel(gather, blocks, 1, 1, 256, 1, 1, 0, stream, params, NULL);
}

static CUresult f_nothing(void)
{
	return cuda.cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

static CUresult f_write64(void)
{
	CUresult code = 0;
	for (unsigned i = 0; i < n && !code; i++)
		code = more.write64(stream, dst_at(i), *(uint64_t *)(host + srcs[i]), 0);
	return code;
}

static CUresult f_read_write64(void)
{
	CUresult code = cuda.cuMemcpyDtoHAsync(staging, target + BLOCK - 4096, 8, stream);
	return code ? code : f_write64();
}

static CUresult f_strided(void)
{
	return rows2d(CU_MEMORYTYPE_HOST, to_gpu ? target : (CUdeviceptr)(uintptr_t)host,
		      to_gpu ? (CUdeviceptr)(uintptr_t)host : target, size, n, 128, 128);
}

/* the flag is part of the form */
static CUresult f_memops(void)
{
	mem_op ops[2] = {0};
	if (!more.memops)
		return CUDA_ERROR_NOT_SUPPORTED;
	ops[0].write.operation = 5;
	ops[0].write.address = dst_at(0);
	ops[0].write.value = *(uint64_t *)(host + srcs[0]);
	ops[1].write.operation = 2;
	ops[1].write.address = (CUdeviceptr)(uintptr_t)flag;
	ops[1].write.value = ++posted;
	return more.memops(stream, 2, ops, 0);
}

/* as many words as the size has, without barriers but for the first, and the flag, in one call */
static CUresult words_on(bool barriers)
{
	static mem_op ops[256];
	unsigned words = (unsigned)(size / 8), at = 0;
	if (!more.memops || n * words > 255)
		return CUDA_ERROR_NOT_SUPPORTED;
	memset(ops, 0, (n * words + 1) * sizeof *ops);
	for (unsigned i = 0; i < n; i++)
		for (unsigned w = 0; w < words; w++, at++) {
			ops[at].write.operation = 5;
			ops[at].write.address = dst_at(i) + 8 * w;
			ops[at].write.value = *(uint64_t *)(host + srcs[i] + 8 * w);
			ops[at].write.flags = barriers || !at ? 0 : 1;
		}
	ops[at].write.operation = 2;
	ops[at].write.address = (CUdeviceptr)(uintptr_t)flag;
	ops[at].write.value = ++posted;
	return more.memops(stream, at + 1, ops, 0);
}

static CUresult f_words(void)
{
	return words_on(false);
}

static CUresult f_words_barriers(void)
{
	return words_on(true);
}

/* two rows into memory of this process: the copy engine has the stream */
static CUresult take_engine(void)
{
	return rows2d(CU_MEMORYTYPE_HOST, scratch, (CUdeviceptr)(uintptr_t)staging, 16, 2, 32, 16);
}

static CUresult f_engine_plain(void)
{
	CUresult code = take_engine();
	return code ? code : f_plain();
}

static CUresult f_read_plain(void)
{
	CUresult code = cuda.cuMemcpyDtoHAsync(staging, scratch, 8, stream);
	return code ? code : f_plain();
}

static CUresult f_near(void)
{
	char *to = staging;
	if (!near_ipc)
		return CUDA_ERROR_NOT_SUPPORTED;
	memcpy(to, host + srcs[0], size);
	memcpy(to + size, host + srcs[0], size);
	return rows2d(CU_MEMORYTYPE_HOST, dst_at(0), (CUdeviceptr)(uintptr_t)to, size, 2,
		      near_ipc - dst_at(0), size);
}

/* BatchAsync of operations from..upto, behind one of them as two rows */
static CUresult led_part(unsigned from, unsigned upto, bool lead)
{
	static CUdeviceptr d[OPS], f[OPS];
	static size_t sizes[OPS];
	attributes a = {.srcAccessOrder = 1};
	size_t first = 0, failed, count = 0;
	CUresult code = 0;
	if (lead) {
		code = rows2d(CU_MEMORYTYPE_HOST, dst_at(from), src_at(from), size / 2, 2,
			      size / 2, size / 2);
		from++;
	}
	for (unsigned i = from; i < upto; i++, count++)
		d[count] = dst_at(i), f[count] = src_at(i), sizes[count] = size;
	return code || !count ? code : more.batch(d, f, sizes, count, &a, &first, 1, &failed,
						  stream);
}

static CUresult led(unsigned chunk)
{
	CUresult code = 0;
	for (unsigned i = 0; i < n && !code; i += chunk)
		code = led_part(i, i + chunk < n ? i + chunk : n, true);
	return code;
}

static CUresult f_led(void)
{
	return led(n);
}

static CUresult f_led_128(void)
{
	return led(128);
}

static CUresult f_led_64(void)
{
	return led(64);
}

static CUresult f_led_32(void)
{
	return led(32);
}

static CUresult f_led_16(void)
{
	return led(16);
}

/* one lead, then calls of 32 each */
static CUresult f_led_once_32(void)
{
	CUresult code = 0;
	for (unsigned i = 0; i < n && !code; i += 32)
		code = led_part(i, i + 32 < n ? i + 32 : n, !i);
	return code;
}

/* a lead that takes longer than a call of 64 */
static CUresult f_long_lead(void)
{
	CUresult code = cuda.cuMemcpyDtoHAsync(staging, target, 1 << 18, stream);
	return code ? code : batch_on(stream, 1, 0, false);
}

/* two leads: two operations as two rows each */
static CUresult f_led_twice(void)
{
	CUresult code = rows2d(CU_MEMORYTYPE_HOST, dst_at(0), src_at(0), size / 2, 2, size / 2,
			       size / 2);
	return code ? code : led_part(1, n, true);
}

static CUresult finish(void);
static atomic_uint woken;

static void wake_me(void *arg)
{
	atomic_store((atomic_uint *)arg, posted);
}

/* what a sleeper waits for: the second stream sees the flag, and calls back */
static CUresult f_wake(void)
{
	CUresult code = cuda.cuMemcpyDtoHAsync(staging, target, 8, stream);
	if (!code)
		code = finish();
	if (!code)
		code = cuda.cuStreamWaitValue32(waker, (CUdeviceptr)(uintptr_t)flag, posted, 0);
	if (!code)
		code = cuda.cuLaunchHostFunc(waker, wake_me, &woken);
	uint64_t since = now_ns();
	while (!code && atomic_load(&woken) != posted)
		if (now_ns() - since > DEADLINE_NS)
			return CUDA_ERROR_LAUNCH_TIMEOUT;
	return code;
}

static CUresult f_wake_primed(void)
{
	CUresult code = cuda.cuMemcpyDtoHAsync(staging + 64, target, 8, waker);
	return code ? code : f_wake();
}

enum { WRITES = 1, READS = 2, WORD_ONLY = 4, VMM_ONLY = 8, HALVES = 16, OWN_FLAG = 32,
       NO_CHECK = 64, ON_PRIO = 128 };

struct form {
	const char *name;
	CUresult (*run)(void);
	int flags;
};

static const struct form singles[] = {
	{"plain", f_plain, WRITES | READS},
	{"plain_unified", f_plain_unified, WRITES | READS},
	{"plain_prio", f_plain, WRITES | READS | ON_PRIO},
	{"rows_halves", f_halves, WRITES | READS | HALVES},
	{"rows_halves_prio", f_halves, WRITES | HALVES | ON_PRIO},
	{"rows_halves_unified", f_halves_unified, WRITES | HALVES},
	{"rows_halves_apart", f_halves_apart, WRITES | HALVES},
	{"rows_tail", f_tail, WRITES | VMM_ONLY},
	{"planes_far", f_far, WRITES},
	{"batch_stream", f_batch_stream, WRITES | READS},
	{"batch_during", f_batch_during, WRITES},
	{"batch_any", f_batch_any, WRITES},
	{"batch_overlap", f_batch_overlap, WRITES},
	{"batch_halves", f_batch_halves, WRITES | HALVES},
	{"b3d_row", f_b3d_row, WRITES | READS},
	{"b3d_halves", f_b3d_halves, WRITES | READS | HALVES},
	{"write64", f_write64, WRITES | WORD_ONLY},
	{"write64_prio", f_write64, WRITES | WORD_ONLY | ON_PRIO},
	{"read_write64", f_read_write64, WRITES | WORD_ONLY},
	{"memops", f_memops, WRITES | WORD_ONLY | OWN_FLAG},
	{"kernel", f_kernel, WRITES | READS},
	{"kernel_prio", f_kernel, WRITES | READS | ON_PRIO},
};

static const struct form batches[] = {
	{"plain", f_plain, WRITES | READS},
	{"rows_halves", f_halves, WRITES | READS},
	{"batch_stream", f_batch_stream, WRITES | READS},
	{"batch_stream_prio", f_batch_stream, WRITES | READS | ON_PRIO},
	{"batch_during", f_batch_during, WRITES},
	{"batch_any", f_batch_any, WRITES},
	{"batch_overlap", f_batch_overlap, WRITES | READS},
	{"read_batch", f_read_batch, WRITES},
	{"two_rows_batch", f_two_rows_batch, WRITES},
	{"batch_halves", f_batch_halves, WRITES},
	{"b3d_row", f_b3d_row, WRITES | READS},
	{"b3d_halves", f_b3d_halves, WRITES | READS},
	{"pairs", f_pairs, WRITES | READS | NO_CHECK},
	{"b3d_pairs", f_b3d_pairs, WRITES | READS | NO_CHECK},
	{"kernel", f_kernel, WRITES | READS},
	{"kernel_prio", f_kernel, WRITES | READS | ON_PRIO},
};

static CUresult finish(void)
{
	return cuda.cuStreamWriteValue32(stream, (CUdeviceptr)(uintptr_t)flag, ++posted, 0);
}

static bool await(void)
{
	uint64_t since = now_ns();
	while (atomic_load_explicit(flag, memory_order_acquire) != posted)
		if (now_ns() - since > DEADLINE_NS)
			return false;
	return true;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static int by_target(const void *a, const void *b)
{
	const uint32_t *offsets = to_gpu ? dsts : srcs;
	uint32_t x = offsets[*(const uint32_t *)a], y = offsets[*(const uint32_t *)b];
	return x < y ? -1 : x > y;
}

static void places(bool write, size_t bytes, unsigned count)
{
	static uint32_t slots[BLOCK / 2 / 16384];
	unsigned total = BLOCK / 2 / 16384;
	to_gpu = write, size = bytes, n = count;
	for (int side = 0; side < 2; side++) {
		uint32_t *to = side ? srcs : dsts;
		for (unsigned i = 0; i < total; i++)
			slots[i] = i;
		for (unsigned i = 0; i < count; i++) {
			unsigned j = i + (unsigned)rand() % (total - i);
			uint32_t swap = slots[i];
			slots[i] = slots[j], slots[j] = swap;
			to[i] = slots[i] * 16384 + (bytes < 8192 ? (unsigned)(rand() % 16) * 64 : 0);
		}
	}
	for (unsigned i = 0; i < count; i++)
		order[i] = i;
	qsort(order, count, sizeof *order, by_target);
}

/* Whether the form moves the right bytes: once, from fresh random ones. */
static const char *check(const struct form *form)
{
	static char *got;
	const char *result = "right";
	if (!got)
		must("pinned", cuda.cuMemHostAlloc((void **)&got, BLOCK, 1));
	if (form->flags & NO_CHECK && !to_gpu)
		return "unchecked";
	static uint64_t random = 88172645463325252u;
	for (unsigned i = 0; i < BLOCK / 8; i++) {
		random ^= random << 13, random ^= random >> 7, random ^= random << 17;
		((uint64_t *)host)[i] = random;
	}
	if (!to_gpu) {
		must("fill", cuda.cuMemcpyHtoDAsync(target, host, BLOCK, stream));
		must("filled", cuda.cuStreamSynchronize(stream));
		memcpy(got, host, BLOCK);
		memset(host, 0, BLOCK);
	}
	if (form->run() || cuda.cuStreamSynchronize(stream))
		return "refused";
	if (to_gpu) {
		must("back", cuda.cuMemcpyDtoHAsync(got, target, BLOCK, stream));
		must("is back", cuda.cuStreamSynchronize(stream));
	}
	for (unsigned i = 0; i < n; i++)
		if (memcmp(to_gpu ? got + dsts[i] : host + dsts[i],
			   to_gpu ? host + srcs[i] : got + srcs[i], size))
			result = "WRONG";
	return result;
}

static void report(const char *part, const char *name, const char *memory, const char *right,
		   uint64_t *all, uint64_t *calls, size_t count)
{
	size_t slow = 0;
	if (!count)
		return;
	qsort(all, count, sizeof *all, by_value);
	qsort(calls, count, sizeof *calls, by_value);
	for (size_t i = 0; i < count; i++)
		slow += all[i] > FAST_NS * (n > 64 ? 5 : 1);
	printf("{\"part\": \"%s\", \"form\": \"%s\", \"memory\": \"%s\", \"op\": \"%s\", "
	       "\"size\": %zu, \"n\": %u, \"owner\": \"%s\", \"check\": \"%s\", \"samples\": %zu, "
	       "\"p50\": %llu, \"p99\": %llu, \"p999\": %llu, \"max\": %llu, \"min\": %llu, "
	       "\"slow\": %.5f, \"call_p50\": %llu, \"mops\": %.3f}\n",
	       part, name, memory, to_gpu ? "write" : "read", size, n, state, right, count,
	       (unsigned long long)all[count / 2], (unsigned long long)all[count * 99 / 100],
	       (unsigned long long)all[count * 999 / 1000], (unsigned long long)all[count - 1],
	       (unsigned long long)all[0], (double)slow / (double)count,
	       (unsigned long long)calls[count / 2], n * 1e3 / (double)all[count / 2]);
	fflush(stdout);
}

static void measure(const char *part, const struct form *form, const char *memory)
{
	static uint64_t all[MAX_SAMPLES], calls[MAX_SAMPLES];
	CUstream normal = stream;
	size_t count = 0;
	const char *right = "unchecked";
	if (form->flags & ON_PRIO)
		stream = prio;
	if (!strcmp(state, "idle") && strcmp(part, "canary") && strcmp(part, "wake") &&
	    strcmp(part, "strided"))
		right = check(form);
	uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
	for (unsigned i = 0; count < MAX_SAMPLES && (now_ns() < end || i < 20); i++) {
		if (pause_us)
			usleep(pause_us);
		if (before_each && (before_each() || finish() || !await()))
			break;
		uint64_t before = now_ns();
		CUresult code = form->run();
		if (!code && !(form->flags & OWN_FLAG))
			code = finish();
		uint64_t called = now_ns();
		if (code || !await()) {
			fprintf(stderr, "%s %s %s n %u size %zu: %s (%d)\n", part, form->name,
				memory, n, size, code ? cuda_name(code) : "TIMED OUT", code);
			cuda.cuStreamSynchronize(stream);
			break;
		}
		uint64_t done = now_ns();
		if (i < 10)
			continue;
		all[count] = done - before;
		calls[count++] = called - before;
	}
	stream = normal;
	report(part, form->name, memory, right, all, calls, count);
}

static void tell(char word)
{
	char answer;
	if (write(owner, &word, 1) != 1 || read(owner, &answer, 1) != 1)
		exit(2);
	if (word == 'i') {
		state = "idle";
		usleep(30000);
		return;
	}
	state = "busy";
	/* Until its kernels run: then a kernel of this process waits for its time slice. */
	uint64_t end = now_ns() + 2000000000u, took = 0;
	while (took < 500000 && now_ns() < end) {
		uint64_t before = now_ns();
		must("canary", f_nothing());
		must("canary's flag", finish());
		if (!await())
			exit(3);
		took = now_ns() - before;
	}
	if (took < 500000)
		fprintf(stderr, "the owner is not seen to be busy: %llu ns\n",
			(unsigned long long)took);
}

static void part_single(const char *memory)
{
	static const size_t sizes[] = {8, 64, 4096, 16384};
	for (int write = 1; write >= 0; write--)
		for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++)
			for (unsigned f = 0; f < sizeof singles / sizeof *singles; f++) {
				const struct form *form = singles + f;
				if (!(form->flags & (write ? WRITES : READS)) ||
				    (form->flags & WORD_ONLY && sizes[s] != 8) ||
				    (form->flags & VMM_ONLY && strcmp(memory, "vmm")))
					continue;
				places(write, sizes[s], 1);
				measure("single", form, memory);
			}
}

static void part_batch(const char *memory)
{
	static const unsigned counts_of[] = {2, 8, 32, 256, 512};
	for (int write = 1; write >= 0; write--)
		for (unsigned c = 0; c < sizeof counts_of / sizeof *counts_of; c++)
			for (unsigned f = 0; f < sizeof batches / sizeof *batches; f++) {
				if (!(batches[f].flags & (write ? WRITES : READS)))
					continue;
				places(write, 64, counts_of[c]);
				measure("batch", batches + f, memory);
			}
}

static void part_canary(void)
{
	static const struct form canary = {"nothing", f_nothing, WRITES},
				 urgent = {"nothing_prio", f_nothing, WRITES | ON_PRIO};
	places(true, 8, 1);
	measure("canary", &canary, "none");
	measure("canary", &urgent, "none");
}

static void part_strided(const char *memory)
{
	static const struct form strided = {"strided", f_strided, WRITES | READS};
	for (int write = 1; write >= 0; write--) {
		places(write, 64, 1);
		n = 4096;
		measure("strided", &strided, memory);
	}
}

static CUresult one_plain(void)
{
	return cuda.cuMemcpyHtoDAsync(scratch, staging, 8, stream);
}

static CUresult one_kernel(void)
{
	return f_nothing();
}

/* the same after something else was in the stream, after pauses, on a new stream */
static void part_engine(const char *memory)
{
	static const struct form words = {"words", f_words, WRITES | OWN_FLAG},
				 rows = {"rows_halves", f_halves, WRITES};
	static const struct {
		const char *name;
		CUresult (*before)(void);
		unsigned pause;
	} settings[] = {
		{"after_rows", take_engine, 0},	     {"after_rows_pause_200", take_engine, 200},
		{"pause_200", NULL, 200},	     {"pause_5000", NULL, 5000},
		{"after_plain", one_plain, 0},	     {"after_kernel", one_kernel, 0},
		{"after_plain_pause", one_plain, 200},
	};
	char part[64];
	places(true, 8, 1);
	for (unsigned i = 0; i < sizeof settings / sizeof *settings; i++) {
		before_each = settings[i].before;
		pause_us = settings[i].pause;
		snprintf(part, sizeof part, "engine_%s", settings[i].name);
		must("engine", take_engine());
		measure(part, &words, memory);
		places(true, 64, 1);
		measure(part, &rows, memory);
		places(true, 8, 1);
	}
	before_each = NULL;
	pause_us = 0;
	for (int prime = 0; prime < 2; prime++) {
		CUstream old = stream;
		must("stream", cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		if (prime)
			must("engine", take_engine());
		measure(prime ? "engine_new_stream_primed" : "engine_new_stream", &words, memory);
		cuda.cuStreamDestroy(stream);
		stream = old;
	}
}

static void part_words(const char *memory)
{
	static const struct form forms[] = {
		{"words", f_words, WRITES | OWN_FLAG},
		{"words_barriers", f_words_barriers, WRITES | OWN_FLAG},
		{"rows_halves", f_halves, WRITES},
		{"engine_plain", f_engine_plain, WRITES},
		{"read_plain", f_read_plain, WRITES},
		{"near", f_near, WRITES},
	};
	static const size_t sizes[] = {8, 16, 24, 32, 64, 128, 256, 512, 1024};
	static const unsigned many[] = {8, 32, 128, 255};
	places(true, 8, 1);
	must("engine", take_engine());
	for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++)
		for (unsigned f = 0; f < sizeof forms / sizeof *forms; f++) {
			if (forms[f].run == f_near && strcmp(memory, "ipc"))
				continue;
			places(true, sizes[s], 1);
			measure("words", forms + f, memory);
			must("engine", take_engine());
		}
	for (unsigned m = 0; m < sizeof many / sizeof *many; m++)
		for (unsigned f = 0; f < 2; f++) {
			places(true, 8, many[m]);
			measure("words_batch", forms + f, memory);
		}
}

static void part_led(const char *memory)
{
	static const struct form forms[] = {
		{"led", f_led, WRITES},		      {"led_16", f_led_16, WRITES},
		{"led_32", f_led_32, WRITES},	      {"led_64", f_led_64, WRITES},
		{"led_128", f_led_128, WRITES},	      {"led_once_32", f_led_once_32, WRITES},
		{"long_lead", f_long_lead, WRITES},   {"led_twice", f_led_twice, WRITES},
		{"pairs", f_pairs, WRITES},
	};
	static const unsigned counts_of[] = {4, 8, 16, 32, 256, 512};
	double was = seconds;
	seconds *= 4;
	for (unsigned c = 0; c < sizeof counts_of / sizeof *counts_of; c++)
		for (unsigned f = 0; f < sizeof forms / sizeof *forms; f++) {
			places(true, 64, counts_of[c]);
			measure("led", forms + f, memory);
		}
	seconds = was;
}

static void part_wake(const char *memory)
{
	static const struct form forms[] = {{"wake", f_wake, READS | OWN_FLAG},
					    {"wake_primed", f_wake_primed, READS | OWN_FLAG},
					    {"wake_primed_once", f_wake, READS | OWN_FLAG}};
	places(false, 8, 1);
	must("waker", cuda.cuStreamCreate(&waker, CU_STREAM_NON_BLOCKING));
	measure("wake", forms, memory);
	measure("wake", forms + 1, memory);
	must("prime", cuda.cuMemcpyDtoHAsync(staging + 64, target, 8, waker));
	measure("wake", forms + 2, memory);
	cuda.cuStreamDestroy(waker);
}

static void torn(const struct form *form, const char *memory)
{
	uint64_t cycles = 60000000;
	CUdeviceptr at;
	CUstream other;
	void *params[] = {&at, &counts, &cycles};
	places(true, 8, 1);
	at = target + dsts[0];
	counts[0] = counts[1] = 0;
	must("stream", cuda.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	must("watch", cuda.cuLaunchKernel(watch, 1, 1, 1, 1, 1, 1, 0, other, params, NULL));
	uint32_t i = 0;
	uint64_t end = now_ns() + 30000000;
	while (now_ns() < end) {
		i++;
		*(uint64_t *)(host + srcs[0]) = (uint64_t)i << 32 | i;
		if (form->run() || (!(form->flags & OWN_FLAG) && finish()) || !await())
			break;
	}
	must("watched", cuda.cuStreamSynchronize(other));
	printf("{\"part\": \"torn\", \"form\": \"%s\", \"memory\": \"%s\", \"owner\": \"%s\", "
	       "\"written\": %u, \"seen\": %llu, \"torn\": %llu}\n",
	       form->name, memory, state, i, (unsigned long long)counts[0],
	       (unsigned long long)counts[1]);
	fflush(stdout);
	cuda.cuStreamDestroy(other);
}

static void part_torn(const char *memory)
{
	for (unsigned f = 0; f < sizeof singles / sizeof *singles; f++)
		if (singles[f].flags & WRITES && !(singles[f].flags & ON_PRIO) &&
		    (!(singles[f].flags & VMM_ONLY) || !strcmp(memory, "vmm")))
			torn(singles + f, memory);
}

static void import(int sock)
{
	CUipcMemHandle handle;
	CUmemHandle block, spare;
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmodule module;
	int low = 0, high = 0, fd = take_fd(sock, &handle);
	start_cuda();
	must("import", cuda.cuMemImportFromShareableHandle(&block, (void *)(intptr_t)fd, 1));
	must("scratch", cuda.cuMemCreate(&spare, GRANULE, &prop, 0));
	must("reserve", cuda.cuMemAddressReserve(&vmm, BLOCK + GRANULE, 0, 0, 0));
	must("map", cuda.cuMemMap(vmm, BLOCK, 0, block, 0));
	must("map", cuda.cuMemMap(vmm + BLOCK, GRANULE, 0, spare, 0));
	allow(vmm, BLOCK + GRANULE);
	scratch = vmm + BLOCK;
	must("ipc", cuda.cuIpcOpenMemHandle(&ipc, handle, 1));
	CUdeviceptr wish = ipc + BLOCK;
	if (!cuda.cuMemAddressReserve(&near_ipc, GRANULE, 0, wish, 0)) {
		fprintf(stderr, "wished %llx, got %llx\n", wish, near_ipc);
		must("near", cuda.cuMemMap(near_ipc, GRANULE, 0, spare, 0));
		allow(near_ipc, GRANULE);
		if (near_ipc < ipc || near_ipc - ipc > 1u << 31)
			near_ipc = 0;
	}
	must("pinned", cuda.cuMemHostAlloc((void **)&host, BLOCK, 3));
	must("pinned", cuda.cuMemHostAlloc((void **)&staging, 1 << 20, 3));
	must("pinned", cuda.cuMemHostAlloc((void **)&gathers, OPS * sizeof *gathers, 3));
	must("pinned", cuda.cuMemHostAlloc((void **)&flag, 4096, 3));
	counts = (uint64_t *)(flag + 256);
	atomic_store(flag, 0);
	must("stream", cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	if (more.range)
		more.range(&low, &high);
	must("stream", more.priority(&prio, CU_STREAM_NON_BLOCKING, high));
	must("gather", cuda.cuModuleLoadData(&module, dg_gather_ptx));
	must("gather", cuda.cuModuleGetFunction(&gather, module, "dg_gather"));
	must("kernels", cuda.cuModuleLoadData(&module, kernels));
	must("nothing", cuda.cuModuleGetFunction(&nothing, module, "nothing"));
	must("watch", cuda.cuModuleGetFunction(&watch, module, "watch"));
	fprintf(stderr, "vmm %llx ipc %llx scratch %llx host %p priorities %d to %d batch %d b3d %d "
			"memops %d\n",
		vmm, ipc, scratch, (void *)host, low, high, !!more.batch, !!more.batch3d,
		!!more.memops);
}

static bool wanted(int argc, char **argv, const char *part)
{
	bool any = argc <= 2;
	for (int i = 2; i < argc; i++)
		any |= !strcmp(argv[i], part);
	return any;
}

int main(int argc, char **argv)
{
	int pair[2];
	if (argc > 1)
		seconds = atof(argv[1]);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 2;
	pid_t child = fork();
	if (!child) {
		close(pair[0]);
		own(pair[1]);
	}
	close(pair[1]);
	owner = pair[0];
	import(owner);
	for (int busy = 0; busy < 2; busy++) {
		tell(busy ? 'b' : 'i');
		if (wanted(argc, argv, "canary"))
			part_canary();
		for (int m = 0; m < 2; m++) {
			const char *memory = m ? "ipc" : "vmm";
			target = m ? ipc : vmm;
			if (wanted(argc, argv, "single"))
				part_single(memory);
			if (wanted(argc, argv, "batch"))
				part_batch(memory);
			if (wanted(argc, argv, "engine"))
				part_engine(memory);
			if (wanted(argc, argv, "words"))
				part_words(memory);
			if (wanted(argc, argv, "led"))
				part_led(memory);
			if (wanted(argc, argv, "wake"))
				part_wake(memory);
			if (wanted(argc, argv, "strided"))
				part_strided(memory);
			if (wanted(argc, argv, "torn") && !busy)
				part_torn(memory);
		}
	}
	close(owner);
	waitpid(child, NULL, 0);
	return 0;
}
