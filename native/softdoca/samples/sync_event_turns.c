// SPDX-License-Identifier: Apache-2.0
/*
 * The host and the DPU take turns, using a sync event. One file, public DOCA only.
 *
 *	sync_event_turns host FILE [ROUNDS]   exports the event into FILE, and waits for the other side
 *	sync_event_turns dpu FILE [ROUNDS]    reads FILE
 *
 * The value counts the turns: the DPU makes it odd, the host even. The host uses the event alone;
 * the DPU uses it as a context, with tasks on a progress engine.
 */
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_error.h>
#include <doca_pe.h>
#include <doca_sync_event.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALL_BITS UINT64_MAX

static bool failed_in_callback;
static int completions;

static int complain(const char *what, doca_error_t result)
{
	fprintf(stderr, "%s: %s\n", what, doca_error_get_descr(result));
	return EXIT_FAILURE;
}

static struct doca_dev *find_device(doca_error_t (*supports)(const struct doca_devinfo *))
{
	struct doca_devinfo **infos;
	struct doca_dev *found = NULL;
	uint32_t count, i;

	if (doca_devinfo_create_list(&infos, &count) != DOCA_SUCCESS)
		return NULL;
	for (i = 0; i < count; i++) {
		if (supports(infos[i]) != DOCA_SUCCESS)
			continue;
		if (doca_dev_open(infos[i], &found) == DOCA_SUCCESS)
			break;
	}
	doca_devinfo_destroy_list(infos);
	return found;
}

/* ---- host: synchronous ---- */

/* Writes under another name first, so that the other side never reads half a file. */
static bool save(const char *path, const void *data, size_t size)
{
	char partial[4096];
	FILE *file;
	bool good;

	if (snprintf(partial, sizeof(partial), "%s.part", path) >= (int)sizeof(partial))
		return false;
	file = fopen(partial, "wb");
	if (file == NULL)
		return false;
	good = fwrite(data, 1, size, file) == size;
	good = fclose(file) == 0 && good;
	return good && rename(partial, path) == 0;
}

static doca_error_t configure(struct doca_sync_event *event, struct doca_dev *dev)
{
	doca_error_t result;

	result = doca_sync_event_add_publisher_location_remote_pci(event);
	if (result != DOCA_SUCCESS)
		return result;
	result = doca_sync_event_add_subscriber_location_cpu(event, dev);
	if (result != DOCA_SUCCESS)
		return result;
	return doca_sync_event_start(event);
}

static doca_error_t play_host(struct doca_sync_event *event, uint64_t rounds)
{
	doca_error_t result = DOCA_SUCCESS;
	uint64_t turn, before;

	for (turn = 0; turn < rounds && result == DOCA_SUCCESS; turn++) {
		result = doca_sync_event_wait_gt_yield(event, 2 * turn, ALL_BITS);
		if (result == DOCA_SUCCESS)
			result = doca_sync_event_update_add(event, 1, &before);
		if (result == DOCA_SUCCESS && before != 2 * turn + 1)
			result = DOCA_ERROR_UNEXPECTED;
	}
	/* The DPU takes the last turn. */
	if (result == DOCA_SUCCESS)
		result = doca_sync_event_wait_eq_yield(event, 2 * rounds + 1, ALL_BITS);
	return result;
}

static int run_host(const char *path, uint64_t rounds)
{
	struct doca_dev *dev;
	struct doca_sync_event *event = NULL;
	const uint8_t *blob;
	size_t size;
	doca_error_t result;

	dev = find_device(doca_sync_event_cap_is_export_to_remote_pci_supported);
	if (dev == NULL)
		return complain("no device exports events", DOCA_ERROR_NOT_FOUND);
	result = doca_sync_event_create(&event);
	if (result != DOCA_SUCCESS)
		goto close;
	result = configure(event, dev);
	if (result != DOCA_SUCCESS)
		goto destroy;
	result = doca_sync_event_export_to_remote_pci(event, dev, &blob, &size);
	if (result != DOCA_SUCCESS)
		goto stop;
	if (!save(path, blob, size)) {
		result = DOCA_ERROR_OPERATING_SYSTEM;
		goto stop;
	}
	printf("host: ready\n");
	fflush(stdout);
	result = play_host(event, rounds);
	unlink(path);
	if (result == DOCA_SUCCESS)
		printf("host: %llu turns\n", (unsigned long long)rounds);
stop:
	doca_sync_event_stop(event);
destroy:
	doca_sync_event_destroy(event);
close:
	doca_dev_close(dev);
	return result == DOCA_SUCCESS ? EXIT_SUCCESS : complain("host", result);
}

/* ---- DPU: asynchronous ---- */

static void add_done(struct doca_sync_event_task_notify_add *task, union doca_data task_data,
		     union doca_data ctx_data)
{
	(void)task;
	(void)task_data;
	(void)ctx_data;
	completions++;
}

static void add_failed(struct doca_sync_event_task_notify_add *task, union doca_data task_data,
		       union doca_data ctx_data)
{
	failed_in_callback = true;
	add_done(task, task_data, ctx_data);
}

static void wait_done(struct doca_sync_event_task_wait_eq *task, union doca_data task_data,
		      union doca_data ctx_data)
{
	(void)task;
	(void)task_data;
	(void)ctx_data;
	completions++;
}

static void wait_failed(struct doca_sync_event_task_wait_eq *task, union doca_data task_data,
			union doca_data ctx_data)
{
	failed_in_callback = true;
	wait_done(task, task_data, ctx_data);
}

/* Submits a task and progresses until it is complete. */
static doca_error_t finish(struct doca_pe *pe, struct doca_task *task)
{
	int before = completions;
	doca_error_t result = doca_task_submit(task);

	if (result != DOCA_SUCCESS)
		return result;
	while (completions == before)
		if (doca_pe_progress(pe) == 0)
			usleep(10);
	return doca_task_get_status(task);
}

static doca_error_t play_dpu(struct doca_sync_event *event, struct doca_pe *pe, uint64_t rounds)
{
	struct doca_sync_event_task_notify_add *add = NULL;
	struct doca_sync_event_task_wait_eq *wait = NULL;
	union doca_data none = {.u64 = 0};
	uint64_t turn, before = 0;
	doca_error_t result;

	result = doca_sync_event_task_notify_add_alloc_init(event, 1, &before, none, &add);
	if (result != DOCA_SUCCESS)
		return result;
	result = doca_sync_event_task_wait_eq_alloc_init(event, 0, ALL_BITS, none, &wait);
	for (turn = 0; turn <= rounds && result == DOCA_SUCCESS; turn++) {
		result = finish(pe, doca_sync_event_task_notify_add_as_doca_task(add));
		if (result != DOCA_SUCCESS || turn == rounds)
			break;
		doca_sync_event_task_wait_eq_set_wait_val(wait, 2 * turn + 2);
		result = finish(pe, doca_sync_event_task_wait_eq_as_doca_task(wait));
	}
	if (wait != NULL)
		doca_task_free(doca_sync_event_task_wait_eq_as_doca_task(wait));
	doca_task_free(doca_sync_event_task_notify_add_as_doca_task(add));
	if (result == DOCA_SUCCESS && before != 2 * rounds)
		result = DOCA_ERROR_UNEXPECTED;
	return result;
}

static doca_error_t start_dpu(struct doca_sync_event *event, struct doca_pe *pe)
{
	struct doca_ctx *ctx = doca_sync_event_as_ctx(event);
	doca_error_t result;

	if (ctx == NULL)
		return DOCA_ERROR_UNEXPECTED;
	result = doca_pe_connect_ctx(pe, ctx);
	if (result != DOCA_SUCCESS)
		return result;
	result = doca_sync_event_task_notify_add_set_conf(event, add_done, add_failed, 1);
	if (result != DOCA_SUCCESS)
		return result;
	result = doca_sync_event_task_wait_eq_set_conf(event, wait_done, wait_failed, 1);
	if (result != DOCA_SUCCESS)
		return result;
	return doca_ctx_start(ctx);
}

static int run_dpu(const char *path, uint64_t rounds)
{
	uint8_t blob[4096];
	size_t size = 0;
	struct doca_dev *dev;
	struct doca_sync_event *event = NULL;
	struct doca_pe *pe = NULL;
	doca_error_t result;
	FILE *file = fopen(path, "rb");

	if (file != NULL) {
		size = fread(blob, 1, sizeof(blob), file);
		fclose(file);
	}
	dev = find_device(doca_sync_event_cap_is_create_from_export_supported);
	if (dev == NULL)
		return complain("no device imports events", DOCA_ERROR_NOT_FOUND);
	result = doca_sync_event_create_from_export(dev, blob, size, &event);
	if (result != DOCA_SUCCESS)
		goto close;
	result = doca_pe_create(&pe);
	if (result != DOCA_SUCCESS)
		goto destroy;
	result = start_dpu(event, pe);
	if (result == DOCA_SUCCESS) {
		result = play_dpu(event, pe, rounds);
		if (result == DOCA_SUCCESS && failed_in_callback)
			result = DOCA_ERROR_UNEXPECTED;
		doca_ctx_stop(doca_sync_event_as_ctx(event));
	}
	if (result == DOCA_SUCCESS)
		printf("dpu: %llu turns\n", (unsigned long long)rounds);
destroy:
	doca_sync_event_destroy(event);
	if (pe != NULL)
		doca_pe_destroy(pe);
close:
	doca_dev_close(dev);
	return result == DOCA_SUCCESS ? EXIT_SUCCESS : complain("dpu", result);
}

int main(int argc, char **argv)
{
	uint64_t rounds = argc > 3 ? strtoull(argv[3], NULL, 10) : 1000;

	if (argc > 2 && strcmp(argv[1], "host") == 0)
		return run_host(argv[2], rounds);
	if (argc > 2 && strcmp(argv[1], "dpu") == 0)
		return run_dpu(argv[2], rounds);
	fprintf(stderr, "usage: sync_event_turns host|dpu FILE [ROUNDS]\n");
	return 2;
}
