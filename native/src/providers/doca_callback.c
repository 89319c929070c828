// SPDX-License-Identifier: Apache-2.0
/* The completion callback of dgkit.doca: a C function, so that DOCA never calls into Python. */
#include <stdatomic.h>

#include "dgkit.h"

void dg_doca_note(void *task, uint64_t task_data, uint64_t ctx_data)
{
	(void)task;
	(void)ctx_data;
	/* Release: another thread that sees the 1 also sees what the task wrote. */
	atomic_store_explicit((_Atomic(uint32_t) *)(uintptr_t)task_data, 1, memory_order_release);
}
