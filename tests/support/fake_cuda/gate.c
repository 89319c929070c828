/* SPDX-License-Identifier: Apache-2.0 */
/* What each function of the driver asks first: is there a driver at all, was a fault ordered, may it
 * run in this process. The faults come from DGKIT_FAKE_CUDA, words set apart by commas:
 *
 *   NAME=CODE      the function NAME answers CODE (`_v2` may be left out); `*` is every function
 *   NAME=CODE@K    from its K-th call on
 *   copy_us=N      each copy takes N us longer
 *   compute_us=N   another process keeps the GPU busy: what the compute engine runs comes N us later
 *   full=1         a kernel of this process has every multiprocessor, until full=0: other kernels, copies
 *                  on a GPU, and what waits for the whole context wait for it
 *   total=BYTES    the memory of each GPU (1 GiB); gpus=N (1); peer=0: no GPU reaches another
 *   host_numa=0    virtual memory cannot be memory of the host
 *   attrN=V        device attribute N is V
 *   dmabuf_mmap=1  a dma-buf can be mapped by the CPU
 *   lost@K         after K copies the context is lost
 *   wrong=peer     a copy from GPU to GPU reports success and leaves its last byte unwritten; wrong=host: one
 *                  from or to the host
 *   missing=A+B    cuGetProcAddress does not know A and B
 */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 32, NAME = 64 };

struct fault {
	char name[NAME];
	int code;
	unsigned long from;
};

static struct knobs set;
static struct fault faults[WORDS];
static struct {
	int number, value;
} attributes[WORDS];
static int fault_count, attribute_count;
static char missing_names[1024];
static unsigned long copies;
static struct entry *entries;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Inside `lock`, guards `set` against streams, which only read it: unlike a mutex, that orders no copy
 * of one stream before one of another, so ThreadSanitizer still sees where dgkit does not. */
static pthread_rwlock_t setting = PTHREAD_RWLOCK_INITIALIZER;
static atomic_bool initialised, forked;

/* Whether two names are those of one function: `cuMemAlloc` and `cuMemAlloc_v2` are. */
static bool same(const char *a, const char *b)
{
	const char *end_a = strstr(a, "_v"), *end_b = strstr(b, "_v");
	size_t size_a = end_a ? (size_t)(end_a - a) : strlen(a);
	size_t size_b = end_b ? (size_t)(end_b - b) : strlen(b);

	return size_a == size_b && !memcmp(a, b, size_a);
}

static bool number_knob(const char *name, const char *value)
{
	int attribute;

	if (!strcmp(name, "gpus"))
		set.gpus = atoi(value) < DEVICES ? atoi(value) : DEVICES;
	else if (!strcmp(name, "peer"))
		set.peer = atoi(value);
	else if (!strcmp(name, "host_numa"))
		set.host_numa = atoi(value);
	else if (!strcmp(name, "dmabuf_mmap"))
		set.dmabuf_mmap = atoi(value);
	else if (!strcmp(name, "copy_us"))
		set.copy_us = atol(value);
	else if (!strcmp(name, "compute_us"))
		set.compute_us = atol(value);
	else if (!strcmp(name, "wrong"))
		set.wrong_peer = !strcmp(value, "peer"), set.wrong_host = !strcmp(value, "host");
	else if (!strcmp(name, "full"))
		set.full = atoi(value);
	else if (!strcmp(name, "total"))
		set.total = strtoull(value, NULL, 0);
	else if (!strcmp(name, "missing"))
		snprintf(missing_names, sizeof(missing_names), "+%s+", value);
	else if (sscanf(name, "attr%d", &attribute) == 1 && attribute_count < WORDS)
		attributes[attribute_count].number = attribute,
		attributes[attribute_count++].value = atoi(value);
	else
		return false;
	return true;
}

static void read_word(char *word)
{
	char *equals = strchr(word, '='), *at;

	if (!strncmp(word, "lost@", 5)) {
		set.lost_after = atol(word + 5);
		return;
	}
	if (equals)
		*equals++ = '\0';
	if (!equals || number_knob(word, equals))
		return;
	if (fault_count == WORDS || strlen(word) >= NAME) {
		fprintf(stderr, "dgkit fake CUDA: no room for the fault %s\n", word);
		abort();
	}
	at = strchr(equals, '@');
	strcpy(faults[fault_count].name, word);
	faults[fault_count].code = atoi(equals);
	faults[fault_count++].from = at ? strtoul(at + 1, NULL, 10) : 1;
}

static void read_words(const char *words)
{
	char *copy = strdup(words), *rest = copy, *word;

	set = (struct knobs){.gpus = 1, .peer = 1, .host_numa = 1, .total = 1ull << 30, .lost_after = -1};
	fault_count = attribute_count = 0;
	missing_names[0] = '\0';
	copies = 0;
	while ((word = strsep(&rest, ",")))
		read_word(word);
	free(copy);
}

static void after_fork(void)
{
	atomic_store(&forked, atomic_load(&initialised));
}

__attribute__((constructor)) static void begin(void)
{
	const char *words = getenv("DGKIT_FAKE_CUDA");

	read_words(words ? words : "");
	pthread_atfork(NULL, NULL, after_fork);
}

struct knobs knobs(void)
{
	struct knobs copy;

	pthread_rwlock_rdlock(&setting);
	copy = set;
	pthread_rwlock_unlock(&setting);
	return copy;
}

/* For tests: other knobs from now on. Counts of calls and copies begin again. */
EXPORT void dgkitFakeCuda(const char *words)
{
	pthread_mutex_lock(&lock);
	pthread_rwlock_wrlock(&setting);
	read_words(words);
	pthread_rwlock_unlock(&setting);
	for (struct entry *entry = entries; entry; entry = entry->next)
		entry->calls = 0;
	pthread_mutex_unlock(&lock);
}

/* For tests: how often a function was called. */
EXPORT unsigned long dgkitFakeCudaCalls(const char *name)
{
	unsigned long calls = 0;

	pthread_mutex_lock(&lock);
	for (struct entry *entry = entries; entry; entry = entry->next)
		calls += same(entry->name, name) ? entry->calls : 0;
	pthread_mutex_unlock(&lock);
	return calls;
}

/* Counts the call. The code that was ordered for it, else 0. */
static int ordered(struct entry *entry)
{
	int code = 0;

	pthread_mutex_lock(&lock);
	if (!entry->next) {
		static struct entry last = {.name = ""};

		entry->next = entries ? entries : &last;
		entries = entry;
	}
	entry->calls++;
	for (int i = 0; i < fault_count && !code; i++)
		if (entry->calls >= faults[i].from &&
		    (!strcmp(faults[i].name, "*") || same(faults[i].name, entry->name)))
			code = faults[i].code;
	pthread_mutex_unlock(&lock);
	return code;
}

void initialise(void)
{
	atomic_store(&initialised, true);
}

/* For what works before cuInit. */
int gate_early(struct entry *entry)
{
	return atomic_load(&forked) ? CUDA_ERROR_NOT_INITIALIZED : ordered(entry);
}

int gate(struct entry *entry)
{
	int code = gate_early(entry);

	if (!code && !atomic_load(&initialised))
		code = CUDA_ERROR_NOT_INITIALIZED;
	return code;
}

/* For what needs a current context that lives. */
int gate_context(struct entry *entry, struct context **context)
{
	int code = gate(entry);

	if (code)
		return code;
	*context = current();
	if (!*context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!atomic_load(&(*context)->alive))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return atomic_load(&(*context)->lost) ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

bool missing(const char *symbol)
{
	char name[NAME + 2];

	snprintf(name, sizeof(name), "+%s+", symbol);
	return strstr(missing_names, name);
}

bool attribute_knob(int attribute, int *value)
{
	for (int i = 0; i < attribute_count; i++) {
		if (attributes[i].number != attribute)
			continue;
		*value = attributes[i].value;
		return true;
	}
	return false;
}

/* Counts a copy; whether it is the one that loses its context. */
bool copy_is_lost(void)
{
	bool lost;

	pthread_mutex_lock(&lock);
	lost = set.lost_after >= 0 && copies++ >= (unsigned long)set.lost_after;
	pthread_mutex_unlock(&lock);
	return lost;
}
