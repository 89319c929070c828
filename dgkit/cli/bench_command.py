# SPDX-License-Identifier: Apache-2.0
"""`dgkit bench`: measure latency and bandwidth over sizes, depths, directions and paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from ..types import OWN_EXPORT
from .bench_gpu import gpu_initiated
from .console import console, progress_bars
from .json_file import STDOUT, json_option, output_file, write_document
from .options import (
    Place,
    address,
    choice,
    comma_separated,
    count_option,
    integer,
    on_option,
    ops_option,
    provider_option,
    resolve_place,
    seconds_option,
    size,
)
from .sweep_command import Case

if TYPE_CHECKING:
    from ..report import BandwidthReport, LatencyReport
    from ..session import Session


@click.group(short_help="Measure latency and bandwidth.", invoke_without_command=True)
@click.option(
    "--sizes",
    type=comma_separated(size),
    default="8,64,4K,64K,1M",
    metavar="LIST",
    help="Bytes per operation; K is 1024.",
)
@click.option(
    "--depths",
    type=comma_separated(integer(1, 65536)),
    default="1,32,256",
    metavar="LIST",
    help="Operations in flight for the rates; `window` in Python.",
)
@ops_option
@click.option(
    "--paths",
    type=comma_separated(choice("inline", "worker", "auto")),
    metavar="LIST",
    help="inline: the caller copies; worker: the provider's thread copies; auto: the faster one. "
    "Default: inline,worker, or auto with cuda, verbs, doca and softdoca.",
)
@count_option
@seconds_option
@on_option
@provider_option
@click.option(
    "--address",
    "endpoint",
    type=address,
    metavar="ADDRESS",
    help="Address of a running agent. Default: start a software DPU.",
)
@click.option("--keys", metavar="NAME", help="Key pair of this side, for tcp://.")
@click.option(
    "--published", is_flag=True, help="Also show what others have published about real hardware."
)
@json_option
@click.pass_context
def bench(context: click.Context, /, **options: Any) -> int:
    """Measure the latency of single transfers, then rates, each with the floor of the machine.

    Samples are taken in C on the DPU side. The floor of a latency is one doorbell, one memcpy by
    another thread and one flag, or one memcpy for the inline path; the floor of a rate is memcpy.
    For GPU memory it is a C loop over the CUDA driver that does the same copies; for DOCA, a C loop
    over DOCA's own calls. The floor is measured before and after each row. If the two differ, the
    row is marked: do not compare it.

    \b
    Examples:
      dgkit bench
      dgkit bench --sizes 64,4K --ops write --paths worker --depths 32
      dgkit bench --on gpu --sizes 8,4K,1M,32M
      dgkit bench --address "$(cat agent-address)" --json result.json
      dgkit bench gpu-initiated
    """
    from .. import connect

    if context.invoked_subcommand is not None:
        return _check_alone(context)
    given = _Options(**options)
    path = output_file(given.json_)
    place = resolve_place(given.on, given.provider, local=given.endpoint is None)
    with connect(
        given.endpoint, provider=place.provider, gpu=place.gpu, keys=given.keys
    ) as session:
        results = _measure(session, place, given)
    if given.json_ != STDOUT:
        _print_results(results)
        if given.published:
            from ..report.published import page

            click.echo("\n".join(["", *page()]))
    if given.json_:
        rows = {key: [r.to_dict() for r in results[key]] for key in ("latency", "bandwidth")}
        write_document(path, "dgkit bench", {**results, **rows})
    return 0


bench.add_command(gpu_initiated)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """Values of the options of `dgkit bench`."""

    sizes: Sequence[int]
    depths: Sequence[int]
    ops: Sequence[str]
    paths: Sequence[str] | None
    count: int
    seconds: float
    on: str
    provider: str | None
    endpoint: str | None
    keys: str | None
    published: bool
    json_: str | None


def _check_alone(context: click.Context) -> int:
    """Refuse options of `bench` itself before a subcommand, which takes other options."""
    given = [
        option.opts[0]
        for option in context.command.params
        if option.name is not None
        and context.get_parameter_source(option.name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(
            f"{given[0]} is not an option of {context.invoked_subcommand}; its own follow its name"
        )
    return 0


def _measure(session: Session, place: Place, options: _Options) -> dict[str, Any]:
    from .sweep_command import latencies, rates, region_size

    ops, sizes, count, seconds = options.ops, options.sizes, options.count, options.seconds
    single_path = session.dpu.provider in {"cuda", *OWN_EXPORT}
    paths = options.paths or (("auto",) if single_path else ("inline", "worker"))
    cases = [Case(*row) for row in product(ops, paths, sizes)]
    deep = [Case(*row) for row in product(ops, paths, sizes, options.depths)]
    with (
        session.empty(region_size(deep), on=place.on, name="bench") as region,
        progress_bars() as progress,
    ):
        latency = list(latencies(session, region, cases, count=count, progress=progress))
        rate = list(rates(session, region, deep, seconds=seconds, progress=progress))
        where = {"place": region.place, "chosen": place.chosen or region.chosen}
    return {"info": session.info, **where, "latency": latency, "bandwidth": rate}


def _print_results(results: dict[str, Any]) -> None:
    from .tables import floor_note, latency_table, legend, rate_table

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
        out.print(note, style="yellow", markup=False)
    out.print(legend(rate), style="dim", markup=False)
    where = f"{latency[0].where}; {latency[0].machine}"
    out.print(where, style="dim", markup=False, soft_wrap=True)
