// SPDX-License-Identifier: Apache-2.0
/*
 * Handles: whatever a program passes in place of a handle, the call returns an error and accesses
 * nothing. Each function that takes a handle is called with each invalid value.
 */
#define CHECK_DETAIL() softdoca_last_refusal()
const char *softdoca_last_refusal(void);
#include "check.h"
#include "fork_check.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "doca_buf.h"
#include "doca_buf_array.h"
#include "doca_buf_inventory.h"
#include "doca_ctx.h"
#include "doca_dev.h"
#include "doca_dma.h"
#include "doca_log.h"
#include "doca_mmap.h"
#include "doca_pe.h"

/* clang-format off */
enum kind {
	NONE, LIST, INFO, DEV, REPS, REP_INFO, REP, MMAP, INVENTORY, BUF, BUF_ARR, PE, DMA, CTX,
	MEMCPY, TASK, LOG, N_KINDS
};
/* clang-format on */

/* One living object of each kind. */
static void *living[N_KINDS];
static char *bytes; /* BYTES of them */
enum { BYTES = 4096 };
static union doca_data nothing;
/* Receives the output of the functions. */
static _Alignas(64) char out[512];
#define OUT ((void *)out)

static void on_task(struct doca_dma_task_memcpy *task, union doca_data a, union doca_data b)
{
	(void)task, (void)a, (void)b;
}

static void on_free(void *addr, size_t len, void *opaque)
{
	(void)addr, (void)len, (void)opaque;
}

static void on_state(const union doca_data d, struct doca_ctx *ctx, enum doca_ctx_states prev,
		     enum doca_ctx_states next)
{
	(void)d, (void)ctx, (void)prev, (void)next;
}

/* A function with one argument for each call: p is the handle under test. */
#define TRY(id, expression) \
	static doca_error_t id(void *p) \
	{ \
		return (expression); \
	}
/* For functions that return no error: returning NULL or 0, or doing nothing, counts as refusal.
 * Functions for which NULL is a valid argument (nothing to close, a buffer that comes later) are
 * left out. */
#define REFUSED(condition) ((condition) ? DOCA_ERROR_INVALID_VALUE : DOCA_SUCCESS)
#define QUIET(call) ((call), DOCA_ERROR_INVALID_VALUE)

#define CALLS(X) \
	X(LIST, destroy_list, doca_devinfo_destroy_list(p)) \
	X(REPS, rep_destroy_list, doca_devinfo_rep_destroy_list(p)) \
	X(INFO, dev_open, doca_dev_open(p, OUT)) \
	X(INFO, ibdev, doca_devinfo_get_ibdev_name(p, out, sizeof out)) \
	X(INFO, iface, doca_devinfo_get_iface_name(p, out, sizeof out)) \
	X(INFO, pci, doca_devinfo_get_pci_addr_str(p, out)) \
	X(INFO, equal, doca_devinfo_is_equal_pci_addr(p, "03:00.0", OUT)) \
	X(INFO, func_type, doca_devinfo_get_pci_func_type(p, OUT)) \
	X(INFO, sf_index, doca_devinfo_get_sf_index(p, OUT)) \
	X(INFO, vhca, doca_devinfo_get_vhca_id(p, OUT)) \
	X(INFO, cap_export, doca_mmap_cap_is_export_pci_supported(p, OUT)) \
	X(INFO, cap_import, doca_mmap_cap_is_create_from_export_pci_supported(p, OUT)) \
	X(INFO, cap_list, doca_dma_cap_task_memcpy_get_max_buf_list_len(p, OUT)) \
	X(INFO, cap_size, doca_dma_cap_task_memcpy_get_max_buf_size(p, OUT)) \
	X(INFO, cap_memcpy, doca_dma_cap_task_memcpy_is_supported(p)) \
	X(DEV, dev_close, p ? doca_dev_close(p) : DOCA_ERROR_INVALID_VALUE) \
	X(DEV, as_info, REFUSED(!doca_dev_as_devinfo(p))) \
	X(DEV, rep_list, doca_devinfo_rep_create_list(p, 0, OUT, OUT)) \
	X(DEV, dma_create, doca_dma_create(p, OUT)) \
	X(DEV, mmap_add, doca_mmap_add_dev(living[MMAP], p)) \
	X(DEV, mmap_rm, doca_mmap_rm_dev(living[MMAP], p)) \
	X(DEV, import, doca_mmap_create_from_export(NULL, bytes, 100, p, OUT)) \
	X(DEV, export_by, doca_mmap_export_pci(living[MMAP], p, OUT, OUT)) \
	X(DEV, export_rdma_by, doca_mmap_export_rdma(living[MMAP], p, OUT, OUT)) \
	X(REP_INFO, rep_open, doca_dev_rep_open(p, OUT)) \
	X(REP_INFO, rep_vuid, doca_devinfo_rep_get_vuid(p, out, sizeof out)) \
	X(REP_INFO, rep_pci, doca_devinfo_rep_get_pci_addr_str(p, out)) \
	X(REP_INFO, rep_equal, doca_devinfo_rep_is_equal_pci_addr(p, "03:00.0", OUT)) \
	X(REP, rep_close, doca_dev_rep_close(p)) \
	X(MMAP, add_dev, doca_mmap_add_dev(p, living[DEV])) \
	X(MMAP, rm_dev, doca_mmap_rm_dev(p, living[DEV])) \
	X(MMAP, mmap_destroy, doca_mmap_destroy(p)) \
	X(MMAP, export_pci, doca_mmap_export_pci(p, living[DEV], OUT, OUT)) \
	X(MMAP, export_rdma, doca_mmap_export_rdma(p, living[DEV], OUT, OUT)) \
	X(MMAP, memrange, doca_mmap_set_memrange(p, bytes, 64)) \
	X(MMAP, dmabuf, doca_mmap_set_dmabuf_memrange(p, 0, bytes, 0, 64)) \
	X(MMAP, permissions, doca_mmap_set_permissions(p, 1)) \
	X(MMAP, mmap_start, doca_mmap_start(p)) \
	X(MMAP, mmap_stop, doca_mmap_stop(p)) \
	X(MMAP, get_range, doca_mmap_get_memrange(p, OUT, OUT)) \
	X(MMAP, free_cb, doca_mmap_set_free_cb(p, on_free, NULL)) \
	X(MMAP, mmap_set_data, doca_mmap_set_user_data(p, nothing)) \
	X(MMAP, mmap_data, doca_mmap_get_user_data(p, OUT)) \
	X(MMAP, num_bufs, doca_mmap_get_num_bufs(p, OUT)) \
	X(MMAP, exported, doca_mmap_get_exported(p, OUT)) \
	X(MMAP, from_export, doca_mmap_get_from_export(p, OUT)) \
	X(MMAP, max_devs, doca_mmap_get_max_num_devices(p, OUT)) \
	X(MMAP, set_max_devs, doca_mmap_set_max_num_devices(p, 2)) \
	X(MMAP, threads, doca_mmap_enable_thread_safety(p)) \
	X(MMAP, buf_over, doca_buf_inventory_buf_get_by_args(living[INVENTORY], p, bytes, 64, \
							     bytes, 0, OUT)) \
	X(MMAP, arr_params, doca_buf_arr_set_params(living[BUF_ARR], p, 64, 0)) \
	X(INVENTORY, inv_destroy, doca_buf_inventory_destroy(p)) \
	X(INVENTORY, inv_start, doca_buf_inventory_start(p)) \
	X(INVENTORY, inv_stop, doca_buf_inventory_stop(p)) \
	X(INVENTORY, inv_get, doca_buf_inventory_buf_get_by_args(p, living[MMAP], bytes, 64, \
								 bytes, 0, OUT)) \
	X(INVENTORY, inv_dup, doca_buf_inventory_buf_dup(p, living[BUF], OUT)) \
	X(INVENTORY, inv_num, doca_buf_inventory_get_num_elements(p, OUT)) \
	X(INVENTORY, inv_free, doca_buf_inventory_get_num_free_elements(p, OUT)) \
	X(INVENTORY, inv_expand, doca_buf_inventory_expand(p, 1)) \
	X(BUF, dup_of, doca_buf_inventory_buf_dup(living[INVENTORY], p, OUT)) \
	X(BUF, chain, doca_buf_chain_list(p, living[BUF])) \
	X(BUF, chain_to, doca_buf_chain_list(living[BUF], p)) \
	X(BUF, unchain, doca_buf_unchain_list(p, living[BUF])) \
	X(BUF, unchain_from, doca_buf_unchain_list(living[BUF], p)) \
	X(BUF, inc, doca_buf_inc_refcount(p, OUT)) \
	X(BUF, dec, doca_buf_dec_refcount(p, OUT)) \
	X(BUF, refcount, doca_buf_get_refcount(p, OUT)) \
	X(BUF, buf_len, doca_buf_get_len(p, OUT)) \
	X(BUF, buf_head, doca_buf_get_head(p, OUT)) \
	X(BUF, buf_data, doca_buf_get_data(p, OUT)) \
	X(BUF, buf_data_len, doca_buf_get_data_len(p, OUT)) \
	X(BUF, set_data, doca_buf_set_data(p, bytes, 1)) \
	X(BUF, set_data_len, doca_buf_set_data_len(p, 1)) \
	X(BUF, reset_data, doca_buf_reset_data_len(p)) \
	X(BUF, next, doca_buf_get_next_in_list(p, OUT)) \
	X(BUF, last, doca_buf_get_last_in_list(p, OUT)) \
	X(BUF, is_last, doca_buf_is_last_in_list(p, OUT)) \
	X(BUF, is_first, doca_buf_is_first_in_list(p, OUT)) \
	X(BUF, in_list, doca_buf_is_in_list(p, OUT)) \
	X(BUF, list_len, doca_buf_get_list_len(p, OUT)) \
	X(BUF, task_src, \
	  p ? doca_dma_task_memcpy_alloc_init(living[DMA], p, living[BUF], nothing, OUT) \
	    : DOCA_ERROR_INVALID_VALUE) \
	X(BUF, task_dst, \
	  p ? doca_dma_task_memcpy_alloc_init(living[DMA], living[BUF], p, nothing, OUT) \
	    : DOCA_ERROR_INVALID_VALUE) \
	X(BUF_ARR, arr_gpu, doca_buf_arr_set_target_gpu(p, OUT)) \
	X(BUF_ARR, arr_set, doca_buf_arr_set_params(p, living[MMAP], 64, 0)) \
	X(BUF_ARR, arr_start, doca_buf_arr_start(p)) \
	X(BUF_ARR, arr_stop, doca_buf_arr_stop(p)) \
	X(BUF_ARR, arr_destroy, doca_buf_arr_destroy(p)) \
	X(BUF_ARR, arr_handle, doca_buf_arr_get_gpu_handle(p, OUT)) \
	X(PE, pe_connect, doca_pe_connect_ctx(p, living[CTX])) \
	X(PE, pe_destroy, doca_pe_destroy(p)) \
	X(PE, pe_progress, REFUSED(!doca_pe_progress(p))) \
	X(PE, pe_handle, doca_pe_get_notification_handle(p, OUT)) \
	X(PE, pe_request, doca_pe_request_notification(p)) \
	X(PE, pe_clear, doca_pe_clear_notification(p, 0)) \
	X(PE, pe_inflight, doca_pe_get_num_inflight_tasks(p, OUT)) \
	X(PE, pe_mode, doca_pe_set_event_mode(p, DOCA_PE_EVENT_MODE_PROGRESS_ALL)) \
	X(DMA, dma_destroy, doca_dma_destroy(p)) \
	X(DMA, dma_ctx, REFUSED(!doca_dma_as_ctx(p))) \
	X(DMA, dma_conf, doca_dma_task_memcpy_set_conf(p, on_task, on_task, 4)) \
	X(DMA, dma_alloc, \
	  doca_dma_task_memcpy_alloc_init(p, living[BUF], living[BUF], nothing, OUT)) \
	X(DMA, dma_tasks, doca_dma_cap_get_max_num_tasks(p, OUT)) \
	X(DMA, dma_gpu, doca_dma_get_gpu_handle(p, OUT)) \
	X(DMA, dma_ordered, doca_dma_set_ordered_completions(p, 1)) \
	X(CTX, connect_ctx, doca_pe_connect_ctx(living[PE], p)) \
	X(CTX, ctx_state, doca_ctx_get_state(p, OUT)) \
	X(CTX, ctx_cb, doca_ctx_set_state_changed_cb(p, on_state)) \
	X(CTX, ctx_set_data, doca_ctx_set_user_data(p, nothing)) \
	X(CTX, ctx_data, doca_ctx_get_user_data(p, OUT)) \
	X(CTX, ctx_start, doca_ctx_start(p)) \
	X(CTX, ctx_stop, doca_ctx_stop(p)) \
	X(CTX, ctx_inflight, doca_ctx_get_num_inflight_tasks(p, OUT)) \
	X(CTX, ctx_flush, QUIET(doca_ctx_flush_tasks(p))) \
	X(CTX, ctx_gpu, doca_ctx_set_datapath_on_gpu(p, OUT)) \
	X(MEMCPY, as_task, REFUSED(!doca_dma_task_memcpy_as_task(p))) \
	X(MEMCPY, set_src, QUIET(doca_dma_task_memcpy_set_src(p, living[BUF]))) \
	X(MEMCPY, set_dst, QUIET(doca_dma_task_memcpy_set_dst(p, living[BUF]))) \
	X(MEMCPY, get_src, REFUSED(!doca_dma_task_memcpy_get_src(p))) \
	X(MEMCPY, get_dst, REFUSED(!doca_dma_task_memcpy_get_dst(p))) \
	X(TASK, task_free, QUIET(doca_task_free(p))) \
	X(TASK, task_status, doca_task_get_status(p)) \
	X(TASK, submit, doca_task_submit(p)) \
	X(TASK, submit_ex, doca_task_submit_ex(p, 0)) \
	X(TASK, try_submit, doca_task_try_submit(p)) \
	X(TASK, task_data, REFUSED(!doca_task_get_user_data(p).u64)) \
	X(TASK, task_set_data, QUIET(doca_task_set_user_data(p, nothing))) \
	X(TASK, task_ctx, REFUSED(!doca_task_get_ctx(p))) \
	X(LOG, sdk_level, doca_log_backend_set_sdk_level(p, DOCA_LOG_LEVEL_INFO))

#define DEFINE(kind, id, expression) TRY(try_##id, expression)
CALLS(DEFINE)
#define ROW(kind, id, expression) {#id, kind, try_##id},
static const struct {
	const char *name;
	enum kind kind;
	doca_error_t (*call)(void *p);
} calls[] = {CALLS(ROW)};
#define N_CALLS (sizeof calls / sizeof calls[0])

#define OK(call) CHECK_EQ(call, DOCA_SUCCESS)

static void make_devices(void)
{
	struct doca_devinfo **list;
	struct doca_devinfo_rep **reps;
	uint32_t n;
	OK(doca_devinfo_create_list(&list, &n));
	OK(doca_dev_open(list[0], (void *)&living[DEV]));
	OK(doca_devinfo_rep_create_list(living[DEV], 0, &reps, &n));
	OK(doca_dev_rep_open(reps[0], (void *)&living[REP]));
	OK(doca_log_backend_create_with_file_sdk(fopen("/dev/null", "w"), (void *)&living[LOG]));
	living[LIST] = list;
	living[INFO] = list[0];
	living[REPS] = reps;
	living[REP_INFO] = reps[0];
}

static void make_all(void)
{
	make_devices();
	CHECK(bytes || (bytes = malloc(BYTES)));
	OK(doca_mmap_create((void *)&living[MMAP]));
	OK(doca_mmap_add_dev(living[MMAP], living[DEV]));
	OK(doca_mmap_set_memrange(living[MMAP], bytes, BYTES));
	OK(doca_mmap_start(living[MMAP]));
	OK(doca_buf_inventory_create(8, (void *)&living[INVENTORY]));
	OK(doca_buf_inventory_start(living[INVENTORY]));
	OK(doca_buf_inventory_buf_get_by_addr(living[INVENTORY], living[MMAP], bytes, 64,
					      (void *)&living[BUF]));
	OK(doca_buf_arr_create(4, (void *)&living[BUF_ARR]));
	OK(doca_pe_create((void *)&living[PE]));
	OK(doca_dma_create(living[DEV], (void *)&living[DMA]));
	living[CTX] = doca_dma_as_ctx(living[DMA]);
	OK(doca_dma_task_memcpy_set_conf(living[DMA], on_task, on_task, 4));
	OK(doca_pe_connect_ctx(living[PE], living[CTX]));
	OK(doca_ctx_start(living[CTX]));
	OK(doca_dma_task_memcpy_alloc_init(living[DMA], living[BUF], living[BUF],
					   (union doca_data){.u64 = 7}, (void *)&living[MEMCPY]));
	living[TASK] = doca_dma_task_memcpy_as_task(living[MEMCPY]);
}

static void refused_by_all_of_kind(enum kind kind, void *p, const char *what)
{
	for (size_t i = 0; i < N_CALLS; i++) {
		if (kind != NONE && calls[i].kind != kind)
			continue;
		doca_error_t error = calls[i].call(p);
		if (error != DOCA_ERROR_INVALID_VALUE)
			check_failed(__FILE__, __LINE__, "%s of %s gives %s", calls[i].name, what,
				     doca_error_get_name(error));
	}
}

TEST(what_is_no_handle_is_refused_by_every_function)
{
	_Alignas(64) char here[256] = {0};
	void *heap = aligned_alloc(64, 256);
	void *page = mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	make_all();
	CHECK(heap && page != MAP_FAILED);
	memset(heap, 0xff, 256);
	refused_by_all_of_kind(NONE, NULL, "NULL");
	refused_by_all_of_kind(NONE, (void *)1, "1");
	refused_by_all_of_kind(NONE, (void *)64, "64");
	refused_by_all_of_kind(NONE, (void *)-1, "-1");
	refused_by_all_of_kind(NONE, (void *)-64, "-64");
	refused_by_all_of_kind(NONE, (void *)INTPTR_MIN, "the middle of all addresses");
	refused_by_all_of_kind(NONE, here, "an address on the stack");
	refused_by_all_of_kind(NONE, heap, "an address on the heap");
	refused_by_all_of_kind(NONE, page, "an address that cannot be read");
	refused_by_all_of_kind(NONE, out, "a static address");
	refused_by_all_of_kind(NONE, (void *)on_task, "a function");
	free(heap);
}

TEST(a_handle_of_another_kind_is_refused_by_every_function)
{
	make_all();
	for (int k = NONE + 1; k < N_KINDS; k++)
		for (size_t i = 0; i < N_CALLS; i++) {
			if ((int)calls[i].kind == k)
				continue;
			doca_error_t error = calls[i].call(living[k]);
			if (error != DOCA_ERROR_INVALID_VALUE)
				check_failed(__FILE__, __LINE__, "%s of kind %d gives %s",
					     calls[i].name, k, doca_error_get_name(error));
		}
}

TEST(an_address_just_beside_an_object_is_refused_by_every_function)
{
	make_all();
	for (int k = NONE + 1; k < N_KINDS; k++)
		for (int at = 1; at < 64; at *= 2) {
			refused_by_all_of_kind((enum kind)k, (char *)living[k] + at, "one above");
			refused_by_all_of_kind((enum kind)k, (char *)living[k] - at, "one below");
		}
}

/* In an order in which they can be freed. */
static void free_all(void)
{
	doca_task_free(living[TASK]);
	(void)doca_ctx_stop(living[CTX]);
	OK(doca_dma_destroy(living[DMA]));
	OK(doca_pe_destroy(living[PE]));
	OK(doca_buf_arr_destroy(living[BUF_ARR]));
	OK(doca_buf_dec_refcount(living[BUF], NULL));
	OK(doca_buf_inventory_destroy(living[INVENTORY]));
	OK(doca_mmap_destroy(living[MMAP]));
	OK(doca_dev_rep_close(living[REP]));
	OK(doca_devinfo_rep_destroy_list(living[REPS]));
	OK(doca_dev_close(living[DEV]));
	OK(doca_devinfo_destroy_list(living[LIST]));
}

TEST(a_freed_handle_is_refused_by_every_function)
{
	void *freed[N_KINDS];
	make_all();
	memcpy(freed, living, sizeof freed);
	free_all();
	for (int k = NONE + 1; k < LOG; k++)
		refused_by_all_of_kind((enum kind)k, freed[k], "a freed one");
	/* Freed handles are not valid for later objects either, which may reuse their memory. */
	make_all();
	for (int k = NONE + 1; k < LOG; k++)
		refused_by_all_of_kind((enum kind)k, freed[k], "a freed one, with new ones there");
	free_all();
}

TEST(a_buffer_that_was_given_back_is_refused_while_its_inventory_is_there)
{
	struct doca_buf *given;
	uint32_t left;

	make_all();
	OK(doca_buf_inventory_buf_get_by_addr(living[INVENTORY], living[MMAP], bytes, 64, &given));
	OK(doca_buf_dec_refcount(given, NULL));
	for (size_t i = 0; i < N_CALLS; i++)
		if (calls[i].kind == BUF) /* whose count is 0: the one who gives it back learns that */
			CHECK_EQ(calls[i].call(given), calls[i].call == try_dec ?
							       DOCA_ERROR_BAD_STATE :
							       DOCA_ERROR_INVALID_VALUE);
	OK(doca_buf_inventory_get_num_free_elements(living[INVENTORY], &left));
	CHECK_EQ(left, 7);
	free_all();
}

TEST(objects_freed_by_the_thousand_are_made_of_the_same_memory)
{
	struct doca_mmap *m;
	struct doca_mmap *seen[200];
	bool again = false;
	for (int i = 0; i < 5000; i++) {
		OK(doca_mmap_create(&m));
		for (int k = 0; i >= 200 && k < 200; k++)
			again |= m == seen[k];
		if (i < 200)
			seen[i] = m;
		OK(doca_mmap_destroy(m));
	}
	CHECK(again);
}

static void *make_and_free(void *arg)
{
	struct doca_mmap *mine[32];
	void *data = &mine;
	(void)arg;
	for (int round = 0; round < 300; round++) {
		for (int i = 0; i < 32; i++) {
			OK(doca_mmap_create(&mine[i]));
			OK(doca_mmap_set_user_data(mine[i], (union doca_data){.ptr = data}));
		}
		for (int i = 0; i < 32; i++) {
			union doca_data got;
			OK(doca_mmap_get_user_data(mine[i], &got));
			CHECK(got.ptr == data);
			OK(doca_mmap_destroy(mine[i]));
		}
	}
	return NULL;
}

/* Runs from the first object on: concurrent checks of a handle must not be confused by the
 * others. */
static void *ask_about_anything(void *arg)
{
	size_t n;
	(void)arg;
	for (uintptr_t p = 0; p < 4000000; p += 64)
		CHECK_EQ(doca_buf_get_len((void *)p, &n), DOCA_ERROR_INVALID_VALUE);
	return NULL;
}

TEST(threads_make_and_free_objects_of_their_own)
{
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, i ? make_and_free : ask_about_anything,
					NULL),
			 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

TEST(a_child_has_objects_and_makes_more)
{
	pthread_t threads[2];
	int others = fork_among_threads() ? 2 : 0;
	struct doca_mmap *mine;
	int status;
	OK(doca_mmap_create(&mine));
	for (int i = 0; i < others; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, make_and_free, NULL), 0);
	for (int i = 0; i < 100; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			struct doca_mmap *own;
			alarm(20);
			OK(doca_mmap_create(&own));
			OK(doca_mmap_destroy(mine));
			CHECK_EQ(doca_mmap_destroy(mine), DOCA_ERROR_INVALID_VALUE);
			OK(doca_mmap_destroy(own));
			_exit(0);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK_EQ(status, 0);
	}
	for (int i = 0; i < others; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	OK(doca_mmap_destroy(mine));
}

/* A sanitizer uses more address space than any of these limits. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Limits the address space of this process. Returns whether the limit has an effect; under qemu it
 * has none. */
static bool limited_to(rlim_t size)
{
	struct rlimit limit = {size, size};
	CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
	return mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
}

TEST(a_limit_of_addresses_leaves_room_for_the_program)
{
	struct doca_mmap *m;
	struct doca_buf_inventory *inv;
	if (!limited_to((rlim_t)1 << 30))
		return;
	OK(doca_mmap_create(&m));
	void *half = malloc((size_t)512 << 20);
	CHECK(half);
	free(half);
	CHECK_EQ(doca_buf_inventory_create((size_t)1 << 24, &inv), DOCA_ERROR_NO_MEMORY);
	OK(doca_buf_inventory_create(1000, &inv));
	OK(doca_mmap_destroy(m));
}

TEST(no_addresses_at_all_is_no_memory)
{
	struct doca_mmap *m;
	struct doca_pe *pe;
	if (!limited_to(1))
		return;
	CHECK_EQ(doca_mmap_create(&m), DOCA_ERROR_NO_MEMORY);
	CHECK_EQ(doca_pe_create(&pe), DOCA_ERROR_NO_MEMORY);
}
#endif

TEST(an_absurd_number_is_refused_at_once)
{
	struct doca_buf_inventory *inv;
	const size_t absurd[] = {(size_t)1 << 31, SIZE_MAX / 2, SIZE_MAX};
	for (size_t i = 0; i < sizeof absurd / sizeof absurd[0]; i++)
		CHECK(doca_buf_inventory_create(absurd[i], &inv) != DOCA_SUCCESS);
}

TEST_MAIN(run_tests)
