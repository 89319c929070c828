// SPDX-License-Identifier: Apache-2.0
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char sentence[512];
static _Thread_local int last_reason;

static int errno_of(int reason)
{
	if (reason < DG_REASON_UNKNOWN_PROVIDER)
		return reason;
	switch ((enum dg_reason)reason) {
	case DG_REASON_UNKNOWN_PROVIDER:
	case DG_REASON_SOFTDOCA:
	case DG_REASON_NO_NVIDIA_DRIVER:
	case DG_REASON_OLD_NVIDIA_DRIVER:
	case DG_REASON_CUDA:
	case DG_REASON_NO_GPU:
	case DG_REASON_RDMA_CORE:
	case DG_REASON_RDMA_DEVICE:
	case DG_REASON_NO_DOCA:
	case DG_REASON_OLD_DOCA:
	case DG_REASON_BLUEFIELD:
		return ENODEV;
	case DG_REASON_BLUEFIELD_MODE:
	case DG_REASON_DOCA_EXPORT_SIZE:
	case DG_REASON_DMABUF_GPU:
	case DG_REASON_DMABUF_ADAPTER:
	case DG_REASON_DMABUF_RDMA_CORE:
		return EMEDIUMTYPE;
	case DG_REASON_THREADS:
		return EAGAIN;
	}
	return EINVAL;
}

const char *dg_last_error(void)
{
	return sentence;
}

int dg_last_reason(int rc)
{
	return errno_of(last_reason) == -rc ? last_reason : -rc;
}

int dg_fail(int reason, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(sentence, sizeof sentence, fmt, ap);
	va_end(ap);
	last_reason = reason;
	return -errno_of(reason);
}

int dg_fail_errno(const char *fmt, ...)
{
	int err = errno;
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(sentence, sizeof sentence, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof sentence)
		snprintf(sentence + n, sizeof sentence - (size_t)n, ": %s", strerror(err));
	last_reason = err;
	return -err;
}

int dg_fail_in(int rc, const char *fmt, ...)
{
	char inner[sizeof sentence];
	memcpy(inner, sentence, sizeof inner);
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(sentence, sizeof sentence, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof sentence)
		snprintf(sentence + n, sizeof sentence - (size_t)n, ": %s", inner);
	return rc;
}
