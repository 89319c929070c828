# SPDX-License-Identifier: Apache-2.0
"""Hosts with a BlueField, and what is wrong with some of them."""

from __future__ import annotations

from dataclasses import replace

from doctor.synthetic_machines.hosts import Host
from doctor.synthetic_machines.network import DPU_MODE, NIC_MODE
from doctor.synthetic_machines.nvidia import Driver
from doctor.synthetic_machines.sysfs import fault
from doctor.synthetic_machines.system import System

_GUIDE = "NVIDIA DOCA GPUNetIO guide"


def tree(card: str, gpu: str, *, port: str = "", words: str = "") -> str:
    """A BlueField and a GPU below one switch. `port`: words of its ports, `words`: the GPU's."""
    gen = "5" if card == "bf3" else ""
    return f"""
pci0000:9c numa=1 cpus=12-23,36-47
  01.0 root
    00.0 up{gen}
      00.0 down{gen} {port}
        00.0 {card} rdma=mlx5_0 net=ens6f0np0
        00.1 {card} rdma=mlx5_1 net=ens6f1np1
        00.2 {card}-soc
      01.0 down{gen} {port}
        00.0 {gpu} {words}
pci0000:00 numa=0 cpus=0-11,24-35
  1d.0 root
    00.0 nvme
"""


# The same two on host bridges of their own, at one socket.
APART = """
pci0000:9c numa=1 cpus=12-23,36-47 / 01.0 root / 00.0 h100
pci0000:b0 numa=1 cpus=12-23,36-47 / 02.0 root
  00.0 bf3 rdma=mlx5_0 net=ens6f0np0
  00.1 bf3 rdma=mlx5_1 net=ens6f1np1
  00.2 bf3-soc
pci0000:00 numa=0 cpus=0-11,24-35 / 1d.0 root / 00.0 nvme
"""
CARD = "0000:9f:00.0"  # of this tree


def _host(card: str, mode: dict[str, str], gpu: str = "a100", **more: object) -> Host:
    words = {
        "rshim": "DPU mode" if mode is DPU_MODE else "NIC mode",
        "firmware": {CARD: mode},
        **more,
    }
    return Host(tree(card, gpu), **words)  # type: ignore[arg-type]


_GOOD = _host("bf3", DPU_MODE, "h100")
_OLD = System(release="5.15.0-122-generic", distribution="ubuntu 22.04")
_ON = "intel_iommu=on"
_MISMATCH = (
    "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95"
)

CARDS = {
    "bf2-dpu-mode": (f"{_GUIDE}, BlueField NIC, mlxconfig; in DPU mode", _host("bf2", DPU_MODE)),
    "bf2-nic-mode": (f"{_GUIDE}, BlueField NIC, mlxconfig", _host("bf2", NIC_MODE)),
    "bf3-dpu-mode": (
        f"{_GUIDE}, BlueField NIC, and mstconfig q of a B3220 in DPU mode in public repositories",
        _GOOD,
    ),
    "bf3-nic-mode": (f"{_GUIDE}, BlueField NIC, mlxconfig", _host("bf3", NIC_MODE, "h100")),
    "small-bar1": (
        f"{_GUIDE}, GPU BAR1 Size, the RTX with 256 MiB",
        replace(
            _GOOD,
            tree=tree("bf3", "rtx", words="now=1x16 rebar=256M,512M,1G,2G,4G,8G,16G"),
            driver=Driver(used=6),
        ),
    ),
    "closed-driver": (
        f"{_GUIDE}, Using dmabuf, cuda-drivers instead of nvidia-open",
        replace(
            _GOOD,
            tree=APART,
            driver=Driver("535.183.01", "12.2", "closed", persistence=False),
            firmware={"0000:b1:00.0": DPU_MODE},
        ),
    ),
    "acs-on": (
        f"{_GUIDE}, BlueField NIC, ACSCtl",
        replace(_GOOD, tree=tree("bf3", "h100", port="acs")),
    ),
    "iommu-on": (
        f"{_GUIDE}, IOMMU",
        replace(
            _GOOD,
            iommu="DMA-FQ",
            system=System(cmdline=f"quiet {_ON}"),
        ),
    ),
    "iommu-passthrough": (
        "Linux, kernel-parameters, iommu=pt",
        replace(_GOOD, iommu="identity", system=System(cmdline=f"quiet {_ON} iommu=pt")),
    ),
    "mode-pending": (
        f"{_GUIDE}, BlueField NIC, mlxconfig, before the cold reboot that it asks for",
        _host("bf3", NIC_MODE, "h100", later={CARD: DPU_MODE}),
    ),
    "nouveau": (
        "NVIDIA driver installation guide, Disabling Nouveau, before that",
        replace(
            _GOOD,
            tree=tree("bf3", "h100", words="driver=nouveau"),
            driver=None,
            system=System(loaded=("nouveau", *System.loaded)),
        ),
    ),
    "old-kernel": (
        f"{_GUIDE}, Using dmabuf, Linux 6.2",
        replace(_GOOD, driver=Driver("550.163.01", "12.4"), system=_OLD),
    ),
    "peermem-fallback": (
        f"{_GUIDE}, Using nvidia-peermem",
        replace(_GOOD, driver=Driver("535.183.01", "12.2", "closed", peermem=True), system=_OLD),
    ),
    "driver-broken": (
        "NVML, NVML_ERROR_LIB_RM_VERSION_MISMATCH, as nvidia-smi prints it in public reports",
        replace(_GOOD, driver=Driver("570.195.03", "12.8", broken=_MISMATCH)),
    ),
    "not-root": (
        "Linux, drivers/pci/pci-sysfs.c: 64 bytes of config space; mlxconfig for root alone",
        replace(
            _GOOD,
            root=False,
            system=System(euid=1000, memlock=8 << 20),
            more={
                "text /dev/rshim0/misc": fault("denied", "only root may read /dev/rshim0/misc"),
            },
        ),
    ),
}
