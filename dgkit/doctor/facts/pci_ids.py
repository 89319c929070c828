# SPDX-License-Identifier: Apache-2.0
"""PCI IDs of NVIDIA devices, vendors 10de and 15b3 (public list: pci-ids.ucw.cz)."""

from __future__ import annotations

NVIDIA, MELLANOX = 0x10DE, 0x15B3

# Network functions of DPUs, visible from the host and the Arm side. a2d9 is BlueField-3 Lx.
BLUEFIELD = {
    0xA2D2: "BlueField",
    0xA2D6: "BlueField-2",
    0xA2D9: "BlueField-3",
    0xA2DC: "BlueField-3",
    0xA2DF: "BlueField-4",
}
# Function through which a host boots and manages a DPU (rshim). Its class is DMA controller.
MANAGEMENT = {
    0xC2D2: "BlueField",
    0xC2D3: "BlueField-2",
    0xC2D4: "BlueField-3",
    0xC2D5: "BlueField-3",
}
CONNECTX = {
    0x1003: "ConnectX-3",
    0x1007: "ConnectX-3 Pro",
    0x1011: "Connect-IB",
    0x1013: "ConnectX-4",
    0x1014: "ConnectX-4 VF",
    0x1015: "ConnectX-4 Lx",
    0x1016: "ConnectX-4 Lx VF",
    0x1017: "ConnectX-5",
    0x1018: "ConnectX-5 VF",
    0x1019: "ConnectX-5 Ex",
    0x101A: "ConnectX-5 Ex VF",
    0x101B: "ConnectX-6",
    0x101C: "ConnectX-6 VF",
    0x101D: "ConnectX-6 Dx",
    0x101E: "ConnectX VF",
    0x101F: "ConnectX-6 Lx",
    0x1021: "ConnectX-7",
    0x1023: "ConnectX-8",
    0x1025: "ConnectX-9",
    0xA2D3: "BlueField VF",
}

# Data Direct: a second function of ConnectX-8 for data transfer, in another PCIe tree (Linux,
# drivers/infiniband/hw/mlx5/data_direct.c).
DATA_DIRECT = 0x2100


# Vendors of GPUs, and of NICs with RDMA.
_VENDORS = {
    NVIDIA: "NVIDIA",
    MELLANOX: "Mellanox",
    0x1022: "AMD",
    0x1077: "QLogic",
    0x1425: "Chelsio",
    0x14E4: "Broadcom",
    0x177D: "Marvell",
    0x19E5: "Huawei",
    0x1AE0: "Google",
    0x1D0F: "Amazon",
    0x1DD8: "AMD Pensando",
    0x1DED: "Alibaba",
    0x8086: "Intel",
}


def known(vendor: int, device: int) -> str:
    """Return the name of a listed device, `BlueField-3` or `ConnectX-7`; "" for others."""
    if vendor != MELLANOX:
        return ""
    if device in MANAGEMENT:
        return f"{MANAGEMENT[device]} management"
    return BLUEFIELD.get(device) or CONNECTX.get(device, "")


def name(vendor: int, device: int) -> str:
    """Return the name of a device from `known`, else vendor and ID, such as `NVIDIA 2330`."""
    vendor_name = f"{_VENDORS[vendor]} " if vendor in _VENDORS else f"{vendor:04x}:"
    return known(vendor, device) or f"{vendor_name}{device:04x}"
