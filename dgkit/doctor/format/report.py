# SPDX-License-Identifier: Apache-2.0
"""A text of one screen to paste into a forum or an issue, for `dgkit doctor --report`."""

from __future__ import annotations

import html
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator

from ..._version import __version__
from ...units import one_line
from ..collect.reader import Reading
from ..collect.snapshot import RecordedReader
from ..diagnosis import Diagnosis
from ..facts.distribution import os_release
from ..facts.uname import uname
from ..facts.virtual import container, virtual
from ..finding import Verdict
from ..machine import Machine
from .summary import group_findings, needed_text, origins, reason

LINES, _WIDTH = 40, 100
_LABEL = 10
# What the readers of a forum thread ask first. For each line: the checks whose findings it shows,
# each with the word that precedes its finding.
_GROUPS = {
    "GPU": {
        "gpu-present": "",
        "gpudirect-platform": "",
        "bar1-size": "BAR1",
        "nvlink-fabric": "NVLink fabric",
        "gpu-peers": "peers",
        "imex": "IMEX",
    },
    "driver": {
        "driver-loaded": "",
        "driver-flavour": "modules",
        "cuda-driver": "",
        "cuda-context": "context",
        "dmabuf-gpu": "dma-buf",
    },
    "NIC": {
        "rdma-devices": "",
        "firmware-version": "firmware",
        "ofed-version": "",
        "rdma-core": "libibverbs",
        "rdma-dmabuf": "",
    },
    "peermem": {"peermem": "", "gdrcopy": "GDRCopy", "driver-registry": "registry"},
    "DPU": {"bluefield-present": "", "bluefield-mode": "", "doca-version": ""},
    "PCIe": {"topology": "", "acs": "ACS", "iommu": "IOMMU", "link": "links"},
    "limits": {"container": "", "memlock": "memlock", "memlock-queues": "memlock of queues"},
}


def report(diagnosis: Diagnosis) -> str:
    """Return the report of a diagnosis of recordings, whose readings contain pseudonyms."""
    lines = [*_head_lines(diagnosis), *_machine_lines(diagnosis)]
    last = _reading_counts(diagnosis)
    found = list(_finding_lines(diagnosis))
    room = LINES - len(lines) - len(last) - 1
    if len(found) > room:
        found = [*found[: room - 1], f"and {len(found) - room + 1} more lines: dgkit doctor"]
    return "\n".join([*lines, "", *found, *last][:LINES])


def html_page(diagnosis: Diagnosis) -> str:
    """Return the same as a page for a browser: the card of a notebook, and the text below it."""
    title = f"dgkit doctor: {diagnosis.goal}"
    text = html.escape(report(diagnosis))
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>\n'
        f"{diagnosis._repr_html_()}\n<pre>{text}</pre>\n</html>\n"
    )


def _head_lines(diagnosis: Diagnosis) -> Iterator[str]:
    verdict, code = diagnosis.verdict, diagnosis.exit_code
    yield f"dgkit doctor {__version__}: {diagnosis.goal}: {verdict} (exit code {code})"
    for line in origins(diagnosis):
        if line.startswith("synthetic"):
            yield from _row("", line)
    for path in diagnosis.data_paths:
        if path.serves or path is diagnosis.best:
            yield from _row("path", f"{path.title}: {path.word}{reason(path)}")


def _machine_lines(diagnosis: Diagnosis) -> Iterator[str]:
    case = diagnosis.case
    for name, machine in (("host", case.host), ("dpu", case.dpu)):
        if machine is not None:
            yield from _row(name, _system_text(machine))
    for label, names in _GROUPS.items():
        parts = []
        for name, word in names.items():
            counts = Counter(
                finding.found
                for finding in diagnosis.of(name)
                if finding.verdict is not Verdict.NOT_APPLICABLE
            )
            found = ", ".join(f"{n} x {text}" if n > 1 else text for text, n in counts.items())
            if found:
                parts.append(f"{word}: {found}" if word else found)
        if parts:
            yield from _row(label, "; ".join(dict.fromkeys(parts)))


def _system_text(machine: Machine) -> str:
    release, linux = machine.know(os_release), machine.know(uname)
    names = [f"{release.get('ID', '?')} {release.get('VERSION_ID', '')}".strip()]
    names.append(f"Linux {linux.release or '?'}{' aarch64' if linux.arm else ''}")
    product = machine.read.text("/sys/class/dmi/id/product_name").text.strip()
    guest, engine = machine.know(virtual), machine.know(container).engine
    names += [product] if product else []
    names += [f"virtual machine ({guest.by or '?'})"] if guest.is_vm else []
    names += [f"container ({engine})"] if engine else []
    return ", ".join(names)


def _finding_lines(diagnosis: Diagnosis) -> Iterator[str]:
    shown = {finding.check for finding in diagnosis.findings}
    loud = [finding for finding in diagnosis.findings if finding.verdict >= Verdict.UNKNOWN]
    for group in group_findings(finding for finding in loud if finding.follows not in shown):
        finding = group.finding
        about = f" [{group.about}]" if group.about else ""
        word = {Verdict.UNKNOWN: "unknown"}.get(finding.verdict, str(finding.verdict))
        yield from _row(word, f"{finding.check}: {finding.found}{needed_text(finding)}{about}")


def _reading_counts(diagnosis: Diagnosis) -> list[str]:
    """Return the number of readings by kind, and of failed readings by fault."""
    sides = (diagnosis.case.host, diagnosis.case.dpu)
    found = [item for machine in sides if machine is not None for item in _readings(machine)]
    counts = Counter(reading.fault for _, reading in found)
    faults = [f"{counts[fault]} {fault}" for fault in ("absent", "denied", "late", "failed")
              if counts[fault]]  # fmt: skip
    kinds = Counter(key.partition(" ")[0] for key, _ in found)
    what = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
    text = f"{len(found)} readings ({what}); {', '.join(faults) or 'none missing'}."
    lacks = [key for key, reading in found if reading.fault in ("denied", "late", "failed")]
    text += f" Not read: {', '.join(lacks[:3])}{' ...' * (len(lacks) > 3)}." if lacks else ""
    text += " Serial numbers, addresses and names are pseudonyms; nothing was sent."
    return list(_row("read", text))


def _readings(machine: Machine) -> Iterable[tuple[str, Reading]]:
    reader = machine.read
    return reader.snapshot.readings.items() if isinstance(reader, RecordedReader) else ()


def _row(label: str, text: str) -> list[str]:
    width = _WIDTH - _LABEL
    wrapped = textwrap.wrap(one_line(text), width, break_on_hyphens=False)
    return [f"{label if not at else '':<{_LABEL}}{line}" for at, line in enumerate(wrapped)]
