# SPDX-License-Identifier: Apache-2.0
"""Recording of this machine as a redacted snapshot of only the data that checks use."""

from __future__ import annotations

import contextlib
import datetime
import json
import re

import msgspec

from .._version import __version__
from ..json_input import read_json
from .collect.live import QUERIES, RECORD_S, LiveReader
from .collect.reader import Reading
from .collect.snapshot import Snapshot
from .facts import cmdline, kconfig, kernel_log, nic_choice
from .machine import SIZE, Machine
from .redact.redactor import Redactor
from .runner import Progress, read_everything


def record(
    machine: Machine,
    *,
    word: str = "",
    size: int = SIZE,
    limit_s: float = RECORD_S,
    progress: Progress | None = None,
) -> Snapshot:
    """Record everything that the checks read on this machine, for every goal, without secrets.

    Args:
        machine: This machine, with a live reader.
        word: Recordings with the same word have the same pseudonyms, which the recordings of a host
            and its DPU should have; if empty, pseudonyms are random.
        size: Bytes of GPU memory to export at once, as in diagnose().
        limit_s: Time limit of the checks, as in diagnose().
        progress: Called with the number of completed checks and their total.

    Raises:
        ValueError: `machine` is itself a recording.
    """
    reader = machine.read
    if not isinstance(reader, LiveReader):
        raise ValueError(f"{machine.name} cannot be recorded: it is a recording")
    reader.together([f"ask {query}" for query in QUERIES])
    read_everything(machine, size=size, limit_s=limit_s, progress=progress)
    with contextlib.suppress(Exception):  # malformed readings are recorded as they are
        machine.know(nic_choice.choices)
    filtered = {key: filter_reading(key, reading) for key, reading in reader.seen().items()}
    kept = {key: reading for key, reading in filtered.items() if reading is not None}
    return Snapshot(
        dgkit=__version__,
        taken=datetime.date.today().isoformat(),
        source="recorded",
        readings=Redactor(word).redact(kept),
    )


_DEVICES = re.compile(
    r"null|nvidia|sev-guest|tdx_guest|infiniband|gdrdrv|rshim|mst|dma_heap|udmabuf|dri|vfio|tmfifo"
)
_CONTAINERS = re.compile(r"kubepods|docker|libpod|containerd|lxc|garden|podman|buildkit")
# Virtual network interfaces, whose names may contain names of users or containers.
_VIRTUAL = re.compile(
    r"(?:br-|cali|cilium|cni|docker|dummy|flannel|ipvlan|lxc|lxd|macv|podman|tap|tun|veth|virbr|vlan"
    r"|vnet|vxlan|wg|zt)"
)
# Sections of nvidia-smi -q that list the processes of all users with their paths and arguments.
_PROCESS_SECTIONS = ("Processes", "Accounted Processes")
_BUILDER = re.compile(r"\([^()\s@]*@[^()\s]*\)")  # (buildd@host)
_NETS = "/sys/class/net"


def filter_reading(key: str, reading: Reading) -> Reading | None:
    """Return a reading reduced to the data that checks use; None if no check uses it."""
    if key.startswith(f"text {_NETS}/") and _VIRTUAL.match(key.removeprefix(f"text {_NETS}/")):
        return None
    return msgspec.structs.replace(
        reading, text=_text(key, reading), names=_names(key, reading.names)
    )


def _text(key: str, reading: Reading) -> str:
    """Return what checks use of a reading's text."""
    text = reading.text
    if key == f"text {cmdline.PATH}" and reading.ok:
        return cmdline.filter_parameters(text)
    if key.startswith(("text /boot/config", "text /lib/modules/", "text /proc/config")):
        return kconfig.filter_options(text)
    match key:
        case "text /proc/cpuinfo":  # only the first CPU
            return text.partition("\n\n")[0]
        case "text /proc/self/status":
            return "".join(line for line in text.splitlines(True) if line.startswith("Cap"))
        case "text /proc/self/uid_map":  # without the user's ID in the parent namespace
            return text if text.split() == ["0", "0", "4294967295"] or not text else "0 1 1\n"
        case "text /proc/devices":
            return "".join(line for line in text.splitlines(True) if "nvidia" in line)
        case "run dmesg":
            return "".join(f"{line.text}\n" for line in kernel_log.parse(text) if line.error)
        case "run pgrep -x nvidia-imex":  # without the number of the process
            return ""
        case "text /proc/1/cgroup":
            return "".join(f"/{word}\n" for word in dict.fromkeys(_CONTAINERS.findall(text)))
        case "text /proc/modules":  # without kernel addresses
            return "".join(f"{' '.join(line.split()[:5])}\n" for line in text.splitlines())
        case "text /proc/driver/nvidia/version":
            return _BUILDER.sub("", text)
        case "run nvidia-smi -q":
            return strip_processes(text)
        case "run ip -j addr show":
            return _tmfifo(text)
    return text


def _names(key: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the entries of a folder that are recorded: all, or those that checks look for."""
    match key:
        case "names /dev":
            return tuple(name for name in names if _DEVICES.match(name))
        case "names /usr/local":
            return tuple(name for name in names if name.startswith("cuda"))
        case "names /sys/class/net":
            return tuple(name for name in names if not _VIRTUAL.match(name))
    return names


def strip_processes(text: str) -> str:
    """Remove the process sections of nvidia-smi -q: the heading and all lines indented deeper."""
    lines, inside = [], None
    for line in text.splitlines(True):
        depth = len(line) - len(line.lstrip(" \t"))
        if inside is not None and (depth > inside or not line.strip()):
            continue
        inside = depth if line.strip().partition(":")[0].strip() in _PROCESS_SECTIONS else None
        if inside is None:
            lines.append(line)
    return "".join(lines)


def _tmfifo(text: str) -> str:
    """Reduce `ip -j addr show` to the tmfifo interfaces, which link a BlueField and its host."""
    try:
        links = read_json(text)
        tmfifo = [link for link in links if str(link["ifname"]).startswith("tmfifo")]
        wanted = [{name: link[name] for name in ("ifname", "addr_info") if name in link}
                  for link in tmfifo]  # fmt: skip
        return json.dumps(wanted)
    except (ValueError, TypeError, KeyError):
        return ""
