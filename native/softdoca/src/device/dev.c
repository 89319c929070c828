// SPDX-License-Identifier: Apache-2.0
/*
 * Lists of devices and representors, and open devices and representors. devices.c reads which
 * functions exist.
 *
 * Lock: `lock` guards the list of opened devices, and each device's `opened` and `gpu`.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "nic/soft_nic.h"
#include "share/server.h"
#include "providers/cuda_pointer.h"

#define CLOSE_NS 5000000000u /* how long doca_dev_close waits for copies in flight */

/* A list follows its header; the program gets a pointer to the first entry. */
struct list {
	_Alignas(64) struct object o;
	enum object_kind kind;
	uint32_t n;
	_Alignas(64) void *entry[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct doca_dev *opened;

FORK_HANDLERS(lock)

/* Before a fork, the handlers registered last run first. So locks are taken in their usual order:
 * this lock, then those of soft_nic.c, of object.c and of the core, which are called with this lock held. */
static void watch_forks(void)
{
	dg_fork_watch();
	softdoca_object_room(sizeof(struct doca_dev), 1);
	softdoca_nic_watch_forks();
	pthread_atfork(before_fork, after_fork, after_fork);
}

static void lock_devices(void)
{
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&lock);
}

/* ---- lists ---- */

static struct list *list_of(const void *entries)
{
	struct list *l = (struct list *)((uintptr_t)entries - offsetof(struct list, entry));
	return object_is(l, OBJECT_LIST) ? l : NULL;
}

static void list_free(struct list *l)
{
	for (uint32_t i = 0; i < l->n; i++)
		softdoca_object_free(l->entry[i]);
	softdoca_object_free(l);
}

/* Returns a list of n entries of a kind, each of `size` bytes; NULL if out of memory. */
static struct list *list_new(enum object_kind kind, size_t size, uint32_t n)
{
	struct list *l = softdoca_object_new(OBJECT_LIST, sizeof *l + n * sizeof l->entry[0]);
	if (!l)
		return NULL;
	l->kind = kind;
	for (; l->n < n; l->n++)
		if (!(l->entry[l->n] = softdoca_object_new(kind, size))) {
			list_free(l);
			return NULL;
		}
	return l;
}

static doca_error_t list_destroy(void *entries, enum object_kind kind)
{
	struct list *l = list_of(entries);
	if (!l || l->kind != kind)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a list of this kind", entries);
	list_free(l);
	return DOCA_SUCCESS;
}

/* DOCA API reference, Device: INVALID_VALUE, NO_MEMORY, NOT_FOUND. BAD_CONFIG is softdoca's own. */
doca_error_t doca_devinfo_create_list(struct doca_devinfo ***dev_list, uint32_t *nb_devs)
{
	struct functions all;
	uint32_t indices[FUNCTIONS_MAX], n = 0;
	if (!dev_list || !nb_devs)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "dev_list or nb_devs is NULL");
	TRY(softdoca_functions(&all));
	softdoca_list_adapters(&all);
	for (uint32_t i = 0; i < all.n; i++)
		if (all.f[i].side & all.side)
			indices[n++] = i;
	struct list *l = list_new(OBJECT_DEVINFO, sizeof(struct doca_devinfo), n);
	if (!l)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a list of %u devices", n);
	for (uint32_t i = 0; i < n; i++)
		((struct doca_devinfo *)l->entry[i])->f = all.f[indices[i]];
	*dev_list = (struct doca_devinfo **)l->entry;
	*nb_devs = n;
	return DOCA_SUCCESS;
}

doca_error_t doca_devinfo_destroy_list(struct doca_devinfo **dev_list)
{
	return list_destroy(dev_list, OBJECT_DEVINFO);
}

/* DOCA API reference, Device: NOT_SUPPORTED for a device without representors, as on a host. All
 * representors of softdoca are NET. */
doca_error_t doca_devinfo_rep_create_list(struct doca_dev *dev, int filter,
					  struct doca_devinfo_rep ***dev_list_rep,
					  uint32_t *nb_devs_rep)
{
	const int net = DOCA_DEVINFO_REP_FILTER_NET, known = net | DOCA_DEVINFO_REP_FILTER_EMULATED;
	struct functions all;
	uint32_t indices[FUNCTIONS_MAX], n = 0;
	if (!object_is(dev, OBJECT_DEV) || !dev_list_rep || !nb_devs_rep)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%p is not a device, or an output pointer is NULL", (void *)dev);
	if (filter & ~known)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "filter %#x has unknown bits: the known ones are %#x",
			      (unsigned)filter, (unsigned)known);
	if (!(dev->info.f.side & SIDE_DPU))
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "%s is a function of the host and has no representors",
			      dev->info.f.pci);
	TRY(softdoca_functions(&all));
	for (uint32_t i = 0; i < all.n; i++)
		if ((all.f[i].side & SIDE_HOST) && (!filter || filter & net))
			indices[n++] = i;
	struct list *l = list_new(OBJECT_DEVINFO_REP, sizeof(struct doca_devinfo_rep), n);
	if (!l)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a list of %u representors", n);
	for (uint32_t i = 0; i < n; i++) {
		struct doca_devinfo_rep *r = l->entry[i];
		r->f = all.f[indices[i]];
		r->dev = dev;
		if (all.rep_pci)
			memcpy(r->f.pci, all.rep_pci, sizeof r->f.pci);
	}
	*dev_list_rep = (struct doca_devinfo_rep **)l->entry;
	*nb_devs_rep = n;
	return DOCA_SUCCESS;
}

doca_error_t doca_devinfo_rep_destroy_list(struct doca_devinfo_rep **dev_list_rep)
{
	return list_destroy(dev_list_rep, OBJECT_DEVINFO_REP);
}

/* ---- opened devices ---- */

static bool same_function(const struct function *a, const struct function *b)
{
	return a->side == b->side && a->type == b->type && a->sf_index == b->sf_index &&
	       a->caps == b->caps && !strcmp(a->pci, b->pci);
}

/* Opens the provider soft, with the provider fault on top if SOFTDOCA_FAULTS has rules. */
static doca_error_t open_engine(dg_device **out)
{
	dg_fault_rule rules[FAULTS_MAX];
	int n = softdoca_faults(rules);
	if (n < 0)
		return DOCA_ERROR_BAD_CONFIG;
	dg_device_config cfg = {
		.spin_ns = 200000, .over = "soft", .rules = rules, .n_rules = (uint32_t)n};
	int rc = dg_device_open(n ? "fault" : "soft", &cfg, out);
	return rc ? softdoca_failed(__func__, rc) : DOCA_SUCCESS;
}

static doca_error_t dev_new(const struct function *f, struct doca_dev **out)
{
	struct doca_dev *dev = softdoca_object_new(OBJECT_DEV, sizeof *dev);
	if (!dev)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a device");
	doca_error_t error = open_engine(&dev->engine);
	if (error != DOCA_SUCCESS) {
		softdoca_object_free(dev);
		return error;
	}
	dev->pid = getpid();
	dev->info.f = *f;
	object_become(&dev->info, OBJECT_DEVINFO);
	dev->next = opened;
	opened = dev;
	*out = dev;
	return DOCA_SUCCESS;
}

/* DOCA API reference, Device: opening an open device returns the same one. In a forked child the
 * parent's device has no engine, so the child gets a new one. */
doca_error_t doca_dev_open(struct doca_devinfo *devinfo, struct doca_dev **dev)
{
	doca_error_t error = DOCA_SUCCESS;
	if (!object_is(devinfo, OBJECT_DEVINFO) || !dev)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a devinfo, or dev is NULL",
			      (void *)devinfo);
	lock_devices();
	struct doca_dev *found = opened;
	while (found && (found->pid != getpid() || !same_function(&found->info.f, &devinfo->f)))
		found = found->next;
	if (!found)
		error = dev_new(&devinfo->f, &found);
	if (error == DOCA_SUCCESS) {
		found->opened++;
		*dev = found;
	}
	pthread_mutex_unlock(&lock);
	return error;
}

/* Frees the device at the last close. On failure it stays open, but its GPU may have been
 * closed. */
static doca_error_t dev_end(struct doca_dev *dev)
{
	int rc = dev->gpu ? dg_device_close(dev->gpu, CLOSE_NS) : 0;
	if (rc)
		return softdoca_failed(__func__, rc);
	dev->gpu = NULL;
	rc = dev->adapter ? adapter_close(dev->adapter) : 0;
	dev->adapter = NULL;
	if (!rc)
		rc = dg_device_close(dev->engine, CLOSE_NS);
	if (rc)
		return softdoca_failed(__func__, rc);
	if (dev->owns_pd) {
		struct ibv_context *context = dev->pd->context;
		if (!softdoca_ibv_dealloc_pd(dev->pd))
			softdoca_ibv_close(context);
	}
	struct doca_dev **at = &opened;
	while (*at != dev)
		at = &(*at)->next;
	*at = dev->next;
	object_become(&dev->info, OBJECT_FREE);
	softdoca_object_free(dev);
	return DOCA_SUCCESS;
}

/* DOCA API reference, Device: IN_USE. Programs rely on SUCCESS for NULL. */
doca_error_t doca_dev_close(struct doca_dev *dev)
{
	doca_error_t error = DOCA_SUCCESS;
	if (!dev)
		return DOCA_SUCCESS;
	lock_devices();
	uint32_t users = object_is(dev, OBJECT_DEV) ? atomic_load(&dev->users) : 0;
	if (!object_is(dev, OBJECT_DEV))
		error = REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not an open device", (void *)dev);
	else if (dev->opened == 1 && users)
		error = REFUSE(DOCA_ERROR_IN_USE,
			       "%s is in use by %u maps and contexts: destroy them first",
			       dev->info.f.pci, users);
	else if (dev->opened == 1)
		error = dev_end(dev);
	else
		dev->opened--;
	pthread_mutex_unlock(&lock);
	return error;
}

struct doca_devinfo *doca_dev_as_devinfo(const struct doca_dev *dev)
{
	if (!object_is(dev, OBJECT_DEV))
		return REFUSE(NULL, "%p is not an open device", (const void *)dev);
	return (struct doca_devinfo *)&dev->info;
}

dg_device *softdoca_dev_gpu(struct doca_dev *dev, const uint8_t *uuid)
{
	dg_device_config cfg = {.spin_ns = 200000};
	int rc = 0;
	lock_devices();
	if (!dev->gpu && uuid)
		rc = dg_cuda_ordinal(uuid);
	if (!dev->gpu && rc >= 0) {
		cfg.gpu = (uint32_t)rc;
		rc = dg_device_open("cuda", &cfg, &dev->gpu);
	}
	if (rc < 0) {
		dev->gpu = NULL;
		softdoca_failed(__func__, rc);
	}
	dg_device *gpu = dev->gpu;
	pthread_mutex_unlock(&lock);
	return gpu;
}

doca_error_t softdoca_dev_adapter(struct doca_dev *dev, struct adapter **out)
{
	lock_devices();
	const int rc = dev->adapter ? 0 : adapter_open(dev->info.f.ibdev, &dev->adapter);
	*out = dev->adapter;
	pthread_mutex_unlock(&lock);
	return rc ? softdoca_failed(__func__, rc) : DOCA_SUCCESS;
}

struct ibv_pd *softdoca_dev_pd(struct doca_dev *dev, struct ibv_pd *pd, bool owned)
{
	lock_devices();
	if (pd) {
		dev->pd = pd;
		dev->owns_pd = owned;
	}
	struct ibv_pd *now = dev->pd;
	pthread_mutex_unlock(&lock);
	return now;
}

/* ---- opened representors ---- */

/* A device may be closed before its representors, which hold a copy of its attributes: guess. */
doca_error_t doca_dev_rep_open(struct doca_devinfo_rep *devinfo, struct doca_dev_rep **dev_rep)
{
	if (!object_is(devinfo, OBJECT_DEVINFO_REP) || !dev_rep)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%p is not a devinfo_rep, or dev_rep is NULL", (void *)devinfo);
	if (!object_is(devinfo->dev, OBJECT_DEV))
		return REFUSE(DOCA_ERROR_BAD_STATE, "the device of representor %s was closed",
			      devinfo->f.pci);
	struct doca_dev_rep *r = softdoca_object_new(OBJECT_DEV_REP, sizeof *r);
	if (!r)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for a representor");
	r->dev = devinfo->dev;
	r->f = devinfo->f;
	*dev_rep = r;
	return DOCA_SUCCESS;
}

doca_error_t doca_dev_rep_close(struct doca_dev_rep *dev)
{
	CHECK_OBJECT(dev, OBJECT_DEV_REP, "an open representor"); /* also NULL, unlike doca_dev_close() */
	softdoca_object_free(dev);
	return DOCA_SUCCESS;
}
