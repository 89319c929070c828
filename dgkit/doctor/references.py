"""Documents on which the checks are based."""

from __future__ import annotations

import msgspec


class Source(msgspec.Struct, frozen=True):
    """Section of a document."""

    document: str
    section: str
    url: str

    def __str__(self) -> str:
        return f"{self.document}, {self.section}" if self.section else self.document


class Document:
    """Document; calling it with the title of a section returns a Source."""

    def __init__(self, title: str, url: str = "") -> None:
        self.title, self.url = title, url

    def __call__(self, section: str = "") -> Source:
        """Return the Source of a section."""
        return Source(self.title, section, self.url)


GPUNETIO = Document(
    "NVIDIA DOCA GPUNetIO guide", "https://docs.nvidia.com/doca/sdk/doca-gpunetio/index.html"
)
GPUDIRECT = Document(
    "NVIDIA GPUDirect RDMA", "https://docs.nvidia.com/cuda/gpudirect-rdma/index.html"
)
DMA_SAMPLES = Document("NVIDIA DOCA DMA sample guide 1.3")
FORUM = Document("NVIDIA developer forum", "https://forums.developer.nvidia.com")
P2PDMA = Document(
    "Linux kernel, PCI peer-to-peer DMA", "https://docs.kernel.org/driver-api/pci/p2pdma.html"
)
P2PDMA_CODE = Document(
    "Linux kernel, drivers/pci/p2pdma.c",
    "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/drivers/pci/p2pdma.c",
)
GPU_OPERATOR = Document(
    "NVIDIA GPU Operator documentation",
    "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-rdma.html",
)
CUDA_COMPATIBILITY = Document(
    "NVIDIA CUDA Compatibility",
    "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
)
CUDA_DRIVER_API = Document(
    "CUDA Driver API", "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html"
)
DGX_SPARK = Document(
    "NVIDIA DGX Spark Porting Guide",
    "https://docs.nvidia.com/dgx/dgx-spark-porting-guide/porting/cuda.html",
)
GRACE_CX8 = Document(
    "NVIDIA Grace Blackwell with ConnectX-8, GPUDirect RDMA guide",
    "https://docs.nvidia.com/multi-node-nvlink-systems/grace-blackwell-cx8-gpudirect-rdma-guide/"
    "platform_software_and_configuration.html",
)
GRACE_SMMU = Document("NVIDIA/NV-Kernels", "https://github.com/NVIDIA/NV-Kernels/pull/22")
KEXEC_HANDOVER = Document("NVIDIA/NV-Kernels", "https://github.com/NVIDIA/NV-Kernels/pull/591")
NODEWRIGHT = Document("NVIDIA/nodewright-packages", "https://github.com/NVIDIA/nodewright-packages")
TALOS = Document("siderolabs/talos", "https://github.com/siderolabs/talos")
DEEPEP = Document("deepseek-ai/DeepEP", "https://github.com/deepseek-ai/DeepEP")
EFA_NCCL = Document("aws-ofi-nccl", "https://github.com/aws/aws-ofi-nccl")
NVIDIA_SMI = Document("nvidia-smi(1)", "https://docs.nvidia.com/deploy/nvidia-smi/index.html")
KERNEL_LOG = Document("the kernel's log (dmesg)")
XID = Document(
    "NVIDIA, Xid errors", "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"
)
IMEX = Document(
    "NVIDIA IMEX guide",
    "https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/imexchannels.html",
)
MIG = Document("NVIDIA MIG user guide", "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/")
NIXL = Document("ai-dynamo/nixl", "https://github.com/ai-dynamo/nixl")
NCCL = Document("NVIDIA/nccl", "https://github.com/NVIDIA/nccl")
NCCL_ENVIRONMENT = Document(
    "NCCL documentation",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
)
NVSHMEM = Document(
    "NVSHMEM documentation",
    "https://docs.nvidia.com/nvshmem/release-notes-install-guide/install-guide/abstract.html",
)
UCX = Document("UCX documentation", "https://openucx.readthedocs.io/en/master/faq.html")
CONFIDENTIAL = Document("NVIDIA/nvtrust", "https://github.com/NVIDIA/nvtrust")
CGROUP_DEVICES = Document(
    "Linux kernel, device whitelist controller",
    "https://docs.kernel.org/admin-guide/cgroup-v1/devices.html",
)
CDI = Document(
    "NVIDIA Container Toolkit, CDI",
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html",
)
OPEN_MODULES = Document(
    "NVIDIA open GPU kernel modules", "https://github.com/NVIDIA/open-gpu-kernel-modules"
)
DRIVER_GUIDE = Document(
    "NVIDIA driver installation guide",
    "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html",
)
UBUNTU_PEERMEM = Document(
    "Ubuntu, NVIDIA GPUDirect over InfiniBand migration paths",
    "https://discourse.ubuntu.com/t/nvidia-gpudirect-over-infiniband-migration-paths/44425",
)
NV_PEER_MEMORY = Document("Mellanox/nv_peer_memory", "https://github.com/Mellanox/nv_peer_memory")
GDRCOPY = Document("GDRCopy", "https://github.com/NVIDIA/gdrcopy")
MODES = Document(
    "NVIDIA BlueField modes of operation",
    "https://docs.nvidia.com/doca/sdk/BlueField+Modes+of+Operation/index.html",
)
RESETS = Document(
    "NVIDIA BlueField reset and reboot procedures",
    "https://docs.nvidia.com/doca/sdk/NVIDIA+BlueField+Reset+and+Reboot+Procedures/index.html",
)
REPRESENTORS = Document(
    "NVIDIA DPU kernel representors model",
    "https://docs.nvidia.com/doca/sdk/DPU+Kernel+Representors+Model/index.html",
)
RSHIM = Document(
    "NVIDIA BlueField BSP, host-side interface configuration",
    "https://docs.nvidia.com/networking/display/BlueFieldDPUOSv390/"
    "Host-side+Interface+Configuration",
)
DOCA = Document("NVIDIA DOCA documentation", "https://docs.nvidia.com/doca/sdk/index.html")
DOCA_SUPPORT = Document(
    "NVIDIA DOCA documentation, General Support",
    "https://docs.nvidia.com/doca/archive/3-2-2/General+Support",
)
DOCA_FIRMWARE = Document(
    "NVIDIA DOCA documentation, Firmware Compatibility Matrix",
    "https://docs.nvidia.com/doca/sdk/Firmware+Compatibility+Matrix/index.html",
)
MLNX_OFED = Document(
    "NVIDIA MLNX_OFED documentation",
    "https://docs.nvidia.com/networking/display/mlnxofedv24040700/introduction",
)
RDMA_CORE = Document("rdma-core", "https://github.com/linux-rdma/rdma-core")
RDMA_TOPO = Document(
    "rdma-core, rdma_topo",
    "https://github.com/linux-rdma/rdma-core/blob/master/kernel-boot/rdma_topo",
)
RDMA_DMABUF = Document(
    "Linux kernel, RDMA memory regions of a dma-buf",
    "https://git.kernel.org/torvalds/c/bfe0cc6eb2491aeae2bba02a305fcce13cd90624",
)
DEVICE_PRIVATE = Document(
    "Phoronix, NVIDIA's patches for RDMA on device-private pages (2024-10-15)",
    "https://www.phoronix.com/news/Linux-GPU-P2P-DMA-Device-Priv",
)
DEVICE_PRIVATE_REVIEW = Document(
    "Linux mailing list, RDMA on device-private pages, version 2 (2025-07-20)",
    "https://lists.freedesktop.org/archives/dri-devel/2025-July/516182.html",
)
HMM = Document(
    "Linux kernel, Heterogeneous Memory Management", "https://docs.kernel.org/mm/hmm.html"
)
CUDA_HMM = Document(
    "NVIDIA, Simplifying GPU Application Development with HMM",
    "https://developer.nvidia.com/blog/"
    "simplifying-gpu-application-development-with-heterogeneous-memory-management/",
)
IOMMU_GROUPS = Document(
    "Linux kernel, sysfs-kernel-iommu_groups",
    "https://docs.kernel.org/admin-guide/abi-testing.html",
)
KERNEL_PARAMETERS = Document(
    "Linux kernel, kernel parameters",
    "https://docs.kernel.org/admin-guide/kernel-parameters.html",
)
CUDA_GUIDE = Document(
    "CUDA C++ Programming Guide", "https://docs.nvidia.com/cuda/cuda-c-programming-guide/"
)
MULTI_GPU = Document(
    "NVIDIA Maxine, PCIe Multi-GPU Systems",
    "https://docs.nvidia.com/maxine/triton/latest/Appendicies/PCIeMultiGPUSystems.html",
)
RED_HAT_RDMA = Document(
    "Red Hat, Configuring InfiniBand and RDMA networks",
    "https://docs.redhat.com/en/documentation/red_hat_enterprise_linux/9/html/"
    "configuring_infiniband_and_rdma_networks/",
)
GETRLIMIT = Document("getrlimit(2)", "https://man7.org/linux/man-pages/man2/getrlimit.2.html")
CONTAINER_TOOLKIT = Document(
    "NVIDIA Container Toolkit",
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/",
)
VFIO = Document("Linux kernel, VFIO", "https://docs.kernel.org/driver-api/vfio.html")
VM_TUNING = Document(
    "NVIDIA AI Enterprise, optimizing VM configuration for AI inference",
    "https://docs.nvidia.com/ai-enterprise/planning-resource/optimizing-vm-configuration-ai-inference/"
    "latest/appendix.html",
)
SYSFS_INFINIBAND = Document(
    "Linux kernel, sysfs-class-infiniband",
    "https://docs.kernel.org/admin-guide/abi-stable.html",
)
SYSFS_PCI = Document(
    "Linux kernel, ABI of /sys/bus/pci", "https://docs.kernel.org/admin-guide/abi-testing.html"
)
PCI_SPEEDS = Document(
    "Linux kernel, drivers/pci/pci.h",
    "https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/drivers/pci/pci.h",
)
NUMA_ABI = Document(
    "Linux kernel, ABI of NUMA nodes", "https://docs.kernel.org/admin-guide/abi-stable.html"
)
AI_ENTERPRISE = Document(
    "NVIDIA AI Enterprise, vGPU",
    "https://docs.nvidia.com/ai-enterprise/release-7/latest/infra-software/vgpu/features/"
    "gpudirect.html",
)
DGKIT = Document("dgkit's README")
DGKIT_DMA = Document("dgkit/dma/README.md")
DGKIT_DOCA = Document("dgkit/doca/README.md")
