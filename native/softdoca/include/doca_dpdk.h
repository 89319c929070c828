/* SPDX-License-Identifier: Apache-2.0 */
/* The bridge to DPDK, of which programs of GPUNetIO Ethernet need none since doca_flow takes a device
 * (doca_flow_port_cfg_set_dev). */
#ifndef DOCA_DPDK_H
#define DOCA_DPDK_H

#include "doca_dev.h"
#include "doca_error.h"

/* Without effect: softdoca's queues and rules are not DPDK's. */
DOCA_OF_dpdk_port_probe
static inline doca_error_t doca_dpdk_port_probe(struct doca_dev *dev, const char *devargs)
{
	return dev && devargs ? DOCA_SUCCESS : DOCA_ERROR_INVALID_VALUE;
}

#endif
