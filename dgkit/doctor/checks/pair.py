# SPDX-License-Identifier: Apache-2.0
"""A host and its DPU, judged together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from ..._version import DISTRIBUTION
from .. import finding, references
from ..collect.reader import Reading
from ..facts import bluefield, pci
from ..facts.bluefield import Mode
from ..facts.doca import doca
from ..finding import Finding, Verdict, worst
from ..goals import BY_ARM, Goal
from ..machine import Case, Machine
from ..prerequisites import applies, readable
from ..registry import check, named
from . import _card_settings

_JUDGE_BOTH = "judge both: --from host.snap --from dpu.snap"


_BOTH = (
    applies(lambda case: case.host, "only the DPU is known", why=f"To compare, {_JUDGE_BOTH}"),
    applies(lambda case: case.dpu, "only the host is known", why=f"To compare, {_JUDGE_BOTH}"),
)


def _sides(case: Case) -> tuple[Machine, Machine]:
    """Return the host and the DPU of a case that meets _BOTH."""
    assert case.host is not None and case.dpu is not None  # noqa: PT018
    return case.host, case.dpu


@check(
    "pair-bluefield",
    "Host and DPU: the same BlueField",
    asks="Are these a host and its own DPU, and does the DPU see the host?",
    goals=BY_ARM,
    sides=("pair",),
    sources=[references.REPRESENTORS(), references.MODES("DPU mode, NIC mode")],
    requires=[
        *_BOTH,
        readable(lambda case: _sides(case)[0].know(pci.tree).why, "no PCI devices of the host"),
        readable(lambda case: _sides(case)[1].know(pci.tree).why, "no PCI devices of the DPU"),
    ],
)
def _pair_bluefield(case: Case) -> Finding:
    host, dpu = _sides(case)
    trees = host.know(pci.tree), dpu.know(pci.tree)
    on_host, on_dpu = ({card.bluefield for card in tree.bluefields} for tree in trees)
    found = f"host {_join(on_host)}, DPU {_join(on_dpu)}"
    if not on_host:
        why = "The host has no BlueField on its PCI bus: this DPU is in another machine."
        remedy = ["lspci -d 15b3:  # on the host: is the card there?"]
        return finding.fail(found, needed="the same", why=why, remedy=remedy)
    if not on_dpu or on_host & on_dpu:
        return _judge_modes(host, dpu) or _judge_ports(host, dpu, found)
    why = "They are of different generations: this DPU is in another machine."
    remedy = ["# Record the DPU and the host that it is installed in"]
    return finding.fail(found, needed="the same", why=why, remedy=remedy)


def _join(names: set[str]) -> str:
    return " and ".join(sorted(names)) or "none"


def _judge_modes(host: Machine, dpu: Machine) -> Finding | None:
    """Return a failure if the modes of the two sides differ: they are not one card; else None."""
    on_host = {bluefield.mode(settings) for _, settings in host.know(bluefield.configs)}
    on_dpu = {bluefield.mode(settings) for _, settings in dpu.know(bluefield.configs)}
    if Mode.UNKNOWN in on_dpu and any(port.host for port in dpu.know(bluefield.representors)):
        on_dpu = {Mode.DPU}
    if not on_host or not on_dpu or Mode.UNKNOWN in on_host | on_dpu or on_host & on_dpu:
        return None
    return finding.fail(
        f"host {_join(set(map(str, on_host)))}, Arm {_join(set(map(str, on_dpu)))}",
        needed="the same mode",
        why="A card is in one mode at a time: these are two cards, or one snapshot is older than a "
        "change of the mode.",
        remedy=["# record both sides again: a host and the DPU that is installed in it"],
    )


def _judge_ports(host: Machine, dpu: Machine, found: str) -> Finding:
    """Return the finding on the representors of the host's ports on the DPU."""
    listing = dpu.read.names("/sys/class/net")
    ports = sum(card.is_nic for card in host.know(pci.tree).bluefields)
    known = dpu.know(bluefield.representors)
    representors = [netdev for netdev in known if "hpf" in netdev.net + netdev.port]
    if not listing.ok and not listing.absent:
        why = f"{listing.why}."
        return finding.unknown(found, needed="representors", why=why)
    if not representors:
        lines = _card_settings.query_commands(host.know(bluefield.configs), bluefield.MODE)
        return finding.fail(
            "the DPU does not see the host",
            needed="pf0hpf on the DPU",
            why="There is no representor of the host's function: DOCA on the DPU finds no host.",
            remedy=["# on the host, query the card's mode:", *lines],
        )
    names = ", ".join(sorted(netdev.net for netdev in representors)[:2])
    found = f"{_join({card.bluefield for card in host.know(pci.tree).bluefields})}: {names}"
    needed = f"representors of {ports} ports" if ports > 1 else "a representor"
    why = "Compared by generation, mode and representors; cards that agree in these look the same."
    return finding.ok(found[:45], needed=needed, why=why)


@check(
    "pair-versions",
    "Host and DPU: versions",
    asks="Are DOCA and dgkit of both sides compatible?",
    goals=BY_ARM,
    sides=("pair",),
    needed="the same",
    requires=_BOTH,
)
def _pair_versions(case: Case) -> Iterator[Finding]:
    host, dpu = _sides(case)
    yield _judge_doca(host, dpu)
    yield _judge_dgkit(host, dpu)


def _judge_doca(host: Machine, dpu: Machine) -> Finding:
    sources = [references.DOCA_SUPPORT()]
    on_host, on_dpu = host.know(doca), dpu.know(doca)
    both = f"host {on_host.version or '?'}, DPU {on_dpu.version or '?'}"
    if on_host.version is None or on_dpu.version is None:
        missing, name = (on_host, "host") if on_host.version is None else (on_dpu, "DPU")
        why = f"{missing.why or f'The {name} has no DOCA with a known version'}."
        return finding.unknown(both, subject="DOCA", why=why, sources=sources)
    if on_host.version.parts[:2] == on_dpu.version.parts[:2]:
        return finding.ok(both, subject="DOCA", sources=sources)
    return finding.warn(
        both,
        subject="DOCA",
        why="One side imports what the other exports: releases are tested as a pair.",
        remedy=["# Install the same release of DOCA on the host and in the BlueField's image"],
        sources=sources,
    )


def _judge_dgkit(host: Machine, dpu: Machine) -> Finding:
    on_host, on_dpu = host.read.ask("dgkit"), dpu.read.ask("dgkit")
    known = [reading.data for reading in (on_host, on_dpu) if _has_wire(reading)]
    if len(known) < 2:
        missing, name = (on_dpu, "DPU") if _has_wire(on_host) else (on_host, "host")
        why = f"{missing.why or f'The version of dgkit on the {name} is not known'}."
        return finding.unknown("?", subject="dgkit", why=why)
    versions = [f"{data.get('version', '?')} (wire {data.get('wire', '?')})" for data in known]
    both = f"host {versions[0]}, DPU {versions[1]}"
    if known[0].get("wire") != known[1].get("wire"):
        return finding.fail(
            both,
            needed="the same wire",
            subject="dgkit",
            why="The two sides use different versions of the wire protocol.",
            remedy=[f"pip install --upgrade {DISTRIBUTION}  # on the older side"],
        )
    if known[0].get("version") != known[1].get("version"):
        return finding.ok(both, needed="the same wire", subject="dgkit")
    return finding.ok(f"{versions[0]} on both", needed="the same wire", subject="dgkit")


def _has_wire(reading: Reading) -> bool:
    return isinstance(reading.data, Mapping) and isinstance(reading.data.get("wire"), int)


_EXPORTS = {"dmabuf-gpu": "as a dma-buf", "peermem": "by nvidia-peermem"}
_MEMORY_SOURCES = (
    references.DMA_SAMPLES("Remote Copy Sender"),
    references.FORUM("Can the DPU Arm Directly Access GPU Memory on the Same Host?"),
)


@check(
    "pair-memory",
    "Host and DPU: GPU memory",
    asks="Can the host export GPU memory, and can the DPU import it?",
    goals=[Goal.ARM_DMA],
    sides=("pair",),
    sources=_MEMORY_SOURCES,
    needed="exported and imported",
    requires=_BOTH,
)
def _pair_memory(case: Case) -> Finding:
    host, dpu = _sides(case)
    verdicts = {name: _verdict(case, host, name) for name in _EXPORTS}
    imports = _verdict(case, dpu, "doca-libraries")
    exports = [how for name, how in _EXPORTS.items() if verdicts[name] is Verdict.OK]
    _needed, checked = "exported and imported", _describe(verdicts)
    if Verdict.UNKNOWN in (imports, *verdicts.values()) and not exports:
        return finding.unknown("not known", why=checked)
    if not exports:
        found, do = "no export of GPU memory", "dgkit doctor dmabuf-gpu peermem  # on the host"
        return finding.fail(found, why=checked, remedy=[do])
    if imports is Verdict.FAIL:
        found, do = "no import on the DPU", "dgkit doctor doca-libraries  # on the DPU"
        why = "DOCA's libraries are missing on the DPU."
        return finding.fail(found, why=why, remedy=[do])
    why = (
        "NVIDIA's forum says that the Arm cores can reach GPU memory, and that no document "
        "describes it; nothing confirms that DOCA DMA accepts a dma-buf of it."
    )
    return finding.ok(f"exported {exports[0]}", why=why)


def _verdict(case: Case, machine: Machine, name: str) -> Verdict:
    """Return the verdict of another check on one side; OK if any of its findings is."""
    side = msgspec.structs.replace(case, machine=machine)
    findings = [found for check in named([name]) for found in check.findings(side)]
    if any(found.verdict is Verdict.OK for found in findings):
        return Verdict.OK
    return worst(findings)


def _describe(verdicts: Mapping[str, Verdict]) -> str:
    verdict_list = ", ".join(f"{name}: {verdict}" for name, verdict in verdicts.items())
    return f"On the host, {verdict_list}."
