# SPDX-License-Identifier: Apache-2.0
"""Machines that are no servers: laptop, WSL, virtual machine, container."""

from __future__ import annotations

from dataclasses import replace

from doctor.synthetic_machines.cards import CARDS
from doctor.synthetic_machines.hosts import Host
from doctor.synthetic_machines.nvidia import Driver
from doctor.synthetic_machines.sysfs import fault
from doctor.synthetic_machines.system import System

_LAPTOP = """
pci0000:00
  02.0 igpu
  1c.0 root / 00.0 wifi
  1d.0 root / 00.0 nvme
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
    "laptop": (
        "Linux, ABI of sysfs: a notebook with Intel graphics and wireless, and nothing of NVIDIA's",
        _BARE,
    ),
    "wsl": (
        "Microsoft's WSL 2 documentation: /dev/dxg, no PCI devices, no NVIDIA driver of its own",
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
        "QEMU's Q35 machine with a GPU and a NIC, and the GPUNetIO guide's words on VMs",
        Host(_VM, driver=Driver(virtual="Pass-Through"), system=_KVM),
    ),
    "container": (
        "NVIDIA Container Toolkit, docker run --gpus all and no more, on bf3-dpu-mode",
        replace(
            _GOOD,
            root=False,
            rshim="",
            tools=False,
            doca="",
            firmware={},
            system=System(memlock=8 << 20, capabilities=0xA80425FB),
            more=_CONTAINER,
        ),
    ),
}
