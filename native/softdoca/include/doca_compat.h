/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of the declarations. */
#ifndef DOCA_COMPAT_H
#define DOCA_COMPAT_H

#include "doca_config.h"
#include "doca_releases.h"

#define DOCA_STABLE	  __attribute__((visibility("default")))
#define DOCA_EXPERIMENTAL __attribute__((visibility("default")))
#define DOCA_USED	  __attribute__((used))
#define DOCA_UNUSED	  __attribute__((unused))

#endif
