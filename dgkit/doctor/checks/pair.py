"""A host and a DPU together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps

import msgspec

from .. import finding, references
from ..collect.reading import Reading
from ..facts import bluefield, pci
from ..facts.bluefield import Mode
from ..facts.doca import doca
from ..finding import Finding, Verdict, worst
from ..goals import Goal
from ..machine import Case, Machine
from ..registry import Judge, check, named
from . import _link_type

_ARM_DMA = {Goal.ARM_DMA}
_JUDGE = "judge both: --from host.snap --from dpu.snap"


def _both(judge: Callable[[Case, Machine, Machine], Iterator[Finding]]) -> Judge:
    """A check of a host and a DPU; n.a. while one side is missing."""

    @wraps(judge)
    def judged(case: Case) -> Iterator[Finding]:
        if case.host is None:
            yield finding.n_a("only the DPU is known", why=f"To compare, {_JUDGE}")
        elif case.dpu is None:
            yield finding.n_a("only the host is known", why=f"To compare, {_JUDGE}")
        else:
            yield from judge(case, case.host, case.dpu)

    return judged


@check("pair-bluefield", "Host and DPU: the same BlueField", goals=_ARM_DMA, sides=("pair",))
@_both
def same(case: Case, host: Machine, dpu: Machine) -> Iterator[Finding]:
    """Are these a host and its own DPU, and does the DPU see the host?"""
    trees = host.know(pci.tree), dpu.know(pci.tree)
    used = [references.REPRESENTORS(), references.MODES("DPU mode, NIC mode")]
    for tree, name in zip(trees, ("host", "DPU"), strict=True):
        if tree.why:
            yield finding.unknown(f"no PCI devices of the {name}", why=tree.why, sources=used)
            return
    there, here = ({one.bluefield for one in tree.bluefields} for tree in trees)
    seen = f"host {_or(there)}, DPU {_or(here)}"
    if not there:
        why = "The host has no BlueField on its PCI bus: this DPU is in another machine."
        remedy = ["lspci -d 15b3:  # on the host: is the card there?"]
        yield finding.fail(seen, needed="the same", why=why, remedy=remedy, sources=used)
    elif not here or there & here:
        yield _modes(host, dpu, used) or _ports(case, host, dpu, seen, used)
    else:
        why = "They are of different generations: this DPU is in another machine."
        remedy = ["# Record the DPU and the host that it sits in"]
        yield finding.fail(seen, needed="the same", why=why, remedy=remedy, sources=used)


def _or(names: set[str]) -> str:
    return " and ".join(sorted(names)) or "none"


def _modes(host: Machine, dpu: Machine, used: list[references.Source]) -> Finding | None:
    """That the sides tell different modes, each of its own card: then these are not one card."""
    there = {bluefield.mode(settings) for _, settings in host.know(bluefield.configs)}
    here = {bluefield.mode(settings) for _, settings in dpu.know(bluefield.configs)}
    if Mode.UNKNOWN in here and any(one.host for one in dpu.know(bluefield.representors)):
        here = {Mode.DPU}
    if not there or not here or Mode.UNKNOWN in there | here or there & here:
        return None
    return finding.fail(
        f"host {_or(set(map(str, there)))}, Arm {_or(set(map(str, here)))}",
        needed="the same mode",
        why="One card is in one mode: the two cannot be one card now, or one snapshot is older "
        "than a change of the mode.",
        remedy=["# record both sides anew, of a host and the DPU that sits in it"],
        sources=used,
    )


def _ports(
    case: Case, host: Machine, dpu: Machine, seen: str, used: list[references.Source]
) -> Finding:
    """The host's ports have representors on the DPU."""
    listing = dpu.read.names("/sys/class/net")
    ports = sum(one.is_nic for one in host.know(pci.tree).bluefields)
    stand = [one for one in dpu.know(bluefield.representors) if "hpf" in one.net + one.port]
    if not listing.ok and not listing.absent:
        return finding.unknown(seen, needed="representors", why=f"{listing.why}.", sources=used)
    if not stand:
        there = msgspec.structs.replace(case, machine=host)
        lines = _link_type.asking(there, host.know(bluefield.configs), bluefield.MODE)
        return finding.fail(
            "the DPU does not see the host",
            needed="pf0hpf on the DPU",
            why="No representor of the host's function is there: DOCA on the DPU finds no host.",
            remedy=["# on the host: in which mode is the card?", *lines],
            sources=used,
        )
    names = ", ".join(sorted(one.net for one in stand)[:2])
    found = f"{_or({one.bluefield for one in host.know(pci.tree).bluefields})}: {names}"
    needed = f"representors of {ports} ports" if ports > 1 else "a representor"
    why = "By generation, mode and representors: cards that are alike in these are not told apart."
    return finding.ok(found[:45], needed=needed, why=why, sources=used)


@check("pair-versions", "Host and DPU: versions", goals=_ARM_DMA, sides=("pair",))
@_both
def versions(_case: Case, host: Machine, dpu: Machine) -> Iterator[Finding]:
    """Do DOCA and dgkit of both sides go together?"""
    yield _docas(host, dpu)
    yield _dgkits(host, dpu)


def _docas(host: Machine, dpu: Machine) -> Finding:
    used = [references.DOCA_SUPPORT()]
    there, here = host.know(doca), dpu.know(doca)
    both = f"host {there.version or '?'}, DPU {here.version or '?'}"
    if there.version is None or here.version is None:
        silent, name = (there, "host") if there.version is None else (here, "DPU")
        why = f"{silent.why or f'The {name} has no DOCA that tells its version'}."
        return finding.unknown(both, needed="the same", subject="DOCA", why=why, sources=used)
    if there.version.parts[:2] == here.version.parts[:2]:
        return finding.ok(both, needed="the same", subject="DOCA", sources=used)
    return finding.warn(
        both,
        needed="the same",
        subject="DOCA",
        why="What one side exports the other must understand: releases are tested as a pair.",
        remedy=["# Install the same release of DOCA on the host and in the BlueField's image"],
        sources=used,
    )


def _dgkits(host: Machine, dpu: Machine) -> Finding:
    there, here = (one.read.ask("dgkit") for one in (host, dpu))
    known = [one.data for one in (there, here) if _tells_wire(one)]
    if len(known) < 2:
        silent, name = (here, "DPU") if _tells_wire(there) else (there, "host")
        why = f"{silent.why or f'The {name} does not tell'}."
        return finding.unknown("?", needed="the same", subject="dgkit", why=why)
    words = [f"{one.get('version', '?')} (wire {one.get('wire', '?')})" for one in known]
    both = f"host {words[0]}, DPU {words[1]}"
    if known[0].get("wire") != known[1].get("wire"):
        return finding.fail(
            both,
            needed="the same wire",
            subject="dgkit",
            why="The two sides do not understand each other's messages.",
            remedy=["pip install --upgrade dgkit  # on the older side"],
        )
    if known[0].get("version") != known[1].get("version"):
        return finding.ok(both, needed="the same wire", subject="dgkit")
    return finding.ok(f"{words[0]} on both", needed="the same wire", subject="dgkit")


def _tells_wire(said: Reading) -> bool:
    return isinstance(said.data, Mapping) and isinstance(said.data.get("wire"), int)


_LENT = {"dmabuf-gpu": "as a dma-buf", "peermem": "by nvidia-peermem"}
_MEMORY_SOURCES = (
    references.DMA_SAMPLES("Remote Copy Sender"),
    references.FORUM("Can the DPU Arm Directly Access GPU Memory on the Same Host?"),
)


@check("pair-memory", "Host and DPU: GPU memory", goals=_ARM_DMA, sides=("pair",))
@_both
def memory(case: Case, host: Machine, dpu: Machine) -> Iterator[Finding]:
    """Can the host lend GPU memory, and can the DPU import it?"""
    levels = {name: _level(case, host, name) for name in _LENT}
    takes = _level(case, dpu, "doca-libraries")
    lent = [words for name, words in _LENT.items() if levels[name] is Verdict.OK]
    needed, see = "lent and imported", _see(levels)
    if Verdict.CANNOT_TELL in (takes, *levels.values()) and not lent:
        yield finding.unknown("not told", needed=needed, why=see, sources=_MEMORY_SOURCES)
    elif not lent:
        found, do = "the host lends no GPU memory", "dgkit doctor dmabuf-gpu peermem  # on the host"
        yield finding.fail(found, needed=needed, why=see, remedy=[do], sources=_MEMORY_SOURCES)
    elif takes is Verdict.FAIL:
        found, do = "the DPU imports nothing", "dgkit doctor doca-libraries  # on the DPU"
        why = "DOCA's libraries are missing on the DPU."
        yield finding.fail(found, needed=needed, why=why, remedy=[do], sources=_MEMORY_SOURCES)
    else:
        why = (
            "NVIDIA's forum says that the Arm cores can reach GPU memory, and that no document "
            "describes it; nothing confirms that DOCA DMA takes a dma-buf of it."
        )
        yield finding.ok(f"lent {lent[0]}", needed=needed, why=why, sources=_MEMORY_SOURCES)


def _level(case: Case, machine: Machine, name: str) -> Verdict:
    """What another check says of one side; its readings are made already."""
    asked = msgspec.structs.replace(case, machine=machine)
    found = [one for check in named([name]) for one in check.judge(asked)]
    if any(one.verdict is Verdict.OK for one in found):
        return Verdict.OK
    return worst(found)


def _see(levels: Mapping[str, Verdict]) -> str:
    said = " and ".join(f"{name} says {level}" for name, level in levels.items())
    return f"On the host, {said}."
