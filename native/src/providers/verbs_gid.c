// SPDX-License-Identifier: Apache-2.0
/*
 * The address of a port, for queue pairs that are connected by hand: its GID and lid. Also checks
 * whether another GID can be reached from the port. On Ethernet (RoCE) a GID is an IPv6 address, or
 * an IPv4 address in the form ::ffff:1.2.3.4.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "error.h"
#include "verbs_provider.h"

enum { LID_MAX = 0xbfff }; /* larger values are multicast addresses */
static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

struct gid_text dg_verbs_gid_text(const uint8_t *gid)
{
	struct gid_text t = {"?"};
	inet_ntop(AF_INET6, gid, t.text, sizeof t.text);
	return t;
}

static void gid_of(const struct sockaddr_storage *address, uint8_t *gid)
{
	if (address->ss_family == AF_INET) {
		memcpy(gid, v4_prefix, sizeof v4_prefix);
		memcpy(gid + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
	} else {
		memcpy(gid, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
	}
}

static struct sockaddr_storage address_of(const uint8_t *gid)
{
	struct sockaddr_storage out = {0};
	if (!memcmp(gid, v4_prefix, sizeof v4_prefix)) {
		out.ss_family = AF_INET;
		memcpy(&((struct sockaddr_in *)&out)->sin_addr, gid + 12, 4);
	} else {
		out.ss_family = AF_INET6;
		memcpy(&((struct sockaddr_in6 *)&out)->sin6_addr, gid, 16);
	}
	((struct sockaddr_in *)&out)->sin_port = htons(4791); /* RoCE v2; any port would do */
	return out;
}

/* Whether the entry of the port's GID table is for RoCE v2: over UDP, so that it can be routed. */
static bool is_v2(const struct verbs *d, int index)
{
	char path[160], type[32] = "";
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%u/gid_attrs/types/%d", d->name,
		 d->port, index);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(type, sizeof type, f))
		type[0] = 0;
	fclose(f);
	return !strncmp(type, "RoCE v2", 7);
}

/* Finds the index of the device's address in the port's GID table. */
static int find_gid(const struct verbs *d, int entries, dg_qp_address *out)
{
	union ibv_gid gid;
	int found = -1;
	bool v2 = false;
	gid_of(&d->address, out->gid);
	for (int i = 0; i < entries && i <= UINT8_MAX && !v2; i++) {
		if (dg_verbs.ibv_query_gid(d->context, d->port, i, &gid) ||
		    memcmp(gid.raw, out->gid, sizeof gid.raw))
			continue;
		v2 = is_v2(d, i);
		found = found < 0 || v2 ? i : found;
	}
	out->gid_index = (uint32_t)found;
	if (found >= 0)
		return 0;
	return dg_fail(
		DG_REASON_RDMA_DEVICE,
		"none of the %d GIDs of port %u of the RDMA device %s is its network address "
		"%s: look at /sys/class/infiniband/%s/ports/%u/gids",
		entries, d->port, d->name, dg_verbs_gid_text(out->gid).text, d->name, d->port);
}

/* Returns the first GID. On InfiniBand the lid is enough within a subnet, and the first GID has the
 * subnet's prefix. */
static int first_gid(const struct verbs *d, uint32_t lid, dg_qp_address *out)
{
	union ibv_gid gid;
	if (!lid)
		return dg_fail(DG_REASON_RDMA_DEVICE,
			       "port %u of the RDMA device %s has no lid: start a subnet manager "
			       "(opensm) in its network",
			       d->port, d->name);
	if (dg_verbs.ibv_query_gid(d->context, d->port, 0, &gid))
		return dg_fail(DG_REASON_RDMA_DEVICE, "port %u of the RDMA device %s has no GID",
			       d->port, d->name);
	memcpy(out->gid, gid.raw, sizeof out->gid);
	out->lid = lid;
	return 0;
}

int dg_verbs_port_address(const struct verbs *d, dg_qp_address *out)
{
	struct ibv_port_attr port = {0};
	TRY(dg_verbs_check_port(d));
	if (dg_verbs.ibv_query_port(d->context, d->port, &port))
		return dg_fail_errno("port %u of the RDMA device %s cannot be read", d->port, d->name);
	*out = (dg_qp_address){
		.port = d->port,
		.mtu = 128u << port.active_mtu,
		.max_reads = d->max_reads,
	};
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET)
		return find_gid(d, port.gid_tbl_len, out);
	return first_gid(d, port.lid, out);
}

static int check_lid(const dg_qp_address *to)
{
	return to->lid && to->lid <= LID_MAX ? 0
					     : dg_fail(EINVAL,
						       "lid is %u; an InfiniBand port has a lid "
						       "from 1 to %u: pass that of "
						       "the other side",
						       to->lid, LID_MAX);
}

int dg_verbs_check_peer(const struct verbs *d, const dg_qp_address *own, const dg_qp_address *to)
{
	static const uint8_t none[16];
	if (own->lid)
		return check_lid(to);
	struct gid_text gid = dg_verbs_gid_text(to->gid), own_gid = dg_verbs_gid_text(own->gid);
	struct sockaddr_storage address = address_of(to->gid), from = address_of(own->gid);
	if (!memcmp(to->gid, none, sizeof none) || to->gid[0] == 0xff)
		return dg_fail(EINVAL, "gid is %s; it must be the address of a single port",
			       gid.text);
	if (address.ss_family != from.ss_family)
		return dg_fail(
			EXDEV,
			"gid %s cannot be reached from %s of %s: one is an IPv4 address, the "
			"other an IPv6 address",
			gid.text, own_gid.text, d->name);
	if (!dg_verbs_has_route(&d->address, &address))
		return dg_fail(EXDEV,
			       "gid %s is not on the network of %s (%s): check the way to it (ip "
			       "route get)",
			       gid.text, d->name, own_gid.text);
	return 0;
}
