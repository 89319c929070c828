// SPDX-License-Identifier: Apache-2.0
/* Attributes of functions and representors. */
#include <string.h>

#include "device.h"

static const struct function *of_info(const struct doca_devinfo *info)
{
	return object_is(info, OBJECT_DEVINFO) ? &info->f : NULL;
}

static const struct function *of_rep(const struct doca_devinfo_rep *info)
{
	return object_is(info, OBJECT_DEVINFO_REP) ? &info->f : NULL;
}

/* DOCA API reference, Device: the buffer for a text must have at least the size given in the
 * header. */
#define COPY_TEXT(f, field, out, size) \
	copy_text(__func__, f, (f) ? (f)->field : "", sizeof((f)->field), out, size)

static doca_error_t copy_text(const char *func, const struct function *f, const char *text,
			      size_t least, char *out, uint32_t size)
{
	if (!f || !out || size < least)
		return REFUSE_FOR(
			func, DOCA_ERROR_INVALID_VALUE,
			"invalid function or buffer, or a buffer of %u bytes where %zu are needed",
			size, least);
	memcpy(out, text, strlen(text) + 1);
	return DOCA_SUCCESS;
}

static doca_error_t is_equal(const char *func, const struct function *f, const char *text,
			     uint8_t *equal)
{
	char pci[DOCA_DEVINFO_PCI_ADDR_SIZE];
	if (!f || !text || !equal || !softdoca_pci_parse(text, pci))
		return REFUSE_FOR(
			func, DOCA_ERROR_INVALID_VALUE,
			"invalid function or output pointer, or '%.32s' is not an address like "
			"0000:03:00.0 or 03:00.0",
			text ? text : "NULL");
	*equal = !strcmp(pci, f->pci);
	return DOCA_SUCCESS;
}

doca_error_t doca_devinfo_get_ibdev_name(const struct doca_devinfo *devinfo, char *ibdev_name,
					 uint32_t size)
{
	const struct function *f = of_info(devinfo);
	return COPY_TEXT(f, ibdev, ibdev_name, size);
}

doca_error_t doca_devinfo_get_iface_name(const struct doca_devinfo *devinfo, char *iface_name,
					 uint32_t size)
{
	const struct function *f = of_info(devinfo);
	return COPY_TEXT(f, iface, iface_name, size);
}

doca_error_t doca_devinfo_get_pci_addr_str(const struct doca_devinfo *devinfo, char *pci_addr_str)
{
	const struct function *f = of_info(devinfo);
	return COPY_TEXT(f, pci, pci_addr_str, sizeof f->pci);
}

static doca_error_t copy_address(const char *func, const struct function *f, const uint8_t *from,
				 uint32_t n, uint8_t *out, uint32_t size)
{
	if (f && f->caps & CAP_ADAPTER)
		return REFUSE_FOR(func, DOCA_ERROR_NOT_SUPPORTED,
				  "the addresses of %s are those of its interface, %s", f->ibdev, f->iface);
	if (!f || !out || size < n)
		return REFUSE_FOR(
			func, DOCA_ERROR_INVALID_VALUE,
			"invalid function or buffer, or a buffer of %u bytes where %u are needed",
			size, n);
	memcpy(out, from, n);
	return DOCA_SUCCESS;
}

/* 127.0.0.1 and up: one for each function. */
doca_error_t doca_devinfo_get_ipv4_addr(const struct doca_devinfo *devinfo, uint8_t *ipv4_addr,
					uint32_t size)
{
	const struct function *f = of_info(devinfo);
	const uint8_t address[] = {127, 0, 0, f ? (uint8_t)(f->vhca_id + 1) : 0};
	return copy_address(__func__, f, address, sizeof address, ipv4_addr, size);
}

doca_error_t doca_devinfo_get_mac_addr(const struct doca_devinfo *devinfo, uint8_t *mac_addr,
				       uint32_t size)
{
	const struct function *f = of_info(devinfo);
	const uint8_t address[] = {0x02, 'D', 'O', 'C', 'A', f ? (uint8_t)f->vhca_id : 0};
	return copy_address(__func__, f, address, sizeof address, mac_addr, size);
}

doca_error_t doca_devinfo_get_ipv6_addr(const struct doca_devinfo *devinfo, uint8_t *ipv6_addr,
					uint32_t size)
{
	const struct function *f = of_info(devinfo);
	uint8_t address[DOCA_DEVINFO_IPV6_ADDR_SIZE] = {[10] = 0xff, [11] = 0xff};
	if (f)
		doca_devinfo_get_ipv4_addr(devinfo, address + 12, DOCA_DEVINFO_IPV4_ADDR_SIZE);
	return copy_address(__func__, f, address, sizeof address, ipv6_addr, size);
}

doca_error_t doca_devinfo_get_lid(const struct doca_devinfo *devinfo, uint16_t *lid)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a devinfo");
	return SET_OUT(lid, 0);
}

doca_error_t doca_devinfo_get_active_rate(const struct doca_devinfo *devinfo, uint64_t *active_rate)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a devinfo");
	CHECK_OUT(active_rate);
	return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "there is no link, whose rate it would be");
}

doca_error_t doca_devinfo_rep_cap_is_filter_net_supported(const struct doca_devinfo *devinfo,
							  uint8_t *filter_net_supported)
{
	const struct function *f = of_info(devinfo);
	if (!f)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a devinfo",
			      (const void *)devinfo);
	return SET_OUT(filter_net_supported, !!(f->side & SIDE_DPU));
}

doca_error_t doca_devinfo_rep_get_vuid(const struct doca_devinfo_rep *devinfo_rep, char *rep_vuid,
				       uint32_t size)
{
	const struct function *f = of_rep(devinfo_rep);
	return COPY_TEXT(f, vuid, rep_vuid, size);
}

doca_error_t doca_devinfo_rep_get_pci_addr_str(const struct doca_devinfo_rep *devinfo_rep,
					       char *pci_addr_str)
{
	const struct function *f = of_rep(devinfo_rep);
	return COPY_TEXT(f, pci, pci_addr_str, sizeof f->pci);
}

doca_error_t doca_devinfo_is_equal_pci_addr(const struct doca_devinfo *devinfo,
					    const char *pci_addr_str, uint8_t *is_equal_out)
{
	return is_equal(__func__, of_info(devinfo), pci_addr_str, is_equal_out);
}

doca_error_t doca_devinfo_rep_is_equal_pci_addr(const struct doca_devinfo_rep *devinfo_rep,
						const char *pci_addr_str, uint8_t *is_equal_out)
{
	return is_equal(__func__, of_rep(devinfo_rep), pci_addr_str, is_equal_out);
}

doca_error_t doca_devinfo_get_pci_func_type(const struct doca_devinfo *devinfo,
					    enum doca_pci_func_type *t)
{
	const struct function *f = of_info(devinfo);
	if (!f || !t)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a devinfo, or t is NULL",
			      (const void *)devinfo);
	*t = f->type;
	return DOCA_SUCCESS;
}

/* NOT_SUPPORTED for other functions: guess. */
doca_error_t doca_devinfo_get_sf_index(const struct doca_devinfo *devinfo, uint32_t *sf_index)
{
	const struct function *f = of_info(devinfo);
	if (!f || !sf_index)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a devinfo, or sf_index is NULL",
			      (const void *)devinfo);
	if (f->type != DOCA_PCI_FUNC_TYPE_SF)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "%s is not an SF", f->pci);
	*sf_index = f->sf_index;
	return DOCA_SUCCESS;
}

doca_error_t doca_devinfo_get_vhca_id(const struct doca_devinfo *devinfo, uint16_t *vhca_id)
{
	const struct function *f = of_info(devinfo);
	if (!f || !vhca_id)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%p is not a devinfo, or vhca_id is NULL",
			      (const void *)devinfo);
	*vhca_id = f->vhca_id;
	return DOCA_SUCCESS;
}
