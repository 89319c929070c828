/* SPDX-License-Identifier: Apache-2.0 */
/* What an exporter's answer to an import makes of a region. */
#ifndef DG_ANSWER_H
#define DG_ANSWER_H

#include "share/server.h"
#include "share/mapping.h"

/* Who answered: its process, its control memory, and those of its memfds that are mapped here. */
struct exporter {
	pid_t pid;
	char *control;
	struct dg_mapping **mappings;
};

/* Fills *hot, and r->mapping or r->mapped, but for what r->from opens. Under the peer lock. */
int dg_answer_take(struct dg_region *r, const struct exporter *e, const struct door_answer *a,
		   const int fds[2], int n_fds, struct dg_hot *hot);
/* The rest where r->from is the provider's own export: this opens it. */
int dg_answer_open(struct dg_region *r, const struct door_answer *a, struct dg_hot *hot);

#endif
