"""The BlueFields of a machine, seen from the host or from their own Arm cores."""

from __future__ import annotations

import json
import re
from enum import Enum

import msgspec

from ..machine import Machine
from . import firmware, mlxconfig
from .firmware import Adapter
from .mlxconfig import Config

__all__ = [
    "ASKED",
    "KEEP",
    "LINKS",
    "MODE",
    "SENDING",
    "Mode",
    "Representor",
    "Tmfifo",
    "addresses",
    "cards",
    "configs",
    "locked",
    "mode",
    "representors",
    "rshim",
    "tmfifo",
]

# The settings that decide the mode, and those that the GPUNetIO guide asks for beside them.
MODE = (
    "INTERNAL_CPU_MODEL",
    "INTERNAL_CPU_PAGE_SUPPLIER",
    "INTERNAL_CPU_ESWITCH_MANAGER",
    "INTERNAL_CPU_IB_VPORT0",
    "INTERNAL_CPU_OFFLOAD_ENGINE",
)
SENDING = ("ACCURATE_TX_SCHEDULER", "REAL_TIME_CLOCK_ENABLE")
ASKED = ("LINK_TYPE_P1", "LINK_TYPE_P2", *MODE, *SENDING)
# What it asks for of a ConnectX: which link is kept up, by its type.
KEEP = ("KEEP_ETH_LINK_UP_P1", "KEEP_IB_LINK_UP_P1")
LINKS = ("LINK_TYPE_P1", *KEEP, *SENDING)


class Mode(Enum):
    """Who owns the card: NVIDIA BlueField modes of operation."""

    DPU = "DPU mode"
    NIC = "NIC mode"
    SEPARATED = "separated hosts"
    UNKNOWN = "?"

    def __str__(self) -> str:
        return self.value


class Representor(msgspec.Struct, frozen=True):
    """`net`: the interface; `port`: what it stands for, as the driver names it: p0 is an uplink.

    The host's function 0 is c1pf0, of an external controller (Linux, devlink-port), pf0 in kernels
    without controllers; NVIDIA's naming makes the interface pf0hpf of both.
    """

    net: str
    port: str

    @property
    def host(self) -> bool:
        """Whether it stands for a function of the host."""
        return bool(_HOST.fullmatch(self.port) or _HOST.fullmatch(self.net))


_HOST = re.compile(r"(?:c[1-9]\d*)?pf\d+(?:hpf)?")


class Tmfifo(msgspec.Struct, frozen=True):
    """The network between host and Arm cores over rshim. `addresses` is None if nobody told."""

    nets: tuple[str, ...] = ()
    addresses: tuple[str, ...] | None = None
    why: str = ""


def cards(machine: Machine) -> tuple[Adapter, ...]:
    """The BlueFields, by address."""
    return tuple(one for one in machine.know(firmware.adapters) if one.bluefield)


def configs(machine: Machine) -> tuple[tuple[Adapter, Config], ...]:
    """Each BlueField with its settings, as mlxconfig tells them."""
    known = cards(machine)
    asked = mlxconfig.queries(machine, [card.address for card in known], ASKED)
    return tuple(zip(known, asked, strict=True))


def mode(settings: Config, *, after: bool = False) -> Mode:
    """The mode in force, or after the next power cycle."""
    read = settings.next if after else settings.now
    if read("INTERNAL_CPU_MODEL") == 0:
        return Mode.SEPARATED
    engine = read("INTERNAL_CPU_OFFLOAD_ENGINE")
    if engine is None:
        return Mode.UNKNOWN
    return Mode.NIC if engine == 1 else Mode.DPU


def rshim(machine: Machine) -> dict[str, Mode]:
    """What the rshim driver says of the modes, by the card's address without its function.

    /dev/rshim0/misc has a line `BF_MODE  DPU mode` from rshim 2.1 on (rshim(8)); root alone may
    read it.
    """
    names = [name for name in machine.read.names("/dev").names if re.fullmatch(r"rshim\d+", name)]
    found = {}
    for reading in machine.read.together([f"text /dev/{name}/misc" for name in names]):
        lines = (line.split(None, 1) for line in reading.text.splitlines())
        said = {words[0]: words[1].strip() for words in lines if len(words) == 2}
        match = re.search(r"(?<![0-9a-f:])([0-9a-f:]+)\.[0-7]", said.get("DEV_NAME", ""))
        if match:
            address = match[1] if match[1].count(":") == 2 else f"0000:{match[1]}"
            found[address] = _MODES.get(said.get("BF_MODE", "").lower(), Mode.UNKNOWN)
    return found


def locked(arm: Machine | None) -> Adapter | None:
    """The card of an Arm side that trusts the host in nothing (zero trust), None if it does."""
    if arm is None:
        return None
    for card in arm.know(cards):
        reading = arm.read.run("mlxprivhost", "-d", card.address, "q")
        if re.search(r"^[ \t]*level[ \t]*:[ \t]*RESTRICTED", reading.text, re.MULTILINE):
            return card
    return None


_MODES = {"dpu mode": Mode.DPU, "nic mode": Mode.NIC}


def representors(machine: Machine) -> tuple[Representor, ...]:
    """The interfaces that stand for ports of the embedded switch, as the Arm side has them.

    A host's own interfaces may be called p0 and p1, too: those count on a DPU alone.
    """
    nets = machine.read.names("/sys/class/net").names
    ports = machine.read.together([f"text /sys/class/net/{net}/phys_port_name" for net in nets])
    pairs = zip(nets, (port.text.strip() for port in ports), strict=True)
    return tuple(
        Representor(net, port) for net, port in pairs if re.fullmatch(r"(?:c\d+)?p[f]?\d+\w*", port)
    )


def tmfifo(machine: Machine) -> Tmfifo:
    """Its interfaces (tmfifo_net0) and their addresses."""
    listing = machine.read.names("/sys/class/net")
    nets = tuple(net for net in listing.names if net.startswith("tmfifo_net"))
    if not nets:
        return Tmfifo(why="" if listing.ok or listing.absent else listing.why)
    reading = machine.read.run("ip", "-j", "addr", "show")
    known = addresses(reading.text)
    if known is None:
        return Tmfifo(nets, why=reading.why or "ip -j addr show gave no JSON")
    return Tmfifo(nets, tuple(one for net in nets for one in known.get(net, ())))


def addresses(text: str) -> dict[str, tuple[str, ...]] | None:
    """IPv4 addresses by interface, of `ip -j addr show`; None if it is no such thing."""
    try:
        links = json.loads(text)
        return {
            str(link["ifname"]): tuple(
                f"{one['local']}/{one['prefixlen']}"
                for one in link.get("addr_info", ())
                if one.get("family") == "inet"
            )
            for link in links
            if "ifname" in link
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
