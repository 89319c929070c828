// SPDX-License-Identifier: Apache-2.0
#include "sample.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <doca_argp.h>
#include <doca_log.h>

DOCA_LOG_REGISTER(COMMON);

static int signals = -1; /* readable after Ctrl-C */
static bool stop_seen;

/* ---- errors and the log ---- */

doca_error_t failed(const char *what, doca_error_t error)
{
	DOCA_LOG_ERR("%s failed: %s (%s)", what, doca_error_get_descr(error),
		     doca_error_get_name(error));
	return error;
}

doca_error_t failed_system(const char *what, const char *path)
{
	DOCA_LOG_ERR("%s %s failed: %s", what, path, strerror(errno));
	return DOCA_ERROR_OPERATING_SYSTEM;
}

static doca_error_t start_log(void)
{
	struct doca_log_backend *sdk;

	TRY_DOCA(doca_log_backend_create_standard());
	TRY_DOCA(doca_log_backend_create_with_file_sdk(stderr, &sdk));
	TRY_DOCA(doca_log_backend_set_sdk_level(sdk, DOCA_LOG_LEVEL_WARNING));
	return DOCA_SUCCESS;
}

/* ---- options ---- */

static doca_error_t keep_text(char *to, const char *from, const char *what)
{
	if (strlen(from) >= TEXT_MAX) {
		DOCA_LOG_ERR("%s has more than %d bytes", what, TEXT_MAX - 1);
		return DOCA_ERROR_INVALID_VALUE;
	}
	strcpy(to, from);
	return DOCA_SUCCESS;
}

static doca_error_t keep_number(int *to, int from, const char *what)
{
	if (from < 0) {
		DOCA_LOG_ERR("%s is %d; it must not be negative", what, from);
		return DOCA_ERROR_INVALID_VALUE;
	}
	*to = from;
	return DOCA_SUCCESS;
}

static doca_error_t set_pci(void *param, void *config)
{
	return keep_text(((struct options *)config)->pci, param, "--pci-addr");
}

static doca_error_t set_text(void *param, void *config)
{
	return keep_text(((struct options *)config)->text, param, "--text");
}

static doca_error_t set_descriptor(void *param, void *config)
{
	return keep_text(((struct options *)config)->descriptor, param, "--descriptor-path");
}

static doca_error_t set_buffer(void *param, void *config)
{
	return keep_text(((struct options *)config)->buffer, param, "--buffer-path");
}

static doca_error_t set_rep_pci(void *param, void *config)
{
	return keep_text(((struct options *)config)->rep_pci, param, "--rep-pci");
}

static doca_error_t set_role(void *param, void *config)
{
	return keep_text(((struct options *)config)->role, param, "--role");
}

static doca_error_t set_write(void *param, void *config)
{
	((struct options *)config)->write = *(bool *)param;
	return DOCA_SUCCESS;
}

static doca_error_t set_count(void *param, void *config)
{
	return keep_number(&((struct options *)config)->count, *(int *)param, "--count");
}

static doca_error_t set_size(void *param, void *config)
{
	return keep_number(&((struct options *)config)->size, *(int *)param, "--size");
}

static doca_error_t set_gpu(void *param, void *config)
{
	return keep_number(&((struct options *)config)->gpu, *(int *)param, "--gpu");
}

static doca_error_t set_address(void *param, void *config)
{
	return keep_text(((struct options *)config)->address, param, "--address");
}

static doca_error_t set_port(void *param, void *config)
{
	return keep_number(&((struct options *)config)->port, *(int *)param, "--port");
}

static doca_error_t set_gid_index(void *param, void *config)
{
	return keep_number(&((struct options *)config)->gid_index, *(int *)param, "--gid-index");
}

static const struct option {
	int wanted; /* 0: registered always */
	enum doca_argp_type type;
	const char *short_name, *long_name, *description;
	doca_argp_param_cb_t set;
} known_options[] = {
	{0, DOCA_ARGP_TYPE_STRING, "p", "pci-addr",
	 "PCI address of the device (default: the first that can)", set_pci},
	{WANT_TEXT, DOCA_ARGP_TYPE_STRING, "t", "text", "Text to move", set_text},
	{WANT_FILES, DOCA_ARGP_TYPE_STRING, "d", "descriptor-path", "File of the export descriptor",
	 set_descriptor},
	{WANT_FILES, DOCA_ARGP_TYPE_STRING, "b", "buffer-path",
	 "File of the exported address and length", set_buffer},
	{WANT_RDMA, DOCA_ARGP_TYPE_STRING, "d", "details-path",
	 "File of the responder's connection details; the requester's has .requester behind it",
	 set_descriptor},
	{WANT_RDMA, DOCA_ARGP_TYPE_STRING, "m", "role", "requester, or responder, which is started first",
	 set_role},
	{WANT_WRITE, DOCA_ARGP_TYPE_BOOLEAN, "w", "write",
	 "Sender: let the other side write. Receiver: write --text there", set_write},
	{WANT_COUNT, DOCA_ARGP_TYPE_INT, "n", "count", "How many copies, or pieces", set_count},
	{WANT_SIZE, DOCA_ARGP_TYPE_INT, "s", "size", "Bytes", set_size},
	{WANT_GPU, DOCA_ARGP_TYPE_INT, "g", "gpu", "Number of the GPU (default: 0)", set_gpu},
	{WANT_COMCH, DOCA_ARGP_TYPE_STRING, "r", "rep-pci",
	 "Server: PCI address of the client's function (default: the first)", set_rep_pci},
	{WANT_COMCH | WANT_PEER, DOCA_ARGP_TYPE_STRING, "m", "role",
	 "client or server; of Comch the client is on the host, the server on the DPU", set_role},
	{WANT_PEER, DOCA_ARGP_TYPE_STRING, "a", "address",
	 "IPv4 address to listen at, or the server's (default: 127.0.0.1)", set_address},
	{WANT_IP, DOCA_ARGP_TYPE_STRING, "i", "ip",
	 "IPv4 address that the GPU answers for (default: 10.0.0.2)", set_address},
	{WANT_PEER, DOCA_ARGP_TYPE_INT, "P", "port",
	 "Its TCP port; 0: the server chooses and prints one (default: 18515)", set_port},
	{WANT_PEER, DOCA_ARGP_TYPE_INT, "x", "gid-index", "Index in the gid table (default: 0)",
	 set_gid_index},
};

static doca_error_t add_option(const struct option *option)
{
	struct doca_argp_param *param;

	TRY_DOCA(doca_argp_param_create(&param));
	doca_argp_param_set_short_name(param, option->short_name);
	doca_argp_param_set_long_name(param, option->long_name);
	doca_argp_param_set_description(param, option->description);
	doca_argp_param_set_callback(param, option->set);
	doca_argp_param_set_type(param, option->type);
	TRY_DOCA(doca_argp_register_param(param));
	return DOCA_SUCCESS;
}

static doca_error_t read_options(int argc, char **argv, const char *name, int wanted,
				 struct options *o)
{
	TRY_DOCA(doca_argp_init(name, o));
	for (size_t i = 0; i < sizeof known_options / sizeof known_options[0]; i++)
		if (!known_options[i].wanted || (known_options[i].wanted & wanted))
			TRY(add_option(&known_options[i]));
	TRY_DOCA(doca_argp_start(argc, argv));
	return DOCA_SUCCESS;
}

doca_error_t sample_begin(int argc, char **argv, const char *name, int wanted, struct options *o)
{
	sigset_t set;

	TRY(start_log());
	if (wanted & WANT_FILES) {
		strcpy(o->descriptor, "/tmp/descriptor.bin");
		strcpy(o->buffer, "/tmp/buffer.txt");
	}
	if (wanted & WANT_RDMA)
		strcpy(o->descriptor, "/tmp/rdma.details");
	TRY(read_options(argc, argv, name, wanted, o));
	/* Block the signals before any thread is started, so that all threads inherit the mask and
	 * the signals arrive only here. */
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return failed_system("sigprocmask", "");
	signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return signals < 0 ? failed_system("signalfd", "") : DOCA_SUCCESS;
}

int sample_end(doca_error_t result)
{
	if (signals >= 0)
		close(signals);
	doca_argp_destroy();
	if (result == DOCA_SUCCESS)
		DOCA_LOG_INFO("The sample ended well");
	else
		DOCA_LOG_ERR("The sample failed: %s", doca_error_get_descr(result));
	return result == DOCA_SUCCESS ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- waiting ---- */

bool stopped(void)
{
	struct signalfd_siginfo info;

	if (!stop_seen && read(signals, &info, sizeof info) == sizeof info) {
		DOCA_LOG_INFO("Signal %u: ending", info.ssi_signo);
		stop_seen = true;
	}
	return stop_seen;
}

bool wait_readable(int fd)
{
	struct pollfd fds[] = {{.fd = signals, .events = POLLIN}, {.fd = fd, .events = POLLIN}};

	while (!stopped()) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return false;
		if (fds[1].revents)
			return true;
	}
	return false;
}

void wait_for_enter(void)
{
	char c;

	while (wait_readable(STDIN_FILENO) && read(STDIN_FILENO, &c, 1) == 1 && c != '\n')
		;
}

/* ---- the device ---- */

/* Returns whether the device matches: by its address if one is given, otherwise by its
 * capabilities. */
static bool is_wanted(const struct doca_devinfo *info, const char *pci, device_can can)
{
	uint8_t same = 0;

	if (pci[0] && (doca_devinfo_is_equal_pci_addr(info, pci, &same) != DOCA_SUCCESS || !same))
		return false;
	return can(info) == DOCA_SUCCESS;
}

doca_error_t open_device(const char *pci, device_can can, struct doca_dev **dev)
{
	char address[DOCA_DEVINFO_PCI_ADDR_SIZE] = "";
	struct doca_devinfo **list;
	doca_error_t result = DOCA_ERROR_NOT_FOUND;
	uint32_t n, i;

	TRY_DOCA(doca_devinfo_create_list(&list, &n));
	for (i = 0; i < n && !is_wanted(list[i], pci, can); i++)
		;
	if (i < n) {
		doca_devinfo_get_pci_addr_str(list[i], address);
		result = doca_dev_open(list[i], dev);
	}
	doca_devinfo_destroy_list(list);
	if (i == n) {
		DOCA_LOG_ERR("None of %u devices %s%s can do what this sample needs", n,
			     pci[0] ? "with the address " : "here", pci);
		return result;
	}
	if (result != DOCA_SUCCESS)
		return failed("doca_dev_open", result);
	DOCA_LOG_INFO("Device %s is open", address);
	return DOCA_SUCCESS;
}

/* ---- files ---- */

doca_error_t write_file(const char *path, const void *data, size_t size)
{
	char part[TEXT_MAX + 8];
	bool whole;
	int fd;

	snprintf(part, sizeof part, "%s.part", path);
	unlink(part);
	fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return failed_system("Making", part);
	whole = write(fd, data, size) == (ssize_t)size;
	if (close(fd) || !whole || rename(part, path))
		return failed_system("Writing", path);
	return DOCA_SUCCESS;
}

doca_error_t read_file(const char *path, void *data, size_t capacity, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : read(fd, data, capacity);

	if (got < 0) {
		doca_error_t result = failed_system("Reading", path);
		if (fd >= 0)
			close(fd);
		return result;
	}
	close(fd);
	if (got == 0 || (size_t)got == capacity) {
		DOCA_LOG_ERR("%s has %s", path, got ? "too many bytes" : "no bytes");
		return DOCA_ERROR_INVALID_VALUE;
	}
	*size = (size_t)got;
	return DOCA_SUCCESS;
}

doca_error_t write_export(const struct options *o, const void *descriptor, size_t descriptor_size,
			  const void *addr, size_t size)
{
	char text[64];
	int n = snprintf(text, sizeof text, "%" PRIuPTR "\n%zu\n", (uintptr_t)addr, size);

	TRY(write_file(o->buffer, text, (size_t)n));
	TRY(write_file(o->descriptor, descriptor, descriptor_size));
	DOCA_LOG_INFO("Wrote %zu bytes to %s, and address and length to %s", descriptor_size,
		      o->descriptor, o->buffer);
	return DOCA_SUCCESS;
}

doca_error_t read_export(const struct options *o, void *descriptor, size_t *descriptor_size,
			 void **addr, size_t *size)
{
	char text[64];
	uintptr_t at;
	size_t n;

	TRY(read_file(o->descriptor, descriptor, DESCRIPTOR_MAX, descriptor_size));
	TRY(read_file(o->buffer, text, sizeof text, &n));
	text[n] = '\0';
	if (sscanf(text, "%" SCNuPTR " %zu", &at, size) != 2 || !at || !*size) {
		DOCA_LOG_ERR("%s contains no address and length", o->buffer);
		return DOCA_ERROR_INVALID_VALUE;
	}
	*addr = (void *)at;
	return DOCA_SUCCESS;
}

void remove_export(const struct options *o)
{
	unlink(o->descriptor);
	unlink(o->buffer);
}

void print_text(const char *label, const char *text, size_t size)
{
	printf("%s: \"", label);
	for (size_t i = 0; i < size && text[i]; i++)
		putchar(isprint((unsigned char)text[i]) ? text[i] : '.');
	printf("\"\n");
	fflush(stdout);
}
