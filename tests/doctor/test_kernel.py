"""The kernel's version, as checks see it."""

import pytest
from doctor_rig import UNAME, judge, machine

from dgkit.doctor import Verdict
from dgkit.doctor.reading import Reading


@pytest.mark.parametrize(
    ("release", "verdict"),
    [
        ("6.2.0-39-generic", Verdict.OK),
        ("6.18.44", Verdict.OK),
        ("10.0", Verdict.OK),
        ("5.15.0-1021-bluefield", Verdict.WARN),
        ("6.1.0-18-amd64", Verdict.WARN),
        ("strange", Verdict.CANNOT_TELL),
    ],
)
def test_kernels_from_6_2_on_are_new_enough_for_a_dma_buf(release: str, verdict: Verdict) -> None:
    (found,) = judge("kernel-version", machine({"ask uname": {**UNAME, "release": release}}))
    assert found.verdict is verdict
    assert release in found.found


def test_a_kernel_that_does_not_say_its_version_is_not_judged() -> None:
    late = Reading(fault="late", why="no answer")
    (found,) = judge("kernel-version", machine({"ask uname": late}))
    assert found.verdict is Verdict.CANNOT_TELL
