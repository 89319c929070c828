# SPDX-License-Identifier: Apache-2.0
"""All checks together: their order, the verdict, the goal, and the deadline."""

import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor import pci
from support.doctor.machines import UNAME, machine

from dgkit.doctor import Verdict, diagnose, finding, runner
from dgkit.doctor.collect.reader import Reader, Reading
from dgkit.doctor.finding import Finding
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Case, Machine
from dgkit.doctor.registry import Check
from dgkit.doctor.runner import read_everything

GPU, BLUEFIELD = pci.gpu("pci0000:16/0000:17:00.0"), pci.dpu("pci0000:b0/0000:b3:00.0")
NIC = pci.nic("pci0000:b0/0000:b4:00.0")
ARM = {"ask uname": {**UNAME, "machine": "aarch64"}, "text /etc/mlnx-release": "bf-bundle-3.0.0"}
HOST, DPU = machine({}, name="host.snap"), machine(ARM, name="dpu.snap")
Judge = Callable[[Case], Iterator[Finding]]


def check(
    name: str, judge: Judge, sides: tuple[str, ...] = ("host", "dpu"), goals: object = Goal
) -> Check:
    return Check(name, name.title(), "Is it?", judge, name, frozenset(goals), sides)  # type: ignore[call-overload]


def says(*findings: Finding) -> Judge:
    return lambda case: iter(findings)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes these all the checks that there are."""

    def put(*those: Check) -> None:
        monkeypatch.setattr(runner, "checks", lambda: those)

    return put


def test_the_worst_come_first_and_then_the_order_of_the_checks(only: Callable[..., None]) -> None:
    only(
        check("one", says(finding.ok("a"), finding.warn("b"))),
        check("two", says(finding.n_a("c"), finding.fail("d"))),
        check("three", says(finding.unknown("e"), finding.warn("f"))),
    )
    found = diagnose([HOST], goal=Goal.RDMA).findings
    assert [one.found for one in found] == ["d", "b", "f", "e", "a", "c"]
    assert {(one.check, one.title, one.side) for one in found[:1]} == {("two", "Two", "host")}


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([finding.ok("a"), finding.n_a("b")], 0),
        ([], 0),
        ([finding.unknown("a"), finding.ok("b")], 6),
        ([finding.warn("a"), finding.unknown("b")], 5),
        ([finding.fail("a"), finding.warn("b")], 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst(
    findings: list[Finding], code: int, only: Callable[..., None]
) -> None:
    only(check("one", says(*findings)))
    assert diagnose([HOST], goal=Goal.LAPTOP).exit_code == code


@pytest.mark.parametrize(
    ("one", "goal", "why"),
    [
        (machine(ARM), Goal.ARM_DMA, "Arm side"),
        (machine(pci.sysfs([GPU, BLUEFIELD])), Goal.RDMA, "BlueField-3"),
        (machine(pci.sysfs([BLUEFIELD])), Goal.LAPTOP, "BlueField-3 without DOCA, and no GPU"),
        (machine(pci.sysfs([GPU, NIC])), Goal.RDMA, "a NIC"),
        (machine(pci.sysfs([GPU])), Goal.GPU, "one GPU"),
        (machine(pci.sysfs([NIC])), Goal.LAPTOP, "no NVIDIA GPU"),
        (machine({}), Goal.LAPTOP, "no NVIDIA GPU"),
    ],
)
def test_the_goal_is_what_the_machine_looks_like(
    one: Machine, goal: Goal, why: str, only: Callable[..., None]
) -> None:
    only()
    found = diagnose([one])
    assert found.goal is goal
    assert why in found.chosen


def test_a_goal_that_was_asked_for_is_not_explained(only: Callable[..., None]) -> None:
    only()
    found = diagnose([HOST], goal=Goal.GPUNETIO)
    assert (found.goal, found.chosen) == (Goal.GPUNETIO, "")


def test_checks_of_other_goals_and_sides_are_not_asked(only: Callable[..., None]) -> None:
    only(
        check("mine", says(finding.ok("a"))),
        check("other-goal", says(finding.fail("b")), goals=[Goal.GPUNETIO]),
        check("dpu-only", says(finding.fail("c")), ("dpu",)),
        check("both", says(finding.ok("d")), ("pair",)),
    )
    found = diagnose([HOST], goal=Goal.RDMA).findings
    assert [(one.check, one.side) for one in found] == [("mine", "host"), ("both", "pair")]


def test_both_sides_are_asked_and_a_pair_once(only: Callable[..., None]) -> None:
    only(
        check("each", lambda case: iter([finding.ok(case.machine.name)])),
        check(
            "both", lambda case: iter([finding.ok(f"{case.host and case.dpu and 1}")]), ("pair",)
        ),
    )
    found = diagnose([DPU, HOST]).findings
    assert sorted((one.side, one.found) for one in found) == [
        ("dpu", "dpu.snap"),
        ("host", "host.snap"),
        ("pair", "1"),
    ]


def test_two_machines_of_one_side_are_refused() -> None:
    with pytest.raises(ValueError, match="are both hosts"):
        diagnose([HOST, machine({})])
    with pytest.raises(ValueError, match="Arm cores"):
        diagnose([DPU, machine(ARM)])
    with pytest.raises(ValueError, match="no machine"):
        diagnose([])


def test_a_check_that_raises_takes_nothing_from_the_others(only: Callable[..., None]) -> None:
    def bad(case: Case) -> Iterator[Finding]:
        yield finding.ok("before")
        raise RuntimeError("a bug")

    only(check("bad", bad), check("good", says(finding.ok("fine"))))
    found = diagnose([HOST], goal=Goal.RDMA)
    (said,) = found.of("bad")
    assert said.verdict is Verdict.UNKNOWN
    assert "RuntimeError('a bug')" in said.why
    assert found.of("good")[0].verdict is Verdict.OK


@pytest.fixture
def hang() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


class Waiting(Reader):
    """A machine whose readings may take time, as those of the real one."""

    def read(self, key: str) -> Reading:
        return HOST.read.read(key)


@pytest.mark.parametrize(("one", "number"), [(Machine(Waiting()), 40), (HOST, 3)])
def test_a_check_that_hangs_ends_with_the_deadline(
    one: Machine, number: int, only: Callable[..., None], hang: threading.Event
) -> None:
    def hangs(case: Case) -> Iterator[Finding]:
        hang.wait()
        yield finding.ok("late")

    only(
        *(check(f"bad-{at}", hangs) for at in range(number)),
        check("good", says(finding.ok("fine"))),
    )
    found = diagnose([one], goal=Goal.RDMA, limit_s=0.1)
    assert found.of("bad-0")[0].why == "It did not end before the deadline."
    assert found.of("good")[0].verdict is Verdict.OK


class Hanging(Reader):
    """Gives no answer until it is let go."""

    def __init__(self, hang: threading.Event) -> None:
        self._hang = hang

    def read(self, key: str) -> Reading:
        self._hang.wait()
        return Reading(fault="late", why="no answer")


def test_a_machine_that_answers_nothing_is_judged_all_the_same(hang: threading.Event) -> None:
    found = diagnose([Machine(Hanging(hang))], limit_s=0.1)
    assert found.goal is Goal.LAPTOP
    assert found.chosen == "nothing could be read"
    assert found.findings
    assert found.exit_code == 6


def test_ctrl_c_ends_it_at_once(only: Callable[..., None], hang: threading.Event) -> None:
    def interrupted(done: int, of: int) -> None:
        raise KeyboardInterrupt

    def hangs(case: Case) -> Iterator[Finding]:
        hang.wait()
        yield finding.ok("late")

    only(check("good", says(finding.ok("fine"))), check("bad", hangs))
    with pytest.raises(KeyboardInterrupt):
        diagnose([HOST], goal=Goal.RDMA, limit_s=1e6, progress=interrupted)


def test_progress_counts_the_checks(only: Callable[..., None]) -> None:
    only(check("one", says()), check("two", says(finding.ok("a"))))
    seen: list[tuple[int, int]] = []
    diagnose([HOST], goal=Goal.RDMA, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1, 2), (2, 2)]


def test_a_check_asked_for_by_two_of_its_names_is_asked_once() -> None:
    found = diagnose([HOST], goal=Goal.ARM_DMA, only=["open-files", "limits"])
    assert [one.check for one in found.findings].count("open-files") == 1
    assert found.data_paths == ()


def test_plain_values_hold_all_that_a_face_shows() -> None:
    found = diagnose([HOST], goal=Goal.ARM_DMA)
    plain = found.as_dict()
    assert plain["summary"] == found.summary()
    assert plain["best"] == "soft"
    assert plain["machines"] == {"host": "host.snap"}
    assert {one["verdict"] for one in plain["data_paths"]} <= {str(one) for one in Verdict}


class Listening(Reader):
    """A machine with nothing, which notes what was looked for."""

    def __init__(self) -> None:
        self.keys: set[str] = set()

    def read(self, key: str) -> Reading:
        self.keys.add(key)
        return Reading(fault="absent", why="nothing is there")


def test_reading_everything_looks_wherever_a_judgement_for_any_goal_does() -> None:
    everything = Listening()
    read_everything(Machine(everything))
    for goal in Goal:
        judged = Listening()
        diagnose([Machine(judged)], goal=goal)
        assert judged.keys <= everything.keys


ODD = st.one_of(
    st.none(), st.text(), st.integers(), st.lists(st.text()), st.dictionaries(st.text(), st.none())
)
LOOKS = (
    *("text /proc/cmdline", "text /proc/cpuinfo", "text /etc/os-release", "text /proc/1/cgroup"),
    *("text /proc/self/status", "text /boot/config-6.8.0", "text /etc/mlnx-release"),
    *("text /sys/kernel/iommu_groups/0/type", "text /sys/class/dmi/id/product_name"),
)


@given(texts=st.lists(st.text(), min_size=len(LOOKS), max_size=len(LOOKS)), answer=ODD)
def test_whatever_a_machine_says_no_check_of_the_system_fails_itself(
    texts: list[str], answer: object
) -> None:
    asked = ("memlock", "open-files", "page-size", "euid", "dgkit")
    readings = {**dict(zip(LOOKS, texts, strict=True)), **{f"ask {one}": answer for one in asked}}
    group = f"link {pci.FOLDER}/{GPU.address}/iommu_group"
    both = {**pci.sysfs([GPU, BLUEFIELD]), group: "/sys/kernel/iommu_groups/0", **readings}
    families = ["kernel", "iommu", "virtual", "limits", "pair"]
    odd = {**both, "ask uname": answer}
    for machines in ([machine(odd)], [machine(both), machine({**ARM, **readings})]):
        found = diagnose(machines, goal=Goal.ARM_DMA, only=families).findings
        assert [one for one in found if "The check failed" in one.why] == []
