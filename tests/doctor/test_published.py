"""Machines that users published: their files are whole, and each can be judged."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from doctor import score
from doctor.published import FOLDER, Published, load, load_all

from dgkit.doctor.goals import Goal
from dgkit.doctor.registry import checks
from dgkit.doctor.runner import diagnose

FIRST = load_all("first")


def test_a_third_of_the_machines_work() -> None:
    assert len(FIRST) >= 3
    assert sum(machine.works for machine in FIRST) * 3 >= len(FIRST)


@pytest.mark.parametrize("machine", FIRST, ids=lambda machine: machine.name)
def test_a_machine_names_its_source_and_checks_that_exist(machine: Published) -> None:
    assert machine.head["source"].startswith("https://")
    assert machine.head["saw"] and machine.head["cause"] and machine.head["made up"]
    names = {check.name for check in checks()}
    asked = {*machine.words("quiet"), *machine.choices("lead")} - {"-"}
    assert asked <= names | {"cuda-context"}
    assert all(re.fullmatch(r"[a-z-]+=(works|blocked|unknown|unset)", word)
               for word in machine.words("paths"))  # fmt: skip


@pytest.mark.parametrize("machine", FIRST, ids=lambda machine: machine.name)
def test_a_shell_parses_each_remedy(machine: Published) -> None:
    for goal in Goal:
        for finding in diagnose([machine.machine()], goal=goal).findings:
            for line in finding.remedy:
                assert line.startswith("#") or shlex.split(line, comments=True), line


def test_an_unknown_line_of_the_head_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text(
        (FOLDER / "first" / "gdrcopy-301.txt").read_text("utf-8").replace("quiet:", "silent:")
    )
    with pytest.raises(ValueError, match="silent"):
        load(path)


def test_what_differs_from_the_expected_verdict_is_listed() -> None:
    machine = next(one for one in FIRST if one.name == "gdrcopy-301")
    wrong = Published(machine.name, {**machine.head, "exit": "9", "lead": "acs"}, machine.sections)
    problems = " ".join(score.judge(wrong)["problems"])
    assert "instead of 9" in problems
    assert "leads instead of acs" in problems
