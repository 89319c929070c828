# SPDX-License-Identifier: Apache-2.0
"""dgkit itself: its C core, providers and optional packages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import finding, references
from ..collect.reader import Reading
from ..facts import pci
from ..facts.bluefield import side
from ..facts.distribution import install_dgkit
from ..facts.nvidia_proc import version_key
from ..finding import Finding, Verdict
from ..goals import BY_ARM, Goal
from ..machine import Case, Machine
from ..prerequisites import applies, pci_unread, readable
from ..registry import check

# Minimum versions in the extra `lab` of pyproject.toml.
LAB = {
    "jupyterlab": (4, 2),
    "ipython": (8, 12),
    "ipywidgets": (8, 1),
    "anywidget": (0, 9, 13),
    "bokeh": (3, 5),
}
_INFO = ("dgkit info",)
_START = references.DGKIT("Try it")
_NOTEBOOK = references.DGKIT("In a notebook")


def info(machine: Machine) -> tuple[dict[str, Any], Reading]:
    """Return the output of `dgkit info --json`, {} if there is none, and the reading."""
    read = machine.read.probe("info")
    return (read.data if read.ok and isinstance(read.data, dict) else {}), read


def _core(machine: Machine) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return what is known about the core and about the package; None if nothing is known."""
    reading = machine.read.probe("core")  # not `info`, which starts CUDA and may take long
    if reading.ok and isinstance(reading.data, dict):
        return reading.data, reading.data
    output, _ = machine.know(info)
    loaded, package = output.get("core"), output.get("package")
    return (loaded, package) if isinstance(loaded, dict) and isinstance(package, dict) else None


def _info_unread(machine: Machine) -> str:
    return machine.know(info)[1].why or "The output of dgkit info does not have it"


@check(
    "dgkit-core",
    "dgkit's core",
    asks="Does the C core of dgkit load?",
    sources=[_START],
    requires=[
        readable(
            lambda case: "" if _core(case.machine) else _info_unread(case.machine),
            "not read",
            remedy=_INFO,
        )
    ],
)
def _dgkit_core(case: Case) -> Finding:
    core = _core(case.machine)
    assert core is not None
    loaded, package = core
    found = f"dgkit {package.get('dgkit', '?')}, Python {package.get('python', '?')}"
    if loaded.get("loaded"):
        return finding.ok(found)
    return finding.fail(
        f"{found}: does not load",
        needed="the C core",
        why=f"Nothing of dgkit works without it: {loaded.get('why', '')}",
        remedy=install_dgkit(case.machine),
    )


def _providers(machine: Machine) -> list[dict[str, Any]]:
    """Return the providers that `dgkit info` lists."""
    listed = machine.know(info)[0].get("providers")
    entries = listed if isinstance(listed, list) else []
    return [entry for entry in entries if isinstance(entry, dict)]


def _core_may_load(case: Case) -> bool:
    core = case.machine.know(info)[0].get("core")
    return not isinstance(core, dict) or bool(core.get("loaded"))


@check(
    "dgkit-providers",
    "Providers",
    asks="Which providers are usable, and why are the others not?",
    requires=[
        applies(
            lambda case: _providers(case.machine) or _core_may_load(case), "the core does not load"
        ),
        readable(
            lambda case: "" if _providers(case.machine) else _info_unread(case.machine),
            "not read",
            remedy=_INFO,
            sources=[_START],
        ),
    ],
)
def _dgkit_providers(case: Case) -> Iterator[Finding]:
    for provider in _providers(case.machine):
        if provider.get("name") != "fault":  # it wraps another provider for tests
            yield _judge_provider(case, provider)


def _judge_provider(case: Case, provider: dict[str, Any]) -> Finding:
    name = str(provider.get("name", "?"))
    why = finding.sentence(str(provider.get("why", "")))
    if provider.get("usable"):
        label = str(provider.get("label") or "")
        found = f"usable: {label}" if label and len(label) < 38 else "usable"
        return finding.ok(found, subject=name, sources=[_SECTIONS.get(name, _START)])
    effect = _effect(case, name)
    unread = pci_unread(case.machine) if case.machine.know(side) == "host" else ""
    if effect is None and unread and name in ("cuda", "doca"):
        why = f"Whether it is needed is not known: {unread} {why}"
        return finding.unknown("not usable", needed=name, why=why, subject=name)
    if effect is None:
        return finding.n_a("not usable here, and not needed", subject=name, why=why)
    verdict, blocked = effect
    make = finding.fail if verdict is Verdict.FAIL else finding.warn
    return make(
        "not usable",
        needed=name,
        why=f"{blocked} {why}",
        subject=name,
        remedy=_INFO,
        sources=[_SECTIONS.get(name, _START)],
    )


_SECTIONS = {
    "cuda": references.DGKIT("GPU memory"),
    "verbs": references.DGKIT_DMA("RDMA between machines"),
    "doca": references.DGKIT("On a BlueField"),
    "softdoca": references.DGKIT_DOCA("DOCA without a BlueField"),
}


def _effect(case: Case, name: str) -> tuple[Verdict, str] | None:
    """Return the verdict on an unusable provider and its effect; None if it is not needed."""
    machine, tree = case.machine, case.machine.know(pci.tree)
    dpu = machine.know(side) == "dpu"
    if name == "soft":
        verdict = Verdict.FAIL if case.goal is Goal.LAPTOP else Verdict.WARN
        return verdict, "The software DPU does not run."
    if name == "softdoca" and case.goal is Goal.LAPTOP:
        return Verdict.WARN, "DOCA programs cannot be tried without a BlueField."
    if name == "doca" and case.goal in BY_ARM and (dpu or tree.bluefields):
        return Verdict.FAIL, "The BlueField's DMA cannot be used."
    if name == "cuda" and tree.gpus and not dpu:
        return Verdict.WARN, "The GPU's copy engine cannot stand in for a DPU."
    if name == "verbs" and case.goal is Goal.RDMA:
        return Verdict.FAIL, "RDMA cannot be used."
    return None


def _packages_unread(case: Case) -> str:
    reading = case.machine.read.ask("packages")
    return "" if isinstance(reading.data, dict) else reading.why or "no packages are listed"


@check(
    "dgkit-extras",
    "For notebooks",
    asks="Are the packages installed that panels and plots in a notebook need?",
    sides=("host",),
    sources=[_NOTEBOOK],
    requires=[readable(_packages_unread, "not read", remedy=["pip list"])],
)
def _dgkit_extras(case: Case) -> Finding:
    packages = case.machine.read.ask("packages").data
    # an older recording may lack packages that were added to LAB later
    asked = [name for name in LAB if name in packages] or list(LAB)
    versions = {name: str(packages[name]) for name in asked if packages.get(name)}
    old = [name for name in versions if () < version_key(versions[name]) < LAB[name]]
    missing = [name for name in asked if name not in versions]
    if not old and not missing:
        found = f"JupyterLab {versions['jupyterlab']}, bokeh {versions['bokeh']}"
        return finding.ok(found)
    install = install_dgkit(case.machine, "lab")
    if not old:
        why = f"Panels, plots and `dgkit lab` need {', '.join(missing)}."
        return finding.n_a(f"{len(missing)} missing", needed=install[-1], why=why)
    least = ", ".join(f"{name} {'.'.join(map(str, LAB[name]))}" for name in old)
    why = f"Missing: {', '.join(missing)}. " if missing else ""
    return finding.warn(
        f"{len(missing)} missing, {len(old)} too old",
        needed=least,
        why=f"{why}Too old; needed at least: {least}. Panels, plots and `dgkit lab` need them.",
        remedy=install,
    )
