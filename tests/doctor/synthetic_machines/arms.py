# SPDX-License-Identifier: Apache-2.0
"""The Arm side of a BlueField in DPU mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from doctor.synthetic_machines import network, probes, sysfs, system
from doctor.synthetic_machines.hosts import Host
from doctor.synthetic_machines.network import DPU_MODE
from doctor.synthetic_machines.system import System
from doctor.synthetic_machines.tree import Node, nodes

# Representors of the host's functions and of the Arm cores'.
_PORTS = {"p0": "p0", "p1": "p1", "pf0hpf": "c1pf0", "pf1hpf": "c1pf1", "en3f0pf0sf0": "pf0sf0"}


@dataclass(frozen=True)
class Arm:
    """`card`: bf2 or bf3. `image`: what /etc/mlnx-release says. `level`: what the host may do."""

    card: str
    release: str
    image: str
    doca: str
    verbs: str
    level: str = "PRIVILEGED"

    @property
    def number(self) -> int:
        """The generation."""
        return int(self.card[2])


def readings(arm: Arm) -> dict[str, object]:
    """What its cores show: a tree of its own, and the ports of its switch."""
    tree = nodes(
        f"""
pci0000:00 cpus=0-{7 if arm.number == 2 else 15}
  00.0 root-arm
    00.0 {arm.card}-up
      00.0 {arm.card}-down
        00.0 {arm.card} rdma=mlx5_0 net=p0 reps=pf0hpf,en3f0pf0sf0
        00.1 {arm.card} rdma=mlx5_1 net=p1 reps=pf1hpf
"""
    )
    host = Host("", driver=None, system=_system(arm), doca=arm.doca, verbs=arm.verbs)
    card = next(node for node in tree if "rdma" in node.words)
    found: dict[str, object] = {
        **sysfs.pci(tree),
        **sysfs.nodes_of_system(tree),
        **system.system(host.system),
        **network.network(tree),
        **probes.probes(host, tree),
        **network.settings(card, DPU_MODE),
        **network.privileges(card, arm.level),
        **board(arm.image, tree),
    }
    return found


def board(image: str, tree: Sequence[Node]) -> dict[str, object]:
    """What any Arm side shows: its image, the SoC's devices, the ports of its switch, tmfifo."""
    ports = [node.words for node in tree if "net" in node.words]
    nets = [name for port in ports for name in (port["net"], *port.get("reps", "").split(","))]
    made: dict[str, object] = {
        "text /etc/mlnx-release": f"{image}\n",
        "names /sys/bus/platform/devices": ["MLNXBF01:00", "MLNXBF22:00", "alarmtimer.0.auto"],
        "names /sys/class/net": sorted(["lo", "oob_net0", "tmfifo_net0", *filter(None, nets)]),
        "run ip -j addr show": network.addresses({"tmfifo_net0": "192.168.100.2/30"}),
    }
    return made | {
        f"text /sys/class/net/{net}/phys_port_name": f"{_PORTS[net]}\n"
        for net in nets
        if net in _PORTS
    }


def board_system(number: int) -> System:
    """Return the system of the Arm cores of a BlueField of this generation."""
    return System(
        machine="aarch64",
        cpus=8 if number == 2 else 16,
        cmdline="console=hvc0",
        distribution="ubuntu 22.04" if number == 2 else "ubuntu 24.04",
        product=("https://www.mellanox.com", f"BlueField-{number} DPU"),
        loaded=("mlx5_ib", "mlx5_core", "ib_uverbs", "ib_core", "mlxbf_tmfifo"),
    )


def _system(arm: Arm) -> System:
    page_size = 65536 if arm.release.endswith("64k") else 4096
    return replace(board_system(arm.number), release=arm.release, page_size=page_size)


_BF2 = Arm(
    "bf2",
    "5.15.0-1060-bluefield",
    "bf-bundle-2.9.1-40_24.11_ubuntu-22.04_prod",
    "2.9.1004",
    "1.14.54.0",
)
_BF3 = Arm(
    "bf3",
    "6.8.0-1013-bluefield-64k",
    "bf-bundle-3.2.1-34_25.11_ubuntu-24.04_64k_prod",
    "3.2.1025",
    "1.14.56.0",
)
_SOURCE = "NVIDIA BlueField BSP and DOCA documentation, the Arm side in DPU mode"

ARMS = {
    "bf2-arm": (_SOURCE, _BF2),
    "bf3-arm": (_SOURCE, _BF3),
    "bf3-arm-zero-trust": (
        "NVIDIA BlueField modes of operation, zero-trust mode, mlxprivhost",
        replace(_BF3, level="RESTRICTED"),
    ),
}
