"""The Arm side of a BlueField, and machines that are no servers: laptop, WSL, VM, container."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from . import network, probes, sysfs, system
from .cards import CARDS
from .hosts import Host
from .network import DPU_MODE
from .nvidia import Driver
from .sysfs import fault
from .system import System
from .tree import nodes

Readings = dict[str, object]


def arm(card: str, release: str, image: str, doca: str, verbs: str) -> Callable[[], Readings]:
    """What the Arm cores of a card in DPU mode show: its own tree, and the ports of its switch."""
    number = 2 if card == "bf2" else 3
    tree = nodes(
        f"""
pci0000:00 cpus=0-{7 if number == 2 else 15}
  00.0 root-arm
    00.0 {card}-up
      00.0 {card}-down
        00.0 {card} rdma=mlx5_0 net=p0 reps=pf0hpf,en3f0pf0sf0
        00.1 {card} rdma=mlx5_1 net=p1 reps=pf1hpf
"""
    )
    about = System(
        release=release,
        machine="aarch64",
        cpus=8 if number == 2 else 16,
        cmdline="console=hvc0",
        page_size=65536 if release.endswith("64k") else 4096,
        distribution="ubuntu 22.04",
        product=("https://www.mellanox.com", f"BlueField-{number} DPU"),
        loaded=("mlx5_ib", "mlx5_core", "ib_uverbs", "ib_core", "mlxbf_tmfifo"),
    )
    host = Host("", driver=None, system=about, doca=doca, verbs=verbs)
    first = next(node for node in tree if "rdma" in node.words)
    names = {"p0": "p0", "p1": "p1", "pf0hpf": "c1pf0", "pf1hpf": "c1pf1", "en3f0pf0sf0": "pf0sf0"}

    def made() -> Readings:
        found: Readings = {
            **sysfs.pci(tree),
            **sysfs.nodes_of_system(tree),
            **system.system(about),
            **network.network(tree),
            **probes.probes(host, tree),
        }
        found |= network.settings(first, DPU_MODE)
        found["text /etc/mlnx-release"] = f"{image}\n"
        found["names /sys/bus/platform/devices"] = [
            "MLNXBF01:00",
            "MLNXBF22:00",
            "alarmtimer.0.auto",
        ]
        found["names /sys/class/net"] = sorted(["lo", "oob_net0", "tmfifo_net0", *names])
        for net, port in names.items():
            found[f"text /sys/class/net/{net}/phys_port_name"] = f"{port}\n"
        found["run ip -j addr show"] = network.addresses({"tmfifo_net0": "192.168.100.2/30"})
        return found

    return made


_LAPTOP = """
pci0000:00
  02.0 igpu
  1c.0 root
    00.0 wifi
  1d.0 root
    00.0 nvme
"""
_VM = """
pci0000:00
  03.0 virtio-net net=eth0
  05.0 a100
  06.0 cx7 rdma=mlx5_0 net=ens6np0
  1f.0 isa
"""
_KVM = System(product=("QEMU", "Standard PC (Q35 + ICH9, 2009)"), cpus=16, flags="hypervisor")
_HOME = System(
    release="6.11.0-29-generic",
    product=("LENOVO", "21CBCTO1WW"),
    cpus=8,
    euid=1000,
    memlock=8 << 20,
    loaded=("i915", "iwlwifi"),
)
_NODES = ["null", "zero", "shm", "nvidia0", "nvidiactl", "nvidia-uvm"]
_CGROUP = f"0::/system.slice/docker-{1:064x}.scope\n"
_CONTAINER = {
    "text /.dockerenv": "",
    "text /proc/1/cgroup": _CGROUP,
    "names /dev": _NODES,
    "names /dev/infiniband": fault("absent", "there is no /dev/infiniband"),
}
_WSL = System(
    release="5.15.167.4-microsoft-standard-WSL2",
    product=("Microsoft Corporation", "Virtual Machine"),
    cpus=16,
    euid=1000,
    memlock=64 << 20,
    loaded=(),
    flags="hypervisor",
    cmdline="initrd=\\initrd.img WSL_ROOT_INIT=1 panic=-1 nr_cpus=16 hv_utils.timesync_implicit=1",
)
_GOOD = CARDS["bf3-dpu-mode"][1]

_BARE = Host(_LAPTOP, None, _HOME, root=False, doca="", verbs="")

OTHERS = {
    "laptop": ("a notebook with Intel graphics and wireless", _BARE),
    "wsl": (
        "Windows Subsystem for Linux: no PCI devices of its own, no NVIDIA driver in Linux",
        Host(
            "",
            None,
            _WSL,
            root=False,
            doca="",
            verbs="",
            more={
                "names /dev": ["null", "zero", "mem", "shm", "kmsg", "dxg"],
            },
        ),
    ),
    "vm-passthrough": (
        "a KVM guest (Q35) that has a GPU and a NIC, and the GPUNetIO guide's words on VMs",
        Host(_VM, driver=Driver(virtual="Pass-Through"), system=_KVM),
    ),
    "container": (
        "a Docker container on the machine bf3-dpu-mode, started with --gpus all and no more",
        replace(
            _GOOD,
            root=False,
            rshim="",
            tools=False,
            doca="",
            firmware={},
            system=System(memlock=8 << 20),
            more=_CONTAINER,
        ),
    ),
}
ARMS = {
    "bf2-arm": (
        "NVIDIA BlueField BSP and DOCA documentation, the Arm side in DPU mode",
        arm(
            "bf2",
            "5.15.0-1060-bluefield",
            "bf-bundle-2.9.1-40_24.11_ubuntu-22.04_prod",
            "2.9.1004",
            "1.14.54.0",
        ),
    ),
    "bf3-arm": (
        "NVIDIA BlueField BSP and DOCA documentation, the Arm side in DPU mode",
        arm(
            "bf3",
            "6.8.0-1013-bluefield-64k",
            "bf-bundle-3.2.1-34_25.11_ubuntu-24.04_64k_prod",
            "3.2.1025",
            "1.14.56.0",
        ),
    ),
}
