# SPDX-License-Identifier: Apache-2.0
"""Locked memory, pages and open files."""

import pytest
from support.doctor import pci
from support.doctor.machines import judge, machine

from dgkit.doctor import Finding, Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.goals import Goal

MIB = 1 << 20
NIC = pci.sysfs([pci.nic("pci0000:b0/0000:b3:00.0")])


def locked(
    soft: int | None, hard: int | None, *, euid: int = 1000, size: int = 64 * MIB
) -> Finding:
    limits = {"ask memlock": {"soft": soft, "hard": hard}, "ask euid": euid}
    (found,) = judge("memlock", machine({**NIC, **limits}), size=size)
    return found


@pytest.mark.parametrize(
    ("soft", "verdict"),
    [
        (None, Verdict.OK),
        (64 * MIB - 1, Verdict.FAIL),
        (64 * MIB, Verdict.WARN),
        (128 * MIB, Verdict.WARN),
        (8 * MIB, Verdict.FAIL),
        (0, Verdict.FAIL),
    ],
)
def test_less_locked_memory_than_is_lent_fails_and_any_limit_warns(
    soft: int | None, verdict: Verdict
) -> None:
    assert locked(soft, None).verdict is verdict


def test_the_size_that_is_wanted_decides() -> None:
    assert locked(8 * MIB, 8 * MIB, size=MIB).verdict is Verdict.WARN
    assert locked(8 * MIB, 8 * MIB, size=9 * MIB).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ("CmaTotal:              0 kB\nCmaFree:          940604 kB\n", Verdict.WARN),
        ("CmaTotal:              0 kB\nCmaFree:               0 kB\n", Verdict.OK),
        ("CmaTotal:         524288 kB\nCmaFree:          524300 kB\n", Verdict.OK),
        ("MemTotal:      127535616 kB\n", Verdict.OK),
    ],
)
def test_memory_that_the_kernel_keeps_from_being_locked_warns(lines: str, verdict: Verdict) -> None:
    unlimited = {"ask memlock": {"soft": None, "hard": None}, "text /proc/meminfo": lines}
    (found,) = judge("memlock", machine({**NIC, **unlimited}))
    assert found.verdict is verdict
    assert any("kho=off" in line for line in found.remedy) is (verdict is Verdict.WARN)


def test_root_is_not_bound() -> None:
    found = locked(64 * 1024, 64 * 1024, euid=0)
    assert (found.verdict, found.found) == (Verdict.OK, "64 KiB, which does not apply to this user")


@pytest.mark.parametrize(
    ("capabilities", "euid", "verdict"),
    [
        ("000001ffffffffff", 0, Verdict.OK),
        ("00000000a80425fb", 0, Verdict.FAIL),  # what Docker leaves root
        ("0000000000000000", 1000, Verdict.FAIL),
        ("0000000000004000", 1000, Verdict.OK),
        ("odd", 0, Verdict.OK),
    ],
)
def test_the_capability_decides_and_root_may_lack_it_in_a_container(
    capabilities: str, euid: int, verdict: Verdict
) -> None:
    limits = {"ask memlock": {"soft": 65536, "hard": 65536}, "ask euid": euid}
    status = {"text /proc/self/status": f"Name:\tx\nCapEff:\t{capabilities}\nCapBnd:\t0\n"}
    (found,) = judge("memlock", machine({**NIC, **limits, **status}))
    assert found.verdict is verdict


def test_a_soft_limit_is_raised_in_the_shell_and_a_hard_one_by_the_system() -> None:
    assert locked(8 * MIB, None).remedy[0].startswith("ulimit -l unlimited")
    assert "/etc/security/limits.d" in locked(8 * MIB, 8 * MIB).remedy[0]
    assert "LimitMEMLOCK=infinity" in locked(8 * MIB, 8 * MIB).remedy[1]


def test_without_a_nic_no_memory_is_registered() -> None:
    (found,) = judge("memlock", machine({"ask memlock": {"soft": 1, "hard": 1}}))
    assert found.verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("odd", [None, {}, {"soft": "8", "hard": 8}, [8, 8]])
def test_a_limit_that_is_no_number_cannot_be_judged(odd: object) -> None:
    for check in ("memlock", "open-files"):
        (found,) = judge(check, machine({**NIC, f"ask {check}": odd}))
        assert found.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("size", "verdict", "says"),
    [
        (4096, Verdict.OK, ""),
        (16384, Verdict.OK, "16 KiB"),
        (65536, Verdict.OK, "64 KiB"),
        (1 << 18, Verdict.WARN, "256 KiB"),
        (0, Verdict.UNKNOWN, ""),
        (True, Verdict.UNKNOWN, ""),
        ("4096", Verdict.UNKNOWN, ""),
        (Reading(fault="unrecorded", why="nobody looked"), Verdict.UNKNOWN, "Nobody looked."),
    ],
)
def test_pages_up_to_64_kib_are_fine_and_say_what_follows(
    size: object, verdict: Verdict, says: str
) -> None:
    (found,) = judge("page-size", machine({"ask page-size": size}))
    assert found.verdict is verdict
    assert says in found.why


@pytest.mark.parametrize(
    ("soft", "hard", "verdict"),
    [
        (1024, 1 << 20, Verdict.OK),
        (None, None, Verdict.OK),
        (1023, None, Verdict.WARN),
        (256, 512, Verdict.WARN),
    ],
)
def test_fewer_than_1024_open_files_are_few(
    soft: int | None, hard: int | None, verdict: Verdict
) -> None:
    for goal in (Goal.LAPTOP, Goal.ARM_DMA):
        limits = machine({"ask open-files": {"soft": soft, "hard": hard}})
        (found,) = judge("open-files", limits, goal=goal)
        assert found.verdict is verdict


def test_open_files_are_raised_no_further_than_the_hard_limit() -> None:
    (found,) = judge("open-files", machine({"ask open-files": {"soft": 256, "hard": 512}}))
    assert found.remedy[0].startswith("ulimit -n 512 ")
