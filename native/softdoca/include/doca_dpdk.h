/* SPDX-License-Identifier: Apache-2.0 */
/* The bridge to DPDK, of which softdoca has no function: programs of GPUNetIO Ethernet include this file,
 * and need none since doca_flow takes a device (doca_flow_port_cfg_set_dev). */
#ifndef DOCA_DPDK_H
#define DOCA_DPDK_H

#include "doca_dev.h"
#include "doca_error.h"

#endif
