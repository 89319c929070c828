/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests with two processes (other_process.h): one exports, the other imports.
 */
#ifndef DGKIT_TWO_SIDES_H
#define DGKIT_TWO_SIDES_H

#include <dirent.h>
#include <sys/uio.h>

#include <poll.h>

#include "fixture.h"
#include "other_process.h"
#include "share/unix_socket.h"

enum how { BY_MAP = DG_METHOD_MAP, BY_VM = DG_METHOD_VM, BY_PROXY = DG_METHOD_PROXY };

struct token {
	int len;
	uint8_t bytes[DG_DESCRIPTOR_MAX];
};

/* Waits for a packet; then as dg_unix_socket_recv(). */
UNUSED static ssize_t packet_from(int fd, void *packet, size_t size, int *fds, int *n)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	CHECK_EQ(poll(&p, 1, -1), 1);
	return dg_unix_socket_recv(fd, packet, size, fds, n);
}

UNUSED static void say_int(int fd, int value)
{
	say(fd, &value, sizeof(value));
}

UNUSED static int hear_int(int fd)
{
	int value;

	hear(fd, &value, sizeof(value));
	return value;
}

/* Waits for the other process, which must succeed. */
UNUSED static void join(struct other o)
{
	int status;

	CHECK_EQ(waitpid(o.pid, &status, 0), o.pid);
	CHECK_EQ(status, 0);
	close(o.fd);
}

/* Stops the process and waits until it has stopped. */
UNUSED static void stop(struct other o)
{
	int status;

	CHECK_EQ(kill(o.pid, SIGSTOP), 0);
	CHECK_EQ(waitpid(o.pid, &status, WUNTRACED), o.pid);
	CHECK(WIFSTOPPED(status));
}

UNUSED static void resume(struct other o)
{
	CHECK_EQ(kill(o.pid, SIGCONT), 0);
}

UNUSED static struct token export_of(dg_region *r, uint32_t access)
{
	struct token t;

	t.len = dg_region_export(r, access, t.bytes, sizeof(t.bytes));
	CHECK(t.len > 0);
	return t;
}

UNUSED static dg_region *import_of(dg_device *dev, const struct token *t)
{
	dg_region *r;

	CHECK_EQ(dg_region_import(dev, t->bytes, t->len, 10 * SECOND, &r), 0);
	return r;
}

/* Returns memory that an importer reaches by this method. */
UNUSED static dg_memory memory_for(enum how how, size_t size)
{
	return how == BY_MAP ? sealed_memory(size) : plain_memory(pages(size), size);
}

UNUSED static dg_region *exportable(dg_device *dev, const dg_memory *m)
{
	dg_region *r;

	CHECK_EQ(dg_region_register(dev, m, RW, &r), 0);
	return r;
}

/* Selects the method of importers started from now on. Returns false if this machine does not
 * support it. */
UNUSED static bool choose(enum how how)
{
	char local_bytes = 1, remote_bytes = 2;
	struct iovec a = { &local_bytes, 1 }, b = { &remote_bytes, 1 };

	setenv("DGKIT_NO_PROCESS_VM", how == BY_PROXY ? "1" : "0", 1);
	return how != BY_VM || process_vm_readv(getpid(), &a, 1, &b, 1, 0) == 1;
}

/* Opens an importer's fixture: its own local region, the remote region of the token, and a
 * queue. */
UNUSED static void import_fix(struct fix *f, const struct token *t, size_t local_size, uint32_t depth)
{
	memset(f, 0, sizeof(*f));
	f->dev = device_spinning(0);
	f->size = local_size;
	f->local_bytes = pages(local_size);
	f->remote_bytes = pages(local_size);
	f->local = registered(f->dev, f->local_bytes, local_size, RW);
	f->remote = import_of(f->dev, t);
	f->l = id_of(f->local);
	f->r = id_of(f->remote);
	CHECK_EQ(test_queue_open(&f->tq, f->dev, depth, DG_PATH_WORKER, 0, 20 * SECOND), 0);
	f->q = f->tq.q;
}

/* Returns the number of a folder's entries, without . and .. and the fd used for listing. */
UNUSED static int entries(const char *folder)
{
	DIR *d = opendir(folder);
	int n = -2 - !strcmp(folder, "/proc/self/fd");

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static char own_folder[] = P_tmpdir "/dgkit-test-XXXXXX";

/* Starts a share server, which removes the sockets that killed exporters left behind. */
UNUSED static void sweep(void)
{
	dg_device *dev = device_spinning(0);
	uint8_t byte;
	dg_region *r = registered(dev, &byte, 1, RW);

	export_of(r, RW);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

/* Runs the tests with a temporary runtime folder, which must be empty afterwards. */
UNUSED static int run_with_own_folder(int argc, char **argv)
{
	char inner[64];
	int rc, left;

	CHECK(mkdtemp(own_folder));
	setenv("XDG_RUNTIME_DIR", own_folder, 1);
	snprintf(inner, sizeof(inner), "%s/dgkit", own_folder);
	CHECK_EQ(dg_runtime_dir(inner, sizeof(inner)), 0);
	rc = run_tests(argc, argv);
	sweep();
	left = entries(inner);
	if (left)
		printf("FAIL %d files are left in %s\n", left, inner);
	rmdir(inner);
	rmdir(own_folder);
	return left ? 1 : rc;
}

#endif
