"""RDMA devices: what sysfs says of them, and what checks make of it."""

from __future__ import annotations

from doctor_rig import machine

from dgkit.doctor.facts import rdma
from dgkit.doctor.reading import Reading

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
