# SPDX-License-Identifier: Apache-2.0
"""Multi-node NVLink: the fabric, the IMEX channels of this machine, and the IMEX service."""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine
from .nvidia_smi import smi

NAME = "nvidia-caps-imex-channels"
CHANNELS = f"/dev/{NAME}"


class Imex(msgspec.Struct, frozen=True):
    """State of IMEX.

    Attributes:
        channels: Device files of channels, such as channel0; None if they cannot be listed.
        registered: Whether the driver registered its character device; None if unknown.
        runs: Whether the service runs on this machine; None if unknown.
        why: Reason why the channels are unknown.
    """

    channels: tuple[str, ...] | None
    registered: bool | None
    runs: bool | None
    why: str = ""


def is_multi_node(machine: Machine) -> bool:
    """Return whether the GPUs are part of an NVLink fabric that spans several machines.

    Such a fabric has a UUID (nvmlGpuFabricInfo_t), which is zero on a single machine.
    """
    uuids = (gpu.value("Fabric/ClusterUUID") for gpu in machine.know(smi).gpus)
    return any(re.search("[1-9a-f]", uuid.lower()) for uuid in uuids)


def imex(machine: Machine) -> Imex:
    """Read the channels, the registered devices, and whether the service runs.

    The service may be a systemd unit or, in Kubernetes, a process of a pod.
    """
    listing, devices, active, process = machine.read.together(
        [
            f"names {CHANNELS}",
            "text /proc/devices",
            "run systemctl is-active nvidia-imex",
            "run pgrep -x nvidia-imex",
        ]
    )
    channels = tuple(name for name in listing.names if re.fullmatch(r"channel\d+", name))
    registered = NAME in devices.text.split() if devices.ok else None
    state = active.text.strip()
    runs = None
    if state == "active" or (process.ok and process.code == 0):
        runs = True
    elif (process.ok and process.code == 1) or state in ("inactive", "failed"):
        runs = False
    unread = not listing.ok and not listing.absent
    return Imex(None if unread else channels, registered, runs, listing.why if unread else "")
