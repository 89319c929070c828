# SPDX-License-Identifier: Apache-2.0
"""The IOMMU between GPU and NIC."""

from collections.abc import Mapping

import pytest
from support.doctor import pci
from support.doctor.machines import UNAME, judge, machine

from dgkit.doctor import Finding, Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.machine import Machine

GROUPS = "/sys/kernel/iommu_groups"
DEVICES = (pci.gpu("pci0000:16/0000:17:00.0"), pci.dpu("pci0000:b0/0000:b3:00.0"))
GPU, NIC = (one.address for one in DEVICES)


def box(types: Mapping[str, object], words: str = "", **more: object) -> Machine:
    """A GPU and a BlueField; `types`: of their groups, by address; one not in it is in none."""
    readings = pci.sysfs(DEVICES)
    for number, one in enumerate(DEVICES):
        if one.address in types:
            readings[f"link {pci.FOLDER}/{one.address}/iommu_group"] = f"{GROUPS}/{number}"
            if types[one.address] is not None:
                readings[f"text {GROUPS}/{number}/type"] = types[one.address]
    return machine({**readings, "text /proc/cmdline": f"ro {words}\n", **more})


def both(kind: object, words: str = "", **more: object) -> Finding:
    (found,) = judge("iommu", box({GPU: kind, NIC: kind}, words, **more))
    return found


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("identity\n", Verdict.OK),
        ("DMA\n", Verdict.WARN),
        ("DMA-FQ\n", Verdict.WARN),
        ("unmanaged\n", Verdict.FAIL),
        ("blocked\n", Verdict.FAIL),
        ("something new\n", Verdict.UNKNOWN),
        (Reading(fault="denied", why="no"), Verdict.UNKNOWN),
    ],
)
def test_the_groups_type_tells_what_is_in_force(kind: object, verdict: Verdict) -> None:
    assert both(kind).verdict is verdict


def test_devices_in_no_group_have_no_iommu() -> None:
    (found,) = judge("iommu", box({}))
    assert (found.verdict, found.found) == (Verdict.OK, "off")


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("iommu=pt intel_iommu=on", Verdict.OK),
        ("intel_iommu=on", Verdict.WARN),
        ("quiet", Verdict.UNKNOWN),
    ],
)
def test_a_kernel_that_has_no_types_is_judged_by_its_command_line(
    words: str, verdict: Verdict
) -> None:
    assert both(None, words).verdict is verdict


def test_a_kernel_that_is_built_for_passthrough_needs_no_word() -> None:
    config = {f"text /boot/config-{UNAME['release']}": "CONFIG_IOMMU_DEFAULT_PASSTHROUGH=y\n"}
    assert both(None, "quiet", **config).verdict is Verdict.OK
    assert both(None, "iommu.passthrough=0", **config).verdict is Verdict.WARN


def test_gpu_and_nic_that_differ_are_told_of_one_by_one() -> None:
    found = judge("iommu", box({GPU: "identity\n", NIC: "DMA\n"}, "iommu=pt"))
    assert {one.subject: one.verdict for one in found} == {GPU: Verdict.OK, NIC: Verdict.WARN}


def test_a_translating_iommu_is_a_matter_on_which_documents_disagree() -> None:
    found = both("DMA-FQ\n", "intel_iommu=on")
    assert found.found == "translating (intel_iommu=on)"
    assert "GPUDirect RDMA guide" in found.disagree
    assert "GPUNetIO guide" in found.disagree


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ({}, ('="$GRUB_CMDLINE_LINUX iommu=pt"', "/etc/default/grub.d/99-", "update-grub")),
        ({"text /etc/os-release": 'ID="rhel"\n'}, ("grubby", "--args='iommu=pt'")),
        ({"ask uname": {**UNAME, "machine": "aarch64"}}, (" iommu.passthrough=1", "SMMU")),
    ],
)
def test_passthrough_is_set_as_the_distribution_and_the_cpu_have_it(
    more: dict[str, object], lines: tuple[str, ...]
) -> None:
    remedy = "\n".join(both("DMA\n", "", **more).remedy)
    assert all(line in remedy for line in lines)


@pytest.mark.parametrize("types", [{}, {GPU: "DMA\n", NIC: "identity\n"}])
def test_in_a_virtual_machine_the_iommu_that_counts_is_the_hosts(types: dict[str, str]) -> None:
    (found,) = judge("iommu", box(types, **pci.GUEST))
    assert found.verdict is Verdict.NOT_APPLICABLE
    assert "ATS_ENABLED" in found.why
    assert "hypervisor" in found.needed


def test_without_gpu_and_nic_it_does_not_apply() -> None:
    (found,) = judge("iommu", machine({f"names {pci.FOLDER}": []}))
    assert found.verdict is Verdict.NOT_APPLICABLE


def test_without_a_list_of_devices_nothing_can_be_told() -> None:
    late = machine({f"names {pci.FOLDER}": Reading(fault="late", why="no answer within 3 s")})
    (found,) = judge("iommu", late)
    assert (found.verdict, found.why) == (Verdict.UNKNOWN, "No answer within 3 s.")
