"""RDMA devices, and whether they take dma-buf regions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from .. import finding, references
from ..facts import firmware, ibv_devinfo, rdma, system, virtual
from ..facts.rdma import RdmaDevice
from ..facts.uname import uname
from ..finding import Finding
from ..goals import WITH_GPU, Goal
from ..machine import Case
from ..registry import check
from ._per_gpu import none

KERNEL = (5, 12)  # mlx5 takes dma-buf regions from this Linux on
_SOURCE = references.RDMA_CORE("ibv_devinfo(1)")
_DMABUF = references.RDMA_DMABUF("Linux 5.12")
_SOFTWARE = re.compile(r"(?:rxe|siw)")
_DEVICE = re.compile(r"(?:en|eth|wl)\w+")  # as systemd and the kernel name a device's interface


@check("rdma-devices", "RDMA devices", goals=WITH_GPU)
def present(case: Case) -> Iterator[Finding]:
    """Which RDMA devices are there, do programs see them, and is their link up?"""
    known = case.machine.know(rdma.devices)
    if known.why:
        yield finding.unknown("RDMA devices not read", why=known.why, sources=[_SOURCE])
        return
    if not known.devices:
        yield _none(case)
        return
    visible = case.machine.know(ibv_devinfo.devinfo)
    for device in known.devices:
        hidden = not visible.why and device.name not in visible.names
        yield _hidden(case, device) if hidden else _judged(case, device)


def _none(case: Case) -> Finding:
    cards = case.machine.know(firmware.adapters)
    missing = none(case.machine, "no RDMA devices, no NIC of NVIDIA's")
    if not cards and (case.goal is not Goal.RDMA or missing.why):
        return missing
    if cards:
        why = "A NIC is here, but the kernel has no RDMA device of it: mlx5_ib is not loaded."
        remedy = ["sudo modprobe mlx5_ib"]
    else:
        why = "No NIC here does RDMA; Soft-RoCE stands in for tests."
        guest = case.machine.know(virtual.virtual).is_vm
        remedy = [
            "# have a ConnectX or BlueField passed through"
            if guest
            else "# put a ConnectX or BlueField into this host",
            *_soft_roce(case),
        ]
    return finding.fail(
        "none", needed="mlx5_0 or the like", why=why, remedy=remedy, sources=[_SOURCE]
    )


def _soft_roce(case: Case) -> list[str]:
    """RDMA in software, over the first interface that is named like a device's."""
    nets = case.machine.read.names("/sys/class/net").names
    net = next((one for one in nets if _DEVICE.match(one)), "")
    if not net:
        return []
    line = f"sudo modprobe rdma_rxe && sudo rdma link add rxe0 type rxe netdev {shlex.quote(net)}"
    return ["# for tests, in software:", line]


def _hidden(case: Case, device: RdmaDevice) -> Finding:
    return finding.fail(
        "in the kernel, not in libibverbs",
        needed="both",
        why="ibv_devinfo does not list it: its provider library is missing, or this is a container "
        "without /dev/infiniband.",
        subject=device.name,
        remedy=[
            system.install(case.machine, "ibverbs-providers", "rdma-core libibverbs"),
            "# in a container: start it with --device=/dev/infiniband --cap-add=IPC_LOCK",
        ],
        sources=[_SOURCE],
    )


def _judged(case: Case, device: RdmaDevice) -> Finding:
    ports = ", ".join(f"{p.link_layer} {p.state}" for p in device.ports) or "no ports"
    if device.why and not (device.address and device.active):
        why = f"{device.why.rstrip('.')}."
        return finding.unknown("not read", why=why, subject=device.name, sources=[_SOURCE])
    if device.software:
        over = f" over {device.parent}" if device.parent else ""
        make = finding.warn if case.goal is Goal.RDMA else finding.ok
        why = "It is RDMA in software: good for tests, but it takes no GPU memory."
        return make(f"in software{over}", why=why, subject=device.name, sources=[_SOURCE])
    if device.active or case.goal is Goal.ARM_DMA:
        why = "" if device.active else "DMA over PCIe needs no link."
        return finding.ok(ports, why=why, subject=device.name, sources=[_SOURCE])
    if any(one.active and not one.software for one in case.machine.know(rdma.devices).devices):
        why = "It has no link; another device has one."
        return finding.ok(ports, why=why, subject=device.name, sources=[_SOURCE])
    return finding.warn(
        ports,
        needed="ACTIVE",
        why="No port has a link, so nothing reaches another machine by it.",
        subject=device.name,
        remedy=["# plug in the cable, and see to the switch's port", *_raising(device)],
        sources=[_SOURCE],
    )


def _raising(device: RdmaDevice) -> list[str]:
    if "InfiniBand" in {port.link_layer for port in device.ports}:
        return ["sudo ibstat", "# an InfiniBand port gets ACTIVE by a subnet manager: start opensm"]
    return [f"sudo ip link set {shlex.quote(net)} up" for net in device.nets[:1]]


@check("rdma-dmabuf", "RDMA regions of a dma-buf", goals=WITH_GPU, sides=("host",))
def dmabuf(case: Case) -> Iterator[Finding]:
    """Do the RDMA devices take a dma-buf, the way in which GPU memory is handed to them?"""
    known = case.machine.know(rdma.devices)
    if known.why:
        yield finding.unknown("RDMA devices not read", why=known.why, sources=[_DMABUF])
        return
    if not known.devices:
        yield finding.n_a("no RDMA devices")
        return
    kinds: dict[tuple[str, bool], list[RdmaDevice]] = {}
    for device in known.devices:  # the answer is the driver's: one of each kind is asked
        kinds.setdefault((device.model, device.software), []).append(device)
    case.machine.read.together([f"probe rdma-dmabuf {kind[0].name}" for kind in kinds.values()])
    for kind in kinds.values():
        yield _takes(case, kind)


def _takes(case: Case, kind: list[RdmaDevice]) -> Finding:
    reading = case.machine.read.probe("rdma-dmabuf", kind[0].name)
    said = reading.data if isinstance(reading.data, dict) else {}
    takes, errno = said.get("takes"), str(said.get("errno") or "")
    about = ", ".join(device.name for device in kind)
    if takes is True:
        return finding.ok("takes a dma-buf", subject=about, sources=[_DMABUF])
    if takes is False:
        return _refuses(case, kind[0], about, errno)
    why = reading.why or str(said.get("why") or "") or "the probe gave no answer"
    return finding.unknown(
        f"not tried{f' ({errno})' if errno else ''}",
        needed="takes a dma-buf",
        why=why,
        subject=about,
        remedy=[system.as_root("rdma-dmabuf")],
        sources=[_DMABUF],
    )


def _refuses(case: Case, device: RdmaDevice, about: str, errno: str) -> Finding:
    found, need = f"refuses it{f' ({errno})' if errno else ''}", "takes a dma-buf"
    if device.software or _SOFTWARE.match(device.name):
        why = "No Soft-RoCE or Soft-iWARP of Linux takes a dma-buf: GPU memory goes another way."
        return finding.warn(
            found, needed=need, why=why, subject=about, sources=[_DMABUF],
            remedy=["# use host memory on this device, or a ConnectX for GPU memory"],
        )  # fmt: skip
    linux = case.machine.know(uname)
    if () < linux.version < KERNEL:
        why = f"Linux {linux.release} is older than 5.12, from which mlx5 takes it."
    else:
        why = "The driver has no such function, or libibverbs is older than rdma-core 34."
    return finding.warn(
        found,
        needed=need,
        why=f"{why} nvidia-peermem is the other way.",
        subject=about,
        remedy=["sudo modprobe nvidia-peermem", "# for good: Linux 5.12 and rdma-core 34 or later"],
        sources=[_DMABUF, references.RDMA_CORE("debian/libibverbs1.symbols")],
    )
