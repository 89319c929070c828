# SPDX-License-Identifier: Apache-2.0
"""State of the NVIDIA kernel modules: /proc/driver/nvidia, /proc/modules."""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine

_PROC = "/proc/driver/nvidia"
_VERSION = re.compile(r"\b(\d{2,4}\.\d{1,3}(?:\.\d{1,3})?)\b")


class Driver(msgspec.Struct, frozen=True):
    """The NVIDIA kernel module.

    Attributes:
        loaded: Whether the module is loaded; None if unknown.
        version: Driver version.
        flavour: "open", "closed" or "" if unknown.
        why: Reason why the flavour is unknown.
    """

    loaded: bool | None
    version: str = ""
    flavour: str = ""
    why: str = ""


class Module(msgspec.Struct, frozen=True):
    """A line of /proc/modules: `users` are the dependent modules; `state` is Live, Loading, ..."""

    name: str
    users: tuple[str, ...] = ()
    state: str = ""


def version_key(version: str) -> tuple[int, ...]:
    """Return a version as numbers for comparison: `580.159.04` is (580, 159, 4); () if invalid."""
    numbers = re.match(r"\d{1,9}(?:\.\d{1,9})*", version.strip())
    return tuple(int(part) for part in numbers[0].split(".")) if numbers else ()


def read_version(text: str) -> tuple[str, str]:
    """Parse version and flavour in /proc/driver/nvidia/version; "" if unknown.

    The first line is `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04 ...` for
    the open modules, `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07 ...` otherwise.
    """
    line = next((line for line in text.splitlines() if "NVRM" in line), "")
    found = _VERSION.search(line.replace("x86_64", ""))
    if "Kernel Module" not in line:
        return found[1] if found else "", ""
    return found[1] if found else "", "open" if "Open Kernel Module" in line else "closed"


def read_modules(text: str) -> dict[str, Module]:
    """Parse /proc/modules: `nvidia 5234688 5 nvidia_uvm,nvidia_modeset, Live 0x0 (OE)`."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 5:
            users = tuple(user for user in words[3].split(",") if user not in ("", "-"))
            found[words[0]] = Module(words[0], users, words[4])
    return found


def key_values(text: str) -> dict[str, str]:
    """Parse lines of `Name: value`, as in the files of /proc/driver/nvidia."""
    parts = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in parts if colon and name.strip()}


def registry(params: str) -> dict[str, str]:
    """Parse RegistryDwords in /proc/driver/nvidia/params, as `PeerMappingOverride=1`."""
    words = key_values(params).get("RegistryDwords", "").strip('"').split(";")
    parts = (word.partition("=") for word in words)
    return {name.strip(): value.strip() for name, equals, value in parts if equals}


def modules(machine: Machine) -> dict[str, Module] | None:
    """Return the loaded kernel modules by name; None if they cannot be read."""
    listing = machine.read.text("/proc/modules")
    return read_modules(listing.text) if listing.ok else None


def driver(machine: Machine) -> Driver:
    """Return the state of the NVIDIA kernel module."""
    proc, sysfs, listing = machine.read.together(
        [f"text {_PROC}/version", "text /sys/module/nvidia/version", "text /proc/modules"]
    )
    if proc.ok:
        version, flavour = read_version(proc.text)
        why = "" if flavour else f"{_PROC}/version has an unknown format"
        return Driver(True, version or sysfs.text.strip(), flavour, why)
    if sysfs.ok:
        return Driver(True, sysfs.text.strip(), "", proc.why)
    if listing.ok:
        return Driver("nvidia" in read_modules(listing.text), "", "", proc.why)
    return Driver(False if proc.absent and sysfs.absent else None, "", "", proc.why)


def information(machine: Machine, address: str) -> dict[str, str]:
    """Return the driver's fields of a GPU: Model, GPU UUID, Bus Location, Device Minor, ..."""
    fields = key_values(machine.read.text(f"{_PROC}/gpus/{address}/information").text)
    return {name: value for name, value in fields.items() if "?" not in value}
