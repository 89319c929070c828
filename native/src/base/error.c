// SPDX-License-Identifier: Apache-2.0
#include "error.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;
static _Thread_local int last_reason;

static void create_key(void)
{
	has_key = !pthread_key_create(&key, free);
}

char *dg_thread_text(enum dg_text which)
{
	static char shared[DG_TEXTS][DG_TEXT_SIZE]; /* by threads without memory for their own */
	char(*own)[DG_TEXT_SIZE] = NULL;

	pthread_once(&once, create_key);
	if (has_key)
		own = pthread_getspecific(key);
	if (!own && has_key) {
		own = calloc(DG_TEXTS, DG_TEXT_SIZE);
		if (own && pthread_setspecific(key, own)) {
			free(own);
			own = NULL;
		}
	}
	return own ? own[which] : shared[which];
}

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
	return dg_thread_text(DG_TEXT_ERROR);
}

int dg_last_reason(int rc)
{
	return errno_of(last_reason) == -rc ? last_reason : -rc;
}

int dg_fail(int reason, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(dg_thread_text(DG_TEXT_ERROR), DG_TEXT_SIZE, fmt, ap);
	va_end(ap);
	last_reason = reason;
	return -errno_of(reason);
}

int dg_fail_errno(const char *fmt, ...)
{
	int err = errno;
	char *sentence = dg_thread_text(DG_TEXT_ERROR);
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(sentence, DG_TEXT_SIZE, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < DG_TEXT_SIZE)
		snprintf(sentence + n, DG_TEXT_SIZE - (size_t)n, ": %s", strerror(err));
	last_reason = err;
	return -err;
}

int dg_fail_in(int rc, const char *fmt, ...)
{
	char inner[DG_TEXT_SIZE], *sentence = dg_thread_text(DG_TEXT_ERROR);
	memcpy(inner, sentence, sizeof inner);
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(sentence, DG_TEXT_SIZE, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < DG_TEXT_SIZE)
		snprintf(sentence + n, DG_TEXT_SIZE - (size_t)n, ": %s", inner);
	return rc;
}
