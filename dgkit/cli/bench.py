"""`dgkit bench`: measure latency and bandwidth over sizes, depths, directions and paths."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..types import DOCA
from .console import console, print_json, progress_bars, say
from .options import address, choice, comma_separated, duration, integer, size
from .place_option import Place, on_option, resolve_place
from .sweep import Case

if TYPE_CHECKING:
    from ..report import BandwidthReport, LatencyReport
    from ..session import Session

__all__ = ["bench"]

_STDOUT = "-"


@click.command(short_help="Measure latency and bandwidth.")
@click.option(
    "--sizes",
    type=comma_separated(size),
    default="8,64,4K,64K,1M",
    show_default=True,
    metavar="LIST",
    help="Bytes per operation; K is 1024.",
)
@click.option(
    "--depths",
    type=comma_separated(integer(1, 65536)),
    default="1,32,256",
    show_default=True,
    metavar="LIST",
    help="Operations in flight for the rates.",
)
@click.option(
    "--ops",
    type=comma_separated(choice("write", "read")),
    default="write,read",
    show_default=True,
    metavar="LIST",
    help="write: DPU to host; read: host to DPU.",
)
@click.option(
    "--paths",
    type=comma_separated(choice("inline", "worker", "auto")),
    show_default="inline,worker; auto with cuda, doca, softdoca",
    metavar="LIST",
    help="inline: the caller copies; worker: the provider's thread; auto: the faster of both.",
)
@click.option(
    "--count",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    help="Samples per latency; fewer for large sizes.",
)
@click.option(
    "--seconds",
    type=duration(0.01, 60),
    default=0.2,
    show_default=True,
    metavar="SECONDS",
    help="Duration of each rate measurement.",
)
@on_option
@click.option(
    "--provider",
    show_default="soft; cuda for GPU memory",
    help="What moves the bytes: soft, cuda, softdoca or doca.",
)
@click.option(
    "--address",
    "endpoint",
    type=address,
    metavar="ADDRESS",
    help="Address of a running agent. Default: start a software DPU.",
)
@click.option("--keys", metavar="NAME", help="Key pair of this side, for tcp://.")
@click.option(
    "--json",
    "json_",
    is_flag=False,
    flag_value=_STDOUT,
    metavar="[FILE]",
    help="Write all reports to FILE; without FILE, print only JSON on stdout.",
)
def bench(
    sizes: Sequence[int],
    depths: Sequence[int],
    ops: Sequence[str],
    paths: Sequence[str] | None,
    count: int,
    seconds: float,
    on: str,
    provider: str | None,
    endpoint: str | None,
    keys: str | None,
    json_: str | None,
) -> int:
    """Measure the latency of single transfers, then rates, each with the floor of the machine.

    Samples are taken in C on the DPU side. The floor of a latency is one doorbell, one memcpy by
    another thread and one flag, or one memcpy for the inline path; the floor of a rate is memcpy.
    For GPU memory it is a C loop over the CUDA driver that does the same copies; for DOCA, a C loop
    over DOCA's own calls. A row is marked if its floor moved meanwhile: do not compare it.

    \b
    Examples:
      dgkit bench
      dgkit bench --sizes 64,4K --ops write --paths worker --depths 32
      dgkit bench --on gpu --sizes 8,4K,1M,32M
      dgkit bench --address "$(cat agent-address)" --json result.json
    """
    from .. import connect

    path = _output_file(json_)
    place = resolve_place(on, provider, local=endpoint is None)
    with connect(endpoint, provider=place.provider, gpu=place.gpu, keys=keys) as session:
        single_path = session.dpu.provider in {"cuda", *DOCA}
        paths = paths or (("auto",) if single_path else ("inline", "worker"))
        cases = [Case(*row) for row in product(ops, paths, sizes)]
        deep = [Case(*row) for row in product(ops, paths, sizes, depths)]
        results = _measure(session, place, cases, deep, count=count, seconds=seconds)
    if json_ != _STDOUT:
        _show(results)
    if json_:
        _write(path, results)
    return 0


def _measure(
    session: Session,
    place: Place,
    cases: Sequence[Case],
    deep: Sequence[Case],
    *,
    count: int,
    seconds: float,
) -> dict[str, Any]:
    from .sweep import latencies, rates

    largest = max(case.size for case in cases)
    with session.empty(largest, on=place.on, name="bench") as region, progress_bars() as progress:
        latency = list(latencies(session, region, cases, count=count, progress=progress))
        rate = list(rates(session, region, deep, seconds=seconds, progress=progress))
        where = {"place": region.place, "chosen": place.chosen or region.chosen}
    return {"info": session.info, **where, "latency": latency, "bandwidth": rate}


def _show(results: dict[str, Any]) -> None:
    from .tables import floor_note, latency_table, rate_table

    latency: Sequence[LatencyReport] = results["latency"]
    rate: Sequence[BandwidthReport] = results["bandwidth"]
    out = console()
    if results["chosen"]:
        out.print(f"auto: {results['chosen']}\n", markup=False, soft_wrap=True)
    label = latency[0].label
    for op in dict.fromkeys(report.op for report in latency):
        single = [report for report in latency if report.op == op]
        out.print(latency_table(single, f"Latency of one {op}, µs ({label})"), "")
        many = [report for report in rate if report.op == op]
        out.print(rate_table(many, f"Rates of {op}s ({label})"), "")
    if note := floor_note([*latency, *rate]):
        out.print(f"[yellow]{note}[/]")
    out.print(f"[dim]{latency[0].where}; {latency[0].machine}[/]", soft_wrap=True)


def _output_file(json_: str | None) -> Path | None:
    """Return the file to write, or None for stdout, after checking its folder."""
    if json_ in (None, _STDOUT):
        return None
    path = Path(json_ or "")
    if path.is_dir() or not path.parent.is_dir():
        raise click.UsageError(f"--json {path}: a folder, or its folder does not exist")
    return path


def _write(path: Path | None, results: dict[str, Any]) -> None:
    """Write all reports as JSON; a file is replaced atomically."""
    import json

    from .._version import __version__

    rows = {
        name: [report.to_dict() for report in results[name]] for name in ("latency", "bandwidth")
    }
    document = {"kind": "dgkit bench", "dgkit": __version__, **results, **rows}
    if path is None:
        print_json(document)
        return
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    say(f"written to {path}")
