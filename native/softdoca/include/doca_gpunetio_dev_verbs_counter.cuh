/* SPDX-License-Identifier: Apache-2.0 */
/* GPUNetIO Verbs for device code, part 5: put with a counter. The counter is raised by a second queue
 * pair, which waits for the completion of the put: also peers that reorder see it after the bytes. */
#ifndef DOCA_GPUNETIO_DEV_VERBS_COUNTER_CUH
#define DOCA_GPUNETIO_DEV_VERBS_COUNTER_CUH

#include <doca_gpunetio_dev_verbs_onesided.cuh>

template <enum doca_gpu_dev_verbs_resource_sharing_mode sharing =
		  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
	  enum doca_gpu_dev_verbs_nic_handler handler = DOCA_GPUNETIO_VERBS_NIC_HANDLER_AUTO,
	  enum doca_gpu_dev_verbs_exec_scope scope = DOCA_GPUNETIO_VERBS_EXEC_SCOPE_THREAD>
DOCA_GPUNETIO_DEVICE void doca_gpu_dev_verbs_put_counter(
	struct doca_gpu_dev_verbs_qp *qp, struct doca_gpu_dev_verbs_addr raddr,
	struct doca_gpu_dev_verbs_addr laddr, size_t size, struct doca_gpu_dev_verbs_qp *companion,
	struct doca_gpu_dev_verbs_addr counter_raddr, struct doca_gpu_dev_verbs_addr counter_laddr,
	uint64_t counter_val, uint32_t code_opt = DOCA_GPUNETIO_VERBS_GPU_CODE_OPT_DEFAULT)
{
	doca_gpu_dev_verbs_ticket_t put;
	doca_gpu_dev_verbs_put<sharing, handler, scope>(qp, raddr, laddr, size, &put, code_opt);
	doca_priv_gpu_dev_verbs_post<sharing, handler, scope>(
		companion, 2, 0, code_opt,
		[=](struct doca_gpu_dev_verbs_wqe *wqe, uint64_t index, uint32_t part) {
			if (part == 0)
				doca_gpu_dev_verbs_wqe_prepare_wait(
					companion, wqe, (uint16_t)index,
					DOCA_GPUNETIO_IB_MLX5_WQE_CTRL_CQ_UPDATE, (uint32_t)put,
					__ldg(&qp->cq_sq.cq_num));
			else
				doca_priv_gpu_dev_verbs_fetch_add(companion, wqe, index,
								  counter_raddr, counter_laddr,
								  counter_val);
		});
}

#endif
