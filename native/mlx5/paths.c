// SPDX-License-Identifier: Apache-2.0
/*
 * The functions of the C library that take a path, in front of it: programs that read the adapter in /sys
 * by themselves find it there, and /dev/infiniband. Paths, and not a mount namespace, because a container
 * may forbid namespaces, and processes of two user namespaces cannot access each other's memory.
 *
 * An absolute path that begins with one of `prefixes` leads to the same path in the adapter's folder, which
 * has a tree as /sys has it, with relative links; what realpath() and getcwd() find there has its place in
 * /sys again. Not seen: the folders above (`ls /sys/class`), paths with ".." or "//" in front of the
 * prefix, glob(3) and nftw(3), and programs that make system calls by themselves (Go).
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "mlx5.h"
#include "preload.h"

static const char *const prefixes[] = {
	"/sys/class/infiniband",
	"/sys/class/infiniband_verbs",
	"/sys/class/pci_bus/00ff:03",
	"/sys/bus/pci/devices/00ff:03:00.", /* of each adapter: a digit follows */
	"/sys/devices/pci00ff:00",
	"/sys/class/misc/rdma_cm",
	"/dev/infiniband",
};
static const char sys[] = "/sys";
enum { SYS = sizeof sys - 1 };

/* The adapter's folder, without links and without a "/" at its end; "" if there is none. */
static char folder[PATH_MAX];
static size_t folder_length;

__attribute__((constructor)) static void find_folder(void)
{
	REAL(realpath);
	const char *path = getenv("SYSFS_PATH");
	/* Paths in it get shorter when they become those of /sys: see show(). */
	if (!path || !real(path, folder) || strlen(folder) < SYS)
		folder[0] = 0;
	folder_length = strlen(folder);
}

/* Whether the path is that of a prefix, or of something in it. */
static bool is_shown(const char *path)
{
	for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
		const size_t length = strlen(prefixes[i]);
		const char *rest = path + length;
		if (strncmp(path, prefixes[i], length))
			continue;
		rest += rest[-1] == '.' && *rest;
		if (!*rest || *rest == '/')
			return true;
	}
	return false;
}

const char *dg_mlx5_path(const char *path, char room[PATH_MAX])
{
	if (!path || path[0] != '/' || !folder_length || !is_shown(path))
		return path;
	const char *rest = strncmp(path, sys, SYS) ? path : path + SYS;
	if (snprintf(room, PATH_MAX, "%s%s", folder, rest) >= PATH_MAX)
		return path;
	dg_mlx5_counters_refresh(room);
	return room;
}

/* Turns a path of the adapter's folder into the one that the program knows. */
static char *show(char *path)
{
	if (!path || !folder_length || strncmp(path, folder, folder_length))
		return path;
	const char *rest = path + folder_length;
	char shown[PATH_MAX];
	if (!is_shown(rest) && snprintf(shown, sizeof shown, "%s%s", sys, rest) < PATH_MAX && is_shown(shown))
		rest = shown;
	if (is_shown(rest))
		memmove(path, rest, strlen(rest) + 1);
	return path;
}

/* Not in all headers: of programs that were built with a C library before 2.33, or fortified. */
int __xstat(int version, const char *path, struct stat *s);
int __xstat64(int version, const char *path, struct stat64 *s);
int __lxstat(int version, const char *path, struct stat *s);
int __lxstat64(int version, const char *path, struct stat64 *s);
int __fxstatat(int version, int at, const char *path, struct stat *s, int flags);
int __fxstatat64(int version, int at, const char *path, struct stat64 *s, int flags);
ssize_t __readlink_chk(const char *path, char *out, size_t size, size_t room_size);
ssize_t __readlinkat_chk(int at, const char *path, char *out, size_t size, size_t room_size);
char *__realpath_chk(const char *path, char *out, size_t room_size);
char *__getcwd_chk(char *out, size_t size, size_t room_size);

typedef int filter(const struct dirent *), order(const struct dirent **, const struct dirent **);
typedef int filter64(const struct dirent64 *), order64(const struct dirent64 **, const struct dirent64 **);

#define WRAP(type, name, parameters, ...)       \
	VISIBLE type name parameters            \
	{                                       \
		char room[PATH_MAX];            \
		REAL(name);                     \
		return real(__VA_ARGS__);       \
	}
#define TO dg_mlx5_path(path, room)

WRAP(int, access, (const char *path, int mode), TO, mode)
WRAP(int, euidaccess, (const char *path, int mode), TO, mode)
WRAP(int, eaccess, (const char *path, int mode), TO, mode)
WRAP(int, faccessat, (int at, const char *path, int mode, int flags), at, TO, mode, flags)
WRAP(int, stat, (const char *restrict path, struct stat *restrict s), TO, s)
WRAP(int, stat64, (const char *restrict path, struct stat64 *restrict s), TO, s)
WRAP(int, lstat, (const char *restrict path, struct stat *restrict s), TO, s)
WRAP(int, lstat64, (const char *restrict path, struct stat64 *restrict s), TO, s)
WRAP(int, fstatat, (int at, const char *restrict path, struct stat *restrict s, int flags), at, TO, s, flags)
WRAP(int, fstatat64, (int at, const char *restrict path, struct stat64 *restrict s, int flags), at, TO, s,
     flags)
WRAP(int, statx,
     (int at, const char *restrict path, int flags, unsigned int mask, struct statx *restrict s), at, TO,
     flags, mask, s)
WRAP(int, __xstat, (int version, const char *path, struct stat *s), version, TO, s)
WRAP(int, __xstat64, (int version, const char *path, struct stat64 *s), version, TO, s)
WRAP(int, __lxstat, (int version, const char *path, struct stat *s), version, TO, s)
WRAP(int, __lxstat64, (int version, const char *path, struct stat64 *s), version, TO, s)
WRAP(int, __fxstatat, (int version, int at, const char *path, struct stat *s, int flags), version, at, TO, s,
     flags)
WRAP(int, __fxstatat64, (int version, int at, const char *path, struct stat64 *s, int flags), version, at, TO,
     s, flags)
WRAP(ssize_t, readlink, (const char *restrict path, char *restrict out, size_t size), TO, out, size)
WRAP(ssize_t, readlinkat, (int at, const char *restrict path, char *restrict out, size_t size), at, TO, out,
     size)
WRAP(ssize_t, __readlink_chk, (const char *path, char *out, size_t size, size_t room_size), TO, out, size,
     room_size)
WRAP(ssize_t, __readlinkat_chk, (int at, const char *path, char *out, size_t size, size_t room_size), at, TO,
     out, size, room_size)
WRAP(FILE *, fopen, (const char *restrict path, const char *restrict mode), TO, mode)
WRAP(FILE *, fopen64, (const char *restrict path, const char *restrict mode), TO, mode)
WRAP(DIR *, opendir, (const char *path), TO)
WRAP(int, scandir, (const char *restrict path, struct dirent ***restrict out, filter *f, order *o), TO, out, f,
     o)
WRAP(int, scandir64, (const char *restrict path, struct dirent64 ***restrict out, filter64 *f, order64 *o), TO,
     out, f, o)
WRAP(int, chdir, (const char *path), TO)

/* `ls -l` asks for them. */
WRAP(ssize_t, getxattr, (const char *path, const char *name, void *out, size_t size), TO, name, out, size)
WRAP(ssize_t, lgetxattr, (const char *path, const char *name, void *out, size_t size), TO, name, out, size)
WRAP(ssize_t, listxattr, (const char *path, char *out, size_t size), TO, out, size)
WRAP(ssize_t, llistxattr, (const char *path, char *out, size_t size), TO, out, size)

#undef WRAP
#define WRAP(name, parameters, ...)             \
	VISIBLE char *name parameters           \
	{                                       \
		REAL(name);                     \
		return show(real(__VA_ARGS__)); \
	}
#undef TO
#define TO dg_mlx5_path(path, (char[PATH_MAX]){0})

WRAP(realpath, (const char *restrict path, char *restrict out), TO, out)
WRAP(__realpath_chk, (const char *path, char *out, size_t room_size), TO, out, room_size)
WRAP(canonicalize_file_name, (const char *path), TO)
WRAP(getcwd, (char *out, size_t size), out, size)
WRAP(__getcwd_chk, (char *out, size_t size, size_t room_size), out, size, room_size)
