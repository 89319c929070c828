# SPDX-License-Identifier: Apache-2.0
"""The whole list of checks: what each must have, and what each says of whole machines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from doctor import snapshots

from dgkit.doctor import Verdict, diagnose
from dgkit.doctor.collect.reader import Reader, Reading
from dgkit.doctor.collect.snapshot import RecordedReader, load
from dgkit.doctor.data_path_specs import DATA_PATH_SPECS
from dgkit.doctor.finding import Finding
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Case, Machine
from dgkit.doctor.registry import FAMILIES, check, checks, named
from dgkit.doctor.runner import read_everything

HERE = Path(__file__).parent
# The names that errors, documents and people's scripts use.
NAMES = {
    *("dgkit-core", "dgkit-providers", "dgkit-extras", "gpu-log", "nic-log", "other-gpus"),
    *("kernel-version", "kernel-p2pdma", "kernel-hmm", "kernel-device-private"),
    *("gpu-present", "driver-loaded", "driver-flavour", "driver-version", "driver-persistence"),
    *(
        "driver-registry",
        "cuda-driver",
        "cuda-context",
        "cuda-toolkit",
        "cuda-python",
        "dmabuf-gpu",
        "dmabuf-mmap",
    ),
    *("peermem", "gdrcopy", "bar1-size", "bar1-resizable", "iommu", "acs"),
    *("topology", "topology-nvidia-smi", "link", "numa", "virtual-machine", "container"),
    *("gpudirect-platform", "bluefield-present", "bluefield-mode", "bluefield-link"),
    *("bluefield-representors", "bluefield-tmfifo", "firmware-version"),
    *("doca-version", "doca-libraries", "gpunetio-ethernet", "gpunetio-rdma", "gpunetio-verbs"),
    *("gpunetio-dma", "ofed-version", "rdma-core", "rdma-devices", "rdma-dmabuf"),
    *(
        "memlock",
        "memlock-queues",
        "gpu-peers",
        "nvlink-fabric",
        "imex",
        "other-programs",
        "page-size",
        "open-files",
        "pair-bluefield",
        "pair-versions",
        "pair-memory",
    ),
}
# Of the machine itself: no document says how these must be.
FACTS = {"dgkit-core", "dgkit-providers", "dgkit-extras", "pair-versions"}
CELL = 60  # characters of a table's cell, at most


def test_the_names_are_those_that_others_rely_on() -> None:
    assert sorted(one.name for one in checks()) == sorted(NAMES)


def test_each_check_has_a_name_a_question_a_title_and_a_side() -> None:
    for one in checks():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", one.name)
        assert one.asks.endswith("?") or "? " in one.asks, one.name
        assert one.title
        assert one.goals
        assert set(one.sides) in ({"host"}, {"dpu"}, {"host", "dpu"}, {"pair"}), one.name
        assert one.family in FAMILIES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_check_is_tested(name: str) -> None:
    others = (path for path in HERE.glob("test_*.py") if path.name != Path(__file__).name)
    assert any(f'"{name}"' in path.read_text("utf-8") for path in others)


def test_checks_are_found_by_name_and_by_family_and_unknown_ones_are_refused() -> None:
    assert [one.name for one in named(["iommu"])] == ["iommu"]
    assert [one.name for one in named(["limits"])] == [
        *("memlock", "memlock-queues", "page-size", "open-files")
    ]
    assert [one.name for one in named(["IOMMU"])] == ["iommu"]
    with pytest.raises(ValueError, match=r"no check 'nothing'; `dgkit doctor --list` lists all"):
        list(named(["nothing"]))
    with pytest.raises(ValueError, match=r"did you mean limits\?"):
        list(named(["limit"]))


def test_two_checks_of_one_name_are_refused() -> None:
    def other(case: Case) -> Iterator[Finding]:
        return iter([])

    with pytest.raises(ValueError, match="two checks called iommu"):
        check("iommu", "IOMMU", asks="Is it another?")(other)
    assert [one.judge for one in named(["iommu"])] != [other]


def test_each_data_path_depends_on_checks_that_count_for_its_goal() -> None:
    known = {check.name: check for check in checks()}
    for spec in DATA_PATH_SPECS:
        depends = {
            *spec.required,
            *spec.assumed,
            *(n for names in spec.alternatives for n in names),
        }
        depends |= {kind.checks[0] for kind in spec.devices}
        assert depends <= set(known), spec.name
        for goal in spec.serves:
            wrong = [name for name in sorted(depends) if goal not in known[name].goals]
            assert not wrong, spec.name


def machine(path: Path) -> Machine:
    return Machine(RecordedReader(load(path)), path.name)


@cache
def said(path: Path) -> tuple[Finding, ...]:
    """What all checks say of a machine, for each goal."""
    one = machine(path)
    return tuple(finding for goal in Goal for finding in diagnose([one], goal=goal).findings)


@pytest.fixture(params=snapshots.NAMES)
def path(request: pytest.FixtureRequest) -> Path:
    return snapshots.snapshot_file(request.param)


def test_no_check_fails_on_a_machine(path: Path) -> None:
    assert [one for one in said(path) if one.why.startswith("The check failed")] == []


def test_what_was_found_and_needed_fits_a_cell(path: Path) -> None:
    for one in said(path):
        assert 0 < len(one.found) <= CELL, one
        assert len(one.needed) <= CELL, one
        assert one.found.isprintable(), one
        assert one.needed.isprintable(), one


def test_what_is_wrong_says_why_and_what_to_do(path: Path) -> None:
    for one in said(path):
        if one.verdict in (Verdict.WARN, Verdict.FAIL):
            assert one.remedy or one.follows, one
        if one.verdict not in (Verdict.OK, Verdict.NOT_APPLICABLE):
            assert one.why, one
        assert all(line.strip() and "\n" not in line for line in one.remedy), one


def test_what_is_judged_names_a_document(path: Path) -> None:
    for one in said(path):
        if one.verdict is not Verdict.NOT_APPLICABLE and one.check not in FACTS:
            assert one.sources, one


class Seen(Reader):
    """Notes what is looked for in a recorded machine."""

    def __init__(self, path: Path) -> None:
        self._from, self.keys = RecordedReader(load(path)), set[str]()

    def read(self, key: str) -> Reading:
        self.keys.add(key)
        return self._from.read(key)


def test_a_recording_holds_what_any_goal_looks_for(path: Path) -> None:
    everything = Seen(path)
    read_everything(Machine(everything))
    for goal in Goal:
        one = Seen(path)
        diagnose([Machine(one)], goal=goal)
        assert one.keys <= everything.keys


def test_a_machine_of_which_nothing_was_recorded_is_judged_by_no_check() -> None:
    """Neither ok nor fail: nothing was read."""

    class Nothing(Reader):
        def read(self, key: str) -> Reading:
            return Reading(fault="unrecorded", why=f"nobody looked at {key}")

    for goal in Goal:
        found = diagnose([Machine(Nothing())], goal=goal).findings
        sure = [one.check for one in found if one.verdict in (Verdict.WARN, Verdict.FAIL)]
        assert sure == []
