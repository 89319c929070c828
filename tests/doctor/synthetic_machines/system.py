# SPDX-License-Identifier: Apache-2.0
"""The system around the devices: kernel, modules, limits, firmware tables, libraries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_ON = (
    *("PCI_P2PDMA", "ZONE_DEVICE", "DEVICE_PRIVATE", "HMM_MIRROR", "DMA_SHARED_BUFFER"),
    *("INFINIBAND", "INFINIBAND_USER_ACCESS", "MLX5_CORE", "IOMMU_DEFAULT_DMA_LAZY"),
)
_IOMMU = {
    "x86_64": ("INTEL_IOMMU", "INTEL_IOMMU_DEFAULT_ON", "AMD_IOMMU"),
    "aarch64": ("ARM_SMMU_V3",),
}
_NEVER = ("IOMMU_DEFAULT_PASSTHROUGH", "IOMMU_DEFAULT_DMA_STRICT")
_MODULES = ("INFINIBAND", "INFINIBAND_USER_ACCESS", "MLX5_CORE")


@dataclass(frozen=True)
class System:
    """`off`: options of the kernel's configuration that are not set. `memlock`: bytes, or None.

    `capabilities`: root's. `product`: vendor and name in DMI. `loaded`: modules besides NVIDIA's.
    """

    release: str = "6.8.0-51-generic"
    machine: str = "x86_64"
    cmdline: str = "quiet splash"
    off: tuple[str, ...] = ()
    memlock: int | None = None
    page_size: int = 4096
    euid: int = 0
    capabilities: int = 0x1FFFFFFFFFF
    distribution: str = "ubuntu 24.04"
    product: tuple[str, str] = ("Supermicro", "SYS-420GP-TNR")
    cpus: int = 48
    loaded: tuple[str, ...] = ("mlx5_ib", "mlx5_core", "ib_uverbs", "ib_core")
    flags: str = ""
    more: Mapping[str, object] = field(default_factory=dict)


def system(made: System, modules: Iterable[tuple[str, tuple[str, ...]]] = ()) -> dict[str, object]:
    """What it shows."""
    version = "#52-Ubuntu SMP PREEMPT_DYNAMIC"
    lines = [*((name, ()) for name in made.loaded), *modules]
    vendor, product = made.product
    names = {"node": "host-1", "release": made.release, "machine": made.machine}
    found: dict[str, object] = {
        "ask uname": {"system": "Linux", "version": version, **names},
        "ask page-size": made.page_size,
        "ask memlock": {"soft": made.memlock, "hard": made.memlock},
        "ask open-files": {"soft": 1024, "hard": 1048576},
        "ask euid": made.euid,
        "ask cpus": list(range(made.cpus)),
        "text /proc/self/status": _status(made),
        "text /proc/self/uid_map": "         0          0 4294967295\n",
        "text /proc/devices": "Character devices:\n195 nvidia\n",
        "ask dgkit": {"version": "0.1.0", "wire": 1},
        "ask environ": {},
        "text /proc/cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{made.release} ro {made.cmdline}\n",
        "text /proc/modules": "".join(_module(*line) for line in lines),
        f"text /boot/config-{made.release}": _options(made),
        "text /etc/os-release": _os(made.distribution),
        "text /proc/1/cgroup": "0::/init.scope\n",
        "text /proc/cpuinfo": _cpuinfo(made),
        "text /sys/class/dmi/id/sys_vendor": f"{vendor}\n",
        "text /sys/class/dmi/id/product_name": f"{product}\n",
    }
    return {**found, **made.more}


def _status(made: System) -> str:
    able = 0 if made.euid else made.capabilities
    return f"Name:\tpython3\nUid:\t{made.euid}\t{made.euid}\nCapEff:\t{able:016x}\n"


def _module(name: str, users: tuple[str, ...]) -> str:
    used = "".join(f"{user}," for user in users) or "-"
    return f"{name} 98304 {len(users)} {used} Live 0x0000000000000000 (OE)\n"


def _options(made: System) -> str:
    lines = ["# Automatically generated file; DO NOT EDIT.", "CONFIG_64BIT=y"]
    for name in (*_ON, *_IOMMU[made.machine], *_NEVER):
        value = "m" if name in _MODULES else "y"
        off = name in (*made.off, *_NEVER)
        lines.append(f"# CONFIG_{name} is not set" if off else f"CONFIG_{name}={value}")
    return "\n".join(lines) + "\n"


def _os(distribution: str) -> str:
    name, _, version = distribution.partition(" ")
    pretty = f"{name.capitalize()} {version}"
    return (
        f'PRETTY_NAME="{pretty}"\nNAME="{name.capitalize()}"\nVERSION_ID="{version}"\nID={name}\n'
    )


def _cpuinfo(made: System) -> str:
    if made.machine == "aarch64":
        return "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd42\n\n"
    flags = f"fpu vme de pse msr pae sse sse2 ht {made.flags}".strip()
    return f"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: {flags}\n\n"
