# SPDX-License-Identifier: Apache-2.0
"""The kernel's version and options, as checks see them."""

import pytest
from support.doctor import pci
from support.doctor.gpus import CLOSED, OPEN
from support.doctor.machines import UNAME, judge, machine

from dgkit.doctor import Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts.distribution import as_root
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Machine

CONFIG = f"text /boot/config-{UNAME['release']}"


def old(release: str = "5.15.0-91-generic", **said: str) -> dict[str, object]:
    lines = "".join(f'{name}="{value}"\n' for name, value in said.items())
    return {"ask uname": {**UNAME, "release": release}, "text /etc/os-release": lines}


@pytest.mark.parametrize(
    ("release", "verdict"),
    [
        ("6.2.0-39-generic", Verdict.OK),
        ("6.18.44", Verdict.OK),
        ("10.0", Verdict.OK),
        ("5.15.0-1021-oracle", Verdict.WARN),
        ("6.1.0-18-amd64", Verdict.WARN),
        ("5.4.0-200-generic", Verdict.WARN),
        ("strange", Verdict.UNKNOWN),
    ],
)
def test_kernels_from_6_2_on_are_new_enough_for_a_dma_buf(release: str, verdict: Verdict) -> None:
    (found,) = judge("kernel-version", machine({"ask uname": {**UNAME, "release": release}}))
    assert found.verdict is verdict
    assert release in found.found


def test_from_5_12_to_6_2_the_documents_disagree_and_the_finding_says_so() -> None:
    for release, disagrees in (
        ("5.11.22", False),
        ("5.12.0", True),
        ("6.1.9", True),
        ("6.2", False),
    ):
        (found,) = judge("kernel-version", machine({"ask uname": {**UNAME, "release": release}}))
        assert ("5.12" in found.disagree) is disagrees, release


GPU = "0000:17:00.0"
VERSION, LIST = "text /proc/driver/nvidia/version", "text /proc/modules"


def asked(dma_buf: int, takes: bool | None) -> dict[str, object]:
    """What CUDA says of a GPU, and an RDMA device of a dma-buf."""
    init = {"code": 0, "name": "CUDA_SUCCESS"}
    device = {"ordinal": 0, "address": GPU, "attributes": {"DMA_BUF_SUPPORTED": dma_buf}}
    return {
        "probe cuda": {"init": init, "driver": 13000, "devices": [device]},
        "names /sys/class/infiniband": ("mlx5_0",),
        "probe rdma-dmabuf mlx5_0": {"device": "mlx5_0", "takes": takes},
    }


@pytest.mark.parametrize(
    ("release", "dma_buf", "takes", "verdict"),
    [
        ("5.14.0-427.el9.x86_64", 1, True, Verdict.OK),
        ("5.14.0-427.el9.x86_64", 1, False, Verdict.WARN),
        ("5.14.0-427.el9.x86_64", 1, None, Verdict.WARN),
        ("5.14.0-427.el9.x86_64", 0, True, Verdict.WARN),
        ("4.18.0-553.el8_10.x86_64", 1, True, Verdict.OK),  # backports
        ("5.4.0-200-generic", 1, False, Verdict.WARN),
    ],
)
def test_what_cuda_and_the_rdma_device_say_counts_more_than_what_documents_ask(
    release: str, dma_buf: int, takes: bool | None, verdict: Verdict
) -> None:
    on = gpu(**asked(dma_buf, takes), **old(release, ID="rhel"), **{VERSION: OPEN})
    (found,) = judge("kernel-version", on)
    assert found.verdict is verdict
    assert bool(found.disagree) is (release[:3] == "5.1")


PEERMEM = "nvidia 1 0 - Live 0x0\nnvidia_peermem 16384 0 - Live 0x0 (OE)\n"


def test_no_newer_kernel_is_offered_that_takes_a_peermem_away_that_works() -> None:
    (found,) = judge("kernel-version", gpu(**old(), **{VERSION: CLOSED, LIST: PEERMEM}))
    assert (found.verdict, found.remedy) == (Verdict.OK, ())
    assert "6.8" in found.why


def test_with_closed_modules_the_open_ones_come_before_a_newer_kernel() -> None:
    (found,) = judge(
        "kernel-version", gpu(**old(ID="ubuntu", VERSION_ID="22.04"), **{VERSION: CLOSED})
    )
    assert found.verdict is Verdict.WARN
    assert all(line.startswith("#") for line in found.remedy)


def test_the_kernel_of_wsl_is_microsofts() -> None:
    uname = {**UNAME, "release": "5.15.153.1-microsoft-standard-WSL2"}
    (found,) = judge("kernel-version", machine({"ask uname": uname}))
    assert found.verdict is Verdict.NOT_APPLICABLE


def test_a_kernel_that_does_not_say_its_version_is_not_judged() -> None:
    for answer in (Reading(fault="late", why="no answer"), Reading(data="odd"), Reading(data={})):
        (found,) = judge("kernel-version", machine({"ask uname": answer}))
        assert found.verdict is Verdict.UNKNOWN


def test_the_arm_cores_kernel_makes_no_dma_buf_so_an_old_one_will_do() -> None:
    uname = {**UNAME, "release": "5.15.0-1021-bluefield", "machine": "aarch64"}
    (found,) = judge("kernel-version", machine({"ask uname": uname}))
    assert (found.verdict, found.side) == (Verdict.OK, "dpu")


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"ID": "ubuntu", "VERSION_ID": "22.04"}, "linux-generic-hwe-22.04"),
        ({"ID": "ubuntu", "VERSION_ID": "20.04"}, "from 22.04 on"),
        (
            {"ID": "debian", "VERSION_ID": "12"},
            "bookworm-backports linux-image-amd64 linux-headers-amd64",
        ),
        ({"ID": "debian", "VERSION_ID": "11"}, "# Debian"),
        ({"ID": "fedora", "VERSION_ID": "36"}, "dnf -y upgrade"),
        ({"ID": "rocky", "ID_LIKE": "rhel centos fedora", "VERSION_ID": "9.4"}, "# Red Hat"),
        ({"ID": "opensuse-leap", "ID_LIKE": "suse opensuse"}, "# SUSE"),
        ({}, "# Install a kernel"),
    ],
)
def test_each_distribution_has_its_own_way_to_a_newer_kernel(
    said: dict[str, str], word: str
) -> None:
    (found,) = judge("kernel-version", machine(old(**said)))
    assert word in "\n".join(found.remedy)


def gpu(driver: str = "nvidia", **more: object) -> Machine:
    """A GPU that this driver has."""
    readings = pci.sysfs([pci.gpu("pci0000:16/0000:17:00.0")])
    key = f"text {pci.FOLDER}/0000:17:00.0/uevent"
    return machine({**readings, key: f"{readings[key]}DRIVER={driver}\n", **more})


ON, OFF = "CONFIG_PCI_P2PDMA=y\n", "# CONFIG_PCI_P2PDMA is not set\nCONFIG_PCI=y\n"


@pytest.mark.parametrize(
    ("driver", "config", "verdict"),
    [
        ("nvidia", ON, Verdict.OK),
        ("nouveau", ON, Verdict.OK),
        ("nvidia", OFF, Verdict.NOT_APPLICABLE),
        ("nvidia", None, Verdict.NOT_APPLICABLE),
        ("nouveau", OFF, Verdict.WARN),
        ("nouveau", "CONFIG_PCI=y\n", Verdict.WARN),
        ("nouveau", None, Verdict.UNKNOWN),
    ],
)
def test_p2pdma_matters_to_drivers_that_are_not_nvidia_s(
    driver: str, config: str | None, verdict: Verdict
) -> None:
    readings = {} if config is None else {CONFIG: config}
    (found,) = judge("kernel-p2pdma", gpu(driver, **readings))
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("config", "verdict", "words"),
    [
        ("CONFIG_HMM_MIRROR=y\nCONFIG_DEVICE_PRIVATE=y\n", Verdict.OK, "HMM_MIRROR=y"),
        ("CONFIG_HMM_MIRROR=y\n", Verdict.NOT_APPLICABLE, "DEVICE_PRIVATE not set"),
        (Reading(fault="absent", why="none"), Verdict.NOT_APPLICABLE, "nothing needs it"),
        (Reading(fault="denied", why="by root"), Verdict.UNKNOWN, "no config"),
    ],
)
def test_hmm_wants_both_options_and_nothing_needs_it(
    config: object, verdict: Verdict, words: str
) -> None:
    (found,) = judge("kernel-hmm", gpu(**{CONFIG: config}), goal=Goal.RDMA)
    assert found.verdict is verdict
    assert words in found.found


@pytest.mark.parametrize(
    ("release", "words"),
    [
        ("5.15.0-91-generic", "not in Linux 5.15"),
        ("7.3.4+deb13-amd64", "not in Linux 7.3"),
        ("7.4.0", "not known of Linux 7.4"),
        ("odd", "not known of Linux ?"),
    ],
)
@pytest.mark.parametrize("has_gpu", [True, False])
def test_no_kernel_that_was_examined_has_rdma_on_device_private_pages(
    has_gpu: bool, release: str, words: str
) -> None:
    readings = {"ask uname": {**UNAME, "release": release}}
    made = gpu(**readings) if has_gpu else machine(readings)
    (found,) = judge("kernel-device-private", made, goal=Goal.RDMA)
    assert found.verdict is Verdict.NOT_APPLICABLE
    assert found.found == words
    for named in ("mlx5", "nouveau", "moved to host memory", "dma-buf", "nvidia-peermem"):
        assert named in found.why


def test_without_a_gpu_the_options_do_not_matter() -> None:
    for check in ("kernel-p2pdma", "kernel-hmm"):
        (found,) = judge(check, machine({CONFIG: OFF}), goal=Goal.RDMA)
        assert found.verdict is Verdict.NOT_APPLICABLE


def test_hmm_is_not_asked_for_arm_cores_that_copy() -> None:
    (found,) = judge("kernel-hmm", gpu(**{CONFIG: OFF}), goal=Goal.ARM_DMA)
    assert found.verdict is Verdict.NOT_APPLICABLE


def test_a_config_that_root_may_read_is_told_of_with_the_command() -> None:
    locked = Reading(fault="denied", why="by root")
    (found,) = judge("kernel-p2pdma", gpu("nouveau", **{CONFIG: locked}))
    assert found.remedy == (as_root("kernel-p2pdma"),)
