"""dgkit itself: its core, its providers, its optional parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import finding, references
from ..collect.reading import Reading
from ..facts import pci
from ..facts.nvidia_proc import version_key
from ..facts.side import side
from ..facts.system import of_dgkit
from ..finding import Finding, Verdict
from ..goals import Goal
from ..machine import Case, Machine
from ..registry import check
from ._per_gpu import unread

# The extra `lab` in pyproject.toml, and the least versions.
LAB = {
    "jupyterlab": (4, 2),
    "ipython": (8, 12),
    "ipywidgets": (8, 1),
    "anywidget": (0, 9, 13),
    "bokeh": (3, 5),
}
_INFO = ("dgkit info",)
_START = references.DGKIT("Try it")


def info(machine: Machine) -> tuple[dict[str, Any], Reading]:
    """What `dgkit info --json` says, {} if nothing, and how it was read."""
    read = machine.read.probe("info")
    return (read.data if read.ok and isinstance(read.data, dict) else {}), read


@check("dgkit-core", "dgkit's core")
def core(case: Case) -> Iterator[Finding]:
    """Does the C core of dgkit load?"""
    said = case.machine.read.probe("core")  # `info` starts CUDA, which may take long
    loaded = said.data if said.ok and isinstance(said.data, dict) else None
    package = loaded
    if loaded is None:
        info_said, said = case.machine.know(info)
        loaded, package = info_said.get("core"), info_said.get("package")
    if not isinstance(loaded, dict) or not isinstance(package, dict):
        yield _untold(said)
        return
    found = f"dgkit {package.get('dgkit', '?')}, Python {package.get('python', '?')}"
    if loaded.get("loaded"):
        yield finding.ok(found, sources=[_START])
        return
    yield finding.fail(
        f"{found}: it does not load",
        needed="the C core",
        why=f"Nothing of dgkit works without it: {loaded.get('why', '')}",
        remedy=["# in dgkit's folder:", ".venv/bin/pip install --force-reinstall ."],
        sources=[_START],
    )


def _untold(read: Reading) -> Finding:
    why = f"{(read.why or 'dgkit info said nothing of it').rstrip('.')}."
    return finding.unknown("?", why=why, remedy=_INFO, sources=[_START])


@check("dgkit-providers", "Providers")
def providers(case: Case) -> Iterator[Finding]:
    """Which providers are usable here, and why are the others not?"""
    said, read = case.machine.know(info)
    listed = said.get("providers")
    known = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    if not known:
        loaded = said.get("core")
        broken = isinstance(loaded, dict) and not loaded.get("loaded")
        yield finding.n_a("the core does not load") if broken else _untold(read)
        return
    for one in known:
        if one.get("name") != "fault":  # it wraps another, and is for tests
            yield _provider(case, one)


def _provider(case: Case, one: dict[str, Any]) -> Finding:
    name, said = str(one.get("name", "?")), str(one.get("why", "")).rstrip(".")
    why = finding.sentence(said)
    if one.get("usable"):
        label = str(one.get("label") or "")
        found = f"usable: {label}" if label and len(label) < 38 else "usable"
        return finding.ok(found, subject=name, sources=[_SECTIONS.get(name, _START)])
    blocks = _blocks(case, name)
    devices = unread(case.machine) if case.machine.know(side) == "host" else ""
    if blocks is None and devices and name in ("cuda", "doca"):
        why = f"Whether it is needed is not known: {devices} {why}"
        return finding.unknown("not usable", needed=name, why=why, subject=name)
    if blocks is None:
        return finding.n_a("not usable here, and not needed", subject=name, why=why)
    judged, words = blocks
    section, why = _SECTIONS.get(name, _START), f"{words} {why}"
    make = finding.fail if judged is Verdict.FAIL else finding.warn
    found = "not usable"
    return make(found, needed=name, why=why, subject=name, remedy=_INFO, sources=[section])


_SECTIONS = {
    "cuda": references.DGKIT("GPU memory"),
    "doca": references.DGKIT("On a BlueField"),
    "softdoca": references.DGKIT("DOCA without a BlueField"),
}


def _blocks(case: Case, name: str) -> tuple[Verdict, str] | None:
    """How bad it is that a provider is not usable, and what it blocks; None: it is not needed."""
    machine, tree = case.machine, case.machine.know(pci.tree)
    dpu = machine.know(side) == "dpu"
    if name == "soft":
        judged = Verdict.FAIL if case.goal is Goal.LAPTOP else Verdict.WARN
        return judged, "The software DPU does not run."
    if name == "softdoca" and case.goal is Goal.LAPTOP:
        return Verdict.WARN, "Programs for DOCA cannot be tried without a BlueField."
    if name == "doca" and case.goal is Goal.ARM_DMA and (dpu or tree.bluefields):
        return Verdict.FAIL, "The BlueField's DMA cannot be used."
    if name == "cuda" and tree.gpus and not dpu:
        return Verdict.WARN, "The GPU's copy engine cannot stand in for a DPU."
    if name == "verbs" and case.goal is Goal.RDMA:
        return Verdict.FAIL, "RDMA cannot be used."
    return None


@check("dgkit-extras", "For notebooks", sides=("host",))
def extras(case: Case) -> Iterator[Finding]:
    """Is everything there that panels and plots in a notebook need?"""
    read = case.machine.read.ask("packages")
    source = [references.DGKIT("In a notebook")]
    if not isinstance(read.data, dict):
        why = f"{read.why or 'no packages are listed'}."
        yield finding.unknown("?", why=why, remedy=["pip list"], sources=source)
        return
    there = {name: str(read.data[name]) for name in LAB if read.data.get(name)}
    old = [name for name in there if () < version_key(there[name]) < LAB[name]]
    missing = [name for name in LAB if name not in there]
    if not old and not missing:
        named = f"JupyterLab {there['jupyterlab']}, bokeh {there['bokeh']}"
        yield finding.ok(named, sources=source)
    elif not there and case.goal is not Goal.LAPTOP:
        yield finding.n_a("none: not for notebooks")
    else:
        gone = ", ".join(missing)
        least = ", ".join(f"{name} {'.'.join(map(str, LAB[name]))}" for name in old)
        why = f"Missing: {gone}. " if missing else ""
        why += f"Too old, at least needed: {least}. " if old else ""
        yield finding.warn(
            f"{len(missing)} missing, {len(old)} too old",
            needed=", ".join(LAB) if len(missing) == len(LAB) else gone or least,
            why=f"{why}Panels, plots and `dgkit lab` need them.",
            remedy=of_dgkit(".[lab]"),
            sources=source,
        )
