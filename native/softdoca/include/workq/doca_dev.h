/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, as of DOCA 1.3 to 2.2: the current functions, and their former names. */
#ifndef DOCA_WORKQ_DEV_H
#define DOCA_WORKQ_DEV_H

#include "../doca_dev.h"
#include "doca_error.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum doca_dev_rep_filter {
	DOCA_DEV_REP_FILTER_ALL = 0,
	DOCA_DEV_REP_FILTER_NET = DOCA_DEVINFO_REP_FILTER_NET,
};

/* Attributes of a device in DOCA 1.3, for doca_devinfo_property_get(). */
enum doca_devinfo_property {
	DOCA_DEVINFO_PROPERTY_PCI_ADDR, /* struct doca_pci_bdf */
	DOCA_DEVINFO_PROPERTY_IFACE_NAME, /* char[256] */
	DOCA_DEVINFO_PROPERTY_IBDEV_NAME, /* char[64] */
	DOCA_DEVINFO_PROPERTY_VUID, /* char[128] */
	DOCA_DEVINFO_PROPERTY_IPV4_ADDR,
	DOCA_DEVINFO_PROPERTY_IPV6_ADDR,
};

/* doca_devinfo_create_list() and doca_devinfo_destroy_list(). */
DOCA_STABLE
doca_error_t doca_devinfo_list_create(struct doca_devinfo ***dev_list, uint32_t *nb_devs);

DOCA_STABLE
doca_error_t doca_devinfo_list_destroy(struct doca_devinfo **dev_list);

/* doca_devinfo_rep_create_list() and doca_devinfo_rep_destroy_list(). */
DOCA_STABLE
doca_error_t doca_devinfo_rep_list_create(struct doca_dev *dev, int filter,
		struct doca_devinfo_rep ***dev_list_rep, uint32_t *nb_devs_rep);

DOCA_STABLE
doca_error_t doca_devinfo_rep_list_destroy(struct doca_devinfo_rep **dev_list_rep);

/* Gets an attribute into a buffer of `size` bytes, at least the attribute's size. Errors:
 * INVALID_VALUE for an unknown attribute or a buffer that is too small; NOT_SUPPORTED for an
 * attribute that softdoca's devices do not have. */
DOCA_STABLE
doca_error_t doca_devinfo_property_get(const struct doca_devinfo *devinfo,
		enum doca_devinfo_property property, uint8_t *value, uint32_t size);

/* Get the PCI address, without its domain. */
DOCA_STABLE
doca_error_t doca_devinfo_get_pci_addr(const struct doca_devinfo *devinfo,
		struct doca_pci_bdf *pci_addr);

DOCA_STABLE
doca_error_t doca_devinfo_rep_get_pci_addr(const struct doca_devinfo_rep *devinfo_rep,
		struct doca_pci_bdf *pci_addr);

/* doca_devinfo_is_equal_pci_addr() and doca_devinfo_rep_is_equal_pci_addr(). */
DOCA_STABLE
doca_error_t doca_devinfo_get_is_pci_addr_equal(const struct doca_devinfo *devinfo,
		const char *pci_addr_str, uint8_t *is_equal);

DOCA_STABLE
doca_error_t doca_devinfo_rep_get_is_pci_addr_equal(const struct doca_devinfo_rep *devinfo_rep,
		const char *pci_addr_str, uint8_t *is_equal);

/* Get 1 if the device can export memory, or create a map from an export. */
DOCA_STABLE
doca_error_t doca_devinfo_get_is_mmap_export_supported(const struct doca_devinfo *devinfo,
		uint8_t *mmap_export);

DOCA_STABLE
doca_error_t doca_devinfo_get_is_mmap_from_export_supported(const struct doca_devinfo *devinfo,
		uint8_t *from_export);

#ifdef __cplusplus
}
#endif

#endif
