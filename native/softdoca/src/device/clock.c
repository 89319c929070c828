// SPDX-License-Identifier: Apache-2.0
/* Clocks of devices, which DOCA 3.2 has, and softdoca has not: each function says so. */
#include "doca_clock.h"

#include "base/base.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define REFUSES(function, ...)                                                              \
	doca_error_t function(__VA_ARGS__)                                                  \
	{                                                                                   \
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,                                     \
			      "softdoca has no clocks of devices: read this machine's by " \
			      "clock_gettime()");                                           \
	}

REFUSES(doca_clock_cap_nic_free_running_is_supported, const struct doca_devinfo *devinfo)
REFUSES(doca_clock_cap_nic_real_time_is_supported, const struct doca_devinfo *devinfo)
REFUSES(doca_clock_cap_nic_dpa_timer_is_supported, const struct doca_devinfo *devinfo)
REFUSES(doca_clock_create, const struct doca_dev *dev, struct doca_clock **clock)
REFUSES(doca_clock_destroy, struct doca_clock *clock)
REFUSES(doca_clock_get_timestamp, const struct doca_clock *clock, uint64_t clock_type,
	union doca_clock_timespec_t *clock_ts)
REFUSES(doca_clock_get_crosstimestamp, const struct doca_clock *clock, uint64_t primary_clock_type,
	uint64_t nic_clock_type, union doca_clock_timespec_t *primary_clock_ts,
	union doca_clock_timespec_t *nic_clock_ts, uint64_t *error_margin_nsecs)
