# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of ACS on the bridges between a GPU and a NIC."""

from __future__ import annotations

import pytest
from support.doctor.machines import judge, machine
from support.doctor.pci import BARE, GUEST, Dev, config, dpu, gpu, sysfs

from dgkit.doctor import Goal, Verdict
from dgkit.doctor.machine import Machine

ROOT = "pci0000:b0/0000:b0:02.0"
UP = f"{ROOT}/0000:b1:00.0"
LEFT, RIGHT = f"{UP}/0000:b2:00.0", f"{UP}/0000:b2:01.0"
DPU, GPU = dpu(f"{LEFT}/0000:b3:00.0"), gpu(f"{RIGHT}/0000:b4:00.0")
SRC_VALID, REDIRECT = 0x01, 0x1D  # what Linux sets with an IOMMU: SrcValid and three redirections


def box(left: int | None, right: int | None, size: int = 4096, **more: object) -> Machine:
    bridges = [
        Dev(UP, config=config(port=5, size=size)),
        Dev(LEFT, config=config(port=6, acs=left, size=size)),
        Dev(RIGHT, config=config(port=6, acs=right, size=size)),
    ]
    return machine({**BARE, **sysfs([DPU, GPU, *bridges]), **more})


def test_bridges_without_redirection_are_fine() -> None:
    found = judge("acs", box(0, SRC_VALID))
    assert {(one.verdict, one.subject, one.found) for one in found} == {
        (Verdict.OK, "0000:b1:00.0", "no ACS"),
        (Verdict.OK, "0000:b2:00.0", "all off"),
        (Verdict.OK, "0000:b2:01.0", "SrcValid+"),
    }


@pytest.mark.parametrize("goal", [Goal.GPUNETIO, Goal.RDMA, Goal.ARM_DMA])
def test_a_bridge_that_redirects_is_named_with_what_mends_it(goal: Goal) -> None:
    found = judge("acs", box(0, REDIRECT), goal=goal)[0]
    assert (found.verdict, found.subject) == (Verdict.WARN, "0000:b2:01.0")
    assert found.found == "SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+"
    assert "sudo setpci -s 0000:b2:01.0 ECAP_ACS+0x6.w=0000" in found.remedy
    assert "BIOS" in found.remedy[0]
    assert "virtual machines" in found.disagree


@pytest.mark.parametrize("bit", [0x04, 0x08, 0x20])
def test_each_bit_that_redirects_counts(bit: int) -> None:
    assert judge("acs", box(bit, 0))[0].verdict is Verdict.WARN


@pytest.mark.parametrize("bit", [0x00, 0x01, 0x02, 0x10, 0x40])
def test_a_bit_that_does_not_redirect_is_no_reason_to_worry(bit: int) -> None:
    assert {one.verdict for one in judge("acs", box(bit, 0))} == {Verdict.OK}


def test_bridges_that_are_alike_share_a_finding() -> None:
    found = judge("acs", box(REDIRECT, REDIRECT))
    assert found[0].subject == "0000:b2:01.0, 0000:b2:00.0"
    assert sum("setpci" in line for line in found[0].remedy) == 2


def test_for_good_the_addresses_stand_in_quotes_since_grub_ends_a_command_at_a_semicolon() -> None:
    (found, _) = judge("acs", box(REDIRECT, REDIRECT))
    line = r"""pci=disable_acs_redir=\"0000:b2:01.0;0000:b2:00.0\""' | sudo tee """
    assert line in found.remedy[-2]
    (found, _) = judge("acs", box(REDIRECT, REDIRECT, **{"text /etc/os-release": "ID=rhel\n"}))
    assert """--args='pci=disable_acs_redir="0000:b2:01.0;0000:b2:00.0"'""" in found.remedy[-2]


def test_without_root_nothing_is_told_but_how_to_ask() -> None:
    (found,) = judge("acs", box(REDIRECT, REDIRECT, size=64))
    assert (found.verdict, found.found) == (Verdict.UNKNOWN, "needs root")
    assert found.remedy[0] == 'sudo "$(command -v dgkit || echo .venv/bin/dgkit)" doctor acs'
    assert any("lspci" in line for line in found.remedy)


def test_root_ports_of_different_trees_never_fail() -> None:
    """The bytes pass the CPU in any case."""
    far = dpu("pci0000:80/0000:80:01.0/0000:81:00.0", 1)
    port = Dev("pci0000:80/0000:80:01.0", config=config(port=4, acs=REDIRECT))
    other = Dev(ROOT, config=config(port=4, acs=0))
    near = gpu(f"{ROOT}/0000:b4:00.0")
    made = machine({**BARE, **sysfs([far, port, other, near])})
    found = judge("acs", made, goal=Goal.GPUNETIO)
    assert [(one.verdict, one.subject) for one in found] == [
        (Verdict.WARN, "0000:80:01.0"),
        (Verdict.OK, "0000:b0:02.0"),
    ]


def test_a_bridge_on_a_near_and_on_a_far_path_counts_as_near() -> None:
    far = dpu("pci0000:80/0000:80:01.0/0000:81:00.0", 1)
    bridge = Dev(RIGHT, config=config(port=6, acs=REDIRECT))
    rest = [Dev(one, config=config(port=5)) for one in (UP, ROOT, LEFT, "pci0000:80/0000:80:01.0")]
    found = judge("acs", machine({**BARE, **sysfs([DPU, GPU, far, bridge, *rest])}))
    assert [one.subject for one in found] == [
        "0000:b2:01.0",
        "0000:b1:00.0, 0000:b2:00.0, 0000:b0:02.0, 0000:80:01.0",
    ]
    assert "switch could forward it" in found[0].why
    assert found[1].verdict is Verdict.OK


LSPCI = """\
0000:b1:00.0 PCI bridge: Mellanox Technologies Device 1978
\tCapabilities: [60] Express (v2) Upstream Port, MSI 00
0000:b2:00.0 PCI bridge: Mellanox Technologies Device 1978
\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-
0000:b2:01.0 PCI bridge: Mellanox Technologies Device 1978
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
"""


def test_what_lspci_says_counts_where_sysfs_has_no_config_space() -> None:
    made = machine({**BARE, **sysfs([DPU, GPU]), "run lspci -D -vvv": LSPCI})
    found = {one.subject: one.verdict for one in judge("acs", made)}
    assert found == {
        "0000:b1:00.0": Verdict.OK,
        "0000:b2:00.0": Verdict.OK,
        "0000:b2:01.0": Verdict.WARN,
    }


def test_in_a_container_root_is_of_use_outside_alone() -> None:
    (found,) = judge("acs", box(REDIRECT, 0, size=64, **{"text /.dockerenv": ""}))
    assert "outside the container" in found.remedy[0]


@pytest.mark.parametrize(
    "text", ["", LSPCI.replace("\t\tACSCtl", "\tCapabilities: <access denied>")]
)
def test_a_lspci_that_may_not_look_tells_nothing(text: str) -> None:
    made = machine({**BARE, **sysfs([DPU, GPU]), "run lspci -D -vvv": text})
    assert Verdict.UNKNOWN in {one.verdict for one in judge("acs", made)}


def test_a_guest_sees_bridges_that_do_not_count() -> None:
    (found,) = judge("acs", box(REDIRECT, 0, **GUEST))
    assert found.verdict is Verdict.NOT_APPLICABLE
    assert found.needed == "on the hypervisor: dgkit doctor acs"


def test_two_on_the_root_bus_have_no_bridge_between() -> None:
    made = machine(
        {**BARE, **sysfs([dpu("pci0000:00/0000:00:05.0"), gpu("pci0000:00/0000:00:06.0")])}
    )
    (found,) = judge("acs", made)
    assert found.verdict is Verdict.NOT_APPLICABLE
