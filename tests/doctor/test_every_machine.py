# SPDX-License-Identifier: Apache-2.0
"""What holds for every machine of the tests and every goal; each machine is judged once."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import NamedTuple

import pytest
from doctor import snapshots
from doctor.published import FOLDERS, load_all

from dgkit._version import __version__
from dgkit.doctor.diagnosis import Diagnosis
from dgkit.doctor.experiments.overrule import overrule
from dgkit.doctor.facts.distribution import package_manager
from dgkit.doctor.facts.gpudirect import before_turing
from dgkit.doctor.facts.peermem import peermem_state
from dgkit.doctor.facts.uname import uname
from dgkit.doctor.facts.virtual import container
from dgkit.doctor.format.notebook import text
from dgkit.doctor.format.report import LINES, report
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Machine
from dgkit.doctor.runner import diagnose

PUBLISHED = {f"{folder}/{one.name}": one for folder in FOLDERS for one in load_all(folder)}
CHOSEN = [*PUBLISHED][:: 5 if "DGKIT_TESTS_QUICK" in os.environ else 1]  # tests/run --quick
CHANGES = (
    *("sudo apt", "sudo dnf", "sudo yum", "sudo modprobe", "sudo systemctl", "sudo setpci"),
    "sudo mknod",
)
PARSED: set[str] = set()  # remedies that bash has parsed


class Judged(NamedTuple):
    """A machine and what is said of it, by goal."""

    machine: Machine
    by_goal: dict[Goal, Diagnosis]

    def remedies(self) -> list[tuple[str, ...]]:
        return [one.remedy for found in self.by_goal.values() for one in found.findings]

    def lines(self) -> list[str]:
        return [line for remedy in self.remedies() for line in remedy]


@pytest.fixture(scope="module", params=[*CHOSEN, *snapshots.NAMES])
def judged(request: pytest.FixtureRequest) -> Judged:
    name = request.param
    one = PUBLISHED[name].machine() if name in PUBLISHED else snapshots.machine(name)
    return Judged(one, {goal: diagnose([one], goal=goal) for goal in Goal})


def test_experiments_that_did_not_run_leave_the_findings_as_they_are(judged: Judged) -> None:
    for found in judged.by_goal.values():
        assert overrule(found, []).findings == found.findings


def test_a_shell_parses_each_remedy(judged: Judged) -> None:
    for line in judged.lines():
        assert line.startswith("#") or shlex.split(line, comments=True), line
    new = {"\n".join(remedy) for remedy in judged.remedies()} - PARSED
    PARSED.update(new)
    if new:  # most machines have no remedy that another one had not
        command, script = ["bash", "-n"], "\n".join(new)
        done = subprocess.run(command, input=script, text=True, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_each_remedy_fits_the_machine(judged: Judged) -> None:
    made, lines = judged.machine, judged.lines()
    commands = [line for line in lines if not line.startswith("#")]
    if made.know(container).engine:
        assert [line for line in commands if line.startswith(CHANGES)] == []
    if made.know(package_manager) == "other":
        assert [line for line in commands if line.startswith(CHANGES[:3])] == []
    replaced = "sudo modprobe -r nv_peer_mem" in commands  # Mellanox's module, by the driver's
    if made.know(peermem_state) == "loaded" and not replaced:
        assert "sudo modprobe nvidia-peermem" not in commands
    if made.know(before_turing):
        assert not any("nvidia-open" in line for line in commands)
    if made.know(uname).arm:
        assert not any("intel_iommu" in line or "amd_iommu" in line for line in commands)
    assert not any("&& sudo reboot" in line for line in lines)


def test_the_page_fits_a_screen(judged: Judged) -> None:
    for found in judged.by_goal.values():
        assert len(text(found).splitlines()) <= 40


def test_the_report_fits_a_screen(judged: Judged) -> None:
    for goal, found in judged.by_goal.items():
        lines = report(found).splitlines()
        assert len(lines) <= LINES
        assert max(map(len, lines)) <= 100
        assert lines[0].startswith(f"dgkit doctor {__version__}: {goal}: ")
        assert lines[-1].startswith(" ") or lines[-1].startswith("read")
