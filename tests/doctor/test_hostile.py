# SPDX-License-Identifier: Apache-2.0
"""Untrusted snapshots: their text is shown, and never becomes part of a command to type."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from doctor.snapshots import snapshot_file

from dgkit.doctor.collect.reader import Reader, Reading, tracing
from dgkit.doctor.collect.snapshot import RecordedReader, Snapshot, load
from dgkit.doctor.finding import Finding
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Case, Machine
from dgkit.doctor.registry import checks

# Leaves a single-quoted word, begins a line of its own, begins a command.
PLANTS = ("';$(id)", "\n$(id)\n")
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\$`]|\\.)*\"")
_BORING = re.compile(r"(raw|link) |text /sys/bus/pci/|text /boot/")
_WORD, _END, _VERSION = re.compile(r"(?<=[\w.-])(?![\w.-])"), re.compile("$", re.M), r"(\d+\.\d+)"


def findings(
    goal: Goal, readings: dict[str, Reading], *names: str
) -> Iterator[tuple[str, Finding]]:
    """Of all checks, or of some, one after the other."""
    case = stranger(goal, RecordedReader(Snapshot(source="synthetic: x", readings=readings)))
    for one in checks():
        if goal in one.goals and "pair" not in one.sides and (not names or one.name in names):
            yield from ((one.name, found) for found in one.findings(case))


def stranger(goal: Goal, reader: Reader) -> Case:
    """The case of a machine alone."""
    machine = Machine(reader, "x")
    return Case(machine=machine, goal=goal, size=64 << 20, host=machine, dpu=None)


def users(goal: Goal, reader: Reader) -> dict[str, list[str]]:
    """The checks that use a reading, by its key: no other judges by it."""
    case = stranger(goal, reader)
    found: dict[str, list[str]] = {}
    for one in checks():
        if goal in one.goals and "pair" not in one.sides:
            with tracing() as trace:
                list(one.findings(case))
            for key in trace.readings:
                found.setdefault(key, []).append(one.name)
    return found


def typed(found: Finding) -> list[str]:
    """Return the lines of the remedy that contain planted text unquoted."""
    lines = [line for one in found.remedy for line in one.split("\n")]
    bare = [line for line in lines if not line.startswith("#")]
    return [line for line in bare if "$(id)" in _QUOTED.sub("", line)]


def planted(one: Reading, plant: str) -> Iterator[Reading]:
    """The reading with it behind each word, each line, each version; behind each name."""
    if one.text:
        put = (re.sub(what, lambda at: at[0] + plant, one.text) for what in (_WORD, _END, _VERSION))
        yield from (Reading(text=text) for text in put)
    if one.names:
        yield Reading(names=tuple(name + plant for name in one.names))
    if isinstance(one.data, dict):
        strings = {k: v + plant if isinstance(v, str) else v for k, v in one.data.items()}
        yield Reading(data=strings)


@pytest.mark.parametrize(
    ("name", "goal"),
    [("not-root", Goal.ARM_DMA), ("old-kernel", Goal.RDMA), ("mode-pending", Goal.GPUNETIO)],
)
def test_no_remedy_holds_a_machines_text_unquoted(name: str, goal: Goal) -> None:
    snapshot = load(snapshot_file(name))
    known = snapshot.readings
    bad = [
        (key, check, line)
        for key, names in users(goal, RecordedReader(snapshot)).items()
        if key in known and not _BORING.match(key)
        for plant in PLANTS
        for put in planted(known[key], plant)
        for check, found in findings(goal, {**known, key: put}, *names)
        for line in typed(found)
    ]
    assert not bad


class Seen(RecordedReader):
    """Keeps the keys that were asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(load(snapshot_file(name)))
        self.keys: set[str] = set()

    def read(self, key: str) -> Reading:
        self.keys.add(key)
        return super().read(key)


@pytest.mark.parametrize("goal", [Goal.ARM_DMA, Goal.RDMA, Goal.GPUNETIO])
@pytest.mark.parametrize("name", ["bf3-dpu-mode", "container", "not-root"])
def test_each_reading_is_in_the_trace_of_a_check(name: str, goal: Goal) -> None:
    reader = Seen(name)
    assert users(goal, reader).keys() == reader.keys


_PARAMS = "text /proc/driver/nvidia/params"


@pytest.mark.parametrize(
    ("check", "readings", "bad"),
    [
        ("driver-loaded", {_PARAMS: "DeviceFileMode: 432\nDeviceFileGID: 0 | id\n"}, "| id"),
        ("driver-registry", {_PARAMS: 'RegistryDwords: "A=1\'|id #"\n'}, "|id"),
        (
            "driver-registry",
            {_PARAMS: 'RegistryDwords: "A=1\\ninstall nvidia x"\n'},
            "install nvidia",
        ),
        ("kernel-version", {"text /etc/os-release": "ID=ubuntu\nVERSION_ID=3|id\n"}, "|id"),
    ],
)
def test_a_strangers_settings_become_no_command(
    check: str, readings: dict[str, str], bad: str
) -> None:
    known = load(snapshot_file("old-kernel")).readings
    known |= {key: Reading(text=text) for key, text in readings.items()}
    known |= {"ask euid": Reading(data=1000), "run nvidia-smi -q": Reading(text="-")}
    known["text /proc/self/status"] = Reading(text=f"CapEff:\t{0:016x}\n")
    known["ask uname"] = Reading(data={"release": "5.4.0"})
    known["probe cuda"] = Reading(fault="late", why="no answer")
    found = [
        one for _, one in findings(Goal.RDMA if check[0] == "k" else Goal.GPUNETIO, known, check)
    ]
    assert [one.remedy for one in found if one.remedy]
    assert bad not in " ".join(line for one in found for line in one.remedy)


_MANY = "9" * 5000  # Python makes no number of so many digits


@pytest.mark.parametrize(
    "readings",
    [
        {"ask page-size": Reading(data=10**400)},
        {"ask memlock": Reading(data={"soft": 10**400, "hard": None})},
        {"ask uname": Reading(data={"release": f"{_MANY}.1", "machine": "x86_64"})},
        {"names /sys/class/infiniband/mlx5_0/ports": Reading(names=(_MANY,))},
        {
            "text /sys/module/nvidia/version": Reading(text=_MANY),
            "text /proc/driver/nvidia/version": Reading(fault="absent"),
        },
        {
            "run nvidia-smi -q": Reading(
                text=f"GPU 00000000:17:00.0\n    BAR1 Memory Usage\n        Total  : {_MANY} MiB\n"
            )
        },
        {"run nvcc --version": Reading(text=f"release {_MANY}.1")},
        {"names /usr/local": Reading(names=(f"cuda-{_MANY}.1",))},
        {_PARAMS: Reading(text=f"DeviceFileMode: {_MANY}\n"), "ask euid": Reading(data=1)},
    ],
)
def test_no_number_is_too_long(readings: dict[str, Reading]) -> None:
    known = load(snapshot_file("pix")).readings
    assert list(findings(Goal.GPUNETIO, {**known, **readings}))
    assert list(findings(Goal.RDMA, {**known, **readings}))
