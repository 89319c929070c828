// SPDX-License-Identifier: Apache-2.0
/*
 * Providers doca and softdoca: DMA tasks of libdoca move the bytes, on a BlueField or in softdoca.
 * They have no thread: the caller's thread submits tasks when it posts, and takes completions out
 * of the progress engine when it polls or waits. A caller that sleeps does so on the progress
 * engine's notification handle.
 */
#include "doca.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "provider_table.h"
#include "share/server.h"
#include "error.h"

#define PROBE_NS 10000000000ull /* how long DOCA may take to list its devices */
#define MAX_TASK ((uint64_t)1 << 30) /* bytes: struct task counts in 32 bits */

static bool dma_supported(const struct doca_devinfo *info)
{
	return !dg_doca.doca_dma_cap_task_memcpy_is_supported(info);
}

/* Queries a capability. Returns true if this DOCA has no such query, so that the operation itself
 * shows whether it is supported. */
static bool capability(doca_error_t (*query)(const struct doca_devinfo *, uint8_t *),
		       const struct doca_devinfo *info)
{
	uint8_t yes = 0;
	return !query || (!query(info, &yes) && yes);
}

static void device_name(const struct doca_devinfo *info, char *out, size_t cap)
{
	char pci[DOCA_DEVINFO_PCI_ADDR_SIZE + 1] = "", ibdev[DOCA_DEVINFO_IBDEV_NAME_SIZE + 1] = "";
	dg_doca.doca_devinfo_get_pci_addr_str(info, pci);
	if (dg_doca.doca_devinfo_get_ibdev_name)
		dg_doca.doca_devinfo_get_ibdev_name(info, ibdev, DOCA_DEVINFO_IBDEV_NAME_SIZE);
	snprintf(out, cap, "%s%s%s", pci, ibdev[0] ? " " : "", ibdev);
}

/* Chooses the function at that address; without an address, the first one that does DMA, otherwise
 * the first one that can export memory. */
static struct doca_devinfo *choose_device(struct doca_devinfo **list, uint32_t n, const char *pci)
{
	struct doca_devinfo *exporter = NULL;
	for (uint32_t i = 0; i < n; i++) {
		uint8_t same = 0;
		if (pci) {
			if (!dg_doca.doca_devinfo_is_equal_pci_addr(list[i], pci, &same) && same)
				return list[i];
			continue;
		}
		if (dma_supported(list[i]))
			return list[i];
		if (!exporter && capability(dg_doca.doca_mmap_cap_is_export_pci_supported, list[i]))
			exporter = list[i];
	}
	return exporter;
}

static int no_device(enum doca_kind kind, struct doca_devinfo **list, uint32_t n, const char *pci)
{
	char names[300] = "", name[90];
	for (uint32_t i = 0; i < n; i++) {
		size_t at = strlen(names);
		device_name(list[i], name, sizeof name);
		if (at + strlen(name) + 3 < sizeof names)
			snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", name);
	}
	if (n && pci)
		return dg_fail(DG_REASON_BLUEFIELD,
			       "there is no DOCA device at '%s'; the devices are %s", pci, names);
	if (n)
		return dg_fail(DG_REASON_BLUEFIELD,
			       "no DOCA device of this machine can do DMA or export memory (the "
			       "devices are %s)",
			       names);
	return dg_fail(
		kind == DOCA_SOFT ? DG_REASON_SOFTDOCA : DG_REASON_BLUEFIELD,
		"there is no DOCA device%s",
		kind == DOCA_SOFT
			? ": SOFTDOCA_DEVICES describes none for this side"
			: ": check that there is a BlueField (lspci -d 15b3:) and that this user "
			  "may open it (DOCA needs root, or access to /dev/infiniband)");
}

/* Opens a function and queries its capabilities. */
static int open_function(struct doca *d, struct doca_devinfo *info)
{
	char name[100];
	device_name(info, name, sizeof name);
	d->can_dma = dma_supported(info);
	d->can_export = capability(dg_doca.doca_mmap_cap_is_export_pci_supported, info);
	d->can_import = capability(dg_doca.doca_mmap_cap_is_create_from_export_pci_supported, info);
	doca_error_t e = 0;
	if (d->can_dma)
		e = dg_doca.doca_dma_cap_task_memcpy_get_max_buf_size(info, &d->max_size);
	if (e)
		return dg_doca_fail(0, "doca_dma_cap_task_memcpy_get_max_buf_size", e);
	if (d->can_dma && !d->max_size)
		return dg_fail(EOPNOTSUPP, "%s reports a maximum DMA task size of 0 bytes", name);
	if (d->max_size > MAX_TASK)
		d->max_size = MAX_TASK;
	e = dg_doca.doca_dev_open(info, &d->dev);
	if (!e)
		return 0;
	return dg_fail_in(dg_doca_fail(DG_REASON_BLUEFIELD, "doca_dev_open", e), "%s", name);
}

/* Finds the function and its name; also opens it if `open` is set. */
static int find_function(struct doca *d, const char *pci, bool open, char *name, size_t cap)
{
	struct doca_devinfo **list = NULL, *info;
	uint32_t n = 0;
	doca_error_t e = dg_doca.doca_devinfo_create_list(&list, &n);
	if (e)
		return dg_doca_fail(DG_REASON_BLUEFIELD, "doca_devinfo_create_list", e);
	info = choose_device(list, n, pci);
	int rc = info ? 0 : no_device(d->kind, list, n, pci);
	if (info)
		device_name(info, name, cap);
	if (!rc && open)
		rc = open_function(d, info);
	dg_doca.doca_devinfo_destroy_list(list);
	return rc;
}

/* Runs in a child process, for two reasons: the real libraries cannot be unloaded, and softdoca
 * could then no longer be used; and a crash in them must not end this process. */
static int probe_in_process(enum doca_kind kind)
{
	struct doca d = {.kind = kind};
	char name[100];
	int rc = dg_doca_load(kind);
	return rc ? rc : find_function(&d, NULL, false, name, sizeof name);
}

/* Result of the child process of a probe. reason: 0 if there is a device. */
struct answer {
	int reason;
	char text[400];
};

static bool write_answer(int fd, int rc)
{
	struct answer a = {.reason = rc ? dg_last_reason(rc) : 0};
	snprintf(a.text, sizeof a.text, "%s", rc ? dg_last_error() : "");
	return write(fd, &a, sizeof a) == sizeof a;
}

/* Reads fd until end-of-file. Returns false if that takes longer than PROBE_NS. */
static bool read_answer(int fd, struct answer *out)
{
	struct pollfd p = {fd, POLLIN, 0};
	uint64_t end = now_ns() + PROBE_NS;
	size_t got = 0;
	for (uint64_t now; (now = now_ns()) < end;) {
		ssize_t n = -1;
		if (poll(&p, 1, (int)((end - now) / 1000000) + 1) == 1)
			n = read(fd, (char *)out + got, sizeof *out - got);
		got += n > 0 ? (size_t)n : 0;
		if (!n)
			return true;
	}
	return false;
}

/* Looks for a device in a child process, with a time limit: a driver may wait for its device
 * forever, and in a multithreaded process the forked child may wait for a lock that another thread
 * held at the fork. */
static int probe_in_child(enum doca_kind kind)
{
	struct answer a = {DG_REASON_BLUEFIELD,
			   "DOCA's libraries end the process that lists the devices: check the "
			   "kernel log (dmesg) and DOCA's own tools"};
	int fds[2], status = 0;
	if (pipe2(fds, O_CLOEXEC))
		return dg_fail_errno("cannot create a pipe to look for DOCA devices");
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* nobody would end it later */
		_exit(!write_answer(fds[1], probe_in_process(kind)));
	}
	close(fds[1]);
	bool answered = pid > 0 && read_answer(fds[0], &a);
	close(fds[0]);
	if (pid < 0)
		return dg_fail_errno("cannot start a process to look for DOCA devices");
	if (!answered)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!answered)
		return dg_fail(DG_REASON_BLUEFIELD,
			       "DOCA's libraries did not answer within %u s: check the BlueField "
			       "(dmesg, mlxfwmanager)",
			       (unsigned)(PROBE_NS / 1000000000u));
	return a.reason ? dg_fail(a.reason, "%s", a.text) : 0;
}

static int probe(enum doca_kind kind, bool deep)
{
	int rc = dg_doca_locate(kind);
	return rc || !deep ? rc : probe_in_child(kind);
}

static int probe_real(bool deep)
{
	return probe(DOCA_REAL, deep);
}

static int probe_soft(bool deep)
{
	return probe(DOCA_SOFT, deep);
}

static void set_engine_name(struct dg_device *dev, const struct doca *d, const char *name)
{
	const char *version = dg_doca.doca_version_runtime ? dg_doca.doca_version_runtime() : "";
	snprintf(dev->caps.engine, sizeof dev->caps.engine, "%s %s, %s",
		 d->kind == DOCA_SOFT ? "softdoca" : "DOCA", version ? version : "", name);
	dev->blob_provider = d->kind == DOCA_SOFT ? "softdoca" : "doca";
	dev->registers = true;
	dev->gpu = true;
	dev->caps.max_size = INT64_MAX;
	dev->caps.inline_max = 0;
	dev->caps.spin_ns = 0;
	dev->caps.ordered = 0;
	dev->caps.max_queues = DOCA_MAX_QUEUES;
}

static int open_kind(enum doca_kind kind, struct dg_device *dev, const dg_device_config *cfg,
		     void **state)
{
	char name[100] = "";
	long page = sysconf(_SC_PAGESIZE);
	TRY(dg_doca_load(kind));
	struct doca *d = calloc(1, sizeof *d);
	if (!d || !(d->scratch = aligned_alloc((size_t)page, (size_t)page))) {
		free(d);
		return dg_fail(ENOMEM, "out of memory for a device");
	}
	d->kind = kind;
	pthread_mutex_init(&d->lock, NULL);
	pthread_mutex_init(&d->queues.lock, NULL);
	int rc = find_function(d, cfg->pci, true, name, sizeof name);
	if (rc)
		goto free_device;
	rc = dg_doca_map_new(d, d->scratch, (uint64_t)page, DOCA_ACCESS_FLAG_LOCAL_READ_WRITE,
			     &d->scratch_map);
	if (!rc)
		rc = dg_fork_watch_last();
	if (rc)
		goto close_device;
	set_engine_name(dev, d, name);
	*state = d;
	return 0;
close_device:
	dg_doca_map_free(d->scratch_map);
	dg_doca.doca_dev_close(d->dev);
free_device:
	free(d->scratch);
	free(d);
	return rc;
}

static int open_real(struct dg_device *dev, const dg_device_config *cfg, void **state)
{
	return open_kind(DOCA_REAL, dev, cfg, state);
}

static int open_soft(struct dg_device *dev, const dg_device_config *cfg, void **state)
{
	return open_kind(DOCA_SOFT, dev, cfg, state);
}

static void close_device(struct dg_device *dev, void *state)
{
	struct doca *d = state;
	(void)dev;
	dg_doca_map_free(d->scratch_map);
	dg_doca.doca_dev_close(d->dev);
	pthread_mutex_destroy(&d->lock);
	pthread_mutex_destroy(&d->queues.lock);
	free(d->scratch);
	free(d);
}

/* The same code serves two libraries, each under its own provider name, so that a result always
 * names the right one. */
#define DOCA_OPS                                                                   \
	.close = close_device, .attach = dg_doca_attach, .detach = dg_doca_detach, \
	.doorbell = dg_doca_doorbell, .poll = dg_doca_poll, .arm = dg_doca_arm,    \
	.map = dg_doca_map, .unmap = dg_doca_unmap, .export = dg_doca_export,      \
	.bare = dg_doca_bare, .direct = dg_doca_direct, .inline_copies = false

const struct dg_ops dg_doca_ops = {
	.name = "doca",
	.probe = probe_real,
	.open = open_real,
	DOCA_OPS,
};

const struct dg_ops dg_softdoca_ops = {
	.name = "softdoca",
	.probe = probe_soft,
	.open = open_soft,
	DOCA_OPS,
};
