"""DOCA and softdoca in `dgkit info`: versions, functions and their capabilities."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from ..units import size_text

_KINDS = ("doca", "softdoca")
_SIMULATED = {"doca": "", "softdoca": " (simulated)"}
_TIMEOUT_S = 30.0  # after which a device is reported as not answering

# One process for each library: a process can load only one of them, and this one loads neither.
_PROGRAM = """
import sys
kind, *sys.path[:] = sys.argv[1:]
from dgkit.cli.info_doca import print_facts
print_facts(kind)
"""


def collect() -> dict[str, dict[str, Any]]:
    """Return the facts of each library by its name, or the reason why it has no facts."""
    processes = {kind: _start(kind) for kind in _KINDS}
    return {kind: _result(process) for kind, process in processes.items()}


def lines(facts: dict[str, dict[str, Any]]) -> list[str]:
    """Return one line of text for each function; no line for a library that is not installed."""
    return [
        f"{kind} {library['version']}{_SIMULATED[kind]}  {_function(device)}"
        for kind, library in facts.items()
        for device in library.get("devices", ())
    ]


def print_facts(kind: str) -> None:
    """Load a library in this process and print its facts as JSON."""
    from dataclasses import asdict

    from .. import doca
    from ..doca._library import library
    from ..errors import DgkitError

    try:
        doca.use(kind)
        if (loaded := library().kind) == kind:
            devices = [asdict(device) for device in doca.devices()]
            facts: dict[str, Any] = {"version": doca.version(), "devices": devices, "why": ""}
        else:  # softdoca's folder is on LD_LIBRARY_PATH
            facts = {"why": f"the loader finds the libdoca_common of {loaded} instead"}
    except DgkitError as error:
        facts = {"why": str(getattr(error, "words", error))}
    print(json.dumps(facts))


def _start(kind: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _PROGRAM, kind, *sys.path]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )


def _result(process: subprocess.Popen[str]) -> dict[str, Any]:
    with process:
        try:
            lines = process.communicate(timeout=_TIMEOUT_S)[0].splitlines()
        except subprocess.TimeoutExpired:
            process.kill()
            return {"why": f"no answer within {_TIMEOUT_S:g} s"}
    if process.returncode or not lines:
        return {"why": f"the process that loaded it exited with {process.returncode}"}
    facts: dict[str, Any] = json.loads(lines[-1])
    return facts


def _function(device: dict[str, Any]) -> str:
    names = " ".join(device[key] for key in ("pci", "ibdev", "iface") if device[key])
    keys = {"DMA": "dma", "export": "export_pci", "import": "from_export_pci"}
    supported = ", ".join(name for name, key in keys.items() if device[key])
    supported = supported or "none of DMA, export, import"
    if not device["dma"]:
        return f"{names}: {supported}"
    limits = f"{size_text(device['max_copy'])} per task, lists of {device['max_list']}"
    return f"{names}: {supported}; {limits}"
