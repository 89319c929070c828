// SPDX-License-Identifier: Apache-2.0
/* Clocks of a device and of the machine. */
#include "memory_check.h"

#include <doca_clock.h>

static int64_t ns(const union doca_clock_timespec_t *t)
{
	return t->ts.tv_sec * INT64_C(1000000000) + t->ts.tv_nsec;
}

TEST(clocks_advance_and_are_read_at_one_moment)
{
	static const uint64_t types[] = {DOCA_CLOCK_NIC_FREE_RUNNING, DOCA_CLOCK_HOST_MONOTONIC,
					 DOCA_CLOCK_HOST_MONOTONIC_RAW};
	struct doca_dev *dev = a_dev();
	struct doca_clock *clock;
	union doca_clock_timespec_t one, two;
	uint64_t margin;

	OK(doca_clock_create(dev, &clock));
	REFUSED(doca_dev_close(dev), IN_USE);
	for (int i = 0; i < 3; i++) {
		OK(doca_clock_get_timestamp(clock, types[i], &one));
		OK(doca_clock_get_timestamp(clock, types[i], &two));
		CHECK(ns(&two) >= ns(&one));
	}
	OK(doca_clock_get_timestamp(clock, DOCA_CLOCK_HOST_COUNTER_CYCLES, &one));
	OK(doca_clock_get_timestamp(clock, DOCA_CLOCK_HOST_COUNTER_CYCLES, &two));
	CHECK(two.counter >= one.counter);
	/* Two names of one clock: the readings lie within the margin. */
	OK(doca_clock_get_crosstimestamp(clock, DOCA_CLOCK_HOST_MONOTONIC,
					 DOCA_CLOCK_NIC_FREE_RUNNING, &one, &two, &margin));
	CHECK(ns(&one) >= ns(&two) && ns(&one) <= ns(&two) + (int64_t)margin);
	OK(doca_clock_get_crosstimestamp(clock, DOCA_CLOCK_HOST_REAL_TIME,
					 DOCA_CLOCK_NIC_REAL_TIME, &one, &two, &margin));
	OK(doca_clock_destroy(clock));
	OK(doca_dev_close(dev));
}

TEST(each_misuse_has_its_documented_error)
{
	struct doca_dev *dev = a_dev();
	const struct doca_devinfo *info = doca_dev_as_devinfo(dev);
	struct doca_clock *clock;
	union doca_clock_timespec_t one, two;
	uint64_t margin;

	OK(doca_clock_cap_nic_free_running_is_supported(info));
	OK(doca_clock_cap_nic_real_time_is_supported(info));
	REFUSED(doca_clock_cap_nic_dpa_timer_is_supported(info), NOT_SUPPORTED);
	REFUSED(doca_clock_cap_nic_real_time_is_supported(NULL), INVALID_VALUE);
	REFUSED(doca_clock_create(NULL, &clock), INVALID_VALUE);
	REFUSED(doca_clock_create(dev, NULL), INVALID_VALUE);
	REFUSED(doca_clock_destroy(NULL), INVALID_VALUE);
	OK(doca_clock_create(dev, &clock));
	REFUSED(doca_clock_get_timestamp(clock, DOCA_CLOCK_NIC_FREE_RUNNING, NULL), INVALID_VALUE);
	REFUSED(doca_clock_get_timestamp(clock, DOCA_CLOCK_NIC_DPA_TIMER, &one), NOT_SUPPORTED);
	REFUSED(doca_clock_get_timestamp(clock, 3, &one), NOT_SUPPORTED);
	REFUSED(doca_clock_get_crosstimestamp(clock, DOCA_CLOCK_HOST_MONOTONIC,
					      DOCA_CLOCK_HOST_MONOTONIC, &one, &two, &margin),
		NOT_SUPPORTED);
	REFUSED(doca_clock_get_crosstimestamp(clock, 0, DOCA_CLOCK_NIC_REAL_TIME, &one, &two,
					      &margin),
		NOT_SUPPORTED);
	REFUSED(doca_clock_get_crosstimestamp(clock, DOCA_CLOCK_HOST_MONOTONIC,
					      DOCA_CLOCK_NIC_REAL_TIME, &one, &two, NULL),
		INVALID_VALUE);
	OK(doca_clock_destroy(clock));
	REFUSED(doca_clock_destroy(clock), INVALID_VALUE);
	OK(doca_dev_close(dev));
}

TEST_MAIN(run_tests)
