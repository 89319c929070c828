# SPDX-License-Identifier: Apache-2.0
"""RDMA devices: what sysfs says of them, and what checks make of it."""

from __future__ import annotations

import pytest
from support.doctor.bluefield import AT, BF3, DPU, cards, settings
from support.doctor.bluefield import NIC as NIC_MODE
from support.doctor.machines import UNAME, judge, machine

from dgkit.doctor import Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts import rdma
from dgkit.doctor.finding import Finding
from dgkit.doctor.goals import Goal

CLASS = "/sys/class/infiniband"


def device(
    name: str = "mlx5_0",
    address: str = "0000:9f:00.0",
    *,
    state: str = "4: ACTIVE",
    layer: str = "Ethernet",
    firmware: str = "32.41.1000",
    model: str = "MT41692",
    parent: str = "",
) -> dict[str, object]:
    """The readings of one device with one port; with no address, one in software."""
    folder = f"{CLASS}/{name}"
    said: dict[str, object] = {
        f"names {CLASS}": [name],
        f"names {folder}/ports": ["1"],
        f"text {folder}/ports/1/link_layer": f"{layer}\n",
        f"text {folder}/ports/1/state": f"{state}\n",
        f"text {folder}/ports/1/phys_state": "5: LinkUp\n",
        f"text {folder}/ports/1/rate": "200 Gb/sec (4X HDR)\n",
    }
    if parent:
        return {**said, f"text {folder}/parent": f"{parent}\n"}
    return {
        **said,
        f"text {folder}/fw_ver": f"{firmware}\n",
        f"text {folder}/board_id": "MT_0000000884\n",
        f"text {folder}/hca_type": f"{model}\n",
        f"link {folder}/device": f"/sys/devices/pci0000:9e/0000:9e:01.0/{address}",
        f"names {folder}/device/net": ["ens6f0np0"],
    }


def test_a_device_is_read_with_its_pci_function_board_and_port() -> None:
    (found,) = machine(device()).know(rdma.devices).devices
    port = rdma.RdmaPort(1, "Ethernet", "ACTIVE", "LinkUp", "200 Gb/sec (4X HDR)")
    assert found == rdma.RdmaDevice(
        name="mlx5_0", address="0000:9f:00.0", firmware="32.41.1000", board="MT_0000000884",
        model="MT41692", nets=("ens6f0np0",), ports=(port,),
    )  # fmt: skip
    assert found.active
    assert not found.software


def test_a_device_in_software_has_a_parent_and_no_pci_function() -> None:
    (found,) = machine(device("rxe0", parent="eth0")).know(rdma.devices).devices
    assert found.software
    assert found.parent == "eth0"


def test_a_kernel_without_rdma_has_none_and_a_denied_folder_says_why() -> None:
    assert machine({}).know(rdma.devices) == rdma.RdmaDevices()
    denied = Reading(fault="denied", why="root alone")
    assert machine({f"names {CLASS}": denied}).know(rdma.devices).why == "root alone"


NIC: dict[str, object] = {
    "names /sys/bus/pci/devices": ["0000:9f:00.0"],
    "text /sys/bus/pci/devices/0000:9f:00.0/uevent": "PCI_CLASS=20000\nPCI_ID=15B3:1021\n",
}


def one(check: str, *readings: dict[str, object], goal: Goal = Goal.RDMA) -> Finding:
    made = {key: value for part in readings for key, value in part.items()}
    (found,) = judge(check, machine(made), goal=goal)
    return found


@pytest.mark.parametrize(
    ("goal", "readings", "verdict"),
    [
        (Goal.RDMA, device(), Verdict.OK),
        (Goal.RDMA, device(state="1: DOWN"), Verdict.WARN),
        (Goal.GPUNETIO, device(state="1: DOWN"), Verdict.WARN),
        (Goal.ARM_DMA, device(state="1: DOWN"), Verdict.OK),
        (Goal.RDMA, device("rxe0", parent="eth0"), Verdict.WARN),
        (Goal.ARM_DMA, device("rxe0", parent="eth0"), Verdict.OK),
        (Goal.RDMA, {}, Verdict.FAIL),
        (Goal.ARM_DMA, {}, Verdict.NOT_APPLICABLE),
        (Goal.ARM_DMA, NIC, Verdict.FAIL),
        (Goal.RDMA, {f"names {CLASS}": Reading(fault="denied", why="no")}, Verdict.UNKNOWN),
    ],
)
def test_rdma_devices_are_judged_by_what_the_goal_needs_of_them(
    goal: Goal, readings: dict[str, object], verdict: Verdict
) -> None:
    assert one("rdma-devices", readings, goal=goal).verdict is verdict


def test_a_nic_without_an_rdma_device_lacks_its_module() -> None:
    assert one("rdma-devices", NIC).remedy == ("sudo modprobe mlx5_ib",)


def test_soft_roce_is_told_of_with_an_interface_that_is_there() -> None:
    nets = {"names /sys/class/net": ["br0", "docker0", "enp3s0", "lo"]}
    assert one("rdma-devices", nets).remedy[-1].endswith("rxe0 type rxe netdev enp3s0")
    assert "rxe" not in " ".join(one("rdma-devices").remedy)


@pytest.mark.parametrize("place", [{}, {"text /.dockerenv": ""}])
def test_without_a_nic_the_adapter_in_software_is_named(place: dict[str, object]) -> None:
    assert "`dgkit mlx5 run -- PROGRAM`" in one("rdma-devices", place).why
    assert "mlx5 run" not in one("rdma-devices", NIC).why  # this NIC lacks its driver only


def test_a_virtual_machine_has_its_nic_passed_through() -> None:
    guest = {"text /proc/cpuinfo": "flags\t\t: fpu hypervisor\n"}
    assert "through to this virtual machine" in one("rdma-devices", guest).remedy[0]


def test_an_infiniband_port_that_is_down_may_lack_its_subnet_manager() -> None:
    found = one("rdma-devices", device(state="2: INIT", layer="InfiniBand"))
    assert any("opensm" in line for line in found.remedy)
    assert found.found == "InfiniBand INIT"


def test_a_second_port_without_a_link_is_no_fault_where_the_first_has_one() -> None:
    second = device("mlx5_1", "0000:9f:00.1", state="1: DOWN")
    both = {**second, **device(), f"names {CLASS}": ["mlx5_0", "mlx5_1"]}
    verdicts = {found.verdict for found in judge("rdma-devices", machine(both), goal=Goal.RDMA)}
    assert verdicts == {Verdict.OK}


def test_a_device_that_libibverbs_does_not_list_cannot_be_used() -> None:
    none = Reading(said="No IB devices found\n", code=255)
    found = one("rdma-devices", device(), {"run ibv_devinfo": none})
    assert found.verdict is Verdict.FAIL
    assert found.remedy == ("sudo apt install ibverbs-providers",)
    seen = one("rdma-devices", device(), {"run ibv_devinfo": "hca_id:\tmlx5_0\n"})
    assert seen.verdict is Verdict.OK


def probed(takes: bool | None, errno: str = "", why: str = "") -> dict[str, object]:
    said = {"device": "mlx5_0", "symbol": True, "takes": takes, "errno": errno, "why": why}
    return {"probe rdma-dmabuf mlx5_0": said}


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (probed(True, "EBADF"), Verdict.OK),
        (probed(False, "EOPNOTSUPP"), Verdict.WARN),
        (probed(None, why="ibv_open_device: Permission denied"), Verdict.UNKNOWN),
        ({"probe rdma-dmabuf mlx5_0": Reading(fault="late", why="late")}, Verdict.UNKNOWN),
        ({"probe rdma-dmabuf mlx5_0": ["odd"]}, Verdict.UNKNOWN),
    ],
)
def test_a_device_takes_a_dma_buf_or_not(answer: dict[str, object], verdict: Verdict) -> None:
    assert one("rdma-dmabuf", device(), answer).verdict is verdict


def test_a_refusal_is_explained_by_the_kernel_the_library_or_the_kind_of_device() -> None:
    refused = probed(False, "EOPNOTSUPP")
    old = {"ask uname": {**UNAME, "release": "5.4.0-100-generic"}}
    assert "5.12" in one("rdma-dmabuf", device(), refused, old).why
    assert "rdma-core 34" in one("rdma-dmabuf", device(), refused).why
    soft = {"probe rdma-dmabuf rxe0": {"takes": False, "errno": "EOPNOTSUPP"}}
    found = one("rdma-dmabuf", device("rxe0", parent="eth0"), soft)
    assert found.verdict is Verdict.WARN
    assert "Soft-RoCE" in found.why


def test_devices_of_one_kind_share_an_answer() -> None:
    both = {
        **device("mlx5_1", "0000:9f:00.1"),
        **device(),
        **probed(True, "EBADF"),
        f"names {CLASS}": ["mlx5_0", "mlx5_1"],
    }
    assert one("rdma-dmabuf", both).subject == "mlx5_0, mlx5_1"


def test_without_rdma_devices_there_is_nothing_to_try() -> None:
    assert one("rdma-dmabuf").verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("modules", "says", "command"),
    [
        ("ib_core 1 0 - Live 0x0\n", "mlx5_core is not loaded", "sudo modprobe mlx5_ib"),
        ("mlx5_core 1 0 - Live 0x0\n", "mlx5_core is loaded", "sudo dmesg | grep mlx5"),
        (Reading(fault="denied", why="no"), "may not be loaded", "sudo modprobe mlx5_ib"),
    ],
)
def test_a_module_is_called_unloaded_only_where_the_list_lacks_it(
    modules: object, says: str, command: str
) -> None:
    found = one("rdma-devices", NIC, {"text /proc/modules": modules})
    assert says in found.why
    assert found.remedy == (command,)


def test_a_nic_of_the_older_driver_is_not_sent_to_the_newer_one() -> None:
    uevent = "PCI_CLASS=20000\nPCI_ID=15B3:1007\n"
    found = one(
        "rdma-devices",
        {**NIC, "text /sys/bus/pci/devices/0000:9f:00.0/uevent": uevent},
        {"text /proc/modules": "ib_core 1 0 - Live 0x0\n"},
    )
    assert "mlx4_core is not loaded" in found.why


def gids(*nets: str) -> dict[str, object]:
    """The readings of the GIDs of mlx5_0, each of an interface, and of an entry without one."""
    folder = f"{CLASS}/mlx5_0/ports/1/gid_attrs/ndevs"
    empty = Reading(fault="failed", why="Invalid argument")
    entries = {f"text {folder}/{index}": f"{net}\n" for index, net in enumerate(nets)}
    last = str(len(nets))
    names = [*map(str, range(len(nets))), last]
    return {**entries, f"text {folder}/{last}": empty, f"names {folder}": names}


@pytest.mark.parametrize(
    ("nets", "verdict", "says"),
    [
        (("ens6f0np0",), Verdict.OK, ""),
        (("eth7", "ens6f0np0"), Verdict.OK, ""),
        (("eth7",), Verdict.FAIL, "eth7, in another network namespace"),
        ((), Verdict.FAIL, "the port has no GID"),
    ],
)
def test_a_roce_port_needs_a_gid_of_this_network_namespace(
    nets: tuple[str, ...], verdict: Verdict, says: str
) -> None:
    here = {"names /sys/class/net": ["lo", "ens6f0np0"]}
    found = one("rdma-devices", device(), gids(*nets), here)
    assert found.verdict is verdict
    assert says in found.why


def test_gids_that_may_not_be_read_or_are_too_many_are_not_judged() -> None:
    here = {"names /sys/class/net": ["lo"]}
    folder = f"text {CLASS}/mlx5_0/ports/1/gid_attrs/ndevs"
    denied = {f"{folder}/0": Reading(fault="denied", why="no")}
    assert one("rdma-devices", device(), gids("eth7"), denied, here).verdict is Verdict.OK
    many = gids(*[f"eth{n}" for n in range(20)])
    assert one("rdma-devices", device(), many, here).verdict is Verdict.OK
    infiniband = device(layer="InfiniBand")
    assert one("rdma-devices", infiniband, gids("eth7"), here).verdict is Verdict.OK


def test_a_library_that_a_container_lacks_is_not_installed_on_the_host() -> None:
    none = {"run ibv_devinfo": Reading(said="No IB devices found\n", code=255)}
    found = one("rdma-devices", device(), none, {"text /.dockerenv": ""})
    assert (
        "# In the container's image, not on the host: apt install ibverbs-providers" in found.remedy
    )
    assert any("--device=/dev/infiniband" in line for line in found.remedy)
    ofed = {"run ofed_info -s": "MLNX_OFED_LINUX-24.10-0.7.0.0:\n"}
    assert "MLNX_OFED" in one("rdma-devices", device(), none, ofed).remedy[0]


DOCKER = {"text /.dockerenv": ""}
TWO: dict[str, object] = {
    **device("mlx5_1", "0000:9f:00.1"),
    **device(),
    f"names {CLASS}": ["mlx5_0", "mlx5_1"],
    "run ibv_devinfo": "hca_id:\tmlx5_0\n",
}


@pytest.mark.parametrize(
    ("verbs", "inside", "verdict"),
    [("1.8.28.0", DOCKER, Verdict.WARN), ("1.14.50.0", DOCKER, Verdict.OK),
     ("1.14.50.0", {}, Verdict.FAIL)],
)  # fmt: skip
def test_a_device_that_a_container_was_not_given_needs_no_library(
    verbs: str, inside: dict[str, object], verdict: Verdict
) -> None:
    path = f"/usr/lib/x86_64-linux-gnu/libibverbs.so.{verbs}"
    libraries = {"probe libraries": {"libibverbs.so.1": {"path": path, "why": ""}}}
    hidden = judge("rdma-devices", machine({**TWO, **inside, **libraries}), goal=Goal.RDMA)
    found = next(one for one in hidden if one.subject == "mlx5_1")
    assert found.verdict is verdict
    assert "providers" not in " ".join(found.remedy)


def test_devices_without_a_gid_here_are_left_out_where_another_has_one() -> None:
    other = {key.replace("mlx5_0", "mlx5_1"): value for key, value in gids("eth7").items()}
    listed = {"run ibv_devinfo": "hca_id:\tmlx5_0\n\nhca_id:\tmlx5_1\n"}
    here = {"names /sys/class/net": ["lo", "ens6f0np0"], **listed}
    known = judge(
        "rdma-devices", machine({**TWO, **gids("ens6f0np0"), **other, **here}), goal=Goal.RDMA
    )
    found = next(one for one in known if one.subject == "mlx5_1")
    assert found.verdict is Verdict.WARN
    assert found.remedy[0].startswith("export NCCL_IB_HCA==mlx5_0 UCX_NET_DEVICES=mlx5_0:1 ")


def test_the_management_device_of_planes_is_no_rdma_device() -> None:
    planes = {**device(), f"names {CLASS}": ["mlx5_0", "smi1"]}
    assert [one.name for one in machine(planes).know(rdma.devices).devices] == ["mlx5_0"]


BLUEFIELD: dict[str, object] = {
    **cards((AT, BF3)),
    **settings(DPU),
    "text /proc/modules": "mlx5_core 1 0 - Live 0x0\n",
    "names /dev": ["rshim0"],
}


def test_a_bluefield_without_a_driver_waits_for_its_arm_cores_in_dpu_mode_only() -> None:
    found = one("rdma-devices", BLUEFIELD)
    assert "waits until the Arm cores have started" in found.why
    assert found.remedy[2] == f"echo {AT} | sudo tee /sys/bus/pci/drivers/mlx5_core/bind"
    assert one("rdma-devices", BLUEFIELD, settings(NIC_MODE)).remedy == ("sudo dmesg | grep mlx5",)


def test_an_infiniband_port_at_an_ethernet_switch_has_the_wrong_type() -> None:
    down = device(address=AT, state="1: DOWN", layer="InfiniBand")
    both = {**cards((AT, BF3)), **settings(DPU, LINK_TYPE_P1=1, LINK_TYPE_P2=1), **down}
    change = f"# sudo mlxconfig -d {AT} --yes set LINK_TYPE_P1=2 LINK_TYPE_P2=2, and a power cycle"
    assert change in one("rdma-devices", both).remedy
    fixed = {**cards((AT, BF3)), **settings(DPU), **down}
    assert not any("mlxconfig" in line for line in one("rdma-devices", fixed).remedy)
