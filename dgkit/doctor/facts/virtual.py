# SPDX-License-Identifier: Apache-2.0
"""Detection of virtual machines and containers."""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine
from .uname import uname

_DMI = "/sys/class/dmi/id"
# Names of hypervisors in the DMI tables, as in systemd-detect-virt.
_NAMES = (
    ("kvm", "KVM"),
    ("qemu", "QEMU"),
    ("vmware", "VMware"),
    ("virtualbox", "VirtualBox"),
    ("innotek", "VirtualBox"),
    ("xen", "Xen"),
    ("bochs", "Bochs"),
    ("parallels", "Parallels"),
    ("bhyve", "bhyve"),
    ("hyper-v", "Hyper-V"),
    ("virtual machine", "Hyper-V"),
    ("google compute engine", "Google Compute Engine"),
    ("amazon ec2", "Amazon EC2"),
    ("openstack", "OpenStack"),
    ("apple virtualization", "Apple"),
)


class Virtual(msgspec.Struct, frozen=True):
    """Virtualization of a machine.

    Attributes:
        is_vm: Whether this is a virtual machine; None if unknown.
        by: Name of the hypervisor, "" if unknown.
        firmware: Vendor and product in the DMI tables.
        why: Reason why nothing is known.
    """

    is_vm: bool | None
    by: str = ""
    firmware: str = ""
    why: str = ""


def virtual(machine: Machine) -> Virtual:
    """Detect a virtual machine by the CPU flag `hypervisor`, the DMI tables and the kernel.

    On x86, a missing flag (CPUID 1, ECX bit 31) means bare metal: clouds use the same DMI names for
    bare-metal and virtual machines. On Arm, only the DMI tables are available.
    """
    cpu, vendor, product, xen, tree = machine.read.together(
        [
            "text /proc/cpuinfo",
            f"text {_DMI}/sys_vendor",
            f"text {_DMI}/product_name",
            "text /sys/hypervisor/type",
            "text /proc/device-tree/hypervisor/compatible",
        ]
    )
    firmware = " ".join(f"{vendor.text} {product.text}".split())
    if machine.know(uname).wsl:
        return Virtual(True, "WSL 2", firmware)
    by = _hypervisor_name(firmware, xen.text, tree.text)
    if flags := re.search(r"^flags\s*:(.*)$", cpu.text, re.MULTILINE):
        is_vm = "hypervisor" in flags[1].split()
        return Virtual(is_vm, by if is_vm else "", firmware)
    if by:
        bare = firmware.lower().endswith(".metal")
        return Virtual(not bare, "" if bare else by, firmware)
    if firmware:
        return Virtual(False, firmware=firmware)
    return Virtual(None, why=cpu.why or "neither CPU flags nor DMI tables are available")


def _hypervisor_name(firmware: str, xen: str, tree: str) -> str:
    by = next((name for word, name in _NAMES if word in firmware.lower()), "")
    return by or xen.strip().capitalize() or tree.strip("\0 \n").rpartition(",")[2].upper()


def is_confidential(machine: Machine) -> bool:
    """Return whether this guest uses confidential computing (Linux, drivers/virt/coco)."""
    devices, cpu = machine.read.together(["names /dev", "text /proc/cpuinfo"])
    return bool({"sev-guest", "tdx_guest"} & set(devices.names)) or "tdx_guest" in cpu.text.split()


class Container(msgspec.Struct, frozen=True):
    """Container environment.

    Attributes:
        engine: Docker, Podman and so on; "" outside of a container.
        devices: Names in /dev.
        infiniband: Names in /dev/infiniband.
    """

    engine: str
    devices: frozenset[str]
    infiniband: frozenset[str]


_CGROUPS = (
    ("kubepods", "Kubernetes"),
    ("docker", "Docker"),
    ("libpod", "Podman"),
    ("containerd", "containerd"),
    ("lxc", "LXC"),
)


def container(machine: Machine) -> Container:
    """Detect a container by the files of its engine, and by the cgroup of process 1."""
    docker, podman, systemd, cgroup, devices, infiniband = machine.read.together(
        [
            "text /.dockerenv",
            "text /run/.containerenv",
            "text /run/systemd/container",
            "text /proc/1/cgroup",
            "names /dev",
            "names /dev/infiniband",
        ]
    )
    word = systemd.text.strip()
    engine = next((name for part, name in _CGROUPS if part in cgroup.text), "")
    if not docker.absent and docker.fault != "unrecorded":
        engine = engine or "Docker"
    elif podman.ok:
        engine = engine or "Podman"
    return Container(engine or word, frozenset(devices.names), frozenset(infiniband.names))
