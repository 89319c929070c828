# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of PCIe links."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.machines import judge, machine
from support.doctor.pci import BARE, GUEST, Dev, dpu, gpu, link, nic, sysfs

from dgkit.doctor import Finding, Goal, Verdict
from dgkit.doctor.facts.link import gigabytes, links

PORT = "pci0000:16/0000:16:01.0"
FULL = link("32.0 GT/s PCIe", "16")


def judged(
    files: dict[str, str], make: object = gpu, port: dict[str, str] = FULL, **more: object
) -> Finding:
    device = make(f"{PORT}/0000:17:00.0", files=files)  # type: ignore[operator]
    made = machine({**BARE, **sysfs([device, Dev(PORT, files=port)]), **more})
    (found,) = judge("link", made, goal=Goal.RDMA)
    return found


def test_a_link_at_its_best_is_fine_and_says_what_it_carries() -> None:
    found = judged(FULL)
    assert (found.verdict, found.found) == (Verdict.OK, "PCIe 5 x16, 63.0 GB/s")
    assert any("PCIE_SPEED2MBS_ENC" in one.section for one in found.sources)


def test_lanes_that_are_missing_are_a_warning() -> None:
    found = judged(link("32.0 GT/s PCIe", "8"))
    assert (found.verdict, found.found) == (Verdict.WARN, "PCIe 5 x8, 31.5 GB/s")
    assert "8 of 16 lanes" in found.why


def test_a_slot_with_fewer_lanes_is_named_as_the_reason() -> None:
    slot = link("32.0 GT/s PCIe", "8", widest="8")
    assert "slot has 8 lanes" in judged(link("32.0 GT/s PCIe", "8"), port=slot).why


SLOW = link("2.5 GT/s PCIe", "16")
SMI = """==============NVSMI LOG==============

Attached GPUs                             : 1
GPU 00000000:17:00.0
    Product Name                          : NVIDIA H100
    Performance State                     : {}
"""


def in_state(state: str, files: dict[str, str] = SLOW, port: dict[str, str] = FULL) -> Finding:
    return judged(files, port=port, **{"run nvidia-smi -q": SMI.format(state)})


@pytest.mark.parametrize("state", ["P3", "P8", "P12"])
def test_a_gpu_that_runs_slower_since_it_is_idle_is_fine(state: str) -> None:
    found = in_state(state)
    assert (found.verdict, found.found) == (
        Verdict.OK,
        f"PCIe 1 now (idle, {state}), at most 5",
    )


@pytest.mark.parametrize("state", ["P0", "P2"])
def test_a_gpu_that_runs_slower_at_work_is_a_warning(state: str) -> None:
    found = in_state(state)
    assert found.verdict is Verdict.WARN
    assert state in found.why
    assert "dgkit doctor link" in found.remedy


@pytest.mark.parametrize("state", ["N/A", "[Unknown Error]", "P", "P-1", ""])
def test_a_gpu_of_which_no_state_is_known_may_be_idle(state: str) -> None:
    assert in_state(state).verdict is Verdict.UNKNOWN
    assert judged(SLOW).verdict is Verdict.UNKNOWN


def test_an_idle_gpu_with_few_lanes_is_a_warning_all_the_same() -> None:
    assert in_state("P8", link("2.5 GT/s PCIe", "8")).verdict is Verdict.WARN
    old = link("2.5 GT/s PCIe", "16", most="16.0 GT/s PCIe")
    assert in_state("P8", port=old).verdict is Verdict.OK


def test_a_card_that_gets_all_of_an_older_slot_is_well() -> None:
    old = link("16.0 GT/s PCIe", "16", most="16.0 GT/s PCIe")
    assert in_state("P0", link("16.0 GT/s PCIe", "16"), port=old).verdict is Verdict.OK
    fewer = link("16.0 GT/s PCIe", "8")
    assert in_state("P0", fewer, port=old).verdict is Verdict.WARN


def test_a_nic_that_runs_slower_is_not_idle() -> None:
    found = judged(link("16.0 GT/s PCIe", "16"), nic)
    assert found.verdict is Verdict.WARN
    assert "idle" not in found.why
    assert found.needed == "PCIe 5 x16, 63.0 GB/s"


@pytest.mark.parametrize("make", [gpu, nic])
def test_a_slot_of_an_older_generation_is_named_as_the_reason(make: object) -> None:
    slot = link("16.0 GT/s PCIe", "16", most="16.0 GT/s PCIe")
    found = judged(link("16.0 GT/s PCIe", "16"), make, slot)
    assert "16 GT/s at most" in found.why


@pytest.mark.parametrize(
    "files",
    [
        {},
        link("Unknown", "16"),
        link("Unknown speed", "0"),
        link("32.0 GT/s PCIe", "255"),
        link("16.0 GT/s PCIe", "63"),
        link("strange", "strange", "strange", "strange"),
    ],
)
def test_what_is_not_told_is_not_judged(files: dict[str, str]) -> None:
    assert judged(files).verdict is Verdict.UNKNOWN


def test_links_that_a_guest_does_not_show_are_not_judged() -> None:
    made = machine({**sysfs([gpu("pci0000:00/0000:00:05.0")]), **GUEST})
    (found,) = judge("link", made)
    assert found.verdict is Verdict.NOT_APPLICABLE
    assert "virtual machine" in found.found


def test_older_kernels_write_speeds_in_their_own_way() -> None:
    assert judged(link("8 GT/s", "16", "8 GT/s")).found == "PCIe 3 x16, 15.8 GB/s"


def switched(inner: dict[str, str], end: dict[str, str] = FULL) -> tuple[Verdict, ...]:
    """A GPU below a second switch, whose link to the first is as given."""
    first = "pci0000:16/0000:16:01.0/0000:17:00.0"
    second = f"{first}/0000:18:01.0/0000:1a:00.0"
    devices = [
        dpu(f"{first}/0000:18:00.0/0000:19:00.0", files=FULL),
        gpu(f"{second}/0000:1b:00.0/0000:1c:00.0", files=end),
        Dev(first, files=link("2.5 GT/s PCIe", "1")),  # above both: nothing passes there
        Dev(second, files=inner),
    ]
    return tuple(one.verdict for one in judge("link", machine({**BARE, **sysfs(devices)})))


def test_the_narrowest_link_on_the_way_is_found() -> None:
    assert switched(FULL) == (Verdict.OK, Verdict.OK)
    assert switched(link("32.0 GT/s PCIe", "4", widest="16")) == (
        *(Verdict.WARN, Verdict.OK, Verdict.OK),
    )


def test_a_gpu_that_idles_behind_a_switch_is_told_of_once() -> None:
    assert switched(FULL, SLOW) == (Verdict.UNKNOWN, Verdict.OK)


@pytest.mark.parametrize(
    ("speed", "lanes", "rate"),
    [(2.5, 16, 4.0), (5.0, 16, 8.0), (8.0, 16, 15.75), (16.0, 8, 15.75), (32.0, 16, 63.0)],
)
def test_the_rate_is_that_of_the_standard(speed: float, lanes: int, rate: float) -> None:
    assert gigabytes(speed, lanes) == pytest.approx(rate, rel=0.001)


@given(st.text(max_size=30), st.text(max_size=10))
def test_no_text_raises(speed: str, width: str) -> None:
    device = gpu("pci0000:00/0000:00:05.0", files=link(speed, width, speed, width))
    found = links(machine(sysfs([device])), [device.address])[device.address]
    assert found.rate >= 0
    assert found.text
