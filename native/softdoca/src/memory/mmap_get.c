// SPDX-License-Identifier: Apache-2.0
/* Attributes of memory maps. */
#include "memory.h"

doca_error_t doca_mmap_get_memrange(const struct doca_mmap *mmap, void **addr, size_t *len)
{
	CHECK_MMAP(mmap);
	CHECK_OUT(addr);
	CHECK_OUT(len);
	if (mmap->backing == BACKING_NONE) /* DOCA Mmap, doca_mmap_get_memrange */
		return REFUSE(DOCA_ERROR_BAD_STATE, "the map has no memory range yet");
	*addr = mmap->addr;
	*len = mmap->len;
	return DOCA_SUCCESS;
}

GETTER(doca_mmap_get_user_data, CHECK_MMAP, const struct doca_mmap, union doca_data,
       handle->user_data)
GETTER(doca_mmap_get_num_bufs, CHECK_MMAP, const struct doca_mmap, uint32_t,
       atomic_load(&handle->bufs))
GETTER(doca_mmap_get_exported, CHECK_MMAP, const struct doca_mmap, uint8_t, handle->exported)
GETTER(doca_mmap_get_from_export, CHECK_MMAP, const struct doca_mmap, uint8_t, handle->from_export)
GETTER(doca_mmap_get_max_num_devices, CHECK_MMAP, const struct doca_mmap, uint32_t,
       handle->max_attached)

doca_error_t doca_mmap_cap_is_export_pci_supported(const struct doca_devinfo *devinfo,
						   uint8_t *mmap_export)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a device's description");
	return SET_OUT(mmap_export, !!(devinfo->f.caps & CAP_EXPORT_PCI));
}

doca_error_t doca_mmap_cap_is_create_from_export_pci_supported(const struct doca_devinfo *devinfo,
							       uint8_t *from_export)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a device's description");
	return SET_OUT(from_export, !!(devinfo->f.caps & CAP_FROM_EXPORT_PCI));
}
