// SPDX-License-Identifier: Apache-2.0
/*
 * The exporter's side of the provider verbs: connections of importers, whose key names an export.
 * The connection of an endpoint gets the rights of the export. They end when the region is closed;
 * from then on the adapter itself refuses the importer's operations.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "share/server.h"
#include "verbs_provider.h"

static struct rdma_conn_param accept_parameters(const struct verbs *d,
						const struct verbs_reply *reply,
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

/* Frees a guest, except for its id. */
static void guest_free(struct verbs *d, struct verbs_guest *g)
{
	dg_verbs_link_close(d, &g->link);
	dg_verbs_guest_close(g);
	if (g->peer)
		dg_verbs_peer_leave(d, g->peer);
	free(g);
}

/* Gives the guest its rights and accepts it. */
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
		.registration = r->registration,
	};
	struct rdma_conn_param param = accept_parameters(d, &reply, asked);
	g->peer = dg_verbs_peer_join(d, NULL, q->importer);
	if (!g->peer)
		return -ENOMEM;
	bool endpoint = q->flags & REQUEST_ENDPOINT;
	g->stopped = q->flags & REQUEST_SHARED_GATE;
	int rc = dg_verbs_guest_open(d, g, endpoint ? access : 0, &param, &reply.rkey);
	if (!rc && !endpoint)
		rc = dg_verbs_link_open(d, &g->link, g->qp, g->peer);
	if (rc)
		return rc;
	param.qp_num = g->qp->qp_num;
	return dg_verbs.rdma_accept(g->id, &param) ? -errno : 0;
}

static int check_request(const struct verbs *d, const struct rdma_cm_id *id,
			 const struct rdma_conn_param *asked, struct verbs_request *q)
{
	if (!asked->private_data || asked->private_data_len < sizeof *q)
		return -EBADMSG;
	memcpy(q, asked->private_data, sizeof *q);
	if (q->magic != VERBS_MAGIC)
		return -EBADMSG;
	if (q->version != VERBS_VERSION)
		return -EPROTONOSUPPORT;
	if (!q->importer)
		return -EBADMSG;
	if (d->n_guests >= VERBS_MAX_GUESTS)
		return -EMFILE;
	return id->verbs == d->context ? 0 : -EXDEV;
}

static int serve_request(struct verbs *d, struct rdma_cm_id *id,
			 const struct rdma_conn_param *asked)
{
	struct verbs_request q;
	struct dg_region *r;
	uint32_t access;
	int rc = check_request(d, id, asked, &q);
	if (!rc)
		rc = dg_share_enter(q.key, d->dev, &r, &access);
	if (rc)
		return rc;
	/* The region stays open, and its memory mapped, until life_leave(). unmap(), which
	 * withdraws the memory from the guests, comes after that. */
	struct verbs_guest *g = calloc(1, sizeof *g);
	rc = g ? 0 : -ENOMEM;
	if (g) {
		g->id = id;
		g->region = r;
		g->link.guest = g;
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
		guest_free(d, g);
	return rc;
}

void dg_verbs_serve(struct verbs *d, struct rdma_cm_id *id, const struct rdma_conn_param *asked)
{
	int rc = serve_request(d, id, asked);
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
		dg_verbs_id_free(d, id);
		pthread_cond_broadcast(&d->changed);
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

uint32_t dg_verbs_importers(void *state, struct dg_region *r)
{
	struct verbs *d = state;
	uint32_t n = 0;
	pthread_mutex_lock(&d->lock);
	for (const struct verbs_guest *g = d->guests; g; g = g->next)
		n += g->region == r && g->link.qp;
	pthread_mutex_unlock(&d->lock);
	return n;
}

void dg_verbs_rights_take(struct verbs *d, const struct dg_region *r)
{
	/* The connections stay until their importers end them, so that operations that these still
	 * post fail with an access error instead of a time-out. */
	for (struct verbs_guest *g = d->guests; g; g = g->next) {
		if (g->region != r)
			continue;
		dg_verbs_guest_rights_take(g);
		g->stopped = true;
	}
}

void dg_verbs_guests_forget(struct verbs *d, struct dg_region *r)
{
	pthread_mutex_lock(&d->lock);
	dg_verbs_rights_take(d, r);
	for (struct verbs_guest *g = d->guests; g; g = g->next)
		if (g->region == r)
			g->region = NULL;
	pthread_mutex_unlock(&d->lock);
}

int dg_verbs_listen(struct verbs *d)
{
	if (dg_verbs.rdma_listen(d->listener, VERBS_BACKLOG))
		return dg_fail_errno("cannot listen for RDMA connections on %s", d->name);
	/* sin_port and sin6_port have the same offset. */
	((struct sockaddr_in *)&d->address)->sin_port = dg_verbs.rdma_get_src_port(d->listener);
	return 0;
}
