# SPDX-License-Identifier: Apache-2.0
"""A failed reading gives no new verdict: the verdict stays, or becomes `unknown`."""

from __future__ import annotations

import re

import pytest
from doctor.snapshots import snapshot_file
from doctor.test_hostile import findings, users

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.collect.snapshot import RecordedReader, load
from dgkit.doctor.finding import Verdict
from dgkit.doctor.goals import Goal

# Another verdict, all the same: by check and reading, a line each. What is not known is not needed;
# without root's mlxconfig the rshim driver reports the mode; what CUDA refuses is no failure yet.
MAY = """
kernel-(p2pdma|hmm) (ask uname|text /boot/config-)
driver-registry ask euid
(bluefield-mode|doca-version|doca-libraries) ask uname
bluefield-mode (run mlxconfig|text /sys/bus/pci/devices/.*/uevent)
numa text /sys/bus/pci/devices/.*/uevent
dmabuf-gpu (run modinfo|text /proc/modules)
"""


def verdicts(goal: Goal, readings: dict[str, Reading], *names: str) -> dict[str, Verdict]:
    """The worst of each check, or of some."""
    found: dict[str, Verdict] = {}
    for one, said in findings(goal, readings, *names):
        found[one] = max(found.get(one, Verdict.NOT_APPLICABLE), said.verdict)
    return found


@pytest.mark.parametrize("fault", ["denied", "unrecorded"])
@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("bf3-dpu-mode", Goal.ARM_DMA),
        ("acs-on", Goal.GPUNETIO),
        ("peermem-fallback", Goal.RDMA),
        ("bf3-arm", Goal.ARM_DMA),
        ("laptop", Goal.GPUNETIO),
        ("container", Goal.ARM_DMA),
        ("mode-pending", Goal.GPUNETIO),
    ],
)
def test_no_check_judges_by_what_was_not_read(name: str, goal: Goal, fault: str) -> None:
    snapshot = load(snapshot_file(name))
    known = snapshot.readings
    plain = verdicts(goal, known)
    allowed = [re.compile(line.strip()) for line in MAY.strip().splitlines()]
    odd = [
        f"{check} {key}: {plain.get(check)!s} {verdict!s}"
        for key, names in users(goal, RecordedReader(snapshot)).items()
        if key in known and not known[key].fault
        for check, verdict in verdicts(
            goal, {**known, key: Reading(fault=fault, why="not read")}, *names
        ).items()
        if verdict not in (plain.get(check), Verdict.UNKNOWN)
        if not any(may.match(f"{check} {key}") for may in allowed)
    ]
    assert not odd


def test_a_reading_says_itself_why_it_is_not_there() -> None:
    known = load(snapshot_file("pix")).readings
    known |= {"ask uname": Reading(fault="late", why="uname hung")}
    ((_, kernel),) = findings(Goal.RDMA, known, "kernel-version")
    assert kernel.why == "Uname hung."
    known |= {"run modinfo -F filename nvidia-peermem": Reading(fault="late", why="hung")}
    ((_, older),) = findings(Goal.RDMA, known, "peermem")
    assert "not loaded" not in older.found
