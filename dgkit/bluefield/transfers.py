# SPDX-License-Identifier: Apache-2.0
"""First transfers of `dgkit bluefield up`: host memory, then GPU memory, checked byte by byte.

In a testbed's host guest, its memory in the Arm guest's PCI BAR follows: this file is also the
program that reads and writes it there.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dma import Device
from ..errors import DgkitError
from ..memory import bar, empty
from ..memory.gpu_info import why_no_gpu
from ..session.connect import connect
from ..units import size_text, us
from ..wire import saved

if TYPE_CHECKING:
    from ..session import Session
    from .arm import Arm

_SIZE = 1 << 20
_SAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class Transfer:
    """Result of a first transfer.

    Attributes:
        place: "host", "gpu" or "bar".
        works: Whether the bytes arrived, both ways.
        text: What moved them and how fast, or why they did not arrive.
        way: How a GPU's memory was registered: "dma-buf", "nvidia-peermem" or "".
    """

    place: str
    works: bool
    text: str
    way: str = ""


def first_transfers() -> Iterator[Transfer]:
    """Move bytes between the DPU and memory of this host, each way; yield host, then GPU."""
    try:
        session = connect(saved.BLUEFIELD)
    except DgkitError as error:
        yield Transfer("host", False, str(error))
        yield Transfer("gpu", False, "there is no session")
        return
    with session:
        yield transfer(session, "host")
        why = why_no_gpu()
        yield Transfer("gpu", False, why) if why else transfer(session, "gpu")


def bar_transfer(arm: Arm) -> Iterator[Transfer]:
    """Have the Arm cores read this host's memory through their PCI BAR, and write to it."""
    if not bar.exists():
        return
    data = secrets.token_bytes(_SIZE)
    try:
        with Device("soft") as device, empty(_SIZE, on="bar") as memory:
            memory.buffer[:] = data
            region = device.register(memory)
            arm.run(f"venv/bin/python -m {__name__}", data=region.export().hex().encode())
            works = memory.buffer == data[::-1]
    except DgkitError as error:
        yield Transfer("bar", False, str(error))
        return
    text = f"{size_text(_SIZE)} were read and written back reversed, emulated"
    yield Transfer("bar", works, text if works else "the bytes differ: please report this")


def transfer(session: Session, place: str) -> Transfer:
    """Write to memory of this host and read it back; compare, and take the latency of 64 bytes."""
    data = secrets.token_bytes(_SIZE)
    try:
        with session.empty(_SIZE, on=place) as region:
            session.write(region, data)
            array: Any = region.array  # CuPy's, if on the GPU
            here = bytes(array) if place == "host" else array.get().tobytes()
            back = session.read(region, _SIZE)
            if here != data or back != data:
                return Transfer(place, False, "the bytes differ: please report this")
            report = session.latency(region, size=64, op="write", count=_SAMPLES)
            way = region.registration
    except (DgkitError, ImportError) as error:
        return Transfer(place, False, str(error))
    text = f"{size_text(_SIZE)} there and back are equal; a write of 64 bytes takes "
    text += f"{us(report.p50_ns)} µs (p50), {us(report.p99_ns)} (p99): {report.label}"
    return Transfer(place, True, text, way)


def _reverse_bar(exported: bytes) -> None:
    """Reverse the bytes of the host's memory in this Arm guest's BAR; its program."""
    with Device("soft") as device, empty(_SIZE) as memory:
        local, remote = device.register(memory), device.import_region(exported)
        with device.queue() as queue:
            queue.read(local, remote).wait()
            memory.buffer[:] = bytes(memory.buffer)[::-1]
            queue.write(local, remote).wait()


if __name__ == "__main__":
    _reverse_bar(bytes.fromhex(sys.stdin.read()))
