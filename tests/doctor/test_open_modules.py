# SPDX-License-Identifier: Apache-2.0
"""The open kernel modules: how distributions come by them, and which GPUs they do not drive."""

from __future__ import annotations

import pytest
from support.doctor.gpus import ADDRESS, CLOSED, NO_MODULE, h200, smi, with_gpu
from support.doctor.machines import judge

from dgkit.doctor import Goal, Verdict
from dgkit.doctor.finding import Finding
from dgkit.doctor.machine import Machine

VERSION, SMI = "text /proc/driver/nvidia/version", "run nvidia-smi -q"
PEERMEM = "run modinfo -F filename nvidia-peermem"


def one(check: str, on: Machine) -> Finding:
    (found,) = judge(check, on, goal=Goal.RDMA)
    return found


def command(found: Finding) -> str:
    """Return the only command of a remedy, after which the machine is restarted by hand."""
    assert found.remedy[-1] == "# Then restart the machine: sudo reboot"
    (only,) = (line for line in found.remedy if not line.startswith("#"))
    assert "reboot" not in only
    return only


UBUNTU, DEBIAN = 'ID=ubuntu\nVERSION_ID="22.04"\n', 'ID=debian\nVERSION_ID="12"\n'
ROCKY, FEDORA = (
    'ID="rocky"\nID_LIKE="rhel fedora"\nVERSION_ID="9.4"\n',
    "ID=fedora\nVERSION_ID=42\n",
)
RHEL10 = 'ID="rhel"\nVERSION_ID="10.0"\n'


@pytest.mark.parametrize(
    ("release", "closed", "absent"),
    [
        (UBUNTU, "--autoremove --purge nvidia-open nvidia-driver-open", "-y nvidia-open"),
        (DEBIAN, "--autoremove --purge nvidia-open", "-y nvidia-open"),
        (ROCKY, "module switch-to nvidia-driver:open-dkms --allowerasing", "module enable"),
        (RHEL10, "install --allowerasing nvidia-open", "-y install nvidia-open"),
        (FEDORA, "install --allowerasing nvidia-open", "-y install nvidia-open"),
    ],
)
def test_each_distribution_switches_to_the_open_modules_in_its_own_way(
    release: str, closed: str, absent: str
) -> None:
    known = {"text /etc/os-release": release}
    switch = one("driver-flavour", h200({VERSION: CLOSED, **known}))
    assert command(switch).endswith(closed)
    anew = command(one("driver-loaded", with_gpu(known)))
    assert absent in anew
    assert "allowerasing" not in anew


VOLTA = smi("Tesla V100-PCIE-32GB", architecture="Volta", driver="535.161.07")
MIXED = smi(addresses=("00000000:17:00.0", "00000000:CA:00.0"), driver="535.161.07")
MIXED = MIXED.replace("Hopper", "Pascal", 1).replace("NVIDIA H200", "Quadro P400", 1)


@pytest.mark.parametrize("release", [UBUNTU, DEBIAN, ROCKY, RHEL10, FEDORA])
@pytest.mark.parametrize("state", [NO_MODULE, "/lib/modules/6.8.0/nvidia-peermem.ko\n"])
def test_open_modules_are_never_offered_where_a_gpu_would_be_lost_to_them(
    release: str, state: object
) -> None:
    known = {"text /etc/os-release": release, PEERMEM: state, VERSION: CLOSED}
    for text in (VOLTA, MIXED):
        for goal in (Goal.RDMA, Goal.GPUNETIO):
            for family in ("driver", "dmabuf", "peermem", "cuda", "kernel"):
                found = judge(family, h200({SMI: text, **known}), goal=goal)
                assert "nvidia-open" not in "\n".join(line for f in found for line in f.remedy)


def test_a_gpu_before_turing_is_well_with_the_closed_modules_of_the_last_branch() -> None:
    found = one("driver-flavour", h200({SMI: VOLTA, VERSION: CLOSED}))
    assert found.verdict is Verdict.OK
    assert "nvidia-peermem" in found.why
    assert "580" in found.why
    mixed = one("driver-flavour", h200({SMI: MIXED, VERSION: CLOSED}))
    assert mixed.verdict is Verdict.WARN
    assert "Quadro P400" in mixed.remedy[0]


@pytest.mark.parametrize(("device", "package"), [("1DB4", "cuda-drivers"), ("1E04", "nvidia-open")])
def test_where_no_driver_names_the_gpu_its_device_id_tells_what_drives_it(
    device: str, package: str
) -> None:
    folder = f"text /sys/bus/pci/devices/{ADDRESS}/uevent"
    bare = with_gpu({folder: f"PCI_CLASS=30200\nPCI_ID=10DE:{device}\n"})
    assert package in command(one("driver-loaded", bare))
