# SPDX-License-Identifier: Apache-2.0
"""The PCI tree, read from sysfs of many kinds of machines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.machines import machine
from support.doctor.pci import FOLDER, Dev, config, dpu, gpu, nic, sysfs

from dgkit.doctor.collect.reader import Fault, Reading
from dgkit.doctor.facts import pci
from dgkit.doctor.facts.pci import PciTree

# The converged card of the GPUNetIO guide (lspci -tvvv there), with a root port of its own.
CARD = "pci0000:b0/0000:b0:02.0/0000:b1:00.0"
CONVERGED = [
    dpu(f"{CARD}/0000:b2:00.0/0000:b3:00.0", 1, "15B3:A2D6"),
    dpu(f"{CARD}/0000:b2:00.0/0000:b3:00.1", 1, "15B3:A2D6"),
    Dev(f"{CARD}/0000:b2:00.0/0000:b3:00.2", "15B3:C2D3", "80100", 1),
    gpu(f"{CARD}/0000:b2:01.0/0000:b4:00.0/0000:b5:08.0/0000:b6:00.0", 1, "10DE:20B8"),
]


def tree(readings: dict[str, object]) -> PciTree:
    return machine(readings).know(pci.tree)


def test_the_converged_card_of_the_guide_is_read_whole() -> None:
    found = tree(sysfs(CONVERGED))
    assert [one.address for one in found.gpus] == ["0000:b6:00.0"]
    assert [one.bluefield for one in found.bluefields] == ["BlueField-2"] * 2
    assert found.devices["0000:b3:00.2"].management == "BlueField-2"
    assert found.parent("0000:b6:00.0") == "0000:b5:08.0"
    assert found.children("0000:b1:00.0") == ("0000:b2:00.0", "0000:b2:01.0")
    assert found.host_bridge("0000:b6:00.0") == "pci0000:b0"
    assert found.numa("0000:b6:00.0") == 1
    assert found.nodes == (0, 1)


def test_ports_are_told_by_their_place_where_config_space_is_not_to_be_read() -> None:
    found = tree(sysfs(CONVERGED))
    ports = {one: found.port(one) for one in found.devices}
    assert ports == {
        "0000:b0:02.0": "root port",
        "0000:b1:00.0": "upstream port",
        "0000:b2:00.0": "downstream port",
        "0000:b2:01.0": "downstream port",
        "0000:b4:00.0": "upstream port",
        "0000:b5:08.0": "downstream port",
        **dict.fromkeys(["0000:b3:00.0", "0000:b3:00.1", "0000:b3:00.2", "0000:b6:00.0"], ""),
    }


def test_what_the_pcie_capability_says_goes_before_the_place() -> None:
    bridge = Dev("pci0000:00/0000:00:1c.0/0000:01:00.0", config=config(port=7))
    card = nic("pci0000:00/0000:00:1c.0/0000:01:00.0/0000:02:00.0")
    assert tree(sysfs([bridge, card])).port("0000:01:00.0") == "bridge to PCI"


@pytest.mark.parametrize(
    ("device", "bluefield", "name"),
    [
        ("A2D2", "BlueField", "BlueField"),
        ("A2D6", "BlueField-2", "BlueField-2"),
        ("A2DC", "BlueField-3", "BlueField-3"),
        ("A2D9", "BlueField-3", "BlueField-3"),
        ("1021", "", "ConnectX-7"),
        ("101D", "", "ConnectX-6 Dx"),
        ("FFFF", "", "Mellanox ffff"),
    ],
)
def test_network_functions_are_known_by_their_numbers(
    device: str, bluefield: str, name: str
) -> None:
    found = tree(sysfs([nic("pci0000:00/0000:00:01.0/0000:01:00.0", ids=f"15B3:{device}")]))
    (one,) = found.nics
    assert (one.bluefield, one.name) == (bluefield, name)


def test_management_functions_are_no_nics() -> None:
    parent = "pci0000:00/0000:00:01.0"
    devices = [
        Dev(f"{parent}/0000:01:00.{at}", f"15B3:{device}", "80100")
        for at, device in enumerate(["C2D2", "C2D3", "C2D5"])
    ]
    found = tree(sysfs(devices))
    assert found.nics == ()
    told = [one.management for one in found.devices.values() if one.management]
    assert told == ["BlueField", "BlueField-2", "BlueField-3"]
    assert found.devices["0000:01:00.2"].name == "BlueField-3 management"


def test_a_vmd_makes_a_domain_and_a_host_bridge_of_its_own() -> None:
    below = "pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0"
    found = tree(sysfs([nic(below), Dev("pci0000:00/0000:00:0e.0", "8086:467F", "10400")]))
    assert found.host_bridge("10000:e1:00.0") == "pci10000:e0"
    assert found.port("10000:e0:06.0") == "root port"
    assert found.above("10000:e1:00.0")[:2] == ("pci0000:00", "0000:00:0e.0")


@pytest.mark.parametrize(
    "prefix",
    [
        "/sys/devices",
        "/sys/devices/platform/40000000.pcie",
        "/sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00",
    ],
)
def test_host_bridges_may_hang_on_anything(prefix: str) -> None:
    """A platform device (device tree), or Hyper-V's bus, as well as nothing (ACPI)."""
    found = tree(sysfs([gpu("pci000f:00/000f:00:00.0/000f:01:00.0")], prefix=prefix))
    assert found.gpus[0].path == ("pci000f:00", "000f:00:00.0", "000f:01:00.0")


def test_each_root_port_may_have_a_domain_of_its_own() -> None:
    """As on Grace and DGX Spark."""
    devices = [
        gpu("pci000f:00/000f:00:00.0/000f:01:00.0", ids="10DE:2E12"),
        nic("pci0000:00/0000:00:00.0/0000:01:00.0"),
        nic("pci0002:00/0002:00:00.0/0002:01:00.0"),
    ]
    found = tree(sysfs(devices, nodes="0"))
    assert {found.host_bridge(one.address) for one in found.nics} == {"pci0000:00", "pci0002:00"}
    assert found.port("000f:00:00.0") == "root port"


def test_virtual_functions_name_the_function_they_belong_to() -> None:
    parent = "pci0000:16/0000:16:01.0"
    owner = nic(f"{parent}/0000:17:00.0")
    virtual = nic(
        f"{parent}/0000:17:00.2",
        ids="15B3:101E",
        links={"physfn": f"/sys/devices/{parent}/0000:17:00.0"},
    )
    found = tree(sysfs([owner, virtual]))
    assert found.devices["0000:17:00.2"].physfn == "0000:17:00.0"
    assert found.devices["0000:17:00.0"].physfn == ""


def test_bridges_that_a_container_hides_are_known_from_the_paths() -> None:
    readings = sysfs(CONVERGED)
    shown = ["0000:b3:00.0", "0000:b6:00.0"]
    readings[f"names {FOLDER}"] = shown
    found = tree(readings)
    assert sorted(found.devices) == shown
    assert found.port("0000:b1:00.0") == "upstream port"
    assert found.port("0000:b2:01.0") == "downstream port"
    assert found.parent("0000:b2:01.0") == "0000:b1:00.0"


def test_without_uevent_the_single_files_are_read() -> None:
    files = {"vendor": "0x10de\n", "device": "0x2330\n", "class": "0x030200\n"}
    readings = sysfs([gpu("pci0000:00/0000:00:01.0/0000:01:00.0", files=files)])
    readings[f"text {FOLDER}/0000:01:00.0/uevent"] = Reading(fault="denied", why="no")
    assert [one.device for one in tree(readings).gpus] == [0x2330]


@pytest.mark.parametrize("numa", ["", "-1", "-2147483648", "strange", "0x1"])
def test_an_odd_numa_node_is_none(numa: str) -> None:
    readings = sysfs([gpu("pci0000:00/0000:00:01.0", numa=-1)])
    readings[f"text {FOLDER}/0000:00:01.0/numa_node"] = numa
    assert tree(readings).numa("0000:00:01.0") == -1


def test_a_device_takes_the_numa_node_of_a_bridge_above_it() -> None:
    bridge = Dev("pci0000:80/0000:80:01.0", numa=1)
    found = tree(sysfs([bridge, gpu("pci0000:80/0000:80:01.0/0000:81:00.0", -1)]))
    assert found.numa("0000:81:00.0") == 1


def test_a_path_that_names_a_bridge_twice_is_no_path() -> None:
    readings = sysfs([gpu("pci0000:00/0000:00:01.0/0000:01:00.0")])
    twice = "/sys/devices/pci0000:00/0000:00:01.0/0000:00:01.0/0000:01:00.0"
    readings[f"link {FOLDER}/0000:01:00.0"] = twice
    assert tree(readings).above("0000:01:00.0") == ()


def test_a_machine_without_pci_says_why() -> None:
    found = tree({})
    assert (found.devices, found.gpus) == ({}, ())
    assert FOLDER in found.why


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("00000000:B3:00.0", "0000:b3:00.0"),
        ("b3:00.0", "0000:b3:00.0"),
        ("0000:b3:00.0", "0000:b3:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
        (" 000F:01:00.0\n", "000f:01:00.0"),
        ("b3:00", ""),
        ("", ""),
        ("pci0000:b0", ""),
    ],
)
def test_addresses_are_one_however_a_tool_writes_them(text: str, wanted: str) -> None:
    assert pci.address(text) == wanted


@pytest.mark.parametrize("fault", ["denied", "late", "failed", "unrecorded"])
def test_a_device_whose_files_give_no_answer_is_not_taken_for_none(fault: Fault) -> None:
    readings = sysfs(CONVERGED)
    lost = Reading(fault=fault, why="no answer within 3 s")
    files = ("uevent", "vendor", "device", "class")
    readings |= {f"text {FOLDER}/0000:b6:00.0/{file}": lost for file in files}
    assert tree(readings).why == "no answer within 3 s"
    gone = {f"text {FOLDER}/0000:b6:00.0/{file}": Reading(fault="absent") for file in files}
    assert tree({**readings, **gone}).why == ""


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=20), st.text(max_size=60))
def test_no_text_in_sysfs_raises(uevent: str, link: str, numa: str, nodes: str) -> None:
    readings = sysfs([gpu("pci0000:00/0000:00:01.0")], nodes=nodes)
    folder = f"{FOLDER}/0000:00:01.0"
    readings |= {f"text {folder}/uevent": uevent, f"link {folder}": link}
    readings |= {f"text {folder}/numa_node": numa}
    readings[f"names {FOLDER}"] = ["0000:00:01.0", nodes or "x", "..", "0000:00:02.0"]
    found = tree(readings)
    for one in found.devices:
        found.port(one), found.numa(one), found.host_bridge(one)


@given(st.sets(st.integers(0, 300)))
def test_lists_of_the_kernel_are_read_as_it_writes_them(wanted: set[int]) -> None:
    runs: list[list[int]] = []
    for one in sorted(wanted):
        if runs and runs[-1][-1] == one - 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    text = ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    assert pci.parse_list(f"{text}\n") == tuple(sorted(wanted))
