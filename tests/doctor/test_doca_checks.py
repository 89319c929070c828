# SPDX-License-Identifier: Apache-2.0
"""DOCA, MLNX_OFED and rdma-core."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doca.readings import LATE, LIB, PARTS, installed, loadable, one
from support.doctor.bluefield import AT, BF3, cards
from support.doctor.machines import UNAME, machine

from dgkit.doctor import Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts import doca
from dgkit.doctor.facts.versions import version
from dgkit.doctor.goals import Goal

ARM = {"ask uname": {**UNAME, "machine": "aarch64"}, "text /etc/mlnx-release": "bf-bundle"}

BOTH = {name: f"{LIB}/{name}.so.3.2.1025" for name in ("libdoca_common", "libdoca_dma")}


@pytest.mark.parametrize(
    ("text", "number", "bsp"),
    [
        ("DOCA_2.2.1_BSP_4.2.2_Ubuntu_22.04-13.23-09.prod", (2, 2, 1), (4, 2, 2)),
        ("DOCA_v1.5.1_BlueField_OS_Ubuntu_20.04-5.4.0-1049-bluefield", (1, 5, 1), None),
        ("bf-bundle-2.9.1-40_24.11-ubuntu-22.04_prod\n", (2, 9, 1), None),
        ("something else", None, None),
    ],
)
def test_the_image_of_a_bluefield_names_its_doca(
    text: str, number: tuple[int, ...] | None, bsp: tuple[int, ...] | None
) -> None:
    found = doca.release(text)
    assert found.doca == (version(*number) if number else None)
    assert found.bsp == (version(*bsp) if bsp else None)


@given(st.text())
def test_no_text_of_a_release_makes_it_raise(text: str) -> None:
    assert doca.release(text).text in text


def test_parts_are_known_by_their_libraries_or_by_pkg_config() -> None:
    assert machine(installed()).know(doca.doca).parts == frozenset(PARTS)
    files = {f"names {LIB}": ["libdoca_dma.so", "libdoca_eth.so.3", "libdoca_gpunetio_device.a"]}
    assert machine(files).know(doca.doca).parts == {"dma", "eth"}


def test_without_its_version_file_the_library_tells_the_version() -> None:
    files = {f"names {LIB}": ["libdoca_common.so.2", "libdoca_common.so.2.5.0108"]}
    assert machine(files).know(doca.doca).version == version(2, 5, 108)


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        (installed("2.9.1008"), Verdict.OK),
        (installed("2.5.0108"), Verdict.OK),
        (installed("1.5.1007"), Verdict.FAIL),
        ({}, Verdict.FAIL),
        ({f"names {LIB}": Reading(fault="denied", why="no")}, Verdict.UNKNOWN),
    ],
)
def test_dgkit_needs_doca_2_5(readings: dict[str, object], verdict: Verdict) -> None:
    assert one("doca-version", readings).verdict is verdict


def test_the_old_sample_guide_is_said_to_disagree_with_todays_doca() -> None:
    assert "doca_workq" in one("doca-version", installed()).disagree


def test_a_dpu_gets_its_doca_by_an_image_and_is_not_asked_for_gpunetio() -> None:
    arm = {**ARM, "text /etc/mlnx-release": "an image"}
    *_, erases, install = one("doca-version", arm).remedy
    assert "erases" in erases
    assert "bfb-install" in install
    for check in ("doca-version", "doca-libraries"):
        assert one(check, arm, goal=Goal.GPUNETIO).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        (loadable(**BOTH), Verdict.OK),
        (loadable(), Verdict.FAIL),
        (loadable(libdoca_common=BOTH["libdoca_common"]), Verdict.FAIL),
        (loadable(**BOTH | {"libdoca_common": "/x/softdoca/libdoca_common.so.2"}), Verdict.WARN),
        ({"probe libraries": LATE}, Verdict.UNKNOWN),
    ],
)
def test_the_libraries_of_doca_are_found_and_nvidias(
    readings: dict[str, object], verdict: Verdict
) -> None:
    assert one("doca-libraries", readings).verdict is verdict


def test_softdoca_is_known_by_the_folder_that_the_environment_names() -> None:
    mine = loadable(**BOTH | {"libdoca_common": "/x/lib/libdoca_common.so.2"})
    found = one("doca-libraries", mine, {"ask environ": {"SOFTDOCA_LIB": "/x/lib/"}})
    assert (found.verdict, found.found) == (Verdict.WARN, "softdoca")
    assert one("doca-libraries", mine, {"ask environ": {}}).verdict is Verdict.OK


def test_libraries_that_are_installed_and_not_found_are_the_loaders_matter() -> None:
    found = one("doca-libraries", loadable(), installed())
    assert found.remedy[-1] == "sudo ldconfig"
    assert "apt" in one("doca-libraries", loadable()).remedy[-1]


@pytest.mark.parametrize(
    ("goal", "readings", "verdict"),
    [
        (Goal.ARM_DMA, {"run ofed_info -s": "MLNX_OFED_LINUX-5.8-1.0.1.1:\n"}, Verdict.OK),
        (Goal.ARM_DMA, {"run ofed_info -s": "OFED-internal-24.10-0.7.0:\n"}, Verdict.OK),
        (Goal.ARM_DMA, {"run ofed_info -s": "MLNX_OFED_LINUX-5.4-3.7.5.0:\n"}, Verdict.FAIL),
        (Goal.RDMA, {"run ofed_info -s": "MLNX_OFED_LINUX-5.4-3.7.5.0:\n"}, Verdict.OK),
        (Goal.ARM_DMA, {"text /sys/module/mlx5_core/version": "24.10-0.7.0\n"}, Verdict.OK),
        (Goal.ARM_DMA, installed(), Verdict.WARN),
        (
            Goal.ARM_DMA,
            {**installed(), "text /sys/module/mlx5_core/version": "5.0-0\n"},
            Verdict.WARN,
        ),
        (Goal.ARM_DMA, {}, Verdict.NOT_APPLICABLE),
        (Goal.RDMA, {}, Verdict.OK),
        (Goal.RDMA, {"run ofed_info -s": LATE}, Verdict.UNKNOWN),
        (Goal.RDMA, {"run ofed_info -s": Reading(said="odd", code=1)}, Verdict.UNKNOWN),
    ],
)
def test_the_network_drivers_are_those_of_ofed_of_doca_or_of_the_kernel(
    goal: Goal, readings: dict[str, object], verdict: Verdict
) -> None:
    card = cards((AT, BF3))
    assert one("ofed-version", card, readings, goal=goal).verdict is verdict


def test_without_a_nic_it_does_not_matter_whose_drivers_there_are() -> None:
    assert one("ofed-version", installed()).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("goal", "file", "verdict"),
    [
        (Goal.RDMA, "libibverbs.so.1.14.44.0", Verdict.OK),
        (Goal.RDMA, "libibverbs.so.1.14.50.0", Verdict.OK),
        (Goal.RDMA, "libibverbs.so.1.14.39.0", Verdict.OK),  # without DOCA
        (Goal.GPUNETIO, "libibverbs.so.1.14.39.0", Verdict.WARN),
        (Goal.RDMA, "libibverbs.so.1.11.32.0", Verdict.FAIL),
        (Goal.GPUNETIO, "libibverbs.so.1.11.32.0", Verdict.WARN),
        (Goal.RDMA, "", Verdict.FAIL),
        (Goal.ARM_DMA, "", Verdict.WARN),
        (Goal.RDMA, "libibverbs.so.1", Verdict.UNKNOWN),
    ],
)
def test_libibverbs_is_judged_by_the_release_of_rdma_core(
    goal: Goal, file: str, verdict: Verdict
) -> None:
    files = {"libibverbs": f"/usr/lib/{file}"} if file else {}
    found = one("rdma-core", cards((AT, BF3)), loadable(**files), goal=goal)
    assert found.verdict is verdict


def test_an_old_distribution_gets_its_libibverbs_from_doca() -> None:
    old = loadable(libibverbs="/usr/lib/libibverbs.so.1.14.39.0")
    lines = {
        number: one("rdma-core", cards((AT, BF3)), old, {"text /etc/os-release": said}).remedy
        for number in ("22.04", "24.04")
        for said in [f'ID=ubuntu\nVERSION_ID="{number}"\n']
    }
    assert "doca-ofed" in lines["22.04"][-1]
    assert "rdma-core 39" in lines["22.04"][0]
    assert "libibverbs1" in lines["24.04"][-1]


@pytest.mark.parametrize(
    ("goal", "device", "checks"),
    [
        (Goal.ARM_DMA, None, ("doca-version", "doca-libraries", "rdma-core")),
        (Goal.ARM_DMA, "1021", ("doca-version", "doca-libraries")),
        (Goal.GPUNETIO, None, ("doca-version", "doca-libraries", "gpunetio-ethernet")),
        (Goal.GPUNETIO, None, ("gpunetio-rdma", "gpunetio-verbs", "gpunetio-dma", "rdma-core")),
        (Goal.RDMA, None, ("rdma-core",)),
    ],
)
def test_without_a_card_for_it_doca_is_not_missed(
    goal: Goal, device: str | None, checks: tuple[str, ...]
) -> None:
    here = cards((AT, device)) if device else cards()
    for check in checks:
        assert one(check, here, loadable(), goal=goal).verdict is Verdict.NOT_APPLICABLE


def test_the_two_numberings_of_libibverbs_are_said_to_disagree() -> None:
    card = cards((AT, BF3))
    found = one("rdma-core", card, loadable(libibverbs="/usr/lib/libibverbs.so.1.14.39.0"))
    assert "rdma-core 44" in found.disagree
    assert "since rdma-core 34" in found.disagree
    late = one("rdma-core", card, {"probe libraries": LATE})
    assert late.verdict is Verdict.UNKNOWN
