/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ended operations of a queue that are not published yet, for providers that learn of completions
 * by polling. Those found in one poll became available together: they share a time stamp, and all
 * of them are as late as the first one.
 */
#ifndef DG_ENDED_H
#define DG_ENDED_H

#include "clock.h"
#include "region.h"
#include "ring.h"

enum {
	STAMP_GROUP = 16, /* completions that share a stamp */
};

struct ended {
	struct dg_gates gates;
	uint32_t n, done[STAMP_GROUP];
	uint64_t last_poll_ns;
	bool first; /* no stamp of this poll yet: the next one is new */
	bool late; /* the stamps of this poll are late */
};

static inline void ended_publish(struct ended *e, struct dg_pipe *p)
{
	/* Leave the gates first: a caller that has seen the completion may close the region without
	 * waiting. */
	gates_flush(&e->gates);
	if (!e->n)
		return;
	uint64_t now = now_ns();
	if (e->first)
		e->late = now - e->last_poll_ns > LATE_NS;
	e->first = false;
	e->last_poll_ns = now;
	for (uint32_t i = 0; e->late && i < e->n; i++)
		e->done[i] |= CQE_LATE;
	cq_publish(p, e->done, e->n, now);
	e->n = 0;
}

static inline void ended_add(struct ended *e, struct dg_pipe *p, uint32_t slot, int status)
{
	e->done[e->n++] = slot_status(slot, status);
	if (e->n == STAMP_GROUP)
		ended_publish(e, p);
}

/* Called before operations are submitted: operations that end during the submission were not in
 * flight. If nothing was in flight, the post counts as the last poll. */
static inline void ended_before_submit(struct ended *e, const struct dg_pipe *p, bool in_flight)
{
	e->first = e->late = false;
	if (!in_flight && p->posted_ns > e->last_poll_ns)
		e->last_poll_ns = p->posted_ns;
}

/* Operations that the following poll finds ended share a new stamp. */
static inline void ended_before_poll(struct ended *e)
{
	e->first = true;
}

static inline void ended_after_poll(struct ended *e, struct dg_pipe *p)
{
	ended_publish(e, p);
	if (e->first)
		e->last_poll_ns = now_ns();
}

#endif
