// SPDX-License-Identifier: Apache-2.0
/* The handlers of SIGSEGV and SIGBUS: see memory_fault.h. */
#include "memory_fault.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "copy.h"

_Thread_local struct memory_fault *dg_memory_fault;

static struct sigaction before[2]; /* of SIGSEGV and of SIGBUS */

/* Does what would have happened without this handler. */
static void pass_on(int signal_number, siginfo_t *info, void *context)
{
	const struct sigaction *b = &before[signal_number == SIGBUS];
	const bool by_access = info->si_code > 0;

	if (b->sa_flags & SA_SIGINFO) {
		b->sa_sigaction(signal_number, info, context);
	} else if (b->sa_handler != SIG_DFL && b->sa_handler != SIG_IGN) {
		b->sa_handler(signal_number);
	} else if (by_access || b->sa_handler == SIG_DFL) {
		/* The access is repeated, and ends the process where it happens; a signal that was
		 * sent is not. */
		signal(signal_number, SIG_DFL);
		if (!by_access)
			raise(signal_number);
	}
}

/* Ends an access of a thread that catches faults: the thread goes on at its MEMORY_FAULT_CATCH(). */
static void handle(int signal_number, siginfo_t *info, void *context)
{
	struct memory_fault *f = dg_memory_fault;

	if (!f || info->si_code <= 0) { /* nothing is caught, or somebody sent the signal */
		pass_on(signal_number, info, context);
		return;
	}
	dg_memory_fault = NULL;
	f->at = info->si_addr;
	siglongjmp(f->back, 1);
}

static void install_handler(void)
{
	/* NODEFER: the handler is left by a jump. ONSTACK: the handlers before may rely on it. */
	struct sigaction a = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
	Dl_info self;

	/* The handlers stay, so this library must, too. */
	if (dladdr(before, &self) && self.dli_fname)
		dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	sigemptyset(&a.sa_mask);
	sigaction(SIGSEGV, NULL, &before[0]);
	sigaction(SIGBUS, NULL, &before[1]);
	sigaction(SIGSEGV, &a, NULL);
	sigaction(SIGBUS, &a, NULL);
}

void dg_memory_fault_open(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, install_handler);
}

const void *dg_copy_caught(void *dst, const void *src, uint64_t n, uint64_t all)
{
	struct memory_fault f = {.at = NULL}, *const outer = dg_memory_fault;

	if (MEMORY_FAULT_CATCH(&f)) {
		dg_memory_fault = outer;
		return f.at;
	}
	if (all >= DG_LARGE)
		dg_copy_large(dst, src, n);
	else
		dg_copy(dst, src, n);
	dg_memory_fault = outer;
	return NULL;
}
