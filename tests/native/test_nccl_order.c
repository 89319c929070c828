/* SPDX-License-Identifier: Apache-2.0 */
/* Signals of NCCL's RMA plugin over queues that delay and fail single transfers: the provider fault
 * takes the place of soft, whose queues keep the order of posting anyway. */
#include <errno.h>
#include <unistd.h>

#include "check.h"
#include "gpu_memory.h"
#include "nccl/comm.h"

enum { BLOCK = 256 };

static struct plugin plugin;
static struct comm *comm;
static _Alignas(64) char source[BLOCK], window[4 * BLOCK];
static _Alignas(64) _Atomic uint64_t words[4];
static void *memory[3];
static uint64_t opened_ns;

/* Checks what holds while the first write is delayed: a thread that gets no core for that long can
 * tell nothing. */
#define CHECK_WHILE_DELAYED(rule, condition)                              \
	do {                                                              \
		const bool holds = (condition);                           \
		CHECK(holds || dg_now_ns() - opened_ns > (rule).delay_ns); \
	} while (0)

/* Makes a communicator of one rank, whose first write obeys the rule. */
static void open_comm(const dg_fault_rule *rule)
{
	const dg_device_config config = {.rules = rule, .n_rules = 1};
	char handle[NCCL_HANDLE_SIZE];
	void *handles[] = {handle};
	struct listener *l;
	CHECK_EQ(listener_open(&plugin, handle, &l), 0);
	CHECK_EQ(comm_open(&plugin, handles, 1, 0, l, &comm), 0);
	listener_close(l);
	struct engine *soft = &comm->engines[SOFT];
	CHECK_EQ(dg_device_open("fault", &config, &soft->dev), 0);
	CHECK_EQ(dg_queue_open(soft->dev, 16, DG_PATH_AUTO, 0, PATIENCE, &soft->queue), 0);
	memset(source, 7, sizeof source);
	CHECK_EQ(memory_open(comm, source, sizeof source, NCCL_HOST, 0, &memory[0]), 0);
	CHECK_EQ(memory_open(comm, window, sizeof window, NCCL_HOST, 0, &memory[1]), 0);
	CHECK_EQ(memory_open(comm, words, sizeof words, NCCL_HOST, 0, &memory[2]), 0);
	opened_ns = dg_now_ns();
}

/* Puts block i of the window, unless size is 0, and adds 1 to word i if `signals`. */
static void *post(uint64_t i, uint64_t size, bool signals)
{
	const struct transfer t = {.local = memory_find(comm, memory[0]),
				   .remote = memory_find(comm, memory[1]),
				   .remote_offset = i * BLOCK,
				   .size = size,
				   .op = DG_WRITE};
	const struct signal_slot s = {.memory = 2, .offset = i * 8, .value = 1};
	void *request = NULL;
	CHECK_EQ(request_post(comm, &t, signals ? &s : NULL, 0, &request), 0);
	return request;
}

static void *put(uint64_t i)
{
	return post(i, BLOCK, true);
}

static void *put_without_signal(uint64_t i)
{
	return post(i, BLOCK, false);
}

static nccl_result wait_for(void *request)
{
	const uint64_t end = dg_now_ns() + PATIENCE;
	nccl_result result = NCCL_SUCCESS;
	for (int done = 0; !done;) {
		CHECK_EQ(request_test(comm, request, &done, &result), 0);
		CHECK(dg_now_ns() < end);
	}
	return result;
}

/* NCCL's device code posts a value with a signal in a window as a put and a signal without bytes. */
TEST(a_signal_waits_for_all_earlier_puts)
{
	const dg_fault_rule delay = {.action = DG_FAULT_DELAY, .delay_ns = SECOND / 2, .ops = 2,
				     .count = 1, .every = 1, .max_size = UINT64_MAX, .ppm = 1000000};
	open_comm(&delay);
	void *slow = put_without_signal(3), *bare = post(0, 0, true), *second = put(1);
	CHECK_EQ(wait_for(put_without_signal(2)), NCCL_SUCCESS); /* overtakes the first */
	CHECK_WHILE_DELAYED(delay, words[0] + words[1] == 0);
	CHECK_EQ(wait_for(bare), NCCL_SUCCESS);
	CHECK_EQ(window[4 * BLOCK - 1], 7);
	CHECK_EQ(words[0], 1);
	CHECK_EQ(wait_for(second), NCCL_SUCCESS);
	CHECK_EQ(words[1], 1);
	CHECK_EQ(wait_for(slow), NCCL_SUCCESS);
	CHECK_EQ(comm_close(comm), 0);
}

TEST(a_flush_waits_for_earlier_puts)
{
	const dg_fault_rule delay = {.action = DG_FAULT_DELAY, .delay_ns = SECOND / 2, .ops = 2,
				     .count = 1, .every = 1, .max_size = UINT64_MAX, .ppm = 1000000};
	void *flush;
	open_comm(&delay);
	void *slow = put_without_signal(3);
	CHECK_EQ(request_post(comm, NULL, NULL, 0, &flush), 0);
	CHECK_EQ(wait_for(flush), NCCL_SUCCESS);
	CHECK_EQ(window[4 * BLOCK - 1], 7);
	CHECK_EQ(wait_for(slow), NCCL_SUCCESS);
	CHECK_EQ(comm_close(comm), 0);
}

TEST(a_failed_put_sends_no_signal_and_none_behind_it)
{
	const dg_fault_rule error = {.action = DG_FAULT_ERROR, .status = DG_IO_FAILED, .ops = 2,
				     .count = 1, .every = 1, .max_size = UINT64_MAX, .ppm = 1000000};
	void *request;
	open_comm(&error);
	void *failing = put(0), *behind = put(1);
	CHECK_EQ(wait_for(failing), NCCL_SYSTEM_ERROR);
	CHECK_EQ(wait_for(behind), NCCL_REMOTE_ERROR);
	comm_progress(comm);
	CHECK_EQ(words[0], 0);
	CHECK_EQ(words[1], 0);
	CHECK(comm->failed);
	CHECK_EQ(request_post(comm, NULL, NULL, 0, &request), -ENOTCONN);
	CHECK_EQ(comm_close(comm), 0);
}

/* NCCL's proxy tests each request in flight in each pass, before it calls for progress. */
TEST(a_test_makes_progress_only_if_none_was_made_since_the_last)
{
	const dg_fault_rule delay = {.action = DG_FAULT_DELAY, .delay_ns = SECOND / 10, .ops = 2,
				     .every = 1, .max_size = UINT64_MAX, .ppm = 1000000};
	open_comm(&delay);
	void *request = put(0);
	CHECK_WHILE_DELAYED(delay, !request_waits(comm, request)); /* must make progress itself */
	CHECK_WHILE_DELAYED(delay, comm->engines[SOFT].n_waiting == 1);
	comm_progress(comm);
	CHECK_WHILE_DELAYED(delay, request_waits(comm, request));
	CHECK_WHILE_DELAYED(delay, !request_waits(comm, request));
	CHECK_EQ(wait_for(request), NCCL_SUCCESS);
	CHECK(!request_waits(comm, request)); /* unknown now */
	CHECK_EQ(comm_close(comm), 0);
}

TEST(puts_that_come_while_one_is_moved_are_submitted_together)
{
	const dg_fault_rule delay = {.action = DG_FAULT_DELAY, .delay_ns = SECOND / 10, .ops = 2,
				     .count = 1, .every = 1, .max_size = UINT64_MAX, .ppm = 1000000};
	struct engine *soft;
	void *requests[3];
	open_comm(&delay);
	soft = &comm->engines[SOFT];
	void *first = put_without_signal(3);
	comm_progress(comm);
	CHECK_WHILE_DELAYED(delay, soft->moving == 1);
	for (uint64_t i = 0; i < 3; i++) {
		requests[i] = put(i);
		comm_progress(comm);
	}
	CHECK_WHILE_DELAYED(delay, soft->n_waiting == 3);
	CHECK_EQ(wait_for(first), NCCL_SUCCESS);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(wait_for(requests[i]), NCCL_SUCCESS);
	CHECK_EQ(soft->n_waiting + soft->moving, 0);
	CHECK_EQ(words[0] + words[1] + words[2], 3);
	CHECK_EQ(comm_close(comm), 0);
}

/* A batch is refused whole; those of it that are right are then submitted alone. */
TEST(a_refused_put_does_not_take_others_of_its_batch_with_it)
{
	const dg_fault_rule delay = {.action = DG_FAULT_DELAY, .delay_ns = 1, .ops = 2, .count = 1,
				     .every = 1, .max_size = UINT64_MAX, .ppm = 1000000};
	open_comm(&delay);
	void *good = put(0), *wrong = put(1), *behind = put_without_signal(2), *signal = put(3);
	comm->requests[(uintptr_t)wrong - 1]->wr.local = 0; /* as if its memory had been closed */
	CHECK_EQ(wait_for(good), NCCL_SUCCESS);
	CHECK_EQ(wait_for(wrong), NCCL_REMOTE_ERROR);
	CHECK_EQ(wait_for(behind), NCCL_SUCCESS);
	CHECK_EQ(wait_for(signal), NCCL_REMOTE_ERROR); /* promises the bytes before it */
	CHECK_EQ(words[0], 1);
	CHECK_EQ(words[1] + words[3], 0);
	CHECK_EQ(window[2 * BLOCK], 7);
	CHECK_EQ(comm_close(comm), 0);
}

/* A DPU agent in this process; its bytes take another path than the provider fault. */
TEST(an_agent_moves_the_bytes_and_its_end_is_an_error)
{
	const dg_fault_rule delay = {.action = DG_FAULT_DELAY, .delay_ns = 1, .ops = 2, .count = 1,
				     .every = 1, .max_size = UINT64_MAX, .ppm = 1000000};
	const dg_device_config config = {0};
	char path[64], address[64];
	dg_device *dev;
	dg_mover *mover;
	void *request;
	snprintf(path, sizeof path, "/tmp/dgkit-test-nccl-%d.mover", (int)getpid());
	snprintf(address, sizeof address, "ipc:///tmp/dgkit-test-nccl-%d", (int)getpid());
	CHECK_EQ(setenv("DGKIT_NCCL_DPU", address, 1), 0);
	CHECK_EQ(dg_device_open("soft", &config, &dev), 0);
	CHECK_EQ(dg_mover_open(dev, path, &mover), 0);
	open_comm(&delay);
	void *first = put(0), *second = put(1);
	CHECK_EQ(comm->engines[AGENT].n_waiting, 2);
	CHECK_EQ(wait_for(first), NCCL_SUCCESS);
	CHECK_EQ(wait_for(second), NCCL_SUCCESS);
	CHECK_EQ(words[0] + words[1], 2);
	CHECK_EQ(window[2 * BLOCK - 1], 7);
	request = put(2);
	dg_mover_close(mover);
	CHECK_EQ(wait_for(request), NCCL_REMOTE_ERROR);
	CHECK(comm->failed);
	CHECK_EQ(words[2], 0);
	CHECK_EQ(comm_close(comm), 0);
	CHECK_EQ(dg_device_close(dev, PATIENCE), 0);
}

/* A rank whose memory is on the GPU puts to itself and adds 1 to a word, again and again. */
struct own_puts {
	char *bytes[2];
	_Atomic uint64_t *words;
	void *memory[3];
};

static void open_own_puts(struct own_puts *o)
{
	enum { SIZE = 2 << 20 };
	char handle[NCCL_HANDLE_SIZE];
	void *handles[] = {handle};
	struct listener *l;
	gpu_knobs("");
	CHECK_EQ(listener_open(&plugin, handle, &l), 0);
	CHECK_EQ(comm_open(&plugin, handles, 1, 0, l, &comm), 0);
	listener_close(l);
	for (int i = 0; i < 2; i++) {
		o->bytes[i] = gpu_block(SIZE).addr;
		CHECK_EQ(memory_open(comm, o->bytes[i], SIZE, NCCL_CUDA, 0, &o->memory[i]), 0);
	}
	o->words = gpu_block(SIZE).addr;
	memset((void *)o->words, 0, SIZE);
	CHECK_EQ(memory_open(comm, (void *)o->words, SIZE, NCCL_CUDA, NCCL_SIGNAL_NEVER_RESET,
			     &o->memory[2]), 0);
}

static void *own_put(const struct own_puts *o, uint64_t size)
{
	const struct transfer t = {.local = memory_find(comm, o->memory[0]),
				   .remote = memory_find(comm, o->memory[1]),
				   .size = size,
				   .op = DG_WRITE};
	const struct signal_slot s = {.memory = 2, .offset = 8, .value = 1};
	void *request = NULL;
	CHECK_EQ(request_post(comm, &t, &s, 0, &request), 0);
	return request;
}

TEST(a_signal_to_the_rank_itself_goes_with_the_bytes)
{
	static const uint64_t sizes[] = {8, 256, 100, 8192, 40000};
	struct own_puts o;
	open_own_puts(&o);
	CHECK_EQ(wait_for(own_put(&o, 8)), NCCL_SUCCESS); /* now the word is known */
	for (uint64_t i = 2; i < 40; i++) {
		const uint64_t size = sizes[i % 5];
		const unsigned long flags = gpu_calls("cuStreamWriteValue32");
		memset(o.bytes[0], (int)i, size);
		void *request = own_put(&o, size);
		comm_progress(comm);
		CHECK_EQ(comm->batch.joined + comm->batch.n, 1);
		while (o.words[1] != i)
			;
		CHECK_EQ(o.bytes[1][0], (char)i);
		CHECK_EQ(o.bytes[1][size - 1], (char)i);
		CHECK_EQ(wait_for(request), NCCL_SUCCESS);
		CHECK_EQ(comm->batch.joined, 0);
		CHECK(gpu_calls("cuStreamWriteValue32") <= flags + 1);
	}
	CHECK_EQ(comm_close(comm), 0);
}

TEST(signals_that_are_joined_and_that_are_not_are_all_added)
{
	struct own_puts o;
	void *requests[40];
	open_own_puts(&o);
	for (uint32_t i = 0; i < 40; i++) {
		requests[i] = own_put(&o, 8);
		if (i % 4 == 3)
			continue; /* the next one is submitted together with it */
		comm_progress(comm);
	}
	for (int i = 0; i < 40; i++)
		CHECK_EQ(wait_for(requests[i]), NCCL_SUCCESS);
	CHECK_EQ(o.words[1], 40);
	CHECK_EQ(comm_close(comm), 0);
}

TEST(a_failed_put_does_not_write_the_joined_signal)
{
	struct own_puts o;
	open_own_puts(&o);
	CHECK_EQ(wait_for(own_put(&o, 8)), NCCL_SUCCESS);
	gpu_knobs("cuMemcpyDtoHAsync=1");
	void *request = own_put(&o, 256);
	CHECK(wait_for(request) != NCCL_SUCCESS);
	CHECK_EQ(o.words[1], 1);
	CHECK(comm->failed);
	gpu_knobs("");
	CHECK_EQ(comm_close(comm), 0);
}

TEST_MAIN(run_tests)
