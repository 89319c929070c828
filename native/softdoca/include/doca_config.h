/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DOCA_CONFIG_H
#define DOCA_CONFIG_H

#include "doca_build_config.h"

#endif
