// SPDX-License-Identifier: Apache-2.0
/* Finding and loading DOCA's libraries, and errors while doing so. */
#include "doca_api.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_pointer.h"
#include "error.h"

struct dg_doca_api dg_doca;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;
static enum doca_kind loaded_kind;

/* Folder in which DOCA's packages install the libraries; the loader does not always search it. */
#if defined(__aarch64__)
#define DOCA_FOLDER "/opt/mellanox/doca/lib/aarch64-linux-gnu"
#else
#define DOCA_FOLDER "/opt/mellanox/doca/lib/x86_64-linux-gnu"
#endif
#define INSTALL                                                                              \
	"install DOCA: on a BlueField it is part of the image (bfb), on the host it is the " \
	"package doca-sdk-dma or doca-all of NVIDIA's DOCA-Host repository"

static const char *const versions[] = {".so.3", ".so.2", ".so"};
enum { N_VERSIONS = sizeof versions / sizeof versions[0] };

/* Finds the folder of softdoca's libraries: $SOFTDOCA_LIB, otherwise _softdoca/lib next to this
 * code; for NCCL's plugin next to its own folder, _nccl. */
static int soft_folder(char *out, size_t cap)
{
	Dl_info self;
	char real[PATH_MAX];
	const char *said = getenv("SOFTDOCA_LIB");
	if (said && said[0] == '/') {
		snprintf(out, cap, "%s", said);
		return 0;
	}
	if (said && *said)
		return dg_fail(DG_REASON_SOFTDOCA,
			       "SOFTDOCA_LIB is '%s'; it must be an absolute path", said);
	if (!dladdr(&dg_doca, &self) || !realpath(self.dli_fname, real))
		return dg_fail(DG_REASON_SOFTDOCA,
			       "the folder of dgkit's own library could not be found: set "
			       "SOFTDOCA_LIB to the folder of softdoca's libraries");
	char *slash = strrchr(real, '/'), *folder = memrchr(real, '/', (size_t)(slash - real));
	if (folder && !strncmp(folder, "/_nccl/", strlen("/_nccl/")))
		slash = folder;
	snprintf(out, cap, "%.*s/_softdoca/lib", (int)(slash - real), real);
	return 0;
}

/* Writes the path of the i-th attempt to load lib<name> to out, or "" if there are no more. */
static void attempt(enum doca_kind kind, const char *folder, const char *name, unsigned i,
		    char *out, size_t cap)
{
	out[0] = 0;
	if (kind == DOCA_SOFT && i == 0)
		snprintf(out, cap, "%s/lib%s.so.3", folder, name);
	else if (kind == DOCA_REAL && i < N_VERSIONS)
		snprintf(out, cap, "lib%s%s", name, versions[i]);
	else if (kind == DOCA_REAL && i < 2 * N_VERSIONS)
		snprintf(out, cap, DOCA_FOLDER "/lib%s%s", name, versions[i - N_VERSIONS]);
}

/* Whether the dynamic loader's cache lists a library with this name. */
static bool in_cache(const char *file)
{
	FILE *f = fopen("/etc/ld.so.cache", "re");
	if (!f)
		return false;
	char *bytes = NULL;
	long size = fseek(f, 0, SEEK_END) ? -1 : ftell(f);
	if (size > 0 && !fseek(f, 0, SEEK_SET))
		bytes = malloc((size_t)size);
	bool found = bytes && fread(bytes, 1, (size_t)size, f) == (size_t)size &&
		     memmem(bytes, (size_t)size, file, strlen(file) + 1);
	free(bytes);
	fclose(f);
	return found;
}

static bool in_path(const char *list, const char *file)
{
	char at[PATH_MAX];
	while (list && *list) {
		size_t n = strcspn(list, ":");
		int whole = snprintf(at, sizeof at, "%.*s/%s", (int)n, list, file);
		if (n && whole > 0 && (size_t)whole < sizeof at && !access(at, R_OK))
			return true;
		list += n + (list[n] == ':');
	}
	return false;
}

static int libraries_missing(enum doca_kind kind, const char *tried, const char *why)
{
	if (kind == DOCA_SOFT)
		return dg_fail(DG_REASON_SOFTDOCA,
			       "softdoca cannot be loaded (%s): reinstall dgkit, which includes "
			       "it, or set SOFTDOCA_LIB to the folder of its libraries",
			       why);
	return dg_fail(DG_REASON_NO_DOCA,
		       "DOCA's libraries were not found (tried %s%s%s): " INSTALL, tried,
		       why[0] ? "; " : "", why);
}

static int other_is_loaded(enum doca_kind kind)
{
	return dg_fail(ENODEV,
		       "this process has loaded %s, and a process can load only one of DOCA's "
		       "libraries and softdoca: open %s in another process",
		       kind == DOCA_SOFT ? "DOCA's libraries" : "softdoca",
		       kind == DOCA_SOFT ? "Device('softdoca')" : "Device('doca')");
}

#define TRIED "libdoca_common.so.3, .so.2, .so, also in " DOCA_FOLDER

int dg_doca_locate(enum doca_kind kind)
{
	char folder[PATH_MAX - 32] = "", at[PATH_MAX];
	pthread_mutex_lock(&lock);
	bool ours = loaded && loaded_kind == kind, other = loaded && !ours;
	pthread_mutex_unlock(&lock);
	if (ours)
		return 0;
	if (other)
		return other_is_loaded(kind);
	TRY(kind == DOCA_SOFT ? soft_folder(folder, sizeof folder) : 0);
	for (unsigned i = 0;; i++) {
		attempt(kind, folder, "doca_common", i, at, sizeof at);
		if (!at[0])
			return libraries_missing(kind, TRIED, kind == DOCA_SOFT ? folder : "");
		const char *file = strrchr(at, '/') ? strrchr(at, '/') + 1 : at;
		if (at[0] == '/' ? !access(at, R_OK)
				 : in_path(getenv("LD_LIBRARY_PATH"), file) || in_cache(file))
			return 0;
	}
}

/* Loads a library. Returns NULL with the loader's most helpful message in `why`. */
static void *open_library(enum doca_kind kind, const char *folder, const char *name, char *why,
			  size_t cap)
{
	char at[PATH_MAX];
	for (unsigned i = 0;; i++) {
		attempt(kind, folder, name, i, at, sizeof at);
		if (!at[0])
			return NULL;
		void *lib = dlopen(at, RTLD_NOW | RTLD_LOCAL);
		if (lib)
			return lib;
		const char *said = dlerror();
		/* The reason why an existing library does not load is more helpful than "No such
		 * file". */
		if (!why[0] || !strstr(said, "No such file"))
			snprintf(why, cap, "%s", said);
	}
}

/* Detects a library of the other kind that was found through LD_LIBRARY_PATH or already loaded by
 * the program. */
static int wrong_kind(enum doca_kind kind, void *common, void *dma)
{
	void *arena = dlsym(common, "softdoca_arena");
	if (kind == DOCA_REAL && arena)
		return dg_fail(DG_REASON_NO_DOCA,
			       "the libdoca_common that the loader finds is softdoca's, a "
			       "software DPU: open it by its name, Device('softdoca'), or "
			       "remove its folder from LD_LIBRARY_PATH");
	/* dlsym() searches dependencies: both libraries must use the same libdoca_common. */
	if (dlsym(dma, "softdoca_arena") != arena || (kind == DOCA_SOFT && !arena))
		return other_is_loaded(kind);
	return 0;
}

static int take_functions(void *common, void *dma)
{
	const char *missing = NULL;
#define DOCA_TAKE(lib, name, needed)                                               \
	do {                                                                       \
		dg_doca.name = (__typeof__(name) *)(uintptr_t)dlsym(lib, #name);   \
		missing = !dg_doca.name && (needed) && !missing ? #name : missing; \
	} while (0);
#define FROM_COMMON(name, needed) DOCA_TAKE(common, name, needed)
#define FROM_DMA(name, needed)    DOCA_TAKE(dma, name, needed)
	DOCA_COMMON_FUNCTIONS(FROM_COMMON)
	DOCA_DMA_FUNCTIONS(FROM_DMA)
	dg_doca.softdoca_last_refusal =
		(const char *(*)(void))(uintptr_t)dlsym(common, "softdoca_last_refusal");
	return missing ? dg_fail(DG_REASON_OLD_DOCA,
				 "the installed DOCA is older than 2.5, or is not DOCA (it has no "
				 "%s): install a newer one",
				 missing)
		       : 0;
}

void dg_softdoca_join(void *share_pins)
{
	void *(*share)(void *) = (void *(*)(void *))(uintptr_t)share_pins;
	if (share)
		dg_cuda_share_pins(share(dg_cuda_share_pins(NULL)));
}

static int load(enum doca_kind kind)
{
	char folder[PATH_MAX - 32] = "", why[400] = "";
	TRY(kind == DOCA_SOFT ? soft_folder(folder, sizeof folder) : 0);
	void *common = open_library(kind, folder, "doca_common", why, sizeof why), *dma = NULL;
	if (common)
		dma = open_library(kind, folder, "doca_dma", why, sizeof why);
	int rc =
		dma ? wrong_kind(kind, common, dma)
		    : libraries_missing(kind, common ? "libdoca_dma.so.3, .so.2, .so" : TRIED, why);
	if (!rc)
		rc = take_functions(common, dma);
	if (!rc) {
		dg_softdoca_join(dlsym(common, "softdoca_share_pins"));
		return 0;
	}
	/* None of their functions was called, so they can be unloaded. */
	if (dma)
		dlclose(dma);
	if (common)
		dlclose(common);
	return rc;
}

int dg_doca_load(enum doca_kind kind)
{
	pthread_mutex_lock(&lock);
	int rc = 0;
	if (loaded && loaded_kind != kind)
		rc = other_is_loaded(kind);
	else if (!loaded)
		rc = load(kind);
	if (!rc) {
		loaded = true;
		loaded_kind = kind;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static int reason_of(doca_error_t e)
{
	switch (e) {
	case DOCA_ERROR_NOT_PERMITTED:
		return EACCES;
	case DOCA_ERROR_IN_USE:
		return EBUSY;
	case DOCA_ERROR_NOT_SUPPORTED:
		return EOPNOTSUPP;
	case DOCA_ERROR_NO_MEMORY:
		return ENOMEM;
	case DOCA_ERROR_NOT_FOUND:
		return DG_REASON_BLUEFIELD;
	case DOCA_ERROR_INVALID_VALUE:
		return EINVAL;
	default:
		return EIO;
	}
}

int dg_doca_fail(int reason, const char *what, doca_error_t e)
{
	/* softdoca reports the reason; the real libraries only write it to their log. */
	const char *why = dg_doca.softdoca_last_refusal ? dg_doca.softdoca_last_refusal() : "";
	return dg_fail(reason ? reason : reason_of(e), "%s: %s (%s)", what,
		       dg_doca.doca_error_get_name(e),
		       why[0] ? why : dg_doca.doca_error_get_descr(e));
}
