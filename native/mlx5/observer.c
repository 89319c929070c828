// SPDX-License-Identifier: Apache-2.0
/* Counters, and the faults by rule and traces that DGKIT_MLX5_FAULT, as dgkit/adapter_faults.py writes it, and
 * DGKIT_MLX5_TRACE ask for. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mlx5.h"
#include "nic.h"
#include "providers/fault_rule.h"
#include "thread.h"
#include "trace.h"

/* Bits of dg_fault_rule.ops, and actions, beside those of the provider `fault`. status: the syndrome, and
 * above it the vendor's. */
enum { OP_READ = 1, OP_WRITE = 2, OP_FETCH_ADD = 4, OP_COMPARE_SWAP = 8, OP_SEND = 16, OP_RECEIVE = 32 };
enum { DROP = 16, CORRUPT = 17, DIE = 18, FLAP = 19 };
/* Of ibv_event_type. */
enum { PORT_ACTIVE = 9, PORT_ERR = 10 };
enum { RULES = 16, FLAP_CONTEXTS = 64 };

static dg_fault_rule rules[RULES];
static struct fault_state states[RULES];
static uint32_t n_rules;
static enum { NOTHING, LINES, PACKETS } traced;

/* The contexts of an adapter that have queue pairs, by copies of their descriptors, for the event that its port
 * is up again. */
struct flap {
	uint64_t until_ns;
	uint32_t n;
	int fds[FLAP_CONTEXTS];
};
static _Atomic uint64_t up_ns[MAX_ADAPTERS]; /* when the port is up */

bool dg_mlx5_port_is_up(uint32_t adapter)
{
	return now_ns() >= atomic_load_explicit(&up_ns[adapter], memory_order_relaxed);
}

static void *raise_port(void *arg)
{
	struct flap *f = arg;
	const struct timespec until = {(time_t)(f->until_ns / 1000000000), (long)(f->until_ns % 1000000000)};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL))
		continue;
	for (uint32_t i = 0; i < f->n; i++) {
		dg_nic_async(f->fds[i], PORT_EVENT, PORT_ACTIVE);
		dg_mlx5_close(f->fds[i]);
	}
	free(f);
	return NULL;
}

/* Puts the port of a queue pair down for a while. */
static void lower_port(const struct dg_nic_qp *qp, uint64_t ns)
{
	const uint32_t adapter = dg_mlx5_counters_adapter(qp->qpn);
	struct flap *f = calloc(1, sizeof *f);
	int seen[FLAP_CONTEXTS];
	pthread_t thread;
	if (!f || !dg_mlx5_port_is_up(adapter)) {
		free(f);
		return;
	}
	f->until_ns = add_sat(now_ns(), ns);
	atomic_store_explicit(&up_ns[adapter], f->until_ns, memory_order_relaxed);
	for (const struct dg_nic_qp *other = qp->nic->qps; other && f->n < FLAP_CONTEXTS; other = other->next) {
		uint32_t i = 0;
		while (i < f->n && seen[i] != other->c.async_fd)
			i++;
		if (i < f->n || dg_mlx5_counters_adapter(other->qpn) != adapter)
			continue;
		dg_nic_async(other->c.async_fd, PORT_EVENT, PORT_ERR);
		seen[f->n] = other->c.async_fd;
		f->fds[f->n++] = fcntl(other->c.async_fd, F_DUPFD_CLOEXEC, 0);
	}
	if (!dg_thread_start(&thread, "dgkit-port", raise_port, f)) {
		pthread_detach(thread);
		return;
	}
	atomic_store_explicit(&up_ns[adapter], 0, memory_order_relaxed); /* without a thread: up again at once */
	f->until_ns = 0;
	raise_port(f);
}

/* What becomes of an entry while its port is down: it is sent again until the port is up, or as long as its queue
 * pair tries. Datagrams, and what UC sends, are lost. */
static void hold(const struct dg_nic_qp *qp, struct nic_verdict *v)
{
	const uint64_t now = now_ns();
	const uint64_t until =
		atomic_load_explicit(&up_ns[dg_mlx5_counters_adapter(qp->qpn)], memory_order_relaxed);
	if (now >= until)
		return;
	if (qp->c.transport == DG_NIC_UC || qp->c.transport == DG_NIC_UD) {
		v->drop = true;
		return;
	}
	if (until - now <= qp->patience_ns) {
		v->due_ns = v->due_ns > until ? v->due_ns : until; /* a rule may delay it for longer */
		return;
	}
	v->due_ns = now + qp->patience_ns;
	v->syndrome = SYNDROME_RETRIES;
}

static uint32_t op_of(uint32_t opcode)
{
	switch (opcode) {
	case WQE_READ:
		return OP_READ;
	case WQE_WRITE:
	case WQE_WRITE_IMM:
		return OP_WRITE;
	case WQE_SEND:
	case WQE_SEND_IMM:
	case WQE_SEND_INVAL:
		return OP_SEND;
	case WQE_ATOMIC_FA:
	case WQE_MASKED_FA:
		return OP_FETCH_ADD;
	case WQE_ATOMIC_CS:
	case WQE_MASKED_CS:
		return OP_COMPARE_SWAP;
	default:
		return 0;
	}
}

/* The first rule that matches acts. Returns its action, or NULL. */
static const char *inject(const struct dg_nic_qp *qp, uint32_t op, uint64_t size, struct nic_verdict *v)
{
	uint32_t i = 0;
	while (i < n_rules && !fault_rule_acts(&rules[i], &states[i], op, size))
		i++;
	if (i == n_rules)
		return NULL;
	switch (rules[i].action) {
	case DG_FAULT_ERROR:
		v->syndrome = (uint8_t)rules[i].status;
		v->vendor = (uint8_t)(rules[i].status >> 8);
		return "error";
	case DG_FAULT_DELAY:
		v->due_ns = add_sat(now_ns(), rules[i].delay_ns);
		return "delay";
	case DG_FAULT_LOSE:
		v->lose = true;
		return "lose";
	case DROP:
		v->drop = true;
		return "drop";
	case CORRUPT:
		v->corrupt = true;
		return "corrupt";
	case FLAP:
		lower_port(qp, rules[i].delay_ns);
		return "flap";
	default:
		kill(getpid(), SIGKILL);
		return "die";
	}
}

static void observe_entry(struct dg_nic_qp *qp, const struct nic_entry *e, bool is_valid,
			  struct nic_verdict *v)
{
	const char *fault = is_valid ? inject(qp, op_of(e->opcode), qp->nic->wqe.total, v) : NULL;
	if (!v->syndrome)
		hold(qp, v);
	if (traced == LINES)
		dg_mlx5_trace_entry(qp, e, is_valid, fault);
}

static void receive(struct dg_nic_qp *qp, const struct nic_message *m, struct nic_verdict *v)
{
	if (!m->syndrome)
		inject(qp, OP_RECEIVE, m->bytes, v);
}

static void observe_end(struct dg_nic_qp *qp, const struct nic_entry *e, uint8_t syndrome)
{
	if (!syndrome)
		dg_mlx5_count_entry(qp, e);
	if (traced == PACKETS)
		dg_mlx5_roce_entry(qp, e, syndrome);
}

static void completion(struct dg_nic_qp *qp, const struct nic_cqe *e)
{
	if (traced == LINES)
		dg_mlx5_trace_completion(qp, e);
}

/* Parses rules. Each ends with a semicolon and has all of these numbers, in this order. */
static int read_rules(const char *text)
{
	for (n_rules = 0; *text; n_rules++) {
		int length = 0;
		dg_fault_rule *r = &rules[n_rules];
		if (n_rules == RULES ||
		    sscanf(text,
			   "%" SCNu32 ":%" SCNu32 ":%" SCNd32 ":%" SCNu64 ":%" SCNu32 ":%" SCNu64 ":%" SCNu64
			   ":%" SCNu64 ":%" SCNu64 ":%" SCNu32 ":%" SCNu32 ";%n",
			   &r->action, &r->ops, &r->status, &r->skip, &r->every, &r->count, &r->min_size,
			   &r->max_size, &r->delay_ns, &r->ppm, &r->seed, &length) != 11 ||
		    !length)
			return -EINVAL;
		states[n_rules] = (struct fault_state){.random = r->seed};
		text += length;
	}
	return 0;
}

int dg_mlx5_observe(dg_nic *n)
{
	static const struct nic_observer all = {observe_entry,       receive,
						observe_end,         completion,
						dg_mlx5_count_error, dg_mlx5_count_not_ready};
	static const struct nic_observer counting = {.ended = observe_end,
						     .failed = dg_mlx5_count_error,
						     .not_ready = dg_mlx5_count_not_ready};
	const char *faults = getenv("DGKIT_MLX5_FAULT"), *path = getenv("DGKIT_MLX5_TRACE");
	bool is_capture;
	int rc = faults ? read_rules(faults) : 0;
	if (rc)
		fprintf(stderr, "dgkit mlx5: DGKIT_MLX5_FAULT is '%s': use `dgkit mlx5 run --fault`\n", faults);
	if (path && !rc) {
		rc = dg_mlx5_trace_open(path, &is_capture);
		if (rc)
			fprintf(stderr, "dgkit mlx5: cannot open the trace %s: %s\n", path, strerror(-rc));
		traced = rc ? NOTHING : is_capture ? PACKETS : LINES;
	}
	if (traced == PACKETS)
		dg_mlx5_roce_begin();
	dg_mlx5_counters_open(n);
	if (!rc)
		dg_nic_observe(n, faults || path ? &all : &counting);
	return rc;
}
