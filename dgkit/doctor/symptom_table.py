"""Error texts of other programs and of the kernel: what each means, and what may cause it."""

from __future__ import annotations

import re

import msgspec

from .finding import Verdict
from .goals import Goal


class Cause(msgspec.Struct, frozen=True):
    """A possible cause of an error text.

    Attributes:
        text: The cause, as a sentence.
        checks: Checks that warn or fail if it is the cause; none if no check looks for it.
        remedy: Commands or instructions (`#`) where no check has its own.
        says: Text that a finding has if it is about this cause.
    """

    text: str
    checks: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()
    says: str = ""


class Symptom(msgspec.Struct, frozen=True, kw_only=True):
    """An error text.

    Attributes:
        program: Program that prints it.
        pattern: Regular expression within one line.
        means: Meaning, as a sentence.
        source: Public thread or page in which it was explained.
        causes: Possible causes, the likeliest first.
        goal: Goal of those who see it.
        severity: Of a text of the kernel: FAIL if the device does not work after it, OK if it says
            nothing about the machine.
    """

    program: str
    pattern: re.Pattern[str]
    means: str
    source: str
    causes: tuple[Cause, ...]
    goal: Goal = Goal.RDMA
    severity: Verdict = Verdict.WARN


class Name(msgspec.Struct, frozen=True):
    """Something that an error text may name, known text or not.

    Attributes:
        pattern: Regular expression of the name.
        what: What it is; ends the sentence "It names ...".
        checks: Checks that concern it.
    """

    pattern: re.Pattern[str]
    what: str
    checks: tuple[str, ...]


KERNEL = "the kernel"
_GITHUB = "https://github.com/"
_NO_GID = Cause(
    "The RoCE port has no GID in this network namespace.", ("rdma-devices",), says="GID"
)
_NO_LINK = Cause("No port has a link.", ("rdma-devices",), says="link")
_NO_PEERMEM = Cause("nvidia-peermem is not loaded.", ("peermem",))
_NO_DMABUF = Cause(
    "GPU memory cannot be exported as a dma-buf.", ("dmabuf-gpu", "driver-flavour", "kernel-p2pdma")
)
_NO_GPUDIRECT = Cause("This GPU or platform has no GPUDirect RDMA.", ("gpudirect-platform",))
_BAR1 = Cause("BAR1 of the GPU is too small for the region.", ("bar1-size",))
_ACS = Cause("ACS of a bridge redirects traffic between GPU and NIC.", ("acs",))
_IOMMU = Cause("The IOMMU translates addresses between the devices.", ("iommu",))
_MEMLOCK = Cause("The limit of locked memory is too low.", ("memlock", "memlock-queues"))
_NO_DEVICE_FILES = Cause(
    "The container lacks /dev/infiniband.", ("container", "rdma-devices"), says="container"
)
_NO_LIBRARY = Cause(
    "The NIC's library is not in this system or image.", ("rdma-devices",), says="library"
)
_OVERRIDE = Cause("PeerMappingOverride=1 is not set, and this is not root.", ("driver-registry",))
_FABRIC = Cause(
    "The fabric manager does not run, or is of another version.", ("nvlink-fabric", "cuda-driver")
)
_WRONG_MODULES = Cause(
    "The kernel modules, open or closed, do not support this GPU.", ("driver-loaded",)
)
_OTHER_GID = Cause(
    "The GID index is not that of RoCE v2 of the subnet: compare `show_gids`.",
    (),
    ("export NCCL_IB_GID_INDEX=3  # the index that show_gids gives for v2 and the IPv4 address",),
)
_RAILS = Cause(
    "Each rail is a network of its own: NICs of different numbers do not reach each other.",
    (),
    ("export NCCL_CROSS_NIC=0  # NVIDIA/nccl, issue 2013",),
)
_EXPANDABLE = Cause(
    "The memory is PyTorch's of expandable segments.",
    (),
    ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",),
)
_REBUILD = Cause("The module was built for another ib_core or driver.", ("peermem",))


def _symptom(
    program: str,
    pattern: str,
    means: str,
    source: str,
    *causes: Cause,
    goal: Goal = Goal.RDMA,
    severity: Verdict = Verdict.WARN,
) -> Symptom:
    address = source if source.startswith("https:") else f"{_GITHUB}{source}"
    found = re.compile(pattern, re.IGNORECASE)
    return Symptom(
        program=program, pattern=found, means=means, source=address, causes=causes, goal=goal,
        severity=severity,
    )  # fmt: skip


# Texts of a cause before texts of its consequences: the first that matches leads the page.
SYMPTOMS = (
    # libibverbs, which most of the others use
    _symptom(
        "libibverbs", r"does not support the kernel ABI of \d{1,3}",
        "The library of the NIC is older or newer than its kernel driver: the device is left out.",
        "sgl-project/sglang/issues/16242",
        Cause("rdma-core of this system or image does not fit the driver: install that release.",
              ("rdma-core", "ofed-version")),
    ),
    _symptom(
        "libibverbs", r"no userspace device-specific driver found|couldn't open config directory",
        "The kernel has the NIC, and no library for it is installed where the program runs.",
        "horovod/horovod/issues/1117", _NO_LIBRARY, _NO_DEVICE_FILES,
    ),
    _symptom(
        "libibverbs", r"Failed to get IB devices list: Function not implemented",
        "The module ib_uverbs is not there: the RDMA drivers are stopped.",
        "Oneflow-Inc/oneflow/pull/9115", Cause("The RDMA drivers are stopped.", ("rdma-devices",)),
    ),
    _symptom(
        "NCCL", r"NET/IB : No device found",
        "NCCL sees no RDMA device that is up, and takes TCP instead.",
        "NVIDIA/nccl/issues/941", _NO_DEVICE_FILES, _NO_LIBRARY, _NO_LINK,
        Cause("NCCL_IB_HCA names other devices."),
    ),
    _symptom(
        "libfabric", r"Unable to register MR of \d{1,15} bytes: Bad address",
        "The NIC could not register the memory: without a dma-buf, not that of another process.",
        "perplexityai/pplx-garden/issues/4",
        Cause("The kernel is too old for a dma-buf.", ("kernel-version", "dmabuf-gpu")),
        _NO_DMABUF, _NO_PEERMEM, _NO_GPUDIRECT,
    ),
    _symptom(
        "NCCL", r"ibv_open_device failed|Unable to open device mlx5",
        "The device exists, and this process may not open it.",
        "NVIDIA/nccl/issues/451", _NO_DEVICE_FILES,
    ),
    _symptom(
        "NCCL", r"ibv_modify_qp failed[^\n]{0,40}No such device",
        "The queue pair cannot connect: the port's GID is not of this network namespace.",
        "NVIDIA/nccl/issues/925", _NO_GID, _OTHER_GID,
        Cause("A virtual function has no interface in the container."),
    ),
    _symptom(
        "NCCL", r"ibv_modify_qp failed[^\n]{0,60}(?:Network is unreachable|timed out|Invalid arg)",
        "The queue pair cannot connect: no route from this GID to the other machine's.",
        "NVIDIA/nccl-tests/issues/185", _OTHER_GID, _NO_GID, _NO_LINK, _RAILS,
    ),
    _symptom(
        "NCCL", r"(?:error|status)[ =]12\b[^\n]{0,60}vendor err 129",
        "A time-out: the two NICs do not reach each other over this network.",
        "NVIDIA/nccl/issues/426", _OTHER_GID, _NO_LINK,
        Cause("The switch drops the packets: try ib_write_bw between the same two ports."),
    ),
    _symptom(
        "NCCL", r"(?:error|status)[ =]4\b[^\n]{0,60}vendor err 81",
        "The NIC could not access GPU memory on its own machine (local protection error).",
        "NVIDIA/nccl/issues/214", _ACS, _IOMMU,
    ),
    _symptom(
        "perftest", r"Failed status 4\b[^\n]{0,40}syndrom 0x51",
        "The NIC could not access GPU memory on its own machine (local protection error).",
        "linux-rdma/perftest/issues/173", _ACS, _IOMMU,
        Cause("A guest's GPU lies at addresses that its NIC does not reach: lower the MMIO base.",
              ("virtual-machine",)),
    ),
    _symptom(
        "libibverbs", r"ibv_reg_dmabuf_mr[^\n]{0,120}failed",
        "The NIC's driver cannot register a dma-buf; a later NCCL takes peermem instead by itself.",
        "NVIDIA/nccl/issues/778",
        Cause("The NIC's driver is too old for a dma-buf.", ("rdma-dmabuf", "ofed-version")),
        Cause("NCCL should use peermem.", ("peermem",), ("export NCCL_DMABUF_ENABLE=0",)),
    ),
    _symptom(
        "NCCL", r"(?:dlvsym failed on|undefined symbol:) mlx5dv_get_data_direct_sysfs_path",
        "Harmless: NCCL looks for a function that only a later libmlx5 has, and goes on without.",
        "vllm-project/vllm/issues/42750",
        Cause("If GPUDirect RDMA is not used, it has another cause.",
              ("peermem", "dmabuf-gpu", "rdma-dmabuf")),
        Cause("One pod lacked GDRCopy: its device file, or the module gdrdrv of the node."),
    ),
    _symptom(
        "NCCL", r"Message truncated ?: ?received \d{1,12} bytes instead of",
        "Two ranks expect messages of different sizes: of the program, not of the machine.",
        "NVIDIA/nccl/pull/605",
        Cause("Ranks differ in a collective's size, or in the variables of NCCL."),
        Cause("In bootstrap.cc of NCCL 2.19 and 2.20: users were helped by another release.",
              (), ("# NVIDIA/nccl, issues 1176 and 1273",)),
    ),
    _symptom(
        "NCCL", r"Failed to open libibverbs\.so",
        "libibverbs is not installed where the program runs, as in an image: NCCL takes TCP.",
        "NVIDIA/nccl-tests/issues/100", Cause("There is no libibverbs.", ("rdma-core",)),
    ),
    _symptom(
        "NCCL", r"GPU Direct RDMA Disabled",
        "NCCL copies through host memory, by its own decision.",
        "NVIDIA/nccl/issues/1676", _NO_PEERMEM, _NO_DMABUF,
        Cause("GPU and NIC are further apart than NCCL_NET_GDR_LEVEL.", ("topology",),
              ("export NCCL_NET_GDR_LEVEL=PHB  # or SYS",)),
        Cause("NCCL is 2.22.3 or older, and does not see the newer nvidia-peermem: update NCCL."),
    ),
    _symptom(
        "NVSHMEM", r"neither nv_peer_mem,? or nvidia_peermem detected",
        "NVSHMEM looks for nvidia-peermem by a folder of older drivers.",
        "deepseek-ai/DeepEP/issues/223", _NO_PEERMEM,
        Cause("peermem is loaded, and this NVSHMEM does not see it: use 3.4.5 or later."),
    ),
    _symptom(
        "NVSHMEM", r"(?:cannot allocate|failed[^\n]{0,30}) ?mlx5dv_devx_uar|mlx5dv_devx_alloc_uar",
        "IBGDA may not create its doorbell page: a container without privileges.",
        "sgl-project/sglang/issues/12533", _OVERRIDE,
        Cause("The container lacks the privileges for DEVX.", ("container",),
              ("# Start the container with --privileged.",)),
        goal=Goal.GPUNETIO,
    ),
    _symptom(
        "NVSHMEM", r"init failed for transport: IBGDA|ibgda_alloc_and_map_qp_uar with GPU",
        "The GPU may not ring the NIC's doorbell; NVSHMEM may use a CPU thread instead.",
        "deepseek-ai/DeepEP/issues/397", _OVERRIDE, _NO_PEERMEM,
        Cause("There is no mlx5 device, which IBGDA needs.", ("rdma-devices",)), goal=Goal.GPUNETIO,
    ),
    _symptom(
        "NVSHMEM", r"non-zero status: \d{1,3} ibv_modify_qp failed|Unable to create ah",
        "A queue pair of two machines cannot connect: no route, or what they exchanged is damaged.",
        "NVIDIA/nvshmem/pull/97", _NO_GID, _NO_LINK, _RAILS,
        Cause("NVSHMEM up to 3.7.1 mixes up what the machines exchange over TCP under load.",
              (), ("# Start it again; if it only fails sometimes: NVIDIA/nvshmem, pull 97",)),
    ),
    _symptom(
        "NVSHMEM", r"is not enumerated as an mlx5 device",
        "NVSHMEM leaves the device out: it goes by its name.",
        "deepseek-ai/DeepEP/issues/386",
        Cause("An mlx5 device was renamed: give it a name that begins with mlx5."),
        Cause("The NIC is not NVIDIA's: IBGDA needs an mlx5 device."), goal=Goal.GPUNETIO,
    ),
    _symptom(
        "Mooncake", r"Failed to modify QP to RTR",
        "The queue pair cannot connect: this GID or NIC does not reach the other machine's.",
        "kvcache-ai/Mooncake/issues/204", _NO_GID, _NO_LINK, _RAILS, _OTHER_GID,
    ),
    _symptom(
        "libfabric", r"Protocol not supported[^\n]{0,20}\), context: fi_mr_reg",
        "The NIC's driver does not register a dma-buf.",
        "perplexityai/pplx-garden/issues/1",
        Cause("Driver or kernel are too old for a dma-buf.", ("rdma-dmabuf", "kernel-version")),
        Cause("The program should not ask for a dma-buf here: pplx-garden has mended it."),
    ),
    _symptom(
        "NVSHMEM", r"Peer GPU \d{1,4} is not accessible, exiting",
        "No transport of NVSHMEM joins two GPUs: neither NVLink or PCIe, nor RDMA.",
        "deepseek-ai/DeepEP/issues/223", _NO_PEERMEM, _NO_DEVICE_FILES, _NO_LINK,
    ),
    _symptom(
        "NVSHMEM", r"init failed for remote transport: ibrc",
        "NVSHMEM finds no RDMA device that it can use, or no peermem.",
        "deepseek-ai/DeepEP/issues/55", _NO_DEVICE_FILES, _NO_PEERMEM, _NO_LIBRARY, _NO_LINK,
    ),
    _symptom(
        "NVSHMEM", r"mlx5dv_devx_obj_modify for INIT2RTR_QP",
        "A queue pair that a GPU drives cannot connect.",
        "deepseek-ai/DeepEP/issues/17", _NO_GID,
        Cause("This NVSHMEM does not support this RoCE network: 3.5.19 mended one such case.",
              (), ("# NVIDIA/nvshmem, issue 21",)),
    ),
    _symptom(
        "DeepEP", r"Unable to dlopen libmlx5dv|mlx5dv_open_device",
        "GPU-initiated RDMA needs an mlx5 device and its library.",
        "deepseek-ai/DeepEP/issues/759", _NO_LIBRARY,
        Cause("The NIC is not NVIDIA's."), goal=Goal.GPUNETIO,
    ),
    _symptom(
        "perftest", r"Couldn't allocate MR with error=93",
        "The kernel's RDMA driver does not know how to register a dma-buf.",
        "linux-rdma/perftest/issues/280",
        Cause("The kernel or MLNX_OFED has no registration of dma-bufs.", ("rdma-dmabuf",)),
        Cause("Libraries and kernel driver are of different releases.", ("ofed-version",)),
    ),
    _symptom(
        "perftest", r"Couldn't allocate MR|Couldn't register GPU MR",
        "The NIC could not register the memory.",
        "linux-rdma/perftest/issues/126", _NO_PEERMEM, _NO_GPUDIRECT, _BAR1, _MEMLOCK,
        Cause("Without peermem, perftest takes a dma-buf only if it is told to.", (),
              ("# add --use_cuda_dmabuf after --use_cuda=0",)),
    ),
    _symptom(
        "Mooncake", r"Failed to register memory 0x[0-9a-f]{1,16}: Bad address|MR registration fail",
        "The NIC could not register GPU memory.",
        "kvcache-ai/Mooncake/issues/351", _NO_PEERMEM, _NO_DMABUF, _EXPANDABLE,
    ),
    _symptom(
        "UCX", r"ibv_(?:exp_)?reg_mr[^\n]{0,80}(?:Bad address|bad access|Invalid argument)",
        "The NIC could not register the memory.",
        "openucx/ucx/issues/4513", _NO_PEERMEM, _BAR1, _NO_GPUDIRECT, _EXPANDABLE,
    ),
    _symptom(
        "UCX", r"ibv_create_(?:cq|qp|srq)\(\)? ?failed: Cannot allocate memory",
        "The process may not lock the memory of a queue.",
        "NVIDIA/cudf-spark/pull/7632", _MEMLOCK,
    ),
    _symptom(
        "UCX", r"mlx5dv_devx_create_event_channel\(\) failed: Protocol not supported",
        "The library of the NIC is newer than its kernel driver, as in a container.",
        "openucx/ucx/issues/6906",
        Cause("Libraries of MLNX_OFED 5 or a new rdma-core over an older driver: take one release.",
              ("ofed-version", "rdma-core")),
    ),
    _symptom(
        "UCX", r"ibv_modify_qp\(DCI, RTR\) failed|mlx5dv_devx_qp_modify\(\d{1,9}\) failed",
        "This UCX does not support the MLNX_OFED that is installed.",
        "openucx/ucx/issues/8604",
        Cause("MLNX_OFED is 4.9: install 5 or later, or use its own UCX.", ("ofed-version",)),
    ),
    _symptom(
        "UCX", r"network device '[^'\n]{1,40}' is not available",
        "UCX does not see that port: its library for RDMA is missing, or the port is down.",
        "nvidia-holoscan/holohub/issues/1259",
        Cause("The port is down, or hidden.", ("rdma-devices",)),
        Cause("UCX was built or installed without its module for InfiniBand: `ucx_info -d`."),
    ),
    _symptom(
        "UCX", r"failed to open memory domain mlx5",
        "UCX cannot use the device.", "openucx/ucx/issues/10541", _NO_DEVICE_FILES,
        Cause("A defect of this UCX release on a BlueField's Arm cores: try another release."),
    ),
    _symptom(
        "NIXL", r"NIXL_ERR_BACKEND",
        "UCX, below NIXL, cannot register or move the memory.",
        "ai-dynamo/nixl/issues/334", _NO_PEERMEM, _NO_DMABUF, _NO_GPUDIRECT,
        Cause("UCX has no CUDA support, or another UCX is loaded.", (),
              ("UCX_LOG_LEVEL=info python PROGRAM  # the libucp that it loads",)),
    ),
    # GPU-initiated RDMA
    _symptom(
        "NCCL GIN", r"gdaki[^\n]{0,120}DOCA failure 21|DOCA_ERROR_DRIVER\b",
        "The NIC's driver refused a queue pair that the GPU is to drive (DOCA error 21).",
        "NVIDIA/nccl/issues/2237", _OVERRIDE, _NO_PEERMEM,
        Cause("Driver or firmware of the NIC is too old.", ("firmware-version", "doca-version")),
        Cause("The InfiniBand port demands a GRH, which this release does not set.", (),
              ("export NCCL_GIN_TYPE=2  # the proxy, until a release that sets the GRH",)),
        goal=Goal.GPUNETIO,
    ),
    _symptom(
        "GPU-initiated RDMA",
        r"IOMEMORY[^\n]{0,99}(?:\b800\b|not.permitted)|HostRegister[^\n]{0,99}(?:\b800\b|permitted)",
        "The driver did not let this user map the NIC's doorbell for the GPU (CUDA error 800).",
        "deepseek-ai/DeepEP/issues/139", _OVERRIDE, goal=Goal.GPUNETIO,
    ),
    _symptom(
        "GPU-initiated RDMA", r"umem_reg[^\n]{0,60}(?:Bad address|EFAULT)",
        "The NIC could not register GPU memory for a queue: neither by peermem nor by a dma-buf.",
        "ROCm/mori/pull/560", _NO_PEERMEM, _NO_DMABUF, _NO_GPUDIRECT, goal=Goal.GPUNETIO,
    ),
    _symptom(
        "NIXL", r"Can't register memory for unknown device",
        "The memory is on a GPU that is not in the list given to the backend GPUNETIO.",
        "ai-dynamo/nixl/issues/987",
        Cause("The list names other GPUs.", (),
              ("# Give the backend this process's GPU: gpunetio_device_list, or gpu_devices.",)),
        goal=Goal.GPUNETIO,
    ),
    _symptom(
        "aws-ofi-nccl", r"cntr_open_ext failed: Function not implemented",
        "libfabric was built with an rdma-core that has no completion counters of EFA.",
        "aws/aws-ofi-nccl/issues/1369",
        Cause("rdma-core is older than this interface.", ("rdma-core",),
              ("# Build libfabric with a newer rdma-core; until then NCCL_GIN_TYPE=2.",)),
    ),
    # CUDA
    _symptom(
        "CUDA", r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|Error 802",
        "GPUs that NVSwitches join wait for the fabric manager.",
        "dstackai/dstack/issues/2348", _FABRIC, goal=Goal.P2P,
    ),
    _symptom(
        "CUDA", r"forward compatibility was attempted|Error 804",
        "The container's library of compatibility is for a later CUDA than this GPU may use.",
        "gpustack/gpustack/issues/1254", Cause("The driver is too old.", ("cuda-driver",)),
        goal=Goal.GPU,
    ),
    _symptom(
        "CUDA", r"device\(s\) is/are busy or unavailable|devices are busy or unavailable",
        "A GPU in exclusive mode has a process already.",
        "NVIDIA/nccl-tests/issues/369", Cause("The GPU is exclusive or full.", ("cuda-context",)),
        goal=Goal.GPU,
    ),
    _symptom(
        "CUDA", r"TOO_MANY_PEERS|peer mapping resources exhausted",
        "CUDA gives a GPU access to eight others at most, without NVSwitch.",
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/",
        Cause("There are more than nine GPUs.", ("gpu-peers",)), goal=Goal.P2P,
    ),
    _symptom(
        "CUDA", r"driver library init failure: 3|cuInit\(0\) failed -> CUDA_ERROR_NOT_INIT",
        "The driver's memory manager (HMM) does not start.",
        "ollama/ollama/issues/11593", Cause("HMM.", ("kernel-hmm", "cuda-driver")), goal=Goal.GPU,
    ),
    _symptom(
        "nvidia-smi", r"Failed to initialize NVML: Unknown Error",
        "The container lost its access to the GPUs, after `systemctl daemon-reload` for example.",
        "NVIDIA/nvidia-docker/issues/1671", Cause("Its device rules changed.", ("container",)),
        goal=Goal.GPU,
    ),
    _symptom(
        "nvidia-smi", r"Driver/library version mismatch",
        "The library was updated, and the module of the old version is still loaded.",
        "oddmario/NVIDIA-Ubuntu-Driver-Guide/issues/4",
        Cause("Restart the machine.", ("driver-loaded",)), goal=Goal.GPU,
    ),
    _symptom(
        "GDRCopy", r"nvidia_p2p_get_pages[^\n]{0,60}ret = -22",
        "The driver does not give this GPU's memory to other devices.",
        "NVIDIA/gdrcopy/issues/206", _NO_GPUDIRECT,
    ),
    # DOCA and BlueField
    _symptom(
        "DOCA", r"Failed to open DOCA device|Requested Resource Not Found|DOCA_ERROR_NOT_FOUND",
        "DOCA finds no device of that address, or another driver holds it.",
        "markchen7788/doca_ar/issues/4",
        Cause("vfio-pci holds the card, or no driver does.", ("rdma-devices",)),
        Cause("The card is in another mode.", ("bluefield-mode",)),
        Cause("The representor is missing.", ("bluefield-representors",)), goal=Goal.ARM_DMA,
    ),
    _symptom(
        "DOCA", r"failed to extract sockaddr_in",
        "DOCA finds no IPv4 address at the interface of the RDMA device.",
        "ai-dynamo/nixl/issues/1954",
        Cause("The ports are bonded, and the address is the bond's: the program has to take it.",
              (), ("ip -4 address show  # pass this address; NIXL: pull request 2052",)),
        Cause("The interface has no IPv4 address, or no GID of it.", ("rdma-devices",), says="GID"),
        goal=Goal.GPUNETIO,
    ),
    _symptom(
        "mstflint", r"checking if NV access registers are supported|check if NV access registers",
        "The card's firmware is not up, or a change waits for the power to be cut.",
        "Mellanox/mstflint/issues/1191", Cause("A mode change is pending.", ("bluefield-mode",)),
        goal=Goal.ARM_DMA,
    ),
    # the kernel
    _symptom(
        KERNEL, r"\bBAR [0-5](?:: | \[)[^\n]{0,80}(?:can't assign; no space|no space for"
        r"|failed to assign)|BAR\d is 0M|I/O region assigned to your NVIDIA device is invalid",
        "The firmware left no room for this device's memory window, so no driver can map it.",
        "HeyMeco/Rockchip-pcie-devices/issues/2",
        Cause("The bridges' windows are too small.", ("bar1-size", "bar1-resizable"),
              ("# BIOS: Above 4G Decoding, larger MMIO High Size; a guest: a larger 64-bit window.",
               "# Else add pci=realloc to the kernel's options.")),
        severity=Verdict.FAIL,
    ),
    _symptom(
        KERNEL, r"firmware: [^\n]{0,40}gsp_\w+\.bin|loading [^\n]{0,60}gsp_\w+\.bin[^\n]{0,30}fail"
        r"|firmware load for nvidia/[^\n]{0,60}failed",
        "The GSP firmware that belongs to this driver's version is not in /lib/firmware.",
        "NVIDIA/open-gpu-kernel-modules/issues/943",
        Cause("Module and firmware package are of different versions.", ("driver-loaded",),
              ("ls /lib/firmware/nvidia", "# Install firmware of the module's version.")),
        goal=Goal.GPU, severity=Verdict.FAIL,
    ),
    _symptom(
        KERNEL, r"VBIOS[^\n]{0,60}(?:too old|not supported|older than|requires? (?:an )?update)"
        r"|(?:old|unsupported|newer) (?:GPU )?VBIOS|FSP boot cmds failed|kfspPollForResponse",
        "The GPU's own firmware (VBIOS, FSP) does not start it with this driver.",
        "NVIDIA/nvtrust/issues/64",
        Cause("The VBIOS is too old for this driver or mode, or a reset is due.", (),
              ("# Cut the power; then ask the maker of the board or server for a newer VBIOS.",)),
        goal=Goal.GPU, severity=Verdict.FAIL,
    ),
    _symptom(
        KERNEL, r"not (?:been )?(?:supported|qualified) (?:on|by|for) this platform"
        r"|platform (?:is )?not supported|Chipset not recognized",
        "NVIDIA's driver does not know this platform: it may refuse to start a GPU there.",
        "geerlingguy/raspberry-pi-pcie-devices/issues/26",
        Cause("The board or chip set is not supported.", ("driver-loaded",),
              ("# Use a platform that NVIDIA's release notes list.",)),
        goal=Goal.GPU,
    ),
    _symptom(
        KERNEL, r"not supported by the NVIDIA [\d.]+ driver release|not supported by the [\d.]+\s",
        "This driver's version does not know the GPU: it is newer or older than the GPU.",
        "NVIDIA/nvtrust/issues/56",
        Cause("The driver's branch does not have this GPU.", ("driver-loaded",),
              ("# Install a branch whose README, Supported Products, lists the GPU's PCI ID.",)),
        goal=Goal.GPU,
    ),
    _symptom(
        KERNEL, r"Cannot initialize GSP|GSP firmware RM|kgspInitRm|kgspBootstrap|GSP[^\n]{0,40}boot"
        r"[^\n]{0,20}fail",
        "The GPU's system processor (GSP) did not start with this driver.",
        "NVIDIA/open-gpu-kernel-modules/issues/943",
        Cause("The driver does not fit the GPU, its VBIOS or its mode.", ("driver-loaded",),
              ("# Cut the power; then another release of the driver, and the board's VBIOS.",)),
        goal=Goal.GPU,
    ),
    _symptom(
        KERNEL, r"Xid \([^)]{0,40}\): (?:13|31|43|45),",
        "An error of a program that ran on the GPU (Xid 13, 31, 43, 45), not of the machine.",
        "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
        Cause("A program accessed memory that is not its own, or was stopped."),
        goal=Goal.GPU, severity=Verdict.OK,
    ),
    _symptom(
        KERNEL, r"Xid \([^)]{0,40}\): (?:119|120),|Timeout .{0,20}waiting for RPC from GSP",
        "The GPU's system processor (GSP) stopped answering: the GPU needs a reset.",
        "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
        Cause("A defect of the driver or the GPU.", ("driver-loaded",),
              ("# Reset the GPU or restart; then update the driver.",)), goal=Goal.GPU,
    ),
    _symptom(
        KERNEL, r"Xid \([^)]{0,40}\): (?:48|63|64|92|94|95|140|160|171|172),",
        "An error of the GPU's memory (ECC): rows may wait to be remapped, or the GPU is worn.",
        "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
        Cause("GPU memory.", (), ("nvidia-smi -q -d ROW_REMAPPER,ECC", "# Reset the GPU.")),
        goal=Goal.GPU,
    ),
    _symptom(
        KERNEL, r"request_mem_region failed|already (?:bound|in use) by|rivafb, nvidiafb",
        "Another driver has the GPU's memory.",
        "NVIDIA/open-gpu-kernel-modules/issues/322",
        Cause("nouveau, a frame buffer or vfio-pci holds the GPU.", ("driver-loaded",)),
        goal=Goal.GPU,
    ),
    _symptom(
        KERNEL, r"version magic '", "The module was built for another kernel than the running one.",
        "https://docs.kernel.org/kbuild/modules.html",
        Cause("The module is not of this kernel.", ("driver-loaded", "rdma-devices"),
              ("# Build it again for the running kernel (dkms autoinstall), then restart.",)),
        goal=Goal.GPU,
    ),
    _symptom(
        KERNEL, r"insufficient power on the PCIe slot",
        "The slot grants the card less power than it asks for: optical modules may stay off.",
        "https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/index.html",
        Cause("The slot's power limit.", (),
              ("# BIOS or BMC: the slot's power; else another slot.",)),
    ),
    _symptom(
        KERNEL, r"health (?:is )?compromised|device's health|assert_var|slot_reset[^\n]{0,99}"
        r"err = -|FW fatal|firmware[^\n]{0,20}fatal",
        "The NIC's firmware stopped, and its driver could not bring it back.",
        "MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark/issues/146",
        Cause("Firmware, heat or a defect.", ("firmware-version", "rdma-devices"),
              ("# Cut the power; then update the card's firmware.",)), severity=Verdict.FAIL,
    ),
    _symptom(
        KERNEL, r"ACCESS_REG\(0x805\)",
        "A question about a module or counter that this card does not answer; nothing is wrong.",
        "https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/index.html",
        Cause("Nothing is wrong."), severity=Verdict.OK,
    ),
    _symptom(
        KERNEL, r"(?:Port module event\[error\]|Cable error|Bad cable|High temperature)",
        "The cable or optical module of a port has an error.",
        "https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/index.html",
        Cause("Cable, module or heat.", ("rdma-devices",), ("# Change the cable or module.",)),
    ),
    _symptom(
        KERNEL, r"Key was rejected by service|Loading of (?:unsigned |)module (?:is|with unava)"
        r"|Lockdown: [^\n]{0,60}unsigned module",
        "Secure Boot refuses a module that is not signed with an enrolled key: any module.",
        "https://docs.kernel.org/admin-guide/module-signing.html",
        Cause("The module is not signed.", ("driver-loaded",),
              ("sudo mokutil --sb-state", "# Enrol the key of DKMS (mokutil --import), restart.")),
        goal=Goal.GPU, severity=Verdict.FAIL,
    ),
    _symptom(
        KERNEL, r"disagrees about version of symbol|Unknown symbol (?:ib|nvidia_p2p)_",
        "A module was built for another driver or MLNX_OFED than those that run.",
        "Mellanox/nv_peer_memory/issues/79", _REBUILD,
        Cause("MLNX_OFED is not built for this kernel.", ("ofed-version",)),
    ),
    _symptom(
        KERNEL, r"could not insert 'nv(?:idia)?_peer_?mem'",
        "The module does not start: ib_core of this kernel has no interface for it.",
        "siderolabs/talos/issues/12021", _REBUILD, _NO_DMABUF,
    ),
    _symptom(
        KERNEL, r"detected invalid context, skipping further processing",
        "Harmless: nvidia-peermem before driver 560 says so when a program ends.",
        "Mellanox/nv_peer_memory/issues/120",
        Cause("Nothing is wrong; the message ends with driver 560."), severity=Verdict.OK,
    ),
    _symptom(
        KERNEL, r"Firmware over \d{1,9} MS in pre-initializing state|Waiting for FW initialization",
        "The NIC's firmware does not start: mlx5_core gives up.",
        "mwrnd/innova2_flex_xcku15p_notes/issues/8",
        Cause("The firmware is damaged or of another card.", ("firmware-version",),
              ("# Cut the power for a minute; else write the firmware of its PSID again.",)),
        severity=Verdict.FAIL,
    ),
    _symptom(
        KERNEL, r"handle_hca_cap failed",
        "The NIC's firmware refuses what its driver sets: the module is older than the firmware.",
        "pocopico/rp-ext/issues/129",
        Cause("Driver and firmware do not fit.", ("rdma-devices", "firmware-version"),
              ("# Install a newer mlx5_core: the distribution's kernel, or DOCA-Host.",)),
    ),
    _symptom(
        KERNEL, r"mlx5_core[^\n]{0,60}(?:mlx5_load_one|probe)[^\n]{0,40}failed with error",
        "The NIC's driver does not fit its firmware, or has no room for its memory.",
        "Mellanox/mstflint/issues/448",
        Cause("No driver holds the NIC.", ("rdma-devices", "firmware-version")),
    ),
    _symptom(
        KERNEL, r"Xid \(PCI:[0-9A-Fa-f:.]{5,16}\): (?:74|14[4-9]|150),",
        "An error of NVLink: copies between these GPUs can hang until they are reset.",
        "NVIDIA/open-gpu-kernel-modules/issues/1355",
        Cause("NVLink had an error since the start.", ("nvlink-fabric",)),
        goal=Goal.P2P,
    ),
    _symptom(
        KERNEL, r"Xid[^\n]{0,60}\b79\b|fallen off the bus",
        "The GPU does not answer any more: power, seat, heat, or a defect.",
        "NVIDIA/open-gpu-kernel-modules/issues/1151",
        Cause("The GPU is lost until the power is cut.", ("driver-loaded", "gpu-present"),
              ("# Cut the power, not only restart; check power cables, seat and temperature.",)),
        goal=Goal.GPU, severity=Verdict.FAIL,
    ),
    _symptom(
        KERNEL, r"requires use of the NVIDIA open kernel modules|not supported by open nvidia\.ko",
        "The other kind of the driver's modules is needed.",
        "NVIDIA/open-gpu-kernel-modules/issues/1027", _WRONG_MODULES, goal=Goal.GPU,
    ),
    _symptom(
        KERNEL, r"RmInitAdapter failed",
        "The driver could not start the GPU.", "NVIDIA/open-gpu-kernel-modules/issues/862",
        _WRONG_MODULES, Cause("The BIOS maps too little memory.", ("bar1-resizable", "bar1-size")),
        goal=Goal.GPU,
    ),
    _symptom(
        KERNEL, r"don't match with driver version",
        "Fabric manager and driver have to be of the same version.",
        "NVIDIA/gpu-operator/issues/544", _FABRIC, goal=Goal.P2P,
    ),
    _symptom(
        KERNEL, r"(?:DMAR|AMD-Vi|arm-smmu)[^\n]{0,100}(?:fault|IO_PAGE_FAULT)",
        "The IOMMU refused an access: a device used an address that is not mapped for it.",
        "https://docs.kernel.org/arch/x86/iommu.html", _IOMMU, _ACS,
    ),
    _symptom(
        KERNEL, r"topology not supported",
        "NVIDIA's driver refuses peers that no switch connects on this chip set.",
        "NVIDIA/open-gpu-kernel-modules/blob/main/kernel-open/nvidia/nv-pci.c",
        Cause("GPU and NIC are too far apart.", ("topology", "iommu")),
    ),
    _symptom(
        KERNEL, r"AER:[^\n]{0,60}(?:Uncorrect|Fatal)|PCIe Bus Error: severity=(?:Uncorrect|Fatal)",
        "A PCIe link has errors that are not corrected: seat, riser, cable.",
        "https://docs.kernel.org/PCI/pcieaer-howto.html",
        Cause("A bad link.", ("link",),
              ("# Reseat card, riser or cable; if soldered: the maker's firmware, service.",)),
        severity=Verdict.FAIL,
    ),
    # what leads to more than one of the above
    _symptom(
        "CUDA", r"cuMemCreate[^\n]{0,80}(?:not permitted|NOT_PERMITTED)"
        r"|\bIMEX\b[^\n]{0,40}(?:channel|daemon|service|fail|not )|nvidia-imex",
        "Fabric handles need an IMEX channel; one machine does not need such handles.",
        "NVIDIA/nvbandwidth/issues/39", Cause("No IMEX channel.", ("imex",)), goal=Goal.P2P,
    ),
)  # fmt: skip


def _name(pattern: str, what: str, *checks: str) -> Name:
    return Name(re.compile(rf"(?<![\w.])(?:{pattern})(?![a-z])", re.IGNORECASE), what, checks)


# The narrower ones first: a part of a text is taken by the first that matches it.
NAMES = (
    _name(r"amdgpu|amdkfd|kfd|rocm\w*|rccl|hip[A-Z]\w*", "an AMD GPU, which is not judged here",
          "other-gpus"),
    _name(
        r"nvidia[-_]peermem|nv_peer_mem|nvidia_p2p_\w+", "GPUDirect RDMA's kernel module", "peermem"
    ),
    _name(r"gdrdrv|gdrcopy|gdr_\w+|libgdrapi", "GDRCopy", "gdrcopy"),
    _name(r"nvidia-imex|imex", "IMEX", "imex"),
    _name(r"fabric ?manager|nvswitch|nvlink", "NVLink's fabric", "nvlink-fabric"),
    _name(r"dma[-_]?buf\w*", "a dma-buf", "dmabuf-gpu", "rdma-dmabuf", "kernel-p2pdma"),
    _name(
        r"bar ?[0-5]|bar1|resizable bar|rebar", "a PCI memory window", "bar1-size", "bar1-resizable"
    ),
    _name(
        r"nvrm|xid|nvidia(?:[-_](?:uvm|modeset|drm))?|libnvidia-\w+|nvml\w*|gsp",
        "NVIDIA's driver", "driver-loaded", "driver-version", "cuda-driver",
    ),
    _name(
        r"cuda\w*|cu(?:Ctx|Mem|Init|Device|Stream|Launch|Module)\w*|libcuda\w*",
        "CUDA", "cuda-driver", "cuda-context", "driver-loaded",
    ),
    _name(
        r"rshim|tmfifo\w*|bluefield\w*|mlxbf\w*",
        "a BlueField", "bluefield-present", "bluefield-mode", "bluefield-tmfifo",
    ),
    _name(r"doca\w*|libdoca\w*|gpunetio", "DOCA", "doca-version", "doca-libraries"),
    _name(
        r"mlxconfig|mlxfw\w*|mstflint|flint|fw|firmware", "firmware of a card", "firmware-version"
    ),
    _name(
        r"mlx[45]\w*|libmlx[45]|ib[v_]\w+|libib\w+|infiniband|rdma\w*|roce\w*|uverbs\d*|efa|gid",
        "RDMA", "rdma-devices", "rdma-core", "ofed-version",
    ),
    _name(r"dmar|amd-vi|iommu\w*|vfio\w*|io_page_fault", "the IOMMU", "iommu"),
    _name(r"pcieport|aer|pcie bus error", "a PCIe link", "link"),
    _name(
        r"memlock|rlimit_memlock|ENOMEM|cannot allocate memory",
        "a limit of memory", "memlock", "memlock-queues",
    ),
    _name(r"EMFILE|too many open files", "a limit of open files", "open-files"),
    _name(r"/dev/shm|container|docker|cgroup\w*", "a container", "container"),
)  # fmt: skip
