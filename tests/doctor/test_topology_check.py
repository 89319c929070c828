# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of a machine's topology."""

from __future__ import annotations

import pytest
from support.doctor.machines import judge as judge_all
from support.doctor.machines import machine
from support.doctor.pci import BARE, GUEST, Dev, dpu, gpu, nic, sysfs

from dgkit.doctor import Finding, Goal, Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts import pairs
from dgkit.doctor.facts.topology import Near
from dgkit.doctor.machine import Machine

SWITCH = "pci0000:16/0000:16:01.0/0000:17:00.0"
GPU = gpu(f"{SWITCH}/0000:18:00.0/0000:19:00.0")
PLACES = {
    "PIX": f"{SWITCH}/0000:18:01.0/0000:1a:00.0",
    "PXB": f"{SWITCH}/0000:18:01.0/0000:1a:00.0/0000:1b:00.0/0000:1c:00.0",
    "PHB": "pci0000:16/0000:16:02.0/0000:1d:00.0",
    "NODE": "pci0000:40/0000:40:02.0/0000:41:00.0",
    "SYS": "pci0000:80/0000:80:02.0/0000:81:00.0",
}


def judge(check: str, box: Machine, goal: Goal = Goal.ARM_DMA) -> tuple[Finding, ...]:
    """Of this check alone: `topology` is the name of a family, too."""
    return tuple(one for one in judge_all(check, box, goal=goal) if one.check == check)


def box(*devices: Dev, nodes: str = "0-1", **more: object) -> Machine:
    return machine({**BARE, **sysfs(devices, nodes=nodes), **more})


def placed(near: str, numa: int | None = None, **more: object) -> Machine:
    where = numa if numa is not None else int(near == "SYS")
    return box(GPU, dpu(PLACES[near], where), **more)


def said(found: Finding) -> tuple[Verdict, str]:
    return found.verdict, found.found.partition(":")[0]


@pytest.mark.parametrize(
    ("near", "verdict"),
    [
        ("PIX", Verdict.OK),
        ("PXB", Verdict.OK),
        ("PHB", Verdict.OK),
        ("NODE", Verdict.OK),
        ("SYS", Verdict.WARN),
    ],
)
@pytest.mark.parametrize("goal", [Goal.ARM_DMA, Goal.RDMA, Goal.GPUNETIO])
def test_a_pair_is_judged_by_its_class(near: str, verdict: Verdict, goal: Goal) -> None:
    (found,) = judge("topology", placed(near), goal=goal)
    slow = near == "SYS" and goal is not Goal.ARM_DMA  # known to work, but for the first QPI
    assert said(found) == (Verdict.OK if slow else verdict, near)
    assert found.subject == f"{GPU.address} and BlueField-3 {PLACES[near][-12:]}"
    assert found.sources


def test_two_far_apart_are_told_what_the_documents_say_of_it() -> None:
    (found,) = judge("topology", placed("SYS"))
    for document in ("GPUNetIO guide", "GPUDirect RDMA guide", "P2PDMA document"):
        assert document in found.disagree
    assert any("Move" in line for line in found.remedy)
    assert judge("topology", placed("PIX"))[0].disagree == ""


SPARK = {"text /sys/class/dmi/id/product_name": "NVIDIA_DGX_Spark\n"}


@pytest.mark.parametrize("check", ["topology", "acs"])
@pytest.mark.parametrize(
    "more", [SPARK, {"text /proc/device-tree/model": "NVIDIA Jetson AGX Orin\0"}]
)
def test_where_cpu_and_gpu_share_their_memory_no_bytes_go_between_gpu_and_nic(
    check: str, more: dict[str, object]
) -> None:
    (found,) = judge(check, placed("NODE", **more))
    assert (found.verdict, found.found[:12]) == (Verdict.NOT_APPLICABLE, "no GPUDirect")


def named_by_smi(name: str) -> dict[str, object]:
    log = "==============NVSMI LOG==============\n\n"
    return {"run nvidia-smi -q": f"{log}GPU 0000{GPU.address}\n    Product Name : {name}\n"}


@pytest.mark.parametrize(
    ("near", "verdict"), [("PHB", Verdict.OK), ("NODE", Verdict.OK), ("SYS", Verdict.WARN)]
)
def test_a_gpu_that_is_coherent_with_its_cpu_is_reached_by_c2c(near: str, verdict: Verdict) -> None:
    (found,) = judge("topology", placed(near, **named_by_smi("NVIDIA GH200 480GB")), Goal.RDMA)
    assert found.verdict is verdict
    assert ("NVLink-C2C" in found.found) is (near != "PHB")
    assert not any("slot" in line for line in found.remedy)


PARAMS = "text /proc/driver/nvidia/params"


@pytest.mark.parametrize(
    ("value", "said"),
    [("", "considers unsuitable"), ("0", "considers unsuitable"), ("1", "Override=1")],
)
@pytest.mark.parametrize("near", ["PHB", "NODE", "SYS"])
def test_two_that_no_switch_joins_are_told_of_the_drivers_own_test(
    near: str, value: str, said: str
) -> None:
    params = {PARAMS: f"EnableMSI: 1\nGrdmaPciTopoCheckOverride: {value}\n"} if value else {}
    (found,) = judge("topology", placed(near, **params))
    assert said in found.why


def test_a_driver_that_was_told_to_refuse_is_a_warning() -> None:
    found = judge("topology", placed("PIX", **{PARAMS: "GrdmaPciTopoCheckOverride: 2\n"}))
    assert [one.verdict for one in found] == [Verdict.WARN, Verdict.OK]
    assert found[0].found == "GrdmaPciTopoCheckOverride is 2"


@pytest.mark.parametrize("kind", ["20000", "80100"])
@pytest.mark.parametrize(
    ("nic_id", "where", "verdict"),
    [
        ("15B3:1023", "PIX", Verdict.OK),
        ("15B3:1023", "SYS", Verdict.WARN),
    ],
)
def test_a_data_direct_function_brings_a_far_connectx_8_near(
    nic_id: str, where: str, verdict: Verdict, kind: str
) -> None:
    side = Dev(PLACES[where], "15B3:2100", kind, int(where == "SYS"))
    made = box(GPU, nic(PLACES["NODE"], ids=nic_id), side)
    (found,) = judge("topology", made, goal=Goal.RDMA)
    assert found.verdict is Verdict.OK  # NODE without it, too
    assert ("Data Direct" in found.found) is (verdict is Verdict.OK)


@pytest.mark.parametrize("near", list(Near))
def test_the_classes_are_said_in_a_cells_width(near: Near) -> None:
    assert len(f"{near}: {near.text}") <= 45


def test_without_numa_nodes_the_class_is_not_told() -> None:
    (found,) = judge("topology", placed("NODE", -1))
    assert found.verdict is Verdict.UNKNOWN
    assert "0000:41:00.0" in found.why


def test_a_guest_is_not_believed() -> None:
    guest = machine({**sysfs([GPU, dpu(PLACES["PIX"])]), **GUEST})
    (found,) = judge("topology", guest)
    assert found.verdict is Verdict.NOT_APPLICABLE
    assert "hypervisor" in found.why


@pytest.mark.parametrize("check", ["topology", "acs", "link", "numa"])
def test_without_a_pci_tree_nothing_can_be_told(check: str) -> None:
    denied = {"names /sys/bus/pci/devices": Reading(fault="denied", why="root alone")}
    (found,) = judge(check, machine({**BARE, **denied}))
    assert found.verdict is Verdict.UNKNOWN
    assert "Root alone." in found.why


@pytest.mark.parametrize("check", ["topology", "topology-nvidia-smi", "acs", "numa", "link"])
def test_a_machine_with_no_gpu_and_no_nic_is_not_asked(check: str) -> None:
    (found,) = judge(check, box(Dev("pci0000:00/0000:00:02.0", "8086:9A49", "30000")))
    assert found.verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("devices", [[GPU], [dpu(PLACES["PIX"])]])
@pytest.mark.parametrize("check", ["topology", "acs"])
def test_one_device_makes_no_pair(check: str, devices: list[Dev]) -> None:
    (found,) = judge(check, box(*devices))
    assert found.verdict is Verdict.NOT_APPLICABLE


def test_a_nic_that_knows_no_rdma_is_no_partner() -> None:
    intel = nic(PLACES["PIX"], ids="8086:1593")
    (found,) = judge("topology", box(GPU, intel), goal=Goal.RDMA)
    assert found.verdict is Verdict.NOT_APPLICABLE
    able = {
        "names /sys/class/infiniband": ["irdma0"],
        "link /sys/class/infiniband/irdma0/device": f"/sys/devices/{intel.path}",
    }
    names = {"run lspci -D -nn": f"{intel.address} Ethernet controller [0200]: E810 [8086:1593]\n"}
    for more, name in ((names, "E810"), ({}, "Intel 1593")):
        (found,) = judge("topology", box(GPU, intel, **able, **more), goal=Goal.RDMA)
        assert found.verdict is Verdict.OK
        assert found.subject.endswith(f" and {name} {intel.address}")


def wide() -> list[Dev]:
    """Eight GPUs, each with a NIC below its switch, and two NICs elsewhere."""
    devices = []
    for at in range(8):
        domain, numa = f"{0x10 * (at + 1):02x}", at // 4
        switch = f"pci0000:{domain}/0000:{domain}:01.0/0000:{domain[0]}1:00.0"
        devices.append(gpu(f"{switch}/0000:{domain[0]}2:00.0/0000:{domain[0]}3:00.0", numa))
        devices.append(nic(f"{switch}/0000:{domain[0]}2:01.0/0000:{domain[0]}4:00.0", numa))
    devices += [nic(f"pci0000:a{at}/0000:a{at}:01.0/0000:b{at}:00.0", at) for at in range(2)]
    return devices


def test_on_a_wide_machine_each_gpu_is_told_its_nearest_nic() -> None:
    found = judge("topology", box(*wide()), goal=Goal.RDMA)
    assert len(found) == 8
    assert {said(one) for one in found} == {(Verdict.OK, "PIX")}
    for one in found:
        ours, _, theirs = one.subject.partition(" and ")
        assert ours[:6] == theirs.split()[-1][:6]


def test_gpus_that_are_as_near_to_several_nics_share_them_out() -> None:
    devices = [gpu(f"pci0000:10/0000:10:0{at}.0/0000:1{at}:00.0") for at in range(1, 3)]
    devices += [nic(f"pci0000:10/0000:10:0{at}.0/0000:1{at}:00.0") for at in range(3, 5)]
    found = pairs.pairs(box(*devices), Goal.RDMA)
    assert [one.peer.address for one in found] == ["0000:13:00.0", "0000:14:00.0"]


def test_pairs_are_worked_out_once_for_all_checks() -> None:
    made = box(*wide())
    assert pairs.pairs(made, Goal.RDMA) is pairs.pairs(made, Goal.RDMA)
    assert len(pairs.pairs(made, Goal.ARM_DMA)) > len(pairs.pairs(made, Goal.RDMA))


def test_a_gpu_far_from_any_nic_is_said_and_no_warning_where_another_is_near() -> None:
    far = gpu("pci0000:90/0000:90:01.0/0000:91:00.0", 1)
    found = judge("topology", box(GPU, nic(PLACES["PIX"]), far), goal=Goal.RDMA)
    assert {said(one) for one in found} == {(Verdict.OK, "PIX"), (Verdict.OK, "SYS")}
    (alone,) = judge("topology", box(GPU, nic(PLACES["SYS"], 1)), goal=Goal.RDMA)
    assert said(alone) == (Verdict.OK, "SYS")


@pytest.mark.parametrize(
    ("model", "verdict"),
    [
        ("Intel(R) Xeon(R) CPU E5-2670 0 @ 2.60GHz", Verdict.WARN),
        ("Intel(R) Xeon(R) CPU E5-2680 v2 @ 2.80GHz", Verdict.WARN),
        ("Intel(R) Xeon(R) CPU E5-2690 v4 @ 2.60GHz", Verdict.OK),
        ("AMD EPYC 7763 64-Core Processor", Verdict.OK),
    ],
)
def test_between_sockets_the_first_qpi_is_slow(model: str, verdict: Verdict) -> None:
    cpu = {"text /proc/cpuinfo": f"model name\t: {model}\nflags\t\t: fpu\n"}
    (found,) = judge("topology", placed("SYS", **cpu), goal=Goal.RDMA)
    assert found.verdict is verdict


def test_for_the_arm_cores_each_dpu_is_told_its_nearest_gpu() -> None:
    devices = [GPU, dpu(PLACES["PIX"]), dpu(PLACES["SYS"], 1), nic(PLACES["PHB"])]
    found = judge("topology", box(*devices), goal=Goal.ARM_DMA)
    assert {said(one) for one in found} == {(Verdict.OK, "PIX"), (Verdict.WARN, "SYS")}
    assert [said(one) for one in judge("topology", box(*devices), goal=Goal.RDMA)] == [
        (Verdict.OK, "PIX")
    ]


def test_ports_of_one_card_are_one_partner_and_virtual_functions_none() -> None:
    card = PLACES["PIX"][:-1]
    links = {"physfn": f"/sys/devices/{card}0"}
    virtual = [f"{card}2", f"{card[:-3]}01.0"]  # the ninth function of a card has the next slot
    devices = [nic(f"{card}0"), nic(f"{card}1")]
    devices += [nic(one, ids="15B3:101E", links=links) for one in virtual]
    assert len(pairs.peers(box(GPU, *devices), Goal.RDMA)) == 1


def test_a_virtual_function_alone_is_a_partner() -> None:
    """As in a container or a virtual machine that was given one."""
    virtual = nic(PLACES["PIX"], ids="15B3:101E", links={"physfn": "/sys/devices/x/0000:99:00.0"})
    assert len(pairs.peers(box(GPU, virtual), Goal.RDMA)) == 1


MATRIX = "\tGPU0\tNIC0\tCPU Affinity\nGPU0\t X \t{0}\t0-23\nNIC0\t{0}\t X \t\n\nNIC Legend:\n\n"


def with_smi(near: str, smi: str) -> Machine:
    readings = {
        "run nvidia-smi -q": f"==============NVSMI LOG==============\n\nGPU 0000{GPU.address}\n"
        "    Product Name : NVIDIA H100\n",
        "run nvidia-smi topo -m": f"{MATRIX.format(smi)}  NIC0: mlx5_0\n",
        "names /sys/class/infiniband": ["mlx5_0"],
        "link /sys/class/infiniband/mlx5_0/device": f"/sys/devices/{PLACES[near]}",
    }
    return placed(near, **readings)


@pytest.mark.parametrize("near", PLACES)
def test_nvidia_smi_that_says_the_same_is_fine(near: str) -> None:
    (found,) = judge("topology-nvidia-smi", with_smi(near, near))
    assert (found.verdict, found.found) == (Verdict.OK, "the same for 1 pair")


def test_nvidia_smi_that_says_otherwise_is_told_with_the_pair() -> None:
    (found,) = judge("topology-nvidia-smi", with_smi("PHB", "SYS"))
    assert found.verdict is Verdict.WARN
    assert "SYS, in sysfs PHB" in found.why


def test_a_path_that_is_not_sure_is_not_compared() -> None:
    made = with_smi("NODE", "PHB")
    readings = made.read.snapshot.readings  # type: ignore[attr-defined]
    for address in ("0000:40:02.0", "0000:41:00.0"):
        readings[f"text /sys/bus/pci/devices/{address}/numa_node"] = Reading(text="-1\n")
    (found,) = judge("topology-nvidia-smi", made)
    assert found.verdict is Verdict.OK


@pytest.mark.parametrize(
    ("reading", "verdict"),
    [
        (Reading(fault="absent", why="there is no command"), Verdict.NOT_APPLICABLE),
        (Reading(fault="late", why="no answer"), Verdict.UNKNOWN),
        (Reading(text="Failed to initialize NVML\n", code=9), Verdict.UNKNOWN),
        (Reading(text="nothing of use"), Verdict.UNKNOWN),
        (Reading(text="\tGPU0\tCPU Affinity\nGPU0\t X \t0-1\n"), Verdict.NOT_APPLICABLE),
    ],
)
def test_without_a_matrix_there_is_nothing_to_compare(reading: Reading, verdict: Verdict) -> None:
    (found,) = judge("topology-nvidia-smi", placed("PIX", **{"run nvidia-smi topo -m": reading}))
    assert found.verdict is verdict
