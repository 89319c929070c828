/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks of a device and of this machine, read one by one or at one moment. The device's clocks are
 * this machine's: the free-running one is CLOCK_MONOTONIC, the real-time one CLOCK_REALTIME. All
 * functions are thread-safe and return INVALID_VALUE for an invalid object or output pointer.
 */
#ifndef DOCA_CLOCK_H
#define DOCA_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "doca_compat.h"
#include "doca_dev.h"
#include "doca_error.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct doca_clock;
struct doca_dev;
struct doca_devinfo;

#define DOCA_CLOCK_NIC_FREE_RUNNING    0x1
#define DOCA_CLOCK_NIC_REAL_TIME       0x2
#define DOCA_CLOCK_NIC_DPA_TIMER       0x100
#define DOCA_CLOCK_HOST_COUNTER_CYCLES 0x10000
#define DOCA_CLOCK_HOST_REAL_TIME      0x20000
#define DOCA_CLOCK_HOST_MONOTONIC      0x40000
#define DOCA_CLOCK_HOST_MONOTONIC_RAW  0x80000

/* counter is for DOCA_CLOCK_HOST_COUNTER_CYCLES. */
union doca_clock_timespec_t {
	struct timespec ts;
	uint64_t counter;
};

DOCA_EXPERIMENTAL
doca_error_t doca_clock_cap_nic_free_running_is_supported(const struct doca_devinfo *devinfo);

DOCA_EXPERIMENTAL
doca_error_t doca_clock_cap_nic_real_time_is_supported(const struct doca_devinfo *devinfo);

/* Returns NOT_SUPPORTED: there is no DPA. */
DOCA_EXPERIMENTAL
doca_error_t doca_clock_cap_nic_dpa_timer_is_supported(const struct doca_devinfo *devinfo);

/* The device cannot be closed before the clock is destroyed. Errors: NO_MEMORY. */
DOCA_EXPERIMENTAL
doca_error_t doca_clock_create(const struct doca_dev *dev, struct doca_clock **clock);

DOCA_EXPERIMENTAL
doca_error_t doca_clock_destroy(struct doca_clock *clock);

/* Reads a clock. Errors: NOT_SUPPORTED for the DPA's and for unknown types. */
DOCA_EXPERIMENTAL
doca_error_t doca_clock_get_timestamp(const struct doca_clock *clock, uint64_t clock_type,
		union doca_clock_timespec_t *clock_ts);

/* Reads two clocks at one moment. The margin is the time between two readings of the device's
 * clock, one before and one after that of the other. Errors: NOT_SUPPORTED for the DPA's clock, for
 * unknown types, and for a clock of the host as the device's. */
DOCA_EXPERIMENTAL
doca_error_t doca_clock_get_crosstimestamp(const struct doca_clock *clock,
		uint64_t primary_clock_type, uint64_t nic_clock_type,
		union doca_clock_timespec_t *primary_clock_ts,
		union doca_clock_timespec_t *nic_clock_ts, uint64_t *error_margin_nsecs);

#ifdef __cplusplus
}
#endif

#endif
