"""A device, a queue and two regions of it: what most tests of dgkit.dma need."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dgkit import Device
from dgkit.dma import Queue, Region, RemoteRegion


@dataclass
class Rig:
    """`here` is under `local`; `there` is under `target`, which `remote` imported."""

    device: Device
    queue: Queue
    here: bytearray
    there: bytearray
    local: Region
    target: Region
    remote: RemoteRegion

    @property
    def pair(self) -> tuple[Region, RemoteRegion]:
        return self.local, self.remote


def keep(device: Device) -> Device:
    """Holds what the device makes from now on, so that its close() and no finalizer ends it."""
    kept = []

    def keeping(make: Callable[..., Any]) -> Callable[..., Any]:
        def kept_one(*args: Any, **named: Any) -> Any:
            kept.append(make(*args, **named))
            return kept[-1]

        return kept_one

    for name in ("register", "import_region", "queue"):
        setattr(device, name, keeping(getattr(device, name)))
    return device


@contextmanager
def rig(
    provider: str = "soft",
    *,
    size: int = 4096,
    access: str = "rw",
    remote_access: str = "rw",
    rules: Any = (),
    **queue: Any,
) -> Iterator[Rig]:
    here, there = bytearray(size), bytearray(size)
    with Device(provider, rules=rules) as device:
        q = keep(device).queue(**{"depth": 16, **queue})
        local = device.register(here, access)
        target = device.register(there)
        remote = device.import_region(target.export(remote_access))
        yield Rig(device, q, here, there, local, target, remote)


def pattern(size: int, salt: int = 1) -> bytes:
    """Bytes whose every place differs from its neighbours, and from those of another salt."""
    return bytes((i * 7 + (i >> 8) * 13 + salt * 31) & 0xFF for i in range(size))
