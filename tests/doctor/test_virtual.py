# SPDX-License-Identifier: Apache-2.0
"""Virtual machines and containers."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor import pci
from support.doctor.machines import UNAME, judge, machine

from dgkit.doctor import Finding, Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts.virtual import container, virtual
from dgkit.doctor.goals import Goal

DMI = "text /sys/class/dmi/id"
CPU = "text /proc/cpuinfo"
BARE = "processor\t: 0\nflags\t\t: fpu vme de sse2\n"
GUEST = "processor\t: 0\nflags\t\t: fpu vme hypervisor sse2\n"
DEVICES = pci.sysfs([pci.gpu("pci0000:16/0000:17:00.0"), pci.dpu("pci0000:b0/0000:b3:00.0")])
ARM = "processor\t: 0\nFeatures\t: fp asimd evtstrm\n"


def one(readings: Mapping[str, object], goal: Goal = Goal.RDMA) -> Finding:
    (found,) = judge("virtual-machine", machine(readings), goal=goal)
    return found


@pytest.mark.parametrize(
    ("readings", "is_vm", "by"),
    [
        ({CPU: BARE}, False, ""),
        ({CPU: GUEST}, True, ""),
        ({CPU: GUEST, f"{DMI}/sys_vendor": "QEMU\n"}, True, "QEMU"),
        ({CPU: GUEST, f"{DMI}/sys_vendor": "VMware, Inc.\n"}, True, "VMware"),
        (
            {
                CPU: GUEST,
                f"{DMI}/sys_vendor": "Microsoft Corporation\n",
                f"{DMI}/product_name": "Virtual Machine\n",
            },
            True,
            "Hyper-V",
        ),
        (
            {CPU: BARE, f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "p5.metal\n"},
            False,
            "",
        ),
        ({CPU: GUEST, "text /sys/hypervisor/type": "xen\n"}, True, "Xen"),
        ({CPU: ARM, f"{DMI}/product_name": "KVM Virtual Machine\n"}, True, "KVM"),
        ({CPU: ARM, "text /proc/device-tree/hypervisor/compatible": "linux,kvm\0"}, True, "KVM"),
        ({CPU: ARM, f"{DMI}/product_name": "NVIDIA DGX Spark\n"}, False, ""),
        ({"ask uname": {**UNAME, "release": "5.15.1-microsoft-standard-WSL2"}}, True, "WSL 2"),
        ({CPU: ARM}, None, ""),
        ({}, None, ""),
    ],
)
def test_the_cpu_the_firmware_or_the_kernel_tells_of_a_hypervisor(
    readings: dict[str, object], is_vm: bool | None, by: str
) -> None:
    found = machine(readings).know(virtual)
    assert (found.is_vm, found.by) == (is_vm, by)


def test_bare_metal_and_a_virtual_machine_with_its_devices_are_fine() -> None:
    assert one({CPU: BARE}).verdict is Verdict.OK
    assert one({**DEVICES, CPU: GUEST}).verdict is Verdict.OK
    assert one({**DEVICES, CPU: GUEST}, Goal.GPUNETIO).verdict is Verdict.WARN
    assert one({}).verdict is Verdict.UNKNOWN


def test_a_virtual_machine_with_no_nic_has_nothing_that_could_be_passed_through() -> None:
    alone = pci.sysfs([pci.gpu("pci0000:16/0000:17:00.0")])
    assert one({**alone, CPU: GUEST}).verdict is Verdict.NOT_APPLICABLE
    hidden = Reading(fault="denied", why="by root")
    assert one({"names /sys/bus/pci/devices": hidden, CPU: GUEST}).verdict is Verdict.OK


def test_only_gpunetio_calls_a_virtual_machine_experimental() -> None:
    assert "experimental" in one({**DEVICES, CPU: GUEST}, Goal.GPUNETIO).why
    assert "experimental" not in one({**DEVICES, CPU: GUEST}, Goal.ARM_DMA).why


def test_under_wsl_the_gpu_is_out_of_reach() -> None:
    found = one({"ask uname": {**UNAME, "release": "5.15.1-microsoft-standard-WSL2"}})
    assert "no other device reaches it" in found.why


@given(st.text(), st.text(), st.text())
def test_any_text_of_firmware_and_cpu_is_read(cpu: str, vendor: str, product: str) -> None:
    readings = {CPU: cpu, f"{DMI}/sys_vendor": vendor, f"{DMI}/product_name": product}
    assert machine(readings).know(virtual).is_vm in (True, False, None)


@pytest.mark.parametrize(
    ("readings", "engine"),
    [
        ({}, ""),
        ({"text /proc/1/cgroup": "0::/init.scope\n"}, ""),
        ({"text /.dockerenv": ""}, "Docker"),
        ({"text /run/.containerenv": 'engine="podman-4.9"\n'}, "Podman"),
        ({"text /run/systemd/container": "lxc\n"}, "lxc"),
        ({"text /proc/1/cgroup": "1:cpu:/docker/abc\n"}, "Docker"),
        ({"text /.dockerenv": "", "text /proc/1/cgroup": "0::/kubepods.slice/x\n"}, "Kubernetes"),
    ],
)
def test_engines_leave_their_marks(readings: dict[str, object], engine: str) -> None:
    assert machine(readings).know(container).engine == engine


def inside(
    dev: list[str] | Reading, infiniband: list[str], goal: Goal = Goal.RDMA
) -> tuple[Finding, ...]:
    looks = {"text /.dockerenv": "", "names /dev": dev, "names /dev/infiniband": infiniband}
    return judge("container", machine({**DEVICES, **looks}), goal=goal)


def test_outside_of_a_container_it_does_not_apply() -> None:
    (found,) = judge("container", machine(DEVICES))
    assert found.verdict is Verdict.NOT_APPLICABLE


def test_a_container_that_was_given_the_devices_is_fine() -> None:
    (found,) = inside(["nvidia0", "nvidiactl", "null", "infiniband"], ["rdma_cm", "uverbs0"])
    assert found.verdict is Verdict.OK


def test_a_container_without_them_fails_with_the_options_that_give_them() -> None:
    (found,) = inside(["nvidiactl", "null"], ["rdma_cm"])
    assert (found.verdict, found.found) == (
        Verdict.FAIL,
        "Docker, without GPU and /dev/infiniband",
    )
    assert all(line.startswith("# ") for line in found.remedy)  # not to be typed in here
    assert "--gpus all --device=/dev/infiniband --ulimit memlock=-1" in found.remedy[1]
    (found,) = inside(["nvidia0", "null"], [])
    assert "--gpus" not in found.remedy[1]


def test_a_container_whose_dev_is_not_readable_cannot_be_told_of() -> None:
    (found,) = inside(Reading(fault="failed", why="I/O error"), [])
    assert found.verdict is Verdict.UNKNOWN
