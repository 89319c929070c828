# SPDX-License-Identifier: Apache-2.0
"""Access between GPUs: PCIe, NVLink, and the NVLink fabric."""

from __future__ import annotations

import re

from .. import finding, references
from ..facts import cuda, gpus, kernel_log, nvidia_topo, pairs, virtual
from ..facts.gpus import Gpu
from ..facts.nvidia_smi import smi
from ..facts.pairs import Pair
from ..finding import Finding
from ..goals import ANY_GPU, Goal
from ..machine import Case, Machine
from ..prerequisites import driver_loaded, gpu_present
from ..registry import check
from ._devices import per_gpu

_HOST = ("host",)
_SMI = references.NVIDIA_SMI("topo -m, Legend")
_XIDS = references.XID()
_FABRIC = references.NVIDIA_SMI("Fabric")
_PEERS = references.CUDA_GUIDE("Peer-to-Peer Memory Access")
_XID = re.compile(r"NVRM: Xid \(PCI:[0-9A-Fa-f:.]{5,16}\): (\d{1,4}),")
_NVLINK_XIDS = frozenset({74, *range(144, 151)})  # NVLink up to 4, and 5 (the catalogue of Xids)
_MOST_PEERS = 8  # of a GPU in the system, without NVSwitch
_NOT_READY = "CUDA does not start (802)"
_RESTART_FABRIC = (
    "sudo systemctl restart nvidia-fabricmanager",
    "sudo journalctl -u nvidia-fabricmanager",
)


@check(
    "gpu-peers",
    "GPUs among themselves",
    asks="How are the GPUs connected to each other?",
    goals=[Goal.P2P],
    sides=_HOST,
    requires=[gpu_present],
)
def _gpu_peers(case: Case) -> Finding:
    both = pairs.pairs(case.machine, case.goal)
    if not both:
        return finding.fail(
            "one GPU", needed="two or more", why="There is no other GPU to exchange data with.",
            remedy=["nvidia-smi -L"], sources=[_SMI],
        )  # fmt: skip
    return _without_access(case.machine) or _connected(case.machine, both)


def _connected(machine: Machine, both: tuple[Pair, ...]) -> Finding:
    """Return the finding on GPUs with no known obstacle between them."""
    links, access = machine.know(_nvlinks), machine.know(nvidia_topo.peer_access)
    if not links and (count := len(gpus.usable(machine))) > _MOST_PEERS + 1:
        return finding.warn(
            f"{count} GPUs over PCIe", needed=f"{_MOST_PEERS + 1} or fewer", sources=[_PEERS],
            why=f"Without NVSwitch, CUDA gives a GPU access to {_MOST_PEERS} others at most; "
            "beyond: error 711.",
            remedy=[f"export CUDA_VISIBLE_DEVICES={','.join(map(str, range(_MOST_PEERS + 1)))}"],
        )  # fmt: skip
    classes = sorted({pair.path.near for pair in both})
    found = ", ".join([*sorted(links), *(str(near) for near in classes if not links)])
    why = "" if links else f"Over PCIe; CUDA decides for each pair: {nvidia_topo.PEERS}."
    if "OK" in access.values():
        without = sum(cell != "OK" for cell in access.values()) // 2
        why = f"CUDA allows it for all but {without} pairs." if without else "CUDA allows it."
    return finding.ok(found, why=why, sources=[_SMI])


def _nvlinks(machine: Machine) -> frozenset[str]:
    """Return the kinds of NVLink between GPUs, such as NV18."""
    cells = machine.know(nvidia_topo.topology_matrix).cells
    gpus_only = (cell for pair, cell in cells.items() if all(n.startswith("GPU") for n in pair))
    return frozenset(cell for cell in gpus_only if cell.startswith("NV"))


def _without_access(machine: Machine) -> Finding | None:
    """Return the finding if no GPU can access another, else None."""
    found = gpus.usable(machine)
    if len([gpu for gpu in found if not gpu.mig]) < 2 and any(gpu.mig for gpu in found):
        return finding.fail(
            "MIG is on", needed="whole GPUs", sources=[references.MIG("Considerations")],
            why="Instances of MIG do not reach each other's memory, neither over PCIe nor NVLink.",
            remedy=["# Use whole GPUs; if no instance is in use: sudo nvidia-smi -mig 0"],
        )  # fmt: skip
    access = machine.know(nvidia_topo.peer_access)
    cells = set(access.values())
    if machine.know(_nvlinks) or cells & {"OK", "U"}:
        return None
    if not cells:
        ages = {gpu.architecture.lower() for gpu in found}
        without = _WITHOUT_NVLINK if machine.know(nvidia_topo.topology_matrix).why else _WITHOUT_P2P
        if not (ages <= without and all("geforce" in gpu.name.lower() for gpu in found)):
            return None
        return finding.fail(
            f"{found[0].name}, no NVLink",
            needed="OK",
            why="NVIDIA's driver has no peer access between these GeForce GPUs over PCIe. "
            f"{_STAGED}",
            remedy=[nvidia_topo.PEERS],
            sources=[_P2P],
        )
    cell = next((cell for cell in _REFUSED if cell in cells), "NS")
    what, remedy = _REFUSED[cell]
    if cell == "CNS" and machine.know(virtual.virtual).is_vm:
        remedy = _CLIQUE
    return finding.fail(
        f"{cell}: {what}", needed="OK", why=f"NVIDIA's driver lets no GPU reach another. {_STAGED}",
        remedy=[remedy, nvidia_topo.PEERS], sources=[_P2P],
    )  # fmt: skip


_WITHOUT_NVLINK = frozenset({"ada", "ada lovelace", "blackwell"})
_WITHOUT_P2P = _WITHOUT_NVLINK | {"turing", "ampere"}


_P2P = references.NVIDIA_SMI("topo -p2p, Legend")
_STAGED = "Programs copy through host memory instead; NCCL does so automatically."
_CLIQUE = (
    "# On the hypervisor, if its tree allows it: QEMU's x-nv-gpudirect-clique=0 for each GPU, "
    "without which the guest's chip set is unknown to the driver."
)
# For each cell of nvidia-smi topo -p2p: what it means, and what to do.
_REFUSED = {
    "CNS": ("chip set not supported", "# Use a server whose chip set NVIDIA's driver knows."),
    "GNS": ("GPU not supported", "# GPUs of data centres and workstations have it, GeForce not."),
    "TNS": ("topology not supported", "# Put the GPUs below one CPU or PCIe switch."),
    "DR": ("disabled by a registry key", "grep -rn -i p2p /etc/modprobe.d"),
    "NS": ("not supported", "# It takes two GPUs of one kind that have it."),
}


def _nvlink_errors(machine: Machine) -> dict[str, str]:
    """Return the last Xid of NVLink in the kernel's log, by the GPU's address without function."""
    lines = machine.know(kernel_log.log).lines
    found = ((line.address.partition(".")[0], _XID.search(line.text)) for line in lines)
    return {at: xid[1] for at, xid in found if xid and int(xid[1]) in _NVLINK_XIDS}


@check(
    "nvlink-fabric",
    "NVLink fabric",
    asks="Has the fabric manager connected the GPUs that NVSwitches join?",
    goals=ANY_GPU,
    sides=_HOST,
    requires=[gpu_present, driver_loaded],
)
@per_gpu
def _nvlink_fabric(case: Case, gpu: Gpu) -> Finding:
    listed = {gpu.address: gpu for gpu in case.machine.know(smi).gpus}
    errors = case.machine.know(_nvlink_errors)
    fields = listed.get(gpu.address)
    if xid := errors.get(gpu.address.partition(".")[0]):
        make = finding.fail if case.goal is Goal.P2P else finding.warn
        return make(
            f"Xid {xid} since the start",
            needed="no error",
            why="The kernel's log has an error of NVLink: copies between these GPUs can hang until "
            "they are reset.",
            remedy=("sudo dmesg | grep -i xid", "# Reset the GPUs, or restart the machine."),
            sources=[_XIDS],
        )
    state = fields.value("Fabric/State") if fields else ""
    status = fields.value("Fabric/Status") if fields else ""
    if not state or state == "N/A":
        return finding.n_a("no NVSwitch, as far as nvidia-smi shows")
    if state == "Completed" and status in ("", "N/A", "Success"):
        return finding.ok("completed", needed="completed", sources=[_FABRIC])
    found = f"{state}, {status}" if status not in ("", "N/A") else state
    created = case.machine.know(cuda.contexts).get(gpu.address)
    starts = created is not None and created.code == 0
    make = finding.warn if starts else finding.fail
    why = "CUDA starts, but has no NVLink to other GPUs" if starts else _NOT_READY
    return make(
        found[:45],
        needed="completed",
        why=f"{why} until the fabric manager has connected them.",
        remedy=_RESTART_FABRIC,
        sources=[_FABRIC],
    )
