# SPDX-License-Identifier: Apache-2.0
"""Machines built from readings, and checks run on them."""

from __future__ import annotations

from collections.abc import Mapping

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.collect.snapshot import RecordedReader, Snapshot
from dgkit.doctor.finding import Finding
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Machine
from dgkit.doctor.runner import diagnose

UNAME = {"system": "Linux", "node": "box", "release": "6.8.0", "version": "#1", "machine": "x86_64"}


def reading(key: str, value: object) -> Reading:
    """Return a Reading unchanged, and other values as a Reading of the key's kind."""
    if isinstance(value, Reading):
        return value
    kind = key.partition(" ")[0]
    if kind == "raw":
        assert isinstance(value, bytes)
        return Reading(raw=value)
    if kind == "names":
        assert isinstance(value, (list, tuple))
        return Reading(names=tuple(sorted(value)))
    if kind in ("ask", "probe"):
        return Reading(data=value)
    assert isinstance(value, str), f"{key} wants text"
    return Reading(text=value)


def machine(readings: Mapping[str, object], *, name: str = "synthetic") -> Machine:
    """Return a machine with just these readings; everything else is absent."""
    made = {"ask uname": UNAME, **readings}
    answers = {key: reading(key, value) for key, value in made.items()}
    snapshot = Snapshot(source="synthetic: a test", otherwise="absent", readings=answers)
    return Machine(RecordedReader(snapshot), name)


def judge(
    check: str, *machines: Machine, goal: Goal = Goal.ARM_DMA, size: int = 64 << 20
) -> tuple[Finding, ...]:
    """Return the findings of one check (or family) for a machine, or for a host and a DPU."""
    return diagnose(machines, goal=goal, only=[check], size=size).findings
