/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For which side a program is built: DOCA_ARCH_HOST or DOCA_ARCH_DPU. NVIDIA's package for a host says
 * HOST and that for a DPU says DPU; softdoca stands for both, so a program for the other side than this
 * machine's (HOST on x86-64, DPU on aarch64) is built with -DDOCA_ARCH_DPU or -DDOCA_ARCH_HOST.
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
