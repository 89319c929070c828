/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The side that a program is built for: DOCA_ARCH_HOST or DOCA_ARCH_DPU. NVIDIA's package for a
 * host defines DOCA_ARCH_HOST, the package for a DPU defines DOCA_ARCH_DPU. softdoca supports both
 * sides: it defaults to DOCA_ARCH_HOST on x86-64 and to DOCA_ARCH_DPU on aarch64, and
 * -DDOCA_ARCH_DPU or -DDOCA_ARCH_HOST selects the other.
 */
#ifndef DOCA_BUILD_CONFIG_H
#define DOCA_BUILD_CONFIG_H

#if defined(DOCA_ARCH_HOST) && defined(DOCA_ARCH_DPU)
#error "a program is built for one side: DOCA_ARCH_HOST or DOCA_ARCH_DPU"
#endif

#if !defined(DOCA_ARCH_HOST) && !defined(DOCA_ARCH_DPU)
#ifdef __aarch64__
#define DOCA_ARCH_DPU
#else
#define DOCA_ARCH_HOST
#endif
#endif

#ifdef __x86_64__
#define DOCA_ARCH_X86
#endif
#ifdef __aarch64__
#define DOCA_ARCH_ARM
#endif

#endif
