/* SPDX-License-Identifier: Apache-2.0 */
/* Which operations a fault rule (dg_fault_rule) acts on: for the provider `fault`, and the adapter of mlx5. */
#ifndef DG_FAULT_RULE_H
#define DG_FAULT_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "dgkit.h"

/* How often a rule matched and acted. random: its seed at first. */
struct fault_state {
	uint64_t met, fired, random;
};

static inline uint64_t fault_random(uint64_t *state)
{
	/* splitmix64 (Steele, Lea, Flood 2014): any seed is valid, including 0. */
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* Counts an operation, and returns whether the rule acts on it. op: a bit of dg_fault_rule.ops. */
static inline bool fault_rule_acts(const dg_fault_rule *r, struct fault_state *s, uint32_t op, uint64_t size)
{
	if (!(r->ops & op) || size < r->min_size || size > r->max_size)
		return false;
	const uint64_t met = s->met++;
	if (met < r->skip || (met - r->skip) % (r->every ? r->every : 1))
		return false;
	if ((r->count && s->fired >= r->count) || fault_random(&s->random) % 1000000 >= r->ppm)
		return false;
	s->fired++;
	return true;
}

#endif
