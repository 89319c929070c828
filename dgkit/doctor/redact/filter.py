"""What a recording keeps of the readings that tell much: just what checks use of them."""

from __future__ import annotations

import json
import re

import msgspec

from ..collect.reading import Reading
from ..facts import cmdline, kconfig

__all__ = ["kept"]

_DEVICES = re.compile(r"null|nvidia|infiniband|gdrdrv|rshim|mst|dma_heap|udmabuf|dri|vfio|tmfifo")
_CONTAINERS = re.compile(r"kubepods|docker|libpod|containerd|lxc|garden|podman|buildkit")
# Network interfaces that are no card's: what made them may have named them after somebody.
_VIRTUAL = re.compile(
    r"(?:br-|cali|cilium|cni|docker|dummy|flannel|ipvlan|lxc|lxd|macv|podman|tap|tun|veth|virbr|vlan"
    r"|vnet|vxlan|wg|zt)"
)
# Of nvidia-smi -q: the programs of all users, with their paths and arguments.
_PROGRAMS = ("Processes", "Accounted Processes")
_BUILDER = re.compile(r"\([^()\s@]*@[^()\s]*\)")  # (buildd@host)
_NETS = "/sys/class/net"


def kept(key: str, one: Reading) -> Reading | None:
    """The reading without what no check looks at; None if it is not kept at all."""
    if key.startswith(f"text {_NETS}/") and _VIRTUAL.match(key.removeprefix(f"text {_NETS}/")):
        return None
    return msgspec.structs.replace(one, text=_text(key, one), names=_names(key, one.names))


def _text(key: str, one: Reading) -> str:
    text = one.text
    if key == f"text {cmdline.PATH}" and one.ok:
        return cmdline.kept(text)
    if key.startswith(("text /boot/config", "text /lib/modules/", "text /proc/config")):
        return kconfig.kept(text)
    match key:
        case "text /proc/cpuinfo":  # the first CPU is as good as all
            return text.partition("\n\n")[0]
        case "text /proc/self/status":
            return "".join(line for line in text.splitlines(True) if line.startswith("Cap"))
        case "text /proc/1/cgroup":
            return "".join(f"/{word}\n" for word in dict.fromkeys(_CONTAINERS.findall(text)))
        case "text /proc/modules":  # without the kernel's addresses
            return "".join(f"{' '.join(line.split()[:5])}\n" for line in text.splitlines())
        case "text /proc/driver/nvidia/version":
            return _BUILDER.sub("", text)
        case "run nvidia-smi -q":
            return without_programs(text)
        case "run ip -j addr show":
            return _tmfifo(text)
    return text


def _names(key: str, names: tuple[str, ...]) -> tuple[str, ...]:
    match key:
        case "names /dev":
            return tuple(name for name in names if _DEVICES.match(name))
        case "names /usr/local":
            return tuple(name for name in names if name.startswith("cuda"))
        case "names /sys/class/net":
            return tuple(name for name in names if not _VIRTUAL.match(name))
    return names


def without_programs(text: str) -> str:
    """An output of nvidia-smi -q without these sections: a line, and all that is deeper."""
    lines, inside = [], None
    for line in text.splitlines(True):
        depth = len(line) - len(line.lstrip(" \t"))
        if inside is not None and (depth > inside or not line.strip()):
            continue
        inside = depth if line.strip().partition(":")[0].strip() in _PROGRAMS else None
        if inside is None:
            lines.append(line)
    return "".join(lines)


def _tmfifo(text: str) -> str:
    """Of all interfaces and addresses, those between a BlueField and its host."""
    try:
        links = json.loads(text)
        known = [one for one in links if str(one["ifname"]).startswith("tmfifo")]
        wanted = [{name: one[name] for name in ("ifname", "addr_info") if name in one}
                  for one in known]  # fmt: skip
        return json.dumps(wanted)
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
