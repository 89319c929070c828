// SPDX-License-Identifier: Apache-2.0
/*
 * The port of a device of the provider verbs: whether it has a link, and which messages must not be
 * sent while it has none.
 *
 * Soft-RoCE of Linux 6.1, in the testbed's DPU guest, receives no more connection requests once a
 * message of its connection manager found no route. So while the port of such a device is down,
 * connections are ended through their queue pairs only. Destroying an id sends a message, so it is
 * postponed until the port is active again.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "verbs_provider.h"

enum { LOOK_MS = 100 }; /* interval of checking the port while ids wait for it */

static char waiting; /* its address is the context of ids that wait */

static bool is_active(struct ibv_context *context, uint8_t number)
{
	struct ibv_port_attr port = {0};
	return !dg_verbs.ibv_query_port(context, number, &port) && port.state == IBV_PORT_ACTIVE;
}

bool dg_verbs_port_active(const struct verbs *d)
{
	return is_active(d->context, d->port);
}

bool dg_verbs_find_down(const char *wanted, char *out, size_t size)
{
	int n = 0;
	struct ibv_context **all = dg_verbs.rdma_get_devices(&n);
	bool found = false;
	for (int i = 0; all && i < n && !found; i++) {
		const char *name = dg_verbs.ibv_get_device_name(all[i]->device);
		found = (!wanted || !strcmp(name, wanted)) && !is_active(all[i], 1);
		if (found)
			snprintf(out, size, "%s", name);
	}
	if (all)
		dg_verbs.rdma_free_devices(all);
	return found;
}

int dg_verbs_no_link(const char *device)
{
	return dg_fail(DG_REASON_RDMA_DEVICE,
		       "the port of the RDMA device %s has no link: check its cable and the "
		       "network interface (rdma link; ip link set INTERFACE up)",
		       device);
}

int dg_verbs_check_port(const struct verbs *d)
{
	if (dg_verbs_removed(d))
		return dg_fail(
			DG_REASON_RDMA_DEVICE,
			"the RDMA device %s was removed: close this device, and open another "
			"one when it is back (rdma link)",
			d->name);
	return dg_verbs_port_active(d) ? 0 : dg_verbs_no_link(d->name);
}

void dg_verbs_disconnect(const struct verbs *d, struct rdma_cm_id *id)
{
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	if (!d->software || dg_verbs_port_active(d))
		dg_verbs.rdma_disconnect(id);
	else if (id->qp)
		dg_verbs.ibv_modify_qp(id->qp, &error, IBV_QP_STATE);
}

void dg_verbs_id_free(struct verbs *d, struct rdma_cm_id *id)
{
	struct rdma_cm_id **more = NULL;
	if (d->software && !dg_verbs_port_active(d))
		more = realloc(d->waiting, (d->n_waiting + 1) * sizeof *more);
	if (!more) {
		dg_verbs.rdma_destroy_id(id);
		return;
	}
	id->context = &waiting;
	d->waiting = more;
	d->waiting[d->n_waiting++] = id;
}

bool dg_verbs_id_waits(const struct rdma_cm_id *id)
{
	return id->context == &waiting;
}

void dg_verbs_ids_free(struct verbs *d)
{
	while (d->n_waiting)
		dg_verbs.rdma_destroy_id(d->waiting[--d->n_waiting]);
	free(d->waiting);
	d->waiting = NULL;
}

int dg_verbs_look_at_port(struct verbs *d)
{
	if (d->n_waiting && !dg_verbs_port_active(d))
		return LOOK_MS;
	dg_verbs_ids_free(d);
	return -1;
}
