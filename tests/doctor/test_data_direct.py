# SPDX-License-Identifier: Apache-2.0
"""A Grace machine whose ConnectX-8 reaches its GPU by Data Direct: ACS and IOMMU groups."""

from __future__ import annotations

import pytest
from support.doctor.machines import judge as judge_all
from support.doctor.machines import machine
from support.doctor.pci import BARE, FOLDER, Dev, config, gpu, nic, sysfs

from dgkit.doctor import Finding, Goal, Verdict
from dgkit.doctor.facts import data_direct
from dgkit.doctor.machine import Machine

ROOT = "pci0009:00/0009:00:00.0"
SWITCH = f"{ROOT}/0009:01:00.0"
TO_FUNCTION, TO_GPU = f"{SWITCH}/0009:02:00.0", f"{SWITCH}/0009:02:01.0"
INNER = f"{TO_GPU}/0009:04:00.0"
LAST = f"{INNER}/0009:05:00.0"
FUNCTION = Dev(f"{TO_FUNCTION}/0009:03:00.0", "15B3:2100", "80100")
GPU = gpu(f"{LAST}/0009:06:00.0", ids="10DE:2941")
NIC = nic("pci0000:00/0000:00:00.0/0000:01:00.0/0000:02:00.0/0000:03:00.0", ids="15B3:1023")
USUAL = 0x1D  # SrcValid, ReqRedir, CmpltRedir, UpstreamFwd
# As rdma_topo has them: xx110x1 to the function, xx101x1 to the GPU, xx111x0 at the root port.
RIGHT = {ROOT: 0x1C, TO_FUNCTION: 0x19, TO_GPU: 0x15, LAST: USUAL}
UPPER = "pci0000:00/0000:00:00.0"


def box(
    acs: dict[str, int] | None = None,
    *,
    size: int = 4096,
    switch: str = "15B3:197C",
    **more: object,
) -> Machine:
    known = {**RIGHT, UPPER: USUAL, **(acs or {})}
    bridges = [
        Dev(path, "10DE:22B1", config=config(port=4, acs=known[path], size=size))
        for path in (ROOT, UPPER)
    ]
    for path, port in ((SWITCH, 5), (TO_FUNCTION, 6), (TO_GPU, 6), (INNER, 5), (LAST, 6)):
        raw = config(port=port, acs=known.get(path), size=size)
        bridges.append(Dev(path, switch, config=raw))
    return machine({**BARE, **sysfs([FUNCTION, GPU, NIC, *bridges], nodes="0"), **more})


def judge(check: str, made: Machine) -> tuple[Finding, ...]:
    found = judge_all(check, made, goal=Goal.RDMA)
    assert not any("setpci" in line for one in found for line in one.remedy)
    return found


def test_the_bits_that_rdma_topo_sets_are_right() -> None:
    (found,) = judge("acs", box())
    assert (found.verdict, found.found) == (Verdict.OK, "5 ports as rdma_topo requires")
    assert "setpci" in found.disagree


@pytest.mark.parametrize("path", [*RIGHT, UPPER])
@pytest.mark.parametrize("bits", [0x00, 0x1F ^ 0x02 ^ 0x01])
def test_a_port_with_other_bits_is_named_with_what_it_needs(path: str, bits: int) -> None:
    if bits == RIGHT.get(path):
        bits = USUAL
    (found,) = judge("acs", box({path: bits}))
    assert (found.verdict, found.subject) == (Verdict.WARN, path.rpartition("/")[2])
    assert len(found.needed) <= 45
    assert found.remedy[0] == "sudo rdma_topo check"
    assert found.remedy[-2] == "sudo rdma_topo write-grub-acs"


def test_what_each_port_needs_stands_in_lspcis_words() -> None:
    (found,) = judge("acs", box({TO_GPU: 0}))
    assert found.needed == "SrcValid+ ReqRedir+ CmpltRedir- UpstreamFwd+"
    (found,) = judge("acs", box({TO_FUNCTION: 0}))
    assert found.needed == "SrcValid+ ReqRedir- CmpltRedir+ UpstreamFwd+"


def test_without_root_rdma_topo_tells() -> None:
    (found,) = judge("acs", box(size=64))
    assert (found.verdict, found.found) == (Verdict.UNKNOWN, "needs root")
    assert found.remedy == ("sudo rdma_topo check",)


@pytest.mark.parametrize("check", ["acs", "iommu"])
def test_in_a_tree_that_rdma_topo_does_not_describe_it_alone_may_tell(check: str) -> None:
    (found,) = judge(check, box(switch="1000:C030"))
    assert found.verdict is Verdict.UNKNOWN
    assert found.remedy == ("sudo rdma_topo check",)


@pytest.mark.parametrize(
    "where",
    [f"{SWITCH}/0009:07:00.0", "pci0004:00/0004:00:00.0/0004:01:00.0/0004:02:00.0/0004:03:00.0"],
)
def test_a_function_elsewhere_has_no_place(where: str) -> None:
    stray = FUNCTION._replace(path=where)
    made = machine({**BARE, **sysfs([stray, GPU, NIC])})
    assert data_direct.placements(made) is None


def groups(function: str | None, gpu_group: str | None, **more: object) -> Finding:
    names = {FUNCTION.address: function, GPU.address: gpu_group}
    links = {
        f"link {FOLDER}/{at}/iommu_group": f"/sys/kernel/iommu_groups/{number}"
        for at, number in names.items()
        if number is not None
    }
    (found,) = judge("iommu", box(**links, **more))
    return found


def test_function_and_gpu_in_one_group_are_right() -> None:
    found = groups("9", "9")
    assert (found.verdict, found.found) == (Verdict.OK, "both in group 9")


@pytest.mark.parametrize(("function", "other"), [("9", "8"), (None, "8"), (None, None)])
def test_groups_that_differ_are_a_warning_unless_the_driver_does_not_test(
    function: str | None, other: str | None
) -> None:
    found = groups(function, other)
    assert found.verdict is Verdict.WARN
    assert found.remedy[0] == "sudo rdma_topo check"
    params = {"text /proc/driver/nvidia/params": "GrdmaPciTopoCheckOverride: 1\n"}
    assert groups(function, other, **params).verdict is Verdict.OK
