/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices, what is known of them, and representors.
 *
 *	create list -> look at what is in it -> open -> destroy list -> ... -> close
 *
 * Any thread may call the functions here. INVALID_VALUE: NULL, or a handle that is none or no
 * longer one.
 */
#ifndef DOCA_DEV_H
#define DOCA_DEV_H

#include <stddef.h>
#include <stdint.h>

#include "doca_compat.h"
#include "doca_error.h"
#include "doca_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DOCA_DEVINFO_MAC_ADDR_SIZE    6
#define DOCA_DEVINFO_IPV4_ADDR_SIZE   4
#define DOCA_DEVINFO_IPV6_ADDR_SIZE   16
#define DOCA_DEVINFO_PCI_ADDR_SIZE    13
#define DOCA_DEVINFO_PCI_BDF_SIZE     8
#define DOCA_DEVINFO_IFACE_NAME_SIZE  256
#define DOCA_DEVINFO_IBDEV_NAME_SIZE  64
#define DOCA_DEVINFO_VUID_SIZE	      128
#define DOCA_DEVINFO_REP_VUID_SIZE    128
#define DOCA_DEVINFO_REP_PCI_ADDR_SIZE DOCA_DEVINFO_PCI_ADDR_SIZE

struct doca_dev;
struct doca_devinfo;
struct doca_dev_rep;
struct doca_devinfo_rep;

enum doca_devinfo_rep_filter {
	DOCA_DEVINFO_REP_FILTER_ALL = 0,
	DOCA_DEVINFO_REP_FILTER_NET = 2,
	DOCA_DEVINFO_REP_FILTER_EMULATED = 4,
};

/* What is known of an open device, valid until it is closed. NULL: it is none. */
DOCA_STABLE
struct doca_devinfo *doca_dev_as_devinfo(const struct doca_dev *dev);

/* As often as it was opened; the last time ends it. NULL: nothing to do. IN_USE: maps or
 * contexts have it; it stays open. */
DOCA_STABLE
doca_error_t doca_dev_close(struct doca_dev *dev);

/* Opens the function. One that is open gives the same device again. In the child of a fork it is a
 * new one: the parent's cannot be used there. BAD_CONFIG: SOFTDOCA_FAULTS is wrong. NO_MEMORY, and
 * what the system refuses. */
DOCA_STABLE
doca_error_t doca_dev_open(struct doca_devinfo *devinfo, struct doca_dev **dev);

/* BAD_STATE: the device that it was listed by is closed. NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_dev_rep_open(struct doca_devinfo_rep *devinfo, struct doca_dev_rep **dev_rep);

/* The functions of this process's side: (*dev_list)[0] to [*nb_devs - 1], valid until the list is
 * destroyed. Which there are: SOFTDOCA_SIDE (host, dpu or both) and SOFTDOCA_DEVICES, a file of one
 * function a line. BAD_CONFIG: one of them is wrong; the log says where. NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_devinfo_create_list(struct doca_devinfo ***dev_list, uint32_t *nb_devs);

/* Ends the list and what is in it; devices that were opened stay. INVALID_VALUE: no list, or one
 * that was destroyed. */
DOCA_STABLE
doca_error_t doca_devinfo_destroy_list(struct doca_devinfo **dev_list);

/* "mlx5_0". size: DOCA_DEVINFO_IBDEV_NAME_SIZE at least, else INVALID_VALUE. */
DOCA_STABLE
doca_error_t doca_devinfo_get_ibdev_name(const struct doca_devinfo *devinfo, char *ibdev_name,
		uint32_t size);

/* "ens3f0np0". size: DOCA_DEVINFO_IFACE_NAME_SIZE at least, else INVALID_VALUE. */
DOCA_STABLE
doca_error_t doca_devinfo_get_iface_name(const struct doca_devinfo *devinfo, char *iface_name,
		uint32_t size);

/* PF, VF or SF. */
DOCA_EXPERIMENTAL
doca_error_t doca_devinfo_get_pci_func_type(const struct doca_devinfo *devinfo,
		enum doca_pci_func_type *t);

/* The number of an SF. NOT_SUPPORTED: it is none. */
DOCA_EXPERIMENTAL
doca_error_t doca_devinfo_get_sf_index(const struct doca_devinfo *devinfo, uint32_t *sf_index);

/* 1 if that is its address: "0000:03:00.0" or "03:00.0", which is of domain 0. INVALID_VALUE:
 * neither. */
DOCA_STABLE
doca_error_t doca_devinfo_is_equal_pci_addr(const struct doca_devinfo *devinfo,
		const char *pci_addr_str, uint8_t *is_equal);

/* The functions of the host, as this device of the DPU stands for them; filter: a sum of
 * doca_devinfo_rep_filter, of which all here are NET. As doca_devinfo_create_list() otherwise.
 * NOT_SUPPORTED: the device is one of the host. */
DOCA_STABLE
doca_error_t doca_devinfo_rep_create_list(struct doca_dev *dev, int filter,
		struct doca_devinfo_rep ***dev_list_rep, uint32_t *nb_devs_rep);

/* Ends the list and what is in it; representors that were opened stay. */
DOCA_STABLE
doca_error_t doca_devinfo_rep_destroy_list(struct doca_devinfo_rep **dev_list_rep);

/* What names the host's function on both sides. size: DOCA_DEVINFO_REP_VUID_SIZE at least, else
 * INVALID_VALUE. */
DOCA_STABLE
doca_error_t doca_devinfo_rep_get_vuid(const struct doca_devinfo_rep *devinfo_rep, char *rep_vuid,
		uint32_t size);

/* As doca_devinfo_is_equal_pci_addr(), with the address that the host's function has for the
 * DPU. */
DOCA_STABLE
doca_error_t doca_devinfo_rep_is_equal_pci_addr(const struct doca_devinfo_rep *devinfo_rep,
		const char *pci_addr_str, uint8_t *is_equal);

/* Writes "0000:03:00.0": DOCA_DEVINFO_PCI_ADDR_SIZE bytes. */
DOCA_STABLE
doca_error_t doca_devinfo_get_pci_addr_str(const struct doca_devinfo *devinfo, char *pci_addr_str);

/* A number of its own for each function of the description. */
DOCA_EXPERIMENTAL
doca_error_t doca_devinfo_get_vhca_id(const struct doca_devinfo *devinfo, uint16_t *vhca_id);

/* NULL: nothing to do. */
DOCA_STABLE
doca_error_t doca_dev_rep_close(struct doca_dev_rep *dev);

/* Writes "0000:3b:00.0": DOCA_DEVINFO_REP_PCI_ADDR_SIZE bytes. */
DOCA_STABLE
doca_error_t doca_devinfo_rep_get_pci_addr_str(const struct doca_devinfo_rep *devinfo_rep,
		char *pci_addr_str);

#ifdef __cplusplus
}
#endif

#endif
