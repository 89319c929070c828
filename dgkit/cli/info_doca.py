"""What `dgkit info` says of DOCA and softdoca: the version, and what each function here can do."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

__all__ = ["collect", "lines", "tell"]

_KINDS = ("doca", "softdoca")
_LONGEST_S = 30.0  # a device that does not answer is a fact, too

# Each library in a process of its own: one kind a process, and this one shall have none.
_PROGRAM = """
import sys
kind, *sys.path[:] = sys.argv[1:]
from dgkit.cli.info_doca import tell
tell(kind)
"""


def collect() -> dict[str, dict[str, Any]]:
    """By its name what each library says of itself, or why it says nothing."""
    asked = {kind: _ask(kind) for kind in _KINDS}
    return {kind: _answer(process) for kind, process in asked.items()}


def lines(facts: dict[str, dict[str, Any]]) -> list[str]:
    """For a person: a line a function. Nothing of a library that is not here."""
    return [
        f"{kind} {said['version']}  {_function(device)}"
        for kind, said in facts.items()
        for device in said.get("devices", ())
    ]


def tell(kind: str) -> None:
    """Prints as JSON what the library says. What a process that is asked does."""
    from dataclasses import asdict

    from .. import doca
    from ..doca._library import library
    from ..errors import DgkitError

    try:
        doca.use(kind)
        if (there := library().kind) == kind:
            found = [asdict(one) for one in doca.devices()]
            told: dict[str, Any] = {"version": doca.version(), "devices": found, "why": ""}
        else:  # softdoca's folder is on LD_LIBRARY_PATH
            told = {"why": f"the libdoca_common that the loader finds is that of {there}"}
    except DgkitError as error:
        told = {"why": str(getattr(error, "words", error))}
    print(json.dumps(told))


def _ask(kind: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _PROGRAM, kind, *sys.path]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    with process:
        try:
            said = process.communicate(timeout=_LONGEST_S)[0].splitlines()
        except subprocess.TimeoutExpired:
            process.kill()
            return {"why": f"no answer within {_LONGEST_S:g} s"}
    if process.returncode or not said:
        return {"why": f"the process that asked it ended with {process.returncode}"}
    told: dict[str, Any] = json.loads(said[-1])
    return told


def _function(device: dict[str, Any]) -> str:
    names = " ".join(device[key] for key in ("pci", "ibdev", "iface") if device[key])
    can = {"DMA": "dma", "export": "export_pci", "import": "from_export_pci"}
    able = (
        ", ".join(name for name, key in can.items() if device[key]) or "none of DMA, export, import"
    )
    if not device["dma"]:
        return f"{names}: {able}"
    return f"{names}: {able}; {device['max_copy']} bytes a task, lists of {device['max_list']}"
