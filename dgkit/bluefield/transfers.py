"""First transfers of `dgkit bluefield up`: host memory, then GPU memory, checked byte by byte."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import DgkitError
from ..memory.gpu_info import why_no_gpu
from ..session.connect import connect
from ..units import size_text, us
from ..wire import saved

if TYPE_CHECKING:
    from ..session import Session

_SIZE = 1 << 20
_SAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class Transfer:
    """Result of a first transfer.

    Attributes:
        place: "host" or "gpu".
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
