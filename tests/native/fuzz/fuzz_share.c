/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: packets of a hostile importer to the share server of this process. Whatever the
 * packets contain, the server serves the next importer, read-only bytes and those around a region
 * keep their values, and no import and no fd is left.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "share/descriptor.h"
#include "share/server.h"
#include "share/unix_socket.h"

#define REGION 4096u
#define GUARD  0x5a

enum { PLAIN, READ_ONLY, MEMFD, REGIONS };

static struct {
	dg_device *dev;
	dg_region *regions[REGIONS];
	uint8_t keys[REGIONS][16];
	uint8_t *memory; /* a guard, PLAIN, a guard, READ_ONLY, a guard; REGION bytes each */
	struct sockaddr_un address;
	int null_fd;
	int fds; /* fds of this process between two inputs; 0 before the first */
} fuzz;

/* The unused rest of an input. */
struct input {
	const uint8_t *data;
	size_t size;
};

static void must(int truth, const char *what)
{
	if (truth)
		return;
	fprintf(stderr, "fuzz_share: %s (%s)\n", what, dg_last_error());
	abort();
}

static void take(struct input *in, void *out, size_t size)
{
	size_t n = size < in->size ? size : in->size;

	memset(out, 0, size);
	memcpy(out, in->data, n);
	in->data += n;
	in->size -= n;
}

/* Counts the fds, except for pipes, which libFuzzer opens to a program that prints symbols. */
static int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	char target[6];
	int n = 0;

	must(d != NULL, "/proc/self/fd");
	while ((e = readdir(d)))
		n += readlinkat(dirfd(d), e->d_name, target, sizeof(target)) > 0 &&
		     memcmp(target, "pipe:", 5) != 0;
	closedir(d);
	return n;
}

static void export_region(int which, const dg_memory *memory, uint32_t access)
{
	struct dg_descriptor d;
	uint8_t bytes[DG_DESCRIPTOR_MAX];
	int length;

	must(!dg_region_register(fuzz.dev, memory, DG_ACCESS_READ | DG_ACCESS_WRITE,
				 &fuzz.regions[which]),
	     "register");
	length = dg_region_export(fuzz.regions[which], access, bytes, sizeof(bytes));
	must(length > 0 && !dg_descriptor_parse(bytes, (size_t)length, &d), "export");
	memcpy(fuzz.keys[which], d.key, sizeof(d.key));
	fuzz.address.sun_family = AF_UNIX;
	memcpy(fuzz.address.sun_path, d.path, sizeof(d.path));
}

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static char folder[] = P_tmpdir "/dgkit-fuzz-XXXXXX";
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	dg_memory memory = {.size = REGION, .fd = -1};

	(void)argc, (void)argv;
	must(mkdtemp(folder) != NULL && !setenv("XDG_RUNTIME_DIR", folder, 1), "own folder");
	must(!dg_device_open("soft", NULL, &fuzz.dev), "open");
	fuzz.memory = mmap(NULL, 5 * REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(fuzz.memory != MAP_FAILED, "mmap");
	memset(fuzz.memory, GUARD, 5 * REGION);
	memory.addr = fuzz.memory + REGION;
	export_region(PLAIN, &memory, DG_ACCESS_READ | DG_ACCESS_WRITE);
	memory.addr = fuzz.memory + 3 * REGION;
	export_region(READ_ONLY, &memory, DG_ACCESS_READ);
	must(fd >= 0 && !ftruncate(fd, REGION) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), "memfd");
	memory.addr = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	memory.fd = fd;
	export_region(MEMFD, &memory, DG_ACCESS_READ | DG_ACCESS_WRITE);
	fuzz.null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return 0;
}

static int connect_to_server(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	must(fd >= 0, "socket");
	while (connect(fd, (struct sockaddr *)&fuzz.address, sizeof(fuzz.address)))
		usleep(100); /* libFuzzer's -timeout ends this */
	return fd;
}

static void send_packet(int fd, const void *packet, size_t size, int n_fds)
{
	const int fds[2] = {fuzz.null_fd, fuzz.null_fd};

	/* Since Linux 6.16 the server's socket accepts no fds. */
	if (dg_unix_socket_send(fd, packet, size, fds, n_fds) == -EPERM)
		dg_unix_socket_send(fd, packet, size, NULL, 0);
}

/* Receives the reply to a request, if one comes, and maps the control memory that comes with it. */
static void receive(int fd, int wait_ms, char **control)
{
	struct dg_share_reply reply;
	struct pollfd p = {fd, POLLIN, 0};
	int fds[2], n_fds = 0;

	if (poll(&p, 1, wait_ms) != 1)
		return;
	if (dg_unix_socket_recv(fd, &reply, sizeof(reply), fds, &n_fds) == (ssize_t)sizeof(reply) &&
	    reply.has_control && n_fds && !*control)
		*control = mmap(NULL, CONTROL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	if (*control == MAP_FAILED)
		*control = NULL;
	while (n_fds)
		close(fds[--n_fds]);
}

/* Sends a request whose magic, version and key are usually valid. */
static void send_request(int fd, struct input *in, uint8_t how, char **control)
{
	struct dg_share_request q;
	uint8_t short_form[6];

	if (how & 1) { /* small numbers */
		take(in, short_form, sizeof(short_form));
		q = (struct dg_share_request){.slot = short_form[0] % 4u,
					      .kind = short_form[1] % 7u,
					      .offset = short_form[2] * 32u,
					      .size = short_form[3] * 32u + short_form[4]};
	} else {
		take(in, &q, sizeof(q));
		q.kind = how & 2 ? q.kind : q.kind % 7;
	}
	q.magic = SHARE_MAGIC;
	q.version = how & 4 && how & 8 ? q.version : SHARE_VERSION;
	if (how & 16 || how & 1)
		memcpy(q.key, fuzz.keys[(how >> 5) % REGIONS], sizeof(q.key));
	if (*control && (q.kind == SHARE_PUT || q.kind == SHARE_ATOMIC))
		memset(*control + BOUNCE_OFFSET, 0xff, 256);
	send_packet(fd, &q, sizeof(q), how >> 6 & 1);
	if (q.kind != SHARE_RELEASE)
		receive(fd, how & 4 && how & 8 ? 0 : 100, control);
}

static void check_alive(void)
{
	struct dg_share_request q = {
		.magic = SHARE_MAGIC, .version = SHARE_VERSION, .kind = SHARE_IMPORT, .tag = 7};
	struct dg_share_reply reply = {0};
	int fds[2], n_fds = 0, fd = connect_to_server();
	struct pollfd p = {fd, POLLIN, 0};

	memcpy(q.key, fuzz.keys[PLAIN], sizeof(q.key));
	send_packet(fd, &q, sizeof(q), 0);
	while (poll(&p, 1, -1) < 0 && errno == EINTR) /* by libFuzzer's timer; its -timeout ends this */
		;
	must(dg_unix_socket_recv(fd, &reply, sizeof(reply), fds, &n_fds) == (ssize_t)sizeof(reply),
	     "the server is gone");
	must(!reply.error && reply.tag == 7 && reply.size == REGION && n_fds == 1,
	     "the server refuses the next importer");
	close(fds[0]);
	close(fd);
}

static void check_clean(void)
{
	for (int i = 0; i < REGIONS; i++)
		while (dg_share_importers(fuzz.regions[i])) /* libFuzzer's -timeout ends this */
			usleep(50);
	while (open_fds() != fuzz.fds)
		usleep(50);
	for (uint32_t at = 0; at < 5 * REGION; at++)
		must(at / REGION == 1 || fuzz.memory[at] == GUARD,
		     "bytes changed that no importer may write");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	uint8_t packet[sizeof(struct dg_share_request) + 16], how[2];
	char *control = NULL;
	int fd;

	if (!fuzz.fds)
		fuzz.fds = open_fds();
	fd = connect_to_server();
	while (in.size) {
		take(&in, how, sizeof(how));
		if (how[1] % 8) {
			send_request(fd, &in, how[0], &control);
			continue;
		}
		take(&in, packet, sizeof(packet));
		send_packet(fd, packet, how[0] % sizeof(packet), how[0] % 3);
		receive(fd, 0, &control);
	}
	if (control)
		munmap(control, CONTROL_SIZE);
	close(fd);
	check_alive();
	check_clean();
	return 0;
}
