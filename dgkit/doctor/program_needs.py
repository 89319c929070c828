# SPDX-License-Identifier: Apache-2.0
"""Answer to "is it the machine, or my program?": what a program needs on a machine that is fine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from .diagnosis import Diagnosis
from .facts import gpudirect, gpus, nic_choice, nvidia_proc, rdma, virtual
from .facts.gpudirect import Kind
from .facts.nic_choice import Choice, Nic
from .facts.peermem import peermem_state
from .facts.topology import Near
from .finding import Finding, Verdict
from .goals import Goal
from .machine import Machine

_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_UCX = "https://openucx.readthedocs.io/en/master/faq.html"
_NVSHMEM = "https://docs.nvidia.com/nvshmem/api/gen/env.html"
_DEEPEP = "https://github.com/deepseek-ai/DeepEP"
_LLAMA = "https://github.com/ggml-org/llama.cpp"
_MAX_PEERS = 9  # GPUs that can all reach each other over PCIe: CUDA allows eight peers


class Setting(msgspec.Struct, frozen=True):
    """A setting of a program: a command or an instruction (`#`), why, and the source."""

    command: str
    why: str
    source: str


class Answer(msgspec.Struct, frozen=True):
    """Result of `dgkit doctor --program NAME`.

    Attributes:
        program: Name of the program.
        diagnosis: Diagnosis of the machine for the program's goal.
        settings: What the program needs here; empty if the machine is not fine.
    """

    program: str
    diagnosis: Diagnosis
    settings: tuple[Setting, ...]

    @property
    def fine(self) -> bool:
        """True if a data path serves the goal."""
        return any(path.serves and path.works for path in self.diagnosis.data_paths)

    @property
    def cause(self) -> Finding | None:
        """The finding that blocks the best data path, if the machine is not fine."""
        serving = [path for path in self.diagnosis.data_paths if path.serves]
        causes = serving[0].causes if serving and not self.fine else ()
        return next(
            (finding for finding in self.diagnosis.findings if finding.check in causes), None
        )

    @property
    def sentence(self) -> str:
        """The answer in a sentence or two."""
        goal, name = self.diagnosis.goal, TITLES[self.program]
        if not self.fine:
            state = "is not fine" if self.diagnosis.verdict is Verdict.FAIL else "may not be fine"
            return f"The machine {state} for {name} ({goal}): {self.diagnosis.summary()}"
        needs = "needs these settings" if self.settings else "needs no setting that shows here"
        best = next(p for p in self.diagnosis.data_paths if p.serves and p.works)
        if best.proviso:  # what was not verified is said here, too
            return f"The machine should be fine for {name} ({goal}). {best.proviso} It {needs}."
        return f"The machine is fine for {name} ({goal}): if it fails, it {needs}."

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "program": self.program,
            "goal": str(self.diagnosis.goal),
            "fine": self.fine,
            "answer": self.sentence,
            "settings": [msgspec.structs.asdict(setting) for setting in self.settings],
        }


def goal_of(program: str, machine: Machine) -> Goal:
    """Return the goal that a program has on this machine."""
    if program == "llama.cpp":
        return Goal.P2P if len(gpus.usable(machine)) > 1 else Goal.GPU
    if program == "nccl" and not any(nic.up for nic in machine.know(nic_choice.nics)):
        return Goal.P2P if len(gpus.usable(machine)) > 1 else Goal.GPU
    return Goal.RDMA


def answer(program: str, machine: Machine, diagnosis: Diagnosis) -> Answer:
    """Return what a program needs on a machine that was judged for its goal."""
    found = Answer(program, diagnosis, tuple(_RULES[program](machine, diagnosis)))
    return found if found.fine else msgspec.structs.replace(found, settings=())


def _chosen(machine: Machine) -> list[tuple[Choice, Nic]]:
    found = machine.know(nic_choice.choices)
    return [(choice, choice.nic) for choice in found if choice.nic is not None]


def _best(machine: Machine) -> tuple[str, ...]:
    """Return the names of the NICs that are near GPUs, if there are others that are up."""
    names = [(nic.name, *(choice.nccl if nic.name in choice.nccl else ()))
             for choice, nic in _chosen(machine)]  # fmt: skip
    near = tuple(dict.fromkeys(name for group in names for name in group))
    up = {nic.name for nic in machine.know(nic_choice.nics) if nic.up}
    return near if set(near) < up else ()


def _gid_index(machine: Machine) -> int:
    """Return the GID index of RoCE v2 that all NICs share; -1 if there is none, or it is 0."""
    kinds = {(nic.gid.index, nic.gid.kind) for _, nic in _chosen(machine) if nic.gid is not None}
    if len(kinds) != 1:
        return -1
    index, kind = kinds.pop()
    return index if kind == "RoCE v2" and index > 0 else -1


def _nccl(machine: Machine, _: Diagnosis) -> Iterator[Setting]:
    names, why = _best(machine), "Other ports are up that are no GPU's nearest NIC."
    spark = any(gpudirect.kind(machine, gpu) is Kind.SPARK for gpu in gpus.usable(machine))
    up = tuple(nic.name for nic in machine.know(nic_choice.nics) if nic.up)
    if spark and len(up) > 1:
        names, why = up, "Each port of a DGX Spark has two PCIe functions: one has half its rate."
    if names:
        yield Setting(f"export NCCL_IB_HCA=={','.join(names)}", why, _NCCL)
    if (index := _gid_index(machine)) > 0:
        why = "The GID of RoCE v2 and IPv4; releases before 2.21 do not find it themselves."
        yield Setting(f"export NCCL_IB_GID_INDEX={index}", why, _NCCL)
    guest = machine.know(virtual.virtual).is_vm
    nears = [choice.path.near for choice, _ in _chosen(machine) if choice.path is not None]
    if nears and max(nears) > Near.PXB and not guest and gpudirect.is_direct(machine):
        level = "SYS" if max(nears) is Near.SYS else "PHB"
        why = f"A GPU's nearest NIC is at {max(nears)}; by default GPUDirect is used up to PXB."
        yield Setting(f"export NCCL_NET_GDR_LEVEL={level}", why, _NCCL)
    if guest and len(gpus.usable(machine)) > 1:
        why = "A guest's PCIe tree is the hypervisor's: take that of the host."
        yield Setting("export NCCL_TOPO_FILE=FILE  # of the cloud or the host", why, _NCCL)


def _ucx(machine: Machine, _: Diagnosis) -> Iterator[Setting]:
    for choice, nic in _chosen(machine):
        why = f"Nearest NIC of {choice.gpu}; for the process that uses it."
        yield Setting(f"export UCX_NET_DEVICES={nic.device}:{nic.port}", why, _UCX)
    if (index := _gid_index(machine)) > 0:
        yield Setting(f"export UCX_IB_GID_INDEX={index}", "The GID of RoCE v2 and IPv4.", _UCX)
    if machine.know(peermem_state) != "loaded":
        why = "Without nvidia-peermem it has to be a build with CUDA that registers dma-bufs."
        yield Setting("ucx_info -d | grep -i -B 8 cuda  # at the mlx5 device", why, _UCX)


def _hca_list(machine: Machine) -> str:
    names = dict.fromkeys(f"{nic.device}:{nic.port}" for _, nic in _chosen(machine))
    return ",".join(names)


def _nvshmem(machine: Machine, _: Diagnosis) -> Iterator[Setting]:
    if _best(machine):
        why = "Other ports are up that are no GPU's nearest NIC."
        yield Setting(f"export NVSHMEM_HCA_LIST={_hca_list(machine)}", why, _NVSHMEM)
        why = "It gives each process of a node its own NIC of the list."
        yield Setting("export NVSHMEM_ENABLE_NIC_PE_MAPPING=1", why, _NVSHMEM)
    yield from _gid_of_nvshmem(machine)
    yield from _handler(machine)


def _gid_of_nvshmem(machine: Machine) -> Iterator[Setting]:
    if (index := _gid_index(machine)) > 0:
        why = "The GID of RoCE v2 and IPv4."
        yield Setting(f"export NVSHMEM_IB_GID_INDEX={index}", why, _NVSHMEM)


def _handler(machine: Machine) -> Iterator[Setting]:
    params = machine.read.text("/proc/driver/nvidia/params")
    if not params.ok or nvidia_proc.registry(params.text).get("PeerMappingOverride") == "1":
        return
    why = "PeerMappingOverride=1 is not set, so a GPU may not ring the NIC's doorbell."
    yield Setting("export NVSHMEM_IBGDA_NIC_HANDLER=cpu  # with IBGDA", why, _NVSHMEM)


def _deepep(machine: Machine, _: Diagnosis) -> Iterator[Setting]:
    choices = _chosen(machine)
    names = [nic.name for _, nic in choices]
    if len(set(names)) < len(names):
        why = (
            "GPUs share a NIC, and NVSHMEM_ENABLE_NIC_PE_MAPPING makes DeepEP's processes take one."
        )
        for choice, nic in choices:
            command = f"export NVSHMEM_HCA_LIST={nic.device}:{nic.port}  # process of {choice.gpu}"
            yield Setting(command, why, f"{_DEEPEP}/issues/336")
    planes = [device for device in machine.know(rdma.devices).devices if len(_up(device)) > 1]
    if planes:
        why = f"{planes[0].name} has several planes: the kernels of DeepEP v1 use the first alone."
        command = "# Take a DeepEP with pull request 650, and NVSHMEM_IBGDA_ENABLE_MULTI_PORT=1"
        yield Setting(command, why, f"{_DEEPEP}/pull/650")
    yield from _gid_of_nvshmem(machine)
    yield from _handler(machine)


def _up(device: rdma.RdmaDevice) -> list[rdma.RdmaPort]:
    return [port for port in device.ports if port.state == "ACTIVE"]


def _llama(machine: Machine, diagnosis: Diagnosis) -> Iterator[Setting]:
    count = len(gpus.usable(machine))
    if count < 2:
        return
    if count > _MAX_PEERS:
        why = f"Peer access is between all pairs, and CUDA gives each of {count} GPUs eight peers."
        first = ",".join(map(str, range(_MAX_PEERS)))
        yield Setting(f"export CUDA_VISIBLE_DEVICES={first}", why, _LLAMA)
    elif diagnosis.verdict is Verdict.OK:
        why = "Copies between GPUs are direct only with it, and wrong without an error where a "
        why += "bridge or the IOMMU interferes: compare the data first."
        command = "export GGML_CUDA_P2P=1  # after: dgkit doctor --goal p2p --try"
        yield Setting(command, why, f"{_LLAMA}/discussions/26156")
    else:
        why = (
            "Direct copies may be wrong here, without an error; the variable counts if it is set, "
        )
        why += "even to 0."
        yield Setting(
            "unset GGML_CUDA_P2P", why, "https://github.com/unslothai/unsloth/issues/10613"
        )


TITLES = {
    "nccl": "NCCL",
    "ucx": "UCX",
    "nvshmem": "NVSHMEM",
    "deepep": "DeepEP",
    "llama.cpp": "llama.cpp",
}
_RULES: dict[str, Callable[[Machine, Diagnosis], Iterator[Setting]]] = {
    "nccl": _nccl,
    "ucx": _ucx,
    "nvshmem": _nvshmem,
    "deepep": _deepep,
    "llama.cpp": _llama,
}
