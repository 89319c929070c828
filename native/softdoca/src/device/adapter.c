// SPDX-License-Identifier: Apache-2.0
#include "adapter.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


#define ADAPTERS "/sys/class/infiniband"
#define CLOSE_NS 2000000000u

const struct verbs_functions softdoca_verbs = {
	.api = &dg_verbs,
	.port_address = dg_verbs_port_address,
	.qp_init = dg_verbs_qp_init,
	.qp_connect = dg_verbs_qp_connect,
};

/* ---- the list ---- */

static bool is_listed(const struct functions *all, const char *ibdev)
{
	for (uint32_t i = 0; i < all->n; i++)
		if (!strcmp(all->f[i].ibdev, ibdev))
			return true;
	return false;
}

/* The PCI address of the adapter. One in software has none: it gets one that no function has. */
static void find_pci(struct function *f, uint32_t index)
{
	char path[PATH_MAX], target[PATH_MAX];
	snprintf(path, sizeof path, ADAPTERS "/%s/device", f->ibdev);
	const char *name = realpath(path, target) ? strrchr(target, '/') + 1 : "";
	if (!softdoca_pci_parse(name, f->pci))
		snprintf(f->pci, sizeof f->pci, "ffff:ff:%02x.0", index % 32);
}

static void find_iface(struct function *f)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, ADAPTERS "/%s/ports/1/gid_attrs/ndevs/0", f->ibdev);
	FILE *file = fopen(path, "re");
	if (file && fgets(f->iface, sizeof f->iface, file))
		f->iface[strcspn(f->iface, "\n")] = '\0';
	if (file)
		fclose(file);
}

void softdoca_list_adapters(struct functions *all)
{
	struct dirent **names;
	const int n = scandir(ADAPTERS, &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		const char *name = names[i]->d_name;
		struct function *f = &all->f[all->n];
		if (name[0] != '.' && strlen(name) < sizeof f->ibdev && all->n < FUNCTIONS_MAX &&
		    !is_listed(all, name)) {
			*f = (struct function){.side = all->side, .caps = CAP_ADAPTER};
			memcpy(f->ibdev, name, strlen(name) + 1);
			snprintf(f->vuid, sizeof f->vuid, "VERBS-%.63s", name);
			find_pci(f, all->n++);
			find_iface(f);
		}
		free(names[i]);
	}
	if (n >= 0)
		free(names);
}

/* ---- open adapters ---- */

int adapter_close(struct adapter *a)
{
	if (a->pd)
		dg_verbs.ibv_dealloc_pd(a->pd);
	const int rc = a->device ? dg_device_close(a->device, CLOSE_NS) : 0;
	free(a);
	return rc;
}

int adapter_open(const char *name, struct adapter **out)
{
	const dg_device_config cfg = {.rdma = name};
	struct adapter *a = calloc(1, sizeof *a);
	int rc = a ? dg_device_open("verbs", &cfg, &a->device) : -ENOMEM;
	if (!rc) {
		a->d = a->device->provider;
		a->pd = dg_verbs.ibv_alloc_pd(a->d->context);
		rc = a->pd ? 0 : dg_fail_errno("%s has no more protection domains", name);
	}
	if (!rc)
		*out = a;
	else if (a)
		adapter_close(a);
	return rc;
}
