# SPDX-License-Identifier: Apache-2.0
"""Advice on what other programs need and on what the doctor does not judge, without a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .. import finding, references
from ..facts import gpudirect, gpus, pairs, pci, rdma, virtual
from ..facts.gpudirect import Kind
from ..facts.nvidia_proc import key_values, registry
from ..facts.peermem import PEERS, lists_peers, peermem_state
from ..facts.topology import Near
from ..finding import Finding
from ..goals import ANY_GPU, Goal
from ..machine import Case
from ..prerequisites import driver_loaded, gpu_present
from ..registry import check

_RDMA = (Goal.RDMA, Goal.GPUNETIO)
_NOT_JUDGED = "not judged"


@check(
    "other-programs",
    "Other programs",
    asks="What do NCCL and NVSHMEM need here besides, and what is not judged?",
    goals=ANY_GPU,
    sides=("host",),
    requires=[gpu_present, driver_loaded],
)
def _other_programs(case: Case) -> Iterator[Finding]:
    found = [advice for give in _ADVICE if (advice := give(case)) is not None]
    yield from found or [finding.n_a("nothing to add")]


def _advice(subject: str, found: str, why: str, source: references.Source) -> Finding:
    return finding.n_a(found, subject=subject, why=why, sources=[source])


def _old_peer_memory(case: Case) -> Finding | None:
    """Advise on NCCL up to 2.22.3 and NVSHMEM: they detect peermem by a folder now absent."""
    machine = case.machine
    if case.goal not in _RDMA or machine.know(peermem_state) != "loaded":
        return None
    if machine.know(lists_peers) is not None or not machine.read.names(PEERS).absent:
        return None
    why = (
        f"They look for {PEERS}/nv_mem, which this kernel does not have, so without a dma-buf they "
    )
    why += "do not use GPUDirect: use later releases."
    source = references.NCCL("issue 1676")
    return _advice("NCCL up to 2.22.3, NVSHMEM's IBRC", "they miss nvidia-peermem", why, source)


def _gdr_level(case: Case) -> Finding | None:
    """Advise on NCCL_NET_GDR_LEVEL: by default, NCCL uses GPUDirect only up to PXB."""
    if case.goal is not Goal.RDMA or case.machine.know(virtual.virtual).is_vm:
        return None
    found = gpus.usable(case.machine)
    if found and not gpudirect.is_direct(case.machine):
        return None
    near = [pair.path.near for pair in pairs.pairs(case.machine, case.goal) if not pair.path.why]
    if not near or max(near) <= Near.PXB:
        return None
    level = "SYS" if max(near) is Near.SYS else "PHB"
    why = f"For GPUs whose nearest NIC is at {max(near)} it copies through the host, unless "
    why += f"NCCL_NET_GDR_LEVEL={level}."
    source = references.NCCL_ENVIRONMENT("NCCL_NET_GDR_LEVEL")
    return _advice("NCCL", "GPUDirect up to PXB by default", why, source)


def _topology_file(case: Case) -> Finding | None:
    """Advise on NCCL in a virtual machine, where it needs the host's topology."""
    guest = case.machine.know(virtual.virtual).is_vm
    if case.goal not in (Goal.RDMA, Goal.P2P) or not guest:
        return None
    why = "It takes the guest's PCIe tree, which the hypervisor makes up; NCCL_TOPO_FILE gives it "
    why += "that of the host."
    source = references.NCCL_ENVIRONMENT("NCCL_TOPO_FILE")
    return _advice("NCCL", "topology of a virtual machine", why, source)


def _stream_mem_ops(case: Case) -> Finding | None:
    """Advise on two driver options that NVSHMEM's guide sets for IBGDA."""
    params = case.machine.read.text("/proc/driver/nvidia/params")
    if case.goal is not Goal.GPUNETIO or not params.ok:
        return None
    streams = key_values(params.text).get("EnableStreamMemOPs") == "1"
    if streams and registry(params.text).get("PeerMappingOverride") == "1":
        return None
    why = "Its guide sets NVreg_EnableStreamMemOPs=1 and PeerMappingOverride=1, in containers on "
    why += "the host. From 3.4.5 it falls back to a CPU thread without them."
    return _advice("NVSHMEM", "options for IBGDA", why, references.NVSHMEM("IBGDA"))


def _bonded(case: Case) -> Finding | None:
    """Advise on bonds: their address, and which port a queue of a GPU takes."""
    devices = case.machine.know(rdma.devices).devices
    names = [device.name for device in devices if "bond" in device.name]
    if case.goal not in _RDMA or not names:
        return None
    subject = f"bonded ports ({names[0]})"
    if case.goal is Goal.GPUNETIO:
        why = (
            "The IPv4 address is the bond's. DOCA 3.1 may stop at `failed to extract sockaddr_in`: "
        )
        why += "the program then has to take the address and a GID index."
        return _advice(subject, "DOCA may miss the address", why, references.NIXL("issue 1954"))
    why = "A queue sends through one of the bond's ports; which of them, and failover, the doctor "
    why += "does not see."
    return _advice(subject, _NOT_JUDGED, why, references.GPUNETIO("ConnectX NIC"))


def _devx(case: Case) -> Finding | None:
    """Advise on IBGDA, which creates queues by DEVX; a container may not be allowed to use it."""
    inside = case.machine.know(virtual.container).engine
    if case.goal is not Goal.GPUNETIO or not inside:
        return None
    why = "Queues that a GPU drives are made by DEVX, with a page of doorbells (UAR): without the "
    why += "container's privileges that fails at mlx5dv_devx_alloc_uar."
    return _advice("DEVX in a container", _NOT_JUDGED, why, references.NVSHMEM("IBGDA"))


def _mig_finding(case: Case) -> Finding | None:
    if case.goal is Goal.P2P or not any(gpu.mig for gpu in gpus.usable(case.machine)):
        return None
    why = "Instances have GPUDirect RDMA; sizes and processes are judged of the whole GPU."
    source = references.MIG("Application Considerations")
    return _advice("MIG", _NOT_JUDGED, why, source)


def _virtual_functions(case: Case) -> Finding | None:
    tree = case.machine.know(pci.tree)
    peers = pairs.peers(case.machine, case.goal) if case.goal is not Goal.P2P else ()
    if not any(peer.name.endswith("VF") for peer in peers) or not tree.gpus:
        return None
    why = "ATS, ACS and trust of a virtual function are set on the host that has the card."
    source = references.VM_TUNING("ATS and ACS configuration")
    return _advice("virtual functions of a NIC", _NOT_JUDGED, why, source)


def _spark_finding(case: Case) -> Finding | None:
    machine = case.machine
    kinds = {gpudirect.kind(machine, gpu) for gpu in gpus.usable(machine)}
    if Kind.SPARK not in kinds or case.goal is Goal.P2P:
        return None
    why = "They use pinned memory here (cudaHostAlloc), which the GPU shares; the kernel must have "
    why += "CONFIG_ARM_SMMU_V3_SVA."
    return _advice(
        "NCCL and UCX on GB10", "no GPUDirect", why, references.DGX_SPARK("GPUDirect RDMA")
    )


_ADVICE: tuple[Callable[[Case], Finding | None], ...] = (
    *(_old_peer_memory, _bonded, _gdr_level, _topology_file, _stream_mem_ops),
    *(_devx, _virtual_functions, _mig_finding, _spark_finding),
)
