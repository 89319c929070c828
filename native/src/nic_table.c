// SPDX-License-Identifier: Apache-2.0
/* The table of a NIC: its memory, and the file that leads other processes to it. */
#include "nic_table.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nic.h"
#include "share/descriptor.h"
#include "share/exports.h"

/* The tables of the NICs of this process, with the NIC's reference and those of its peers here. gid: a
 * copy, as other processes may have mapped the table. */
struct use {
	struct use *next;
	struct nic_table *table;
	uint8_t gid[16];
	uint32_t refs;
};
static struct use *uses; /* guarded by the share server's lock */

static int add_use(struct nic_table *table)
{
	struct use *u = calloc(1, sizeof *u);
	if (!u)
		return dg_fail(ENOMEM, "out of memory for a NIC");
	*u = (struct use){.table = table, .refs = 1};
	dg_share_lock();
	u->next = uses;
	uses = u;
	dg_share_unlock();
	return 0;
}

const struct nic_table *dg_nic_table_take(const uint8_t gid[16])
{
	dg_share_lock();
	struct use *u = uses;
	while (u && memcmp(u->gid, gid, sizeof u->gid))
		u = u->next;
	if (u)
		u->refs++;
	dg_share_unlock();
	return u ? u->table : NULL;
}

void dg_nic_table_drop(const struct nic_table *t)
{
	if (!t)
		return;
	dg_share_lock();
	struct use **at = &uses, *u;
	while ((*at)->table != t)
		at = &(*at)->next;
	u = *at;
	const bool last = !--u->refs;
	if (last)
		*at = u->next;
	dg_share_unlock();
	if (last) {
		munmap(u->table, sizeof *u->table);
		free(u);
	}
}

/* Stores a GID of the link-local form, with 64 random bits. */
static int make_gid(uint8_t gid[16])
{
	memset(gid, 0, 16);
	gid[0] = 0xfe;
	gid[1] = 0x80;
	return getrandom(gid + 8, 8, 0) == 8 ? 0 : dg_fail_errno("cannot make a NIC's GID");
}

int dg_nic_part_gid(uint32_t qpn, uint8_t *gid)
{
	static const uint8_t parts[16] = {0xfe, 0x80, [8] = 'd', 'g', 'k', 'i', 't'};
	memcpy(gid, parts, sizeof parts);
	gid[15] = (uint8_t)(qpn >> NIC_PART_SHIFT);
	return 0;
}

/* Gives the NIC this GID, under which NICs of this process find its table. */
static void set_gid(struct dg_nic *n, const uint8_t gid[16])
{
	dg_share_lock();
	struct use *u = uses;
	while (u->table != n->table)
		u = u->next;
	memcpy(u->gid, gid, sizeof u->gid);
	memcpy(n->table->gid, gid, sizeof u->gid);
	dg_share_unlock();
}

static int map_table(struct dg_nic *n)
{
	n->table_fd = memfd_create("dgkit-nic", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (n->table_fd < 0 || ftruncate(n->table_fd, sizeof *n->table) ||
	    fcntl(n->table_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return dg_fail_errno("cannot create the memory of a NIC");
	void *at = mmap(NULL, sizeof *n->table, PROT_READ | PROT_WRITE, MAP_SHARED, n->table_fd, 0);
	if (at == MAP_FAILED)
		return dg_fail_errno("cannot map the memory of a NIC");
	n->table = at;
	int rc = dg_nic_table_reserve(n, at, offsetof(struct nic_table, keys));
	if (!rc)
		rc = add_use(n->table);
	if (rc) {
		munmap(at, sizeof *n->table);
		n->table = NULL;
	}
	return rc;
}

int dg_nic_table_reserve(struct dg_nic *n, void *at, size_t size)
{
	const off_t offset = (char *)at - (char *)n->table;
	const int rc = posix_fallocate(n->table_fd, offset, (off_t)size);
	return rc ? dg_fail(rc, "cannot allocate %zu bytes for a NIC: %s", size, strerror(rc)) : 0;
}

int dg_nic_table_path(const uint8_t gid[16], char *out, size_t cap)
{
	enum { NAME = sizeof "/nic/" + 32 };
	const int rc = dg_runtime_dir(out, cap - NAME);
	if (rc)
		return rc;
	size_t at = strlen(out);
	at += (size_t)snprintf(out + at, cap - at, "/nic");
	if (mkdir(out, 0700) && errno != EEXIST)
		return dg_fail_errno("cannot make the folder %s", out);
	out[at++] = '/';
	for (int i = 0; i < 16; i++, at += 2)
		snprintf(out + at, cap - at, "%02x", gid[i]);
	return 0;
}

/* Removes the file of a NIC whose process was killed: the share server of this process has already
 * removed the socket that its descriptor leads to. */
static void remove_stale(int folder, const char *name)
{
	uint8_t bytes[DG_DESCRIPTOR_MAX];
	struct dg_descriptor d;
	const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return;
	const ssize_t length = read(fd, bytes, sizeof bytes);
	close(fd);
	if (length > 0 && !dg_descriptor_parse(bytes, (size_t)length, &d) && access(d.path, F_OK) &&
	    errno == ENOENT)
		unlinkat(folder, name, 0);
}

/* Removes the stale files beside this one. */
static void sweep(const char *file)
{
	char path[sizeof ((struct dg_nic *)0)->table_file];
	struct dirent *e;
	snprintf(path, sizeof path, "%s", file);
	*strrchr(path, '/') = 0;
	DIR *d = opendir(path);
	while (d && (e = readdir(d)))
		remove_stale(dirfd(d), e->d_name);
	if (d)
		closedir(d);
}

/* Chooses a GID, and gives the file `draft` the name that leads to it. The name of a part of an adapter is
 * taken by whoever links it first. */
static int link_draft(struct dg_nic *n, const char *draft)
{
	uint8_t gid[16];
	char path[sizeof n->table_file];
	for (n->part = 0; n->part < DG_NIC_PARTS; n->part++) {
		int rc = n->is_part ? dg_nic_part_gid(n->part << NIC_PART_SHIFT, gid) : make_gid(gid);
		if (!rc)
			rc = dg_nic_table_path(gid, path, sizeof path);
		if (rc)
			return rc;
		set_gid(n, gid); /* before another process can read it */
		if (!link(draft, path)) {
			memcpy(n->table_file, path, sizeof path);
			return 0;
		}
		if (errno != EEXIST)
			return dg_fail_errno("cannot create %s", path);
	}
	return dg_fail(EMFILE, "%d processes have this adapter open, which is the maximum", DG_NIC_PARTS);
}

/* Writes the descriptor of the table to its file, whole or not at all. */
static int publish(struct dg_nic *n)
{
	static atomic_uint drafts;
	uint8_t descriptor[DG_DESCRIPTOR_MAX];
	char path[sizeof n->table_file], draft[sizeof path + 32];
	const int length = dg_region_export(n->table_region, DG_ACCESS_READ, descriptor,
					    sizeof descriptor);
	if (length < 0)
		return length;
	int rc = dg_nic_table_path(n->table->gid, path, sizeof path);
	if (rc)
		return rc;
	sweep(path);
	snprintf(draft, sizeof draft, "%s.%d.%u", path, getpid(), atomic_fetch_add(&drafts, 1));
	unlink(draft); /* of a process that had this id and was killed */
	const int fd = open(draft, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return dg_fail_errno("cannot create %s", draft);
	const bool written = write(fd, descriptor, (size_t)length) == length;
	close(fd);
	rc = written ? link_draft(n, draft) : dg_fail_errno("cannot write %s", draft);
	unlink(draft);
	return rc;
}

int dg_nic_table_open(struct dg_nic *n)
{
	int rc = map_table(n);
	if (!rc)
		rc = dg_device_open("soft", NULL, &n->engine.soft);
	if (rc)
		return rc;
	n->table->magic = NIC_MAGIC;
	n->table->version = NIC_VERSION;
	n->table->pid = (uint32_t)getpid();
	if (getrandom(&n->table->instance, sizeof n->table->instance, 0) != sizeof n->table->instance)
		return dg_fail_errno("cannot make a NIC's number");
	const dg_memory m = {.addr = n->table, .size = sizeof *n->table, .fd = n->table_fd};
	rc = dg_region_register(n->engine.soft, &m, DG_ACCESS_READ, &n->table_region);
	return rc ? rc : publish(n);
}

/* Also after dg_nic_table_open() failed. */
void dg_nic_table_close(struct dg_nic *n)
{
	if (n->table_file[0])
		unlink(n->table_file);
	if (n->engine.soft)
		dg_device_close(n->engine.soft, UINT64_MAX);
	dg_nic_table_drop(n->table);
	if (n->table_fd >= 0)
		close(n->table_fd);
}
