# SPDX-License-Identifier: Apache-2.0
"""Readings of NVIDIA cards, their settings and their network interfaces."""

from __future__ import annotations

import shlex

from support.doctor.machines import UNAME

from dgkit.doctor.facts import bluefield, mlxconfig

PCI = "/sys/bus/pci/devices"
AT, OTHER = "0000:9f:00.0", "0000:b1:00.0"
BF1, BF2, BF3, CX7 = "A2D2", "A2D6", "A2DC", "1021"
ARM = {"ask uname": {**UNAME, "machine": "aarch64"}, "text /etc/mlnx-release": "bf-bundle-2.9.1"}


def cards(*functions: tuple[str, str]) -> dict[str, object]:
    """Return the readings of network functions, given as (address, device number)."""
    said: dict[str, object] = {f"names {PCI}": [address for address, _ in functions]}
    for address, device in functions:
        said[f"link {PCI}/{address}"] = f"/sys/devices/pci0000:9e/0000:9e:01.0/{address}"
        said[f"text {PCI}/{address}/uevent"] = f"PCI_CLASS=20000\nPCI_ID=15B3:{device}\n"
    return said


def table(now: dict[str, int], then: dict[str, int] | None = None) -> str:
    """Return the output of mlxconfig for these settings."""
    rows = "".join(
        f"        {name:<44}V(0)   V({value})   V({(then or now)[name]})\n"
        for name, value in now.items()
    )
    return f"\nConfigurations:    Default    Current    Next Boot\n{rows}"


def asked(names: tuple[str, ...], answer: object, address: str = AT) -> dict[str, object]:
    """Return the reading of mlxconfig's answer to a query for these names."""
    return {f"run {shlex.join(mlxconfig.command(address, names))}": answer}


def nets(**ports: str) -> dict[str, object]:
    """Return the readings of network interfaces, each with its phys_port_name."""
    return {
        "names /sys/class/net": sorted(ports),
        **{f"text /sys/class/net/{net}/phys_port_name": port for net, port in ports.items()},
    }


# (model, page supplier, switch manager, vport 0, offload engine)
DPU, NIC = (1, 0, 0, 0, 0), (1, 1, 1, 1, 1)


def settings(
    now: tuple[int, ...], then: tuple[int, ...] | None = None, **more: int
) -> dict[str, object]:
    """Return the readings of a card's mode."""
    before = dict(zip(bluefield.MODE, now, strict=True)) | more
    after = dict(zip(bluefield.MODE, then or now, strict=True)) | more
    return asked(bluefield.QUERIED, table(before, after))
