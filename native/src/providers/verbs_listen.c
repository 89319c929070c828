// SPDX-License-Identifier: Apache-2.0
/*
 * The exporter's side of the provider verbs: connections of importers, and their rights.
 *
 * Each lane gets a separate protection domain and registration, with the access of the export that
 * its key names. An rkey opens nothing to another connection, and the registration ends when
 * the region is closed: from then on the adapter itself refuses the importer's operations.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "share/server.h"
#include "verbs.h"

static struct rdma_conn_param answer(const struct verbs *d, const struct verbs_reply *reply,
				     const struct rdma_conn_param *asked)
{
	return (struct rdma_conn_param){
		.private_data = reply,
		.private_data_len = sizeof *reply,
		.responder_resources = asked->responder_resources < d->max_reads
					       ? asked->responder_resources
					       : (uint8_t)d->max_reads,
		.initiator_depth = asked->initiator_depth < d->max_reads
					   ? asked->initiator_depth
					   : (uint8_t)d->max_reads,
		.rnr_retry_count = 7,
	};
}

/* Frees a guest but for its id. */
static void rights_free(struct verbs_guest *g)
{
	/* The registration first: the adapter may still serve the importer. */
	if (g->mr)
		dg_verbs.ibv_dereg_mr(g->mr);
	if (g->id->qp)
		dg_verbs.rdma_destroy_qp(g->id);
	if (g->pd)
		dg_verbs.ibv_dealloc_pd(g->pd);
	free(g);
}

static void guest_free(struct verbs *d, struct verbs_guest *g)
{
	struct rdma_cm_id *id = g->id;
	rights_free(g);
	dg_verbs_id_free(d, id);
}

/* Registers the region's memory for this guest alone. */
static int grant(const struct verbs *d, struct verbs_guest *g, const struct dg_region *r,
		 uint32_t access)
{
	int flags = 0;
	if (access & DG_ACCESS_READ)
		flags |= IBV_ACCESS_REMOTE_READ;
	if (access & DG_ACCESS_WRITE)
		flags |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
	if (d->atomics && access == (DG_ACCESS_READ | DG_ACCESS_WRITE))
		flags |= IBV_ACCESS_REMOTE_ATOMIC;
	g->pd = dg_verbs.ibv_alloc_pd(g->id->verbs);
	if (!g->pd)
		return -EMFILE;
	g->mr = dg_verbs.ibv_reg_mr(g->pd, r->memory.addr, r->memory.size, flags);
	return g->mr ? 0 : errno ? -errno : -ENOMEM;
}

/* Fills in the guest's rights and accepts it. */
static int admit(struct verbs *d, struct verbs_guest *g, const struct verbs_request *q,
		 uint32_t access, const struct rdma_conn_param *asked)
{
	struct dg_region *r = g->region;
	struct verbs_reply reply = {
		.magic = VERBS_MAGIC,
		.access = access,
		.address = (uintptr_t)r->memory.addr,
		.size = r->memory.size,
		.atomics = d->atomics,
	};
	struct ibv_qp_init_attr qp = {
		.send_cq = d->idle_cq,
		.recv_cq = d->idle_cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	int rc = q->lane ? grant(d, g, r, access) : 0;
	if (!rc && dg_verbs.rdma_create_qp(g->id, g->pd ? g->pd : d->pd, &qp))
		rc = -errno;
	if (rc)
		return rc;
	reply.rkey = g->mr ? g->mr->rkey : 0;
	struct rdma_conn_param param = answer(d, &reply, asked);
	return dg_verbs.rdma_accept(g->id, &param) ? -errno : 0;
}

static int check(const struct verbs *d, const struct rdma_cm_id *id,
		 const struct rdma_conn_param *asked, struct verbs_request *q)
{
	if (!asked->private_data || asked->private_data_len < sizeof *q)
		return -EBADMSG;
	memcpy(q, asked->private_data, sizeof *q);
	if (q->magic != VERBS_MAGIC)
		return -EBADMSG;
	if (q->version != VERBS_VERSION)
		return -EPROTONOSUPPORT;
	if (d->n_guests >= VERBS_MAX_GUESTS)
		return -EMFILE;
	return id->verbs == d->context ? 0 : -EXDEV;
}

static int serve(struct verbs *d, struct rdma_cm_id *id, const struct rdma_conn_param *asked)
{
	struct verbs_request q;
	struct dg_region *r;
	uint32_t access;
	int rc = check(d, id, asked, &q);
	if (!rc)
		rc = dg_share_enter(q.key, d->dev, &r, &access);
	if (rc)
		return rc;
	/* The region stays open, and its memory mapped, until life_leave(). Its unmap(), which
	 * takes the memory from its guests, comes after that. */
	struct verbs_guest *g = calloc(1, sizeof *g);
	rc = g ? 0 : -ENOMEM;
	if (g) {
		g->id = id;
		g->region = r;
		rc = admit(d, g, &q, access, asked);
	}
	life_leave(&r->life);
	if (!rc) {
		id->context = NULL;
		g->next = d->guests;
		d->guests = g;
		d->n_guests++;
		return 0;
	}
	if (g)
		rights_free(g);
	return rc;
}

void dg_verbs_serve(struct verbs *d, struct rdma_cm_id *id, const struct rdma_conn_param *asked)
{
	int rc = serve(d, id, asked);
	if (!rc)
		return;
	const struct verbs_reply refusal = {.magic = VERBS_MAGIC, .error = (uint32_t)-rc};
	dg_verbs.rdma_reject(id, &refusal, sizeof refusal);
	dg_verbs.rdma_destroy_id(id);
}

void dg_verbs_guest_left(struct verbs *d, struct rdma_cm_id *id)
{
	for (struct verbs_guest **at = &d->guests; *at; at = &(*at)->next) {
		struct verbs_guest *g = *at;
		if (g->id != id)
			continue;
		*at = g->next;
		d->n_guests--;
		guest_free(d, g);
		return;
	}
}

void dg_verbs_guests_free(struct verbs *d)
{
	while (d->guests) {
		dg_verbs_disconnect(d, d->guests->id);
		dg_verbs_guest_left(d, d->guests->id);
	}
}

void dg_verbs_guests_revoke(struct verbs *d, struct dg_region *r)
{
	pthread_mutex_lock(&d->lock);
	/* The connection stays until the importer ends it, so that what it still posts is answered
	 * with an access error and not with silence. */
	for (struct verbs_guest *g = d->guests; g; g = g->next) {
		if (g->region != r)
			continue;
		if (g->mr)
			dg_verbs.ibv_dereg_mr(g->mr);
		g->mr = NULL;
		g->region = NULL;
	}
	pthread_mutex_unlock(&d->lock);
}

int dg_verbs_listen(struct verbs *d)
{
	if (dg_verbs.rdma_listen(d->listener, VERBS_BACKLOG))
		return dg_fail_errno("cannot listen for RDMA connections on %s", d->name);
	/* sin_port and sin6_port are at the same place. */
	((struct sockaddr_in *)&d->address)->sin_port = dg_verbs.rdma_get_src_port(d->listener);
	return 0;
}
