# SPDX-License-Identifier: Apache-2.0
"""C declarations of the DOCA functions that dgkit.doca calls, for cffi.

Names, numbers and signatures are those of DOCA 2.5 and later. DOCA passes and returns `union
doca_data` by value; here it is declared as uint64_t, because cffi in ABI mode cannot pass a union
by value. Both are passed as one INTEGER eightbyte in a general register (System V ABI for x86-64,
3.2.3; AAPCS64, 6.8.2), so the calls are identical. Enums are declared as int, which has the same
size and register class.
"""

CDEF = """
struct doca_buf;
struct doca_buf_inventory;
struct doca_ctx;
struct doca_dev;
struct doca_dev_rep;
struct doca_devinfo;
struct doca_devinfo_rep;
struct doca_dma;
struct doca_dma_task_memcpy;
struct doca_mmap;
struct doca_pe;
struct doca_task;

typedef int doca_error_t;
typedef int doca_notification_handle_t;
typedef void (*doca_dma_task_memcpy_completion_cb_t)(struct doca_dma_task_memcpy *task,
    uint64_t task_user_data, uint64_t ctx_user_data);

const char *doca_error_get_descr(doca_error_t error);
const char *doca_version_runtime(void);

doca_error_t doca_dev_close(struct doca_dev *dev);
doca_error_t doca_dev_open(struct doca_devinfo *devinfo, struct doca_dev **dev);
doca_error_t doca_dev_rep_close(struct doca_dev_rep *dev);
doca_error_t doca_dev_rep_open(struct doca_devinfo_rep *devinfo, struct doca_dev_rep **dev_rep);
doca_error_t doca_devinfo_create_list(struct doca_devinfo ***dev_list, uint32_t *nb_devs);
doca_error_t doca_devinfo_destroy_list(struct doca_devinfo **dev_list);
doca_error_t doca_devinfo_get_ibdev_name(const struct doca_devinfo *devinfo, char *ibdev_name,
    uint32_t size);
doca_error_t doca_devinfo_get_iface_name(const struct doca_devinfo *devinfo, char *iface_name,
    uint32_t size);
doca_error_t doca_devinfo_get_pci_addr_str(const struct doca_devinfo *devinfo, char *pci_addr_str);
doca_error_t doca_devinfo_get_pci_func_type(const struct doca_devinfo *devinfo, int *t);
doca_error_t doca_devinfo_get_sf_index(const struct doca_devinfo *devinfo, uint32_t *sf_index);
doca_error_t doca_devinfo_rep_create_list(struct doca_dev *dev, int filter,
    struct doca_devinfo_rep ***dev_list_rep, uint32_t *nb_devs_rep);
doca_error_t doca_devinfo_rep_destroy_list(struct doca_devinfo_rep **dev_list_rep);
doca_error_t doca_devinfo_rep_get_pci_addr_str(const struct doca_devinfo_rep *devinfo_rep,
    char *pci_addr_str);
doca_error_t doca_devinfo_rep_get_vuid(const struct doca_devinfo_rep *devinfo_rep, char *rep_vuid,
    uint32_t size);

doca_error_t doca_mmap_add_dev(struct doca_mmap *mmap, struct doca_dev *dev);
doca_error_t doca_mmap_cap_is_create_from_export_pci_supported(const struct doca_devinfo *devinfo,
    uint8_t *from_export);
doca_error_t doca_mmap_cap_is_export_pci_supported(const struct doca_devinfo *devinfo,
    uint8_t *mmap_export);
doca_error_t doca_mmap_create(struct doca_mmap **mmap);
doca_error_t doca_mmap_create_from_export(const uint64_t *user_data, const void *export_desc,
    size_t export_desc_len, struct doca_dev *dev, struct doca_mmap **mmap);
doca_error_t doca_mmap_destroy(struct doca_mmap *mmap);
doca_error_t doca_mmap_export_pci(struct doca_mmap *mmap, const struct doca_dev *dev,
    const void **export_desc, size_t *export_desc_len);
doca_error_t doca_mmap_get_exported(const struct doca_mmap *mmap, uint8_t *exported);
doca_error_t doca_mmap_get_memrange(const struct doca_mmap *mmap, void **addr, size_t *len);
doca_error_t doca_mmap_get_num_bufs(const struct doca_mmap *mmap, uint32_t *num_bufs);
doca_error_t doca_mmap_set_dmabuf_memrange(struct doca_mmap *mmap, int dmabuf_fd, void *addr,
    size_t dmabuf_offset, size_t len);
doca_error_t doca_mmap_set_memrange(struct doca_mmap *mmap, void *addr, size_t len);
doca_error_t doca_mmap_set_permissions(struct doca_mmap *mmap, uint32_t access_mask);
doca_error_t doca_mmap_start(struct doca_mmap *mmap);
doca_error_t doca_mmap_stop(struct doca_mmap *mmap);

doca_error_t doca_buf_chain_list(struct doca_buf *list1, struct doca_buf *list2);
doca_error_t doca_buf_dec_refcount(struct doca_buf *buf, uint16_t *refcount);
doca_error_t doca_buf_get_data(const struct doca_buf *buf, void **data);
doca_error_t doca_buf_get_data_len(const struct doca_buf *buf, size_t *data_len);
doca_error_t doca_buf_get_head(const struct doca_buf *buf, void **head);
doca_error_t doca_buf_get_len(const struct doca_buf *buf, size_t *len);
doca_error_t doca_buf_get_refcount(const struct doca_buf *buf, uint16_t *refcount);
doca_error_t doca_buf_inventory_buf_dup(struct doca_buf_inventory *inventory,
    const struct doca_buf *src_buf, struct doca_buf **dst_buf);
doca_error_t doca_buf_inventory_buf_get_by_args(struct doca_buf_inventory *inventory,
    struct doca_mmap *mmap, void *addr, size_t len, void *data, size_t data_len,
    struct doca_buf **buf);
doca_error_t doca_buf_inventory_create(size_t num_elements, struct doca_buf_inventory **inventory);
doca_error_t doca_buf_inventory_destroy(struct doca_buf_inventory *inventory);
doca_error_t doca_buf_inventory_get_num_elements(const struct doca_buf_inventory *inventory,
    uint32_t *num_of_elements);
doca_error_t doca_buf_inventory_get_num_free_elements(const struct doca_buf_inventory *inventory,
    uint32_t *num_of_free_elements);
doca_error_t doca_buf_inventory_start(struct doca_buf_inventory *inventory);
doca_error_t doca_buf_inventory_stop(struct doca_buf_inventory *inventory);
doca_error_t doca_buf_reset_data_len(struct doca_buf *buf);
doca_error_t doca_buf_set_data(struct doca_buf *buf, void *data, size_t data_len);
doca_error_t doca_buf_unchain_list(struct doca_buf *list1, struct doca_buf *list2);

void doca_ctx_flush_tasks(struct doca_ctx *ctx);
doca_error_t doca_ctx_get_state(const struct doca_ctx *ctx, int *state);
doca_error_t doca_ctx_start(struct doca_ctx *ctx);
doca_error_t doca_ctx_stop(struct doca_ctx *ctx);

doca_error_t doca_pe_clear_notification(struct doca_pe *pe, doca_notification_handle_t handle);
doca_error_t doca_pe_connect_ctx(struct doca_pe *pe, struct doca_ctx *ctx);
doca_error_t doca_pe_create(struct doca_pe **pe);
doca_error_t doca_pe_destroy(struct doca_pe *pe);
doca_error_t doca_pe_get_notification_handle(const struct doca_pe *pe,
    doca_notification_handle_t *handle);
uint8_t doca_pe_progress(struct doca_pe *pe);
doca_error_t doca_pe_request_notification(struct doca_pe *pe);
void doca_task_free(struct doca_task *task);
doca_error_t doca_task_get_status(const struct doca_task *task);
doca_error_t doca_task_submit(struct doca_task *task);
doca_error_t doca_task_submit_ex(struct doca_task *task, uint32_t flags);

struct doca_ctx *doca_dma_as_ctx(struct doca_dma *dma);
doca_error_t doca_dma_cap_get_max_num_tasks(struct doca_dma *dma, uint32_t *max_num_tasks);
doca_error_t doca_dma_cap_task_memcpy_get_max_buf_list_len(const struct doca_devinfo *devinfo,
    uint32_t *max_buf_list_len);
doca_error_t doca_dma_cap_task_memcpy_get_max_buf_size(const struct doca_devinfo *devinfo,
    uint64_t *buf_size);
doca_error_t doca_dma_cap_task_memcpy_is_supported(const struct doca_devinfo *devinfo);
doca_error_t doca_dma_create(struct doca_dev *dev, struct doca_dma **dma);
doca_error_t doca_dma_destroy(struct doca_dma *dma);
doca_error_t doca_dma_task_memcpy_alloc_init(struct doca_dma *dma, const struct doca_buf *src,
    struct doca_buf *dst, uint64_t user_data, struct doca_dma_task_memcpy **task);
struct doca_task *doca_dma_task_memcpy_as_task(struct doca_dma_task_memcpy *task);
doca_error_t doca_dma_task_memcpy_set_conf(struct doca_dma *dma,
    doca_dma_task_memcpy_completion_cb_t task_completion_cb,
    doca_dma_task_memcpy_completion_cb_t task_error_cb, uint32_t num_memcpy_tasks);
void doca_dma_task_memcpy_set_dst(struct doca_dma_task_memcpy *task, struct doca_buf *dst);
void doca_dma_task_memcpy_set_src(struct doca_dma_task_memcpy *task, const struct doca_buf *src);
"""
