# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a stranger: hostile text in the readings of a machine."""

from __future__ import annotations

import re

import msgspec
from doctor.snapshots import snapshot_file

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.collect.snapshot import Snapshot, load

_LINE = re.compile("$", re.MULTILINE)
_PCI = re.compile(r"(raw|link) |(text|names) /sys/bus/pci/")  # a tree of other names has no devices


def planted_snapshot(name: str, text: str) -> Snapshot:
    """Return a machine's snapshot with a text behind each line, word and date that it shows."""
    snapshot = load(snapshot_file(name))
    readings = {
        key: reading if _PCI.match(key) else _planted(reading, text)
        for key, reading in snapshot.readings.items()
    }
    head = {"source": f"recorded {text}", "taken": text, "dgkit": text}
    return msgspec.structs.replace(snapshot, readings=readings, **head)


def _planted(reading: Reading, text: str) -> Reading:
    if isinstance(reading.data, dict):
        data = {k: v + text if isinstance(v, str) else v for k, v in reading.data.items()}
        return Reading(data=data)
    if reading.names:
        return Reading(names=(*reading.names, *(name + text for name in reading.names)))
    if reading.text:
        return Reading(text=_LINE.sub(lambda _: f" {text}", reading.text), code=reading.code)
    return reading
