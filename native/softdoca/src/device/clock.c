// SPDX-License-Identifier: Apache-2.0
/* Clocks. Sources: "Clock" is the published reference. */
#include "device.h"

#include "doca_clock.h"

#define CHECK_CLOCK(c)   CHECK_OBJECT(c, OBJECT_CLOCK, "a clock")
#define CHECK_DEVINFO(i) CHECK_OBJECT(i, OBJECT_DEVINFO, "a devinfo")
#define NIC_CLOCKS       (DOCA_CLOCK_NIC_FREE_RUNNING | DOCA_CLOCK_NIC_REAL_TIME)

struct doca_clock {
	struct object o;
	struct doca_dev *dev;
};

doca_error_t doca_clock_cap_nic_free_running_is_supported(const struct doca_devinfo *devinfo)
{
	CHECK_DEVINFO(devinfo);
	return DOCA_SUCCESS;
}

doca_error_t doca_clock_cap_nic_real_time_is_supported(const struct doca_devinfo *devinfo)
{
	CHECK_DEVINFO(devinfo);
	return DOCA_SUCCESS;
}

doca_error_t doca_clock_cap_nic_dpa_timer_is_supported(const struct doca_devinfo *devinfo)
{
	CHECK_DEVINFO(devinfo);
	return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "%s has no DPA", devinfo->f.pci);
}

doca_error_t doca_clock_create(const struct doca_dev *dev, struct doca_clock **clock)
{
	CHECK_DEV(dev);
	CHECK_OUT(clock);
	struct doca_clock *c = softdoca_object_new(OBJECT_CLOCK, sizeof *c);
	if (!c)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a clock");
	c->dev = (struct doca_dev *)dev;
	atomic_fetch_add(&c->dev->users, 1);
	*clock = c;
	return DOCA_SUCCESS;
}

doca_error_t doca_clock_destroy(struct doca_clock *clock)
{
	CHECK_CLOCK(clock);
	atomic_fetch_sub(&clock->dev->users, 1);
	softdoca_object_free(clock);
	return DOCA_SUCCESS;
}

/* ---- reading ---- */

static uint64_t cycle_counter(void)
{
#ifdef __x86_64__
	return __builtin_ia32_rdtsc();
#else
	uint64_t n;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(n));
	return n;
#endif
}

static bool read_clock(uint64_t type, union doca_clock_timespec_t *out)
{
	switch (type) {
	case DOCA_CLOCK_HOST_COUNTER_CYCLES:
		out->counter = cycle_counter();
		return true;
	case DOCA_CLOCK_NIC_REAL_TIME:
	case DOCA_CLOCK_HOST_REAL_TIME:
		return !clock_gettime(CLOCK_REALTIME, &out->ts);
	case DOCA_CLOCK_NIC_FREE_RUNNING:
	case DOCA_CLOCK_HOST_MONOTONIC:
		return !clock_gettime(CLOCK_MONOTONIC, &out->ts);
	case DOCA_CLOCK_HOST_MONOTONIC_RAW:
		return !clock_gettime(CLOCK_MONOTONIC_RAW, &out->ts);
	default:
		return false;
	}
}

doca_error_t doca_clock_get_timestamp(const struct doca_clock *clock, uint64_t clock_type,
				      union doca_clock_timespec_t *clock_ts)
{
	CHECK_CLOCK(clock);
	CHECK_OUT(clock_ts);
	if (read_clock(clock_type, clock_ts))
		return DOCA_SUCCESS;
	return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "there is no clock %#llx", /* Clock */
		      (unsigned long long)clock_type);
}

doca_error_t doca_clock_get_crosstimestamp(const struct doca_clock *clock,
					   uint64_t primary_clock_type, uint64_t nic_clock_type,
					   union doca_clock_timespec_t *primary_clock_ts,
					   union doca_clock_timespec_t *nic_clock_ts,
					   uint64_t *error_margin_nsecs)
{
	union doca_clock_timespec_t after;
	CHECK_CLOCK(clock);
	CHECK_OUT(primary_clock_ts);
	CHECK_OUT(nic_clock_ts);
	CHECK_OUT(error_margin_nsecs);
	if (!(nic_clock_type & NIC_CLOCKS) || !read_clock(nic_clock_type, nic_clock_ts) ||
	    !read_clock(primary_clock_type, primary_clock_ts) ||
	    !read_clock(nic_clock_type, &after))
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, /* Clock */
			      "there is no primary clock %#llx or no clock %#llx of a device",
			      (unsigned long long)primary_clock_type,
			      (unsigned long long)nic_clock_type);
	int64_t margin = (after.ts.tv_sec - nic_clock_ts->ts.tv_sec) * INT64_C(1000000000) +
			 (after.ts.tv_nsec - nic_clock_ts->ts.tv_nsec);
	*error_margin_nsecs = margin < 0 ? 0 : (uint64_t)margin; /* the real time was set back */
	return DOCA_SUCCESS;
}
