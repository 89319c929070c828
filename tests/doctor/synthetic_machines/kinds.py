# SPDX-License-Identifier: Apache-2.0
"""What the names in a drawing of a PCIe tree are: numbers after the PCI ID list (pci.ids)."""

from __future__ import annotations

from dataclasses import dataclass

from doctor.synthetic_machines.config_space import (
    DOWNSTREAM,
    ENDPOINT,
    INTEGRATED,
    MIB,
    ROOT_PORT,
    UPSTREAM,
    Link,
)

GIB = 1024 * MIB
# BAR number, size, and the flags of linux/ioport.h that `resource` shows.
PREFETCHABLE, PLAIN = 0x14220C, 0x40200
FULL = Link(4, 16)
_NIC_BARS = ((0, 32 * MIB, PREFETCHABLE),)


@dataclass(frozen=True)
class Kind:
    """`name`: of a GPU, its product. `rdma`: MT number, firmware, PSID.

    `age`, `memory` (GiB) and `speed` (Gb/s) of a device that is in no table of its own.
    """

    vendor: int
    device: int
    code: int
    express: int | None = ENDPOINT
    link: Link = FULL
    driver: str = ""
    bars: tuple[tuple[int, int, int], ...] = ()
    name: str = ""
    rdma: tuple[str, str, str] | None = None
    age: str = ""
    memory: int = 0
    speed: int = 0

    @property
    def is_gpu(self) -> bool:
        """NVIDIA's."""
        return self.vendor == 0x10DE and self.code >> 16 == 3

    @property
    def is_bridge(self) -> bool:
        """A port."""
        return self.code == 0x060400


def _port(vendor: int, device: int, express: int, gen: int = 5) -> Kind:
    return Kind(vendor, device, 0x060400, express, Link(gen, 16), "pcieport")


def _gpu(device: int, name: str, window: int, gen: int = 4, code: int = 0x030200) -> Kind:
    bars = ((0, 16 * MIB, PLAIN), (1, window, PREFETCHABLE), (3, 32 * MIB, PREFETCHABLE))
    return Kind(0x10DE, device, code, ENDPOINT, Link(gen, 16), "nvidia", bars, name)


def _nic(
    device: int, gen: int, model: str, firmware: str, board: str, code: int = 0x020000
) -> Kind:
    rdma = (model, firmware, board)
    return Kind(0x15B3, device, code, ENDPOINT, Link(gen, 16), "mlx5_core", _NIC_BARS, rdma=rdma)


KINDS = {
    "root": _port(0x8086, 0x347A, ROOT_PORT),
    "root-amd": _port(0x1022, 0x1483, ROOT_PORT, 4),
    "root-gb10": _port(0x10DE, 0x22CE, ROOT_PORT),
    "root-arm": _port(0x15B3, 0xA2DA, ROOT_PORT, 4),
    "up": _port(0x1000, 0xC010, UPSTREAM, 4),
    "down": _port(0x1000, 0xC010, DOWNSTREAM, 4),
    "up5": _port(0x1000, 0xC030, UPSTREAM),
    "down5": _port(0x1000, 0xC030, DOWNSTREAM),
    "bf2-up": _port(0x15B3, 0x1976, UPSTREAM, 4),
    "bf2-down": _port(0x15B3, 0x1976, DOWNSTREAM, 4),
    "bf3-up": _port(0x15B3, 0x197B, UPSTREAM),
    "bf3-down": _port(0x15B3, 0x197B, DOWNSTREAM),
    "a100x": _gpu(0x20B8, "NVIDIA A100X", 128 * GIB),
    "a100": _gpu(0x20B5, "NVIDIA A100 80GB PCIe", 128 * GIB),
    "a100-sxm": _gpu(0x20B0, "NVIDIA A100-SXM4-40GB", 64 * GIB),
    "h100": _gpu(0x2331, "NVIDIA H100 PCIe", 128 * GIB, 5),
    "l40s": _gpu(0x26B9, "NVIDIA L40S", 64 * GIB),
    "t4": _gpu(0x1EB8, "Tesla T4", 256 * MIB, 3),
    "rtx": _gpu(0x24B0, "NVIDIA RTX A4000", 256 * MIB, 4, 0x030000),
    "gb10": Kind(
        0x10DE,
        0x2E12,
        0x030000,
        ENDPOINT,
        Link(5, 16),
        "nvidia",
        ((0, 64 * MIB, PLAIN),),
        "NVIDIA GB10",
    ),
    "bf2": _nic(0xA2D6, 4, "MT41686", "24.47.1026", "MT_0000000765"),
    "bf2-soc": Kind(0x15B3, 0xC2D3, 0x080100, ENDPOINT, Link(4, 16), "", _NIC_BARS),
    "bf3": _nic(0xA2DC, 5, "MT41692", "32.47.1026", "MT_0000000884"),
    "bf3-soc": Kind(0x15B3, 0xC2D5, 0x080100, ENDPOINT, Link(5, 16), "", _NIC_BARS),
    "cx6dx": _nic(0x101D, 4, "MT4125", "22.47.1026", "MT_0000000359"),
    "cx6": _nic(0x101B, 4, "MT4123", "20.43.4100", "MT_0000000223", 0x020700),
    "cx7": _nic(0x1021, 5, "MT4129", "28.47.1026", "MT_0000000838"),
    "cx7-spark": Kind(
        0x15B3,
        0x1021,
        0x020000,
        ENDPOINT,
        Link(5, 4),
        "mlx5_core",
        _NIC_BARS,
        rdma=("MT4129", "28.45.4028", "NVD0000000087"),
    ),
    "i350": Kind(0x8086, 0x1521, 0x020000, ENDPOINT, Link(2, 4), "igb"),
    "wifi": Kind(0x8086, 0x2725, 0x028000, ENDPOINT, Link(2, 1), "iwlwifi"),
    "igpu": Kind(0x8086, 0x9A49, 0x030000, INTEGRATED, Link(0, 0), "i915"),
    "nvme": Kind(0x144D, 0xA80A, 0x010802, ENDPOINT, Link(4, 4), "nvme"),
    "virtio-net": Kind(0x1AF4, 0x1041, 0x020000, None, Link(0, 0), "virtio-pci"),
    "isa": Kind(0x8086, 0x7000, 0x060100, None, Link(0, 0)),
}
