// SPDX-License-Identifier: Apache-2.0
/*
 * Provider fault: wraps another provider and, according to rules, makes operations fail, start
 * late, run out of order, or lose their completion. An error does not overtake the operations
 * before it, unless a rule delays them. It has no thread: whenever the caller posts, polls or
 * waits, it passes operations from the queue's pipe to an inner pipe, and completions back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "clock.h"
#include "cpu_copy.h"
#include "error.h"
#include "fault_rule.h"
#include "provider.h"
#include "provider_table.h"
#include "region.h"
#include "share/server.h"

/* How long a reordered operation without a delay waits for another one to overtake it. */
#define REORDER_WAIT_NS 1000000u

struct fault {
	const struct dg_ops *inner;
	void *inner_state;
	uint32_t n_rules;
	dg_fault_rule rules[];
};

struct delayed {
	struct dg_op op;
	uint64_t due_ns;
	bool swap; /* starts as soon as another operation has overtaken it */
};

struct failed {
	uint32_t slot, status;
	uint32_t after; /* forwarded operations that complete before it */
};

/* One queue: the inner pipe, the delayed operations, the errors that wait for their turn, and how
 * often each rule matched. */
struct wrap {
	struct fault *fault;
	struct dg_pipe inner;
	int timer_fd, epoll_fd;
	uint32_t n_delayed, cap;
	/* Operations that were forwarded to the inner pipe, and came back; a chain is one. */
	uint32_t forwarded, returned;
	uint32_t failed_head, failed_tail;
	struct delayed *delayed;
	struct failed *failed; /* a ring of cap, in the order of posting */
	bool *lose; /* by slot: discard the completion */
	struct fault_state rule[];
};

static const dg_fault_rule *find_rule(struct wrap *w, const struct dg_op *op)
{
	for (uint32_t i = 0; i < w->fault->n_rules; i++) {
		const dg_fault_rule *r = &w->fault->rules[i];
		if (fault_rule_acts(r, &w->rule[i], 1u << op->opcode, op->size * op->rows))
			return r;
	}
	return NULL;
}

static void complete_slot(struct dg_pipe *p, uint32_t slot, uint32_t status, uint64_t stamp_ns)
{
	uint32_t done = slot << 8 |
			(status & 0xff); /* with the inner provider's CQE_SHARED, CQE_LATE and CQE_KERNEL */
	cq_publish(p, &done, 1, stamp_ns);
}

static void forward_op(struct dg_device *dev, struct wrap *w, const struct dg_op *op)
{
	w->forwarded += !(op->flags & DG_CHAIN);
	sq_put(&w->inner, op, 1);
	w->fault->inner->doorbell(dev, &w->inner);
}

static void delay_op(struct wrap *w, const struct dg_op *op, uint64_t due_ns, bool swap)
{
	struct delayed *h = &w->delayed[w->n_delayed++];
	memcpy(&h->op, op, offsetof(struct dg_op, seq));
	h->due_ns = due_ns;
	h->swap = swap;
}

/* Forwards the delayed operations that are due, in their order; with `after`, also those that
 * waited for another operation to overtake them. */
static void release(struct dg_device *dev, struct wrap *w, uint64_t now, bool after)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < w->n_delayed; i++) {
		struct delayed *h = &w->delayed[i];
		if (now >= h->due_ns || (after && h->swap))
			forward_op(dev, w, &h->op);
		else
			w->delayed[kept++] = *h;
	}
	w->n_delayed = kept;
}

/* Completes the errors whose turn has come. */
static void fail_due(struct dg_pipe *p, struct wrap *w)
{
	for (; w->failed_head != w->failed_tail; w->failed_head++) {
		const struct failed *f = &w->failed[w->failed_head % w->cap];
		if ((int32_t)(w->returned - f->after) < 0)
			break;
		complete_slot(p, f->slot, f->status, now_ns());
	}
}

static void fail_op(struct dg_pipe *p, struct wrap *w, const struct dg_op *op, uint32_t status)
{
	w->failed[w->failed_tail++ % w->cap] = (struct failed){op->slot, status, w->forwarded};
	dg_op_leave(op);
	fail_due(p, w);
}

static void apply_rules(struct dg_device *dev, struct dg_pipe *p, struct wrap *w,
			const struct dg_op *op)
{
	/* A chain is one operation: its requests are forwarded unchanged, which keeps their
	 * order. */
	bool in_chain = p->moved || (op->flags & DG_CHAIN);
	const dg_fault_rule *r = in_chain ? NULL : find_rule(w, op);
	p->moved = op->flags & DG_CHAIN;
	if (!r || r->action == DG_FAULT_LOSE) {
		w->lose[op->slot] = r != NULL;
		forward_op(dev, w, op);
		/* Never between the requests of a chain, where the inner provider would treat them
		 * as part of it. */
		if (w->n_delayed && !(op->flags & DG_CHAIN))
			release(dev, w, 0, true);
	} else if (r->action == DG_FAULT_ERROR) {
		fail_op(p, w, op, (uint32_t)r->status);
	} else {
		w->lose[op->slot] = false;
		bool swap = r->action == DG_FAULT_REORDER;
		delay_op(w, op,
			 add_sat(now_ns(), swap && !r->delay_ns ? REORDER_WAIT_NS : r->delay_ns),
			 swap);
	}
}

static void collect_inner(struct dg_pipe *p, struct wrap *w)
{
	for (struct dg_cqe *e; (e = cq_peek(&w->inner)); w->inner.cq_head++) {
		uint32_t slot = e->slot_status >> 8;
		w->returned++;
		if (!w->lose[slot])
			complete_slot(p, slot, e->slot_status, e->complete_ns);
		fail_due(p, w);
	}
}

/* Whether the chain at sq_head contains a fence. If so, the whole chain waits, so that nothing
 * comes between its requests. The chain is completely in the ring, because this thread published
 * it. */
static bool fenced(struct dg_pipe *p)
{
	uint32_t i = p->sq_head;
	while (!(sq_entry(p, i)->flags & DG_FENCE) && (sq_entry(p, i)->flags & DG_CHAIN))
		i++;
	return sq_entry(p, i)->flags & DG_FENCE;
}

static void fault_poll(struct dg_device *dev, struct dg_pipe *p)
{
	struct wrap *w = p->provider;
	if (!w)
		return; /* detached */
	w->inner.posted_ns = p->posted_ns;
	if (w->fault->inner->poll)
		w->fault->inner->poll(dev, &w->inner);
	collect_inner(p, w);
	if (w->n_delayed)
		release(dev, w, now_ns(), false);
	for (struct dg_op *op; (op = sq_peek(p)); p->sq_head++) {
		if (!p->moved && (w->n_delayed || w->forwarded != w->returned) && fenced(p))
			break;
		apply_rules(dev, p, w, op);
	}
	collect_inner(p, w);
}

static void fault_doorbell(struct dg_device *dev, struct dg_pipe *p)
{
	fault_poll(dev, p);
}

static int fault_arm(struct dg_device *dev, struct dg_pipe *p)
{
	struct wrap *w = p->provider;
	struct itimerspec timer = {0};
	fault_poll(dev, p);
	if (cq_peek(p))
		return 0;
	uint64_t due = UINT64_MAX;
	for (uint32_t i = 0; i < w->n_delayed; i++)
		if (w->delayed[i].due_ns < due)
			due = w->delayed[i].due_ns;
	if (due != UINT64_MAX)
		timer.it_value =
			(struct timespec){(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
	timerfd_settime(w->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
	return w->fault->inner->arm ? w->fault->inner->arm(dev, &w->inner) : dg_pipe_arm(&w->inner);
}

static bool fault_separate(struct dg_device *dev, struct dg_pipe *p)
{
	struct wrap *w = p->provider;
	const struct dg_ops *inner = w->fault->inner;
	return inner->separate && inner->separate(dev, &w->inner);
}

static void fault_stats(void *state, dg_stats *out)
{
	struct fault *f = state;
	if (f->inner->stats)
		f->inner->stats(f->inner_state, out);
}

static int check_rule(const dg_fault_rule *r)
{
	if (r->action > DG_FAULT_LOSE)
		return dg_fail(EINVAL, "fault action %u is unknown; the actions are 0 to %d",
			       r->action, DG_FAULT_LOSE);
	if (r->action == DG_FAULT_ERROR && (r->status <= DG_OK || r->status > DG_IO_FAILED))
		return dg_fail(EINVAL,
			       "a fault rule injects status %d, which is not an error: the errors "
			       "are 1 to %d",
			       r->status, DG_IO_FAILED);
	if (!(r->ops & 15) || r->min_size > r->max_size || r->ppm > 1000000)
		return dg_fail(EINVAL,
			       "a fault rule is invalid: operations %#x (a sum of 1 reads, 2 "
			       "writes, 4 fetch-adds, 8 compare-swaps), sizes %llu to %llu, "
			       "probability %u of 1000000",
			       r->ops, (unsigned long long)r->min_size,
			       (unsigned long long)r->max_size, r->ppm);
	return 0;
}

static int fault_open(struct dg_device *dev, const dg_device_config *cfg, void **state)
{
	const char *over = cfg->over ? cfg->over : "soft";
	const struct dg_ops *inner = dg_ops_find(over);
	int rc = 0;
	if (!inner || inner == &dg_fault_ops)
		return dg_fail(
			DG_REASON_UNKNOWN_PROVIDER,
			"the provider fault cannot wrap '%s': it wraps soft, cuda, verbs, doca "
			"or softdoca",
			over);
	for (uint32_t i = 0; i < cfg->n_rules && !rc; i++)
		rc = check_rule(&cfg->rules[i]);
	if (rc)
		return rc;
	struct fault *f = calloc(1, sizeof *f + sizeof *f->rules * cfg->n_rules);
	if (!f)
		return dg_fail(ENOMEM, "out of memory for %u fault rules", cfg->n_rules);
	f->inner = inner;
	f->n_rules = cfg->n_rules;
	if (cfg->n_rules)
		memcpy(f->rules, cfg->rules, sizeof *f->rules * cfg->n_rules);
	rc = inner->open(dev, cfg, &f->inner_state);
	if (rc) {
		free(f);
		return rc;
	}
	dev->caps.ordered = 0;
	dev->caps.inline_max = 0;
	*state = f;
	return 0;
}

static void fault_close(struct dg_device *dev, void *state)
{
	struct fault *f = state;
	f->inner->close(dev, f->inner_state);
	free(f);
}

static void wrap_free(struct wrap *w)
{
	dg_pipe_close(&w->inner);
	if (w->timer_fd >= 0)
		close(w->timer_fd);
	if (w->epoll_fd >= 0)
		close(w->epoll_fd);
	free(w->delayed);
	free(w->failed);
	free(w->lose);
	free(w);
}

static struct wrap *wrap_new(struct fault *f, uint32_t cap)
{
	size_t size = sizeof(struct wrap) + sizeof(struct fault_state) * f->n_rules;
	struct wrap *w = aligned_alloc(64, (size + 63) / 64 * 64);
	if (!w)
		return NULL;
	memset(w, 0, size);
	w->fault = f;
	w->cap = cap;
	w->inner.event_fd = w->timer_fd = w->epoll_fd = -1;
	w->delayed = calloc(cap, sizeof *w->delayed);
	w->failed = calloc(cap, sizeof *w->failed);
	w->lose = calloc(DG_DEPTH_MAX, sizeof *w->lose);
	for (uint32_t i = 0; i < f->n_rules; i++)
		w->rule[i].random = f->rules[i].seed;
	return w;
}

static int wrap_open(struct wrap *w, struct dg_device *dev)
{
	if (!w->delayed || !w->failed || !w->lose)
		return dg_fail(ENOMEM, "out of memory for a fault queue");
	TRY(dg_pipe_open(&w->inner, w->cap));
	w->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event e = {.events = EPOLLIN};
	if (w->timer_fd < 0 || w->epoll_fd < 0 ||
	    epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->timer_fd, &e))
		return dg_fail_errno("cannot create a fault queue's timer");
	int rc = w->fault->inner->attach(dev, w->fault->inner_state, &w->inner);
	/* Only now, because attach may have replaced wait_fd. */
	if (!rc && epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->inner.wait_fd, &e)) {
		rc = dg_fail_errno("cannot watch the inner queue's fd");
		w->fault->inner->detach(dev, &w->inner);
	}
	return rc;
}

static int fault_attach(struct dg_device *dev, void *state, struct dg_pipe *p)
{
	struct wrap *w = wrap_new(state, p->mask + 1);
	if (!w)
		return dg_fail(ENOMEM, "out of memory for a fault queue");
	int rc = wrap_open(w, dev);
	if (rc) {
		wrap_free(w);
		return rc;
	}
	p->provider = w;
	p->wait_fd = w->epoll_fd;
	return 0;
}

static void fault_detach(struct dg_device *dev, struct dg_pipe *p)
{
	struct wrap *w = p->provider;
	w->fault->inner->detach(dev, &w->inner);
	collect_inner(p, w);
	w->returned = w->forwarded; /* none comes back any more */
	fail_due(p, w);
	for (uint32_t i = 0; i < w->n_delayed; i++) {
		dg_op_leave(&w->delayed[i].op);
		complete_slot(p, w->delayed[i].op.slot, DG_FLUSHED, now_ns());
	}
	for (struct dg_op *op; (op = sq_peek(p)); p->sq_head++) {
		dg_op_leave(op);
		if (!(op->flags & DG_CHAIN))
			complete_slot(p, op->slot, DG_FLUSHED, now_ns());
	}
	p->wait_fd = p->event_fd;
	p->provider = NULL;
	wrap_free(w);
}

static int fault_map(struct dg_device *dev, void *state, struct dg_region *r, const dg_memory *m,
		     struct dg_region_entry *entry)
{
	struct fault *f = state;
	if (!f->inner->map)
		return dg_map_default(dev, m, entry);
	return f->inner->map(dev, f->inner_state, r, m, entry);
}

static void fault_unmap(struct dg_device *dev, void *state, struct dg_region *r)
{
	struct fault *f = state;
	f->inner->unmap(dev, f->inner_state, r);
}

static int fault_export(struct dg_device *dev, void *state, struct dg_region *r, uint32_t access,
			struct dg_descriptor *d)
{
	struct fault *f = state;
	return f->inner->export(dev, f->inner_state, r, access, d);
}

static bool fault_lost(const struct dg_region *r)
{
	const struct fault *f = r->dev->provider;
	return f->inner->lost && f->inner->lost(r);
}

static int fault_revoke(struct dg_device *dev, void *state, struct dg_region *r, uint64_t deadline_ns)
{
	struct fault *f = state;
	return f->inner->revoke ? f->inner->revoke(dev, f->inner_state, r, deadline_ns) : 0;
}

static uint32_t fault_importers(void *state, struct dg_region *r)
{
	struct fault *f = state;
	return f->inner->importers ? f->inner->importers(f->inner_state, r) : dg_share_importers(r);
}

const struct dg_ops dg_fault_ops = {
	.name = "fault",
	.open = fault_open,
	.close = fault_close,
	.attach = fault_attach,
	.detach = fault_detach,
	.doorbell = fault_doorbell,
	.poll = fault_poll,
	.arm = fault_arm,
	.separate = fault_separate,
	.stats = fault_stats,
	.map = fault_map,
	.unmap = fault_unmap,
	.export = fault_export,
	.lost = fault_lost,
	.revoke = fault_revoke,
	.importers = fault_importers,
	.inline_copies = false,
};
