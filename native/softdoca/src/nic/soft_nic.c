// SPDX-License-Identifier: Apache-2.0
/*
 * The software NIC of this process: one, opened by its first user and closed with the last.
 *
 * Lock: `lock` guards all variables. A forked child has no thread of its parent's NIC, so it opens
 * its own.
 */
#include "soft_nic.h"

#include <unistd.h>

#include "gpu/gpu.h"
#include "share/server.h"

#define SPIN_NS  200000u
#define CLOSE_NS 2000000000u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static dg_device *device;
static dg_nic *nic;
static uint32_t users;

const struct nic_functions softdoca_nic = {
	.cq_open = dg_nic_cq_open,
	.cq_number = dg_nic_cq_number,
	.cq_close = dg_nic_cq_close,
	.qp_open = dg_nic_qp_open,
	.qp_modify = dg_nic_qp_modify,
	.qp_set_doorbell = dg_nic_qp_set_doorbell,
	.qp_info_get = dg_nic_qp_info_get,
	.qp_close = dg_nic_qp_close,
	.qp_lay_out = dg_nic_qp_lay_out,
};

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	device = NULL;
	nic = NULL;
	users = 0;
	pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
	dg_fork_watch();
	pthread_atfork(before_fork, in_parent, in_child);
}

void softdoca_nic_watch_forks(void)
{
	pthread_once(&once, watch_forks);
}

static int open_nic(void)
{
	int gpu = gpu_for_nic();
	dg_device_config cfg = {
		.spin_ns = SPIN_NS, .shared = 1, .gpu = gpu < 0 ? 0 : (uint32_t)gpu};
	TRY(dg_device_open(gpu < 0 ? "soft" : "cuda", &cfg, &device));
	int rc = dg_nic_open(device, SPIN_NS, &nic);
	if (rc) {
		dg_device_close(device, CLOSE_NS);
		dg_device_free(device);
		device = NULL;
	}
	return rc;
}

doca_error_t softdoca_nic_take(dg_nic **out)
{
	softdoca_nic_watch_forks();
	pthread_mutex_lock(&lock);
	int rc = nic ? 0 : open_nic();
	if (!rc) {
		users++;
		*out = nic;
	}
	pthread_mutex_unlock(&lock);
	return rc ? softdoca_failed(__func__, rc) : DOCA_SUCCESS;
}

void softdoca_nic_drop(void)
{
	pthread_mutex_lock(&lock);
	/* There are no users in a forked child that drops a NIC that its parent has taken. */
	if (users && !--users) {
		dg_nic_close(nic);
		dg_device_close(device, CLOSE_NS);
		dg_device_free(device);
		nic = NULL;
		device = NULL;
	}
	pthread_mutex_unlock(&lock);
}

dg_device *nic_device(void)
{
	pthread_mutex_lock(&lock);
	dg_device *open = device;
	pthread_mutex_unlock(&lock);
	return open;
}
