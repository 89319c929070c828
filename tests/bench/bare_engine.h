/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BARE_ENGINE_H
#define BARE_ENGINE_H

#include <stdint.h>

/* cdef: begin. bare.py passes everything from here to the end mark to cffi. */

typedef struct bare_engine bare_engine;
typedef struct bare_request {
	char *dst;
	const char *src;
	uint64_t size, user;
} bare_request;
typedef struct bare_result {
	uint64_t user, size, submit_ns, complete_ns;
	uint32_t status;
} bare_result;

/* Starts the engine's thread, which spins until bare_close(). NULL: no memory, or no thread. */
bare_engine *bare_open(void);
void bare_close(bare_engine *e);
/* Has the engine copy n <= 1024 requests and waits for all of them. */
void bare_run(bare_engine *e, const bare_request *requests, bare_result *results, uint32_t n);
/* Times `count` hand-offs to a second thread and back by eventfds. Returns 0, or -1. */
int bare_eventfd(uint32_t count, uint64_t *samples_ns);

/* cdef: end. */

#endif
