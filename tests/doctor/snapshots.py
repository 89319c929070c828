# SPDX-License-Identifier: Apache-2.0
"""Snapshots of the machines that the tests judge: recorded ones, and synthetic ones made here.

A recorded machine is a file in `machines/`. A synthetic machine is described in
`synthetic_machines`, each after the document or the public output that its `source` names; its file
is written to a temporary directory when a test first needs it.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path

from doctor.synthetic_machines import MACHINES, TUTORIAL, readings
from support.doctor.machines import reading

from dgkit.doctor.collect.snapshot import RecordedReader, Snapshot, load
from dgkit.doctor.machine import Machine

__all__ = ["NAMES", "SYNTHETIC", "TUTORIAL_FILES", "machine", "snapshot_file", "synthetic"]

_RECORDED = Path(__file__).with_name("machines")
_TUTORIAL = Path(__file__).parents[2] / "notebooks" / "tutorials" / "machines"

SYNTHETIC = sorted(MACHINES)
NAMES = sorted([*SYNTHETIC, *(path.stem for path in _RECORDED.glob("*.snap"))])
# The committed copies of synthetic machines that the tutorial reads, with the machine's name.
TUTORIAL_FILES = {_TUTORIAL / f"{to}.snap": name for to, name in TUTORIAL.items()}


def synthetic(name: str) -> Snapshot:
    """Return the snapshot of a synthetic machine."""
    source, _ = MACHINES[name]
    found = readings(name)
    return Snapshot(
        source=f"synthetic: after {source}",
        taken="2026-11-21",
        otherwise="absent",
        readings={key: reading(key, found[key]) for key in sorted(found)},
    )


@functools.cache
def _directory() -> Path:
    """Return a directory that this process, not a fork of it, removes when it exits."""
    path, owner = Path(tempfile.mkdtemp(prefix="dgkit-machines-")), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(path, ignore_errors=True)

    atexit.register(remove)
    return path


@functools.cache
def snapshot_file(name: str) -> Path:
    """Return the file of a machine, written at the first call if the machine is synthetic."""
    if name not in MACHINES:
        return _RECORDED / f"{name}.snap"
    path = _directory() / f"{name}.snap"
    synthetic(name).save(path)
    return path


def machine(name: str) -> Machine:
    """Return a machine with a reader of its snapshot."""
    path = snapshot_file(name)
    return Machine(RecordedReader(load(path)), path.name)
