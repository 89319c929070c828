// SPDX-License-Identifier: Apache-2.0
/* GPUs, over gpu/gpu.c, and the export of queue pairs to device code. */
#include <sched.h>
#include <stddef.h>

#include "verbs/verbs_objects.h"

struct doca_gpu_verbs_qp {
	struct object o;
	struct doca_gpu *gpu;
	struct doca_verbs_qp *qp;
	struct doca_gpu_dev_verbs_qp *device; /* the structure, at its GPU address */
	bool proxy;
};

#define CHECK_EXPORT(e) CHECK_OBJECT(e, OBJECT_VERBS_EXPORT, "an exported queue pair")

/* Words in host memory that the GPU writes to. */
enum { WORD_PRODUCER, WORD_DOORBELL, WORDS };

doca_error_t doca_gpu_create(const char *gpu_bus_id, struct doca_gpu **gpu_dev)
{
	return softdoca_gpu_create(gpu_bus_id, gpu_dev);
}

doca_error_t doca_gpu_destroy(struct doca_gpu *gpu_dev)
{
	return softdoca_gpu_destroy(gpu_dev);
}

doca_error_t doca_gpu_mem_alloc(struct doca_gpu *gpu_dev, size_t size, size_t alignment,
				enum doca_gpu_mem_type mtype, void **memptr_gpu, void **memptr_cpu)
{
	struct gpu_memory *m;
	CHECK_OUT(memptr_gpu);
	TRY(softdoca_gpu_alloc(gpu_dev, size, alignment, mtype, &m));
	*memptr_gpu = m->addr;
	if (memptr_cpu)
		*memptr_cpu = m->by_cpu ? m->addr : NULL;
	return DOCA_SUCCESS;
}

doca_error_t doca_gpu_mem_free(struct doca_gpu *gpu_dev, void *memptr_gpu)
{
	return softdoca_gpu_free(gpu_dev, memptr_gpu);
}

doca_error_t doca_gpu_dmabuf_fd(struct doca_gpu *gpu_dev, void *memptr_gpu, size_t size,
				int *dmabuf_fd)
{
	return softdoca_gpu_dmabuf_fd(gpu_dev, memptr_gpu, size, dmabuf_fd);
}

/* ---- export ---- */

static doca_error_t check_export(const struct doca_verbs_qp *qp,
				 enum doca_gpu_dev_verbs_nic_handler handler, const void *umem,
				 const struct doca_verbs_cq *cq_sq,
				 const struct doca_verbs_cq *cq_rq)
{
	const struct doca_verbs_qp_init_attr *a = &qp->init;
	if (handler == DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_BF)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED,
			      "the software NIC has no BlueFlame: use AUTO, "
			      "CPU_PROXY, GPU_SM_DB or GPU_SM_NO_DBR");
	if (cq_sq != a->send_cq || (cq_rq && cq_rq != a->receive_cq))
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%p and %p are not the completion queues of queue pair %u",
			      (const void *)cq_sq, (const void *)cq_rq, qp->number);
	if (umem && a->external.umem && umem != a->external.umem->addr)
		return REFUSE(DOCA_ERROR_INVALID_VALUE,
			      "%p is not the address of the umem of queue pair %u, %p", umem,
			      qp->number, (void *)a->external.umem->addr);
	if (qp->state > DOCA_VERBS_QP_STATE_INIT)
		return REFUSE(DOCA_ERROR_BAD_STATE,
			      "queue pair %u is past INIT, and the NIC reads its "
			      "doorbell",
			      qp->number);
	if (atomic_load(&qp->exported))
		return REFUSE(DOCA_ERROR_IN_USE, "queue pair %u is exported already", qp->number);
	return DOCA_SUCCESS;
}

/* Chooses the handler in use; TYPE_MAX, logged, if the queue pair cannot have the one asked for. */
static enum doca_gpu_dev_verbs_nic_handler choose(const struct doca_verbs_qp *qp,
						  enum doca_gpu_dev_verbs_nic_handler handler)
{
	const struct doca_verbs_qp_init_attr *a = &qp->init;
	bool no_record = a->send_dbr_mode == DOCA_VERBS_QP_SEND_DBR_MODE_NO_DBR_EXT;
	bool reachable = a->external_dbr.umem && a->external_dbr.umem->memory;
	const char *why = "it is none of AUTO, CPU_PROXY, GPU_SM_DB, GPU_SM_NO_DBR";
	switch (handler) {
	case DOCA_GPUNETIO_VERBS_NIC_HANDLER_CPU_PROXY:
		return handler;
	case DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO:
		return no_record   ? DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_NO_DBR
		       : reachable ? DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_DB
				   : DOCA_GPUNETIO_VERBS_NIC_HANDLER_CPU_PROXY;
	case DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_DB:
		if (no_record)
			return DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_NO_DBR;
		if (reachable)
			return handler;
		why = "the doorbell record is not memory of doca_gpu_mem_alloc()";
		break;
	case DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_NO_DBR:
		if (no_record)
			return handler;
		why = "the doorbell mode of the queue pair is DBR_VALID";
		break;
	default:
		break;
	}
	softdoca_log(DOCA_LOG_LEVEL_WARNING, "doca_gpu_verbs_export_qp", "NIC handler %#x: %s",
		     (unsigned)handler, why);
	return DOCA_GPUNETIO_VERBS_NIC_HANDLER_TYPE_MAX;
}

/* Allocates the structure and the words; the structure on the GPU unless the NIC reads it. */
static doca_error_t allocate(struct doca_gpu *gpu, bool nic_reads, struct gpu_memory **structure,
			     struct gpu_memory **words)
{
	TRY(softdoca_gpu_alloc_own(gpu, sizeof(struct doca_gpu_dev_verbs_qp), 64,
				   nic_reads ? DOCA_GPU_MEM_TYPE_CPU_GPU : DOCA_GPU_MEM_TYPE_GPU,
				   structure));
	doca_error_t error = softdoca_gpu_alloc_own(gpu, WORDS * sizeof(uint64_t), 64,
						    DOCA_GPU_MEM_TYPE_CPU_GPU, words);
	if (error)
		softdoca_gpu_drop(*structure);
	return error;
}

static __be32 *cq_record(const struct doca_verbs_cq *cq)
{
	return cq ? (__be32 *)(cq->ring + (size_t)cq->entries * CQE_BYTES) : NULL;
}

/* Sets the doorbell, and writes the structure. */
static doca_error_t connect_doorbell(struct doca_verbs_qp *qp,
				     enum doca_gpu_dev_verbs_nic_handler handler,
				     struct gpu_memory *structure, struct gpu_memory *words)
{
	const bool proxy = handler == DOCA_GPUNETIO_VERBS_NIC_HANDLER_CPU_PROXY;
	const bool no_record = handler == DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_NO_DBR;
	struct doca_gpu_dev_verbs_qp s;
	uint64_t *word = (uint64_t *)words->addr;
	char *producer = structure->addr + offsetof(struct doca_gpu_dev_verbs_qp, sq_wqe_pi);
	int rc = softdoca_nic.qp_set_doorbell(qp->qp,
					      proxy       ? DG_NIC_PROXY
					      : no_record ? DG_NIC_NO_RECORD
							  : DG_NIC_RECORD,
					      &word[proxy ? WORD_PRODUCER : WORD_DOORBELL],
					      no_record ? (uint64_t *)producer : &qp->own_producer);
	if (!rc)
		rc = softdoca_nic.qp_lay_out(qp->qp, &s);
	if (rc)
		return softdoca_failed("doca_gpu_verbs_export_qp", rc);
	s.cq_sq.dbrec = cq_record(qp->init.send_cq);
	s.cq_rq.dbrec = cq_record(qp->init.receive_cq);
	return softdoca_gpu_fill(structure, &s, sizeof s);
}

static doca_error_t export_qp(struct doca_gpu *gpu, struct doca_verbs_qp *qp,
			      enum doca_gpu_dev_verbs_nic_handler handler,
			      struct doca_gpu_verbs_qp *e)
{
	struct gpu_memory *structure, *words;
	TRY(allocate(gpu, handler == DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_NO_DBR, &structure,
		     &words));
	doca_error_t error = connect_doorbell(qp, handler, structure, words);
	if (!error) {
		struct gpu_memory *old = qp->structure, *old_words = qp->words;
		qp->structure = structure;
		qp->words = words;
		structure = old;
		words = old_words;
		e->gpu = gpu;
		e->qp = qp;
		e->device = (struct doca_gpu_dev_verbs_qp *)qp->structure->addr;
		e->proxy = handler == DOCA_GPUNETIO_VERBS_NIC_HANDLER_CPU_PROXY;
		atomic_store(&qp->exported, true);
		atomic_fetch_add(&gpu->exports, 1);
	}
	if (structure) {
		softdoca_gpu_drop(structure);
		softdoca_gpu_drop(words);
	}
	return error;
}

/* DOCA API reference, GPUNetIO: INVALID_VALUE. */
doca_error_t doca_gpu_verbs_export_qp(struct doca_gpu *gpu_dev, struct doca_dev *dev,
				      struct doca_verbs_qp *qp,
				      enum doca_gpu_dev_verbs_nic_handler nic_handler,
				      void *gpu_qp_umem_dev_ptr, struct doca_verbs_cq *cq_sq,
				      struct doca_verbs_cq *cq_rq,
				      struct doca_gpu_verbs_qp **qp_out)
{
	CHECK_GPU(gpu_dev);
	CHECK_OBJECT(dev, OBJECT_DEV, "an open device");
	CHECK_QP(qp);
	CHECK_OUT(qp_out);
	TRY(check_export(qp, nic_handler, gpu_qp_umem_dev_ptr, cq_sq, cq_rq));
	nic_handler = choose(qp, nic_handler);
	if (nic_handler == DOCA_GPUNETIO_VERBS_NIC_HANDLER_TYPE_MAX)
		return DOCA_ERROR_INVALID_VALUE;
	struct doca_gpu_verbs_qp *e = softdoca_object_new(OBJECT_VERBS_EXPORT, sizeof *e);
	if (!e)
		return REFUSE(DOCA_ERROR_NO_MEMORY, "no memory for an export");
	doca_error_t error = export_qp(gpu_dev, qp, nic_handler, e);
	if (error)
		softdoca_object_free(e);
	else
		*qp_out = e;
	return error;
}

/* The structure and its doorbells last as long as the queue pair. */
doca_error_t doca_gpu_verbs_unexport_qp(struct doca_gpu *gpu_dev, struct doca_gpu_verbs_qp *qp)
{
	CHECK_GPU(gpu_dev);
	CHECK_EXPORT(qp);
	atomic_store(&qp->qp->exported, false);
	atomic_fetch_sub(&qp->gpu->exports, 1);
	softdoca_object_free(qp);
	return DOCA_SUCCESS;
}

GETTER(doca_gpu_verbs_get_qp_dev, CHECK_EXPORT, struct doca_gpu_verbs_qp,
       struct doca_gpu_dev_verbs_qp *, handle->device)

doca_error_t doca_gpu_verbs_cpu_proxy_progress(struct doca_gpu_verbs_qp *qp)
{
	CHECK_EXPORT(qp);
	if (!qp->proxy)
		return REFUSE(DOCA_ERROR_NOT_SUPPORTED, "queue pair %u has no CPU proxy",
			      qp->qp->number);
	sched_yield();
	return DOCA_SUCCESS;
}
