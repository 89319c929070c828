# SPDX-License-Identifier: Apache-2.0
"""Device with a queue and two regions, for most tests of dgkit.dma."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgkit import Device
from dgkit.dma import Queue, Region, RemoteRegion


@dataclass
class Rig:
    """`local` is over `local_bytes`; `target` is over `remote_bytes`, and `remote` imported it."""

    device: Device
    queue: Queue
    local_bytes: bytearray
    remote_bytes: bytearray
    local: Region
    target: Region
    remote: RemoteRegion

    @property
    def pair(self) -> tuple[Region, RemoteRegion]:
        return self.local, self.remote


def keep(device: Device) -> Device:
    """Hold references to what the device creates, so that its close() ends it, not a finalizer."""
    kept = []

    def keeping(make: Callable[..., Any]) -> Callable[..., Any]:
        def kept_object(*args: Any, **named: Any) -> Any:
            kept.append(make(*args, **named))
            return kept[-1]

        return kept_object

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
    local_bytes, remote_bytes = bytearray(size), bytearray(size)
    with Device(provider, rules=rules) as device:
        q = keep(device).queue(**{"depth": 16, **queue})
        local = device.register(local_bytes, access)
        target = device.register(remote_bytes)
        remote = device.import_region(target.export(remote_access))
        yield Rig(device, q, local_bytes, remote_bytes, local, target, remote)


def pattern(size: int, salt: int = 1) -> bytes:
    """Return bytes that differ from their neighbours and from those of another salt."""
    i = np.arange(size)
    return (i * 7 + (i >> 8) * 13 + salt * 31).astype(np.uint8).tobytes()
