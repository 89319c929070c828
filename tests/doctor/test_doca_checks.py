"""DOCA, MLNX_OFED, rdma-core, and what each part of GPUNetIO takes."""

from __future__ import annotations

import pytest
from bluefield_rig import AT, BF3, asked, cards, table
from doctor_rig import UNAME, judge, machine
from hypothesis import given
from hypothesis import strategies as st

from dgkit.doctor import Verdict
from dgkit.doctor.facts import bluefield, doca
from dgkit.doctor.facts.versions import version
from dgkit.doctor.finding import Finding
from dgkit.doctor.goals import Goal
from dgkit.doctor.readers.reading import Reading

ROOT = "/opt/mellanox/doca"
LIB = f"{ROOT}/lib/x86_64-linux-gnu"
PARTS = ("common", "dma", "eth", "flow", "rdma", "verbs", "gpunetio")
ARM = {"ask uname": {**UNAME, "machine": "aarch64"}, "text /etc/mlnx-release": "bf-bundle"}
LATE = Reading(fault="late", why="no answer")


def installed(running: str = "3.2.1025", parts: tuple[str, ...] = PARTS) -> dict[str, object]:
    """A DOCA on a host."""
    return {
        f"text {ROOT}/applications/VERSION": f"{running}\n",
        f"names {LIB}": [f"libdoca_{part}.so.3.2.1025" for part in parts]
        + ["libdoca_gpunetio_device.a", "pkgconfig"],
        f"names {LIB}/pkgconfig": [f"doca-{part}.pc" for part in parts],
    }


def loadable(**files: str) -> dict[str, object]:
    """What the loader finds, by name."""
    names = ("libdoca_common", "libdoca_dma", "libdoca_gpunetio", "libibverbs")
    said = {
        f"{name}.so": {"path": files.get(name, ""), "why": "" if name in files else f"no {name}"}
        for name in names
    }
    return {"probe libraries": said}


BOTH = {name: f"{LIB}/{name}.so.3.2.1025" for name in ("libdoca_common", "libdoca_dma")}


def one(check: str, *readings: dict[str, object], goal: Goal = Goal.ARM_DMA) -> Finding:
    made = {key: value for part in readings for key, value in part.items()}
    (found,) = judge(check, machine(made), goal=goal)
    return found


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
        ({f"names {LIB}": Reading(fault="denied", why="no")}, Verdict.CANNOT_TELL),
    ],
)
def test_dgkit_needs_doca_2_5(readings: dict[str, object], verdict: Verdict) -> None:
    assert one("doca-version", readings).verdict is verdict


def test_the_old_sample_guide_is_said_to_disagree_with_todays_doca() -> None:
    assert "doca_workq" in one("doca-version", installed()).disagree


def test_a_dpu_gets_its_doca_by_an_image_and_is_not_asked_for_gpunetio() -> None:
    arm = {**ARM, "text /etc/mlnx-release": "an image"}
    assert "bfb-install" in one("doca-version", arm).remedy[1]
    for check in ("doca-version", "doca-libraries"):
        assert one(check, arm, goal=Goal.GPUNETIO).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        (loadable(**BOTH), Verdict.OK),
        (loadable(), Verdict.FAIL),
        (loadable(libdoca_common=BOTH["libdoca_common"]), Verdict.FAIL),
        (loadable(**BOTH | {"libdoca_common": "/x/softdoca/libdoca_common.so.2"}), Verdict.WARN),
        ({"probe libraries": LATE}, Verdict.CANNOT_TELL),
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
        (Goal.RDMA, {"run ofed_info -s": LATE}, Verdict.CANNOT_TELL),
        (Goal.RDMA, {"run ofed_info -s": Reading(said="odd", code=1)}, Verdict.CANNOT_TELL),
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
        (Goal.RDMA, "libibverbs.so.1.14.39.0", Verdict.WARN),
        (Goal.RDMA, "libibverbs.so.1.11.32.0", Verdict.FAIL),
        (Goal.GPUNETIO, "libibverbs.so.1.11.32.0", Verdict.WARN),
        (Goal.RDMA, "", Verdict.FAIL),
        (Goal.ARM_DMA, "", Verdict.WARN),
        (Goal.RDMA, "libibverbs.so.1", Verdict.CANNOT_TELL),
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
    assert "since 34" in found.disagree
    late = one("rdma-core", card, {"probe libraries": LATE})
    assert late.verdict is Verdict.CANNOT_TELL


ROOT_USER: dict[str, object] = {"ask euid": 0}
CUDA_13: dict[str, object] = {"run nvcc --version": "Cuda compilation tools, release 13.0, V13.0.8"}
CUDA_12_8: dict[str, object] = {"run nvcc --version": "Cuda compilation tools, release 12.8, V12"}
CUDA_12_2: dict[str, object] = {"run nvcc --version": "Cuda compilation tools, release 12.2, V12"}


@pytest.mark.parametrize(
    ("part", "toolkit", "verdict"),
    [
        ("ethernet", CUDA_13, Verdict.OK),
        ("ethernet", CUDA_12_8, Verdict.OK),
        ("ethernet", CUDA_12_2, Verdict.WARN),
        ("verbs", CUDA_12_8, Verdict.OK),
        ("rdma", CUDA_13, Verdict.OK),
        ("rdma", CUDA_12_8, Verdict.FAIL),
        ("dma", CUDA_13, Verdict.OK),
        ("dma", CUDA_12_8, Verdict.FAIL),
        ("dma", {}, Verdict.WARN),
        ("dma", {"run nvcc --version": LATE}, Verdict.CANNOT_TELL),
    ],
)
def test_parts_in_the_static_library_need_cuda_13_and_parts_in_headers_do_not(
    part: str, toolkit: dict[str, object], verdict: Verdict
) -> None:
    found = one(f"gpunetio-{part}", installed(), ROOT_USER, toolkit, goal=Goal.GPUNETIO)
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("part", "lacks"),
    [
        ("ethernet", "eth"),
        ("ethernet", "flow"),
        ("rdma", "rdma"),
        ("verbs", "verbs"),
        ("dma", "dma"),
        ("dma", "gpunetio"),
    ],
)
def test_each_part_needs_its_libraries(part: str, lacks: str) -> None:
    parts = tuple(name for name in PARTS if name != lacks)
    there = installed(parts=parts)
    found = one(f"gpunetio-{part}", there, ROOT_USER, CUDA_13, goal=Goal.GPUNETIO)
    assert (found.verdict, found.found) == (Verdict.FAIL, f"no doca-{lacks}")
    assert "doca-sdk-gpunetio" in found.remedy[-1]


def test_without_the_static_library_two_parts_are_missing() -> None:
    there = {**installed(), f"names {LIB}": []}
    for part, verdict in (("dma", Verdict.FAIL), ("rdma", Verdict.FAIL), ("verbs", Verdict.OK)):
        found = one(f"gpunetio-{part}", there, ROOT_USER, CUDA_13, goal=Goal.GPUNETIO)
        assert found.verdict is verdict


def test_that_programs_of_gpunetio_ethernet_need_root_is_no_fault_of_the_machine() -> None:
    for user in (0, 1000):
        who: dict[str, object] = {"ask euid": user}
        found = one("gpunetio-ethernet", installed(), who, CUDA_13, goal=Goal.GPUNETIO)
        assert found.verdict is Verdict.OK
        assert "root" in found.why
    verbs = one("gpunetio-verbs", installed(), CUDA_13, goal=Goal.GPUNETIO)
    assert "root" not in verbs.why


@pytest.mark.parametrize(
    ("types", "verdict"),
    [
        ({"LINK_TYPE_P1": 1, "LINK_TYPE_P2": 1}, Verdict.FAIL),
        ({"LINK_TYPE_P1": 1, "LINK_TYPE_P2": 2}, Verdict.OK),
        ({"LINK_TYPE_P1": 2}, Verdict.OK),
        ({}, Verdict.OK),
    ],
)
def test_only_gpunetio_ethernet_is_blocked_by_infiniband(
    types: dict[str, int], verdict: Verdict
) -> None:
    card = {**cards((AT, BF3)), **asked(bluefield.ASKED, table({"INTERNAL_CPU_MODEL": 1} | types))}
    there = {**card, **installed(), **CUDA_13}
    found = one("gpunetio-ethernet", there, goal=Goal.GPUNETIO)
    assert found.verdict is verdict
    if verdict is Verdict.FAIL:
        assert found.remedy[0].endswith("set LINK_TYPE_P1=2 LINK_TYPE_P2=2")
    for check in ("gpunetio-rdma", "gpunetio-verbs", "gpunetio-dma", "bluefield-link"):
        assert one(check, there, goal=Goal.GPUNETIO).verdict is Verdict.OK


def test_without_doca_no_part_is_there_and_an_unread_doca_is_not_judged() -> None:
    for part in ("ethernet", "rdma", "verbs", "dma"):
        assert one(f"gpunetio-{part}", goal=Goal.GPUNETIO).found == "no DOCA"
        denied = {f"names {LIB}": Reading(fault="denied", why="no")}
        found = one(f"gpunetio-{part}", denied, goal=Goal.GPUNETIO)
        assert found.verdict is Verdict.CANNOT_TELL
