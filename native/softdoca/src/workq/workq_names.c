// SPDX-License-Identifier: Apache-2.0
/* Functions that only have another name, or other types, in the current API. */
#include <stdio.h>
#include <string.h>

#include "workq.h"

/* Attributes and addresses, as in include/workq/doca_dev.h. */
enum property { PROPERTY_PCI, PROPERTY_IFACE, PROPERTY_IBDEV, PROPERTY_VUID };
enum { MEMCPY_JOB = (1 << 16) + 1, CAP_HW_OFFLOAD = 1 };

/* guess: these releases print a program's records without a backend, which their samples lack. */
static __attribute__((constructor)) void print_records(void)
{
	doca_log_backend_create_standard();
}

/* As 1.3: NULL on failure. */
static struct doca_log_backend *log_to_file(FILE *file)
{
	struct doca_log_backend *backend;
	return softdoca_log_to_file(file, &backend) ? NULL : backend;
}

RENAMED(doca_error_t, doca_log_create_standard_backend, (void), doca_log_backend_create_standard())
RENAMED(doca_error_t, doca_log_create_file_backend, (FILE *fptr, struct doca_log_backend **backend),
	softdoca_log_to_file(fptr, backend))
RENAMED(struct doca_log_backend *, softdoca_1_3_log_create_file_backend, (FILE *fptr), log_to_file(fptr))
RENAMED(const char *, doca_get_error_string, (doca_error_t error), doca_error_get_descr(error))
RENAMED(const char *, doca_get_error_name, (doca_error_t error), doca_error_get_name(error))

/* ---- buffers ---- */

RENAMED(doca_error_t, doca_buf_refcount_add, (struct doca_buf *buf, uint16_t *refcount),
	doca_buf_inc_refcount(buf, refcount))
RENAMED(doca_error_t, doca_buf_refcount_rm, (struct doca_buf *buf, uint16_t *refcount),
	doca_buf_dec_refcount(buf, refcount))
RENAMED(doca_error_t, doca_buf_list_chain, (struct doca_buf *list1, struct doca_buf *list2),
	doca_buf_chain_list(list1, list2))
RENAMED(doca_error_t, doca_buf_list_unchain, (struct doca_buf *list1, struct doca_buf *list2),
	doca_buf_unchain_list(list1, list2))
RENAMED(doca_error_t, doca_buf_list_next, (struct doca_buf *buf, struct doca_buf **next_buf),
	doca_buf_get_next_in_list(buf, next_buf))
RENAMED(doca_error_t, doca_buf_list_last, (struct doca_buf *buf, struct doca_buf **last_buf),
	doca_buf_get_last_in_list(buf, last_buf))

DOCA_STABLE doca_error_t doca_buf_list_is_last(const struct doca_buf *buf, bool *is_last)
{
	return doca_buf_is_last_in_list(buf, (uint8_t *)is_last);
}

DOCA_STABLE doca_error_t doca_buf_list_is_first(const struct doca_buf *buf, bool *is_first)
{
	return doca_buf_is_first_in_list(buf, (uint8_t *)is_first);
}

RENAMED(doca_error_t, doca_buf_list_num_elements,
	(const struct doca_buf *buf, uint32_t *num_elements),
	doca_buf_get_list_len(buf, num_elements))

/* ---- devices ---- */

RENAMED(doca_error_t, doca_devinfo_list_create,
	(struct doca_devinfo ***dev_list, uint32_t *nb_devs),
	doca_devinfo_create_list(dev_list, nb_devs))
RENAMED(doca_error_t, doca_devinfo_list_destroy, (struct doca_devinfo **dev_list),
	doca_devinfo_destroy_list(dev_list))
RENAMED(doca_error_t, doca_devinfo_rep_list_create,
	(struct doca_dev *dev, int filter, struct doca_devinfo_rep ***dev_list_rep, uint32_t *nb_devs_rep),
	doca_devinfo_rep_create_list(dev, filter, dev_list_rep, nb_devs_rep))
RENAMED(doca_error_t, doca_devinfo_rep_list_destroy, (struct doca_devinfo_rep **dev_list_rep),
	doca_devinfo_rep_destroy_list(dev_list_rep))

/* The address's bits: bus 0 to 7, device 8 to 12, function 13 to 15. */
static uint16_t pci_bits(const struct function *f)
{
	unsigned int bus = 0, device = 0, function = 0;
	sscanf(f->pci, "%*x:%x:%x.%x", &bus, &device, &function);
	return (uint16_t)(bus | device << 8 | function << 13);
}

DOCA_STABLE doca_error_t doca_devinfo_get_pci_addr(const struct doca_devinfo *devinfo,
						   uint16_t *pci_addr)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a devinfo");
	return SET_OUT(pci_addr, pci_bits(&devinfo->f));
}

DOCA_STABLE doca_error_t doca_devinfo_rep_get_pci_addr(const struct doca_devinfo_rep *devinfo_rep,
						       uint16_t *pci_addr)
{
	CHECK_OBJECT(devinfo_rep, OBJECT_DEVINFO_REP, "a representor's devinfo");
	return SET_OUT(pci_addr, pci_bits(&devinfo_rep->f));
}

DOCA_STABLE doca_error_t doca_devinfo_property_get(const struct doca_devinfo *devinfo,
						   enum property property, uint8_t *value,
						   uint32_t size)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a devinfo");
	CHECK_OUT(value);
	uint16_t pci = pci_bits(&devinfo->f);
	const void *const from[] = {&pci, devinfo->f.iface, devinfo->f.ibdev, devinfo->f.vuid};
	const size_t sizes[] = {sizeof pci, sizeof devinfo->f.iface, sizeof devinfo->f.ibdev,
				sizeof devinfo->f.vuid};
	if (property > PROPERTY_VUID) /* guess */
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "the device has no attribute %d", property);
	if (size < sizes[property])
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "a buffer of %u bytes: %zu are needed",
			      size, sizes[property]);
	memcpy(value, from[property], sizes[property]);
	return DOCA_SUCCESS;
}

RENAMED(doca_error_t, doca_devinfo_get_is_pci_addr_equal,
	(const struct doca_devinfo *devinfo, const char *pci_addr_str, uint8_t *is_equal),
	doca_devinfo_is_equal_pci_addr(devinfo, pci_addr_str, is_equal))
RENAMED(doca_error_t, doca_devinfo_rep_get_is_pci_addr_equal,
	(const struct doca_devinfo_rep *devinfo_rep, const char *pci_addr_str, uint8_t *is_equal),
	doca_devinfo_rep_is_equal_pci_addr(devinfo_rep, pci_addr_str, is_equal))

DOCA_STABLE doca_error_t
RENAMED(, doca_devinfo_get_is_mmap_export_supported,
	(const struct doca_devinfo *devinfo, uint8_t *mmap_export),
	doca_mmap_cap_is_export_pci_supported(devinfo, mmap_export))
RENAMED(doca_error_t, doca_devinfo_get_is_mmap_from_export_supported,
	(const struct doca_devinfo *devinfo, uint8_t *from_export),
	doca_mmap_cap_is_create_from_export_pci_supported(devinfo, from_export))

/* ---- what a device can do ---- */

DOCA_STABLE doca_error_t doca_dma_job_get_supported(struct doca_devinfo *devinfo, int job_type)
{
	if (job_type != MEMCPY_JOB)
		return REFUSE(DOCA_ERROR_INVALID_VALUE, "%d is not DOCA_DMA_JOB_MEMCPY", job_type);
	return doca_dma_cap_task_memcpy_is_supported(devinfo);
}

DOCA_STABLE doca_error_t doca_dma_devinfo_caps_get(struct doca_devinfo *devinfo, uint32_t *caps)
{
	CHECK_OBJECT(devinfo, OBJECT_DEVINFO, "a devinfo");
	return SET_OUT(caps, devinfo->f.caps & CAP_DMA ? CAP_HW_OFFLOAD : 0);
}

RENAMED(doca_error_t, doca_dma_get_max_list_buf_num_elem,
	(const struct doca_devinfo *devinfo, uint32_t *max_list_num_elem),
	doca_dma_cap_task_memcpy_get_max_buf_list_len(devinfo, max_list_num_elem))
RENAMED(doca_error_t, doca_dma_get_max_buf_size,
	(const struct doca_devinfo *devinfo, uint64_t *buf_size),
	doca_dma_cap_task_memcpy_get_max_buf_size(devinfo, buf_size))
