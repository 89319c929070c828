/* SPDX-License-Identifier: Apache-2.0 */
/* Byte order. */
#ifndef DOCA_BITFIELD_H
#define DOCA_BITFIELD_H

#include <endian.h>
#include <stdint.h>

#endif
