"""Whether this is a virtual machine, or a container."""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine
from .uname import uname

__all__ = ["Container", "Virtual", "container", "virtual"]

_DMI = "/sys/class/dmi/id"
# How hypervisors name themselves in the firmware's tables, as systemd-detect-virt knows them.
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
    """`is_vm`: None where nothing tells. `by`: the hypervisor, as far as it has a name.

    `firmware`: what the firmware's tables call the machine. `why`: why nothing can be told.
    """

    is_vm: bool | None
    by: str = ""
    firmware: str = ""
    why: str = ""


def virtual(machine: Machine) -> Virtual:
    """By the CPU's flag `hypervisor` (CPUID 1, ECX bit 31), the firmware's tables and the kernel.

    A flag that is not there on x86 means bare metal: clouds name their bare machines in the tables
    as they name the virtual ones. On Arm only the tables tell.
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
    by = _named(firmware, xen.text, tree.text)
    if flags := re.search(r"^flags\s*:(.*)$", cpu.text, re.MULTILINE):
        there = "hypervisor" in flags[1].split()
        return Virtual(there, by if there else "", firmware)
    if by:
        bare = firmware.lower().endswith(".metal")
        return Virtual(not bare, "" if bare else by, firmware)
    if firmware:
        return Virtual(False, firmware=firmware)
    return Virtual(None, why=cpu.why or "neither the CPU nor the firmware's tables tell")


def _named(firmware: str, xen: str, tree: str) -> str:
    by = next((name for word, name in _NAMES if word in firmware.lower()), "")
    return by or xen.strip().capitalize() or tree.strip("\0 \n").rpartition(",")[2].upper()


class Container(msgspec.Struct, frozen=True):
    """`engine`: Docker, Podman and so on; "" outside of one. `devices`: names in /dev."""

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
    """By the files that engines leave in a container, and by the first process's cgroup."""
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
