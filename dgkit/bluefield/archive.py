# SPDX-License-Identifier: Apache-2.0
"""Archive of `dgkit bluefield report`: figures and recordings, without names, addresses or payload.

It has report.json with the figures, the doctor's recordings host.snap and dpu.snap, and with DOCA
the trace of the DMA sample that `up` has recorded. The page that answers the questions is made from
them, by `show`, too.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .._version import __version__
from ..doca_trace import compare
from ..doctor import api as doctor
from ..doctor.collect.reader import Reading
from ..doctor.diagnosis import Diagnosis
from ..doctor.finding import Verdict
from ..doctor.format.notebook import text as doctor_page
from ..doctor.redact.redactor import Redactor
from ..errors import BluefieldError, DgkitError, PeerLost
from ..files import read_limited, write_new
from ..report import BandwidthReport, LatencyReport, published
from ..session.connect import connect
from ..sizes import rate_span
from ..units import gb_per_s, plural, printable, size_text, us
from ..wire import saved
from ..wire.host_id import host_name
from .pack import cache
from .setup import TRACE, diagnoses
from .transfers import Transfer, first_transfers

if TYPE_CHECKING:
    from ..session import Session, SessionRegion

MAX_BYTES = 5_000_000
_MAX_MEMBER = 20_000_000
_MEMBERS = ("report.json", "host.snap", "dpu.snap")
_SIZES = (8, 64, 512, 4096, 65536, 1 << 20)
_OPS = ("write", "read")
_COUNT, _SECONDS, _WINDOW = 5_000, 0.2, 32
_FIRST = 20  # samples that say how many more fit into _LATENCY_S
_LATENCY_S = 1.0
_KEPT = ("doca", "provider", "why", "cards", "guesses")
# What reading a zip archive raises, and making a page of values that have another form.
_MALFORMED = (
    zipfile.BadZipFile, zlib.error, EOFError, RuntimeError,
    ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
)  # fmt: skip
# The ways of the question that started dgkit, with the data paths of the doctor that judge them.
_WAYS = (
    ("DOCA DMA with an exported mmap", "doca", ""),
    ("RDMA with a dma-buf", "verbs", "dma-buf"),
    ("RDMA with nvidia-peermem", "verbs", "nvidia-peermem"),
)


def write(path: Path, progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure through the agent of `up`, and write the archive; return its report.

    Args:
        path: The archive, which must not exist.
        progress: Called with a line for each step.

    Raises:
        BluefieldError: Nothing is set up, or the archive would be larger than 5 MB.
        FileExistsError: The file exists.
        FileNotFoundError: Its folder does not exist.
    """
    if path.exists():
        raise FileExistsError(17, os.strerror(17), str(path))
    if not path.parent.is_dir():  # before the measurements
        raise FileNotFoundError(2, os.strerror(2), str(path.parent))
    stored = saved.load()
    snapshots = [cache() / name for name in _MEMBERS[1:]]
    if not stored or not all(snapshot.exists() for snapshot in snapshots):
        raise BluefieldError("no BlueField is set up here: run `dgkit bluefield up` first")
    transfers = []
    for result in first_transfers():
        progress(f"{result.place} memory: {'works' if result.works else result.text}")
        transfers.append(result)
    figures = _measure(transfers, progress) if any(each.works for each in transfers) else []
    trace = cache() / TRACE
    found = _redacted(
        {
            "format": 1,
            "dgkit": __version__,
            "taken": date.today().isoformat(),
            **{name: stored[name] for name in _KEPT if name in stored},
            "transfers": [
                {"place": t.place, "works": t.works, "text": t.text, "way": t.way}
                for t in transfers
            ],
            "figures": figures,
            **({"trace": _replayed(trace)} if trace.exists() else {}),
        },
        str(stored["arm"]),
    )
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_MEMBERS[0], json.dumps(found, indent=1))
        for name, snapshot in zip(_MEMBERS[1:], snapshots, strict=True):
            archive.write(snapshot, name)
        if trace.exists():
            archive.write(trace, trace.name)
    if content.tell() > MAX_BYTES:
        raise BluefieldError(f"the report has {size_text(content.tell())}; the limit is 5 MB")
    write_new(path, content.getvalue())
    return found


def _measure(transfers: list[Transfer], progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return a figure for each memory, operation and size: measured, or with the reason why not."""
    figures: list[dict[str, Any]] = []
    for place in (each.place for each in transfers if each.works):
        try:
            with connect(saved.BLUEFIELD) as session:
                for figure in _figures(session, place):
                    figures.append(figure)
                    about = f"{place}, {figure['op']} of {size_text(figure['size'])}"
                    progress("; ".join([about, *figure["why"]]))
        except DgkitError as error:  # the rest of this memory, with the session
            figures.append({"place": place, "op": "", "size": 0, "why": [str(error)]})
            progress(f"{place}: {error}")
    return figures


def _figures(session: Session, place: str) -> Iterator[dict[str, Any]]:
    """Yield the figures of one kind of memory; `where`, with pids and names, is left out."""
    with session.empty(rate_span(max(_SIZES), _WINDOW), on=place, name="report") as region:
        for op in _OPS:
            for size in _SIZES:
                options: dict[str, Any] = {"size": size, "op": op, "destructive": True}
                figure: dict[str, Any] = {"place": place, "op": op, "size": size, "why": []}
                for name, measure in (
                    ("latency", partial(_latency, session)),
                    ("rate", partial(session.bandwidth, seconds=_SECONDS, window=_WINDOW)),
                ):
                    try:
                        figure[name] = measure(region, **options).to_dict() | {"where": ""}
                    except PeerLost:
                        raise
                    except DgkitError as error:  # a link may be too slow for this size alone
                        figure["why"].append(f"no {name}: {error}")
                yield figure


def _latency(session: Session, region: SessionRegion, **options: Any) -> LatencyReport:
    """Measure a latency with as many samples as take about a second."""
    first = session.latency(region, count=_FIRST, **options)
    count = min(_COUNT, int(_LATENCY_S * 1e9 / (first.p50_ns + 1)))
    return first if count <= _FIRST else session.latency(region, count=count, **options)


def _replayed(trace: Path) -> dict[str, Any]:
    """Replay the trace of the DMA sample against softdoca; return what differs."""
    try:
        (replayed,) = compare([trace]).traces
    except (DgkitError, OSError) as error:
        return {"why": str(error)}
    of = f"{replayed.calls} calls of {'softdoca' if replayed.is_softdoca else 'DOCA'} "
    return {
        "of": of + replayed.doca,
        "differences": [
            f"call {each.call}, {each.function}: {each.recorded}; softdoca: {each.replayed}"
            for each in replayed.differences
        ],
    }


def _redacted(found: dict[str, Any], arm: str) -> dict[str, Any]:
    """Return the report without names and addresses, in whatever text they may be."""
    host = urlsplit(arm).hostname if arm.startswith("ssh://") else arm.rpartition("@")[2]
    readings = {
        "text /etc/hostname": Reading(text=host_name()),
        "report": Reading(data=found),
    }
    if host and not _is_address(host):  # addresses are found in any text; the end of one is no name
        readings["ask hostname"] = Reading(data=host)
    redacted: dict[str, Any] = Redactor(token_hex(16)).redact(readings)["report"].data
    return redacted


def _is_address(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def read(path: Path) -> tuple[dict[str, Any], list[Diagnosis], str]:
    """Read an archive, which may be anybody's.

    Returns:
        The report, what the doctor says of the recordings, and which NIC serves which GPU.

    Raises:
        ValueError: It is not an archive of `report`, or is damaged.
        OSError: It cannot be read.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(read_limited(path, MAX_BYTES)))
        content = {name: _read_member(archive, name) for name in _MEMBERS}
        found = json.loads(content[_MEMBERS[0]])
        if not isinstance(found, dict) or found.get("format") != 1:
            raise ValueError("it has another format")
        page(found, [], "")
    except _MALFORMED as error:
        raise ValueError(f"{path} is no file of `dgkit bluefield report`: {error}") from None
    with tempfile.TemporaryDirectory() as folder:
        files = (Path(folder, "host.snap"), Path(folder, "dpu.snap"))
        for file in files:
            file.write_bytes(content[file.name])
        return found, diagnoses(files), str(doctor.nics(files[0]))


def _read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as file:
        content = file.read(_MAX_MEMBER + 1)
    if len(content) > _MAX_MEMBER:
        raise ValueError(f"{name} has more than {_MAX_MEMBER:,} bytes")
    return content


def page(found: Mapping[str, Any], diagnosed: list[Diagnosis], nics: str) -> list[str]:
    """Return the page: the questions in their order, with the answers of one report."""
    by_place = {str(row["place"]): row for row in found["transfers"]}
    lines = [
        "BlueField report of {taken}, dgkit {dgkit}, provider {provider}".format(**found),
        f"Cards: {'; '.join(map(str, found.get('cards') or [])) or 'none in the host'}",
        "",
        "1. Can the Arm cores reach this GPU's memory here?",
        *_reach_lines(found, by_place),
        "",
        "2. By which ways?",
        *_way_lines(found, by_place),
        "",
        "3. At what latency and rate?",
        *_figure_rows(found["figures"]),
        "",
        *published.page(),
        "",
        "4. Over which PCIe path?",
        *(f"  {line}" for line in nics.splitlines()),
        "",
        "5. What would make it better?",
        *_better(diagnosed),
        "",
        "6. Where does DOCA here differ from softdoca?",
        *_difference_lines(found),
        "",
        "7. What does the DMA sample do here that softdoca does not?",
        *_of_trace(found.get("trace") or {}),
    ]
    return [printable(str(line)) for line in lines]


def _reach_lines(found: Mapping[str, Any], by_place: Mapping[str, Any]) -> Iterator[str]:
    software = found.get("provider") in ("soft", "softdoca", "cuda")
    for place in ("gpu", "host"):
        row = by_place.get(place, {"works": False, "text": "not tried", "way": ""})
        label = "yes" if row["works"] else "no"
        if row["works"] and software:
            label = "not shown: a software DPU moved the bytes"
        yield f"  {place} memory: {label}. {row['text']}"


def _way_lines(found: Mapping[str, Any], by_place: Mapping[str, Any]) -> Iterator[str]:
    gpu, why = by_place.get("gpu", {}), [str(line) for line in found.get("why") or []]
    for title, provider, way in _WAYS:
        # A registration that failed has no way: all of the provider's ways have failed.
        tried = not way or gpu.get("way") == way or not gpu.get("works")
        mine = found.get("provider") == provider and tried
        refused = next((line for line in why if line.startswith(f"not {provider}:")), "")
        if mine:
            answer = "works" if gpu.get("works") else f"does not: {gpu.get('text', 'not tried')}"
        else:
            answer = refused or "not tried: another way was taken"
        yield f"  {title}: {answer}"


def _figure_rows(figures: list[Mapping[str, Any]]) -> Iterator[str]:
    if not figures:
        yield "  nothing was measured: no transfer worked"
        return
    yield (
        f"  {'memory':8}{'op':7}{'size':>9}{'p50 us':>11}{'p99 us':>11}{'floor us':>11}"
        f"{'GB/s':>9}{'floor':>9}  by"
    )
    for row in figures:
        cells, label = ["-"] * 5, ""
        if "latency" in row:
            latency = LatencyReport.from_dict(row["latency"])
            floor = us(median(latency.floor_ns)) if latency.floor_ns else "none"
            cells[:3] = us(latency.p50_ns), us(latency.p99_ns), floor
            if latency.floor_moved:
                cells[2] = "moved"
            label = latency.label
        if "rate" in row:
            rate = BandwidthReport.from_dict(row["rate"])
            memcpy = gb_per_s(median(rate.floor_gb_per_s) * 1e9) if rate.floor_gb_per_s else "none"
            cells[3:] = gb_per_s(rate.gb_per_s * 1e9), "moved" if rate.floor_moved else memcpy
            label = rate.label
        size = size_text(int(row["size"])) if row["size"] else ""
        p50, p99, floor, gb, memcpy = cells
        yield (
            f"  {row['place']:8}{row['op']:7}{size:>9}{p50:>11}{p99:>11}{floor:>11}{gb:>9}"
            f"{memcpy:>9}  {label}".rstrip()
        )
        yield from (f"    {why}" for why in row.get("why", ()))


def _better(diagnosed: list[Diagnosis]) -> Iterator[str]:
    """Yield what the doctor finds; its own pages, which follow, have the commands."""
    for diagnosis in diagnosed:
        bad = [each for each in diagnosis.findings if each.verdict >= Verdict.WARN]
        if not bad:
            yield f"  {diagnosis.goal}: nothing that the doctor finds"
        for finding in bad:
            yield f"  {finding.title}: {finding.found}. {finding.why}"
    if any(each.verdict >= Verdict.WARN for one in diagnosed for each in one.findings):
        yield "  The doctor's pages, below, have the commands."


def _difference_lines(found: Mapping[str, Any]) -> Iterator[str]:
    doca = found.get("doca") or {}
    here, there = doca.get("doca") or [], doca.get("softdoca") or []
    if not here or not there:
        yield "  unknown: the Arm side has no DOCA device"
        return
    for device in here:
        rows = [
            f"{name} is {device.get(name)}, softdoca's {value}"
            for name, value in there[0].items()
            if name in ("max_copy", "max_list", "export_pci", "from_export_pci")
            and device.get(name) != value
        ]
        yield f"  {device.get('ibdev')}: {'; '.join(rows) or 'in none of its capabilities'}"
    for question, answers in (found.get("guesses") or {}).items():
        real, ours = (answers.get(kind, "not asked") for kind in ("doca", "softdoca"))
        yield f"  {question}: {real}{', as softdoca' if real == ours else f'; softdoca: {ours}'}"


def _of_trace(trace: Mapping[str, Any]) -> Iterator[str]:
    if "of" not in trace:
        yield f"  unknown: {trace.get('why', 'no DOCA was there to record it')}"
        return
    yield f"  {trace['of']}, replayed: {plural(len(trace['differences']), 'difference')}"
    yield from (f"  {each}" for each in trace["differences"])


def full_page(found: Mapping[str, Any], diagnosed: list[Diagnosis], nics: str) -> str:
    """Return the page, and the doctor's own pages after it."""
    parts = ["\n".join(page(found, diagnosed, nics)), *map(doctor_page, diagnosed)]
    return "\n\n".join(map(printable, parts))
