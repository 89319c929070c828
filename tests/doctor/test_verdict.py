# SPDX-License-Identifier: Apache-2.0
"""What findings and ways come to: the verdict, the best way, the sentence."""

import pytest
from support.doctor.machines import machine

from dgkit.doctor import Verdict, finding
from dgkit.doctor.data_paths import DataPath
from dgkit.doctor.diagnosis import Diagnosis
from dgkit.doctor.finding import Finding
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Case

HOST = machine({}, name="host.snap")


def made(ways: list[DataPath], *findings: Finding) -> Diagnosis:
    case = Case(HOST, Goal.ARM_DMA, host=HOST)
    return Diagnosis(case=case, findings=findings, data_paths=tuple(ways), chosen="", took_s=0.0)


def way(name: str, verdict: Verdict, *blocked: str, serves: bool = True) -> DataPath:
    return DataPath(
        name=name, title=name.upper(), what=".", serves=serves, verdict=verdict,
        why="There is none.", blocked_by=blocked,
    )  # fmt: skip


def test_a_failure_that_blocks_only_the_better_of_two_ways_is_a_warning() -> None:
    shut, works = way("dmabuf", Verdict.FAIL, "flavour"), way("peermem", Verdict.OK)
    flavour = finding.attribute(finding.fail("closed"), check="flavour", title="", side="host")
    other = finding.attribute(finding.fail("x"), check="memlock", title="", side="host")
    assert made([shut, works], flavour).verdict is Verdict.WARN
    assert made([shut, works], flavour).exit_code == 5
    assert made([shut, works], flavour, other).verdict is Verdict.FAIL
    stand_in = way("soft", Verdict.OK, serves=False)
    assert made([shut, stand_in], flavour).verdict is Verdict.FAIL


def test_what_blocks_a_way_that_the_goal_does_not_ask_for_is_a_warning() -> None:
    memlock = finding.attribute(finding.fail("8 MiB"), check="memlock", title="", side="host")
    ways = [way("dmabuf", Verdict.OK), way("host", Verdict.FAIL, "memlock", serves=False)]
    assert made(ways, memlock).verdict is Verdict.WARN


def test_where_nobody_knows_whether_a_way_works_the_goal_cannot_be_told() -> None:
    ways = [way("dmabuf", Verdict.UNKNOWN), way("host", Verdict.OK, serves=False)]
    fine = finding.attribute(finding.warn("fine"), check="link", title="", side="dpu")
    assert made(ways, fine).verdict is Verdict.UNKNOWN
    assert made(ways, fine).exit_code == 6
    other = finding.attribute(finding.fail("x"), check="page-size", title="", side="host")
    assert made(ways, other).verdict is Verdict.FAIL


def test_the_goal_fails_if_each_way_to_it_is_blocked_be_it_by_warnings() -> None:
    shut = [way("dmabuf", Verdict.FAIL, "flavour"), way("peermem", Verdict.FAIL, "peermem")]
    assert made([*shut, way("soft", Verdict.OK, serves=False)]).verdict is Verdict.FAIL


def test_the_best_way_is_the_first_that_works_be_it_slower() -> None:
    ways = [way("a", Verdict.UNKNOWN), way("b", Verdict.WARN), way("c", Verdict.OK)]
    best = made(ways).best
    assert best is not None
    assert best.name == "b"
    assert made([way("a", Verdict.FAIL)]).best is None


@pytest.mark.parametrize(
    ("ways", "sentence"),
    [
        ([way("a", Verdict.OK)], "A works."),
        (
            [way("a", Verdict.FAIL, "x", "y", "z"), way("b", Verdict.OK)],
            "B works; A is blocked by x, y and z.",
        ),
        (
            [way("a", Verdict.FAIL), way("b", Verdict.OK, serves=False)],
            "Only B works; A is blocked: There is none.",
        ),
        (
            [way("a", Verdict.FAIL, "x"), way("b", Verdict.WARN, serves=False)],
            "Only B works, but slower; A is blocked by x.",
        ),
        (
            [way("a", Verdict.UNKNOWN), way("b", Verdict.WARN)],
            "B works, but slower; whether A does cannot be determined (There is none).",
        ),
        ([way("a", Verdict.FAIL, "x")], "No data path works."),
    ],
)
def test_the_summary_names_the_best_way_and_what_blocks_a_better_one(
    ways: list[DataPath], sentence: str
) -> None:
    assert made(ways).summary() == sentence


def test_without_ways_the_summary_counts() -> None:
    assert (
        made([], finding.fail("a"), finding.ok("b"), finding.ok("c")).summary() == "1 fail, 2 ok."
    )
    assert made([]).summary() == "nothing was found."


def test_a_diagnosis_that_is_only_looked_at_is_one_line() -> None:
    assert repr(made([way("a", Verdict.OK)])) == "<Diagnosis of host.snap: arm-dma, n.a.>"
