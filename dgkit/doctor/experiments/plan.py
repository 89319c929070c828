# SPDX-License-Identifier: Apache-2.0
"""The experiments that fit a machine."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import msgspec

from ..facts import bluefield, cuda, doca, pci, rdma, topology
from ..machine import Machine


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment on one subject.

    Attributes:
        name: Name in JSON: `cuda-context`, `gpu-copy`, ...
        subject: Devices that take part: `GPU 0 and GPU 1`.
        does: What it does, named before it runs.
        query: Name and arguments of the program's function.
        data_path: Name of the data path that the result decides.
        complete: Whether bytes take the whole path, so that success proves it.
        every: Whether the path needs each subject, rather than any of them.
        checks: Checks whose failure a success refutes.
    """

    name: str
    subject: str
    does: str
    query: tuple[str, ...]
    data_path: str
    complete: bool = True
    every: bool = False
    checks: tuple[str, ...] = ()


_CUDA = ("gpu-present", "driver-loaded", "cuda-driver", "cuda-context")
_MAPS_DMABUF = (
    *("rdma-dmabuf", "dmabuf-gpu", "driver-flavour", "kernel-version", "kernel-p2pdma"),
    "gpudirect-platform",
)
_RDMA = ("rdma-devices", "rdma-core", "memlock", "memlock-queues", "container")


def plan(machine: Machine, peer: str = "", keys: str = "") -> list[Experiment]:
    """Return the experiments that fit this machine's GPUs, RDMA devices and DOCA.

    Args:
        peer: Address of an agent on another machine, whose memory is read and written by RDMA.
        keys: Name of this side's key pair, for that.
    """
    gpus = machine.know(_gpus)
    return [
        *(_context_experiment(at) for at in range(len(gpus))),
        *(_copy_experiment(*pair) for pair in combinations(range(len(gpus)), 2)),
        *_rdma_experiments(machine, gpus),
        *(_peer_experiment(peer, keys, place) for place in ("host", "gpu") if peer),
        *_doca(machine, gpus),
    ]


def _gpus(machine: Machine) -> tuple[str, ...]:
    """Return the PCI addresses of CUDA's GPUs, by ordinal; ("",) if CUDA does not start."""
    known = machine.know(cuda.cuda)
    if not known.devices and machine.know(pci.tree).gpus and not known.missing:
        return ("",)
    return tuple(known.devices)


def _context_experiment(gpu: int) -> Experiment:
    return Experiment(
        name="cuda-context",
        subject=f"GPU {gpu}",
        does=f"make a CUDA context on GPU {gpu}; copy 64 KiB there and back",
        query=("cuda-context", str(gpu)),
        data_path="gpu",
        checks=(*_CUDA, "nvlink-fabric", "iommu", "container"),
    )


def _copy_experiment(a: int, b: int) -> Experiment:
    return Experiment(
        name="gpu-copy",
        subject=f"GPU {a} and GPU {b}",
        does=f"map 1 MiB of GPU {a} and GPU {b} for each other, copy both ways, compare",
        query=("gpu-copy", str(a), str(b)),
        data_path="gpu-peers",
        every=True,
        checks=("gpu-peers", "imex", "virtual-machine"),
    )


def _rdma_experiments(machine: Machine, gpus: tuple[str, ...]) -> Iterator[Experiment]:
    for device in machine.know(rdma.devices).devices:
        gpu = _nearest(machine, device.address, gpus)
        if gpu >= 0:
            yield _register_experiment(device.name, gpu, "dmabuf", "as a dma-buf", _MAPS_DMABUF)
            yield _register_experiment(
                device.name, gpu, "peermem", "by nvidia-peermem", ("peermem",)
            )
        if device.active:
            yield _loopback_experiment(device.name, -1, -1)
        if device.active and gpu >= 0:
            yield _loopback_experiment(device.name, gpu, (gpu + 1) % len(gpus))


def _nearest(machine: Machine, nic: str, gpus: tuple[str, ...]) -> int:
    """Return the ordinal of the GPU that is nearest to a NIC; -1 if there is none."""
    tree = machine.know(pci.tree)
    known = {nic, *gpus} <= tree.devices.keys()
    nears = [topology.path(tree, gpu, nic).near if known else 0 for gpu in gpus]
    return nears.index(min(nears)) if nears else -1


def _register_experiment(
    device: str, gpu: int, way: str, how: str, checks: tuple[str, ...]
) -> Experiment:
    return Experiment(
        name=f"register-{way}",
        subject=f"{device} and GPU {gpu}",
        does=f"register 1 MiB of GPU {gpu} with {device} {how}",
        query=(f"register-{way}", device, str(gpu)),
        data_path=f"rdma-gpu-{way}",
        complete=False,
        checks=checks,
    )


def _loopback_experiment(device: str, source: int, target: int) -> Experiment:
    ends = [f"GPU {gpu}" if gpu >= 0 else "host memory" for gpu in (source, target)]
    places = [str(gpu) if gpu >= 0 else "host" for gpu in (source, target)]
    between = " to ".join(ends)
    return Experiment(
        name="rdma-loopback",
        subject=f"{device}, {between}",
        does=f"write and read 64 KiB by RDMA through {device}, {between}",
        query=("rdma-loopback", device, *places),
        data_path="rdma-gpu-dmabuf" if source >= 0 else "rdma-host",
        checks=(*_RDMA, *_MAPS_DMABUF, "bar1-size", "iommu") if source >= 0 else _RDMA,
    )


def _peer_experiment(address: str, keys: str, place: str) -> Experiment:
    what = f"{'GPU' if place == 'gpu' else 'host'} memory of the session with the agent"
    return Experiment(
        name="rdma-peer",
        subject=f"the agent, {what.partition(' of ')[0]}",
        does=f"write and read 64 KiB of {what} at {address.partition('?')[0]} by RDMA",
        query=("rdma-peer", address, keys, place, "verbs"),
        data_path="rdma-gpu-dmabuf" if place == "gpu" else "rdma-host",
        complete=place == "gpu",
        checks=_RDMA,
    )


def _doca(machine: Machine, gpus: tuple[str, ...]) -> Iterator[Experiment]:
    """Yield DOCA DMA: of a BlueField if it and DOCA are present, else of softdoca."""
    card = machine.know(bluefield.cards) and "dma" in machine.know(doca.doca).parts
    for target in ([0] if gpus else []) + [-1]:
        place = f"GPU {target}" if target >= 0 else "host memory"
        hardware = "doca-gpu-dmabuf" if target >= 0 else "doca-host-memory"
        yield Experiment(
            name="doca-dma",
            subject=place if card else f"softdoca, {place}",
            does=f"write and read 4 KiB of {place} by DOCA DMA"
            + (" of the BlueField" if card else ", in software (softdoca)"),
            query=(
                "doca-dma",
                "doca" if card else "softdoca",
                str(target) if target >= 0 else "host",
            ),
            data_path=hardware if card else "softdoca",
            checks=("doca-libraries", "doca-version") if card else ("dgkit-core",),
        )
