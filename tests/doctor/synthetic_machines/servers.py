# SPDX-License-Identifier: Apache-2.0
"""Machines whose GPU and NIC are as near to each other as their names say, and big ones."""

from __future__ import annotations

from doctor.synthetic_machines.hosts import Host
from doctor.synthetic_machines.network import NIC_MODE
from doctor.synthetic_machines.nvidia import Driver
from doctor.synthetic_machines.system import System

_GUIDE = "NVIDIA DOCA GPUNetIO guide"

# One switch, the GPU and the NIC below it.
PIX = """
pci0000:97 numa=1 cpus=32-63 / 02.0 root / 00.0 up
  00.0 down
    00.0 cx6dx rdma=mlx5_0 net=ens6f0np0
    00.1 cx6dx rdma=mlx5_1 net=ens6f1np1 down
  01.0 down / 00.0 a100
pci0000:00 numa=0 cpus=0-31 / 1d.0 root / 00.0 nvme
"""
# The guide's `lspci -tvvv`, bus for bus.
PXB = """
pci0000:b0 numa=1 cpus=12-23,36-47 / 02.0 root / 00.0 bf2-up
  00.0 bf2-down
    00.0 bf2 rdma=mlx5_0 net=ens6f0np0
    00.1 bf2 rdma=mlx5_1 net=ens6f1np1
    00.2 bf2-soc
  01.0 bf2-down / 00.0 up / 08.0 down / 00.0 a100x
"""
PHB = """
pci0000:15 numa=0 cpus=0-31
  01.0 root / 00.0 h100
  03.0 root / 00.0 cx7 rdma=mlx5_0 net=ens3np0
pci0000:00 numa=0 cpus=0-31 / 1d.0 root / 00.0 nvme
"""
# The guide's `nvidia-smi topo -m`: one GPU, two ports of one NIC, CPUs 12-23,36-47 of node 1.
NODE = """
pci0000:85 numa=1 cpus=12-23,36-47 / 02.0 root / 00.0 a100
pci0000:b0 numa=1 cpus=12-23,36-47 / 02.0 root
  00.0 cx6dx rdma=mlx5_0 net=ens6f0np0
  00.1 cx6dx rdma=mlx5_1 net=ens6f1np1
pci0000:00 numa=0 cpus=0-11,24-35 / 1d.0 root / 00.0 nvme
"""
SYS = """
pci0000:17 numa=0 cpus=0-31 / 01.0 root / 00.0 l40s
pci0000:97 numa=1 cpus=32-63 / 01.0 root / 00.0 cx7 rdma=mlx5_0 net=ens6np0
"""


def _quarter(first: int, numa: int, cpus: str, at: int) -> str:
    """Of the big server: a switch, below it two with a NIC each, and one more for each GPU."""
    half = """
      {slot} down
        00.0 up
          00.0 down
            00.0 up
              00.0 down
                00.0 a100-sxm
          10.0 down
            00.0 cx6 rdma=mlx5_{at} net=ibs{at}"""
    return f"""
pci0000:{first:02x} numa={numa} cpus={cpus}
  01.1 root-amd
    00.0 up{half.format(slot="00.0", at=at)}{half.format(slot="10.0", at=at + 1)}
"""


DGX = (
    _quarter(0x00, 3, "48-63,176-191", 0)
    + _quarter(0x40, 1, "16-31,144-159", 2)
    + _quarter(0x80, 7, "112-127,240-255", 6)
    + _quarter(0xC0, 5, "80-95,208-223", 8)
    + """
pci0000:60 numa=0 cpus=0-15,128-143 / 03.1 root-amd
  00.0 cx6dx rdma=mlx5_4 net=enp97s0f0np0
  00.1 cx6dx rdma=mlx5_5 net=enp97s0f1np1
"""
)
SPARK = """
pci0000:00 numa=0 cpus=0-19 / 00.0 root-gb10
  00.0 cx7-spark rdma=rocep1s0f0 net=enp1s0f0np0
  00.1 cx7-spark rdma=rocep1s0f1 net=enp1s0f1np1 down
pci0002:00 numa=0 cpus=0-19 / 00.0 root-gb10
  00.0 cx7-spark rdma=roceP2p1s0f0 net=enP2p1s0f0np0
  00.1 cx7-spark rdma=roceP2p1s0f1 net=enP2p1s0f1np1 down
pci0004:00 numa=0 cpus=0-19 / 00.0 root-gb10 / 00.0 nvme
pci000f:00 numa=0 cpus=0-19 / 00.0 root-gb10 / 00.0 gb10
"""
_AMD = System(product=("NVIDIA", "DGXA100 920-23687-2530-000"), cpus=256)
_SPARK = System(
    release="6.17.0-1014-nvidia",
    machine="aarch64",
    cpus=20,
    product=("NVIDIA", "NVIDIA_DGX_Spark"),
    cmdline="init_on_alloc=0",
)

SERVERS = {
    "pix": (f"an lspci tree in github.com/NVIDIA/nccl, issue 1405, and the {_GUIDE}", Host(PIX)),
    "pxb": (
        f"{_GUIDE}, lspci -tvvv of a converged accelerator, in NIC mode as it asks",
        Host(PXB, driver=Driver(peermem=True, gdrdrv=True), firmware={"0000:b3:00.0": NIC_MODE}),
    ),
    "phb": (f"{_GUIDE}, legend of nvidia-smi topo -m", Host(PHB)),
    "node": (f"{_GUIDE}, nvidia-smi topo -m", Host(NODE)),
    "sys": (f"{_GUIDE}, legend of nvidia-smi topo -m", Host(SYS)),
    "dgx-a100": (
        "nvidia-smi topo -m of 8 A100 and 10 NICs in public repositories; NVIDIA/nccl, issue 1505",
        Host(DGX, driver=Driver(nvlinks=12, peermem=True), system=_AMD),
    ),
    "dgx-spark": (
        f"{_GUIDE}, DGX Spark, and public notes on its PCI addresses and interfaces",
        Host(SPARK, driver=Driver(version="580.142", machine="aarch64"), system=_SPARK, doca=""),
    ),
}
