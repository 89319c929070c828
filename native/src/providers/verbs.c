// SPDX-License-Identifier: Apache-2.0
/*
 * Provider verbs: an RDMA adapter moves the bytes, with one-sided operations of libibverbs on
 * reliable connections that the RDMA connection manager establishes. It reaches other machines.
 * Callers post and poll in their own threads; one control thread for each device establishes and
 * ends connections.
 */
#include "verbs_provider.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "error.h"
#include "provider_table.h"
#include "share/server.h"
#include "thread.h"

#define MAX_PIECE ((uint64_t)1 << 20) /* bytes of one work request */

/* Counts the RDMA devices. Errors: ENODEV. */
static int any_device(void)
{
	int n = 0;
	TRY(dg_verbs_load());
	struct ibv_device **list = dg_verbs.ibv_get_device_list(&n);
	if (list)
		dg_verbs.ibv_free_device_list(list);
	if (list && n)
		return 0;
	return dg_fail(DG_REASON_RDMA_DEVICE,
		       "there is no RDMA device: check that there is an adapter (lspci), that "
		       "its driver and ib_uverbs are loaded (rdma link), and that this "
		       "user may open /dev/infiniband; without one, Soft-RoCE over a network "
		       "interface will do (rdma link add rxe0 type rxe netdev INTERFACE)");
}

/* librdmacm opens every RDMA device once per process, and the kernel rejects writes of a forked
 * child to files that its parent opened. Errors: ENODEV. */
static int check_process(void)
{
	static atomic_int opened_by;
	int nobody = 0;
	if (atomic_compare_exchange_strong(&opened_by, &nobody, (int)getpid()) ||
	    nobody == (int)getpid())
		return 0;
	return dg_fail(ENODEV, "RDMA was used before fork() and cannot be used in the child: start "
			       "processes with the spawn method (multiprocessing.set_start_method)");
}

/* Whether an address is worth trying: its interface is up, and it is not link-local. */
static bool usable(const struct ifaddrs *a)
{
	if (!a->ifa_addr || !(a->ifa_flags & IFF_UP) || (a->ifa_flags & IFF_LOOPBACK))
		return false;
	if (a->ifa_addr->sa_family == AF_INET)
		return true;
	return a->ifa_addr->sa_family == AF_INET6 &&
	       !IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)a->ifa_addr)->sin6_addr);
}

/* The result of a search for a device. */
struct search {
	const char *wanted; /* name of the device, or NULL */
	char other[64]; /* another device that has an address */
};

/* Binds an id to the address. If the address belongs to an active port of the wanted device, the id
 * becomes d->listener. Returns whether it does. */
static bool try_address(struct verbs *d, struct search *s, struct sockaddr *address)
{
	struct rdma_cm_id *id;
	if (dg_verbs.rdma_create_id(d->channel, &id, NULL, RDMA_PS_TCP))
		return false;
	if (dg_verbs.rdma_bind_addr(id, address) || !id->verbs)
		goto no;
	const char *name = dg_verbs.ibv_get_device_name(id->verbs->device);
	if (s->wanted && strcmp(name, s->wanted)) {
		snprintf(s->other, sizeof s->other, "%s", name);
		goto no;
	}
	d->context = id->verbs;
	d->port = id->port_num;
	if (!dg_verbs_port_active(d))
		goto no;
	snprintf(d->name, sizeof d->name, "%s", name);
	memcpy(&d->address, address,
	       address->sa_family == AF_INET ? sizeof(struct sockaddr_in)
					     : sizeof(struct sockaddr_in6));
	d->listener = id;
	return true;
no:
	dg_verbs.rdma_destroy_id(id);
	return false;
}

static int not_found(const struct search *s)
{
	char down[64];
	if (dg_verbs_find_down(s->wanted, down, sizeof down))
		return dg_verbs_no_link(down);
	if (s->wanted)
		return dg_fail(
			DG_REASON_RDMA_DEVICE,
			"no RDMA device '%s' has a network address%s%s%s: rdma link lists the "
			"devices and their interfaces",
			s->wanted, s->other[0] ? " (" : "", s->other,
			s->other[0] ? " has one)" : "");
	return dg_fail(DG_REASON_RDMA_DEVICE,
		       "no RDMA device has a network address, which RDMA connections need: "
		       "give its interface one (rdma link; ip addr add ADDRESS dev INTERFACE)");
}

/* Finds the device, its first active port and that port's address. IPv4 is preferred. */
static int find_port(struct verbs *d, const char *wanted)
{
	static const int families[] = {AF_INET, AF_INET6};
	struct search s = {.wanted = wanted};
	struct ifaddrs *all;
	TRY(check_process());
	d->channel = dg_verbs.rdma_create_event_channel();
	if (!d->channel)
		return dg_fail(
			DG_REASON_RDMA_DEVICE,
			"the RDMA connection manager cannot be opened (%s): load rdma_ucm, and "
			"let this user open /dev/infiniband/rdma_cm",
			strerror(errno));
	if (getifaddrs(&all))
		return dg_fail_errno("cannot list the network addresses");
	for (int i = 0; i < 2 && !d->listener; i++)
		for (struct ifaddrs *a = all; a && !d->listener; a = a->ifa_next)
			if (usable(a) && a->ifa_addr->sa_family == families[i])
				try_address(d, &s, a->ifa_addr);
	freeifaddrs(all);
	return d->listener ? 0 : not_found(&s);
}

static void close_port(struct verbs *d)
{
	if (d->listener)
		dg_verbs.rdma_destroy_id(d->listener);
	if (d->channel)
		dg_verbs.rdma_destroy_event_channel(d->channel);
}

static int probe_device(bool deep)
{
	struct verbs d = {0};
	int rc = any_device();
	if (rc || !deep)
		return rc;
	rc = find_port(&d, NULL);
	close_port(&d);
	return rc;
}

static uint32_t smaller(uint64_t a, uint64_t b)
{
	return (uint32_t)(a < b ? a : b);
}

/* Whether the device is hardware: a software device has no parent in sysfs. */
static bool is_adapter(const struct verbs *d)
{
	char path[128];
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/device", d->name);
	return !access(path, F_OK);
}

static int read_limits(struct verbs *d)
{
	struct ibv_device_attr a = {0};
	struct ibv_port_attr port = {0};
	int rc = dg_verbs.ibv_query_device(d->context, &a);
	if (!rc)
		rc = dg_verbs.ibv_query_port(d->context, d->port, &port);
	if (rc)
		return dg_fail(EIO, "the limits of the RDMA device %s cannot be read: %s", d->name,
			       strerror(rc > 0 ? rc : errno));
	d->max_message = port.max_msg_sz;
	d->max_piece = smaller(port.max_msg_sz, MAX_PIECE);
	d->max_sge = smaller((uint32_t)(a.max_sge < a.max_sge_rd ? a.max_sge : a.max_sge_rd),
			     VERBS_SGES);
	d->max_wr = smaller((uint32_t)a.max_qp_wr, VERBS_ENDPOINT_WRS);
	d->max_reads = smaller((uint32_t)(a.max_qp_rd_atom < a.max_qp_init_rd_atom
						  ? a.max_qp_rd_atom
						  : a.max_qp_init_rd_atom),
			       16);
	/* The responder's limit of concurrent operations covers reads and atomic operations
	 * alike. */
	d->atomics = d->max_reads && a.atomic_cap >= IBV_ATOMIC_NONE &&
				     a.atomic_cap <= IBV_ATOMIC_GLOB
			     ? (uint32_t)a.atomic_cap
			     : IBV_ATOMIC_NONE;
	/* A peer is given up after 7 time-outs: 0.9 s according to the specification, and 3.8 s for
	 * a device in software, where an emulated machine may stall. So the loss of an idle peer is
	 * detected within 2 s or 5 s, which includes VERBS_PROBE_NS and a tick of the control
	 * thread. */
	d->software = !is_adapter(d);
	d->iwarp = d->context->device->transport_type == IBV_TRANSPORT_IWARP;
	d->windows = (a.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) && !d->iwarp;
	d->ack_timeout = d->software ? 17 : 15;
	if (!d->max_piece || !d->max_sge || !d->max_wr)
		return dg_fail(EOPNOTSUPP, "the RDMA device %s reports a limit of 0 work requests",
			       d->name);
	return 0;
}

static struct ibv_cq *new_cq(const struct verbs *d, int size, struct ibv_comp_channel *channel)
{
	return dg_verbs.ibv_create_cq(d->context, size, NULL, channel, 0);
}

static int make_objects(struct verbs *d)
{
	TRY(read_limits(d));
	if (getrandom(&d->number, sizeof d->number, 0) != sizeof d->number)
		return dg_fail_errno("cannot get a random number");
	d->number |= 1;
	d->pd = dg_verbs.ibv_alloc_pd(d->context);
	d->link_pd = dg_verbs.ibv_alloc_pd(d->context);
	if (!d->pd || !d->link_pd)
		return dg_fail_errno("the RDMA device %s has no more protection domains", d->name);
	d->notice_channel = dg_verbs.ibv_create_comp_channel(d->context);
	if (!d->notice_channel)
		return dg_fail_errno("the RDMA device %s has no more completion channels", d->name);
	d->idle_cq = new_cq(d, 16, NULL);
	/* Room for the probes in flight, and for those of links that ended since the last poll. */
	d->probe_cq = new_cq(d, 2 * VERBS_PROBES, NULL);
	d->notice_cq = new_cq(d, VERBS_NOTICES, d->notice_channel);
	if (!d->idle_cq || !d->probe_cq || !d->notice_cq)
		return dg_fail_errno("the RDMA device %s has no more completion queues", d->name);
	int rc = dg_verbs_listen(d);
	return rc ? rc : dg_verbs_control_start(d);
}

static void set_engine_name(struct dg_device *dev, const struct verbs *d)
{
	snprintf(dev->caps.engine, sizeof dev->caps.engine, "RDMA device %.40s%s", d->name,
		 !d->software ? "" : ", in software: this machine's CPU");
	dev->blob_provider = "verbs";
	dev->registers = true;
	dev->gpu = true;
	dev->on_demand = true;
	dev->connects = true;
	dev->caps.max_size = INT64_MAX;
	dev->caps.inline_max = 0;
	dev->caps.spin_ns = 0;
	dev->caps.ordered = 0;
	dev->caps.atomics = d->atomics;
	dev->caps.max_queues = VERBS_MAX_QUEUES;
}

static void free_device(struct verbs *d)
{
	dg_verbs_guests_free(d);
	dg_verbs_ids_free(d);
	close_port(d);
	if (d->notice_cq)
		dg_verbs.ibv_destroy_cq(d->notice_cq);
	if (d->notice_channel)
		dg_verbs.ibv_destroy_comp_channel(d->notice_channel);
	if (d->probe_cq)
		dg_verbs.ibv_destroy_cq(d->probe_cq);
	if (d->idle_cq)
		dg_verbs.ibv_destroy_cq(d->idle_cq);
	if (d->link_pd)
		dg_verbs.ibv_dealloc_pd(d->link_pd);
	if (d->pd)
		dg_verbs.ibv_dealloc_pd(d->pd);
	if (d->wake_fd >= 0)
		close(d->wake_fd);
	pthread_cond_destroy(&d->changed);
	pthread_mutex_destroy(&d->lock);
	pthread_mutex_destroy(&d->queues.lock);
	free(d);
}

static int open_device(struct dg_device *dev, const dg_device_config *cfg, void **state)
{
	TRY(any_device());
	struct verbs *d = calloc(1, sizeof *d);
	if (!d)
		return dg_fail(ENOMEM, "out of memory for a device");
	d->dev = dev;
	d->wake_fd = -1;
	pthread_mutex_init(&d->lock, NULL);
	pthread_mutex_init(&d->queues.lock, NULL);
	dg_cond_init(&d->changed);
	int rc = find_port(d, cfg->rdma);
	if (!rc)
		rc = dg_fork_watch_last();
	if (!rc)
		rc = make_objects(d);
	if (rc) {
		free_device(d);
		return rc;
	}
	set_engine_name(dev, d);
	*state = d;
	return 0;
}

static void close_device(struct dg_device *dev, void *state)
{
	struct verbs *d = state;
	(void)dev;
	dg_verbs_control_stop(d);
	free_device(d);
}

const struct dg_ops dg_verbs_ops = {
	.name = "verbs",
	.probe = probe_device,
	.open = open_device,
	.close = close_device,
	.attach = dg_verbs_attach,
	.detach = dg_verbs_detach,
	.doorbell = dg_verbs_doorbell,
	.poll = dg_verbs_poll,
	.arm = dg_verbs_arm,
	.map = dg_verbs_map,
	.unmap = dg_verbs_unmap,
	.revoke = dg_verbs_revoke,
	.importers = dg_verbs_importers,
	.export = dg_verbs_export,
	.lost = dg_verbs_lost,
	.direct = dg_verbs_direct,
	.bare = dg_verbs_bare,
	.qp = &dg_verbs_qp_ops,
	.inline_copies = false,
};
