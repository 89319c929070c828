"""GPUs among themselves: PCIe, NVLink, and the fabric that connects them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from .. import finding, references
from ..facts import nvidia_topo, pairs
from ..facts.gpus import Gpu
from ..facts.nvidia_smi import smi
from ..finding import Finding
from ..goals import ANY_GPU, Goal
from ..machine import Case
from ..registry import check
from ._per_gpu import not_applicable, per_gpu

_HOST = ("host",)
_SMI = references.NVIDIA_SMI("topo -m, Legend")
_FABRIC = references.NVIDIA_SMI("Fabric")
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
)
def _gpu_peers(case: Case) -> Iterator[Finding]:
    missing = not_applicable(case, driver=False)
    both = pairs.pairs(case.machine, case.goal)
    if missing is not None:
        yield missing
        return
    if not both:
        yield finding.fail(
            "one GPU", needed="two or more", why="There is no other GPU to exchange data with.",
            remedy=["nvidia-smi -L"], sources=[_SMI],
        )  # fmt: skip
        return
    matrix = case.machine.know(nvidia_topo.topology_matrix)
    links = {
        cell
        for pair in combinations(sorted({name for both in matrix.cells for name in both}), 2)
        if all(name.startswith("GPU") for name in pair)
        and (cell := matrix.cells.get(pair) or matrix.cells.get(pair[::-1]) or "").startswith("NV")
    }
    classes = sorted({pair.path.near for pair in both})
    found = ", ".join([*sorted(links), *(str(near) for near in classes if not links)])
    why = "" if links else "Over PCIe; CUDA decides for each pair: nvidia-smi topo -p2p r."
    yield finding.ok(found, why=why, sources=[_SMI])


@check(
    "nvlink-fabric",
    "NVLink fabric",
    asks="Has the fabric manager connected the GPUs that NVSwitches join?",
    goals=ANY_GPU,
    sides=_HOST,
)
def _nvlink_fabric(case: Case) -> Iterator[Finding]:
    listed = {gpu.address: gpu for gpu in case.machine.know(smi).gpus}

    def judge(gpu: Gpu) -> Finding:
        fields = listed.get(gpu.address)
        state = fields.value("Fabric/State") if fields else ""
        status = fields.value("Fabric/Status") if fields else ""
        if not state or state == "N/A":
            return finding.n_a("no NVSwitch, as far as nvidia-smi shows")
        if state == "Completed" and status in ("", "N/A", "Success"):
            return finding.ok("completed", needed="completed", sources=[_FABRIC])
        found = f"{state}, {status}" if status not in ("", "N/A") else state
        why = (
            "Until the fabric manager has connected the GPUs, CUDA does not start (802), or has no "
        )
        why += "NVLink."
        return finding.fail(
            found[:45], needed="completed", why=why, remedy=_RESTART_FABRIC, sources=[_FABRIC]
        )

    yield from per_gpu(case, judge)
