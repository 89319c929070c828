# SPDX-License-Identifier: Apache-2.0
"""Readings of `rdma_topo dump` (rdma-core), as far as it reaches.

The dump is a JSON list with an object for each PCI function: its path in sysfs, its modalias,
configuration space, NUMA node, IOMMU group, and the names of its RDMA devices and interfaces. It
has neither drivers nor states of ports.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator

import msgspec

from . import pci_listing
from .pci_listing import DEVICES, Listed
from .reader import Reading
from .snapshot import Snapshot

_MAX_CONFIG = 4096  # bytes of a configuration space
_CLASS = "/sys/class/infiniband"
_MODALIAS = re.compile(
    r"pci:v0000([0-9A-F]{4})d0000([0-9A-F]{4})sv0000([0-9A-F]{4})sd0000([0-9A-F]{4})"
    r"bc([0-9A-F]{2})sc([0-9A-F]{2})i([0-9A-F]{2})"
)
# Drivers that make what the dump lists: a function without such a device may have one all the same.
_MAKERS = {"infiniband": "mlx5_core", "nvme": "nvme"}


class _Function(msgspec.Struct):
    realpath: str
    modalias: str
    config: str
    iommu_group: int | None = None
    numa_node: int | None = None
    subsystems: dict[str, list[str]] | None = None


def is_dump(head: bytes) -> bool:
    """Return whether content begins like the output of `rdma_topo dump`."""
    return head.lstrip()[:1] == b"[" and b'"realpath"' in head


def read(data: bytes) -> Snapshot:
    """Return the readings of a dump.

    Raises:
        ValueError: It is malformed.
    """
    try:
        functions = msgspec.json.decode(data, type=list[_Function])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"it is no dump of rdma_topo: {error}") from None
    listed = {}
    names: dict[str, str] = {}  # paths of RDMA devices
    readings: dict[str, Reading] = {}
    for function in functions:
        device = _to_listed(function)
        listed[device.address] = device
        if function.iommu_group is not None:
            group = f"/sys/kernel/iommu_groups/{function.iommu_group}"
            readings[f"link {DEVICES}/{device.address}/iommu_group"] = Reading(text=group)
        subsystems = function.subsystems or {}
        for name in subsystems.get("infiniband", ()):
            names[name] = function.realpath
            nets = tuple(sorted(subsystems.get("net", ())))
            readings[f"names {_CLASS}/{name}/device/net"] = Reading(names=nets)
    readings |= dict(pci_listing.readings(listed))
    readings |= dict(_rdma(names))
    return Snapshot(source="recorded: by rdma_topo dump", readings=readings)


def _to_listed(function: _Function) -> Listed:
    address = pci_listing.full(function.realpath.rpartition("/")[2])
    match = _MODALIAS.match(function.modalias)
    if not address or match is None:
        raise ValueError(f"{function.realpath[:80]!r} with {function.modalias[:80]!r} is no device")
    vendor, device, owner, part, *kind = match.groups()
    driver = next((_MAKERS[n] for n in function.subsystems or () if n in _MAKERS), "")
    return Listed(
        address=address, path=function.realpath, kind="".join(kind), ids=f"{vendor}:{device}",
        subsystem=f"{owner}:{part}", numa=function.numa_node, config=_config_bytes(function.config),
        driver=driver if vendor == "15B3" or driver == "nvme" else "",
    )  # fmt: skip


def _config_bytes(text: str) -> bytes:
    try:
        return zlib.decompressobj().decompress(base64.b64decode(text, validate=True), _MAX_CONFIG)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"a configuration space cannot be decoded: {error}") from None


def _rdma(paths: dict[str, str]) -> Iterator[tuple[str, Reading]]:
    yield f"names {_CLASS}", Reading(names=tuple(sorted(paths)))
    for name, path in paths.items():
        yield f"link {_CLASS}/{name}/device", Reading(text=path)
