"""`dgkit demo`: the main job, from a file to a verified copy of it, and how long that takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .console import print_json, steps
from .demo_source import Source
from .exit_codes import FAILED, OK
from .options import as_json
from .place_option import on_option, settle
from .sweep import Case

if TYPE_CHECKING:
    from ..report import BandwidthReport, LatencyReport
    from ..session import Session

__all__ = ["demo"]

_SIZES = (8, 64, 512, 4096, 1 << 16, 1 << 20)
_RATE_SIZE, _RATE_DEPTH = 1 << 20, 32
_COPIES = {"host": 2, "pinned": 2}  # of the file in the host's memory: that of both regions


@click.command(short_help="Move a file by DMA.")
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--quick", is_flag=True, help="A tenth of the samples: rougher figures, sooner.")
@on_option
@click.option(
    "--provider",
    show_default="soft; cuda for memory on a GPU",
    help="What moves the bytes: soft, cuda, softdoca, doca.",
)
@as_json
def demo(file: Path | None, quick: bool, on: str, provider: str | None, json_: bool) -> int:
    """Move FILE (default: 16 MiB that are made up) through a second process by DMA.

    This process, the host, puts the file into a memory region. The software DPU, a process of its
    own, reads it there by DMA, hashes it, and writes it into a second region. The SHA-256 of both
    sides are compared; then single transfers are timed. Nothing is left behind. With --on gpu both
    regions are memory of a GPU, which the software DPU reads and writes by the GPU's copy engine.

    \b
    Examples:
      dgkit demo
      dgkit demo /etc/services
      dgkit demo --quick --json
      dgkit demo --on gpu
      dgkit demo --provider softdoca
    """
    from .. import connect
    from . import demo_view as view
    from .demo_run import move, sides

    source = Source(file, copies=_COPIES.get(on, 0))
    place = settle(on, provider)
    with connect(provider=place.provider, gpu=place.gpu) as session:
        who = sides(session) | {"chosen": place.chosen}
        if not json_:
            view.show_sides(who)
        moved = move(session, source, place.on)
        if not json_:
            view.show_moved(moved)
        latency, rate = time_transfers(session, on=place.on, quick=quick)
    if json_:
        timed = {"latency": [r.to_dict() for r in latency], "bandwidth": rate.to_dict()}
        print_json({**who, **moved.to_dict(), **timed})
    else:
        view.show_times(latency, rate)
    return OK if moved.verified else FAILED


def time_transfers(
    session: Session, *, on: str, quick: bool
) -> tuple[list[LatencyReport], BandwidthReport]:
    """Single writes of each size, then as many of 1 MiB as go through. On memory of their own."""
    from .sweep import latencies, rates

    count, seconds = (2_000, 0.1) if quick else (20_000, 0.5)
    cases = [Case("write", "auto", size) for size in _SIZES]
    stream = [Case("write", "auto", _RATE_SIZE, _RATE_DEPTH)]
    size = max(*_SIZES, _RATE_SIZE)
    with session.empty(size, on=on, name="timing") as region, steps() as progress:
        latency = list(latencies(session, region, cases, count=count, progress=progress))
        (rate,) = rates(session, region, stream, seconds=seconds, progress=progress)
    return latency, rate
