/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank has transferred, by peer, as JSON in the folder that DGKIT_NCCL_STATISTICS names: one
 * file for each communicator, replaced 5 times a second and at its close. Without the variable
 * nothing is counted. dgkit/nccl.py reads the files. */
#ifndef DG_NCCL_STATISTICS_H
#define DG_NCCL_STATISTICS_H

#include <stdbool.h>
#include <stdint.h>

/* Kinds of requests: a put without a signal, a signal with or without a put, a get. */
enum statistics_kind { STATISTICS_PUT, STATISTICS_SIGNAL, STATISTICS_GET, STATISTICS_KINDS };

struct statistics;

/* Stores NULL in *out if the variable is not set. Errors: those of writing a file to the folder. */
int statistics_open(uint32_t rank, uint32_t ranks, struct statistics **out);
/* Counts a request that was finished `ns` after it was posted; gpu: either memory is a GPU's. */
void statistics_count(struct statistics *s, uint32_t peer, uint32_t kind, uint64_t size, bool gpu,
		      uint64_t ns);
/* Counts a request that failed. */
void statistics_count_failure(struct statistics *s, uint32_t peer);
/* Counts n requests that one call, which took call_ns, gave to a queue. */
void statistics_submitted(struct statistics *s, uint32_t n, uint64_t call_ns);
/* Adds the time from a submission to an idle queue until it is idle again. */
void statistics_busy(struct statistics *s, uint64_t ns);
/* Counts n words in GPU memory that were written together: time in calls, and until seen complete. */
void statistics_signals_written(struct statistics *s, uint32_t n, uint64_t call_ns, uint64_t ns);
/* Counts a pass of progress. */
void statistics_pass(struct statistics *s);
/* Writes the file if the last time was 200 ms ago. */
void statistics_update(struct statistics *s, uint64_t now_ns);
/* Writes the file for the last time. NULL is ignored. */
void statistics_close(struct statistics *s);

#endif
