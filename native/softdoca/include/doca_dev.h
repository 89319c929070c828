/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices, their attributes, and representors.
 *
 * 	create list -> query its entries -> open -> destroy list -> ... -> close
 *
 * All functions are thread-safe. They return INVALID_VALUE for NULL and for handles that are
 * invalid or no longer valid.
 */
#ifndef DOCA_DEV_H
#define DOCA_DEV_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h> /* programs use EXIT_SUCCESS and include only DOCA's headers */

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

/* Returns the attributes of an open device, valid until it is closed; NULL for an invalid
 * device. */
DOCA_STABLE
struct doca_devinfo *doca_dev_as_devinfo(const struct doca_dev *dev);

/* Closes the device. A device must be closed as often as it was opened; the last call frees it.
 * NULL is ignored. Errors: IN_USE if maps or contexts use it; it then stays open. */
DOCA_STABLE
doca_error_t doca_dev_close(struct doca_dev *dev);

/* Opens the function. If it is already open, the same device is returned. The child of a fork gets
 * a new device, as it cannot use the parent's. Errors: BAD_CONFIG if SOFTDOCA_FAULTS is invalid;
 * NO_MEMORY; errors of the operating system. */
DOCA_STABLE
doca_error_t doca_dev_open(struct doca_devinfo *devinfo, struct doca_dev **dev);

/* Opens a representor. Errors: BAD_STATE if the device that listed it is closed; NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_dev_rep_open(struct doca_devinfo_rep *devinfo, struct doca_dev_rep **dev_rep);

/* Lists the functions of this process's side: (*dev_list)[0] to [*nb_devs - 1], valid until the
 * list is destroyed. The environment variables SOFTDOCA_SIDE (host, dpu or both) and
 * SOFTDOCA_DEVICES (a file with one function per line) define them. Errors: BAD_CONFIG if one of
 * them is invalid, with the place in the log; NO_MEMORY. */
DOCA_STABLE
doca_error_t doca_devinfo_create_list(struct doca_devinfo ***dev_list, uint32_t *nb_devs);

/* Frees the list and its entries. Open devices stay open. */
DOCA_STABLE
doca_error_t doca_devinfo_destroy_list(struct doca_devinfo **dev_list);

/* Gets a name such as "mlx5_0". size must be at least DOCA_DEVINFO_IBDEV_NAME_SIZE. */
DOCA_STABLE
doca_error_t doca_devinfo_get_ibdev_name(const struct doca_devinfo *devinfo, char *ibdev_name,
		uint32_t size);

/* Gets a name such as "ens3f0np0". size must be at least DOCA_DEVINFO_IFACE_NAME_SIZE. */
DOCA_STABLE
doca_error_t doca_devinfo_get_iface_name(const struct doca_devinfo *devinfo, char *iface_name,
		uint32_t size);

/* Gets the IPv4 address, a loopback address, which differs between the functions: programs of both
 * sides, on this machine, can listen at it. size must be at least DOCA_DEVINFO_IPV4_ADDR_SIZE. */
DOCA_STABLE
doca_error_t doca_devinfo_get_ipv4_addr(const struct doca_devinfo *devinfo, uint8_t *ipv4_addr,
		uint32_t size);

/* Gets the MAC address, a locally administered one, which differs between the functions. size must
 * be at least DOCA_DEVINFO_MAC_ADDR_SIZE. */
DOCA_STABLE
doca_error_t doca_devinfo_get_mac_addr(const struct doca_devinfo *devinfo, uint8_t *mac_addr,
		uint32_t size);

/* Gets the IPv6 address, which is the IPv4 address mapped. size must be at least
 * DOCA_DEVINFO_IPV6_ADDR_SIZE. */
DOCA_STABLE
doca_error_t doca_devinfo_get_ipv6_addr(const struct doca_devinfo *devinfo, uint8_t *ipv6_addr,
		uint32_t size);

/* Gets the InfiniBand LID of the port: 0, as of a port of Ethernet. */
DOCA_STABLE
doca_error_t doca_devinfo_get_lid(const struct doca_devinfo *devinfo, uint16_t *lid);

/* Returns NOT_SUPPORTED: there is no link, whose rate it would be. */
DOCA_STABLE
doca_error_t doca_devinfo_get_active_rate(const struct doca_devinfo *devinfo, uint64_t *active_rate);

/* Gets 1 if the device has NET representors, as a device of the DPU has, otherwise 0. */
DOCA_STABLE
doca_error_t doca_devinfo_rep_cap_is_filter_net_supported(const struct doca_devinfo *devinfo,
		uint8_t *filter_net_supported);

/* Gets the type of the function: PF, VF or SF. */
DOCA_EXPERIMENTAL
doca_error_t doca_devinfo_get_pci_func_type(const struct doca_devinfo *devinfo,
		enum doca_pci_func_type *t);

/* Gets the number of an SF. Errors: NOT_SUPPORTED for a PF or VF. */
DOCA_EXPERIMENTAL
doca_error_t doca_devinfo_get_sf_index(const struct doca_devinfo *devinfo, uint32_t *sf_index);

/* Compares the address with "0000:03:00.0" or "03:00.0" (domain 0). Errors: INVALID_VALUE for
 * another format. */
DOCA_STABLE
doca_error_t doca_devinfo_is_equal_pci_addr(const struct doca_devinfo *devinfo,
		const char *pci_addr_str, uint8_t *is_equal);

/* Lists the functions of the host as representors of this device of the DPU. filter is a sum of
 * doca_devinfo_rep_filter; all representors of softdoca are NET. Errors: NOT_SUPPORTED for a
 * device of the host; otherwise those of doca_devinfo_create_list(). */
DOCA_STABLE
doca_error_t doca_devinfo_rep_create_list(struct doca_dev *dev, int filter,
		struct doca_devinfo_rep ***dev_list_rep, uint32_t *nb_devs_rep);

/* Frees the list and its entries. Open representors stay open. */
DOCA_STABLE
doca_error_t doca_devinfo_rep_destroy_list(struct doca_devinfo_rep **dev_list_rep);

/* Gets the identifier of the host's function, the same on both sides. size must be at least
 * DOCA_DEVINFO_REP_VUID_SIZE. */
DOCA_STABLE
doca_error_t doca_devinfo_rep_get_vuid(const struct doca_devinfo_rep *devinfo_rep, char *rep_vuid,
		uint32_t size);

/* Compares the address of the host's function as seen by the DPU, like
 * doca_devinfo_is_equal_pci_addr(). */
DOCA_STABLE
doca_error_t doca_devinfo_rep_is_equal_pci_addr(const struct doca_devinfo_rep *devinfo_rep,
		const char *pci_addr_str, uint8_t *is_equal);

/* Gets an address such as "0000:03:00.0": DOCA_DEVINFO_PCI_ADDR_SIZE bytes. */
DOCA_STABLE
doca_error_t doca_devinfo_get_pci_addr_str(const struct doca_devinfo *devinfo, char *pci_addr_str);

/* Gets a number that is unique among the functions. */
DOCA_EXPERIMENTAL
doca_error_t doca_devinfo_get_vhca_id(const struct doca_devinfo *devinfo, uint16_t *vhca_id);

/* Closes the representor. NULL is ignored. */
DOCA_STABLE
doca_error_t doca_dev_rep_close(struct doca_dev_rep *dev);

/* Gets an address such as "0000:3b:00.0": DOCA_DEVINFO_REP_PCI_ADDR_SIZE bytes. */
DOCA_STABLE
doca_error_t doca_devinfo_rep_get_pci_addr_str(const struct doca_devinfo_rep *devinfo_rep,
		char *pci_addr_str);

#ifdef __cplusplus
}
#endif

#endif
