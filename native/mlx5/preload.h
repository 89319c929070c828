/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the C library that are replaced: preload.c those of descriptors, paths.c those of paths. */
#ifndef DG_MLX5_PRELOAD_H
#define DG_MLX5_PRELOAD_H

#include <dlfcn.h>
#include <limits.h>

#define VISIBLE __attribute__((visibility("default")))
/* Declares `real`, the C library's function. NULL in a release that does not have it. */
#define REAL(name)                                \
	static __typeof__(&name) real;            \
	if (!real)                                \
		real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* Returns the path to open in the place of one that the program names, in `room` if it is another. */
const char *dg_mlx5_path(const char *path, char room[PATH_MAX]);

#endif
