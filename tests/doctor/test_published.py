# SPDX-License-Identifier: Apache-2.0
"""Machines that users published: their files are whole, and each can be judged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doctor import score
from doctor.published import FOLDER, FOLDERS, Published, load, load_all

from dgkit.doctor.registry import checks

MACHINES = {folder: load_all(folder) for folder in FOLDERS}
EVERY = [machine for machines in MACHINES.values() for machine in machines]
LEAST = dict(zip(FOLDERS, (46, 76, 34, 51, 14, 39, 31), strict=True))


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_third_of_the_machines_work(folder: str) -> None:
    machines = MACHINES[folder]
    assert len(machines) >= LEAST[folder]
    assert sum(machine.works for machine in machines) * 3 >= len(machines)


@pytest.mark.parametrize("machine", EVERY, ids=lambda machine: machine.name)
def test_a_machine_names_its_source_and_checks_that_exist(machine: Published) -> None:
    assert machine.head["source"].startswith("https://")
    assert all(machine.head[name] for name in ("saw", "cause", "made up"))
    names = {check.name for check in checks()}
    asked = {*machine.words("quiet"), *machine.choices("lead")} - {"-"}
    assert asked <= names
    assert all(re.fullmatch(r"[a-z-]+=(works|blocked|unknown|unset)", word)
               for word in machine.words("paths"))  # fmt: skip


@pytest.mark.parametrize("machine", EVERY, ids=lambda machine: machine.name)
def test_a_machine_is_judged_as_its_thread_ended(machine: Published) -> None:
    assert score.judge(machine)["problems"] == []


def test_only_equals_signs_and_a_space_begin_a_section(tmp_path: Path) -> None:
    path, rule = tmp_path / "x.txt", "=" * 40
    made = (FOLDER / "communication" / "gdrcopy-301.txt").read_text("utf-8")
    path.write_text(f"{made.rstrip()}\n=== run nvidia-smi\n{rule}\n| GPU |\n{rule}\n")
    assert load(path).sections["run nvidia-smi"] == f"{rule}\n| GPU |\n{rule}\n"


def test_an_unknown_line_of_the_head_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text(
        (FOLDER / "communication" / "gdrcopy-301.txt")
        .read_text("utf-8")
        .replace("quiet:", "silent:")
    )
    with pytest.raises(ValueError, match="silent"):
        load(path)


def test_what_differs_from_the_expected_verdict_is_listed() -> None:
    machine = next(one for one in EVERY if one.name == "gdrcopy-301")
    wrong = Published(machine.name, {**machine.head, "exit": "9", "lead": "acs"}, machine.sections)
    problems = " ".join(score.judge(wrong)["problems"])
    assert "instead of 9" in problems
    assert "leads instead of acs" in problems
