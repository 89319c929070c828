// SPDX-License-Identifier: Apache-2.0
/*
 * The recorder: writes each call of DOCA to the file $DGKIT_TRACE, a JSON object a line.
 *
 * Preloaded, its functions are found before those of libdoca_*, whatever version node a program
 * asks for, because it has none. It forwards by dlsym(RTLD_NEXT), or, for libraries that were
 * loaded with RTLD_LOCAL, by searching all loaded ones. A call that DOCA makes itself, inside
 * another, is not recorded; one that a callback of the program makes is. A line is written by one
 * write(2), so a process that is killed leaves a valid file.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "recorder.h"

#define MAX_BYTES   (256u << 20) /* of a trace */
#define MAX_LIBRARIES 32	 /* of DOCA, loaded with RTLD_LOCAL */
#define MAX_DIGEST  2048	 /* bytes of a descriptor */
#define MAX_LINE    8192
#define MAX_SETTING 2048	 /* bytes of a setting of softdoca */
#define MAX_LIST    128		 /* handles of a list that are recorded */
#define MAX_BATCHES 256		 /* of a program at one time */
#define GID_BYTES   16
#define MIN_FD	    200		 /* above the descriptors that a program expects to get */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int trace_fd = -1; /* -2: not recording */
static struct stat trace_file;
static uint64_t start_ns, written;
static unsigned long last_call, last_thread;

static _Thread_local unsigned long thread_number;
static _Thread_local unsigned long outer; /* the call or callback that this thread is in */
static _Thread_local bool inside;	  /* this thread is in DOCA, not in a callback */
static _Thread_local bool called_back;
/* The last call that was recorded, if it may repeat, and how often it did. */
static _Thread_local uint64_t last_digest;
static _Thread_local unsigned long last_of_thread, repeats;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- the functions of DOCA ---- */

struct libraries {
	const char *names[MAX_LIBRARIES];
	unsigned int count;
};

static int add_library(struct dl_phdr_info *info, size_t size, void *data)
{
	struct libraries *libraries = data;

	(void)size;
	if (info->dlpi_name && strstr(info->dlpi_name, "libdoca_") &&
	    !strstr(info->dlpi_name, "libdoca_recorder") && libraries->count < MAX_LIBRARIES)
		libraries->names[libraries->count++] = info->dlpi_name;
	return 0;
}

static void *find_real(const char *name)
{
	struct libraries libraries = {.count = 0};
	void *found = dlsym(RTLD_NEXT, name);

	if (!found)
		dl_iterate_phdr(add_library, &libraries);
	for (unsigned int i = 0; !found && i < libraries.count; i++) {
		void *library = dlopen(libraries.names[i], RTLD_LAZY | RTLD_NOLOAD);

		if (library) {
			found = dlsym(library, name);
			dlclose(library);
		}
	}
	return found;
}

void *recorded_next(struct recorded_function *function)
{
	void *next = __atomic_load_n(&function->next, __ATOMIC_ACQUIRE);

	if (next)
		return next;
	next = find_real(function->name);
	if (!next) {
		fprintf(stderr, "dgkit softdoca record: this DOCA has no %s\n", function->name);
		_exit(127);
	}
	__atomic_store_n(&function->next, next, __ATOMIC_RELEASE);
	return next;
}

/* ---- the file ---- */

static void write_line(const char *text, size_t size)
{
	struct stat now;

	if (trace_fd < 0)
		return;
	/* The program may have closed the descriptor, and have it for a file of its own. */
	if (fstat(trace_fd, &now) || now.st_ino != trace_file.st_ino ||
	    now.st_dev != trace_file.st_dev || written + size > MAX_BYTES ||
	    write(trace_fd, text, size) != (ssize_t)size)
		trace_fd = -2;
	written += size;
}

static void __attribute__((format(printf, 1, 2))) line(const char *format, ...)
{
	char text[MAX_LINE];
	va_list values;
	int size;

	va_start(values, format);
	size = vsnprintf(text, sizeof(text), format, values);
	va_end(values);
	if (size > 0 && (size_t)size < sizeof(text))
		write_line(text, (size_t)size);
}

/* Opens $DGKIT_TRACE, or, where another process of the program has it, that name with a number. */
static int open_new(void)
{
	const char *path = getenv("DGKIT_TRACE");
	char name[4096];
	int fd = -1;

	for (int i = 1; path && i < 1000; i++) {
		if (i == 1)
			snprintf(name, sizeof(name), "%s", path);
		else
			snprintf(name, sizeof(name), "%s.%d", path, i);
		fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
		if (fd >= 0 || errno != EEXIST)
			break;
	}
	return fd;
}

static const char *doca_version(void)
{
	const char *(*next)(void) = find_real("doca_version_runtime");
	const char *found = next ? next() : "";

	return strlen(found) < 32 && !found[strspn(found, "0123456789.-abcdefghijklmnopqrstuvwxyz")]
		? found : "";
}

/* A digest of the boot's random id: traces with the same one have the same clock. */
static uint64_t boot_digest(void)
{
	char id[64];
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t size = fd < 0 ? -1 : read(fd, id, sizeof(id));

	if (fd >= 0)
		close(fd);
	return size > 0 ? recorded_digest(id, (size_t)size) : 0;
}

/* What a replay of softdoca itself has to set: its rules of faults. Invalid ones are left out. */
static const char *fault_rules(void)
{
	const char *rules = getenv("SOFTDOCA_FAULTS");
	const char *known = "abcdefghijklmnopqrstuvwxyz0123456789_=; ";

	return rules && strlen(rules) < MAX_SETTING && !rules[strspn(rules, known)] ? rules : "";
}

/* And side and capabilities of each of its functions, without their names. */
static const char *functions_of_sides(char text[MAX_SETTING])
{
	const char *path = getenv("SOFTDOCA_DEVICES"), *known = "abcdefghijklmnopqrstuvwxyz=,";
	FILE *file = path ? fopen(path, "re") : NULL;
	size_t length = 0;
	char row[512];

	while (file && fgets(row, sizeof(row), file)) {
		const char *side = strstr(row, "side="), *caps = strstr(row, "caps=");
		int added;

		if (!side || row[strspn(row, " \t")] == '#')
			continue;
		added = snprintf(text + length, MAX_SETTING - length, "%s%.*s%s%.*s",
				 length ? "; " : "", (int)strspn(side, known), side,
				 caps ? " " : "", caps ? (int)strspn(caps, known) : 0, caps ? caps : "");
		if (added < 0 || (size_t)added >= MAX_SETTING - length)
			break;
		length += (size_t)added;
	}
	if (file)
		fclose(file);
	text[length] = 0;
	return text;
}

static void open_trace(void)
{
	char functions[MAX_SETTING];
	const char *machine = getenv("DGKIT_TRACE_MACHINE"); /* JSON, by `dgkit softdoca record` */
	int fd = open_new();

	trace_fd = -2;
	if (fd < 0)
		return;
	trace_fd = fcntl(fd, F_DUPFD_CLOEXEC, MIN_FD);
	if (trace_fd < 0)
		trace_fd = fd;
	else
		close(fd);
	if (fstat(trace_fd, &trace_file))
		return;
	start_ns = now_ns();
	line("{\"trace\": 1, \"doca\": \"%s\", \"softdoca\": %s, \"page_size\": %ld, "
	     "\"boot\": %" PRIu64 ", \"start_ns\": %" PRIu64 ", \"faults\": \"%s\", "
	     "\"functions\": \"%s\", \"machine\": %s}\n",
	     doca_version(), find_real("softdoca_last_refusal") ? "true" : "false",
	     sysconf(_SC_PAGESIZE), boot_digest(), start_ns, fault_rules(),
	     functions_of_sides(functions), machine ? machine : "{}");
}

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

/* The child has a file of its own, from its first call on. */
static void in_child(void)
{
	if (trace_fd >= 0)
		close(trace_fd);
	trace_fd = -1;
	written = 0;
	pthread_mutex_unlock(&lock);
}

static void __attribute__((constructor)) begin(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}

static void __attribute__((destructor)) end(void)
{
	pthread_mutex_lock(&lock);
	line("{\"end\": %lu}\n", last_call);
	trace_fd = -2;
	pthread_mutex_unlock(&lock);
}

/* ---- records ---- */

static void __attribute__((format(printf, 2, 3))) add(struct recorded_call *call,
						       const char *format, ...)
{
	size_t left = sizeof(call->text) - call->length;
	va_list values;
	int size;

	va_start(values, format);
	size = vsnprintf(call->text + call->length, left, format, values);
	va_end(values);
	call->length += size < 0 ? 0 : (size_t)size < left ? (unsigned int)size : (unsigned int)left - 1;
}

static void add_number(struct recorded_call *call, const char *class, uint64_t value,
		       unsigned long after)
{
	if (value)
		add(call, "\"%s:%lu\"", class, recorded_number(class, value, after));
	else
		add(call, "null");
}

static void add_address(struct recorded_call *call, uint64_t address)
{
	char text[64];

	recorded_address(text, sizeof(text), address);
	add(call, "%s", text);
}

static void add_digest(struct recorded_call *call, const void *bytes, size_t size)
{
	if (bytes)
		add(call, "\"blob:%016" PRIx64 "\"",
		    recorded_digest(bytes, size < MAX_DIGEST ? size : MAX_DIGEST));
	else
		add(call, "null");
}

static void add_user_data(struct recorded_call *call, uint64_t value)
{
	if (value)
		add_number(call, "data", value, 0);
	else
		add(call, "\"data:0\"");
}

/* Gives a callback of the program a number; returns the recorder's function that replaces it. */
static uint64_t replaced(struct recorded_callback *callback, uint64_t real)
{
	for (unsigned int i = 0; real && i < RECORDED_CALLBACKS; i++) {
		if (!callback->real[i]) {
			callback->numbers[i] = recorded_number("cb", real, 0);
			callback->real[i] = (void *)(uintptr_t)real;
		}
		if (callback->real[i] == (void *)(uintptr_t)real)
			return (uintptr_t)callback->stubs[i];
	}
	return real;
}

/* Formats argument i, which is passed to DOCA or to a callback. */
static void add_input(struct recorded_call *call, unsigned int i, uint64_t value)
{
	const struct recorded_function *function = call->function;

	switch (function->kinds[i + 1]) {
	case 'h':
		add_number(call, function->types[i + 1], value, 0);
		break;
	case 'l':
		add_number(call, "list", value, 0);
		break;
	case 'i':
		add(call, "%" PRId64, (int64_t)value);
		break;
	case 'd':
		add_user_data(call, value);
		break;
	case 'e':
		if (value)
			add_user_data(call, *(const uint64_t *)(uintptr_t)value);
		else
			add(call, "null");
		break;
	case 'a':
		add_address(call, value);
		break;
	case 'b':
		add_digest(call, (const void *)(uintptr_t)value, call->arguments[i + 1]);
		break;
	case 's':
		if (value)
			value = recorded_digest((const void *)(uintptr_t)value,
						strlen((const char *)(uintptr_t)value));
		add_number(call, "text", value, 0);
		break;
	case 'f':
		add_number(call, "fd", value + 1, 0);
		break;
	case 'g':
		value = recorded_digest((const void *)(uintptr_t)value, GID_BYTES);
		add_number(call, "gid", value, 0);
		break;
	case 'c':
		add_number(call, "cb", value, 0);
		break;
	default: /* an output, or a value that is not recorded: only whether it is NULL */
		add(call, value ? "true" : "null");
	}
}

/* Formats what was returned through argument i. */
static void add_output(struct recorded_call *call, unsigned int i, unsigned long after)
{
	const struct recorded_function *function = call->function;
	void *at = (void *)(uintptr_t)call->arguments[i];
	uint64_t value = 0;

	switch (function->kinds[i + 1]) {
	case 'H':
		add_number(call, function->types[i + 1], *(uintptr_t *)at, after);
		break;
	case 'L':
		add_number(call, "list", *(uintptr_t *)at, after);
		break;
	case '1':
	case '2':
	case '4':
	case '8':
	case 'N':
		switch (function->kinds[i + 1]) {
		case '1': value = *(uint8_t *)at; break;
		case '2': value = *(uint16_t *)at; break;
		case '4': value = *(uint32_t *)at; break;
		default: value = *(uint64_t *)at;
		}
		add(call, "%" PRIu64, value);
		break;
	case 'D':
		add_user_data(call, *(uint64_t *)at);
		break;
	case 'A':
		add_address(call, *(uintptr_t *)at);
		break;
	case 'B':
		add_digest(call, *(void **)at, *(size_t *)(uintptr_t)call->arguments[i + 1]);
		break;
	case 'F':
		add_number(call, "fd", (uint64_t)*(int *)at + 1, 0);
		break;
	}
}

/* Formats a list of handles. */
static void add_handles(struct recorded_call *call, const char *type, void *const *handles,
			uint64_t count, unsigned long after)
{
	add(call, ", \"list\": [");
	for (uint64_t i = 0; i < count && i < MAX_LIST; i++) {
		add(call, i ? ", " : "");
		add_number(call, type, (uintptr_t)handles[i], after);
	}
	add(call, "]");
}

/* Batches of frames to send: the program writes them into an array before it submits the batch. */
static struct batch {
	uint64_t handle, count;
	void **frames;
} batches[MAX_BATCHES];
static unsigned int next_batch;

static void note_batch(const struct recorded_call *call)
{
	const uint64_t *arguments = call->arguments;
	struct batch *batch = NULL;

	if (!arguments[3])
		return;
	for (unsigned int i = 0; i < MAX_BATCHES; i++)
		if (batches[i].handle == *(uintptr_t *)(uintptr_t)arguments[5])
			batch = &batches[i];
	if (!batch)
		batch = &batches[next_batch++ % MAX_BATCHES];
	*batch = (struct batch){.handle = *(uintptr_t *)(uintptr_t)arguments[5],
				.count = arguments[1],
				.frames = *(void ***)(uintptr_t)arguments[3]};
}

static void add_batch(struct recorded_call *call, uint64_t handle)
{
	for (unsigned int i = 0; handle && i < MAX_BATCHES; i++)
		if (batches[i].handle == handle)
			add_handles(call, "buf", batches[i].frames, batches[i].count, 0);
}

/* import: the call that imported it, or 0. */
static void add_memory(uint64_t address, uint64_t size, unsigned long import)
{
	long number = recorded_memory(address, size);

	if (number > 0)
		line("{\"memory\": %ld, \"size\": %" PRIu64 ", \"import\": %lu}\n", number, size,
		     import);
}

/* Where the arguments define a range of memory, gives it its number before they are formatted. */
static void note_memory(const struct recorded_call *call)
{
	const uint64_t *arguments = call->arguments;

	if (!strcmp(call->function->name, "doca_mmap_set_memrange"))
		add_memory(arguments[1], arguments[2], 0);
	else if (!strcmp(call->function->name, "doca_mmap_set_dmabuf_memrange"))
		add_memory(arguments[2], arguments[4], 0);
}

/* Gives the memory of an imported map its number. */
static void note_map(const struct recorded_call *call)
{
	static struct recorded_function function = {.name = "doca_mmap_get_memrange"};
	int (*next)(void *, void **, size_t *);
	void *address;
	size_t size;

	next = recorded_next(&function);
	if (!next(*(void **)(uintptr_t)call->arguments[4], &address, &size))
		add_memory((uintptr_t)address, size, call->number);
}

/* Numbers the memory of an allocation, by its address on the GPU and by that on the CPU. */
static void note_allocation(const struct recorded_call *call)
{
	for (unsigned int i = 4; i < 6; i++)
		if (call->arguments[i])
			add_memory(*(uintptr_t *)(uintptr_t)call->arguments[i], call->arguments[1],
				   call->number);
}

/* Keeps what later calls need: memory and batches that a call returned. */
static void note_new(const struct recorded_call *call)
{
	if (!strcmp(call->function->name, "doca_mmap_create_from_export"))
		note_map(call);
	else if (!strcmp(call->function->name, "doca_gpu_mem_alloc"))
		note_allocation(call);
	else if (!strcmp(call->function->name, "doca_eth_txq_task_batch_send_allocate"))
		note_batch(call);
}

static void begin_call(struct recorded_call *call, const struct recorded_function *function,
		       const uint64_t *arguments)
{
	call->function = function;
	call->arguments = arguments;
	call->length = 0;
	call->outer = outer;
	call->nested = inside;
	call->called_back = called_back;
	call->number = 0;
}

static void number_call(struct recorded_call *call)
{
	if (trace_fd == -1)
		open_trace();
	if (!thread_number)
		thread_number = ++last_thread;
	call->number = ++last_call;
}

void recorded_enter(struct recorded_call *call, const struct recorded_function *function,
		    uint64_t *arguments)
{
	begin_call(call, function, arguments);
	if (call->nested)
		return;
	pthread_mutex_lock(&lock);
	number_call(call);
	note_memory(call);
	add(call, "\"args\": [");
	for (unsigned int i = 0; function->kinds[i + 1]; i++) {
		add(call, i ? ", " : "");
		add_input(call, i, arguments[i]);
	}
	add(call, "]");
	if (!strcmp(function->name, "doca_task_batch_submit"))
		add_batch(call, arguments[0]);
	for (unsigned int i = 0; function->kinds[i + 1]; i++)
		if (function->kinds[i + 1] == 'c')
			arguments[i] = replaced(function->callbacks[i], arguments[i]);
	pthread_mutex_unlock(&lock);
	outer = call->number;
	inside = true;
	called_back = false;
	call->start_ns = now_ns();
}

static void add_result(struct recorded_call *call, uint64_t result, unsigned long after)
{
	const struct recorded_function *function = call->function;

	add(call, ", \"result\": ");
	switch (function->kinds[0]) {
	case 'r':
	case 'i':
		add(call, "%" PRIu64, result);
		break;
	case 'h':
		add_number(call, function->types[0], result, after);
		break;
	case 'd':
		add_user_data(call, result);
		break;
	case 'a':
		add_address(call, result);
		break;
	default:
		add(call, function->kinds[0] != 'v' && result ? "true" : "null");
	}
}

static void add_outputs(struct recorded_call *call, unsigned long after)
{
	const char *kinds = call->function->kinds + 1;
	bool first = true;

	add(call, ", \"out\": [");
	for (unsigned int i = 0; kinds[i]; i++) {
		if (!strchr("HL1248DABNF", kinds[i]) || !call->arguments[i])
			continue;
		add(call, first ? "" : ", ");
		add_output(call, i, after);
		first = false;
	}
	add(call, "]");
	for (unsigned int i = 0; kinds[i]; i++)
		if (kinds[i] == 'L' && kinds[i + 1] == '4' && call->arguments[i] && call->arguments[i + 1])
			add_handles(call, call->function->types[i + 1],
				    *(void ***)(uintptr_t)call->arguments[i],
				    *(uint32_t *)(uintptr_t)call->arguments[i + 1], after);
}

/* Returns the least number with which a returned handle is a known object; one with a lower number is
 * a new object at the address of an old one. A call that makes an object always returns a new one, and
 * a handle of doca_X_as_Y() is not older than the handle that it was derived from. */
static unsigned long known_after(const struct recorded_call *call)
{
	const struct recorded_function *function = call->function;

	if (function->makes)
		return ~0ul;
	if (strstr(function->name, "_as_") && function->kinds[1] == 'h' && call->arguments[0])
		return recorded_number(function->types[1], call->arguments[0], 0);
	return 0;
}

/* A call that a program repeats until its result changes, and which changes nothing itself. */
static bool may_repeat(const struct recorded_call *call, uint64_t result)
{
	const char *name = call->function->name;

	if (called_back)
		return false;
	return strstr(name, "_get") || (call->function->kinds[0] == 'r' && result == 5 /* AGAIN */) ||
	       (!strcmp(name, "doca_pe_progress") && !result);
}

static void write_repeats(void)
{
	if (repeats)
		line("{\"repeated\": %lu, \"times\": %lu}\n", last_of_thread, repeats);
	repeats = 0;
	last_digest = 0;
}

void recorded_leave(struct recorded_call *call, uint64_t result)
{
	uint64_t took = now_ns() - call->start_ns, digest;
	unsigned long after;
	bool succeeded = call->function->kinds[0] == 'r' && !result;

	if (call->nested)
		return;
	pthread_mutex_lock(&lock);
	after = succeeded || call->function->kinds[0] == 'h' ? known_after(call) : 0;
	if (succeeded)
		note_new(call);
	add_result(call, result, after);
	if (succeeded)
		add_outputs(call, after);
	digest = recorded_digest(call->function->name, strlen(call->function->name)) ^
		 recorded_digest(call->text, call->length) ^ call->outer;
	if (may_repeat(call, result) && digest == last_digest) {
		repeats++;
	} else {
		write_repeats();
		line("{\"call\": %lu, \"in\": %lu, \"thread\": %lu, \"at_ns\": %" PRIu64
		     ", \"took_ns\": %" PRIu64 ", \"f\": \"%s\", %s}\n",
		     call->number, call->outer, thread_number, call->start_ns - start_ns, took,
		     call->function->name, call->text);
		last_of_thread = call->number;
		if (may_repeat(call, result))
			last_digest = digest;
	}
	pthread_mutex_unlock(&lock);
}

void recorded_end(struct recorded_call *call)
{
	if (call->nested)
		return;
	outer = call->outer;
	inside = !call->function->next; /* a callback returns to DOCA */
	called_back = call->called_back || inside;
}

void recorded_returned(const struct recorded_call *call, uint64_t result)
{
	pthread_mutex_lock(&lock);
	if (result)
		line("{\"returned\": %lu, \"result\": %" PRIu64 "}\n", call->number, result);
	pthread_mutex_unlock(&lock);
}

void *recorded_call_back(struct recorded_call *call, struct recorded_callback *callback,
			 unsigned int slot, const uint64_t *arguments)
{
	const struct recorded_function *function = &callback->function;

	begin_call(call, function, arguments);
	call->nested = false;
	pthread_mutex_lock(&lock);
	number_call(call);
	write_repeats();
	for (unsigned int i = 0; function->kinds[i + 1]; i++) {
		add(call, i ? ", " : "");
		add_input(call, i, arguments[i]);
	}
	add(call, "]");
	for (unsigned int i = 0; function->kinds[i + 1]; i++)
		if (function->kinds[i + 1] == 'l' && arguments[i]) /* of as many as the second argument says */
			add_handles(call, function->types[i + 1], (void **)(uintptr_t)arguments[i],
				    arguments[1], 0);
	line("{\"callback\": %lu, \"in\": %lu, \"thread\": %lu, \"at_ns\": %" PRIu64
	     ", \"f\": \"%s\", \"cb\": %lu, \"args\": [%s}\n",
	     call->number, outer, thread_number, now_ns() - start_ns, function->name,
	     callback->numbers[slot], call->text);
	pthread_mutex_unlock(&lock);
	outer = call->number;
	inside = false;
	return callback->real[slot];
}
